/* The bases of FS and GS, which a program sets by instructions where the processor has FSGSBASE:
 * any value that it sets is its own, and no other program's. */
#define AREA "segment"
#include "harness.h"
#include <sys/auxv.h>

#define HWCAP2_FSGSBASE_ 2

/* Addresses of both halves, and two that are no addresses. Where the processor looks at the number
 * (#GP) it comes as SIGSEGV; QEMU's translation takes any. */
#define USER_BASE 0x123456789000UL
#define KERNEL_BASE 0xffff800000001000UL
#define NO_ADDRESS 0x8000000000000000UL
#define NO_ADDRESS_EITHER 0x0000800000000000UL

static void needs_instructions(void) {
    if (!(getauxval(AT_HWCAP2) & HWCAP2_FSGSBASE_))
        SKIP("the processor has no FSGSBASE, or the kernel does not use it");
}

static unsigned long get_gs(void) {
    unsigned long base;
    __asm__ volatile("rdgsbase %0" : "=r"(base));
    return base;
}

static void set_gs(unsigned long base) { __asm__ volatile("wrgsbase %0" : : "r"(base) : "memory"); }

/* Whether it is set; else the processor has refused it, and nothing has changed. */
static bool try_gs(unsigned long base) {
    unsigned long before = get_gs();
    int signal = FAULT(set_gs(base));
    if (signal == 0)
        return true;
    CHECK_EQ(signal, SIGSEGV);
    CHECK_EQ(get_gs(), before);
    return false;
}

/* System calls without the C library, which needs FS. */
static long raw(long number, long a, long b) {
    long result;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "0"(number), "D"(a), "S"(b)
                     : "rcx", "r11", "memory");
    return result;
}

/* Sleeps with this FS base; the base afterwards. */
__attribute__((noinline, optimize("no-stack-protector"))) static unsigned long
sleep_with_fs(unsigned long base) {
    static const struct timespec moment = {0, 2000000};
    unsigned long own, after;
    __asm__ volatile("rdfsbase %0" : "=r"(own));
    __asm__ volatile("wrfsbase %0" : : "r"(base) : "memory");
    raw(SYS_nanosleep, (long)&moment, 0);
    raw(SYS_sched_yield, 0, 0);
    __asm__ volatile("rdfsbase %0" : "=r"(after));
    __asm__ volatile("wrfsbase %0" : : "r"(own) : "memory");
    return after;
}

static const unsigned long bases[] = {
    0, USER_BASE, KERNEL_BASE, NO_ADDRESS, NO_ADDRESS_EITHER, ~0UL};
#define BASES (sizeof bases / sizeof *bases)

static void keep_bases_over_sleeps(void) {
    for (size_t i = 0; i < BASES; i++) {
        if (try_gs(bases[i])) {
            for (int round = 0; round < 3; round++) {
                msleep(1);
                CHECK_EQ(get_gs(), bases[i]);
            }
        }
        unsigned long after = 0;
        if (FAULT(after = sleep_with_fs(bases[i])) == 0)
            CHECK_EQ(after, bases[i]);
    }
    set_gs(0);
}

TEST(any_base_outlives_a_sleep) {
    needs_instructions();
    keep_bases_over_sleeps();
}

TEST(any_base_of_an_ordinary_user_outlives_a_sleep) {
    needs_instructions();
    IN_CHILD({
        BECOME(1000, 1000);
        keep_bases_over_sleeps();
    });
}

/* On one processor, so that each follows the other. */
static void *hold_a_base(void *argument) {
    unsigned long base = (unsigned long)argument;
    set_gs(base);
    for (int i = 0; i < 200; i++) {
        sched_yield();
        if (i % 20 == 0)
            msleep(1);
        CHECK_EQ(get_gs(), base);
    }
    return NULL;
}

TEST(threads_keep_their_own_base) {
    needs_instructions();
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(0, &one);
    OK(sched_setaffinity(0, sizeof one, &one));
    pthread_t threads[2 * BASES];
    size_t count = 0;
    for (size_t i = 0; i < 2 * BASES; i++)
        if (try_gs(bases[i % BASES])) {
            set_gs(0);
            ZERO(pthread_create(&threads[count++], NULL, hold_a_base, (void *)bases[i % BASES]));
        }
    for (size_t i = 0; i < count; i++)
        ZERO(pthread_join(threads[i], NULL));
    CHECK_EQ(get_gs(), 0);
}

TEST(a_base_is_never_that_of_who_ran_before) {
    needs_instructions();
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(0, &one);
    OK(sched_setaffinity(0, sizeof one, &one));
    pid_t pids[BASES];
    for (size_t i = 0; i < BASES; i++)
        if ((pids[i] = FORK()) == 0) {
            BECOME(1000 + (int)i, 1000);
            if (try_gs(bases[i]))
                hold_a_base((void *)bases[i]);
            _exit(0);
        }
    for (size_t i = 0; i < BASES; i++)
        EXITS(pids[i], 0);
}

TEST(a_child_inherits_the_base_and_a_program_does_not) {
    needs_instructions();
    static const unsigned long inherited[] = {USER_BASE, KERNEL_BASE, NO_ADDRESS};
    for (int i = 0; i < 3; i++) {
        if (!try_gs(inherited[i]))
            continue;
        pid_t pid = FORK();
        if (pid == 0) {
            CHECK_EQ(get_gs(), inherited[i]);
            msleep(1);
            CHECK_EQ(get_gs(), inherited[i]);
            execl(hy_self, hy_self, "--helper", "has_no_base", (char *)NULL);
            _exit(99);
        }
        EXITS(pid, 0);
        CHECK_EQ(get_gs(), inherited[i]);
    }
    set_gs(0);
}
HELPER(has_no_base) { return get_gs() == 0 ? 0 : 1; }

TEST(a_handler_and_its_return_keep_the_base) {
    needs_instructions();
    signal(SIGUSR1, SIG_IGN);
    struct sigaction act = {.sa_handler = hy_on_alarm};
    OK(sigaction(SIGALRM, &act, NULL));
    for (size_t i = 0; i < BASES; i++) {
        if (!try_gs(bases[i]))
            continue;
        struct itimerval soon = {.it_value = {0, 1000}};
        hy_alarmed = 0;
        OK(setitimer(ITIMER_REAL, &soon, NULL));
        while (!hy_alarmed)
            CHECK_EQ(get_gs(), bases[i]);
        CHECK_EQ(get_gs(), bases[i]);
    }
    set_gs(0);
}

TEST(arch_prctl_refuses_what_is_not_in_the_programs_half) {
    enum { SET_GS = 0x1001, SET_FS = 0x1002, GET_GS = 0x1004 };
    unsigned long base = 0;
    for (size_t i = 2; i < BASES; i++) {
        if (bases[i] == NO_ADDRESS_EITHER)
            continue; /* it is one with five levels of page tables */
        ERR(syscall(SYS_arch_prctl, SET_GS, bases[i]), EPERM);
        ERR(syscall(SYS_arch_prctl, SET_FS, bases[i]), EPERM);
    }
    OK(syscall(SYS_arch_prctl, SET_GS, USER_BASE));
    msleep(1);
    OK(syscall(SYS_arch_prctl, GET_GS, &base));
    CHECK_EQ(base, USER_BASE);
    ERR(syscall(SYS_clone, SIGCHLD | CLONE_SETTLS, 0, 0, 0, NO_ADDRESS), EPERM);
}
