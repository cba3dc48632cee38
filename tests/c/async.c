/* Signals from descriptors: O_ASYNC, F_SETOWN, F_SETSIG (fcntl(2), "Managing signals"). */
#define AREA "async"
#include "harness.h"
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <termios.h>

#ifndef FIOSETOWN
#define FIOSETOWN 0x8901
#define SIOCSPGRP 0x8902
#define FIOGETOWN 0x8903
#define SIOCGPGRP 0x8904
#endif
#define REALTIME (SIGRTMIN + 3)

/* Blocks the signals, so that they can be waited for. */
static sigset_t wanted;
static void block(void) {
    sigemptyset(&wanted);
    sigaddset(&wanted, SIGIO);
    sigaddset(&wanted, SIGURG);
    sigaddset(&wanted, SIGUSR1);
    sigaddset(&wanted, REALTIME);
    OK(sigprocmask(SIG_BLOCK, &wanted, NULL));
}
/* The next signal within ten seconds, or 0 for none within a moment. */
static int next(siginfo_t *info, bool comes) {
    struct timespec t = {comes ? 10 : 0, comes ? 0 : 30 * MS};
    int signal = sigtimedwait(&wanted, info, &t);
    return signal == -1 && errno == EAGAIN ? 0 : signal;
}
static void none_comes(int line) {
    siginfo_t info;
    int signal = next(&info, false);
    if (signal)
        hy_fail(__FILE__, line, "signal %d came, code %d", signal, info.si_code);
}
#define NONE() none_comes(__LINE__)
static void comes(int line, int signal, int code, long band, int fd) {
    siginfo_t info;
    memset(&info, 0, sizeof info);
    int got = next(&info, true);
    if (got != signal || info.si_code != code ||
        (code != SI_KERNEL && (info.si_band != band || info.si_fd != fd)))
        hy_fail(__FILE__, line, "signal %d code %d band %#lx fd %d, not %d %d %#lx %d", got,
                info.si_code, info.si_band, info.si_fd, signal, code, band, fd);
}
#define IO() comes(__LINE__, SIGIO, SI_KERNEL, 0, 0)
#define TOLD(code, band, fd) comes(__LINE__, REALTIME, code, band, fd)
#define BAND_IN (POLLIN | POLLRDNORM)
#define BAND_OUT (POLLOUT | POLLWRNORM | POLLWRBAND)

static void asynchronous(int fd, bool on) {
    int flags = OK(fcntl(fd, F_GETFL));
    OK(fcntl(fd, F_SETFL, on ? flags | O_ASYNC : flags & ~O_ASYNC));
    CHECK_EQ(OK(fcntl(fd, F_GETFL)) & O_ASYNC, on ? O_ASYNC : 0);
}
static void ready(int fd) {
    OK(fcntl(fd, F_SETOWN, getpid()));
    OK(fcntl(fd, F_SETSIG, REALTIME));
    asynchronous(fd, true);
}

/* ---- kinds of files --------------------------------------------------------------------------- */

TEST(a_pipe_tells_its_reader) {
    block();
    int p[2];
    char c[2];
    OK(pipe(p));
    OK(write(p[1], "x", 1));
    asynchronous(p[0], true);
    NONE(); /* nobody owns it */
    OK(write(p[1], "x", 1));
    NONE();
    OK(fcntl(p[0], F_SETOWN, getpid()));
    OK(write(p[1], "x", 1));
    IO();
    OK(read(p[0], c, 1));
    NONE();
    asynchronous(p[0], false);
    OK(write(p[1], "x", 1));
    NONE();
    asynchronous(p[0], true);
    OK(close(p[1]));
    IO();
}

TEST(a_pipe_tells_its_writer) {
    block();
    int p[2];
    char c[2];
    OK(pipe(p));
    OK(write(p[1], "xy", 2));
    ready(p[1]);
    OK(read(p[0], c, 1));
    TOLD(POLL_OUT, BAND_OUT, p[1]);
    OK(close(p[0]));
    TOLD(POLL_OUT, BAND_OUT, p[1]);
}

TEST(a_fifo_tells_too) {
    block();
    OK(mkfifo("f", 0600));
    int r = OK(open("f", O_RDONLY | O_NONBLOCK)), w = OK(open("f", O_WRONLY));
    ready(r);
    OK(write(w, "x", 1));
    TOLD(POLL_IN, BAND_IN, r);
}

TEST(spliced_bytes_are_told_of) {
    block();
    int p[2];
    PUT("f", "0123456789");
    OK(pipe(p));
    ready(p[0]);
    OK(splice(OK(open("f", O_RDONLY)), NULL, p[1], NULL, 4, 0));
    TOLD(POLL_IN, BAND_IN, p[0]);
}

TEST(a_stream_socket_tells) {
    block();
    int s[2];
    OK(socketpair(AF_UNIX, SOCK_STREAM, 0, s));
    ready(s[0]);
    OK(write(s[1], "x", 1));
    TOLD(POLL_IN, BAND_IN, s[0]);
    OK(shutdown(s[1], SHUT_WR));
    TOLD(POLL_IN, BAND_IN, s[0]);
    OK(close(s[1]));
    TOLD(POLL_HUP, POLLHUP | POLLERR, s[0]);
}

TEST(a_datagram_socket_tells) {
    block();
    int s[2];
    OK(socketpair(AF_UNIX, SOCK_DGRAM, 0, s));
    ready(s[0]);
    OK(send(s[1], "x", 1, 0));
    TOLD(POLL_IN, BAND_IN, s[0]);
}

TEST(a_listening_socket_tells_of_connections) {
    block();
    struct sockaddr_un at = {AF_UNIX, "l"};
    int l = OK(socket(AF_UNIX, SOCK_STREAM, 0)), c = OK(socket(AF_UNIX, SOCK_STREAM, 0));
    OK(bind(l, (struct sockaddr *)&at, sizeof at));
    OK(listen(l, 5));
    ready(l);
    OK(connect(c, (struct sockaddr *)&at, sizeof at));
    TOLD(POLL_IN, BAND_IN, l);
}

TEST(a_terminal_tells_both_ends) {
    block();
    int master = OK(open("/dev/ptmx", O_RDWR | O_NOCTTY)), zero = 0, number;
    char path[32], c[8];
    OK(ioctl(master, TIOCSPTLCK, &zero));
    OK(ioctl(master, TIOCGPTN, &number));
    snprintf(path, sizeof path, "/dev/pts/%d", number);
    int slave = OK(open(path, O_RDWR | O_NOCTTY));
    struct termios raw;
    OK(tcgetattr(slave, &raw));
    cfmakeraw(&raw);
    OK(tcsetattr(slave, TCSANOW, &raw));
    ready(slave);
    OK(write(master, "x", 1));
    TOLD(POLL_IN, BAND_IN, slave);
    OK(read(slave, c, 1));
    asynchronous(slave, false);
    while (next(NULL, false))
        ;
    ready(master);
    OK(write(slave, "y", 1));
    TOLD(POLL_IN, BAND_IN, master);
}

TEST(a_terminal_without_owner_takes_the_caller) {
    block();
    int master = OK(open("/dev/ptmx", O_RDWR | O_NOCTTY));
    CHECK_EQ(OK(fcntl(master, F_GETOWN)), 0);
    asynchronous(master, true);
    CHECK_EQ(OK(fcntl(master, F_GETOWN)), getpid());
    OK(fcntl(master, F_SETOWN, getppid()));
    asynchronous(master, false);
    asynchronous(master, true);
    CHECK_EQ(OK(fcntl(master, F_GETOWN)), getppid());
}

TEST(inotify_tells) {
    block();
    int in = OK(inotify_init1(IN_NONBLOCK));
    OK(inotify_add_watch(in, ".", IN_CREATE));
    ready(in);
    OK(mkdir("d", 0755));
    TOLD(POLL_IN, BAND_IN, in);
}

TEST(others_do_not_tell) {
    block();
    int fds[] = {OK(open("f", O_RDWR | O_CREAT, 0644)), OK(eventfd(0, 0)), OK(epoll_create1(0)),
                 OK(open(".", O_RDONLY))};
    int on = 1;
    for (size_t i = 0; i < sizeof fds / sizeof *fds; i++) {
        OK(fcntl(fds[i], F_SETFL, O_ASYNC | O_NONBLOCK));
        CHECK_EQ(OK(fcntl(fds[i], F_GETFL)) & (O_ASYNC | O_NONBLOCK), O_NONBLOCK);
        ERR(ioctl(fds[i], FIOASYNC, &on), ENOTTY);
    }
    on = 0;
    OK(ioctl(fds[0], FIOASYNC, &on)); /* it is off already */
    ERR(ioctl(fds[0], FIOASYNC, BAD), EFAULT);
    CHECK(OK(fcntl(OK(open("f", O_RDONLY | O_ASYNC)), F_GETFL)) & O_ASYNC); /* open(2), BUGS */
}

/* ---- whom, and how ----------------------------------------------------------------------------- */

TEST(fioasync_switches_it) {
    block();
    int p[2], on = 1, off = 0;
    OK(pipe(p));
    OK(fcntl(p[0], F_SETOWN, getpid()));
    OK(ioctl(p[0], FIOASYNC, &on));
    CHECK(OK(fcntl(p[0], F_GETFL)) & O_ASYNC);
    OK(write(p[1], "x", 1));
    IO();
    OK(ioctl(p[0], FIOASYNC, &off));
    CHECK(!(OK(fcntl(p[0], F_GETFL)) & O_ASYNC));
    OK(write(p[1], "x", 1));
    NONE();
}

TEST(setsig_says_which_signal_and_what) {
    block();
    int p[2];
    OK(pipe(p));
    CHECK_EQ(OK(fcntl(p[0], F_GETSIG)), 0);
    OK(fcntl(p[0], F_SETOWN, getpid()));
    asynchronous(p[0], true);
    OK(fcntl(p[0], F_SETSIG, SIGUSR1));
    CHECK_EQ(OK(fcntl(p[0], F_GETSIG)), SIGUSR1);
    OK(write(p[1], "x", 1));
    comes(__LINE__, SIGUSR1, POLL_IN, BAND_IN, p[0]);
    OK(fcntl(p[0], F_SETSIG, SIGIO)); /* asked for by name it tells more */
    OK(write(p[1], "x", 1));
    comes(__LINE__, SIGIO, POLL_IN, BAND_IN, p[0]);
    OK(fcntl(p[0], F_SETSIG, 0));
    OK(write(p[1], "x", 1));
    IO();
    ERR(fcntl(p[0], F_SETSIG, 65), EINVAL);
    ERR(fcntl(p[0], F_SETSIG, -1), EINVAL);
}

TEST(the_descriptor_is_that_which_switched_it_on) {
    block();
    int p[2];
    OK(pipe(p));
    int copy = OK(dup(p[0]));
    OK(fcntl(p[0], F_SETOWN, getpid()));
    OK(fcntl(p[0], F_SETSIG, REALTIME));
    asynchronous(copy, true);
    OK(write(p[1], "x", 1));
    TOLD(POLL_IN, BAND_IN, copy);
    OK(close(copy)); /* the opening lives on, and so does its wish */
    OK(write(p[1], "x", 1));
    TOLD(POLL_IN, BAND_IN, copy);
}

TEST(realtime_signals_queue_and_overflow_to_sigio) {
    block();
    int p[2];
    OK(pipe(p));
    ready(p[0]);
    for (int i = 0; i < 3; i++)
        OK(write(p[1], "x", 1));
    for (int i = 0; i < 3; i++)
        TOLD(POLL_IN, BAND_IN, p[0]);
    NONE();
    struct rlimit limit = {0, 0};
    OK(setrlimit(RLIMIT_SIGPENDING, &limit));
    OK(write(p[1], "x", 1));
    IO();
}

TEST(a_group_gets_it) {
    block();
    int p[2];
    OK(pipe(p));
    GATE(there);
    pid_t pid = FORK();
    if (pid == 0) {
        gate_open(&there);
        siginfo_t info;
        _exit(next(&info, true) == SIGIO ? 0 : 1);
    }
    gate_pass(&there);
    OK(fcntl(p[0], F_SETOWN, -getpgrp()));
    CHECK_EQ(OK(fcntl(p[0], F_GETOWN)), -getpgrp());
    asynchronous(p[0], true);
    OK(write(p[1], "x", 1));
    IO();
    EXITS(pid, 0);
}

static int thread_pipe[2];
static _Atomic pid_t thread_id;
static void *on_thread(void *out) {
    thread_id = (pid_t)syscall(SYS_gettid);
    siginfo_t info;
    *(int *)out = next(&info, true);
    return NULL;
}
TEST(a_thread_gets_it) {
    block();
    OK(pipe(thread_pipe));
    pthread_t thread;
    int got = 0;
    ZERO(pthread_create(&thread, NULL, on_thread, &got));
    EVENTUALLY(thread_id != 0);
    struct f_owner_ex owner = {F_OWNER_TID, thread_id};
    OK(fcntl(thread_pipe[0], F_SETOWN_EX, &owner));
    memset(&owner, 0xee, sizeof owner);
    OK(fcntl(thread_pipe[0], F_GETOWN_EX, &owner));
    CHECK_EQ(owner.type, F_OWNER_TID);
    CHECK_EQ(owner.pid, thread_id);
    asynchronous(thread_pipe[0], true);
    OK(write(thread_pipe[1], "x", 1));
    ZERO(pthread_join(thread, NULL));
    CHECK_EQ(got, SIGIO);
    NONE();
}

TEST(owners_are_told_and_checked) {
    int p[2];
    OK(pipe(p));
    struct f_owner_ex owner;
    OK(fcntl(p[0], F_GETOWN_EX, &owner));
    CHECK_EQ(owner.type, F_OWNER_TID);
    CHECK_EQ(owner.pid, 0);
    CHECK_EQ(OK(syscall(SYS_fcntl, p[0], F_GETOWN)), 0);
    ERR(fcntl(p[0], F_SETOWN, 4194300), ESRCH);
    ERR(fcntl(p[0], F_SETOWN, -4194300), ESRCH);
    ERR(fcntl(p[0], F_SETOWN, INT_MIN), EINVAL);
    owner = (struct f_owner_ex){F_OWNER_PID, 4194300};
    ERR(fcntl(p[0], F_SETOWN_EX, &owner), ESRCH);
    owner = (struct f_owner_ex){F_OWNER_PID, -1};
    ERR(fcntl(p[0], F_SETOWN_EX, &owner), ESRCH);
    owner = (struct f_owner_ex){3, getpid()};
    ERR(fcntl(p[0], F_SETOWN_EX, &owner), EINVAL);
    ERR(fcntl(p[0], F_SETOWN_EX, BAD), EFAULT);
    ERR(fcntl(p[0], F_GETOWN_EX, BAD), EFAULT);
    owner = (struct f_owner_ex){F_OWNER_PGRP, getpgrp()};
    OK(fcntl(p[0], F_SETOWN_EX, &owner));
    CHECK_EQ(OK(fcntl(p[0], F_GETOWN)), -getpgrp());
    OK(fcntl(p[0], F_SETOWN, getpid()));
    OK(fcntl(p[0], F_GETOWN_EX, &owner));
    CHECK_EQ(owner.type, F_OWNER_PID);
    CHECK_EQ(owner.pid, getpid());
    OK(fcntl(p[0], F_SETOWN, 0));
    CHECK_EQ(OK(fcntl(p[0], F_GETOWN)), 0);
    pid_t pid = FORK();
    if (pid == 0)
        pause();
    OK(fcntl(p[0], F_SETOWN, pid));
    CHECK_EQ(OK(fcntl(p[0], F_GETOWN)), pid);
    kill(pid, SIGKILL);
    KILLED(pid, SIGKILL);
    CHECK_EQ(OK(fcntl(p[0], F_GETOWN)), 0); /* who is gone owns nothing */
}

TEST(the_users_of_the_owner_are_told) {
    int p[2];
    OK(pipe(p));
    uint32_t users[2] = {9, 9};
    OK(fcntl(p[0], 17 /* F_GETOWNER_UIDS */, users));
    CHECK(users[0] == 0 && users[1] == 0); /* nobody asked */
    OK(fcntl(p[0], F_SETOWN, getpid()));
    OK(fcntl(p[0], 17, users));
    CHECK(users[0] == getuid() && users[1] == geteuid());
    ERR(fcntl(p[0], 17, BAD), EFAULT);
    if (geteuid() == 0) {
        OK(syscall(SYS_setresuid, 5, 6, 0));
        OK(fcntl(p[0], F_SETOWN, getpid()));
        OK(fcntl(p[0], 17, users));
        CHECK(users[0] == 5 && users[1] == 6);
    }
}

TEST(sockets_take_their_owner_by_ioctl) {
    int s[2], p[2], pid = getpid(), got = 1;
    OK(socketpair(AF_UNIX, SOCK_STREAM, 0, s));
    OK(pipe(p));
    OK(ioctl(s[0], FIOGETOWN, &got));
    CHECK_EQ(got, 0);
    OK(ioctl(s[0], FIOSETOWN, &pid));
    OK(ioctl(s[0], SIOCGPGRP, &got));
    CHECK_EQ(got, pid);
    pid = -getpgrp();
    OK(ioctl(s[0], SIOCSPGRP, &pid));
    OK(ioctl(s[0], FIOGETOWN, &got));
    CHECK_EQ(got, pid);
    pid = 4194300;
    ERR(ioctl(s[0], FIOSETOWN, &pid), ESRCH);
    ERR(ioctl(s[0], FIOSETOWN, BAD), EFAULT);
    ERR(ioctl(p[0], FIOSETOWN, &pid), ENOTTY);
    ERR(ioctl(p[0], FIOGETOWN, &got), ENOTTY);
}

TEST(only_who_may_signal_does) {
    if (geteuid() != 0)
        SKIP("not root");
    block();
    int p[2];
    OK(pipe(p));
    asynchronous(p[0], true);
    IN_CHILD({
        BECOME(NOBODY, NOBODY);
        OK(fcntl(p[0], F_SETOWN, getppid())); /* may be asked for, by anybody */
    });
    OK(write(p[1], "x", 1));
    NONE(); /* but nobody may not signal root */
    OK(fcntl(p[0], F_SETOWN, getpid()));
    OK(write(p[1], "x", 1));
    IO();
}

TEST(the_last_close_ends_it) {
    block();
    int p[2];
    OK(pipe(p));
    ready(p[0]);
    OK(fcntl(p[0], F_SETOWN, getpid()));
    OK(close(p[0]));
    int s[2];
    OK(socketpair(AF_UNIX, SOCK_DGRAM, 0, s));
    ready(s[0]);
    OK(close(s[0]));
    OK(close(s[1]));
    NONE();
    struct sigaction ignore = {.sa_handler = SIG_IGN};
    OK(sigaction(SIGPIPE, &ignore, NULL));
    ERR(write(p[1], "x", 1), EPIPE);
    NONE();
}
