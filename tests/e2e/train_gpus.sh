# `penstock train --gpus 0,1` on two simulated accelerators: the checkpoint of two CPU devices, bit for
# bit, under each engine and each number of threads of an accelerator; and what is not there is named.
. "$(dirname "$0")/lib.sh"
[ -e /usr/share/datasets/fashion-mnist ] || skip "the package dataset-fashion-mnist is not installed"
train() {
    name=$1
    shift
    "$PENSTOCK" train --network lenet --batch-size 64 --num-epochs 1 --max-steps 20 --disp-batches 0 \
        --model-prefix "$work/$name" --set CPU_NNPACK_NTHREADS=1 "$@" >"$work/out" 2>"$work/err"
}
train cpus --cpus 2 || fail "two CPU devices"
number=0
for setting in GPU_WORKER_NTHREADS=2 GPU_WORKER_NTHREADS=1 ENGINE_TYPE=ThreadedEngine \
    ENGINE_TYPE=NaiveEngine SIM_GPU_PEERS=none BACKWARD_DO_MIRROR=1; do
    number=$((number + 1))
    train gpus$number --gpus 0,1 --set SIM_GPUS=2 --set $setting || fail "two accelerators, $setting"
    cmp -s "$work/cpus-0001.safetensors" "$work/gpus$number-0001.safetensors" ||
        fail "other weights with $setting"
done
train none --gpus 0,2 --set SIM_GPUS=2 && fail "there is no gpu(2)"
expect_in err 'gpu(2)'
train full --gpus 0 --set SIM_GPUS=1 --set SIM_GPU_MEMORY=2Mi && fail "2 MiB do not hold a batch"
expect_in err 'gpu(0)'
expect_in err 'requested'
