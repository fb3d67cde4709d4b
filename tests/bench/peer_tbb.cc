// The peer of engine_bench -c: the same workloads as a flow graph of oneTBB's
// continue_nodes, built once and run again and again.
//
//   peer_tbb [-v] [-t THREADS] [-r REPS] [WORKLOAD ...]
//
// The graph holds the workload's step; one repetition runs it as often as engine_bench
// replays it, and waits for each run, since a flow graph cannot have two under way.
// Rows: R,engine,tbb,THREADS,WORKLOAD,TASKS,BUILD_NS,TOTAL_NS   (per task)
#include <oneapi/tbb/flow_graph.h>
#include <oneapi/tbb/global_control.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

extern "C" {
#include "tests/bench/workload.h"
}

namespace
{

using tbb::flow::continue_msg;
using node = tbb::flow::continue_node<continue_msg>;

struct options {
    bool verify = false;
    int threads = 2;
    int reps = 5;
};

double now_ns()
{
    using clock = std::chrono::steady_clock;
    return std::chrono::duration<double, std::nano>(clock::now().time_since_epoch())
        .count();
}

// A task's direct predecessors: the last writer of what it touches, and for what it
// writes the readers since.
class edge_finder
{
  public:
    explicit edge_finder(std::size_t var_count)
        : last_writer_(var_count, none), readers_(var_count)
    {
    }

    std::vector<std::size_t> add(std::size_t number, const workload_task &task)
    {
        std::vector<std::size_t> before;
        for (std::size_t k = 0; k < std::size_t(task.write_count) + task.read_count;
             k++) {
            const std::size_t var = task.vars[k];
            const bool writes = k < task.write_count;
            if (writes && !readers_[var].empty()) {
                before.insert(before.end(), readers_[var].begin(), readers_[var].end());
            } else if (last_writer_[var] != none) {
                before.push_back(last_writer_[var]);
            }
        }
        for (std::size_t k = 0; k < std::size_t(task.write_count) + task.read_count;
             k++) {
            const std::size_t var = task.vars[k];
            if (k < task.write_count) {
                last_writer_[var] = number;
                readers_[var].clear();
            } else {
                readers_[var].push_back(number);
            }
        }
        std::sort(before.begin(), before.end());
        before.erase(std::unique(before.begin(), before.end()), before.end());
        return before;
    }

  private:
    static constexpr std::size_t none = ~std::size_t(0);
    std::vector<std::size_t> last_writer_;
    std::vector<std::vector<std::size_t>> readers_;
};

class peer
{
  public:
    peer(const workload &work, const options &opts)
        : work_(work), opts_(opts), values_(work.var_count)
    {
        const double begin = now_ns();
        edge_finder edges(work.var_count);
        std::uint64_t *values = values_.data();
        const bool verify = opts.verify;
        for (std::size_t i = 0; i < work.step_tasks; i++) {
            const workload_task *task = &work.tasks[i];
            nodes_.push_back(std::make_unique<node>(graph_, [=](const continue_msg &) {
                if (verify) {
                    workload_apply(task, values);
                }
            }));
            const std::vector<std::size_t> before = edges.add(i, *task);
            for (const std::size_t from : before) {
                make_edge(*nodes_[from], *nodes_[i]);
            }
            if (before.empty()) {
                roots_.push_back(i);
            }
        }
        build_ns_ = now_ns() - begin;
    }

    bool repeat()
    {
        const std::size_t runs = workload_runs(&work_, opts_.verify);
        const std::size_t tasks = runs * work_.step_tasks;
        for (int rep = 0; rep <= opts_.reps; rep++) {
            std::fill(values_.begin(), values_.end(), 0);
            const double begin = now_ns();
            for (std::size_t run = 0; run < runs; run++) {
                for (const std::size_t root : roots_) {
                    nodes_[root]->try_put(continue_msg());
                }
                graph_.wait_for_all();
            }
            const double end = now_ns();
            if (opts_.verify) {
                const bool same = workload_hash(values_.data(), values_.size()) ==
                                  workload_expected(&work_);
                std::printf("verify %s %s\n", work_.name, same ? "ok" : "FAILED");
                if (!same) {
                    return false;
                }
            } else if (rep > 0) {
                std::printf("R,engine,tbb,%d,%s,%zu,%.1f,%.1f\n", opts_.threads,
                            work_.name, tasks, build_ns_ / double(work_.step_tasks),
                            (end - begin) / double(tasks));
            }
        }
        return true;
    }

  private:
    const workload &work_;
    const options opts_;
    std::vector<std::uint64_t> values_;
    tbb::flow::graph graph_;
    std::vector<std::unique_ptr<node>> nodes_;
    std::vector<std::size_t> roots_;
    double build_ns_ = 0;
};

bool run_workload(const char *name, const options &opts)
{
    workload work;
    if (workload_create(name, &work) != PS_OK) {
        std::fprintf(stderr, "peer_tbb: no workload %s\n", name);
        return false;
    }
    bool good = false;
    {
        peer one(work, opts);
        good = one.repeat();
    }
    workload_fini(&work);
    return good;
}

} // namespace

int main(int argc, char **argv)
{
    options opts;
    int at = 1;
    for (; at < argc && argv[at][0] == '-'; at++) {
        int *value = std::strcmp(argv[at], "-t") == 0   ? &opts.threads
                     : std::strcmp(argv[at], "-r") == 0 ? &opts.reps
                                                        : nullptr;
        if (std::strcmp(argv[at], "-v") == 0) {
            opts.verify = true;
        } else if (value != nullptr && at + 1 < argc &&
                   std::sscanf(argv[at + 1], "%d", value) == 1 && *value >= 1) {
            at++;
        } else {
            std::fprintf(stderr,
                         "usage: peer_tbb [-v] [-t THREADS] [-r REPS] [WORKLOAD ...]\n");
            return 2;
        }
    }
    tbb::global_control threads(tbb::global_control::max_allowed_parallelism,
                                std::size_t(opts.threads));
    if (at < argc) {
        for (; at < argc; at++) {
            if (!run_workload(argv[at], opts)) {
                return 1;
            }
        }
        return 0;
    }
    for (const char *const *name = workload_names; *name != nullptr; name++) {
        if (!run_workload(*name, opts)) {
            return 1;
        }
    }
    return 0;
}
