# Case 75: kill -9 of worker 1 in the middle of the job: everybody else ends in time, not with 0, and
# says who was lost.
. "$(dirname "$0")/lib.sh"
need e2e_job
launch_background -n 3 -s 2 --log-dir "$work/log" --env PENSTOCK_HEARTBEAT_MS=200 \
    --env PENSTOCK_HEARTBEAT_TIMEOUT_MS=2000 -- "$job" 0 "$work/stop"
three_ready() { all_ready 3; }
wait_until 30 three_ready || fail "the job does not start"
start_clock
kill -9 "$(worker_pid 1)" || fail "no worker 1"
finish
expect_within 12
expect_code 137 "as the process that failed first"
expect_nobody
grep -q 'worker[ /]1' "$work/err" || fail "the launcher does not name worker 1"

# Without a launcher to tell: the members find out by themselves.
workers=3
scheduler_by_hand
for name in server0 server1; do
    by_hand server $name env PENSTOCK_HEARTBEAT_MS=200 PENSTOCK_HEARTBEAT_TIMEOUT_MS=2000 "$PENSTOCK" server
    eval "pid_$name=$!"
done
for rank in 0 1 2; do
    by_hand worker worker$rank env DMLC_WORKER_ID=$rank PENSTOCK_HEARTBEAT_MS=200 \
        PENSTOCK_HEARTBEAT_TIMEOUT_MS=2000 "$job" 0 "$work/stop"
    eval "pid_worker$rank=$!"
done
running() { cat "$work"/worker?.out >"$work/out" && three_ready; }
wait_until 30 running || fail "the job by hand does not start: $(cat "$work"/*.err)"
start_clock
kill -9 "$(worker_pid 1)"
wait_until 20 nobody_marked || fail "after 20 s: $(marked | tr '\n' ' ')"
for name in worker0 worker2 server0 server1 scheduler; do
    eval "pid=\${pid_$name:-$scheduler}"
    wait "$pid" && fail "$name ended with 0"
    grep -q 'worker 1' "$work/$name.err" || fail "$name does not name worker 1: $(cat "$work/$name.err")"
done
exit 0
