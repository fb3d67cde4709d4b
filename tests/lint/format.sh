# .clang-format decides.  Versions disagree in details, so only the one we format with is asked.
#   format.sh ROOT
. "$(dirname "$0")/lib.sh"
cd "$1" || exit 1
format=
for name in clang-format-14 clang-format; do
    if command -v $name >/dev/null 2>&1 && $name --version | grep -q 'version 14\.'; then
        format=$name
        break
    fi
done
[ -n "$format" ] || {
    echo "skipped: clang-format 14 is not installed"
    exit 77
}
found=$(mktemp)
sources '*.c' '*.h' | xargs "$format" --dry-run --ferror-limit=1 2>&1 | grep -E 'warning:|error:' >"$found"
verdict "$found"
