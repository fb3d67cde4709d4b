/* Names and texts of enum ps_status, and the one way to fill a ps_error. */
#include "base/status.h"

#include <stdarg.h>
#include <stdio.h>

const char *ps_status_name(enum ps_status status)
{
    switch (status) {
#define PS_STATUS_NAME(name, code, text) \
    case name:                           \
        return #name;
        PS_STATUS_MAP(PS_STATUS_NAME)
#undef PS_STATUS_NAME
    }
    return "PS_UNKNOWN";
}

const char *ps_status_text(enum ps_status status)
{
    switch (status) {
#define PS_STATUS_TEXT(name, code, text) \
    case name:                           \
        return text;
        PS_STATUS_MAP(PS_STATUS_TEXT)
#undef PS_STATUS_TEXT
    }
    return "unknown status";
}

enum ps_status ps_error_set(struct ps_error *err, enum ps_status status, const char *fmt,
                            ...)
{
    if (err != NULL) {
        va_list args;
        va_start(args, fmt);
        (void)vsnprintf(err->text, sizeof(err->text), fmt, args);
        va_end(args);
        err->status = status;
    }
    return status;
}
