/* Path walk and open: symlinks, dots, slashes, lengths, the *at family, O_* flags. */
#define AREA "path"
#include "harness.h"
#include <sched.h>
#include <sys/mount.h>

#ifndef AT_EMPTY_PATH
#define AT_EMPTY_PATH 0x1000
#endif
#ifndef O_PATH
#define O_PATH 010000000
#endif

static ino_t ino(const char *path) {
    struct stat st;
    OK(stat(path, &st));
    return st.st_ino;
}

static int fd_of(const char *path, int flags) { return OK(open(path, flags | O_CLOEXEC, 0644)); }

static bool reads(int fd, const char *want) {
    char text[256];
    ssize_t n = OK(pread(fd, text, sizeof text, 0));
    return (size_t)n == strlen(want) && !memcmp(text, want, (size_t)n);
}

TEST(dots_and_slashes_normalise) {
    OK(mkdir("a", 0755));
    OK(mkdir("a/b", 0755));
    PUT("a/f", "x");
    CHECK_EQ(ino("a/./b/../f"), ino("a/f"));
    CHECK_EQ(ino("a//b///..//f"), ino("a/f"));
    CHECK_EQ(ino("./././a/f"), ino("a/f"));
    CHECK_EQ(ino("a/b/../../a/b/.."), ino("a"));
}

TEST(dot_dot_at_the_root_is_the_root) {
    CHECK_EQ(ino("/.."), ino("/"));
    CHECK_EQ(ino("/../../.."), ino("/"));
    CHECK_EQ(ino("//"), ino("/"));
    struct stat a, b;
    OK(stat("/../tmp", &a));
    OK(stat("/tmp", &b));
    CHECK_EQ(a.st_ino, b.st_ino);
}

TEST(empty_path_is_enoent) {
    struct stat st;
    ERR(open("", O_RDONLY), ENOENT);
    ERR(stat("", &st), ENOENT);
    ERR(mkdir("", 0755), ENOENT);
    ERR(unlink(""), ENOENT);
    ERR(rename("", "x"), ENOENT);
    ERR(chdir(""), ENOENT);
    ERR(symlink("", "x"), ENOENT);
    ERR(access("", F_OK), ENOENT);
}

TEST(file_in_the_middle_is_enotdir) {
    PUT("f", "x");
    ERR(open("f/x", O_RDONLY), ENOTDIR);
    ERR(open("f/.", O_RDONLY), ENOTDIR);
    ERR(open("f/..", O_RDONLY), ENOTDIR);
    ERR(mkdir("f/d", 0755), ENOTDIR);
    ERR(unlink("f/x"), ENOTDIR);
    ERR(chdir("f"), ENOTDIR);
    ERR(rmdir("f"), ENOTDIR);
    struct stat st;
    ERR(lstat("f/", &st), ENOTDIR);
}

TEST(missing_component_is_enoent) {
    ERR(open("none/x", O_RDONLY), ENOENT);
    ERR(open("none/../f", O_RDWR | O_CREAT, 0600), ENOENT);
    ERR(mkdir("none/d", 0755), ENOENT);
    ERR(mkdir("a/b/c", 0755), ENOENT);
}

TEST(trailing_slashes) {
    OK(mkdir("d", 0755));
    PUT("f", "x");
    OK(symlink("d", "to_d"));
    OK(symlink("f", "to_f"));
    struct stat st;
    OK(stat("d/", &st));
    OK(lstat("to_d/", &st)); /* the slash follows the link */
    CHECK(S_ISDIR(st.st_mode));
    ERR(stat("f/", &st), ENOTDIR);
    ERR(open("f/", O_RDONLY), ENOTDIR);
    ERR(open("to_f/", O_RDONLY), ENOTDIR);
    ERR(open("new/", O_WRONLY | O_CREAT, 0600), EISDIR);
    ERR(access("new", F_OK), ENOENT);
    OK(mkdir("made/", 0755));
    OK(rmdir("made/"));
    ERR(unlink("f/"), ENOTDIR);
    ERR(unlink("to_d/"), ENOTDIR);
    ERR(rename("f/", "g"), ENOTDIR);
    ERR(rename("f", "g/"), ENOTDIR);
    OK(rename("d/", "e/"));
    ERR(link("f", "g/"), ENOENT);
    ERR(symlink("f", "g/"), ENOENT);
    ERR(rmdir("to_d/"), ENOTDIR);
}

TEST(symbolic_links_are_followed) {
    OK(mkdir("d", 0755));
    PUT("d/f", "target");
    OK(symlink("d/f", "l"));
    OK(symlink("l", "ll"));
    OK(symlink("d", "dir"));
    OK(symlink("../d/f", "d/up"));
    CHECK(reads(fd_of("l", O_RDONLY), "target"));
    CHECK(reads(fd_of("ll", O_RDONLY), "target"));
    CHECK(reads(fd_of("dir/f", O_RDONLY), "target"));
    CHECK(reads(fd_of("d/up", O_RDONLY), "target")); /* relative to the link's directory */
    char absolute[PATH_MAX];
    snprintf(absolute, sizeof absolute, "%s/d/f", hy_tmp);
    OK(symlink(absolute, "abs"));
    CHECK(reads(fd_of("abs", O_RDONLY), "target"));
    CHECK_EQ(ino("dir/.."), ino(".")); /* .. of where the link leads */
}

TEST(dangling_link) {
    OK(symlink("nothing", "l"));
    struct stat st;
    ERR(open("l", O_RDONLY), ENOENT);
    ERR(stat("l", &st), ENOENT);
    OK(lstat("l", &st));
    CHECK(S_ISLNK(st.st_mode));
    CHECK_EQ(st.st_size, 7);
    ERR(open("l", O_WRONLY | O_CREAT | O_EXCL, 0600), EEXIST);
    OK(close(OK(open("l", O_WRONLY | O_CREAT, 0600)))); /* creates what it points to */
    OK(access("nothing", F_OK));
    ERR(mkdir("l", 0755), EEXIST);
}

TEST(loops_are_eloop) {
    OK(symlink("b", "a"));
    OK(symlink("a", "b"));
    OK(symlink("self", "self"));
    struct stat st;
    ERR(stat("a", &st), ELOOP);
    ERR(open("self", O_RDONLY), ELOOP);
    ERR(open("self/x", O_RDONLY), ELOOP);
    OK(lstat("a", &st));
    OK(unlink("a"));
}

TEST(forty_links_work_and_forty_one_do_not) {
    /* MAXSYMLINKS (path_resolution(7)) */
    char name[16], to[16];
    PUT("l0", "end");
    for (int i = 1; i <= 41; i++) {
        snprintf(name, sizeof name, "l%d", i);
        snprintf(to, sizeof to, "l%d", i - 1);
        OK(symlink(to, name));
    }
    OK(close(fd_of("l40", O_RDONLY)));
    ERR(open("l41", O_RDONLY), ELOOP);
}

TEST(name_of_255_works_and_256_is_enametoolong) {
    char name[300];
    memset(name, 'n', sizeof name);
    name[255] = 0;
    OK(close(OK(open(name, O_WRONLY | O_CREAT, 0600))));
    OK(unlink(name));
    name[255] = 'n', name[256] = 0;
    ERR(open(name, O_WRONLY | O_CREAT, 0600), ENAMETOOLONG);
    ERR(mkdir(name, 0755), ENAMETOOLONG);
    ERR(symlink("x", name), ENAMETOOLONG);
    struct stat st;
    ERR(stat(name, &st), ENAMETOOLONG);
}

TEST(path_of_4095_works_and_4096_is_enametoolong) {
    char path[4200];
    size_t n = 0;
    PUT("f", "x");
    while (n < 4094)
        path[n++] = '.', path[n++] = '/';
    path[n] = 'f', path[n + 1] = 0; /* 4095 bytes and the zero */
    CHECK_EQ(strlen(path), 4095);
    OK(close(OK(open(path, O_RDONLY))));
    path[4095] = 'f', path[4096] = 0;
    ERR(open(path, O_RDONLY), ENAMETOOLONG);
    char text[5000];
    memset(text, 't', sizeof text);
    text[4095] = 0;
    OK(symlink(text, "long"));
    text[4095] = 't', text[4096] = 0;
    ERR(symlink(text, "longer"), ENAMETOOLONG);
}

TEST(deep_directories_by_relative_steps) {
    char name[101];
    memset(name, 'd', 100);
    name[100] = 0;
    for (int i = 0; i < 50; i++) {
        OK(mkdir(name, 0755));
        OK(chdir(name));
    }
    char cwd[8192];
    CHECK(syscall(SYS_getcwd, cwd, sizeof cwd) == -1 && errno == ENAMETOOLONG);
    PUT("bottom", "x");
    for (int i = 0; i < 50; i++)
        OK(chdir(".."));
    CHECK_EQ(ino("."), ino(hy_tmp));
}

TEST(getcwd_forms_and_errors) {
    char cwd[PATH_MAX];
    long n = OK(syscall(SYS_getcwd, cwd, sizeof cwd));
    CHECK_EQ(n, strlen(cwd) + 1);
    CHECK_STR(cwd, hy_tmp);
    ERR(syscall(SYS_getcwd, cwd, 3L), ERANGE);
    ERR(syscall(SYS_getcwd, BAD, 4096L), EFAULT);
    OK(mkdir("gone", 0755));
    OK(chdir("gone"));
    OK(rmdir("../gone"));
    ERR(syscall(SYS_getcwd, cwd, sizeof cwd), ENOENT);
    ERR(open("x", O_WRONLY | O_CREAT, 0600), ENOENT);
    ERR(open("..x", O_RDONLY), ENOENT);
    OK(chdir(".."));
}

TEST(fchdir) {
    OK(mkdir("d", 0755));
    PUT("f", "x");
    int dir = fd_of("d", O_RDONLY | O_DIRECTORY), file = fd_of("f", O_RDONLY);
    OK(fchdir(dir));
    OK(access("../f", F_OK));
    ERR(fchdir(file), ENOTDIR);
    ERR(fchdir(999), EBADF);
}

TEST(at_calls_are_relative_to_the_descriptor) {
    OK(mkdir("d", 0755));
    PUT("d/f", "inside");
    PUT("file", "x");
    int dir = fd_of("d", O_RDONLY | O_DIRECTORY), file = fd_of("file", O_RDONLY);
    OK(rename("d", "moved")); /* the descriptor follows */
    int fd = OK(openat(dir, "f", O_RDONLY));
    CHECK(reads(fd, "inside"));
    OK(mkdirat(dir, "sub", 0755));
    OK(symlinkat("f", dir, "l"));
    OK(linkat(dir, "f", dir, "hard", 0));
    OK(renameat(dir, "hard", AT_FDCWD, "out"));
    OK(unlinkat(dir, "l", 0));
    OK(unlinkat(dir, "sub", AT_REMOVEDIR));
    struct stat st;
    OK(fstatat(dir, "../out", &st, 0));
    ERR(openat(file, "x", O_RDONLY), ENOTDIR);
    ERR(openat(999, "x", O_RDONLY), EBADF);
    OK(openat(999, hy_tmp, O_RDONLY)); /* an absolute path does not look at it */
    ERR(unlinkat(dir, "f", 0x8000), EINVAL);
    ERR(fstatat(dir, "f", &st, 0x10000), EINVAL);
    ERR(mkdirat(file, "x", 0755), ENOTDIR);
}

TEST(at_empty_path_names_the_descriptor) {
    PUT("f", "x");
    int fd = fd_of("f", O_RDONLY), path = fd_of("f", O_PATH);
    struct stat st;
    OK(fstatat(fd, "", &st, AT_EMPTY_PATH));
    CHECK_EQ(st.st_ino, ino("f"));
    OK(fstatat(path, "", &st, AT_EMPTY_PATH));
    ERR(fstatat(fd, "", &st, 0), ENOENT);
    OK(fstatat(AT_FDCWD, "", &st, AT_EMPTY_PATH));
    CHECK(S_ISDIR(st.st_mode));
    OK(linkat(fd, "", AT_FDCWD, "again", AT_EMPTY_PATH)); /* needs CAP_DAC_READ_SEARCH */
    CHECK_EQ(ino("again"), ino("f"));
    OK(fchownat(fd, "", 1, 1, AT_EMPTY_PATH));
}

TEST(create_flags) {
    int fd = OK(open("f", O_WRONLY | O_CREAT | O_EXCL, 0600));
    OK(write(fd, "0123456789", 10));
    ERR(open("f", O_WRONLY | O_CREAT | O_EXCL, 0600), EEXIST);
    fd = OK(open("f", O_RDWR | O_CREAT, 0)); /* the mode of an existing file stays */
    CHECK(reads(fd, "0123456789"));
    fd = OK(open("f", O_RDWR | O_TRUNC));
    CHECK(reads(fd, ""));
    OK(mkdir("d", 0755));
    ERR(open("d", O_RDONLY | O_CREAT, 0600), EISDIR);
    ERR(open("d", O_WRONLY), EISDIR);
    ERR(open("d", O_RDWR), EISDIR);
    ERR(open("d", O_WRONLY | O_TRUNC), EISDIR);
    ERR(open("d", O_RDONLY | O_CREAT | O_EXCL, 0600), EEXIST);
    ERR(open("none", O_RDONLY), ENOENT);
    ERR(open("none", O_RDWR | O_TRUNC), ENOENT);
}

TEST(o_directory_and_o_nofollow) {
    OK(mkdir("d", 0755));
    PUT("f", "x");
    OK(symlink("f", "l"));
    OK(symlink("d", "ld"));
    ERR(open("f", O_RDONLY | O_DIRECTORY), ENOTDIR);
    ERR(open("l", O_RDONLY | O_NOFOLLOW), ELOOP);
    ERR(open("ld", O_RDONLY | O_NOFOLLOW | O_DIRECTORY), ENOTDIR);
    OK(open("ld", O_RDONLY | O_DIRECTORY));
    OK(open("ld/.", O_RDONLY | O_NOFOLLOW)); /* only the last component counts */
    ERR(open("none", O_RDONLY | O_NOFOLLOW), ENOENT);
}

TEST(o_path_descriptor_can_do_little) {
    PUT("f", "x");
    OK(symlink("f", "l"));
    int fd = fd_of("f", O_PATH);
    char c;
    ERR(read(fd, &c, 1), EBADF);
    ERR(write(fd, &c, 1), EBADF);
    ERR(syscall(SYS_fchmod, fd, 0600), EBADF);
    ERR(lseek(fd, 0, SEEK_SET), EBADF);
    ERR(ftruncate(fd, 0), EBADF);
    ERR(syscall(SYS_ioctl, fd, 0x5401, NULL), EBADF);
    struct stat st;
    OK(fstat(fd, &st));
    OK(close(OK(dup(fd))));
    CHECK_EQ(OK(fcntl(fd, F_GETFL)) & O_PATH, O_PATH);
    int link = OK(open("l", O_PATH | O_NOFOLLOW));
    OK(fstat(link, &st));
    CHECK(S_ISLNK(st.st_mode));
    char to[8] = "";
    CHECK_EQ(OK(readlinkat(link, "", to, sizeof to)), 1);
    PUT_MODE("secret", "s", 0);
    IN_CHILD({
        BECOME(1000, 1000);
        OK(open("secret", O_PATH)); /* needs no right on the file itself */
    });
}

TEST(o_tmpfile_has_no_name) {
    int fd = open(".", O_TMPFILE | O_RDWR, 0600);
    if (fd == -1 && (errno == EOPNOTSUPP || errno == EISDIR))
        SKIP("this file system has no O_TMPFILE");
    OK(fd);
    OK(write(fd, "data", 4));
    struct stat st;
    OK(fstat(fd, &st));
    CHECK_EQ(st.st_nlink, 0);
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    OK(linkat(AT_FDCWD, path, AT_FDCWD, "named", AT_SYMLINK_FOLLOW));
    CHECK(reads(fd_of("named", O_RDONLY), "data"));
    ERR(open(".", O_TMPFILE | O_RDONLY, 0600), EINVAL);
    PUT("f", "x");
    ERR(open("f", O_TMPFILE | O_RDWR, 0600), ENOTDIR);
}

TEST(access_mode_bounds_read_and_write) {
    PUT("f", "x");
    char c;
    ERR(read(fd_of("f", O_WRONLY), &c, 1), EBADF);
    ERR(write(fd_of("f", O_RDONLY), &c, 1), EBADF);
    ERR(ftruncate(fd_of("f", O_RDONLY), 0), EINVAL);
    int dir = fd_of(".", O_RDONLY);
    ERR(read(dir, &c, 1), EISDIR);
    ERR(write(dir, &c, 1), EBADF);
}

TEST(getfl_and_setfl) {
    int fd = OK(open("f", O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
    int flags = OK(fcntl(fd, F_GETFL));
    CHECK_EQ(flags & O_ACCMODE, O_RDWR);
    CHECK(flags & O_APPEND);
    CHECK(!(flags & (O_CREAT | O_CLOEXEC)));
    OK(fcntl(fd, F_SETFL, O_NONBLOCK)); /* clears O_APPEND, keeps the access mode */
    flags = OK(fcntl(fd, F_GETFL));
    CHECK_EQ(flags & O_ACCMODE, O_RDWR);
    CHECK(!(flags & O_APPEND) && (flags & O_NONBLOCK));
    int copy = OK(dup(fd)); /* the flags belong to the open file */
    OK(fcntl(copy, F_SETFL, 0));
    CHECK(!(OK(fcntl(fd, F_GETFL)) & O_NONBLOCK));
}

TEST(lowest_free_descriptor_is_taken) {
    int a = OK(dup(2)), b = OK(dup(2));
    CHECK_EQ(b, a + 1);
    OK(close(a));
    CHECK_EQ(OK(open(".", O_RDONLY)), a);
    CHECK_EQ(OK(fcntl(2, F_DUPFD, b + 5)), b + 5);
    int c = OK(fcntl(2, F_DUPFD_CLOEXEC, 0));
    CHECK_EQ(OK(fcntl(c, F_GETFD)), FD_CLOEXEC);
    OK(fcntl(c, F_SETFD, 0));
    CHECK_EQ(OK(fcntl(c, F_GETFD)), 0);
}

TEST(dup2_and_dup3) {
    int fd = fd_of(".", O_RDONLY);
    CHECK_EQ(OK(fcntl(fd, F_GETFD)), FD_CLOEXEC);
    CHECK_EQ(OK(dup2(fd, 100)), 100);
    CHECK_EQ(OK(fcntl(100, F_GETFD)), 0); /* dup2 clears close-on-exec */
    CHECK_EQ(OK(dup2(fd, fd)), fd);
    CHECK_EQ(OK(fcntl(fd, F_GETFD)), FD_CLOEXEC); /* but not onto itself */
    CHECK_EQ(OK(syscall(SYS_dup3, fd, 101, O_CLOEXEC)), 101);
    CHECK_EQ(OK(fcntl(101, F_GETFD)), FD_CLOEXEC);
    ERR(syscall(SYS_dup3, fd, fd, 0), EINVAL);
    ERR(syscall(SYS_dup3, fd, 102, O_NONBLOCK), EINVAL);
    ERR(dup2(999, 103), EBADF);
    ERR(dup2(fd, -1), EBADF);
    ERR(dup2(999, 999), EBADF);
    ERR(dup(-1), EBADF);
}

TEST(close_errors) {
    int fd = OK(dup(2));
    OK(close(fd));
    ERR(close(fd), EBADF);
    ERR(close(-1), EBADF);
    ERR(close(1 << 30), EBADF);
}

TEST(close_range_closes_or_marks) {
    int fds[5];
    for (int i = 0; i < 5; i++)
        fds[i] = OK(dup2(2, 300 + i));
    long r = syscall(436, 301, 303, 0);
    if (r == -1 && errno == ENOSYS)
        SKIP("no close_range");
    OK(r);
    OK(fcntl(300, F_GETFD));
    ERR(fcntl(301, F_GETFD), EBADF);
    ERR(fcntl(303, F_GETFD), EBADF);
    OK(syscall(436, 304, ~0U, 4 /* CLOSE_RANGE_CLOEXEC */));
    CHECK_EQ(OK(fcntl(fds[4], F_GETFD)), FD_CLOEXEC);
    ERR(syscall(436, 10, 5, 0), EINVAL);
    ERR(syscall(436, 10, 20, 0x100), EINVAL);
}

TEST(openat2_or_enosys) {
    struct {
        uint64_t flags, mode, resolve;
    } how = {O_RDONLY, 0, 0};
    OK(mkdir("d", 0755));
    PUT("d/f", "x");
    OK(symlink("f", "d/l"));
    long fd = syscall(437, AT_FDCWD, "d/f", &how, sizeof how);
    if (fd == -1 && errno == ENOSYS)
        SKIP("no openat2");
    OK(fd);
    how.mode = 0600; /* a mode without O_CREAT */
    ERR(syscall(437, AT_FDCWD, "d/f", &how, sizeof how), EINVAL);
    how.mode = 0, how.resolve = 4; /* RESOLVE_NO_SYMLINKS */
    ERR(syscall(437, AT_FDCWD, "d/l", &how, sizeof how), ELOOP);
    how.resolve = 8; /* RESOLVE_BENEATH */
    int dir = fd_of("d", O_RDONLY);
    ERR(syscall(437, dir, "../d/f", &how, sizeof how), EXDEV);
    ERR(syscall(437, dir, "/etc", &how, sizeof how), EXDEV);
    how.resolve = 1ull << 40;
    ERR(syscall(437, dir, "f", &how, sizeof how), EINVAL);
    ERR(syscall(437, dir, "f", &how, 8L), EINVAL);
}

TEST(readlink_forms_and_errors) {
    OK(symlink("some/target", "l"));
    PUT("f", "x");
    char text[64];
    memset(text, '#', sizeof text);
    CHECK_EQ(OK(readlink("l", text, sizeof text)), 11);
    CHECK(!memcmp(text, "some/target#", 12)); /* no zero is added */
    CHECK_EQ(OK(readlink("l", text, 4)), 4); /* cut */
    ERR(readlink("f", text, sizeof text), EINVAL);
    ERR(readlink("none", text, sizeof text), ENOENT);
    ERR(syscall(SYS_readlink, "l", text, 0L), EINVAL);
    ERR(syscall(SYS_readlink, "l", text, -1L), EINVAL);
    ERR(syscall(SYS_readlink, "l", BAD, 10L), EFAULT);
}

TEST(path_pointers_outside_memory_are_efault) {
    struct stat st;
    ERR(open(BAD, O_RDONLY), EFAULT);
    ERR(open(KERNEL_ADDRESS, O_RDONLY), EFAULT);
    ERR(mkdir(BAD, 0755), EFAULT);
    ERR(unlink(BAD), EFAULT);
    ERR(rename("f", BAD), EFAULT);
    ERR(symlink(BAD, "x"), EFAULT);
    ERR(chdir(BAD), EFAULT);
    ERR(fstatat(AT_FDCWD, BAD, &st, 0), EFAULT);
    /* a string that runs out of its page without an end */
    char *page = OK(mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    OK(munmap(page + PAGE, PAGE));
    memset(page + PAGE - 10, 'p', 10);
    ERR(open(page + PAGE - 10, O_RDONLY), EFAULT);
    page[PAGE - 1] = 0; /* and one that ends just in time */
    ERR(open(page + PAGE - 10, O_RDONLY), ENOENT);
}

TEST(unlinked_working_directory_stays_usable) {
    OK(mkdir("d", 0755));
    OK(chdir("d"));
    OK(rmdir("../d"));
    struct stat st;
    OK(stat(".", &st));
    CHECK_EQ(st.st_nlink, 0);
    OK(stat("..", &st));
    ERR(mkdir("x", 0755), ENOENT);
}

TEST(bytes_of_names_are_free) {
    static const char *const names[] = {" ", "a b", "\n", "\xff\xfe", "...", "-", "*", "\\", "a:b",
                                        "\xe7\x96\xbe\xe9\xa2\xa8"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        OK(mkdir(names[i], 0755));
        struct stat st;
        OK(stat(names[i], &st));
    }
    DIR *dir = opendir(".");
    CHECK(dir != NULL);
    int found = 0;
    struct dirent *e;
    while ((e = readdir(dir)))
        for (size_t i = 0; i < sizeof names / sizeof *names; i++)
            found += !strcmp(e->d_name, names[i]);
    CHECK_EQ(found, 10);
    ERR(access("A B", F_OK), ENOENT); /* case matters */
}

TEST(dotdot_at_a_root_that_was_covered) {
    /* namei.c's follow_dotdot: at the root `..` is the root, with what has been mounted on it
     * since. */
    unshare(CLONE_NEWNS);
    mount("", "/", NULL, MS_REC | MS_PRIVATE, NULL);
    OK(mkdir("root", 0755));
    OK(mkdir("root/below", 0755));
    if (mount("tmpfs", "root", "tmpfs", 0, "mode=755") < 0)
        SKIP("cannot mount tmpfs: %s", strerror(errno));
    OK(mkdir("root/first", 0755));
    pid_t pid = OK(fork());
    if (pid == 0) {
        OK(chroot("root"));
        OK(chdir("/"));
        OK(mount("tmpfs", "/", "tmpfs", 0, "mode=755"));
        OK(access("/first", F_OK)); /* the root is still the first one */
        OK(mkdir("/../second", 0755));
        OK(access("/../second", F_OK));
        ERR(access("/second", F_OK), ENOENT);
        ERR(access("/../first", F_OK), ENOENT);
        OK(access("/first/../../second", F_OK));
        ERR(access("/first/../first/../second", F_OK), ENOENT);
        OK(umount2("/..", MNT_DETACH));
        OK(access("/../first", F_OK));
        _exit(0);
    }
    int status;
    OK(waitpid(pid, &status, 0));
    CHECK_EQ(status, 0);
    OK(umount2("root", MNT_DETACH));
    OK(access("root/below", F_OK));
}
