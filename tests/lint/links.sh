# Every relative link of a Markdown page leads to a file.
#   links.sh ROOT
. "$(dirname "$0")/lib.sh"
cd "$1" || exit 1
found=$(mktemp)
{
    ls ./*.md docs/*.md docs/*/*.md 2>/dev/null
    sources '*.md'
} | while read -r page; do
    # shellcheck disable=SC2016
    sed 's/`[^`]*`//g' "$page" | grep -no '\](\([^)]*\))' | sed 's/](\([^)]*\))/\1/' | while IFS=: read -r line to; do
        case $to in *://* | '#'* | mailto:*) continue ;; esac
        [ -e "$(dirname "$page")/${to%%#*}" ] || echo "$page:$line: no file '$to'"
    done
done >"$found"
verdict "$found"
