/* A labelled set of images in memory, and who reads which samples of it.
 *
 * The job's batch t is samples [t*n*b, (t+1)*n*b) of the epoch's shuffle, and rank r of n
 * takes its r-th slice of b (DESIGN.md 6), so the order of samples does not depend on the
 * number of workers as long as n*b stays the same.  Samples after the last whole batch of
 * the job wait for another epoch's shuffle. Threads: read-only after load, any. */
#ifndef PENSTOCK_WORKER_DATASET_H
#define PENSTOCK_WORKER_DATASET_H

#include "base/fs.h"
#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

struct ps_dataset {
    uint8_t *images; /* [count, rows, columns] */
    uint8_t *labels; /* [count], below classes */
    uint32_t count, rows, columns, classes;
};

enum ps_dataset_part { PS_DATASET_TRAIN, PS_DATASET_TEST };

/* 'name': "fashion-mnist" (where Debian's package dataset-fashion-mnist puts it), or a
 * folder ("mnist" is the one of that name) that holds the four IDX files under their
 * usual names, gzipped or not. Errors: PS_ENOENT naming what was looked for and, for
 * fashion-mnist, the package; PS_ECORRUPT. */
PS_MUST_CHECK enum ps_status ps_dataset_load(struct ps_fs *fs, const char *name,
                                             enum ps_dataset_part part,
                                             struct ps_dataset *dataset_out,
                                             struct ps_error *err);
void ps_dataset_fini(struct ps_dataset *dataset);

/* The shuffle of one epoch: order[0..count) is a permutation that depends on seed and
 * epoch only. */
void ps_dataset_shuffle(uint32_t *order, uint32_t count, uint64_t seed, uint64_t epoch);
/* Whole batches of the job in an epoch: count / (workers * batch). */
uint32_t ps_dataset_batches(uint32_t count, uint32_t workers, uint32_t batch);

#endif
