/* What the cases about tracing share: requests as the kernel has them, stops, traced children. */
#ifndef TRACE_H
#define TRACE_H

#include "harness.h"
#include <elf.h>
#include <linux/ptrace.h>
#include <poll.h>
#include <sys/uio.h>
#include <sys/user.h>

#ifndef NT_X86_XSTATE
#define NT_X86_XSTATE 0x202
#endif
#ifndef __WALL
#define __WALL 0x40000000
#endif
#ifndef TRAP_HWBKPT
#define TRAP_HWBKPT 4
#endif
#define PTRACE_PEEKUSER 3
#define PTRACE_POKEUSER 6
#define GETREGS 12
#define SETREGS 13
#define GETFPREGS 14
#define SETFPREGS 15
#define SYSEMU 31
#define DEBUG(n) (offsetof(struct user, u_debugreg) + 8 * (n))

/* As the kernel has it: a word that is peeked goes to `data`. */
static UNUSED long trace(long request, pid_t pid, unsigned long address, unsigned long data) {
    return syscall(SYS_ptrace, request, pid, address, data);
}
#define T(request, pid, address, data)                                                             \
    trace(request, pid, (unsigned long)(address), (unsigned long)(data))

/* ---- statuses ------------------------------------------------------------------------------- */

static UNUSED int wait_any(const char *file, int line, pid_t pid) {
    int status = 0;
    pid_t got;
    do
        got = waitpid(pid, &status, __WALL);
    while (got == -1 && errno == EINTR);
    if (got != pid) hy_fail(file, line, "waitpid(%d) gave %d: %s", pid, got, strerror(errno));
    return status;
}
#define WAITED(pid) wait_any(__FILE__, __LINE__, pid)

/* The thread stops with this value in the upper part of its status. */
#define STOPS(pid, code)                                                                           \
    do {                                                                                           \
        int hy_st = WAITED(pid);                                                                   \
        if (hy_st != ((code) << 8 | 0x7f))                                                         \
            FAIL("status %#x of %d, not a stop with %s", hy_st, (int)(pid), #code);                \
    } while (0)
#define ENDS(pid, want)                                                                            \
    do {                                                                                           \
        int hy_st = WAITED(pid);                                                                   \
        if (hy_st != (want))                                                                       \
            FAIL("status %#x of %d, not %s", hy_st, (int)(pid), #want);                            \
    } while (0)
#define EVENT(n) (SIGTRAP | (n) << 8)

/* A child that is traced by its parent, stopped by SIGSTOP before `body`. */
#define TRACED(...)                                                                                \
    ({                                                                                             \
        pid_t hy_traced = FORK();                                                                  \
        if (hy_traced == 0) {                                                                      \
            OK(T(PTRACE_TRACEME, 0, 0, 0));                                                        \
            kill(getpid(), SIGSTOP);                                                                        \
            __VA_ARGS__;                                                                           \
            _exit(0);                                                                              \
        }                                                                                          \
        STOPS(hy_traced, SIGSTOP);                                                                 \
        hy_traced;                                                                                 \
    })
/* A child that is not traced and runs `body`. */
#define RUNNING(...)                                                                               \
    ({                                                                                             \
        pid_t hy_running = FORK();                                                                 \
        if (hy_running == 0) {                                                                     \
            __VA_ARGS__;                                                                           \
            _exit(0);                                                                              \
        }                                                                                          \
        hy_running;                                                                                \
    })

static UNUSED void finish(pid_t pid) {
    kill(pid, SIGKILL);
    int status;
    while (waitpid(pid, &status, __WALL) == pid && !WIFEXITED(status) && !WIFSIGNALED(status))
        ;
}

static UNUSED struct user_regs_struct registers_of(pid_t pid) {
    struct user_regs_struct regs;
    OK(T(GETREGS, pid, 0, &regs));
    return regs;
}

static UNUSED long peek(pid_t pid, const volatile void *address) {
    long word = 0;
    OK(T(PTRACE_PEEKDATA, pid, address, &word));
    return word;
}

static UNUSED long field_of(pid_t pid, const char *name) {
    char path[64], text[4096];
    snprintf(path, sizeof path, "/proc/%d/status", pid);
    if (get_file(path, text, sizeof text) <= 0) return -1;
    char *at = strstr(text, name);
    return at ? atol(at + strlen(name)) : -1;
}

static UNUSED char state_of(pid_t pid) {
    char path[64], text[4096];
    snprintf(path, sizeof path, "/proc/%d/status", pid);
    if (get_file(path, text, sizeof text) <= 0) return '?';
    char *at = strstr(text, "State:\t");
    return at ? at[7] : '?';
}

static volatile sig_atomic_t caught;
static UNUSED void catch_signal(int signal) { caught = signal; }

#endif
