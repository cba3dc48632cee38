/*
 * Data over TCP: order and amounts, flags of send(2) and recv(2), urgent data, full buffers, and
 * every call that moves bytes: tcp(7), sendfile(2), splice(2), sendmmsg(2).
 */
#define AREA "tcpdata"
#include "net.h"
#include <netinet/tcp.h>
#include <sys/select.h>
#include <sys/sendfile.h>

#ifndef SIOCATMARK
#define SIOCATMARK 0x8905
#endif
#define SIOCOUTQ 0x5411

/* Sender and receiver. */
static int out, in;
static void couple(int family) {
    int e[2];
    tcp_pair(family, e);
    out = e[0], in = e[1];
}
static int queued(int s) {
    int n = -1;
    OK(ioctl(s, FIONREAD, &n));
    return n;
}
static int unsent(int s) {
    int n = -1;
    OK(ioctl(s, SIOCOUTQ, &n));
    return n;
}
/* Sends the text and waits until it is there. */
static void sends(const char *text, int flags) {
    CHECK_EQ(OK(send(out, text, strlen(text), flags)), (ssize_t)strlen(text));
    EVENTUALLY(unsent(out) == 0);
}
static void gets_text(int line, int flags, const char *text) {
    char got[17] = "";
    ssize_t n = recv(in, got, 16, flags | MSG_DONTWAIT);
    if (n != (ssize_t)strlen(text) || memcmp(got, text, strlen(text)) != 0)
        hy_fail(__FILE__, line, "got %zd \"%s\" (%s), not %s", n, got, strerror(errno), text);
}
#define GETS(flags, text) gets_text(__LINE__, flags, text)

/* A stream of bytes that tells where it is. */
static uint32_t word_at(uint64_t index) {
    uint64_t x = index * 0x9e3779b97f4a7c15u;
    return (uint32_t)(x >> 32 ^ x >> 11);
}
static void fill(void *buffer, size_t size, uint64_t from) {
    unsigned char *b = buffer;
    for (size_t i = 0; i < size; i++, from++)
        b[i] = (unsigned char)(word_at(from / 4) >> from % 4 * 8);
}
static bool matches(const void *buffer, size_t size, uint64_t from) {
    const unsigned char *b = buffer;
    for (size_t i = 0; i < size; i++, from++)
        if (b[i] != (unsigned char)(word_at(from / 4) >> from % 4 * 8))
            return false;
    return true;
}
static uint32_t chance_state;
static uint32_t chance(uint32_t below) {
    chance_state = chance_state * 1664525 + 1013904223;
    return (uint32_t)((uint64_t)chance_state * below >> 32);
}

/* ---- amounts --------------------------------------------------------------------------------- */

/* Sends a stream in pieces of any size while another process reads it in pieces of any size. */
static void stream(int family, uint64_t size, uint32_t piece) {
    enum { ROOM = 1 << 20 };
    static char buffer[ROOM];
    couple(family);
    pid_t pid = FORK();
    if (pid == 0) {
        OK(close(out));
        chance_state = 7;
        uint64_t at = 0;
        for (;;) {
            ssize_t n = OK(read(in, buffer, 1 + chance(piece)));
            if (n == 0)
                break;
            if (!matches(buffer, (size_t)n, at))
                FAIL("wrong data near %llu", (unsigned long long)at);
            at += (uint64_t)n;
        }
        CHECK_EQ(at, size);
        send_all(in, &at, sizeof at);
        _exit(0);
    }
    OK(close(in));
    chance_state = 3;
    for (uint64_t at = 0; at < size;) {
        uint64_t n = 1 + chance(piece);
        if (n > size - at)
            n = size - at;
        fill(buffer, (size_t)n, at);
        send_all(out, buffer, (size_t)n);
        at += n;
    }
    OK(shutdown(out, SHUT_WR));
    uint64_t got;
    recv_all(out, &got, sizeof got);
    CHECK_EQ(got, size);
    EXITS(pid, 0);
}
TEST(a_stream_of_64_mib) { stream(AF_INET, 64 << 20, 1 << 18); }
TEST(a_stream_of_small_pieces) { stream(AF_INET, 200000, 100); }
TEST(a_stream_over_six) {
    NEEDS_IPV6();
    stream(AF_INET6, 16 << 20, 1 << 17);
}

TEST(echo_of_every_size) {
    static char there[70000], back[70000];
    couple(AF_INET);
    pid_t pid = FORK();
    if (pid == 0) {
        OK(close(out));
        ssize_t n;
        while ((n = OK(read(in, back, sizeof back))) > 0)
            send_all(in, back, (size_t)n);
        _exit(0);
    }
    OK(close(in));
    static const size_t sizes[] = {1, 2, 535, 536, 537, 1459, 1460, 1461, 4095, 4096, 4097, 16383,
                                   16384, 21845, 32768, 65482, 65483, 65484, 65535, 65536, 70000};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        fill(there, sizes[i], i);
        send_all(out, there, sizes[i]);
        recv_all(out, back, sizes[i]);
        CHECK(memcmp(there, back, sizes[i]) == 0);
    }
    OK(shutdown(out, SHUT_WR));
    EXITS(pid, 0);
}

TEST(both_directions_at_once) {
    enum { SIZE = 4 << 20 };
    char *data = malloc(SIZE), *got = malloc(SIZE);
    fill(data, SIZE, 0);
    couple(AF_INET);
    pid_t pid = FORK();
    int mine = pid == 0 ? in : out;
    nonblocking(mine);
    size_t sent = 0, received = 0;
    while (sent < SIZE || received < SIZE) {
        int events = AWAIT(mine, POLLIN | (sent < SIZE ? POLLOUT : 0));
        if (events & POLLOUT) {
            ssize_t n = send(mine, data + sent, SIZE - sent, MSG_NOSIGNAL);
            if (n > 0)
                sent += (size_t)n;
            else
                CHECK_EQ(errno, EAGAIN);
        }
        if (events & POLLIN) {
            ssize_t n = recv(mine, got + received, SIZE - received, 0);
            CHECK(n > 0 || (n == -1 && errno == EAGAIN));
            if (n > 0)
                received += (size_t)n;
        }
    }
    CHECK(memcmp(data, got, SIZE) == 0);
    if (pid == 0)
        _exit(0);
    EXITS(pid, 0);
}

TEST(nothing_and_bad_memory) {
    couple(AF_INET);
    CHECK_EQ(OK(write(out, "", 0)), 0);
    CHECK_EQ(OK(send(out, BAD, 0, 0)), 0);
    CHECK_EQ(events_of(in, POLLIN, 20), 0);
    char c = 'k';
    ERR(recv(in, &c, 0, MSG_DONTWAIT), EAGAIN); /* for nothing it would wait too */
    ERR(send(out, BAD, 5, 0), EFAULT);
    sends("kept", 0);
    CHECK_EQ(OK(read(in, &c, 0)), 0);
    ERR(recv(in, BAD, 4, 0), EFAULT);
    GETS(0, "kept"); /* what could not be stored is still there */
    /* A part that could be read is sent. */
    char *edge = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(edge != MAP_FAILED);
    OK(munmap(edge + PAGE, PAGE));
    struct iovec v[2] = {{"good", 4}, {BAD, 4}};
    ssize_t n = writev(out, v, 2);
    CHECK(n == 4 || (n == -1 && errno == EFAULT));
    if (n == 4) {
        AWAIT(in, POLLIN);
        GETS(0, "good");
    }
    ERR(recv(in, &c, 1, MSG_DONTWAIT), EAGAIN);
}

/* ---- flags ----------------------------------------------------------------------------------- */

TEST(peek_leaves_the_data) {
    couple(AF_INET);
    sends("abc", 0);
    sends("def", 0);
    GETS(MSG_PEEK, "abcdef");
    GETS(MSG_PEEK, "abcdef");
    CHECK_EQ(queued(in), 6);
    char two[2];
    CHECK_EQ(OK(recv(in, two, 2, MSG_PEEK)), 2);
    CHECK_EQ(OK(recv(in, two, 2, 0)), 2);
    GETS(MSG_PEEK, "cdef");
    GETS(0, "cdef");
    ERR(recv(in, two, 2, MSG_PEEK | MSG_DONTWAIT), EAGAIN);
    OK(shutdown(out, SHUT_WR));
    AWAIT(in, POLLIN);
    CHECK_EQ(OK(recv(in, two, 2, MSG_PEEK)), 0);
}

TEST(peek_at_an_offset) {
    /* SO_PEEK_OFF is of Unix and UDP sockets, and since 6.9 of TCP. */
    couple(AF_INET);
    if (set_option(in, SOL_SOCKET, 42 /* SO_PEEK_OFF */, 1) == -1) {
        CHECK_EQ(errno, EOPNOTSUPP);
        SKIP("before 6.9");
    }
    sends("abcdef", 0);
    GETS(MSG_PEEK, "bcdef");
    ERR(recv(in, &(char){0}, 1, MSG_PEEK | MSG_DONTWAIT), EAGAIN);
    GETS(0, "abcdef");
}

TEST(waitall_waits_for_all) {
    couple(AF_INET);
    pid_t pid = FORK();
    if (pid == 0) {
        char got[10];
        CHECK_EQ(OK(recv(in, got, 10, MSG_WAITALL)), 10);
        CHECK(memcmp(got, "0123456789", 10) == 0);
        CHECK_EQ(OK(recv(in, got, 10, MSG_WAITALL)), 3); /* the end came first */
        CHECK_EQ(OK(recv(in, got, 10, MSG_WAITALL)), 0);
        _exit(0);
    }
    for (int i = 0; i < 10; i += 5) {
        wait_asleep(pid);
        CHECK_EQ(OK(write(out, "0123456789" + i, 5)), 5);
    }
    CHECK_EQ(OK(write(out, "end", 3)), 3);
    OK(shutdown(out, SHUT_WR));
    EXITS(pid, 0);
    couple(AF_INET);
    sends("ab", 0);
    char got[4];
    CHECK_EQ(OK(recv(in, got, 4, MSG_WAITALL | MSG_DONTWAIT)), 2);
}

TEST(trunc_throws_away) {
    /* For TCP the flag discards bytes: tcp(7), since 2.4. */
    couple(AF_INET);
    sends("throw away, keep", 0);
    CHECK_EQ(OK(recv(in, NULL, 12, MSG_TRUNC)), 12);
    GETS(0, "keep");
}

TEST(dontwait_and_a_full_buffer) {
    couple(AF_INET);
    char c;
    ERR(recv(in, &c, 1, MSG_DONTWAIT), EAGAIN);
    static char data[65536];
    ssize_t n, total = 0;
    while ((n = send(out, data, sizeof data, MSG_DONTWAIT)) > 0)
        total += n;
    CHECK_EQ(errno, EAGAIN);
    CHECK(total > 0);
    CHECK_EQ(events_of(out, POLLOUT, 0), 0);
    CHECK_EQ(OK(fcntl(out, F_GETFL)) & O_NONBLOCK, 0);
    CHECK(unsent(out) > 0);
    ssize_t got = 0;
    nonblocking(in);
    while (got < total) {
        n = recv(in, data, sizeof data, 0);
        if (n == -1) {
            CHECK_EQ(errno, EAGAIN);
            AWAIT(in, POLLIN);
        } else
            got += n;
    }
    CHECK_EQ(AWAIT(out, POLLOUT), POLLOUT);
    EVENTUALLY(unsent(out) == 0);
    CHECK_EQ(queued(in), 0);
}

TEST(more_and_cork_hold_small_pieces_back) {
    /* With MSG_MORE the peer sees nothing until there is a full segment, 200 ms pass, or a send
     * without it. Sent at once is what is seen at once. */
    couple(AF_INET);
    OK(set_option(out, IPPROTO_TCP, TCP_NODELAY, 1));
    CHECK_EQ(OK(send(out, "ab", 2, MSG_MORE)), 2);
    int held = queued(in) == 0;
    CHECK_EQ(OK(send(out, "cd", 2, 0)), 2);
    AWAIT(in, POLLIN);
    if (held)
        GETS(0, "abcd");
    else
        EVENTUALLY(queued(in) == 4);
    couple(AF_INET);
    OK(set_option(out, IPPROTO_TCP, TCP_CORK, 1));
    CHECK_EQ(OPTION(out, IPPROTO_TCP, TCP_CORK), 1);
    int64_t start = now_ns(CLOCK_MONOTONIC);
    CHECK_EQ(OK(write(out, "ef", 2)), 2);
    CHECK_EQ(OK(write(out, "gh", 2)), 2);
    int early = events_of(in, POLLIN, 20);
    CHECK(early == 0 || now_ns(CLOCK_MONOTONIC) - start > 150 * MS);
    OK(set_option(out, IPPROTO_TCP, TCP_CORK, 0));
    AWAIT(in, POLLIN);
    GETS(0, "efgh");
}

TEST(a_corked_piece_leaves_after_200_ms) {
    couple(AF_INET);
    OK(set_option(out, IPPROTO_TCP, TCP_CORK, 1));
    CHECK_EQ(OK(write(out, "held", 4)), 4);
    AWAIT(in, POLLIN);
    GETS(0, "held");
}

TEST(amounts_that_wait) {
    couple(AF_INET);
    CHECK_EQ(queued(in), 0);
    CHECK_EQ(unsent(out), 0);
    sends("12345", 0);
    CHECK_EQ(queued(in), 5);
    CHECK_EQ(queued(out), 0);
    char c;
    CHECK_EQ(OK(read(in, &c, 1)), 1);
    CHECK_EQ(queued(in), 4);
    ERR(ioctl(in, FIONREAD, BAD), EFAULT);
    /* An end that came counts for nothing. */
    OK(shutdown(out, SHUT_WR));
    AWAIT_ALL(in, POLLRDHUP);
    CHECK_EQ(queued(in), 4);
}

/* ---- urgent data ----------------------------------------------------------------------------- */

static int at_mark(void) {
    int mark = -1;
    OK(ioctl(in, SIOCATMARK, &mark));
    return mark;
}

TEST(urgent_data_is_beside_the_rest) {
    couple(AF_INET);
    char c;
    ERR(recv(in, &c, 1, MSG_OOB), EINVAL); /* there is none */
    CHECK_EQ(at_mark(), 0);
    sends("ab", 0);
    sends("cX", MSG_OOB);
    sends("de", 0);
    CHECK_EQ(AWAIT(in, POLLPRI), POLLPRI);
    CHECK_EQ(events_of(in, POLLIN | POLLPRI, 0), POLLIN | POLLPRI);
    GETS(0, "abc"); /* a read ends before the mark */
    CHECK_EQ(at_mark(), 1);
    CHECK_EQ(OK(recv(in, &c, 1, MSG_OOB | MSG_PEEK)), 1);
    CHECK_EQ(OK(recv(in, &c, 1, MSG_OOB)), 1);
    CHECK_EQ(c, 'X');
    ERR(recv(in, &c, 1, MSG_OOB), EINVAL); /* read already */
    CHECK_EQ(events_of(in, POLLPRI, 0), 0);
    GETS(0, "de");
    CHECK_EQ(at_mark(), 0);
    ERR(recv(in, &c, 1, MSG_DONTWAIT), EAGAIN);
}

TEST(urgent_data_that_is_not_read_is_skipped) {
    couple(AF_INET);
    sends("aX", MSG_OOB);
    sends("b", 0);
    GETS(0, "a");
    GETS(0, "b");
    char c;
    ERR(recv(in, &c, 1, MSG_OOB | MSG_DONTWAIT), EINVAL);
    /* The newer one counts; the older is then ordinary data. */
    sends("1X", MSG_OOB);
    sends("2Y", MSG_OOB);
    CHECK_EQ(OK(recv(in, &c, 1, MSG_OOB)), 1);
    CHECK_EQ(c, 'Y');
    GETS(0, "1X2");
}

TEST(urgent_data_in_line) {
    couple(AF_INET);
    OK(set_option(in, SOL_SOCKET, SO_OOBINLINE, 1));
    sends("aX", MSG_OOB);
    sends("b", 0);
    AWAIT(in, POLLPRI);
    char c;
    ERR(recv(in, &c, 1, MSG_OOB), EINVAL);
    CHECK_EQ(at_mark(), 0);
    GETS(0, "a");
    CHECK_EQ(at_mark(), 1);
    GETS(0, "Xb");
    CHECK_EQ(at_mark(), 0);
}

static volatile sig_atomic_t signals_seen;
static void count_signal(int sig UNUSED) { signals_seen++; }

TEST(urgent_data_sends_sigurg_to_the_owner) {
    couple(AF_INET);
    signal(SIGURG, count_signal);
    sends("X", MSG_OOB);
    CHECK_EQ(signals_seen, 0); /* it has no owner */
    char c;
    CHECK_EQ(OK(recv(in, &c, 1, MSG_OOB)), 1);
    OK(fcntl(in, F_SETOWN, getpid()));
    CHECK_EQ(OK(fcntl(in, F_GETOWN)), getpid());
    sends("Y", MSG_OOB);
    EVENTUALLY(signals_seen == 1);
    int owner = 0;
    OK(ioctl(in, 0x8903 /* FIOGETOWN */, &owner));
    CHECK_EQ(owner, getpid());
    /* In epoll it is EPOLLPRI, in select an exception. */
    int ep = OK(epoll_create1(0));
    struct epoll_event e = {EPOLLPRI, {.fd = in}}, got;
    OK(epoll_ctl(ep, EPOLL_CTL_ADD, in, &e));
    CHECK_EQ(OK(epoll_wait(ep, &got, 1, SOON)), 1);
    CHECK_EQ(got.events, EPOLLPRI);
    fd_set exceptions;
    FD_ZERO(&exceptions);
    FD_SET(in, &exceptions);
    struct timeval none = {0, 0};
    CHECK_EQ(OK(select(in + 1, NULL, NULL, &exceptions, &none)), 1);
    CHECK_EQ(OK(recv(in, &c, 1, MSG_OOB)), 1);
    CHECK_EQ(OK(epoll_wait(ep, &got, 1, 0)), 0);
}

/* ---- other ways to move bytes ---------------------------------------------------------------- */

TEST(vectors) {
    couple(AF_INET);
    struct iovec v[3] = {{"one ", 4}, {"", 0}, {"two", 3}};
    CHECK_EQ(OK(writev(out, v, 3)), 7);
    EVENTUALLY(queued(in) == 7);
    char a[2], b[10];
    struct iovec w[2] = {{a, 2}, {b, 10}};
    CHECK_EQ(OK(readv(in, w, 2)), 7);
    CHECK(memcmp(a, "on", 2) == 0 && memcmp(b, "e two", 5) == 0);
    ERR(syscall(SYS_writev, out, v, -1L), EINVAL);
    ERR(syscall(SYS_writev, out, v, 1025L), EINVAL);
    struct msghdr m = {.msg_iov = v, .msg_iovlen = 3};
    CHECK_EQ(OK(sendmsg(out, &m, 0)), 7);
    EVENTUALLY(queued(in) == 7);
    union address from;
    m = (struct msghdr){.msg_iov = w, .msg_iovlen = 2, .msg_name = &from,
                        .msg_namelen = sizeof from, .msg_flags = 99};
    CHECK_EQ(OK(recvmsg(in, &m, 0)), 7);
    CHECK_EQ(m.msg_namelen, 0); /* a stream names no sender */
    CHECK_EQ(m.msg_flags, 0);
    CHECK_EQ(m.msg_controllen, 0);
}

TEST(sendto_on_a_connection_ignores_the_address) {
    couple(AF_INET);
    CHECK_EQ(OK(sendto(out, "a", 1, 0, AT4(STRANGER, 9))), 1);
    CHECK_EQ(OK(sendto(out, "b", 1, 0, NULL, 0)), 1);
    EVENTUALLY(queued(in) == 2);
    union address from = {.any.sa_family = 77};
    socklen_t length = sizeof from;
    char got[2];
    CHECK_EQ(OK(recvfrom(in, got, 2, 0, &from.any, &length)), 2);
    CHECK_EQ(from.any.sa_family, 77);
}

TEST(many_messages_at_once) {
    couple(AF_INET);
    struct iovec v[3] = {{"ab", 2}, {"cde", 3}, {"f", 1}};
    struct mmsghdr m[3] = {{{.msg_iov = &v[0], .msg_iovlen = 1}, 0},
                           {{.msg_iov = &v[1], .msg_iovlen = 1}, 0},
                           {{.msg_iov = &v[2], .msg_iovlen = 1}, 0}};
    CHECK_EQ(OK(sendmmsg(out, m, 3, 0)), 3);
    CHECK_EQ(m[0].msg_len, 2);
    CHECK_EQ(m[1].msg_len, 3);
    CHECK_EQ(m[2].msg_len, 1);
    EVENTUALLY(queued(in) == 6);
    char a[4], b[10];
    v[0] = (struct iovec){a, 4}, v[1] = (struct iovec){b, 10}, v[2] = (struct iovec){b, 10};
    for (int i = 0; i < 3; i++)
        m[i].msg_hdr.msg_controllen = 0;
    CHECK_EQ(OK(syscall(SYS_recvmmsg, in, m, 3, MSG_DONTWAIT, NULL)), 2);
    CHECK_EQ(m[0].msg_len, 4);
    CHECK_EQ(m[1].msg_len, 2);
    ERR(syscall(SYS_recvmmsg, in, m, 3, MSG_DONTWAIT, NULL), EAGAIN);
    /* With a time limit, and with one that is no time. */
    struct timespec t = {0, 2000000000};
    ERR(syscall(SYS_recvmmsg, in, m, 3, 0, &t), EINVAL);
    CHECK_EQ(OK(write(out, "g", 1)), 1);
    CHECK_EQ(OK(syscall(SYS_recvmmsg, in, m, 3, MSG_WAITFORONE, NULL)), 1);
}

TEST(sendfile_to_a_connection) {
    enum { SIZE = 300000 };
    static char data[SIZE], got[SIZE];
    fill(data, SIZE, 5);
    PUT_BYTES("file", data, SIZE);
    int f = OK(open("file", O_RDONLY));
    couple(AF_INET);
    pid_t pid = FORK();
    if (pid == 0) {
        recv_all(in, got, SIZE - 1000);
        CHECK(memcmp(got, data + 1000, SIZE - 1000) == 0);
        CHECK_EQ(OK(read(in, got, 1)), 0);
        _exit(0);
    }
    off_t at = 1000;
    while (at < SIZE)
        if (OK(sendfile(out, f, &at, SIZE)) == 0)
            FAIL("sendfile gave 0 at %lld", (long long)at);
    CHECK_EQ(lseek(f, 0, SEEK_CUR), 0);
    CHECK_EQ(OK(sendfile(out, f, &at, 10)), 0);
    OK(shutdown(out, SHUT_WR));
    EXITS(pid, 0);
    ERR(sendfile(f, in, NULL, 10), EBADF); /* not open for writing */
    int g = OK(open("other", O_RDWR | O_CREAT, 0600));
    ERR(sendfile(g, in, &(off_t){0}, 10), ESPIPE);
}

TEST(splice_from_and_to_a_connection) {
    couple(AF_INET);
    int p[2];
    OK(pipe(p));
    sends("through a pipe", 0);
    CHECK_EQ(OK(splice(in, NULL, p[1], NULL, 100, 0)), 14);
    char got[20];
    CHECK_EQ(OK(read(p[0], got, 20)), 14);
    CHECK(memcmp(got, "through a pipe", 14) == 0);
    /* The flag is about the pipe: tcp_splice_read goes by O_NONBLOCK of the socket. */
    nonblocking(in);
    ERR(splice(in, NULL, p[1], NULL, 100, 0), EAGAIN);
    blocking(in);
    CHECK_EQ(OK(write(p[1], "and back", 8)), 8);
    CHECK_EQ(OK(splice(p[0], NULL, in, NULL, 100, SPLICE_F_MORE | SPLICE_F_MOVE)), 8);
    recv_all(out, got, 8);
    CHECK(memcmp(got, "and back", 8) == 0);
    ERR(splice(in, NULL, out, NULL, 10, 0), EINVAL); /* neither is a pipe */
    ERR(splice(in, &(loff_t){0}, p[1], NULL, 10, 0), EINVAL); /* it has no places */
    OK(shutdown(out, SHUT_WR));
    CHECK_EQ(OK(splice(in, NULL, p[1], NULL, 10, 0)), 0);
    OK(close(in));
    /* A large amount, in two processes. */
    enum { SIZE = 1 << 20 };
    static char data[SIZE], copy[SIZE];
    fill(data, SIZE, 9);
    couple(AF_INET);
    pid_t pid = FORK();
    if (pid == 0) {
        send_all(out, data, SIZE);
        _exit(0);
    }
    for (size_t done = 0; done < SIZE;) {
        ssize_t n = OK(splice(in, NULL, p[1], NULL, SIZE, 0));
        CHECK(n > 0);
        for (ssize_t k = 0; k < n;) {
            ssize_t r = OK(read(p[0], copy + done, (size_t)(n - k)));
            k += r, done += (size_t)r;
        }
    }
    CHECK(memcmp(data, copy, SIZE) == 0);
    EXITS(pid, 0);
}

TEST(stdio_over_a_connection) {
    couple(AF_INET);
    pid_t pid = FORK();
    if (pid == 0) {
        FILE *f = fdopen(in, "r+");
        char line[100];
        int sum = 0;
        while (fgets(line, sizeof line, f) && strcmp(line, "end\n") != 0)
            sum += atoi(line);
        fseek(f, 0, SEEK_CUR);
        fprintf(f, "%d\n", sum);
        fflush(f);
        _exit(0);
    }
    for (int i = 0; i < 1000; i++)
        dprintf(out, "%d\n", i);
    dprintf(out, "end\n");
    char got[16] = "";
    recv_all(out, got, 7);
    CHECK_STR(got, "499500\n");
    EXITS(pid, 0);
}
