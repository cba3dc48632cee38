/* Terminals, sessions, process groups and job control, over pseudo-terminals. */
#define AREA "tty"
#include "harness.h"
#include <poll.h>
#include <sys/ioctl.h>
#include <termios.h>

static int master, slave;
static char slave_name[64];

static void open_pair(void) {
    master = OK(posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC));
    int zero = 0, number = -1;
    OK(ioctl(master, TIOCSPTLCK, &zero));
    OK(ioctl(master, TIOCGPTN, &number));
    snprintf(slave_name, sizeof slave_name, "/dev/pts/%d", number);
    slave = OK(open(slave_name, O_RDWR | O_NOCTTY | O_CLOEXEC));
}

/* Clears and sets local, input and output flags of the slave. */
static void flags(tcflag_t local_off, tcflag_t local_on, tcflag_t input_off, tcflag_t input_on) {
    struct termios t;
    OK(tcgetattr(slave, &t));
    t.c_lflag = (t.c_lflag & ~local_off) | local_on;
    t.c_iflag = (t.c_iflag & ~input_off) | input_on;
    OK(tcsetattr(slave, TCSANOW, &t));
}

static void raw(int vmin, int vtime) {
    struct termios t;
    OK(tcgetattr(slave, &t));
    cfmakeraw(&t);
    t.c_cc[VMIN] = (cc_t)vmin;
    t.c_cc[VTIME] = (cc_t)vtime;
    OK(tcsetattr(slave, TCSANOW, &t));
}

static void type(const char *text) { CHECK_EQ(OK(write(master, text, strlen(text))), strlen(text)); }

/* The bytes that the slave reads in one call. */
static const char *line(void) {
    static char text[5000];
    ssize_t n = OK(read(slave, text, sizeof text - 1));
    text[n] = 0;
    return text;
}

/* The bytes that have come out at the master, waiting until there are at least `size` of them. */
static const char *shown(size_t size) {
    static char text[8192];
    size_t done = 0;
    while (done < size) {
        struct pollfd p = {master, POLLIN, 0};
        if (OK(poll(&p, 1, 10000)) == 0)
            FAIL("only %zu of %zu bytes of output: \"%.*s\"", done, size, (int)done, text);
        done += (size_t)OK(read(master, text + done, sizeof text - 1 - done));
    }
    text[done] = 0;
    return text;
}

static bool readable(int fd) {
    struct pollfd p = {fd, POLLIN, 0};
    return OK(poll(&p, 1, 0)) == 1 && (p.revents & POLLIN);
}

/*
 * Linux hands typed bytes to the line discipline in a worker: a case that depends on their
 * having arrived says so.
 */
#define ARRIVED() EVENTUALLY(readable(slave))

/* In a child: a new session with the slave as controlling terminal. */
static void take_terminal(void) {
    OK(setsid());
    OK(ioctl(slave, TIOCSCTTY, 0));
}

TEST(openpty_is_a_terminal) {
    open_pair();
    CHECK(isatty(slave) && isatty(master));
    struct stat st;
    OK(fstat(slave, &st));
    CHECK(S_ISCHR(st.st_mode));
    CHECK_EQ(st.st_rdev >> 8, 136); /* UNIX98 pts major */
    char name[64];
    CHECK_EQ(ttyname_r(slave, name, sizeof name), 0);
    CHECK_STR(name, slave_name);
}

TEST(locked_slave_cannot_be_opened) {
    int m = OK(posix_openpt(O_RDWR | O_NOCTTY));
    int number;
    OK(ioctl(m, TIOCGPTN, &number));
    char name[64];
    snprintf(name, sizeof name, "/dev/pts/%d", number);
    ERR(open(name, O_RDWR | O_NOCTTY), EIO);
    OK(unlockpt(m));
    OK(open(name, O_RDWR | O_NOCTTY));
}

TEST(not_a_terminal_is_enotty) {
    struct termios t;
    int p[2];
    OK(pipe(p));
    ERR(tcgetattr(p[0], &t), ENOTTY);
    int fd = OK(open("f", O_RDWR | O_CREAT, 0600));
    ERR(tcgetattr(fd, &t), ENOTTY);
    ERR(ioctl(fd, TIOCGWINSZ, &t), ENOTTY);
    int null = OK(open("/dev/null", O_RDWR));
    ERR(tcgetattr(null, &t), ENOTTY);
    ERR(ioctl(fd, 0x12345678, 0), ENOTTY);
    ERR(ioctl(999, TCGETS, &t), EBADF);
}

TEST(defaults_are_cooked) {
    open_pair();
    struct termios t;
    OK(tcgetattr(slave, &t));
    CHECK((t.c_lflag & (ICANON | ECHO | ISIG)) == (ICANON | ECHO | ISIG));
    CHECK(t.c_iflag & ICRNL);
    CHECK((t.c_oflag & (OPOST | ONLCR)) == (OPOST | ONLCR));
    CHECK_EQ(t.c_cc[VINTR], 3);
    CHECK_EQ(t.c_cc[VEOF], 4);
    CHECK_EQ(t.c_cc[VERASE], 127);
    CHECK_EQ(t.c_cc[VSUSP], 26);
}

TEST(canonical_mode_reads_lines) {
    open_pair();
    type("first\nsecond\npart");
    CHECK_STR(line(), "first\n");
    CHECK_STR(line(), "second\n");
    CHECK(!readable(slave)); /* no end of line yet */
    type("ial\n");
    CHECK_STR(line(), "partial\n");
}

TEST(canonical_read_of_less_leaves_the_rest) {
    open_pair();
    type("abcdef\n");
    char c[4] = "";
    CHECK_EQ(OK(read(slave, c, 3)), 3);
    CHECK_STR(c, "abc");
    CHECK_STR(line(), "def\n");
}

TEST(carriage_return_is_a_newline_by_icrnl) {
    open_pair();
    type("x\r");
    CHECK_STR(line(), "x\n");
    flags(0, 0, ICRNL, INLCR);
    type("y\r\n"); /* now \r ends nothing, and \n is turned into \r */
    CHECK(!readable(slave));
    flags(0, 0, INLCR, IGNCR);
    type("z\rz\n");
    CHECK_STR(line(), "y\r\rzz\n");
}

TEST(erase_kill_and_word_erase_edit) {
    open_pair();
    type("helo\177lo\n");
    CHECK_STR(line(), "hello\n");
    type("garbage\025clean\n"); /* ^U */
    CHECK_STR(line(), "clean\n");
    type("one two  \027three\n"); /* ^W */
    CHECK_STR(line(), "one three\n");
    type("\177\177ok\n"); /* nothing to erase */
    CHECK_STR(line(), "ok\n");
}

TEST(literal_next_takes_the_meaning_away) {
    open_pair();
    type("a\026\177b\026\003\n"); /* ^V DEL, ^V ^C */
    CHECK_STR(line(), "a\177b\003\n");
}

TEST(end_of_file_character) {
    open_pair();
    type("\004");
    char c;
    CHECK_EQ(OK(read(slave, &c, 1)), 0);
    type("tail\004"); /* delivers what is there, without a newline */
    CHECK_STR(line(), "tail");
    type("more\n");
    CHECK_STR(line(), "more\n");
}

TEST(second_end_of_line_character) {
    open_pair();
    struct termios t;
    OK(tcgetattr(slave, &t));
    t.c_cc[VEOL] = ';';
    OK(tcsetattr(slave, TCSANOW, &t));
    type("a;b\n");
    CHECK_STR(line(), "a;");
    CHECK_STR(line(), "b\n");
}

TEST(echo_shows_what_is_typed) {
    open_pair();
    type("hi\n");
    CHECK_STR(shown(4), "hi\r\n");
    type("\001"); /* ECHOCTL */
    CHECK_STR(shown(2), "^A");
    type("x\177"); /* ECHOE */
    CHECK_STR(shown(4), "x\b \b");
    flags(ECHO, 0, 0, 0);
    type("secret\n");
    CHECK_STR(line(), "hi\n"); /* the lines went in, too */
    CHECK(!readable(master));
}

TEST(output_newline_becomes_crlf) {
    open_pair();
    OK(write(slave, "a\nb\n", 4));
    CHECK_STR(shown(6), "a\r\nb\r\n");
    struct termios t;
    OK(tcgetattr(slave, &t));
    t.c_oflag &= ~(tcflag_t)OPOST;
    OK(tcsetattr(slave, TCSADRAIN, &t));
    OK(write(slave, "c\n", 2));
    CHECK_STR(shown(2), "c\n");
}

TEST(raw_mode_passes_everything) {
    open_pair();
    raw(1, 0);
    type("\003\004\025\r\n\177\032");
    CHECK_STR(line(), "\003\004\025\r\n\177\032");
    CHECK(!readable(master)); /* no echo */
    OK(write(slave, "\n", 1));
    CHECK_STR(shown(1), "\n");
}

TEST(vmin_waits_for_that_many_bytes) {
    open_pair();
    raw(5, 0);
    pid_t pid = FORK();
    if (pid == 0) {
        CHECK_STR(line(), "abcde");
        _exit(0);
    }
    type("abc");
    wait_asleep(pid);
    CHECK_EQ(OK(waitpid(pid, NULL, WNOHANG)), 0);
    type("de");
    EXITS(pid, 0);
}

TEST(vmin_zero_does_not_block) {
    open_pair();
    raw(0, 0);
    char c[8];
    CHECK_EQ(OK(read(slave, c, 8)), 0);
    type("ab");
    ARRIVED();
    CHECK_EQ(OK(read(slave, c, 8)), 2);
}

TEST(vtime_alone_is_a_read_timeout) {
    open_pair();
    raw(0, 2);
    char c;
    int64_t from = now_ns(CLOCK_MONOTONIC);
    CHECK_EQ(OK(read(slave, &c, 1)), 0);
    CHECK(now_ns(CLOCK_MONOTONIC) - from >= 150 * MS);
}

TEST(vtime_with_vmin_starts_at_the_first_byte) {
    open_pair();
    raw(10, 2);
    type("xyz");
    CHECK_STR(line(), "xyz"); /* the pause between bytes ended it */
}

TEST(nonblocking_read_is_eagain) {
    open_pair();
    OK(fcntl(slave, F_SETFL, O_NONBLOCK));
    char c[8];
    ERR(read(slave, c, 8), EAGAIN);
    type("part"); /* no line yet */
    ERR(read(slave, c, 8), EAGAIN);
    type("\n");
    ARRIVED();
    CHECK_EQ(OK(read(slave, c, 8)), 5);
    OK(fcntl(master, F_SETFL, O_NONBLOCK));
    shown(6);
    ERR(read(master, c, 8), EAGAIN);
}

/* They wait like bytes: a writer whose peer does not read cannot go on for ever. */
TEST(ends_of_file_fill_the_buffer_too) {
    open_pair();
    OK(fcntl(master, F_SETFL, O_NONBLOCK));
    OK(fcntl(slave, F_SETFL, O_NONBLOCK));
    static char ends[4096];
    memset(ends, 4, sizeof ends);
    size_t written = 0;
    ssize_t n;
    while ((n = write(master, ends, sizeof ends)) > 0) {
        written += (size_t)n;
        CHECK(written < 1 << 20);
    }
    CHECK(n == -1 && errno == EAGAIN);
    CHECK(written >= 4095);
    char c;
    size_t read_back = 0;
    for (int pauses = 0; pauses < 20;) {
        n = read(slave, &c, 1);
        if (n == -1) {
            CHECK_EQ(errno, EAGAIN);
            usleep(10000);
            pauses++;
        } else {
            CHECK_EQ(n, 0);
            read_back++;
        }
    }
    CHECK_EQ(read_back, written);
    type("line\n");
    ARRIVED();
    CHECK_STR(line(), "line\n");
}

TEST(fionread_counts_bytes) {
    open_pair();
    int n = -1;
    OK(ioctl(slave, FIONREAD, &n));
    CHECK_EQ(n, 0);
    type("four\n");
    ARRIVED();
    OK(ioctl(slave, FIONREAD, &n));
    CHECK_EQ(n, 5);
}

TEST(tcflush_drops_input) {
    open_pair();
    type("gone\n");
    ARRIVED();
    OK(tcflush(slave, TCIFLUSH));
    CHECK(!readable(slave));
    type("kept\n");
    CHECK_STR(line(), "kept\n");
    ERR(tcflush(slave, 99), EINVAL);
}

TEST(tcsaflush_drops_typed_ahead_input) {
    open_pair();
    type("ahead\n");
    ARRIVED();
    struct termios t;
    OK(tcgetattr(slave, &t));
    OK(tcsetattr(slave, TCSAFLUSH, &t));
    CHECK(!readable(slave));
}

TEST(window_size_is_kept_and_signalled) {
    open_pair();
    struct winsize w = {.ws_row = 33, .ws_col = 99}, got;
    GATE(ready);
    pid_t pid = FORK();
    if (pid == 0) {
        sigset_t set;
        sigemptyset(&set);
        sigaddset(&set, SIGWINCH);
        OK(sigprocmask(SIG_BLOCK, &set, NULL));
        take_terminal();
        gate_open(&ready);
        struct timespec limit = {10, 0};
        CHECK_EQ(OK(sigtimedwait(&set, NULL, &limit)), SIGWINCH);
        OK(ioctl(slave, TIOCGWINSZ, &got));
        CHECK(got.ws_row == 33 && got.ws_col == 99);
        _exit(0);
    }
    gate_pass(&ready);
    OK(ioctl(master, TIOCSWINSZ, &w));
    EXITS(pid, 0);
    OK(ioctl(slave, TIOCGWINSZ, &got));
    CHECK_EQ(got.ws_col, 99);
}

/* Runs the body in a child with its own session and this terminal. */
#define ON_TERMINAL(...)                                                                           \
    do {                                                                                           \
        open_pair();                                                                               \
        IN_CHILD(take_terminal(); __VA_ARGS__);                                                    \
    } while (0)

TEST(setsid_makes_leader_without_terminal) {
    IN_CHILD({
        pid_t session = OK(setsid());
        CHECK_EQ(session, getpid());
        CHECK_EQ(getpgrp(), getpid());
        CHECK_EQ(getsid(0), getpid());
        ERR(open("/dev/tty", O_RDWR), ENXIO);
        ERR(setsid(), EPERM); /* a group leader already */
    });
}

TEST(first_open_by_a_leader_takes_the_terminal) {
    open_pair();
    IN_CHILD({
        OK(setsid());
        ERR(tcgetpgrp(slave), ENOTTY);
        OK(open(slave_name, O_RDWR)); /* without O_NOCTTY (open(2)) */
        CHECK_EQ(OK(tcgetpgrp(slave)), getpid());
        int fd = OK(open("/dev/tty", O_RDWR));
        CHECK(isatty(fd));
        OK(write(fd, "x", 1));
    });
    CHECK_STR(shown(1), "x");
}

TEST(terminal_belongs_to_one_session) {
    ON_TERMINAL({
        IN_CHILD({
            OK(setsid());
            /* root may steal it with argument 1 (tty_ioctl(4)); not with 0, and not a user */
            ERR(ioctl(slave, TIOCSCTTY, 0), EPERM);
            ERR(tcgetpgrp(slave), ENOTTY);
        });
        CHECK_EQ(OK(tcgetpgrp(slave)), getpid());
        CHECK_EQ(OK(tcgetsid(slave)), getpid());
    });
}

TEST(notty_gives_the_terminal_up) {
    open_pair();
    IN_CHILD({
        take_terminal();
        signal(SIGHUP, SIG_IGN);
        signal(SIGCONT, SIG_IGN);
        OK(ioctl(slave, TIOCNOTTY));
        ERR(open("/dev/tty", O_RDWR), ENXIO);
    });
}

TEST(setpgid_rules) {
    ERR(setpgid(0x3ffffff0, 0), ESRCH);
    ERR(setpgid(0, -1), EINVAL);
    ERR(setpgid(getppid(), 0), ESRCH); /* neither self nor child */
    ERR(getpgid(0x3ffffff0), ESRCH);
    ERR(getsid(0x3ffffff0), ESRCH);
    IN_CHILD({
        OK(setsid());
        ERR(setpgid(0, 0), EPERM); /* a session leader */
    });
    GATE(go);
    GATE(ready);
    pid_t pid = FORK();
    if (pid == 0) {
        OK(setsid());
        gate_open(&ready);
        gate_pass(&go);
        _exit(0);
    }
    gate_pass(&ready);
    ERR(setpgid(pid, getpgrp()), EPERM); /* in another session */
    ERR(setpgid(0, pid), EPERM);
    gate_open(&go);
    EXITS(pid, 0);
}

TEST(setpgid_after_exec_is_eacces) {
    GATE(ready);
    pid_t pid = FORK();
    if (pid == 0) {
        dup2(ready.fd[1], 1);
        execl(hy_self, hy_self, "--helper", "say_and_wait", (char *)NULL);
        _exit(99);
    }
    gate_pass(&ready);
    ERR(setpgid(pid, pid), EACCES);
    OK(kill(pid, SIGKILL));
    KILLED(pid, SIGKILL);
}
HELPER(say_and_wait) {
    if (write(1, "", 1) == 1)
        pause();
    return 0;
}

TEST(interrupt_quit_and_suspend_characters) {
    static const struct {
        const char *key;
        int sig;
    } keys[] = {{"\003", SIGINT}, {"\034", SIGQUIT}, {"\032", SIGTSTP}};
    for (int i = 0; i < 3; i++) {
        open_pair();
        GATE(ready);
        pid_t pid = FORK();
        if (pid == 0) {
            sigset_t set;
            sigemptyset(&set);
            sigaddset(&set, keys[i].sig);
            OK(sigprocmask(SIG_BLOCK, &set, NULL));
            take_terminal();
            gate_open(&ready);
            siginfo_t info;
            struct timespec limit = {10, 0};
            CHECK_EQ(OK(sigtimedwait(&set, &info, &limit)), keys[i].sig);
            _exit(0);
        }
        gate_pass(&ready);
        type(keys[i].key);
        EXITS(pid, 0);
        OK(close(master));
        OK(close(slave));
    }
}

TEST(interrupt_flushes_input) {
    open_pair();
    GATE(ready);
    pid_t pid = FORK();
    if (pid == 0) {
        signal(SIGINT, SIG_IGN);
        take_terminal();
        gate_open(&ready);
        CHECK_STR(line(), "new\n");
        _exit(0);
    }
    gate_pass(&ready);
    type("old\003new\n"); /* without NOFLSH the started line is dropped */
    EXITS(pid, 0);
}

TEST(no_signals_without_isig) {
    open_pair();
    flags(ISIG, 0, 0, 0);
    IN_CHILD({
        take_terminal();
        type("\003\034\n");
        CHECK_STR(line(), "\003\034\n");
    });
}

TEST(signal_goes_to_the_foreground_group_only) {
    ON_TERMINAL({
        signal(SIGTTOU, SIG_IGN);
        pid_t pid = FORK();
        if (pid == 0) {
            setpgid(0, 0);
            for (;;)
                pause();
        }
        setpgid(pid, pid);
        OK(tcsetpgrp(slave, pid));
        type("\003"); /* does not hit this process, whose group is in the background */
        KILLED(pid, SIGINT);
        OK(tcsetpgrp(slave, getpgrp()));
    });
}

TEST(tcsetpgrp_rules) {
    ON_TERMINAL({
        ERR(tcsetpgrp(slave, 0x3ffffff0), ESRCH);
        ERR2(tcsetpgrp(slave, -1), EINVAL, ESRCH);
        pid_t pid = FORK();
        if (pid == 0) {
            OK(setsid());
            for (;;)
                pause();
        }
        EVENTUALLY(getsid(pid) == pid);
        ERR(tcsetpgrp(slave, pid), EPERM); /* a group of another session */
        OK(kill(pid, SIGKILL));
        KILLED(pid, SIGKILL);
    });
}

TEST(background_read_stops_with_sigttin) {
    ON_TERMINAL({
        pid_t pid = FORK();
        if (pid == 0) {
            setpgid(0, 0);
            char c;
            (void)!read(slave, &c, 1);
            _exit(c);
        }
        int status;
        CHECK_EQ(OK(waitpid(pid, &status, WUNTRACED)), pid);
        CHECK(WIFSTOPPED(status));
        CHECK_EQ(WSTOPSIG(status), SIGTTIN);
        OK(tcsetpgrp(slave, pid));
        type("A\n");
        OK(kill(pid, SIGCONT));
        EXITS(pid, 'A'); /* the read goes on by itself */
    });
}

TEST(background_read_with_sigttin_ignored_is_eio) {
    ON_TERMINAL({
        IN_CHILD({
            signal(SIGTTIN, SIG_IGN);
            OK(setpgid(0, 0));
            char c;
            ERR(read(slave, &c, 1), EIO);
        });
    });
}

TEST(background_write_is_allowed_without_tostop) {
    ON_TERMINAL(IN_CHILD({
        OK(setpgid(0, 0));
        CHECK_EQ(OK(write(slave, "bg", 2)), 2);
    }));
    CHECK_STR(shown(2), "bg");
}

TEST(background_write_stops_with_tostop) {
    ON_TERMINAL({
        flags(0, TOSTOP, 0, 0);
        pid_t pid = FORK();
        if (pid == 0) {
            setpgid(0, 0);
            (void)!write(slave, "bg", 2);
            _exit(0);
        }
        int status;
        CHECK_EQ(OK(waitpid(pid, &status, WUNTRACED)), pid);
        CHECK(WIFSTOPPED(status) && WSTOPSIG(status) == SIGTTOU);
        OK(kill(pid, SIGKILL));
        KILLED(pid, SIGKILL);
    });
}

TEST(background_tcsetattr_stops_with_sigttou) {
    ON_TERMINAL({
        pid_t pid = FORK();
        if (pid == 0) {
            setpgid(0, 0);
            struct termios t;
            OK(tcgetattr(slave, &t)); /* reading is free */
            tcsetattr(slave, TCSANOW, &t);
            _exit(0);
        }
        int status;
        CHECK_EQ(OK(waitpid(pid, &status, WUNTRACED)), pid);
        CHECK(WIFSTOPPED(status) && WSTOPSIG(status) == SIGTTOU);
        OK(kill(pid, SIGKILL));
        KILLED(pid, SIGKILL);
    });
}

TEST(background_tcsetpgrp_needs_sigttou_blocked) {
    ON_TERMINAL(IN_CHILD({
        OK(setpgid(0, 0));
        sigset_t set;
        sigemptyset(&set);
        sigaddset(&set, SIGTTOU);
        OK(sigprocmask(SIG_BLOCK, &set, NULL));
        OK(tcsetpgrp(slave, getpgrp())); /* how a shell takes the terminal back */
        CHECK_EQ(OK(tcgetpgrp(slave)), getpgrp());
    }));
}

TEST(orphaned_group_reading_is_eio) {
    /* Nobody could continue it (setpgid(2), orphaned process group). */
    open_pair();
    int *result = SHARED(PAGE);
    GATE(done);
    IN_CHILD({
        take_terminal();
        pid_t middle = FORK();
        if (middle == 0) {
            GATE(go);
            pid_t parent = getpid();
            if (FORK() == 0) {
                OK(setpgid(0, 0));
                gate_pass(&go);
                EVENTUALLY(getppid() != parent);
                char c;
                errno = 0;
                *result = read(slave, &c, 1) == -1 ? errno : -1;
                gate_open(&done);
                _exit(0);
            }
            gate_open(&go);
            _exit(0);
        }
        EXITS(middle, 0);
        gate_pass(&done);
    });
    CHECK_EQ(*result, EIO);
}

TEST(hangup_at_the_masters_close) {
    open_pair();
    GATE(ready);
    pid_t pid = FORK();
    if (pid == 0) {
        close(master);
        sigset_t set;
        sigemptyset(&set);
        sigaddset(&set, SIGHUP);
        OK(sigprocmask(SIG_BLOCK, &set, NULL));
        take_terminal();
        gate_open(&ready);
        struct timespec limit = {10, 0};
        CHECK_EQ(OK(sigtimedwait(&set, NULL, &limit)), SIGHUP);
        char c;
        CHECK_EQ(OK(read(slave, &c, 1)), 0); /* end of file ever after */
        ERR(write(slave, "x", 1), EIO);
        struct pollfd p = {slave, POLLIN, 0};
        OK(poll(&p, 1, 0));
        CHECK(p.revents & POLLHUP);
        _exit(0);
    }
    gate_pass(&ready);
    OK(close(slave));
    OK(close(master));
    EXITS(pid, 0);
}

TEST(hangup_kills_by_default) {
    open_pair();
    GATE(ready);
    pid_t pid = FORK();
    if (pid == 0) {
        close(master);
        take_terminal();
        gate_open_and_rest(&ready);
    }
    gate_pass(&ready);
    OK(close(master));
    KILLED(pid, SIGHUP);
}

TEST(leaders_exit_hangs_up_the_foreground) {
    open_pair();
    GATE(ready);
    int *seen = SHARED(PAGE);
    pid_t leader = FORK();
    if (leader == 0) {
        take_terminal();
        if (FORK() == 0) {
            sigset_t set;
            sigemptyset(&set);
            sigaddset(&set, SIGHUP);
            OK(sigprocmask(SIG_BLOCK, &set, NULL));
            gate_open(&ready);
            struct timespec limit = {10, 0};
            *seen = sigtimedwait(&set, NULL, &limit);
            _exit(0);
        }
        gate_pass(&ready);
        _exit(0);
    }
    EXITS(leader, 0);
    EVENTUALLY(*(volatile int *)seen == SIGHUP);
}

TEST(slaves_close_is_seen_at_the_master) {
    open_pair();
    OK(write(slave, "last words", 10));
    OK(close(slave));
    char text[32];
    CHECK_EQ(OK(read(master, text, sizeof text)), 10);
    ERR(read(master, text, sizeof text), EIO); /* no slave is open */
    struct pollfd p = {master, POLLIN, 0};
    OK(poll(&p, 1, 0));
    CHECK(p.revents & POLLHUP);
    slave = OK(open(slave_name, O_RDWR | O_NOCTTY)); /* and it comes back */
    OK(write(slave, "again", 5));
    CHECK_EQ(OK(read(master, text, sizeof text)), 5);
}

TEST(pts_entry_vanishes_with_the_master) {
    open_pair();
    OK(access(slave_name, F_OK));
    OK(close(slave));
    OK(close(master));
    ERR(access(slave_name, F_OK), ENOENT);
}

TEST(poll_on_both_sides) {
    open_pair();
    CHECK(!readable(slave) && !readable(master));
    struct pollfd p = {slave, POLLOUT, 0};
    CHECK_EQ(OK(poll(&p, 1, 0)), 1);
    CHECK_EQ(p.revents, POLLOUT);
    type("go\n");
    ARRIVED();
    EVENTUALLY(readable(master)); /* the echo */
}

TEST(line_longer_than_4095_is_cut) {
    /* N_TTY_BUF_SIZE; termios(3): all after 4095 characters but the newline is lost */
    open_pair();
    flags(ECHO, 0, 0, 0);
    static char big[6000];
    memset(big, 'L', sizeof big);
    pid_t pid = FORK();
    if (pid == 0) {
        for (size_t done = 0; done < sizeof big;)
            done += (size_t)OK(write(master, big + done, sizeof big - done));
        type("\n");
        _exit(0);
    }
    EXITS(pid, 0);
    EVENTUALLY(readable(slave));
    CHECK_EQ(strlen(line()), 4096);
}

TEST(two_readers_get_different_lines) {
    open_pair();
    flags(ECHO, 0, 0, 0);
    pid_t pids[2];
    for (int i = 0; i < 2; i++)
        if ((pids[i] = FORK()) == 0)
            _exit(line()[0]);
    for (int i = 0; i < 2; i++)
        wait_asleep(pids[i]);
    type("1\n2\n");
    int a = WEXITSTATUS(WAIT(pids[0])), b = WEXITSTATUS(WAIT(pids[1]));
    CHECK_EQ(a + b, '1' + '2');
}

TEST(write_to_a_stalled_terminal_blocks_until_read) {
    open_pair();
    raw(1, 0);
    pid_t pid = FORK();
    if (pid == 0) {
        static char big[100000];
        memset(big, 'w', sizeof big);
        for (size_t done = 0; done < sizeof big;)
            done += (size_t)OK(write(slave, big + done, sizeof big - done));
        _exit(0);
    }
    wait_asleep(pid);
    CHECK_EQ(OK(waitpid(pid, NULL, WNOHANG)), 0);
    static char buffer[4096];
    size_t got = 0;
    while (got < 100000)
        got += (size_t)OK(read(master, buffer, sizeof buffer));
    CHECK_EQ(got, 100000);
    EXITS(pid, 0);
}

/* ---- vhangup(2) ----------------------------------------------------------------------------- */

static _Atomic int hung_up;
static void on_hang_up(int number UNUSED) { hung_up++; }

TEST(vhangup_hangs_up_the_terminal_of_the_session) {
    if (geteuid() != 0)
        SKIP("not root");
    open_pair();
    pid_t pid = FORK();
    if (pid == 0) {
        OK(setsid());
        OK(vhangup()); /* without a terminal there is nothing to do */
        OK(ioctl(slave, TIOCSCTTY, 0));
        struct sigaction act = {.sa_handler = on_hang_up};
        OK(sigaction(SIGHUP, &act, NULL));
        OK(vhangup());
        EVENTUALLY(hung_up > 0);
        char c;
        CHECK_EQ(OK(read(slave, &c, 1)), 0);
        ERR(write(slave, "x", 1), EIO);
        ERR(open("/dev/tty", O_RDWR), ENXIO);
        _exit(0);
    }
    EXITS(pid, 0);
    IN_CHILD({
        BECOME(NOBODY, NOBODY);
        ERR(vhangup(), EPERM);
    });
}
