/* A oneDNN primitive with its tensors, as the operators' directions use it: one or two
 * tensors read, one written, each in the library's layout with a reorder to or from our
 * dense one where they differ; and small ones (bias, statistics, an index) as they are.
 *
 * Inner tensors and scratchpad lie in the run's workspace, so a run allocates nothing:
 *   [ inner of a | inner of b | inner of result | scratchpad | dense temporary ]
 * Memory objects get their addresses at run time.  Private to the room; only compiled
 * where oneDNN is built in.  Threads: as a plan. */
#ifndef PENSTOCK_KERNELS_ONEDNN_STAGE_H
#define PENSTOCK_KERNELS_ONEDNN_STAGE_H

#include "base/status.h"
#include "base/util.h"
#include "kernels/onednn_ops.h"

#include <stdbool.h>

/* What the stages of one plan share. */
struct ps_onednn_lane {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    dnnl_primitive_attr_t attr; /* scratchpad mode user */
    int threads;
};

/* Errors: PS_EUNSUPPORTED; fini takes a half-built one. */
PS_MUST_CHECK enum ps_status ps_onednn_lane_init(struct ps_onednn_lane *lane,
                                                 const struct ps_onednn *onednn,
                                                 int threads);
void ps_onednn_lane_fini(struct ps_onednn_lane *lane);

/* One tensor of a stage. */
struct ps_onednn_side {
    dnnl_memory_t dense, inner;
    dnnl_primitive_t reorder; /* NULL: the dense layout is used as it is */
    dnnl_primitive_t add;     /* the same, added to what is there; NULL: cannot */
    char *bound;              /* where 'inner' points now */
    size_t offset;            /* of the inner tensor in the workspace */
    int slot;                 /* DNNL_ARG_* */
};

enum {
    PS_ONEDNN_EXTRAS = 6,                     /* most that a primitive has */
    PS_ONEDNN_ARGS = 3 + PS_ONEDNN_EXTRAS + 1 /* scratch */
};

struct ps_onednn_stage {
    dnnl_primitive_t primitive;
    struct ps_onednn_side a, b, result; /* read, perhaps read (else slot 0), written */
    dnnl_memory_t extra[PS_ONEDNN_EXTRAS], scratch;
    int extra_slot[PS_ONEDNN_EXTRAS], extra_count;
    size_t scratch_offset, temporary_offset, bytes;
};

/* Which memory descriptors of a primitive, under which arguments, against which dense
 * tensors. */
struct ps_onednn_stage_shape {
    dnnl_query_t a, b, result;       /* which memory descriptors of the primitive */
    int a_slot, b_slot, result_slot; /* b_slot 0: there is no b */
    const dnnl_memory_desc_t *a_dense, *b_dense, *result_dense;
    size_t temporary; /* bytes of a dense temporary */
    bool adds; /* the result may be added in its place: then, where the library can, it
                  needs no temporary (stage->result.add) */
    int extra_count;
    int extra_slot[PS_ONEDNN_EXTRAS];
    const dnnl_memory_desc_t *extra[PS_ONEDNN_EXTRAS];
};

/* Errors: PS_EUNSUPPORTED; fini takes a half-built one. */
PS_MUST_CHECK enum ps_status
ps_onednn_stage_init(const struct ps_onednn_lane *lane, struct ps_onednn_stage *stage,
                     const_dnnl_primitive_desc_t pd,
                     const struct ps_onednn_stage_shape *shape);
void ps_onednn_stage_fini(struct ps_onednn_stage *stage);
/* dense: addresses of a, b, result and the extras.  'add': to the result that is there;
 * only where stage->result.add. */
PS_MUST_CHECK enum ps_status ps_onednn_stage_run(const struct ps_onednn_lane *lane,
                                                 struct ps_onednn_stage *stage,
                                                 void *const dense[], char *workspace,
                                                 bool add);

/* Whether the primitive is the library's reference code, which is slower than ours. */
bool ps_onednn_is_reference(const_dnnl_primitive_desc_t pd);

/* The same dimensions as 'dense', layout left to the library. */
PS_MUST_CHECK enum ps_status ps_onednn_any_layout(const dnnl_memory_desc_t *dense,
                                                  dnnl_memory_desc_t *any);

static inline size_t ps_onednn_align(size_t n)
{
    return ps_align_up(n, 64);
}

#endif
