/* The body of a HELLO: one msgpack map, bounded.  Private to net.  Threads: any; pure. */
#ifndef PENSTOCK_NET_HELLO_H
#define PENSTOCK_NET_HELLO_H

#include "net/net.h"

/* No honest HELLO or error body is longer. */
#define PS_HELLO_BYTES_MAX 4096

/* Gives a buffer with the encoded map.  Errors: PS_ENOMEM. */
PS_MUST_CHECK enum ps_status ps_hello_encode(const struct ps_hello *hello,
                                             struct ps_buf **body_out);
/* Unknown keys are ignored, missing ones keep their "not known" value.  Errors: PS_EPROTO
 * with 'err' naming the key. */
PS_MUST_CHECK enum ps_status ps_hello_decode(const void *data, size_t size,
                                             struct ps_hello *hello_out,
                                             struct ps_error *err);
/* {"error": text} */
PS_MUST_CHECK enum ps_status ps_error_body_encode(const char *text,
                                                  struct ps_buf **body_out);
/* Copies the peer's words to 'text_out' (truncated, printable); false when there are
 * none. */
bool ps_error_body_decode(const void *data, size_t size,
                          char text_out[PS_ERROR_TEXT_BYTES]);
#endif
