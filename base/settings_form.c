/* Text settings that are not free text: what fits, so that a wrong one is told at start
 * like every other.  What the text means is its reader's affair. */
#include "base/settings_private.h"

#include <string.h>
#include <strings.h>

static bool fits_memonger(const char *text)
{
    int64_t bytes;
    return strcasecmp(text, "sqrt") == 0 ||
           (ps_settings_parse_bytes(text, &bytes) == PS_OK && bytes > 0);
}

/* all, none, or pairs of numbers: 0-1,2-3. */
static bool fits_peers(const char *text)
{
    static const char digits[] = "0123456789";
    if (strcasecmp(text, "all") == 0 || strcasecmp(text, "none") == 0) {
        return true;
    }
    for (;; text++) {
        size_t left = strspn(text, digits);
        size_t right = text[left] == '-' ? strspn(text + left + 1, digits) : 0;
        if (left == 0 || right == 0) {
            return false;
        }
        text += left + 1 + right;
        if (*text != ',') {
            return *text == '\0';
        }
    }
}

static const struct form {
    enum ps_setting_id id;
    bool (*fits)(const char *text);
    const char *accepts;
} forms[] = {
    {PS_SET_MEMONGER, fits_memonger, "sqrt, or bytes such as 400M or 1Gi"},
    {PS_SET_SIM_GPU_PEERS, fits_peers, "all, none, or pairs such as 0-1,2-3"},
};

static const struct form *form_of(const struct ps_setting_row *row)
{
    for (size_t i = 0; i < PS_COUNT(forms); i++) {
        if (&ps_setting_rows()[forms[i].id] == row) {
            return &forms[i];
        }
    }
    return NULL;
}

bool ps_setting_text_fits(const struct ps_setting_row *row, const char *text)
{
    const struct form *form = form_of(row);
    return form == NULL || form->fits(text);
}

const char *ps_setting_text_accepts(const struct ps_setting_row *row)
{
    const struct form *form = form_of(row);
    return form == NULL ? "text" : form->accepts;
}
