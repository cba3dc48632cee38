/* Resource limits and what happens at each of them. */
#define AREA "limit"
#include "harness.h"
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>

static void limit(int resource, rlim_t soft, rlim_t hard) {
    struct rlimit l = {soft, hard};
    OK(syscall(SYS_prlimit64, 0, resource, &l, NULL));
}


TEST(getrlimit_knows_all_sixteen) {
    for (int i = 0; i < 16; i++) {
        struct rlimit l = {1, 0};
        OK(syscall(SYS_prlimit64, 0, i, NULL, &l));
        CHECK(l.rlim_cur <= l.rlim_max);
    }
}

TEST(limit_call_errors) {
    struct rlimit l = {2, 1}, bad = {5, 4};
    ERR(syscall(SYS_prlimit64, 0, 16, NULL, &l), EINVAL);
    ERR(syscall(SYS_prlimit64, 0, -1, NULL, &l), EINVAL);
    ERR(syscall(SYS_prlimit64, 0, RLIMIT_CORE, &bad, NULL), EINVAL); /* soft over hard */
    ERR(syscall(SYS_prlimit64, 0, RLIMIT_CORE, BAD, NULL), EFAULT);
    ERR(syscall(SYS_prlimit64, 0, RLIMIT_CORE, NULL, BAD), EFAULT);
    ERR(syscall(SYS_prlimit64, 0x3ffffff0, RLIMIT_CORE, NULL, &l), ESRCH);
    ERR(syscall(SYS_getrlimit, RLIMIT_CORE, BAD), EFAULT);
}

TEST(setting_reads_back_and_is_inherited) {
    limit(RLIMIT_CORE, 1000, 2000);
    IN_CHILD({
        struct rlimit l;
        OK(getrlimit(RLIMIT_CORE, &l));
        CHECK(l.rlim_cur == 1000 && l.rlim_max == 2000);
        limit(RLIMIT_CORE, 0, 500);
    });
    struct rlimit l;
    OK(getrlimit(RLIMIT_CORE, &l));
    CHECK(l.rlim_cur == 1000 && l.rlim_max == 2000);
}

TEST(ordinary_user_lowers_but_does_not_raise) {
    limit(RLIMIT_CORE, 1000, 2000);
    IN_CHILD({
        BECOME(1000, 1000);
        limit(RLIMIT_CORE, 2000, 2000); /* soft up to hard */
        limit(RLIMIT_CORE, 100, 1500);
        struct rlimit up = {100, 1600};
        ERR(setrlimit(RLIMIT_CORE, &up), EPERM);
    });
}

TEST(prlimit_on_another_process) {
    GATE(go);
    pid_t pid = FORK();
    if (pid == 0) {
        gate_pass(&go);
        struct rlimit l;
        OK(getrlimit(RLIMIT_CORE, &l));
        _exit(l.rlim_cur == 123 ? 0 : 1);
    }
    struct rlimit l = {123, 456}, old;
    OK(syscall(SYS_prlimit64, pid, RLIMIT_CORE, &l, &old));
    OK(syscall(SYS_prlimit64, pid, RLIMIT_CORE, NULL, &old));
    CHECK_EQ(old.rlim_max, 456);
    IN_CHILD({
        BECOME(1000, 1000);
        ERR(syscall(SYS_prlimit64, pid, RLIMIT_CORE, NULL, &old), EPERM);
    });
    gate_open(&go);
    EXITS(pid, 0);
}

TEST(nofile_is_emfile) {
    limit(RLIMIT_NOFILE, 20, 20);
    int fd, last = -1;
    while ((fd = open("/dev/null", O_RDONLY)) != -1)
        last = fd;
    CHECK_EQ(errno, EMFILE);
    CHECK_EQ(last, 19);
    int p[2];
    ERR(pipe(p), EMFILE);
    ERR(dup(0), EMFILE);
    ERR(dup2(0, 20), EBADF); /* a number beyond the limit (dup(2)) */
    ERR(fcntl(0, F_DUPFD, 20), EINVAL);
    ERR(fcntl(0, F_DUPFD, 10), EMFILE);
    ERR(socket(AF_UNIX, SOCK_STREAM, 0), EMFILE);
    OK(close(10));
    ERR(pipe(p), EMFILE); /* one free is not two */
    CHECK_EQ(OK(dup(0)), 10);
}

TEST(nofile_lowered_below_open_ones) {
    int fd = OK(dup2(2, 50));
    limit(RLIMIT_NOFILE, 10, 100);
    OK(fcntl(fd, F_GETFD)); /* stays */
    OK(close(fd));
    ERR(dup2(2, 50), EBADF);
}

/* What /proc/sys/fs/file-nr says: the files that are open. */
static long open_files(void) {
    char text[128];
    long open = -1, unused = -1, most = -1;
    CHECK(get_file("/proc/sys/fs/file-nr", text, sizeof text) > 0);
    CHECK_EQ(sscanf(text, "%ld\t%ld\t%ld\n", &open, &unused, &most), 3);
    CHECK_EQ(unused, 0);
    return open;
}

/* Each processor counts for itself, up to twice the least batch of `percpu_counter`. */
static long slack(void) { return 64 * sysconf(_SC_NPROCESSORS_CONF); }

TEST(open_files_are_counted) {
    enum { FILES = 900 };
    static int fd[FILES];
    long before = open_files();
    CHECK(before > 0);
    for (int i = 0; i < FILES; i++)
        fd[i] = OK(open("/dev/null", O_RDONLY));
    long during = open_files();
    /* Other programs of this machine open and close files, too. */
    if (during < before + FILES - slack() || during > before + FILES + slack() + 2000)
        FAIL("%d files more are open: %ld after %ld", FILES, during, before);
    /* A second descriptor is no second file. */
    for (int i = 0; i < FILES; i++)
        OK(close(fd[i]));
    for (int i = 0; i < FILES; i++)
        OK(dup(0));
    long after = open_files();
    if (after > during - FILES + slack() + 2000)
        FAIL("%ld files are open, before %d of them were closed %ld", after, FILES, during);
}

/* Opens files until that is refused; returns the error. */
static int open_all(int *opened) {
    while (open("/dev/null", O_RDONLY) != -1)
        ++*opened;
    return errno;
}

static void refused_all_files(int socket_of, struct sockaddr_un *at, socklen_t size) {
    int own = OK(open("/dev/null", O_RDONLY)), opened = 0, pair[2];
    OK(setresuid(NOBODY, NOBODY, NOBODY));
    CHECK_EQ(open_all(&opened), ENFILE);
    if (opened < 1 || opened > 40 + slack())
        FAIL("%d files could be opened", opened);
    ERR(open(".", O_RDONLY | O_DIRECTORY), ENFILE);
    ERR(open(".", O_PATH), ENFILE);
    ERR(pipe(pair), ENFILE);
    ERR(socket(AF_UNIX, SOCK_STREAM, 0), ENFILE);
    ERR(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), ENFILE);
    ERR(accept(socket_of, (struct sockaddr *)at, &size), ENFILE);
    ERR(syscall(SYS_memfd_create, "x", 0), ENFILE);
    ERR(syscall(SYS_epoll_create1, 0), ENFILE);
    ERR(syscall(SYS_eventfd2, 0, 0), ENFILE);
    ERR(syscall(SYS_timerfd_create, CLOCK_MONOTONIC, 0), ENFILE);
    ERR(syscall(SYS_inotify_init1, 0), ENFILE);
    ERR(syscall(SYS_signalfd4, -1, &(uint64_t){0}, 8, 0), ENFILE);
    ERR(syscall(SYS_pidfd_open, getpid(), 0), ENFILE);
    /* The error comes before the file is looked for, so none is made. */
    ERR(open("missing/file", O_RDONLY), ENFILE);
    ERR(open("made", O_WRONLY | O_CREAT, 0600), ENFILE);
    ERR(access("made", F_OK), ENOENT);
    /* A file that is open already needs none: further names of it do. */
    OK(dup(0));
    /* What is given back can be had again. */
    OK(close(own));
    OK(open("/dev/null", O_RDONLY));
}

TEST(no_more_files_are_open_than_file_max) {
    if (geteuid() != 0)
        SKIP("needs root");
    NEEDS_OWN_MACHINE();
    limit(RLIMIT_NOFILE, 8192, 8192);
    OK(chmod(".", 0777));
    struct sockaddr_un at = {.sun_family = AF_UNIX, .sun_path = "socket"};
    int listener = OK(socket(AF_UNIX, SOCK_STREAM, 0)), caller = OK(socket(AF_UNIX, SOCK_STREAM, 0));
    OK(bind(listener, (struct sockaddr *)&at, sizeof at));
    OK(listen(listener, 1));
    OK(connect(caller, (struct sockaddr *)&at, sizeof at));
    OK(dup2(listener, 50));
    OK(close(listener));
    OK(fcntl(50, F_SETFL, O_NONBLOCK));
    GATE(full);
    GATE(end);
    char text[64];
    snprintf(text, sizeof text, "%ld\n", open_files() + 40);
    SET_SYSCTL("/proc/sys/fs/file-max", text);
    pid_t pid = FORK();
    if (pid == 0) {
        refused_all_files(50, &at, sizeof at);
        gate_open(&full);
        gate_pass(&end);
        _exit(0);
    }
    gate_pass(&full);
    /* Root gets files nevertheless, and starts programs. */
    int pair[2];
    for (int i = 0; i < 100; i++)
        OK(open("/dev/null", O_RDONLY));
    OK(pipe(pair));
    OK(accept(50, NULL, NULL));
    pid_t other = FORK();
    if (other == 0) {
        OK(dup2(OK(open("/dev/null", O_WRONLY)), 1));
        execl(hy_self, hy_self, "--list", NULL);
        _exit(9);
    }
    EXITS(other, 0);
    CHECK(open_files() >= atol(text));
    gate_open(&end);
    EXITS(pid, 0);
    SET_SYSCTL("/proc/sys/fs/file-max", "0\n");
    pid = FORK();
    if (pid == 0) {
        int opened = 0;
        OK(setresuid(NOBODY, NOBODY, NOBODY));
        CHECK_EQ(open_all(&opened), ENFILE);
        CHECK(opened <= slack());
        _exit(0);
    }
    EXITS(pid, 0);
}

TEST(nproc_is_eagain) {
    IN_CHILD({
        BECOME(60002, 60002);
        limit(RLIMIT_NPROC, 1, 1);
        ERR(fork(), EAGAIN);
    });
}

TEST(nproc_does_not_bind_root) {
    IN_CHILD({
        limit(RLIMIT_NPROC, 1, 1);
        pid_t pid = FORK();
        if (pid == 0)
            _exit(0);
        EXITS(pid, 0);
    });
}

TEST(address_space_is_enomem) {
    limit(RLIMIT_AS, 64 << 20, 64 << 20);
    ERR(mmap(NULL, 128 << 20, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), ENOMEM);
    char *p = OK(mmap(NULL, 4 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    ERR(mremap(p, 4 << 20, 128 << 20, MREMAP_MAYMOVE), ENOMEM);
    long brk = syscall(SYS_brk, 0);
    CHECK_EQ(syscall(SYS_brk, brk + (128 << 20)), brk);
    OK(munmap(p, 4 << 20));
    OK(mmap(NULL, 4 << 20, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
}

TEST(data_limit_binds_brk) {
    IN_CHILD({
        limit(RLIMIT_DATA, 1 << 20, 1 << 20);
        long brk = syscall(SYS_brk, 0);
        CHECK_EQ(syscall(SYS_brk, brk + (64 << 20)), brk);
        ERR(mmap(NULL, 64 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0),
            ENOMEM); /* since Linux 4.7 */
    });
}

TEST(fsize_raises_sigxfsz_or_is_efbig) {
    limit(RLIMIT_FSIZE, 5000, 5000);
    pid_t pid = FORK();
    if (pid == 0) {
        struct rlimit none = {0, 0};
        setrlimit(RLIMIT_CORE, &none);
        int fd = OK(open("f", O_WRONLY | O_CREAT, 0600));
        char c = 0;
        (void)!pwrite(fd, &c, 1, 5000);
        _exit(0);
    }
    KILLED(pid, SIGXFSZ);
    signal(SIGXFSZ, SIG_IGN);
    int fd = OK(open("f", O_WRONLY | O_CREAT, 0600));
    static char big[8000];
    CHECK_EQ(OK(write(fd, big, sizeof big)), 5000); /* up to the limit first */
    ERR(write(fd, big, 1), EFBIG);
    ERR(pwrite(fd, big, 1, 100000), EFBIG);
    CHECK_EQ(OK(pwrite(fd, big, 10, 100)), 10);
    ERR(ftruncate(fd, 6000), EFBIG);
    ERR(truncate("f", 6000), EFBIG);
    OK(ftruncate(fd, 4000));
    int p[2];
    OK(pipe(p));
    CHECK_EQ(OK(write(p[1], big, 8000)), 8000); /* files only */
}

static volatile sig_atomic_t too_large;
static void on_xfsz(int sig UNUSED) { too_large++; }

/* The call is refused at the limit, and says so by the signal as well. */
#define TOO_LARGE(call)                                                                            \
    do {                                                                                           \
        too_large = 0;                                                                             \
        ERR(call, EFBIG);                                                                          \
        CHECK_EQ(too_large, 1);                                                                    \
    } while (0)

TEST(fsize_binds_every_call_that_makes_a_file_larger) {
    static char data[8192];
    PUT_BYTES("from", data, sizeof data);
    int from = OK(open("from", O_RDONLY));
    signal(SIGXFSZ, on_xfsz);
    limit(RLIMIT_FSIZE, 5000, RLIM_INFINITY);
    int fd = OK(open("f", O_RDWR | O_CREAT, 0600)), p[2];
    struct iovec piece = {data, sizeof data};
    loff_t at;
    OK(pipe(p));
    for (int round = 0; round < 7; round++) {
        OK(ftruncate(fd, 0));
        OK(lseek(fd, 0, SEEK_SET));
        OK(lseek(from, 0, SEEK_SET));
        too_large = 0;
        ssize_t count = 0;
        switch (round) {
        case 0: count = OK(write(fd, data, sizeof data)); break;
        case 1: count = OK(writev(fd, &piece, 1)); break;
        case 2: count = OK(pwrite(fd, data, sizeof data, 0)); break;
        case 3: count = OK(pwritev(fd, &piece, 1, 0)); break;
        case 4: count = OK(sendfile(fd, from, NULL, sizeof data)); break;
        case 5: at = 0; count = OK(copy_file_range(from, NULL, fd, &at, sizeof data, 0)); break;
        case 6:
            OK(write(p[1], data, sizeof data));
            count = OK(splice(p[0], NULL, fd, NULL, sizeof data, 0));
            break;
        }
        if (count != 5000)
            FAIL("way %d: %zd bytes", round, count);
        struct stat st;
        OK(fstat(fd, &st));
        CHECK_EQ(st.st_size, 5000);
    }
    OK(lseek(fd, 5000, SEEK_SET));
    OK(lseek(from, 0, SEEK_SET));
    TOO_LARGE(write(fd, data, 1));
    TOO_LARGE(writev(fd, &piece, 1));
    TOO_LARGE(pwrite(fd, data, 1, 5000));
    TOO_LARGE(sendfile(fd, from, NULL, 1));
    at = 6000;
    TOO_LARGE(copy_file_range(from, NULL, fd, &at, 1, 0));
    TOO_LARGE(splice(p[0], NULL, fd, NULL, 1, 0));
    TOO_LARGE(ftruncate(fd, 5001));
    TOO_LARGE(truncate("f", 5001));
    TOO_LARGE(fallocate(fd, 0, 0, 5001));
    TOO_LARGE(fallocate(fd, 0, 4999, 2));
    OK(fallocate(fd, 0, 0, 5000));
    OK(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 4096, 8192)); /* makes nothing */
    int end = OK(open("f", O_WRONLY | O_APPEND));
    TOO_LARGE(write(end, data, 1));
    TOO_LARGE(pwrite(end, data, 1, 0)); /* it appends all the same */
    too_large = 0;
    CHECK_EQ(OK(write(fd, data, 0)), 0); /* nothing is not too much */
    CHECK_EQ(too_large, 0);
    /* A file that is too large already may be changed and made smaller. */
    limit(RLIMIT_FSIZE, RLIM_INFINITY, RLIM_INFINITY);
    OK(ftruncate(fd, 10000));
    limit(RLIMIT_FSIZE, 5000, RLIM_INFINITY);
    OK(ftruncate(fd, 8000));
    OK(fallocate(fd, 0, 0, 8000));
    OK(pwrite(fd, data, 10, 100));
    CHECK_EQ(too_large, 0);
}

TEST(cpu_time_raises_sigxcpu_then_kills) {
    pid_t pid = FORK();
    if (pid == 0) {
        limit(RLIMIT_CORE, 0, 0);
        limit(RLIMIT_CPU, 1, 2);
        for (volatile unsigned i = 0;; i++)
            ;
    }
    KILLED(pid, SIGXCPU);
    pid = FORK();
    if (pid == 0) {
        limit(RLIMIT_CORE, 0, 0);
        limit(RLIMIT_CPU, 1, 2);
        signal(SIGXCPU, SIG_IGN);
        for (volatile unsigned i = 0;; i++)
            ;
    }
    KILLED(pid, SIGKILL); /* at the hard limit */
}

TEST(sleep_uses_no_cpu_time) {
    pid_t pid = FORK();
    if (pid == 0) {
        limit(RLIMIT_CPU, 1, 1);
        msleep(1500);
        _exit(0);
    }
    EXITS(pid, 0);
}

TEST(nice_limit_and_priority) {
    IN_CHILD({
        CHECK_EQ(OK(nice(5)), 5);
        errno = 0;
        CHECK_EQ(getpriority(PRIO_PROCESS, 0), 5);
        CHECK_EQ(OK(nice(100)), 19); /* clamped */
        BECOME(1000, 1000);
        OK(setpriority(PRIO_PROCESS, 0, 19));
        ERR(setpriority(PRIO_PROCESS, 0, 10), EACCES);
        ERR(nice(-1), EPERM);
    });
    ERR(setpriority(99, 0, 0), EINVAL);
    ERR(getpriority(PRIO_PROCESS, 0x3ffffff0), ESRCH);
    ERR(setpriority(PRIO_USER, 60009, 5), ESRCH);
}

TEST(stack_limit_is_seen_by_exec) {
    /* The new program's stack may grow only so far. */
    pid_t pid = FORK();
    if (pid == 0) {
        limit(RLIMIT_CORE, 0, 0);
        limit(RLIMIT_STACK, 256 << 10, 256 << 10);
        execl(hy_self, hy_self, "--helper", "use_stack", "1000000", (char *)NULL);
        _exit(99);
    }
    KILLED(pid, SIGSEGV);
    pid = FORK();
    if (pid == 0) {
        limit(RLIMIT_STACK, 4 << 20, 4 << 20);
        execl(hy_self, hy_self, "--helper", "use_stack", "1000000", (char *)NULL);
        _exit(99);
    }
    EXITS(pid, 0);
}
static __attribute__((noinline)) int use(long left) {
    volatile char frame[1024];
    frame[0] = 1;
    return left <= 0 ? 0 : use(left - 1024) + frame[0] - 1;
}
HELPER(use_stack) { return use(atol(argv[1])); }

TEST(memlock_limit) {
    char *p = OK(mmap(NULL, 64 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    IN_CHILD({
        BECOME(1000, 1000);
        limit(RLIMIT_MEMLOCK, 8 * PAGE, 8 * PAGE);
        OK(mlock(p, 4 * PAGE));
        ERR(mlock(p, 64 * PAGE), ENOMEM);
        limit(RLIMIT_MEMLOCK, 0, 0);
        ERR(mlock(p + 32 * PAGE, PAGE), EPERM);
    });
}

/* Also of somebody who was root, and had no limit, a moment ago. */
TEST(memlock_binds_every_call_that_locks) {
    const int rw = PROT_READ | PROT_WRITE, private = MAP_PRIVATE | MAP_ANONYMOUS;
    IN_CHILD({
        char *p = OK(mmap(NULL, 64 * PAGE, rw, private, -1, 0));
        limit(RLIMIT_MEMLOCK, 8 * PAGE, 8 * PAGE);
        OK(mlock(p, 32 * PAGE)); /* CAP_IPC_LOCK */
        OK(munlock(p, 32 * PAGE));
        BECOME(1000, 1000);
        OK(mlock(p, 8 * PAGE));
        OK(mlock(p, 8 * PAGE)); /* what is locked does not count twice */
        ERR(mlock(p, 9 * PAGE), ENOMEM);
        ERR(mlock(p + 8 * PAGE, 1), ENOMEM);
        ERR(syscall(SYS_mlock2, p + 8 * PAGE, PAGE, 1 /* MLOCK_ONFAULT */), ENOMEM);
        ERR(mmap(NULL, PAGE, rw, private | MAP_LOCKED, -1, 0), EAGAIN);
        ERR(mremap(p, 8 * PAGE, 9 * PAGE, MREMAP_MAYMOVE), EAGAIN);
        ERR(mlockall(MCL_CURRENT), ENOMEM);
        OK(munlock(p, 4 * PAGE));
        char *q = OK(mmap(NULL, 4 * PAGE, rw, private | MAP_LOCKED, -1, 0));
        OK(munmap(q, 4 * PAGE));
        OK(munlock(p, 8 * PAGE));
        /* Everything to come, too. */
        OK(mlockall(MCL_FUTURE));
        ERR(mmap(NULL, 16 * PAGE, rw, private, -1, 0), EAGAIN);
        q = OK(mmap(NULL, 2 * PAGE, rw, private, -1, 0));
        long end = syscall(SYS_brk, 0);
        CHECK_EQ(syscall(SYS_brk, end + 64 * (long)PAGE), end);
        OK(munlockall());
        OK(mmap(NULL, 16 * PAGE, rw, private, -1, 0));
        limit(RLIMIT_MEMLOCK, 0, 0);
        ERR(mlock(p, PAGE), EPERM);
        ERR(mlockall(MCL_FUTURE), EPERM);
        ERR(syscall(SYS_mmap, NULL, PAGE, rw, private | MAP_LOCKED, -1, 0), EPERM);
        OK(munlock(p, PAGE));
    });
    IN_CHILD({
        limit(RLIMIT_MEMLOCK, 0, 0);
        char *p = OK(mmap(NULL, 16 * PAGE, rw, private | MAP_LOCKED, -1, 0));
        OK(mlock(p, 16 * PAGE)); /* root with a limit of nothing */
        OK(mlockall(MCL_CURRENT | MCL_FUTURE));
        OK(munlockall());
    });
}
