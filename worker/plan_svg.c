/* `penstock plan --svg`: bytes alive at each operator as a picture.  Self-contained, no
 * scripts; colours that colour-blind eyes tell apart (Okabe, Ito 2008).  Long networks
 * are drawn by the largest of neighbouring operators.  See plan_show.h. */
#include "worker/plan_show.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Pixels of the picture: the plot with room for axes, titles and the strip below. */
enum {
    WIDTH = 1120,
    HEIGHT = 640,
    LEFT = 84,
    RIGHT = 1092,
    TOP = 96,
    BOTTOM = 520,
    STRIP = 12,
    COLUMNS_MAX = RIGHT - LEFT
};

static const char *const colours[PS_PLAN_CURVES] = {"#0072b2", "#d55e00", "#009e73",
                                                    "#cc79a7"};

struct curve {
    const struct ps_net_plan *plan;
    size_t *bytes;
    size_t count, forward, peak_at;
};

struct picture {
    struct curve curves[PS_PLAN_CURVES];
    size_t curve_count;
    size_t steps;     /* of the longest */
    double top_bytes; /* at the plot's top */
    struct ps_str *out;
};

static double x_of(const struct picture *p, double step)
{
    return LEFT + (RIGHT - LEFT) * step / (double)PS_MAX(p->steps, (size_t)1);
}

static double y_of(const struct picture *p, double bytes)
{
    return BOTTOM - (BOTTOM - TOP) * bytes / p->top_bytes;
}

static double mib(double bytes)
{
    return bytes / (1 << 20);
}

/* Text of somebody's symbol file: escaped, control characters left out. */
static void escape(struct ps_str *out, const char *text)
{
    for (; *text != '\0'; text++) {
        switch (*text) {
        case '&':
            ps_str_printf(out, "&amp;");
            break;
        case '<':
            ps_str_printf(out, "&lt;");
            break;
        case '>':
            ps_str_printf(out, "&gt;");
            break;
        case '"':
            ps_str_printf(out, "&quot;");
            break;
        default:
            if ((unsigned char)*text >= 0x20 && (unsigned char)*text < 0x7f) {
                ps_str_append(out, text, 1);
            } else {
                ps_str_printf(out, "?");
            }
        }
    }
}

static enum ps_status make_curve(const struct ps_net_plan *plan, struct curve *curve)
{
    *curve = (struct curve){.plan = plan};
    PS_TRY(ps_net_live(plan, &curve->bytes, &curve->count));
    curve->forward = curve->count;
    for (size_t i = 0; i < curve->count; i++) {
        struct ps_executor_step step;
        if (ps_executor_step(plan->executor, i, &step) == PS_OK && step.backward) {
            curve->forward = PS_MIN(curve->forward, i);
        }
        if (curve->bytes[i] > curve->bytes[curve->peak_at]) {
            curve->peak_at = i;
        }
    }
    return PS_OK;
}

/* 1, 2 or 5 times a power of ten, about a fifth of 'most'. */
static double nice_step(double most)
{
    double rough = PS_MAX(most, 1e-3) / 5, unit = pow(10, floor(log10(rough)));
    double ratio = rough / unit;
    return unit * (ratio < 1.5 ? 1 : ratio < 3.5 ? 2 : ratio < 7.5 ? 5 : 10);
}

static void draw_head(const struct picture *p, const struct ps_net *net)
{
    char context[PS_CONTEXT_TEXT_BYTES];
    ps_str_printf(p->out,
                  "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
                  "viewBox=\"0 0 %d %d\" font-family=\"Helvetica, Arial, sans-serif\" "
                  "font-size=\"13\" fill=\"#222\">\n"
                  "<rect width=\"%d\" height=\"%d\" fill=\"#fff\"/>\n"
                  "<text x=\"%d\" y=\"30\" font-size=\"19\">",
                  WIDTH, HEIGHT, WIDTH, HEIGHT, WIDTH, HEIGHT, LEFT);
    escape(p->out, net->name);
    ps_str_printf(p->out, ", batch %" PRId64 ", %s on %s: memory between operators",
                  net->options.batch, net->options.inference ? "inference" : "training",
                  ps_context_text(net->options.context, context));
    ps_str_printf(p->out, "</text>\n");
}

static void draw_axes(const struct picture *p)
{
    double step = nice_step(mib(p->top_bytes));
    for (double m = 0; m <= mib(p->top_bytes) * 1.0001; m += step) {
        double y = y_of(p, m * (1 << 20));
        ps_str_printf(p->out,
                      "<path d=\"M%d %.1fH%d\" stroke=\"#ddd\"/><text x=\"%d\" "
                      "y=\"%.1f\" text-anchor=\"end\">%g</text>\n",
                      LEFT, y, RIGHT, LEFT - 8, y + 4, m);
    }
    double tick = PS_MAX(nice_step((double)p->steps), 1.0);
    for (double s = 0; s <= (double)p->steps; s += tick) {
        ps_str_printf(p->out,
                      "<path d=\"M%.1f %dv5\" stroke=\"#222\"/><text x=\"%.1f\" "
                      "y=\"%d\" text-anchor=\"middle\">%g</text>\n",
                      x_of(p, s), BOTTOM, x_of(p, s), BOTTOM + 20, s);
    }
    ps_str_printf(
        p->out,
        "<path d=\"M%d %dV%dH%d\" fill=\"none\" stroke=\"#222\"/>\n"
        "<text transform=\"translate(22 %d) rotate(-90)\" "
        "text-anchor=\"middle\">MiB alive</text>\n"
        "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">operators, in the order "
        "in which they run</text>\n",
        LEFT, TOP, BOTTOM, RIGHT, (TOP + BOTTOM) / 2, (LEFT + RIGHT) / 2, BOTTOM + 40);
}

/* Steps; each column the most of its operators. */
static void draw_curve(const struct picture *p, size_t k)
{
    const struct curve *c = &p->curves[k];
    size_t columns = PS_MIN(c->count, (size_t)COLUMNS_MAX);
    struct ps_str path = {0};
    ps_str_printf(&path, "M%.1f %d", x_of(p, 0), BOTTOM);
    for (size_t i = 0; i < columns; i++) {
        size_t begin = i * c->count / columns, end = (i + 1) * c->count / columns;
        size_t most = 0;
        for (size_t s = begin; s < end; s++) {
            most = PS_MAX(most, c->bytes[s]);
        }
        ps_str_printf(&path, "V%.1fH%.1f", y_of(p, (double)most), x_of(p, (double)end));
    }
    ps_str_printf(&path, "V%d", BOTTOM);
    if (k == 0) {
        ps_str_printf(p->out, "<path d=\"%sZ\" fill=\"%s\" fill-opacity=\"0.2\"/>\n",
                      ps_str_text(&path), colours[k]);
    }
    ps_str_printf(p->out,
                  "<path d=\"%s\" fill=\"none\" stroke=\"%s\" stroke-width=\"1.4\"/>\n",
                  ps_str_text(&path), colours[k]);
    p->out->failed = p->out->failed || path.failed;
    ps_str_fini(&path);
}

static void draw_border(const struct picture *p)
{
    const struct curve *c = &p->curves[0];
    if (c->forward == c->count) {
        return;
    }
    double x = x_of(p, (double)c->forward);
    ps_str_printf(p->out,
                  "<path d=\"M%.1f %dV%d\" stroke=\"#222\" stroke-dasharray=\"6 4\"/>\n"
                  "<text x=\"%.1f\" y=\"%d\" text-anchor=\"end\">forward</text>"
                  "<text x=\"%.1f\" y=\"%d\">backward</text>\n",
                  x, TOP - 14, BOTTOM, x - 8, TOP - 6, x + 8, TOP - 6);
}

/* The dot at the most, with the operator's name. */
static void draw_peak(const struct picture *p, size_t k)
{
    const struct curve *c = &p->curves[k];
    struct ps_executor_step step;
    if (c->count == 0 ||
        ps_executor_step(c->plan->executor, c->peak_at, &step) != PS_OK) {
        return;
    }
    double x = x_of(p, (double)c->peak_at + 0.5);
    double y = y_of(p, (double)c->bytes[c->peak_at]);
    bool left = x > (double)(LEFT + RIGHT) / 2;
    ps_str_printf(p->out,
                  "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"4\" fill=\"%s\"/><text x=\"%.1f\" "
                  "y=\"%.1f\" text-anchor=\"%s\" paint-order=\"stroke\" stroke=\"#fff\" "
                  "stroke-width=\"4\">%.1f MiB at ",
                  x, y, colours[k], left ? x - 9 : x + 9, y - 6, left ? "end" : "start",
                  mib((double)c->bytes[c->peak_at]));
    escape(p->out, step.name);
    ps_str_printf(p->out, "</text>\n");
}

static void draw_legend(const struct picture *p)
{
    for (size_t k = 0; k < p->curve_count; k++) {
        const struct ps_executor_memory *m = &p->curves[k].plan->memory;
        int x = LEFT + (int)k * 256;
        ps_str_printf(p->out,
                      "<rect x=\"%d\" y=\"46\" width=\"14\" height=\"14\" fill=\"%s\"/>"
                      "<text x=\"%d\" y=\"58\">",
                      x, colours[k], x + 20);
        escape(p->out, p->curves[k].plan->choice->label);
        ps_str_printf(p->out, ": plans %.1f MiB</text>\n", mib((double)m->peak_bytes));
    }
}

static void draw_bar(const struct picture *p, size_t begin, size_t end, int y,
                     const char *colour)
{
    double x = x_of(p, (double)begin);
    ps_str_printf(p->out,
                  "<rect x=\"%.2f\" y=\"%d\" width=\"%.2f\" height=\"%d\" "
                  "fill=\"%s\"/>\n",
                  x, y, x_of(p, (double)end) - x, STRIP, colour);
}

static void draw_strip_name(const struct picture *p, int y, const char *name)
{
    ps_str_printf(p->out, "<text x=\"%d\" y=\"%d\" text-anchor=\"end\">%s</text>\n",
                  LEFT - 8, y + STRIP - 1, name);
}

/* The engine operations of the first plan, in two shades by turns; one shade where they
 * are too many to be seen. */
static void draw_segments(const struct picture *p, int y)
{
    const struct curve *c = &p->curves[0];
    size_t begin = 0, last = SIZE_MAX, shade = 0;
    draw_strip_name(p, y, "segments");
    if (c->plan->memory.operation_count > COLUMNS_MAX) {
        draw_bar(p, 0, c->count, y, "#bbb");
        return;
    }
    for (size_t i = 0; i <= c->count; i++) {
        struct ps_executor_step step = {.operation = SIZE_MAX};
        bool more =
            i < c->count && ps_executor_step(c->plan->executor, i, &step) == PS_OK;
        if (more && (step.nothing || step.operation == last)) {
            continue;
        }
        if (last != SIZE_MAX) {
            draw_bar(p, begin, i, y, shade++ % 2 == 0 ? "#999" : "#ccc");
        }
        begin = i;
        last = step.operation;
    }
}

/* What the first plan computes again. */
static void draw_mirrored(const struct picture *p, int y)
{
    const struct curve *c = &p->curves[0];
    size_t begin = SIZE_MAX;
    draw_strip_name(p, y, "again");
    for (size_t i = 0; i <= c->count; i++) {
        struct ps_executor_step step = {.mirrored = false};
        bool mirrored = i < c->count &&
                        ps_executor_step(c->plan->executor, i, &step) == PS_OK &&
                        step.mirrored;
        if (mirrored && begin == SIZE_MAX) {
            begin = i;
        } else if (!mirrored && begin != SIZE_MAX) {
            draw_bar(p, begin, i, y, colours[0]);
            begin = SIZE_MAX;
        }
    }
}

enum ps_status ps_plan_show_svg(const struct ps_net *net,
                                const struct ps_net_plan *const *plans, size_t plan_count,
                                struct ps_str *out)
{
    struct picture p = {.curve_count = PS_MIN(plan_count, (size_t)PS_PLAN_CURVES),
                        .out = out};
    enum ps_status status = PS_OK;
    size_t most = 1;
    for (size_t k = 0; k < p.curve_count; k++) {
        PS_TRY_GOTO(status, make_curve(plans[k], &p.curves[k]), out);
        p.steps = PS_MAX(p.steps, p.curves[k].count);
        if (p.curves[k].count > 0) {
            most = PS_MAX(most, p.curves[k].bytes[p.curves[k].peak_at]);
        }
    }
    p.top_bytes = (double)most * 1.08; /* room for the peak's name */
    draw_head(&p, net);
    draw_axes(&p);
    for (size_t k = p.curve_count; k > 0; k--) {
        draw_curve(&p, k - 1);
    }
    draw_border(&p);
    for (size_t k = 0; k < p.curve_count; k++) {
        draw_peak(&p, k);
    }
    draw_legend(&p);
    draw_segments(&p, BOTTOM + 56);
    draw_mirrored(&p, BOTTOM + 56 + STRIP + 6);
    ps_str_printf(out, "</svg>\n");
    status = out->failed ? PS_ENOMEM : PS_OK;
out:
    for (size_t k = 0; k < p.curve_count; k++) {
        free(p.curves[k].bytes);
    }
    return status;
}
