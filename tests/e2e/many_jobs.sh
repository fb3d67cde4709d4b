# JOBS small jobs in a row (20; 200 in the long run), on both transports in turn, and 20 at once: all end
# with 0, and no process, socket or other file is left.
. "$(dirname "$0")/lib.sh"
need e2e_job
mkdir "$work/tmp"
TMPDIR=$work/tmp
export TMPDIR
left() { find "$work/tmp" /dev/shm -newer "$work/begin" -name '*penstock*' 2>/dev/null; }
: >"$work/begin"
transport_of() { [ $(($1 % 2)) -eq 0 ] && echo tcp || echo ipc; }
i=0
while [ $i -lt "${JOBS:-20}" ]; do
    launch -n 2 -s 2 --transport "$(transport_of $i)" -- "$job" 3
    expect_code 0 "launch $i"
    expect_nobody
    i=$((i + 1))
done
[ -z "$(left)" ] || fail "left behind: $(left)"
say "$i in a row: ok"

one() {
    E2E_MARK=$self_mark "$PENSTOCK" launch -n 2 -s 1 --transport "$(transport_of "$1")" -- "$job" 3 \
        >"$work/out.$1" 2>&1
    echo $? >"$work/code.$1"
}
i=0
while [ $i -lt 20 ]; do
    one $i &
    i=$((i + 1))
done
wait
i=0
while [ $i -lt 20 ]; do
    code=$(cat "$work/code.$i")
    [ "$code" -eq 0 ] || { cp "$work/out.$i" "$work/out"; fail "launch $i of 20 at once: $code"; }
    i=$((i + 1))
done
expect_nobody
[ -z "$(left)" ] || fail "left behind: $(left)"
[ -z "$(ls -A "$work/tmp")" ] || fail "left behind: $(ls -A "$work/tmp")"
say "20 at once: ok"
