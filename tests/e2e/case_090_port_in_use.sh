# Case 90: the scheduler's port is taken: the address and who has it, and an exit code of its own, by hand
# and through the launcher.
. "$(dirname "$0")/lib.sh"
scheduler_by_hand # holds a port
port=${root##*:}
DMLC_ROLE=scheduler DMLC_NUM_WORKER=1 DMLC_NUM_SERVER=1 DMLC_PS_ROOT_URI=127.0.0.1 DMLC_PS_ROOT_PORT=$port \
    timeout 20 "$PENSTOCK" scheduler >"$work/out" 2>"$work/err"
code=$?
expect_code 69
grep -q "127.0.0.1:$port.*in use.*pid $scheduler" "$work/err" || fail "address and pid are not named"
launch -n 1 -s 1 --port "$port" -- true
expect_code 69
expect_within 10
expect_in err "$port"
kill "$scheduler"
wait_until 10 nobody_marked || fail "a scheduler that nobody joined does not end on a signal"
