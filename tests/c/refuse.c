/*
 * What system calls refuse, call by call: memory, processes, limits, timers, credentials, the
 * system. Calls of other families have such cases in their own areas (clock, adjtime, sched,
 * sigqueue).
 */
#define AREA "refuse"
#include "harness.h"
#include <sys/uio.h>

#define GONE 0x3ffffff0                            /* no process has this number */
#define ABOVE ((void *)0x800000000000)             /* above every program */
#define RW (PROT_READ | PROT_WRITE)
#ifndef AT_EMPTY_PATH
#define AT_EMPTY_PATH 0x1000
#endif
#define NONE ((unsigned)-1)

static void *pages(int count) {
    return OK(mmap(NULL, (size_t)count * PAGE, RW, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
}
static void needs_root(void) {
    if (geteuid() != 0) SKIP("needs root");
}

/* ---- memory ------------------------------------------------------------------------------------- */

TEST(mprotect_errors) {
    char *p = pages(1);
    ERR(syscall(SYS_mprotect, p + 1, PAGE, PROT_READ), EINVAL);
    ERR(syscall(SYS_mprotect, p, PAGE, 0x40), EINVAL);
    ERR(syscall(SYS_mprotect, p, PAGE, PROT_READ | PROT_GROWSDOWN | PROT_GROWSUP), EINVAL);
    ERR(syscall(SYS_mprotect, p, (size_t)-1, PROT_READ), ENOMEM);
    ERR(syscall(SYS_mprotect, BAD, PAGE, PROT_READ), ENOMEM);
    ERR(syscall(SYS_mprotect, ABOVE, PAGE, PROT_READ), ENOMEM);
    PUT("f", "x");
    int fd = OK(open("f", O_RDONLY));
    char *shared = OK(mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, 0));
    ERR(syscall(SYS_mprotect, shared, PAGE, RW), EACCES);
}

TEST(munmap_errors) {
    char *p = pages(1);
    ERR(munmap(p + 1, PAGE), EINVAL);
    ERR(munmap(p, 0), EINVAL);
    ERR(munmap(p, (size_t)-1), EINVAL);
    ERR(munmap((void *)(1ul << 62), PAGE), EINVAL);
}

TEST(mremap_errors) {
    char *p = pages(2);
    ERR(syscall(SYS_mremap, p + 1, PAGE, PAGE, 0, 0), EINVAL);
    ERR(syscall(SYS_mremap, p, PAGE, 0, 0, 0), EINVAL);
    ERR(syscall(SYS_mremap, p, PAGE, PAGE, 64, 0), EINVAL);
    ERR(syscall(SYS_mremap, p, PAGE, PAGE, MREMAP_FIXED, p), EINVAL);
    ERR(syscall(SYS_mremap, p, PAGE, PAGE, MREMAP_FIXED | MREMAP_MAYMOVE, p + 1), EINVAL);
    ERR(syscall(SYS_mremap, p, 2 * PAGE, PAGE, MREMAP_FIXED | MREMAP_MAYMOVE, p + PAGE), EINVAL);
    ERR(syscall(SYS_mremap, p, PAGE, 2 * PAGE, 0, 0), ENOMEM); /* no room, and it may not move */
    ERR(syscall(SYS_mremap, BAD, PAGE, 2 * PAGE, MREMAP_MAYMOVE, 0), EFAULT);
}

TEST(msync_errors) {
    char *p = pages(1);
    ERR(msync(p + 1, PAGE, MS_SYNC), EINVAL);
    ERR(msync(p, PAGE, 64), EINVAL);
    ERR(msync(p, PAGE, MS_SYNC | MS_ASYNC), EINVAL);
    ERR(msync(BAD, PAGE, MS_SYNC), ENOMEM);
    ERR(msync(p, (size_t)-PAGE, MS_SYNC), ENOMEM);
    OK(mlock(p, PAGE));
    ERR(msync(p, PAGE, MS_INVALIDATE), EBUSY);
}

TEST(mincore_errors) {
    unsigned char vector[4];
    char *p = pages(1);
    ERR(mincore(p + 1, PAGE, vector), EINVAL);
    ERR(mincore(BAD, PAGE, vector), ENOMEM);
    ERR(mincore(p, (size_t)-1, vector), ENOMEM);
    ERR(syscall(SYS_mincore, p, PAGE, BAD), EFAULT);
}

TEST(mlock_errors) {
    ERR(mlock(BAD, PAGE), ENOMEM);
    ERR(mlock((void *)-PAGE, 2 * PAGE), EINVAL);
    ERR(syscall(SYS_mlock2, pages(1), PAGE, 2), EINVAL);
    ERR(syscall(SYS_mlock2, BAD, PAGE, 0), ENOMEM);
    ERR(munlock(BAD, PAGE), ENOMEM);
    ERR(munlock((void *)-PAGE, 2 * PAGE), EINVAL);
    ERR(mlockall(0), EINVAL);
    ERR(mlockall(64), EINVAL);
    ERR(mlockall(4 /* MCL_ONFAULT */), EINVAL);
}

TEST(process_vm_errors) {
    char here[8] = "", there[8] = "there";
    struct iovec mine = {here, 8}, its = {there, 8}, bad = {BAD, 8}, huge = {here, (size_t)-1};
    pid_t own = getpid();
    ERR(syscall(SYS_process_vm_readv, own, &mine, 1, &its, 1, 1), EINVAL);
    ERR(syscall(SYS_process_vm_readv, own, &mine, 1025, &its, 1, 0), EINVAL);
    ERR(syscall(SYS_process_vm_readv, own, &mine, 1, &its, 1025, 0), EINVAL);
    ERR(syscall(SYS_process_vm_readv, own, &huge, 1, &its, 1, 0), EINVAL);
    ERR(syscall(SYS_process_vm_readv, own, BAD, 1, &its, 1, 0), EFAULT);
    ERR(syscall(SYS_process_vm_readv, own, &mine, 1, BAD, 1, 0), EFAULT);
    ERR(syscall(SYS_process_vm_readv, own, &mine, 1, &bad, 1, 0), EFAULT);
    ERR(syscall(SYS_process_vm_readv, own, &bad, 1, &its, 1, 0), EFAULT);
    ERR(syscall(SYS_process_vm_readv, GONE, &mine, 1, &its, 1, 0), ESRCH);
    ERR(syscall(SYS_process_vm_writev, own, &mine, 1, &its, 1, 1), EINVAL);
    ERR(syscall(SYS_process_vm_writev, own, &mine, 1, &bad, 1, 0), EFAULT);
    ERR(syscall(SYS_process_vm_writev, GONE, &mine, 1, &its, 1, 0), ESRCH);
    if (geteuid() == 0)
        IN_CHILD({
            BECOME(NOBODY, NOBODY);
            ERR(syscall(SYS_process_vm_readv, own, &mine, 1, &its, 1, 0), EPERM);
            ERR(syscall(SYS_process_vm_writev, own, &mine, 1, &its, 1, 0), EPERM);
        });
}

/* ---- processes ---------------------------------------------------------------------------------- */

TEST(execve_errors) {
    char *argv[] = {(char *)"x", NULL}, *envp[] = {NULL}, *bad[] = {BAD, NULL};
    PUT("plain", "text");
    PUT_MODE("unknown", "text", 0755);
    OK(symlink("loop", "loop"));
    char name[300];
    memset(name, 'n', sizeof name);
    name[sizeof name - 1] = 0;
    ERR(execve("none", argv, envp), ENOENT);
    ERR(execve("", argv, envp), ENOENT);
    ERR(execve("plain/x", argv, envp), ENOTDIR);
    ERR(execve("plain", argv, envp), EACCES);
    ERR(execve(".", argv, envp), EACCES);
    ERR(execve("unknown", argv, envp), ENOEXEC);
    ERR(execve("loop", argv, envp), ELOOP);
    ERR(execve(name, argv, envp), ENAMETOOLONG);
    ERR(syscall(SYS_execve, BAD, argv, envp), EFAULT);
    ERR(syscall(SYS_execve, hy_self, BAD, envp), EFAULT);
    ERR(syscall(SYS_execve, hy_self, bad, envp), EFAULT);
    ERR(syscall(SYS_execve, hy_self, argv, bad), EFAULT);
}

TEST(execveat_errors) {
    char *argv[] = {(char *)"x", NULL}, *envp[] = {NULL};
    int file = OK(open("/proc/self/exe", O_RDONLY)), here = OK(open(".", O_RDONLY));
    OK(symlink(hy_self, "link"));
    ERR(syscall(SYS_execveat, -1, "x", argv, envp, 0), EBADF);
    ERR(syscall(SYS_execveat, file, "x", argv, envp, 0), ENOTDIR);
    ERR(syscall(SYS_execveat, here, "none", argv, envp, 0), ENOENT);
    ERR(syscall(SYS_execveat, file, "", argv, envp, 0), ENOENT);
    ERR(syscall(SYS_execveat, here, "", argv, envp, AT_EMPTY_PATH), EACCES);
    ERR(syscall(SYS_execveat, here, "link", argv, envp, AT_SYMLINK_NOFOLLOW), ELOOP);
    ERR(syscall(SYS_execveat, here, "link", argv, envp, 1), EINVAL);
    ERR(syscall(SYS_execveat, here, BAD, argv, envp, 0), EFAULT);
}

TEST(wait4_errors) {
    int status;
    ERR(syscall(SYS_wait4, -1, &status, 0, NULL), ECHILD);
    ERR(syscall(SYS_wait4, GONE, &status, 0, NULL), ECHILD);
    ERR(syscall(SYS_wait4, getppid(), &status, 0, NULL), ECHILD); /* no child of ours */
    ERR(syscall(SYS_wait4, -1, &status, 0x100, NULL), EINVAL);
    ERR(syscall(SYS_wait4, INT_MIN, &status, 0, NULL), ESRCH);
    pid_t pid = FORK();
    if (pid == 0) _exit(0);
    ERR(syscall(SYS_wait4, pid, &status, 0, BAD), EFAULT); /* yet it is waited for */
    ERR(syscall(SYS_wait4, pid, &status, 0, NULL), ECHILD);
}

TEST(waitid_errors) {
    siginfo_t info;
    ERR(syscall(SYS_waitid, P_ALL, 0, &info, WEXITED, NULL), ECHILD);
    ERR(syscall(SYS_waitid, P_ALL, 0, &info, 0, NULL), EINVAL);
    ERR(syscall(SYS_waitid, P_ALL, 0, &info, WEXITED | 0x100, NULL), EINVAL);
    ERR(syscall(SYS_waitid, 77, 0, &info, WEXITED, NULL), EINVAL);
    ERR(syscall(SYS_waitid, P_PID, 0, &info, WEXITED, NULL), EINVAL);
    ERR(syscall(SYS_waitid, P_PGID, -1, &info, WEXITED, NULL), EINVAL);
    ERR(syscall(SYS_waitid, 3 /* P_PIDFD */, -1, &info, WEXITED, NULL), EINVAL);
    ERR(syscall(SYS_waitid, 3, 0x7ffff, &info, WEXITED, NULL), EBADF);
    pid_t pid = FORK();
    if (pid == 0) _exit(0);
    ERR(syscall(SYS_waitid, P_PID, pid, BAD, WEXITED, NULL), EFAULT);
}

TEST(process_group_errors) {
    ERR(syscall(SYS_getpgid, GONE), ESRCH);
    ERR(syscall(SYS_getpgid, -1), ESRCH);
    ERR(syscall(SYS_getsid, GONE), ESRCH);
    ERR(syscall(SYS_getsid, -1), ESRCH);
    ERR(syscall(SYS_setpgid, 0, -1), EINVAL);
    ERR(syscall(SYS_setpgid, -1, 0), EINVAL); /* the group would be -1 */
    ERR(syscall(SYS_setpgid, GONE, 0), ESRCH);
    ERR(syscall(SYS_setpgid, getppid(), 0), ESRCH); /* neither ourselves nor a child */
    ERR(syscall(SYS_setpgid, 0, GONE), EPERM);
    ERR(syscall(SYS_setsid), EPERM); /* the leader of a group */
}

TEST(getrlimit_errors) {
    struct rlimit limit;
    ERR(syscall(SYS_getrlimit, 16, &limit), EINVAL);
    ERR(syscall(SYS_getrlimit, -1, &limit), EINVAL);
    ERR(syscall(SYS_getrlimit, RLIMIT_NOFILE, BAD), EFAULT);
}

TEST(setrlimit_errors) {
    struct rlimit limit, crossed = {2, 1};
    OK(getrlimit(RLIMIT_CORE, &limit));
    ERR(syscall(SYS_setrlimit, 16, &limit), EINVAL);
    ERR(syscall(SYS_setrlimit, RLIMIT_CORE, &crossed), EINVAL);
    ERR(syscall(SYS_setrlimit, RLIMIT_CORE, BAD), EFAULT);
    if (geteuid() == 0)
        IN_CHILD({
            struct rlimit one = {1, 1}, two = {1, 2};
            BECOME(NOBODY, NOBODY);
            OK(setrlimit(RLIMIT_CORE, &one));
            ERR(syscall(SYS_setrlimit, RLIMIT_CORE, &two), EPERM);
        });
}

TEST(prlimit64_errors) {
    uint64_t limit[2], crossed[2] = {2, 1};
    ERR(syscall(SYS_prlimit64, 0, 16, NULL, limit), EINVAL);
    ERR(syscall(SYS_prlimit64, 0, RLIMIT_CORE, crossed, NULL), EINVAL);
    ERR(syscall(SYS_prlimit64, 0, RLIMIT_CORE, BAD, NULL), EFAULT);
    ERR(syscall(SYS_prlimit64, 0, RLIMIT_CORE, NULL, BAD), EFAULT);
    ERR(syscall(SYS_prlimit64, GONE, RLIMIT_CORE, NULL, limit), ESRCH);
    ERR(syscall(SYS_prlimit64, -1, RLIMIT_CORE, NULL, limit), ESRCH);
    if (geteuid() == 0)
        IN_CHILD(BECOME(NOBODY, NOBODY);
                 ERR(syscall(SYS_prlimit64, 1, RLIMIT_CORE, NULL, limit), EPERM);
                 ERR(syscall(SYS_prlimit64, 1, 16, NULL, limit), EPERM)); /* before the resource */
}

TEST(getrusage_errors) {
    struct rusage usage;
    ERR(syscall(SYS_getrusage, 2, &usage), EINVAL);
    ERR(syscall(SYS_getrusage, -2, &usage), EINVAL);
    ERR(syscall(SYS_getrusage, RUSAGE_SELF, BAD), EFAULT);
    ERR(syscall(SYS_times, BAD), EFAULT);
}

/* ---- timers ------------------------------------------------------------------------------------- */

TEST(interval_timer_errors) {
    struct itimerval t = {{0, 0}, {0, 0}}, bad = {{0, 0}, {0, 1000000}}, negative = {{-1, 0}, {0, 0}};
    ERR(syscall(SYS_getitimer, 3, &t), EINVAL);
    ERR(syscall(SYS_getitimer, -1, &t), EINVAL);
    ERR(syscall(SYS_getitimer, ITIMER_REAL, BAD), EFAULT);
    ERR(syscall(SYS_setitimer, 3, &t, NULL), EINVAL);
    ERR(syscall(SYS_setitimer, ITIMER_REAL, &bad, NULL), EINVAL);
    ERR(syscall(SYS_setitimer, ITIMER_REAL, &negative, NULL), EINVAL);
    ERR(syscall(SYS_setitimer, ITIMER_REAL, BAD, NULL), EFAULT);
    ERR(syscall(SYS_setitimer, ITIMER_REAL, &t, BAD), EFAULT);
}

TEST(timer_errors) {
    struct itimerspec t = {{0, 0}, {0, 0}}, bad = {{0, 0}, {0, 1000000000}}, negative = {{-1, 0}, {0, 0}};
    int id;
    OK(syscall(SYS_timer_create, CLOCK_MONOTONIC, NULL, &id));
    ERR(syscall(SYS_timer_settime, id, 0, NULL, NULL), EINVAL);
    ERR(syscall(SYS_timer_settime, id, 0, BAD, NULL), EFAULT);
    ERR(syscall(SYS_timer_settime, id, 0, &bad, NULL), EINVAL);
    ERR(syscall(SYS_timer_settime, id, 0, &negative, NULL), EINVAL);
    ERR(syscall(SYS_timer_settime, id, 0, &t, BAD), EFAULT);
    ERR(syscall(SYS_timer_settime, -1, 0, &t, NULL), EINVAL);
    ERR(syscall(SYS_timer_settime, id + 999, 0, &t, NULL), EINVAL);
    ERR(syscall(SYS_timer_gettime, id + 999, &t), EINVAL);
    ERR(syscall(SYS_timer_gettime, id, BAD), EFAULT);
    ERR(syscall(SYS_timer_getoverrun, id + 999), EINVAL);
    OK(syscall(SYS_timer_delete, id));
    ERR(syscall(SYS_timer_delete, id), EINVAL);
}

/* ---- robust lists --------------------------------------------------------------------------------- */

TEST(robust_list_errors) {
    void *head;
    size_t size;
    ERR(syscall(SYS_set_robust_list, NULL, 23), EINVAL);
    ERR(syscall(SYS_get_robust_list, GONE, &head, &size), ESRCH);
    ERR(syscall(SYS_get_robust_list, 0, BAD, &size), EFAULT);
    ERR(syscall(SYS_get_robust_list, 0, &head, BAD), EFAULT);
    if (geteuid() == 0)
        IN_CHILD(BECOME(NOBODY, NOBODY);
                 ERR(syscall(SYS_get_robust_list, getppid(), &head, &size), EPERM));
}

/* ---- credentials ---------------------------------------------------------------------------------- */

TEST(user_id_errors) {
    unsigned id;
    ERR(syscall(SYS_setuid, NONE), EINVAL);
    ERR(syscall(SYS_getresuid, BAD, &id, &id), EFAULT);
    ERR(syscall(SYS_getresuid, &id, BAD, &id), EFAULT);
    ERR(syscall(SYS_getresuid, &id, &id, BAD), EFAULT);
    needs_root();
    BECOME(NOBODY, NOBODY);
    ERR(syscall(SYS_setuid, 0), EPERM);
    ERR(syscall(SYS_setreuid, 0, NONE), EPERM);
    ERR(syscall(SYS_setreuid, NONE, 0), EPERM);
    ERR(syscall(SYS_setresuid, 0, NONE, NONE), EPERM);
    ERR(syscall(SYS_setresuid, NONE, 0, NONE), EPERM);
    ERR(syscall(SYS_setresuid, NONE, NONE, 0), EPERM);
}

TEST(group_id_errors) {
    unsigned id;
    ERR(syscall(SYS_setgid, NONE), EINVAL);
    ERR(syscall(SYS_getresgid, BAD, &id, &id), EFAULT);
    ERR(syscall(SYS_getresgid, &id, BAD, &id), EFAULT);
    ERR(syscall(SYS_getresgid, &id, &id, BAD), EFAULT);
    needs_root();
    BECOME(NOBODY, NOBODY);
    ERR(syscall(SYS_setgid, 0), EPERM);
    ERR(syscall(SYS_setregid, 0, NONE), EPERM);
    ERR(syscall(SYS_setregid, NONE, 0), EPERM);
    ERR(syscall(SYS_setresgid, 0, NONE, NONE), EPERM);
    ERR(syscall(SYS_setresgid, NONE, 0, NONE), EPERM);
    ERR(syscall(SYS_setresgid, NONE, NONE, 0), EPERM);
}

TEST(supplementary_group_errors) {
    unsigned list[4] = {1, 2, 3, 4};
    ERR(syscall(SYS_getgroups, -1, list), EINVAL);
    needs_root();
    OK(syscall(SYS_setgroups, 4, list));
    ERR(syscall(SYS_getgroups, 3, list), EINVAL); /* does not fit */
    ERR(syscall(SYS_getgroups, 4, BAD), EFAULT);
    ERR(syscall(SYS_setgroups, -1, list), EINVAL);
    ERR(syscall(SYS_setgroups, 65537, list), EINVAL);
    ERR(syscall(SYS_setgroups, 4, BAD), EFAULT);
    BECOME(NOBODY, NOBODY);
    ERR(syscall(SYS_setgroups, 0, NULL), EPERM);
}

struct cap_header {
    uint32_t version;
    int pid;
};
#define CAPS 0x20080522

TEST(capability_errors) {
    struct cap_header header = {CAPS, 0};
    uint32_t data[6];
    ERR(syscall(SYS_capget, BAD, data), EFAULT);
    ERR(syscall(SYS_capget, &header, BAD), EFAULT);
    header.version = 1;
    ERR(syscall(SYS_capget, &header, data), EINVAL);
    CHECK_EQ(header.version, CAPS); /* the version that there is */
    header.version = 1;
    OK(syscall(SYS_capget, &header, NULL)); /* only asking for it */
    header = (struct cap_header){CAPS, -1};
    ERR(syscall(SYS_capget, &header, data), EINVAL);
    OK(syscall(SYS_capget, &header, NULL));
    header.pid = GONE;
    ERR(syscall(SYS_capget, &header, data), ESRCH);
    header.pid = 0;
    OK(syscall(SYS_capget, &header, data));
    ERR(syscall(SYS_capset, BAD, data), EFAULT);
    ERR(syscall(SYS_capset, &header, BAD), EFAULT);
    header.pid = getppid();
    ERR(syscall(SYS_capset, &header, data), EPERM); /* itself only */
    header = (struct cap_header){1, 0};
    ERR(syscall(SYS_capset, &header, data), EINVAL);
    header = (struct cap_header){CAPS, 0};
    uint32_t none[6] = {0}, effective[6] = {1};
    OK(syscall(SYS_capset, &header, none));
    ERR(syscall(SYS_capset, &header, effective), EPERM); /* more than is permitted */
}

/* ---- the system ----------------------------------------------------------------------------------- */

TEST(system_errors) {
    char buffer[64];
    ERR(syscall(SYS_uname, BAD), EFAULT);
    ERR(syscall(SYS_sysinfo, BAD), EFAULT);
    ERR(syscall(SYS_getrandom, BAD, 8, 0), EFAULT);
    ERR(syscall(SYS_getrandom, buffer, 8, 8), EINVAL);
    ERR(syscall(SYS_getrandom, buffer, 8, 6), EINVAL); /* random and insecure */
}

TEST(name_errors) {
    needs_root();
    if (syscall(SYS_sethostname, "", 65) == -1 && errno == EPERM) SKIP("needs CAP_SYS_ADMIN");
    ERR(syscall(SYS_sethostname, "x", -1), EINVAL);
    ERR(syscall(SYS_sethostname, "x", 65), EINVAL);
    ERR(syscall(SYS_sethostname, BAD, 1), EFAULT);
    ERR(syscall(SYS_setdomainname, "x", -1), EINVAL);
    ERR(syscall(SYS_setdomainname, "x", 65), EINVAL);
    ERR(syscall(SYS_setdomainname, BAD, 1), EFAULT);
    BECOME(NOBODY, NOBODY);
    ERR(syscall(SYS_sethostname, "x", 1), EPERM);
    ERR(syscall(SYS_setdomainname, "x", 1), EPERM);
}
