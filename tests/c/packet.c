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
#define SO_ATTACH_FILTER_ 26
#define SO_DETACH_FILTER_ 27
#define SO_LOCK_FILTER_ 44

/* linux/filter.h */
struct instruction {
    uint16_t code;
    uint8_t when_true, when_false;
    uint32_t k;
};
struct program {
    uint16_t length;
    struct instruction *code;
};
#define LOAD_BYTE 0x30
#define LOAD_HALF 0x28
#define JUMP_EQUAL 0x15
#define RETURN 0x06

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
static uint16_t sum_of(const void *data, size_t size) {
    const unsigned char *b = data;
    uint32_t sum = 0;
    for (size_t i = 0; i < size; i++)
        sum += i % 2 ? b[i] : (uint32_t)b[i] << 8;
    while (sum >> 16)
        sum = (sum & 0xffff) + (sum >> 16);
    return htons((uint16_t)~sum);
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

TEST(an_interface_that_is_down) {
    NEEDS_CAPABILITY(CAP_NET_RAW);
    NEEDS_CAPABILITY(CAP_NET_ADMIN);
    if (geteuid() != 0 || unshare(0x40000000 /* CLONE_NEWNET */) == -1)
        SKIP("needs a network namespace");
    int s = packet_socket(SOCK_RAW, P_ALL);
    unsigned char frame[60] = {0};
    CHECK_EQ(OPTION(s, SOL_SOCKET, SO_ERROR), ENETDOWN); /* told when it was bound */
    ERR(send(s, frame, sizeof frame, 0), ENETDOWN);
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
