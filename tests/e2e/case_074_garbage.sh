# Case 74: what is no message, sent to the scheduler's and the servers' ports while a job runs, is dropped
# and does not disturb it: the job's sums stay right and everyone ends with 0.
. "$(dirname "$0")/lib.sh"
need e2e_job e2e_json
command -v bash >/dev/null || skip "no bash to open sockets with"
launch_background -n 2 -s 2 -- "$job" 0 "$work/stop"
wait_until 30 all_ready || fail "the job does not start"
wait_for_root
status --json >"$work/status" || fail "no status"

printf 'GET / HTTP/1.0\r\n\r\n' >"$work/http"
head -c 1000000 /dev/urandom >"$work/random"
head -c 100000 /dev/zero >"$work/zeros"
: >"$work/nothing"
# ZMTP 3.0 with the NULL mechanism and the READY of a DEALER, then frames.
{
    printf '\377\0\0\0\0\0\0\0\0\177\003\0NULL'
    head -c 48 /dev/zero
    printf '\004\051\005READY\013Socket-Type\0\0\0\006DEALER\010Identity\0\0\0\0'
} >"$work/hello"
{ cat "$work/hello" && printf '\0\0'; } >"$work/empty_frame"
{ cat "$work/hello" && printf '\0\100only a part of it'; } >"$work/cut_frame"
{ cat "$work/hello" && printf '\001\100' && head -c 64 /dev/urandom && printf '\0\005hello'; } >"$work/two_parts"
{ cat "$work/hello" && printf '\002\177\377\377\377\377\377\377\377'; } >"$work/huge_frame"
head -c 30 "$work/hello" >"$work/cut_greeting"

# send FILE PORT: all of it, then a moment for an answer, then the end.
send() {
    # shellcheck disable=SC2016
    timeout 5 bash -c 'exec 3<>"/dev/tcp/127.0.0.1/$1" && cat "$2" >&3; timeout 0.2 cat <&3 >/dev/null' \
        - "$2" "$work/$1" 2>/dev/null
}
ports=${root##*:}
for i in 0 1 2 3; do
    [ "$("$json" members.$i.role <"$work/status")" = server ] || continue
    url=$("$json" members.$i.urls.0 <"$work/status") || fail "member $i has no address"
    ports="$ports ${url##*:}"
done
[ "$(echo "$ports" | wc -w)" -eq 3 ] || fail "ports: $ports"
for port in $ports; do
    for file in http random zeros nothing empty_frame cut_frame two_parts huge_frame cut_greeting; do
        send $file "$port"
    done
done
kill -0 "$launcher" || fail "the job is gone"
status --json >"$work/status" || fail "the scheduler does not answer any more"
[ "$("$json" state <"$work/status")" = running ] || fail "state $("$json" state <"$work/status")"
: >"$work/stop"
start_clock
finish
expect_code 0
expect_within 15
[ "$(grep -c ': done$' "$work/out")" -eq 2 ] || fail "not every worker came to its end"
expect_nobody
[ "$(wc -l <"$work/err")" -lt 200 ] || fail "$(wc -l <"$work/err") lines about it"
