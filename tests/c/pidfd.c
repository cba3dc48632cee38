/* What the descriptor of a process is good for: taking a descriptor of it, pidfd_getfd(2). */
#define AREA "pidfd"
#include "harness.h"
#include <sys/prctl.h>
#include <sys/uio.h>

#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif
#ifndef SYS_pidfd_getfd
#define SYS_pidfd_getfd 438
#endif
#ifndef O_PATH
#define O_PATH 010000000
#endif

static int pidfd_open(pid_t pid) { return OK((int)syscall(SYS_pidfd_open, pid, 0)); }
static long getfd(int pidfd, int fd, unsigned flags) {
    return syscall(SYS_pidfd_getfd, pidfd, fd, flags);
}

/* A child that has `file` as descriptor 40 and a file of its own as 41, and waits. */
static pid_t start_holder(int file) {
    GATE(ready);
    pid_t pid = FORK();
    if (pid == 0) {
        OK(dup2(file, 40));
        OK(dup2(OK(open("own", O_RDWR | O_CREAT, 0600)), 41));
        CHECK_EQ(OK(write(41, "0123456789", 10)), 10);
        OK(dup2(OK(open(".", O_PATH)), 42));
        gate_open_and_rest(&ready);
    }
    gate_pass(&ready);
    return pid;
}

/* A child that others of its user may look into or not, and waits. */
static pid_t start_other(bool dumpable) {
    GATE(ready);
    pid_t pid = FORK();
    if (pid == 0) {
        OK(prctl(PR_SET_DUMPABLE, dumpable));
        gate_open_and_rest(&ready);
    }
    gate_pass(&ready);
    return pid;
}

TEST(a_taken_descriptor_is_the_same_open_file) {
    pid_t pid = start_holder(OK(open("/dev/null", O_RDONLY)));
    int pidfd = pidfd_open(pid);
    int fd = (int)OK(getfd(pidfd, 41, 0));
    char text[8] = {0};
    CHECK_EQ(lseek(fd, 0, SEEK_CUR), 10);
    CHECK_EQ(lseek(fd, 3, SEEK_SET), 3);
    int again = (int)OK(getfd(pidfd, 41, 0));
    CHECK(again != fd);
    CHECK_EQ(lseek(again, 0, SEEK_CUR), 3);
    CHECK_EQ(OK(read(again, text, 4)), 4);
    CHECK_STR(text, "3456");
    CHECK_EQ(lseek(fd, 0, SEEK_CUR), 7);
    /* It stays when its first owner is gone. */
    end_by_kill(pid);
    CHECK_EQ(OK(read(fd, text, 3)), 3);
    CHECK_EQ(memcmp(text, "789", 3), 0);
}

TEST(it_closes_at_exec_and_takes_the_lowest_number) {
    int null = OK(open("/dev/null", O_RDONLY));
    pid_t pid = start_holder(null);
    int pidfd = pidfd_open(pid), hole = OK(dup(null));
    OK(close(hole));
    int fd = (int)OK(getfd(pidfd, 40, 0));
    CHECK_EQ(fd, hole);
    CHECK_EQ(OK(fcntl(fd, F_GETFD)), FD_CLOEXEC);
    CHECK_EQ(OK(fcntl(null, F_GETFD)), 0);
    end_by_kill(pid);
}

TEST(a_pipe_and_a_path_are_taken_too) {
    int ends[2];
    OK(pipe(ends));
    pid_t pid = start_holder(ends[1]);
    OK(close(ends[1]));
    int pidfd = pidfd_open(pid), end = (int)OK(getfd(pidfd, 40, 0)), path;
    CHECK_EQ(OK(write(end, "x", 1)), 1);
    path = (int)OK(getfd(pidfd, 42, 0));
    CHECK(OK(fcntl(path, F_GETFL)) & O_PATH);
    ERR(read(path, ends, 1), EBADF);
    end_by_kill(pid);
    /* The pipe has a writer as long as this one holds its end. */
    char c;
    CHECK_EQ(OK(read(ends[0], &c, 1)), 1);
    OK(fcntl(ends[0], F_SETFL, O_NONBLOCK));
    ERR(read(ends[0], &c, 1), EAGAIN);
    OK(close(end));
    CHECK_EQ(OK(read(ends[0], &c, 1)), 0);
}

TEST(errors) {
    int null = OK(open("/dev/null", O_RDONLY)), self = pidfd_open(getpid());
    CHECK(OK(getfd(self, null, 0)) > null);
    ERR(getfd(self, null, 1), EINVAL);
    ERR(getfd(-1, null, 0x80000000), EINVAL);
    ERR(getfd(-1, null, 0), EBADF);
    ERR(getfd(999, null, 0), EBADF);
    ERR(getfd(null, null, 0), EBADF);
    ERR(getfd(OK(open("/proc/self", O_RDONLY | O_DIRECTORY)), null, 0), EBADF);
    ERR(getfd(self, -1, 0), EBADF);
    ERR(getfd(self, 999, 0), EBADF);
    ERR(getfd(self, INT_MAX, 0), EBADF);
    struct rlimit limit = {0, 0};
    IN_CHILD({
        limit.rlim_cur = limit.rlim_max = 20;
        int holder = pidfd_open(getppid());
        while (dup(null) != -1 || errno != EMFILE) {
            OK(setrlimit(RLIMIT_NOFILE, &limit));
        }
        ERR(getfd(holder, null, 0), EMFILE);
    });
}

TEST(a_process_that_ended_has_none) {
    pid_t pid = FORK();
    if (pid == 0)
        _exit(0);
    int pidfd = pidfd_open(pid);
    siginfo_t info;
    OK(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT));
    /* A zombie: EBADF in 6.1, ESRCH since 6.9 (kernel/pid.c). */
    ERR2(getfd(pidfd, 0, 0), EBADF, ESRCH);
    EXITS(pid, 0);
    ERR(getfd(pidfd, 0, 0), ESRCH);
}

TEST(rights_are_those_of_a_tracer) {
    if (geteuid() != 0)
        SKIP("not root");
    int null = OK(open("/dev/null", O_RDONLY));
    OK(fchmodat(AT_FDCWD, ".", 0777, 0));
    pid_t pid = start_holder(null);
    int pidfd = pidfd_open(pid);
    IN_CHILD({
        BECOME(NOBODY, NOBODY);
        ERR(getfd(pidfd, 40, 0), EPERM);
        /* The right is asked before the descriptor is looked at. */
        ERR(getfd(pidfd, 999, 0), EPERM);
        /* One's own, whatever was changed. */
        OK(getfd(pidfd_open(getpid()), 0, 0));
        /* Another one of the same user: only if it is dumpable. */
        pid_t other = start_other(true);
        int theirs = pidfd_open(other);
        OK(getfd(theirs, 0, 0));
        end_by_kill(other);
        other = start_other(false);
        ERR(getfd(pidfd_open(other), 0, 0), EPERM);
        end_by_kill(other);
    });
    end_by_kill(pid);
}

static void *hold_on(void *arg) {
    gate_open_and_rest(arg);
}

TEST(descriptors_are_those_of_the_first_thread) {
    /* Its first thread has ended, another one lives (`__pidfd_fget`: the task of the number). */
    GATE(ready);
    pid_t pid = FORK();
    if (pid == 0) {
        pthread_t other;
        ZERO(pthread_create(&other, NULL, hold_on, &ready));
        syscall(SYS_exit, 0);
    }
    gate_pass(&ready);
    int pidfd = pidfd_open(pid), fd;
    EVENTUALLY((fd = (int)getfd(pidfd, 0, 0)) == -1 || close(fd) != 0);
    ERR2(getfd(pidfd, 0, 0), EBADF, ESRCH);
    end_by_kill(pid);
}

/* ---- process_madvise(2) --------------------------------------------------------------------- */

#ifndef SYS_process_madvise
#define SYS_process_madvise 440
#endif
enum { WILLNEED_ADVICE = 3, DONTNEED_ADVICE = 4, COLD_ADVICE = 20, PAGEOUT_ADVICE = 21 };

static long advise(int pidfd, const void *vector, size_t count, int advice, unsigned flags) {
    return syscall(SYS_process_madvise, pidfd, vector, count, advice, flags);
}

static char *pages(size_t count) {
    char *at = OK(mmap(NULL, count * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
                       0));
    memset(at, 'x', count * PAGE);
    return at;
}

TEST(advice_on_a_child_changes_no_byte) {
    if (geteuid() != 0)
        SKIP("not root");
    char *at = pages(8);
    int file = OK(open("file", O_RDWR | O_CREAT, 0600));
    OK(ftruncate(file, 4 * (off_t)PAGE));
    char *mapped = OK(mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0));
    strcpy(mapped, "written");
    GATE(ready);
    GATE(checked);
    pid_t pid = FORK();
    if (pid == 0) {
        gate_open(&ready);
        gate_pass(&checked);
        for (size_t i = 0; i < 8 * PAGE; i++)
            CHECK_EQ(at[i], 'x');
        CHECK_STR(mapped, "written");
        _exit(0);
    }
    gate_pass(&ready);
    int pidfd = pidfd_open(pid);
    struct iovec ranges[] = {{at, 2 * PAGE}, {at + 4 * PAGE, 1}, {NULL, 0}, {mapped, 4 * PAGE}};
    int advice[] = {COLD_ADVICE, PAGEOUT_ADVICE, WILLNEED_ADVICE};
    for (int i = 0; i < 3; i++) {
        CHECK_EQ(OK(advise(pidfd, ranges, 4, advice[i], 0)), (long)(6 * PAGE + 1));
        CHECK_EQ(OK(advise(pidfd, ranges, 0, advice[i], 0)), 0);
        CHECK_EQ(OK(advise(pidfd_open(getpid()), ranges, 4, advice[i], 0)),
                 (long)(6 * PAGE + 1));
    }
    gate_open(&checked);
    EXITS(pid, 0);
}

TEST(advice_ends_at_the_first_range_that_is_wrong) {
    if (geteuid() != 0)
        SKIP("not root");
    char *at = pages(4);
    pid_t pid = start_holder(OK(open("/dev/null", O_RDONLY)));
    int pidfd = pidfd_open(pid);
    struct iovec ranges[] = {{at, PAGE}, {at + 1, PAGE}, {at + 2 * PAGE, PAGE}};
    CHECK_EQ(OK(advise(pidfd, ranges, 3, COLD_ADVICE, 0)), (long)PAGE);
    ERR(advise(pidfd, ranges + 1, 2, COLD_ADVICE, 0), EINVAL);
    struct iovec gap[] = {{at, PAGE}, {BAD, PAGE}};
    CHECK_EQ(OK(advise(pidfd, gap, 2, COLD_ADVICE, 0)), (long)PAGE);
    ERR(advise(pidfd, gap + 1, 1, COLD_ADVICE, 0), ENOMEM);
    /* Memory of the other process, not of this one. */
    OK(munmap(at, 4 * PAGE));
    CHECK_EQ(OK(advise(pidfd, ranges, 1, PAGEOUT_ADVICE, 0)), (long)PAGE);
    end_by_kill(pid);
}

TEST(advice_errors) {
    if (geteuid() != 0)
        SKIP("not root");
    char *at = pages(2);
    pid_t pid = start_holder(OK(open("/dev/null", O_RDONLY)));
    int pidfd = pidfd_open(pid), null = OK(open("/dev/null", O_RDONLY));
    struct iovec range = {at, PAGE}, bad = {(void *)KERNEL_ADDRESS, PAGE};
    struct iovec long_one = {at, SIZE_MAX};
    ERR(advise(pidfd, &range, 1, COLD_ADVICE, 1), EINVAL);
    ERR(advise(-1, &range, 1, COLD_ADVICE, 0), EBADF);
    ERR(advise(null, &range, 1, COLD_ADVICE, 0), EBADF);
    ERR(advise(pidfd, BAD, 1, COLD_ADVICE, 0), EFAULT);
    ERR(advise(pidfd, &bad, 1, COLD_ADVICE, 0), EFAULT);
    ERR(advise(pidfd, &long_one, 1, COLD_ADVICE, 0), EINVAL);
    ERR(advise(pidfd, &range, 1025, COLD_ADVICE, 0), EINVAL);
    /* The vector is read before the descriptor is looked at. */
    ERR(advise(-1, BAD, 1, COLD_ADVICE, 0), EFAULT);
    ERR(advise(pidfd, &range, 1, DONTNEED_ADVICE, 0), EINVAL);
    ERR(advise(pidfd, &range, 1, 0, 0), EINVAL);
    ERR(advise(pidfd, &range, 1, 99, 0), EINVAL);
    IN_CHILD({
        BECOME(NOBODY, NOBODY);
        ERR(advise(pidfd, &range, 1, COLD_ADVICE, 0), EACCES);
        /* Another one of the same user: the right to look at it is not enough. */
        pid_t other = start_other(true);
        ERR(advise(pidfd_open(other), &range, 1, COLD_ADVICE, 0), EPERM);
        end_by_kill(other);
    });
    end_by_kill(pid);
    ERR(advise(pidfd, &range, 1, COLD_ADVICE, 0), ESRCH);
    if ((pid = FORK()) == 0)
        _exit(0);
    pidfd = pidfd_open(pid);
    siginfo_t info;
    OK(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT));
    ERR(advise(pidfd, &range, 1, COLD_ADVICE, 0), ESRCH);
    EXITS(pid, 0);
}
