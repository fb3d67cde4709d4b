# What processes write: whole prefixed lines, stderr apart, the last line without its newline, files.
. "$(dirname "$0")/lib.sh"
make_job
cat >"$work/worker.sh" <<'JOB'
printf 'first\nsecond'
printf 'to stderr\n' >&2
printf '10%%\r20%%\r\n'
: >"$here/done"
JOB
cat >"$work/scheduler.sh" <<'JOB'
echo "scheduler here"
while [ ! -e "$here/done" ]; do sleep 0.05; done
JOB
launch -n 2 -s 1 --env COLOUR=blue --log-dir "$work/logs/a" --same-command -- sh "$work/job.sh"
expect_code 0
for rank in 0 1; do
    expect_in out "^worker/$rank: first\$"
    expect_in out "^worker/$rank: second10%\$"
    expect_in out "^worker/$rank: 20%\$"
    expect_in err "^worker/$rank: to stderr\$"
    grep -q 'to stderr' "$work/logs/a/worker-$rank.log" || fail "no worker-$rank.log"
done
expect_in out '^scheduler: scheduler here$'
grep -q 'to stderr' "$work/out" && fail "stderr went to stdout"
for file in scheduler server-0 worker-0 worker-1; do
    [ -f "$work/logs/a/$file.log" ] || fail "no $file.log"
done
grep -q "$(printf '\033')" "$work/out" && fail "colour without a terminal"

# A line without its newline at the end, and words that a shell would have split.
printf 'printf "<%%s>" "$@"; : >"$here/done"\n' >"$work/worker.sh"
rm -f "$work/done"
launch -n 1 -s 1 --same-command -- sh "$work/job.sh" 'a b' '$HOME' "it's" '*'
expect_code 0
grep -qF "worker/0: <a b><\$HOME><it's><*>" "$work/out" || fail "words were changed"

# Variables: for every role, for one, and not those that the launcher sets.
printf 'echo "worker $A $B $C $DMLC_ROLE $DMLC_PS_ROOT_URI $DMLC_PS_ROOT_PORT $DMLC_NUM_WORKER $DMLC_TASK_ID"; : >"$here/done"\n' >"$work/worker.sh"
printf 'echo "server ${A-} ${B-none} ${C-none} $DMLC_SERVER_ID $DMLC_TASK_ID"\n%s\n' "$until_done" >"$work/server.sh"
rm -f "$work/done"
PENSTOCK_RANK=9 DMLC_PS_ROOT_PORT=1 launch -n 1 -s 1 --env A=1 --env-worker B:2 --env-worker C=3=4 \
    --same-command sh "$work/job.sh"
expect_code 0
expect_in out '^worker/0: worker 1 2 3=4 worker 127.0.0.1 4711 1 0$'
expect_in out '^server/0: server 1 none none 0 1$'
launch -n 1 -s 1 --env DMLC_ROLE=worker -- true
expect_code 64
expect_in err DMLC_ROLE

# A scheduler that says nothing, and one that ends first.
printf 'exit 0\n' >"$work/job.sh"
launch -n 1 -s 1 --same-command -- sh "$work/job.sh"
expect_code 1
expect_in err 'before it reported its address'
printf 'sleep 1000\n' >"$work/job.sh"
launch -n 1 -s 1 --start-timeout 1 --same-command -- sh "$work/job.sh"
expect_code 75
expect_in err 'did not report its address'
expect_nobody
