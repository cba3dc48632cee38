/* TCGETA, TCSETA, TCSETAW, TCSETAF: the terminal settings of System V (ioctl_tty(2)). */
#define AREA "termio"
#include "harness.h"
#include <sys/ioctl.h>
#include <termios.h>

#ifndef TCGETA
#define TCGETA 0x5405
#define TCSETA 0x5406
#define TCSETAW 0x5407
#define TCSETAF 0x5408
#endif

struct old_settings { /* struct termio */
    unsigned short c_iflag, c_oflag, c_cflag, c_lflag;
    unsigned char c_line, c_cc[8];
};
/* c_cc of a terminal as the kernel has it. */
struct settings {
    unsigned c_iflag, c_oflag, c_cflag, c_lflag;
    unsigned char c_line, c_cc[19];
};

static int master, slave;
static void open_pair(void) {
    int unlock = 0, number;
    char path[32];
    master = OK(open("/dev/ptmx", O_RDWR | O_NOCTTY));
    OK(ioctl(master, TIOCSPTLCK, &unlock));
    OK(ioctl(master, TIOCGPTN, &number));
    snprintf(path, sizeof path, "/dev/pts/%d", number);
    slave = OK(open(path, O_RDWR | O_NOCTTY));
}

TEST(tcgeta_is_the_low_half) {
    open_pair();
    struct settings now;
    struct old_settings old;
    memset(&old, 0xee, sizeof old);
    OK(ioctl(slave, TCGETS, &now));
    OK(ioctl(slave, TCGETA, &old));
    CHECK_EQ(old.c_iflag, now.c_iflag & 0xffff);
    CHECK_EQ(old.c_oflag, now.c_oflag & 0xffff);
    CHECK_EQ(old.c_cflag, now.c_cflag & 0xffff);
    CHECK_EQ(old.c_lflag, now.c_lflag & 0xffff);
    CHECK_EQ(old.c_line, now.c_line);
    CHECK(memcmp(old.c_cc, now.c_cc, 8) == 0);
    OK(ioctl(master, TCGETA, &old)); /* the master tells of the same settings */
    CHECK_EQ(old.c_lflag, now.c_lflag & 0xffff);
}

TEST(tcseta_leaves_the_rest_alone) {
    open_pair();
    struct settings before, after;
    struct old_settings old;
    OK(ioctl(slave, TCGETS, &before));
    before.c_cc[10] = 'x'; /* VDISCARD or so: not among the eight */
    before.c_iflag |= 0x10000;
    OK(ioctl(slave, TCSETS, &before));
    OK(ioctl(slave, TCGETA, &old));
    old.c_lflag &= (unsigned short)~(ICANON | ECHO);
    old.c_cc[VINTR] = 'q';
    OK(ioctl(slave, TCSETA, &old));
    OK(ioctl(slave, TCGETS, &after));
    CHECK_EQ(after.c_lflag, before.c_lflag & ~(unsigned)(ICANON | ECHO));
    CHECK_EQ(after.c_iflag, before.c_iflag);
    CHECK_EQ(after.c_cc[VINTR], 'q');
    CHECK_EQ(after.c_cc[10], 'x');
    OK(write(master, "a", 1)); /* raw now: arrives without a line's end */
    char c;
    CHECK_EQ(OK(read(slave, &c, 1)), 1);
    CHECK_EQ(c, 'a');
}

TEST(tcsetaf_discards_what_was_typed) {
    open_pair();
    struct old_settings old;
    OK(ioctl(slave, TCGETA, &old));
    OK(write(master, "one\n", 4));
    int waiting = 0;
    EVENTUALLY((OK(ioctl(slave, FIONREAD, &waiting)), waiting == 4));
    OK(ioctl(slave, TCSETAW, &old));
    OK(ioctl(slave, FIONREAD, &waiting));
    CHECK_EQ(waiting, 4);
    OK(ioctl(slave, TCSETAF, &old));
    OK(ioctl(slave, FIONREAD, &waiting));
    CHECK_EQ(waiting, 0);
}

TEST(termio_errors) {
    open_pair();
    struct old_settings old;
    ERR(ioctl(slave, TCGETA, BAD), EFAULT);
    ERR(ioctl(slave, TCSETA, BAD), EFAULT);
    ERR(ioctl(slave, TCSETAW, BAD), EFAULT);
    ERR(ioctl(slave, TCSETAF, BAD), EFAULT);
    ERR(ioctl(-1, TCGETA, &old), EBADF);
    int p[2];
    OK(pipe(p));
    ERR(ioctl(p[0], TCGETA, &old), ENOTTY);
    ERR(ioctl(OK(open("f", O_RDWR | O_CREAT, 0600)), TCGETA, &old), ENOTTY);
    OK(close(master));
    ERR(ioctl(slave, TCGETA, &old), EIO);
}
