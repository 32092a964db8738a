/* The program as it is built where protobuf-c is not installed. */
#include "check.h"

#undef CMN_PROTOBUF_C
#include "report/tensorboard.c"

TEST(names_what_to_install_and_makes_no_folder)
{
    assert_fails(!cmn_tensorboard_open("/tmp/cmn-test-no-folder", 0),
                 "cmn_tensorboard=/tmp/cmn-test-no-folder: ");
    check_contains(cmn_reason(), "libprotobuf-c-dev, protobuf-c-compiler and protobuf-compiler");
    check_contains(cmn_reason(), "`make deps FOR=tensorboard`");
    assert_int_not_equal(access("/tmp/cmn-test-no-folder", F_OK), 0);
    cmn_tensorboard_close(NULL);
}

TESTS(NULL, NULL)
