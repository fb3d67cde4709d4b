/* The settings that a plan depends on, each changed by itself.  See plan_net.h. */
#include "worker/plan_net.h"

#include "base/node.h"

#include <stdlib.h>

/* What is asked, and whether it is another than what is in force. */
struct row {
    struct ps_net_choice choice;
    enum ps_setting_id setting;
    bool training; /* means nothing for inference */
};
#define ROW(name, change, value, training)                         \
    {                                                              \
        {#name "=" #value, change, value}, PS_SET_##name, training \
    }
static const struct row rows[] = {
    ROW(EXEC_ENABLE_INPLACE, PS_NET_INPLACE, 0, false),
    ROW(EXEC_ENABLE_INPLACE, PS_NET_INPLACE, 1, false),
    ROW(EXEC_MATCH_RANGE, PS_NET_MATCH_RANGE, 0, false),
    ROW(EXEC_MATCH_RANGE, PS_NET_MATCH_RANGE, 1, false),
    ROW(EXEC_MATCH_RANGE, PS_NET_MATCH_RANGE, 16, false),
    ROW(EXEC_NUM_TEMP, PS_NET_NUM_TEMP, 1, false),
    ROW(EXEC_NUM_TEMP, PS_NET_NUM_TEMP, 2, false),
    ROW(EXEC_NUM_TEMP, PS_NET_NUM_TEMP, 4, false),
    ROW(BACKWARD_DO_MIRROR, PS_NET_MIRROR, 0, true),
    ROW(BACKWARD_DO_MIRROR, PS_NET_MIRROR, 1, true),
};
/* Of what is more than one number. */
static const struct ps_net_choice sqrt_choice = {"MEMONGER=sqrt", PS_NET_SQRT, 0};
static const struct ps_net_choice plain_choice = {"MEMONGER off", PS_NET_PLAIN, 0};
static const struct ps_net_choice single_choice = {"bulk off", PS_NET_SINGLE, 0};
static const struct ps_net_choice none_choice = {"a block for each value",
                                                 PS_NET_UNPLANNED, 0};

#define CHOICES_MAX (sizeof(rows) / sizeof(rows[0]) + 4)

static bool worth_asking(const struct ps_net *net, const struct ps_settings *settings,
                         const struct row *row)
{
    bool decides_alone = ps_settings_text(settings, PS_SET_MEMONGER)[0] != '\0';
    bool flag = row->setting == PS_SET_EXEC_ENABLE_INPLACE ||
                row->setting == PS_SET_BACKWARD_DO_MIRROR;
    int64_t now = flag ? ps_settings_bool(settings, row->setting)
                       : ps_settings_int(settings, row->setting);
    if (row->training && (net->options.inference || decides_alone)) {
        return false;
    }
    return now != row->choice.value;
}

static size_t choose(const struct ps_net *net, const struct ps_settings *settings,
                     const struct ps_net_choice *choices[CHOICES_MAX])
{
    size_t count = 0;
    for (size_t i = 0; i < PS_COUNT(rows); i++) {
        if (worth_asking(net, settings, &rows[i])) {
            choices[count++] = &rows[i].choice;
        }
    }
    if (!net->options.inference) {
        bool off = ps_settings_text(settings, PS_SET_MEMONGER)[0] == '\0';
        choices[count++] = off ? &sqrt_choice : &plain_choice;
    }
    choices[count++] = &single_choice;
    choices[count++] = &none_choice;
    return count;
}

enum ps_status ps_net_plan_others(const struct ps_net *net,
                                  struct ps_net_plan **plans_out, size_t *count_out,
                                  struct ps_error *err)
{
    const struct ps_settings *settings = ps_engine_node(net->options.engine)->settings;
    const struct ps_net_choice *choices[CHOICES_MAX];
    size_t count = choose(net, settings, choices);
    struct ps_net_plan *plans = calloc(count, sizeof(plans[0]));
    if (plans == NULL) {
        return PS_ENOMEM;
    }
    for (size_t i = 0; i < count; i++) {
        enum ps_status status = ps_net_plan(net, choices[i], &plans[i], err);
        if (status != PS_OK) {
            free(plans);
            return status;
        }
        ps_net_plan_fini(&plans[i]); /* the figures are enough */
    }
    *plans_out = plans;
    *count_out = count;
    return PS_OK;
}
