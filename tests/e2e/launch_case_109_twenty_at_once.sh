# Case 109: 20 launches at the same time all succeed, on both transports: nobody probes for a port.
# With the real scheduler and server; their workers never join, which does not matter to the launcher.
. "$(dirname "$0")/lib.sh"
make_job
real=no
has_command scheduler && has_command server && real=yes

one() {
    export E2E_MARK="$self_mark"
    if [ "$real" = yes ]; then
        "$PENSTOCK" launch -n 2 -s 1 --transport "$2" -- true
    else
        mkdir -p "$work/$1"
        cp "$work"/*.sh "$work/$1"
        "$PENSTOCK" launch -n 2 -s 1 --transport "$2" --same-command -- sh "$work/$1/job.sh"
    fi >"$work/out.$1" 2>&1
    echo $? >"$work/code.$1"
}
before=$(ls -d "${TMPDIR:-/tmp}"/penstock-?????? 2>/dev/null | sort)
i=0
while [ $i -lt 20 ]; do
    if [ $((i % 2)) -eq 0 ]; then one $i tcp & else one $i ipc & fi
    i=$((i + 1))
done
wait
i=0
while [ $i -lt 20 ]; do
    code=$(cat "$work/code.$i")
    [ "$code" -eq 0 ] || { cp "$work/out.$i" "$work/out"; fail "launch $i exited with $code"; }
    i=$((i + 1))
done
expect_nobody
after=$(ls -d "${TMPDIR:-/tmp}"/penstock-?????? 2>/dev/null | sort)
[ "$before" = "$after" ] || say "note: socket directories of other jobs came or went"
say "20 launches ($([ $real = yes ] && echo real || echo script) scheduler): ok"
