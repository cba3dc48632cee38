/* Namespaces (namespaces(7)): UTS and IPC, their files, setns(2), unshare(2), clone(2). */
#define AREA "namespace"
#include "harness.h"
#include <linux/nsfs.h>
#include <linux/sched.h>
#include <mqueue.h>
#include <sys/ioctl.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/prctl.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/utsname.h>

static int setns_(int fd, int kind) { return (int)syscall(SYS_setns, fd, kind); }
static int pidfd_of(pid_t pid) { return (int)syscall(SYS_pidfd_open, pid, 0); }

/* The key of the case's objects: others look for theirs in the same namespace meanwhile. */
static int key;

static void needs_root(void) {
    if (geteuid() != 0)
        SKIP("not root");
    key = 0x4e000000 | getpid();
}

/* The link of a namespace, as "uts:[4026531838]". */
static const char *link_of(pid_t pid, const char *name) {
    static char text[4][64];
    static int next;
    char path[64], *to = text[next++ % 4];
    if (pid == 0)
        snprintf(path, sizeof path, "/proc/self/ns/%s", name);
    else
        snprintf(path, sizeof path, "/proc/%d/ns/%s", pid, name);
    ssize_t length = OK(readlink(path, to, 63));
    to[length] = 0;
    return to;
}

static int open_of(pid_t pid, const char *name) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/ns/%s", pid, name);
    return OK(open(path, O_RDONLY | O_CLOEXEC));
}

static const char *host(void) {
    static struct utsname names;
    OK(uname(&names));
    return names.nodename;
}

static const char *domain(void) {
    static struct utsname names;
    OK(uname(&names));
    return names.domainname;
}

/* Writes a setting of the namespace; it goes with it. */
static void set(const char *path, const char *text) {
    int fd = OK(open(path, O_WRONLY | O_CLOEXEC));
    CHECK_EQ(OK(write(fd, text, strlen(text))), strlen(text));
    OK(close(fd));
}

static void set_host(const char *name) { OK(sethostname(name, strlen(name))); }

/* A child that does `make` and then only is there. */
static pid_t child_with(void (*make)(void)) {
    GATE(ready);
    pid_t child = FORK();
    if (child == 0) {
        make();
        gate_open_and_rest(&ready);
    }
    gate_pass(&ready);
    return child;
}

static void named_inner(void) {
    OK(unshare(CLONE_NEWUTS));
    set_host("inner");
}

TEST(names_are_set_inside_only) {
    needs_root();
    char before[65], text[80];
    snprintf(before, sizeof before, "%s", host());
    GATE(ready);
    GATE(go);
    pid_t child = FORK();
    if (child == 0) {
        OK(unshare(CLONE_NEWUTS));
        CHECK_STR(host(), before); /* it begins with those of its maker */
        set_host("inner");
        OK(setdomainname("inner.domain", 12));
        CHECK_STR(host(), "inner");
        CHECK(get_file("/proc/sys/kernel/hostname", text, sizeof text) > 0);
        CHECK_STR(text, "inner\n");
        CHECK(get_file("/proc/sys/kernel/domainname", text, sizeof text) > 0);
        CHECK_STR(text, "inner.domain\n");
        set("/proc/sys/kernel/hostname", "written\n");
        CHECK_STR(host(), "written");
        gate_open(&ready);
        gate_pass(&go);
        CHECK_STR(host(), "written");
        _exit(0);
    }
    gate_pass(&ready);
    CHECK_STR(host(), before);
    CHECK(strcmp(domain(), "inner.domain") != 0);
    IN_CHILD({
        OK(unshare(CLONE_NEWUTS));
        set_host("another");
    });
    gate_open(&go);
    EXITS(child, 0);
    CHECK_STR(host(), before);
}

static void *parts(void *unused UNUSED) {
    OK(unshare(CLONE_NEWUTS));
    set_host("of a thread");
    CHECK_STR(host(), "of a thread");
    char text[64];
    ssize_t length = OK(readlink("/proc/thread-self/ns/uts", text, 63));
    text[length] = 0;
    CHECK(strcmp(text, link_of(0, "uts")) != 0);
    return NULL;
}

TEST(a_thread_has_namespaces_of_its_own) {
    needs_root();
    char before[65];
    snprintf(before, sizeof before, "%s", host());
    pthread_t thread;
    ZERO(pthread_create(&thread, NULL, parts, NULL));
    ZERO(pthread_join(thread, NULL));
    CHECK_STR(host(), before);
}

HELPER(sees_host) {
    CHECK_EQ(argc, 2);
    CHECK_STR(host(), argv[1]);
    return 0;
}

static void *child_of_thread(void *unused UNUSED) {
    IN_CHILD(CHECK_STR(host(), "inherited"));
    return NULL;
}

TEST(children_threads_and_programs_inherit) {
    needs_root();
    OK(unshare(CLONE_NEWUTS | CLONE_NEWIPC));
    set_host("inherited");
    char own[64];
    snprintf(own, sizeof own, "%s", link_of(0, "ipc"));
    IN_CHILD({
        CHECK_STR(host(), "inherited");
        CHECK_STR(link_of(0, "ipc"), own);
        IN_CHILD(CHECK_STR(host(), "inherited"));
    });
    pthread_t thread;
    ZERO(pthread_create(&thread, NULL, child_of_thread, NULL));
    ZERO(pthread_join(thread, NULL));
    for (int i = 0; i < 5; i++) {
        /* Also where starts of a program are remembered. */
        pid_t child = vfork();
        CHECK(child != -1);
        if (child == 0) {
            execl(hy_self, hy_self, "--helper", "sees_host", i < 4 ? "inherited" : "later", NULL);
            _exit(9);
        }
        EXITS(child, 0);
        if (i == 3)
            set_host("later");
    }
}

static long clone_(unsigned long flags) {
    return syscall(SYS_clone, flags, 0, NULL, NULL, 0);
}

static long clone3_(uint64_t flags, uint64_t exit_signal) {
    struct clone_args args = {.flags = flags, .exit_signal = exit_signal};
    return syscall(SYS_clone3, &args, sizeof args);
}

TEST(clone_makes_namespaces) {
    needs_root();
    char before[65], uts[64], ipc[64];
    snprintf(before, sizeof before, "%s", host());
    snprintf(uts, sizeof uts, "%s", link_of(0, "uts"));
    snprintf(ipc, sizeof ipc, "%s", link_of(0, "ipc"));
    for (int i = 0; i < 2; i++) {
        long child = i == 0 ? clone_(CLONE_NEWUTS | SIGCHLD) : clone3_(CLONE_NEWUTS, SIGCHLD);
        OK(child);
        if (child == 0) {
            CHECK_STR(host(), before);
            set_host("cloned");
            CHECK(strcmp(link_of(0, "uts"), uts) != 0);
            CHECK_STR(link_of(0, "ipc"), ipc);
            _exit(0);
        }
        EXITS((pid_t)child, 0);
        CHECK_STR(host(), before);
        CHECK_STR(link_of(0, "uts"), uts);
    }
    long child = OK(clone_(CLONE_NEWUTS | CLONE_NEWIPC | SIGCHLD));
    if (child == 0) {
        CHECK(strcmp(link_of(0, "uts"), uts) != 0);
        CHECK(strcmp(link_of(0, "ipc"), ipc) != 0);
        _exit(0);
    }
    EXITS((pid_t)child, 0);
    ERR(clone_(CLONE_NEWIPC | CLONE_SYSVSEM | SIGCHLD), EINVAL);
}

TEST(files_are_the_namespaces) {
    needs_root();
    pid_t child = child_with(named_inner);
    char own[64], path[64];
    snprintf(own, sizeof own, "%s", link_of(0, "uts"));
    CHECK(strcmp(link_of(child, "uts"), own) != 0);
    CHECK_STR(link_of(child, "ipc"), link_of(0, "ipc"));
    unsigned long number;
    CHECK_EQ(sscanf(link_of(child, "uts"), "uts:[%lu]", &number), 1);
    struct stat opened, named, first;
    int fd = open_of(child, "uts");
    OK(fstat(fd, &opened));
    snprintf(path, sizeof path, "/proc/%d/ns/uts", child);
    OK(stat(path, &named));
    OK(stat("/proc/self/ns/uts", &first));
    CHECK_EQ(opened.st_ino, number);
    CHECK_EQ(named.st_ino, number);
    CHECK_EQ(named.st_dev, first.st_dev);
    CHECK(first.st_ino != number);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    ssize_t length = OK(readlink(path, own, sizeof own - 1));
    own[length] = 0;
    CHECK_STR(own, link_of(child, "uts"));
    end_by_kill(child);
}

TEST(a_zombie_has_left_its_namespaces) {
    needs_root();
    pid_t child = FORK();
    if (child == 0) {
        OK(unshare(CLONE_NEWUTS));
        _exit(0);
    }
    siginfo_t info;
    OK(waitid(P_PID, child, &info, WEXITED | WNOWAIT));
    char path[64], text[64];
    snprintf(path, sizeof path, "/proc/%d/ns/uts", child);
    ERR(readlink(path, text, sizeof text), ENOENT);
    ERR(open(path, O_RDONLY), ENOENT);
    int pidfd = OK(pidfd_of(child));
    ERR(setns_(pidfd, CLONE_NEWUTS), ESRCH);
    EXITS(child, 0);
    ERR(setns_(pidfd, CLONE_NEWUTS), ESRCH);
}

TEST(setns_enters_by_a_file) {
    needs_root();
    pid_t child = child_with(named_inner);
    int own = open_of(getpid(), "uts"), fd = open_of(child, "uts");
    char before[65];
    snprintf(before, sizeof before, "%s", host());
    ERR(setns_(fd, CLONE_NEWIPC), EINVAL);
    CHECK_STR(host(), before);
    OK(setns_(fd, CLONE_NEWUTS));
    CHECK_STR(host(), "inner");
    set_host("from outside");
    IN_CHILD(CHECK_STR(host(), "from outside"));
    OK(setns_(own, 0));
    CHECK_STR(host(), before);
    /* The descriptor keeps the namespace. */
    end_by_kill(child);
    OK(setns_(fd, 0));
    CHECK_STR(host(), "from outside");
    CHECK_STR(link_of(0, "ipc"), link_of(getppid(), "ipc"));
}

TEST(setns_errors) {
    needs_root();
    ERR(setns_(-1, 0), EBADF);
    ERR(setns_(1000, CLONE_NEWUTS), EBADF);
    int null = OK(open("/dev/null", O_RDONLY));
    ERR(setns_(null, 0), EINVAL);
    ERR(setns_(null, CLONE_NEWUTS), EINVAL);
    int path = OK(open("/proc/self/ns/uts", O_PATH));
    ERR(setns_(path, CLONE_NEWUTS), EBADF);
    int uts = open_of(getpid(), "uts");
    ERR(setns_(uts, CLONE_NEWUTS | CLONE_NEWIPC), EINVAL);
    ERR(setns_(uts, -1), EINVAL);
    int user = open_of(getpid(), "user");
    ERR(setns_(user, 0), EINVAL); /* nobody enters the one it is in */
    ERR(setns_(user, CLONE_NEWUTS), EINVAL);
    /* The others can be entered from within. */
    OK(setns_(open_of(getpid(), "net"), CLONE_NEWNET));
    OK(setns_(open_of(getpid(), "pid"), CLONE_NEWPID));
    OK(setns_(open_of(getpid(), "ipc"), CLONE_NEWIPC));
    int pidfd = OK(pidfd_of(getpid()));
    ERR(setns_(pidfd, 0), EINVAL);
    ERR(setns_(pidfd, CLONE_VM), EINVAL);
    ERR(setns_(pidfd, CLONE_NEWUTS | CLONE_FILES), EINVAL);
    ERR(setns_(pidfd, CLONE_NEWUSER | CLONE_NEWUTS), EINVAL);
    OK(setns_(pidfd, CLONE_NEWUTS | CLONE_NEWNET));
}

TEST(setns_into_the_mounts_goes_to_the_root) {
    needs_root();
    int fd = open_of(getpid(), "mnt");
    char where[PATH_MAX];
    OK(chdir("/proc"));
    OK(setns_(fd, CLONE_NEWNS));
    CHECK(getcwd(where, sizeof where));
    CHECK_STR(where, "/");
    /* Not if the directories are shared. */
    long child = OK(clone_(CLONE_FS | SIGCHLD));
    if (child == 0) {
        ERR(setns_(fd, CLONE_NEWNS), EINVAL);
        _exit(0);
    }
    EXITS((pid_t)child, 0);
}

static void both_inner(void) {
    OK(unshare(CLONE_NEWUTS | CLONE_NEWIPC));
    set_host("both");
    OK(shmget(0x4e53, 4096, IPC_CREAT | IPC_EXCL | 0600));
}

TEST(setns_enters_several_by_a_pidfd) {
    needs_root();
    pid_t child = child_with(both_inner);
    int pidfd = OK(pidfd_of(child));
    char before[65];
    snprintf(before, sizeof before, "%s", host());
    IN_CHILD({
        OK(setns_(pidfd, CLONE_NEWIPC));
        CHECK_STR(host(), before);
        OK(shmget(0x4e53, 0, 0));
    });
    OK(setns_(pidfd, CLONE_NEWUTS | CLONE_NEWIPC));
    CHECK_STR(host(), "both");
    OK(shmget(0x4e53, 0, 0));
    CHECK_STR(link_of(0, "uts"), link_of(child, "uts"));
    CHECK_STR(link_of(0, "ipc"), link_of(child, "ipc"));
    end_by_kill(child);
}

TEST(only_the_administrator_makes_and_enters) {
    needs_root();
    pid_t child = child_with(named_inner);
    int fd = open_of(child, "uts"), own = open_of(getpid(), "ipc");
    int pidfd = OK(pidfd_of(child));
    IN_CHILD({
        BECOME(NOBODY, NOBODY);
        ERR(unshare(CLONE_NEWUTS), EPERM);
        ERR(unshare(CLONE_NEWIPC), EPERM);
        ERR(clone_(CLONE_NEWUTS | SIGCHLD), EPERM);
        ERR(clone_(CLONE_NEWIPC | SIGCHLD), EPERM);
        ERR(clone_(CLONE_NEWIPC | CLONE_SYSVSEM | SIGCHLD), EPERM);
        ERR(clone3_(CLONE_NEWUTS, SIGCHLD), EPERM);
        ERR(setns_(fd, CLONE_NEWUTS), EPERM);
        ERR(setns_(own, 0), EPERM);
        ERR(setns_(pidfd, CLONE_NEWUTS), EPERM);
        ERR(sethostname("x", 1), EPERM);
        char path[64], text[64];
        snprintf(path, sizeof path, "/proc/%d/ns/uts", child);
        ERR(readlink(path, text, sizeof text), EACCES);
    });
    end_by_kill(child);
}

TEST(unshare_errors) {
    needs_root();
    char before[64];
    snprintf(before, sizeof before, "%s", link_of(0, "uts"));
    ERR(unshare(CLONE_NEWUTS | CLONE_SETTLS), EINVAL);
    ERR(unshare(0x80000000u | CLONE_NEWUTS), EINVAL);
    CHECK_STR(link_of(0, "uts"), before); /* all or nothing */
    OK(unshare(0));
}

TEST(a_namespace_can_be_asked) {
    needs_root();
    int uts = open_of(getpid(), "uts"), ipc = open_of(getpid(), "ipc");
    int user = open_of(getpid(), "user"), pid = open_of(getpid(), "pid");
    int mnt = open_of(getpid(), "mnt"), net = open_of(getpid(), "net");
    CHECK_EQ(OK(ioctl(uts, NS_GET_NSTYPE)), CLONE_NEWUTS);
    CHECK_EQ(OK(ioctl(ipc, NS_GET_NSTYPE)), CLONE_NEWIPC);
    CHECK_EQ(OK(ioctl(user, NS_GET_NSTYPE)), CLONE_NEWUSER);
    CHECK_EQ(OK(ioctl(pid, NS_GET_NSTYPE)), CLONE_NEWPID);
    CHECK_EQ(OK(ioctl(mnt, NS_GET_NSTYPE)), CLONE_NEWNS);
    CHECK_EQ(OK(ioctl(net, NS_GET_NSTYPE)), CLONE_NEWNET);
    struct stat owner, known;
    OK(fstat(user, &known));
    OK(unshare(CLONE_NEWUTS));
    int fds[] = {uts, ipc, open_of(getpid(), "uts")};
    for (size_t i = 0; i < sizeof fds / sizeof *fds; i++) {
        int fd = OK(ioctl(fds[i], NS_GET_USERNS));
        OK(fstat(fd, &owner));
        CHECK_EQ(owner.st_ino, known.st_ino);
        CHECK_EQ(owner.st_dev, known.st_dev);
        CHECK_EQ(OK(fcntl(fd, F_GETFD)), FD_CLOEXEC);
        CHECK_EQ(OK(ioctl(fd, NS_GET_NSTYPE)), CLONE_NEWUSER);
        OK(close(fd));
        ERR(ioctl(fds[i], NS_GET_PARENT), EINVAL);
        uid_t uid;
        ERR(ioctl(fds[i], NS_GET_OWNER_UID, &uid), EINVAL);
    }
    ERR(ioctl(mnt, NS_GET_PARENT), EINVAL);
    ERR(ioctl(net, NS_GET_PARENT), EINVAL);
    ERR(ioctl(user, NS_GET_PARENT), EPERM); /* of the first there is none, or nobody sees it */
    ERR(ioctl(user, NS_GET_USERNS), EPERM);
    ERR(ioctl(pid, NS_GET_PARENT), EPERM);
    uid_t uid = 7;
    OK(ioctl(user, NS_GET_OWNER_UID, &uid));
    CHECK_EQ(uid, 0);
    ERR(ioctl(user, NS_GET_OWNER_UID, BAD), EFAULT);
    ERR(ioctl(uts, _IO(0xb7, 0x7f)), ENOTTY);
    char byte;
    ERR(read(uts, &byte, 1), EINVAL);
}

TEST(a_file_is_bound_and_keeps_its_namespace) {
    needs_root();
    if (syscall(SYS_unshare, CLONE_NEWNS) == 0)
        OK(mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL));
    pid_t child = child_with(named_inner);
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/ns/uts", child);
    PUT("place", "");
    OK(mount(path, "place", NULL, MS_BIND, NULL));
    end_by_kill(child);
    int fd = OK(open("place", O_RDONLY));
    CHECK_EQ(OK(ioctl(fd, NS_GET_NSTYPE)), CLONE_NEWUTS);
    IN_CHILD({
        OK(setns_(fd, CLONE_NEWUTS));
        CHECK_STR(host(), "inner");
    });
    OK(close(fd));
    OK(umount2("place", MNT_DETACH));
    CHECK_EQ(get_file("place", path, sizeof path), 0);
}

/* ---- IPC ----------------------------------------------------------------------------------- */

TEST(objects_are_found_inside_only) {
    needs_root();
    int shm = OK(shmget(key, 4096, IPC_CREAT | IPC_EXCL | 0600));
    int msg = OK(msgget(key, IPC_CREAT | IPC_EXCL | 0600));
    int sem = OK(semget(key, 2, IPC_CREAT | IPC_EXCL | 0600));
    pid_t child = FORK();
    if (child == 0) {
        OK(unshare(CLONE_NEWIPC));
        ERR(shmget(key, 0, 0), ENOENT);
        ERR(msgget(key, 0), ENOENT);
        ERR(semget(key, 0, 0), ENOENT);
        struct shmid_ds segment;
        struct msqid_ds queue;
        ERR(shmctl(shm, IPC_STAT, &segment), EINVAL);
        ERR(msgctl(msg, IPC_STAT, &queue), EINVAL);
        ERR(semctl(sem, 0, GETVAL), EINVAL);
        ERR(shmctl(shm, IPC_RMID, NULL), EINVAL);
        CHECK(shmat(shm, NULL, 0) == (void *)-1 && errno == EINVAL);
        int own = OK(shmget(key, 8192, IPC_CREAT | IPC_EXCL | 0600));
        OK(msgget(key, IPC_CREAT | IPC_EXCL | 0600));
        OK(semget(key, 3, IPC_CREAT | IPC_EXCL | 0600));
        OK(shmctl(own, IPC_STAT, &segment));
        CHECK_EQ(segment.shm_segsz, 8192);
        struct shm_info info;
        OK(shmctl(0, SHM_INFO, (struct shmid_ds *)&info));
        CHECK_EQ(info.used_ids, 1);
        CHECK_EQ(info.shm_tot, 2);
        struct seminfo sems;
        OK(semctl(0, 0, SEM_INFO, &sems));
        CHECK_EQ(sems.semusz, 1);
        CHECK_EQ(sems.semaem, 3);
        struct msginfo msgs;
        OK(msgctl(0, MSG_INFO, (struct msqid_ds *)&msgs));
        CHECK_EQ(msgs.msgpool, 1);
        CHECK_EQ(msgs.msgmap, 0);
        _exit(0);
    }
    EXITS(child, 0);
    struct shmid_ds segment;
    OK(shmctl(shm, IPC_STAT, &segment));
    CHECK_EQ(segment.shm_segsz, 4096);
    OK(shmctl(shm, IPC_RMID, NULL));
    OK(msgctl(msg, IPC_RMID, NULL));
    OK(semctl(sem, 0, IPC_RMID));
}

static int lines_of(const char *path) {
    static char text[65536];
    CHECK(get_file(path, text, sizeof text) >= 0);
    int lines = 0;
    for (char *at = text; (at = strchr(at, '\n')); at++)
        lines++;
    return lines;
}

TEST(sysvipc_shows_the_readers_own) {
    needs_root();
    int shm = OK(shmget(IPC_PRIVATE, 4096, 0600));
    CHECK(lines_of("/proc/sysvipc/shm") > 1);
    IN_CHILD({
        OK(unshare(CLONE_NEWIPC));
        CHECK_EQ(lines_of("/proc/sysvipc/shm"), 1);
        CHECK_EQ(lines_of("/proc/sysvipc/sem"), 1);
        CHECK_EQ(lines_of("/proc/sysvipc/msg"), 1);
        OK(semget(IPC_PRIVATE, 1, 0600));
        OK(semget(IPC_PRIVATE, 1, 0600));
        CHECK_EQ(lines_of("/proc/sysvipc/sem"), 3);
        CHECK_EQ(lines_of("/proc/sysvipc/shm"), 1);
    });
    OK(shmctl(shm, IPC_RMID, NULL));
}

static long number_in(const char *path) {
    char text[128];
    CHECK(get_file(path, text, sizeof text) > 0);
    return strtol(text, NULL, 10);
}

TEST(settings_belong_to_the_namespace) {
    needs_root();
    static const struct {
        const char *path;
        long first, other;
    } settings[] = {
        {"/proc/sys/kernel/shmmni", 4096, 77},     {"/proc/sys/kernel/msgmax", 8192, 4000},
        {"/proc/sys/kernel/msgmnb", 16384, 20000}, {"/proc/sys/kernel/msgmni", 32000, 3},
        {"/proc/sys/fs/mqueue/msg_max", 10, 12},   {"/proc/sys/fs/mqueue/queues_max", 256, 5},
    };
    long outside[8];
    enum { COUNT = sizeof settings / sizeof *settings };
    for (int i = 0; i < COUNT; i++)
        outside[i] = number_in(settings[i].path);
    IN_CHILD({
        OK(unshare(CLONE_NEWIPC));
        for (int i = 0; i < COUNT; i++) {
            CHECK_EQ(number_in(settings[i].path), settings[i].first);
            char text[32];
            snprintf(text, sizeof text, "%ld\n", settings[i].other);
            set(settings[i].path, text);
            CHECK_EQ(number_in(settings[i].path), settings[i].other);
        }
        set("/proc/sys/kernel/sem", "9 90 9 2");
        OK(semget(IPC_PRIVATE, 9, 0600));
        ERR(semget(IPC_PRIVATE, 10, 0600), EINVAL);
        OK(semget(IPC_PRIVATE, 1, 0600));
        ERR(semget(IPC_PRIVATE, 1, 0600), ENOSPC);
        set("/proc/sys/kernel/shmall", "3");
        OK(shmget(IPC_PRIVATE, 2 * 4096, 0600));
        ERR(shmget(IPC_PRIVATE, 2 * 4096, 0600), ENOSPC);
        set("/proc/sys/kernel/shmmax", "4096");
        ERR(shmget(IPC_PRIVATE, 4097, 0600), EINVAL);
        struct {
            long type;
            char text[5000];
        } message = {1, ""};
        int queue = OK(msgget(IPC_PRIVATE, 0600));
        ERR(msgsnd(queue, &message, 4001, 0), EINVAL);
        OK(msgsnd(queue, &message, 4000, 0));
        struct msqid_ds status;
        OK(msgctl(queue, IPC_STAT, &status));
        CHECK_EQ(status.msg_qbytes, 20000);
    });
    for (int i = 0; i < COUNT; i++)
        CHECK_EQ(number_in(settings[i].path), outside[i]);
    int set = OK(semget(IPC_PRIVATE, 10, 0600));
    OK(semctl(set, 0, IPC_RMID));
}

TEST(a_segment_that_is_attached_outlives_its_namespace) {
    needs_root();
    int own = open_of(getpid(), "ipc");
    OK(unshare(CLONE_NEWIPC));
    int id = OK(shmget(key, 2 * PAGE, IPC_CREAT | 0600));
    char *memory = shmat(id, NULL, 0);
    CHECK(memory != (void *)-1);
    strcpy(memory, "kept");
    int other = OK(shmget(IPC_PRIVATE, PAGE, 0600));
    (void)other; /* not attached: goes with the namespace */
    OK(setns_(own, CLONE_NEWIPC)); /* nobody is in the other one any more */
    CHECK_STR(memory, "kept");
    memory[PAGE] = 'x';
    IN_CHILD({
        CHECK_STR(memory, "kept");
        strcpy(memory, "changed");
    });
    CHECK_STR(memory, "changed");
    OK(shmdt(memory));
    ERR(shmget(key, 0, 0), ENOENT);
}

static int value_of(int set) { return OK(semctl(set, 0, GETVAL)); }

TEST(adjustments_are_made_when_a_thread_leaves) {
    needs_root();
    int set = OK(semget(IPC_PRIVATE, 1, 0600));
    struct sembuf add = {0, 5, SEM_UNDO};
    GATE(ready);
    GATE(go);
    int other = open_of(getpid(), "ipc");
    for (int i = 0; i < 2; i++) {
        pid_t child = FORK();
        if (child == 0) {
            OK(semop(set, &add, 1));
            gate_open(&ready);
            gate_pass(&go);
            if (i == 0)
                OK(unshare(CLONE_NEWIPC));
            else
                OK(setns_(other, 0)); /* even where it is already */
            gate_open(&ready);
            gate_pass(&go);
            _exit(0);
        }
        gate_pass(&ready);
        CHECK_EQ(value_of(set), 5);
        gate_open(&go);
        gate_pass(&ready);
        CHECK_EQ(value_of(set), 0);
        gate_open(&go);
        EXITS(child, 0);
    }
    OK(semctl(set, 0, IPC_RMID));
}

TEST(forced_removal_knows_the_maker_that_moved) {
    needs_root();
    int own = open_of(getpid(), "ipc");
    OK(unshare(CLONE_NEWIPC));
    int inner = open_of(getpid(), "ipc");
    set("/proc/sys/kernel/shm_rmid_forced", "1");
    GATE(ready);
    GATE(go);
    pid_t child = FORK();
    if (child == 0) {
        OK(shmget(key, 4096, IPC_CREAT | 0600));
        OK(setns_(own, CLONE_NEWIPC));
        gate_open(&ready);
        gate_pass(&go);
        _exit(0);
    }
    gate_pass(&ready);
    OK(shmget(key, 0, 0)); /* its maker lives */
    OK(setns_(own, CLONE_NEWIPC));
    CHECK_EQ(number_in("/proc/sys/kernel/shm_rmid_forced"), 0);
    gate_open(&go);
    EXITS(child, 0);
    OK(setns_(inner, CLONE_NEWIPC));
    ERR(shmget(key, 0, 0), ENOENT);
    /* By unshare(2) the maker leaves them. */
    child = FORK();
    if (child == 0) {
        OK(shmget(key, 4096, IPC_CREAT | 0600));
        OK(unshare(CLONE_NEWIPC));
        gate_open(&ready);
        gate_pass(&go);
        _exit(0);
    }
    gate_pass(&ready);
    ERR(shmget(key, 0, 0), ENOENT);
    gate_open(&go);
    EXITS(child, 0);
}

static int mq(const char *name, int flags) {
    struct mq_attr attributes = {.mq_maxmsg = 2, .mq_msgsize = 16};
    return (int)syscall(SYS_mq_open, name, flags, 0600, &attributes);
}

TEST(posix_queues_are_found_inside_only) {
    needs_root();
    char name[64], text[64] = "";
    snprintf(name, sizeof name, "namespace.%d", getpid());
    int outer = OK(mq(name, O_RDWR | O_CREAT | O_EXCL));
    IN_CHILD({
        OK(unshare(CLONE_NEWIPC));
        ERR(mq(name, O_RDWR), ENOENT);
        ERR(syscall(SYS_mq_unlink, name), ENOENT);
        int inner = OK(mq(name, O_RDWR | O_CREAT | O_EXCL));
        OK(syscall(SYS_mq_timedsend, inner, "inside", 6, 0, NULL));
        /* One that was opened before stays open. */
        OK(syscall(SYS_mq_timedsend, outer, "outside", 7, 0, NULL));
    });
    CHECK_EQ(OK(syscall(SYS_mq_timedreceive, outer, text, sizeof text, NULL, NULL)), 7);
    CHECK_STR(text, "outside");
    OK(syscall(SYS_mq_unlink, name));
}

TEST(mqueue_is_mounted_of_the_callers_namespace) {
    needs_root();
    if (syscall(SYS_unshare, CLONE_NEWNS) == 0)
        OK(mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL));
    OK(mkdir("first", 0755));
    OK(mkdir("second", 0755));
    int own = open_of(getpid(), "ipc");
    OK(mount("none", "first", "mqueue", 0, NULL));
    OK(unshare(CLONE_NEWIPC));
    OK(mount("none", "second", "mqueue", 0, NULL));
    OK(close(OK(mq("inner", O_RDWR | O_CREAT | O_EXCL))));
    struct stat status;
    OK(stat("second/inner", &status));
    ERR(stat("first/inner", &status), ENOENT);
    int made = OK(open("second/made", O_RDWR | O_CREAT, 0600));
    OK(close(made));
    OK(close(OK(mq("made", O_RDWR))));
    /* The mount is there longer than the namespace; nothing can be made in it. */
    OK(setns_(own, CLONE_NEWIPC));
    EVENTUALLY(open("second/later", O_RDWR | O_CREAT, 0600) == -1 && errno == EACCES);
    ERR(mq("inner", O_RDWR), ENOENT);
    OK(umount2("first", MNT_DETACH));
    OK(umount2("second", MNT_DETACH));
}

TEST(a_waiting_receiver_is_in_its_own_namespace) {
    needs_root();
    int outer = OK(msgget(key, IPC_CREAT | IPC_EXCL | 0600));
    struct {
        long type;
        char text[8];
    } message = {1, "outer"};
    pid_t child = FORK();
    if (child == 0) {
        OK(msgrcv(outer, &message, sizeof message.text, 0, 0));
        CHECK_STR(message.text, "outer");
        _exit(0);
    }
    wait_asleep(child);
    IN_CHILD({
        OK(unshare(CLONE_NEWIPC));
        int other = OK(msgget(key, IPC_CREAT | IPC_EXCL | 0600));
        strcpy(message.text, "inner");
        OK(msgsnd(other, &message, sizeof message.text, 0));
    });
    OK(msgsnd(outer, &message, sizeof message.text, 0));
    EXITS(child, 0);
    OK(msgctl(outer, IPC_RMID, NULL));
}

/* ---- limits -------------------------------------------------------------------------------- */

TEST(a_user_has_a_limit) {
    needs_root();
    NEEDS_OWN_MACHINE();
    SET_SYSCTL("/proc/sys/user/max_uts_namespaces", "2");
    SET_SYSCTL("/proc/sys/user/max_ipc_namespaces", "0");
    ERR(unshare(CLONE_NEWIPC), ENOSPC);
    ERR(unshare(CLONE_NEWUTS | CLONE_NEWIPC), ENOSPC);
    ERR(clone_(CLONE_NEWIPC | SIGCHLD), ENOSPC);
    pid_t first = child_with(named_inner), second = child_with(named_inner);
    ERR(unshare(CLONE_NEWUTS), ENOSPC);
    end_by_kill(first);
    EVENTUALLY(unshare(CLONE_NEWUTS) == 0);
    end_by_kill(second);
    int fd = OK(open("/proc/sys/user/max_uts_namespaces", O_RDWR));
    ERR(write(fd, "-1", 2), EINVAL);
    ERR(write(fd, "4294967296", 10), EINVAL);
    ERR(write(fd, "x", 1), EINVAL);
    CHECK_EQ(number_in("/proc/sys/user/max_uts_namespaces"), 2);
}

TEST_TIMES(namespaces_end_with_their_last_thread, 2) {
    needs_root();
    for (int i = 0; i < 300; i++)
        IN_CHILD({
            OK(unshare(CLONE_NEWUTS | CLONE_NEWIPC));
            OK(shmget(key, 64 * 4096, IPC_CREAT | IPC_EXCL | 0600));
            OK(msgget(key, IPC_CREAT | IPC_EXCL | 0600));
            OK(semget(key, 100, IPC_CREAT | IPC_EXCL | 0600));
            OK(mq("queue", O_RDWR | O_CREAT | O_EXCL));
        });
}

static void *changes(void *stop) {
    while (!atomic_load((_Atomic bool *)stop)) {
        OK(unshare(CLONE_NEWUTS | CLONE_NEWIPC));
        set_host("changing");
    }
    return NULL;
}

TEST(namespaces_are_read_while_they_change) {
    needs_root();
    static _Atomic bool stop;
    pthread_t thread;
    ZERO(pthread_create(&thread, NULL, changes, &stop));
    char path[64], text[64];
    DIR *tasks = opendir("/proc/self/task");
    CHECK(tasks);
    pid_t other = 0;
    for (struct dirent *entry; (entry = readdir(tasks));)
        if (entry->d_name[0] != '.' && atoi(entry->d_name) != getpid())
            other = atoi(entry->d_name);
    CHECK(other != 0);
    snprintf(path, sizeof path, "/proc/self/task/%d/ns/uts", other);
    for (int i = 0; i < 2000; i++) {
        CHECK(OK(readlink(path, text, sizeof text)) > 10);
        int fd = OK(open(path, O_RDONLY));
        IN_CHILD(if (i % 100 == 0) OK(setns_(fd, CLONE_NEWUTS)));
        OK(close(fd));
        i += 9;
    }
    atomic_store(&stop, true);
    ZERO(pthread_join(thread, NULL));
}
