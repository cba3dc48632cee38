/* Restartable sequences: rseq(2), include/uapi/linux/rseq.h, kernel/rseq.c of Linux 6.1; and the
 * commands of membarrier(2) about them. */
#define AREA "rseq"
#include "trace.h"

#include <sys/sysinfo.h>
#include <ucontext.h>

#ifndef SYS_rseq
#define SYS_rseq 334
#endif

enum { SIZE = 32, UNREGISTER = 1 };
#define SIGNATURE 0x53053053u

struct area {
    volatile uint32_t cpu_start, cpu;
    volatile uint64_t sequence;
    volatile uint32_t flags, rest[3];
} __attribute__((aligned(32)));

struct sequence {
    uint32_t version, flags;
    uint64_t start, length, abort;
} __attribute__((aligned(32)));

/* That of this thread. */
static _Thread_local struct area area;

static long rseq(volatile void *at, unsigned size, int flags, unsigned signature) {
    return syscall(SYS_rseq, at, size, flags, signature);
}

/* Where glibc tells of the area that it registers for each thread (since 2.35). */
extern const ptrdiff_t __rseq_offset __attribute__((weak));
extern const unsigned __rseq_size __attribute__((weak));

/* Gives up the area that the C library has registered, if it has. */
static void give_up(void) {
    if (&__rseq_size != NULL && __rseq_size != 0) {
        volatile struct area *own = (void *)((char *)__builtin_thread_pointer() + __rseq_offset);
        if ((int32_t)own->cpu >= 0) OK(rseq(own, SIZE, UNREGISTER, SIGNATURE));
    }
    long r = rseq(&area, SIZE, 0, SIGNATURE);
    if (r == -1 && errno == ENOSYS)
        SKIP("no rseq");
    ZERO(r);
    OK(rseq(&area, SIZE, UNREGISTER, SIGNATURE));
}

static void begin(void) {
    give_up();
    OK(rseq(&area, SIZE, 0, SIGNATURE));
}

static void run_on(int cpu) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    OK(sched_setaffinity(0, sizeof set, &set));
}

/* ---- the call ------------------------------------------------------------------------------- */

TEST(an_area_shows_the_processor) {
    give_up();
    area.cpu_start = 99, area.cpu = 99;
    OK(rseq(&area, SIZE, 0, SIGNATURE));
    CHECK_EQ(area.cpu, (uint32_t)sched_getcpu());
    CHECK_EQ(area.cpu_start, area.cpu);
    for (int cpu = 0; cpu < get_nprocs(); cpu++) {
        run_on(cpu);
        CHECK_EQ(area.cpu, (uint32_t)cpu);
        CHECK_EQ(area.cpu_start, (uint32_t)cpu);
    }
    OK(rseq(&area, SIZE, UNREGISTER, SIGNATURE));
    CHECK_EQ(area.cpu, 0xffffffffu);
    CHECK_EQ(area.cpu_start, 0u);
}

TEST(wrong_arguments) {
    give_up();
    ERR(rseq(&area, SIZE, 2, SIGNATURE), EINVAL);
    ERR(rseq(&area, SIZE, UNREGISTER | 2, SIGNATURE), EINVAL);
    ERR(rseq(&area, SIZE, UNREGISTER, SIGNATURE), EINVAL);
    ERR(rseq(&area, 16, 0, SIGNATURE), EINVAL);
    ERR(rseq((volatile char *)&area + 8, SIZE, 0, SIGNATURE), EINVAL);
    ERR(rseq(KERNEL_ADDRESS, SIZE, 0, SIGNATURE), EFAULT);
    ERR(rseq((void *)0x7ffffffff000UL, SIZE, 0, SIGNATURE), EFAULT);
    OK(rseq(&area, SIZE, 0, SIGNATURE));
    static struct area other;
    ERR(rseq(&area, SIZE, 0, SIGNATURE), EBUSY);
    ERR(rseq(&area, SIZE, 0, SIGNATURE + 1), EPERM);
    ERR(rseq(&other, SIZE, 0, SIGNATURE), EINVAL);
    ERR(rseq(&area, 64, 0, SIGNATURE), EINVAL);
    ERR(rseq(&other, SIZE, UNREGISTER, SIGNATURE), EINVAL);
    ERR(rseq(&area, 64, UNREGISTER, SIGNATURE), EINVAL);
    ERR(rseq(&area, SIZE, UNREGISTER, SIGNATURE + 1), EPERM);
    OK(rseq(&area, SIZE, UNREGISTER, SIGNATURE));
    OK(rseq(&other, SIZE, 0, SIGNATURE + 1));
}

TEST(an_area_that_cannot_be_written_ends_the_program) {
    give_up();
    char *page = mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    pid_t pid = FORK();
    if (pid == 0) {
        rseq(page, SIZE, 0, SIGNATURE);
        _exit(0);
    }
    KILLED(pid, SIGSEGV);
    /* One that cannot be written any more, at the next look. */
    pid = FORK();
    if (pid == 0) {
        OK(rseq(&area, SIZE, 0, SIGNATURE));
        uintptr_t at = (uintptr_t)&area & ~(PAGE - 1);
        OK(mprotect((void *)at, PAGE, PROT_NONE));
        for (;;)
            msleep(1);
    }
    KILLED(pid, SIGSEGV);
}

/* ---- who has one ---------------------------------------------------------------------------- */

static int shares_memory(void *arg UNUSED) {
    /* Not registered: another area may be. */
    static struct area other;
    return rseq(&other, SIZE, 0, SIGNATURE + 2) == 0 ? 0 : errno;
}

TEST(a_child_has_its_parents_and_a_thread_none) {
    begin();
    pid_t pid = FORK();
    if (pid == 0) {
        for (int cpu = 0; cpu < get_nprocs(); cpu++) {
            run_on(cpu);
            CHECK_EQ(area.cpu, (uint32_t)cpu);
        }
        ERR(rseq(&area, SIZE, 0, SIGNATURE), EBUSY);
        OK(rseq(&area, SIZE, UNREGISTER, SIGNATURE));
        _exit(0);
    }
    EXITS(pid, 0);
    ERR(rseq(&area, SIZE, 0, SIGNATURE), EBUSY);
    static char stack[65536] __attribute__((aligned(16)));
    pid = clone(shares_memory, stack + sizeof stack, CLONE_VM | CLONE_VFORK | SIGCHLD, NULL);
    CHECK(pid > 0);
    EXITS(pid, 0);
}

HELPER(after_exec) {
    /* What the C library has registered is its own. */
    give_up();
    OK(rseq(&area, SIZE, 0, SIGNATURE));
    CHECK_EQ(area.cpu, (uint32_t)sched_getcpu());
    return 0;
}

TEST(a_new_program_has_none) {
    begin();
    pid_t pid = FORK();
    if (pid == 0) {
        execl(hy_self, hy_self, "--helper", "after_exec", NULL);
        _exit(99);
    }
    EXITS(pid, 0);
}

/* ---- sequences ------------------------------------------------------------------------------ */

/* Counts `turns` in a sequence, at most `most`; returns how many were counted, and in *aborted
 * whether it ended at the abort address. The number of the sequence's area is stored by its first
 * instruction. */
__attribute__((noinline)) static uint64_t count_in_sequence(struct sequence *sequence,
                                                            uint64_t most, bool *aborted) {
    uint64_t turns = 0, ended = 0, scratch;
    __asm__ volatile("leaq 1f(%%rip), %[s]\n\t"
                     "movq %[s], 8(%[d])\n\t"
                     "leaq 2f(%%rip), %[s]\n\t"
                     "leaq 1f(%%rip), %%rcx\n\t"
                     "subq %%rcx, %[s]\n\t"
                     "movq %[s], 16(%[d])\n\t"
                     "leaq 4f(%%rip), %[s]\n\t"
                     "movq %[s], 24(%[d])\n\t"
                     "movq %[d], 8(%[a])\n\t"
                     "1:\n\t"
                     "incq %[t]\n\t"
                     "cmpq %[m], %[t]\n\t"
                     "jb 1b\n\t"
                     "2:\n\t"
                     "jmp 5f\n\t"
                     ".byte 0x0f, 0xb9, 0x3d\n\t" /* ud1, as librseq has it */
                     ".long 0x53053053\n\t"
                     "4:\n\t"
                     "movq $1, %[e]\n\t"
                     "5:\n\t"
                     : [s] "=&r"(scratch), [t] "+&r"(turns), [e] "+&r"(ended)
                     : [d] "r"(sequence), [a] "r"(&area), [m] "r"(most)
                     : "rcx", "memory", "cc");
    *aborted = ended != 0;
    return turns;
}

static struct sequence sequence;
static volatile int signals;
static void on_signal(int sig UNUSED) { signals++; }

TEST(a_sequence_that_nothing_interrupts_is_completed) {
    begin();
    int completed = 0;
    for (int i = 0; i < 1000; i++) {
        bool aborted;
        if (count_in_sequence(&sequence, 10, &aborted) == 10 && !aborted)
            completed++;
    }
    CHECK(completed > 900);
    CHECK_EQ(area.sequence, (uint64_t)(uintptr_t)&sequence);
    /* The next look finds that the thread is not in it. */
    run_on(0);
    msleep(1);
    CHECK_EQ(area.sequence, 0u);
}

TEST(a_switch_ends_a_sequence) {
    begin();
    run_on(0);
    pid_t other = FORK();
    if (other == 0)
        for (;;)
            ;
    bool aborted;
    CHECK(count_in_sequence(&sequence, UINT64_MAX, &aborted) > 0);
    CHECK(aborted);
    CHECK_EQ(area.sequence, 0u);
    end_by_kill(other);
}

TEST(a_signal_ends_a_sequence_before_its_handler) {
    begin();
    signal(SIGALRM, on_signal);
    struct itimerval soon = {{0, 0}, {0, 20000}};
    OK(setitimer(ITIMER_REAL, &soon, NULL));
    bool aborted = false;
    do
        count_in_sequence(&sequence, UINT64_MAX, &aborted);
    while (signals == 0);
    CHECK(aborted);
    CHECK_EQ(signals, 1);
    CHECK_EQ(area.sequence, 0u);
}

static volatile uintptr_t seen_at;
static void on_shown(int sig UNUSED, siginfo_t *info UNUSED, void *context) {
    seen_at = (uintptr_t)((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP];
    signals++;
}

TEST(a_handler_sees_the_abort_address) {
    begin();
    struct sigaction action = {.sa_sigaction = on_shown, .sa_flags = SA_SIGINFO};
    OK(sigaction(SIGALRM, &action, NULL));
    /* The signal may come where the sequence has just been ended by a switch: again then. */
    for (int tries = 0; tries < 20 && seen_at != sequence.abort; tries++) {
        struct itimerval soon = {{0, 0}, {0, 5000}};
        signals = 0;
        OK(setitimer(ITIMER_REAL, &soon, NULL));
        bool aborted;
        do
            count_in_sequence(&sequence, UINT64_MAX, &aborted);
        while (signals == 0);
    }
    CHECK_EQ(seen_at, (uintptr_t)sequence.abort);
}

/* A sequence that must not be used: SIGSEGV at the next look. */
static int with_sequence(const struct sequence *wrong, uint32_t flags) {
    pid_t pid = FORK();
    if (pid == 0) {
        static struct sequence own;
        own = *wrong;
        area.sequence = (uintptr_t)&own;
        area.flags = flags;
        for (int i = 0; i < 100; i++)
            msleep(1);
        _exit(0);
    }
    return WAIT(pid);
}

TEST(wrong_sequences) {
    begin();
    /* Somewhere that the thread is not; the signature stands before the abort address. */
    bool aborted;
    count_in_sequence(&sequence, 1, &aborted);
    struct sequence good = sequence, s;
    CHECK_EQ(with_sequence(&good, 0), 0);
    s = good, s.version = 1;
    CHECK_EQ(with_sequence(&s, 0), SIGSEGV);
    s = good, s.abort = good.start;
    CHECK_EQ(with_sequence(&s, 0), SIGSEGV);
    s = good, s.abort = good.abort + 1;
    CHECK_EQ(with_sequence(&s, 0), SIGSEGV);
    s = good, s.abort = (uintptr_t)KERNEL_ADDRESS;
    CHECK_EQ(with_sequence(&s, 0), SIGSEGV);
    s = good, s.abort = 8;
    CHECK_EQ(with_sequence(&s, 0), SIGSEGV);
    s = good, s.start = (uintptr_t)KERNEL_ADDRESS;
    CHECK_EQ(with_sequence(&s, 0), SIGSEGV);
    s = good, s.length = UINT64_MAX;
    CHECK_EQ(with_sequence(&s, 0), SIGSEGV);
    /* Flags count only inside. */
    s = good, s.flags = 1;
    CHECK_EQ(with_sequence(&s, 7), 0);
    pid_t pid = FORK();
    if (pid == 0) {
        area.sequence = (uintptr_t)KERNEL_ADDRESS;
        for (;;)
            msleep(1);
    }
    KILLED(pid, SIGSEGV);
}

TEST(flags_inside_a_sequence_are_refused) {
    begin();
    for (int which = 0; which < 2; which++) {
        pid_t pid = FORK();
        if (pid == 0) {
            if (which == 0)
                sequence.flags = 2;
            else
                area.flags = 4;
            struct itimerval soon = {{0, 0}, {0, 20000}};
            signal(SIGALRM, on_signal);
            OK(setitimer(ITIMER_REAL, &soon, NULL));
            bool aborted;
            count_in_sequence(&sequence, UINT64_MAX, &aborted);
            _exit(0);
        }
        KILLED(pid, SIGSEGV);
    }
}

/* ---- barriers ------------------------------------------------------------------------------- */

enum { BARRIER_RSEQ = 1 << 7, REGISTER_BARRIER_RSEQ = 1 << 8, ON_CPU = 1 };

static long barrier(int command, unsigned flags, int cpu) {
    return syscall(SYS_membarrier, command, flags, cpu);
}

TEST(rules_of_the_barrier) {
    give_up();
    long known = barrier(0, 0, 0);
    CHECK_EQ(known & (BARRIER_RSEQ | REGISTER_BARRIER_RSEQ), BARRIER_RSEQ | REGISTER_BARRIER_RSEQ);
    ERR(barrier(BARRIER_RSEQ, 0, 0), EPERM);
    ERR(barrier(REGISTER_BARRIER_RSEQ, ON_CPU, 0), EINVAL);
    OK(barrier(REGISTER_BARRIER_RSEQ, 0, 0));
    OK(barrier(BARRIER_RSEQ, 0, 0));
    OK(barrier(BARRIER_RSEQ, ON_CPU, 0));
    OK(barrier(BARRIER_RSEQ, ON_CPU, 4000));
    OK(barrier(BARRIER_RSEQ, ON_CPU, -1));
    ERR(barrier(BARRIER_RSEQ, 2, 0), EINVAL);
}

static volatile bool begun;
static volatile long aborts;

static void *count_aborts(void *arg UNUSED) {
    begin();
    run_on(1);
    static struct sequence own;
    begun = true;
    for (;;) {
        bool aborted;
        count_in_sequence(&own, UINT64_MAX, &aborted);
        if (aborted)
            aborts++;
    }
    return NULL;
}

TEST(a_barrier_ends_the_sequences_of_other_threads) {
    if (get_nprocs() < 2)
        SKIP("one processor");
    give_up();
    OK(barrier(REGISTER_BARRIER_RSEQ, 0, 0));
    run_on(0);
    pthread_t thread;
    ZERO(pthread_create(&thread, NULL, count_aborts, NULL));
    EVENTUALLY(begun);
    for (int i = 0; i < 50; i++) {
        long before = aborts;
        OK(barrier(BARRIER_RSEQ, i & 1 ? ON_CPU : 0, 1));
        EVENTUALLY(aborts != before);
    }
}

/* ---- many threads --------------------------------------------------------------------------- */

enum { COUNTERS = 64, THREADS = 4, ROUNDS = 20000 };
static struct {
    volatile uint64_t count;
    char rest[56];
} counters[COUNTERS] __attribute__((aligned(64)));

/* Counts once in this processor's counter, without a locked instruction: what lies between the
 * loading and the storing is a sequence. Returns whether it was completed. */
__attribute__((noinline)) static bool count_here(struct sequence *sequence) {
    uint32_t cpu = area.cpu_start;
    uint64_t ended = 0, scratch;
    __asm__ volatile("leaq 1f(%%rip), %[s]\n\t"
                     "movq %[s], 8(%[d])\n\t"
                     "leaq 2f(%%rip), %[s]\n\t"
                     "leaq 1f(%%rip), %%rcx\n\t"
                     "subq %%rcx, %[s]\n\t"
                     "movq %[s], 16(%[d])\n\t"
                     "leaq 4f(%%rip), %[s]\n\t"
                     "movq %[s], 24(%[d])\n\t"
                     "movq %[d], 8(%[a])\n\t"
                     "1:\n\t"
                     "cmpl %[c], 4(%[a])\n\t"
                     "jne 4f\n\t"
                     "movq (%[p]), %[s]\n\t"
                     "movl $200, %%ecx\n\t"
                     "3:\n\t"
                     "decl %%ecx\n\t"
                     "jnz 3b\n\t"
                     "incq %[s]\n\t"
                     "movq %[s], (%[p])\n\t"
                     "2:\n\t"
                     "jmp 5f\n\t"
                     ".byte 0x0f, 0xb9, 0x3d\n\t"
                     ".long 0x53053053\n\t"
                     "4:\n\t"
                     "movq $1, %[e]\n\t"
                     "5:\n\t"
                     : [s] "=&r"(scratch), [e] "+&r"(ended)
                     : [d] "r"(sequence), [a] "r"(&area), [c] "r"(cpu),
                       [p] "r"(&counters[cpu % COUNTERS].count)
                     : "rcx", "memory", "cc");
    return ended == 0;
}

static volatile long broken;

static void *count_many(void *arg UNUSED) {
    begin();
    struct sequence own = {0};
    for (int i = 0; i < ROUNDS; i++)
        while (!count_here(&own))
            __atomic_fetch_add(&broken, 1, __ATOMIC_RELAXED);
    /* Before the memory of the area and of the sequence goes. */
    OK(rseq(&area, SIZE, UNREGISTER, SIGNATURE));
    return NULL;
}

TEST(counters_of_processors_lose_nothing) {
    give_up();
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        ZERO(pthread_create(&threads[i], NULL, count_many, NULL));
    for (int i = 0; i < THREADS; i++)
        ZERO(pthread_join(threads[i], NULL));
    uint64_t sum = 0;
    for (int i = 0; i < COUNTERS; i++)
        sum += counters[i].count;
    CHECK_EQ(sum, (uint64_t)THREADS * ROUNDS);
}

/* ---- a tracer ------------------------------------------------------------------------------- */

struct configuration {
    uint64_t pointer;
    uint32_t size, signature, flags, pad;
};
#define GET_CONFIGURATION 0x420f

TEST(a_tracer_learns_the_area) {
    give_up();
    pid_t pid = TRACED({
        OK(rseq(&area, SIZE, 0, SIGNATURE));
        kill(getpid(), SIGSTOP);
    });
    struct configuration told = {1, 1, 1, 1, 1};
    CHECK_EQ(OK(T(GET_CONFIGURATION, pid, sizeof told, &told)), (long)sizeof told);
    CHECK_EQ(told.pointer, 0u);
    CHECK_EQ(told.signature, 0u);
    OK(T(PTRACE_CONT, pid, 0, 0));
    STOPS(pid, SIGSTOP);
    CHECK_EQ(OK(T(GET_CONFIGURATION, pid, sizeof told, &told)), (long)sizeof told);
    CHECK_EQ(told.pointer, (uint64_t)(uintptr_t)&area);
    CHECK_EQ(told.size, 32u);
    CHECK_EQ(told.signature, SIGNATURE);
    CHECK_EQ(told.flags | told.pad, 0u);
    told = (struct configuration){1, 1, 1, 1, 1};
    CHECK_EQ(OK(T(GET_CONFIGURATION, pid, 8, &told)), (long)sizeof told);
    CHECK_EQ(told.size, 1u);
    ERR(T(GET_CONFIGURATION, pid, sizeof told, bad_address()), EFAULT);
    finish(pid);
}
