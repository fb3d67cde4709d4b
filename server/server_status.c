/* What a server says of itself: counters as JSON, for STATUS (docs/wire.md).
 * Threads: counters on a lane, the text on the control loop. */
#include "base/str.h"
#include "base/util.h"
#include "server/state.h"

#include <inttypes.h>
#include <string.h>

static void count_entry(struct ps_entry *entry, void *arg)
{
    struct lane_counters *c = arg;
    int64_t missing;
    c->chunks++;
    c->bytes += entry->value != NULL ? entry->bytes : 0;
    c->pushes += entry->pushes;
    c->pulls += entry->pull_requests;
    c->open_rounds += ps_entry_open_rounds(entry);
    c->updates += entry->updates;
    c->version_max = PS_MAX(c->version_max, entry->version);
    if (!c->waits && (missing = ps_entry_missing_rank(entry)) >= 0) {
        c->waits = true;
        c->wait_step = entry->version + 1;
        c->wait_rank = (uint32_t)missing;
        memcpy(c->wait_key, entry->key->name, sizeof(c->wait_key));
    }
}

void server_counters(struct server_lane *lane, struct lane_counters *out)
{
    memset(out, 0, sizeof(*out));
    server_keys_each(lane, count_entry, out);
    out->keys = lane->keys.count;
    out->requests = lane->requests_count;
    out->refused = lane->refused_count;
    out->live = ps_pool_in_use(lane->requests);
}

static void add_wait(const struct ps_server *server, const struct lane_counters *lanes,
                     struct ps_str *text)
{
    for (uint32_t i = 0; i < server->lane_count; i++) {
        if (lanes[i].waits) {
            struct ps_str words = {0};
            ps_str_printf(&words, "waits for rank %" PRIu32 ": key %s step %" PRIu64,
                          lanes[i].wait_rank, lanes[i].wait_key, lanes[i].wait_step);
            ps_str_printf(text, ",\"waiting\":");
            ps_str_json(text, ps_str_text(&words));
            ps_str_fini(&words);
            return;
        }
    }
}

enum ps_status server_status_json(const struct ps_server *server,
                                  const struct lane_counters *lanes,
                                  struct ps_buf **body_out)
{
    struct lane_counters sum = {0};
    struct ps_str text = {0};
    for (uint32_t i = 0; i < server->lane_count; i++) {
        const struct lane_counters *c = &lanes[i];
        sum.keys += c->keys;
        sum.chunks += c->chunks;
        sum.bytes += c->bytes;
        sum.pushes += c->pushes;
        sum.pulls += c->pulls;
        sum.open_rounds += c->open_rounds;
        sum.requests += c->requests;
        sum.refused += c->refused;
        sum.live += c->live;
        sum.updates += c->updates;
        sum.version_max = PS_MAX(sum.version_max, c->version_max);
    }
    /* a key whose extents lie on several lanes counts on each of them */
    ps_str_printf(&text,
                  "{\"lanes\":%" PRIu32 ",\"keys\":%" PRIu64 ",\"chunks\":%" PRIu64
                  ",\"bytes\":%" PRIu64 ",\"pushes\":%" PRIu64 ",\"pulls\":%" PRIu64
                  ",\"requests\":%" PRIu64 ",\"refused\":%" PRIu64
                  ",\"requests_waiting\":%" PRIu64 ",\"rounds_open\":%" PRIu64
                  ",\"updates\":%" PRIu64 ",\"version_max\":%" PRIu64
                  ",\"workers_left\":%" PRIu32,
                  server->lane_count, sum.keys, sum.chunks, sum.bytes, sum.pushes,
                  sum.pulls, sum.requests, sum.refused, sum.live, sum.open_rounds,
                  sum.updates, sum.version_max, server->gone);
    add_wait(server, lanes, &text);
    ps_str_printf(&text, "}");
    struct ps_msg_status msg = {.json = ps_buf_create(text.size)};
    enum ps_status status = text.failed || msg.json == NULL ? PS_ENOMEM : PS_OK;
    if (status == PS_OK) {
        memcpy(msg.json->data, text.data, text.size);
        status = ps_msg_status_pack(&msg, body_out);
    }
    ps_msg_status_fini(&msg);
    ps_str_fini(&text);
    return status;
}
