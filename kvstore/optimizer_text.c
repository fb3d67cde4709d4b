/* Splits a user's hyper-parameters and sets them one by one. */
#include "kvstore/optimizer_text.h"

#include "base/str.h"

#include <string.h>

enum ps_status ps_optimizer_set_text(struct ps_optimizer *optimizer, const char *hyper,
                                     struct ps_error *err)
{
    struct ps_optimizer changed = *optimizer;
    struct ps_str text = {0};
    ps_str_printf(&text, "%s", hyper != NULL ? hyper : "");
    if (text.failed) {
        ps_str_fini(&text);
        return ps_error_set(err, PS_ENOMEM, "optimizer: out of memory");
    }
    enum ps_status status = PS_OK;
    char *next = text.data;
    while (next != NULL && *next != '\0' && status == PS_OK) {
        char *pair = next;
        next = strchr(pair, ',');
        if (next != NULL) {
            *next++ = '\0';
        }
        char *value = strchr(pair, '=');
        if (value == NULL) {
            status = ps_error_set(err, PS_EINVAL,
                                  "hyper-parameter \"%s\": name=value is accepted", pair);
        } else {
            *value++ = '\0';
            status = ps_optimizer_set(&changed, pair, value, err);
        }
    }
    ps_str_fini(&text);
    if (status == PS_OK) {
        *optimizer = changed;
    }
    return status;
}

enum ps_status ps_optimizer_from_text(const char *name, const char *hyper,
                                      struct ps_optimizer *optimizer_out,
                                      struct ps_error *err)
{
    struct ps_optimizer optimizer;
    PS_TRY(ps_optimizer_init(name, &optimizer, err));
    PS_TRY(ps_optimizer_set_text(&optimizer, hyper, err));
    *optimizer_out = optimizer;
    return PS_OK;
}
