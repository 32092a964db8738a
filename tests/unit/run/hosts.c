/* Lists of machines, what is known of them, and what a command says of checkpoints, as cmn-run reads
 * both. */
#include "../../../run/command.c"
#include "../../../run/hosts.c"

#include "folder.h"

static char said[4096]; /* all that cmn-run has said */

static void say(const char *format, va_list args)
{
    size_t n = strlen(said);

    vsnprintf(said + n, sizeof said - n, format, args);
}

#define SAY(format)             \
    do {                        \
        va_list args;           \
        va_start(args, format); \
        say(format, args);      \
        va_end(args);           \
        strcat(said, "\n");     \
    } while (0)

int cmn_run_fail(const char *format, ...)
{
    SAY(format);
    return -1;
}

void cmn_journal_say(const char *event, const char *format, ...)
{
    assert_string_equal(event, "gone");
    SAY(format);
}

void cmn_run_fatal(const char *format, ...)
{
    said[0] = '\0';
    SAY(format);
    check_end(said, 0);
    abort();
}

void *cmn_run_realloc(void *p, size_t n, size_t size)
{
    return realloc(p, n * size);
}

static void check_hosts(struct cmn_hosts *h, const char *wanted, int ranks)
{
    char *text = cmn_hosts_text(h);

    assert_string_equal(text, wanted);
    assert_int_equal(cmn_hosts_ranks(h), ranks);
    free(text);
}

TEST(lists)
{
    static const struct {
        const char *list, *text;
        int ranks;
    } good[] = {
        {"a", "a:1", 1},
        {"a:4,b:3", "a:4,b:3", 7},
        {"a:4,b,a:2,b:5", "a:6,b:6", 12},
        {"a_B-9.example.org:65536", "a_B-9.example.org:65536", 65536},
    };
    static const char *const bad[] = {
        "",     "a,",  ",a",      "a:", "a:0", "a:-1", "a:+1",  "a: 1",
        "a:1x", "a:x", "a:65537", "-a", "a b", "a;b",  "a:1:2", "a:99999999999999999999"};
    char name[CMN_HOST_NAME + 1] = "";

    for (size_t i = 0; i < COUNT(good); i++) {
        struct cmn_hosts h = {0};
        cmn_hosts_parse(&h, good[i].list);
        check_hosts(&h, good[i].text, good[i].ranks);
        free(h.host);
    }
    for (size_t i = 0; i < COUNT(bad); i++) {
        struct cmn_hosts h = {0};
        assert_fatal(cmn_hosts_parse(&h, bad[i]), "write NAME:RANKS,NAME:RANKS");
    }
    memset(name, 'x', CMN_HOST_NAME);
    assert_int_equal(good_name(name), 0);
    assert_int_equal(good_name(name + 1), 1);
}

TEST(hostfiles)
{
    static const struct {
        const char *file, *text, *says;
    } files[] = {
        {"a slots=2\nb slots=3\n", "a:2,b:3", ""},
        {"# all\r\n\r\n\ta  slots=2 # two\r\nb max_slots=9 slots=3\r\n", "a:2,b:3", ""},
        {"a slots=2\nb slots=1\na slots=3", "a:5,b:1", ""},
        {"", NULL, "f: no machine is in it\n"},
        {"\n# none\n", NULL, "f: no machine is in it\n"},
        {"a slots=2\nb\n", NULL, "f:2: say how many ranks b takes: slots=N\n"},
        {"a slots=0\n", NULL, "f:1: slots=0: write a number from 1 to 65536\n"},
        {"\na slots=x\nb\n", NULL, "f:2: slots=x: write a number from 1 to 65536\n"},
        {"a;b slots=2\n", NULL, "f:1: a;b is not the name of a machine\n"},
    };

    for (size_t i = 0; i < COUNT(files); i++) {
        struct cmn_hosts h = {0};
        said[0] = '\0';
        assert_int_equal(cmn_hosts_read(&h, files[i].file, "f"), files[i].text ? 0 : -1);
        assert_string_equal(said, files[i].says);
        if (files[i].text) {
            check_hosts(&h, files[i].text, h.host[0].slots + h.host[1].slots);
        }
        free(h.host);
    }
}

/* A new list keeps what is known of the machines of the old one. */
TEST(what_is_known)
{
    struct cmn_hosts h = {0}, list = {0}, none = {0};

    cmn_hosts_parse(&list, "node1:4,b.x.org:2,c:1,d:1");
    cmn_hosts_replace(&h, &list);
    check_hosts(&h, "node1:4,b.x.org:2,c:1,d:1", 8);
    assert_int_equal(h.host[0].failures, CMN_GOOD);
    assert_int_equal(cmn_hosts_gone(&h), CMN_HOST_HERE);
    h.host[0].failures = CMN_FAILURES - 1;
    check_hosts(&h, "node1:4,b.x.org:2,c:1,d:1", 8);
    h.host[0].failures = CMN_FAILURES;
    h.host[1].left = 1;
    h.host[2].gone = CMN_HOST_GONE;
    h.host[3].gone = CMN_HOST_WRONG;
    check_hosts(&h, "", 0);
    assert_int_equal(cmn_hosts_gone(&h), CMN_HOST_WRONG);
    assert_ptr_equal(cmn_hosts_find(&h, "b.x.org"), &h.host[1]);
    assert_ptr_equal(cmn_hosts_find(&h, "b"), &h.host[1]);
    assert_ptr_equal(cmn_hosts_find(&h, "node1.y.org"), &h.host[0]);
    assert_null(cmn_hosts_find(&h, "node"));
    assert_null(cmn_hosts_find(&h, "node10"));
    assert_null(cmn_hosts_find(&none, "node1"));
    list = none;
    cmn_hosts_parse(&list, "10.0.0.1,10.0.0.2,7.x.org,n.x,n.y,n");
    assert_ptr_equal(cmn_hosts_find(&list, "10.0.0.2"), &list.host[1]);
    assert_null(cmn_hosts_find(&list, "10.0.0.3"));
    assert_null(cmn_hosts_find(&list, "10"));
    assert_null(cmn_hosts_find(&list, "7.0.0.3"));
    assert_null(cmn_hosts_find(&list, "10.x.org"));
    assert_ptr_equal(cmn_hosts_find(&list, "n.y"), &list.host[4]);
    assert_ptr_equal(cmn_hosts_find(&list, "n"), &list.host[5]);
    assert_ptr_equal(cmn_hosts_find(&list, "n.z"), &list.host[3]);
    free(list.host);

    said[0] = '\0';
    strcpy(h.host[2].why, "no route");
    strcpy(h.host[3].why, "correct it");
    cmn_hosts_report(&h, "waiting", 0);
    assert_string_equal(said, "c:1 cannot be used (no route): waiting\nd: correct it\n");
    strcpy(h.host[3].why, "otherwise");
    said[0] = '\0';
    cmn_hosts_report(&h, "waiting", 1);
    assert_string_equal(said, "d: otherwise\n");

    list = none;
    cmn_hosts_parse(&list, "e:5,c:7,node1:3");
    cmn_hosts_replace(&h, &list);
    assert_int_equal(h.count, 3);
    assert_true(h.host[0].gone == CMN_HOST_GONE && h.host[0].failures == 0);
    assert_true(h.host[1].gone == CMN_HOST_GONE && h.host[1].slots == 7);
    assert_string_equal(h.host[1].why, "no route");
    assert_true(h.host[2].failures == CMN_FAILURES && h.host[2].slots == 3);
    free(h.host);
}

TEST(other_machines)
{
    static const struct {
        const char *list;
        int differ;
    } lists[] = {{"a:2,b:1", 0}, {"b:1,a:2", 0}, {"a:2", 1},         {"a:1,b:2", 1},
                 {"a:2,b:2", 1}, {"b:1", 1},     {"a:2,b:1,c:4", 0}, {"a:2,c:1", 1}};

    for (size_t i = 0; i < COUNT(lists); i++) {
        struct cmn_hosts h = {0}, list = {0};
        cmn_hosts_parse(&h, "a:2,b:1");
        cmn_hosts_parse(&list, lists[i].list);
        cmn_hosts_replace(&h, &list); /* what is new is not used yet */
        if (cmn_hosts_differ(&h, "a:2,b:1") != lists[i].differ) {
            fail_msg("%s", lists[i].list);
        }
        free(h.host);
    }
}

TEST(commands)
{
    static const struct {
        const char *words, *cfg; /* the file x.cfg */
        const char *is;          /* alone, Darknet, trains, -clear, global; then the checkpoints */
    } commands[] = {
        {"darknet detector train x.data x.cfg -cmn", "[net]\n", ".dt.g 0"},
        {"darknet detector train x.data x.cfg", "[net]\n", "adt.g 0"},
        {"/x/darknet-gpu detector test x.cfg", "", "ad..g 0"},
        {"darknet", "", "ad..g 0"},
        {"darknet cmn list", "", ".d..g 0"},
        {"darknet help", "", ".d..g 0"},
        {"darknet -h", "", ".d..g 0"},
        {"darknet --help", "", ".d..g 0"},
        {"darknet --version", "", ".d..g 0"},
        {"nice darknet x", "", "a...g 0"},
        {"nice ./darknet x -cmn", "", "....g 0"},
        {"my-darknet train -clear", "", "..tcg 0"},
        {"p x.cfg", "# a\n; b\n\n [ net ]\ncmn_checkpoint = 5 \ncmn_batch=per_rank\n", "..... 5"},
        {"p x.cfg", "\xef\xbb\xbf# a\n[net] # b\nbatch=1\ncmn_checkpoint = 7\n", "....g 7"},
        {"p x.cfg", "[network]\ncmn_checkpoint=5\ncmn_checkpoint=6\ncmn_batch=global\n", "....g 5"},
        {"p x.cfg", "[net]\nbatch=1\n[crop]\ncmn_checkpoint=5\n", "....g 0"},
        {"p x.cfg", "[net]\n[net]\ncmn_checkpoint=5\n", "....g 0"},
        {"p x.cfg", "cmn_checkpoint=5\n[net]\n", "....g 0"},
        {"p x.cfg", "[convolutional]\ncmn_checkpoint=5\n", "....g 0"},
        {"p none x.cfg -cmn_checkpoint 7", "[net]\ncmn_checkpoint=5\n", "....g 7"},
        {"p -cmn_batch per_rank -cmn_checkpoint", "", "..... 0"},
        {"p -cmn_seed train -clear", "", "...cg 0"},
        {"x.cfg p", "[net]\ncmn_checkpoint=5\n", "....g 0"},
    };

    assert_int_equal(chdir(folder), 0);
    for (size_t i = 0; i < COUNT(commands); i++) {
        char words[128], *rest = words, *word[9] = {NULL}, is[32];
        struct cmn_command c;
        file_of("x.cfg", commands[i].cfg);
        snprintf(words, sizeof words, "%s", commands[i].words);
        for (int n = 0; n < 8 && (word[n] = strsep(&rest, " ")); n++) {
        }
        cmn_command_read(&c, word);
        snprintf(is, sizeof is, "%c%c%c%c%c %ld", c.alone ? 'a' : '.', c.is_darknet ? 'd' : '.',
                 c.trains ? 't' : '.', c.clear ? 'c' : '.', c.global ? 'g' : '.', c.checkpoint);
        if (strcmp(is, commands[i].is)) {
            fail_msg("%s: %s, not %s", commands[i].words, is, commands[i].is);
        }
    }
}

TEST(programs)
{
    const char *const path = strdupa(getenv("PATH"));
    int here, absolute, by_path, not_there, plain, is_folder;

    assert_int_equal(chdir(folder), 0);
    chmod(file_of("plain", ""), 0644);
    chmod(file_of("program", ""), 0755);
    setenv("PATH", "/bin::/none", 1);
    here = cmn_command_is_program("program");
    absolute = cmn_command_is_program(in_folder("program"));
    by_path = cmn_command_is_program("sh");
    plain = cmn_command_is_program("./plain");
    is_folder = cmn_command_is_program("/bin");
    setenv("PATH", "/none", 1);
    not_there = cmn_command_is_program("program");
    setenv("PATH", path, 1);
    assert_true(here && absolute && by_path);
    assert_false(plain || is_folder || not_there);
}

TESTS(make_folder, remove_folder)
