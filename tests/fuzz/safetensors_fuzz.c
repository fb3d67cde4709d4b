/* Fuzz target: the header of a safetensors file, with its length in front. */
#include "base/util.h"
#include "engine/tensor/safetensors.h"

#include <assert.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct ps_safetensors_header header;
    struct ps_error err = {.status = PS_OK};
    size_t json_size;
    if (size < 8 || ps_safetensors_header_size(data, size, &json_size, &err) != PS_OK) {
        return 0;
    }
    uint64_t data_size = size - 8 - json_size;
    if (ps_safetensors_parse((const char *)data + 8, json_size, data_size, &header,
                             &err) != PS_OK) {
        assert(err.status != PS_OK && err.text[0] != '\0');
        return 0;
    }
    uint64_t at = 0; /* what was accepted covers the data exactly */
    for (size_t i = 0; i < header.count; i++) {
        const struct ps_safetensors_entry *entry = &header.entries[i];
        int64_t count = ps_shape_count(&entry->shape);
        assert(entry->begin == at && entry->end >= entry->begin && count >= 0);
        assert((uint64_t)count * ps_dtype_size(entry->dtype) == entry->end - at);
        at = entry->end;
    }
    assert(at == data_size);
    ps_safetensors_header_fini(&header);
    return 0;
}
