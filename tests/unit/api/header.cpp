// The public header, and what it is used for, in C++.
#include <penstock.h>

extern "C" int use_penstock(penstock_node *node, penstock_store *store);

extern "C" int use_penstock(penstock_node *node, penstock_store *store)
{
    float data[4] = {0, 0, 0, 0};
    int64_t shape[1] = {4};
    penstock_options options = PENSTOCK_OPTIONS_INIT;
    penstock_tensor tensor = penstock_tensor_of(data, PENSTOCK_FLOAT32, 1, shape);
    penstock_request *request = nullptr;
    int status = penstock_pushpull(store, penstock_key_named("weights"), &tensor, &tensor,
                                   0, nullptr, &request);
    penstock_request_free(request);
    return status == 0 ? penstock_open(&options, &node) : status;
}
