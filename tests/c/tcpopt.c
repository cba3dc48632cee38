/* Options of TCP sockets, and sizes of their buffers: tcp(7), socket(7). */
#define AREA "tcpopt"
#include "net.h"
#include <netinet/tcp.h>

#ifndef TCP_NOTSENT_LOWAT
#define TCP_NOTSENT_LOWAT 25
#endif

static int tcp4(void) { return OK(socket(AF_INET, SOCK_STREAM, 0)); }
static int option(int s, int name) { return OPTION(s, IPPROTO_TCP, name); }
static int tell(int s, int name, int value) { return set_option(s, IPPROTO_TCP, name, value); }

TEST(nodelay_cork_and_quickack) {
    int s = tcp4();
    CHECK_EQ(option(s, TCP_NODELAY), 0);
    OK(tell(s, TCP_NODELAY, 55));
    CHECK_EQ(option(s, TCP_NODELAY), 1);
    OK(tell(s, TCP_CORK, 1)); /* both may be set; the cork wins */
    CHECK_EQ(option(s, TCP_CORK), 1);
    CHECK_EQ(option(s, TCP_NODELAY), 1);
    OK(tell(s, TCP_CORK, 0));
    CHECK_EQ(option(s, TCP_CORK), 0);
    CHECK_EQ(option(s, TCP_QUICKACK), 1);
    OK(tell(s, TCP_QUICKACK, 0));
    CHECK_EQ(option(s, TCP_QUICKACK), 0);
    OK(tell(s, TCP_QUICKACK, 1));
    CHECK_EQ(option(s, TCP_QUICKACK), 1);
}

TEST(keepalive_has_defaults_and_bounds) {
    int s = tcp4();
    CHECK_EQ(option(s, TCP_KEEPIDLE), sysctl_number("/proc/sys/net/ipv4/tcp_keepalive_time"));
    CHECK_EQ(option(s, TCP_KEEPINTVL), sysctl_number("/proc/sys/net/ipv4/tcp_keepalive_intvl"));
    CHECK_EQ(option(s, TCP_KEEPCNT), sysctl_number("/proc/sys/net/ipv4/tcp_keepalive_probes"));
    static const struct {
        int name, most;
    } bounds[] = {{TCP_KEEPIDLE, 32767}, {TCP_KEEPINTVL, 32767}, {TCP_KEEPCNT, 127}};
    for (int i = 0; i < 3; i++) {
        OK(tell(s, bounds[i].name, 1));
        CHECK_EQ(option(s, bounds[i].name), 1);
        OK(tell(s, bounds[i].name, bounds[i].most));
        CHECK_EQ(option(s, bounds[i].name), bounds[i].most);
        ERR(tell(s, bounds[i].name, bounds[i].most + 1), EINVAL);
        ERR(tell(s, bounds[i].name, 0), EINVAL);
        ERR(tell(s, bounds[i].name, -1), EINVAL);
        CHECK_EQ(option(s, bounds[i].name), bounds[i].most);
    }
}

TEST(keepalive_probes_are_answered) {
    int e[2];
    tcp_pair(AF_INET, e);
    OK(tell(e[0], TCP_KEEPIDLE, 1));
    OK(set_option(e[0], SOL_SOCKET, SO_KEEPALIVE, 1));
    CHECK_EQ(events_of(e[0], POLLIN | POLLRDHUP, 1300), 0);
    CHECK_EQ(OK(write(e[1], "x", 1)), 1);
    AWAIT(e[0], POLLIN);
}

TEST(segments_have_a_largest_size) {
    int s = tcp4();
    CHECK_EQ(option(s, TCP_MAXSEG), 536); /* before there is a peer: RFC 9293's */
    OK(tell(s, TCP_MAXSEG, 1000));
    CHECK_EQ(option(s, TCP_MAXSEG), 1000);
    ERR(tell(s, TCP_MAXSEG, 32768), EINVAL);
    ERR(tell(s, TCP_MAXSEG, 20), EINVAL);
    ERR(tell(s, TCP_MAXSEG, -1), EINVAL);
    int l = listener(AF_INET, 1);
    OK(connect(s, LO4(port_of(l))));
    int t = OK(accept(l, NULL, NULL));
    CHECK(option(s, TCP_MAXSEG) <= 1000);
    CHECK(option(t, TCP_MAXSEG) <= 1000 && option(t, TCP_MAXSEG) > 900);
    static char data[50000], got[50000];
    memset(data, 'm', sizeof data);
    send_all(t, data, sizeof data);
    recv_all(s, got, sizeof got);
    CHECK(memcmp(data, got, sizeof data) == 0);
    int e[2];
    tcp_pair(AF_INET, e);
    CHECK(option(e[0], TCP_MAXSEG) >= 1000);
}

TEST(times_and_counts) {
    int s = tcp4();
    CHECK_EQ(option(s, TCP_USER_TIMEOUT), 0);
    OK(tell(s, TCP_USER_TIMEOUT, 1234));
    CHECK_EQ(option(s, TCP_USER_TIMEOUT), 1234);
    ERR(tell(s, TCP_USER_TIMEOUT, -1), EINVAL);
    CHECK_EQ(option(s, TCP_SYNCNT), sysctl_number("/proc/sys/net/ipv4/tcp_syn_retries"));
    OK(tell(s, TCP_SYNCNT, 1));
    CHECK_EQ(option(s, TCP_SYNCNT), 1);
    OK(tell(s, TCP_SYNCNT, 127));
    ERR(tell(s, TCP_SYNCNT, 0), EINVAL);
    ERR(tell(s, TCP_SYNCNT, 128), EINVAL);
    CHECK_EQ(option(s, TCP_LINGER2), sysctl_number("/proc/sys/net/ipv4/tcp_fin_timeout"));
    OK(tell(s, TCP_LINGER2, 5));
    CHECK_EQ(option(s, TCP_LINGER2), 5);
    OK(tell(s, TCP_LINGER2, -7));
    CHECK_EQ(option(s, TCP_LINGER2), -1);
    OK(tell(s, TCP_LINGER2, 0));
    CHECK_EQ(option(s, TCP_LINGER2), sysctl_number("/proc/sys/net/ipv4/tcp_fin_timeout"));
    CHECK_EQ(option(s, TCP_DEFER_ACCEPT), 0);
    OK(tell(s, TCP_DEFER_ACCEPT, 1));
    CHECK_EQ(option(s, TCP_DEFER_ACCEPT), 1);
    OK(tell(s, TCP_DEFER_ACCEPT, 4)); /* as retransmissions last: 1, 3, 7... seconds */
    CHECK_EQ(option(s, TCP_DEFER_ACCEPT), 7);
    OK(tell(s, TCP_DEFER_ACCEPT, 0));
    CHECK_EQ(option(s, TCP_DEFER_ACCEPT), 0);
    CHECK_EQ(option(s, TCP_WINDOW_CLAMP), 0);
    OK(tell(s, TCP_NOTSENT_LOWAT, 4096));
    CHECK_EQ(option(s, TCP_NOTSENT_LOWAT), 4096);
}

TEST(user_timeout_gives_up) {
    /* A peer whose window stays closed: the data waits, and the connection ends with ETIMEDOUT. */
    int e[2];
    tcp_pair(AF_INET, e);
    OK(set_option(e[1], SOL_SOCKET, SO_RCVBUF, 2304));
    OK(tell(e[0], TCP_USER_TIMEOUT, 300));
    nonblocking(e[0]);
    static char data[65536];
    while (send(e[0], data, sizeof data, MSG_NOSIGNAL) > 0)
        ;
    CHECK_EQ(errno, EAGAIN);
    int events = AWAIT(e[0], POLLIN | POLLRDHUP);
    CHECK((events & (POLLERR | POLLHUP)) == (POLLERR | POLLHUP));
    CHECK_EQ(OPTION(e[0], SOL_SOCKET, SO_ERROR), ETIMEDOUT);
}

TEST(accept_is_deferred_until_data_comes) {
    int l = listener(AF_INET, 4);
    OK(tell(l, TCP_DEFER_ACCEPT, 10));
    int c = dial(AF_INET, port_of(l));
    CHECK_EQ(events_of(l, POLLIN, 50), 0);
    CHECK_EQ(OK(write(c, "now", 3)), 3);
    AWAIT(l, POLLIN);
    int s = OK(accept(l, NULL, NULL)), n = 0;
    OK(ioctl(s, FIONREAD, &n));
    CHECK_EQ(n, 3);
}

TEST(congestion_control_has_names) {
    char now[16] = "", def[64], all[256], allowed[256];
    int s = tcp4();
    socklen_t length = sizeof now;
    OK(getsockopt(s, IPPROTO_TCP, TCP_CONGESTION, now, &length));
    CHECK_EQ(length, 16); /* TCP_CA_NAME_MAX */
    CHECK(get_file("/proc/sys/net/ipv4/tcp_congestion_control", def, sizeof def) > 0);
    def[strcspn(def, "\n")] = 0;
    CHECK_STR(now, def);
    CHECK(get_file("/proc/sys/net/ipv4/tcp_available_congestion_control", all, sizeof all) > 0);
    CHECK(get_file("/proc/sys/net/ipv4/tcp_allowed_congestion_control", allowed,
                   sizeof allowed) > 0);
    CHECK(strstr(all, def) != NULL);
    CHECK(strstr(all, "reno") != NULL); /* always there */
    OK(setsockopt(s, IPPROTO_TCP, TCP_CONGESTION, "reno", 4));
    length = sizeof now;
    OK(getsockopt(s, IPPROTO_TCP, TCP_CONGESTION, now, &length));
    CHECK_STR(now, "reno");
    ERR(setsockopt(s, IPPROTO_TCP, TCP_CONGESTION, "no-such", 7), ENOENT);
    ERR(setsockopt(s, IPPROTO_TCP, TCP_CONGESTION, "", 0), EINVAL);
    length = 3;
    OK(getsockopt(s, IPPROTO_TCP, TCP_CONGESTION, now, &length));
    CHECK_EQ(length, 3);
    CHECK(memcmp(now, "ren", 3) == 0);
}

TEST(info_tells_of_the_connection) {
    int e[2];
    tcp_pair(AF_INET, e);
    send_all(e[0], "12345", 5);
    char got[5];
    recv_all(e[1], got, 5);
    send_all(e[1], "1234567", 7);
    AWAIT(e[0], POLLIN);
    struct tcp_info info;
    memset(&info, 0xff, sizeof info);
    socklen_t length = sizeof info;
    OK(getsockopt(e[0], IPPROTO_TCP, TCP_INFO, &info, &length));
    CHECK(length >= 104); /* what Linux 3.0 knew */
    CHECK_EQ(info.tcpi_state, TCP_ESTABLISHED);
    CHECK_EQ(info.tcpi_ca_state, 0);
    CHECK_EQ(info.tcpi_retransmits, 0);
    CHECK_EQ(info.tcpi_lost, 0);
    CHECK_EQ(info.tcpi_pmtu, 65535); /* lo's 65536, of which IPv4 can have IP_MAX_MTU */
    CHECK(info.tcpi_snd_mss > 500 && info.tcpi_rcv_mss > 500 && info.tcpi_advmss > 500);
    CHECK(info.tcpi_rto >= 200000 && info.tcpi_rto < 5000000); /* microseconds */
    CHECK(info.tcpi_rtt < 1000000);
    CHECK(info.tcpi_snd_cwnd > 0);
    CHECK(info.tcpi_last_data_sent < 20000);
    /* A short buffer takes what it has room for. */
    length = 1;
    memset(&info, 0xff, sizeof info);
    OK(getsockopt(e[0], IPPROTO_TCP, TCP_INFO, &info, &length));
    CHECK_EQ(length, 1);
    CHECK_EQ(info.tcpi_state, TCP_ESTABLISHED);
    CHECK_EQ(info.tcpi_ca_state, 0xff);
    ERR(setsockopt(e[0], IPPROTO_TCP, TCP_INFO, &info, sizeof info), ENOPROTOOPT);
}

TEST(tcp_option_errors) {
    int s = tcp4(), value = 1;
    socklen_t length = sizeof value;
    ERR(setsockopt(s, IPPROTO_TCP, TCP_NODELAY, &value, 3), EINVAL);
    ERR(setsockopt(s, IPPROTO_TCP, TCP_NODELAY, BAD, 4), EFAULT);
    ERR(getsockopt(s, IPPROTO_TCP, 9999, &value, &length), ENOPROTOOPT);
    ERR(getsockopt(s, IPPROTO_TCP, TCP_NODELAY, BAD, &length), EFAULT);
    length = (socklen_t)-1;
    ERR(getsockopt(s, IPPROTO_TCP, TCP_NODELAY, &value, &length), EINVAL);
    length = sizeof value;
    int u = udp_socket(AF_INET);
    ERR(getsockopt(u, IPPROTO_TCP, TCP_NODELAY, &value, &length), EOPNOTSUPP);
    ERR(setsockopt(u, IPPROTO_TCP, TCP_NODELAY, &value, 4), ENOPROTOOPT);
}

TEST(fast_open_falls_back) {
    /* Without a cookie, and where the server does not do it, the data follows the handshake. */
    int l = listener(AF_INET, 4), s = tcp4();
    long how = sysctl_number("/proc/sys/net/ipv4/tcp_fastopen");
    if (how < 0 || !(how & 1)) {
        ERR(sendto(s, "x", 1, MSG_FASTOPEN, LO4(port_of(l))), EOPNOTSUPP);
        return;
    }
    CHECK_EQ(OK(sendto(s, "first", 5, MSG_FASTOPEN, LO4(port_of(l)))), 5);
    int t = OK(accept(l, NULL, NULL));
    char got[5];
    recv_all(t, got, 5);
    CHECK(memcmp(got, "first", 5) == 0);
    ERR(sendto(s, "x", 1, MSG_FASTOPEN, LO4(port_of(l))), EISCONN);
    ERR(sendto(tcp4(), "x", 1, MSG_FASTOPEN, NULL, 0), EINVAL);
    OK(tell(l, TCP_FASTOPEN, 5));
    CHECK_EQ(option(l, TCP_FASTOPEN), 5);
    ERR(tell(tcp4(), TCP_FASTOPEN, -1), EINVAL);
}

/* ---- buffers --------------------------------------------------------------------------------- */

TEST(buffer_sizes_are_doubled_and_bounded) {
    int s = tcp4();
    long send_most = sysctl_number("/proc/sys/net/core/wmem_max");
    long receive_most = sysctl_number("/proc/sys/net/core/rmem_max");
    OK(set_option(s, SOL_SOCKET, SO_SNDBUF, 20000));
    CHECK_EQ(OPTION(s, SOL_SOCKET, SO_SNDBUF), 40000);
    OK(set_option(s, SOL_SOCKET, SO_RCVBUF, 20000));
    CHECK_EQ(OPTION(s, SOL_SOCKET, SO_RCVBUF), 40000);
    /* The smallest: SOCK_MIN_SNDBUF and SOCK_MIN_RCVBUF (include/net/sock.h) are about 4.5 and
     * 2.25 KiB with the size of struct sk_buff in them. */
    OK(set_option(s, SOL_SOCKET, SO_SNDBUF, 1));
    int least = OPTION(s, SOL_SOCKET, SO_SNDBUF);
    CHECK(least >= 4096 && least <= 5120);
    OK(set_option(s, SOL_SOCKET, SO_RCVBUF, 0));
    least = OPTION(s, SOL_SOCKET, SO_RCVBUF);
    CHECK(least >= 2048 && least <= 2560);
    /* The largest, also for what is negative as a signed number. */
    OK(set_option(s, SOL_SOCKET, SO_SNDBUF, INT_MAX));
    CHECK_EQ(OPTION(s, SOL_SOCKET, SO_SNDBUF), 2 * send_most);
    OK(set_option(s, SOL_SOCKET, SO_RCVBUF, INT_MAX));
    CHECK_EQ(OPTION(s, SOL_SOCKET, SO_RCVBUF), 2 * receive_most);
    if (has_capability(CAP_NET_ADMIN)) {
        OK(set_option(s, SOL_SOCKET, SO_SNDBUFFORCE, (int)send_most + 5000));
        CHECK_EQ(OPTION(s, SOL_SOCKET, SO_SNDBUF), 2 * (send_most + 5000));
        OK(set_option(s, SOL_SOCKET, SO_RCVBUFFORCE, (int)receive_most + 5000));
        CHECK_EQ(OPTION(s, SOL_SOCKET, SO_RCVBUF), 2 * (receive_most + 5000));
    }
}

TEST(buffers_begin_as_the_settings_say) {
    char text[128];
    long low, middle, high;
    int s = tcp4(), u = udp_socket(AF_INET);
    CHECK(get_file("/proc/sys/net/ipv4/tcp_rmem", text, sizeof text) > 0);
    CHECK_EQ(sscanf(text, "%ld %ld %ld", &low, &middle, &high), 3);
    CHECK(low <= middle && middle <= high);
    CHECK_EQ(OPTION(s, SOL_SOCKET, SO_RCVBUF), middle);
    CHECK(get_file("/proc/sys/net/ipv4/tcp_wmem", text, sizeof text) > 0);
    CHECK_EQ(sscanf(text, "%ld %ld %ld", &low, &middle, &high), 3);
    CHECK_EQ(OPTION(s, SOL_SOCKET, SO_SNDBUF), middle);
    CHECK_EQ(OPTION(u, SOL_SOCKET, SO_RCVBUF), sysctl_number("/proc/sys/net/core/rmem_default"));
    CHECK_EQ(OPTION(u, SOL_SOCKET, SO_SNDBUF), sysctl_number("/proc/sys/net/core/wmem_default"));
}

/* How many bytes a connection takes that nobody reads. */
static long room(int size) {
    int l = listener(AF_INET, 1), s = tcp4();
    OK(set_option(l, SOL_SOCKET, SO_RCVBUF, size));
    OK(set_option(s, SOL_SOCKET, SO_SNDBUF, size));
    OK(connect(s, LO4(port_of(l))));
    int t = OK(accept(l, NULL, NULL));
    nonblocking(s);
    static char data[4096];
    long total = 0;
    for (int idle = 0; idle < 5;) {
        ssize_t n = send(s, data, sizeof data, MSG_NOSIGNAL);
        if (n > 0)
            total += n, idle = 0;
        else
            idle += events_of(s, POLLOUT, 20) == 0;
    }
    close(s), close(t), close(l);
    return total;
}
TEST(buffers_bound_what_is_under_way) {
    long small = room(10000), large = room(200000);
    CHECK(small > 1000 && small < 4 * 2 * 10000 + 65536);
    CHECK(large > 100000 && large < 4 * 2 * 200000);
    CHECK(large > small);
}

TEST(lowat_holds_readers_back) {
    int e[2];
    tcp_pair(AF_INET, e);
    CHECK_EQ(OPTION(e[0], SOL_SOCKET, SO_RCVLOWAT), 1);
    CHECK_EQ(OPTION(e[0], SOL_SOCKET, SO_SNDLOWAT), 1);
    ERR(set_option(e[0], SOL_SOCKET, SO_SNDLOWAT, 2), ENOPROTOOPT);
    OK(set_option(e[1], SOL_SOCKET, SO_RCVLOWAT, 5));
    CHECK_EQ(OPTION(e[1], SOL_SOCKET, SO_RCVLOWAT), 5);
    send_all(e[0], "1234", 4);
    CHECK_EQ(events_of(e[1], POLLIN, 30), 0); /* poll goes by it too: tcp_stream_is_readable */
    send_all(e[0], "5", 1);
    AWAIT(e[1], POLLIN);
    char got[10];
    CHECK_EQ(OK(read(e[1], got, 10)), 5);
    send_all(e[0], "67", 2);
    EVENTUALLY(({ int n; OK(ioctl(e[1], FIONREAD, &n)); n == 2; }));
    CHECK_EQ(OK(recv(e[1], got, 10, MSG_DONTWAIT)), 2); /* what there is, when it may not wait */
    OK(set_option(e[1], SOL_SOCKET, SO_RCVLOWAT, 0));
    CHECK_EQ(OPTION(e[1], SOL_SOCKET, SO_RCVLOWAT), 1);
}

TEST(timeouts_end_waits) {
    int e[2];
    tcp_pair(AF_INET, e);
    struct timeval t = {0, 60000};
    OK(setsockopt(e[0], SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t));
    OK(setsockopt(e[0], SOL_SOCKET, SO_SNDTIMEO, &t, sizeof t));
    char c;
    int64_t start = now_ns(CLOCK_MONOTONIC);
    ERR(read(e[0], &c, 1), EAGAIN);
    CHECK(now_ns(CLOCK_MONOTONIC) - start >= 55 * MS);
    static char data[65536];
    ssize_t n;
    start = now_ns(CLOCK_MONOTONIC);
    while ((n = send(e[0], data, sizeof data, MSG_NOSIGNAL)) > 0)
        ;
    CHECK_EQ(errno, EAGAIN);
    CHECK(now_ns(CLOCK_MONOTONIC) - start >= 55 * MS);
    int l = listener(AF_INET, 1);
    OK(setsockopt(l, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t));
    start = now_ns(CLOCK_MONOTONIC);
    ERR(accept(l, NULL, NULL), EAGAIN);
    CHECK(now_ns(CLOCK_MONOTONIC) - start >= 55 * MS);
}
