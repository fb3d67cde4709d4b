/* Fuzz target: the environment.  The input is a list of "NAME=value" lines; a '+' in
 * front makes a line an override.  Whatever stands there, loading gives settings or an
 * error with a text, and printing them gives text. */
#include "base/settings.h"

#include <stdlib.h>
#include <string.h>

#define LINES_MAX 64

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const char *const *env, const char *const *overrides)
{
    struct ps_settings *settings = NULL;
    struct ps_error err = {0};
    struct ps_str out = {0};
    if (ps_settings_load(env, overrides, &settings, &err) != PS_OK) {
        if (settings != NULL || err.text[0] == '\0' || err.status == PS_OK) {
            abort(); /* an error without its words */
        }
        return;
    }
    ps_settings_print(settings, PS_SETTINGS_TEXT, &out);
    ps_settings_print(settings, PS_SETTINGS_JSON, &out);
    if (out.failed || out.size == 0) {
        abort();
    }
    ps_str_fini(&out);
    ps_settings_destroy(settings);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *env[LINES_MAX + 1] = {NULL};
    const char *overrides[LINES_MAX + 1] = {NULL};
    size_t env_count = 0, override_count = 0;
    char *text = malloc(size + 1);
    if (text == NULL) {
        return 0;
    }
    if (size > 0) {
        memcpy(text, data, size);
    }
    text[size] = '\0';
    for (char *line = text; line != NULL && *line != '\0';) {
        char *end = strchr(line, '\n');
        if (end != NULL) {
            *end++ = '\0';
        }
        if (*line == '+' && override_count < LINES_MAX) {
            overrides[override_count++] = line + 1;
        } else if (env_count < LINES_MAX) {
            env[env_count++] = line;
        }
        line = end;
    }
    check(env, overrides);
    free(text);
    return 0;
}
