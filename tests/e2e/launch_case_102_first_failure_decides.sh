# Case 102: a worker exits with 3: the others are ended within 10 s, the launcher exits with 3 and prints
# the last 20 lines of that rank.
. "$(dirname "$0")/lib.sh"
make_job

cat >"$work/worker.sh" <<'JOB'
if [ "$DMLC_WORKER_ID" = 1 ]; then
    i=1
    while [ $i -le 30 ]; do echo "line $i of the failing rank"; i=$((i + 1)); done
    exit 3
fi
sh -c 'sleep 1000; true'
JOB
launch -n 3 -s 2 --same-command -- sh "$work/job.sh"
expect_code 3
expect_within 10
expect_in err 'worker 1 (pid [0-9]*) exited with 3'
expect_in err '^    line 11 of the failing rank'
expect_in err '^    line 30 of the failing rank'
grep -q '^    line 10 of' "$work/err" && fail 'more than 20 lines were printed'
expect_nobody

# A signal is 128 + its number, as in a shell.
cat >"$work/worker.sh" <<'JOB'
[ "$DMLC_WORKER_ID" = 0 ] && kill -9 $$
sleep 1000
JOB
launch -n 2 -s 1 --same-command -- sh "$work/job.sh"
expect_code 137
expect_in err 'worker 0 (pid [0-9]*) was killed by signal 9'
expect_nobody

# "I lost my peer" (76) is not the cause when a better one follows.
cat >"$work/worker.sh" <<'JOB'
[ "$DMLC_WORKER_ID" = 0 ] && exit 76
sleep 0.3
exit 9
JOB
launch -n 2 -s 1 --same-command -- sh "$work/job.sh"
expect_code 9
expect_in err 'worker 1 (pid [0-9]*) exited with 9'

# A server that dies early fails the job too, and so does one that cannot be started.
printf 'sleep 1000\n' >"$work/worker.sh"
printf 'echo gone; exit 5\n' >"$work/server.sh"
launch -n 1 -s 1 --same-command -- sh "$work/job.sh"
expect_code 5
expect_in err 'server 0 (pid [0-9]*) exited with 5'
launch -n 1 -s 1 --same-command -- "$work/no-such-program"
expect_code 127
expect_in err 'no-such-program'
expect_nobody

# Workers that ignore SIGTERM are killed.
cat >"$work/worker.sh" <<'JOB'
[ "$DMLC_WORKER_ID" = 0 ] && sleep 0.5 && exit 4
trap '' TERM
while :; do sleep 1; done
JOB
printf '%s\n' "$until_done" >"$work/server.sh"
launch -n 2 -s 1 --same-command -- sh "$work/job.sh"
expect_code 4
expect_within 10
[ "$took" -ge 4 ] || fail "SIGKILL came without a grace"
expect_nobody
