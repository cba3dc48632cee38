/* What calls on files and sockets refuse: the ERRORS sections of their manual pages, for the calls
 * that no other area has asked. */
#define AREA "refusefile"
#include "harness.h"
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/xattr.h>
#include <utime.h>

#ifndef XATTR_SIZE_MAX
#define XATTR_SIZE_MAX 65536
#endif

static char longer[XATTR_SIZE_MAX + 1]; /* a path that is too long */
static char name[300];             /* a name that is too long */
static int file, directory, place, p[2];

static void things(void) {
    memset(longer, 'a', sizeof longer - 1);
    memset(name, 'a', sizeof name - 1);
    PUT("f", "0123456789");
    OK(mkdir("d", 0755));
    OK(symlink("loop", "loop"));
    file = OK(open("f", O_RDWR));
    directory = OK(open("d", O_RDONLY));
    place = OK(open("f", O_PATH));
    OK(pipe(p));
}

/* ---- reading and writing ----------------------------------------------------------------------- */

TEST(vectors) {
    things();
    char c[4];
    struct iovec v = {c, sizeof c}, bad = {BAD, 4}, negative = {c, (size_t)-1};
    ERR(syscall(SYS_preadv, -1, &v, 1L, 0L, 0L), EBADF);
    ERR(syscall(SYS_preadv, place, &v, 1L, 0L, 0L), EBADF);
    ERR(syscall(SYS_preadv, OK(open("f", O_WRONLY)), &v, 1L, 0L, 0L), EBADF);
    ERR(syscall(SYS_preadv, file, &v, 1L, -1L, 0L), EINVAL);
    ERR(syscall(SYS_preadv, file, &v, 1025L, 0L, 0L), EINVAL);
    ERR(syscall(SYS_preadv, file, &negative, 1L, 0L, 0L), EINVAL);
    ERR(syscall(SYS_preadv, file, &bad, 1L, 0L, 0L), EFAULT);
    ERR(syscall(SYS_preadv, file, BAD, 1L, 0L, 0L), EFAULT);
    ERR(syscall(SYS_preadv, p[0], &v, 1L, 0L, 0L), ESPIPE);
    ERR(syscall(SYS_preadv, directory, &v, 1L, 0L, 0L), EISDIR);
    ERR(syscall(SYS_pwritev, -1, &v, 1L, 0L, 0L), EBADF);
    ERR(syscall(SYS_pwritev, directory, &v, 1L, 0L, 0L), EBADF);
    ERR(syscall(SYS_pwritev, file, &v, 1L, -1L, 0L), EINVAL);
    ERR(syscall(SYS_pwritev, file, &v, 1025L, 0L, 0L), EINVAL);
    ERR(syscall(SYS_pwritev, file, &bad, 1L, 0L, 0L), EFAULT);
    ERR(syscall(SYS_pwritev, p[1], &v, 1L, 0L, 0L), ESPIPE);
    ERR(syscall(SYS_pwritev2, -1, &v, 1L, 0L, 0L, 0), EBADF);
    ERR(syscall(SYS_pwritev2, file, &v, 1L, 0L, 0L, 0x8000), EOPNOTSUPP);
    ERR(syscall(SYS_pwritev2, file, &v, 1L, -2L, 0L, 0), EINVAL);
    ERR(syscall(SYS_pwritev2, file, BAD, 1L, 0L, 0L, 0), EFAULT);
}

TEST(hints_and_writing_back) {
    things();
    ERR(syncfs(-1), EBADF);
    ERR(syscall(SYS_sync_file_range, -1, 0L, 0L, 0), EBADF);
    ERR(syscall(SYS_sync_file_range, file, -1L, 1L, 0), EINVAL);
    ERR(syscall(SYS_sync_file_range, file, 0L, -1L, 0), EINVAL);
    ERR(syscall(SYS_sync_file_range, file, 0L, 1L, 8), EINVAL);
    ERR(syscall(SYS_sync_file_range, p[0], 0L, 1L, 0), ESPIPE);
    ERR(syscall(SYS_readahead, -1, 0L, 1L), EBADF);
    ERR(syscall(SYS_readahead, OK(open("f", O_WRONLY)), 0L, 1L), EBADF);
    ERR(syscall(SYS_readahead, p[0], 0L, 1L), EINVAL);
    ERR(syscall(SYS_fadvise64, -1, 0L, 0L, 0), EBADF);
    ERR(syscall(SYS_fadvise64, file, 0L, 0L, 99), EINVAL);
    ERR(syscall(SYS_fadvise64, file, 0L, -1L, 0), EINVAL);
    ERR(syscall(SYS_fadvise64, p[0], 0L, 0L, 0), ESPIPE);
}

/* ---- names -------------------------------------------------------------------------------------- */

TEST(opening_and_closing) {
    things();
    ERR(creat("d", 0644), EISDIR);
    ERR(creat("none/f", 0644), ENOENT);
    ERR(creat("f/x", 0644), ENOTDIR);
    ERR(creat("loop", 0644), ELOOP);
    ERR(creat(longer, 0644), ENAMETOOLONG);
    ERR(creat(name, 0644), ENAMETOOLONG);
    ERR(creat(BAD, 0644), EFAULT);
    ERR(syscall(SYS_close_range, 5u, 4u, 0u), EINVAL);
    ERR(syscall(SYS_close_range, 100u, 200u, 0x80u), EINVAL);
}

TEST(entries_of_a_directory) {
    things();
    char entries[64];
    ERR(syscall(SYS_getdents, -1, entries, sizeof entries), EBADF);
    ERR(syscall(SYS_getdents, place, entries, sizeof entries), EBADF);
    ERR(syscall(SYS_getdents, file, entries, sizeof entries), ENOTDIR);
    ERR(syscall(SYS_getdents, directory, entries, 4), EINVAL);
    ERR(syscall(SYS_getdents, directory, BAD, 64), EFAULT);
    OK(rmdir("d"));
    ERR(syscall(SYS_getdents, directory, entries, sizeof entries), ENOENT);
}

TEST(names_below_a_descriptor) {
    things();
    char text[16];
    ERR(renameat(-1, "f", AT_FDCWD, "g"), EBADF);
    ERR(renameat(AT_FDCWD, "f", file, "g"), ENOTDIR);
    ERR(renameat(AT_FDCWD, "none", directory, "g"), ENOENT);
    ERR(renameat(AT_FDCWD, "f", directory, name), ENAMETOOLONG);
    ERR(renameat(AT_FDCWD, BAD, directory, "g"), EFAULT);
    ERR(syscall(SYS_renameat2, AT_FDCWD, "f", AT_FDCWD, "g", 0x80), EINVAL);
    ERR(syscall(SYS_renameat2, AT_FDCWD, "f", AT_FDCWD, "d", 1 /* RENAME_NOREPLACE */), EEXIST);
    ERR(syscall(SYS_renameat2, AT_FDCWD, "f", AT_FDCWD, "g", 2 /* RENAME_EXCHANGE */), ENOENT);
    ERR(syscall(SYS_renameat2, AT_FDCWD, "f", AT_FDCWD, "g", 3), EINVAL);
    ERR(syscall(SYS_renameat2, -1, "f", AT_FDCWD, "g", 0), EBADF);
    ERR(symlinkat("x", -1, "s"), EBADF);
    ERR(symlinkat("x", file, "s"), ENOTDIR);
    ERR(symlinkat("x", AT_FDCWD, "f"), EEXIST);
    ERR(symlinkat("", AT_FDCWD, "s"), ENOENT);
    ERR(symlinkat(longer, AT_FDCWD, "s"), ENAMETOOLONG);
    ERR(symlinkat(BAD, AT_FDCWD, "s"), EFAULT);
    ERR(readlinkat(-1, "loop", text, sizeof text), EBADF);
    ERR(readlinkat(file, "loop", text, sizeof text), ENOTDIR);
    ERR(readlinkat(AT_FDCWD, "f", text, sizeof text), EINVAL);
    ERR(readlinkat(AT_FDCWD, "none", text, sizeof text), ENOENT);
    ERR(syscall(SYS_readlinkat, AT_FDCWD, "loop", text, 0), EINVAL);
    ERR(readlinkat(AT_FDCWD, "loop", BAD, sizeof text), EFAULT);
    ERR(readlinkat(AT_FDCWD, "loop/x", text, sizeof text), ELOOP);
    ERR(mknodat(-1, "n", S_IFIFO | 0600, 0), EBADF);
    ERR(mknodat(file, "n", S_IFIFO | 0600, 0), ENOTDIR);
    ERR(mknodat(AT_FDCWD, "f", S_IFIFO | 0600, 0), EEXIST);
    ERR(mknodat(AT_FDCWD, "n", S_IFLNK | 0600, 0), EINVAL);
    ERR(mknodat(AT_FDCWD, "n", S_IFDIR | 0600, 0), EPERM);
    ERR(mknodat(AT_FDCWD, name, S_IFIFO | 0600, 0), ENAMETOOLONG);
    ERR(mknodat(AT_FDCWD, BAD, S_IFIFO | 0600, 0), EFAULT);
}

TEST(another_root) {
    things();
    if (geteuid() != 0)
        SKIP("not root");
    ERR(syscall(SYS_pivot_root, "none", "none"), ENOENT);
    ERR(syscall(SYS_pivot_root, "f", "f"), ENOTDIR);
    ERR(syscall(SYS_pivot_root, BAD, "d"), EFAULT);
    ERR2(syscall(SYS_pivot_root, "d", "d"), EINVAL, EBUSY); /* no mount, or on the root's own */
    IN_CHILD({
        BECOME(NOBODY, NOBODY);
        ERR(syscall(SYS_pivot_root, "d", "d"), EPERM);
    });
}

/* ---- metadata ----------------------------------------------------------------------------------- */

TEST(asking_for_metadata) {
    things();
    char buffer[256];
    ERR(syscall(SYS_statx, -1, "f", 0, 0u, buffer), EBADF);
    ERR(syscall(SYS_statx, file, "f", 0, 0u, buffer), ENOTDIR);
    ERR(syscall(SYS_statx, AT_FDCWD, "none", 0, 0u, buffer), ENOENT);
    ERR(syscall(SYS_statx, AT_FDCWD, "", 0, 0u, buffer), ENOENT);
    ERR(syscall(SYS_statx, AT_FDCWD, "loop", 0, 0u, buffer), ELOOP);
    ERR(syscall(SYS_statx, AT_FDCWD, longer, 0, 0u, buffer), ENAMETOOLONG);
    ERR(syscall(SYS_statx, AT_FDCWD, "f", 0x1, 0u, buffer), EINVAL);
    ERR(syscall(SYS_statx, AT_FDCWD, "f", 0, 0x80000000u, buffer), EINVAL);
    ERR(syscall(SYS_statx, AT_FDCWD, "f", 0, 0u, BAD), EFAULT);
    ERR(syscall(SYS_faccessat, -1, "f", R_OK), EBADF);
    ERR(syscall(SYS_faccessat, file, "f", R_OK), ENOTDIR);
    ERR(syscall(SYS_faccessat, AT_FDCWD, "f", 8), EINVAL);
    ERR(syscall(SYS_faccessat, AT_FDCWD, "f", X_OK), EACCES);
    ERR(syscall(SYS_faccessat, AT_FDCWD, "none", F_OK), ENOENT);
    ERR(syscall(SYS_faccessat, AT_FDCWD, BAD, F_OK), EFAULT);
    ERR(syscall(SYS_faccessat2, -1, "f", R_OK, 0), EBADF);
    ERR(syscall(SYS_faccessat2, AT_FDCWD, "f", R_OK, 1), EINVAL);
    ERR(syscall(SYS_faccessat2, AT_FDCWD, "", R_OK, 0), ENOENT);
    ERR(syscall(SYS_faccessat2, AT_FDCWD, "loop", R_OK, 0), ELOOP);
}

TEST(changing_metadata) {
    things();
    struct utimbuf times = {1, 1};
    struct timeval bad[2] = {{1, 1000000}, {1, 0}};
    ERR(syscall(SYS_fchmodat, -1, "f", 0644), EBADF);
    ERR(syscall(SYS_fchmodat, file, "f", 0644), ENOTDIR);
    ERR(syscall(SYS_fchmodat, AT_FDCWD, "none", 0644), ENOENT);
    ERR(syscall(SYS_fchmodat, AT_FDCWD, "loop", 0644), ELOOP);
    ERR(syscall(SYS_fchmodat, AT_FDCWD, BAD, 0644), EFAULT);
    ERR(lchown("none", 0, 0), ENOENT);
    ERR(lchown("f/x", 0, 0), ENOTDIR);
    ERR(lchown(name, 0, 0), ENAMETOOLONG);
    ERR(lchown(BAD, 0, 0), EFAULT);
    ERR(utime("none", &times), ENOENT);
    ERR(syscall(SYS_utime, "f", BAD), EFAULT);
    ERR(syscall(SYS_utime, BAD, NULL), EFAULT);
    ERR(syscall(SYS_utimes, "none", NULL), ENOENT);
    ERR(syscall(SYS_utimes, "f", bad), EINVAL);
    ERR(syscall(SYS_utimes, "f", BAD), EFAULT);
    ERR(syscall(SYS_futimesat, -1, "f", NULL), EBADF);
    ERR(syscall(SYS_futimesat, file, "f", NULL), ENOTDIR);
    ERR(syscall(SYS_futimesat, AT_FDCWD, "f", bad), EINVAL);
    ERR(syscall(SYS_futimesat, AT_FDCWD, "none", NULL), ENOENT);
    if (geteuid() != 0)
        return;
    OK(chmod(".", 0755));
    IN_CHILD({
        BECOME(NOBODY, NOBODY);
        ERR(lchown("f", NOBODY, NOBODY), EPERM);
        ERR(syscall(SYS_fchmodat, AT_FDCWD, "f", 0666), EPERM);
        ERR(utime("f", &times), EPERM);
        ERR(utime("f", NULL), EACCES);
        ERR(syscall(SYS_utimes, "f", NULL), EACCES);
        ERR(syscall(SYS_futimesat, AT_FDCWD, "f", NULL), EACCES);
    });
}

TEST(extended_attributes) {
    things();
    char text[16], attribute[300] = "user.";
    memset(attribute + 5, 'a', 290);
    ERR(lsetxattr("none", "user.a", "x", 1, 0), ENOENT);
    ERR(lsetxattr("f", attribute, "x", 1, 0), ERANGE);
    ERR(lsetxattr("f", "", "x", 1, 0), ERANGE);
    ERR(lsetxattr("f", "user.a", "x", 1, 4), EINVAL);
    ERR(lsetxattr("f", "user.a", BAD, 1, 0), EFAULT);
    ERR(lsetxattr("f", "user.a", longer, XATTR_SIZE_MAX + 1, 0), E2BIG);
    ERR(lsetxattr("f", "nothing", "x", 1, 0), EOPNOTSUPP);
    ERR(fsetxattr(-1, "user.a", "x", 1, 0), EBADF);
    ERR(fsetxattr(place, "user.a", "x", 1, 0), EBADF);
    ERR(fsetxattr(file, "user.a", "x", 1, 4), EINVAL);
    ERR(lgetxattr("none", "user.a", text, sizeof text), ENOENT);
    ERR(lgetxattr("f", BAD, text, sizeof text), EFAULT);
    ERR(lgetxattr("f", attribute, text, sizeof text), ERANGE);
    ERR(fgetxattr(-1, "user.a", text, sizeof text), EBADF);
    ERR2(fgetxattr(file, "user.none", text, sizeof text), ENODATA, EOPNOTSUPP);
    ERR(listxattr("none", text, sizeof text), ENOENT);
    ERR(listxattr("loop", text, sizeof text), ELOOP);
    ERR(listxattr(BAD, text, sizeof text), EFAULT);
    ERR(llistxattr("none", text, sizeof text), ENOENT);
    ERR(llistxattr("f/x", text, sizeof text), ENOTDIR);
    ERR(flistxattr(-1, text, sizeof text), EBADF);
    ERR(flistxattr(place, text, sizeof text), EBADF);
    ERR(lremovexattr("none", "user.a"), ENOENT);
    ERR2(lremovexattr("f", "user.a"), ENODATA, EOPNOTSUPP);
    ERR(lremovexattr("f", attribute), ERANGE);
    ERR(fremovexattr(-1, "user.a"), EBADF);
    ERR2(fremovexattr(file, "user.a"), ENODATA, EOPNOTSUPP);
}

TEST(timers_that_wake_the_machine) {
    ERR(syscall(SYS_timerfd_create, 2, 0), EINVAL); /* CLOCK_PROCESS_CPUTIME_ID */
    ERR(syscall(SYS_timerfd_create, CLOCK_MONOTONIC, 1), EINVAL);
    if (geteuid() != 0)
        SKIP("not root");
    int fd = (int)syscall(SYS_timerfd_create, CLOCK_BOOTTIME_ALARM, 0);
    CHECK(fd != -1 || errno == EPERM); /* root of a container may not */
    IN_CHILD({
        BECOME(NOBODY, NOBODY);
        ERR(syscall(SYS_timerfd_create, CLOCK_REALTIME_ALARM, 0), EPERM);
        ERR(syscall(SYS_timerfd_create, CLOCK_BOOTTIME_ALARM, 0), EPERM);
    });
}

/* ---- descriptors and sockets -------------------------------------------------------------------- */

TEST(eventfd2_flags) {
    ERR(syscall(SYS_eventfd2, 0u, 0x10), EINVAL);
    struct rlimit limit = {8, 8};
    OK(setrlimit(RLIMIT_NOFILE, &limit));
    while (dup(0) != -1)
        ;
    ERR(syscall(SYS_eventfd2, 0u, 0), EMFILE);
}

TEST(receiving_and_sending) {
    things();
    int s[2], lone = OK(socket(AF_UNIX, SOCK_STREAM, 0));
    char c[4];
    struct iovec v = {c, sizeof c};
    struct mmsghdr m[1] = {{.msg_hdr = {.msg_iov = &v, .msg_iovlen = 1}}};
    OK(socketpair(AF_UNIX, SOCK_DGRAM, 0, s));
    ERR(recvfrom(-1, c, 1, 0, NULL, NULL), EBADF);
    ERR(recvfrom(file, c, 1, 0, NULL, NULL), ENOTSOCK);
    ERR(recvfrom(s[0], c, 1, MSG_DONTWAIT, NULL, NULL), EAGAIN);
    ERR(recvfrom(lone, c, 1, 0, NULL, NULL), EINVAL);
    OK(send(s[1], "x", 1, 0));
    ERR(recvfrom(s[0], BAD, 1, 0, NULL, NULL), EFAULT);
    ERR(sendmmsg(-1, m, 1, 0), EBADF);
    ERR(sendmmsg(file, m, 1, 0), ENOTSOCK);
    ERR(syscall(SYS_sendmmsg, s[0], BAD, 1u, 0), EFAULT);
    ERR(sendmmsg(lone, m, 1, MSG_NOSIGNAL), ENOTCONN);
    ERR(recvmmsg(-1, m, 1, 0, NULL), EBADF);
    ERR(recvmmsg(file, m, 1, 0, NULL), ENOTSOCK);
    ERR(recvmmsg(s[0], m, 1, MSG_DONTWAIT, NULL), EAGAIN);
    ERR(syscall(SYS_recvmmsg, s[0], BAD, 1u, MSG_DONTWAIT, NULL), EFAULT);
    struct timespec bad = {0, 1000000000};
    ERR(recvmmsg(s[0], m, 1, MSG_DONTWAIT, &bad), EINVAL);
}
