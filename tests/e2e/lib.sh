# Helpers of the end-to-end tests; source it first.  $PENSTOCK is the program, $BUILD the build folder.
# $work is a private folder that is removed at the end; $mark finds every process of the test.
set -u
: "${PENSTOCK:?set PENSTOCK to the program to test}"
work=$(mktemp -d "${TMPDIR:-/tmp}/penstock-e2e-XXXXXX") || exit 1
E2E_MARK=e2e-$$-$(date +%s%N)
export E2E_MARK
self_mark=$E2E_MARK
unset E2E_MARK

say() { printf '%s\n' "$*"; }
fail() {
    say "FAILED: $*"
    for file in "$work"/out "$work"/err; do
        [ -f "$file" ] && say "--- $(basename "$file")" && tail -n 40 "$file"
    done
    exit 1
}
skip() {
    say "skipped: $*"
    exit 77
}

# Process ids that run for this test: those started with the mark in their environment.
marked() {
    grep -lsz "^E2E_MARK=$self_mark\$" /proc/[0-9]*/environ 2>/dev/null |
        sed 's|^/proc/\([0-9]*\)/environ|\1|'
}
cleanup() {
    for pid in $(marked); do kill -9 "$pid" 2>/dev/null; done
    rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 1' INT TERM

# launch ARGUMENT...: runs `penstock launch` to its end; $code is its exit code, $work/out and
# $work/err what it wrote, $took the seconds.
launch() {
    began=$(date +%s%N)
    E2E_MARK=$self_mark "$PENSTOCK" launch "$@" >"$work/out" 2>"$work/err"
    code=$?
    took=$((($(date +%s%N) - began) / 1000000000))
}
# launch_background ARGUMENT...: as launch, but returns at once; $launcher is its pid.
launch_background() {
    E2E_MARK=$self_mark "$PENSTOCK" launch "$@" >"$work/out" 2>"$work/err" &
    launcher=$!
}

expect_code() { [ "$code" -eq "$1" ] || fail "exit code $code, expected $1: ${2:-}"; }
expect_in() { grep -q -e "$2" "$work/$1" || fail "no '$2' in the $1 stream"; }
expect_within() { [ "$took" -le "$1" ] || fail "took $took s, at most $1 expected"; }
expect_nobody() { [ -z "$(marked)" ] || fail "left behind: $(marked | tr '\n' ' ')"; }
# wait_until SECONDS COMMAND...: polls.
wait_until() {
    limit=$(($(date +%s) + $1))
    shift
    while ! "$@"; do
        [ "$(date +%s)" -lt "$limit" ] || return 1
        sleep 0.1
    done
}
nobody_marked() { [ -z "$(marked)" ]; }
has_command() { "$PENSTOCK" help 2>/dev/null | grep -q "^  $1 "; }

# A job of plain scripts for the launcher's own tests: with --same-command the words after `--` run in
# every role.  $work/job.sh reports an address as a scheduler does, and then runs what the test put into
# $work/scheduler.sh, server.sh and worker.sh.
make_job() {
    cat >"$work/job.sh" <<'JOB'
here=$(dirname "$0")
if [ "$DMLC_ROLE" = scheduler ]; then
    echo "127.0.0.1 4711" >&"$PENSTOCK_READY_FD"
    exec 3>&-
fi
. "$here/$DMLC_ROLE.sh"
JOB
    # Both end when the workers are done, as the real ones do.
    until_done='while [ ! -e "$here/done" ]; do sleep 0.05; done'
    printf '%s\n' "$until_done" >"$work/scheduler.sh"
    printf '%s\n' "$until_done" >"$work/server.sh"
    printf '%s\n' ': >"$here/done"' >"$work/worker.sh"
}

# The programs of this folder; a build without them skips the test.
need() {
    for program; do
        [ -x "$BUILD/tests/e2e/$program" ] || skip "this build has no $program"
    done
    job=$BUILD/tests/e2e/e2e_job
    json=$BUILD/tests/e2e/e2e_json
}
# Of a launch in the background: $root is the scheduler's address (host:port), once it is known.
wait_for_root() {
    wait_until 20 grep -q '^launch: scheduler at' "$work/err" || fail "no scheduler"
    root=$(sed -n 's/^launch: scheduler at \([^ ]*\) port \([0-9]*\);.*/\1:\2/p' "$work/err")
}
# Both workers of an e2e_job have said that they are at work.
all_ready() { [ "$(grep -c 'ready pid' "$work/out")" -eq "${1:-2}" ]; }
worker_pid() { sed -n "s/.*worker $1 of .* ready pid \([0-9]*\)\$/\1/p" "$work/out"; }
# Ends a launch in the background: $code and $took (since $began) as of `launch`.
finish() {
    wait "$launcher"
    code=$?
    took=$((($(date +%s%N) - began) / 1000000000))
}
start_clock() { began=$(date +%s%N); }
status() { "$PENSTOCK" status --root "$root" "$@"; }
# by_hand ROLE NAME COMMAND...: a process without the launcher; $! is its pid.
by_hand() {
    role=$1
    name=$2
    shift 2
    E2E_MARK=$self_mark DMLC_ROLE=$role DMLC_NUM_WORKER=${workers:-2} DMLC_NUM_SERVER=${servers:-2} \
        DMLC_PS_ROOT_URI=${root%:*} DMLC_PS_ROOT_PORT=${root##*:} \
        "$@" >"$work/$name.out" 2>"$work/$name.err" &
}
# scheduler_by_hand: on a port of its own choice; sets $root and $scheduler.
scheduler_by_hand() {
    E2E_MARK=$self_mark DMLC_ROLE=scheduler DMLC_NUM_WORKER=${workers:-2} DMLC_NUM_SERVER=${servers:-2} \
        "$PENSTOCK" scheduler --host 127.0.0.1 --port 0 --ready-fd 3 3>"$work/ready" \
        >"$work/scheduler.out" 2>"$work/scheduler.err" &
    scheduler=$!
    wait_until 20 test -s "$work/ready" || fail "the scheduler does not start"
    root=$(tr ' ' ':' <"$work/ready")
}
