/* The check of a cfg and a .data file (config/cfg_check.h): each number has its limits, and each fault
 * its line. */
#include "check.h"

#include <limits.h>

#include "config/cfg_check.h"
#include "config/cfg_keys.h"
#include "config/cfg_numbers.h"

/* Together they have each section. */
static const char *const nets[] = {
    "[net]\nheight=8\nwidth=8\nchannels=4\n[crop]\ncrop_height=8\ncrop_width=8\n"
    "[convolutional]\nfilters=4\nsize=3\npad=1\n[deconvolutional]\nfilters=4\n[local]\nfilters=4\n"
    "[maxpool]\n[reorg]\n[upsample]\n[shortcut]\nfrom=-1\n[route]\nlayers=-1\n"
    "[connected]\noutput=5\n[dropout]\n[softmax]\n[cost]\n",
    "[net]\nheight=4\nwidth=4\nchannels=4\n[convolutional]\nfilters=25\n[yolo]\n",
    "[net]\nheight=4\nwidth=4\nchannels=4\n[convolutional]\nfilters=45\n[Gaussian_yolo]\n",
    "[net]\nheight=4\nwidth=4\nchannels=4\n[convolutional]\nfilters=25\n[region]\n",
    "[net]\nheight=4\nwidth=4\nchannels=4\n[convolutional]\nfilters=52\n[iseg]\n",
    "[net]\ninputs=6\n[connected]\noutput=539\n[detection]\ncoords=4\nnum=2\n",
};

/* What the check has told, a line each, without advice. */
static char told[4096];
static int faults, epochs = 1;

static void tell(void *to, enum cmn_cfg_fault fault, int line, const char *text)
{
    (void)to;
    (void)line;
    if (fault != CMN_CFG_ADVICE && fault != CMN_CFG_FOREIGN_KEY) {
        snprintf(told + strlen(told), sizeof told - strlen(told), "%s\n", text);
    }
    faults += fault < CMN_CFG_UNUSED_KEY && fault != CMN_CFG_REFUSED;
}

static void parse(const char *text, struct cmn_cfg_file *to, enum cmn_cfg_blanks blanks)
{
    FILE *file = fmemopen((char *)text, strlen(text), "r");

    assert_non_null(file);
    cmn_cfg_parse(to, file, blanks);
    fclose(file);
}

/* Checks `cfg` as the cfg that `driver` trains, with `data` (or NULL), and returns what is told. */
static const char *check(const char *driver, enum cmn_answer answer, const char *cfg,
                         const char *data)
{
    const struct cmn_cfg_listener listener = {tell, NULL};
    struct cmn_cfg_file c, d = {0};
    struct cmn_cfg_question q = {.name = "x.cfg",
                                 .data_name = "x.data",
                                 .driver = driver,
                                 .answer = answer,
                                 .trains = 1,
                                 .epochs = epochs};

    told[0] = '\0';
    faults = 0;
    parse(cfg, &c, CMN_CFG_BLANKS_GO);
    q.cfg = &c;
    if (data) {
        parse(data, &d, CMN_CFG_BLANKS_STAY);
        q.data = &d;
        cmn_data_check("x.data", &d, &listener);
    }
    cmn_cfg_check(&q, &listener);
    cmn_cfg_free(&c);
    cmn_cfg_free(&d);
    return told;
}

/* ---- numbers ---- */

/* Checks a cfg in which the key is the first of its section, and returns what is told. Sets *line to
 * that of the key. */
static const char *with_number(const struct cmn_cfg_number *number, const char *value, int *line)
{
    const char *section = strcmp(number->section, "layer") ? number->section : "softmax",
               *at = NULL;
    char header[64], text[4096];

    *line = 1;
    if (!strcmp(number->section, "data")) {
        snprintf(text, sizeof text, "%s=%s\n", number->key, value);
        return check(NULL, CMN_NO_ANSWER, "[net]\ninputs=1\n[softmax]\n", text);
    }
    snprintf(header, sizeof header, "[%s]\n", section);
    for (size_t i = 0; i < COUNT(nets); i++) {
        at = strstr(nets[i], header);
        if (at) {
            at += strlen(header);
            for (const char *s = nets[i]; s < at; s++) {
                *line += *s == '\n';
            }
            snprintf(text, sizeof text, "%.*s%s=%s\n%s", (int)(at - nets[i]), nets[i], number->key,
                     value, at);
            return check(NULL, CMN_NO_ANSWER, text, NULL);
        }
    }
    fail_msg("no net has %s", header);
    return NULL;
}

static void check_refused(const struct cmn_cfg_number *number, const char *value)
{
    char expected[256], range[128];
    int line;
    const char *said = with_number(number, value, &line), *at;

    cmn_cfg_number_range(number, range, sizeof range);
    snprintf(expected, sizeof expected,
             "x.%s:%d: %s=%s: ", strcmp(number->section, "data") ? "cfg" : "data", line,
             number->key, value);
    at = strstr(said, expected);
    if (!at || !strstr(at, range)) {
        fail_msg("[%s] %s=%s, which must be %s: %s", number->section, number->key, value, range,
                 said);
    }
}

static int accepts(const struct cmn_cfg_number *number, double value)
{
    char text[64], why[256];

    snprintf(text, sizeof text, "%.17g", value);
    return !cmn_cfg_number_check(number, text, why, sizeof why);
}

TEST(each_number_has_its_limits)
{
    static const char *const bad[] = {"nan", "inf", "-inf", "1e999", "0x7", "many", "1o"};
    char text[64];

    for (int i = 0; cmn_cfg_number_at(i); i++) {
        const struct cmn_cfg_number *n = cmn_cfg_number_at(i);
        int whole = n->kind == CMN_CFG_WHOLE || n->kind == CMN_CFG_WHOLES;
        if (cmn_cfg_number_find(n->section, n->key) != n) {
            assert_int_equal(cmn_cfg_number_is_more(n), !cmn_cfg_has_more());
            continue; /* another tree's */
        }
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

/* ---- words, relations and shapes ---- */

#define NET "[net]\nwidth=8\nheight=8\nchannels=3\n" /* its layers begin in line 5 */
#define HEAD "[yolo]\nmask=0,1\nanchors=1,2,3,4\nnum=2\nclasses=3\n"

#define DETECTOR "detector", CMN_BOXES
#define CLASSIFIER "classifier", CMN_CLASSES
#define CFG(cfg, line) NULL, CMN_NO_ANSWER, cfg "[softmax]\n", NULL, "x.cfg:" line
#define DATA(data, line) NULL, CMN_NO_ANSWER, "[net]\ninputs=3\n[softmax]\n", data, "x.data:" line

static const struct {
    const char *driver;
    enum cmn_answer answer;
    const char *cfg, *data, *line; /* NULL: nothing is told */
} cases[] = {
    {DETECTOR, NET "[convolutional]\nfilters=16\n" HEAD, "classes=3\n", NULL},
    {DETECTOR, NET "[convolutional]\nfilters=60\n" HEAD, NULL,
     "x.cfg:6: filters=60 before [yolo] of line 7, which needs filters=16: 2 anchors in mask * "
     "(classes=3 + 5)"},
    {DETECTOR, NET "[convolutional]\nfilters=16\n" HEAD, "classes=4\n",
     "x.cfg:11: classes=3, and x.data:1 says classes=4"},
    {DETECTOR, NET "[maxpool]\n" HEAD, NULL,
     "x.cfg:6: [yolo] needs 16 values for each of 8 x 8 pixels (2 anchors in mask * (classes=3 + "
     "5)), and the layer before it gives 192 in all"},
    {DETECTOR,
     NET "[convolutional]\nfilters=8\n[yolo]\nmask=2\nanchors=1,2,3,4\nnum=2\nclasses=3\n", NULL,
     "x.cfg:8: mask=2 names anchor 2, and with num=2 they are 0 to 1"},
    {DETECTOR, NET "[convolutional]\nfilters=8\n[yolo]\nanchors=1,2,3\nclasses=3\n", NULL,
     "x.cfg:8: 1 anchor for num=1: it needs 2 numbers, a width and a height each"},
    {DETECTOR, NET "[softmax]\n", NULL,
     "x.cfg:5: [softmax] is the last layer, and detector train needs one of [yolo] [region] "},
    {DETECTOR, "[net]\nwidth=8\nheight=8\nchannels=1\n[convolutional]\nfilters=16\n" HEAD, NULL,
     "x.cfg:4: channels=1: a detector of this Darknet has images of 3 channels: write channels=3"},
    {CLASSIFIER, "[net]\nwidth=48\nheight=80\nchannels=3\n[connected]\noutput=2\n[softmax]\n",
     "classes=2\n",
     "x.cfg:3: width=48 height=80: a classifier's images are square, so write the same number for "
     "both"},
    {CLASSIFIER, NET "[connected]\noutput=5\n[softmax]\n", "classes=4\n",
     "x.data:1: classes=4, and the network of x.cfg has 5 outputs: its last layer needs one for "
     "each class"},
    {CFG("batch=4\n[net]\ninputs=3\n", "1: batch stands before the first section, which is [net]")},
    {CFG("[net]\nbatch=10\nsubdivisions=4\ninputs=3\n",
         "2: batch=10: no multiple of subdivisions=4, a step would have 8 images; write batch=8 or "
         "12")},
    {CFG("[net]\nbatch=2\nsubdivisions=4\ninputs=3\n",
         "2: batch=2: must be at least subdivisions=4")},
    {CFG("[net]\nsubdivisions=0\ninputs=3\n",
         "2: subdivisions=0: must be 1 to 1000000 micro-batches")},
    {CFG("[net]\nlearning_rate=0,001\ninputs=3\n",
         "2: learning_rate=0,001: not a number, 0 to 1e+38 (factor)")},
    {CFG("[net]\npolicy=poly\ninputs=3\n", "2: policy=poly needs max_batches of at least 1")},
    {CFG("[net]\npolicy=steps\nsteps=1,2\nscales=1\ninputs=3\n",
         "4: scales=1: 1 of them for 2 steps; each of steps= needs one")},
    {CFG("[net]\npolicy=stops\ninputs=3\n",
         "2: policy=stops: must be one of constant step steps exp poly sigmoid random ")},
    {CFG("[net]\nsteps=1\ninputs=3\n", "2: steps=1 has no effect without policy=steps")},
    {CFG("[net]\nbacth=1\ninputs=3\n",
         "2: bacth=1 has no effect: unknown key; did you mean batch?")},
    {CFG("[net]\ninputs=3\ninputs=4\n",
         "3: inputs=4 has no effect: the section has it twice, and the first one counts")},
    {NULL, CMN_NO_ANSWER, "[net]\ninputs=3\n[softmax]\ncmn_exact=1\n", NULL,
     "x.cfg:4: cmn_exact=1 has no effect here: the keys of cmn belong to [net]"},
    {CFG("[net]\n", "1: [net] needs width=, height= and channels=, or inputs=")},
    {CFG("[net]\ninputs=3\n[convolutional]\n",
         "3: [convolutional] needs an image, and what is before it gives none: put it before the "
         "layers without pixels, or name a layer with them in a [route] before it")},
    {CFG("[net]\ninputs=3\n[convolution]\n",
         "3: [convolution] is no layer: this Darknet has [activation] [avgpool]")},
    {CFG(NET "[route]\nlayers=-1\n",
         "6: layers=-1: this is layer 0, and there is no layer -1 before it")},
    {NULL, CMN_NO_ANSWER,
     NET "[maxpool]\nstride=2\nsize=2\n[maxpool]\n[shortcut]\nfrom=0\n[maxpool]\nsize=2\nstride="
         "3\n[shortcut]\nfrom=0\n[softmax]\n",
     NULL, NULL},
    {CFG(NET "[convolutional]\ngroups=2\nfilters=4\n",
         "6: groups=2 must divide the 3 channels before it and filters=4")},
    {CFG(NET "[crop]\ncrop_height=9\ncrop_width=8\n",
         "7: a crop of 8 x 9 pixels does not fit into 8 x 8")},
    {NULL, CMN_NO_ANSWER,
     "[net]\ninputs=6\n[connected]\noutput=294\n[detection]\ncoords=4\nforced=1\n", NULL,
     "x.cfg:7: forced needs num=2 or more: small objects take a cell's second box"},
    {NULL, CMN_NO_ANSWER, NET "[maxpool]\n", NULL,
     "x.cfg:5: no layer of the network learns: end it with [softmax], [cost] or [yolo]"},
    {CFG(NET "[connected]\noutput=16000000\n",
         "5: [connected] would have 3072000000 weights, and Darknet counts them up to 2147483647: "
         "make it smaller")},
    {CFG(NET "[softmax]\n[connected]\noutput=2\n",
         "5: [softmax] compares 192 values with a truth of 2, that of the last layer")},
    {CLASSIFIER,
     "[net]\nwidth=8\nheight=8\nchannels=3\nmin_ratio=.1\n[connected]\noutput=2\n[softmax]\n",
     "classes=2\n", "x.cfg:5: min_ratio=.1: a crop would have no pixel: at least 1"},
    {CLASSIFIER, NET "[connected]\noutput=3\n[softmax]\n", "classes=2\ntag=1\n",
     "x.data:1: classes=2, and the network of x.cfg has 3 outputs"},
    {CLASSIFIER, NET "[connected]\noutput=2\n[softmax]\n", "classes=2\nleaves=l\n",
     "x.data:2: leaves=l are those of a tree, and the cfg has no tree=: remove it"},
    {NULL, CMN_NO_ANSWER, "[net] # of a test\ninputs=3\n[softmax];\n", NULL, NULL},
    {NULL, CMN_NO_ANSWER, "[net]\ninputs=3\n[softmax\n", NULL,
     "x.cfg:3: [softmax: the head of a section ends with ]"},
    {NULL, CMN_NO_ANSWER, "[net]\ninputs=3\n[softmax]x=1]\n", NULL,
     "x.cfg:3: [softmax]x=1] is no layer: this Darknet has "},
    {NULL, CMN_NO_ANSWER, "\xff\xfe[net]\n", NULL,
     "x.cfg:1: UTF-16 text: save the file as UTF-8\n"},
    {DATA("\xfe\xff"
          "classes=3\n",
          "1: UTF-16 text: save the file as UTF-8\n")},
    {DATA("classes=3\n[net]\nbatch=1\n[yolo]\n",
          "2: [net]: a .data file has no sections: is this the cfg? The .data file comes first\n")},
    {DATA("train=\"a.list\"\n",
          "1: train=\"a.list\": write it without the quotes, which would be a part of it\n")},
    {DATA("train=a.list # mine\n", "1: train=a.list # mine: Darknet takes all of it for the value: "
                                   "it knows no comment, ~ or $ there\n")},
    {DATA("backup=~/w\n", "1: backup=~/w: Darknet takes all of it")},
    {DETECTOR,
     "[net]\nwidth=64\nheight=64\nchannels=3\n[convolutional]\nfilters=3\n[maxpool]\nsize="
     "64\nstride=64\npadding=0\n[upsample]\nstride=64\n[shortcut]\nfrom=-3\n[convolutional]"
     "\nfilters=16\n" HEAD "random=1\n",
     NULL,
     "x.cfg:14: random=1 also draws 352 x 352 pixels: from=-3 adds layer 0 of 352 x 352 pixels to "
     "320 x 320"},
};

TEST(each_fault_has_its_line)
{
    for (size_t i = 0; i < COUNT(cases); i++) {
        const char *said = check(cases[i].driver, cases[i].answer, cases[i].cfg, cases[i].data);
        if (cases[i].line ? strncmp(said, cases[i].line, strlen(cases[i].line)) : faults != 0) {
            fail_msg("case %zu: %s, not %s", i, said, cases[i].line ? cases[i].line : "");
        }
    }
}

/* A detector's training that has no end would have no beginning, either. */
TEST(a_training_needs_iterations)
{
    static const char net[] = NET "%s[convolutional]\nfilters=16\n" HEAD;
    static const struct {
        const char *line, *says;
    } heads[] = {{"", "x.cfg:1: [net] without max_batches: nothing would be trained: write "
                      "max_batches=N, or cmn_epochs=N\n"},
                 {"max_batches=0\n", "x.cfg:5: max_batches=0: nothing would be trained"},
                 {"max_batches=9\n", ""},
                 {"cmn_epochs=3\n", ""}};
    char text[512];

    for (size_t i = 0; i < COUNT(heads); i++) {
        const char *said;
        snprintf(text, sizeof text, net, heads[i].line);
        epochs = 0;
        said = check("detector", CMN_BOXES, text, NULL);
        assert_memory_equal(said, heads[i].says, strlen(heads[i].says));
        assert_int_equal(faults, heads[i].says[0] != '\0');
        assert_string_equal(check("classifier", CMN_NO_ANSWER, NET "[softmax]\n", NULL), "");
        epochs = 1;
    }
}

TEST(no_cfg_of_upstream_is_refused)
{
    const struct cmn_cfg_listener listener = {tell, NULL};
    glob_t found;

    assert_int_equal(glob("build/darknet/cfg/*.cfg", 0, NULL, &found), 0);
    for (size_t i = 0; i < found.gl_pathc; i++) {
        FILE *file = fopen(found.gl_pathv[i], "r");
        struct cmn_cfg_file cfg;
        struct cmn_cfg_question q = {.name = found.gl_pathv[i], .cfg = &cfg};
        cmn_cfg_parse(&cfg, file, CMN_CFG_BLANKS_GO);
        fclose(file);
        told[0] = '\0';
        faults = 0;
        cmn_cfg_check(&q, &listener);
        if (faults) {
            fail_msg("%s", told);
        }
        cmn_cfg_free(&cfg);
    }
    assert_true(found.gl_pathc > 40);
    globfree(&found);
}

/* The last one, as a program has one tree. */
TEST(each_number_of_alexeyabs_tree_has_its_limits)
{
    cmn_cfg_declare_more();
    each_number_has_its_limits(NULL);
}

TESTS(NULL, NULL)
