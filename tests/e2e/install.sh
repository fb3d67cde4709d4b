# What `cmake --install` installs is enough to build and run a program: with pkg-config against the
# shared and the static library, and with the CMake package.
. "$(dirname "$0")/lib.sh"
: "${BUILD:?}"
[ -e "$BUILD/deploy/libpenstock.so" ] || skip "this build has no libpenstock"
prefix=$work/prefix
cmake --install "$BUILD" --prefix "$prefix" >"$work/out" 2>&1 || fail "cmake --install"
pc=$(dirname "$(find "$prefix" -name penstock.pc)")
lib=$(dirname "$pc")
[ -x "$prefix/bin/penstock" ] || fail "no bin/penstock"
[ -f "$prefix/include/penstock.h" ] || fail "no penstock.h"
[ -f "$prefix/include/penstock/unstable/base/status.h" ] || fail "no unstable headers"
[ -L "$lib/libpenstock.so.0" ] || fail "no libpenstock.so.0"
"$prefix/bin/penstock" version >"$work/out" 2>&1 || fail "the installed program does not run"

cat >"$work/main.c" <<'SOURCE'
#include <penstock.h>
#include <stdio.h>
int main(void)
{
    penstock_node *node = NULL;
    int status = penstock_open(NULL, &node);
    printf("%s %d %s\n", penstock_version(), penstock_abi(), penstock_status_name(status));
    penstock_close(node);
    return status == 0 ? 0 : 1;
}
SOURCE
# The .pc file finds its prefix by itself: cmake --install chose another than was configured.
pkg() { PKG_CONFIG_PATH=$pc pkg-config "$@" penstock; }
# shellcheck disable=SC2046
gcc "$work/main.c" -o "$work/shared" $(pkg --cflags --libs) 2>"$work/err" || fail "shared link"
LD_LIBRARY_PATH=$lib "$work/shared" >"$work/out" 2>&1 || fail "the shared program"
expect_in out PS_OK
# shellcheck disable=SC2046
gcc "$work/main.c" -o "$work/static" $(pkg --cflags) "$lib/libpenstock.a" \
    $(pkg --static --libs-only-l | sed 's/-lpenstock//') 2>"$work/err" || fail "static link"
"$work/static" >"$work/out" 2>&1 || fail "the static program"
expect_in out PS_OK

# Only penstock_* is exported.
if command -v nm >/dev/null 2>&1; then
    nm -D --defined-only "$lib/libpenstock.so" | awk '$2 ~ /[TDBR]/ && $3 !~ /^(penstock_|PENSTOCK_)/' \
        >"$work/out"
    [ -s "$work/out" ] && fail "symbols that are not penstock_* are exported"
fi

mkdir "$work/user"
cat >"$work/user/CMakeLists.txt" <<'CMAKE'
cmake_minimum_required(VERSION 3.22)
project(user C)
find_package(Penstock REQUIRED)
add_executable(shared ../main.c)
target_link_libraries(shared PRIVATE Penstock::penstock)
add_executable(static ../main.c)
target_link_libraries(static PRIVATE Penstock::penstock_static)
CMAKE
{ cmake -S "$work/user" -B "$work/user/build" -DCMAKE_PREFIX_PATH="$prefix" &&
    cmake --build "$work/user/build"; } >"$work/out" 2>&1 || fail "the CMake package"
"$work/user/build/shared" >"$work/out" 2>&1 || fail "the shared program of CMake"
"$work/user/build/static" >"$work/out" 2>&1 || fail "the static program of CMake"
