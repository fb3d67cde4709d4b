#include "tests/suite/device_suite.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static const char *const no_env[] = {NULL};

static void open_node(struct device_rig *rig, const char *const *settings, bool simulated)
{
    struct ps_error err;
    if (simulated) {
        assert_int_equal(ps_sim_create(1, &rig->sim), PS_OK);
    }
    struct ps_node_options options = {
        .env = no_env, .overrides = settings, .sim = rig->sim};
    if (ps_node_open(&options, &rig->node, &err) != PS_OK) {
        fail_msg("node: %s", err.text);
    }
}

void device_rig_open(struct device_rig *rig, enum device_world world,
                     const char *const *more)
{
    const char *settings[16] = {NULL};
    size_t count = 0;
    while (more != NULL && *more != NULL) {
        assert_true(count + 3 < PS_COUNT(settings));
        settings[count++] = *more++;
    }
    settings[count++] = "LOG=error"; /* the first of a name counts */
    settings[count++] = "SIM_GPUS=2";
    *rig = (struct device_rig){.sim = NULL};
    open_node(rig, settings, world == DEVICE_SIM_WORLD);
    rig->host = device_rig_device(rig, PS_CPU(0));
    rig->a = device_rig_device(rig, world == DEVICE_CPU ? PS_CPU(1) : PS_GPU(0));
    rig->b = device_rig_device(rig, world == DEVICE_CPU ? PS_CPU(2) : PS_GPU(1));
}

void device_rig_close(struct device_rig *rig)
{
    ps_device_close(rig->a);
    ps_device_close(rig->b);
    ps_device_close(rig->host);
    ps_node_close(rig->node);
    if (rig->sim != NULL) {
        ps_sim_destroy(rig->sim);
    }
}

struct ps_device *device_rig_device(struct device_rig *rig, struct ps_context context)
{
    struct ps_device *device = NULL;
    struct ps_error err;
    if (ps_device_open(rig->node, context, &device, &err) != PS_OK) {
        fail_msg("device: %s", err.text);
    }
    return device;
}

void device_rig_refused(const char *const *settings, struct ps_context context,
                        enum ps_status status, const char *text)
{
    struct device_rig rig = {.sim = NULL};
    struct ps_device *device = NULL;
    struct ps_error err = {.status = PS_OK};
    open_node(&rig, settings, false);
    assert_int_equal(ps_device_open(rig.node, context, &device, &err), status);
    assert_string_equal(err.text, text);
    ps_node_close(rig.node);
}

struct ps_stream *device_stream(struct ps_device *device, enum ps_stream_kind kind)
{
    struct ps_stream *stream = NULL;
    assert_int_equal(ps_device_stream_create(device, kind, &stream), PS_OK);
    return stream;
}

struct ps_device_event *device_event(struct ps_device *device)
{
    struct ps_device_event *event = NULL;
    assert_int_equal(ps_device_event_create(device, &event), PS_OK);
    return event;
}

void *device_memory(struct ps_device *device, size_t size)
{
    void *ptr = NULL;
    assert_int_equal(ps_device_alloc(device, size, &ptr), PS_OK);
    return ptr;
}

void device_write(const struct device_rig *rig, struct ps_device *device, void *ptr,
                  const void *data, size_t size)
{
    assert_int_equal(ps_device_copy(device, ptr, rig->host, data, size, NULL), PS_OK);
}

void device_read(const struct device_rig *rig, struct ps_device *device, const void *ptr,
                 void *data, size_t size)
{
    assert_int_equal(ps_device_copy(rig->host, data, device, ptr, size, NULL), PS_OK);
}
