/* Pipes and FIFOs: capacity, atomicity, ends closing, opening rules, splice, tee, vmsplice. */
#define AREA "pipe"
#include "harness.h"
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/uio.h>

static int r, w;
static void make(int flags) {
    int p[2];
    OK(pipe2(p, flags));
    r = p[0], w = p[1];
}
static short events(int fd, short want) {
    struct pollfd p = {fd, want, 0};
    OK(poll(&p, 1, 0));
    return p.revents;
}
/* Fills a non-blocking pipe; how much went in. */
static size_t fill(void) {
    char block[4096];
    size_t n = 0;
    ssize_t k;
    memset(block, 'f', sizeof block);
    while ((k = write(w, block, sizeof block)) > 0)
        n += (size_t)k;
    CHECK_EQ(errno, EAGAIN);
    while ((k = write(w, block, 1)) > 0)
        n += (size_t)k;
    CHECK_EQ(errno, EAGAIN);
    return n;
}

TEST(bytes_come_in_order) {
    make(0);
    OK(write(w, "abc", 3));
    OK(write(w, "def", 3));
    char text[16] = "";
    CHECK_EQ(OK(read(r, text, 2)), 2);
    CHECK_EQ(OK(read(r, text + 2, 16 - 3)), 4); /* over the borders of the writes */
    CHECK_STR(text, "abcdef");
}

TEST(read_waits_for_a_writer) {
    make(0);
    pid_t reader = FORK();
    if (reader == 0) {
        char c;
        CHECK_EQ(OK(read(r, &c, 1)), 1);
        _exit(c);
    }
    wait_asleep(reader);
    OK(write(w, "k", 1));
    EXITS(reader, 'k');
}

TEST(end_of_file_after_the_last_writer) {
    make(0);
    int copy = OK(dup(w));
    OK(write(w, "x", 1));
    OK(close(w));
    char c;
    CHECK_EQ(OK(read(r, &c, 1)), 1);
    OK(fcntl(r, F_SETFL, O_NONBLOCK));
    ERR(read(r, &c, 1), EAGAIN); /* the copy is still open */
    OK(close(copy));
    CHECK_EQ(OK(read(r, &c, 1)), 0);
    CHECK_EQ(OK(read(r, &c, 1)), 0);
}

TEST(blocked_reader_sees_the_close) {
    make(0);
    pid_t reader = FORK();
    if (reader == 0) {
        close(w);
        char c;
        _exit((int)read(r, &c, 1));
    }
    wait_asleep(reader);
    OK(close(w));
    EXITS(reader, 0);
}

TEST(blocked_writer_sees_the_close) {
    make(0);
    OK(fcntl(w, F_SETFL, O_NONBLOCK));
    fill();
    OK(fcntl(w, F_SETFL, 0));
    pid_t writer = FORK();
    if (writer == 0) {
        close(r);
        signal(SIGPIPE, SIG_IGN);
        char c = 0;
        errno = 0;
        _exit(write(w, &c, 1) == -1 && errno == EPIPE ? 9 : 1);
    }
    wait_asleep(writer);
    OK(close(r));
    EXITS(writer, 9);
}

TEST(capacity_is_64_kib_by_default) {
    make(O_NONBLOCK);
    CHECK_EQ(OK(fcntl(w, 1032 /* F_GETPIPE_SZ */)), 65536);
    CHECK_EQ(fill(), 65536);
    CHECK(!(events(w, POLLOUT) & POLLOUT));
    char block[4096];
    CHECK_EQ(OK(read(r, block, sizeof block)), sizeof block);
    CHECK(events(w, POLLOUT) & POLLOUT);
}

TEST(set_pipe_size) {
    make(O_NONBLOCK);
    CHECK(OK(fcntl(w, 1031 /* F_SETPIPE_SZ */, 100000)) >= 100000);
    int size = OK(fcntl(r, 1032));
    CHECK_EQ(size, 131072); /* rounded up to a power of two pages (fs/pipe.c) */
    CHECK_EQ(fill(), size);
    ERR(fcntl(w, 1031, 4096), EBUSY); /* more is in it */
    static char block[131072];
    CHECK_EQ(OK(read(r, block, sizeof block)), size);
    CHECK_EQ(OK(fcntl(w, 1031, 1)), 4096); /* one page at least */
    CHECK_EQ(fill(), 4096);
    IN_CHILD({
        BECOME(1000, 1000);
        ERR(fcntl(w, 1031, 16 << 20), EPERM); /* over pipe-max-size without CAP_SYS_RESOURCE */
    });
    ERR(fcntl(0, 1031 + 9999, 0), EINVAL);
}

TEST(size_of_something_else_is_ebadf) {
    int fd = OK(open("f", O_RDWR | O_CREAT, 0600));
    ERR(fcntl(fd, 1032), EBADF);
}

TEST(small_writes_are_atomic) {
    /* PIPE_BUF, 4096: no mixing among writers (pipe(7)) */
    make(0);
    pid_t pids[3];
    for (int i = 0; i < 3; i++)
        if ((pids[i] = FORK()) == 0) {
            char record[3000];
            memset(record, 'a' + i, sizeof record);
            close(r);
            for (int n = 0; n < 60; n++)
                CHECK_EQ(OK(write(w, record, sizeof record)), sizeof record);
            _exit(0);
        }
    OK(close(w));
    char record[3000];
    for (int n = 0; n < 180; n++) {
        for (size_t done = 0; done < sizeof record;)
            done += (size_t)OK(read(r, record + done, sizeof record - done));
        for (size_t i = 1; i < sizeof record; i++)
            CHECK_EQ(record[i], record[0]);
    }
    CHECK_EQ(OK(read(r, record, 1)), 0);
    for (int i = 0; i < 3; i++)
        EXITS(pids[i], 0);
}

TEST(nonblocking_atomic_write_is_all_or_nothing) {
    make(O_NONBLOCK);
    static char block[65536];
    CHECK_EQ(OK(write(w, block, 65536 - 4096)), 65536 - 4096);
    CHECK_EQ(OK(write(w, block, 100)), 100); /* a started page */
    ERR(write(w, block, 4096), EAGAIN);
    CHECK_EQ(OK(write(w, block, 3996)), 3996);
    ERR(write(w, block, 1), EAGAIN);
}

TEST(nonblocking_large_write_is_partial) {
    make(O_NONBLOCK);
    static char big[200000];
    CHECK_EQ(OK(write(w, big, sizeof big)), 65536);
    ERR(write(w, big, sizeof big), EAGAIN);
}

TEST(blocking_large_write_completes) {
    make(0);
    static char big[500000], back[500000];
    for (size_t i = 0; i < sizeof big; i++)
        big[i] = (char)(i % 253);
    pid_t writer = FORK();
    if (writer == 0) {
        CHECK_EQ(OK(write(w, big, sizeof big)), sizeof big);
        _exit(0);
    }
    size_t done = 0;
    while (done < sizeof back)
        done += (size_t)OK(read(r, back + done, sizeof back - done < 7777 ? sizeof back - done : 7777));
    CHECK(!memcmp(big, back, sizeof big));
    EXITS(writer, 0);
}

TEST(flags_and_errors) {
    int p[2];
    OK(pipe2(p, O_CLOEXEC | O_NONBLOCK));
    CHECK_EQ(OK(fcntl(p[0], F_GETFD)), FD_CLOEXEC);
    CHECK(OK(fcntl(p[1], F_GETFL)) & O_NONBLOCK);
    CHECK_EQ(OK(fcntl(p[0], F_GETFL)) & O_ACCMODE, O_RDONLY);
    CHECK_EQ(OK(fcntl(p[1], F_GETFL)) & O_ACCMODE, O_WRONLY);
    char c;
    ERR(read(p[1], &c, 1), EBADF);
    ERR(write(p[0], &c, 1), EBADF);
    ERR(pipe2(p, 0x1), EINVAL);
    ERR(syscall(SYS_pipe2, BAD, 0), EFAULT);
    ERR(write(p[1], BAD, 10), EFAULT);
    OK(write(p[1], "x", 1));
    ERR(read(p[0], BAD, 1), EFAULT);
    CHECK_EQ(OK(read(p[0], &c, 1)), 1); /* a failed read loses nothing */
}

TEST(efault_pipe_leaks_no_descriptor) {
    int before = OK(dup(2));
    OK(close(before));
    for (int i = 0; i < 10; i++)
        ERR(syscall(SYS_pipe2, BAD, 0), EFAULT);
    CHECK_EQ(OK(dup(2)), before);
}

TEST(fionread_and_poll_states) {
    make(0);
    int n = -1;
    CHECK_EQ(events(r, POLLIN), 0);
    OK(write(w, "12345", 5));
    OK(ioctl(r, FIONREAD, &n));
    CHECK_EQ(n, 5);
    CHECK_EQ(events(r, POLLIN), POLLIN);
    OK(close(w));
    CHECK_EQ(events(r, POLLIN), POLLIN | POLLHUP);
    char c[5];
    OK(read(r, c, 5));
    CHECK_EQ(events(r, POLLIN), POLLHUP);
    make(0);
    OK(close(r));
    CHECK_EQ(events(w, POLLOUT), POLLOUT | POLLERR);
}

TEST(packet_mode_keeps_borders) {
    int p[2];
    if (pipe2(p, O_DIRECT) == -1 && errno == EINVAL)
        SKIP("no packet mode");
    OK(write(p[1], "one", 3));
    OK(write(p[1], "second", 6));
    char text[16];
    CHECK_EQ(OK(read(p[0], text, 16)), 3);
    CHECK_EQ(OK(read(p[0], text, 2)), 2); /* the rest of a packet is dropped (pipe(2)) */
    OK(fcntl(p[0], F_SETFL, O_NONBLOCK));
    ERR(read(p[0], text, 16), EAGAIN);
}

/* ---- FIFOs ---------------------------------------------------------------------------------------- */

TEST(fifo_open_waits_for_the_other_side) {
    OK(mkfifo("q", 0600));
    pid_t pid = FORK();
    if (pid == 0) {
        int fd = OK(open("q", O_WRONLY));
        OK(write(fd, "via fifo", 8));
        _exit(0);
    }
    wait_asleep(pid);
    int fd = OK(open("q", O_RDONLY));
    char text[16];
    CHECK_EQ(OK(read(fd, text, 16)), 8);
    EXITS(pid, 0);
    CHECK_EQ(OK(read(fd, text, 16)), 0);
}

TEST(fifo_nonblocking_opens) {
    OK(mkfifo("q", 0600));
    ERR(open("q", O_WRONLY | O_NONBLOCK), ENXIO); /* nobody reads (fifo(7)) */
    int rd = OK(open("q", O_RDONLY | O_NONBLOCK)); /* at once */
    char c;
    CHECK_EQ(OK(read(rd, &c, 1)), 0); /* no writer yet: end of file */
    CHECK_EQ(events(rd, POLLIN), 0);  /* but no hang-up before the first writer */
    int wr = OK(open("q", O_WRONLY | O_NONBLOCK));
    ERR(read(rd, &c, 1), EAGAIN);
    OK(write(wr, "x", 1));
    CHECK_EQ(OK(read(rd, &c, 1)), 1);
    OK(close(wr));
    CHECK(events(rd, POLLIN) & POLLHUP);
    int both = OK(open("q", O_RDWR)); /* Linux allows it and does not wait */
    OK(write(both, "y", 1));
    CHECK_EQ(OK(read(rd, &c, 1)), 1);
}

TEST(fifo_reopened_starts_anew) {
    OK(mkfifo("q", 0600));
    int rd = OK(open("q", O_RDONLY | O_NONBLOCK)), wr = OK(open("q", O_WRONLY));
    OK(write(wr, "lost", 4));
    OK(close(rd));
    OK(close(wr)); /* all closed: the contents are gone */
    rd = OK(open("q", O_RDONLY | O_NONBLOCK));
    wr = OK(open("q", O_WRONLY));
    char c;
    ERR(read(rd, &c, 1), EAGAIN);
    OK(unlink("q"));
    OK(write(wr, "z", 1)); /* goes on without a name */
    CHECK_EQ(OK(read(rd, &c, 1)), 1);
}

/* ---- splice and friends ---------------------------------------------------------------------------- */

TEST(splice_from_file_to_pipe_and_back) {
    int fd = OK(open("f", O_RDWR | O_CREAT, 0600)), out = OK(open("g", O_RDWR | O_CREAT, 0600));
    static char data[20000], back[20000];
    for (size_t i = 0; i < sizeof data; i++)
        data[i] = (char)(i % 119);
    OK(write(fd, data, sizeof data));
    make(0);
    loff_t from = 500;
    size_t moved = 0;
    while (moved < 15000) {
        ssize_t n = OK(splice(fd, &from, w, NULL, 15000 - moved, 0));
        CHECK(n > 0);
        for (ssize_t left = n; left > 0;)
            left -= OK(splice(r, NULL, out, NULL, (size_t)left, SPLICE_F_MOVE));
        moved += (size_t)n;
    }
    CHECK_EQ(from, 15500);
    CHECK_EQ(OK(pread(out, back, sizeof back, 0)), 15000);
    CHECK(!memcmp(back, data + 500, 15000));
}

TEST(splice_between_pipes_moves) {
    make(0);
    int r1 = r, w1 = w;
    make(0);
    OK(write(w1, "payload", 7));
    CHECK_EQ(OK(splice(r1, NULL, w, NULL, 4, 0)), 4);
    char text[16];
    CHECK_EQ(OK(read(r, text, 16)), 4);
    CHECK_EQ(OK(read(r1, text, 16)), 3);
    CHECK(!memcmp(text, "oad", 3));
}

TEST(spliced_data_is_a_snapshot_or_the_page_but_never_freed_memory) {
    int fd = OK(open("f", O_RDWR | O_CREAT, 0600));
    OK(write(fd, "before", 6));
    make(0);
    loff_t at = 0;
    CHECK_EQ(OK(splice(fd, &at, w, NULL, 6, 0)), 6);
    OK(ftruncate(fd, 0));
    OK(unlink("f"));
    OK(close(fd));
    char text[8];
    CHECK_EQ(OK(read(r, text, 8)), 6);
    CHECK(!memcmp(text, "before", 6) || !memcmp(text, "\0\0\0\0\0\0", 6));
}

TEST(tee_copies_without_taking) {
    make(0);
    int r1 = r, w1 = w;
    make(0);
    OK(write(w1, "twice", 5));
    CHECK_EQ(OK(tee(r1, w, 100, 0)), 5);
    char a[8] = "", b[8] = "";
    CHECK_EQ(OK(read(r1, a, 8)), 5);
    CHECK_EQ(OK(read(r, b, 8)), 5);
    CHECK_STR(a, "twice");
    CHECK_STR(b, "twice");
    ERR(tee(r1, w, 10, SPLICE_F_NONBLOCK), EAGAIN);
}

TEST(vmsplice_puts_user_memory_in) {
    make(0);
    struct iovec v[2] = {{(char *)"user ", 5}, {(char *)"memory", 6}};
    CHECK_EQ(OK(vmsplice(w, v, 2, 0)), 11);
    char text[16] = "";
    CHECK_EQ(OK(read(r, text, 16)), 11);
    CHECK_STR(text, "user memory");
}

TEST(vmsplice_waits_for_the_first_room_alone) {
    make(0);
    static char data[40 * 4096];
    memset(data, 'v', sizeof data);
    struct iovec piece = {data, sizeof data};
    /* More than a pipe holds: as much as fits. */
    ssize_t count = OK(vmsplice(w, &piece, 1, 0));
    CHECK(count > 0 && count <= 65536);
    ERR(vmsplice(w, &piece, 1, SPLICE_F_NONBLOCK), EAGAIN);
    piece.iov_len = 0;
    CHECK_EQ(OK(vmsplice(w, &piece, 1, 0)), 0); /* nothing has room */
    piece.iov_len = sizeof data;
    /* The pipe's own flag does not count, only the call's. */
    OK(fcntl(w, F_SETFL, O_NONBLOCK));
    pid_t parent = getpid(), pid = FORK();
    if (pid == 0) {
        wait_asleep(parent);
        for (ssize_t left = count; left > 0;) {
            char text[4096];
            left -= OK(read(r, text, left < 4096 ? (size_t)left : 4096));
        }
        _exit(0);
    }
    CHECK(OK(vmsplice(w, &piece, 1, 0)) > 0);
    EXITS(pid, 0);
}

TEST(vmsplice_to_memory_takes_what_is_there) {
    make(0);
    char text[16] = "";
    struct iovec piece = {text, sizeof text};
    ERR(vmsplice(r, &piece, 1, SPLICE_F_NONBLOCK), EAGAIN);
    OK(write(w, "short", 5));
    CHECK_EQ(OK(vmsplice(r, &piece, 1, 0)), 5);
    CHECK_STR(text, "short");
    OK(close(w));
    CHECK_EQ(OK(vmsplice(r, &piece, 1, 0)), 0);
}

TEST(vmsplice_without_a_reader_is_epipe) {
    signal(SIGPIPE, SIG_IGN);
    make(0);
    OK(close(r));
    struct iovec piece = {(char *)"x", 1};
    ERR(vmsplice(w, &piece, 1, 0), EPIPE);
    ERR(vmsplice(w, &piece, 1, SPLICE_F_NONBLOCK), EPIPE);
    signal(SIGPIPE, SIG_DFL);
    pid_t pid = FORK();
    if (pid == 0) {
        (void)!vmsplice(w, &piece, 1, 0);
        _exit(0);
    }
    KILLED(pid, SIGPIPE);
    int fd = OK(open("f", O_RDWR | O_CREAT, 0600));
    ERR(vmsplice(fd, &piece, 1, 0), EBADF);
}

TEST(moving_into_a_pipe_ends_when_it_is_full) {
    make(0);
    static char data[300000];
    PUT_BYTES("f", data, sizeof data);
    int fd = OK(open("f", O_RDONLY));
    off_t at = 0;
    /* A page less where the offset is none. */
    CHECK_EQ(OK(sendfile(w, fd, &at, sizeof data)), 65536);
    CHECK_EQ(at, 65536);
    loff_t from = 0;
    ERR(splice(fd, &from, w, NULL, 1, SPLICE_F_NONBLOCK), EAGAIN);
    int full = w, r1 = r;
    make(0);
    OK(write(w, "more", 4));
    ERR(splice(r, NULL, full, NULL, 4, SPLICE_F_NONBLOCK), EAGAIN);
    ERR(tee(r, full, 4, SPLICE_F_NONBLOCK), EAGAIN);
    OK(fcntl(full, F_SETFL, O_NONBLOCK));
    ERR(sendfile(full, fd, &at, 1), EAGAIN);
    ERR(splice(fd, &from, full, NULL, 1, 0), EAGAIN);
    ERR(tee(r, full, 4, 0), EAGAIN);
    OK(read(r1, data, 65536));
    /* A blocking one of more than fits gives what fits. */
    OK(fcntl(full, F_SETFL, 0));
    CHECK_EQ(OK(splice(fd, &from, full, NULL, sizeof data, 0)), 65536);
}

TEST(splice_of_a_stream_takes_what_is_there) {
    int s[2];
    OK(socketpair(AF_UNIX, SOCK_STREAM, 0, s));
    make(0);
    static char data[8192], back[8192];
    memset(data, 's', sizeof data);
    ERR(splice(s[0], NULL, w, NULL, 100, SPLICE_F_NONBLOCK), EAGAIN);
    for (size_t length = 4096; length <= 8192; length += 2048) { /* whole pages, and not */
        OK(write(s[1], data, length));
        size_t moved = 0;
        while (moved < length) /* with nothing behind it that could be waited for */
            moved += (size_t)OK(splice(s[0], NULL, w, NULL, 65536, 0));
        CHECK_EQ(moved, length);
        for (size_t done = 0; done < length;)
            done += (size_t)OK(read(r, back, sizeof back));
    }
    OK(shutdown(s[1], SHUT_WR));
    CHECK_EQ(OK(splice(s[0], NULL, w, NULL, 100, SPLICE_F_NONBLOCK)), 0);
}

TEST(splice_errors) {
    int fd = OK(open("f", O_RDWR | O_CREAT, 0600));
    OK(write(fd, "x", 1));
    make(0);
    loff_t at = 0;
    ERR(splice(fd, NULL, fd, NULL, 1, 0), EINVAL); /* neither is a pipe */
    ERR(splice(r, &at, fd, NULL, 1, 0), ESPIPE);
    ERR(splice(fd, NULL, w, &at, 1, 0), ESPIPE);
    ERR(splice(999, NULL, w, NULL, 1, 0), EBADF);
    ERR(splice(fd, NULL, r, NULL, 1, 0), EBADF);
    ERR(splice(fd, NULL, w, NULL, 1, 0x100), EINVAL);
    ERR(splice(fd, BAD, w, NULL, 1, 0), EFAULT);
    ERR(splice(r, NULL, w, NULL, 1, 0), EINVAL); /* the two ends of one pipe */
    ERR(tee(r, fd, 1, 0), EINVAL);
    int app = OK(open("f", O_WRONLY | O_APPEND));
    OK(write(w, "y", 1));
    ERR(splice(r, NULL, app, NULL, 1, 0), EINVAL);
    CHECK_EQ(OK(splice(r, NULL, fd, NULL, 0, 0)), 0);
}

TEST(splice_to_a_closed_pipe_is_epipe) {
    signal(SIGPIPE, SIG_IGN);
    int fd = OK(open("f", O_RDWR | O_CREAT, 0600));
    OK(write(fd, "x", 1));
    make(0);
    OK(close(r));
    loff_t at = 0;
    ERR(splice(fd, &at, w, NULL, 1, 0), EPIPE);
}

TEST(thousand_pipes) {
    struct rlimit l = {4096, 4096};
    OK(setrlimit(RLIMIT_NOFILE, &l));
    int p[2], first = 0;
    for (int i = 0; i < 1000; i++) {
        OK(pipe(p));
        if (i == 0)
            first = p[0];
        OK(write(p[1], "z", 1));
    }
    char c;
    CHECK_EQ(OK(read(p[0], &c, 1)), 1);
    CHECK_EQ(OK(read(first, &c, 1)), 1);
}

TEST(pipeline_of_ten_processes) {
    int in, out;
    make(0);
    in = w, out = r;
    pid_t pids[10];
    for (int i = 0; i < 10; i++) {
        make(0);
        if ((pids[i] = FORK()) == 0) {
            close(in);
            close(r);
            char c;
            while (read(out, &c, 1) == 1) {
                c++;
                OK(write(w, &c, 1));
            }
            _exit(0);
        }
        OK(close(out));
        OK(close(w));
        out = r;
    }
    OK(write(in, "A0a", 3));
    OK(close(in));
    char text[8] = "";
    size_t n = 0;
    ssize_t k;
    while ((k = read(out, text + n, sizeof text - 1 - n)) > 0)
        n += (size_t)k;
    CHECK_STR(text, "K:k");
    for (int i = 0; i < 10; i++)
        EXITS(pids[i], 0);
}

/* ---- limits ----------------------------------------------------------------------------------- */

static long setting(const char *path) {
    char text[64];
    if (get_file(path, text, sizeof text) <= 0)
        FAIL("%s: %s", path, strerror(errno));
    return atol(text);
}
static bool set(const char *path, long value) {
    char text[32];
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd == -1)
        return false;
    int n = snprintf(text, sizeof text, "%ld\n", value);
    bool done = write(fd, text, (size_t)n) == n;
    close(fd);
    return done;
}
#define FS "/proc/sys/fs/"

static bool has_capability(int number) {
    char text[4096];
    CHECK(get_file("/proc/self/status", text, sizeof text) > 0);
    const char *line = strstr(text, "CapEff:");
    CHECK(line);
    return strtoull(line + 7, NULL, 16) >> number & 1;
}

TEST(the_largest_pipe_of_a_user_can_be_set) {
    NEEDS_OWN_MACHINE();
    long before = setting(FS "pipe-max-size");
    CHECK_EQ(before, 1 << 20);
    if (!set(FS "pipe-max-size", 100000))
        SKIP("not root");
    long rounded = setting(FS "pipe-max-size");
    pid_t pid = FORK();
    if (pid == 0) {
        BECOME(54323, 54323);
        int p[2];
        OK(pipe(p));
        CHECK_EQ(OK(fcntl(p[0], F_SETPIPE_SZ, 131072)), 131072);
        ERR(fcntl(p[0], F_SETPIPE_SZ, 131073), EPERM);
        ERR(fcntl(p[0], F_SETPIPE_SZ, 1 << 20), EPERM);
        CHECK_EQ(OK(fcntl(p[0], F_SETPIPE_SZ, 5000)), 8192);
        _exit(0);
    }
    int status = WAIT(pid), p[2];
    OK(pipe(p));
    int above = fcntl(p[0], F_SETPIPE_SZ, 1 << 20), error = errno; /* who may, may */
    CHECK(set(FS "pipe-max-size", 1)); /* a page at least */
    long least = setting(FS "pipe-max-size");
    CHECK(!set(FS "pipe-max-size", -1));
    CHECK(set(FS "pipe-max-size", before));
    CHECK_EQ(rounded, 131072);
    if (has_capability(24 /* CAP_SYS_RESOURCE */))
        CHECK_EQ(above, 1 << 20);
    else
        CHECK(above == -1 && error == EPERM);
    CHECK_EQ(least, 4096);
    CHECK_EQ(status, 0);
}

TEST(pipes_of_a_user_with_many_are_small) {
    NEEDS_OWN_MACHINE();
    long soft = setting(FS "pipe-user-pages-soft"), hard = setting(FS "pipe-user-pages-hard");
    long pages = OK(sysconf(_SC_PHYS_PAGES));
    /* As pipe(7) has them, whatever memory there is; or an eighth and a quarter of a small one. */
    CHECK(soft == 16384 || (soft < 16384 && soft == pages / 8));
    CHECK(hard == 0 || hard == pages / 4);
    if (!set(FS "pipe-user-pages-soft", 33) || !set(FS "pipe-user-pages-hard", 37))
        SKIP("not root");
    OK(chmod(".", 0777));
    pid_t pid = FORK();
    if (pid == 0) {
        BECOME(54324, 54324);
        int a[2], b[2], c[2], d[2], e[2];
        OK(pipe(a));
        OK(pipe(b));
        OK(pipe(c)); /* 32 pages are taken, 16 more would be too many */
        CHECK_EQ(OK(fcntl(b[0], F_GETPIPE_SZ)), 65536);
        CHECK_EQ(OK(fcntl(c[0], F_GETPIPE_SZ)), 8192);
        ERR(fcntl(c[0], F_SETPIPE_SZ, 65536), EPERM);
        CHECK_EQ(OK(fcntl(c[0], F_SETPIPE_SZ, 4096)), 4096);
        OK(pipe(d)); /* 35 */
        OK(pipe(e)); /* 37 */
        ERR(pipe(e), ENFILE);
        ERR(syscall(SYS_pipe2, e, 0), ENFILE);
        OK(mkfifo("f", 0600));
        ERR(open("f", O_RDWR), ENOMEM);
        OK(close(a[0]));
        OK(close(a[1]));
        EVENTUALLY(pipe(e) == 0); /* 21 are left: none is to wait for */
        _exit(0);
    }
    int status = WAIT(pid);
    CHECK(set(FS "pipe-user-pages-soft", soft));
    CHECK(set(FS "pipe-user-pages-hard", hard));
    CHECK_EQ(status, 0);
}

/* ---- who is woken --------------------------------------------------------------------------- */

enum { CROWD = 150 };

/* Waits for all of them; how often they gave the processor up, all together. */
static long switches_of(const pid_t *pids) {
    long switches = 0;
    for (int i = 0; i < CROWD; i++) {
        struct rusage usage;
        int status;
        CHECK_EQ(OK(wait4(pids[i], &status, 0, &usage)), pids[i]);
        if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) FAIL("status %#x of %d", status, i);
        switches += usage.ru_nvcsw;
    }
    return switches;
}

TEST_TIMES(a_write_wakes_one_of_many_readers, 4) {
    int p[2];
    static pid_t pids[CROWD];
    OK(pipe(p));
    for (int i = 0; i < CROWD; i++)
        if ((pids[i] = FORK()) == 0) {
            char byte;
            CHECK_EQ(read(p[0], &byte, 1), 1);
            _exit(0);
        }
    for (int i = 0; i < CROWD; i++) wait_asleep(pids[i]);
    for (int i = 0; i < CROWD / 2; i++) {
        CHECK_EQ(write(p[1], "", 1), 1);
        msleep(1);
    }
    /* Many bytes at once: each who takes one wakes the next. */
    char bytes[CROWD] = "";
    CHECK_EQ(write(p[1], bytes, CROWD - CROWD / 2), CROWD - CROWD / 2);
    long switches = switches_of(pids);
    if (switches > 12 * CROWD) FAIL("%ld switches of %d processes", switches, CROWD);
}

TEST_TIMES(a_read_wakes_one_of_many_writers, 4) {
    int p[2];
    static pid_t pids[CROWD];
    static char page[PAGE];
    OK(pipe(p));
    long size = OK(fcntl(p[1], F_GETPIPE_SZ));
    for (long done = 0; done < size; done += PAGE) CHECK_EQ(write(p[1], page, PAGE), (ssize_t)PAGE);
    for (int i = 0; i < CROWD; i++)
        if ((pids[i] = FORK()) == 0) {
            CHECK_EQ(write(p[1], page, PAGE), (ssize_t)PAGE);
            _exit(0);
        }
    for (int i = 0; i < CROWD; i++) wait_asleep(pids[i]);
    long left = size + CROWD * (long)PAGE;
    for (int i = 0; i < CROWD / 2; i++, left -= PAGE) {
        CHECK_EQ(read(p[0], page, PAGE), (ssize_t)PAGE);
        msleep(1);
    }
    static char many[8 * PAGE];
    while (left > 0) left -= OK(read(p[0], many, sizeof many));
    long switches = switches_of(pids);
    if (switches > 12 * CROWD) FAIL("%ld switches of %d processes", switches, CROWD);
}

static void nothing(int sig UNUSED) {}

/* Readers are interrupted and killed while bytes come: none of the bytes is left lying. */
TEST_TIMES(what_an_interrupted_reader_was_woken_for_goes_to_another, 4) {
    int p[2];
    OK(pipe(p));
    struct sigaction act = {.sa_handler = nothing};
    OK(sigaction(SIGUSR1, &act, NULL));
    enum { READERS = 8, ROUNDS = 300 };
    pid_t pids[READERS];
    int *taken = SHARED(sizeof *taken);
    for (int i = 0; i < READERS; i++)
        if ((pids[i] = FORK()) == 0) {
            for (;;) {
                char byte;
                ssize_t count = read(p[0], &byte, 1);
                if (count == 1) __atomic_add_fetch(taken, 1, __ATOMIC_SEQ_CST);
                else if (count == 0) _exit(0);
                else CHECK_EQ(errno, EINTR);
            }
        }
    for (int round = 1; round <= ROUNDS; round++) {
        CHECK_EQ(write(p[1], "", 1), 1);
        for (int i = 0; i < READERS; i++) OK(kill(pids[(i + round) % READERS], SIGUSR1));
        EVENTUALLY(__atomic_load_n(taken, __ATOMIC_SEQ_CST) == round);
    }
    OK(close(p[1]));
    for (int i = 0; i < READERS; i++) {
        OK(kill(pids[i], SIGKILL));
        WAIT(pids[i]);
    }
}
