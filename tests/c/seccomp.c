/* Filters of system calls: strict mode, programs, actions, stacking, threads, listeners. */
#define AREA "seccomp"
#include "harness.h"
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <ucontext.h>

#ifndef SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV
#define SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV (1UL << 5)
#endif
#ifndef SYS_SECCOMP
#define SYS_SECCOMP 1
#endif
#define BAD_FD 987654

static long seccomp(unsigned operation, unsigned flags, void *arguments) {
    return syscall(SYS_seccomp, operation, flags, arguments);
}

/* ---- programs ------------------------------------------------------------------------------ */

#define LOAD(field) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, field))
#define ARGUMENT(n) LOAD(args[n])
#define RETURN(value) BPF_STMT(BPF_RET | BPF_K, value)
#define IF_EQUAL(value, yes, no) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, yes, no)
#define ALLOW RETURN(SECCOMP_RET_ALLOW)

static long install(unsigned flags, struct sock_filter *code, size_t count) {
    struct sock_fprog program = {(unsigned short)count, code};
    return seccomp(SECCOMP_SET_MODE_FILTER, flags, &program);
}
#define INSTALL(flags, ...)                                                                        \
    ({                                                                                             \
        struct sock_filter hy_code[] = {__VA_ARGS__};                                              \
        install(flags, hy_code, sizeof hy_code / sizeof *hy_code);                                 \
    })
/* This call gives this verdict, all others are allowed. */
#define ON(number, verdict) LOAD(nr), IF_EQUAL(number, 0, 1), RETURN(verdict), ALLOW

static void bound(void) {
    OK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
}
static void on(long number, unsigned verdict) {
    bound();
    OK(INSTALL(0, ON((unsigned)number, verdict)));
}
static int status_of(pid_t pid, const char *name) {
    char path[64], text[4096];
    snprintf(path, sizeof path, "/proc/%d/status", pid);
    CHECK(get_file(path, text, sizeof text) > 0);
    char *at = strstr(text, name);
    CHECK(at);
    return atoi(at + strlen(name));
}

/* ---- what is refused ----------------------------------------------------------------------- */

TEST(operations_and_flags_that_are_none_are_refused) {
    ERR(seccomp(77, 0, NULL), EINVAL);
    ERR(seccomp(SECCOMP_SET_MODE_STRICT, 1, NULL), EINVAL);
    ERR(seccomp(SECCOMP_SET_MODE_STRICT, 0, (void *)1), EINVAL);
    ERR(seccomp(SECCOMP_SET_MODE_FILTER, 0, NULL), EFAULT);
    ERR(seccomp(SECCOMP_SET_MODE_FILTER, 0, BAD), EFAULT);
    ERR(seccomp(SECCOMP_SET_MODE_FILTER, 1u << 31, NULL), EINVAL);
    /* How libraries find out which flags there are. */
    unsigned known[] = {SECCOMP_FILTER_FLAG_TSYNC, SECCOMP_FILTER_FLAG_LOG,
                        SECCOMP_FILTER_FLAG_SPEC_ALLOW, SECCOMP_FILTER_FLAG_NEW_LISTENER,
                        SECCOMP_FILTER_FLAG_TSYNC_ESRCH,
                        SECCOMP_FILTER_FLAG_NEW_LISTENER |
                            SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        ERR(seccomp(SECCOMP_SET_MODE_FILTER, known[i], NULL), EFAULT);
    ERR(seccomp(SECCOMP_SET_MODE_FILTER,
                SECCOMP_FILTER_FLAG_TSYNC | SECCOMP_FILTER_FLAG_NEW_LISTENER, NULL), EINVAL);
    ERR(seccomp(SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV, NULL), EINVAL);
    ERR(prctl(PR_SET_SECCOMP, 0, 0, 0, 0), EINVAL);
    ERR(prctl(PR_SET_SECCOMP, 3, 0, 0, 0), EINVAL);
    ERR(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, NULL, 0, 0), EFAULT);
    CHECK_EQ(prctl(PR_GET_SECCOMP, 0, 0, 0, 0), 0);
}

TEST(a_filter_needs_a_promise_or_privilege) {
    struct sock_filter allow[] = {ALLOW};
    BECOME(NOBODY, NOBODY);
    ERR(install(0, allow, 1), EACCES);
    /* The length is looked at first, the program last. */
    ERR(install(0, allow, 0), EINVAL);
    struct sock_fprog bad = {1, BAD};
    ERR(seccomp(SECCOMP_SET_MODE_FILTER, 0, &bad), EACCES);
    bound();
    ERR(seccomp(SECCOMP_SET_MODE_FILTER, 0, &bad), EFAULT);
    OK(install(0, allow, 1));
    CHECK_EQ(prctl(PR_GET_SECCOMP, 0, 0, 0, 0), SECCOMP_MODE_FILTER);
}

TEST(root_needs_no_promise) {
    OK(INSTALL(0, ON(SYS_getppid, SECCOMP_RET_ERRNO | EPROTO)));
    CHECK_EQ(prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0), 0);
    ERR(syscall(SYS_getppid), EPROTO);
}

TEST(programs_that_are_none_are_refused) {
    bound();
    struct sock_filter *much = calloc(BPF_MAXINSNS + 1, sizeof *much);
    for (int i = 0; i <= BPF_MAXINSNS; i++)
        much[i] = (struct sock_filter)ALLOW;
    ERR(install(0, much, BPF_MAXINSNS + 1), EINVAL);
    ERR(install(0, much, 0), EINVAL);
    struct sock_fprog none = {1, NULL};
    ERR(seccomp(SECCOMP_SET_MODE_FILTER, 0, &none), EINVAL);
    /* Loads of anything but whole, aligned words of the call. */
    struct { unsigned short code; unsigned k; int good; } one[] = {
        {BPF_LD | BPF_W | BPF_ABS, 0, 1}, {BPF_LD | BPF_W | BPF_ABS, 60, 1},
        {BPF_LD | BPF_W | BPF_ABS, 64, 0}, {BPF_LD | BPF_W | BPF_ABS, 2, 0},
        {BPF_LD | BPF_W | BPF_ABS, 61, 0}, {BPF_LD | BPF_W | BPF_ABS, (unsigned)SKF_AD_OFF, 0},
        {BPF_LD | BPF_H | BPF_ABS, 0, 0}, {BPF_LD | BPF_B | BPF_ABS, 0, 0},
        {BPF_LD | BPF_W | BPF_IND, 0, 0}, {BPF_LDX | BPF_B | BPF_MSH, 0, 0},
        {BPF_LD | BPF_W | BPF_LEN, 0, 1}, {BPF_LDX | BPF_W | BPF_LEN, 0, 1},
        {BPF_LD | BPF_IMM, 5, 1}, {BPF_LDX | BPF_IMM, 5, 1},
        {BPF_LD | BPF_MEM, 0, 0} /* not written */, {BPF_ST, 15, 1}, {BPF_ST, 16, 0},
        {BPF_ALU | BPF_ADD | BPF_K, 1, 1}, {BPF_ALU | BPF_MOD | BPF_K, 1, 0},
        {BPF_ALU | BPF_DIV | BPF_K, 0, 0}, {BPF_ALU | BPF_LSH | BPF_K, 32, 0},
        {BPF_ALU | BPF_XOR | BPF_X, 0, 1}, {BPF_ALU | BPF_NEG, 0, 1},
        {BPF_MISC | BPF_TAX, 0, 1}, {BPF_MISC | BPF_TXA, 0, 1}, {0xffff, 0, 0},
        {BPF_JMP | BPF_JA, 0, 1}, {BPF_JMP | BPF_JA, 1, 0},
    };
    for (size_t i = 0; i < sizeof one / sizeof *one; i++) {
        struct sock_filter code[] = {BPF_STMT(one[i].code, one[i].k), ALLOW};
        if (one[i].good)
            OK(install(0, code, 2));
        else
            ERR(install(0, code, 2), EINVAL);
    }
    ERR(INSTALL(0, LOAD(nr)), EINVAL);
    ERR(INSTALL(0, IF_EQUAL(1, 0, 1), ALLOW), EINVAL);
}

TEST(the_actions_are_told) {
    unsigned known[] = {SECCOMP_RET_KILL_PROCESS, SECCOMP_RET_KILL_THREAD, SECCOMP_RET_TRAP,
                        SECCOMP_RET_ERRNO, SECCOMP_RET_USER_NOTIF, SECCOMP_RET_TRACE,
                        SECCOMP_RET_LOG, SECCOMP_RET_ALLOW};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        CHECK_EQ(seccomp(SECCOMP_GET_ACTION_AVAIL, 0, &known[i]), 0);
    unsigned unknown = 0x12345678;
    ERR(seccomp(SECCOMP_GET_ACTION_AVAIL, 0, &unknown), EOPNOTSUPP);
    unknown = SECCOMP_RET_ERRNO | 1;
    ERR(seccomp(SECCOMP_GET_ACTION_AVAIL, 0, &unknown), EOPNOTSUPP);
    ERR(seccomp(SECCOMP_GET_ACTION_AVAIL, 1, known), EINVAL);
    ERR(seccomp(SECCOMP_GET_ACTION_AVAIL, 0, BAD), EFAULT);
    struct seccomp_notif_sizes sizes = {0, 0, 0};
    CHECK_EQ(seccomp(SECCOMP_GET_NOTIF_SIZES, 0, &sizes), 0);
    CHECK_EQ(sizes.seccomp_notif, 80);
    CHECK_EQ(sizes.seccomp_notif_resp, 24);
    CHECK_EQ(sizes.seccomp_data, 64);
    ERR(seccomp(SECCOMP_GET_NOTIF_SIZES, 1, &sizes), EINVAL);
    ERR(seccomp(SECCOMP_GET_NOTIF_SIZES, 0, BAD), EFAULT);
}

TEST(the_settings_name_the_actions) {
    char text[256];
    const char *logged = "/proc/sys/kernel/seccomp/actions_logged";
    CHECK(get_file("/proc/sys/kernel/seccomp/actions_avail", text, sizeof text) > 0);
    CHECK_STR(text, "kill_process kill_thread trap errno user_notif trace log allow\n");
    int fd = open(logged, O_WRONLY);
    if (fd == -1)
        SKIP("the setting is read-only here");
    ERR(write(fd, "allow", 5), EINVAL);
    ERR(write(fd, "errno nonsense", 14), EINVAL);
    SET_SYSCTL(logged, "log kill_thread");
    CHECK(get_file(logged, text, sizeof text) > 0);
    CHECK_STR(text, "kill_thread log\n");
    SET_SYSCTL(logged, "");
    CHECK(get_file(logged, text, sizeof text) > 0);
    CHECK_STR(text, "\n");
    /* A user may open the setting no more than change it. */
    IN_CHILD(BECOME(NOBODY, NOBODY); ERR(write(fd, "log", 3), EPERM));
}

/* ---- strict mode --------------------------------------------------------------------------- */

TEST(strict_mode_allows_four_calls) {
    int ends[2];
    OK(pipe(ends));
    pid_t child = FORK();
    if (child == 0) {
        char c;
        OK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT, 0, 0, 0));
        bool good = write(ends[1], "x", 1) == 1 && read(ends[0], &c, 1) == 1 && c == 'x';
        syscall(SYS_exit, good ? 7 : 8);
    }
    EXITS(child, 7);
    const long others[] = {SYS_getpid, SYS_exit_group, SYS_mmap, SYS_prctl, 1003, 100000};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        child = FORK();
        if (child == 0) {
            OK(seccomp(SECCOMP_SET_MODE_STRICT, 0, NULL));
            syscall(others[i], 0, 0, 0, 0, 0, 0);
            syscall(SYS_exit, 0);
        }
        KILLED(child, SIGKILL);
    }
}

static void on_signal(int signal UNUSED) {}

TEST(strict_mode_returns_from_handlers) {
    struct sigaction action = {.sa_handler = on_signal};
    int ends[2];
    OK(pipe(ends));
    OK(sigaction(SIGUSR1, &action, NULL));
    pid_t child = FORK();
    if (child == 0) {
        char c;
        OK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT));
        long got = syscall(SYS_read, ends[0], &c, 1);
        syscall(SYS_exit, got == -1 ? 5 : 6);
    }
    EVENTUALLY(status_of(child, "Seccomp:\t") == 1);
    wait_asleep(child);
    OK(kill(child, SIGUSR1));
    EXITS(child, 5);
}

TEST(strict_mode_and_filters_exclude_each_other) {
    on(SYS_getppid, SECCOMP_RET_ERRNO | 1);
    ERR(prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT, 0, 0, 0), EINVAL);
    ERR(seccomp(SECCOMP_SET_MODE_STRICT, 0, NULL), EINVAL);
    CHECK_EQ(prctl(PR_GET_SECCOMP, 0, 0, 0, 0), SECCOMP_MODE_FILTER);
}

static void *in_strict_thread(void *arg UNUSED) {
    prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT, 0, 0, 0);
    syscall(SYS_getpid);
    return NULL;
}

static void *in_killed_thread(void *arg UNUSED) {
    on(SYS_getppid, SECCOMP_RET_KILL_THREAD);
    syscall(SYS_getppid);
    FAIL("goes on");
}

/* Waits until this process has one thread: those that are killed tell nobody. */
static void wait_alone(void) {
    EVENTUALLY(status_of(getpid(), "Threads:\t") == 1);
}

TEST(only_the_thread_dies) {
    pthread_t thread;
    ZERO(pthread_create(&thread, NULL, in_strict_thread, NULL));
    wait_alone();
    ZERO(pthread_create(&thread, NULL, in_killed_thread, NULL));
    wait_alone();
    CHECK_EQ(prctl(PR_GET_SECCOMP, 0, 0, 0, 0), 0);
}

/* ---- actions ------------------------------------------------------------------------------- */

TEST(an_error_is_returned) {
    on(SYS_getppid, SECCOMP_RET_ERRNO | 77);
    errno = 0;
    CHECK_EQ(syscall(SYS_getppid), -1);
    CHECK_EQ(errno, 77);
    CHECK(getpid() > 0);
}

static long raw0(long number) {
    long result;
    __asm__ volatile("syscall" : "=a"(result) : "a"(number) : "rcx", "r11", "memory");
    return result;
}

TEST(errors_are_bounded) {
    const struct { unsigned data; long result; } cases[] = {
        {0, 0}, {1, -1}, {4095, -4095}, {4096, -4095}, {0xffff, -4095}, {512, -512}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        IN_CHILD(on(SYS_getppid, SECCOMP_RET_ERRNO | cases[i].data);
                 CHECK_EQ(raw0(SYS_getppid), cases[i].result));
}

TEST(a_call_that_kills) {
    const struct { unsigned verdict; int signal; } cases[] = {
        {SECCOMP_RET_KILL_PROCESS, SIGSYS}, {SECCOMP_RET_KILL_THREAD, SIGSYS},
        {0x11110000, SIGSYS} /* no such action */, {SECCOMP_RET_TRAP, SIGSYS}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        pid_t child = FORK();
        if (child == 0) {
            signal(SIGSYS, i == 3 ? SIG_IGN : on_signal);
            on(SYS_getppid, cases[i].verdict);
            syscall(SYS_getppid);
            _exit(0);
        }
        KILLED(child, cases[i].signal);
    }
}

static void *waits_for_ever(void *arg) {
    for (;;)
        pause();
    return arg;
}

TEST(killing_the_process_ends_all_threads) {
    pid_t child = FORK();
    if (child == 0) {
        pthread_t thread;
        ZERO(pthread_create(&thread, NULL, waits_for_ever, NULL));
        on(SYS_getppid, SECCOMP_RET_KILL_PROCESS);
        syscall(SYS_getppid);
        _exit(0);
    }
    KILLED(child, SIGSYS);
}

static siginfo_t trap_info;
static ucontext_t trap_context;
static void on_trap(int signal UNUSED, siginfo_t *info, void *context) {
    trap_info = *info;
    trap_context = *(ucontext_t *)context;
    greg_t *gregs = ((ucontext_t *)context)->uc_mcontext.gregs;
    if (gregs[REG_RDI] == 5)
        gregs[REG_RAX] = 4711;
}

static long raw1(long number, long first) {
    long result;
    __asm__ volatile("syscall"
                     : "=a"(result) : "a"(number), "D"(first) : "rcx", "r11", "memory");
    return result;
}

TEST(a_trapped_call_tells_about_itself) {
    struct sigaction action = {.sa_sigaction = on_trap, .sa_flags = SA_SIGINFO};
    OK(sigaction(SIGSYS, &action, NULL));
    on(SYS_getppid, SECCOMP_RET_TRAP | 0x1234);
    /* Without a change by the handler the result is the number. */
    CHECK_EQ(raw1(SYS_getppid, 3), SYS_getppid);
    greg_t *gregs = trap_context.uc_mcontext.gregs;
    CHECK_EQ(trap_info.si_signo, SIGSYS);
    CHECK_EQ(trap_info.si_code, SYS_SECCOMP);
    CHECK_EQ(trap_info.si_errno, 0x1234);
    CHECK_EQ(trap_info.si_syscall, SYS_getppid);
    CHECK_EQ(trap_info.si_arch, AUDIT_ARCH_X86_64);
    CHECK_EQ((long)trap_info.si_call_addr, gregs[REG_RIP]);
    const unsigned char *before = (const unsigned char *)trap_info.si_call_addr - 2;
    CHECK(before[0] == 0x0f && before[1] == 0x05);
    CHECK_EQ(gregs[REG_RAX], SYS_getppid);
    CHECK_EQ(gregs[REG_RDI], 3);
    /* The handler gives the result. */
    CHECK_EQ(raw1(SYS_getppid, 5), 4711);
}

TEST(a_blocked_trap_kills) {
    pid_t child = FORK();
    if (child == 0) {
        struct sigaction action = {.sa_sigaction = on_trap, .sa_flags = SA_SIGINFO};
        sigset_t all;
        OK(sigaction(SIGSYS, &action, NULL));
        sigfillset(&all);
        OK(sigprocmask(SIG_SETMASK, &all, NULL));
        on(SYS_getppid, SECCOMP_RET_TRAP);
        syscall(SYS_getppid);
        _exit(0);
    }
    KILLED(child, SIGSYS);
}

TEST(a_trace_without_a_tracer_is_no_call) {
    on(SYS_getppid, SECCOMP_RET_TRACE | 9);
    ERR(syscall(SYS_getppid), ENOSYS);
}

TEST(a_logged_call_is_carried_out) {
    pid_t parent = getppid();
    on(SYS_getppid, SECCOMP_RET_LOG);
    CHECK_EQ(syscall(SYS_getppid), parent);
    OK(INSTALL(SECCOMP_FILTER_FLAG_LOG | SECCOMP_FILTER_FLAG_SPEC_ALLOW,
               ON(SYS_getppid, SECCOMP_RET_ERRNO | 3)));
    ERR(syscall(SYS_getppid), 3);
}

TEST(a_notice_without_a_listener_is_no_call) {
    on(SYS_getppid, SECCOMP_RET_USER_NOTIF);
    ERR(syscall(SYS_getppid), ENOSYS);
}

TEST(actions_have_an_order) {
    /* Each is added to all that give way to it. */
    pid_t parent = getppid();
    bound();
    OK(INSTALL(0, ON(SYS_getppid, SECCOMP_RET_LOG)));
    CHECK_EQ(syscall(SYS_getppid), parent);
    OK(INSTALL(0, ON(SYS_getppid, SECCOMP_RET_TRACE)));
    ERR(syscall(SYS_getppid), ENOSYS);
    OK(INSTALL(0, ON(SYS_getppid, SECCOMP_RET_ERRNO | 5)));
    ERR(syscall(SYS_getppid), 5);
    /* Of two equal actions that of the later filter counts. */
    OK(INSTALL(0, ON(SYS_getppid, SECCOMP_RET_ERRNO | 4)));
    ERR(syscall(SYS_getppid), 4);
    OK(INSTALL(0, ON(SYS_getppid, SECCOMP_RET_ERRNO | 6)));
    ERR(syscall(SYS_getppid), 6);
    OK(INSTALL(0, ON(SYS_getppid, SECCOMP_RET_LOG)));
    ERR(syscall(SYS_getppid), 6);
    struct sigaction action = {.sa_sigaction = on_trap, .sa_flags = SA_SIGINFO};
    OK(sigaction(SIGSYS, &action, NULL));
    OK(INSTALL(0, ON(SYS_getppid, SECCOMP_RET_TRAP)));
    CHECK_EQ(raw1(SYS_getppid, 5), 4711);
    pid_t child = FORK();
    if (child == 0) {
        OK(INSTALL(0, ON(SYS_getppid, SECCOMP_RET_KILL_THREAD)));
        OK(INSTALL(0, ON(SYS_getppid, SECCOMP_RET_ERRNO)));
        syscall(SYS_getppid);
        _exit(0);
    }
    KILLED(child, SIGSYS);
}

TEST(a_filter_sees_the_whole_call) {
    bound();
    /* Every half of every argument must be right for the error. */
    struct sock_filter code[64];
    int count = 0;
    struct sock_filter step;
#define ADD(...) (step = (struct sock_filter)__VA_ARGS__, code[count++] = step)
    ADD(LOAD(nr));
    ADD(IF_EQUAL(SYS_getppid, 1, 0));
    ADD(ALLOW);
    ADD(LOAD(arch));
    ADD(IF_EQUAL(AUDIT_ARCH_X86_64, 1, 0));
    ADD(RETURN(SECCOMP_RET_ERRNO | 100));
    for (int i = 0; i < 6; i++)
        for (int high = 0; high < 2; high++) {
            ADD(BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
                         (unsigned)offsetof(struct seccomp_data, args[i]) + 4u * (unsigned)high));
            ADD(IF_EQUAL(high ? 0x80000000u + (unsigned)i : 0x90000000u + (unsigned)i, 1, 0));
            ADD(RETURN(SECCOMP_RET_ERRNO | (101 + (unsigned)i)));
        }
    ADD(RETURN(SECCOMP_RET_ERRNO | 99));
    OK(install(0, code, (size_t)count));
    unsigned long a[6];
    for (unsigned long i = 0; i < 6; i++)
        a[i] = (0x80000000ul + i) << 32 | (0x90000000ul + i);
    ERR(syscall(SYS_getppid, a[0], a[1], a[2], a[3], a[4], a[5]), 99);
    for (int i = 0; i < 6; i++) {
        a[i] ^= 1ul << 40;
        ERR(syscall(SYS_getppid, a[0], a[1], a[2], a[3], a[4], a[5]), 101 + i);
        a[i] ^= 1ul << 40;
    }
}

TEST(a_filter_sees_where_the_call_was_made) {
    bound();
    /* The address behind the instruction: its lower half, out of two programs. */
    extern char hy_after_call[];
    unsigned at = (unsigned)(unsigned long)hy_after_call;
    OK(INSTALL(0, LOAD(nr), IF_EQUAL(SYS_getppid, 1, 0), ALLOW, LOAD(instruction_pointer),
               IF_EQUAL(at, 0, 1), RETURN(SECCOMP_RET_ERRNO | 42), ALLOW));
    long result;
    __asm__ volatile("syscall\n.globl hy_after_call\nhy_after_call:"
                     : "=a"(result) : "a"(SYS_getppid) : "rcx", "r11", "memory");
    CHECK_EQ(result, -42);
    CHECK(syscall(SYS_getppid) > 0);
}

TEST(numbers_beyond_the_table_are_judged) {
    bound();
    OK(INSTALL(0, LOAD(nr), BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, 450, 0, 1),
               RETURN(SECCOMP_RET_ERRNO | 61), ALLOW));
    const long numbers[] = {450, 511, 512, 1003, 0x40000000 | SYS_getpid, 0x7fffffff, -1};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        CHECK_EQ(raw0(numbers[i]), -61);
    CHECK(getpid() > 0);
}

TEST(calculations_are_carried_out) {
    bound();
    /* getpriority(a, b): (a * 3 + b) / 2 ^ length, by way of memory, as an error. */
    OK(INSTALL(0, LOAD(nr), IF_EQUAL(SYS_getpriority, 1, 0), ALLOW, ARGUMENT(0),
               BPF_STMT(BPF_ALU | BPF_MUL | BPF_K, 3), BPF_STMT(BPF_ST, 7), ARGUMENT(1),
               BPF_STMT(BPF_MISC | BPF_TAX, 0), BPF_STMT(BPF_LD | BPF_MEM, 7),
               BPF_STMT(BPF_ALU | BPF_ADD | BPF_X, 0), BPF_STMT(BPF_ALU | BPF_DIV | BPF_K, 2),
               BPF_STMT(BPF_LDX | BPF_W | BPF_LEN, 0), BPF_STMT(BPF_ALU | BPF_XOR | BPF_X, 0),
               BPF_STMT(BPF_ALU | BPF_OR | BPF_K, SECCOMP_RET_ERRNO),
               BPF_STMT(BPF_RET | BPF_A, 0)));
    for (int a = 0; a < 20; a++)
        ERR(syscall(SYS_getpriority, a, 7 + a), ((a * 3 + 7 + a) / 2) ^ 64);
}

TEST(a_division_by_zero_kills) {
    pid_t child = FORK();
    if (child == 0) {
        bound();
        OK(INSTALL(0, LOAD(nr), IF_EQUAL(SYS_getpriority, 1, 0), ALLOW, ARGUMENT(0),
                   BPF_STMT(BPF_MISC | BPF_TAX, 0), BPF_STMT(BPF_LD | BPF_IMM, 9),
                   BPF_STMT(BPF_ALU | BPF_DIV | BPF_X, 0), ALLOW));
        syscall(SYS_getpriority, 3, 0);
        syscall(SYS_getpriority, 0, 0);
        _exit(0);
    }
    KILLED(child, SIGSYS);
}

/* ---- inheritance --------------------------------------------------------------------------- */

HELPER(refused) {
    int want = atoi(argv[1]);
    errno = 0;
    long got = syscall(SYS_getppid);
    return want ? (got == -1 && errno == want ? 0 : 1) : got > 0 ? 0 : 2;
}

TEST(filters_outlive_fork_and_exec) {
    on(SYS_getppid, SECCOMP_RET_ERRNO | 44);
    CHECK_EQ(status_of(getpid(), "Seccomp:\t"), 2);
    CHECK_EQ(status_of(getpid(), "Seccomp_filters:\t"), 1);
    IN_CHILD(ERR(syscall(SYS_getppid), 44));
    /* Often enough that a start would begin at an image. */
    for (int i = 0; i < 8; i++) {
        pid_t child = i % 2 ? vfork() : fork();
        if (child == 0) {
            char *const args[] = {"prog", "--helper", "refused", "44", NULL};
            execv(hy_self, args);
            _exit(99);
        }
        EXITS(child, 0);
    }
    IN_CHILD(OK(INSTALL(0, ON(SYS_getuid, SECCOMP_RET_ERRNO | 1)));
             CHECK_EQ(status_of(getpid(), "Seccomp_filters:\t"), 2));
    CHECK_EQ(status_of(getpid(), "Seccomp_filters:\t"), 1);
}

static void start(const char *want) {
    pid_t child = FORK();
    if (child == 0) {
        char *const args[] = {"prog", "--helper", "refused", (char *)want, NULL};
        execv(hy_self, args);
        _exit(99);
    }
    EXITS(child, 0);
}

TEST(a_start_with_a_filter_is_not_like_one_without) {
    /* The same command, without and with a filter, in turns. */
    for (int round = 0; round < 6; round++) {
        start("0");
        pid_t child = FORK();
        if (child == 0) {
            on(SYS_getppid, SECCOMP_RET_ERRNO | 45);
            start("45");
            _exit(0);
        }
        EXITS(child, 0);
        start("0");
    }
}

TEST(the_start_of_a_program_can_be_refused) {
    pid_t child = FORK();
    if (child == 0) {
        /* The C library sets its thread pointer before anything else. */
        on(SYS_arch_prctl, SECCOMP_RET_KILL_PROCESS);
        char *const args[] = {"prog", "--helper", "refused", "0", NULL};
        execv(hy_self, args);
        _exit(99);
    }
    KILLED(child, SIGSYS);
}

static void *in_filtered_thread(void *arg) {
    ERR(syscall(SYS_getppid), 46);
    return arg;
}

TEST(new_threads_have_the_filters_of_their_maker) {
    pthread_t thread;
    on(SYS_getppid, SECCOMP_RET_ERRNO | 46);
    for (int i = 0; i < 4; i++) {
        ZERO(pthread_create(&thread, NULL, in_filtered_thread, NULL));
        ZERO(pthread_join(thread, NULL));
    }
}

TEST(a_process_beside_has_no_filter) {
    /* Two that run by turns on one processor. */
    int to[2], from[2];
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(0, &one);
    sched_setaffinity(0, sizeof one, &one);
    OK(pipe(to));
    OK(pipe(from));
    pid_t child = FORK();
    if (child == 0) {
        on(SYS_getppid, SECCOMP_RET_ERRNO | 47);
        char c;
        for (int i = 0; i < 200; i++) {
            CHECK_EQ(read(to[0], &c, 1), 1);
            ERR(syscall(SYS_getppid), 47);
            CHECK_EQ(write(from[1], "x", 1), 1);
        }
        _exit(0);
    }
    char c;
    for (int i = 0; i < 200; i++) {
        CHECK_EQ(write(to[1], "x", 1), 1);
        CHECK(syscall(SYS_getppid) > 0);
        CHECK_EQ(read(from[0], &c, 1), 1);
        CHECK(syscall(SYS_getppid) > 0);
    }
    EXITS(child, 0);
}

TEST(filters_are_together_not_endless) {
    bound();
    struct sock_filter *code = calloc(BPF_MAXINSNS, sizeof *code);
    for (int i = 0; i < BPF_MAXINSNS; i++)
        code[i] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_IMM, (unsigned)i);
    code[BPF_MAXINSNS - 1] = (struct sock_filter)ALLOW;
    /* 4096 instructions become 4100, and each but the last counts four more. */
    int fit = 0;
    while (fit < 1000 && install(0, code, BPF_MAXINSNS) == 0)
        fit++;
    CHECK_EQ(errno, ENOMEM);
    CHECK_EQ(fit, 7);
    CHECK_EQ(status_of(getpid(), "Seccomp_filters:\t"), fit);
    /* 32768 - 7 * 4104 = 4040: a filter of n instructions counts n + 4. */
    struct sock_filter *last = code + BPF_MAXINSNS - 4037;
    ERR(install(0, last, 4037), ENOMEM);
    OK(install(0, last + 1, 4036));
    ERR(INSTALL(0, ALLOW), ENOMEM);
    free(code);
}

TEST_TIMES(a_long_chain_ends, 2) {
    bound();
    int count = 0;
    while (INSTALL(0, ALLOW) == 0)
        count++;
    CHECK_EQ(errno, ENOMEM);
    /* Each counts 5, and 4 more when it is not the last. */
    CHECK_EQ(count, (32768 + 4) / 9);
    pid_t child = FORK();
    if (child == 0)
        _exit(getpid() > 0 ? 0 : 1);
    EXITS(child, 0);
}

/* ---- threads ------------------------------------------------------------------------------- */

static _Atomic int go, ended;
static _Atomic pid_t other_tid;

static void *spins_until_refused(void *arg) {
    other_tid = (pid_t)syscall(SYS_gettid);
    go = 1;
    while (syscall(SYS_getppid) != -1)
        ;
    ended++;
    return arg;
}

TEST(all_threads_are_given_a_filter) {
    pthread_t thread[3];
    for (int i = 0; i < 3; i++)
        ZERO(pthread_create(&thread[i], NULL, spins_until_refused, NULL));
    EVENTUALLY(go == 1);
    OK(INSTALL(SECCOMP_FILTER_FLAG_TSYNC, ON(SYS_getppid, SECCOMP_RET_ERRNO | 48)));
    ERR(syscall(SYS_getppid), 48);
    for (int i = 0; i < 3; i++)
        ZERO(pthread_join(thread[i], NULL));
    CHECK_EQ(ended, 3);
    CHECK_EQ(prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0), 0);
}

static _Atomic long calls_after;
static _Atomic int is_synced;

static void *counts_calls(void *arg) {
    go = 1;
    while (!ended) {
        int synced = is_synced;
        /* When the other has returned, no call may be carried out. */
        if (syscall(SYS_getppid) != -1 && synced)
            calls_after++;
    }
    return arg;
}

TEST(no_thread_is_late) {
    pthread_t thread;
    for (int i = 0; i < 20; i++)
        IN_CHILD(ZERO(pthread_create(&thread, NULL, counts_calls, NULL));
                 EVENTUALLY(go == 1);
                 OK(INSTALL(SECCOMP_FILTER_FLAG_TSYNC, ON(SYS_getppid, SECCOMP_RET_ERRNO | 1)));
                 is_synced = 1; msleep(2); ended = 1; ZERO(pthread_join(thread, NULL));
                 CHECK_EQ(calls_after, 0));
}

static void *sleeps_in_a_call(void *arg) {
    char c;
    other_tid = (pid_t)syscall(SYS_gettid);
    go = 1;
    CHECK_EQ(read(*(int *)arg, &c, 1), 1); /* no EINTR */
    ERR(syscall(SYS_getppid), 49);
    CHECK_EQ(prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0), 1);
    return NULL;
}

TEST(a_sleeping_thread_is_given_a_filter_and_sleeps_on) {
    int ends[2];
    pthread_t thread;
    OK(pipe(ends));
    ZERO(pthread_create(&thread, NULL, sleeps_in_a_call, &ends[0]));
    EVENTUALLY(go == 1);
    wait_asleep(other_tid);
    bound();
    OK(INSTALL(SECCOMP_FILTER_FLAG_TSYNC, ON(SYS_getppid, SECCOMP_RET_ERRNO | 49)));
    msleep(20);
    OK(write(ends[1], "x", 1));
    ZERO(pthread_join(thread, NULL));
}

static void *has_a_filter_of_its_own(void *arg) {
    if (arg)
        in_strict_thread(NULL);
    on(SYS_getuid, SECCOMP_RET_ERRNO | 1);
    other_tid = (pid_t)syscall(SYS_gettid);
    go = 1;
    while (!ended)
        msleep(1);
    CHECK(syscall(SYS_getppid) > 0);
    return NULL;
}

TEST(a_thread_with_other_filters_is_named) {
    pthread_t thread;
    on(SYS_getgid, SECCOMP_RET_ERRNO | 1);
    ZERO(pthread_create(&thread, NULL, has_a_filter_of_its_own, NULL));
    EVENTUALLY(go == 1);
    struct sock_filter code[] = {ON(SYS_getppid, SECCOMP_RET_ERRNO | 1)};
    CHECK_EQ(install(SECCOMP_FILTER_FLAG_TSYNC, code, 4), other_tid);
    ERR(install(SECCOMP_FILTER_FLAG_TSYNC | SECCOMP_FILTER_FLAG_TSYNC_ESRCH, code, 4), ESRCH);
    ERR(install(SECCOMP_FILTER_FLAG_TSYNC | SECCOMP_FILTER_FLAG_TSYNC_ESRCH |
                    SECCOMP_FILTER_FLAG_NEW_LISTENER, code, 4), ESRCH);
    CHECK(syscall(SYS_getppid) > 0);
    CHECK_EQ(status_of(getpid(), "Seccomp_filters:\t"), 1);
    ended = 1;
    ZERO(pthread_join(thread, NULL));
    /* It is gone: nothing stands in the way. (It is counted until it has really ended.) */
    wait_alone();
    CHECK_EQ(install(SECCOMP_FILTER_FLAG_TSYNC, code, 4), 0);
}

static void *makes_threads(void *arg) {
    while (!ended) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, (void *(*)(void *))(void *)getppid, NULL) == 0)
            pthread_join(thread, NULL);
        go = 1;
    }
    return arg;
}

static void *asks_until_refused(void *arg UNUSED) {
    for (;;) {
        int synced = is_synced;
        if (syscall(SYS_getppid) == -1)
            return NULL;
        if (synced)
            FAIL("a thread has no filter");
    }
}

static void *makes_asking_threads(void *arg) {
    pthread_t thread[40];
    for (int i = 0; i < 40; i++) {
        ZERO(pthread_create(&thread[i], NULL, asks_until_refused, NULL));
        go = 1;
    }
    for (int i = 0; i < 40; i++)
        ZERO(pthread_join(thread[i], NULL));
    return arg;
}

TEST_TIMES(threads_that_are_made_meanwhile_have_it, 2) {
    for (int i = 0; i < 5; i++)
        IN_CHILD(pthread_t maker, other; ended = 0;
                 ZERO(pthread_create(&other, NULL, makes_threads, NULL));
                 EVENTUALLY(go == 1); go = 0;
                 ZERO(pthread_create(&maker, NULL, makes_asking_threads, NULL));
                 EVENTUALLY(go == 1);
                 OK(INSTALL(SECCOMP_FILTER_FLAG_TSYNC, ON(SYS_getppid, SECCOMP_RET_ERRNO | 1)));
                 is_synced = 1; ZERO(pthread_join(maker, NULL)); ended = 1;
                 ZERO(pthread_join(other, NULL)));
}

static void *installs_many(void *arg) {
    for (int i = 0; i < 30; i++) {
        struct sock_filter code[] = {ON(SYS_getuid, SECCOMP_RET_ERRNO | 1)};
        long got = install(arg ? SECCOMP_FILTER_FLAG_TSYNC : 0, code, 4);
        CHECK(got >= 0);
    }
    return NULL;
}

static void install_at_the_same_time(void) {
    pthread_t thread[4];
    bound();
    for (long i = 0; i < 4; i++)
        ZERO(pthread_create(&thread[i], NULL, installs_many, (void *)1));
    for (int i = 0; i < 4; i++)
        ZERO(pthread_join(thread[i], NULL));
    CHECK_EQ(status_of(getpid(), "Seccomp_filters:\t"), 120);
    ERR(syscall(SYS_getuid), 1);
}

/* The last threads begin while the first ones install: each has what was installed before, and can
 * install. */
TEST_TIMES(threads_install_at_the_same_time, 4) {
    for (int i = 0; i < 60; i++)
        IN_CHILD(install_at_the_same_time());
}

/* ---- listeners ----------------------------------------------------------------------------- */

static int listener;

static int listen_on(long number, unsigned flags) {
    bound();
    int fd = listener = (int)OK(INSTALL(SECCOMP_FILTER_FLAG_NEW_LISTENER | flags,
                             ON((unsigned)number, SECCOMP_RET_USER_NOTIF)));
    CHECK(fcntl(fd, F_GETFD) == FD_CLOEXEC);
    return fd;
}

static struct seccomp_notif receive(int fd) {
    struct seccomp_notif notice;
    memset(&notice, 0, sizeof notice);
    OK(ioctl(fd, SECCOMP_IOCTL_NOTIF_RECV, &notice));
    return notice;
}

static int answer(int fd, __u64 id, __s64 value, __s32 error, __u32 flags) {
    struct seccomp_notif_resp response = {id, value, error, flags};
    return ioctl(fd, SECCOMP_IOCTL_NOTIF_SEND, &response);
}

static short events(int fd) {
    struct pollfd one = {fd, POLLIN | POLLOUT, 0};
    OK(poll(&one, 1, 0));
    return one.revents;
}

/* A child that makes the call with two arguments and exits with the result, or 128 + error. */
static pid_t calls(long number, long first, long second) {
    pid_t child = FORK();
    if (child == 0) {
        close(listener);
        long result = syscall(number, first, second);
        syscall(SYS_exit_group, result == -1 ? 128 + errno : result);
    }
    return child;
}

TEST(a_listener_answers) {
    int fd = listen_on(SYS_getpriority, 0);
    CHECK_EQ(events(fd), 0);
    pid_t child = calls(SYS_getpriority, 11, 22);
    struct pollfd one = {fd, POLLIN | POLLOUT, 0};
    CHECK_EQ(poll(&one, 1, 10000), 1);
    CHECK_EQ(one.revents, POLLIN);
    struct seccomp_notif notice = receive(fd);
    CHECK_EQ(notice.pid, child);
    CHECK_EQ(notice.flags, 0);
    CHECK_EQ(notice.data.nr, SYS_getpriority);
    CHECK_EQ(notice.data.arch, AUDIT_ARCH_X86_64);
    CHECK_EQ(notice.data.args[0], 11);
    CHECK_EQ(notice.data.args[1], 22);
    CHECK_EQ(events(fd), POLLOUT);
    CHECK_EQ(ioctl(fd, SECCOMP_IOCTL_NOTIF_ID_VALID, &notice.id), 0);
    OK(answer(fd, notice.id, 33, 0, 0));
    EXITS(child, 33);
    ERR(ioctl(fd, SECCOMP_IOCTL_NOTIF_ID_VALID, &notice.id), ENOENT);
    ERR(answer(fd, notice.id, 33, 0, 0), ENOENT);
    CHECK_EQ(events(fd), 0);

    child = calls(SYS_getpriority, 0, 0);
    __u64 before = notice.id;
    notice = receive(fd);
    CHECK(notice.id != before);
    OK(answer(fd, notice.id, 5, -9, 0));
    EXITS(child, 128 + 9);
    CHECK_EQ(status_of(getpid(), "Seccomp:\t"), 2);
}

TEST(a_listener_lets_a_call_go_on) {
    int raw = (int)syscall(SYS_getpriority, PRIO_PROCESS, 0); /* 20 less the nice value */
    int fd = listen_on(SYS_getpriority, 0);
    pid_t child = calls(SYS_getpriority, PRIO_PROCESS, 0);
    struct seccomp_notif notice = receive(fd);
    OK(answer(fd, notice.id, 0, 0, SECCOMP_USER_NOTIF_FLAG_CONTINUE));
    EXITS(child, raw);
}

TEST(what_a_listener_does_wrong_is_refused) {
    int fd = listen_on(SYS_getpriority, 0);
    struct seccomp_notif notice = {.id = 1};
    ERR(ioctl(fd, SECCOMP_IOCTL_NOTIF_RECV, &notice), EINVAL);
    ERR(ioctl(fd, SECCOMP_IOCTL_NOTIF_RECV, BAD), EFAULT);
    ERR(ioctl(fd, SECCOMP_IOCTL_NOTIF_SEND, BAD), EFAULT);
    ERR(ioctl(fd, SECCOMP_IOCTL_NOTIF_ID_VALID, BAD), EFAULT);
    ERR(ioctl(fd, SECCOMP_IOCTL_NOTIF_ADDFD, BAD), EFAULT);
    ERR(ioctl(fd, _IO('!', 77), 0), EINVAL);
    ERR(ioctl(fd, TCGETS, 0), EINVAL);
    char c = 0;
    ERR(read(fd, &c, 1), EINVAL);
    ERR(write(fd, &c, 1), EINVAL);

    pid_t child = calls(SYS_getpriority, 0, 0);
    EVENTUALLY(events(fd) == POLLIN);
    notice = receive(fd);
    ERR(answer(fd, notice.id + 1, 0, 0, 0), ENOENT);
    ERR(answer(fd, notice.id, 0, 0, 2), EINVAL);
    ERR(answer(fd, notice.id, 1, 0, SECCOMP_USER_NOTIF_FLAG_CONTINUE), EINVAL);
    ERR(answer(fd, notice.id, 0, -1, SECCOMP_USER_NOTIF_FLAG_CONTINUE), EINVAL);
    OK(answer(fd, notice.id, 1, 0, 0));
    EXITS(child, 1);

    /* A notice that was not received cannot be answered, and one that could not be stored comes
     * again. */
    child = calls(SYS_getpriority, 0, 0);
    EVENTUALLY(events(fd) == POLLIN);
    ERR(answer(fd, notice.id + 1, 0, 0, 0), EINPROGRESS);
    struct seccomp_notif_addfd gift = {notice.id + 1, 0, (__u32)fd, 0, 0};
    ERR(ioctl(fd, SECCOMP_IOCTL_NOTIF_ADDFD, &gift), EINPROGRESS);
    void *readonly = mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ERR(ioctl(fd, SECCOMP_IOCTL_NOTIF_RECV, readonly), EFAULT);
    CHECK_EQ(events(fd), POLLIN);
    notice = receive(fd);
    OK(answer(fd, notice.id, 2, 0, 0));
    EXITS(child, 2);
}

TEST(one_listener_is_enough) {
    int fd = listen_on(SYS_getpriority, 0);
    ERR(INSTALL(SECCOMP_FILTER_FLAG_NEW_LISTENER, ON(SYS_getuid, SECCOMP_RET_USER_NOTIF)), EBUSY);
    /* Another filter without one is welcome, and the first one's listener is asked. */
    OK(INSTALL(0, ALLOW));
    pid_t child = calls(SYS_getpriority, 0, 0);
    struct seccomp_notif notice = receive(fd);
    OK(answer(fd, notice.id, 6, 0, 0));
    EXITS(child, 6);
    /* One that was closed is none. */
    close(fd);
    fd = listen_on(SYS_getuid, 0);
    ERR(syscall(SYS_getpriority, 0, 0), ENOSYS);
}

TEST(without_its_listener_a_call_is_none) {
    int fd = listen_on(SYS_getpriority, 0);
    pid_t first = calls(SYS_getpriority, 0, 0), second = calls(SYS_getpriority, 0, 0);
    EVENTUALLY(events(fd) == POLLIN);
    struct seccomp_notif notice = receive(fd);
    CHECK(notice.pid == (__u32)first || notice.pid == (__u32)second);
    wait_asleep(first);
    wait_asleep(second);
    OK(close(fd));
    EXITS(first, 128 + ENOSYS);
    EXITS(second, 128 + ENOSYS);
    ERR(syscall(SYS_getpriority, 0, 0), ENOSYS);
}

TEST(a_dead_asker_is_no_notice) {
    int fd = listen_on(SYS_getpriority, 0);
    pid_t child = calls(SYS_getpriority, 0, 0);
    EVENTUALLY(events(fd) == POLLIN);
    struct seccomp_notif notice = receive(fd);
    OK(kill(child, SIGKILL));
    KILLED(child, SIGKILL);
    ERR(ioctl(fd, SECCOMP_IOCTL_NOTIF_ID_VALID, &notice.id), ENOENT);
    ERR(answer(fd, notice.id, 0, 0, 0), ENOENT);
    struct seccomp_notif_addfd gift = {notice.id, 0, (__u32)fd, 0, 0};
    ERR(ioctl(fd, SECCOMP_IOCTL_NOTIF_ADDFD, &gift), ENOENT);
    CHECK_EQ(events(fd), 0);
    /* One that dies before it is received leaves a request behind. */
    child = calls(SYS_getpriority, 0, 0);
    EVENTUALLY(events(fd) == POLLIN);
    OK(kill(child, SIGKILL));
    KILLED(child, SIGKILL);
    CHECK_EQ(events(fd), 0);
    memset(&notice, 0, sizeof notice);
    ERR(ioctl(fd, SECCOMP_IOCTL_NOTIF_RECV, &notice), ENOENT);
}

TEST(a_listener_hears_that_nobody_is_left) {
    int pair[2];
    OK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
    pid_t child = FORK();
    if (child == 0) {
        int fd = listen_on(SYS_getpriority, 0);
        char c = 0, control[CMSG_SPACE(sizeof fd)];
        struct iovec part = {&c, 1};
        struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control,
                                 .msg_controllen = sizeof control};
        memset(control, 0, sizeof control);
        struct cmsghdr *head = CMSG_FIRSTHDR(&message);
        *head = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof fd), .cmsg_level = SOL_SOCKET,
                                 .cmsg_type = SCM_RIGHTS};
        memcpy(CMSG_DATA(head), &fd, sizeof fd);
        OK(sendmsg(pair[1], &message, 0));
        OK(read(pair[1], &c, 1));
        _exit(0);
    }
    char c, control[CMSG_SPACE(sizeof(int))];
    struct iovec part = {&c, 1};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control,
                             .msg_controllen = sizeof control};
    OK(recvmsg(pair[0], &message, 0));
    int fd;
    memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof fd);
    CHECK_EQ(events(fd), 0);
    int set = OK(epoll_create1(0));
    struct epoll_event event = {.events = EPOLLIN};
    OK(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event));
    CHECK_EQ(epoll_wait(set, &event, 1, 0), 0);
    OK(write(pair[0], "x", 1));
    EXITS(child, 0);
    CHECK_EQ(epoll_wait(set, &event, 1, 10000), 1);
    CHECK_EQ(event.events, EPOLLHUP);
    CHECK_EQ(events(fd), POLLHUP);
}

static volatile int calls_again;
static void count_calls_again(int signal UNUSED) {
    calls_again++;
}

TEST(a_signal_interrupts_a_call_that_waits) {
    int fd = listen_on(SYS_getpriority, 0);
    pid_t child = FORK();
    if (child == 0) {
        struct sigaction action = {.sa_handler = count_calls_again};
        OK(sigaction(SIGUSR1, &action, NULL));
        ERR(syscall(SYS_getpriority, 0, 0), EINTR);
        CHECK_EQ(calls_again, 1);
        action.sa_flags = SA_RESTART;
        OK(sigaction(SIGUSR1, &action, NULL));
        CHECK_EQ(syscall(SYS_getpriority, 0, 0), 9);
        CHECK_EQ(calls_again, 2);
        _exit(0);
    }
    struct seccomp_notif notice = receive(fd);
    OK(kill(child, SIGUSR1));
    EVENTUALLY(ioctl(fd, SECCOMP_IOCTL_NOTIF_ID_VALID, &notice.id) == -1);
    /* It is asked again from the beginning when it is made again. */
    struct seccomp_notif second = receive(fd);
    CHECK(second.id != notice.id);
    OK(kill(child, SIGUSR1));
    EVENTUALLY(ioctl(fd, SECCOMP_IOCTL_NOTIF_ID_VALID, &second.id) == -1);
    struct seccomp_notif third = receive(fd);
    CHECK(third.id != second.id);
    OK(answer(fd, third.id, 9, 0, 0));
    EXITS(child, 0);
}

TEST(a_received_call_may_wait_on_in_spite_of_signals) {
    int fd = listen_on(SYS_getpriority, SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV);
    volatile int *third = SHARED(sizeof *third);
    pid_t child = FORK();
    if (child == 0) {
        struct sigaction action = {.sa_handler = count_calls_again};
        OK(sigaction(SIGUSR1, &action, NULL));
        CHECK_EQ(syscall(SYS_getpriority, 0, 0), 9);
        CHECK_EQ(calls_again, 1);
        /* The second time it is interrupted before it is received. */
        ERR(syscall(SYS_getpriority, 0, 0), EINTR);
        CHECK_EQ(calls_again, 2);
        *third = 1;
        syscall(SYS_getpriority, 0, 0);
        _exit(1);
    }
    struct seccomp_notif notice = receive(fd);
    OK(kill(child, SIGUSR1));
    msleep(30);
    CHECK_EQ(ioctl(fd, SECCOMP_IOCTL_NOTIF_ID_VALID, &notice.id), 0);
    OK(answer(fd, notice.id, 9, 0, 0));
    EVENTUALLY(events(fd) == POLLIN);
    wait_asleep(child);
    OK(kill(child, SIGUSR1));
    /* The interrupted one's request stays; the third call comes besides. */
    EVENTUALLY(*third);
    EVENTUALLY(events(fd) == POLLIN);
    memset(&notice, 0, sizeof notice);
    int got;
    while ((got = ioctl(fd, SECCOMP_IOCTL_NOTIF_RECV, &notice)) == -1 && errno == ENOENT)
        memset(&notice, 0, sizeof notice);
    CHECK_EQ(got, 0);
    OK(kill(child, SIGKILL));
    KILLED(child, SIGKILL);
}

TEST(a_signal_interrupts_a_listener) {
    int fd = listen_on(SYS_getpriority, 0);
    struct sigaction action = {.sa_handler = on_signal};
    OK(sigaction(SIGALRM, &action, NULL));
    struct itimerval soon = {.it_value = {0, 20000}};
    OK(setitimer(ITIMER_REAL, &soon, NULL));
    struct seccomp_notif notice;
    memset(&notice, 0, sizeof notice);
    ERR(ioctl(fd, SECCOMP_IOCTL_NOTIF_RECV, &notice), EINTR);
}

/* ---- descriptors for the asking thread ----------------------------------------------------- */

static int give(int fd, struct seccomp_notif_addfd gift) {
    return ioctl(fd, SECCOMP_IOCTL_NOTIF_ADDFD, &gift);
}

TEST(a_listener_gives_descriptors) {
    int fd = listen_on(SYS_getpriority, 0);
    PUT("given", "content");
    int file = OK(open("given", O_RDONLY));
    pid_t child = FORK();
    if (child == 0) {
        close(file);
        close(fd);
        char text[8];
        int got = (int)syscall(SYS_getpriority, 0, 0); /* answered with its number */
        CHECK_EQ(pread(got, text, 7, 0), 7);
        CHECK_EQ(fcntl(got, F_GETFD), 0);
        CHECK_EQ(pread(200, text, 7, 0), 7);
        CHECK_EQ(fcntl(200, F_GETFD), FD_CLOEXEC);
        got = (int)syscall(SYS_getpriority, 0, 0); /* answered at once */
        CHECK_EQ(pread(got, text, 7, 0), 7);
        CHECK_EQ(syscall(SYS_getpriority, 0, 0), 201);
        CHECK_EQ(pread(201, text, 7, 0), 7);
        _exit(0);
    }
    struct seccomp_notif n = receive(fd);
    __u32 source = (__u32)file;
    ERR(give(fd, (struct seccomp_notif_addfd){n.id, 0, BAD_FD, 0, 0}), EBADF);
    ERR(give(fd, (struct seccomp_notif_addfd){n.id, 4, source, 0, 0}), EINVAL);
    ERR(give(fd, (struct seccomp_notif_addfd){n.id, 0, source, 7, 0}), EINVAL);
    ERR(give(fd, (struct seccomp_notif_addfd){n.id, 0, source, 0, O_APPEND}), EINVAL);
    ERR(give(fd, (struct seccomp_notif_addfd){n.id + 1, 0, source, 0, 0}), ENOENT);
    ERR(give(fd, (struct seccomp_notif_addfd){n.id, SECCOMP_ADDFD_FLAG_SETFD, source, BAD_FD, 0}),
        EBADF);
    int number = OK(give(fd, (struct seccomp_notif_addfd){n.id, 0, source, 0, 0}));
    CHECK(number >= 3);
    CHECK_EQ(give(fd, (struct seccomp_notif_addfd){n.id, SECCOMP_ADDFD_FLAG_SETFD, source, 200,
                                                   O_CLOEXEC}), 200);
    OK(answer(fd, n.id, number, 0, 0));
    n = receive(fd);
    OK(give(fd, (struct seccomp_notif_addfd){n.id, SECCOMP_ADDFD_FLAG_SEND, source, 0, 0}));
    n = receive(fd);
    /* It failed: the call waits for another answer. */
    ERR(give(fd, (struct seccomp_notif_addfd){
                 n.id, SECCOMP_ADDFD_FLAG_SEND | SECCOMP_ADDFD_FLAG_SETFD, source, BAD_FD, 0}),
        EBADF);
    CHECK_EQ(ioctl(fd, SECCOMP_IOCTL_NOTIF_ID_VALID, &n.id), 0);
    CHECK_EQ(give(fd, (struct seccomp_notif_addfd){
                          n.id, SECCOMP_ADDFD_FLAG_SEND | SECCOMP_ADDFD_FLAG_SETFD, source, 201,
                          0}), 201);
    EXITS(child, 0);
}

TEST(the_structure_of_a_gift_may_grow) {
    int fd = listen_on(SYS_getpriority, 0);
    struct { struct seccomp_notif_addfd gift; __u64 more; } grown;
    memset(&grown, 0, sizeof grown);
    pid_t child = calls(SYS_getpriority, 0, 0);
    struct seccomp_notif notice = receive(fd);
    grown.gift = (struct seccomp_notif_addfd){notice.id, 0, (__u32)fd, 0, 0};
    unsigned long longer = _IOC(_IOC_WRITE, '!', 3, sizeof grown);
    grown.more = 1;
    ERR(ioctl(fd, longer, &grown), E2BIG);
    grown.more = 0;
    OK(ioctl(fd, longer, &grown));
    ERR(ioctl(fd, _IOC(_IOC_WRITE, '!', 3, 16), &grown), EINVAL);
    ERR(ioctl(fd, _IOC(_IOC_WRITE, '!', 3, 4096), &grown), EINVAL);
    OK(answer(fd, notice.id, 3, 0, 0));
    EXITS(child, 3);
}

TEST(a_full_table_takes_no_descriptor) {
    int fd = listen_on(SYS_getpriority, 0);
    pid_t child = FORK();
    if (child == 0) {
        struct rlimit none = {0, 0};
        OK(setrlimit(RLIMIT_NOFILE, &none));
        CHECK_EQ(syscall(SYS_getpriority, 0, 0), 4);
        _exit(0);
    }
    struct seccomp_notif n = receive(fd);
    ERR(give(fd, (struct seccomp_notif_addfd){n.id, 0, (__u32)fd, 0, 0}), EMFILE);
    OK(answer(fd, n.id, 4, 0, 0));
    EXITS(child, 0);
}

static void *answers_all(void *arg) {
    int fd = *(int *)arg;
    for (int i = 0; i < 400; i++) {
        struct seccomp_notif notice = receive(fd);
        OK(answer(fd, notice.id, (__s64)notice.data.args[0] + 1, 0, 0));
    }
    return NULL;
}

TEST_TIMES(many_ask_at_the_same_time, 2) {
    int fd = listen_on(SYS_getpriority, 0);
    pthread_t thread[2];
    for (int i = 0; i < 2; i++)
        ZERO(pthread_create(&thread[i], NULL, answers_all, &fd));
    pid_t child[8];
    for (int c = 0; c < 8; c++) {
        child[c] = FORK();
        if (child[c] == 0) {
            for (int i = 0; i < 100; i++)
                CHECK_EQ(syscall(SYS_getpriority, c * 1000 + i, 0), c * 1000 + i + 1);
            _exit(0);
        }
    }
    for (int c = 0; c < 8; c++)
        EXITS(child[c], 0);
    for (int i = 0; i < 2; i++)
        ZERO(pthread_join(thread[i], NULL));
}

TEST(askers_are_killed_at_any_time) {
    int fd = listen_on(SYS_getpriority, 0);
    for (int i = 0; i < 60; i++) {
        pid_t child = calls(SYS_getpriority, 0, 0);
        struct seccomp_notif notice;
        memset(&notice, 0, sizeof notice);
        if (i % 3)
            EVENTUALLY(events(fd) & POLLIN);
        if (i % 3 == 2) {
            /* A request of one that was killed before it was received may be there. */
            while (ioctl(fd, SECCOMP_IOCTL_NOTIF_RECV, &notice) == -1)
                CHECK_EQ(errno, ENOENT);
        }
        OK(kill(child, SIGKILL));
        if (i % 3 == 2)
            answer(fd, notice.id, 0, 0, 0);
        int status = WAIT(child);
        CHECK(WIFSIGNALED(status) || (WIFEXITED(status) && WEXITSTATUS(status) == 0));
    }
}

TEST(a_filter_bounds_whoever_executes) {
    /* Bound or not, set-user-id programs aside: exec by a thread whose siblings have filters. */
    on(SYS_getppid, SECCOMP_RET_ERRNO | 50);
    pthread_t thread;
    ZERO(pthread_create(&thread, NULL, waits_for_ever, NULL));
    pid_t child = FORK();
    if (child == 0) {
        char *const args[] = {"prog", "--helper", "refused", "50", NULL};
        pthread_t other;
        ZERO(pthread_create(&other, NULL, waits_for_ever, NULL));
        execv(hy_self, args);
        _exit(99);
    }
    EXITS(child, 0);
}
