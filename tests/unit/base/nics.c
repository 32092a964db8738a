/* Network interfaces: lists of Open MPI, the loopback, and what this host has. */
#include "check.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include "base/nics.h"

static struct cmn_nic nic(const char *name, const char *address)
{
    struct cmn_nic nic = {.bits = 0};
    struct sockaddr_in v4 = {.sin_family = AF_INET};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6};

    snprintf(nic.name, sizeof nic.name, "%s", name);
    if (inet_pton(AF_INET, address, &v4.sin_addr) == 1) {
        memcpy(&nic.address, &v4, sizeof v4);
    } else {
        assert_int_equal(inet_pton(AF_INET6, address, &v6.sin6_addr), 1);
        memcpy(&nic.address, &v6, sizeof v6);
    }
    return nic;
}

TEST(lists)
{
    static const struct {
        const char *name, *address, *list;
        int in;
    } cases[] = {
        {"eth0", "10.0.0.1", "", 0},
        {"eth0", "10.0.0.1", "eth0", 1},
        {"eth0", "10.0.0.1", "eth", 0},
        {"eth0", "10.0.0.1", "lo,eth0", 1},
        {"eth0", "10.0.0.1", ",,eth0,", 1},
        {"eth0", "10.0.0.1", "10.0.0.0/24", 1},
        {"eth0", "10.0.0.1", "10.0.1.0/24", 0},
        {"eth0", "10.0.0.1", "10.0.0.1", 1},
        {"eth0", "10.0.0.1", "10.0.0.2", 0},
        {"eth0", "10.0.0.1", "0.0.0.0/0", 1},
        {"eth0", "10.0.0.1", "10.0.0.0/33", 0},
        {"eth0", "fd00::1", "eth0", 1},
        {"eth0", "fd00::1", "0.0.0.0/0", 0},
    };

    for (size_t i = 0; i < COUNT(cases); i++) {
        struct cmn_nic one = nic(cases[i].name, cases[i].address);
        if (cmn_nic_in_list(&one, cases[i].list) != cases[i].in) {
            fail_msg("%s %s in \"%s\": not %d", cases[i].name, cases[i].address, cases[i].list,
                     cases[i].in);
        }
    }
}

TEST(addresses)
{
    struct cmn_nic lo = nic("lo", "127.1.2.3"), lo6 = nic("lo", "::1");
    struct cmn_nic eth = nic("eth0", "172.17.0.1"), eth6 = nic("eth0", "fd00::1");

    assert_true(cmn_nic_is_loopback(&lo) && cmn_nic_is_loopback(&lo6));
    assert_false(cmn_nic_is_loopback(&eth) || cmn_nic_is_loopback(&eth6));
    assert_int_equal(cmn_nic_ipv4(&eth), 0xac110001U);
    assert_int_equal(cmn_nic_ipv4(&eth6), 0);
}

/* Every host has a loopback; its name stands in no list for people. */
TEST(this_host)
{
    struct cmn_nic all[CMN_NICS];
    int n = cmn_nics(AF_UNSPEC, all, CMN_NICS), v4 = cmn_nics(AF_INET, all, CMN_NICS);
    char text[256];

    assert_true(v4 <= n && n <= CMN_NICS);
    assert_int_equal(cmn_nics(AF_UNSPEC, all, 0), 0);
    for (int i = 0; i < v4; i++) {
        assert_int_equal(all[i].address.ss_family, AF_INET);
        assert_in_range(all[i].bits, 0, 32);
    }
    assert_null(strstr(cmn_nics_text(text, sizeof text), "lo,"));
    assert_true(text[0]);
}

TESTS(NULL, NULL)
