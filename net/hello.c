/* HELLO and error bodies in msgpack.  Encoding goes through msgpack-c; decoding first
 * walks the bytes (msgpack_scan.c), then lets msgpack-c build its objects. */
#include "net/hello.h"

#include <msgpack.h>
#include <string.h>

static void pack_key(msgpack_packer *packer, const char *key)
{
    size_t size = strlen(key);
    msgpack_pack_str(packer, size);
    msgpack_pack_str_body(packer, key, size);
}

static void pack_uint(msgpack_packer *packer, const char *key, uint64_t value)
{
    pack_key(packer, key);
    msgpack_pack_uint64(packer, value);
}

static enum ps_status take_sbuffer(msgpack_sbuffer *sbuffer, struct ps_buf **body_out)
{
    struct ps_buf *body = sbuffer->size == 0 ? NULL : ps_buf_create(sbuffer->size);
    if (body != NULL) {
        memcpy(body->data, sbuffer->data, sbuffer->size);
        *body_out = body;
    }
    msgpack_sbuffer_destroy(sbuffer);
    return body == NULL ? PS_ENOMEM : PS_OK;
}

enum ps_status ps_hello_encode(const struct ps_hello *hello, struct ps_buf **body_out)
{
    msgpack_sbuffer sbuffer;
    msgpack_packer packer;
    msgpack_sbuffer_init(&sbuffer);
    msgpack_packer_init(&packer, &sbuffer, msgpack_sbuffer_write);
    msgpack_pack_map(&packer, 13);
    pack_key(&packer, "uuid");
    msgpack_pack_bin(&packer, PS_UUID_BYTES);
    msgpack_pack_bin_body(&packer, hello->uuid, PS_UUID_BYTES);
    pack_uint(&packer, "member", hello->member);
    pack_uint(&packer, "role", (uint64_t)hello->role);
    pack_uint(&packer, "rank", hello->rank);
    pack_uint(&packer, "proto_min", hello->proto_min);
    pack_uint(&packer, "proto_max", hello->proto_max);
    pack_uint(&packer, "features", hello->features);
    pack_uint(&packer, "frame_max", hello->frame_bytes_max);
    pack_uint(&packer, "lane", hello->lane);
    pack_uint(&packer, "lanes", hello->lane_count);
    pack_uint(&packer, "nonce", hello->nonce);
    pack_uint(&packer, "pid", hello->pid);
    size_t host_size = strnlen(hello->host, sizeof(hello->host) - 1);
    pack_key(&packer, "host");
    msgpack_pack_str(&packer, host_size);
    msgpack_pack_str_body(&packer, hello->host, host_size);
    return take_sbuffer(&sbuffer, body_out);
}

static bool key_is(const msgpack_object *key, const char *name)
{
    size_t size = strlen(name);
    return key->type == MSGPACK_OBJECT_STR && key->via.str.size == size &&
           memcmp(key->via.str.ptr, name, size) == 0;
}

/* Copies text of a peer: cut to fit, anything unprintable becomes '?'. */
static void copy_text(const char *data, size_t size, char *out, size_t out_size)
{
    size_t n = PS_MIN(size, out_size - 1);
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)data[i];
        out[i] = (char)(c < 0x20 || c == 0x7f ? '?' : c);
    }
    out[n] = '\0';
}

struct number {
    const char *name;
    uint64_t max;
    uint64_t value; /* holds the default */
};

enum {
    N_MEMBER,
    N_ROLE,
    N_RANK,
    N_PROTO_MIN,
    N_PROTO_MAX,
    N_FEATURES,
    N_FRAME_MAX,
    N_LANE,
    N_LANES,
    N_NONCE,
    N_PID,
    N_COUNT
};

static enum ps_status decode_number(struct number *numbers, const msgpack_object_kv *pair,
                                    struct ps_error *err)
{
    for (size_t i = 0; i < N_COUNT; i++) {
        if (!key_is(&pair->key, numbers[i].name)) {
            continue;
        }
        if (pair->val.type != MSGPACK_OBJECT_POSITIVE_INTEGER ||
            pair->val.via.u64 > numbers[i].max) {
            return ps_error_set(err, PS_EPROTO,
                                "HELLO %s: must be a number from 0 to %llu",
                                numbers[i].name, (unsigned long long)numbers[i].max);
        }
        numbers[i].value = pair->val.via.u64;
    }
    return PS_OK;
}

static enum ps_status decode_pair(const msgpack_object_kv *pair, struct number *numbers,
                                  struct ps_hello *hello, struct ps_error *err)
{
    if (key_is(&pair->key, "uuid")) {
        if (pair->val.type != MSGPACK_OBJECT_BIN ||
            pair->val.via.bin.size != PS_UUID_BYTES) {
            return ps_error_set(err, PS_EPROTO, "HELLO uuid: must be 16 bytes");
        }
        memcpy(hello->uuid, pair->val.via.bin.ptr, PS_UUID_BYTES);
        return PS_OK;
    }
    if (key_is(&pair->key, "host")) {
        if (pair->val.type != MSGPACK_OBJECT_STR) {
            return ps_error_set(err, PS_EPROTO, "HELLO host: must be text");
        }
        copy_text(pair->val.via.str.ptr, pair->val.via.str.size, hello->host,
                  sizeof(hello->host));
        return PS_OK;
    }
    return decode_number(numbers, pair, err);
}

static enum ps_status decode_map(const msgpack_object_map *map, struct ps_hello *hello,
                                 struct ps_error *err)
{
    struct number numbers[N_COUNT] = {
        [N_MEMBER] = {"member", UINT32_MAX, 0},
        [N_ROLE] = {"role", PS_ROLE_SCHEDULER, PS_ROLE_NONE},
        [N_RANK] = {"rank", UINT32_MAX, UINT32_MAX},
        [N_PROTO_MIN] = {"proto_min", UINT16_MAX, 0},
        [N_PROTO_MAX] = {"proto_max", UINT16_MAX, 0},
        [N_FEATURES] = {"features", UINT64_MAX, 0},
        [N_FRAME_MAX] = {"frame_max", UINT32_MAX, 0},
        [N_LANE] = {"lane", UINT16_MAX, 0},
        [N_LANES] = {"lanes", UINT16_MAX, 1},
        [N_NONCE] = {"nonce", UINT64_MAX, 0},
        [N_PID] = {"pid", UINT32_MAX, 0},
    };
    for (uint32_t i = 0; i < map->size; i++) {
        PS_TRY(decode_pair(&map->ptr[i], numbers, hello, err));
    }
    if (numbers[N_PROTO_MIN].value > numbers[N_PROTO_MAX].value) {
        return ps_error_set(err, PS_EPROTO, "HELLO proto: %llu to %llu is no range",
                            (unsigned long long)numbers[N_PROTO_MIN].value,
                            (unsigned long long)numbers[N_PROTO_MAX].value);
    }
    if (numbers[N_LANE].value >= numbers[N_LANES].value) {
        return ps_error_set(err, PS_EPROTO, "HELLO lane %llu: there are %llu",
                            (unsigned long long)numbers[N_LANE].value,
                            (unsigned long long)numbers[N_LANES].value);
    }
    hello->member = (uint32_t)numbers[N_MEMBER].value;
    hello->role = (enum ps_role)numbers[N_ROLE].value;
    hello->rank = (uint32_t)numbers[N_RANK].value;
    hello->proto_min = (uint16_t)numbers[N_PROTO_MIN].value;
    hello->proto_max = (uint16_t)numbers[N_PROTO_MAX].value;
    hello->features = numbers[N_FEATURES].value;
    hello->frame_bytes_max = (uint32_t)numbers[N_FRAME_MAX].value;
    hello->lane = (uint16_t)numbers[N_LANE].value;
    hello->lane_count = (uint16_t)numbers[N_LANES].value;
    hello->nonce = numbers[N_NONCE].value;
    hello->pid = (uint32_t)numbers[N_PID].value;
    return PS_OK;
}

/* On true the caller destroys 'unpacked'. */
static bool unpack_map(const void *data, size_t size, msgpack_unpacked *unpacked)
{
    if (size > PS_HELLO_BYTES_MAX || !ps_msgpack_is_sane(data, size)) {
        return false;
    }
    size_t offset = 0;
    msgpack_unpacked_init(unpacked);
    if (msgpack_unpack_next(unpacked, data, size, &offset) == MSGPACK_UNPACK_SUCCESS &&
        unpacked->data.type == MSGPACK_OBJECT_MAP) {
        return true;
    }
    msgpack_unpacked_destroy(unpacked);
    return false;
}

enum ps_status ps_hello_decode(const void *data, size_t size, struct ps_hello *hello_out,
                               struct ps_error *err)
{
    msgpack_unpacked unpacked;
    if (!unpack_map(data, size, &unpacked)) {
        return ps_error_set(err, PS_EPROTO,
                            "HELLO body of %zu bytes: must be one msgpack map of at "
                            "most %d bytes",
                            size, PS_HELLO_BYTES_MAX);
    }
    struct ps_hello hello;
    memset(&hello, 0, sizeof(hello));
    enum ps_status status = decode_map(&unpacked.data.via.map, &hello, err);
    msgpack_unpacked_destroy(&unpacked);
    if (status == PS_OK) {
        *hello_out = hello;
    }
    return status;
}

enum ps_status ps_error_body_encode(const char *text, struct ps_buf **body_out)
{
    msgpack_sbuffer sbuffer;
    msgpack_packer packer;
    msgpack_sbuffer_init(&sbuffer);
    msgpack_packer_init(&packer, &sbuffer, msgpack_sbuffer_write);
    msgpack_pack_map(&packer, 1);
    pack_key(&packer, "error");
    pack_key(&packer, text);
    return take_sbuffer(&sbuffer, body_out);
}

bool ps_error_body_decode(const void *data, size_t size,
                          char text_out[PS_ERROR_TEXT_BYTES])
{
    msgpack_unpacked unpacked;
    if (!unpack_map(data, size, &unpacked)) {
        return false;
    }
    bool found = false;
    const msgpack_object_map *map = &unpacked.data.via.map;
    for (uint32_t i = 0; i < map->size && !found; i++) {
        const msgpack_object *value = &map->ptr[i].val;
        if (key_is(&map->ptr[i].key, "error") && value->type == MSGPACK_OBJECT_STR) {
            copy_text(value->via.str.ptr, value->via.str.size, text_out,
                      PS_ERROR_TEXT_BYTES);
            found = true;
        }
    }
    msgpack_unpacked_destroy(&unpacked);
    return found;
}
