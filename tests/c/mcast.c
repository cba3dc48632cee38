/*
 * Sources of groups: from which hosts a socket wants what is sent to a group (ip(7), ipv6(7),
 * RFC 3678), and what routers are told of it (RFC 3376, RFC 3810). Groups as a whole are in udp.c.
 *
 * On loopback each address of 127.0.0.0/8 is a host. Other programs may be in groups, too: each
 * case has a group of its own.
 */
#define AREA "mcast"
#include "net.h"

#define ONE 0x7f000001u
#define TWO 0x7f000002u
#define THREE 0x7f000003u
#define SITE 0xefc0a800u /* 239.192.168.0/24, of the organisation: RFC 2365 */

/* A socket that receives at a port of all addresses, if it is not 0. */
static int receiver(int *port) {
    int s = OK(socket(AF_INET, SOCK_DGRAM, 0));
    OK(set_option(s, SOL_SOCKET, SO_REUSEADDR, 1));
    OK(bind(s, ANY4(*port)));
    *port = port_of(s);
    return s;
}
/* Sends to a group by loopback as this host. */
static void says(uint32_t host, uint32_t group, int port) {
    int s = OK(socket(AF_INET, SOCK_DGRAM, 0));
    OK(bind(s, AT4(host, 0)));
    struct in_addr lo = {htonl(ONE)};
    OK(setsockopt(s, IPPROTO_IP, IP_MULTICAST_IF, &lo, sizeof lo));
    CHECK_EQ(OK(sendto(s, "said", 4, 0, AT4(group, port))), 4);
    OK(close(s));
}
/* Whether a socket hears what this host says; it is alone with its packets. */
static bool hears(int s, uint32_t host, uint32_t group) {
    char got[8];
    says(host, group, port_of(s));
    ssize_t n = recv(s, got, sizeof got, MSG_DONTWAIT);
    if (n == -1 && errno != EAGAIN)
        FAIL("recv: %s", strerror(errno));
    return n == 4;
}
static int source(int s, int option, uint32_t group, uint32_t host) {
    struct ip_mreq_source r = {.imr_multiaddr = {htonl(group)}, .imr_interface = {htonl(ONE)},
                               .imr_sourceaddr = {htonl(host)}};
    return setsockopt(s, IPPROTO_IP, option, &r, sizeof r);
}
static int whole(int s, int option, uint32_t group) {
    struct ip_mreqn r = {{htonl(group)}, {htonl(ONE)}, 0};
    return setsockopt(s, IPPROTO_IP, option, &r, sizeof r);
}
static int lo(void) {
    unsigned index = if_nametoindex("lo");
    CHECK(index != 0);
    return (int)index;
}

/* ---- options of IPv4 ------------------------------------------------------------------------- */

TEST(sources_that_are_wanted) {
    int port = 0, s = receiver(&port);
    uint32_t group = SITE + 1;
    OK(source(s, IP_ADD_SOURCE_MEMBERSHIP, group, ONE));
    CHECK(hears(s, ONE, group));
    CHECK(!hears(s, TWO, group));
    ERR(source(s, IP_ADD_SOURCE_MEMBERSHIP, group, ONE), EADDRNOTAVAIL);
    OK(source(s, IP_ADD_SOURCE_MEMBERSHIP, group, TWO));
    CHECK(hears(s, ONE, group) && hears(s, TWO, group) && !hears(s, THREE, group));
    ERR(source(s, IP_DROP_SOURCE_MEMBERSHIP, group, THREE), EADDRNOTAVAIL);
    OK(source(s, IP_DROP_SOURCE_MEMBERSHIP, group, ONE));
    CHECK(!hears(s, ONE, group) && hears(s, TWO, group));
    /* It has joined for some, and blocks none. */
    ERR(source(s, IP_BLOCK_SOURCE, group, ONE), EINVAL);
    ERR(source(s, IP_UNBLOCK_SOURCE, group, TWO), EINVAL);
    ERR(whole(s, IP_ADD_MEMBERSHIP, group), EADDRINUSE);
    /* Without its last source it is in the group no more. */
    OK(source(s, IP_DROP_SOURCE_MEMBERSHIP, group, TWO));
    CHECK(!hears(s, TWO, group));
    ERR(source(s, IP_DROP_SOURCE_MEMBERSHIP, group, TWO), EINVAL);
    ERR(whole(s, IP_DROP_MEMBERSHIP, group), EADDRNOTAVAIL);
}

TEST(sources_that_are_blocked) {
    int port = 0, s = receiver(&port);
    uint32_t group = SITE + 2;
    ERR(source(s, IP_BLOCK_SOURCE, group, ONE), EINVAL); /* it has not joined */
    OK(whole(s, IP_ADD_MEMBERSHIP, group));
    ERR(source(s, IP_UNBLOCK_SOURCE, group, ONE), EADDRNOTAVAIL);
    OK(source(s, IP_BLOCK_SOURCE, group, ONE));
    CHECK(!hears(s, ONE, group) && hears(s, TWO, group));
    ERR(source(s, IP_BLOCK_SOURCE, group, ONE), EADDRNOTAVAIL);
    OK(source(s, IP_BLOCK_SOURCE, group, TWO));
    CHECK(!hears(s, TWO, group) && hears(s, THREE, group));
    ERR(source(s, IP_ADD_SOURCE_MEMBERSHIP, group, THREE), EINVAL);
    ERR(source(s, IP_DROP_SOURCE_MEMBERSHIP, group, TWO), EINVAL);
    OK(source(s, IP_UNBLOCK_SOURCE, group, ONE));
    OK(source(s, IP_UNBLOCK_SOURCE, group, TWO));
    CHECK(hears(s, ONE, group) && hears(s, TWO, group));
    /* It stays one that blocks, though it blocks none. */
    ERR(source(s, IP_ADD_SOURCE_MEMBERSHIP, group, THREE), EINVAL);
    OK(whole(s, IP_DROP_MEMBERSHIP, group));
    OK(source(s, IP_ADD_SOURCE_MEMBERSHIP, group, THREE));
    CHECK(hears(s, THREE, group) && !hears(s, ONE, group));
}

TEST(a_member_without_sources_may_turn) {
    int port = 0, s = receiver(&port);
    uint32_t group = SITE + 3;
    OK(whole(s, IP_ADD_MEMBERSHIP, group));
    OK(source(s, IP_ADD_SOURCE_MEMBERSHIP, group, TWO));
    CHECK(!hears(s, ONE, group) && hears(s, TWO, group));
    OK(whole(s, IP_DROP_MEMBERSHIP, group));
    /* Also by a call that fails. */
    OK(whole(s, IP_ADD_MEMBERSHIP, group));
    CHECK(hears(s, ONE, group));
    ERR(source(s, IP_DROP_SOURCE_MEMBERSHIP, group, TWO), EADDRNOTAVAIL);
    CHECK(!hears(s, ONE, group));
    OK(source(s, IP_BLOCK_SOURCE, group, TWO));
    CHECK(hears(s, ONE, group) && !hears(s, TWO, group));
}

TEST(errors_of_sources) {
    int port = 0, s = receiver(&port);
    uint32_t group = SITE + 4;
    struct ip_mreq_source r = {.imr_multiaddr = {htonl(group)}, .imr_interface = {htonl(ONE)},
                               .imr_sourceaddr = {htonl(ONE)}};
    static const int options[] = {IP_ADD_SOURCE_MEMBERSHIP, IP_DROP_SOURCE_MEMBERSHIP,
                                  IP_BLOCK_SOURCE, IP_UNBLOCK_SOURCE};
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
        char longer[16] = {0};
        ERR(setsockopt(s, IPPROTO_IP, options[i], &r, sizeof r - 1), EINVAL);
        ERR(setsockopt(s, IPPROTO_IP, options[i], longer, sizeof longer), EINVAL);
        ERR(setsockopt(s, IPPROTO_IP, options[i], BAD, sizeof r), EFAULT);
        ERR(source(s, options[i], ONE, ONE), EINVAL); /* no group */
        struct ip_mreq_source stranger = r;
        stranger.imr_interface.s_addr = htonl(STRANGER);
        ERR(setsockopt(s, IPPROTO_IP, options[i], &stranger, sizeof stranger), ENODEV);
    }
    ERR(source(s, IP_DROP_SOURCE_MEMBERSHIP, group, ONE), EINVAL);
    int t = OK(socket(AF_INET, SOCK_STREAM, 0));
    ERR(whole(t, IP_ADD_MEMBERSHIP, group), EPROTO);
    ERR(whole(t, IP_DROP_MEMBERSHIP, group), EPROTO);
    /* To leave a group that is none. */
    ERR(whole(s, IP_DROP_MEMBERSHIP, ONE), EADDRNOTAVAIL);
    struct ip_mreqn unknown = {{htonl(group)}, {0}, 100000};
    ERR(setsockopt(s, IPPROTO_IP, IP_DROP_MEMBERSHIP, &unknown, sizeof unknown), EADDRNOTAVAIL);
    ERR(setsockopt(s, IPPROTO_IP, IP_ADD_MEMBERSHIP, &unknown, sizeof unknown), ENODEV);
}

/* struct ip_msfilter with room for sources. */
struct filter {
    uint32_t group, interface, mode, count, sources[64];
};
static struct filter filter(uint32_t group, int mode, int count, const uint32_t *hosts) {
    struct filter f = {htonl(group), htonl(ONE), (uint32_t)mode, (uint32_t)count, {0}};
    for (int i = 0; i < count && hosts; i++)
        f.sources[i] = htonl(hosts[i]);
    return f;
}
static socklen_t size_of_filter(int count) { return (socklen_t)(16 + 4 * count); }
static int set_filter(int s, struct filter f) {
    return setsockopt(s, IPPROTO_IP, IP_MSFILTER, &f, size_of_filter((int)f.count));
}

TEST(a_filter_is_set_as_a_whole) {
    int port = 0, s = receiver(&port);
    uint32_t group = SITE + 5, both[] = {TWO, ONE};
    ERR(set_filter(s, filter(group, MCAST_INCLUDE, 2, both)), EINVAL); /* it has not joined */
    OK(whole(s, IP_ADD_MEMBERSHIP, group));
    OK(set_filter(s, filter(group, MCAST_INCLUDE, 2, both)));
    CHECK(hears(s, ONE, group) && hears(s, TWO, group) && !hears(s, THREE, group));
    struct filter got = filter(group, 77, 9, NULL);
    socklen_t size = sizeof got;
    OK(getsockopt(s, IPPROTO_IP, IP_MSFILTER, &got, &size));
    CHECK_EQ(size, size_of_filter(2));
    CHECK_EQ(got.mode, MCAST_INCLUDE);
    CHECK_EQ(got.count, 2);
    CHECK_EQ(ntohl(got.sources[0]), TWO); /* in their order */
    CHECK_EQ(ntohl(got.sources[1]), ONE);
    /* Room for one; the number is that of all. */
    got = filter(group, 77, 1, NULL);
    size = sizeof got;
    OK(getsockopt(s, IPPROTO_IP, IP_MSFILTER, &got, &size));
    CHECK_EQ(size, size_of_filter(1));
    CHECK_EQ(got.count, 2);
    CHECK_EQ(got.sources[1], 0);
    /* The other way round. */
    OK(set_filter(s, filter(group, MCAST_EXCLUDE, 1, both)));
    CHECK(hears(s, ONE, group) && !hears(s, TWO, group) && hears(s, THREE, group));
    OK(source(s, IP_UNBLOCK_SOURCE, group, TWO));
    OK(set_filter(s, filter(group, MCAST_EXCLUDE, 0, NULL)));
    got = filter(group, 77, 9, NULL);
    size = sizeof got;
    OK(getsockopt(s, IPPROTO_IP, IP_MSFILTER, &got, &size));
    CHECK_EQ(got.mode, MCAST_EXCLUDE);
    CHECK_EQ(got.count, 0);
    CHECK(hears(s, TWO, group));
    /* To want none is to leave. */
    OK(set_filter(s, filter(group, MCAST_INCLUDE, 0, NULL)));
    CHECK(!hears(s, ONE, group));
    ERR(set_filter(s, filter(group, MCAST_INCLUDE, 0, NULL)), EADDRNOTAVAIL);
    size = sizeof got;
    got.group = htonl(group);
    ERR(getsockopt(s, IPPROTO_IP, IP_MSFILTER, &got, &size), EADDRNOTAVAIL);
}

TEST(errors_of_whole_filters) {
    int port = 0, s = receiver(&port);
    uint32_t group = SITE + 6, one[] = {ONE};
    OK(whole(s, IP_ADD_MEMBERSHIP, group));
    struct filter f = filter(group, MCAST_INCLUDE, 1, one);
    ERR(setsockopt(s, IPPROTO_IP, IP_MSFILTER, &f, 15), EINVAL);
    ERR(setsockopt(s, IPPROTO_IP, IP_MSFILTER, &f, 16), EINVAL); /* less than its sources */
    ERR(setsockopt(s, IPPROTO_IP, IP_MSFILTER, &f, 8 << 20), ENOBUFS);
    ERR(setsockopt(s, IPPROTO_IP, IP_MSFILTER, BAD, 20), EFAULT);
    ERR(set_filter(s, filter(group, 2, 1, one)), EINVAL);
    ERR(set_filter(s, filter(ONE, MCAST_INCLUDE, 1, one)), EINVAL);
    f.interface = htonl(STRANGER);
    ERR(set_filter(s, f), ENODEV);
    f = filter(group, MCAST_INCLUDE, 11, NULL); /* igmp_max_msf is 10 */
    if (sysctl_number("/proc/sys/net/ipv4/igmp_max_msf") == 10)
        ERR(set_filter(s, f), ENOBUFS);
    f.count = 0xffffffffu;
    ERR(setsockopt(s, IPPROTO_IP, IP_MSFILTER, &f, sizeof f), ENOBUFS);
    CHECK(hears(s, TWO, group));
    /* Asked for. */
    socklen_t size = 15;
    f = filter(group, 0, 0, NULL);
    ERR(getsockopt(s, IPPROTO_IP, IP_MSFILTER, &f, &size), EINVAL);
    size = sizeof f;
    ERR(getsockopt(s, IPPROTO_IP, IP_MSFILTER, BAD, &size), EFAULT);
    f = filter(ONE, 0, 0, NULL);
    ERR(getsockopt(s, IPPROTO_IP, IP_MSFILTER, &f, &size), EINVAL);
    f = filter(group, 0, 0, NULL);
    f.interface = htonl(STRANGER);
    ERR(getsockopt(s, IPPROTO_IP, IP_MSFILTER, &f, &size), ENODEV);
}

TEST(a_filter_has_a_limited_number_of_sources) {
    int port = 0, s = receiver(&port);
    uint32_t group = SITE + 7;
    long most = sysctl_number("/proc/sys/net/ipv4/igmp_max_msf");
    CHECK(most > 0);
    if (most > 60)
        SKIP("very many sources are allowed");
    for (long i = 0; i < most; i++)
        OK(source(s, IP_ADD_SOURCE_MEMBERSHIP, group, ONE + (uint32_t)i));
    ERR(source(s, IP_ADD_SOURCE_MEMBERSHIP, group, 0x7f000100), ENOBUFS);
    /* It is there, but that is looked at later. */
    ERR(source(s, IP_ADD_SOURCE_MEMBERSHIP, group, ONE), ENOBUFS);
    CHECK(hears(s, ONE, group) && !hears(s, 0x7f000100, group));
}

TEST(the_number_of_sources_may_be_set) {
    NEEDS_ROOT();
    own_network();
    CHECK_EQ(sysctl_number("/proc/sys/net/ipv4/igmp_max_msf"), 10);
    SET_SYSCTL("/proc/sys/net/ipv4/igmp_max_msf", "12");
    CHECK_EQ(sysctl_number("/proc/sys/net/ipv4/igmp_max_msf"), 12);
    int port = 0, s = receiver(&port);
    for (uint32_t i = 0; i < 12; i++)
        OK(source(s, IP_ADD_SOURCE_MEMBERSHIP, SITE + 8, ONE + i));
    ERR(source(s, IP_ADD_SOURCE_MEMBERSHIP, SITE + 8, ONE + 12), ENOBUFS);
    CHECK(hears(s, ONE + 11, SITE + 8));
    SET_SYSCTL("/proc/sys/net/ipv4/igmp_max_msf", "1");
    OK(source(s, IP_DROP_SOURCE_MEMBERSHIP, SITE + 8, ONE));
    ERR(source(s, IP_ADD_SOURCE_MEMBERSHIP, SITE + 8, ONE), ENOBUFS);
}

/* ---- sockets together ------------------------------------------------------------------------ */

TEST(each_socket_has_its_own_filter) {
    int port = 0, a = receiver(&port), b = receiver(&port), c = receiver(&port);
    uint32_t group = SITE + 9;
    char got[8];
    OK(source(a, IP_ADD_SOURCE_MEMBERSHIP, group, ONE));
    OK(whole(b, IP_ADD_MEMBERSHIP, group));
    OK(source(b, IP_BLOCK_SOURCE, group, ONE));
    OK(set_option(c, IPPROTO_IP, 49 /* IP_MULTICAST_ALL */, 0));
    says(ONE, group, port);
    CHECK_EQ(OK(recv(a, got, sizeof got, MSG_DONTWAIT)), 4);
    ERR(recv(b, got, sizeof got, MSG_DONTWAIT), EAGAIN);
    says(TWO, group, port);
    ERR(recv(a, got, sizeof got, MSG_DONTWAIT), EAGAIN);
    CHECK_EQ(OK(recv(b, got, sizeof got, MSG_DONTWAIT)), 4);
    ERR(recv(c, got, sizeof got, MSG_DONTWAIT), EAGAIN);
}

/* A socket that has not joined hears what the machine takes for others (IP_MULTICAST_ALL). */
TEST(what_nobody_wants_does_not_arrive) {
    int port = 0, a = receiver(&port), b = receiver(&port);
    uint32_t group = SITE + 10;
    char got[8];
    OK(source(a, IP_ADD_SOURCE_MEMBERSHIP, group, ONE));
    says(ONE, group, port);
    CHECK_EQ(OK(recv(b, got, sizeof got, MSG_DONTWAIT)), 4);
    says(TWO, group, port);
    ERR(recv(b, got, sizeof got, MSG_DONTWAIT), EAGAIN);
    OK(source(a, IP_DROP_SOURCE_MEMBERSHIP, group, ONE));
    says(ONE, group, port);
    ERR(recv(b, got, sizeof got, MSG_DONTWAIT), EAGAIN);
    /* One that blocks and one that wants: both are served. */
    OK(whole(a, IP_ADD_MEMBERSHIP, group));
    OK(source(a, IP_BLOCK_SOURCE, group, TWO));
    says(TWO, group, port);
    ERR(recv(b, got, sizeof got, MSG_DONTWAIT), EAGAIN);
    int c = receiver(&port);
    OK(source(c, IP_ADD_SOURCE_MEMBERSHIP, group, TWO));
    says(TWO, group, port);
    CHECK_EQ(OK(recv(b, got, sizeof got, MSG_DONTWAIT)), 4);
    CHECK_EQ(OK(recv(c, got, sizeof got, MSG_DONTWAIT)), 4);
    OK(close(c)); /* and its filter ends with it */
    says(TWO, group, port);
    ERR(recv(b, got, sizeof got, MSG_DONTWAIT), EAGAIN);
}

TEST(a_raw_socket_has_a_filter_too) {
    NEEDS_CAPABILITY(CAP_NET_RAW);
    int s = OK(socket(AF_INET, SOCK_RAW, 253 /* RFC 3692 */));
    uint32_t group = SITE + 11;
    char got[64];
    OK(source(s, IP_ADD_SOURCE_MEMBERSHIP, group, ONE));
    for (uint32_t host = ONE; host <= TWO; host++) {
        int from = OK(socket(AF_INET, SOCK_RAW, 253));
        struct in_addr lo = {htonl(ONE)};
        OK(setsockopt(from, IPPROTO_IP, IP_MULTICAST_IF, &lo, sizeof lo));
        OK(bind(from, AT4(host, 0)));
        CHECK_EQ(OK(sendto(from, "raw", 3, 0, AT4(group, 0))), 3);
        if (host == ONE)
            CHECK_EQ(OK(recv(s, got, sizeof got, MSG_DONTWAIT)), 23);
        else
            ERR(recv(s, got, sizeof got, MSG_DONTWAIT), EAGAIN);
        OK(close(from));
    }
}

/* ---- options of both versions ---------------------------------------------------------------- */

static struct sockaddr_storage of_four(uint32_t host) {
    struct sockaddr_storage a = {0};
    *(struct sockaddr_in *)&a =
        (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(host)};
    return a;
}
static struct sockaddr_storage of_six(struct in6_addr host) {
    struct sockaddr_storage a = {0};
    *(struct sockaddr_in6 *)&a = (struct sockaddr_in6){.sin6_family = AF_INET6, .sin6_addr = host};
    return a;
}
/* A group of the interface, and a host. */
static struct in6_addr group6(int last) {
    return (struct in6_addr){{{0xff, 1, [14] = 0x77, [15] = (unsigned char)last}}};
}
static struct in6_addr host6(int last) {
    return (struct in6_addr){{{0xfd, [15] = (unsigned char)last}}};
}
static int join(int s, int level, int option, struct sockaddr_storage group, int index) {
    struct group_req r = {(uint32_t)index, group};
    return setsockopt(s, level, option, &r, sizeof r);
}
static int source_of(int s, int level, int option, struct sockaddr_storage group,
                     struct sockaddr_storage host, int index) {
    struct group_source_req r = {(uint32_t)index, group, host};
    return setsockopt(s, level, option, &r, sizeof r);
}

TEST(options_of_both_versions_on_ipv4) {
    int port = 0, s = receiver(&port), l = IPPROTO_IP;
    uint32_t group = SITE + 12;
    struct sockaddr_storage g = of_four(group), one = of_four(ONE), two = of_four(TWO);
    OK(join(s, l, MCAST_JOIN_GROUP, g, lo()));
    ERR(join(s, l, MCAST_JOIN_GROUP, g, lo()), EADDRINUSE);
    ERR(whole(s, IP_ADD_MEMBERSHIP, group), EADDRINUSE);
    CHECK(hears(s, ONE, group));
    OK(source_of(s, l, MCAST_BLOCK_SOURCE, g, one, lo()));
    CHECK(!hears(s, ONE, group) && hears(s, TWO, group));
    ERR(source_of(s, l, MCAST_BLOCK_SOURCE, g, one, lo()), EADDRNOTAVAIL);
    ERR(source_of(s, l, MCAST_JOIN_SOURCE_GROUP, g, two, lo()), EINVAL);
    OK(source_of(s, l, MCAST_UNBLOCK_SOURCE, g, one, lo()));
    CHECK(hears(s, ONE, group));
    OK(join(s, l, MCAST_LEAVE_GROUP, g, lo()));
    ERR(join(s, l, MCAST_LEAVE_GROUP, g, lo()), EADDRNOTAVAIL);
    OK(source_of(s, l, MCAST_JOIN_SOURCE_GROUP, g, two, lo()));
    CHECK(!hears(s, ONE, group) && hears(s, TWO, group));
    OK(source(s, IP_ADD_SOURCE_MEMBERSHIP, group, ONE)); /* by the other option */
    CHECK(hears(s, ONE, group));
    OK(source_of(s, l, MCAST_LEAVE_SOURCE_GROUP, g, two, lo()));
    OK(source_of(s, l, MCAST_LEAVE_SOURCE_GROUP, g, one, lo()));
    ERR(source_of(s, l, MCAST_LEAVE_SOURCE_GROUP, g, one, lo()), EINVAL);
}

/* What every option about a group and a source of it refuses; `foreign`: of the other version. */
static void errors_of_options(int s, int l, struct sockaddr_storage g, struct sockaddr_storage one,
                              struct sockaddr_storage foreign) {
    struct group_req r = {1, g};
    ERR(setsockopt(s, l, MCAST_JOIN_GROUP, &r, sizeof r - 1), EINVAL);
    ERR(setsockopt(s, l, MCAST_JOIN_GROUP, BAD, sizeof r), EFAULT);
    static const int options[] = {MCAST_JOIN_SOURCE_GROUP, MCAST_LEAVE_SOURCE_GROUP,
                                  MCAST_BLOCK_SOURCE, MCAST_UNBLOCK_SOURCE};
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
        struct group_source_req q = {1, g, one};
        ERR(setsockopt(s, l, options[i], &q, sizeof q - 1), EINVAL);
        ERR(setsockopt(s, l, options[i], BAD, sizeof q), EFAULT);
        ERR(source_of(s, l, options[i], foreign, one, lo()), EADDRNOTAVAIL);
        ERR(source_of(s, l, options[i], g, foreign, lo()), EADDRNOTAVAIL);
        ERR(source_of(s, l, options[i], one, one, lo()), EINVAL);
        ERR(source_of(s, l, options[i], g, one, 100000), ENODEV);
    }
}

TEST(errors_of_options_of_both_versions) {
    int port = 0, s = receiver(&port), l = IPPROTO_IP;
    struct sockaddr_storage g = of_four(SITE + 13), one = of_four(ONE);
    struct sockaddr_storage six = of_six(group6(1));
    ERR(join(s, l, MCAST_JOIN_GROUP, six, lo()), EINVAL);
    ERR(join(s, l, MCAST_JOIN_GROUP, one, lo()), EINVAL);
    ERR(join(s, l, MCAST_JOIN_GROUP, g, 100000), ENODEV);
    ERR(join(s, l, MCAST_LEAVE_GROUP, six, lo()), EINVAL);
    errors_of_options(s, l, g, one, six);
}

/* struct group_filter with room for sources. */
struct filter6 {
    uint32_t interface;
    struct sockaddr_storage group;
    uint32_t mode, count;
    struct sockaddr_storage sources[70];
};
static socklen_t size_of_filter6(int count) {
    return (socklen_t)(offsetof(struct filter6, sources) +
                       (size_t)count * sizeof(struct sockaddr_storage));
}

TEST(a_filter_of_both_versions_on_ipv4) {
    int port = 0, s = receiver(&port), l = IPPROTO_IP;
    uint32_t group = SITE + 14;
    struct filter6 f = {(uint32_t)lo(), of_four(group), MCAST_EXCLUDE, 2,
                        {of_four(TWO), of_four(ONE)}}, got;
    ERR(setsockopt(s, l, MCAST_MSFILTER, &f, size_of_filter6(2)), EINVAL); /* it has not joined */
    OK(whole(s, IP_ADD_MEMBERSHIP, group));
    OK(setsockopt(s, l, MCAST_MSFILTER, &f, size_of_filter6(2)));
    CHECK(!hears(s, ONE, group) && !hears(s, TWO, group) && hears(s, THREE, group));
    got = (struct filter6){.interface = (uint32_t)lo(), .group = of_four(group), .count = 70};
    socklen_t size = sizeof got;
    OK(getsockopt(s, l, MCAST_MSFILTER, &got, &size));
    CHECK_EQ(size, size_of_filter6(2));
    CHECK_EQ(got.mode, MCAST_EXCLUDE);
    CHECK_EQ(got.count, 2);
    CHECK(memcmp(got.sources, f.sources, 2 * sizeof *f.sources) == 0);
    /* The interface is not looked for. */
    got.interface = 0;
    ERR(getsockopt(s, l, MCAST_MSFILTER, &got, &size), EADDRNOTAVAIL);
    got.group = of_six(group6(1));
    ERR(getsockopt(s, l, MCAST_MSFILTER, &got, &size), EINVAL);
    got.group = of_four(ONE);
    ERR(getsockopt(s, l, MCAST_MSFILTER, &got, &size), EINVAL);
    size = size_of_filter6(0) - 1;
    ERR(getsockopt(s, l, MCAST_MSFILTER, &got, &size), EINVAL);
    size = sizeof got;
    ERR(getsockopt(s, l, MCAST_MSFILTER, BAD, &size), EFAULT);
    /* Errors of setting it. */
    ERR(setsockopt(s, l, MCAST_MSFILTER, &f, size_of_filter6(0) - 1), EINVAL);
    ERR(setsockopt(s, l, MCAST_MSFILTER, &f, size_of_filter6(1)), EINVAL);
    ERR(setsockopt(s, l, MCAST_MSFILTER, &f, 8 << 20), ENOBUFS);
    ERR(setsockopt(s, l, MCAST_MSFILTER, BAD, size_of_filter6(2)), EFAULT);
    struct filter6 bad = f;
    bad.sources[1] = of_six(host6(1));
    ERR(setsockopt(s, l, MCAST_MSFILTER, &bad, size_of_filter6(2)), EADDRNOTAVAIL);
    bad = f;
    bad.group = of_six(group6(1));
    ERR(setsockopt(s, l, MCAST_MSFILTER, &bad, size_of_filter6(2)), EADDRNOTAVAIL);
    bad = f;
    bad.mode = 2;
    ERR(setsockopt(s, l, MCAST_MSFILTER, &bad, size_of_filter6(2)), EINVAL);
    bad = f;
    bad.interface = 100000;
    ERR(setsockopt(s, l, MCAST_MSFILTER, &bad, size_of_filter6(2)), ENODEV);
    bad = f;
    bad.count = 65;
    if (sysctl_number("/proc/sys/net/ipv4/igmp_max_msf") == 10)
        ERR(setsockopt(s, l, MCAST_MSFILTER, &bad, size_of_filter6(65)), ENOBUFS);
    /* To want none is to leave. */
    f.mode = MCAST_INCLUDE, f.count = 0;
    OK(setsockopt(s, l, MCAST_MSFILTER, &f, size_of_filter6(0)));
    ERR(whole(s, IP_DROP_MEMBERSHIP, group), EADDRNOTAVAIL);
}

/* ---- IPv6 ------------------------------------------------------------------------------------ */

TEST(sources_of_groups_of_ipv6) {
    NEEDS_IPV6();
    int s = OK(socket(AF_INET6, SOCK_DGRAM, 0)), l = IPPROTO_IPV6;
    struct sockaddr_storage g = of_six(group6(2)), one = of_six(host6(1)), two = of_six(host6(2));
    ERR(source_of(s, l, MCAST_BLOCK_SOURCE, g, one, lo()), EINVAL); /* it has not joined */
    OK(join(s, l, MCAST_JOIN_GROUP, g, lo()));
    ERR(join(s, l, MCAST_JOIN_GROUP, g, lo()), EADDRINUSE);
    ERR(join(s, l, MCAST_JOIN_GROUP, g, 0), EADDRINUSE); /* of any interface */
    struct ipv6_mreq m = {group6(2), (unsigned)lo()};
    ERR(setsockopt(s, l, IPV6_JOIN_GROUP, &m, sizeof m), EADDRINUSE);
    ERR(source_of(s, l, MCAST_UNBLOCK_SOURCE, g, one, lo()), EADDRNOTAVAIL);
    OK(source_of(s, l, MCAST_BLOCK_SOURCE, g, one, lo()));
    ERR(source_of(s, l, MCAST_BLOCK_SOURCE, g, one, lo()), EADDRNOTAVAIL);
    ERR(source_of(s, l, MCAST_JOIN_SOURCE_GROUP, g, two, lo()), EINVAL);
    OK(source_of(s, l, MCAST_UNBLOCK_SOURCE, g, one, lo()));
    OK(join(s, l, MCAST_LEAVE_GROUP, g, 0));
    ERR(join(s, l, MCAST_LEAVE_GROUP, g, 0), EADDRNOTAVAIL);
    OK(source_of(s, l, MCAST_JOIN_SOURCE_GROUP, g, one, lo()));
    ERR(source_of(s, l, MCAST_JOIN_SOURCE_GROUP, g, one, lo()), EADDRNOTAVAIL);
    OK(source_of(s, l, MCAST_JOIN_SOURCE_GROUP, g, two, lo()));
    ERR(source_of(s, l, MCAST_BLOCK_SOURCE, g, one, lo()), EINVAL);
    OK(source_of(s, l, MCAST_LEAVE_SOURCE_GROUP, g, one, lo()));
    ERR(source_of(s, l, MCAST_LEAVE_SOURCE_GROUP, g, one, lo()), EADDRNOTAVAIL);
    OK(source_of(s, l, MCAST_LEAVE_SOURCE_GROUP, g, two, lo()));
    ERR(source_of(s, l, MCAST_LEAVE_SOURCE_GROUP, g, two, lo()), EINVAL);
}

TEST(errors_of_groups_of_ipv6) {
    NEEDS_IPV6();
    int s = OK(socket(AF_INET6, SOCK_DGRAM, 0)), l = IPPROTO_IPV6;
    struct sockaddr_storage g = of_six(group6(3)), one = of_six(host6(1)), four = of_four(SITE);
    ERR(join(s, l, MCAST_JOIN_GROUP, four, lo()), EADDRNOTAVAIL);
    ERR(join(s, l, MCAST_JOIN_GROUP, one, lo()), EINVAL);
    ERR(join(s, l, MCAST_JOIN_GROUP, g, 100000), ENODEV);
    ERR(join(s, l, MCAST_LEAVE_GROUP, one, lo()), EINVAL);
    errors_of_options(s, l, g, one, four);
    int t = OK(socket(AF_INET6, SOCK_STREAM, 0));
    struct ipv6_mreq m = {group6(3), (unsigned)lo()};
    ERR(setsockopt(t, l, IPV6_JOIN_GROUP, &m, sizeof m), EPROTO);
    ERR(setsockopt(t, l, IPV6_LEAVE_GROUP, &m, sizeof m), EPROTO);
    /* A socket of IPv4 has no such options. */
    ERR(join(OK(socket(AF_INET, SOCK_DGRAM, 0)), l, MCAST_JOIN_GROUP, g, lo()), ENOPROTOOPT);
}

TEST(a_filter_of_a_group_of_ipv6) {
    NEEDS_IPV6();
    int s = OK(socket(AF_INET6, SOCK_DGRAM, 0)), l = IPPROTO_IPV6;
    struct filter6 f = {(uint32_t)lo(), of_six(group6(4)), MCAST_INCLUDE, 2,
                        {of_six(host6(2)), of_six(host6(1))}}, got;
    ERR(setsockopt(s, l, MCAST_MSFILTER, &f, size_of_filter6(2)), EINVAL); /* it has not joined */
    OK(join(s, l, MCAST_JOIN_GROUP, f.group, lo()));
    OK(setsockopt(s, l, MCAST_MSFILTER, &f, size_of_filter6(2)));
    got = (struct filter6){.interface = (uint32_t)lo(), .group = f.group, .count = 1};
    socklen_t size = sizeof got;
    OK(getsockopt(s, l, MCAST_MSFILTER, &got, &size));
    CHECK_EQ(size, size_of_filter6(1));
    CHECK_EQ(got.mode, MCAST_INCLUDE);
    CHECK_EQ(got.count, 2);
    CHECK(memcmp(got.sources, f.sources, sizeof *f.sources) == 0);
    got.interface = 0;
    ERR(getsockopt(s, l, MCAST_MSFILTER, &got, &size), EADDRNOTAVAIL);
    got.group = of_four(SITE);
    ERR(getsockopt(s, l, MCAST_MSFILTER, &got, &size), EADDRNOTAVAIL);
    got.group = of_six(host6(1));
    ERR(getsockopt(s, l, MCAST_MSFILTER, &got, &size), EINVAL);
    size = size_of_filter6(0) - 1;
    ERR(getsockopt(s, l, MCAST_MSFILTER, &got, &size), EINVAL);
    ERR(setsockopt(s, l, MCAST_MSFILTER, &f, size_of_filter6(0) - 1), EINVAL);
    ERR(setsockopt(s, l, MCAST_MSFILTER, &f, size_of_filter6(1)), EINVAL);
    ERR(setsockopt(s, l, MCAST_MSFILTER, &f, 8 << 20), ENOBUFS);
    ERR(setsockopt(s, l, MCAST_MSFILTER, BAD, size_of_filter6(2)), EFAULT);
    struct filter6 bad = f;
    bad.mode = 2;
    ERR(setsockopt(s, l, MCAST_MSFILTER, &bad, size_of_filter6(2)), EINVAL);
    bad.mode = MCAST_INCLUDE, bad.interface = 100000;
    ERR(setsockopt(s, l, MCAST_MSFILTER, &bad, size_of_filter6(2)), ENODEV);
    bad.interface = f.interface, bad.group = of_six(host6(1));
    ERR(setsockopt(s, l, MCAST_MSFILTER, &bad, size_of_filter6(2)), EINVAL);
    if (sysctl_number("/proc/sys/net/ipv6/mld_max_msf") == 64) {
        bad = f, bad.count = 65;
        ERR(setsockopt(s, l, MCAST_MSFILTER, &bad, size_of_filter6(65)), ENOBUFS);
        for (int i = 3; i <= 64; i++)
            OK(source_of(s, l, MCAST_JOIN_SOURCE_GROUP, f.group, of_six(host6(i)), lo()));
        ERR(source_of(s, l, MCAST_JOIN_SOURCE_GROUP, f.group, of_six(host6(65)), lo()), ENOBUFS);
    }
    f.count = 0;
    OK(setsockopt(s, l, MCAST_MSFILTER, &f, size_of_filter6(0)));
    ERR(join(s, l, MCAST_LEAVE_GROUP, f.group, lo()), EADDRNOTAVAIL);
}

/* What this machine says itself comes back by an Ethernet (IPV6_MULTICAST_LOOP). */
TEST(sources_of_ipv6_are_chosen) {
    NEEDS_IPV6();
    int index = ethernet(), l = IPPROTO_IPV6;
    if (!index)
        SKIP("no Ethernet");
    struct in6_addr group = {{{0xff, 5, [14] = 0xa8, [15] = 1}}};
    int a = OK(socket(AF_INET6, SOCK_DGRAM, 0)), s = OK(socket(AF_INET6, SOCK_DGRAM, 0));
    char got[8];
    OK(bind(a, ANY6(0)));
    OK(set_option(s, l, IPV6_MULTICAST_IF, index));
    if (connect(s, AT6(group, port_of(a))) == -1)
        SKIP("no IPv6 on the Ethernet");
    struct sockaddr_storage own = of_six(name_of(s).six.sin6_addr), g = of_six(group);
    OK(source_of(a, l, MCAST_JOIN_SOURCE_GROUP, g, own, index));
    CHECK_EQ(OK(send(s, "said", 4, 0)), 4);
    CHECK_EQ(OK(recv(a, got, sizeof got, 0)), 4);
    OK(source_of(a, l, MCAST_JOIN_SOURCE_GROUP, g, of_six(host6(9)), index));
    OK(source_of(a, l, MCAST_LEAVE_SOURCE_GROUP, g, own, index));
    CHECK_EQ(OK(send(s, "said", 4, 0)), 4);
    CHECK_EQ(events_of(a, POLLIN, 100), 0);
    OK(source_of(a, l, MCAST_LEAVE_SOURCE_GROUP, g, of_six(host6(9)), index));
    OK(join(a, l, MCAST_JOIN_GROUP, g, index));
    CHECK_EQ(OK(send(s, "said", 4, 0)), 4);
    CHECK_EQ(OK(recv(a, got, sizeof got, 0)), 4);
    OK(source_of(a, l, MCAST_BLOCK_SOURCE, g, own, index));
    CHECK_EQ(OK(send(s, "said", 4, 0)), 4);
    CHECK_EQ(events_of(a, POLLIN, 100), 0);
}

/* ---- what routers are told ------------------------------------------------------------------- */

/* Whether a report leaves within three seconds with a record of this type about the group that
 * names this source; or the machine speaks an older dialect, which has no sources. */
static bool is_told(int watch, const void *group, const void *source, size_t size, int record) {
    for (int i = 0; i < 300; i++) {
        unsigned char p[1500];
        struct pollfd f = {watch, POLLIN, 0};
        if (poll(&f, 1, 10) != 1)
            continue;
        ssize_t n = recv(watch, p, sizeof p, MSG_DONTWAIT);
        bool six = size == 16;
        size_t head = six ? 48 : 24, older = six ? 131 : 0x16;
        if (n < (ssize_t)(head + 8) || p[six ? 6 : 9] != (six ? 0 : 2))
            continue;
        if (p[head] == older && memcmp(p + n - size, group, size) == 0)
            SKIP("a router speaks an older dialect");
        if (p[head] != (six ? 143 : 0x22))
            continue;
        size_t at = head + 8;
        for (int r = p[head + 6] << 8 | p[head + 7]; r > 0 && at + 4 + size <= (size_t)n; r--) {
            size_t count = (size_t)p[at + 2] << 8 | p[at + 3];
            if (p[at] == record && memcmp(p + at + 4, group, size) == 0)
                for (size_t k = 1; k <= count; k++)
                    if (memcmp(p + at + 4 + k * size, source, size) == 0)
                        return true;
            at += 4 + size + count * size;
        }
    }
    return false;
}
enum { IS_IN = 1, TO_IN = 3, TO_EX = 4, ALLOW = 5, BLOCK = 6 };

TEST(routers_are_told_of_sources) {
    NEEDS_ROOT();
    int index = ethernet(), l = IPPROTO_IP;
    if (!index)
        SKIP("no Ethernet");
    int watch = watcher(index), a = OK(socket(AF_INET, SOCK_DGRAM, 0));
    uint32_t group = htonl(SITE + 20), one = htonl(STRANGER), two = htonl(STRANGER + 1);
    struct sockaddr_storage g = of_four(SITE + 20);
    OK(source_of(a, l, MCAST_JOIN_SOURCE_GROUP, g, of_four(STRANGER), index));
    CHECK(is_told(watch, &group, &one, 4, ALLOW));
    CHECK(is_told(watch, &group, &one, 4, ALLOW)); /* again: one may be lost */
    OK(source_of(a, l, MCAST_JOIN_SOURCE_GROUP, g, of_four(STRANGER + 1), index));
    CHECK(is_told(watch, &group, &two, 4, ALLOW));
    OK(source_of(a, l, MCAST_LEAVE_SOURCE_GROUP, g, of_four(STRANGER), index));
    CHECK(is_told(watch, &group, &one, 4, BLOCK));
    /* The whole filter turns. */
    struct filter6 f = {(uint32_t)index, g, MCAST_EXCLUDE, 1, {of_four(STRANGER)}};
    OK(setsockopt(a, l, MCAST_MSFILTER, &f, size_of_filter6(1)));
    CHECK(is_told(watch, &group, &one, 4, TO_EX));
    f.mode = MCAST_INCLUDE;
    OK(setsockopt(a, l, MCAST_MSFILTER, &f, size_of_filter6(1)));
    CHECK(is_told(watch, &group, &one, 4, TO_IN));
    OK(close(a));
    CHECK(is_told(watch, &group, &one, 4, BLOCK));
}

TEST(routers_are_told_of_sources_of_ipv6) {
    NEEDS_ROOT();
    NEEDS_IPV6();
    int index = ethernet(), l = IPPROTO_IPV6;
    if (!index)
        SKIP("no Ethernet");
    int watch = watcher(index), a = OK(socket(AF_INET6, SOCK_DGRAM, 0));
    struct in6_addr group = {{{0xff, 5, [14] = 0xa8, [15] = 2}}}, one = host6(1);
    struct sockaddr_storage g = of_six(group);
    if (source_of(a, l, MCAST_JOIN_SOURCE_GROUP, g, of_six(one), index) == -1)
        SKIP("no IPv6 on the Ethernet");
    CHECK(is_told(watch, &group, &one, 16, ALLOW));
    OK(close(a));
    CHECK(is_told(watch, &group, &one, 16, BLOCK));
}

/* The machine hears its own query too (IP_MULTICAST_LOOP). */
TEST(a_question_about_sources_is_answered) {
    NEEDS_ROOT();
    int index = ethernet(), l = IPPROTO_IP;
    if (!index)
        SKIP("no Ethernet");
    int watch = watcher(index), a = OK(socket(AF_INET, SOCK_DGRAM, 0));
    int r = OK(socket(AF_INET, SOCK_RAW, 2 /* IPPROTO_IGMP */));
    uint32_t group = htonl(SITE + 21), one = htonl(STRANGER), two = htonl(STRANGER + 1);
    struct sockaddr_storage g = of_four(SITE + 21);
    OK(source_of(a, l, MCAST_JOIN_SOURCE_GROUP, g, of_four(STRANGER), index));
    CHECK(is_told(watch, &group, &one, 4, ALLOW));
    struct ip_mreqn out = {{0}, {0}, index};
    OK(setsockopt(r, l, IP_MULTICAST_IF, &out, sizeof out));
    /* Of IGMPv3, about two sources, of which one is wanted; an answer within a second. */
    unsigned char query[20] = {0x11, 10, [8] = 2, 125, 0, 2};
    memcpy(query + 4, &group, 4);
    memcpy(query + 12, &two, 4);
    memcpy(query + 16, &one, 4);
    uint16_t sum = sum_of(query, sizeof query);
    memcpy(query + 2, &sum, 2);
    CHECK_EQ(OK(sendto(r, query, sizeof query, 0, AT4(SITE + 21, 0))), (ssize_t)sizeof query);
    CHECK(is_told(watch, &group, &one, 4, IS_IN));
}

/* ---- /proc/net ------------------------------------------------------------------------------- */

/* The line of a file that begins with `head` behind white space, of interface `lo`; "" if none. In
 * igmp the lines of groups stand below a line of their interface. */
static const char *line_of(const char *path, const char *interface, const char *head) {
    static char text[1 << 16], line[256];
    CHECK(get_file(path, text, sizeof text) > 0);
    bool here = !interface;
    char *rest = text;
    for (char *at; (at = strsep(&rest, "\n"));) {
        int index;
        char name[32] = "";
        if (interface && sscanf(at, "%d\t%31[^ :]", &index, name) == 2 && at[0] != '\t')
            here = strcmp(name, interface) == 0;
        at += strspn(at, " \t");
        if (here && strncmp(at, head, strlen(head)) == 0) {
            snprintf(line, sizeof line, "%s", at);
            return line;
        }
    }
    return "";
}

TEST(groups_are_shown) {
    int port = 0, s = receiver(&port), t = receiver(&port);
    uint32_t group = SITE + 60;
    char head[64];
    unsigned users, running;
    /* As a number in the order of the network. */
    snprintf(head, sizeof head, "%08X ", htonl(group));
    CHECK_STR(line_of("/proc/net/igmp", "lo", head), "");
    CHECK(strncmp(line_of("/proc/net/igmp", "lo", "010000E0 "), "010000E0     1 ", 15) == 0);
    int count, index;
    char querier[8];
    snprintf(head, sizeof head, "%d\tlo ", lo());
    const char *own = line_of("/proc/net/igmp", NULL, head);
    CHECK_EQ(sscanf(own, "%d\tlo : %d %7s", &index, &count, querier), 3);
    CHECK(count >= 1 && querier[0] == 'V');
    OK(whole(s, IP_ADD_MEMBERSHIP, group));
    OK(whole(t, IP_ADD_MEMBERSHIP, group));
    snprintf(head, sizeof head, "%08X ", htonl(group));
    CHECK_EQ(sscanf(line_of("/proc/net/igmp", "lo", head), "%*x %u %u:", &users, &running), 2);
    CHECK_EQ(users, 2);
    OK(close(s));
    CHECK_EQ(sscanf(line_of("/proc/net/igmp", "lo", head), "%*x %u %u:", &users, &running), 2);
    CHECK_EQ(users, 1);
    OK(close(t));
    CHECK_STR(line_of("/proc/net/igmp", "lo", head), "");
}

TEST(groups_of_ipv6_are_shown) {
    NEEDS_IPV6();
    char head[96];
    unsigned users, flags;
    int s = OK(socket(AF_INET6, SOCK_DGRAM, 0));
    struct ipv6_mreq m = {group6(60), (unsigned)lo()};
    char digits[33];
    for (int i = 0; i < 16; i++) snprintf(digits + 2 * i, 3, "%02x", m.ipv6mr_multiaddr.s6_addr[i]);
    snprintf(head, sizeof head, "%-4d %-15s %s ", lo(), "lo", digits);
    CHECK_STR(line_of("/proc/net/igmp6", NULL, head), "");
    OK(setsockopt(s, IPPROTO_IPV6, IPV6_JOIN_GROUP, &m, sizeof m));
    const char *line = line_of("/proc/net/igmp6", NULL, head);
    CHECK_EQ(sscanf(line + strlen(head), "%u %x", &users, &flags), 2);
    CHECK_EQ(users, 1);
    /* What stays in a machine is not told to a device (4) or to routers. */
    CHECK_EQ(flags & 4, (m.ipv6mr_multiaddr.s6_addr[1] & 15) > 1 ? 4 : 0);
    snprintf(head, sizeof head, "%-4d %-15s ff020000000000000000000000000001 ", lo(), "lo");
    line = line_of("/proc/net/igmp6", NULL, head);
    CHECK_EQ(sscanf(line + strlen(head), "%u %x", &users, &flags), 2);
    CHECK_EQ(flags, 12);
    OK(close(s));
}

TEST(sources_are_shown) {
    int port = 0, s = receiver(&port), t = receiver(&port);
    uint32_t group = SITE + 61;
    char head[64];
    unsigned included, excluded;
    OK(source(s, IP_ADD_SOURCE_MEMBERSHIP, group, ONE));
    OK(whole(t, IP_ADD_MEMBERSHIP, group));
    OK(source(t, IP_BLOCK_SOURCE, group, ONE));
    CHECK_STR(line_of("/proc/net/mcfilter", NULL, "Idx"),
              "Idx Device        MCA        SRC    INC    EXC");
    snprintf(head, sizeof head, "%d     lo 0x%08x 0x%08x ", lo(), group, ONE);
    const char *line = line_of("/proc/net/mcfilter", NULL, head);
    CHECK_EQ(sscanf(line + strlen(head), "%u %u", &included, &excluded), 2);
    CHECK_EQ(included, 1);
    CHECK_EQ(excluded, 1);
    OK(close(s));
    OK(close(t));
    CHECK_STR(line_of("/proc/net/mcfilter", NULL, head), "");
}

TEST(sources_of_ipv6_are_shown) {
    NEEDS_IPV6();
    int s = OK(socket(AF_INET6, SOCK_DGRAM, 0));
    unsigned included, excluded;
    struct sockaddr_storage g = of_six(group6(61)), one = of_six(host6(1));
    OK(source_of(s, IPPROTO_IPV6, MCAST_JOIN_SOURCE_GROUP, g, one, lo()));
    char head[128], digits[2][33];
    struct in6_addr both[] = {group6(61), host6(1)};
    for (int j = 0; j < 2; j++)
        for (int i = 0; i < 16; i++) snprintf(digits[j] + 2 * i, 3, "%02x", both[j].s6_addr[i]);
    snprintf(head, sizeof head, "%d     lo %s %s ", lo(), digits[0], digits[1]);
    const char *line = line_of("/proc/net/mcfilter6", NULL, head);
    CHECK_EQ(sscanf(line + strlen(head), "%u %u", &included, &excluded), 2);
    CHECK_EQ(included, 1);
    CHECK_EQ(excluded, 0);
    OK(close(s));
}
