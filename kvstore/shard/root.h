/* The scheduler's address, from ROOT_URI, ROOT_PORT, TRANSPORT and BIND_HOST.
 * Threads: any; pure. */
#ifndef PENSTOCK_KVSTORE_SHARD_ROOT_H
#define PENSTOCK_KVSTORE_SHARD_ROOT_H

#include "base/settings.h"
#include "net/net.h"

/* What members dial.  Errors: PS_EINVAL with 'err' naming the setting that is missing or
 * malformed. */
PS_MUST_CHECK enum ps_status ps_root_dial_url(const struct ps_settings *settings,
                                              char url_out[PS_URL_BYTES],
                                              struct ps_error *err);
/* What the scheduler listens on: the loopback when the root address is loopback or unset,
 * else all interfaces, unless BIND_HOST says otherwise; port 0 = any free one. */
PS_MUST_CHECK enum ps_status ps_root_listen_url(const struct ps_settings *settings,
                                                char url_out[PS_URL_BYTES],
                                                struct ps_error *err);
/* Makes (mode 0700) and checks the directory of the scheduler's socket, where the
 * settings and not a whole address name it.  Errors: PS_EPERM. */
PS_MUST_CHECK enum ps_status ps_root_make_dir(const struct ps_settings *settings,
                                              struct ps_error *err);
/* Where a server's lane listens: the root's transport; its host with any free port, or a
 * path that net chooses ("ipc://" and a star). */
PS_MUST_CHECK enum ps_status ps_root_lane_url(const struct ps_settings *settings,
                                              char url_out[PS_URL_BYTES],
                                              struct ps_error *err);
/* "127.0.0.1", "::1", "localhost", 127.x.y.z, "". */
bool ps_root_is_loopback(const char *host);

#endif
