/* Options of sockets (level SOL_SOCKET) that mean the same for every family, on Unix-domain
 * ones. */
#define AREA "sockopt"
#include "harness.h"
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>

static int s[2];
static void couple(int type) { OK(socketpair(AF_UNIX, type, 0, s)); }
static int number(int fd, int option) {
    int v = -77;
    socklen_t len = sizeof v;
    OK(getsockopt(fd, SOL_SOCKET, option, &v, &len));
    CHECK_EQ(len, sizeof v);
    return v;
}
static int set(int fd, int option, int v) { return setsockopt(fd, SOL_SOCKET, option, &v, sizeof v); }

TEST(switches_are_kept) {
    couple(SOCK_DGRAM);
    static const int names[] = {SO_DEBUG, SO_DONTROUTE, SO_NO_CHECK, SO_RXQ_OVFL, SO_REUSEADDR, SO_OOBINLINE};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        CHECK_EQ(number(s[0], names[i]), 0);
        OK(set(s[0], names[i], 7));
        CHECK_EQ(number(s[0], names[i]), 1);
        CHECK_EQ(number(s[1], names[i]), 0);
        OK(set(s[0], names[i], 0));
        CHECK_EQ(number(s[0], names[i]), 0);
    }
    OK(set(s[0], SO_BSDCOMPAT, 1)); /* obsolete: it is taken and has no effect */
    CHECK_EQ(number(s[0], SO_BSDCOMPAT), 0);
    OK(set(s[0], SO_REUSEPORT, 0));
    CHECK_EQ(number(s[0], SO_REUSEPORT), 0);
}

TEST(numbers_are_kept) {
    couple(SOCK_STREAM);
    CHECK_EQ(number(s[0], SO_PRIORITY), 0);
    OK(set(s[0], SO_PRIORITY, 6));
    CHECK_EQ(number(s[0], SO_PRIORITY), 6);
    CHECK_EQ(number(s[0], SO_RCVLOWAT), 1);
    OK(set(s[0], SO_RCVLOWAT, 9));
    CHECK_EQ(number(s[0], SO_RCVLOWAT), 9);
    OK(set(s[0], SO_RCVLOWAT, 0));
    CHECK_EQ(number(s[0], SO_RCVLOWAT), 1);
    OK(set(s[0], SO_RCVLOWAT, -1));
    CHECK_EQ(number(s[0], SO_RCVLOWAT), INT_MAX);
    CHECK_EQ(number(s[0], SO_INCOMING_CPU), -1);
    OK(set(s[0], SO_INCOMING_CPU, 2));
    CHECK_EQ(number(s[0], SO_INCOMING_CPU), 2);
    CHECK_EQ(number(s[0], SO_SNDLOWAT), 1);
    ERR(set(s[0], SO_SNDLOWAT, 2), ENOPROTOOPT);
}

TEST(linger_is_kept) {
    couple(SOCK_STREAM);
    struct linger l = {7, 7};
    socklen_t len = sizeof l;
    OK(getsockopt(s[0], SOL_SOCKET, SO_LINGER, &l, &len));
    CHECK_EQ(len, sizeof l);
    CHECK_EQ(l.l_onoff, 0);
    CHECK_EQ(l.l_linger, 0);
    l = (struct linger){5, 30};
    OK(setsockopt(s[0], SOL_SOCKET, SO_LINGER, &l, sizeof l));
    OK(getsockopt(s[0], SOL_SOCKET, SO_LINGER, &l, &len));
    CHECK_EQ(l.l_onoff, 1);
    CHECK_EQ(l.l_linger, 30);
    l = (struct linger){0, 99}; /* the time stays when it is switched off */
    OK(setsockopt(s[0], SOL_SOCKET, SO_LINGER, &l, sizeof l));
    OK(getsockopt(s[0], SOL_SOCKET, SO_LINGER, &l, &len));
    CHECK_EQ(l.l_onoff, 0);
    CHECK_EQ(l.l_linger, 30);
    ERR(setsockopt(s[0], SOL_SOCKET, SO_LINGER, &l, 4), EINVAL);
}

TEST(some_need_a_privilege) {
    couple(SOCK_STREAM);
    if (set(s[0], SO_MARK, 0x1234) < 0)
        SKIP("not privileged");
    CHECK_EQ(number(s[0], SO_MARK), 0x1234);
    OK(set(s[0], SO_PRIORITY, 7));
    CHECK_EQ(number(s[0], SO_PRIORITY), 7);
    OK(set(s[0], SO_DEBUG, 1));
    IN_CHILD({
        BECOME(1000, 1000);
        ERR(set(s[0], SO_MARK, 0x1234), EPERM);
        ERR(set(s[0], SO_PRIORITY, 7), EPERM);
        OK(set(s[0], SO_PRIORITY, 6));
        ERR(set(s[0], SO_DEBUG, 1), EACCES);
        OK(set(s[0], SO_DEBUG, 0));
        ERR(set(s[0], SO_SNDBUFFORCE, 9000), EPERM);
        ERR(set(s[0], SO_RCVBUFFORCE, 9000), EPERM);
    });
    CHECK_EQ(number(s[0], SO_MARK), 0x1234);
}

TEST(buffers_can_be_forced) {
    couple(SOCK_STREAM);
    int more = 20 << 20;
    if (set(s[0], SO_SNDBUFFORCE, more) < 0)
        SKIP("not privileged");
    CHECK_EQ(number(s[0], SO_SNDBUF), 2 * more);
    OK(set(s[0], SO_RCVBUFFORCE, more));
    CHECK_EQ(number(s[0], SO_RCVBUF), 2 * more);
    OK(set(s[0], SO_SNDBUF, more)); /* which is cut */
    CHECK(number(s[0], SO_SNDBUF) < 2 * more);
    OK(set(s[0], SO_SNDBUFFORCE, -5)); /* as 0 */
    CHECK_EQ(number(s[0], SO_SNDBUF), 4608);
    OK(set(s[0], SO_SNDBUFFORCE, INT_MAX)); /* as the half */
    CHECK_EQ(number(s[0], SO_SNDBUF), INT_MAX - 1);
    OK(set(s[0], SO_RCVBUFFORCE, 0));
    CHECK_EQ(number(s[0], SO_RCVBUF), 2304);
    socklen_t len = 4;
    int v;
    ERR(getsockopt(s[0], SOL_SOCKET, SO_SNDBUFFORCE, &v, &len), ENOPROTOOPT);
}

TEST(cookies_name_sockets) {
    couple(SOCK_STREAM);
    uint64_t one = 0, other = 0, again = 0;
    socklen_t len = sizeof one;
    OK(getsockopt(s[0], SOL_SOCKET, SO_COOKIE, &one, &len));
    CHECK_EQ(len, 8);
    OK(getsockopt(s[1], SOL_SOCKET, SO_COOKIE, &other, &len));
    OK(getsockopt(OK(dup(s[0])), SOL_SOCKET, SO_COOKIE, &again, &len));
    CHECK(one != 0);
    CHECK(one != other);
    CHECK(one == again);
    len = 7;
    ERR(getsockopt(s[0], SOL_SOCKET, SO_COOKIE, &one, &len), EINVAL);
    ERR(setsockopt(s[0], SOL_SOCKET, SO_COOKIE, &one, 8), ENOPROTOOPT);
}

TEST(the_peers_name_is_an_option_too) {
    struct sockaddr_un a = {.sun_family = AF_UNIX, .sun_path = "sock"}, b;
    int l = OK(socket(AF_UNIX, SOCK_STREAM, 0)), c = OK(socket(AF_UNIX, SOCK_STREAM, 0));
    socklen_t len = sizeof b;
    ERR(getsockopt(c, SOL_SOCKET, SO_PEERNAME, &b, &len), ENOTCONN);
    OK(bind(l, (struct sockaddr *)&a, sizeof a));
    OK(listen(l, 1));
    OK(connect(c, (struct sockaddr *)&a, sizeof a));
    ERR(getsockopt(c, SOL_SOCKET, SO_PEERNAME, &b, &len), EINVAL); /* more than there is */
    memset(&b, 0, sizeof b);
    len = 2 + 5;
    OK(getsockopt(c, SOL_SOCKET, SO_PEERNAME, &b, &len));
    CHECK_EQ(len, 7);
    CHECK_STR(b.sun_path, "sock");
    memset(&b, 0, sizeof b);
    len = 4;
    OK(getsockopt(c, SOL_SOCKET, SO_PEERNAME, &b, &len));
    CHECK_EQ(len, 4);
    CHECK_STR(b.sun_path, "so");
}

TEST(errors_come_in_order) {
    couple(SOCK_STREAM);
    int v = 1;
    socklen_t len = sizeof v;
    static const int fixed[] = {SO_TYPE, SO_ERROR, SO_ACCEPTCONN, SO_PROTOCOL, SO_DOMAIN, SO_PEERCRED, 9999};
    for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++) {
        ERR(setsockopt(s[0], SOL_SOCKET, fixed[i], &v, sizeof v), ENOPROTOOPT);
        ERR(setsockopt(s[0], SOL_SOCKET, fixed[i], &v, 3), EINVAL);
        ERR(setsockopt(s[0], SOL_SOCKET, fixed[i], BAD, sizeof v), EFAULT);
    }
    ERR(getsockopt(s[0], SOL_SOCKET, 9999, &v, &len), ENOPROTOOPT);
    ERR(getsockopt(s[0], SOL_SOCKET, 9999, &v, BAD), EFAULT);
    len = (socklen_t)-1;
    ERR(getsockopt(s[0], SOL_SOCKET, SO_TYPE, &v, &len), EINVAL);
    len = sizeof v;
    ERR(getsockopt(s[0], 6, 1, &v, &len), EOPNOTSUPP);
    ERR(setsockopt(s[0], 6, 1, &v, sizeof v), EOPNOTSUPP);
    /* A pending error is not lost by a call that cannot tell it. */
    OK(write(s[0], "x", 1));
    OK(close(s[1]));
    ERR(getsockopt(s[0], SOL_SOCKET, SO_ERROR, &v, BAD), EFAULT);
    OK(getsockopt(s[0], SOL_SOCKET, SO_ERROR, &v, &len));
    CHECK_EQ(v, ECONNRESET);
    OK(getsockopt(s[0], SOL_SOCKET, SO_ERROR, &v, &len));
    CHECK_EQ(v, 0);
}

TEST(a_stream_waits_for_the_low_water_mark) {
    couple(SOCK_STREAM);
    OK(set(s[0], SO_RCVLOWAT, 5));
    char text[16] = "";
    pid_t pid = FORK();
    if (pid == 0) {
        OK(write(s[1], "abc", 3));
        usleep(50000);
        OK(write(s[1], "def", 3));
        _exit(0);
    }
    CHECK_EQ(OK(read(s[0], text, sizeof text)), 6);
    CHECK_STR(text, "abcdef");
    EXITS(pid, 0);
    OK(write(s[1], "gh", 2)); /* a smaller buffer is enough, and so is not waiting */
    CHECK_EQ(OK(read(s[0], text, 1)), 1);
    CHECK_EQ(OK(recv(s[0], text, sizeof text, MSG_DONTWAIT)), 1);
    OK(write(s[1], "ij", 2));
    OK(shutdown(s[1], SHUT_WR));
    CHECK_EQ(OK(read(s[0], text, sizeof text)), 2);
}

/* The control message of this type, or NULL. */
static void *receive(int fd, int type, size_t size) {
    static char space[256] __attribute__((aligned(8)));
    char c;
    struct iovec v = {&c, 1};
    struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof space};
    CHECK_EQ(OK(recvmsg(fd, &m, 0)), 1);
    for (struct cmsghdr *h = CMSG_FIRSTHDR(&m); h; h = CMSG_NXTHDR(&m, h))
        if (h->cmsg_level == SOL_SOCKET && h->cmsg_type == type) {
            CHECK_EQ(h->cmsg_len, CMSG_LEN(size));
            return CMSG_DATA(h);
        }
    return NULL;
}

TEST(messages_come_with_their_time) {
    static const int types[] = {SOCK_DGRAM, SOCK_SEQPACKET};
    for (int i = 0; i < 2; i++) {
        couple(types[i]);
        OK(set(s[0], SO_TIMESTAMP, 1));
        CHECK_EQ(number(s[0], SO_TIMESTAMP), 1);
        struct timespec before, after;
        OK(clock_gettime(CLOCK_REALTIME, &before));
        OK(send(s[1], "x", 1, 0));
        struct timeval *t = receive(s[0], SO_TIMESTAMP, sizeof *t);
        OK(clock_gettime(CLOCK_REALTIME, &after));
        CHECK(t != NULL);
        CHECK(t->tv_sec >= before.tv_sec - 1 && t->tv_sec <= after.tv_sec && t->tv_usec < 1000000);
        OK(set(s[0], SO_TIMESTAMPNS, 1)); /* in place of the other */
        CHECK_EQ(number(s[0], SO_TIMESTAMP), 0);
        CHECK_EQ(number(s[0], SO_TIMESTAMPNS), 1);
        OK(send(s[1], "x", 1, 0));
        struct timespec *n = receive(s[0], SO_TIMESTAMPNS, sizeof *n);
        CHECK(n != NULL);
        CHECK(n->tv_sec >= before.tv_sec - 1 && n->tv_nsec < 1000000000);
        OK(set(s[0], SO_TIMESTAMPNS, 0));
        OK(send(s[1], "x", 1, 0));
        CHECK(receive(s[0], SO_TIMESTAMPNS, sizeof *n) == NULL);
    }
    couple(SOCK_STREAM); /* bytes of a stream have no time */
    OK(set(s[0], SO_TIMESTAMP, 1));
    OK(send(s[1], "x", 1, 0));
    CHECK(receive(s[0], SO_TIMESTAMP, sizeof(struct timeval)) == NULL);
}

/* The options with 64 bits for seconds on every machine (Linux 5.1), which musl does not name. */
#ifndef SO_TIMESTAMP_NEW
#define SO_TIMESTAMP_NEW 63
#define SO_TIMESTAMPNS_NEW 64
#define SO_TIMESTAMPING_NEW 65
#define SO_RCVTIMEO_NEW 66
#define SO_SNDTIMEO_NEW 67
#endif

TEST(times_by_their_new_numbers) {
    couple(SOCK_DGRAM);
    int64_t before = now_ns(CLOCK_REALTIME);
    OK(set(s[0], SO_TIMESTAMP_NEW, 1));
    CHECK_EQ(number(s[0], SO_TIMESTAMP_NEW), 1);
    CHECK_EQ(number(s[0], SO_TIMESTAMP), 0);
    CHECK_EQ(number(s[0], SO_TIMESTAMPNS_NEW), 0);
    OK(send(s[1], "x", 1, 0));
    int64_t *t = receive(s[0], SO_TIMESTAMP_NEW, 16);
    CHECK(t && t[0] >= before / 1000000000 - 1 && t[1] < 1000000);
    OK(send(s[1], "x", 1, 0));
    CHECK(receive(s[0], SO_TIMESTAMP, 16) == NULL);

    OK(set(s[0], SO_TIMESTAMPNS_NEW, 1));
    CHECK_EQ(number(s[0], SO_TIMESTAMPNS_NEW), 1);
    CHECK_EQ(number(s[0], SO_TIMESTAMPNS), 0);
    CHECK_EQ(number(s[0], SO_TIMESTAMP), 0);
    CHECK_EQ(number(s[0], SO_TIMESTAMP_NEW), 1); /* the unit is not asked for there */
    OK(send(s[1], "x", 1, 0));
    t = receive(s[0], SO_TIMESTAMPNS_NEW, 16);
    CHECK(t && t[0] >= before / 1000000000 - 1 && t[1] < 1000000000);

    OK(set(s[0], SO_TIMESTAMPNS, 1)); /* the old form in its place */
    CHECK_EQ(number(s[0], SO_TIMESTAMPNS), 1);
    CHECK_EQ(number(s[0], SO_TIMESTAMPNS_NEW), 0);
    OK(send(s[1], "x", 1, 0));
    CHECK(receive(s[0], SO_TIMESTAMPNS, 16) != NULL);
    OK(set(s[0], SO_TIMESTAMP_NEW, 0));
    CHECK_EQ(number(s[0], SO_TIMESTAMPNS), 0);
    OK(send(s[1], "x", 1, 0));
    CHECK(receive(s[0], SO_TIMESTAMPNS, 16) == NULL);
}

/* Times of SO_TIMESTAMPING_NEW, over the loopback interface: this machine's clock alone. */
TEST(time_stamping_by_its_new_number) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof at;
    int to = OK(socket(AF_INET, SOCK_DGRAM, 0)), from = OK(socket(AF_INET, SOCK_DGRAM, 0));
    OK(bind(to, (void *)&at, sizeof at));
    OK(getsockname(to, (void *)&at, &len));
    OK(set(to, SO_TIMESTAMPING_NEW, 8 | 16)); /* RX_SOFTWARE, SOFTWARE */
    /* Linux begins to note times a moment later (`netstamp_work`). */
    int64_t *t = NULL;
    EVENTUALLY((OK(sendto(from, "x", 1, 0, (void *)&at, sizeof at)),
                t = receive(to, SO_TIMESTAMPING_NEW, 48)) != NULL);
    CHECK(t[0] > 0 && t[1] < 1000000000);
    CHECK_EQ(t[4], 0);
    OK(set(to, 37 /* SO_TIMESTAMPING */, 8 | 16));
    OK(sendto(from, "x", 1, 0, (void *)&at, sizeof at));
    CHECK(receive(to, 37, 48) != NULL);
    ERR(set(to, SO_TIMESTAMPING_NEW, 1 << 30), EINVAL);
}

TEST(timeouts_by_their_new_numbers) {
    couple(SOCK_STREAM);
    static const int names[][2] = {{SO_RCVTIMEO_NEW, SO_RCVTIMEO}, {SO_SNDTIMEO_NEW, SO_SNDTIMEO}};
    for (int i = 0; i < 2; i++) {
        int64_t t[2] = {3, 500000}, got[2] = {-1, -1};
        socklen_t len = sizeof got;
        OK(setsockopt(s[0], SOL_SOCKET, names[i][0], t, sizeof t));
        for (int j = 0; j < 2; j++) {
            OK(getsockopt(s[0], SOL_SOCKET, names[i][j], got, &len));
            CHECK_EQ(len, 16);
            CHECK_EQ(got[0], 3);
            CHECK_EQ(got[1], 500000);
        }
        t[1] = 1000000;
        ERR(setsockopt(s[0], SOL_SOCKET, names[i][0], t, sizeof t), EDOM);
        ERR(setsockopt(s[0], SOL_SOCKET, names[i][0], t, 8), EINVAL);
        ERR(setsockopt(s[0], SOL_SOCKET, names[i][0], BAD, sizeof t), EFAULT);
    }
    int64_t soon[2] = {0, 50000};
    char c;
    OK(setsockopt(s[0], SOL_SOCKET, SO_RCVTIMEO_NEW, soon, sizeof soon));
    int64_t begun = now_ns(CLOCK_MONOTONIC);
    ERR(read(s[0], &c, 1), EAGAIN);
    CHECK(now_ns(CLOCK_MONOTONIC) - begun >= 49 * MS);
}

TEST(packets_ignore_an_address) {
    couple(SOCK_SEQPACKET);
    struct sockaddr_un a = {.sun_family = AF_UNIX, .sun_path = "none"};
    CHECK_EQ(OK(sendto(s[0], "x", 1, 0, (struct sockaddr *)&a, sizeof a)), 1);
    a.sun_family = AF_INET;
    CHECK_EQ(OK(sendto(s[0], "y", 1, 0, (struct sockaddr *)&a, sizeof a)), 1);
    char c;
    CHECK_EQ(OK(read(s[1], &c, 1)), 1);
    CHECK_EQ(OK(read(s[1], &c, 1)), 1);
    CHECK_EQ(c, 'y');
    int lone = OK(socket(AF_UNIX, SOCK_SEQPACKET, 0));
    ERR(sendto(lone, "x", 1, 0, (struct sockaddr *)&a, sizeof a), ENOTCONN);
    couple(SOCK_STREAM); /* a stream does not look at it either */
    ERR(sendto(s[0], "x", 1, 0, (struct sockaddr *)&a, sizeof a), EISCONN);
    lone = OK(socket(AF_UNIX, SOCK_STREAM, 0));
    ERR(sendto(lone, "x", 1, 0, (struct sockaddr *)&a, sizeof a), EOPNOTSUPP);
}

static void fail_to_send(int type, int how) {
    couple(type);
    OK(shutdown(s[0], SHUT_WR));
    if (how == 0)
        send(s[0], "x", 1, 0);
    else if (how == 1)
        write(s[0], "x", 1);
    else if (how == 2)
        send(s[0], "x", 1, MSG_NOSIGNAL);
    else {
        int fd = OK(open("file", O_RDWR | O_CREAT, 0600));
        OK(write(fd, "x", 1));
        off_t at = 0;
        syscall(SYS_sendfile, s[0], fd, &at, 1);
    }
    _exit(errno == EPIPE ? 0 : 99);
}

TEST(only_streams_raise_sigpipe) {
    static const int types[] = {SOCK_STREAM, SOCK_DGRAM, SOCK_SEQPACKET};
    for (int i = 0; i < 3; i++)
        for (int how = 0; how < 4; how++) {
            pid_t pid = FORK();
            if (pid == 0)
                fail_to_send(types[i], how);
            if (types[i] == SOCK_STREAM && how != 2)
                KILLED(pid, SIGPIPE);
            else
                EXITS(pid, 0);
        }
}

TEST(a_connection_is_not_lost_without_a_descriptor) {
    struct sockaddr_un a = {.sun_family = AF_UNIX, .sun_path = "sock"};
    int l = OK(socket(AF_UNIX, SOCK_STREAM, 0)), c = OK(socket(AF_UNIX, SOCK_STREAM, 0));
    OK(bind(l, (struct sockaddr *)&a, sizeof a));
    OK(listen(l, 1));
    OK(connect(c, (struct sockaddr *)&a, sizeof a));
    struct rlimit old, few = {(rlim_t)c + 1, (rlim_t)c + 1};
    OK(getrlimit(RLIMIT_NOFILE, &old));
    few.rlim_max = old.rlim_max;
    OK(setrlimit(RLIMIT_NOFILE, &few));
    ERR(accept(l, NULL, NULL), EMFILE);
    OK(setrlimit(RLIMIT_NOFILE, &old));
    int d = OK(accept(l, NULL, NULL));
    OK(write(c, "x", 1));
    char byte;
    CHECK_EQ(OK(read(d, &byte, 1)), 1);
}
