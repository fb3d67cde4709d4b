# `penstock plan` as a person runs it: settings from the environment, a picture, clear refusals.
. "$(dirname "$0")/lib.sh"

# plan ARGUMENT...: runs it; $code, $work/out, $work/err
plan() {
    "$PENSTOCK" plan "$@" >"$work/out" 2>"$work/err"
    code=$?
}
# figure KEY: a number of the JSON object in $work/out
figure() {
    sed -n "s/^  \"$1\": \([0-9]*\),*\$/\1/p" "$work/out"
}

plan --network resnet-18 --batch-size 2 --data-shape 3,64,64 --json
[ $code -eq 0 ] || fail "exit code $code"
plain=$(figure peak_bytes)
[ "$plain" -eq $(($(figure internal_bytes) + $(figure workspace_bytes))) ] || fail "peak is not internal + workspace"

export MXNET_BACKWARD_DO_MIRROR=1
plan --network resnet-18 --batch-size 2 --data-shape 3,64,64 --json
[ $code -eq 0 ] && [ "$(figure peak_bytes)" -lt "$plain" ] || fail "MXNET_BACKWARD_DO_MIRROR=1 saves nothing"
[ "$(figure mirrored_nodes)" -gt 0 ] || fail "nothing is mirrored"
unset MXNET_BACKWARD_DO_MIRROR

plan --network resnet-18 --batch-size 2 --data-shape 3,64,64 --svg "$work/plan.svg"
[ $code -eq 0 ] || fail "exit code $code"
grep -q "settings for minimum memory" "$work/out" || fail "no advice"
head -c 4 "$work/plan.svg" | grep -q "<svg" || fail "no picture"
tail -c 7 "$work/plan.svg" | grep -q "</svg>" || fail "the picture is cut off"

plan --network resnet-81
[ $code -eq 64 ] && grep -q "nearest is resnet-18" "$work/err" || fail "resnet-81: $code"
plan --network lenet --batch-size 0
[ $code -eq 64 ] && grep -q "from 1 to" "$work/err" || fail "batch 0: $code"
PENSTOCK_MEMONGER=1K plan --network lenet
[ $code -eq 1 ] && grep -q "the least is" "$work/err" || fail "a budget of 1 KiB: $code"
"$PENSTOCK" train --network resnet-50 >"$work/out" 2>"$work/err"
[ $? -eq 64 ] && grep -q "penstock plan" "$work/err" || fail "training what there is no data for"
"$PENSTOCK" help >"$work/out" 2>&1
grep -q "^  plan " "$work/out" || fail "help does not name it"
exit 0
