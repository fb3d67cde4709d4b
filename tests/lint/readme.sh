# Every room has a README.md of at most 40 lines.
#   readme.sh ROOT
. "$(dirname "$0")/lib.sh"
cd "$1" || exit 1
found=$(mktemp)
for room in $rooms kvstore/shard; do
    [ -f "$room/CMakeLists.txt" ] || continue
    if [ ! -f "$room/README.md" ]; then
        echo "$room: no README.md"
    elif [ "$(wc -l <"$room/README.md")" -gt 40 ]; then
        echo "$room/README.md: $(wc -l <"$room/README.md") lines, 40 at most"
    fi
done >"$found"
verdict "$found"
