/*
 * The MTU of paths for datagrams: ip(7) and ipv6(7), IP_MTU_DISCOVER and its relatives; RFC 1191,
 * RFC 8201. A raw socket plays the router. Paths are remembered by the whole machine, so cases that
 * tell of them have a network of their own, and each an address of loopback to send to.
 */
#define AREA "pathmtu"
#include "net.h"
#include <netinet/icmp6.h>
#include <netinet/ip.h>
#include <netinet/ip6.h>
#include <netinet/ip_icmp.h>
#include <netinet/tcp.h>
#include <netinet/udp.h>

/* linux/errqueue.h */
struct extended_error {
    uint32_t number;
    uint8_t origin, type, code, pad;
    uint32_t info, data;
};
enum { ORIGIN_NONE, ORIGIN_LOCAL, ORIGIN_ICMP, ORIGIN_ICMP6 };
/* linux/in6.h */
struct mtu_info {
    struct sockaddr_in6 to;
    uint32_t mtu;
};
enum { RECVERR6 = 25, RECVPATHMTU = 60, PATHMTU = 61, DONTFRAG = 62 };
#define ROUTE4 "/proc/sys/net/ipv4/route/"
#define ROUTE6 "/proc/sys/net/ipv6/route/"
#define WHOLE 65535 /* IP_MAX_MTU: lo's 65536 is more than a packet of IPv4 can have */

static int interface_mtu(const char *name, int mtu) {
    struct ifreq r = {.ifr_mtu = mtu};
    strncpy(r.ifr_name, name, IFNAMSIZ - 1);
    int s = OK(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)), result = ioctl(s, SIOCSIFMTU, &r);
    close(s);
    return result;
}
static int write_setting(const char *path, const char *text) {
    int fd = OK(open(path, O_WRONLY | O_CLOEXEC));
    ssize_t n = write(fd, text, strlen(text));
    int error = errno;
    close(fd);
    errno = error;
    return n == -1 ? -1 : 0;
}

/* One receive with control messages. */
static union address from;
static char control[512], body[70000];
static struct msghdr message;
static ssize_t receive(int s, int flags) {
    static struct iovec v;
    v = (struct iovec){body, sizeof body};
    message = (struct msghdr){.msg_iov = &v, .msg_iovlen = 1, .msg_name = &from,
                              .msg_namelen = sizeof from, .msg_control = control,
                              .msg_controllen = sizeof control};
    return recvmsg(s, &message, flags | MSG_DONTWAIT);
}
static void *control_of(int level, int type, size_t size) {
    for (struct cmsghdr *h = CMSG_FIRSTHDR(&message); h; h = CMSG_NXTHDR(&message, h))
        if (h->cmsg_level == level && h->cmsg_type == type && h->cmsg_len >= CMSG_LEN(size))
            return CMSG_DATA(h);
    return NULL;
}
static int error_of(int s) { return OPTION(s, SOL_SOCKET, SO_ERROR); }
static int mtu_of(int s) { return OPTION(s, IPPROTO_IP, IP_MTU); }
static int mtu6_of(int s) { return OPTION(s, IPPROTO_IPV6, IPV6_MTU); }
static void way(int s, int how) { OK(set_option(s, IPPROTO_IP, IP_MTU_DISCOVER, how)); }

/* The router says that a packet was too long which came from `source` and was for `target`. */
static void tell(int protocol, union address source, union address target, int mtu) {
    struct {
        struct icmphdr icmp;
        struct iphdr ip;
        uint16_t ports[4];
    } m = {.icmp = {.type = ICMP_DEST_UNREACH, .code = ICMP_FRAG_NEEDED},
           .ip = {.version = 4, .ihl = 5, .tot_len = htons(2000), .frag_off = htons(0x4000),
                  .ttl = 9, .protocol = (uint8_t)protocol, .saddr = source.four.sin_addr.s_addr,
                  .daddr = target.four.sin_addr.s_addr},
           .ports = {source.four.sin_port, target.four.sin_port, htons(1980), 0}};
    if (protocol == IPPROTO_ICMP) { /* an echo request, and its identifier */
        m.ports[0] = htons(ICMP_ECHO << 8);
        m.ports[2] = source.four.sin_port;
    }
    m.icmp.un.frag.mtu = htons((uint16_t)mtu);
    m.icmp.checksum = sum_of(&m, sizeof m);
    int raw = OK(socket(AF_INET, SOCK_RAW | SOCK_CLOEXEC, IPPROTO_ICMP));
    source.four.sin_port = 0;
    CHECK_EQ(OK(sendto(raw, &m, sizeof m, 0, &source.any, sizeof source.four)), sizeof m);
    OK(close(raw));
}
static union address host_of(uint32_t host) {
    return (union address){.four = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(host)}};
}
/* The same about what a connected socket sent. */
static void tell_of(int s, int mtu) { tell(IPPROTO_UDP, name_of(s), peer_of(s), mtu); }

/* A host of loopback that no other case sends to: a path is remembered for ten minutes. */
static uint32_t strange_host(void) { return 0x7f000001u | ((uint32_t)getpid() & 0x7fff) << 8; }
/* A socket connected to a port of a host in 127.0.0.0/8, from 127.0.0.1. */
static int connected(int kind, uint32_t host, int port) {
    int s = OK(socket(AF_INET, kind | SOCK_CLOEXEC, 0));
    OK(bind(s, LO4(0)));
    OK(connect(s, AT4(host, port)));
    return s;
}
static int bound(uint32_t host) {
    int s = OK(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    OK(bind(s, AT4(host, 0)));
    return s;
}

TEST(a_router_lowers_the_mtu_of_a_path) {
    NEEDS_CAPABILITY(CAP_NET_RAW);
    own_network();
    const uint32_t HOST = strange_host();
    int peer = bound(HOST), a = connected(SOCK_DGRAM, HOST, port_of(peer));
    CHECK_EQ(mtu_of(a), WHOLE);
    tell_of(a, 1400);
    CHECK_EQ(mtu_of(a), 1400);
    ERR(send(a, body, 10, 0), EMSGSIZE); /* the error is pending, and tells once */
    CHECK_EQ(OK(send(a, body, 10, 0)), 10);
    CHECK_EQ(OK(receive(peer, 0)), 10);
    /* By default what is longer is cut. */
    CHECK_EQ(OK(send(a, body, 3000, 0)), 3000);
    CHECK_EQ(OK(receive(peer, 0)), 3000);
    way(a, IP_PMTUDISC_DO);
    ERR(send(a, body, 1400 - 28 + 1, 0), EMSGSIZE);
    CHECK_EQ(OK(send(a, body, 1400 - 28, 0)), 1400 - 28);
    CHECK_EQ(OK(receive(peer, 0)), 1400 - 28);
    /* Others send to the same host by the same path, and to others not. */
    int b = connected(SOCK_DGRAM, HOST, port_of(peer)), c = connected(SOCK_DGRAM, HOST + 1, 9);
    CHECK_EQ(mtu_of(b), 1400);
    CHECK_EQ(error_of(b), 0);
    CHECK_EQ(mtu_of(c), WHOLE);
    way(b, IP_PMTUDISC_PROBE); /* obeys the interface alone */
    CHECK_EQ(OK(send(b, body, 3000, 0)), 3000);
    CHECK_EQ(OK(receive(peer, 0)), 3000);
    /* One that is not connected, too. */
    int u = udp_socket(AF_INET);
    way(u, IP_PMTUDISC_DO);
    ERR(sendto(u, body, 1373, 0, AT4(HOST, port_of(peer))), EMSGSIZE);
    CHECK_EQ(OK(sendto(u, body, 1372, 0, AT4(HOST, port_of(peer)))), 1372);
    /* It becomes lower, and never higher. */
    tell_of(a, 1300);
    CHECK_EQ(mtu_of(a), 1300);
    tell_of(a, 1500);
    CHECK_EQ(mtu_of(a), 1300);
}

TEST(a_stranger_lowers_no_mtu) {
    NEEDS_CAPABILITY(CAP_NET_RAW);
    own_network();
    const uint32_t HOST = strange_host();
    int peer = bound(HOST), a = connected(SOCK_DGRAM, HOST, port_of(peer));
    union address own = name_of(a), other = peer_of(a);
    union address wrong = own;
    wrong.four.sin_port = htons((uint16_t)(port_in(own) ^ 1)); /* no socket has it */
    tell(IPPROTO_UDP, wrong, other, 1400);
    CHECK_EQ(mtu_of(a), WHOLE);
    wrong = other;
    wrong.four.sin_port = htons((uint16_t)(port_in(other) ^ 1)); /* it is connected to another */
    tell(IPPROTO_UDP, own, wrong, 1400);
    CHECK_EQ(mtu_of(a), WHOLE);
    tell(IPPROTO_TCP, own, other, 1400);
    CHECK_EQ(mtu_of(a), WHOLE);
    tell(99, own, other, 1400);
    CHECK_EQ(mtu_of(a), WHOLE);
    CHECK_EQ(error_of(a), 0);
}

TEST(a_socket_chooses_whether_it_heeds_routers) {
    NEEDS_CAPABILITY(CAP_NET_RAW);
    own_network();
    const uint32_t HOST = strange_host();
    static const struct {
        int way, error, mtu;
    } ways[] = {
        /* What those believe that ask for no discovery: ip_sk_accept_pmtu. */
        {IP_PMTUDISC_DONT, 0, 1400},         {IP_PMTUDISC_WANT, EMSGSIZE, 1400},
        {IP_PMTUDISC_DO, EMSGSIZE, 1400},    {IP_PMTUDISC_PROBE, EMSGSIZE, 1400},
        {IP_PMTUDISC_INTERFACE, EMSGSIZE, WHOLE}, {IP_PMTUDISC_OMIT, EMSGSIZE, WHOLE},
    };
    for (int i = 0; i < 6; i++) {
        int a = connected(SOCK_DGRAM, HOST + 16 * (unsigned)i, 9);
        way(a, ways[i].way);
        tell_of(a, 1400);
        if (mtu_of(a) != ways[i].mtu) FAIL("way %d: MTU %d", i, mtu_of(a));
        int error = error_of(a);
        if (error != ways[i].error) FAIL("way %d: error %d", i, error);
        OK(close(a));
    }
    /* How it sends: DO, PROBE and INTERFACE cut nothing. */
    int peer = bound(HOST), a = connected(SOCK_DGRAM, HOST, port_of(peer));
    OK(interface_mtu("lo", 2000));
    static const struct {
        int way;
        ssize_t most, cut;
    } sends[] = {{IP_PMTUDISC_DONT, 1372, 1},  {IP_PMTUDISC_WANT, 1372, 1},
                 {IP_PMTUDISC_DO, 1372, 0},    {IP_PMTUDISC_PROBE, 1972, 0},
                 {IP_PMTUDISC_INTERFACE, 1972, 0}, {IP_PMTUDISC_OMIT, 1972, 1}};
    for (int i = 0; i < 6; i++) {
        way(a, sends[i].way);
        CHECK_EQ(OK(send(a, body, (size_t)sends[i].most, 0)), sends[i].most);
        CHECK_EQ(OK(receive(peer, 0)), sends[i].most);
        if (sends[i].cut) {
            CHECK_EQ(OK(send(a, body, 5000, 0)), 5000);
            CHECK_EQ(OK(receive(peer, 0)), 5000);
        } else {
            ERR(send(a, body, (size_t)sends[i].most + 1, 0), EMSGSIZE);
        }
    }
    OK(interface_mtu("lo", 65536));
}

TEST(little_is_not_believed) {
    NEEDS_CAPABILITY(CAP_NET_RAW);
    own_network();
    const uint32_t HOST = strange_host();
    CHECK_EQ(sysctl_number(ROUTE4 "min_pmtu"), 552);
    CHECK_EQ(sysctl_number(ROUTE4 "mtu_expires"), 600);
    int a = connected(SOCK_DGRAM, HOST, 9), b = connected(SOCK_DGRAM, HOST + 1, 9);
    tell_of(a, 100);
    CHECK_EQ(mtu_of(a), 552);
    tell_of(b, 0); /* a router of before RFC 1191 */
    CHECK_EQ(mtu_of(b), 552);
    SET_SYSCTL(ROUTE4 "min_pmtu", "1000");
    int c = connected(SOCK_DGRAM, HOST + 2, 9);
    tell_of(c, 700);
    CHECK_EQ(mtu_of(c), 1000);
    SET_SYSCTL(ROUTE4 "min_pmtu", "552");
    ERR(write_setting(ROUTE4 "min_pmtu", "67"), EINVAL);
}

TEST(what_a_router_told_ends) {
    NEEDS_CAPABILITY(CAP_NET_RAW);
    own_network();
    const uint32_t HOST = strange_host();
    SET_SYSCTL(ROUTE4 "mtu_expires", "1");
    int a = connected(SOCK_DGRAM, HOST, 9);
    tell_of(a, 1400);
    CHECK_EQ(mtu_of(a), 1400);
    EVENTUALLY(mtu_of(a) == WHOLE);
    SET_SYSCTL(ROUTE4 "mtu_expires", "600");
}

TEST(errors_about_the_mtu_are_queued) {
    NEEDS_CAPABILITY(CAP_NET_RAW);
    own_network();
    const uint32_t HOST = strange_host();
    int a = connected(SOCK_DGRAM, HOST, 9);
    OK(set_option(a, IPPROTO_IP, IP_RECVERR, 1));
    way(a, IP_PMTUDISC_DO);
    tell_of(a, 1400);
    CHECK_EQ(error_of(a), EMSGSIZE);
    OK(receive(a, MSG_ERRQUEUE));
    struct extended_error *e = control_of(IPPROTO_IP, IP_RECVERR, sizeof *e);
    CHECK(e);
    CHECK_EQ(e->number, EMSGSIZE);
    CHECK_EQ(e->origin, ORIGIN_ICMP);
    CHECK_EQ(e->type, ICMP_DEST_UNREACH);
    CHECK_EQ(e->code, ICMP_FRAG_NEEDED);
    CHECK_EQ(e->info, 1400);
    CHECK_EQ(host_in(from), HOST);
    CHECK_EQ(port_in(from), 9);
    /* The kernel's own refusal: it is queued, and not pending. */
    ERR(send(a, body, 1373, 0), EMSGSIZE);
    CHECK_EQ(error_of(a), 0);
    CHECK((events_of(a, POLLIN, 0) & POLLERR) != 0);
    CHECK_EQ(OK(receive(a, MSG_ERRQUEUE)), 0);
    e = control_of(IPPROTO_IP, IP_RECVERR, sizeof *e + sizeof(struct sockaddr_in));
    CHECK(e);
    CHECK_EQ(e->number, EMSGSIZE);
    CHECK_EQ(e->origin, ORIGIN_LOCAL);
    CHECK_EQ(e->type, 0);
    CHECK_EQ(e->code, 0);
    CHECK_EQ(e->info, 1400);
    CHECK_EQ(((struct sockaddr_in *)(e + 1))->sin_family, AF_UNSPEC); /* no host reported it */
    CHECK_EQ(host_in(from), HOST);
    CHECK_EQ(port_in(from), 9);
    ERR(receive(a, MSG_ERRQUEUE), EAGAIN);
    /* Of a socket that is not connected, and longer than any packet. */
    int u = udp_socket(AF_INET);
    OK(set_option(u, IPPROTO_IP, IP_RECVERR, 1));
    ERR(sendto(u, body, 65508, 0, AT4(HOST, 9)), EMSGSIZE);
    OK(receive(u, MSG_ERRQUEUE));
    e = control_of(IPPROTO_IP, IP_RECVERR, sizeof *e);
    CHECK(e);
    CHECK_EQ(e->origin, ORIGIN_LOCAL);
    CHECK_EQ(e->info, 1400);
    /* A pending error and one of the kernel's own: each goes its way (sock_dequeue_err_skb). */
    tell_of(a, 1350);
    ERR(send(a, body, 10, 0), EMSGSIZE);
    ERR(send(a, body, 1330, 0), EMSGSIZE);
    OK(receive(a, MSG_ERRQUEUE));
    CHECK_EQ(error_of(a), 0);
    OK(receive(a, MSG_ERRQUEUE));
    ERR(receive(a, MSG_ERRQUEUE), EAGAIN);
}

TEST(raw_and_ping_sockets_heed_routers) {
    NEEDS_CAPABILITY(CAP_NET_RAW);
    own_network();
    const uint32_t HOST = strange_host();
    enum { TRIAL = 253 };
    int r = OK(socket(AF_INET, SOCK_RAW, TRIAL));
    OK(bind(r, LO4(0)));
    OK(connect(r, AT4(HOST, 0)));
    CHECK_EQ(mtu_of(r), WHOLE);
    union address own = host_of(INADDR_LOOPBACK), peer = host_of(HOST);
    tell(TRIAL, own, peer, 1400);
    CHECK_EQ(mtu_of(r), 1400);
    CHECK_EQ(error_of(r), EMSGSIZE);
    way(r, IP_PMTUDISC_DO);
    ERR(send(r, body, 1381, 0), EMSGSIZE);
    CHECK_EQ(OK(send(r, body, 1380, 0)), 1380);
    /* A header of the program's own is not longer than the interface takes. */
    int h = OK(socket(AF_INET, SOCK_RAW, IPPROTO_RAW));
    OK(interface_mtu("lo", 2000));
    struct iphdr *ip = (struct iphdr *)body;
    *ip = (struct iphdr){.version = 4, .ihl = 5, .ttl = 9, .protocol = TRIAL,
                         .daddr = htonl(HOST + 9)};
    CHECK_EQ(OK(sendto(h, body, 2000, 0, AT4(HOST + 9, 0))), 2000);
    ERR(sendto(h, body, 2001, 0, AT4(HOST + 9, 0)), EMSGSIZE);
    OK(interface_mtu("lo", 65536));
    memset(body, 0, sizeof body);
    if (geteuid() != 0) return;
    SET_SYSCTL("/proc/sys/net/ipv4/ping_group_range", "0 2147483647");
    int p = OK(socket(AF_INET, SOCK_DGRAM, IPPROTO_ICMP));
    OK(bind(p, LO4(0)));
    OK(connect(p, AT4(HOST + 1, 0)));
    tell(IPPROTO_ICMP, name_of(p), host_of(HOST + 1), 1400);
    CHECK_EQ(mtu_of(p), 1400);
    CHECK_EQ(error_of(p), EMSGSIZE);
    SET_SYSCTL("/proc/sys/net/ipv4/ping_group_range", "1 0");
}

TEST(a_connection_begins_with_what_is_known_of_its_path) {
    NEEDS_CAPABILITY(CAP_NET_RAW);
    own_network();
    const uint32_t HOST = strange_host();
    int l = OK(socket(AF_INET, SOCK_STREAM, 0));
    OK(bind(l, AT4(HOST, 0)));
    OK(listen(l, 5));
    int a = connected(SOCK_DGRAM, HOST, 9);
    tell_of(a, 1400);
    int s = connected(SOCK_STREAM, HOST, port_of(l)), t = OK(accept(l, NULL, NULL));
    CHECK_EQ(mtu_of(s), 1400);
    CHECK_EQ(mtu_of(t), WHOLE); /* its path leads to 127.0.0.1 */
    CHECK_EQ(OK(send(s, body, 20000, 0)), 20000);
    for (ssize_t n = 0; n < 20000;)
        n += OK(recv(t, body, sizeof body, 0));
}

/* ---- IPv6 ------------------------------------------------------------------------------------ */

/* The router says that a packet of a connected socket was too big. */
static void tell_of_six(int s, int mtu) {
    union address source = name_of(s), target = peer_of(s);
    struct {
        struct icmp6_hdr icmp;
        struct ip6_hdr ip;
        uint16_t ports[4];
    } m = {.icmp = {.icmp6_type = ICMP6_PACKET_TOO_BIG},
           .ports = {source.six.sin6_port, target.six.sin6_port, htons(1980), 0}};
    m.icmp.icmp6_mtu = htonl((uint32_t)mtu);
    m.ip.ip6_flow = htonl(6u << 28);
    m.ip.ip6_plen = htons(1980);
    m.ip.ip6_nxt = IPPROTO_UDP;
    m.ip.ip6_hlim = 9;
    m.ip.ip6_src = source.six.sin6_addr;
    m.ip.ip6_dst = target.six.sin6_addr;
    int raw = OK(socket(AF_INET6, SOCK_RAW | SOCK_CLOEXEC, IPPROTO_ICMPV6));
    source.six.sin6_port = 0;
    CHECK_EQ(OK(sendto(raw, &m, sizeof m, 0, &source.any, sizeof source.six)), sizeof m);
    OK(close(raw));
}
static int connected6(int port) {
    int s = OK(socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    OK(connect(s, LO6(port)));
    return s;
}

TEST(a_datagram_of_six_is_not_cut_if_the_program_says_so) {
    NEEDS_IPV6();
    own_network();
    OK(interface_mtu("lo", 2000));
    int peer = udp_socket(AF_INET6), a = connected6(port_of(peer));
    CHECK_EQ(OPTION(a, IPPROTO_IPV6, DONTFRAG /* IPV6_DONTFRAG */), 0);
    CHECK_EQ(OK(send(a, body, 3000, 0)), 3000);
    CHECK_EQ(OK(receive(peer, 0)), 3000);
    OK(set_option(a, IPPROTO_IPV6, DONTFRAG, 1));
    CHECK_EQ(OPTION(a, IPPROTO_IPV6, DONTFRAG), 1);
    ERR(send(a, body, 1953, 0), EMSGSIZE);
    CHECK_EQ(OK(send(a, body, 1952, 0)), 1952);
    CHECK_EQ(OK(receive(peer, 0)), 1952);
    /* It may be told of the MTU then (RFC 3542, 11.3): IPV6_RECVPATHMTU. */
    CHECK_EQ(OPTION(a, IPPROTO_IPV6, RECVPATHMTU), 0);
    ERR(receive(a, 0), EAGAIN);
    OK(set_option(a, IPPROTO_IPV6, RECVPATHMTU, 1));
    ERR(send(a, body, 1953, 0), EMSGSIZE);
    ERR(send(a, body, 1953, 0), EMSGSIZE);
    CHECK_EQ(OK(receive(a, 0)), 0);
    struct mtu_info *told = control_of(IPPROTO_IPV6, PATHMTU, sizeof *told);
    CHECK(told);
    CHECK_EQ(told->mtu, 2000);
    CHECK(memcmp(&told->to.sin6_addr, &(struct in6_addr)IN6ADDR_LOOPBACK_INIT, 16) == 0);
    CHECK_EQ(told->to.sin6_port, 0);
    ERR(receive(a, 0), EAGAIN); /* the last one alone is kept */
    /* A message says it of one datagram. */
    OK(set_option(a, IPPROTO_IPV6, DONTFRAG, 0));
    union {
        struct cmsghdr head;
        char room[CMSG_SPACE(sizeof(int))];
    } wish = {.head = {.cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = IPPROTO_IPV6,
                       .cmsg_type = DONTFRAG}};
    struct iovec v = {body, 3000};
    struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = &wish,
                       .msg_controllen = CMSG_LEN(sizeof(int))};
    *(int *)CMSG_DATA(&wish.head) = 1;
    ERR(sendmsg(a, &m, 0), EMSGSIZE);
    *(int *)CMSG_DATA(&wish.head) = 0;
    CHECK_EQ(OK(sendmsg(a, &m, 0)), 3000);
    *(int *)CMSG_DATA(&wish.head) = 2;
    ERR(sendmsg(a, &m, 0), EINVAL);
    OK(interface_mtu("lo", 65536));
}

TEST(a_program_of_six_asks_for_the_mtu_and_sets_one) {
    NEEDS_IPV6();
    int peer = udp_socket(AF_INET6), a = connected6(port_of(peer)), u = udp_socket(AF_INET6);
    struct mtu_info told;
    socklen_t length = sizeof told;
    ERR(getsockopt(u, IPPROTO_IPV6, PATHMTU /* IPV6_PATHMTU */, &told, &length), ENOTCONN);
    OK(getsockopt(a, IPPROTO_IPV6, PATHMTU, &told, &length));
    CHECK_EQ(length, sizeof told);
    CHECK_EQ((int)told.mtu, mtu6_of(a));
    length = sizeof told - 1;
    ERR(getsockopt(a, IPPROTO_IPV6, PATHMTU, &told, &length), EINVAL);
    ERR(set_option(a, IPPROTO_IPV6, PATHMTU, 1), ENOPROTOOPT);
    /* IPV6_MTU: the longest fragment. */
    ERR(set_option(a, IPPROTO_IPV6, IPV6_MTU, 1279), EINVAL);
    OK(set_option(a, IPPROTO_IPV6, IPV6_MTU, 1280));
    OK(set_option(a, IPPROTO_IPV6, IPV6_MTU_DISCOVER, IPV6_PMTUDISC_DO));
    ERR(send(a, body, 1233, 0), EMSGSIZE);
    CHECK_EQ(OK(send(a, body, 1232, 0)), 1232);
    CHECK_EQ(OK(receive(peer, 0)), 1232);
    OK(set_option(a, IPPROTO_IPV6, IPV6_MTU_DISCOVER, IPV6_PMTUDISC_WANT));
    CHECK_EQ(OK(send(a, body, 5000, 0)), 5000);
    CHECK_EQ(OK(receive(peer, 0)), 5000);
    OK(set_option(a, IPPROTO_IPV6, IPV6_MTU, 0));
    OK(set_option(a, IPPROTO_IPV6, IPV6_MTU_DISCOVER, IPV6_PMTUDISC_DO));
    CHECK_EQ(OK(send(a, body, 1233, 0)), 1233);
}

/* The last case: there is one host of IPv6 on loopback. */
TEST(a_router_of_six_says_what_is_too_big) {
    NEEDS_CAPABILITY(CAP_NET_RAW);
    NEEDS_IPV6();
    own_network();
    int peer = udp_socket(AF_INET6), a = connected6(port_of(peer));
    OK(set_option(a, IPPROTO_IPV6, RECVERR6, 1));
    if (mtu6_of(a) != 65536)
        SKIP("a router told of less within ten minutes");
    /* Not for ten minutes: these cases may run again in one machine, with the same host. */
    CHECK_EQ(sysctl_number(ROUTE6 "mtu_expires"), 600);
    SET_SYSCTL(ROUTE6 "mtu_expires", "20");
    tell_of_six(a, 1400);
    CHECK_EQ(mtu6_of(a), 1400);
    CHECK_EQ(error_of(a), EMSGSIZE);
    OK(receive(a, MSG_ERRQUEUE));
    struct extended_error *e = control_of(IPPROTO_IPV6, RECVERR6, sizeof *e);
    CHECK(e);
    CHECK_EQ(e->number, EMSGSIZE);
    CHECK_EQ(e->origin, ORIGIN_ICMP6);
    CHECK_EQ(e->type, ICMP6_PACKET_TOO_BIG);
    CHECK_EQ(e->info, 1400);
    /* It is cut, or refused. */
    CHECK_EQ(OK(send(a, body, 5000, 0)), 5000);
    CHECK_EQ(OK(receive(peer, 0)), 5000);
    OK(set_option(a, IPPROTO_IPV6, IPV6_MTU_DISCOVER, IPV6_PMTUDISC_DO));
    ERR(send(a, body, 1353, 0), EMSGSIZE);
    OK(receive(a, MSG_ERRQUEUE));
    e = control_of(IPPROTO_IPV6, RECVERR6, sizeof *e);
    CHECK(e);
    CHECK_EQ(e->origin, ORIGIN_LOCAL);
    CHECK_EQ(e->info, 1400);
    CHECK_EQ(OK(send(a, body, 1352, 0)), 1352);
    CHECK_EQ(OK(receive(peer, 0)), 1352);
    /* Every link of IPv6 takes 1280 bytes. */
    tell_of_six(a, 1290);
    CHECK_EQ(mtu6_of(a), 1290);
    tell_of_six(a, 1279); /* no news: RFC 8201, 4 */
    CHECK_EQ(mtu6_of(a), 1290);
    SET_SYSCTL(ROUTE6 "mtu_expires", "600");
}
