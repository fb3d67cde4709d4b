/* Runs a fuzz target without libFuzzer: every file of the given folders once, then
 * MUTATIONS changed copies of each, from a seed that depends on the file's bytes only, so
 * that a failure repeats.  The same LLVMFuzzerTestOneInput is driven by libFuzzer in a
 * PENSTOCK_FUZZ build.
 *
 *   x_fuzz [--mutations N] FOLDER|FILE ...
 *
 * The input of a crash is the last one announced: the file and the mutation's number are
 * written to the standard error before a mutation runs when --verbose is given. */
#include "base/rng.h"
#include "base/str.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define MUTATIONS 200
#define INPUT_BYTES_MAX (UINT32_C(16) << 20)
#define GROW_BYTES 64 /* room for insertions */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct replay {
    uint64_t mutations;
    bool verbose;
    size_t files, runs;
};

/* A copy of exactly 'size' bytes on the heap, so that a sanitizer sees the first byte
 * read too far. */
static bool run_once(struct replay *replay, const uint8_t *data, size_t size)
{
    uint8_t *copy = malloc(size ? size : 1);
    if (!copy) {
        return false;
    }
    if (size) {
        memcpy(copy, data, size);
    }
    (void)LLVMFuzzerTestOneInput(copy, size);
    free(copy);
    replay->runs++;
    return true;
}

/* One to four small changes: a flipped bit, an extreme byte or word, a cut, a repeated
 * run. */
static size_t mutate(struct ps_rng *rng, uint8_t *data, size_t size, size_t capacity)
{
    static const uint8_t extremes[] = {0x00, 0x01, 0x7f, 0x80, 0xfe,
                                       0xff, '0',  '"',  '{',  '\n'};
    uint64_t changes = 1 + ps_rng_below(rng, 4);

    for (uint64_t i = 0; i < changes; i++) {
        if (size == 0) {
            data[0] = (uint8_t)ps_rng_u64(rng);
            size = 1;
            continue;
        }
        size_t at = (size_t)ps_rng_below(rng, size);
        switch (ps_rng_below(rng, 6)) {
        case 0:
            data[at] ^= (uint8_t)(1U << ps_rng_below(rng, 8));
            break;
        case 1:
            data[at] = extremes[ps_rng_below(rng, sizeof(extremes))];
            break;
        case 2: /* a whole little-endian word becomes small, or huge */
            for (size_t b = 0; b < 8 && at + b < size; b++) {
                data[at + b] = (ps_rng_u64(rng) & 1) ? 0xff : 0x00;
            }
            break;
        case 3: /* truncated */
            size = at;
            break;
        case 4: { /* one byte doubled: everything behind it moves */
            if (size < capacity) {
                memmove(data + at + 1, data + at, size - at);
                size++;
            }
            break;
        }
        default: { /* a run copied over another place */
            size_t from = (size_t)ps_rng_below(rng, size);
            size_t room = size - (at > from ? at : from);
            memmove(data + at, data + from, (size_t)ps_rng_below(rng, room + 1));
            break;
        }
        }
    }
    return size;
}

static bool replay_bytes(struct replay *replay, const char *name, const uint8_t *data,
                         size_t size)
{
    size_t capacity = size + GROW_BYTES;
    uint8_t *work = malloc(capacity);
    if (!work || !run_once(replay, data, size)) {
        free(work);
        return false;
    }
    struct ps_rng rng;
    ps_rng_init(&rng, ps_hash_bytes(data, size));
    for (uint64_t i = 0; i < replay->mutations; i++) {
        if (size) {
            memcpy(work, data, size);
        }
        size_t changed = mutate(&rng, work, size, capacity);
        if (replay->verbose) {
            fprintf(stderr, "%s mutation %llu size %zu\n", name, (unsigned long long)i,
                    changed);
        }
        if (!run_once(replay, work, changed)) {
            free(work);
            return false;
        }
    }
    free(work);
    return true;
}

static bool replay_file(struct replay *replay, const char *path, off_t file_size)
{
    if (file_size < 0 || (uint64_t)file_size > INPUT_BYTES_MAX) {
        fprintf(stderr, "%s: larger than %u bytes\n", path, (unsigned)INPUT_BYTES_MAX);
        return false;
    }
    FILE *file = fopen(path, "rb");
    if (!file) {
        fprintf(stderr, "%s: %s\n", path, strerror(errno));
        return false;
    }
    size_t size = (size_t)file_size;
    uint8_t *data = malloc(size ? size : 1);
    bool ok = data && fread(data, 1, size, file) == size;
    (void)fclose(file);
    if (ok) {
        replay->files++;
        ok = replay_bytes(replay, path, data, size);
    } else {
        fprintf(stderr, "%s: cannot be read\n", path);
    }
    free(data);
    return ok;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Folders are read in the order of names, so that two runs are the same. */
static bool replay_folder(struct replay *replay, const char *folder)
{
    char *names[4096];
    size_t count = 0;
    bool ok = true;
    DIR *dir = opendir(folder);
    if (!dir) {
        fprintf(stderr, "%s: %s\n", folder, strerror(errno));
        return false;
    }
    for (struct dirent *entry; ok && (entry = readdir(dir));) {
        if (entry->d_name[0] == '.') {
            continue;
        }
        ok = count < sizeof(names) / sizeof(names[0]);
        if (ok) {
            names[count] = ps_strdup(entry->d_name);
            ok = names[count] != NULL;
            count += ok;
        }
    }
    (void)closedir(dir);
    qsort(names, count, sizeof(names[0]), by_name);
    for (size_t i = 0; i < count; i++) {
        char path[4096];
        struct stat info;
        int length = snprintf(path, sizeof(path), "%s/%s", folder, names[i]);
        if (ok && length > 0 && (size_t)length < sizeof(path) && stat(path, &info) == 0 &&
            S_ISREG(info.st_mode)) {
            ok = replay_file(replay, path, info.st_size);
        }
        free(names[i]);
    }
    return ok;
}

int main(int argc, char **argv)
{
    struct replay replay = {.mutations = MUTATIONS};
    bool ok = true;

    for (int i = 1; ok && i < argc; i++) {
        struct stat info;
        if (strcmp(argv[i], "--mutations") == 0 && i + 1 < argc) {
            ok = ps_parse_u64(argv[++i], &replay.mutations) == PS_OK;
        } else if (strcmp(argv[i], "--verbose") == 0) {
            replay.verbose = true;
        } else if (stat(argv[i], &info) != 0) {
            fprintf(stderr, "%s: %s\n", argv[i], strerror(errno));
            ok = false;
        } else if (S_ISDIR(info.st_mode)) {
            ok = replay_folder(&replay, argv[i]);
        } else {
            ok = replay_file(&replay, argv[i], info.st_size);
        }
    }
    /* The empty input, which corpora tend to forget; NULL is not passed, as with
     * libFuzzer. */
    ok = ok && replay_bytes(&replay, "(empty)", (const uint8_t *)"", 0);
    printf("%zu files, %zu runs: %s\n", replay.files, replay.runs, ok ? "ok" : "FAILED");
    if (ok && replay.files == 0) {
        fprintf(stderr, "no corpus file was given\n");
        ok = false;
    }
    return ok ? 0 : 1;
}
