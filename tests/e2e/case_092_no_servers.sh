# Case 92: a job of no servers is refused, with words, by everyone who could start it.
. "$(dirname "$0")/lib.sh"
need e2e_job
launch -n 2 -s 0 -- "$job" 1
[ "$code" -ne 0 ] || fail "the launcher took 0 servers"
expect_within 10
grep -qi 'server' "$work/err" || fail "the launcher does not say why"
for role in scheduler worker; do
    command="$PENSTOCK scheduler"
    [ $role = worker ] && command="$job 1"
    # shellcheck disable=SC2086
    DMLC_ROLE=$role DMLC_NUM_WORKER=1 DMLC_NUM_SERVER=0 DMLC_PS_ROOT_URI=127.0.0.1 DMLC_PS_ROOT_PORT=9 \
        timeout 20 $command >"$work/out" 2>"$work/err"
    code=$?
    [ "$code" -ne 0 ] && [ "$code" -ne 124 ] || fail "$role: exit code $code"
    grep -q 'NUM_SERVER' "$work/err" || fail "the $role does not name NUM_SERVER"
done
