/*
 * Lists of sockets by netlink: sock_diag(7). A case finds its own sockets there by their inodes.
 */
#define AREA "sockdiag"
#include "net.h"
#include <netinet/tcp.h>
#include <sys/un.h>

/* linux/netlink.h, linux/sock_diag.h, linux/inet_diag.h, linux/unix_diag.h */
struct header {
    uint32_t length;
    uint16_t type, flags;
    uint32_t sequence, port;
};
struct attribute {
    uint16_t length, type;
};
struct names {
    uint16_t local_port, remote_port;
    uint32_t local[4], remote[4], interface, cookie[2];
};
struct inet_request {
    uint8_t family, protocol, extensions, pad;
    uint32_t states;
    struct names names;
};
struct inet_message {
    uint8_t family, state, timer, retransmits;
    struct names names;
    uint32_t expires, receiving, sending, user, inode;
};
struct unix_request {
    uint8_t family, protocol;
    uint16_t pad;
    uint32_t states, inode, show, cookie[2];
};
struct unix_message {
    uint8_t family, type, state, pad;
    uint32_t inode, cookie[2];
};
#define NETLINK_SOCK_DIAG 4
enum { REQUEST = 1, MULTI = 2, DUMP = 0x300, NLMSG_ERROR = 2, NLMSG_DONE = 3, BY_FAMILY = 20 };
enum { SHOW_NAME = 1, SHOW_PEER = 4, SHOW_QUEUES = 0x10 };
enum { UNIX_NAME, UNIX_PEER = 2, UNIX_QUEUES = 4 };
#define ALL_STATES 0xffffffffu
#define ROUND(n) (((n) + 3u) & ~3u)

static unsigned inode_of(int s) {
    struct stat st;
    OK(fstat(s, &st));
    return (unsigned)st.st_ino;
}
static int diag(void) {
    return OK(socket(AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC, NETLINK_SOCK_DIAG));
}
static void ask(int s, int type, int flags, const void *body, size_t size) {
    char m[256] = {0};
    struct header h = {(uint32_t)(sizeof h + size), (uint16_t)type, (uint16_t)(flags | REQUEST), 7,
                       0};
    memcpy(m, &h, sizeof h);
    memcpy(m + sizeof h, body, size);
    CHECK_EQ(OK(send(s, m, sizeof h + size, 0)), (ssize_t)(sizeof h + size));
}
static _Alignas(8) char buffer[65536];
static uint32_t at, end;
/* The next message of a dump; NULL at its end. */
static struct header *next(int s) {
    if (at >= end) {
        end = (uint32_t)OK(recv(s, buffer, sizeof buffer, 0));
        at = 0;
    }
    struct header *h = (struct header *)(buffer + at);
    CHECK(end - at >= sizeof *h && h->length >= sizeof *h && h->length <= end - at);
    CHECK_EQ(h->sequence, 7);
    at += ROUND(h->length);
    if (h->type == NLMSG_ERROR)
        FAIL("%s", strerror(-*(int *)(h + 1)));
    if (h->type == NLMSG_DONE)
        return NULL;
    CHECK_EQ(h->type, BY_FAMILY);
    CHECK((h->flags & MULTI) != 0);
    return h;
}
/* The error with which a request is answered. */
static int error_of(int s) {
    struct {
        struct header h;
        int error;
    } *e = (void *)buffer;
    CHECK(OK(recv(s, buffer, sizeof buffer, 0)) >= (ssize_t)sizeof *e);
    CHECK_EQ(e->h.type, NLMSG_ERROR);
    return -e->error;
}
/* Whether a list has the socket with this inode; then what it says of it. */
static bool list(int family, int protocol, uint32_t states, unsigned inode,
                 struct inet_message *found) {
    struct inet_request r = {(uint8_t)family, (uint8_t)protocol, 0, 0, states, {0}};
    int s = diag();
    bool seen = false;
    ask(s, BY_FAMILY, DUMP, &r, sizeof r);
    for (struct header *h; (h = next(s));) {
        struct inet_message *m = (void *)(h + 1);
        CHECK(h->length >= sizeof *h + sizeof *m);
        CHECK_EQ(m->family, family);
        CHECK((states >> m->state & 1) != 0);
        if (m->inode == inode)
            *found = *m, seen = true;
    }
    OK(close(s));
    return seen;
}

TEST(connections_are_told) {
    int l = listener(AF_INET, 5), c = dial(AF_INET, port_of(l));
    struct inet_message m;
    CHECK(list(AF_INET, IPPROTO_TCP, ALL_STATES, inode_of(l), &m));
    CHECK_EQ(m.state, TCP_LISTEN);
    CHECK_EQ(ntohs(m.names.local_port), port_of(l));
    CHECK_EQ(ntohl(m.names.local[0]), INADDR_LOOPBACK);
    CHECK_EQ(m.names.remote_port, 0);
    CHECK_EQ(m.receiving, 1); /* one waits to be accepted */
    CHECK_EQ(m.sending, 5);   /* the backlog */
    CHECK_EQ(m.user, geteuid());
    int s = OK(accept(l, NULL, NULL));
    CHECK_EQ(OK(write(c, "12345", 5)), 5);
    AWAIT(s, POLLIN);
    CHECK(list(AF_INET, IPPROTO_TCP, ALL_STATES, inode_of(s), &m));
    CHECK_EQ(m.state, TCP_ESTABLISHED);
    CHECK_EQ(m.receiving, 5);
    CHECK_EQ(ntohs(m.names.remote_port), port_of(c));
    CHECK_EQ(ntohl(m.names.remote[0]), INADDR_LOOPBACK);
    /* States select. */
    CHECK(list(AF_INET, IPPROTO_TCP, 1u << TCP_ESTABLISHED, inode_of(c), &m));
    CHECK(!list(AF_INET, IPPROTO_TCP, 1u << TCP_ESTABLISHED, inode_of(l), &m));
    CHECK(!list(AF_INET, IPPROTO_TCP, 1u << TCP_LISTEN, inode_of(c), &m));
    int bound = OK(socket(AF_INET, SOCK_STREAM, 0));
    OK(bind(bound, LO4(0)));
    CHECK(!list(AF_INET, IPPROTO_TCP, 1u << TCP_LISTEN, inode_of(bound), &m));
}

TEST(connections_of_six_are_told) {
    NEEDS_IPV6();
    int l = listener(AF_INET6, 5);
    static const struct in6_addr loopback = IN6ADDR_LOOPBACK_INIT;
    struct inet_message m;
    CHECK(list(AF_INET6, IPPROTO_TCP, ALL_STATES, inode_of(l), &m));
    CHECK_EQ(ntohs(m.names.local_port), port_of(l));
    CHECK(memcmp(m.names.local, &loopback, 16) == 0);
    CHECK(!list(AF_INET, IPPROTO_TCP, ALL_STATES, inode_of(l), &m));
}

TEST(datagram_sockets_are_told) {
    int a = udp_socket(AF_INET), b = udp_socket(AF_INET);
    struct inet_message m;
    if (socket(AF_NETLINK, SOCK_DGRAM, NETLINK_SOCK_DIAG) == -1)
        SKIP("no sock_diag");
    CHECK(list(AF_INET, IPPROTO_UDP, ALL_STATES, inode_of(a), &m));
    CHECK_EQ(m.state, TCP_CLOSE);
    CHECK_EQ(ntohs(m.names.local_port), port_of(a));
    OK(connect(a, LO4(port_of(b))));
    CHECK(list(AF_INET, IPPROTO_UDP, 1u << TCP_ESTABLISHED, inode_of(a), &m));
    CHECK_EQ(ntohs(m.names.remote_port), port_of(b));
    CHECK(!list(AF_INET, IPPROTO_UDP, 1u << TCP_ESTABLISHED, inode_of(b), &m));
    CHECK_EQ(OK(write(a, "x", 1)), 1);
    CHECK(list(AF_INET, IPPROTO_UDP, ALL_STATES, inode_of(b), &m));
    CHECK(m.receiving > 0);
}

TEST(ports_select) {
    int l = listener(AF_INET, 1), other = listener(AF_INET, 1), s = diag(), seen = 0;
    struct inet_request r = {AF_INET, IPPROTO_TCP, 0, 0, ALL_STATES, {0}};
    r.names.local_port = htons((uint16_t)port_of(l));
    ask(s, BY_FAMILY, DUMP, &r, sizeof r);
    for (struct header *h; (h = next(s));) {
        struct inet_message *m = (void *)(h + 1);
        CHECK_EQ(ntohs(m->names.local_port), port_of(l));
        seen += m->inode == inode_of(l);
    }
    CHECK_EQ(seen, 1);
    OK(close(other));
}

TEST(sockets_of_the_unix_domain_are_told) {
    int pair[2], s = diag(), seen = 0;
    OK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
    int l = OK(socket(AF_UNIX, SOCK_SEQPACKET, 0));
    struct sockaddr_un a = {AF_UNIX, "\0sockdiag"};
    snprintf(a.sun_path + 1, 100, "sockdiag-%d", getpid());
    size_t length = strlen(a.sun_path + 1) + 1;
    OK(bind(l, (struct sockaddr *)&a, (socklen_t)(2 + length)));
    OK(listen(l, 3));
    CHECK_EQ(OK(write(pair[0], "abc", 3)), 3);
    struct unix_request r = {AF_UNIX, 0, 0, ALL_STATES, 0, SHOW_NAME | SHOW_PEER | SHOW_QUEUES,
                             {0}};
    ask(s, BY_FAMILY, DUMP, &r, sizeof r);
    for (struct header *h; (h = next(s));) {
        struct unix_message *m = (void *)(h + 1);
        CHECK_EQ(m->family, AF_UNIX);
        unsigned peer = 0, queues[2] = {0};
        bool named = false;
        for (uint32_t k = sizeof *h + sizeof *m; k + 4 <= h->length;) {
            struct attribute *t = (void *)((char *)h + k);
            CHECK(t->length >= 4 && k + t->length <= h->length);
            if (t->type == UNIX_PEER)
                memcpy(&peer, t + 1, 4);
            if (t->type == UNIX_QUEUES)
                memcpy(queues, t + 1, 8);
            if (t->type == UNIX_NAME)
                named = t->length - 4u == length && memcmp(t + 1, a.sun_path, length) == 0;
            k += ROUND(t->length);
        }
        if (m->inode == inode_of(pair[1])) {
            seen |= 1;
            CHECK_EQ(m->type, SOCK_STREAM);
            CHECK_EQ(m->state, TCP_ESTABLISHED);
            CHECK_EQ(peer, inode_of(pair[0]));
            CHECK_EQ(queues[0], 3);
        }
        if (m->inode == inode_of(l)) {
            seen |= 2;
            CHECK_EQ(m->type, SOCK_SEQPACKET);
            CHECK_EQ(m->state, TCP_LISTEN);
            CHECK(named);
            CHECK_EQ(queues[1], 3);
        }
    }
    CHECK_EQ(seen, 3);
}

TEST(requests_that_are_not_good) {
    int s = diag();
    struct inet_request r = {AF_INET, IPPROTO_TCP, 0, 0, ALL_STATES, {0}};
    for (size_t size = 1; size < sizeof r; size += 9) {
        ask(s, BY_FAMILY, DUMP, &r, size);
        CHECK_EQ(error_of(s), EINVAL);
    }
    r.family = 200;
    ask(s, BY_FAMILY, DUMP, &r, sizeof r);
    int error = error_of(s);
    CHECK(error == EINVAL || error == ENOENT);
    ask(s, 4711, DUMP, &r, sizeof r);
    CHECK_EQ(error_of(s), EINVAL);
}
