#include "net/secure.h"

#include "net/nic.h"

static enum ps_status none_setup(const struct ps_secure *secure, void *socket,
                                 bool listening, struct ps_error *err)
{
    PS_UNUSED(secure);
    PS_UNUSED(socket);
    PS_UNUSED(listening);
    PS_UNUSED(err);
    return PS_OK;
}

const struct ps_secure *ps_secure_of(const struct ps_node *node)
{
    static const struct ps_secure none = {
        .name = "none", .encrypts = false, .setup = none_setup};
    PS_UNUSED(node);
    return &none;
}

enum ps_status ps_secure_admit(const struct ps_node *node, const char *host,
                               struct ps_error *err)
{
    if (ps_secure_of(node)->encrypts ||
        ps_settings_bool(node->settings, PS_SET_INSECURE) || ps_host_is_local(host)) {
        return PS_OK;
    }
    return ps_error_set(err, PS_EPERM,
                        "a link with %.100s would leave this host unencrypted: set "
                        "PENSTOCK_INSECURE=1 on every node if the network is trusted",
                        host);
}
