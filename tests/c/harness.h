/*
 * The harness of the C guest tests: one header, one program per area.
 *
 * A test file says `#define AREA "mem"`, includes this header and then writes `TEST(name) { ... }`
 * blocks; the header provides main. Each case runs in a forked child that leads its own process
 * group and stands in a fresh directory below $TMPDIR (or /tmp), under a time limit kept by the
 * parent. To be of use on a young kernel the runner itself needs only fork, wait4, write and
 * alarm; process groups, directories and the shared page for the reason of a failure are used
 * where they work.
 *
 * A case passes when its child exits with 0. A failed CHECK anywhere below the case, also in a
 * grandchild, stores the first reason in a page shared with the runner and exits with 1, so that a
 * failure cannot be lost by a parent that forgets to look at a status.
 *
 * Output: `test AREA::CASE ... ok|FAILED (why file:line)|skipped (why)`, then one `test result:`
 * line. Exit status: 0 no failure, 1 failures, 2 wrong usage.
 */
#ifndef HARNESS_H
#define HARNESS_H

#ifndef AREA
#error "define AREA before including harness.h"
#endif

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PAGE ((size_t)4096)
#define UNUSED __attribute__((unused))

/* ---- registry ------------------------------------------------------------------------------ */

struct hy_case {
    const char *name;
    void (*run)(void);
    int times; /* how many default time limits the case may take */
};

struct hy_helper {
    const char *name;
    int (*run)(int argc, char **argv);
};

/* A program for the exec tests: run as `PROG --helper NAME args`, argv[0] is then NAME. */
#define HELPER(n)                                                                                  \
    static int hy_helper_##n(int argc UNUSED, char **argv UNUSED);                                 \
    static const struct hy_helper hy_helper_def_##n = {#n, hy_helper_##n};                         \
    static const struct hy_helper *const hy_helper_ptr_##n                                         \
        __attribute__((used, section("hy_helpers"))) = &hy_helper_def_##n;                         \
    static int hy_helper_##n(int argc UNUSED, char **argv UNUSED)

#define TEST_TIMES(n, t)                                                                           \
    static void hy_test_##n(void);                                                                 \
    static const struct hy_case hy_case_def_##n = {#n, hy_test_##n, t};                            \
    static const struct hy_case *const hy_case_ptr_##n                                             \
        __attribute__((used, section("hy_cases"))) = &hy_case_def_##n;                             \
    static void hy_test_##n(void)
#define TEST(n) TEST_TIMES(n, 1)

extern const struct hy_case *const __start_hy_cases[], *const __stop_hy_cases[];
extern const struct hy_helper *const __start_hy_helpers[] __attribute__((weak));
extern const struct hy_helper *const __stop_hy_helpers[] __attribute__((weak));

/* ---- failing and skipping ------------------------------------------------------------------ */

enum { HY_QUIET, HY_WRITING, HY_FAILED, HY_SKIPPED };
enum { HY_EXIT_FAILED = 1, HY_EXIT_SKIPPED = 77 };

struct hy_report {
    _Atomic int state;
    char text[1020];
    /* The settings that the case changes, and what they were. */
    int kept;
    struct {
        char path[128], value[128];
    } settings[4];
};

static struct hy_report hy_private_report;
static struct hy_report *hy_report = &hy_private_report;
static char hy_self[PATH_MAX]; /* absolute path of this program */
static char hy_tmp[PATH_MAX];  /* directory of the running case */

/* Set by a case that passes: removes what it made outside of its directory. Functions of atexit(3)
 * are not called, for the case's children would call them, too. */
static UNUSED void (*hy_at_end)(void);

static void hy_say(int state, const char *file, int line, const char *fmt, va_list args) {
    int quiet = HY_QUIET;
    if (atomic_compare_exchange_strong(&hy_report->state, &quiet, HY_WRITING)) {
        int n = vsnprintf(hy_report->text, sizeof hy_report->text, fmt, args);
        if (file && n >= 0 && (size_t)n < sizeof hy_report->text)
            snprintf(hy_report->text + n, sizeof hy_report->text - n, " %s:%d", file, line);
        atomic_store(&hy_report->state, state);
    }
}

__attribute__((noreturn, format(printf, 3, 4))) static void hy_fail(const char *file, int line,
                                                                    const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    hy_say(HY_FAILED, file, line, fmt, args);
    va_end(args);
    _exit(HY_EXIT_FAILED);
}

__attribute__((noreturn, format(printf, 1, 2), unused)) static void hy_skip(const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    hy_say(HY_SKIPPED, NULL, 0, fmt, args);
    va_end(args);
    _exit(HY_EXIT_SKIPPED);
}

#define FAIL(...) hy_fail(__FILE__, __LINE__, __VA_ARGS__)
#define SKIP(...) hy_skip(__VA_ARGS__)

#define CHECK(cond)                                                                                \
    do {                                                                                           \
        if (!(cond))                                                                               \
            FAIL("not: %s", #cond);                                                                \
    } while (0)

/* Equality of two integers (or pointers cast to long), both printed when it does not hold. */
#define CHECK_EQ(got, want)                                                                        \
    do {                                                                                           \
        long long hy_got = (long long)(got), hy_want = (long long)(want);                          \
        if (hy_got != hy_want)                                                                     \
            FAIL("%s is %lld (%#llx), not %s = %lld", #got, hy_got, (unsigned long long)hy_got,    \
                 #want, hy_want);                                                                  \
    } while (0)

#define CHECK_STR(got, want)                                                                       \
    do {                                                                                           \
        const char *hy_got = (got), *hy_want = (want);                                             \
        if (strcmp(hy_got, hy_want) != 0)                                                          \
            FAIL("%s is \"%s\", not \"%s\"", #got, hy_got, hy_want);                               \
    } while (0)

/* The call succeeds; the value is its result. */
#define OK(call)                                                                                   \
    ({                                                                                             \
        __typeof__(call) hy_r = (call);                                                            \
        if ((long)hy_r == -1L)                                                                     \
            FAIL("%s: %s (%d)", #call, strerror(errno), errno);                                    \
        hy_r;                                                                                      \
    })

/* The call fails with exactly this error. */
#define ERR(call, want)                                                                            \
    do {                                                                                           \
        errno = 0;                                                                                 \
        long hy_r = (long)(call);                                                                  \
        int hy_e = errno;                                                                          \
        if (hy_r != -1L)                                                                           \
            FAIL("%s gave %ld, not %s", #call, hy_r, #want);                                       \
        if (hy_e != (want))                                                                        \
            FAIL("%s: %s (%d), not %s", #call, strerror(hy_e), hy_e, #want);                       \
    } while (0)

/* As ERR, where Linux' file systems or versions differ in the error. */
#define ERR2(call, want1, want2)                                                                   \
    do {                                                                                           \
        errno = 0;                                                                                 \
        long hy_r = (long)(call);                                                                  \
        int hy_e = errno;                                                                          \
        if (hy_r != -1L)                                                                           \
            FAIL("%s gave %ld, not %s", #call, hy_r, #want1);                                      \
        if (hy_e != (want1) && hy_e != (want2))                                                    \
            FAIL("%s: %s (%d), not %s or %s", #call, strerror(hy_e), hy_e, #want1, #want2);        \
    } while (0)

/* A pthread function succeeds: the error is its result. */
#define ZERO(call)                                                                                 \
    do {                                                                                           \
        int hy_e = (call);                                                                         \
        if (hy_e != 0)                                                                             \
            FAIL("%s: %s (%d)", #call, strerror(hy_e), hy_e);                                      \
    } while (0)

/* ---- processes ----------------------------------------------------------------------------- */

/* fork that cannot fail. */
#define FORK() hy_fork(__FILE__, __LINE__)
static UNUSED pid_t hy_fork(const char *file, int line) {
    pid_t pid = fork();
    if (pid == -1)
        hy_fail(file, line, "fork: %s (%d)", strerror(errno), errno);
    return pid;
}

static UNUSED int hy_wait(const char *file, int line, pid_t pid) {
    int status = 0;
    for (;;) {
        pid_t got = waitpid(pid, &status, 0);
        if (got == pid)
            return status;
        if (got == -1 && errno == EINTR)
            continue;
        hy_fail(file, line, "waitpid(%d) gave %d: %s", pid, got, strerror(errno));
    }
}
#define WAIT(pid) hy_wait(__FILE__, __LINE__, pid)

/* The child ends by exit(code). */
#define EXITS(pid, code)                                                                           \
    do {                                                                                           \
        int hy_st = WAIT(pid);                                                                     \
        if (!WIFEXITED(hy_st) || WEXITSTATUS(hy_st) != (code))                                     \
            FAIL("child status %#x, not exit of %d", hy_st, (int)(code));                          \
    } while (0)

/* The child is ended by the signal. */
#define KILLED(pid, sig)                                                                           \
    do {                                                                                           \
        int hy_st = WAIT(pid);                                                                     \
        if (!WIFSIGNALED(hy_st) || WTERMSIG(hy_st) != (sig))                                       \
            FAIL("child status %#x, not death by %s", hy_st, #sig);                                \
    } while (0)

/* Runs the block in a child that must exit with 0. */
#define IN_CHILD(...)                                                                              \
    do {                                                                                           \
        pid_t hy_pid = FORK();                                                                     \
        if (hy_pid == 0) {                                                                         \
            __VA_ARGS__;                                                                           \
            _exit(0);                                                                              \
        }                                                                                          \
        EXITS(hy_pid, 0);                                                                          \
    } while (0)

/* Becomes an ordinary user for good; groups are cleared. */
#define BECOME(uid, gid)                                                                           \
    do {                                                                                           \
        OK(syscall(SYS_setgroups, 0, NULL));                                                       \
        OK(syscall(SYS_setresgid, gid, gid, gid));                                                 \
        OK(syscall(SYS_setresuid, uid, uid, uid));                                                 \
    } while (0)

#define NOBODY 65534

/* ---- time ---------------------------------------------------------------------------------- */

static UNUSED int64_t now_ns(clockid_t clock) {
    struct timespec t = {0, 0};
    clock_gettime(clock, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}
#define MS 1000000LL

static UNUSED void msleep(long ms) {
    struct timespec t = {ms / 1000, (ms % 1000) * MS};
    while (nanosleep(&t, &t) == -1 && errno == EINTR)
        ;
}

/* Waits until the thread sleeps in the kernel, by procfs, or for a moment where there is none. */
static UNUSED void wait_asleep(pid_t tid) {
    char path[64], text[512];
    snprintf(path, sizeof path, "/proc/%d/stat", tid);
    int seen = 0;
    for (int i = 0; i < 4000; i++) {
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd == -1) {
            msleep(200);
            return;
        }
        ssize_t n = read(fd, text, sizeof text - 1);
        close(fd);
        text[n > 0 ? n : 0] = 0;
        char *close_paren = strrchr(text, ')');
        char state = close_paren && close_paren[1] ? close_paren[2] : '?';
        if (state == 'S' || state == 'T' || state == 'Z') {
            if (++seen == 3)
                return;
        } else
            seen = 0;
        msleep(2);
    }
}

/* Waits (up to ten seconds) for a condition that another task brings about. It counts when it held
 * once: asked again, it may be over. */
#define EVENTUALLY(cond)                                                                           \
    do {                                                                                           \
        int hy_left = 5000;                                                                        \
        while (!(cond)) {                                                                          \
            if (hy_left-- == 0)                                                                    \
                FAIL("never became true: %s", #cond);                                              \
            msleep(2);                                                                             \
        }                                                                                          \
    } while (0)

/* ---- memory and files ---------------------------------------------------------------------- */

static UNUSED void *hy_shared(const char *file, int line, size_t size) {
    void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        hy_fail(file, line, "mmap of a shared page: %s", strerror(errno));
    return p;
}
#define SHARED(size) hy_shared(__FILE__, __LINE__, size)

/* An address at which nothing is mapped. */
static UNUSED void *bad_address(void) {
    static void *bad;
    if (!bad) {
        bad = mmap(NULL, 16 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (bad != MAP_FAILED)
            munmap(bad, 16 * PAGE);
        else
            bad = (void *)PAGE;
    }
    return bad;
}
#define BAD bad_address()
#define KERNEL_ADDRESS ((void *)0xffffffff80000000UL)

/* Whether this runs in Hayate's supervisor mode, or may at any time. MODE_STORM: somebody changes
 * the mode all the time. */
static UNUSED bool in_supervisor_mode(void) {
    unsigned cs;
    __asm__ volatile("mov %%cs, %0" : "=r"(cs));
    return (cs & 3) == 0 || getenv("MODE_STORM");
}

/* Skips a case about what the processor denies to programs: in supervisor mode it does not. */
static UNUSED void needs_user_mode(void) {
    if (in_supervisor_mode()) hy_skip("in supervisor mode nothing is denied");
}

/* Skips a case that makes a user namespace where there are none: in supervisor mode, and where the
 * system denies them. */
static UNUSED void needs_user_namespaces(void) {
    if (in_supervisor_mode()) hy_skip("in supervisor mode there is no user namespace");
    pid_t child = FORK();
    if (child == 0) _exit(unshare(CLONE_NEWUSER) == 0 ? 0 : 3);
    if (WAIT(child) != 0) hy_skip("no user namespaces");
}

/* The memory of a process is free once it has been waited for, unless another process holds its
 * space for a moment longer: one that switches its mode (MODE_STORM), or, as on Linux, one that
 * reads its /proc/PID/maps (get_task_mm in kernel/fork.c, 6.1). Then, and only then, it may take a
 * moment: whether to look again, at most two seconds long. */
static UNUSED bool hy_patience(int *looks) {
    if (!getenv("MODE_STORM") || ++*looks > 2000) return false;
    usleep(1000);
    return true;
}

/* Unmounts what only processes used that have ended. */
static UNUSED int umount_ended(const char *path) {
    int result, looks = 0;
    while ((result = umount(path)) == -1 && errno == EBUSY && hy_patience(&looks)) {}
    return result;
}

static UNUSED void hy_put(const char *file, int line, const char *path, const void *data,
                          size_t size, mode_t mode) {
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode);
    if (fd == -1)
        hy_fail(file, line, "create %s: %s", path, strerror(errno));
    for (size_t done = 0; done < size;) {
        ssize_t n = write(fd, (const char *)data + done, size - done);
        if (n <= 0)
            hy_fail(file, line, "write %s: %s", path, strerror(errno));
        done += (size_t)n;
    }
    if (fchmod(fd, mode) == -1)
        hy_fail(file, line, "fchmod %s: %s", path, strerror(errno));
    close(fd);
}
#define PUT(path, text) hy_put(__FILE__, __LINE__, path, text, strlen(text), 0644)
#define PUT_MODE(path, text, mode) hy_put(__FILE__, __LINE__, path, text, strlen(text), mode)
#define PUT_BYTES(path, data, size) hy_put(__FILE__, __LINE__, path, data, size, 0644)

/* Reads a file as a string into a buffer; -1 when it cannot be opened. */
static UNUSED ssize_t get_file(const char *path, char *buffer, size_t size) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd == -1)
        return -1;
    size_t done = 0;
    while (done < size - 1) {
        ssize_t n = read(fd, buffer + done, size - 1 - done);
        if (n <= 0)
            break;
        done += (size_t)n;
    }
    close(fd);
    buffer[done] = 0;
    return (ssize_t)done;
}

/*
 * Changes a setting of the kernel. The runner makes it again what it was, however the case ends:
 * later cases would meet it.
 */
static bool hy_keeps_settings = true;
static UNUSED void hy_sysctl(const char *file, int line, const char *path, const char *text) {
    int known = 0, most = (int)(sizeof hy_report->settings / sizeof *hy_report->settings);
    while (known < hy_report->kept && strcmp(hy_report->settings[known].path, path) != 0)
        known++;
    if (hy_keeps_settings && known == hy_report->kept) {
        if (known == most)
            hy_fail(file, line, "more than %d settings are changed", most);
        if (get_file(path, hy_report->settings[known].value, 128) <= 0)
            hy_fail(file, line, "%s: %s", path, strerror(errno));
        snprintf(hy_report->settings[known].path, 128, "%s", path);
        hy_report->kept++;
    }
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd == -1 || write(fd, text, strlen(text)) != (ssize_t)strlen(text))
        hy_fail(file, line, "%s into %s: %s", text, path, strerror(errno));
    close(fd);
}
#define SET_SYSCTL(path, text) hy_sysctl(__FILE__, __LINE__, path, text)

/* Makes the settings that a case changed what they were. */
static void hy_restore_settings(void) {
    for (int i = 0; i < hy_report->kept; i++) {
        const char *value = hy_report->settings[i].value;
        int fd = open(hy_report->settings[i].path, O_WRONLY | O_CLOEXEC);
        if (fd != -1) {
            (void)!write(fd, value, strlen(value));
            close(fd);
        }
    }
    hy_report->kept = 0;
}

/*
 * Skips a case that changes what the whole machine goes by (limits, the clock), unless the machine
 * is the tests' own: its first process is then the init that Hayate brings, under either kernel.
 */
#define NEEDS_OWN_MACHINE()                                                                        \
    do {                                                                                           \
        char hy_first[64] = "";                                                                    \
        get_file("/proc/1/cmdline", hy_first, sizeof hy_first);                                    \
        if (strcmp(hy_first, "/init") != 0)                                                        \
            SKIP("would change settings of this machine");                                         \
    } while (0)

/* Copies a file, for cases that need a program of their own. */
static UNUSED void hy_copy(const char *file, int line, const char *from, const char *to,
                           mode_t mode) {
    static char buffer[65536];
    int in = open(from, O_RDONLY | O_CLOEXEC);
    int out = open(to, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0700);
    if (in == -1 || out == -1)
        hy_fail(file, line, "copy %s to %s: %s", from, to, strerror(errno));
    ssize_t n;
    while ((n = read(in, buffer, sizeof buffer)) > 0)
        if (write(out, buffer, (size_t)n) != n)
            hy_fail(file, line, "write %s: %s", to, strerror(errno));
    if (n == -1 || fchmod(out, mode) == -1)
        hy_fail(file, line, "copy %s to %s: %s", from, to, strerror(errno));
    close(in);
    close(out);
}
#define COPY(from, to, mode) hy_copy(__FILE__, __LINE__, from, to, mode)

/* ---- one byte from one task to another ------------------------------------------------------- */

struct gate {
    int fd[2];
};
#define GATE(name)                                                                                 \
    struct gate name;                                                                              \
    OK(pipe2(name.fd, O_CLOEXEC))
static UNUSED void gate_open(struct gate *gate) {
    ssize_t n;
    do
        n = write(gate->fd[1], "", 1);
    while (n == -1 && errno == EINTR);
    if (n != 1)
        FAIL("gate_open: %s", strerror(errno));
}
/* For a child that is only there: opens the gate, and waits for its end (end_by_kill). */
__attribute__((noreturn)) static UNUSED void gate_open_and_rest(struct gate *gate) {
    gate_open(gate);
    for (;;)
        pause();
}
static UNUSED void end_by_kill(pid_t pid) {
    OK(kill(pid, SIGKILL));
    KILLED(pid, SIGKILL);
}
static UNUSED void gate_pass(struct gate *gate) {
    char c;
    ssize_t n;
    do
        n = read(gate->fd[0], &c, 1);
    while (n == -1 && errno == EINTR);
    if (n != 1)
        FAIL("gate_pass gave %zd: %s", n, strerror(errno));
}

/* ---- faults that are expected --------------------------------------------------------------- */

static struct {
    volatile sig_atomic_t armed;
    volatile int signal, code;
    void *volatile address;
    sigjmp_buf env;
} hy_fault;

static UNUSED void hy_on_fault(int sig, siginfo_t *info, void *context UNUSED) {
    if (!hy_fault.armed) {
        signal(sig, SIG_DFL);
        return;
    }
    hy_fault.armed = 0;
    hy_fault.signal = sig;
    hy_fault.code = info->si_code;
    hy_fault.address = info->si_addr;
    siglongjmp(hy_fault.env, 1);
}

static UNUSED void hy_catch_faults(void) {
    struct sigaction act = {.sa_sigaction = hy_on_fault, .sa_flags = SA_SIGINFO};
    sigaction(SIGSEGV, &act, NULL);
    sigaction(SIGBUS, &act, NULL);
    sigaction(SIGILL, &act, NULL);
    sigaction(SIGFPE, &act, NULL);
    sigaction(SIGTRAP, &act, NULL);
}

/* Runs the statement; 0, or the signal it raised, told further by hy_fault.code and .address. */
#define FAULT(statement)                                                                           \
    ({                                                                                             \
        hy_catch_faults();                                                                         \
        volatile int hy_sig = 0;                                                                   \
        if (sigsetjmp(hy_fault.env, 1) == 0) {                                                     \
            hy_fault.armed = 1;                                                                    \
            statement;                                                                             \
            hy_fault.armed = 0;                                                                    \
        } else                                                                                     \
            hy_sig = hy_fault.signal;                                                              \
        hy_sig;                                                                                    \
    })

/* The statement raises the signal with this code at this address. */
#define FAULTS(statement, sig, si_code_, where)                                                    \
    do {                                                                                           \
        int hy_s = FAULT(statement);                                                               \
        if (hy_s != (sig))                                                                         \
            FAIL("%s raised signal %d, not %s", #statement, hy_s, #sig);                           \
        if (hy_fault.code != (si_code_))                                                           \
            FAIL("%s: si_code %d, not %s", #statement, hy_fault.code, #si_code_);                  \
        if (hy_fault.address != (void *)(where))                                                   \
            FAIL("%s: si_addr %p, not %p", #statement, hy_fault.address, (void *)(where));         \
    } while (0)

#define PEEK(address) ((void)*(volatile char *)(address))
#define POKE(address, value) ((void)(*(volatile char *)(address) = (value)))

/* ---- the runner ------------------------------------------------------------------------------ */

static volatile sig_atomic_t hy_alarmed;
static void hy_on_alarm(int sig UNUSED) { hy_alarmed = 1; }

static void hy_print(const char *fmt, ...) {
    char line[2048];
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(line, sizeof line, fmt, args);
    va_end(args);
    if (n > (int)sizeof line - 1)
        n = sizeof line - 1;
    for (int done = 0; done < n;) {
        ssize_t w = write(1, line + done, (size_t)(n - done));
        if (w <= 0)
            return;
        done += (int)w;
    }
}

static void hy_remove(const char *path) {
    if (unlink(path) == 0 || rmdir(path) == 0)
        return;
    DIR *dir = opendir(path);
    if (!dir)
        return;
    struct dirent *entry;
    while ((entry = readdir(dir))) {
        if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."))
            continue;
        char below[PATH_MAX];
        if (snprintf(below, sizeof below, "%s/%s", path, entry->d_name) < (int)sizeof below)
            hy_remove(below);
    }
    closedir(dir);
    rmdir(path);
}

/*
 * Ends what a case left behind in other process groups. The runner is a subreaper, so these are
 * its children now.
 */
static void hy_sweep(void) {
    for (int round = 0; round < 100; round++) {
        pid_t got;
        while ((got = waitpid(-1, NULL, WNOHANG)) > 0)
            ;
        if (got == -1)
            return; /* nobody is left */
        DIR *dir = opendir("/proc");
        struct dirent *entry;
        while (dir && (entry = readdir(dir))) {
            char path[300], text[512];
            int fd, parent = 0;
            snprintf(path, sizeof path, "/proc/%s/stat", entry->d_name);
            if (entry->d_name[0] < '1' || entry->d_name[0] > '9' ||
                (fd = open(path, O_RDONLY | O_CLOEXEC)) == -1)
                continue;
            ssize_t n = read(fd, text, sizeof text - 1);
            close(fd);
            text[n > 0 ? n : 0] = 0;
            char *close_paren = strrchr(text, ')');
            if (close_paren && sscanf(close_paren + 2, "%*c %d", &parent) == 1 && parent == getpid())
                kill(atoi(entry->d_name), SIGKILL);
        }
        if (dir)
            closedir(dir);
        msleep(round < 10 ? 1 : 20);
    }
}

/* For `stress/refusal`: the case is refused its N-th request for memory (REFUSE_NTH). */
static void hy_refuse_memory(void) {
    const char *nth = getenv("REFUSE_NTH");
    int fd = nth ? open("/proc/hayate/refusal", O_WRONLY | O_CLOEXEC) : -1;
    if (fd != -1 && write(fd, nth, strlen(nth)) != (ssize_t)strlen(nth))
        FAIL("/proc/hayate/refusal: %s", strerror(errno));
    if (fd != -1)
        close(fd);
}

enum hy_verdict { HY_PASS, HY_FAIL, HY_SKIP };

static enum hy_verdict hy_run(const struct hy_case *test, int seconds) {
    const char *base = getenv("TMPDIR");
    snprintf(hy_tmp, sizeof hy_tmp, "%s/hayate-test.%d.%.64s", base && *base ? base : "/tmp",
             (int)getpid(), test->name);
    bool have_dir = mkdir(hy_tmp, 0755) == 0;
    atomic_store(&hy_report->state, HY_QUIET);
    hy_report->text[0] = 0;
    hy_report->kept = 0;
    pid_t pid = fork();
    if (pid == 0) {
        setpgid(0, 0);
        signal(SIGALRM, SIG_DFL);
        umask(022);
        if (have_dir && chdir(hy_tmp) == -1)
            FAIL("chdir %s: %s", hy_tmp, strerror(errno));
        hy_refuse_memory();
#ifdef ONLY_IN_USER_MODE
        if (in_supervisor_mode()) hy_skip(ONLY_IN_USER_MODE);
#endif
        test->run();
        if (hy_at_end)
            hy_at_end();
        _exit(0);
    }
    bool timed_out = false;
    int status = 0;
    if (pid > 0) {
        setpgid(pid, pid);
        hy_alarmed = 0;
        alarm((unsigned)(seconds * test->times));
        while (waitpid(pid, &status, 0) == -1 && errno == EINTR)
            if (hy_alarmed) {
                timed_out = true;
                kill(-pid, SIGKILL);
                kill(pid, SIGKILL);
            }
        alarm(0);
        kill(-pid, SIGKILL);
        hy_sweep();
        hy_restore_settings();
    }
    if (have_dir)
        hy_remove(hy_tmp);
    int state = atomic_load(&hy_report->state);
    enum hy_verdict verdict = HY_FAIL;
    hy_print("test %s::%s ... ", AREA, test->name);
    if (pid == -1)
        hy_print("FAILED (fork: %s)\n", strerror(errno));
    else if (state == HY_FAILED || state == HY_WRITING)
        hy_print("FAILED (%s)\n", hy_report->text);
    else if (timed_out)
        hy_print("FAILED (no end within %d s)\n", seconds * test->times);
    else if (WIFSIGNALED(status))
        hy_print("FAILED (killed by signal %d)\n", WTERMSIG(status));
    else if (WEXITSTATUS(status) == HY_EXIT_SKIPPED) {
        hy_print("skipped (%s)\n", hy_report->text);
        verdict = HY_SKIP;
    } else if (WEXITSTATUS(status) != 0)
        hy_print("FAILED (exit status %d, no reason recorded)\n", WEXITSTATUS(status));
    else {
        hy_print("ok\n");
        verdict = HY_PASS;
    }
    return verdict;
}

/* "CASE" or "AREA::CASE" in full; else a part of it. */
static bool hy_wanted(const struct hy_case *test, const char *filter, bool exact) {
    char full[256];
    snprintf(full, sizeof full, "%s::%s", AREA, test->name);
    if (exact)
        return !strcmp(filter, test->name) || !strcmp(filter, full);
    return strstr(full, filter) != NULL;
}

static int hy_main(int argc, char **argv) {
    if (argv[0][0] == '/' || strchr(argv[0], '/')) {
        if (!realpath(argv[0], hy_self))
            snprintf(hy_self, sizeof hy_self, "%s", argv[0]);
    } else if (readlink("/proc/self/exe", hy_self, sizeof hy_self - 1) == -1)
        snprintf(hy_self, sizeof hy_self, "%s", argv[0]);
    if (argc >= 3 && !strcmp(argv[1], "--helper")) {
        for (const struct hy_helper *const *h = __start_hy_helpers; h < __stop_hy_helpers; h++)
            if (!strcmp((*h)->name, argv[2]))
                return (*h)->run(argc - 2, argv + 2);
        return 2;
    }
    if (argc == 2 && !strcmp(argv[1], "--list")) {
        for (const struct hy_case *const *t = __start_hy_cases; t < __stop_hy_cases; t++)
            hy_print("%s::%s\n", AREA, (*t)->name);
        return 0;
    }
    if (argc > 2 || (argc == 2 && argv[1][0] == '-')) {
        hy_print("usage: %s [--list | CASE]\n", argv[0]);
        return 2;
    }
    const char *limit = getenv("TEST_TIMEOUT");
    int seconds = limit && atoi(limit) > 0 ? atoi(limit) : 30;
    struct sigaction act = {.sa_handler = hy_on_alarm};
    sigaction(SIGALRM, &act, NULL);
    syscall(SYS_prctl, 36 /* PR_SET_CHILD_SUBREAPER */, 1, 0, 0, 0);
    void *page = mmap(NULL, sizeof *hy_report, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                      -1, 0);
    if (page != MAP_FAILED)
        hy_report = page;
    const char *filter = argc == 2 ? argv[1] : NULL;
    bool exact = false;
    for (const struct hy_case *const *t = __start_hy_cases; filter && t < __stop_hy_cases; t++)
        exact |= hy_wanted(*t, filter, true);
    int counts[3] = {0, 0, 0};
    for (const struct hy_case *const *t = __start_hy_cases; t < __stop_hy_cases; t++)
        if (!filter || hy_wanted(*t, filter, exact))
            counts[hy_run(*t, seconds)]++;
    if (counts[0] + counts[1] + counts[2] == 0) {
        hy_print("no case of %s is named %s\n", AREA, filter);
        return 2;
    }
    hy_print("test result: %s. %d passed; %d failed; %d skipped\n",
             counts[HY_FAIL] ? "FAILED" : "ok", counts[HY_PASS], counts[HY_FAIL], counts[HY_SKIP]);
    return counts[HY_FAIL] ? 1 : 0;
}

#ifndef HARNESS_OWN_MAIN
int main(int argc, char **argv) { return hy_main(argc, argv); }
#endif

#endif
