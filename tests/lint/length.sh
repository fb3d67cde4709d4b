# Files over 800 lines are refused, those over 400 and functions over 60 are named.
#   length.sh ROOT
. "$(dirname "$0")/lib.sh"
cd "$1" || exit 1
found=$(mktemp)
sources '*.c' '*.h' | while read -r file; do
    awk -v file="$file" '
        /^[A-Za-z].*\)$/ || /^[A-Za-z].*\($/ { head = $0 }
        /^\{/ { start = FNR }
        /^\}/ {
            if (start && FNR - start - 1 > 60)
                printf "note: %s:%d: function of %d lines\n", file, start, FNR - start - 1
            start = 0
        }
        END {
            if (FNR > 800) printf "%s: %d lines, 800 at most\n", file, FNR
            else if (FNR > 400) printf "note: %s: %d lines\n", file, FNR
        }' "$file"
done >"$found"
grep '^note: ' "$found"
grep -v '^note: ' "$found" >"$found.bad"
mv "$found.bad" "$found"
verdict "$found"
