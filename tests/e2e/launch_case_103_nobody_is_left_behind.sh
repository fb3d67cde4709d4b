# Case 103: Ctrl-C, SIGTERM, a hangup and kill -9 of the launcher: no process is left after 5 s, not even
# grandchildren that went into sessions of their own or that ignore signals.
. "$(dirname "$0")/lib.sh"
make_job
cat >"$work/worker.sh" <<'JOB'
trap '' INT TERM
setsid sleep 1000 &
sh -c 'sleep 1000; true' &
echo ready
sh -c 'sleep 1000; true'
JOB

both_ready() { [ "$(grep -c '^worker/[01]: ready' "$work/out")" -eq 2 ]; }

# stop SIGNAL CODE [supervisor]: ends the launcher, or its supervisor.
stop() {
    rm -f "$work/done"
    launch_background -n 2 -s 1 --same-command -- sh "$work/job.sh"
    wait_until 20 both_ready || fail "the job did not start"
    target=$launcher
    [ "${3:-}" = supervisor ] && target=$(cat "/proc/$launcher/task/$launcher/children")
    # shellcheck disable=SC2086
    kill -"$1" $target
    wait_until 5 nobody_marked || fail "SIG$1 ${3:-}: after 5 s: $(marked | tr '\n' ' ')"
    wait "$launcher" 2>/dev/null
    code=$?
    expect_code "$2" "after SIG$1"
    say "SIG$1 ${3:-launcher}: ok"
}
stop INT 130
stop TERM 143
stop HUP 129
stop KILL 137
stop KILL 137 supervisor

# A second Ctrl-C ends everything at once.
launch_background -n 2 -s 1 --same-command -- sh "$work/job.sh"
wait_until 20 both_ready || fail "the job did not start"
kill -INT "$launcher"
sleep 0.3
kill -INT "$launcher"
wait_until 2 nobody_marked || fail "a second SIGINT did not end the job at once"
wait "$launcher"
code=$?
expect_code 130
ls -d "${TMPDIR:-/tmp}"/penstock-??????/scheduler 2>/dev/null && fail "a socket directory was left"
exit 0
