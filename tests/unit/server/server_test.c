/* A server with two lanes in the simulation, spoken to frame by frame: bundles over both
 * lanes, wrong lanes, requests that must be refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/util.h"
#include "server/server.h"
#include "tests/unit/scheduler/job_fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KEYS 6
#define COUNT 8

static struct job job;
static struct ps_node *node;
static struct ps_server *server;
static struct job_member *worker;
static struct ps_net_end *end;
static struct ps_net_link *link_0; /* to lane 0 */
static struct ps_key_row rows[KEYS];
static bool up;

static const char *const no_env[] = {NULL};

static enum ps_status on_hello(void *ctx, struct ps_net_link *link,
                               const struct ps_hello *peer, struct ps_error *err)
{
    PS_UNUSED(ctx);
    PS_UNUSED(link);
    PS_UNUSED(err);
    assert_int_equal(peer->role, PS_ROLE_SERVER);
    assert_int_equal(peer->lane_count, 2);
    return PS_OK;
}

static void on_up(void *ctx, struct ps_net_link *link)
{
    PS_UNUSED(ctx);
    PS_UNUSED(link);
    up = true;
}

static void on_down(void *ctx, struct ps_net_link *link, const struct ps_error *err)
{
    PS_UNUSED(ctx);
    PS_UNUSED(link);
    print_message("down: %s\n", err->text);
}

static void on_landed(void *ctx, struct ps_net_link *link, const struct ps_frame *frame)
{
    PS_UNUSED(ctx);
    PS_UNUSED(link);
    PS_UNUSED(frame);
}

static const struct ps_net_handler handler = {
    .hello = on_hello, .up = on_up, .down = on_down, .landed = on_landed};

static void open_server(void)
{
    static const char *const settings[] = {"NUM_WORKER=1", "NUM_SERVER=1", "LOG=error",
                                           NULL};
    struct ps_error err = {0};
    struct ps_node_options options = {.name = "server/0",
                                      .env = no_env,
                                      .overrides = settings,
                                      .sim = job.sim,
                                      .net_world = job.world};
    assert_int_equal(ps_node_open(&options, &node, &err), PS_OK);
    struct ps_server_options server_options = {
        .node = node, .url = "sim://lane", .root_url = JOB_URL, .lanes = 2};
    assert_int_equal(ps_server_open(&server_options, &server, &err), PS_OK);
    assert_int_equal(ps_server_lane_count(server), 2);
}

static void create_keys(void)
{
    static const uint64_t sizes[KEYS] = {COUNT, COUNT, COUNT, COUNT, COUNT, COUNT};
    struct job_call call;
    struct ps_msg_keys keys;
    struct ps_error err = {0};
    job_call(&call, worker, PS_KIND_KEYS, job_keys_body("default", sizes, KEYS, false));
    assert_int_equal(call.status, PS_OK);
    assert_int_equal(ps_msg_keys_unpack(call.reply->data, call.reply->size, &keys, &err),
                     PS_OK);
    assert_int_equal(keys.row_count, KEYS);
    memcpy(rows, keys.rows, sizeof(rows)); /* with their extents */
    free(keys.rows);
    job_call_fini(&call);
}

static void open_all(void)
{
    struct ps_error err = {0};
    up = false;
    job_open(&job, 5, 1, 1, NULL);
    open_server();
    worker = job_member(&job, PS_ROLE_WORKER, 0);
    assert_true(job_run_until(&job, &worker->joined, 20000));
    const struct ps_msg_job *j = ps_member_job(worker->member);
    struct ps_net_end_options options = {
        .node = worker->node,
        .loop = worker->node->loop,
        .handler = &handler,
        .self = {
            .member = j->member, .role = PS_ROLE_WORKER, .rank = 0, .lane_count = 1}};
    memcpy(options.self.uuid, j->uuid, sizeof(j->uuid));
    assert_int_equal(ps_net_end_open(&options, &end, &err), PS_OK);
    ps_net_end_set_epoch(end, j->epoch);
    const struct ps_member_row *row = ps_member_find(worker->member, PS_ROLE_SERVER, 0);
    assert_int_equal(row->url_count, 2);
    assert_int_equal(ps_net_dial(end, row->urls[0], NULL, &link_0, &err), PS_OK);
    assert_true(job_run_until(&job, &up, 20000));
    create_keys();
}

static void close_all(void)
{
    for (size_t i = 0; i < KEYS; i++) {
        ps_key_row_fini(&rows[i]);
    }
    ps_net_end_close(end);
    ps_server_close(server);
    ps_node_close(node);
    job_close(&job);
}

/* ---- one request ---- */

struct request {
    struct ps_net_call call;
    bool done;
    enum ps_status status;
    struct ps_error err;
    struct ps_record records[KEYS];
    size_t record_count;
    struct ps_buf *payload;
};

static void on_done(struct ps_net_call *call, enum ps_status status,
                    const struct ps_frame *reply, const struct ps_error *err)
{
    struct request *r = PS_CONTAINER_OF(call, struct request, call);
    r->done = true;
    r->status = status;
    if (status != PS_OK && err != NULL) {
        r->err = *err;
    }
    if (reply != NULL && reply->record_count > 0) {
        r->record_count = reply->record_count;
        memcpy(r->records, reply->records->data,
               reply->record_count * sizeof(struct ps_record));
    }
    if (reply != NULL && reply->payload != NULL) {
        r->payload = ps_buf_retain(reply->payload);
    }
}

static void start(struct request *r, unsigned kind, const struct ps_record *records,
                  size_t n, const void *data, size_t bytes)
{
    memset(r, 0, sizeof(*r));
    r->call.done = on_done;
    r->call.what = "test";
    r->call.frame.head.kind = (uint16_t)kind;
    if (n > 0) {
        r->call.frame.records = ps_buf_create(n * sizeof(*records));
        assert_non_null(r->call.frame.records);
        memcpy(r->call.frame.records->data, records, n * sizeof(*records));
        r->call.frame.record_count = n;
    }
    if (bytes > 0) {
        r->call.frame.payload = ps_buf_create(bytes);
        assert_non_null(r->call.frame.payload);
        memcpy(r->call.frame.payload->data, data, bytes);
        r->call.frame.payload_bytes = bytes;
    }
    assert_int_equal(ps_net_call_start(link_0, &r->call), PS_OK);
}

static void finish(struct request *r)
{
    ps_buf_release(r->call.frame.records);
    ps_buf_release(r->call.frame.payload);
    ps_buf_release(r->payload);
}

static struct ps_record record_of(size_t key, unsigned op, uint64_t step)
{
    bool carries = op != PS_REC_PULL;
    return (struct ps_record){.handle = rows[key].handle,
                              .step = step,
                              .count = COUNT,
                              .bytes = carries ? COUNT * 4 : 0,
                              .shard = rows[key].extents[0].shard,
                              .rank_count = 1,
                              .dtype = PS_F32,
                              .op = (uint8_t)op};
}

static void bundle(struct request *r, unsigned op, uint64_t step, float base)
{
    struct ps_record records[KEYS];
    float data[KEYS * COUNT];
    for (size_t k = 0; k < KEYS; k++) {
        records[k] = record_of(k, op, step);
        for (size_t i = 0; i < COUNT; i++) {
            data[k * COUNT + i] = base + (float)k;
        }
    }
    start(r, PS_KIND_DATA, records, KEYS, data, op == PS_REC_PULL ? 0 : sizeof(data));
}

static void expect_values(const struct request *r, float base)
{
    assert_int_equal(r->status, PS_OK);
    assert_int_equal(r->record_count, KEYS);
    assert_int_equal(r->payload->size, KEYS * COUNT * 4);
    const float *values = r->payload->data;
    for (size_t k = 0; k < KEYS; k++) {
        assert_int_equal(r->records[k].status, PS_OK);
        assert_true(r->records[k].handle == rows[k].handle);
        assert_float_equal(values[k * COUNT + 3], base + (float)k, 0);
    }
}

static void a_bundle_over_both_lanes_is_one_request_and_one_reply(void **state)
{
    PS_UNUSED(state);
    struct request pull, init, push;
    open_all();
    bool lanes[2] = {false, false};
    for (size_t k = 0; k < KEYS; k++) {
        lanes[ps_shard_lane(rows[k].extents[0].shard, 2)] = true;
    }
    assert_true(lanes[0] && lanes[1]);
    bundle(&pull, PS_REC_PULL, 0, 0); /* waits for INIT */
    job_run_ms(&job, 100);
    assert_false(pull.done);
    bundle(&init, PS_REC_INIT, 0, 10);
    assert_true(job_run_until(&job, &pull.done, 5000));
    assert_true(job_run_until(&job, &init.done, 5000));
    assert_int_equal(init.status, PS_OK);
    expect_values(&pull, 10);
    bundle(&push, PS_REC_PUSHPULL, 1, 20);
    assert_true(job_run_until(&job, &push.done, 5000));
    expect_values(&push, 20);
    assert_true(push.records[5].version == 1 && push.records[5].segment_offset == 1);
    finish(&pull);
    finish(&init);
    finish(&push);
    close_all();
}

/* The record's error, or the head's. */
static enum ps_status ask_one(struct ps_record record, const char *words)
{
    struct request r;
    float data[COUNT * 4] = {0};
    start(&r, PS_KIND_DATA, &record, 1, data, record.bytes);
    assert_true(job_run_until(&job, &r.done, 5000));
    enum ps_status status = r.status;
    struct ps_error err = r.err;
    if (status == PS_OK) {
        assert_int_equal(r.record_count, 1);
        status = (enum ps_status)r.records[0].status;
        assert_int_equal(r.payload->size, r.records[0].bytes);
        ps_msg_error_read(r.payload->data, r.payload->size, &err);
    }
    if (strstr(err.text, words) == NULL) {
        fail_msg("'%s' does not say '%s'", err.text, words);
    }
    finish(&r);
    return status;
}

static void bad_requests_are_answered_and_the_server_lives(void **state)
{
    PS_UNUSED(state);
    open_all();
    struct ps_record r = record_of(0, PS_REC_PULL, 0);
    r.handle += 1; /* another generation */
    assert_int_equal(ask_one(r, "no key"), PS_ENOENT);
    r = record_of(0, PS_REC_PULL, 0);
    r.dtype = PS_F16; /* case 38 */
    assert_int_equal(ask_one(r, "float16"), PS_EDTYPE);
    r = record_of(0, PS_REC_PULL, 0);
    r.count = COUNT + 1;
    assert_int_equal(ask_one(r, "no chunk"), PS_ESHAPE);
    r = record_of(0, PS_REC_PULL, 0);
    r.first = 1000;
    assert_int_equal(ask_one(r, "not here"), PS_ESTALE);
    r = record_of(0, PS_REC_PULL, 0);
    r.shard += 2; /* the same lane, not this extent's */
    assert_int_equal(ask_one(r, "not here"), PS_ESTALE);
    r = record_of(0, PS_REC_PUSH, 1);
    r.rank_first = 7;
    assert_int_equal(ask_one(r, "rank"), PS_EPERM);
    r = record_of(0, PS_REC_PUSH, 1);
    r.op = 77;
    assert_int_equal(ask_one(r, "op 77"), PS_EPROTO);
    r = record_of(0, PS_REC_PUSH, 100);
    assert_int_equal(ask_one(r, "too far"), PS_EAGAIN);
    struct request init;
    bundle(&init, PS_REC_INIT, 0, 1);
    assert_true(job_run_until(&job, &init.done, 5000));
    assert_int_equal(init.status, PS_OK);
    finish(&init);
    close_all();
}

static void a_link_that_dies_leaves_nothing_behind(void **state)
{
    PS_UNUSED(state);
    struct request pull;
    open_all();
    bundle(&pull, PS_REC_PULL, 0, 0);
    job_run_ms(&job, 50);
    ps_net_link_close(link_0);
    assert_true(pull.done);
    job_run_ms(&job, 10000);
    finish(&pull);
    close_all();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_bundle_over_both_lanes_is_one_request_and_one_reply),
        cmocka_unit_test(bad_requests_are_answered_and_the_server_lives),
        cmocka_unit_test(a_link_that_dies_leaves_nothing_behind)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
