/* Penstock: a distributed parameter server.  The one stable public header.
 *
 *     penstock_node *node;
 *     penstock_store *store;
 *     float w[4] = {0}, g[4] = {1, 1, 1, 1};
 *     int64_t shape[1] = {4};
 *     penstock_open(NULL, &node);
 *     penstock_store_create(node, "dist_sync", NULL, &store);
 *     penstock_tensor tw = penstock_tensor_of(w, PENSTOCK_FLOAT32, 1, shape);
 *     penstock_tensor tg = penstock_tensor_of(g, PENSTOCK_FLOAT32, 1, shape);
 *     penstock_init(store, penstock_key_of(3), &tw);
 *     penstock_pushpull(store, penstock_key_of(3), &tg, &tw, 0, NULL, NULL);
 *
 * Every call returns 0 or a negative penstock_status; penstock_last_error(node) has the
 * words of the last failed call of this thread on that node.  The library never exits the
 * process and prints only through the node's log.  Handles are opaque.  Structs that
 * callers fill start with their own size, so that they can grow; use the initialisers.
 *
 * Threads: any thread may call; one caller at a time per key and per request. */
#ifndef PENSTOCK_H
#define PENSTOCK_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PENSTOCK_ABI 1
#if defined(__GNUC__)
#define PENSTOCK_API __attribute__((visibility("default")))
#else
#define PENSTOCK_API
#endif

typedef struct penstock_node penstock_node;
typedef struct penstock_store penstock_store;
typedef struct penstock_request penstock_request;
typedef struct penstock_queue penstock_queue;

/* ---- the library ---- */
PENSTOCK_API const char *penstock_version(void); /* "0.1.0" */
PENSTOCK_API int penstock_abi(void);             /* PENSTOCK_ABI of the library */
/* "PS_EINVAL", "invalid argument": constant strings, for unknown codes too. */
PENSTOCK_API const char *penstock_status_name(int status);
PENSTOCK_API const char *penstock_status_text(int status);

/* ---- a node ---- */
typedef struct penstock_options {
    size_t size; /* sizeof(penstock_options) */
    const char *const
        *settings; /* NULL-terminated "NAME=value", win over the environment */
    void (*log)(void *arg, const char *line, size_t size); /* NULL: lines go to stderr */
    void *log_arg;
} penstock_options;
#define PENSTOCK_OPTIONS_INIT                      \
    {                                              \
        sizeof(penstock_options), NULL, NULL, NULL \
    }

/* 'options' may be NULL.  A bad setting fails with its name, text and accepted form; the
 * words go to 'error' when it is not NULL (256 bytes). */
PENSTOCK_API int penstock_open(const penstock_options *options, penstock_node **node_out);
PENSTOCK_API int penstock_open_explained(const penstock_options *options,
                                         penstock_node **node_out, char error[256]);
PENSTOCK_API void
penstock_close(penstock_node *node); /* stores must be gone; NULL is fine */
/* Words of this thread's last failed call on the node or its stores; "" when none. */
PENSTOCK_API const char *penstock_last_error(penstock_node *node);
/* For programs that are started in every role (as MXNet's were): when ROLE (DMLC_ROLE) is
 * server or scheduler, serves until the job ends and returns 1 with the exit code in
 * 'code_out'; otherwise returns 0 at once. */
PENSTOCK_API int penstock_run_role(int *code_out);

/* ---- tensors: the caller's memory, shaped like DLPack's DLTensor ---- */
enum { PENSTOCK_CPU = 1, PENSTOCK_CUDA = 2 }; /* DLDeviceType */
typedef struct penstock_dtype {
    uint8_t code; /* DLDataTypeCode: 0 int, 1 uint, 2 float, 4 bfloat */
    uint8_t bits;
    uint16_t lanes; /* 1 */
} penstock_dtype;
#define PENSTOCK_FLOAT32 ((penstock_dtype){2, 32, 1})
#define PENSTOCK_FLOAT64 ((penstock_dtype){2, 64, 1})
#define PENSTOCK_FLOAT16 ((penstock_dtype){2, 16, 1})
#define PENSTOCK_BFLOAT16 ((penstock_dtype){4, 16, 1})
#define PENSTOCK_INT32 ((penstock_dtype){0, 32, 1})
#define PENSTOCK_INT64 ((penstock_dtype){0, 64, 1})
#define PENSTOCK_UINT8 ((penstock_dtype){1, 8, 1})

typedef struct penstock_tensor { /* same members in the same order as DLTensor */
    void *data;
    struct {
        int32_t device_type, device_id;
    } device;
    int32_t ndim;
    penstock_dtype dtype;
    const int64_t *shape;
    const int64_t
        *strides; /* elements; NULL = row-major without gaps; others are refused */
    uint64_t byte_offset;
} penstock_tensor;

static inline penstock_tensor penstock_tensor_of(void *data, penstock_dtype dtype,
                                                 int32_t ndim, const int64_t *shape)
{
    penstock_tensor t = {data, {PENSTOCK_CPU, 0}, ndim, dtype, shape, NULL, 0};
    return t;
}

/* ---- keys: numbers or names; one store holds one kind ---- */
typedef struct penstock_key {
    uint64_t number;
    const char *name; /* NULL = the number is the key */
} penstock_key;
static inline penstock_key penstock_key_of(uint64_t number)
{
    penstock_key key = {number, NULL};
    return key;
}
static inline penstock_key penstock_key_named(const char *name)
{
    penstock_key key = {0, name};
    return key;
}

/* ---- stores ---- */
/* 'type': "local", "device", "dist_sync", "dist_async", "dist_device_sync", ... ; 'name'
 * NULL = "default". A dist store joins the job that the settings describe (DMLC_*
 * variables work) and waits for it. */
PENSTOCK_API int penstock_store_create(penstock_node *node, const char *type,
                                       const char *name, penstock_store **store_out);
PENSTOCK_API void penstock_store_destroy(penstock_store *store);
/* Before destroy, in a program that failed: no goodbye is said, so the job learns that
 * this worker is lost instead of done, and the others end or go on as ON_WORKER_LOSS
 * says.  'why' may be NULL. */
PENSTOCK_API void penstock_store_abandon(penstock_store *store, const char *why);
PENSTOCK_API int penstock_rank(const penstock_store *store);
PENSTOCK_API int penstock_num_workers(const penstock_store *store);
PENSTOCK_API const char *penstock_store_type(const penstock_store *store);

/* Every worker calls it for every key; rank 0's value counts.  Waits. */
PENSTOCK_API int penstock_init(penstock_store *store, penstock_key key,
                               const penstock_tensor *value);
PENSTOCK_API int penstock_init_many(penstock_store *store, const penstock_key *keys,
                                    const penstock_tensor *values, size_t count);
PENSTOCK_API int penstock_set_optimizer(penstock_store *store, const char *name,
                                        const char *hyper_parameters);
PENSTOCK_API int penstock_set_hyper(penstock_store *store, const char *hyper_parameters);
PENSTOCK_API int penstock_barrier(penstock_store *store);
PENSTOCK_API int penstock_done(penstock_store *store);

/* Push, pull, both.  The tensors' memory must stay until the request has completed.
 * 'request_out' NULL: waits.  Otherwise the call returns at once and gives a request
 * (NULL when it failed); with 'queue' not NULL its completion is also put there.  Higher
 * priority first. */
PENSTOCK_API int penstock_push(penstock_store *store, penstock_key key,
                               const penstock_tensor *value, int priority,
                               penstock_queue *queue, penstock_request **request_out);
PENSTOCK_API int penstock_pull(penstock_store *store, penstock_key key,
                               penstock_tensor *out, int priority, penstock_queue *queue,
                               penstock_request **request_out);
PENSTOCK_API int penstock_pushpull(penstock_store *store, penstock_key key,
                                   const penstock_tensor *value, penstock_tensor *out,
                                   int priority, penstock_queue *queue,
                                   penstock_request **request_out);
/* The same with several values, summed first (one a device). */
PENSTOCK_API int penstock_pushpull_many(penstock_store *store, penstock_key key,
                                        const penstock_tensor *values, size_t value_count,
                                        penstock_tensor *outs, size_t out_count,
                                        int priority, penstock_queue *queue,
                                        penstock_request **request_out);

/* ---- requests ---- */
/* Waits at most 'timeout_ms' (-1: until its own deadline); PS_ETIMEDOUT leaves it
 * pending. */
PENSTOCK_API int penstock_request_wait(penstock_request *request, int timeout_ms);
PENSTOCK_API int penstock_request_done(const penstock_request *request);   /* 0 or 1 */
PENSTOCK_API int penstock_request_status(const penstock_request *request); /* when done */
PENSTOCK_API const char *penstock_request_text(const penstock_request *request);
PENSTOCK_API uint32_t penstock_request_contributors(const penstock_request *request);
PENSTOCK_API uint64_t penstock_request_version(const penstock_request *request);
PENSTOCK_API void penstock_request_set_tag(penstock_request *request, void *tag);
PENSTOCK_API void *penstock_request_tag(const penstock_request *request);
/* Frees; waits for it when it is still pending.  NULL is fine. */
PENSTOCK_API void penstock_request_free(penstock_request *request);

/* ---- completion queues ---- */
PENSTOCK_API int penstock_queue_create(penstock_node *node, penstock_queue **queue_out);
PENSTOCK_API void
penstock_queue_destroy(penstock_queue *queue); /* its requests must be done, not freed */
PENSTOCK_API int
penstock_queue_fd(const penstock_queue *queue); /* readable while not empty */
/* The next completed request (still the caller's to free), NULL when there is none. */
PENSTOCK_API penstock_request *penstock_queue_next(penstock_queue *queue);

/* ---- the profiler: what ran when, for Perfetto; docs/tracing.md ---- */
typedef struct penstock_profiler {
    size_t size;      /* sizeof(penstock_profiler) */
    int mode;         /* 0: operators of networks, 1: everything that an engine runs */
    const char *file; /* NULL: as it is */
} penstock_profiler;
#define PENSTOCK_PROFILER_INIT             \
    {                                      \
        sizeof(penstock_profiler), 0, NULL \
    }
/* Wins over PROFILER_MODE and PROFILER_FILE.  The file so far is complete then. */
PENSTOCK_API int penstock_profiler_configure(penstock_node *node,
                                             const penstock_profiler *profiler);
PENSTOCK_API int penstock_profiler_start(penstock_node *node);
/* 'paused' 1: nothing is recorded until it is 0 again. */
PENSTOCK_API int penstock_profiler_pause(penstock_node *node, int paused);
PENSTOCK_API int penstock_profiler_stop(penstock_node *node);
/* Everything so far is in the file; recording goes on.  Closing the node does it too. */
PENSTOCK_API int penstock_profiler_dump(penstock_node *node);
/* Counts and times by name, as text or ('json' 1) as JSON, into 'out' with a NUL, cut to
 * 'size' bytes; 'needed_out' (may be NULL) gets the bytes of all of it, NUL included. */
PENSTOCK_API int penstock_profiler_table(penstock_node *node, int json, char *out,
                                         size_t size, size_t *needed_out);
/* Events of the program's own, recorded while the profiler runs: a scope from 'begin'
 * (its result) to 'end' on one thread, a value, a moment. */
PENSTOCK_API uint64_t penstock_scope_begin(penstock_node *node);
PENSTOCK_API void penstock_scope_end(penstock_node *node, const char *name,
                                     uint64_t begin);
PENSTOCK_API void penstock_counter(penstock_node *node, const char *name, double value);
PENSTOCK_API void penstock_marker(penstock_node *node, const char *name);

#ifdef __cplusplus
}
#endif

#endif
