/* Priorities of input and output: ioprio_set(2), and who inherits or shares them (CLONE_IO). */
#define AREA "ioprio"
#include "harness.h"

#ifndef CLONE_IO
#define CLONE_IO 0x80000000
#endif

enum { PROCESS = 1, GROUP = 2, USER = 3 };
enum { NONE = 0, RT = 1, BE = 2, IDLE = 3 };
#define VALUE(class, level) ((class) << 13 | (level))

static long set(int which, int who, int priority) {
    return syscall(SYS_ioprio_set, which, who, priority);
}
static long get(int which, int who) {
    return syscall(SYS_ioprio_get, which, who);
}

TEST(errors) {
    int best = VALUE(BE, 4);
    ERR(set(0, 0, best), EINVAL);
    ERR(set(4, 0, best), EINVAL);
    ERR(set(-1, 0, best), EINVAL);
    ERR(get(0, 0), EINVAL);
    ERR(get(4, 0), EINVAL);
    ERR(set(PROCESS, 0, VALUE(4, 0)), EINVAL);
    ERR(set(PROCESS, 0, VALUE(6, 3)), EINVAL);
    ERR(set(PROCESS, 0, VALUE(NONE, 1)), EINVAL);
    /* The priority is looked at before the rest. */
    ERR(set(99, INT_MAX, VALUE(5, 0)), EINVAL);
    ERR(set(PROCESS, INT_MAX, best), ESRCH);
    ERR(get(PROCESS, INT_MAX), ESRCH);
    ERR(set(PROCESS, -1, best), ESRCH);
    ERR(get(PROCESS, -1), ESRCH);
    ERR(set(GROUP, INT_MAX, best), ESRCH);
    ERR(get(GROUP, INT_MAX), ESRCH);
    ERR(set(GROUP, -1, best), ESRCH);
    ERR(set(USER, 0x7ffffff0, best), ESRCH);
    ERR(get(USER, 0x7ffffff0), ESRCH);
    ERR(set(USER, -1, best), ESRCH);
    ERR(get(USER, -1), ESRCH);
}

TEST(what_is_set_is_told) {
    CHECK_EQ(OK(get(PROCESS, 0)), 0);
    for (int level = 0; level < 8; level++) {
        CHECK_EQ(OK(set(PROCESS, 0, VALUE(BE, level))), 0);
        CHECK_EQ(OK(get(PROCESS, 0)), VALUE(BE, level));
        CHECK_EQ(OK(get(PROCESS, getpid())), VALUE(BE, level));
    }
    OK(set(PROCESS, 0, VALUE(IDLE, 0)));
    CHECK_EQ(OK(get(PROCESS, 0)), VALUE(IDLE, 0));
    OK(set(PROCESS, 0, VALUE(IDLE, 5)));
    CHECK_EQ(OK(get(PROCESS, 0)), VALUE(IDLE, 5));
    OK(set(PROCESS, 0, VALUE(NONE, 0)));
    CHECK_EQ(OK(get(PROCESS, 0)), 0);
    /* It is apart from the nice value. */
    OK(set(PROCESS, 0, VALUE(BE, 1)));
    OK(setpriority(PRIO_PROCESS, 0, 19));
    CHECK_EQ(OK(get(PROCESS, 0)), VALUE(BE, 1));
    CHECK_EQ(getpriority(PRIO_PROCESS, 0), 19);
    OK(set(PROCESS, 0, VALUE(BE, 6)));
    CHECK_EQ(getpriority(PRIO_PROCESS, 0), 19);
}

TEST(each_thread_has_its_own) {
    OK(set(PROCESS, 0, VALUE(BE, 2)));
    GATE(told);
    pid_t pid = FORK();
    if (pid == 0) {
        CHECK_EQ(OK(get(PROCESS, 0)), VALUE(BE, 2));
        OK(set(PROCESS, 0, VALUE(BE, 5)));
        gate_open_and_rest(&told);
    }
    gate_pass(&told);
    CHECK_EQ(OK(get(PROCESS, 0)), VALUE(BE, 2));
    CHECK_EQ(OK(get(PROCESS, pid)), VALUE(BE, 5));
    OK(set(PROCESS, pid, VALUE(IDLE, 0)));
    CHECK_EQ(OK(get(PROCESS, pid)), VALUE(IDLE, 0));
    OK(kill(pid, SIGKILL));
    KILLED(pid, SIGKILL);
}

static void *other_thread(void *arg) {
    CHECK_EQ(OK(get(PROCESS, 0)), VALUE(BE, 3));
    OK(set(PROCESS, 0, VALUE(BE, 7)));
    *(pid_t *)arg = (pid_t)syscall(SYS_gettid);
    return NULL;
}

TEST(threads_of_a_process_are_set_one_by_one) {
    OK(set(PROCESS, 0, VALUE(BE, 3)));
    pid_t tid;
    pthread_t thread;
    ZERO(pthread_create(&thread, NULL, other_thread, &tid));
    ZERO(pthread_join(thread, NULL));
    CHECK_EQ(OK(get(PROCESS, 0)), VALUE(BE, 3));
}

HELPER(tells) { return (int)get(PROCESS, 0) == VALUE(BE, 6) ? 0 : 1; }

TEST(exec_keeps_it) {
    pid_t pid = FORK();
    if (pid == 0) {
        OK(set(PROCESS, 0, VALUE(BE, 6)));
        execl(hy_self, hy_self, "--helper", "tells", (char *)NULL);
        FAIL("exec: %s", strerror(errno));
    }
    EXITS(pid, 0);
}

TEST(fork_does_not_inherit_what_was_never_set) {
    IN_CHILD(CHECK_EQ(OK(get(PROCESS, 0)), 0); OK(set(PROCESS, 0, VALUE(BE, 0))));
    CHECK_EQ(OK(get(PROCESS, 0)), 0);
}

/* Of several threads the highest is told, as it is in force: by the nice value where none is
 * set. */
TEST(of_a_group_the_highest_in_force_is_told) {
    OK(setpgid(0, 0));
    struct sched_param none = {0};
    OK(syscall(SYS_sched_setscheduler, 0, SCHED_OTHER, &none));
    int level = (getpriority(PRIO_PROCESS, 0) + 20) / 5;
    CHECK_EQ(OK(get(GROUP, 0)), VALUE(BE, level));
    CHECK_EQ(OK(get(GROUP, getpgrp())), VALUE(BE, level));
    OK(setpriority(PRIO_PROCESS, 0, 19));
    CHECK_EQ(OK(get(GROUP, 0)), VALUE(BE, 7));
    OK(syscall(SYS_sched_setscheduler, 0, SCHED_IDLE, &none));
    CHECK_EQ(OK(get(GROUP, 0)) >> 13, IDLE);
    OK(syscall(SYS_sched_setscheduler, 0, SCHED_OTHER, &none));
    GATE(ready);
    pid_t pid = FORK();
    if (pid == 0) {
        OK(set(PROCESS, 0, VALUE(BE, 1)));
        gate_open_and_rest(&ready);
    }
    gate_pass(&ready);
    CHECK_EQ(OK(get(GROUP, 0)), VALUE(BE, 1));
    CHECK_EQ(OK(get(PROCESS, 0)), 0);
    /* A group is set as a whole. */
    OK(set(GROUP, 0, VALUE(IDLE, 0)));
    CHECK_EQ(OK(get(PROCESS, pid)), VALUE(IDLE, 0));
    CHECK_EQ(OK(get(PROCESS, 0)), VALUE(IDLE, 0));
    OK(kill(pid, SIGKILL));
    KILLED(pid, SIGKILL);
}

TEST(rights) {
    if (geteuid() != 0)
        SKIP("not root");
    OK(set(PROCESS, 0, VALUE(RT, 0)));
    CHECK_EQ(OK(get(PROCESS, 0)), VALUE(RT, 0));
    OK(set(PROCESS, 0, VALUE(NONE, 0)));
    pid_t self = getpid();
    IN_CHILD({
        BECOME(45678, 45678);
        ERR(set(PROCESS, 0, VALUE(RT, 0)), EPERM);
        ERR(set(PROCESS, INT_MAX, VALUE(RT, 0)), EPERM);
        ERR(set(PROCESS, self, VALUE(BE, 1)), EPERM);
        OK(get(PROCESS, self));
        /* Lower or higher makes no difference, and being idle is free. */
        OK(set(PROCESS, 0, VALUE(IDLE, 0)));
        OK(set(PROCESS, 0, VALUE(BE, 0)));
        OK(set(USER, 45678, VALUE(BE, 2)));
        CHECK_EQ(OK(get(USER, 45678)), VALUE(BE, 2));
        CHECK_EQ(OK(get(PROCESS, 0)), VALUE(BE, 2));
        /* 0 is the user 0. */
        ERR(set(USER, 0, VALUE(BE, 2)), EPERM);
    });
}

TEST(a_zombie_has_none) {
    OK(set(PROCESS, 0, VALUE(BE, 1)));
    pid_t pid = FORK();
    if (pid == 0)
        _exit(0);
    siginfo_t info;
    OK(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT));
    CHECK_EQ(OK(get(PROCESS, pid)), 0);
    OK(set(PROCESS, pid, VALUE(BE, 7)));
    CHECK_EQ(OK(get(PROCESS, pid)), 0);
    EXITS(pid, 0);
    ERR(get(PROCESS, pid), ESRCH);
}

static pid_t clone_with(unsigned long flags) {
    pid_t pid = (pid_t)syscall(SYS_clone, flags | SIGCHLD, NULL, NULL, NULL, NULL);
    if (pid == -1)
        FAIL("clone: %s", strerror(errno));
    return pid;
}

TEST(clone_io_shares_what_was_set) {
    OK(set(PROCESS, 0, VALUE(BE, 2)));
    int *step = SHARED(PAGE);
    pid_t pid = clone_with(CLONE_IO);
    if (pid == 0) {
        CHECK_EQ(OK(get(PROCESS, 0)), VALUE(BE, 2));
        OK(set(PROCESS, 0, VALUE(BE, 5)));
        /* A third shares it with both, a fourth has a copy. */
        pid_t third = clone_with(CLONE_IO);
        if (third == 0) {
            CHECK_EQ(OK(get(PROCESS, 0)), VALUE(BE, 5));
            OK(set(PROCESS, 0, VALUE(BE, 6)));
            _exit(0);
        }
        EXITS(third, 0);
        CHECK_EQ(OK(get(PROCESS, 0)), VALUE(BE, 6));
        pid_t fourth = clone_with(0);
        if (fourth == 0) {
            CHECK_EQ(OK(get(PROCESS, 0)), VALUE(BE, 6));
            OK(set(PROCESS, 0, VALUE(BE, 7)));
            _exit(0);
        }
        EXITS(fourth, 0);
        __atomic_store_n(step, 1, __ATOMIC_SEQ_CST);
        EVENTUALLY(__atomic_load_n(step, __ATOMIC_SEQ_CST) == 2);
        CHECK_EQ(OK(get(PROCESS, 0)), VALUE(BE, 0));
        _exit(0);
    }
    EVENTUALLY(__atomic_load_n(step, __ATOMIC_SEQ_CST) == 1);
    CHECK_EQ(OK(get(PROCESS, 0)), VALUE(BE, 6));
    CHECK_EQ(OK(get(PROCESS, pid)), VALUE(BE, 6));
    OK(set(PROCESS, 0, VALUE(BE, 0)));
    __atomic_store_n(step, 2, __ATOMIC_SEQ_CST);
    EXITS(pid, 0);
    /* The last one keeps it. */
    CHECK_EQ(OK(get(PROCESS, 0)), VALUE(BE, 0));
    OK(set(PROCESS, 0, VALUE(BE, 4)));
    CHECK_EQ(OK(get(PROCESS, 0)), VALUE(BE, 4));
}

TEST(clone_io_shares_nothing_where_nothing_was_set) {
    pid_t pid = clone_with(CLONE_IO);
    if (pid == 0) {
        OK(set(PROCESS, 0, VALUE(BE, 5)));
        _exit(0);
    }
    EXITS(pid, 0);
    CHECK_EQ(OK(get(PROCESS, 0)), 0);
}
