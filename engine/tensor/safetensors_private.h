/* Between safetensors.c and safetensors_header.c. */
#ifndef PENSTOCK_ENGINE_TENSOR_SAFETENSORS_PRIVATE_H
#define PENSTOCK_ENGINE_TENSOR_SAFETENSORS_PRIVATE_H

#include "engine/tensor/safetensors.h"

const char *ps_safetensors_dtype_name(enum ps_dtype dtype); /* "F32" */
void ps_safetensors_free_meta(struct ps_named_text *meta, size_t count);

#endif
