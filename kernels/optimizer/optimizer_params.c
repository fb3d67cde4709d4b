/* Optimizers as data: names, defaults, hyper-parameters from text, checks.  The bytes may
 * come from a user or a peer, so everything is checked.  Threads: pure. */
#include "kernels/optimizer.h"

#include "base/util.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#define KIND(k) (1U << (k))

static const char *const kind_names[] = {
    [PS_OPT_NONE] = "none",       [PS_OPT_SGD] = "sgd",     [PS_OPT_NAG] = "nag",
    [PS_OPT_ADAM] = "adam",       [PS_OPT_ADAMW] = "adamw", [PS_OPT_RMSPROP] = "rmsprop",
    [PS_OPT_ADAGRAD] = "adagrad", [PS_OPT_ADD] = "add",     [PS_OPT_TEST] = "test",
};

enum {
    LEARNERS = KIND(PS_OPT_SGD) | KIND(PS_OPT_NAG) | KIND(PS_OPT_ADAM) |
               KIND(PS_OPT_ADAMW) | KIND(PS_OPT_RMSPROP) | KIND(PS_OPT_ADAGRAD),
    ADAMS = KIND(PS_OPT_ADAM) | KIND(PS_OPT_ADAMW),
    ALL = LEARNERS | KIND(PS_OPT_ADD) | KIND(PS_OPT_TEST)
};

static const struct key_row {
    const char *name, *alias;
    uint32_t kinds; /* that read it */
    size_t offset;
    double min, max; /* accepted, both ends included */
} keys[] = {
#define KEY(name, alias, kinds, field, min, max)                           \
    {                                                                      \
        name, alias, kinds, offsetof(struct ps_optimizer, field), min, max \
    }
    KEY("learning_rate", "lr", LEARNERS, lr, 0, 1e30),
    KEY("momentum", NULL, KIND(PS_OPT_SGD) | KIND(PS_OPT_NAG), momentum, 0, 0.9999999999),
    KEY("wd", "weight_decay", LEARNERS, wd, 0, 1e30),
    KEY("rescale_grad", NULL, ALL, rescale_grad, -1e30, 1e30),
    KEY("clip_gradient", NULL, LEARNERS, clip_gradient, -1, 1e30),
    KEY("beta1", NULL, ADAMS, beta1, 0, 0.9999999999),
    KEY("beta2", NULL, ADAMS, beta2, 0, 0.9999999999),
    KEY("epsilon", "eps", ADAMS | KIND(PS_OPT_RMSPROP) | KIND(PS_OPT_ADAGRAD), epsilon, 0,
        1e30),
    KEY("gamma1", NULL, KIND(PS_OPT_RMSPROP), gamma1, 0, 1),
    KEY("clip_weights", NULL, KIND(PS_OPT_RMSPROP), clip_weights, -1, 1e30),
#undef KEY
};

static double *field_of(struct ps_optimizer *opt, const struct key_row *row)
{
    return (double *)(void *)((char *)opt + row->offset);
}

static double value_of(const struct ps_optimizer *opt, const struct key_row *row)
{
    double v;
    memcpy(&v, (const char *)opt + row->offset, sizeof v);
    return v;
}

static bool known_kind(int kind)
{
    return kind > PS_OPT_NONE && kind < (int)PS_COUNT(kind_names);
}

const char *ps_optimizer_name(int kind)
{
    return kind >= 0 && kind < (int)PS_COUNT(kind_names) ? kind_names[kind] : "?";
}

const char *ps_optimizer_key(int kind, size_t i)
{
    for (size_t k = 0; k < PS_COUNT(keys) && known_kind(kind); k++) {
        if ((keys[k].kinds & KIND(kind)) != 0 && i-- == 0) {
            return keys[k].name;
        }
    }
    return NULL;
}

static enum ps_status unknown_name(const char *name, struct ps_error *err)
{
    const char *names[PS_COUNT(kind_names)] = {NULL};
    char list[96];
    for (size_t i = 1; i < PS_COUNT(kind_names); i++) {
        names[i - 1] = kind_names[i];
    }
    const char *near = ps_nearest(name, names);
    return ps_error_set(err, PS_EINVAL, "optimizer '%.40s': accepted is %s%s%s", name,
                        ps_join(names, list, sizeof list),
                        near != NULL ? "; nearest " : "", near != NULL ? near : "");
}

enum ps_status ps_optimizer_init(const char *name, struct ps_optimizer *opt_out,
                                 struct ps_error *err)
{
    int kind = PS_OPT_NONE;
    for (int i = 1; i < (int)PS_COUNT(kind_names); i++) {
        if (strcasecmp(name, kind_names[i]) == 0) {
            kind = i;
        }
    }
    if (kind == PS_OPT_NONE) {
        return unknown_name(name, err);
    }
    bool small_lr = (KIND(kind) & (ADAMS | KIND(PS_OPT_RMSPROP))) != 0;
    *opt_out = (struct ps_optimizer){.kind = kind,
                                     .version = PS_OPTIMIZER_VERSION,
                                     .lr = small_lr ? 0.001 : 0.01,
                                     .rescale_grad = 1.0,
                                     .clip_gradient = -1.0,
                                     .beta1 = 0.9,
                                     .beta2 = 0.999,
                                     .epsilon = kind == PS_OPT_ADAGRAD ? 1e-7 : 1e-8,
                                     .gamma1 = 0.9,
                                     .clip_weights = -1.0};
    return PS_OK;
}

static const struct key_row *find_key(const char *key)
{
    for (size_t k = 0; k < PS_COUNT(keys); k++) {
        if (strcmp(keys[k].name, key) == 0 ||
            (keys[k].alias != NULL && strcmp(keys[k].alias, key) == 0)) {
            return &keys[k];
        }
    }
    return NULL;
}

static enum ps_status unknown_key(int kind, const char *key, struct ps_error *err)
{
    const char *names[PS_COUNT(keys) + 1] = {NULL};
    char list[160];
    for (size_t i = 0; i < PS_COUNT(keys); i++) {
        names[i] = ps_optimizer_key(kind, i);
        if (names[i] == NULL) {
            break;
        }
    }
    return ps_error_set(err, PS_EINVAL, "optimizer %s has no '%.40s': accepted is %s",
                        ps_optimizer_name(kind), key, ps_join(names, list, sizeof list));
}

static enum ps_status check_value(const struct ps_optimizer *opt,
                                  const struct key_row *row, double v,
                                  struct ps_error *err)
{
    if (!(v >= row->min && v <= row->max)) {
        return ps_error_set(err, PS_ERANGE, "optimizer %s %s=%g: accepted is %g to %.10g",
                            ps_optimizer_name(opt->kind), row->name, v, row->min,
                            row->max);
    }
    return PS_OK;
}

enum ps_status ps_optimizer_set(struct ps_optimizer *opt, const char *key,
                                const char *value, struct ps_error *err)
{
    const struct key_row *row = find_key(key);
    double v;
    if (!known_kind(opt->kind)) {
        return ps_error_set(err, PS_EINVAL, "optimizer kind %d is not known", opt->kind);
    }
    if (row == NULL || (row->kinds & KIND(opt->kind)) == 0) {
        return unknown_key(opt->kind, key, err);
    }
    if (ps_parse_f64(value, &v) != PS_OK) {
        return ps_error_set(err, PS_EINVAL,
                            "optimizer %s %s='%.40s': accepted is a number",
                            ps_optimizer_name(opt->kind), key, value);
    }
    PS_TRY(check_value(opt, row, v, err));
    *field_of(opt, row) = v;
    return PS_OK;
}

/* One "key=value" of the text. */
static enum ps_status parse_pair(struct ps_optimizer *opt, const char *text, size_t size,
                                 struct ps_error *err)
{
    char pair[128];
    if (size >= sizeof pair) {
        return ps_error_set(err, PS_EINVAL, "optimizer: '%.40s...' is too long", text);
    }
    memcpy(pair, text, size);
    pair[size] = '\0';
    char *equals = strchr(pair, '=');
    if (equals == NULL) {
        return ps_error_set(err, PS_EINVAL, "optimizer: '%.60s': accepted is key=value",
                            pair);
    }
    *equals = '\0';
    return ps_optimizer_set(opt, pair, equals + 1, err);
}

enum ps_status ps_optimizer_change(struct ps_optimizer *opt, const char *text,
                                   struct ps_error *err)
{
    struct ps_optimizer changed = *opt;
    while (*text != '\0') {
        size_t size = strcspn(text, ",");
        PS_TRY(parse_pair(&changed, text, size, err));
        text += size + (text[size] == ',');
    }
    *opt = changed;
    return PS_OK;
}

enum ps_status ps_optimizer_parse(const char *text, struct ps_optimizer *opt_out,
                                  struct ps_error *err)
{
    struct ps_optimizer opt;
    char name[64];
    size_t n = strcspn(text, ",");
    snprintf(name, sizeof name, "%.*s", (int)PS_MIN(n, sizeof name - 1), text);
    PS_TRY(ps_optimizer_init(name, &opt, err));
    PS_TRY(ps_optimizer_change(&opt, text + n + (text[n] == ','), err));
    *opt_out = opt;
    return PS_OK;
}

void ps_optimizer_format(const struct ps_optimizer *opt, struct ps_str *out)
{
    ps_str_printf(out, "%s", ps_optimizer_name(opt->kind));
    for (size_t k = 0; k < PS_COUNT(keys) && known_kind(opt->kind); k++) {
        if ((keys[k].kinds & KIND(opt->kind)) != 0) {
            ps_str_printf(out, ",%s=%.17g", keys[k].name, value_of(opt, &keys[k]));
        }
    }
}

enum ps_status ps_optimizer_check(const struct ps_optimizer *opt, struct ps_error *err)
{
    if (!known_kind(opt->kind) || opt->version != PS_OPTIMIZER_VERSION) {
        return ps_error_set(
            err, PS_EINVAL,
            "optimizer kind %d version %d: accepted is kind 1 to %d version %d",
            opt->kind, opt->version, (int)PS_COUNT(kind_names) - 1, PS_OPTIMIZER_VERSION);
    }
    for (size_t k = 0; k < PS_COUNT(keys); k++) {
        if ((keys[k].kinds & KIND(opt->kind)) != 0) {
            PS_TRY(check_value(opt, &keys[k], value_of(opt, &keys[k]), err));
        }
    }
    return PS_OK;
}

int ps_optimizer_state_count(const struct ps_optimizer *opt)
{
    switch (opt->kind) {
    case PS_OPT_SGD:
        return opt->momentum > 0.0 ? 1 : 0;
    case PS_OPT_NAG:
    case PS_OPT_RMSPROP:
    case PS_OPT_ADAGRAD:
    case PS_OPT_TEST:
        return 1;
    case PS_OPT_ADAM:
    case PS_OPT_ADAMW:
        return 2;
    default:
        return 0;
    }
}

int ps_optimizer_state_dtype(const struct ps_optimizer *opt, int weight_dtype)
{
    switch (weight_dtype) {
    case PS_F32:
    case PS_F16:
    case PS_BF16:
        return PS_F32;
    case PS_F64:
        return PS_F64;
    case PS_U8:
    case PS_I8:
    case PS_I32:
    case PS_I64:
        return opt->kind == PS_OPT_ADD || opt->kind == PS_OPT_TEST ? weight_dtype
                                                                   : PS_DTYPE_UNKNOWN;
    default:
        return PS_DTYPE_UNKNOWN;
    }
}
