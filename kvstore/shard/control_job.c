/* REGISTER and JOB: how a member joins and what it learns. */
#include "kvstore/shard/control.h"
#include "kvstore/shard/control_io.h"

#include <stdlib.h>
#include <string.h>

#define MEMBERS_MAX 131072 /* workers and servers that the settings allow, rounded up */

/* ---- REGISTER ---- */

enum ps_status ps_msg_register_pack(const struct ps_msg_register *msg,
                                    struct ps_buf **body_out)
{
    struct ps_packer p;
    ps_packer_init(&p);
    ps_pack_map(&p, 8);
    ps_put_uint(&p, "nonce", msg->nonce);
    ps_put_uint(&p, "role", msg->role);
    ps_put_int(&p, "rank", msg->rank);
    ps_put_uint(&p, "num_worker", msg->num_worker);
    ps_put_uint(&p, "num_server", msg->num_server);
    ps_put_str(&p, "host", msg->host);
    ps_put_uint(&p, "pid", msg->pid);
    ps_put_texts(&p, "urls", (const char *)msg->urls, PS_URL_BYTES, msg->url_count);
    return ps_packer_finish(&p, body_out);
}

enum ps_status ps_msg_register_unpack(const void *data, size_t size,
                                      struct ps_msg_register *msg_out,
                                      struct ps_error *err)
{
    struct ps_reader r;
    struct ps_msg_register msg = {0};
    ps_reader_init(&r, "REGISTER", data, size, err);
    msg.nonce = ps_take_uint(&r, "nonce", UINT64_MAX);
    msg.role = (enum ps_role)ps_take_uint(&r, "role", PS_ROLE_SCHEDULER);
    msg.rank = (int32_t)ps_take_int(&r, "rank", -1, UINT16_MAX);
    msg.num_worker = (uint32_t)ps_take_uint(&r, "num_worker", UINT32_MAX);
    msg.num_server = (uint32_t)ps_take_uint(&r, "num_server", UINT32_MAX);
    ps_take_str(&r, "host", msg.host, sizeof(msg.host));
    msg.pid = (uint32_t)ps_take_uint(&r, "pid", UINT32_MAX);
    msg.urls = (char(*)[PS_URL_BYTES])(void *)ps_take_texts(
        &r, "urls", PS_URL_BYTES, PS_MEMBER_URLS_MAX, &msg.url_count);
    if (r.status == PS_OK) {
        *msg_out = msg;
    } else {
        ps_msg_register_fini(&msg);
    }
    ps_reader_fini(&r);
    return r.status;
}

void ps_msg_register_fini(struct ps_msg_register *msg)
{
    free(msg->urls);
    msg->urls = NULL;
    msg->url_count = 0;
}

/* ---- JOB ---- */

static void pack_member(struct ps_packer *p, const struct ps_member_row *row)
{
    ps_pack_map(p, 6);
    ps_put_uint(p, "member", row->member);
    ps_put_uint(p, "role", row->role);
    ps_put_uint(p, "rank", row->rank);
    ps_put_uint(p, "pid", row->pid);
    ps_put_str(p, "host", row->host);
    ps_put_texts(p, "urls", (const char *)row->urls, PS_URL_BYTES, row->url_count);
}

enum ps_status ps_msg_job_pack(const struct ps_msg_job *msg, struct ps_buf **body_out)
{
    struct ps_packer p;
    ps_packer_init(&p);
    ps_pack_map(&p, 12);
    ps_put_bin(&p, "uuid", msg->uuid, sizeof(msg->uuid));
    ps_put_uint(&p, "epoch", msg->epoch);
    ps_put_uint(&p, "member", msg->member);
    ps_put_uint(&p, "rank", msg->rank);
    ps_put_uint(&p, "num_worker", msg->num_worker);
    ps_put_uint(&p, "num_server", msg->num_server);
    ps_put_uint(&p, "shard_count", msg->shard_count);
    ps_put_uint(&p, "chunk_bytes", msg->chunk_bytes);
    ps_put_uint(&p, "bigarray_bound", msg->bigarray_bound);
    ps_put_uint(&p, "heartbeat_ms", msg->heartbeat_ms);
    ps_put_uint(&p, "heartbeat_timeout_ms", msg->heartbeat_timeout_ms);
    ps_pack_str(&p, "members");
    ps_pack_array(&p, msg->member_count);
    for (size_t i = 0; i < msg->member_count; i++) {
        pack_member(&p, &msg->members[i]);
    }
    return ps_packer_finish(&p, body_out);
}

static enum ps_status take_member(const struct ps_reader *outer,
                                  const msgpack_object *item, struct ps_member_row *row)
{
    struct ps_reader r = ps_reader_nested(outer, "JOB member", item);
    row->member = (uint32_t)ps_take_uint(&r, "member", UINT32_MAX);
    row->role = (enum ps_role)ps_take_uint(&r, "role", PS_ROLE_SCHEDULER);
    row->rank = (uint32_t)ps_take_uint(&r, "rank", UINT16_MAX);
    row->pid = (uint32_t)ps_take_uint(&r, "pid", UINT32_MAX);
    ps_take_str(&r, "host", row->host, sizeof(row->host));
    row->urls = (char(*)[PS_URL_BYTES])(void *)ps_take_texts(
        &r, "urls", PS_URL_BYTES, PS_MEMBER_URLS_MAX, &row->url_count);
    return r.status;
}

static void take_members(struct ps_reader *r, struct ps_msg_job *msg)
{
    msgpack_object_array array = ps_take_array(r, "members", MEMBERS_MAX);
    if (r->status != PS_OK || array.size == 0) {
        return;
    }
    msg->members = calloc(array.size, sizeof(*msg->members));
    if (msg->members == NULL) {
        r->status = ps_error_set(r->err, PS_ENOMEM, "JOB: out of memory");
        return;
    }
    for (uint32_t i = 0; i < array.size && r->status == PS_OK; i++) {
        msg->member_count = i + 1;
        r->status = take_member(r, &array.ptr[i], &msg->members[i]);
    }
}

/* What the arithmetic of placement and chunks relies on. */
static void check_sizes(struct ps_reader *r, const struct ps_msg_job *msg)
{
    uint32_t shards = msg->shard_count;
    if (shards == 0 || (shards & (shards - 1)) != 0) {
        (void)ps_reader_fail(r, "shard_count", "a power of two");
    }
    if (msg->chunk_bytes == 0) {
        (void)ps_reader_fail(r, "chunk_bytes", "at least 1");
    }
    if (msg->bigarray_bound == 0) {
        (void)ps_reader_fail(r, "bigarray_bound", "at least 1");
    }
}

enum ps_status ps_msg_job_unpack(const void *data, size_t size,
                                 struct ps_msg_job *msg_out, struct ps_error *err)
{
    struct ps_reader r;
    struct ps_msg_job msg = {0};
    ps_reader_init(&r, "JOB", data, size, err);
    ps_take_bin(&r, "uuid", msg.uuid, sizeof(msg.uuid));
    msg.epoch = ps_take_uint(&r, "epoch", UINT64_MAX);
    msg.member = (uint32_t)ps_take_uint(&r, "member", UINT32_MAX);
    msg.rank = (uint32_t)ps_take_uint(&r, "rank", UINT16_MAX);
    msg.num_worker = (uint32_t)ps_take_uint(&r, "num_worker", UINT16_MAX);
    msg.num_server = (uint32_t)ps_take_uint(&r, "num_server", UINT16_MAX);
    msg.shard_count = (uint32_t)ps_take_uint(&r, "shard_count", UINT32_C(1) << 16);
    msg.chunk_bytes = (uint32_t)ps_take_uint(&r, "chunk_bytes", UINT32_C(1) << 30);
    msg.bigarray_bound = ps_take_uint(&r, "bigarray_bound", INT64_MAX);
    msg.heartbeat_ms = (uint32_t)ps_take_uint(&r, "heartbeat_ms", UINT32_MAX);
    msg.heartbeat_timeout_ms =
        (uint32_t)ps_take_uint(&r, "heartbeat_timeout_ms", UINT32_MAX);
    check_sizes(&r, &msg);
    take_members(&r, &msg);
    if (r.status == PS_OK) {
        *msg_out = msg;
    } else {
        ps_msg_job_fini(&msg);
    }
    ps_reader_fini(&r);
    return r.status;
}

void ps_msg_job_fini(struct ps_msg_job *msg)
{
    for (size_t i = 0; i < msg->member_count; i++) {
        free(msg->members[i].urls);
    }
    free(msg->members);
    msg->members = NULL;
    msg->member_count = 0;
}
