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

const char *ps_setting_look_up(const char *const *list, const char *name)
{
    size_t size = strlen(name);
    for (; list != NULL && *list != NULL; list++) {
        if (strncmp(*list, name, size) == 0 && (*list)[size] == '=') {
            return (*list)[size + 1] == '\0' ? NULL : *list + size + 1;
        }
    }
    return NULL;
}

void ps_setting_set(struct ps_setting_load *load, enum ps_setting_id id,
                    const struct ps_setting_value *value)
{
    struct ps_setting_value *place = &load->settings->values[id];
    free(place->text);
    free(place->variable);
    *place = *value;
}

/* Takes 'variable' if it is set in 'list'; sets 'found'. */
static enum ps_status try_variable(struct ps_setting_load *load, const char *const *list,
                                   enum ps_setting_id id, const char *variable,
                                   int64_t factor, bool *found)
{
    const char *text = ps_setting_look_up(list, variable);
    if (text == NULL) {
        return PS_OK;
    }
    struct ps_setting_value value;
    PS_TRY(ps_setting_parse(&ps_setting_rows()[id], variable, factor, text, &value,
                            load->err));
    ps_setting_set(load, id, &value);
    *found = true;
    return PS_OK;
}

bool ps_setting_role_is(const struct ps_setting_load *load, const char *role)
{
    const char *mine = load->settings->values[PS_SET_ROLE].text;
    return role[0] == '\0' || (mine != NULL && strcmp(mine, role) == 0);
}

static enum ps_status load_row(struct ps_setting_load *load, enum ps_setting_id id)
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
        if (ps_setting_role_is(load, alias.role)) {
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

/* Overrides are explicit: a name that no row has is an error. */
static enum ps_status check_override(struct ps_setting_load *load, const char *entry)
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
static enum ps_status check_values(struct ps_setting_load *load)
{
    const struct ps_setting_value *shards = &load->settings->values[PS_SET_SHARDS];
    if ((shards->integer & (shards->integer - 1)) != 0) {
        return ps_error_set(load->err, PS_EINVAL, "%s='%lld': want a power of two",
                            shards->variable, (long long)shards->integer);
    }
    return PS_OK;
}

static enum ps_status load_all(struct ps_setting_load *load)
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
    PS_TRY(ps_setting_load_old(load));
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
    struct ps_setting_load load = {settings, env, overrides, err};
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
