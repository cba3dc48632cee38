/* Mounts of user namespaces (mount_namespaces(7), "Restrictions on mount namespaces"). */
#define AREA "usermount"
/* Programs in supervisor mode could do all that a namespace is to keep them from. */
#define ONLY_IN_USER_MODE "in supervisor mode there is no user namespace"
#include "harness.h"
#include <mqueue.h>
#include <sys/prctl.h>
#include <sys/sysmacros.h>

enum { USER = 1000 };

static int setns_(int fd, int kind) { return (int)syscall(SYS_setns, fd, kind); }
static int open_tree_(int at, const char *path, unsigned flags) {
    return (int)syscall(SYS_open_tree, at, path, flags);
}
#define TREE_CLONE 1
#define TREE_RECURSIVE 0x8000

/* Makes the case's mounts in a namespace of its own. */
static void needs_root(void) {
    if (geteuid() != 0)
        SKIP("not root");
    OK(chmod(".", 0777));
    OK(unshare(CLONE_NEWNS));
    OK(mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL));
    OK(mkdir("m", 0777));
    OK(chmod("m", 0777));
}

static void put(const char *file, const char *text) {
    char path[64];
    snprintf(path, sizeof path, "/proc/self/%s", file);
    int fd = OK(open(path, O_WRONLY | O_CLOEXEC));
    CHECK_EQ(OK(write(fd, text, strlen(text))), strlen(text));
    OK(close(fd));
}

/* Becomes the superuser of user and mount namespaces, which are `number` outside. */
static void enter(int number) {
    char map[32];
    if (number)
        BECOME(number, number);
    OK(prctl(PR_SET_DUMPABLE, 1, 0, 0, 0));
    OK(unshare(CLONE_NEWUSER | CLONE_NEWNS));
    put("setgroups", "deny");
    snprintf(map, sizeof map, "0 %d 1", number);
    put("uid_map", map);
    put("gid_map", map);
}

static bool exists(const char *path) {
    struct stat st;
    return stat(path, &st) == 0;
}

TEST(memory_is_mounted_inside) {
    needs_root();
    GATE(ready);
    GATE(go);
    pid_t child = FORK();
    if (child == 0) {
        enter(USER);
        OK(mount("none", "m", "tmpfs", 0, "size=64k,mode=711"));
        struct stat st;
        OK(stat("m", &st));
        CHECK(st.st_uid == 0 && st.st_gid == 0);
        CHECK_EQ(st.st_mode, S_IFDIR | 0711);
        PUT("m/f", "inside");
        ERR(mount("none", "m", "tmpfs", 0, "uid=5"), EINVAL);
        ERR(mount("none", "m", "tmpfs", 0, "gid=1000"), EINVAL);
        OK(mount("none", "m", "ramfs", 0, NULL));
        CHECK(!exists("m/f"));
        OK(umount("m"));
        OK(mount("none", "m", NULL, MS_REMOUNT | MS_RDONLY, NULL));
        ERR(open("m/g", O_CREAT | O_WRONLY, 0600), EROFS);
        OK(mount("none", "m", NULL, MS_REMOUNT, NULL));
        PUT("m/g", "");
        gate_open(&ready);
        gate_pass(&go);
        OK(umount("m"));
        _exit(0);
    }
    gate_pass(&ready);
    CHECK(!exists("m/f"));
    char path[PATH_MAX + 64];
    snprintf(path, sizeof path, "/proc/%d/root%s/m/f", child, hy_tmp);
    struct stat st;
    OK(stat(path, &st));
    CHECK_EQ(st.st_uid, USER);
    gate_open(&go);
    EXITS(child, 0);
}

TEST(other_types_are_the_machines) {
    needs_root();
    IN_CHILD({
        enter(USER);
        ERR(mount("none", "m", "proc", 0, NULL), EPERM);
        ERR(mount("none", "m", "sysfs", 0, NULL), EPERM);
        ERR(mount("none", "m", "devtmpfs", 0, NULL), EPERM);
        ERR(mount("none", "m", "no such type", 0, NULL), ENODEV);
        ERR(mount("none", "m", "mqueue", 0, NULL), EPERM);
        OK(unshare(CLONE_NEWIPC));
        OK(mount("none", "m", "mqueue", 0, NULL));
        mqd_t queue = OK(mq_open("/queue", O_CREAT | O_RDWR, 0600, NULL));
        OK(mq_close(queue));
        struct stat st;
        OK(stat("m/queue", &st));
        CHECK_EQ(st.st_uid, 0);
    });
    IN_CHILD({ /* without mounts of one's own */
        BECOME(USER, USER);
        OK(prctl(PR_SET_DUMPABLE, 1, 0, 0, 0));
        OK(unshare(CLONE_NEWUSER));
        ERR(mount("none", "m", "tmpfs", 0, NULL), EPERM);
        ERR(umount("m"), EPERM);
        ERR(open_tree_(AT_FDCWD, "m", TREE_CLONE), EPERM);
    });
}

/* A mount that hides something: "m" is a tmpfs with "hidden", and "m/d" has another on it. */
static void hide(void) {
    OK(mount("none", "m", "tmpfs", MS_NOSUID, "mode=777"));
    OK(mkdir("m/d", 0777));
    PUT("m/d/hidden", "");
    OK(mount("none", "m/d", "tmpfs", MS_NODEV | MS_NOEXEC, "mode=777"));
    PUT("m/d/shown", "");
}

TEST(nobody_uncovers_what_others_hid) {
    needs_root();
    hide();
    IN_CHILD({
        enter(USER);
        ERR(umount("m/d"), EINVAL);
        ERR(umount2("m/d", MNT_DETACH), EINVAL);
        ERR(umount2("m", MNT_DETACH), EINVAL);
        ERR(umount2("m/d", MNT_EXPIRE), EINVAL);
        OK(mkdir("n", 0700));
        ERR(mount("m/d", "n", NULL, MS_MOVE, NULL), EINVAL);
        ERR(mount("m", "n", NULL, MS_BIND, NULL), EINVAL); /* without what hides */
        ERR(open_tree_(AT_FDCWD, "m", TREE_CLONE), EINVAL);
        OK(mount("m/d", "n", NULL, MS_BIND, NULL));
        CHECK(exists("n/shown"));
        OK(umount("n")); /* one's own */
        OK(mount("m", "n", NULL, MS_BIND | MS_REC, NULL));
        CHECK(exists("n/d/shown") && !exists("n/d/hidden"));
        ERR(umount("n/d"), EINVAL);
        OK(mount("none", "n/d", "tmpfs", 0, NULL));
        CHECK(!exists("n/d/shown"));
        OK(umount("n/d"));
        CHECK(exists("n/d/shown"));
    });
    CHECK(exists("m/d/shown"));
}

TEST(flags_that_protect_stay) {
    needs_root();
    hide();
    OK(mount("none", "m/d", NULL, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NODEV | MS_NOEXEC, NULL));
    IN_CHILD({
        enter(USER);
        ERR(mount("none", "m", NULL, MS_REMOUNT | MS_BIND, NULL), EPERM);
        ERR(mount("none", "m", NULL, MS_REMOUNT | MS_NOSUID, NULL), EPERM);
        OK(mount("none", "m", NULL, MS_REMOUNT | MS_BIND | MS_NOSUID | MS_RDONLY, NULL));
        ERR(open("m/f", O_CREAT | O_WRONLY, 0600), EROFS);
        OK(mount("none", "m", NULL, MS_REMOUNT | MS_BIND | MS_NOSUID, NULL));
        ERR(mount("none", "m/d", NULL, MS_REMOUNT | MS_BIND | MS_NODEV | MS_NOEXEC, NULL), EPERM);
        ERR(mount("none", "m/d", NULL, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOEXEC, NULL), EPERM);
        ERR(mount("none", "m", NULL, MS_REMOUNT | MS_BIND | MS_NOSUID | MS_NOATIME, NULL), EPERM);
        const uint64_t attributes[4] = {0, 2 /* MOUNT_ATTR_NOSUID */, 0, 0};
        ERR(syscall(SYS_mount_setattr, AT_FDCWD, "m", 0, attributes, sizeof attributes), EPERM);
        /* Copies have the locks as well. */
        OK(mkdir("n", 0700));
        OK(mount("m", "n", NULL, MS_BIND | MS_REC, NULL));
        ERR(mount("none", "n", NULL, MS_REMOUNT | MS_BIND, NULL), EPERM);
    });
}

TEST(a_tree_that_is_unmounted_shows_nothing) {
    needs_root();
    hide();
    IN_CHILD({
        enter(USER);
        OK(mkdir("n", 0700));
        OK(mount("m", "n", NULL, MS_BIND | MS_REC, NULL));
        int fd = OK(open("n", O_PATH | O_DIRECTORY));
        OK(umount2("n", MNT_DETACH));
        ERR(openat(fd, "d/hidden", O_RDONLY), ENOENT);
        int tree = OK(open_tree_(AT_FDCWD, "m", TREE_CLONE | TREE_RECURSIVE));
        ERR(openat(tree, "d/hidden", O_RDONLY), ENOENT);
        OK(openat(tree, "d/shown", O_RDONLY));
        fd = OK(openat(tree, ".", O_PATH | O_DIRECTORY));
        OK(close(tree));
        ERR(openat(fd, "d/hidden", O_RDONLY), ENOENT);
    });
    /* Nor does a directory of a namespace that has ended. */
    int pair[2];
    OK(pipe(pair));
    struct shared { _Atomic int fd; } *shared = SHARED(PAGE);
    GATE(ready);
    GATE(taken);
    pid_t child = FORK();
    if (child == 0) {
        enter(USER);
        shared->fd = OK(open("m", O_PATH | O_DIRECTORY));
        gate_open(&ready);
        gate_pass(&taken);
        _exit(0);
    }
    gate_pass(&ready);
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/fd/%d", child, shared->fd);
    int fd = OK(open(path, O_PATH | O_DIRECTORY));
    gate_open(&taken);
    EXITS(child, 0);
    ERR(openat(fd, "d/hidden", O_RDONLY), ENOENT);
}

TEST(a_root_is_changed_inside) {
    needs_root();
    IN_CHILD({
        enter(USER);
        OK(mount("none", "m", "tmpfs", 0, NULL));
        OK(mkdir("m/old", 0700));
        OK(mkdir("m/all", 0700));
        OK(mount("/", "m/all", NULL, MS_BIND | MS_REC, NULL));
        OK(chdir("m"));
        OK(syscall(SYS_pivot_root, ".", "old"));
        CHECK(exists("/all/proc/self") && exists("/old/proc/self"));
        OK(chdir("/"));
        OK(umount2("/old", MNT_DETACH));
        OK(rmdir("/old"));
        CHECK(exists("/all/proc/self"));
        /* Again, as programs do that must not be a superuser inside. */
        OK(unshare(CLONE_NEWUSER));
    });
}

HELPER(tell_user) { return geteuid() == 0 ? 42 : 43; }

TEST(programs_of_other_mounts_raise_nobody) {
    needs_root();
    GATE(ready);
    GATE(go);
    pid_t child = FORK();
    if (child == 0) {
        enter(0); /* root's numbers, in its own mounts */
        OK(mount("none", "m", "tmpfs", 0, "mode=755"));
        COPY(hy_self, "m/program", 0755);
        OK(chmod("m/program", 04755));
        gate_open(&ready);
        gate_pass(&go);
        _exit(0);
    }
    gate_pass(&ready);
    char path[PATH_MAX + 64];
    snprintf(path, sizeof path, "/proc/%d/root%s/m/program", child, hy_tmp);
    int fd = OK(open(path, O_PATH));
    char name[64];
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    pid_t user = FORK();
    if (user == 0) {
        BECOME(USER, USER);
        execl(name, name, "--helper", "tell_user", (char *)NULL);
        _exit(errno);
    }
    EXITS(user, 43);
    /* Nor in the same mounts, but in the outer user namespace. */
    snprintf(path, sizeof path, "/proc/%d/ns/mnt", child);
    int mounts = OK(open(path, O_RDONLY));
    user = FORK();
    if (user == 0) {
        OK(setns_(mounts, CLONE_NEWNS));
        snprintf(path, sizeof path, "%s/m/program", hy_tmp);
        BECOME(USER, USER);
        execl(path, path, "--helper", "tell_user", (char *)NULL);
        _exit(errno);
    }
    EXITS(user, 43);
    gate_open(&go);
    EXITS(child, 0);
}

TEST(devices_of_users_are_not_opened) {
    needs_root();
    GATE(ready);
    GATE(go);
    pid_t child = FORK();
    if (child == 0) {
        enter(0);
        OK(mount("none", "m", "tmpfs", 0, "mode=777"));
        ERR(mknod("m/own", S_IFCHR | 0666, makedev(1, 3)), EPERM);
        gate_open(&ready);
        gate_pass(&go);
        ERR(open("m/null", O_RDONLY), EACCES);
        _exit(0);
    }
    gate_pass(&ready);
    char path[PATH_MAX + 64];
    snprintf(path, sizeof path, "/proc/%d/root%s/m/null", child, hy_tmp);
    OK(mknod(path, S_IFCHR | 0666, makedev(1, 3)));
    ERR(open(path, O_RDONLY), EACCES);
    gate_open(&go);
    EXITS(child, 0);
}

TEST(nobody_goes_back_to_outer_mounts) {
    needs_root();
    int mounts = OK(open("/proc/self/ns/mnt", O_RDONLY));
    int place = OK(open("m", O_PATH | O_DIRECTORY));
    IN_CHILD({
        enter(USER);
        ERR(setns_(mounts, CLONE_NEWNS), EPERM);
        /* By a descriptor from there, nothing is changed there. */
        char path[64];
        snprintf(path, sizeof path, "/proc/self/fd/%d", place);
        ERR(mount("none", path, "tmpfs", 0, NULL), EINVAL);
        ERR(mount(path, "m", NULL, MS_BIND, NULL), EINVAL);
    });
    OK(rmdir("m"));
}

TEST(trees_are_made_and_moved_inside) {
    needs_root();
    IN_CHILD({
        enter(USER);
        int context = OK(syscall(SYS_fsopen, "tmpfs", 0));
        OK(syscall(SYS_fsconfig, context, 6, NULL, NULL, 0));
        int tree = OK(syscall(SYS_fsmount, context, 0, 0));
        OK(close(context));
        OK(syscall(SYS_move_mount, tree, "", AT_FDCWD, "m", 4));
        PUT("m/f", "");
        struct stat st;
        OK(stat("m", &st));
        CHECK_EQ(st.st_uid, 0);
        context = (int)syscall(SYS_fsopen, "proc", 0);
        if (context != -1)
            ERR(syscall(SYS_fsconfig, context, 6, NULL, NULL, 0), EPERM);
        OK(close(tree));
        int copy = OK(open_tree_(AT_FDCWD, "m", TREE_CLONE));
        OK(umount("m"));
        OK(syscall(SYS_move_mount, copy, "", AT_FDCWD, "m", 4));
        CHECK(exists("m/f"));
    });
    CHECK(!exists("m/f"));
}

TEST(namespaces_lie_in_each_other) {
    needs_root();
    IN_CHILD({
        enter(USER);
        OK(mount("none", "m", "tmpfs", MS_NODEV, "mode=777"));
        PUT("m/f", "");
        OK(prctl(PR_SET_DUMPABLE, 1, 0, 0, 0));
        OK(unshare(CLONE_NEWUSER | CLONE_NEWNS));
        put("uid_map", "0 0 1");
        ERR(umount("m"), EINVAL);
        ERR(mount("none", "m", NULL, MS_REMOUNT | MS_BIND, NULL), EPERM);
        OK(mount("none", "m", "tmpfs", 0, NULL));
        CHECK(!exists("m/f"));
        OK(umount("m"));
        CHECK(exists("m/f"));
    });
}
