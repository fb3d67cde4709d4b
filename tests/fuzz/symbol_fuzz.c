/* Symbol files: any bytes load or are refused with a text; what loads can be written,
 * loaded again as the same network, listed and inferred. */
#include "engine/graph/symbol.h"

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(int holds)
{
    if (!holds) {
        abort();
    }
}

static void look_at(struct ps_symbol *symbol)
{
    struct ps_names names = {0};
    struct ps_inferred_shapes shapes = {0};
    struct ps_inferred_dtypes dtypes = {0};
    struct ps_error err = {0};
    must(ps_symbol_list_arguments(symbol, &names) == PS_OK);
    ps_names_fini(&names);
    must(ps_symbol_list_outputs(symbol, &names) == PS_OK);
    ps_names_fini(&names);
    if (ps_symbol_infer_shapes_partial(symbol, NULL, 0, &shapes, &err) == PS_OK) {
        ps_inferred_shapes_fini(&shapes);
    } else {
        must(err.text[0] != 0);
    }
    if (ps_symbol_infer_dtypes_partial(symbol, NULL, 0, &dtypes, &err) == PS_OK) {
        ps_inferred_dtypes_fini(&dtypes);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct ps_error err = {0};
    struct ps_symbol *symbol = NULL, *again = NULL;
    struct ps_str first = {0}, second = {0};
    if (ps_symbol_from_json((const char *)data, size, &symbol, &err) != PS_OK) {
        must(symbol == NULL && err.text[0] != 0);
        return 0;
    }
    look_at(symbol);
    must(ps_symbol_to_json(symbol, &first) == PS_OK);
    must(ps_symbol_from_json(ps_str_text(&first), first.size, &again, &err) == PS_OK);
    must(ps_symbol_to_json(again, &second) == PS_OK);
    must(strcmp(ps_str_text(&first), ps_str_text(&second)) == 0);
    ps_str_fini(&first);
    ps_str_fini(&second);
    ps_symbol_release(again);
    ps_symbol_release(symbol);
    return 0;
}
