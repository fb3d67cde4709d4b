# Calls and words that have one place, or none (STYLE.md; DESIGN.md 2 and 10).
#   forbidden.sh ROOT        needs $STRIP, the lint_strip program
. "$(dirname "$0")/lib.sh"
: "${STRIP:?set STRIP to lint_strip}"
cd "$1" || exit 1
found=$(mktemp)
code=$(mktemp)
text=$(mktemp)
trap 'rm -f "$code" "$text"' EXIT
sources '*.c' '*.h' '*.inc' | xargs "$STRIP" >"$code"
sources '*.c' '*.h' '*.inc' '*.def' '*.sh' CMakeLists.txt | grep -v '^tests/lint/' |
    xargs grep -n '' /dev/null >"$text"

# calls NAMES ALLOWED REASON: calls of the functions NAMES ("a|b") outside paths that match ALLOWED.
calls() {
    grep -E "(^|[^A-Za-z0-9_.>])($1)[ 	]*\\(" "$code" | grep -Ev "^($2)" |
        sed -E "s#^([^:]*:[0-9]+):[ 	]*(.*)#\\1: $3: \\2#"
}
# words REGEX ALLOWED REASON: in code, comments and strings.
words() {
    grep -E "^[^:]*:[0-9]+:.*($1)" "$text" | grep -Ev "^($2)" |
        sed -E "s#^([^:]*:[0-9]+):[ 	]*(.*)#\\1: $3: \\2#"
}
none='nowhere:'
{
    calls 'getenv|secure_getenv' 'base/settings\.c:|tests/' 'only base/settings.c reads the environment'
    calls 'exit|_exit|_Exit|quick_exit|abort' \
        'base/fault[a-z_]*\.c:|deploy/launch_(child|front)_linux\.c:|tests/' \
        'only a main file ends the process'
    calls 'atoi|atol|atoll|atof|strtok|sprintf|vsprintf|strcpy|strcat|stpcpy|gets|alloca' "$none" 'not used here'
    calls 'sleep|usleep|nanosleep|clock_nanosleep|clock_gettime|gettimeofday|time|thrd_sleep' \
        'base/|tests/bench/' 'time comes from base/clock.h'
    calls 'rand|srand|random|srandom|drand48|getrandom|getentropy' 'base/' 'random numbers come from base/rng.h'
    calls 'pthread_cond_[a-z]+|pthread_create|pthread_mutex_[a-z]+|sem_wait' 'base/|tests/' \
        'threads and waits come from base/thread.h'
    calls 'fsync|fdatasync|syncfs' 'base/' 'files go through base/fs.h'
    calls 'fork|vfork|system|popen|posix_spawn' 'deploy/launch_(child|front)_linux\.c:|tests/' \
        'only the launcher starts processes'
    calls 'printf|vprintf|puts|putchar|perror' \
        "base/(log|options|settings[a-z_]*)\\.c:|deploy/|tests/|[a-z_/]*(cmd|command|progress)[a-z_]*\\.c:|worker/report\\.c:" \
        'nothing prints outside base/log.c and the commands'
    grep -E '(fprintf|fputs|fputc|fwrite|write|dprintf)[ 	]*\(.*(stdout|stderr|STDOUT_FILENO|STDERR_FILENO)' "$code" |
        grep -Ev "^(base/(log|options|settings[a-z_]*)\\.c:|deploy/|tests/|[a-z_/]*(cmd|command|progress)[a-z_]*\\.c:|worker/report\\.c:)" |
        sed -E 's#^([^:]*:[0-9]+):[ 	]*(.*)#\1: nothing prints outside base/log.c and the commands: \2#'
    grep -E '#[ 	]*define[ 	]+_GNU_SOURCE' "$code" |
        sed -E 's#^([^:]*:[0-9]+):.*#\1: _GNU_SOURCE comes from the name *_linux.c#'
    grep -E '(^|[^A-Za-z0-9_])typedef[ 	]+(struct|enum|union)[^()]*$' "$code" |
        grep -Ev '^(tests/|api/penstock\.h:)' |
        sed -E 's#^([^:]*:[0-9]+):[ 	]*(.*)#\1: structs and enums are not typedefed: \2#'
    words '(^|[^A-Za-z])(TODO([^(]|$|\([^#])|FIXME|XXX([^X]|$))' "$none" 'TODO(\#issue) only'
    words '[Ff]or now[ .,;:]|[Ss]implified' "$none" 'says that it is unfinished'
} >"$found"
verdict "$found"
