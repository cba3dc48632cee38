/* The kernel's log: syslog(2), /dev/kmsg, /proc/kmsg, and who may read it. */
#define AREA "kmsg"
#include "harness.h"
#include <poll.h>
#include <sys/file.h>
#include <sys/uio.h>

#define RESTRICT "/proc/sys/kernel/dmesg_restrict"
#define DEVKMSG "/proc/sys/kernel/printk_devkmsg"
#define PRINTK "/proc/sys/kernel/printk"

static int syslog_(int kind, void *buffer, int length) {
    return (int)syscall(SYS_syslog, kind, buffer, length);
}

static void needs_log(void) {
    int fd = open("/dev/kmsg", O_RDWR | O_NONBLOCK | O_CLOEXEC);
    if (fd == -1)
        SKIP("no /dev/kmsg here: %s", strerror(errno));
    close(fd);
}

/* A word that no other case and no other run writes. */
static const char *own_word(void) {
    static char word[64];
    if (!word[0])
        snprintf(word, sizeof word, "kmsg-test-%d-%lld", getpid(),
                 (long long)now_ns(CLOCK_MONOTONIC));
    return word;
}

static void say(const char *text) {
    int fd = OK(open("/dev/kmsg", O_WRONLY | O_CLOEXEC));
    CHECK_EQ(OK(write(fd, text, strlen(text))), strlen(text));
    close(fd);
}

/* Takes turns with this program's other runs on this machine: all who read by syslog(2) have one
 * place in the log. */
static void in_turn(void) {
    int fd = OK(open("/tmp/hayate-kmsg-turn", O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    OK(flock(fd, LOCK_EX));
}

/* Reads the next record that is left: a message of the kernel may push out another one. */
static ssize_t read_record(int fd, char *record, size_t size) {
    ssize_t n;
    do
        n = read(fd, record, size);
    while (n == -1 && errno == EPIPE);
    return n;
}

/* Reads records until one contains the word; returns its number. */
static unsigned long long find_record(int fd, const char *word, char *record, size_t size) {
    for (;;) {
        ssize_t n = read_record(fd, record, size - 1);
        if (n == -1) FAIL("no record with %s: %s", word, strerror(errno));
        record[n] = 0;
        if (strstr(record, word)) break;
    }
    unsigned long long sequence;
    CHECK_EQ(sscanf(record, "%*u,%llu,", &sequence), 1);
    return sequence;
}

TEST(a_record_is_read_as_it_was_written) {
    needs_log();
    char text[256], record[8192], want[300];
    int fd = OK(open("/dev/kmsg", O_RDONLY | O_NONBLOCK | O_CLOEXEC));
    CHECK_EQ(OK(lseek(fd, 0, SEEK_END)), 0);
    snprintf(text, sizeof text, "<14>%s a\\b\tc\xff\n", own_word());
    say(text);
    unsigned long long first = find_record(fd, own_word(), record, sizeof record);
    /* PRIORITY,NUMBER,MICROSECONDS,-;TEXT with what does not print escaped, and a newline. */
    CHECK(strncmp(record, "14,", 3) == 0);
    snprintf(want, sizeof want, ",-;%s a\\x5cb\\x09c\\xff\n", own_word());
    char *flags = strchr(strchr(strchr(record, ',') + 1, ',') + 1, ',');
    /* Kernels with CONFIG_PRINTK_CALLER have one field more. */
    if (strncmp(flags, ",-,caller", 9) != 0) CHECK_STR(flags, want);
    long long when = atoll(strchr(strchr(record, ',') + 1, ',') + 1);
    CHECK(when > 0 && when <= now_ns(CLOCK_BOOTTIME) / 1000 + 1000000);
    /* The next one has the next number at the earliest. */
    snprintf(text, sizeof text, "%s second\n", own_word());
    say(text);
    CHECK(find_record(fd, own_word(), record, sizeof record) > first);
    close(fd);
}

TEST(priorities_of_written_records) {
    needs_log();
    static const struct {
        const char *prefix;
        unsigned want;
    } cases[] = {
        {"<3>", 8 + 3},    /* the kernel's facility is not for programs */
        {"<30>", 30},      /* daemon.info */
        {"<2047>", 2047},  /* the last facility */
        {"<2055>", 8 + 7}, /* eight bits more than there are: facility 0 again */
        {"<>", 8},         /* no number is 0 */
    };
    char text[256], record[8192];
    int fd = OK(open("/dev/kmsg", O_RDONLY | O_NONBLOCK | O_CLOEXEC));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        OK(lseek(fd, 0, SEEK_END));
        snprintf(text, sizeof text, "%s%s\n", cases[i].prefix, own_word());
        say(text);
        find_record(fd, own_word(), record, sizeof record);
        CHECK_EQ(atoi(record), cases[i].want);
        CHECK(!strchr(record, '<'));
    }
    /* Without a prefix: the facility of programs, the level of kernel.printk's second number. */
    char printk[64];
    CHECK(get_file(PRINTK, printk, sizeof printk) > 0);
    int level;
    CHECK_EQ(sscanf(printk, "%*d %d", &level), 1);
    OK(lseek(fd, 0, SEEK_END));
    snprintf(text, sizeof text, "%s\n", own_word());
    say(text);
    find_record(fd, own_word(), record, sizeof record);
    CHECK_EQ(atoi(record), 8 + level);
    /* What is no prefix is text. */
    OK(lseek(fd, 0, SEEK_END));
    snprintf(text, sizeof text, "<x>%s\n", own_word());
    say(text);
    find_record(fd, own_word(), record, sizeof record);
    CHECK(strstr(record, ";<x>kmsg-test"));
    close(fd);
}

TEST(reading_waits_and_poll_tells) {
    needs_log();
    char text[256], record[8192];
    int fd = OK(open("/dev/kmsg", O_RDONLY | O_CLOEXEC));
    OK(lseek(fd, 0, SEEK_END));
    snprintf(text, sizeof text, "%s\n", own_word());
    pid_t reader = FORK();
    if (reader == 0) {
        find_record(fd, own_word(), record, sizeof record);
        _exit(0);
    }
    wait_asleep(reader);
    say(text);
    EXITS(reader, 0);

    int other = OK(open("/dev/kmsg", O_RDONLY | O_NONBLOCK | O_CLOEXEC));
    /* Others write into this log, too: it may take a moment until nothing is there. */
    struct pollfd p = {other, POLLIN | POLLPRI, 0};
    EVENTUALLY((lseek(other, 0, SEEK_END), OK(poll(&p, 1, 0)) == 0));
    EVENTUALLY(read(other, record, sizeof record) == -1 && errno == EAGAIN);
    pid_t writer = FORK();
    if (writer == 0) {
        msleep(100);
        say(text);
        _exit(0);
    }
    CHECK_EQ(OK(poll(&p, 1, 10000)), 1);
    CHECK_EQ(p.revents, POLLIN);
    CHECK(read(other, record, sizeof record) > 0);
    EXITS(writer, 0);
    close(fd);
    close(other);
}

TEST(a_signal_ends_a_waiting_read) {
    needs_log();
    int fd = OK(open("/dev/kmsg", O_RDONLY | O_CLOEXEC));
    pid_t reader = FORK();
    if (reader == 0) {
        char record[8192];
        for (;;) {
            OK(lseek(fd, 0, SEEK_END));
            (void)!read(fd, record, sizeof record);
        }
    }
    wait_asleep(reader);
    OK(kill(reader, SIGTERM));
    KILLED(reader, SIGTERM);
    close(fd);
}

TEST(places_in_the_log) {
    needs_log();
    char record[8192], text[256];
    int fd = OK(open("/dev/kmsg", O_RDONLY | O_NONBLOCK | O_CLOEXEC));
    snprintf(text, sizeof text, "%s\n", own_word());
    say(text);
    /* An open file begins at the oldest record, and has a place of its own. */
    find_record(fd, own_word(), record, sizeof record);
    int again = OK(dup(fd));
    OK(lseek(again, 0, SEEK_SET));
    find_record(fd, own_word(), record, sizeof record);
    close(again);
    OK(lseek(fd, 0, SEEK_DATA));
    find_record(fd, own_word(), record, sizeof record);
    ERR(lseek(fd, 1, SEEK_SET), ESPIPE);
    ERR(lseek(fd, -1, SEEK_END), ESPIPE);
    ERR(lseek(fd, 0, SEEK_CUR), EINVAL);
    ERR(lseek(fd, 0, SEEK_HOLE), EINVAL);
    close(fd);
}

TEST(records_that_do_not_arrive) {
    needs_log();
    char record[8192], text[256];
    int fd = OK(open("/dev/kmsg", O_RDONLY | O_NONBLOCK | O_CLOEXEC));
    OK(lseek(fd, 0, SEEK_END));
    for (int i = 0; i < 3; i++) {
        snprintf(text, sizeof text, "%s %d\n", own_word(), i);
        say(text);
    }
    find_record(fd, own_word(), record, sizeof record);
    /* A buffer that is too small, or memory that is not there: the record counts as read. */
    ERR(read(fd, record, 5), EINVAL);
    ERR(read(fd, BAD, sizeof record), EFAULT);
    snprintf(text, sizeof text, "%s 3\n", own_word());
    say(text);
    find_record(fd, own_word(), record, sizeof record);
    close(fd);
    int out = OK(open("/dev/kmsg", O_WRONLY | O_CLOEXEC));
    ERR(write(out, BAD, 10), EFAULT);
    static char large[4096];
    memset(large, 'x', sizeof large);
    ERR(write(out, large, sizeof large), EINVAL);
    CHECK_EQ(OK(write(out, large, 900)), 900);
    struct iovec parts[2] = {{(char *)own_word(), strlen(own_word())}, {"-in-parts\n", 10}};
    CHECK_EQ(OK(writev(out, parts, 2)), strlen(own_word()) + 10);
    ERR(read(out, record, sizeof record), EBADF);
    close(out);
    fd = OK(open("/dev/kmsg", O_RDONLY | O_NONBLOCK | O_CLOEXEC));
    find_record(fd, "-in-parts", record, sizeof record);
    close(fd);
}

/* Fills the log until its oldest records are gone: only where that hurts nobody. */
TEST_TIMES(a_reader_hears_of_records_that_are_gone, 3) {
    needs_log();
    NEEDS_OWN_MACHINE();
    int size = OK(syslog_(10, NULL, 0));
    if (size > 1 << 19)
        SKIP("a log of %d bytes is not filled here", size);
    SET_SYSCTL(DEVKMSG, "on\n");
    char text[1024], record[8192];
    int fd = OK(open("/dev/kmsg", O_RDONLY | O_NONBLOCK | O_CLOEXEC));
    int out = OK(open("/dev/kmsg", O_WRONLY | O_CLOEXEC));
    CHECK(OK(read_record(fd, record, sizeof record)) > 0);
    unsigned long long before, after;
    CHECK_EQ(sscanf(record, "%*u,%llu,", &before), 1);
    memset(text, 'x', sizeof text);
    memcpy(text, "<15>", 4); /* not shown on the console */
    for (int written = 0; written < 2 * size; written += 900)
        CHECK_EQ(OK(write(out, text, 900)), 900);
    struct pollfd p = {fd, POLLIN | POLLPRI, 0};
    CHECK_EQ(OK(poll(&p, 1, 0)), 1);
    CHECK_EQ(p.revents, POLLIN | POLLERR | POLLPRI);
    ERR(read(fd, record, sizeof record), EPIPE);
    CHECK(OK(read_record(fd, record, sizeof record)) > 0);
    CHECK_EQ(sscanf(record, "%*u,%llu,", &after), 1);
    CHECK(after > before + 1);
    close(fd);
    close(out);
}

TEST(each_open_file_may_write_so_much) {
    needs_log();
    NEEDS_OWN_MACHINE();
    SET_SYSCTL(DEVKMSG, "ratelimit\n");
    char text[256], record[8192];
    int fd = OK(open("/dev/kmsg", O_RDONLY | O_NONBLOCK | O_CLOEXEC));
    OK(lseek(fd, 0, SEEK_END));
    int out = OK(open("/dev/kmsg", O_WRONLY | O_CLOEXEC));
    int n = snprintf(text, sizeof text, "<15>%s\n", own_word());
    int64_t begun = now_ns(CLOCK_MONOTONIC);
    for (int i = 0; i < 20; i++)
        CHECK_EQ(OK(write(out, text, n)), n); /* a success, also of those that are not kept */
    bool quick = now_ns(CLOCK_MONOTONIC) - begun < 4000 * MS;
    close(out);
    int found = 0;
    ssize_t got;
    while ((got = read(fd, record, sizeof record - 1)) != -1 || errno == EPIPE) {
        if (got == -1) continue;
        record[got] = 0;
        found += strstr(record, own_word()) != NULL;
    }
    CHECK(errno == EAGAIN);
    if (quick) CHECK_EQ(found, 10);
    close(fd);
    SET_SYSCTL(DEVKMSG, "off\n");
    ERR(open("/dev/kmsg", O_RDONLY), EPERM);
    ERR(open("/dev/kmsg", O_WRONLY), EPERM);
    fd = OK(open(DEVKMSG, O_WRONLY | O_CLOEXEC));
    ERR(write(fd, "offx\n", 5), EINVAL);
    close(fd);
}

TEST(syslog_reads_what_was_not_read) {
    needs_log();
    in_turn();
    char text[256], *all = OK(malloc(1 << 20));
    /* Until nothing is left; then the next read gets what comes, line by line. */
    while (OK(syslog_(9, NULL, 0)) > 0) CHECK(OK(syslog_(2, all, 1 << 20)) > 0);
    snprintf(text, sizeof text, "<29>%s one\n", own_word());
    say(text);
    CHECK(OK(syslog_(9, NULL, 0)) > (int)strlen(own_word()));
    /* In parts: a buffer smaller than the line. */
    char line[512] = "";
    for (int i = 0; i < 400 && !strstr(line, " one\n"); i++) {
        char piece[4] = "";
        int n = OK(syslog_(2, piece, 3));
        CHECK(n > 0 && n <= 3);
        if (strlen(line) > 400) line[0] = 0;
        strcat(line, piece);
    }
    char *found = strstr(line, "<29>[");
    CHECK(found);
    double when;
    CHECK_EQ(sscanf(found, "<29>[%lf]", &when), 1);
    CHECK(strstr(found, own_word()));
    /* It waits for the first record, and returns it. */
    while (OK(syslog_(9, NULL, 0)) > 0) CHECK(OK(syslog_(2, all, 1 << 20)) > 0);
    pid_t reader = FORK();
    if (reader == 0) {
        for (;;) {
            int n = OK(syslog_(2, all, (1 << 20) - 1));
            CHECK(n > 0);
            all[n] = 0;
            if (strstr(all, " two\n")) _exit(0);
        }
    }
    wait_asleep(reader);
    snprintf(text, sizeof text, "%s two\n", own_word());
    say(text);
    EXITS(reader, 0);
}

TEST(syslog_reads_the_newest_and_clears) {
    needs_log();
    NEEDS_OWN_MACHINE(); /* clearing hides records from others' dmesg */
    char text[256], *all = OK(malloc(1 << 20));
    for (int i = 0; i < 3; i++) {
        snprintf(text, sizeof text, "<14>%s number %d\n", own_word(), i);
        say(text);
    }
    int n = OK(syslog_(3, all, (1 << 20) - 1));
    all[n] = 0;
    CHECK(strstr(all, " number 0\n") && strstr(all, " number 2\n"));
    CHECK_EQ(all[0], '<');
    /* A smaller buffer gets the newest whole records. */
    int most = n / 2;
    char *half = OK(malloc(most + 1));
    int m = OK(syslog_(3, half, most));
    CHECK(m <= most);
    half[m] = 0;
    CHECK_EQ(half[0], '<');
    CHECK(strstr(half, " number 2\n"));
    CHECK_EQ(half[m - 1], '\n');
    CHECK_EQ(OK(syslog_(3, half, 3)), 0);
    /* What was cleared is not read again by this call; the records are still there. */
    n = OK(syslog_(4, all, (1 << 20) - 1));
    all[n] = 0;
    CHECK(strstr(all, " number 0\n"));
    n = OK(syslog_(3, all, (1 << 20) - 1));
    all[n] = 0;
    CHECK(!strstr(all, own_word()));
    snprintf(text, sizeof text, "%s after\n", own_word());
    say(text);
    n = OK(syslog_(3, all, (1 << 20) - 1));
    all[n] = 0;
    CHECK(strstr(all, " after\n") && !strstr(all, " number 2\n"));
    OK(syslog_(5, NULL, 0));
    n = OK(syslog_(3, all, (1 << 20) - 1));
    all[n] = 0;
    CHECK(!strstr(all, own_word()));
    char record[8192];
    int fd = OK(open("/dev/kmsg", O_RDONLY | O_NONBLOCK | O_CLOEXEC));
    OK(lseek(fd, 0, SEEK_DATA));
    ssize_t got;
    while ((got = read(fd, record, sizeof record - 1)) > 0) {
        record[got] = 0;
        CHECK(!strstr(record, own_word()));
    }
    OK(lseek(fd, 0, SEEK_SET));
    find_record(fd, " number 0", record, sizeof record);
    close(fd);
}

TEST(syslog_errors) {
    needs_log();
    char text[64];
    say("a record\n");
    ERR(syslog_(11, text, 10), EINVAL);
    ERR(syslog_(-1, text, 10), EINVAL);
    ERR(syslog_(2, NULL, 10), EINVAL);
    ERR(syslog_(3, text, -1), EINVAL);
    CHECK_EQ(OK(syslog_(3, text, 0)), 0);
    CHECK_EQ(OK(syslog_(2, text, 0)), 0);
    ERR(syslog_(3, BAD, 1 << 20), EFAULT);
    ERR(syslog_(8, NULL, 0), EINVAL);
    ERR(syslog_(8, NULL, 9), EINVAL);
    CHECK_EQ(OK(syslog_(0, NULL, 0)), 0);
    CHECK_EQ(OK(syslog_(1, NULL, 0)), 0);
    CHECK(OK(syslog_(10, NULL, 0)) >= 4096);
}

static void console_level(int *level, int *least) {
    char printk[64];
    CHECK(get_file(PRINTK, printk, sizeof printk) > 0);
    CHECK_EQ(sscanf(printk, "%d %*d %d", level, least), 2);
}

TEST(the_level_of_the_console) {
    needs_log();
    NEEDS_OWN_MACHINE();
    SET_SYSCTL(PRINTK, "4 4 1 7\n");
    int level, least;
    OK(syslog_(8, NULL, 6));
    console_level(&level, &least);
    CHECK_EQ(level, 6);
    CHECK_EQ(least, 1);
    OK(syslog_(6, NULL, 0));
    OK(syslog_(6, NULL, 0));
    console_level(&level, &least);
    CHECK_EQ(level, 1);
    OK(syslog_(7, NULL, 0));
    console_level(&level, &least);
    CHECK_EQ(level, 6);
    OK(syslog_(7, NULL, 0)); /* nothing is saved any more */
    console_level(&level, &least);
    CHECK_EQ(level, 6);
    /* Not below the least, which a file sets. */
    SET_SYSCTL(PRINTK, "5 4 3\n");
    OK(syslog_(8, NULL, 2));
    console_level(&level, &least);
    CHECK_EQ(level, 3);
    CHECK_EQ(least, 3);
    int fd = OK(open(PRINTK, O_WRONLY | O_CLOEXEC));
    ERR(write(fd, "five\n", 5), EINVAL);
    close(fd);
}

TEST(who_may_read) {
    needs_log();
    NEEDS_OWN_MACHINE();
    say("a record\n");
    SET_SYSCTL(RESTRICT, "1\n");
    static char text[1 << 16];
    IN_CHILD({
        BECOME(NOBODY, NOBODY);
        ERR(syslog_(3, text, sizeof text), EPERM);
        ERR(syslog_(10, NULL, 0), EPERM);
        ERR(syslog_(9, NULL, 0), EPERM);
        ERR(syslog_(99, NULL, 0), EPERM);
        ERR(open("/dev/kmsg", O_RDONLY), EPERM);
        ERR(open("/dev/kmsg", O_WRONLY), EACCES);
        ERR(open("/proc/kmsg", O_RDONLY), EACCES);
    });
    SET_SYSCTL(RESTRICT, "0\n");
    IN_CHILD({
        BECOME(NOBODY, NOBODY);
        CHECK(OK(syslog_(3, text, sizeof text)) > 0);
        CHECK(OK(syslog_(10, NULL, 0)) > 0);
        ERR(syslog_(4, text, sizeof text), EPERM);
        ERR(syslog_(5, NULL, 0), EPERM);
        ERR(syslog_(2, text, sizeof text), EPERM);
        ERR(syslog_(8, NULL, 4), EPERM);
        ERR(syslog_(0, NULL, 0), EPERM);
        int fd = OK(open("/dev/kmsg", O_RDONLY | O_NONBLOCK));
        CHECK(read(fd, text, sizeof text) > 0);
    });
    int fd = OK(open(RESTRICT, O_WRONLY | O_CLOEXEC));
    ERR(write(fd, "2\n", 2), EINVAL);
    close(fd);
}

TEST(proc_kmsg_is_syslog_as_a_file) {
    needs_log();
    in_turn();
    int fd = open("/proc/kmsg", O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd == -1) SKIP("no /proc/kmsg here: %s", strerror(errno));
    char text[256], *all = OK(malloc(1 << 20));
    ssize_t n;
    while ((n = read(fd, all, 1 << 20)) > 0) {}
    CHECK(n == -1 && errno == EAGAIN);
    snprintf(text, sizeof text, "<12>%s file\n", own_word());
    say(text);
    struct pollfd p = {fd, POLLIN, 0};
    do {
        CHECK_EQ(OK(poll(&p, 1, 10000)), 1);
        CHECK_EQ(p.revents, POLLIN);
        n = OK(read(fd, all, (1 << 20) - 1));
        all[n] = 0;
    } while (!strstr(all, " file\n"));
    CHECK(strstr(all, "<12>["));
    close(fd);
}
