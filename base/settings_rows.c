/* The tables of settings.def and settings_old.def as data. */
#include "base/settings_private.h"

#include <stddef.h>

#define PS_BLOCK(title)
#define PS_INT(n, default_, min_, max_, unit_, plain_, aliases_, readers_, doc_) \
    [PS_SET_##n] = {.name = #n,                                                  \
                    .type = PS_TYPE_INT,                                         \
                    .int_default = (default_),                                   \
                    .int_min = (min_),                                           \
                    .int_max = (max_),                                           \
                    .unit = (unit_),                                             \
                    .choices = "",                                               \
                    .plain = (plain_),                                           \
                    .aliases = (aliases_),                                       \
                    .readers = (readers_),                                       \
                    .doc = (doc_)},
#define PS_BYTES(n, default_, min_, max_, unit_, plain_, aliases_, readers_, doc_) \
    [PS_SET_##n] = {.name = #n,                                                    \
                    .type = PS_TYPE_BYTES,                                         \
                    .int_default = (default_),                                     \
                    .int_min = (min_),                                             \
                    .int_max = (max_),                                             \
                    .unit = (unit_),                                               \
                    .choices = "",                                                 \
                    .plain = (plain_),                                             \
                    .aliases = (aliases_),                                         \
                    .readers = (readers_),                                         \
                    .doc = (doc_)},
#define PS_REAL(n, default_, min_, max_, unit_, plain_, aliases_, readers_, doc_) \
    [PS_SET_##n] = {.name = #n,                                                   \
                    .type = PS_TYPE_REAL,                                         \
                    .real_default = (default_),                                   \
                    .real_min = (min_),                                           \
                    .real_max = (max_),                                           \
                    .unit = (unit_),                                              \
                    .choices = "",                                                \
                    .plain = (plain_),                                            \
                    .aliases = (aliases_),                                        \
                    .readers = (readers_),                                        \
                    .doc = (doc_)},
#define PS_BOOL(n, default_, plain_, aliases_, readers_, doc_) \
    [PS_SET_##n] = {.name = #n,                                \
                    .type = PS_TYPE_BOOL,                      \
                    .int_default = (default_),                 \
                    .int_min = 0,                              \
                    .int_max = 1,                              \
                    .unit = "",                                \
                    .choices = "",                             \
                    .plain = (plain_),                         \
                    .aliases = (aliases_),                     \
                    .readers = (readers_),                     \
                    .doc = (doc_)},
#define PS_TEXT(n, default_, plain_, aliases_, readers_, doc_) \
    [PS_SET_##n] = {.name = #n,                                \
                    .type = PS_TYPE_TEXT,                      \
                    .text_default = (default_),                \
                    .unit = "",                                \
                    .choices = "",                             \
                    .plain = (plain_),                         \
                    .aliases = (aliases_),                     \
                    .readers = (readers_),                     \
                    .doc = (doc_)},
#define PS_ENUM(n, default_, choices_, plain_, aliases_, readers_, doc_) \
    [PS_SET_##n] = {.name = #n,                                          \
                    .type = PS_TYPE_ENUM,                                \
                    .text_default = (default_),                          \
                    .unit = "",                                          \
                    .choices = (choices_),                               \
                    .plain = (plain_),                                   \
                    .aliases = (aliases_),                               \
                    .readers = (readers_),                               \
                    .doc = (doc_)},

static const struct ps_setting_row rows[PS_SETTING_COUNT] = {
#include "base/settings.def"
};
#undef PS_BLOCK
#undef PS_INT
#undef PS_BYTES
#undef PS_REAL
#undef PS_BOOL
#undef PS_TEXT
#undef PS_ENUM

const struct ps_setting_row *ps_setting_rows(void)
{
    return rows;
}

#define PS_BLOCK(text) {.title = (text)},
#define PS_INT(n, ...) {.id = PS_SET_##n},
#define PS_BYTES(n, ...) {.id = PS_SET_##n},
#define PS_REAL(n, ...) {.id = PS_SET_##n},
#define PS_BOOL(n, ...) {.id = PS_SET_##n},
#define PS_TEXT(n, ...) {.id = PS_SET_##n},
#define PS_ENUM(n, ...) {.id = PS_SET_##n},

static const struct ps_setting_layout layout[] = {
#include "base/settings.def"
};
#undef PS_BLOCK
#undef PS_INT
#undef PS_BYTES
#undef PS_REAL
#undef PS_BOOL
#undef PS_TEXT
#undef PS_ENUM

const struct ps_setting_layout *ps_setting_layout(size_t *count_out)
{
    *count_out = PS_COUNT(layout);
    return layout;
}

#define PS_OLD_SETS(name_, role_, row_, value_, note_) \
    {.kind = PS_OLD_KIND_SETS,                         \
     .name = (name_),                                  \
     .role = (role_),                                  \
     .id = PS_SET_##row_,                              \
     .value = (value_),                                \
     .note = (note_)},
#define PS_OLD_CHOICE(name_, accepted_, refused_, note_) \
    {.kind = PS_OLD_KIND_CHOICE,                         \
     .name = (name_),                                    \
     .value = (accepted_),                               \
     .refused = (refused_),                              \
     .note = (note_)},
#define PS_OLD_REFUSED(name_, note_) \
    {.kind = PS_OLD_KIND_REFUSED, .name = (name_), .note = (note_)},
#define PS_OLD_IGNORED(name_, note_) \
    {.kind = PS_OLD_KIND_IGNORED, .name = (name_), .note = (note_)},
#define PS_OLD_SILENT(name_, note_) \
    {.kind = PS_OLD_KIND_SILENT, .name = (name_), .note = (note_)},
#define PS_OLD_LATER(name_, note_) \
    {.kind = PS_OLD_KIND_LATER, .name = (name_), .note = (note_)},

static const struct ps_old_row old_rows[] = {
#include "base/settings_old.def"
    {.name = NULL}};

const struct ps_old_row *ps_old_rows(void)
{
    return old_rows;
}
