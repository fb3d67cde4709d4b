/* kernels/onednn_stage.h.  Thread: the plan's. */
#include "kernels/onednn_stage.h"

#include "kernels/par.h"

#include <string.h>

enum ps_status ps_onednn_lane_init(struct ps_onednn_lane *lane,
                                   const struct ps_onednn *onednn, int threads)
{
    enum ps_status status = PS_OK;
    *lane =
        (struct ps_onednn_lane){.engine = ps_onednn_engine(onednn), .threads = threads};
    ps_par_team(threads); /* primitives are planned for the team they will run on */
    PS_DNNL_GOTO(
        status,
        dnnl_stream_create(&lane->stream, lane->engine, dnnl_stream_default_flags), done);
    PS_DNNL_GOTO(status, dnnl_primitive_attr_create(&lane->attr), done);
    PS_DNNL_GOTO(
        status,
        dnnl_primitive_attr_set_scratchpad_mode(lane->attr, dnnl_scratchpad_mode_user),
        done);
done:
    return status;
}

void ps_onednn_lane_fini(struct ps_onednn_lane *lane)
{
    if (lane->attr != NULL) {
        dnnl_primitive_attr_destroy(lane->attr);
    }
    if (lane->stream != NULL) {
        dnnl_stream_destroy(lane->stream);
    }
}

static void side_fini(struct ps_onednn_side *side)
{
    if (side->reorder != NULL) {
        dnnl_primitive_destroy(side->reorder);
    }
    if (side->add != NULL) {
        dnnl_primitive_destroy(side->add);
    }
    if (side->inner != NULL) {
        dnnl_memory_destroy(side->inner);
    }
    if (side->dense != NULL) {
        dnnl_memory_destroy(side->dense);
    }
}

void ps_onednn_stage_fini(struct ps_onednn_stage *stage)
{
    if (stage->primitive != NULL) {
        dnnl_primitive_destroy(stage->primitive);
    }
    side_fini(&stage->a);
    side_fini(&stage->b);
    side_fini(&stage->result);
    for (int i = 0; i < stage->extra_count; i++) {
        dnnl_memory_destroy(stage->extra[i]);
    }
    if (stage->scratch != NULL) {
        dnnl_memory_destroy(stage->scratch);
    }
}

/* Prepares one tensor; 'out' is written by the primitive, else read.  Reserves its inner
 * copy at '*bytes'. */
static enum ps_status side_init(const struct ps_onednn_lane *lane,
                                struct ps_onednn_side *side,
                                const dnnl_memory_desc_t *dense,
                                const dnnl_memory_desc_t *inner, bool out, size_t *bytes)
{
    enum ps_status status = PS_OK;
    dnnl_primitive_desc_t pd = NULL;
    PS_DNNL_GOTO(status,
                 dnnl_memory_create(&side->dense, dense, lane->engine, DNNL_MEMORY_NONE),
                 done);
    if (dnnl_memory_desc_equal(dense, inner)) {
        goto done;
    }
    PS_DNNL_GOTO(status,
                 dnnl_memory_create(&side->inner, inner, lane->engine, DNNL_MEMORY_NONE),
                 done);
    PS_DNNL_GOTO(status,
                 dnnl_reorder_primitive_desc_create(&pd, out ? inner : dense,
                                                    lane->engine, out ? dense : inner,
                                                    lane->engine, lane->attr),
                 done);
    /* a reorder that wants scratch of its own does not occur for f32 to f32 */
    if (dnnl_memory_desc_get_size(
            dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0)) > 0) {
        status = PS_EUNSUPPORTED;
        goto done;
    }
    PS_DNNL_GOTO(status, dnnl_primitive_create(&side->reorder, pd), done);
    side->offset = *bytes;
    *bytes = ps_onednn_align(*bytes + dnnl_memory_desc_get_size(inner));
done:
    if (pd != NULL) {
        dnnl_primitive_desc_destroy(pd);
    }
    return status;
}

/* The reorder of a written side that adds; stays NULL where the library has none without
 * scratch of its own. */
static void side_init_add(const struct ps_onednn_lane *lane, struct ps_onednn_side *side,
                          const dnnl_memory_desc_t *dense,
                          const dnnl_memory_desc_t *inner)
{
    dnnl_primitive_attr_t attr = NULL;
    dnnl_post_ops_t sum = NULL;
    dnnl_primitive_desc_t pd = NULL;
    bool fits = dnnl_primitive_attr_clone(&attr, lane->attr) == dnnl_success &&
                dnnl_post_ops_create(&sum) == dnnl_success &&
                dnnl_post_ops_append_sum(sum, 1.0F) == dnnl_success &&
                dnnl_primitive_attr_set_post_ops(attr, sum) == dnnl_success &&
                dnnl_reorder_primitive_desc_create(&pd, inner, lane->engine, dense,
                                                   lane->engine, attr) == dnnl_success &&
                dnnl_memory_desc_get_size(
                    dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0)) == 0 &&
                dnnl_primitive_create(&side->add, pd) == dnnl_success;
    if (!fits) {
        side->add = NULL;
    }
    if (pd != NULL) {
        dnnl_primitive_desc_destroy(pd);
    }
    if (sum != NULL) {
        dnnl_post_ops_destroy(sum);
    }
    if (attr != NULL) {
        dnnl_primitive_attr_destroy(attr);
    }
}

static enum ps_status init_sides(const struct ps_onednn_lane *lane,
                                 struct ps_onednn_stage *stage,
                                 const_dnnl_primitive_desc_t pd,
                                 const struct ps_onednn_stage_shape *shape, size_t *bytes)
{
    stage->a.slot = shape->a_slot;
    stage->b.slot = shape->b_slot;
    stage->result.slot = shape->result_slot;
    PS_TRY(side_init(lane, &stage->a, shape->a_dense,
                     dnnl_primitive_desc_query_md(pd, shape->a, 0), false, bytes));
    if (shape->b_slot != 0) {
        PS_TRY(side_init(lane, &stage->b, shape->b_dense,
                         dnnl_primitive_desc_query_md(pd, shape->b, 0), false, bytes));
    }
    const dnnl_memory_desc_t *inner = dnnl_primitive_desc_query_md(pd, shape->result, 0);
    PS_TRY(side_init(lane, &stage->result, shape->result_dense, inner, true, bytes));
    if (shape->adds && stage->result.reorder != NULL) {
        side_init_add(lane, &stage->result, shape->result_dense, inner);
    }
    return PS_OK;
}

enum ps_status ps_onednn_stage_init(const struct ps_onednn_lane *lane,
                                    struct ps_onednn_stage *stage,
                                    const_dnnl_primitive_desc_t pd,
                                    const struct ps_onednn_stage_shape *shape)
{
    enum ps_status status = PS_OK;
    size_t bytes = 0;
    const dnnl_memory_desc_t *scratch =
        dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0);
    PS_TRY_GOTO(status, init_sides(lane, stage, pd, shape, &bytes), done);
    PS_DNNL_GOTO(
        status,
        dnnl_memory_create(&stage->scratch, scratch, lane->engine, DNNL_MEMORY_NONE),
        done);
    for (int i = 0; i < shape->extra_count; i++) {
        PS_DNNL_GOTO(status,
                     dnnl_memory_create(&stage->extra[i], shape->extra[i], lane->engine,
                                        DNNL_MEMORY_NONE),
                     done);
        stage->extra_slot[i] = shape->extra_slot[i];
        stage->extra_count = i + 1;
    }
    stage->scratch_offset = bytes;
    bytes = ps_onednn_align(bytes + dnnl_memory_desc_get_size(scratch));
    stage->temporary_offset = bytes;
    bytes += stage->result.add != NULL ? 0 : shape->temporary;
    stage->bytes = PS_MAX(bytes, (size_t)64); /* a workspace is never NULL */
    PS_DNNL_GOTO(status, dnnl_primitive_create(&stage->primitive, pd), done);
done:
    return status;
}

bool ps_onednn_is_reference(const_dnnl_primitive_desc_t pd)
{
    const char *text = NULL; /* "jit:avx512_core", "ref:any", "simple:any" */
    if (dnnl_primitive_desc_query(pd, dnnl_query_impl_info_str, 0, (void *)&text) !=
        dnnl_success) {
        return true;
    }
    return strncmp(text, "ref", 3) == 0 || strncmp(text, "simple", 6) == 0;
}

enum ps_status ps_onednn_any_layout(const dnnl_memory_desc_t *dense,
                                    dnnl_memory_desc_t *any)
{
    return dnnl_memory_desc_init_by_tag(any, dense->ndims, dense->dims, dnnl_f32,
                                        dnnl_format_tag_any) == dnnl_success
               ? PS_OK
               : PS_EUNSUPPORTED;
}

/* Points a side at its dense memory, and returns what the primitive works on.  The inner
 * handle is set only when it moved: setting it clears the padding, which the reorder or
 * the primitive writes anyway. */
static dnnl_memory_t bind(struct ps_onednn_side *side, void *dense, char *workspace)
{
    dnnl_memory_set_data_handle(side->dense, dense);
    if (side->reorder == NULL) {
        return side->dense;
    }
    if (side->bound != workspace + side->offset) {
        side->bound = workspace + side->offset;
        dnnl_memory_set_data_handle(side->inner, side->bound);
    }
    return side->inner;
}

static bool reorder(const struct ps_onednn_side *side, dnnl_stream_t stream, bool out,
                    bool add)
{
    if (side->reorder == NULL) {
        return true;
    }
    dnnl_exec_arg_t args[] = {{DNNL_ARG_FROM, out ? side->inner : side->dense},
                              {DNNL_ARG_TO, out ? side->dense : side->inner}};
    return dnnl_primitive_execute(add ? side->add : side->reorder, stream, 2, args) ==
           dnnl_success;
}

enum ps_status ps_onednn_stage_run(const struct ps_onednn_lane *lane,
                                   struct ps_onednn_stage *stage, void *const dense[],
                                   char *workspace, bool add)
{
    dnnl_exec_arg_t args[PS_ONEDNN_ARGS] = {
        {stage->a.slot, bind(&stage->a, dense[0], workspace)},
        {stage->result.slot, bind(&stage->result, dense[2], workspace)},
        {DNNL_ARG_SCRATCHPAD, stage->scratch}};
    int n = 3;
    ps_par_team(lane->threads);
    dnnl_memory_set_data_handle(stage->scratch, workspace + stage->scratch_offset);
    if (stage->b.slot != 0) {
        args[n++] =
            (dnnl_exec_arg_t){stage->b.slot, bind(&stage->b, dense[1], workspace)};
    }
    for (int i = 0; i < stage->extra_count; i++) {
        dnnl_memory_set_data_handle(stage->extra[i], dense[3 + i]);
        args[n++] = (dnnl_exec_arg_t){stage->extra_slot[i], stage->extra[i]};
    }
    bool right =
        reorder(&stage->a, lane->stream, false, false) &&
        reorder(&stage->b, lane->stream, false, false) &&
        dnnl_primitive_execute(stage->primitive, lane->stream, n, args) == dnnl_success &&
        reorder(&stage->result, lane->stream, true, add) &&
        dnnl_stream_wait(lane->stream) == dnnl_success;
    return right ? PS_OK : PS_EINTERNAL;
}
