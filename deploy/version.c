/* `penstock version`: what was built, with what, and what it runs on. */
#include "deploy/commands.h"

#include "base/options.h"
#include "deploy/build_info.h"
#include "kernels/kernels.h"

#include <stdio.h>
#include <zmq.h>

#if defined(__clang__)
#define COMPILER "clang " __clang_version__
#elif defined(__GNUC__)
#define COMPILER "gcc " __VERSION__
#else
#define COMPILER "unknown"
#endif

/* Which BLAS core was picked decides the speed by a factor of five. */
static void print_kernels(void)
{
    struct ps_kernels *kernels = NULL;
    struct ps_str text = {0};
    if (ps_kernels_create(NULL, NULL, &kernels, NULL) == PS_OK) {
        ps_kernels_describe(kernels, &text);
        printf("%s\n", ps_str_text(&text));
    }
    ps_kernels_destroy(kernels);
    ps_str_fini(&text);
}

static void print_version(void)
{
    int major, minor, patch;
    zmq_version(&major, &minor, &patch);
    printf("penstock %s (%s)\n", PENSTOCK_VERSION, PENSTOCK_GIT_DESCRIBE);
    printf("compiler %s, build type %s%s%s\n", COMPILER, PENSTOCK_BUILD_TYPE,
           PENSTOCK_SANITIZERS[0] ? ", sanitizers " : "", PENSTOCK_SANITIZERS);
    printf("zeromq %d.%d.%d\n", major, minor, patch);
    print_kernels();
}

int ps_cmd_version(int argc, char **argv)
{
    static const struct ps_command command = {
        .name = "penstock version",
        .synopsis = "penstock version",
        .summary = "Prints the version, how it was built and which libraries it uses."};
    struct ps_error err = {0};
    int operand = 0;
    bool help = false;

    if (ps_options_parse(&command, argc, argv, &operand, &help, &err) != PS_OK) {
        fprintf(stderr, "penstock version: %s\n", err.text);
        return PS_EXIT_USAGE;
    }
    if (!help) {
        print_version();
    }
    return PS_EXIT_OK;
}
