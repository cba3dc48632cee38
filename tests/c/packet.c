/*
 * Packet sockets on loopback, and filters in classic BPF: packet(7), socket(7) and
 * Documentation/networking/filter.rst. Other programs use loopback too, so each case looks for what
 * bears its own ports, or has a network of its own.
 */
#define AREA "packet"
#include "net.h"
#include <net/ethernet.h>
#include <net/if_arp.h>
#include <netinet/ip.h>
#include <netinet/udp.h>
#include <netpacket/packet.h>

#define P_ALL 3
#define P_IP 0x0800

static int lo(void) {
    unsigned index = if_nametoindex("lo");
    CHECK(index != 0);
    return (int)index;
}
static int bind_to(int s, int protocol, int index) {
    struct sockaddr_ll a = {.sll_family = AF_PACKET, .sll_protocol = htons((uint16_t)protocol),
                            .sll_ifindex = index};
    return bind(s, (struct sockaddr *)&a, sizeof a);
}
static int packet_socket(int type, int protocol) {
    int s = OK(socket(AF_PACKET, type | SOCK_CLOEXEC, 0));
    OK(bind_to(s, protocol, lo()));
    return s;
}
static struct sockaddr_ll from;
static unsigned char got[4096];
/* The next packet that is a datagram to the port; its size, 0 when there is none. `skip` bytes
 * stand before the header of IP. */
static ssize_t next(int s, size_t skip, int port) {
    for (;;) {
        socklen_t length = sizeof from;
        ssize_t n = recvfrom(s, got, sizeof got, MSG_DONTWAIT, (struct sockaddr *)&from, &length);
        if (n == -1) {
            CHECK_EQ(errno, EAGAIN);
            return 0;
        }
        CHECK_EQ(length, 20); /* offset of sll_addr, and a whole address */
        if ((size_t)n >= skip + 28 && got[skip] == 0x45 && got[skip + 9] == IPPROTO_UDP &&
            got[skip + 22] * 256 + got[skip + 23] == port)
            return n;
    }
}

TEST(packet_sockets_are_for_the_privileged) {
    NEEDS_ROOT();
    BECOME(NOBODY, NOBODY);
    ERR(socket(AF_PACKET, SOCK_RAW, htons(P_ALL)), EPERM);
    ERR(socket(AF_PACKET, SOCK_DGRAM, htons(P_ALL)), EPERM);
    ERR(socket(AF_PACKET, SOCK_STREAM, 0), EPERM); /* before the type is looked at */
}

TEST(packet_socket_errors) {
    NEEDS_CAPABILITY(CAP_NET_RAW);
    ERR(socket(AF_PACKET, SOCK_STREAM, 0), ESOCKTNOSUPPORT);
    int s = OK(socket(AF_PACKET, SOCK_RAW, 0));
    CHECK_EQ(OPTION(s, SOL_SOCKET, SO_DOMAIN), AF_PACKET);
    CHECK_EQ(OPTION(s, SOL_SOCKET, SO_TYPE), SOCK_RAW);
    struct sockaddr_ll a = {.sll_family = AF_PACKET, .sll_ifindex = lo()};
    ERR(bind(s, (struct sockaddr *)&a, 19), EINVAL);
    ERR(bind_to(s, P_ALL, 100000), ENODEV);
    a.sll_family = AF_INET;
    ERR(bind(s, (struct sockaddr *)&a, sizeof a), EINVAL);
    ERR(send(s, got, 60, 0), ENXIO); /* to no interface */
    ERR(connect(s, (struct sockaddr *)&a, sizeof a), EOPNOTSUPP);
    ERR(listen(s, 1), EOPNOTSUPP);
    ERR(accept(s, NULL, NULL), EOPNOTSUPP);
    ERR(shutdown(s, SHUT_RD), EOPNOTSUPP);
    ERR(getpeername(s, (struct sockaddr *)&a, &(socklen_t){sizeof a}), EOPNOTSUPP);
    int pair[2];
    ERR(socketpair(AF_PACKET, SOCK_RAW, 0, pair), EOPNOTSUPP);
    OK(bind_to(s, P_IP, lo()));
    OK(bind_to(s, P_ALL, lo())); /* it may be bound anew */
    ERR(send(s, got, 13, 0), EINVAL); /* shorter than a frame's header */
    a.sll_family = AF_PACKET;
    ERR(sendto(s, got, 60, 0, (struct sockaddr *)&a, 8), EINVAL);
}

TEST(names_of_packet_sockets) {
    NEEDS_CAPABILITY(CAP_NET_RAW);
    int s = OK(socket(AF_PACKET, SOCK_RAW, htons(P_IP)));
    struct sockaddr_ll a;
    memset(&a, 0x77, sizeof a);
    socklen_t length = sizeof a;
    OK(getsockname(s, (struct sockaddr *)&a, &length));
    CHECK_EQ(a.sll_family, AF_PACKET);
    CHECK_EQ(a.sll_ifindex, 0);
    CHECK_EQ(ntohs(a.sll_protocol), P_IP);
    OK(bind_to(s, P_ALL, lo()));
    length = sizeof a;
    OK(getsockname(s, (struct sockaddr *)&a, &length));
    CHECK_EQ(length, 18); /* with the six bytes of the address of lo */
    CHECK_EQ(a.sll_ifindex, lo());
    CHECK_EQ(ntohs(a.sll_protocol), P_ALL);
    CHECK_EQ(a.sll_hatype, ARPHRD_LOOPBACK);
    CHECK_EQ(a.sll_halen, 6);
    CHECK_EQ(a.sll_pkttype, 0);
}

TEST(a_datagram_is_seen_leaving_and_arriving) {
    NEEDS_CAPABILITY(CAP_NET_RAW);
    int raw = packet_socket(SOCK_RAW, P_ALL), cooked = packet_socket(SOCK_DGRAM, P_ALL);
    int a = udp_socket(AF_INET), b = udp_socket(AF_INET);
    CHECK_EQ(OK(sendto(a, "watched", 7, 0, LO4(port_of(b)))), 7);
    static const int kinds[] = {PACKET_OUTGOING, PACKET_HOST};
    for (int i = 0; i < 2; i++) {
        AWAIT(raw, POLLIN);
        CHECK_EQ(next(raw, 14, port_of(b)), 14 + 28 + 7);
        for (int k = 0; k < 12; k++)
            CHECK_EQ(got[k], 0); /* lo's addresses */
        CHECK_EQ(got[12] << 8 | got[13], P_IP);
        CHECK(memcmp(got + 42, "watched", 7) == 0);
        struct iphdr *ip = (struct iphdr *)(got + 14);
        CHECK_EQ(ntohs(ip->tot_len), 35);
        CHECK_EQ(sum_of(ip, 20), 0);
        CHECK_EQ(got[34] << 8 | got[35], port_of(a));
        CHECK_EQ(from.sll_family, AF_PACKET);
        CHECK_EQ(from.sll_pkttype, kinds[i]);
        CHECK_EQ(from.sll_ifindex, lo());
        CHECK_EQ(ntohs(from.sll_protocol), P_IP);
        CHECK_EQ(from.sll_hatype, ARPHRD_LOOPBACK);
        CHECK_EQ(from.sll_halen, 6);
        CHECK_EQ(next(cooked, 0, port_of(b)), 28 + 7); /* the same without the frame's header */
        CHECK(memcmp(got + 28, "watched", 7) == 0);
        CHECK_EQ(from.sll_pkttype, kinds[i]);
    }
    CHECK_EQ(next(raw, 14, port_of(b)), 0);
    CHECK_EQ(OK(recv(b, got, 10, MSG_DONTWAIT)), 7); /* it arrives all the same */
}

TEST(a_datagram_goes_without_a_checksum) {
    NEEDS_CAPABILITY(CAP_NET_RAW);
    int raw = packet_socket(SOCK_RAW, P_ALL);
    int a = udp_socket(AF_INET), b = udp_socket(AF_INET);
    for (int without = 0; without <= 1; without++) {
        OK(set_option(a, SOL_SOCKET, SO_NO_CHECK, without));
        CHECK_EQ(OK(sendto(a, "watched", 7, 0, LO4(port_of(b)))), 7);
        for (int i = 0; i < 2; i++) {
            CHECK_EQ(next(raw, 14, port_of(b)), 14 + 28 + 7);
            CHECK_EQ((got[40] | got[41]) == 0, without); /* the checksum of UDP: RFC 768 */
            CHECK(memcmp(got + 42, "watched", 7) == 0);
        }
        CHECK_EQ(OK(recv(b, got, 10, 0)), 7);
    }
    OK(set_option(a, IPPROTO_UDP, 103 /* UDP_SEGMENT */, 3));
    ERR(sendto(a, "watched", 7, 0, LO4(port_of(b))), EINVAL); /* `udp_send_skb` */
    NEEDS_IPV6();
    int six = udp_socket(AF_INET6); /* in IPv6 there is always one */
    OK(set_option(six, SOL_SOCKET, SO_NO_CHECK, 1));
    CHECK_EQ(OK(sendto(six, "watched", 7, 0, LO6(port_of(six)))), 7);
    CHECK_EQ(OK(recv(six, got, 10, 0)), 7);
}

TEST(a_datagram_may_not_be_cut_if_the_program_says_so) {
    NEEDS_CAPABILITY(CAP_NET_RAW);
    int raw = packet_socket(SOCK_RAW, P_ALL);
    int a = udp_socket(AF_INET), b = udp_socket(AF_INET);
    static const struct {
        int way, uncut;
    } ways[] = {{IP_PMTUDISC_DO, 0x40}, {IP_PMTUDISC_PROBE, 0x40}, {IP_PMTUDISC_DONT, 0}};
    for (int i = 0; i < 3; i++) {
        OK(set_option(a, IPPROTO_IP, IP_MTU_DISCOVER, ways[i].way));
        CHECK_EQ(OK(sendto(a, "watched", 7, 0, LO4(port_of(b)))), 7);
        for (int j = 0; j < 2; j++) {
            CHECK_EQ(next(raw, 14, port_of(b)), 14 + 28 + 7);
            CHECK_EQ(got[20] & 0x40, ways[i].uncut); /* DF: RFC 791 */
        }
    }
}

TEST(options_of_packet_sockets_that_devices_heed) {
    NEEDS_CAPABILITY(CAP_NET_RAW);
    enum { ORIGDEV = 9, TIMESTAMP = 17, QDISC_BYPASS = 20 };
    int s = packet_socket(SOCK_RAW, P_ALL); /* PACKET_ORIGDEV, PACKET_TIMESTAMP, ... */
    static const int switches[] = {ORIGDEV, QDISC_BYPASS /* PACKET_QDISC_BYPASS */};
    for (int i = 0; i < 2; i++) {
        CHECK_EQ(OPTION(s, SOL_PACKET, switches[i]), 0);
        OK(set_option(s, SOL_PACKET, switches[i], 1));
        CHECK_EQ(OPTION(s, SOL_PACKET, switches[i]), 1);
        ERR(setsockopt(s, SOL_PACKET, switches[i], &(char){1}, 1), EINVAL);
    }
    OK(set_option(s, SOL_PACKET, TIMESTAMP, 16));
    CHECK_EQ(OPTION(s, SOL_PACKET, TIMESTAMP), 16);
    ERR(setsockopt(s, SOL_PACKET, TIMESTAMP, &(char){1}, 1), EINVAL);
    ERR(set_option(s, SOL_PACKET, 99, 1), ENOPROTOOPT);
}

TEST(one_protocol_is_seen_arriving_alone) {
    NEEDS_CAPABILITY(CAP_NET_RAW);
    /* Only sockets of all protocols are told of packets that leave: dev_queue_xmit_nit. */
    int ip = packet_socket(SOCK_DGRAM, P_IP), other = packet_socket(SOCK_DGRAM, 0x88b5);
    int none = OK(socket(AF_PACKET, SOCK_RAW, 0)); /* of no protocol: it hears nothing */
    int a = udp_socket(AF_INET), b = udp_socket(AF_INET);
    CHECK_EQ(OK(sendto(a, "x", 1, 0, LO4(port_of(b)))), 1);
    CHECK_EQ(next(ip, 0, port_of(b)), 29);
    CHECK_EQ(from.sll_pkttype, PACKET_HOST);
    CHECK_EQ(next(ip, 0, port_of(b)), 0);
    ERR(recv(other, got, 1, MSG_DONTWAIT), EAGAIN);
    ERR(recv(none, got, 1, MSG_DONTWAIT), EAGAIN);
}

TEST(a_short_buffer_truncates) {
    NEEDS_CAPABILITY(CAP_NET_RAW);
    own_network();
    int s = packet_socket(SOCK_DGRAM, P_IP), a = udp_socket(AF_INET), b = udp_socket(AF_INET);
    for (int i = 0; i < 4; i++)
        CHECK_EQ(OK(sendto(a, "0123456789", 10, 0, LO4(port_of(b)))), 10);
    CHECK_EQ(OK(recv(s, got, 5, MSG_PEEK)), 5);
    CHECK_EQ(OK(recv(s, got, 5, 0)), 5);
    CHECK_EQ(OK(recv(s, got, 5, MSG_TRUNC)), 38);
    struct iovec v = {got, 5};
    struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1};
    CHECK_EQ(OK(recvmsg(s, &m, 0)), 5);
    CHECK((m.msg_flags & MSG_TRUNC) != 0);
    int n = 0;
    OK(ioctl(s, FIONREAD, &n));
    CHECK_EQ(n, 38);
}

TEST(packets_are_counted) {
    NEEDS_CAPABILITY(CAP_NET_RAW);
    own_network();
    int s = packet_socket(SOCK_DGRAM, P_IP), a = udp_socket(AF_INET), b = udp_socket(AF_INET);
    struct {
        unsigned packets, drops;
    } count;
    socklen_t length = sizeof count;
    OK(getsockopt(s, SOL_PACKET, PACKET_STATISTICS, &count, &length)); /* reading begins anew */
    for (int i = 0; i < 5; i++)
        CHECK_EQ(OK(sendto(a, "x", 1, 0, LO4(port_of(b)))), 1);
    OK(getsockopt(s, SOL_PACKET, PACKET_STATISTICS, &count, &length));
    CHECK_EQ(length, sizeof count);
    CHECK_EQ(count.packets, 5);
    CHECK_EQ(count.drops, 0);
    OK(getsockopt(s, SOL_PACKET, PACKET_STATISTICS, &count, &length));
    CHECK_EQ(count.packets, 0);
    while (recv(s, got, 1, MSG_DONTWAIT) == 1)
        ;
    OK(set_option(s, SOL_SOCKET, SO_RCVBUF, 1));
    for (int i = 0; i < 50; i++)
        CHECK_EQ(OK(sendto(a, "x", 1, 0, LO4(port_of(b)))), 1);
    OK(getsockopt(s, SOL_PACKET, PACKET_STATISTICS, &count, &length));
    CHECK_EQ(count.packets, 50); /* those that were dropped among them */
    CHECK(count.drops > 10 && count.drops < 50);
    ERR(getsockopt(s, SOL_PACKET, 9999, &count, &length), ENOPROTOOPT);
    ERR(set_option(s, SOL_PACKET, 9999, 1), ENOPROTOOPT);
}

/* ---- sending --------------------------------------------------------------------------------- */

static size_t datagram(unsigned char *p, int port, const char *text) {
    size_t n = strlen(text);
    struct iphdr ip = {.version = 4, .ihl = 5, .ttl = 9, .protocol = IPPROTO_UDP,
                       .tot_len = htons((uint16_t)(28 + n)), .saddr = htonl(INADDR_LOOPBACK),
                       .daddr = htonl(INADDR_LOOPBACK)};
    ip.check = sum_of(&ip, 20);
    struct udphdr u = {.uh_sport = htons(4242), .uh_dport = htons((uint16_t)port),
                       .uh_ulen = htons((uint16_t)(8 + n))};
    memcpy(p, &ip, 20);
    memcpy(p + 20, &u, 8);
    memcpy(p + 28, text, n);
    return 28 + n;
}

TEST(frames_are_sent) {
    NEEDS_CAPABILITY(CAP_NET_RAW);
    int raw = packet_socket(SOCK_RAW, P_ALL), cooked = OK(socket(AF_PACKET, SOCK_DGRAM, 0));
    int u = udp_socket(AF_INET);
    unsigned char frame[128] = {[12] = P_IP >> 8, [13] = P_IP & 0xff};
    size_t n = datagram(frame + 14, port_of(u), "raw");
    int watcher = packet_socket(SOCK_DGRAM, P_ALL);
    CHECK_EQ(OK(send(raw, frame, n + 14, 0)), (ssize_t)n + 14);
    AWAIT(watcher, POLLIN);
    for (int i = 0; i < 2; i++) {
        CHECK_EQ(next(watcher, 0, port_of(u)), 31);
        CHECK_EQ(from.sll_pkttype, i ? PACKET_HOST : PACKET_OUTGOING);
        CHECK(memcmp(got + 28, "raw", 3) == 0);
    }
    CHECK_EQ(next(raw, 14, port_of(u)), 45); /* the sender sees it arrive, and not leave */
    CHECK_EQ(from.sll_pkttype, PACKET_HOST);
    CHECK_EQ(next(raw, 14, port_of(u)), 0);
    n = datagram(frame, port_of(u), "cooked");
    struct sockaddr_ll to = {.sll_family = AF_PACKET, .sll_protocol = htons(P_IP),
                             .sll_ifindex = lo(), .sll_halen = 6};
    CHECK_EQ(OK(sendto(cooked, frame, n, 0, (struct sockaddr *)&to, sizeof to)), (ssize_t)n);
    AWAIT(watcher, POLLIN);
    CHECK_EQ(next(watcher, 0, port_of(u)), 34);
    CHECK_EQ(next(watcher, 0, port_of(u)), 34);
    CHECK_EQ(next(raw, 14, port_of(u)), 48); /* with the header that the kernel made */
    /* A frame that comes in with an address of loopback is a martian, also on lo, unless
     * route_localnet is set: ip_route_input_slow in net/ipv4/route.c. */
    CHECK_EQ(events_of(u, POLLIN, 20), 0);
    to.sll_ifindex = 100000;
    ERR(sendto(cooked, frame, n, 0, (struct sockaddr *)&to, sizeof to), ENXIO);
    static unsigned char large[70000];
    ERR(send(raw, large, sizeof large, 0), EMSGSIZE); /* more than the interface's 65536 */
}

/* Switches lo, in a network of the case's own. */
static void switch_lo(bool up) {
    struct ifreq r = {.ifr_name = "lo"};
    int s = OK(socket(AF_INET, SOCK_DGRAM, 0));
    OK(ioctl(s, SIOCGIFFLAGS, &r));
    r.ifr_flags = (short)(up ? r.ifr_flags | IFF_UP : r.ifr_flags & ~IFF_UP);
    OK(ioctl(s, SIOCSIFFLAGS, &r));
    OK(close(s));
}

TEST(an_interface_that_is_down) {
    NEEDS_CAPABILITY(CAP_NET_RAW);
    NEEDS_CAPABILITY(CAP_NET_ADMIN);
    own_network();
    int before = packet_socket(SOCK_RAW, P_ALL);
    int all = OK(socket(AF_PACKET, SOCK_RAW, htons(P_ALL)));
    switch_lo(false);
    CHECK((events_of(before, POLLIN, 0) & POLLERR) != 0);
    ERR(recv(before, got, sizeof got, MSG_DONTWAIT), ENETDOWN);
    CHECK_EQ(events_of(all, POLLIN, 0) & POLLERR, 0); /* of no interface in particular */
    int s = packet_socket(SOCK_RAW, P_ALL);
    unsigned char frame[60] = {0};
    CHECK_EQ(OPTION(s, SOL_SOCKET, SO_ERROR), ENETDOWN); /* told when it was bound */
    ERR(send(s, frame, sizeof frame, 0), ENETDOWN);
    switch_lo(true);
    int a = udp_socket(AF_INET);
    CHECK_EQ(OK(sendto(a, "up", 2, 0, LO4(port_of(a)))), 2);
    CHECK_EQ(next(before, 14, port_of(a)), 44);
    CHECK_EQ(next(s, 14, port_of(a)), 44);
}

/* ---- filters --------------------------------------------------------------------------------- */

static int attach(int s, struct instruction *code, int length) {
    struct program p = {(uint16_t)length, code};
    return setsockopt(s, SOL_SOCKET, SO_ATTACH_FILTER_, &p, sizeof p);
}

TEST(a_filter_chooses_packets) {
    NEEDS_CAPABILITY(CAP_NET_RAW);
    int s = OK(socket(AF_PACKET, SOCK_DGRAM, 0)), a = udp_socket(AF_INET);
    int b = udp_socket(AF_INET), c = udp_socket(AF_INET);
    struct instruction code[] = {
        {LOAD_BYTE, 0, 0, 9},
        {JUMP_EQUAL, 0, 3, IPPROTO_UDP},
        {LOAD_HALF, 0, 0, 22},
        {JUMP_EQUAL, 0, 1, (uint32_t)port_of(b)},
        {RETURN, 0, 0, 31}, /* how much of it */
        {RETURN, 0, 0, 0},
    };
    OK(attach(s, code, 6));
    OK(bind_to(s, P_IP, lo()));
    CHECK_EQ(OK(sendto(a, "not this", 8, 0, LO4(port_of(c)))), 8);
    CHECK_EQ(OK(sendto(a, "this one", 8, 0, LO4(port_of(b)))), 8);
    CHECK_EQ(OK(recv(s, got, sizeof got, 0)), 31);
    CHECK(memcmp(got + 28, "thi", 3) == 0);
    ERR(recv(s, got, 1, MSG_DONTWAIT), EAGAIN);
    OK(set_option(s, SOL_SOCKET, SO_DETACH_FILTER_, 0));
    ERR(set_option(s, SOL_SOCKET, SO_DETACH_FILTER_, 0), ENOENT);
    CHECK_EQ(OK(sendto(a, "now this", 8, 0, LO4(port_of(c)))), 8);
    CHECK_EQ(next(s, 0, port_of(c)), 36);
}

TEST(a_filter_of_a_datagram_socket) {
    /* It begins with the header of UDP, and anybody may attach one. */
    int a = udp_socket(AF_INET), b = udp_socket(AF_INET);
    if (geteuid() == 0)
        BECOME(NOBODY, NOBODY);
    struct instruction code[] = {
        {LOAD_BYTE, 0, 0, 8},
        {JUMP_EQUAL, 0, 1, 'y'},
        {RETURN, 0, 0, 0xffff},
        {RETURN, 0, 0, 0},
    };
    OK(attach(b, code, 4));
    CHECK_EQ(OK(sendto(a, "no", 2, 0, LO4(port_of(b)))), 2);
    CHECK_EQ(OK(sendto(a, "yes", 3, 0, LO4(port_of(b)))), 3);
    CHECK_EQ(OK(sendto(a, "", 0, 0, LO4(port_of(b)))), 0); /* a load beyond the end drops it */
    CHECK_EQ(OK(recv(b, got, 10, MSG_DONTWAIT)), 3);
    ERR(recv(b, got, 10, MSG_DONTWAIT), EAGAIN);
    OK(set_option(b, SOL_SOCKET, SO_LOCK_FILTER_, 1));
    ERR(attach(b, code, 4), EPERM);
    ERR(set_option(b, SOL_SOCKET, SO_DETACH_FILTER_, 0), EPERM);
}

TEST(programs_are_checked) {
    int s = udp_socket(AF_INET);
    struct instruction give = {RETURN, 0, 0, 1};
    struct instruction bad[] = {{0xffff, 0, 0, 0}, give};
    ERR(attach(s, bad, 2), EINVAL);
    struct instruction no_end[] = {{LOAD_BYTE, 0, 0, 0}};
    ERR(attach(s, no_end, 1), EINVAL);
    struct instruction far_jump[] = {{JUMP_EQUAL, 0, 9, 0}, give};
    ERR(attach(s, far_jump, 2), EINVAL);
    struct instruction by_zero[] = {{0x34 /* A / k */, 0, 0, 0}, give};
    ERR(attach(s, by_zero, 2), EINVAL);
    ERR(attach(s, &give, 0), EINVAL);
    ERR(attach(s, BAD, 1), EFAULT);
    ERR(setsockopt(s, SOL_SOCKET, SO_ATTACH_FILTER_, &give, 8), EINVAL);
    ERR(attach(s, &give, 4097), EINVAL); /* BPF_MAXINSNS is 4096 */
    OK(attach(s, &give, 1));
}

TEST(a_filter_may_be_read_back) {
    int s = udp_socket(AF_INET);
    socklen_t count = 0;
    OK(getsockopt(s, SOL_SOCKET, SO_ATTACH_FILTER_ /* SO_GET_FILTER */, got, &count));
    CHECK_EQ(count, 0); /* there is none */
    struct instruction code[] = {{LOAD_BYTE, 0, 0, 8}, {RETURN, 0, 0, 9}}, back[3];
    OK(attach(s, code, 2));
    OK(getsockopt(s, SOL_SOCKET, SO_ATTACH_FILTER_, NULL, &count));
    CHECK_EQ(count, 2); /* in instructions, also where there is no room for them */
    count = 1;
    ERR(getsockopt(s, SOL_SOCKET, SO_ATTACH_FILTER_, back, &count), EINVAL);
    count = 3;
    OK(getsockopt(s, SOL_SOCKET, SO_ATTACH_FILTER_, back, &count));
    CHECK_EQ(count, 2);
    CHECK(memcmp(back, code, sizeof code) == 0);
    CHECK_EQ(OPTION(s, SOL_SOCKET, SO_LOCK_FILTER_), 0);
    OK(set_option(s, SOL_SOCKET, SO_LOCK_FILTER_, 1));
    CHECK_EQ(OPTION(s, SOL_SOCKET, SO_LOCK_FILTER_), 1);
    ERR(set_option(s, SOL_SOCKET, SO_LOCK_FILTER_, 0), EPERM);
    CHECK_EQ(OPTION(s, SOL_SOCKET, 48 /* SO_BPF_EXTENSIONS */), 64);
}

TEST(a_filter_cuts_datagrams) {
    int a = udp_socket(AF_INET), b = udp_socket(AF_INET);
    struct instruction some = {RETURN, 0, 0, 8 + 3}, few = {RETURN, 0, 0, 1};
    OK(attach(b, &some, 1));
    CHECK_EQ(OK(sendto(a, "0123456789", 10, 0, LO4(port_of(b)))), 10);
    CHECK_EQ(OK(recv(b, got, 20, MSG_DONTWAIT)), 3);
    /* The header of UDP stays whole. */
    OK(attach(b, &few, 1));
    CHECK_EQ(OK(sendto(a, "0123456789", 10, 0, LO4(port_of(b)))), 10);
    CHECK_EQ(OK(recv(b, got, 20, MSG_DONTWAIT)), 0);
}

TEST(a_filter_of_a_raw_socket) {
    NEEDS_CAPABILITY(CAP_NET_RAW);
    int raw = OK(socket(AF_INET, SOCK_RAW, IPPROTO_UDP)), a = udp_socket(AF_INET);
    int b = udp_socket(AF_INET);
    struct instruction code[] = {
        {LOAD_HALF, 0, 0, 22}, /* it begins with the header of IP */
        {JUMP_EQUAL, 0, 1, (uint32_t)port_of(b)},
        {RETURN, 0, 0, 30},
        {RETURN, 0, 0, 0},
    };
    OK(attach(raw, code, 4));
    CHECK_EQ(OK(sendto(a, "other", 5, 0, LO4(port_of(a)))), 5);
    CHECK_EQ(OK(sendto(a, "wanted", 6, 0, LO4(port_of(b)))), 6);
    CHECK_EQ(OK(recv(raw, got, sizeof got, 0)), 30);
    CHECK(memcmp(got + 28, "wa", 2) == 0);
    ERR(recv(raw, got, sizeof got, MSG_DONTWAIT), EAGAIN);
}

TEST(what_filters_ask) {
    NEEDS_CAPABILITY(CAP_NET_RAW);
    own_network();
    int raw = OK(socket(AF_PACKET, SOCK_RAW, 0)), cooked = OK(socket(AF_PACKET, SOCK_DGRAM, 0));
    int a = udp_socket(AF_INET), port = port_of(a);
    /* Ancillary loads, and loads from the headers of link and network, mean the same in both. */
    struct instruction code[] = {
        {0x20, 0, 0, (uint32_t)-0x1000},
        {JUMP_EQUAL, 0, 13, P_IP},
        {0x20, 0, 0, (uint32_t)-0x1000 + 4},
        {JUMP_EQUAL, 0, 11, PACKET_OUTGOING},
        {0x20, 0, 0, (uint32_t)-0x1000 + 8},
        {JUMP_EQUAL, 0, 9, (uint32_t)lo()},
        {0x20, 0, 0, (uint32_t)-0x1000 + 28},
        {JUMP_EQUAL, 0, 7, ARPHRD_LOOPBACK},
        {LOAD_HALF, 0, 0, (uint32_t)-0x200000 + 12},
        {JUMP_EQUAL, 0, 5, P_IP},
        {LOAD_HALF, 0, 0, (uint32_t)-0x100000 + 22},
        {JUMP_EQUAL, 0, 3, (uint32_t)port},
        {0x20, 0, 0, (uint32_t)-0x1000 + 52}, /* where the payload is */
        {JUMP_EQUAL, 0, 1, 0},                /* patched below */
        {RETURN, 0, 0, 0xffff},
        {RETURN, 0, 0, 0},
    };
    int count = sizeof code / sizeof *code;
    code[13].k = 14 + 28;
    OK(attach(raw, code, count));
    code[13].k = 28;
    OK(attach(cooked, code, count));
    OK(bind_to(raw, P_ALL, lo()));
    OK(bind_to(cooked, P_ALL, lo()));
    CHECK_EQ(OK(sendto(a, "asked", 5, 0, LO4(port))), 5);
    CHECK_EQ(OK(recv(raw, got, sizeof got, MSG_DONTWAIT)), 14 + 33);
    CHECK_EQ(OK(recv(cooked, got, sizeof got, MSG_DONTWAIT)), 33);
    ERR(recv(raw, got, sizeof got, MSG_DONTWAIT), EAGAIN);
    ERR(recv(cooked, got, sizeof got, MSG_DONTWAIT), EAGAIN);
}

/* ---- what comes with a packet ---------------------------------------------------------------- */

/* struct tpacket_auxdata */
struct auxiliary {
    uint32_t status, length, kept;
    uint16_t link, network, tag, tag_protocol;
};

TEST(auxiliary_data) {
    NEEDS_CAPABILITY(CAP_NET_RAW);
    own_network();
    int s = packet_socket(SOCK_RAW, P_IP), a = udp_socket(AF_INET);
    struct instruction forty = {RETURN, 0, 0, 40};
    OK(attach(s, &forty, 1));
    OK(set_option(s, SOL_PACKET, PACKET_AUXDATA, 1));
    CHECK_EQ(OPTION(s, SOL_PACKET, PACKET_AUXDATA), 1);
    OK(set_option(s, SOL_SOCKET, SO_TIMESTAMP, 1));
    time_t before = time(NULL);
    CHECK_EQ(OK(sendto(a, "0123456789", 10, 0, LO4(port_of(a)))), 10);
    union {
        struct cmsghdr head;
        char room[256];
    } control;
    struct iovec v = {got, sizeof got};
    struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = &control,
                       .msg_controllen = sizeof control};
    CHECK_EQ(OK(recvmsg(s, &m, 0)), 40);
    bool data = false, stamp = false;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(&m); c; c = CMSG_NXTHDR(&m, c)) {
        if (c->cmsg_level == SOL_PACKET && c->cmsg_type == PACKET_AUXDATA) {
            struct auxiliary x;
            CHECK_EQ(c->cmsg_len, CMSG_LEN(sizeof x));
            memcpy(&x, CMSG_DATA(c), sizeof x);
            CHECK((x.status & 1 /* TP_STATUS_USER */) != 0);
            CHECK_EQ(x.length, 14 + 38);
            CHECK_EQ(x.kept, 40);
            CHECK_EQ(x.link, 0);
            CHECK_EQ(x.network, 14);
            CHECK_EQ(x.tag, 0);
            data = true;
        } else if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SO_TIMESTAMP) {
            struct timeval t;
            memcpy(&t, CMSG_DATA(c), sizeof t);
            CHECK(t.tv_sec >= before - 1 && t.tv_sec <= before + 60);
            stamp = true;
        }
    }
    CHECK(data && stamp);
}

TEST(the_time_of_the_last_packet) {
    NEEDS_CAPABILITY(CAP_NET_RAW);
    own_network();
    int s = packet_socket(SOCK_DGRAM, P_IP), a = udp_socket(AF_INET);
    struct timeval t;
    struct timespec n;
    ERR(ioctl(s, 0x8906 /* SIOCGSTAMP */, &t), ENOENT);
    ERR(ioctl(a, 0x8906, &t), ENOENT);
    time_t before = time(NULL);
    CHECK_EQ(OK(sendto(a, "x", 1, 0, LO4(port_of(a)))), 1);
    CHECK_EQ(OK(recv(s, got, 100, 0)), 29);
    CHECK_EQ(OK(recv(a, got, 100, 0)), 1);
    OK(ioctl(s, 0x8906, &t));
    CHECK(t.tv_sec >= before - 1 && t.tv_sec <= before + 60 && t.tv_usec < 1000000);
    OK(ioctl(a, 0x8907 /* SIOCGSTAMPNS */, &n));
    CHECK(n.tv_sec >= before - 1 && n.tv_sec <= before + 60 && n.tv_nsec < 1000000000);
    ERR(ioctl(s, 0x8906, BAD), EFAULT);
}

TEST(memberships) {
    NEEDS_CAPABILITY(CAP_NET_RAW);
    int s = packet_socket(SOCK_RAW, P_ALL);
    struct packet_mreq r = {.mr_ifindex = lo(), .mr_type = PACKET_MR_PROMISC};
    OK(setsockopt(s, SOL_PACKET, PACKET_ADD_MEMBERSHIP, &r, sizeof r));
    OK(setsockopt(s, SOL_PACKET, PACKET_ADD_MEMBERSHIP, &r, sizeof r)); /* counted */
    for (int i = 0; i < 3; i++) /* one too many is no error */
        OK(setsockopt(s, SOL_PACKET, PACKET_DROP_MEMBERSHIP, &r, sizeof r));
    r.mr_type = PACKET_MR_ALLMULTI;
    OK(setsockopt(s, SOL_PACKET, PACKET_ADD_MEMBERSHIP, &r, sizeof r));
    r.mr_type = PACKET_MR_MULTICAST;
    ERR(setsockopt(s, SOL_PACKET, PACKET_ADD_MEMBERSHIP, &r, sizeof r), EINVAL); /* no address */
    memcpy(r.mr_address, "\x01\x00\x5e\x01\x02\x03", 6);
    r.mr_alen = 6;
    OK(setsockopt(s, SOL_PACKET, PACKET_ADD_MEMBERSHIP, &r, sizeof r));
    r.mr_alen = 7;
    ERR(setsockopt(s, SOL_PACKET, PACKET_ADD_MEMBERSHIP, &r, sizeof r), EINVAL);
    r.mr_alen = 9; /* more than there is */
    ERR(setsockopt(s, SOL_PACKET, PACKET_ADD_MEMBERSHIP, &r, sizeof r), EINVAL);
    ERR(setsockopt(s, SOL_PACKET, PACKET_ADD_MEMBERSHIP, &r, 15), EINVAL);
    r.mr_alen = 0, r.mr_type = PACKET_MR_PROMISC, r.mr_ifindex = 100000;
    ERR(setsockopt(s, SOL_PACKET, PACKET_ADD_MEMBERSHIP, &r, sizeof r), ENODEV);
}

TEST(groups_on_loopback_and_outgoing_packets) {
    NEEDS_CAPABILITY(CAP_NET_RAW);
    own_network();
    int s = packet_socket(SOCK_RAW, P_ALL), deaf = packet_socket(SOCK_RAW, P_ALL);
    ERR(set_option(deaf, SOL_PACKET, 23 /* PACKET_IGNORE_OUTGOING */, 2), EINVAL);
    OK(set_option(deaf, SOL_PACKET, 23, 1));
    CHECK_EQ(OPTION(deaf, SOL_PACKET, 23), 1);
    int a = udp_socket(AF_INET);
    OK(setsockopt(a, IPPROTO_IP, IP_MULTICAST_IF, &(struct in_addr){htonl(INADDR_LOOPBACK)}, 4));
    CHECK_EQ(OK(sendto(a, "group", 5, 0, AT4(0xe0010203, 4242))), 5);
    CHECK_EQ(next(s, 14, 4242), 14 + 33);
    CHECK_EQ(from.sll_pkttype, PACKET_OUTGOING);
    for (int k = 0; k < 12; k++)
        CHECK_EQ(got[k], 0); /* a group has no address of its own on lo */
    CHECK_EQ(next(s, 14, 4242), 14 + 33);
    CHECK_EQ(from.sll_pkttype, PACKET_HOST);
    CHECK_EQ(next(s, 14, 4242), 0);
    CHECK_EQ(next(deaf, 14, 4242), 14 + 33);
    CHECK_EQ(from.sll_pkttype, PACKET_HOST);
    CHECK_EQ(next(deaf, 14, 4242), 0);
}

/* ---- rings ----------------------------------------------------------------------------------- */

/* linux/if_packet.h: struct tpacket_req3, the first four of which are struct tpacket_req. */
struct ring {
    uint32_t block_size, blocks, frame_size, frames, retire_ms, private_size, features;
};
static unsigned char *ring_of(int s, int version, struct ring r) {
    OK(set_option(s, SOL_PACKET, PACKET_VERSION, version));
    OK(setsockopt(s, SOL_PACKET, PACKET_RX_RING, &r, version == 2 ? 28 : 16));
    size_t size = (size_t)r.block_size * r.blocks;
    unsigned char *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, s, 0);
    CHECK(p != MAP_FAILED);
    return p;
}
static uint32_t word(const unsigned char *p) { return *(volatile const uint32_t *)p; }
static unsigned half(const unsigned char *p) { return *(volatile const uint16_t *)p; }
static void set_word(unsigned char *p, uint32_t value) {
    atomic_store((_Atomic uint32_t *)(void *)p, value);
}

static void frames_in_a_ring(int version) {
    NEEDS_CAPABILITY(CAP_NET_RAW);
    own_network();
    int s = packet_socket(SOCK_RAW, P_IP), a = udp_socket(AF_INET), port = port_of(a);
    struct ring r = {.block_size = 4096, .blocks = 2, .frame_size = 2048, .frames = 4};
    unsigned char *p = ring_of(s, version, r);
    CHECK_EQ(events_of(s, POLLIN, 0), 0);
    char text[3000] = "";
    for (int i = 0; i < 6; i++) { /* two more than there are frames */
        text[0] = (char)('a' + i);
        size_t size = i == 1 ? sizeof text : 10;
        CHECK_EQ(OK(sendto(a, text, size, 0, LO4(port))), (ssize_t)size);
    }
    AWAIT(s, POLLIN);
    ERR(recv(s, got, sizeof got, MSG_DONTWAIT), EAGAIN); /* the queue is another thing */
    int skip = version == 0 ? 8 : 4; /* the status is a long in the first version */
    for (int i = 0; i < 4; i++) {
        unsigned char *f = p + i * 2048;
        CHECK((word(f) & 1) != 0);
        size_t length = i == 1 ? 14 + 28 + sizeof text : 14 + 38;
        CHECK_EQ(word(f + skip), length);
        unsigned start = half(f + skip + 8), network = half(f + skip + 10);
        CHECK_EQ(network, 80);
        CHECK_EQ(start, 66);
        CHECK_EQ(word(f + skip + 4), i == 1 ? 2048 - start : length);
        CHECK_EQ(f[start + 14], 0x45);
        CHECK_EQ(f[network + 28], 'a' + i);
        struct sockaddr_ll *address = (struct sockaddr_ll *)(void *)(f + 32);
        CHECK_EQ(address->sll_family, AF_PACKET);
        CHECK_EQ(address->sll_pkttype, PACKET_HOST);
        CHECK_EQ(address->sll_ifindex, lo());
        CHECK(labs((long)word(f + skip + 12) - (long)time(NULL)) < 60);
    }
    unsigned count[2];
    socklen_t length = sizeof count;
    OK(getsockopt(s, SOL_PACKET, PACKET_STATISTICS, count, &length));
    CHECK_EQ(count[0], 6);
    CHECK_EQ(count[1], 2);
    for (int i = 0; i < 4; i++)
        set_word(p + i * 2048, 0);
    CHECK_EQ(events_of(s, POLLIN, 0), 0);
    CHECK_EQ(OK(sendto(a, "again", 5, 0, LO4(port))), 5);
    AWAIT(s, POLLIN);
    CHECK((word(p) & 1) != 0);
    CHECK_EQ(p[80 + 28], 'a');
    /* While it is mapped it stays. */
    ERR(setsockopt(s, SOL_PACKET, PACKET_RX_RING, &(struct ring){0}, 16), EBUSY);
    ERR(set_option(s, SOL_PACKET, PACKET_VERSION, 1), EBUSY);
    ERR(set_option(s, SOL_PACKET, PACKET_RESERVE, 8), EBUSY);
    OK(munmap(p, 8192));
    OK(setsockopt(s, SOL_PACKET, PACKET_RX_RING, &(struct ring){0}, 16));
    CHECK(mmap(NULL, 8192, PROT_READ, MAP_SHARED, s, 0) == MAP_FAILED);
    CHECK_EQ(errno, EINVAL);
    CHECK_EQ(OK(sendto(a, "queue", 5, 0, LO4(port))), 5);
    CHECK_EQ(OK(recv(s, got, sizeof got, MSG_DONTWAIT)), 14 + 33);
}
TEST(frames_in_a_ring_of_version_1) { frames_in_a_ring(0); }
TEST(frames_in_a_ring_of_version_2) { frames_in_a_ring(1); }

TEST(blocks_in_a_ring_of_version_3) {
    NEEDS_CAPABILITY(CAP_NET_RAW);
    own_network();
    int s = packet_socket(SOCK_DGRAM, P_IP), a = udp_socket(AF_INET), port = port_of(a);
    struct ring r = {.block_size = 4096, .blocks = 2, .frame_size = 2048, .frames = 4,
                     .retire_ms = 60000, .private_size = 13};
    unsigned char *p = ring_of(s, 2, r);
    char text[1400] = "";
    for (int i = 0; i < 3; i++) { /* two fit, the third begins the next block */
        text[0] = (char)('a' + i);
        CHECK_EQ(OK(sendto(a, text, sizeof text, 0, LO4(port))), sizeof text);
    }
    AWAIT(s, POLLIN);
    CHECK_EQ(word(p + 8), 1);
    CHECK_EQ(word(p + 12), 2); /* packets */
    CHECK_EQ(word(p + 4), 48); /* where the program's own bytes are */
    unsigned at = word(p + 16);
    CHECK_EQ(at, 64); /* behind them */
    CHECK_EQ(word(p + 24), 1); /* the number of the block */
    for (int i = 0; i < 2; i++) {
        unsigned char *f = p + at;
        CHECK_EQ(word(f + 12), 28 + sizeof text);
        CHECK_EQ(word(f + 16), 28 + sizeof text);
        unsigned start = half(f + 24);
        CHECK_EQ(start, 96); /* without the link's header both are the same */
        CHECK_EQ(half(f + 26), 96);
        CHECK_EQ(f[start], 0x45);
        CHECK_EQ(f[start + 28], 'a' + i);
        CHECK_EQ(((struct sockaddr_ll *)(void *)(f + 48))->sll_pkttype, PACKET_HOST);
        CHECK((word(f) == 0) == (i == 1));
        at += word(f);
    }
    CHECK_EQ(word(p + 4096 + 8), 0); /* not handed over yet */
    CHECK_EQ(word(p + 4096 + 12), 1);
    for (int i = 0; i < 3; i++) /* fills it, and then there is no room */
        CHECK_EQ(OK(sendto(a, text, sizeof text, 0, LO4(port))), sizeof text);
    CHECK_EQ(word(p + 4096 + 8) & 1, 1);
    unsigned count[3];
    socklen_t length = sizeof count;
    OK(getsockopt(s, SOL_PACKET, PACKET_STATISTICS, count, &length));
    CHECK_EQ(length, sizeof count);
    CHECK_EQ(count[0], 6);
    CHECK_EQ(count[1], 2);
    CHECK_EQ(count[2], 1); /* it froze once */
    set_word(p + 8, 0);
    CHECK_EQ(OK(sendto(a, text, sizeof text, 0, LO4(port))), sizeof text);
    CHECK_EQ(word(p + 12), 1);
    CHECK_EQ(word(p + 24), 3);
}

TEST(a_block_is_handed_over_in_time) {
    NEEDS_CAPABILITY(CAP_NET_RAW);
    own_network();
    int s = packet_socket(SOCK_RAW, P_IP), a = udp_socket(AF_INET);
    struct ring r = {.block_size = 4096, .blocks = 2, .frame_size = 2048, .frames = 4,
                     .retire_ms = 10};
    unsigned char *p = ring_of(s, 2, r);
    for (int i = 0; i < 4; i++) {
        CHECK_EQ(OK(sendto(a, "x", 1, 0, LO4(port_of(a)))), 1);
        AWAIT(s, POLLIN);
        unsigned char *block = p + i % 2 * 4096;
        CHECK_EQ(word(block + 8), 1 | 32 /* TP_STATUS_BLK_TMO */);
        CHECK_EQ(word(block + 12), 1);
        CHECK_EQ(word(block + 24), i + 1);
        set_word(block + 8, 0);
    }
    /* A child that has inherited the ring keeps it. */
    OK(close(s));
    set_word(p, 7);
    CHECK_EQ(word(p), 7);
}

TEST(ring_errors) {
    NEEDS_CAPABILITY(CAP_NET_RAW);
    int s = packet_socket(SOCK_RAW, P_IP);
    for (int version = 0; version < 3; version++) {
        int n = version;
        socklen_t length = sizeof n;
        OK(getsockopt(s, SOL_PACKET, PACKET_HDRLEN, &n, &length));
        CHECK_EQ(n, version == 2 ? 48 : 32);
    }
    int n = 3;
    ERR(getsockopt(s, SOL_PACKET, PACKET_HDRLEN, &n, &(socklen_t){4}), EINVAL);
    ERR(getsockopt(s, SOL_PACKET, PACKET_HDRLEN, &n, &(socklen_t){3}), EINVAL);
    ERR(set_option(s, SOL_PACKET, PACKET_VERSION, 3), EINVAL);
    ERR(set_option(s, SOL_PACKET, PACKET_RESERVE, -1), EINVAL);
    CHECK(mmap(NULL, 4096, PROT_READ, MAP_SHARED, s, 0) == MAP_FAILED);
    CHECK_EQ(errno, EINVAL);
    OK(set_option(s, SOL_PACKET, PACKET_VERSION, 1));
    CHECK_EQ(OPTION(s, SOL_PACKET, PACKET_VERSION), 1);
    static const struct ring bad[] = {
        {4096, 2, 1024, 9, 0, 0, 0}, {4096, 2, 1024, 7, 0, 0, 0}, {4096, 2, 1000, 8, 0, 0, 0},
        {1000, 2, 512, 2, 0, 0, 0},  {4096, 2, 32, 256, 0, 0, 0}, {0, 2, 1024, 8, 0, 0, 0},
        {4096, 0, 1024, 1, 0, 0, 0}, {4096, 2, 8192, 0, 0, 0, 0},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        ERR(setsockopt(s, SOL_PACKET, PACKET_RX_RING, &bad[i], 16), EINVAL);
    struct ring good = {4096, 2, 1024, 8, 0, 0, 0};
    ERR(setsockopt(s, SOL_PACKET, PACKET_RX_RING, &good, 15), EINVAL);
    OK(setsockopt(s, SOL_PACKET, PACKET_RX_RING, &good, 16));
    ERR(setsockopt(s, SOL_PACKET, PACKET_RX_RING, &good, 16), EBUSY); /* there is one */
    OK(setsockopt(s, SOL_PACKET, PACKET_RX_RING, &(struct ring){0}, 16));
    OK(set_option(s, SOL_PACKET, PACKET_VERSION, 2));
    ERR(setsockopt(s, SOL_PACKET, PACKET_RX_RING, &good, 16), EINVAL); /* too short for it */
    OK(set_option(s, SOL_PACKET, PACKET_RESERVE, 100));
    CHECK_EQ(OPTION(s, SOL_PACKET, PACKET_RESERVE), 100);
    good.private_size = 3950;
    ERR(setsockopt(s, SOL_PACKET, PACKET_RX_RING, &good, 28), EINVAL);
}
