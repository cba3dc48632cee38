/* Unix-domain sockets: streams, datagrams, packets, names, passing of descriptors and ids. */
#define AREA "socket"
#include "harness.h"
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/xattr.h>

static struct sockaddr_un path_address(const char *path) {
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    snprintf(a.sun_path, sizeof a.sun_path, "%s", path);
    return a;
}
static socklen_t abstract_address(struct sockaddr_un *a, const char *name) {
    memset(a, 0, sizeof *a);
    a->sun_family = AF_UNIX;
    int n = snprintf(a->sun_path + 1, sizeof a->sun_path - 1, "hayate-test-%d-%s", getpid(), name);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
}
#define ADDR(...) ((struct sockaddr *)&(__VA_ARGS__))

static int s[2];
static void couple(int type) { OK(socketpair(AF_UNIX, type, 0, s)); }
static short events(int fd) {
    struct pollfd p = {fd, POLLIN | POLLOUT | POLLRDHUP, 0};
    OK(poll(&p, 1, 0));
    return p.revents;
}

/* A listening stream socket at a path and a connection to it. */
static int listener(const char *path, int backlog) {
    struct sockaddr_un a = path_address(path);
    int fd = OK(socket(AF_UNIX, SOCK_STREAM, 0));
    OK(bind(fd, ADDR(a), sizeof a));
    OK(listen(fd, backlog));
    return fd;
}
static int dial(const char *path, int type) {
    struct sockaddr_un a = path_address(path);
    int fd = OK(socket(AF_UNIX, type, 0));
    OK(connect(fd, ADDR(a), sizeof a));
    return fd;
}

TEST(socketpair_is_two_way) {
    couple(SOCK_STREAM);
    OK(write(s[0], "ping", 4));
    OK(write(s[1], "pong", 4));
    char text[8] = "";
    CHECK_EQ(OK(read(s[1], text, 8)), 4);
    CHECK_STR(text, "ping");
    CHECK_EQ(OK(recv(s[0], text, 8, 0)), 4);
    CHECK_STR(text, "pong");
}

TEST(creation_flags_and_errors) {
    OK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, s));
    CHECK_EQ(OK(fcntl(s[0], F_GETFD)), FD_CLOEXEC);
    CHECK(OK(fcntl(s[1], F_GETFL)) & O_NONBLOCK);
    ERR(socket(AF_UNIX, 99, 0), EINVAL);
    ERR2(socket(AF_UNIX, 9, 0), ESOCKTNOSUPPORT, EINVAL);
    ERR(socket(999, SOCK_STREAM, 0), EAFNOSUPPORT);
    ERR(socket(AF_UNIX, SOCK_STREAM, 77), EPROTONOSUPPORT);
    ERR(syscall(SYS_socketpair, AF_UNIX, SOCK_STREAM, 0, BAD), EFAULT);
    int file = OK(open("f", O_RDWR | O_CREAT, 0600));
    struct sockaddr_un a = path_address("x");
    ERR(bind(file, ADDR(a), sizeof a), ENOTSOCK);
    ERR(listen(file, 1), ENOTSOCK);
    ERR(accept(999, NULL, NULL), EBADF);
    char c;
    ERR(recv(file, &c, 1, 0), ENOTSOCK);
}

TEST(stream_by_path) {
    int l = listener("sock", 5);
    struct stat st;
    OK(stat("sock", &st));
    CHECK(S_ISSOCK(st.st_mode));
    int c = dial("sock", SOCK_STREAM);
    struct sockaddr_un peer;
    socklen_t len = sizeof peer;
    int a = OK(accept4(l, ADDR(peer), &len, SOCK_CLOEXEC));
    CHECK_EQ(OK(fcntl(a, F_GETFD)), FD_CLOEXEC);
    CHECK_EQ(len, 2); /* the client has no name */
    OK(write(c, "hello", 5));
    char text[8] = "";
    CHECK_EQ(OK(read(a, text, 8)), 5);
    len = sizeof peer;
    OK(getpeername(c, ADDR(peer), &len));
    CHECK_STR(peer.sun_path, "sock");
    len = sizeof peer;
    OK(getsockname(a, ADDR(peer), &len));
    CHECK_STR(peer.sun_path, "sock");
}

TEST(bind_errors) {
    struct sockaddr_un a = path_address("sock");
    int fd = OK(socket(AF_UNIX, SOCK_STREAM, 0)), other = OK(socket(AF_UNIX, SOCK_STREAM, 0));
    OK(bind(fd, ADDR(a), sizeof a));
    ERR(bind(other, ADDR(a), sizeof a), EADDRINUSE);
    a = path_address("second");
    ERR(bind(fd, ADDR(a), sizeof a), EINVAL); /* it has a name */
    a = path_address("none/sock");
    ERR(bind(other, ADDR(a), sizeof a), ENOENT);
    ERR(bind(other, ADDR(a), 1), EINVAL);
    ERR(bind(other, ADDR(a), 500), EINVAL);
    a.sun_family = AF_INET;
    ERR(bind(other, ADDR(a), sizeof a), EINVAL);
    ERR(bind(other, BAD, sizeof a), EFAULT);
    PUT("file", "x");
    a = path_address("file");
    ERR(bind(other, ADDR(a), sizeof a), EADDRINUSE);
}

TEST(connect_errors) {
    struct sockaddr_un a = path_address("none");
    int fd = OK(socket(AF_UNIX, SOCK_STREAM, 0));
    ERR(connect(fd, ADDR(a), sizeof a), ENOENT);
    PUT("file", "x");
    a = path_address("file");
    ERR(connect(fd, ADDR(a), sizeof a), ECONNREFUSED); /* no socket */
    a = path_address("sock");
    int l = OK(socket(AF_UNIX, SOCK_STREAM, 0));
    OK(bind(l, ADDR(a), sizeof a));
    ERR(connect(fd, ADDR(a), sizeof a), ECONNREFUSED); /* nobody listens */
    OK(listen(l, 5));
    int d = OK(socket(AF_UNIX, SOCK_DGRAM, 0));
    ERR(connect(d, ADDR(a), sizeof a), EPROTOTYPE);
    OK(close(l));
    ERR(connect(fd, ADDR(a), sizeof a), ECONNREFUSED); /* a stale name */
    OK(chmod("sock", 0));
    IN_CHILD({
        BECOME(1000, 1000);
        ERR(connect(fd, ADDR(a), sizeof a), EACCES);
    });
    char c;
    ERR(write(fd, "x", 1), ENOTCONN);
    ERR(read(fd, &c, 1), EINVAL);
    ERR(getpeername(fd, ADDR(a), &(socklen_t){sizeof a}), ENOTCONN);
}

TEST(abstract_names) {
    struct sockaddr_un a;
    socklen_t len = abstract_address(&a, "one");
    int l = OK(socket(AF_UNIX, SOCK_STREAM, 0));
    OK(bind(l, ADDR(a), len));
    OK(listen(l, 1));
    int c = OK(socket(AF_UNIX, SOCK_STREAM, 0));
    ERR(connect(c, ADDR(a), len - 1), ECONNREFUSED); /* the length is part of the name */
    OK(connect(c, ADDR(a), len));
    struct sockaddr_un got;
    socklen_t n = sizeof got;
    OK(getpeername(c, ADDR(got), &n));
    CHECK_EQ(n, len);
    CHECK(!memcmp(&got, &a, len));
    ERR(bind(OK(socket(AF_UNIX, SOCK_STREAM, 0)), ADDR(a), len), EADDRINUSE);
    OK(close(l));
    ERR(connect(OK(socket(AF_UNIX, SOCK_STREAM, 0)), ADDR(a), len), ECONNREFUSED); /* gone with it */
}

TEST(autobind_gives_a_name) {
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    int d = OK(socket(AF_UNIX, SOCK_DGRAM, 0));
    OK(bind(d, ADDR(a), sizeof(sa_family_t)));
    socklen_t n = sizeof a;
    OK(getsockname(d, ADDR(a), &n));
    CHECK_EQ(n, sizeof(sa_family_t) + 6); /* a zero and five hex digits (unix(7)) */
    CHECK_EQ(a.sun_path[0], 0);
}

TEST(listen_and_accept_rules) {
    int fd = OK(socket(AF_UNIX, SOCK_STREAM, 0));
    ERR(listen(fd, 1), EINVAL); /* without a name */
    ERR(accept(fd, NULL, NULL), EINVAL);
    int d = OK(socket(AF_UNIX, SOCK_DGRAM, 0));
    ERR(listen(d, 1), EOPNOTSUPP);
    ERR(accept(d, NULL, NULL), EOPNOTSUPP);
    int l = listener("sock", 3);
    OK(fcntl(l, F_SETFL, O_NONBLOCK));
    ERR(accept(l, NULL, NULL), EAGAIN);
    ERR(syscall(SYS_accept4, l, NULL, NULL, 0x1), EINVAL); /* musl hides it */
    int c = dial("sock", SOCK_STREAM);
    CHECK(events(l) & POLLIN);
    int a = OK(accept(l, NULL, NULL));
    CHECK(!(OK(fcntl(a, F_GETFL)) & O_NONBLOCK)); /* not inherited on Linux */
    OK(close(c));
    couple(SOCK_STREAM);
    ERR(listen(s[0], 1), EINVAL);
    ERR(connect(s[0], ADDR((struct sockaddr_un){AF_UNIX, "sock"}), sizeof(struct sockaddr_un)), EISCONN);
}

TEST(full_backlog_is_eagain_or_waits) {
    int l = listener("sock", 0);
    struct sockaddr_un a = path_address("sock");
    int last = -1;
    for (int i = 0; i < 10 && last == -1; i++) {
        int fd = OK(socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0));
        if (connect(fd, ADDR(a), sizeof a) == -1) {
            CHECK_EQ(errno, EAGAIN); /* connect(2): for Unix sockets not EINPROGRESS */
            last = i;
        }
    }
    CHECK(last >= 1);
    pid_t pid = FORK();
    if (pid == 0) {
        int fd = OK(socket(AF_UNIX, SOCK_STREAM, 0));
        OK(connect(fd, ADDR(a), sizeof a)); /* waits for room */
        _exit(0);
    }
    wait_asleep(pid);
    CHECK_EQ(OK(waitpid(pid, NULL, WNOHANG)), 0);
    OK(accept(l, NULL, NULL));
    EXITS(pid, 0);
}

TEST(accept_waits_for_a_connection) {
    int l = listener("sock", 5);
    pid_t pid = FORK();
    if (pid == 0) {
        int a = OK(accept(l, NULL, NULL));
        char c;
        CHECK_EQ(OK(read(a, &c, 1)), 1);
        _exit(c);
    }
    wait_asleep(pid);
    OK(write(dial("sock", SOCK_STREAM), "q", 1));
    EXITS(pid, 'q');
}

TEST(closed_listener_resets_the_waiting) {
    int l = listener("sock", 5);
    int c = dial("sock", SOCK_STREAM);
    OK(close(l));
    char byte;
    ERR(read(c, &byte, 1), ECONNRESET);
}

TEST(stream_end_of_file_and_reset) {
    couple(SOCK_STREAM);
    OK(write(s[0], "bye", 3));
    OK(close(s[0]));
    char text[8];
    CHECK_EQ(OK(read(s[1], text, 8)), 3);
    CHECK_EQ(OK(read(s[1], text, 8)), 0);
    signal(SIGPIPE, SIG_IGN);
    ERR(write(s[1], "x", 1), EPIPE);
    couple(SOCK_STREAM);
    OK(write(s[1], "unread", 6));
    OK(close(s[1]));
    couple(SOCK_STREAM);
    OK(write(s[1], "unread", 6));
    OK(close(s[0])); /* closed with data unread: the peer is reset */
    ERR(read(s[1], text, 8), ECONNRESET);
}

TEST(shutdown_halves) {
    couple(SOCK_STREAM);
    OK(shutdown(s[0], SHUT_WR));
    char c;
    CHECK_EQ(OK(read(s[1], &c, 1)), 0);
    ERR(send(s[0], "x", 1, MSG_NOSIGNAL), EPIPE);
    OK(write(s[1], "y", 1)); /* the other direction lives */
    CHECK_EQ(OK(read(s[0], &c, 1)), 1);
    CHECK(events(s[1]) & POLLRDHUP);
    OK(shutdown(s[0], SHUT_RD));
    CHECK_EQ(OK(read(s[0], &c, 1)), 0);
    ERR(send(s[1], "z", 1, MSG_NOSIGNAL), EPIPE);
    ERR(shutdown(s[0], 7), EINVAL);
    CHECK(events(s[0]) & POLLHUP);
}

TEST(nonblocking_stream_fills_up) {
    OK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, s));
    char block[1000] = {0}, c;
    ERR(read(s[0], &c, 1), EAGAIN);
    ERR(recv(s[0], &c, 1, 0), EAGAIN);
    size_t sent = 0;
    ssize_t n;
    while ((n = write(s[0], block, sizeof block)) > 0)
        sent += (size_t)n;
    CHECK_EQ(errno, EAGAIN);
    CHECK(sent >= 4096);
    CHECK(!(events(s[0]) & POLLOUT));
    size_t got = 0;
    while ((n = read(s[1], block, sizeof block)) > 0)
        got += (size_t)n;
    CHECK_EQ(got, sent);
    CHECK(events(s[0]) & POLLOUT);
    OK(fcntl(s[1], F_SETFL, 0));
    ERR(recv(s[1], &c, 1, MSG_DONTWAIT), EAGAIN);
}

TEST(large_stream_transfer) {
    couple(SOCK_STREAM);
    enum { SIZE = 3000000 };
    pid_t pid = FORK();
    if (pid == 0) {
        static char data[SIZE];
        for (size_t i = 0; i < SIZE; i++)
            data[i] = (char)(i % 241);
        for (size_t done = 0; done < SIZE;)
            done += (size_t)OK(write(s[0], data + done, SIZE - done));
        _exit(0);
    }
    OK(close(s[0]));
    size_t got = 0;
    static char block[9999];
    ssize_t n;
    while ((n = OK(read(s[1], block, sizeof block))) > 0)
        for (ssize_t i = 0; i < n; i++, got++)
            if (block[i] != (char)(got % 241))
                FAIL("byte %zu is wrong", got);
    CHECK_EQ(got, SIZE);
    EXITS(pid, 0);
}

TEST(peek_and_waitall) {
    couple(SOCK_STREAM);
    OK(write(s[0], "abc", 3));
    char text[8] = "";
    CHECK_EQ(OK(recv(s[1], text, 8, MSG_PEEK)), 3);
    CHECK_EQ(OK(recv(s[1], text, 2, 0)), 2);
    int n;
    OK(ioctl(s[1], FIONREAD, &n));
    CHECK_EQ(n, 1);
    pid_t pid = FORK();
    if (pid == 0) {
        msleep(20);
        OK(write(s[0], "defg", 4));
        _exit(0);
    }
    CHECK_EQ(OK(recv(s[1], text, 5, MSG_WAITALL)), 5);
    CHECK(!memcmp(text, "cdefg", 5));
    EXITS(pid, 0);
}

/* ---- datagrams and packets ------------------------------------------------------------------------- */

TEST(datagrams_keep_their_borders) {
    couple(SOCK_DGRAM);
    OK(send(s[0], "one", 3, 0));
    OK(send(s[0], "", 0, 0));
    OK(send(s[0], "three", 5, 0));
    char text[16];
    CHECK_EQ(OK(recv(s[1], text, 16, 0)), 3);
    CHECK_EQ(OK(recv(s[1], text, 16, 0)), 0);
    CHECK_EQ(OK(recv(s[1], text, 2, MSG_TRUNC)), 5); /* the real length */
    OK(send(s[0], "long one", 8, 0));
    struct iovec v = {text, 4};
    struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1};
    CHECK_EQ(OK(recvmsg(s[1], &m, 0)), 4);
    CHECK(m.msg_flags & MSG_TRUNC);
    ERR(recv(s[1], text, 16, MSG_DONTWAIT), EAGAIN); /* the rest is lost */
}

TEST(datagrams_by_name_with_sender) {
    struct sockaddr_un server = path_address("server"), client = path_address("client"), from;
    int a = OK(socket(AF_UNIX, SOCK_DGRAM, 0)), b = OK(socket(AF_UNIX, SOCK_DGRAM, 0));
    OK(bind(a, ADDR(server), sizeof server));
    OK(bind(b, ADDR(client), sizeof client));
    CHECK_EQ(OK(sendto(b, "question", 8, 0, ADDR(server), sizeof server)), 8);
    char text[16];
    socklen_t len = sizeof from;
    CHECK_EQ(OK(recvfrom(a, text, 16, 0, ADDR(from), &len)), 8);
    CHECK_STR(from.sun_path, "client");
    OK(sendto(a, "answer", 6, 0, ADDR(from), len));
    CHECK_EQ(OK(recv(b, text, 16, 0)), 6);
    ERR(send(b, "x", 1, 0), ENOTCONN);
    server = path_address("nobody");
    ERR(sendto(b, "x", 1, 0, ADDR(server), sizeof server), ENOENT);
    OK(close(a));
    server = path_address("server");
    ERR(sendto(b, "x", 1, 0, ADDR(server), sizeof server), ECONNREFUSED);
    static char huge[1 << 20];
    int c = OK(socket(AF_UNIX, SOCK_DGRAM, 0));
    ERR(sendto(b, huge, sizeof huge, 0, ADDR(client), sizeof client), EMSGSIZE);
    (void)c;
}

TEST(connected_datagram_takes_only_its_peer) {
    struct sockaddr_un a1 = path_address("a"), b1 = path_address("b");
    int a = OK(socket(AF_UNIX, SOCK_DGRAM, 0)), b = OK(socket(AF_UNIX, SOCK_DGRAM, 0)),
        c = OK(socket(AF_UNIX, SOCK_DGRAM, 0));
    OK(bind(a, ADDR(a1), sizeof a1));
    OK(bind(b, ADDR(b1), sizeof b1));
    OK(connect(a, ADDR(b1), sizeof b1));
    OK(connect(b, ADDR(a1), sizeof a1));
    OK(send(b, "x", 1, 0));
    ERR(sendto(c, "y", 1, 0, ADDR(a1), sizeof a1), EPERM); /* a is connected to another */
}

TEST(full_datagram_queue_is_eagain) {
    OK(socketpair(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0, s));
    int n = 0;
    while (n < 100000 && send(s[0], "d", 1, 0) == 1)
        n++;
    CHECK_EQ(errno, EAGAIN);
    CHECK(n >= 1 && n < 100000);
    char c;
    for (int i = 0; i < n; i++)
        CHECK_EQ(OK(recv(s[1], &c, 1, 0)), 1);
    OK(send(s[0], "d", 1, 0));
}

TEST(seqpacket_connects_and_keeps_borders) {
    struct sockaddr_un a = path_address("seq");
    int l = OK(socket(AF_UNIX, SOCK_SEQPACKET, 0));
    OK(bind(l, ADDR(a), sizeof a));
    OK(listen(l, 1));
    int c = dial("seq", SOCK_SEQPACKET);
    int p = OK(accept(l, NULL, NULL));
    OK(write(c, "first", 5));
    OK(write(c, "2nd", 3));
    char text[16];
    CHECK_EQ(OK(read(p, text, 16)), 5);
    CHECK_EQ(OK(read(p, text, 16)), 3);
    OK(close(c));
    CHECK_EQ(OK(read(p, text, 16)), 0);
    ERR(connect(OK(socket(AF_UNIX, SOCK_STREAM, 0)), ADDR(a), sizeof a), EPROTOTYPE);
}

/* unix_copy_addr(): connected kinds tell the sender's name, too. */
TEST(connected_sockets_tell_their_peers_name) {
    int kinds[] = {SOCK_STREAM, SOCK_SEQPACKET};
    for (int i = 0; i < 2; i++) {
        int s[2];
        OK(socketpair(AF_UNIX, kinds[i], 0, s));
        char text[16];
        struct sockaddr_un from;
        struct iovec v = {text, 1};
        struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1, .msg_name = &from};
        m.msg_namelen = sizeof from;
        OK(send(s[1], "a", 1, 0));
        CHECK_EQ(OK(recvmsg(s[0], &m, 0)), 1);
        CHECK_EQ(m.msg_namelen, 0); /* it has none */
        struct sockaddr_un own = path_address(i == 0 ? "stream" : "packet");
        OK(bind(s[1], ADDR(own), sizeof own));
        OK(send(s[1], "b", 1, 0));
        OK(send(s[1], "cd", 2, 0));
        OK(send(s[1], "e", 1, 0));
        OK(close(s[1]));
        for (int peek = 1; peek >= 0; peek--) {
            memset(&from, 'x', sizeof from);
            m.msg_namelen = sizeof from;
            CHECK_EQ(OK(recvmsg(s[0], &m, peek ? MSG_PEEK : 0)), 1);
            CHECK_EQ(from.sun_family, AF_UNIX);
            CHECK_STR(from.sun_path, own.sun_path);
            CHECK_EQ(m.msg_namelen, offsetof(struct sockaddr_un, sun_path) + 7);
        }
        socklen_t len = 4; /* cut to the room that is there */
        memset(&from, 'x', sizeof from);
        OK(recvfrom(s[0], text, 1, 0, ADDR(from), &len));
        CHECK_EQ(len, offsetof(struct sockaddr_un, sun_path) + 7);
        CHECK(memcmp(from.sun_path, own.sun_path, 2) == 0 && from.sun_path[2] == 'x');
        m.msg_namelen = sizeof from;
        while (recvmsg(s[0], &m, 0) > 0)
            CHECK_STR(from.sun_path, own.sun_path);
    }
}

static socklen_t name_length(int fd) {
    struct sockaddr_un own;
    socklen_t len = sizeof own;
    OK(getsockname(fd, ADDR(own), &len));
    CHECK(len == sizeof(sa_family_t) || (own.sun_path[0] == 0 && len == 8));
    return len;
}

/* unix_autobind() */
TEST(who_wants_credentials_gets_a_name) {
    struct sockaddr_un a = path_address("stream"), d = path_address("datagram"), from;
    int l = OK(socket(AF_UNIX, SOCK_STREAM, 0)), r = OK(socket(AF_UNIX, SOCK_DGRAM, 0)), on = 1;
    OK(bind(l, ADDR(a), sizeof a));
    OK(listen(l, 5));
    OK(bind(r, ADDR(d), sizeof d));
    for (int wants = 0; wants <= 1; wants++) {
        socklen_t expected = wants ? 8 : sizeof(sa_family_t), len = sizeof from;
        int s = OK(socket(AF_UNIX, SOCK_STREAM, 0));
        OK(setsockopt(s, SOL_SOCKET, SO_PASSCRED, &wants, sizeof wants));
        OK(connect(s, ADDR(a), sizeof a));
        CHECK_EQ(name_length(s), expected);
        OK(accept(l, ADDR(from), &len));
        CHECK_EQ(len, expected);

        s = OK(socket(AF_UNIX, SOCK_DGRAM, 0)); /* by connect(2) */
        OK(setsockopt(s, SOL_SOCKET, SO_PASSCRED, &wants, sizeof wants));
        CHECK_EQ(name_length(s), sizeof(sa_family_t));
        OK(connect(s, ADDR(d), sizeof d));
        CHECK_EQ(name_length(s), expected);

        s = OK(socket(AF_UNIX, SOCK_DGRAM, 0)); /* by an address */
        OK(setsockopt(s, SOL_SOCKET, SO_PASSCRED, &wants, sizeof wants));
        OK(sendto(s, "x", 1, 0, ADDR(d), sizeof d));
        CHECK_EQ(name_length(s), expected);

        int pair[2]; /* by its peer */
        OK(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair));
        OK(setsockopt(pair[0], SOL_SOCKET, SO_PASSCRED, &wants, sizeof wants));
        OK(send(pair[0], "x", 1, 0));
        CHECK_EQ(name_length(pair[0]), expected);
    }
    int s = OK(socket(AF_UNIX, SOCK_DGRAM, 0));
    OK(setsockopt(s, SOL_SOCKET, SO_PASSCRED, &on, sizeof on));
    struct sockaddr_un nobody = path_address("nobody"); /* a name even if nobody is there */
    ERR(sendto(s, "x", 1, 0, ADDR(nobody), sizeof nobody), ENOENT);
    CHECK_EQ(name_length(s), 8);
}

/* sockfs_xattr_get() */
TEST(an_attribute_tells_the_protocol_of_a_socket) {
    static const struct {
        int family, type;
        const char *name;
    } kinds[] = {
        {AF_UNIX, SOCK_STREAM, "UNIX-STREAM"}, {AF_UNIX, SOCK_DGRAM, "UNIX"},
        {AF_UNIX, SOCK_SEQPACKET, "UNIX"},     {AF_INET, SOCK_STREAM, "TCP"},
        {AF_INET, SOCK_DGRAM, "UDP"},          {AF_INET6, SOCK_STREAM, "TCPv6"},
        {AF_INET6, SOCK_DGRAM, "UDPv6"},       {AF_NETLINK, SOCK_RAW, "NETLINK"},
    };
    const char *attribute = "system.sockprotoname";
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        int fd = OK(socket(kinds[i].family, kinds[i].type, 0));
        char text[32], path[32];
        ssize_t length = (ssize_t)strlen(kinds[i].name) + 1;
        CHECK_EQ(OK(fgetxattr(fd, attribute, NULL, 0)), length);
        memset(text, 'x', sizeof text);
        CHECK_EQ(OK(fgetxattr(fd, attribute, text, sizeof text)), length);
        CHECK_STR(text, kinds[i].name);
        ERR(fgetxattr(fd, attribute, text, 3), ERANGE);
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        CHECK_EQ(OK(getxattr(path, attribute, text, sizeof text)), length);
        memset(text, 'x', sizeof text);
        OK(flistxattr(fd, text, sizeof text));
        CHECK_STR(text, attribute);
        ERR(fgetxattr(fd, "system.other", text, sizeof text), EOPNOTSUPP);
        ERR(fsetxattr(fd, attribute, "TCP", 4, 0), EOPNOTSUPP);
        OK(close(fd));
    }
}

TEST(sendmmsg_and_recvmmsg) {
    couple(SOCK_DGRAM);
    struct iovec v[3] = {{(char *)"a", 1}, {(char *)"bb", 2}, {(char *)"ccc", 3}};
    struct mmsghdr m[3] = {{.msg_hdr = {.msg_iov = &v[0], .msg_iovlen = 1}},
                           {.msg_hdr = {.msg_iov = &v[1], .msg_iovlen = 1}},
                           {.msg_hdr = {.msg_iov = &v[2], .msg_iovlen = 1}}};
    CHECK_EQ(OK(sendmmsg(s[0], m, 3, 0)), 3);
    CHECK_EQ(m[2].msg_len, 3);
    char text[3][8];
    for (int i = 0; i < 3; i++) {
        v[i] = (struct iovec){text[i], 8};
        m[i].msg_len = 0;
    }
    CHECK_EQ(OK(recvmmsg(s[1], m, 3, MSG_DONTWAIT, NULL)), 3);
    CHECK(m[0].msg_len == 1 && m[1].msg_len == 2 && m[2].msg_len == 3);
}

/* ---- ancillary data ---------------------------------------------------------------------------------- */

union control {
    char bytes[512];
    struct cmsghdr align;
};

static ssize_t send_fds(int to, const int *fds, size_t count) {
    union control c;
    memset(&c, 0, sizeof c);
    struct iovec v = {(char *)"!", 1};
    struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = &c, .msg_controllen = CMSG_SPACE(count * sizeof(int))};
    struct cmsghdr *h = CMSG_FIRSTHDR(&m);
    h->cmsg_level = SOL_SOCKET;
    h->cmsg_type = SCM_RIGHTS;
    h->cmsg_len = CMSG_LEN(count * sizeof(int));
    memcpy(CMSG_DATA(h), fds, count * sizeof(int));
    return sendmsg(to, &m, 0);
}
/* Receives a byte and up to `max` descriptors; how many came. */
static size_t receive_fds(int from, int *fds, size_t max, int flags, int *out_flags) {
    union control c;
    char byte;
    struct iovec v = {&byte, 1};
    struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = &c, .msg_controllen = CMSG_SPACE(max * sizeof(int))};
    if (max == 0)
        m.msg_control = NULL, m.msg_controllen = 0;
    CHECK_EQ(OK(recvmsg(from, &m, flags)), 1);
    if (out_flags)
        *out_flags = m.msg_flags;
    struct cmsghdr *h = CMSG_FIRSTHDR(&m);
    if (!h)
        return 0;
    CHECK(h->cmsg_level == SOL_SOCKET && h->cmsg_type == SCM_RIGHTS);
    size_t n = (h->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    memcpy(fds, CMSG_DATA(h), n * sizeof(int));
    return n;
}

TEST(descriptors_are_passed) {
    couple(SOCK_STREAM);
    PUT("f", "passed on");
    int fds[2] = {OK(open("f", O_RDONLY)), OK(open("/dev/null", O_WRONLY))}, got[2];
    OK(lseek(fds[0], 7, SEEK_SET));
    CHECK_EQ(OK(send_fds(s[0], fds, 2)), 1);
    OK(close(fds[0])); /* it is on its way */
    OK(unlink("f"));
    CHECK_EQ(receive_fds(s[1], got, 2, 0, NULL), 2);
    char text[8] = "";
    CHECK_EQ(OK(read(got[0], text, 8)), 2); /* the open file itself, with its position */
    CHECK_STR(text, "on");
    CHECK_EQ(OK(fcntl(got[0], F_GETFD)), 0);
    int more[1] = {got[0]};
    OK(send_fds(s[0], more, 1));
    CHECK_EQ(receive_fds(s[1], got, 1, MSG_CMSG_CLOEXEC, NULL), 1);
    CHECK_EQ(OK(fcntl(got[0], F_GETFD)), FD_CLOEXEC);
}

TEST(descriptor_passing_over_processes) {
    couple(SOCK_STREAM);
    int p[2];
    OK(pipe(p));
    pid_t pid = FORK();
    if (pid == 0) {
        close(p[0]);
        close(p[1]);
        int got[1];
        CHECK_EQ(receive_fds(s[1], got, 1, 0, NULL), 1);
        OK(write(got[0], "through", 7));
        _exit(0);
    }
    OK(send_fds(s[0], &p[1], 1));
    OK(close(p[1]));
    char text[16];
    CHECK_EQ(OK(read(p[0], text, 16)), 7);
    EXITS(pid, 0);
    CHECK_EQ(OK(read(p[0], text, 16)), 0); /* no copy is left anywhere */
}

TEST(too_small_control_buffer_truncates) {
    couple(SOCK_STREAM);
    int fds[3] = {0, 1, 2}, got[4], flags;
    int next = OK(dup(0));
    OK(close(next));
    OK(send_fds(s[0], fds, 3));
    CHECK_EQ(receive_fds(s[1], got, 0, 0, &flags), 0);
    CHECK(flags & MSG_CTRUNC);
    CHECK_EQ(OK(dup(0)), next); /* the ones not taken are closed */
    OK(close(next));
}

TEST(descriptor_passing_errors) {
    couple(SOCK_STREAM);
    int bad[1] = {999};
    ERR(send_fds(s[0], bad, 1), EBADF);
    union control c;
    memset(&c, 0, sizeof c);
    struct iovec v = {(char *)"!", 1};
    struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = &c, .msg_controllen = CMSG_SPACE(4)};
    struct cmsghdr *h = CMSG_FIRSTHDR(&m);
    h->cmsg_level = SOL_SOCKET, h->cmsg_type = SCM_RIGHTS, h->cmsg_len = 3;
    ERR(sendmsg(s[0], &m, 0), EINVAL); /* shorter than its header */
    h->cmsg_len = CMSG_LEN(4), h->cmsg_type = 77;
    ERR(sendmsg(s[0], &m, 0), EINVAL);
    m.msg_control = BAD;
    ERR(syscall(SYS_sendmsg, s[0], &m, 0), EFAULT); /* musl would copy it */
    ERR(syscall(SYS_sendmsg, s[0], BAD, 0), EFAULT);
    ERR(syscall(SYS_recvmsg, s[0], BAD, 0), EFAULT);
    char byte;
    ERR(recv(s[1], &byte, 1, MSG_DONTWAIT), EAGAIN); /* nothing of all that arrived */
}

/* Sends descriptors; a sender of many waits until those out of reach are collected. */
static void send_in_time(int to, const int *fds, int count) {
    for (int left = 5000; send_fds(to, fds, count) == -1; left--) {
        if (errno != ETOOMANYREFS || left == 0)
            FAIL("descriptors cannot be sent: %s", strerror(errno));
        msleep(1);
    }
}

/* A socket with both ends in its own queue (net/unix/garbage.c). */
static void lose_a_cycle(void) {
    couple(SOCK_STREAM);
    send_in_time(s[0], s, 2);
    OK(close(s[0]));
    OK(close(s[1]));
}

TEST(socket_in_its_own_queue_is_collected) {
    /* More than any system lets be in flight. */
    for (int i = 0; i < 20000; i++)
        lose_a_cycle();
}

TEST(sockets_in_flight_that_can_be_received_are_kept) {
    int keep[2], inner[2], deep[2], got[4], flags;
    OK(socketpair(AF_UNIX, SOCK_STREAM, 0, keep));
    OK(socketpair(AF_UNIX, SOCK_STREAM, 0, inner));
    OK(socketpair(AF_UNIX, SOCK_DGRAM, 0, deep));
    /* A circle of inner and deep, which keep leads to. */
    OK(write(deep[0], "deep", 4));
    send_in_time(inner[0], &deep[1], 1);
    send_in_time(inner[0], inner, 2);
    send_in_time(keep[0], &inner[1], 1);
    OK(close(deep[1]));
    OK(close(inner[0]));
    OK(close(inner[1]));
    for (int i = 0; i < 500; i++)
        lose_a_cycle();
    CHECK_EQ(receive_fds(keep[1], got, 4, 0, &flags), 1);
    int inside = got[0];
    CHECK_EQ(receive_fds(inside, got, 4, 0, &flags), 1);
    char text[8];
    CHECK_EQ(OK(read(got[0], text, sizeof text)), 4);
    CHECK(memcmp(text, "deep", 4) == 0);
    CHECK_EQ(receive_fds(inside, got, 4, 0, &flags), 2);
    OK(write(got[0], "on", 2));
    CHECK_EQ(OK(read(got[1], text, sizeof text)), 2);
}

/* Sends one end of a pair over the other pair, receives it, and uses it. */
static void *pass_on(void *arg) {
    int way[2], pair[2], got[4], flags;
    for (int i = 0; i < *(int *)arg; i++) {
        OK(socketpair(AF_UNIX, SOCK_STREAM, 0, way));
        OK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
        send_in_time(way[0], &pair[1], 1);
        send_in_time(pair[0], &way[1], 1);
        OK(close(pair[1]));
        CHECK_EQ(receive_fds(way[1], got, 4, 0, &flags), 1);
        pair[1] = got[0];
        OK(close(way[1]));
        CHECK_EQ(receive_fds(pair[1], got, 4, 0, &flags), 1);
        way[1] = got[0];
        char byte = 0;
        OK(write(way[0], "w", 1));
        CHECK_EQ(OK(read(way[1], &byte, 1)), 1);
        CHECK_EQ(byte, 'w');
        for (int k = 0; k < 2; k++) {
            OK(close(way[k]));
            OK(close(pair[k]));
        }
    }
    return NULL;
}

TEST(sockets_pass_on_while_others_are_collected) {
    int rounds = 1000;
    pthread_t threads[3];
    for (int i = 0; i < 3; i++)
        ZERO(pthread_create(&threads[i], NULL, pass_on, &rounds));
    for (int i = 0; i < 3000; i++)
        lose_a_cycle();
    for (int i = 0; i < 3; i++)
        ZERO(pthread_join(threads[i], NULL));
}

TEST(peer_of_a_collected_socket_sees_the_end) {
    int lost[2];
    OK(socketpair(AF_UNIX, SOCK_STREAM, 0, lost));
    couple(SOCK_STREAM);
    int all[3] = {s[0], s[1], lost[1]};
    send_in_time(s[0], all, 3);
    for (int i = 0; i < 3; i++)
        OK(close(all[i]));
    struct pollfd p = {.fd = lost[0], .events = POLLIN};
    /* Linux leaves it to a worker (__unix_gc in net/unix/garbage.c, 6.18), which on a busy machine
     * may not have come to it for a long time; then nothing is told of it. */
    int64_t end = now_ns(CLOCK_MONOTONIC) + 15000000000;
    for (int i = 0; poll(&p, 1, i < 5000 ? 0 : 10) == 0; i++) {
        lose_a_cycle();
        if (now_ns(CLOCK_MONOTONIC) > end) {
            CHECK(access("/proc/hayate", F_OK) == -1);
            SKIP("this system has not collected it for 15 seconds");
        }
    }
    char byte;
    CHECK_EQ(OK(read(lost[0], &byte, 1)), 0);
}

TEST(thousands_of_sockets_in_each_others_queues_go) {
    int last = -1, depth = 0;
    for (; depth < 5000; depth++) {
        couple(SOCK_STREAM);
        if (last >= 0 && send_fds(s[0], &last, 1) == -1) {
            /* Some systems let them be nested only so deep. */
            CHECK_EQ(errno, ETOOMANYREFS);
            break;
        }
        if (last >= 0)
            OK(close(last));
        OK(close(s[0]));
        last = s[1];
    }
    CHECK(depth > 3);
    OK(close(last));
}

/* A socket in whose queue are others, and so on, and files behind each of them. */
TEST(sockets_with_much_in_their_queues_go) {
    int last = -1, depth = 0;
    for (; depth < 1000; depth++) {
        couple(SOCK_STREAM);
        for (int i = 0; last >= 0 && i < 8; i++)
            if (send_fds(s[0], i == 0 ? &last : &s[0], 1) == -1) {
                /* Some systems let them be nested only so deep. */
                CHECK_EQ(errno, ETOOMANYREFS);
                CHECK(depth > 3);
                return;
            }
        if (last >= 0)
            OK(close(last));
        OK(close(s[0]));
        last = s[1];
    }
    OK(close(last));
}

/* unix(7): ETOOMANYREFS. Only the user's own descriptors count (too_many_unix_fds). */
TEST(descriptors_in_flight_have_a_limit_for_each_user) {
    if (geteuid() != 0)
        SKIP("needs root");
    int user = FORK();
    if (user == 0) {
        struct rlimit few = {64, 64};
        OK(setrlimit(RLIMIT_NOFILE, &few));
        BECOME(54321, 54321);
        couple(SOCK_DGRAM);
        int other[2], sent = 0;
        OK(pipe(other));
        while (sent < 100 && send_fds(s[0], other, 1) != -1)
            sent++;
        CHECK_EQ(errno, ETOOMANYREFS);
        CHECK_EQ(sent, 65);
        char byte;
        OK(read(s[1], &byte, 1)); /* closes what came with it */
        OK(send_fds(s[0], other, 1));
        ERR(send_fds(s[0], other, 1), ETOOMANYREFS);
        exit(0);
    }
    EXITS(user, 0);
    /* Who has the right to is not hindered. */
    struct rlimit few = {64, 4096};
    OK(setrlimit(RLIMIT_NOFILE, &few));
    couple(SOCK_DGRAM);
    int other[2];
    OK(pipe(other));
    for (int i = 0; i < 100; i++)
        OK(send_fds(s[0], other, 1));
}

TEST(credentials_are_passed_and_checked) {
    couple(SOCK_STREAM);
    int on = 1;
    OK(setsockopt(s[1], SOL_SOCKET, SO_PASSCRED, &on, sizeof on));
    OK(write(s[0], "!", 1));
    union control c;
    char byte;
    struct iovec v = {&byte, 1};
    struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = &c, .msg_controllen = sizeof c};
    OK(recvmsg(s[1], &m, 0));
    struct cmsghdr *h = CMSG_FIRSTHDR(&m);
    CHECK(h != NULL);
    CHECK_EQ(h->cmsg_type, SCM_CREDENTIALS);
    struct ucred u;
    memcpy(&u, CMSG_DATA(h), sizeof u);
    CHECK_EQ(u.pid, getpid());
    CHECK(u.uid == getuid() && u.gid == getgid());
    IN_CHILD({
        BECOME(1000, 1000);
        memset(&c, 0, sizeof c);
        m = (struct msghdr){.msg_iov = &v, .msg_iovlen = 1, .msg_control = &c, .msg_controllen = CMSG_SPACE(sizeof u)};
        h = CMSG_FIRSTHDR(&m);
        h->cmsg_level = SOL_SOCKET, h->cmsg_type = SCM_CREDENTIALS, h->cmsg_len = CMSG_LEN(sizeof u);
        u = (struct ucred){getpid(), 0, 0};
        memcpy(CMSG_DATA(h), &u, sizeof u);
        ERR(sendmsg(s[0], &m, 0), EPERM); /* a lie */
        u = (struct ucred){getpid(), 1000, 1000};
        memcpy(CMSG_DATA(h), &u, sizeof u);
        OK(sendmsg(s[0], &m, 0));
    });
}

TEST(peer_credentials_are_those_of_the_connect) {
    int l = listener("sock", 5);
    OK(chmod("sock", 0777));
    GATE(go);
    pid_t pid = FORK();
    if (pid == 0) {
        BECOME(1000, 2000);
        int c = dial("sock", SOCK_STREAM);
        (void)c;
        gate_pass(&go);
        _exit(0);
    }
    int a = OK(accept(l, NULL, NULL));
    struct ucred u;
    socklen_t len = sizeof u;
    OK(getsockopt(a, SOL_SOCKET, SO_PEERCRED, &u, &len));
    CHECK_EQ(u.pid, pid);
    CHECK(u.uid == 1000 && u.gid == 2000);
    gate_open(&go);
    EXITS(pid, 0);
}

TEST(socket_options) {
    couple(SOCK_STREAM);
    int v = -1;
    socklen_t len = sizeof v;
    OK(getsockopt(s[0], SOL_SOCKET, SO_TYPE, &v, &len));
    CHECK_EQ(v, SOCK_STREAM);
    OK(getsockopt(s[0], SOL_SOCKET, SO_DOMAIN, &v, &len));
    CHECK_EQ(v, AF_UNIX);
    OK(getsockopt(s[0], SOL_SOCKET, SO_ERROR, &v, &len));
    CHECK_EQ(v, 0);
    OK(getsockopt(s[0], SOL_SOCKET, SO_ACCEPTCONN, &v, &len));
    CHECK_EQ(v, 0);
    OK(getsockopt(listener("l", 1), SOL_SOCKET, SO_ACCEPTCONN, &v, &len));
    CHECK_EQ(v, 1);
    struct timeval t = {0, 30000};
    OK(setsockopt(s[0], SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t));
    char c;
    int64_t from = now_ns(CLOCK_MONOTONIC);
    ERR(recv(s[0], &c, 1, 0), EAGAIN);
    CHECK(now_ns(CLOCK_MONOTONIC) - from >= 25 * MS);
    ERR(getsockopt(s[0], SOL_SOCKET, 9999, &v, &len), ENOPROTOOPT);
    ERR(setsockopt(s[0], SOL_SOCKET, 9999, &v, sizeof v), ENOPROTOOPT);
    ERR(setsockopt(s[0], SOL_SOCKET, SO_PASSCRED, &v, 1), EINVAL);
    ERR(setsockopt(s[0], SOL_SOCKET, SO_PASSCRED, BAD, sizeof v), EFAULT);
}

static int option(int fd, int name) {
    int v = -1;
    socklen_t len = sizeof v;
    OK(getsockopt(fd, SOL_SOCKET, name, &v, &len));
    CHECK_EQ(len, sizeof v);
    return v;
}
static void set_option(int fd, int name, int v) { OK(setsockopt(fd, SOL_SOCKET, name, &v, sizeof v)); }

TEST(options_are_remembered) {
    couple(SOCK_STREAM);
    static const int names[] = {SO_REUSEADDR, SO_KEEPALIVE, SO_BROADCAST, SO_PASSSEC};
    for (int i = 0; i < 4; i++) {
        CHECK_EQ(option(s[0], names[i]), 0);
        set_option(s[0], names[i], 77);
        CHECK_EQ(option(s[0], names[i]), 1);
        CHECK_EQ(option(s[1], names[i]), 0);
        for (int k = 0; k < 4; k++)
            CHECK_EQ(option(s[0], names[k]), k <= i);
        ERR(setsockopt(s[0], SOL_SOCKET, names[i], &i, 3), EINVAL);
        ERR(setsockopt(s[0], SOL_SOCKET, names[i], BAD, sizeof i), EFAULT);
    }
    int copy = OK(dup(s[0]));
    set_option(copy, SO_KEEPALIVE, 0);
    CHECK_EQ(option(s[0], SO_KEEPALIVE), 0);
    CHECK_EQ(option(s[0], SO_BROADCAST), 1);
}

TEST(buffer_sizes_are_doubled_and_limited) {
    couple(SOCK_STREAM);
    static const struct {
        int name;
        const char *most;
        int least;
    } which[] = {{SO_SNDBUF, "/proc/sys/net/core/wmem_max", 4608}, {SO_RCVBUF, "/proc/sys/net/core/rmem_max", 2304}};
    for (int i = 0; i < 2; i++) {
        char text[32] = "";
        CHECK(get_file(which[i].most, text, sizeof text - 1) > 0);
        int most = atoi(text), name = which[i].name;
        set_option(s[0], name, 10000);
        CHECK_EQ(option(s[0], name), 20000);
        set_option(s[0], name, 0);
        CHECK_EQ(option(s[0], name), which[i].least);
        set_option(s[0], name, most);
        CHECK_EQ(option(s[0], name), 2 * most);
        set_option(s[0], name, most + 1);
        CHECK_EQ(option(s[0], name), 2 * most);
        set_option(s[0], name, -1);
        CHECK_EQ(option(s[0], name), 2 * most);
        ERR(setsockopt(s[0], SOL_SOCKET, name, &most, 2), EINVAL);
    }
    CHECK(option(s[1], SO_SNDBUF) != option(s[0], SO_SNDBUF) || option(s[1], SO_RCVBUF) != option(s[0], SO_RCVBUF));
}

/* How many bytes fit in messages of `size`. */
static size_t capacity(int fd, size_t size) {
    static char block[100000];
    size_t sent = 0;
    ssize_t n;
    while (sent < 100000000 && (n = send(fd, block, size, MSG_DONTWAIT)) > 0)
        sent += (size_t)n;
    CHECK_EQ(errno, EAGAIN);
    return sent;
}
static void drain(int fd) {
    static char block[100000];
    while (recv(fd, block, sizeof block, MSG_DONTWAIT) > 0)
        ;
    CHECK_EQ(errno, EAGAIN);
}

TEST(send_buffer_limits_what_is_queued) {
    static const int kinds[] = {SOCK_STREAM, SOCK_DGRAM, SOCK_SEQPACKET};
    for (int i = 0; i < 3; i++) {
        couple(kinds[i]);
        set_option(s[0], SO_SNDBUF, 8000);
        size_t small = capacity(s[0], 1000);
        /* Bytes and a share for each message; the last may go beyond. */
        CHECK(small >= 3000 && small <= 17000);
        CHECK(!(events(s[0]) & POLLOUT));
        CHECK(events(s[1]) & POLLOUT); /* the other direction is free */
        drain(s[1]);
        CHECK(events(s[0]) & POLLOUT);
        size_t tiny = capacity(s[0], 1);
        CHECK(tiny >= 8 && tiny < 100); /* bookkeeping counts */
        drain(s[1]);
        set_option(s[0], SO_SNDBUF, 50000);
        size_t large = capacity(s[0], 1000);
        CHECK(large >= 3 * small);
        drain(s[1]);
        /* The receiver's buffer is not what matters (socket(7)). */
        set_option(s[1], SO_RCVBUF, 1);
        CHECK_EQ(capacity(s[0], 1000), large);
        close(s[0]), close(s[1]);
    }
}

TEST(datagram_must_fit_in_the_send_buffer) {
    static const int kinds[] = {SOCK_DGRAM, SOCK_SEQPACKET};
    static char block[9000];
    for (int i = 0; i < 2; i++) {
        couple(kinds[i]);
        set_option(s[0], SO_SNDBUF, 4000);
        CHECK_EQ(OK(send(s[0], block, 8000 - 32, 0)), 8000 - 32);
        drain(s[1]);
        ERR(send(s[0], block, 8000 - 31, 0), EMSGSIZE);
        CHECK_EQ(OK(send(s[1], block, sizeof block, 0)), sizeof block);
        close(s[0]), close(s[1]);
    }
}

TEST(writer_with_a_small_buffer_waits_for_its_reader) {
    couple(SOCK_STREAM);
    set_option(s[0], SO_SNDBUF, 0);
    pid_t pid = FORK();
    if (pid == 0) {
        OK(close(s[1]));
        static char data[200000];
        for (size_t i = 0; i < sizeof data; i++)
            data[i] = (char)(i % 239);
        CHECK_EQ(OK(write(s[0], data, sizeof data)), sizeof data);
        _exit(0);
    }
    OK(close(s[0]));
    char block[777];
    size_t got = 0;
    ssize_t n;
    while ((n = OK(read(s[1], block, sizeof block))) > 0)
        for (ssize_t i = 0; i < n; i++, got++)
            CHECK(block[i] == (char)(got % 239));
    CHECK_EQ(got, 200000);
    EXITS(pid, 0);
}

TEST(others_fill_a_datagram_queue_by_number) {
    struct sockaddr_un a;
    socklen_t n = abstract_address(&a, "queue");
    int receiver = OK(socket(AF_UNIX, SOCK_DGRAM, 0)), sent = 0;
    OK(bind(receiver, ADDR(a), n));
    int first = OK(socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0));
    int second = OK(socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0));
    OK(connect(second, ADDR(a), n));
    char text[32] = "", c;
    CHECK(get_file("/proc/sys/net/unix/max_dgram_qlen", text, sizeof text - 1) > 0);
    while (sent < 10000 && sendto(first, "x", 1, 0, ADDR(a), n) == 1)
        sent++;
    CHECK_EQ(errno, EAGAIN);
    CHECK_EQ(sent, atoi(text) + 1);
    ERR(send(second, "y", 1, 0), EAGAIN);
    CHECK(!(events(second) & POLLOUT));
    OK(recv(receiver, &c, 1, 0));
    CHECK(events(second) & POLLOUT);
    OK(send(second, "y", 1, 0));
}

TEST(poll_states_of_a_stream) {
    couple(SOCK_STREAM);
    CHECK_EQ(events(s[0]), POLLOUT);
    OK(write(s[1], "x", 1));
    CHECK_EQ(events(s[0]), POLLIN | POLLOUT);
    OK(close(s[1]));
    CHECK_EQ(events(s[0]), POLLIN | POLLOUT | POLLHUP | POLLRDHUP);
    int l = listener("sock", 1);
    CHECK_EQ(events(l), 0);
}

TEST(renamed_socket_stays_reachable) {
    int l = listener("old", 2);
    OK(rename("old", "new"));
    dial("new", SOCK_STREAM);
    OK(accept(l, NULL, NULL));
    OK(unlink("new"));
    struct sockaddr_un a = path_address("new");
    ERR(connect(OK(socket(AF_UNIX, SOCK_STREAM, 0)), ADDR(a), sizeof a), ENOENT);
}

TEST(echo_server_with_twenty_clients) {
    int l = listener("sock", 20);
    pid_t server = FORK();
    if (server == 0) {
        for (int i = 0; i < 20; i++) {
            int a = OK(accept(l, NULL, NULL));
            if (FORK() == 0) {
                char block[256];
                ssize_t n;
                while ((n = read(a, block, sizeof block)) > 0)
                    OK(write(a, block, (size_t)n));
                _exit(0);
            }
            OK(close(a));
        }
        for (int i = 0; i < 20; i++)
            OK(wait(NULL));
        _exit(0);
    }
    pid_t pids[20];
    for (int i = 0; i < 20; i++)
        if ((pids[i] = FORK()) == 0) {
            int c = dial("sock", SOCK_STREAM);
            for (int k = 0; k < 30; k++) {
                char text[64], back[64];
                size_t n = (size_t)snprintf(text, sizeof text, "client %d line %d", i, k), got = 0;
                OK(write(c, text, n));
                while (got < n)
                    got += (size_t)OK(read(c, back + got, n - got));
                CHECK(!memcmp(text, back, n));
            }
            _exit(0);
        }
    for (int i = 0; i < 20; i++)
        EXITS(pids[i], 0);
    EXITS(server, 0);
}

/* ---- SO_PEEK_OFF (socket(7)) -------------------------------------------------------------------- */

#ifndef SO_PEEK_OFF
#define SO_PEEK_OFF 42
#endif

static void set_peek_offset(int value) {
    OK(setsockopt(s[1], SOL_SOCKET, SO_PEEK_OFF, &value, sizeof value));
}
static int peek_offset(void) {
    int value = 77;
    socklen_t length = sizeof value;
    OK(getsockopt(s[1], SOL_SOCKET, SO_PEEK_OFF, &value, &length));
    CHECK_EQ(length, sizeof value);
    return value;
}
/* A receive gives `text`, and then the offset is `offset`. */
#define GIVES(room, flags, text, offset)                                                           \
    do {                                                                                           \
        char got[64];                                                                              \
        CHECK_EQ(OK(recv(s[1], got, room, (flags) | MSG_DONTWAIT)), (ssize_t)strlen(text));        \
        CHECK(!memcmp(got, text, strlen(text)));                                                   \
        CHECK_EQ(peek_offset(), offset);                                                           \
    } while (0)

TEST(stream_is_peeked_at_an_offset) {
    couple(SOCK_STREAM);
    CHECK_EQ(peek_offset(), -1);
    CHECK_EQ(OK(send(s[0], "abcd", 4, 0)), 4);
    CHECK_EQ(OK(send(s[0], "efgh", 4, 0)), 4);
    set_peek_offset(1);
    GIVES(2, MSG_PEEK, "bc", 3);
    GIVES(3, MSG_PEEK, "def", 6);
    GIVES(1, 0, "a", 5);
    GIVES(64, MSG_PEEK, "gh", 7);
    ERR(recv(s[1], &(char){0}, 1, MSG_PEEK | MSG_DONTWAIT), EAGAIN);
    GIVES(64, 0, "bcdefgh", 0);
    CHECK_EQ(OK(send(s[0], "ij", 2, 0)), 2);
    GIVES(64, MSG_PEEK, "ij", 2);
    set_peek_offset(-1);
    GIVES(64, MSG_PEEK, "ij", -1);
    GIVES(64, 0, "ij", -1);
}

static void messages_are_peeked(int type) {
    couple(type);
    CHECK_EQ(OK(send(s[0], "abcdef", 6, 0)), 6);
    CHECK_EQ(OK(send(s[0], "", 0, 0)), 0);
    CHECK_EQ(OK(send(s[0], "ghi", 3, 0)), 3);
    set_peek_offset(2);
    GIVES(64, MSG_PEEK, "cdef", 6);
    GIVES(64, MSG_PEEK, "", 6);
    GIVES(2, MSG_PEEK, "gh", 8);
    CHECK_EQ(OK(recv(s[1], &(char){0}, 1, MSG_PEEK | MSG_TRUNC)), 1);
    ERR(recv(s[1], &(char){0}, 1, MSG_PEEK | MSG_DONTWAIT), EAGAIN);
    GIVES(3, 0, "abc", 3); /* all of it is gone */
    GIVES(64, 0, "", 3);
    GIVES(64, 0, "ghi", 0);
    set_peek_offset(1);
    CHECK_EQ(OK(send(s[0], "jklm", 4, 0)), 4);
    CHECK_EQ(OK(recv(s[1], &(char){0}, 1, MSG_PEEK | MSG_TRUNC)), 3);
    CHECK_EQ(peek_offset(), 2);
}

TEST(datagrams_are_peeked_at_an_offset) { messages_are_peeked(SOCK_DGRAM); }
TEST(packets_are_peeked_at_an_offset) { messages_are_peeked(SOCK_SEQPACKET); }

TEST(descriptors_come_with_a_peek_at_an_offset) {
    couple(SOCK_STREAM);
    union { struct cmsghdr h; char room[CMSG_SPACE(sizeof(int))]; } c = {0};
    char text[] = "abcd";
    struct iovec v = {text, 4};
    struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = &c,
                       .msg_controllen = sizeof c};
    c.h = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET,
                           .cmsg_type = SCM_RIGHTS};
    memcpy(CMSG_DATA(&c.h), &s[0], sizeof(int));
    CHECK_EQ(OK(sendmsg(s[0], &m, 0)), 4);
    set_peek_offset(1);
    memset(&c, 0, sizeof c);
    CHECK_EQ(OK(recvmsg(s[1], &m, MSG_PEEK)), 3);
    CHECK_EQ(m.msg_controllen, CMSG_SPACE(sizeof(int)));
    CHECK_EQ(c.h.cmsg_type, SCM_RIGHTS);
}
