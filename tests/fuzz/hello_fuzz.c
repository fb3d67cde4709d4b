/* Bodies of HELLO and of refusals. */
#include "net/hello.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct ps_hello hello;
    struct ps_error err;
    char text[PS_ERROR_TEXT_BYTES];
    if (ps_hello_decode(data, size, &hello, &err) == PS_OK) {
        struct ps_hello back;
        struct ps_buf *body;
        if (ps_hello_encode(&hello, &body) != PS_OK) {
            return 0;
        }
        if (ps_hello_decode(body->data, body->size, &back, &err) != PS_OK ||
            back.nonce != hello.nonce || strcmp(back.host, hello.host) != 0) {
            abort(); /* what was accepted does not survive its own encoding */
        }
        ps_buf_release(body);
    }
    if (ps_error_body_decode(data, size, text) && strlen(text) >= sizeof(text)) {
        abort();
    }
    return 0;
}
