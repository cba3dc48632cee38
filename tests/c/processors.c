/* Every processor: threads with registers of their own, signals, programs, and the kernel's
 * copies. */
#define AREA "processors"
#include "harness.h"
#include <cpuid.h>

enum { MOST = 64, THREADS = 2, ROUNDS = 40 };

static int processors(int list[MOST]) {
    cpu_set_t set;
    int n = 0;
    OK(sched_getaffinity(0, sizeof set, &set));
    for (int cpu = 0; cpu < CPU_SETSIZE && n < MOST; cpu++)
        if (CPU_ISSET(cpu, &set))
            list[n++] = cpu;
    CHECK(n > 0);
    return n;
}

static void stay_on(int cpu) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    OK(sched_setaffinity(0, sizeof set, &set));
    CHECK_EQ(sched_getcpu(), cpu);
}

/* Whether programs have the upper halves of the vector registers: both CPUID and the kernel say
 * so. */
static bool has_avx(void) {
    unsigned a, b, c, d, low, high;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_AVX) || !(c & bit_OSXSAVE))
        return false;
    __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (low & 6) == 6;
}

static _Thread_local volatile long own;
static _Thread_local volatile int signals;

/* Leaves nothing of the registers as it was. */
static void on_signal(int sig UNUSED) {
    static const double other = -1e300;
    __asm__ volatile("movsd %0, %%xmm0\n movsd %0, %%xmm7\n movsd %0, %%xmm15\n fninit\n fldz\n" ::"m"(
                         other)
                     : "xmm0", "xmm7", "xmm15");
    if (has_avx())
        __asm__ volatile("vpcmpeqd %%xmm0, %%xmm0, %%xmm0\n vinsertf128 $1, %%xmm0, %%ymm0, %%ymm7" ::
                             : "xmm0", "xmm7");
    signals++;
}

struct job {
    int cpu, number;
    pthread_barrier_t *together;
};

/*
 * Loads registers, gives the processor away, gets a signal, and finds the registers as they were:
 * in one piece of assembly, so that the compiler uses none of them in between.
 */
#define ROUND(load, store)                                                                         \
    __asm__ volatile(                                                                              \
        load "fldl 32(%[in])\n movsd 0(%[in]), %%xmm0\n movsd 8(%[in]), %%xmm4\n"                  \
             "movsd 16(%[in]), %%xmm7\n movsd 24(%[in]), %%xmm15\n"                                \
             "mov %[yield], %%eax\n syscall\n"                                                     \
             "mov %[pid], %%rdi\n mov %[thread], %%rsi\n mov %[sig], %%edx\n"                      \
             "mov %[tgkill], %%eax\n syscall\n"                                                    \
             "mov %[yield], %%eax\n syscall\n"                                                     \
             "movsd %%xmm0, 0(%[out])\n movsd %%xmm4, 8(%[out])\n"                                 \
             "movsd %%xmm7, 16(%[out])\n movsd %%xmm15, 24(%[out])\n fstpl 32(%[out])\n" store     \
        :                                                                                          \
        : [in] "r"(in), [out] "r"(out), [pid] "r"(pid), [thread] "r"(thread),                      \
          [wide_in] "r"(wide_in), [wide_out] "r"(wide_out), [yield] "i"(SYS_sched_yield),          \
          [tgkill] "i"(SYS_tgkill), [sig] "i"(SIGUSR1)                                             \
        : "rax", "rcx", "rdx", "rdi", "rsi", "r11", "xmm0", "xmm4", "xmm5", "xmm7", "xmm15", "st", \
          "memory")

static void round_of(double value, bool avx) {
    double in[5] = {value, value + 0.25, value + 0.5, value + 0.75, value + 0.875}, out[5] = {0};
    double wide_in[4] = {value, -value, value * 3, value / 3}, wide_out[4] = {0};
    long pid = getpid(), thread = syscall(SYS_gettid);
    if (avx)
        ROUND("vmovupd (%[wide_in]), %%ymm5\n", "vmovupd %%ymm5, (%[wide_out])\n");
    else
        ROUND("", "");
    CHECK(memcmp(in, out, sizeof in) == 0);
    CHECK(!avx || memcmp(wide_in, wide_out, sizeof wide_in) == 0);
}

static void *work(void *argument) {
    struct job *job = argument;
    bool avx = has_avx();
    stay_on(job->cpu);
    own = job->number;
    pthread_barrier_wait(job->together);
    for (int round = 0; round < ROUNDS; round++) {
        round_of(job->number * 1000 + round, avx);
        CHECK_EQ(own, job->number);
        CHECK_EQ(signals, round + 1);
        CHECK_EQ(sched_getcpu(), job->cpu);
    }
    return NULL;
}

TEST(threads_on_every_processor_keep_their_registers) {
    static struct job jobs[MOST * THREADS];
    static pthread_t threads[MOST * THREADS];
    int list[MOST], n = processors(list) * THREADS;
    pthread_barrier_t together;
    struct sigaction act = {.sa_handler = on_signal};
    OK(sigaction(SIGUSR1, &act, NULL));
    ZERO(pthread_barrier_init(&together, NULL, (unsigned)n));
    for (int i = 0; i < n; i++) {
        jobs[i] = (struct job){list[i / THREADS], i + 1, &together};
        ZERO(pthread_create(&threads[i], NULL, work, &jobs[i]));
    }
    for (int i = 0; i < n; i++)
        ZERO(pthread_join(threads[i], NULL));
}

HELPER(where) {
    (void)argc, (void)argv;
    return sched_getcpu();
}

TEST(programs_start_on_every_processor) {
    int list[MOST], n = processors(list);
    pid_t pids[MOST];
    for (int i = 0; i < n; i++) {
        pids[i] = OK(fork());
        if (pids[i] == 0) {
            stay_on(list[i]);
            execl(hy_self, hy_self, "--helper", "where", NULL);
            _exit(255);
        }
    }
    for (int i = 0; i < n; i++) {
        int status;
        CHECK_EQ(OK(waitpid(pids[i], &status, 0)), pids[i]);
        CHECK(WIFEXITED(status));
        CHECK_EQ(WEXITSTATUS(status), list[i]);
    }
}

/* With and without the processor's help to keep the kernel out of a program's memory. */
TEST(the_kernel_copies_what_it_may_on_every_processor) {
    static char large[3 * 4096];
    int list[MOST], n = processors(list), ends[2];
    OK(pipe(ends));
    for (int i = 0; i < n; i++) {
        stay_on(list[i]);
        memset(large, 'a' + i, sizeof large);
        CHECK_EQ(OK(write(ends[1], large, sizeof large)), sizeof large);
        memset(large, 0, sizeof large);
        CHECK_EQ(OK(read(ends[0], large, sizeof large)), sizeof large);
        for (size_t at = 0; at < sizeof large; at++)
            CHECK(large[at] == 'a' + i);
        ERR(write(ends[1], BAD, 1), EFAULT);
        ERR(write(ends[1], KERNEL_ADDRESS, 1), EFAULT);
        CHECK_EQ(FAULT(POKE(KERNEL_ADDRESS, 1)), SIGSEGV);
    }
}

/* With and without an instruction that makes them. */
TEST(random_numbers_are_no_two_alike) {
    unsigned char numbers[2][32];
    const unsigned char none[32] = {0};
    for (int i = 0; i < 2; i++)
        CHECK_EQ(OK(syscall(SYS_getrandom, numbers[i], sizeof numbers[i], 0)), sizeof numbers[i]);
    CHECK(memcmp(numbers[0], numbers[1], sizeof none) != 0);
    CHECK(memcmp(numbers[0], none, sizeof none) != 0);
}
