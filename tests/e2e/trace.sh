# setting_profiler_autostart, setting_profiler_mode: a training that knows nothing of the profiler leaves
# profile.json in its working directory, of networks alone or of everything; a job's processes do not
# overwrite each other's, and their files can be put together.
. "$(dirname "$0")/lib.sh"
need e2e_json
[ -e /usr/share/datasets/fashion-mnist ] || skip "the package dataset-fashion-mnist is not installed"
command -v python3 >/dev/null 2>&1 || skip "python3 is not installed"
cat >"$work/check.py" <<'PYTHON'
import json, sys
mode, files = sys.argv[1], sys.argv[2:]
events = []
for name in files:
    trace = json.load(open(name))
    assert trace["displayTimeUnit"] == "ns", name
    assert trace["otherData"]["base_wall_ns"].isdigit(), name
    events += trace["traceEvents"]
names = {e["name"] for e in events if e["ph"] in "Xb"}
everything = {n for n in names if n.startswith(("Copy", "WaitFor", "KVStore"))}
for event in events:
    assert {"name", "ph", "pid", "tid"} <= event.keys(), event
    assert event["ph"] == "M" or event["ts"] >= 0, event
    assert len(event["name"]) <= 127, event
if mode == "symbolic":
    assert names and not everything, everything
elif mode == "all":
    assert "WaitForVar" in names or "WaitForAll" in names, names
    assert len(names) > len(everything), names
    processes = {e["args"]["name"] for e in events if e["name"] == "process_name"}
    assert "cpu/0" in processes, processes
    assert any(e["ph"] == "C" and e["name"] == "memory used" for e in events)
    assert any(e["ph"] == "C" and e["name"] == "pending operations" for e in events)
elif mode == "job":
    processes = {e["args"]["name"] for e in events if e["name"] == "process_name"}
    for rank in range(2):
        assert "worker/%d cpu/0" % rank in processes, processes
    # the same moment of two processes has about the same time stamp
    spans = [e for e in events if e["ph"] == "X"]
    ends = {pid // 1024: max(e["ts"] for e in spans if e["pid"] // 1024 == pid // 1024)
            for pid in {e["pid"] for e in spans}}
    assert len(ends) == 2 and max(ends.values()) - min(ends.values()) < 60e6, ends
print(len(events), "events", len(names), "names")
PYTHON
train() { "$PENSTOCK" train --network mlp --batch-size 64 --max-steps 20 --num-epochs 1 "$@" >"$work/out" 2>"$work/err"; }

for mode in 0 1; do
    mkdir "$work/mode$mode" && cd "$work/mode$mode" || exit 1
    MXNET_PROFILER_AUTOSTART=1 MXNET_PROFILER_MODE=$mode PENSTOCK_PROFILER_TABLE=table.json train ||
        fail "train under mode $mode"
    [ -s profile.json ] || fail "no profile.json under mode $mode"
    [ "$mode" = 0 ] && word=symbolic || word=all
    python3 "$work/check.py" "$word" profile.json || fail "profile.json of mode $mode"
    python3 -c '
import json
table = json.load(open("table.json"))
assert {"Time", "Memory", "Unit"} <= table.keys() and table["Time"]["operator"] and table["Lost"] == 0
' || fail "table.json of mode $mode"
done
mkdir "$work/off" && cd "$work/off" || exit 1
train || fail "train without the profiler"
[ ! -e profile.json ] || fail "a file although the profiler is off"

mkdir "$work/job" && cd "$work/job" || exit 1
launch -n 2 -s 1 --env PENSTOCK_PROFILER_AUTOSTART=1 -- "$PENSTOCK" train --network mlp \
    --kv-store dist_sync --batch-size 64 --max-steps 20 --num-epochs 1
expect_code 0 "the job"
for member in worker-0 worker-1 server-0 scheduler; do
    [ -s "profile-$member.json" ] || fail "no profile-$member.json in $(ls)"
    python3 -m json.tool "profile-$member.json" >/dev/null || fail "profile-$member.json"
done
python3 "$work/check.py" job profile-*.json || fail "the job's files together"
expect_nobody
