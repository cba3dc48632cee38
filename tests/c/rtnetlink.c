/* Netlink sockets: ports, groups, requests of NETLINK_ROUTE and their answers. */
#define AREA "rtnetlink"
#include "harness.h"
#include <arpa/inet.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <ifaddrs.h>
#include <poll.h>
#include <sys/socket.h>
#include <linux/if_arp.h>

#ifndef SOL_NETLINK
#define SOL_NETLINK 270
#endif

static int open_route(void) { return OK(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE)); }
#define ADDR(a) ((struct sockaddr *)&(a))

/* ---- requests ------------------------------------------------------------------------------ */

static struct {
    struct nlmsghdr h;
    char body[512];
} request;

static void begin(int type, int flags, const void *fixed, size_t length) {
    memset(&request, 0, sizeof request);
    request.h.nlmsg_type = (unsigned short)type;
    request.h.nlmsg_flags = (unsigned short)(NLM_F_REQUEST | flags);
    request.h.nlmsg_seq = 77;
    request.h.nlmsg_len = (unsigned)NLMSG_LENGTH(length);
    memcpy(NLMSG_DATA(&request.h), fixed, length);
}
static void add(int type, const void *value, size_t length) {
    struct rtattr *a = (struct rtattr *)((char *)&request + NLMSG_ALIGN(request.h.nlmsg_len));
    a->rta_type = (unsigned short)type;
    a->rta_len = (unsigned short)RTA_LENGTH(length);
    memcpy(RTA_DATA(a), value, length);
    request.h.nlmsg_len = NLMSG_ALIGN(request.h.nlmsg_len) + (unsigned)RTA_ALIGN(a->rta_len);
}
static void ask(int fd) { CHECK_EQ(OK(send(fd, &request, request.h.nlmsg_len, 0)), request.h.nlmsg_len); }

/* ---- answers ------------------------------------------------------------------------------- */

static char answer[65536] __attribute__((aligned(8)));
static int answer_length;
static struct nlmsghdr *answered;

/* Receives a datagram; `answered` is its first message. */
static void hear(int fd) {
    struct sockaddr_nl from;
    socklen_t length = sizeof from;
    answer_length = (int)OK(recvfrom(fd, answer, sizeof answer, 0, ADDR(from), &length));
    CHECK_EQ(length, sizeof from);
    CHECK_EQ(from.nl_family, AF_NETLINK);
    CHECK_EQ(from.nl_pid, 0);
    answered = (struct nlmsghdr *)answer;
    CHECK(NLMSG_OK(answered, (unsigned)answer_length));
}
/* The error that the last answer tells. */
static int told(void) {
    CHECK_EQ(answered->nlmsg_type, NLMSG_ERROR);
    CHECK_EQ(answered->nlmsg_seq, 77);
    return -((struct nlmsgerr *)NLMSG_DATA(answered))->error;
}
/* Asks for something that is acknowledged: the error, or 0. */
static int done(int fd) {
    request.h.nlmsg_flags |= NLM_F_ACK;
    ask(fd);
    hear(fd);
    return told();
}
static void silent(int fd) { ERR(recv(fd, answer, sizeof answer, MSG_DONTWAIT), EAGAIN); }

static struct rtattr *attribute(struct nlmsghdr *m, size_t fixed, int type) {
    struct rtattr *a = (struct rtattr *)((char *)NLMSG_DATA(m) + NLMSG_ALIGN(fixed));
    int rest = (int)(m->nlmsg_len - NLMSG_SPACE(fixed));
    for (; RTA_OK(a, rest); a = RTA_NEXT(a, rest))
        if ((a->rta_type & NLA_TYPE_MASK) == type)
            return a;
    return NULL;
}

/* Dumps: calls `visit` with every message, returns the error at the end. */
static int dump(int fd, void (*visit)(struct nlmsghdr *)) {
    struct sockaddr_nl own;
    socklen_t length = sizeof own;
    request.h.nlmsg_flags |= NLM_F_DUMP;
    ask(fd);
    OK(getsockname(fd, ADDR(own), &length));
    for (;;) {
        hear(fd);
        int rest = answer_length;
        for (struct nlmsghdr *m = answered; NLMSG_OK(m, (unsigned)rest); m = NLMSG_NEXT(m, rest)) {
            CHECK_EQ(m->nlmsg_seq, 77);
            CHECK_EQ(m->nlmsg_pid, own.nl_pid);
            CHECK(m->nlmsg_flags & NLM_F_MULTI);
            if (m->nlmsg_type == NLMSG_DONE) {
                silent(fd);
                return -*(int *)NLMSG_DATA(m);
            }
            if (visit)
                visit(m);
        }
    }
}

static int count, seen;
static void visit_link(struct nlmsghdr *m) {
    count++;
    CHECK_EQ(m->nlmsg_type, RTM_NEWLINK);
    struct ifinfomsg *i = NLMSG_DATA(m);
    struct rtattr *name = attribute(m, sizeof *i, IFLA_IFNAME);
    CHECK(name != NULL);
    if (strcmp(RTA_DATA(name), "lo"))
        return;
    seen++;
    CHECK_EQ(i->ifi_index, 1);
    CHECK_EQ(i->ifi_type, ARPHRD_LOOPBACK);
    CHECK((i->ifi_flags & (IFF_UP | IFF_LOOPBACK)) == (IFF_UP | IFF_LOOPBACK));
    struct rtattr *mtu = attribute(m, sizeof *i, IFLA_MTU), *address = attribute(m, sizeof *i, IFLA_ADDRESS);
    CHECK(mtu && *(unsigned *)RTA_DATA(mtu) >= 60000); /* which another case may be changing */
    CHECK(address && RTA_PAYLOAD(address) == 6 && !memcmp(RTA_DATA(address), "\0\0\0\0\0", 6));
    struct rtattr *counted = attribute(m, sizeof *i, IFLA_STATS64);
    CHECK(counted && RTA_PAYLOAD(counted) >= 23 * 8);
    CHECK(attribute(m, sizeof *i, IFLA_STATS) && attribute(m, sizeof *i, IFLA_OPERSTATE));
}

/* ---- cases --------------------------------------------------------------------------------- */

TEST(creation_and_errors) {
    int fd = open_route(), v;
    socklen_t len = sizeof v;
    OK(getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &v, &len));
    CHECK_EQ(v, AF_NETLINK);
    OK(getsockopt(fd, SOL_SOCKET, SO_TYPE, &v, &len));
    CHECK_EQ(v, SOCK_RAW);
    OK(getsockopt(fd, SOL_SOCKET, SO_PROTOCOL, &v, &len));
    CHECK_EQ(v, NETLINK_ROUTE);
    OK(socket(AF_NETLINK, SOCK_DGRAM, NETLINK_ROUTE));
    ERR(socket(AF_NETLINK, SOCK_STREAM, NETLINK_ROUTE), ESOCKTNOSUPPORT);
    ERR(socket(AF_NETLINK, SOCK_SEQPACKET, NETLINK_ROUTE), ESOCKTNOSUPPORT);
    ERR(socket(AF_NETLINK, SOCK_RAW, 31), EPROTONOSUPPORT);
    ERR(socket(AF_NETLINK, SOCK_RAW, 32), EPROTONOSUPPORT);
    int pair[2];
    ERR(socketpair(AF_NETLINK, SOCK_RAW, NETLINK_ROUTE, pair), EOPNOTSUPP);
    ERR(listen(fd, 1), EOPNOTSUPP);
    ERR(accept(fd, NULL, NULL), EOPNOTSUPP);
    ERR(shutdown(fd, SHUT_RDWR), EOPNOTSUPP);
    ERR(send(fd, "0123456789abcdef", 16, MSG_OOB), EOPNOTSUPP);
    ERR(recv(fd, answer, 1, MSG_OOB), EOPNOTSUPP);
    ERR(send(fd, BAD, 16, 0), EFAULT);
    silent(fd);
}

TEST(ports_are_given) {
    int one = open_route(), two = open_route(), three = open_route();
    struct sockaddr_nl a = {0}, b = {0};
    socklen_t len = sizeof a;
    OK(getsockname(one, ADDR(a), &len));
    CHECK_EQ(len, sizeof a);
    CHECK_EQ(a.nl_pid, 0);
    a = (struct sockaddr_nl){.nl_family = AF_NETLINK};
    OK(bind(one, ADDR(a), sizeof a));
    OK(getsockname(one, ADDR(a), &len));
    CHECK_EQ(a.nl_pid, (unsigned)getpid());
    b = (struct sockaddr_nl){.nl_family = AF_NETLINK};
    OK(bind(two, ADDR(b), sizeof b));
    OK(getsockname(two, ADDR(b), &len));
    CHECK((int)b.nl_pid < 0); /* the number of the process is taken */
    ERR(bind(three, ADDR(a), sizeof a), EADDRINUSE);
    ERR(bind(one, ADDR(b), sizeof b), EINVAL); /* it has another */
    OK(bind(one, ADDR(a), sizeof a));
    a.nl_family = AF_UNIX;
    ERR(bind(three, ADDR(a), sizeof a), EINVAL);
    ERR(bind(three, ADDR(b), sizeof b - 1), EINVAL);
    OK(close(one)); /* which frees its port */
    a.nl_family = AF_NETLINK;
    OK(bind(three, ADDR(a), sizeof a));
}

TEST(requests_are_acknowledged) {
    int fd = open_route();
    struct rtgenmsg any = {AF_UNSPEC};
    begin(NLMSG_NOOP, NLM_F_ACK, &any, sizeof any);
    ask(fd);
    hear(fd);
    CHECK_EQ(told(), 0);
    CHECK_EQ(answered->nlmsg_len, 36); /* with the header of the request */
    CHECK(answered->nlmsg_flags & NLM_F_CAPPED);
    CHECK_EQ(answered->nlmsg_pid, (unsigned)getpid());
    struct ifinfomsg none = {0};
    begin(200, 0, &none, sizeof none);
    ask(fd);
    hear(fd);
    CHECK_EQ(told(), EOPNOTSUPP);
    struct nlmsgerr *error = NLMSG_DATA(answered);
    CHECK(!memcmp(&error->msg, &request.h, request.h.nlmsg_len)); /* with all of it */
    CHECK_EQ(answered->nlmsg_len, NLMSG_LENGTH(sizeof(int) + request.h.nlmsg_len));
    int on = 1;
    OK(setsockopt(fd, SOL_NETLINK, NETLINK_CAP_ACK, &on, sizeof on));
    ask(fd);
    hear(fd);
    CHECK_EQ(told(), EOPNOTSUPP);
    CHECK_EQ(answered->nlmsg_len, 36);
    request.h.nlmsg_flags = 0; /* not a request */
    ask(fd);
    silent(fd);
    request.h.nlmsg_len = 15; /* not a message */
    CHECK_EQ(OK(send(fd, &request, 32, 0)), 32);
    silent(fd);
    request.h.nlmsg_len = 33; /* longer than what was sent */
    CHECK_EQ(OK(send(fd, &request, 32, 0)), 32);
    silent(fd);
}

TEST(one_send_has_many_requests) {
    int fd = open_route();
    struct rtgenmsg any = {AF_UNSPEC};
    char both[64] = {0};
    for (unsigned i = 0; i < 2; i++) {
        begin(NLMSG_NOOP, NLM_F_ACK, &any, sizeof any);
        request.h.nlmsg_seq = 100 + i;
        memcpy(both + 20 * i, &request, 20);
    }
    CHECK_EQ(OK(send(fd, both, 40, 0)), 40);
    for (unsigned i = 0; i < 2; i++) {
        hear(fd);
        CHECK_EQ(answered->nlmsg_seq, 100 + i);
    }
    silent(fd);
}

TEST(links_are_listed) {
    int fd = open_route();
    struct ifinfomsg all = {0};
    begin(RTM_GETLINK, 0, &all, sizeof all);
    CHECK_EQ(dump(fd, visit_link), 0);
    CHECK_EQ(seen, 1);
    int listed = count;
    count = 0;
    struct rtgenmsg any = {AF_UNSPEC}; /* as the C library asks */
    begin(RTM_GETLINK, 0, &any, sizeof any);
    CHECK_EQ(dump(fd, visit_link), 0);
    CHECK_EQ(count, listed);
}

TEST(one_link_is_told) {
    int fd = open_route();
    struct ifinfomsg which = {.ifi_index = 1};
    begin(RTM_GETLINK, 0, &which, sizeof which);
    ask(fd);
    hear(fd);
    CHECK(!(answered->nlmsg_flags & NLM_F_MULTI));
    visit_link(answered);
    which.ifi_index = 0;
    begin(RTM_GETLINK, 0, &which, sizeof which);
    add(IFLA_IFNAME, "lo", 3);
    ask(fd);
    hear(fd);
    visit_link(answered);
    CHECK_EQ(seen, 2);
    begin(RTM_GETLINK, 0, &which, sizeof which);
    CHECK_EQ(done(fd), EINVAL); /* neither */
    add(IFLA_IFNAME, "none", 5);
    CHECK_EQ(done(fd), ENODEV);
    which.ifi_index = 99999;
    begin(RTM_GETLINK, 0, &which, sizeof which);
    CHECK_EQ(done(fd), ENODEV);
    begin(RTM_GETLINK, 0, &which, 1);
    CHECK_EQ(done(fd), EINVAL); /* too short */
    which.ifi_index = 1;
    begin(RTM_GETLINK, NLM_F_ACK, &which, sizeof which);
    ask(fd);
    hear(fd);
    CHECK_EQ(answered->nlmsg_type, RTM_NEWLINK);
    hear(fd); /* then the acknowledgement */
    CHECK_EQ(told(), 0);
}

TEST(small_buffers_cut_messages) {
    int fd = open_route();
    struct ifinfomsg which = {.ifi_index = 1};
    begin(RTM_GETLINK, 0, &which, sizeof which);
    ask(fd);
    long full = OK(recv(fd, NULL, 0, MSG_PEEK | MSG_TRUNC));
    CHECK(full > 200);
    struct iovec v = {answer, 40};
    struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1};
    CHECK_EQ(OK(recvmsg(fd, &m, MSG_PEEK)), 40);
    CHECK(m.msg_flags & MSG_TRUNC);
    CHECK_EQ(OK(recvmsg(fd, &m, MSG_TRUNC)), full);
    CHECK(m.msg_flags & MSG_TRUNC);
    silent(fd); /* the rest is lost */
}

static void visit_address(struct nlmsghdr *m) {
    count++;
    CHECK_EQ(m->nlmsg_type, RTM_NEWADDR);
    struct ifaddrmsg *i = NLMSG_DATA(m);
    if (i->ifa_family != AF_INET || i->ifa_index != 1)
        return;
    struct rtattr *local = attribute(m, sizeof *i, IFA_LOCAL), *label = attribute(m, sizeof *i, IFA_LABEL);
    CHECK(local && RTA_PAYLOAD(local) == 4);
    if (*(unsigned *)RTA_DATA(local) != htonl(INADDR_LOOPBACK))
        return;
    seen++;
    CHECK_EQ(i->ifa_prefixlen, 8);
    CHECK_EQ(i->ifa_scope, RT_SCOPE_HOST);
    CHECK(i->ifa_flags & IFA_F_PERMANENT);
    CHECK(label && !strcmp(RTA_DATA(label), "lo"));
    CHECK(attribute(m, sizeof *i, IFA_ADDRESS) && attribute(m, sizeof *i, IFA_CACHEINFO));
}

TEST(addresses_are_listed) {
    int fd = open_route();
    struct ifaddrmsg which = {0};
    begin(RTM_GETADDR, 0, &which, sizeof which);
    CHECK_EQ(dump(fd, visit_address), 0);
    CHECK_EQ(seen, 1);
    int all = count;
    which.ifa_family = AF_INET;
    begin(RTM_GETADDR, 0, &which, sizeof which);
    CHECK_EQ(dump(fd, visit_address), 0);
    CHECK_EQ(seen, 2);
    which.ifa_family = AF_INET6;
    begin(RTM_GETADDR, 0, &which, sizeof which);
    CHECK_EQ(dump(fd, visit_address), 0);
    CHECK_EQ(seen, 2);
    CHECK_EQ(count, 2 * all);
    begin(RTM_GETADDR, 0, &which, 1);
    CHECK_EQ(done(fd), EINVAL);
    which.ifa_family = AF_INET;
    begin(RTM_GETADDR, 0, &which, sizeof which);
    CHECK_EQ(done(fd), EOPNOTSUPP); /* one IPv4 address is not told */
}

static void visit_route(struct nlmsghdr *m) {
    count++;
    CHECK_EQ(m->nlmsg_type, RTM_NEWROUTE);
    struct rtmsg *r = NLMSG_DATA(m);
    struct rtattr *to = attribute(m, sizeof *r, RTA_DST), *by = attribute(m, sizeof *r, RTA_OIF);
    CHECK(attribute(m, sizeof *r, RTA_TABLE) != NULL);
    if (r->rtm_family != AF_INET || r->rtm_table != RT_TABLE_LOCAL || !to)
        return;
    if (*(unsigned *)RTA_DATA(to) != htonl(INADDR_LOOPBACK) || r->rtm_dst_len != 32)
        return;
    seen++;
    CHECK_EQ(r->rtm_type, RTN_LOCAL);
    CHECK_EQ(r->rtm_scope, RT_SCOPE_HOST);
    CHECK_EQ(r->rtm_protocol, RTPROT_KERNEL);
    CHECK(by && *(int *)RTA_DATA(by) == 1);
}

TEST(routes_are_listed) {
    int fd = open_route();
    struct rtmsg which = {0};
    begin(RTM_GETROUTE, 0, &which, sizeof which);
    CHECK_EQ(dump(fd, visit_route), 0);
    CHECK_EQ(seen, 1);
    struct rtgenmsg v6 = {AF_INET6};
    begin(RTM_GETROUTE, 0, &v6, sizeof v6);
    CHECK_EQ(dump(fd, visit_route), 0);
    CHECK_EQ(seen, 1);
}

static void visit_filtered(struct nlmsghdr *m) {
    count++;
    CHECK(m->nlmsg_flags & NLM_F_DUMP_FILTERED);
    if (m->nlmsg_type == RTM_NEWADDR)
        CHECK_EQ(((struct ifaddrmsg *)NLMSG_DATA(m))->ifa_index, 1);
    if (m->nlmsg_type == RTM_NEWROUTE)
        CHECK_EQ(((struct rtmsg *)NLMSG_DATA(m))->rtm_table, RT_TABLE_LOCAL);
}

TEST(strict_requests_select_and_are_checked) {
    int fd = open_route(), on = 1;
    OK(setsockopt(fd, SOL_NETLINK, NETLINK_GET_STRICT_CHK, &on, sizeof on));
    struct ifaddrmsg address = {.ifa_family = AF_INET, .ifa_index = 1};
    begin(RTM_GETADDR, 0, &address, sizeof address);
    CHECK_EQ(dump(fd, visit_filtered), 0);
    CHECK(count > 0);
    address.ifa_index = 99999;
    begin(RTM_GETADDR, 0, &address, sizeof address);
    CHECK_EQ(dump(fd, NULL), ENODEV);
    address = (struct ifaddrmsg){.ifa_family = AF_INET, .ifa_prefixlen = 8};
    begin(RTM_GETADDR, 0, &address, sizeof address);
    CHECK_EQ(dump(fd, NULL), EINVAL);
    begin(RTM_GETADDR, 0, &address, 1);
    CHECK_EQ(dump(fd, NULL), EINVAL);
    struct ifinfomsg link = {.ifi_index = 1};
    begin(RTM_GETLINK, 0, &link, sizeof link);
    CHECK_EQ(dump(fd, NULL), EINVAL);
    link.ifi_index = 0;
    begin(RTM_GETLINK, 0, &link, sizeof link);
    CHECK_EQ(dump(fd, visit_link), 0);
    CHECK_EQ(seen, 1);
    struct rtmsg route = {.rtm_family = AF_INET, .rtm_table = RT_TABLE_LOCAL};
    count = 0;
    begin(RTM_GETROUTE, 0, &route, sizeof route);
    CHECK_EQ(dump(fd, visit_filtered), 0);
    CHECK(count > 0);
    route = (struct rtmsg){.rtm_family = AF_INET, .rtm_table = 7};
    begin(RTM_GETROUTE, 0, &route, sizeof route);
    CHECK_EQ(dump(fd, NULL), ENOENT); /* no such table */
    route = (struct rtmsg){.rtm_family = AF_INET, .rtm_dst_len = 7};
    begin(RTM_GETROUTE, 0, &route, sizeof route);
    CHECK_EQ(dump(fd, NULL), EINVAL);
    struct ndmsg neighbour = {.ndm_state = NUD_STALE};
    begin(RTM_GETNEIGH, 0, &neighbour, sizeof neighbour);
    CHECK_EQ(dump(fd, NULL), EINVAL);
    neighbour.ndm_state = 0;
    begin(RTM_GETNEIGH, 0, &neighbour, sizeof neighbour);
    CHECK_EQ(dump(fd, NULL), 0);
}

TEST(the_way_to_a_host_is_told) {
    int fd = open_route();
    struct rtmsg which = {.rtm_family = AF_INET, .rtm_dst_len = 32};
    unsigned to = htonl(0x7f010203);
    begin(RTM_GETROUTE, 0, &which, sizeof which);
    add(RTA_DST, &to, 4);
    ask(fd);
    hear(fd);
    CHECK_EQ(answered->nlmsg_type, RTM_NEWROUTE);
    struct rtmsg *r = NLMSG_DATA(answered);
    CHECK_EQ(r->rtm_type, RTN_LOCAL);
    CHECK_EQ(r->rtm_dst_len, 32);
    CHECK(r->rtm_flags & RTM_F_CLONED);
    struct rtattr *by = attribute(answered, sizeof *r, RTA_OIF), *dst = attribute(answered, sizeof *r, RTA_DST);
    CHECK(by && *(int *)RTA_DATA(by) == 1);
    CHECK(dst && *(unsigned *)RTA_DATA(dst) == to);
    CHECK(!attribute(answered, sizeof *r, RTA_GATEWAY));
    which.rtm_family = AF_UNSPEC;
    begin(RTM_GETROUTE, 0, &which, sizeof which);
    CHECK_EQ(done(fd), EOPNOTSUPP);
}

TEST(options_are_kept) {
    int fd = open_route(), v, on = 1;
    static const int names[] = {NETLINK_PKTINFO, NETLINK_BROADCAST_ERROR, NETLINK_NO_ENOBUFS,
                                NETLINK_CAP_ACK, NETLINK_EXT_ACK,         NETLINK_GET_STRICT_CHK};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        for (int k = 0; k < 2; k++) {
            socklen_t len = sizeof v;
            OK(getsockopt(fd, SOL_NETLINK, names[i], &v, &len));
            CHECK_EQ(len, 4);
            CHECK_EQ(v, k);
            OK(setsockopt(fd, SOL_NETLINK, names[i], &on, sizeof on));
        }
    socklen_t len = 3;
    ERR(getsockopt(fd, SOL_NETLINK, NETLINK_PKTINFO, &v, &len), EINVAL);
    OK(setsockopt(fd, SOL_NETLINK, NETLINK_PKTINFO, &on, 1)); /* too short: as 0 */
    len = 4;
    OK(getsockopt(fd, SOL_NETLINK, NETLINK_PKTINFO, &v, &len));
    CHECK_EQ(v, 0);
    ERR(setsockopt(fd, SOL_NETLINK, NETLINK_PKTINFO, BAD, 4), EFAULT);
    ERR(setsockopt(fd, SOL_NETLINK, 999, &on, 4), ENOPROTOOPT);
    ERR(getsockopt(fd, SOL_NETLINK, 999, &v, &len), ENOPROTOOPT);
    ERR(setsockopt(fd, 6, 1, &on, 4), ENOPROTOOPT);
    ERR(getsockopt(fd, 6, 1, &v, &len), ENOPROTOOPT);
}

TEST(groups_are_joined_and_left) {
    int fd = open_route(), group = RTNLGRP_LINK, bad = 0;
    unsigned sets[2];
    socklen_t len = sizeof sets;
    OK(setsockopt(fd, SOL_NETLINK, NETLINK_ADD_MEMBERSHIP, &group, sizeof group));
    group = RTNLGRP_IPV6_ROUTE;
    OK(setsockopt(fd, SOL_NETLINK, NETLINK_ADD_MEMBERSHIP, &group, sizeof group));
    OK(getsockopt(fd, SOL_NETLINK, NETLINK_LIST_MEMBERSHIPS, sets, &len));
    CHECK_EQ(len, 8);
    CHECK_EQ(sets[0], RTMGRP_LINK | RTMGRP_IPV6_ROUTE);
    struct sockaddr_nl a;
    len = sizeof a;
    OK(getsockname(fd, ADDR(a), &len));
    CHECK_EQ(a.nl_groups, RTMGRP_LINK | RTMGRP_IPV6_ROUTE);
    OK(setsockopt(fd, SOL_NETLINK, NETLINK_DROP_MEMBERSHIP, &group, sizeof group));
    OK(getsockname(fd, ADDR(a), &len));
    CHECK_EQ(a.nl_groups, RTMGRP_LINK);
    a = (struct sockaddr_nl){.nl_family = AF_NETLINK, .nl_groups = RTMGRP_NEIGH};
    OK(bind(fd, ADDR(a), sizeof a));
    OK(getsockname(fd, ADDR(a), &len));
    CHECK_EQ(a.nl_groups, RTMGRP_NEIGH);
    ERR(setsockopt(fd, SOL_NETLINK, NETLINK_ADD_MEMBERSHIP, &bad, sizeof bad), EINVAL);
    bad = 5000;
    ERR(setsockopt(fd, SOL_NETLINK, NETLINK_ADD_MEMBERSHIP, &bad, sizeof bad), EINVAL);
}

TEST(the_group_is_told_with_the_message) {
    int fd = open_route(), on = 1;
    OK(setsockopt(fd, SOL_NETLINK, NETLINK_PKTINFO, &on, sizeof on));
    struct rtgenmsg any = {AF_UNSPEC};
    begin(NLMSG_NOOP, NLM_F_ACK, &any, sizeof any);
    ask(fd);
    char space[128] __attribute__((aligned(8)));
    struct iovec v = {answer, sizeof answer};
    struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof space};
    OK(recvmsg(fd, &m, 0));
    struct cmsghdr *h = CMSG_FIRSTHDR(&m);
    CHECK(h && h->cmsg_level == SOL_NETLINK && h->cmsg_type == NETLINK_PKTINFO);
    CHECK_EQ(((struct nl_pktinfo *)CMSG_DATA(h))->group, 0);
}

TEST(answers_wake_readers) {
    int fd = open_route();
    struct pollfd p = {fd, POLLIN | POLLOUT, 0};
    OK(poll(&p, 1, 0));
    CHECK_EQ(p.revents, POLLOUT);
    struct rtgenmsg any = {AF_UNSPEC};
    begin(NLMSG_NOOP, NLM_F_ACK, &any, sizeof any);
    ask(fd);
    OK(poll(&p, 1, 0));
    CHECK_EQ(p.revents, POLLIN | POLLOUT);
    hear(fd);
    struct timeval t = {0, 20000};
    OK(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t));
    ERR(read(fd, answer, sizeof answer), EAGAIN);
    CHECK_EQ(OK(write(fd, &request, request.h.nlmsg_len)), request.h.nlmsg_len);
    CHECK_EQ(OK(read(fd, answer, sizeof answer)), 36);
}

TEST(lost_answers_are_reported) {
    int fd = open_route(), least = 0, on = 1;
    OK(setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &least, sizeof least));
    struct rtgenmsg any = {AF_UNSPEC};
    begin(NLMSG_NOOP, NLM_F_ACK, &any, sizeof any);
    for (int i = 0; i < 100; i++)
        ask(fd);
    struct pollfd p = {fd, POLLIN, 0};
    OK(poll(&p, 1, 0));
    CHECK(p.revents & POLLERR);
    ERR(recv(fd, answer, sizeof answer, MSG_DONTWAIT), ENOBUFS);
    int left = 0;
    while (recv(fd, answer, sizeof answer, MSG_DONTWAIT) > 0)
        left++;
    CHECK_EQ(errno, EAGAIN);
    CHECK(left > 0 && left < 100);
    OK(setsockopt(fd, SOL_NETLINK, NETLINK_NO_ENOBUFS, &on, sizeof on));
    for (int i = 0; i < 100; i++)
        ask(fd);
    CHECK_EQ(OK(recv(fd, answer, sizeof answer, MSG_DONTWAIT)), 36);
}

TEST(the_c_library_finds_interfaces) {
    struct ifaddrs *all, *i;
    OK(getifaddrs(&all));
    int v4 = 0, v6 = 0, links = 0;
    for (i = all; i; i = i->ifa_next) {
        if (strcmp(i->ifa_name, "lo") || !i->ifa_addr)
            continue;
        CHECK(i->ifa_flags & IFF_LOOPBACK);
        if (i->ifa_addr->sa_family == AF_INET) {
            struct sockaddr_in *a = (void *)i->ifa_addr, *n = (void *)i->ifa_netmask;
            v4 += a->sin_addr.s_addr == htonl(INADDR_LOOPBACK) && n->sin_addr.s_addr == htonl(0xff000000);
        } else if (i->ifa_addr->sa_family == AF_INET6)
            v6++;
        else if (i->ifa_addr->sa_family == AF_PACKET)
            links += i->ifa_data != NULL;
    }
    freeifaddrs(all);
    CHECK_EQ(v4, 1);
    CHECK_EQ(links, 1);
    struct if_nameindex *names = if_nameindex();
    CHECK(names != NULL);
    int found = 0;
    for (struct if_nameindex *n = names; n->if_index; n++)
        found += n->if_index == 1 && !strcmp(n->if_name, "lo");
    CHECK_EQ(found, 1);
    if_freenameindex(names);
}

TEST(programs_talk_to_each_other) {
    int one = open_route(), two = open_route();
    struct sockaddr_nl a = {.nl_family = AF_NETLINK}, from;
    OK(bind(one, ADDR(a), sizeof a));
    socklen_t len = sizeof a;
    OK(getsockname(one, ADDR(a), &len));
    if (sendto(two, "hello", 5, 0, ADDR(a), sizeof a) < 0)
        SKIP("not privileged");
    CHECK_EQ(OK(recvfrom(one, answer, sizeof answer, 0, ADDR(from), &len)), 5);
    CHECK((int)from.nl_pid < 0);
    CHECK_EQ(from.nl_groups, 0);
    a.nl_pid = 12345678;
    ERR(sendto(two, "hello", 5, 0, ADDR(a), sizeof a), ECONNREFUSED);
    ERR(sendto(two, "hello", 5, 0, ADDR(a), sizeof a - 1), EINVAL);
    a = (struct sockaddr_nl){.nl_family = AF_NETLINK, .nl_groups = RTMGRP_NOTIFY};
    int group = RTNLGRP_NOTIFY;
    OK(setsockopt(one, SOL_NETLINK, NETLINK_ADD_MEMBERSHIP, &group, sizeof group));
    OK(sendto(two, "all", 3, 0, ADDR(a), sizeof a));
    CHECK_EQ(OK(recvfrom(one, answer, sizeof answer, 0, ADDR(from), &len)), 3);
    CHECK_EQ(from.nl_groups, RTMGRP_NOTIFY);
    a = (struct sockaddr_nl){.nl_family = AF_NETLINK, .nl_pid = (unsigned)getpid()};
    OK(connect(two, ADDR(a), sizeof a));
    OK(getpeername(two, ADDR(from), &len));
    CHECK_EQ(from.nl_pid, (unsigned)getpid());
    OK(send(two, "again", 5, 0));
    CHECK_EQ(OK(recv(one, answer, sizeof answer, 0)), 5);
    IN_CHILD({
        BECOME(1000, 1000);
        int own = open_route();
        ERR(sendto(own, "hello", 5, 0, ADDR(a), sizeof a), EPERM);
        ERR(connect(own, ADDR(a), sizeof a), EPERM);
    });
}

/* ---- changes ------------------------------------------------------------------------------- */

static void for_address(int type, int flags, unsigned address, unsigned char prefix) {
    struct ifaddrmsg m = {.ifa_family = AF_INET, .ifa_prefixlen = prefix, .ifa_index = 1};
    begin(type, flags, &m, sizeof m);
    address = htonl(address);
    add(IFA_LOCAL, &address, 4);
    add(IFA_ADDRESS, &address, 4);
}
static void for_route(int type, int flags, unsigned to, unsigned char prefix, int by) {
    struct rtmsg m = {.rtm_family = AF_INET, .rtm_dst_len = prefix, .rtm_table = RT_TABLE_MAIN,
                      .rtm_protocol = RTPROT_BOOT, .rtm_scope = RT_SCOPE_LINK, .rtm_type = RTN_UNICAST};
    begin(type, flags, &m, sizeof m);
    to = htonl(to);
    add(RTA_DST, &to, 4);
    if (by)
        add(RTA_OIF, &by, 4);
}
static unsigned sought;
static void visit_sought(struct nlmsghdr *m) {
    struct rtattr *a = m->nlmsg_type == RTM_NEWADDR ? attribute(m, sizeof(struct ifaddrmsg), IFA_LOCAL)
                                                    : attribute(m, sizeof(struct rtmsg), RTA_DST);
    if (a && *(unsigned *)RTA_DATA(a) == htonl(sought))
        count++;
}

TEST(changes_take_a_privilege) {
    IN_CHILD({
        if (geteuid() == 0)
            BECOME(1000, 1000);
        int fd = open_route();
        for_address(RTM_NEWADDR, NLM_F_CREATE, 0x0aff4d01, 32);
        CHECK_EQ(done(fd), EPERM);
        for_route(RTM_NEWROUTE, NLM_F_CREATE, 0x0aff4e00, 24, 1);
        CHECK_EQ(done(fd), EPERM);
        struct ifinfomsg link = {.ifi_index = 1};
        begin(RTM_SETLINK, 0, &link, sizeof link);
        CHECK_EQ(done(fd), EPERM);
        begin(200 - 200 % 4, 0, &link, sizeof link);
        CHECK_EQ(done(fd), EOPNOTSUPP); /* which is said first */
        begin(RTM_GETLINK, 0, &link, sizeof link);
        ask(fd); /* reading takes none */
        hear(fd);
        CHECK_EQ(answered->nlmsg_type, RTM_NEWLINK);
    });
}

/* A socket that hears a group. */
static int hearing(int group) {
    int fd = open_route();
    struct sockaddr_nl a = {.nl_family = AF_NETLINK}; /* one without a port would not */
    OK(bind(fd, ADDR(a), sizeof a));
    OK(setsockopt(fd, SOL_NETLINK, NETLINK_ADD_MEMBERSHIP, &group, sizeof group));
    struct timeval t = {2, 0};
    OK(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t));
    return fd;
}

/* The next news to the group about the address that is sought. */
static int announced(int fd, int size, int type) {
    for (;;) {
        ssize_t n = OK(recv(fd, answer, sizeof answer, 0));
        CHECK(n > 16);
        struct nlmsghdr *m = (struct nlmsghdr *)answer;
        struct rtattr *a = attribute(m, (size_t)size, type);
        if (a && RTA_PAYLOAD(a) == 4 && *(unsigned *)RTA_DATA(a) == htonl(sought)) {
            CHECK_EQ(m->nlmsg_pid == 0 || m->nlmsg_seq == 77, 1);
            return m->nlmsg_type;
        }
    }
}

static void body_addresses_come_and_go(void) {
    int fd = open_route(), monitor = hearing(RTNLGRP_IPV4_IFADDR);
    for_address(RTM_NEWADDR, NLM_F_CREATE | NLM_F_EXCL, sought, 32);
    int error = done(fd);
    if (error == EPERM)
        SKIP("not privileged");
    CHECK_EQ(error, 0);
    CHECK_EQ(announced(monitor, sizeof(struct ifaddrmsg), IFA_LOCAL), RTM_NEWADDR);
    for_address(RTM_NEWADDR, NLM_F_CREATE | NLM_F_EXCL, sought, 32);
    int again = done(fd);
    struct ifaddrmsg all = {.ifa_family = AF_INET};
    begin(RTM_GETADDR, 0, &all, sizeof all);
    int listed = dump(fd, visit_sought);
    for_address(RTM_DELADDR, 0, sought, 32);
    CHECK_EQ(done(fd), 0);
    CHECK_EQ(again, EEXIST);
    CHECK_EQ(listed, 0);
    CHECK_EQ(count, 1);
    CHECK_EQ(announced(monitor, sizeof(struct ifaddrmsg), IFA_LOCAL), RTM_DELADDR);
    for_address(RTM_DELADDR, 0, sought, 32);
    CHECK_EQ(done(fd), EADDRNOTAVAIL);
    for_address(RTM_NEWADDR, NLM_F_CREATE, sought, 33);
    CHECK_EQ(done(fd), EINVAL);
    struct ifaddrmsg none = {.ifa_family = AF_INET, .ifa_prefixlen = 32, .ifa_index = 99999};
    begin(RTM_NEWADDR, NLM_F_CREATE, &none, sizeof none);
    CHECK_EQ(done(fd), EINVAL); /* no address */
    add(IFA_LOCAL, &sought, 4);
    CHECK_EQ(done(fd), ENODEV);
}

static void body_routes_come_and_go(void) {
    int fd = open_route(), monitor = hearing(RTNLGRP_IPV4_ROUTE);
    for_route(RTM_NEWROUTE, NLM_F_CREATE | NLM_F_EXCL, sought, 31, 1);
    int error = done(fd);
    if (error == EPERM)
        SKIP("not privileged");
    CHECK_EQ(error, 0);
    CHECK_EQ(announced(monitor, sizeof(struct rtmsg), RTA_DST), RTM_NEWROUTE);
    for_route(RTM_NEWROUTE, NLM_F_CREATE | NLM_F_EXCL, sought, 31, 1);
    int again = done(fd);
    for_route(RTM_NEWROUTE, NLM_F_CREATE | NLM_F_REPLACE, sought, 31, 1);
    int replaced = done(fd);
    struct rtmsg all = {.rtm_family = AF_INET};
    begin(RTM_GETROUTE, 0, &all, sizeof all);
    CHECK_EQ(dump(fd, visit_sought), 0);
    for_route(RTM_DELROUTE, 0, sought, 31, 0);
    CHECK_EQ(done(fd), 0);
    CHECK_EQ(count, 1);
    CHECK_EQ(again, EEXIST);
    CHECK_EQ(replaced, 0);
    for_route(RTM_DELROUTE, 0, sought, 31, 0);
    CHECK_EQ(done(fd), ESRCH);
    for_route(RTM_NEWROUTE, 0, sought, 31, 1);
    CHECK_EQ(done(fd), ENOENT); /* nothing to be changed */
    for_route(RTM_NEWROUTE, NLM_F_CREATE, sought + 1, 31, 1);
    CHECK_EQ(done(fd), EINVAL); /* bits behind the prefix */
    for_route(RTM_NEWROUTE, NLM_F_CREATE, sought, 31, 99999);
    CHECK_EQ(done(fd), ENODEV);
    for_route(RTM_NEWROUTE, NLM_F_CREATE, sought, 33, 1);
    CHECK_EQ(done(fd), EINVAL);
}

static void body_links_are_set(void) {
    int fd = open_route(), monitor = hearing(RTNLGRP_LINK);
    struct ifinfomsg link = {.ifi_index = 1, .ifi_flags = IFF_UP, .ifi_change = IFF_UP};
    begin(RTM_NEWLINK, 0, &link, sizeof link);
    int error = done(fd); /* it is up already */
    if (error == EPERM)
        SKIP("not privileged");
    CHECK_EQ(error, 0);
    link = (struct ifinfomsg){.ifi_index = 1};
    unsigned mtu = 60000 + (unsigned)getpid() % 5000;
    begin(RTM_SETLINK, 0, &link, sizeof link);
    add(IFLA_MTU, &mtu, 4);
    CHECK_EQ(done(fd), 0);
    struct rtattr *told = NULL;
    for (int i = 0; i < 10 && !(told && *(unsigned *)RTA_DATA(told) == mtu); i++) {
        OK(recv(monitor, answer, sizeof answer, 0));
        CHECK_EQ(((struct nlmsghdr *)answer)->nlmsg_type, RTM_NEWLINK);
        told = attribute((struct nlmsghdr *)answer, sizeof link, IFLA_MTU);
    }
    mtu = 65536;
    begin(RTM_SETLINK, 0, &link, sizeof link);
    add(IFLA_MTU, &mtu, 4);
    CHECK_EQ(done(fd), 0);
    link.ifi_index = 99999;
    begin(RTM_SETLINK, 0, &link, sizeof link);
    CHECK_EQ(done(fd), ENODEV);
    begin(RTM_NEWLINK, 0, &(struct ifinfomsg){.ifi_index = 1}, sizeof link);
    request.h.nlmsg_flags |= NLM_F_EXCL;
    CHECK_EQ(done(fd), EEXIST);
}

/* Runs the body of a case in a child, so that its changes are undone wherever it ends. */
static void undone(void (*body)(void), void (*undo)(void)) {
    pid_t pid = FORK();
    if (pid == 0) {
        body();
        _exit(0);
    }
    int status = WAIT(pid);
    for (int i = 0; i < 2; i++) { /* twice, if memory is refused to the first */
        int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
        undo();
        send(fd, &request, request.h.nlmsg_len, 0);
        close(fd);
    }
    if (WIFEXITED(status) && WEXITSTATUS(status) == HY_EXIT_SKIPPED)
        _exit(HY_EXIT_SKIPPED);
    CHECK_EQ(status, 0);
}

static void forget_address(void) { for_address(RTM_DELADDR, 0, sought, 32); }
TEST(addresses_come_and_go) {
    sought = 0x0aff0000 | (unsigned)getpid() % 65536; /* others may run this case, too */
    undone(body_addresses_come_and_go, forget_address);
}

static void forget_route(void) { for_route(RTM_DELROUTE, 0, sought, 31, 0); }
TEST(routes_come_and_go) {
    sought = 0x0afe0000 | (unsigned)getpid() % 32768 << 1;
    undone(body_routes_come_and_go, forget_route);
}

static void forget_link(void) {
    unsigned mtu = 65536;
    begin(RTM_SETLINK, 0, &(struct ifinfomsg){.ifi_index = 1}, sizeof(struct ifinfomsg));
    add(IFLA_MTU, &mtu, 4);
}
TEST(links_are_set) { undone(body_links_are_set, forget_link); }
