/* socket(2), bind(2), names and options of the families AF_INET and AF_INET6: ip(7), ipv6(7). */
#define AREA "inet"
#include "net.h"
#include <net/route.h>

#define IPPROTO_TOO_LARGE 1000

static int tcp4(void) { return OK(socket(AF_INET, SOCK_STREAM, 0)); }
static int tcp6(void) { return OK(socket(AF_INET6, SOCK_STREAM, 0)); }
static int udp4(void) { return OK(socket(AF_INET, SOCK_DGRAM, 0)); }
static int udp6(void) { return OK(socket(AF_INET6, SOCK_DGRAM, 0)); }
static int reuse(int s, int name) {
    OK(set_option(s, SOL_SOCKET, name, 1));
    return s;
}
static int v6only(int s, int on) {
    OK(set_option(s, IPPROTO_IPV6, IPV6_V6ONLY, on));
    return s;
}

static bool is_mapped_loopback(union address a) {
    return a.any.sa_family == AF_INET6 && memcmp(&a.six.sin6_addr, &MAPPED, 16) == 0;
}

/* ---- socket ---------------------------------------------------------------------------------- */

TEST(families_types_and_protocols) {
    static const struct {
        int family, type, protocol, becomes;
    } good[] = {
        {AF_INET, SOCK_STREAM, 0, IPPROTO_TCP},
        {AF_INET, SOCK_STREAM, IPPROTO_TCP, IPPROTO_TCP},
        {AF_INET, SOCK_DGRAM, 0, IPPROTO_UDP},
        {AF_INET, SOCK_DGRAM, IPPROTO_UDP, IPPROTO_UDP},
        {AF_INET6, SOCK_STREAM, 0, IPPROTO_TCP},
        {AF_INET6, SOCK_STREAM, IPPROTO_TCP, IPPROTO_TCP},
        {AF_INET6, SOCK_DGRAM, 0, IPPROTO_UDP},
        {AF_INET6, SOCK_DGRAM, IPPROTO_UDP, IPPROTO_UDP},
    };
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        if (good[i].family == AF_INET6 && access("/proc/net/if_inet6", F_OK) == -1)
            continue;
        int s = OK(socket(good[i].family, good[i].type, good[i].protocol));
        CHECK_EQ(OPTION(s, SOL_SOCKET, SO_DOMAIN), good[i].family);
        CHECK_EQ(OPTION(s, SOL_SOCKET, SO_TYPE), good[i].type);
        CHECK_EQ(OPTION(s, SOL_SOCKET, SO_PROTOCOL), good[i].becomes);
        CHECK_EQ(OPTION(s, SOL_SOCKET, SO_ACCEPTCONN), 0);
        CHECK_EQ(OPTION(s, SOL_SOCKET, SO_ERROR), 0);
        OK(close(s));
    }
}

TEST(what_there_is_no_socket_for) {
    ERR(socket(AF_UNSPEC, SOCK_STREAM, 0), EAFNOSUPPORT);
    ERR(socket(-1, SOCK_STREAM, 0), EAFNOSUPPORT);
    ERR(socket(250, SOCK_STREAM, 0), EAFNOSUPPORT);
    ERR(socket(AF_INET, 11, 0), EINVAL);
    ERR(socket(AF_INET, SOCK_STREAM | 0x100, 0), EINVAL);
    ERR(socket(AF_INET, -1, 0), EINVAL);
    for (int six = 0; six < 2; six++) {
        int family = six ? AF_INET6 : AF_INET;
        if (six && access("/proc/net/if_inet6", F_OK) == -1)
            break;
        ERR(socket(family, 0, 0), ESOCKTNOSUPPORT);
        ERR(socket(family, SOCK_RDM, 0), ESOCKTNOSUPPORT);
        ERR(socket(family, SOCK_STREAM, IPPROTO_UDP), EPROTONOSUPPORT);
        ERR(socket(family, SOCK_DGRAM, IPPROTO_TCP), EPROTONOSUPPORT);
        ERR(socket(family, SOCK_STREAM, 200), EPROTONOSUPPORT);
        /* EINVAL from IPPROTO_MAX on (inet_create in net/ipv4/af_inet.c). */
        ERR(socket(family, SOCK_STREAM, IPPROTO_TOO_LARGE), EINVAL);
        ERR(socket(family, SOCK_DGRAM, -1), EINVAL);
        /* A raw socket is of one protocol; that is looked at before rights are. */
        ERR(socket(family, SOCK_RAW, 0), EPROTONOSUPPORT);
        int pair[2];
        ERR(socketpair(family, SOCK_STREAM, 0, pair), EOPNOTSUPP);
        ERR(socketpair(family, SOCK_DGRAM, 0, pair), EOPNOTSUPP);
    }
}

TEST(raw_sockets_need_a_capability) {
    NEEDS_ROOT();
    BECOME(NOBODY, NOBODY);
    ERR(socket(AF_INET, SOCK_RAW, IPPROTO_ICMP), EPERM);
    ERR(socket(AF_INET, SOCK_RAW, IPPROTO_RAW), EPERM);
    ERR(socket(AF_INET, SOCK_RAW, 0), EPROTONOSUPPORT);
    ERR(socket(AF_PACKET, SOCK_RAW, 0), EPERM);
    ERR(socket(AF_PACKET, SOCK_DGRAM, htons(0x0800)), EPERM);
    ERR(socket(AF_INET, SOCK_PACKET, 0), EPERM);
    if (access("/proc/net/if_inet6", F_OK) == 0)
        ERR(socket(AF_INET6, SOCK_RAW, IPPROTO_ICMPV6), EPERM);
    OK(socket(AF_INET, SOCK_STREAM, 0));
}

TEST(flags_of_a_socket) {
    int s = OK(socket(AF_INET, SOCK_STREAM, 0));
    CHECK_EQ(OK(fcntl(s, F_GETFL)), O_RDWR);
    CHECK_EQ(OK(fcntl(s, F_GETFD)), 0);
    int t = OK(socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    CHECK_EQ(OK(fcntl(t, F_GETFL)), O_RDWR | O_NONBLOCK);
    CHECK_EQ(OK(fcntl(t, F_GETFD)), FD_CLOEXEC);
    char c;
    ERR(read(t, &c, 1), EAGAIN);
    int off = 0;
    OK(ioctl(s, FIONBIO, &(int){1}));
    CHECK_EQ(OK(fcntl(s, F_GETFL)), O_RDWR | O_NONBLOCK);
    OK(ioctl(s, FIONBIO, &off));
    CHECK_EQ(OK(fcntl(s, F_GETFL)), O_RDWR);
}

TEST(a_socket_is_a_file_without_a_place) {
    int s = tcp4();
    struct stat st;
    OK(fstat(s, &st));
    CHECK(S_ISSOCK(st.st_mode));
    CHECK_EQ(st.st_mode & 0777, 0777);
    CHECK_EQ(st.st_size, 0);
    char path[64], link[64] = "", want[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", s);
    snprintf(want, sizeof want, "socket:[%llu]", (unsigned long long)st.st_ino);
    OK(readlink(path, link, sizeof link - 1));
    CHECK_STR(link, want);
    ERR(open(path, O_RDWR), ENXIO);
    char c = 0;
    ERR(lseek(s, 0, SEEK_SET), ESPIPE);
    ERR(pread(s, &c, 1, 0), ESPIPE);
    ERR(pwrite(s, &c, 1, 0), ESPIPE);
    ERR(ftruncate(s, 0), EINVAL);
    ERR(fsync(s), EINVAL);
    ERR(fallocate(s, 0, 0, 1), ENODEV);
    CHECK(mmap(NULL, PAGE, PROT_READ, MAP_SHARED, udp4(), 0) == MAP_FAILED && errno == ENODEV);
    ERR(ioctl(s, 0x1234, &c), ENOTTY);
    ERR(ioctl(s, TCGETS, &(char[256]){0}), ENOTTY);
}

TEST(calls_want_a_socket) {
    int file = OK(open(".", O_RDONLY)), closed = OK(dup(file));
    OK(close(closed));
    int value;
    socklen_t length = sizeof value;
    union address a;
    socklen_t room = sizeof a;
    char c = 0;
    for (int i = 0; i < 2; i++) {
        int fd = i ? closed : file, error = i ? EBADF : ENOTSOCK;
        ERR(bind(fd, LO4(0)), error);
        ERR(connect(fd, LO4(1)), error);
        ERR(listen(fd, 1), error);
        ERR(accept(fd, NULL, NULL), error);
        ERR(accept4(fd, NULL, NULL, 0), error);
        ERR(getsockname(fd, &a.any, &room), error);
        ERR(getpeername(fd, &a.any, &room), error);
        ERR(getsockopt(fd, SOL_SOCKET, SO_TYPE, &value, &length), error);
        ERR(set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1), error);
        ERR(shutdown(fd, SHUT_RD), error);
        ERR(send(fd, &c, 1, 0), error);
        ERR(recv(fd, &c, 1, 0), error);
        ERR(sendmsg(fd, &(struct msghdr){0}, 0), error);
        ERR(recvmsg(fd, &(struct msghdr){0}, 0), error);
    }
}

/* ---- bind ------------------------------------------------------------------------------------ */

TEST(bind_errors) {
    int s = tcp4();
    ERR(bind(s, BAD, sizeof(struct sockaddr_in)), EFAULT);
    ERR(bind(s, (struct sockaddr *)&(struct sockaddr_in){AF_INET}, 0), EINVAL);
    ERR(bind(s, (struct sockaddr *)&(struct sockaddr_in){AF_INET}, 15), EINVAL);
    ERR(bind(s, (struct sockaddr *)&(struct sockaddr_in){AF_INET}, (socklen_t)-1), EINVAL);
    char large[200] = {AF_INET};
    ERR(bind(s, (struct sockaddr *)large, 129), EINVAL);
    ERR(bind(s, ANY6(0)), EAFNOSUPPORT);
    struct sockaddr_in unspecific = {.sin_family = AF_UNSPEC,
                                     .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    ERR(bind(s, (struct sockaddr *)&unspecific, sizeof unspecific), EAFNOSUPPORT);
    ERR(bind(s, AT4(STRANGER, 0)), EADDRNOTAVAIL);
    CHECK_EQ(port_of(s), 0);
    OK(bind(s, (struct sockaddr *)large, 128)); /* longer than need be */
    ERR(bind(s, LO4(0)), EINVAL);
    int t = tcp4();
    ERR(bind(t, LO4(port_of(s))), EADDRINUSE);
    OK(bind(t, LO4(0)));
    /* AF_UNSPEC means AF_INET with the address 0.0.0.0: __inet_bind in net/ipv4/af_inet.c. */
    int u = tcp4();
    unspecific.sin_addr.s_addr = 0;
    OK(bind(u, (struct sockaddr *)&unspecific, sizeof unspecific));
    CHECK(port_of(u) != 0);
}

TEST(bind_errors_of_six) {
    NEEDS_IPV6();
    int s = tcp6();
    struct sockaddr_in6 any = {.sin6_family = AF_INET6};
    ERR(bind(s, (struct sockaddr *)&any, 16), EINVAL);
    ERR(bind(s, (struct sockaddr *)&any, 23), EINVAL);
    ERR(bind(s, ANY4(0)), EINVAL); /* it is short */
    struct sockaddr_in6 other = {.sin6_family = AF_INET};
    ERR(bind(s, (struct sockaddr *)&other, sizeof other), EAFNOSUPPORT);
    struct in6_addr stranger = {{{0x20, 1, 0xd, 0xb8, [15] = 1}}}; /* RFC 3849 */
    ERR(bind(s, AT6(stranger, 0)), EADDRNOTAVAIL);
    /* An address of the link is one of an interface. */
    struct in6_addr link = {{{0xfe, 0x80, [15] = 77}}};
    ERR(bind(s, AT6(link, 0)), EINVAL);
    struct sockaddr_in6 scoped = {.sin6_family = AF_INET6, .sin6_addr = link};
    scoped.sin6_scope_id = 100000;
    ERR(bind(s, (struct sockaddr *)&scoped, sizeof scoped), ENODEV);
    scoped.sin6_scope_id = 1;
    ERR(bind(s, (struct sockaddr *)&scoped, sizeof scoped), EADDRNOTAVAIL);
    /* TCP takes no group of receivers. */
    struct in6_addr group = {{{0xff, 1, [15] = 1}}};
    ERR(bind(s, AT6(group, 0)), EINVAL);
    OK(bind(s, (struct sockaddr *)&any, 24)); /* as in RFC 2133, without a scope */
    CHECK(port_of(s) != 0);
    ERR(bind(s, ANY6(0)), EINVAL);
}

TEST(low_ports_are_for_the_privileged) {
    NEEDS_ROOT();
    long first = sysctl_number("/proc/sys/net/ipv4/ip_unprivileged_port_start");
    if (first != 1024)
        SKIP("low ports end at %ld", first);
    BECOME(NOBODY, NOBODY);
    ERR(bind(tcp4(), LO4(1023)), EACCES);
    ERR(bind(udp4(), LO4(1023)), EACCES);
    ERR(bind(tcp4(), LO4(1)), EACCES);
    ERR(bind(tcp4(), ANY4(80)), EACCES);
    /* The address is looked at first. */
    ERR(bind(tcp4(), AT4(STRANGER, 80)), EADDRNOTAVAIL);
    if (access("/proc/net/if_inet6", F_OK) == 0) {
        ERR(bind(tcp6(), ANY6(1023)), EACCES);
        ERR(bind(udp6(), ANY6(1023)), EACCES);
    }
    int s = tcp4();
    if (bind(s, LO4(1024)) == -1)
        CHECK_EQ(errno, EADDRINUSE);
}

TEST(port_zero_takes_a_free_port) {
    char text[64];
    int low, high;
    CHECK(get_file("/proc/sys/net/ipv4/ip_local_port_range", text, sizeof text) > 0);
    CHECK_EQ(sscanf(text, "%d %d", &low, &high), 2);
    enum { N = 50 };
    int ports[N];
    for (int i = 0; i < N; i++) {
        int s = i % 2 ? tcp4() : udp4();
        OK(bind(s, LO4(0)));
        ports[i] = port_of(s);
        CHECK_EQ(host_in(name_of(s)), INADDR_LOOPBACK);
        CHECK(ports[i] >= low && ports[i] <= high);
        for (int k = i % 2; k < i; k += 2)
            CHECK(ports[k] != ports[i]);
    }
}

TEST(a_port_belongs_to_one_protocol) {
    int s = tcp4();
    OK(bind(s, LO4(0)));
    int u = udp4();
    if (bind(u, LO4(port_of(s))) == -1) {
        CHECK_EQ(errno, EADDRINUSE);
        SKIP("another program has the port");
    }
    ERR(bind(udp4(), LO4(port_of(s))), EADDRINUSE);
    ERR(bind(tcp4(), LO4(port_of(s))), EADDRINUSE);
}

TEST(an_implicit_bind_cannot_be_repeated) {
    int l = listener(AF_INET, 4), s = dial(AF_INET, port_of(l));
    CHECK(port_of(s) != 0);
    ERR(bind(s, LO4(0)), EINVAL);
    int u = udp4();
    OK(connect(u, LO4(port_of(l))));
    ERR(bind(u, LO4(0)), EINVAL);
    int v = udp4(), w = udp_socket(AF_INET);
    CHECK_EQ(OK(sendto(v, "x", 1, 0, LO4(port_of(w)))), 1);
    CHECK(port_of(v) != 0);
    CHECK_EQ(host_in(name_of(v)), INADDR_ANY);
    ERR(bind(v, LO4(0)), EINVAL);
    int m = tcp4();
    OK(listen(m, 1)); /* takes a port too */
    CHECK(port_of(m) != 0);
    ERR(bind(m, LO4(0)), EINVAL);
}

TEST(a_closed_port_is_free_again) {
    int s = tcp4();
    OK(bind(s, LO4(0)));
    int port = port_of(s), kept = OK(dup(s));
    OK(close(s));
    ERR(bind(tcp4(), LO4(port)), EADDRINUSE); /* the other descriptor keeps it */
    OK(close(kept));
    OK(bind(tcp4(), LO4(port)));
}

/* ---- names ----------------------------------------------------------------------------------- */

TEST(names_of_sockets) {
    int s = tcp4();
    union address a = name_of(s);
    CHECK_EQ(a.any.sa_family, AF_INET);
    CHECK_EQ(port_in(a), 0);
    CHECK_EQ(host_in(a), 0);
    socklen_t length = sizeof a;
    ERR(getpeername(s, &a.any, &length), ENOTCONN);
    int l = listener(AF_INET, 1);
    OK(connect(s, LO4(port_of(l))));
    int t = OK(accept(l, &a.any, &length));
    CHECK_EQ(length, 16);
    CHECK_EQ(port_in(a), port_of(s));
    CHECK_EQ(host_in(a), INADDR_LOOPBACK);
    for (size_t i = 0; i < sizeof a.four.sin_zero; i++)
        CHECK_EQ(a.four.sin_zero[i], 0);
    CHECK_EQ(port_in(peer_of(s)), port_of(l));
    CHECK_EQ(port_in(peer_of(t)), port_of(s));
    CHECK_EQ(port_of(t), port_of(l));
    /* A short buffer gets what it holds, and the whole length. */
    memset(&a, 0x77, sizeof a);
    length = 4;
    OK(getsockname(s, &a.any, &length));
    CHECK_EQ(length, 16);
    CHECK_EQ(port_in(a), port_of(s));
    CHECK_EQ(a.four.sin_addr.s_addr, 0x77777777);
    length = 0;
    OK(getpeername(s, &a.any, &length));
    CHECK_EQ(length, 16);
    length = (socklen_t)-1;
    ERR(getsockname(s, &a.any, &length), EINVAL);
    ERR(getpeername(s, &a.any, &length), EINVAL);
    length = sizeof a;
    ERR(getsockname(s, BAD, &length), EFAULT);
    ERR(getsockname(s, &a.any, BAD), EFAULT);
    ERR(getpeername(l, &a.any, &length), ENOTCONN);
}

TEST(names_of_six) {
    NEEDS_IPV6();
    int s = tcp6();
    union address a = name_of(s);
    CHECK_EQ(a.any.sa_family, AF_INET6);
    CHECK(IN6_IS_ADDR_UNSPECIFIED(&a.six.sin6_addr));
    int l = listener(AF_INET6, 1);
    OK(connect(s, LO6(port_of(l))));
    a = peer_of(s);
    CHECK(IN6_IS_ADDR_LOOPBACK(&a.six.sin6_addr));
    CHECK_EQ(a.six.sin6_scope_id, 0);
    CHECK_EQ(a.six.sin6_flowinfo, 0);
    a = name_of(s);
    CHECK(IN6_IS_ADDR_LOOPBACK(&a.six.sin6_addr));
    socklen_t length = sizeof a;
    memset(&a, 0x77, sizeof a);
    int t = OK(accept(l, &a.any, &length));
    CHECK_EQ(length, 28);
    CHECK_EQ(port_in(a), port_of(s));
    CHECK(IN6_IS_ADDR_LOOPBACK(&a.six.sin6_addr));
    CHECK_EQ(port_in(peer_of(t)), port_of(s));
}

/* ---- ports that are shared ------------------------------------------------------------------- */

TEST(reuseaddr_lets_bind_what_nobody_listens_on) {
    int a = reuse(tcp4(), SO_REUSEADDR);
    OK(bind(a, LO4(0)));
    int port = port_of(a);
    ERR(bind(tcp4(), LO4(port)), EADDRINUSE); /* both must say so */
    int b = reuse(tcp4(), SO_REUSEADDR);
    OK(bind(b, LO4(port)));
    OK(listen(a, 1));
    ERR(bind(reuse(tcp4(), SO_REUSEADDR), LO4(port)), EADDRINUSE);
    ERR(listen(b, 1), EADDRINUSE);
    OK(close(a));
    OK(listen(b, 1));
    OK(close(dial(AF_INET, port)));
    /* The first does not say so. */
    int c = tcp4();
    OK(bind(c, LO4(0)));
    ERR(bind(reuse(tcp4(), SO_REUSEADDR), LO4(port_of(c))), EADDRINUSE);
    /* It may say so later. */
    reuse(c, SO_REUSEADDR);
    OK(bind(reuse(tcp4(), SO_REUSEADDR), LO4(port_of(c))));
}

TEST(reuseaddr_of_udp) {
    int a = reuse(udp4(), SO_REUSEADDR);
    OK(bind(a, LO4(0)));
    ERR(bind(udp4(), LO4(port_of(a))), EADDRINUSE);
    OK(bind(reuse(udp4(), SO_REUSEADDR), LO4(port_of(a))));
    ERR(bind(reuse(udp4(), SO_REUSEPORT), LO4(port_of(a))), EADDRINUSE);
}

TEST(reuseport_lets_many_listen) {
    int s[4];
    for (int i = 0; i < 4; i++) {
        s[i] = reuse(tcp4(), SO_REUSEPORT);
        OK(bind(s[i], LO4(i ? port_of(s[0]) : 0)));
        OK(listen(s[i], 64));
        nonblocking(s[i]);
    }
    int port = port_of(s[0]);
    ERR(bind(tcp4(), LO4(port)), EADDRINUSE);
    ERR(bind(reuse(tcp4(), SO_REUSEADDR), LO4(port)), EADDRINUSE);
    int callers[40];
    for (int i = 0; i < 40; i++)
        callers[i] = dial(AF_INET, port);
    int got = 0, listeners = 0;
    for (int i = 0; i < 4; i++) {
        int before = got, c;
        while ((c = accept(s[i], NULL, NULL)) != -1)
            got++, close(c);
        CHECK_EQ(errno, EAGAIN);
        listeners += got > before;
    }
    CHECK_EQ(got, 40);
    CHECK(listeners > 1); /* by chance all are one's once in 4^39 times */
    for (int i = 0; i < 40; i++)
        close(callers[i]);
}

TEST(reuseport_of_udp_spreads_senders) {
    int s[4];
    for (int i = 0; i < 4; i++) {
        s[i] = reuse(udp4(), SO_REUSEPORT);
        OK(bind(s[i], LO4(i ? port_of(s[0]) : 0)));
        nonblocking(s[i]);
    }
    int receivers = 0, got = 0;
    for (char i = 0; i < 32; i++) {
        int c = udp_socket(AF_INET);
        OK(connect(c, LO4(port_of(s[0]))));
        for (int k = 0; k < 3; k++)
            CHECK_EQ(OK(send(c, &i, 1, 0)), 1);
    }
    int owner[32];
    memset(owner, -1, sizeof owner);
    for (int i = 0; i < 4; i++) {
        int before = got;
        char c;
        while (recv(s[i], &c, 1, 0) == 1) {
            got++;
            CHECK(owner[(int)c] == -1 || owner[(int)c] == i); /* a sender has one receiver */
            owner[(int)c] = i;
        }
        receivers += got > before;
    }
    CHECK_EQ(got, 96);
    CHECK(receivers > 1);
}

TEST(reuseport_is_for_one_user) {
    NEEDS_ROOT();
    int a = reuse(tcp4(), SO_REUSEPORT), u = reuse(udp4(), SO_REUSEPORT);
    OK(bind(a, LO4(0)));
    OK(bind(u, LO4(0)));
    BECOME(NOBODY, NOBODY);
    ERR(bind(reuse(tcp4(), SO_REUSEPORT), LO4(port_of(a))), EADDRINUSE);
    ERR(bind(reuse(udp4(), SO_REUSEPORT), LO4(port_of(u))), EADDRINUSE);
}

TEST(addresses_share_a_port_and_the_wildcard_does_not) {
    for (int type = SOCK_STREAM; type <= SOCK_DGRAM; type++) {
        int a = OK(socket(AF_INET, type, 0));
        OK(bind(a, LO4(0)));
        int port = port_of(a);
        ERR(bind(OK(socket(AF_INET, type, 0)), ANY4(port)), EADDRINUSE);
        int b = OK(socket(AF_INET, type, 0)), c = OK(socket(AF_INET, type, 0));
        OK(bind(b, AT4(INADDR_LOOPBACK + 1, port)));
        OK(bind(c, ANY4(0)));
        ERR(bind(OK(socket(AF_INET, type, 0)), LO4(port_of(c))), EADDRINUSE);
        ERR(bind(OK(socket(AF_INET, type, 0)), AT4(INADDR_LOOPBACK + 1, port_of(c))), EADDRINUSE);
    }
}

TEST(six_and_four_share_a_port_as_the_wildcard_says) {
    NEEDS_IPV6();
    for (int type = SOCK_STREAM; type <= SOCK_DGRAM; type++) {
        int a = OK(socket(AF_INET, type, 0));
        OK(bind(a, LO4(0)));
        int port = port_of(a);
        int dual = v6only(OK(socket(AF_INET6, type, 0)), 0);
        ERR(bind(dual, ANY6(port)), EADDRINUSE);
        ERR(bind(dual, AT6(MAPPED, port)), EADDRINUSE);
        OK(bind(dual, LO6(port)));
        OK(close(dual));
        int only = v6only(OK(socket(AF_INET6, type, 0)), 1);
        ERR(bind(only, AT6(MAPPED, port)), EINVAL);
        OK(bind(only, ANY6(port)));
        int wide = v6only(OK(socket(AF_INET6, type, 0)), 0);
        OK(bind(wide, ANY6(0)));
        ERR(bind(OK(socket(AF_INET, type, 0)), ANY4(port_of(wide))), EADDRINUSE);
        ERR(bind(OK(socket(AF_INET, type, 0)), LO4(port_of(wide))), EADDRINUSE);
        ERR(bind(v6only(OK(socket(AF_INET6, type, 0)), 1), LO6(port_of(wide))), EADDRINUSE);
        int mapped = v6only(OK(socket(AF_INET6, type, 0)), 0);
        OK(bind(mapped, AT6(MAPPED, 0)));
        ERR(bind(OK(socket(AF_INET, type, 0)), LO4(port_of(mapped))), EADDRINUSE);
        union address name = name_of(mapped);
        CHECK_EQ(name.any.sa_family, AF_INET6);
        CHECK(IN6_IS_ADDR_V4MAPPED(&name.six.sin6_addr));
    }
}

/* ---- who is reached -------------------------------------------------------------------------- */

TEST(a_wildcard_listener_learns_the_address) {
    int l = tcp4();
    OK(bind(l, ANY4(0)));
    OK(listen(l, 4));
    int port = port_of(l);
    static const uint32_t to[] = {INADDR_LOOPBACK, INADDR_LOOPBACK + 1, 0x7f123456, INADDR_ANY};
    for (int i = 0; i < 4; i++) {
        int c = tcp4();
        OK(connect(c, AT4(to[i], port)));
        int s = OK(accept(l, NULL, NULL));
        /* 0.0.0.0 means this host: its loopback address. */
        CHECK_EQ(host_in(name_of(s)), i == 3 ? INADDR_LOOPBACK : to[i]);
        CHECK_EQ(host_in(peer_of(c)), i == 3 ? INADDR_LOOPBACK : to[i]);
        /* The local route to 127.0.0.0/8 says which source: ip_route_output_key_hash_rcu. */
        CHECK_EQ(host_in(peer_of(s)), INADDR_LOOPBACK);
        CHECK_EQ(host_in(name_of(c)), INADDR_LOOPBACK);
        close(c), close(s);
    }
    CHECK_EQ(host_in(name_of(l)), INADDR_ANY);
}

TEST(the_bound_address_alone_is_reached) {
    int l = listener(AF_INET, 1);
    ERR(connect(tcp4(), AT4(INADDR_LOOPBACK + 1, port_of(l))), ECONNREFUSED);
    OK(connect(tcp4(), LO4(port_of(l))));
}

TEST(the_nearest_address_is_chosen) {
    int wide = reuse(tcp4(), SO_REUSEPORT), near = reuse(tcp4(), SO_REUSEPORT);
    OK(bind(wide, ANY4(0)));
    OK(bind(near, LO4(port_of(wide))));
    OK(listen(wide, 8));
    OK(listen(near, 8));
    nonblocking(wide), nonblocking(near);
    for (int i = 0; i < 4; i++)
        OK(connect(tcp4(), LO4(port_of(wide))));
    ERR(accept(wide, NULL, NULL), EAGAIN);
    for (int i = 0; i < 4; i++)
        OK(accept(near, NULL, NULL));
    OK(connect(tcp4(), AT4(INADDR_LOOPBACK + 1, port_of(wide))));
    OK(accept(wide, NULL, NULL));
    /* Of datagrams as of connections. */
    int u = reuse(udp4(), SO_REUSEADDR), v = reuse(udp4(), SO_REUSEADDR), c = udp4();
    OK(bind(u, LO4(0)));
    OK(bind(v, ANY4(port_of(u))));
    char got;
    CHECK_EQ(OK(sendto(c, "n", 1, 0, LO4(port_of(u)))), 1);
    CHECK_EQ(OK(sendto(c, "w", 1, 0, AT4(INADDR_LOOPBACK + 1, port_of(u)))), 1);
    CHECK_EQ(OK(recv(u, &got, 1, MSG_DONTWAIT)), 1);
    CHECK_EQ(got, 'n');
    CHECK_EQ(OK(recv(v, &got, 1, MSG_DONTWAIT)), 1);
    CHECK_EQ(got, 'w');
}

TEST(a_dual_listener_takes_both_families) {
    NEEDS_IPV6();
    int l = v6only(tcp6(), 0);
    OK(bind(l, ANY6(0)));
    OK(listen(l, 4));
    int port = port_of(l), four = dial(AF_INET, port);
    int s = OK(accept(l, NULL, NULL));
    CHECK_EQ(OPTION(s, SOL_SOCKET, SO_DOMAIN), AF_INET6);
    union address a = peer_of(s);
    CHECK_EQ(a.any.sa_family, AF_INET6);
    CHECK(IN6_IS_ADDR_V4MAPPED(&a.six.sin6_addr));
    CHECK(is_mapped_loopback(a));
    CHECK_EQ(port_in(a), port_of(four));
    CHECK(is_mapped_loopback(name_of(s)));
    int six = dial(AF_INET6, port), t = OK(accept(l, NULL, NULL));
    a = peer_of(t);
    CHECK(IN6_IS_ADDR_LOOPBACK(&a.six.sin6_addr));
    /* One that connects by a mapped address. */
    int m = tcp6();
    OK(connect(m, AT6(MAPPED, port)));
    int u = OK(accept(l, NULL, NULL));
    CHECK(is_mapped_loopback(name_of(m)));
    CHECK_EQ(OK(write(m, "hi", 2)), 2);
    char got[4];
    CHECK_EQ(OK(read(u, got, 4)), 2);
    close(four), close(six), close(s), close(t);
}

TEST(v6only_keeps_four_out) {
    NEEDS_IPV6();
    int l = tcp6();
    CHECK_EQ(OPTION(l, IPPROTO_IPV6, IPV6_V6ONLY), sysctl_number("/proc/sys/net/ipv6/bindv6only"));
    v6only(l, 1);
    CHECK_EQ(OPTION(l, IPPROTO_IPV6, IPV6_V6ONLY), 1);
    OK(bind(l, ANY6(0)));
    ERR(set_option(l, IPPROTO_IPV6, IPV6_V6ONLY, 0), EINVAL); /* too late */
    OK(listen(l, 4));
    int holder = tcp4(); /* keeps the port from others, without listening */
    if (bind(holder, LO4(port_of(l))) == 0)
        ERR(connect(tcp4(), LO4(port_of(l))), ECONNREFUSED);
    OK(connect(tcp6(), LO6(port_of(l))));
    ERR(connect(v6only(tcp6(), 1), AT6(MAPPED, port_of(l))), ENETUNREACH);
    ERR(set_option(tcp4(), IPPROTO_IPV6, IPV6_V6ONLY, 0), ENOPROTOOPT);
}

TEST(datagrams_cross_by_mapped_addresses) {
    NEEDS_IPV6();
    int six = v6only(udp6(), 0), four = udp_socket(AF_INET);
    OK(bind(six, ANY6(0)));
    char got[4];
    union address from;
    socklen_t length = sizeof from;
    CHECK_EQ(OK(sendto(six, "a", 1, 0, AT6(MAPPED, port_of(four)))), 1);
    CHECK_EQ(OK(recvfrom(four, got, 4, MSG_DONTWAIT, &from.any, &length)), 1);
    CHECK_EQ(from.any.sa_family, AF_INET);
    CHECK_EQ(host_in(from), INADDR_LOOPBACK);
    CHECK_EQ(port_in(from), port_of(six));
    CHECK_EQ(OK(sendto(four, "bc", 2, 0, LO4(port_of(six)))), 2);
    length = sizeof from;
    CHECK_EQ(OK(recvfrom(six, got, 4, MSG_DONTWAIT, &from.any, &length)), 2);
    CHECK_EQ(length, 28);
    CHECK(is_mapped_loopback(from));
    CHECK_EQ(port_in(from), port_of(four));
    /* A socket of AF_INET6 takes an address of AF_INET where it sends. */
    CHECK_EQ(OK(sendto(six, "d", 1, 0, LO4(port_of(four)))), 1);
    CHECK_EQ(OK(recv(four, got, 4, MSG_DONTWAIT)), 1);
}

TEST(the_unspecified_address_of_six_is_loopback) {
    NEEDS_IPV6();
    int l = listener(AF_INET6, 1), c = tcp6();
    OK(connect(c, ANY6(port_of(l))));
    union address a = peer_of(c);
    CHECK(IN6_IS_ADDR_LOOPBACK(&a.six.sin6_addr));
    ERR(connect(tcp6(), LO4(port_of(l))), EINVAL); /* shorter than an address of six */
}

/* ---- options of every socket ----------------------------------------------------------------- */

TEST(option_errors) {
    int s = tcp4(), value = 1;
    socklen_t length = sizeof value;
    ERR(set_option(s, SOL_SOCKET, 9999, 1), ENOPROTOOPT);
    ERR(getsockopt(s, SOL_SOCKET, 9999, &value, &length), ENOPROTOOPT);
    ERR(set_option(s, 9999, 1, 1), ENOPROTOOPT);
    ERR(getsockopt(s, 9999, 1, &value, &length), EOPNOTSUPP); /* do_ip_getsockopt */
    ERR(set_option(s, IPPROTO_IP, 9999, 1), ENOPROTOOPT);
    ERR(set_option(s, IPPROTO_TCP, 9999, 1), ENOPROTOOPT);
    ERR(setsockopt(s, SOL_SOCKET, SO_KEEPALIVE, &value, 3), EINVAL);
    ERR(setsockopt(s, SOL_SOCKET, SO_KEEPALIVE, &value, (socklen_t)-1), EINVAL);
    ERR(setsockopt(s, SOL_SOCKET, SO_KEEPALIVE, BAD, 4), EFAULT);
    ERR(getsockopt(s, SOL_SOCKET, SO_KEEPALIVE, BAD, &length), EFAULT);
    ERR(getsockopt(s, SOL_SOCKET, SO_KEEPALIVE, &value, BAD), EFAULT);
    length = (socklen_t)-1;
    ERR(getsockopt(s, SOL_SOCKET, SO_KEEPALIVE, &value, &length), EINVAL);
    static const int fixed[] = {SO_TYPE, SO_PROTOCOL, SO_DOMAIN, SO_ERROR, SO_ACCEPTCONN};
    for (int i = 0; i < 5; i++)
        ERR(set_option(s, SOL_SOCKET, fixed[i], 1), ENOPROTOOPT);
    /* A short buffer gets the low bytes. */
    value = 0x77777777;
    length = 1;
    OK(getsockopt(s, SOL_SOCKET, SO_TYPE, &value, &length));
    CHECK_EQ(length, 1);
    CHECK_EQ(value, 0x77777700 | SOCK_STREAM);
    char wide[16];
    length = sizeof wide;
    OK(getsockopt(s, SOL_SOCKET, SO_TYPE, wide, &length));
    CHECK_EQ(length, 4);
}

TEST(flags_are_kept_as_one_or_zero) {
    static const int names[] = {SO_KEEPALIVE, SO_REUSEADDR, SO_REUSEPORT, SO_BROADCAST,
                                SO_OOBINLINE, SO_DONTROUTE, SO_DEBUG,     SO_TIMESTAMP};
    int s = tcp4();
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        CHECK_EQ(OPTION(s, SOL_SOCKET, names[i]), 0);
        if (names[i] == SO_DEBUG && !has_capability(CAP_NET_ADMIN))
            continue;
        OK(set_option(s, SOL_SOCKET, names[i], 77));
        int value = OPTION(s, SOL_SOCKET, names[i]);
        if (value != 1)
            FAIL("option %d is %d, not 1", names[i], value);
        OK(set_option(s, SOL_SOCKET, names[i], 0));
        CHECK_EQ(OPTION(s, SOL_SOCKET, names[i]), 0);
    }
}

TEST(linger_and_timeouts_have_their_forms) {
    int s = tcp4();
    struct linger linger = {7, 7};
    socklen_t length = sizeof linger;
    OK(getsockopt(s, SOL_SOCKET, SO_LINGER, &linger, &length));
    CHECK_EQ(linger.l_onoff, 0);
    CHECK_EQ(linger.l_linger, 0);
    linger = (struct linger){9, 12};
    OK(setsockopt(s, SOL_SOCKET, SO_LINGER, &linger, sizeof linger));
    OK(getsockopt(s, SOL_SOCKET, SO_LINGER, &linger, &length));
    CHECK_EQ(linger.l_onoff, 1);
    CHECK_EQ(linger.l_linger, 12);
    ERR(setsockopt(s, SOL_SOCKET, SO_LINGER, &linger, 4), EINVAL);
    static const int names[] = {SO_RCVTIMEO, SO_SNDTIMEO};
    for (int i = 0; i < 2; i++) {
        struct timeval t = {5, 5};
        length = sizeof t;
        OK(getsockopt(s, SOL_SOCKET, names[i], &t, &length));
        CHECK_EQ(length, sizeof t);
        CHECK_EQ(t.tv_sec, 0);
        CHECK_EQ(t.tv_usec, 0);
        t = (struct timeval){3, 500000};
        OK(setsockopt(s, SOL_SOCKET, names[i], &t, sizeof t));
        OK(getsockopt(s, SOL_SOCKET, names[i], &t, &length));
        CHECK_EQ(t.tv_sec, 3);
        CHECK_EQ(t.tv_usec, 500000);
        t.tv_usec = 1000000;
        ERR(setsockopt(s, SOL_SOCKET, names[i], &t, sizeof t), EDOM);
        t.tv_usec = -1;
        ERR(setsockopt(s, SOL_SOCKET, names[i], &t, sizeof t), EDOM);
        ERR(setsockopt(s, SOL_SOCKET, names[i], &t, sizeof t - 1), EINVAL);
        t = (struct timeval){0, 0};
        OK(setsockopt(s, SOL_SOCKET, names[i], &t, sizeof t));
    }
}

TEST(a_socket_is_bound_to_a_device) {
    NEEDS_CAPABILITY(CAP_NET_RAW);
    int s = tcp4();
    char name[IFNAMSIZ] = "x";
    socklen_t length = sizeof name;
    OK(getsockopt(s, SOL_SOCKET, SO_BINDTODEVICE, name, &length));
    CHECK_EQ(length, 0);
    OK(setsockopt(s, SOL_SOCKET, SO_BINDTODEVICE, "lo", 2));
    length = sizeof name;
    OK(getsockopt(s, SOL_SOCKET, SO_BINDTODEVICE, name, &length));
    CHECK_EQ(length, 3);
    CHECK_STR(name, "lo");
    length = 3;
    ERR(getsockopt(s, SOL_SOCKET, SO_BINDTODEVICE, name, &length), EINVAL);
    ERR(setsockopt(s, SOL_SOCKET, SO_BINDTODEVICE, "no-such", 7), ENODEV);
    int l = listener(AF_INET, 1);
    OK(connect(s, LO4(port_of(l))));
    OK(setsockopt(s, SOL_SOCKET, SO_BINDTODEVICE, "", 0));
    /* A user binds what is not bound, and does not change it: sock_bindtoindex, since 5.7. */
    int t = tcp4();
    OK(setsockopt(t, SOL_SOCKET, SO_BINDTODEVICE, "lo", 2));
    if (geteuid() == 0) {
        BECOME(NOBODY, NOBODY);
        ERR(setsockopt(t, SOL_SOCKET, SO_BINDTODEVICE, "", 0), EPERM);
        OK(setsockopt(tcp4(), SOL_SOCKET, SO_BINDTODEVICE, "lo", 2));
    }
}

TEST(some_options_are_for_the_privileged) {
    NEEDS_ROOT();
    NEEDS_CAPABILITY(CAP_NET_ADMIN);
    int s = udp4();
    OK(set_option(s, SOL_SOCKET, SO_MARK, 0x1234));
    CHECK_EQ(OPTION(s, SOL_SOCKET, SO_MARK), 0x1234);
    OK(set_option(s, SOL_SOCKET, SO_PRIORITY, 100));
    CHECK_EQ(OPTION(s, SOL_SOCKET, SO_PRIORITY), 100);
    OK(set_option(s, SOL_SOCKET, SO_DEBUG, 1));
    BECOME(NOBODY, NOBODY);
    ERR(set_option(s, SOL_SOCKET, SO_MARK, 1), EPERM);
    ERR(set_option(s, SOL_SOCKET, SO_PRIORITY, 7), EPERM);
    OK(set_option(s, SOL_SOCKET, SO_PRIORITY, 6));
    CHECK_EQ(OPTION(s, SOL_SOCKET, SO_PRIORITY), 6);
    ERR(set_option(s, SOL_SOCKET, SO_DEBUG, 1), EACCES);
    ERR(set_option(s, SOL_SOCKET, SO_SNDBUFFORCE, 65536), EPERM);
    ERR(set_option(s, SOL_SOCKET, SO_RCVBUFFORCE, 65536), EPERM);
    ERR(set_option(s, IPPROTO_IP, IP_TRANSPARENT, 1), EPERM);
}

TEST(options_of_ip) {
    int s = tcp4();
    CHECK_EQ(OPTION(s, IPPROTO_IP, IP_TTL), sysctl_number("/proc/sys/net/ipv4/ip_default_ttl"));
    OK(set_option(s, IPPROTO_IP, IP_TTL, 7));
    CHECK_EQ(OPTION(s, IPPROTO_IP, IP_TTL), 7);
    ERR(set_option(s, IPPROTO_IP, IP_TTL, 0), EINVAL);
    ERR(set_option(s, IPPROTO_IP, IP_TTL, 256), EINVAL);
    OK(set_option(s, IPPROTO_IP, IP_TTL, -1)); /* as it was */
    CHECK_EQ(OPTION(s, IPPROTO_IP, IP_TTL), sysctl_number("/proc/sys/net/ipv4/ip_default_ttl"));
    CHECK_EQ(OPTION(s, IPPROTO_IP, IP_TOS), 0);
    OK(set_option(s, IPPROTO_IP, IP_TOS, 0x10));
    CHECK_EQ(OPTION(s, IPPROTO_IP, IP_TOS), 0x10);
    /* A byte will do, and is what a reader with room for a byte gets. */
    unsigned char byte = 0x20;
    OK(setsockopt(s, IPPROTO_IP, IP_TOS, &byte, 1));
    byte = 0;
    socklen_t length = 1;
    OK(getsockopt(s, IPPROTO_IP, IP_TOS, &byte, &length));
    CHECK_EQ(length, 1);
    CHECK_EQ(byte, 0x20);
    static const int flags[] = {IP_FREEBIND, IP_RECVERR, IP_RECVTTL, IP_RECVTOS, IP_PKTINFO};
    for (int i = 0; i < 5; i++) {
        CHECK_EQ(OPTION(s, IPPROTO_IP, flags[i]), 0);
        OK(set_option(s, IPPROTO_IP, flags[i], 5));
        CHECK_EQ(OPTION(s, IPPROTO_IP, flags[i]), 1);
    }
    ERR(set_option(s, IPPROTO_IP, IP_HDRINCL, 1), ENOPROTOOPT); /* for raw sockets */
    OK(bind(s, AT4(STRANGER, 0))); /* as IP_FREEBIND says */
}

TEST(options_of_ipv6) {
    NEEDS_IPV6();
    int s = tcp6();
    CHECK_EQ(OPTION(s, IPPROTO_IPV6, IPV6_UNICAST_HOPS), 64);
    OK(set_option(s, IPPROTO_IPV6, IPV6_UNICAST_HOPS, 9));
    CHECK_EQ(OPTION(s, IPPROTO_IPV6, IPV6_UNICAST_HOPS), 9);
    OK(set_option(s, IPPROTO_IPV6, IPV6_UNICAST_HOPS, -1));
    CHECK_EQ(OPTION(s, IPPROTO_IPV6, IPV6_UNICAST_HOPS), 64);
    ERR(set_option(s, IPPROTO_IPV6, IPV6_UNICAST_HOPS, 256), EINVAL);
    ERR(set_option(s, IPPROTO_IPV6, IPV6_UNICAST_HOPS, -2), EINVAL);
    CHECK_EQ(OPTION(s, IPPROTO_IPV6, IPV6_TCLASS), 0);
    OK(set_option(s, IPPROTO_IPV6, IPV6_TCLASS, 0x10));
    CHECK_EQ(OPTION(s, IPPROTO_IPV6, IPV6_TCLASS), 0x10);
    ERR(set_option(s, IPPROTO_IPV6, IPV6_TCLASS, 256), EINVAL);
    ERR(set_option(s, IPPROTO_IPV6, 9999, 1), ENOPROTOOPT);
    ERR(setsockopt(s, IPPROTO_IPV6, IPV6_V6ONLY, &(int){0}, 3), EINVAL);
    static const int flags[] = {IPV6_RECVERR, IPV6_RECVPKTINFO, IPV6_RECVHOPLIMIT,
                                IPV6_RECVTCLASS};
    for (int i = 0; i < 4; i++) {
        CHECK_EQ(OPTION(s, IPPROTO_IPV6, flags[i]), 0);
        OK(set_option(s, IPPROTO_IPV6, flags[i], 5));
        CHECK_EQ(OPTION(s, IPPROTO_IPV6, flags[i]), 1);
    }
}

/* ---- foreign addresses and those of a link ------------------------------------------------------ */

#ifndef IPV6_TRANSPARENT
#define IPV6_TRANSPARENT 75
#endif
#ifndef IPV6_FREEBIND
#define IPV6_FREEBIND 78
#endif
#define SO_BINDTOIFINDEX 62

TEST(a_transparent_socket_has_a_foreign_address) {
    NEEDS_ROOT();
    NEEDS_CAPABILITY(CAP_NET_ADMIN);
    int s = udp4(), r = udp_socket(AF_INET);
    ERR(bind(s, AT4(STRANGER, 0)), EADDRNOTAVAIL);
    CHECK_EQ(OPTION(s, IPPROTO_IP, IP_TRANSPARENT), 0);
    OK(set_option(s, IPPROTO_IP, IP_TRANSPARENT, 3));
    CHECK_EQ(OPTION(s, IPPROTO_IP, IP_TRANSPARENT), 1);
    OK(bind(s, AT4(STRANGER, 0)));
    CHECK_EQ(host_in(name_of(s)), STRANGER);
    CHECK_EQ(OK(sendto(s, "x", 1, 0, LO4(port_of(r)))), 1);
    union address from = {0};
    socklen_t length = sizeof from;
    char c;
    CHECK_EQ(OK(recvfrom(r, &c, 1, MSG_DONTWAIT, &from.any, &length)), 1);
    CHECK_EQ(host_in(from), STRANGER);
    CHECK_EQ(port_in(from), port_of(s));
    /* One that is only bound freely sends nothing from there. */
    int f = udp4();
    OK(set_option(f, IPPROTO_IP, IP_FREEBIND, 1));
    OK(bind(f, AT4(STRANGER, 0)));
    ERR(sendto(f, "x", 1, 0, LO4(port_of(r))), ENETUNREACH);
    ERR(connect(f, LO4(port_of(r))), ENETUNREACH);
    int t = tcp4();
    OK(set_option(t, IPPROTO_IP, IP_FREEBIND, 1));
    OK(bind(t, AT4(STRANGER, 0)));
    ERR(connect(t, LO4(1)), ENETUNREACH);
    int l = tcp4();
    OK(set_option(l, IPPROTO_IP, IP_TRANSPARENT, 1));
    OK(bind(l, AT4(STRANGER, 0)));
    OK(listen(l, 1));
    /* It stays when the right is gone, and may be given up. */
    BECOME(NOBODY, NOBODY);
    ERR(set_option(s, IPPROTO_IP, IP_TRANSPARENT, 1), EPERM);
    OK(set_option(s, IPPROTO_IP, IP_TRANSPARENT, 0));
    CHECK_EQ(OPTION(s, IPPROTO_IP, IP_TRANSPARENT), 0);
}

TEST(a_transparent_socket_of_ipv6) {
    NEEDS_ROOT();
    NEEDS_IPV6();
    NEEDS_CAPABILITY(CAP_NET_ADMIN);
    struct in6_addr stranger = {{{0x20, 1, 0xd, 0xb8, [15] = 1}}}; /* RFC 3849 */
    int s = udp6();
    ERR(bind(s, AT6(stranger, 0)), EADDRNOTAVAIL);
    OK(set_option(s, IPPROTO_IPV6, IPV6_TRANSPARENT, 1));
    CHECK_EQ(OPTION(s, IPPROTO_IPV6, IPV6_TRANSPARENT), 1);
    OK(bind(s, AT6(stranger, 0)));
    int f = tcp6();
    CHECK_EQ(OPTION(f, IPPROTO_IPV6, IPV6_FREEBIND), 0);
    OK(set_option(f, IPPROTO_IPV6, IPV6_FREEBIND, 1));
    CHECK_EQ(OPTION(f, IPPROTO_IPV6, IPV6_FREEBIND), 1);
    OK(bind(f, AT6(stranger, 0)));
    BECOME(NOBODY, NOBODY);
    ERR(set_option(s, IPPROTO_IPV6, IPV6_TRANSPARENT, 1), EPERM);
}

/* struct in6_ifreq */
struct address_of_interface {
    struct in6_addr address;
    uint32_t prefix;
    int index;
};

TEST(an_address_of_the_link_binds_to_the_interface) {
    NEEDS_ROOT();
    NEEDS_IPV6();
    NEEDS_CAPABILITY(CAP_NET_ADMIN);
    struct address_of_interface own = {{{{0xfe, 0x80, [14] = 0x7a, [15] = 0x31}}}, 64, 1};
    int s = udp6();
    OK(ioctl(s, SIOCSIFADDR, &own));
    struct sockaddr_in6 name = {.sin6_family = AF_INET6, .sin6_addr = own.address};
    ERR(bind(s, (struct sockaddr *)&name, sizeof name), EINVAL);
    name.sin6_scope_id = 1;
    int bound = -1;
    /* Linux makes the address usable a moment later. */
    for (int i = 0; bound == -1 && i < 200; i++) {
        bound = bind(s, (struct sockaddr *)&name, sizeof name);
        if (bound == -1) {
            CHECK_EQ(errno, EADDRNOTAVAIL);
            usleep(10000);
        }
    }
    OK(bound);
    CHECK_EQ(OPTION(s, SOL_SOCKET, SO_BINDTOIFINDEX), 1);
    CHECK_EQ(name_of(s).six.sin6_scope_id, 1);
    /* The socket's own interface is as good as one that is named. */
    int t = tcp6();
    name.sin6_scope_id = 0;
    OK(set_option(t, SOL_SOCKET, SO_BINDTOIFINDEX, 1));
    OK(bind(t, (struct sockaddr *)&name, sizeof name));
    CHECK_EQ(name_of(t).six.sin6_scope_id, 1);
    /* So it is with groups of the link, and with no others. */
    struct in6_addr of_link = {{{0xff, 2, [15] = 0x77}}}, of_site = {{{0xff, 5, [15] = 0x77}}};
    int g = udp6();
    ERR(bind(g, AT6(of_link, 0)), EINVAL);
    name = (struct sockaddr_in6){.sin6_family = AF_INET6, .sin6_addr = of_link,
                                 .sin6_scope_id = 1};
    OK(bind(g, (struct sockaddr *)&name, sizeof name));
    CHECK_EQ(OPTION(g, SOL_SOCKET, SO_BINDTOIFINDEX), 1);
    int h = udp6();
    name.sin6_addr = of_site;
    OK(bind(h, (struct sockaddr *)&name, sizeof name));
    CHECK_EQ(OPTION(h, SOL_SOCKET, SO_BINDTOIFINDEX), 0);
    CHECK_EQ(name_of(h).six.sin6_scope_id, 0);
    OK(ioctl(s, SIOCDIFADDR, &own));
}

TEST(a_type_of_service_gives_a_priority) {
    static const int priorities[][2] = {{0x10, 6}, {0x08, 2}, {0x18, 4}, {0, 0}};
    int u = udp_socket(AF_INET), s = tcp4();
    for (int i = 0; i < 4; i++) {
        OK(set_option(u, IPPROTO_IP, IP_TOS, priorities[i][0]));
        CHECK_EQ(OPTION(u, SOL_SOCKET, SO_PRIORITY), priorities[i][1]);
        OK(set_option(s, IPPROTO_IP, IP_TOS, priorities[i][0]));
        CHECK_EQ(OPTION(s, SOL_SOCKET, SO_PRIORITY), priorities[i][1]);
    }
    /* Two bits are the connection's, for congestion (RFC 3168). */
    OK(set_option(s, IPPROTO_IP, IP_TOS, 0x13));
    CHECK_EQ(OPTION(s, IPPROTO_IP, IP_TOS), 0x10);
    OK(set_option(u, IPPROTO_IP, IP_TOS, 0x13));
    CHECK_EQ(OPTION(u, IPPROTO_IP, IP_TOS), 0x13);
}

TEST(a_connected_socket_tells_the_mtu) {
    int u = udp_socket(AF_INET), s = tcp4(), l = listener(AF_INET, 1), value;
    socklen_t length = sizeof value;
    ERR(getsockopt(u, IPPROTO_IP, IP_MTU, &value, &length), ENOTCONN);
    ERR(getsockopt(s, IPPROTO_IP, IP_MTU, &value, &length), ENOTCONN);
    ERR(set_option(u, IPPROTO_IP, IP_MTU, 1500), ENOPROTOOPT);
    OK(connect(u, LO4(port_of(l))));
    OK(connect(s, LO4(port_of(l))));
    struct ifreq ask = {.ifr_name = "lo"};
    OK(ioctl(u, SIOCGIFMTU, &ask));
    int mtu = ask.ifr_mtu < 65535 ? ask.ifr_mtu : 65535;
    CHECK_EQ(OPTION(u, IPPROTO_IP, IP_MTU), mtu);
    CHECK_EQ(OPTION(s, IPPROTO_IP, IP_MTU), mtu);
    NEEDS_IPV6();
    int six = udp_socket(AF_INET6);
    ERR(getsockopt(six, IPPROTO_IPV6, IPV6_MTU, &value, &length), ENOTCONN);
    OK(connect(six, LO6(port_of(six))));
    CHECK_EQ(OPTION(six, IPPROTO_IPV6, IPV6_MTU), ask.ifr_mtu);
}

TEST(the_processor_of_the_last_packet) {
    int a = udp_socket(AF_INET), b = udp_socket(AF_INET), ends[2];
    char byte;
    CHECK_EQ(OK(sendto(a, "x", 1, 0, LO4(port_of(b)))), 1);
    CHECK_EQ(OK(recv(b, &byte, 1, 0)), 1);
    CHECK_EQ(OPTION(b, SOL_SOCKET, SO_INCOMING_CPU), -1); /* it is not connected */
    OK(connect(b, LO4(port_of(a))));
    CHECK_EQ(OK(sendto(a, "x", 1, 0, LO4(port_of(b)))), 1);
    CHECK_EQ(OK(recv(b, &byte, 1, 0)), 1);
    int cpu = OPTION(b, SOL_SOCKET, SO_INCOMING_CPU);
    CHECK(cpu >= 0 && cpu < sysconf(_SC_NPROCESSORS_CONF));
    CHECK_EQ(OPTION(a, SOL_SOCKET, SO_INCOMING_CPU), -1);
    tcp_pair(AF_INET, ends);
    send_all(ends[0], "x", 1);
    recv_all(ends[1], &byte, 1);
    cpu = OPTION(ends[1], SOL_SOCKET, SO_INCOMING_CPU);
    CHECK(cpu >= 0 && cpu < sysconf(_SC_NPROCESSORS_CONF));
}

/* No packet is sent to the stranger: connect(2) of UDP only looks for the way. */
TEST(gateways_are_not_used_if_the_program_says_so) {
    int u = udp4(), direct = udp4(), s = tcp4();
    if (has_route_to(STRANGER))
        OK(connect(u, AT4(STRANGER, 9)));
    OK(set_option(direct, SOL_SOCKET, SO_DONTROUTE, 1));
    OK(set_option(s, SOL_SOCKET, SO_DONTROUTE, 1));
    ERR(connect(direct, AT4(STRANGER, 9)), ENETUNREACH);
    ERR(sendto(direct, "x", 1, 0, AT4(STRANGER, 9)), ENETUNREACH);
    ERR(connect(s, AT4(STRANGER, 9)), ENETUNREACH);
    ERR(sendto(u, "x", 1, MSG_DONTROUTE, AT4(STRANGER, 9)), ENETUNREACH);
    int other = udp_socket(AF_INET), l = listener(AF_INET, 1);
    ERR(sendto(udp4(), "x", 1, MSG_DONTROUTE, AT4(STRANGER, 9)), ENETUNREACH);
    CHECK_EQ(OK(sendto(other, "x", 1, MSG_DONTROUTE, LO4(port_of(direct)))), 1);
    CHECK_EQ(OK(sendto(direct, "x", 1, 0, LO4(port_of(other)))), 1);
    OK(connect(s, LO4(port_of(l))));
}

TEST(an_address_is_bound_before_its_port) {
    int s = tcp4(), l = listener(AF_INET, 1);
    OK(set_option(s, IPPROTO_IP, 24 /* IP_BIND_ADDRESS_NO_PORT */, 1));
    CHECK_EQ(OPTION(s, IPPROTO_IP, 24), 1);
    OK(bind(s, LO4(0)));
    CHECK_EQ(port_of(s), 0);
    OK(connect(s, LO4(port_of(l))));
    CHECK(port_of(s) != 0);
}

TEST(discovery_of_the_mtu_is_chosen) {
    int u = udp4();
    CHECK_EQ(OPTION(u, IPPROTO_IP, IP_MTU_DISCOVER), IP_PMTUDISC_WANT);
    for (int way = IP_PMTUDISC_DONT; way <= IP_PMTUDISC_OMIT; way++) {
        OK(set_option(u, IPPROTO_IP, IP_MTU_DISCOVER, way));
        CHECK_EQ(OPTION(u, IPPROTO_IP, IP_MTU_DISCOVER), way);
    }
    ERR(set_option(u, IPPROTO_IP, IP_MTU_DISCOVER, -1), EINVAL);
    ERR(set_option(u, IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_OMIT + 1), EINVAL);
    NEEDS_IPV6();
    int six = udp6();
    OK(set_option(six, IPPROTO_IPV6, IPV6_MTU_DISCOVER, IPV6_PMTUDISC_DO));
    CHECK_EQ(OPTION(six, IPPROTO_IPV6, IPV6_MTU_DISCOVER), IPV6_PMTUDISC_DO);
    ERR(set_option(six, IPPROTO_IPV6, IPV6_MTU_DISCOVER, 99), EINVAL);
}

TEST(a_socket_is_bound_to_a_number_of_a_device) {
    NEEDS_CAPABILITY(CAP_NET_RAW);
    enum { BIND_TO_INDEX = 62 /* SO_BINDTOIFINDEX */ };
    int u = udp4();
    CHECK_EQ(OPTION(u, SOL_SOCKET, BIND_TO_INDEX), 0);
    ERR(set_option(u, SOL_SOCKET, BIND_TO_INDEX, -1), EINVAL);
    OK(set_option(u, SOL_SOCKET, BIND_TO_INDEX, (int)if_nametoindex("lo")));
    char name[16] = "";
    socklen_t length = sizeof name;
    OK(getsockopt(u, SOL_SOCKET, SO_BINDTODEVICE, name, &length));
    CHECK_STR(name, "lo");
    OK(set_option(u, SOL_SOCKET, BIND_TO_INDEX, 0));
    CHECK_EQ(OPTION(u, SOL_SOCKET, BIND_TO_INDEX), 0);
}

/* ---- routes ---------------------------------------------------------------------------------- */

/* The first route to 198.51.100.128 (RFC 5737: no machine has it) of /proc/net/route. */
static bool route_there(char device[16], int *metric) {
    FILE *file = fopen("/proc/net/route", "r");
    char line[256];
    bool found = false;
    CHECK(file != NULL);
    while (!found && fgets(line, sizeof line, file) != NULL) {
        unsigned network;
        found = sscanf(line, "%15s %x %*x %*x %*d %*d %d", device, &network, metric) == 3 &&
                network == htonl(0xc6336480);
    }
    fclose(file);
    return found;
}

/* The device of a route is named, and its metric is one less than the program says. */
TEST(a_route_by_ioctl_has_the_device_and_the_metric_that_it_names) {
    NEEDS_CAPABILITY(CAP_NET_ADMIN);
    int s = udp4(), metric;
    char device[16];
    struct rtentry r = {.rt_flags = RTF_UP, .rt_metric = 8, .rt_dev = "lo"};
    r.rt_dst.sa_family = r.rt_genmask.sa_family = AF_INET;
    ((struct sockaddr_in *)&r.rt_dst)->sin_addr.s_addr = htonl(0xc6336480);
    ((struct sockaddr_in *)&r.rt_genmask)->sin_addr.s_addr = htonl(0xffffff80);
    CHECK(!route_there(device, &metric));
    OK(ioctl(s, SIOCADDRT, &r));
    bool there = route_there(device, &metric);
    r.rt_dev = "none such";
    ERR(ioctl(s, SIOCDELRT, &r), ENODEV);
    r.rt_dev = (char *)BAD;
    ERR(ioctl(s, SIOCDELRT, &r), EFAULT);
    r.rt_dev = "lo";
    OK(ioctl(s, SIOCDELRT, &r));
    CHECK(there);
    CHECK_STR(device, "lo");
    CHECK_EQ(metric, 7);
    CHECK(!route_there(device, &metric));
    ERR(ioctl(s, SIOCDELRT, &r), ESRCH);
}
