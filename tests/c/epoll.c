/* epoll_ctl(2): sets within sets, exclusive wake-ups, limits. */
#define AREA "epoll"
#include "harness.h"
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#ifndef EPOLLEXCLUSIVE
#define EPOLLEXCLUSIVE (1u << 28)
#endif

static int set(void) { return OK(epoll_create1(EPOLL_CLOEXEC)); }
static int control(int ep, int operation, int fd, uint32_t events) {
    struct epoll_event e = {events, {.fd = fd}};
    return epoll_ctl(ep, operation, fd, &e);
}
static int add(int ep, int fd) { return control(ep, EPOLL_CTL_ADD, fd, EPOLLIN); }

/* ---- sets within sets ------------------------------------------------------------------------- */

TEST(a_circle_is_eloop) {
    int a = set(), b = set(), c = set();
    OK(add(a, b));
    ERR(add(b, a), ELOOP);
    OK(add(b, c));
    ERR(add(c, a), ELOOP);
    ERR(add(c, b), ELOOP);
    ERR(add(a, a), EINVAL);
    OK(add(a, c)); /* twice on the way to one is no circle */
    OK(epoll_ctl(a, EPOLL_CTL_DEL, b, NULL));
    OK(add(b, a));
}

TEST(a_chain_of_five_is_the_longest) {
    /* Built from the inside: each new set takes the chain in. */
    int chain[6];
    for (int i = 0; i < 6; i++)
        chain[i] = set();
    for (int i = 1; i < 5; i++)
        OK(add(chain[i], chain[i - 1]));
    int leaf = OK(eventfd(0, EFD_NONBLOCK));
    OK(add(chain[0], leaf));
    ERR2(add(chain[5], chain[4]), ELOOP, EINVAL); /* EINVAL before 6.1.148: too many paths */
    /* An event at the inner end arrives at the outer one. */
    struct epoll_event e;
    CHECK_EQ(OK(epoll_wait(chain[4], &e, 1, 0)), 0);
    OK(eventfd_write(leaf, 1));
    CHECK_EQ(OK(epoll_wait(chain[4], &e, 1, 1000)), 1);
    CHECK_EQ(e.data.fd, chain[3]);
}

TEST(a_chain_built_from_the_outside_is_no_longer) {
    int chain[6];
    for (int i = 0; i < 6; i++)
        chain[i] = set();
    int leaf = OK(eventfd(0, EFD_NONBLOCK));
    OK(add(chain[5], leaf));
    int depth = 0;
    while (depth < 5 && add(chain[depth], chain[depth + 1]) == 0)
        depth++;
    CHECK_EQ(depth, 4);
    CHECK(errno == ELOOP || errno == EINVAL);
    OK(add(chain[4], leaf));
    OK(eventfd_write(leaf, 1));
    struct epoll_event e;
    CHECK_EQ(OK(epoll_wait(chain[0], &e, 1, 1000)), 1);
}

TEST(many_paths_to_one_file_are_einval) {
    /* A file in inner sets, each in one outer set: paths of length two, 500 at most. */
    struct rlimit limit = {2048, 2048};
    if (setrlimit(RLIMIT_NOFILE, &limit) == -1)
        SKIP("descriptors are limited");
    int leaf = OK(eventfd(0, 0)), outer = set();
    int made = 0;
    for (; made < 600; made++) {
        int inner = set();
        OK(add(outer, inner));
        if (add(inner, leaf) == -1)
            break;
    }
    CHECK_EQ(errno, EINVAL);
    CHECK_EQ(made, 500);
    /* Sets of their own around the file are not limited. */
    int other = OK(eventfd(0, 0));
    for (int i = 0; i < 600; i++)
        OK(add(set(), other));
}

/* ---- EPOLLEXCLUSIVE --------------------------------------------------------------------------- */

TEST(exclusive_has_rules) {
    int ep = set(), inner = set(), fd = OK(eventfd(0, 0));
    ERR(control(ep, EPOLL_CTL_ADD, inner, EPOLLIN | EPOLLEXCLUSIVE), EINVAL);
    ERR(control(ep, EPOLL_CTL_ADD, fd, EPOLLIN | EPOLLONESHOT | EPOLLEXCLUSIVE), EINVAL);
    ERR(control(ep, EPOLL_CTL_ADD, fd, EPOLLPRI | EPOLLEXCLUSIVE), EINVAL);
    ERR(control(ep, EPOLL_CTL_ADD, fd, EPOLLRDHUP | EPOLLEXCLUSIVE), EINVAL);
    OK(control(ep, EPOLL_CTL_ADD, fd,
               EPOLLIN | EPOLLOUT | EPOLLERR | EPOLLHUP | EPOLLET | EPOLLWAKEUP | EPOLLEXCLUSIVE));
    ERR(control(ep, EPOLL_CTL_MOD, fd, EPOLLIN), EINVAL);
    OK(epoll_ctl(ep, EPOLL_CTL_DEL, fd, NULL));
    OK(control(ep, EPOLL_CTL_ADD, fd, EPOLLIN));
    ERR(control(ep, EPOLL_CTL_MOD, fd, EPOLLIN | EPOLLEXCLUSIVE), EINVAL);
    OK(control(ep, EPOLL_CTL_MOD, fd, EPOLLOUT));
}

TEST(exclusive_still_wakes_somebody) {
    int fd = OK(eventfd(0, EFD_NONBLOCK)), sets[2] = {set(), set()};
    OK(control(sets[0], EPOLL_CTL_ADD, fd, EPOLLIN | EPOLLEXCLUSIVE));
    OK(control(sets[1], EPOLL_CTL_ADD, fd, EPOLLIN | EPOLLEXCLUSIVE));
    pid_t pid[2];
    for (int i = 0; i < 2; i++)
        if ((pid[i] = FORK()) == 0) {
            struct epoll_event e;
            CHECK_EQ(OK(epoll_wait(sets[i], &e, 1, 20000)), 1);
            uint64_t value;
            _exit(read(fd, &value, sizeof value) == sizeof value ? 0 : 7);
        }
    for (int i = 0; i < 2; i++)
        wait_asleep(pid[i]);
    OK(eventfd_write(fd, 1));
    int status;
    pid_t first = OK(wait(&status));
    CHECK(WIFEXITED(status) && (WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == 7));
    OK(eventfd_write(fd, 1)); /* the other one waits still, or found nothing left */
    pid_t second = OK(wait(&status));
    CHECK(first != second);
}

/* ---- errors ----------------------------------------------------------------------------------- */

TEST(epoll_ctl_order_of_errors) {
    int ep = set(), fd = OK(eventfd(0, 0)), file = OK(open("f", O_RDWR | O_CREAT, 0600));
    ERR(epoll_ctl(ep, EPOLL_CTL_ADD, -1, BAD), EFAULT); /* the event is read first */
    ERR(epoll_ctl(ep, EPOLL_CTL_DEL, -1, BAD), EBADF);  /* and is not needed to delete */
    ERR(epoll_ctl(-1, EPOLL_CTL_DEL, file, NULL), EBADF);
    ERR(epoll_ctl(-1, EPOLL_CTL_ADD, fd, BAD), EFAULT);
    ERR(add(fd, file), EPERM); /* before: not a set */
    ERR(add(file, fd), EINVAL);
    ERR(add(ep, file), EPERM);
    ERR(add(ep, OK(open(".", O_RDONLY))), EPERM);
    ERR(epoll_ctl(ep, EPOLL_CTL_DEL, file, NULL), EPERM);
    ERR(control(ep, 0, fd, EPOLLIN), EINVAL);
    ERR(control(ep, EPOLL_CTL_DEL, fd, 0), ENOENT);
    ERR(control(ep, EPOLL_CTL_MOD, fd, EPOLLIN), ENOENT);
    OK(add(ep, fd));
    ERR(add(ep, fd), EEXIST);
    ERR(add(ep, OK(open("f", O_PATH))), EBADF);
}

TEST(epoll_create_and_epoll_create1_errors) {
    ERR(syscall(SYS_epoll_create, 0), EINVAL);
    ERR(syscall(SYS_epoll_create, -1), EINVAL);
    ERR(epoll_create1(-1), EINVAL);
    struct rlimit limit = {8, 8};
    OK(setrlimit(RLIMIT_NOFILE, &limit));
    int last = -1, fd;
    while ((fd = dup(0)) != -1)
        last = fd;
    ERR(epoll_create1(0), EMFILE);
    ERR(syscall(SYS_epoll_create, 1), EMFILE);
    OK(close(last));
    OK(epoll_create1(0));
}

TEST(epoll_pwait_and_epoll_pwait2_errors) {
    struct epoll_event e[2];
    int ep = set();
    sigset_t none;
    sigemptyset(&none);
    struct timespec bad = {0, 1000000000};
    ERR(syscall(SYS_epoll_pwait, ep, e, 0, 0, NULL, 8L), EINVAL);
    ERR(syscall(SYS_epoll_pwait, ep, e, 1, 0, &none, 4L), EINVAL);
    ERR(syscall(SYS_epoll_pwait, ep, e, 1, 0, BAD, 8L), EFAULT);
    ERR(syscall(SYS_epoll_pwait, -1, e, 1, 0, NULL, 8L), EBADF);
    ERR(syscall(SYS_epoll_pwait, 0, e, 1, 0, NULL, 8L), EINVAL);
    ERR(syscall(SYS_epoll_pwait2, ep, e, 1, &bad, NULL, 8L), EINVAL);
    ERR(syscall(SYS_epoll_pwait2, ep, e, 1, BAD, NULL, 8L), EFAULT);
    ERR(syscall(SYS_epoll_pwait2, ep, e, -1, NULL, NULL, 8L), EINVAL);
    ERR(syscall(SYS_epoll_pwait2, -1, e, 1, NULL, NULL, 8L), EBADF);
}

TEST(max_user_watches_is_enospc) {
    NEEDS_OWN_MACHINE();
    const char *path = "/proc/sys/fs/epoll/max_user_watches";
    char before[64];
    if (get_file(path, before, sizeof before) <= 0)
        FAIL("%s: %s", path, strerror(errno));
    CHECK(atol(before) > 1000);
    int limit = open(path, O_WRONLY | O_CLOEXEC);
    if (limit == -1)
        SKIP("not root");
    OK(write(limit, "3\n", 2));
    pid_t pid = FORK();
    if (pid == 0) {
        BECOME(54322, 54322); /* who watches nothing yet */
        int ep = set(), other = set(), fds[4];
        for (int i = 0; i < 4; i++)
            fds[i] = OK(eventfd(0, 0));
        OK(add(ep, fds[0]));
        OK(add(ep, fds[1]));
        OK(add(other, fds[2]));
        ERR(add(ep, fds[3]), ENOSPC);
        ERR(add(ep, fds[0]), EEXIST);
        OK(epoll_ctl(ep, EPOLL_CTL_DEL, fds[0], NULL));
        OK(add(ep, fds[3]));
        OK(close(fds[1])); /* leaves the set */
        OK(add(ep, fds[0]));
        OK(close(other));
        OK(add(ep, fds[2]));
        _exit(0);
    }
    int status = WAIT(pid);
    OK(lseek(limit, 0, SEEK_SET));
    OK(write(limit, before, strlen(before)));
    CHECK_EQ(status, 0);
}

/* ---- one event, many that wait --------------------------------------------------------------- */

enum { WAITERS = 8 };
struct crowd {
    int ep;
    pthread_barrier_t start;
    _Atomic int timeouts;
};

static void *wait_for_it(void *arg) {
    struct crowd *crowd = arg;
    struct epoll_event e;
    pthread_barrier_wait(&crowd->start);
    if (epoll_wait(crowd->ep, &e, 1, 5000) != 1)
        atomic_fetch_add(&crowd->timeouts, 1);
    return NULL;
}
static void *poll_for_it(void *arg) {
    struct crowd *crowd = arg;
    struct pollfd p = {crowd->ep, POLLIN, 0};
    pthread_barrier_wait(&crowd->start);
    if (poll(&p, 1, 5000) != 1)
        atomic_fetch_add(&crowd->timeouts, 1);
    return NULL;
}

/* A level-triggered event that nobody consumes reaches everybody who waits for it. */
static void all_see_one_event(void *(*last)(void *)) {
    for (int round = 0; round < 60; round++) {
        struct crowd crowd = {.ep = set()};
        pthread_t t[WAITERS];
        int fd = OK(eventfd(0, 0));
        OK(add(crowd.ep, fd));
        ZERO(pthread_barrier_init(&crowd.start, NULL, WAITERS + 1));
        for (int i = 0; i < WAITERS; i++)
            ZERO(pthread_create(&t[i], NULL, i < WAITERS / 2 ? wait_for_it : last, &crowd));
        pthread_barrier_wait(&crowd.start);
        if (round % 2)
            msleep(1);
        OK(write(fd, &(uint64_t){1}, 8));
        for (int i = 0; i < WAITERS; i++)
            ZERO(pthread_join(t[i], NULL));
        CHECK_EQ(crowd.timeouts, 0);
        ZERO(pthread_barrier_destroy(&crowd.start));
        OK(close(fd));
        OK(close(crowd.ep));
    }
}

TEST(a_level_triggered_event_reaches_all_threads_that_wait) { all_see_one_event(wait_for_it); }
TEST(a_level_triggered_event_reaches_threads_that_poll_the_set) { all_see_one_event(poll_for_it); }
