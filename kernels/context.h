/* The inside of struct ps_kernels: BLAS entry points, oneDNN engine, thread count.
 * Private to the room.  Threads: constant after ps_kernels_create. */
#ifndef PENSTOCK_KERNELS_CONTEXT_H
#define PENSTOCK_KERNELS_CONTEXT_H

#include "kernels/blas.h"
#include "kernels/kernels.h"

struct ps_onednn;

struct ps_kernels {
    struct ps_log *log;
    struct ps_blas blas;
    struct ps_onednn *onednn; /* NULL: not built in, or turned off */
    bool onednn_always; /* also where our own loop is faster; tests and measurements */
    int threads;
};

#endif
