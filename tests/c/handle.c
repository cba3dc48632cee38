/* File handles: name_to_handle_at(2), open_by_handle_at(2). procfs gives none, on Linux as here;
 * tmpfs, ext4 and cgroup2 do. The cases about ext4 work on the disk whose serial number is
 * `handle`, or in the directory's own file system if it is one. */
#define AREA "handle"
#include "disk.h"

#include <sys/statfs.h>

#ifndef AT_EMPTY_PATH
#define AT_EMPTY_PATH 0x1000
#endif
#ifndef AT_SYMLINK_FOLLOW
#define AT_SYMLINK_FOLLOW 0x400
#endif

struct handle {
    uint32_t bytes;
    int32_t kind;
    unsigned char content[128];
};

static long name(int directory, const char *path, void *handle, void *mount, int flags) {
    return syscall(SYS_name_to_handle_at, directory, path, handle, mount, flags);
}
static long open_by(int mount, void *handle, int flags) {
    return syscall(SYS_open_by_handle_at, mount, handle, flags);
}

TEST(procfs_has_none) {
    struct handle handle = {.bytes = 128};
    int mount = -7, file = OK(open("/proc/self/stat", O_RDONLY));
    ERR(name(AT_FDCWD, "/proc", &handle, &mount, 0), EOPNOTSUPP);
    ERR(name(AT_FDCWD, "/proc/self", &handle, &mount, 0), EOPNOTSUPP);
    ERR(name(AT_FDCWD, "/proc/self/stat", &handle, &mount, AT_SYMLINK_FOLLOW), EOPNOTSUPP);
    ERR(name(file, "", &handle, &mount, AT_EMPTY_PATH), EOPNOTSUPP);
    CHECK_EQ(mount, -7);
    CHECK_EQ(handle.bytes, 128);
}

TEST(name_errors) {
    struct handle handle = {.bytes = 128};
    int mount;
    OK(symlink("nowhere", "link"));
    ERR(name(AT_FDCWD, "/proc", &handle, &mount, 0x100), EINVAL);
    ERR(name(AT_FDCWD, "/proc", &handle, &mount, 0x800), EINVAL);
    ERR(name(AT_FDCWD, "none", &handle, &mount, 0), ENOENT);
    ERR(name(AT_FDCWD, "link", &handle, &mount, AT_SYMLINK_FOLLOW), ENOENT);
    ERR(name(AT_FDCWD, "", &handle, &mount, 0), ENOENT);
    ERR(name(AT_FDCWD, "/proc/self/stat/x", &handle, &mount, 0), ENOTDIR);
    ERR(name(AT_FDCWD, BAD, &handle, &mount, 0), EFAULT);
    ERR(name(999, "x", &handle, &mount, 0), EBADF);
    ERR(name(999, "", &handle, &mount, AT_EMPTY_PATH), EBADF);
}

/* ---- file systems that have handles -------------------------------------------------------- */

/* Goes into a tmpfs of the case's own. */
static void in_tmpfs(void) {
    if (geteuid() != 0)
        SKIP("not root");
    OK(unshare(CLONE_NEWNS));
    OK(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL));
    OK(mkdir("t", 0755));
    OK(mount("none", "t", "tmpfs", 0, NULL));
    OK(chdir("t"));
}

static char own[32]; /* the directory of a case on an ext4 */

static void in_ext4(void) {
    char node[64];
    struct statfs about;
    if (geteuid() != 0)
        SKIP("not root");
    OK(unshare(CLONE_NEWNS));
    OK(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL));
    if (find_disk("handle", node, sizeof node)) {
        OK(mkdir("files", 0755));
        OK(mount(node, "files", "ext4", 0, NULL));
        OK(chdir("files"));
    }
    OK(statfs(".", &about));
    if (about.f_type != 0xEF53)
        SKIP("this is no ext4, and there is no disk `handle`");
    /* Other cases have the disk, too. */
    snprintf(own, sizeof own, "hy-%d", getpid());
    OK(mkdir(own, 0755));
    OK(chdir(own));
}

/* The handle of a file. */
static struct handle of_place(int directory, const char *path, int flags) {
    struct handle handle = {.bytes = sizeof handle.content};
    int mount = -1;
    OK(name(directory, path, &handle, &mount, flags));
    CHECK(mount > 0);
    return handle;
}
static struct handle of(const char *path) { return of_place(AT_FDCWD, path, 0); }

static bool same(struct handle one, struct handle other) {
    return one.bytes == other.bytes && one.kind == other.kind &&
           memcmp(one.content, other.content, one.bytes) == 0;
}

static int by(struct handle handle, int flags) {
    int here = OK(open(".", O_RDONLY | O_DIRECTORY)), fd = (int)open_by(here, &handle, flags);
    int error = errno;
    close(here);
    errno = error;
    return fd;
}

static void is_file(int fd, const char *path) {
    struct stat one, other;
    OK(fstat(fd, &one));
    OK(lstat(path, &other));
    CHECK(one.st_ino == other.st_ino && one.st_dev == other.st_dev);
}

/* The number of the mount of the current directory. */
static int mount_here(void) {
    char path[64], text[512];
    int here = OK(open(".", O_RDONLY | O_DIRECTORY));
    snprintf(path, sizeof path, "/proc/self/fdinfo/%d", here);
    CHECK(get_file(path, text, sizeof text) > 0);
    close(here);
    char *found = strstr(text, "mnt_id:");
    CHECK(found != NULL);
    return atoi(found + 7);
}

/* What all file systems with handles have in common. */
static void common(uint32_t bytes, int kind) {
    PUT("f", "content");
    OK(mkdir("d", 0755));
    OK(mkdir("d/e", 0755));
    PUT("d/e/g", "deep");
    OK(symlink("f", "l"));
    OK(link("f", "again"));
    /* How long it is, and whose. */
    for (uint32_t size = 0; size < bytes; size += 4) {
        struct handle asked = {.bytes = size, .content = {[0 ... 127] = 0x5a}};
        int mount = -7;
        ERR(name(AT_FDCWD, "f", &asked, &mount, 0), EOVERFLOW);
        CHECK_EQ(asked.bytes, bytes);
        CHECK_EQ(asked.content[0], 0x5a);
        CHECK_EQ(mount, mount_here());
    }
    struct handle handle = {.bytes = bytes + 3}, file = of("f");
    int mount = -7;
    OK(name(AT_FDCWD, "f", &handle, &mount, 0));
    CHECK_EQ(handle.bytes, bytes);
    CHECK_EQ(handle.kind, kind);
    CHECK_EQ(mount, mount_here());
    CHECK(same(handle, file));
    handle.bytes = 129;
    ERR(name(AT_FDCWD, "f", &handle, &mount, 0), EINVAL);
    ERR(name(AT_FDCWD, "f", BAD, &mount, 0), EFAULT);
    ERR(name(AT_FDCWD, "f", &file, BAD, 0), EFAULT);
    file = of("f");
    /* It is the file's, whatever its names. */
    CHECK(same(file, of("again")));
    CHECK(!same(file, of("d")) && !same(file, of("l")));
    CHECK(same(file, of_place(AT_FDCWD, "l", AT_SYMLINK_FOLLOW)));
    int fd = OK(open("f", O_PATH));
    CHECK(same(file, of_place(fd, "", AT_EMPTY_PATH)));
    close(fd);
    OK(rename("f", "d/renamed"));
    CHECK(same(file, of("d/renamed")));
    /* Opened by it. */
    char text[16] = "";
    fd = OK(by(file, O_RDWR | O_CLOEXEC));
    CHECK_EQ(OK(fcntl(fd, F_GETFD)), FD_CLOEXEC);
    is_file(fd, "d/renamed");
    CHECK_EQ(OK(read(fd, text, sizeof text)), 7);
    CHECK_STR(text, "content");
    OK(pwrite(fd, "C", 1, 0));
    close(fd);
    get_file("again", text, sizeof text);
    CHECK_STR(text, "Content");
    fd = OK(by(file, O_PATH));
    is_file(fd, "again");
    ERR(read(fd, text, 1), EBADF);
    ERR(open_by(fd, &file, O_RDONLY), EBADF); /* a place alone names no file system */
    close(fd);
    ERR(by(file, O_RDONLY | O_DIRECTORY), ENOTDIR);
    fd = OK(by(file, O_WRONLY | O_TRUNC));
    close(fd);
    CHECK_EQ(get_file("again", text, sizeof text), 0);
    /* A link itself. */
    ERR(by(of("l"), O_RDONLY), ELOOP);
    fd = OK(by(of("l"), O_PATH));
    is_file(fd, "l");
    close(fd);
    /* A directory, and on from there. */
    struct handle deep = of("d/e");
    OK(rename("d/e", "d/moved"));
    fd = OK(by(deep, O_RDONLY | O_DIRECTORY));
    is_file(fd, "d/moved");
    int inner = OK(openat(fd, "g", O_RDONLY));
    CHECK_EQ(OK(read(inner, text, sizeof text)), 4);
    close(inner);
    inner = OK(openat(fd, "../renamed", O_RDONLY));
    is_file(inner, "again");
    close(inner);
    int new = OK(openat(fd, "new", O_WRONLY | O_CREAT | O_EXCL, 0600));
    is_file(new, "d/moved/new");
    close(new);
    char link[PATH_MAX] = "", wanted[PATH_MAX], path[64];
    CHECK(getcwd(wanted, sizeof wanted - 16) != NULL);
    strcat(wanted, "/d/moved");
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    OK(readlink(path, link, sizeof link - 1));
    CHECK_STR(link, wanted);
    close(fd);
    ERR(by(deep, O_RDWR), EISDIR);
    fd = OK(by(of("."), O_RDONLY));
    is_file(fd, ".");
    close(fd);
    /* From a mount that has another file system. */
    int proc = OK(open("/proc", O_RDONLY));
    ERR(open_by(proc, &file, O_RDONLY), ESTALE);
    close(proc);
    /* By whom. */
    int here = OK(open(".", O_RDONLY));
    IN_CHILD({
        BECOME(NOBODY, NOBODY);
        struct handle mine = of("again");
        CHECK(same(mine, file));
        ERR(open_by(here, &file, O_RDONLY), EPERM);
    });
    close(here);
    /* Not its own content. */
    for (uint32_t at = 0; at < bytes; at++) {
        struct handle other = file;
        other.content[at] ^= 0x41;
        ERR(by(other, O_RDONLY), ESTALE);
    }
    struct handle part = file;
    part.bytes = bytes - 4;
    ERR(by(part, O_RDONLY), ESTALE);
    memset(&part.content, 0, sizeof part.content);
    part.bytes = bytes;
    ERR(by(part, O_RDONLY), ESTALE);
}

/* Removed files, and others with their numbers. */
static void gone(void) {
    PUT("f", "content");
    struct handle file = of("f");
    int fd = OK(open("f", O_RDONLY));
    OK(unlink("f"));
    int again = OK(by(file, O_RDONLY)); /* as long as somebody has it */
    char text[16] = "";
    CHECK_EQ(OK(read(again, text, sizeof text)), 7);
    close(fd);
    close(again);
    sync();
    ERR(by(file, O_RDONLY), ESTALE);
    OK(mkdir("d", 0755));
    struct handle directory = of("d");
    OK(rmdir("d"));
    ERR(by(directory, O_RDONLY), ESTALE);
    static struct handle many[40];
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 40; i++) {
            char path[16];
            snprintf(path, sizeof path, "%d", i);
            PUT(path, "x");
            struct handle now = of(path);
            for (int j = 0; j < 40 && round > 0; j++)
                CHECK(!same(now, many[j]));
            close(OK(by(now, O_RDONLY)));
            OK(unlink(path));
            ERR(by(now, O_RDONLY), ESTALE);
            many[i] = now;
        }
        ERR(by(file, O_RDONLY), ESTALE);
    }
}

TEST(tmpfs_has_handles) {
    in_tmpfs();
    common(12, 1);
}

TEST(tmpfs_forgets_what_is_gone) {
    in_tmpfs();
    gone();
}

TEST(a_bound_directory_of_a_tmpfs) {
    /* A handle is of the file system, not of the mount that it is opened from. */
    in_tmpfs();
    OK(mkdir("a", 0755));
    OK(mkdir("b", 0755));
    OK(mkdir("a/in", 0755));
    PUT("a/in/f", "content");
    OK(mount("b", "b", NULL, MS_BIND, NULL));
    int bound = OK(open("b", O_RDONLY));
    struct handle file = of("a/in/f"), directory = of("a/in");
    int fd = OK((int)open_by(bound, &file, O_RDONLY));
    is_file(fd, "a/in/f");
    fd = OK((int)open_by(bound, &directory, O_RDONLY));
    is_file(fd, "a/in");
    int up = openat(fd, "../../..", O_RDONLY | O_DIRECTORY); /* out of the mount */
    CHECK(up != -1 || errno == ENOENT);
    /* The rights are those of the mount. */
    OK(mount(NULL, "b", NULL, MS_BIND | MS_REMOUNT | MS_RDONLY, NULL));
    ERR(open_by(bound, &file, O_RDWR), EROFS);
}

TEST(names_that_are_not_cached) {
    NEEDS_OWN_MACHINE();
    in_tmpfs();
    char path[512] = ".";
    for (int i = 0; i < 30; i++) {
        strcat(path, "/dir");
        OK(mkdir(path, 0755));
        char side[520];
        snprintf(side, sizeof side, "%s/side", path);
        OK(mkdir(side, 0755));
    }
    struct handle directory = of(path);
    int caches = OK(open("/proc/sys/vm/drop_caches", O_WRONLY));
    CHECK_EQ(OK(write(caches, "3\n", 2)), 2);
    close(caches);
    int fd = OK(by(directory, O_RDONLY));
    is_file(fd, path);
    int up = OK(openat(fd, "../../..", O_RDONLY));
    close(OK(openat(up, "dir/dir/dir/side", O_RDONLY)));
}

TEST(ext4_has_handles) {
    in_ext4();
    common(8, 1);
}

TEST(ext4_forgets_what_is_gone) {
    in_ext4();
    gone();
}

TEST(ext4_after_it_was_mounted_again) {
    char node[64];
    if (geteuid() != 0 || !find_disk("handle", node, sizeof node))
        SKIP("no disk `handle`");
    in_ext4();
    OK(mkdir("deep", 0755));
    OK(mkdir("deep/er", 0755));
    PUT("deep/er/f", "content");
    OK(link("deep/er/f", "f"));
    struct handle file = of("f"), directory = of("deep/er");
    OK(unlink("f"));
    for (int flags = 0; flags <= MS_RDONLY; flags++) {
        OK(chdir("../.."));
        OK(umount("files"));
        OK(mount(node, "files", "ext4", (unsigned long)flags, NULL));
        OK(chdir("files"));
        OK(chdir(own));
        int fd = OK(by(file, O_RDONLY));
        char text[16] = "";
        CHECK_EQ(OK(read(fd, text, sizeof text)), 7);
        is_file(fd, "deep/er/f");
        close(fd);
        CHECK(same(file, of("deep/er/f")));
        fd = OK(by(directory, O_RDONLY));
        is_file(fd, "deep/er");
        close(OK(openat(fd, "../er/f", O_RDONLY)));
        close(fd);
    }
}

TEST(cgroup2_has_handles) {
    if (geteuid() != 0)
        SKIP("not root");
    OK(unshare(CLONE_NEWNS));
    OK(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL));
    OK(mkdir("groups", 0755));
    if (mount("none", "groups", "cgroup2", 0, NULL) == -1)
        SKIP("no cgroup2: %s", strerror(errno));
    OK(chdir("groups"));
    char group[32], inner[48];
    snprintf(group, sizeof group, "hy-handle-%d", getpid());
    snprintf(inner, sizeof inner, "%s/in", group);
    if (mkdir(group, 0755) == -1)
        SKIP("no group is made: %s", strerror(errno));
    int made = mkdir(inner, 0755);
    /* The group's number, by which tools know it. */
    struct handle handle = {.bytes = 0};
    struct stat st;
    int mount = -7, result = (int)name(AT_FDCWD, inner, &handle, &mount, 0), error = errno;
    struct handle directory = {.bytes = 128}, file = {.bytes = 128};
    int named = (int)name(AT_FDCWD, inner, &directory, &mount, 0);
    uint64_t number;
    memcpy(&number, directory.content, sizeof number);
    int is_there = stat(inner, &st), here = open(".", O_RDONLY);
    int fd = (int)open_by(here, &directory, O_RDONLY | O_DIRECTORY);
    int events = fd == -1 ? -1 : openat(fd, "cgroup.events", O_RDONLY);
    int told = (int)name(events, "", &file, &mount, AT_EMPTY_PATH);
    int again = told == -1 ? -1 : (int)open_by(here, &file, O_RDONLY);
    char text[256] = "";
    ssize_t length = again == -1 ? -1 : read(again, text, sizeof text - 1);
    close(fd);
    close(events);
    close(again);
    close(here);
    /* Nothing is left behind, whatever was found: memory for it may be refused, once. */
    int removed = rmdir(inner), outer = 0;
    if (removed == -1)
        removed = rmdir(inner);
    if (rmdir(group) == -1)
        outer = rmdir(group);
    CHECK(made == 0 && removed == 0 && outer == 0 && named == 0 && told == 0);
    CHECK(result == -1 && error == EOVERFLOW);
    CHECK_EQ(handle.bytes, 8);
    CHECK(mount > 0);
    CHECK_EQ(directory.bytes, 8);
    CHECK_EQ(directory.kind, 0xfe);
    CHECK_EQ(is_there, 0);
    CHECK_EQ(number, st.st_ino);
    CHECK(fd != -1 && events != -1 && again != -1);
    CHECK(!same(file, directory));
    CHECK(length > 0 && strstr(text, "populated 0"));
    ERR(by(directory, O_RDONLY), ESTALE);
    ERR(by(file, O_RDONLY), ESTALE);
    directory = of(".");
    memcpy(&number, directory.content, sizeof number);
    OK(stat(".", &st));
    CHECK_EQ(number, st.st_ino);
    close(OK(by(directory, O_RDONLY)));
    directory.content[7] ^= 1;
    ERR(by(directory, O_RDONLY), ESTALE);
}

TEST(open_errors) {
    struct handle handle = {.bytes = 8, .kind = 1};
    if (geteuid() != 0)
        SKIP("not root");
    int proc = OK(open("/proc", O_RDONLY | O_DIRECTORY));
    ERR(open_by(proc, BAD, O_RDONLY), EFAULT);
    handle.bytes = 0;
    ERR(open_by(proc, &handle, O_RDONLY), EINVAL);
    handle.bytes = 129;
    ERR(open_by(proc, &handle, O_RDONLY), EINVAL);
    handle.bytes = 8;
    ERR(open_by(proc, &handle, O_RDONLY), ESTALE);
    ERR(open_by(999, &handle, O_RDONLY), EBADF);
    IN_CHILD({
        BECOME(NOBODY, NOBODY);
        ERR(open_by(proc, &handle, O_RDONLY), EPERM);
    });
}
