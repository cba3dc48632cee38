/* Descriptors that are not files: eventfd, timerfd, signalfd, memfd with seals, inotify. */
#define AREA "object"
#include "harness.h"
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/signalfd.h>
#include <sys/timerfd.h>

static bool is_ready(int fd, short what) {
    struct pollfd p = {fd, what, 0};
    OK(poll(&p, 1, 0));
    return p.revents & what;
}
static uint64_t take(int fd) {
    uint64_t v = 0;
    CHECK_EQ(OK(read(fd, &v, 8)), 8);
    return v;
}
static void give(int fd, uint64_t v) { CHECK_EQ(OK(write(fd, &v, 8)), 8); }

/* ---- eventfd ----------------------------------------------------------------------------------- */

TEST(eventfd_counts_and_resets) {
    int fd = OK(eventfd(3, EFD_NONBLOCK | EFD_CLOEXEC));
    give(fd, 4);
    CHECK_EQ(take(fd), 7);
    uint64_t v;
    ERR(read(fd, &v, 8), EAGAIN);
    CHECK(!is_ready(fd, POLLIN) && is_ready(fd, POLLOUT));
    give(fd, 1);
    CHECK(is_ready(fd, POLLIN));
}

TEST(eventfd_semaphore_gives_ones) {
    int fd = OK(eventfd(2, EFD_SEMAPHORE | EFD_NONBLOCK));
    CHECK_EQ(take(fd), 1);
    CHECK_EQ(take(fd), 1);
    uint64_t v;
    ERR(read(fd, &v, 8), EAGAIN);
}

TEST(eventfd_limits_and_errors) {
    int fd = OK(eventfd(0, EFD_NONBLOCK));
    uint64_t v = UINT64_MAX;
    ERR(write(fd, &v, 8), EINVAL);
    ERR(write(fd, &v, 4), EINVAL);
    ERR(read(fd, &v, 4), EINVAL);
    give(fd, UINT64_MAX - 1);
    CHECK(!is_ready(fd, POLLOUT));
    v = 1;
    ERR(write(fd, &v, 8), EAGAIN); /* it would overflow */
    CHECK_EQ(take(fd), UINT64_MAX - 1);
    ERR(eventfd(0, 0x100), EINVAL);
    ERR(read(fd, BAD, 8), EAGAIN); /* nothing there is found first */
}

TEST(eventfd_blocks_and_wakes_over_processes) {
    int fd = OK(eventfd(0, 0));
    pid_t pid = FORK();
    if (pid == 0)
        _exit((int)take(fd));
    wait_asleep(pid);
    give(fd, 21);
    EXITS(pid, 21);
    give(fd, UINT64_MAX - 1);
    pid = FORK();
    if (pid == 0) {
        give(fd, 5); /* waits for room */
        _exit(0);
    }
    wait_asleep(pid);
    CHECK_EQ(OK(waitpid(pid, NULL, WNOHANG)), 0);
    take(fd);
    EXITS(pid, 0);
    CHECK_EQ(take(fd), 5);
}

/* ---- timerfd ----------------------------------------------------------------------------------- */

TEST(timerfd_one_shot) {
    int fd = OK(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC));
    struct itimerspec t = {{0, 0}, {0, 20 * MS}}, left;
    int64_t from = now_ns(CLOCK_MONOTONIC);
    OK(timerfd_settime(fd, 0, &t, NULL));
    OK(timerfd_gettime(fd, &left));
    CHECK(left.it_value.tv_sec == 0 && left.it_value.tv_nsec <= 20 * MS);
    CHECK_EQ(take(fd), 1);
    CHECK(now_ns(CLOCK_MONOTONIC) - from >= 20 * MS);
    CHECK(!is_ready(fd, POLLIN));
    OK(timerfd_gettime(fd, &left));
    CHECK(left.it_value.tv_nsec == 0 && left.it_value.tv_sec == 0);
}

TEST(timerfd_interval_counts_expirations) {
    int fd = OK(timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK));
    struct itimerspec t = {{0, 5 * MS}, {0, 5 * MS}};
    OK(timerfd_settime(fd, 0, &t, NULL));
    msleep(60);
    CHECK(take(fd) >= 11);
    uint64_t v;
    struct itimerspec off = {{0, 0}, {0, 0}}, old;
    OK(timerfd_settime(fd, 0, &off, &old));
    CHECK_EQ(old.it_interval.tv_nsec, 5 * MS);
    ERR(read(fd, &v, 8), EAGAIN); /* setting drops what had expired */
}

TEST(timerfd_absolute_in_the_past_fires_at_once) {
    int fd = OK(timerfd_create(CLOCK_REALTIME, 0));
    struct itimerspec t = {{0, 0}, {1, 0}};
    OK(timerfd_settime(fd, TFD_TIMER_ABSTIME, &t, NULL));
    CHECK_EQ(take(fd), 1);
}

TEST(timerfd_poll_wakes) {
    int fd = OK(timerfd_create(CLOCK_MONOTONIC, 0));
    struct itimerspec t = {{0, 0}, {0, 20 * MS}};
    OK(timerfd_settime(fd, 0, &t, NULL));
    struct pollfd p = {fd, POLLIN, 0};
    CHECK_EQ(OK(poll(&p, 1, 20000)), 1);
    CHECK_EQ(p.revents, POLLIN);
}

TEST(timerfd_errors) {
    int fd = OK(timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK));
    struct itimerspec bad = {{0, 0}, {0, 1000000000}}, t = {{0, 0}, {1, 0}};
    ERR(timerfd_create(99, 0), EINVAL);
    ERR(timerfd_create(CLOCK_MONOTONIC, 0x10), EINVAL);
    ERR(timerfd_settime(fd, 0, &bad, NULL), EINVAL);
    ERR(timerfd_settime(fd, 0x100, &t, NULL), EINVAL);
    ERR(timerfd_settime(999, 0, &t, NULL), EBADF);
    ERR(timerfd_settime(OK(dup(2)), 0, &t, NULL), EINVAL);
    ERR(syscall(SYS_timerfd_settime, fd, 0, BAD, NULL), EFAULT);
    ERR(syscall(SYS_timerfd_gettime, fd, BAD), EFAULT);
    uint64_t v;
    ERR(read(fd, &v, 4), EINVAL);
    ERR(write(fd, &v, 8), EINVAL);
}

/* Moves the clock of the day by so many seconds. */
static void move_clock(long seconds) {
    struct timespec t;
    OK(clock_gettime(CLOCK_REALTIME, &t));
    t.tv_sec += seconds;
    OK(clock_settime(CLOCK_REALTIME, &t));
}
static int timer_at(int flags, int create, long seconds) {
    int fd = OK(timerfd_create(CLOCK_REALTIME, create));
    struct itimerspec t = {{0, 0}, {0, 0}};
    OK(clock_gettime(CLOCK_REALTIME, &t.it_value));
    t.it_value.tv_sec += seconds;
    OK(timerfd_settime(fd, flags, &t, NULL));
    return fd;
}

TEST(timerfd_moves_with_the_clock_of_the_day) {
    NEEDS_OWN_MACHINE();
    int plain = timer_at(TFD_TIMER_ABSTIME, TFD_NONBLOCK, 1000);
    int relative = OK(timerfd_create(CLOCK_REALTIME, TFD_NONBLOCK));
    struct itimerspec in = {{0, 0}, {1000, 0}}, left;
    OK(timerfd_settime(relative, 0, &in, NULL));
    move_clock(400);
    OK(timerfd_gettime(plain, &left));
    CHECK(left.it_value.tv_sec > 500 && left.it_value.tv_sec <= 600);
    OK(timerfd_gettime(relative, &left));
    CHECK(left.it_value.tv_sec > 900 && left.it_value.tv_sec <= 1000);
    CHECK(!is_ready(plain, POLLIN));
    move_clock(-400);
    OK(timerfd_gettime(plain, &left));
    CHECK(left.it_value.tv_sec > 900 && left.it_value.tv_sec <= 1000);
    move_clock(2000);
    EVENTUALLY(is_ready(plain, POLLIN));
    CHECK_EQ(take(plain), 1);
    CHECK(!is_ready(relative, POLLIN));
    move_clock(-2000);
}

TEST(timerfd_is_cancelled_when_the_clock_is_set) {
    NEEDS_OWN_MACHINE();
    int cancel = TFD_TIMER_ABSTIME | TFD_TIMER_CANCEL_ON_SET;
    int fd = timer_at(cancel, TFD_NONBLOCK, 1000);
    int plain = timer_at(TFD_TIMER_ABSTIME, TFD_NONBLOCK, 1000);
    int relative = timer_at(TFD_TIMER_CANCEL_ON_SET, TFD_NONBLOCK, 1000);
    struct itimerspec t = {{0, 0}, {1000, 0}}, left;
    int monotonic = OK(timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK));
    t.it_value.tv_sec = now_ns(CLOCK_MONOTONIC) / 1000000000 + 1000;
    OK(timerfd_settime(monotonic, cancel, &t, NULL));
    uint64_t v;
    ERR(read(fd, &v, 8), EAGAIN);
    move_clock(10);
    CHECK(is_ready(fd, POLLIN));
    CHECK(!is_ready(plain, POLLIN) && !is_ready(relative, POLLIN) && !is_ready(monotonic, POLLIN));
    ERR(read(fd, &v, 8), ECANCELED);
    /* Told once; the timer goes on. */
    CHECK(!is_ready(fd, POLLIN));
    ERR(read(fd, &v, 8), EAGAIN);
    ERR(read(plain, &v, 8), EAGAIN);
    ERR(read(relative, &v, 8), EAGAIN);
    ERR(read(monotonic, &v, 8), EAGAIN);
    OK(timerfd_gettime(fd, &left));
    CHECK(left.it_value.tv_sec > 900 && left.it_value.tv_sec <= 990);
    /* A setter that has not read is told by that call; the timer is armed all the same. */
    move_clock(10);
    OK(clock_gettime(CLOCK_REALTIME, &t.it_value));
    t.it_value.tv_sec += 500;
    ERR(timerfd_settime(fd, cancel, &t, NULL), ECANCELED);
    OK(timerfd_gettime(fd, &left));
    CHECK(left.it_value.tv_sec > 400 && left.it_value.tv_sec <= 500);
    ERR(read(fd, &v, 8), EAGAIN);
    /* A setting without the flag ends that. */
    OK(timerfd_settime(fd, TFD_TIMER_ABSTIME, &t, NULL));
    move_clock(-20);
    ERR(read(fd, &v, 8), EAGAIN);
}

TEST(timerfd_that_is_waited_for_is_cancelled) {
    NEEDS_OWN_MACHINE();
    int fd = timer_at(TFD_TIMER_ABSTIME | TFD_TIMER_CANCEL_ON_SET, 0, 1000);
    pid_t reader = FORK();
    if (reader == 0) {
        uint64_t v;
        ERR(read(fd, &v, 8), ECANCELED);
        _exit(0);
    }
    wait_asleep(reader);
    struct timeval now;
    OK(gettimeofday(&now, NULL));
    now.tv_sec += 5;
    OK(settimeofday(&now, NULL));
    EXITS(reader, 0);
    move_clock(-5);
}

/* ---- signalfd ---------------------------------------------------------------------------------- */

static sigset_t blocked(int a, int b) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, a);
    sigaddset(&set, b);
    OK(sigprocmask(SIG_BLOCK, &set, NULL));
    return set;
}

TEST(signalfd_delivers_blocked_signals) {
    sigset_t set = blocked(SIGUSR1, SIGRTMIN);
    int fd = OK(signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC));
    struct signalfd_siginfo info[4];
    ERR(read(fd, info, sizeof info), EAGAIN);
    CHECK(!is_ready(fd, POLLIN));
    OK(kill(getpid(), SIGUSR1));
    union sigval v = {.sival_int = 99};
    OK(sigqueue(getpid(), SIGRTMIN, v));
    CHECK(is_ready(fd, POLLIN));
    CHECK_EQ(OK(read(fd, info, sizeof info)), 2 * sizeof info[0]); /* 128 bytes each */
    CHECK_EQ(info[0].ssi_signo, SIGUSR1);
    CHECK_EQ(info[0].ssi_pid, getpid());
    CHECK_EQ(info[1].ssi_signo, SIGRTMIN);
    CHECK_EQ(info[1].ssi_int, 99);
    CHECK_EQ(info[1].ssi_code, SI_QUEUE);
    sigset_t pending;
    OK(sigpending(&pending));
    CHECK(!sigismember(&pending, SIGUSR1));
}

TEST(signalfd_blocks_until_one_comes) {
    sigset_t set = blocked(SIGCHLD, SIGUSR1);
    int fd = OK(signalfd(-1, &set, 0));
    pid_t pid = FORK();
    if (pid == 0) {
        msleep(20);
        _exit(4);
    }
    struct signalfd_siginfo info;
    CHECK_EQ(OK(read(fd, &info, sizeof info)), sizeof info);
    CHECK_EQ(info.ssi_signo, SIGCHLD);
    CHECK_EQ(info.ssi_pid, pid);
    CHECK_EQ(info.ssi_status, 4);
    EXITS(pid, 4);
}

TEST(signalfd_mask_can_change) {
    sigset_t set = blocked(SIGUSR1, SIGUSR2), only;
    sigemptyset(&only);
    sigaddset(&only, SIGUSR2);
    int fd = OK(signalfd(-1, &only, SFD_NONBLOCK));
    OK(raise(SIGUSR1));
    struct signalfd_siginfo info;
    ERR(read(fd, &info, sizeof info), EAGAIN);
    CHECK_EQ(OK(signalfd(fd, &set, 0)), fd);
    CHECK_EQ(OK(read(fd, &info, sizeof info)), sizeof info);
}

TEST(signalfd_errors) {
    sigset_t set = blocked(SIGUSR1, SIGUSR2);
    int fd = OK(signalfd(-1, &set, SFD_NONBLOCK));
    struct signalfd_siginfo info;
    ERR(read(fd, &info, 10), EINVAL);
    ERR(signalfd(999, &set, 0), EBADF);
    ERR(signalfd(OK(dup(2)), &set, 0), EINVAL);
    ERR(syscall(SYS_signalfd4, -1, &set, 8L, 0x55), EINVAL);
    ERR(syscall(SYS_signalfd4, -1, &set, 4L, 0), EINVAL);
    ERR(syscall(SYS_signalfd4, -1, BAD, 8L, 0), EFAULT);
}

/* ---- memfd ------------------------------------------------------------------------------------- */

enum { ADD_SEALS = 1033, GET_SEALS = 1034 };
enum { S_SEAL = 1, S_SHRINK = 2, S_GROW = 4, S_WRITE = 8, S_FUTURE_WRITE = 16 };

static int memfd(unsigned flags) { return (int)OK(syscall(SYS_memfd_create, "test", flags)); }

TEST(memfd_is_a_file_without_a_name) {
    int fd = memfd(1 /* MFD_CLOEXEC */);
    CHECK_EQ(OK(fcntl(fd, F_GETFD)), FD_CLOEXEC);
    OK(write(fd, "contents", 8));
    struct stat st;
    OK(fstat(fd, &st));
    CHECK(S_ISREG(st.st_mode) && st.st_size == 8);
    char *p = OK(mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
    p[0] = 'C';
    char text[9] = "";
    OK(pread(fd, text, 8, 0));
    CHECK_STR(text, "Contents");
    char link[64] = "", path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    OK(readlink(path, link, sizeof link - 1));
    CHECK(strstr(link, "memfd:test") != NULL);
}

TEST(memfd_seals_forbid) {
    int fd = memfd(2 /* MFD_ALLOW_SEALING */);
    OK(ftruncate(fd, 4096));
    CHECK_EQ(OK(fcntl(fd, GET_SEALS)), 0);
    OK(fcntl(fd, ADD_SEALS, S_SHRINK));
    ERR(ftruncate(fd, 100), EPERM);
    OK(ftruncate(fd, 8192));
    OK(fcntl(fd, ADD_SEALS, S_GROW));
    ERR(ftruncate(fd, 10000), EPERM);
    ERR(pwrite(fd, "x", 1, 8192), EPERM);
    OK(pwrite(fd, "x", 1, 0));
    OK(fcntl(fd, ADD_SEALS, S_WRITE));
    ERR(write(fd, "x", 1), EPERM);
    ERR(mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), EPERM);
    OK(mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0));
    OK(mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, fd, 0));
    OK(fcntl(fd, ADD_SEALS, S_SEAL));
    ERR(fcntl(fd, ADD_SEALS, S_FUTURE_WRITE), EPERM);
    CHECK_EQ(OK(fcntl(fd, GET_SEALS)), S_SEAL | S_SHRINK | S_GROW | S_WRITE);
}

TEST(memfd_write_seal_waits_for_no_writable_mapping) {
    int fd = memfd(2);
    OK(ftruncate(fd, 4096));
    char *p = OK(mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
    ERR(fcntl(fd, ADD_SEALS, S_WRITE), EBUSY);
    OK(munmap(p, PAGE));
    OK(fcntl(fd, ADD_SEALS, S_WRITE));
}

TEST(memfd_errors) {
    ERR(syscall(SYS_memfd_create, "x", 0x8000000), EINVAL);
    ERR(syscall(SYS_memfd_create, BAD, 0), EFAULT);
    char name[300];
    memset(name, 'm', 299);
    name[299] = 0;
    ERR(syscall(SYS_memfd_create, name, 0), EINVAL);
    int fd = memfd(0); /* without sealing it is sealed against seals */
    CHECK_EQ(OK(fcntl(fd, GET_SEALS)), S_SEAL);
    ERR(fcntl(fd, ADD_SEALS, S_GROW), EPERM);
    int p[2];
    OK(pipe(p));
    ERR(fcntl(p[0], GET_SEALS), EINVAL);
}

/* ---- inotify ----------------------------------------------------------------------------------- */

static int in;
static char buffer[4096] __attribute__((aligned(8)));
static size_t at, have;
static const struct inotify_event *next_event(void) {
    if (at >= have) {
        struct pollfd p = {in, POLLIN, 0};
        if (OK(poll(&p, 1, 10000)) == 0)
            FAIL("no event came");
        have = (size_t)OK(read(in, buffer, sizeof buffer));
        at = 0;
    }
    const struct inotify_event *e = (const struct inotify_event *)(buffer + at);
    at += sizeof *e + e->len;
    return e;
}
static void expect_event(int line, int wd, uint32_t mask, const char *name) {
    const struct inotify_event *e = next_event();
    if (e->wd != wd || e->mask != mask || strcmp(e->len ? e->name : "", name) != 0)
        hy_fail(__FILE__, line, "event of watch %d mask %#x name \"%s\", not %d %#x \"%s\"", e->wd, e->mask,
                e->len ? e->name : "", wd, mask, name);
}
#define EVENT(wd, mask, name) expect_event(__LINE__, wd, mask, name)

TEST(inotify_tells_of_a_directory) {
    OK(mkdir("d", 0755));
    in = OK(inotify_init1(IN_NONBLOCK | IN_CLOEXEC));
    int wd = OK(inotify_add_watch(in, "d", IN_CREATE | IN_DELETE | IN_MOVE | IN_MODIFY | IN_ATTRIB));
    ERR(read(in, buffer, sizeof buffer), EAGAIN);
    PUT("d/f", "");
    EVENT(wd, IN_CREATE, "f");
    EVENT(wd, IN_ATTRIB, "f"); /* PUT sets the mode */
    int fd = OK(open("d/f", O_WRONLY));
    OK(write(fd, "x", 1));
    EVENT(wd, IN_MODIFY, "f");
    OK(mkdir("d/sub", 0755));
    EVENT(wd, IN_CREATE | IN_ISDIR, "sub");
    OK(rename("d/f", "d/g"));
    const struct inotify_event *e = next_event();
    CHECK_EQ(e->mask, IN_MOVED_FROM);
    uint32_t cookie = e->cookie;
    CHECK(cookie != 0);
    e = next_event();
    CHECK_EQ(e->mask, IN_MOVED_TO);
    CHECK_EQ(e->cookie, cookie);
    CHECK_STR(e->name, "g");
    OK(unlink("d/g"));
    while ((e = next_event())->mask == IN_ATTRIB) /* the link count of the open file */
        ;
    CHECK_EQ(e->mask, IN_DELETE);
}

TEST(inotify_tells_of_a_file_itself) {
    PUT("f", "x");
    in = OK(inotify_init1(0));
    int wd = OK(inotify_add_watch(in, "f", IN_ALL_EVENTS));
    int fd = OK(open("f", O_RDWR));
    EVENT(wd, IN_OPEN, "");
    char c;
    OK(read(fd, &c, 1));
    EVENT(wd, IN_ACCESS, "");
    OK(write(fd, "y", 1));
    EVENT(wd, IN_MODIFY, "");
    OK(close(fd));
    EVENT(wd, IN_CLOSE_WRITE, "");
    OK(close(OK(open("f", O_RDONLY))));
    EVENT(wd, IN_OPEN, "");
    EVENT(wd, IN_CLOSE_NOWRITE, "");
    OK(chmod("f", 0600));
    EVENT(wd, IN_ATTRIB, "");
    OK(unlink("f"));
    EVENT(wd, IN_ATTRIB, "");
    EVENT(wd, IN_DELETE_SELF, "");
    EVENT(wd, IN_IGNORED, "");
}

TEST(inotify_watches_are_by_inode) {
    PUT("f", "x");
    OK(link("f", "g"));
    in = OK(inotify_init1(0));
    int wd = OK(inotify_add_watch(in, "f", IN_MODIFY));
    CHECK_EQ(OK(inotify_add_watch(in, "g", IN_MODIFY | IN_ATTRIB)), wd); /* the same watch */
    OK(inotify_rm_watch(in, wd));
    EVENT(wd, IN_IGNORED, "");
    ERR(inotify_rm_watch(in, wd), EINVAL);
    CHECK(OK(inotify_add_watch(in, "f", IN_MODIFY)) != wd); /* numbers are not used again */
}

TEST(inotify_oneshot_and_identical_events_merge) {
    PUT("f", "x");
    in = OK(inotify_init1(IN_NONBLOCK));
    int wd = OK(inotify_add_watch(in, "f", IN_MODIFY));
    int fd = OK(open("f", O_WRONLY));
    for (int i = 0; i < 5; i++)
        OK(write(fd, "z", 1));
    CHECK_EQ(OK(read(in, buffer, sizeof buffer)), sizeof(struct inotify_event)); /* one of five */
    OK(inotify_rm_watch(in, wd));
    EVENT(wd, IN_IGNORED, "");
    wd = OK(inotify_add_watch(in, "f", IN_MODIFY | IN_ONESHOT));
    OK(write(fd, "z", 1));
    EVENT(wd, IN_MODIFY, "");
    EVENT(wd, IN_IGNORED, "");
    OK(write(fd, "z", 1));
    ERR(read(in, buffer, sizeof buffer), EAGAIN);
}

TEST(inotify_errors) {
    in = OK(inotify_init1(IN_NONBLOCK));
    ERR(inotify_init1(0x123), EINVAL);
    ERR(inotify_add_watch(in, "none", IN_MODIFY), ENOENT);
    ERR(inotify_add_watch(in, ".", 0), EINVAL);
    ERR(inotify_add_watch(999, ".", IN_MODIFY), EBADF);
    ERR(inotify_add_watch(OK(dup(2)), ".", IN_MODIFY), EINVAL);
    ERR(inotify_rm_watch(in, 12345), EINVAL);
    PUT("f", "x");
    ERR(inotify_add_watch(in, "f", IN_MODIFY | IN_ONLYDIR), ENOTDIR);
    OK(inotify_add_watch(in, "f", IN_MODIFY));
    OK(truncate("f", 0));
    ERR(read(in, buffer, 4), EINVAL); /* the next event does not fit */
    ERR(inotify_add_watch(in, BAD, IN_MODIFY), EFAULT);
}
