/* Finding and loading image sets; the shuffle. */
#include "worker/dataset.h"

#include "base/rng.h"
#include "base/util.h"
#include "worker/idx.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define PATH_BYTES 1024
#define FASHION_MNIST_DIR "/usr/share/datasets/fashion-mnist"

/* The usual names of the four files. */
static const char *const image_names[] = {"train-images-idx3-ubyte",
                                          "t10k-images-idx3-ubyte"};
static const char *const label_names[] = {"train-labels-idx1-ubyte",
                                          "t10k-labels-idx1-ubyte"};

static const char *folder_of(const char *name)
{
    return strcasecmp(name, "fashion-mnist") == 0 ? FASHION_MNIST_DIR : name;
}

static enum ps_status load_one(struct ps_fs *fs, const char *name, const char *file,
                               struct ps_idx *idx_out, struct ps_error *err)
{
    static const char *const endings[] = {".gz", ""};
    char path[PATH_BYTES];
    for (size_t i = 0; i < PS_COUNT(endings); i++) {
        int size =
            snprintf(path, sizeof(path), "%s/%s%s", folder_of(name), file, endings[i]);
        if (size < 0 || (size_t)size >= sizeof(path)) {
            return ps_error_set(err, PS_ERANGE, "data \"%.60s...\": the path is too long",
                                name);
        }
        if (ps_fs_exists(fs, path)) {
            return ps_idx_load(fs, path, idx_out, err);
        }
    }
    if (strcasecmp(name, "fashion-mnist") == 0) {
        return ps_error_set(err, PS_ENOENT,
                            "data fashion-mnist: no %s in %s; install the package "
                            "dataset-fashion-mnist or name a folder",
                            file, FASHION_MNIST_DIR);
    }
    return ps_error_set(
        err, PS_ENOENT,
        "data \"%s\": no %s or %s.gz in that folder; fashion-mnist, mnist or a "
        "folder of the four IDX files is accepted",
        name, file, file);
}

enum ps_status ps_dataset_load(struct ps_fs *fs, const char *name,
                               enum ps_dataset_part part, struct ps_dataset *dataset_out,
                               struct ps_error *err)
{
    struct ps_idx images = {0}, labels = {0};
    enum ps_status status = PS_OK;
    PS_TRY_GOTO(status, load_one(fs, name, image_names[part], &images, err), fail);
    PS_TRY_GOTO(status, load_one(fs, name, label_names[part], &labels, err), fail);
    if (images.ndim != 3 || labels.ndim != 1 || images.dim[0] != labels.dim[0] ||
        images.dim[0] == 0 || images.dim[1] == 0 || images.dim[2] == 0) {
        status = ps_error_set(
            err, PS_ECORRUPT,
            "data \"%s\": images of %d dimensions (%u) and labels of %d (%u) do "
            "not belong together",
            name, images.ndim, images.dim[0], labels.ndim, labels.dim[0]);
        goto fail;
    }
    uint8_t largest = 0;
    for (size_t i = 0; i < labels.size; i++) {
        largest = PS_MAX(largest, labels.data[i]);
    }
    *dataset_out = (struct ps_dataset){
        .images = images.data,
        .labels = labels.data,
        .count = images.dim[0],
        .rows = images.dim[1],
        .columns = images.dim[2],
        .classes = PS_MAX((uint32_t)largest + 1, 10u),
    };
    return PS_OK;
fail:
    ps_idx_fini(&images);
    ps_idx_fini(&labels);
    return status;
}

void ps_dataset_fini(struct ps_dataset *dataset)
{
    free(dataset->images);
    free(dataset->labels);
    dataset->images = NULL;
    dataset->labels = NULL;
}

void ps_dataset_shuffle(uint32_t *order, uint32_t count, uint64_t seed, uint64_t epoch)
{
    struct ps_rng rng;
    ps_rng_init(&rng, ps_hash_u64(seed) ^ ps_hash_u64(epoch + 1));
    for (uint32_t i = 0; i < count; i++) {
        order[i] = i;
    }
    for (uint32_t i = count; i > 1; i--) { /* Fisher-Yates */
        uint32_t j = (uint32_t)ps_rng_below(&rng, i);
        uint32_t other = order[j];
        order[j] = order[i - 1];
        order[i - 1] = other;
    }
}

uint32_t ps_dataset_batches(uint32_t count, uint32_t workers, uint32_t batch)
{
    return (uint32_t)(count / ((uint64_t)workers * batch));
}
