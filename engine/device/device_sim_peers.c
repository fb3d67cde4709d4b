/* SIM_GPU_PEERS: all, none, or pairs such as 0-1,2-3.  A pair reaches each other. */
#include "engine/device/device_sim.h"

#include "base/str.h"

#include <string.h>
#include <strings.h>

enum { PAIR_TEXT = 16 };

/* "a-b" of 'size' bytes. */
static bool parse_pair(const char *text, size_t size, unsigned count,
                       uint64_t rows[PS_DEVICE_SIM_MAX])
{
    char copy[PAIR_TEXT];
    uint64_t a, b;
    if (size >= sizeof(copy)) {
        return false;
    }
    memcpy(copy, text, size);
    copy[size] = '\0';
    char *dash = strchr(copy, '-');
    if (dash == NULL) {
        return false;
    }
    *dash = '\0';
    if (ps_parse_u64(copy, &a) != PS_OK || ps_parse_u64(dash + 1, &b) != PS_OK ||
        a >= count || b >= count || a == b) {
        return false;
    }
    rows[a] |= UINT64_C(1) << b;
    rows[b] |= UINT64_C(1) << a;
    return true;
}

static bool parse_list(const char *text, unsigned count, uint64_t rows[PS_DEVICE_SIM_MAX])
{
    for (;;) {
        size_t size = strcspn(text, ",");
        if (!parse_pair(text, size, count, rows)) {
            return false;
        }
        if (text[size] == '\0') {
            return true;
        }
        text += size + 1;
    }
}

enum ps_status ps_device_sim_peers(const char *variable, const char *text, unsigned count,
                                   uint64_t rows[PS_DEVICE_SIM_MAX], struct ps_error *err)
{
    uint64_t found[PS_DEVICE_SIM_MAX] = {0};
    if (strcasecmp(text, "all") == 0) {
        for (unsigned i = 0; i < count; i++) {
            uint64_t everyone = UINT64_MAX >> (PS_DEVICE_SIM_MAX - count);
            found[i] = everyone & ~(UINT64_C(1) << i);
        }
    } else if (strcasecmp(text, "none") != 0 && !parse_list(text, count, found)) {
        return ps_error_set(err, PS_EINVAL,
                            "%s '%.60s': want all, none, or pairs of two different "
                            "accelerators of 0 to %u such as 0-1,2-3",
                            variable, text, count - 1);
    }
    memcpy(rows, found, sizeof(found));
    return PS_OK;
}
