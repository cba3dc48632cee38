/* Scheduling: policies, priorities, nice values, processors; what is inherited and what is
 * refused. */
#define AREA "sched"
#include "harness.h"

enum { OTHER = 0, FIFO = 1, RR = 2, BATCH = 3, IDLE = 5 };
#define RESET 0x40000000 /* SCHED_RESET_ON_FORK */
#define GONE 0x3ffffff0  /* no process has this number */
#ifndef RLIMIT_NICE
#define RLIMIT_NICE 13
#define RLIMIT_RTPRIO 14
#endif

/* struct sched_attr of sched_setattr(2). */
struct attr {
    uint32_t size, policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime, deadline, period;
    uint32_t util_min, util_max;
    uint64_t more[2];
};
enum { FLAG_RESET = 1, FLAG_KEEP_POLICY = 8, FLAG_KEEP_PARAMS = 0x10 };
#define ATTR_SIZE 48 /* the first one */

static long set_policy(pid_t pid, int policy, int priority) {
    struct sched_param param = {.sched_priority = priority};
    return syscall(SYS_sched_setscheduler, pid, policy, &param);
}
static long get_policy(pid_t pid) { return syscall(SYS_sched_getscheduler, pid); }
static long set_priority(pid_t pid, int priority) {
    struct sched_param param = {.sched_priority = priority};
    return syscall(SYS_sched_setparam, pid, &param);
}
static int get_priority(pid_t pid) {
    struct sched_param param = {-1};
    OK(syscall(SYS_sched_getparam, pid, &param));
    return param.sched_priority;
}
static int nice_of(pid_t pid) { return 20 - (int)OK(syscall(SYS_getpriority, PRIO_PROCESS, pid)); }

static void needs_root(void) {
    if (geteuid() != 0) SKIP("needs root");
}

static void needs_limits(void) {
    needs_root();
    struct rlimit limit;
    OK(getrlimit(RLIMIT_RTPRIO, &limit));
    limit.rlim_max = limit.rlim_max < 99 ? 99 : limit.rlim_max;
    if (setrlimit(RLIMIT_RTPRIO, &limit) == -1) SKIP("needs CAP_SYS_RESOURCE");
}

/* Privilege and then limits: realtime to `rtprio`, nice down to 20 - `nice`. */
static void become_limited(int rtprio, int nice) {
    struct rlimit rt = {(rlim_t)rtprio, (rlim_t)rtprio}, ni = {(rlim_t)nice, (rlim_t)nice};
    OK(setrlimit(RLIMIT_RTPRIO, &rt));
    OK(setrlimit(RLIMIT_NICE, &ni));
    BECOME(NOBODY, NOBODY);
}

TEST(policies_are_set_and_read) {
    needs_root();
    OK(set_policy(0, FIFO, 10));
    CHECK_EQ(get_policy(0), FIFO);
    CHECK_EQ(get_priority(0), 10);
    OK(set_priority(0, 20));
    CHECK_EQ(get_priority(0), 20);
    CHECK_EQ(get_policy(0), FIFO);
    OK(set_policy(0, RR, 1));
    CHECK_EQ(get_policy(0), RR);
    OK(set_policy(0, IDLE, 0));
    CHECK_EQ(get_policy(0), IDLE);
    CHECK_EQ(get_priority(0), 0);
    OK(set_policy(0, OTHER, 0));
}

TEST(reset_on_fork_is_kept_and_given_to_nobody) {
    needs_root();
    OK(set_policy(0, FIFO | RESET, 10));
    CHECK_EQ(get_policy(0), FIFO | RESET);
    OK(set_priority(0, 11)); /* keeps the flag */
    CHECK_EQ(get_policy(0), FIFO | RESET);
    IN_CHILD({
        CHECK_EQ(get_policy(0), OTHER);
        CHECK_EQ(get_priority(0), 0);
        CHECK_EQ(nice_of(0), 0);
    });
    OK(set_policy(0, FIFO, 11));
    CHECK_EQ(get_policy(0), FIFO);
    IN_CHILD(CHECK_EQ(get_policy(0), FIFO));
    OK(set_policy(0, OTHER | RESET, 0));
    OK(syscall(SYS_setpriority, PRIO_PROCESS, 0, -5));
    IN_CHILD(CHECK_EQ(nice_of(0), 0); CHECK_EQ(get_policy(0), OTHER));
    OK(syscall(SYS_setpriority, PRIO_PROCESS, 0, 5));
    IN_CHILD(CHECK_EQ(nice_of(0), 5); CHECK_EQ(get_policy(0), OTHER));
    CHECK_EQ(get_policy(0), OTHER | RESET);
    OK(set_policy(0, BATCH | RESET, 0));
    IN_CHILD(CHECK_EQ(get_policy(0), BATCH)); /* without the flag, but as it was */
}

static void *reset_thread(void *arg UNUSED) {
    CHECK_EQ(get_policy(0), OTHER);
    return NULL;
}

TEST(reset_on_fork_counts_for_threads) {
    needs_root();
    OK(set_policy(0, RR | RESET, 10));
    pthread_t thread;
    ZERO(pthread_create(&thread, NULL, reset_thread, NULL));
    ZERO(pthread_join(thread, NULL));
}

TEST(only_privilege_takes_reset_on_fork_away) {
    needs_root();
    OK(set_policy(0, OTHER | RESET, 0));
    become_limited(0, 0);
    OK(set_policy(0, BATCH | RESET, 0));
    ERR(set_policy(0, BATCH, 0), EPERM);
    OK(set_policy(0, OTHER | RESET, 0));
    ERR(set_policy(0, OTHER, 0), EPERM);
    struct attr attr = {.size = ATTR_SIZE, .policy = OTHER};
    ERR(syscall(SYS_sched_setattr, 0, &attr, 0), EPERM);
}

TEST(realtime_needs_a_limit) {
    needs_limits();
    IN_CHILD({
        become_limited(0, 0);
        ERR(set_policy(0, FIFO, 1), EPERM);
        OK(set_policy(0, BATCH, 0));
    });
    IN_CHILD({
        become_limited(5, 0);
        OK(set_policy(0, FIFO, 5));
        ERR(set_priority(0, 6), EPERM);
        ERR(set_policy(0, RR, 6), EPERM);
        OK(set_policy(0, RR, 2));
        OK(set_policy(0, OTHER, 0));
    });
    IN_CHILD({
        /* Above the limit already: down is allowed, up is not. */
        OK(set_policy(0, FIFO, 50));
        become_limited(5, 0);
        ERR(set_priority(0, 51), EPERM);
        OK(set_priority(0, 40));
        OK(set_priority(0, 40));
        struct rlimit none = {0, 0};
        OK(setrlimit(RLIMIT_RTPRIO, &none));
        OK(set_priority(0, 30));
        ERR(set_policy(0, RR, 30), EPERM);
    });
}

TEST(idle_is_left_only_as_the_nice_limit_says) {
    needs_limits();
    IN_CHILD({
        become_limited(0, 0);
        OK(set_policy(0, IDLE, 0));
        ERR(set_policy(0, OTHER, 0), EPERM);
        OK(set_policy(0, IDLE, 0));
    });
    IN_CHILD({
        become_limited(0, 20);
        OK(set_policy(0, IDLE, 0));
        OK(set_policy(0, OTHER, 0));
    });
}

TEST(nice_goes_up_freely_and_down_as_the_limit_says) {
    needs_limits();
    become_limited(0, 15); /* down to 5 */
    OK(syscall(SYS_setpriority, PRIO_PROCESS, 0, 10));
    CHECK_EQ(nice_of(0), 10);
    OK(syscall(SYS_setpriority, PRIO_PROCESS, 0, 5));
    ERR(syscall(SYS_setpriority, PRIO_PROCESS, 0, 4), EACCES);
    struct attr attr = {.size = ATTR_SIZE, .policy = OTHER, .nice = 4};
    ERR(syscall(SYS_sched_setattr, 0, &attr, 0), EPERM);
    attr.nice = 100; /* cut */
    OK(syscall(SYS_sched_setattr, 0, &attr, 0));
    CHECK_EQ(nice_of(0), 19);
}

TEST(others_are_out_of_reach) {
    needs_root();
    GATE(go);
    pid_t pid = FORK();
    if (pid == 0) {
        gate_pass(&go);
        _exit(0);
    }
    IN_CHILD({
        BECOME(NOBODY, NOBODY);
        unsigned long mask[16] = {1};
        struct attr attr = {.size = ATTR_SIZE, .policy = BATCH};
        ERR(set_policy(pid, BATCH, 0), EPERM);
        ERR(set_priority(pid, 0), EPERM);
        ERR(syscall(SYS_sched_setattr, pid, &attr, 0), EPERM);
        ERR(syscall(SYS_sched_setaffinity, pid, sizeof mask, mask), EPERM);
        ERR(syscall(SYS_setpriority, PRIO_PROCESS, pid, 5), EPERM);
        CHECK_EQ(get_policy(pid), OTHER); /* looking is free */
        CHECK_EQ(nice_of(pid), 0);
    });
    gate_open(&go);
    EXITS(pid, 0);
}

TEST(a_zombie_is_still_scheduled) {
    pid_t pid = FORK();
    if (pid == 0) {
        OK(set_policy(0, BATCH, 0));
        OK(syscall(SYS_setpriority, PRIO_PROCESS, 0, 7));
        _exit(0);
    }
    siginfo_t info;
    OK(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT));
    CHECK_EQ(get_policy(pid), BATCH);
    CHECK_EQ(get_priority(pid), 0);
    CHECK_EQ(nice_of(pid), 7);
    struct attr attr = {0};
    OK(syscall(SYS_sched_getattr, pid, &attr, sizeof attr, 0));
    CHECK_EQ(attr.policy, BATCH);
    CHECK_EQ(attr.nice, 7);
    OK(set_policy(pid, OTHER, 0));
    CHECK_EQ(get_policy(pid), OTHER);
    OK(syscall(SYS_setpriority, PRIO_PROCESS, pid, 9));
    CHECK_EQ(nice_of(pid), 9);
    struct timespec t;
    OK(syscall(SYS_sched_rr_get_interval, pid, &t));
    unsigned long mask[16] = {0};
    OK(syscall(SYS_sched_getaffinity, pid, sizeof mask, mask));
    OK(syscall(SYS_sched_setaffinity, pid, sizeof mask, mask));
    EXITS(pid, 0);
    ERR(get_policy(pid), ESRCH);
}

TEST(sched_setattr_keeps_what_it_is_told_to) {
    needs_root();
    struct attr attr = {.size = ATTR_SIZE, .policy = FIFO, .priority = 7, .flags = FLAG_RESET};
    OK(syscall(SYS_sched_setattr, 0, &attr, 0));
    CHECK_EQ(get_policy(0), FIFO | RESET);
    struct attr now = {.util_max = 77, .more = {77}};
    OK(syscall(SYS_sched_getattr, 0, &now, ATTR_SIZE, 0));
    CHECK_EQ(now.size, ATTR_SIZE);
    CHECK_EQ(now.policy, FIFO);
    CHECK_EQ(now.flags, FLAG_RESET);
    CHECK_EQ(now.priority, 7);
    CHECK_EQ(now.nice, 0);
    CHECK_EQ(now.util_max, 77); /* not more than was asked for */
    OK(syscall(SYS_sched_getattr, 0, &now, sizeof now, 0));
    CHECK_EQ(now.size, 56);
    attr = (struct attr){.size = ATTR_SIZE, .priority = 9, .flags = FLAG_KEEP_POLICY | FLAG_RESET};
    OK(syscall(SYS_sched_setattr, 0, &attr, 0));
    CHECK_EQ(get_policy(0), FIFO | RESET);
    CHECK_EQ(get_priority(0), 9);
    /* Size 0 is the first. The policy counts as a parameter (`__sched_setscheduler`). */
    attr = (struct attr){.policy = RR, .flags = FLAG_KEEP_PARAMS};
    OK(syscall(SYS_sched_setattr, 0, &attr, 0));
    CHECK_EQ(get_policy(0), FIFO);
    CHECK_EQ(get_priority(0), 9);
}

TEST(round_robin_has_a_slice_and_fifo_none) {
    needs_root();
    struct timespec t = {-1, -1};
    OK(set_policy(0, FIFO, 1));
    OK(syscall(SYS_sched_rr_get_interval, 0, &t));
    CHECK(t.tv_sec == 0 && t.tv_nsec == 0);
    OK(set_policy(0, RR, 1));
    OK(syscall(SYS_sched_rr_get_interval, 0, &t));
    CHECK(t.tv_sec == 0 && t.tv_nsec > 0);
}

/* ---- what is refused, call by call -------------------------------------------------------------- */

TEST(sched_setscheduler_errors) {
    struct sched_param zero = {0};
    ERR(syscall(SYS_sched_setscheduler, 0, -1, &zero), EINVAL);
    ERR(syscall(SYS_sched_setscheduler, -1, OTHER, &zero), EINVAL);
    ERR(syscall(SYS_sched_setscheduler, 0, OTHER, NULL), EINVAL);
    ERR(syscall(SYS_sched_setscheduler, 0, OTHER, BAD), EFAULT);
    ERR(syscall(SYS_sched_setscheduler, GONE, OTHER, &zero), ESRCH);
    ERR(syscall(SYS_sched_setscheduler, 0, 4, &zero), EINVAL);
    ERR(syscall(SYS_sched_setscheduler, 0, 99, &zero), EINVAL);
    /* SCHED_DEADLINE needs what only sched_setattr(2) can say. */
    ERR(syscall(SYS_sched_setscheduler, 0, 6, &zero), EINVAL);
    ERR(set_policy(0, 6, 1), EINVAL);
    ERR(set_policy(0, OTHER, 1), EINVAL);
    ERR(set_policy(0, BATCH, -1), EINVAL);
    ERR(set_policy(0, FIFO, 0), EINVAL);
    ERR(set_policy(0, FIFO, 100), EINVAL);
    ERR(set_policy(0, RR, -1), EINVAL);
}

TEST(sched_getscheduler_errors) {
    ERR(syscall(SYS_sched_getscheduler, -1), EINVAL);
    ERR(syscall(SYS_sched_getscheduler, GONE), ESRCH);
}

TEST(sched_setparam_errors) {
    struct sched_param zero = {0}, one = {.sched_priority = 1};
    ERR(syscall(SYS_sched_setparam, -1, &zero), EINVAL);
    ERR(syscall(SYS_sched_setparam, 0, NULL), EINVAL);
    ERR(syscall(SYS_sched_setparam, 0, BAD), EFAULT);
    ERR(syscall(SYS_sched_setparam, GONE, &zero), ESRCH);
    ERR(syscall(SYS_sched_setparam, 0, &one), EINVAL); /* not of a realtime policy */
}

TEST(sched_getparam_errors) {
    struct sched_param param;
    ERR(syscall(SYS_sched_getparam, -1, &param), EINVAL);
    ERR(syscall(SYS_sched_getparam, 0, NULL), EINVAL);
    ERR(syscall(SYS_sched_getparam, 0, BAD), EFAULT);
    ERR(syscall(SYS_sched_getparam, GONE, &param), ESRCH);
}

TEST(sched_setattr_errors) {
    struct attr attr = {.size = ATTR_SIZE};
    ERR(syscall(SYS_sched_setattr, -1, &attr, 0), EINVAL);
    ERR(syscall(SYS_sched_setattr, 0, NULL, 0), EINVAL);
    ERR(syscall(SYS_sched_setattr, 0, &attr, 1), EINVAL);
    ERR(syscall(SYS_sched_setattr, 0, BAD, 0), EFAULT);
    ERR(syscall(SYS_sched_setattr, GONE, &attr, 0), ESRCH);
    attr.policy = 99;
    ERR(syscall(SYS_sched_setattr, 0, &attr, 0), EINVAL);
    attr = (struct attr){.size = ATTR_SIZE, .policy = 0x80000000};
    ERR(syscall(SYS_sched_setattr, 0, &attr, 0), EINVAL);
    attr = (struct attr){.size = ATTR_SIZE, .flags = 1 << 20};
    ERR(syscall(SYS_sched_setattr, 0, &attr, 0), EINVAL);
    attr = (struct attr){.size = ATTR_SIZE, .flags = 0x20}; /* a bound without its field */
    ERR(syscall(SYS_sched_setattr, 0, &attr, 0), EINVAL);
    /* Bounds of utilisation: few kernels are built with them. */
    attr = (struct attr){.size = 56, .flags = 0x60, .util_min = 100, .util_max = 200};
    if (syscall(SYS_sched_setattr, 0, &attr, 0) == -1)
        CHECK_EQ(errno, EOPNOTSUPP);
    attr = (struct attr){.size = ATTR_SIZE, .priority = 1};
    ERR(syscall(SYS_sched_setattr, 0, &attr, 0), EINVAL);
    attr = (struct attr){.size = 47};
    ERR(syscall(SYS_sched_setattr, 0, &attr, 0), E2BIG);
    CHECK_EQ(attr.size, 56); /* the size that the kernel knows */
    attr = (struct attr){.size = 5000};
    ERR(syscall(SYS_sched_setattr, 0, &attr, 0), E2BIG);
    attr = (struct attr){.size = sizeof attr, .more = {1}};
    ERR(syscall(SYS_sched_setattr, 0, &attr, 0), E2BIG);
    attr = (struct attr){.size = sizeof attr};
    OK(syscall(SYS_sched_setattr, 0, &attr, 0)); /* larger, and nothing in it */
}

TEST(sched_getattr_errors) {
    struct attr attr;
    ERR(syscall(SYS_sched_getattr, -1, &attr, sizeof attr, 0), EINVAL);
    ERR(syscall(SYS_sched_getattr, 0, NULL, sizeof attr, 0), EINVAL);
    ERR(syscall(SYS_sched_getattr, 0, &attr, 47, 0), EINVAL);
    ERR(syscall(SYS_sched_getattr, 0, &attr, 4097, 0), EINVAL);
    ERR(syscall(SYS_sched_getattr, 0, &attr, sizeof attr, 1), EINVAL);
    ERR(syscall(SYS_sched_getattr, 0, BAD, sizeof attr, 0), EFAULT);
    ERR(syscall(SYS_sched_getattr, GONE, &attr, sizeof attr, 0), ESRCH);
}

TEST(sched_get_priority_errors) {
    ERR(syscall(SYS_sched_get_priority_max, -1), EINVAL);
    ERR(syscall(SYS_sched_get_priority_max, 4), EINVAL);
    ERR(syscall(SYS_sched_get_priority_max, FIFO | RESET), EINVAL);
    ERR(syscall(SYS_sched_get_priority_min, -1), EINVAL);
    ERR(syscall(SYS_sched_get_priority_min, 4), EINVAL);
}

TEST(sched_rr_get_interval_errors) {
    struct timespec t;
    ERR(syscall(SYS_sched_rr_get_interval, -1, &t), EINVAL);
    ERR(syscall(SYS_sched_rr_get_interval, GONE, &t), ESRCH);
    ERR(syscall(SYS_sched_rr_get_interval, 0, BAD), EFAULT);
}

TEST(sched_setaffinity_errors) {
    unsigned long mask[16] = {0};
    ERR(syscall(SYS_sched_setaffinity, 0, sizeof mask, BAD), EFAULT);
    ERR(syscall(SYS_sched_setaffinity, -1, sizeof mask, mask), ESRCH);
    ERR(syscall(SYS_sched_setaffinity, GONE, sizeof mask, mask), ESRCH);
    ERR(syscall(SYS_sched_setaffinity, 0, sizeof mask, mask), EINVAL); /* no processor left */
    ERR(syscall(SYS_sched_setaffinity, 0, 0, mask), EINVAL);
}

TEST(sched_getaffinity_errors) {
    unsigned long mask[256];
    ERR(syscall(SYS_sched_getaffinity, -1, sizeof mask, mask), ESRCH);
    ERR(syscall(SYS_sched_getaffinity, GONE, sizeof mask, mask), ESRCH);
    ERR(syscall(SYS_sched_getaffinity, 0, sizeof mask, BAD), EFAULT);
    ERR(syscall(SYS_sched_getaffinity, 0, 0, mask), EINVAL);
    ERR(syscall(SYS_sched_getaffinity, 0, sizeof mask - 1, mask), EINVAL);
}

TEST(getpriority_errors) {
    ERR(syscall(SYS_getpriority, -1, 0), EINVAL);
    ERR(syscall(SYS_getpriority, 3, 0), EINVAL);
    ERR(syscall(SYS_getpriority, PRIO_PROCESS, GONE), ESRCH);
    ERR(syscall(SYS_getpriority, PRIO_PROCESS, -1), ESRCH);
    ERR(syscall(SYS_getpriority, PRIO_PGRP, GONE), ESRCH);
    ERR(syscall(SYS_getpriority, PRIO_USER, 123456), ESRCH);
}

TEST(setpriority_errors) {
    ERR(syscall(SYS_setpriority, -1, 0, 0), EINVAL);
    ERR(syscall(SYS_setpriority, 3, 0, 0), EINVAL);
    ERR(syscall(SYS_setpriority, PRIO_PROCESS, GONE, 0), ESRCH);
    ERR(syscall(SYS_setpriority, PRIO_PROCESS, -1, 0), ESRCH);
    ERR(syscall(SYS_setpriority, PRIO_PGRP, GONE, 0), ESRCH);
    ERR(syscall(SYS_setpriority, PRIO_USER, 123456, 0), ESRCH);
}

TEST(getcpu_errors) {
    unsigned number;
    ERR(syscall(SYS_getcpu, BAD, NULL, NULL), EFAULT);
    ERR(syscall(SYS_getcpu, &number, BAD, NULL), EFAULT);
}
