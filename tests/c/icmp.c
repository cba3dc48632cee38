/*
 * ICMP: ping sockets, and raw sockets of ICMP and other protocols: icmp(7), raw(7). The kernel
 * answers echo requests before send returns, for all is on loopback.
 */
#define AREA "icmp"
#include "net.h"
#include <netinet/icmp6.h>
#include <netinet/ip.h>
#include <netinet/ip_icmp.h>
#include <netinet/udp.h>

#define SOL_RAW 255
#define TYPES_BLOCKED 1 /* ICMP_FILTER of linux/icmp.h */

struct echo {
    uint8_t type, code;
    uint16_t sum, id, sequence;
    char data[24];
};
static struct echo request(int type, int id, int sequence) {
    struct echo e = {(uint8_t)type, 0, 0, htons((uint16_t)id), htons((uint16_t)sequence), "data"};
    e.sum = sum_of(&e, sizeof e);
    return e;
}
static union address from;
static unsigned char got[2048];
static ssize_t receive(int s) {
    socklen_t length = sizeof from;
    return recvfrom(s, got, sizeof got, MSG_DONTWAIT, &from.any, &length);
}

/* ---- ping sockets ---------------------------------------------------------------------------- */

/* A ping socket; where the range of groups leaves this one out, in a network with another range. */
static int ping_socket(int family) {
    int protocol = family == AF_INET ? IPPROTO_ICMP : IPPROTO_ICMPV6;
    int s = socket(family, SOCK_DGRAM, protocol);
    if (s == -1) {
        CHECK_EQ(errno, EACCES);
        own_network();
        SET_SYSCTL("/proc/sys/net/ipv4/ping_group_range", "0 2147483647");
        s = OK(socket(family, SOCK_DGRAM, protocol));
    }
    CHECK_EQ(OPTION(s, SOL_SOCKET, SO_TYPE), SOCK_DGRAM);
    CHECK_EQ(OPTION(s, SOL_SOCKET, SO_PROTOCOL), protocol);
    return s;
}

TEST(ping) {
    int s = ping_socket(AF_INET);
    struct echo e = request(ICMP_ECHO, 0x1111, 7);
    e.sum = 0x5555; /* the kernel makes the sum, and the identifier is the socket's */
    CHECK_EQ(OK(sendto(s, &e, sizeof e, 0, LO4(0))), sizeof e);
    int id = port_of(s);
    CHECK(id != 0);
    CHECK_EQ(AWAIT(s, POLLIN), POLLIN);
    CHECK_EQ(OK(receive(s)), sizeof e);
    struct echo *reply = (struct echo *)got;
    CHECK_EQ(reply->type, ICMP_ECHOREPLY);
    CHECK_EQ(reply->code, 0);
    CHECK_EQ(ntohs(reply->id), id);
    CHECK_EQ(ntohs(reply->sequence), 7);
    CHECK(memcmp(reply->data, e.data, sizeof e.data) == 0);
    CHECK_EQ(sum_of(got, sizeof e), 0);
    CHECK_EQ(host_in(from), INADDR_LOOPBACK);
    ERR(receive(s), EAGAIN); /* its own request is not its business */
    OK(connect(s, LO4(0)));
    CHECK_EQ(OK(write(s, &e, sizeof e)), sizeof e);
    CHECK_EQ(OK(receive(s)), sizeof e);
    CHECK_EQ(OK(send(s, &e, 8, 0)), 8);
    CHECK_EQ(OK(receive(s)), 8);
}

TEST(ping_errors) {
    int s = ping_socket(AF_INET);
    struct echo e = request(ICMP_ECHO, 1, 1);
    ERR(send(s, &e, sizeof e, 0), EDESTADDRREQ);
    ERR(sendto(s, &e, 7, 0, LO4(0)), EINVAL);
    ERR(sendto(s, got, 70000, 0, LO4(0)), EMSGSIZE);
    ERR(sendto(s, &e, sizeof e, MSG_OOB, LO4(0)), EOPNOTSUPP);
    static const uint8_t others[] = {ICMP_ECHOREPLY, ICMP_DEST_UNREACH, ICMP_TIMESTAMP, 99};
    for (int i = 0; i < 4; i++) {
        e.type = others[i];
        ERR(sendto(s, &e, sizeof e, 0, LO4(0)), EINVAL);
    }
    e = request(ICMP_ECHO, 1, 1);
    e.code = 1;
    ERR(sendto(s, &e, sizeof e, 0, LO4(0)), EINVAL);
    ERR(bind(s, LO4(0)), EINVAL); /* a send has bound it */
    ERR(listen(s, 1), EOPNOTSUPP);
    int t = OK(socket(AF_INET, SOCK_DGRAM, IPPROTO_ICMP));
    ERR(bind(t, AT4(STRANGER, 0)), EADDRNOTAVAIL);
    OK(bind(t, LO4(port_of(s)))); /* as with SO_REUSEADDR: INET_PROTOSW_REUSE in af_inet.c */
    ERR(bind(t, LO4(0)), EINVAL);
    t = OK(socket(AF_INET, SOCK_DGRAM, IPPROTO_ICMP));
    OK(set_option(t, SOL_SOCKET, SO_REUSEADDR, 0));
    ERR(bind(t, LO4(port_of(s))), EADDRINUSE);
    OK(bind(t, LO4(0)));
    CHECK(port_of(t) != 0 && port_of(t) != port_of(s));
}

TEST(ping_of_six) {
    NEEDS_IPV6();
    int s = ping_socket(AF_INET6);
    struct echo e = request(ICMP6_ECHO_REQUEST, 0, 5);
    CHECK_EQ(OK(sendto(s, &e, sizeof e, 0, LO6(0))), sizeof e);
    AWAIT(s, POLLIN);
    CHECK_EQ(OK(receive(s)), sizeof e);
    struct echo *reply = (struct echo *)got;
    CHECK_EQ(reply->type, ICMP6_ECHO_REPLY);
    CHECK_EQ(ntohs(reply->id), port_of(s));
    CHECK_EQ(ntohs(reply->sequence), 5);
    CHECK(IN6_IS_ADDR_LOOPBACK(&from.six.sin6_addr));
    e.type = ICMP_ECHO;
    ERR(sendto(s, &e, sizeof e, 0, LO6(0)), EINVAL);
}

TEST(the_range_of_groups_decides) {
    NEEDS_ROOT();
    own_network();
    SET_SYSCTL("/proc/sys/net/ipv4/ping_group_range", "1 0"); /* none, not even root's */
    ERR(socket(AF_INET, SOCK_DGRAM, IPPROTO_ICMP), EACCES);
    char text[64];
    CHECK(get_file("/proc/sys/net/ipv4/ping_group_range", text, sizeof text) > 0);
    CHECK_STR(text, "1\t0\n");
    SET_SYSCTL("/proc/sys/net/ipv4/ping_group_range", "5 7");
    ERR(socket(AF_INET, SOCK_DGRAM, IPPROTO_ICMP), EACCES);
    for (gid_t group = 4; group <= 8; group++)
        IN_CHILD(BECOME(NOBODY, group); int s = socket(AF_INET, SOCK_DGRAM, IPPROTO_ICMP);
                 CHECK(group >= 5 && group <= 7 ? s >= 0 : s == -1 && errno == EACCES));
    gid_t other = 6; /* one of the others counts too */
    IN_CHILD(OK(syscall(SYS_setgroups, 1, &other)); OK(socket(AF_INET, SOCK_DGRAM, IPPROTO_ICMP)));
    ERR(socket(AF_INET, SOCK_DGRAM, IPPROTO_ICMPV6), EPROTONOSUPPORT);
    SET_SYSCTL("/proc/sys/net/ipv4/ping_group_range", "1 0");
}

/* ---- raw sockets of ICMP --------------------------------------------------------------------- */

TEST(raw_icmp_sees_request_and_reply) {
    NEEDS_CAPABILITY(CAP_NET_RAW);
    int s = OK(socket(AF_INET, SOCK_RAW, IPPROTO_ICMP)), id = getpid() & 0xffff;
    CHECK_EQ(OPTION(s, SOL_SOCKET, SO_TYPE), SOCK_RAW);
    CHECK_EQ(OPTION(s, SOL_SOCKET, SO_PROTOCOL), IPPROTO_ICMP);
    CHECK_EQ(OPTION(s, IPPROTO_IP, IP_HDRINCL), 0);
    struct echo e = request(ICMP_ECHO, id, 3);
    CHECK_EQ(OK(sendto(s, &e, sizeof e, 0, LO4(0))), sizeof e);
    for (int replies = 0, requests = 0; replies + requests < 2;) {
        AWAIT(s, POLLIN);
        ssize_t n = OK(receive(s));
        struct iphdr *ip = (struct iphdr *)got;
        struct echo *r = (struct echo *)(got + ip->ihl * 4);
        if (ntohs(r->id) != id || r->data[0] != 'd')
            continue; /* of another program */
        CHECK_EQ(n, 20 + sizeof e);
        CHECK_EQ(ip->version, 4);
        CHECK_EQ(ip->ihl, 5);
        CHECK_EQ(ntohs(ip->tot_len), n);
        CHECK_EQ(ip->protocol, IPPROTO_ICMP);
        CHECK_EQ(ntohl(ip->saddr), INADDR_LOOPBACK);
        CHECK_EQ(ntohl(ip->daddr), INADDR_LOOPBACK);
        CHECK_EQ(sum_of(ip, 20), 0);
        CHECK_EQ(sum_of(r, sizeof e), 0);
        CHECK_EQ(host_in(from), INADDR_LOOPBACK);
        CHECK_EQ(port_in(from), 0);
        CHECK(r->type == ICMP_ECHO || r->type == ICMP_ECHOREPLY);
        if (r->type == ICMP_ECHO)
            requests++;
        else
            replies++;
        CHECK(requests <= 1 && replies <= 1);
    }
}

/* The next message of this type that bears the identifier; NULL when there is none now. */
static struct echo *next(int s, int type, int id) {
    while (receive(s) != -1) {
        struct echo *r = (struct echo *)(got + (got[0] & 15) * 4);
        if (r->type == type && ntohs(r->id) == id)
            return r;
    }
    CHECK_EQ(errno, EAGAIN);
    return NULL;
}

TEST(types_are_filtered) {
    NEEDS_CAPABILITY(CAP_NET_RAW);
    int s = OK(socket(AF_INET, SOCK_RAW, IPPROTO_ICMP)), id = (getpid() + 1) & 0xffff;
    uint32_t mask = ~(1u << ICMP_ECHOREPLY), read_back = 0;
    socklen_t length = sizeof read_back;
    OK(getsockopt(s, SOL_RAW, TYPES_BLOCKED, &read_back, &length));
    CHECK_EQ(read_back, 0);
    OK(setsockopt(s, SOL_RAW, TYPES_BLOCKED, &mask, sizeof mask));
    OK(getsockopt(s, SOL_RAW, TYPES_BLOCKED, &read_back, &length));
    CHECK_EQ(read_back, mask);
    struct echo e = request(ICMP_ECHO, id, 1);
    CHECK_EQ(OK(sendto(s, &e, sizeof e, 0, LO4(0))), sizeof e);
    while (receive(s) != -1)
        CHECK_EQ(got[20], ICMP_ECHOREPLY);
    mask = 1u << ICMP_ECHOREPLY;
    OK(setsockopt(s, SOL_RAW, TYPES_BLOCKED, &mask, sizeof mask));
    CHECK_EQ(OK(sendto(s, &e, sizeof e, 0, LO4(0))), sizeof e);
    CHECK(next(s, ICMP_ECHOREPLY, id) == NULL);
    int u = OK(socket(AF_INET, SOCK_RAW, 253));
    ERR(setsockopt(u, SOL_RAW, TYPES_BLOCKED, &mask, sizeof mask), EOPNOTSUPP);
}

TEST(a_wrong_sum_is_not_answered) {
    NEEDS_CAPABILITY(CAP_NET_RAW);
    int s = OK(socket(AF_INET, SOCK_RAW, IPPROTO_ICMP)), id = (getpid() + 2) & 0xffff;
    struct echo e = request(ICMP_ECHO, id, 1);
    e.sum ^= 1;
    CHECK_EQ(OK(sendto(s, &e, sizeof e, 0, LO4(0))), sizeof e);
    e = request(ICMP_ECHO, id, 2);
    CHECK_EQ(OK(sendto(s, &e, sizeof e, 0, LO4(0))), sizeof e);
    struct echo *r = next(s, ICMP_ECHOREPLY, id);
    CHECK(r && ntohs(r->sequence) == 2);
    CHECK(next(s, ICMP_ECHOREPLY, id) == NULL);
}

TEST(a_timestamp_is_answered) {
    NEEDS_CAPABILITY(CAP_NET_RAW);
    int s = OK(socket(AF_INET, SOCK_RAW, IPPROTO_ICMP)), id = (getpid() + 3) & 0xffff;
    struct echo e = request(ICMP_TIMESTAMP, id, 1);
    memset(e.data, 0, sizeof e.data);
    e.sum = 0;
    e.sum = sum_of(&e, 20);
    CHECK_EQ(OK(sendto(s, &e, 20, 0, LO4(0))), 20);
    struct echo *r = next(s, ICMP_TIMESTAMPREPLY, id);
    CHECK(r != NULL);
    uint32_t times[3]; /* milliseconds since midnight UTC */
    memcpy(times, r->data, sizeof times);
    CHECK_EQ(times[0], 0);
    CHECK(ntohl(times[1]) < 86400000 && times[1] == times[2]);
}

TEST(unreachable_ports_are_told_of) {
    NEEDS_CAPABILITY(CAP_NET_RAW);
    int s = OK(socket(AF_INET, SOCK_RAW, IPPROTO_ICMP)), u = udp_socket(AF_INET);
    int dead = udp_socket(AF_INET);
    OK(connect(dead, LO4(9)));
    CHECK_EQ(OK(sendto(u, "payload", 7, 0, LO4(port_of(dead)))), 7);
    for (;;) {
        ssize_t n = OK(receive(s));
        struct icmphdr *h = (struct icmphdr *)(got + 20);
        struct iphdr *ip = (struct iphdr *)(got + 28);
        struct udphdr *datagram = (struct udphdr *)(got + 48);
        if (h->type != ICMP_DEST_UNREACH || n < 20 + 8 + 28 ||
            ntohs(datagram->uh_sport) != port_of(u))
            continue;
        CHECK_EQ(h->code, ICMP_PORT_UNREACH);
        CHECK_EQ(ip->protocol, IPPROTO_UDP);
        CHECK_EQ(ntohs(ip->tot_len), 35);
        CHECK_EQ(ntohs(datagram->uh_dport), port_of(dead));
        CHECK_EQ(n, 20 + 8 + 35);
        CHECK(memcmp(got + 56, "payload", 7) == 0);
        CHECK_EQ(sum_of(h, (size_t)n - 20), 0);
        break;
    }
}

/* ---- raw sockets of any protocol ------------------------------------------------------------- */

#define TRIAL 253 /* for experiments: RFC 3692 */

TEST(raw_sockets_of_a_protocol) {
    NEEDS_CAPABILITY(CAP_NET_RAW);
    own_network();
    int a = OK(socket(AF_INET, SOCK_RAW, TRIAL)), b = OK(socket(AF_INET, SOCK_RAW, TRIAL));
    CHECK_EQ(port_of(a), TRIAL); /* a raw socket's port is its protocol: inet_create */
    ERR(send(a, "x", 1, 0), EDESTADDRREQ);
    ERR(sendto(a, "x", 1, MSG_OOB, LO4(0)), EOPNOTSUPP);
    ERR(sendto(a, got, 65516, 0, LO4(0)), EMSGSIZE);
    ERR(listen(a, 1), EOPNOTSUPP);
    ERR(accept(a, NULL, NULL), EOPNOTSUPP);
    ERR(bind(a, AT4(STRANGER, 0)), EADDRNOTAVAIL);
    OK(bind(a, AT4(INADDR_LOOPBACK + 1, 0)));
    CHECK_EQ(OK(sendto(b, "elsewhere", 9, 0, LO4(0))), 9);
    ERR(receive(a), EAGAIN); /* it is bound to another address */
    CHECK_EQ(OK(receive(b)), 29);
    CHECK_EQ(OK(sendto(b, "here", 4, 0, AT4(INADDR_LOOPBACK + 1, 77))), 4);
    int n = 0;
    OK(ioctl(a, FIONREAD, &n));
    CHECK_EQ(n, 24);
    CHECK_EQ(OK(receive(a)), 24);
    CHECK(memcmp(got + 20, "here", 4) == 0);
    CHECK_EQ(got[9], TRIAL);
    CHECK_EQ(OK(receive(b)), 24); /* all that match get one */
    /* Connected it hears its peer alone. */
    OK(connect(b, AT4(INADDR_LOOPBACK + 1, 0)));
    CHECK_EQ(host_in(name_of(b)), INADDR_LOOPBACK);
    ERR(write(a, "x", 1), EDESTADDRREQ);
    CHECK_EQ(OK(sendto(a, "to b", 4, 0, LO4(0))), 4);
    CHECK_EQ(OK(receive(b)), 24);
    int c = OK(socket(AF_INET, SOCK_RAW, TRIAL));
    CHECK_EQ(OK(sendto(c, "no", 2, 0, LO4(0))), 2);
    CHECK_EQ(OK(receive(c)), 22);
    ERR(receive(b), EAGAIN);
}

/* A datagram with its header of IP, whose fields 0 the kernel fills in. */
static size_t datagram(unsigned char *p, int source, int target, const char *text) {
    size_t n = strlen(text);
    struct iphdr ip = {.version = 4, .ihl = 5, .ttl = 9, .protocol = IPPROTO_UDP,
                       .daddr = htonl(INADDR_LOOPBACK)};
    struct udphdr u = {.uh_sport = htons((uint16_t)source), .uh_dport = htons((uint16_t)target),
                       .uh_ulen = htons((uint16_t)(8 + n))};
    memcpy(p, &ip, 20);
    memcpy(p + 20, &u, 8);
    memcpy(p + 28, text, n);
    return 28 + n;
}

TEST(a_header_may_be_the_programs) {
    NEEDS_CAPABILITY(CAP_NET_RAW);
    int raw = OK(socket(AF_INET, SOCK_RAW, IPPROTO_RAW)), u = udp_socket(AF_INET);
    CHECK_EQ(OPTION(raw, IPPROTO_IP, IP_HDRINCL), 1); /* of IPPROTO_RAW, it is: raw(7) */
    OK(set_option(u, IPPROTO_IP, IP_RECVTTL, 1));
    unsigned char packet[128];
    size_t n = datagram(packet, 4321, port_of(u), "hello");
    CHECK_EQ(OK(sendto(raw, packet, n, 0, LO4(0))), (ssize_t)n);
    socklen_t length = sizeof from;
    CHECK_EQ(OK(recvfrom(u, got, sizeof got, MSG_DONTWAIT, &from.any, &length)), 5);
    CHECK(memcmp(got, "hello", 5) == 0);
    CHECK_EQ(port_in(from), 4321);
    CHECK_EQ(host_in(from), INADDR_LOOPBACK);
    /* The source may be another. */
    struct iphdr *ip = (struct iphdr *)packet;
    ip->saddr = htonl(INADDR_LOOPBACK + 99);
    CHECK_EQ(OK(sendto(raw, packet, n, 0, LO4(0))), (ssize_t)n);
    length = sizeof from;
    CHECK_EQ(OK(recvfrom(u, got, sizeof got, MSG_DONTWAIT, &from.any, &length)), 5);
    CHECK_EQ(host_in(from), INADDR_LOOPBACK + 99);
    ERR(sendto(raw, packet, 19, 0, LO4(0)), EINVAL);
    ip->ihl = 15; /* longer than the packet */
    ERR(sendto(raw, packet, n, 0, LO4(0)), EINVAL);
    ERR(recv(raw, got, 1, MSG_DONTWAIT), EAGAIN); /* it receives nothing */
    /* The option makes one of any raw socket. */
    int r = OK(socket(AF_INET, SOCK_RAW, IPPROTO_UDP));
    OK(set_option(r, IPPROTO_IP, IP_HDRINCL, 1));
    CHECK_EQ(OPTION(r, IPPROTO_IP, IP_HDRINCL), 1);
    n = datagram(packet, 1234, port_of(u), "again");
    CHECK_EQ(OK(sendto(r, packet, n, 0, LO4(0))), (ssize_t)n);
    CHECK_EQ(OK(recv(u, got, sizeof got, MSG_DONTWAIT)), 5);
}

/* Sends bytes `begin` to `end` of a datagram's payload of IP as a fragment. */
static void send_fragment(int raw, const unsigned char *whole, int id, int begin, int end,
                          int more) {
    unsigned char packet[256];
    struct iphdr ip;
    memcpy(&ip, whole, 20);
    ip.id = htons((uint16_t)id);
    ip.frag_off = htons((uint16_t)(begin / 8 | (more ? 0x2000 : 0)));
    memcpy(packet, &ip, 20);
    memcpy(packet + 20, whole + 20 + begin, (size_t)(end - begin));
    ssize_t n = 20 + end - begin;
    CHECK_EQ(OK(sendto(raw, packet, (size_t)n, 0, LO4(0))), n);
}

TEST(fragments_are_put_together) {
    NEEDS_CAPABILITY(CAP_NET_RAW);
    int raw = OK(socket(AF_INET, SOCK_RAW, IPPROTO_RAW)), u = udp_socket(AF_INET);
    const char *text = "0123456789abcdefghijklmnopqrstuvwxyz";
    unsigned char whole[128];
    int end = (int)datagram(whole, 4321, port_of(u), text) - 20, id = getpid() & 0x7fff;
    static const int orders[][3] = {{0, 1, 2}, {2, 1, 0}, {1, 2, 0}};
    for (int i = 0; i < 3; i++) {
        for (int j = 0; j < 3; j++) {
            int at = orders[i][j], begin = at * 16, last = at == 2;
            send_fragment(raw, whole, id + i, begin, last ? end : begin + 16, !last);
            if (j == 0) /* once more: it does no harm */
                send_fragment(raw, whole, id + i, begin, last ? end : begin + 16, !last);
            if (j < 2)
                ERR(recv(u, got, sizeof got, MSG_DONTWAIT), EAGAIN);
        }
        CHECK_EQ(OK(recv(u, got, sizeof got, MSG_DONTWAIT)), 36);
        CHECK(memcmp(got, text, 36) == 0);
        ERR(recv(u, got, sizeof got, MSG_DONTWAIT), EAGAIN);
    }
    /* Fragments that overlap end the datagram: RFC 5722, and Linux for IPv4 as well. */
    id += 3;
    send_fragment(raw, whole, id, 0, 16, 1);
    send_fragment(raw, whole, id, 8, 32, 1);
    send_fragment(raw, whole, id, 16, 32, 1);
    send_fragment(raw, whole, id, 32, end, 0);
    ERR(recv(u, got, sizeof got, MSG_DONTWAIT), EAGAIN);
    /* Those of another number do not belong to it. */
    send_fragment(raw, whole, id + 1, 0, 16, 1);
    send_fragment(raw, whole, id + 2, 16, end, 0);
    ERR(recv(u, got, sizeof got, MSG_DONTWAIT), EAGAIN);
    send_fragment(raw, whole, id + 1, 16, end, 0);
    CHECK_EQ(OK(recv(u, got, sizeof got, MSG_DONTWAIT)), 36);
}

TEST(raw_sockets_are_for_the_privileged) {
    NEEDS_ROOT();
    int s = OK(socket(AF_INET, SOCK_DGRAM, 0));
    BECOME(NOBODY, NOBODY);
    ERR(socket(AF_INET, SOCK_RAW, IPPROTO_ICMP), EPERM);
    ERR(socket(AF_INET, SOCK_RAW, IPPROTO_RAW), EPERM);
    ERR(socket(AF_INET, SOCK_RAW, TRIAL), EPERM);
    ERR(set_option(s, IPPROTO_IP, IP_HDRINCL, 1), ENOPROTOOPT);
    if (access("/proc/net/if_inet6", F_OK) == 0)
        ERR(socket(AF_INET6, SOCK_RAW, IPPROTO_ICMPV6), EPERM);
}

TEST(raw_icmp_of_six) {
    NEEDS_CAPABILITY(CAP_NET_RAW);
    NEEDS_IPV6();
    int s = OK(socket(AF_INET6, SOCK_RAW, IPPROTO_ICMPV6)), id = (getpid() + 4) & 0xffff;
    struct icmp6_filter filter;
    ICMP6_FILTER_SETBLOCKALL(&filter);
    ICMP6_FILTER_SETPASS(ICMP6_ECHO_REPLY, &filter);
    OK(setsockopt(s, IPPROTO_ICMPV6, ICMP6_FILTER, &filter, sizeof filter));
    struct icmp6_filter back;
    socklen_t length = sizeof back;
    OK(getsockopt(s, IPPROTO_ICMPV6, ICMP6_FILTER, &back, &length));
    CHECK(memcmp(&filter, &back, sizeof back) == 0);
    /* The kernel makes the sum, with the pseudo-header: RFC 3542. */
    ERR(set_option(s, IPPROTO_IPV6, IPV6_CHECKSUM, 2), EINVAL);
    struct echo e = request(ICMP6_ECHO_REQUEST, id, 9);
    e.sum = 0;
    CHECK_EQ(OK(sendto(s, &e, sizeof e, 0, LO6(0))), sizeof e);
    for (;;) {
        AWAIT(s, POLLIN);
        CHECK_EQ(OK(receive(s)) > 0, 1);
        struct echo *r = (struct echo *)got; /* no header of IP comes with it */
        CHECK_EQ(r->type, ICMP6_ECHO_REPLY);
        if (ntohs(r->id) != id)
            continue;
        CHECK_EQ(ntohs(r->sequence), 9);
        CHECK(memcmp(r->data, e.data, sizeof e.data) == 0);
        CHECK(IN6_IS_ADDR_LOOPBACK(&from.six.sin6_addr));
        break;
    }
}
