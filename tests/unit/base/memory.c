/* What containers and batch systems leave of a machine's memory: control groups of both
 * versions, made of plain files. */
#include "folder.h"

#include "base/memory.h"

/* A file below it, with its folders. */
static void put(const char *name, const char *text)
{
    char command[1100];

    snprintf(command, sizeof command, "mkdir -p \"$(dirname '%s')\"", in_folder(name));
    assert_int_equal(system(command), 0);
    file_of(name, text);
}

static size_t left_to(const char *groups)
{
    return cmn_memory_left(file_of("groups", groups), folder);
}

TEST(nothing_limits)
{
    assert_true(left_to("") == SIZE_MAX);
    assert_true(left_to("0::/a/b\n") == SIZE_MAX);
    put("a/memory.max", "max\n");
    put("a/memory.current", "1000\n");
    assert_true(left_to("0::/a/b\n") == SIZE_MAX);
    assert_true(cmn_memory_left("/no/such/file", folder) == SIZE_MAX);
    assert_true(cmn_memory_free() > 0);
}

/* As Slurm's: the job's group limits, the step's and task's below it do not. */
TEST(a_group_above_limits)
{
    put("slurm/job_7/memory.max", "5000000\n");
    put("slurm/job_7/memory.current", "3000000\n");
    put("slurm/job_7/memory.stat", "anon 1\ninactive_file 1000000\nactive_file 2\n");
    put("slurm/job_7/step_0/task/memory.max", "max\n");
    assert_int_equal(left_to("0::/slurm/job_7/step_0/task\n"), 3000000);
    put("slurm/job_7/step_0/task/memory.max", "100000\n");
    put("slurm/job_7/step_0/task/memory.current", "40000\n");
    assert_int_equal(left_to("0::/slurm/job_7/step_0/task\n"), 60000);
    put("slurm/job_7/step_0/task/memory.current", "200000\n");
    assert_int_equal(left_to("0::/slurm/job_7/step_0/task\n"), 0);
    assert_int_equal(left_to("0::/slurm/job_7\n"), 3000000);
    assert_true(left_to("0::/slurm/job_71\n") == SIZE_MAX);
}

/* In a container: its own group is the root. */
TEST(the_root_limits)
{
    put("memory.max", "7000\n");
    put("memory.current", "1000\n");
    assert_int_equal(left_to("0::/\n"), 6000);
    assert_int_equal(left_to("0::/path/on/the/host\n"), 6000);
}

TEST(version_1)
{
    put("memory/docker/abc/memory.limit_in_bytes", "9000\n");
    put("memory/docker/abc/memory.usage_in_bytes", "5000\n");
    put("memory/docker/abc/memory.stat", "inactive_file 1\ntotal_inactive_file 500\n");
    assert_int_equal(left_to("9:name=systemd:/docker/abc\n4:cpu,memory:/docker/abc\n0::/\n"), 4500);
    assert_true(left_to("4:memory2:/docker/abc\n") == SIZE_MAX);
    put("memory/memory.limit_in_bytes", "2000\n");
    assert_int_equal(left_to("4:memory:/docker/abc\n"), 2000);
    assert_int_equal(left_to("4:memory:/docker/gone\n"), 2000);
}

TESTS(make_folder, remove_folder)
