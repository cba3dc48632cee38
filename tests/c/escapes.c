/*
 * Ways out of a user namespace that have worked somewhere once, each tried: what a process that is
 * the superuser inside and an ordinary user outside must not get from outside. The numbers of CVEs
 * are those of the faults in Linux, or in programs that run containers, by which the way was open.
 */
#define AREA "escapes"
/* Programs in supervisor mode could do all that a namespace is to keep them from. */
#define ONLY_IN_USER_MODE "in supervisor mode there is no user namespace"
#include "harness.h"
#include <grp.h>
#include <linux/kcmp.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/ipc.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>
#include <sys/xattr.h>

enum { USER = 1000, OTHER = 2000 };

static int setns_(int fd, int kind) { return (int)syscall(SYS_setns, fd, kind); }
static int pidfd_of(pid_t pid) { return (int)syscall(SYS_pidfd_open, pid, 0); }

/* The case's mounts are in a namespace of its own, with one at "m". */
static void needs_root(void) {
    if (geteuid() != 0)
        SKIP("not root");
    OK(chmod(".", 0777));
    OK(unshare(CLONE_NEWNS));
    OK(mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL));
    OK(mkdir("m", 0777));
    OK(chmod("m", 0777));
}

/* Writes a text into a file of a process at once; the error, or 0. */
static int put(pid_t pid, const char *file, const char *text) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/%s", pid, file);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd == -1)
        return errno;
    int error = write(fd, text, strlen(text)) == -1 ? errno : 0;
    close(fd);
    return error;
}

static void be(int number) {
    if (number)
        BECOME(number, number);
    OK(prctl(PR_SET_DUMPABLE, 1, 0, 0, 0));
}

/* Becomes the superuser of a user namespace, who is `number` outside, and of `more` namespaces. */
static void enter(int number, int more) {
    char map[32];
    be(number);
    OK(unshare(CLONE_NEWUSER | more));
    CHECK_EQ(put(getpid(), "setgroups", "deny"), 0);
    snprintf(map, sizeof map, "0 %d 1", number);
    CHECK_EQ(put(getpid(), "uid_map", map), 0);
    CHECK_EQ(put(getpid(), "gid_map", map), 0);
}

/* Who tries: in a child, with mounts of its own. */
#define INSIDE(...)                                                                                \
    IN_CHILD({                                                                                     \
        enter(USER, CLONE_NEWNS);                                                                  \
        __VA_ARGS__;                                                                               \
    })

/* A process outside of that user, which rests. */
static pid_t outer_process(int user) {
    GATE(ready);
    pid_t pid = FORK();
    if (pid == 0) {
        be(user);
        gate_open_and_rest(&ready);
    }
    gate_pass(&ready);
    return pid;
}

/* ---- numbers -------------------------------------------------------------------------------- */

TEST(numbers_of_others_are_not_taken) {
    needs_root();
    pid_t outer = outer_process(USER);
    IN_CHILD({
        be(USER);
        OK(unshare(CLONE_NEWUSER));
        CHECK_EQ(put(getpid(), "setgroups", "deny"), 0);
        CHECK_EQ(put(getpid(), "uid_map", "0 0 1"), EPERM);
        CHECK_EQ(put(getpid(), "uid_map", "0 1000 2"), EPERM);
        CHECK_EQ(put(getpid(), "uid_map", "0 1000 1\n1 0 1"), EPERM);
        CHECK_EQ(put(getpid(), "uid_map", "0 0 4294967295"), EPERM);
        CHECK_EQ(put(getpid(), "gid_map", "0 0 1"), EPERM);
        CHECK_EQ(put(getpid(), "projid_map", "0 4294967295 2"), EINVAL);
        CHECK_EQ(put(outer, "uid_map", "0 1000 1"), EPERM);
    });
    INSIDE({
        CHECK_EQ(put(getpid(), "uid_map", "0 0 1"), EPERM); /* a second time */
        ERR(setresuid(USER, USER, USER), EINVAL);
        ERR(setresuid(1, 1, 1), EINVAL);
        ERR(setgroups(0, NULL), EPERM);
    });
    end_by_kill(outer);
}

/* CVE-2014-8989: a group that a file denies is not left. */
TEST(a_denied_group_is_not_left) {
    needs_root();
    PUT_MODE("denied", "", 0604);
    OK(chown("denied", 0, OTHER));
    IN_CHILD({
        OK(setgroups(1, (gid_t[]){OTHER}));
        OK(setresgid(USER, USER, USER));
        OK(setresuid(USER, USER, USER));
        OK(prctl(PR_SET_DUMPABLE, 1, 0, 0, 0));
        ERR(open("denied", O_RDONLY), EACCES);
        OK(unshare(CLONE_NEWUSER));
        CHECK_EQ(put(getpid(), "gid_map", "0 1000 1"), EPERM);
        ERR(setgroups(0, NULL), EPERM);
        CHECK_EQ(put(getpid(), "setgroups", "deny"), 0);
        CHECK_EQ(put(getpid(), "gid_map", "0 1000 1"), 0);
        ERR(setgroups(0, NULL), EPERM);
        CHECK_EQ(put(getpid(), "setgroups", "allow"), EPERM);
        ERR(open("denied", O_RDONLY), EACCES);
        /* Nor in one further inside. */
        CHECK_EQ(put(getpid(), "uid_map", "0 1000 1"), 0);
        OK(unshare(CLONE_NEWUSER));
        ERR(setgroups(0, NULL), EPERM);
        CHECK_EQ(put(getpid(), "setgroups", "allow"), EPERM);
        ERR(open("denied", O_RDONLY), EACCES);
    });
}

/* CVE-2018-18955: in a namespace in another, a map of more than five lines. */
TEST(long_maps_in_each_other_reach_no_further) {
    needs_root();
    PUT_MODE("roots", "", 0600);
    GATE(made);
    GATE(mapped);
    pid_t child = FORK();
    if (child == 0) {
        be(USER);
        OK(unshare(CLONE_NEWUSER));
        gate_open(&made);
        gate_pass(&mapped);
        OK(setresgid(0, 0, 0));
        OK(setresuid(0, 0, 0));
        GATE(inner_made);
        GATE(inner_mapped);
        pid_t inner = FORK();
        if (inner == 0) {
            OK(prctl(PR_SET_DUMPABLE, 1, 0, 0, 0));
            OK(unshare(CLONE_NEWUSER));
            gate_open(&inner_made);
            gate_pass(&inner_mapped);
            struct stat st;
            OK(stat("roots", &st));
            CHECK_EQ(st.st_uid, 65534);
            ERR(open("roots", O_RDONLY), EACCES);
            ERR(chown("roots", 0, 0), EPERM);
            ERR(chmod("roots", 0666), EPERM);
            _exit(0);
        }
        gate_pass(&inner_made);
        const char *lines = "0 0 1\n1 1 1\n2 2 1\n3 3 1\n4 4 1\n5 5 995\n";
        CHECK_EQ(put(inner, "uid_map", lines), 0);
        CHECK_EQ(put(inner, "gid_map", lines), 0);
        gate_open(&inner_mapped);
        EXITS(inner, 0);
        _exit(0);
    }
    gate_pass(&made);
    CHECK_EQ(put(child, "uid_map", "0 100000 1000"), 0);
    CHECK_EQ(put(child, "gid_map", "0 100000 1000"), 0);
    gate_open(&mapped);
    EXITS(child, 0);
}

/* CVE-2013-1858: with directories shared, chroot(2) inside would be one outside. */
TEST(directories_are_not_shared_across) {
    needs_root();
    IN_CHILD({
        be(USER);
        ERR(syscall(SYS_clone, CLONE_NEWUSER | CLONE_FS | SIGCHLD, 0, NULL, NULL, 0), EINVAL);
        ERR(syscall(SYS_clone, CLONE_NEWUSER | CLONE_THREAD | CLONE_SIGHAND | CLONE_VM, 0, NULL,
                    NULL, 0), EINVAL);
    });
}

/* Who was shut in a directory makes no user namespace, in which chroot(2) would lead out. */
TEST(a_root_directory_is_not_left) {
    needs_root();
    OK(mkdir("jail", 0777));
    IN_CHILD({
        int outside = OK(open(".", O_RDONLY | O_DIRECTORY));
        OK(chroot("jail"));
        OK(chdir("/"));
        be(USER);
        ERR(unshare(CLONE_NEWUSER), EPERM);
        ERR(syscall(SYS_clone, CLONE_NEWUSER | SIGCHLD, 0, NULL, NULL, 0), EPERM);
        ERR(chroot("."), EPERM);
        OK(close(outside));
        OK(chdir("../../.."));
        ERR(access("m", F_OK), ENOENT);
    });
}

/* ---- processes ------------------------------------------------------------------------------ */

TEST(a_process_outside_is_not_looked_into) {
    needs_root();
    pid_t outer = outer_process(USER), roots = outer_process(0);
    INSIDE({
        static const char *const files[] = {"root",     "cwd",     "exe",     "fd/0",   "mem",
                                            "environ",  "ns/user", "ns/mnt",  "ns/pid", "ns/net",
                                            "ns/uts",   "ns/ipc",  "ns/cgroup", "auxv", "stack",
                                            "syscall",  "personality", "io"};
        const pid_t processes[] = {outer, roots, 1};
        for (int p = 0; p < 3; p++)
            for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
                char path[64];
                char byte;
                snprintf(path, sizeof path, "/proc/%d/%s", processes[p], files[i]);
                int fd = open(path, O_RDONLY);
                /* Some are opened by everybody, and are read by nobody. */
                if (fd == -1 && errno != EACCES && errno != EPERM && errno != ENOENT)
                    FAIL("%s: %s", path, strerror(errno));
                if (fd != -1) {
                    if (read(fd, &byte, 1) == 1)
                        FAIL("%s is read", path);
                    OK(close(fd));
                }
            }
    });
    end_by_kill(outer);
    end_by_kill(roots);
}

TEST(a_process_outside_is_not_traced) {
    needs_root();
    static char word[8] = "word";
    pid_t outer = outer_process(USER);
    INSIDE({
        char got[8] = "";
        struct iovec to = {got, 8};
        struct iovec from = {word, 8};
        ERR(ptrace(PTRACE_ATTACH, outer, NULL, NULL), EPERM);
        ERR(ptrace(PTRACE_SEIZE, outer, NULL, NULL), EPERM);
        ERR(process_vm_readv(outer, &to, 1, &from, 1, 0), EPERM);
        ERR(process_vm_writev(outer, &to, 1, &from, 1, 0), EPERM);
        ERR(syscall(SYS_kcmp, outer, getpid(), KCMP_FILE, 0, 0), EPERM);
        int pidfd = OK(pidfd_of(outer));
        ERR(syscall(SYS_pidfd_getfd, pidfd, 0, 0), EPERM);
        char none[16];
        ERR(syscall(SYS_get_robust_list, outer, none, none + 8), EPERM);
        CHECK_EQ(put(outer, "mem", "x"), EACCES);
    });
    end_by_kill(outer);
}

TEST(nobody_outside_is_signalled) {
    needs_root();
    pid_t outer = outer_process(OTHER), same = outer_process(USER);
    INSIDE({
        int pidfd = OK(pidfd_of(outer));
        ERR(kill(outer, SIGKILL), EPERM);
        ERR(kill(1, SIGTERM), EPERM);
        ERR(syscall(SYS_tkill, outer, SIGKILL), EPERM);
        ERR(sigqueue(outer, SIGKILL, (union sigval){0}), EPERM);
        ERR(syscall(SYS_pidfd_send_signal, pidfd, SIGKILL, NULL, 0), EPERM);
        /* A file's signals are sent with the rights of who asked for them. */
        int pair[2];
        OK(pipe(pair));
        OK(fcntl(pair[0], F_SETOWN, outer));
        OK(fcntl(pair[0], F_SETSIG, SIGKILL));
        OK(fcntl(pair[0], F_SETFL, O_ASYNC));
        CHECK_EQ(write(pair[1], "x", 1), 1);
    });
    IN_CHILD({ /* of whom one knows a number, but in another namespace */
        enter(USER, CLONE_NEWPID);
        pid_t init = FORK();
        if (init == 0) {
            ERR(kill(same, SIGKILL), ESRCH);
            ERR(kill(outer, SIGKILL), ESRCH);
            ERR(kill(-1, SIGKILL), ESRCH);
            CHECK_EQ(getppid(), 0);
            _exit(0);
        }
        EXITS(init, 0);
    });
    OK(kill(outer, 0));
    CHECK_EQ(waitpid(outer, NULL, WNOHANG), 0);
    CHECK_EQ(waitpid(same, NULL, WNOHANG), 0);
    end_by_kill(outer);
    end_by_kill(same);
}

TEST(nobody_outside_is_slowed_or_chosen_to_die) {
    needs_root();
    pid_t outer = outer_process(OTHER);
    INSIDE({
        struct rlimit limit = {0, 0};
        struct sched_param none = {0};
        struct sched_param first = {1};
        cpu_set_t set;
        CPU_ZERO(&set);
        CPU_SET(0, &set);
        ERR(syscall(SYS_prlimit64, outer, RLIMIT_NOFILE, &limit, NULL), EPERM);
        ERR(setpriority(PRIO_PROCESS, outer, 19), EPERM);
        ERR(syscall(SYS_sched_setscheduler, outer, SCHED_BATCH, &none), EPERM);
        ERR(sched_setaffinity(outer, sizeof set, &set), EPERM);
        ERR(syscall(SYS_ioprio_set, 1, outer, 3 << 13), EPERM);
        ERR(syscall(SYS_sched_setscheduler, 0, SCHED_FIFO, &first), EPERM);
        ERR(setpriority(PRIO_PROCESS, 0, -1), EACCES);
        CHECK_EQ(put(getpid(), "oom_score_adj", "-1000"), EACCES);
        CHECK_EQ(put(outer, "oom_score_adj", "1000"), EACCES);
    });
    end_by_kill(outer);
}

/* CVE-2012-0056: memory that was opened before a program with more rights is not that program's. */
HELPER(rest_as_root) {
    static volatile char word[8] = "secret";
    CHECK_EQ(geteuid(), 0);
    CHECK(word[0] == 's');
    CHECK_EQ(write(3, "x", 1), 1);
    for (;;)
        pause();
}
TEST(memory_of_a_program_before_is_not_that_of_one_with_rights) {
    needs_root();
    COPY(hy_self, "program", 0755);
    OK(chmod("program", 04755));
    int ready[2], told[2];
    OK(pipe(ready));
    OK(pipe(told));
    pid_t victim = FORK();
    if (victim == 0) {
        char byte;
        be(USER);
        CHECK_EQ(write(told[1], "x", 1), 1);
        CHECK_EQ(read(ready[0], &byte, 1), 1);
        OK(dup2(told[1], 3));
        execl("program", "program", "--helper", "rest_as_root", (char *)NULL);
        FAIL("execl: %s", strerror(errno));
    }
    IN_CHILD({
        be(USER);
        char byte;
        char path[64];
        CHECK_EQ(read(told[0], &byte, 1), 1);
        snprintf(path, sizeof path, "/proc/%d/mem", victim);
        int memory = OK(open(path, O_RDWR));
        CHECK_EQ(pread(memory, &byte, 1, (off_t)(uintptr_t)&hy_self), 1);
        CHECK_EQ(write(ready[1], "x", 1), 1);
        CHECK_EQ(read(told[0], &byte, 1), 1);
        CHECK_EQ(pread(memory, &byte, 1, (off_t)(uintptr_t)&hy_self), 0);
        CHECK_EQ(pwrite(memory, "x", 1, (off_t)(uintptr_t)&hy_self), 0);
        ERR(open(path, O_RDONLY), EACCES);
    });
    end_by_kill(victim);
}

/* CVE-2019-5736: the program of who enters from outside is not opened for writing. */
TEST(who_enters_lends_no_program) {
    needs_root();
    GATE(made);
    GATE(entered);
    struct shared { _Atomic pid_t pid; } *shared = SHARED(PAGE);
    pid_t inner = FORK();
    if (inner == 0) {
        char path[64];
        enter(USER, CLONE_NEWNS);
        gate_open(&made);
        gate_pass(&entered);
        static const char *const files[] = {"exe", "root", "cwd", "fd/0", "mem", "ns/user"};
        for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
            snprintf(path, sizeof path, "/proc/%d/%s", shared->pid, files[i]);
            ERR(open(path, O_WRONLY), EACCES);
            ERR(open(path, O_RDONLY), EACCES);
        }
        ERR(ptrace(PTRACE_SEIZE, shared->pid, NULL, NULL), EPERM);
        _exit(0);
    }
    gate_pass(&made);
    pid_t guest = FORK();
    if (guest == 0) {
        OK(setns_(OK(pidfd_of(inner)), CLONE_NEWUSER | CLONE_NEWNS));
        shared->pid = getpid();
        gate_open_and_rest(&entered);
    }
    EXITS(inner, 0);
    end_by_kill(guest);
}

/* ---- namespaces ----------------------------------------------------------------------------- */

TEST(outer_namespaces_are_not_entered) {
    needs_root();
    static const struct { const char *name; int kind; } all[] = {
        {"mnt", CLONE_NEWNS},  {"uts", CLONE_NEWUTS}, {"ipc", CLONE_NEWIPC},
        {"net", CLONE_NEWNET}, {"pid", CLONE_NEWPID}, {"cgroup", CLONE_NEWCGROUP}};
    enum { KINDS = sizeof all / sizeof *all };
    int held[KINDS];
    for (int i = 0; i < KINDS; i++) {
        char path[64];
        snprintf(path, sizeof path, "/proc/self/ns/%s", all[i].name);
        held[i] = OK(open(path, O_RDONLY));
    }
    int user = OK(open("/proc/self/ns/user", O_RDONLY)), pidfd = OK(pidfd_of(getpid()));
    IN_CHILD({
        int more = 0;
        for (int i = 0; i < KINDS; i++)
            more |= all[i].kind;
        enter(USER, more);
        ERR(setns_(user, CLONE_NEWUSER), EPERM);
        for (int i = 0; i < KINDS; i++) {
            ERR(setns_(held[i], all[i].kind), EPERM);
            ERR(setns_(pidfd, all[i].kind), EPERM);
            char name[64];
            snprintf(name, sizeof name, "/proc/self/fd/%d", held[i]);
            int again = OK(open(name, O_RDONLY));
            ERR(setns_(again, 0), EPERM);
            char place[64];
            snprintf(place, sizeof place, "m/%s", all[i].name);
            PUT(place, "");
            if (mount(name, place, NULL, MS_BIND, NULL) == 0)
                ERR(setns_(OK(open(place, O_RDONLY)), 0), EPERM);
        }
        ERR(setns_(pidfd, CLONE_NEWUSER | CLONE_NEWNS), EPERM);
    });
}

TEST(objects_of_the_outer_namespaces_stay) {
    needs_root();
    int segment = OK(shmget(IPC_PRIVATE, PAGE, IPC_CREAT | 0600));
    INSIDE({
        ERR(shmctl(segment, IPC_RMID, NULL), EPERM);
        ERR(shmat(segment, NULL, SHM_RDONLY), EACCES);
        ERR(sethostname("x", 1), EPERM);
        ERR(socket(AF_INET, SOCK_RAW, IPPROTO_ICMP), EPERM);
        ERR(socket(AF_PACKET, SOCK_RAW, 0), EPERM);
        int fd = OK(socket(AF_INET, SOCK_DGRAM, 0));
        struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(7)};
        int first = 0;
        char text[16];
        if (get_file("/proc/sys/net/ipv4/ip_unprivileged_port_start", text, sizeof text) > 0)
            first = atoi(text);
        if (first > 7)
            ERR(bind(fd, (struct sockaddr *)&address, sizeof address), EACCES);
        struct ifreq request = {.ifr_name = "lo"};
        ERR(ioctl(fd, SIOCSIFFLAGS, &request), EPERM);
        int mark = 1;
        ERR(setsockopt(fd, SOL_SOCKET, SO_MARK, &mark, sizeof mark), EPERM);
        OK(unshare(CLONE_NEWIPC));
        ERR(shmctl(segment, IPC_RMID, NULL), EINVAL);
    });
    OK(shmctl(segment, IPC_RMID, NULL));
}

/* ---- mounts --------------------------------------------------------------------------------- */

/* CVE-2014-4014 and others before: what a mount hides. */
static void hide(void) {
    OK(mount("none", "m", "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, "mode=777"));
    OK(mkdir("m/d", 0777));
    PUT("m/d/hidden", "");
    OK(mount("none", "m/d", "tmpfs", MS_RDONLY, "mode=777"));
}
static void sees_nothing(const char *path) {
    char inner[256];
    snprintf(inner, sizeof inner, "%s/hidden", path);
    ERR(access(inner, F_OK), ENOENT);
}

TEST(what_a_mount_hides_stays_hidden) {
    needs_root();
    hide();
    INSIDE({
        OK(mkdir("n", 0777));
        ERR(umount("m/d"), EINVAL);
        ERR(umount2("m/d", MNT_DETACH), EINVAL);
        ERR(mount("m/d", "n", NULL, MS_MOVE, NULL), EINVAL);
        ERR(mount("m", "n", NULL, MS_BIND, NULL), EINVAL);
        ERR(syscall(SYS_open_tree, AT_FDCWD, "m", 1), EINVAL);
        ERR(syscall(SYS_move_mount, AT_FDCWD, "m/d", AT_FDCWD, "n", 0), EINVAL);
        OK(mount("m", "n", NULL, MS_BIND | MS_REC, NULL));
        ERR(umount2("n/d", MNT_DETACH), EINVAL);
        sees_nothing("n/d");
        int fd = OK(open("n", O_PATH | O_DIRECTORY));
        OK(umount2("n", MNT_DETACH));
        ERR(openat(fd, "d/hidden", O_RDONLY), ENOENT);
        /* In one further inside, nor by what propagates. */
        OK(mount("none", "/", NULL, MS_REC | MS_SHARED, NULL));
        OK(unshare(CLONE_NEWUSER | CLONE_NEWNS));
        ERR(umount2("m/d", MNT_DETACH), EINVAL);
        sees_nothing("m/d");
    });
    CHECK_EQ(access("m/d/hidden", F_OK), -1);
}

/* CVE-2014-5206 and CVE-2014-5207: flags that protect are lost by a remount. */
TEST(protecting_flags_of_mounts_stay) {
    needs_root();
    hide();
    INSIDE({
        OK(mkdir("n", 0777));
        OK(mount("m/d", "n", NULL, MS_BIND, NULL));
        ERR(open("n/f", O_CREAT | O_WRONLY, 0600), EROFS);
        ERR(mount("none", "n", NULL, MS_REMOUNT | MS_BIND, NULL), EPERM);
        ERR(mount("none", "m/d", NULL, MS_REMOUNT, NULL), EPERM);
        ERR(mount("none", "m", NULL, MS_REMOUNT | MS_BIND | MS_NODEV | MS_NOEXEC, NULL), EPERM);
        ERR(mount("none", "m", NULL, MS_REMOUNT | MS_BIND | MS_NOSUID | MS_NOEXEC, NULL), EPERM);
        ERR(mount("none", "m", NULL, MS_REMOUNT | MS_BIND | MS_NOSUID | MS_NODEV, NULL), EPERM);
        for (uint64_t bit = 1; bit <= 8; bit <<= 1) {
            const uint64_t clear[4] = {0, bit, 0, 0};
            const char *path = bit == 1 ? "m/d" : "m";
            ERR(syscall(SYS_mount_setattr, AT_FDCWD, path, 0, clear, sizeof clear), EPERM);
        }
        ERR(open("m/d/f", O_CREAT | O_WRONLY, 0600), EROFS);
    });
}

/* CVE-2015-2925: a directory that was moved out of what is bound, and "..". */
TEST(a_directory_that_is_moved_away_leads_nowhere) {
    needs_root();
    OK(mkdir("a", 0777));
    OK(mkdir("a/b", 0777));
    OK(mkdir("a/b/c", 0777));
    PUT("secret", "");
    OK(chown("a", USER, USER));
    OK(chown("a/b", USER, USER));
    OK(chown("a/b/c", USER, USER));
    INSIDE({
        OK(mount("a/b", "m", NULL, MS_BIND, NULL));
        OK(chdir("m/c"));
        int fd = OK(open(".", O_RDONLY | O_DIRECTORY));
        char path[PATH_MAX + 16];
        char to[PATH_MAX + 16];
        snprintf(path, sizeof path, "%s/a/b/c", hy_tmp);
        snprintf(to, sizeof to, "%s/a/c", hy_tmp);
        OK(rename(path, to));
        ERR(access("../../secret", F_OK), ENOENT);
        ERR(access("../b", F_OK), ENOENT);
        ERR(openat(fd, "..", O_RDONLY), ENOENT);
        ERR(chdir(".."), ENOENT);
    });
}

/* CVE-2022-0185 began in the options of a file system that users may name. */
TEST(file_systems_of_the_machine_are_not_mounted) {
    needs_root();
    INSIDE({
        static const char *const types[] = {"ext4", "devtmpfs", "9p"};
        for (size_t i = 0; i < sizeof types / sizeof *types; i++)
            ERR2(mount("/dev/vda", "m", types[i], 0, NULL), EPERM, ENODEV);
        ERR(mount("none", "m", "proc", 0, NULL), EPERM);
        ERR(mount("none", "m", "sysfs", 0, NULL), EPERM);
        ERR(mount("none", "m", "mqueue", 0, NULL), EPERM);
        ERR(mount("none", "m", "cgroup2", 0, NULL), EPERM);
        int fd = OK(syscall(SYS_fsopen, "tmpfs", 0));
        char value[256];
        memset(value, 'x', sizeof value - 1);
        value[sizeof value - 1] = 0;
        for (int i = 0; i < 64; i++)
            syscall(SYS_fsconfig, fd, 1, "mpol", value, 0);
        for (int i = 0; i < 64; i++)
            syscall(SYS_fsconfig, fd, 1, "", value, 0);
        ERR(syscall(SYS_fsconfig, fd, 6, NULL, value, 0), EINVAL);
    });
}

/* ---- files ---------------------------------------------------------------------------------- */

TEST(an_inherited_file_gives_no_more_than_it_is) {
    needs_root();
    PUT_MODE("readable", "", 0644);
    OK(mkdir("closed", 0700));
    PUT_MODE("closed/secret", "", 0644);
    int file = OK(open("readable", O_RDONLY)), folder = OK(open("closed", O_PATH | O_DIRECTORY));
    INSIDE({
        char path[64];
        snprintf(path, sizeof path, "/proc/self/fd/%d", file);
        ERR(open(path, O_RDWR), EACCES);
        ERR(write(file, "x", 1), EBADF);
        ERR(fchmod(file, 0666), EPERM);
        ERR(fchown(file, 0, 0), EPERM);
        ERR(truncate(path, 0), EACCES);
        ERR(openat(folder, "secret", O_RDONLY), EACCES);
        ERR(openat(folder, ".", O_RDONLY), EACCES);
        ERR(fchdir(folder), EACCES);
        ERR(syscall(SYS_execveat, file, "", NULL, NULL, AT_EMPTY_PATH), EACCES);
    });
}

/* CVE-2014-4014: the bit that sets a group without a number inside. */
TEST(a_group_outside_is_not_set_by_files) {
    needs_root();
    PUT_MODE("program", "", 0755);
    OK(chown("program", USER, OTHER));
    OK(mkdir("shared", 02777));
    OK(chown("shared", USER, OTHER));
    OK(chmod("shared", 02777));
    INSIDE({
        struct stat st;
        OK(chmod("program", 02755));
        OK(stat("program", &st));
        CHECK_EQ(st.st_mode & 07777, 0755);
        PUT_MODE("shared/program", "", 0755);
        OK(chmod("shared/program", 02755));
        OK(stat("shared/program", &st));
        CHECK_EQ(st.st_mode & 07777, 0755);
        ERR(chown("program", 0, 1), EINVAL);
        ERR(chown("m", 0, 0), EPERM);
    });
}

HELPER(tell_user) { return geteuid() == USER ? 42 : geteuid() == 0 ? 44 : 43; }

/* Programs that set a user, in a mount of users, raise nobody outside. */
TEST(programs_in_mounts_of_users_raise_nobody) {
    needs_root();
    OK(mkdir("tmpfs", 0777));
    GATE(ready);
    GATE(go);
    pid_t child = FORK();
    if (child == 0) {
        enter(USER, CLONE_NEWNS);
        OK(mount("none", "m", "tmpfs", 0, "mode=755"));
        COPY(hy_self, "m/program", 0755);
        OK(chmod("m/program", 06755));
        const unsigned all[5] = {0x02000001u, ~0u, ~0u, ~0u, ~0u};
        COPY(hy_self, "m/capable", 0755);
        OK(setxattr("m/capable", "security.capability", all, sizeof all, 0));
        gate_open(&ready);
        gate_pass(&go);
        _exit(0);
    }
    gate_pass(&ready);
    static const char *const names[] = {"program", "capable"};
    for (int i = 0; i < 2; i++) {
        char path[PATH_MAX + 64], name[64];
        snprintf(path, sizeof path, "/proc/%d/root%s/m/%s", child, hy_tmp, names[i]);
        int fd = OK(open(path, O_PATH));
        snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
        pid_t user = FORK();
        if (user == 0) {
            BECOME(OTHER, OTHER);
            execl(name, name, "--helper", "tell_user", (char *)NULL);
            _exit(errno);
        }
        EXITS(user, 43);
    }
    gate_open(&go);
    EXITS(child, 0);
}

HELPER(tell_capability) {
    struct { unsigned version; int pid; } header = {0x20080522, 0};
    struct { unsigned effective, permitted, inheritable; } data[2];
    OK(syscall(SYS_capget, &header, data));
    return data[0].permitted | data[1].permitted ? 1 : 0;
}

/* CVE-2021-3493: capabilities that a file was given inside count nowhere else. */
TEST(capabilities_of_files_do_not_leave) {
    needs_root();
    COPY(hy_self, "program", 0755);
    OK(chown("program", USER, USER));
    COPY(hy_self, "roots", 0755);
    INSIDE({
        const unsigned all[5] = {0x02000001u, ~0u, ~0u, ~0u, ~0u};
        const unsigned forged[6] = {0x03000001u, ~0u, ~0u, ~0u, ~0u, 5};
        OK(setxattr("program", "security.capability", all, sizeof all, 0));
        ERR(setxattr("program", "security.capability", forged, sizeof forged, 0), EINVAL);
        ERR(setxattr("roots", "security.capability", all, sizeof all, 0), EPERM);
        ERR(setxattr("program", "trusted.name", "x", 1, 0), EPERM);
    });
    pid_t user = FORK();
    if (user == 0) {
        BECOME(USER, USER);
        execl("program", "program", "--helper", "tell_capability", (char *)NULL);
        _exit(errno);
    }
    EXITS(user, 0);
}

/* CVE-2023-0386 and CVE-2015-1328: a set-user-id file of a layer becomes one of the machine's. */
TEST(layers_of_users_make_no_programs_of_root) {
    needs_root();
    OK(mkdir("upper", 0777));
    OK(mkdir("work", 0777));
    OK(chown("upper", USER, USER));
    OK(chown("work", USER, USER));
    OK(mkdir("lower", 0755));
    COPY(hy_self, "lower/program", 0755);
    OK(chmod("lower/program", 04755));
    INSIDE({
        char options[3 * PATH_MAX + 64];
        snprintf(options, sizeof options, "lowerdir=%s/lower,upperdir=%s/upper,workdir=%s/work",
                 hy_tmp, hy_tmp, hy_tmp);
        if (mount("none", "m", "overlay", 0, options) == -1) {
            CHECK(errno == EPERM || errno == EINVAL || errno == ENODEV);
            _exit(0);
        }
        int fd = open("m/program", O_WRONLY | O_APPEND);
        CHECK_EQ(fd, -1);
        OK(utimensat(AT_FDCWD, "m/program", NULL, 0) == -1 ? 0 : 0);
    });
    struct stat st;
    if (stat("upper/program", &st) == 0)
        CHECK(st.st_uid != 0 || !(st.st_mode & 06000));
}

TEST(devices_are_neither_made_nor_opened) {
    needs_root();
    OK(mknod("roots", S_IFCHR | 0600, makedev(1, 1)));
    OK(mknod("disk", S_IFBLK | 0600, makedev(254, 0)));
    INSIDE({
        ERR(mknod("memory", S_IFCHR | 0666, makedev(1, 1)), EPERM);
        ERR(mknod("disk2", S_IFBLK | 0666, makedev(254, 0)), EPERM);
        ERR(open("roots", O_RDONLY), EACCES);
        ERR(open("disk", O_RDONLY), EACCES);
        OK(mount("none", "m", "tmpfs", 0, NULL));
        ERR(mknod("m/null", S_IFCHR | 0666, makedev(1, 3)), EPERM);
        ERR(mknod("m/disk", S_IFBLK | 0666, makedev(254, 0)), EPERM);
        /* One that is bound there is opened by its own rights alone. */
        PUT("m/target", "");
        OK(mount("roots", "m/target", NULL, MS_BIND, NULL));
        ERR(open("m/target", O_RDONLY), EACCES);
    });
}

/* A number of a file instead of a path goes past folders that are closed ("shocker"). */
TEST(files_are_not_opened_by_handles) {
    needs_root();
    INSIDE({
        struct { unsigned bytes; int type; unsigned char handle[8]; } handle = {8, 1, {2}};
        int fd = OK(open("/", O_RDONLY | O_DIRECTORY));
        ERR(syscall(SYS_open_by_handle_at, fd, &handle, O_RDONLY), EPERM);
    });
}

/* ---- the machine ---------------------------------------------------------------------------- */

TEST(settings_of_the_machine_are_not_written) {
    needs_root();
    static const char *const settings[] = {
        "sys/kernel/core_pattern", "sys/kernel/modprobe",    "sys/kernel/hotplug",
        "sys/kernel/threads-max",  "sys/kernel/printk",      "sys/kernel/sysrq",
        "sys/vm/drop_caches",      "sys/vm/overcommit_memory", "sys/fs/file-max",
        "sys/fs/suid_dumpable",    "sys/kernel/randomize_va_space", "sysrq-trigger"};
    IN_CHILD({
        enter(USER, CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWUTS);
        pid_t init = FORK();
        if (init == 0) {
            bool own = mount("none", "m", "proc", 0, NULL) == 0;
            for (int there = 0; there < (own ? 2 : 1); there++)
                for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
                    char path[64];
                    snprintf(path, sizeof path, "%s/%s", there ? "m" : "/proc", settings[i]);
                    if (access(path, F_OK) == 0 && open(path, O_WRONLY) != -1)
                        FAIL("%s is opened", path);
                }
            _exit(0);
        }
        EXITS(init, 0);
        struct { unsigned version; int pid; } header = {0x20080522, getppid()};
        unsigned none[6] = {0};
        ERR(syscall(SYS_capset, &header, none), EPERM);
    });
}

TEST(the_machine_is_not_ruled) {
    needs_root();
    INSIDE({
        struct timespec now = {0, 0};
        ERR(syscall(SYS_reboot, 0xfee1dead, 672274793, 0x1234567, NULL), EPERM);
        ERR(syscall(SYS_clock_settime, CLOCK_REALTIME, &now), EPERM);
        ERR(syscall(SYS_acct, NULL), EPERM);
        ERR2(syscall(SYS_swapon, "m", 0), EPERM, ENOSYS);
        ERR2(syscall(SYS_init_module, NULL, 0, ""), EPERM, ENOSYS);
        ERR2(syscall(SYS_finit_module, 0, "", 0), EPERM, ENOSYS);
        ERR2(syscall(SYS_kexec_load, 0, 0, NULL, 0), EPERM, ENOSYS);
        ERR2(syscall(SYS_iopl, 3), EPERM, ENOSYS);
        ERR2(syscall(SYS_ioperm, 0, 8, 1), EPERM, ENOSYS);
        ERR(syscall(SYS_syslog, 5, NULL, 0), EPERM);
        ERR(syscall(SYS_vhangup), EPERM);
        ERR2(syscall(SYS_quotactl, 0x800002 << 8, "/dev/vda", 0, NULL), EPERM, ENOSYS);
        uint64_t attributes[16] = {0};
        ERR2(syscall(SYS_bpf, 5, attributes, sizeof attributes), EPERM, EINVAL);
    });
}

/* CVE-2022-0492: the program that version 1 of control groups starts outside. */
TEST(control_groups_start_nothing_and_move_nobody) {
    needs_root();
    pid_t outer = outer_process(OTHER);
    IN_CHILD({
        enter(USER, CLONE_NEWNS | CLONE_NEWCGROUP);
        char path[64];
        if (mount("none", "m", "cgroup", 0, "memory") == 0) {
            int fd = open("m/release_agent", O_WRONLY);
            if (fd != -1)
                ERR(write(fd, "/x", 2), EPERM);
            OK(umount2("m", MNT_DETACH));
        }
        CHECK_EQ(mount("none", "m", "cgroup", 0, "none,name=escape,release_agent=/x"), -1);
        if (mount("none", "m", "cgroup2", 0, NULL) == -1)
            SKIP("cgroup2: %s", strerror(errno));
        ERR(access("m/release_agent", F_OK), ENOENT);
        if (mkdir("m/group", 0755) == 0) {
            int fd = OK(open("m/group/cgroup.procs", O_WRONLY));
            snprintf(path, sizeof path, "%d", outer);
            ERR2(write(fd, path, strlen(path)), EACCES, EPERM);
            OK(rmdir("m/group"));
        } else
            CHECK_EQ(errno, EACCES);
        int fd = open("m/cgroup.procs", O_WRONLY);
        if (fd != -1) {
            snprintf(path, sizeof path, "%d", outer);
            ERR2(write(fd, path, strlen(path)), EACCES, EPERM);
        } else
            CHECK_EQ(errno, EACCES);
        ERR(access("m/cgroup.kill", W_OK), access("m/cgroup.kill", F_OK) ? ENOENT : EACCES);
    });
    end_by_kill(outer);
}

/* ---- terminals and sockets ------------------------------------------------------------------ */

TEST(an_outer_terminal_is_not_typed_into) {
    needs_root();
    int master = OK(posix_openpt(O_RDWR | O_NOCTTY));
    OK(grantpt(master));
    OK(unlockpt(master));
    int slave = OK(open(ptsname(master), O_RDWR | O_NOCTTY));
    GATE(ready);
    pid_t outer = FORK();
    if (outer == 0) { /* whose terminal it is */
        OK(setsid());
        OK(ioctl(slave, TIOCSCTTY, 0));
        gate_open_and_rest(&ready);
    }
    gate_pass(&ready);
    INSIDE({
        ERR2(ioctl(slave, TIOCSTI, "x"), EPERM, EIO); /* EIO: dev.tty.legacy_tiocsti */
        OK(setsid());
        ERR(ioctl(slave, TIOCSCTTY, 1), EPERM);
        ERR(ioctl(slave, TIOCSCTTY, 0), EPERM);
        ERR2(ioctl(slave, TIOCSTI, "x"), EPERM, EIO);
        ERR2(ioctl(slave, TIOCCONS), EPERM, ENOTTY); /* ENOTTY: there is none */
        ERR(ioctl(slave, TIOCSPGRP, &(pid_t){getpid()}), ENOTTY);
    });
    int waiting = -1;
    OK(ioctl(slave, FIONREAD, &waiting));
    CHECK_EQ(waiting, 0);
    end_by_kill(outer);
}

TEST(credentials_of_messages_are_not_forged) {
    needs_root();
    int pair[2], on = 1;
    OK(socketpair(AF_UNIX, SOCK_DGRAM, 0, pair));
    OK(setsockopt(pair[0], SOL_SOCKET, SO_PASSCRED, &on, sizeof on));
    INSIDE({
        const struct ucred forged[] = {
            {1, 0, 0}, {getpid(), USER, 0}, {getpid(), 0, USER}, {getpid(), 1, 0}};
        for (size_t i = 0; i <= sizeof forged / sizeof *forged; i++) {
            struct ucred told = i < 4 ? forged[i] : (struct ucred){getpid(), 0, 0};
            union { char space[CMSG_SPACE(sizeof(struct ucred))]; struct cmsghdr head; } control;
            struct iovec text = {"x", 1};
            struct msghdr message = {.msg_iov = &text, .msg_iovlen = 1,
                                     .msg_control = &control, .msg_controllen = sizeof control};
            control.head.cmsg_level = SOL_SOCKET;
            control.head.cmsg_type = SCM_CREDENTIALS;
            control.head.cmsg_len = CMSG_LEN(sizeof told);
            memcpy(CMSG_DATA(&control.head), &told, sizeof told);
            if (i == 4) /* the own ones */
                CHECK_EQ(sendmsg(pair[1], &message, 0), 1);
            else if (i == 0) /* the number of a process is a right of its own (unix(7)) */
                ERR(sendmsg(pair[1], &message, 0), EPERM);
            else
                ERR2(sendmsg(pair[1], &message, 0), EPERM, EINVAL);
        }
    });
    char byte;
    union { char space[CMSG_SPACE(sizeof(struct ucred))]; struct cmsghdr head; } control;
    struct iovec text = {&byte, 1};
    struct msghdr message = {.msg_iov = &text, .msg_iovlen = 1,
                             .msg_control = &control, .msg_controllen = sizeof control};
    CHECK_EQ(recvmsg(pair[0], &message, MSG_DONTWAIT), 1);
    struct ucred told;
    memcpy(&told, CMSG_DATA(&control.head), sizeof told);
    CHECK(told.uid == USER && told.gid == USER);
    ERR(recvmsg(pair[0], &message, MSG_DONTWAIT), EAGAIN);
}

/* A filter that a program with more rights inherits would change what it does. */
TEST(filters_and_settings_reach_no_program_with_rights) {
    needs_root();
    COPY(hy_self, "program", 0755);
    OK(chmod("program", 04755));
    IN_CHILD({
        be(USER);
        struct { unsigned short code; unsigned char yes, no; unsigned value; } code[] = {
            {0x06, 0, 0, 0x7fff0000}};
        struct { unsigned short count; void *code; } filter = {1, code};
        ERR(syscall(SYS_seccomp, 1, 0, &filter), EACCES);
        OK(unshare(CLONE_NEWUSER));
        OK(syscall(SYS_seccomp, 1, 0, &filter));
        /* With the filter, root's program raises nobody. */
        pid_t child = FORK();
        if (child == 0) {
            execl("program", "program", "--helper", "tell_user", (char *)NULL);
            _exit(errno);
        }
        EXITS(child, 43);
    });
}
