# Case 78: a worker that comes when the job is complete, or comes back, is told why it cannot join; the
# job does not notice.
. "$(dirname "$0")/lib.sh"
need e2e_job
launch_background -n 2 -s 1 -- "$job" 0 "$work/stop"
wait_until 30 all_ready || fail "the job does not start"
wait_for_root
for rank in -1 1; do
    servers=1
    start_clock
    by_hand worker late env PENSTOCK_RANK=$rank "$job" 5
    wait $! && fail "a third worker of two ended with 0"
    took=$((($(date +%s%N) - began) / 1000000000))
    expect_within 10
    grep -Eq 'running|complete|full|has all|already' "$work/late.err" ||
        fail "the late worker is not told why: $(cat "$work/late.err")"
    say "told: $(tail -n 1 "$work/late.err")"
done
: >"$work/stop"
finish
expect_code 0
expect_nobody
