/* Directories: reading, creating, removing, links and rename. */
#define AREA "dir"
#include "harness.h"
#include <sys/sysmacros.h>

static nlink_t links(const char *path) {
    struct stat st;
    OK(lstat(path, &st));
    return st.st_nlink;
}
static ino_t ino(const char *path) {
    struct stat st;
    OK(lstat(path, &st));
    return st.st_ino;
}
static bool is(const char *path, const char *want) {
    char text[256];
    return get_file(path, text, sizeof text) >= 0 && !strcmp(text, want);
}
static long renameat2_(const char *from, const char *to, unsigned flags) {
    return syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, flags);
}
enum { NOREPLACE = 1, EXCHANGE = 2, WHITEOUT = 4 };

struct entry64 {
    uint64_t ino;
    int64_t off;
    uint16_t reclen;
    uint8_t type;
    char name[];
};

TEST(mkdir_and_rmdir) {
    OK(mkdir("d", 0755));
    struct stat st;
    OK(stat("d", &st));
    CHECK(S_ISDIR(st.st_mode));
    CHECK_EQ(st.st_nlink, 2);
    ERR(mkdir("d", 0755), EEXIST);
    OK(mkdir("d/sub", 0755));
    CHECK_EQ(links("d"), 3); /* `..` of the subdirectory */
    ERR(rmdir("d"), ENOTEMPTY);
    OK(rmdir("d/sub"));
    CHECK_EQ(links("d"), 2);
    OK(rmdir("d"));
    ERR(rmdir("d"), ENOENT);
}

TEST(rmdir_errors) {
    OK(mkdir("d", 0755));
    OK(symlink("d", "l"));
    PUT("f", "x");
    ERR(rmdir("."), EINVAL);
    ERR(rmdir("d/."), EINVAL);
    ERR(rmdir("d/.."), ENOTEMPTY);
    ERR(rmdir("/"), EBUSY);
    ERR(rmdir("f"), ENOTDIR);
    ERR(rmdir("l"), ENOTDIR);
    ERR(unlink("d"), EISDIR);
    ERR(mkdir("/", 0755), EEXIST);
    ERR(mkdir(".", 0755), EEXIST);
    ERR(mkdir("..", 0755), EEXIST);
    ERR(mkdir("f", 0755), EEXIST);
}

TEST(getdents_lists_everything_once) {
    enum { COUNT = 500 };
    char name[32];
    OK(mkdir("d", 0755));
    for (int i = 0; i < COUNT; i++) {
        snprintf(name, sizeof name, "d/entry-%03d", i);
        OK(close(OK(open(name, O_WRONLY | O_CREAT, 0600))));
    }
    int fd = OK(open("d", O_RDONLY | O_DIRECTORY));
    char buffer[1000];
    static int seen[COUNT];
    int dots = 0;
    long n;
    while ((n = OK(syscall(SYS_getdents64, fd, buffer, sizeof buffer))) > 0)
        for (long at = 0; at < n;) {
            struct entry64 *e = (struct entry64 *)(buffer + at);
            CHECK(e->reclen >= 24 && e->reclen % 8 == 0 && at + e->reclen <= n);
            CHECK(e->ino != 0);
            if (e->name[0] == '.') {
                dots++;
                CHECK_EQ(e->type, DT_DIR);
            } else {
                CHECK_EQ(e->type, DT_REG);
                int k = atoi(e->name + 6);
                CHECK(k >= 0 && k < COUNT && !seen[k]);
                seen[k] = 1;
            }
            at += e->reclen;
        }
    CHECK_EQ(dots, 2);
    for (int i = 0; i < COUNT; i++)
        CHECK(seen[i]);
    CHECK_EQ(OK(syscall(SYS_getdents64, fd, buffer, sizeof buffer)), 0); /* stays at the end */
}

TEST(getdents_types) {
    OK(mkdir("d", 0755));
    OK(mkdir("d/dir", 0755));
    OK(symlink("x", "d/link"));
    OK(mkfifo("d/fifo", 0600));
    OK(mknod("d/sock", S_IFSOCK | 0600, 0));
    DIR *dir = opendir("d");
    CHECK(dir != NULL);
    int found = 0;
    struct dirent *e;
    while ((e = readdir(dir))) {
        struct stat st;
        char path[300];
        snprintf(path, sizeof path, "d/%s", e->d_name);
        OK(lstat(path, &st));
        if (e->d_name[0] != '.') {
            CHECK_EQ(e->d_type, (st.st_mode & S_IFMT) >> 12);
            CHECK_EQ(e->d_ino, st.st_ino);
            found++;
        }
    }
    CHECK_EQ(found, 4);
}

TEST(getdents_errors) {
    char buffer[100];
    int dir = OK(open(".", O_RDONLY)), file = OK(open("f", O_RDWR | O_CREAT, 0600));
    ERR(syscall(SYS_getdents64, file, buffer, sizeof buffer), ENOTDIR);
    ERR(syscall(SYS_getdents64, 999, buffer, sizeof buffer), EBADF);
    ERR(syscall(SYS_getdents64, dir, buffer, 10L), EINVAL); /* no entry fits */
    ERR(syscall(SYS_getdents64, dir, BAD, 1000L), EFAULT);
    OK(mkdir("d", 0755));
    int gone = OK(open("d", O_RDONLY));
    OK(rmdir("d"));
    ERR(syscall(SYS_getdents64, gone, buffer, sizeof buffer), ENOENT);
}

TEST(rewind_and_seek_in_a_directory) {
    OK(mkdir("d", 0755));
    for (char c = 'a'; c <= 'j'; c++) {
        char name[] = {'d', '/', c, 0};
        PUT(name, "");
    }
    DIR *dir = opendir("d");
    CHECK(dir != NULL);
    for (int i = 0; i < 5; i++)
        CHECK(readdir(dir) != NULL);
    long at = telldir(dir);
    char sixth[256];
    snprintf(sixth, sizeof sixth, "%s", readdir(dir)->d_name);
    while (readdir(dir))
        ;
    seekdir(dir, at);
    CHECK_STR(readdir(dir)->d_name, sixth);
    rewinddir(dir);
    int n = 0;
    while (readdir(dir))
        n++;
    CHECK_EQ(n, 12);
}

TEST(removal_while_reading_misses_nothing) {
    enum { COUNT = 300 };
    char name[32];
    OK(mkdir("d", 0755));
    for (int i = 0; i < COUNT; i++) {
        snprintf(name, sizeof name, "d/f%d", i);
        PUT(name, "");
    }
    int fd = OK(open("d", O_RDONLY | O_DIRECTORY)), removed = 0;
    char buffer[512];
    long n;
    while ((n = OK(syscall(SYS_getdents64, fd, buffer, sizeof buffer))) > 0)
        for (long at = 0; at < n;) { /* what rm -r does */
            struct entry64 *e = (struct entry64 *)(buffer + at);
            if (e->name[0] != '.') {
                OK(unlinkat(fd, e->name, 0));
                removed++;
            }
            at += e->reclen;
        }
    CHECK_EQ(removed, COUNT);
    OK(rmdir("d"));
}

TEST(hard_links_share_the_file) {
    PUT("a", "one");
    OK(link("a", "b"));
    CHECK_EQ(links("a"), 2);
    CHECK_EQ(ino("a"), ino("b"));
    PUT("b", "two");
    CHECK(is("a", "two"));
    OK(unlink("a"));
    CHECK_EQ(links("b"), 1);
    CHECK(is("b", "two"));
}

TEST(link_errors) {
    PUT("a", "x");
    PUT("b", "y");
    OK(mkdir("d", 0755));
    ERR(link("a", "b"), EEXIST);
    ERR(link("a", "a"), EEXIST);
    ERR(link("none", "c"), ENOENT);
    ERR(link("d", "c"), EPERM);
    ERR(link("a", "none/c"), ENOENT);
    ERR(link("a", "b/c"), ENOTDIR);
    ERR(linkat(AT_FDCWD, "a", AT_FDCWD, "c", 0x4000), EINVAL);
    ERR2(link("a", "/proc/hayate-link"), EXDEV, ENOENT); /* whichever is found first */
}

TEST(link_does_not_follow_unless_told) {
    PUT("f", "x");
    OK(symlink("f", "l"));
    OK(link("l", "hard"));
    struct stat st;
    OK(lstat("hard", &st));
    CHECK(S_ISLNK(st.st_mode));
    OK(linkat(AT_FDCWD, "l", AT_FDCWD, "file", AT_SYMLINK_FOLLOW));
    OK(lstat("file", &st));
    CHECK(S_ISREG(st.st_mode));
}

TEST(unlinked_open_file_lives_on) {
    PUT("f", "still there");
    int fd = OK(open("f", O_RDWR));
    OK(unlink("f"));
    ERR(open("f", O_RDONLY), ENOENT);
    struct stat st;
    OK(fstat(fd, &st));
    CHECK_EQ(st.st_nlink, 0);
    char text[16];
    CHECK_EQ(OK(pread(fd, text, 16, 0)), 11);
    OK(pwrite(fd, "more", 4, 11));
    CHECK_EQ(OK(lseek(fd, 0, SEEK_END)), 15);
    PUT("f", "another");
    CHECK_EQ(OK(pread(fd, text, 5, 0)), 5);
    CHECK(!memcmp(text, "still", 5));
}

TEST(symlink_errors) {
    PUT("f", "x");
    ERR(symlink("t", "f"), EEXIST);
    ERR(symlink("t", "none/l"), ENOENT);
    OK(symlink("t", "l"));
    ERR(symlink("t", "l"), EEXIST);
    OK(unlink("l")); /* the link, not its target */
    OK(access("f", F_OK));
}

TEST(rename_moves_and_replaces) {
    PUT("a", "A");
    PUT("b", "B");
    ino_t a = ino("a");
    OK(rename("a", "b"));
    CHECK(is("b", "A"));
    CHECK_EQ(ino("b"), a);
    ERR(access("a", F_OK), ENOENT);
    OK(mkdir("d", 0755));
    OK(rename("b", "d/c"));
    CHECK(is("d/c", "A"));
}

TEST(rename_to_itself_and_between_links_does_nothing) {
    PUT("a", "A");
    OK(rename("a", "a"));
    OK(link("a", "b"));
    OK(rename("a", "b")); /* two names of one file: both stay (rename(2)) */
    OK(access("a", F_OK));
    OK(access("b", F_OK));
}

TEST(rename_of_directories) {
    OK(mkdir("a", 0755));
    OK(mkdir("a/sub", 0755));
    PUT("a/sub/f", "x");
    OK(mkdir("empty", 0755));
    OK(mkdir("full", 0755));
    PUT("full/f", "y");
    ERR(rename("a", "full"), ENOTEMPTY);
    OK(rename("a", "empty")); /* an empty one is replaced */
    OK(access("empty/sub/f", F_OK));
    CHECK_EQ(links("."), 4);
    OK(rename("empty/sub", "sub"));
    CHECK_EQ(ino("sub/.."), ino("."));
    CHECK_EQ(links("empty"), 2);
}

TEST(rename_into_own_child_is_einval) {
    OK(mkdir("a", 0755));
    OK(mkdir("a/b", 0755));
    OK(mkdir("a/b/c", 0755));
    ERR(rename("a", "a/x"), EINVAL);
    ERR(rename("a", "a/b/c/x"), EINVAL);
    ERR(rename("a", "a/b"), EINVAL);
    ERR(rename("a/b/c", "a"), ENOTEMPTY); /* an ancestor */
    OK(access("a/b/c", F_OK));
}

TEST(rename_type_conflicts) {
    PUT("f", "x");
    OK(mkdir("d", 0755));
    ERR(rename("f", "d"), EISDIR);
    ERR(rename("d", "f"), ENOTDIR);
    ERR(rename("none", "x"), ENOENT);
    ERR(rename("f", "none/x"), ENOENT);
    ERR(rename("f", "f/x"), ENOTDIR);
    ERR2(rename(".", "x"), EBUSY, EINVAL);
    ERR2(rename("d/..", "x"), EBUSY, EINVAL);
    ERR2(rename("f", "."), EBUSY, EINVAL);
    ERR2(rename("f", ".."), EBUSY, ENOTEMPTY);
    ERR2(rename("/", "x"), EBUSY, EXDEV);
    ERR(rename("f", "/proc/hayate-x"), EXDEV);
}

TEST(rename_keeps_open_descriptors_valid) {
    PUT("a", "A");
    PUT("b", "B");
    int fd = OK(open("b", O_RDONLY));
    OK(rename("a", "b"));
    char c;
    CHECK_EQ(OK(read(fd, &c, 1)), 1);
    CHECK_EQ(c, 'B'); /* the replaced file */
    struct stat st;
    OK(fstat(fd, &st));
    CHECK_EQ(st.st_nlink, 0);
}

TEST(rename_of_links_moves_the_link) {
    PUT("f", "x");
    OK(symlink("f", "l"));
    OK(rename("l", "m"));
    struct stat st;
    OK(lstat("m", &st));
    CHECK(S_ISLNK(st.st_mode));
    PUT("g", "y");
    OK(rename("g", "m")); /* replaces the link itself */
    CHECK(is("f", "x"));
    CHECK(is("m", "y"));
}

TEST(renameat2_noreplace) {
    PUT("a", "A");
    PUT("b", "B");
    ERR(renameat2_("a", "b", NOREPLACE), EEXIST);
    CHECK(is("b", "B"));
    OK(renameat2_("a", "c", NOREPLACE));
    CHECK(is("c", "A"));
    ERR(renameat2_("b", "b", NOREPLACE), EEXIST);
}

TEST(renameat2_exchange) {
    PUT("f", "file");
    OK(mkdir("d", 0755));
    PUT("d/in", "x");
    OK(renameat2_("f", "d", EXCHANGE));
    CHECK(is("d", "file"));
    OK(access("f/in", F_OK));
    ERR(renameat2_("d", "none", EXCHANGE), ENOENT);
    OK(mkdir("f/sub", 0755));
    ERR2(renameat2_("f", "f/sub", EXCHANGE), EINVAL, ENOTEMPTY);
}

TEST(renameat2_flag_errors) {
    PUT("a", "A");
    ERR(renameat2_("a", "b", NOREPLACE | EXCHANGE), EINVAL);
    ERR(renameat2_("a", "b", 0x100), EINVAL);
    ERR(renameat2_("a", "b", EXCHANGE | WHITEOUT), EINVAL);
}

TEST(sibling_renames_race_without_loss) {
    /* Two processes swing one file between two names; it always has exactly one. */
    PUT("a", "ball");
    pid_t pids[2];
    for (int i = 0; i < 2; i++)
        if ((pids[i] = FORK()) == 0) {
            for (int n = 0; n < 500; n++)
                if (i == 0)
                    rename("a", "b");
                else
                    rename("b", "a");
            _exit(0);
        }
    EXITS(pids[0], 0);
    EXITS(pids[1], 0);
    CHECK(is("a", "ball") != is("b", "ball"));
}

TEST(cross_directory_renames_do_not_deadlock) {
    OK(mkdir("x", 0755));
    OK(mkdir("y", 0755));
    PUT("x/1", "");
    PUT("y/2", "");
    pid_t pids[4];
    for (int i = 0; i < 4; i++)
        if ((pids[i] = FORK()) == 0) {
            for (int n = 0; n < 300; n++) {
                if (i % 2) {
                    rename("x/1", "y/1");
                    rename("y/1", "x/1");
                } else {
                    rename("y/2", "x/2");
                    rename("x/2", "y/2");
                }
            }
            _exit(0);
        }
    for (int i = 0; i < 4; i++)
        EXITS(pids[i], 0);
    CHECK((access("x/1", F_OK) == 0) != (access("y/1", F_OK) == 0));
}

TEST(create_race_with_o_excl_has_one_winner) {
    _Atomic int *wins = SHARED(PAGE);
    for (int round = 0; round < 20; round++) {
        char name[16];
        snprintf(name, sizeof name, "r%d", round);
        pid_t pids[4];
        for (int i = 0; i < 4; i++)
            if ((pids[i] = FORK()) == 0) {
                if (open(name, O_WRONLY | O_CREAT | O_EXCL, 0600) != -1)
                    atomic_fetch_add(wins, 1);
                _exit(0);
            }
        for (int i = 0; i < 4; i++)
            EXITS(pids[i], 0);
    }
    CHECK_EQ(*wins, 20);
}

TEST(mknod_kinds_and_errors) {
    OK(mknod("reg", S_IFREG | 0644, 0));
    OK(mknod("plain", 0644, 0)); /* type 0 is a regular file */
    OK(mknod("fifo", S_IFIFO | 0644, 0));
    OK(mknod("null", S_IFCHR | 0666, 0x103));
    struct stat st;
    OK(stat("null", &st));
    CHECK(S_ISCHR(st.st_mode));
    CHECK_EQ(st.st_rdev, 0x103);
    OK(stat("plain", &st));
    CHECK(S_ISREG(st.st_mode));
    ERR(mknod("reg", S_IFREG | 0644, 0), EEXIST);
    ERR(mknod("d", S_IFDIR | 0755, 0), EPERM);
    ERR(mknod("l", S_IFLNK | 0755, 0), EINVAL);
    OK(mknod("nodev", S_IFCHR | 0666, makedev(3000, 7))); /* no driver has a major over 511 */
    ERR(open("nodev", O_RDWR), ENXIO);
    ERR(open("sock", O_RDONLY), ENOENT);
    OK(mknod("sock", S_IFSOCK | 0600, 0));
    ERR(open("sock", O_RDONLY), ENXIO);
}
