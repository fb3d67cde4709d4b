# LeNet on MNIST, whole: one process reaches 0.99, two workers with two servers 0.98, within 10 epochs.
# $DATA is the folder of data sets.
. "$(dirname "$0")/lib.sh"
need e2e_json
data=${PENSTOCK_TEST_DATA:-${DATA:?}}/mnist
[ -e "$data/train-images-idx3-ubyte.gz" ] || [ -e "$data/train-images-idx3-ubyte" ] ||
    skip "no MNIST in $data; PENSTOCK_TEST_DATA names another folder"

# best FILE: the largest test accuracy so far.
best() {
    [ -s "$1" ] || { echo 0; return; }
    while read -r line; do printf '%s\n' "$line" | "$json" test_accuracy; done <"$1" | sort -g | tail -n 1
}
reached() { [ "$(printf '%s\n%s\n' "$(best "$1")" "$2" | sort -g | head -n 1)" = "$2" ]; }
# run NAME LIMIT COMMAND...: until the accuracy is reached (then it is stopped) or the command ends.
run() {
    name=$1
    limit=$2
    shift 2
    E2E_MARK=$self_mark "$@" >"$work/out" 2>"$work/err" &
    pid=$!
    while kill -0 "$pid" 2>/dev/null; do
        reached "$work/$name" "$limit" && break
        sleep 1
    done
    kill "$pid" 2>/dev/null
    wait "$pid" 2>/dev/null
    reached "$work/$name" "$limit" || fail "$name: $(best "$work/$name"), $limit wanted"
    say "$name: test accuracy $(best "$work/$name") after $(wc -l <"$work/$name") epochs"
    wait_until 20 nobody_marked || fail "left behind: $(marked | tr '\n' ' ')"
}
train="$PENSTOCK train --network lenet --data $data --num-epochs 10 --no-progress"
# shellcheck disable=SC2086
run one-process 0.99 $train --metrics "$work/one-process"
# shellcheck disable=SC2086
run two-workers 0.98 "$PENSTOCK" launch -n 2 -s 2 -- $train --kv-store dist_sync --metrics "$work/two-workers"
