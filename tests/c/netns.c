/* Network namespaces (network_namespaces(7)): an interface of their own, what is seen in them and
 * what is not, to which of them a socket belongs, and when they end. */
#define AREA "netns"
#include "net.h"
#include <linux/nsfs.h>
#include <sys/prctl.h>
#include <sys/un.h>

#define NEWNET 0x40000000

static int setns_(int fd, int kind) { return (int)syscall(SYS_setns, fd, kind); }
static int pidfd_of(pid_t pid) { return (int)syscall(SYS_pidfd_open, pid, 0); }

static void needs_namespaces(void) {
    if (geteuid() != 0)
        SKIP("not root");
    pid_t pid = FORK();
    if (pid == 0)
        _exit(unshare(NEWNET) == 0 ? 0 : errno == EPERM ? 1 : 2);
    int status = WAIT(pid);
    if (status == 1 << 8)
        SKIP("may make no network namespace");
    CHECK_EQ(status, 0);
}

/* A new namespace, whose loopback interface is up or not. */
static void enter_new(bool up) {
    OK(unshare(NEWNET));
    if (up)
        OK(interface_up("lo"));
}

static int open_of(pid_t pid) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/ns/net", pid);
    return OK(open(path, O_RDONLY | O_CLOEXEC));
}
static ino_t number_of(int fd) {
    struct stat st;
    OK(fstat(fd, &st));
    return st.st_ino;
}

/* The flags and the MTU of the loopback interface as a socket sees it: by its MTU a namespace is
 * known again. */
static int flags_by(int s) {
    struct ifreq r = {.ifr_name = "lo"};
    OK(ioctl(s, SIOCGIFFLAGS, &r));
    return r.ifr_flags;
}
static int mtu_by(int s) {
    struct ifreq r = {.ifr_name = "lo"};
    OK(ioctl(s, SIOCGIFMTU, &r));
    return r.ifr_mtu;
}
static int mtu_here(void) {
    int s = OK(socket(AF_UNIX, SOCK_DGRAM, 0)), mtu = mtu_by(s);
    OK(close(s));
    return mtu;
}
static void set_mtu(int mtu) {
    int s = OK(socket(AF_INET, SOCK_DGRAM, 0));
    struct ifreq r = {.ifr_name = "lo"};
    r.ifr_mtu = mtu;
    OK(ioctl(s, SIOCSIFMTU, &r));
    OK(close(s));
}

/* Writes a setting, or a map. */
static void put(const char *path, const char *text) {
    int fd = OK(open(path, O_WRONLY | O_CLOEXEC));
    CHECK_EQ(OK(write(fd, text, strlen(text))), strlen(text));
    OK(close(fd));
}

static void give(int to, int fd) {
    char byte = 0, room[CMSG_SPACE(sizeof(int))] = {0};
    struct iovec v = {&byte, 1};
    struct msghdr m = {
        .msg_iov = &v, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
    struct cmsghdr *h = CMSG_FIRSTHDR(&m);
    *h = (struct cmsghdr){
        .cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
    memcpy(CMSG_DATA(h), &fd, sizeof fd);
    CHECK_EQ(OK(sendmsg(to, &m, 0)), 1);
}
static int take(int from) {
    char byte, room[CMSG_SPACE(sizeof(int))] = {0};
    struct iovec v = {&byte, 1};
    struct msghdr m = {
        .msg_iov = &v, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
    CHECK_EQ(OK(recvmsg(from, &m, 0)), 1);
    struct cmsghdr *h = CMSG_FIRSTHDR(&m);
    CHECK(h != NULL && h->cmsg_type == SCM_RIGHTS);
    int fd;
    memcpy(&fd, CMSG_DATA(h), sizeof fd);
    return fd;
}

/* Two processes in step: each end passes a byte. */
static void step(int e) { CHECK_EQ(OK(write(e, "x", 1)), 1); }
static void wait_for(int e) {
    char c;
    CHECK_EQ(OK(read(e, &c, 1)), 1);
}

/* A process in a new namespace, whose loopback interface is up, that does the block; `end` is its
 * end of a pair, the other is `e` here. */
#define INSIDE(...)                                                                                \
    ({                                                                                             \
        OK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));                                             \
        pid_t hy_inside = FORK();                                                                  \
        if (hy_inside == 0) {                                                                      \
            int end UNUSED = pair[1];                                                              \
            OK(close(pair[0]));                                                                    \
            enter_new(true);                                                                       \
            __VA_ARGS__;                                                                           \
            _exit(0);                                                                              \
        }                                                                                          \
        OK(close(pair[1]));                                                                        \
        hy_inside;                                                                                 \
    })
static int pair[2];

/* ---- the loopback interface ------------------------------------------------------------------ */

TEST(a_new_one_has_a_loopback_that_is_down) {
    needs_namespaces();
    enter_new(false);
    int u = OK(socket(AF_INET, SOCK_DGRAM, 0)), t = OK(socket(AF_INET, SOCK_STREAM, 0));
    CHECK_EQ(flags_by(u) & (IFF_UP | IFF_RUNNING | IFF_LOOPBACK), IFF_LOOPBACK);
    CHECK_EQ(mtu_by(u), 65536);
    CHECK_EQ(if_nametoindex("lo"), 1);
    struct ifreq r = {.ifr_name = "lo"};
    ERR(ioctl(u, SIOCGIFADDR, &r), EADDRNOTAVAIL);
    ERR(sendto(u, "x", 1, 0, LO4(9)), ENETUNREACH);
    ERR(connect(u, LO4(9)), ENETUNREACH);
    ERR(connect(t, LO4(9)), ENETUNREACH);
    ERR(sendto(u, "x", 1, 0, AT4(STRANGER, 9)), ENETUNREACH);
    /* Without any address of IPv4 each can be bound to: `__inet_dev_addr_type` has no table. */
    OK(bind(t, AT4(STRANGER, 0)));
    OK(bind(OK(socket(AF_INET, SOCK_DGRAM, 0)), LO4(0)));
    OK(bind(OK(socket(AF_INET, SOCK_DGRAM, 0)), ANY4(0)));
    int v = socket(AF_INET6, SOCK_DGRAM, 0);
    if (v != -1) {
        ERR(bind(v, LO6(0)), EADDRNOTAVAIL);
        ERR2(connect(v, LO6(9)), ENETUNREACH, EADDRNOTAVAIL);
    }
}

TEST(it_gets_its_addresses_when_it_comes_up) {
    needs_namespaces();
    enter_new(true);
    int u = udp_socket(AF_INET), e[2];
    CHECK_EQ(flags_by(u) & (IFF_UP | IFF_RUNNING), IFF_UP | IFF_RUNNING);
    struct ifreq r = {.ifr_name = "lo"};
    OK(ioctl(u, SIOCGIFADDR, &r));
    CHECK_EQ(ntohl(((struct sockaddr_in *)&r.ifr_addr)->sin_addr.s_addr), INADDR_LOOPBACK);
    OK(ioctl(u, SIOCGIFNETMASK, &r));
    CHECK_EQ(ntohl(((struct sockaddr_in *)&r.ifr_addr)->sin_addr.s_addr), 0xff000000u);
    CHECK_EQ(OK(sendto(u, "x", 1, 0, LO4(port_of(u)))), 1);
    char byte;
    CHECK_EQ(OK(recv(u, &byte, 1, MSG_DONTWAIT)), 1);
    CHECK_EQ(OK(sendto(u, "x", 1, 0, AT4(0x7f020304, port_of(u)))), 1);
    ERR(bind(OK(socket(AF_INET, SOCK_STREAM, 0)), AT4(STRANGER, 0)), EADDRNOTAVAIL);
    tcp_pair(AF_INET, e);
    send_all(e[0], "abc", 3);
    char text[3];
    recv_all(e[1], text, 3);
    NEEDS_IPV6();
    tcp_pair(AF_INET6, e);
    send_all(e[1], "abc", 3);
    recv_all(e[0], text, 3);
    ERR(sendto(u, "x", 1, 0, AT4(STRANGER, 9)), ENETUNREACH);
}

TEST(down_again_it_keeps_the_address_of_ipv4_alone) {
    needs_namespaces();
    enter_new(true);
    bool six = access("/proc/net/if_inet6", F_OK) == 0;
    int u = udp_socket(AF_INET);
    struct ifreq r = {.ifr_name = "lo"};
    r.ifr_flags = 0;
    OK(ioctl(u, SIOCSIFFLAGS, &r));
    CHECK_EQ(flags_by(u) & (IFF_UP | IFF_RUNNING), 0);
    OK(ioctl(u, SIOCGIFADDR, &r));
    CHECK_EQ(OK(sendto(u, "x", 1, 0, LO4(port_of(u)))), 1); /* lost */
    char byte;
    ERR(recv(u, &byte, 1, MSG_DONTWAIT), EAGAIN);
    if (six) {
        char text[256];
        CHECK_EQ(get_file("/proc/net/if_inet6", text, sizeof text), 0);
    }
    OK(interface_up("lo"));
    CHECK_EQ(OK(sendto(u, "y", 1, 0, LO4(port_of(u)))), 1);
    CHECK_EQ(OK(recv(u, &byte, 1, MSG_DONTWAIT)), 1);
    CHECK_EQ(byte, 'y');
}

TEST(long_datagrams_are_cut_and_put_together) {
    needs_namespaces();
    enter_new(true);
    set_mtu(1400);
    int a = udp_socket(AF_INET), b = udp_socket(AF_INET);
    static char out[9000], in[9000];
    for (size_t i = 0; i < sizeof out; i++)
        out[i] = (char)(i * 7);
    CHECK_EQ(OK(sendto(a, out, sizeof out, 0, LO4(port_of(b)))), sizeof out);
    CHECK_EQ(OK(recv(b, in, sizeof in, MSG_DONTWAIT)), sizeof out);
    CHECK(memcmp(in, out, sizeof out) == 0);
}

/* ---- what is not met ------------------------------------------------------------------------- */

TEST(a_port_is_taken_once_in_each) {
    needs_namespaces();
    int l = listener(AF_INET, 4), port = port_of(l), u = OK(socket(AF_INET, SOCK_DGRAM, 0));
    OK(bind(u, LO4(0)));
    int udp = port_of(u);
    pid_t pid = INSIDE({
        int s = OK(socket(AF_INET, SOCK_STREAM, 0));
        ERR(connect(s, LO4(port)), ECONNREFUSED); /* that of outside is not reached */
        int m = OK(socket(AF_INET, SOCK_STREAM, 0)), v = OK(socket(AF_INET, SOCK_DGRAM, 0));
        OK(bind(m, LO4(port)));
        OK(listen(m, 4));
        OK(bind(v, LO4(udp)));
        step(end);
        wait_for(end);
        int c = dial(AF_INET, port), a = OK(accept(m, NULL, NULL));
        send_all(c, "in", 2);
        char got[2];
        recv_all(a, got, 2);
        CHECK(memcmp(got, "in", 2) == 0);
        ERR(recv(v, got, 2, MSG_DONTWAIT), EAGAIN);
        nonblocking(m);
        ERR(accept(m, NULL, NULL), EAGAIN);
    });
    wait_for(pair[0]);
    int c = dial(AF_INET, port), a = OK(accept(l, NULL, NULL));
    send_all(c, "ex", 2);
    char got[2];
    recv_all(a, got, 2);
    CHECK(memcmp(got, "ex", 2) == 0);
    CHECK_EQ(OK(sendto(u, "x", 1, 0, LO4(udp))), 1);
    CHECK_EQ(OK(recv(u, got, 2, 0)), 1);
    step(pair[0]);
    EXITS(pid, 0);
    nonblocking(l);
    ERR(accept(l, NULL, NULL), EAGAIN);
}

TEST(the_same_four_numbers_are_two_connections) {
    needs_namespaces();
    int l = listener(AF_INET, 4), s = OK(socket(AF_INET, SOCK_STREAM, 0));
    OK(bind(s, LO4(0)));
    int to = port_of(l), from = port_of(s);
    OK(connect(s, LO4(to)));
    int a = OK(accept(l, NULL, NULL));
    pid_t pid = INSIDE({
        int m = OK(socket(AF_INET, SOCK_STREAM, 0)), t = OK(socket(AF_INET, SOCK_STREAM, 0));
        OK(bind(m, LO4(to)));
        OK(listen(m, 1));
        OK(bind(t, LO4(from)));
        OK(connect(t, LO4(to)));
        int b = OK(accept(m, NULL, NULL));
        send_all(t, "inside", 6);
        char got[6];
        recv_all(b, got, 6);
        CHECK(memcmp(got, "inside", 6) == 0);
        /* What is left of it for a minute goes with the namespace. */
        OK(close(t));
        AWAIT(b, POLLIN);
        OK(close(b));
    });
    EXITS(pid, 0);
    send_all(s, "outside", 7);
    char got[8];
    CHECK_EQ(OK(recv(a, got, 8, 0)), 7);
    ERR(recv(a, got, 8, MSG_DONTWAIT), EAGAIN);
}

TEST(abstract_names_are_of_a_namespace) {
    needs_namespaces();
    struct sockaddr_un name = {.sun_family = AF_UNIX}, path = {.sun_family = AF_UNIX};
    int length = snprintf(name.sun_path + 1, 100, "hayate-netns-%d", getpid());
    socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length);
    strcpy(path.sun_path, "socket");
    int s = OK(socket(AF_UNIX, SOCK_STREAM, 0)), p = OK(socket(AF_UNIX, SOCK_STREAM, 0));
    OK(bind(s, (struct sockaddr *)&name, size));
    OK(listen(s, 1));
    OK(bind(p, (struct sockaddr *)&path, sizeof path));
    OK(listen(p, 1));
    IN_CHILD({
        int old = OK(socket(AF_UNIX, SOCK_STREAM, 0));
        enter_new(false);
        int c = OK(socket(AF_UNIX, SOCK_STREAM, 0)), t = OK(socket(AF_UNIX, SOCK_STREAM, 0));
        ERR(connect(c, (struct sockaddr *)&name, size), ECONNREFUSED);
        OK(bind(t, (struct sockaddr *)&name, size));
        OK(listen(t, 1));
        OK(connect(c, (struct sockaddr *)&name, size));
        OK(accept(t, NULL, NULL));
        /* A socket of outside finds that of outside. */
        OK(connect(old, (struct sockaddr *)&name, size));
        /* A path leads to whoever is there (unix(7)). */
        OK(connect(OK(socket(AF_UNIX, SOCK_STREAM, 0)), (struct sockaddr *)&path, sizeof path));
        char text[4096];
        CHECK(get_file("/proc/net/unix", text, sizeof text) > 0);
        CHECK(strstr(text, name.sun_path + 1) != NULL);
    });
    OK(accept(s, NULL, NULL));
    OK(accept(p, NULL, NULL));
}

TEST(raw_and_packet_sockets_see_their_own) {
    needs_namespaces();
    NEEDS_CAPABILITY(CAP_NET_RAW);
    int raw = OK(socket(AF_INET, SOCK_RAW | SOCK_NONBLOCK, 253));
    int seen = OK(socket(17 /* AF_PACKET */, SOCK_DGRAM | SOCK_NONBLOCK, htons(0x88b5)));
    char got[64];
    IN_CHILD({
        enter_new(true);
        int own = OK(socket(AF_INET, SOCK_RAW | SOCK_NONBLOCK, 253));
        int all = OK(socket(17, SOCK_DGRAM | SOCK_NONBLOCK, htons(3 /* ETH_P_ALL */)));
        CHECK_EQ(OK(sendto(own, "x", 1, 0, LO4(0))), 1);
        CHECK_EQ(OK(recv(own, got, sizeof got, 0)), 21);
        CHECK_EQ(OK(recv(all, got, sizeof got, 0)), 21);
        struct {
            uint16_t family, protocol;
            int32_t index;
            uint16_t hardware;
            uint8_t kind, length, address[8];
        } to = {17, htons(0x88b5), 1, 0, 0, 6, {0}};
        CHECK_EQ(OK(sendto(all, "frame", 5, 0, (struct sockaddr *)&to, sizeof to)), 5);
    });
    ERR(recv(raw, got, sizeof got, 0), EAGAIN);
    ERR(recv(seen, got, sizeof got, 0), EAGAIN);
}

TEST(groups_are_joined_in_one) {
    needs_namespaces();
    struct ip_mreq group = {{htonl(0xef010203)}, {htonl(INADDR_LOOPBACK)}};
    IN_CHILD({
        enter_new(true);
        int s = OK(socket(AF_INET, SOCK_DGRAM, 0));
        OK(setsockopt(s, IPPROTO_IP, IP_ADD_MEMBERSHIP, &group, sizeof group));
        char text[4096];
        CHECK(get_file("/proc/net/igmp", text, sizeof text) > 0);
        CHECK(strstr(text, "030201EF") != NULL);
        int outside = open_of(getppid());
        OK(setns_(outside, NEWNET));
        CHECK(get_file("/proc/net/igmp", text, sizeof text) > 0);
        CHECK(strstr(text, "030201EF") == NULL);
    });
}

TEST(settings_are_of_a_namespace) {
    needs_namespaces();
    static const char *const range = "/proc/sys/net/ipv4/ip_local_port_range";
    static const char *const ttl = "/proc/sys/net/ipv4/ip_default_ttl";
    char before[64], after[64];
    CHECK(get_file(range, before, sizeof before) > 0);
    long hops = sysctl_number(ttl);
    IN_CHILD({
        enter_new(true);
        char now[64];
        put(range, "40000 40001\n");
        put(ttl, "77\n");
        CHECK(get_file(range, now, sizeof now) > 0);
        CHECK_STR(now, "40000\t40001\n");
        int a = udp_socket(AF_INET), b = udp_socket(AF_INET);
        int c = OK(socket(AF_INET, SOCK_DGRAM, 0));
        CHECK_EQ(port_of(a) + port_of(b), 80001);
        ERR(bind(c, LO4(0)), EADDRINUSE);
        CHECK_EQ(OPTION(c, IPPROTO_IP, IP_TTL), 77);
    });
    CHECK(get_file(range, after, sizeof after) > 0);
    CHECK_STR(after, before);
    CHECK_EQ(sysctl_number(ttl), hops);
}

/* ---- to which a socket belongs --------------------------------------------------------------- */

TEST(a_socket_stays_where_it_was_made) {
    needs_namespaces();
    int l = listener(AF_INET, 1), port = port_of(l);
    int s = OK(socket(AF_INET, SOCK_STREAM, 0)), outside = mtu_by(s);
    OK(unshare(NEWNET));
    CHECK((flags_by(s) & IFF_UP) != 0);
    OK(connect(s, LO4(port)));
    int a = OK(accept(l, NULL, NULL)), t = OK(socket(AF_INET, SOCK_STREAM, 0));
    CHECK((flags_by(a) & IFF_UP) != 0);
    CHECK_EQ(flags_by(t) & IFF_UP, 0);
    ERR(connect(t, LO4(port)), ENETUNREACH);
    OK(interface_up("lo"));
    set_mtu(outside - 4000);
    ERR(connect(t, LO4(port)), ECONNREFUSED);
    CHECK_EQ(mtu_by(s), outside);
    CHECK_EQ(mtu_by(t), outside - 4000);
    send_all(s, "abc", 3);
    char got[3];
    recv_all(a, got, 3);
}

TEST(a_descriptor_takes_its_namespace_along) {
    needs_namespaces();
    pid_t pid = INSIDE({
        set_mtu(1400);
        int l = listener(AF_INET, 1);
        give(end, l);
        int c = dial(AF_INET, port_of(l));
        send_all(c, "hello", 5);
        wait_for(end);
    });
    int l = take(pair[0]);
    /* Accepted here, it is of there all the same. */
    int a = OK(accept(l, NULL, NULL));
    CHECK_EQ(mtu_by(a), 1400);
    CHECK(mtu_here() != 1400);
    char got[5];
    recv_all(a, got, 5);
    CHECK(memcmp(got, "hello", 5) == 0);
    step(pair[0]);
    EXITS(pid, 0);
    /* No process is in it any more. It lives. */
    CHECK_EQ(mtu_by(l), 1400);
    ERR(connect(OK(socket(AF_INET, SOCK_STREAM, 0)), LO4(port_of(l))), ECONNREFUSED);
}

TEST(an_accepted_unix_socket_is_of_the_one_that_connected) {
    needs_namespaces();
    struct sockaddr_un path = {.sun_family = AF_UNIX, .sun_path = "at"};
    int l = OK(socket(AF_UNIX, SOCK_STREAM, 0)), outside = mtu_by(l);
    OK(bind(l, (struct sockaddr *)&path, sizeof path));
    OK(listen(l, 2));
    OK(connect(OK(socket(AF_UNIX, SOCK_STREAM, 0)), (struct sockaddr *)&path, sizeof path));
    enter_new(true);
    set_mtu(1400);
    OK(connect(OK(socket(AF_UNIX, SOCK_STREAM, 0)), (struct sockaddr *)&path, sizeof path));
    /* `unix_stream_connect` makes it. */
    CHECK_EQ(mtu_by(OK(accept(l, NULL, NULL))), outside);
    CHECK_EQ(mtu_by(OK(accept(l, NULL, NULL))), 1400);
    CHECK_EQ(mtu_by(l), outside);
}

/* ---- /proc ----------------------------------------------------------------------------------- */

TEST(proc_shows_that_of_the_process) {
    needs_namespaces();
    int l = listener(AF_INET, 1);
    char own[32], other[32], path[64], text[1 << 14];
    snprintf(own, sizeof own, ":%04X 00000000:0000 0A", port_of(l));
    pid_t pid = INSIDE({
        int m = listener(AF_INET, 1);
        int port = port_of(m);
        CHECK_EQ(OK(write(end, &port, sizeof port)), sizeof port);
        snprintf(other, sizeof other, ":%04X 00000000:0000 0A", port);
        CHECK(get_file("/proc/net/tcp", text, sizeof text) > 0);
        CHECK(strstr(text, other) != NULL && strstr(text, own) == NULL);
        snprintf(path, sizeof path, "/proc/%d/net/tcp", getppid());
        CHECK(get_file(path, text, sizeof text) > 0);
        CHECK(strstr(text, own) != NULL);
        CHECK(get_file("/proc/net/dev", text, sizeof text) > 0);
        CHECK(strstr(text, "lo:") != NULL && strstr(text, "eth0:") == NULL);
        CHECK(get_file("/proc/net/route", text, sizeof text) > 0);
        CHECK_EQ(strchr(text, '\n')[1], 0);
        wait_for(end);
    });
    int port;
    CHECK_EQ(OK(read(pair[0], &port, sizeof port)), sizeof port);
    snprintf(other, sizeof other, ":%04X 00000000:0000 0A", port);
    snprintf(path, sizeof path, "/proc/%d/net/tcp", pid);
    CHECK(get_file(path, text, sizeof text) > 0);
    CHECK(strstr(text, other) != NULL && strstr(text, own) == NULL);
    step(pair[0]);
    EXITS(pid, 0);
}

TEST(links_are_listed_and_announced_in_one) {
    needs_namespaces();
    struct sockaddr_nl_ {
        uint16_t family, padding;
        uint32_t port, groups;
    } all = {16 /* AF_NETLINK */, 0, 0, 1 /* RTMGRP_LINK */};
    int outside = OK(socket(16, SOCK_RAW | SOCK_NONBLOCK, 0));
    OK(bind(outside, (struct sockaddr *)&all, sizeof all));
    pid_t pid = INSIDE({
        int s = OK(socket(16, SOCK_RAW | SOCK_NONBLOCK, 0));
        OK(bind(s, (struct sockaddr *)&all, sizeof all));
        struct {
            uint32_t length;
            uint16_t kind, flags;
            uint32_t sequence, port;
            uint8_t family, padding;
            uint16_t type;
            int32_t index;
            uint32_t flags_of_link, change;
        } down = {32, 16 /* RTM_NEWLINK */, 5 /* with acknowledgement */, 1, 0, 0, 0, 0, 1, 0,
                  IFF_UP};
        CHECK_EQ(OK(send(s, &down, sizeof down, 0)), sizeof down);
        char got[8192];
        bool heard = false, done = false;
        ssize_t n;
        while ((n = recv(s, got, sizeof got, 0)) > 0) {
            uint16_t kind;
            memcpy(&kind, got + 4, 2);
            heard |= kind == 16;
            done |= kind == 2; /* NLMSG_ERROR */
        }
        CHECK(heard && done);
        int u = OK(socket(AF_INET, SOCK_DGRAM, 0));
        CHECK_EQ(flags_by(u) & IFF_UP, 0);
    });
    EXITS(pid, 0);
    char got[8192];
    ERR(recv(outside, got, sizeof got, 0), EAGAIN);
    int u = OK(socket(AF_INET, SOCK_DGRAM, 0));
    CHECK((flags_by(u) & IFF_UP) != 0);
}

/* ---- entering, and the end ------------------------------------------------------------------- */

TEST(it_is_entered_by_its_file_and_by_a_process) {
    needs_namespaces();
    int home = open_of(getpid());
    pid_t pid = INSIDE({
        set_mtu(1400);
        step(end);
        wait_for(end);
    });
    wait_for(pair[0]);
    int file = open_of(pid), process = OK(pidfd_of(pid));
    CHECK(number_of(file) != number_of(home));
    CHECK_EQ(OK(ioctl(file, NS_GET_NSTYPE)), NEWNET);
    ERR(ioctl(file, NS_GET_PARENT), EINVAL);
    int user = OK(ioctl(file, NS_GET_USERNS));
    CHECK_EQ(OK(ioctl(user, NS_GET_NSTYPE)), CLONE_NEWUSER);
    ERR(setns_(file, CLONE_NEWUTS), EINVAL);
    OK(setns_(file, 0));
    CHECK_EQ(mtu_here(), 1400);
    CHECK_EQ(number_of(open_of(getpid())), number_of(file));
    OK(setns_(home, NEWNET));
    CHECK(mtu_here() != 1400);
    OK(setns_(process, NEWNET));
    CHECK_EQ(mtu_here(), 1400);
    step(pair[0]);
    EXITS(pid, 0);
    IN_CHILD(CHECK_EQ(mtu_here(), 1400)); /* children are where their maker is */
    OK(setns_(home, NEWNET));
    /* The open file holds it. */
    OK(setns_(file, NEWNET));
    CHECK_EQ(mtu_here(), 1400);
}

TEST(a_bind_mount_holds_it) {
    needs_namespaces();
    OK(unshare(CLONE_NEWNS));
    OK(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL));
    PUT("held", "");
    IN_CHILD({
        enter_new(true);
        set_mtu(1400);
        OK(mount("/proc/self/ns/net", "held", NULL, MS_BIND, NULL));
    });
    IN_CHILD({
        OK(setns_(OK(open("held", O_RDONLY)), NEWNET));
        CHECK_EQ(mtu_here(), 1400);
        int e[2];
        tcp_pair(AF_INET, e);
    });
    OK(umount("held"));
}

TEST(clone_makes_one) {
    needs_namespaces();
    ino_t own = number_of(open_of(getpid()));
    pid_t pid = (pid_t)syscall(SYS_clone, NEWNET | SIGCHLD, 0, NULL, NULL, 0);
    if (pid == 0) {
        CHECK(number_of(open_of(getpid())) != own);
        int s = OK(socket(AF_INET, SOCK_DGRAM, 0));
        CHECK_EQ(flags_by(s) & IFF_UP, 0);
        _exit(0);
    }
    EXITS(OK(pid), 0);
    struct {
        uint64_t flags, pidfd, child, parent, signal, stack, size, tls;
    } three = {.flags = NEWNET, .signal = SIGCHLD};
    pid = (pid_t)syscall(SYS_clone3, &three, sizeof three);
    if (pid == 0)
        _exit(number_of(open_of(getpid())) != own ? 0 : 1);
    EXITS(OK(pid), 0);
    CHECK_EQ(number_of(open_of(getpid())), own);
}

TEST(many_come_and_go) {
    needs_namespaces();
    for (int i = 0; i < 60; i++)
        IN_CHILD({
            enter_new(true);
            int e[2], l = OK(socket(AF_INET, SOCK_STREAM, 0));
            OK(bind(l, LO4(80)));
            OK(listen(l, 1));
            e[0] = dial(AF_INET, 80);
            e[1] = OK(accept(l, NULL, NULL));
            OK(close(e[0]));
            AWAIT(e[1], POLLIN);
            OK(close(e[1]));
        });
}

TEST(a_user_has_a_number_of_them) {
    needs_namespaces();
    NEEDS_OWN_MACHINE();
    SET_SYSCTL("/proc/sys/user/max_net_namespaces", "0");
    ERR(unshare(NEWNET), ENOSPC);
    SET_SYSCTL("/proc/sys/user/max_net_namespaces", "100");
    OK(unshare(NEWNET));
}

/* ---- rights ---------------------------------------------------------------------------------- */

TEST(the_right_to_make_and_enter_one_is_the_administrators) {
    needs_namespaces();
    pid_t pid = INSIDE({
        step(end);
        wait_for(end);
    });
    wait_for(pair[0]);
    int file = open_of(pid);
    IN_CHILD({
        BECOME(NOBODY, NOBODY);
        ERR(unshare(NEWNET), EPERM);
        ERR(setns_(file, NEWNET), EPERM);
    });
    step(pair[0]);
    EXITS(pid, 0);
}

TEST(its_administrator_has_the_rights_of_its_user_namespace) {
    needs_namespaces();
    if (in_supervisor_mode())
        SKIP("in supervisor mode there is no user namespace");
    OK(chmod(".", 0777));
    int home = open_of(getpid()), old = OK(socket(AF_INET, SOCK_DGRAM, 0));
    int privileged = sysctl_number("/proc/sys/net/ipv4/ip_unprivileged_port_start") > 80;
    pid_t pid = FORK();
    if (pid == 0) {
        BECOME(1000, 1000);
        OK(prctl(PR_SET_DUMPABLE, 1, 0, 0, 0));
        if (unshare(CLONE_NEWUSER) == -1)
            SKIP("users may make no user namespace");
        put("/proc/self/setgroups", "deny");
        put("/proc/self/uid_map", "0 1000 1");
        put("/proc/self/gid_map", "0 1000 1");
        /* The network of outside is not this one's. */
        ERR(socket(AF_INET, SOCK_RAW, 253), EPERM);
        ERR(socket(17 /* AF_PACKET */, SOCK_RAW, 0), EPERM);
        struct ifreq r = {.ifr_name = "lo", .ifr_flags = IFF_UP};
        ERR(ioctl(old, SIOCSIFFLAGS, &r), EPERM);
        if (privileged)
            ERR(bind(OK(socket(AF_INET, SOCK_STREAM, 0)), LO4(80)), EACCES);
        OK(unshare(NEWNET));
        ERR(ioctl(old, SIOCSIFFLAGS, &r), EPERM);
        OK(interface_up("lo"));
        int raw = OK(socket(AF_INET, SOCK_RAW, 253));
        OK(socket(17, SOCK_RAW, 0));
        CHECK_EQ(OK(sendto(raw, "x", 1, 0, LO4(0))), 1);
        OK(bind(OK(socket(AF_INET, SOCK_STREAM, 0)), LO4(80)));
        OK(set_option(raw, SOL_SOCKET, 36 /* SO_MARK */, 5));
        put("/proc/sys/net/ipv4/ip_unprivileged_port_start", "0");
        CHECK_EQ(sysctl_number("/proc/sys/net/ipv4/ip_unprivileged_port_start"), 0);
        ERR(setns_(home, NEWNET), EPERM);
        int file = open_of(getpid()), user = OK(ioctl(file, NS_GET_USERNS));
        struct stat own, found;
        OK(fstat(user, &found));
        OK(stat("/proc/self/ns/user", &own));
        CHECK_EQ(found.st_ino, own.st_ino);
        _exit(0);
    }
    int status = WAIT(pid);
    if (WIFEXITED(status) && WEXITSTATUS(status) == HY_EXIT_SKIPPED)
        _exit(HY_EXIT_SKIPPED);
    CHECK_EQ(status, 0);
}
