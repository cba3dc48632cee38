/*
 * What each system call answers to arguments that are wrong: a descriptor that is not open (EBADF),
 * an address that is not there (EFAULT), a path that leads nowhere (ENOENT), flags that do not
 * exist (EINVAL). The calls are made by number, so that no C library looks at the arguments first.
 *
 * Cases about what a call does, and its other errors, stand in the area of the call. Here is
 * what every row of the table of system calls must show before it may be called complete
 * (crates/abi/tests/evidence.rs).
 */
#define AREA "errors"
#include "harness.h"

#include <sys/epoll.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/timex.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/xattr.h>

/* Not open in any case. */
#define CLOSED 200
/* No call knows these flags. */
#define NO_FLAGS 0x40000000

/* Of linux/capability.h, which the static programs are built without. */
#define CAPABILITY_VERSION_3 0x20080522
struct capability_head {
    uint32_t version;
    int pid;
};
struct capability_data {
    uint32_t effective, permitted, inheritable;
};

static char buffer[PAGE];

static int file(void) {
    int fd = OK(open("file", O_RDWR | O_CREAT, 0644));
    OK(write(fd, "0123456789", 10));
    OK(lseek(fd, 0, SEEK_SET));
    return fd;
}

TEST(read_and_write_in_vectors) {
    struct iovec good = {buffer, 10}, bad = {bad_address(), 10};
    int fd = file();
    ERR(syscall(SYS_pread64, CLOSED, buffer, 10, 0), EBADF);
    ERR(syscall(SYS_pwrite64, CLOSED, buffer, 10, 0), EBADF);
    ERR(syscall(SYS_readv, CLOSED, &good, 1), EBADF);
    ERR(syscall(SYS_writev, CLOSED, &good, 1), EBADF);
    ERR(syscall(SYS_preadv, CLOSED, &good, 1, 0, 0), EBADF);
    ERR(syscall(SYS_pwritev, CLOSED, &good, 1, 0, 0), EBADF);
    ERR(syscall(SYS_preadv2, CLOSED, &good, 1, 0, 0, 0), EBADF);
    ERR(syscall(SYS_pwritev2, CLOSED, &good, 1, 0, 0, 0), EBADF);
    ERR(syscall(SYS_preadv, fd, &bad, 1, 0, 0), EFAULT);
    ERR(syscall(SYS_pwritev, fd, &bad, 1, 0, 0), EFAULT);
    ERR(syscall(SYS_preadv2, fd, &bad, 1, 0, 0, 0), EFAULT);
    ERR(syscall(SYS_pwritev2, fd, &bad, 1, 0, 0, 0), EFAULT);
    ERR(syscall(SYS_preadv, fd, bad_address(), 1, 0, 0), EFAULT);
    ERR(syscall(SYS_pwritev, fd, bad_address(), 1, 0, 0), EFAULT);
    ERR(syscall(SYS_preadv, fd, &good, -1, 0, 0), EINVAL);
    ERR(syscall(SYS_pwritev, fd, &good, 1025, 0, 0), EINVAL);
    ERR(syscall(SYS_preadv, fd, &good, 1, -1L, -1L), EINVAL);
    ERR(syscall(SYS_pwritev2, fd, &good, 1, -2L, -1L, 0), EINVAL);
    ERR(syscall(SYS_preadv2, fd, &good, 1, 0, 0, NO_FLAGS), EOPNOTSUPP);
    ERR(syscall(SYS_pwritev2, fd, &good, 1, 0, 0, NO_FLAGS), EOPNOTSUPP);
    int pipes[2];
    OK(pipe(pipes));
    ERR(syscall(SYS_preadv, pipes[0], &good, 1, 0, 0), ESPIPE);
    ERR(syscall(SYS_pwritev, pipes[1], &good, 1, 0, 0), ESPIPE);
}

TEST(between_files) {
    int fd = file(), pipes[2];
    OK(pipe(pipes));
    ERR(syscall(SYS_copy_file_range, fd, bad_address(), fd, NULL, 1, 0), EFAULT);
    ERR(syscall(SYS_copy_file_range, fd, NULL, fd, bad_address(), 1, 0), EFAULT);
    ERR(syscall(SYS_tee, CLOSED, pipes[1], 1, 0), EBADF);
    ERR(syscall(SYS_tee, pipes[0], CLOSED, 1, 0), EBADF);
    ERR(syscall(SYS_syncfs, CLOSED), EBADF);
    OK(syscall(SYS_syncfs, fd));
    OK(syscall(SYS_sync_file_range, fd, 0L, 0L, 7));
    ERR(syscall(SYS_sync_file_range, CLOSED, 0L, 0L, 0), EBADF);
    ERR(syscall(SYS_sync_file_range, fd, 0L, 0L, NO_FLAGS), EINVAL);
    ERR(syscall(SYS_sync_file_range, fd, -1L, 1L, 0), EINVAL);
    ERR(syscall(SYS_sync_file_range, fd, LONG_MAX, 1L, 0), EINVAL);
    ERR(syscall(SYS_sync_file_range, pipes[0], 0L, 0L, 0), ESPIPE);
    OK(syscall(SYS_readahead, fd, 0L, 10));
    ERR(syscall(SYS_readahead, CLOSED, 0L, 10), EBADF);
    ERR(syscall(SYS_readahead, pipes[0], 0L, 10), EINVAL);
    int only = OK(open("file", O_WRONLY));
    ERR(syscall(SYS_readahead, only, 0L, 10), EBADF);
    ERR(syscall(SYS_fadvise64, CLOSED, 0L, 0L, 0), EBADF);
    ERR(syscall(SYS_fadvise64, fd, 0L, 0L, 77), EINVAL);
    ERR(syscall(SYS_fadvise64, fd, 0L, -1L, 0), EINVAL);
    ERR(syscall(SYS_fadvise64, pipes[0], 0L, 0L, 0), ESPIPE);
}

TEST(opening) {
    int fd = OK(syscall(SYS_creat, "made", 0600));
    ERR(syscall(SYS_creat, "none/made", 0600), ENOENT);
    ERR(syscall(SYS_creat, bad_address(), 0600), EFAULT);
    ERR(syscall(SYS_creat, ".", 0600), EISDIR);
    ERR(syscall(SYS_close_range, 5, 4, 0), EINVAL);
    ERR(syscall(SYS_close_range, 5, 6, NO_FLAGS), EINVAL);
    OK(syscall(SYS_close_range, fd, fd, 0));
    ERR(fcntl(fd, F_GETFD), EBADF);
    ERR(syscall(SYS_dup3, CLOSED, 5, 0), EBADF);
    ERR(syscall(SYS_dup3, 0, 1 << 30, 0), EBADF);
}

TEST(listing) {
    int fd = OK(open(".", O_RDONLY | O_DIRECTORY)), other = file();
    CHECK(OK(syscall(SYS_getdents, fd, buffer, sizeof buffer)) > 0);
    OK(lseek(fd, 0, SEEK_SET));
    ERR(syscall(SYS_getdents, CLOSED, buffer, sizeof buffer), EBADF);
    ERR(syscall(SYS_getdents, fd, bad_address(), sizeof buffer), EFAULT);
    ERR(syscall(SYS_getdents, other, buffer, sizeof buffer), ENOTDIR);
    ERR(syscall(SYS_getdents, fd, buffer, 1), EINVAL);
}

TEST(names_below_a_directory) {
    int here = OK(open(".", O_RDONLY | O_DIRECTORY)), fd = file();
    const char *bad = bad_address();
    ERR(syscall(SYS_renameat, CLOSED, "a", here, "b"), EBADF);
    ERR(syscall(SYS_renameat, here, "file", CLOSED, "b"), EBADF);
    ERR(syscall(SYS_renameat, here, "none", here, "b"), ENOENT);
    ERR(syscall(SYS_renameat, fd, "file", here, "b"), ENOTDIR);
    ERR(syscall(SYS_renameat, here, bad, here, "b"), EFAULT);
    ERR(syscall(SYS_renameat, here, "file", here, bad), EFAULT);
    ERR(syscall(SYS_renameat2, CLOSED, "a", here, "b", 0), EBADF);
    ERR(syscall(SYS_renameat2, here, bad, here, "b", 0), EFAULT);
    ERR(syscall(SYS_mkdirat, CLOSED, "d", 0755), EBADF);
    ERR(syscall(SYS_mkdirat, here, bad, 0755), EFAULT);
    ERR(syscall(SYS_linkat, CLOSED, "file", here, "b", 0), EBADF);
    ERR(syscall(SYS_linkat, here, "none", here, "b", 0), ENOENT);
    ERR(syscall(SYS_linkat, here, bad, here, "b", 0), EFAULT);
    ERR(syscall(SYS_linkat, here, "file", here, bad, 0), EFAULT);
    ERR(syscall(SYS_unlinkat, CLOSED, "file", 0), EBADF);
    ERR(syscall(SYS_unlinkat, here, "none", 0), ENOENT);
    ERR(syscall(SYS_unlinkat, here, bad, 0), EFAULT);
    ERR(syscall(SYS_symlinkat, "to", CLOSED, "l"), EBADF);
    ERR(syscall(SYS_symlinkat, "to", here, "none/l"), ENOENT);
    ERR(syscall(SYS_symlinkat, "", here, "l"), ENOENT);
    ERR(syscall(SYS_symlinkat, bad, here, "l"), EFAULT);
    ERR(syscall(SYS_symlinkat, "to", here, bad), EFAULT);
    OK(syscall(SYS_symlinkat, "to", here, "l"));
    ERR(syscall(SYS_readlinkat, CLOSED, "l", buffer, 10), EBADF);
    ERR(syscall(SYS_readlinkat, here, "none", buffer, 10), ENOENT);
    ERR(syscall(SYS_readlinkat, here, bad, buffer, 10), EFAULT);
    ERR(syscall(SYS_readlinkat, here, "l", bad, 10), EFAULT);
    ERR(syscall(SYS_readlinkat, here, "l", buffer, 0), EINVAL);
    ERR(syscall(SYS_readlinkat, here, "file", buffer, 10), EINVAL);
    ERR(syscall(SYS_mknod, "none/node", S_IFIFO | 0600, 0), ENOENT);
    ERR(syscall(SYS_mknodat, CLOSED, "node", S_IFIFO | 0600, 0), EBADF);
    ERR(syscall(SYS_mknodat, here, "none/node", S_IFIFO | 0600, 0), ENOENT);
    ERR(syscall(SYS_mknodat, here, bad, S_IFIFO | 0600, 0), EFAULT);
    ERR(syscall(SYS_mknodat, here, "file", S_IFIFO | 0600, 0), EEXIST);
    ERR(syscall(SYS_mknodat, here, "d", S_IFDIR | 0600, 0), EPERM);
    OK(syscall(SYS_mknodat, here, "node", S_IFIFO | 0600, 0));
}

TEST(mounting) {
    ERR(syscall(SYS_pivot_root, "none", "none"), ENOENT);
    ERR(syscall(SYS_pivot_root, bad_address(), "."), EFAULT);
    ERR(syscall(SYS_umount2, bad_address(), 0), EFAULT);
    ERR(syscall(SYS_umount2, "none", 0), ENOENT);
    ERR(syscall(SYS_umount2, ".", NO_FLAGS), EINVAL);
    IN_CHILD({
        BECOME(NOBODY, NOBODY);
        ERR(syscall(SYS_pivot_root, "/", "/"), EPERM);
        ERR(syscall(SYS_umount2, "/", 0), EPERM);
    });
}

TEST(metadata) {
    int here = OK(open(".", O_RDONLY | O_DIRECTORY)), fd = file();
    const char *bad = bad_address();
    ERR(syscall(SYS_statx, CLOSED, "file", 0, 0x7ff, buffer), EBADF);
    ERR(syscall(SYS_statx, here, "none", 0, 0x7ff, buffer), ENOENT);
    ERR(syscall(SYS_statx, here, bad, 0, 0x7ff, buffer), EFAULT);
    ERR(syscall(SYS_statx, here, "file", 0, 0x7ff, bad), EFAULT);
    ERR(syscall(SYS_statx, here, "file", NO_FLAGS, 0x7ff, buffer), EINVAL);
    ERR(syscall(SYS_statx, here, "file", 0, 0x80000000u, buffer), EINVAL);
    ERR(syscall(SYS_fstatfs, fd, bad), EFAULT);
    OK(syscall(SYS_faccessat, here, "file", R_OK));
    ERR(syscall(SYS_faccessat, CLOSED, "file", R_OK), EBADF);
    ERR(syscall(SYS_faccessat, here, "none", R_OK), ENOENT);
    ERR(syscall(SYS_faccessat, here, bad, R_OK), EFAULT);
    ERR(syscall(SYS_faccessat, here, "file", 8), EINVAL);
    OK(syscall(SYS_faccessat2, here, "file", R_OK, 0));
    ERR(syscall(SYS_faccessat2, CLOSED, "file", R_OK, 0), EBADF);
    ERR(syscall(SYS_faccessat2, here, "none", R_OK, 0), ENOENT);
    ERR(syscall(SYS_faccessat2, here, bad, R_OK, 0), EFAULT);
    ERR(syscall(SYS_faccessat2, here, "file", R_OK, NO_FLAGS), EINVAL);
    ERR(syscall(SYS_fchmodat, CLOSED, "file", 0600), EBADF);
    ERR(syscall(SYS_fchmodat, here, "none", 0600), ENOENT);
    ERR(syscall(SYS_fchmodat, here, bad, 0600), EFAULT);
    ERR(syscall(SYS_lchown, "none", 0, 0), ENOENT);
    ERR(syscall(SYS_lchown, bad, 0, 0), EFAULT);
    ERR(syscall(SYS_fchownat, CLOSED, "file", 0, 0, 0), EBADF);
    ERR(syscall(SYS_fchownat, here, "none", 0, 0, 0), ENOENT);
    ERR(syscall(SYS_fchownat, here, bad, 0, 0, 0), EFAULT);
    ERR(syscall(SYS_fchownat, here, "file", 0, 0, NO_FLAGS), EINVAL);
}

TEST(times_of_files) {
    int here = OK(open(".", O_RDONLY | O_DIRECTORY));
    const char *bad = bad_address();
    struct timeval wrong[2] = {{0, 1000000}, {0, 0}};
    struct timespec when[2] = {{1, 0}, {2, 0}};
    close(file());
    OK(syscall(SYS_utime, "file", NULL));
    ERR(syscall(SYS_utime, "none", NULL), ENOENT);
    ERR(syscall(SYS_utime, bad, NULL), EFAULT);
    ERR(syscall(SYS_utime, "file", bad), EFAULT);
    OK(syscall(SYS_utimes, "file", NULL));
    ERR(syscall(SYS_utimes, "none", NULL), ENOENT);
    ERR(syscall(SYS_utimes, bad, NULL), EFAULT);
    ERR(syscall(SYS_utimes, "file", bad), EFAULT);
    ERR(syscall(SYS_utimes, "file", wrong), EINVAL);
    OK(syscall(SYS_futimesat, here, "file", NULL));
    ERR(syscall(SYS_futimesat, CLOSED, "file", NULL), EBADF);
    ERR(syscall(SYS_futimesat, here, "none", NULL), ENOENT);
    ERR(syscall(SYS_futimesat, here, bad, NULL), EFAULT);
    ERR(syscall(SYS_futimesat, here, "file", bad), EFAULT);
    ERR(syscall(SYS_futimesat, here, "file", wrong), EINVAL);
    ERR(syscall(SYS_utimensat, CLOSED, "file", when, 0), EBADF);
    ERR(syscall(SYS_utimensat, CLOSED, NULL, when, 0), EBADF);
}

/* The errors that do not hang on whether the file system has attributes. */
TEST(extended_attributes) {
    int fd = file();
    const char *bad = bad_address(), *name = "user.x";
    char longer[258] = "user.";
    memset(longer + 5, 'x', 252);
    ERR(syscall(SYS_setxattr, "none", name, "v", 1, 0), ENOENT);
    ERR(syscall(SYS_setxattr, bad, name, "v", 1, 0), EFAULT);
    ERR(syscall(SYS_setxattr, "file", bad, "v", 1, 0), EFAULT);
    ERR(syscall(SYS_setxattr, "file", name, bad, 1, 0), EFAULT);
    ERR(syscall(SYS_setxattr, "file", name, "v", 1, NO_FLAGS), EINVAL);
    ERR(syscall(SYS_setxattr, "file", name, "v", 65537, 0), E2BIG);
    ERR(syscall(SYS_setxattr, "file", "", "v", 1, 0), ERANGE);
    ERR(syscall(SYS_setxattr, "file", longer, "v", 1, 0), ERANGE);
    ERR(syscall(SYS_lsetxattr, "none", name, "v", 1, 0), ENOENT);
    ERR(syscall(SYS_lsetxattr, bad, name, "v", 1, 0), EFAULT);
    ERR(syscall(SYS_lsetxattr, "file", name, "v", 1, NO_FLAGS), EINVAL);
    ERR(syscall(SYS_fsetxattr, CLOSED, name, "v", 1, 0), EBADF);
    ERR(syscall(SYS_fsetxattr, fd, bad, "v", 1, 0), EFAULT);
    ERR(syscall(SYS_fsetxattr, fd, name, bad, 1, 0), EFAULT);
    ERR(syscall(SYS_fsetxattr, fd, name, "v", 1, NO_FLAGS), EINVAL);
    ERR(syscall(SYS_fsetxattr, fd, longer, "v", 1, 0), ERANGE);
    ERR(syscall(SYS_getxattr, "none", name, buffer, 10), ENOENT);
    ERR(syscall(SYS_getxattr, bad, name, buffer, 10), EFAULT);
    ERR(syscall(SYS_getxattr, "file", bad, buffer, 10), EFAULT);
    ERR(syscall(SYS_getxattr, "file", longer, buffer, 10), ERANGE);
    ERR(syscall(SYS_lgetxattr, "none", name, buffer, 10), ENOENT);
    ERR(syscall(SYS_lgetxattr, bad, name, buffer, 10), EFAULT);
    ERR(syscall(SYS_fgetxattr, CLOSED, name, buffer, 10), EBADF);
    ERR(syscall(SYS_fgetxattr, fd, bad, buffer, 10), EFAULT);
    ERR(syscall(SYS_fgetxattr, fd, "", buffer, 10), ERANGE);
    ERR(syscall(SYS_listxattr, "none", buffer, 10), ENOENT);
    ERR(syscall(SYS_listxattr, bad, buffer, 10), EFAULT);
    ERR(syscall(SYS_llistxattr, "none", buffer, 10), ENOENT);
    ERR(syscall(SYS_llistxattr, bad, buffer, 10), EFAULT);
    ERR(syscall(SYS_flistxattr, CLOSED, buffer, 10), EBADF);
    OK(syscall(SYS_fsetxattr, fd, "trusted.x", "v", 1, 0));
    ERR(syscall(SYS_flistxattr, fd, bad, PAGE), EFAULT);
    ERR(syscall(SYS_removexattr, "none", name), ENOENT);
    ERR(syscall(SYS_removexattr, bad, name), EFAULT);
    ERR(syscall(SYS_removexattr, "file", bad), EFAULT);
    ERR(syscall(SYS_lremovexattr, "none", name), ENOENT);
    ERR(syscall(SYS_lremovexattr, bad, name), EFAULT);
    ERR(syscall(SYS_fremovexattr, CLOSED, name), EBADF);
    ERR(syscall(SYS_fremovexattr, fd, bad), EFAULT);
}

TEST(events) {
    struct epoll_event event;
    struct timespec none = {0, 0}, wrong = {0, 1000000000};
    sigset_t empty;
    sigemptyset(&empty);
    int epoll = OK(epoll_create1(0)), inotify = OK(syscall(SYS_inotify_init));
    void *bad = bad_address();
    ERR(syscall(SYS_inotify_rm_watch, CLOSED, 1), EBADF);
    ERR(syscall(SYS_inotify_rm_watch, 0, 1), EINVAL);
    ERR(syscall(SYS_inotify_rm_watch, inotify, 1), EINVAL);
    ERR(syscall(SYS_ppoll, bad, 1, &none, NULL, 8), EFAULT);
    ERR(syscall(SYS_ppoll, NULL, 0, bad, NULL, 8), EFAULT);
    ERR(syscall(SYS_ppoll, NULL, 0, &none, bad, 8), EFAULT);
    ERR(syscall(SYS_ppoll, NULL, 0, &none, &empty, 7), EINVAL);
    ERR(syscall(SYS_ppoll, NULL, 0, &wrong, NULL, 8), EINVAL);
    ERR(syscall(SYS_pselect6, 1, bad, NULL, NULL, &none, NULL), EFAULT);
    ERR(syscall(SYS_pselect6, 0, NULL, NULL, NULL, bad, NULL), EFAULT);
    ERR(syscall(SYS_pselect6, 0, NULL, NULL, NULL, &none, bad), EFAULT);
    ERR(syscall(SYS_pselect6, -1, NULL, NULL, NULL, &none, NULL), EINVAL);
    ERR(syscall(SYS_epoll_pwait, CLOSED, &event, 1, 0, NULL, 8), EBADF);
    ERR(syscall(SYS_epoll_pwait, 0, &event, 1, 0, NULL, 8), EINVAL);
    ERR(syscall(SYS_epoll_pwait, epoll, bad, 1, 0, bad, 8), EFAULT);
    ERR(syscall(SYS_epoll_pwait, epoll, &event, 0, 0, NULL, 8), EINVAL);
    CHECK_EQ(syscall(SYS_epoll_pwait2, epoll, &event, 1, &none, NULL, 8), 0);
    ERR(syscall(SYS_epoll_pwait2, CLOSED, &event, 1, &none, NULL, 8), EBADF);
    ERR(syscall(SYS_epoll_pwait2, epoll, &event, 1, bad, NULL, 8), EFAULT);
    ERR(syscall(SYS_epoll_pwait2, epoll, &event, 1, &wrong, NULL, 8), EINVAL);
    ERR(syscall(SYS_signalfd, -1, bad, 8), EFAULT);
    ERR(syscall(SYS_timerfd_gettime, CLOSED, buffer), EBADF);
    ERR(syscall(SYS_timerfd_gettime, 0, buffer), EINVAL);
}

TEST(memory) {
    void *page = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(page != MAP_FAILED);
    OK(munmap((char *)page + PAGE, PAGE));
    OK(syscall(SYS_mlock2, page, PAGE, 0));
    ERR(syscall(SYS_mlock2, page, PAGE, NO_FLAGS), EINVAL);
    ERR(syscall(SYS_mlock2, page, 2 * PAGE, 0), ENOMEM);
    OK(syscall(SYS_munlock, page, PAGE));
    ERR(syscall(SYS_munlock, page, 2 * PAGE), ENOMEM);
    ERR(syscall(SYS_mlockall, 0), EINVAL);
    ERR(syscall(SYS_mlockall, 8), EINVAL);
    ERR(syscall(SYS_mlockall, MCL_ONFAULT), EINVAL);
    OK(syscall(SYS_munlockall));
    IN_CHILD({
        struct rlimit zero = {0, 0};
        OK(setrlimit(RLIMIT_MEMLOCK, &zero));
        BECOME(NOBODY, NOBODY);
        ERR(syscall(SYS_mlockall, MCL_CURRENT), EPERM);
        ERR(syscall(SYS_mlock2, page, PAGE, 0), EPERM);
    });
}

TEST(memory_of_another_process) {
    char there[10] = "somewhere", here[10] = "";
    struct iovec local = {here, 10}, remote = {there, 10}, bad = {bad_address(), 10};
    pid_t self = getpid();
    CHECK_EQ(syscall(SYS_process_vm_readv, self, &local, 1, &remote, 1, 0), 10);
    CHECK_STR(here, "somewhere");
    CHECK_EQ(syscall(SYS_process_vm_writev, self, &local, 1, &remote, 1, 0), 10);
    ERR(syscall(SYS_process_vm_readv, self, bad_address(), 1, &remote, 1, 0), EFAULT);
    ERR(syscall(SYS_process_vm_readv, self, &local, 1, bad_address(), 1, 0), EFAULT);
    ERR(syscall(SYS_process_vm_readv, self, &local, 1, &bad, 1, 0), EFAULT);
    ERR(syscall(SYS_process_vm_readv, self, &bad, 1, &remote, 1, 0), EFAULT);
    ERR(syscall(SYS_process_vm_readv, self, &local, 1, &remote, 1, 1), EINVAL);
    ERR(syscall(SYS_process_vm_readv, self, &local, -1, &remote, 1, 0), EINVAL);
    ERR(syscall(SYS_process_vm_readv, INT_MAX, &local, 1, &remote, 1, 0), ESRCH);
    ERR(syscall(SYS_process_vm_writev, self, bad_address(), 1, &remote, 1, 0), EFAULT);
    ERR(syscall(SYS_process_vm_writev, self, &local, 1, &bad, 1, 0), EFAULT);
    ERR(syscall(SYS_process_vm_writev, self, &local, 1, &remote, 1, 1), EINVAL);
    ERR(syscall(SYS_process_vm_writev, INT_MAX, &local, 1, &remote, 1, 0), ESRCH);
    IN_CHILD({
        BECOME(NOBODY, NOBODY);
        ERR(syscall(SYS_process_vm_readv, self, &local, 1, &remote, 1, 0), EPERM);
        ERR(syscall(SYS_process_vm_writev, self, &local, 1, &remote, 1, 0), EPERM);
    });
}

TEST(processes) {
    char *none[] = {NULL};
    ERR(syscall(SYS_execve, "none", none, none), ENOENT);
    ERR(syscall(SYS_execve, bad_address(), none, none), EFAULT);
    ERR(syscall(SYS_execve, hy_self, bad_address(), none), EFAULT);
    ERR(syscall(SYS_execve, hy_self, none, bad_address()), EFAULT);
    ERR(syscall(SYS_execveat, AT_FDCWD, bad_address(), none, none, 0), EFAULT);
    pid_t child = FORK();
    if (child == 0)
        _exit(3);
    ERR(syscall(SYS_waitid, P_PID, child, bad_address(), WEXITED | WNOWAIT, NULL), EFAULT);
    ERR(syscall(SYS_waitid, P_PID, child, NULL, 0, NULL), EINVAL);
    ERR(syscall(SYS_waitid, 77, child, NULL, WEXITED, NULL), EINVAL);
    EXITS(child, 3);
    ERR(syscall(SYS_waitid, P_PID, child, NULL, WEXITED, NULL), ECHILD);
    int self = OK(syscall(SYS_pidfd_open, getpid(), 0));
    ERR(syscall(SYS_pidfd_open, getpid(), NO_FLAGS), EINVAL);
    ERR(syscall(SYS_pidfd_open, -1, 0), EINVAL);
    ERR(syscall(SYS_pidfd_open, INT_MAX, 0), ESRCH);
    OK(syscall(SYS_pidfd_send_signal, self, 0, NULL, 0));
    ERR(syscall(SYS_pidfd_send_signal, CLOSED, 0, NULL, 0), EBADF);
    ERR(syscall(SYS_pidfd_send_signal, 0, 0, NULL, 0), EBADF);
    ERR(syscall(SYS_pidfd_send_signal, self, 0, bad_address(), 0), EFAULT);
    ERR(syscall(SYS_pidfd_send_signal, self, 0, NULL, NO_FLAGS), EINVAL);
    ERR(syscall(SYS_pidfd_send_signal, self, 65, NULL, 0), EINVAL);
}

TEST(queued_signals) {
    siginfo_t info = {0};
    info.si_code = SI_QUEUE;
    pid_t self = getpid(), thread = (pid_t)syscall(SYS_gettid);
    ERR(syscall(SYS_rt_sigqueueinfo, self, 0, bad_address()), EFAULT);
    ERR(syscall(SYS_rt_tgsigqueueinfo, self, thread, 0, bad_address()), EFAULT);
    ERR(syscall(SYS_rt_tgsigqueueinfo, 0, thread, 0, &info), EINVAL);
    ERR(syscall(SYS_rt_tgsigqueueinfo, self, -1, 0, &info), EINVAL);
    ERR(syscall(SYS_rt_tgsigqueueinfo, self, INT_MAX, 0, &info), ESRCH);
    ERR(syscall(SYS_rt_tgsigqueueinfo, self, thread, 65, &info), EINVAL);
    OK(syscall(SYS_rt_tgsigqueueinfo, self, thread, 0, &info));
}

/* Nothing was interrupted: there is nothing to go on with. */
TEST(nothing_to_restart) {
    ERR(syscall(SYS_restart_syscall), EINTR);
}

TEST(clocks) {
    void *bad = bad_address();
    struct timespec wrong = {0, 1000000000};
    struct timeval wrong_time = {0, 1000001};
    struct timex time = {0};
    ERR(syscall(SYS_clock_settime, CLOCK_REALTIME, bad), EFAULT);
    ERR(syscall(SYS_clock_settime, CLOCK_REALTIME, &wrong), EINVAL);
    ERR(syscall(SYS_clock_settime, CLOCK_MONOTONIC, &wrong), EINVAL);
    ERR(syscall(SYS_clock_getres, CLOCK_MONOTONIC, bad), EFAULT);
    ERR(syscall(SYS_clock_getres, 99, NULL), EINVAL);
    CHECK(OK(syscall(SYS_clock_adjtime, CLOCK_REALTIME, &time)) >= 0);
    ERR(syscall(SYS_clock_adjtime, CLOCK_REALTIME, bad), EFAULT);
    ERR(syscall(SYS_clock_adjtime, 99, &time), EINVAL);
    ERR(syscall(SYS_clock_adjtime, CLOCK_MONOTONIC, &time), EOPNOTSUPP);
    CHECK(OK(syscall(SYS_adjtimex, &time)) >= 0);
    ERR(syscall(SYS_adjtimex, bad), EFAULT);
    ERR(syscall(SYS_settimeofday, bad, NULL), EFAULT);
    ERR(syscall(SYS_settimeofday, NULL, bad), EFAULT);
    ERR(syscall(SYS_settimeofday, &wrong_time, NULL), EINVAL);
    ERR(syscall(SYS_time, bad), EFAULT);
    IN_CHILD({
        struct timeval now;
        OK(gettimeofday(&now, NULL));
        BECOME(NOBODY, NOBODY);
        ERR(syscall(SYS_settimeofday, &now, NULL), EPERM);
        time.modes = ADJ_FREQUENCY;
        ERR(syscall(SYS_adjtimex, &time), EPERM);
        ERR(syscall(SYS_clock_adjtime, CLOCK_REALTIME, &time), EPERM);
    });
}

TEST(timers) {
    int timer = 0;
    struct itimerspec wrong = {{0, 0}, {0, 1000000000}}, off = {{0, 0}, {0, 0}};
    OK(syscall(SYS_timer_create, CLOCK_MONOTONIC, NULL, &timer));
    ERR(syscall(SYS_timer_settime, timer, 0, bad_address(), NULL), EFAULT);
    ERR(syscall(SYS_timer_settime, timer, 0, &wrong, NULL), EINVAL);
    ERR(syscall(SYS_timer_settime, timer, 0, NULL, NULL), EINVAL);
    ERR(syscall(SYS_timer_settime, timer + 1000, 0, &off, NULL), EINVAL);
    OK(syscall(SYS_timer_delete, timer));
    ERR(syscall(SYS_timer_delete, timer), EINVAL);
}

TEST(scheduling) {
    void *bad = bad_address();
    struct {
        uint32_t size, policy;
        uint64_t flags;
        int32_t nice;
        uint32_t priority;
        uint64_t runtime, deadline, period;
    } attributes = {48, 0, 0, 0, 0, 0, 0, 0};
    struct sched_param parameters = {0};
    struct timespec interval;
    OK(syscall(SYS_sched_setparam, 0, &parameters));
    ERR(syscall(SYS_sched_setparam, 0, NULL), EINVAL);
    ERR(syscall(SYS_sched_setparam, 0, bad), EFAULT);
    ERR(syscall(SYS_sched_setparam, -1, &parameters), EINVAL);
    ERR(syscall(SYS_sched_setparam, INT_MAX, &parameters), ESRCH);
    parameters.sched_priority = 1;
    ERR(syscall(SYS_sched_setparam, 0, &parameters), EINVAL);
    ERR(syscall(SYS_sched_setscheduler, 0, SCHED_OTHER, bad), EFAULT);
    ERR(syscall(SYS_sched_get_priority_min, 99), EINVAL);
    ERR(syscall(SYS_sched_get_priority_max, 99), EINVAL);
    ERR(syscall(SYS_sched_rr_get_interval, 0, bad), EFAULT);
    ERR(syscall(SYS_sched_rr_get_interval, -1, &interval), EINVAL);
    ERR(syscall(SYS_sched_rr_get_interval, INT_MAX, &interval), ESRCH);
    OK(syscall(SYS_sched_setattr, 0, &attributes, 0));
    ERR(syscall(SYS_sched_setattr, 0, bad, 0), EFAULT);
    ERR(syscall(SYS_sched_setattr, 0, NULL, 0), EINVAL);
    ERR(syscall(SYS_sched_setattr, 0, &attributes, 1), EINVAL);
    ERR(syscall(SYS_sched_setattr, -1, &attributes, 0), EINVAL);
    ERR(syscall(SYS_sched_setattr, INT_MAX, &attributes, 0), ESRCH);
    attributes.policy = 99;
    ERR(syscall(SYS_sched_setattr, 0, &attributes, 0), EINVAL);
    ERR(syscall(SYS_sched_getattr, 0, bad, 48, 0), EFAULT);
    ERR(syscall(SYS_sched_getattr, 0, &attributes, 48, 1), EINVAL);
    ERR(syscall(SYS_sched_getattr, 0, &attributes, 47, 0), EINVAL);
    ERR(syscall(SYS_sched_getattr, INT_MAX, &attributes, 48, 0), ESRCH);
}

TEST(credentials) {
    void *bad = bad_address();
    struct capability_head head = {CAPABILITY_VERSION_3, 0};
    struct capability_data data[2];
    OK(syscall(SYS_capget, &head, data));
    ERR(syscall(SYS_capget, bad, data), EFAULT);
    ERR(syscall(SYS_capget, &head, bad), EFAULT);
    ERR(syscall(SYS_capset, bad, data), EFAULT);
    ERR(syscall(SYS_capset, &head, bad), EFAULT);
    OK(syscall(SYS_capset, &head, data));
    head.pid = -1;
    ERR(syscall(SYS_capget, &head, data), EINVAL);
    head.pid = INT_MAX;
    ERR(syscall(SYS_capget, &head, data), ESRCH);
    head.pid = 1;
    ERR(syscall(SYS_capset, &head, data), EPERM);
    head.version = 77;
    ERR(syscall(SYS_capget, &head, data), EINVAL);
    CHECK_EQ(head.version, CAPABILITY_VERSION_3);
    IN_CHILD({
        BECOME(NOBODY, NOBODY);
        ERR(syscall(SYS_setuid, 0), EPERM);
        ERR(syscall(SYS_setgid, 0), EPERM);
        ERR(syscall(SYS_setreuid, 0, 0), EPERM);
        ERR(syscall(SYS_setregid, 0, 0), EPERM);
        ERR(syscall(SYS_setresuid, 0, -1, -1), EPERM);
        ERR(syscall(SYS_setresgid, -1, -1, 0), EPERM);
        OK(syscall(SYS_setregid, -1, NOBODY));
        CHECK_EQ(syscall(SYS_setfsgid, 0), NOBODY);
        CHECK_EQ(syscall(SYS_setfsgid, -1), NOBODY);
    });
    ERR(syscall(SYS_setuid, -1), EINVAL);
    ERR(syscall(SYS_setgid, -1), EINVAL);
}

TEST(names_of_the_machine) {
    ERR(syscall(SYS_setdomainname, bad_address(), 3), EFAULT);
    ERR(syscall(SYS_setdomainname, "x", -1), EINVAL);
    ERR(syscall(SYS_setdomainname, "x", 65), EINVAL);
    ERR(syscall(SYS_set_robust_list, bad_address(), 1), EINVAL);
}

TEST(sockets) {
    int pair[2], listener = OK(socket(AF_UNIX, SOCK_STREAM, 0)), fd = file();
    void *bad = bad_address();
    struct sockaddr_un name = {AF_UNIX, "socket"};
    struct msghdr head = {0};
    struct mmsghdr many[1] = {{{0}, 0}};
    socklen_t length = sizeof name;
    OK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
    ERR(syscall(SYS_connect, CLOSED, &name, length), EBADF);
    ERR(syscall(SYS_connect, fd, &name, length), ENOTSOCK);
    ERR(syscall(SYS_bind, CLOSED, &name, length), EBADF);
    ERR(syscall(SYS_bind, fd, &name, length), ENOTSOCK);
    ERR(syscall(SYS_listen, CLOSED, 1), EBADF);
    ERR(syscall(SYS_listen, fd, 1), ENOTSOCK);
    OK(bind(listener, (struct sockaddr *)&name, length));
    OK(listen(listener, 4));
    for (int i = 0; i < 2; i++)
        OK(connect(OK(socket(AF_UNIX, SOCK_STREAM, 0)), (struct sockaddr *)&name, length));
    ERR(syscall(SYS_accept, CLOSED, NULL, NULL), EBADF);
    ERR(syscall(SYS_accept, listener, &name, bad), EFAULT);
    ERR(syscall(SYS_accept4, CLOSED, NULL, NULL, 0), EBADF);
    ERR(syscall(SYS_accept4, listener, &name, bad, 0), EFAULT);
    ERR(syscall(SYS_accept4, listener, NULL, NULL, NO_FLAGS), EINVAL);
    ERR(syscall(SYS_sendto, CLOSED, "x", 1, 0, NULL, 0), EBADF);
    ERR(syscall(SYS_sendto, fd, "x", 1, 0, NULL, 0), ENOTSOCK);
    ERR(syscall(SYS_sendto, pair[0], bad, 1, 0, NULL, 0), EFAULT);
    ERR(syscall(SYS_sendto, pair[0], "x", 1, 0, &name, 1000), EINVAL);
    OK(send(pair[0], "x", 1, 0));
    ERR(syscall(SYS_recvfrom, CLOSED, buffer, 1, 0, NULL, NULL), EBADF);
    ERR(syscall(SYS_recvfrom, fd, buffer, 1, 0, NULL, NULL), ENOTSOCK);
    ERR(syscall(SYS_recvfrom, pair[1], bad, 1, MSG_PEEK, NULL, NULL), EFAULT);
    length = -1;
    ERR(syscall(SYS_recvfrom, pair[1], buffer, 1, MSG_PEEK, &name, &length), EINVAL);
    ERR(syscall(SYS_sendmsg, CLOSED, &head, 0), EBADF);
    ERR(syscall(SYS_sendmsg, pair[0], bad, 0), EFAULT);
    ERR(syscall(SYS_recvmsg, CLOSED, &head, 0), EBADF);
    ERR(syscall(SYS_recvmsg, pair[1], bad, 0), EFAULT);
    ERR(syscall(SYS_sendmmsg, CLOSED, many, 1, 0), EBADF);
    ERR(syscall(SYS_sendmmsg, pair[0], bad, 1, 0), EFAULT);
    ERR(syscall(SYS_recvmmsg, CLOSED, many, 1, 0, NULL), EBADF);
    ERR(syscall(SYS_recvmmsg, pair[1], bad, 1, MSG_DONTWAIT, NULL), EFAULT);
    ERR(syscall(SYS_recvmmsg, pair[1], many, 1, MSG_DONTWAIT, bad), EFAULT);
    struct timespec wrong = {0, 1000000000};
    ERR(syscall(SYS_recvmmsg, pair[1], many, 1, MSG_DONTWAIT, &wrong), EINVAL);
    head.msg_iovlen = 1025;
    ERR(syscall(SYS_sendmsg, pair[0], &head, 0), EMSGSIZE);
    ERR(syscall(SYS_recvmsg, pair[1], &head, 0), EMSGSIZE);
    ERR(syscall(SYS_shutdown, CLOSED, SHUT_RD), EBADF);
    ERR(syscall(SYS_shutdown, pair[0], 7), EINVAL);
    ERR(syscall(SYS_getsockname, CLOSED, &name, &length), EBADF);
    ERR(syscall(SYS_getsockname, pair[0], &name, bad), EFAULT);
    ERR(syscall(SYS_getpeername, CLOSED, &name, &length), EBADF);
    ERR(syscall(SYS_getpeername, pair[0], &name, bad), EFAULT);
}
