/* Reading and writing: positions, vectors, holes, truncation, fallocate, sendfile, copies. */
#define AREA "file"
#include "harness.h"
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/uio.h>

static int scratch(void) { return OK(open("f", O_RDWR | O_CREAT | O_TRUNC, 0600)); }
static off_t size_of(int fd) {
    struct stat st;
    OK(fstat(fd, &st));
    return st.st_size;
}
static int64_t blocks_of(int fd) {
    struct stat st;
    OK(fstat(fd, &st));
    return st.st_blocks;
}
static void holds(int line, int fd, off_t at, const char *want) {
    char text[256];
    size_t n = strlen(want);
    if (pread(fd, text, n, at) != (ssize_t)n || memcmp(text, want, n) != 0)
        hy_fail(__FILE__, line, "at %ld there is not \"%s\"", (long)at, want);
}
#define HOLDS(fd, at, want) holds(__LINE__, fd, at, want)

TEST(read_write_and_position) {
    int fd = scratch();
    CHECK_EQ(OK(write(fd, "hello world", 11)), 11);
    CHECK_EQ(OK(lseek(fd, 0, SEEK_CUR)), 11);
    char text[32];
    CHECK_EQ(OK(read(fd, text, sizeof text)), 0); /* at the end */
    CHECK_EQ(OK(lseek(fd, 6, SEEK_SET)), 6);
    CHECK_EQ(OK(read(fd, text, sizeof text)), 5);
    CHECK(!memcmp(text, "world", 5));
    CHECK_EQ(OK(lseek(fd, -5, SEEK_END)), 6);
    CHECK_EQ(OK(lseek(fd, -6, SEEK_CUR)), 0);
    CHECK_EQ(OK(read(fd, text, 0)), 0);
    CHECK_EQ(OK(write(fd, text, 0)), 0);
}

TEST(lseek_errors) {
    int fd = scratch();
    ERR(lseek(fd, -1, SEEK_SET), EINVAL);
    ERR(lseek(fd, -1, SEEK_CUR), EINVAL);
    ERR(lseek(fd, 0, 99), EINVAL);
    ERR(lseek(999, 0, SEEK_SET), EBADF);
    int p[2];
    OK(pipe(p));
    ERR(lseek(p[0], 0, SEEK_CUR), ESPIPE);
    int s = OK(socket(AF_UNIX, SOCK_STREAM, 0));
    ERR(lseek(s, 0, SEEK_CUR), ESPIPE);
    CHECK_EQ(OK(lseek(fd, 1000000, SEEK_SET)), 1000000); /* beyond the end is allowed */
    CHECK_EQ(size_of(fd), 0);
}

TEST(write_past_the_end_leaves_zeros) {
    int fd = scratch();
    OK(pwrite(fd, "x", 1, 10000));
    CHECK_EQ(size_of(fd), 10001);
    char byte = 1;
    OK(pread(fd, &byte, 1, 5000));
    CHECK_EQ(byte, 0);
}

TEST(o_append_writes_at_the_end) {
    int fd = scratch();
    OK(write(fd, "base", 4));
    int a = OK(open("f", O_RDWR | O_APPEND));
    OK(lseek(a, 0, SEEK_SET));
    OK(write(a, "+1", 2));
    CHECK_EQ(OK(lseek(a, 0, SEEK_CUR)), 6);
    OK(pwrite(a, "+2", 2, 0)); /* pwrite appends as well: pwrite(2), BUGS */
    HOLDS(fd, 0, "base+1+2");
    OK(ftruncate(fd, 0));
    OK(write(a, "new", 3));
    HOLDS(fd, 0, "new");
}

TEST(concurrent_appends_do_not_overlap) {
    int fd = scratch();
    pid_t pids[4];
    for (int i = 0; i < 4; i++)
        if ((pids[i] = FORK()) == 0) {
            int own = OK(open("f", O_WRONLY | O_APPEND));
            char record[16];
            memset(record, 'a' + i, 16);
            for (int n = 0; n < 100; n++)
                CHECK_EQ(OK(write(own, record, 16)), 16);
            _exit(0);
        }
    for (int i = 0; i < 4; i++)
        EXITS(pids[i], 0);
    CHECK_EQ(size_of(fd), 4 * 100 * 16);
    char record[16];
    int counts[4] = {0};
    while (read(fd, record, 16) == 16) {
        for (int i = 1; i < 16; i++)
            CHECK_EQ(record[i], record[0]);
        counts[record[0] - 'a']++;
    }
    for (int i = 0; i < 4; i++)
        CHECK_EQ(counts[i], 100);
}

TEST(shared_offset_of_parent_and_child) {
    int fd = scratch();
    IN_CHILD(OK(write(fd, "child", 5)));
    OK(write(fd, "parent", 6));
    HOLDS(fd, 0, "childparent");
    int other = OK(open("f", O_RDONLY));
    CHECK_EQ(OK(lseek(other, 0, SEEK_CUR)), 0); /* an open of its own */
    int copy = OK(dup(fd));
    CHECK_EQ(OK(lseek(copy, 0, SEEK_CUR)), 11);
}

TEST(pread_and_pwrite_leave_the_position) {
    int fd = scratch();
    OK(write(fd, "0123456789", 10));
    char text[4];
    CHECK_EQ(OK(pread(fd, text, 4, 3)), 4);
    CHECK(!memcmp(text, "3456", 4));
    CHECK_EQ(OK(pwrite(fd, "AB", 2, 5)), 2);
    CHECK_EQ(OK(lseek(fd, 0, SEEK_CUR)), 10);
    CHECK_EQ(OK(pread(fd, text, 4, 8)), 2);
    CHECK_EQ(OK(pread(fd, text, 4, 100)), 0);
    ERR(pread(fd, text, 4, -1), EINVAL);
    ERR(pwrite(fd, text, 4, -1), EINVAL);
    int p[2];
    OK(pipe(p));
    ERR(pread(p[0], text, 1, 0), ESPIPE);
    ERR(pwrite(p[1], text, 1, 0), ESPIPE);
}

TEST(vectors_scatter_and_gather) {
    int fd = scratch();
    struct iovec w[3] = {{(char *)"one", 3}, {(char *)"", 0}, {(char *)"two!", 4}};
    CHECK_EQ(OK(writev(fd, w, 3)), 7);
    char a[2], b[10];
    struct iovec r[2] = {{a, 2}, {b, 10}};
    OK(lseek(fd, 0, SEEK_SET));
    CHECK_EQ(OK(readv(fd, r, 2)), 7);
    CHECK(!memcmp(a, "on", 2) && !memcmp(b, "etwo!", 5));
    CHECK_EQ(OK(preadv(fd, r, 2, 3)), 4);
    CHECK(!memcmp(a, "tw", 2) && !memcmp(b, "o!", 2));
    CHECK_EQ(OK(pwritev(fd, w, 3, 1)), 7);
    HOLDS(fd, 0, "oonetwo!");
    CHECK_EQ(OK(readv(fd, r, 0)), 0);
}

TEST(vector_errors) {
    int fd = scratch();
    static char page[4096];
    struct iovec v[2] = {{page, 10}, {BAD, 10}};
    CHECK_EQ(OK(writev(fd, v, 2)), 10); /* what was good before the fault */
    struct iovec only[1] = {{BAD, 10}};
    ERR(writev(fd, only, 1), EFAULT);
    ERR(writev(fd, BAD, 1), EFAULT);
    ERR(syscall(SYS_writev, fd, v, -1L), EINVAL);
    ERR(syscall(SYS_writev, fd, v, 1025L), EINVAL);
    struct iovec huge[2] = {{page, SIZE_MAX / 2}, {page, SIZE_MAX / 2}};
    ERR2(writev(fd, huge, 2), EINVAL, EFAULT); /* newer kernels clamp the sum and look at the memory */
    struct iovec negative[1] = {{page, SIZE_MAX}};
    ERR(readv(fd, negative, 1), EINVAL);
}

TEST(thousand_and_24_vectors) {
    int fd = scratch();
    static struct iovec v[1024];
    for (int i = 0; i < 1024; i++)
        v[i] = (struct iovec){(char *)"ab", 2};
    CHECK_EQ(OK(writev(fd, v, 1024)), 2048);
}

TEST(preadv2_flags) {
    int fd = scratch();
    OK(write(fd, "0123456789", 10));
    char text[4];
    struct iovec v = {text, 4};
    OK(lseek(fd, 2, SEEK_SET));
    /* offset -1 is the file's position (preadv2(2)) */
    CHECK_EQ(OK(syscall(SYS_preadv2, fd, &v, 1L, -1L, -1L, 0)), 4);
    CHECK(!memcmp(text, "2345", 4));
    CHECK_EQ(OK(lseek(fd, 0, SEEK_CUR)), 6);
    CHECK_EQ(OK(syscall(SYS_preadv2, fd, &v, 1L, 0L, 0L, 0)), 4);
    ERR2(syscall(SYS_preadv2, fd, &v, 1L, 0L, 0L, 0x8000000), EOPNOTSUPP, EINVAL);
    v.iov_base = (char *)"XY", v.iov_len = 2;
    CHECK_EQ(OK(syscall(SYS_pwritev2, fd, &v, 1L, 0L, 0L, 0x10 /* RWF_APPEND */)), 2);
    HOLDS(fd, 8, "89XY");
}

TEST(truncate_cuts_and_grows) {
    int fd = scratch();
    OK(write(fd, "0123456789", 10));
    OK(ftruncate(fd, 4));
    CHECK_EQ(size_of(fd), 4);
    OK(ftruncate(fd, 8));
    char text[8];
    CHECK_EQ(OK(pread(fd, text, 8, 0)), 8);
    CHECK(!memcmp(text, "0123\0\0\0\0", 8)); /* the old bytes do not come back */
    CHECK_EQ(OK(lseek(fd, 0, SEEK_CUR)), 10);
    OK(truncate("f", 100000));
    CHECK_EQ(size_of(fd), 100000);
}

TEST(truncate_errors) {
    int fd = scratch();
    OK(mkdir("d", 0755));
    ERR(truncate("d", 0), EISDIR);
    ERR(truncate("none", 0), ENOENT);
    ERR(truncate("f", -1), EINVAL);
    ERR(ftruncate(fd, -1), EINVAL);
    ERR(truncate("f/x", 0), ENOTDIR);
    ERR(truncate(BAD, 0), EFAULT);
    int p[2];
    OK(pipe(p));
    ERR(ftruncate(p[1], 0), EINVAL);
    ERR2(ftruncate(OK(open(".", O_RDONLY)), 0), EINVAL, EISDIR);
    ERR(ftruncate(999, 0), EBADF);
}

TEST(seek_hole_and_data) {
    int fd = scratch();
    enum { K = 1024 };
    OK(pwrite(fd, "data", 4, 0));
    OK(pwrite(fd, "data", 4, 256 * K));
    OK(ftruncate(fd, 512 * K));
    CHECK_EQ(OK(lseek(fd, 0, SEEK_DATA)), 0);
    off_t hole = OK(lseek(fd, 0, SEEK_HOLE));
    off_t data = OK(lseek(fd, hole, SEEK_DATA));
    if (hole == 512 * K)
        SKIP("this file system knows no holes");
    CHECK(hole >= 4 && hole <= 256 * K);
    CHECK(data >= hole && data <= 256 * K && data > 128 * K);
    hole = OK(lseek(fd, 256 * K, SEEK_HOLE));
    CHECK(hole > 256 * K && hole < 512 * K);
    ERR(lseek(fd, hole, SEEK_DATA), ENXIO); /* only a hole is left */
    ERR(lseek(fd, 512 * K, SEEK_HOLE), ENXIO);
    ERR(lseek(fd, 600 * K, SEEK_DATA), ENXIO);
    ERR(lseek(fd, -1, SEEK_DATA), ENXIO);
}

TEST(seek_hole_in_a_full_file_is_its_end) {
    int fd = scratch();
    static char data[20000];
    memset(data, 'd', sizeof data);
    OK(write(fd, data, sizeof data));
    CHECK_EQ(OK(lseek(fd, 0, SEEK_HOLE)), 20000);
    CHECK_EQ(OK(lseek(fd, 100, SEEK_DATA)), 100);
}

TEST(sparse_file_uses_few_blocks) {
    int fd = scratch();
    OK(ftruncate(fd, (off_t)1 << 30));
    CHECK_EQ(blocks_of(fd), 0);
    OK(pwrite(fd, "x", 1, 1 << 29));
    CHECK(blocks_of(fd) > 0 && blocks_of(fd) < 2048);
}

TEST(fallocate_grows_or_keeps_the_size) {
    int fd = scratch();
    if (fallocate(fd, 0, 0, 10000) == -1 && errno == EOPNOTSUPP)
        SKIP("no fallocate here");
    CHECK_EQ(size_of(fd), 10000);
    CHECK(blocks_of(fd) >= 16);
    OK(fallocate(fd, 1 /* KEEP_SIZE */, 0, 100000));
    CHECK_EQ(size_of(fd), 10000);
    OK(pwrite(fd, "xyz", 3, 9000));
    OK(fallocate(fd, 0, 0, 5000)); /* keeps contents and a larger size */
    CHECK_EQ(size_of(fd), 10000);
    HOLDS(fd, 9000, "xyz");
}

TEST(punched_hole_reads_zero) {
    int fd = scratch();
    static char data[5 * 4096];
    memset(data, 'h', sizeof data);
    OK(write(fd, data, sizeof data));
    char *map = OK(mmap(NULL, sizeof data, PROT_READ, MAP_SHARED, fd, 0));
    CHECK_EQ(map[2 * PAGE], 'h');
    if (fallocate(fd, 1 | 2, 4000, 9000) == -1 && errno == EOPNOTSUPP)
        SKIP("no hole punching here");
    CHECK_EQ(size_of(fd), sizeof data);
    char byte;
    for (off_t at = 3990; at < 13010; at += 1) {
        OK(pread(fd, &byte, 1, at));
        CHECK_EQ(byte, at >= 4000 && at < 13000 ? 0 : 'h');
    }
    CHECK_EQ(map[2 * PAGE], 0); /* also through a mapping */
    CHECK_EQ(map[3999], 'h');
}

TEST(fallocate_errors) {
    int fd = scratch();
    ERR(fallocate(fd, 0, 0, 0), EINVAL);
    ERR(fallocate(fd, 0, -1, 10), EINVAL);
    ERR(fallocate(fd, 0, 0, -1), EINVAL);
    ERR2(fallocate(fd, 2, 0, 100), EOPNOTSUPP, EINVAL); /* PUNCH without KEEP_SIZE */
    ERR(fallocate(OK(open("f", O_RDONLY)), 0, 0, 10), EBADF);
    int p[2];
    OK(pipe(p));
    ERR(fallocate(p[1], 0, 0, 10), ESPIPE);
    ERR2(fallocate(fd, 0, INT64_MAX - 5, 100), EFBIG, EINVAL);
    ERR(fallocate(999, 0, 0, 10), EBADF);
}

TEST(read_and_write_errors) {
    int fd = scratch();
    char c;
    ERR(read(999, &c, 1), EBADF);
    ERR(write(-1, &c, 1), EBADF);
    ERR(write(fd, BAD, 10), EFAULT);
    ERR(write(fd, KERNEL_ADDRESS, 10), EFAULT);
    OK(write(fd, "x", 1));
    OK(lseek(fd, 0, SEEK_SET));
    ERR(read(fd, BAD, 10), EFAULT);
    ERR(read(fd, KERNEL_ADDRESS, 10), EFAULT);
    CHECK_EQ(OK(lseek(fd, 0, SEEK_CUR)), 0);
    ERR(read(fd, (char *)-4096L, 10000), EFAULT); /* the range wraps around */
}

TEST(large_transfers) {
    int fd = scratch();
    size_t size = 8 << 20;
    unsigned char *data = OK(mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    for (size_t i = 0; i < size; i++)
        data[i] = (unsigned char)(i * 2654435761u >> 13);
    CHECK_EQ(OK(write(fd, data, size)), size);
    unsigned char *back = OK(mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    CHECK_EQ(OK(pread(fd, back, size, 0)), size);
    CHECK(!memcmp(data, back, size));
}

TEST(unaligned_pieces_reassemble) {
    int fd = scratch();
    static char data[30000], back[30000];
    for (size_t i = 0; i < sizeof data; i++)
        data[i] = (char)(i % 251);
    size_t at = 0, step = 1;
    while (at < sizeof data) {
        size_t n = step < sizeof data - at ? step : sizeof data - at;
        CHECK_EQ(OK(pwrite(fd, data + at, n, (off_t)at)), n);
        at += n;
        step = step * 3 % 4099 + 1;
    }
    CHECK_EQ(OK(pread(fd, back, sizeof back, 0)), sizeof back);
    CHECK(!memcmp(data, back, sizeof data));
}

TEST(sendfile_from_file) {
    int fd = scratch();
    OK(write(fd, "0123456789", 10));
    int p[2];
    OK(pipe(p));
    off_t at = 4;
    CHECK_EQ(OK(sendfile(p[1], fd, &at, 100)), 6);
    CHECK_EQ(at, 10);
    CHECK_EQ(OK(lseek(fd, 0, SEEK_CUR)), 10);
    char text[16];
    CHECK_EQ(OK(read(p[0], text, 16)), 6);
    CHECK(!memcmp(text, "456789", 6));
    OK(lseek(fd, 8, SEEK_SET));
    CHECK_EQ(OK(sendfile(p[1], fd, NULL, 100)), 2); /* by the position */
    CHECK_EQ(OK(lseek(fd, 0, SEEK_CUR)), 10);
    int out = OK(open("g", O_RDWR | O_CREAT, 0600));
    at = 0;
    CHECK_EQ(OK(sendfile(out, fd, &at, 3)), 3);
    HOLDS(out, 0, "012");
    CHECK_EQ(OK(sendfile(out, fd, &at, 0)), 0);
}

TEST(sendfile_errors) {
    int fd = scratch();
    OK(write(fd, "x", 1));
    int p[2];
    OK(pipe(p));
    off_t negative = -1;
    ERR(sendfile(p[1], 999, NULL, 1), EBADF);
    ERR(sendfile(999, fd, NULL, 1), EBADF);
    ERR(sendfile(p[0], fd, NULL, 1), EBADF);
    ERR(sendfile(p[1], fd, &negative, 1), EINVAL);
    ERR(syscall(SYS_sendfile, p[1], fd, BAD, 1L), EFAULT);
    ERR(sendfile(fd, p[0], NULL, 1), EINVAL); /* the input must be mappable */
}

TEST(copy_file_range_copies) {
    int in = scratch(), out = OK(open("g", O_RDWR | O_CREAT, 0600));
    static char data[50000];
    for (size_t i = 0; i < sizeof data; i++)
        data[i] = (char)(i % 127);
    OK(write(in, data, sizeof data));
    loff_t from = 1000, to = 5;
    size_t done = 0;
    while (done < 40000) {
        ssize_t n = syscall(SYS_copy_file_range, in, &from, out, &to, 40000 - done, 0);
        if (n == -1 && errno == ENOSYS)
            SKIP("no copy_file_range");
        CHECK(OK(n) > 0);
        done += (size_t)n;
    }
    CHECK_EQ(from, 41000);
    CHECK_EQ(size_of(out), 40005);
    static char back[40000];
    OK(pread(out, back, sizeof back, 5));
    CHECK(!memcmp(back, data + 1000, sizeof back));
    from = 100000;
    CHECK_EQ(OK(syscall(SYS_copy_file_range, in, &from, out, NULL, 10L, 0)), 0); /* past the end */
}

TEST(copy_file_range_errors) {
    int in = scratch();
    OK(write(in, "0123456789", 10));
    loff_t a = 0, b = 4;
    if (syscall(SYS_copy_file_range, in, &a, in, &b, 0L, 0) == -1 && errno == ENOSYS)
        SKIP("no copy_file_range");
    ERR(syscall(SYS_copy_file_range, in, &a, in, &b, 8L, 0), EINVAL); /* overlapping */
    ERR(syscall(SYS_copy_file_range, in, &a, in, &b, 2L, 1), EINVAL);
    ERR(syscall(SYS_copy_file_range, in, NULL, OK(open("f", O_RDONLY)), NULL, 1L, 0), EBADF);
    ERR(syscall(SYS_copy_file_range, in, NULL, OK(open("f", O_WRONLY | O_APPEND)), NULL, 1L, 0), EBADF);
    ERR(syscall(SYS_copy_file_range, OK(open(".", O_RDONLY)), NULL, in, NULL, 1L, 0), EISDIR);
    int p[2];
    OK(pipe(p));
    ERR(syscall(SYS_copy_file_range, p[0], NULL, in, NULL, 1L, 0), EINVAL);
}

TEST(writers_and_readers_see_whole_file_states) {
    /* A reader never sees bytes that nobody wrote. */
    int fd = scratch();
    static char page[4096];
    memset(page, 'A', sizeof page);
    OK(pwrite(fd, page, sizeof page, 0));
    pid_t writer = FORK();
    if (writer == 0) {
        for (int i = 0; i < 400; i++) {
            memset(page, i % 2 ? 'A' : 'B', sizeof page);
            OK(pwrite(fd, page, sizeof page, 0));
        }
        _exit(0);
    }
    char seen[4096];
    for (int i = 0; i < 400; i++) {
        CHECK_EQ(OK(pread(fd, seen, sizeof seen, 0)), sizeof seen);
        for (size_t k = 0; k < sizeof seen; k++)
            CHECK(seen[k] == 'A' || seen[k] == 'B');
    }
    EXITS(writer, 0);
}

TEST(readahead_and_fadvise) {
    int fd = scratch();
    OK(write(fd, "x", 1));
    ZERO(posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL));
    ZERO(posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED));
    CHECK_EQ(posix_fadvise(fd, 0, 0, 99), EINVAL);
    CHECK_EQ(posix_fadvise(999, 0, 0, 0), EBADF);
    int p[2];
    OK(pipe(p));
    CHECK_EQ(posix_fadvise(p[0], 0, 0, 0), ESPIPE);
    HOLDS(fd, 0, "x");
}
