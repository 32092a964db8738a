/* What the check of a cfg (config/cfg_check.h) takes for the shapes of layers, against Darknet's own; and
 * a learning rate that upstream computes wrongly. */
#include "folder.h"

#include <math.h>

#include "darknet.h"
#include "parser.h"

#include "config/cfg_numbers.h"
#include "config/cfg_shapes.h"

static void tell(void *to, enum cmn_cfg_fault fault, int line, const char *text)
{
    (void)to;
    (void)line;
    if (fault < CMN_CFG_UNUSED_KEY) {
        fail_msg("%s", text);
    }
}

/* Compares the shapes of each layer of a cfg. Returns how many are known. */
static int compare(const char *file)
{
    const struct cmn_cfg_listener listener = {tell, NULL};
    struct cmn_cfg_file cfg;
    struct cmn_cfg_question q = {.name = file, .cfg = &cfg};
    struct cmn_cfg_walk w = {.q = &q, .listener = &listener, .batch = 1};
    FILE *text = fopen(file, "r");
    network *net = parse_network_cfg((char *)file);
    char type[32];
    int known = 0;

    cmn_cfg_parse(&cfg, text, CMN_CFG_BLANKS_GO);
    fclose(text);
    w.shape = calloc((size_t)cfg.sections, sizeof *w.shape);
    w.shape[0] = (struct cmn_cfg_shape){net->w, net->h, net->c, net->inputs, 1};
    for (w.section = 1; w.section < cfg.sections; w.section++) {
        const layer *l = &net->layers[w.section - 1];
        w.head = cmn_cfg_find(&cfg, w.section, NULL);
        cmn_cfg_section_name(w.head->key, type, sizeof type);
        w.type = type;
        w.in = w.shape[w.section - 1];
        assert_int_equal(cmn_cfg_shape(&w), 0);
        w.shape[w.section] = w.out;
        if (!w.out.known) {
            continue;
        }
        known++;
        if (w.out.w != l->out_w || w.out.h != l->out_h || w.out.c != l->out_c ||
            w.out.values != l->outputs) {
            fail_msg("%s: layer %d, %s: %g x %g x %g, %g values, and Darknet has %d x %d x %d, %d",
                     file, w.section - 1, w.head->key, w.out.w, w.out.h, w.out.c, w.out.values,
                     l->out_w, l->out_h, l->out_c, l->outputs);
        }
    }
    free(w.shape);
    cmn_cfg_free(&cfg);
    free_network(net);
    return known;
}

/* Layers that no cfg of upstream has, or not with such keys. */
static const char *const others[] = {
    "[net]\nheight=9\nwidth=12\nchannels=4\n[crop]\ncrop_height=8\ncrop_width=10\n[convolutional]"
    "\nfilters=4\nsize=3\nstride=2\npadding=1\n[deconvolutional]\nfilters=4\nsize=3\nstride=2\n["
    "local]\nfilters=4\nsize=2\nstride=2\npad=1\n[activation]\nactivation=relu\n[batchnorm]\n["
    "upsample]\nstride=4\n[reorg]\nstride=2\n[reorg]\nstride=2\nreverse=1\n[upsample]\nstride=-2\n["
    "dropout]\n[avgpool]\n[connected]\noutput=12\n[softmax]\ngroups=3\n[cost]\n",
    "[net]\nheight=4\nwidth=4\nchannels=4\n[reorg]\nextra=3\n[connected]\noutput=5\n[logistic]\n",
    "[net]\nheight=4\nwidth=4\nchannels=4\n[convolutional]\nfilters=52\n[iseg]\n",
    "[net]\nheight=4\nwidth=4\nchannels=4\n[maxpool]\nsize=5\nstride=3\npadding=1\n[route]\nlayers="
    "-1\n[softmax]\nspatial=1\n",
    "[net]\ninputs=6\n[connected]\noutput=294\n[detection]\ncoords=4\n",
};

TEST(shapes_are_those_of_darknet)
{
    /* Those that are small enough for a test. */
    static const char *const upstream[] = {"cifar",   "darknet",     "tiny",
                                           "alexnet", "resnet18",    "yolov3-tiny",
                                           "strided", "yolov2-tiny", "yolov1-tiny"};
    char file[64];
    int known = 0;

    for (size_t i = 0; i < COUNT(upstream); i++) {
        const char *const name = in_folder("x.cfg");
        FILE *from, *to = fopen(name, "w");
        char line[256];
        snprintf(file, sizeof file, "build/darknet/cfg/%s.cfg", upstream[i]);
        from = fopen(file, "r");
        while (fgets(line, sizeof line, from)) {
            fputs(!strncmp(line, "batch=", 6)           ? "batch=1\n"
                  : !strncmp(line, "subdivisions=", 13) ? "subdivisions=1\n"
                                                        : line,
                  to);
        }
        fclose(from);
        fclose(to);
        known += compare(name);
    }
    for (size_t i = 0; i < COUNT(others); i++) {
        known += compare(file_of("x.cfg", others[i]));
    }
    assert_true(known > 150);
}

/* Around its middle, with either slope; below it a difference of unsigned numbers wraps around. */
TEST(policy_sigmoid_falls_and_rises)
{
    network *net = parse_network_cfg(file_of(
        "x.cfg",
        "[net]\npolicy=sigmoid\nlearning_rate=1\nstep=10\ngamma=.5\ninputs=3\n[softmax]\n"));
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

TESTS(make_folder, remove_folder)
