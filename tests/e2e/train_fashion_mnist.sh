# A training on real images by a whole job, on both transports: progress lines, and a metrics file that
# rank 0 alone writes, for the whole job.
. "$(dirname "$0")/lib.sh"
need e2e_json
[ -e /usr/share/datasets/fashion-mnist ] || skip "the package dataset-fashion-mnist is not installed"
for transport in tcp ipc; do
    cat >"$work/worker.sh" <<WORKER
cd "$work" || exit 1
mkdir -p "w\$DMLC_WORKER_ID" && cd "w\$DMLC_WORKER_ID" || exit 1
exec "$PENSTOCK" train --network mlp --kv-store dist_sync --batch-size 64 --num-epochs 2 --max-steps 40 \
    --disp-batches 10 --metrics metrics.jsonl --model-prefix net
WORKER
    launch -n 2 -s 2 --transport "$transport" --log-dir "$work/log" -- sh "$work/worker.sh"
    expect_code 0 "$transport"
    expect_nobody
    cat "$work/out" "$work/err" >"$work/all"
    for words in 'Epoch\[0\] Batch \[20\] Speed: [0-9.]* samples/sec accuracy=[0-9.]*$' \
        'Epoch\[0\] Train-accuracy=[0-9.]*$' 'Epoch\[0\] Validation-accuracy=[0-9.]*$'; do
        grep -q "^worker/0: .*$words" "$work/all" || fail "no line of worker 0 like $words"
    done
    grep -q '^worker/1: .*Train-accuracy' "$work/all" && fail "worker 1 speaks for the job"
    [ -s "$work/log/worker-1.log" ] || fail "no log file of worker 1"
    [ -s "$work/w0/metrics.jsonl" ] && [ ! -e "$work/w1/metrics.jsonl" ] || fail "rank 0 writes metrics"
    [ -s "$work/w0/net-0001.safetensors" ] && [ ! -e "$work/w1/net-0001.safetensors" ] ||
        fail "rank 0 saves"
    [ "$(wc -l <"$work/w0/metrics.jsonl")" -eq 1 ] || fail "40 steps are one epoch"
    # both workers' samples
    [ "$("$json" samples <"$work/w0/metrics.jsonl")" = 5120 ] || fail "$(cat "$work/w0/metrics.jsonl")"
    "$json" test_accuracy <"$work/w0/metrics.jsonl" >"$work/accuracy" || fail "no test accuracy"
    grep -q '^0\.[5-9]' "$work/accuracy" || fail "accuracy $(cat "$work/accuracy") after 40 steps"
    rm -rf "$work/w0" "$work/w1" "$work/log"
    say "$transport: accuracy $(cat "$work/accuracy")"
done
