/* Variables that have no row: those of settings_old.def, and unknown names under our
 * prefixes, which are warned of with the nearest known one. */
#include "base/settings_private.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAME_BYTES 96

static enum ps_status warn(struct ps_setting_load *load, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
static enum ps_status warn(struct ps_setting_load *load, const char *fmt, ...)
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

static enum ps_status apply_sets(struct ps_setting_load *load,
                                 const struct ps_old_row *old, const char *text)
{
    bool on;
    if (ps_parse_bool(text, &on) != PS_OK) {
        return ps_error_set(load->err, PS_EINVAL,
                            "%s='%.60s': want 0, 1, true, false, on, off, yes or no",
                            old->name, text);
    }
    if (!on || !ps_setting_role_is(load, old->role) ||
        load->settings->values[old->id].variable != NULL) {
        return PS_OK;
    }
    struct ps_setting_value value;
    PS_TRY(ps_setting_parse(&ps_setting_rows()[old->id], old->name, 1, old->value, &value,
                            load->err));
    ps_setting_set(load, old->id, &value);
    return PS_OK;
}

static enum ps_status apply_old(struct ps_setting_load *load,
                                const struct ps_old_row *old)
{
    const char *text = ps_setting_look_up(load->env, old->name);
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
static enum ps_status check_name(struct ps_setting_load *load, const char *entry)
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
            ps_setting_look_up(load->env, name) == NULL) {
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

enum ps_status ps_setting_load_old(struct ps_setting_load *load)
{
    for (const struct ps_old_row *old = ps_old_rows(); old->name != NULL; old++) {
        PS_TRY(apply_old(load, old));
    }
    for (const char *const *entry = load->env; *entry != NULL; entry++) {
        PS_TRY(check_name(load, *entry));
    }
    return PS_OK;
}
