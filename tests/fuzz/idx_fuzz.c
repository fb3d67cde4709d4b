/* Fuzz target: IDX data files, gzipped or not.  Holds: what is accepted has as many bytes
 * as its dimensions say; what is not has words. */
#include "base/util.h"
#include "worker/idx.h"

#include <assert.h>

#define CONTENT_MAX ((size_t)1 << 20)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct ps_idx idx = {0};
    struct ps_error err = {.status = PS_OK};
    enum ps_status status = ps_idx_parse(data, size, CONTENT_MAX, &idx, &err);
    if (status != PS_OK) {
        assert(err.status == status && err.text[0] != '\0' && idx.data == NULL);
        return 0;
    }
    size_t count = 1;
    assert(idx.ndim >= 1 && idx.ndim <= PS_IDX_MAX_DIM);
    for (int i = 0; i < idx.ndim; i++) {
        assert(ps_mul_size(count, idx.dim[i], &count));
    }
    assert(count == idx.size && count <= CONTENT_MAX);
    uint8_t sum = 0;
    for (size_t i = 0; i < idx.size; i++) { /* every byte can be read */
        sum = (uint8_t)(sum + idx.data[i]);
    }
    PS_UNUSED(sum);
    ps_idx_fini(&idx);
    return 0;
}
