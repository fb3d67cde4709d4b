# File names are unique in the tree, but for those that every room has (commands.h, README.md, ...).
#   names.sh ROOT
. "$(dirname "$0")/lib.sh"
cd "$1" || exit 1
found=$(mktemp)
sources '*.c' '*.h' | grep -Ev '/commands\.h$' | awk -F/ '
    { if ($NF in seen) printf "%s: the name is also that of %s\n", $0, seen[$NF]; else seen[$NF] = $0 }
' >"$found"
verdict "$found"
