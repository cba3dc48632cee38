/* PID namespaces (pid_namespaces(7)): numbers at each level, the init and its end, what is not
 * seen. */
#define AREA "pidns"
#include "harness.h"
#include <linux/nsfs.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <linux/reboot.h>
#include <termios.h>

#define STACK 65536

static int setns_(int fd, int kind) { return (int)syscall(SYS_setns, fd, kind); }
static int pidfd_of(pid_t pid) { return (int)syscall(SYS_pidfd_open, pid, 0); }
static pid_t tid(void) { return (pid_t)syscall(SYS_gettid); }
static long clone_(unsigned long flags, pid_t *parent, pid_t *child) {
    return syscall(SYS_clone, flags, 0, parent, child, 0);
}

static void needs_root(void) {
    if (geteuid() != 0)
        SKIP("not root");
}

/* A first process of a new namespace: 0 in it, its number outside in this process. Later children
 * of this process begin in the namespace as well. */
#define INIT()                                                                                     \
    ({                                                                                             \
        OK(unshare(CLONE_NEWPID));                                                                 \
        FORK();                                                                                    \
    })

/* Runs the block as the init of a new namespace, in a child, so that the caller can do it again. */
#define IN_NAMESPACE(...)                                                                          \
    IN_CHILD({                                                                                     \
        pid_t hy_init = INIT();                                                                    \
        if (hy_init == 0) {                                                                        \
            __VA_ARGS__;                                                                           \
            _exit(0);                                                                              \
        }                                                                                          \
        EXITS(hy_init, 0);                                                                         \
    })

/* A process that does nothing, until a signal ends it. */
#define IDLE()                                                                                     \
    ({                                                                                             \
        pid_t hy_idle = FORK();                                                                    \
        while (hy_idle == 0)                                                                       \
            pause();                                                                               \
        hy_idle;                                                                                   \
    })

static bool is_gone(int pidfd) {
    struct pollfd poll_one = {pidfd, POLLIN, 0};
    return OK(poll(&poll_one, 1, 0)) == 1;
}

/* The value of a line of a status file. */
static const char *line_of(const char *path, const char *name) {
    static char text[4096];
    char wanted[64];
    CHECK(get_file(path, text, sizeof text) > 0);
    snprintf(wanted, sizeof wanted, "\n%s:\t", name);
    char *at = strstr(text, wanted);
    CHECK(at != NULL);
    at += strlen(wanted);
    at[strcspn(at, "\n")] = 0;
    return at;
}

static const char *status_of(pid_t pid, const char *name) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/status", pid);
    return line_of(path, name);
}

static ino_t number_of(pid_t pid, const char *kind) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/ns/%s", pid, kind);
    struct stat st;
    OK(stat(path, &st));
    return st.st_ino;
}

static int open_of(pid_t pid, const char *kind) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/ns/%s", pid, kind);
    return OK(open(path, O_RDONLY | O_CLOEXEC));
}

/* Mounts a procfs of the own namespace on /proc, for this process and its children alone. */
static void mount_proc(void) {
    OK(unshare(CLONE_NEWNS));
    OK(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL));
    OK(mount("proc", "/proc", "proc", 0, NULL));
}

/* ---- making ---------------------------------------------------------------------------------- */

TEST(the_first_process_has_number_one) {
    needs_root();
    pid_t init = INIT();
    if (init == 0) {
        CHECK_EQ(getpid(), 1);
        CHECK_EQ(tid(), 1);
        CHECK_EQ(getppid(), 0);
        CHECK_EQ(getpgrp(), 0);
        CHECK_EQ(getpgid(1), 0);
        CHECK_EQ(getsid(0), 0);
        CHECK_EQ(syscall(SYS_set_tid_address, NULL), 1);
        CHECK_EQ(OK(setsid()), 1);
        CHECK_EQ(getpgrp(), 1);
        pid_t child = FORK();
        if (child == 0) {
            CHECK_EQ(getpid(), 2);
            CHECK_EQ(getppid(), 1);
            CHECK_EQ(getpgrp(), 1);
            CHECK_EQ(getsid(0), 1);
            _exit(3);
        }
        CHECK_EQ(child, 2);
        EXITS(child, 3);
        _exit(5);
    }
    CHECK(init > 2);
    EXITS(init, 5);
}

TEST(unshare_changes_the_namespace_of_children_alone) {
    needs_root();
    pid_t own = getpid();
    ino_t before = number_of(own, "pid");
    CHECK_EQ(number_of(own, "pid_for_children"), before);
    OK(unshare(CLONE_NEWPID));
    CHECK_EQ(getpid(), own);
    CHECK_EQ(number_of(own, "pid"), before);
    char path[64];
    ERR(readlink("/proc/self/ns/pid_for_children", path, sizeof path), ENOENT);
    ERR(open("/proc/self/ns/pid_for_children", O_RDONLY), ENOENT);
    pid_t init = IDLE();
    ino_t inside = number_of(init, "pid");
    CHECK(inside != before);
    CHECK_EQ(number_of(own, "pid_for_children"), inside);
    CHECK_EQ(number_of(own, "pid"), before);
    ssize_t length = OK(readlink("/proc/self/ns/pid_for_children", path, sizeof path - 1));
    path[length] = 0;
    CHECK(strncmp(path, "pid:[", 5) == 0);
    pid_t second = FORK();
    if (second == 0) {
        CHECK_EQ(getpid(), 2);
        CHECK_EQ(getppid(), 0);
        CHECK_EQ(kill(1, 0), 0);
        _exit(0);
    }
    EXITS(second, 0);
    OK(kill(init, SIGKILL));
    KILLED(init, SIGKILL);
}

static void *nothing(void *argument) { return argument; }

TEST(a_second_namespace_and_threads_are_refused) {
    needs_root();
    char *stack = SHARED(STACK);
    unsigned long shared = CLONE_VM | CLONE_SIGHAND | CLONE_THREAD;
    OK(unshare(CLONE_NEWPID));
    ERR(unshare(CLONE_NEWPID), EINVAL);
    ERR(clone_(CLONE_NEWPID | SIGCHLD, NULL, NULL), EINVAL);
    ERR(syscall(SYS_clone, shared, stack + STACK, NULL, NULL, 0), EINVAL);
    pthread_t thread;
    pid_t init = FORK();
    if (init == 0) {
        ZERO(pthread_create(&thread, NULL, nothing, NULL));
        ZERO(pthread_join(thread, NULL));
        OK(unshare(CLONE_NEWPID));
        ERR(unshare(CLONE_NEWPID), EINVAL);
        _exit(0);
    }
    EXITS(init, 0);
}

TEST(combinations_of_flags_are_those_of_linux) {
    needs_root();
    char *stack = SHARED(STACK);
    unsigned long shared = CLONE_VM | CLONE_SIGHAND | CLONE_THREAD;
    ERR(syscall(SYS_clone, CLONE_NEWPID | shared, stack + STACK, NULL, NULL, 0), EINVAL);
    /* A sibling in a namespace is no problem since 3.13. */
    IN_CHILD({
        long sibling = clone_(CLONE_NEWPID | CLONE_PARENT, NULL, NULL);
        if (sibling == 0)
            _exit(getpid() != 1 || getppid() != 0);
        CHECK(OK(sibling) > 0);
    });
    int status;
    CHECK(OK(wait(&status)) > 0);
    CHECK_EQ(status, 0);
    /* An init makes no siblings. */
    long init = OK(clone_(CLONE_NEWPID | SIGCHLD, NULL, NULL));
    if (init == 0) {
        CHECK_EQ(getpid(), 1);
        ERR(clone_(CLONE_PARENT | SIGCHLD, NULL, NULL), EINVAL);
        _exit(0);
    }
    EXITS(init, 0);
    pid_t before = getpid();
    OK(unshare(CLONE_NEWPID | CLONE_FILES | CLONE_FS | CLONE_NEWUTS));
    CHECK_EQ(getpid(), before);
}

TEST(users_without_rights_make_none) {
    needs_root();
    IN_CHILD({
        BECOME(1000, 1000);
        ERR(unshare(CLONE_NEWPID), EPERM);
        ERR(clone_(CLONE_NEWPID | SIGCHLD, NULL, NULL), EPERM);
        int own = open_of(getpid(), "pid");
        ERR(setns_(own, CLONE_NEWPID), EPERM);
    });
}

TEST(numbers_are_written_as_each_side_sees_them) {
    needs_root();
    pid_t *told = SHARED(PAGE);
    unsigned long flags = CLONE_NEWPID | CLONE_PARENT_SETTID | CLONE_CHILD_SETTID;
    long init = OK(clone_(flags | SIGCHLD, &told[0], &told[1]));
    if (init == 0) {
        CHECK_EQ(told[1], 1);
        int pidfd = -1;
        long child = clone_(CLONE_PIDFD | SIGCHLD, (pid_t *)&pidfd, NULL);
        if (child == 0)
            _exit(0);
        CHECK_EQ(child, 2);
        char path[64];
        snprintf(path, sizeof path, "/proc/thread-self/fdinfo/%d", pidfd);
        CHECK(atoi(line_of(path, "Pid")) > 2); /* as the procfs outside has it */
        EXITS(child, 0);
        _exit(0);
    }
    EXITS(init, 0);
    CHECK_EQ(told[0], init);
    CHECK_EQ(told[1], 1);
}

TEST(namespaces_lie_in_each_other) {
    needs_root();
    pid_t *deepest = SHARED(PAGE);
    GATE(ready);
    GATE(go);
    pid_t first = INIT();
    if (first == 0) {
        pid_t filler = FORK();
        if (filler == 0)
            _exit(0);
        EXITS(filler, 0);
        pid_t second = INIT();
        if (second == 0) {
            OK(setsid());
            pid_t third = FORK();
            if (third == 0) {
                CHECK_EQ(getpid(), 2);
                gate_open(&ready);
                gate_pass(&go);
                _exit(7);
            }
            EXITS(third, 7);
            _exit(0);
        }
        CHECK_EQ(second, 3);
        EXITS(second, 0);
        _exit(0);
    }
    gate_pass(&ready);
    *deepest = 0;
    for (pid_t pid = first + 1; pid < first + 20 && *deepest == 0; pid++) {
        char path[64], wanted[64];
        snprintf(path, sizeof path, "/proc/%d", pid);
        if (access(path, F_OK) == -1)
            continue;
        snprintf(wanted, sizeof wanted, "%d\t4\t2", pid);
        if (strcmp(status_of(pid, "NSpid"), wanted) == 0)
            *deepest = pid;
    }
    CHECK(*deepest != 0);
    pid_t pid = *deepest;
    char wanted[64];
    snprintf(wanted, sizeof wanted, "%d\t4\t2", pid);
    CHECK_STR(status_of(pid, "NStgid"), wanted);
    pid_t leader = getpgid(pid);
    snprintf(wanted, sizeof wanted, "%d\t3\t1", leader);
    CHECK_STR(status_of(pid, "NSpgid"), wanted);
    CHECK_STR(status_of(pid, "NSsid"), wanted);
    gate_open(&go);
    EXITS(first, 0);
}

TEST(there_are_32_levels) {
    needs_root();
    int *depth = SHARED(PAGE);
    pid_t child = FORK();
    while (child == 0) {
        if (unshare(CLONE_NEWPID) == -1) {
            CHECK_EQ(errno, ENOSPC);
            _exit(0);
        }
        ++*depth;
        child = FORK();
    }
    EXITS(child, 0);
    if (getpid() == 1)
        _exit(0);
    CHECK_EQ(*depth, 32);
}

TEST(a_user_has_a_limit) {
    needs_root();
    NEEDS_OWN_MACHINE();
    SET_SYSCTL("/proc/sys/user/max_pid_namespaces", "0");
    ERR(unshare(CLONE_NEWPID), ENOSPC);
    ERR(clone_(CLONE_NEWPID | SIGCHLD, NULL, NULL), ENOSPC);
    SET_SYSCTL("/proc/sys/user/max_pid_namespaces", "100");
    for (int i = 0; i < 300; i++)
        IN_NAMESPACE({});
}

/* ---- entering -------------------------------------------------------------------------------- */

/* A process that makes a namespace whose init rests; ended by `end_by_kill`. */
static pid_t maker_of_namespace(void) {
    GATE(ready);
    pid_t maker = FORK();
    if (maker == 0) {
        OK(prctl(PR_SET_PDEATHSIG, SIGKILL));
        pid_t init = INIT();
        if (init == 0)
            gate_open_and_rest(&ready);
        KILLED(init, SIGKILL);
        _exit(0);
    }
    gate_pass(&ready);
    return maker;
}

TEST(one_enters_the_own_namespace_and_those_below) {
    needs_root();
    int outer = open_of(getpid(), "pid");
    pid_t maker = maker_of_namespace();
    int inner = open_of(maker, "pid_for_children");
    pid_t own = getpid();
    OK(setns_(inner, CLONE_NEWPID));
    CHECK_EQ(getpid(), own);
    ERR(unshare(CLONE_NEWPID), EINVAL);
    pid_t guest = FORK();
    if (guest == 0) {
        CHECK_EQ(getpid(), 2);
        CHECK_EQ(getppid(), 0);
        ERR(setns_(outer, CLONE_NEWPID), EINVAL);
        ERR(setns_(inner, CLONE_NEWUTS), EINVAL);
        OK(setns_(inner, CLONE_NEWPID));
        pid_t below = INIT();
        if (below == 0) {
            ERR(setns_(outer, 0), EINVAL);
            ERR(setns_(inner, 0), EINVAL);
            _exit(0);
        }
        EXITS(below, 0);
        _exit(0);
    }
    EXITS(guest, 0);
    /* And back, since this process itself has stayed. */
    OK(setns_(outer, CLONE_NEWPID));
    pid_t outside = FORK();
    if (outside == 0)
        _exit(getppid() != own);
    EXITS(outside, 0);
    OK(setns_(inner, 0));
    guest = FORK();
    if (guest == 0) {
        CHECK_EQ(getpid(), 4);
        OK(kill(1, 0));
        _exit(kill(1, SIGKILL)); /* without effect */
    }
    EXITS(guest, 0);
    OK(setns_(pidfd_of(getpid()), CLONE_NEWPID));
    pid_t again = FORK();
    if (again == 0)
        _exit(getppid() != own);
    EXITS(again, 0);
    end_by_kill(maker);
}

TEST(a_namespace_is_entered_by_a_descriptor_of_a_process) {
    needs_root();
    OK(unshare(CLONE_NEWPID));
    pid_t init = IDLE();
    int outer = pidfd_of(getpid()), inner = pidfd_of(init);
    OK(setns_(outer, CLONE_NEWPID));
    IN_CHILD(CHECK(getpid() > 2));
    OK(setns_(inner, CLONE_NEWPID | CLONE_NEWUTS));
    IN_CHILD({
        CHECK_EQ(getpid(), 2);
        ERR(setns_(outer, CLONE_NEWPID), EINVAL);
    });
    OK(kill(init, SIGKILL));
    KILLED(init, SIGKILL);
}

TEST(a_namespace_tells_its_parent_and_owner) {
    needs_root();
    int top = open_of(getpid(), "pid");
    ino_t outer = number_of(getpid(), "pid"), user = number_of(getpid(), "user");
    struct stat st;
    pid_t maker = maker_of_namespace();
    int inner = open_of(maker, "pid_for_children");
    CHECK_EQ(OK(ioctl(inner, NS_GET_NSTYPE)), CLONE_NEWPID);
    OK(fstat(OK(ioctl(inner, NS_GET_PARENT)), &st));
    CHECK_EQ(st.st_ino, outer);
    OK(fstat(OK(ioctl(inner, NS_GET_USERNS)), &st));
    CHECK_EQ(st.st_ino, user);
    /* From inside, what is above is not told. */
    OK(setns_(inner, CLONE_NEWPID));
    IN_CHILD({
        ERR(ioctl(inner, NS_GET_PARENT), EPERM);
        ERR(ioctl(top, NS_GET_PARENT), EPERM);
    });
    end_by_kill(maker);
}

/* ---- what is unseen -------------------------------------------------------------------------- */

TEST(processes_outside_are_unseen) {
    needs_root();
    pid_t outer = getpid();
    int pidfd = pidfd_of(outer);
    pid_t other = IDLE();
    pid_t init = INIT();
    if (init == 0) {
        ERR(kill(outer, 0), ESRCH);
        ERR(kill(other, SIGKILL), ESRCH);
        ERR(syscall(SYS_tgkill, other, other, SIGKILL), ESRCH);
        ERR(syscall(SYS_tkill, other, SIGKILL), ESRCH);
        ERR(kill(-other, SIGKILL), ESRCH);
        ERR(getpgid(outer), ESRCH);
        ERR(getsid(outer), ESRCH);
        ERR(setpgid(0, other), EPERM);
        ERR(setpgid(other, 0), ESRCH);
        ERR(pidfd_of(outer), ESRCH);
        ERR(syscall(SYS_sched_getscheduler, outer), ESRCH);
        ERR(getpriority(PRIO_PROCESS, outer), ESRCH);
        ERR(getpriority(PRIO_PGRP, outer), ESRCH);
        ERR(syscall(SYS_prlimit64, outer, RLIMIT_CPU, NULL, NULL), ESRCH);
        ERR(ptrace(PTRACE_ATTACH, other, 0, 0), ESRCH);
        struct iovec one = {&outer, sizeof outer};
        ERR(process_vm_readv(outer, &one, 1, &one, 1, 0), ESRCH);
        ERR(syscall(SYS_kcmp, outer, 1, 1 /* KCMP_VM */, 0, 0), ESRCH);
        ERR(waitpid(other, NULL, 0), ECHILD);
        /* A descriptor that was inherited leads to nobody. */
        ERR(syscall(SYS_pidfd_send_signal, pidfd, 0, NULL, 0), EINVAL);
        ERR(syscall(SYS_pidfd_send_signal, pidfd, SIGKILL, NULL, 0), EINVAL);
        char path[64];
        mount_proc();
        snprintf(path, sizeof path, "/proc/self/fdinfo/%d", pidfd);
        CHECK_STR(line_of(path, "Pid"), "0");
        CHECK_STR(line_of(path, "NSpid"), "0");
        _exit(0);
    }
    EXITS(init, 0);
    OK(kill(other, SIGKILL));
    KILLED(other, SIGKILL);
}

TEST(a_signal_to_all_stays_inside) {
    needs_root();
    pid_t other = IDLE();
    IN_NAMESPACE({
        ERR(kill(-1, SIGKILL), ESRCH);
        pid_t idle[3];
        for (int i = 0; i < 3; i++)
            idle[i] = IDLE();
        IN_CHILD(OK(kill(-1, SIGKILL)));
        for (int i = 0; i < 3; i++)
            KILLED(idle[i], SIGKILL);
    });
    OK(kill(other, 0));
    OK(kill(other, SIGKILL));
    KILLED(other, SIGKILL);
}

TEST(inner_numbers_are_those_of_all_calls) {
    needs_root();
    IN_NAMESPACE({
        pid_t child = IDLE();
        CHECK_EQ(child, 2);
        OK(setpgid(2, 2));
        CHECK_EQ(getpgid(2), 2);
        OK(setpriority(PRIO_PROCESS, 2, 7));
        CHECK_EQ(getpriority(PRIO_PROCESS, 2), 7);
        CHECK_EQ(getpriority(PRIO_PGRP, 2), 7);
        CHECK_EQ(syscall(SYS_sched_getscheduler, 2), SCHED_OTHER);
        struct rlimit limit = {77, 88};
        OK(syscall(SYS_prlimit64, 2, RLIMIT_CPU, &limit, NULL));
        OK(syscall(SYS_prlimit64, 2, RLIMIT_CPU, NULL, &limit));
        CHECK_EQ(limit.rlim_cur, 77);
        pid_t own = getpid(), read = 0;
        struct iovec to = {&read, sizeof read};
        struct iovec from = {&own, sizeof own};
        CHECK_EQ(process_vm_readv(2, &to, 1, &from, 1, 0), sizeof read);
        CHECK_EQ(syscall(SYS_kcmp, 1, 1, 1, 0, 0), 0);
        CHECK(OK(syscall(SYS_kcmp, 1, 2, 1 /* KCMP_VM */, 0, 0)) > 0);
        clockid_t clock;
        ZERO(clock_getcpuclockid(2, &clock));
        struct timespec time;
        OK(clock_gettime(clock, &time));
        ERR(waitpid(3, NULL, 0), ECHILD);
        CHECK_EQ(waitpid(-2, NULL, WNOHANG), 0);
        siginfo_t info = {0};
        OK(kill(-2, SIGTERM));
        OK(waitid(P_PID, 2, &info, WEXITED));
        CHECK_EQ(info.si_pid, 2);
        CHECK_EQ(info.si_status, SIGTERM);
    });
}

/* ---- signals --------------------------------------------------------------------------------- */

static volatile sig_atomic_t caught, sender;
static void on_signal(int signal, siginfo_t *info, void *context UNUSED) {
    caught = signal;
    sender = info->si_pid;
}

static void catch_with_sender(int signal) {
    struct sigaction action = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO};
    OK(sigaction(signal, &action, NULL));
}

TEST(signals_from_inside_reach_the_init_by_handlers_alone) {
    needs_root();
    IN_NAMESPACE({
        catch_with_sender(SIGUSR1);
        IN_CHILD({
            OK(kill(1, SIGTERM));
            OK(kill(1, SIGKILL));
            OK(kill(1, SIGSTOP));
            OK(kill(1, SIGSEGV));
            OK(syscall(SYS_tgkill, 1, 1, SIGKILL));
            OK(syscall(SYS_pidfd_send_signal, OK(pidfd_of(1)), SIGKILL, NULL, 0));
            OK(kill(1, SIGUSR1));
        });
        EVENTUALLY(caught == SIGUSR1);
        CHECK_EQ(sender, 2);
        OK(kill(1, SIGKILL)); /* itself, too */
        OK(kill(getpid(), SIGTERM));
    });
}

TEST(signals_from_above_end_and_stop_the_init) {
    needs_root();
    GATE(ready);
    pid_t init = INIT();
    if (init == 0) {
        catch_with_sender(SIGUSR1);
        gate_open(&ready);
        while (caught == 0)
            pause();
        CHECK_EQ(sender, 0);
        while (1)
            pause();
    }
    gate_pass(&ready);
    OK(kill(init, SIGTERM));
    OK(kill(init, SIGINT));
    OK(kill(init, SIGTSTP));
    OK(kill(init, SIGUSR1));
    OK(kill(init, SIGSTOP));
    int status;
    CHECK_EQ(OK(waitpid(init, &status, WUNTRACED)), init);
    CHECK(WIFSTOPPED(status) && WSTOPSIG(status) == SIGSTOP);
    OK(kill(init, SIGCONT));
    CHECK_EQ(OK(waitpid(init, &status, WCONTINUED)), init);
    CHECK(WIFCONTINUED(status));
    OK(kill(init, SIGKILL));
    KILLED(init, SIGKILL);
}

TEST(senders_have_the_numbers_of_the_receiver) {
    needs_root();
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    sigaddset(&set, SIGUSR1);
    OK(sigprocmask(SIG_BLOCK, &set, NULL));
    GATE(ready);
    pid_t init = INIT();
    if (init == 0) {
        siginfo_t info;
        gate_open(&ready);
        CHECK_EQ(OK(sigwaitinfo(&set, &info)), SIGUSR1);
        CHECK_EQ(info.si_pid, 0);
        CHECK_EQ(info.si_value.sival_int, 5);
        pid_t child = FORK();
        if (child == 0) {
            OK(sigqueue(1, SIGUSR1, (union sigval){.sival_int = 6}));
            _exit(0);
        }
        EXITS(child, 0);
        /* The sender is gone, and its number is known. */
        CHECK_EQ(OK(sigwaitinfo(&set, &info)), SIGUSR1);
        CHECK_EQ(info.si_pid, 2);
        CHECK_EQ(info.si_value.sival_int, 6);
        CHECK_EQ(OK(sigwaitinfo(&set, &info)), SIGCHLD);
        CHECK_EQ(info.si_pid, 2);
        _exit(0);
    }
    gate_pass(&ready);
    OK(sigqueue(init, SIGUSR1, (union sigval){.sival_int = 5}));
    siginfo_t info;
    CHECK_EQ(OK(sigwaitinfo(&set, &info)), SIGCHLD);
    CHECK_EQ(info.si_pid, init);
    EXITS(init, 0);
}

TEST(a_fault_ends_the_init) {
    needs_root();
    pid_t init = INIT();
    if (init == 0) {
        *(volatile int *)BAD = 1;
        _exit(0);
    }
    KILLED(init, SIGSEGV);
    OK(setns_(open_of(getpid(), "pid"), CLONE_NEWPID));
    init = INIT();
    if (init == 0) {
        signal(SIGILL, SIG_IGN);
        __builtin_trap();
    }
    KILLED(init, SIGILL);
}

TEST(the_end_of_a_parent_outside_ends_the_init_that_asked_for_it) {
    needs_root();
    int *pidfd = SHARED(PAGE);
    GATE(ready);
    OK(prctl(PR_SET_CHILD_SUBREAPER, 1));
    pid_t parent = FORK();
    if (parent == 0) {
        pid_t init = INIT();
        if (init == 0) {
            OK(prctl(PR_SET_PDEATHSIG, SIGKILL));
            gate_open_and_rest(&ready);
        }
        gate_pass(&ready);
        *pidfd = init;
        _exit(0);
    }
    EXITS(parent, 0);
    KILLED(*pidfd, SIGKILL);
}

/* ---- the init and its end -------------------------------------------------------------------- */

TEST(orphans_go_to_the_init) {
    needs_root();
    OK(prctl(PR_SET_CHILD_SUBREAPER, 1));
    IN_NAMESPACE({
        pid_t *orphan = SHARED(PAGE);
        GATE(go);
        IN_CHILD({
            pid_t child = FORK();
            if (child == 0) {
                gate_pass(&go);
                _exit(getppid() != 1);
            }
            *orphan = child;
        });
        gate_open(&go);
        EXITS(*orphan, 0);
        CHECK_EQ(*orphan, 3);
    });
    ERR(wait(NULL), ECHILD);
}

TEST(a_guest_has_no_parent_inside_until_it_is_an_orphan) {
    needs_root();
    GATE(ready);
    GATE(go);
    pid_t init = INIT();
    if (init == 0) {
        int status;
        gate_open(&ready);
        EVENTUALLY(waitpid(3, &status, WNOHANG) == 3);
        CHECK_EQ(status, 0);
        _exit(0);
    }
    gate_pass(&ready);
    OK(prctl(PR_SET_CHILD_SUBREAPER, 1));
    pid_t guest = FORK();
    if (guest == 0) {
        CHECK_EQ(getpid(), 2);
        pid_t child = FORK();
        if (child == 0) {
            CHECK_EQ(getppid(), 2);
            gate_open(&go);
            EVENTUALLY(getppid() != 2);
            /* Not of the subreaper outside. */
            CHECK_EQ(getppid(), 1);
            _exit(0);
        }
        gate_pass(&go);
        _exit(0);
    }
    EXITS(guest, 0);
    EXITS(init, 0);
}

TEST(with_the_init_all_end) {
    needs_root();
    int ends[2];
    OK(pipe(ends));
    pid_t init = INIT();
    if (init == 0) {
        for (int i = 0; i < 4; i++)
            if (FORK() == 0) {
                signal(SIGTERM, SIG_IGN);
                OK(setsid());
                FORK();
                pid_t below = i == 0 ? INIT() : -1;
                if (below == 0)
                    FORK();
                OK(write(ends[1], "x", 1));
                while (1)
                    pause();
            }
        char bytes[10];
        for (int i = 0; i < 10;)
            i += (int)OK(read(ends[0], bytes, sizeof bytes));
        _exit(9);
    }
    EXITS(init, 9);
    /* All are gone by now: nobody has the other end of the pipe. */
    char rest[32];
    close(ends[1]);
    OK(fcntl(ends[0], F_SETFL, O_NONBLOCK));
    ssize_t length;
    while ((length = read(ends[0], rest, sizeof rest)) > 0)
        ;
    CHECK_EQ(length, 0);
}

TEST(nothing_begins_after_the_init) {
    needs_root();
    OK(unshare(CLONE_NEWPID));
    EXITS(({
              pid_t init = FORK();
              if (init == 0)
                  _exit(4);
              init;
          }),
          4);
    for (int i = 0; i < 3; i++)
        ERR(fork(), ENOMEM);
    ERR(clone_(SIGCHLD, NULL, NULL), ENOMEM);
    ERR(vfork(), ENOMEM);
    OK(setns_(open_of(getpid(), "pid"), CLONE_NEWPID));
    IN_CHILD({});
}

TEST(the_init_waits_for_the_guests_of_others) {
    needs_root();
    GATE(ready);
    GATE(go);
    pid_t init = INIT();
    if (init == 0) {
        gate_open(&ready);
        gate_pass(&go);
        _exit(6);
    }
    gate_pass(&ready);
    pid_t guest = IDLE();
    int of_guest = pidfd_of(guest), of_init = pidfd_of(init);
    gate_open(&go);
    EVENTUALLY(is_gone(of_guest));
    msleep(100);
    CHECK(!is_gone(of_init));
    CHECK_EQ(waitpid(init, NULL, WNOHANG), 0);
    ERR(fork(), ENOMEM);
    KILLED(guest, SIGKILL);
    EXITS(init, 6);
}

TEST(reboot_ends_the_namespace) {
    needs_root();
    static const struct { int command, signal; } all[] = {
        {LINUX_REBOOT_CMD_RESTART, SIGHUP},
        {LINUX_REBOOT_CMD_HALT, SIGINT},
        {LINUX_REBOOT_CMD_POWER_OFF, SIGINT},
    };
    int magic = (int)LINUX_REBOOT_MAGIC1, second = LINUX_REBOOT_MAGIC2;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        pid_t init = INIT();
        if (init == 0) {
            ERR(syscall(SYS_reboot, magic, second, LINUX_REBOOT_CMD_CAD_ON, 0), EINVAL);
            ERR(syscall(SYS_reboot, magic, 1, all[i].command, 0), EINVAL);
            IN_CHILD({
                BECOME(1000, 1000);
                ERR(syscall(SYS_reboot, magic, second, all[i].command, 0), EPERM);
            });
            if (FORK() == 0) {
                syscall(SYS_reboot, magic, second, all[i].command, 0);
                FAIL("it came back");
            }
            while (1)
                pause();
        }
        KILLED(init, all[i].signal);
        OK(setns_(open_of(getpid(), "pid"), CLONE_NEWPID));
    }
}

HELPER(number) {
    CHECK_EQ(getpid(), atoi(argv[1]));
    CHECK_EQ(tid(), atoi(argv[1]));
    return 0;
}

static void *execute(void *argument UNUSED) {
    CHECK_EQ(getpid(), 1);
    CHECK_EQ(tid(), 2);
    OK(syscall(SYS_tgkill, 1, 2, 0));
    ERR(syscall(SYS_tgkill, 1, 3, 0), ESRCH);
    OK(execl(hy_self, hy_self, "--helper", "number", "1", NULL));
    return NULL;
}

TEST(threads_have_numbers_and_exec_keeps_that_of_the_process) {
    needs_root();
    pid_t init = INIT();
    if (init == 0) {
        pthread_t thread;
        ZERO(pthread_create(&thread, NULL, execute, NULL));
        pause();
        _exit(1);
    }
    EXITS(init, 0);
}

static void *rest(void *argument UNUSED) {
    msleep(50);
    _exit(8);
}

TEST(an_init_lives_on_without_its_first_thread) {
    needs_root();
    pid_t init = INIT();
    if (init == 0) {
        IDLE();
        pthread_t thread;
        ZERO(pthread_create(&thread, NULL, rest, NULL));
        syscall(SYS_exit, 0);
    }
    EXITS(init, 8);
}

/* ---- groups, sessions, terminals ------------------------------------------------------------- */

TEST(a_group_outlives_its_leader) {
    needs_root();
    IN_NAMESPACE({
        pid_t *member = SHARED(PAGE);
        GATE(ready);
        pid_t leader = FORK();
        if (leader == 0) {
            OK(setsid());
            *member = IDLE();
            CHECK_EQ(getpgid(*member), 2);
            _exit(0);
        }
        EXITS(leader, 0);
        (void)ready;
        for (int i = 0; i < 2000; i++)
            if (i % 100 != 0 || kill(2, 0) == -1)
                IN_CHILD(if (i % 200 == 0) OK(setpgid(0, 0)));
        ERR(kill(2, 0), ESRCH);
        CHECK_EQ(getpgid(*member), 2);
        CHECK_EQ(getsid(*member), 2);
        OK(kill(-2, SIGUSR1));
        KILLED(*member, SIGUSR1);
        ERR(kill(-2, 0), ESRCH);
    });
}

TEST(terminals_show_groups_as_the_caller_sees_them) {
    needs_root();
    int master = OK(open("/dev/ptmx", O_RDWR | O_NOCTTY)), zero = 0;
    OK(ioctl(master, TIOCSPTLCK, &zero));
    char name[64];
    OK(ptsname_r(master, name, sizeof name));
    IN_CHILD({
        pid_t own = OK(setsid());
        int slave = OK(open(name, O_RDWR));
        CHECK_EQ(tcgetpgrp(slave), own);
        signal(SIGTTOU, SIG_IGN);
        pid_t init = INIT();
        if (init == 0) {
            CHECK_EQ(tcgetpgrp(slave), 0);
            CHECK_EQ(OK(tcgetsid(slave)), 0);
            ERR(tcsetpgrp(slave, own), ESRCH);
            OK(setpgid(0, 0));
            CHECK_EQ(getpgrp(), 1);
            OK(tcsetpgrp(slave, 1));
            CHECK_EQ(tcgetpgrp(slave), 1);
            _exit(0);
        }
        EXITS(init, 0);
    });
}

/* ---- numbers in records ---------------------------------------------------------------------- */

TEST(credentials_have_the_numbers_of_the_receiver) {
    needs_root();
    int ends[2], on = 1;
    OK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
    OK(setsockopt(ends[0], SOL_SOCKET, SO_PASSCRED, &on, sizeof on));
    OK(setsockopt(ends[1], SOL_SOCKET, SO_PASSCRED, &on, sizeof on));
    struct ucred *told;
    char control[CMSG_SPACE(sizeof *told)], byte = 0;
    struct iovec one = {&byte, 1};
#define RECEIVED(fd)                                                                               \
    ({                                                                                             \
        struct msghdr hy_m = {.msg_iov = &one, .msg_iovlen = 1, .msg_control = control,            \
                              .msg_controllen = sizeof control};                                   \
        CHECK_EQ(OK(recvmsg(fd, &hy_m, 0)), 1);                                                    \
        CHECK(CMSG_FIRSTHDR(&hy_m) != NULL);                                                       \
        ((struct ucred *)CMSG_DATA(CMSG_FIRSTHDR(&hy_m)))->pid;                                    \
    })
    OK(write(ends[0], "x", 1));
    pid_t init = INIT();
    if (init == 0) {
        struct ucred peer;
        socklen_t length = sizeof peer;
        OK(getsockopt(ends[1], SOL_SOCKET, SO_PEERCRED, &peer, &length));
        CHECK_EQ(peer.pid, 0);
        CHECK_EQ(RECEIVED(ends[1]), 0);
        int own[2];
        OK(socketpair(AF_UNIX, SOCK_STREAM, 0, own));
        OK(setsockopt(own[0], SOL_SOCKET, SO_PASSCRED, &on, sizeof on));
        OK(getsockopt(own[0], SOL_SOCKET, SO_PEERCRED, &peer, &length));
        CHECK_EQ(peer.pid, 1);
        IN_CHILD({
            OK(write(own[1], "x", 1));
            OK(write(ends[1], "x", 1));
            /* A claim is in the own numbers. */
            struct msghdr m = {.msg_iov = &one, .msg_iovlen = 1, .msg_control = control,
                               .msg_controllen = sizeof control};
            struct cmsghdr *c = CMSG_FIRSTHDR(&m);
            *c = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof *told), .cmsg_level = SOL_SOCKET,
                                  .cmsg_type = SCM_CREDENTIALS};
            struct ucred claim = {30000, 0, 0};
            memcpy(CMSG_DATA(c), &claim, sizeof claim);
            ERR(sendmsg(own[1], &m, 0), ESRCH);
            claim.pid = 1;
            memcpy(CMSG_DATA(c), &claim, sizeof claim);
            OK(sendmsg(own[1], &m, 0));
        });
        /* The sender is gone, and its number is known. */
        CHECK_EQ(RECEIVED(own[0]), 2);
        CHECK_EQ(RECEIVED(own[0]), 1);
        _exit(0);
    }
    EXITS(init, 0);
    CHECK(RECEIVED(ends[0]) > init);
}

TEST(system_v_objects_tell_the_numbers_of_the_reader) {
    needs_root();
    int segment = OK(shmget(IPC_PRIVATE, PAGE, 0600));
    int set = OK(semget(IPC_PRIVATE, 1, 0600));
    struct shmid_ds about;
    pid_t outer = getpid();
    pid_t init = INIT();
    if (init == 0) {
        OK(shmctl(segment, IPC_STAT, &about));
        CHECK_EQ(about.shm_cpid, 0);
        int own;
        int *made = SHARED(PAGE);
        IN_CHILD({
            *made = OK(shmget(IPC_PRIVATE, PAGE, 0600));
            struct sembuf up = {0, 1, 0};
            OK(semop(set, &up, 1));
        });
        own = *made;
        OK(shmctl(own, IPC_STAT, &about));
        CHECK_EQ(about.shm_cpid, 2);
        CHECK_EQ(OK(semctl(set, 0, GETPID)), 2);
        OK(shmctl(own, IPC_RMID, NULL));
        _exit(0);
    }
    EXITS(init, 0);
    OK(shmctl(segment, IPC_STAT, &about));
    CHECK_EQ(about.shm_cpid, outer);
    CHECK(OK(semctl(set, 0, GETPID)) > init);
    OK(semctl(set, 0, IPC_RMID));
    OK(shmctl(segment, IPC_RMID, NULL));
}

TEST(files_tell_owners_and_holders_as_the_caller_sees_them) {
    needs_root();
    int fd = OK(open("f", O_RDWR | O_CREAT, 0644)), ends[2];
    OK(pipe(ends));
    OK(fcntl(ends[0], F_SETOWN, getpid()));
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 1};
    OK(fcntl(fd, F_SETLK, &lock));
    pid_t outer = getpid();
    pid_t init = INIT();
    if (init == 0) {
        CHECK_EQ(fcntl(ends[0], F_GETOWN), 0);
        ERR(fcntl(ends[0], F_SETOWN, outer), ESRCH);
        OK(fcntl(ends[0], F_SETOWN, 1));
        CHECK_EQ(fcntl(ends[0], F_GETOWN), 1);
        OK(setpgid(0, 0));
        OK(fcntl(ends[1], F_SETOWN, -1));
        CHECK_EQ(fcntl(ends[1], F_GETOWN), -1);
        struct flock found = lock;
        OK(fcntl(fd, F_GETLK, &found));
        CHECK_EQ(found.l_type, F_WRLCK);
        CHECK_EQ(found.l_pid, 0);
        struct flock second = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 5, .l_len = 1};
        OK(fcntl(fd, F_SETLK, &second));
        IN_CHILD({
            found = second;
            OK(fcntl(fd, F_GETLK, &found));
            CHECK_EQ(found.l_pid, 1);
        });
        _exit(0);
    }
    EXITS(init, 0);
}

TEST(tracers_see_their_own_numbers) {
    needs_root();
    IN_NAMESPACE({
        pid_t child = FORK();
        if (child == 0) {
            OK(ptrace(PTRACE_TRACEME, 0, 0, 0));
            OK(kill(getpid(), SIGSTOP));
            pid_t grandchild = FORK();
            if (grandchild == 0)
                _exit(0);
            EXITS(grandchild, 0);
            _exit(0);
        }
        int status;
        CHECK_EQ(OK(waitpid(child, &status, 0)), 2);
        CHECK(WIFSTOPPED(status));
        siginfo_t info;
        OK(ptrace(PTRACE_GETSIGINFO, child, 0, &info));
        CHECK_EQ(info.si_pid, 2);
        OK(ptrace(PTRACE_SETOPTIONS, child, 0, PTRACE_O_TRACEFORK));
        OK(ptrace(PTRACE_CONT, child, 0, 0));
        CHECK_EQ(OK(waitpid(child, &status, 0)), 2);
        CHECK_EQ(status >> 8, SIGTRAP | PTRACE_EVENT_FORK << 8);
        unsigned long made = 0;
        OK(ptrace(PTRACE_GETEVENTMSG, child, 0, &made));
        CHECK_EQ(made, 3);
        CHECK_EQ(OK(waitpid(3, &status, __WALL)), 3);
        OK(ptrace(PTRACE_DETACH, 3, 0, 0));
        OK(ptrace(PTRACE_DETACH, child, 0, 0));
        EXITS(child, 0);
    });
}

/* ---- procfs ---------------------------------------------------------------------------------- */

static int processes_listed(void) {
    DIR *all = opendir("/proc");
    CHECK(all != NULL);
    int count = 0;
    for (struct dirent *one; (one = readdir(all));)
        count += one->d_name[0] >= '0' && one->d_name[0] <= '9';
    closedir(all);
    return count;
}

TEST(procfs_shows_the_namespace_of_its_mounter) {
    needs_root();
    char text[256], outside[32];
    pid_t outer = getpid();
    snprintf(outside, sizeof outside, "/proc/%d", outer);
    pid_t init = INIT();
    if (init == 0) {
        /* The one from outside still shows what is outside, itself included. */
        OK(access(outside, F_OK));
        text[OK(readlink("/proc/self", text, sizeof text - 1))] = 0;
        CHECK(atoi(text) > outer);
        CHECK_STR(line_of("/proc/self/status", "Pid"), text);
        mount_proc();
        text[OK(readlink("/proc/self", text, sizeof text - 1))] = 0;
        CHECK_STR(text, "1");
        text[OK(readlink("/proc/thread-self", text, sizeof text - 1))] = 0;
        CHECK_STR(text, "1/task/1");
        ERR(access(outside, F_OK), ENOENT);
        pid_t child = IDLE();
        CHECK_EQ(processes_listed(), 2);
        CHECK_STR(line_of("/proc/1/status", "Pid"), "1");
        CHECK_STR(line_of("/proc/1/status", "PPid"), "0");
        CHECK_STR(line_of("/proc/2/status", "PPid"), "1");
        CHECK_STR(line_of("/proc/2/status", "NSpid"), "2");
        CHECK_STR(line_of("/proc/2/status", "NSpgid"), "0");
        CHECK(get_file("/proc/2/stat", text, sizeof text) > 0);
        char *fields = strrchr(text, ')');
        int parent, group, session;
        CHECK_EQ(sscanf(fields, ") %*c %d %d %d", &parent, &group, &session), 3);
        CHECK(parent == 1 && group == 0 && session == 0);
        CHECK(get_file("/proc/loadavg", text, sizeof text) > 0);
        CHECK(strstr(text, " 2\n") != NULL);
        CHECK(access("/proc/sys/kernel/pid_max", R_OK) == 0);
        OK(access("/proc/2/task/2/comm", R_OK));
        ERR(access("/proc/3", F_OK), ENOENT);
        end_by_kill(child);
        CHECK_EQ(processes_listed(), 1);
        _exit(0);
    }
    EXITS(init, 0);
    /* In a namespace below, one is seen by the number that one has here. */
    GATE(ready);
    GATE(go);
    OK(setns_(open_of(getpid(), "pid"), CLONE_NEWPID));
    IN_NAMESPACE({
        mount_proc();
        OK(unshare(CLONE_NEWPID));
        pid_t inner = FORK();
        if (inner == 0) {
            gate_open(&ready);
            text[OK(readlink("/proc/self", text, sizeof text - 1))] = 0;
            CHECK_STR(text, "2");
            CHECK_STR(line_of("/proc/self/status", "NSpid"), "2\t1");
            gate_pass(&go);
            _exit(0);
        }
        gate_pass(&ready);
        CHECK_STR(line_of("/proc/2/status", "NSpid"), "2\t1");
        gate_open(&go);
        EXITS(inner, 0);
    });
}

TEST(one_who_is_not_there_has_no_self) {
    needs_root();
    int own = OK(open("/proc", O_PATH | O_DIRECTORY));
    int ends[2];
    OK(socketpair(AF_UNIX, SOCK_DGRAM, 0, ends));
    char control[CMSG_SPACE(sizeof(int))], byte = 0, text[64];
    struct iovec one = {&byte, 1};
    struct msghdr m = {.msg_iov = &one, .msg_iovlen = 1, .msg_control = control,
                       .msg_controllen = sizeof control};
    pid_t init = INIT();
    if (init == 0) {
        mount_proc();
        int inside = OK(open("/proc", O_RDONLY | O_DIRECTORY));
        struct cmsghdr *c = CMSG_FIRSTHDR(&m);
        *c = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof inside), .cmsg_level = SOL_SOCKET,
                              .cmsg_type = SCM_RIGHTS};
        memcpy(CMSG_DATA(c), &inside, sizeof inside);
        OK(sendmsg(ends[1], &m, 0));
        while (1)
            pause();
    }
    OK(recvmsg(ends[0], &m, 0));
    int inside;
    memcpy(&inside, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof inside);
    ERR(readlinkat(inside, "self", text, sizeof text), ENOENT);
    ERR(readlinkat(inside, "thread-self", text, sizeof text), ENOENT);
    OK(faccessat(inside, "1/stat", R_OK, 0));
    OK(readlinkat(own, "self", text, sizeof text));
    OK(kill(init, SIGKILL));
    KILLED(init, SIGKILL);
    ERR(faccessat(inside, "1/stat", R_OK, 0), ENOENT);
}

/* ---- storms ---------------------------------------------------------------------------------- */

/* Forks as long as it lives; each child makes three orphans. */
static void breed(void) {
    while (1) {
        pid_t child = fork();
        if (child == 0) {
            for (int i = 0; i < 3; i++)
                if (fork() == 0)
                    _exit(0);
            _exit(0);
        }
        if (child == -1)
            CHECK(errno == ENOMEM || errno == EAGAIN);
        while (waitpid(-1, NULL, WNOHANG) > 0)
            ;
    }
}

TEST_TIMES(inits_end_while_others_fork, 3) {
    needs_root();
    pid_t storms[2];
    for (int s = 0; s < 2; s++)
        if ((storms[s] = FORK()) == 0) {
            int64_t end = now_ns(CLOCK_MONOTONIC) + 2000 * MS;
            int outer = open_of(getpid(), "pid");
            while (now_ns(CLOCK_MONOTONIC) < end) {
                pid_t init = INIT();
                if (init == 0) {
                    for (int i = 0; i < 3; i++)
                        if (FORK() == 0) {
                            if (i == 2)
                                unshare(CLONE_NEWPID);
                            breed();
                        }
                    msleep(1 + (long)(now_ns(CLOCK_MONOTONIC) % 7));
                    _exit(11);
                }
                /* Guests come while the init ends. */
                int guests = 0;
                while (1) {
                    pid_t guest = fork();
                    if (guest == 0) {
                        while (1)
                            pause();
                    }
                    if (guest == -1)
                        break;
                    if (++guests >= 30) {
                        OK(kill(init, s ? SIGKILL : SIGTERM));
                        msleep(1);
                    }
                }
                CHECK(errno == ENOMEM || errno == EAGAIN);
                int status;
                pid_t got;
                while ((got = wait(&status)) > 0)
                    if (got == init)
                        CHECK(status == 11 << 8 || status == SIGKILL);
                OK(setns_(outer, CLONE_NEWPID));
            }
            _exit(0);
        }
    EXITS(storms[0], 0);
    EXITS(storms[1], 0);
}
