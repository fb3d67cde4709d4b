/* What a person and their log parsers see of a training: lines in MXNet's shape, a
 * progress bar on a terminal, a metrics file with one JSON object a line. Threads: the
 * trainer's. */
#ifndef PENSTOCK_WORKER_REPORT_H
#define PENSTOCK_WORKER_REPORT_H

#include "base/node.h"

struct ps_report;

struct ps_report_options {
    struct ps_node *node;     /* keeps a borrow */
    const char *metrics_path; /* NULL: none; created empty at once, unless 'resumed' */
    bool resumed;             /* the file keeps the lines of the epochs before */
    bool first;               /* the worker that speaks for the job (rank 0) */
    bool progress_bar;        /* draws to stderr when that is a terminal */
};

/* One finished epoch of the whole job. */
struct ps_epoch_result {
    int64_t epoch;
    double samples, seconds;
    double train_accuracy, loss; /* loss: mean over samples */
    double test_accuracy;        /* < 0: not measured */
};

PS_MUST_CHECK enum ps_status ps_report_open(const struct ps_report_options *options,
                                            struct ps_report **report_out,
                                            struct ps_error *err);
void ps_report_close(struct ps_report *report); /* NULL is fine */
/* "Epoch[0] Batch [20] Speed: 1234.50 samples/sec accuracy=0.812500" */
void ps_report_batch(struct ps_report *report, int64_t epoch, int64_t batch,
                     double samples_per_s, double accuracy);
/* Draws the bar; cheap when there is none. */
void ps_report_progress(struct ps_report *report, int64_t epoch, int64_t batch,
                        int64_t batches);
/* "Epoch[0] Train-accuracy=...", "Epoch[0] Time cost=...", "Epoch[0]
 * Validation-accuracy=..." and the metrics line. */
PS_MUST_CHECK enum ps_status ps_report_epoch(struct ps_report *report,
                                             const struct ps_epoch_result *result,
                                             struct ps_error *err);

#endif
