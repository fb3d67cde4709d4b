# docs/tour.c against this build's libpenstock: through the launcher on both transports, in every role,
# and by hand under DMLC_* variables.
. "$(dirname "$0")/lib.sh"
tour=$BUILD/tests/unit/api/tour
[ -x "$tour" ] || skip "this build has no tour"

both_say_so() {
    for rank in 0 1; do
        grep -q "worker $rank of 2: error 0.000" "$1" || fail "worker $rank did not get there"
    done
}
for options in "" "--same-command" "--transport ipc"; do
    # shellcheck disable=SC2086
    launch -n 2 -s 2 $options -- "$tour"
    expect_code 0 "$options"
    both_say_so "$work/out"
    expect_nobody
done

scheduler_by_hand
by_hand server server0 "$PENSTOCK" server
servers_=$!
by_hand server server1 "$tour" # it becomes what DMLC_ROLE says
servers_="$servers_ $!"
by_hand worker worker0 "$tour"
workers_=$!
by_hand worker worker1 "$tour"
workers_="$workers_ $!"
for pid in $workers_ $servers_ $scheduler; do
    wait "$pid" || fail "process $pid of the job by hand: exit code $?, $(cat "$work"/*.err)"
done
cat "$work/worker0.out" "$work/worker1.out" >"$work/out"
both_say_so "$work/out"
expect_nobody
