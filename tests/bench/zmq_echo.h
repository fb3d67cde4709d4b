/* The store's peer: a raw ZeroMQ echo in a process of its own.
 *
 * A DEALER sends a head of 64 bytes and a payload that is the caller's own memory
 * (zmq_msg_init_data); the ROUTER sends the very messages back that it received.  No
 * payload is copied by either program, so what is measured is the library and the kernel:
 * the payload goes up once and comes down once. */
#ifndef PENSTOCK_TESTS_BENCH_ZMQ_ECHO_H
#define PENSTOCK_TESTS_BENCH_ZMQ_ECHO_H

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

struct zmq_echo;

/* Forks the echoing process: call it before the process has threads.  'url' may be
 * "tcp://127.0.0.1:*" or "ipc://PATH" (PATH is removed at the end).  Dials it. */
PS_MUST_CHECK enum ps_status zmq_echo_start(const char *url, struct zmq_echo **echo_out);
void zmq_echo_stop(struct zmq_echo *echo);

/* Sends 'bytes' of 'data' in pieces of at most 'piece_bytes', all at once, 'times' times
 * over, and waits until everything came back; the payloads received are dropped, or
 * copied to 'place' when it is not NULL.  PS_EPROTO: what came back is not what went. */
PS_MUST_CHECK enum ps_status zmq_echo_trip(struct zmq_echo *echo, void *data,
                                           size_t bytes, size_t piece_bytes, size_t times,
                                           void *place);

#endif
