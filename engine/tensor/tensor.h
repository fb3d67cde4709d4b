/* Tensors: a shape and an element type over storage that other tensors may share.
 *
 * Storage is bytes on a device and the engine variable that orders their use.  Memory of
 * a created tensor is taken from the device's pool when the first operation that touches
 * it starts, and goes back when the last tensor over it is released and every operation
 * pushed so far has ended; so run-ahead costs no memory.  A tensor's address is asked for
 * inside an operation (ps_tensor_address), never kept: storage may move between
 * operations.  Rows are contiguous, in C order.
 *
 * Threads: any; what the bytes hold is ordered by the variable.  Errors of the
 * asynchronous calls come out at the next wait (ps_tensor_wait, ps_tensor_read). */
#ifndef PENSTOCK_ENGINE_TENSOR_TENSOR_H
#define PENSTOCK_ENGINE_TENSOR_TENSOR_H

#include "base/dtype.h"
#include "engine/engine.h"

struct ps_tensor;
struct ps_view; /* kernels/kernels.h */

/* ---- lifecycle ---- */

/* A tensor of its own, bytes undefined, memory taken at first use.  Errors: PS_ESHAPE
 * (not fully known or too large), PS_EDTYPE, PS_ENOMEM, PS_EFORK; as ps_engine_device. */
PS_MUST_CHECK enum ps_status ps_tensor_create(struct ps_engine *engine,
                                              struct ps_context context, int dtype,
                                              const struct ps_shape *shape,
                                              struct ps_tensor **tensor_out);
/* Over memory of somebody else.  Keeps a borrow of 'data' until 'deleter(arg)' (may be
 * NULL) runs, once, when the last tensor over it and every operation on it are gone. */
PS_MUST_CHECK enum ps_status ps_tensor_wrap(struct ps_engine *engine,
                                            struct ps_context context, int dtype,
                                            const struct ps_shape *shape, void *data,
                                            void (*deleter)(void *arg), void *arg,
                                            struct ps_tensor **tensor_out);
/* A tensor with its own storage like 'tensor': same context, dtype and shape. */
PS_MUST_CHECK enum ps_status ps_tensor_like(const struct ps_tensor *tensor,
                                            struct ps_tensor **tensor_out);
/* New tensors over the same storage and variable.
 * reshape: the same number of elements.  slice: rows [begin, end) of the first axis.
 * at: 'dtype' and 'shape' from byte 'offset' on, as the memory plan lays them out; must
 * fit and be aligned to the element.  Errors: PS_ESHAPE, PS_ERANGE, PS_ENOMEM. */
PS_MUST_CHECK enum ps_status ps_tensor_reshape(struct ps_tensor *tensor,
                                               const struct ps_shape *shape,
                                               struct ps_tensor **tensor_out);
PS_MUST_CHECK enum ps_status ps_tensor_slice(struct ps_tensor *tensor, int64_t begin,
                                             int64_t end, struct ps_tensor **tensor_out);
PS_MUST_CHECK enum ps_status ps_tensor_at(struct ps_tensor *tensor, size_t offset,
                                          int dtype, const struct ps_shape *shape,
                                          struct ps_tensor **tensor_out);
struct ps_tensor *ps_tensor_retain(struct ps_tensor *tensor);
void ps_tensor_release(struct ps_tensor *tensor); /* NULL is fine; never waits */

/* ---- what it is ---- */
const struct ps_shape *ps_tensor_shape(const struct ps_tensor *tensor);
enum ps_dtype ps_tensor_dtype(const struct ps_tensor *tensor);
struct ps_context ps_tensor_context(const struct ps_tensor *tensor);
struct ps_engine *ps_tensor_engine(const struct ps_tensor *tensor);
struct ps_var *ps_tensor_var(const struct ps_tensor *tensor); /* lives as its storage */
int64_t ps_tensor_count(const struct ps_tensor *tensor);      /* elements */
size_t ps_tensor_bytes(const struct ps_tensor *tensor);
bool ps_tensor_shares(const struct ps_tensor *a, const struct ps_tensor *b); /* storage */
/* Names its storage in messages about memory; 'label' is copied and may be cut. */
void ps_tensor_set_label(struct ps_tensor *tensor, const char *label);

/* ---- inside an operation that named the tensor's variable ---- */
/* The address of the first element for a kernel that 'run' runs: run->context names the
 * device that dereferences it.  What was submitted to run->stream before is performed
 * first, where the device's kernels run on the calling processor.  NULL when there is no
 * element or no memory, or when that device cannot reach the tensor's: a CPU a GPU's, a
 * GPU a CPU's, a GPU that of a peer that is not enabled (ps_tensor_no_address says it).
 */
void *ps_tensor_address(struct ps_tensor *tensor, const struct ps_run *run);
/* Why ps_tensor_address gave NULL for a tensor with elements: PS_EPERM, or as
 * ps_tensor_no_memory. */
enum ps_status ps_tensor_no_address(struct ps_tensor *tensor, const struct ps_run *run,
                                    struct ps_error *err);
/* The address in the device's own terms: for ps_device_copy, and for the host's
 * processors when the tensor is a CPU's.  NULL when there is no memory (the op then
 * returns ps_tensor_no_memory) or no element. */
void *ps_tensor_data(struct ps_tensor *tensor);
/* PS_ENOMEM with what the device holds and for whom. */
enum ps_status ps_tensor_no_memory(struct ps_tensor *tensor, struct ps_error *err);
/* The kernels' view of it with that address.  Errors: PS_ENOMEM. */
PS_MUST_CHECK enum ps_status ps_tensor_view(struct ps_tensor *tensor,
                                            struct ps_view *view_out);

/* ---- a user's calls ---- */
/* Waits for every write pushed so far; errors as ps_engine_wait_var. */
PS_MUST_CHECK enum ps_status ps_tensor_wait(struct ps_tensor *tensor,
                                            struct ps_error *err);
/* Copies all bytes out (in), waiting until it is done; 'size' must be ps_tensor_bytes
 * (PS_ESHAPE). */
PS_MUST_CHECK enum ps_status ps_tensor_read(struct ps_tensor *tensor, void *out,
                                            size_t size, struct ps_error *err);
PS_MUST_CHECK enum ps_status ps_tensor_write(struct ps_tensor *tensor, const void *data,
                                             size_t size, struct ps_error *err);
/* Pushes to[i] = from[i]; same dtype and count (PS_EDTYPE, PS_ESHAPE). */
PS_MUST_CHECK enum ps_status ps_tensor_copy(struct ps_tensor *from, struct ps_tensor *to,
                                            int priority);
/* Pushes to[i] = value, converted to the dtype (integers saturate, NaN becomes 0). */
PS_MUST_CHECK enum ps_status ps_tensor_fill(struct ps_tensor *tensor, double value);

#endif
