/* copy_file_range(2): what it copies, what it refuses, and in which order it looks. */
#define AREA "copy"
#include "harness.h"

static long copy(int in, off_t *from, int out, off_t *to, size_t count, unsigned flags) {
    return syscall(SYS_copy_file_range, in, from, out, to, count, flags);
}

static int in, out;
static void files(void) {
    PUT("in", "0123456789");
    PUT("out", "abcdefghij");
    in = OK(open("in", O_RDONLY));
    out = OK(open("out", O_RDWR));
}
static const char *content(const char *path) {
    static char text[256];
    CHECK(get_file(path, text, sizeof text) >= 0);
    return text;
}

TEST(positions_or_offsets_move) {
    files();
    OK(lseek(in, 2, SEEK_SET));
    CHECK_EQ(OK(copy(in, NULL, out, NULL, 3, 0)), 3);
    CHECK_EQ(OK(lseek(in, 0, SEEK_CUR)), 5);
    CHECK_EQ(OK(lseek(out, 0, SEEK_CUR)), 3);
    CHECK_STR(content("out"), "234defghij");
    off_t from = 0, to = 8;
    CHECK_EQ(OK(copy(in, &from, out, &to, 4, 0)), 4);
    CHECK_EQ(from, 4);
    CHECK_EQ(to, 12);
    CHECK_EQ(OK(lseek(in, 0, SEEK_CUR)), 5);
    CHECK_EQ(OK(lseek(out, 0, SEEK_CUR)), 3);
    CHECK_STR(content("out"), "234defgh0123");
    from = 20;
    CHECK_EQ(OK(copy(in, &from, out, &to, 4, 0)), 0); /* beyond the end there is nothing */
    CHECK_EQ(from, 20);
    from = 8;
    CHECK_EQ(OK(copy(in, &from, out, NULL, 100, 0)), 2); /* as much as there is */
}

TEST(within_one_file) {
    files();
    off_t from = 0, to = 5;
    CHECK_EQ(OK(copy(out, &from, out, &to, 5, 0)), 5);
    CHECK_STR(content("out"), "abcdeabcde");
    from = 0, to = 4;
    ERR(copy(out, &from, out, &to, 5, 0), EINVAL);
    from = 4, to = 0;
    ERR(copy(out, &from, out, &to, 5, 0), EINVAL);
    from = to = 3;
    ERR(copy(out, &from, out, &to, 1, 0), EINVAL);
    /* The range that would be copied counts: it ends with the file. */
    from = 8, to = 12;
    CHECK_EQ(OK(copy(out, &from, out, &to, 100, 0)), 2);
    from = to = 50;
    CHECK_EQ(OK(copy(out, &from, out, &to, 10, 0)), 0);
    int again = OK(open("out", O_RDONLY));
    from = 0, to = 1;
    ERR(copy(again, &from, out, &to, 5, 0), EINVAL);
}

TEST(copy_file_range_descriptor_errors) {
    files();
    int directory = OK(open(".", O_RDONLY)), p[2];
    OK(pipe(p));
    ERR(copy(-1, NULL, out, NULL, 1, 0), EBADF);
    ERR(copy(in, NULL, -1, NULL, 1, 0), EBADF);
    ERR(copy(OK(open("in", O_PATH)), NULL, out, NULL, 1, 0), EBADF);
    ERR(copy(OK(open("in", O_WRONLY)), NULL, out, NULL, 1, 0), EBADF);
    ERR(copy(in, NULL, OK(open("out", O_RDONLY)), NULL, 1, 0), EBADF);
    ERR(copy(in, NULL, OK(open("out", O_WRONLY | O_APPEND)), NULL, 1, 0), EBADF);
    ERR(copy(directory, NULL, out, NULL, 1, 0), EISDIR);
    ERR(copy(in, NULL, directory, NULL, 1, 0), EISDIR);
    ERR(copy(p[0], NULL, directory, NULL, 1, 0), EISDIR); /* looked for first */
    ERR(copy(p[0], NULL, out, NULL, 1, 0), EINVAL);
    ERR(copy(in, NULL, p[1], NULL, 1, 0), EINVAL);
    ERR(copy(OK(open("/dev/zero", O_RDONLY)), NULL, out, NULL, 1, 0), EINVAL);
    CHECK_STR(content("out"), "abcdefghij");
}

TEST(copy_file_range_argument_errors) {
    files();
    off_t from = 0, to = 0;
    ERR(copy(in, NULL, out, NULL, 1, 1), EINVAL);
    ERR(copy(in, NULL, out, NULL, 1, ~0u), EINVAL);
    ERR(copy(in, BAD, out, NULL, 1, 0), EFAULT);
    ERR(copy(in, NULL, out, BAD, 1, 0), EFAULT);
    from = 1;
    ERR(copy(in, &from, out, NULL, SIZE_MAX, 0), EOVERFLOW);
    from = -1;
    ERR(copy(in, &from, out, NULL, 10, 0), EOVERFLOW);
    from = 0, to = -1;
    ERR(copy(in, &from, out, &to, 10, 0), EOVERFLOW);
    to = INT64_MAX;
    ERR(copy(in, &from, out, &to, 1, 0), EFBIG);
    CHECK_EQ(from, 0);
    CHECK_EQ(OK(copy(in, NULL, out, NULL, 0, 0)), 0);
}

TEST(another_file_system_is_exdev) {
    files();
    int proc = open("/proc/self/stat", O_RDONLY);
    if (proc == -1)
        SKIP("no /proc");
    ERR(copy(proc, NULL, out, NULL, 1, 0), EXDEV);
}

TEST(the_limit_of_file_size_counts) {
    files();
    OK(signal(SIGXFSZ, SIG_IGN) == SIG_ERR ? -1 : 0);
    struct rlimit limit = {12, 12};
    OK(setrlimit(RLIMIT_FSIZE, &limit));
    off_t from = 0, to = 8;
    CHECK_EQ(OK(copy(in, &from, out, &to, 10, 0)), 4); /* as much as may be */
    CHECK_STR(content("out"), "abcdefgh0123");
    ERR(copy(in, &from, out, &to, 1, 0), EFBIG);
    OK(signal(SIGXFSZ, SIG_DFL) == SIG_ERR ? -1 : 0);
    pid_t pid = FORK();
    if (pid == 0) {
        copy(in, &from, out, &to, 1, 0);
        _exit(0);
    }
    int status = WAIT(pid);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGXFSZ);
}

TEST(times_and_set_id_bits_are_as_after_a_write) {
    files();
    if (geteuid() != 0)
        SKIP("not root");
    struct timespec old[2] = {{1, 0}, {1, 0}};
    OK(utimensat(AT_FDCWD, "out", old, 0));
    OK(chmod(".", 0777));
    OK(chmod("out", 04777));
    OK(chown("out", NOBODY, NOBODY));
    OK(chmod("out", 04777));
    IN_CHILD({
        BECOME(NOBODY, NOBODY);
        int mine = OK(open("out", O_WRONLY));
        CHECK_EQ(OK(copy(in, NULL, mine, NULL, 2, 0)), 2);
    });
    struct stat st;
    OK(stat("out", &st));
    CHECK(st.st_mtime > 1);
    CHECK_EQ(st.st_mode & 07777, 0777);
}
