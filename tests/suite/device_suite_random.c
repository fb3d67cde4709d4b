/* The suite of devices: random programs of copies on several streams.  Every copy waits,
 * through events, for those that touched its buffers before; so the bytes must be those
 * of the copies done one by one, in whatever order the streams are synced. */
#include "tests/suite/device_suite.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/rng.h"

#include <string.h>

enum { BUFFERS = 8, STREAMS = 5, COPIES = 120, PROGRAMS = 20, SIZE = 32 };

struct buffer {
    struct ps_device *device; /* in turns: a, b, the host */
    char *ptr;
    char expected[SIZE];
    int writer;           /* the copy that wrote it last; -1: none */
    bool readers[COPIES]; /* copies that read it since */
};

struct program {
    const struct device_rig *rig;
    struct ps_rng rng;
    struct buffer buffers[BUFFERS];
    struct ps_stream *streams[STREAMS];
    struct ps_device_event *events[COPIES];
    int on_stream[COPIES]; /* the stream of each copy */
};

static size_t below(struct program *program, size_t n)
{
    return (size_t)ps_rng_below(&program->rng, n);
}

static void wait_for(struct program *program, size_t stream, int copy)
{
    if (copy >= 0 && program->on_stream[copy] != (int)stream) {
        assert_int_equal(ps_stream_wait(program->streams[stream], program->events[copy]),
                         PS_OK);
    }
}

/* One random copy between two buffers, one of them on the stream's device. */
static void submit(struct program *program, int copy)
{
    size_t stream = below(program, STREAMS), from, to;
    struct ps_device *device = ps_stream_device(program->streams[stream]);
    do {
        from = below(program, BUFFERS);
        to = below(program, BUFFERS);
    } while (from == to || (program->buffers[from].device != device &&
                            program->buffers[to].device != device));
    struct buffer *source = &program->buffers[from], *target = &program->buffers[to];
    wait_for(program, stream, source->writer);
    wait_for(program, stream, target->writer);
    for (int i = 0; i < copy; i++) {
        if (target->readers[i]) {
            wait_for(program, stream, i);
        }
    }
    size_t offset = below(program, SIZE), size = 1 + below(program, SIZE - offset);
    assert_int_equal(ps_device_copy(target->device, target->ptr + offset, source->device,
                                    source->ptr + offset, size, program->streams[stream]),
                     PS_OK);
    program->events[copy] = device_event(device);
    assert_int_equal(ps_event_record(program->events[copy], program->streams[stream]),
                     PS_OK);
    program->on_stream[copy] = (int)stream;
    memcpy(target->expected + offset, source->expected + offset, size);
    memset(target->readers, 0, sizeof(target->readers));
    target->writer = copy;
    source->readers[copy] = true;
}

static void begin(struct program *program)
{
    const struct device_rig *rig = program->rig;
    struct ps_device *const devices[] = {rig->a, rig->b, rig->host};
    for (size_t i = 0; i < BUFFERS; i++) {
        struct buffer *buffer = &program->buffers[i];
        *buffer = (struct buffer){.device = devices[i % 3], .writer = -1};
        buffer->ptr = device_memory(buffer->device, SIZE);
        memset(buffer->expected, (int)i + 1, SIZE);
        device_write(rig, buffer->device, buffer->ptr, buffer->expected, SIZE);
    }
    for (size_t i = 0; i < STREAMS; i++) {
        program->streams[i] = device_stream(devices[i % 2], PS_STREAM_COPY);
    }
}

/* Syncs the streams, the last first or the first first. */
static void finish(struct program *program)
{
    bool backwards = below(program, 2) == 1;
    for (size_t i = 0; i < STREAMS; i++) {
        assert_int_equal(
            ps_stream_sync(program->streams[backwards ? STREAMS - 1 - i : i]), PS_OK);
    }
    for (size_t i = 0; i < COPIES; i++) {
        assert_true(ps_event_done(program->events[i]));
        ps_event_destroy(program->events[i]);
    }
    for (size_t i = 0; i < BUFFERS; i++) {
        struct buffer *buffer = &program->buffers[i];
        char out[SIZE];
        device_read(program->rig, buffer->device, buffer->ptr, out, SIZE);
        assert_memory_equal(out, buffer->expected, SIZE);
        ps_device_free(buffer->device, buffer->ptr, SIZE);
    }
    for (size_t i = 0; i < STREAMS; i++) {
        ps_stream_destroy(program->streams[i]);
    }
}

void random_programs_of_streams_do_what_their_order_says(void **state)
{
    static struct program program;
    program.rig = *state;
    ps_rng_init(&program.rng, 77);
    for (int i = 0; i < PROGRAMS; i++) {
        begin(&program);
        for (int copy = 0; copy < COPIES; copy++) {
            submit(&program, copy);
            if (copy == COPIES / 2) { /* somebody looks in between */
                assert_int_equal(
                    ps_event_sync(program.events[below(&program, COPIES / 2)]), PS_OK);
            }
        }
        finish(&program);
    }
}
