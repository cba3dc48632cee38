/*
 * The network in procfs: proc_pid_net(5) and proc_sys_net(5). A case finds its own sockets there by
 * their inodes, and the lines have the forms that netstat and ss read.
 */
#define AREA "procnet"
#include "net.h"
#include <netinet/tcp.h>
#include <netpacket/packet.h>
#include <sys/un.h>

static unsigned long inode_of(int s) {
    struct stat st;
    OK(fstat(s, &st));
    return (unsigned long)st.st_ino;
}
static char text[1 << 20];
static void load(const char *path) {
    if (get_file(path, text, sizeof text) == -1)
        FAIL("%s: %s", path, strerror(errno));
}
/* The lines of a file one after the other; NULL at the end. */
static char *cursor;
static char *line(void) {
    if (!cursor || !*cursor)
        return NULL;
    char *start = cursor, *stop = strchr(cursor, '\n');
    CHECK(stop != NULL); /* every line ends */
    *stop = 0;
    cursor = stop + 1;
    return start;
}
static char *first_line(const char *path) {
    load(path);
    cursor = text;
    return line();
}

/* ---- sockets --------------------------------------------------------------------------------- */

/* Goes to a network of its own where that is possible: a table that changes between two reads may
 * lack a line that was there all the time (udp_get_idx in net/ipv4/udp.c counts from the start). */
static bool alone(void) {
    if (geteuid() != 0 || unshare(0x40000000 /* CLONE_NEWNET */) == -1)
        return false;
    OK(interface_up("lo"));
    return true;
}

struct entry {
    unsigned slot, local_port, peer_port, state, send, receive, uid, references, drops;
    char local[33], peer[33];
    unsigned long inode;
};
/* The line of the socket with this inode in a table of tcp, udp or raw. */
static bool find(const char *path, unsigned long inode, struct entry *e) {
    char *head = first_line(path);
    CHECK(head && strstr(head, "sl") && strstr(head, "local_address") && strstr(head, "inode"));
    for (char *l; (l = line());) {
        char rest[256] = "";
        unsigned timer, when, retransmits, timeout;
        memset(e, 0, sizeof *e);
        int n = sscanf(l,
                       " %u: %32[0-9A-F]:%4X %32[0-9A-F]:%4X %2X %8X:%8X %2X:%8X %8X %u %u %lu %u "
                       "%255[^\n]",
                       &e->slot, e->local, &e->local_port, e->peer, &e->peer_port, &e->state,
                       &e->send, &e->receive, &timer, &when, &retransmits, &e->uid, &timeout,
                       &e->inode, &e->references, rest);
        if (n < 15)
            FAIL("%s: not understood: %s", path, l);
        for (size_t k = strlen(rest); k > 0 && rest[k - 1] == ' ';)
            rest[--k] = 0; /* lines are padded */
        char *last = strrchr(rest, ' ');
        e->drops = last ? (unsigned)atoi(last) : 0;
        if (e->inode == inode)
            return true;
    }
    return false;
}
static struct entry found(const char *path, int s) {
    struct entry e;
    for (int i = 0; i < 10; i++)
        if (find(path, inode_of(s), &e))
            return e;
    FAIL("%s: no inode %lu", path, inode_of(s));
}
#define LOOPBACK_IN_HEX "0100007F" /* as the machine stores it */
#define ANY_IN_HEX "00000000"
#define LOOPBACK6_IN_HEX "00000000000000000000000001000000"

TEST(connections_are_listed) {
    alone();
    int l = listener(AF_INET, 5), c = dial(AF_INET, port_of(l)), port = port_of(l);
    struct entry e = found("/proc/net/tcp", l);
    CHECK_STR(e.local, LOOPBACK_IN_HEX);
    CHECK_STR(e.peer, ANY_IN_HEX);
    CHECK_EQ(e.local_port, port);
    CHECK_EQ(e.peer_port, 0);
    CHECK_EQ(e.state, TCP_LISTEN);
    CHECK_EQ(e.uid, geteuid());
    CHECK_EQ(e.receive, 1); /* one waits to be accepted */
    int s = OK(accept(l, NULL, NULL));
    CHECK_EQ(found("/proc/net/tcp", l).receive, 0);
    e = found("/proc/net/tcp", c);
    CHECK_EQ(e.state, TCP_ESTABLISHED);
    CHECK_EQ(e.local_port, port_of(c));
    CHECK_EQ(e.peer_port, port);
    CHECK_STR(e.peer, LOOPBACK_IN_HEX);
    e = found("/proc/net/tcp", s);
    CHECK_EQ(e.local_port, port);
    CHECK_EQ(e.peer_port, port_of(c));
    CHECK_EQ(OK(write(c, "12345", 5)), 5);
    AWAIT(s, POLLIN);
    CHECK_EQ(found("/proc/net/tcp", s).receive, 5);
    char got[5];
    recv_all(s, got, 5);
    OK(shutdown(c, SHUT_WR));
    AWAIT_ALL(s, POLLRDHUP);
    CHECK_EQ(found("/proc/net/tcp", s).state, TCP_CLOSE_WAIT);
    EVENTUALLY(found("/proc/net/tcp", c).state == TCP_FIN_WAIT2);
    unsigned long inode = inode_of(s);
    int local = port_of(c);
    OK(close(s));
    CHECK(!find("/proc/net/tcp", inode, &e));
    /* A connection in TIME_WAIT has no inode. */
    OK(close(c));
    bool waits = false;
    first_line("/proc/net/tcp");
    for (char *k; (k = line());) {
        unsigned a, b, state;
        waits |= sscanf(k, " %*u: %*[0-9A-F]:%X %*[0-9A-F]:%X %X", &a, &b, &state) == 3 &&
                 a == (unsigned)local && b == (unsigned)port && state == TCP_TIME_WAIT;
    }
    CHECK(waits);
    /* One that is bound only is not listed. */
    int bound = OK(socket(AF_INET, SOCK_STREAM, 0));
    OK(bind(bound, LO4(0)));
    CHECK(!find("/proc/net/tcp", inode_of(bound), &e));
}

TEST(connections_of_six_are_listed) {
    NEEDS_IPV6();
    int l = listener(AF_INET6, 5), c = dial(AF_INET6, port_of(l));
    struct entry e = found("/proc/net/tcp6", l);
    CHECK_STR(e.local, LOOPBACK6_IN_HEX);
    CHECK_EQ(e.local_port, port_of(l));
    CHECK_EQ(e.state, TCP_LISTEN);
    e = found("/proc/net/tcp6", c);
    CHECK_EQ(e.state, TCP_ESTABLISHED);
    CHECK_STR(e.peer, LOOPBACK6_IN_HEX);
    CHECK(!find("/proc/net/tcp", inode_of(c), &e));
}

TEST(datagram_sockets_are_listed) {
    alone();
    int a = udp_socket(AF_INET), b = udp_socket(AF_INET);
    OK(set_option(a, SOL_SOCKET, SO_RCVBUF, 4096));
    struct entry e = found("/proc/net/udp", a);
    CHECK_STR(e.local, LOOPBACK_IN_HEX);
    CHECK_EQ(e.local_port, port_of(a));
    CHECK_EQ(e.state, TCP_CLOSE);
    CHECK_EQ(e.receive, 0);
    CHECK_EQ(e.drops, 0);
    for (int i = 0; i < 50; i++)
        CHECK_EQ(OK(sendto(b, "0123456789", 10, 0, LO4(port_of(a)))), 10);
    e = found("/proc/net/udp", a);
    CHECK(e.receive > 10); /* memory, not bytes of data */
    CHECK(e.drops > 0 && e.drops < 50);
    OK(connect(b, LO4(port_of(a))));
    e = found("/proc/net/udp", b);
    CHECK_EQ(e.state, TCP_ESTABLISHED);
    CHECK_EQ(e.peer_port, port_of(a));
    /* One without a port is not listed. */
    CHECK(!find("/proc/net/udp", inode_of(OK(socket(AF_INET, SOCK_DGRAM, 0))), &e));
    NEEDS_IPV6();
    int six = udp_socket(AF_INET6);
    e = found("/proc/net/udp6", six);
    CHECK_STR(e.local, LOOPBACK6_IN_HEX);
    CHECK_EQ(e.local_port, port_of(six));
}

TEST(raw_and_packet_sockets_are_listed) {
    NEEDS_CAPABILITY(CAP_NET_RAW);
    int raw = OK(socket(AF_INET, SOCK_RAW, IPPROTO_ICMP));
    struct entry e = found("/proc/net/raw", raw);
    CHECK_EQ(e.local_port, IPPROTO_ICMP); /* the protocol stands for the port */
    CHECK_STR(e.local, ANY_IN_HEX);
    CHECK_EQ(e.state, TCP_CLOSE);
    int p = OK(socket(AF_PACKET, SOCK_DGRAM, htons(3)));
    char *head = first_line("/proc/net/packet");
    CHECK(strncmp(head, "sk ", 3) == 0 && strstr(head, "Inode"));
    bool seen = false;
    for (char *l; (l = line());) {
        unsigned type, protocol, user;
        int interface, running;
        unsigned long inode;
        CHECK_EQ(sscanf(l, "%*s %*d %u %x %d %d %*u %u %lu", &type, &protocol, &interface,
                        &running, &user, &inode), 6);
        if (inode != inode_of(p))
            continue;
        seen = true;
        CHECK_EQ(type, SOCK_DGRAM);
        CHECK_EQ(protocol, 3);
        CHECK_EQ(interface, 0);
        CHECK_EQ(running, 1);
        CHECK_EQ(user, geteuid());
    }
    CHECK(seen);
}

TEST(unix_sockets_are_listed) {
    int s = OK(socket(AF_UNIX, SOCK_STREAM, 0));
    struct sockaddr_un a = {AF_UNIX, "named"};
    OK(bind(s, (struct sockaddr *)&a, sizeof a.sun_family + 5));
    OK(listen(s, 1));
    char *head = first_line("/proc/net/unix");
    CHECK_STR(head, "Num       RefCount Protocol Flags    Type St Inode Path");
    bool seen = false;
    for (char *l; (l = line());) {
        unsigned flags, type, state;
        unsigned long inode;
        char path[128] = "";
        CHECK(sscanf(l, "%*[^:]: %*x %*x %x %x %x %lu %127s", &flags, &type, &state, &inode,
                     path) >= 4);
        if (inode != inode_of(s))
            continue;
        seen = true;
        CHECK_EQ(flags, 0x10000); /* it listens */
        CHECK_EQ(type, SOCK_STREAM);
        CHECK_EQ(state, 1);
        CHECK_STR(path, "named");
    }
    CHECK(seen);
}

TEST(netlink_sockets_are_listed) {
    int s = OK(socket(AF_NETLINK, SOCK_RAW, 0));
    struct {
        uint16_t family, pad;
        uint32_t port, groups;
    } name = {.family = AF_NETLINK};
    socklen_t length = sizeof name;
    OK(bind(s, (struct sockaddr *)&name, sizeof name));
    OK(getsockname(s, (struct sockaddr *)&name, &length));
    char *head = first_line("/proc/net/netlink");
    CHECK(strncmp(head, "sk ", 3) == 0 && strstr(head, "Groups") && strstr(head, "Inode"));
    bool seen = false;
    for (char *l; (l = line());) {
        unsigned protocol, port;
        unsigned long inode;
        CHECK_EQ(sscanf(l, "%*s %u %u %*x %*u %*u %*u %*u %*u %lu", &protocol, &port, &inode), 3);
        if (inode != inode_of(s))
            continue;
        seen = true;
        CHECK_EQ(protocol, 0);
        CHECK_EQ(port, name.port);
    }
    CHECK(seen);
}

/* ---- interfaces, routes, numbers ------------------------------------------------------------- */

struct traffic {
    unsigned long long in_bytes, in_packets, out_bytes, out_packets;
};
static struct traffic traffic_of_lo(void) {
    struct traffic t = {0};
    char *first = first_line("/proc/net/dev"), *second = line();
    CHECK(strstr(first, "Receive") && strstr(first, "Transmit"));
    CHECK(strstr(second, "face |bytes    packets errs drop fifo frame compressed multicast|bytes"));
    bool seen = false;
    for (char *l; (l = line());) {
        char name[32];
        unsigned long long v[16];
        CHECK_EQ(sscanf(l, " %31[^:]: %llu %llu %llu %llu %llu %llu %llu %llu %llu %llu %llu %llu "
                        "%llu %llu %llu %llu", name, v, v + 1, v + 2, v + 3, v + 4, v + 5, v + 6,
                        v + 7, v + 8, v + 9, v + 10, v + 11, v + 12, v + 13, v + 14, v + 15), 17);
        if (strcmp(name, "lo") != 0)
            continue;
        seen = true;
        t = (struct traffic){v[0], v[1], v[8], v[9]};
    }
    CHECK(seen);
    return t;
}
TEST(interfaces_are_counted) {
    struct traffic before = traffic_of_lo();
    int a = udp_socket(AF_INET), b = udp_socket(AF_INET);
    static char data[1000];
    for (int i = 0; i < 10; i++)
        CHECK_EQ(OK(sendto(a, data, sizeof data, 0, LO4(port_of(b)))), 1000);
    struct traffic after = traffic_of_lo();
    CHECK(after.in_packets >= before.in_packets + 10);
    CHECK(after.out_packets >= before.out_packets + 10);
    CHECK(after.in_bytes >= before.in_bytes + 10 * 1028);
    CHECK(after.out_bytes >= before.out_bytes + 10 * 1028);
}

TEST(tables_of_addresses_and_routes) {
    char *head = first_line("/proc/net/route");
    CHECK(strncmp(head, "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU"
                        "\tWindow\tIRTT", 68) == 0);
    for (char *l; (l = line());) {
        CHECK_EQ(strlen(l), 127); /* lines are padded: seq_setwidth in fib_route_seq_show */
        char name[32];
        unsigned to, gateway, flags, mask;
        CHECK_EQ(sscanf(l, "%31s\t%8X\t%8X\t%4X\t%*d\t%*u\t%*d\t%8X", name, &to, &gateway, &flags,
                        &mask), 5);
        CHECK(strcmp(name, "lo") != 0); /* local routes are of another table */
        CHECK((flags & 1) != 0);
    }
    head = first_line("/proc/net/arp");
    CHECK_STR(head, "IP address       HW type     Flags       HW address            Mask     "
                    "Device");
    NEEDS_IPV6();
    bool seen = false;
    load("/proc/net/if_inet6");
    cursor = text;
    for (char *l; (l = line());) {
        char address[33], name[32];
        unsigned index, prefix, scope, flags;
        CHECK_EQ(sscanf(l, "%32[0-9a-f] %2x %2x %2x %2x %31s", address, &index, &prefix, &scope,
                        &flags, name), 6);
        if (strcmp(name, "lo") != 0)
            continue;
        seen = true;
        CHECK_STR(address, "00000000000000000000000000000001");
        CHECK_EQ(index, if_nametoindex("lo"));
        CHECK_EQ(prefix, 128);
        CHECK_EQ(scope, 0x10);
        CHECK_EQ(flags, 0x80);
    }
    CHECK(seen);
}

static long number_in(const char *path, const char *row, const char *name) {
    load(path);
    cursor = text;
    for (char *l; (l = line());) {
        size_t n = strlen(row);
        if (strncmp(l, row, n) != 0 || l[n] != ':')
            continue;
        for (char *word = strtok(l + n + 1, " "); word; word = strtok(NULL, " ")) {
            char *value = strtok(NULL, " ");
            CHECK(value != NULL);
            if (strcmp(word, name) == 0)
                return atol(value);
        }
    }
    FAIL("%s has no %s of %s", path, name, row);
}
TEST(sockets_are_counted) {
    load("/proc/net/sockstat");
    CHECK(strncmp(text, "sockets: used ", 14) == 0);
    const char *path = "/proc/net/sockstat";
    own_network(); /* of which others change nothing */
    long udp = number_in(path, "UDP", "inuse"), tcp = number_in(path, "TCP", "inuse");
    int l = listener(AF_INET, 1), u = udp_socket(AF_INET);
    CHECK_EQ(number_in(path, "UDP", "inuse"), udp + 1);
    CHECK_EQ(number_in(path, "TCP", "inuse"), tcp + 1);
    CHECK(number_in(path, "sockets", "used") >= 2);
    number_in(path, "TCP", "orphan");
    number_in(path, "TCP", "tw");
    number_in(path, "TCP", "alloc");
    number_in(path, "TCP", "mem");
    number_in(path, "RAW", "inuse");
    number_in(path, "FRAG", "inuse");
    OK(close(u));
    OK(close(l));
    CHECK_EQ(number_in(path, "UDP", "inuse"), udp);
}

/* A number in snmp or netstat, where a line of names stands before each line of values. */
static long long counted(const char *path, const char *row, const char *name) {
    load(path);
    cursor = text;
    for (char *names; (names = line());) {
        char *values = line(), *a, *b;
        CHECK(values != NULL);
        size_t n = strlen(row);
        if (strncmp(names, row, n) != 0 || names[n] != ':')
            continue;
        CHECK(strncmp(values, row, n) == 0);
        char *word = strtok_r(names + n + 1, " ", &a), *value = strtok_r(values + n + 1, " ", &b);
        for (; word && value; word = strtok_r(NULL, " ", &a), value = strtok_r(NULL, " ", &b))
            if (strcmp(word, name) == 0)
                return atoll(value);
        CHECK(!word && !value); /* as many of each */
    }
    FAIL("%s has no %s of %s", path, name, row);
}
static long long snmp(const char *row, const char *name) {
    return counted("/proc/net/snmp", row, name);
}
static long long extended(const char *name) {
    return counted("/proc/net/netstat", "TcpExt", name);
}
TEST(protocols_count_what_they_do) {
    own_network();
    long long sent = snmp("Udp", "OutDatagrams"), got = snmp("Udp", "InDatagrams");
    long long none = snmp("Udp", "NoPorts"), opened = snmp("Tcp", "ActiveOpens");
    long long accepted = snmp("Tcp", "PassiveOpens"), delivered = snmp("Ip", "InDelivers");
    int a = udp_socket(AF_INET), b = udp_socket(AF_INET), e[2];
    char c;
    CHECK_EQ(OK(sendto(a, "x", 1, 0, LO4(port_of(b)))), 1);
    CHECK_EQ(OK(read(b, &c, 1)), 1); /* a datagram counts as received when it is read */
    OK(connect(b, LO4(9)));
    CHECK_EQ(OK(sendto(a, "x", 1, 0, LO4(port_of(b)))), 1); /* nobody takes it */
    tcp_pair(AF_INET, e);
    CHECK_EQ(snmp("Udp", "OutDatagrams"), sent + 2);
    CHECK_EQ(snmp("Udp", "InDatagrams"), got + 1);
    CHECK_EQ(snmp("Udp", "NoPorts"), none + 1);
    CHECK_EQ(snmp("Tcp", "ActiveOpens"), opened + 1);
    CHECK_EQ(snmp("Tcp", "PassiveOpens"), accepted + 1);
    CHECK(snmp("Ip", "InDelivers") >= delivered + 6);
    CHECK(snmp("Tcp", "CurrEstab") >= 2);
    CHECK(snmp("Icmp", "OutDestUnreachs") >= 1);
    CHECK_EQ(snmp("Ip", "DefaultTTL"), sysctl_number("/proc/sys/net/ipv4/ip_default_ttl"));
}

TEST(tcp_counts_ends_and_segments) {
    own_network();
    long long failed = snmp("Tcp", "AttemptFails"), broken = snmp("Tcp", "EstabResets");
    long long in = snmp("Tcp", "InSegs"), out = snmp("Tcp", "OutSegs");
    long long resets = snmp("Tcp", "OutRsts"), bad = snmp("Tcp", "InErrs");
    int dead = listener(AF_INET, 1), port = port_of(dead), e[2];
    OK(close(dead));
    int s = OK(socket(AF_INET, SOCK_STREAM, 0));
    ERR(connect(s, LO4(port)), ECONNREFUSED);
    CHECK_EQ(snmp("Tcp", "AttemptFails"), failed + 1);
    CHECK_EQ(snmp("Tcp", "OutRsts"), resets + 1);
    CHECK_EQ(snmp("Tcp", "EstabResets"), broken);
    tcp_pair(AF_INET, e);
    CHECK_EQ(OK(write(e[0], "x", 1)), 1);
    CHECK(snmp("Tcp", "OutSegs") >= out + 6); /* SYN and reset, three of a handshake, a byte */
    CHECK(snmp("Tcp", "InSegs") >= in + 6);
    /* Both ends see a reset; an end in order is none. */
    struct linger at_once = {1, 0};
    OK(setsockopt(e[0], SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once));
    OK(close(e[0]));
    AWAIT(e[1], POLLIN);
    CHECK_EQ(snmp("Tcp", "EstabResets"), broken + 2);
    tcp_pair(AF_INET, e);
    OK(close(e[0]));
    AWAIT(e[1], POLLIN);
    OK(close(e[1]));
    CHECK_EQ(snmp("Tcp", "EstabResets"), broken + 2);
    CHECK_EQ(snmp("Tcp", "AttemptFails"), failed + 1);
    CHECK_EQ(snmp("Tcp", "RtoMax"), 120000);
    CHECK_EQ(snmp("Tcp", "InErrs"), bad);
}

TEST(tcp_counts_what_was_sent_again) {
    own_network();
    long long again = snmp("Tcp", "RetransSegs"), syns = extended("TCPSynRetrans");
    long long timeouts = extended("TCPTimeouts"), full = extended("ListenOverflows");
    long long dropped = extended("ListenDrops");
    /* A listener whose queue is full leaves a SYN without an answer. */
    int l = listener(AF_INET, 0), waits = -1;
    for (int i = 0; waits == -1 && i < 10; i++) {
        int s = OK(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0));
        ERR(connect(s, LO4(port_of(l))), EINPROGRESS);
        if (events_of(s, POLLOUT, 100) == 0)
            waits = s;
    }
    CHECK(waits != -1);
    CHECK(extended("ListenOverflows") > full);
    CHECK(extended("ListenDrops") > dropped);
    for (int i = 0; i < 300 && extended("TCPSynRetrans") == syns; i++)
        usleep(10000); /* a second */
    CHECK(extended("TCPSynRetrans") > syns);
    CHECK(extended("TCPTimeouts") > timeouts);
    CHECK(snmp("Tcp", "RetransSegs") > again);
}

TEST(tcp_counts_questions_to_silent_peers) {
    own_network();
    long long asked = extended("TCPKeepAlive");
    int e[2];
    tcp_pair(AF_INET, e);
    OK(set_option(e[0], IPPROTO_TCP, TCP_KEEPIDLE, 1));
    OK(set_option(e[0], SOL_SOCKET, SO_KEEPALIVE, 1));
    for (int i = 0; i < 400 && extended("TCPKeepAlive") == asked; i++)
        usleep(10000);
    CHECK(extended("TCPKeepAlive") > asked);
}

TEST(protocols_are_listed) {
    char *head = first_line("/proc/net/protocols");
    CHECK(strncmp(head, "protocol  size sockets  memory press maxhdr  slab module", 55) == 0);
    int seen = 0;
    static const char *const names[] = {"TCP", "UDP", "RAW", "PING", "UNIX", "NETLINK", "PACKET"};
    for (char *l; (l = line());) {
        char name[32];
        unsigned size;
        int sockets;
        CHECK_EQ(sscanf(l, "%31s %u %d", name, &size, &sockets), 3);
        for (int i = 0; i < 7; i++)
            if (strcmp(name, names[i]) == 0)
                seen |= 1 << i;
    }
    CHECK_EQ(seen, 127);
}

TEST(the_network_is_of_the_process) {
    char link[64] = "";
    OK(readlink("/proc/net", link, sizeof link - 1));
    CHECK_STR(link, "self/net");
    int s = udp_socket(AF_INET);
    struct entry e;
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/net/udp", getpid());
    CHECK(find(path, inode_of(s), &e));
    CHECK(find("/proc/self/net/udp", inode_of(s), &e));
}

TEST(large_tables_are_read_in_pieces) {
    enum { N = 100 };
    int s[N];
    if (!alone())
        NEEDS_OWN_MACHINE();
    for (int i = 0; i < N; i++)
        s[i] = udp_socket(AF_INET);
    int fd = OK(open("/proc/net/udp", O_RDONLY));
    size_t size = 0;
    ssize_t n;
    while ((n = OK(read(fd, text + size, 300))) > 0)
        size += (size_t)n;
    text[size] = 0;
    cursor = text;
    line();
    int seen = 0;
    for (char *l; (l = line());) {
        unsigned long inode;
        CHECK_EQ(sscanf(l, " %*u: %*[0-9A-F]:%*X %*[0-9A-F]:%*X %*X %*X:%*X %*X:%*X %*X %*u "
                        "%*u %lu", &inode), 1);
        for (int i = 0; i < N; i++)
            seen += inode == inode_of(s[i]);
    }
    CHECK_EQ(seen, N);
}

/* ---- settings -------------------------------------------------------------------------------- */

#define CORE "/proc/sys/net/core/"
#define IPV4 "/proc/sys/net/ipv4/"

TEST(settings_have_sane_values) {
    static const struct {
        const char *path;
        long least, most;
    } numbers[] = {
        {CORE "somaxconn", 128, INT_MAX},
        {CORE "rmem_default", 4096, INT_MAX},
        {CORE "rmem_max", 4096, INT_MAX},
        {CORE "wmem_default", 4096, INT_MAX},
        {CORE "wmem_max", 4096, INT_MAX},
        {CORE "optmem_max", 1024, INT_MAX},
        {CORE "netdev_max_backlog", 1, INT_MAX},
        {IPV4 "ip_default_ttl", 1, 255},
        {IPV4 "ip_forward", 0, 1},
        {IPV4 "ip_unprivileged_port_start", 0, 65535},
        {IPV4 "tcp_fin_timeout", 1, 600},
        {IPV4 "tcp_keepalive_time", 1, 32767},
        {IPV4 "tcp_keepalive_intvl", 1, 32767},
        {IPV4 "tcp_keepalive_probes", 1, 127},
        {IPV4 "tcp_syn_retries", 1, 127},
        {IPV4 "tcp_max_syn_backlog", 1, INT_MAX},
        {IPV4 "tcp_sack", 0, 1},
        {IPV4 "tcp_timestamps", 0, 2},
        {IPV4 "tcp_window_scaling", 0, 1},
        {IPV4 "icmp_echo_ignore_all", 0, 1},
        {IPV4 "icmp_echo_ignore_broadcasts", 0, 1},
        {IPV4 "igmp_max_msf", 0, INT_MAX},
    };
    /* Some are of the first network only: a container does not see them. */
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        char value[64];
        ssize_t n = get_file(numbers[i].path, value, sizeof value);
        if (n == -1 && strncmp(numbers[i].path, CORE, sizeof CORE - 1) == 0)
            continue;
        long v = atol(value);
        if (n < 2 || value[n - 1] != '\n' || v < numbers[i].least || v > numbers[i].most)
            FAIL("%s is \"%s\"", numbers[i].path, value);
    }
    long a, b, c;
    load(IPV4 "ip_local_port_range");
    CHECK_EQ(sscanf(text, "%ld\t%ld\n", &a, &b), 2);
    CHECK(a > 0 && a < b && b < 65536);
    load(IPV4 "ping_group_range");
    CHECK_EQ(sscanf(text, "%ld\t%ld\n", &a, &b), 2);
    load(IPV4 "tcp_rmem");
    CHECK_EQ(sscanf(text, "%ld\t%ld\t%ld\n", &a, &b, &c), 3);
    CHECK(a <= b && b <= c);
    load(IPV4 "tcp_wmem");
    CHECK_EQ(sscanf(text, "%ld\t%ld\t%ld\n", &a, &b, &c), 3);
    CHECK(a <= b && b <= c);
    load(IPV4 "tcp_mem");
    CHECK_EQ(sscanf(text, "%ld\t%ld\t%ld\n", &a, &b, &c), 3);
    CHECK(a > 0 && a <= b && b <= c);
    load(IPV4 "udp_mem");
    CHECK_EQ(sscanf(text, "%ld\t%ld\t%ld\n", &a, &b, &c), 3);
    CHECK(a > 0 && a <= b && b <= c);
    load(IPV4 "tcp_congestion_control");
    char name[64], all[256];
    strcpy(name, strtok(text, "\n"));
    CHECK(get_file(IPV4 "tcp_available_congestion_control", all, sizeof all) > 0);
    CHECK(strstr(all, name) != NULL);
}

TEST(settings_are_for_root) {
    NEEDS_ROOT();
    BECOME(NOBODY, NOBODY);
    ERR(open(CORE "somaxconn", O_WRONLY), EACCES);
    ERR(open(IPV4 "ip_local_port_range", O_WRONLY), EACCES);
    ERR(open(IPV4 "tcp_rmem", O_RDWR), EACCES);
    OK(open(IPV4 "tcp_rmem", O_RDONLY));
}

static int set(const char *path, const char *value) {
    int fd = OK(open(path, O_WRONLY));
    ssize_t n = write(fd, value, strlen(value));
    int e = errno;
    close(fd);
    errno = e;
    return n == (ssize_t)strlen(value) ? 0 : -1;
}
TEST(settings_are_changed) {
    NEEDS_ROOT();
    own_network();
    char before[64];
    CHECK(get_file(IPV4 "ip_local_port_range", before, sizeof before) > 0);
    OK(set(IPV4 "ip_local_port_range", "40000 40009\n"));
    load(IPV4 "ip_local_port_range");
    CHECK_STR(text, "40000\t40009\n");
    int s[10];
    for (int i = 0; i < 10; i++) {
        s[i] = udp_socket(AF_INET);
        CHECK(port_of(s[i]) >= 40000 && port_of(s[i]) <= 40009);
    }
    int one_more = OK(socket(AF_INET, SOCK_DGRAM, 0));
    ERR(bind(one_more, LO4(0)), EADDRINUSE); /* none is left */
    ERR(sendto(one_more, "x", 1, 0, LO4(9)), EAGAIN);
    ERR(connect(one_more, LO4(9)), EAGAIN);
    ERR(set(IPV4 "ip_local_port_range", "50000 40000"), EINVAL);
    ERR(set(IPV4 "ip_local_port_range", "0 70000"), EINVAL);
    ERR(set(IPV4 "ip_local_port_range", "word"), EINVAL);
    load(IPV4 "ip_local_port_range");
    CHECK_STR(text, "40000\t40009\n");
    OK(set(IPV4 "ip_local_port_range", before));
    OK(set(IPV4 "ipfrag_time", "12\n"));
    load(IPV4 "ipfrag_time");
    CHECK_STR(text, "12\n");
    OK(set(IPV4 "ipfrag_time", "30\n"));
    if (access("/proc/sys/net/ipv6/ip6frag_time", F_OK) == 0) {
        OK(set("/proc/sys/net/ipv6/ip6frag_time", "13\n"));
        load("/proc/sys/net/ipv6/ip6frag_time");
        CHECK_STR(text, "13\n");
        OK(set("/proc/sys/net/ipv6/ip6frag_time", "60\n"));
    }
    /* A setting holds for sockets that are made afterwards. */
    char ttl[64];
    CHECK(get_file(IPV4 "ip_default_ttl", ttl, sizeof ttl) > 0);
    OK(set(IPV4 "ip_default_ttl", "33"));
    CHECK_EQ(OPTION(OK(socket(AF_INET, SOCK_STREAM, 0)), IPPROTO_IP, IP_TTL), 33);
    ERR(set(IPV4 "ip_default_ttl", "0"), EINVAL);
    ERR(set(IPV4 "ip_default_ttl", "256"), EINVAL);
    OK(set(IPV4 "ip_default_ttl", ttl));
    char low[64];
    CHECK(get_file(IPV4 "ip_unprivileged_port_start", low, sizeof low) > 0);
    OK(set(IPV4 "ip_unprivileged_port_start", "600"));
    IN_CHILD(BECOME(NOBODY, NOBODY); int t = OK(socket(AF_INET, SOCK_STREAM, 0));
             ERR(bind(t, LO4(599)), EACCES); OK(bind(t, LO4(600))));
    OK(set(IPV4 "ip_unprivileged_port_start", low));
    ERR(set(IPV4 "tcp_congestion_control", "no-such"), ENOENT);
    char name[64];
    CHECK(get_file(IPV4 "tcp_congestion_control", name, sizeof name) > 0);
    OK(set(IPV4 "tcp_congestion_control", "reno"));
    load(IPV4 "tcp_congestion_control");
    CHECK_STR(text, "reno\n");
    OK(set(IPV4 "tcp_congestion_control", name));
}

TEST(somaxconn_bounds_backlogs) {
    NEEDS_ROOT();
    own_network();
    char before[64];
    CHECK(get_file(CORE "somaxconn", before, sizeof before) > 0);
    OK(set(CORE "somaxconn", "1"));
    int l = listener(AF_INET, 1000), connected = 0;
    OK(set(CORE "somaxconn", before));
    for (int i = 0; i < 4; i++) {
        int s = OK(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0));
        ERR(connect(s, LO4(port_of(l))), EINPROGRESS);
        connected += events_of(s, POLLOUT, 100) == POLLOUT;
    }
    CHECK_EQ(connected, 2); /* as a backlog of one */
}
