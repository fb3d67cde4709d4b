/* penstock.h: the library, nodes, words of errors. */
#include "api/handles.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *penstock_version(void)
{
    return PENSTOCK_VERSION;
}

int penstock_abi(void)
{
    return PENSTOCK_ABI;
}

const char *penstock_status_name(int status)
{
    return ps_status_name((enum ps_status)status);
}

const char *penstock_status_text(int status)
{
    return ps_status_text((enum ps_status)status);
}

int penstock_fail(struct penstock_node *node, const struct ps_error *err)
{
    char *words = pthread_getspecific(node->words);
    if (words == NULL) {
        words = malloc(PS_ERROR_TEXT_BYTES);
        if (words == NULL || pthread_setspecific(node->words, words) != 0) {
            free(words);
            return err->status;
        }
    }
    (void)snprintf(words, PS_ERROR_TEXT_BYTES, "%s",
                   err->text[0] != '\0' ? err->text : ps_status_text(err->status));
    return err->status;
}

const char *penstock_last_error(penstock_node *node)
{
    const char *words = pthread_getspecific(node->words);
    return words != NULL ? words : "";
}

static void log_sink(void *arg, const char *line, size_t size)
{
    struct penstock_node *node = arg;
    node->log(node->log_arg, line, size);
}

int penstock_open_explained(const penstock_options *options, penstock_node **node_out,
                            char error[256])
{
    struct ps_error err = {.status = PS_OK};
    enum ps_status status = PS_OK;
    struct penstock_node *node = calloc(1, sizeof(*node));
    if (node == NULL || pthread_key_create(&node->words, free) != 0) {
        free(node);
        status = ps_error_set(&err, PS_ENOMEM, "opening a node: out of memory");
        goto tell;
    }
    struct ps_node_options node_options = {.name = NULL};
    if (options != NULL && options->size >= sizeof(*options)) {
        node_options.overrides = options->settings;
        if (options->log != NULL) {
            node->log = options->log;
            node->log_arg = options->log_arg;
            node_options.log_sink = log_sink;
            node_options.log_sink_arg = node;
        }
    } else if (options != NULL) {
        status = ps_error_set(&err, PS_EINVAL,
                              "penstock_options: size %zu, use PENSTOCK_OPTIONS_INIT",
                              options->size);
        goto free_node;
    }
    PS_TRY_GOTO(status, ps_node_open(&node_options, &node->node, &err), free_node);
    ps_mutex_init(&node->stores);
    *node_out = node;
    goto tell;
free_node:
    (void)pthread_key_delete(node->words);
    free(node);
tell:
    if (error != NULL) {
        (void)snprintf(error, 256, "%s", err.text);
    }
    return status;
}

int penstock_open(const penstock_options *options, penstock_node **node_out)
{
    return penstock_open_explained(options, node_out, NULL);
}

void penstock_close(penstock_node *node)
{
    if (node == NULL) {
        return;
    }
    ps_node_close(node->node);
    ps_mutex_fini(&node->stores);
    free(pthread_getspecific(node->words));
    (void)pthread_setspecific(node->words, NULL);
    (void)pthread_key_delete(node->words);
    free(node);
}
