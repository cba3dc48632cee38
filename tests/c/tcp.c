/*
 * TCP connections: how they begin, in every order of the calls, and how they end: tcp(7),
 * connect(2), accept(2), listen(2), shutdown(2). Data is in tcpdata.c, options are in tcpopt.c,
 * events in tcpevent.c.
 */
#define AREA "tcp"
#include "net.h"
#include <netinet/tcp.h>
#include <sys/un.h>

static int tcp4(void) { return OK(socket(AF_INET, SOCK_STREAM, 0)); }
/* A port on which nobody listens, and that nobody else gets. */
static int dead_port(void) {
    int s = tcp4();
    OK(bind(s, LO4(0)));
    return port_of(s);
}
static int error_of(int s) { return OPTION(s, SOL_SOCKET, SO_ERROR); }
static int state_of(int s) {
    struct tcp_info info = {0};
    socklen_t length = sizeof info;
    OK(getsockopt(s, IPPROTO_TCP, TCP_INFO, &info, &length));
    return info.tcpi_state;
}
/* Closing sends a reset. */
static void abort_connection(int s) {
    struct linger now = {1, 0};
    OK(setsockopt(s, SOL_SOCKET, SO_LINGER, &now, sizeof now));
    OK(close(s));
}

/* ---- the calls in every order ---------------------------------------------------------------- */

TEST(before_anything) {
    int s = tcp4();
    char c = 0;
    CHECK_EQ(state_of(s), TCP_CLOSE);
    ERR(accept(s, NULL, NULL), EINVAL);
    ERR(read(s, &c, 1), ENOTCONN);
    ERR(recv(s, &c, 1, MSG_DONTWAIT), ENOTCONN);
    ERR(send(s, &c, 1, MSG_NOSIGNAL), EPIPE);
    ERR(shutdown(s, 3), EINVAL);
    ERR(shutdown(s, -1), EINVAL);
    CHECK_EQ(events_of(s, POLLIN | POLLOUT | POLLRDHUP, 0), POLLOUT | POLLHUP);
    int n = 5;
    OK(ioctl(s, FIONREAD, &n));
    CHECK_EQ(n, 0);
    OK(bind(s, LO4(0)));
    ERR(accept(s, NULL, NULL), EINVAL);
    ERR(read(s, &c, 1), ENOTCONN);
    /* shutdown says that there is no connection, and ends the direction all the same: inet_shutdown
     * in net/ipv4/af_inet.c wakes those who wait for the end. */
    ERR(shutdown(s, SHUT_RD), ENOTCONN);
    ERR(shutdown(s, SHUT_WR), ENOTCONN);
    ERR(shutdown(s, SHUT_RDWR), ENOTCONN);
    CHECK_EQ(events_of(s, POLLIN | POLLOUT | POLLRDHUP, 0), POLLIN | POLLOUT | POLLHUP | POLLRDHUP);
}

TEST(a_listener_only_accepts) {
    /* A port that a program names stays its own; one that it was given goes when it disconnects. */
    int l = tcp4(), first = tcp4();
    OK(set_option(first, SOL_SOCKET, SO_REUSEADDR, 1));
    OK(set_option(l, SOL_SOCKET, SO_REUSEADDR, 1));
    OK(bind(first, LO4(0)));
    OK(bind(l, LO4(port_of(first))));
    OK(listen(l, 4));
    char c = 0;
    CHECK_EQ(OPTION(l, SOL_SOCKET, SO_ACCEPTCONN), 1);
    CHECK_EQ(state_of(l), TCP_LISTEN);
    ERR(connect(l, LO4(port_of(l))), EISCONN); /* __inet_stream_connect: not SS_UNCONNECTED */
    ERR(read(l, &c, 1), ENOTCONN);
    ERR(send(l, &c, 1, MSG_NOSIGNAL), EPIPE);
    ERR(ioctl(l, FIONREAD, &(int){0}), EINVAL);
    ERR(bind(l, LO4(0)), EINVAL);
    OK(listen(l, 8)); /* again, with another backlog */
    OK(listen(l, -1));
    CHECK_EQ(events_of(l, POLLIN | POLLOUT, 0), 0);
    /* An end of it makes it a socket that does not listen. */
    int waiting = dial(AF_INET, port_of(l));
    int port = port_of(l);
    OK(shutdown(l, SHUT_RD));
    ERR(accept(l, NULL, NULL), EINVAL);
    CHECK_EQ(OPTION(l, SOL_SOCKET, SO_ACCEPTCONN), 0);
    AWAIT(waiting, POLLIN);
    ERR(read(waiting, &c, 1), ECONNRESET);
    ERR(connect(tcp4(), LO4(port)), ECONNREFUSED);
    OK(listen(l, 1)); /* and it can listen again, where it did */
    CHECK_EQ(port_of(l), port);
    OK(close(dial(AF_INET, port)));
}

TEST(listen_and_accept_errors) {
    int u = udp_socket(AF_INET);
    ERR(listen(u, 1), EOPNOTSUPP);
    ERR(accept(u, NULL, NULL), EOPNOTSUPP);
    int l = listener(AF_INET, 4);
    /* musl's accept4 tries accept when the kernel says EINVAL. */
    ERR(syscall(SYS_accept4, l, NULL, NULL, 1), EINVAL);
    ERR(syscall(SYS_accept4, l, NULL, NULL, O_APPEND), EINVAL);
    nonblocking(l);
    ERR(accept(l, NULL, NULL), EAGAIN);
    int ends[2];
    tcp_pair(AF_INET, ends);
    ERR(accept(ends[0], NULL, NULL), EINVAL);
    ERR(listen(ends[0], 1), EINVAL);
    ERR(listen(ends[1], 1), EINVAL);
    /* A bad address for the name loses the connection. */
    OK(connect(tcp4(), LO4(port_of(l))));
    AWAIT(l, POLLIN);
    ERR(accept(l, BAD, &(socklen_t){16}), EFAULT);
    ERR(accept(l, NULL, NULL), EAGAIN);
    OK(connect(tcp4(), LO4(port_of(l))));
    AWAIT(l, POLLIN);
    union address a;
    ERR(accept(l, &a.any, &(socklen_t){-1}), EINVAL);
    ERR(accept(l, NULL, NULL), EAGAIN);
}

TEST(a_connection_that_accept_loses_ends) {
    for (int family = AF_INET;; family = AF_INET6) {
        int l = listener(family, 4);
        for (int i = 0; i < 3; i++) {
            int c = dial(family, port_of(l));
            send_all(c, "unread", i == 1 ? 6 : 0);
            AWAIT(l, POLLIN);
            union address a;
            if (i < 2)
                ERR(accept(l, BAD, &(socklen_t){sizeof a}), EFAULT);
            else
                ERR(accept(l, &a.any, &(socklen_t){-1}), EINVAL);
            /* The file was made and is closed (do_accept): what was not read makes a reset. */
            char byte;
            AWAIT(c, POLLRDHUP | POLLHUP);
            if (i == 1)
                ERR(recv(c, &byte, 1, 0), ECONNRESET);
            else
                CHECK_EQ(OK(recv(c, &byte, 1, 0)), 0);
            close(c);
        }
        nonblocking(l);
        ERR(accept(l, NULL, NULL), EAGAIN);
        close(l);
        if (family == AF_INET6)
            break;
        NEEDS_IPV6();
    }
}

TEST(a_connection_that_fails_before_accept_frees_the_port) {
    /* The listener waits for data, so the connection is not established for it. */
    for (int i = 0; i < 2; i++) {
        int l = listener(AF_INET, 4), port = port_of(l);
        OK(set_option(l, IPPROTO_TCP, TCP_DEFER_ACCEPT, 30));
        int c = dial(AF_INET, port);
        OK(setsockopt(c, SOL_SOCKET, SO_LINGER, &(struct linger){1, 0}, sizeof(struct linger)));
        if (i == 0) {
            OK(close(c)); /* before the listener ends */
            OK(close(l));
        } else {
            OK(close(l)); /* after it: data are answered by a reset */
            send_all(c, "x", 1);
            AWAIT(c, POLLRDHUP | POLLHUP);
            OK(close(c));
        }
        int s = tcp4();
        OK(bind(s, LO4(port)));
        OK(listen(s, 1));
        OK(close(s));
    }
}

TEST(ports_that_are_used_up_are_there_again) {
    NEEDS_ROOT();
    own_network();
    enum { PORTS = 200 };
    /* Ports that no socket got before without asking: neither these listeners nor a connection of
     * another case, which has its port for a minute after its end. */
    enum { FIRST = 20000 };
    int l = listener(AF_INET, PORTS + 8), other = listener(AF_INET, 8), c[PORTS], a[PORTS];
    CHECK(port_of(l) >= FIRST + PORTS && port_of(other) >= FIRST + PORTS);
    SET_SYSCTL("/proc/sys/net/ipv4/ip_local_port_range", "20000 20199\n");
    struct linger reset = {1, 0};
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < PORTS; i++) {
            c[i] = dial(AF_INET, port_of(l));
            CHECK(port_of(c[i]) >= FIRST && port_of(c[i]) < FIRST + PORTS);
            OK(setsockopt(c[i], SOL_SOCKET, SO_LINGER, &reset, sizeof reset));
            a[i] = OK(accept(l, NULL, NULL));
        }
        int s = tcp4();
        ERR(connect(s, LO4(port_of(l))), EADDRNOTAVAIL);
        ERR(bind(tcp4(), LO4(0)), EADDRINUSE);
        /* The four numbers of a connection to another are free. */
        OK(connect(s, LO4(port_of(other))));
        int t = OK(accept(other, NULL, NULL));
        char byte;
        send_all(s, "y", 1);
        recv_all(t, &byte, 1);
        OK(setsockopt(s, SOL_SOCKET, SO_LINGER, &reset, sizeof reset));
        OK(close(s));
        OK(close(t));
        /* One goes, one comes. */
        OK(close(c[7]));
        CHECK_EQ(read(a[7], &byte, 1), -1);
        OK(close(a[7]));
        c[7] = dial(AF_INET, port_of(l));
        OK(setsockopt(c[7], SOL_SOCKET, SO_LINGER, &reset, sizeof reset));
        a[7] = OK(accept(l, NULL, NULL));
        ERR(connect(tcp4(), LO4(port_of(l))), EADDRNOTAVAIL);
        for (int i = 0; i < PORTS; i++) {
            OK(close(c[i]));
            OK(close(a[i]));
        }
    }
}

TEST(accept4_flags) {
    int l = listener(AF_INET, 4);
    nonblocking(l);
    static const int flags[] = {0, SOCK_NONBLOCK, SOCK_CLOEXEC, SOCK_NONBLOCK | SOCK_CLOEXEC};
    for (int i = 0; i < 4; i++) {
        int c = dial(AF_INET, port_of(l));
        AWAIT(l, POLLIN);
        int s = OK(accept4(l, NULL, NULL, flags[i]));
        /* The listener's own flag is not inherited. */
        CHECK_EQ(OK(fcntl(s, F_GETFL)), O_RDWR | (flags[i] & SOCK_NONBLOCK ? O_NONBLOCK : 0));
        CHECK_EQ(OK(fcntl(s, F_GETFD)), flags[i] & SOCK_CLOEXEC ? FD_CLOEXEC : 0);
        CHECK_EQ(state_of(s), TCP_ESTABLISHED);
        close(s), close(c);
    }
}

TEST(an_accepted_socket_inherits_options) {
    int l = tcp4();
    OK(set_option(l, SOL_SOCKET, SO_KEEPALIVE, 1));
    OK(set_option(l, IPPROTO_TCP, TCP_NODELAY, 1));
    OK(set_option(l, IPPROTO_TCP, TCP_KEEPIDLE, 77));
    OK(set_option(l, SOL_SOCKET, SO_OOBINLINE, 1));
    OK(set_option(l, SOL_SOCKET, SO_RCVBUF, 30000));
    OK(bind(l, LO4(0)));
    OK(listen(l, 1));
    int c = dial(AF_INET, port_of(l)), s = OK(accept(l, NULL, NULL));
    CHECK_EQ(OPTION(s, SOL_SOCKET, SO_KEEPALIVE), 1);
    CHECK_EQ(OPTION(s, IPPROTO_TCP, TCP_NODELAY), 1);
    CHECK_EQ(OPTION(s, IPPROTO_TCP, TCP_KEEPIDLE), 77);
    CHECK_EQ(OPTION(s, SOL_SOCKET, SO_OOBINLINE), 1);
    CHECK_EQ(OPTION(s, SOL_SOCKET, SO_RCVBUF), 60000);
    CHECK_EQ(OPTION(c, SOL_SOCKET, SO_KEEPALIVE), 0);
}

TEST(connect_errors) {
    int s = tcp4(), port = dead_port();
    ERR(connect(s, LO4(port)), ECONNREFUSED);
    ERR(connect(s, LO4(port)), ECONNREFUSED); /* it may try again */
    CHECK_EQ(error_of(s), 0);                 /* connect gave it */
    ERR(connect(s, (struct sockaddr *)&(struct sockaddr_in){AF_INET}, 1), EINVAL);
    ERR(connect(s, (struct sockaddr *)&(struct sockaddr_in){AF_INET}, 15), EINVAL);
    ERR(connect(s, BAD, 16), EFAULT);
    struct sockaddr_in other = {.sin_family = AF_UNIX};
    ERR(connect(s, (struct sockaddr *)&other, sizeof other), EAFNOSUPPORT);
    ERR(connect(s, AT4(0xe0000001, 80)), ENETUNREACH); /* a group */
    ERR(connect(s, AT4(INADDR_BROADCAST, 80)), ENETUNREACH);
    int l = listener(AF_INET, 1);
    OK(connect(s, LO4(port_of(l))));
    ERR(connect(s, LO4(port_of(l))), EISCONN);
    ERR(connect(s, LO4(port)), EISCONN);
    int t = OK(accept(l, NULL, NULL));
    ERR(connect(t, LO4(port)), EISCONN);
    OK(close(t));
    AWAIT(s, POLLIN);
    ERR(connect(s, LO4(port)), EISCONN); /* half of it is still there */
}

TEST(connect_errors_of_six) {
    NEEDS_IPV6();
    int holder = OK(socket(AF_INET6, SOCK_STREAM, 0)), s = OK(socket(AF_INET6, SOCK_STREAM, 0));
    OK(bind(holder, LO6(0)));
    ERR(connect(s, LO6(port_of(holder))), ECONNREFUSED);
    struct in6_addr group = {{{0xff, 2, [15] = 1}}};
    ERR(connect(s, AT6(group, 80)), ENETUNREACH);
    struct in6_addr link = {{{0xfe, 0x80, [15] = 1}}};
    ERR(connect(s, AT6(link, 80)), EINVAL); /* of no interface */
    ERR(connect(s, (struct sockaddr *)&(struct sockaddr_in6){AF_INET6}, 23), EINVAL);
    int l = listener(AF_INET6, 1);
    OK(connect(s, LO6(port_of(l))));
    ERR(connect(s, LO6(port_of(l))), EISCONN);
}

TEST(a_nonblocking_connect_ends_later) {
    int l = listener(AF_INET, 4), s = tcp4();
    nonblocking(s);
    ERR(connect(s, LO4(port_of(l))), EINPROGRESS);
    CHECK_EQ(AWAIT(s, POLLOUT | POLLIN), POLLOUT);
    CHECK_EQ(error_of(s), 0);
    OK(connect(s, LO4(port_of(l)))); /* says once that it is done */
    ERR(connect(s, LO4(port_of(l))), EISCONN);
    OK(accept(l, NULL, NULL));
}

TEST(a_nonblocking_connect_that_is_refused) {
    int port = dead_port();
    for (int way = 0; way < 3; way++) {
        int s = tcp4();
        nonblocking(s);
        ERR(connect(s, LO4(port)), EINPROGRESS);
        int events = AWAIT(s, POLLIN | POLLOUT | POLLRDHUP);
        CHECK_EQ(events, POLLIN | POLLOUT | POLLRDHUP | POLLERR | POLLHUP);
        if (way == 0) {
            CHECK_EQ(error_of(s), ECONNREFUSED);
            CHECK_EQ(error_of(s), 0); /* read once */
            CHECK_EQ(events_of(s, POLLIN, 0), POLLIN | POLLHUP);
            char c;
            CHECK_EQ(OK(recv(s, &c, 1, 0)), 0);
            /* The failed attempt is told of, then the socket is as new. */
            ERR(connect(s, LO4(port)), ECONNABORTED);
            ERR(connect(s, LO4(port)), EINPROGRESS);
        } else if (way == 1) {
            ERR(connect(s, LO4(port)), ECONNREFUSED);
            ERR(connect(s, LO4(port)), EINPROGRESS);
        } else {
            char c;
            ERR(recv(s, &c, 1, 0), ECONNREFUSED);
            CHECK_EQ(OK(recv(s, &c, 1, 0)), 0);
            ERR(send(s, &c, 1, MSG_NOSIGNAL), EPIPE);
        }
    }
}

/* A listener whose queue is full drops requests: a connect to it stays under way. */
static int full_listener(int *callers, int count) {
    int l = listener(AF_INET, 0);
    for (int i = 0; i < count; i++) {
        callers[i] = tcp4();
        nonblocking(callers[i]);
        ERR(connect(callers[i], LO4(port_of(l))), EINPROGRESS);
        events_of(callers[i], POLLOUT, 100);
    }
    return l;
}

TEST(a_full_backlog_keeps_callers_waiting) {
    /* A backlog of 0 holds one connection: sk_acceptq_is_full compares with "greater". */
    int c[4], l = full_listener(c, 4), connected = 0;
    for (int i = 0; i < 4; i++)
        connected += events_of(c[i], POLLOUT, 0) == POLLOUT;
    CHECK_EQ(connected, 1);
    CHECK_EQ(state_of(c[3]), TCP_SYN_SENT);
    ERR(connect(c[3], LO4(port_of(l))), EALREADY);
    char byte = 0;
    ERR(recv(c[3], &byte, 1, 0), EAGAIN);
    ERR(send(c[3], &byte, 1, MSG_NOSIGNAL), EAGAIN);
    CHECK_EQ(events_of(c[3], POLLIN | POLLOUT, 0), 0);
    ERR(getpeername(c[3], (struct sockaddr *)&(union address){0}, &(socklen_t){28}), ENOTCONN);
    CHECK_EQ(error_of(c[3]), 0);
    nonblocking(l);
    OK(accept(l, NULL, NULL));
    ERR(accept(l, NULL, NULL), EAGAIN);
    /* There is room: a caller comes in with its next request, after a second. */
    AWAIT(l, POLLIN);
    OK(accept(l, NULL, NULL));
}

TEST(a_caller_that_waits_can_give_up) {
    int c[3], l = full_listener(c, 3);
    /* SO_SNDTIMEO bounds a connect. */
    int s = tcp4();
    struct timeval t = {0, 50000};
    OK(setsockopt(s, SOL_SOCKET, SO_SNDTIMEO, &t, sizeof t));
    int64_t start = now_ns(CLOCK_MONOTONIC);
    ERR(connect(s, LO4(port_of(l))), EINPROGRESS);
    CHECK(now_ns(CLOCK_MONOTONIC) - start >= 45 * MS);
    ERR(connect(s, LO4(port_of(l))), EALREADY);
    /* AF_UNSPEC takes the attempt back. */
    struct sockaddr none = {.sa_family = AF_UNSPEC};
    OK(connect(s, &none, sizeof none));
    CHECK_EQ(state_of(s), TCP_CLOSE);
    int other = listener(AF_INET, 1);
    OK(connect(s, LO4(port_of(other))));
    /* So does an end of both directions. */
    OK(shutdown(c[2], SHUT_RDWR));
    CHECK_EQ(state_of(c[2]), TCP_CLOSE);
    CHECK((events_of(c[2], POLLIN | POLLOUT, 0) & POLLHUP) != 0);
}

TEST(connect_is_interrupted) {
    int c[3], l = full_listener(c, 3), port = port_of(l);
    pid_t pid = FORK();
    if (pid == 0) {
        struct sigaction act = {.sa_handler = hy_on_alarm};
        sigaction(SIGUSR1, &act, NULL);
        int s = tcp4();
        ERR(connect(s, LO4(port)), EINTR);
        ERR(connect(s, LO4(port)), EINTR); /* it goes on, so one waits once more: no EALREADY */
        nonblocking(s);
        ERR(connect(s, LO4(port)), EALREADY);
        _exit(0);
    }
    for (int i = 0; i < 2; i++) {
        wait_asleep(pid);
        kill(pid, SIGUSR1);
    }
    EXITS(pid, 0);
}

/* ---- ends ------------------------------------------------------------------------------------ */

TEST(each_direction_ends_by_itself) {
    int e[2];
    char c;
    tcp_pair(AF_INET, e);
    OK(shutdown(e[0], SHUT_WR));
    ERR(send(e[0], "x", 1, MSG_NOSIGNAL), EPIPE);
    AWAIT(e[1], POLLIN);
    CHECK_EQ(OK(read(e[1], &c, 1)), 0);
    CHECK_EQ(OK(read(e[1], &c, 1)), 0);
    CHECK_EQ(state_of(e[1]), TCP_CLOSE_WAIT);
    EVENTUALLY(state_of(e[0]) == TCP_FIN_WAIT2);
    for (int i = 0; i < 3; i++) {
        CHECK_EQ(OK(write(e[1], "back", 4)), 4);
        char got[4];
        recv_all(e[0], got, 4);
    }
    OK(shutdown(e[0], SHUT_WR)); /* once more is no error */
    OK(shutdown(e[1], SHUT_WR));
    AWAIT(e[0], POLLIN);
    CHECK_EQ(OK(read(e[0], &c, 1)), 0);
    EVENTUALLY(state_of(e[1]) == TCP_CLOSE);
    ERR(shutdown(e[1], SHUT_WR), ENOTCONN);
    AWAIT_ALL(e[1], POLLHUP);
    ERR(getpeername(e[1], (struct sockaddr *)&(union address){0}, &(socklen_t){28}), ENOTCONN);
}

TEST(a_reader_that_stopped_gets_what_comes) {
    /* SHUT_RD is not told to the other side; data is still taken. */
    int e[2];
    char got[8];
    tcp_pair(AF_INET, e);
    OK(shutdown(e[0], SHUT_RD));
    CHECK_EQ(OK(read(e[0], got, 8)), 0);
    CHECK_EQ(events_of(e[0], POLLIN | POLLRDHUP, 0), POLLIN | POLLRDHUP);
    CHECK_EQ(OK(write(e[1], "data", 4)), 4);
    EVENTUALLY(({ int n; OK(ioctl(e[0], FIONREAD, &n)); n == 4; }));
    CHECK_EQ(OK(read(e[0], got, 8)), 4);
    CHECK_EQ(OK(read(e[0], got, 8)), 0);
    CHECK_EQ(OK(write(e[0], "yes", 3)), 3);
    CHECK_EQ(OK(read(e[1], got, 8)), 3);
}

TEST(writes_to_a_closed_peer) {
    int e[2];
    tcp_pair(AF_INET, e);
    OK(close(e[1]));
    AWAIT(e[0], POLLIN);
    CHECK_EQ(OK(send(e[0], "x", 1, MSG_NOSIGNAL)), 1); /* answered by a reset */
    AWAIT_ALL(e[0], POLLHUP);
    ERR(send(e[0], "x", 1, MSG_NOSIGNAL), EPIPE); /* what comes after the end is EPIPE */
    char c;
    CHECK_EQ(OK(read(e[0], &c, 1)), 0);
    CHECK_EQ(error_of(e[0]), 0);
}

TEST(sigpipe_is_sent_unless_it_is_not_wanted) {
    int e[2];
    tcp_pair(AF_INET, e);
    OK(shutdown(e[0], SHUT_WR));
    pid_t pid = FORK();
    if (pid == 0) {
        if (write(e[0], "x", 1) == -1)
            _exit(9);
        _exit(8);
    }
    KILLED(pid, SIGPIPE);
    IN_CHILD(ERR(send(e[0], "x", 1, MSG_NOSIGNAL), EPIPE));
    IN_CHILD(signal(SIGPIPE, SIG_IGN); ERR(write(e[0], "x", 1), EPIPE));
}

TEST(close_with_unread_data_is_a_reset) {
    int e[2];
    char c;
    tcp_pair(AF_INET, e);
    CHECK_EQ(OK(write(e[0], "unread", 6)), 6);
    AWAIT(e[1], POLLIN);
    OK(close(e[1]));
    CHECK_EQ(AWAIT(e[0], POLLIN | POLLRDHUP | POLLOUT),
             POLLIN | POLLOUT | POLLRDHUP | POLLERR | POLLHUP);
    ERR(read(e[0], &c, 1), ECONNRESET);
    CHECK_EQ(OK(read(e[0], &c, 1)), 0);
    ERR(send(e[0], "x", 1, MSG_NOSIGNAL), EPIPE);
    CHECK_EQ(state_of(e[0]), TCP_CLOSE);
}

TEST(linger_of_zero_is_a_reset) {
    int e[2];
    char c;
    tcp_pair(AF_INET, e);
    abort_connection(e[1]);
    AWAIT(e[0], POLLIN);
    CHECK_EQ(error_of(e[0]), ECONNRESET);
    CHECK_EQ(OK(read(e[0], &c, 1)), 0);
    /* A reset that finds unread data. */
    tcp_pair(AF_INET, e);
    CHECK_EQ(OK(write(e[1], "last", 4)), 4);
    AWAIT(e[0], POLLIN);
    abort_connection(e[1]);
    AWAIT_ALL(e[0], POLLERR);
    ERR(send(e[0], "x", 1, MSG_NOSIGNAL), ECONNRESET);
    /* A writer learns of it, then of the end. */
    ERR(send(e[0], "x", 1, MSG_NOSIGNAL), EPIPE);
}

TEST(a_reset_before_accept) {
    int l = listener(AF_INET, 4);
    abort_connection(dial(AF_INET, port_of(l)));
    AWAIT(l, POLLIN);
    int s = OK(accept(l, NULL, NULL)); /* Linux gives the dead connection, and no ECONNABORTED */
    char c;
    AWAIT(s, POLLIN);
    ERR(read(s, &c, 1), ECONNRESET);
    ERR(getpeername(s, (struct sockaddr *)&(union address){0}, &(socklen_t){28}), ENOTCONN);
}

TEST(closing_a_listener_resets_who_waits) {
    int l = listener(AF_INET, 4), c[3];
    for (int i = 0; i < 3; i++)
        c[i] = dial(AF_INET, port_of(l));
    OK(close(l));
    for (int i = 0; i < 3; i++) {
        char byte;
        AWAIT(c[i], POLLIN);
        ERR(read(c[i], &byte, 1), ECONNRESET);
    }
}

TEST(linger_waits_for_the_data) {
    /* close returns once the reader's side has it all, or after the time. */
    int e[2];
    tcp_pair(AF_INET, e);
    struct linger linger = {1, 10};
    OK(setsockopt(e[0], SOL_SOCKET, SO_LINGER, &linger, sizeof linger));
    CHECK_EQ(OK(write(e[0], "word", 4)), 4);
    OK(close(e[0]));
    char got[8];
    CHECK_EQ(OK(recv(e[1], got, 8, MSG_DONTWAIT)), 4); /* it is there */
    CHECK_EQ(OK(read(e[1], got, 8)), 0);
    /* Nobody reads: the time runs out. */
    tcp_pair(AF_INET, e);
    OK(set_option(e[1], SOL_SOCKET, SO_RCVBUF, 4096));
    nonblocking(e[0]);
    static char data[65536];
    while (write(e[0], data, sizeof data) > 0)
        ;
    blocking(e[0]);
    linger.l_linger = 1;
    OK(setsockopt(e[0], SOL_SOCKET, SO_LINGER, &linger, sizeof linger));
    int64_t start = now_ns(CLOCK_MONOTONIC);
    OK(close(e[0]));
    int64_t took = now_ns(CLOCK_MONOTONIC) - start;
    CHECK(took >= 900 * MS && took < 10000 * MS);
}

TEST(close_leaves_the_data_to_the_kernel) {
    int e[2];
    enum { SIZE = 1 << 20 };
    tcp_pair(AF_INET, e);
    OK(set_option(e[0], SOL_SOCKET, SO_SNDBUF, SIZE));
    char *data = malloc(SIZE), *got = malloc(SIZE);
    for (int i = 0; i < SIZE; i++)
        data[i] = (char)(i * 7 + i / 251);
    nonblocking(e[0]);
    ssize_t sent = OK(write(e[0], data, SIZE));
    OK(close(e[0]));
    recv_all(e[1], got, (size_t)sent);
    CHECK(memcmp(data, got, (size_t)sent) == 0);
    char c;
    CHECK_EQ(OK(read(e[1], &c, 1)), 0);
}

TEST(a_connection_stays_while_a_descriptor_does) {
    int e[2];
    tcp_pair(AF_INET, e);
    int copy = OK(dup(e[0]));
    OK(close(e[0]));
    CHECK_EQ(events_of(e[1], POLLIN, 30), 0);
    pid_t pid = FORK();
    if (pid == 0) {
        char c;
        _exit(read(e[1], &c, 1) == 1 && write(copy, "y", 1) == 1 ? 0 : 1);
    }
    CHECK_EQ(OK(write(copy, "x", 1)), 1);
    EXITS(pid, 0);
    char c;
    CHECK_EQ(OK(read(e[1], &c, 1)), 1);
    OK(shutdown(copy, SHUT_RDWR)); /* of the connection, not of the descriptor */
    AWAIT(e[1], POLLIN);
    CHECK_EQ(OK(read(e[1], &c, 1)), 0);
}

/* ---- ports of ended connections -------------------------------------------------------------- */

TEST(the_side_that_ends_first_keeps_the_port_for_a_while) {
    int l = listener(AF_INET, 1), port = port_of(l);
    int c = dial(AF_INET, port), s = OK(accept(l, NULL, NULL));
    OK(close(s)); /* the server ends first: TIME_WAIT is its */
    char byte;
    CHECK_EQ(OK(read(c, &byte, 1)), 0);
    OK(close(c));
    OK(close(l));
    msleep(10);
    ERR(bind(tcp4(), LO4(port)), EADDRINUSE);
    int again = tcp4();
    OK(set_option(again, SOL_SOCKET, SO_REUSEADDR, 1));
    /* Both must have said so: TIME_WAIT keeps what its socket said (inet_twsk_alloc). */
    ERR(bind(again, LO4(port)), EADDRINUSE);
    /* With the option on both it is what servers use. */
    l = tcp4();
    OK(set_option(l, SOL_SOCKET, SO_REUSEADDR, 1));
    OK(bind(l, LO4(0)));
    OK(listen(l, 1));
    port = port_of(l);
    c = dial(AF_INET, port);
    s = OK(accept(l, NULL, NULL));
    OK(close(s));
    CHECK_EQ(OK(read(c, &byte, 1)), 0);
    OK(close(c));
    OK(close(l));
    OK(bind(again, LO4(port)));
    OK(listen(again, 1));
    OK(close(dial(AF_INET, port)));
}

TEST(a_reset_leaves_no_time_wait) {
    int l = listener(AF_INET, 1), port = port_of(l);
    int c = dial(AF_INET, port), s = OK(accept(l, NULL, NULL));
    abort_connection(s);
    OK(close(l));
    AWAIT(c, POLLIN);
    OK(bind(tcp4(), LO4(port)));
}

TEST(a_thousand_connections_in_a_row) {
    int l = listener(AF_INET, 16), port = port_of(l);
    for (int i = 0; i < 1000; i++) {
        int c = dial(AF_INET, port), s = OK(accept(l, NULL, NULL)), got = -1;
        CHECK_EQ(OK(write(c, &i, sizeof i)), sizeof i);
        recv_all(s, &got, sizeof got);
        CHECK_EQ(got, i);
        if (i % 2)
            close(c), close(s);
        else
            close(s), close(c);
    }
}

TEST(many_processes_call_one) {
    int l = listener(AF_INET, 64), port = port_of(l);
    enum { CALLERS = 8, CALLS = 20 };
    pid_t pid[CALLERS];
    for (int i = 0; i < CALLERS; i++)
        if ((pid[i] = FORK()) == 0) {
            close(l);
            for (int k = 0; k < CALLS; k++) {
                int s = dial(AF_INET, port), word = i * 1000 + k, got;
                send_all(s, &word, sizeof word);
                recv_all(s, &got, sizeof got);
                CHECK_EQ(got, ~word);
                close(s);
            }
            _exit(0);
        }
    /* Two processes accept from the one queue. */
    pid_t helper = FORK();
    for (int k = 0; k < CALLERS * CALLS / 2; k++) {
        int s = OK(accept(l, NULL, NULL)), word;
        recv_all(s, &word, sizeof word);
        word = ~word;
        send_all(s, &word, sizeof word);
        close(s);
    }
    if (helper == 0)
        _exit(0);
    EXITS(helper, 0);
    for (int i = 0; i < CALLERS; i++)
        EXITS(pid[i], 0);
}

/* ---- rarer ways ------------------------------------------------------------------------------ */

TEST(connect_to_af_unspec_disconnects) {
    int l = listener(AF_INET, 4), s = dial(AF_INET, port_of(l)), t = OK(accept(l, NULL, NULL));
    struct sockaddr none = {.sa_family = AF_UNSPEC};
    OK(connect(s, &none, sizeof none));
    CHECK_EQ(state_of(s), TCP_CLOSE);
    char c;
    AWAIT(t, POLLIN);
    ERR(read(t, &c, 1), ECONNRESET);
    ERR(getpeername(s, (struct sockaddr *)&(union address){0}, &(socklen_t){28}), ENOTCONN);
    ERR(read(s, &c, 1), ECONNRESET); /* what tcp_disconnect leaves, for the socket itself too */
    ERR(read(s, &c, 1), ENOTCONN);
    OK(connect(s, LO4(port_of(l))));
    t = OK(accept(l, NULL, NULL));
    CHECK_EQ(OK(write(s, "x", 1)), 1);
    CHECK_EQ(OK(read(t, &c, 1)), 1);
    /* A listener stops. */
    OK(connect(l, &none, sizeof none));
    CHECK_EQ(OPTION(l, SOL_SOCKET, SO_ACCEPTCONN), 0);
    ERR(accept(l, NULL, NULL), EINVAL);
}

TEST(a_socket_connects_to_itself) {
    /* The simultaneous open of RFC 9293, with one socket. */
    int s = tcp4();
    OK(bind(s, LO4(0)));
    OK(connect(s, LO4(port_of(s))));
    CHECK_EQ(port_in(peer_of(s)), port_of(s));
    CHECK_EQ(state_of(s), TCP_ESTABLISHED);
    char got[8];
    CHECK_EQ(OK(write(s, "self", 4)), 4);
    recv_all(s, got, 4);
    CHECK(memcmp(got, "self", 4) == 0);
    OK(shutdown(s, SHUT_WR));
    AWAIT(s, POLLIN);
    CHECK_EQ(OK(read(s, got, 8)), 0);
}

TEST(two_sockets_open_at_once) {
    /* Each binds, both call: the first call is refused, or both meet. */
    for (int i = 0; i < 20; i++) {
        int a = tcp4(), b = tcp4();
        OK(bind(a, LO4(0)));
        OK(bind(b, LO4(0)));
        nonblocking(a), nonblocking(b);
        int first = connect(a, LO4(port_of(b)));
        CHECK(first == -1 && errno == EINPROGRESS);
        CHECK(connect(b, LO4(port_of(a))) == 0 || errno == EINPROGRESS);
        AWAIT(a, POLLOUT);
        AWAIT(b, POLLOUT);
        int of_a = error_of(a), of_b = error_of(b);
        CHECK(of_a == 0 || of_a == ECONNREFUSED);
        CHECK(of_b == 0 || of_b == ECONNREFUSED);
        close(a), close(b);
    }
}

TEST(a_connection_is_passed_over_a_unix_socket) {
    int u[2], e[2];
    OK(socketpair(AF_UNIX, SOCK_DGRAM, 0, u));
    pid_t pid = FORK();
    if (pid == 0) {
        char c, control[CMSG_SPACE(sizeof(int))];
        struct iovec v = {&c, 1};
        struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = control,
                           .msg_controllen = sizeof control};
        CHECK_EQ(OK(recvmsg(u[1], &m, 0)), 1);
        struct cmsghdr *h = CMSG_FIRSTHDR(&m);
        CHECK(h && h->cmsg_type == SCM_RIGHTS);
        int s;
        memcpy(&s, CMSG_DATA(h), sizeof s);
        char got[5];
        recv_all(s, got, 5);
        send_all(s, "there", 5);
        _exit(memcmp(got, "hello", 5) == 0 ? 0 : 1);
    }
    tcp_pair(AF_INET, e);
    char control[CMSG_SPACE(sizeof(int))] = {0};
    struct iovec v = {"x", 1};
    struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = control,
                       .msg_controllen = sizeof control};
    struct cmsghdr *h = CMSG_FIRSTHDR(&m);
    h->cmsg_level = SOL_SOCKET, h->cmsg_type = SCM_RIGHTS, h->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(h), &e[1], sizeof(int));
    CHECK_EQ(OK(sendmsg(u[0], &m, 0)), 1);
    OK(close(e[1])); /* the one under way keeps it open */
    send_all(e[0], "hello", 5);
    char got[5], c;
    recv_all(e[0], got, 5);
    CHECK(memcmp(got, "there", 5) == 0);
    CHECK_EQ(OK(read(e[0], &c, 1)), 0);
    EXITS(pid, 0);
}

TEST(six_does_what_four_does) {
    NEEDS_IPV6();
    int e[2];
    char got[16];
    tcp_pair(AF_INET6, e);
    send_all(e[0], "over six", 8);
    recv_all(e[1], got, 8);
    CHECK(memcmp(got, "over six", 8) == 0);
    OK(shutdown(e[0], SHUT_WR));
    CHECK_EQ(OK(read(e[1], got, 16)), 0);
    send_all(e[1], "back", 4);
    recv_all(e[0], got, 4);
    abort_connection(e[1]);
    AWAIT_ALL(e[0], POLLERR);
    ERR(read(e[0], got, 1), ECONNRESET);
}
