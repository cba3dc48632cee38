/* Mounts by descriptors: a file system is configured, made, mounted where no name reaches it, and then
 * attached (fsopen(2), fsconfig(2), fsmount(2), fspick(2), open_tree(2), move_mount(2),
 * mount_setattr(2)). */
#define AREA "mounttree"
#include "harness.h"
#include <sys/statvfs.h>

/* include/uapi/linux/mount.h; the C libraries of some systems have none of it. */
enum { FLAG, STRING, BINARY, PATH, PATH_EMPTY, DESCRIPTOR, MAKE, CHANGE };
enum { RDONLY = 1, NOSUID = 2, NODEV = 4, NOEXEC = 8, ATIME = 0x70, NOATIME = 0x10, NODIRATIME = 0x80 };
enum { CLONE_TREE = 1, RECURSIVE = 0x8000, FROM_EMPTY = 4, TO_EMPTY = 0x40 };

struct attributes {
    uint64_t set, clear, propagation, namespace;
};

static int fs_open(const char *name, unsigned flags) {
    return (int)syscall(SYS_fsopen, name, flags);
}

static int configure(int fd, unsigned command, const void *key, const void *value, int extra) {
    return (int)syscall(SYS_fsconfig, fd, command, key, value, extra);
}

static int fs_mount(int fd, unsigned flags, unsigned attributes) {
    return (int)syscall(SYS_fsmount, fd, flags, attributes);
}

static int fs_pick(int fd, const char *path, unsigned flags) {
    return (int)syscall(SYS_fspick, fd, path, flags);
}

static int open_tree_at(int fd, const char *path, unsigned flags) {
    return (int)syscall(SYS_open_tree, fd, path, flags);
}

static int move(int from, const char *path, int to, const char *target, unsigned flags) {
    return (int)syscall(SYS_move_mount, from, path, to, target, flags);
}

static int set_attributes(int fd, const char *path, unsigned flags, const void *to, size_t size) {
    return (int)syscall(SYS_mount_setattr, fd, path, flags, to, size);
}

/* A name space of its own on Linux, whose mounts are private; the directory "m". */
static void prepare(void) {
    if (geteuid() != 0)
        SKIP("not root");
    if (syscall(SYS_unshare, CLONE_NEWNS) == 0)
        ZERO(mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL));
    ZERO(mkdir("m", 0755));
}

/* A tmpfs that is made and mounted nowhere. */
static int loose(unsigned attributes) {
    int fs = OK(fs_open("tmpfs", 0));
    ZERO(configure(fs, STRING, "source", "here", 0));
    ZERO(configure(fs, STRING, "size", "1m", 0));
    ZERO(configure(fs, MAKE, NULL, NULL, 0));
    int fd = OK(fs_mount(fs, 1, attributes));
    close(fs);
    return fd;
}

/* The line of /proc/self/mounts about a mount at this path below the directory; NULL: none. */
static const char *listed(const char *below) {
    static char line[1024];
    char wanted[PATH_MAX];
    CHECK(getcwd(wanted, sizeof wanted - 64) != NULL);
    strcat(wanted, below);
    FILE *mounts = fopen("/proc/self/mounts", "r");
    const char *found = NULL;
    while (!found && fgets(line, sizeof line, mounts)) {
        char path[512];
        if (sscanf(line, "%*s %511s", path) == 1 && strcmp(path, wanted) == 0)
            found = line;
    }
    fclose(mounts);
    return found;
}

static unsigned long flags_of(const char *path) {
    struct statvfs st;
    ZERO(statvfs(path, &st));
    return st.f_flag;
}

TEST(a_file_system_is_made_and_attached) {
    prepare();
    int fd = loose(NOSUID | NODEV);
    CHECK_EQ(fcntl(fd, F_GETFD), FD_CLOEXEC);
    CHECK_EQ(fcntl(fd, F_GETFL) & O_PATH, O_PATH);
    /* It is used before any name reaches it. */
    int file = OK(openat(fd, "f", O_RDWR | O_CREAT, 0600));
    CHECK_EQ(write(file, "content", 7), 7);
    close(file);
    CHECK(!listed("/m"));
    ZERO(move(fd, "", AT_FDCWD, "m", FROM_EMPTY));
    const char *line = listed("/m");
    CHECK(line && strncmp(line, "here ", 5) == 0 && strstr(line, " tmpfs rw,nosuid,nodev"));
    CHECK(strstr(line, "size=1024k"));
    struct stat st;
    ZERO(stat("m/f", &st));
    CHECK_EQ(st.st_size, 7);
    CHECK_EQ(flags_of("m") & (ST_NOSUID | ST_NODEV | ST_NOEXEC), ST_NOSUID | ST_NODEV);
    ERR(umount2("m", 0), EBUSY); /* The descriptor is in it. */
    close(fd);
    ZERO(stat("m/f", &st));
    ZERO(umount2("m", 0));
    ERR(stat("m/f", &st), ENOENT);
}

TEST(options_are_set_one_by_one) {
    prepare();
    ERR(fs_open("tmpfs", 2), EINVAL);
    ERR(fs_open("nosuchfs", 0), ENODEV);
    ERR(fs_open(BAD, 0), EFAULT);
    int fs = OK(fs_open("tmpfs", 1));
    CHECK_EQ(fcntl(fs, F_GETFD), FD_CLOEXEC);
    char text[64];
    ERR(read(fs, text, sizeof text), ENODATA); /* no messages */
    ERR(configure(-1, FLAG, "ro", NULL, 0), EINVAL);
    ERR(configure(9999, FLAG, "ro", NULL, 0), EBADF);
    int other = OK(open("/dev/null", O_RDWR));
    ERR(configure(other, FLAG, "ro", NULL, 0), EINVAL);
    ERR(configure(fs, 99, "ro", NULL, 0), EOPNOTSUPP);
    ERR(configure(fs, FLAG, NULL, NULL, 0), EINVAL);
    ERR(configure(fs, FLAG, "ro", "x", 0), EINVAL);
    ERR(configure(fs, FLAG, "ro", NULL, 1), EINVAL);
    ERR(configure(fs, STRING, "size", NULL, 0), EINVAL);
    ERR(configure(fs, STRING, NULL, "1m", 0), EINVAL);
    ERR(configure(fs, STRING, "size", "1m", 1), EINVAL);
    ERR(configure(fs, STRING, BAD, "1m", 0), EFAULT);
    ERR(configure(fs, STRING, "size", BAD, 0), EFAULT);
    ERR(configure(fs, BINARY, "size", "1m", 0), EINVAL);
    ERR(configure(fs, PATH, "size", "m", -1), EINVAL);
    ERR(configure(fs, DESCRIPTOR, "size", "m", 0), EINVAL);
    ERR(configure(fs, DESCRIPTOR, "size", NULL, -1), EINVAL);
    ERR(configure(fs, MAKE, "size", NULL, 0), EINVAL);
    ERR(configure(fs, CHANGE, NULL, NULL, 1), EINVAL);
    char longer[300];
    memset(longer, 'a', sizeof longer);
    longer[sizeof longer - 1] = 0;
    ERR(configure(fs, FLAG, longer, NULL, 0), EINVAL);
    ERR(configure(fs, STRING, "size", longer, 0), EINVAL);
    ZERO(configure(fs, STRING, "source", "one", 0));
    ERR(configure(fs, STRING, "source", "two", 0), EINVAL);
    ERR(configure(fs, CHANGE, NULL, NULL, 0), EBUSY);
    ERR(fs_mount(fs, 0, 0), EINVAL); /* It is not made yet. */
    ZERO(configure(fs, STRING, "mode", "0711", 0));
    ZERO(configure(fs, FLAG, "ro", NULL, 0));
    ZERO(configure(fs, FLAG, "rw", NULL, 0));
    ZERO(configure(fs, MAKE, NULL, NULL, 0));
    ERR(configure(fs, MAKE, NULL, NULL, 0), EBUSY);
    ERR(configure(fs, FLAG, "ro", NULL, 0), EBUSY);
    ERR(fs_mount(fs, 2, 0), EINVAL);
    ERR(fs_mount(fs, 0, 0x30), EINVAL);
    ERR(fs_mount(fs, 0, 0x80000000), EINVAL);
    ERR(fs_mount(other, 0, 0), EINVAL);
    ERR(fs_mount(9999, 0, 0), EBADF);
    int fd = OK(fs_mount(fs, 0, NOATIME | NODIRATIME));
    ERR(fs_mount(fs, 0, 0), EBUSY);
    struct stat st;
    ZERO(fstat(fd, &st));
    CHECK_EQ(st.st_mode & 07777, 0711);
}

TEST(an_unknown_option_makes_no_file_system) {
    prepare();
    int fs = OK(fs_open("tmpfs", 0));
    /* It is refused at once, or when the file system is made; after that nothing is possible. */
    if (configure(fs, FLAG, "nosuchoption", NULL, 0) == 0) {
        ERR(configure(fs, MAKE, NULL, NULL, 0), EINVAL);
        ERR(configure(fs, FLAG, "ro", NULL, 0), EBUSY);
        ERR(fs_mount(fs, 0, 0), EINVAL);
    } else {
        CHECK_EQ(errno, EINVAL);
    }
    fs = OK(fs_open("ext4", 0));
    ERR(configure(fs, MAKE, NULL, NULL, 0), EINVAL); /* without a device */
    ERR(configure(fs, MAKE, NULL, NULL, 0), EBUSY);
}

TEST(what_is_never_attached_ends_with_its_descriptor) {
    prepare();
    int fd = loose(0);
    ZERO(mkdirat(fd, "inside", 0755));
    int file = OK(openat(fd, "f", O_RDWR | O_CREAT, 0600));
    close(fd);
    /* A file that is open in it can be used on. */
    CHECK_EQ(write(file, "x", 1), 1);
    close(file);
    fd = loose(0);
    int twin = OK(dup(fd));
    close(fd);
    ZERO(move(twin, "", AT_FDCWD, "m", FROM_EMPTY));
    CHECK(listed("/m"));
    ERR(move(twin, "", AT_FDCWD, "m", FROM_EMPTY), ELOOP); /* into itself */
    close(twin);
    ZERO(umount2("m", 0));
}

TEST(a_part_of_the_tree_is_copied) {
    prepare();
    ZERO(mount("tmpfs", "m", "tmpfs", 0, NULL));
    ZERO(mkdir("m/a", 0755));
    ZERO(mkdir("m/a/b", 0755));
    ZERO(mount("tmpfs", "m/a/b", "tmpfs", 0, NULL));
    PUT("m/a/b/deep", "x");
    PUT("m/a/f", "y");
    ERR(open_tree_at(AT_FDCWD, "m/a", RECURSIVE), EINVAL);
    ERR(open_tree_at(AT_FDCWD, "m/a", 0x10000), EINVAL);
    ERR(open_tree_at(AT_FDCWD, "m/none", CLONE_TREE), ENOENT);
    ERR(open_tree_at(9999, "m", CLONE_TREE), EBADF);
    ERR(open_tree_at(AT_FDCWD, BAD, CLONE_TREE), EFAULT);
    ERR(open_tree_at(AT_FDCWD, "", CLONE_TREE), ENOENT);

    int one = OK(open_tree_at(AT_FDCWD, "m/a", CLONE_TREE));
    int all = OK(open_tree_at(AT_FDCWD, "m/a", CLONE_TREE | RECURSIVE | O_CLOEXEC));
    CHECK_EQ(fcntl(one, F_GETFD), 0);
    CHECK_EQ(fcntl(all, F_GETFD), FD_CLOEXEC);
    struct stat st;
    ZERO(fstatat(one, "f", &st, 0));
    ERR(fstatat(one, "b/deep", &st, 0), ENOENT);
    ZERO(fstatat(all, "b/deep", &st, 0));

    ZERO(mkdir("n", 0755));
    ZERO(move(all, "", AT_FDCWD, "n", FROM_EMPTY));
    ZERO(stat("n/b/deep", &st));
    CHECK(listed("/n") && listed("/n/b"));
    ERR(umount2("n", 0), EBUSY);
    close(all);
    ERR(umount2("n", 0), EBUSY); /* because of n/b */
    ZERO(umount2("n/b", 0));
    ZERO(umount2("n", 0));
    close(one);
    ZERO(umount2("m/a/b", 0));
    ZERO(umount2("m", 0));
}

TEST(a_place_is_opened_without_a_copy) {
    prepare();
    PUT("m/f", "content");
    ZERO(symlink("f", "m/l"));
    int fd = OK(open_tree_at(AT_FDCWD, "m/l", AT_SYMLINK_NOFOLLOW));
    struct stat st;
    ZERO(fstatat(fd, "", &st, AT_EMPTY_PATH));
    CHECK(S_ISLNK(st.st_mode));
    close(fd);
    fd = OK(open_tree_at(AT_FDCWD, "m/l", 0));
    ZERO(fstat(fd, &st));
    CHECK_EQ(st.st_size, 7);
    char text[4];
    ERR(read(fd, text, 4), EBADF);
    int again = OK(open_tree_at(fd, "", AT_EMPTY_PATH));
    close(again);
    close(fd);
    IN_CHILD({
        BECOME(NOBODY, NOBODY);
        close(OK(open_tree_at(AT_FDCWD, "m", 0))); /* needs no privilege */
        ERR(open_tree_at(AT_FDCWD, "m", CLONE_TREE), EPERM);
    });
}

TEST(mounts_are_moved) {
    prepare();
    ZERO(mount("tmpfs", "m", "tmpfs", 0, NULL));
    ZERO(mkdir("n", 0755));
    ZERO(mkdir("m/inside", 0755));
    PUT("file", "");
    ZERO(symlink("m", "link"));
    ERR(move(AT_FDCWD, "m", AT_FDCWD, "n", 0x400), EINVAL);
    ERR(move(AT_FDCWD, "n", AT_FDCWD, "m", 0), EINVAL); /* nothing is mounted there */
    ERR(move(AT_FDCWD, "m", AT_FDCWD, "file", 0), EINVAL);
    ERR(move(AT_FDCWD, "m", AT_FDCWD, "m/inside", 0), ELOOP);
    ERR(move(AT_FDCWD, "none", AT_FDCWD, "n", 0), ENOENT);
    ERR(move(AT_FDCWD, "m", AT_FDCWD, "none", 0), ENOENT);
    ERR(move(AT_FDCWD, "m", AT_FDCWD, "", 0), ENOENT);
    ERR(move(AT_FDCWD, BAD, AT_FDCWD, "n", 0), EFAULT);
    ERR(move(9999, "m", AT_FDCWD, "n", 0), EBADF);
    ERR(move(AT_FDCWD, "link", AT_FDCWD, "n", 0), EINVAL); /* the link itself */
    int to = OK(open("n", O_PATH));
    ZERO(move(AT_FDCWD, "link", to, "", 1 | TO_EMPTY));
    close(to);
    CHECK(listed("/n") && !listed("/m"));
    int inside = OK(open("n/inside", O_PATH));
    ERR(move(inside, "", AT_FDCWD, "m", FROM_EMPTY), EINVAL);
    close(inside);
    int mounted = OK(open("n", O_PATH));
    ZERO(umount2("n", MNT_DETACH));
    ERR(move(mounted, "", AT_FDCWD, "m", FROM_EMPTY), EINVAL); /* it was unmounted */
    close(mounted);
}

TEST(a_mounted_file_system_is_changed) {
    prepare();
    ZERO(mount("tmpfs", "m", "tmpfs", 0, "size=1m"));
    ZERO(mkdir("m/inside", 0755));
    ERR(fs_pick(AT_FDCWD, "m/inside", 0), EINVAL);
    ERR(fs_pick(AT_FDCWD, "none", 0), ENOENT);
    ERR(fs_pick(9999, "m", 0), EBADF);
    ERR(fs_pick(AT_FDCWD, BAD, 0), EFAULT);
    ERR(fs_pick(AT_FDCWD, "m", 0x10), EINVAL);
    int fs = OK(fs_pick(AT_FDCWD, "m", 1));
    CHECK_EQ(fcntl(fs, F_GETFD), FD_CLOEXEC);
    ERR(configure(fs, MAKE, NULL, NULL, 0), EBUSY);
    ZERO(configure(fs, STRING, "size", "2m", 0));
    ZERO(configure(fs, CHANGE, NULL, NULL, 0));
    CHECK(strstr(listed("/m"), "size=2048k"));
    ZERO(configure(fs, FLAG, "ro", NULL, 0));
    ZERO(configure(fs, CHANGE, NULL, NULL, 0));
    ERR(open("m/f", O_RDWR | O_CREAT, 0600), EROFS);
    CHECK(strstr(listed("/m"), "size=2048k")); /* what is not spoken of stays */
    ZERO(configure(fs, FLAG, "rw", NULL, 0));
    ZERO(configure(fs, CHANGE, NULL, NULL, 0));
    close(OK(open("m/f", O_RDWR | O_CREAT, 0600)));
    close(fs);
    int place = OK(open("m", O_PATH));
    fs = OK(fs_pick(place, "", 8));
    close(place);
    close(fs);
    ZERO(umount2("m", 0));
}

TEST(flags_of_mounts_are_changed) {
    prepare();
    ZERO(mount("tmpfs", "m", "tmpfs", 0, NULL));
    ZERO(mkdir("m/b", 0755));
    ZERO(mount("tmpfs", "m/b", "tmpfs", 0, NULL));
    struct attributes a = {.set = RDONLY | NOEXEC};
    ZERO(set_attributes(AT_FDCWD, "m", 0, &a, sizeof a));
    ERR(mkdir("m/new", 0755), EROFS);
    ZERO(mkdir("m/b/new", 0755));
    CHECK_EQ(flags_of("m") & (ST_RDONLY | ST_NOEXEC), ST_RDONLY | ST_NOEXEC);
    ZERO(set_attributes(AT_FDCWD, "m", RECURSIVE, &a, sizeof a));
    ERR(mkdir("m/b/more", 0755), EROFS);
    a = (struct attributes){.set = NOSUID, .clear = RDONLY | NOEXEC};
    ZERO(set_attributes(AT_FDCWD, "m", RECURSIVE, &a, sizeof a));
    ZERO(mkdir("m/b/more", 0755));
    CHECK_EQ(flags_of("m/b") & (ST_RDONLY | ST_NOEXEC | ST_NOSUID), ST_NOSUID);
    a = (struct attributes){.set = NOATIME, .clear = ATIME};
    ZERO(set_attributes(AT_FDCWD, "m", 0, &a, sizeof a));
    CHECK(flags_of("m") & ST_NOATIME);
    a = (struct attributes){.clear = ATIME};
    ZERO(set_attributes(AT_FDCWD, "m", 0, &a, sizeof a));
    CHECK(!(flags_of("m") & ST_NOATIME));

    a = (struct attributes){.set = NOATIME};
    ERR(set_attributes(AT_FDCWD, "m", 0, &a, sizeof a), EINVAL);
    a = (struct attributes){.set = 0x30, .clear = ATIME};
    ERR(set_attributes(AT_FDCWD, "m", 0, &a, sizeof a), EINVAL);
    a = (struct attributes){.clear = NOATIME};
    ERR(set_attributes(AT_FDCWD, "m", 0, &a, sizeof a), EINVAL);
    a = (struct attributes){.set = 1ull << 40};
    ERR(set_attributes(AT_FDCWD, "m", 0, &a, sizeof a), EINVAL);
    a = (struct attributes){.propagation = 1};
    ERR(set_attributes(AT_FDCWD, "m", 0, &a, sizeof a), EINVAL);
    a = (struct attributes){.propagation = MS_PRIVATE};
    ZERO(set_attributes(AT_FDCWD, "m", RECURSIVE, &a, sizeof a));
    a = (struct attributes){.set = NODEV};
    ERR(set_attributes(AT_FDCWD, "m/b/new", 0, &a, sizeof a), EINVAL);
    ERR(set_attributes(AT_FDCWD, "none", 0, &a, sizeof a), ENOENT);
    ERR(set_attributes(AT_FDCWD, "m", 1, &a, sizeof a), EINVAL);
    ERR(set_attributes(AT_FDCWD, "m", 0, &a, sizeof a - 1), EINVAL);
    ERR(set_attributes(AT_FDCWD, "m", 0, &a, PAGE + 1), E2BIG);
    ERR(set_attributes(AT_FDCWD, "m", 0, BAD, sizeof a), EFAULT);
    struct {
        struct attributes known;
        uint64_t more;
    } newer = {a, 0};
    ZERO(set_attributes(AT_FDCWD, "m", 0, &newer, sizeof newer));
    newer.more = 1;
    ERR(set_attributes(AT_FDCWD, "m", 0, &newer, sizeof newer), E2BIG);
    a = (struct attributes){0};
    ZERO(set_attributes(AT_FDCWD, "none", 0, &a, sizeof a)); /* nothing is asked for */
    int fd = loose(0);
    a.set = RDONLY;
    ZERO(set_attributes(fd, "", AT_EMPTY_PATH, &a, sizeof a));
    ERR(openat(fd, "f", O_RDWR | O_CREAT, 0600), EROFS);
    close(fd);
    ZERO(umount2("m/b", 0));
    ZERO(umount2("m", 0));
}

TEST(only_the_privileged_mount) {
    prepare();
    int fd = loose(0), fs = OK(fs_open("tmpfs", 0));
    struct attributes a = {.set = RDONLY};
    ZERO(mount("tmpfs", "m", "tmpfs", 0, NULL));
    IN_CHILD({
        BECOME(NOBODY, NOBODY);
        ERR(fs_open("tmpfs", 0), EPERM);
        ERR(fs_open("nosuchfs", 0), EPERM);
        ERR(configure(fs, MAKE, NULL, NULL, 0), EPERM);
        ERR(fs_mount(fs, 0, 0), EPERM);
        ERR(fs_pick(AT_FDCWD, "m", 0), EPERM);
        ERR(move(fd, "", AT_FDCWD, "m", FROM_EMPTY), EPERM);
        ERR(set_attributes(AT_FDCWD, "m", 0, &a, sizeof a), EPERM);
    });
    ZERO(umount2("m", 0));
}
