/* What the tests of net share: two nodes with an end each, over any transport.
 *
 * A side's handlers count what happens in atomics and set its event; a test waits for a
 * counter with net_rig_wait and acts on an end with net_rig_on (a task on its loop).  The
 * same code runs on threads and in a simulation, where waiting pumps the world. */
#ifndef PENSTOCK_TESTS_SUITE_NET_RIG_H
#define PENSTOCK_TESTS_SUITE_NET_RIG_H

#include "base/sim.h"
#include "base/thread.h"
#include "net/net.h"

#include <stdatomic.h>

struct net_rig;

struct net_side {
    struct net_rig *rig;
    struct ps_node *node;
    struct ps_net_end *end;
    struct ps_net_link *_Atomic link; /* the newest one that is up */
    struct ps_event changed;
    char url[PS_URL_BYTES];
    _Atomic uint64_t ups, downs, landed, readies, hellos, bytes;
    struct ps_error down_error;
    struct ps_mutex log_mutex;
    char log[8192];
    size_t log_size;
    /* what a test wants */
    const char *_Atomic refuse; /* hello: refuse with these words */
    void *_Atomic place;        /* place: where payloads go; NULL = buffers */
    _Atomic bool echo; /* landed: answer with the request's records and payload */
    void (*_Atomic on_landed)(struct net_side *side, struct ps_net_link *link,
                              const struct ps_frame *frame);
    void *_Atomic user;
};

struct net_rig {
    const char *scheme;
    struct ps_sim *sim;
    struct ps_net_world *world;
    struct net_side server, client;
};

/* Opens both nodes; 'overrides' as ps_node_options, may be NULL. */
void net_rig_open(struct net_rig *rig, const char *scheme, const char *const *overrides);
void net_rig_close(struct net_rig *rig);
void net_rig_node(struct net_rig *rig, struct net_side *side, const char *name,
                  const char *const *overrides);
void net_rig_end(struct net_side *side, enum ps_role role, uint32_t member,
                 size_t queue_bytes);
/* Server listens, client dials; returns when both are up. */
void net_rig_connect(struct net_rig *rig);
void net_rig_listen(struct net_side *side);
void net_rig_dial(struct net_side *side, const char *url);
void net_rig_close_end(struct net_side *side);

void net_rig_on(struct net_side *side, void (*fn)(struct net_side *side, void *arg),
                void *arg);
/* Fails the test after 20 s (virtual in a simulation). */
void net_rig_wait(struct net_side *side, _Atomic uint64_t *counter, uint64_t at_least);
bool net_rig_wait_for(struct net_side *side, _Atomic uint64_t *counter, uint64_t at_least,
                      uint64_t ns);
bool net_rig_logged(struct net_side *side, const char *words);
/* A payload of 'size' bytes, byte i = (i * 7 + seed) mod 251. */
struct ps_buf *net_rig_payload(size_t size, unsigned seed);
bool net_rig_payload_ok(const void *data, size_t size, unsigned seed);

/* A call whose end a test can wait for. */
struct net_rig_call {
    struct ps_net_call call;
    struct net_side *side;
    _Atomic uint64_t dones;
    enum ps_status status;
    struct ps_error error;
    size_t reply_bytes;
    bool reply_ok;
    unsigned seed; /* expected in the reply's payload */
    void *place;
};
/* Starts it on the side's link with a payload (NULL: none; the reference is taken). */
void net_rig_call_start(struct net_side *side, struct net_rig_call *call,
                        struct ps_buf *payload);

#endif
