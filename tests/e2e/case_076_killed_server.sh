# Case 76, as far as there is no replica yet: kill -9 of server 1 ends the job in time, with an error that
# names it on every worker.
. "$(dirname "$0")/lib.sh"
need e2e_job
scheduler_by_hand
for rank in 0 1; do
    by_hand server server$rank env DMLC_SERVER_ID=$rank PENSTOCK_HEARTBEAT_MS=200 \
        PENSTOCK_HEARTBEAT_TIMEOUT_MS=2000 "$PENSTOCK" server
    eval "server$rank=$!"
    by_hand worker worker$rank env DMLC_WORKER_ID=$rank PENSTOCK_HEARTBEAT_MS=200 \
        PENSTOCK_HEARTBEAT_TIMEOUT_MS=2000 "$job" 0 "$work/stop"
    eval "worker$rank=$!"
done
running() { cat "$work"/worker?.out >"$work/out" && all_ready; }
wait_until 30 running || fail "the job does not start: $(cat "$work"/*.err)"
# shellcheck disable=SC2154
kill -9 "$server1"
wait_until 20 nobody_marked || fail "after 20 s: $(marked | tr '\n' ' ')"
for name in worker0 worker1 scheduler; do
    eval "pid=\$$name"
    # shellcheck disable=SC2154
    wait "$pid" && fail "$name ended with 0"
    grep -q 'server 1' "$work/$name.err" || fail "$name does not name server 1: $(cat "$work/$name.err")"
done

# Through the launcher.
launch_background -n 2 -s 2 --env PENSTOCK_HEARTBEAT_MS=200 --env PENSTOCK_HEARTBEAT_TIMEOUT_MS=2000 \
    -- "$job" 0 "$work/stop"
wait_until 30 all_ready || fail "the job does not start"
start_clock
# shellcheck disable=SC2046
kill -9 $(sed -n 's/.*server 1 (member [0-9]*, host .*, pid \([0-9]*\)) registered.*/\1/p' "$work/err")
finish
expect_within 12
[ "$code" -ne 0 ] || fail "exit code 0"
expect_nobody
grep -q 'server[ /]1' "$work/err" || fail "server 1 is not named"
