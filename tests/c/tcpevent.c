/*
 * Waiting for TCP sockets: poll(2), select(2) and epoll(7), threads and signals: which events are
 * told, when they are told again, and how a wait ends.
 */
#define AREA "tcpevent"
#include "net.h"
#include <netinet/tcp.h>
#include <sys/select.h>

#define ALL (POLLIN | POLLOUT | POLLPRI | POLLRDHUP)

static int e[2]; /* the caller's end and the accepted one */
static void couple(void) { tcp_pair(AF_INET, e); }
static void reset_by(int s) {
    struct linger now = {1, 0};
    OK(setsockopt(s, SOL_SOCKET, SO_LINGER, &now, sizeof now));
    OK(close(s));
}
static int watch(int fd, uint32_t events) {
    int ep = OK(epoll_create1(EPOLL_CLOEXEC));
    struct epoll_event v = {events, {.fd = fd}};
    OK(epoll_ctl(ep, EPOLL_CTL_ADD, fd, &v));
    return ep;
}
static uint32_t told(int ep, int ms) {
    struct epoll_event v = {0};
    return OK(epoll_wait(ep, &v, 1, ms)) ? v.events : 0;
}
/* Fills the buffers of both ends until no more is taken. Their sizes are set, so that they do not
 * grow afterwards. */
static size_t stuff(int s) {
    static char data[65536];
    OK(set_option(e[0], SOL_SOCKET, SO_SNDBUF, 65536));
    OK(set_option(e[1], SOL_SOCKET, SO_RCVBUF, 65536));
    nonblocking(s);
    size_t total = 0;
    for (int idle = 0; idle < 3;) {
        ssize_t n = send(s, data, sizeof data, MSG_NOSIGNAL);
        if (n > 0)
            total += (size_t)n, idle = 0;
        else if (events_of(s, POLLOUT, 10) == 0)
            idle++;
    }
    return total;
}
static void drain(int s, size_t size) {
    static char data[65536];
    blocking(s);
    while (size > 0) {
        ssize_t n = OK(read(s, data, size < sizeof data ? size : sizeof data));
        CHECK(n > 0);
        size -= (size_t)n;
    }
}

/* ---- poll and select ------------------------------------------------------------------------- */

TEST(poll_through_a_life) {
    int l = listener(AF_INET, 1);
    CHECK_EQ(events_of(l, ALL, 0), 0);
    int c = dial(AF_INET, port_of(l));
    CHECK_EQ(AWAIT(l, ALL), POLLIN);
    CHECK_EQ(events_of(c, ALL, 0), POLLOUT);
    int s = OK(accept(l, NULL, NULL));
    CHECK_EQ(events_of(l, ALL, 0), 0);
    CHECK_EQ(events_of(s, ALL, 0), POLLOUT);
    CHECK_EQ(OK(write(c, "x", 1)), 1);
    CHECK_EQ(AWAIT(s, POLLIN), POLLIN);
    CHECK_EQ(events_of(s, ALL | POLLRDNORM | POLLWRNORM, 0),
             POLLIN | POLLOUT | POLLRDNORM | POLLWRNORM);
    OK(shutdown(c, SHUT_WR));
    AWAIT_ALL(s, POLLRDHUP);
    CHECK_EQ(events_of(s, ALL, 0), POLLIN | POLLOUT | POLLRDHUP);
    CHECK_EQ(events_of(c, ALL, 0), POLLOUT);
    char b;
    CHECK_EQ(OK(read(s, &b, 1)), 1);
    CHECK_EQ(events_of(s, ALL, 0), POLLIN | POLLOUT | POLLRDHUP); /* the end can be read */
    OK(shutdown(s, SHUT_WR));
    AWAIT_ALL(s, POLLHUP);
    CHECK_EQ(events_of(s, ALL, 0), POLLIN | POLLOUT | POLLRDHUP | POLLHUP);
    AWAIT_ALL(c, POLLHUP);
    CHECK_EQ(events_of(c, ALL, 0), POLLIN | POLLOUT | POLLRDHUP | POLLHUP);
    CHECK_EQ(events_of(c, 0, 0), POLLHUP);
}

TEST(poll_after_a_reset) {
    couple();
    reset_by(e[1]);
    AWAIT(e[0], POLLIN);
    CHECK_EQ(events_of(e[0], ALL, 0), POLLIN | POLLOUT | POLLRDHUP | POLLERR | POLLHUP);
    CHECK_EQ(events_of(e[0], 0, 0), POLLERR | POLLHUP);
    CHECK_EQ(OPTION(e[0], SOL_SOCKET, SO_ERROR), ECONNRESET);
    CHECK_EQ(events_of(e[0], ALL, 0), POLLIN | POLLOUT | POLLRDHUP | POLLHUP);
}

TEST(room_comes_back) {
    couple();
    size_t size = stuff(e[0]);
    CHECK_EQ(events_of(e[0], ALL, 0), 0);
    pid_t pid = FORK();
    if (pid == 0) {
        CHECK_EQ(AWAIT(e[0], POLLOUT), POLLOUT);
        CHECK(send(e[0], "x", 1, MSG_DONTWAIT) == 1);
        _exit(0);
    }
    wait_asleep(pid);
    drain(e[1], size);
    EXITS(pid, 0);
}

TEST(a_writer_that_sleeps_goes_on) {
    couple();
    size_t size = stuff(e[0]);
    blocking(e[0]);
    pid_t pid = FORK();
    if (pid == 0) {
        static char more[100000];
        CHECK_EQ(OK(write(e[0], more, sizeof more)), sizeof more);
        _exit(0);
    }
    wait_asleep(pid);
    drain(e[1], size + 100000);
    EXITS(pid, 0);
}

TEST(select_on_connections) {
    couple();
    int l = listener(AF_INET, 1), top = 64;
    fd_set r, w, x;
    struct timeval none = {0, 0};
#define ASK()                                                                                      \
    do {                                                                                           \
        FD_ZERO(&r);                                                                              \
        FD_ZERO(&w);                                                                              \
        FD_ZERO(&x);                                                                              \
        FD_SET(e[0], &r);                                                                          \
        FD_SET(e[0], &w);                                                                          \
        FD_SET(e[0], &x);                                                                          \
        FD_SET(l, &r);                                                                             \
        none = (struct timeval){0, 0};                                                             \
    } while (0)
    ASK();
    CHECK_EQ(OK(select(top, &r, &w, &x, &none)), 1);
    CHECK(FD_ISSET(e[0], &w));
    CHECK_EQ(OK(write(e[1], "x", 1)), 1);
    int c = dial(AF_INET, port_of(l));
    AWAIT(e[0], POLLIN);
    AWAIT(l, POLLIN);
    ASK();
    CHECK_EQ(OK(select(top, &r, &w, &x, &none)), 3);
    CHECK(FD_ISSET(e[0], &r) && FD_ISSET(e[0], &w) && FD_ISSET(l, &r) && !FD_ISSET(e[0], &x));
    close(c);
    reset_by(e[1]);
    AWAIT_ALL(e[0], POLLERR);
    ASK();
    CHECK_EQ(OK(select(top, &r, &w, &x, &none)), 3); /* an error is no exception */
    CHECK(!FD_ISSET(e[0], &x));
}

/* ---- epoll ----------------------------------------------------------------------------------- */

TEST(level_is_told_while_it_lasts) {
    couple();
    int ep = watch(e[1], EPOLLIN | EPOLLRDHUP);
    CHECK_EQ(told(ep, 0), 0);
    CHECK_EQ(OK(write(e[0], "ab", 2)), 2);
    CHECK_EQ(told(ep, SOON), EPOLLIN);
    CHECK_EQ(told(ep, 0), EPOLLIN);
    char c;
    CHECK_EQ(OK(read(e[1], &c, 1)), 1);
    CHECK_EQ(told(ep, 0), EPOLLIN);
    CHECK_EQ(OK(read(e[1], &c, 1)), 1);
    CHECK_EQ(told(ep, 0), 0);
    OK(shutdown(e[0], SHUT_WR));
    CHECK_EQ(told(ep, SOON), EPOLLIN | EPOLLRDHUP);
    CHECK_EQ(told(ep, 0), EPOLLIN | EPOLLRDHUP);
}

TEST(an_edge_is_told_once) {
    couple();
    int ep = watch(e[1], EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET);
    CHECK_EQ(told(ep, 0), EPOLLOUT);
    CHECK_EQ(told(ep, 0), 0);
    CHECK_EQ(OK(write(e[0], "ab", 2)), 2);
    CHECK_EQ(told(ep, SOON), EPOLLIN | EPOLLOUT);
    CHECK_EQ(told(ep, 0), 0);
    CHECK_EQ(OK(write(e[0], "c", 1)), 1); /* new data, told anew though old data is unread */
    CHECK_EQ(told(ep, SOON), EPOLLIN | EPOLLOUT);
    CHECK_EQ(told(ep, 0), 0);
    char got[4];
    CHECK_EQ(OK(read(e[1], got, 1)), 1);
    CHECK_EQ(told(ep, 20), 0);
    OK(shutdown(e[0], SHUT_WR));
    CHECK_EQ(told(ep, SOON), EPOLLIN | EPOLLOUT | EPOLLRDHUP);
    CHECK_EQ(told(ep, 0), 0);
}

TEST(an_edge_of_room) {
    couple();
    nonblocking(e[0]);
    int ep = watch(e[0], EPOLLOUT | EPOLLET);
    CHECK_EQ(told(ep, 0), EPOLLOUT);
    size_t size = stuff(e[0]);
    while (told(ep, 0))
        ; /* what became free while it was filled */
    CHECK_EQ(told(ep, 0), 0);
    drain(e[1], size);
    CHECK_EQ(told(ep, SOON), EPOLLOUT);
}

TEST(one_shot_is_told_when_armed) {
    couple();
    int ep = watch(e[1], EPOLLIN | EPOLLONESHOT);
    CHECK_EQ(OK(write(e[0], "a", 1)), 1);
    CHECK_EQ(told(ep, SOON), EPOLLIN);
    CHECK_EQ(OK(write(e[0], "b", 1)), 1);
    AWAIT(e[1], POLLIN);
    CHECK_EQ(told(ep, 20), 0);
    struct epoll_event v = {EPOLLIN | EPOLLONESHOT, {.fd = e[1]}};
    OK(epoll_ctl(ep, EPOLL_CTL_MOD, e[1], &v));
    CHECK_EQ(told(ep, 0), EPOLLIN);
    CHECK_EQ(told(ep, 0), 0);
}

TEST(hangups_and_errors_need_no_asking) {
    couple();
    int ep = watch(e[0], 0);
    CHECK_EQ(told(ep, 0), 0);
    OK(shutdown(e[1], SHUT_WR));
    AWAIT(e[0], POLLRDHUP);
    CHECK_EQ(told(ep, 0), 0);
    OK(shutdown(e[0], SHUT_WR));
    CHECK_EQ(told(ep, SOON), EPOLLHUP);
    couple();
    ep = watch(e[0], 0);
    reset_by(e[1]);
    AWAIT_ALL(e[0], POLLERR | POLLHUP);
    CHECK_EQ(told(ep, 0), EPOLLERR | EPOLLHUP);
}

TEST(a_connect_in_an_epoll_set) {
    int l = listener(AF_INET, 1), s = OK(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0));
    int ep = watch(s, EPOLLIN | EPOLLOUT | EPOLLET);
    CHECK_EQ(told(ep, 0), EPOLLOUT | EPOLLHUP); /* one that is not connected */
    ERR(connect(s, LO4(port_of(l))), EINPROGRESS);
    CHECK_EQ(told(ep, SOON), EPOLLOUT);
    CHECK_EQ(OPTION(s, SOL_SOCKET, SO_ERROR), 0);
    int dead = OK(socket(AF_INET, SOCK_STREAM, 0));
    OK(bind(dead, LO4(0)));
    int t = OK(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0));
    ERR(connect(t, LO4(port_of(dead))), EINPROGRESS);
    ep = watch(t, EPOLLIN | EPOLLOUT);
    CHECK_EQ(told(ep, SOON), EPOLLIN | EPOLLOUT | EPOLLERR | EPOLLHUP);
    CHECK_EQ(OPTION(t, SOL_SOCKET, SO_ERROR), ECONNREFUSED);
}

TEST(accepting_from_an_epoll_set) {
    int l = listener(AF_INET, 64), c[10];
    nonblocking(l);
    int ep = watch(l, EPOLLIN | EPOLLET);
    for (int i = 0; i < 10; i++)
        c[i] = dial(AF_INET, port_of(l));
    int got = 0;
    while (got < 10) {
        CHECK_EQ(told(ep, SOON), EPOLLIN);
        int s;
        while ((s = accept4(l, NULL, NULL, SOCK_NONBLOCK)) != -1)
            got++, close(s);
        CHECK_EQ(errno, EAGAIN);
    }
    CHECK_EQ(told(ep, 0), 0);
    for (int i = 0; i < 10; i++)
        close(c[i]);
}

TEST(a_server_of_one_loop) {
    /* Forty clients of an echo server that never sleeps but in epoll_wait. */
    enum { CLIENTS = 40, ROUNDS = 10 };
    int l = listener(AF_INET, 64), port = port_of(l);
    nonblocking(l);
    pid_t pid = FORK();
    if (pid == 0) {
        int c[CLIENTS];
        for (int i = 0; i < CLIENTS; i++)
            c[i] = dial(AF_INET, port);
        for (int k = 0; k < ROUNDS; k++) {
            for (int i = 0; i < CLIENTS; i++) {
                int word = k << 16 | i;
                send_all(c[i], &word, sizeof word);
            }
            for (int i = CLIENTS; i-- > 0;) {
                int word = 0;
                recv_all(c[i], &word, sizeof word);
                CHECK_EQ(word, k << 16 | i);
            }
        }
        _exit(0);
    }
    int ep = watch(l, EPOLLIN), ended = 0;
    while (ended < CLIENTS) {
        struct epoll_event v[16];
        int n = OK(epoll_wait(ep, v, 16, SOON));
        CHECK(n > 0);
        for (int i = 0; i < n; i++) {
            int fd = v[i].data.fd;
            if (fd == l) {
                int s = OK(accept4(l, NULL, NULL, SOCK_NONBLOCK));
                struct epoll_event add = {EPOLLIN | EPOLLET | EPOLLRDHUP, {.fd = s}};
                OK(epoll_ctl(ep, EPOLL_CTL_ADD, s, &add));
                continue;
            }
            char data[512];
            ssize_t got;
            while ((got = read(fd, data, sizeof data)) > 0)
                send_all(fd, data, (size_t)got);
            if (got == 0)
                close(fd), ended++;
            else
                CHECK_EQ(errno, EAGAIN);
        }
    }
    EXITS(pid, 0);
}

/* ---- signals --------------------------------------------------------------------------------- */

static volatile sig_atomic_t handled;
static void on_signal(int sig UNUSED) { handled++; }
static void handle(int sig, int flags) {
    struct sigaction act = {.sa_handler = on_signal, .sa_flags = flags};
    OK(sigaction(sig, &act, NULL));
}

/* Runs a call in a child, interrupts it, and then does what lets it end. */
enum call { READ, WRITE, ACCEPT, WAITALL };
static int interrupted(enum call call, int flags, struct timeval limit) {
    couple();
    int l = listener(AF_INET, 1);
    static char data[1 << 20];
    size_t size = call == WRITE ? stuff(e[0]) : 0;
    blocking(e[0]);
    pid_t pid = FORK();
    if (pid == 0) {
        handle(SIGUSR1, flags);
        OK(setsockopt(e[0], SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit));
        OK(setsockopt(l, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit));
        long r = call == READ      ? read(e[0], data, 10)
                 : call == WAITALL ? recv(e[0], data, 10, MSG_WAITALL)
                 : call == WRITE   ? write(e[0], data, sizeof data)
                                   : accept(l, NULL, NULL);
        if (r == -1 && errno == EINTR)
            _exit(99);
        CHECK_EQ(handled, 1);
        _exit(r == -1 ? 66 : call != WRITE ? (int)r : r == sizeof data ? 1 : 98);
    }
    if (call == WAITALL) {
        CHECK_EQ(OK(write(e[1], "abc", 3)), 3);
        EVENTUALLY(({ int n; OK(ioctl(e[0], FIONREAD, &n)); n == 0; }));
    }
    wait_asleep(pid);
    kill(pid, SIGUSR1);
    wait_asleep(pid);
    if (call == READ)
        CHECK_EQ(OK(write(e[1], "12345", 5)), 5);
    if (call == WRITE) {
        /* The child may have ended; bytes that it did not write are not waited for. */
        OK(close(e[0]));
        char part[65536];
        size_t got = 0;
        ssize_t n;
        while ((n = OK(read(e[1], part, sizeof part))) > 0)
            got += (size_t)n;
        CHECK(got >= size);
    }
    if (call == ACCEPT)
        OK(dial(AF_INET, port_of(l)));
    int status = WAIT(pid);
    CHECK(WIFEXITED(status));
    return WEXITSTATUS(status);
}
static const struct timeval forever;
static const struct timeval minute = {60, 0};
TEST(reads_are_interrupted_or_restarted) {
    CHECK_EQ(interrupted(READ, 0, forever), 99);
    CHECK_EQ(interrupted(READ, SA_RESTART, forever), 5);
    /* With a time limit there is no restart: signal(7). */
    CHECK_EQ(interrupted(READ, SA_RESTART, minute), 99);
}
TEST(accepts_are_interrupted_or_restarted) {
    CHECK_EQ(interrupted(ACCEPT, 0, forever), 99);
    CHECK(interrupted(ACCEPT, SA_RESTART, forever) < 60);
    CHECK_EQ(interrupted(ACCEPT, SA_RESTART, minute), 99);
}
TEST(writes_are_interrupted_or_restarted) {
    /* The kernel may find a little more room after the buffers were full: then a part was written
     * (98) before the signal came, and its size is the answer. */
    for (int restart = 0; restart < 2; restart++) {
        int said = 98;
        for (int i = 0; i < 10 && said == 98; i++)
            said = interrupted(WRITE, restart ? SA_RESTART : 0, forever);
        CHECK_EQ(said, restart ? 1 : 99);
    }
}
TEST(what_was_received_is_given_when_interrupted) {
    CHECK_EQ(interrupted(WAITALL, 0, forever), 3);
    CHECK_EQ(interrupted(WAITALL, SA_RESTART, forever), 3);
}

TEST(sigio_tells_of_data) {
    couple();
    handle(SIGIO, SA_RESTART);
    OK(fcntl(e[0], F_SETOWN, getpid()));
    OK(fcntl(e[0], F_SETFL, OK(fcntl(e[0], F_GETFL)) | O_ASYNC));
    CHECK((OK(fcntl(e[0], F_GETFL)) & O_ASYNC) != 0);
    handled = 0;
    CHECK_EQ(OK(write(e[1], "x", 1)), 1);
    EVENTUALLY(handled >= 1);
    OK(fcntl(e[0], F_SETFL, O_RDWR));
    AWAIT(e[0], POLLIN);
    int before = handled;
    CHECK_EQ(OK(write(e[1], "y", 1)), 1);
    EVENTUALLY(({ int n; OK(ioctl(e[0], FIONREAD, &n)); n == 2; }));
    CHECK_EQ(handled, before);
    /* On a listener it tells of a connection, by ioctl as well. */
    int l = listener(AF_INET, 1), pid = getpid();
    OK(ioctl(l, 0x8902 /* SIOCSPGRP */, &pid));
    OK(ioctl(l, FIOASYNC, &(int){1}));
    before = handled;
    OK(dial(AF_INET, port_of(l)));
    EVENTUALLY(handled > before);
}

static volatile int info_fd = -1, info_code;
static void on_info(int sig UNUSED, siginfo_t *info, void *context UNUSED) {
    info_fd = info->si_fd, info_code = info->si_code;
}
TEST(another_signal_tells_the_descriptor) {
    couple();
    struct sigaction act = {.sa_sigaction = on_info, .sa_flags = SA_SIGINFO};
    OK(sigaction(SIGRTMIN + 1, &act, NULL));
    OK(fcntl(e[0], F_SETSIG, SIGRTMIN + 1));
    OK(fcntl(e[0], F_SETOWN, getpid()));
    OK(fcntl(e[0], F_SETFL, O_ASYNC));
    CHECK_EQ(OK(write(e[1], "x", 1)), 1);
    EVENTUALLY(info_fd == e[0]);
    CHECK_EQ(info_code, POLL_IN);
}

/* ---- threads --------------------------------------------------------------------------------- */

struct waiter {
    pthread_t thread;
    _Atomic int tid;
    int fd;
    long result;
    int error;
};
static void *read_in_thread(void *argument) {
    struct waiter *w = argument;
    char c;
    atomic_store(&w->tid, (int)syscall(SYS_gettid));
    w->result = read(w->fd, &c, 1);
    w->error = errno;
    return NULL;
}
static void *accept_in_thread(void *argument) {
    struct waiter *w = argument;
    atomic_store(&w->tid, (int)syscall(SYS_gettid));
    w->result = accept(w->fd, NULL, NULL);
    w->error = errno;
    return NULL;
}
static void starts(struct waiter *w, int fd, void *(*run)(void *)) {
    *w = (struct waiter){.fd = fd};
    ZERO(pthread_create(&w->thread, NULL, run, w));
    EVENTUALLY(atomic_load(&w->tid) != 0);
    wait_asleep(atomic_load(&w->tid));
}

TEST(a_close_does_not_wake_who_sleeps_in_it) {
    /* The sleeping call holds the open file: close(2), "Multithreaded processes". */
    couple();
    struct waiter w;
    starts(&w, e[0], read_in_thread);
    OK(close(e[0]));
    wait_asleep(atomic_load(&w.tid));
    CHECK_EQ(OK(write(e[1], "x", 1)), 1); /* it is still open at the other end */
    ZERO(pthread_join(w.thread, NULL));
    CHECK_EQ(w.result, 1);
    char c;
    AWAIT(e[1], POLLIN);
    CHECK_EQ(OK(read(e[1], &c, 1)), 0); /* and now it is not */
}

TEST(a_shutdown_wakes_who_sleeps_in_it) {
    couple();
    struct waiter w[2];
    for (int i = 0; i < 2; i++)
        starts(&w[i], e[0], read_in_thread);
    OK(shutdown(e[0], SHUT_RD));
    for (int i = 0; i < 2; i++) {
        ZERO(pthread_join(w[i].thread, NULL));
        CHECK_EQ(w[i].result, 0);
    }
    int l = listener(AF_INET, 1);
    starts(&w[0], l, accept_in_thread);
    OK(shutdown(l, SHUT_RDWR));
    ZERO(pthread_join(w[0].thread, NULL));
    CHECK_EQ(w[0].result, -1);
    CHECK_EQ(w[0].error, EINVAL);
}

TEST(an_end_and_a_reset_wake_readers) {
    couple();
    struct waiter w;
    starts(&w, e[0], read_in_thread);
    OK(close(e[1]));
    ZERO(pthread_join(w.thread, NULL));
    CHECK_EQ(w.result, 0);
    couple();
    starts(&w, e[0], read_in_thread);
    reset_by(e[1]);
    ZERO(pthread_join(w.thread, NULL));
    CHECK_EQ(w.result, -1);
    CHECK_EQ(w.error, ECONNRESET);
}

TEST(threads_share_a_listener) {
    int l = listener(AF_INET, 16);
    struct waiter w[4];
    for (int i = 0; i < 4; i++)
        starts(&w[i], l, accept_in_thread);
    int c[4];
    for (int i = 0; i < 4; i++)
        c[i] = dial(AF_INET, port_of(l));
    for (int i = 0; i < 4; i++) {
        ZERO(pthread_join(w[i].thread, NULL));
        CHECK(w[i].result >= 0);
        for (int k = 0; k < i; k++)
            CHECK(w[k].result != w[i].result);
    }
    CHECK_EQ(events_of(l, POLLIN, 0), 0);
    for (int i = 0; i < 4; i++)
        close(c[i]);
}

static void *call_and_echo(void *argument) {
    int port = *(int *)argument;
    for (int i = 0; i < 50; i++) {
        int s = dial(AF_INET, port), got = 0;
        send_all(s, &i, sizeof i);
        recv_all(s, &got, sizeof got);
        CHECK_EQ(got, i);
        close(s);
    }
    return NULL;
}
static void *serve(void *argument) {
    int l = *(int *)argument, s;
    while ((s = accept(l, NULL, NULL)) != -1) {
        int word;
        recv_all(s, &word, sizeof word);
        send_all(s, &word, sizeof word);
        close(s);
    }
    CHECK_EQ(errno, EINVAL);
    return NULL;
}
TEST(threads_call_and_serve_at_once) {
    int l = listener(AF_INET, 64), port = port_of(l);
    pthread_t servers[3], callers[4];
    for (int i = 0; i < 3; i++)
        ZERO(pthread_create(&servers[i], NULL, serve, &l));
    for (int i = 0; i < 4; i++)
        ZERO(pthread_create(&callers[i], NULL, call_and_echo, &port));
    for (int i = 0; i < 4; i++)
        ZERO(pthread_join(callers[i], NULL));
    OK(shutdown(l, SHUT_RDWR));
    for (int i = 0; i < 3; i++)
        ZERO(pthread_join(servers[i], NULL));
}

TEST(a_descriptor_of_a_dead_process_is_closed) {
    int l = listener(AF_INET, 1), port = port_of(l);
    pid_t pid = FORK();
    if (pid == 0) {
        int s = dial(AF_INET, port);
        send_all(s, "x", 1);
        for (;;)
            pause();
    }
    int s = OK(accept(l, NULL, NULL));
    char c;
    CHECK_EQ(OK(read(s, &c, 1)), 1);
    kill(pid, SIGKILL);
    KILLED(pid, SIGKILL);
    AWAIT(s, POLLIN);
    CHECK_EQ(OK(read(s, &c, 1)), 0);
}
