/* The table of a cfg's numbers (config/cfg_numbers.h) against Darknet's parser: values outside of a
 * range end it with file, line, key, value and range. */
#include "check.h"

#include <limits.h>
#include <math.h>
#include <unistd.h>

#include "darknet.h"
#include "option_list.h"
#include "parser.h"

#include "config/cfg_file.h"
#include "config/cfg_numbers.h"

static char name[] = "/tmp/numbers-XXXXXX";

/* Together they have each section. */
static const char *const nets[] = {
    "[net]\nheight=8\nwidth=8\nchannels=4\n[crop]\ncrop_height=8\ncrop_width=8\n"
    "[convolutional]\nfilters=4\nsize=3\npad=1\n[deconvolutional]\nfilters=4\n[local]\nfilters=4\n"
    "[maxpool]\n[normalization]\n[reorg]\n[upsample]\n[shortcut]\nfrom=-1\n[route]\nlayers=-1\n"
    "[connected]\noutput=5\n[dropout]\n[softmax]\n[cost]\n",
    "[net]\ninputs=6\n[rnn]\n[gru]\n[lstm]\n[softmax]\n",
    "[net]\nheight=4\nwidth=4\nchannels=4\n[crnn]\n[softmax]\n",
    "[net]\nheight=4\nwidth=4\nchannels=4\n[convolutional]\nfilters=25\n[yolo]\n",
    "[net]\nheight=4\nwidth=4\nchannels=4\n[convolutional]\nfilters=25\n[region]\n",
    "[net]\nheight=4\nwidth=4\nchannels=4\n[convolutional]\nfilters=52\n[iseg]\n",
    "[net]\ninputs=6\n[connected]\noutput=294\n[detection]\ncoords=4\n",
};

/* Keys that the parser looks for only beside these. */
static const struct {
    const char *key, *beside;
} needs[] = {
    {"B1", "adam=1\n"},         {"B2", "adam=1\n"},
    {"eps", "adam=1\n"},        {"steps", "policy=steps\nscales=1\n"},
    {"step", "policy=step\n"},  {"scales", "policy=steps\nsteps=1\n"},
    {"scale", "policy=step\n"}, {"gamma", "policy=exp\n"},
};

static void write_file(const char *before, size_t n, const char *key, const char *value,
                       const char *behind)
{
    FILE *file = fopen(name, "w");

    assert_non_null(file);
    fprintf(file, "%.*s%s=%s\n%s", (int)n, before, key, value, behind);
    fclose(file);
}

/* A cfg in which the key is the first of its section; its line. */
static int write_cfg(const struct cmn_cfg_number *number, const char *value)
{
    const char *section = strcmp(number->section, "layer") ? number->section : "softmax",
               *at = NULL;
    char header[64], behind[2048];
    const char *beside = "";
    int line = 1;

    snprintf(header, sizeof header, "[%s]\n", section);
    for (size_t i = 0; i < COUNT(nets) && !at; i++) {
        at = strstr(nets[i], header);
        if (at) {
            at += strlen(header);
            for (const char *s = nets[i]; s < at; s++) {
                line += *s == '\n';
            }
            for (size_t k = 0; k < COUNT(needs) && !strcmp(section, "net"); k++) {
                if (!strcmp(needs[k].key, number->key)) {
                    beside = needs[k].beside;
                }
            }
            snprintf(behind, sizeof behind, "%s%s", beside, at);
            write_file(nets[i], (size_t)(at - nets[i]), number->key, value, behind);
        }
    }
    if (!at) {
        fail_msg("no net has %s", header);
    }
    return line;
}

static void read_data(const char *key)
{
    list *options = read_data_cfg(name);

    option_find_int(options, (char *)key, 0);
}

/* What refuses it, or NULL. */
static const char *refused(const struct cmn_cfg_number *number, const char *value, int *line)
{
    *line = 1;
    if (!strcmp(number->section, "data")) {
        write_file("", 0, number->key, value, "");
        return fatal_of(read_data(number->key));
    }
    *line = write_cfg(number, value);
    return fatal_of(parse_network_cfg(name));
}

static void check_refused(const struct cmn_cfg_number *number, const char *value)
{
    char expected[256], range[128];
    int line;
    const char *said = refused(number, value, &line);

    cmn_cfg_number_range(number, range, sizeof range);
    snprintf(expected, sizeof expected, "%s:%d: %s=%s: ", name, line, number->key, value);
    if (!said || strncmp(said, expected, strlen(expected)) || !strstr(said, range)) {
        fail_msg("[%s] %s=%s, which must be %s: %s", number->section, number->key, value, range,
                 said ? said : "taken");
    }
}

static int accepts(const struct cmn_cfg_number *number, double value)
{
    char text[64], why[256];

    snprintf(text, sizeof text, "%.17g", value);
    return !cmn_cfg_number_check(number, text, why, sizeof why);
}

static void each_number_has_its_limits(void **state)
{
    static const char *const bad[] = {"nan", "inf", "-inf", "1e999", "0x7", "many", "1o"};
    char text[64];

    (void)state;
    for (int i = 0; cmn_cfg_number_at(i); i++) {
        const struct cmn_cfg_number *n = cmn_cfg_number_at(i);
        int whole = n->kind == CMN_CFG_WHOLE || n->kind == CMN_CFG_WHOLES;
        assert_true(n->low < n->high);
        assert_true(accepts(n, n->low) && accepts(n, n->high));
        for (size_t k = 0; k < COUNT(bad); k++) {
            check_refused(n, bad[k]);
        }
        snprintf(text, sizeof text, "%.17g", whole ? n->low - 1 : n->low - 1e-3);
        check_refused(n, text);
        snprintf(text, sizeof text, "%.17g", whole ? n->high + 1 : n->high * 1.5);
        check_refused(n, text);
        if (n->high < 1e20) {
            check_refused(n, "1e20");
        }
        check_refused(n, "-1e20");
        if (n->kind >= CMN_CFG_WHOLES) {
            check_refused(n, "1,nan");
            check_refused(n, "1,2,");
        } else {
            check_refused(n, "1,1");
        }
    }
}

static void numbers_that_do_not_fit_each_other(void **state)
{
    network *net;

    (void)state;
    write_file("[net]\n", 6, "batch", "10", "subdivisions=4\ninputs=3\n[softmax]\n");
    assert_fatal(parse_network_cfg(name), "batch=10 in the cfg: no multiple of subdivisions=4, a "
                                          "step would have 8 images; write batch=8 or 12");
    write_file("[net]\n", 6, "policy", "poly", "inputs=3\n[softmax]\n");
    net = parse_network_cfg(name);
    assert_fatal(get_current_rate(net), "policy=poly needs max_batches");
    write_file("[net]\n", 6, "policy", "steps", "steps=1,2\nscales=1\ninputs=3\n[softmax]\n");
    assert_fatal(parse_network_cfg(name), "2 steps but 1 scales");
}

/* Around its middle, with either slope; below it a difference of unsigned numbers wraps around. */
static void policy_sigmoid_falls_and_rises(void **state)
{
    network *net;

    (void)state;
    write_file("[net]\n", 6, "policy", "sigmoid",
               "learning_rate=1\nstep=10\ngamma=.5\ninputs=3\n[softmax]\n");
    net = parse_network_cfg(name);
    for (int slope = -1; slope <= 1; slope += 2) {
        net->gamma = (float)slope * 0.5F;
        for (size_t at = 0; at <= 20; at += 5) {
            double rate = 1 / (1 + exp(slope * 0.5 * ((double)at - 10)));
            *net->seen = at;
            assert_true(fabs((double)get_current_rate(net) - rate) < 1e-6);
        }
    }
    free_network(net);
}

#define FILTERS_64                                                                    \
    "[net]\nheight=8\nwidth=8\nchannels=3\nbatch=200\n[convolutional]\nfilters=64\n[" \
    "convolutional]\n"                                                                \
    "filters=25\n[yolo]\n"

/* 200 images of 608 x 608 with 64 channels are more than 2^31 values. */
static void the_largest_input_of_random_fits(void **state)
{
    network *net;

    (void)state;
    write_file(FILTERS_64, strlen(FILTERS_64), "random", "0", "");
    net = parse_network_cfg(name);
    free_network(net);
    write_file(FILTERS_64, strlen(FILTERS_64), "random", "1", "");
    assert_fatal(parse_network_cfg(name), "A layer of the cfg is too large");
}

static const char fits_multiples_of_64[] =
    "[net]\nheight=64\nwidth=64\nchannels=4\n[convolutional]\nfilters=4\n[maxpool]\nsize=64\n"
    "stride=64\npadding=0\n[upsample]\nstride=64\n[shortcut]\nfrom=-3\n";

static void each_size_of_random_is_tried(void **state)
{
    network *net;

    (void)state;
    write_file(fits_multiples_of_64, strlen(fits_multiples_of_64), "beta", "1", "");
    net = parse_network_cfg(name);
    assert_null(fatal_of(try_sizes(net, 128, 128)));
    assert_int_equal(net->w, 64);
    assert_fatal(try_sizes(net, 128, 448),
                 "random=1 in the cfg: layer 3 adds 416 x 416 to 384 x 384 "
                 "with an input of 416 x 416");
}

static void no_cfg_of_upstream_is_refused(void **state)
{
    char why[256];
    glob_t found;
    int numbers = 0;

    (void)state;
    assert_int_equal(glob("build/darknet/cfg/*.cfg", 0, NULL, &found), 0);
    for (size_t i = 0; i < found.gl_pathc; i++) {
        FILE *file = fopen(found.gl_pathv[i], "r");
        struct cmn_cfg_file cfg;
        cmn_cfg_parse(&cfg, file, CMN_CFG_BLANKS_GO);
        fclose(file);
        for (int k = 0; k < cfg.lines; k++) {
            const struct cmn_cfg_line *l = &cfg.each[k];
            const struct cmn_cfg_number *n =
                l->key ? cmn_cfg_number_find(cmn_cfg_find(&cfg, l->section, NULL)->key, l->key)
                       : NULL;
            numbers += n != NULL;
            if (n && cmn_cfg_number_check(n, l->value, why, sizeof why)) {
                fail_msg("%s:%d: %s=%s: %s", found.gl_pathv[i], l->line, l->key, l->value, why);
            }
        }
        cmn_cfg_free(&cfg);
    }
    assert_true(found.gl_pathc > 40 && numbers > 5000);
    globfree(&found);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_number_has_its_limits),
        cmocka_unit_test(numbers_that_do_not_fit_each_other),
        cmocka_unit_test(policy_sigmoid_falls_and_rises),
        cmocka_unit_test(the_largest_input_of_random_fits),
        cmocka_unit_test(each_size_of_random_is_tried),
        cmocka_unit_test(no_cfg_of_upstream_is_refused),
    };
    int failed;

    close(mkstemp(name));
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    remove(name);
    return failed;
}
