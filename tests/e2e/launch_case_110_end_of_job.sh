# Case 110: when the workers have ended, servers and scheduler end too, within 5 s; and what they do then
# cannot make a job fail whose workers succeeded.
. "$(dirname "$0")/lib.sh"
make_job
launch -n 2 -s 2 --same-command -- sh "$work/job.sh"
expect_code 0
expect_within 5
expect_nobody

# Servers that never end, or end badly, after the workers have succeeded.
printf 'trap "" TERM\nwhile :; do sleep 1; done\n' >"$work/server.sh"
printf '%s\nexit 3\n' "$until_done" >"$work/scheduler.sh"
rm -f "$work/done"
launch -n 1 -s 1 --same-command -- sh "$work/job.sh"
expect_code 0
expect_within 12
expect_nobody

# A worker that leaves a process behind has ended all the same, and nothing stays.
make_job
printf 'setsid sleep 1000 &\n: >"$here/done"\n' >"$work/worker.sh"
rm -f "$work/done"
launch -n 2 -s 1 --same-command -- sh "$work/job.sh"
expect_code 0
expect_within 5
expect_nobody

if has_command scheduler && has_command server; then
    launch -n 2 -s 2 -- true
    expect_code 0
    expect_within 10
    expect_nobody
fi
