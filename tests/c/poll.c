/* poll, ppoll, select, pselect and epoll. */
#define AREA "poll"
#include "harness.h"
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/select.h>
#include <sys/socket.h>

static int r, w;
static void make(void) {
    int p[2];
    OK(pipe2(p, O_NONBLOCK | O_CLOEXEC));
    r = p[0], w = p[1];
}
static void put(int n) {
    while (n-- > 0)
        OK(write(w, "x", 1));
}
static void take(int n) {
    char c;
    while (n-- > 0)
        CHECK_EQ(OK(read(r, &c, 1)), 1);
}
static void later(int ms) { /* a child that writes after a while */
    if (FORK() == 0) {
        msleep(ms);
        OK(write(w, "x", 1));
        _exit(0);
    }
}
static void on_signal(int sig UNUSED) {}
static void alarms(long ms) {
    struct sigaction act = {.sa_handler = on_signal};
    OK(sigaction(SIGALRM, &act, NULL));
    struct itimerval t = {{0, ms * 1000}, {0, ms * 1000}};
    OK(setitimer(ITIMER_REAL, &t, NULL));
}

/* ---- poll ------------------------------------------------------------------------------------ */

TEST(poll_reports_what_is_ready) {
    make();
    struct pollfd p[2] = {{r, POLLIN, 0}, {w, POLLOUT, 0}};
    CHECK_EQ(OK(poll(p, 2, 0)), 1);
    CHECK_EQ(p[0].revents, 0);
    CHECK_EQ(p[1].revents, POLLOUT);
    put(1);
    CHECK_EQ(OK(poll(p, 2, -1)), 2);
    CHECK_EQ(p[0].revents, POLLIN);
}

TEST(poll_times_out) {
    make();
    struct pollfd p = {r, POLLIN, 77};
    int64_t from = now_ns(CLOCK_MONOTONIC);
    CHECK_EQ(OK(poll(&p, 1, 40)), 0);
    CHECK(now_ns(CLOCK_MONOTONIC) - from >= 40 * MS);
    CHECK_EQ(p.revents, 0);
    CHECK_EQ(OK(poll(NULL, 0, 10)), 0); /* a plain sleep */
}

TEST(poll_wakes_for_a_later_write) {
    make();
    later(30);
    struct pollfd p = {r, POLLIN, 0};
    CHECK_EQ(OK(poll(&p, 1, 20000)), 1);
    CHECK_EQ(p.revents, POLLIN);
}

TEST(poll_odd_descriptors) {
    struct pollfd p[3] = {{-1, POLLIN, 5}, {999, POLLIN, 0}, {-999, POLLIN, 5}};
    CHECK_EQ(OK(poll(p, 3, -1)), 1);
    CHECK_EQ(p[0].revents, 0); /* negative ones are skipped */
    CHECK_EQ(p[1].revents, POLLNVAL);
    CHECK_EQ(p[2].revents, 0);
}

TEST(poll_errors) {
    ERR(poll(BAD, 1, 0), EFAULT);
    struct rlimit l = {64, 64};
    OK(setrlimit(RLIMIT_NOFILE, &l));
    static struct pollfd many[100];
    ERR(poll(many, 100, 0), EINVAL); /* more than RLIMIT_NOFILE */
    struct timespec bad = {0, 1000000000};
    ERR(syscall(SYS_ppoll, many, 1L, &bad, NULL, 8L), EINVAL);
    ERR(syscall(SYS_ppoll, many, 1L, NULL, many, 4L), EINVAL);
}

TEST(poll_is_interrupted) {
    make();
    alarms(20);
    struct pollfd p = {r, POLLIN, 0};
    ERR(poll(&p, 1, 20000), EINTR);
}

TEST(ppoll_swaps_the_mask) {
    make();
    sigset_t block, empty;
    sigemptyset(&empty);
    sigemptyset(&block);
    sigaddset(&block, SIGALRM);
    OK(sigprocmask(SIG_BLOCK, &block, NULL));
    alarms(10);
    msleep(30); /* it is pending by now */
    struct pollfd p = {r, POLLIN, 0};
    ERR(ppoll(&p, 1, NULL, &empty), EINTR);
    sigset_t now;
    OK(sigprocmask(SIG_BLOCK, NULL, &now));
    CHECK(sigismember(&now, SIGALRM));
}

TEST(ppoll_writes_the_rest_of_the_time) {
    make();
    put(1);
    struct pollfd p = {r, POLLIN, 0};
    struct timespec t = {10, 0};
    CHECK_EQ(OK(syscall(SYS_ppoll, &p, 1L, &t, NULL, 8L)), 1);
    CHECK(t.tv_sec < 10 || t.tv_nsec == 0);
    CHECK(t.tv_sec >= 5);
}

TEST(regular_files_and_directories_are_always_ready) {
    struct pollfd p[2] = {{OK(open("f", O_RDWR | O_CREAT, 0600)), POLLIN | POLLOUT, 0},
                          {OK(open(".", O_RDONLY)), POLLIN, 0}};
    CHECK_EQ(OK(poll(p, 2, 0)), 2);
    CHECK_EQ(p[0].revents, POLLIN | POLLOUT);
    CHECK_EQ(p[1].revents, POLLIN);
}

TEST(poll_a_hundred_pipes) {
    static struct pollfd p[100];
    for (int i = 0; i < 100; i++) {
        make();
        p[i] = (struct pollfd){r, POLLIN, 0};
        if (i % 10 == 3)
            put(1);
    }
    CHECK_EQ(OK(poll(p, 100, 1000)), 10);
    for (int i = 0; i < 100; i++)
        CHECK_EQ(p[i].revents, i % 10 == 3 ? POLLIN : 0);
}

TEST(same_descriptor_twice) {
    make();
    put(1);
    struct pollfd p[2] = {{r, POLLIN, 0}, {r, POLLIN, 0}};
    CHECK_EQ(OK(poll(p, 2, -1)), 2);
}

/* ---- select ---------------------------------------------------------------------------------- */

TEST(select_marks_the_ready) {
    make();
    fd_set in, out, ex;
    FD_ZERO(&in);
    FD_ZERO(&out);
    FD_ZERO(&ex);
    FD_SET(r, &in);
    FD_SET(w, &out);
    FD_SET(r, &ex);
    struct timeval zero = {0, 0};
    CHECK_EQ(OK(select(w + 1, &in, &out, &ex, &zero)), 1);
    CHECK(!FD_ISSET(r, &in) && FD_ISSET(w, &out) && !FD_ISSET(r, &ex));
    put(1);
    FD_SET(r, &in);
    CHECK_EQ(OK(select(w + 1, &in, &out, NULL, NULL)), 2);
}

TEST(select_times_out_and_updates_the_time) {
    make();
    fd_set in;
    FD_ZERO(&in);
    FD_SET(r, &in);
    struct timeval t = {0, 30000};
    int64_t from = now_ns(CLOCK_MONOTONIC);
    CHECK_EQ(OK(syscall(SYS_select, r + 1, &in, NULL, NULL, &t)), 0);
    CHECK(now_ns(CLOCK_MONOTONIC) - from >= 30 * MS);
    CHECK(!FD_ISSET(r, &in));
    CHECK(t.tv_sec == 0 && t.tv_usec == 0); /* Linux writes the rest back (select(2)) */
}

TEST(select_errors) {
    fd_set in;
    FD_ZERO(&in);
    /* Below 64, the smallest table of descriptors: Linux ignores bits beyond the table (select(2),
     * BUGS). */
    close(60);
    FD_SET(60, &in);
    struct timeval zero = {0, 0}, bad = {-1, 0};
    ERR(select(61, &in, NULL, NULL, &zero), EBADF);
    ERR(select(-1, NULL, NULL, NULL, &zero), EINVAL);
    ERR(syscall(SYS_select, 0, NULL, NULL, NULL, &bad), EINVAL);
    ERR(syscall(SYS_select, 64, BAD, NULL, NULL, &zero), EFAULT);
    ERR(syscall(SYS_select, 0, NULL, NULL, NULL, BAD), EFAULT);
    make();
    FD_ZERO(&in);
    FD_SET(r, &in);
    CHECK_EQ(OK(select(r, &in, NULL, NULL, &zero)), 0); /* only those below the number count */
}

TEST(select_hangup_and_error_readiness) {
    make();
    OK(close(w));
    fd_set in, out;
    FD_ZERO(&in);
    FD_ZERO(&out);
    FD_SET(r, &in);
    CHECK_EQ(OK(select(r + 1, &in, NULL, NULL, NULL)), 1); /* end of file is readable */
    make();
    OK(close(r));
    FD_SET(w, &out);
    CHECK_EQ(OK(select(w + 1, NULL, &out, NULL, NULL)), 1);
}

TEST(pselect_swaps_the_mask) {
    sigset_t block, empty;
    sigemptyset(&empty);
    sigemptyset(&block);
    sigaddset(&block, SIGALRM);
    OK(sigprocmask(SIG_BLOCK, &block, NULL));
    alarms(10);
    ERR(pselect(0, NULL, NULL, NULL, NULL, &empty), EINTR);
    struct timespec t = {0, 20 * MS};
    CHECK_EQ(OK(pselect(0, NULL, NULL, NULL, &t, NULL)), 0); /* blocked again: no EINTR */
}

/* ---- epoll ----------------------------------------------------------------------------------- */

static int ep;
static void add(int fd, uint32_t events, uint64_t data) {
    struct epoll_event e = {events, {.u64 = data}};
    OK(epoll_ctl(ep, EPOLL_CTL_ADD, fd, &e));
}
static int ready(struct epoll_event *e, int ms) { return OK(epoll_wait(ep, e, 16, ms)); }

TEST(epoll_level_triggered) {
    struct epoll_event e[16];
    make();
    ep = OK(epoll_create1(EPOLL_CLOEXEC));
    CHECK_EQ(OK(fcntl(ep, F_GETFD)), FD_CLOEXEC);
    add(r, EPOLLIN, 0x1122334455667788);
    CHECK_EQ(ready(e, 0), 0);
    put(2);
    for (int i = 0; i < 3; i++) { /* again and again while there is something */
        CHECK_EQ(ready(e, 1000), 1);
        CHECK_EQ(e[0].events, EPOLLIN);
        CHECK_EQ(e[0].data.u64, 0x1122334455667788);
    }
    take(2);
    CHECK_EQ(ready(e, 0), 0);
}

TEST(epoll_edge_triggered) {
    struct epoll_event e[16];
    make();
    ep = OK(epoll_create1(0));
    add(r, EPOLLIN | EPOLLET, 1);
    put(1);
    CHECK_EQ(ready(e, 1000), 1);
    CHECK_EQ(ready(e, 0), 0); /* nothing new */
    put(1);
    CHECK_EQ(ready(e, 1000), 1); /* more came, though the first was not read */
    take(2);
    CHECK_EQ(ready(e, 0), 0);
    put(1);
    CHECK_EQ(ready(e, 1000), 1);
}

TEST(epoll_edge_is_reported_when_added_late) {
    struct epoll_event e[16];
    make();
    put(1);
    ep = OK(epoll_create1(0));
    add(r, EPOLLIN | EPOLLET, 1);
    CHECK_EQ(ready(e, 0), 1); /* what was there before counts once */
    CHECK_EQ(ready(e, 0), 0);
    struct epoll_event m = {EPOLLIN | EPOLLET, {.u64 = 2}};
    OK(epoll_ctl(ep, EPOLL_CTL_MOD, r, &m)); /* a change looks anew */
    CHECK_EQ(ready(e, 0), 1);
    CHECK_EQ(e[0].data.u64, 2);
}

TEST(epoll_oneshot) {
    struct epoll_event e[16];
    make();
    ep = OK(epoll_create1(0));
    add(r, EPOLLIN | EPOLLONESHOT, 1);
    put(1);
    CHECK_EQ(ready(e, 1000), 1);
    put(1);
    CHECK_EQ(ready(e, 0), 0); /* disabled until changed */
    struct epoll_event m = {EPOLLIN | EPOLLONESHOT, {.u64 = 7}};
    OK(epoll_ctl(ep, EPOLL_CTL_MOD, r, &m));
    CHECK_EQ(ready(e, 0), 1);
    CHECK_EQ(e[0].data.u64, 7);
}

TEST(epoll_hangup_needs_no_asking) {
    struct epoll_event e[16];
    make();
    ep = OK(epoll_create1(0));
    add(r, 0, 1);
    put(1);
    CHECK_EQ(ready(e, 0), 0);
    OK(close(w));
    CHECK_EQ(ready(e, 1000), 1);
    CHECK_EQ(e[0].events, EPOLLHUP);
}

TEST(epoll_ctl_errors) {
    struct epoll_event e = {EPOLLIN, {.u64 = 0}};
    make();
    ep = OK(epoll_create1(0));
    ERR(epoll_ctl(ep, EPOLL_CTL_MOD, r, &e), ENOENT);
    ERR(epoll_ctl(ep, EPOLL_CTL_DEL, r, NULL), ENOENT);
    OK(epoll_ctl(ep, EPOLL_CTL_ADD, r, &e));
    ERR(epoll_ctl(ep, EPOLL_CTL_ADD, r, &e), EEXIST);
    OK(epoll_ctl(ep, EPOLL_CTL_ADD, OK(dup(r)), &e)); /* another descriptor is another entry */
    ERR(epoll_ctl(ep, EPOLL_CTL_ADD, 999, &e), EBADF);
    ERR(epoll_ctl(999, EPOLL_CTL_ADD, r, &e), EBADF);
    ERR(epoll_ctl(w, EPOLL_CTL_ADD, r, &e), EINVAL);
    ERR(epoll_ctl(ep, EPOLL_CTL_ADD, ep, &e), EINVAL);
    ERR(epoll_ctl(ep, 99, r, &e), EINVAL);
    ERR(syscall(SYS_epoll_ctl, ep, EPOLL_CTL_MOD, r, BAD), EFAULT);
    ERR(epoll_ctl(ep, EPOLL_CTL_ADD, OK(open("f", O_RDWR | O_CREAT, 0600)), &e), EPERM);
    ERR(epoll_create1(0x123), EINVAL);
    ERR(syscall(SYS_epoll_create, 0), EINVAL);
}

TEST(epoll_wait_errors) {
    struct epoll_event e[4];
    ep = OK(epoll_create1(0));
    make();
    ERR(epoll_wait(ep, e, 0, 0), EINVAL);
    ERR(syscall(SYS_epoll_wait, ep, e, -1, 0), EINVAL);
    ERR(epoll_wait(r, e, 4, 0), EINVAL);
    ERR(epoll_wait(999, e, 4, 0), EBADF);
    put(1);
    add(r, EPOLLIN, 1);
    ERR(epoll_wait(ep, BAD, 4, 0), EFAULT);
    alarms(10);
    take(1);
    ERR(epoll_wait(ep, e, 4, 20000), EINTR);
}

TEST(epoll_timeout_and_wakeup) {
    struct epoll_event e[16];
    make();
    ep = OK(epoll_create1(0));
    add(r, EPOLLIN, 1);
    int64_t from = now_ns(CLOCK_MONOTONIC);
    CHECK_EQ(ready(e, 30), 0);
    CHECK(now_ns(CLOCK_MONOTONIC) - from >= 30 * MS);
    later(20);
    CHECK_EQ(ready(e, 20000), 1);
}

TEST(epoll_closed_descriptor_leaves) {
    struct epoll_event e[16];
    make();
    ep = OK(epoll_create1(0));
    add(r, EPOLLIN, 1);
    put(1);
    int copy = OK(dup(r));
    OK(close(r)); /* the open file lives on in the copy: still reported (epoll(7)) */
    CHECK_EQ(ready(e, 0), 1);
    OK(close(copy));
    CHECK_EQ(ready(e, 0), 0);
}

TEST(epoll_nested) {
    struct epoll_event e[16];
    make();
    int inner = OK(epoll_create1(0)), outer = OK(epoll_create1(0));
    ep = inner;
    add(r, EPOLLIN, 1);
    ep = outer;
    add(inner, EPOLLIN, 2);
    CHECK_EQ(ready(e, 0), 0);
    put(1);
    CHECK_EQ(ready(e, 1000), 1);
    CHECK_EQ(e[0].data.u64, 2);
    struct pollfd p = {inner, POLLIN, 0};
    CHECK_EQ(OK(poll(&p, 1, 0)), 1); /* an epoll descriptor can be polled */
    take(1);
    CHECK_EQ(ready(e, 0), 0);
    struct epoll_event loop = {EPOLLIN, {.u64 = 0}};
    ERR(epoll_ctl(inner, EPOLL_CTL_ADD, outer, &loop), ELOOP);
}

TEST(epoll_nesting_is_bounded) {
    int below = OK(epoll_create1(0));
    struct epoll_event e = {EPOLLIN, {.u64 = 0}};
    int depth = 0;
    for (; depth < 20; depth++) {
        int above = OK(epoll_create1(0));
        if (epoll_ctl(above, EPOLL_CTL_ADD, below, &e) == -1)
            break;
        below = above;
    }
    CHECK(errno == ELOOP || errno == EINVAL); /* EINVAL before Linux 5.11 */
    CHECK(depth >= 3 && depth <= 6);          /* epoll_ctl(2): five levels */
}

TEST(epoll_wait_takes_turns) {
    /* More ready than asked for: everyone gets reported in time. */
    struct epoll_event e[2];
    ep = OK(epoll_create1(0));
    int seen[8] = {0};
    for (int i = 0; i < 8; i++) {
        make();
        put(1);
        add(r, EPOLLIN, (uint64_t)i);
    }
    for (int round = 0; round < 4; round++) {
        CHECK_EQ(OK(epoll_wait(ep, e, 2, 0)), 2);
        seen[e[0].data.u64]++;
        seen[e[1].data.u64]++;
    }
    for (int i = 0; i < 8; i++)
        CHECK_EQ(seen[i], 1);
}

TEST(epoll_rdhup_on_sockets) {
    struct epoll_event e[16];
    int s[2];
    OK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, s));
    ep = OK(epoll_create1(0));
    add(s[0], EPOLLIN | EPOLLRDHUP | EPOLLET, 1);
    OK(shutdown(s[1], SHUT_WR));
    CHECK_EQ(ready(e, 1000), 1);
    CHECK(e[0].events & EPOLLRDHUP);
    CHECK(!(e[0].events & EPOLLHUP));
    OK(close(s[1]));
    CHECK_EQ(ready(e, 1000), 1);
    CHECK(e[0].events & EPOLLHUP);
}

TEST(epoll_out_edge_after_draining) {
    struct epoll_event e[16];
    static char block[65536];
    make();
    ep = OK(epoll_create1(0));
    CHECK_EQ(OK(write(w, block, sizeof block)), sizeof block);
    add(w, EPOLLOUT | EPOLLET, 1);
    CHECK_EQ(ready(e, 0), 0);
    CHECK_EQ(OK(read(r, block, sizeof block)), sizeof block);
    CHECK_EQ(ready(e, 1000), 1);
    CHECK_EQ(e[0].events, EPOLLOUT);
}

static void *wait_for_one(void *arg) {
    struct epoll_event e;
    if (epoll_wait(ep, &e, 1, 20000) == 1) {
        char c;
        if (read(r, &c, 1) == 1)
            atomic_fetch_add((_Atomic int *)arg, 1);
    }
    return NULL;
}

TEST(epoll_many_waiters_get_every_event) {
    static _Atomic int got;
    make();
    ep = OK(epoll_create1(0));
    add(r, EPOLLIN, 1);
    pthread_t t[4];
    for (int i = 0; i < 4; i++)
        ZERO(pthread_create(&t[i], NULL, wait_for_one, &got));
    msleep(20);
    put(4);
    for (int i = 0; i < 4; i++)
        ZERO(pthread_join(t[i], NULL));
    CHECK(got >= 1 && got <= 4); /* level triggered: one may find it taken */
    char rest[4];
    ssize_t n = read(r, rest, 4);
    CHECK_EQ((n < 0 ? 0 : n) + got, 4);
}

TEST(epoll_inherited_over_fork_reports_the_parents_entries) {
    struct epoll_event e[16];
    make();
    ep = OK(epoll_create1(0));
    add(r, EPOLLIN, 5);
    put(1);
    IN_CHILD({
        OK(close(r));
        CHECK_EQ(ready(e, 0), 1); /* the open file is still registered */
        CHECK_EQ(e[0].data.u64, 5);
    });
}

TEST(epoll_pwait_masks_and_pwait2) {
    sigset_t block, empty;
    struct epoll_event e[4];
    ep = OK(epoll_create1(0));
    sigemptyset(&empty);
    sigemptyset(&block);
    sigaddset(&block, SIGALRM);
    OK(sigprocmask(SIG_BLOCK, &block, NULL));
    alarms(10);
    ERR(epoll_pwait(ep, e, 4, 20000, &empty), EINTR);
    CHECK_EQ(OK(epoll_pwait(ep, e, 4, 20, NULL)), 0);
    struct timespec t = {0, 20 * MS};
    long n = syscall(441 /* epoll_pwait2 */, ep, e, 4, &t, NULL, 8L);
    if (n == -1)
        CHECK_EQ(errno, ENOSYS);
    else
        CHECK_EQ(n, 0);
}

TEST(poll_that_was_stopped_ends_when_it_would_have) {
    pid_t pid = OK(fork());
    if (pid == 0) {
        struct timespec begin, end;
        clock_gettime(CLOCK_MONOTONIC, &begin);
        CHECK_EQ(OK(poll(NULL, 0, 1200)), 0);
        clock_gettime(CLOCK_MONOTONIC, &end);
        long ms = (end.tv_sec - begin.tv_sec) * 1000 + (end.tv_nsec - begin.tv_nsec) / 1000000;
        if (ms < 1199 || ms > 2000)
            FAIL("it took %ld ms", ms);
        _exit(0);
    }
    usleep(300000);
    OK(kill(pid, SIGSTOP));
    int status;
    OK(waitpid(pid, &status, WUNTRACED));
    CHECK(WIFSTOPPED(status));
    usleep(600000);
    OK(kill(pid, SIGCONT));
    OK(waitpid(pid, &status, 0));
    CHECK_EQ(status, 0);
}
