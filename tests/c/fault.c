/* Bad pointers: many calls, one rule. User memory is an allegation; the answer is EFAULT. */
#define AREA "fault"
#include "harness.h"
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>

/* Every kind of address that user code cannot write, one after the other. */
static void *bad_kinds(int i) {
    static char *read_only;
    switch (i) {
    case 0:
        return BAD;
    case 1:
        return KERNEL_ADDRESS;
    case 2:
        return (void *)0x8000000000000000UL; /* not canonical */
    case 3:
        return (void *)0x7ffffffff000UL; /* the last page, kept free */
    case 4:
        return (void *)8; /* the zero page */
    case 5:
        if (!read_only)
            read_only = OK(mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
        return read_only;
    default:
        return NULL;
    }
}
enum { WRITES = 6, READS = 5 };

#define EACH(kinds, statement)                                                                     \
    for (int kind = 0; kind < (kinds); kind++) {                                                   \
        void *bad = bad_kinds(kind);                                                               \
        statement;                                                                                 \
    }

TEST(read_into_bad_memory) {
    PUT("f", "contents");
    int fd = OK(open("f", O_RDONLY)), zero = OK(open("/dev/zero", O_RDONLY)), p[2];
    OK(pipe(p));
    OK(write(p[1], "x", 1));
    EACH(WRITES, {
        ERR(syscall(SYS_read, fd, bad, 8L), EFAULT);
        ERR(syscall(SYS_pread64, fd, bad, 8L, 0L), EFAULT);
        ERR(syscall(SYS_read, zero, bad, 8L), EFAULT);
        ERR(syscall(SYS_read, p[0], bad, 1L), EFAULT);
    });
    char c;
    CHECK_EQ(OK(read(p[0], &c, 1)), 1);
}

TEST(write_from_bad_memory) {
    int fd = OK(open("f", O_RDWR | O_CREAT, 0600)), p[2], s[2];
    OK(pipe(p));
    OK(socketpair(AF_UNIX, SOCK_STREAM, 0, s));
    EACH(READS, {
        ERR(syscall(SYS_write, fd, bad, 8L), EFAULT);
        ERR(syscall(SYS_pwrite64, fd, bad, 8L, 0L), EFAULT);
        ERR(syscall(SYS_write, p[1], bad, 8L), EFAULT);
        ERR(syscall(SYS_sendto, s[0], bad, 8L, 0L, NULL, 0L), EFAULT);
    });
    struct stat st;
    OK(fstat(fd, &st));
    CHECK_EQ(st.st_size, 0);
}

TEST(paths_in_bad_memory) {
    struct stat st;
    EACH(READS, {
        ERR(syscall(SYS_open, bad, O_RDONLY), EFAULT);
        ERR(syscall(SYS_openat, AT_FDCWD, bad, O_CREAT, 0600), EFAULT);
        ERR(syscall(SYS_stat, bad, &st), EFAULT);
        ERR(syscall(SYS_access, bad, 0), EFAULT);
        ERR(syscall(SYS_mkdir, bad, 0700), EFAULT);
        ERR(syscall(SYS_rmdir, bad), EFAULT);
        ERR(syscall(SYS_unlink, bad), EFAULT);
        ERR(syscall(SYS_link, bad, "x"), EFAULT);
        ERR(syscall(SYS_symlink, "x", bad), EFAULT);
        ERR(syscall(SYS_rename, bad, "x"), EFAULT);
        ERR(syscall(SYS_chmod, bad, 0600), EFAULT);
        ERR(syscall(SYS_chown, bad, 0, 0), EFAULT);
        ERR(syscall(SYS_truncate, bad, 0), EFAULT);
        ERR(syscall(SYS_chdir, bad), EFAULT);
        ERR(syscall(SYS_chroot, bad), EFAULT);
        ERR(syscall(SYS_readlink, bad, &st, 10L), EFAULT);
        ERR(syscall(SYS_mknod, bad, S_IFREG, 0), EFAULT);
        ERR(syscall(SYS_execve, bad, NULL, NULL), EFAULT);
    });
}

TEST(results_to_bad_memory) {
    EACH(WRITES, {
        ERR(syscall(SYS_stat, "/", bad), EFAULT);
        ERR(syscall(SYS_fstat, 0, bad), EFAULT);
        ERR(syscall(SYS_newfstatat, AT_FDCWD, "/", bad, 0), EFAULT);
        ERR(syscall(332, AT_FDCWD, "/", 0, 0x7ff, bad), EFAULT);
        ERR(syscall(SYS_statfs, "/", bad), EFAULT);
        ERR(syscall(SYS_getcwd, bad, 4096L), EFAULT);
        ERR(syscall(SYS_uname, bad), EFAULT);
        ERR(syscall(SYS_sysinfo, bad), EFAULT);
        ERR(syscall(SYS_getrusage, RUSAGE_SELF, bad), EFAULT);
        ERR(syscall(SYS_times, bad), EFAULT);
        ERR(syscall(SYS_clock_gettime, CLOCK_REALTIME, bad), EFAULT);
        ERR(syscall(SYS_getitimer, 0, bad), EFAULT);
        ERR(syscall(SYS_getresuid, bad, bad, bad), EFAULT);
        ERR(syscall(SYS_getrandom, bad, 8L, 0), EFAULT);
        ERR(syscall(SYS_sched_getaffinity, 0, 128L, bad), EFAULT);
        ERR(syscall(SYS_getrlimit, RLIMIT_NOFILE, bad), EFAULT);
        ERR(syscall(SYS_prlimit64, 0, RLIMIT_NOFILE, NULL, bad), EFAULT);
        ERR(syscall(SYS_pipe, bad), EFAULT);
        ERR(syscall(SYS_rt_sigpending, bad, 8L), EFAULT);
        ERR(syscall(SYS_rt_sigprocmask, 0, NULL, bad, 8L), EFAULT);
        ERR(syscall(SYS_rt_sigaction, SIGUSR1, NULL, bad, 8L), EFAULT);
        ERR(syscall(SYS_sigaltstack, NULL, bad), EFAULT);
        ERR(syscall(SYS_gettimeofday, bad, NULL), EFAULT);
    });
}

TEST(arguments_from_bad_memory) {
    int p[2], ep = OK(epoll_create1(0)), s = OK(socket(AF_UNIX, SOCK_STREAM, 0));
    OK(pipe(p));
    EACH(READS, {
        ERR(syscall(SYS_nanosleep, bad, NULL), EFAULT);
        ERR(syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, bad, NULL), EFAULT);
        ERR(syscall(SYS_rt_sigprocmask, SIG_BLOCK, bad, NULL, 8L), EFAULT);
        ERR(syscall(SYS_rt_sigaction, SIGUSR1, bad, NULL, 8L), EFAULT);
        ERR(syscall(SYS_rt_sigsuspend, bad, 8L), EFAULT);
        ERR(syscall(SYS_rt_sigtimedwait, bad, NULL, NULL, 8L), EFAULT);
        ERR(syscall(SYS_sigaltstack, bad, NULL), EFAULT);
        ERR(syscall(SYS_poll, bad, 1L, 0), EFAULT);
        ERR(syscall(SYS_select, 8, bad, NULL, NULL, NULL), EFAULT);
        ERR(syscall(SYS_epoll_ctl, ep, EPOLL_CTL_ADD, p[0], bad), EFAULT);
        ERR(syscall(SYS_bind, s, bad, sizeof(struct sockaddr_un)), EFAULT);
        ERR(syscall(SYS_connect, s, bad, sizeof(struct sockaddr_un)), EFAULT);
        ERR(syscall(SYS_readv, p[0], bad, 1L), EFAULT);
        ERR(syscall(SYS_writev, p[1], bad, 1L), EFAULT);
        ERR(syscall(SYS_sendmsg, s, bad, 0), EFAULT);
        ERR(syscall(SYS_setrlimit, RLIMIT_NOFILE, bad), EFAULT);
        ERR(syscall(SYS_sched_setaffinity, 0, 128L, bad), EFAULT);
        ERR(syscall(SYS_setgroups, 4, bad), EFAULT);
        ERR(syscall(SYS_setitimer, ITIMER_REAL, bad, NULL), EFAULT);
        ERR(syscall(SYS_utimensat, AT_FDCWD, ".", bad, 0), EFAULT);
        ERR(syscall(SYS_prctl, 15, bad, 0, 0, 0), EFAULT);
        ERR(syscall(SYS_futex, bad, 0, 0, NULL, NULL, 0), EFAULT);
        ERR(syscall(SYS_memfd_create, bad, 0), EFAULT);
        ERR(syscall(SYS_timer_create, CLOCK_MONOTONIC, bad, bad), EFAULT);
    });
}

TEST(accept_and_names_with_bad_memory) {
    int s[2];
    OK(socketpair(AF_UNIX, SOCK_STREAM, 0, s));
    socklen_t len = 100;
    char name[128];
    EACH(WRITES, {
        len = 100;
        ERR(syscall(SYS_getsockname, s[0], bad, &len), EFAULT);
        ERR(syscall(SYS_getsockname, s[0], name, bad), EFAULT);
        ERR(syscall(SYS_getpeername, s[0], bad, &len), EFAULT);
        ERR(syscall(SYS_getsockopt, s[0], SOL_SOCKET, SO_TYPE, bad, &len), EFAULT);
        ERR(syscall(SYS_getsockopt, s[0], SOL_SOCKET, SO_TYPE, name, bad), EFAULT);
    });
    len = (socklen_t)-1;
    ERR(syscall(SYS_getsockname, s[0], name, &len), EINVAL);
}

TEST(lengths_that_wrap_are_caught) {
    PUT("f", "x");
    int fd = OK(open("f", O_RDWR));
    char c;
    ERR2(syscall(SYS_read, fd, (void *)-8L, 16L), EFAULT, EINVAL);
    ERR2(syscall(SYS_read, fd, &c, -1L), EFAULT, EINVAL);
    ERR2(syscall(SYS_write, fd, &c, LONG_MIN), EFAULT, EINVAL);
    ERR2(syscall(SYS_getrandom, KERNEL_ADDRESS, SIZE_MAX, 0), EFAULT, EINVAL);
    ERR(syscall(SYS_mincore, 0, SIZE_MAX / 2 + 1, &c), ENOMEM);
}

TEST(pointer_pairs_straddling_pages) {
    /* A structure half on a good page: nothing may be believed of it. */
    char *page = OK(mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    OK(munmap(page + PAGE, PAGE));
    ERR(syscall(SYS_nanosleep, page + PAGE - 8, NULL), EFAULT);
    ERR(syscall(SYS_uname, page + PAGE - 100), EFAULT);
    ERR(syscall(SYS_pipe, page + PAGE - 4), EFAULT);
    ERR(syscall(SYS_stat, "/", page + PAGE - 50), EFAULT);
    struct iovec *v = (struct iovec *)(page + PAGE - 16);
    v->iov_base = page, v->iov_len = 1;
    int p[2];
    OK(pipe(p));
    ERR(syscall(SYS_writev, p[1], v, 2L), EFAULT);
    CHECK_EQ(OK(syscall(SYS_writev, p[1], v, 1L)), 1);
}

static char *volatile shaky;
static _Atomic bool shaking;
static void *shake(void *arg UNUSED) {
    while (atomic_load(&shaking)) {
        OK(mprotect(shaky, PAGE, PROT_NONE));
        OK(madvise(shaky, PAGE, MADV_DONTNEED));
        OK(mprotect(shaky, PAGE, PROT_READ | PROT_WRITE));
    }
    return NULL;
}

TEST(memory_taken_away_during_calls) {
    /* The page comes and goes under the calls of another thread: success or EFAULT, never more. */
    shaky = OK(mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    int zero = OK(open("/dev/zero", O_RDONLY)), null = OK(open("f", O_WRONLY | O_CREAT, 0600));
    atomic_store(&shaking, true);
    pthread_t t;
    ZERO(pthread_create(&t, NULL, shake, NULL));
    for (int i = 0; i < 3000; i++) {
        ssize_t n = read(zero, shaky, PAGE);
        CHECK(n > 0 || (n == -1 && errno == EFAULT));
        n = pwrite(null, shaky, PAGE, 0);
        CHECK(n > 0 || (n == -1 && errno == EFAULT));
        CHECK(syscall(SYS_stat, "/", shaky) == 0 || errno == EFAULT);
    }
    atomic_store(&shaking, false);
    ZERO(pthread_join(t, NULL));
}

TEST(write_of_a_mapping_past_its_end_is_efault) {
    /* The kernel's own access to a page beyond the end of the file: no SIGBUS, EFAULT. */
    PUT("f", "short");
    int fd = OK(open("f", O_RDONLY));
    char *p = OK(mmap(NULL, 2 * PAGE, PROT_READ, MAP_PRIVATE, fd, 0));
    int out = OK(open("g", O_WRONLY | O_CREAT, 0600));
    ERR(write(out, p + PAGE, 10), EFAULT);
    CHECK_EQ(OK(write(out, p + PAGE - 10, 20)), 10);
}

TEST(prot_none_memory_is_efault) {
    char *p = OK(mmap(NULL, PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    int fds[2];
    OK(pipe(fds));
    ERR(write(fds[1], p, 1), EFAULT);
    OK(write(fds[1], "x", 1));
    ERR(read(fds[0], p, 1), EFAULT);
    OK(mprotect(p, PAGE, PROT_READ | PROT_WRITE));
    CHECK_EQ(OK(read(fds[0], p, 1)), 1);
}
