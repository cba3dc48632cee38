/* The devices every program expects below /dev, and mounting. */
#define AREA "device"
#include "harness.h"
#include <sys/ioctl.h>

/* random(4); the C library's headers need not know them. */
#define RNDGETENTCNT _IOR('R', 0x00, int)
#define RNDADDTOENTCNT _IOW('R', 0x01, int)
#define RNDGETPOOL _IOR('R', 0x02, int[2])
#define RNDADDENTROPY _IOW('R', 0x03, int[2])
#define RNDZAPENTCNT _IO('R', 0x04)
#define RNDCLEARPOOL _IO('R', 0x06)
#define RNDRESEEDCRNG _IO('R', 0x07)
#include <poll.h>
#include <sys/mount.h>
#include <sys/sysmacros.h>
#include <sys/time.h>
#include <sys/uio.h>

static char block[8192];

TEST(null_swallows_and_is_empty) {
    int fd = OK(open("/dev/null", O_RDWR));
    CHECK_EQ(OK(write(fd, block, sizeof block)), sizeof block);
    CHECK_EQ(OK(read(fd, block, sizeof block)), 0);
    CHECK_EQ(OK(lseek(fd, 100, SEEK_SET)), 0);
    OK(ftruncate(OK(open("f", O_RDWR | O_CREAT, 0600)), 0));
    ERR(ftruncate(fd, 0), EINVAL);
    OK(close(OK(open("/dev/null", O_WRONLY | O_TRUNC | O_CREAT, 0600))));
}

TEST(zero_reads_zeros) {
    int fd = OK(open("/dev/zero", O_RDWR));
    memset(block, 1, sizeof block);
    CHECK_EQ(OK(read(fd, block, sizeof block)), sizeof block);
    for (size_t i = 0; i < sizeof block; i++)
        CHECK_EQ(block[i], 0);
    CHECK_EQ(OK(write(fd, block, 10)), 10);
}

static volatile sig_atomic_t rings;
static void ring(int sig UNUSED) { rings++; }

TEST(a_signal_cuts_a_long_read_short) {
    enum { PIECE = 2 << 20, PIECES = 1000 };
    static struct iovec pieces[PIECES];
    char *buffer = SHARED(PIECE);
    for (int i = 0; i < PIECES; i++)
        pieces[i] = (struct iovec){buffer, PIECE};
    int fd = OK(open("/dev/zero", O_RDONLY));
    struct sigaction act = {.sa_handler = ring};
    OK(sigaction(SIGALRM, &act, NULL));
    struct itimerval soon = {.it_value = {.tv_usec = 5000}};
    OK(setitimer(ITIMER_REAL, &soon, NULL));
    ssize_t count = OK(readv(fd, pieces, PIECES));
    CHECK(count > 0 && count < 1ll * PIECES * PIECE);
    CHECK_EQ(rings, 1);
}

TEST(full_is_enospc) {
    int fd = OK(open("/dev/full", O_RDWR));
    ERR(write(fd, "x", 1), ENOSPC);
    memset(block, 1, sizeof block);
    CHECK_EQ(OK(read(fd, block, 100)), 100);
    CHECK_EQ(block[99], 0);
}

TEST(random_devices_give_random_bytes) {
    static const char *const names[] = {"/dev/random", "/dev/urandom"};
    for (int i = 0; i < 2; i++) {
        int fd = OK(open(names[i], O_RDWR));
        unsigned char a[256], b[256];
        CHECK_EQ(OK(read(fd, a, sizeof a)), sizeof a);
        CHECK_EQ(OK(read(fd, b, sizeof b)), sizeof b);
        CHECK(memcmp(a, b, sizeof a) != 0);
        CHECK_EQ(OK(write(fd, "seed", 4)), 4);
        struct pollfd p = {fd, POLLIN, 0};
        CHECK_EQ(OK(poll(&p, 1, 1000)), 1);
    }
}

TEST(numbers_and_modes) {
    static const struct {
        const char *name;
        unsigned major, minor, mode;
    } table[] = {{"/dev/null", 1, 3, 0666},   {"/dev/zero", 1, 5, 0666}, {"/dev/full", 1, 7, 0666},
                 {"/dev/random", 1, 8, 0666}, {"/dev/urandom", 1, 9, 0666}, {"/dev/tty", 5, 0, 0666}};
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        struct stat st;
        OK(stat(table[i].name, &st));
        CHECK(S_ISCHR(st.st_mode));
        CHECK_EQ(st.st_rdev, makedev(table[i].major, table[i].minor));
        CHECK_EQ(st.st_mode & 0777, table[i].mode);
    }
}

TEST(standard_links) {
    char link[64] = "";
    OK(readlink("/dev/fd", link, sizeof link - 1));
    CHECK_STR(link, "/proc/self/fd");
    int p[2];
    OK(pipe(p));
    OK(write(p[1], "in", 2));
    IN_CHILD({
        OK(dup2(p[0], 0));
        int fd = OK(open("/dev/stdin", O_RDONLY));
        CHECK_EQ(OK(read(fd, block, 10)), 2);
    });
    struct stat st;
    OK(lstat("/dev/stdout", &st));
    CHECK(S_ISLNK(st.st_mode));
}

TEST(tty_without_a_terminal_is_enxio) {
    IN_CHILD({
        OK(setsid());
        ERR(open("/dev/tty", O_RDWR), ENXIO);
    });
}

TEST(node_made_by_mknod_is_the_device) {
    OK(mknod("mynull", S_IFCHR | 0600, makedev(1, 3)));
    int fd = OK(open("mynull", O_RDWR));
    CHECK_EQ(OK(read(fd, block, 10)), 0);
    CHECK_EQ(OK(write(fd, block, 10)), 10);
}

TEST(shm_directory_takes_files) {
    if (access("/dev/shm", W_OK) == -1)
        SKIP("no /dev/shm here");
    char path[64];
    snprintf(path, sizeof path, "/dev/shm/hayate-test-%d", getpid());
    int fd = OK(open(path, O_RDWR | O_CREAT | O_EXCL, 0600));
    OK(ftruncate(fd, (off_t)PAGE));
    char *p = OK(mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
    IN_CHILD(p[0] = 5);
    CHECK_EQ(p[0], 5);
    OK(unlink(path));
}

TEST(ptmx_gives_numbered_terminals) {
    int a = OK(open("/dev/ptmx", O_RDWR | O_NOCTTY)), b = OK(open("/dev/ptmx", O_RDWR | O_NOCTTY));
    char x[32], y[32];
    CHECK_EQ(ptsname_r(a, x, sizeof x), 0);
    CHECK_EQ(ptsname_r(b, y, sizeof y), 0);
    CHECK(strcmp(x, y) != 0);
    struct stat st;
    OK(stat(x, &st));
    CHECK(S_ISCHR(st.st_mode));
}

/* ---- mounting: as root, in a name space of its own where there is one ------------------------------ */

static void private_mounts(void) {
    if (syscall(SYS_unshare, 0x00020000 /* CLONE_NEWNS */) == 0)
        OK(mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL));
    else if (errno != ENOSYS && errno != EINVAL)
        SKIP("mounts cannot be tried here: %s", strerror(errno));
}

TEST(tmpfs_with_a_deep_tree_goes) {
    private_mounts();
    OK(mkdir("m", 0755));
    OK(mount("tmpfs", "m", "tmpfs", 0, NULL));
    int top = OK(open(".", O_RDONLY | O_DIRECTORY));
    OK(chdir("m"));
    for (int i = 0; i < 20000; i++) {
        OK(mkdir("d", 0755));
        OK(chdir("d"));
    }
    OK(fchdir(top));
    OK(umount("m"));
    ERR(access("m/d", F_OK), ENOENT);
}

TEST(tmpfs_covers_and_uncovers) {
    private_mounts();
    OK(mkdir("m", 0755));
    PUT("m/below", "x");
    struct stat before, on;
    OK(stat("m", &before));
    OK(mount("tmpfs", "m", "tmpfs", 0, "mode=0700"));
    ERR(access("m/below", F_OK), ENOENT);
    OK(stat("m", &on));
    CHECK(on.st_dev != before.st_dev);
    CHECK_EQ(on.st_mode & 07777, 0700);
    PUT("m/above", "y");
    ERR(rename("m/above", "above"), EXDEV);
    ERR(link("m/above", "above"), EXDEV);
    ERR(rmdir("m"), EBUSY);
    struct stat up;
    OK(stat("m/..", &up)); /* .. leaves the mount */
    OK(stat(".", &before));
    CHECK_EQ(up.st_ino, before.st_ino);
    int fd = OK(open("m/above", O_RDONLY));
    ERR(umount2("m", 0), EBUSY);
    OK(close(fd));
    OK(umount2("m", 0));
    OK(access("m/below", F_OK));
    ERR(umount2("m", 0), EINVAL);
}

TEST(read_only_mount_is_erofs) {
    private_mounts();
    OK(mkdir("m", 0755));
    OK(mount("tmpfs", "m", "tmpfs", 0, NULL));
    PUT("m/f", "x");
    OK(mount(NULL, "m", NULL, MS_REMOUNT | MS_RDONLY, NULL));
    ERR(open("m/f", O_WRONLY), EROFS);
    ERR(open("m/new", O_WRONLY | O_CREAT, 0600), EROFS);
    ERR(mkdir("m/d", 0755), EROFS);
    ERR(unlink("m/f"), EROFS);
    ERR(chmod("m/f", 0600), EROFS);
    ERR(rename("m/f", "m/g"), EROFS);
    ERR(truncate("m/f", 0), EROFS);
    ERR(access("m/f", W_OK), EROFS);
    OK(open("m/f", O_RDONLY));
    OK(umount2("m", MNT_DETACH));
}

TEST(bind_mount_shows_the_same_tree) {
    private_mounts();
    OK(mkdir("a", 0755));
    OK(mkdir("b", 0755));
    PUT("a/f", "x");
    OK(mount("a", "b", NULL, MS_BIND, NULL));
    struct stat x, y;
    OK(stat("a/f", &x));
    OK(stat("b/f", &y));
    CHECK_EQ(x.st_ino, y.st_ino);
    PUT("b/g", "y");
    OK(access("a/g", F_OK));
    ERR(rename("a/f", "b/h"), EXDEV); /* two mounts, though one file system */
    OK(umount2("b", 0));
    ERR(access("b/f", F_OK), ENOENT);
}

TEST(mount_errors) {
    private_mounts();
    OK(mkdir("m", 0755));
    PUT("f", "x");
    ERR(mount("none", "m", "no-such-type", 0, NULL), ENODEV);
    ERR(mount("tmpfs", "none", "tmpfs", 0, NULL), ENOENT);
    ERR(mount("tmpfs", "f", "tmpfs", 0, NULL), ENOTDIR);
    ERR(mount("tmpfs", "m", BAD, 0, NULL), EFAULT);
    ERR(umount2("none", 0), ENOENT);
    ERR(umount2("m", 0), EINVAL);
    ERR(umount2("m", 0x100), EINVAL);
    ERR2(mount("f", "m", "ext4", MS_RDONLY, NULL), ENOTBLK, ENODEV);
}

TEST(tmpfs_size_limit_is_enospc) {
    private_mounts();
    OK(mkdir("m", 0755));
    OK(mount("tmpfs", "m", "tmpfs", 0, "size=65536"));
    int fd = OK(open("m/f", O_WRONLY | O_CREAT, 0600));
    ssize_t n;
    size_t total = 0;
    while ((n = write(fd, block, sizeof block)) > 0 && total < 10 << 20)
        total += (size_t)n;
    CHECK_EQ(errno, ENOSPC);
    CHECK(total <= 65536);
    OK(close(fd));
    OK(unlink("m/f"));
    fd = OK(open("m/g", O_WRONLY | O_CREAT, 0600)); /* the room is back */
    CHECK_EQ(OK(write(fd, block, sizeof block)), sizeof block);
    OK(umount2("m", MNT_DETACH));
}

TEST(random_controls) {
    static const char *const names[] = {"/dev/random", "/dev/urandom"};
    struct { int count, size; unsigned char bytes[64]; } pool = {0, 64, {1}};
    for (size_t i = 0; i < 2; i++) {
        int fd = OK(open(names[i], O_RDWR | O_CLOEXEC)), count = -1;
        OK(ioctl(fd, RNDGETENTCNT, &count));
        CHECK_EQ(count, 256); /* POOL_BITS, drivers/char/random.c of Linux 6.1 */
        ERR(ioctl(fd, RNDGETENTCNT, BAD), EFAULT);
        ERR(ioctl(fd, 0x52ff, 0), EINVAL); /* not ENOTTY */
        ERR(ioctl(fd, RNDGETPOOL, &count), EINVAL);
        if (geteuid() != 0) continue;
        IN_CHILD({
            BECOME(NOBODY, NOBODY);
            ERR(ioctl(fd, RNDADDTOENTCNT, &count), EPERM);
            ERR(ioctl(fd, RNDADDENTROPY, &pool), EPERM);
            ERR(ioctl(fd, RNDZAPENTCNT, 0), EPERM);
            ERR(ioctl(fd, RNDCLEARPOOL, 0), EPERM);
            ERR(ioctl(fd, RNDRESEEDCRNG, 0), EPERM);
            OK(ioctl(fd, RNDGETENTCNT, &count));
        });
        if (ioctl(fd, RNDZAPENTCNT, 0) == -1 && errno == EPERM) continue; /* no CAP_SYS_ADMIN */
        OK(ioctl(fd, RNDCLEARPOOL, 0));
        OK(ioctl(fd, RNDRESEEDCRNG, 0));
        count = 0;
        OK(ioctl(fd, RNDADDTOENTCNT, &count));
        count = -1;
        ERR(ioctl(fd, RNDADDTOENTCNT, &count), EINVAL);
        ERR(ioctl(fd, RNDADDTOENTCNT, BAD), EFAULT);
        pool.count = 0;
        OK(ioctl(fd, RNDADDENTROPY, &pool));
        pool.count = -1;
        ERR(ioctl(fd, RNDADDENTROPY, &pool), EINVAL);
        ERR(ioctl(fd, RNDADDENTROPY, BAD), EFAULT);
    }
}
