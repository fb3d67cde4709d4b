/* What penstock.h's opaque handles are.  Private to api/. */
#ifndef PENSTOCK_API_HANDLES_H
#define PENSTOCK_API_HANDLES_H

#include "api/penstock.h"

#include "base/node.h"
#include "base/queue.h"
#include "base/thread.h"
#include "kvstore/kvstore.h"

#include <stdatomic.h>

struct penstock_node {
    struct ps_node *node;
    struct ps_mutex stores; /* one store at a time comes or goes: dist stores of a node
                               share one membership */
    pthread_key_t words;    /* of each thread's last failure: char[PS_ERROR_TEXT_BYTES] */
    void (*log)(void *arg, const char *line, size_t size);
    void *log_arg;
};

struct penstock_store {
    struct penstock_node *node;
    struct ps_kvstore *store;
};

struct penstock_queue {
    int fd;
    struct ps_mutex mutex; /* guards 'done' */
    struct ps_list done;
};

struct penstock_request {
    struct ps_kv_request kv;
    struct penstock_node *owner; /* not the store, which may go once this is done */
    struct ps_event event;
    struct penstock_queue *queue; /* NULL: none, or taken from it */
    struct ps_list node;
    void *tag;
    _Atomic bool finished; /* the store is through with it */
    char key_name[PS_KEY_NAME_BYTES];
    const void *src_one;
    void *dst_one;
    const void **src; /* 'src_one' or malloc'ed */
    void **dst;
};

/* Remembers the words for penstock_last_error and returns the status. */
int penstock_fail(struct penstock_node *node, const struct ps_error *err);
/* The tensor's dtype, element count and shape; refuses what a store cannot take (strides,
 * devices, lanes), saying so in 'err'. */
PS_MUST_CHECK enum ps_status penstock_read_tensor(const penstock_tensor *tensor,
                                                  int *dtype_out,
                                                  struct ps_shape *shape_out,
                                                  void **data_out, struct ps_error *err);

#endif
