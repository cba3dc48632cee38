/*
 * Filters in classic BPF on TCP sockets, and times at which data came: socket(7),
 * Documentation/networking/filter.rst and timestamping.rst. A segment that a filter drops is as
 * good as lost: the peer sends it again. Filters of datagrams are in packet.c.
 */
#define AREA "tcpfilter"
#include "net.h"
#include <netinet/tcp.h>

#define SO_TIMESTAMPNS_ 35
#define SO_TIMESTAMPING_ 37
#define RX_SOFTWARE 8
#define SOFTWARE 16
#define SIOCOUTQ_ 0x5411
#define SIOCGSTAMP_ 0x8906
#define SIOCGSTAMPNS_ 0x8907

#define LOAD_LENGTH 0x80
#define JUMP_GREATER 0x25
#define NETWORK 0xfff00000u /* SKF_NET_OFF */

static int attach(int s, struct instruction *code, int length) {
    struct program p = {(uint16_t)length, code};
    return setsockopt(s, SOL_SOCKET, SO_ATTACH_FILTER_, &p, sizeof p);
}
static int detach(int s) { return set_option(s, SOL_SOCKET, SO_DETACH_FILTER_, 0); }
/* A filter that takes so many bytes of every segment. */
static int attach_length(int s, uint32_t length) {
    struct instruction code = {RETURN, 0, 0, length};
    return attach(s, &code, 1);
}
static int unacknowledged(int s) {
    int count = -1;
    OK(ioctl(s, SIOCOUTQ_, &count));
    return count;
}
/* A filter that takes segments of up to `most` bytes, header included, and no others. */
static int attach_short(int s, uint32_t most) {
    struct instruction code[] = {
        {LOAD_LENGTH, 0, 0, 0},
        {JUMP_GREATER, 1, 0, most},
        {RETURN, 0, 0, 0xffff},
        {RETURN, 0, 0, 0},
    };
    return attach(s, code, 4);
}

/* ---- filters --------------------------------------------------------------------------------- */

static char got[256];

TEST(a_filter_sees_a_segment_from_its_header_on) {
    int ends[2];
    tcp_pair(AF_INET, ends);
    struct instruction code[] = {
        {LOAD_HALF, 0, 0, 0}, /* the ports */
        {JUMP_EQUAL, 0, 6, (uint32_t)port_of(ends[0])},
        {LOAD_HALF, 0, 0, 2},
        {JUMP_EQUAL, 0, 4, (uint32_t)port_of(ends[1])},
        {LOAD_BYTE, 0, 0, NETWORK + 9}, /* the protocol, in the header of IPv4 */
        {JUMP_EQUAL, 0, 2, IPPROTO_TCP},
        {RETURN, 0, 0, 0x40000},
        {RETURN, 0, 0, 0},
        {RETURN, 0, 0, 0},
    };
    OK(attach(ends[1], code, 9));
    send_all(ends[0], "wanted", 6);
    recv_all(ends[1], got, 6);
    CHECK(memcmp(got, "wanted", 6) == 0);
    code[3].k ^= 1; /* another port: of nobody */
    OK(attach(ends[1], code, 9));
    send_all(ends[0], "later", 5);
    CHECK_EQ(events_of(ends[1], POLLIN, 150), 0);
    CHECK_EQ(unacknowledged(ends[0]), 5);
    /* The peer sends it again. */
    OK(detach(ends[1]));
    CHECK(AWAIT(ends[1], POLLIN) & POLLIN);
    recv_all(ends[1], got, 5);
    CHECK(memcmp(got, "later", 5) == 0);
    EVENTUALLY(unacknowledged(ends[0]) == 0);
}

TEST(a_filter_of_a_connection_of_ipv6) {
    NEEDS_IPV6();
    int ends[2];
    tcp_pair(AF_INET6, ends);
    struct instruction code[] = {
        {LOAD_HALF, 0, 0, 2},
        {JUMP_EQUAL, 0, 3, (uint32_t)port_of(ends[1])},
        {LOAD_BYTE, 0, 0, NETWORK + 6}, /* the protocol */
        {JUMP_EQUAL, 0, 1, IPPROTO_TCP},
        {RETURN, 0, 0, 0x40000},
        {RETURN, 0, 0, 0},
    };
    OK(attach(ends[1], code, 6));
    send_all(ends[0], "six", 3);
    recv_all(ends[1], got, 3);
    OK(attach_length(ends[1], 0));
    send_all(ends[0], "all", 3);
    CHECK_EQ(events_of(ends[1], POLLIN, 100), 0);
    OK(detach(ends[1]));
    recv_all(ends[1], got, 3);
}

TEST(a_filter_drops_an_end_too) {
    int ends[2];
    tcp_pair(AF_INET, ends);
    OK(attach_length(ends[1], 0));
    OK(shutdown(ends[0], SHUT_WR));
    CHECK_EQ(events_of(ends[1], POLLIN | POLLRDHUP, 100), 0);
    OK(detach(ends[1]));
    CHECK_EQ(OK(recv(ends[1], got, 1, 0)), 0);
}

/* What is cut off is sent again: only what was taken is acknowledged. */
TEST(a_filter_cuts_segments) {
    int ends[2];
    tcp_pair(AF_INET, ends);
    struct tcp_info info;
    socklen_t size = sizeof info;
    OK(getsockopt(ends[1], IPPROTO_TCP, TCP_INFO, &info, &size));
    uint32_t header = info.tcpi_options & 1 /* timestamps */ ? 32 : 20;
    OK(attach_length(ends[1], header + 3));
    send_all(ends[0], "abcdef", 6);
    recv_all(ends[1], got, 3);
    CHECK(memcmp(got, "abc", 3) == 0);
    /* The next three come the same way when they are sent again. */
    recv_all(ends[1], got, 3);
    CHECK(memcmp(got, "def", 3) == 0);
    EVENTUALLY(unacknowledged(ends[0]) == 0);
    /* The header stays whole, so that acknowledgements arrive. */
    OK(attach_length(ends[1], 1));
    send_all(ends[1], "answer", 6);
    recv_all(ends[0], got, 6);
    EVENTUALLY(unacknowledged(ends[1]) == 0);
    send_all(ends[0], "x", 1);
    CHECK_EQ(events_of(ends[1], POLLIN, 100), 0);
    OK(detach(ends[1]));
    recv_all(ends[1], got, 1);
}

TEST(a_filter_of_a_listener_chooses_connections) {
    int l = listener(AF_INET, 4), s = OK(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0));
    OK(attach_length(l, 0));
    ERR(connect(s, LO4(port_of(l))), EINPROGRESS);
    CHECK_EQ(events_of(s, POLLOUT, 150), 0); /* it is not refused: nobody answers */
    OK(detach(l));
    CHECK_EQ(AWAIT(s, POLLOUT), POLLOUT); /* the SYN again, a second later */
    CHECK_EQ(OPTION(s, SOL_SOCKET, SO_ERROR), 0);
    int a = OK(accept(l, NULL, NULL));
    send_all(s, "hi", 2);
    recv_all(a, got, 2);
}

TEST(a_connection_has_the_filter_of_its_listener) {
    int l = listener(AF_INET, 4);
    OK(attach_short(l, 64));
    OK(set_option(l, SOL_SOCKET, SO_LOCK_FILTER_, 1));
    int s = dial(AF_INET, port_of(l)), a = OK(accept(l, NULL, NULL));
    socklen_t count = 0;
    OK(getsockopt(a, SOL_SOCKET, SO_ATTACH_FILTER_ /* SO_GET_FILTER */, NULL, &count));
    CHECK_EQ(count, 4);
    CHECK_EQ(OPTION(a, SOL_SOCKET, SO_LOCK_FILTER_), 1);
    ERR(detach(a), EPERM);
    ERR(attach_length(a, 9), EPERM);
    ERR(set_option(a, SOL_SOCKET, SO_LOCK_FILTER_, 0), EPERM);
    send_all(s, "short", 5);
    recv_all(a, got, 5);
    memset(got, 'l', 100);
    send_all(s, got, 100);
    CHECK_EQ(events_of(a, POLLIN, 100), 0);
    /* The end of the listener is not that of the filter. */
    OK(close(l));
    CHECK_EQ(events_of(a, POLLIN, 100), 0);
}

TEST(a_filter_of_a_socket_that_connects) {
    int l = listener(AF_INET, 4), s = OK(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0));
    OK(attach_length(s, 0));
    ERR(connect(s, LO4(port_of(l))), EINPROGRESS);
    CHECK_EQ(events_of(s, POLLOUT, 150), 0); /* the answer does not arrive */
    OK(detach(s));
    CHECK_EQ(AWAIT(s, POLLOUT), POLLOUT);
    CHECK_EQ(OPTION(s, SOL_SOCKET, SO_ERROR), 0);
}

TEST(errors_of_filters) {
    int s = OK(socket(AF_INET, SOCK_STREAM, 0));
    ERR(detach(s), ENOENT);
    struct instruction give = {RETURN, 0, 0, 1}, no_end = {LOAD_BYTE, 0, 0, 0};
    ERR(attach(s, &no_end, 1), EINVAL);
    ERR(attach(s, &give, 0), EINVAL);
    ERR(attach(s, BAD, 1), EFAULT);
    ERR(attach(s, &give, 4097), EINVAL);
    ERR(setsockopt(s, SOL_SOCKET, SO_ATTACH_FILTER_, &give, 8), EINVAL);
    ERR(setsockopt(s, SOL_SOCKET, SO_ATTACH_FILTER_, BAD, 16), EFAULT);
    OK(attach(s, &give, 1));
    struct instruction back[2];
    socklen_t count = 2;
    OK(getsockopt(s, SOL_SOCKET, SO_ATTACH_FILTER_, back, &count));
    CHECK_EQ(count, 1);
    CHECK(memcmp(back, &give, sizeof give) == 0);
    CHECK_EQ(OPTION(s, SOL_SOCKET, SO_LOCK_FILTER_), 0);
    OK(set_option(s, SOL_SOCKET, SO_LOCK_FILTER_, 1));
    ERR(attach(s, &give, 1), EPERM);
    ERR(detach(s), EPERM);
}

/* ---- times ----------------------------------------------------------------------------------- */

static union {
    char room[256];
    struct cmsghdr align;
} control;
static struct msghdr message;
/* Receives up to `size` bytes with room for control messages. */
static ssize_t receive(int s, size_t size, int how) {
    static struct iovec v;
    v = (struct iovec){got, size};
    message = (struct msghdr){.msg_iov = &v, .msg_iovlen = 1, .msg_control = &control,
                              .msg_controllen = sizeof control};
    return recvmsg(s, &message, how);
}
static void *control_of(int type, size_t *size) {
    for (struct cmsghdr *h = CMSG_FIRSTHDR(&message); h; h = CMSG_NXTHDR(&message, h))
        if (h->cmsg_level == SOL_SOCKET && h->cmsg_type == type) {
            *size = h->cmsg_len - CMSG_LEN(0);
            return CMSG_DATA(h);
        }
    return NULL;
}
static int64_t of_timespec(const struct timespec *t) {
    return (int64_t)t->tv_sec * 1000000000 + t->tv_nsec;
}
/* The time of SO_TIMESTAMPNS that came with a message. */
static int64_t time_of_message(void) {
    size_t size;
    struct timespec *t = control_of(SO_TIMESTAMPNS_, &size);
    CHECK(t && size == sizeof *t);
    return of_timespec(t);
}

/* Linux begins to note times a while after a socket has asked (net_enable_timestamp of
 * net/core/dev.c), and goes on while one asks. */
static void times_are_noted(void) {
    int ends[2];
    size_t size;
    tcp_pair(AF_INET, ends);
    OK(set_option(ends[1], SOL_SOCKET, SO_TIMESTAMPNS_, 1));
    for (int i = 0; i < 4000; i++) {
        send_all(ends[0], "x", 1);
        CHECK_EQ(OK(receive(ends[1], 1, 0)), 1);
        if (control_of(SO_TIMESTAMPNS_, &size))
            return;
        msleep(5);
    }
    FAIL("no time is noted");
}

TEST(reads_tell_when_data_came) {
    times_are_noted();
    int ends[2];
    tcp_pair(AF_INET, ends);
    OK(set_option(ends[1], SOL_SOCKET, SO_TIMESTAMP, 1));
    CHECK_EQ(OPTION(ends[1], SOL_SOCKET, SO_TIMESTAMP), 1);
    int64_t before = now_ns(CLOCK_REALTIME);
    send_all(ends[0], "one", 3);
    CHECK(AWAIT(ends[1], POLLIN) & POLLIN);
    int64_t after = now_ns(CLOCK_REALTIME);
    msleep(50); /* it is the time when it came, not when it is read */
    CHECK_EQ(OK(receive(ends[1], 10, 0)), 3);
    CHECK_EQ(message.msg_flags, 0);
    size_t size;
    struct timeval *t = control_of(SCM_TIMESTAMP, &size);
    CHECK(t && size == sizeof *t);
    int64_t at = (int64_t)t->tv_sec * 1000000000 + (int64_t)t->tv_usec * 1000;
    CHECK(at >= before - 1000 && at <= after);
    /* In nanoseconds, in place of the other. */
    OK(set_option(ends[1], SOL_SOCKET, SO_TIMESTAMPNS_, 1));
    CHECK_EQ(OPTION(ends[1], SOL_SOCKET, SO_TIMESTAMP), 0);
    before = now_ns(CLOCK_REALTIME);
    send_all(ends[0], "two", 3);
    CHECK(AWAIT(ends[1], POLLIN) & POLLIN);
    after = now_ns(CLOCK_REALTIME);
    CHECK_EQ(OK(receive(ends[1], 10, MSG_PEEK)), 3);
    at = time_of_message();
    CHECK(at >= before && at <= after);
    CHECK(control_of(SCM_TIMESTAMP, &size) == NULL);
    CHECK_EQ(OK(receive(ends[1], 10, 0)), 3);
    CHECK_EQ(time_of_message(), at);
    /* Switched off there is none. */
    OK(set_option(ends[1], SOL_SOCKET, SO_TIMESTAMPNS_, 0));
    send_all(ends[0], "end", 3);
    CHECK_EQ(OK(receive(ends[1], 10, 0)), 3);
    CHECK(control_of(SO_TIMESTAMPNS_, &size) == NULL);
    /* Nor at the end of the data. */
    OK(set_option(ends[1], SOL_SOCKET, SO_TIMESTAMPNS_, 1));
    OK(shutdown(ends[0], SHUT_WR));
    CHECK_EQ(OK(receive(ends[1], 10, 0)), 0);
    CHECK(control_of(SO_TIMESTAMPNS_, &size) == NULL);
}

/* Of a read of what came at several times, that of its last byte. */
TEST(the_last_byte_tells_the_time) {
    times_are_noted();
    int ends[2];
    tcp_pair(AF_INET, ends);
    OK(set_option(ends[1], SOL_SOCKET, SO_TIMESTAMPNS_, 1));
    send_all(ends[0], "first", 5);
    CHECK(AWAIT(ends[1], POLLIN) & POLLIN);
    msleep(30);
    int64_t between = now_ns(CLOCK_REALTIME);
    send_all(ends[0], "second", 6);
    EVENTUALLY(OK(recv(ends[1], got, 20, MSG_PEEK)) == 11);
    CHECK_EQ(OK(receive(ends[1], 11, 0)), 11);
    CHECK(time_of_message() >= between);
    /* Two reads of what came at once tell the same. */
    send_all(ends[0], "together", 8);
    CHECK_EQ(OK(receive(ends[1], 3, 0)), 3);
    int64_t at = time_of_message();
    msleep(10);
    CHECK_EQ(OK(receive(ends[1], 5, 0)), 5);
    CHECK_EQ(time_of_message(), at);
    /* Bytes that are thrown away have a time, too. */
    send_all(ends[0], "gone", 4);
    CHECK_EQ(OK(receive(ends[1], 4, MSG_TRUNC)), 4);
    CHECK(time_of_message() > at);
}

TEST(there_is_no_room_for_the_time) {
    times_are_noted();
    int ends[2];
    tcp_pair(AF_INET, ends);
    OK(set_option(ends[1], SOL_SOCKET, SO_TIMESTAMPNS_, 1));
    send_all(ends[0], "x", 1);
    struct iovec v = {got, 1};
    struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = &control,
                       .msg_controllen = 8};
    CHECK_EQ(OK(recvmsg(ends[1], &m, 0)), 1);
    CHECK_EQ(m.msg_flags, MSG_CTRUNC);
    CHECK_EQ(m.msg_controllen, 0);
}

TEST(a_connection_tells_times_as_its_listener) {
    times_are_noted();
    int l = listener(AF_INET, 1);
    OK(set_option(l, SOL_SOCKET, SO_TIMESTAMPNS_, 1));
    int s = dial(AF_INET, port_of(l));
    int64_t before = now_ns(CLOCK_REALTIME);
    send_all(s, "early", 5); /* before it is accepted */
    int a = OK(accept(l, NULL, NULL));
    CHECK_EQ(OPTION(a, SOL_SOCKET, SO_TIMESTAMPNS_), 1);
    CHECK_EQ(OK(receive(a, 5, 0)), 5);
    CHECK(time_of_message() >= before);
}

/* struct scm_timestamping: the kernel's time, one that is not used, and that of a device. */
static int64_t timestamping(void) {
    size_t size;
    struct timespec *t = control_of(SO_TIMESTAMPING_, &size);
    CHECK(t && size == 3 * sizeof *t);
    CHECK_EQ(of_timespec(t + 1), 0);
    CHECK_EQ(of_timespec(t + 2), 0);
    return of_timespec(t);
}

TEST(times_by_timestamping) {
    times_are_noted();
    int ends[2];
    tcp_pair(AF_INET, ends);
    CHECK_EQ(OPTION(ends[1], SOL_SOCKET, SO_TIMESTAMPING_), 0);
    OK(set_option(ends[1], SOL_SOCKET, SO_TIMESTAMPING_, RX_SOFTWARE | SOFTWARE));
    CHECK_EQ(OPTION(ends[1], SOL_SOCKET, SO_TIMESTAMPING_), RX_SOFTWARE | SOFTWARE);
    int64_t before = now_ns(CLOCK_REALTIME);
    send_all(ends[0], "one", 3);
    CHECK_EQ(OK(receive(ends[1], 10, 0)), 3);
    int64_t at = timestamping();
    CHECK(at >= before && at <= now_ns(CLOCK_REALTIME));
    size_t size;
    CHECK(control_of(SCM_TIMESTAMP, &size) == NULL);
    /* Both ways at once. */
    OK(set_option(ends[1], SOL_SOCKET, SO_TIMESTAMPNS_, 1));
    send_all(ends[0], "two", 3);
    CHECK_EQ(OK(receive(ends[1], 10, 0)), 3);
    CHECK_EQ(timestamping(), time_of_message());
    OK(set_option(ends[1], SOL_SOCKET, SO_TIMESTAMPNS_, 0));
    /* A time that is noted and not reported. */
    OK(set_option(ends[1], SOL_SOCKET, SO_TIMESTAMPING_, RX_SOFTWARE));
    send_all(ends[0], "three", 5);
    CHECK_EQ(OK(receive(ends[1], 10, 0)), 5);
    CHECK(control_of(SO_TIMESTAMPING_, &size) == NULL);
    OK(set_option(ends[1], SOL_SOCKET, SO_TIMESTAMPING_, 0));
    CHECK_EQ(OPTION(ends[1], SOL_SOCKET, SO_TIMESTAMPING_), 0);
}

TEST(times_of_datagrams_by_timestamping) {
    times_are_noted();
    int a = udp_socket(AF_INET), b = udp_socket(AF_INET);
    OK(set_option(a, SOL_SOCKET, SO_TIMESTAMPING_, RX_SOFTWARE | SOFTWARE));
    int64_t before = now_ns(CLOCK_REALTIME);
    CHECK_EQ(OK(sendto(b, "x", 1, 0, LO4(port_of(a)))), 1);
    CHECK_EQ(OK(receive(a, 10, 0)), 1);
    int64_t at = timestamping();
    CHECK(at >= before && at <= now_ns(CLOCK_REALTIME));
}

TEST(errors_of_timestamping) {
    int s = OK(socket(AF_INET, SOCK_STREAM, 0));
    ERR(set_option(s, SOL_SOCKET, SO_TIMESTAMPING_, 1 << 30), EINVAL);
    ERR(setsockopt(s, SOL_SOCKET, SO_TIMESTAMPING_, &s, 3), EINVAL);
    ERR(setsockopt(s, SOL_SOCKET, SO_TIMESTAMPING_, BAD, 4), EFAULT);
    /* With the number of a device's clock, which is nobody's business without BIND_PHC. */
    int both[2] = {RX_SOFTWARE, 0};
    OK(setsockopt(s, SOL_SOCKET, SO_TIMESTAMPING_, both, sizeof both));
    both[0] = both[1] = -1;
    socklen_t size = sizeof both;
    OK(getsockopt(s, SOL_SOCKET, SO_TIMESTAMPING_, both, &size));
    CHECK_EQ(size, 8);
    CHECK_EQ(both[0], RX_SOFTWARE);
    CHECK_EQ(both[1], 0);
    /* SIOCGSTAMP knows nothing of a stream. */
    struct timespec t;
    ERR(ioctl(s, SIOCGSTAMP_, &t), ENOENT);
    ERR(ioctl(s, SIOCGSTAMPNS_, &t), ENOENT);
}
