#!/bin/sh
# Planned memory beside the process's peak, for a training step of each network:
#
#   tests/bench/plan_rss.sh [NETWORK:BATCH...]   (resnet-50:16 inception-bn:32 lstm:32)
#   BUILD   the build folder (default build-bench); its target plan_rss is built
#
# For each network: nothing computed again, BACKWARD_DO_MIRROR=1, MEMONGER=sqrt, and budgets of
# 0.8, 0.6, 0.4 and 0.3 of the plain plan.  "planned" is internal + workspace; "expected" adds
# arguments, gradients, auxiliary states and what the process had before; "rss" is what it took;
# "work" is what is computed again, of one forward's.
# Ends with lines "target NAME VALUE <= LIMIT ok" (or "short"); a smaller budget may cost no less work.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
build=${BUILD:-$root/build-bench}
limit=${LIMIT:-170} # seconds of one step
[ -f "$build/CMakeCache.txt" ] ||
    cmake -S "$root" -B "$build" -DCMAKE_BUILD_TYPE=Release >/dev/null
cmake --build "$build" --target plan_rss -j2 >/dev/null
program=$build/tests/bench/plan_rss
unset BACKWARD_DO_MIRROR MXNET_BACKWARD_DO_MIRROR MEMONGER MXNET_MEMONGER

# field NAME LINE
field() {
    printf '%s\n' "$2" | tr ' ' '\n' | sed -n "s/^$1=//p"
}
mib() {
    awk -v b="$1" 'BEGIN {printf "%.1f", b / 1048576}'
}

# row NETWORK BATCH LABEL VARIABLE: $line is what the program said, "" when it was refused
row() {
    if line=$(env "$4" timeout -k 5 "$limit" "$program" "$1" "$2" 2>"$err"); then
        peak=$(field peak "$line")
        [ -n "${plain:-}" ] || plain=$peak
        awk -v label="$3" -v peak="$peak" -v plain="$plain" -v base="$(field base "$line")" \
            -v given="$(($(field argument "$line") + $(field gradient "$line") + $(field auxiliary "$line")))" \
            -v rss="$(field rss "$line")" -v again="$(field mirrored "$line")" \
            -v work="$(field work "$line")" -v ms="$(field step_ms "$line")" 'BEGIN {
            m = 1048576; expected = peak + base + given
            printf "%-22s %9.1f %7.3f %10.1f %9.1f %9.3f %9d %7.3f %8d\n", label, peak / m,
                peak / plain, expected / m, rss / m, rss / expected, again, work, ms }'
    else
        code=$?
        line=
        if [ $code -eq 3 ]; then
            printf '%-22s refused: %s\n' "$3" "$(cat "$err")"
        else
            printf '%-22s failed (%d): %s\n' "$3" "$code" "$(cat "$err")"
            failed=1
        fi
    fi
}

# target NAME VALUE LIMIT
target() {
    awk -v name="$1" -v value="$2" -v limit="$3" 'BEGIN {
        print "target", name, value, "<=", limit, value + 0 <= limit + 0 ? "ok" : "short" }' >>"$targets"
}
of_plain() {
    awk -v part="$1" -v plain="$plain" 'BEGIN {printf "%.3f", part / plain}'
}

err=$(mktemp)
targets=$(mktemp)
trap 'rm -f "$err" "$targets"' EXIT
trap 'exit 130' INT TERM
failed=0
for what in ${*:-resnet-50:16 inception-bn:32 lstm:32}; do
    network=${what%%:*}
    batch=${what##*:}
    plain=
    printf '\n%s, batch %s\n%-22s %9s %7s %10s %9s %9s %9s %7s %8s\n' "$network" "$batch" "" "planned" \
        "of all" "expected" "rss" "of exp." "again" "work" "step ms"
    row "$network" "$batch" plain MEMONGER=
    [ -n "$line" ] || continue
    [ "$network" = resnet-50 ] && target "$network.plain_MiB" "$(mib "$plain")" 1311
    row "$network" "$batch" BACKWARD_DO_MIRROR=1 BACKWARD_DO_MIRROR=1
    [ "$network" = resnet-50 ] && [ -n "$line" ] && target "$network.mirror" "$(of_plain "$peak")" 0.60
    row "$network" "$batch" MEMONGER=sqrt MEMONGER=sqrt
    [ "$network" = resnet-50 ] && [ -n "$line" ] && target "$network.sqrt" "$(of_plain "$peak")" 0.30
    least=0
    for part in 0.8 0.6 0.4 0.3; do
        budget=$(awk -v plain="$plain" -v part="$part" 'BEGIN {printf "%.0f", plain * part}')
        row "$network" "$batch" "MEMONGER=$part of it" "MEMONGER=$budget"
        [ -n "$line" ] || continue
        target "$network.budget_$part" "$(of_plain "$peak")" "$part"
        target "$network.budget_$part.least_work" "$least" "$(field work "$line")"
        least=$(field work "$line")
    done
done
echo
cat "$targets"
exit $failed
