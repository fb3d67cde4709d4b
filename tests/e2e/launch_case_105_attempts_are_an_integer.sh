# Case 105: DMLC_NUM_ATTEMPT is read as an integer; a restarted worker finds its attempt's number in the
# environment, and its words are as before.
. "$(dirname "$0")/lib.sh"
make_job
cat >"$work/worker.sh" <<'JOB'
echo "attempt $DMLC_NUM_ATTEMPT words $# rank $DMLC_WORKER_ID"
[ "$DMLC_NUM_ATTEMPT" = 2 ] || exit 7
: >"$here/done"
JOB
export DMLC_NUM_ATTEMPT=2
launch -n 1 -s 1 --same-command -- sh "$work/job.sh" one two
expect_code 0
for attempt in 0 1 2; do expect_in out "^worker/0: attempt $attempt words 2 rank 0\$"; done
expect_in err 'starting it again, attempt 2 of 2'

# The command line wins over the environment.
rm -f "$work/done"
launch -n 1 -s 1 --max-restarts 1 --same-command -- sh "$work/job.sh"
expect_code 7

export DMLC_NUM_ATTEMPT=two
launch -n 1 -s 1 --same-command -- sh "$work/job.sh"
expect_code 78
expect_in err DMLC_NUM_ATTEMPT
expect_nobody
