/* Lines, bar and metrics file. */
#include "worker/report.h"

#include "base/str.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define BAR_WIDTH 40
#define BAR_INTERVAL_NS (100 * PS_NS_PER_MS)

struct ps_report {
    struct ps_report_options options;
    struct ps_file *metrics;
    bool bar; /* stderr is a terminal */
    uint64_t bar_next_ns;
};

enum ps_status ps_report_open(const struct ps_report_options *options,
                              struct ps_report **report_out, struct ps_error *err)
{
    struct ps_report *report = calloc(1, sizeof(*report));
    if (report == NULL) {
        return ps_error_set(err, PS_ENOMEM, "report: out of memory");
    }
    report->options = *options;
    report->bar = options->progress_bar && options->first && isatty(STDERR_FILENO) == 1;
    if (options->metrics_path != NULL && options->first) {
        enum ps_status status = ps_fs_open(options->node->fs, options->metrics_path,
                                           options->resumed ? PS_FS_APPEND : PS_FS_CREATE,
                                           &report->metrics, err);
        if (status != PS_OK) {
            free(report);
            return status;
        }
    }
    *report_out = report;
    return PS_OK;
}

void ps_report_close(struct ps_report *report)
{
    if (report != NULL) {
        if (report->metrics != NULL) {
            ps_file_close(report->metrics);
        }
        free(report);
    }
}

static void clear_bar(const struct ps_report *report)
{
    if (report->bar) {
        (void)fprintf(stderr, "\r\033[K");
    }
}

void ps_report_batch(struct ps_report *report, int64_t epoch, int64_t batch,
                     double samples_per_s, double accuracy)
{
    clear_bar(report);
    PS_LOG(report->options.node->log, INFO, WORKER,
           "Epoch[%" PRId64 "] Batch [%" PRId64 "] Speed: %.2f samples/sec accuracy=%f",
           epoch, batch, samples_per_s, accuracy);
}

void ps_report_progress(struct ps_report *report, int64_t epoch, int64_t batch,
                        int64_t batches)
{
    if (!report->bar) {
        return;
    }
    uint64_t now = ps_clock_now_ns(report->options.node->clock);
    if (now < report->bar_next_ns && batch < batches) {
        return;
    }
    report->bar_next_ns = now + BAR_INTERVAL_NS;
    char bar[BAR_WIDTH + 1];
    int64_t full = batches > 0 ? batch * BAR_WIDTH / batches : BAR_WIDTH;
    for (int i = 0; i < BAR_WIDTH; i++) {
        bar[i] = i < full ? '=' : ' ';
    }
    bar[BAR_WIDTH] = '\0';
    (void)fprintf(stderr, "\repoch %" PRId64 " [%s] %" PRId64 "/%" PRId64, epoch, bar,
                  batch, batches);
}

static void say_epoch(const struct ps_report *report, const struct ps_epoch_result *r)
{
    struct ps_log *log = report->options.node->log;
    PS_LOG(log, INFO, WORKER, "Epoch[%" PRId64 "] Train-accuracy=%f", r->epoch,
           r->train_accuracy);
    PS_LOG(log, INFO, WORKER, "Epoch[%" PRId64 "] Time cost=%.3f", r->epoch, r->seconds);
    if (r->test_accuracy >= 0) {
        PS_LOG(log, INFO, WORKER, "Epoch[%" PRId64 "] Validation-accuracy=%f", r->epoch,
               r->test_accuracy);
    }
}

enum ps_status ps_report_epoch(struct ps_report *report, const struct ps_epoch_result *r,
                               struct ps_error *err)
{
    clear_bar(report);
    if (!report->options.first) {
        return PS_OK;
    }
    say_epoch(report, r);
    if (report->metrics == NULL) {
        return PS_OK;
    }
    struct ps_str line = {0};
    ps_str_printf(
        &line,
        "{\"epoch\": %" PRId64 ", \"samples\": %.0f, \"seconds\": %.3f, "
        "\"samples_per_s\": %.1f, \"train_accuracy\": %.6f, \"test_accuracy\": ",
        r->epoch, r->samples, r->seconds, r->seconds > 0 ? r->samples / r->seconds : 0.0,
        r->train_accuracy);
    if (r->test_accuracy >= 0) {
        ps_str_printf(&line, "%.6f", r->test_accuracy);
    } else {
        ps_str_printf(&line, "null");
    }
    if (isfinite(r->loss)) { /* JSON has no word for what a diverged training reaches */
        ps_str_printf(&line, ", \"loss\": %.6f}\n", r->loss);
    } else {
        ps_str_printf(&line, ", \"loss\": null}\n");
    }
    enum ps_status status =
        line.failed ? PS_ENOMEM : ps_file_write(report->metrics, line.data, line.size);
    ps_str_fini(&line);
    return status == PS_OK
               ? PS_OK
               : ps_error_set(err, status, "metrics file %s: %s",
                              report->options.metrics_path, ps_status_text(status));
}
