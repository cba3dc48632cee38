/* Leases (F_SETLEASE) and changes of directories (F_NOTIFY), fcntl(2). */
#define AREA "lease"
#include "harness.h"
#include <poll.h>

#ifndef F_SETLEASE
#define F_SETLEASE 1024
#define F_GETLEASE 1025
#endif
#ifndef F_NOTIFY
#define F_NOTIFY 1026
#endif
#ifndef DN_ACCESS
#define DN_ACCESS 1
#define DN_MODIFY 2
#define DN_CREATE 4
#define DN_DELETE 8
#define DN_RENAME 0x10
#define DN_ATTRIB 0x20
#define DN_MULTISHOT 0x80000000
#endif
#define REALTIME (SIGRTMIN + 3)
#define MESSAGE (POLLIN | POLLRDNORM | 0x400 /* POLLMSG */)

static sigset_t wanted;
static void block(void) {
    sigemptyset(&wanted);
    sigaddset(&wanted, SIGIO);
    sigaddset(&wanted, SIGUSR1);
    sigaddset(&wanted, REALTIME);
    OK(sigprocmask(SIG_BLOCK, &wanted, NULL));
}
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
static void comes(int line, int signal, int code, int fd) {
    siginfo_t info;
    memset(&info, 0, sizeof info);
    int got = next(&info, true);
    if (got != signal || info.si_code != code ||
        (code != SI_KERNEL && (info.si_band != MESSAGE || info.si_fd != fd)))
        hy_fail(__FILE__, line, "signal %d code %d band %#lx fd %d, not %d %d %d", got,
                info.si_code, info.si_band, info.si_fd, signal, code, fd);
}
#define IO() comes(__LINE__, SIGIO, SI_KERNEL, 0)
#define TOLD(fd) comes(__LINE__, REALTIME, POLL_MSG, fd)

static int lease_of(int fd) { return OK(fcntl(fd, F_GETLEASE)); }

/* ---- hints ------------------------------------------------------------------------------------ */

#ifndef F_GET_RW_HINT
#define F_GET_RW_HINT 1035
#define F_SET_RW_HINT 1036
#endif

TEST(hints_are_kept_with_the_file) {
    PUT("f", "x");
    OK(link("f", "g"));
    uint64_t hint = 99;
    int f = OK(open("f", O_RDONLY)), p[2];
    OK(fcntl(f, F_GET_RW_HINT, &hint));
    CHECK_EQ(hint, 0);
    for (uint64_t each = 0; each <= 5; each++) {
        OK(fcntl(f, F_SET_RW_HINT, &each));
        OK(fcntl(OK(open("g", O_RDWR)), F_GET_RW_HINT, &hint));
        CHECK_EQ(hint, each);
    }
    int directory = OK(open(".", O_RDONLY));
    OK(fcntl(directory, F_SET_RW_HINT, &hint));
    hint = 0;
    OK(fcntl(OK(open(".", O_RDONLY)), F_GET_RW_HINT, &hint));
    CHECK_EQ(hint, 5);
    OK(pipe(p));
    OK(fcntl(p[0], F_SET_RW_HINT, &hint));
    hint = 0;
    OK(fcntl(p[1], F_GET_RW_HINT, &hint));
    CHECK_EQ(hint, 5);
    hint = 6;
    ERR(fcntl(f, F_SET_RW_HINT, &hint), EINVAL);
    ERR(fcntl(f, F_SET_RW_HINT, BAD), EFAULT);
    ERR(fcntl(f, F_GET_RW_HINT, BAD), EFAULT);
    ERR(fcntl(-1, F_GET_RW_HINT, &hint), EBADF);
    ERR(fcntl(OK(open("f", O_PATH)), F_GET_RW_HINT, &hint), EBADF);
    ERR(fcntl(f, 1037 /* F_GET_FILE_RW_HINT, gone since 5.18 */, &hint), EINVAL);
    ERR(fcntl(f, 1038, &hint), EINVAL);
    OK(fcntl(f, F_GET_RW_HINT, &hint));
    CHECK_EQ(hint, 5);
}

/* ---- taking a lease ---------------------------------------------------------------------------- */

TEST(a_lease_is_taken_changed_and_given_up) {
    PUT("f", "x");
    int fd = OK(open("f", O_RDONLY));
    CHECK_EQ(lease_of(fd), F_UNLCK);
    OK(fcntl(fd, F_SETLEASE, F_RDLCK));
    CHECK_EQ(lease_of(fd), F_RDLCK);
    OK(fcntl(fd, F_SETLEASE, F_WRLCK));
    CHECK_EQ(lease_of(fd), F_WRLCK);
    OK(fcntl(fd, F_SETLEASE, F_RDLCK));
    CHECK_EQ(lease_of(fd), F_RDLCK);
    CHECK_EQ(OK(fcntl(fd, F_GETOWN)), getpid()); /* the taker gets the signals */
    OK(fcntl(fd, F_SETLEASE, F_UNLCK));
    CHECK_EQ(lease_of(fd), F_UNLCK);
    ERR(fcntl(fd, F_SETLEASE, F_UNLCK), EAGAIN); /* there is none */
}

TEST(a_read_lease_wants_no_writers) {
    PUT("f", "x");
    int w = OK(open("f", O_RDWR)), r = OK(open("f", O_RDONLY)), other = OK(open("f", O_RDONLY));
    ERR(fcntl(r, F_SETLEASE, F_RDLCK), EAGAIN);
    ERR(fcntl(w, F_SETLEASE, F_RDLCK), EAGAIN);
    OK(close(w));
    OK(fcntl(r, F_SETLEASE, F_RDLCK));
    OK(fcntl(other, F_SETLEASE, F_RDLCK)); /* as many as want */
    CHECK_EQ(lease_of(other), F_RDLCK);
    ERR(fcntl(other, F_SETLEASE, F_WRLCK), EAGAIN);
}

TEST(a_write_lease_wants_to_be_alone) {
    PUT("f", "x");
    int fd = OK(open("f", O_RDONLY)), other = OK(open("f", O_RDONLY));
    ERR(fcntl(fd, F_SETLEASE, F_WRLCK), EAGAIN);
    OK(close(other));
    int copy = OK(dup(fd)); /* the same opening */
    OK(fcntl(fd, F_SETLEASE, F_WRLCK));
    CHECK_EQ(lease_of(copy), F_WRLCK);
    OK(close(fd));
    CHECK_EQ(lease_of(copy), F_WRLCK);
    OK(fcntl(copy, F_SETLEASE, F_UNLCK));
    int w = OK(open("f", O_RDWR));
    OK(close(copy));
    OK(fcntl(w, F_SETLEASE, F_WRLCK)); /* who writes alone may */
    OK(fcntl(w, F_SETLEASE, F_UNLCK));
    int child = OK(open("f", O_RDONLY)); /* an opening elsewhere counts */
    pid_t pid = FORK();
    if (pid == 0) {
        pause();
        _exit(0);
    }
    OK(close(child));
    ERR(fcntl(w, F_SETLEASE, F_WRLCK), EAGAIN);
    kill(pid, SIGKILL);
    KILLED(pid, SIGKILL);
    EVENTUALLY(fcntl(w, F_SETLEASE, F_WRLCK) == 0);
}

TEST(a_write_lease_counts_openings_by_any_name) {
    block();
    PUT("f", "x");
    OK(link("f", "g"));
    int fd = OK(open("f", O_RDONLY));
    OK(fcntl(fd, F_SETLEASE, F_WRLCK));
    ERR(open("g", O_RDONLY | O_NONBLOCK), EWOULDBLOCK);
    IO();
    OK(fcntl(fd, F_SETLEASE, F_UNLCK));
    int other = OK(open("g", O_RDONLY));
    ERR(fcntl(fd, F_SETLEASE, F_WRLCK), EAGAIN);
    OK(unlink("g")); /* its name does not matter */
    ERR(fcntl(fd, F_SETLEASE, F_WRLCK), EAGAIN);
    OK(close(other));
    OK(fcntl(fd, F_SETLEASE, F_WRLCK));
    OK(fcntl(fd, F_SETLEASE, F_UNLCK));
    /* A mere place is no opening, a mapping is. */
    other = OK(open("f", O_PATH));
    OK(fcntl(fd, F_SETLEASE, F_WRLCK));
    OK(fcntl(fd, F_SETLEASE, F_UNLCK));
    int mapped = OK(open("f", O_RDONLY));
    void *page = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, mapped, 0);
    CHECK(page != MAP_FAILED);
    OK(close(mapped));
    ERR(fcntl(fd, F_SETLEASE, F_WRLCK), EAGAIN);
    OK(fcntl(fd, F_SETLEASE, F_RDLCK));
    OK(munmap(page, PAGE));
    OK(fcntl(fd, F_SETLEASE, F_WRLCK));
}

HELPER(nothing) { return 0; }
HELPER(read_byte) {
    char c;
    return read(0, &c, 1) == 1 ? 0 : 1;
}

TEST(a_running_program_is_an_opening) {
    COPY(hy_self, "x", 0755);
    int fd = OK(open("x", O_RDONLY)), p[2], said[2];
    OK(pipe(p));
    OK(pipe2(said, O_CLOEXEC));
    pid_t child = FORK();
    if (child == 0) {
        OK(close(fd));
        OK(dup2(p[0], 0));
        execl("x", "x", "--helper", "read_byte", NULL);
        FAIL("execl: %s", strerror(errno));
    }
    OK(close(said[1]));
    char c;
    CHECK_EQ(OK(read(said[0], &c, 1)), 0); /* it executes */
    ERR(fcntl(fd, F_SETLEASE, F_WRLCK), EAGAIN);
    OK(fcntl(fd, F_SETLEASE, F_RDLCK));
    OK(write(p[1], "x", 1));
    EXITS(child, 0);
    EVENTUALLY(fcntl(fd, F_SETLEASE, F_WRLCK) == 0);
}

/* Others who walk by have not opened it. */
static _Atomic int ended;
static void *walk(void *unused UNUSED) {
    struct stat about;
    while (!atomic_load(&ended))
        OK(stat("f", &about));
    return NULL;
}

TEST(a_look_at_a_file_is_no_opening) {
    PUT("f", "x");
    int fd = OK(open("f", O_RDONLY));
    pthread_t walker;
    ZERO(pthread_create(&walker, NULL, walk, NULL));
    for (int round = 0; round < 2000; round++) {
        OK(fcntl(fd, F_SETLEASE, F_WRLCK));
        OK(fcntl(fd, F_SETLEASE, F_UNLCK));
    }
    atomic_store(&ended, 1);
    ZERO(pthread_join(walker, NULL));
}

TEST(closing_gives_a_lease_up) {
    PUT("f", "x");
    int fd = OK(open("f", O_RDONLY));
    OK(fcntl(fd, F_SETLEASE, F_WRLCK));
    OK(close(fd));
    fd = OK(open("f", O_RDWR | O_NONBLOCK)); /* nobody to wait for */
    CHECK_EQ(lease_of(fd), F_UNLCK);
}

TEST(lease_errors) {
    PUT("f", "x");
    int fd = OK(open("f", O_RDONLY)), p[2];
    OK(pipe(p));
    ERR(fcntl(fd, F_SETLEASE, 77), EINVAL);
    ERR(fcntl(-1, F_SETLEASE, F_RDLCK), EBADF);
    ERR(fcntl(-1, F_GETLEASE), EBADF);
    ERR(fcntl(OK(open("f", O_PATH)), F_SETLEASE, F_RDLCK), EBADF);
    ERR(fcntl(OK(open(".", O_RDONLY)), F_SETLEASE, F_RDLCK), EINVAL);
    ERR(fcntl(p[0], F_SETLEASE, F_RDLCK), EINVAL);
    CHECK_EQ(lease_of(p[0]), F_UNLCK);
    if (geteuid() != 0)
        return;
    OK(chmod("f", 0666));
    OK(chmod(".", 0755));
    IN_CHILD({
        BECOME(NOBODY, NOBODY);
        int other = OK(open("f", O_RDONLY));
        ERR(fcntl(other, F_SETLEASE, F_RDLCK), EACCES); /* neither owner nor CAP_LEASE */
        ERR(fcntl(OK(open(".", O_RDONLY)), F_SETLEASE, F_RDLCK), EACCES);
    });
}

/* ---- breaking a lease -------------------------------------------------------------------------- */

TEST(a_write_lease_is_broken_by_any_opening) {
    block();
    PUT("f", "x");
    int fd = OK(open("f", O_RDONLY));
    OK(fcntl(fd, F_SETLEASE, F_WRLCK));
    OK(fcntl(fd, F_SETSIG, REALTIME));
    ERR(open("f", O_RDONLY | O_NONBLOCK), EWOULDBLOCK);
    TOLD(fd);
    CHECK_EQ(lease_of(fd), F_RDLCK); /* what it is to become */
    ERR(open("f", O_RDONLY | O_NONBLOCK), EWOULDBLOCK);
    NONE(); /* told once */
    ERR(open("f", O_RDWR | O_NONBLOCK), EWOULDBLOCK); /* a writer wants more */
    CHECK_EQ(lease_of(fd), F_UNLCK);
    OK(fcntl(fd, F_SETLEASE, F_UNLCK));
    OK(open("f", O_RDWR | O_NONBLOCK));
}

TEST(a_read_lease_is_broken_by_writers) {
    block();
    PUT("f", "x");
    int fd = OK(open("f", O_RDONLY));
    OK(fcntl(fd, F_SETLEASE, F_RDLCK));
    OK(open("f", O_RDONLY | O_NONBLOCK));
    struct stat st;
    OK(stat("f", &st));
    OK(chmod("f", 0600));
    NONE();
    ERR(open("f", O_WRONLY | O_NONBLOCK), EWOULDBLOCK);
    IO();
    CHECK_EQ(lease_of(fd), F_UNLCK);
    OK(fcntl(fd, F_SETLEASE, F_UNLCK));
    OK(open("f", O_WRONLY | O_NONBLOCK));
}

TEST(an_opening_waits_for_the_holder) {
    block();
    PUT("f", "x");
    int fd = OK(open("f", O_RDONLY));
    OK(fcntl(fd, F_SETLEASE, F_WRLCK));
    pid_t pid = FORK();
    if (pid == 0) {
        int own = OK(open("f", O_RDWR));
        OK(write(own, "y", 1));
        _exit(0);
    }
    IO();
    wait_asleep(pid);
    char c;
    CHECK_EQ(OK(pread(fd, &c, 1, 0)), 1);
    CHECK_EQ(c, 'x'); /* it has not written yet */
    OK(fcntl(fd, F_SETLEASE, F_UNLCK));
    EXITS(pid, 0);
    CHECK_EQ(OK(pread(fd, &c, 1, 0)), 1);
    CHECK_EQ(c, 'y');
}

TEST(a_reader_is_content_with_a_read_lease) {
    block();
    PUT("f", "x");
    int fd = OK(open("f", O_RDONLY));
    OK(fcntl(fd, F_SETLEASE, F_WRLCK));
    pid_t pid = FORK();
    if (pid == 0) {
        OK(open("f", O_RDONLY));
        _exit(0);
    }
    IO();
    OK(fcntl(fd, F_SETLEASE, F_RDLCK));
    EXITS(pid, 0);
    CHECK_EQ(lease_of(fd), F_RDLCK);
}

TEST(executing_breaks_a_write_lease) {
    block();
    COPY(hy_self, "x", 0755);
    int fd = OK(open("x", O_RDONLY));
    OK(fcntl(fd, F_SETSIG, REALTIME));
    OK(fcntl(fd, F_SETLEASE, F_WRLCK));
    pid_t child = FORK();
    if (child == 0) {
        execl("x", "x", "--helper", "nothing", NULL);
        FAIL("execl: %s", strerror(errno));
    }
    TOLD(fd);
    CHECK_EQ(lease_of(fd), F_RDLCK); /* what it is to become */
    CHECK_EQ(waitpid(child, NULL, WNOHANG), 0); /* it waits */
    OK(fcntl(fd, F_SETLEASE, F_RDLCK));
    EXITS(child, 0);
    child = FORK();
    if (child == 0) {
        execl("x", "x", "--helper", "nothing", NULL);
        FAIL("execl: %s", strerror(errno));
    }
    EXITS(child, 0); /* a reader */
    NONE();
    CHECK_EQ(lease_of(fd), F_RDLCK);
}

TEST(truncating_breaks_a_lease) {
    block();
    PUT("f", "x");
    int fd = OK(open("f", O_RDONLY));
    OK(fcntl(fd, F_SETLEASE, F_RDLCK));
    pid_t pid = FORK();
    if (pid == 0) {
        OK(close(fd)); /* or the opening lives on */
        OK(truncate("f", 0));
        _exit(0);
    }
    IO();
    wait_asleep(pid);
    struct stat st;
    OK(stat("f", &st));
    CHECK_EQ(st.st_size, 1);
    OK(close(fd)); /* gives it up as well */
    EXITS(pid, 0);
    OK(stat("f", &st));
    CHECK_EQ(st.st_size, 0);
}

TEST(a_lease_not_given_up_is_taken_away) {
    NEEDS_OWN_MACHINE();
    block();
    char before[32];
    if (get_file("/proc/sys/fs/lease-break-time", before, sizeof before) <= 0)
        FAIL("lease-break-time: %s", strerror(errno));
    CHECK_EQ(atoi(before), 45);
    int limit = open("/proc/sys/fs/lease-break-time", O_WRONLY | O_CLOEXEC);
    if (limit == -1)
        SKIP("not root");
    OK(write(limit, "1\n", 2));
    PUT("f", "x");
    int fd = OK(open("f", O_RDONLY));
    OK(fcntl(fd, F_SETLEASE, F_WRLCK));
    int64_t from = now_ns(CLOCK_MONOTONIC);
    pid_t pid = FORK();
    if (pid == 0) {
        OK(open("f", O_RDWR));
        _exit(0);
    }
    int status = WAIT(pid);
    int64_t waited = now_ns(CLOCK_MONOTONIC) - from;
    OK(pwrite(limit, "45\n", 3, 0));
    CHECK_EQ(status, 0);
    CHECK(waited >= 900 * MS);
    IO();
    CHECK_EQ(lease_of(fd), F_UNLCK);
}

static void on_signal(int sig UNUSED) {}
TEST(a_wait_for_a_lease_is_interrupted) {
    block();
    PUT("f", "x");
    int fd = OK(open("f", O_RDONLY));
    OK(fcntl(fd, F_SETLEASE, F_WRLCK));
    pid_t pid = FORK();
    if (pid == 0) {
        struct sigaction act = {.sa_handler = on_signal};
        OK(sigaction(SIGALRM, &act, NULL));
        struct itimerval t = {{0, 20000}, {0, 20000}};
        OK(setitimer(ITIMER_REAL, &t, NULL));
        ERR(open("f", O_RDWR), EINTR);
        _exit(0);
    }
    EXITS(pid, 0);
    OK(fcntl(fd, F_SETLEASE, F_UNLCK));
}

TEST(leases_can_be_forbidden) {
    NEEDS_OWN_MACHINE();
    int limit = open("/proc/sys/fs/leases-enable", O_RDWR | O_CLOEXEC);
    if (limit == -1)
        SKIP("not root");
    PUT("f", "x");
    int fd = OK(open("f", O_RDONLY));
    OK(pwrite(limit, "0\n", 2, 0));
    int made = fcntl(fd, F_SETLEASE, F_RDLCK), error = errno;
    OK(pwrite(limit, "1\n", 2, 0));
    CHECK_EQ(made, -1);
    CHECK_EQ(error, EINVAL);
    OK(fcntl(fd, F_SETLEASE, F_RDLCK));
}

/* ---- changes of directories -------------------------------------------------------------------- */

static int directory(unsigned events) {
    int fd = OK(open("d", O_RDONLY | O_DIRECTORY));
    OK(fcntl(fd, F_SETSIG, REALTIME));
    OK(fcntl(fd, F_NOTIFY, events));
    return fd;
}

TEST(a_directory_tells_of_each_kind_of_change) {
    block();
    OK(mkdir("d", 0755));
    int fd = directory(DN_CREATE | DN_MULTISHOT);
    int file = OK(open("d/f", O_RDWR | O_CREAT, 0644));
    TOLD(fd);
    OK(write(file, "x", 1));
    NONE();
    OK(fcntl(fd, F_NOTIFY, DN_MODIFY | DN_MULTISHOT));
    OK(write(file, "x", 1));
    TOLD(fd);
    OK(truncate("d/f", 1));
    TOLD(fd);
    OK(mkdir("d/sub", 0755));
    TOLD(fd); /* another fcntl adds to what is wanted */
    OK(close(fd));
    fd = directory(DN_ATTRIB | DN_MULTISHOT);
    OK(chmod("d/f", 0600));
    TOLD(fd);
    OK(close(fd));
    fd = directory(DN_RENAME | DN_MULTISHOT);
    OK(rename("d/f", "d/g"));
    TOLD(fd);
    NONE();
    OK(rename("d/g", "out"));
    NONE(); /* that is no renaming within */
    OK(close(fd));
    fd = directory(DN_DELETE | DN_CREATE | DN_MULTISHOT);
    OK(rename("out", "d/f"));
    TOLD(fd);
    OK(unlink("d/f"));
    TOLD(fd);
    OK(rmdir("d/sub"));
    TOLD(fd);
    OK(close(fd));
    PUT("d/f", "abc");
    fd = directory(DN_ACCESS | DN_MULTISHOT);
    char c;
    OK(read(OK(open("d/f", O_RDONLY)), &c, 1));
    TOLD(fd);
}

TEST(once_is_once) {
    block();
    OK(mkdir("d", 0755));
    int fd = directory(DN_CREATE | DN_DELETE);
    OK(mkdir("d/a", 0755));
    TOLD(fd);
    OK(mkdir("d/b", 0755));
    OK(rmdir("d/a"));
    NONE();
    OK(fcntl(fd, F_NOTIFY, DN_DELETE));
    OK(mkdir("d/c", 0755));
    NONE();
    OK(rmdir("d/c"));
    TOLD(fd);
    OK(fcntl(fd, F_NOTIFY, DN_CREATE | DN_MULTISHOT));
    OK(fcntl(fd, F_NOTIFY, 0)); /* no more */
    OK(mkdir("d/c", 0755));
    NONE();
    OK(fcntl(fd, F_SETSIG, 0));
    OK(fcntl(fd, F_NOTIFY, DN_CREATE));
    OK(mkdir("d/e", 0755));
    IO();
    OK(fcntl(fd, F_NOTIFY, DN_CREATE));
    OK(close(fd));
    OK(mkdir("d/g", 0755));
    NONE();
}

TEST(only_the_directory_itself_is_watched) {
    block();
    OK(mkdir("d", 0755));
    OK(mkdir("d/sub", 0755));
    directory(DN_CREATE | DN_MULTISHOT);
    OK(mkdir("d/sub/deeper", 0755));
    OK(mkdir("beside", 0755));
    NONE();
}

/* A watch belongs to the opening and the table of descriptors, not to one descriptor. */
TEST(closing_any_copy_ends_a_watch) {
    block();
    OK(mkdir("d", 0755));
    int fd = directory(DN_CREATE | DN_MULTISHOT), copy = OK(dup(fd));
    OK(mkdir("d/1", 0755));
    TOLD(fd);
    OK(close(copy));
    OK(mkdir("d/2", 0755));
    NONE();
    OK(fcntl(fd, F_NOTIFY, DN_CREATE | DN_MULTISHOT));
    copy = OK(dup(fd));
    OK(dup2(0, copy));
    OK(mkdir("d/3", 0755));
    NONE();
    OK(fcntl(fd, F_NOTIFY, DN_CREATE | DN_MULTISHOT));
    copy = OK(dup(fd));
    OK(syscall(SYS_close_range, copy, copy, 0));
    OK(mkdir("d/4", 0755));
    NONE();
}

TEST(another_table_ends_no_watch) {
    block();
    OK(mkdir("d", 0755));
    int fd = directory(DN_CREATE | DN_MULTISHOT);
    IN_CHILD(OK(close(fd)));
    IN_CHILD(OK(fcntl(fd, F_NOTIFY, 0)));
    OK(mkdir("d/1", 0755));
    TOLD(fd);
    /* One that another table asked for is another one, and ends with that. */
    IN_CHILD(OK(fcntl(fd, F_NOTIFY, DN_DELETE | DN_MULTISHOT)));
    OK(rmdir("d/1"));
    NONE();
    OK(mkdir("d/1", 0755));
    TOLD(fd);
    OK(fcntl(fd, F_NOTIFY, 0));
    OK(mkdir("d/2", 0755));
    NONE();
}

TEST(notify_errors) {
    PUT("f", "x");
    int p[2];
    OK(pipe(p));
    ERR(fcntl(OK(open("f", O_RDONLY)), F_NOTIFY, DN_CREATE), ENOTDIR);
    ERR(fcntl(p[0], F_NOTIFY, DN_CREATE), ENOTDIR);
    ERR(fcntl(-1, F_NOTIFY, DN_CREATE), EBADF);
    ERR(fcntl(OK(open(".", O_PATH)), F_NOTIFY, DN_CREATE), EBADF);
    OK(fcntl(OK(open("f", O_RDONLY)), F_NOTIFY, 0)); /* nothing to stop */
}
