/* Mount namespaces (mount_namespaces(7)) of private mounts. */
#define AREA "mountns"
#include "harness.h"
#include <linux/nsfs.h>
#include <sys/ioctl.h>

static int setns_(int fd, int kind) { return (int)syscall(SYS_setns, fd, kind); }
static long clone_(unsigned long flags) { return syscall(SYS_clone, flags, 0, NULL, NULL, 0); }

static void enter_own(void) {
    OK(unshare(CLONE_NEWNS));
    OK(mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL));
}

static void needs_root(void) {
    if (geteuid() != 0)
        SKIP("not root");
    enter_own();
}

static int open_of(pid_t pid) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/ns/mnt", pid);
    return OK(open(path, O_RDONLY | O_CLOEXEC));
}

/* Whether a mount at "m" of the case's directory is listed. */
static int listed(const char *file) {
    static char text[65536];
    char line[PATH_MAX + 8];
    CHECK(get_file(file, text, sizeof text) > 0);
    snprintf(line, sizeof line, " %s/m ", hy_tmp);
    return strstr(text, line) != NULL;
}

/* A child in a namespace of its own with a tmpfs at "m" and a file in it. */
static pid_t child_with_mount(void) {
    GATE(ready);
    pid_t child = FORK();
    if (child == 0) {
        OK(unshare(CLONE_NEWNS));
        OK(mount("tmpfs", "m", "tmpfs", 0, NULL));
        PUT("m/f", "inside");
        gate_open_and_rest(&ready);
    }
    gate_pass(&ready);
    return child;
}

static bool exists(const char *path) {
    struct stat st;
    return stat(path, &st) == 0;
}

TEST(mounts_are_seen_inside_only) {
    needs_root();
    OK(mkdir("m", 0755));
    pid_t child = child_with_mount();
    char path[PATH_MAX + 64];
    CHECK(!exists("m/f"));
    CHECK(!listed("/proc/self/mounts"));
    CHECK(!listed("/proc/self/mountinfo"));
    snprintf(path, sizeof path, "/proc/%d/mounts", child);
    CHECK(listed(path));
    snprintf(path, sizeof path, "/proc/%d/mountinfo", child);
    CHECK(listed(path));
    snprintf(path, sizeof path, "/proc/%d/root%s/m/f", child, hy_tmp);
    CHECK(exists(path)); /* the root of a process leads into its namespace */
    PUT("m/outside", "x");
    snprintf(path, sizeof path, "/proc/%d/root%s/m/outside", child, hy_tmp);
    CHECK(!exists(path));
    end_by_kill(child);
}

TEST(each_has_its_own_copies) {
    needs_root();
    OK(mkdir("m", 0755));
    OK(mount("tmpfs", "m", "tmpfs", 0, NULL));
    PUT("m/f", "shared");
    OK(mkdir("m/d", 0755));
    OK(mount("tmpfs", "m/d", "tmpfs", 0, NULL));
    PUT("m/d/f", "deeper");
    GATE(ready);
    GATE(go);
    pid_t child = FORK();
    if (child == 0) {
        char text[64];
        OK(unshare(CLONE_NEWNS));
        CHECK(get_file("m/d/f", text, sizeof text) > 0);
        CHECK_STR(text, "deeper");
        PUT("m/g", "from inside"); /* the file system is one */
        OK(umount("m/d"));
        CHECK(!exists("m/d/f"));
        gate_open(&ready);
        gate_pass(&go);
        CHECK(exists("m/f")); /* unmounted outside */
        OK(umount("m"));
        CHECK(!exists("m/f"));
        _exit(0);
    }
    gate_pass(&ready);
    CHECK(exists("m/d/f"));
    CHECK(exists("m/g"));
    OK(umount("m/d"));
    OK(umount("m"));
    CHECK(!exists("m/f"));
    gate_open(&go);
    EXITS(child, 0);
}

TEST(flags_belong_to_the_copy) {
    needs_root();
    OK(mkdir("m", 0755));
    OK(mount("tmpfs", "m", "tmpfs", MS_NOSUID | MS_NODEV, NULL));
    OK(mount(NULL, "m", NULL, MS_REMOUNT | MS_BIND | MS_RDONLY, NULL));
    ERR(open("m/f", O_WRONLY | O_CREAT, 0600), EROFS);
    IN_CHILD({
        OK(unshare(CLONE_NEWNS));
        ERR(open("m/f", O_WRONLY | O_CREAT, 0600), EROFS);
        OK(mount(NULL, "m", NULL, MS_REMOUNT | MS_BIND, NULL));
        PUT("m/f", "x");
    });
    ERR(open("m/g", O_WRONLY | O_CREAT, 0600), EROFS);
    CHECK(exists("m/f"));
}

static unsigned mount_id(void) {
    char text[512], *at;
    int fd = OK(open(".", O_PATH | O_DIRECTORY));
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fdinfo/%d", fd);
    CHECK(get_file(path, text, sizeof text) > 0);
    OK(close(fd));
    CHECK((at = strstr(text, "mnt_id:")) != NULL);
    return (unsigned)strtoul(at + 7, NULL, 10);
}

TEST(root_and_working_directory_go_along) {
    needs_root();
    OK(mkdir("m", 0755));
    OK(mount("tmpfs", "m", "tmpfs", 0, NULL));
    OK(mkdir("m/d", 0755));
    OK(mkdir("m/d/e", 0755));
    OK(chdir("m/d/e"));
    int before = OK(open(".", O_PATH | O_DIRECTORY));
    unsigned id = mount_id();
    IN_CHILD({
        char where[PATH_MAX], wanted[PATH_MAX + 16];
        OK(unshare(CLONE_NEWNS));
        CHECK(mount_id() != id);
        CHECK(getcwd(where, sizeof where));
        snprintf(wanted, sizeof wanted, "%s/m/d/e", hy_tmp);
        CHECK_STR(where, wanted);
        OK(chdir(".."));
        OK(chdir("../.."));
        ERR(umount("m/d"), EINVAL);
        /* The descriptor is still in the mount of outside: that is none of this namespace's. */
        OK(umount("m"));
        OK(fchdir(before));
        CHECK_EQ(mount_id(), id);
    });
    IN_CHILD({
        OK(chroot(".."));
        OK(chdir("/e"));
        OK(unshare(CLONE_NEWNS));
        char where[PATH_MAX];
        CHECK(getcwd(where, sizeof where));
        CHECK_STR(where, "/e");
        OK(chdir("/"));
        CHECK(exists("/e"));
        CHECK(!exists("/proc/self"));
    });
    IN_CHILD({
        OK(unshare(CLONE_NEWNS));
        ERR(umount("../../../m"), EBUSY); /* the working directory is in it */
    });
}

static void *changes_directory(void *unused UNUSED) {
    OK(unshare(CLONE_NEWNS));
    OK(chdir("/"));
    OK(mount("tmpfs", hy_tmp, "tmpfs", 0, NULL));
    return NULL;
}

TEST(a_thread_gets_directories_of_its_own) {
    needs_root();
    OK(mkdir("m", 0755));
    pthread_t thread;
    ZERO(pthread_create(&thread, NULL, changes_directory, NULL));
    ZERO(pthread_join(thread, NULL));
    CHECK(exists("m"));
    char where[PATH_MAX];
    CHECK(getcwd(where, sizeof where));
    CHECK_STR(where, hy_tmp);
}

TEST(clone_makes_one) {
    needs_root();
    OK(mkdir("m", 0755));
    ERR(clone_(CLONE_NEWNS | CLONE_FS | SIGCHLD), EINVAL);
    long child = OK(clone_(CLONE_NEWNS | SIGCHLD));
    if (child == 0) {
        OK(mount("tmpfs", "m", "tmpfs", 0, NULL));
        PUT("m/f", "x");
        IN_CHILD(CHECK(exists("m/f")));
        _exit(0);
    }
    EXITS((pid_t)child, 0);
    CHECK(!exists("m/f"));
    CHECK(!listed("/proc/self/mounts"));
}

TEST(setns_enters) {
    needs_root();
    OK(mkdir("m", 0755));
    pid_t child = child_with_mount();
    int own = open_of(getpid()), other = open_of(child);
    struct stat first, second;
    OK(fstat(own, &first));
    OK(fstat(other, &second));
    CHECK(first.st_ino != second.st_ino);
    CHECK_EQ(OK(ioctl(other, NS_GET_NSTYPE)), CLONE_NEWNS);
    char where[PATH_MAX];
    OK(setns_(other, CLONE_NEWNS));
    CHECK(getcwd(where, sizeof where));
    CHECK_STR(where, "/");
    OK(chdir(hy_tmp));
    CHECK(exists("m/f"));
    OK(umount("m"));
    OK(mount("tmpfs", "m", "tmpfs", 0, NULL));
    OK(setns_(own, 0));
    OK(chdir(hy_tmp));
    CHECK(!listed("/proc/self/mounts"));
    /* By a descriptor of the process. */
    int pidfd = OK((int)syscall(SYS_pidfd_open, child, 0));
    OK(setns_(pidfd, CLONE_NEWNS | CLONE_NEWUTS));
    OK(chdir(hy_tmp));
    CHECK(listed("/proc/self/mounts"));
    OK(setns_(own, 0));
    /* Not with directories that another shares. */
    child = (pid_t)OK(clone_(CLONE_FS | SIGCHLD));
    if (child == 0) {
        ERR(setns_(other, CLONE_NEWNS), EINVAL);
        _exit(0);
    }
    EXITS(child, 0);
    IN_CHILD({
        BECOME(NOBODY, NOBODY);
        ERR(unshare(CLONE_NEWNS), EPERM);
        ERR(clone_(CLONE_NEWNS | SIGCHLD), EPERM);
        ERR(setns_(other, CLONE_NEWNS), EPERM);
    });
}

TEST(mounts_of_others_are_not_changed) {
    needs_root();
    OK(mkdir("m", 0755));
    OK(mkdir("mine", 0755));
    OK(mount("tmpfs", "mine", "tmpfs", 0, NULL));
    pid_t child = child_with_mount();
    char place[PATH_MAX + 64];
    snprintf(place, sizeof place, "/proc/%d/root%s/m", child, hy_tmp);
    CHECK(exists(place));
    ERR(umount2(place, 0), EINVAL);
    ERR(umount2(place, MNT_DETACH), EINVAL);
    ERR(mount("tmpfs", place, "tmpfs", 0, NULL), EINVAL);
    ERR(mount(place, "m", NULL, MS_BIND, NULL), EINVAL);
    ERR(mount("mine", place, NULL, MS_BIND, NULL), EINVAL);
    ERR(mount(NULL, place, NULL, MS_REMOUNT | MS_BIND | MS_RDONLY, NULL), EINVAL);
    ERR(mount(place, "m", NULL, MS_MOVE, NULL), EINVAL);
    ERR(mount("mine", place, NULL, MS_MOVE, NULL), EINVAL);
    ERR(syscall(428 /* open_tree */, AT_FDCWD, place, 1 /* OPEN_TREE_CLONE */), EINVAL);
    CHECK(exists("mine"));
    /* Files of it are used as any others. */
    char file[PATH_MAX + 80];
    snprintf(file, sizeof file, "%s/f", place);
    PUT(file, "written");
    end_by_kill(child);
}

/* Linux 6.18 numbers namespaces by processor, and takes that with the lower number for the older
 * one: of two that are made on one processor it is. */
static void stay_on_this_processor(void) {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    OK(sched_setaffinity(0, sizeof one, &one));
}

TEST(a_descriptor_and_a_binding_keep_a_namespace) {
    needs_root();
    OK(mkdir("m", 0755));
    /* A namespace is bound in an older one. */
    stay_on_this_processor();
    enter_own();
    for (int i = 0; i < 3; i++) {
        pid_t child = child_with_mount();
        int fd = open_of(child);
        char path[64];
        snprintf(path, sizeof path, "/proc/%d/ns/mnt", child);
        PUT("place", "");
        OK(mount(path, "place", NULL, MS_BIND, NULL));
        end_by_kill(child);
        if (i == 1)
            OK(close(fd));
        int bound = OK(open("place", O_RDONLY));
        IN_CHILD({
            OK(setns_(i == 0 ? fd : bound, CLONE_NEWNS));
            OK(chdir(hy_tmp));
            CHECK(exists("m/f"));
        });
        OK(close(bound));
        if (i != 1)
            OK(close(fd));
        /* With this the namespace ends, while the tree is changed. */
        OK(umount2("place", i == 2 ? MNT_DETACH : 0));
        OK(mount("tmpfs", "m", "tmpfs", 0, NULL));
        OK(umount("m"));
    }
}

TEST(no_namespace_keeps_itself) {
    needs_root();
    int fd = OK(syscall(428 /* open_tree */, AT_FDCWD, "/proc/self/ns/uts", 1));
    OK(close(fd));
    PUT("place", "");
    stay_on_this_processor();
    enter_own();
    ERR(mount("/proc/self/ns/mnt", "place", NULL, MS_BIND, NULL), EINVAL);
    IN_CHILD({
        char older[64];
        snprintf(older, sizeof older, "/proc/%d/ns/mnt", getppid());
        OK(unshare(CLONE_NEWNS));
        ERR(mount(older, "place", NULL, MS_BIND, NULL), EINVAL);
    });
}

TEST(pivot_root_inside_changes_nothing_outside) {
    needs_root();
    OK(mkdir("m", 0755));
    OK(mount("tmpfs", "m", "tmpfs", 0, NULL));
    OK(mkdir("m/new", 0755));
    PUT("m/old", "x");
    char root[PATH_MAX + 8];
    snprintf(root, sizeof root, "%s/m", hy_tmp);
    IN_CHILD({
        OK(unshare(CLONE_NEWNS));
        OK(chroot(root));
        OK(chdir("/"));
        OK(mount("tmpfs", "/new", "tmpfs", 0, NULL));
        OK(mkdir("/new/put", 0755));
        OK(syscall(SYS_pivot_root, "/new", "/new/put"));
        CHECK(exists("/put/old"));
        CHECK(!exists("/old"));
        OK(umount2("/put", MNT_DETACH));
        CHECK(!exists("/put/old"));
    });
    CHECK(exists("m/old"));
    CHECK(!exists("m/new/put"));
    /* Nor may the new root be another namespace's. */
    IN_CHILD({
        OK(mount("tmpfs", "m/new", "tmpfs", 0, NULL));
        int outside = OK(open("m/new", O_PATH | O_DIRECTORY));
        OK(mkdir("m/new/put", 0755));
        OK(unshare(CLONE_NEWNS));
        OK(chroot(root));
        OK(fchdir(outside));
        ERR(syscall(SYS_pivot_root, ".", "put"), EINVAL);
    });
}

/* As runc hides parts of /proc: mounts on files and directories there are found again. */
TEST(parts_of_proc_are_covered) {
    needs_root();
    char text[256];
    OK(mkdir("p", 0755));
    OK(mount("proc", "p", "proc", 0, NULL));
    PUT("empty", "");
    OK(mount("empty", "p/meminfo", NULL, MS_BIND, NULL));
    CHECK_EQ(get_file("p/meminfo", text, sizeof text), 0);
    OK(mount("p/sys", "p/sys", NULL, MS_BIND, NULL));
    OK(mount(NULL, "p/sys", NULL, MS_BIND | MS_REMOUNT | MS_RDONLY, NULL));
    ERR(open("p/sys/kernel/hostname", O_WRONLY), EROFS);
    CHECK(get_file("p/sys/kernel/hostname", text, sizeof text) > 0);
    OK(mount("tmpfs", "p/sys/kernel", "tmpfs", 0, NULL));
    CHECK(!exists("p/sys/kernel/hostname"));
    PUT("p/sys/kernel/f", "covered");
    CHECK(get_file("p/sys/kernel/f", text, sizeof text) > 0);
    CHECK_STR(text, "covered");
    ERR(umount2("p/sys", 0), EBUSY);
    OK(umount2("p/sys/kernel", 0));
    OK(umount2("p/sys", 0));
    OK(umount2("p/meminfo", 0));
    CHECK(get_file("p/meminfo", text, sizeof text) > 0);
    OK(close(OK(open("p/sys/kernel/hostname", O_WRONLY))));
    OK(umount2("p", 0));
}

TEST(working_directories_outside_stay) {
    needs_root();
    OK(mkdir("m", 0755));
    GATE(ready);
    GATE(go);
    pid_t child = FORK();
    if (child == 0) {
        OK(unshare(CLONE_NEWNS));
        OK(mount("tmpfs", "m", "tmpfs", 0, NULL));
        OK(chdir("m"));
        PUT("f", "x");
        int file = OK(open("f", O_RDWR));
        gate_open(&ready);
        gate_pass(&go);
        CHECK(exists("f"));
        CHECK_EQ(OK(write(file, "y", 1)), 1);
        _exit(0);
    }
    gate_pass(&ready);
    int fd = open_of(child);
    IN_CHILD({
        OK(setns_(fd, CLONE_NEWNS));
        OK(chdir(hy_tmp));
        ERR(umount("m"), EBUSY);
        OK(umount2("m", MNT_DETACH));
        CHECK(!exists("m/f"));
    });
    gate_open(&go);
    EXITS(child, 0);
}

TEST(a_user_has_a_limit) {
    needs_root();
    NEEDS_OWN_MACHINE();
    SET_SYSCTL("/proc/sys/user/max_mnt_namespaces", "0");
    ERR(unshare(CLONE_NEWNS), ENOSPC);
    ERR(clone_(CLONE_NEWNS | SIGCHLD), ENOSPC);
}

/* ---- many at once -------------------------------------------------------------------------- */

static void storm(int rounds) {
    for (int i = 0; i < rounds; i++) {
        OK(unshare(CLONE_NEWNS));
        OK(mount("tmpfs", "m", "tmpfs", 0, NULL));
        OK(mkdir("m/d", 0755));
        OK(mount("m", "m/d", NULL, MS_BIND, NULL));
        PUT("m/f", "x");
        CHECK(exists("m/d/f"));
        if (i % 3 == 0)
            OK(umount2("m", MNT_DETACH));
        if (i % 3 == 1)
            OK(umount("m/d"));
    }
}

TEST_TIMES(namespaces_come_and_go_at_once, 3) {
    needs_root();
    OK(mkdir("m", 0755));
    pid_t children[4];
    for (int i = 0; i < 4; i++)
        if ((children[i] = FORK()) == 0) {
            storm(25);
            _exit(0);
        }
    for (int i = 0; i < 50; i++) {
        OK(mount("tmpfs", "m", "tmpfs", 0, NULL));
        CHECK(listed("/proc/self/mounts"));
        OK(umount2("m", MNT_DETACH));
    }
    for (int i = 0; i < 4; i++)
        EXITS(children[i], 0);
    CHECK(!listed("/proc/self/mounts"));
}

/* Work for each file system is done once, not for each of its mounts, let alone for each pair. */
TEST(many_mounts_of_one_file_system_slow_nothing_down) {
    needs_root();
    OK(mkdir("s", 0755));
    OK(mount("tmpfs", "s", "tmpfs", 0, NULL));
    for (int i = 0; i < 15; i++) { /* twice as many each time */
        char place[16];
        snprintf(place, sizeof place, "s/%d", i);
        OK(mkdir(place, 0755));
        OK(mount("s", place, NULL, MS_BIND | MS_REC, NULL));
    }
    int fd = OK(open("/proc/sys/vm/drop_caches", O_WRONLY));
    int64_t before = now_ns(CLOCK_MONOTONIC);
    CHECK_EQ(OK(write(fd, "2\n", 2)), 2);
    sync();
    int64_t taken = now_ns(CLOCK_MONOTONIC) - before;
    if (taken > 5000000000)
        FAIL("%lld ms", (long long)(taken / 1000000));
    OK(umount2("s", MNT_DETACH));
}
