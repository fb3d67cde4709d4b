/* Short forms of store calls for tests; each asserts (cmocka) unless it returns a status.
 * Threads: any. */
#ifndef PENSTOCK_TESTS_SUPPORT_STORE_CALLS_H
#define PENSTOCK_TESTS_SUPPORT_STORE_CALLS_H

#include "kvstore/kvstore.h"

struct ps_kvstore *store_open(struct ps_node *node, const char *type, const char *name);
/* Every element of the first value is 'value'. */
void store_init(struct ps_kvstore *store, struct ps_key key, int dtype,
                const struct ps_shape *shape, double value);
enum ps_status store_init_status(struct ps_kvstore *store, struct ps_key key, int dtype,
                                 const struct ps_shape *shape, double value,
                                 struct ps_error *err);
/* Pushes 'count' elements that all are 'value'. */
enum ps_status store_push(struct ps_kvstore *store, struct ps_key key, int dtype,
                          uint64_t count, double value, struct ps_error *err);
/* Pulls; '*first_out' gets the first element, and all must be equal to it. */
enum ps_status store_pull(struct ps_kvstore *store, struct ps_key key, int dtype,
                          uint64_t count, double *first_out, struct ps_error *err);
enum ps_status store_pushpull(struct ps_kvstore *store, struct ps_key key, int dtype,
                              uint64_t count, double value, double *first_out,
                              struct ps_error *err);
void store_optimizer(struct ps_kvstore *store, const char *name, const char *hyper);
/* Pulls and compares exactly. */
void store_expect(struct ps_kvstore *store, struct ps_key key, int dtype, uint64_t count,
                  double value);

#endif
