# Case 101: ssh without a hostfile says so; a hostfile with the local launcher works.
. "$(dirname "$0")/lib.sh"
make_job

launch -n 1 -s 1 --launcher ssh -- true
expect_code 64
expect_in err 'hostfile required'

printf '# two hosts\nnode0 slots=2\n[::1]:2222\n\n' >"$work/hosts"
launch -n 1 -s 1 --launcher local -H "$work/hosts" --same-command -- sh "$work/job.sh"
expect_code 0

launch -n 1 -s 1 --launcher ssh --hostfile "$work/hosts" -- true
[ "$code" -ne 0 ] || fail "ssh is not in this version"
expect_in err 'ssh launcher is not in this version'

printf 'node0 slots=many\n' >"$work/hosts"
launch -n 1 -s 1 --launcher local -H "$work/hosts" -- true
expect_code 64
expect_in err "hosts:1: 'slots=many'"

launch -n 1 -s 0 -- true # case 92
expect_code 64
expect_in err 'kv-store local'
launch -n 1 --no-such-option -- true
expect_code 64
expect_nobody
