/* Metadata: stat, statx, chmod, chown, times, statfs and extended attributes. */
#define AREA "meta"
#include "harness.h"
#include <sys/statfs.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>

#ifndef AT_EMPTY_PATH
#define AT_EMPTY_PATH 0x1000
#endif

static struct stat st_of(const char *path) {
    struct stat st;
    OK(lstat(path, &st));
    return st;
}
static int64_t ns(struct timespec t) { return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec; }
static int64_t mtime(const char *path) { return ns(st_of(path).st_mtim); }
static int64_t ctime_(const char *path) { return ns(st_of(path).st_ctim); }
static int64_t atime(const char *path) { return ns(st_of(path).st_atim); }

struct statx_ {
    uint32_t mask, blksize;
    uint64_t attributes;
    uint32_t nlink, uid, gid;
    uint16_t mode, pad;
    uint64_t ino, size, blocks, attributes_mask;
    struct {
        int64_t sec;
        uint32_t nsec;
        int32_t pad;
    } atime, btime, ctime, mtime;
    uint32_t rdev_major, rdev_minor, dev_major, dev_minor;
    uint64_t spare[14];
};
static long statx_(int fd, const char *path, int flags, unsigned mask, void *out) {
    return syscall(332, fd, path, flags, mask, out);
}

TEST(stat_of_a_regular_file) {
    PUT_MODE("f", "hello", 0640);
    struct stat st = st_of("f"), dir = st_of(".");
    CHECK_EQ(st.st_mode, S_IFREG | 0640);
    CHECK_EQ(st.st_size, 5);
    CHECK_EQ(st.st_nlink, 1);
    CHECK_EQ(st.st_uid, geteuid());
    CHECK_EQ(st.st_dev, dir.st_dev);
    CHECK(st.st_ino != dir.st_ino && st.st_ino != 0);
    CHECK(st.st_blksize >= 512);
    int64_t now = now_ns(CLOCK_REALTIME);
    CHECK(ns(st.st_mtim) <= now && now - ns(st.st_mtim) < 60000 * MS);
    int fd = OK(open("f", O_RDONLY));
    struct stat by_fd;
    OK(fstat(fd, &by_fd));
    CHECK(!memcmp(&st, &by_fd, sizeof st));
}

TEST(stat_of_other_kinds) {
    OK(symlink("somewhere", "l"));
    CHECK_EQ(st_of("l").st_mode, S_IFLNK | 0777);
    CHECK_EQ(st_of("l").st_size, 9);
    OK(mkfifo("p", 0600));
    CHECK_EQ(st_of("p").st_mode, S_IFIFO | 0600);
    struct stat st = st_of("/dev/null");
    CHECK(S_ISCHR(st.st_mode));
    CHECK_EQ(st.st_rdev, makedev(1, 3));
    int p[2];
    OK(pipe(p));
    OK(fstat(p[0], &st));
    CHECK(S_ISFIFO(st.st_mode));
}

TEST(stat_errors) {
    struct stat st;
    ERR(stat("none", &st), ENOENT);
    ERR(syscall(SYS_stat, ".", BAD), EFAULT);
    ERR(syscall(SYS_fstat, 0, BAD), EFAULT);
    ERR(syscall(SYS_lstat, BAD, &st), EFAULT);
    ERR(fstat(999, &st), EBADF);
}

TEST(statx_matches_stat) {
    PUT("f", "hello");
    struct statx_ sx;
    struct stat st = st_of("f");
    OK(statx_(AT_FDCWD, "f", 0, 0xfff, &sx));
    CHECK_EQ(sx.mask & 0x7ff, 0x7ff); /* STATX_BASIC_STATS */
    CHECK_EQ(sx.mode, st.st_mode);
    CHECK_EQ(sx.ino, st.st_ino);
    CHECK_EQ(sx.size, 5);
    CHECK_EQ(sx.mtime.sec, st.st_mtim.tv_sec);
    CHECK_EQ(sx.mtime.nsec, st.st_mtim.tv_nsec);
    CHECK_EQ(makedev(sx.dev_major, sx.dev_minor), st.st_dev);
    int fd = OK(open("f", O_RDONLY));
    OK(statx_(fd, "", AT_EMPTY_PATH, 0x7ff, &sx));
    CHECK_EQ(sx.ino, st.st_ino);
    OK(symlink("f", "l"));
    OK(statx_(AT_FDCWD, "l", AT_SYMLINK_NOFOLLOW, 1, &sx));
    CHECK((sx.mode & S_IFMT) == S_IFLNK);
}

TEST(statx_errors) {
    struct statx_ sx;
    ERR(statx_(AT_FDCWD, "none", 0, 0x7ff, &sx), ENOENT);
    ERR(statx_(AT_FDCWD, ".", 0, 0x80000000, &sx), EINVAL);
    ERR(statx_(AT_FDCWD, ".", 0x10000, 0x7ff, &sx), EINVAL);
    ERR(statx_(AT_FDCWD, ".", 0x6000, 0x7ff, &sx), EINVAL); /* FORCE_SYNC and DONT_SYNC */
    ERR(statx_(AT_FDCWD, ".", 0, 0x7ff, BAD), EFAULT);
    ERR(statx_(999, "x", 0, 0x7ff, &sx), EBADF);
}

TEST(chmod_changes_permission_bits_only) {
    PUT("f", "x");
    OK(chmod("f", 07777));
    CHECK_EQ(st_of("f").st_mode, S_IFREG | 07777);
    OK(chmod("f", 0170000 | 0123)); /* type bits are ignored */
    CHECK_EQ(st_of("f").st_mode, S_IFREG | 0123);
    int fd = OK(open("f", O_RDONLY));
    OK(fchmod(fd, 0456));
    CHECK_EQ(st_of("f").st_mode, S_IFREG | 0456);
    OK(fchmodat(AT_FDCWD, "f", 0600, 0));
    OK(symlink("f", "l"));
    OK(chmod("l", 0611)); /* follows */
    CHECK_EQ(st_of("f").st_mode, S_IFREG | 0611);
}

TEST(chmod_and_chown_errors) {
    ERR(chmod("none", 0600), ENOENT);
    ERR(chmod(BAD, 0600), EFAULT);
    ERR(syscall(SYS_fchmod, 999, 0600), EBADF);
    ERR(chown("none", 1, 1), ENOENT);
    ERR(syscall(SYS_fchown, 999, 1, 1), EBADF);
    ERR(fchownat(AT_FDCWD, ".", 1, 1, 0x8000), EINVAL);
    OK(symlink("loop", "loop"));
    ERR(chmod("loop", 0600), ELOOP);
    ERR(chown("loop", 1, 1), ELOOP);
}

TEST(chown_forms) {
    PUT("f", "x");
    OK(symlink("f", "l"));
    OK(chown("l", 10, 20)); /* follows */
    CHECK(st_of("f").st_uid == 10 && st_of("f").st_gid == 20);
    CHECK_EQ(st_of("l").st_uid, 0);
    OK(lchown("l", 11, 21));
    CHECK(st_of("l").st_uid == 11 && st_of("l").st_gid == 21);
    OK(chown("f", (uid_t)-1, 30)); /* -1 keeps */
    CHECK(st_of("f").st_uid == 10 && st_of("f").st_gid == 30);
    int fd = OK(open("f", O_RDONLY));
    OK(fchown(fd, 40, (gid_t)-1));
    CHECK(st_of("f").st_uid == 40 && st_of("f").st_gid == 30);
}

TEST(utimensat_sets_omits_and_now) {
    PUT("f", "x");
    struct timespec set[2] = {{1000, 5}, {2000, 6}};
    OK(utimensat(AT_FDCWD, "f", set, 0));
    CHECK_EQ(atime("f"), 1000 * 1000000000LL + 5);
    CHECK_EQ(mtime("f"), 2000 * 1000000000LL + 6);
    struct timespec omit[2] = {{0, UTIME_OMIT}, {3000, 0}};
    OK(utimensat(AT_FDCWD, "f", omit, 0));
    CHECK_EQ(atime("f"), 1000 * 1000000000LL + 5);
    CHECK_EQ(mtime("f"), 3000 * 1000000000LL);
    struct timespec now[2] = {{0, UTIME_NOW}, {0, UTIME_OMIT}};
    OK(utimensat(AT_FDCWD, "f", now, 0));
    CHECK(now_ns(CLOCK_REALTIME) - atime("f") < 60000 * MS);
    OK(utimensat(AT_FDCWD, "f", NULL, 0));
    CHECK(now_ns(CLOCK_REALTIME) - mtime("f") < 60000 * MS);
    int fd = OK(open("f", O_RDONLY));
    OK(futimens(fd, set));
    CHECK_EQ(mtime("f"), 2000 * 1000000000LL + 6);
    OK(symlink("f", "l"));
    OK(utimensat(AT_FDCWD, "l", omit, AT_SYMLINK_NOFOLLOW));
    CHECK_EQ(mtime("l"), 3000 * 1000000000LL);
    CHECK_EQ(mtime("f"), 2000 * 1000000000LL + 6);
}

TEST(utimensat_errors) {
    PUT("f", "x");
    struct timespec bad[2] = {{0, 1000000000}, {0, 0}};
    ERR(utimensat(AT_FDCWD, "f", bad, 0), EINVAL);
    ERR(utimensat(AT_FDCWD, "none", NULL, 0), ENOENT);
    ERR(utimensat(AT_FDCWD, "f", NULL, 0x8000), EINVAL);
    ERR(syscall(SYS_utimensat, AT_FDCWD, "f", BAD, 0), EFAULT);
    OK(chmod("f", 0644));
    IN_CHILD({
        BECOME(1000, 1000);
        ERR(utimensat(AT_FDCWD, "f", NULL, 0), EACCES); /* now needs write permission */
        struct timespec set[2] = {{1, 0}, {1, 0}};
        ERR(utimensat(AT_FDCWD, "f", set, 0), EPERM); /* a given time needs the owner */
    });
    OK(chmod("f", 0666));
    IN_CHILD({
        BECOME(1000, 1000);
        OK(utimensat(AT_FDCWD, "f", NULL, 0));
    });
}

/* Moves the old times into the past, so that any change shows without waiting. */
static void make_old(const char *path) {
    struct timespec old[2] = {{1000, 0}, {1000, 0}};
    OK(utimensat(AT_FDCWD, path, old, 0));
}
static const int64_t OLD = 1000 * 1000000000LL;

TEST(what_changes_the_modification_time) {
    PUT("f", "x");
    OK(mkdir("d", 0755));
    int fd = OK(open("f", O_RDWR));
    make_old("f");
    OK(write(fd, "", 0));
    CHECK_EQ(mtime("f"), OLD); /* nothing written */
    OK(write(fd, "y", 1));
    CHECK(mtime("f") > OLD);
    make_old("f");
    OK(ftruncate(fd, 0));
    CHECK(mtime("f") > OLD);
    make_old("f");
    OK(chmod("f", 0600));
    CHECK_EQ(mtime("f"), OLD);
    make_old("d");
    PUT("d/new", "");
    CHECK(mtime("d") > OLD);
    make_old("d");
    OK(unlink("d/new"));
    CHECK(mtime("d") > OLD);
    make_old("d");
    OK(rename("f", "d/f"));
    CHECK(mtime("d") > OLD);
    make_old("d");
    OK(chmod("d/f", 0644)); /* the file, not the directory */
    CHECK_EQ(mtime("d"), OLD);
}

TEST(what_changes_the_status_time) {
    PUT("f", "x");
    int64_t before = ctime_("f");
    msleep(20);
    OK(chmod("f", 0600));
    CHECK(ctime_("f") > before);
    before = ctime_("f");
    msleep(20);
    OK(link("f", "g"));
    CHECK(ctime_("f") > before);
    before = ctime_("f");
    msleep(20);
    OK(chown("f", 1, 1));
    CHECK(ctime_("f") > before);
    before = ctime_("f");
    msleep(20);
    OK(rename("g", "h"));
    CHECK(ctime_("f") > before); /* as Linux' local file systems do */
}

TEST(o_noatime_and_reading) {
    PUT("f", "x");
    make_old("f");
    int fd = OK(open("f", O_RDONLY | O_NOATIME));
    char c;
    OK(read(fd, &c, 1));
    CHECK_EQ(atime("f"), OLD);
    OK(chmod("f", 0644));
    IN_CHILD({
        BECOME(1000, 1000);
        ERR(open("f", O_RDONLY | O_NOATIME), EPERM); /* the owner's privilege (open(2)) */
    });
}

struct old_stat {
    int32_t free;
    uint64_t inodes;
    char name[6], pack[6];
};

TEST(ustat_tells_of_a_device) {
    struct stat st;
    struct statfs fs;
    struct old_stat old;
    memset(&old, 0x55, sizeof old);
    OK(stat("/proc", &st));
    OK(statfs("/proc", &fs));
    OK(syscall(SYS_ustat, (unsigned)st.st_dev, &old));
    CHECK_EQ(old.free, (int32_t)fs.f_bfree);
    CHECK_EQ(old.inodes, fs.f_ffree);
    CHECK_EQ(old.name[0] | old.pack[0], 0);
    ERR(syscall(SYS_ustat, 0, &old), EINVAL);
    ERR(syscall(SYS_ustat, 0xfff00, &old), EINVAL);
    ERR(syscall(SYS_ustat, 0xfff00, BAD), EINVAL);
    ERR(syscall(SYS_ustat, (unsigned)st.st_dev, BAD), EFAULT);
}

TEST(statfs_is_plausible) {
    struct statfs fs;
    OK(statfs(".", &fs));
    CHECK(fs.f_bsize > 0);
    CHECK(fs.f_bfree <= fs.f_blocks || fs.f_blocks == 0);
    CHECK(fs.f_namelen >= 255);
    OK(statfs("/proc", &fs));
    CHECK_EQ(fs.f_type, 0x9fa0);
    int fd = OK(open(".", O_RDONLY));
    OK(fstatfs(fd, &fs));
    ERR(statfs("none", &fs), ENOENT);
    ERR(fstatfs(999, &fs), EBADF);
    ERR(syscall(SYS_statfs, ".", BAD), EFAULT);
}

TEST(blocks_count_512_bytes) {
    static char data[65536];
    memset(data, 'b', sizeof data);
    PUT_BYTES("f", data, sizeof data);
    sync(); /* delayed allocation */
    struct stat st = st_of("f");
    CHECK(st.st_blocks >= 128 && st.st_blocks <= 256);
}

TEST(extended_attributes) {
    PUT("f", "x");
    if (setxattr("f", "user.name", "value", 5, 0) == -1 && errno == EOPNOTSUPP)
        SKIP("no user attributes on this file system");
    char text[64];
    CHECK_EQ(OK(getxattr("f", "user.name", NULL, 0)), 5);
    CHECK_EQ(OK(getxattr("f", "user.name", text, sizeof text)), 5);
    CHECK(!memcmp(text, "value", 5));
    ERR(getxattr("f", "user.name", text, 2), ERANGE);
    ERR(getxattr("f", "user.none", text, sizeof text), ENODATA);
    ERR(setxattr("f", "user.name", "v", 1, XATTR_CREATE), EEXIST);
    ERR(setxattr("f", "user.none", "v", 1, XATTR_REPLACE), ENODATA);
    ERR(setxattr("f", "nonsense", "v", 1, 0), EOPNOTSUPP);
    ssize_t n = OK(listxattr("f", text, sizeof text));
    CHECK(n >= 10);
    OK(removexattr("f", "user.name"));
    ERR(removexattr("f", "user.name"), ENODATA);
}

TEST(inode_numbers_are_stable_and_distinct) {
    char name[16];
    ino_t seen[64];
    for (int i = 0; i < 64; i++) {
        snprintf(name, sizeof name, "f%d", i);
        PUT(name, "");
        seen[i] = st_of(name).st_ino;
        for (int k = 0; k < i; k++)
            CHECK(seen[k] != seen[i]);
    }
    OK(rename("f0", "moved"));
    CHECK_EQ(st_of("moved").st_ino, seen[0]);
}
