/* Whole frames against a listening end: what a hostile peer can say before and after its
 * HELLO.  The input is a row of frames, each a byte of flags, the 64 bytes of a head, a
 * byte n and n bytes of body; flag 1 repairs head and crc, flag 2 says a proper HELLO
 * first, flag 4 breaks the connection before. */
#include "net/end.h"
#include "net/hello.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { REPAIR = 1, GREET = 2, BREAK = 4 };

struct attack {
    struct ps_mount mount;
    struct ps_wire_peer *peer;
    void *peer_ctx;
};

/* What follows on the connection comes from a peer that the end does not know. */
static void fake_hangup(struct ps_wire_peer *peer)
{
    ((struct attack *)(void *)peer)->peer_ctx = NULL;
}

static enum ps_status fake_send(struct ps_wire_peer *peer, struct ps_buf *head,
                                struct ps_buf *payload)
{
    PS_UNUSED(peer);
    PS_UNUSED(head);
    PS_UNUSED(payload);
    return PS_OK;
}

static const struct ps_net_ops fake_ops = {.scheme = "fake",
                                           .abi = PS_NET_ABI,
                                           .lossless = true,
                                           .hangup = fake_hangup,
                                           .send = fake_send};

static void on_landed(void *ctx, struct ps_net_link *link, const struct ps_frame *frame)
{
    PS_UNUSED(ctx);
    if (frame->record_count * PS_RECORD_BYTES + PS_LINK_HEAD_BYTES !=
            frame->head.head_bytes ||
        frame->payload_bytes != frame->head.body_bytes ||
        (frame->payload_bytes > 0 && frame->payload == NULL)) {
        abort();
    }
    if (frame->head.req != 0 && ps_net_reply(link, &frame->head, PS_OK, NULL) != PS_OK) {
        abort();
    }
}

static const struct ps_net_handler handler = {.landed = on_landed};

static void deliver(struct attack *attack, const void *head, size_t head_size,
                    const void *body, size_t body_size)
{
    void *place = NULL;
    struct ps_buf *payload = NULL;
    if (ps_end_head(&attack->mount, attack->peer, &attack->peer_ctx, head, head_size,
                    body_size, &place) != PS_OK) {
        return;
    }
    if (body_size > 0) {
        payload = ps_buf_create(body_size);
        if (payload == NULL) {
            return;
        }
        memcpy(payload->data, body, body_size);
    }
    ps_end_landed(&attack->mount, attack->peer, &attack->peer_ctx, payload, body_size);
    ps_buf_release(payload);
}

static void greet(struct attack *attack, uint64_t dial_id)
{
    struct ps_hello hello = {.role = PS_ROLE_WORKER,
                             .member = 3,
                             .nonce = 5,
                             .proto_min = 1,
                             .proto_max = 1,
                             .lane_count = 1};
    struct ps_buf *body;
    if (ps_hello_encode(&hello, &body) != PS_OK) {
        return;
    }
    struct ps_link_head head = {.magic = PS_WIRE_MAGIC,
                                .head_bytes = PS_LINK_HEAD_BYTES,
                                .kind = PS_KIND_HELLO,
                                .src = 3,
                                .req = dial_id,
                                .body_bytes = (uint32_t)body->size};
    ps_link_head_seal(&head);
    deliver(attack, &head, sizeof(head), body->data, body->size);
    ps_buf_release(body);
}

/* Returns the bytes used; 0 at the end of the input. */
static size_t one_frame(struct attack *attack, const uint8_t *data, size_t size)
{
    struct ps_link_head head;
    uint8_t whole[PS_LINK_HEAD_BYTES + PS_RECORD_BYTES * 3] = {0};
    if (size < 2 + sizeof(head)) {
        return 0;
    }
    unsigned flags = data[0];
    memcpy(&head, data + 1, sizeof(head));
    size_t body = PS_MIN((size_t)data[1 + sizeof(head)], size - 2 - sizeof(head));
    size_t head_size = PS_LINK_HEAD_BYTES + (size_t)(flags >> 4 & 3) * PS_RECORD_BYTES;
    if ((flags & BREAK) != 0) {
        ps_end_disconnected(&attack->mount, attack->peer, &attack->peer_ctx);
        attack->peer_ctx = NULL;
    }
    if ((flags & GREET) != 0) {
        greet(attack, 1 + (flags >> 6));
    }
    if ((flags & REPAIR) != 0) {
        head.magic = PS_WIRE_MAGIC;
        head.head_bytes = (uint16_t)head_size;
        head.body_bytes = (uint32_t)body;
        ps_link_head_seal(&head);
    }
    memcpy(whole, &head, sizeof(head));
    deliver(attack, whole, head_size, data + 2 + sizeof(head), body);
    return 2 + sizeof(head) + body;
}

static void attack_end(struct ps_net_end *end, const uint8_t *data, size_t size)
{
    struct attack attack = {.mount = {.end = end, .ops = &fake_ops}};
    attack.peer = (struct ps_wire_peer *)(void *)&attack;
    size_t used;
    while ((used = one_frame(&attack, data, size)) > 0) {
        data += used;
        size -= used;
    }
    ps_net_end_close(end); /* hangs 'attack' up, so before it goes out of scope */
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const env[] = {NULL};
    struct ps_sim *sim;
    struct ps_node *node;
    struct ps_net_end *end;
    if (ps_sim_create(1, &sim) != PS_OK) {
        return 0;
    }
    struct ps_node_options options = {
        .name = "server/0", .env = env, .sim = sim, .log_fd = -1};
    if (ps_node_open(&options, &node, NULL) == PS_OK) {
        struct ps_net_end_options end_options = {
            .node = node,
            .loop = node->loop,
            .handler = &handler,
            .self = {.role = PS_ROLE_SERVER, .member = 2}};
        if (ps_net_end_open(&end_options, &end, NULL) == PS_OK) {
            attack_end(end, data, size);
        }
        ps_node_close(node);
    }
    ps_sim_destroy(sim);
    return 0;
}
