/* Everything a user may tune: one typed table, settings.def; one reader of the
 * environment.
 *
 * A setting X is read from PENSTOCK_X, else MXNET_X, else plain X where its row allows
 * it, else from its aliases (DMLC_*, PS_*, NNVM_*; with a unit factor).  Values are
 * checked once; the error names the variable, the text and the accepted form.  Unknown
 * names under our prefixes are a warning with the nearest match. Threads: load on one;
 * then read-only, any. */
#ifndef PENSTOCK_BASE_SETTINGS_H
#define PENSTOCK_BASE_SETTINGS_H

#include "base/log.h"
#include "base/status.h"
#include "base/str.h"

enum ps_setting_id {
#define PS_BLOCK(title)
#define PS_INT(name, ...) PS_SET_##name,
#define PS_BYTES(name, ...) PS_SET_##name,
#define PS_REAL(name, ...) PS_SET_##name,
#define PS_BOOL(name, ...) PS_SET_##name,
#define PS_TEXT(name, ...) PS_SET_##name,
#define PS_ENUM(name, ...) PS_SET_##name,
#include "base/settings.def"
#undef PS_BLOCK
#undef PS_INT
#undef PS_BYTES
#undef PS_REAL
#undef PS_BOOL
#undef PS_TEXT
#undef PS_ENUM
    PS_SETTING_COUNT
};

struct ps_settings;

/* Loads from 'env', a NULL-terminated array of "NAME=value" (NULL: the process's
 * environment). Explicit 'overrides' of the same form ("NAME=value", names without
 * prefix) win over it; they come from command lines and tests.  Errors: PS_EINVAL,
 * PS_ERANGE with 'err'; PS_ENOMEM. */
PS_MUST_CHECK enum ps_status ps_settings_load(const char *const *env,
                                              const char *const *overrides,
                                              struct ps_settings **settings_out,
                                              struct ps_error *err);
void ps_settings_destroy(struct ps_settings *settings);
/* Warnings found while loading (unknown names, ignored variables): one line each, to
 * 'log'. */
void ps_settings_warn(const struct ps_settings *settings, struct ps_log *log);

int64_t ps_settings_int(const struct ps_settings *settings, enum ps_setting_id id);
bool ps_settings_bool(const struct ps_settings *settings, enum ps_setting_id id);
double ps_settings_real(const struct ps_settings *settings, enum ps_setting_id id);
/* A count of bytes as settings are written: 4096, 64K, 1Gi, 1e6; K, M, G are binary.
 * Errors: PS_EINVAL, PS_ERANGE. */
PS_MUST_CHECK enum ps_status ps_settings_parse_bytes(const char *text,
                                                     int64_t *bytes_out);
/* Text settings; "" when unset.  Choices: the spelling of the table. */
const char *ps_settings_text(const struct ps_settings *settings, enum ps_setting_id id);
/* Choices: the index into the row's list. */
int ps_settings_choice(const struct ps_settings *settings, enum ps_setting_id id);
bool ps_settings_is_set(const struct ps_settings *settings, enum ps_setting_id id);
/* The variable the value came from, as the user spelled it; the plain name when unset. */
const char *ps_settings_variable(const struct ps_settings *settings,
                                 enum ps_setting_id id);

enum ps_settings_format { PS_SETTINGS_TEXT, PS_SETTINGS_MARKDOWN, PS_SETTINGS_JSON };
/* Every row with value, source, range, unit, readers and documentation.  Markdown shows
 * the defaults instead of values, so that it is the same everywhere (docs/settings.md).
 */
void ps_settings_print(const struct ps_settings *settings, enum ps_settings_format format,
                       struct ps_str *out);

#endif
