/* Bodies of control messages: the first byte chooses the message; what can be read can be
 * packed again. */
#include "base/util.h"
#include "kvstore/shard/control.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define KINDS(X)   \
    X(register, 0) \
    X(job, 1)      \
    X(keys, 2)     \
    X(heartbeat, 3) X(barrier, 4) X(optimizer, 5) X(quorum, 6) X(abort, 7) X(status, 8)

#define TRY_KIND(name, number)                                                 \
    case number: {                                                             \
        struct ps_msg_##name msg;                                              \
        struct ps_buf *body = NULL;                                            \
        if (ps_msg_##name##_unpack(data + 1, size - 1, &msg, &err) == PS_OK) { \
            if (ps_msg_##name##_pack(&msg, &body) != PS_OK) {                  \
                abort();                                                       \
            }                                                                  \
            ps_buf_release(body);                                              \
            ps_msg_##name##_fini(&msg);                                        \
        }                                                                      \
        break;                                                                 \
    }

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct ps_error err = {.status = PS_OK};
    if (size < 1) {
        return 0;
    }
    switch (data[0] % 10) {
        KINDS(TRY_KIND)
    default:
        ps_msg_error_read(data + 1, size - 1, &err);
        break;
    }
    return 0;
}
