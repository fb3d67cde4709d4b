/* penstock status: asks a running scheduler for its job and prints it.
 * Thread: main waits; the question travels on the node's loop. */
#include "scheduler/commands.h"

#include "base/node.h"
#include "base/on_loop.h"
#include "base/options.h"
#include "base/str.h"
#include "kvstore/shard/control.h"
#include "kvstore/shard/root.h"
#include "net/net.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ANSWER_MS 5000

struct question {
    struct ps_node *node;
    struct ps_net_end *end;
    struct ps_net_call call;
    struct ps_event done;
    char url[PS_URL_BYTES];
    bool placement, answered;
    struct ps_error err;
    struct ps_buf *json; /* the answer */
};

/* ---- asking ---- */

static void settle(struct question *question, enum ps_status status, const char *text)
{
    if (!question->answered) {
        question->answered = true;
        (void)ps_error_set(&question->err, status, "%s", text);
        ps_event_set(&question->done);
    }
}

static void on_answer(struct ps_net_call *call, enum ps_status status,
                      const struct ps_frame *reply, const struct ps_error *err)
{
    struct question *question = PS_CONTAINER_OF(call, struct question, call);
    struct ps_msg_status msg = {0};
    struct ps_error cause = {0};
    if (status != PS_OK) {
        settle(question, status, err->text);
        return;
    }
    const struct ps_buf *body = reply->payload;
    status = ps_msg_status_unpack(body != NULL ? body->data : NULL,
                                  body != NULL ? body->size : 0, &msg, &cause);
    if (status == PS_OK && msg.json == NULL) {
        status = ps_error_set(&cause, PS_EPROTO, "the answer holds no JSON");
    }
    if (status == PS_OK) {
        question->json = ps_buf_retain(msg.json);
    }
    ps_msg_status_fini(&msg);
    settle(question, status, cause.text);
}

static void on_up(void *ctx, struct ps_net_link *link)
{
    struct question *question = ctx;
    struct ps_msg_status msg = {.placement = question->placement};
    struct ps_buf *body = NULL;
    enum ps_status status = ps_msg_status_pack(&msg, &body);
    if (status == PS_OK) {
        question->call = (struct ps_net_call){.done = on_answer,
                                              .frame = {.head = {.kind = PS_KIND_STATUS},
                                                        .payload = body,
                                                        .payload_bytes = body->size},
                                              .timeout_ns = ANSWER_MS * PS_NS_PER_MS,
                                              .what = "status"};
        status = ps_net_call_start(link, &question->call);
    }
    ps_buf_release(body);
    if (status != PS_OK) {
        settle(question, status, ps_status_text(status));
    }
}

static void on_down(void *ctx, struct ps_net_link *link, const struct ps_error *err)
{
    PS_UNUSED(link);
    settle(ctx, err->status, err->text);
}

static void start_asking(void *arg)
{
    static const struct ps_net_handler handler = {.up = on_up, .down = on_down};
    struct question *question = arg;
    struct ps_net_end_options options = {
        .node = question->node,
        .loop = question->node->loop,
        .handler = &handler,
        .ctx = question,
        .self = {.role = PS_ROLE_NONE, .rank = UINT32_MAX}};
    struct ps_net_link *link;
    struct ps_error err = {0};
    enum ps_status status = ps_net_end_open(&options, &question->end, &err);
    if (status == PS_OK) {
        status = ps_net_dial(question->end, question->url, NULL, &link, &err);
    }
    if (status != PS_OK) {
        settle(question, status, err.text);
    }
}

static void stop_asking(void *arg)
{
    struct question *question = arg;
    question->answered = true;
    ps_net_end_close(question->end);
}

static void ask(struct question *question)
{
    uint64_t deadline_ns =
        ps_clock_now_ns(question->node->clock) + 2 * ANSWER_MS * PS_NS_PER_MS;
    enum ps_status status = ps_event_init(&question->done, question->node->driver);
    if (status != PS_OK) {
        (void)ps_error_set(&question->err, status, "%s", ps_status_text(status));
        return;
    }
    status = ps_on_loop(question->node->loop, start_asking, question);
    if (status == PS_OK) {
        status = ps_event_wait(&question->done, deadline_ns);
        if (ps_on_loop(question->node->loop, stop_asking, question) != PS_OK) {
            return;
        }
    }
    if (status != PS_OK && question->err.status == PS_OK && question->json == NULL) {
        (void)ps_error_set(&question->err, status, "no answer from %s", question->url);
    }
    ps_event_fini(&question->done);
}

/* ---- printing ---- */

static const char *text_of(const json_t *object, const char *name)
{
    const char *text = json_string_value(json_object_get(object, name));
    return text != NULL ? text : "";
}

static long long number_of(const json_t *object, const char *name)
{
    return (long long)json_integer_value(json_object_get(object, name));
}

static void print_members(const json_t *job)
{
    size_t i;
    json_t *member;
    printf("%-8s %5s %7s %-8s %-24s %8s %10s  %s\n", "role", "rank", "member", "state",
           "host", "pid", "heard", "lanes");
    json_array_foreach(json_object_get(job, "members"), i, member)
    {
        json_t *urls = json_object_get(member, "urls");
        const char *first = json_string_value(json_array_get(urls, 0));
        char rank[24] = "any";
        if (json_is_integer(json_object_get(member, "rank"))) {
            (void)snprintf(rank, sizeof(rank), "%lld", number_of(member, "rank"));
        }
        printf("%-8s %5s %7lld %-8s %-24s %8lld %8.1f s  ", text_of(member, "role"), rank,
               number_of(member, "member"), text_of(member, "state"),
               text_of(member, "host"), number_of(member, "pid"),
               (double)number_of(member, "heartbeat_age_ms") / 1e3);
        if (first != NULL) {
            printf("%zu, first %s", json_array_size(urls), first);
        }
        printf("\n");
    }
}

static void print_servers(const json_t *job)
{
    size_t i;
    json_t *server;
    printf("\n%-6s %16s  %s\n", "server", "placed bytes", "counters");
    json_array_foreach(json_object_get(job, "servers"), i, server)
    {
        json_t *counters = json_object_get(server, "counters");
        char *text = json_is_object(counters) ? json_dumps(counters, 0) : NULL;
        printf("%-6lld %16lld  %s\n", number_of(server, "rank"),
               number_of(server, "bytes"), text != NULL ? text : "-");
        free(text);
    }
}

static void print_placement(const json_t *job)
{
    size_t i, k;
    json_t *key, *part;
    printf("\n%-24s %-10s %-16s %12s  %s\n", "key", "dtype", "shape", "bytes",
           "server: extents, bytes");
    json_array_foreach(json_object_get(job, "placement"), i, key)
    {
        printf("%-24s %-10s %-16s %12lld  ", text_of(key, "key"), text_of(key, "dtype"),
               text_of(key, "shape"), number_of(key, "bytes"));
        json_array_foreach(json_object_get(key, "servers"), k, part)
        {
            printf("%s%lld: %lld, %lld", k > 0 ? "; " : "", number_of(part, "server"),
                   number_of(part, "extents"), number_of(part, "bytes"));
        }
        printf("\n");
    }
}

static void print_job(const json_t *job, bool placement)
{
    size_t i;
    json_t *store;
    printf("job %s at %s: %s, up %.1f s, epoch %lld.%lld\n", text_of(job, "uuid"),
           text_of(job, "url"), text_of(job, "state"),
           (double)number_of(job, "uptime_ms") / 1e3, number_of(job, "term"),
           number_of(job, "epoch"));
    printf("workers %lld, servers %lld, keys %lld\n", number_of(job, "num_worker"),
           number_of(job, "num_server"), number_of(job, "keys"));
    if (text_of(job, "waiting")[0] != '\0') {
        printf("%s\n", text_of(job, "waiting"));
    }
    if (text_of(job, "failure")[0] != '\0') {
        printf("failed: %s\n", text_of(job, "failure"));
    }
    json_array_foreach(json_object_get(job, "stores"), i, store)
    {
        printf("store %s (%lld): optimizer %s %s\n", text_of(store, "name"),
               number_of(store, "id"),
               text_of(store, "optimizer")[0] != '\0' ? text_of(store, "optimizer")
                                                      : "none",
               text_of(store, "hyper"));
    }
    printf("\n");
    print_members(job);
    print_servers(job);
    if (placement) {
        print_placement(job);
    }
}

static int print_answer(const struct question *question, bool json)
{
    json_error_t why;
    json_t *job = json_loadb(question->json->data, question->json->size, 0, &why);
    if (job == NULL) {
        fprintf(stderr, "penstock status: the answer is not JSON: %s\n", why.text);
        return PS_EXIT_FAIL;
    }
    if (json) {
        char *text = json_dumps(job, JSON_INDENT(2));
        printf("%s\n", text != NULL ? text : "{}");
        free(text);
    } else {
        print_job(job, question->placement);
    }
    json_decref(job);
    return PS_EXIT_OK;
}

/* ---- the command ---- */

/* "host:port" or a url, over ROOT_URI and ROOT_PORT. */
static enum ps_status choose_url(struct question *question, const char *root,
                                 struct ps_error *err)
{
    if (root == NULL) {
        return ps_root_dial_url(question->node->settings, question->url, err);
    }
    const char *colon = strrchr(root, ':');
    bool whole = strstr(root, "://") != NULL;
    if (!whole && (colon == NULL || colon == root || colon[1] == '\0')) {
        return ps_error_set(err, PS_EINVAL,
                            "--root '%.100s': want HOST:PORT or a whole address", root);
    }
    int n = snprintf(question->url, sizeof(question->url), "%s%s", whole ? "" : "tcp://",
                     root);
    return n >= 0 && (size_t)n < sizeof(question->url)
               ? PS_OK
               : ps_error_set(err, PS_EINVAL, "--root is longer than %d bytes",
                              PS_URL_BYTES - 8);
}

static int ask_and_print(struct question *question, const char *root, bool json)
{
    static const char *const overrides[] = {"LOG=error", "PROFILER_AUTOSTART=0", NULL};
    struct ps_node_options options = {.name = "status", .overrides = overrides};
    struct ps_error err = {0};
    int code = PS_EXIT_CONFIG;
    enum ps_status status = ps_node_open(&options, &question->node, &err);
    if (status != PS_OK) {
        fprintf(stderr, "penstock status: %s\n", err.text);
        return PS_EXIT_CONFIG;
    }
    status = choose_url(question, root, &err);
    if (status != PS_OK) {
        fprintf(stderr, "penstock status: %s\n", err.text);
    } else {
        ask(question);
        if (question->json != NULL) {
            code = print_answer(question, json);
        } else {
            fprintf(stderr, "penstock status: scheduler %s: %s\n", question->url,
                    question->err.text);
            code = PS_EXIT_FAIL;
        }
    }
    ps_buf_release(question->json);
    ps_node_close(question->node);
    return code;
}

int ps_cmd_status(int argc, char **argv)
{
    struct question question = {0};
    const char *root = NULL;
    bool json = false, help = false;
    const struct ps_option options[] = {
        {.name = "root",
         .type = PS_OPT_TEXT,
         .out = &root,
         .value_name = "HOST:PORT",
         .doc = "the scheduler's address, or a whole url (else ROOT_URI, ROOT_PORT)"},
        {.name = "placement",
         .type = PS_OPT_FLAG,
         .out = &question.placement,
         .doc = "show every key's servers, extents and bytes"},
        {.name = "json",
         .type = PS_OPT_FLAG,
         .out = &json,
         .doc = "print JSON instead of a table"}};
    const struct ps_command about = {
        .name = "penstock status",
        .synopsis = "penstock status [--root HOST:PORT] [--placement] [--json]",
        .summary = "Asks a running scheduler about its job.",
        .options = options,
        .option_count = PS_COUNT(options)};
    struct ps_error err = {0};
    int operand = argc;
    enum ps_status status = ps_options_parse(&about, argc, argv, &operand, &help, &err);
    if (status == PS_OK && !help && operand < argc) {
        status = ps_error_set(&err, PS_EINVAL, "unexpected argument '%s'", argv[operand]);
    }
    if (status != PS_OK) {
        fprintf(stderr, "penstock status: %s\n", err.text);
        return PS_EXIT_USAGE;
    }
    return help ? PS_EXIT_OK : ask_and_print(&question, root, json);
}
