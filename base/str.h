/* Text: a growing string, checked number parsing, nearest names for error messages.
 * Threads: one at a time per string; the functions are pure. */
#ifndef PENSTOCK_BASE_STR_H
#define PENSTOCK_BASE_STR_H

#include "base/status.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Grows as needed; an allocation failure is sticky and shown by 'failed'.  data is always
 * NUL-terminated text once anything was appended; "" before (through ps_str_text). */
struct ps_str {
    char *data;
    size_t size, capacity;
    bool failed;
};
void ps_str_fini(struct ps_str *str);
void ps_str_append(struct ps_str *str, const char *data, size_t size);
void ps_str_printf(struct ps_str *str, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
const char *ps_str_text(const struct ps_str *str);
/* Appends 'text' as a JSON string with its quotes; bytes that are not UTF-8 become
 * U+FFFD. */
void ps_str_json(struct ps_str *str, const char *text);

/* The whole of 'text' must be a number of the form; PS_EINVAL or PS_ERANGE otherwise. */
PS_MUST_CHECK enum ps_status ps_parse_i64(const char *text,
                                          int64_t *out); /* decimal, sign */
PS_MUST_CHECK enum ps_status ps_parse_u64(const char *text, uint64_t *out); /* decimal */
PS_MUST_CHECK enum ps_status ps_parse_f64(const char *text,
                                          double *out); /* finite, "C" locale */
PS_MUST_CHECK enum ps_status ps_parse_bool(const char *text,
                                           bool *out); /* 0/1/true/.../no */

/* The name of 'names' (NULL-terminated) nearest to 'word' by edit distance, ignoring
 * case; NULL when none is near (distance above a third of the word's length, at least 2,
 * and at most half of it). */
const char *ps_nearest(const char *word, const char *const *names);
/* For lists in pieces: only a name nearer than *best counts, which is lowered then; begin
 * with SIZE_MAX. */
const char *ps_nearest_distance(const char *word, const char *const *names, size_t *best);
/* "a, b, c" of a NULL-terminated list, into 'out'.  Returns 'out'. */
const char *ps_join(const char *const *names, char *out, size_t out_size);
/* strdup that returns NULL on NULL. */
char *ps_strdup(const char *text);

/* Castagnoli CRC (polynomial 0x82F63B78 reflected; "123456789" -> 0xE3069283). */
uint32_t ps_crc32c(uint32_t crc, const void *data, size_t size); /* start with 0 */
/* The same without the machine's instruction; for its test. */
uint32_t ps_crc32c_portable(uint32_t crc, const void *data, size_t size);

#endif
