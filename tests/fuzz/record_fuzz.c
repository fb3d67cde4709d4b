/* Records of a DATA frame: the first byte says request or reply, the rest are records;
 * what passes must be consistent. */
#include "base/util.h"
#include "kvstore/shard/record.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct ps_record out[16];
    struct ps_error err = {.status = PS_OK};
    if (size < 1) {
        return 0;
    }
    bool reply = (data[0] & 1) != 0;
    size_t n = PS_MIN((size - 1) / sizeof(out[0]), PS_COUNT(out));
    uint64_t payload = (size - 1) % sizeof(out[0]) * 4; /* some sums are right */
    if (ps_records_check(data + 1, n, payload, reply, out, &err) != PS_OK) {
        if (err.status != PS_EPROTO || err.text[0] == '\0') {
            abort();
        }
        return 0;
    }
    for (size_t i = 0; i < n; i++) {
        if (out[i].count == 0 || ps_dtype_size(out[i].dtype) == 0 ||
            out[i].bytes > payload || out[i].first > UINT64_MAX - out[i].count) {
            abort();
        }
    }
    return 0;
}
