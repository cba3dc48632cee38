/* Record locks, open-file-description locks, deadlocks, flock, leases that may be missing. */
#define AREA "lock"
#include "harness.h"
#include <sys/file.h>

#ifndef F_OFD_GETLK
#define F_OFD_GETLK 36
#define F_OFD_SETLK 37
#define F_OFD_SETLKW 38
#endif

static int lock_file(void) {
    int fd = OK(open("f", O_RDWR | O_CREAT, 0600));
    OK(ftruncate(fd, 1000));
    return fd;
}
static int lock(int fd, int op, int type, off_t start, off_t len) {
    struct flock l = {.l_type = (short)type, .l_whence = SEEK_SET, .l_start = start, .l_len = len};
    return fcntl(fd, op, &l);
}
/* The owner of a lock that would stand in the way, if there is one. */
static struct flock ask(int fd, int op, int type, off_t start, off_t len) {
    struct flock l = {.l_type = (short)type, .l_whence = SEEK_SET, .l_start = start, .l_len = len};
    OK(fcntl(fd, op, &l));
    return l;
}

TEST(write_lock_excludes_other_processes) {
    int fd = lock_file();
    OK(lock(fd, F_SETLK, F_WRLCK, 100, 10));
    pid_t parent = getpid();
    IN_CHILD({
        ERR2(lock(fd, F_SETLK, F_WRLCK, 105, 1), EAGAIN, EACCES);
        ERR2(lock(fd, F_SETLK, F_RDLCK, 100, 1), EAGAIN, EACCES);
        struct flock l = ask(fd, F_GETLK, F_WRLCK, 0, 0);
        CHECK_EQ(l.l_type, F_WRLCK);
        CHECK_EQ(l.l_start, 100);
        CHECK_EQ(l.l_len, 10);
        CHECK_EQ(l.l_pid, parent);
        OK(lock(fd, F_SETLK, F_WRLCK, 110, 10)); /* right beside it */
        OK(lock(fd, F_SETLK, F_WRLCK, 0, 100));
    });
    OK(lock(fd, F_SETLK, F_WRLCK, 0, 0)); /* the child's went with it */
}

TEST(read_locks_share) {
    int fd = lock_file();
    OK(lock(fd, F_SETLK, F_RDLCK, 0, 50));
    IN_CHILD({
        OK(lock(fd, F_SETLK, F_RDLCK, 25, 50));
        ERR2(lock(fd, F_SETLK, F_WRLCK, 25, 50), EAGAIN, EACCES);
        CHECK_EQ(ask(fd, F_GETLK, F_RDLCK, 0, 50).l_type, F_UNLCK);
    });
}

TEST(own_locks_never_conflict_and_split) {
    int fd = lock_file();
    OK(lock(fd, F_SETLK, F_WRLCK, 0, 100));
    OK(lock(fd, F_SETLK, F_RDLCK, 40, 20)); /* turns the middle into a read lock */
    OK(lock(fd, F_SETLK, F_UNLCK, 45, 5));
    IN_CHILD({
        struct flock l = ask(fd, F_GETLK, F_RDLCK, 0, 0);
        CHECK(l.l_type == F_WRLCK && l.l_start == 0 && l.l_len == 40);
        l = ask(fd, F_GETLK, F_WRLCK, 40, 20);
        CHECK(l.l_type == F_RDLCK && l.l_start == 40 && l.l_len == 5);
        CHECK_EQ(ask(fd, F_GETLK, F_WRLCK, 45, 5).l_type, F_UNLCK);
        l = ask(fd, F_GETLK, F_WRLCK, 45, 15);
        CHECK(l.l_start == 50 && l.l_len == 10);
        l = ask(fd, F_GETLK, F_WRLCK, 60, 1000);
        CHECK(l.l_type == F_WRLCK && l.l_start == 60 && l.l_len == 40);
    });
}

TEST(adjacent_locks_merge) {
    int fd = lock_file();
    OK(lock(fd, F_SETLK, F_WRLCK, 0, 10));
    OK(lock(fd, F_SETLK, F_WRLCK, 20, 10));
    OK(lock(fd, F_SETLK, F_WRLCK, 10, 10));
    IN_CHILD({
        struct flock l = ask(fd, F_GETLK, F_WRLCK, 0, 0);
        CHECK(l.l_start == 0 && l.l_len == 30);
    });
}

TEST(length_zero_reaches_to_infinity) {
    int fd = lock_file();
    OK(lock(fd, F_SETLK, F_WRLCK, 500, 0));
    IN_CHILD({
        ERR2(lock(fd, F_SETLK, F_WRLCK, 1000000000, 1), EAGAIN, EACCES);
        CHECK_EQ(ask(fd, F_GETLK, F_WRLCK, 0, 0).l_len, 0);
        OK(lock(fd, F_SETLK, F_WRLCK, 499, 1));
    });
}

TEST(negative_length_and_whence) {
    int fd = lock_file();
    struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 100, .l_len = -10};
    OK(fcntl(fd, F_SETLK, &l)); /* 90..99 (fcntl(2)) */
    l = (struct flock){.l_type = F_WRLCK, .l_whence = SEEK_END, .l_start = -100, .l_len = 50};
    OK(fcntl(fd, F_SETLK, &l)); /* 900..949 */
    IN_CHILD({
        struct flock got = ask(fd, F_GETLK, F_WRLCK, 0, 0);
        CHECK(got.l_start == 90 && got.l_len == 10);
        got = ask(fd, F_GETLK, F_WRLCK, 200, 0);
        CHECK(got.l_start == 900 && got.l_len == 50 && got.l_whence == SEEK_SET);
    });
}

TEST(lock_argument_errors) {
    int fd = lock_file();
    ERR(lock(fd, F_SETLK, F_WRLCK, -1, 10), EINVAL);
    ERR(lock(fd, F_SETLK, F_WRLCK, 5, -10), EINVAL);
    ERR(lock(fd, F_SETLK, 9, 0, 10), EINVAL);
    ERR(lock(999, F_SETLK, F_WRLCK, 0, 10), EBADF);
    ERR(syscall(SYS_fcntl, fd, F_SETLK, BAD), EFAULT);
    ERR(fcntl(fd, 9999, 0), EINVAL);
    int ro = OK(open("f", O_RDONLY)), wo = OK(open("f", O_WRONLY));
    ERR(lock(ro, F_SETLK, F_WRLCK, 0, 1), EBADF);
    ERR(lock(wo, F_SETLK, F_RDLCK, 0, 1), EBADF);
    ERR(lock(fd, F_GETLK, F_UNLCK, 0, 1), EINVAL);
    struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = INT64_MAX, .l_len = 10};
    ERR(fcntl(fd, F_SETLK, &l), EOVERFLOW);
}

TEST(closing_any_descriptor_drops_the_locks) {
    /* The infamous rule of POSIX record locks (fcntl(2)). */
    int fd = lock_file(), other = OK(open("f", O_RDONLY));
    OK(lock(fd, F_SETLK, F_WRLCK, 0, 0));
    OK(close(other));
    IN_CHILD(OK(lock(fd, F_SETLK, F_WRLCK, 0, 0)));
}

TEST(locks_are_not_inherited_by_fork) {
    int fd = lock_file();
    OK(lock(fd, F_SETLK, F_WRLCK, 0, 0));
    IN_CHILD({
        ERR2(lock(fd, F_SETLK, F_WRLCK, 0, 0), EAGAIN, EACCES);
        OK(close(fd)); /* the child's close leaves the parent's locks alone */
    });
    IN_CHILD(ERR2(lock(fd, F_SETLK, F_RDLCK, 0, 0), EAGAIN, EACCES));
}

TEST(setlkw_waits_for_release) {
    int fd = lock_file();
    int *order = SHARED(PAGE);
    OK(lock(fd, F_SETLK, F_WRLCK, 0, 10));
    pid_t pid = FORK();
    if (pid == 0) {
        OK(lock(fd, F_SETLKW, F_WRLCK, 5, 1));
        CHECK_EQ(*(volatile int *)order, 1);
        _exit(0);
    }
    wait_asleep(pid);
    CHECK_EQ(OK(waitpid(pid, NULL, WNOHANG)), 0);
    *order = 1;
    OK(lock(fd, F_SETLK, F_UNLCK, 0, 10));
    EXITS(pid, 0);
}

TEST(deadlock_is_detected) {
    int fd = lock_file();
    OK(lock(fd, F_SETLK, F_WRLCK, 0, 1));
    GATE(held);
    pid_t pid = FORK();
    if (pid == 0) {
        OK(lock(fd, F_SETLK, F_WRLCK, 1, 1));
        gate_open(&held);
        OK(lock(fd, F_SETLKW, F_WRLCK, 0, 1)); /* waits for the parent */
        _exit(0);
    }
    gate_pass(&held);
    wait_asleep(pid);
    ERR(lock(fd, F_SETLKW, F_WRLCK, 1, 1), EDEADLK);
    OK(lock(fd, F_SETLK, F_UNLCK, 0, 1));
    EXITS(pid, 0);
}

TEST(deadlock_over_three_processes) {
    int fd = lock_file();
    OK(lock(fd, F_SETLK, F_WRLCK, 0, 1));
    GATE(held);
    pid_t pids[2];
    for (int i = 0; i < 2; i++) {
        if ((pids[i] = FORK()) == 0) {
            OK(lock(fd, F_SETLK, F_WRLCK, i + 1, 1));
            gate_open(&held);
            OK(lock(fd, F_SETLKW, F_WRLCK, i, 1)); /* waits for the one before */
            _exit(0);
        }
        gate_pass(&held);
        wait_asleep(pids[i]);
    }
    ERR(lock(fd, F_SETLKW, F_WRLCK, 2, 1), EDEADLK);
    OK(lock(fd, F_SETLK, F_UNLCK, 0, 1));
    EXITS(pids[0], 0);
    EXITS(pids[1], 0);
}

TEST(killed_waiter_leaves_no_trace) {
    int fd = lock_file();
    OK(lock(fd, F_SETLK, F_WRLCK, 0, 10));
    pid_t pid = FORK();
    if (pid == 0) {
        lock(fd, F_SETLKW, F_WRLCK, 0, 10);
        _exit(0);
    }
    wait_asleep(pid);
    OK(kill(pid, SIGKILL));
    KILLED(pid, SIGKILL);
    OK(lock(fd, F_SETLK, F_UNLCK, 0, 10));
    IN_CHILD(OK(lock(fd, F_SETLK, F_WRLCK, 0, 10)));
}

TEST(exec_keeps_the_locks) {
    int fd = lock_file();
    GATE(ready);
    pid_t pid = FORK();
    if (pid == 0) {
        OK(lock(fd, F_SETLK, F_WRLCK, 0, 10));
        dup2(ready.fd[1], 1);
        execl(hy_self, hy_self, "--helper", "hold", (char *)NULL);
        _exit(99);
    }
    gate_pass(&ready);
    ERR2(lock(fd, F_SETLK, F_WRLCK, 0, 10), EAGAIN, EACCES);
    OK(kill(pid, SIGKILL));
    KILLED(pid, SIGKILL);
    OK(lock(fd, F_SETLK, F_WRLCK, 0, 10));
}
HELPER(hold) {
    if (write(1, "", 1) == 1)
        pause();
    return 0;
}

TEST(ofd_locks_belong_to_the_open_file) {
    int a = lock_file(), b = OK(open("f", O_RDWR));
    OK(lock(a, F_OFD_SETLK, F_WRLCK, 0, 10));
    ERR2(lock(b, F_OFD_SETLK, F_WRLCK, 0, 10), EAGAIN, EACCES); /* within one process */
    struct flock l = ask(b, F_OFD_GETLK, F_WRLCK, 0, 0);
    CHECK_EQ(l.l_type, F_WRLCK);
    CHECK_EQ(l.l_pid, -1);
    OK(close(OK(open("f", O_RDONLY)))); /* another close changes nothing */
    ERR2(lock(b, F_OFD_SETLK, F_WRLCK, 0, 10), EAGAIN, EACCES);
    IN_CHILD(OK(lock(a, F_OFD_SETLK, F_WRLCK, 5, 1))); /* a copy of the same open file */
    OK(close(a));
    OK(lock(b, F_OFD_SETLK, F_WRLCK, 0, 10));
}

TEST(ofd_and_process_locks_conflict) {
    int a = lock_file(), b = OK(open("f", O_RDWR));
    OK(lock(a, F_OFD_SETLK, F_WRLCK, 0, 10));
    ERR2(lock(b, F_SETLK, F_WRLCK, 0, 10), EAGAIN, EACCES);
    struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 1, .l_pid = 5};
    ERR(fcntl(a, F_OFD_SETLK, &l), EINVAL); /* l_pid must be 0 */
}

TEST(flock_excludes_between_opens) {
    int a = lock_file(), b = OK(open("f", O_RDWR));
    OK(flock(a, LOCK_EX));
    ERR(flock(b, LOCK_SH | LOCK_NB), EWOULDBLOCK);
    ERR(flock(b, LOCK_EX | LOCK_NB), EWOULDBLOCK);
    OK(flock(a, LOCK_SH)); /* conversion */
    OK(flock(b, LOCK_SH | LOCK_NB));
    ERR(flock(a, LOCK_EX | LOCK_NB), EWOULDBLOCK);
    OK(flock(b, LOCK_UN));
    OK(flock(a, LOCK_EX | LOCK_NB));
}

TEST(flock_is_shared_by_copies_and_children) {
    int a = lock_file(), b = OK(open("f", O_RDWR)), copy = OK(dup(a));
    OK(flock(a, LOCK_EX));
    OK(flock(copy, LOCK_EX | LOCK_NB));
    OK(close(a)); /* the copy still holds it */
    ERR(flock(b, LOCK_EX | LOCK_NB), EWOULDBLOCK);
    IN_CHILD(OK(flock(copy, LOCK_UN)));
    OK(flock(b, LOCK_EX | LOCK_NB));
}

TEST(flock_waits_and_is_released_by_exit) {
    int fd = lock_file();
    GATE(held);
    GATE(go);
    pid_t holder = FORK();
    if (holder == 0) {
        OK(flock(OK(open("f", O_RDWR)), LOCK_EX));
        gate_open(&held);
        gate_pass(&go);
        _exit(0);
    }
    gate_pass(&held);
    ERR(flock(fd, LOCK_EX | LOCK_NB), EWOULDBLOCK);
    gate_open(&go);
    OK(flock(fd, LOCK_EX));
    EXITS(holder, 0);
}

TEST(flock_errors_and_independence) {
    int fd = lock_file();
    ERR(flock(fd, 0), EINVAL);
    ERR(flock(fd, LOCK_EX | LOCK_SH), EINVAL);
    ERR(flock(999, LOCK_EX), EBADF);
    OK(flock(fd, LOCK_EX));
    IN_CHILD(OK(lock(fd, F_SETLK, F_WRLCK, 0, 0))); /* the two kinds know nothing of each other */
    OK(flock(OK(open("f", O_RDONLY)), LOCK_UN));
}

TEST(counter_under_locks_is_exact) {
    int fd = lock_file();
    long zero = 0;
    OK(pwrite(fd, &zero, sizeof zero, 0));
    pid_t pids[4];
    for (int i = 0; i < 4; i++)
        if ((pids[i] = FORK()) == 0) {
            int own = OK(open("f", O_RDWR));
            for (int n = 0; n < 100; n++) {
                long v;
                if (i % 2)
                    OK(lock(own, F_SETLKW, F_WRLCK, 0, 8));
                else
                    OK(lock(own, F_OFD_SETLKW, F_WRLCK, 0, 8));
                OK(pread(own, &v, sizeof v, 0));
                v++;
                OK(pwrite(own, &v, sizeof v, 0));
                OK(lock(own, i % 2 ? F_SETLK : F_OFD_SETLK, F_UNLCK, 0, 8));
            }
            _exit(0);
        }
    for (int i = 0; i < 4; i++)
        EXITS(pids[i], 0);
    OK(pread(fd, &zero, sizeof zero, 0));
    CHECK_EQ(zero, 400);
}

/* ---- who is woken --------------------------------------------------------------------------- */

enum { CROWD = 200 };

/* Waits for all of them; how often they gave the processor up, all together. */
static long switches_of(const pid_t *pids, int count) {
    long switches = 0;
    for (int i = 0; i < count; i++) {
        struct rusage usage;
        int status;
        CHECK_EQ(OK(wait4(pids[i], &status, 0, &usage)), pids[i]);
        if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) FAIL("status %#x of %d", status, i);
        switches += usage.ru_nvcsw;
    }
    return switches;
}

/* A crowd waits, each for another byte; each release is for one of them. */
TEST_TIMES(a_release_wakes_nobody_who_waits_for_another_range, 4) {
    int fd = lock_file();
    static pid_t pids[CROWD];
    for (int i = 0; i < CROWD; i++) OK(lock(fd, F_SETLK, F_WRLCK, 2 * i, 1));
    for (int i = 0; i < CROWD; i++)
        if ((pids[i] = FORK()) == 0) {
            OK(lock(fd, F_SETLKW, F_WRLCK, 2 * i, 1));
            _exit(0);
        }
    for (int i = 0; i < CROWD; i++) wait_asleep(pids[i]);
    for (int i = 0; i < CROWD; i++) OK(lock(fd, F_SETLK, F_UNLCK, 2 * i, 1));
    long switches = switches_of(pids, CROWD);
    if (switches > 10 * CROWD) FAIL("%ld switches of %d processes", switches, CROWD);
}

/* Each holds a byte and waits for the one of its neighbour; the first is let go. */
TEST_TIMES(a_chain_of_hundreds_falls_one_by_one, 4) {
    int fd = lock_file();
    static pid_t pids[CROWD];
    OK(lock(fd, F_SETLK, F_WRLCK, 0, 1));
    GATE(held);
    for (int i = 0; i < CROWD; i++) {
        if ((pids[i] = FORK()) == 0) {
            OK(lock(fd, F_SETLK, F_WRLCK, 2 * i + 2, 1));
            gate_open(&held);
            OK(lock(fd, F_SETLKW, F_WRLCK, 2 * i, 1));
            _exit(0);
        }
        gate_pass(&held);
    }
    for (int i = 0; i < CROWD; i++) wait_asleep(pids[i]);
    OK(lock(fd, F_SETLK, F_UNLCK, 0, 1));
    long switches = switches_of(pids, CROWD);
    if (switches > 12 * CROWD) FAIL("%ld switches of %d processes", switches, CROWD);
}

/* All want the same lock for themselves: it goes from one to the next. */
static void pass_on(bool whole) {
    int fd = lock_file();
    static pid_t pids[CROWD];
    int *inside = SHARED(sizeof *inside);
    OK(whole ? flock(fd, LOCK_EX) : lock(fd, F_SETLK, F_WRLCK, 0, 0));
    for (int i = 0; i < CROWD; i++)
        if ((pids[i] = FORK()) == 0) {
            int own = OK(open("f", O_RDWR));
            OK(whole ? flock(own, LOCK_EX) : lock(own, F_SETLKW, F_WRLCK, 0, 0));
            CHECK_EQ(__atomic_add_fetch(inside, 1, __ATOMIC_SEQ_CST), 1);
            sched_yield();
            CHECK_EQ(__atomic_sub_fetch(inside, 1, __ATOMIC_SEQ_CST), 0);
            _exit(0);
        }
    for (int i = 0; i < CROWD; i++) wait_asleep(pids[i]);
    OK(whole ? flock(fd, LOCK_UN) : lock(fd, F_SETLK, F_UNLCK, 0, 0));
    long switches = switches_of(pids, CROWD);
    if (switches > 12 * CROWD) FAIL("%ld switches of %d processes", switches, CROWD);
}

TEST_TIMES(a_record_lock_goes_from_one_to_the_next, 4) { pass_on(false); }
TEST_TIMES(a_whole_file_lock_goes_from_one_to_the_next, 4) { pass_on(true); }

/* Readers that wait for a writer all go on at once; a writer that waits for readers goes after the
 * last. */
TEST(shared_locks_are_given_together) {
    for (int whole = 0; whole < 2; whole++) {
        int fd = lock_file();
        pid_t pids[5];
        OK(whole ? flock(fd, LOCK_EX) : lock(fd, F_SETLK, F_WRLCK, 0, 0));
        GATE(got);
        GATE(go);
        for (int i = 0; i < 4; i++)
            if ((pids[i] = FORK()) == 0) {
                int own = OK(open("f", O_RDWR));
                OK(whole ? flock(own, LOCK_SH) : lock(own, F_SETLKW, F_RDLCK, i, 10));
                gate_open(&got);
                gate_pass(&go);
                _exit(0);
            }
        for (int i = 0; i < 4; i++) wait_asleep(pids[i]);
        /* A lock that becomes shared lets them in as well. */
        OK(whole ? flock(fd, LOCK_SH) : lock(fd, F_SETLK, F_RDLCK, 0, 0));
        for (int i = 0; i < 4; i++) gate_pass(&got);
        if ((pids[4] = FORK()) == 0) {
            int own = OK(open("f", O_RDWR));
            OK(whole ? flock(own, LOCK_EX) : lock(own, F_SETLKW, F_WRLCK, 0, 0));
            _exit(0);
        }
        wait_asleep(pids[4]);
        OK(whole ? flock(fd, LOCK_UN) : lock(fd, F_SETLK, F_UNLCK, 0, 0));
        for (int i = 0; i < 5; i++) {
            if (i < 4) gate_open(&go);
            int status;
            pid_t gone = OK(waitpid(-1, &status, 0));
            CHECK_EQ(status, 0);
            /* A lock is given up a moment before its process can be waited for. */
            if (i < 3) CHECK(gone != pids[4]);
        }
        OK(close(fd));
    }
}

/* Two hold what a third waits for; the circle is there when one of them goes. */
TEST(deadlock_that_begins_while_somebody_waits) {
    int fd = lock_file();
    GATE(held);
    GATE(go);
    GATE(second_waits);
    pid_t first = FORK();
    if (first == 0) {
        OK(lock(fd, F_SETLK, F_RDLCK, 0, 1));
        gate_open(&held);
        gate_pass(&second_waits);
        _exit(0); /* gives the byte up */
    }
    gate_pass(&held);
    pid_t second = FORK();
    if (second == 0) {
        OK(lock(fd, F_SETLK, F_RDLCK, 0, 1));
        gate_open(&held);
        gate_pass(&go);
        int result = lock(fd, F_SETLKW, F_WRLCK, 1, 1); /* waits for the third */
        _exit(result == 0 ? 0 : errno == EDEADLK ? 1 : 2);
    }
    gate_pass(&held);
    pid_t third = FORK();
    if (third == 0) {
        OK(lock(fd, F_SETLK, F_WRLCK, 1, 1));
        int result = lock(fd, F_SETLKW, F_WRLCK, 0, 1);
        _exit(result == 0 ? 0 : errno == EDEADLK ? 1 : 2);
    }
    wait_asleep(third);
    gate_open(&go);
    wait_asleep(second);
    gate_open(&second_waits);
    EXITS(first, 0);
    int ends = WEXITSTATUS(WAIT(second)) + WEXITSTATUS(WAIT(third));
    CHECK_EQ(ends, 1); /* one of them was refused, and so the other went on */
}

struct waiting {
    int fd;
    _Atomic pid_t tid;
    int result, error;
};

static void *wait_for_the_lock(void *data) {
    struct waiting *waiting = data;
    atomic_store(&waiting->tid, (pid_t)syscall(SYS_gettid));
    waiting->result = lock(waiting->fd, F_SETLKW, F_WRLCK, 0, 1);
    waiting->error = errno;
    return NULL;
}

/* The descriptor is closed by another thread during the wait: nobody could ever give the lock
 * up. */
TEST(a_lock_that_comes_after_close_is_given_back) {
    int fd = lock_file();
    GATE(held);
    GATE(go);
    pid_t holder = FORK();
    if (holder == 0) {
        OK(lock(fd, F_SETLK, F_WRLCK, 0, 1));
        gate_open(&held);
        gate_pass(&go);
        _exit(0);
    }
    gate_pass(&held);
    struct waiting waiting = {.fd = OK(open("f", O_RDWR))};
    pthread_t thread;
    CHECK_EQ(pthread_create(&thread, NULL, wait_for_the_lock, &waiting), 0);
    EVENTUALLY(atomic_load(&waiting.tid) != 0);
    wait_asleep(waiting.tid);
    OK(close(waiting.fd));
    gate_open(&go);
    EXITS(holder, 0);
    CHECK_EQ(pthread_join(thread, NULL), 0);
    CHECK_EQ(waiting.result, -1);
    CHECK_EQ(waiting.error, EBADF);
    IN_CHILD(OK(lock(fd, F_SETLK, F_WRLCK, 0, 0)));
}

static void on_alarm(int sig UNUSED) {}

/* A signal ends the wait; the place in the row goes with it, and those behind get the lock. */
TEST(an_interrupted_waiter_is_passed_over) {
    for (int whole = 0; whole < 2; whole++) {
        int fd = lock_file();
        OK(whole ? flock(fd, LOCK_EX) : lock(fd, F_SETLK, F_WRLCK, 0, 1));
        pid_t pids[2];
        for (int i = 0; i < 2; i++) {
            if ((pids[i] = FORK()) == 0) {
                struct sigaction act = {.sa_handler = on_alarm};
                OK(sigaction(SIGUSR1, &act, NULL));
                int own = OK(open("f", O_RDWR));
                int result = whole ? flock(own, LOCK_EX) : lock(own, F_SETLKW, F_WRLCK, 0, 1);
                _exit(result == 0 ? 0 : errno == EINTR ? 1 : 2);
            }
            wait_asleep(pids[i]);
        }
        OK(kill(pids[0], SIGUSR1));
        EXITS(pids[0], 1);
        OK(whole ? flock(fd, LOCK_UN) : lock(fd, F_SETLK, F_UNLCK, 0, 1));
        EXITS(pids[1], 0);
        OK(close(fd));
    }
}
