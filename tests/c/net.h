/*
 * Shared by the areas of the network: addresses on loopback, options, pairs of sockets, and rights
 * that a case needs. Ports are always chosen by the kernel, so that programs may run side by side.
 * musl brings no header of Linux: constants and layouts that it lacks are written here by the names
 * of include/uapi/linux (6.18).
 */
#ifndef NET_H
#define NET_H

#include "harness.h"
#include <arpa/inet.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>

/* ---- filters of sockets, linux/filter.h ------------------------------------------------------ */

#define SO_ATTACH_FILTER_ 26
#define SO_DETACH_FILTER_ 27
#define SO_LOCK_FILTER_ 44
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

/* ---- addresses ------------------------------------------------------------------------------- */

/* Each gives two arguments: a pointer to the address, and its length. */
#define AT4(host, port)                                                                            \
    (struct sockaddr *)&(struct sockaddr_in){.sin_family = AF_INET,                                \
                                             .sin_port = htons((uint16_t)(port)),                  \
                                             .sin_addr.s_addr = htonl(host)},                      \
        sizeof(struct sockaddr_in)
#define AT6(host, port)                                                                            \
    (struct sockaddr *)&(struct sockaddr_in6){.sin6_family = AF_INET6,                             \
                                              .sin6_port = htons((uint16_t)(port)),                \
                                              .sin6_addr = host},                                  \
        sizeof(struct sockaddr_in6)
#define LO4(port) AT4(INADDR_LOOPBACK, port)
#define ANY4(port) AT4(INADDR_ANY, port)
#define LO6(port) AT6(((struct in6_addr)IN6ADDR_LOOPBACK_INIT), port)
#define ANY6(port) AT6(((struct in6_addr)IN6ADDR_ANY_INIT), port)
/* ::ffff:127.0.0.1 */
#define MAPPED                                                                                     \
    ((struct in6_addr){{{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 127, 0, 0, 1}}})
/* An address for documents (RFC 5737): no machine has it. */
#define STRANGER 0xc6336401u /* 198.51.100.1 */

union address {
    struct sockaddr any;
    struct sockaddr_in four;
    struct sockaddr_in6 six;
    struct sockaddr_storage storage;
};

static UNUSED union address name_of(int s) {
    union address a = {0};
    socklen_t length = sizeof a;
    OK(getsockname(s, &a.any, &length));
    CHECK_EQ(length, a.any.sa_family == AF_INET6 ? 28 : 16);
    return a;
}
static UNUSED union address peer_of(int s) {
    union address a = {0};
    socklen_t length = sizeof a;
    OK(getpeername(s, &a.any, &length));
    CHECK_EQ(length, a.any.sa_family == AF_INET6 ? 28 : 16);
    return a;
}
static UNUSED int port_in(union address a) {
    return ntohs(a.any.sa_family == AF_INET6 ? a.six.sin6_port : a.four.sin_port);
}
static UNUSED uint32_t host_in(union address a) { return ntohl(a.four.sin_addr.s_addr); }
static UNUSED int port_of(int s) { return port_in(name_of(s)); }

/* ---- options --------------------------------------------------------------------------------- */

static UNUSED int set_option(int s, int level, int name, int value) {
    return setsockopt(s, level, name, &value, sizeof value);
}
static UNUSED int hy_option(const char *file, int line, int s, int level, int name) {
    int value = 0x5a5a5a5a;
    socklen_t length = sizeof value;
    if (getsockopt(s, level, name, &value, &length) == -1)
        hy_fail(file, line, "getsockopt(%d, %d): %s", level, name, strerror(errno));
    if (length != sizeof value)
        hy_fail(file, line, "getsockopt(%d, %d) has %u bytes", level, name, length);
    return value;
}
#define OPTION(s, level, name) hy_option(__FILE__, __LINE__, s, level, name)

static UNUSED void nonblocking(int fd) {
    OK(fcntl(fd, F_SETFL, OK(fcntl(fd, F_GETFL)) | O_NONBLOCK));
}
static UNUSED void blocking(int fd) {
    OK(fcntl(fd, F_SETFL, OK(fcntl(fd, F_GETFL)) & ~O_NONBLOCK));
}

/* ---- waiting --------------------------------------------------------------------------------- */

/* How long an event that must come may take, in milliseconds. */
#define SOON 20000

/* The events that poll finds within this time. */
static UNUSED int events_of(int fd, int events, int ms) {
    struct pollfd p = {fd, (short)events, 0};
    int n;
    do
        n = poll(&p, 1, ms);
    while (n == -1 && errno == EINTR);
    if (n == -1)
        FAIL("poll: %s", strerror(errno));
    return p.revents;
}
/* Waits for one of these events, and gives all that are. */
#define AWAIT(fd, events)                                                                          \
    ({                                                                                             \
        int hy_ev = events_of(fd, events, SOON);                                                   \
        if (hy_ev == 0)                                                                            \
            FAIL("%s never came", #events);                                                        \
        hy_ev;                                                                                     \
    })
/* Waits until all of these events are there at once, for those that come one after the other. */
#define AWAIT_ALL(fd, events) EVENTUALLY((events_of(fd, events, 0) & (events)) == (events))

/* ---- pairs ----------------------------------------------------------------------------------- */

/* A TCP listener on loopback. */
static UNUSED int listener(int family, int backlog) {
    int s = OK(socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (family == AF_INET6)
        OK(bind(s, LO6(0)));
    else
        OK(bind(s, LO4(0)));
    OK(listen(s, backlog));
    return s;
}
/* Connects to the port on loopback. */
static UNUSED int dial(int family, int port) {
    int s = OK(socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (family == AF_INET6)
        OK(connect(s, LO6(port)));
    else
        OK(connect(s, LO4(port)));
    return s;
}
/* Two ends of a TCP connection: the one that called, and the one that was accepted. */
static UNUSED void tcp_pair(int family, int ends[2]) {
    int l = listener(family, 1);
    ends[0] = dial(family, port_of(l));
    ends[1] = OK(accept4(l, NULL, NULL, SOCK_CLOEXEC));
    OK(close(l));
}
/* A UDP socket bound to loopback. */
static UNUSED int udp_socket(int family) {
    int s = OK(socket(family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    if (family == AF_INET6)
        OK(bind(s, LO6(0)));
    else
        OK(bind(s, LO4(0)));
    return s;
}
static UNUSED void send_all(int s, const void *data, size_t size) {
    for (size_t done = 0; done < size;) {
        ssize_t n = send(s, (const char *)data + done, size - done, MSG_NOSIGNAL);
        if (n == -1)
            FAIL("send of %zu bytes: %s", size - done, strerror(errno));
        done += (size_t)n;
    }
}
static UNUSED void recv_all(int s, void *data, size_t size) {
    for (size_t done = 0; done < size;) {
        ssize_t n = recv(s, (char *)data + done, size - done, 0);
        if (n <= 0)
            FAIL("recv of %zu bytes gave %zd: %s", size - done, n, n ? strerror(errno) : "end");
        done += (size_t)n;
    }
}

/* ---- rights ---------------------------------------------------------------------------------- */

#define CAP_NET_BIND_SERVICE 10
#define CAP_NET_ADMIN 12
#define CAP_NET_RAW 13

static UNUSED bool has_capability(int number) {
    struct {
        uint32_t version;
        int pid;
    } header = {0x20080522, 0};
    struct {
        uint32_t effective, permitted, inheritable;
    } sets[2] = {{0}};
    if (syscall(SYS_capget, &header, sets) == -1)
        return false;
    return sets[number / 32].effective >> number % 32 & 1;
}
#define NEEDS_CAPABILITY(name)                                                                     \
    do {                                                                                           \
        if (!has_capability(name))                                                                 \
            SKIP("needs " #name);                                                                  \
    } while (0)
#define NEEDS_ROOT()                                                                               \
    do {                                                                                           \
        if (geteuid() != 0)                                                                        \
            SKIP("needs root");                                                                    \
    } while (0)
/* Containers are often without IPv6. */
#define NEEDS_IPV6()                                                                               \
    do {                                                                                           \
        if (access("/proc/net/if_inet6", F_OK) == -1)                                              \
            SKIP("no IPv6");                                                                       \
        int hy_six = OK(socket(AF_INET6, SOCK_DGRAM, 0));                                          \
        if (bind(hy_six, LO6(0)) == -1 && errno == EADDRNOTAVAIL)                                  \
            SKIP("no ::1");                                                                        \
        OK(close(hy_six));                                                                         \
    } while (0)

/* A number in a file of /proc/sys; -1 when it cannot be read. */
static UNUSED long sysctl_number(const char *path) {
    char text[256];
    if (get_file(path, text, sizeof text) <= 0)
        return -1;
    return atol(text);
}

/* Makes an interface work. */
static UNUSED int interface_up(const char *name) {
    struct ifreq r = {0};
    strncpy(r.ifr_name, name, IFNAMSIZ - 1);
    int s = OK(socket(AF_INET, SOCK_DGRAM, 0)), result = ioctl(s, SIOCGIFFLAGS, &r);
    r.ifr_flags |= IFF_UP;
    if (result == 0)
        result = ioctl(s, SIOCSIFFLAGS, &r);
    close(s);
    return result;
}
/* Whether the machine has a route to a host that is none of its own: a machine without a device has
 * none, not even to all hosts of its link. */
static UNUSED bool has_route_to(uint32_t host) {
    static char table[1 << 16];
    if (get_file("/proc/net/route", table, sizeof table) == -1)
        FAIL("/proc/net/route: %s", strerror(errno));
    for (char *line = strchr(table, '\n'); line; line = strchr(line + 1, '\n')) {
        unsigned to, mask;
        if (sscanf(line, " %*s %x %*x %*x %*d %*d %*d %x", &to, &mask) == 2 &&
            (htonl(host) & mask) == to)
            return true;
    }
    return false;
}
/* The error of sending to all hosts of the link without having asked for it (SO_BROADCAST). */
static UNUSED int broadcast_error(void) {
    return has_route_to(INADDR_BROADCAST) ? EACCES : ENETUNREACH;
}
/* Gives the case a network whose settings it may change: a namespace of its own, or the machine's
 * where the machine is the tests' own. */
static UNUSED void own_network(void) {
    if (geteuid() == 0 && unshare(0x40000000 /* CLONE_NEWNET */) == 0) {
        OK(interface_up("lo"));
        hy_keeps_settings = false; /* they end with the namespace, which is not the runner's */
        return;
    }
    NEEDS_OWN_MACHINE();
}

/* ---- an Ethernet ----------------------------------------------------------------------------- */

/* An interface with an Ethernet and an address of IPv4; 0 if there is none. */
static UNUSED int ethernet(void) {
    struct if_nameindex *all = if_nameindex();
    int found = 0, s = OK(socket(AF_INET, SOCK_DGRAM, 0));
    for (struct if_nameindex *i = all; i && i->if_index && !found; i++) {
        struct ifreq r = {0};
        snprintf(r.ifr_name, sizeof r.ifr_name, "%s", i->if_name);
        if (ioctl(s, SIOCGIFFLAGS, &r) == -1 || !(r.ifr_flags & IFF_UP) ||
            !(r.ifr_flags & IFF_MULTICAST) || (r.ifr_flags & IFF_LOOPBACK))
            continue;
        if (ioctl(s, SIOCGIFADDR, &r) == 0)
            found = (int)i->if_index;
    }
    if_freenameindex(all);
    OK(close(s));
    return found;
}
/* struct sockaddr_ll */
struct link_address {
    uint16_t family, protocol;
    int index;
    uint16_t hardware;
    uint8_t packet, length, address[8];
};
/* A packet socket that sees what an interface sends and receives. */
static UNUSED int watcher(int index) {
    int s = OK(socket(AF_PACKET, SOCK_DGRAM | SOCK_CLOEXEC, htons(3 /* ETH_P_ALL */)));
    struct link_address a = {.family = AF_PACKET, .protocol = htons(3), .index = index};
    OK(bind(s, (struct sockaddr *)&a, sizeof a));
    return s;
}

/* ---- checksums ------------------------------------------------------------------------------- */

/* The Internet checksum (RFC 1071), in the order of the network. */
static UNUSED uint16_t sum_of(const void *data, size_t size) {
    const unsigned char *b = data;
    uint32_t sum = 0;
    for (size_t i = 0; i < size; i++)
        sum += i % 2 ? b[i] : (uint32_t)b[i] << 8;
    while (sum >> 16)
        sum = (sum & 0xffff) + (sum >> 16);
    return htons((uint16_t)~sum);
}

#endif
