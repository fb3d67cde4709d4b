/* Loading: overrides, then PENSTOCK_X, MXNET_X, plain X where allowed, aliases, and the
 * variables of settings_old.def.  The one place that reads the environment. */
#include "base/settings.h"

#include "base/settings_private.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define NAME_BYTES 96

extern char **environ; /* POSIX: declared by the program */

/* What a load works on. */
struct load {
    struct ps_settings *settings;
    const char *const *env;
    const char *const *overrides;
    struct ps_error *err;
};

/* The value of 'name' in a list of "NAME=value"; NULL when absent or empty. */
static const char *look_up(const char *const *list, const char *name)
{
    size_t size = strlen(name);
    for (; list != NULL && *list != NULL; list++) {
        if (strncmp(*list, name, size) == 0 && (*list)[size] == '=') {
            return (*list)[size + 1] == '\0' ? NULL : *list + size + 1;
        }
    }
    return NULL;
}

static void set_value(struct load *load, enum ps_setting_id id,
                      const struct ps_setting_value *value)
{
    struct ps_setting_value *place = &load->settings->values[id];
    free(place->text);
    free(place->variable);
    *place = *value;
}

/* Takes 'variable' if it is set in 'list'; sets 'found'. */
static enum ps_status try_variable(struct load *load, const char *const *list,
                                   enum ps_setting_id id, const char *variable,
                                   int64_t factor, bool *found)
{
    const char *text = look_up(list, variable);
    if (text == NULL) {
        return PS_OK;
    }
    struct ps_setting_value value;
    PS_TRY(ps_setting_parse(&ps_setting_rows()[id], variable, factor, text, &value,
                            load->err));
    set_value(load, id, &value);
    *found = true;
    return PS_OK;
}

static bool role_is(const struct load *load, const char *role)
{
    const char *mine = load->settings->values[PS_SET_ROLE].text;
    return role[0] == '\0' || (mine != NULL && strcmp(mine, role) == 0);
}

static enum ps_status load_row(struct load *load, enum ps_setting_id id)
{
    static const char *const prefixes[] = {"PENSTOCK_", "MXNET_", ""};
    const struct ps_setting_row *row = &ps_setting_rows()[id];
    char name[NAME_BYTES];
    bool found = false;
    PS_TRY(try_variable(load, load->overrides, id, row->name, 1, &found));
    for (size_t i = 0; !found && i < (row->plain ? 3u : 2u); i++) {
        (void)snprintf(name, sizeof(name), "%s%s", prefixes[i], row->name);
        PS_TRY(try_variable(load, load->env, id, name, 1, &found));
    }
    struct ps_setting_alias alias;
    for (const char *cursor = row->aliases;
         !found && ps_setting_next_alias(&cursor, &alias);) {
        if (role_is(load, alias.role)) {
            PS_TRY(try_variable(load, load->env, id, alias.name, alias.factor, &found));
        }
    }
    return PS_OK;
}

static enum ps_status set_defaults(struct ps_settings *settings)
{
    for (int id = 0; id < PS_SETTING_COUNT; id++) {
        const struct ps_setting_row *row = &ps_setting_rows()[id];
        struct ps_setting_value *value = &settings->values[id];
        value->integer = row->int_default;
        value->real = row->real_default;
        if (row->text_default != NULL) {
            value->text = ps_strdup(row->text_default);
            if (value->text == NULL) {
                return PS_ENOMEM;
            }
        }
        if (row->type == PS_TYPE_ENUM) {
            value->integer = ps_setting_choice_index(row->choices, row->text_default);
        }
    }
    return PS_OK;
}

static enum ps_status warn(struct load *load, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
static enum ps_status warn(struct load *load, const char *fmt, ...)
{
    char text[PS_ERROR_TEXT_BYTES];
    struct ps_settings *settings = load->settings;
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    char **warnings =
        realloc(settings->warnings, (settings->warning_count + 1) * sizeof(*warnings));
    if (warnings == NULL) {
        return PS_ENOMEM;
    }
    settings->warnings = warnings;
    warnings[settings->warning_count] = ps_strdup(text);
    if (warnings[settings->warning_count] == NULL) {
        return PS_ENOMEM;
    }
    settings->warning_count++;
    return PS_OK;
}

/* ---- variables without a row ---- */

static enum ps_status apply_sets(struct load *load, const struct ps_old_row *old,
                                 const char *text)
{
    bool on;
    if (ps_parse_bool(text, &on) != PS_OK) {
        return ps_error_set(load->err, PS_EINVAL,
                            "%s='%.60s': want 0, 1, true, false, on, off, yes or no",
                            old->name, text);
    }
    if (!on || !role_is(load, old->role) ||
        load->settings->values[old->id].variable != NULL) {
        return PS_OK;
    }
    struct ps_setting_value value;
    PS_TRY(ps_setting_parse(&ps_setting_rows()[old->id], old->name, 1, old->value, &value,
                            load->err));
    set_value(load, old->id, &value);
    return PS_OK;
}

static enum ps_status apply_old(struct load *load, const struct ps_old_row *old)
{
    const char *text = look_up(load->env, old->name);
    if (text == NULL) {
        return PS_OK;
    }
    switch (old->kind) {
    case PS_OLD_KIND_SETS:
        return apply_sets(load, old, text);
    case PS_OLD_KIND_CHOICE:
        if (ps_setting_choice_index(old->value, text) >= 0) {
            return PS_OK;
        }
        return ps_error_set(load->err, PS_EINVAL, "%s='%.60s': want one of %s (%s)",
                            old->name, text, old->value, old->note);
    case PS_OLD_KIND_REFUSED:
        return strcmp(text, "0") == 0
                   ? PS_OK
                   : ps_error_set(load->err, PS_EINVAL, "%s='%.60s' is refused: %s",
                                  old->name, text, old->note);
    case PS_OLD_KIND_IGNORED:
        return warn(load, "%s is ignored: %s", old->name, old->note);
    case PS_OLD_KIND_SILENT:
    case PS_OLD_KIND_LATER: /* found by its name in check_name */
        break;
    }
    return PS_OK;
}

static bool is_alias(const char *name)
{
    struct ps_setting_alias alias;
    for (int id = 0; id < PS_SETTING_COUNT; id++) {
        for (const char *cursor = ps_setting_rows()[id].aliases;
             ps_setting_next_alias(&cursor, &alias);) {
            if (strcmp(alias.name, name) == 0) {
                return true;
            }
        }
    }
    return false;
}

/* Is 'bare' (without prefix) or 'name' (whole) the name of a row or of an old variable?
 */
static bool is_known(const char *name, const char *bare, bool has_rows,
                     const struct ps_old_row **later_out)
{
    for (int id = 0; has_rows && id < PS_SETTING_COUNT; id++) {
        if (strcmp(ps_setting_rows()[id].name, bare) == 0) {
            return true;
        }
    }
    for (const struct ps_old_row *old = ps_old_rows(); old->name != NULL; old++) {
        bool later = old->kind == PS_OLD_KIND_LATER;
        if (strcmp(old->name, name) == 0 ||
            (later && has_rows && strcmp(old->name, bare) == 0)) {
            *later_out = later ? old : NULL;
            return true;
        }
    }
    return is_alias(name);
}

/* The known name under 'prefix' nearest to 'bare', without the prefix. */
static void nearest_name(const char *prefix, bool has_rows, const char *bare,
                         char out[NAME_BYTES])
{
    struct ps_setting_alias alias;
    const char *names[2] = {NULL, NULL};
    size_t prefix_size = strlen(prefix);
    size_t best = SIZE_MAX;
    out[0] = '\0';
    for (int id = 0; id < PS_SETTING_COUNT; id++) {
        const struct ps_setting_row *row = &ps_setting_rows()[id];
        names[0] = row->name;
        if (has_rows && ps_nearest_distance(bare, names, &best) != NULL) {
            (void)snprintf(out, NAME_BYTES, "%s", row->name);
        }
        for (const char *cursor = row->aliases; ps_setting_next_alias(&cursor, &alias);) {
            names[0] = alias.name + prefix_size;
            if (strncmp(alias.name, prefix, prefix_size) == 0 &&
                ps_nearest_distance(bare, names, &best) != NULL) {
                (void)snprintf(out, NAME_BYTES, "%s", names[0]);
            }
        }
    }
    for (const struct ps_old_row *old = ps_old_rows(); old->name != NULL; old++) {
        bool whole = strncmp(old->name, prefix, prefix_size) == 0;
        names[0] = whole ? old->name + prefix_size : old->name;
        if ((whole || (has_rows && old->kind == PS_OLD_KIND_LATER)) &&
            ps_nearest_distance(bare, names, &best) != NULL) {
            (void)snprintf(out, NAME_BYTES, "%s", names[0]);
        }
    }
}

/* One "NAME=value" of the environment: warns when it is under our prefixes and unknown.
 */
static enum ps_status check_name(struct load *load, const char *entry)
{
    /* The second: may every row stand behind the prefix? */
    static const struct {
        const char *text;
        bool has_rows;
    } prefixes[] = {
        {"PENSTOCK_", true}, {"MXNET_", true}, {"DMLC_", false}, {"NNVM_", false}};
    char name[NAME_BYTES];
    size_t size = strcspn(entry, "=");
    if (size >= sizeof(name)) {
        return PS_OK; /* longer than any of ours */
    }
    memcpy(name, entry, size);
    name[size] = '\0';
    for (size_t i = 0; i < sizeof(prefixes) / sizeof(prefixes[0]); i++) {
        size_t prefix_size = strlen(prefixes[i].text);
        const char *bare = name + prefix_size;
        const struct ps_old_row *later = NULL;
        if (strncmp(name, prefixes[i].text, prefix_size) != 0 ||
            look_up(load->env, name) == NULL) {
            continue;
        }
        if (is_known(name, bare, prefixes[i].has_rows, &later)) {
            return later == NULL
                       ? PS_OK
                       : warn(load, "%s is known, has no effect in this version (%s)",
                              name, later->note);
        }
        char near[NAME_BYTES];
        nearest_name(prefixes[i].text, prefixes[i].has_rows, bare, near);
        return near[0] == '\0'
                   ? warn(load, "%s is not a known variable", name)
                   : warn(load, "%s is not a known variable; did you mean %s%s?", name,
                          prefixes[i].text, near);
    }
    return PS_OK;
}

/* Overrides are explicit: a name that no row has is an error. */
static enum ps_status check_override(struct load *load, const char *entry)
{
    char name[NAME_BYTES];
    const char *names[PS_SETTING_COUNT + 1] = {NULL};
    size_t size = strcspn(entry, "=");
    if (entry[size] != '=' || size == 0 || size >= sizeof(name)) {
        return ps_error_set(load->err, PS_EINVAL, "setting '%.60s': want NAME=value",
                            entry);
    }
    memcpy(name, entry, size);
    name[size] = '\0';
    for (int id = 0; id < PS_SETTING_COUNT; id++) {
        names[id] = ps_setting_rows()[id].name;
        if (strcmp(names[id], name) == 0) {
            return PS_OK;
        }
    }
    const char *near = ps_nearest(name, names);
    return ps_error_set(load->err, PS_EINVAL, "setting %s is not known%s%s%s", name,
                        near == NULL ? "" : "; did you mean ", near == NULL ? "" : near,
                        near == NULL ? "" : "?");
}

/* What one row alone cannot say. */
static enum ps_status check_values(struct load *load)
{
    const struct ps_setting_value *shards = &load->settings->values[PS_SET_SHARDS];
    if ((shards->integer & (shards->integer - 1)) != 0) {
        return ps_error_set(load->err, PS_EINVAL, "%s='%lld': want a power of two",
                            shards->variable, (long long)shards->integer);
    }
    return PS_OK;
}

static enum ps_status load_all(struct load *load)
{
    PS_TRY(set_defaults(load->settings));
    for (const char *const *entry = load->overrides; entry != NULL && *entry != NULL;
         entry++) {
        PS_TRY(check_override(load, *entry));
    }
    PS_TRY(load_row(load, PS_SET_ROLE)); /* first: some aliases hold for one role only */
    for (int id = 0; id < PS_SETTING_COUNT; id++) {
        if (id != PS_SET_ROLE) {
            PS_TRY(load_row(load, (enum ps_setting_id)id));
        }
    }
    for (const struct ps_old_row *old = ps_old_rows(); old->name != NULL; old++) {
        PS_TRY(apply_old(load, old));
    }
    for (const char *const *entry = load->env; *entry != NULL; entry++) {
        PS_TRY(check_name(load, *entry));
    }
    return check_values(load);
}

enum ps_status ps_settings_load(const char *const *env, const char *const *overrides,
                                struct ps_settings **settings_out, struct ps_error *err)
{
    static const char *const nothing[] = {NULL};
    struct ps_settings *settings = calloc(1, sizeof(*settings));
    if (settings == NULL) {
        return ps_error_set(err, PS_ENOMEM, "settings: out of memory");
    }
    if (env == NULL) {
        env = environ == NULL ? nothing : (const char *const *)environ;
    }
    struct load load = {settings, env, overrides, err};
    enum ps_status status = load_all(&load);
    if (status != PS_OK) {
        ps_settings_destroy(settings);
        return status == PS_ENOMEM ? ps_error_set(err, status, "settings: out of memory")
                                   : status;
    }
    *settings_out = settings;
    return PS_OK;
}

void ps_settings_destroy(struct ps_settings *settings)
{
    if (settings == NULL) {
        return;
    }
    for (int id = 0; id < PS_SETTING_COUNT; id++) {
        free(settings->values[id].text);
        free(settings->values[id].variable);
    }
    for (size_t i = 0; i < settings->warning_count; i++) {
        free(settings->warnings[i]);
    }
    free(settings->warnings);
    free(settings);
}

void ps_settings_warn(const struct ps_settings *settings, struct ps_log *log)
{
    for (size_t i = 0; i < settings->warning_count; i++) {
        PS_LOG(log, WARN, BASE, "%s", settings->warnings[i]);
    }
}

int64_t ps_settings_int(const struct ps_settings *settings, enum ps_setting_id id)
{
    return settings->values[id].integer;
}

bool ps_settings_bool(const struct ps_settings *settings, enum ps_setting_id id)
{
    return settings->values[id].integer != 0;
}

double ps_settings_real(const struct ps_settings *settings, enum ps_setting_id id)
{
    return settings->values[id].real;
}

const char *ps_settings_text(const struct ps_settings *settings, enum ps_setting_id id)
{
    return settings->values[id].text == NULL ? "" : settings->values[id].text;
}

int ps_settings_choice(const struct ps_settings *settings, enum ps_setting_id id)
{
    return (int)settings->values[id].integer;
}

bool ps_settings_is_set(const struct ps_settings *settings, enum ps_setting_id id)
{
    return settings->values[id].variable != NULL;
}

const char *ps_settings_variable(const struct ps_settings *settings,
                                 enum ps_setting_id id)
{
    const char *variable = settings->values[id].variable;
    return variable == NULL ? ps_setting_rows()[id].name : variable;
}
