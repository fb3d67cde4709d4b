# No mutable variable at file scope (DESIGN.md 2): looks at the sections of the built objects.
# Read-only data, also where it needs relocation (.data.rel.ro), is fine; a `static` in a function is not.
#   state.sh ALLOWED ARCHIVE|OBJECT...     ALLOWED: lines "object symbol reason"; '#' comments
set -u
LC_ALL=C
export LC_ALL
command -v objdump >/dev/null 2>&1 || {
    echo "skipped: objdump is not installed"
    exit 77
}
allowed=$1
shift
found=$(mktemp)
trap 'rm -f "$found"' EXIT
objdump -t "$@" 2>/dev/null | awk -v allowed="$allowed" '
    BEGIN {
        while ((getline line < allowed) > 0)
            if (line !~ /^#/ && split(line, part, " ") >= 2) ok[part[1] " " part[2]] = 1
    }
    /file format/ {
        object = $1
        sub(/:$/, "", object)
        sub(/.*\//, "", object)
        sub(/\.c\.o$/, ".c", object)
    }
    # value, flags in seven columns, section, size, name
    / (\.data|\.bss|\.tdata|\.tbss|\.data\.rel|\.data\.rel\.local|\*COM\*|\.data\.[a-z_]*|\.bss\.[a-z_]*)\t/ {
        section = $(NF - 2)
        name = $NF
        if (section ~ /^\.data\.rel\.ro/ || $0 ~ / d  / || name ~ /^\./) next
        symbol = name
        sub(/\.[0-9]+$/, "", symbol)
        if (!((object " " symbol) in ok)) printf "%s: %s in %s\n", object, name, section
    }' | sort -u >"$found"
if [ -s "$found" ]; then
    cat "$found"
    echo "$(wc -l <"$found") findings; what must be, with its reason, goes into tests/lint/state.allow"
    exit 1
fi
