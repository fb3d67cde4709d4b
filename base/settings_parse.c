/* The grammar of values.
 *
 *   integer  [+-]digits | digits e digits | 0x hex digits | digits (K|M|G|Ki|Mi|Gi)
 *            K M G are powers of 1000 for counts and of 1024 for bytes
 *   boolean  0 1 true false on off yes no, ignoring case
 *   choice   one of the row's words, ignoring case
 * No blanks anywhere. */
#include "base/settings_private.h"

#include "base/util.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

bool ps_setting_next_alias(const char **cursor, struct ps_setting_alias *alias_out)
{
    const char *text = *cursor;
    size_t size = strcspn(text, ",");
    if (size == 0) {
        return false;
    }
    *cursor = text + size + (text[size] == ',' ? 1 : 0);
    *alias_out = (struct ps_setting_alias){.factor = 1};
    size_t name_size = strcspn(text, "*@,");
    (void)snprintf(alias_out->name, sizeof(alias_out->name), "%.*s", (int)name_size,
                   text);
    const char *star = memchr(text, '*', size);
    if (star != NULL) {
        alias_out->factor = strtoll(star + 1, NULL, 10); /* our own table */
    }
    const char *at = memchr(text, '@', size);
    if (at != NULL) {
        (void)snprintf(alias_out->role, sizeof(alias_out->role), "%.*s",
                       (int)(size - (size_t)(at + 1 - text)), at + 1);
    }
    return true;
}

int ps_setting_choice_index(const char *choices, const char *word)
{
    size_t word_size = strlen(word);
    for (int index = 0; *choices != '\0'; index++) {
        size_t size = strcspn(choices, "|");
        if (size == word_size && strncasecmp(choices, word, size) == 0) {
            return index;
        }
        choices += size + (choices[size] == '|' ? 1 : 0);
    }
    return -1;
}

char *ps_setting_choice_at(const char *choices, int index)
{
    for (; index > 0; index--) {
        choices += strcspn(choices, "|");
        choices += *choices == '|' ? 1 : 0;
    }
    return strndup(choices, strcspn(choices, "|"));
}

/* 'base' raised to 'power'; false on overflow. */
static bool scale(int64_t *value, int64_t base, int64_t power)
{
    for (; power > 0 && *value != 0; power--) {
        if (__builtin_mul_overflow(*value, base, value)) {
            return false;
        }
    }
    return true;
}

/* What may follow the digits: nothing, eN, K, M, G, Ki, Mi, Gi. */
static enum ps_status parse_suffix(const char *suffix, bool bytes, int64_t *value)
{
    if (*suffix == '\0') {
        return PS_OK;
    }
    if (*suffix == 'e' || *suffix == 'E') {
        int64_t exponent;
        if (suffix[1] < '0' || suffix[1] > '9') {
            return PS_EINVAL;
        }
        enum ps_status status = ps_parse_i64(suffix + 1, &exponent);
        return status != PS_OK ? status : scale(value, 10, exponent) ? PS_OK : PS_ERANGE;
    }
    static const char units[] = "KMG";
    const char *unit = strchr(units, *suffix);
    bool binary = unit != NULL && suffix[1] == 'i';
    if (unit == NULL || suffix[binary ? 2 : 1] != '\0') {
        return PS_EINVAL;
    }
    return scale(value, binary || bytes ? 1024 : 1000, unit - units + 1) ? PS_OK
                                                                         : PS_ERANGE;
}

static enum ps_status parse_hex(const char *digits, int64_t *out)
{
    int64_t value = 0;
    if (*digits == '\0' || digits[strspn(digits, "0123456789abcdefABCDEF")] != '\0') {
        return PS_EINVAL;
    }
    for (; *digits != '\0'; digits++) {
        int digit = *digits <= '9' ? *digits - '0' : (*digits | 0x20) - 'a' + 10;
        if (__builtin_mul_overflow(value, 16, &value) ||
            __builtin_add_overflow(value, digit, &value)) {
            return PS_ERANGE;
        }
    }
    *out = value;
    return PS_OK;
}

static enum ps_status parse_integer(const char *text, bool bytes, int64_t *out)
{
    bool negative = *text == '-';
    const char *digits = text + (*text == '-' || *text == '+' ? 1 : 0);
    int64_t value = 0;
    if (digits[0] == '0' && (digits[1] == 'x' || digits[1] == 'X')) {
        PS_TRY(parse_hex(digits + 2, &value));
    } else {
        const char *end = digits;
        for (; *end >= '0' && *end <= '9'; end++) {
            if (__builtin_mul_overflow(value, 10, &value) ||
                __builtin_add_overflow(value, *end - '0', &value)) {
                return end[strspn(end, "0123456789eEKMGi")] == '\0' ? PS_ERANGE
                                                                    : PS_EINVAL;
            }
        }
        if (end == digits) {
            return PS_EINVAL;
        }
        PS_TRY(parse_suffix(end, bytes, &value));
    }
    *out = negative ? -value : value;
    return PS_OK;
}

enum ps_status ps_settings_parse_bytes(const char *text, int64_t *bytes_out)
{
    return parse_integer(text, true, bytes_out);
}

/* The bounds in the unit of an alias: rounded inwards. */
static int64_t bound(int64_t limit, int64_t factor, bool upper)
{
    return upper ? limit / factor : limit / factor + (limit % factor > 0 ? 1 : 0);
}

void ps_setting_accepts(const struct ps_setting_row *row, int64_t factor,
                        struct ps_str *out)
{
    const char *choices = row->choices;
    switch (row->type) {
    case PS_TYPE_INT:
    case PS_TYPE_BYTES:
        ps_str_printf(out, "an integer from %lld to %lld",
                      (long long)bound(row->int_min, factor, false),
                      (long long)bound(row->int_max, factor, true));
        if (row->unit[0] != '\0') {
            ps_str_printf(out, " %s",
                          factor == 1000 && strcmp(row->unit, "ms") == 0 ? "s"
                                                                         : row->unit);
        }
        break;
    case PS_TYPE_REAL:
        ps_str_printf(out, "a number from %g to %g%s%s", row->real_min, row->real_max,
                      row->unit[0] == '\0' ? "" : " ", row->unit);
        break;
    case PS_TYPE_BOOL:
        ps_str_printf(out, "0, 1, true, false, on, off, yes or no");
        break;
    case PS_TYPE_TEXT:
        ps_str_printf(out, "%s", ps_setting_text_accepts(row));
        break;
    case PS_TYPE_ENUM:
        ps_str_printf(out, "one of ");
        for (; *choices != '\0'; choices++) {
            ps_str_append(out, *choices == '|' ? ", " : choices, *choices == '|' ? 2 : 1);
        }
        break;
    }
}

static enum ps_status refuse(const struct ps_setting_row *row, const char *variable,
                             int64_t factor, const char *text, enum ps_status status,
                             struct ps_error *err)
{
    struct ps_str accepts = {0};
    ps_setting_accepts(row, factor, &accepts);
    (void)ps_error_set(err, status, "%s='%.60s'%s: want %s", variable, text,
                       status == PS_ERANGE ? " is out of range" : "",
                       ps_str_text(&accepts));
    ps_str_fini(&accepts);
    return status;
}

static enum ps_status parse_row_integer(const struct ps_setting_row *row, int64_t factor,
                                        const char *text, int64_t *out)
{
    int64_t value;
    PS_TRY(parse_integer(text, row->type == PS_TYPE_BYTES, &value));
    if (__builtin_mul_overflow(value, factor, &value) || value < row->int_min ||
        value > row->int_max) {
        return PS_ERANGE;
    }
    *out = value;
    return PS_OK;
}

enum ps_status ps_setting_parse(const struct ps_setting_row *row, const char *variable,
                                int64_t factor, const char *text,
                                struct ps_setting_value *value_out, struct ps_error *err)
{
    struct ps_setting_value value = {.integer = row->int_default};
    enum ps_status status = PS_OK;
    bool flag;
    switch (row->type) {
    case PS_TYPE_INT:
    case PS_TYPE_BYTES:
        status = parse_row_integer(row, factor, text, &value.integer);
        break;
    case PS_TYPE_REAL:
        status = ps_parse_f64(text, &value.real);
        value.real *= (double)factor;
        if (status == PS_OK &&
            !(value.real >= row->real_min && value.real <= row->real_max)) {
            status = PS_ERANGE;
        }
        break;
    case PS_TYPE_BOOL:
        status = ps_parse_bool(text, &flag);
        value.integer = status == PS_OK && flag ? 1 : 0;
        break;
    case PS_TYPE_TEXT:
        status = ps_setting_text_fits(row, text) ? PS_OK : PS_EINVAL;
        value.text = status == PS_OK ? ps_strdup(text) : NULL;
        break;
    case PS_TYPE_ENUM:
        value.integer = ps_setting_choice_index(row->choices, text);
        status = value.integer < 0 ? PS_EINVAL : PS_OK;
        if (status == PS_OK) {
            value.text = ps_setting_choice_at(row->choices, (int)value.integer);
        }
        break;
    }
    if (status != PS_OK) {
        return refuse(row, variable, factor, text, status, err);
    }
    value.variable = ps_strdup(variable);
    if (value.variable == NULL || (value.text == NULL && (row->type == PS_TYPE_TEXT ||
                                                          row->type == PS_TYPE_ENUM))) {
        free(value.text);
        free(value.variable);
        return ps_error_set(err, PS_ENOMEM, "%s: out of memory", variable);
    }
    *value_out = value;
    return PS_OK;
}
