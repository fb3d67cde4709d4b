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
