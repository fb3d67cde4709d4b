#!/bin/sh
# What the profiler costs while it is off: instructions (callgrind) of the engine's benchmark with the hooks
# built in, against a build without them (PENSTOCK_WITHOUT_TRACE).   tests/bench/trace_cost.sh
#
# One core for all threads, so that nothing polls and the counts repeat.  Rows "R,trace,ENGINE,WORKLOAD,metric,value",
# then "target NAME VALUE <= 2 ok" in percent, or "short"; and what a recorded event costs while it is on.
# Builds in build-trace-cost-*; WORKLOADS names others than chain, net50 and rand100.  Exits 1 when it is short.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
command -v valgrind >/dev/null || {
    echo "skipped: valgrind is not installed"
    exit 77
}
work=$(mktemp -d "${TMPDIR:-/tmp}/penstock-cost-XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
generator=$(command -v ninja >/dev/null && echo Ninja || echo "Unix Makefiles")
for variant in with without; do
    flags=
    [ $variant = without ] && flags=-DPENSTOCK_WITHOUT_TRACE
    cmake -G "$generator" -S "$root" -B "$root/build-trace-cost-$variant" -DCMAKE_BUILD_TYPE=Release "-DCMAKE_C_FLAGS=$flags" \
        >"$work/log" 2>&1 &&
        cmake --build "$root/build-trace-cost-$variant" --target engine_bench trace_bench -j 2 >"$work/log" 2>&1 || {
        tail -n 20 "$work/log" >&2
        exit 1
    }
done
core=$(taskset -cp $$ | sed 's/.*: *\([0-9]*\).*/\1/')
# instructions VARIANT ENGINE WORKLOAD: the least of three runs, and long ones, as threads that wait differ from
# run to run (2 % in 10,000 operations)
instructions() {
    reps=0
    case $3 in rand*) reps=5 ;; esac
    for _ in 1 2 3; do
        taskset -c "$core" timeout 170 valgrind --tool=callgrind --callgrind-out-file="$work/out" \
            "$root/build-trace-cost-$1/tests/bench/engine_bench" -r "$reps" -e "$2" "$3" >"$work/log" 2>&1 || {
            tail -n 20 "$work/log" >&2
            exit 1
        }
        sed -n 's/.*Collected : *\([0-9]*\).*/\1/p' "$work/log"
        [ "$2" = 0 ] && break # one thread: always the same
    done | sort -n | head -n 1
}
bad=0
for engine in 0 3; do
    [ $engine = 0 ] && name=NaiveEngine || name=ThreadedEnginePerDevice
    for workload in ${WORKLOADS:-chain net50 rand100}; do
        with=$(instructions with $engine "$workload")
        without=$(instructions without $engine "$workload")
        echo "R,trace,$name,$workload,instructions_with,$with"
        echo "R,trace,$name,$workload,instructions_without,$without"
        awk -v name="$name-$workload" -v a="$with" -v b="$without" 'BEGIN {
            percent = 100 * (a - b) / b
            printf "target trace-off-%s %.2f <= 2 %s\n", name, percent, percent <= 2 ? "ok" : "short"
            exit percent > 2 }' || bad=1
    done
done
"$root/build-trace-cost-with/tests/bench/trace_bench"
exit $bad
