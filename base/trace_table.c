/* The profiler's table: count, total, least, most and mean of spans and counters, by
 * category and name. */
#include "base/trace_private.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A program that makes up names without end must not eat the memory. */
enum { MAX_ROWS = 16384 };
#define NS_PER_US 1e3
#define NS_PER_MS 1e6

static const char *const category_names[PS_TRACE_CATEGORY_COUNT] = {
    [PS_TRACE_OPERATOR] = "operator",
    [PS_TRACE_COPY] = "copy",
    [PS_TRACE_COMMUNICATION] = "communication",
    [PS_TRACE_ENGINE] = "engine",
    [PS_TRACE_MEMORY] = "memory",
    [PS_TRACE_QUEUE] = "queue",
    [PS_TRACE_USER] = "user"};

const char *ps_trace_category_name(uint8_t category)
{
    return category < PS_TRACE_CATEGORY_COUNT ? category_names[category] : "user";
}

static struct ps_trace_row *find_row(struct ps_trace_table *table, uint8_t category,
                                     bool timed, const char *name, size_t name_size)
{
    char key[PS_TRACE_NAME_MAX + 3];
    key[0] = (char)('a' + category);
    key[1] = timed ? 't' : 'c';
    memcpy(key + 2, name, name_size);
    key[2 + name_size] = '\0';
    struct ps_trace_row *row = ps_strmap_get(&table->rows, key);
    if (row != NULL || table->rows.count >= MAX_ROWS) {
        return row;
    }
    row = calloc(1, sizeof(*row));
    if (row == NULL || ps_strmap_put(&table->rows, key, row, NULL) != PS_OK) {
        free(row);
        return NULL;
    }
    memcpy(row->name, name, name_size);
    row->category = category;
    row->timed = timed;
    return row;
}

void ps_trace_table_add(struct ps_trace_table *table, uint8_t category, bool timed,
                        const char *name, size_t name_size, double value)
{
    struct ps_trace_row *row = find_row(table, category, timed, name, name_size);
    if (row == NULL) {
        table->not_counted++;
        return;
    }
    row->least = row->count == 0 ? value : PS_MIN(row->least, value);
    row->most = row->count == 0 ? value : PS_MAX(row->most, value);
    row->total += value;
    row->count++;
}

void ps_trace_table_clear(struct ps_trace_table *table)
{
    const char *key;
    void *row;
    for (size_t it = 0; ps_strmap_next(&table->rows, &it, &key, &row);) {
        free(row);
    }
    ps_strmap_fini(&table->rows);
    *table = (struct ps_trace_table){.not_counted = 0};
}

/* ---- printing ---- */

/* By category, then the largest total, then by name. */
static int compare(const void *left, const void *right)
{
    const struct ps_trace_row *a = *(const struct ps_trace_row *const *)left;
    const struct ps_trace_row *b = *(const struct ps_trace_row *const *)right;
    if (a->timed != b->timed) {
        return a->timed ? -1 : 1;
    }
    if (a->category != b->category) {
        return a->category < b->category ? -1 : 1;
    }
    if (a->total != b->total) {
        return a->total > b->total ? -1 : 1;
    }
    return strcmp(a->name, b->name);
}

/* The rows in order; NULL when there is no memory (or no row). */
static const struct ps_trace_row **sorted(const struct ps_trace_table *table,
                                          size_t *count_out)
{
    const char *key;
    void *row;
    size_t count = 0;
    const struct ps_trace_row **rows = calloc(table->rows.count + 1, sizeof(*rows));
    for (size_t it = 0; rows != NULL && ps_strmap_next(&table->rows, &it, &key, &row);) {
        rows[count++] = row;
    }
    if (count > 0) {
        qsort(rows, count, sizeof(*rows), compare);
    }
    *count_out = count;
    return rows;
}

static void print_text(const struct ps_trace_row *const *rows, size_t count,
                       struct ps_str *out)
{
    for (size_t i = 0; i < count; i++) {
        const struct ps_trace_row *row = rows[i];
        if (i == 0 || rows[i - 1]->timed != row->timed ||
            rows[i - 1]->category != row->category) {
            ps_str_printf(out, "%s%s\n%-40s %10s %14s %14s %14s %14s\n",
                          i == 0 ? "" : "\n", ps_trace_category_name(row->category),
                          "name", "count", row->timed ? "total us" : "",
                          row->timed ? "min us" : "min", row->timed ? "max us" : "max",
                          row->timed ? "mean us" : "mean");
        }
        double unit = row->timed ? NS_PER_US : 1;
        char total[32] = "";
        if (row->timed) {
            (void)snprintf(total, sizeof(total), "%.3f", row->total / unit);
        }
        ps_str_printf(out, "%-40s %10" PRIu64 " %14s %14.3f %14.3f %14.3f\n", row->name,
                      row->count, total, row->least / unit, row->most / unit,
                      row->total / unit / (double)row->count);
    }
}

/* The section of the JSON object that a row stands in, as MXNet's profiler has them. */
static const char *section_of(const struct ps_trace_row *row)
{
    if (row->timed) {
        return "Time";
    }
    return row->category == PS_TRACE_MEMORY ? "Memory" : "Counter";
}

static void print_section(const struct ps_trace_row *const *rows, size_t count,
                          const char *section, struct ps_str *out)
{
    const struct ps_trace_row *last = NULL;
    ps_str_printf(out, "\"%s\":{", section);
    for (size_t i = 0; i < count; i++) {
        const struct ps_trace_row *row = rows[i];
        if (strcmp(section_of(row), section) != 0) {
            continue;
        }
        if (last == NULL || last->category != row->category) {
            ps_str_printf(out, "%s\"%s\":{", last == NULL ? "" : "},",
                          ps_trace_category_name(row->category));
        } else {
            ps_str_append(out, ",", 1);
        }
        last = row;
        double unit = row->timed ? NS_PER_MS : 1;
        ps_str_json(out, row->name);
        ps_str_printf(out, ":{\"Count\":%" PRIu64 ",\"Total\":%.6f,\"Min\":%.6f,",
                      row->count, row->total / unit, row->least / unit);
        ps_str_printf(out, "\"Max\":%.6f,\"Avg\":%.6f}", row->most / unit,
                      row->total / unit / (double)row->count);
    }
    ps_str_printf(out, "%s}", last == NULL ? "" : "}");
}

void ps_trace_table_print(const struct ps_trace_table *table, uint64_t lost, bool json,
                          struct ps_str *out)
{
    size_t count = 0;
    const struct ps_trace_row **rows = sorted(table, &count);
    if (json) {
        static const char *const sections[] = {"Time", "Memory", "Counter"};
        ps_str_append(out, "{", 1);
        for (size_t i = 0; i < PS_COUNT(sections); i++) {
            print_section(rows, count, sections[i], out);
            ps_str_append(out, ",", 1);
        }
        ps_str_printf(out,
                      "\"Unit\":{\"Time\":\"ms\",\"Memory\":\"bytes\"},"
                      "\"Lost\":%" PRIu64 ",\"NotCounted\":%" PRIu64 "}\n",
                      lost, table->not_counted);
    } else {
        print_text(rows, count, out);
        if (lost > 0 || table->not_counted > 0) {
            ps_str_printf(out,
                          "\nlost %" PRIu64 " events, left out of the counts; not "
                          "counted by name %" PRIu64 "\n",
                          lost, table->not_counted);
        }
    }
    if (rows == NULL) {
        out->failed = true;
    }
    free(rows);
}
