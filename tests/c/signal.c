/* Signals: handlers, siginfo, masks, alternate stacks, queues, restarts, stops. */
#define AREA "signal"
#include "harness.h"
#include <sys/socket.h>
#include <ucontext.h>

static volatile int count, last_signal, last_code, last_value;
static volatile pid_t last_pid;
static volatile int order[64];
static void note(int sig, siginfo_t *info, void *context UNUSED) {
    last_signal = sig;
    last_code = info->si_code;
    last_pid = info->si_pid;
    last_value = info->si_value.sival_int;
    if (count < 64)
        order[count] = sig << 8 | (info->si_value.sival_int & 0xff);
    count++;
}

static void handle(int sig, int flags) {
    struct sigaction act = {.sa_sigaction = note, .sa_flags = SA_SIGINFO | flags};
    OK(sigaction(sig, &act, NULL));
}

static sigset_t set_of(int a, int b) {
    sigset_t set;
    sigemptyset(&set);
    if (a)
        sigaddset(&set, a);
    if (b)
        sigaddset(&set, b);
    return set;
}

static void block(int a, int b) {
    sigset_t set = set_of(a, b);
    OK(sigprocmask(SIG_BLOCK, &set, NULL));
}
static void unblock(int a, int b) {
    sigset_t set = set_of(a, b);
    OK(sigprocmask(SIG_UNBLOCK, &set, NULL));
}
static bool is_pending(int sig) {
    sigset_t set;
    OK(sigpending(&set));
    return sigismember(&set, sig);
}

/* A timer that sends SIGALRM again and again, so that no signal comes too early to matter. */
static void alarms(long ms) {
    struct itimerval t = {{0, ms * 1000}, {0, ms * 1000}};
    OK(setitimer(ITIMER_REAL, &t, NULL));
}

/* ---- delivery ---------------------------------------------------------------------------------- */

TEST(handler_runs_before_kill_returns) {
    handle(SIGUSR1, 0);
    OK(kill(getpid(), SIGUSR1));
    CHECK_EQ(count, 1);
    CHECK_EQ(last_signal, SIGUSR1);
    CHECK_EQ(last_code, SI_USER);
    CHECK_EQ(last_pid, getpid());
}

TEST(sigqueue_carries_a_value) {
    handle(SIGUSR1, 0);
    union sigval v = {.sival_int = 4711};
    OK(sigqueue(getpid(), SIGUSR1, v));
    CHECK_EQ(last_code, SI_QUEUE);
    CHECK_EQ(last_value, 4711);
    CHECK_EQ(last_pid, getpid());
}

TEST(sigqueue_errors) {
    union sigval v = {0};
    ERR(sigqueue(getpid(), 65, v), EINVAL);
    ERR(sigqueue(0x3ffffff0, SIGUSR1, v), ESRCH);
    /* one may not pretend that the kernel sent it (rt_sigqueueinfo(2)) */
    siginfo_t info = {.si_code = SI_USER};
    pid_t child = FORK();
    if (child == 0)
        for (;;)
            pause();
    ERR(syscall(SYS_rt_sigqueueinfo, child, SIGUSR1, &info), EPERM);
    ERR(syscall(SYS_rt_sigqueueinfo, child, SIGUSR1, BAD), EFAULT);
    OK(kill(child, SIGKILL));
    KILLED(child, SIGKILL);
}

TEST(mask_holds_a_signal_back) {
    handle(SIGUSR1, 0);
    block(SIGUSR1, 0);
    OK(kill(getpid(), SIGUSR1));
    CHECK_EQ(count, 0);
    CHECK(is_pending(SIGUSR1));
    unblock(SIGUSR1, 0);
    CHECK_EQ(count, 1); /* delivered before sigprocmask returns */
    CHECK(!is_pending(SIGUSR1));
}

TEST(standard_signals_do_not_queue) {
    handle(SIGUSR1, 0);
    block(SIGUSR1, 0);
    for (int i = 0; i < 5; i++)
        OK(kill(getpid(), SIGUSR1));
    unblock(SIGUSR1, 0);
    CHECK_EQ(count, 1);
}

TEST(realtime_signals_queue_in_order) {
    handle(SIGRTMIN, 0);
    handle(SIGRTMIN + 1, 0);
    block(SIGRTMIN, SIGRTMIN + 1);
    static const int sent[][2] = {{1, 10}, {0, 20}, {1, 11}, {0, 21}, {0, 22}};
    for (size_t i = 0; i < 5; i++) {
        union sigval v = {.sival_int = sent[i][1]};
        OK(sigqueue(getpid(), SIGRTMIN + sent[i][0], v));
    }
    /* Taken one at a time: lowest number first, then first come first served (signal(7)). */
    static const int want[][2] = {{0, 20}, {0, 21}, {0, 22}, {1, 10}, {1, 11}};
    sigset_t set = set_of(SIGRTMIN, SIGRTMIN + 1);
    for (int i = 0; i < 5; i++) {
        siginfo_t info;
        CHECK_EQ(OK(sigwaitinfo(&set, &info)), SIGRTMIN + want[i][0]);
        CHECK_EQ(info.si_value.sival_int, want[i][1]);
    }
    CHECK_EQ(count, 0);
}

TEST(realtime_queue_is_bounded) {
    struct rlimit small = {5, 5};
    IN_CHILD({
        BECOME(60001, 60001); /* the limit counts per user */
        OK(setrlimit(RLIMIT_SIGPENDING, &small));
        block(SIGRTMIN, 0);
        union sigval v = {.sival_int = 1};
        int n = 0;
        while (n < 100 && sigqueue(getpid(), SIGRTMIN, v) == 0)
            n++;
        CHECK_EQ(errno, EAGAIN);
        CHECK_EQ(n, 5);
        block(SIGUSR1, 0);
        OK(kill(getpid(), SIGUSR1)); /* a standard signal needs no room in the queue */
        CHECK(is_pending(SIGUSR1));
    });
}

TEST(lower_numbers_are_delivered_first) {
    handle(SIGUSR1, 0);
    handle(SIGUSR2, 0);
    handle(SIGHUP, 0);
    sigset_t all;
    sigfillset(&all);
    OK(sigprocmask(SIG_SETMASK, &all, NULL));
    OK(kill(getpid(), SIGUSR2));
    OK(kill(getpid(), SIGUSR1));
    OK(kill(getpid(), SIGHUP));
    sigemptyset(&all);
    OK(sigprocmask(SIG_SETMASK, &all, NULL));
    CHECK_EQ(count, 3);
    /* Handlers are stacked in order, so the one stacked last runs first. */
    CHECK_EQ(order[0] >> 8, SIGUSR2);
    CHECK_EQ(order[1] >> 8, SIGUSR1);
    CHECK_EQ(order[2] >> 8, SIGHUP);
}

static volatile int depth, deepest;
static void nest(int sig) {
    if (++depth > deepest)
        deepest = depth;
    if (++count < 3)
        raise(sig);
    depth--;
}

TEST(own_signal_is_masked_in_the_handler) {
    signal(SIGUSR1, nest);
    OK(raise(SIGUSR1));
    CHECK_EQ(deepest, 1);
    CHECK_EQ(count, 3); /* each raise came after the handler had returned */
}

TEST(sa_nodefer_lets_it_nest) {
    struct sigaction act = {.sa_handler = nest, .sa_flags = SA_NODEFER};
    OK(sigaction(SIGUSR1, &act, NULL));
    OK(raise(SIGUSR1));
    CHECK_EQ(deepest, 3);
    CHECK_EQ(count, 3);
}

static sigset_t mask_inside;
static void note_mask(int sig UNUSED) { sigprocmask(SIG_BLOCK, NULL, &mask_inside); }

TEST(sa_mask_is_added_and_taken_back) {
    struct sigaction act = {.sa_handler = note_mask, .sa_mask = set_of(SIGUSR2, SIGHUP)};
    OK(sigaction(SIGUSR1, &act, NULL));
    block(SIGWINCH, 0);
    OK(raise(SIGUSR1));
    CHECK(sigismember(&mask_inside, SIGUSR1) && sigismember(&mask_inside, SIGUSR2));
    CHECK(sigismember(&mask_inside, SIGHUP) && sigismember(&mask_inside, SIGWINCH));
    CHECK(!sigismember(&mask_inside, SIGTERM));
    sigset_t now;
    OK(sigprocmask(SIG_BLOCK, NULL, &now));
    CHECK(!sigismember(&now, SIGUSR1) && !sigismember(&now, SIGUSR2) && sigismember(&now, SIGWINCH));
}

TEST(sa_resethand_is_for_one_signal) {
    handle(SIGUSR1, SA_RESETHAND);
    OK(raise(SIGUSR1));
    CHECK_EQ(count, 1);
    struct sigaction act;
    OK(sigaction(SIGUSR1, NULL, &act));
    CHECK(act.sa_handler == SIG_DFL);
    pid_t pid = FORK();
    if (pid == 0) {
        raise(SIGUSR1);
        _exit(0);
    }
    KILLED(pid, SIGUSR1);
}

TEST(ignored_signals_vanish) {
    signal(SIGUSR1, SIG_IGN);
    OK(raise(SIGUSR1));
    block(SIGUSR2, 0);
    OK(raise(SIGUSR2));
    CHECK(is_pending(SIGUSR2));
    signal(SIGUSR2, SIG_IGN); /* setting it to ignore discards what is pending */
    CHECK(!is_pending(SIGUSR2));
}

TEST(default_actions) {
    static const struct {
        int sig;
        bool kills;
    } table[] = {{SIGCHLD, false}, {SIGURG, false}, {SIGWINCH, false}, {SIGCONT, false},
                 {SIGHUP, true},   {SIGINT, true},  {SIGTERM, true},   {SIGUSR1, true},
                 {SIGALRM, true},  {SIGIO, true},   {SIGPROF, true},   {SIGVTALRM, true},
                 {SIGSTKFLT, true}, {SIGPWR, true}};
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        pid_t pid = FORK();
        if (pid == 0) {
            raise(table[i].sig);
            _exit(9);
        }
        if (table[i].kills)
            KILLED(pid, table[i].sig);
        else
            EXITS(pid, 9);
    }
}

TEST(kill_and_stop_cannot_be_caught_or_blocked) {
    struct sigaction act = {.sa_handler = nest};
    ERR(sigaction(SIGKILL, &act, NULL), EINVAL);
    ERR(sigaction(SIGSTOP, &act, NULL), EINVAL);
    act.sa_handler = SIG_IGN;
    ERR(sigaction(SIGKILL, &act, NULL), EINVAL);
    OK(sigaction(SIGKILL, NULL, &act)); /* asking is allowed */
    sigset_t all, got;
    sigfillset(&all);
    OK(sigprocmask(SIG_BLOCK, &all, NULL));
    OK(sigprocmask(SIG_BLOCK, NULL, &got));
    CHECK(!sigismember(&got, SIGKILL) && !sigismember(&got, SIGSTOP));
    CHECK(sigismember(&got, SIGTERM));
}

TEST(sigaction_and_mask_errors) {
    struct sigaction act = {.sa_handler = nest};
    ERR(syscall(SYS_rt_sigaction, 0, NULL, NULL, 8L), EINVAL);
    ERR(syscall(SYS_rt_sigaction, 65, NULL, NULL, 8L), EINVAL);
    ERR(syscall(SYS_rt_sigaction, SIGUSR1, NULL, NULL, 4L), EINVAL);
    ERR(syscall(SYS_rt_sigaction, SIGUSR1, BAD, NULL, 8L), EFAULT);
    ERR(syscall(SYS_rt_sigaction, SIGUSR1, NULL, BAD, 8L), EFAULT);
    sigset_t set = set_of(SIGUSR1, 0);
    ERR(syscall(SYS_rt_sigprocmask, 9, &set, NULL, 8L), EINVAL);
    ERR(syscall(SYS_rt_sigprocmask, SIG_BLOCK, &set, NULL, 16L), EINVAL);
    ERR(syscall(SYS_rt_sigprocmask, SIG_BLOCK, BAD, NULL, 8L), EFAULT);
    ERR(syscall(SYS_rt_sigpending, BAD, 8L), EFAULT);
    OK(syscall(SYS_rt_sigprocmask, 9, NULL, NULL, 8L)); /* how counts only with a set */
    (void)act;
}

/* ---- contexts ------------------------------------------------------------------------------------ */

static void spoil(int sig UNUSED) {
    /* Overwrite all the vector and integer state a handler may touch. */
    __asm__ volatile("mov $-1, %%rax\n mov %%rax, %%rcx\n mov %%rax, %%rdx\n mov %%rax, %%rsi\n"
                     "mov %%rax, %%rdi\n mov %%rax, %%r8\n mov %%rax, %%r9\n mov %%rax, %%r10\n"
                     "mov %%rax, %%r11\n pcmpeqd %%xmm0, %%xmm0\n movdqa %%xmm0, %%xmm1\n"
                     "movdqa %%xmm0, %%xmm7\n movdqa %%xmm0, %%xmm15\n std\n cld\n fninit\n fldpi\n"
                     "fldpi\n"
                     :
                     :
                     : "rax", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11", "xmm0", "xmm1",
                       "xmm7", "xmm15", "cc", "memory");
    count++;
}

TEST(sse_and_integer_registers_survive_a_handler) {
    signal(SIGUSR1, spoil);
    pid_t self = getpid();
    double in[4] = {1.5, -2.25, 3.125, 1e300}, out[4];
    long r12 = 12, r8 = 0;
    __asm__ volatile("movsd 0(%[in]), %%xmm0\n movsd 8(%[in]), %%xmm1\n movsd 16(%[in]), %%xmm7\n"
                     "movsd 24(%[in]), %%xmm15\n mov $888, %%r8\n mov %[pid], %%edi\n"
                     "mov %[sig], %%esi\n mov $62, %%eax\n syscall\n"
                     "movsd %%xmm0, 0(%[out])\n movsd %%xmm1, 8(%[out])\n"
                     "movsd %%xmm7, 16(%[out])\n movsd %%xmm15, 24(%[out])\n mov %%r8, %[r8]\n"
                     : [r8] "=&r"(r8), "+r"(r12)
                     : [in] "r"(in), [out] "r"(out), [pid] "r"(self), [sig] "i"(SIGUSR1)
                     : "rax", "rcx", "rdi", "rsi", "r8", "r11", "xmm0", "xmm1", "xmm7", "xmm15",
                       "memory", "cc");
    CHECK_EQ(count, 1);
    CHECK(!memcmp(in, out, sizeof in));
    CHECK_EQ(r8, 888);
    CHECK_EQ(r12, 12);
}

TEST(x87_and_mxcsr_survive_a_handler) {
    signal(SIGUSR1, spoil);
    unsigned mxcsr = 0x1f80 | 0x6000, got = 0; /* round to zero */
    unsigned short control = 0x027f, control_got = 0;
    long double value = 0;
    pid_t self = getpid();
    __asm__ volatile("ldmxcsr %[mx]\n fninit\n fldcw %[cw]\n fld1\n fld1\n faddp\n"
                     "mov %[pid], %%edi\n mov %[sig], %%esi\n mov $62, %%eax\n syscall\n"
                     "fstpt %[v]\n stmxcsr %[mg]\n fnstcw %[cg]\n fninit\n"
                     : [v] "=m"(value), [mg] "=m"(got), [cg] "=m"(control_got)
                     : [mx] "m"(mxcsr), [cw] "m"(control), [pid] "r"(self), [sig] "i"(SIGUSR1)
                     : "rax", "rcx", "rdi", "rsi", "r11", "memory", "cc");
    unsigned normal = 0x1f80;
    __asm__ volatile("ldmxcsr %0" : : "m"(normal));
    CHECK_EQ(count, 1);
    CHECK(value == 2.0L);
    CHECK_EQ(got, mxcsr);
    CHECK_EQ(control_got, control);
}

__attribute__((target("avx"))) static int avx_survives(void) {
    unsigned char in[32], out[32];
    for (int i = 0; i < 32; i++)
        in[i] = (unsigned char)(i * 5 + 1);
    pid_t self = getpid();
    __asm__ volatile("vmovdqu (%[in]), %%ymm9\n mov %[pid], %%edi\n mov %[sig], %%esi\n"
                     "mov $62, %%eax\n syscall\n vmovdqu %%ymm9, (%[out])\n vzeroupper\n"
                     :
                     : [in] "r"(in), [out] "r"(out), [pid] "r"(self), [sig] "i"(SIGUSR1)
                     : "rax", "rcx", "rdi", "rsi", "r11", "memory", "cc");
    return memcmp(in, out, 32);
}
__attribute__((target("avx"))) static void spoil_avx(int sig UNUSED) {
    __asm__ volatile("vzeroall" : : : "memory");
    count++;
}

TEST(avx_upper_halves_survive_a_handler) {
    if (!__builtin_cpu_supports("avx"))
        SKIP("the CPU has no AVX");
    signal(SIGUSR1, spoil_avx);
    CHECK_EQ(avx_survives(), 0);
    CHECK_EQ(count, 1);
}

static void spin_with_floats(int seed, int rounds) {
    volatile double x = seed;
    for (int i = 0; i < rounds; i++) {
        double a = x, b = a * 3.0 + 1.0, c = (b - 1.0) / 3.0;
        if (c != a)
            FAIL("floating point of %d went wrong: %g is not %g", seed, c, a);
        x = a + 1.0;
        if (x > 1e6)
            x = seed;
    }
}

static void look_at_padding(int sig UNUSED, siginfo_t *info UNUSED, void *context) {
    unsigned char *image = (void *)((ucontext_t *)context)->uc_mcontext.fpregs;
    for (int byte = 32; byte < 160; byte++)
        if (byte % 16 >= 10 && image[byte] != 0xa5) CHECK_EQ(image[byte], 0);
    count++;
}
/* Registers that the processor does not store show no memory of the kernel: they are as they were,
 * or zero. */
TEST(a_frame_has_nothing_but_registers) {
    static char stack[65536];
    memset(stack, 0xa5, sizeof stack);
    stack_t here = {.ss_sp = stack, .ss_size = sizeof stack};
    OK(sigaltstack(&here, NULL));
    struct sigaction act = {.sa_sigaction = look_at_padding, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    OK(sigaction(SIGUSR1, &act, NULL));
    for (int i = 0; i < 20; i++)
        IN_CHILD({
            OK(kill(getpid(), SIGUSR1));
            CHECK_EQ(count, 1);
        });
}

TEST(floating_point_survives_preemption) {
    pid_t pids[6];
    for (int i = 0; i < 6; i++)
        if ((pids[i] = FORK()) == 0) {
            spin_with_floats(i + 1, 3000000);
            _exit(0);
        }
    for (int i = 0; i < 6; i++)
        EXITS(pids[i], 0);
}

static void skip_instruction(int sig, siginfo_t *info UNUSED, void *context) {
    ucontext_t *uc = context;
    last_signal = sig;
    count++;
    uc->uc_mcontext.gregs[REG_RIP] += 2; /* ud2 is two bytes */
    uc->uc_mcontext.gregs[REG_RAX] = 1234;
}

TEST(handler_may_change_the_context) {
    struct sigaction act = {.sa_sigaction = skip_instruction, .sa_flags = SA_SIGINFO};
    OK(sigaction(SIGILL, &act, NULL));
    long rax = 0;
    __asm__ volatile("ud2" : "=a"(rax) : : "memory");
    CHECK_EQ(count, 1);
    CHECK_EQ(rax, 1234);
}

static void change_mask(int sig UNUSED, siginfo_t *info UNUSED, void *context) {
    sigaddset(&((ucontext_t *)context)->uc_sigmask, SIGHUP);
}

TEST(handler_may_change_the_mask_to_return_to) {
    struct sigaction act = {.sa_sigaction = change_mask, .sa_flags = SA_SIGINFO};
    OK(sigaction(SIGUSR1, &act, NULL));
    OK(raise(SIGUSR1));
    sigset_t now;
    OK(sigprocmask(SIG_BLOCK, NULL, &now));
    CHECK(sigismember(&now, SIGHUP));
}

TEST(red_zone_is_not_overwritten) {
    /* The 128 bytes below the stack pointer belong to the interrupted code (psABI 3.2.2). */
    handle(SIGUSR1, 0);
    pid_t self = getpid();
    long got = 0;
    __asm__ volatile("movq $0x1234567, -64(%%rsp)\n movq $0x89abcde, -128(%%rsp)\n"
                     "mov %[pid], %%edi\n mov %[sig], %%esi\n mov $62, %%eax\n syscall\n"
                     "mov -64(%%rsp), %%rax\n add -128(%%rsp), %%rax\n"
                     : "=&a"(got)
                     : [pid] "r"(self), [sig] "i"(SIGUSR1)
                     : "rcx", "rdi", "rsi", "r11", "memory", "cc");
    CHECK_EQ(count, 1);
    CHECK_EQ(got, 0x1234567 + 0x89abcde);
}

TEST(bad_frame_at_sigreturn_is_sigsegv) {
    pid_t pid = FORK();
    if (pid == 0) {
        struct rlimit none = {0, 0};
        setrlimit(RLIMIT_CORE, &none);
        __asm__ volatile("mov $4096, %%rsp\n mov $15, %%eax\n syscall\n" : : : "memory");
    }
    KILLED(pid, SIGSEGV);
}

static void privileged_context(int sig UNUSED, siginfo_t *info UNUSED, void *context) {
    ucontext_t *uc = context;
    uc->uc_mcontext.gregs[REG_EFL] |= 0x3000; /* IOPL 3 */
    ((unsigned short *)&uc->uc_mcontext.gregs[REG_CSGSFS])[0] = 0x33;
}

TEST(sigreturn_gives_no_privilege) {
    needs_user_mode();
    struct sigaction act = {.sa_sigaction = privileged_context, .sa_flags = SA_SIGINFO};
    OK(sigaction(SIGUSR1, &act, NULL));
    OK(raise(SIGUSR1));
    long flags;
    __asm__ volatile("pushfq\n pop %0" : "=r"(flags));
    CHECK_EQ(flags & 0x3000, 0);
    int sig = FAULT(__asm__ volatile("cli"));
    CHECK_EQ(sig, SIGSEGV);
}

static void to_kernel_address(int sig UNUSED, siginfo_t *info UNUSED, void *context) {
    ((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP] = (long long)0xffffffff80000000;
}
static void to_non_canonical(int sig UNUSED, siginfo_t *info UNUSED, void *context) {
    ((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP] = (long long)0x8000000000000000;
}

TEST(sigreturn_to_wild_addresses_only_kills_the_process) {
    for (int i = 0; i < 2; i++) {
        pid_t pid = FORK();
        if (pid == 0) {
            struct rlimit none = {0, 0};
            setrlimit(RLIMIT_CORE, &none);
            struct sigaction act = {.sa_sigaction = i ? to_non_canonical : to_kernel_address,
                                    .sa_flags = SA_SIGINFO};
            OK(sigaction(SIGUSR1, &act, NULL));
            raise(SIGUSR1);
            _exit(0);
        }
        KILLED(pid, SIGSEGV);
    }
}

/* ---- processor exceptions ------------------------------------------------------------------------ */

TEST(exceptions_become_signals_with_codes) {
    volatile int zero = 0;
    int sig = FAULT(zero = 100 / zero);
    CHECK_EQ(sig, SIGFPE);
    CHECK_EQ(hy_fault.code, FPE_INTDIV);
    CHECK_EQ(FAULT(__asm__ volatile("ud2")), SIGILL);
    CHECK_EQ(hy_fault.code, ILL_ILLOPN);
    CHECK_EQ(FAULT(__asm__ volatile("int3")), SIGTRAP);
    CHECK_EQ(hy_fault.code, SI_KERNEL);
    CHECK_EQ(FAULT(__asm__ volatile("int $0x81")), SIGSEGV);
}

TEST(privileged_instructions_are_refused) {
    needs_user_mode();
    CHECK_EQ(FAULT(__asm__ volatile("hlt")), SIGSEGV);
    CHECK_EQ(hy_fault.code, SI_KERNEL);
}

TEST(floating_point_exception_code) {
    /* x87, as emulators do not raise the exceptions of SSE */
    unsigned short unmasked = 0x037f & ~0x4; /* division by zero */
    int sig = FAULT(__asm__ volatile("fninit\n fldcw %0\n fld1\n fldz\n fdivrp\n fwait" : : "m"(unmasked)));
    __asm__ volatile("fninit");
    CHECK_EQ(sig, SIGFPE);
    CHECK_EQ(hy_fault.code, FPE_FLTDIV);
}

TEST(single_step_traps) {
    int sig = FAULT(__asm__ volatile("pushfq\n orl $0x100, (%%rsp)\n popfq\n nop\n nop\n" : : : "memory",
                                     "cc"));
    CHECK_EQ(sig, SIGTRAP);
    CHECK_EQ(hy_fault.code, TRAP_TRACE);
}

TEST(blocked_fault_signal_kills) {
    /* A fault that cannot be delivered forces the default action (sigprocmask(2), NOTES). */
    pid_t pid = FORK();
    if (pid == 0) {
        struct rlimit none = {0, 0};
        setrlimit(RLIMIT_CORE, &none);
        hy_catch_faults();
        block(SIGSEGV, 0);
        PEEK(BAD);
        _exit(0);
    }
    KILLED(pid, SIGSEGV);
    pid = FORK();
    if (pid == 0) {
        struct rlimit none = {0, 0};
        setrlimit(RLIMIT_CORE, &none);
        signal(SIGSEGV, SIG_IGN);
        PEEK(BAD);
        _exit(0);
    }
    KILLED(pid, SIGSEGV);
}

TEST(core_flag_needs_a_core_limit) {
    pid_t pid = FORK();
    if (pid == 0) {
        struct rlimit none = {0, 0};
        setrlimit(RLIMIT_CORE, &none);
        raise(SIGQUIT);
        _exit(0);
    }
    int status = WAIT(pid);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGQUIT && !WCOREDUMP(status));
}

/* ---- alternate stacks ---------------------------------------------------------------------------- */

static char alt[64 * 1024];
static volatile bool on_alt;
static stack_t inside;
static void check_stack(int sig UNUSED) {
    char here;
    uintptr_t at = (uintptr_t)&here;
    __asm__ volatile("" : "+r"(at));
    on_alt = at >= (uintptr_t)alt && at < (uintptr_t)alt + sizeof alt;
    sigaltstack(NULL, &inside);
    count++;
}

TEST(handler_runs_on_the_alternate_stack) {
    stack_t ss = {.ss_sp = alt, .ss_size = sizeof alt}, old;
    OK(sigaltstack(&ss, &old));
    CHECK(old.ss_flags & SS_DISABLE);
    struct sigaction act = {.sa_handler = check_stack, .sa_flags = SA_ONSTACK};
    OK(sigaction(SIGUSR1, &act, NULL));
    OK(raise(SIGUSR1));
    CHECK(on_alt);
    CHECK(inside.ss_flags & SS_ONSTACK);
    act.sa_flags = 0;
    OK(sigaction(SIGUSR1, &act, NULL));
    OK(raise(SIGUSR1));
    CHECK(!on_alt);
    OK(sigaltstack(NULL, &old));
    CHECK_EQ(old.ss_flags, 0);
    CHECK(old.ss_sp == alt && old.ss_size == sizeof alt);
}

static void change_inside(int sig UNUSED) {
    stack_t ss = {.ss_sp = alt, .ss_size = sizeof alt};
    count = sigaltstack(&ss, NULL) == -1 ? errno : 0;
}

TEST(sigaltstack_errors) {
    stack_t ss = {.ss_sp = alt, .ss_size = 100};
    ERR(sigaltstack(&ss, NULL), ENOMEM);
    ss.ss_size = sizeof alt;
    ss.ss_flags = 0x40;
    ERR(syscall(SYS_sigaltstack, &ss, NULL), EINVAL);
    ERR(syscall(SYS_sigaltstack, BAD, NULL), EFAULT);
    ss.ss_flags = 0;
    OK(sigaltstack(&ss, NULL));
    struct sigaction act = {.sa_handler = change_inside, .sa_flags = SA_ONSTACK};
    OK(sigaction(SIGUSR1, &act, NULL));
    OK(raise(SIGUSR1));
    CHECK_EQ(count, EPERM); /* not while running on it */
}

static sigjmp_buf overflow_env;
static void on_overflow(int sig UNUSED, siginfo_t *info, void *context UNUSED) {
    last_code = info->si_code;
    siglongjmp(overflow_env, 1);
}
static __attribute__((noinline)) int recurse(int n) {
    volatile char frame[2048];
    frame[0] = (char)n;
    return n == 0 ? 0 : recurse(n - 1) + frame[0];
}

TEST(stack_overflow_is_handled_on_the_alternate_stack) {
    IN_CHILD({
        struct rlimit small = {512 * 1024, 512 * 1024};
        setrlimit(RLIMIT_STACK, &small);
        stack_t ss = {.ss_sp = alt, .ss_size = sizeof alt};
        OK(sigaltstack(&ss, NULL));
        struct sigaction act = {.sa_sigaction = on_overflow, .sa_flags = SA_SIGINFO | SA_ONSTACK};
        OK(sigaction(SIGSEGV, &act, NULL));
        if (sigsetjmp(overflow_env, 1) == 0) {
            recurse(10000000);
            FAIL("no overflow");
        }
        CHECK_EQ(last_code, SEGV_MAPERR);
    });
}

TEST(stack_overflow_without_alternate_stack_kills) {
    pid_t pid = FORK();
    if (pid == 0) {
        struct rlimit small = {256 * 1024, 256 * 1024}, none = {0, 0};
        setrlimit(RLIMIT_STACK, &small);
        setrlimit(RLIMIT_CORE, &none);
        struct sigaction act = {.sa_sigaction = on_overflow, .sa_flags = SA_SIGINFO};
        OK(sigaction(SIGSEGV, &act, NULL));
        recurse(10000000);
        _exit(0);
    }
    KILLED(pid, SIGSEGV);
}

TEST(full_alternate_stack_kills) {
    /* The frame does not fit: SIGSEGV that cannot be delivered either. */
    char *low = OK(mmap(NULL, 3 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    OK(mprotect(low, PAGE, PROT_NONE));
    pid_t pid = FORK();
    if (pid == 0) {
        struct rlimit none = {0, 0};
        setrlimit(RLIMIT_CORE, &none);
        stack_t ss = {.ss_sp = low, .ss_size = 3 * PAGE};
        if (sigaltstack(&ss, NULL) == -1)
            _exit(errno == ENOMEM ? 77 : 1); /* the CPU's state needs more: nothing to test */
        struct sigaction act = {.sa_handler = check_stack, .sa_flags = SA_ONSTACK};
        OK(sigaction(SIGUSR1, &act, NULL));
        OK(mprotect(low, 3 * PAGE, PROT_NONE));
        raise(SIGUSR1);
        _exit(0);
    }
    int status = WAIT(pid);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
        SKIP("MINSIGSTKSZ of this CPU is over three pages");
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
}

/* ---- waiting for signals ------------------------------------------------------------------------- */

TEST(sigsuspend_swaps_the_mask_and_back) {
    handle(SIGUSR1, 0);
    block(SIGUSR1, SIGUSR2);
    OK(raise(SIGUSR1));
    OK(raise(SIGUSR2));
    sigset_t open_one = set_of(SIGUSR2, 0);
    ERR(sigsuspend(&open_one), EINTR);
    CHECK_EQ(count, 1);
    CHECK(is_pending(SIGUSR2));
    sigset_t now;
    OK(sigprocmask(SIG_BLOCK, NULL, &now));
    CHECK(sigismember(&now, SIGUSR1));
}

TEST(pause_returns_after_a_handler) {
    handle(SIGALRM, 0);
    alarms(20);
    ERR(pause(), EINTR);
    CHECK(count >= 1);
}

TEST(sigtimedwait_takes_pending_and_times_out) {
    block(SIGUSR1, 0);
    sigset_t set = set_of(SIGUSR1, 0);
    struct timespec t = {0, 20 * MS}, zero = {0, 0}, bad = {0, -1};
    ERR(sigtimedwait(&set, NULL, &zero), EAGAIN);
    ERR(sigtimedwait(&set, NULL, &bad), EINVAL);
    int64_t from = now_ns(CLOCK_MONOTONIC);
    ERR(sigtimedwait(&set, NULL, &t), EAGAIN);
    CHECK(now_ns(CLOCK_MONOTONIC) - from >= 20 * MS);
    OK(kill(getpid(), SIGUSR1));
    siginfo_t info;
    CHECK_EQ(OK(sigtimedwait(&set, &info, &zero)), SIGUSR1);
    CHECK_EQ(info.si_code, SI_USER);
    CHECK_EQ(info.si_pid, getpid());
    CHECK(!is_pending(SIGUSR1));
}

TEST(sigtimedwait_is_interrupted_by_other_handlers) {
    handle(SIGALRM, 0);
    alarms(20);
    sigset_t set = set_of(SIGUSR1, 0);
    block(SIGUSR1, 0);
    struct timespec t = {20, 0};
    ERR(syscall(SYS_rt_sigtimedwait, &set, NULL, &t, 8L), EINTR); /* musl's wrapper tries again */
}

TEST(sigwait_from_another_process) {
    block(SIGUSR1, 0);
    pid_t parent = getpid();
    pid_t pid = FORK();
    if (pid == 0) {
        wait_asleep(parent);
        OK(kill(parent, SIGUSR1));
        _exit(0);
    }
    sigset_t set = set_of(SIGUSR1, 0);
    siginfo_t info;
    CHECK_EQ(OK(sigwaitinfo(&set, &info)), SIGUSR1);
    CHECK_EQ(info.si_pid, pid);
    EXITS(pid, 0);
}

/* ---- EINTR and SA_RESTART ------------------------------------------------------------------------ */

TEST(read_of_a_pipe_gives_eintr_without_restart) {
    int p[2];
    OK(pipe(p));
    handle(SIGALRM, 0);
    alarms(20);
    char c;
    ERR(read(p[0], &c, 1), EINTR);
}

TEST(read_of_a_pipe_restarts_with_sa_restart) {
    int p[2];
    OK(pipe(p));
    handle(SIGALRM, SA_RESTART);
    pid_t parent = getpid();
    pid_t pid = FORK();
    if (pid == 0) {
        for (int i = 0; i < 3; i++) {
            wait_asleep(parent);
            OK(kill(parent, SIGALRM));
            msleep(10);
        }
        OK(write(p[1], "x", 1));
        _exit(0);
    }
    char c = 0;
    CHECK_EQ(OK(read(p[0], &c, 1)), 1);
    CHECK_EQ(c, 'x');
    CHECK(count >= 1);
    EXITS(pid, 0);
}

TEST(write_to_a_full_pipe_gives_eintr_or_what_was_written) {
    int p[2];
    OK(pipe(p));
    static char big[200000];
    handle(SIGALRM, 0);
    alarms(30);
    ssize_t n = OK(write(p[1], big, sizeof big)); /* part of it went before the signal */
    CHECK(n > 0 && n < (ssize_t)sizeof big);
    ERR(write(p[1], big, 1), EINTR);
}

TEST(nanosleep_never_restarts_and_tells_the_rest) {
    handle(SIGALRM, SA_RESTART);
    alarms(30);
    struct timespec t = {20, 0}, rest = {0, 0};
    ERR(nanosleep(&t, &rest), EINTR);
    CHECK(rest.tv_sec >= 10 && rest.tv_sec < 20);
    CHECK(rest.tv_nsec >= 0 && rest.tv_nsec < 1000000000);
}

TEST(poll_and_select_do_not_restart) {
    int p[2];
    OK(pipe(p));
    handle(SIGALRM, SA_RESTART);
    alarms(20);
    fd_set set;
    FD_ZERO(&set);
    FD_SET(p[0], &set);
    ERR(select(p[0] + 1, &set, NULL, NULL, NULL), EINTR); /* signal(7) */
    CHECK(count >= 1);
}

TEST(sockets_give_eintr) {
    int s[2];
    OK(socketpair(AF_UNIX, SOCK_STREAM, 0, s));
    handle(SIGALRM, 0);
    alarms(20);
    char c;
    ERR(recv(s[0], &c, 1, 0), EINTR);
}

TEST(fifo_open_and_lock_give_eintr) {
    OK(mkfifo("fifo", 0600));
    handle(SIGALRM, 0);
    alarms(20);
    ERR(open("fifo", O_RDONLY), EINTR);
    int fd = OK(open("f", O_RDWR | O_CREAT, 0600));
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    GATE(held);
    pid_t pid = FORK();
    if (pid == 0) {
        OK(fcntl(fd, F_SETLKW, &lock));
        gate_open_and_rest(&held);
    }
    gate_pass(&held);
    ERR(fcntl(fd, F_SETLKW, &lock), EINTR);
    OK(kill(pid, SIGKILL));
    KILLED(pid, SIGKILL);
}

TEST(siginterrupt_by_mask_only_delays) {
    /* A blocked signal does not end a call. */
    handle(SIGALRM, 0);
    block(SIGALRM, 0);
    alarms(5);
    struct timespec t = {0, 60 * MS};
    OK(nanosleep(&t, NULL));
    CHECK_EQ(count, 0);
    unblock(SIGALRM, 0);
    CHECK(count >= 1);
}

TEST(ignored_signal_does_not_end_a_call) {
    signal(SIGALRM, SIG_IGN);
    alarms(5);
    int64_t from = now_ns(CLOCK_MONOTONIC);
    struct timespec t = {0, 60 * MS};
    OK(nanosleep(&t, NULL));
    CHECK(now_ns(CLOCK_MONOTONIC) - from >= 60 * MS);
}

TEST(stop_and_continue_let_a_sleep_go_on) {
    pid_t pid = FORK();
    if (pid == 0) {
        struct timespec t = {0, 150 * MS};
        _exit(nanosleep(&t, NULL) == 0 ? 0 : errno);
    }
    wait_asleep(pid);
    OK(kill(pid, SIGSTOP));
    int status;
    CHECK_EQ(OK(waitpid(pid, &status, WUNTRACED)), pid);
    OK(kill(pid, SIGCONT));
    EXITS(pid, 0); /* no EINTR: restart_syscall(2) */
}

TEST(sigcont_handler_runs_after_continue) {
    int *seen = SHARED(PAGE);
    pid_t pid = FORK();
    if (pid == 0) {
        /* Blocked but in sigsuspend: between a look at the count and a pause it would be missed. */
        block(SIGCONT, 0);
        handle(SIGCONT, 0);
        *seen = 1;
        sigset_t none = set_of(0, 0);
        while (count == 0)
            sigsuspend(&none);
        _exit(5);
    }
    EVENTUALLY(*(volatile int *)seen);
    OK(kill(pid, SIGSTOP));
    int status;
    CHECK_EQ(OK(waitpid(pid, &status, WUNTRACED)), pid);
    OK(kill(pid, SIGCONT));
    EXITS(pid, 5);
}

TEST(stop_signals_and_cont_cancel_each_other) {
    block(SIGTSTP, SIGCONT);
    OK(kill(getpid(), SIGTSTP));
    CHECK(is_pending(SIGTSTP));
    OK(kill(getpid(), SIGCONT)); /* discards pending stop signals (signal(7)) */
    CHECK(!is_pending(SIGTSTP));
}

/* ---- SIGCHLD, SIGPIPE and others ----------------------------------------------------------------- */

TEST(sigchld_tells_who_and_how) {
    handle(SIGCHLD, 0);
    block(SIGCHLD, 0);
    pid_t pid = FORK();
    if (pid == 0)
        _exit(19);
    sigset_t set = set_of(SIGCHLD, 0);
    siginfo_t info;
    struct timespec t = {10, 0};
    CHECK_EQ(OK(sigtimedwait(&set, &info, &t)), SIGCHLD);
    CHECK_EQ(info.si_code, CLD_EXITED);
    CHECK_EQ(info.si_pid, pid);
    CHECK_EQ(info.si_status, 19);
    EXITS(pid, 19);
}

TEST(sa_nocldstop_silences_stops) {
    for (int flag = 0; flag < 2; flag++) {
        struct sigaction act = {.sa_sigaction = note, .sa_flags = SA_SIGINFO | (flag ? SA_NOCLDSTOP : 0)};
        OK(sigaction(SIGCHLD, &act, NULL));
        count = 0;
        pid_t pid = FORK();
        if (pid == 0)
            for (;;)
                pause();
        OK(kill(pid, SIGSTOP));
        int status;
        pid_t got;
        while ((got = waitpid(pid, &status, WUNTRACED)) == -1 && errno == EINTR)
            ;
        CHECK_EQ(got, pid);
        msleep(20);
        CHECK_EQ(count, flag ? 0 : 1);
        if (!flag)
            CHECK_EQ(last_code, CLD_STOPPED);
        OK(kill(pid, SIGKILL));
        KILLED(pid, SIGKILL);
    }
}

TEST(sigpipe_kills_or_is_epipe) {
    int p[2];
    OK(pipe(p));
    OK(close(p[0]));
    pid_t pid = FORK();
    if (pid == 0) {
        (void)!write(p[1], "x", 1);
        _exit(0);
    }
    KILLED(pid, SIGPIPE);
    signal(SIGPIPE, SIG_IGN);
    ERR(write(p[1], "x", 1), EPIPE);
    handle(SIGPIPE, 0);
    ERR(write(p[1], "x", 1), EPIPE);
    CHECK_EQ(count, 1);
}

TEST(send_with_nosignal_raises_none) {
    int s[2];
    OK(socketpair(AF_UNIX, SOCK_STREAM, 0, s));
    OK(close(s[0]));
    ERR(send(s[1], "x", 1, MSG_NOSIGNAL), EPIPE);
    handle(SIGPIPE, 0);
    ERR(send(s[1], "x", 1, 0), EPIPE);
    CHECK_EQ(count, 1);
}

TEST(signals_need_permission) {
    pid_t victim = FORK();
    if (victim == 0)
        for (;;)
            pause();
    IN_CHILD({
        BECOME(NOBODY, NOBODY);
        ERR(kill(victim, SIGTERM), EPERM);
        ERR(kill(victim, 0), EPERM);
        ERR(kill(1, SIGTERM), EPERM);
        union sigval v = {0};
        ERR(sigqueue(victim, SIGTERM, v), EPERM);
    });
    OK(kill(victim, SIGKILL));
    KILLED(victim, SIGKILL);
}

TEST(same_real_user_may_signal) {
    GATE(ready);
    pid_t victim = FORK();
    if (victim == 0) {
        OK(setresuid(1000, 1000, 1000));
        gate_open_and_rest(&ready);
    }
    gate_pass(&ready);
    IN_CHILD({
        OK(setresuid(1000, 2000, 2000)); /* the real id is enough */
        OK(kill(victim, SIGTERM));
    });
    KILLED(victim, SIGTERM);
}

TEST(sigcont_crosses_users_within_a_session) {
    GATE(ready);
    pid_t victim = FORK();
    if (victim == 0) {
        OK(setresuid(1000, 1000, 1000));
        gate_open_and_rest(&ready);
    }
    gate_pass(&ready);
    IN_CHILD({
        OK(setresuid(2000, 2000, 2000));
        ERR(kill(victim, SIGTERM), EPERM);
        OK(kill(victim, SIGCONT)); /* kill(2) */
    });
    OK(kill(victim, SIGKILL));
    KILLED(victim, SIGKILL);
}

TEST(handler_longjmp_from_many_signals) {
    static sigjmp_buf env;
    static volatile int rounds;
    handle(SIGUSR1, 0);
    for (rounds = 0; rounds < 2000; rounds++)
        if (sigsetjmp(env, 1) == 0)
            raise(SIGUSR1);
    CHECK_EQ(count, 2000);
}

TEST(storm_of_signals_between_two_processes) {
    handle(SIGUSR1, 0);
    pid_t parent = getpid();
    pid_t pid = FORK();
    if (pid == 0) {
        for (int i = 0; i < 3000; i++)
            kill(parent, SIGUSR1);
        _exit(0);
    }
    spin_with_floats(7, 300000);
    EXITS(pid, 0);
    CHECK(count >= 1 && count <= 3000);
}

TEST(restorer_less_sa_restart_keeps_arguments) {
    /* A restarted call sees its own arguments again, also the fourth to sixth. */
    int p[2];
    OK(pipe(p));
    handle(SIGALRM, SA_RESTART);
    pid_t parent = getpid();
    pid_t pid = FORK();
    if (pid == 0) {
        wait_asleep(parent);
        kill(parent, SIGALRM);
        msleep(20);
        OK(write(p[1], "abcdef", 6));
        _exit(0);
    }
    int out = OK(open("out", O_RDWR | O_CREAT, 0600));
    off_t at = 3;
    CHECK_EQ(OK(splice(p[0], NULL, out, &at, 6, 0)), 6);
    CHECK_EQ(at, 9);
    EXITS(pid, 0);
}

TEST(fork_never_fails_under_a_storm_of_signals) {
    /* A signal that arrives in the middle restarts the call, it never shows (ERESTARTNOINTR). */
    handle(SIGUSR1, SA_RESTART);
    pid_t parent = getpid();
    pid_t pid = FORK();
    if (pid == 0) {
        for (;;)
            kill(parent, SIGUSR1);
    }
    for (int i = 0; i < 300; i++) {
        pid_t child = FORK();
        if (child == 0)
            _exit(i & 127);
        EXITS(child, i & 127);
    }
    kill(pid, SIGKILL);
    KILLED(pid, SIGKILL);
    CHECK(count >= 1);
}
