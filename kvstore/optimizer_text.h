/* An optimizer from the words a user gives: name and "key=value,key=value".
 * Threads: any; pure. */
#ifndef PENSTOCK_KVSTORE_OPTIMIZER_TEXT_H
#define PENSTOCK_KVSTORE_OPTIMIZER_TEXT_H

#include "kernels/optimizer.h"

/* 'hyper' may be "" or NULL.  Errors: PS_EINVAL, PS_ERANGE naming the word; PS_ENOMEM. */
PS_MUST_CHECK enum ps_status ps_optimizer_from_text(const char *name, const char *hyper,
                                                    struct ps_optimizer *optimizer_out,
                                                    struct ps_error *err);
/* Applies "key=value,key=value"; 'optimizer' is untouched on failure. */
PS_MUST_CHECK enum ps_status ps_optimizer_set_text(struct ps_optimizer *optimizer,
                                                   const char *hyper,
                                                   struct ps_error *err);

#endif
