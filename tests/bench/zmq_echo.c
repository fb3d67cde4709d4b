/* The raw echo; see zmq_echo.h. */
#include "tests/bench/zmq_echo.h"

#include "base/mem.h"
#include "base/util.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zmq.h>

#define HEAD_BYTES 64 /* as long as ours */
#define URL_BYTES 256
#define ANSWER_MS 30000

struct zmq_echo {
    pid_t pid;
    void *context, *socket;
    char url[URL_BYTES];
};

/* ---- the echoing process ---- */

static int serve(int report, const char *bind)
{
    char url[URL_BYTES] = {0};
    size_t size = sizeof(url);
    int none = 0;
    void *context = zmq_ctx_new(), *socket = zmq_socket(context, ZMQ_ROUTER);
    zmq_msg_t part;
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    ps_mem_keep_freed(); /* as our server does: the peer shall not lose by malloc */
    if (socket == NULL || zmq_setsockopt(socket, ZMQ_SNDHWM, &none, sizeof(none)) != 0 ||
        zmq_setsockopt(socket, ZMQ_RCVHWM, &none, sizeof(none)) != 0 ||
        zmq_bind(socket, bind) != 0 ||
        zmq_getsockopt(socket, ZMQ_LAST_ENDPOINT, url, &size) != 0 ||
        write(report, url, sizeof(url)) != (ssize_t)sizeof(url)) {
        return 1;
    }
    for (;;) { /* until killed */
        (void)zmq_msg_init(&part);
        if (zmq_msg_recv(&part, socket, 0) >= 0) {
            (void)zmq_msg_send(&part, socket, zmq_msg_more(&part) ? ZMQ_SNDMORE : 0);
        }
    }
}

enum ps_status zmq_echo_start(const char *url, struct zmq_echo **echo_out)
{
    int ends[2], none = 0, limit_ms = ANSWER_MS;
    enum ps_status status = PS_EIO;
    struct zmq_echo *echo = calloc(1, sizeof(*echo));
    if (echo == NULL) {
        return PS_ENOMEM;
    }
    if (pipe(ends) != 0) {
        free(echo);
        return PS_EIO;
    }
    echo->pid = fork();
    if (echo->pid == 0) {
        (void)close(ends[0]);
        _exit(serve(ends[1], url));
    }
    (void)close(ends[1]);
    if (echo->pid > 0 &&
        read(ends[0], echo->url, sizeof(echo->url)) == (ssize_t)sizeof(echo->url)) {
        echo->context = zmq_ctx_new();
        echo->socket = zmq_socket(echo->context, ZMQ_DEALER);
        if (echo->socket != NULL &&
            zmq_setsockopt(echo->socket, ZMQ_LINGER, &none, sizeof(none)) == 0 &&
            zmq_setsockopt(echo->socket, ZMQ_SNDHWM, &none, sizeof(none)) == 0 &&
            zmq_setsockopt(echo->socket, ZMQ_RCVHWM, &none, sizeof(none)) == 0 &&
            zmq_setsockopt(echo->socket, ZMQ_RCVTIMEO, &limit_ms, sizeof(limit_ms)) ==
                0 &&
            zmq_connect(echo->socket, echo->url) == 0) {
            status = PS_OK;
        }
    }
    (void)close(ends[0]);
    if (status == PS_OK) {
        *echo_out = echo;
    } else {
        zmq_echo_stop(echo);
    }
    return status;
}

void zmq_echo_stop(struct zmq_echo *echo)
{
    if (echo == NULL) {
        return;
    }
    if (echo->socket != NULL) {
        (void)zmq_close(echo->socket);
    }
    if (echo->context != NULL) {
        (void)zmq_ctx_term(echo->context);
    }
    if (echo->pid > 0) {
        (void)kill(echo->pid, SIGKILL);
        (void)waitpid(echo->pid, NULL, 0);
    }
    if (strncmp(echo->url, "ipc://", 6) == 0) {
        (void)unlink(echo->url + 6);
    }
    free(echo);
}

/* ---- the measuring process ---- */

static void keep(void *data, void *hint)
{
    PS_UNUSED(data);
    PS_UNUSED(hint);
}

static bool send_piece(void *socket, void *data, size_t bytes)
{
    static const char head[HEAD_BYTES];
    zmq_msg_t part;
    if (zmq_send(socket, head, sizeof(head), ZMQ_SNDMORE) < 0 ||
        zmq_msg_init_data(&part, data, bytes, keep, NULL) != 0) {
        return false;
    }
    return zmq_msg_send(&part, socket, 0) >= 0;
}

static bool receive_piece(void *socket, size_t bytes, void *place)
{
    zmq_msg_t head, part;
    (void)zmq_msg_init(&head);
    (void)zmq_msg_init(&part);
    bool good = zmq_msg_recv(&head, socket, 0) == HEAD_BYTES && zmq_msg_more(&head) &&
                zmq_msg_recv(&part, socket, 0) == (int)bytes && !zmq_msg_more(&part);
    if (good && place != NULL) {
        memcpy(place, zmq_msg_data(&part), bytes);
    }
    (void)zmq_msg_close(&head);
    (void)zmq_msg_close(&part);
    return good;
}

enum ps_status zmq_echo_trip(struct zmq_echo *echo, void *data, size_t bytes,
                             size_t piece_bytes, size_t times, void *place)
{
    for (size_t i = 0; i < times; i++) {
        for (size_t at = 0; at < bytes; at += piece_bytes) {
            size_t piece = PS_MIN(piece_bytes, bytes - at);
            if (!send_piece(echo->socket, (char *)data + at, piece)) {
                return PS_EPROTO;
            }
        }
    }
    for (size_t i = 0; i < times; i++) {
        for (size_t at = 0; at < bytes; at += piece_bytes) {
            size_t piece = PS_MIN(piece_bytes, bytes - at);
            if (!receive_piece(echo->socket, piece,
                               place == NULL ? NULL : (char *)place + at)) {
                return PS_EPROTO;
            }
        }
    }
    return PS_OK;
}
