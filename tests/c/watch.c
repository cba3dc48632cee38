/* Watching files: which events inotify gives for which call, its flags and limits, and what fdinfo
 * shows of descriptors that wait (inotify(7), proc(5)). */
#define AREA "watch"
#include "harness.h"
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <sys/xattr.h>

static int in;

static const struct {
    uint32_t bit;
    const char *name;
} names[] = {
    {IN_ACCESS, "ACCESS"},
    {IN_MODIFY, "MODIFY"},
    {IN_ATTRIB, "ATTRIB"},
    {IN_CLOSE_WRITE, "CLOSE_WRITE"},
    {IN_CLOSE_NOWRITE, "CLOSE_NOWRITE"},
    {IN_OPEN, "OPEN"},
    {IN_MOVED_FROM, "MOVED_FROM"},
    {IN_MOVED_TO, "MOVED_TO"},
    {IN_CREATE, "CREATE"},
    {IN_DELETE, "DELETE"},
    {IN_DELETE_SELF, "DELETE_SELF"},
    {IN_MOVE_SELF, "MOVE_SELF"},
    {IN_UNMOUNT, "UNMOUNT"},
    {IN_Q_OVERFLOW, "Q_OVERFLOW"},
    {IN_IGNORED, "IGNORED"},
    {IN_ISDIR, "DIR"},
};

/* The events that wait, as text: "MASK|MASK:NAME" each, with a blank between two. */
static const char *events(void) {
    static char text[4096], buffer[8192] __attribute__((aligned(8)));
    size_t end = 0;
    text[0] = 0;
    ssize_t have;
    while ((have = read(in, buffer, sizeof buffer)) > 0) {
        for (ssize_t at = 0; at < have;) {
            const struct inotify_event *e = (const struct inotify_event *)(buffer + at);
            at += (ssize_t)(sizeof *e + e->len);
            if (end)
                end += (size_t)snprintf(text + end, sizeof text - end, " ");
            const char *between = "";
            for (size_t i = 0; i < sizeof names / sizeof *names; i++)
                if (e->mask & names[i].bit) {
                    end += (size_t)snprintf(text + end, sizeof text - end, "%s%s", between,
                                            names[i].name);
                    between = "|";
                }
            if (e->len)
                end += (size_t)snprintf(text + end, sizeof text - end, ":%s", e->name);
        }
    }
    CHECK_EQ(errno, EAGAIN);
    return text;
}

static void saw(int line, const char *what, const char *want) {
    const char *got = events();
    if (getenv("SHOW"))
        fprintf(stderr, "%d %s -> \"%s\"\n", line, what, got);
    else if (strcmp(got, want) != 0)
        hy_fail(__FILE__, line, "%s gave \"%s\", not \"%s\"", what, got, want);
}
/* As saw(), where Linux' order changed (6.5 tells of the opening before it truncates). */
static void saw_either(int line, const char *one, const char *other) {
    const char *got = events();
    if (strcmp(got, one) != 0 && strcmp(got, other) != 0)
        hy_fail(__FILE__, line, "gave \"%s\", not \"%s\" or \"%s\"", got, one, other);
}
/* The call succeeds and makes these events. */
#define SEES(call, want)                                                                           \
    do {                                                                                           \
        OK(call);                                                                                  \
        saw(__LINE__, #call, want);                                                                \
    } while (0)

static int watch(const char *path, uint32_t mask) {
    return OK(inotify_add_watch(in, path, mask));
}

/* ---- which events ---------------------------------------------------------------------------- */

TEST(events_of_a_directory_that_is_watched) {
    OK(mkdir("d", 0755));
    OK(mkdir("other", 0755));
    in = OK(inotify_init1(IN_NONBLOCK));
    watch("d", IN_ALL_EVENTS);
    int fd;
    SEES(fd = open("d/f", O_RDWR | O_CREAT, 0644), "CREATE:f OPEN:f");
    SEES(write(fd, "abc", 3), "MODIFY:f");
    SEES(pwrite(fd, "x", 1, 1), "MODIFY:f");
    SEES(ftruncate(fd, 2), "MODIFY:f");
    SEES(close(fd), "CLOSE_WRITE:f");
    OK(fd = open("d/f", O_WRONLY | O_TRUNC));
    saw_either(__LINE__, "MODIFY:f OPEN:f", "OPEN:f MODIFY:f");
    SEES(close(fd), "CLOSE_WRITE:f");
    OK(fd = open("d/f", O_WRONLY | O_CREAT | O_TRUNC, 0644));
    saw_either(__LINE__, "MODIFY:f OPEN:f", "OPEN:f MODIFY:f");
    SEES(close(fd), "CLOSE_WRITE:f");
    SEES(truncate("d/f", 1), "MODIFY:f");
    SEES(chmod("d/f", 0600), "ATTRIB:f");
    SEES(chown("d/f", getuid(), (gid_t)-1), "ATTRIB:f");
    SEES(link("d/f", "d/g"), "CREATE:g");
    SEES(unlink("d/g"), "DELETE:g");
    SEES(symlink("f", "d/s"), "CREATE:s");
    SEES(unlink("d/s"), "DELETE:s");
    SEES(mkfifo("d/p", 0600), "CREATE:p");
    SEES(mkdir("d/sub", 0755), "CREATE|DIR:sub");
    SEES(chmod("d/sub", 0700), "ATTRIB|DIR:sub");
    SEES(rmdir("d/sub"), "DELETE|DIR:sub");
    SEES(rename("d/f", "d/h"), "MOVED_FROM:f MOVED_TO:h");
    SEES(rename("d/h", "other/h"), "MOVED_FROM:h");
    SEES(rename("other/h", "d/p"), "MOVED_TO:p");
    SEES(chmod("d", 0700), "ATTRIB|DIR");
    SEES(mkdir("d/sub", 0755), "CREATE|DIR:sub");
    SEES(rename("d", "e"), "MOVE_SELF");
    OK(unlink("e/p"));
    OK(rmdir("e/sub"));
    events();
    SEES(rmdir("e"), "DELETE_SELF IGNORED");
}

TEST(events_of_reading_a_directory) {
    OK(mkdir("d", 0755));
    PUT("d/f", "");
    in = OK(inotify_init1(IN_NONBLOCK));
    watch("d", IN_ALL_EVENTS);
    int fd;
    char entries[1024];
    SEES(fd = open("d", O_RDONLY | O_DIRECTORY), "OPEN|DIR");
    SEES(syscall(SYS_getdents64, fd, entries, sizeof entries), "ACCESS|DIR");
    SEES(fchdir(fd), "");
    SEES(close(fd), "CLOSE_NOWRITE|DIR");
    SEES(open(".", O_PATH), "");
}

TEST(events_of_times_and_attributes) {
    PUT("f", "x");
    in = OK(inotify_init1(IN_NONBLOCK));
    watch("f", IN_ALL_EVENTS);
    struct timespec both[2] = {{1, 0}, {2, 0}};
    struct timespec accessed[2] = {{3, 0}, {0, UTIME_OMIT}};
    struct timespec modified[2] = {{0, UTIME_OMIT}, {4, 0}};
    struct timespec neither[2] = {{0, UTIME_OMIT}, {0, UTIME_OMIT}};
    SEES(utimensat(AT_FDCWD, "f", both, 0), "ATTRIB");
    SEES(utimensat(AT_FDCWD, "f", accessed, 0), "ACCESS");
    SEES(utimensat(AT_FDCWD, "f", modified, 0), "MODIFY");
    SEES(utimensat(AT_FDCWD, "f", neither, 0), "");
    if (setxattr("f", "user.a", "b", 1, 0) == -1)
        CHECK_EQ(errno, EOPNOTSUPP); /* a tmpfs of 6.1 */
    else {
        saw(__LINE__, "setxattr", "ATTRIB");
        SEES(removexattr("f", "user.a"), "ATTRIB");
    }
}

TEST(events_of_every_way_to_read_and_write) {
    PUT("a", "0123456789");
    PUT("b", "0123456789");
    in = OK(inotify_init1(IN_NONBLOCK));
    int a = OK(open("a", O_RDONLY)), b = OK(open("b", O_RDWR)), p[2];
    OK(pipe(p));
    watch("a", IN_ACCESS);
    watch("b", IN_MODIFY);
    char c[4];
    struct iovec v = {c, 2};
    SEES(read(a, c, 1), "ACCESS");
    SEES(pread(a, c, 1, 0), "ACCESS");
    SEES(readv(a, &v, 1), "ACCESS");
    SEES(read(a, c, 0), "");
    SEES(pread(a, c, 1, 100), "");
    SEES(writev(b, &v, 1), "MODIFY");
    SEES(write(b, c, 0), "");
    /* Before 6.5 the write within tells of itself as well. */
    OK(syscall(SYS_sendfile, b, a, NULL, 2L));
    saw_either(__LINE__, "ACCESS MODIFY", "MODIFY ACCESS MODIFY");
    OK(syscall(SYS_copy_file_range, a, NULL, b, NULL, 2L, 0));
    saw_either(__LINE__, "ACCESS MODIFY", "MODIFY ACCESS MODIFY");
    OK(splice(a, NULL, p[1], NULL, 2, 0));
    saw_either(__LINE__, "ACCESS", "");
    OK(splice(p[0], NULL, b, NULL, 2, 0));
    saw_either(__LINE__, "MODIFY", "");
    SEES(fallocate(b, 0, 0, 100), "MODIFY");
    SEES(lseek(a, 0, SEEK_SET), "");
}

TEST(events_of_a_file_that_is_removed_while_open) {
    PUT("f", "x");
    in = OK(inotify_init1(IN_NONBLOCK));
    int fd = OK(open("f", O_RDWR));
    watch("f", IN_ALL_EVENTS);
    SEES(unlink("f"), "ATTRIB");
    SEES(write(fd, "y", 1), "MODIFY");
    SEES(close(fd), "CLOSE_WRITE DELETE_SELF IGNORED");
}

TEST(events_of_a_file_that_is_replaced) {
    PUT("f", "x");
    PUT("g", "y");
    in = OK(inotify_init1(IN_NONBLOCK));
    watch("g", IN_ALL_EVENTS);
    SEES(rename("f", "g"), "ATTRIB DELETE_SELF IGNORED");
    watch("g", IN_ALL_EVENTS);
    SEES(rename("g", "h"), "MOVE_SELF");
}

TEST(events_of_an_exchange) {
    OK(mkdir("d", 0755));
    OK(mkdir("e", 0755));
    OK(mkdir("e/sub", 0755));
    PUT("d/f", "x");
    PUT("d/g", "y");
    in = OK(inotify_init1(IN_NONBLOCK));
    watch("d", IN_ALL_EVENTS);
#define EXCHANGE(one, other) syscall(SYS_renameat2, AT_FDCWD, one, AT_FDCWD, other, 2u)
    /* Each of the two is told to move. */
    SEES(EXCHANGE("d/f", "d/g"), "MOVED_FROM:f MOVED_TO:g MOVED_FROM:g MOVED_TO:f");
    SEES(EXCHANGE("d/f", "e/sub"), "MOVED_FROM:f MOVED_TO|DIR:f");
    SEES(EXCHANGE("e/sub", "d/f"), "MOVED_TO:f MOVED_FROM|DIR:f");
    int f = watch("d/f", IN_MOVE_SELF), sub = watch("e/sub", IN_MOVE_SELF);
    CHECK(f != sub);
    SEES(EXCHANGE("d/f", "e/sub"), "MOVED_FROM:f MOVE_SELF MOVED_TO|DIR:f MOVE_SELF");
    ERR(EXCHANGE("d/f", "d/none"), ENOENT);
    saw(__LINE__, "a failure", "");
}

/* Since 6.7 splice, tee and vmsplice tell of both sides, FIFOs included; before, of hardly any. */
TEST(events_of_splicing_fifos) {
    PUT("a", "0123456789");
    OK(mkfifo("p", 0600));
    OK(mkfifo("q", 0600));
    in = OK(inotify_init1(IN_NONBLOCK));
    int a = OK(open("a", O_RDWR)), p = OK(open("p", O_RDWR)), q = OK(open("q", O_RDWR));
    int reader = OK(open("q", O_RDONLY));
    watch("a", IN_ACCESS | IN_MODIFY);
    watch("p", IN_ACCESS | IN_MODIFY);
    watch("q", IN_ACCESS | IN_MODIFY);
    char c[4];
    struct iovec v = {c, 2};
    loff_t at = 0;
    OK(splice(a, &at, p, NULL, 4, 0));
    saw_either(__LINE__, "MODIFY ACCESS", "");
    OK(tee(p, q, 2, 0));
    saw_either(__LINE__, "ACCESS MODIFY", "");
    OK(splice(p, NULL, q, NULL, 2, 0));
    saw_either(__LINE__, "MODIFY ACCESS", "");
    at = 0;
    OK(splice(p, NULL, a, &at, 2, 0));
    saw_either(__LINE__, "MODIFY ACCESS", "MODIFY");
    OK(vmsplice(reader, &v, 1, 0));
    saw_either(__LINE__, "ACCESS", "");
    OK(vmsplice(q, &v, 1, 0));
    saw_either(__LINE__, "MODIFY", "");
    SEES(splice(a, NULL, p, NULL, 0, 0), "");
    ERR(splice(p, NULL, q, NULL, 1, SPLICE_F_NONBLOCK), EAGAIN);
    saw(__LINE__, "a failure", "");
}

/* A directory does not tell when a special file is read or written. */
TEST(events_of_special_files) {
    OK(mkdir("d", 0755));
    OK(mkfifo("d/p", 0600));
    in = OK(inotify_init1(IN_NONBLOCK));
    watch("d", IN_ALL_EVENTS);
    char c;
    int p;
    SEES(p = open("d/p", O_RDWR), "OPEN:p");
    SEES(write(p, "x", 1), "");
    SEES(read(p, &c, 1), "");
    SEES(fchmod(p, 0644), "ATTRIB:p");
    watch("d/p", IN_ALL_EVENTS);
    SEES(write(p, "x", 1), "MODIFY");
    SEES(read(p, &c, 1), "ACCESS");
    SEES(close(p), "CLOSE_WRITE:p CLOSE_WRITE");
}

HELPER(nothing) { return 0; }

static void execute(const char *path) {
    pid_t child = FORK();
    if (child == 0) {
        execl(path, path, "--helper", "nothing", NULL);
        FAIL("execl %s: %s", path, strerror(errno));
    }
    EXITS(child, 0);
}

TEST(events_of_executing) {
    OK(mkdir("d", 0755));
    COPY(hy_self, "d/x", 0755);
    char script[PATH_MAX + 100];
    snprintf(script, sizeof script, "#!%s/d/x --helper\n", hy_tmp);
    /* Its path is the next argument: the helper's name. */
    PUT("d/nothing", script);
    OK(chmod("d/nothing", 0755));
    in = OK(inotify_init1(IN_NONBLOCK));
    watch("d", IN_ALL_EVENTS);
    for (int round = 0; round < 3; round++) {
        execute("d/x");
        saw(__LINE__, "exec", "OPEN:x ACCESS:x CLOSE_NOWRITE:x");
    }
    pid_t child = FORK();
    if (child == 0) {
        OK(chdir("d"));
        execl("nothing", "nothing", NULL);
        FAIL("execl: %s", strerror(errno));
    }
    EXITS(child, 0);
    saw(__LINE__, "exec of a script",
        "OPEN:nothing ACCESS:nothing OPEN:x ACCESS:x CLOSE_NOWRITE:nothing CLOSE_NOWRITE:x");
    ERR(execl("d", "d", NULL), EACCES);
    saw(__LINE__, "exec of a directory", "");
    OK(unlink("d/x"));
    saw(__LINE__, "unlink", "DELETE:x"); /* nothing of it was left open */
}

TEST(a_file_without_a_name_is_told_by_its_number) {
    OK(mkdir("d", 0755));
    in = OK(inotify_init1(IN_NONBLOCK));
    watch("d", IN_ALL_EVENTS);
    int fd = open("d", O_TMPFILE | O_RDWR, 0600);
    if (fd == -1 && errno == EOPNOTSUPP)
        SKIP("no O_TMPFILE here");
    struct stat about;
    OK(fstat(fd, &about));
    char want[64];
    snprintf(want, sizeof want, "OPEN:#%llu", (unsigned long long)about.st_ino);
    saw(__LINE__, "open", want);
}

TEST(excl_unlink_is_silent_about_removed_files) {
    OK(mkdir("d", 0755));
    PUT("d/f", "x");
    int fd = OK(open("d/f", O_RDWR));
    in = OK(inotify_init1(IN_NONBLOCK));
    int wd = watch("d", IN_MODIFY | IN_CLOSE);
    OK(unlink("d/f"));
    SEES(write(fd, "y", 1), "MODIFY:f");
    CHECK_EQ(watch("d", IN_MODIFY | IN_CLOSE | IN_EXCL_UNLINK), wd);
    SEES(write(fd, "y", 1), "");
    SEES(close(fd), "");
}

/* ---- flags ----------------------------------------------------------------------------------- */

TEST(a_mask_is_replaced_or_added_to) {
    PUT("f", "x");
    in = OK(inotify_init1(IN_NONBLOCK));
    int wd = watch("f", IN_MODIFY);
    CHECK_EQ(watch("f", IN_ATTRIB), wd);
    SEES(truncate("f", 0), "");
    SEES(chmod("f", 0600), "ATTRIB");
    CHECK_EQ(watch("f", IN_MODIFY | IN_MASK_ADD), wd);
    SEES(truncate("f", 0), "MODIFY");
    SEES(chmod("f", 0644), "ATTRIB");
    ERR(inotify_add_watch(in, "f", IN_MODIFY | IN_MASK_CREATE), EEXIST);
    ERR(inotify_add_watch(in, "f", IN_MODIFY | IN_MASK_CREATE | IN_MASK_ADD), EINVAL);
    SEES(chmod("f", 0600), "ATTRIB");
    CHECK_EQ(watch("f", IN_MODIFY | IN_MASK_ADD | IN_ONESHOT), wd);
    SEES(chmod("f", 0644), "ATTRIB IGNORED");
    CHECK(watch("f", IN_MODIFY | IN_MASK_CREATE) != wd);
}

TEST(inotify_add_watch_flags_and_errors) {
    in = OK(inotify_init1(IN_NONBLOCK));
    PUT("f", "x");
    OK(symlink("f", "s"));
    OK(symlink("loop", "loop"));
    OK(mkdir("d", 0755));
    ERR(inotify_add_watch(in, "f", 0), EINVAL);
    ERR(inotify_add_watch(in, "f", 0x10000), EINVAL); /* no such bit */
    ERR(inotify_add_watch(in, "f", IN_OPEN | IN_ONLYDIR), ENOTDIR);
    ERR(inotify_add_watch(in, "s", IN_OPEN | IN_ONLYDIR | IN_DONT_FOLLOW), ENOTDIR);
    ERR(inotify_add_watch(in, "f/x", IN_OPEN), ENOTDIR);
    ERR(inotify_add_watch(in, "none", IN_OPEN), ENOENT);
    ERR(inotify_add_watch(in, "", IN_OPEN), ENOENT);
    ERR(inotify_add_watch(in, "loop", IN_OPEN), ELOOP);
    ERR(inotify_add_watch(in, BAD, IN_OPEN), EFAULT);
    ERR(inotify_add_watch(-1, "f", IN_OPEN), EBADF);
    ERR(inotify_add_watch(OK(open("f", O_RDONLY)), "f", IN_OPEN), EINVAL);
    ERR(inotify_rm_watch(-1, 1), EBADF);
    ERR(inotify_rm_watch(OK(open("f", O_RDONLY)), 1), EINVAL);
    ERR(inotify_rm_watch(in, 1), EINVAL);
    char longer[300];
    memset(longer, 'a', sizeof longer);
    longer[299] = 0;
    ERR(inotify_add_watch(in, longer, IN_OPEN), ENAMETOOLONG);
    int wd = watch("d", IN_ONLYDIR); /* no event at all is a mask too */
    OK(inotify_rm_watch(in, wd));
    SEES(chmod("d", 0700), "IGNORED");
    int link = watch("s", IN_ATTRIB | IN_DONT_FOLLOW);
    SEES(chmod("f", 0600), "");
    CHECK(watch("s", IN_ATTRIB) != link);
    if (geteuid() == 0) {
        OK(chmod("f", 0));
        OK(chmod(".", 0755));
        IN_CHILD({
            int own = OK(inotify_init1(IN_NONBLOCK));
            BECOME(NOBODY, NOBODY);
            ERR(inotify_add_watch(own, "f", IN_OPEN), EACCES);
        });
    }
    ERR(inotify_init1(0x1), EINVAL);
}

TEST(an_unmounted_file_system_ends_its_watches) {
    if (geteuid() != 0 || syscall(SYS_unshare, CLONE_NEWNS) == -1) {
        if (geteuid() != 0)
            SKIP("not root");
    } else
        OK(mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL));
    OK(mkdir("m", 0755));
    OK(mount("tmpfs", "m", "tmpfs", 0, NULL));
    PUT("m/f", "x");
    in = OK(inotify_init1(IN_NONBLOCK));
    watch("m/f", IN_MODIFY);
    OK(umount("m"));
    EVENTUALLY(({
        int waiting = 0;
        OK(ioctl(in, FIONREAD, &waiting));
        waiting == 2 * (int)sizeof(struct inotify_event);
    }));
    saw(__LINE__, "umount", "UNMOUNT IGNORED");
}

/* ---- limits ---------------------------------------------------------------------------------- */

#define LIMITS "/proc/sys/fs/inotify/"

static long number_in(const char *path) {
    char text[64];
    if (get_file(path, text, sizeof text) <= 0)
        FAIL("%s: %s", path, strerror(errno));
    return atol(text);
}

static bool set_number(const char *path, long value) {
    char text[32];
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd == -1)
        return false;
    int n = snprintf(text, sizeof text, "%ld\n", value);
    bool done = write(fd, text, (size_t)n) == n;
    close(fd);
    return done;
}

TEST(limits_can_be_read) {
    CHECK_EQ(number_in(LIMITS "max_queued_events"), 16384);
    CHECK(number_in(LIMITS "max_user_instances") >= 128);
    CHECK(number_in(LIMITS "max_user_watches") >= 8192);
}

TEST(too_many_instances_is_emfile) {
    NEEDS_OWN_MACHINE();
    long before = number_in(LIMITS "max_user_instances");
    if (geteuid() != 0 || !set_number(LIMITS "max_user_instances", 3))
        SKIP("the limit cannot be set");
    pid_t pid = FORK();
    if (pid == 0) {
        BECOME(54321, 54321); /* who has no instance yet */
        int one = OK(inotify_init1(0));
        OK(inotify_init1(0));
        OK(inotify_init1(0));
        ERR(inotify_init1(0), EMFILE);
        ERR(syscall(SYS_inotify_init), EMFILE);
        OK(close(one));
        OK(inotify_init1(0));
        _exit(0);
    }
    int status = WAIT(pid);
    CHECK(set_number(LIMITS "max_user_instances", before));
    CHECK_EQ(number_in(LIMITS "max_user_instances"), before);
    CHECK_EQ(status, 0);
}

TEST(too_many_watches_is_enospc) {
    NEEDS_OWN_MACHINE();
    long before = number_in(LIMITS "max_user_watches");
    if (geteuid() != 0 || !set_number(LIMITS "max_user_watches", 2))
        SKIP("the limit cannot be set");
    PUT("a", ""), PUT("b", ""), PUT("c", "");
    OK(chmod(".", 0755));
    pid_t pid = FORK();
    if (pid == 0) {
        BECOME(54321, 54321);
        in = OK(inotify_init1(IN_NONBLOCK));
        int second = OK(inotify_init1(0));
        int wd = watch("a", IN_OPEN);
        OK(inotify_add_watch(second, "b", IN_OPEN));
        ERR(inotify_add_watch(in, "c", IN_OPEN), ENOSPC);
        watch("a", IN_CLOSE); /* no new one */
        OK(inotify_rm_watch(in, wd));
        watch("c", IN_OPEN);
        ERR(inotify_add_watch(in, "a", IN_OPEN), ENOSPC);
        OK(close(second));
        EVENTUALLY(inotify_add_watch(in, "a", IN_OPEN) != -1);
        _exit(0);
    }
    int status = WAIT(pid);
    CHECK(set_number(LIMITS "max_user_watches", before));
    CHECK_EQ(status, 0);
}

TEST(too_many_events_overflow) {
    NEEDS_OWN_MACHINE();
    long before = number_in(LIMITS "max_queued_events");
    if (geteuid() != 0 || !set_number(LIMITS "max_queued_events", 4))
        SKIP("the limit cannot be set");
    int limited = inotify_init1(IN_NONBLOCK); /* the limit is the instance's from here on */
    CHECK(set_number(LIMITS "max_queued_events", before));
    in = limited;
    CHECK(in >= 0);
    OK(mkdir("d", 0755));
    watch("d", IN_CREATE | IN_DELETE);
    for (int i = 0; i < 6; i++) {
        char name[16];
        snprintf(name, sizeof name, "d/%d", i);
        OK(mkdir(name, 0755));
    }
    saw(__LINE__, "six of four",
        "CREATE|DIR:0 CREATE|DIR:1 CREATE|DIR:2 CREATE|DIR:3 Q_OVERFLOW");
    SEES(rmdir("d/0"), "DELETE|DIR:0");
}

/* ---- fdinfo ---------------------------------------------------------------------------------- */

static char *info_of(int fd) {
    static char text[4096];
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fdinfo/%d", fd);
    CHECK(get_file(path, text, sizeof text) > 0);
    CHECK(strncmp(text, "pos:\t0\nflags:\t0", 15) == 0);
    return text;
}
static const char *line_of(int fd, const char *start) {
    static char line[512];
    char *text = info_of(fd);
    for (char *at = text; at && *at; at = strchr(at, '\n'), at = at ? at + 1 : at)
        if (strncmp(at, start, strlen(start)) == 0) {
            snprintf(line, sizeof line, "%.*s", (int)strcspn(at, "\n"), at);
            return line;
        }
    return "";
}

TEST(fdinfo_of_inotify) {
    in = OK(inotify_init1(IN_NONBLOCK));
    PUT("f", "x");
    struct stat st;
    OK(stat("f", &st));
    int wd = watch("f", IN_MODIFY | IN_ONESHOT);
    unsigned number, mask, ignored;
    unsigned long inode, device;
    const char *line = line_of(in, "inotify ");
    if (sscanf(line, "inotify wd:%x ino:%lx sdev:%lx mask:%x ignored_mask:%x", &number, &inode,
               &device, &mask, &ignored) != 5)
        FAIL("unlike Linux: \"%s\"", line);
    CHECK_EQ(number, wd);
    CHECK_EQ(inode, st.st_ino);
    CHECK_EQ(mask, IN_MODIFY | IN_ONESHOT);
    CHECK_EQ(ignored, 0);
    OK(inotify_rm_watch(in, wd));
    CHECK_STR(line_of(in, "inotify "), "");
}

TEST(fdinfo_of_epoll) {
    int ep = OK(epoll_create1(0)), fd = OK(eventfd(0, 0));
    struct epoll_event e = {EPOLLIN | EPOLLET, {.u64 = 0x1234}};
    OK(epoll_ctl(ep, EPOLL_CTL_ADD, fd, &e));
    const char *line = line_of(ep, "tfd:");
    int target;
    unsigned mask, position;
    unsigned long long data;
    unsigned long inode, device;
    if (sscanf(line, "tfd: %d events: %x data: %llx  pos:%u ino:%lx sdev:%lx", &target, &mask, &data,
               &position, &inode, &device) != 6)
        FAIL("unlike Linux: \"%s\"", line);
    CHECK_EQ(target, fd);
    CHECK_EQ(mask, (unsigned)(EPOLLIN | EPOLLET | EPOLLERR | EPOLLHUP));
    CHECK_EQ(data, 0x1234);
    CHECK_EQ(position, 0);
    struct stat st;
    OK(fstat(fd, &st));
    CHECK_EQ(inode, st.st_ino);
}

TEST(fdinfo_of_eventfd) {
    int fd = OK(eventfd(77, 0));
    CHECK_STR(line_of(fd, "eventfd-count:"), "eventfd-count:               4d");
}

TEST(fdinfo_of_signalfd) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGUSR1);
    int fd = OK(signalfd(-1, &set, 0));
    CHECK_STR(line_of(fd, "sigmask:"), "sigmask:\t0000000000000202");
}

TEST(fdinfo_of_timerfd) {
    int fd = OK(timerfd_create(CLOCK_MONOTONIC, 0));
    CHECK_STR(line_of(fd, "clockid:"), "clockid: 1");
    CHECK_STR(line_of(fd, "ticks:"), "ticks: 0");
    CHECK_STR(line_of(fd, "settime flags:"), "settime flags: 00");
    CHECK_STR(line_of(fd, "it_value:"), "it_value: (0, 0)");
    CHECK_STR(line_of(fd, "it_interval:"), "it_interval: (0, 0)");
    struct itimerspec t = {{5, 6}, {1000, 0}};
    OK(timerfd_settime(fd, 0, &t, NULL));
    CHECK_STR(line_of(fd, "it_interval:"), "it_interval: (5, 6)");
    CHECK(strncmp(line_of(fd, "it_value:"), "it_value: (999, ", 16) == 0);
    t = (struct itimerspec){{0, 0}, {0, 1}};
    OK(timerfd_settime(fd, 0, &t, NULL));
    EVENTUALLY(strcmp(line_of(fd, "ticks:"), "ticks: 1") == 0);
    CHECK_STR(line_of(fd, "it_value:"), "it_value: (0, 0)");
    t = (struct itimerspec){{0, 0}, {1000000000, 0}};
    int absolute = OK(timerfd_create(CLOCK_REALTIME, 0));
    OK(timerfd_settime(absolute, TFD_TIMER_ABSTIME, &t, NULL));
    CHECK_STR(line_of(absolute, "clockid:"), "clockid: 0");
    CHECK_STR(line_of(absolute, "settime flags:"), "settime flags: 01");
}
