/* The small control messages: heartbeat, barrier, optimizer, quorum, abort, status and
 * the error of a refused request. */
#include "kvstore/shard/control.h"
#include "kvstore/shard/control_io.h"

#include <string.h>

/* ---- HEARTBEAT ---- */

enum ps_status ps_msg_heartbeat_pack(const struct ps_msg_heartbeat *msg,
                                     struct ps_buf **body_out)
{
    struct ps_packer p;
    ps_packer_init(&p);
    ps_pack_map(&p, 3);
    ps_put_uint(&p, "state", msg->state);
    ps_put_str(&p, "text", msg->text);
    ps_put_uint(&p, "wall_ns", msg->wall_ns);
    return ps_packer_finish(&p, body_out);
}

enum ps_status ps_msg_heartbeat_unpack(const void *data, size_t size,
                                       struct ps_msg_heartbeat *msg_out,
                                       struct ps_error *err)
{
    struct ps_reader r;
    struct ps_msg_heartbeat msg = {0};
    ps_reader_init(&r, "HEARTBEAT", data, size, err);
    msg.state = (uint32_t)ps_take_uint(&r, "state", 2);
    ps_take_str(&r, "text", msg.text, sizeof(msg.text));
    msg.wall_ns = ps_take_uint(&r, "wall_ns", UINT64_MAX);
    if (r.status == PS_OK) {
        *msg_out = msg;
    }
    ps_reader_fini(&r);
    return r.status;
}

void ps_msg_heartbeat_fini(struct ps_msg_heartbeat *msg)
{
    PS_UNUSED(msg);
}

/* ---- BARRIER ---- */

enum ps_status ps_msg_barrier_pack(const struct ps_msg_barrier *msg,
                                   struct ps_buf **body_out)
{
    struct ps_packer p;
    ps_packer_init(&p);
    ps_pack_map(&p, 2);
    ps_put_str(&p, "name", msg->name);
    ps_put_uint(&p, "sequence", msg->sequence);
    return ps_packer_finish(&p, body_out);
}

enum ps_status ps_msg_barrier_unpack(const void *data, size_t size,
                                     struct ps_msg_barrier *msg_out, struct ps_error *err)
{
    struct ps_reader r;
    struct ps_msg_barrier msg = {0};
    ps_reader_init(&r, "BARRIER", data, size, err);
    ps_take_str(&r, "name", msg.name, sizeof(msg.name));
    msg.sequence = ps_take_uint(&r, "sequence", UINT64_MAX);
    if (r.status == PS_OK) {
        *msg_out = msg;
    }
    ps_reader_fini(&r);
    return r.status;
}

void ps_msg_barrier_fini(struct ps_msg_barrier *msg)
{
    PS_UNUSED(msg);
}

/* ---- OPTIMIZER, HYPER ---- */

enum ps_status ps_msg_optimizer_pack(const struct ps_msg_optimizer *msg,
                                     struct ps_buf **body_out)
{
    struct ps_packer p;
    ps_packer_init(&p);
    ps_pack_map(&p, 6);
    ps_put_str(&p, "store", msg->store);
    ps_put_str(&p, "name", msg->name);
    ps_put_str(&p, "hyper", msg->hyper);
    ps_put_uint(&p, "from_step", msg->from_step);
    ps_put_bool(&p, "multi_precision", msg->multi_precision);
    ps_put_uint(&p, "sequence", msg->sequence);
    return ps_packer_finish(&p, body_out);
}

enum ps_status ps_msg_optimizer_unpack(const void *data, size_t size,
                                       struct ps_msg_optimizer *msg_out,
                                       struct ps_error *err)
{
    struct ps_reader r;
    struct ps_msg_optimizer msg = {0};
    ps_reader_init(&r, "OPTIMIZER", data, size, err);
    ps_take_str(&r, "store", msg.store, sizeof(msg.store));
    ps_take_str(&r, "name", msg.name, sizeof(msg.name));
    ps_take_str(&r, "hyper", msg.hyper, sizeof(msg.hyper));
    msg.from_step = ps_take_uint(&r, "from_step", UINT64_MAX);
    msg.multi_precision = ps_take_bool(&r, "multi_precision");
    msg.sequence = ps_take_uint(&r, "sequence", UINT64_MAX);
    if (r.status == PS_OK) {
        *msg_out = msg;
    }
    ps_reader_fini(&r);
    return r.status;
}

void ps_msg_optimizer_fini(struct ps_msg_optimizer *msg)
{
    PS_UNUSED(msg);
}

/* ---- QUORUM ---- */

enum ps_status ps_msg_quorum_pack(const struct ps_msg_quorum *msg,
                                  struct ps_buf **body_out)
{
    struct ps_packer p;
    ps_packer_init(&p);
    ps_pack_map(&p, 2);
    ps_put_uint(&p, "rank", msg->rank);
    ps_put_uint(&p, "member", msg->member);
    return ps_packer_finish(&p, body_out);
}

enum ps_status ps_msg_quorum_unpack(const void *data, size_t size,
                                    struct ps_msg_quorum *msg_out, struct ps_error *err)
{
    struct ps_reader r;
    struct ps_msg_quorum msg = {0};
    ps_reader_init(&r, "QUORUM", data, size, err);
    msg.rank = (uint32_t)ps_take_uint(&r, "rank", UINT16_MAX);
    msg.member = (uint32_t)ps_take_uint(&r, "member", UINT32_MAX);
    if (r.status == PS_OK) {
        *msg_out = msg;
    }
    ps_reader_fini(&r);
    return r.status;
}

void ps_msg_quorum_fini(struct ps_msg_quorum *msg)
{
    PS_UNUSED(msg);
}

/* ---- ABORT ---- */

enum ps_status ps_msg_abort_pack(const struct ps_msg_abort *msg, struct ps_buf **body_out)
{
    struct ps_packer p;
    ps_packer_init(&p);
    ps_pack_map(&p, 3);
    ps_put_int(&p, "status", msg->status);
    ps_put_uint(&p, "member", msg->member);
    ps_put_str(&p, "text", msg->text);
    return ps_packer_finish(&p, body_out);
}

enum ps_status ps_msg_abort_unpack(const void *data, size_t size,
                                   struct ps_msg_abort *msg_out, struct ps_error *err)
{
    struct ps_reader r;
    struct ps_msg_abort msg = {0};
    ps_reader_init(&r, "ABORT", data, size, err);
    msg.status = (int32_t)ps_take_int(&r, "status", INT16_MIN, 0);
    msg.member = (uint32_t)ps_take_uint(&r, "member", UINT32_MAX);
    ps_take_str(&r, "text", msg.text, sizeof(msg.text));
    if (r.status == PS_OK) {
        *msg_out = msg;
    }
    ps_reader_fini(&r);
    return r.status;
}

void ps_msg_abort_fini(struct ps_msg_abort *msg)
{
    PS_UNUSED(msg);
}

/* ---- STATUS ---- */

enum ps_status ps_msg_status_pack(const struct ps_msg_status *msg,
                                  struct ps_buf **body_out)
{
    struct ps_packer p;
    ps_packer_init(&p);
    ps_pack_map(&p, msg->json != NULL ? 2 : 1);
    ps_put_bool(&p, "placement", msg->placement);
    if (msg->json != NULL) {
        ps_pack_str(&p, "json");
        p.failed = p.failed || msgpack_pack_str_with_body(&p.msgpack, msg->json->data,
                                                          msg->json->size) != 0;
    }
    return ps_packer_finish(&p, body_out);
}

enum ps_status ps_msg_status_unpack(const void *data, size_t size,
                                    struct ps_msg_status *msg_out, struct ps_error *err)
{
    struct ps_reader r;
    struct ps_msg_status msg = {0};
    ps_reader_init(&r, "STATUS", data, size, err);
    msg.placement = ps_take_bool(&r, "placement");
    if (ps_reader_has(&r, "json")) {
        size_t text_size;
        const char *text = ps_take_text(&r, "json", &text_size);
        if (r.status == PS_OK && (msg.json = ps_buf_create(text_size)) == NULL) {
            r.status = ps_error_set(err, PS_ENOMEM, "STATUS: out of memory");
        }
        if (r.status == PS_OK && text_size > 0) {
            memcpy(msg.json->data, text, text_size);
        }
    }
    if (r.status == PS_OK) {
        *msg_out = msg;
    } else {
        ps_msg_status_fini(&msg);
    }
    ps_reader_fini(&r);
    return r.status;
}

void ps_msg_status_fini(struct ps_msg_status *msg)
{
    ps_buf_release(msg->json);
    msg->json = NULL;
}

/* ---- the error of a refused request ---- */

struct ps_buf *ps_msg_error_pack(const char *text)
{
    struct ps_packer p;
    struct ps_buf *body = NULL;
    ps_packer_init(&p);
    ps_pack_map(&p, 1);
    ps_put_str(&p, "error", text);
    return ps_packer_finish(&p, &body) == PS_OK ? body : NULL;
}

void ps_msg_error_read(const void *data, size_t size, struct ps_error *err_out)
{
    struct ps_reader r;
    char text[PS_TEXT_MAX];
    ps_reader_init(&r, "error", data, size, NULL);
    ps_take_str(&r, "error", text, sizeof(text));
    (void)ps_error_set(err_out, err_out->status, "%s", r.status == PS_OK ? text : "");
    ps_reader_fini(&r);
}
