/* Giving back the memory of a process that is ending: process_mrelease(2). A process that is ending
 * and does not get on is one that a tracer stops at its end. */
#define AREA "mrelease"
#include "trace.h"

#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif
#ifndef SYS_process_mrelease
#define SYS_process_mrelease 448
#endif

#define SIZE ((size_t)32 << 20)
#define AT_EXIT (SIGTRAP | PTRACE_EVENT_EXIT << 8)

static int pidfd_open(pid_t pid) { return OK((int)syscall(SYS_pidfd_open, pid, 0)); }
static long release(int pidfd, unsigned flags) {
    return syscall(SYS_process_mrelease, pidfd, flags);
}

static void needs_release(void) {
    if (release(-1, 0) == -1 && errno == ENOSYS) SKIP("no process_mrelease(2) here");
}

/* Pages of a process that are in memory. */
static long resident(pid_t pid) {
    char path[64], text[128];
    snprintf(path, sizeof path, "/proc/%d/statm", pid);
    CHECK(get_file(path, text, sizeof text) > 0);
    long pages = -1;
    CHECK_EQ(sscanf(text, "%*d %ld", &pages), 1);
    return pages;
}

static char *touched(int flags) {
    char *at = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, flags | MAP_ANONYMOUS, -1, 0);
    CHECK(at != MAP_FAILED);
    for (size_t i = 0; i < SIZE; i += PAGE) at[i] = 7;
    return at;
}

/* A child with much memory that ends and is stopped there. */
static pid_t stopped_at_its_end(int *pidfd, int exit_code) {
    GATE(ready);
    GATE(go);
    pid_t pid = FORK();
    if (pid == 0) {
        touched(MAP_PRIVATE);
        gate_open(&ready);
        gate_pass(&go);
        _exit(exit_code);
    }
    gate_pass(&ready);
    *pidfd = pidfd_open(pid);
    OK(T(PTRACE_SEIZE, pid, 0, PTRACE_O_TRACEEXIT));
    gate_open(&go);
    STOPS(pid, AT_EXIT);
    return pid;
}

TEST(memory_is_free_before_the_end) {
    needs_release();
    int pidfd;
    pid_t pid = stopped_at_its_end(&pidfd, 3);
    long before = resident(pid);
    CHECK(before >= (long)(SIZE / PAGE));
    OK(release(pidfd, 0));
    CHECK(resident(pid) < before - (long)(SIZE / PAGE) / 8 * 7);
    OK(release(pidfd, 0)); /* what was done already is no failure */
    OK(T(PTRACE_CONT, pid, 0, 0));
    EXITS(pid, 3);
    ERR(release(pidfd, 0), ESRCH);
    close(pidfd);
}

TEST(a_process_that_a_signal_ends) {
    needs_release();
    GATE(ready);
    pid_t pid = FORK();
    if (pid == 0) {
        touched(MAP_PRIVATE);
        gate_open_and_rest(&ready);
    }
    gate_pass(&ready);
    int pidfd = pidfd_open(pid);
    OK(T(PTRACE_SEIZE, pid, 0, PTRACE_O_TRACEEXIT));
    OK(kill(pid, SIGTERM));
    STOPS(pid, SIGTERM);
    OK(T(PTRACE_CONT, pid, 0, SIGTERM));
    STOPS(pid, AT_EXIT);
    OK(release(pidfd, 0));
    CHECK(resident(pid) < (long)(SIZE / PAGE) / 2);
    OK(T(PTRACE_CONT, pid, 0, 0));
    KILLED(pid, SIGTERM);
}

TEST(shared_memory_stays) {
    needs_release();
    char *shared = SHARED(4 * PAGE);
    GATE(go);
    pid_t pid = FORK();
    if (pid == 0) {
        strcpy(shared + PAGE, "of the child");
        gate_pass(&go);
        _exit(0);
    }
    int pidfd = pidfd_open(pid);
    OK(T(PTRACE_SEIZE, pid, 0, PTRACE_O_TRACEEXIT));
    gate_open(&go);
    STOPS(pid, AT_EXIT);
    strcpy(shared, "of the parent");
    OK(release(pidfd, 0));
    CHECK_STR(shared, "of the parent");
    CHECK_STR(shared + PAGE, "of the child");
    long word;
    OK(T(PTRACE_PEEKDATA, pid, shared, &word));
    CHECK(memcmp(&word, "of the p", 8) == 0);
    OK(T(PTRACE_CONT, pid, 0, 0));
    EXITS(pid, 0);
}

struct sharer {
    struct gate ready, go;
    int pidfds[2];
    char stack[65536];
};

static int shares(void *argument) {
    struct sharer *sharer = argument;
    gate_open(&sharer->ready);
    gate_pass(&sharer->go);
    return 0;
}

TEST(memory_that_a_living_process_shares_stays) {
    needs_release();
    struct sharer *sharer = SHARED(sizeof *sharer);
    pid_t *other = SHARED(PAGE);
    OK(pipe2(sharer->ready.fd, O_CLOEXEC));
    OK(pipe2(sharer->go.fd, O_CLOEXEC));
    GATE(made);
    pid_t pid = FORK();
    if (pid == 0) {
        touched(MAP_PRIVATE);
        char *top = sharer->stack + sizeof sharer->stack;
        *other = OK(clone(shares, top, CLONE_VM | CLONE_PARENT | SIGCHLD, sharer));
        gate_open_and_rest(&made);
    }
    gate_pass(&made);
    gate_pass(&sharer->ready);
    int pidfd = pidfd_open(*other);
    OK(T(PTRACE_SEIZE, *other, 0, PTRACE_O_TRACEEXIT));
    gate_open(&sharer->go);
    STOPS(*other, AT_EXIT);
    ERR(release(pidfd, 0), EINVAL);
    CHECK(resident(pid) >= (long)(SIZE / PAGE));
    end_by_kill(pid);
    OK(release(pidfd, 0));
    CHECK(resident(*other) < (long)(SIZE / PAGE) / 2);
    OK(T(PTRACE_CONT, *other, 0, 0));
    EXITS(*other, 0);
}

TEST(errors) {
    needs_release();
    GATE(ready);
    pid_t pid = FORK();
    if (pid == 0) gate_open_and_rest(&ready);
    gate_pass(&ready);
    int pidfd = pidfd_open(pid), null = OK(open("/dev/null", O_RDONLY | O_CLOEXEC));
    ERR(release(pidfd, 0), EINVAL); /* it does not end */
    ERR(release(pidfd, 1), EINVAL);
    ERR(release(-1, 1), EINVAL);
    ERR(release(-1, 0), EBADF);
    ERR(release(null, 0), EBADF);
    OK(kill(pid, SIGKILL));
    siginfo_t info;
    OK(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT));
    ERR(release(pidfd, 0), ESRCH); /* its memory is gone */
    KILLED(pid, SIGKILL);
    ERR(release(pidfd, 0), ESRCH);
}

/* Whoever ends meanwhile: a process has its memory, or none, or is gone. */
TEST(released_while_it_ends) {
    needs_release();
    for (int i = 0; i < 50; i++) {
        GATE(ready);
        pid_t pid = FORK();
        if (pid == 0) {
            touched(MAP_PRIVATE);
            gate_open_and_rest(&ready);
        }
        gate_pass(&ready);
        int pidfd = pidfd_open(pid);
        OK(kill(pid, SIGKILL));
        while (release(pidfd, 0) == 0) {}
        CHECK(errno == ESRCH || errno == EAGAIN);
        KILLED(pid, SIGKILL);
        close(pidfd);
        close(ready.fd[0]);
        close(ready.fd[1]);
    }
}
