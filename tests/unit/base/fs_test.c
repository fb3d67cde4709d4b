/* Files: what both file systems share, and what a crash takes from the simulated one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/fs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct place {
    struct ps_fs *fs;
    bool simulated;
    char dir[64];
};

static int open_real(void **state)
{
    static struct place place;
    place = (struct place){.fs = ps_fs_real()};
    (void)snprintf(place.dir, sizeof(place.dir), "/tmp/penstock-fs-XXXXXX");
    *state = &place;
    return mkdtemp(place.dir) == NULL ? -1 : 0;
}

static int open_sim(void **state)
{
    static struct place place;
    place = (struct place){.simulated = true, .dir = "/data"};
    *state = &place;
    return ps_fs_sim_create(&place.fs) == PS_OK ? 0 : -1;
}

static int close_place(void **state)
{
    struct place *place = *state;
    if (place->simulated) {
        ps_fs_sim_destroy(place->fs);
        return 0;
    }
    static const char *const names[] = {"a", "b"};
    char path[96];
    for (size_t i = 0; i < 2; i++) {
        (void)snprintf(path, sizeof(path), "%s/%s", place->dir, names[i]);
        (void)unlink(path);
    }
    return rmdir(place->dir); /* fails when a temporary file was left behind */
}

static const char *path_of(const struct place *place, const char *name, char out[96])
{
    (void)snprintf(out, 96, "%s/%s", place->dir, name);
    return out;
}

static void put(struct ps_fs *fs, const char *path, enum ps_fs_mode mode,
                const char *text, bool sync)
{
    struct ps_file *file = NULL;
    assert_int_equal(ps_fs_open(fs, path, mode, &file, NULL), PS_OK);
    assert_int_equal(ps_file_write(file, text, strlen(text)), PS_OK);
    if (sync) {
        assert_int_equal(ps_file_sync(file), PS_OK);
    }
    ps_file_close(file);
}

static void expect(struct ps_fs *fs, const char *path, const char *text)
{
    char *data = NULL;
    size_t size = 0;
    struct ps_error err;
    if (text == NULL) {
        assert_false(ps_fs_exists(fs, path));
        assert_int_equal(ps_fs_read_all(fs, path, 100, &data, &size, &err), PS_ENOENT);
        assert_non_null(strstr(err.text, path));
        return;
    }
    assert_int_equal(ps_fs_read_all(fs, path, 100, &data, &size, &err), PS_OK);
    assert_string_equal(data, text);
    assert_int_equal(size, strlen(text));
    free(data);
}

static void files_are_written_read_renamed_and_removed(void **state)
{
    struct place *place = *state;
    struct ps_fs *fs = place->fs;
    char a[96], b[96], none[96];
    uint64_t size = 0;
    path_of(place, "a", a);
    path_of(place, "b", b);
    path_of(place, "none", none);
    expect(fs, a, NULL);
    put(fs, a, PS_FS_CREATE, "hello", true);
    put(fs, a, PS_FS_APPEND, " world", false);
    expect(fs, a, "hello world");
    assert_int_equal(ps_fs_size(fs, a, &size), PS_OK);
    assert_int_equal(size, 11);
    struct ps_file *file = NULL;
    assert_int_equal(ps_fs_open(fs, b, PS_FS_CREATE, &file, NULL), PS_OK);
    assert_int_equal(ps_file_write(file, "abcdef", 6), PS_OK);
    assert_int_equal(ps_file_write_at(file, 2, "CD", 2), PS_OK);
    assert_int_equal(ps_file_write_at(file, 5, "FGH", 3), PS_OK); /* past the end */
    assert_int_equal(ps_file_write_at(file, 9, "x", 1), PS_EINVAL);
    ps_file_close(file);
    expect(fs, b, "abCDeFGH");
    put(fs, b, PS_FS_CREATE, "old", false);
    assert_int_equal(ps_fs_rename(fs, a, b), PS_OK);
    expect(fs, a, NULL);
    expect(fs, b, "hello world");
    put(fs, b, PS_FS_CREATE, "new", false);
    expect(fs, b, "new");
    assert_int_equal(ps_fs_remove(fs, b), PS_OK);
    assert_int_equal(ps_fs_remove(fs, b), PS_ENOENT);
    assert_int_equal(ps_fs_rename(fs, none, b), PS_ENOENT);
    assert_int_equal(ps_fs_size(fs, none, &size), PS_ENOENT);
}

static void reading_goes_on_where_it_stopped(void **state)
{
    struct place *place = *state;
    struct ps_file *file = NULL;
    char path[96], part[8] = {0};
    size_t n = 0;
    put(place->fs, path_of(place, "a", path), PS_FS_CREATE, "0123456789", false);
    assert_int_equal(ps_fs_open(place->fs, path, PS_FS_READ, &file, NULL), PS_OK);
    assert_int_equal(ps_file_read(file, part, 6, &n), PS_OK);
    assert_int_equal(n, 6);
    assert_int_equal(ps_file_read(file, part, 6, &n), PS_OK);
    assert_int_equal(n, 4);
    assert_memory_equal(part, "6789", 4);
    assert_int_equal(ps_file_read(file, part, 6, &n), PS_OK);
    assert_int_equal(n, 0);
    assert_int_equal(ps_file_write(file, "x", 1), PS_EIO);
    ps_file_close(file);
    ps_file_close(NULL);
}

static void whole_files_have_a_limit_and_replace_at_once(void **state)
{
    struct place *place = *state;
    struct ps_error err = {0};
    char path[96];
    char *data = NULL;
    size_t size = 0;
    path_of(place, "a", path);
    assert_int_equal(ps_fs_write_all(place->fs, path, "one", 3, &err), PS_OK);
    assert_int_equal(ps_fs_write_all(place->fs, path, "two!", 4, &err), PS_OK);
    expect(place->fs, path, "two!");
    assert_int_equal(ps_fs_read_all(place->fs, path, 3, &data, &size, &err), PS_ERANGE);
    assert_non_null(strstr(err.text, "4 bytes"));
    assert_null(data);
    if (!place->simulated) {
        assert_int_equal(ps_fs_write_all(place->fs, "/nowhere/at/all", "x", 1, &err),
                         PS_ENOENT);
        assert_non_null(strstr(err.text, "/nowhere/at/all"));
        assert_int_equal(ps_fs_read_all(place->fs, place->dir, 100, &data, &size, &err),
                         PS_EIO);
    }
}

/* ---- the simulated one only ---- */

static void a_crash_loses_what_was_not_synced(void **state)
{
    struct place *place = *state;
    struct ps_fs *fs = place->fs;
    put(fs, "synced", PS_FS_CREATE, "kept", true);
    put(fs, "synced", PS_FS_APPEND, " lost", false);
    put(fs, "new", PS_FS_CREATE, "lost", false);
    put(fs, "removed", PS_FS_CREATE, "back", true);
    assert_int_equal(ps_fs_remove(fs, "removed"), PS_OK);
    expect(fs, "synced", "kept lost");
    expect(fs, "removed", NULL);
    ps_fs_sim_crash(fs);
    expect(fs, "synced", "kept");
    expect(fs, "new", NULL);
    expect(fs, "removed", "back");
    /* truncated and not synced: the old bytes */
    put(fs, "synced", PS_FS_CREATE, "a much longer text", false);
    ps_fs_sim_crash(fs);
    ps_fs_sim_crash(fs);
    expect(fs, "synced", "kept");
}

static void a_rename_without_sync_keeps_the_name_and_loses_the_bytes(void **state)
{
    struct place *place = *state;
    struct ps_fs *fs = place->fs;
    put(fs, "a", PS_FS_CREATE, "old", true);
    put(fs, "a.tmp", PS_FS_CREATE, "new", false);
    assert_int_equal(ps_fs_rename(fs, "a.tmp", "a"), PS_OK);
    expect(fs, "a", "new");
    ps_fs_sim_crash(fs);
    expect(fs, "a", ""); /* the classic fault */
    expect(fs, "a.tmp", NULL);
    assert_int_equal(ps_fs_write_all(fs, "a", "safe", 4, NULL), PS_OK);
    ps_fs_sim_crash(fs);
    expect(fs, "a", "safe");
}

static void open_files_die_with_the_crash(void **state)
{
    struct place *place = *state;
    struct ps_file *file = NULL;
    assert_int_equal(ps_fs_open(place->fs, "a", PS_FS_CREATE, &file, NULL), PS_OK);
    ps_fs_sim_crash(place->fs);
    assert_int_equal(ps_file_write(file, "x", 1), PS_EIO);
    assert_int_equal(ps_file_sync(file), PS_EIO);
    ps_file_close(file);
    expect(place->fs, "a", NULL);
}

static void a_full_disk_says_so_and_the_old_file_stays(void **state)
{
    struct place *place = *state;
    struct ps_error err = {0};
    ps_fs_sim_set_capacity(place->fs, 10);
    assert_int_equal(ps_fs_write_all(place->fs, "a", "12345", 5, &err), PS_OK);
    assert_int_equal(ps_fs_write_all(place->fs, "a", "123456", 6, &err), PS_EFULL);
    assert_non_null(strstr(err.text, "full"));
    expect(place->fs, "a", "12345");
    /* nothing of the failed attempt is left */
    assert_int_equal(ps_fs_write_all(place->fs, "b", "12345", 5, &err), PS_OK);
    assert_int_equal(ps_fs_remove(place->fs, "a"), PS_OK);
    assert_int_equal(ps_fs_write_all(place->fs, "c", "12345", 5, &err), PS_OK);
}

int main(void)
{
#define BOTH(f)                                                 \
    cmocka_unit_test_setup_teardown(f, open_real, close_place), \
        cmocka_unit_test_setup_teardown(f, open_sim, close_place)
#define SIM(f) cmocka_unit_test_setup_teardown(f, open_sim, close_place)
    const struct CMUnitTest tests[] = {
        BOTH(files_are_written_read_renamed_and_removed),
        BOTH(reading_goes_on_where_it_stopped),
        BOTH(whole_files_have_a_limit_and_replace_at_once),
        SIM(a_crash_loses_what_was_not_synced),
        SIM(a_rename_without_sync_keeps_the_name_and_loses_the_bytes),
        SIM(open_files_die_with_the_crash),
        SIM(a_full_disk_says_so_and_the_old_file_stays),
    };
    return cmocka_run_group_tests_name("fs", tests, NULL, NULL);
}
