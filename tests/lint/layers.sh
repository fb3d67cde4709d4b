# Who may include whom: the table of DESIGN.md 2, closed over what each room's own rooms may see.
# Includes go by path from the root, and a file's own header comes first.
#   layers.sh ROOT
. "$(dirname "$0")/lib.sh"
cd "$1" || exit 1
found=$(mktemp)
sources '*.c' '*.h' '*.inc' '*.def' | while read -r file; do
    own=${file%.c}.h
    [ "$own" != "$file" ] && [ -f "$own" ] || own=
    awk -v file="$file" -v own="$own" '
    function room_of(path) {
        if (path ~ /^kvstore\/shard\//) return "kvstore/shard"
        sub(/\/.*/, "", path)
        return path
    }
    BEGIN {
        sees["base"] = " base "
        sees["kernels"] = " base kernels "
        sees["engine"] = " base kernels engine "
        sees["net"] = " base net "
        sees["kvstore/shard"] = " base kernels net kvstore/shard "
        sees["kvstore"] = " base kernels engine net kvstore/shard kvstore "
        sees["worker"] = " base kernels engine net kvstore/shard kvstore worker "
        sees["server"] = " base kernels net kvstore/shard server "
        sees["scheduler"] = " base kernels net kvstore/shard scheduler "
        sees["api"] = " base kernels engine net kvstore/shard kvstore worker server scheduler api "
        all = " base kernels engine net kvstore/shard kvstore worker server scheduler api deploy tests "
        sees["deploy"] = all
        sees["tests"] = all
        room = room_of(file)
    }
    /^[ \t]*#[ \t]*include[ \t]*"/ {
        path = $0
        sub(/^[^"]*"/, "", path)
        sub(/".*/, "", path)
        first++
        # Tests begin with the headers of cmocka, and have helpers beside them.
        if (room == "tests" && path !~ /\//) next
        if (first == 1 && room != "tests" && own != "" && path != own)
            printf "%s:%d: its own header %s comes first\n", file, FNR, own
        if (path !~ /\//) {
            printf "%s:%d: include \"%s\" by its path from the root\n", file, FNR, path
            next
        }
        to = room_of(path)
        if (index(all, " " to " ") == 0)
            printf "%s:%d: \"%s\" is in no room\n", file, FNR, path
        else if (index(sees[room], " " to " ") == 0)
            printf "%s:%d: %s must not see %s (\"%s\")\n", file, FNR, room, to, path
    }
    ' "$file"
done >"$found"
verdict "$found"
