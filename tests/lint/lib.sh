# What the checks of this folder share; $1 is the root of the sources.
set -u
LC_ALL=C
export LC_ALL
rooms='base net kernels engine kvstore server scheduler worker api deploy'

# sources PATTERN...: the files of the rooms and tests under the current folder, by name patterns.
sources() {
    for folder in $rooms tests; do
        [ -d "$folder" ] || continue
        for pattern; do
            find "$folder" -path tests/lint/fixtures -prune -o -type f -name "$pattern" -print
        done
    done | sort
}
# verdict FILE: prints the findings in FILE and ends with 1 when there are any.
verdict() {
    if [ -s "$1" ]; then
        cat "$1"
        echo "$(wc -l <"$1") findings"
        rm -f "$1"
        exit 1
    fi
    rm -f "$1"
    exit 0
}
