/*
 * Out-of-band data of Unix-domain streams: MSG_OOB, SIOCATMARK, SO_OOBINLINE, POLLPRI, SIGURG.
 *
 * Kernels differ in what is left once the byte was read: since 6.11 its place stays a mark that
 * SIOCATMARK tells of and at which reads end. The cases hold what 6.1 and 6.18 both do.
 */
#define AREA "urgent"
#include "harness.h"
#include <poll.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>

#ifndef SIOCATMARK
#define SIOCATMARK 0x8905
#endif
#define SIOCOUTQ 0x5411
#define CMSG_COMPAT 0x80000000u

/* Sender and receiver. */
static int out, in;
static void couple(void) {
    int s[2];
    OK(socketpair(AF_UNIX, SOCK_STREAM, 0, s));
    out = s[0], in = s[1];
}
static void sends(int line, const char *text, int flags) {
    ssize_t n = send(out, text, strlen(text), flags);
    if (n != (ssize_t)strlen(text))
        hy_fail(__FILE__, line, "send of %s gave %zd: %s", text, n, strerror(errno));
}
#define SEND(text, flags) sends(__LINE__, text, flags)
/* A receive with room for ten bytes gives this. */
static void gets_text(int line, int flags, const char *text) {
    char got[11] = "";
    ssize_t n = recv(in, got, 10, flags | MSG_DONTWAIT);
    if (n != (ssize_t)strlen(text) || strcmp(got, text) != 0)
        hy_fail(__FILE__, line, "got %zd \"%s\" (%s), not %s", n, got, strerror(errno), text);
}
#define GETS(flags, text) gets_text(__LINE__, flags, text)
static void gets_error(int line, int flags, int error) {
    char c;
    errno = 0;
    ssize_t n = recv(in, &c, 1, flags | MSG_DONTWAIT);
    if (n != -1 || errno != error)
        hy_fail(__FILE__, line, "got %zd (%s), not %s", n, strerror(errno), strerror(error));
}
#define NOTHING(flags, error) gets_error(__LINE__, flags, error)
static int at_mark(void) {
    int mark = -1;
    OK(ioctl(in, SIOCATMARK, &mark));
    return mark;
}
static short events(void) {
    struct pollfd p = {in, POLLIN | POLLPRI | POLLRDBAND | POLLRDHUP, 0};
    OK(poll(&p, 1, 0));
    return p.revents;
}
static int queued(void) {
    int n = -1;
    OK(ioctl(in, FIONREAD, &n));
    return n;
}
static void inlined(int on) { OK(setsockopt(in, SOL_SOCKET, SO_OOBINLINE, &on, sizeof on)); }

/* ---- what readers get ------------------------------------------------------------------------ */

TEST(the_last_byte_is_out_of_band) {
    couple();
    SEND("hello", MSG_OOB);
    CHECK_EQ(queued(), 5);
    CHECK_EQ(at_mark(), 0);
    GETS(MSG_OOB | MSG_PEEK, "o");
    GETS(MSG_OOB, "o");
    NOTHING(MSG_OOB, EINVAL);
    NOTHING(MSG_OOB | MSG_PEEK, EINVAL);
    CHECK_EQ(queued(), 4);
    GETS(0, "hell");
    NOTHING(0, EAGAIN);
    CHECK_EQ(queued(), 0);
}

TEST(a_read_ends_before_it) {
    couple();
    SEND("abX", MSG_OOB);
    SEND("cd", 0);
    GETS(MSG_PEEK, "ab");
    char two[4] = "";
    CHECK_EQ(OK(recv(in, two, 1, 0)), 1);
    CHECK_EQ(at_mark(), 0);
    CHECK_EQ(OK(read(in, two, 4)), 1);
    CHECK_EQ(at_mark(), 1);
    CHECK_EQ(queued(), 3);
    GETS(MSG_PEEK, "cd"); /* a look goes past it */
    CHECK_EQ(at_mark(), 1);
    GETS(MSG_OOB | MSG_PEEK, "X");
}

TEST(a_read_that_begins_at_it_loses_it) {
    couple();
    SEND("abX", MSG_OOB);
    SEND("cd", 0);
    GETS(0, "ab");
    GETS(0, "cd");
    NOTHING(MSG_OOB, EINVAL);
    SEND("X", MSG_OOB);
    NOTHING(MSG_PEEK, EAGAIN);
    CHECK_EQ(at_mark(), 1);
    NOTHING(0, EAGAIN); /* lost all the same */
    CHECK_EQ(at_mark(), 0);
    CHECK_EQ(events(), 0);
    NOTHING(MSG_OOB, EINVAL);
}

TEST(it_is_read_before_what_was_sent_before) {
    couple();
    SEND("abX", MSG_OOB);
    SEND("cd", 0);
    GETS(MSG_OOB, "X");
    CHECK_EQ(queued(), 4);
    GETS(0, "ab"); /* a read ends where it was */
    GETS(0, "cd");
    NOTHING(0, EAGAIN);
}

TEST(a_second_one_makes_the_first_ordinary) {
    couple();
    SEND("aX", MSG_OOB);
    SEND("bY", MSG_OOB);
    CHECK_EQ(queued(), 4);
    GETS(MSG_PEEK, "aXb");
    GETS(MSG_OOB | MSG_PEEK, "Y");
    GETS(0, "aXb");
    CHECK_EQ(at_mark(), 1);
    GETS(MSG_OOB, "Y");
    NOTHING(0, EAGAIN);
    /* Of a byte that was read nothing is left but its place. */
    SEND("c", MSG_OOB);
    GETS(MSG_OOB, "c");
    SEND("d", MSG_OOB);
    GETS(MSG_OOB, "d");
    NOTHING(MSG_OOB, EINVAL);
    SEND("e", 0);
    char c = 0;
    while (recv(in, &c, 1, MSG_DONTWAIT) == -1 && errno == EAGAIN && queued() > 0)
        ;
    CHECK_EQ(c, 'e');
}

TEST(the_mark_stays) {
    couple();
    SEND("X", MSG_OOB);
    GETS(MSG_OOB, "X");
    if (!at_mark())
        SKIP("before 6.11 the mark goes with its byte");
    NOTHING(0, EAGAIN);
    CHECK_EQ(at_mark(), 0);
    SEND("abX", MSG_OOB);
    SEND("cd", 0);
    GETS(MSG_OOB, "X");
    GETS(MSG_PEEK, "ab");
    GETS(0, "ab");
    CHECK_EQ(at_mark(), 1);
    GETS(MSG_PEEK, "cd");
    CHECK_EQ(at_mark(), 1);
    GETS(0, "cd");
    /* It is the mark of the last one. */
    SEND("abX", MSG_OOB);
    GETS(MSG_OOB, "X");
    SEND("cdY", MSG_OOB);
    CHECK_EQ(at_mark(), 0);
    GETS(MSG_PEEK, "abcd");
    GETS(0, "abcd");
    CHECK_EQ(at_mark(), 1);
    GETS(MSG_OOB, "Y");
    CHECK_EQ(at_mark(), 1);
    NOTHING(0, EAGAIN);
    SEND("aX", MSG_OOB);
    GETS(MSG_OOB, "X");
    SEND("Y", MSG_OOB);
    GETS(MSG_OOB, "Y");
    SEND("bc", 0);
    GETS(0, "a");
    CHECK_EQ(at_mark(), 1);
    GETS(0, "bc");
    CHECK_EQ(at_mark(), 0);
}

TEST(inline_it_is_read_with_the_rest) {
    couple();
    socklen_t length = sizeof(int);
    int on = 7;
    OK(getsockopt(in, SOL_SOCKET, SO_OOBINLINE, &on, &length));
    CHECK_EQ(on, 0);
    inlined(5);
    OK(getsockopt(in, SOL_SOCKET, SO_OOBINLINE, &on, &length));
    CHECK_EQ(on, 1);
    SEND("abX", MSG_OOB);
    SEND("cd", 0);
    NOTHING(MSG_OOB, EINVAL);
    CHECK_EQ(events(), POLLIN | POLLPRI);
    GETS(MSG_PEEK, "ab");
    GETS(0, "ab"); /* the mark ends a read as ever */
    CHECK_EQ(at_mark(), 1);
    GETS(MSG_PEEK, "Xcd");
    CHECK_EQ(at_mark(), 1);
    GETS(0, "Xcd");
    CHECK_EQ(at_mark(), 0);
    CHECK_EQ(events(), 0);
    SEND("Y", MSG_OOB);
    inlined(0); /* it is asked when the byte is read */
    GETS(MSG_OOB, "Y");
}

TEST(waitall_ends_at_it) {
    couple();
    SEND("abX", MSG_OOB);
    SEND("cd", 0);
    char text[8] = "";
    CHECK_EQ(OK(recv(in, text, 4, MSG_WAITALL)), 2);
    CHECK_STR(text, "ab");
    CHECK_EQ(OK(recv(in, text, 2, MSG_WAITALL)), 2);
    CHECK_STR(text, "cd");
}

TEST(a_reader_that_waits_does_not_get_it) {
    couple();
    pid_t child = FORK();
    if (child == 0) {
        char text[8] = "";
        CHECK_EQ(OK(read(in, text, 8)), 1);
        CHECK_STR(text, "y");
        _exit(0);
    }
    msleep(50); /* it most likely waits now; both ends are right otherwise too */
    SEND("X", MSG_OOB);
    msleep(20);
    SEND("y", 0);
    EXITS(child, 0);
    NOTHING(MSG_OOB, EINVAL);
}

TEST(it_does_not_wait) {
    couple();
    char c;
    ERR(recv(in, &c, 1, MSG_OOB), EINVAL);
    ERR(recv(in, &c, 1, MSG_OOB | MSG_WAITALL), EINVAL);
}

TEST(large_data_goes_before_it) {
    couple();
    enum { SIZE = 150000 };
    static char block[SIZE];
    for (int i = 0; i < SIZE; i++)
        block[i] = (char)(i % 251);
    CHECK_EQ(OK(send(out, block, SIZE, MSG_OOB)), SIZE);
    char c;
    CHECK_EQ(OK(recv(in, &c, 1, MSG_OOB | MSG_PEEK)), 1);
    CHECK_EQ(c, block[SIZE - 1]);
    static char got[SIZE];
    size_t count = 0;
    while (!at_mark())
        count += (size_t)OK(read(in, got + count, SIZE - count));
    CHECK_EQ(count, SIZE - 1);
    CHECK_EQ(memcmp(got, block, SIZE - 1), 0);
}

TEST(vectors_and_many_messages) {
    couple();
    char a[3] = "ab", b[3] = "cX";
    struct iovec v[2] = {{a, 2}, {b, 2}};
    struct mmsghdr m[2] = {{.msg_hdr = {.msg_iov = v, .msg_iovlen = 2}},
                           {.msg_hdr = {.msg_iov = &v[0], .msg_iovlen = 1}}};
    CHECK_EQ(OK(sendmsg(out, &m[0].msg_hdr, MSG_OOB)), 4);
    GETS(MSG_OOB | MSG_PEEK, "X");
    char control[64], name[64];
    char text[8] = "";
    struct iovec w = {text, 8};
    struct msghdr h = {.msg_name = name, .msg_namelen = 64, .msg_iov = &w, .msg_iovlen = 1,
                       .msg_control = control, .msg_controllen = 64};
    CHECK_EQ(OK(recvmsg(in, &h, MSG_OOB)), 1);
    CHECK_STR(text, "X");
    CHECK_EQ(h.msg_flags & ~MSG_CMSG_CLOEXEC, MSG_OOB);
    CHECK_EQ(h.msg_namelen, 0);
    CHECK_EQ(h.msg_controllen, 0);
    CHECK_EQ(OK(recvmsg(in, &h, 0)), 3);
    CHECK_EQ(h.msg_flags, 0);
    NOTHING(0, EAGAIN);

    CHECK_EQ(OK(sendmmsg(out, m, 2, MSG_OOB)), 2); /* "abcX", then "ab" with b for X */
    CHECK(m[0].msg_len == 4 && m[1].msg_len == 2);
    struct mmsghdr r[2] = {{.msg_hdr = {.msg_iov = &w, .msg_iovlen = 1}},
                           {.msg_hdr = {.msg_iov = &w, .msg_iovlen = 1}}};
    CHECK_EQ(OK(recvmmsg(in, r, 2, MSG_OOB, NULL)), 1); /* there is one at a time */
    CHECK(r[0].msg_len == 1 && r[0].msg_hdr.msg_flags == MSG_OOB);
    CHECK_EQ(text[0], 'b');
    ERR(recvmmsg(in, r, 2, MSG_OOB, NULL), EINVAL);
    GETS(0, "abcXa");
}

TEST(the_sender_has_no_name) {
    couple();
    SEND("X", MSG_OOB);
    struct sockaddr_un name;
    socklen_t length = sizeof name;
    char c;
    CHECK_EQ(OK(recvfrom(in, &c, 1, MSG_OOB, (struct sockaddr *)&name, &length)), 1);
    CHECK_EQ(length, 0);
}

TEST(no_room_and_no_memory_lose_it) {
    couple();
    SEND("aX", MSG_OOB);
    CHECK_EQ(OK(recv(in, NULL, 0, MSG_OOB)), 1); /* as if there had been room */
    NOTHING(MSG_OOB, EINVAL);
    SEND("X", MSG_OOB);
    ERR(recv(in, BAD, 1, MSG_OOB | MSG_PEEK), EFAULT);
    ERR(recv(in, BAD, 1, MSG_OOB), EFAULT);
    NOTHING(MSG_OOB, EINVAL);
}

/* ---- ends ------------------------------------------------------------------------------------ */

TEST(the_end_comes_behind_it) {
    couple();
    SEND("abX", MSG_OOB);
    OK(close(out));
    CHECK_EQ(events(), POLLIN | POLLPRI | POLLHUP | POLLRDHUP);
    GETS(0, "ab");
    CHECK_EQ(at_mark(), 1);
    GETS(MSG_PEEK, "");
    GETS(MSG_OOB | MSG_PEEK, "X");
    GETS(0, "");
    NOTHING(MSG_OOB, EINVAL);
    couple();
    SEND("X", MSG_OOB);
    OK(shutdown(in, SHUT_RD));
    GETS(MSG_OOB, "X");
    GETS(0, "");
    ERR(send(out, "X", 1, MSG_OOB | MSG_NOSIGNAL), EPIPE);
}

TEST(left_unread_it_resets_the_peer) {
    couple();
    SEND("X", MSG_OOB);
    OK(close(in));
    char c;
    ERR(recv(out, &c, 1, 0), ECONNRESET);
    couple();
    SEND("X", MSG_OOB);
    GETS(MSG_OOB, "X");
    OK(close(in));
    CHECK_EQ(OK(recv(out, &c, 1, 0)), 0);
}

TEST(a_read_of_what_there_is_keeps_the_reset) {
    couple();
    OK(send(in, "unread", 6, 0));
    SEND("abc", 0);
    OK(close(out));
    GETS(0, "abc");
    NOTHING(0, ECONNRESET);
    GETS(0, "");
}

/* ---- descriptors ----------------------------------------------------------------------------- */

/* Sends the text, out of band at its end, with a descriptor of a pipe; the other end stays. */
static int send_pipe(const char *text) {
    int p[2];
    OK(pipe2(p, O_NONBLOCK));
    union {
        char bytes[CMSG_SPACE(sizeof(int))];
        struct cmsghdr head;
    } control;
    memset(&control, 0, sizeof control);
    control.head.cmsg_len = CMSG_LEN(sizeof(int));
    control.head.cmsg_level = SOL_SOCKET;
    control.head.cmsg_type = SCM_RIGHTS;
    memcpy(CMSG_DATA(&control.head), &p[1], sizeof(int));
    struct iovec v = {(char *)text, strlen(text)};
    struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = &control,
                       .msg_controllen = sizeof control.bytes};
    CHECK_EQ(OK(sendmsg(out, &m, MSG_OOB)), strlen(text));
    OK(close(p[1]));
    return p[0];
}

TEST(descriptors_go_with_the_first_bytes) {
    couple();
    char c, control[64];
    struct iovec v = {&c, 1};
    struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = control,
                       .msg_controllen = sizeof control};
    int end = send_pipe("aX");
    CHECK_EQ(OK(recvmsg(in, &m, 0)), 1);
    CHECK_EQ(c, 'a');
    CHECK_EQ(m.msg_controllen, CMSG_SPACE(sizeof(int)));
    ERR(read(end, &c, 1), EAGAIN); /* it is here */
    GETS(MSG_OOB, "X");
}

TEST(descriptors_of_the_byte_are_not_received) {
    couple();
    char c, control[64];
    struct iovec v = {&c, 1};
    struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = control,
                       .msg_controllen = sizeof control};
    int end = send_pipe("X");
    CHECK_EQ(OK(recvmsg(in, &m, MSG_OOB)), 1);
    CHECK_EQ(m.msg_controllen, 0);
    ERR(read(end, &c, 1), EAGAIN); /* it waits where the byte was */
    NOTHING(0, EAGAIN);
    CHECK_EQ(OK(read(end, &c, 1)), 0); /* and has gone with that */
    end = send_pipe("X");
    NOTHING(0, EAGAIN);
    CHECK_EQ(OK(read(end, &c, 1)), 0);
}

/* ---- who is told ----------------------------------------------------------------------------- */

TEST(poll_select_and_epoll_tell) {
    couple();
    int set = OK(epoll_create1(0));
    struct epoll_event event = {.events = EPOLLPRI};
    OK(epoll_ctl(set, EPOLL_CTL_ADD, in, &event));
    SEND("ab", 0);
    CHECK_EQ(events(), POLLIN);
    CHECK_EQ(OK(epoll_wait(set, &event, 1, 0)), 0);
    SEND("X", MSG_OOB);
    CHECK_EQ(events(), POLLIN | POLLPRI);
    CHECK_EQ(OK(epoll_wait(set, &event, 1, 10000)), 1);
    CHECK_EQ(event.events, EPOLLPRI);
    fd_set exceptional;
    FD_ZERO(&exceptional);
    FD_SET(in, &exceptional);
    struct timeval now = {0, 0};
    CHECK_EQ(OK(select(in + 1, NULL, NULL, &exceptional, &now)), 1);
    CHECK(FD_ISSET(in, &exceptional));
    GETS(MSG_OOB, "X");
    CHECK_EQ(events(), POLLIN);
    CHECK_EQ(OK(epoll_wait(set, &event, 1, 0)), 0);
    FD_SET(in, &exceptional);
    CHECK_EQ(OK(select(in + 1, NULL, NULL, &exceptional, &now)), 0);
}

TEST(a_poll_for_it_is_woken) {
    couple();
    pid_t child = FORK();
    if (child == 0) {
        msleep(30);
        SEND("X", MSG_OOB);
        _exit(0);
    }
    struct pollfd p = {in, POLLPRI, 0};
    CHECK_EQ(OK(poll(&p, 1, 20000)), 1);
    CHECK_EQ(p.revents, POLLPRI);
    EXITS(child, 0);
}

#define REALTIME (SIGRTMIN + 3)
static sigset_t wanted;
/* The signals that came, lowest first: each but the last ends the others' wait at once. */
static void comes(int line, int signal, int code) {
    siginfo_t info;
    struct timespec wait = {signal ? 10 : 0, signal ? 0 : 20 * MS};
    int got = sigtimedwait(&wanted, &info, &wait);
    if (got != (signal ? signal : -1) || (signal && info.si_code != code))
        hy_fail(__FILE__, line, "signal %d code %d, not %d %d", got, got > 0 ? info.si_code : 0,
                signal, code);
    if (code == POLL_PRI && (info.si_band != (POLLPRI | POLLRDBAND) || info.si_fd != in))
        hy_fail(__FILE__, line, "band %#lx fd %d", info.si_band, info.si_fd);
}
#define COMES(signal, code) comes(__LINE__, signal, code)
#define NONE() comes(__LINE__, 0, 0)

TEST(the_owner_gets_sigurg) {
    sigemptyset(&wanted);
    sigaddset(&wanted, SIGURG);
    sigaddset(&wanted, SIGIO);
    sigaddset(&wanted, REALTIME);
    OK(sigprocmask(SIG_BLOCK, &wanted, NULL));
    couple();
    SEND("X", MSG_OOB);
    NONE(); /* nobody owns it */
    OK(fcntl(in, F_SETOWN, getpid()));
    SEND("a", 0);
    NONE();
    SEND("X", MSG_OOB);
    COMES(SIGURG, SI_KERNEL); /* without O_ASYNC */
    NONE();
    OK(fcntl(in, F_SETFL, O_ASYNC));
    SEND("X", MSG_OOB);
    COMES(SIGURG, SI_KERNEL);
    COMES(SIGIO, SI_KERNEL);
    NONE();
    OK(fcntl(in, F_SETSIG, REALTIME));
    SEND("X", MSG_OOB);
    COMES(SIGURG, SI_KERNEL);
    COMES(REALTIME, POLL_PRI);
    COMES(REALTIME, POLL_IN);
    NONE();
    OK(fcntl(in, F_SETFL, 0));
    SEND("X", MSG_OOB);
    COMES(SIGURG, SI_KERNEL);
    NONE();
    int nobody = 0;
    OK(ioctl(in, 0x8902 /* SIOCSPGRP */, &nobody));
    SEND("X", MSG_OOB);
    NONE();
    int me = getpid();
    OK(ioctl(in, 0x8901 /* FIOSETOWN */, &me));
    SEND("X", MSG_OOB);
    COMES(SIGURG, SI_KERNEL);
    struct f_owner_ex {
        int type, pid;
    } thread = {0, (int)syscall(SYS_gettid)};
    OK(fcntl(in, 15 /* F_SETOWN_EX */, &thread));
    SEND("X", MSG_OOB);
    COMES(SIGURG, SI_KERNEL);
}

/* ---- errors ---------------------------------------------------------------------------------- */

TEST(only_streams_have_it) {
    int s[2], mark;
    char c;
    for (int type = SOCK_DGRAM; type <= SOCK_SEQPACKET; type += SOCK_SEQPACKET - SOCK_DGRAM) {
        OK(socketpair(AF_UNIX, type, 0, s));
        ERR(send(s[0], "x", 1, MSG_OOB), EOPNOTSUPP);
        ERR(recv(s[0], &c, 1, MSG_OOB), EOPNOTSUPP);
        ERR(ioctl(s[0], SIOCATMARK, &mark), EOPNOTSUPP);
    }
    int lone = OK(socket(AF_UNIX, SOCK_SEQPACKET, 0));
    ERR(send(lone, "x", 1, MSG_OOB), ENOTCONN);
    ERR(recv(lone, &c, 1, MSG_OOB), ENOTCONN);
    ERR(ioctl(OK(open(".", O_RDONLY)), SIOCATMARK, &mark), ENOTTY);
}

TEST(sending_errors) {
    couple();
    int lone = OK(socket(AF_UNIX, SOCK_STREAM, 0));
    ERR(send(lone, "x", 1, MSG_OOB), ENOTCONN);
    ERR(send(lone, "x", 0, MSG_OOB), EOPNOTSUPP);
    ERR(send(out, "x", 0, MSG_OOB), EOPNOTSUPP); /* there must be a byte */
    struct sockaddr_un name = {AF_UNIX, "x"};
    ERR(sendto(out, "x", 1, MSG_OOB, (struct sockaddr *)&name, sizeof name), EISCONN);
    ERR(send(out, BAD, 1, MSG_OOB), EFAULT);
    ERR(send(out, BAD, 2, MSG_OOB), EFAULT);
    NOTHING(MSG_OOB, EINVAL);
    OK(fcntl(out, F_SETFL, O_NONBLOCK));
    while (send(out, "x", 1, 0) == 1)
        ;
    ERR(send(out, "X", 1, MSG_OOB), EAGAIN);
    ERR(send(out, "X", 1, MSG_OOB | MSG_DONTWAIT), EAGAIN);
    OK(close(in));
    signal(SIGPIPE, SIG_IGN);
    ERR(send(out, "X", 1, MSG_OOB), EPIPE);
    ERR(send(out, "x", 1, 0), EPIPE);
    char c;
    ERR(recv(out, &c, 1, 0), ECONNRESET); /* kept for a read */
}

TEST(a_sender_without_reader_gets_sigpipe) {
    couple();
    OK(close(in));
    pid_t child = FORK();
    if (child == 0) {
        send(out, "X", 1, MSG_OOB);
        _exit(0);
    }
    KILLED(child, SIGPIPE);
}

TEST(receiving_errors) {
    char c;
    int mark, lone = OK(socket(AF_UNIX, SOCK_STREAM, 0));
    ERR(recv(lone, &c, 1, MSG_OOB), EINVAL);
    struct sockaddr_un name = {AF_UNIX, "listener"};
    OK(bind(lone, (struct sockaddr *)&name, sizeof name));
    OK(listen(lone, 1));
    ERR(recv(lone, &c, 1, MSG_OOB), EINVAL);
    OK(ioctl(lone, SIOCATMARK, &mark));
    CHECK_EQ(mark, 0);
    couple();
    ERR(ioctl(in, SIOCATMARK, BAD), EFAULT);
    ERR(setsockopt(in, SOL_SOCKET, SO_OOBINLINE, &mark, 1), EINVAL);
    ERR(setsockopt(in, SOL_SOCKET, SO_OOBINLINE, BAD, sizeof(int)), EFAULT);
}

TEST(headers_for_32_bits_are_refused) {
    couple();
    char c = 'x';
    struct iovec v = {&c, 1};
    struct mmsghdr m = {.msg_hdr = {.msg_iov = &v, .msg_iovlen = 1}};
    ERR(sendmsg(out, &m.msg_hdr, CMSG_COMPAT), EINVAL);
    ERR(recvmsg(in, &m.msg_hdr, CMSG_COMPAT), EINVAL);
    ERR(syscall(SYS_sendmmsg, out, &m, 1u, CMSG_COMPAT), EINVAL);
    ERR(syscall(SYS_recvmmsg, in, &m, 1u, CMSG_COMPAT, NULL), EINVAL);
}

TEST(what_is_on_its_way_can_be_asked) {
    couple();
    int n = -1;
    OK(ioctl(out, SIOCOUTQ, &n));
    CHECK_EQ(n, 0);
    SEND("abc", 0);
    OK(ioctl(out, SIOCOUTQ, &n));
    CHECK(n >= 3); /* with what it costs to keep them */
    GETS(0, "abc");
    OK(ioctl(out, SIOCOUTQ, &n));
    CHECK_EQ(n, 0);
    ERR(ioctl(out, SIOCOUTQ, BAD), EFAULT);
}
