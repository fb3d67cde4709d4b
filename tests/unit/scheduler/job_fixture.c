/* See job_fixture.h. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "job_fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const no_env[] = {NULL};

/* Tests provoke errors; what they say is checked where it is answered. */
static void drop_line(void *arg, const char *line, size_t size)
{
    (void)arg;
    (void)line;
    (void)size;
}

static struct ps_node *open_node(struct job *job, const char *name,
                                 const char *const *settings)
{
    const char *overrides[24];
    size_t n = 0;
    struct ps_error err = {0};
    struct ps_node *node = NULL;
    for (size_t i = 0; settings[i] != NULL; i++) {
        overrides[n++] = settings[i];
    }
    for (size_t i = 0; job->extra[i] != NULL; i++) {
        overrides[n++] = job->extra[i];
    }
    overrides[n] = NULL;
    struct ps_node_options options = {.name = name,
                                      .env = no_env,
                                      .overrides = overrides,
                                      .sim = job->sim,
                                      .net_world = job->world,
                                      .log_sink = drop_line};
    enum ps_status status = ps_node_open(&options, &node, &err);
    if (status != PS_OK) {
        fail_msg("node %s: %s", name, err.text);
    }
    return node;
}

static void on_ended(void *ctx, const struct ps_error *result)
{
    struct job *job = ctx;
    job->ended = true;
    job->result = *result;
}

void job_open(struct job *job, uint64_t seed, unsigned workers, unsigned servers,
              const char *const *extra)
{
    char num_worker[32], num_server[32];
    struct ps_error err = {0};
    memset(job, 0, sizeof(*job));
    job->num_worker = workers;
    job->num_server = servers;
    job->extra[0] = "LOG=error";
    for (size_t i = 0; extra != NULL && extra[i] != NULL; i++) {
        job->extra[i + 1] = extra[i];
    }
    assert_int_equal(ps_sim_create(seed, &job->sim), PS_OK);
    assert_int_equal(ps_net_world_create(job->sim, &job->world), PS_OK);
    (void)snprintf(num_worker, sizeof(num_worker), "NUM_WORKER=%u", workers);
    (void)snprintf(num_server, sizeof(num_server), "NUM_SERVER=%u", servers);
    const char *settings[] = {num_worker, num_server, NULL};
    job->node = open_node(job, "scheduler", settings);
    struct ps_scheduler_options options = {
        .node = job->node, .url = JOB_URL, .ended = on_ended, .ctx = job};
    enum ps_status status = ps_scheduler_open(&options, &job->scheduler, &err);
    if (status != PS_OK) {
        fail_msg("scheduler: %s", err.text);
    }
}

void job_drop(struct job_member *member)
{
    ps_member_close(member->member);
    ps_node_close(member->node);
    member->member = NULL;
    member->node = NULL;
}

void job_close(struct job *job)
{
    ps_scheduler_close(job->scheduler); /* first: the others are not losses then */
    ps_node_close(job->node);
    for (size_t i = 0; i < job->member_count; i++) {
        if (job->members[i].node != NULL) {
            job->members[i].failed = false; /* it may hear of the end as it closes */
            job_drop(&job->members[i]);
        }
    }
    ps_net_world_destroy(job->world);
    ps_sim_destroy(job->sim);
}

/* ---- members ---- */

static void on_joined(void *ctx, const struct ps_msg_job *msg)
{
    struct job_member *member = ctx;
    assert_non_null(msg);
    member->joined = true;
}

static void on_failed(void *ctx, const struct ps_error *err)
{
    struct job_member *member = ctx;
    assert_false(member->failed);
    member->failed = member->over = true;
    member->err = *err;
}

static void on_left(void *ctx, enum ps_status status)
{
    struct job_member *member = ctx;
    member->left = member->over = true;
    member->left_status = status;
}

void job_leave(struct job_member *member)
{
    ps_member_leave(member->member, on_left, member);
}

static void on_stop(void *ctx)
{
    struct job_member *member = ctx;
    assert_false(member->stopped);
    member->stopped = true;
    if (member->leave_on_stop) {
        job_leave(member);
    }
}

static struct ps_buf *serve(struct job_member *member, const struct ps_frame *frame)
{
    struct ps_buf *reply = NULL;
    struct ps_error err = {0};
    const struct ps_buf *body = frame->payload;
    if (frame->head.kind == PS_KIND_ENTRIES) {
        struct ps_msg_keys msg;
        member->entries++;
        assert_int_equal(ps_msg_keys_unpack(body->data, body->size, &msg, &err), PS_OK);
        for (size_t i = 0; i < msg.row_count; i++) {
            assert_true(msg.rows[i].extent_count > 0);
            for (size_t e = 0; e < msg.rows[i].extent_count; e++) {
                member->entry_elements += msg.rows[i].extents[e].count;
            }
        }
        ps_msg_keys_fini(&msg);
    } else if (frame->head.kind == PS_KIND_STATUS) {
        static char text[] = "{\"pushes\":7}";
        struct ps_msg_status msg = {.json = ps_buf_wrap(text, strlen(text), NULL, NULL)};
        member->statuses++;
        assert_int_equal(ps_msg_status_pack(&msg, &reply), PS_OK);
        ps_buf_release(msg.json);
    } else if (frame->head.kind == PS_KIND_QUORUM) {
        member->quorums++;
    } else {
        struct ps_msg_optimizer msg;
        member->optimizers += frame->head.kind == PS_KIND_OPTIMIZER;
        member->hypers += frame->head.kind == PS_KIND_HYPER;
        assert_int_equal(ps_msg_optimizer_unpack(body->data, body->size, &msg, &err),
                         PS_OK);
        memcpy(member->last_hyper, msg.hyper, sizeof(msg.hyper));
        ps_msg_optimizer_fini(&msg);
    }
    return reply;
}

static void on_request(void *ctx, struct ps_net_link *link, const struct ps_frame *frame)
{
    struct job_member *member = ctx;
    struct ps_buf *body = serve(member, frame);
    enum ps_status status =
        frame->head.kind == PS_KIND_ENTRIES ? member->refuse_entries : PS_OK;
    if (status != PS_OK) {
        body = ps_msg_error_pack("no room for entries");
    }
    struct ps_frame reply = {.payload = body,
                             .payload_bytes = body != NULL ? body->size : 0};
    assert_int_equal(ps_net_reply(link, &frame->head, status, &reply), PS_OK);
    ps_buf_release(body);
}

static const struct ps_member_handler member_handler = {
    .joined = on_joined, .failed = on_failed, .stop = on_stop, .request = on_request};
static const struct ps_member_handler worker_handler = {.joined = on_joined,
                                                        .failed = on_failed};

struct job_member *job_member_sized(struct job *job, enum ps_role role, int rank,
                                    unsigned workers, unsigned servers)
{
    char name[32], num_worker[32], num_server[32], rank_text[32];
    static char urls[2][PS_URL_BYTES] = {"sim://lane0", "sim://lane1"};
    struct ps_error err = {0};
    assert_true(job->member_count < JOB_MEMBERS_MAX);
    struct job_member *member = &job->members[job->member_count];
    (void)snprintf(name, sizeof(name), "m%zu", job->member_count++);
    (void)snprintf(num_worker, sizeof(num_worker), "NUM_WORKER=%u", workers);
    (void)snprintf(num_server, sizeof(num_server), "NUM_SERVER=%u", servers);
    (void)snprintf(rank_text, sizeof(rank_text), "RANK=%d", rank);
    const char *settings[] = {num_worker, num_server, rank_text, NULL};
    *member = (struct job_member){.job = job, .role = role, .leave_on_stop = true};
    member->node = open_node(job, name, settings);
    struct ps_member_options options = {
        .node = member->node,
        .role = role,
        .handler = role == PS_ROLE_SERVER ? &member_handler : &worker_handler,
        .ctx = member,
        .urls = urls,
        .url_count = role == PS_ROLE_SERVER ? 2 : 0,
        .root_url = JOB_URL};
    enum ps_status status = ps_member_open(&options, &member->member, &err);
    if (status != PS_OK) {
        fail_msg("member %s: %s", name, err.text);
    }
    return member;
}

struct job_member *job_member(struct job *job, enum ps_role role, int rank)
{
    return job_member_sized(job, role, rank, job->num_worker, job->num_server);
}

void job_start(struct job *job)
{
    for (unsigned r = 0; r < job->num_server; r++) {
        (void)job_member(job, PS_ROLE_SERVER, (int)r);
    }
    for (unsigned r = 0; r < job->num_worker; r++) {
        (void)job_member(job, PS_ROLE_WORKER, (int)r);
    }
    for (size_t i = 0; i < job->member_count; i++) {
        struct job_member *member = &job->members[i];
        if (!job_run_until(job, &member->joined, 20000)) {
            fail_msg("member %zu did not join: %s", i, member->err.text);
        }
    }
}

struct job_member *job_find(struct job *job, enum ps_role role, uint32_t rank)
{
    for (size_t i = 0; i < job->member_count; i++) {
        struct job_member *member = &job->members[i];
        if (member->member != NULL && member->joined && member->role == role &&
            ps_member_job(member->member)->rank == rank) {
            return member;
        }
    }
    fail_msg("no %s %u", ps_role_name(role), rank);
    return NULL;
}

/* ---- time ---- */

void job_run_ms(struct job *job, uint64_t ms)
{
    ps_sim_run_for(job->sim, ms * PS_NS_PER_MS);
}

bool job_run_until(struct job *job, const bool *flag, uint64_t ms)
{
    uint64_t end_ns = ps_sim_now_ns(job->sim) + ms * PS_NS_PER_MS;
    while (!*flag && ps_sim_now_ns(job->sim) < end_ns) {
        ps_sim_run_for(job->sim, PS_NS_PER_MS);
    }
    return *flag;
}

/* ---- requests ---- */

static void on_call_done(struct ps_net_call *net_call, enum ps_status status,
                         const struct ps_frame *reply, const struct ps_error *err)
{
    struct job_call *call = PS_CONTAINER_OF(net_call, struct job_call, call);
    assert_false(call->done);
    call->done = true;
    call->status = status;
    if (status != PS_OK && err != NULL) {
        call->err = *err;
    }
    if (reply != NULL && reply->payload != NULL) {
        call->reply = ps_buf_retain(reply->payload);
    }
}

void job_call_start(struct job_call *call, struct job_member *member, unsigned kind,
                    struct ps_buf *body)
{
    *call = (struct job_call){
        .call = {.done = on_call_done,
                 .frame = {.head = {.kind = (uint16_t)kind},
                           .payload = body,
                           .payload_bytes = body != NULL ? body->size : 0},
                 .timeout_ns = 100 * PS_NS_PER_S}};
    assert_non_null(ps_member_link(member->member));
    assert_int_equal(ps_net_call_start(ps_member_link(member->member), &call->call),
                     PS_OK);
    ps_buf_release(body);
}

void job_call_fini(struct job_call *call)
{
    ps_net_call_cancel(&call->call);
    ps_buf_release(call->reply);
    call->reply = NULL;
}

void job_call(struct job_call *call, struct job_member *member, unsigned kind,
              struct ps_buf *body)
{
    job_call_start(call, member, kind, body);
    assert_true(job_run_until(member->job, &call->done, 120000));
}

struct ps_buf *job_barrier_body(const char *name, uint64_t sequence)
{
    struct ps_msg_barrier msg = {.sequence = sequence};
    struct ps_buf *body = NULL;
    (void)snprintf(msg.name, sizeof(msg.name), "%s", name);
    assert_int_equal(ps_msg_barrier_pack(&msg, &body), PS_OK);
    return body;
}

struct ps_buf *job_keys_body(const char *store, const uint64_t *sizes, size_t count,
                             bool lookup)
{
    struct ps_msg_keys msg = {.lookup = lookup, .row_count = count};
    struct ps_buf *body = NULL;
    (void)snprintf(msg.store, sizeof(msg.store), "%s", store);
    msg.rows = calloc(count, sizeof(*msg.rows));
    assert_non_null(msg.rows);
    for (size_t i = 0; i < count; i++) {
        (void)snprintf(msg.rows[i].name, sizeof(msg.rows[i].name), "k%zu", i);
        msg.rows[i].dtype = PS_F32;
        msg.rows[i].shape.ndim = 1;
        msg.rows[i].shape.dim[0] = (int64_t)sizes[i];
        msg.rows[i].count = sizes[i];
    }
    assert_int_equal(ps_msg_keys_pack(&msg, &body), PS_OK);
    free(msg.rows);
    return body;
}

struct ps_buf *job_optimizer_body(const char *store, const char *name, const char *hyper,
                                  uint64_t sequence)
{
    struct ps_msg_optimizer msg = {.sequence = sequence};
    struct ps_buf *body = NULL;
    (void)snprintf(msg.store, sizeof(msg.store), "%s", store);
    (void)snprintf(msg.name, sizeof(msg.name), "%s", name);
    (void)snprintf(msg.hyper, sizeof(msg.hyper), "%s", hyper);
    assert_int_equal(ps_msg_optimizer_pack(&msg, &body), PS_OK);
    return body;
}
