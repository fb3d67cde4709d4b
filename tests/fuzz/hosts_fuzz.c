/* The launcher's two parsers of foreign text: hostfiles, and the line that a scheduler
 * reports. Holds: what is accepted has at least one host with a name, a port and a slot.
 */
#include "deploy/launch_hosts.h"
#include "deploy/launch_plan.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct ps_launch_hosts hosts = {0};
    struct ps_launch_root root = {0};
    struct ps_error err = {0};
    char *text = malloc(size + 1);
    if (!text) {
        return 0;
    }
    if (size) {
        memcpy(text, data, size);
    }
    text[size] = '\0';
    if (ps_launch_hosts_parse(text, "hosts", &hosts, &err) == PS_OK) {
        assert(hosts.count > 0);
        for (size_t i = 0; i < hosts.count; i++) {
            assert(hosts.items[i].name[0] != '\0' && hosts.items[i].name[0] != '-');
            assert(hosts.items[i].port > 0 && hosts.items[i].slots > 0);
        }
        ps_launch_hosts_fini(&hosts);
    } else {
        assert(err.text[0] != '\0');
    }
    if (ps_launch_parse_root(text, &root, &err) == PS_OK) {
        assert(root.uri[0] != '\0');
    }
    free(text);
    return 0;
}
