/* For trace_kill.sh.
 *
 *   e2e_trace_flood                records events on two threads for ever
 *   e2e_trace_flood check FILE     parses FILE and prints its number of spans
 *
 * Exits 1 when a call failed or the file is no JSON. */
#include "api/penstock.h"

#include <jansson.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

static void *flood(void *arg)
{
    penstock_node *node = arg;
    char name[100];
    for (unsigned i = 0;; i++) {
        (void)snprintf(name, sizeof(name), "scope %u %.*s", i % 100, (int)(i % 60),
                       "a name of many lengths, so that pages end anywhere in it");
        penstock_scope_end(node, name, penstock_scope_begin(node));
    }
    return NULL;
}

static int check(const char *path)
{
    json_error_t error;
    json_t *root = json_load_file(path, 0, &error);
    if (root == NULL) {
        printf("%s at byte %d\n", error.text, error.position);
        return 1;
    }
    size_t spans = 0, i;
    json_t *event;
    json_array_foreach(json_object_get(root, "traceEvents"), i, event)
    {
        const char *phase = json_string_value(json_object_get(event, "ph"));
        spans += phase != NULL && strcmp(phase, "X") == 0;
    }
    json_decref(root);
    printf("%zu\n", spans);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "check") == 0) {
        return check(argv[2]);
    }
    char words[256];
    penstock_node *node;
    pthread_t thread;
    if (penstock_open_explained(NULL, &node, words) != 0 ||
        pthread_create(&thread, NULL, flood, node) != 0) {
        (void)fprintf(stderr, "%s\n", words);
        return 1;
    }
    (void)flood(node);
    return 0;
}
