/*
 * Datagrams: udp(7), ip(7), ipv6(7): amounts, errors that come back, control messages, groups of
 * receivers and buffers that overflow. All on loopback, which delivers before send returns.
 */
#define AREA "udp"
#include "net.h"
#include <sys/un.h>

#define SOL_UDP 17
#define UDP_CORK 1
#define UDP_SEGMENT 103
#define UDP_GRO 104
#define SO_RXQ_OVFL 40
#define SIOCOUTQ 0x5411
/* linux/errqueue.h */
struct extended_error {
    uint32_t number;
    uint8_t origin, type, code, pad;
    uint32_t info, data;
};
enum { ORIGIN_NONE, ORIGIN_LOCAL, ORIGIN_ICMP, ORIGIN_ICMP6 };
/* linux/in6.h */
#define RECVERR6 25

static int udp4(void) { return OK(socket(AF_INET, SOCK_DGRAM, 0)); }
static int udp6(void) { return OK(socket(AF_INET6, SOCK_DGRAM, 0)); }
static int error_of(int s) { return OPTION(s, SOL_SOCKET, SO_ERROR); }
static int queued(int s) {
    int n = -1;
    OK(ioctl(s, FIONREAD, &n));
    return n;
}
static void send_to(int s, const void *data, size_t size, int port) {
    CHECK_EQ(OK(sendto(s, data, size, 0, LO4(port))), (ssize_t)size);
}
/* A port of loopback that takes no datagrams from others: a socket connected elsewhere holds it. */
static int dead_port(void) {
    int s = udp_socket(AF_INET);
    OK(connect(s, LO4(9)));
    return port_of(s);
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
static void *control_of(int level, int type, size_t *size) {
    for (struct cmsghdr *h = CMSG_FIRSTHDR(&message); h; h = CMSG_NXTHDR(&message, h))
        if (h->cmsg_level == level && h->cmsg_type == type) {
            if (size)
                *size = h->cmsg_len - CMSG_LEN(0);
            return CMSG_DATA(h);
        }
    return NULL;
}
/* Sends one byte with a control message. */
static ssize_t send_with(int s, struct sockaddr *to, socklen_t length, int level, int type,
                         const void *data, size_t size) {
    union {
        char room[128];
        struct cmsghdr align;
    } u = {{0}};
    struct iovec v = {"c", 1};
    struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1, .msg_name = to, .msg_namelen = length,
                       .msg_control = u.room, .msg_controllen = CMSG_SPACE(size)};
    struct cmsghdr *h = CMSG_FIRSTHDR(&m);
    h->cmsg_level = level, h->cmsg_type = type, h->cmsg_len = CMSG_LEN(size);
    memcpy(CMSG_DATA(h), data, size);
    return sendmsg(s, &m, 0);
}

/* ---- datagrams ------------------------------------------------------------------------------- */

TEST(datagrams_keep_their_bounds) {
    int a = udp_socket(AF_INET), b = udp_socket(AF_INET);
    send_to(a, "one", 3, port_of(b));
    send_to(a, "", 0, port_of(b));
    send_to(a, "three", 5, port_of(b));
    CHECK_EQ(queued(b), 3); /* the next one's */
    CHECK_EQ(events_of(b, POLLIN | POLLOUT, 0), POLLIN | POLLOUT);
    char got[16];
    socklen_t length = sizeof from;
    CHECK_EQ(OK(recvfrom(b, got, 16, 0, &from.any, &length)), 3);
    CHECK_EQ(length, 16);
    CHECK_EQ(port_in(from), port_of(a));
    CHECK_EQ(host_in(from), INADDR_LOOPBACK);
    CHECK_EQ(queued(b), 0);
    CHECK_EQ(events_of(b, POLLIN, 0), POLLIN); /* one of no bytes is one */
    CHECK_EQ(OK(recv(b, got, 16, 0)), 0);
    CHECK_EQ(OK(read(b, got, 16)), 5);
    ERR(recv(b, got, 16, MSG_DONTWAIT), EAGAIN);
    CHECK_EQ(events_of(b, POLLIN | POLLOUT, 0), POLLOUT);
}

TEST(what_does_not_fit_is_lost) {
    int a = udp_socket(AF_INET), b = udp_socket(AF_INET);
    char got[4];
    for (int i = 0; i < 3; i++)
        send_to(a, "0123456789", 10, port_of(b));
    CHECK_EQ(OK(recv(b, got, 4, 0)), 4);
    CHECK_EQ(OK(recv(b, got, 4, MSG_TRUNC)), 10);
    struct iovec v = {got, 4};
    struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1};
    CHECK_EQ(OK(recvmsg(b, &m, 0)), 4);
    CHECK_EQ(m.msg_flags, MSG_TRUNC);
    ERR(recv(b, got, 4, MSG_DONTWAIT), EAGAIN);
    send_to(a, "01", 2, port_of(b));
    m = (struct msghdr){.msg_iov = &v, .msg_iovlen = 1};
    CHECK_EQ(OK(recvmsg(b, &m, MSG_TRUNC)), 2);
    CHECK_EQ(m.msg_flags, 0);
}

TEST(peek_leaves_the_datagram) {
    int a = udp_socket(AF_INET), b = udp_socket(AF_INET);
    char got[4];
    send_to(a, "abcdef", 6, port_of(b));
    send_to(a, "g", 1, port_of(b));
    CHECK_EQ(OK(recv(b, got, 2, MSG_PEEK)), 2);
    CHECK_EQ(OK(recv(b, got, 4, MSG_PEEK | MSG_TRUNC)), 6);
    CHECK_EQ(OK(recv(b, got, 4, MSG_WAITALL)), 4); /* it waits for no second one */
    CHECK_EQ(OK(recv(b, got, 4, 0)), 1);
}

TEST(sizes_up_to_the_largest) {
    int a = udp_socket(AF_INET), b = udp_socket(AF_INET);
    OK(set_option(b, SOL_SOCKET, SO_RCVBUF, 200000));
    OK(set_option(a, SOL_SOCKET, SO_SNDBUF, 200000));
    static char data[65508];
    for (size_t i = 0; i < sizeof data; i++)
        data[i] = (char)(i * 31 + i / 253);
    static const size_t sizes[] = {1, 1471, 1472, 1473, 4096, 32768, 65000, 65506, 65507};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        send_to(a, data, sizes[i], port_of(b));
        CHECK_EQ(OK(receive(b, 0)), (ssize_t)sizes[i]);
        CHECK(memcmp(body, data, sizes[i]) == 0);
    }
    /* 65535 less the headers of IP and UDP. */
    ERR(sendto(a, data, 65508, 0, LO4(port_of(b))), EMSGSIZE);
    ERR(sendto(a, body, sizeof body, 0, LO4(port_of(b))), EMSGSIZE);
    if (access("/proc/net/if_inet6", F_OK) == 0 && OK(socket(AF_INET6, SOCK_DGRAM, 0)) >= 0) {
        NEEDS_IPV6();
        int c = udp_socket(AF_INET6), d = udp_socket(AF_INET6);
        OK(set_option(d, SOL_SOCKET, SO_RCVBUF, 200000));
        OK(set_option(c, SOL_SOCKET, SO_SNDBUF, 200000));
        CHECK_EQ(OK(sendto(c, body, 65527, 0, LO6(port_of(d)))), 65527);
        CHECK_EQ(OK(receive(d, 0)), 65527); /* its length does not count its header */
        ERR(sendto(c, body, 65528, 0, LO6(port_of(d))), EMSGSIZE);
    }
}

TEST(send_errors) {
    int s = udp4(), b = udp_socket(AF_INET);
    ERR(send(s, "x", 1, 0), EDESTADDRREQ);
    ERR(write(s, "x", 1), EDESTADDRREQ);
    ERR(sendto(s, "x", 1, 0, LO4(0)), EINVAL); /* port 0 */
    struct sockaddr_in a = {.sin_family = AF_INET6};
    ERR(sendto(s, "x", 1, 0, (struct sockaddr *)&a, sizeof a), EAFNOSUPPORT);
    a.sin_family = AF_INET;
    ERR(sendto(s, "x", 1, 0, (struct sockaddr *)&a, 15), EINVAL);
    ERR(sendto(s, "x", 1, 0, BAD, 16), EFAULT);
    ERR(sendto(s, BAD, 4, 0, LO4(port_of(b))), EFAULT);
    ERR(sendto(s, "x", 1, MSG_OOB, LO4(port_of(b))), EOPNOTSUPP);
    ERR(recv(s, &(char){0}, 1, MSG_OOB | MSG_DONTWAIT), EAGAIN);
    ERR(sendto(s, "x", 1, 0, AT4(INADDR_BROADCAST, 9)), broadcast_error());
    CHECK_EQ(queued(b), 0);
    send_to(b, "x", 1, port_of(b));
    ERR(recvfrom(b, BAD, 1, 0, NULL, NULL), EFAULT);
    ERR(shutdown(s, SHUT_RD), ENOTCONN);
    /* AF_UNSPEC passes for AF_INET where one sends (udp_sendmsg). */
    a.sin_family = AF_UNSPEC, a.sin_port = htons((uint16_t)port_of(b));
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    CHECK_EQ(OK(sendto(s, "y", 1, 0, (struct sockaddr *)&a, sizeof a)), 1);
    CHECK_EQ(OK(receive(b, 0)), 1);
}

TEST(many_datagrams_at_once) {
    int a = udp_socket(AF_INET), b = udp_socket(AF_INET);
    enum { N = 20 };
    struct mmsghdr m[N];
    struct iovec v[N];
    static char text[N][8];
    OK(connect(a, LO4(port_of(b))));
    memset(m, 0, sizeof m);
    for (int i = 0; i < N; i++) {
        int n = snprintf(text[i], 8, "n%d", i);
        v[i] = (struct iovec){text[i], (size_t)n};
        m[i].msg_hdr.msg_iov = &v[i], m[i].msg_hdr.msg_iovlen = 1;
    }
    CHECK_EQ(OK(syscall(SYS_sendmmsg, a, m, N, 0)), N);
    for (int i = 0; i < N; i++) {
        CHECK_EQ(m[i].msg_len, v[i].iov_len);
        memset(text[i], 0, 8);
        v[i].iov_len = 8;
    }
    CHECK_EQ(OK(syscall(SYS_recvmmsg, b, m, N / 2, MSG_DONTWAIT, NULL)), N / 2);
    CHECK_STR(text[0], "n0");
    CHECK_STR(text[9], "n9");
    CHECK_EQ(OK(syscall(SYS_recvmmsg, b, m, N, MSG_WAITFORONE, NULL)), N / 2);
    CHECK_STR(text[0], "n10");
    ERR(syscall(SYS_recvmmsg, b, m, N, MSG_DONTWAIT, NULL), EAGAIN);
    ERR(syscall(SYS_recvmmsg, b, BAD, 1, MSG_DONTWAIT, NULL), EFAULT);
}

/* ---- connected sockets ----------------------------------------------------------------------- */

TEST(a_connected_socket_hears_its_peer_alone) {
    int a = udp_socket(AF_INET), b = udp_socket(AF_INET), c = udp_socket(AF_INET);
    char got[8];
    send_to(c, "before", 6, port_of(a)); /* stays, though it is from another */
    OK(connect(a, LO4(port_of(b))));
    CHECK_EQ(port_in(peer_of(a)), port_of(b));
    send_to(c, "no", 2, port_of(a));
    send_to(b, "yes", 3, port_of(a));
    CHECK_EQ(OK(recv(a, got, 8, MSG_DONTWAIT)), 6);
    CHECK_EQ(OK(recv(a, got, 8, MSG_DONTWAIT)), 3);
    ERR(recv(a, got, 8, MSG_DONTWAIT), EAGAIN);
    CHECK_EQ(OK(write(a, "w", 1)), 1);
    CHECK_EQ(OK(recv(b, got, 8, MSG_DONTWAIT)), 1);
    send_to(a, "elsewhere", 9, port_of(c)); /* an address of one's own is still allowed */
    CHECK_EQ(queued(c), 9);
    /* It may be connected anew, and disconnected. */
    OK(connect(a, LO4(port_of(c))));
    send_to(b, "no", 2, port_of(a));
    ERR(recv(a, got, 8, MSG_DONTWAIT), EAGAIN);
    struct sockaddr none = {.sa_family = AF_UNSPEC};
    OK(connect(a, &none, sizeof none));
    CHECK_EQ(port_of(a), 0); /* bind chose the port, and not the program: it goes */
    ERR(getpeername(a, &from.any, &(socklen_t){sizeof from}), ENOTCONN);
    ERR(send(a, "x", 1, 0), EDESTADDRREQ);
    CHECK(port_of(a) != 0); /* a send takes one before it looks where to: inet_send_prepare */
}

TEST(connect_chooses_the_source) {
    int b = udp4(), a = udp4();
    OK(bind(b, ANY4(0)));
    CHECK_EQ(host_in(name_of(a)), INADDR_ANY);
    OK(connect(a, AT4(INADDR_LOOPBACK + 5, port_of(b))));
    CHECK(port_of(a) != 0);
    CHECK_EQ(OK(write(a, "x", 1)), 1);
    CHECK_EQ(OK(receive(b, 0)), 1);
    CHECK_EQ(host_in(name_of(a)), INADDR_LOOPBACK);
    CHECK_EQ(host_in(from), INADDR_LOOPBACK);
    struct sockaddr none = {.sa_family = AF_UNSPEC};
    OK(connect(a, &none, sizeof none));
    CHECK_EQ(host_in(name_of(a)), INADDR_ANY);
    ERR(connect(a, AT4(INADDR_LOOPBACK, 9)) == 0 ? connect(a, BAD, 16) : -1, EFAULT);
    ERR(connect(a, (struct sockaddr *)&(struct sockaddr_in){AF_INET}, 3), EINVAL);
    ERR(connect(udp4(), AT4(INADDR_BROADCAST, 9)), broadcast_error());
}

TEST(refusals_come_back_to_who_is_connected) {
    int port = dead_port();
    int a = udp4();
    OK(connect(a, LO4(port)));
    CHECK_EQ(OK(write(a, "x", 1)), 1);
    CHECK_EQ(events_of(a, POLLIN | POLLOUT, 0), POLLOUT | POLLERR);
    char c;
    ERR(recv(a, &c, 1, 0), ECONNREFUSED);
    CHECK_EQ(events_of(a, POLLIN | POLLOUT, 0), POLLOUT);
    ERR(recv(a, &c, 1, MSG_DONTWAIT), EAGAIN);
    CHECK_EQ(OK(write(a, "x", 1)), 1);
    ERR(write(a, "y", 1), ECONNREFUSED); /* the next call tells, and sends nothing */
    CHECK_EQ(error_of(a), 0);
    CHECK_EQ(OK(write(a, "x", 1)), 1);
    CHECK_EQ(error_of(a), ECONNREFUSED);
    /* A socket that is not connected does not hear of it. */
    int b = udp4();
    send_to(b, "x", 1, port);
    CHECK_EQ(error_of(b), 0);
    ERR(recv(b, &c, 1, MSG_DONTWAIT), EAGAIN);
}

TEST(shutdown_of_a_connected_socket) {
    int a = udp_socket(AF_INET), b = udp_socket(AF_INET);
    OK(connect(a, LO4(port_of(b))));
    OK(shutdown(a, SHUT_RD));
    char c;
    CHECK_EQ(OK(recv(a, &c, 1, 0)), 0);
    CHECK_EQ(events_of(a, POLLIN | POLLRDHUP, 0), POLLIN | POLLRDHUP);
    OK(shutdown(a, SHUT_WR));
    ERR(send(a, "x", 1, MSG_NOSIGNAL), EPIPE);
    CHECK_EQ(events_of(a, 0, 0), POLLHUP);
}

TEST(waits_end) {
    int a = udp_socket(AF_INET), b = udp_socket(AF_INET);
    struct timeval t = {0, 40000};
    OK(setsockopt(a, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t));
    int64_t start = now_ns(CLOCK_MONOTONIC);
    char c;
    ERR(recv(a, &c, 1, 0), EAGAIN);
    CHECK(now_ns(CLOCK_MONOTONIC) - start >= 35 * MS);
    pid_t pid = FORK();
    if (pid == 0)
        _exit(recv(b, &c, 1, 0) == 1 && c == 'w' ? 0 : 1);
    wait_asleep(pid);
    send_to(a, "w", 1, port_of(b));
    EXITS(pid, 0);
    int ep = OK(epoll_create1(0));
    struct epoll_event v = {EPOLLIN | EPOLLET, {0}};
    OK(epoll_ctl(ep, EPOLL_CTL_ADD, b, &v));
    CHECK_EQ(OK(epoll_wait(ep, &v, 1, 0)), 0);
    for (int i = 0; i < 2; i++) {
        send_to(a, "e", 1, port_of(b));
        CHECK_EQ(OK(epoll_wait(ep, &v, 1, SOON)), 1);
        CHECK_EQ(OK(epoll_wait(ep, &v, 1, 0)), 0);
    }
}

/* ---- the queue of errors --------------------------------------------------------------------- */

TEST(errors_are_queued_with_what_caused_them) {
    int port = dead_port(), a = udp4();
    OK(set_option(a, IPPROTO_IP, IP_RECVERR, 1));
    ERR(receive(a, MSG_ERRQUEUE), EAGAIN);
    /* It is not connected: with the option it hears all the same. */
    send_to(a, "lost datagram", 13, port);
    CHECK((events_of(a, POLLIN, 0) & POLLERR) != 0);
    CHECK_EQ(OK(receive(a, MSG_ERRQUEUE)), 13);
    CHECK(memcmp(body, "lost datagram", 13) == 0);
    CHECK_EQ(message.msg_flags & MSG_ERRQUEUE, MSG_ERRQUEUE);
    CHECK_EQ(port_in(from), port); /* where it went */
    CHECK_EQ(host_in(from), INADDR_LOOPBACK);
    size_t size;
    struct extended_error *e = control_of(IPPROTO_IP, IP_RECVERR, &size);
    CHECK(e && size >= sizeof *e + sizeof(struct sockaddr_in));
    CHECK_EQ(e->number, ECONNREFUSED);
    CHECK_EQ(e->origin, ORIGIN_ICMP);
    CHECK_EQ(e->type, 3);
    CHECK_EQ(e->code, 3);
    struct sockaddr_in *offender = (struct sockaddr_in *)(e + 1);
    CHECK_EQ(offender->sin_family, AF_INET);
    CHECK_EQ(ntohl(offender->sin_addr.s_addr), INADDR_LOOPBACK);
    ERR(receive(a, MSG_ERRQUEUE), EAGAIN);
    CHECK_EQ(events_of(a, POLLIN, 0), 0);
    CHECK_EQ(error_of(a), 0); /* the last one that was read cleared it */
    /* An error of this host. */
    ERR(sendto(a, body, 65508, 0, LO4(port)), EMSGSIZE);
    OK(set_option(a, IPPROTO_IP, IP_RECVERR, 0));
    ERR(receive(a, MSG_ERRQUEUE), EAGAIN); /* turned off it is emptied */
}

TEST(errors_that_nobody_wants_any_more_leave_their_queue) {
    int port = dead_port(), a = udp4();
    OK(set_option(a, IPPROTO_IP, IP_RECVERR, 1));
    for (int i = 0; i < 3; i++) {
        send_to(a, "lost", 4, port);
        CHECK_EQ(error_of(a), ECONNREFUSED);
    }
    CHECK_EQ(OK(receive(a, MSG_ERRQUEUE)), 4);
    /* The option is set once more: nothing is lost. */
    OK(set_option(a, IPPROTO_IP, IP_RECVERR, 1));
    CHECK_EQ(OK(receive(a, MSG_ERRQUEUE)), 4);
    /* The one that is left goes with the option; what is pending stays (skb_errqueue_purge). */
    OK(set_option(a, IPPROTO_IP, IP_RECVERR, 0));
    ERR(receive(a, MSG_ERRQUEUE), EAGAIN);
    CHECK_EQ(error_of(a), ECONNREFUSED);
    CHECK_EQ(events_of(a, POLLIN, 0), 0);
    OK(set_option(a, IPPROTO_IP, IP_RECVERR, 1));
    ERR(receive(a, MSG_ERRQUEUE), EAGAIN);
}

TEST(errors_of_six_leave_their_queue_with_the_option) {
    NEEDS_IPV6();
    int holder = udp_socket(AF_INET6), a = udp6();
    OK(connect(holder, LO6(9)));
    OK(set_option(a, IPPROTO_IPV6, RECVERR6, 1));
    CHECK_EQ(OK(sendto(a, "gone", 4, 0, LO6(port_of(holder)))), 4);
    OK(set_option(a, IPPROTO_IPV6, RECVERR6, 0));
    ERR(receive(a, MSG_ERRQUEUE), EAGAIN);
    CHECK_EQ(error_of(a), ECONNREFUSED);
    CHECK_EQ(events_of(a, POLLIN, 0), 0);
}

TEST(errors_wait_within_the_receive_buffer) {
    int port = dead_port(), a = udp4();
    OK(set_option(a, SOL_SOCKET, SO_RCVBUF, 4096));
    OK(set_option(a, IPPROTO_IP, IP_RECVERR, 1));
    for (int i = 0; i < 300; i++)
        sendto(a, body, 100, 0, LO4(port)); /* every other one reports the error of the last */
    int count = 0;
    while (receive(a, MSG_ERRQUEUE) >= 0)
        count++;
    CHECK(count > 0 && count < 100);
    /* There is room again. */
    error_of(a);
    send_to(a, "again", 5, port);
    CHECK_EQ(OK(receive(a, MSG_ERRQUEUE)), 5);
}

TEST(errors_are_queued_of_six) {
    NEEDS_IPV6();
    int holder = udp_socket(AF_INET6), a = udp6();
    OK(connect(holder, LO6(9)));
    OK(set_option(a, IPPROTO_IPV6, RECVERR6, 1));
    CHECK_EQ(OK(sendto(a, "gone", 4, 0, LO6(port_of(holder)))), 4);
    CHECK_EQ(OK(receive(a, MSG_ERRQUEUE)), 4);
    CHECK_EQ(port_in(from), port_of(holder));
    CHECK_EQ(from.any.sa_family, AF_INET6);
    struct extended_error *e = control_of(IPPROTO_IPV6, RECVERR6, NULL);
    CHECK(e != NULL);
    CHECK_EQ(e->number, ECONNREFUSED);
    CHECK_EQ(e->origin, ORIGIN_ICMP6);
    CHECK_EQ(e->type, 1);
    CHECK_EQ(e->code, 4);
    /* A connected socket hears without the option. */
    int b = udp6();
    OK(connect(b, LO6(port_of(holder))));
    CHECK_EQ(OK(write(b, "x", 1)), 1);
    ERR(recv(b, body, 1, 0), ECONNREFUSED);
}

/* ---- control messages ------------------------------------------------------------------------ */

TEST(packet_info_tells_the_address) {
    int a = udp4(), b = udp4();
    OK(bind(a, ANY4(0)));
    OK(set_option(a, IPPROTO_IP, IP_PKTINFO, 1));
    CHECK_EQ(OK(sendto(b, "x", 1, 0, AT4(INADDR_LOOPBACK + 2, port_of(a)))), 1);
    CHECK_EQ(OK(receive(a, 0)), 1);
    size_t size;
    struct in_pktinfo *info = control_of(IPPROTO_IP, IP_PKTINFO, &size);
    CHECK(info && size == sizeof *info);
    CHECK_EQ(info->ipi_ifindex, (int)if_nametoindex("lo"));
    CHECK_EQ(ntohl(info->ipi_addr.s_addr), INADDR_LOOPBACK + 2);
    CHECK_EQ(ntohl(info->ipi_spec_dst.s_addr), INADDR_LOOPBACK + 2);
    CHECK_EQ(message.msg_flags, 0);
    /* As a sender one chooses the source by it. */
    struct in_pktinfo source = {.ipi_spec_dst.s_addr = htonl(INADDR_LOOPBACK + 3)};
    union address to = {.four = {AF_INET, htons((uint16_t)port_of(a)), {htonl(INADDR_LOOPBACK)}}};
    CHECK_EQ(OK(send_with(b, &to.any, 16, IPPROTO_IP, IP_PKTINFO, &source, sizeof source)), 1);
    CHECK_EQ(OK(receive(a, 0)), 1);
    CHECK_EQ(host_in(from), INADDR_LOOPBACK + 3);
    source.ipi_spec_dst.s_addr = htonl(STRANGER);
    ERR(send_with(b, &to.any, 16, IPPROTO_IP, IP_PKTINFO, &source, sizeof source), ENETUNREACH);
    ERR(send_with(b, &to.any, 16, IPPROTO_IP, IP_PKTINFO, &source, 3), EINVAL);
    ERR(send_with(b, &to.any, 16, IPPROTO_IP, 999, &source, 4), EINVAL);
    /* Too little room: as many as fit, and MSG_CTRUNC. */
    CHECK_EQ(OK(sendto(b, "x", 1, 0, LO4(port_of(a)))), 1);
    struct iovec v = {body, 1};
    struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = control,
                       .msg_controllen = CMSG_LEN(0) + 4};
    CHECK_EQ(OK(recvmsg(a, &m, 0)), 1);
    CHECK_EQ(m.msg_flags, MSG_CTRUNC);
    CHECK_EQ(CMSG_FIRSTHDR(&m)->cmsg_len, CMSG_LEN(4));
}

TEST(packet_info_of_six) {
    NEEDS_IPV6();
    int a = udp6(), b = udp_socket(AF_INET6);
    OK(bind(a, ANY6(0)));
    OK(set_option(a, IPPROTO_IPV6, IPV6_RECVPKTINFO, 1));
    OK(set_option(a, IPPROTO_IPV6, IPV6_RECVHOPLIMIT, 1));
    OK(set_option(a, IPPROTO_IPV6, IPV6_RECVTCLASS, 1));
    OK(set_option(b, IPPROTO_IPV6, IPV6_UNICAST_HOPS, 33));
    OK(set_option(b, IPPROTO_IPV6, IPV6_TCLASS, 0x40));
    CHECK_EQ(OK(sendto(b, "x", 1, 0, LO6(port_of(a)))), 1);
    CHECK_EQ(OK(receive(a, 0)), 1);
    size_t size;
    struct in6_pktinfo *info = control_of(IPPROTO_IPV6, IPV6_PKTINFO, &size);
    CHECK(info && size == 20);
    CHECK_EQ(info->ipi6_ifindex, if_nametoindex("lo"));
    CHECK(IN6_IS_ADDR_LOOPBACK(&info->ipi6_addr));
    int *hops = control_of(IPPROTO_IPV6, IPV6_HOPLIMIT, NULL);
    CHECK(hops && *hops == 33);
    int *class = control_of(IPPROTO_IPV6, IPV6_TCLASS, NULL);
    CHECK(class && *class == 0x40);
    CHECK_EQ(from.six.sin6_scope_id, 0);
}

TEST(ttl_and_tos_travel) {
    int a = udp_socket(AF_INET), b = udp_socket(AF_INET);
    OK(set_option(a, IPPROTO_IP, IP_RECVTTL, 1));
    OK(set_option(a, IPPROTO_IP, IP_RECVTOS, 1));
    OK(set_option(b, IPPROTO_IP, IP_TTL, 42));
    OK(set_option(b, IPPROTO_IP, IP_TOS, 0x10));
    send_to(b, "x", 1, port_of(a));
    CHECK_EQ(OK(receive(a, 0)), 1);
    size_t size;
    int *ttl = control_of(IPPROTO_IP, IP_TTL, &size);
    CHECK(ttl && size == 4 && *ttl == 42);
    unsigned char *tos = control_of(IPPROTO_IP, IP_TOS, &size);
    CHECK(tos && size == 1 && *tos == 0x10);
    /* For one datagram. */
    union address to = name_of(a);
    int once = 7;
    CHECK_EQ(OK(send_with(b, &to.any, 16, IPPROTO_IP, IP_TTL, &once, sizeof once)), 1);
    CHECK_EQ(OK(receive(a, 0)), 1);
    CHECK_EQ(*(int *)control_of(IPPROTO_IP, IP_TTL, NULL), 7);
    once = 0;
    ERR(send_with(b, &to.any, 16, IPPROTO_IP, IP_TTL, &once, sizeof once), EINVAL);
    once = 0x20;
    CHECK_EQ(OK(send_with(b, &to.any, 16, IPPROTO_IP, IP_TOS, &once, sizeof once)), 1);
    CHECK_EQ(OK(receive(a, 0)), 1);
    CHECK_EQ(*(unsigned char *)control_of(IPPROTO_IP, IP_TOS, NULL), 0x20);
    CHECK_EQ(*(int *)control_of(IPPROTO_IP, IP_TTL, NULL), 42);
}

TEST(times_of_arrival) {
    int a = udp_socket(AF_INET), b = udp_socket(AF_INET);
    OK(set_option(a, SOL_SOCKET, SO_TIMESTAMP, 1));
    CHECK_EQ(OPTION(a, SOL_SOCKET, SO_TIMESTAMP), 1);
    int64_t before = now_ns(CLOCK_REALTIME);
    send_to(b, "x", 1, port_of(a));
    CHECK_EQ(OK(receive(a, 0)), 1);
    int64_t after = now_ns(CLOCK_REALTIME);
    size_t size;
    struct timeval *t = control_of(SOL_SOCKET, SCM_TIMESTAMP, &size);
    CHECK(t && size == sizeof *t);
    int64_t at = (int64_t)t->tv_sec * 1000000000 + (int64_t)t->tv_usec * 1000;
    CHECK(at >= before - 10 * MS && at <= after + 10 * MS);
    OK(set_option(a, SOL_SOCKET, 35 /* SO_TIMESTAMPNS */, 1));
    CHECK_EQ(OPTION(a, SOL_SOCKET, SO_TIMESTAMP), 0); /* one or the other */
    before = now_ns(CLOCK_REALTIME);
    send_to(b, "x", 1, port_of(a));
    CHECK_EQ(OK(receive(a, 0)), 1);
    struct timespec *n = control_of(SOL_SOCKET, 35, &size);
    CHECK(n && size == sizeof *n);
    at = (int64_t)n->tv_sec * 1000000000 + n->tv_nsec;
    CHECK(at >= before - 10 * MS && at <= now_ns(CLOCK_REALTIME) + 10 * MS);
    /* SIOCGSTAMP tells of the last one that was received. */
    OK(set_option(a, SOL_SOCKET, 35, 0));
}

TEST(drops_are_counted) {
    int a = udp_socket(AF_INET), b = udp_socket(AF_INET);
    OK(set_option(a, SOL_SOCKET, SO_RCVBUF, 8192));
    OK(set_option(a, SOL_SOCKET, SO_RXQ_OVFL, 1));
    static char data[1000];
    for (int i = 0; i < 100; i++) {
        data[0] = (char)i;
        send_to(b, data, sizeof data, port_of(a)); /* a full receiver is no error of the sender */
    }
    int got = 0;
    while (receive(a, 0) == sizeof data)
        CHECK_EQ(body[0], got++); /* the first ones are kept */
    CHECK_EQ(errno, EAGAIN);
    CHECK(got > 2 && got < 90);
    send_to(b, data, sizeof data, port_of(a));
    CHECK_EQ(OK(receive(a, 0)), sizeof data);
    uint32_t *drops = control_of(SOL_SOCKET, SO_RXQ_OVFL, NULL);
    CHECK(drops != NULL);
    CHECK_EQ(*drops, 100 - got);
}

/* ---- one for many ---------------------------------------------------------------------------- */

TEST(broadcasts_must_be_asked_for) {
    int s = udp4();
    ERR(sendto(s, "x", 1, 0, AT4(0x7fffffff, 9)), EACCES); /* 127.255.255.255, of lo */
    ERR(connect(s, AT4(0x7fffffff, 9)), EACCES);
    OK(set_option(s, SOL_SOCKET, SO_BROADCAST, 1));
    CHECK_EQ(OPTION(s, SOL_SOCKET, SO_BROADCAST), 1);
    int a = udp4(), b = udp4();
    OK(set_option(a, SOL_SOCKET, SO_REUSEADDR, 1));
    OK(set_option(b, SOL_SOCKET, SO_REUSEADDR, 1));
    OK(bind(a, ANY4(0)));
    OK(bind(b, ANY4(port_of(a))));
    CHECK_EQ(OK(sendto(s, "all", 3, 0, AT4(0x7fffffff, port_of(a)))), 3);
    CHECK_EQ(OK(receive(a, 0)), 3); /* each gets it */
    CHECK_EQ(OK(receive(b, 0)), 3);
    ERR(receive(b, 0), EAGAIN);
}

TEST(a_socket_joins_a_limited_number_of_groups) {
    int s = udp4();
    struct ip_mreqn join = {{0}, {htonl(INADDR_LOOPBACK)}, 0};
    for (int i = 0; i < 20; i++) { /* igmp_max_memberships */
        join.imr_multiaddr.s_addr = htonl(0xefff0200u + i);
        OK(setsockopt(s, IPPROTO_IP, IP_ADD_MEMBERSHIP, &join, sizeof join));
    }
    ERR(setsockopt(s, IPPROTO_IP, IP_ADD_MEMBERSHIP, &join, sizeof join), EADDRINUSE);
    join.imr_multiaddr.s_addr = htonl(0xefff0200u + 20);
    ERR(setsockopt(s, IPPROTO_IP, IP_ADD_MEMBERSHIP, &join, sizeof join), ENOBUFS);
    OK(setsockopt(udp4(), IPPROTO_IP, IP_ADD_MEMBERSHIP, &join, sizeof join)); /* of each socket */
    struct ip_mreqn leave = {{htonl(0xefff0200u)}, {htonl(INADDR_LOOPBACK)}, 0};
    OK(setsockopt(s, IPPROTO_IP, IP_DROP_MEMBERSHIP, &leave, sizeof leave));
    OK(setsockopt(s, IPPROTO_IP, IP_ADD_MEMBERSHIP, &join, sizeof join));
}

/* A datagram gathered of bytes that each lie apart, because another socket's lie between them. */
TEST(a_datagram_of_thousands_of_pieces) {
    int a = udp4(), b = udp4(), other = udp4(), full = udp4();
    OK(bind(a, ANY4(0)));
    OK(bind(full, ANY4(0)));
    OK(connect(b, AT4(INADDR_LOOPBACK, port_of(a))));
    OK(connect(other, AT4(INADDR_LOOPBACK, port_of(full)))); /* read by nobody */
    enum { PIECES = 3000 };
    char byte, sent[PIECES], got[PIECES + 1];
    for (int i = 0; i < PIECES; i++) {
        byte = sent[i] = (char)(i * 7);
        CHECK_EQ(OK(send(b, &byte, 1, i + 1 < PIECES ? MSG_MORE : 0)), 1);
        OK(send(other, "x", 1, 0));
    }
    CHECK_EQ(OK(recv(a, got, sizeof got, MSG_PEEK)), PIECES);
    CHECK(memcmp(sent, got, PIECES) == 0);
    memset(got, 0, sizeof got);
    CHECK_EQ(OK(recv(a, got, sizeof got, 0)), PIECES);
    CHECK(memcmp(sent, got, PIECES) == 0);
}

#define GROUP 0xefff0102u /* 239.255.1.2, of the site: RFC 2365 */
TEST(groups_on_loopback) {
    struct ip_mreqn join = {{htonl(GROUP)}, {htonl(INADDR_LOOPBACK)}, 0};
    int a = udp4(), b = udp4(), s = udp_socket(AF_INET);
    OK(set_option(a, SOL_SOCKET, SO_REUSEADDR, 1));
    OK(set_option(b, SOL_SOCKET, SO_REUSEADDR, 1));
    OK(bind(a, ANY4(0)));
    int port = port_of(a);
    OK(bind(b, AT4(GROUP, port)));
    ERR(setsockopt(a, IPPROTO_IP, IP_ADD_MEMBERSHIP, &join, 4), EINVAL);
    struct ip_mreqn bad = {{htonl(INADDR_LOOPBACK)}, {htonl(INADDR_LOOPBACK)}, 0};
    ERR(setsockopt(a, IPPROTO_IP, IP_ADD_MEMBERSHIP, &bad, sizeof bad), EINVAL);
    bad = (struct ip_mreqn){{htonl(GROUP)}, {htonl(STRANGER)}, 0};
    ERR(setsockopt(a, IPPROTO_IP, IP_ADD_MEMBERSHIP, &bad, sizeof bad), ENODEV);
    ERR(setsockopt(a, IPPROTO_IP, IP_DROP_MEMBERSHIP, &join, sizeof join), EADDRNOTAVAIL);
    OK(setsockopt(a, IPPROTO_IP, IP_ADD_MEMBERSHIP, &join, sizeof join));
    ERR(setsockopt(a, IPPROTO_IP, IP_ADD_MEMBERSHIP, &join, sizeof join), EADDRINUSE);
    OK(setsockopt(b, IPPROTO_IP, IP_ADD_MEMBERSHIP, &join, 8)); /* the short form */
    CHECK_EQ(OPTION(s, IPPROTO_IP, IP_MULTICAST_TTL), 1);
    CHECK_EQ(OPTION(s, IPPROTO_IP, IP_MULTICAST_LOOP), 1);
    struct in_addr interface = {htonl(INADDR_LOOPBACK)};
    OK(setsockopt(s, IPPROTO_IP, IP_MULTICAST_IF, &interface, sizeof interface));
    interface.s_addr = 0;
    socklen_t length = sizeof interface;
    OK(getsockopt(s, IPPROTO_IP, IP_MULTICAST_IF, &interface, &length));
    CHECK_EQ(ntohl(interface.s_addr), INADDR_LOOPBACK);
    interface.s_addr = htonl(STRANGER);
    ERR(setsockopt(s, IPPROTO_IP, IP_MULTICAST_IF, &interface, sizeof interface), EADDRNOTAVAIL);
    OK(set_option(s, IPPROTO_IP, IP_MULTICAST_TTL, 3));
    CHECK_EQ(OPTION(s, IPPROTO_IP, IP_MULTICAST_TTL), 3);
    ERR(set_option(s, IPPROTO_IP, IP_MULTICAST_TTL, 256), EINVAL);
    OK(set_option(a, IPPROTO_IP, IP_RECVTTL, 1));
    CHECK_EQ(OK(sendto(s, "group", 5, 0, AT4(GROUP, port))), 5);
    CHECK_EQ(OK(receive(a, 0)), 5);
    CHECK_EQ(*(int *)control_of(IPPROTO_IP, IP_TTL, NULL), 3);
    CHECK_EQ(OK(receive(b, 0)), 5);
    /* One that is left is not heard, and one that nobody joined reaches nobody. */
    OK(setsockopt(a, IPPROTO_IP, IP_DROP_MEMBERSHIP, &join, sizeof join));
    OK(set_option(a, IPPROTO_IP, 49 /* IP_MULTICAST_ALL */, 0));
    CHECK_EQ(OK(sendto(s, "b", 1, 0, AT4(GROUP, port))), 1);
    ERR(receive(a, 0), EAGAIN);
    CHECK_EQ(OK(receive(b, 0)), 1);
}

TEST(groups_of_six_on_loopback) {
    NEEDS_IPV6();
    struct in6_addr group = {{{0xff, 1, [14] = 0x12, [15] = 0x34}}}; /* of the interface */
    int lo = (int)if_nametoindex("lo"), a = udp6(), s = udp_socket(AF_INET6);
    struct ipv6_mreq join = {group, (unsigned)lo};
    OK(bind(a, ANY6(0)));
    ERR(setsockopt(a, IPPROTO_IPV6, IPV6_JOIN_GROUP, &join, 8), EINVAL);
    struct ipv6_mreq bad = {group, 100000};
    ERR(setsockopt(a, IPPROTO_IPV6, IPV6_JOIN_GROUP, &bad, sizeof bad), ENODEV);
    bad = (struct ipv6_mreq){IN6ADDR_LOOPBACK_INIT, (unsigned)lo};
    ERR(setsockopt(a, IPPROTO_IPV6, IPV6_JOIN_GROUP, &bad, sizeof bad), EINVAL);
    OK(setsockopt(a, IPPROTO_IPV6, IPV6_JOIN_GROUP, &join, sizeof join));
    ERR(setsockopt(a, IPPROTO_IPV6, IPV6_JOIN_GROUP, &join, sizeof join), EADDRINUSE);
    OK(set_option(s, IPPROTO_IPV6, IPV6_MULTICAST_IF, lo));
    CHECK_EQ(OPTION(s, IPPROTO_IPV6, IPV6_MULTICAST_IF), lo);
    ERR(set_option(s, IPPROTO_IPV6, IPV6_MULTICAST_IF, 100000), ENODEV);
    CHECK_EQ(OPTION(s, IPPROTO_IPV6, IPV6_MULTICAST_HOPS), 1);
    CHECK_EQ(OPTION(s, IPPROTO_IPV6, IPV6_MULTICAST_LOOP), 1);
    /* lo is in groups but has no route to them: init_loopback in net/ipv6/addrconf.c makes none. */
    ERR(sendto(s, "six", 3, 0, AT6(group, port_of(a))), ENETUNREACH);
    OK(setsockopt(a, IPPROTO_IPV6, IPV6_LEAVE_GROUP, &join, sizeof join));
    ERR(setsockopt(a, IPPROTO_IPV6, IPV6_LEAVE_GROUP, &join, sizeof join), EADDRNOTAVAIL);
}

/* ---- datagrams made of pieces, and cut into some --------------------------------------------- */

TEST(a_cork_makes_one_datagram) {
    int a = udp_socket(AF_INET), b = udp_socket(AF_INET);
    OK(connect(b, LO4(port_of(a))));
    CHECK_EQ(OK(send(b, "ab", 2, MSG_MORE)), 2);
    CHECK_EQ(OK(send(b, "cd", 2, MSG_MORE)), 2);
    ERR(receive(a, 0), EAGAIN);
    CHECK_EQ(OK(send(b, "e", 1, 0)), 1);
    CHECK_EQ(OK(receive(a, 0)), 5);
    CHECK(memcmp(body, "abcde", 5) == 0);
    OK(set_option(b, SOL_UDP, UDP_CORK, 1));
    CHECK_EQ(OPTION(b, SOL_UDP, UDP_CORK), 1);
    CHECK_EQ(OK(write(b, "12", 2)), 2);
    CHECK_EQ(OK(write(b, "34", 2)), 2);
    ERR(receive(a, 0), EAGAIN);
    OK(set_option(b, SOL_UDP, UDP_CORK, 0));
    CHECK_EQ(OK(receive(a, 0)), 4);
    CHECK(memcmp(body, "1234", 4) == 0);
    ERR(set_option(b, SOL_UDP, 9999, 1), ENOPROTOOPT);
}

TEST(a_large_send_is_cut_into_datagrams) {
    int a = udp_socket(AF_INET), b = udp_socket(AF_INET);
    if (set_option(b, SOL_UDP, UDP_SEGMENT, 100) == -1) {
        CHECK_EQ(errno, ENOPROTOOPT);
        SKIP("no UDP_SEGMENT");
    }
    CHECK_EQ(OPTION(b, SOL_UDP, UDP_SEGMENT), 100);
    ERR(set_option(b, SOL_UDP, UDP_SEGMENT, 65536), EINVAL);
    for (int i = 0; i < 250; i++)
        body[i] = (char)i;
    send_to(b, body, 250, port_of(a));
    memset(body, 0, 250);
    static const int sizes[] = {100, 100, 50};
    for (int i = 0; i < 3; i++) {
        CHECK_EQ(OK(receive(a, 0)), sizes[i]);
        CHECK_EQ((unsigned char)body[0], i * 100);
    }
    ERR(receive(a, 0), EAGAIN);
    /* A reader that asks for it gets them as one, with the size of each. */
    OK(set_option(a, SOL_UDP, UDP_GRO, 1));
    CHECK_EQ(OPTION(a, SOL_UDP, UDP_GRO), 1);
    send_to(b, body, 250, port_of(a));
    CHECK_EQ(OK(receive(a, 0)), 250);
    int *each = control_of(SOL_UDP, UDP_GRO, NULL);
    CHECK(each && *each == 100);
}

/* ---- SO_PEEK_OFF: udp_recvmsg, __skb_try_recv_from_queue ---------------------------------------- */

#ifndef SO_PEEK_OFF
#define SO_PEEK_OFF 42
#endif

static int peek_offset(int s) { return OPTION(s, SOL_SOCKET, SO_PEEK_OFF); }

TEST(peek_goes_on_at_an_offset) {
    int a = udp_socket(AF_INET), b = udp4();
    char got[16];
    CHECK_EQ(peek_offset(a), -1);
    send_to(b, "abcdef", 6, port_of(a));
    send_to(b, "ghi", 3, port_of(a));
    OK(set_option(a, SOL_SOCKET, SO_PEEK_OFF, 2));
    CHECK_EQ(OK(recv(a, got, sizeof got, MSG_PEEK)), 4);
    CHECK(!memcmp(got, "cdef", 4));
    CHECK_EQ(peek_offset(a), 6);
    CHECK_EQ(OK(recv(a, got, sizeof got, MSG_PEEK)), 3); /* of the next one */
    CHECK(!memcmp(got, "ghi", 3));
    CHECK_EQ(peek_offset(a), 9);
    ERR(recv(a, got, sizeof got, MSG_PEEK | MSG_DONTWAIT), EAGAIN);
    /* What is taken moves it back. */
    CHECK_EQ(OK(recv(a, got, sizeof got, 0)), 6);
    CHECK_EQ(peek_offset(a), 3);
    ERR(recv(a, got, sizeof got, MSG_PEEK | MSG_DONTWAIT), EAGAIN);
    CHECK_EQ(OK(recv(a, got, sizeof got, 0)), 3);
    CHECK_EQ(peek_offset(a), 0);
    send_to(b, "jkl", 3, port_of(a));
    CHECK_EQ(OK(recv(a, got, 1, MSG_PEEK)), 1);
    CHECK_EQ(peek_offset(a), 1);
    CHECK_EQ(OK(recv(a, got, sizeof got, MSG_PEEK)), 2);
    CHECK(!memcmp(got, "kl", 2));
    /* Off, it stays off. */
    OK(set_option(a, SOL_SOCKET, SO_PEEK_OFF, -1));
    CHECK_EQ(OK(recv(a, got, sizeof got, MSG_PEEK)), 3);
    CHECK_EQ(peek_offset(a), -1);
    OK(set_option(a, SOL_SOCKET, SO_PEEK_OFF, -7));
    CHECK_EQ(peek_offset(a), -7);
    CHECK_EQ(OK(recv(a, got, sizeof got, 0)), 3);
    CHECK_EQ(peek_offset(a), -7);
}

TEST(peek_at_an_offset_reports_what_is_cut) {
    int a = udp_socket(AF_INET), b = udp4();
    char got[16];
    struct iovec v = {got, 2};
    struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1};
    OK(set_option(a, SOL_SOCKET, SO_PEEK_OFF, 2));
    send_to(b, "abcdef", 6, port_of(a));
    CHECK_EQ(OK(recvmsg(a, &m, MSG_PEEK)), 2);
    CHECK_EQ(m.msg_flags & MSG_TRUNC, MSG_TRUNC);
    CHECK(!memcmp(got, "cd", 2));
    CHECK_EQ(peek_offset(a), 4);
    /* With MSG_TRUNC it goes on by the length of all. */
    CHECK_EQ(OK(recv(a, got, 1, MSG_PEEK | MSG_TRUNC)), 6);
    CHECK_EQ(peek_offset(a), 10);
}

TEST(peek_sees_an_empty_datagram_once) {
    int a = udp_socket(AF_INET), b = udp4();
    char got[16];
    OK(set_option(a, SOL_SOCKET, SO_PEEK_OFF, 0));
    send_to(b, "", 0, port_of(a));
    send_to(b, "", 0, port_of(a));
    send_to(b, "abc", 3, port_of(a));
    CHECK_EQ(OK(recv(a, got, sizeof got, MSG_PEEK)), 0);
    CHECK_EQ(OK(recv(a, got, sizeof got, MSG_PEEK)), 0);
    CHECK_EQ(OK(recv(a, got, sizeof got, MSG_PEEK)), 3);
    CHECK_EQ(peek_offset(a), 3);
    CHECK_EQ(OK(recv(a, got, sizeof got, 0)), 0);
    CHECK_EQ(peek_offset(a), 3);
}

TEST(peek_offset_is_of_some_sockets) {
    NEEDS_ROOT();
    int raw = OK(socket(AF_INET, SOCK_RAW, IPPROTO_ICMP));
    ERR(set_option(raw, SOL_SOCKET, SO_PEEK_OFF, 1), EOPNOTSUPP);
    int netlink = OK(socket(AF_NETLINK, SOCK_RAW, 0)), value;
    socklen_t length = sizeof value;
    ERR(set_option(netlink, SOL_SOCKET, SO_PEEK_OFF, 1), EOPNOTSUPP);
    ERR(getsockopt(netlink, SOL_SOCKET, SO_PEEK_OFF, &value, &length), EOPNOTSUPP);
    int six = socket(AF_INET6, SOCK_DGRAM, 0);
    if (six >= 0)
        OK(set_option(six, SOL_SOCKET, SO_PEEK_OFF, 1));
}

/* ---- what routers are told of groups (RFC 3376, RFC 3810) --------------------------------------- */

/* Whether a report about the group leaves within three seconds: with this type of record, or with
 * this type of message in the older dialect of a router that was heard. */
static bool is_told(int watch, const void *group, size_t size, int record, int older) {
    for (int i = 0; i < 300; i++) {
        unsigned char p[256];
        struct pollfd f = {watch, POLLIN, 0};
        if (poll(&f, 1, 10) != 1)
            continue;
        ssize_t n = recv(watch, p, sizeof p, MSG_DONTWAIT);
        bool six = size == 16;
        size_t head = six ? 48 : 24, newer = six ? 143 : 0x22;
        if (n < (ssize_t)(head + 8) || p[six ? 6 : 9] != (six ? 0 : 2))
            continue;
        /* Router Alert, one hop. */
        if (six ? p[40] != 58 || p[42] != 5 || p[7] != 1 : p[0] != 0x46 || p[20] != 0x94 || p[8] != 1)
            continue;
        if (p[head] == newer)
            for (size_t at = head + 8; at + 4 + size <= (size_t)n; at += 4 + size)
                if (p[at] == record && memcmp(p + at + 4, group, size) == 0)
                    return true;
        if (p[head] == older && memcmp(p + n - size, group, size) == 0)
            return true;
    }
    return false;
}

TEST(routers_are_told_of_groups) {
    NEEDS_ROOT();
    int index = ethernet();
    if (!index)
        SKIP("no Ethernet");
    int watch = watcher(index), a = udp4(), b = udp4();
    struct ip_mreqn m = {{htonl(0xefc0a701)}, {0}, index}; /* 239.192.167.1 */
    OK(setsockopt(a, IPPROTO_IP, IP_ADD_MEMBERSHIP, &m, sizeof m));
    CHECK(is_told(watch, &m.imr_multiaddr, 4, 4, 0x16));
    CHECK(is_told(watch, &m.imr_multiaddr, 4, 4, 0x16)); /* again: one may be lost */
    OK(setsockopt(b, IPPROTO_IP, IP_ADD_MEMBERSHIP, &m, sizeof m));
    OK(setsockopt(a, IPPROTO_IP, IP_DROP_MEMBERSHIP, &m, sizeof m));
    OK(close(b)); /* the last member */
    CHECK(is_told(watch, &m.imr_multiaddr, 4, 3, 0x17));
}

TEST(routers_are_told_of_groups_of_ipv6) {
    NEEDS_ROOT();
    NEEDS_IPV6();
    int index = ethernet();
    if (!index)
        SKIP("no Ethernet");
    int watch = watcher(index), a = udp6();
    struct ipv6_mreq m = {{{{0xff, 5, [14] = 0xa7, [15] = 1}}}, (unsigned)index};
    if (setsockopt(a, IPPROTO_IPV6, IPV6_JOIN_GROUP, &m, sizeof m) == -1)
        SKIP("no IPv6 on the Ethernet");
    CHECK(is_told(watch, &m.ipv6mr_multiaddr, 16, 4, 131));
    OK(setsockopt(a, IPPROTO_IPV6, IPV6_LEAVE_GROUP, &m, sizeof m));
    CHECK(is_told(watch, &m.ipv6mr_multiaddr, 16, 3, 132));
}

/* The machine hears its own query too (IP_MULTICAST_LOOP). */
TEST(a_query_of_a_router_is_answered) {
    NEEDS_ROOT();
    int index = ethernet();
    if (!index)
        SKIP("no Ethernet");
    int watch = watcher(index), a = udp4();
    int r = OK(socket(AF_INET, SOCK_RAW, 2 /* IPPROTO_IGMP */));
    struct ip_mreqn m = {{htonl(0xefc0a702)}, {0}, index};
    OK(setsockopt(a, IPPROTO_IP, IP_ADD_MEMBERSHIP, &m, sizeof m));
    CHECK(is_told(watch, &m.imr_multiaddr, 4, 4, 0x16));
    struct ip_mreqn out = {{0}, {0}, index};
    OK(setsockopt(r, IPPROTO_IP, IP_MULTICAST_IF, &out, sizeof out));
    /* A general query of IGMPv3 that wants answers within a second; its checksum. */
    unsigned char query[12] = {0x11, 10, 0, 0, 0, 0, 0, 0, 2, 125};
    unsigned sum = 0x110a + 0x027d;
    query[2] = (unsigned char)(~sum >> 8), query[3] = (unsigned char)~sum;
    CHECK_EQ(OK(sendto(r, query, sizeof query, 0, AT4(0xe0000001, 0))), (ssize_t)sizeof query);
    CHECK(is_told(watch, &m.imr_multiaddr, 4, 2, 0x16));
}
