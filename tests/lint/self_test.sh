# The checks find what they are for: run over fixtures that break each rule.
#   self_test.sh LINT_FOLDER
set -u
here=$1
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
failed=0
# expect TEXT COUNT: the last check's output has TEXT in COUNT lines.
expect() {
    n=$(grep -c -e "$1" "$out/seen")
    [ "$n" -eq "$2" ] || {
        echo "expected $2 lines with '$1', found $n in:"
        cat "$out/seen"
        failed=1
    }
}
check() { # check NAME ARGUMENT...: must exit with 1
    name=$1
    shift
    sh "$here/$name.sh" "$@" >"$out/seen" 2>&1
    code=$?
    [ $code -eq 1 ] || {
        echo "$name exited with $code on its bad fixture"
        cat "$out/seen"
        failed=1
    }
}
check layers "$here/fixtures/layers"
expect 'base/low.c:1: base must not see engine' 1
expect 'base/low.c:3: include "clock.h" by its path' 1
expect 'base/own.c:1: its own header' 1
expect 'engine/fine.c' 0

check forbidden "$here/fixtures/forbidden"
expect 'net/bad.c:1: only base/settings.c reads' 1
expect 'net/bad.c:1: nothing prints' 1
expect 'net/bad.c:2: not used here' 1
expect 'net/bad.c:3: only a main file' 1
expect 'net/bad.c:3: TODO' 1
expect 'net/bad.c:4' 0
expect '^base/settings.c:' 0

if command -v objdump >/dev/null 2>&1; then
    ${CC:-cc} -std=c11 -O1 -fPIC -c "$here/fixtures/state_bad.c" -o "$out/state_bad.o" || failed=1
    check state "$here/state.allow" "$out/state_bad.o"
    for name in hidden shown per_thread changeable; do expect ": $name in" 1; done
    expect ': counter\.[0-9]* in' 1
    expect ': constant in' 0
    expect ': names in' 0
fi

# A setting that nobody reads, and claims without a test.
mkdir -p "$out/proof/base" "$out/proof/docs" "$out/proof/tests"
printf 'PS_BOOL(%s, 0, 1, "", "x", "y")\n' DEAD LIVE PROVED >"$out/proof/base/settings.def"
echo 'int a = PS_SET_LIVE, b = PS_SET_PROVED;' >"$out/proof/base/reader.c"
echo 'static void it_works(void **state)' >"$out/proof/tests/proof_test.c"
{
    printf '| `%s` | does it | `tests/%s_test.c` | `%s` |\n' PROVED proof it_works \
        LIVE proof it_flies UNKNOWN proof it_works LIVE missing it_works
    echo 'promised: PROVED DEAD'
} >"$out/proof/docs/settings-proof.md"
check settings_proof "$out/proof"
expect 'settings.def: DEAD is read by nobody' 1
expect 'LIVE: tests/proof_test.c has no test it_flies' 1
expect 'UNKNOWN is no setting' 1
expect 'LIVE: no file tests/missing_test.c' 1
expect 'DEAD has no row with a test' 1
expect 'PROVED' 0

# Files that are too long, and two of one name.
mkdir -p "$out/long/base" "$out/long/net"
awk 'BEGIN { for (i = 0; i < 900; i++) print "/* " i " */" }' >"$out/long/base/long.c"
cp "$out/long/base/long.c" "$out/long/net/long.c"
: >"$out/long/base/CMakeLists.txt"
check length "$out/long"
expect 'base/long.c: 900 lines' 1
check names "$out/long"
expect 'net/long.c: the name is also' 1
check readme "$out/long"
expect 'base: no README.md' 1
printf 'see [x](no/such.md), [y](README.md), [z](https://x.y/z), `[c](code)`\n' >"$out/long/README.md"
check links "$out/long"
expect "README.md:1: no file 'no/such.md'" 1
expect 'no file' 1
exit $failed
