/* Reads one JSON text from stdin, strictly, and prints the value at a path, for the
 * end-to-end tests:   e2e_json members.0.role
 * A path of "" is the whole; "#" at the end counts.  Exits 1 when the text is not JSON, 2
 * when there is no such value. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const json_t *step(const json_t *at, const char *name)
{
    if (json_is_array(at)) {
        return json_array_get(at, strtoul(name, NULL, 10));
    }
    return json_object_get(at, name);
}

int main(int argc, char **argv)
{
    json_error_t error;
    json_t *whole = json_loadf(stdin, JSON_REJECT_DUPLICATES, &error);
    const json_t *at = whole;
    char *rest = argc == 2 ? argv[1] : NULL, *save = NULL;
    if (whole == NULL || rest == NULL) {
        (void)fprintf(stderr, "line %d: %s\n", error.line, error.text);
        return 1;
    }
    for (char *name = strtok_r(rest, ".", &save); name != NULL && at != NULL;
         name = strtok_r(NULL, ".", &save)) {
        if (strcmp(name, "#") == 0) {
            (void)printf("%zu\n", json_array_size(at));
            json_decref(whole);
            return 0;
        }
        at = step(at, name);
    }
    if (json_is_string(at)) {
        (void)printf("%s\n", json_string_value(at));
    } else if (at != NULL) {
        (void)json_dumpf(at, stdout, JSON_ENCODE_ANY | JSON_COMPACT);
        (void)printf("\n");
    }
    json_decref(whole);
    return at != NULL ? 0 : 2;
}
