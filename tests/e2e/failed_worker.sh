# A worker whose disk is full fails; the other one is told, and does not train on without it.
. "$(dirname "$0")/lib.sh"
[ -w /dev/full ] || skip "no /dev/full"
samples=64
for part in train t10k; do
    { printf '\000\000\010\003\000\000\000\100\000\000\000\034\000\000\000\034'
      head -c $((samples * 784)) /dev/zero; } >"$work/$part-images-idx3-ubyte"
    { printf '\000\000\010\001\000\000\000\100'
      head -c $samples /dev/zero; } >"$work/$part-labels-idx1-ubyte"
done
servers=1
scheduler_by_hand
by_hand server server0 "$PENSTOCK" server
train="$PENSTOCK train --data $work --network mlp --batch-size 16 --num-epochs 3 --kv-store dist_sync"
by_hand worker worker1 env DMLC_WORKER_ID=1 $train
other=$!
by_hand worker worker0 env DMLC_WORKER_ID=0 $train --metrics /dev/full
wait $!
[ $? -eq 1 ] || fail "worker 0 did not fail: $(cat "$work/worker0.err")"
grep -q 'metrics file /dev/full' "$work/worker0.err" || fail "worker 0 says: $(cat "$work/worker0.err")"
wait "$other"
code=$?
[ "$code" -eq 76 ] || fail "worker 1 ended with $code: $(cat "$work/worker1.err")"
grep -q 'lost worker 0' "$work/worker1.err" || fail "worker 1 says: $(cat "$work/worker1.err")"
wait "$scheduler" && fail "the scheduler ended with 0"
wait_until 20 nobody_marked || fail "left behind: $(marked | tr '\n' ' ')"
exit 0
