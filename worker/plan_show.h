/* What `penstock plan` shows of plans: JSON for programs, text for people, a picture.
 * All append to a string.  Threads: one. */
#ifndef PENSTOCK_WORKER_PLAN_SHOW_H
#define PENSTOCK_WORKER_PLAN_SHOW_H

#include "worker/plan_net.h"

/* One JSON object of the plan under the settings in force. */
void ps_plan_show_json(const struct ps_net *net, const struct ps_net_plan *plan,
                       struct ps_str *out);

/* The plan, its operators computed again, what each setting does to it ('others', each
 * with one setting changed), and advice.  Errors: PS_ENOMEM. */
PS_MUST_CHECK enum ps_status ps_plan_show_text(const struct ps_net *net,
                                               const struct ps_net_plan *plan,
                                               const struct ps_net_plan *others,
                                               size_t other_count, struct ps_str *out);

/* An SVG picture of what lives when: one curve for each of 'plans', the first one filled,
 * at most PS_PLAN_CURVES.  Errors: PS_ENOMEM. */
#define PS_PLAN_CURVES 4
PS_MUST_CHECK enum ps_status ps_plan_show_svg(const struct ps_net *net,
                                              const struct ps_net_plan *const *plans,
                                              size_t plan_count, struct ps_str *out);

#endif
