/* The link head: bytes as they are, and with the crc made right so that the checks behind
 * it are reached. */
#include "net/wire.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const void *data, size_t size)
{
    struct ps_link_head head;
    struct ps_error err;
    if (ps_link_head_check(data, size, 1u << 20, &head, &err) == PS_OK &&
        (head.head_bytes > size || head.head_bytes < PS_LINK_HEAD_BYTES ||
         head.head_bytes % PS_RECORD_BYTES != 0 || head.body_bytes > 1u << 20 ||
         strcmp(ps_frame_kind_name(head.kind), "?") == 0)) {
        abort(); /* the check let something through */
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct ps_link_head head;
    check(data, size);
    if (size >= sizeof(head)) {
        memcpy(&head, data, sizeof(head));
        head.magic = PS_WIRE_MAGIC;
        ps_link_head_seal(&head);
        check(&head, sizeof(head));
    }
    return 0;
}
