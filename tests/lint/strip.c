/* lint_strip FILE...: prints C sources as "path:line:text" with comments and the contents
 * of strings and character constants blanked, so that the checks of this folder look at
 * code only. */
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum state { CODE, LINE_COMMENT, BLOCK_COMMENT, STRING, CHARACTER };

static enum state step(enum state state, int c, int next, bool *skip_next)
{
    *skip_next = false;
    switch (state) {
    case CODE:
        if (c == '/' && (next == '/' || next == '*')) {
            *skip_next = true;
            return next == '/' ? LINE_COMMENT : BLOCK_COMMENT;
        }
        return c == '"' ? STRING : c == '\'' ? CHARACTER : CODE;
    case LINE_COMMENT:
        return c == '\n' ? CODE : LINE_COMMENT;
    case BLOCK_COMMENT:
        if (c == '*' && next == '/') {
            *skip_next = true;
            return CODE;
        }
        return BLOCK_COMMENT;
    case STRING:
    case CHARACTER:
        if (c == '\\') {
            *skip_next = true;
            return state;
        }
        return c == (state == STRING ? '"' : '\'') || c == '\n' ? CODE : state;
    }
    return CODE;
}

static void print_code(FILE *file, const char *path)
{
    enum state state = CODE;
    bool at_start = true;
    unsigned long line = 1;

    for (int c = fgetc(file); c != EOF; c = fgetc(file)) {
        int next = fgetc(file);
        if (next != EOF) {
            (void)ungetc(next, file);
        }
        if (at_start) {
            printf("%s:%lu:", path, line);
            at_start = false;
        }
        bool skip_next;
        enum state after = step(state, c, next, &skip_next);
        if (c == '\n') {
            (void)putchar('\n');
            at_start = true;
            line++;
        } else {
            bool shown = (state == CODE && after == CODE) ||
                         (state == CODE && (after == STRING || after == CHARACTER)) ||
                         ((state == STRING || state == CHARACTER) && after == CODE);
            (void)putchar(shown ? c : ' ');
        }
        if (skip_next && next != EOF) {
            (void)fgetc(file);
            if (next == '\n') {
                (void)putchar('\n');
                at_start = true;
                line++;
            } else {
                (void)putchar(' ');
            }
        }
        state = after;
    }
    if (!at_start) {
        (void)putchar('\n');
    }
}

int main(int argc, char **argv)
{
    int code = 0;
    for (int i = 1; i < argc; i++) {
        FILE *file = fopen(argv[i], "r");
        if (!file) {
            fprintf(stderr, "%s: %s\n", argv[i], strerror(errno));
            code = 1;
            continue;
        }
        print_code(file, argv[i]);
        (void)fclose(file);
    }
    return code;
}
