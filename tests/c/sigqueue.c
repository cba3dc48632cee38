/* Signals that programs send: with information of their own, to threads, by descriptors of
 * processes. */
#define AREA "sigqueue"
#include "harness.h"

#define GONE 0x3ffffff0 /* no process has this number */
#ifndef SYS_pidfd_send_signal
#define SYS_pidfd_send_signal 424
#define SYS_pidfd_open 434
#endif
enum { CODE_USER = 0, CODE_QUEUE = -1, CODE_TKILL = -6, CODE_UNKNOWN = -20, CODE_KERNEL = 0x80 };

static volatile int got, got_code, got_value, got_thread;
static void note(int sig, siginfo_t *info, void *context UNUSED) {
    got_code = info->si_code;
    got_value = info->si_value.sival_int;
    got_thread = (int)syscall(SYS_gettid);
    got = sig; /* last: another thread may wait for it */
}
static void on(int sig) {
    struct sigaction act = {.sa_sigaction = note, .sa_flags = SA_SIGINFO};
    OK(sigaction(sig, &act, NULL));
}
static siginfo_t *info_with(int sig, int code, int value) {
    static siginfo_t info;
    memset(&info, 0, sizeof info);
    info.si_signo = sig;
    info.si_code = code;
    info.si_pid = getpid();
    info.si_uid = getuid();
    info.si_value.sival_int = value;
    return &info;
}
#define QUEUE(pid, sig, info) syscall(SYS_rt_sigqueueinfo, pid, sig, info)
#define TGQUEUE(pid, tid, sig, info) syscall(SYS_rt_tgsigqueueinfo, pid, tid, sig, info)
#define PIDFD(fd, sig, info) syscall(SYS_pidfd_send_signal, fd, sig, info, 0)

struct other {
    _Atomic int tid;
    struct gate go;
};
static void *stand_by(void *arg) {
    struct other *other = arg;
    atomic_store(&other->tid, (int)syscall(SYS_gettid));
    gate_pass(&other->go);
    return NULL;
}
static int thread_beside(struct other *other, pthread_t *thread) {
    atomic_store(&other->tid, 0);
    OK(pipe2(other->go.fd, O_CLOEXEC));
    ZERO(pthread_create(thread, NULL, stand_by, other));
    EVENTUALLY(atomic_load(&other->tid) != 0);
    return atomic_load(&other->tid);
}

TEST(a_queued_signal_carries_what_it_was_given) {
    on(SIGUSR1);
    OK(QUEUE(getpid(), SIGUSR1, info_with(SIGUSR2, CODE_QUEUE, 77))); /* the number is the argument's */
    CHECK_EQ(got, SIGUSR1);
    CHECK_EQ(got_code, CODE_QUEUE);
    CHECK_EQ(got_value, 77);
    OK(QUEUE(getpid(), 0, info_with(0, CODE_QUEUE, 0)));
}

TEST(any_thread_names_its_process) {
    on(SIGUSR1);
    struct other other;
    pthread_t thread;
    int tid = thread_beside(&other, &thread);
    OK(QUEUE(tid, SIGUSR1, info_with(SIGUSR1, CODE_QUEUE, 5)));
    EVENTUALLY(got == SIGUSR1);
    CHECK_EQ(got_value, 5);
    /* The same thread only is "itself". */
    ERR(QUEUE(tid, SIGUSR1, info_with(SIGUSR1, CODE_USER, 5)), EPERM);
    ERR(TGQUEUE(getpid(), tid, SIGUSR1, info_with(SIGUSR1, CODE_USER, 5)), EPERM);
    got = 0;
    OK(TGQUEUE(getpid(), tid, SIGUSR1, info_with(SIGUSR1, CODE_QUEUE, 6)));
    EVENTUALLY(got == SIGUSR1);
    CHECK_EQ(got_thread, tid);
    CHECK_EQ(got_value, 6);
    gate_open(&other.go);
    ZERO(pthread_join(thread, NULL));
}

TEST(to_itself_a_thread_may_say_anything) {
    on(SIGUSR1);
    static const int codes[] = {CODE_USER, CODE_TKILL, CODE_KERNEL, CODE_UNKNOWN, 1};
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) {
        got = 0;
        OK(QUEUE(getpid(), SIGUSR1, info_with(SIGUSR1, codes[i], 0)));
        CHECK_EQ(got, SIGUSR1);
        CHECK_EQ(got_code, codes[i]);
        got = 0;
        OK(TGQUEUE(getpid(), getpid(), SIGUSR1, info_with(SIGUSR1, codes[i], 0)));
        CHECK_EQ(got_code, codes[i]);
    }
}

TEST(rt_sigqueueinfo_errors) {
    ERR(QUEUE(getpid(), SIGUSR1, BAD), EFAULT);
    ERR(QUEUE(GONE, SIGUSR1, info_with(SIGUSR1, CODE_QUEUE, 0)), ESRCH);
    ERR(QUEUE(GONE, 99, info_with(SIGUSR1, CODE_QUEUE, 0)), ESRCH); /* before the number */
    ERR(QUEUE(-1, SIGUSR1, info_with(SIGUSR1, CODE_QUEUE, 0)), ESRCH);
    ERR(QUEUE(getpid(), 65, info_with(SIGUSR1, CODE_QUEUE, 0)), EINVAL);
    ERR(QUEUE(getpid(), -1, info_with(SIGUSR1, CODE_QUEUE, 0)), EINVAL);
    ERR(QUEUE(getppid(), 0, info_with(0, CODE_USER, 0)), EPERM);
    ERR(QUEUE(getppid(), 0, info_with(0, CODE_KERNEL, 0)), EPERM);
    ERR(QUEUE(getppid(), 0, info_with(0, CODE_TKILL, 0)), EPERM);
    ERR(QUEUE(GONE, 0, info_with(0, CODE_TKILL, 0)), EPERM); /* before the process */
    /* The fields behind those that the kernel knows must be empty. */
    siginfo_t *info = info_with(SIGUSR1, CODE_UNKNOWN, 0);
    ((char *)info)[127] = 1;
    ERR(QUEUE(getpid(), SIGUSR1, info), E2BIG);
    info->si_code = CODE_QUEUE;
    on(SIGUSR1);
    OK(QUEUE(getpid(), SIGUSR1, info));
}

TEST(rt_tgsigqueueinfo_errors) {
    pid_t own = getpid();
    ERR(TGQUEUE(own, own, SIGUSR1, BAD), EFAULT);
    ERR(TGQUEUE(0, own, 0, info_with(0, CODE_QUEUE, 0)), EINVAL);
    ERR(TGQUEUE(own, 0, 0, info_with(0, CODE_QUEUE, 0)), EINVAL);
    ERR(TGQUEUE(-1, own, 0, info_with(0, CODE_USER, 0)), EINVAL);
    ERR(TGQUEUE(own, -1, 0, info_with(0, CODE_QUEUE, 0)), EINVAL);
    ERR(TGQUEUE(own, GONE, 0, info_with(0, CODE_QUEUE, 0)), ESRCH);
    ERR(TGQUEUE(getppid(), own, 0, info_with(0, CODE_QUEUE, 0)), ESRCH);
    ERR(TGQUEUE(own, own, 65, info_with(0, CODE_QUEUE, 0)), EINVAL);
    ERR(TGQUEUE(getppid(), getppid(), 0, info_with(0, CODE_USER, 0)), EPERM);
    ERR(TGQUEUE(getppid(), getppid(), 0, info_with(0, CODE_TKILL, 0)), EPERM);
}

TEST(queueing_needs_permission) {
    if (geteuid() != 0) SKIP("needs root");
    IN_CHILD({
        BECOME(NOBODY, NOBODY);
        ERR(QUEUE(1, 0, info_with(0, CODE_QUEUE, 0)), EPERM);
        ERR(TGQUEUE(1, 1, 0, info_with(0, CODE_QUEUE, 0)), EPERM);
        ERR(QUEUE(1, 65, info_with(0, CODE_QUEUE, 0)), EINVAL); /* before the permission */
        int fd = OK((int)syscall(SYS_pidfd_open, 1, 0));
        ERR(PIDFD(fd, 0, NULL), EPERM);
    });
}

TEST(a_directory_of_proc_names_a_process) {
    GATE(go);
    pid_t pid = FORK();
    if (pid == 0) {
        gate_pass(&go);
        _exit(0);
    }
    char path[64];
    snprintf(path, sizeof path, "/proc/%d", pid);
    int fd = OK(open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    int held = OK(open(path, O_PATH | O_CLOEXEC));
    OK(PIDFD(fd, 0, NULL));
    ERR(PIDFD(held, 0, NULL), EBADF);
    snprintf(path, sizeof path, "/proc/%d/task/%d", pid, pid);
    int task = OK(open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    ERR(PIDFD(task, 0, NULL), EBADF);
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    int file = OK(open(path, O_RDONLY | O_CLOEXEC));
    ERR(PIDFD(file, 0, NULL), EBADF);
    OK(PIDFD(fd, SIGKILL, NULL));
    KILLED(pid, SIGKILL);
    ERR(PIDFD(fd, 0, NULL), ESRCH);
}

TEST(pidfd_send_signal_errors) {
    int fd = OK((int)syscall(SYS_pidfd_open, getpid(), 0)), file = OK(open("/dev/null", O_RDONLY));
    int parent = OK((int)syscall(SYS_pidfd_open, getppid(), 0));
    ERR(syscall(SYS_pidfd_send_signal, fd, 0, NULL, 8), EINVAL);
    ERR(PIDFD(-1, 0, NULL), EBADF);
    ERR(PIDFD(file, 0, NULL), EBADF);
    ERR(PIDFD(fd, 65, NULL), EINVAL);
    ERR(PIDFD(fd, 0, BAD), EFAULT);
    ERR(PIDFD(fd, SIGUSR1, info_with(SIGUSR2, CODE_QUEUE, 0)), EINVAL); /* two numbers */
    ERR(PIDFD(parent, 0, info_with(0, CODE_USER, 0)), EPERM);
    ERR(PIDFD(parent, 0, info_with(0, CODE_TKILL, 0)), EPERM);
    OK(PIDFD(parent, 0, info_with(0, CODE_QUEUE, 0)));
    on(SIGUSR1);
    OK(PIDFD(fd, SIGUSR1, info_with(SIGUSR1, CODE_USER, 3)));
    CHECK_EQ(got_value, 3);
    pid_t pid = FORK();
    if (pid == 0)
        _exit(0);
    int dead = OK((int)syscall(SYS_pidfd_open, pid, 0));
    EXITS(pid, 0);
    ERR(PIDFD(dead, 0, NULL), ESRCH);
}

TEST(pidfd_open_errors) {
    ERR(syscall(SYS_pidfd_open, 0, 0), EINVAL);
    ERR(syscall(SYS_pidfd_open, -1, 0), EINVAL);
    ERR(syscall(SYS_pidfd_open, getpid(), 1), EINVAL);
    ERR(syscall(SYS_pidfd_open, GONE, 0), ESRCH);
}

TEST(kill_errors) {
    ERR(syscall(SYS_kill, getpid(), 65), EINVAL);
    ERR(syscall(SYS_kill, getpid(), -1), EINVAL);
    ERR(syscall(SYS_kill, GONE, 0), ESRCH);
    ERR(syscall(SYS_kill, -GONE, 0), ESRCH);
    ERR(syscall(SYS_kill, INT_MIN, 0), ESRCH);
    if (geteuid() == 0) IN_CHILD(BECOME(NOBODY, NOBODY); ERR(syscall(SYS_kill, 1, 0), EPERM));
}

TEST(tkill_errors) {
    ERR(syscall(SYS_tkill, 0, 0), EINVAL);
    ERR(syscall(SYS_tkill, -1, 0), EINVAL);
    ERR(syscall(SYS_tkill, GONE, 0), ESRCH);
    ERR(syscall(SYS_tkill, getpid(), 65), EINVAL);
    if (geteuid() == 0) IN_CHILD(BECOME(NOBODY, NOBODY); ERR(syscall(SYS_tkill, 1, 0), EPERM));
}

TEST(tgkill_errors) {
    ERR(syscall(SYS_tgkill, 0, getpid(), 0), EINVAL);
    ERR(syscall(SYS_tgkill, getpid(), 0, 0), EINVAL);
    ERR(syscall(SYS_tgkill, getpid(), -1, 0), EINVAL);
    ERR(syscall(SYS_tgkill, getpid(), GONE, 0), ESRCH);
    ERR(syscall(SYS_tgkill, getppid(), getpid(), 0), ESRCH);
    ERR(syscall(SYS_tgkill, getpid(), getpid(), 65), EINVAL);
    if (geteuid() == 0) IN_CHILD(BECOME(NOBODY, NOBODY); ERR(syscall(SYS_tgkill, 1, 1, 0), EPERM));
}

TEST(rt_sigaction_errors) {
    struct { unsigned long words[4]; } act = {{0}};
    ERR(syscall(SYS_rt_sigaction, SIGUSR1, &act, NULL, 4), EINVAL);
    ERR(syscall(SYS_rt_sigaction, 0, NULL, &act, 8), EINVAL);
    ERR(syscall(SYS_rt_sigaction, 65, NULL, &act, 8), EINVAL);
    ERR(syscall(SYS_rt_sigaction, SIGKILL, &act, NULL, 8), EINVAL);
    ERR(syscall(SYS_rt_sigaction, SIGSTOP, &act, NULL, 8), EINVAL);
    OK(syscall(SYS_rt_sigaction, SIGKILL, NULL, &act, 8));
    ERR(syscall(SYS_rt_sigaction, SIGUSR1, BAD, NULL, 8), EFAULT);
    ERR(syscall(SYS_rt_sigaction, SIGUSR1, NULL, BAD, 8), EFAULT);
}

TEST(rt_sigprocmask_errors) {
    unsigned long set = 0;
    ERR(syscall(SYS_rt_sigprocmask, SIG_BLOCK, &set, NULL, 4), EINVAL);
    ERR(syscall(SYS_rt_sigprocmask, 77, &set, NULL, 8), EINVAL);
    OK(syscall(SYS_rt_sigprocmask, 77, NULL, &set, 8)); /* nothing to do */
    ERR(syscall(SYS_rt_sigprocmask, SIG_BLOCK, BAD, NULL, 8), EFAULT);
    ERR(syscall(SYS_rt_sigprocmask, SIG_BLOCK, NULL, BAD, 8), EFAULT);
}

TEST(rt_sigpending_errors) {
    unsigned long set[2];
    ERR(syscall(SYS_rt_sigpending, set, 16), EINVAL);
    ERR(syscall(SYS_rt_sigpending, BAD, 8), EFAULT);
}

TEST(rt_sigtimedwait_errors) {
    unsigned long set = 1ul << (SIGUSR1 - 1);
    struct timespec now = {0, 0}, bad = {0, 1000000000}, negative = {-1, 0};
    ERR(syscall(SYS_rt_sigtimedwait, &set, NULL, &now, 4), EINVAL);
    ERR(syscall(SYS_rt_sigtimedwait, &set, NULL, &bad, 8), EINVAL);
    ERR(syscall(SYS_rt_sigtimedwait, &set, NULL, &negative, 8), EINVAL);
    ERR(syscall(SYS_rt_sigtimedwait, BAD, NULL, &now, 8), EFAULT);
    ERR(syscall(SYS_rt_sigtimedwait, &set, NULL, BAD, 8), EFAULT);
    ERR(syscall(SYS_rt_sigtimedwait, &set, NULL, &now, 8), EAGAIN);
}

TEST(rt_sigsuspend_errors) {
    unsigned long set = 0;
    ERR(syscall(SYS_rt_sigsuspend, &set, 4), EINVAL);
    ERR(syscall(SYS_rt_sigsuspend, BAD, 8), EFAULT);
}

TEST(sigaltstack_errors) {
    static char memory[8192];
    stack_t stack = {.ss_sp = memory, .ss_size = 2047, .ss_flags = 0};
    ERR(syscall(SYS_sigaltstack, &stack, NULL), ENOMEM);
    stack.ss_flags = 99;
    ERR(syscall(SYS_sigaltstack, &stack, NULL), EINVAL);
    ERR(syscall(SYS_sigaltstack, BAD, NULL), EFAULT);
    ERR(syscall(SYS_sigaltstack, NULL, BAD), EFAULT);
}

TEST(restart_syscall_errors) { ERR(syscall(SYS_restart_syscall), EINTR); }
