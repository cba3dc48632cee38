/* Which parts two processes share: kcmp(2). */
#define AREA "kcmp"
#include "harness.h"
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/sem.h>

enum { FILE_, VM, FILES, FS, SIGHAND, IO, SYSVSEM, EPOLL_TFD, TYPES };
#ifndef CLONE_IO
#define CLONE_IO 0x80000000
#endif

struct slot {
    uint32_t efd, tfd, toff;
};

static long kcmp(pid_t one, pid_t two, int type, unsigned long index, unsigned long other) {
    return syscall(SYS_kcmp, one, two, type, index, other);
}

static void needs_kcmp(void) {
    if (kcmp(getpid(), getpid(), VM, 0, 0) == -1 && errno == ENOSYS)
        SKIP("no kcmp");
}

/* A child that was cloned with some flags, and waits. */
static pid_t start(unsigned long flags) {
    GATE(ready);
    pid_t pid = (pid_t)syscall(SYS_clone, flags | SIGCHLD, NULL, NULL, NULL, NULL);
    if (pid == -1)
        FAIL("clone: %s", strerror(errno));
    if (pid == 0) {
        gate_open_and_rest(&ready);
    }
    gate_pass(&ready);
    return pid;
}

TEST(a_process_shares_all_with_itself) {
    needs_kcmp();
    pid_t self = getpid();
    for (int type = VM; type < EPOLL_TFD; type++)
        CHECK_EQ(OK(kcmp(self, self, type, 0, 0)), 0);
}

TEST(errors) {
    needs_kcmp();
    pid_t self = getpid();
    int null = OK(open("/dev/null", O_RDONLY));
    ERR(kcmp(INT_MAX, self, VM, 0, 0), ESRCH);
    ERR(kcmp(self, INT_MAX, VM, 0, 0), ESRCH);
    ERR(kcmp(0, self, VM, 0, 0), ESRCH);
    ERR(kcmp(self, -1, VM, 0, 0), ESRCH);
    ERR(kcmp(self, INT_MAX, 99, 0, 0), ESRCH);
    ERR(kcmp(self, self, TYPES, 0, 0), EINVAL);
    ERR(kcmp(self, self, -1, 0, 0), EINVAL);
    ERR(kcmp(self, self, FILE_, 999, null), EBADF);
    ERR(kcmp(self, self, FILE_, null, 999), EBADF);
    ERR(kcmp(self, self, FILE_, -1, -1), EBADF);
    ERR(kcmp(self, self, EPOLL_TFD, null, (unsigned long)BAD), EFAULT);
    ERR(kcmp(self, self, EPOLL_TFD, null, (unsigned long)KERNEL_ADDRESS), EFAULT);
    if (geteuid() != 0)
        SKIP("not root");
    IN_CHILD({
        BECOME(NOBODY, NOBODY);
        ERR(kcmp(self, getpid(), VM, 0, 0), EPERM);
        ERR(kcmp(getpid(), self, VM, 0, 0), EPERM);
        ERR(kcmp(getpid(), self, 99, 0, 0), EPERM);
        ERR(kcmp(getpid(), getpid(), 99, 0, 0), EINVAL);
        OK(kcmp(getpid(), getpid(), VM, 0, 0));
        ERR(kcmp(getpid(), INT_MAX, VM, 0, 0), ESRCH);
    });
}

TEST(files_are_one_if_the_open_file_is) {
    needs_kcmp();
    pid_t self = getpid();
    int null = OK(open("/dev/null", O_RDONLY)), copy = OK(dup(null));
    int other = OK(open("/dev/null", O_RDONLY));
    CHECK_EQ(OK(kcmp(self, self, FILE_, null, copy)), 0);
    long one = OK(kcmp(self, self, FILE_, null, other));
    long two = OK(kcmp(self, self, FILE_, other, null));
    CHECK((one == 1 && two == 2) || (one == 2 && two == 1));
    pid_t child = start(0);
    CHECK_EQ(OK(kcmp(self, child, FILE_, null, copy)), 0);
    CHECK_EQ(OK(kcmp(child, self, FILE_, other, other)), 0);
    CHECK_EQ(OK(kcmp(self, child, FILE_, null, other)), one);
    CHECK_EQ(OK(kcmp(child, self, FILE_, other, copy)), two);
    end_by_kill(child);
}

/* Sorted by kcmp, as a checkpoint does, each file is found again: the order is total. */
static int by_file(const void *a, const void *b) {
    static const int answers[] = {0, -1, 1};
    return answers[OK(kcmp(getpid(), getpid(), FILE_, *(const int *)a, *(const int *)b))];
}

TEST(the_order_is_total) {
    needs_kcmp();
    enum { N = 48 };
    int fds[N];
    for (int i = 0; i < N; i++)
        fds[i] = OK(open("/dev/null", O_RDONLY));
    qsort(fds, N, sizeof *fds, by_file);
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++)
            CHECK_EQ(by_file(&fds[i], &fds[j]), (i > j) - (i < j));
}

TEST(clone_flags_say_what_is_shared) {
    needs_kcmp();
    pid_t self = getpid();
    struct {
        unsigned long flag;
        int type;
    } parts[] = {{CLONE_FILES, FILES}, {CLONE_FS, FS}, {CLONE_SYSVSEM, SYSVSEM}};
    for (unsigned i = 0; i < sizeof parts / sizeof *parts; i++) {
        pid_t with = start(parts[i].flag);
        CHECK_EQ(OK(kcmp(self, with, parts[i].type, 0, 0)), 0);
        end_by_kill(with);
        pid_t without = start(0);
        long one = OK(kcmp(self, without, parts[i].type, 0, 0));
        long two = OK(kcmp(without, self, parts[i].type, 0, 0));
        CHECK((one == 1 && two == 2) || (one == 2 && two == 1));
        end_by_kill(without);
    }
    pid_t child = start(0);
    CHECK(OK(kcmp(self, child, VM, 0, 0)) != 0);
    CHECK(OK(kcmp(self, child, SIGHAND, 0, 0)) != 0);
    end_by_kill(child);
}

static void *waits(void *arg) {
    *(volatile pid_t *)arg = (pid_t)syscall(SYS_gettid);
    for (;;)
        pause();
    return NULL;
}

TEST(threads_share_all_but_what_they_set) {
    needs_kcmp();
    volatile pid_t tid = 0;
    pthread_t thread;
    ZERO(pthread_create(&thread, NULL, waits, (void *)&tid));
    EVENTUALLY(tid != 0);
    pid_t self = getpid();
    for (int type = VM; type < EPOLL_TFD; type++)
        CHECK_EQ(OK(kcmp(self, tid, type, 0, 0)), 0);
    /* Neither has a context of input and output until it sets a priority. */
    OK(syscall(SYS_ioprio_set, 1, 0, 2 << 13));
    long one = OK(kcmp(self, tid, IO, 0, 0)), two = OK(kcmp(tid, self, IO, 0, 0));
    CHECK((one == 1 && two == 2) || (one == 2 && two == 1));
}

TEST(clone_io_shares_a_context) {
    needs_kcmp();
    pid_t self = getpid();
    OK(syscall(SYS_ioprio_set, 1, 0, 2 << 13));
    pid_t with = start(CLONE_IO), too = start(CLONE_IO), without = start(0);
    CHECK_EQ(OK(kcmp(self, with, IO, 0, 0)), 0);
    CHECK_EQ(OK(kcmp(too, with, IO, 0, 0)), 0);
    CHECK(OK(kcmp(self, without, IO, 0, 0)) != 0);
    CHECK(OK(kcmp(without, with, IO, 0, 0)) != 0);
    end_by_kill(with);
    CHECK_EQ(OK(kcmp(too, self, IO, 0, 0)), 0);
    end_by_kill(too);
    end_by_kill(without);
    CHECK_EQ(OK(kcmp(self, self, IO, 0, 0)), 0);
}

TEST(an_undo_list_is_there_when_it_is_used) {
    needs_kcmp();
    pid_t self = getpid(), child = start(0);
    CHECK_EQ(OK(kcmp(self, child, SYSVSEM, 0, 0)), 0);
    int set = OK(semget(IPC_PRIVATE, 1, 0600));
    struct sembuf up = {0, 1, SEM_UNDO};
    OK(semop(set, &up, 1));
    CHECK(OK(kcmp(self, child, SYSVSEM, 0, 0)) != 0);
    OK(semctl(set, 0, IPC_RMID));
    end_by_kill(child);
}

TEST(a_zombie_has_nothing) {
    needs_kcmp();
    pid_t self = getpid(), one = FORK();
    if (one == 0)
        _exit(0);
    pid_t two = FORK();
    if (two == 0)
        _exit(0);
    siginfo_t info;
    OK(waitid(P_PID, (id_t)one, &info, WEXITED | WNOWAIT));
    OK(waitid(P_PID, (id_t)two, &info, WEXITED | WNOWAIT));
    int types[] = {VM, FILES, FS, IO, SYSVSEM};
    for (unsigned i = 0; i < sizeof types / sizeof *types; i++)
        CHECK_EQ(OK(kcmp(one, two, types[i], 0, 0)), 0);
    CHECK(OK(kcmp(self, one, VM, 0, 0)) != 0);
    CHECK(OK(kcmp(self, one, FILES, 0, 0)) != 0);
    ERR(kcmp(self, one, FILE_, 0, 0), EBADF);
    EXITS(one, 0);
    EXITS(two, 0);
    ERR(kcmp(self, one, VM, 0, 0), ESRCH);
}

TEST(a_watched_file_is_found_in_its_set) {
    needs_kcmp();
    pid_t self = getpid();
    int set = OK(epoll_create1(0)), ends[2], others[2];
    OK(pipe(ends));
    OK(pipe(others));
    struct epoll_event event = {.events = EPOLLIN};
    OK(epoll_ctl(set, EPOLL_CTL_ADD, ends[0], &event));
    struct slot slot = {(uint32_t)set, (uint32_t)ends[0], 0};
    unsigned long at = (unsigned long)&slot;
    CHECK_EQ(OK(kcmp(self, self, EPOLL_TFD, ends[0], at)), 0);
    CHECK_EQ(OK(kcmp(self, self, EPOLL_TFD, OK(dup(ends[0])), at)), 0);
    CHECK_EQ(OK(kcmp(self, self, EPOLL_TFD, others[0], at)),
             OK(kcmp(self, self, FILE_, others[0], ends[0])));
    ERR(kcmp(self, self, EPOLL_TFD, 999, at), EBADF);
    slot.toff = 1;
    ERR(kcmp(self, self, EPOLL_TFD, ends[0], at), ENOENT);
    slot = (struct slot){(uint32_t)set, (uint32_t)ends[1], 0};
    ERR(kcmp(self, self, EPOLL_TFD, ends[0], at), ENOENT);
    slot.efd = 999;
    ERR(kcmp(self, self, EPOLL_TFD, ends[0], at), EBADF);
    slot.efd = (uint32_t)ends[0];
    ERR(kcmp(self, self, EPOLL_TFD, ends[0], at), EINVAL);
    /* A number that names another file by now still stands for the one that was added under it,
     * and the second under the same number is the one behind it in the order of files. */
    int first = OK(dup(ends[0]));
    OK(dup2(others[0], ends[0]));
    OK(epoll_ctl(set, EPOLL_CTL_ADD, ends[0], &event));
    slot = (struct slot){(uint32_t)set, (uint32_t)ends[0], 0};
    bool old_first = OK(kcmp(self, self, EPOLL_TFD, first, at)) == 0;
    slot.toff = 1;
    CHECK_EQ(OK(kcmp(self, self, EPOLL_TFD, old_first ? others[0] : first, at)), 0);
    slot.toff = 2;
    ERR(kcmp(self, self, EPOLL_TFD, first, at), ENOENT);
    /* The set of another process. */
    slot.toff = old_first ? 0 : 1;
    pid_t child = start(0);
    CHECK_EQ(OK(kcmp(self, child, EPOLL_TFD, first, at)), 0);
    CHECK_EQ(OK(kcmp(child, self, EPOLL_TFD, first, at)), 0);
    end_by_kill(child);
}
