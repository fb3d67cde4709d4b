/* What the files of the settings share: the rows as data, the values, the parser.
 * settings.c loads, settings_old.c looks at names without a row, settings_parse.c reads
 * values, settings_print.c shows them, and settings_rows.c makes data of the tables. */
#ifndef PENSTOCK_BASE_SETTINGS_PRIVATE_H
#define PENSTOCK_BASE_SETTINGS_PRIVATE_H

#include "base/settings.h"

enum ps_setting_type {
    PS_TYPE_INT,
    PS_TYPE_BYTES,
    PS_TYPE_REAL,
    PS_TYPE_BOOL,
    PS_TYPE_TEXT,
    PS_TYPE_ENUM
};

struct ps_setting_row {
    const char *name;
    enum ps_setting_type type;
    int64_t int_default, int_min, int_max; /* INT, BYTES, BOOL */
    double real_default, real_min, real_max;
    const char *text_default; /* TEXT, ENUM */
    const char *unit;
    const char *choices; /* "a|b" */
    bool plain;
    const char *aliases;
    const char *readers;
    const char *doc;
};

struct ps_setting_value {
    int64_t integer; /* INT, BYTES, BOOL; ENUM: index */
    double real;
    char *text;     /* TEXT; ENUM: the table's spelling */
    char *variable; /* NULL: the default */
};

struct ps_settings {
    struct ps_setting_value values[PS_SETTING_COUNT];
    char **warnings;
    size_t warning_count;
};

/* The rows, by id. */
const struct ps_setting_row *ps_setting_rows(void);

/* The order of settings.def: titles of blocks, each followed by its rows. */
struct ps_setting_layout {
    const char *title; /* NULL: a row */
    enum ps_setting_id id;
};
const struct ps_setting_layout *ps_setting_layout(size_t *count_out);

enum ps_old_kind {
    PS_OLD_KIND_SETS,
    PS_OLD_KIND_CHOICE,
    PS_OLD_KIND_REFUSED,
    PS_OLD_KIND_IGNORED,
    PS_OLD_KIND_SILENT,
    PS_OLD_KIND_LATER
};

struct ps_old_row {
    enum ps_old_kind kind;
    const char *name;
    const char *role;      /* SETS: "" = every role */
    enum ps_setting_id id; /* SETS */
    const char *value;     /* SETS: the value; CHOICE: what is accepted */
    const char *refused;   /* CHOICE */
    const char *note;
};

/* Ends with a row whose name is NULL. */
const struct ps_old_row *ps_old_rows(void);

/* One of a row's aliases: "NAME[*FACTOR][@ROLE]". */
struct ps_setting_alias {
    char name[64];
    int64_t factor;
    char role[16]; /* "" = every role */
};
/* Reads the alias at *cursor and moves on; false at the end of the list. */
bool ps_setting_next_alias(const char **cursor, struct ps_setting_alias *alias_out);

/* Reads 'text' as a value of 'row', times 'factor'.  'variable' is the name for the
 * error. */
PS_MUST_CHECK enum ps_status ps_setting_parse(const struct ps_setting_row *row,
                                              const char *variable, int64_t factor,
                                              const char *text,
                                              struct ps_setting_value *value_out,
                                              struct ps_error *err);
/* "an integer from 1 to 256", "one of a, b, c"; for errors and documentation. */
void ps_setting_accepts(const struct ps_setting_row *row, int64_t factor,
                        struct ps_str *out);
/* settings_form.c: whether a text may be the value of a text row, and which may. */
bool ps_setting_text_fits(const struct ps_setting_row *row, const char *text);
const char *ps_setting_text_accepts(const struct ps_setting_row *row);
/* The index of 'word' in "a|b|c", ignoring case; -1 when it is not there. */
int ps_setting_choice_index(const char *choices, const char *word);
/* The choice with that index, malloc'ed; NULL when out of memory. */
char *ps_setting_choice_at(const char *choices, int index);

/* What a load works on. */
struct ps_setting_load {
    struct ps_settings *settings;
    const char *const *env;
    const char *const *overrides;
    struct ps_error *err;
};

/* The value of 'name' in a list of "NAME=value"; NULL when absent or empty. */
const char *ps_setting_look_up(const char *const *list, const char *name);
/* Replaces a value; takes what it points to. */
void ps_setting_set(struct ps_setting_load *load, enum ps_setting_id id,
                    const struct ps_setting_value *value);
/* Is 'role' this process's role (or "")? */
bool ps_setting_role_is(const struct ps_setting_load *load, const char *role);
/* settings_old.c: the variables of settings_old.def, then warnings for unknown names. */
PS_MUST_CHECK enum ps_status ps_setting_load_old(struct ps_setting_load *load);

#endif
