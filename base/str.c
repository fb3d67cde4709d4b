/* Growing strings, checked parsing of numbers, nearest names. */
#include "base/str.h"

#include <ctype.h>
#include <errno.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

void ps_str_fini(struct ps_str *str)
{
    free(str->data);
    *str = (struct ps_str){0};
}

/* Makes room for 'more' bytes and the NUL. */
static bool reserve(struct ps_str *str, size_t more)
{
    if (str->failed || more > SIZE_MAX / 2 - str->size - 1) {
        str->failed = true;
        return false;
    }
    size_t need = str->size + more + 1;
    if (need <= str->capacity) {
        return true;
    }
    size_t capacity = str->capacity < 64 ? 64 : str->capacity;
    while (capacity < need) {
        capacity *= 2;
    }
    char *data = realloc(str->data, capacity);
    if (data == NULL) {
        str->failed = true;
        return false;
    }
    str->data = data;
    str->capacity = capacity;
    return true;
}

void ps_str_append(struct ps_str *str, const char *data, size_t size)
{
    if (!reserve(str, size)) {
        return;
    }
    if (size > 0) {
        memcpy(str->data + str->size, data, size);
    }
    str->size += size;
    str->data[str->size] = '\0';
}

void ps_str_printf(struct ps_str *str, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    if (n < 0 || !reserve(str, (size_t)n)) {
        str->failed = true;
        return;
    }
    va_start(args, fmt);
    (void)vsnprintf(str->data + str->size, (size_t)n + 1, fmt, args);
    va_end(args);
    str->size += (size_t)n;
}

const char *ps_str_text(const struct ps_str *str)
{
    return str->data == NULL ? "" : str->data;
}

/* Bytes of the UTF-8 sequence at 's' (which ends with a NUL); 0 when it is not one:
 * overlong forms, surrogates and code points above U+10FFFF included (RFC 3629). */
static size_t utf8_length(const unsigned char *s)
{
    if (s[0] < 0x80) {
        return 1;
    }
    size_t length = s[0] >= 0xC2 && s[0] <= 0xDF ? 2 : (s[0] & 0xF0) == 0xE0 ? 3 : 4;
    if (s[0] < 0xC2 || s[0] > 0xF4) {
        return 0;
    }
    for (size_t i = 1; i < length; i++) {
        if ((s[i] & 0xC0) != 0x80) {
            return 0;
        }
    }
    if ((s[0] == 0xE0 && s[1] < 0xA0) || (s[0] == 0xED && s[1] > 0x9F) ||
        (s[0] == 0xF0 && s[1] < 0x90) || (s[0] == 0xF4 && s[1] > 0x8F)) {
        return 0;
    }
    return length;
}

void ps_str_json(struct ps_str *str, const char *text)
{
    const unsigned char *s = (const unsigned char *)text;
    ps_str_append(str, "\"", 1);
    while (*s != '\0') {
        size_t length = utf8_length(s);
        if (length == 0) {
            ps_str_append(str, "\xEF\xBF\xBD", 3);
            length = 1;
        } else if (*s == '"' || *s == '\\') {
            ps_str_printf(str, "\\%c", *s);
        } else if (*s == '\n') {
            ps_str_append(str, "\\n", 2);
        } else if (*s < 0x20 || *s == 0x7F) {
            ps_str_printf(str, "\\u%04x", (unsigned)*s);
        } else {
            ps_str_append(str, (const char *)s, length);
        }
        s += length;
    }
    ps_str_append(str, "\"", 1);
}

enum ps_status ps_parse_i64(const char *text, int64_t *out)
{
    const char *digits = text + (*text == '-' || *text == '+' ? 1 : 0);
    if (*digits == '\0' || strspn(digits, "0123456789") != strlen(digits)) {
        return PS_EINVAL;
    }
    errno = 0;
    long long value = strtoll(text, NULL, 10);
    if (errno == ERANGE) {
        return PS_ERANGE;
    }
    *out = value;
    return PS_OK;
}

enum ps_status ps_parse_u64(const char *text, uint64_t *out)
{
    if (*text == '\0' || strspn(text, "0123456789") != strlen(text)) {
        return PS_EINVAL;
    }
    errno = 0;
    unsigned long long value = strtoull(text, NULL, 10);
    if (errno == ERANGE) {
        return PS_ERANGE;
    }
    *out = value;
    return PS_OK;
}

enum ps_status ps_parse_f64(const char *text, double *out)
{
    /* No blanks, hex floats, "inf" or "nan". */
    if (*text == '\0' || strspn(text, "+-0123456789.eE") != strlen(text)) {
        return PS_EINVAL;
    }
    /* The host program may have set a locale with another decimal point. */
    locale_t c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    if (c_locale == (locale_t)0) {
        return PS_ENOMEM;
    }
    locale_t before = uselocale(c_locale);
    char *end;
    errno = 0;
    double value = strtod(text, &end);
    bool whole = *end == '\0' && end != text;
    (void)uselocale(before);
    freelocale(c_locale);
    if (!whole) {
        return PS_EINVAL;
    }
    if (!isfinite(value)) {
        return PS_ERANGE;
    }
    *out = value;
    return PS_OK;
}

enum ps_status ps_parse_bool(const char *text, bool *out)
{
    static const char *const words[] = {"0",   "1",  "false", "true",
                                        "off", "on", "no",    "yes"};
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        if (strcasecmp(text, words[i]) == 0) {
            *out = i % 2 == 1;
            return PS_OK;
        }
    }
    return PS_EINVAL;
}

#define NEAREST_LONGEST 64

static size_t min3(size_t a, size_t b, size_t c)
{
    size_t ab = a < b ? a : b;
    return ab < c ? ab : c;
}

/* Levenshtein distance ignoring case; both at most NEAREST_LONGEST bytes. */
static size_t distance(const char *a, size_t a_size, const char *b, size_t b_size)
{
    size_t row[NEAREST_LONGEST + 1];
    for (size_t j = 0; j <= b_size; j++) {
        row[j] = j;
    }
    for (size_t i = 1; i <= a_size; i++) {
        size_t diagonal = row[0]; /* row[i-1][j-1] */
        row[0] = i;
        for (size_t j = 1; j <= b_size; j++) {
            bool same =
                tolower((unsigned char)a[i - 1]) == tolower((unsigned char)b[j - 1]);
            size_t best = min3(row[j] + 1, row[j - 1] + 1, diagonal + (same ? 0 : 1));
            diagonal = row[j];
            row[j] = best;
        }
    }
    return row[b_size];
}

const char *ps_nearest_distance(const char *word, const char *const *names, size_t *best)
{
    size_t word_size = strlen(word);
    if (word_size == 0 || word_size > NEAREST_LONGEST) {
        return NULL;
    }
    size_t limit = word_size / 3 > 2 ? word_size / 3 : 2;
    limit = word_size / 2 < limit ? word_size / 2 : limit; /* not half of a short word */
    const char *nearest = NULL;
    for (; *names != NULL; names++) {
        size_t size = strlen(*names);
        if (size > NEAREST_LONGEST) {
            continue;
        }
        size_t d = distance(word, word_size, *names, size);
        if (d <= limit && d < *best) {
            *best = d;
            nearest = *names;
        }
    }
    return nearest;
}

const char *ps_nearest(const char *word, const char *const *names)
{
    size_t best = SIZE_MAX;
    return ps_nearest_distance(word, names, &best);
}

const char *ps_join(const char *const *names, char *out, size_t out_size)
{
    size_t used = 0;
    if (out_size == 0) {
        return out;
    }
    out[0] = '\0';
    for (size_t i = 0; names[i] != NULL && used < out_size; i++) {
        int n =
            snprintf(out + used, out_size - used, "%s%s", i == 0 ? "" : ", ", names[i]);
        if (n < 0) {
            break;
        }
        used += (size_t)n;
    }
    return out;
}

char *ps_strdup(const char *text)
{
    return text == NULL ? NULL : strdup(text);
}
