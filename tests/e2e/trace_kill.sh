# The trace is valid JSON whenever the process is killed: kill -9 at many moments of a run that records
# all the time, so that it is in the middle of writing more often than not.
. "$(dirname "$0")/lib.sh"
flood=$BUILD/tests/e2e/e2e_trace_flood
[ -x "$flood" ] || skip "this build has no e2e_trace_flood"
cd "$work" || exit 1
killed=0 valid=0
for round in $(seq "${ROUNDS:-12}"); do
    rm -f profile.json profile.json.*.tmp
    E2E_MARK=$self_mark PENSTOCK_PROFILER_AUTOSTART=1 "$flood" >flood.out 2>flood.err &
    pid=$!
    wait_until 10 test -s profile.json || fail "no file: $(cat flood.err)"
    # at moments spread over 0 to 200 ms
    sleep "0.$(printf '%03d' $((round * 37 % 200)))"
    kill -9 "$pid" || fail "it ended by itself: $(cat flood.err)"
    wait "$pid"
    killed=$((killed + 1))
    "$flood" check profile.json >events || fail "round $round: $(cat events)"
    [ "$(cat events)" -gt 0 ] && valid=$((valid + 1))
done
[ "$valid" -gt $((killed / 2)) ] || fail "only $valid of $killed files had events"
say "$killed kills, every file parsed; $(cat events) events in the last one"
