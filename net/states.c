/* The table of docs/wire.md as data: for each kind, who asks whom.  A reply travels the
 * other way round.  Kinds without a row are reserved and refused. */
#include "net/states.h"

#define NONE (1u << PS_ROLE_NONE)
#define WORKER (1u << PS_ROLE_WORKER)
#define SERVER (1u << PS_ROLE_SERVER)
#define SCHEDULER (1u << PS_ROLE_SCHEDULER)
#define MEMBER (WORKER | SERVER)
#define ANY (NONE | WORKER | SERVER | SCHEDULER)

struct route {
    unsigned kind, from, to;
    bool registered; /* the asker must have a member id */
};

static const struct route routes[] = {
    {PS_KIND_HELLO, ANY, ANY, false},
    {PS_KIND_EPOCH, SERVER | SCHEDULER, ANY, true},
    {PS_KIND_DATA, WORKER, SERVER, true},
    {PS_KIND_REGISTER, MEMBER, SCHEDULER, false},
    /* A heartbeat may overtake the registration's end: the scheduler ignores it then. */
    {PS_KIND_HEARTBEAT, MEMBER, SCHEDULER, false},
    {PS_KIND_BARRIER, MEMBER, SCHEDULER, true},
    {PS_KIND_KEYS, WORKER, SCHEDULER, true},
    {PS_KIND_ENTRIES, SCHEDULER, SERVER, true},
    {PS_KIND_OPTIMIZER, WORKER, SCHEDULER, true},
    {PS_KIND_OPTIMIZER, SCHEDULER, SERVER, true},
    {PS_KIND_HYPER, WORKER, SCHEDULER, true},
    {PS_KIND_HYPER, SCHEDULER, SERVER, true},
    {PS_KIND_DONE, WORKER, SCHEDULER, true},
    {PS_KIND_QUORUM, SCHEDULER, MEMBER, true},
    {PS_KIND_ABORT, SCHEDULER, MEMBER, true},
    {PS_KIND_ABORT, MEMBER, SCHEDULER, false},
    {PS_KIND_LEAVE, MEMBER, SCHEDULER, false},
    {PS_KIND_STOP, SCHEDULER, MEMBER, true},
    {PS_KIND_STATUS, ANY, SCHEDULER, false},
    {PS_KIND_STATUS, SCHEDULER, MEMBER, true},
};

static bool route_fits(const struct route *route, const struct ps_frame_rule_query *query)
{
    unsigned from = 1u << (query->reply ? query->to : query->from);
    unsigned to = 1u << (query->reply ? query->from : query->to);
    return route->kind == query->kind && (route->from & from) != 0 &&
           (route->to & to) != 0;
}

enum ps_status ps_frame_allowed(const struct ps_frame_rule_query *query,
                                struct ps_error *err)
{
    const char *kind = ps_frame_kind_name(query->kind);
    if (!query->greeted && query->kind != PS_KIND_HELLO) {
        return ps_error_set(err, PS_EPROTO, "%s before HELLO", kind);
    }
    if (query->reply && query->refusal) {
        return PS_OK;
    }
    bool known = false;
    for (size_t i = 0; i < PS_COUNT(routes); i++) {
        known = known || routes[i].kind == query->kind;
        if (!route_fits(&routes[i], query)) {
            continue;
        }
        if (routes[i].registered && !query->reply && !query->registered) {
            return ps_error_set(err, PS_EPERM, "%s from a %s that has not registered",
                                kind, ps_role_name(query->from));
        }
        return PS_OK;
    }
    if (!known) {
        return ps_error_set(err, PS_EPROTO, "kind %s is reserved", kind);
    }
    return ps_error_set(err, PS_EPERM, "%s %s: a %s does not send it to a %s", kind,
                        query->reply ? "reply" : "request", ps_role_name(query->from),
                        ps_role_name(query->to));
}

const char *ps_role_name(enum ps_role role)
{
    static const char *const names[] = {"none", "worker", "server", "scheduler"};
    return (unsigned)role < PS_COUNT(names) ? names[role] : "?";
}
