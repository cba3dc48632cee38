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

/* ---- one socket -------------------------------------------------------------------------------- */

enum { ACK = 4, DESTROY = 21 };
#define NO_COOKIE 0xffffffffu
#ifndef SO_COOKIE
#define SO_COOKIE 57
#endif

static uint64_t cookie_of(int s) {
    uint64_t cookie = 0;
    socklen_t length = sizeof cookie;
    OK(getsockopt(s, SOL_SOCKET, SO_COOKIE, &cookie, &length));
    return cookie;
}
/* The names of a socket, as a request for it has them. */
static struct inet_request named(int protocol, union address local, union address remote) {
    struct inet_request r = {AF_INET, (uint8_t)protocol, 0, 0, ALL_STATES, {0}};
    r.names = (struct names){local.four.sin_port, remote.four.sin_port,
                             {local.four.sin_addr.s_addr}, {remote.four.sin_addr.s_addr}, 0,
                             {NO_COOKIE, NO_COOKIE}};
    return r;
}
static void with_cookie(struct inet_request *r, uint64_t cookie) {
    r->names.cookie[0] = (uint32_t)cookie;
    r->names.cookie[1] = (uint32_t)(cookie >> 32);
}
/* The only message that answers a request. */
static struct header *answer(int s) {
    ssize_t size = OK(recv(s, buffer, sizeof buffer, 0));
    struct header *h = (struct header *)buffer;
    CHECK(size >= (ssize_t)sizeof *h && h->length <= size);
    if (h->type == NLMSG_ERROR)
        FAIL("%s", strerror(-*(int *)(h + 1)));
    CHECK_EQ(h->type, BY_FAMILY);
    CHECK_EQ(h->flags & MULTI, 0);
    ERR(recv(s, &(char){0}, 1, MSG_DONTWAIT), EAGAIN);
    return h;
}
/* An attribute of a message about a socket of the Internet. */
static void *attribute_of(struct header *h, size_t fixed, int type, size_t *size) {
    for (size_t k = sizeof *h + fixed; k + 4 <= h->length;) {
        struct attribute *t = (void *)((char *)h + k);
        CHECK(t->length >= 4 && k + t->length <= h->length);
        if ((t->type & 0x3fff) == type) {
            if (size)
                *size = t->length - 4u;
            return t + 1;
        }
        k += ROUND(t->length);
    }
    return NULL;
}

TEST(one_connection_is_told) {
    int l = listener(AF_INET, 5), c = dial(AF_INET, port_of(l)), s = diag();
    struct inet_request r = named(IPPROTO_TCP, name_of(c), peer_of(c));
    ask(s, BY_FAMILY, 0, &r, sizeof r);
    struct inet_message *m = (void *)(answer(s) + 1);
    CHECK_EQ(m->inode, inode_of(c));
    CHECK_EQ(m->state, TCP_ESTABLISHED);
    CHECK_EQ((uint64_t)m->names.cookie[1] << 32 | m->names.cookie[0], cookie_of(c));
    with_cookie(&r, cookie_of(c));
    ask(s, BY_FAMILY, 0, &r, sizeof r);
    CHECK_EQ(((struct inet_message *)(answer(s) + 1))->inode, inode_of(c));
    with_cookie(&r, cookie_of(c) + 100000);
    ask(s, BY_FAMILY, 0, &r, sizeof r);
    CHECK_EQ(error_of(s), ENOENT);
    /* Without such a connection it is the listener. */
    r = named(IPPROTO_TCP, name_of(l), (union address){0});
    ask(s, BY_FAMILY, 0, &r, sizeof r);
    CHECK_EQ(((struct inet_message *)(answer(s) + 1))->inode, inode_of(l));
    int dead = listener(AF_INET, 1), port = port_of(dead);
    OK(close(dead));
    r.names.local_port = htons((uint16_t)port);
    ask(s, BY_FAMILY, 0, &r, sizeof r);
    CHECK_EQ(error_of(s), ENOENT);
    r.protocol = 200;
    ask(s, BY_FAMILY, 0, &r, sizeof r);
    CHECK_EQ(error_of(s), ENOENT);
}

TEST(one_datagram_socket_is_told) {
    int u = udp_socket(AF_INET), s = diag();
    /* The names are the other way about, "for historical reasons". */
    struct inet_request r = named(IPPROTO_UDP, (union address){0}, name_of(u));
    ask(s, BY_FAMILY, 0, &r, sizeof r);
    struct inet_message *m = (void *)(answer(s) + 1);
    CHECK_EQ(m->inode, inode_of(u));
    CHECK_EQ(ntohs(m->names.local_port), port_of(u));
    with_cookie(&r, cookie_of(u) + 100000);
    ask(s, BY_FAMILY, 0, &r, sizeof r);
    CHECK_EQ(error_of(s), ESTALE);
}

TEST(one_socket_of_the_unix_domain_is_told) {
    int pair[2], s = diag();
    OK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
    struct unix_request r = {AF_UNIX, 0, 0, 0, inode_of(pair[0]), SHOW_PEER,
                             {NO_COOKIE, NO_COOKIE}};
    ask(s, BY_FAMILY, 0, &r, sizeof r);
    struct header *h = answer(s);
    struct unix_message *m = (void *)(h + 1);
    CHECK_EQ(m->inode, inode_of(pair[0]));
    CHECK_EQ((uint64_t)m->cookie[1] << 32 | m->cookie[0], cookie_of(pair[0]));
    uint32_t *peer = attribute_of(h, sizeof *m, UNIX_PEER, NULL);
    CHECK(peer && *peer == inode_of(pair[1]));
    r.cookie[0] = (uint32_t)cookie_of(pair[0]);
    r.cookie[1] = (uint32_t)(cookie_of(pair[0]) >> 32);
    ask(s, BY_FAMILY, 0, &r, sizeof r);
    answer(s);
    r.inode = inode_of(pair[1]);
    ask(s, BY_FAMILY, 0, &r, sizeof r);
    CHECK_EQ(error_of(s), ESTALE);
    r.inode = 0;
    ask(s, BY_FAMILY, 0, &r, sizeof r);
    CHECK_EQ(error_of(s), EINVAL);
    OK(close(pair[1]));
    r.inode = inode_of(s);
    ask(s, BY_FAMILY, 0, &r, sizeof r);
    CHECK_EQ(error_of(s), ENOENT);
    ask(s, DESTROY, 0, &r, sizeof r);
    CHECK_EQ(error_of(s), EOPNOTSUPP);
}

/* ---- extensions -------------------------------------------------------------------------------- */

enum { MEMINFO = 1, INFO, VEGAS, CONG, TOS, TCLASS, SKMEMINFO, SHUTDOWN };
enum { ONLY_V6 = 11, MARK = 15, CLASS = 17 };

TEST(extensions_are_told) {
    int l = listener(AF_INET, 5), c = dial(AF_INET, port_of(l)), s = diag();
    int a = OK(accept(l, NULL, NULL));
    OK(set_option(a, IPPROTO_IP, IP_TOS, 0x10));
    CHECK_EQ(OK(write(c, "12345", 5)), 5);
    AWAIT(a, POLLIN);
    struct inet_request r = named(IPPROTO_TCP, name_of(a), peer_of(a));
    ask(s, BY_FAMILY, 0, &r, sizeof r);
    struct header *h = answer(s);
    CHECK(attribute_of(h, sizeof(struct inet_message), SHUTDOWN, NULL) != NULL);
    CHECK(attribute_of(h, sizeof(struct inet_message), INFO, NULL) == NULL);
    CHECK(attribute_of(h, sizeof(struct inet_message), SKMEMINFO, NULL) == NULL);
    r.extensions = 0xff;
    ask(s, BY_FAMILY, 0, &r, sizeof r);
    h = answer(s);
    size_t size;
#define ATTRIBUTE(type) attribute_of(h, sizeof(struct inet_message), type, &size)
    struct tcp_info *info = ATTRIBUTE(INFO), own;
    socklen_t length = sizeof own;
    OK(getsockopt(a, IPPROTO_TCP, TCP_INFO, &own, &length));
    CHECK(info && size >= 192);
    CHECK_EQ(info->tcpi_state, TCP_ESTABLISHED);
    CHECK_EQ(info->tcpi_snd_mss, own.tcpi_snd_mss);
    CHECK_EQ(info->tcpi_rto, own.tcpi_rto);
    char name[16] = {0}, *congestion = ATTRIBUTE(CONG);
    length = sizeof name;
    OK(getsockopt(a, IPPROTO_TCP, TCP_CONGESTION, name, &length));
    CHECK(congestion && size == strlen(name) + 1 && !strcmp(congestion, name));
    uint8_t *tos = ATTRIBUTE(TOS);
    CHECK(tos && size == 1 && *tos == 0x10);
    uint32_t *memory = ATTRIBUTE(SKMEMINFO);
    CHECK(memory && size >= 32);
    CHECK(memory[0] >= 5);
    CHECK_EQ(memory[1], OPTION(a, SOL_SOCKET, SO_RCVBUF));
    CHECK_EQ(memory[3], OPTION(a, SOL_SOCKET, SO_SNDBUF));
    uint32_t *four = ATTRIBUTE(MEMINFO);
    CHECK(four && size == 16);
    CHECK_EQ(four[0], memory[0]);
    /* SHUT_RD and SHUT_WR are bits. */
    OK(shutdown(a, SHUT_WR));
    ask(s, BY_FAMILY, 0, &r, sizeof r);
    h = answer(s);
    uint8_t *shut = ATTRIBUTE(SHUTDOWN);
    CHECK(shut && *shut == 2);
    /* A listener has no more than two numbers of its connections. */
    int other = dial(AF_INET, port_of(l));
    r = named(IPPROTO_TCP, name_of(l), (union address){0});
    r.extensions = 1 << (INFO - 1);
    ask(s, BY_FAMILY, 0, &r, sizeof r);
    h = answer(s);
    info = ATTRIBUTE(INFO);
    CHECK(info != NULL);
    CHECK_EQ(info->tcpi_state, TCP_LISTEN);
    CHECK_EQ(info->tcpi_unacked, 1);
    CHECK_EQ(info->tcpi_sacked, 5);
    OK(close(other));
}

TEST(marks_are_for_administrators) {
    NEEDS_ROOT();
    NEEDS_CAPABILITY(CAP_NET_ADMIN);
    int l = listener(AF_INET, 5), s = diag();
    OK(set_option(l, SOL_SOCKET, SO_MARK, 0x77));
    struct inet_request r = named(IPPROTO_TCP, name_of(l), (union address){0});
    ask(s, BY_FAMILY, 0, &r, sizeof r);
    struct header *h = answer(s);
    size_t size;
    uint32_t *mark = ATTRIBUTE(MARK);
    CHECK(mark && *mark == 0x77);
    BECOME(NOBODY, NOBODY);
    s = diag();
    ask(s, BY_FAMILY, 0, &r, sizeof r);
    h = answer(s);
    CHECK(ATTRIBUTE(MARK) == NULL);
}

/* ---- programs that select ---------------------------------------------------------------------- */

struct operation {
    uint8_t code, yes;
    uint16_t no;
};
enum { NOTHING, JUMP, S_GE, S_LE, D_GE, D_LE, AUTO, S_COND, D_COND, DEV, MARKED, S_EQ, D_EQ };

/* Asks for a list of TCP sockets with a program. */
static int ask_with(const void *program, size_t size) {
    struct {
        struct inet_request r;
        struct attribute a;
        char program[128];
    } m = {.r = {AF_INET, IPPROTO_TCP, 0, 0, ALL_STATES, {0}},
           .a = {(uint16_t)(4 + size), 1}};
    memcpy(m.program, program, size);
    int s = diag();
    ask(s, BY_FAMILY, DUMP, &m, sizeof m.r + 4 + size);
    return s;
}
/* Whether a program selects a socket. */
static bool selects(const void *program, size_t size, int which) {
    int s = ask_with(program, size);
    bool seen = false;
    for (struct header *h; (h = next(s));)
        seen |= ((struct inet_message *)(h + 1))->inode == inode_of(which);
    OK(close(s));
    return seen;
}
#define PROGRAM(...) (struct operation[]){__VA_ARGS__}, sizeof(struct operation[]){__VA_ARGS__}

TEST(programs_select) {
    int l = listener(AF_INET, 5), c = dial(AF_INET, port_of(l));
    int a = OK(accept(l, NULL, NULL));
    uint16_t port = (uint16_t)port_of(l), own = (uint16_t)port_of(c);
    CHECK(selects(PROGRAM({S_EQ, 8, 12}, {0, 0, port}), l));
    CHECK(selects(PROGRAM({S_EQ, 8, 12}, {0, 0, port}), a));
    CHECK(!selects(PROGRAM({S_EQ, 8, 12}, {0, 0, port}), c));
    CHECK(selects(PROGRAM({D_EQ, 8, 12}, {0, 0, port}), c));
    CHECK(!selects(PROGRAM({D_EQ, 8, 12}, {0, 0, port}), a));
    CHECK(selects(PROGRAM({S_GE, 8, 12}, {0, 0, own}), c));
    CHECK(selects(PROGRAM({S_LE, 8, 12}, {0, 0, own}), c));
    if (own < 65535)
        CHECK(!selects(PROGRAM({S_GE, 8, 12}, {0, 0, (uint16_t)(own + 1)}), c));
    /* The kernel chose the port of connect, and that of a listener that bind asked for any. */
    CHECK(selects(PROGRAM({AUTO, 4, 8}), c));
    /* sport = port or dport = port */
    struct operation either[] = {{S_EQ, 8, 12}, {0, 0, port}, {JUMP, 4, 12},
                                 {D_EQ, 8, 12}, {0, 0, port}};
    CHECK(selects(either, sizeof either, c) && selects(either, sizeof either, a));
    struct {
        struct operation o;
        uint8_t family, prefix, pad[2];
        int port;
        uint32_t address;
    } host = {{D_COND, 16, 20}, AF_INET, 8, {0}, -1, htonl(0x7f010101)};
    CHECK(selects(&host, sizeof host, c));
    CHECK(!selects(&host, sizeof host, l)); /* its peer is 0.0.0.0 */
    host.prefix = 32;
    CHECK(!selects(&host, sizeof host, c));
    host.prefix = 8, host.port = port;
    CHECK(selects(&host, sizeof host, c) && !selects(&host, sizeof host, a));
    host.family = AF_INET6, host.prefix = 0;
    int s = ask_with(&host, sizeof host);
    CHECK_EQ(error_of(s), EINVAL); /* the address is not whole */
}

TEST(programs_that_lead_astray_are_refused) {
#define REFUSED(...) CHECK_EQ(error_of(ask_with(PROGRAM(__VA_ARGS__))), EINVAL)
    REFUSED({200, 4, 4});
    REFUSED({JUMP, 4, 0});
    REFUSED({JUMP, 4, 2});
    REFUSED({JUMP, 4, 12});
    REFUSED({JUMP, 0, 4});
    REFUSED({JUMP, 8, 4});
    REFUSED({S_EQ, 4, 4});
    REFUSED({S_EQ, 4, 8}, {0, 0, 80});
    REFUSED({JUMP, 4, 8}, {S_EQ, 8, 8}, {0, 0, 80}); /* into the midst of a condition */
    CHECK_EQ(error_of(ask_with("", 0)), EINVAL);
    CHECK_EQ(error_of(ask_with("\0\4\0", 3)), EINVAL);
    if (geteuid() == 0) {
        BECOME(NOBODY, NOBODY);
        CHECK_EQ(error_of(ask_with(PROGRAM({MARKED, 12, 16}, {0}, {0}))), EPERM);
    }
}

/* ---- the end of a socket from outside (SOCK_DESTROY) -------------------------------------------- */

/* Asks for the end of a socket; the error. */
static int destroy(struct inet_request r) {
    int s = diag();
    ask(s, DESTROY, ACK, &r, sizeof r);
    int error = error_of(s);
    OK(close(s));
    return error;
}

TEST(a_connection_is_ended) {
    NEEDS_ROOT();
    NEEDS_CAPABILITY(CAP_NET_ADMIN);
    int l = listener(AF_INET, 5), c = dial(AF_INET, port_of(l));
    int a = OK(accept(l, NULL, NULL));
    char got[8];
    CHECK_EQ(OK(write(a, "abc", 3)), 3);
    AWAIT(c, POLLIN);
    struct inet_request r = named(IPPROTO_TCP, name_of(c), peer_of(c));
    with_cookie(&r, cookie_of(c) + 100000);
    CHECK_EQ(destroy(r), ENOENT);
    with_cookie(&r, cookie_of(c));
    int error = destroy(r);
    if (error == EOPNOTSUPP)
        SKIP("a kernel without INET_DIAG_DESTROY");
    CHECK_EQ(error, 0);
    /* What came is there still, then the error, once, then the end. */
    CHECK_EQ(OK(read(c, got, sizeof got)), 3);
    ERR(read(c, got, sizeof got), ECONNABORTED);
    CHECK_EQ(OK(read(c, got, sizeof got)), 0);
    ERR(send(c, "x", 1, MSG_NOSIGNAL), EPIPE);
    AWAIT(a, POLLIN);
    ERR(read(a, got, sizeof got), ECONNRESET);
    CHECK_EQ(destroy(r), ENOENT);
}

TEST(an_attempt_to_connect_is_ended) {
    NEEDS_ROOT();
    NEEDS_CAPABILITY(CAP_NET_ADMIN);
    /* A listener whose queue is full lets others wait. */
    int l = listener(AF_INET, 0);
    dial(AF_INET, port_of(l));
    union address to = name_of(l);
    int c;
    for (int i = 0;; i++) {
        c = OK(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0));
        CHECK_EQ(connect(c, &to.any, sizeof to.four), -1);
        struct pollfd p = {c, POLLOUT, 0};
        if (poll(&p, 1, 100) == 0)
            break;
        CHECK(i < 10);
    }
    int error = destroy(named(IPPROTO_TCP, name_of(c), to));
    if (error == EOPNOTSUPP)
        SKIP("a kernel without INET_DIAG_DESTROY");
    CHECK_EQ(error, 0);
    AWAIT(c, POLLOUT);
    CHECK_EQ(OPTION(c, SOL_SOCKET, SO_ERROR), ECONNABORTED);
}

TEST(a_listener_is_ended) {
    NEEDS_ROOT();
    NEEDS_CAPABILITY(CAP_NET_ADMIN);
    int l = listener(AF_INET, 5), c = dial(AF_INET, port_of(l)), port = port_of(l);
    int error = destroy(named(IPPROTO_TCP, name_of(l), (union address){0}));
    if (error == EOPNOTSUPP)
        SKIP("a kernel without INET_DIAG_DESTROY");
    CHECK_EQ(error, 0);
    ERR(accept4(l, NULL, NULL, SOCK_NONBLOCK), EINVAL);
    CHECK_EQ(OPTION(l, SOL_SOCKET, SO_ERROR), ECONNABORTED);
    CHECK_EQ(OPTION(l, SOL_SOCKET, SO_ACCEPTCONN), 0);
    /* What waited is gone, and nobody is accepted. */
    AWAIT(c, POLLIN);
    ERR(read(c, &(char){0}, 1), ECONNRESET);
    int other = OK(socket(AF_INET, SOCK_STREAM, 0));
    ERR(connect(other, LO4(port)), ECONNREFUSED);
}

TEST(a_datagram_socket_is_ended) {
    NEEDS_ROOT();
    NEEDS_CAPABILITY(CAP_NET_ADMIN);
    int a = udp_socket(AF_INET), b = udp_socket(AF_INET);
    OK(connect(a, LO4(port_of(b))));
    int error = destroy(named(IPPROTO_UDP, name_of(a), name_of(b)));
    if (error == EOPNOTSUPP)
        SKIP("a kernel without INET_DIAG_DESTROY");
    CHECK_EQ(error, 0);
    ERR(recv(a, &(char){0}, 1, 0), ECONNABORTED);
    union address peer;
    socklen_t length = sizeof peer;
    ERR(getpeername(a, &peer.any, &length), ENOTCONN);
}

TEST(sockets_are_ended_by_administrators_only) {
    NEEDS_ROOT();
    int l = listener(AF_INET, 5);
    struct inet_request r = named(IPPROTO_TCP, name_of(l), (union address){0});
    BECOME(NOBODY, NOBODY);
    int error = destroy(r);
    CHECK(error == EPERM || error == EOPNOTSUPP);
    with_cookie(&r, 1ull << 60);
    error = destroy(r);
    CHECK(error == ENOENT || error == EOPNOTSUPP); /* a stranger learns no more */
}
