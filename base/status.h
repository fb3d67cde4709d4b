/* Every way a Penstock call can end: one X-macro, so that code and text cannot drift.
 *
 * Fallible functions return enum ps_status and are PS_MUST_CHECK.  0 is success, errors
 * are negative.  The first function that detects a fault logs it once, with ids; callers
 * forward it with PS_TRY or PS_TRY_GOTO.  Outputs are written only on success. Threads:
 * any. */
#ifndef PENSTOCK_BASE_STATUS_H
#define PENSTOCK_BASE_STATUS_H

#define PS_STATUS_MAP(X)                                \
    X(PS_OK, 0, "success")                              \
    X(PS_EINVAL, -1, "invalid argument")                \
    X(PS_ENOMEM, -2, "out of memory")                   \
    X(PS_ENOENT, -3, "not found")                       \
    X(PS_EEXIST, -4, "already exists")                  \
    X(PS_EAGAIN, -5, "budget spent, try again later")   \
    X(PS_ETIMEDOUT, -6, "deadline passed")              \
    X(PS_ECANCELED, -7, "canceled")                     \
    X(PS_EIO, -8, "input/output error")                 \
    X(PS_EPROTO, -9, "malformed message")               \
    X(PS_ESHAPE, -10, "shape mismatch")                 \
    X(PS_EDTYPE, -11, "dtype mismatch")                 \
    X(PS_ERANGE, -12, "value out of range")             \
    X(PS_EADDR, -13, "bad address")                     \
    X(PS_EINUSE, -14, "address in use")                 \
    X(PS_EPERM, -15, "not permitted")                   \
    X(PS_EPEER, -16, "peer lost")                       \
    X(PS_ESTALE, -17, "old epoch")                      \
    X(PS_EABORT, -18, "aborted by a member of the job") \
    X(PS_ENOTREADY, -19, "not ready")                   \
    X(PS_EUNSUPPORTED, -20, "not supported")            \
    X(PS_EFORK, -21, "not usable after fork")           \
    X(PS_ECLOSED, -22, "closed")                        \
    X(PS_EMISMATCH, -23, "members disagree")            \
    X(PS_EFULL, -24, "full")                            \
    X(PS_ECORRUPT, -25, "corrupt file")                 \
    X(PS_EFAULT, -26, "injected fault")                 \
    X(PS_EINTERNAL, -27, "internal error")

enum ps_status {
#define PS_STATUS_ENUM(name, code, text) name = code,
    PS_STATUS_MAP(PS_STATUS_ENUM)
#undef PS_STATUS_ENUM
};

#define PS_MUST_CHECK __attribute__((warn_unused_result))

/* "PS_EINVAL" and "invalid argument"; a constant string for unknown codes too. */
const char *ps_status_name(enum ps_status status);
const char *ps_status_text(enum ps_status status);

/* Forwards a failure to the caller; for functions that hold nothing yet. */
#define PS_TRY(expr)                            \
    do {                                        \
        enum ps_status ps_try_status_ = (expr); \
        if (ps_try_status_ != PS_OK) {          \
            return ps_try_status_;              \
        }                                       \
    } while (0)

/* Stores the failure in 'var' and jumps to the unwind label; for functions that hold
 * things. */
#define PS_TRY_GOTO(var, expr, label) \
    do {                              \
        (var) = (expr);               \
        if ((var) != PS_OK) {         \
            goto label;               \
        }                             \
    } while (0)

/* A status with the words for a person.  Embedded by value in requests, ops and options;
 * never points anywhere. */
#define PS_ERROR_TEXT_BYTES 256
struct ps_error {
    enum ps_status status;
    char text[PS_ERROR_TEXT_BYTES]; /* NUL-terminated, truncated, "" when status is PS_OK
                                     */
};

/* Fills 'err' (may be NULL) and returns 'status', so that a detector can write
 * `return ps_error_set(err, PS_EINVAL, "lr %g: must be >= 0", lr);` */
enum ps_status ps_error_set(struct ps_error *err, enum ps_status status, const char *fmt,
                            ...) __attribute__((format(printf, 3, 4)));

#endif
