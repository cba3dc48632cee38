/* Tracing of processes: ptrace(2), wait(2), proc(5); kernel/ptrace.c and arch/x86/kernel/ptrace.c
 * of Linux. */
#define AREA "ptrace"
#include "trace.h"

/* ---- beginning and end ---------------------------------------------------------------------- */

TEST(a_child_is_traced_by_its_parent) {
    pid_t pid = TRACED(_exit(3));
    CHECK_EQ(field_of(pid, "TracerPid:\t"), getpid());
    CHECK_EQ(state_of(pid), 't');
    OK(T(PTRACE_CONT, pid, 0, 0));
    ENDS(pid, 3 << 8);
}

TEST(wrong_requests) {
    ERR(T(PTRACE_CONT, getpid(), 0, 0), ESRCH);
    ERR(T(PTRACE_ATTACH, getpid(), 0, 0), EPERM);
    ERR(T(PTRACE_ATTACH, 0x3ffffff, 0, 0), ESRCH);
    ERR(T(PTRACE_ATTACH, 0, 0, 0), ESRCH);
    ERR(T(PTRACE_ATTACH, -1, 0, 0), ESRCH);
    pid_t pid = TRACED(pause());
    ERR(T(PTRACE_ATTACH, pid, 0, 0), EPERM);
    ERR(T(PTRACE_SEIZE, pid, 0, 0), EPERM);
    ERR(T(0x7777, pid, 0, 0), EIO);
    ERR(T(PTRACE_INTERRUPT, pid, 0, 0), EIO);
    ERR(T(PTRACE_LISTEN, pid, 0, 0), EIO);
    ERR(T(PTRACE_CONT, pid, 0, 65), EIO);
    ERR(T(PTRACE_DETACH, pid, 0, 65), EIO);
    ERR(T(PTRACE_SETOPTIONS, pid, 0, 1 << 25), EINVAL);
    ERR(T(PTRACE_GETSIGMASK, pid, 4, hy_self), EINVAL);
    ERR(T(PTRACE_SETSIGMASK, pid, 4, hy_self), EINVAL);
    ERR(T(GETREGS, pid, 0, bad_address()), EFAULT);
    ERR(T(SETREGS, pid, 0, bad_address()), EFAULT);
    ERR(T(PTRACE_GETSIGINFO, pid, 0, bad_address()), EFAULT);
    ERR(T(PTRACE_GETEVENTMSG, pid, 0, bad_address()), EFAULT);
    OK(T(PTRACE_CONT, pid, 0, 0));
    /* It runs: nothing can be asked of it. */
    ERR(T(GETREGS, pid, 0, hy_tmp), ESRCH);
    ERR(T(PTRACE_CONT, pid, 0, 0), ESRCH);
    ERR(T(PTRACE_DETACH, pid, 0, 0), ESRCH);
    finish(pid);
    ERR(T(PTRACE_CONT, pid, 0, 0), ESRCH);
}

TEST(seize_has_its_own_errors) {
    pid_t pid = RUNNING(pause());
    ERR(T(PTRACE_SEIZE, pid, 1, 0), EIO);
    ERR(T(PTRACE_SEIZE, pid, 0, 1 << 25), EIO);
    finish(pid);
}

TEST(a_thread_asks_once_to_be_traced) {
    pid_t pid = TRACED(ERR(T(PTRACE_TRACEME, 0, 0, 0), EPERM));
    OK(T(PTRACE_CONT, pid, 0, 0));
    ENDS(pid, 0);
}

TEST(attach_stops_and_detach_goes_on) {
    int ends[2];
    OK(pipe(ends));
    pid_t pid = RUNNING({
        char byte;
        read(ends[0], &byte, 1);
        _exit(byte);
    });
    OK(T(PTRACE_ATTACH, pid, 0, 0));
    STOPS(pid, SIGSTOP);
    siginfo_t info;
    OK(T(PTRACE_GETSIGINFO, pid, 0, &info));
    CHECK_EQ(info.si_signo, SIGSTOP);
    CHECK_EQ(field_of(pid, "TracerPid:\t"), getpid());
    OK(T(PTRACE_DETACH, pid, 0, 0));
    CHECK_EQ(field_of(pid, "TracerPid:\t"), 0);
    CHECK_EQ(write(ends[1], "\7", 1), 1);
    EXITS(pid, 7);
}

TEST(detach_can_deliver_a_signal) {
    pid_t pid = TRACED(pause());
    OK(T(PTRACE_DETACH, pid, 0, SIGTERM));
    KILLED(pid, SIGTERM);
}

TEST(a_tracer_reads_a_zombie_first) {
    /* The grandchild's parent does not see it end before the tracer has. */
    int ends[2];
    OK(pipe(ends));
    volatile pid_t *number = SHARED(PAGE);
    pid_t parent = RUNNING({
        pid_t own = FORK();
        if (own == 0) {
            char byte;
            read(ends[0], &byte, 1);
            _exit(5);
        }
        *number = own;
        CHECK_EQ(waitpid(own, NULL, 0), own);
        _exit(6);
    });
    EVENTUALLY(*number);
    pid_t pid = *number;
    OK(T(PTRACE_SEIZE, pid, 0, 0));
    CHECK_EQ(write(ends[1], "x", 1), 1);
    EVENTUALLY(state_of(pid) == 'Z');
    msleep(20);
    CHECK_EQ(waitpid(parent, NULL, WNOHANG), 0);
    siginfo_t info;
    OK(waitid(P_PID, pid, &info, WEXITED | WNOWAIT));
    CHECK_EQ(info.si_status, 5);
    ENDS(pid, 5 << 8);
    EXITS(parent, 6);
    ERR(waitpid(pid, NULL, 0), ECHILD);
}

TEST(the_end_of_a_tracer_detaches) {
    int ends[2];
    OK(pipe(ends));
    pid_t pid = RUNNING({
        char byte;
        read(ends[0], &byte, 1);
        _exit(8);
    });
    pid_t tracer = RUNNING({
        OK(T(PTRACE_ATTACH, pid, 0, 0));
        STOPS(pid, SIGSTOP);
        OK(T(PTRACE_CONT, pid, 0, 0));
    });
    EXITS(tracer, 0);
    EVENTUALLY(field_of(pid, "TracerPid:\t") == 0);
    CHECK_EQ(write(ends[1], "x", 1), 1);
    EXITS(pid, 8);
}

TEST(the_end_of_a_tracer_kills_if_asked) {
    pid_t pid = RUNNING(for (;;) pause());
    pid_t tracer = RUNNING({
        OK(T(PTRACE_SEIZE, pid, 0, PTRACE_O_EXITKILL));
        kill(getpid(), SIGKILL);
    });
    KILLED(tracer, SIGKILL);
    KILLED(pid, SIGKILL);
}

TEST(kill_ends_a_stop) {
    pid_t pid = TRACED(_exit(1));
    OK(kill(pid, SIGKILL));
    ENDS(pid, SIGKILL);
    pid = TRACED(_exit(1));
    OK(T(PTRACE_KILL, pid, 0, 0));
    ENDS(pid, SIGKILL);
}

TEST(another_user_may_not_trace) {
    if (geteuid() != 0) SKIP("needs root");
    pid_t pid = RUNNING(pause());
    IN_CHILD({
        BECOME(NOBODY, NOBODY);
        ERR(T(PTRACE_ATTACH, pid, 0, 0), EPERM);
        ERR(T(PTRACE_SEIZE, pid, 0, 0), EPERM);
    });
    finish(pid);
    /* A process with other rights before is not dumpable. */
    pid = RUNNING({
        BECOME(NOBODY, NOBODY);
        pause();
    });
    EVENTUALLY(field_of(pid, "Uid:\t") == NOBODY);
    IN_CHILD({
        BECOME(NOBODY, NOBODY);
        ERR(T(PTRACE_ATTACH, pid, 0, 0), EPERM);
    });
    finish(pid);
}

TEST(a_child_with_more_rights_is_not_traced) {
    if (geteuid() != 0) SKIP("needs root");
    int ends[2];
    OK(pipe(ends));
    pid_t parent = RUNNING({
        pid_t own = FORK();
        if (own == 0) {
            char byte;
            read(ends[0], &byte, 1);
            ERR(T(PTRACE_TRACEME, 0, 0, 0), EPERM);
            _exit(0);
        }
        BECOME(NOBODY, NOBODY);
        CHECK_EQ(write(ends[1], "x", 1), 1);
        EXITS(own, 0);
    });
    EXITS(parent, 0);
}

/* ---- memory --------------------------------------------------------------------------------- */

static volatile long variable = 0x1122334455667788;
static const volatile long constant = 0x0102030405060708;

TEST(memory_is_read_and_written) {
    pid_t pid = TRACED(_exit(variable == 42 && constant == 43 ? 0 : 1));
    CHECK_EQ(peek(pid, &variable), variable);
    OK(T(PTRACE_POKEDATA, pid, &variable, 42));
    CHECK_EQ(peek(pid, &variable), 42);
    /* Where the program itself may not write, too. */
    OK(T(PTRACE_POKETEXT, pid, &constant, 43));
    CHECK_EQ(constant, 0x0102030405060708);
    long word;
    ERR(T(PTRACE_PEEKDATA, pid, &variable, bad_address()), EFAULT);
    ERR(T(PTRACE_PEEKDATA, pid, 16, &word), EIO);
    ERR(T(PTRACE_POKEDATA, pid, 16, 1), EIO);
    ERR(T(PTRACE_PEEKDATA, pid, -8L, &word), EIO);
    OK(T(PTRACE_CONT, pid, 0, 0));
    ENDS(pid, 0);
    CHECK_EQ(variable, 0x1122334455667788);
}

TEST(a_word_may_cross_a_page) {
    char *pages = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(pages != MAP_FAILED);
    memset(pages, 1, 2 * PAGE);
    pid_t pid = TRACED(_exit(pages[PAGE - 3] == 9 && pages[PAGE + 4] == 9 ? 0 : 1));
    OK(T(PTRACE_POKEDATA, pid, pages + PAGE - 3, 0x0909090909090909));
    CHECK_EQ(peek(pid, pages + PAGE - 3), 0x0909090909090909);
    OK(T(PTRACE_CONT, pid, 0, 0));
    ENDS(pid, 0);
    CHECK_EQ(pages[PAGE], 1);
}

TEST(shared_memory_is_written_only_with_the_right) {
    long *shared = SHARED(PAGE);
    pid_t pid = TRACED(_exit(0));
    OK(T(PTRACE_POKEDATA, pid, shared, 7));
    CHECK_EQ(*shared, 7);
    finish(pid);
    OK(mprotect(shared, PAGE, PROT_READ));
    pid = TRACED(_exit(0));
    ERR(T(PTRACE_POKEDATA, pid, shared, 8), EIO);
    CHECK_EQ(*shared, 7);
    finish(pid);
}

static __attribute__((noinline)) int function(int x) {
    __asm__ volatile("" : "+r"(x));
    return x + 1;
}

static void stop_at_function(pid_t pid, int through_file) {
    const unsigned long at = (unsigned long)&function;
    long text = peek(pid, (void *)at);
    long trap = (text & ~0xffL) | 0xcc;
    if (through_file) {
        char path[64];
        snprintf(path, sizeof path, "/proc/%d/mem", pid);
        int fd = OK(open(path, O_RDWR));
        CHECK_EQ(pwrite(fd, &trap, 1, at), 1);
        close(fd);
    } else
        OK(T(PTRACE_POKETEXT, pid, at, trap));
    /* Our own text is another page. */
    CHECK(*(const unsigned char *)at != 0xcc);
    OK(T(PTRACE_CONT, pid, 0, 0));
    STOPS(pid, SIGTRAP);
    siginfo_t info;
    OK(T(PTRACE_GETSIGINFO, pid, 0, &info));
    CHECK_EQ(info.si_signo, SIGTRAP);
    CHECK_EQ(info.si_code, SI_KERNEL);
    struct user_regs_struct regs = registers_of(pid);
    CHECK_EQ(regs.rip, at + 1);
    CHECK_EQ(regs.rdi, 41);
    regs.rip = at;
    OK(T(SETREGS, pid, 0, &regs));
    OK(T(PTRACE_POKETEXT, pid, at, text));
    OK(T(PTRACE_CONT, pid, 0, 0));
    ENDS(pid, 42 << 8);
}

TEST(a_breakpoint_in_text) {
    stop_at_function(TRACED(_exit(function(41))), 0);
    stop_at_function(TRACED(_exit(function(41))), 1);
    CHECK_EQ(function(1), 2);
}

/* ---- registers ------------------------------------------------------------------------------ */

TEST(general_registers) {
    pid_t pid = TRACED({
        long result;
        __asm__ volatile("mov $0x1234, %%r12; mov $0x5678, %%rbx; int3; lea (%%r12,%%rbx), %0"
                         : "=r"(result)
                         :
                         : "r12", "rbx", "memory");
        _exit(result == 5 ? 0 : 1);
    });
    OK(T(PTRACE_CONT, pid, 0, 0));
    STOPS(pid, SIGTRAP);
    struct user_regs_struct regs = registers_of(pid), again;
    CHECK_EQ(regs.r12, 0x1234);
    CHECK_EQ(regs.rbx, 0x5678);
    CHECK_EQ(regs.cs, 0x33);
    CHECK_EQ(regs.ss, 0x2b);
    CHECK_EQ((long)regs.orig_rax, -1);
    long word = 0;
    OK(T(PTRACE_PEEKUSER, pid, offsetof(struct user_regs_struct, r12), &word));
    CHECK_EQ(word, 0x1234);
    ERR(T(PTRACE_PEEKUSER, pid, 3, &word), EIO);
    ERR(T(PTRACE_PEEKUSER, pid, 100000, &word), EIO);
    OK(T(PTRACE_POKEUSER, pid, offsetof(struct user_regs_struct, r12), 2));
    ERR(T(PTRACE_POKEUSER, pid, offsetof(struct user_regs_struct, cs), 0), EIO);
    ERR(T(PTRACE_POKEUSER, pid, offsetof(struct user_regs_struct, ss), 0x10), EIO);
    ERR(T(PTRACE_POKEUSER, pid, offsetof(struct user_regs_struct, fs_base), 1UL << 63), EIO);
    ERR(T(PTRACE_POKEUSER, pid, offsetof(struct user, u_tsize), 1), EIO);
    struct iovec set = {&regs, sizeof regs};
    OK(T(PTRACE_GETREGSET, pid, NT_PRSTATUS, &set));
    CHECK_EQ(set.iov_len, sizeof regs);
    CHECK_EQ(regs.r12, 2);
    regs.rbx = 3;
    OK(T(PTRACE_SETREGSET, pid, NT_PRSTATUS, &set));
    again = registers_of(pid);
    CHECK(memcmp(&regs, &again, sizeof regs) == 0);
    /* A part is as good. */
    set.iov_len = 16;
    OK(T(PTRACE_GETREGSET, pid, NT_PRSTATUS, &set));
    CHECK_EQ(set.iov_len, 16);
    set.iov_len = 1 << 20;
    OK(T(PTRACE_GETREGSET, pid, NT_PRSTATUS, &set));
    CHECK_EQ(set.iov_len, sizeof regs);
    set.iov_len = 13;
    ERR(T(PTRACE_GETREGSET, pid, NT_PRSTATUS, &set), EINVAL);
    set.iov_len = 16;
    ERR(T(PTRACE_GETREGSET, pid, 0x7777, &set), EINVAL);
    ERR(T(PTRACE_GETREGSET, pid, NT_PRSTATUS, bad_address()), EFAULT);
    OK(T(PTRACE_CONT, pid, 0, 0));
    ENDS(pid, 0);
}

TEST(flags_that_a_program_cannot_set) {
    pid_t pid = TRACED(_exit(0));
    struct user_regs_struct regs = registers_of(pid);
    /* Interrupts off, and the level of input and output. */
    regs.eflags = (regs.eflags & ~0x200UL) | 0x3000 | 1;
    OK(T(SETREGS, pid, 0, &regs));
    regs = registers_of(pid);
    CHECK_EQ(regs.eflags & 0x3201, 0x201);
    OK(T(PTRACE_CONT, pid, 0, 0));
    ENDS(pid, 0);
}

TEST(an_instruction_pointer_beyond) {
    unsigned long places[] = {1UL << 63, 0xffffffff80000000, 0x7ffffffff000, 1UL << 47};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        pid_t pid = TRACED(_exit(0));
        OK(T(PTRACE_POKEUSER, pid, offsetof(struct user_regs_struct, rip), places[i]));
        OK(T(PTRACE_CONT, pid, 0, 0));
        STOPS(pid, SIGSEGV);
        finish(pid);
    }
}

TEST(vector_registers) {
    pid_t pid = TRACED({
        long out;
        __asm__ volatile("movq %1, %%xmm3; int3; movq %%xmm3, %0"
                         : "=r"(out)
                         : "r"(0x1122334455667788)
                         : "xmm3", "memory");
        _exit(out == 0x99 ? 0 : 1);
    });
    OK(T(PTRACE_CONT, pid, 0, 0));
    STOPS(pid, SIGTRAP);
    struct user_fpregs_struct fp, same;
    OK(T(GETFPREGS, pid, 0, &fp));
    long *xmm = (long *)fp.xmm_space;
    CHECK_EQ(xmm[6], 0x1122334455667788);
    CHECK_EQ(fp.mxcsr, 0x1f80);
    CHECK_EQ(fp.cwd, 0x37f);
    struct iovec set = {&same, sizeof same};
    OK(T(PTRACE_GETREGSET, pid, NT_PRFPREG, &set));
    CHECK_EQ(set.iov_len, sizeof same);
    CHECK(memcmp(&fp, &same, 416) == 0);
    fp.mxcsr = 0xffffffff;
    ERR(T(SETFPREGS, pid, 0, &fp), EINVAL);
    fp.mxcsr = 0x1f80;
    xmm[6] = 0x77;
    OK(T(SETFPREGS, pid, 0, &fp));
    static _Alignas(64) char state[16384];
    set = (struct iovec){state, sizeof state};
    OK(T(PTRACE_GETREGSET, pid, NT_X86_XSTATE, &set));
    CHECK(set.iov_len >= 576);
    CHECK_EQ(*(long *)(state + 160 + 48), 0x77);
    /* The components that there are. */
    CHECK_EQ(*(long *)(state + 464) & 3, 3);
    *(long *)(state + 160 + 48) = 0x99;
    *(long *)(state + 512) |= 2;
    struct iovec less = {state, set.iov_len - 8};
    ERR(T(PTRACE_SETREGSET, pid, NT_X86_XSTATE, &less), EFAULT);
    OK(T(PTRACE_SETREGSET, pid, NT_X86_XSTATE, &set));
    OK(T(GETFPREGS, pid, 0, &fp));
    CHECK_EQ(xmm[6], 0x99);
    *(long *)(state + 512) |= 1L << 60;
    ERR(T(PTRACE_SETREGSET, pid, NT_X86_XSTATE, &set), EINVAL);
    OK(T(PTRACE_CONT, pid, 0, 0));
    ENDS(pid, 0);
}

/* ---- signals -------------------------------------------------------------------------------- */

TEST(a_signal_is_shown_and_changed) {
    pid_t pid = TRACED({
        signal(SIGUSR1, catch_signal);
        signal(SIGUSR2, catch_signal);
        raise(SIGUSR1);
        _exit(caught);
    });
    OK(T(PTRACE_CONT, pid, 0, 0));
    STOPS(pid, SIGUSR1);
    siginfo_t info;
    OK(T(PTRACE_GETSIGINFO, pid, 0, &info));
    CHECK_EQ(info.si_signo, SIGUSR1);
    CHECK_EQ(info.si_pid, pid);
    /* Not delivered. */
    OK(T(PTRACE_CONT, pid, 0, 0));
    ENDS(pid, 0);
    pid = TRACED({
        signal(SIGUSR1, catch_signal);
        signal(SIGUSR2, catch_signal);
        raise(SIGUSR1);
        _exit(caught);
    });
    OK(T(PTRACE_CONT, pid, 0, 0));
    STOPS(pid, SIGUSR1);
    OK(T(PTRACE_CONT, pid, 0, SIGUSR2));
    ENDS(pid, SIGUSR2 << 8);
}

static volatile int value_seen;
static void take_value(int number UNUSED, siginfo_t *info, void *context UNUSED) {
    value_seen = info->si_value.sival_int;
}

TEST(the_information_of_a_signal_is_changed) {
    pid_t pid = TRACED({
        struct sigaction action = {.sa_sigaction = take_value, .sa_flags = SA_SIGINFO};
        sigaction(SIGUSR1, &action, NULL);
        sigqueue(getpid(), SIGUSR1, (union sigval){.sival_int = 1});
        _exit(value_seen);
    });
    OK(T(PTRACE_CONT, pid, 0, 0));
    STOPS(pid, SIGUSR1);
    siginfo_t info;
    OK(T(PTRACE_GETSIGINFO, pid, 0, &info));
    CHECK_EQ(info.si_value.sival_int, 1);
    info.si_value.sival_int = 9;
    OK(T(PTRACE_SETSIGINFO, pid, 0, &info));
    OK(T(PTRACE_CONT, pid, 0, SIGUSR1));
    ENDS(pid, 9 << 8);
}

TEST(ignored_signals_are_shown) {
    pid_t pid = TRACED({
        signal(SIGUSR1, SIG_IGN);
        raise(SIGUSR1);
        raise(SIGWINCH);
    });
    OK(T(PTRACE_CONT, pid, 0, 0));
    STOPS(pid, SIGUSR1);
    OK(T(PTRACE_CONT, pid, 0, SIGUSR1));
    STOPS(pid, SIGWINCH);
    OK(T(PTRACE_CONT, pid, 0, SIGWINCH));
    ENDS(pid, 0);
}

TEST(a_blocked_signal_is_not_shown) {
    pid_t pid = TRACED({
        sigset_t set;
        sigemptyset(&set);
        sigaddset(&set, SIGUSR1);
        sigprocmask(SIG_BLOCK, &set, NULL);
        raise(SIGUSR1);
        kill(getpid(), SIGSTOP);
    });
    OK(T(PTRACE_CONT, pid, 0, 0));
    STOPS(pid, SIGSTOP);
    uint64_t mask = 0;
    OK(T(PTRACE_GETSIGMASK, pid, 8, &mask));
    CHECK_EQ(mask, 1UL << (SIGUSR1 - 1));
    /* It pends for the thread. */
    struct {
        uint64_t off;
        uint32_t flags;
        int32_t nr;
    } which = {0, 0, 4};
    siginfo_t infos[4];
    CHECK_EQ(OK(T(PTRACE_PEEKSIGINFO, pid, &which, infos)), 1);
    CHECK_EQ(infos[0].si_signo, SIGUSR1);
    which.flags = 1;
    CHECK_EQ(OK(T(PTRACE_PEEKSIGINFO, pid, &which, infos)), 0);
    which.flags = 2;
    ERR(T(PTRACE_PEEKSIGINFO, pid, &which, infos), EINVAL);
    which.flags = 0, which.nr = -1;
    ERR(T(PTRACE_PEEKSIGINFO, pid, &which, infos), EINVAL);
    ERR(T(PTRACE_PEEKSIGINFO, pid, bad_address(), infos), EFAULT);
    mask = 1UL << (SIGKILL - 1);
    OK(T(PTRACE_SETSIGMASK, pid, 8, &mask));
    OK(T(PTRACE_GETSIGMASK, pid, 8, &mask));
    CHECK_EQ(mask, 0);
    OK(T(PTRACE_CONT, pid, 0, 0));
    STOPS(pid, SIGUSR1);
    OK(T(PTRACE_CONT, pid, 0, SIGUSR1));
    ENDS(pid, SIGUSR1);
}

TEST(a_sleep_goes_on_after_a_signal) {
    pid_t pid = TRACED({
        struct timespec time = {0, 100 * MS};
        _exit(nanosleep(&time, NULL) == 0 ? 0 : 1);
    });
    OK(T(PTRACE_CONT, pid, 0, 0));
    wait_asleep(pid);
    OK(kill(pid, SIGUSR1));
    STOPS(pid, SIGUSR1);
    OK(T(PTRACE_CONT, pid, 0, 0));
    ENDS(pid, 0);
}

TEST(the_tracer_is_told_by_sigchld) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    OK(sigprocmask(SIG_BLOCK, &set, NULL));
    pid_t pid = TRACED(_exit(0));
    siginfo_t info;
    CHECK_EQ(sigwaitinfo(&set, &info), SIGCHLD);
    CHECK_EQ(info.si_pid, pid);
    CHECK_EQ(info.si_code, CLD_TRAPPED);
    CHECK_EQ(info.si_status, SIGSTOP);
    OK(T(PTRACE_CONT, pid, 0, 0));
    ENDS(pid, 0);
    CHECK_EQ(sigwaitinfo(&set, &info), SIGCHLD);
    CHECK_EQ(info.si_code, CLD_EXITED);
}

TEST(waitid_tells_of_stops) {
    pid_t pid = FORK();
    if (pid == 0) {
        OK(T(PTRACE_TRACEME, 0, 0, 0));
        kill(getpid(), SIGSTOP);
        _exit(0);
    }
    siginfo_t info = {0};
    OK(waitid(P_PID, pid, &info, WSTOPPED | WNOWAIT));
    CHECK_EQ(info.si_code, CLD_TRAPPED);
    CHECK_EQ(info.si_status, SIGSTOP);
    OK(waitid(P_PID, pid, &info, WEXITED));
    CHECK_EQ(info.si_code, CLD_TRAPPED);
    CHECK_EQ(waitpid(pid, NULL, WNOHANG), 0);
    OK(T(PTRACE_CONT, pid, 0, 0));
    ENDS(pid, 0);
}

TEST(ignored_children_are_waited_for_if_traced) {
    signal(SIGCHLD, SIG_IGN);
    pid_t pid = TRACED(_exit(4));
    OK(T(PTRACE_CONT, pid, 0, 0));
    ENDS(pid, 4 << 8);
}
