/* Symbols: networks as graphs of operators, before anything is allocated or run.
 *
 * A symbol is a list of outputs of one shared, immutable DAG: variables (arguments and
 * auxiliary states) and operator nodes.  It knows its own argument names, infers shapes
 * and element types in both directions, and is saved and loaded as JSON in MXNet's
 * layout.  A network is written down with a builder:
 *
 *     struct ps_symbol *x = ps_builder_variable(b, "data");
 *     x = ps_builder_op(b, "Convolution", "conv1", "kernel=(5,5) num_filter=20", x);
 *     x = ps_builder_op(b, "Activation", NULL, "act_type=tanh", x);   -> "activation0"
 *     x = ps_builder_op(b, "FullyConnected", "fc1",
 *                       ps_builder_text(b, "num_hidden=%d", classes), x);
 *     x = ps_builder_op(b, "SoftmaxOutput", "softmax", NULL, x);
 *     status = ps_builder_finish(b, x, &symbol, &err);
 *
 * Inputs that are not given (conv1_weight, conv1_bias, softmax_label, bn_moving_mean) are
 * made as variables named <node>_<input>, as MXNet does.
 *
 * Threads: any, for reading; a symbol whose attributes are being set, and a builder,
 * belong to one thread. */
#ifndef PENSTOCK_ENGINE_GRAPH_SYMBOL_H
#define PENSTOCK_ENGINE_GRAPH_SYMBOL_H

#include "base/dtype.h"
#include "base/fs.h"
#include "base/str.h"
#include "base/util.h"

struct ps_symbol;

/* ---- lifecycle ---- */

struct ps_symbol *ps_symbol_retain(struct ps_symbol *symbol);
void ps_symbol_release(struct ps_symbol *symbol); /* NULL is fine */

/* A variable: one output, its own name.  Errors: PS_EINVAL (an empty name), PS_ENOMEM. */
PS_MUST_CHECK enum ps_status
ps_symbol_variable(const char *name, struct ps_symbol **symbol_out, struct ps_error *err);

/* An operator node.  All is borrowed until return; the new symbol shares its inputs. */
struct ps_compose {
    const char *op;                  /* MXNet's name: "Convolution" */
    const char *name;                /* of the node; must not be NULL */
    const char *attrs;               /* "kernel=(5, 5) num_filter=20"; NULL = none */
    struct ps_symbol *const *inputs; /* in the op's order, then auxiliary states; NULL or
                                        missing at the end: made as <name>_<input> */
    size_t input_count;
};
/* Errors: PS_EINVAL (unknown op, with the nearest name; bad attributes; too many inputs;
 * an input with several outputs), PS_ENOMEM. */
PS_MUST_CHECK enum ps_status ps_symbol_compose(const struct ps_compose *compose,
                                               struct ps_symbol **symbol_out,
                                               struct ps_error *err);
/* The outputs of all 'symbols', in order. */
PS_MUST_CHECK enum ps_status ps_symbol_group(struct ps_symbol *const *symbols,
                                             size_t count, struct ps_symbol **symbol_out,
                                             struct ps_error *err);
/* The i-th output alone.  Errors: PS_ERANGE. */
PS_MUST_CHECK enum ps_status ps_symbol_output(struct ps_symbol *symbol, size_t i,
                                              struct ps_symbol **symbol_out,
                                              struct ps_error *err);
/* The output called 'name' ("fc1_output", "data"), of the symbol or inside it.  Errors:
 * PS_ENOENT with the nearest name. */
PS_MUST_CHECK enum ps_status ps_symbol_find(struct ps_symbol *symbol, const char *name,
                                            struct ps_symbol **symbol_out,
                                            struct ps_error *err);
/* Every visible output inside, in topological order. */
PS_MUST_CHECK enum ps_status ps_symbol_internals(struct ps_symbol *symbol,
                                                 struct ps_symbol **symbol_out,
                                                 struct ps_error *err);

/* ---- names ---- */

/* A list of texts; zero-initialised = empty.  'names' has one NULL more at the end. */
struct ps_names {
    char **names;
    size_t count;
};
void ps_names_fini(struct ps_names *names);
/* Index of 'name', or -1. */
int64_t ps_names_index(const struct ps_names *names, const char *name);

/* Arguments and auxiliary states in depth-first order; outputs as "<node>_<output>".
 * Errors: PS_ENOMEM.  Give '*out' (ps_names_fini). */
PS_MUST_CHECK enum ps_status ps_symbol_list_arguments(const struct ps_symbol *symbol,
                                                      struct ps_names *out);
PS_MUST_CHECK enum ps_status ps_symbol_list_auxiliaries(const struct ps_symbol *symbol,
                                                        struct ps_names *out);
PS_MUST_CHECK enum ps_status ps_symbol_list_outputs(const struct ps_symbol *symbol,
                                                    struct ps_names *out);
size_t ps_symbol_output_count(const struct ps_symbol *symbol);
/* The node's name when the symbol is one node's; NULL for a group. */
const char *ps_symbol_name(const struct ps_symbol *symbol);

/* ---- attributes of the graph's own: __shape__, __dtype__, __lr_mult__, __ctx_group__ */

/* Of the symbol's (one) node; known keys may be written without underscores ("shape",
 * "lr_mult").  Op parameters are given at composition and cannot be set.  Errors:
 * PS_EINVAL, PS_ENOMEM. */
PS_MUST_CHECK enum ps_status ps_symbol_set_attr(struct ps_symbol *symbol, const char *key,
                                                const char *value, struct ps_error *err);
/* NULL when absent.  Lives until the attribute is set again or the node goes. */
const char *ps_symbol_attr(const struct ps_symbol *symbol, const char *key);
/* The same of the variable or node called 'node' anywhere inside. */
const char *ps_symbol_node_attr(const struct ps_symbol *symbol, const char *node,
                                const char *key);

/* ---- inference ---- */

struct ps_named_shape {
    const char *name; /* of an argument or auxiliary state */
    struct ps_shape shape;
};
struct ps_named_dtype {
    const char *name;
    int dtype;
};

/* What is known after inference, in the orders of the lists above; arrays are malloc'ed,
 * ps_inferred_fini frees them. */
struct ps_inferred_shapes {
    struct ps_shape *arguments, *outputs, *auxiliaries;
    size_t argument_count, output_count, auxiliary_count;
    bool complete; /* every shape inside the graph is known */
};
struct ps_inferred_dtypes {
    int *arguments, *outputs, *auxiliaries;
    size_t argument_count, output_count, auxiliary_count;
    bool complete;
};
void ps_inferred_shapes_fini(struct ps_inferred_shapes *shapes);
void ps_inferred_dtypes_fini(struct ps_inferred_dtypes *dtypes);

/* Forward and backward sweeps until nothing changes.  'known' wins over the variables'
 * __shape__ / __dtype__.  Errors: PS_ESHAPE / PS_EDTYPE with the node's name, PS_ENOENT
 * (no such argument), PS_ENOTREADY when something stays unknown, naming it; the partial
 * forms give what is known instead. */
PS_MUST_CHECK enum ps_status ps_symbol_infer_shapes(const struct ps_symbol *symbol,
                                                    const struct ps_named_shape *known,
                                                    size_t known_count,
                                                    struct ps_inferred_shapes *out,
                                                    struct ps_error *err);
PS_MUST_CHECK enum ps_status
ps_symbol_infer_shapes_partial(const struct ps_symbol *symbol,
                               const struct ps_named_shape *known, size_t known_count,
                               struct ps_inferred_shapes *out, struct ps_error *err);
PS_MUST_CHECK enum ps_status ps_symbol_infer_dtypes(const struct ps_symbol *symbol,
                                                    const struct ps_named_dtype *known,
                                                    size_t known_count,
                                                    struct ps_inferred_dtypes *out,
                                                    struct ps_error *err);
PS_MUST_CHECK enum ps_status
ps_symbol_infer_dtypes_partial(const struct ps_symbol *symbol,
                               const struct ps_named_dtype *known, size_t known_count,
                               struct ps_inferred_dtypes *out, struct ps_error *err);

/* ---- JSON, MXNet's layout ---- */

/* Largest file that is read. */
#define PS_SYMBOL_JSON_BYTES_MAX (64u << 20)

/* Appends the JSON text.  Errors: PS_ENOMEM. */
PS_MUST_CHECK enum ps_status ps_symbol_to_json(const struct ps_symbol *symbol,
                                               struct ps_str *out);
/* Reads all three dialects (param, attr, attrs).  Errors: PS_ECORRUPT (not a symbol: the
 * text names node and field), PS_EUNSUPPORTED (an operator that is not here),
 * PS_EINVAL (an attribute that its operator refuses), PS_ERANGE (too large), PS_ENOMEM.
 */
PS_MUST_CHECK enum ps_status ps_symbol_from_json(const char *text, size_t size,
                                                 struct ps_symbol **symbol_out,
                                                 struct ps_error *err);
PS_MUST_CHECK enum ps_status ps_symbol_save(const struct ps_symbol *symbol,
                                            struct ps_fs *fs, const char *path,
                                            struct ps_error *err);
PS_MUST_CHECK enum ps_status ps_symbol_load(struct ps_fs *fs, const char *path,
                                            struct ps_symbol **symbol_out,
                                            struct ps_error *err);

/* ---- builder ---- */

/* Owns the symbols and texts that it returns until destroy, counts names for nodes
 * without one, and keeps the first error: after it every call returns NULL and
 * ps_builder_finish reports it. */
struct ps_builder;
PS_MUST_CHECK enum ps_status ps_builder_create(struct ps_builder **builder_out);
void ps_builder_destroy(struct ps_builder *builder); /* NULL is fine */
struct ps_symbol *ps_builder_variable(struct ps_builder *builder, const char *name);
/* ps_builder_op(b, op, name or NULL, attributes or NULL, inputs...) */
#define ps_builder_op(builder, op, name, attrs, ...)             \
    ps_builder_compose((builder), (op), (name), (attrs),         \
                       (struct ps_symbol *const[]){__VA_ARGS__}, \
                       PS_COUNT(((struct ps_symbol *const[]){__VA_ARGS__})))
struct ps_symbol *ps_builder_compose(struct ps_builder *builder, const char *op,
                                     const char *name, const char *attrs,
                                     struct ps_symbol *const *inputs, size_t input_count);
struct ps_symbol *ps_builder_output(struct ps_builder *builder, struct ps_symbol *symbol,
                                    size_t i);
struct ps_symbol *ps_builder_group(struct ps_builder *builder,
                                   struct ps_symbol *const *symbols, size_t count);
/* Sets an attribute of the graph's own ("shape", "lr_mult"); returns 'symbol'. */
struct ps_symbol *ps_builder_attr(struct ps_builder *builder, struct ps_symbol *symbol,
                                  const char *key, const char *value);
const char *ps_builder_text(struct ps_builder *builder, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/* Gives '*symbol_out', a reference of its own.  The first error of the calls before. */
PS_MUST_CHECK enum ps_status ps_builder_finish(struct ps_builder *builder,
                                               struct ps_symbol *symbol,
                                               struct ps_symbol **symbol_out,
                                               struct ps_error *err);

#endif
