# `penstock status` of a job started by hand: before it is complete, while it runs, and with --placement;
# then the job ends and there is nobody to ask.
. "$(dirname "$0")/lib.sh"
need e2e_job e2e_json

# value PATH: of the last status.
value() { "$json" "$1" <"$work/status" 2>>"$work/err" || fail "no $1 in $(cat "$work/status")"; }
ask() { status "$@" >"$work/status" 2>"$work/err" || fail "status $*"; }

scheduler_by_hand
by_hand server server0 "$PENSTOCK" server
by_hand server server1 "$PENSTOCK" server
two_members() { ask --json && [ "$(value "members.#")" -eq 2 ]; }
wait_until 20 two_members || fail "the servers do not come"
[ "$(value state)" = starting ] || fail "state $(value state) without workers"
[ "$(value num_worker)$(value num_server)" = 22 ] || fail "another job"
ask
grep -q 'waiting for worker 0, worker 1' "$work/status" || fail "status does not say who is missing"

by_hand worker worker0 "$job" 0 "$work/stop"
by_hand worker worker1 "$job" 0 "$work/stop"
running() { cat "$work"/worker?.out >"$work/out" && all_ready; }
wait_until 30 running || fail "the job does not run: $(cat "$work"/*.err)"
ask --json --placement
[ "$(value state)" = running ] || fail "state $(value state)"
[ "$(value "members.#")" -eq 4 ] || fail "members $(value "members.#")"
seen=
for i in 0 1 2 3; do
    [ "$(value members.$i.state)" = joined ] || fail "member $i is $(value members.$i.state)"
    kill -0 "$(value members.$i.pid)" || fail "member $i has no process"
    seen="$seen $(value members.$i.role)$(value members.$i.rank)"
done
for member in server0 server1 worker0 worker1; do
    case $seen in *" $member"*) ;; *) fail "no $member in:$seen" ;; esac
done
[ "$(value keys)" -ge 3 ] || fail "keys $(value keys)"
# 1,200,000 float32 over both, and two small arrays of 11 together
bytes=$(($(value servers.0.bytes) + $(value servers.1.bytes)))
[ "$bytes" -eq $((4 * 1200011)) ] || fail "$bytes bytes on the servers"
[ "$(value servers.0.counters.updates)" -ge 5 ] || fail "no updates on server 0"
ask --placement
grep -q '^large  *float32 .*4800000 .*0: .*1: ' "$work/status" || fail "no placement of large"
ask
grep -q '^worker  *1 .*joined' "$work/status" || fail "no worker 1 in the table"

: >"$work/stop"
wait_until 20 nobody_marked || fail "the job does not end"
wait "$scheduler" || fail "the scheduler's exit code is $?"
"$PENSTOCK" status --root "$root" >"$work/status" 2>"$work/err" && fail "status without a scheduler"
expect_in err "$root"
