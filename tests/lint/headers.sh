# Every header compiles alone, and twice.
#   headers.sh ROOT          needs $CC and $GENERATED
. "$(dirname "$0")/lib.sh"
cd "$1" || exit 1
found=$(mktemp)
flags=$(pkg-config --cflags libzmq msgpack jansson zlib 2>/dev/null)
for header in $(sources '*.h'); do
    source="#include \"$header\"
#include \"$header\"
typedef int lint_not_empty;"
    case $header in *_linux.h) gnu=-D_GNU_SOURCE ;; *) gnu='-D_POSIX_C_SOURCE=200809L -D_DEFAULT_SOURCE' ;; esac
    # shellcheck disable=SC2086
    printf '%s\n' "$source" | ${CC:-cc} -std=c11 $gnu -DPENSTOCK_VERSION='"0"' -Wall -Wextra -Wstrict-prototypes \
        -Werror -fsyntax-only -I. -I"${GENERATED:-.}" $flags -x c - 2>&1 | grep -m 1 -E 'error' |
        sed "s|^|$header: does not compile alone: |"
done >"$found"
verdict "$found"
