/* fork, vfork, clone, clone3, exit, wait4, waitid, orphans and zombies. */
#define AREA "process"
#include "harness.h"

TEST(fork_gives_new_pid_and_right_parent) {
    pid_t parent = getpid();
    pid_t *seen = SHARED(PAGE);
    pid_t pid = FORK();
    if (pid == 0) {
        seen[0] = getpid();
        seen[1] = getppid();
        seen[2] = (pid_t)syscall(SYS_gettid);
        _exit(0);
    }
    EXITS(pid, 0);
    CHECK(pid != parent);
    CHECK_EQ(seen[0], pid);
    CHECK_EQ(seen[1], parent);
    CHECK_EQ(seen[2], pid);
}

TEST(exit_status_is_eight_bits) {
    static const int codes[] = {0, 1, 7, 127, 128, 255, 256, 300, -1};
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) {
        pid_t pid = FORK();
        if (pid == 0)
            _exit(codes[i]);
        int status = WAIT(pid);
        CHECK(WIFEXITED(status));
        CHECK_EQ(WEXITSTATUS(status), codes[i] & 0xff);
        CHECK_EQ(status, (codes[i] & 0xff) << 8);
    }
}

TEST(death_by_signal_is_in_the_status) {
    static const int signals[] = {SIGHUP, SIGKILL, SIGTERM, SIGUSR1, SIGALRM, SIGPIPE};
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++) {
        pid_t pid = FORK();
        if (pid == 0) {
            kill(getpid(), signals[i]);
            for (;;)
                pause();
        }
        int status = WAIT(pid);
        CHECK(WIFSIGNALED(status) && !WIFEXITED(status) && !WIFSTOPPED(status));
        CHECK_EQ(WTERMSIG(status), signals[i]);
    }
}

TEST(descriptors_are_shared_copies_after_fork) {
    PUT("f", "0123456789");
    int fd = OK(open("f", O_RDONLY));
    char c;
    IN_CHILD({
        CHECK_EQ(OK(read(fd, &c, 1)), 1);
        OK(close(fd)); /* only the child's own */
    });
    CHECK_EQ(OK(read(fd, &c, 1)), 1); /* the offset is common */
    CHECK_EQ(c, '1');
}

TEST(fork_inherits_signal_mask_and_dispositions_not_pending) {
    sigset_t set, got;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    OK(sigprocmask(SIG_BLOCK, &set, NULL));
    signal(SIGUSR2, SIG_IGN);
    OK(kill(getpid(), SIGUSR1));
    IN_CHILD({
        OK(sigprocmask(SIG_BLOCK, NULL, &got));
        CHECK(sigismember(&got, SIGUSR1));
        OK(sigpending(&got));
        CHECK(!sigismember(&got, SIGUSR1));
        struct sigaction act;
        OK(sigaction(SIGUSR2, NULL, &act));
        CHECK(act.sa_handler == SIG_IGN);
    });
    OK(sigpending(&got));
    CHECK(sigismember(&got, SIGUSR1));
}

TEST(fork_does_not_inherit_alarm_and_times) {
    OK(alarm(100));
    IN_CHILD({
        CHECK_EQ(alarm(0), 0);
        struct rusage usage;
        OK(getrusage(RUSAGE_CHILDREN, &usage));
        CHECK_EQ(usage.ru_utime.tv_sec + usage.ru_maxrss, 0);
    });
    CHECK(alarm(0) > 90);
}

TEST(fork_inherits_cwd_umask_and_groups) {
    OK(mkdir("d", 0755));
    OK(chdir("d"));
    umask(027);
    pid_t group = getpgrp(), session = getsid(0);
    IN_CHILD({
        char cwd[PATH_MAX];
        CHECK(getcwd(cwd, sizeof cwd) != NULL);
        CHECK_STR(strrchr(cwd, '/'), "/d");
        CHECK_EQ(umask(0), 027);
        CHECK_EQ(getpgrp(), group);
        CHECK_EQ(getsid(0), session);
        OK(chdir(".."));
    });
    CHECK_EQ(umask(022), 027);
    OK(access("../d", F_OK)); /* the child's chdir did not move us */
}

TEST(vfork_child_shares_memory_until_exit) {
    static volatile int value;
    value = 1;
    pid_t pid = vfork();
    if (pid == 0) {
        value = 42;
        _exit(3);
    }
    CHECK(pid > 0);
    CHECK_EQ(value, 42); /* the parent ran only after the child's exit */
    EXITS(pid, 3);
}

TEST(vfork_parent_waits_for_exec) {
    PUT_MODE("run", "#!/none\n", 0755);
    pid_t pid = vfork();
    if (pid == 0) {
        execl("./none", "none", (char *)NULL);
        execl(hy_self, hy_self, "--helper", "seven", (char *)NULL);
        _exit(1);
    }
    EXITS(pid, 7);
}
HELPER(seven) { return 7; }

TEST(vfork_child_killed_releases_the_parent) {
    pid_t pid = vfork();
    if (pid == 0) {
        syscall(SYS_kill, syscall(SYS_getpid), SIGKILL);
        for (;;)
            ;
    }
    KILLED(pid, SIGKILL);
}

TEST(clone_with_no_exit_signal_needs_wclone) {
    signal(SIGCHLD, SIG_DFL);
    long pid = OK(syscall(SYS_clone, 0, NULL, NULL, NULL, NULL));
    if (pid == 0)
        _exit(5);
    int status;
    msleep(20);
    ERR(waitpid((pid_t)pid, &status, WNOHANG), ECHILD); /* not a child that SIGCHLD tells of */
    CHECK_EQ(OK(waitpid((pid_t)pid, &status, __WALL)), pid);
    CHECK_EQ(WEXITSTATUS(status), 5);
}

TEST(clone_exit_signal_may_be_another) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigaddset(&set, SIGCHLD);
    OK(sigprocmask(SIG_BLOCK, &set, NULL));
    long pid = OK(syscall(SYS_clone, SIGUSR1, NULL, NULL, NULL, NULL));
    if (pid == 0)
        _exit(0);
    siginfo_t info;
    struct timespec limit = {10, 0};
    CHECK_EQ(OK(sigtimedwait(&set, &info, &limit)), SIGUSR1);
    CHECK_EQ(info.si_pid, pid);
    int status;
    CHECK_EQ(OK(waitpid((pid_t)pid, &status, __WCLONE)), pid);
}

TEST(clone_argument_errors) {
    ERR(syscall(SYS_clone, CLONE_THREAD | SIGCHLD, NULL, NULL, NULL, NULL), EINVAL);
    ERR(syscall(SYS_clone, CLONE_SIGHAND | SIGCHLD, NULL, NULL, NULL, NULL), EINVAL);
    ERR(syscall(SYS_clone, CLONE_FS | CLONE_NEWNS | SIGCHLD, NULL, NULL, NULL, NULL), EINVAL);
}

TEST(clone_settid_and_cleartid_words) {
    int *word = SHARED(PAGE);
    pid_t own = 0;
    long pid = OK(syscall(SYS_clone, CLONE_PARENT_SETTID | CLONE_CHILD_SETTID | SIGCHLD, NULL, &own,
                          word, NULL));
    if (pid == 0)
        _exit(0);
    CHECK_EQ(own, pid);
    EXITS((pid_t)pid, 0);
    CHECK_EQ(*word, pid);
}

TEST(clone_files_shares_the_table) {
    long pid = OK(syscall(SYS_clone, CLONE_FILES | SIGCHLD, NULL, NULL, NULL, NULL));
    if (pid == 0)
        _exit(dup2(2, 200) == 200 ? 0 : 1);
    EXITS((pid_t)pid, 0);
    OK(fcntl(200, F_GETFD));
}

TEST(clone_fs_shares_cwd_and_umask) {
    OK(mkdir("d", 0755));
    PUT("d/mark", "");
    long pid = OK(syscall(SYS_clone, CLONE_FS | SIGCHLD, NULL, NULL, NULL, NULL));
    if (pid == 0) {
        umask(077);
        _exit(chdir("d"));
    }
    EXITS((pid_t)pid, 0);
    OK(access("mark", F_OK));
    CHECK_EQ(umask(022), 077);
}

TEST(clone_parent_makes_a_sibling) {
    pid_t *pids = SHARED(PAGE);
    pid_t first = FORK();
    if (first == 0) {
        long pid = OK(syscall(SYS_clone, CLONE_PARENT | SIGCHLD, NULL, NULL, NULL, NULL));
        if (pid == 0) {
            pids[1] = getppid();
            _exit(4);
        }
        pids[0] = (pid_t)pid;
        _exit(0);
    }
    EXITS(first, 0);
    EXITS(pids[0], 4);
    CHECK_EQ(pids[1], getpid());
}

/* include/uapi/linux/sched.h */
struct clone3_args {
    uint64_t flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls, set_tid,
        set_tid_size, cgroup;
};

TEST(clone3_forks) {
    pid_t own = 0;
    struct clone3_args args = {.flags = CLONE_PARENT_SETTID,
                               .parent_tid = (uintptr_t)&own,
                               .exit_signal = SIGCHLD};
    long pid = syscall(435, &args, 64L);
    if (pid == 0)
        _exit(6);
    if (pid == -1 && errno == ENOSYS)
        SKIP("no clone3");
    CHECK(pid > 0);
    CHECK_EQ(own, pid);
    EXITS((pid_t)pid, 6);
}

TEST(clone3_argument_errors) {
    struct clone3_args args = {.exit_signal = SIGCHLD};
    if (syscall(435, NULL, 0L) == -1 && errno == ENOSYS)
        SKIP("no clone3");
    ERR(syscall(435, &args, 8L), EINVAL);         /* smaller than the first version */
    ERR(syscall(435, &args, 100000L), E2BIG);     /* larger than a page */
    ERR(syscall(435, BAD, 64L), EFAULT);
    args.exit_signal = 1000;
    ERR(syscall(435, &args, 64L), EINVAL);
    args = (struct clone3_args){.flags = 0xff, .exit_signal = SIGCHLD}; /* CSIGNAL bits */
    ERR(syscall(435, &args, 64L), EINVAL);
    args = (struct clone3_args){.exit_signal = SIGCHLD, .stack_size = 4096}; /* size, no stack */
    ERR(syscall(435, &args, 64L), EINVAL);
    uint64_t longer[16] = {[4] = SIGCHLD, [15] = 1}; /* unknown fields must be zero */
    ERR(syscall(435, longer, sizeof longer), E2BIG);
}

/* copy_struct_from_user(): what is not zero is told before the end of memory behind it. */
TEST(clone3_longer_structure_at_the_end_of_memory) {
    enum { KNOWN = sizeof(struct clone3_args) };
    char *page = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(page != MAP_FAILED);
    OK(munmap(page + PAGE, PAGE));
    struct clone3_args *args = (void *)(page + PAGE - KNOWN - 8);
    args->exit_signal = SIGCHLD;
    if (syscall(435, NULL, 0L) == -1 && errno == ENOSYS)
        SKIP("no clone3");
    ERR(syscall(435, args, (long)KNOWN + 16), EFAULT);
    ((char *)args)[KNOWN + 7] = 1;
    ERR(syscall(435, args, (long)KNOWN + 16), E2BIG);
    ERR(syscall(435, args, (long)KNOWN + 8), E2BIG);
    args = (void *)(page + PAGE - KNOWN);
    ERR(syscall(435, args, (long)KNOWN + 8), EFAULT);
}

/* ---- waiting ---------------------------------------------------------------------------------- */

TEST(wait_without_children_is_echild) {
    ERR(waitpid(-1, NULL, 0), ECHILD);
    ERR(waitpid(-1, NULL, WNOHANG), ECHILD);
    ERR(waitpid(getpid(), NULL, 0), ECHILD);
    ERR(waitpid(1, NULL, 0), ECHILD);
    siginfo_t info;
    ERR(waitid(P_ALL, 0, &info, WEXITED), ECHILD);
}

TEST(wait_argument_errors) {
    pid_t pid = FORK();
    if (pid == 0)
        _exit(0);
    ERR(waitpid(pid, NULL, 0x10000000), EINVAL);
    siginfo_t info;
    ERR(waitid(P_PID, (id_t)pid, &info, 0), EINVAL);          /* no kind of event asked for */
    ERR(waitid(P_PID, (id_t)pid, &info, WNOHANG), EINVAL);
    ERR(waitid((idtype_t)77, (id_t)pid, &info, WEXITED), EINVAL);
    ERR(syscall(SYS_wait4, INT_MIN, NULL, 0, NULL), ESRCH); /* wait4(2) since Linux 4.13 */
    EXITS(pid, 0);
    ERR(waitpid(pid, NULL, 0), ECHILD); /* it can be reaped only once */
}

TEST(wait4_bad_status_pointer_is_efault) {
    pid_t pid = FORK();
    if (pid == 0)
        _exit(0);
    ERR(waitpid(pid, BAD, 0), EFAULT);
}

TEST(wnohang_returns_zero_while_running) {
    GATE(go);
    pid_t pid = FORK();
    if (pid == 0) {
        gate_pass(&go);
        _exit(9);
    }
    int status = 77;
    CHECK_EQ(OK(waitpid(pid, &status, WNOHANG)), 0);
    CHECK_EQ(OK(waitpid(-1, &status, WNOHANG)), 0);
    gate_open(&go);
    EXITS(pid, 9);
}

TEST(waitpid_by_process_group) {
    pid_t a = FORK();
    if (a == 0) {
        setpgid(0, 0);
        _exit(1);
    }
    setpgid(a, a);
    pid_t b = FORK();
    if (b == 0)
        _exit(2);
    int status;
    CHECK_EQ(OK(waitpid(-a, &status, 0)), a);
    CHECK_EQ(WEXITSTATUS(status), 1);
    ERR(waitpid(-a, &status, 0), ECHILD);
    CHECK_EQ(OK(waitpid(0, &status, 0)), b); /* our own group */
    CHECK_EQ(WEXITSTATUS(status), 2);
}

TEST(waitid_fills_siginfo) {
    pid_t pid = FORK();
    if (pid == 0)
        _exit(33);
    siginfo_t info;
    memset(&info, 0xff, sizeof info);
    OK(waitid(P_PID, (id_t)pid, &info, WEXITED));
    CHECK_EQ(info.si_signo, SIGCHLD);
    CHECK_EQ(info.si_code, CLD_EXITED);
    CHECK_EQ(info.si_status, 33);
    CHECK_EQ(info.si_pid, pid);
    CHECK_EQ(info.si_uid, getuid());
    pid = FORK();
    if (pid == 0) {
        kill(getpid(), SIGKILL);
        _exit(0);
    }
    OK(waitid(P_PID, (id_t)pid, &info, WEXITED));
    CHECK_EQ(info.si_code, CLD_KILLED);
    CHECK_EQ(info.si_status, SIGKILL);
}

TEST(waitid_wnowait_leaves_the_zombie) {
    pid_t pid = FORK();
    if (pid == 0)
        _exit(8);
    siginfo_t info;
    for (int i = 0; i < 3; i++) {
        OK(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT));
        CHECK_EQ(info.si_status, 8);
    }
    OK(kill(pid, 0)); /* a zombie still has its pid */
    EXITS(pid, 8);
    ERR(kill(pid, 0), ESRCH);
}

#ifndef __WNOTHREAD
#define __WNOTHREAD 0x20000000
#endif

/* Tells whether child `pid`, which has ended or will, is the calling thread's own. */
static bool is_own(pid_t pid) {
    siginfo_t info;
    long r = syscall(SYS_waitid, P_PID, pid, &info, WEXITED | WNOWAIT | __WNOTHREAD, NULL);
    if (r == 0)
        CHECK_EQ(info.si_pid, pid);
    else
        CHECK_EQ(errno, ECHILD);
    return r == 0;
}

struct family {
    pid_t of_main, of_thread, of_gone;
    struct gate go;
};

static void *makes_and_waits(void *arg) {
    struct family *f = arg;
    int status;
    CHECK(!is_own(f->of_main));
    ERR(wait4(f->of_main, NULL, __WNOTHREAD, NULL), ECHILD);
    ERR(wait4(-1, NULL, __WNOTHREAD | WNOHANG, NULL), ECHILD);
    siginfo_t info;
    OK(waitid(P_PID, (id_t)f->of_main, &info, WEXITED | WNOWAIT)); /* without it, all are seen */
    f->of_thread = FORK();
    if (f->of_thread == 0)
        _exit(4);
    CHECK(is_own(f->of_thread));
    CHECK_EQ(OK(wait4(-1, &status, __WNOTHREAD, NULL)), f->of_thread);
    CHECK_EQ(WEXITSTATUS(status), 4);
    ERR(wait4(-1, NULL, __WNOTHREAD, NULL), ECHILD);
    return NULL;
}

TEST(wnothread_waits_for_the_threads_own_children_only) {
    struct family f = {0};
    f.of_main = FORK();
    if (f.of_main == 0)
        _exit(3);
    pthread_t t;
    ZERO(pthread_create(&t, NULL, makes_and_waits, &f));
    ZERO(pthread_join(t, NULL));
    int status;
    CHECK_EQ(OK(wait4(-1, &status, __WNOTHREAD, NULL)), f.of_main);
    CHECK_EQ(WEXITSTATUS(status), 3);
}

static void *makes_and_ends(void *arg) {
    struct family *f = arg;
    f->of_gone = FORK();
    if (f->of_gone == 0)
        _exit(5);
    return NULL;
}

static void *looks_and_sees_none(void *arg) {
    struct family *f = arg;
    gate_pass(&f->go);
    CHECK(!is_own(f->of_gone));
    return NULL;
}

TEST(children_of_an_ended_thread_are_those_of_the_first) {
    struct family f = {0};
    OK(pipe2(f.go.fd, O_CLOEXEC));
    pthread_t maker, other;
    ZERO(pthread_create(&other, NULL, looks_and_sees_none, &f));
    ZERO(pthread_create(&maker, NULL, makes_and_ends, &f));
    ZERO(pthread_join(maker, NULL));
    /* A join returns a moment before the thread has gone. */
    int64_t end = now_ns(CLOCK_MONOTONIC) + 20000000000;
    while (!is_own(f.of_gone))
        CHECK(now_ns(CLOCK_MONOTONIC) < end);
    gate_open(&f.go);
    ZERO(pthread_join(other, NULL));
    EXITS(f.of_gone, 5);
}

static void *makes_a_maker_of_siblings(void *arg) {
    pid_t *pids = arg;
    pids[0] = FORK();
    if (pids[0] == 0) {
        long pid = OK(syscall(SYS_clone, CLONE_PARENT | SIGCHLD, NULL, NULL, NULL, NULL));
        if (pid == 0)
            _exit(6);
        pids[1] = (pid_t)pid;
        _exit(0);
    }
    EXITS(pids[0], 0);
    CHECK(is_own(pids[1]));
    int *seen = (int *)&pids[2];
    *seen = 1;
    while (*(volatile int *)seen == 1)
        usleep(1000);
    return NULL;
}

TEST(a_sibling_is_the_child_of_the_thread_that_made_its_maker) {
    pid_t *pids = SHARED(PAGE);
    pthread_t t;
    ZERO(pthread_create(&t, NULL, makes_a_maker_of_siblings, pids));
    while (((volatile pid_t *)pids)[2] != 1)
        usleep(1000);
    CHECK(!is_own(pids[1]));
    pids[2] = 2;
    ZERO(pthread_join(t, NULL));
    EXITS(pids[1], 6);
}

TEST(waitid_wnohang_with_nothing_clears_pid) {
    GATE(go);
    pid_t pid = FORK();
    if (pid == 0) {
        gate_pass(&go);
        _exit(0);
    }
    siginfo_t info;
    memset(&info, 0xff, sizeof info);
    OK(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG));
    CHECK_EQ(info.si_pid, 0);
    CHECK_EQ(info.si_signo, 0);
    gate_open(&go);
    EXITS(pid, 0);
}

TEST(stopped_and_continued_children_are_reported_once) {
    pid_t pid = FORK();
    if (pid == 0)
        for (;;)
            pause();
    int status;
    OK(kill(pid, SIGSTOP));
    CHECK_EQ(OK(waitpid(pid, &status, WUNTRACED)), pid);
    CHECK(WIFSTOPPED(status));
    CHECK_EQ(WSTOPSIG(status), SIGSTOP);
    CHECK_EQ(OK(waitpid(pid, &status, WUNTRACED | WNOHANG)), 0);
    OK(kill(pid, SIGCONT));
    CHECK_EQ(OK(waitpid(pid, &status, WCONTINUED)), pid);
    CHECK(WIFCONTINUED(status));
    CHECK_EQ(OK(waitpid(pid, &status, WCONTINUED | WNOHANG)), 0);
    OK(kill(pid, SIGKILL));
    KILLED(pid, SIGKILL);
}

TEST(waitid_stop_and_continue_codes) {
    pid_t pid = FORK();
    if (pid == 0)
        for (;;)
            pause();
    siginfo_t info;
    OK(kill(pid, SIGTSTP));
    OK(waitid(P_PID, (id_t)pid, &info, WSTOPPED));
    CHECK_EQ(info.si_code, CLD_STOPPED);
    CHECK_EQ(info.si_status, SIGTSTP);
    OK(kill(pid, SIGCONT));
    OK(waitid(P_PID, (id_t)pid, &info, WCONTINUED));
    CHECK_EQ(info.si_code, CLD_CONTINUED);
    CHECK_EQ(info.si_status, SIGCONT);
    OK(kill(pid, SIGKILL));
    KILLED(pid, SIGKILL);
}

TEST(kill_works_on_a_stopped_child) {
    pid_t pid = FORK();
    if (pid == 0)
        for (;;)
            pause();
    OK(kill(pid, SIGSTOP));
    int status;
    CHECK_EQ(OK(waitpid(pid, &status, WUNTRACED)), pid);
    OK(kill(pid, SIGTERM)); /* stays pending while stopped */
    msleep(20);
    CHECK_EQ(OK(waitpid(pid, &status, WNOHANG)), 0);
    OK(kill(pid, SIGCONT));
    KILLED(pid, SIGTERM);
}

TEST(sigchld_ignored_means_no_zombies) {
    signal(SIGCHLD, SIG_IGN);
    pid_t pid = FORK();
    if (pid == 0)
        _exit(1);
    /* wait blocks until the child is gone and then says there is none (wait(2), NOTES) */
    ERR(waitpid(pid, NULL, 0), ECHILD);
    ERR(kill(pid, 0), ESRCH);
}

TEST(sa_nocldwait_means_no_zombies) {
    struct sigaction act = {.sa_handler = SIG_DFL, .sa_flags = SA_NOCLDWAIT};
    OK(sigaction(SIGCHLD, &act, NULL));
    pid_t pid = FORK();
    if (pid == 0)
        _exit(1);
    ERR(waitpid(-1, NULL, 0), ECHILD);
}

TEST(wait_is_interrupted_by_a_handler) {
    struct sigaction act = {.sa_handler = hy_on_alarm};
    OK(sigaction(SIGALRM, &act, NULL));
    pid_t pid = FORK();
    if (pid == 0)
        for (;;)
            pause();
    struct itimerval soon = {{0, 20000}, {0, 20000}};
    OK(setitimer(ITIMER_REAL, &soon, NULL));
    ERR(waitpid(pid, NULL, 0), EINTR);
    struct itimerval off = {{0, 0}, {0, 0}};
    OK(setitimer(ITIMER_REAL, &off, NULL));
    OK(kill(pid, SIGKILL));
    KILLED(pid, SIGKILL);
}

TEST(orphan_goes_to_the_subreaper) {
    OK(syscall(SYS_prctl, 36 /* PR_SET_CHILD_SUBREAPER */, 1, 0, 0, 0));
    pid_t *pids = SHARED(PAGE);
    GATE(go);
    pid_t middle = FORK();
    if (middle == 0) {
        pid_t orphan = FORK();
        if (orphan == 0) {
            gate_pass(&go); /* the parent is gone */
            pids[1] = getppid();
            _exit(21);
        }
        pids[0] = orphan;
        _exit(0);
    }
    EXITS(middle, 0);
    gate_open(&go);
    EXITS(pids[0], 21);
    CHECK_EQ(pids[1], getpid());
}

/* None is lost, also when the end of their parent is refused memory (`stress/refusal`). */
TEST(all_orphans_can_be_waited_for) {
    OK(syscall(SYS_prctl, 36 /* PR_SET_CHILD_SUBREAPER */, 1, 0, 0, 0));
    enum { ORPHANS = 20 };
    GATE(go);
    pid_t middle = FORK();
    if (middle == 0) {
        for (int i = 0; i < ORPHANS; i++)
            if (FORK() == 0) {
                gate_pass(&go); /* the parent is gone */
                _exit(i);
            }
        _exit(0);
    }
    EXITS(middle, 0);
    for (int i = 0; i < ORPHANS; i++) gate_open(&go);
    unsigned seen = 0;
    for (int i = 0; i < ORPHANS; i++) {
        int status;
        OK(wait(&status));
        CHECK(WIFEXITED(status));
        seen |= 1u << WEXITSTATUS(status);
    }
    CHECK_EQ(seen, (1u << ORPHANS) - 1);
    ERR(wait(NULL), ECHILD);
}

TEST(orphan_goes_to_init_without_a_subreaper) {
    pid_t *pids = SHARED(PAGE);
    GATE(go);
    GATE(done);
    pid_t middle = FORK();
    if (middle == 0) {
        if (FORK() == 0) {
            gate_pass(&go);
            pids[0] = getppid();
            gate_open(&done);
            _exit(0);
        }
        _exit(0);
    }
    EXITS(middle, 0);
    gate_open(&go);
    gate_pass(&done);
    CHECK(pids[0] != middle && pids[0] != getpid());
    CHECK(pids[0] >= 1); /* pid 1, or a subreaper above the test */
}

TEST(zombie_orphan_is_reaped_by_the_new_parent) {
    OK(syscall(SYS_prctl, 36, 1, 0, 0, 0));
    pid_t *pids = SHARED(PAGE);
    pid_t middle = FORK();
    if (middle == 0) {
        pid_t orphan = FORK();
        if (orphan == 0)
            _exit(17);
        pids[0] = orphan;
        siginfo_t info;
        OK(waitid(P_PID, (id_t)orphan, &info, WEXITED | WNOWAIT)); /* it is a zombie by now */
        _exit(0);
    }
    EXITS(middle, 0);
    EXITS(pids[0], 17);
}

TEST(pdeathsig_comes_at_the_parents_end) {
    int *seen = SHARED(PAGE);
    GATE(ready);
    GATE(done);
    pid_t middle = FORK();
    if (middle == 0) {
        if (FORK() == 0) {
            sigset_t set;
            sigemptyset(&set);
            sigaddset(&set, SIGUSR2);
            OK(sigprocmask(SIG_BLOCK, &set, NULL));
            OK(syscall(SYS_prctl, 1 /* PR_SET_PDEATHSIG */, SIGUSR2, 0, 0, 0));
            gate_open(&ready);
            struct timespec limit = {10, 0};
            *seen = sigtimedwait(&set, NULL, &limit);
            gate_open(&done);
            _exit(0);
        }
        gate_pass(&ready);
        _exit(0);
    }
    EXITS(middle, 0);
    gate_pass(&done);
    CHECK_EQ(*seen, SIGUSR2);
}

TEST(many_children_at_once) {
    enum { COUNT = 200 };
    pid_t pids[COUNT];
    for (int i = 0; i < COUNT; i++)
        if ((pids[i] = FORK()) == 0)
            _exit(i);
    bool seen[COUNT] = {0};
    for (int i = 0; i < COUNT; i++) {
        int status;
        pid_t pid = OK(wait(&status));
        for (int k = 0; k < COUNT; k++)
            if (pids[k] == pid) {
                CHECK(!seen[k]);
                CHECK_EQ(WEXITSTATUS(status), k % 256);
                seen[k] = true;
            }
    }
    ERR(wait(NULL), ECHILD);
}

TEST(getrusage_children_counts_the_waited_for) {
    struct rusage before, after, one;
    OK(getrusage(RUSAGE_CHILDREN, &before));
    pid_t pid = FORK();
    if (pid == 0) {
        int64_t end = now_ns(CLOCK_PROCESS_CPUTIME_ID) + 60 * MS;
        while (now_ns(CLOCK_PROCESS_CPUTIME_ID) < end)
            ;
        _exit(0);
    }
    CHECK_EQ(OK(wait4(pid, NULL, 0, &one)), pid);
    OK(getrusage(RUSAGE_CHILDREN, &after));
    long used = (one.ru_utime.tv_sec + one.ru_stime.tv_sec) * 1000000 + one.ru_utime.tv_usec +
                one.ru_stime.tv_usec;
    CHECK(used >= 30000);
    CHECK(after.ru_utime.tv_sec * 1000000 + after.ru_utime.tv_usec + after.ru_stime.tv_usec +
              after.ru_stime.tv_sec * 1000000 >=
          before.ru_utime.tv_usec + 30000);
    ERR(getrusage(99, &after), EINVAL);
    ERR(syscall(SYS_getrusage, RUSAGE_SELF, BAD), EFAULT);
}

TEST(pidfd_polls_readable_at_exit) {
    GATE(go);
    pid_t pid = FORK();
    if (pid == 0) {
        gate_pass(&go);
        _exit(12);
    }
    int fd = (int)syscall(434 /* pidfd_open */, pid, 0);
    if (fd == -1 && errno == ENOSYS)
        SKIP("no pidfd_open");
    OK(fd);
    CHECK(OK(fcntl(fd, F_GETFD)) & FD_CLOEXEC);
    gate_open(&go);
    siginfo_t info;
    OK(waitid((idtype_t)3 /* P_PIDFD */, (id_t)fd, &info, WEXITED));
    CHECK_EQ(info.si_status, 12);
    ERR(syscall(424 /* pidfd_send_signal */, fd, SIGTERM, NULL, 0), ESRCH);
    ERR(syscall(434, -5, 0), EINVAL);
    ERR(syscall(434, pid, 0), ESRCH);
}

TEST(kill_addresses) {
    ERR(kill(0x3ffffff0, SIGTERM), ESRCH);
    ERR(kill(getpid(), 65), EINVAL);
    ERR(kill(getpid(), -1), EINVAL);
    ERR(kill(-0x3ffffff0, SIGTERM), ESRCH);
    OK(kill(getpid(), 0));
    OK(kill(0, 0));
    OK(kill(-getpgrp(), 0));
    ERR(kill(0x3ffffff0, 999), ESRCH); /* the process is looked for first */
}

TEST(kill_reaches_a_whole_group) {
    GATE(ready);
    pid_t pids[3];
    for (int i = 0; i < 3; i++) {
        pids[i] = FORK();
        if (pids[i] == 0) {
            setpgid(0, i == 0 ? 0 : pids[0]);
            gate_open_and_rest(&ready);
        }
        setpgid(pids[i], pids[0]);
    }
    for (int i = 0; i < 3; i++)
        gate_pass(&ready);
    OK(kill(-pids[0], SIGTERM));
    for (int i = 0; i < 3; i++)
        KILLED(pids[i], SIGTERM);
    ERR(kill(-pids[0], SIGTERM), ESRCH);
}

/* A parent that has always waited for its children at once may have something else to do for once:
 * the child runs all the same. */
TEST(a_child_runs_beside_a_parent_that_does_not_wait_for_once) {
    _Atomic int *told = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(told != MAP_FAILED);
    for (int round = 0; round < 5; round++) {
        for (int i = 0; i < 10; i++) {
            pid_t pid = FORK();
            if (pid == 0)
                _exit(0);
            EXITS(pid, 0);
        }
        *told = 0;
        pid_t pid = FORK();
        if (pid == 0) {
            *told = 1;
            _exit(0);
        }
        int64_t end = now_ns(CLOCK_MONOTONIC) + 20000000000;
        while (*told == 0)
            CHECK(now_ns(CLOCK_MONOTONIC) < end);
        EXITS(pid, 0);
    }
    munmap((void *)told, PAGE);
}

/* ---- ends that come together with other signals --------------------------------------------- */

static void on_nothing(int sig UNUSED) {}

TEST_TIMES(the_parent_of_a_vfork_is_killed_amid_other_signals, 3) {
    struct {
        volatile pid_t parent, child;
    } *told = SHARED(sizeof *told);
    for (int round = 0; round < 300; round++) {
        told->parent = told->child = 0;
        pid_t parent = FORK();
        if (parent == 0) {
            signal(SIGUSR1, on_nothing);
            told->parent = getpid();
            if (vfork() == 0) {
                told->child = (pid_t)syscall(SYS_getpid);
                for (;;)
                    pause();
            }
            _exit(1);
        }
        EVENTUALLY(told->child != 0);
        pid_t sender = FORK();
        if (sender == 0)
            for (;;)
                kill(parent, SIGUSR1);
        struct timespec t = {0, (round % 50) * 20000};
        nanosleep(&t, NULL);
        OK(kill(parent, SIGKILL));
        KILLED(parent, SIGKILL);
        end_by_kill(sender);
        OK(kill(told->child, SIGKILL));
    }
}
