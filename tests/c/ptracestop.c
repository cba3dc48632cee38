/* Where a traced thread stops: groups, system calls, events, steps, breakpoints, threads, races;
 * ptrace(2), kernel/signal.c of Linux. */
#define AREA "ptracestop"
#include "trace.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>

static __attribute__((noinline)) int function(int x) {
    __asm__ volatile("" : "+r"(x));
    return x + 1;
}

/* ---- stops of groups ------------------------------------------------------------------------ */

TEST(a_group_stop_of_an_attached_thread) {
    pid_t pid = TRACED(_exit(0));
    /* The signal is delivered: now the process stops. */
    OK(T(PTRACE_CONT, pid, 0, SIGSTOP));
    STOPS(pid, SIGSTOP);
    siginfo_t info;
    ERR(T(PTRACE_GETSIGINFO, pid, 0, &info), EINVAL);
    OK(T(PTRACE_CONT, pid, 0, 0));
    ENDS(pid, 0);
}

TEST(interrupt_and_listen) {
    pid_t pid = RUNNING(for (;;) pause());
    OK(T(PTRACE_SEIZE, pid, 0, 0));
    CHECK_EQ(waitpid(pid, NULL, WNOHANG), 0);
    ERR(T(PTRACE_LISTEN, pid, 0, 0), ESRCH);
    OK(T(PTRACE_INTERRUPT, pid, 0, 0));
    STOPS(pid, EVENT(PTRACE_EVENT_STOP));
    OK(T(PTRACE_CONT, pid, 0, 0));
    OK(kill(pid, SIGSTOP));
    STOPS(pid, SIGSTOP);
    ERR(T(PTRACE_LISTEN, pid, 0, 0), EIO);
    OK(T(PTRACE_CONT, pid, 0, SIGSTOP));
    STOPS(pid, SIGSTOP | PTRACE_EVENT_STOP << 8);
    OK(T(PTRACE_LISTEN, pid, 0, 0));
    ERR(T(PTRACE_CONT, pid, 0, 0), ESRCH);
    CHECK_EQ(waitpid(pid, NULL, WNOHANG), 0);
    OK(kill(pid, SIGCONT));
    STOPS(pid, EVENT(PTRACE_EVENT_STOP));
    OK(T(PTRACE_CONT, pid, 0, 0));
    STOPS(pid, SIGCONT);
    OK(T(PTRACE_CONT, pid, 0, SIGCONT));
    OK(T(PTRACE_INTERRUPT, pid, 0, 0));
    STOPS(pid, EVENT(PTRACE_EVENT_STOP));
    OK(T(PTRACE_DETACH, pid, 0, 0));
    finish(pid);
}

TEST(a_stopped_process_is_attached) {
    pid_t pid = RUNNING(for (;;) pause());
    OK(kill(pid, SIGSTOP));
    int status;
    CHECK_EQ(waitpid(pid, &status, WUNTRACED), pid);
    OK(T(PTRACE_SEIZE, pid, 0, 0));
    STOPS(pid, SIGSTOP | PTRACE_EVENT_STOP << 8);
    /* It runs again, although the process is stopped. */
    OK(T(PTRACE_CONT, pid, 0, 0));
    OK(T(PTRACE_INTERRUPT, pid, 0, 0));
    STOPS(pid, SIGSTOP | PTRACE_EVENT_STOP << 8);
    OK(T(PTRACE_DETACH, pid, 0, 0));
    EVENTUALLY(state_of(pid) == 'T');
    finish(pid);
}

TEST(a_process_whose_stop_is_passed_can_fork) {
    pid_t pid = TRACED({
        kill(getpid(), SIGSTOP);
        pid_t own = fork();
        if (own == 0) _exit(3);
        int status = 0;
        waitpid(own, &status, 0);
        _exit(WEXITSTATUS(status));
    });
    OK(T(PTRACE_CONT, pid, 0, 0));
    STOPS(pid, SIGSTOP);
    OK(T(PTRACE_CONT, pid, 0, SIGSTOP));
    STOPS(pid, SIGSTOP);
    OK(T(PTRACE_CONT, pid, 0, 0));
    STOPS(pid, SIGCHLD);
    OK(T(PTRACE_CONT, pid, 0, 0));
    ENDS(pid, 3 << 8);
}

/* ---- system calls --------------------------------------------------------------------------- */

static void call_stop(pid_t pid, int op, long number, long result) {
    OK(T(PTRACE_SYSCALL, pid, 0, 0));
    STOPS(pid, SIGTRAP | 0x80);
    struct ptrace_syscall_info info;
    memset(&info, 0, sizeof info);
    long size = OK(T(PTRACE_GET_SYSCALL_INFO, pid, sizeof info, &info));
    CHECK_EQ(info.op, op);
    CHECK_EQ(info.arch, 0xc000003e);
    unsigned long message = 0;
    OK(T(PTRACE_GETEVENTMSG, pid, 0, &message));
    struct user_regs_struct regs = registers_of(pid);
    CHECK_EQ(info.instruction_pointer, regs.rip);
    CHECK_EQ(info.stack_pointer, regs.rsp);
    if (op == PTRACE_SYSCALL_INFO_ENTRY) {
        CHECK_EQ(size, 80);
        CHECK_EQ(message, 1);
        CHECK_EQ(info.entry.nr, number);
        CHECK_EQ(regs.orig_rax, number);
        CHECK_EQ((long)regs.rax, -ENOSYS);
        CHECK_EQ(info.entry.args[0], regs.rdi);
    } else {
        CHECK_EQ(size, 33);
        CHECK_EQ(message, 2);
        CHECK_EQ(info.exit.rval, result);
        CHECK_EQ(info.exit.is_error, result < 0);
        CHECK_EQ((long)regs.rax, result);
    }
}

TEST(system_calls_stop) {
    pid_t pid = TRACED({
        syscall(SYS_getppid);
        syscall(SYS_close, 1234);
    });
    OK(T(PTRACE_SETOPTIONS, pid, 0, PTRACE_O_TRACESYSGOOD));
    pid_t self = getpid();
    struct ptrace_syscall_info info;
    CHECK_EQ(OK(T(PTRACE_GET_SYSCALL_INFO, pid, sizeof info, &info)), 24);
    CHECK_EQ(info.op, PTRACE_SYSCALL_INFO_NONE);
    /* The rest of raise(). */
    for (;;) {
        OK(T(PTRACE_SYSCALL, pid, 0, 0));
        STOPS(pid, SIGTRAP | 0x80);
        struct user_regs_struct regs = registers_of(pid);
        OK(T(PTRACE_GET_SYSCALL_INFO, pid, sizeof info, &info));
        if (info.op == PTRACE_SYSCALL_INFO_ENTRY && regs.orig_rax == SYS_getppid) break;
    }
    call_stop(pid, PTRACE_SYSCALL_INFO_EXIT, SYS_getppid, self);
    call_stop(pid, PTRACE_SYSCALL_INFO_ENTRY, SYS_close, 0);
    call_stop(pid, PTRACE_SYSCALL_INFO_EXIT, SYS_close, -EBADF);
    call_stop(pid, PTRACE_SYSCALL_INFO_ENTRY, SYS_exit_group, 0);
    OK(T(PTRACE_SYSCALL, pid, 0, 0));
    ENDS(pid, 0);
}

/* Goes on to the entry of a call. */
static void go_to(pid_t pid, long number, long how) {
    struct user_regs_struct regs;
    do {
        OK(T(how, pid, 0, 0));
        STOPS(pid, SIGTRAP);
        regs = registers_of(pid);
    } while ((long)regs.orig_rax != number || (long)regs.rax != -ENOSYS);
}

TEST(a_call_is_exchanged_and_left_out) {
    pid_t self = getpid();
    pid_t pid = TRACED({
        if (syscall(SYS_getuid) != self) _exit(1);
        if (syscall(SYS_getppid) != 77) _exit(2);
    });
    go_to(pid, SYS_getuid, PTRACE_SYSCALL);
    OK(T(PTRACE_POKEUSER, pid, offsetof(struct user_regs_struct, orig_rax), SYS_getppid));
    go_to(pid, SYS_getppid, PTRACE_SYSCALL);
    OK(T(PTRACE_POKEUSER, pid, offsetof(struct user_regs_struct, orig_rax), -1));
    OK(T(PTRACE_SYSCALL, pid, 0, 0));
    STOPS(pid, SIGTRAP);
    struct user_regs_struct regs = registers_of(pid);
    CHECK_EQ((long)regs.rax, -ENOSYS);
    regs.rax = 77;
    OK(T(SETREGS, pid, 0, &regs));
    OK(T(PTRACE_CONT, pid, 0, 0));
    ENDS(pid, 0);
}

TEST(registers_that_calls_keep_are_changed_at_a_stop) {
    pid_t pid = TRACED({
        long b = 1, c = 2;
        __asm__ volatile("mov $5, %%rbx; mov $6, %%r12; mov %2, %%eax; syscall; mov %%rbx, %0;"
                         "mov %%r12, %1"
                         : "=m"(b), "=m"(c)
                         : "i"(SYS_getuid)
                         : "rax", "rbx", "rcx", "r11", "r12", "memory");
        _exit(b == 50 && c == 60 ? 0 : 1);
    });
    go_to(pid, SYS_getuid, PTRACE_SYSCALL);
    OK(T(PTRACE_POKEUSER, pid, offsetof(struct user_regs_struct, rbx), 50));
    OK(T(PTRACE_SYSCALL, pid, 0, 0));
    STOPS(pid, SIGTRAP);
    OK(T(PTRACE_POKEUSER, pid, offsetof(struct user_regs_struct, r12), 60));
    OK(T(PTRACE_CONT, pid, 0, 0));
    ENDS(pid, 0);
}

TEST(emulated_calls_are_not_carried_out) {
    pid_t pid = TRACED(_exit(syscall(SYS_close, 1) == 33 ? 0 : 1));
    go_to(pid, SYS_close, SYSEMU);
    OK(T(PTRACE_POKEUSER, pid, offsetof(struct user_regs_struct, rax), 33));
    OK(T(PTRACE_CONT, pid, 0, 0));
    ENDS(pid, 0);
}

TEST(an_interrupted_call_is_seen_twice) {
    int ends[2];
    OK(pipe(ends));
    pid_t pid = TRACED({
        char byte;
        _exit(read(ends[0], &byte, 1) == 1 ? byte : 99);
    });
    go_to(pid, SYS_read, PTRACE_SYSCALL);
    OK(T(PTRACE_SYSCALL, pid, 0, 0));
    wait_asleep(pid);
    OK(kill(pid, SIGUSR1));
    STOPS(pid, SIGTRAP);
    CHECK_EQ((long)registers_of(pid).rax, -512);
    OK(T(PTRACE_SYSCALL, pid, 0, 0));
    STOPS(pid, SIGUSR1);
    /* No handler runs: it is made again. */
    OK(T(PTRACE_SYSCALL, pid, 0, 0));
    STOPS(pid, SIGTRAP);
    CHECK_EQ(registers_of(pid).orig_rax, SYS_read);
    CHECK_EQ(write(ends[1], "\5", 1), 1);
    OK(T(PTRACE_CONT, pid, 0, 0));
    ENDS(pid, 5 << 8);
}

/* ---- events --------------------------------------------------------------------------------- */

static unsigned long message_of(pid_t pid) {
    unsigned long message = 0;
    OK(T(PTRACE_GETEVENTMSG, pid, 0, &message));
    return message;
}

TEST(forks_are_followed) {
    pid_t pid = TRACED({
        pid_t own = fork();
        if (own == 0) _exit(3);
        int status = 0;
        while (waitpid(own, &status, 0) == -1)
            ;
        _exit(WEXITSTATUS(status));
    });
    OK(T(PTRACE_SETOPTIONS, pid, 0, PTRACE_O_TRACEFORK));
    OK(T(PTRACE_CONT, pid, 0, 0));
    STOPS(pid, EVENT(PTRACE_EVENT_FORK));
    siginfo_t info;
    OK(T(PTRACE_GETSIGINFO, pid, 0, &info));
    CHECK_EQ(info.si_code, EVENT(PTRACE_EVENT_FORK));
    pid_t child = message_of(pid);
    STOPS(child, SIGSTOP);
    CHECK_EQ(field_of(child, "TracerPid:\t"), getpid());
    CHECK_EQ(field_of(child, "PPid:\t"), pid);
    OK(T(PTRACE_CONT, pid, 0, 0));
    OK(T(PTRACE_CONT, child, 0, 0));
    ENDS(child, 3 << 8);
    int status = WAITED(pid);
    if (WIFSTOPPED(status)) {
        CHECK_EQ(WSTOPSIG(status), SIGCHLD);
        OK(T(PTRACE_CONT, pid, 0, 0));
        status = WAITED(pid);
    }
    CHECK_EQ(status, 3 << 8);
}

TEST(vforks_are_followed_and_done) {
    pid_t pid = TRACED({
        pid_t own = vfork();
        if (own == 0) _exit(0);
        _exit(0);
    });
    OK(T(PTRACE_SETOPTIONS, pid, 0, PTRACE_O_TRACEVFORK | PTRACE_O_TRACEVFORKDONE));
    OK(T(PTRACE_CONT, pid, 0, 0));
    STOPS(pid, EVENT(PTRACE_EVENT_VFORK));
    pid_t child = message_of(pid);
    STOPS(child, SIGSTOP);
    OK(T(PTRACE_CONT, pid, 0, 0));
    OK(T(PTRACE_CONT, child, 0, 0));
    ENDS(child, 0);
    int status = WAITED(pid);
    if (status == (SIGCHLD << 8 | 0x7f)) {
        OK(T(PTRACE_CONT, pid, 0, 0));
        status = WAITED(pid);
    }
    CHECK_EQ(status, EVENT(PTRACE_EVENT_VFORK_DONE) << 8 | 0x7f);
    CHECK_EQ(message_of(pid), child);
    OK(T(PTRACE_CONT, pid, 0, 0));
    status = WAITED(pid);
    if (WIFSTOPPED(status)) {
        OK(T(PTRACE_CONT, pid, 0, 0));
        status = WAITED(pid);
    }
    CHECK_EQ(status, 0);
}

static void *end_thread(void *argument) { return argument; }

TEST(threads_are_followed) {
    pid_t pid = TRACED({
        pthread_t thread;
        ZERO(pthread_create(&thread, NULL, end_thread, NULL));
        ZERO(pthread_join(thread, NULL));
        _exit(6);
    });
    OK(T(PTRACE_SETOPTIONS, pid, 0, PTRACE_O_TRACECLONE));
    OK(T(PTRACE_CONT, pid, 0, 0));
    STOPS(pid, EVENT(PTRACE_EVENT_CLONE));
    pid_t thread = message_of(pid);
    STOPS(thread, SIGSTOP);
    CHECK_EQ(field_of(thread, "Tgid:\t"), pid);
    OK(T(PTRACE_CONT, pid, 0, 0));
    OK(T(PTRACE_CONT, thread, 0, 0));
    /* The process may end before the thread does. */
    int status = WAITED(thread);
    CHECK(status == 0 || status == 6 << 8);
    ERR(T(PTRACE_CONT, thread, 0, 0), ESRCH);
    ENDS(pid, 6 << 8);
}

TEST(a_seized_thread_starts_with_an_event) {
    int ends[2];
    OK(pipe(ends));
    pid_t pid = RUNNING({
        char byte;
        read(ends[0], &byte, 1);
        pid_t own = fork();
        if (own == 0) _exit(0);
        waitpid(own, NULL, 0);
    });
    OK(T(PTRACE_SEIZE, pid, 0, PTRACE_O_TRACEFORK));
    CHECK_EQ(write(ends[1], "x", 1), 1);
    STOPS(pid, EVENT(PTRACE_EVENT_FORK));
    pid_t child = message_of(pid);
    STOPS(child, EVENT(PTRACE_EVENT_STOP));
    OK(T(PTRACE_CONT, child, 0, 0));
    OK(T(PTRACE_DETACH, pid, 0, 0));
    ENDS(child, 0);
    EXITS(pid, 0);
}

HELPER(nothing) { return 12; }

TEST(exec_traps) {
    pid_t pid = TRACED(execl(hy_self, hy_self, "--helper", "nothing", NULL); _exit(99));
    OK(T(PTRACE_CONT, pid, 0, 0));
    STOPS(pid, SIGTRAP);
    siginfo_t info;
    OK(T(PTRACE_GETSIGINFO, pid, 0, &info));
    CHECK_EQ(info.si_code, SI_USER);
    CHECK_EQ(info.si_pid, pid);
    OK(T(PTRACE_CONT, pid, 0, 0));
    ENDS(pid, 12 << 8);
}

TEST(exec_is_an_event) {
    pid_t pid = TRACED(execl("/nothing", "x", NULL);
                       execl(hy_self, hy_self, "--helper", "nothing", NULL); _exit(99));
    OK(T(PTRACE_SETOPTIONS, pid, 0, PTRACE_O_TRACEEXEC | PTRACE_O_TRACEEXIT));
    OK(T(PTRACE_CONT, pid, 0, 0));
    STOPS(pid, EVENT(PTRACE_EVENT_EXEC));
    CHECK_EQ(message_of(pid), pid);
    OK(T(PTRACE_CONT, pid, 0, 0));
    STOPS(pid, EVENT(PTRACE_EVENT_EXIT));
    CHECK_EQ(message_of(pid), 12 << 8);
    CHECK(registers_of(pid).rip != 0);
    OK(T(PTRACE_CONT, pid, 0, 0));
    ENDS(pid, 12 << 8);
}

/* The next getppid asks the tracer; all else is allowed. */
static void ask_at_getppid(void) {
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getppid, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRACE | 0x55),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof code / sizeof *code, code};
    OK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
    OK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0));
}

TEST(a_filter_asks_the_tracer) {
    pid_t pid = TRACED({
        ask_at_getppid();
        if (syscall(SYS_getppid) != getpid()) _exit(1);
        ERR(syscall(SYS_getppid), ENOSYS);
    });
    OK(T(PTRACE_SETOPTIONS, pid, 0, PTRACE_O_TRACESECCOMP | PTRACE_O_TRACESYSGOOD));
    OK(T(PTRACE_CONT, pid, 0, 0));
    STOPS(pid, EVENT(PTRACE_EVENT_SECCOMP));
    CHECK_EQ(message_of(pid), 0x55);
    struct ptrace_syscall_info info;
    CHECK_EQ(OK(T(PTRACE_GET_SYSCALL_INFO, pid, sizeof info, &info)), 84);
    CHECK_EQ(info.op, PTRACE_SYSCALL_INFO_SECCOMP);
    CHECK_EQ(info.seccomp.nr, SYS_getppid);
    CHECK_EQ(info.seccomp.ret_data, 0x55);
    OK(T(PTRACE_POKEUSER, pid, offsetof(struct user_regs_struct, orig_rax), SYS_getpid));
    /* The stop at the entry comes before that of the filter, the one at the exit after. */
    OK(T(PTRACE_SYSCALL, pid, 0, 0));
    STOPS(pid, SIGTRAP | 0x80);
    CHECK_EQ(registers_of(pid).rax, (unsigned long)pid);
    OK(T(PTRACE_SETOPTIONS, pid, 0, 0));
    OK(T(PTRACE_CONT, pid, 0, 0));
    ENDS(pid, 0);
}

TEST(death_by_a_signal_is_an_event) {
    pid_t pid = TRACED(pause());
    OK(T(PTRACE_SETOPTIONS, pid, 0, PTRACE_O_TRACEEXIT));
    OK(T(PTRACE_CONT, pid, 0, SIGTERM));
    STOPS(pid, EVENT(PTRACE_EVENT_EXIT));
    CHECK_EQ(message_of(pid), SIGTERM);
    /* Whether SIGKILL ends this stop depends on the version; it does not change the status. */
    OK(kill(pid, SIGKILL));
    T(PTRACE_CONT, pid, 0, 0);
    ENDS(pid, SIGTERM);
}

static void *exec_helper(void *argument UNUSED) {
    execl(hy_self, hy_self, "--helper", "nothing", NULL);
    _exit(99);
}

TEST(a_thread_that_executes_takes_the_number) {
    pid_t pid = TRACED({
        pthread_t thread;
        ZERO(pthread_create(&thread, NULL, exec_helper, NULL));
        for (;;) pause();
    });
    OK(T(PTRACE_SETOPTIONS, pid, 0, PTRACE_O_TRACECLONE | PTRACE_O_TRACEEXEC));
    OK(T(PTRACE_CONT, pid, 0, 0));
    STOPS(pid, EVENT(PTRACE_EVENT_CLONE));
    pid_t thread = message_of(pid);
    STOPS(thread, SIGSTOP);
    OK(T(PTRACE_CONT, pid, 0, 0));
    OK(T(PTRACE_CONT, thread, 0, 0));
    STOPS(pid, EVENT(PTRACE_EVENT_EXEC));
    CHECK_EQ(message_of(pid), thread);
    ERR(T(PTRACE_CONT, thread, 0, 0), ESRCH);
    OK(T(PTRACE_CONT, pid, 0, 0));
    ENDS(pid, 12 << 8);
}

TEST(a_thread_that_executes_takes_the_number_of_one_that_ended) {
    pid_t pid = TRACED({
        pthread_t thread;
        ZERO(pthread_create(&thread, NULL, exec_helper, NULL));
        syscall(SYS_exit, 7); /* only this thread */
    });
    OK(T(PTRACE_SETOPTIONS, pid, 0, PTRACE_O_TRACECLONE | PTRACE_O_TRACEEXEC));
    OK(T(PTRACE_CONT, pid, 0, 0));
    STOPS(pid, EVENT(PTRACE_EVENT_CLONE));
    pid_t thread = message_of(pid);
    STOPS(thread, SIGSTOP);
    OK(T(PTRACE_CONT, pid, 0, 0));
    for (int i = 0; i < 500 && state_of(pid) != 'Z'; i++)
        msleep(10);
    CHECK_EQ(waitpid(pid, NULL, __WALL | WNOHANG), 0); /* its end is not told before the others' */
    OK(T(PTRACE_CONT, thread, 0, 0));
    STOPS(pid, EVENT(PTRACE_EVENT_EXEC));
    CHECK_EQ(message_of(pid), thread);
    ERR(T(PTRACE_CONT, thread, 0, 0), ESRCH);
    OK(T(PTRACE_CONT, pid, 0, 0));
    ENDS(pid, 12 << 8);
}

TEST(set_user_id_is_not_honoured_under_a_tracer) {
    if (geteuid() != 0) SKIP("needs root");
    OK(chmod(".", 0755));
    COPY(hy_self, "suid", 0755);
    OK(chmod("suid", 04755));
    IN_CHILD({
        BECOME(NOBODY, NOBODY);
        pid_t pid = FORK();
        if (pid == 0) {
            OK(T(PTRACE_TRACEME, 0, 0, 0));
            execl("suid", "suid", "--helper", "who", NULL);
            _exit(99);
        }
        STOPS(pid, SIGTRAP);
        OK(T(PTRACE_CONT, pid, 0, 0));
        ENDS(pid, 1 << 8);
        /* Without a tracer it is. */
        pid = FORK();
        if (pid == 0) {
            execl("suid", "suid", "--helper", "who", NULL);
            _exit(99);
        }
        int status = WAIT(pid);
        if (status == 1 << 8) SKIP("the file system has no set-user-id");
        CHECK_EQ(status, 0);
    });
}

HELPER(who) { return geteuid() != 0; }

/* ---- steps and breakpoints ------------------------------------------------------------------ */

TEST(single_steps) {
    pid_t pid = TRACED({
        __asm__ volatile("int3; nop; nop; nop; nop" ::: "memory");
        _exit(0);
    });
    OK(T(PTRACE_CONT, pid, 0, 0));
    STOPS(pid, SIGTRAP);
    unsigned long at = registers_of(pid).rip;
    for (int i = 1; i <= 4; i++) {
        OK(T(PTRACE_SINGLESTEP, pid, 0, 0));
        STOPS(pid, SIGTRAP);
        struct user_regs_struct regs = registers_of(pid);
        CHECK_EQ(regs.rip, at + i);
        /* The trap flag is not the program's. */
        CHECK_EQ(regs.eflags & 0x100, 0);
        siginfo_t info;
        OK(T(PTRACE_GETSIGINFO, pid, 0, &info));
        CHECK_EQ(info.si_code, TRAP_TRACE);
        CHECK_EQ((unsigned long)info.si_addr, at + i);
    }
    OK(T(PTRACE_CONT, pid, 0, 0));
    ENDS(pid, 0);
}

TEST(a_step_over_a_system_call) {
    pid_t pid = TRACED({
        __asm__ volatile("int3; mov %0, %%eax; syscall; nop" ::"i"(SYS_getuid)
                         : "rax", "rcx", "r11", "memory");
        _exit(0);
    });
    OK(T(PTRACE_CONT, pid, 0, 0));
    STOPS(pid, SIGTRAP);
    unsigned long at = registers_of(pid).rip;
    OK(T(PTRACE_SINGLESTEP, pid, 0, 0));
    STOPS(pid, SIGTRAP);
    CHECK_EQ(registers_of(pid).rip, at + 5);
    OK(T(PTRACE_SINGLESTEP, pid, 0, 0));
    STOPS(pid, SIGTRAP);
    CHECK_EQ(registers_of(pid).rip, at + 7);
    OK(T(PTRACE_SINGLESTEP, pid, 0, 0));
    STOPS(pid, SIGTRAP);
    CHECK_EQ(registers_of(pid).rip, at + 8);
    OK(T(PTRACE_CONT, pid, 0, 0));
    ENDS(pid, 0);
}

TEST(a_step_into_a_handler) {
    pid_t pid = TRACED({
        signal(SIGUSR1, catch_signal);
        raise(SIGUSR1);
        _exit(caught == SIGUSR1 ? 0 : 1);
    });
    OK(T(PTRACE_CONT, pid, 0, 0));
    STOPS(pid, SIGUSR1);
    OK(T(PTRACE_SINGLESTEP, pid, 0, SIGUSR1));
    STOPS(pid, SIGTRAP);
    CHECK_EQ(registers_of(pid).rip, (unsigned long)catch_signal);
    OK(T(PTRACE_CONT, pid, 0, 0));
    ENDS(pid, 0);
}

static volatile long watched;

static void set_debug(pid_t pid, int number, unsigned long value) {
    OK(T(PTRACE_POKEUSER, pid, DEBUG(number), value));
}

static long get_debug(pid_t pid, int number) {
    long value = 0;
    OK(T(PTRACE_PEEKUSER, pid, DEBUG(number), &value));
    return value;
}

TEST(a_watchpoint) {
    pid_t pid = TRACED({
        watched = 1;
        watched = 2;
        _exit(watched);
    });
    set_debug(pid, 0, (unsigned long)&watched);
    /* Eight bytes, when they are written. */
    if (T(PTRACE_POKEUSER, pid, DEBUG(7), 1 | 9 << 16) == -1 && errno == ENOSPC)
        SKIP("the processor has no debug registers");
    CHECK_EQ(get_debug(pid, 0), (long)&watched);
    for (int i = 1; i <= 2; i++) {
        OK(T(PTRACE_CONT, pid, 0, 0));
        STOPS(pid, SIGTRAP);
        siginfo_t info;
        OK(T(PTRACE_GETSIGINFO, pid, 0, &info));
        CHECK_EQ(info.si_code, TRAP_HWBKPT);
        CHECK_EQ(get_debug(pid, 6) & 15, 1);
        CHECK_EQ(peek(pid, &watched), i);
    }
    set_debug(pid, 7, 0);
    OK(T(PTRACE_CONT, pid, 0, 0));
    ENDS(pid, 2 << 8);
}

TEST(a_hardware_breakpoint) {
    pid_t pid = TRACED(_exit(function(function(1))));
    set_debug(pid, 2, (unsigned long)&function);
    if (T(PTRACE_POKEUSER, pid, DEBUG(7), 1 << 4) == -1 && errno == ENOSPC)
        SKIP("the processor has no debug registers");
    for (int i = 1; i <= 2; i++) {
        OK(T(PTRACE_CONT, pid, 0, 0));
        STOPS(pid, SIGTRAP);
        struct user_regs_struct regs = registers_of(pid);
        CHECK_EQ(regs.rip, (unsigned long)&function);
        CHECK_EQ(regs.rdi, i);
        CHECK_EQ(get_debug(pid, 6) & 15, 4);
    }
    OK(T(PTRACE_CONT, pid, 0, 0));
    ENDS(pid, 3 << 8);
    /* Nobody else has it. */
    CHECK_EQ(function(4), 5);
}

TEST(debug_registers_that_there_cannot_be) {
    pid_t pid = TRACED(_exit(0));
    ERR(T(PTRACE_POKEUSER, pid, DEBUG(4), 1), EIO);
    ERR(T(PTRACE_POKEUSER, pid, DEBUG(5), 1), EIO);
    CHECK_EQ(get_debug(pid, 7), 0);
    CHECK_EQ(get_debug(pid, 4), 0);
    /* A breakpoint on an instruction with a length, and one on ports. */
    ERR(T(PTRACE_POKEUSER, pid, DEBUG(7), 1 | 4 << 16), EINVAL);
    ERR(T(PTRACE_POKEUSER, pid, DEBUG(7), 1 | 2 << 16), EINVAL);
    OK(T(PTRACE_CONT, pid, 0, 0));
    ENDS(pid, 0);
}

/* ---- threads and races ---------------------------------------------------------------------- */

static void *spin(void *argument) {
    volatile int *going = argument;
    while (*going) sched_yield();
    return NULL;
}

TEST(each_thread_of_a_process_is_attached) {
    volatile int *going = SHARED(PAGE);
    *going = 1;
    volatile pid_t *thread = (volatile pid_t *)(going + 16);
    pid_t pid = RUNNING({
        pthread_t other;
        ZERO(pthread_create(&other, NULL, spin, (void *)going));
        pthread_join(other, NULL);
        _exit(4);
    });
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/task", pid);
    for (int tries = 0; tries < 5000 && !*thread; tries++) {
        DIR *all = opendir(path);
        for (struct dirent *entry; all && (entry = readdir(all));)
            if (atoi(entry->d_name) > 0 && atoi(entry->d_name) != pid)
                *thread = atoi(entry->d_name);
        if (all) closedir(all);
        msleep(1);
    }
    CHECK(*thread);
    OK(T(PTRACE_ATTACH, *thread, 0, 0));
    STOPS(*thread, SIGSTOP);
    OK(T(PTRACE_SEIZE, pid, 0, 0));
    OK(T(PTRACE_INTERRUPT, pid, 0, 0));
    STOPS(pid, EVENT(PTRACE_EVENT_STOP));
    CHECK_EQ(waitpid(-1, NULL, WNOHANG | __WALL), 0);
    OK(T(PTRACE_CONT, pid, 0, 0));
    OK(T(PTRACE_CONT, *thread, 0, 0));
    *going = 0;
    int status = WAITED(*thread);
    CHECK(status == 0 || status == 4 << 8);
    ENDS(pid, 4 << 8);
}

struct asked {
    pid_t pid;
    int error;
};

static void *ask(void *argument) {
    struct asked *asked = argument;
    struct user_regs_struct regs;
    asked->error = T(GETREGS, asked->pid, 0, &regs) == -1 ? errno : 0;
    return NULL;
}

TEST(only_the_tracing_thread_may_ask) {
    struct asked asked = {TRACED(_exit(0)), 0};
    pthread_t thread;
    ZERO(pthread_create(&thread, NULL, ask, &asked));
    ZERO(pthread_join(thread, NULL));
    CHECK_EQ(asked.error, ESRCH);
    OK(T(PTRACE_CONT, asked.pid, 0, 0));
    ENDS(asked.pid, 0);
}

TEST_TIMES(kill_at_any_time, 3) {
    for (int i = 0; i < 60; i++) {
        pid_t pid = RUNNING(for (;;) {
            pid_t own = fork();
            if (own == 0) _exit(0);
            waitpid(own, NULL, 0);
        });
        unsigned long options = PTRACE_O_TRACEFORK | PTRACE_O_TRACEEXIT | PTRACE_O_EXITKILL;
        pid_t tracer = RUNNING({
            /* It may be dead already. */
            if (T(PTRACE_SEIZE, pid, 0, options) == -1) CHECK(errno == EPERM || errno == ESRCH);
            for (;;) {
                int status;
                pid_t got = waitpid(-1, &status, __WALL);
                if (got == -1) pause();
                if (got > 0 && WIFSTOPPED(status)) T(PTRACE_SYSCALL, got, 0, 0);
            }
        });
        struct timespec time = {0, (i % 20) * 500000};
        nanosleep(&time, NULL);
        kill(i & 1 ? tracer : pid, SIGKILL);
        if (!(i & 1)) {
            EVENTUALLY(waitpid(pid, NULL, WNOHANG) != 0);
            kill(tracer, SIGKILL);
        }
        KILLED(tracer, SIGKILL);
        kill(pid, SIGKILL);
        while (waitpid(pid, NULL, 0) == -1 && errno == EINTR)
            ;
    }
}

TEST_TIMES(attach_and_detach_at_any_time, 2) {
    volatile long *count = SHARED(PAGE);
    pid_t pid = RUNNING(for (;;) {
        getppid();
        ++*count;
    });
    for (int i = 0; i < 300; i++) {
        OK(T(PTRACE_ATTACH, pid, 0, 0));
        STOPS(pid, SIGSTOP);
        if (i % 3 == 1) {
            OK(T(PTRACE_SYSCALL, pid, 0, 0));
            STOPS(pid, SIGTRAP);
        } else if (i % 3 == 2) {
            OK(T(PTRACE_SINGLESTEP, pid, 0, 0));
            STOPS(pid, SIGTRAP);
        }
        OK(T(PTRACE_DETACH, pid, 0, 0));
    }
    long before = *count;
    EVENTUALLY(*count > before);
    finish(pid);
}

TEST(a_tracer_that_executes_goes_on_tracing) {
    pid_t pid = RUNNING(pause());
    pid_t tracer = FORK();
    if (tracer == 0) {
        OK(T(PTRACE_ATTACH, pid, 0, 0));
        STOPS(pid, SIGSTOP);
        char number[16];
        snprintf(number, sizeof number, "%d", pid);
        execl(hy_self, hy_self, "--helper", "detach", number, NULL);
        _exit(99);
    }
    EXITS(tracer, 0);
    KILLED(pid, SIGTERM);
}

HELPER(detach) {
    return trace(PTRACE_DETACH, atoi(argv[argc - 1]), 0, SIGTERM) == 0 ? 0 : 1;
}
