# --dry-run prints the exact commands; compared with launch_dry_run.golden.
. "$(dirname "$0")/lib.sh"
unset DMLC_NUM_ATTEMPT
launch -n 2 -s 1 --env A=1 --env-worker 'B=two words' --dry-run -- penstock train --network lenet --note "it's"
expect_code 0
# The workers' share of the cores depends on the machine.
sed 's/PENSTOCK_CPU_NNPACK_NTHREADS=[0-9]*/PENSTOCK_CPU_NNPACK_NTHREADS=N/' "$work/out" >"$work/seen"
diff -u "$(dirname "$0")/launch_dry_run.golden" "$work/seen" || fail "differs from the golden text"
launch -n 1 -s 1 --transport ipc --same-command --dry-run ./a.out
expect_code 0
expect_in out 'DMLC_PS_ROOT_URI=ipc://JOB_DIR/scheduler .* ./a.out'
