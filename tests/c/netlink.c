/*
 * Interfaces and addresses: rtnetlink(7), netdevice(7), getifaddrs(3), if_nametoindex(3). The cases
 * look at lo, which every machine has.
 */
#define AREA "netlink"
#include "net.h"
#include <ifaddrs.h>
#include <net/if_arp.h>
#include <netpacket/packet.h>

/* linux/netlink.h and linux/rtnetlink.h */
struct header {
    uint32_t length;
    uint16_t type, flags;
    uint32_t sequence, port;
};
struct name {
    uint16_t family, pad;
    uint32_t port, groups;
};
struct general {
    unsigned char family;
};
struct link_message {
    unsigned char family, pad;
    uint16_t type;
    int index;
    unsigned flags, change;
};
struct address_message {
    unsigned char family, prefix, flags, scope;
    uint32_t index;
};
struct route_message {
    unsigned char family, target_bits, source_bits, tos, table, protocol, scope, type;
    unsigned flags;
};
struct attribute {
    uint16_t length, type;
};
struct error_message {
    int error;
    struct header about;
};
#define NETLINK_ROUTE 0
enum { REQUEST = 1, MULTI = 2, ACK = 4, DUMP = 0x300 };
enum { NLMSG_ERROR = 2, NLMSG_DONE = 3 };
enum { NEWLINK = 16, DELLINK, GETLINK, NEWADDR = 20, GETADDR = 22, NEWROUTE = 24, GETROUTE = 26 };
enum { IFLA_ADDRESS = 1, IFLA_BROADCAST, IFLA_IFNAME, IFLA_MTU, IFLA_STATS = 7, IFLA_TXQLEN = 13,
       IFLA_OPERSTATE = 16 };
enum { IFA_ADDRESS = 1, IFA_LOCAL, IFA_LABEL };
enum { RTA_DST = 1, RTA_OIF = 4, RTA_PREFSRC = 7, RTA_TABLE = 15 };
enum { TABLE_LOCAL = 255, TYPE_LOCAL = 2, SCOPE_HOST = 254 };
#define ROUND(n) (((n) + 3u) & ~3u)

/* ---- messages -------------------------------------------------------------------------------- */

static int netlink(void) {
    int s = OK(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE));
    struct name n = {.family = AF_NETLINK};
    OK(bind(s, (struct sockaddr *)&n, sizeof n));
    return s;
}
static uint32_t sequence;
/* Sends a request with this body. */
static void ask(int s, int type, int flags, const void *body, size_t size) {
    char m[256] = {0};
    struct header h = {(uint32_t)(sizeof h + size), (uint16_t)type, (uint16_t)(flags | REQUEST),
                       ++sequence, 0};
    memcpy(m, &h, sizeof h);
    memcpy(m + sizeof h, body, size);
    CHECK_EQ(OK(send(s, m, sizeof h + size, 0)), (ssize_t)(sizeof h + size));
}
static _Alignas(8) char buffer[65536];
static uint32_t at, end;
/* The next message of an answer. */
static struct header *next(int s) {
    if (at >= end) {
        struct name from;
        socklen_t length = sizeof from;
        AWAIT(s, POLLIN);
        struct sockaddr *a = (struct sockaddr *)&from;
        end = (uint32_t)OK(recvfrom(s, buffer, sizeof buffer, 0, a, &length));
        CHECK_EQ(length, sizeof from);
        CHECK_EQ(from.family, AF_NETLINK);
        CHECK_EQ(from.port, 0); /* the kernel */
        at = 0;
    }
    struct header *h = (struct header *)(buffer + at);
    CHECK(end - at >= sizeof *h && h->length >= sizeof *h && h->length <= end - at);
    at += ROUND(h->length);
    return h;
}
/* The next message of a dump; NULL after the last one. */
static struct header *dumped(int s, int type) {
    struct header *h = next(s);
    CHECK_EQ(h->sequence, sequence);
    CHECK((h->flags & MULTI) != 0);
    if (h->type == NLMSG_DONE) {
        CHECK_EQ(*(int *)(h + 1), 0);
        return NULL;
    }
    CHECK_EQ(h->type, type);
    return h;
}
static int error_in(struct header *h) {
    CHECK_EQ(h->type, NLMSG_ERROR);
    CHECK_EQ(h->sequence, sequence);
    struct error_message *e = (struct error_message *)(h + 1);
    CHECK_EQ(e->about.sequence, sequence);
    return e->error;
}
static void *attribute_of(struct header *h, size_t fixed, int type, size_t *size) {
    uint32_t i = (uint32_t)(sizeof *h + ROUND(fixed));
    while (i + sizeof(struct attribute) <= h->length) {
        struct attribute *a = (struct attribute *)((char *)h + i);
        CHECK(a->length >= sizeof *a && i + a->length <= h->length);
        if ((a->type & 0x3fff) == type) {
            if (size)
                *size = a->length - sizeof *a;
            return a + 1;
        }
        i += ROUND(a->length);
    }
    return NULL;
}

/* ---- the library's view ---------------------------------------------------------------------- */

TEST(interfaces_have_addresses) {
    struct ifaddrs *all;
    OK(getifaddrs(&all));
    bool link = false, four = false, six = false;
    for (struct ifaddrs *i = all; i; i = i->ifa_next) {
        if (strcmp(i->ifa_name, "lo") != 0)
            continue;
        CHECK((i->ifa_flags & (IFF_UP | IFF_LOOPBACK | IFF_RUNNING)) ==
              (IFF_UP | IFF_LOOPBACK | IFF_RUNNING));
        CHECK((i->ifa_flags & IFF_BROADCAST) == 0);
        if (!i->ifa_addr)
            continue;
        union address *a = (union address *)i->ifa_addr, *mask = (union address *)i->ifa_netmask;
        if (a->any.sa_family == AF_PACKET) {
            struct sockaddr_ll *l = (struct sockaddr_ll *)a;
            CHECK_EQ(l->sll_ifindex, (int)if_nametoindex("lo"));
            CHECK_EQ(l->sll_hatype, ARPHRD_LOOPBACK);
            CHECK_EQ(l->sll_halen, 6);
            link = true;
        } else if (a->any.sa_family == AF_INET && host_in(*a) == INADDR_LOOPBACK) {
            CHECK(mask && host_in(*mask) == 0xff000000);
            four = true;
        } else if (a->any.sa_family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&a->six.sin6_addr)) {
            CHECK(mask != NULL);
            for (int b = 0; b < 16; b++)
                CHECK_EQ(mask->six.sin6_addr.s6_addr[b], 255);
            six = true;
        }
    }
    freeifaddrs(all);
    CHECK(link);
    CHECK(four);
    NEEDS_IPV6();
    CHECK(six);
}

TEST(names_and_numbers) {
    unsigned lo = if_nametoindex("lo");
    char name[IFNAMSIZ];
    CHECK(lo != 0);
    CHECK(if_indextoname(lo, name) == name);
    CHECK_STR(name, "lo");
    errno = 0;
    CHECK(if_nametoindex("no-such") == 0);
    CHECK_EQ(errno, ENODEV);
    CHECK(if_indextoname(100000, name) == NULL);
    CHECK_EQ(errno, ENXIO);
    struct if_nameindex *all = if_nameindex();
    CHECK(all != NULL);
    bool found = false;
    for (struct if_nameindex *i = all; i->if_index; i++)
        found |= i->if_index == lo && strcmp(i->if_name, "lo") == 0;
    if_freenameindex(all);
    CHECK(found);
}

/* ---- netlink sockets ------------------------------------------------------------------------- */

TEST(sockets_of_netlink) {
    ERR(socket(AF_NETLINK, SOCK_STREAM, NETLINK_ROUTE), ESOCKTNOSUPPORT);
    ERR(socket(AF_NETLINK, SOCK_RAW, 99), EPROTONOSUPPORT);
    ERR(socket(AF_NETLINK, SOCK_RAW, -1), EPROTONOSUPPORT);
    int s = OK(socket(AF_NETLINK, SOCK_DGRAM, NETLINK_ROUTE)); /* the same as SOCK_RAW */
    CHECK_EQ(OPTION(s, SOL_SOCKET, SO_DOMAIN), AF_NETLINK);
    CHECK_EQ(OPTION(s, SOL_SOCKET, SO_TYPE), SOCK_DGRAM);
    CHECK_EQ(OPTION(s, SOL_SOCKET, SO_PROTOCOL), NETLINK_ROUTE);
    struct name n = {0};
    socklen_t length = sizeof n;
    OK(getsockname(s, (struct sockaddr *)&n, &length));
    CHECK_EQ(length, 12);
    CHECK_EQ(n.family, AF_NETLINK);
    CHECK_EQ(n.port, 0);
    ERR(bind(s, (struct sockaddr *)&n, 11), EINVAL);
    struct name other = {.family = AF_INET};
    ERR(bind(s, (struct sockaddr *)&other, sizeof other), EINVAL);
    OK(bind(s, (struct sockaddr *)&n, sizeof n));
    OK(getsockname(s, (struct sockaddr *)&n, &length));
    CHECK_EQ(n.port, getpid()); /* the first of a process */
    int t = netlink();
    OK(getsockname(t, (struct sockaddr *)&n, &length));
    CHECK(n.port != (uint32_t)getpid() && n.port != 0);
    struct name taken = {.family = AF_NETLINK, .port = (uint32_t)getpid()};
    ERR(bind(OK(socket(AF_NETLINK, SOCK_RAW, NETLINK_ROUTE)), (struct sockaddr *)&taken,
             sizeof taken), EADDRINUSE);
    taken.port = 1234567;
    ERR(bind(t, (struct sockaddr *)&taken, sizeof taken), EINVAL); /* it has another */
    ERR(listen(s, 1), EOPNOTSUPP);
    ERR(accept(s, NULL, NULL), EOPNOTSUPP);
    ERR(shutdown(s, SHUT_RD), EOPNOTSUPP);
    CHECK_EQ(events_of(s, POLLIN | POLLOUT, 0), POLLOUT);
    char c;
    ERR(recv(s, &c, 1, MSG_DONTWAIT), EAGAIN);
    ERR(send(s, &c, 1, MSG_OOB), EOPNOTSUPP);
}

TEST(links_are_dumped) {
    int s = netlink();
    ask(s, GETLINK, DUMP, &(struct general){AF_UNSPEC}, sizeof(struct general));
    bool found = false;
    struct header *h;
    struct name own;
    socklen_t length = sizeof own;
    OK(getsockname(s, (struct sockaddr *)&own, &length));
    while ((h = dumped(s, NEWLINK))) {
        CHECK_EQ(h->port, own.port);
        struct link_message *m = (struct link_message *)(h + 1);
        CHECK_EQ(m->family, AF_UNSPEC);
        size_t size;
        char *name = attribute_of(h, sizeof *m, IFLA_IFNAME, &size);
        CHECK(name && size >= 2 && name[size - 1] == 0);
        if (strcmp(name, "lo") != 0)
            continue;
        found = true;
        CHECK_EQ(m->type, ARPHRD_LOOPBACK);
        CHECK_EQ(m->index, (int)if_nametoindex("lo"));
        CHECK((m->flags & (IFF_UP | IFF_LOOPBACK)) == (IFF_UP | IFF_LOOPBACK));
        unsigned *mtu = attribute_of(h, sizeof *m, IFLA_MTU, &size);
        CHECK(mtu && size == 4 && *mtu == 65536);
        unsigned char *address = attribute_of(h, sizeof *m, IFLA_ADDRESS, &size);
        CHECK(address && size == 6 && memcmp(address, "\0\0\0\0\0\0", 6) == 0);
        CHECK(attribute_of(h, sizeof *m, IFLA_STATS, &size) && size >= 23 * 4);
        CHECK(attribute_of(h, sizeof *m, IFLA_OPERSTATE, &size) && size == 1);
    }
    CHECK(found);
}

TEST(one_link_is_asked_for) {
    int s = netlink();
    struct link_message m = {.index = (int)if_nametoindex("lo")};
    ask(s, GETLINK, 0, &m, sizeof m);
    struct header *h = next(s);
    CHECK_EQ(h->type, NEWLINK);
    CHECK_EQ(h->flags & MULTI, 0);
    CHECK_EQ(h->sequence, sequence);
    CHECK_STR(attribute_of(h, sizeof m, IFLA_IFNAME, NULL), "lo");
    ERR(recv(s, buffer, 1, MSG_DONTWAIT), EAGAIN);
    /* By its name. */
    struct {
        struct link_message m;
        struct attribute a;
        char name[4];
    } by_name = {.a = {7, IFLA_IFNAME}, .name = "lo"};
    ask(s, GETLINK, 0, &by_name, sizeof by_name);
    h = next(s);
    CHECK_EQ(h->type, NEWLINK);
    CHECK_EQ(((struct link_message *)(h + 1))->index, m.index);
    m.index = 100000;
    ask(s, GETLINK, 0, &m, sizeof m);
    CHECK_EQ(error_in(next(s)), -ENODEV);
    m.index = 0;
    ask(s, GETLINK, 0, &m, sizeof m);
    CHECK_EQ(error_in(next(s)), -EINVAL);
}

TEST(addresses_are_dumped) {
    int s = netlink();
    static const int families[] = {AF_INET, AF_INET6};
    bool found[2] = {false, false};
    for (int i = 0; i < 2; i++) {
        struct address_message ask_for = {.family = (unsigned char)families[i]};
        ask(s, GETADDR, DUMP, &ask_for, sizeof ask_for);
        struct header *h;
        while ((h = dumped(s, NEWADDR))) {
            struct address_message *m = (struct address_message *)(h + 1);
            CHECK_EQ(m->family, families[i]);
            if (m->index != if_nametoindex("lo"))
                continue;
            size_t size;
            unsigned char *a = attribute_of(h, sizeof *m, IFA_ADDRESS, &size);
            CHECK(a && size == (i ? 16 : 4));
            if (i ? !IN6_IS_ADDR_LOOPBACK((struct in6_addr *)a) : memcmp(a, "\x7f\0\0\1", 4) != 0)
                continue;
            CHECK_EQ(m->prefix, i ? 128 : 8);
            CHECK_EQ(m->scope, SCOPE_HOST);
            CHECK((m->flags & 0x80) != 0); /* IFA_F_PERMANENT */
            if (i == 0) {
                CHECK_STR(attribute_of(h, sizeof *m, IFA_LABEL, NULL), "lo");
                CHECK(memcmp(attribute_of(h, sizeof *m, IFA_LOCAL, NULL), "\x7f\0\0\1", 4) == 0);
            }
            found[i] = true;
        }
    }
    CHECK(found[0]);
    NEEDS_IPV6();
    CHECK(found[1]);
}

TEST(routes_are_dumped) {
    int s = netlink();
    struct route_message any = {.family = AF_INET};
    ask(s, GETROUTE, DUMP, &any, sizeof any);
    bool net = false, host = false;
    struct header *h;
    while ((h = dumped(s, NEWROUTE))) {
        struct route_message *m = (struct route_message *)(h + 1);
        CHECK_EQ(m->family, AF_INET);
        size_t size;
        unsigned char *to = attribute_of(h, sizeof *m, RTA_DST, &size);
        int *out = attribute_of(h, sizeof *m, RTA_OIF, NULL);
        unsigned *table = attribute_of(h, sizeof *m, RTA_TABLE, NULL);
        CHECK(table != NULL);
        if (!to || !out || *out != (int)if_nametoindex("lo") || *table != TABLE_LOCAL ||
            m->type != TYPE_LOCAL)
            continue;
        CHECK_EQ(size, 4);
        net |= m->target_bits == 8 && memcmp(to, "\x7f\0\0\0", 4) == 0;
        host |= m->target_bits == 32 && memcmp(to, "\x7f\0\0\1", 4) == 0;
        if (to[0] == 127)
            CHECK(memcmp(attribute_of(h, sizeof *m, RTA_PREFSRC, NULL), "\x7f\0\0\1", 4) == 0);
    }
    CHECK(net);
    CHECK(host);
}

TEST(one_route_is_looked_up) {
    int s = netlink();
    struct {
        struct route_message m;
        struct attribute a;
        unsigned char to[4];
    } ask_for = {.m = {.family = AF_INET, .target_bits = 32}, .a = {8, RTA_DST},
                 .to = {127, 1, 2, 3}};
    ask(s, GETROUTE, 0, &ask_for, sizeof ask_for);
    struct header *h = next(s);
    CHECK_EQ(h->type, NEWROUTE);
    struct route_message *m = (struct route_message *)(h + 1);
    CHECK_EQ(m->type, TYPE_LOCAL);
    CHECK_EQ(*(int *)attribute_of(h, sizeof *m, RTA_OIF, NULL), (int)if_nametoindex("lo"));
}

TEST(requests_are_acknowledged_or_refused) {
    int s = netlink();
    struct link_message m = {.index = (int)if_nametoindex("lo")};
    ask(s, GETLINK, ACK, &m, sizeof m);
    CHECK_EQ(next(s)->type, NEWLINK);
    CHECK_EQ(error_in(next(s)), 0);
    /* A type that there is not, a body that is short, a message that is no request. */
    ask(s, 999, 0, &m, sizeof m);
    CHECK_EQ(error_in(next(s)), -EOPNOTSUPP);
    ask(s, GETLINK, 0, &m, 3);
    CHECK_EQ(error_in(next(s)), -EINVAL);
    struct header h = {sizeof h, GETLINK, 0, ++sequence, 0};
    CHECK_EQ(OK(send(s, &h, sizeof h, 0)), sizeof h);
    CHECK_EQ(events_of(s, POLLIN, 20), 0); /* it is passed over in silence */
    h = (struct header){sizeof h + 100, GETLINK, REQUEST, ++sequence, 0}; /* longer than it is */
    CHECK_EQ(OK(send(s, &h, sizeof h, 0)), sizeof h);
    CHECK_EQ(events_of(s, POLLIN, 20), 0);
    /* Two in one send. */
    struct {
        struct header h;
        struct link_message m;
    } two[2] = {{{sizeof two[0], GETLINK, REQUEST, 71, 0}, m},
                {{sizeof two[0], GETLINK, REQUEST, 72, 0}, m}};
    CHECK_EQ(OK(send(s, two, sizeof two, 0)), sizeof two);
    CHECK_EQ(next(s)->sequence, 71);
    CHECK_EQ(next(s)->sequence, 72);
}

TEST(changes_are_for_the_privileged) {
    NEEDS_ROOT();
    BECOME(NOBODY, NOBODY);
    int s = netlink();
    struct link_message m = {.index = (int)if_nametoindex("lo"), .change = IFF_UP};
    ask(s, NEWLINK, ACK, &m, sizeof m);
    CHECK_EQ(error_in(next(s)), -EPERM);
    struct {
        struct address_message m;
        struct attribute a;
        unsigned char address[4];
    } add = {{AF_INET, 32, 0, SCOPE_HOST, if_nametoindex("lo")}, {8, IFA_LOCAL}, {127, 9, 9, 9}};
    ask(s, NEWADDR, ACK, &add, sizeof add);
    CHECK_EQ(error_in(next(s)), -EPERM);
    /* Everybody may ask. */
    m = (struct link_message){.index = (int)if_nametoindex("lo")};
    ask(s, GETLINK, 0, &m, sizeof m);
    CHECK_EQ(next(s)->type, NEWLINK);
}

TEST(a_short_buffer_loses_the_rest) {
    int s = netlink();
    struct link_message m = {.index = (int)if_nametoindex("lo")};
    ask(s, GETLINK, 0, &m, sizeof m);
    char small[20];
    ssize_t whole = OK(recv(s, small, sizeof small, MSG_PEEK | MSG_TRUNC));
    CHECK(whole > 100);
    struct iovec v = {small, sizeof small};
    struct msghdr message = {.msg_iov = &v, .msg_iovlen = 1};
    CHECK_EQ(OK(recvmsg(s, &message, 0)), sizeof small);
    CHECK_EQ(message.msg_flags, MSG_TRUNC);
    ERR(recv(s, small, 1, MSG_DONTWAIT), EAGAIN);
}

/* ---- ioctl ----------------------------------------------------------------------------------- */

static struct ifreq request_of(const char *name) {
    struct ifreq r;
    memset(&r, 0, sizeof r);
    strcpy(r.ifr_name, name);
    return r;
}
static uint32_t four_in(const struct sockaddr *a) {
    CHECK_EQ(a->sa_family, AF_INET);
    return ntohl(((const struct sockaddr_in *)a)->sin_addr.s_addr);
}

TEST(an_interface_by_ioctl) {
    int sockets[] = {OK(socket(AF_INET, SOCK_DGRAM, 0)), OK(socket(AF_INET, SOCK_STREAM, 0))};
    for (int i = 0; i < 2; i++) {
        int s = sockets[i];
        struct ifreq r = request_of("lo");
        OK(ioctl(s, SIOCGIFFLAGS, &r));
        CHECK((r.ifr_flags & (IFF_UP | IFF_LOOPBACK | IFF_RUNNING)) ==
              (IFF_UP | IFF_LOOPBACK | IFF_RUNNING));
        r = request_of("lo");
        OK(ioctl(s, SIOCGIFADDR, &r));
        CHECK_EQ(four_in(&r.ifr_addr), INADDR_LOOPBACK);
        r = request_of("lo");
        OK(ioctl(s, SIOCGIFNETMASK, &r));
        CHECK_EQ(four_in(&r.ifr_netmask), 0xff000000);
        r = request_of("lo");
        OK(ioctl(s, SIOCGIFBRDADDR, &r));
        CHECK_EQ(four_in(&r.ifr_broadaddr), 0); /* it has none */
        r = request_of("lo");
        OK(ioctl(s, SIOCGIFMTU, &r));
        CHECK_EQ(r.ifr_mtu, 65536);
        r = request_of("lo");
        OK(ioctl(s, SIOCGIFHWADDR, &r));
        CHECK_EQ(r.ifr_hwaddr.sa_family, ARPHRD_LOOPBACK);
        CHECK(memcmp(r.ifr_hwaddr.sa_data, "\0\0\0\0\0\0", 6) == 0);
        r = request_of("lo");
        OK(ioctl(s, SIOCGIFINDEX, &r));
        CHECK_EQ(r.ifr_ifindex, (int)if_nametoindex("lo"));
        int index = r.ifr_ifindex;
        memset(&r, 0, sizeof r);
        r.ifr_ifindex = index;
        OK(ioctl(s, SIOCGIFNAME, &r));
        CHECK_STR(r.ifr_name, "lo");
        r = request_of("lo");
        OK(ioctl(s, SIOCGIFMETRIC, &r));
        CHECK_EQ(r.ifr_metric, 0);
        r = request_of("lo");
        OK(ioctl(s, SIOCGIFTXQLEN, &r));
        CHECK(r.ifr_qlen >= 0);
    }
}

TEST(an_interface_that_there_is_not) {
    int s = OK(socket(AF_INET, SOCK_DGRAM, 0));
    static const unsigned long names[] = {SIOCGIFFLAGS, SIOCGIFADDR,   SIOCGIFNETMASK,
                                          SIOCGIFMTU,   SIOCGIFHWADDR, SIOCGIFINDEX,
                                          SIOCGIFBRDADDR};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct ifreq r = request_of("no-such");
        if (ioctl(s, (int)names[i], &r) != -1 || errno != ENODEV)
            FAIL("ioctl %#lx: %s", names[i], strerror(errno));
        ERR(ioctl(s, (int)names[i], BAD), EFAULT);
    }
    struct ifreq r = request_of("");
    r.ifr_ifindex = 100000;
    ERR(ioctl(s, SIOCGIFNAME, &r), ENODEV);
    /* Any socket will do, another file will not. */
    int u = OK(socket(AF_UNIX, SOCK_STREAM, 0)), file = OK(open(".", O_RDONLY));
    r = request_of("lo");
    OK(ioctl(u, SIOCGIFINDEX, &r));
    ERR(ioctl(file, SIOCGIFINDEX, &r), ENOTTY);
}

TEST(interfaces_are_listed_by_ioctl) {
    int s = OK(socket(AF_INET, SOCK_DGRAM, 0));
    struct ifreq all[64];
    struct ifconf c = {.ifc_len = 0};
    c.ifc_req = NULL;
    OK(ioctl(s, SIOCGIFCONF, &c)); /* how much room it takes */
    int whole = c.ifc_len;
    CHECK(whole >= (int)sizeof(struct ifreq) && whole % (int)sizeof(struct ifreq) == 0);
    c.ifc_len = sizeof all;
    c.ifc_req = all;
    OK(ioctl(s, SIOCGIFCONF, &c));
    CHECK_EQ(c.ifc_len, whole);
    bool found = false;
    for (int i = 0; i < c.ifc_len / (int)sizeof *all; i++)
        found |= strcmp(all[i].ifr_name, "lo") == 0 && four_in(&all[i].ifr_addr) == INADDR_LOOPBACK;
    CHECK(found);
    c.ifc_len = sizeof(struct ifreq) - 1; /* no room for one */
    OK(ioctl(s, SIOCGIFCONF, &c));
    CHECK_EQ(c.ifc_len, 0);
    ERR(ioctl(s, SIOCGIFCONF, BAD), EFAULT);
}

TEST(interfaces_are_changed_by_the_privileged) {
    NEEDS_ROOT();
    int s = OK(socket(AF_INET, SOCK_DGRAM, 0));
    IN_CHILD({
        BECOME(NOBODY, NOBODY);
        struct ifreq r = request_of("lo");
        r.ifr_mtu = 65536;
        ERR(ioctl(s, SIOCSIFMTU, &r), EPERM);
        r.ifr_flags = IFF_UP;
        ERR(ioctl(s, SIOCSIFFLAGS, &r), EPERM);
        r.ifr_addr.sa_family = AF_INET;
        ERR(ioctl(s, SIOCSIFADDR, &r), EPERM);
        r.ifr_hwaddr.sa_family = 772; /* ARPHRD_LOOPBACK */
        ERR(ioctl(s, SIOCSIFHWADDR, &r), EPERM);
    });
    NEEDS_CAPABILITY(CAP_NET_ADMIN);
    own_network();
    struct ifreq r = request_of("lo");
    r.ifr_mtu = 1500;
    int t = OK(socket(AF_INET, SOCK_DGRAM, 0)); /* of the new network */
    OK(ioctl(t, SIOCSIFMTU, &r));
    r.ifr_mtu = 0;
    OK(ioctl(t, SIOCGIFMTU, &r));
    CHECK_EQ(r.ifr_mtu, 1500);
    r.ifr_mtu = 65536;
    OK(ioctl(t, SIOCSIFMTU, &r));
    /* An address of another kind of hardware (`dev_set_mac_address`). */
    r.ifr_hwaddr.sa_family = 1; /* ARPHRD_ETHER */
    ERR(ioctl(t, SIOCSIFHWADDR, &r), EINVAL);
    struct ifreq none = request_of("none0");
    none.ifr_hwaddr.sa_family = 1;
    ERR(ioctl(t, SIOCSIFHWADDR, &none), ENODEV);
    /* Down it drops what is sent, in silence: its addresses stay, its queue is the noop_qdisc. */
    int u = udp_socket(AF_INET), port = port_of(u);
    OK(ioctl(t, SIOCGIFFLAGS, &r));
    r.ifr_flags &= (short)~IFF_UP;
    OK(ioctl(t, SIOCSIFFLAGS, &r));
    OK(ioctl(t, SIOCGIFFLAGS, &r));
    CHECK_EQ(r.ifr_flags & IFF_UP, 0);
    CHECK_EQ(OK(sendto(t, "x", 1, 0, LO4(port))), 1);
    OK(interface_up("lo"));
    CHECK_EQ(OK(sendto(t, "y", 1, 0, LO4(port))), 1);
    char got = 0;
    AWAIT(u, POLLIN);
    CHECK_EQ(OK(read(u, &got, 1)), 1);
    CHECK_EQ(got, 'y');
    ERR(recv(u, &got, 1, MSG_DONTWAIT), EAGAIN);
}
