/* Showing the settings: text for people, Markdown for docs/settings.md, JSON for
 * programs. */
#include "base/settings_private.h"

#include "base/util.h"

#include <string.h>

#define NAME_COLUMN 28
#define VALUE_COLUMN 26

/* A value as the user would type it. */
static void append_value(struct ps_str *out, const struct ps_setting_row *row,
                         const struct ps_setting_value *value)
{
    switch (row->type) {
    case PS_TYPE_INT:
    case PS_TYPE_BYTES:
    case PS_TYPE_BOOL:
        ps_str_printf(out, "%lld", (long long)value->integer);
        break;
    case PS_TYPE_REAL:
        ps_str_printf(out, "%.9g", value->real);
        break;
    case PS_TYPE_TEXT:
    case PS_TYPE_ENUM:
        ps_str_printf(out, "%s", value->text == NULL ? "" : value->text);
        break;
    }
}

static void append_default(struct ps_str *out, const struct ps_setting_row *row)
{
    if (row->text_default != NULL) {
        ps_str_printf(out, "%s", row->text_default);
    } else if (row->type == PS_TYPE_REAL) {
        ps_str_printf(out, "%.9g", row->real_default);
    } else {
        ps_str_printf(out, "%lld", (long long)row->int_default);
    }
}

/* "PENSTOCK_X", "MXNET_X" and, where they exist, the plain name and the aliases. */
static void append_variables(struct ps_str *out, const struct ps_setting_row *row,
                             const char *quote, const char *separator)
{
    struct ps_setting_alias alias;
    ps_str_printf(out, "%sPENSTOCK_%s%s%s%sMXNET_%s%s", quote, row->name, quote,
                  separator, quote, row->name, quote);
    if (row->plain) {
        ps_str_printf(out, "%s%s%s%s", separator, quote, row->name, quote);
    }
    for (const char *cursor = row->aliases; ps_setting_next_alias(&cursor, &alias);) {
        ps_str_printf(out, "%s%s%s%s", separator, quote, alias.name, quote);
    }
}

/* ---- text ---- */

static void text_row(struct ps_str *out, const struct ps_setting_row *row,
                     const struct ps_setting_value *value)
{
    struct ps_str shown = {0};
    append_value(&shown, row, value);
    const char *text = shown.size == 0 ? "(empty)" : ps_str_text(&shown);
    ps_str_printf(out, "  %-*s %-*s %s\n", NAME_COLUMN, row->name, VALUE_COLUMN, text,
                  value->variable == NULL ? "default" : value->variable);
    ps_str_fini(&shown);
    ps_str_printf(out, "      %s\n      ", row->doc);
    ps_setting_accepts(row, 1, out);
    ps_str_printf(out, "; default ");
    size_t before = out->size;
    append_default(out, row);
    ps_str_printf(out, "%s; read by %s\n", out->size == before ? "empty" : "",
                  row->readers);
}

static void print_text(const struct ps_settings *settings, struct ps_str *out)
{
    size_t count;
    const struct ps_setting_layout *layout = ps_setting_layout(&count);
    for (size_t i = 0; i < count; i++) {
        if (layout[i].title != NULL) {
            ps_str_printf(out, "%s%s\n", i == 0 ? "" : "\n", layout[i].title);
        } else {
            text_row(out, &ps_setting_rows()[layout[i].id],
                     &settings->values[layout[i].id]);
        }
    }
}

/* ---- Markdown ---- */

/* A cell: '|' would end it. */
static void append_cell(struct ps_str *out, const char *text)
{
    for (; *text != '\0'; text++) {
        if (*text == '|') {
            ps_str_append(out, "\\", 1);
        }
        ps_str_append(out, text, 1);
    }
}

static void markdown_row(struct ps_str *out, const struct ps_setting_row *row)
{
    struct ps_str cell = {0};
    ps_str_printf(out, "| `%s` | ", row->name);
    append_default(&cell, row);
    ps_str_printf(out, cell.size == 0 ? "%s" : "`%s`", ps_str_text(&cell));
    ps_str_fini(&cell);
    ps_str_printf(out, " | ");
    ps_setting_accepts(row, 1, &cell);
    append_cell(out, ps_str_text(&cell));
    ps_str_fini(&cell);
    ps_str_printf(out, " | ");
    append_variables(out, row, "`", " ");
    ps_str_printf(out, " | %s | ", row->readers);
    append_cell(out, row->doc);
    ps_str_printf(out, " |\n");
}

static void markdown_old(struct ps_str *out)
{
    static const char *const effects[] = {
        [PS_OLD_KIND_SETS] = "accepted",
        [PS_OLD_KIND_CHOICE] = "accepted",
        [PS_OLD_KIND_REFUSED] = "refused",
        [PS_OLD_KIND_IGNORED] = "ignored, with a warning",
        [PS_OLD_KIND_SILENT] = "not read",
        [PS_OLD_KIND_LATER] = "no effect yet, with a warning"};
    ps_str_printf(out,
                  "\n## Variables of MXNet, ps-lite and their launchers without a row\n\n"
                  "| variable | what happens | note |\n|---|---|---|\n");
    for (const struct ps_old_row *old = ps_old_rows(); old->name != NULL; old++) {
        bool prefixed =
            old->kind == PS_OLD_KIND_LATER && strncmp(old->name, "NNVM_", 5) != 0;
        ps_str_printf(out, "| `%s%s` | %s", prefixed ? "MXNET_" : "", old->name,
                      effects[old->kind]);
        if (old->kind == PS_OLD_KIND_CHOICE) {
            ps_str_printf(out, ": ");
            append_cell(out, old->value);
            ps_str_printf(out, "; refused: %s", old->refused);
        }
        ps_str_printf(out, " | ");
        append_cell(out, old->note);
        ps_str_printf(out, " |\n");
    }
}

static void print_markdown(struct ps_str *out)
{
    size_t count;
    const struct ps_setting_layout *layout = ps_setting_layout(&count);
    ps_str_printf(out, "# Settings\n\n"
                       "Made by `penstock settings --markdown` from `base/settings.def`; "
                       "do not edit.\n\n"
                       "A setting is read from the first of its variables that is set "
                       "and not empty, left to "
                       "right.\nIntegers: `1000000`, `1e6`, `1M`, `0x10`; K M G are "
                       "powers of 1000 for counts "
                       "and of 1024 for bytes, Ki Mi Gi always of 1024.\nBooleans: 0, 1, "
                       "true, false, on, off, "
                       "yes, no. Choices and booleans ignore case. Anything else is an "
                       "error at start.\n");
    for (size_t i = 0; i < count; i++) {
        if (layout[i].title != NULL) {
            ps_str_printf(
                out,
                "\n## %s\n\n| setting | default | accepts | variables | read by | "
                "meaning |\n|---|---|---|---|---|---|\n",
                layout[i].title);
        } else {
            markdown_row(out, &ps_setting_rows()[layout[i].id]);
        }
    }
    markdown_old(out);
}

/* ---- JSON ---- */

static void json_text(struct ps_str *out, const char *name, const char *text)
{
    ps_str_printf(out, ",\"%s\":", name);
    ps_str_json(out, text);
}

static void json_number(struct ps_str *out, const char *name,
                        const struct ps_setting_row *row, int64_t integer, double real)
{
    if (row->type == PS_TYPE_BOOL) {
        ps_str_printf(out, ",\"%s\":%s", name, integer != 0 ? "true" : "false");
    } else if (row->type == PS_TYPE_REAL) {
        ps_str_printf(out, ",\"%s\":%.17g", name, real);
    } else {
        ps_str_printf(out, ",\"%s\":%lld", name, (long long)integer);
    }
}

static void json_row(struct ps_str *out, const char *block,
                     const struct ps_setting_row *row,
                     const struct ps_setting_value *value)
{
    static const char *const types[] = {"int", "bytes", "real", "bool", "text", "enum"};
    bool number = row->type != PS_TYPE_TEXT && row->type != PS_TYPE_ENUM;
    struct ps_str list = {0};
    ps_str_printf(out, "{\"name\":\"%s\",\"type\":\"%s\"", row->name, types[row->type]);
    if (number) {
        json_number(out, "value", row, value->integer, value->real);
        json_number(out, "default", row, row->int_default, row->real_default);
        if (row->type != PS_TYPE_BOOL) {
            json_number(out, "min", row, row->int_min, row->real_min);
            json_number(out, "max", row, row->int_max, row->real_max);
        }
    } else {
        json_text(out, "value", value->text == NULL ? "" : value->text);
        json_text(out, "default", row->text_default);
    }
    json_text(out, "source", value->variable == NULL ? "default" : value->variable);
    json_text(out, "unit", row->unit);
    ps_setting_accepts(row, 1, &list);
    json_text(out, "accepts", ps_str_text(&list));
    ps_str_fini(&list);
    append_variables(&list, row, "\"", ",");
    ps_str_printf(out, ",\"variables\":[%s]", ps_str_text(&list));
    ps_str_fini(&list);
    json_text(out, "readers", row->readers);
    json_text(out, "block", block);
    json_text(out, "doc", row->doc);
    ps_str_printf(out, "}");
}

static void print_json(const struct ps_settings *settings, struct ps_str *out)
{
    size_t count;
    const struct ps_setting_layout *layout = ps_setting_layout(&count);
    const char *block = "";
    const char *separator = "[\n";
    for (size_t i = 0; i < count; i++) {
        if (layout[i].title != NULL) {
            block = layout[i].title;
            continue;
        }
        ps_str_printf(out, "%s", separator);
        json_row(out, block, &ps_setting_rows()[layout[i].id],
                 &settings->values[layout[i].id]);
        separator = ",\n";
    }
    ps_str_printf(out, "\n]\n");
}

void ps_settings_print(const struct ps_settings *settings, enum ps_settings_format format,
                       struct ps_str *out)
{
    switch (format) {
    case PS_SETTINGS_TEXT:
        print_text(settings, out);
        break;
    case PS_SETTINGS_MARKDOWN:
        print_markdown(out);
        break;
    case PS_SETTINGS_JSON:
        print_json(settings, out);
        break;
    }
}
