# Case 110: when the workers of a real job have finished, servers and scheduler end with 0 by themselves,
# within 5 s.
. "$(dirname "$0")/lib.sh"
need e2e_job
scheduler_by_hand
pids=$scheduler
for rank in 0 1; do
    by_hand server server$rank "$PENSTOCK" server
    pids="$pids $!"
done
by_hand worker worker0 "$job" 10
first=$!
by_hand worker worker1 "$job" 10
second=$!
wait "$first" || fail "worker 0: exit code $?"
wait "$second" || fail "worker 1: exit code $?"
start_clock
for pid in $pids; do
    wait "$pid" || fail "exit code $? of $pid: $(cat "$work"/*.err)"
done
took=$((($(date +%s%N) - began) / 1000000000))
expect_within 5
expect_nobody
