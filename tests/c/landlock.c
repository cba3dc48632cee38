/* Restricting oneself to some files: landlock(7), landlock_create_ruleset(2),
 * landlock_add_rule(2), landlock_restrict_self(2), security/landlock/ of Linux 6.1 (ABI 2). */
#define AREA "landlock"
#include "trace.h"

#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>

#ifndef SYS_landlock_create_ruleset
#define SYS_landlock_create_ruleset 444
#define SYS_landlock_add_rule 445
#define SYS_landlock_restrict_self 446
#endif
#ifndef SYS_move_mount
#define SYS_move_mount 429
#endif

/* include/uapi/linux/landlock.h */
enum {
    EXECUTE = 1 << 0,
    WRITE = 1 << 1,
    READ = 1 << 2,
    READ_DIR = 1 << 3,
    REMOVE_DIR = 1 << 4,
    REMOVE_FILE = 1 << 5,
    MAKE_CHAR = 1 << 6,
    MAKE_DIR = 1 << 7,
    MAKE_REG = 1 << 8,
    MAKE_SOCK = 1 << 9,
    MAKE_FIFO = 1 << 10,
    MAKE_BLOCK = 1 << 11,
    MAKE_SYM = 1 << 12,
    REFER = 1 << 13,
    ALL = (1 << 14) - 1,
    OF_FILES = EXECUTE | WRITE | READ,
};

struct beneath {
    uint64_t allowed;
    int32_t place;
} __attribute__((packed));

static int create(const void *attributes, size_t size, unsigned flags) {
    return (int)syscall(SYS_landlock_create_ruleset, attributes, size, flags);
}

static int add(int ruleset, int kind, const void *rule, unsigned flags) {
    return (int)syscall(SYS_landlock_add_rule, ruleset, kind, rule, flags);
}

static int restrict_self(int ruleset, unsigned flags) {
    return (int)syscall(SYS_landlock_restrict_self, ruleset, flags);
}

static int handling(uint64_t handled) {
    int fd = create(&handled, sizeof handled, 0);
    if (fd == -1 && (errno == ENOSYS || errno == EOPNOTSUPP)) SKIP("no Landlock");
    return OK(fd);
}

static void allow(int ruleset, const char *path, uint64_t allowed) {
    struct beneath rule = {allowed, OK(open(path, O_PATH | O_CLOEXEC))};
    OK(add(ruleset, 1, &rule, 0));
    OK(close(rule.place));
}

static void enforce(int ruleset) {
    OK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
    OK(restrict_self(ruleset, 0));
    OK(close(ruleset));
}

/* Restricts the caller to these rights below one path. */
static void confine(uint64_t handled, const char *path, uint64_t allowed) {
    int ruleset = handling(handled);
    if (allowed) allow(ruleset, path, allowed);
    enforce(ruleset);
}

static int exchange(const char *one, const char *other) {
    return (int)syscall(SYS_renameat2, AT_FDCWD, one, AT_FDCWD, other, 2 /* RENAME_EXCHANGE */);
}

static int opens(const char *path, int flags) {
    int fd = open(path, flags, 0600);
    if (fd == -1) return errno;
    OK(close(fd));
    return 0;
}

/* ---- the calls ------------------------------------------------------------------------------ */

TEST(a_ruleset_is_made) {
    OK(close(handling(READ)));
    int version = create(NULL, 0, 1);
    CHECK(version >= 2);
    uint64_t handled = READ;
    ERR(create(NULL, 0, 0), EFAULT);
    ERR(create(NULL, 8, 1), EINVAL);
    ERR(create(&handled, 8, 1), EINVAL);
    ERR(create(&handled, 8, 1u << 31), EINVAL);
    ERR(create(&handled, 7, 0), EINVAL);
    ERR(create(&handled, PAGE + 1, 0), E2BIG);
    ERR(create(bad_address(), 8, 0), EFAULT);
    uint64_t longer[8] = {READ};
    int fd = OK(create(longer, sizeof longer, 0));
    CHECK_EQ(OK(fcntl(fd, F_GETFD)), FD_CLOEXEC);
    char byte = 0;
    ERR(read(fd, &byte, 1), EINVAL);
    ERR(write(fd, &byte, 1), EINVAL);
    longer[7] = 1;
    ERR(create(longer, sizeof longer, 0), E2BIG);
    handled = 1ull << 40;
    ERR(create(&handled, 8, 0), EINVAL);
    handled = 0;
    ERR(create(&handled, 8, 0), ENOMSG);
}

TEST(wrong_rules) {
    int ruleset = handling(READ | WRITE | READ_DIR);
    PUT("file", "x");
    int directory = OK(open(".", O_PATH)), file = OK(open("file", O_RDONLY)), ends[2];
    OK(pipe(ends));
    struct beneath rule = {READ, directory};
    ERR(add(ruleset, 1, &rule, 1), EINVAL);
    ERR(add(-1, 1, &rule, 0), EBADF);
    ERR(add(file, 1, &rule, 0), EBADFD);
    ERR(add(ruleset, 0, &rule, 0), EINVAL);
    ERR(add(ruleset, 99, &rule, 0), EINVAL);
    ERR(add(ruleset, 1, NULL, 0), EFAULT);
    rule.allowed = 0;
    ERR(add(ruleset, 1, &rule, 0), ENOMSG);
    rule.allowed = EXECUTE;
    ERR(add(ruleset, 1, &rule, 0), EINVAL);
    rule.allowed = 1ull << 40;
    ERR(add(ruleset, 1, &rule, 0), EINVAL);
    rule = (struct beneath){READ, -1};
    ERR(add(ruleset, 1, &rule, 0), EBADF);
    rule = (struct beneath){READ, ruleset};
    ERR(add(ruleset, 1, &rule, 0), EBADFD);
    rule = (struct beneath){READ, ends[0]};
    ERR(add(ruleset, 1, &rule, 0), EBADFD);
    rule = (struct beneath){READ | READ_DIR, file};
    ERR(add(ruleset, 1, &rule, 0), EINVAL);
    rule = (struct beneath){READ | WRITE, file};
    OK(add(ruleset, 1, &rule, 0));
}

TEST(restricting_needs_no_new_privileges) {
    int ruleset = handling(READ), file = OK(open(".", O_RDONLY));
    OK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
    ERR(restrict_self(-1, 0), EBADF);
    ERR(restrict_self(file, 0), EBADFD);
    ERR(restrict_self(ruleset, 1u << 31), EINVAL);
    OK(restrict_self(ruleset, 0));
}

TEST(a_user_may_not_without_them) {
    int ruleset = handling(READ);
    if (getuid() != 0) SKIP("not root");
    IN_CHILD({
        BECOME(NOBODY, NOBODY);
        ERR(restrict_self(ruleset, 0), EPERM);
        OK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
        OK(restrict_self(ruleset, 0));
    });
}

/* ---- reading and writing -------------------------------------------------------------------- */

TEST(files_are_opened_as_rules_say) {
    OK(mkdir("in", 0755));
    OK(mkdir("in/deep", 0755));
    PUT("in/deep/file", "abc");
    PUT("out", "abc");
    int before = OK(open("out", O_RDWR));
    confine(READ | WRITE | READ_DIR, "in", READ);
    CHECK_EQ(opens("in/deep/file", O_RDONLY), 0);
    CHECK_EQ(opens("in/deep/file", O_WRONLY), EACCES);
    CHECK_EQ(opens("in/deep/file", O_RDWR), EACCES);
    CHECK_EQ(opens("out", O_RDONLY), EACCES);
    CHECK_EQ(opens("in", O_RDONLY | O_DIRECTORY), EACCES);
    CHECK_EQ(opens("out", O_PATH), 0);
    CHECK_EQ(opens("in/deep/none", O_RDONLY), ENOENT);
    CHECK_EQ(opens("in/deep/../../out", O_RDONLY), EACCES);
    struct stat st;
    OK(stat("out", &st));
    OK(chmod("out", 0600));
    OK(access("out", R_OK | W_OK));
    /* What was open stays so. */
    char bytes[3];
    CHECK_EQ(OK(read(before, bytes, 3)), 3);
    CHECK_EQ(OK(write(before, "d", 1)), 1);
    /* Opened anew it is checked. */
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", before);
    CHECK_EQ(opens(path, O_RDONLY), EACCES);
}

TEST(access_mode_three_asks_for_nothing) {
    PUT("file", "x");
    confine(READ | WRITE, ".", 0);
    CHECK_EQ(opens("file", O_RDONLY), EACCES);
    CHECK_EQ(opens("file", 3), 0);
}

TEST(a_rule_about_a_file_is_about_it_alone) {
    PUT("one", "1");
    PUT("other", "2");
    OK(link("one", "again"));
    confine(READ, "one", READ);
    CHECK_EQ(opens("one", O_RDONLY), 0);
    CHECK_EQ(opens("again", O_RDONLY), 0);
    CHECK_EQ(opens("other", O_RDONLY), EACCES);
}

TEST(files_without_a_place_are_free) {
    int ends[2];
    OK(pipe(ends));
    int memory = OK((int)syscall(SYS_memfd_create, "m", 0));
    int ruleset = handling(READ | WRITE);
    allow(ruleset, "/proc", READ);
    enforce(ruleset);
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", ends[0]);
    CHECK_EQ(opens(path, O_RDONLY | O_NONBLOCK), 0);
    snprintf(path, sizeof path, "/proc/self/fd/%d", memory);
    CHECK_EQ(opens(path, O_RDWR), 0);
}

TEST(a_mount_is_below_the_directory_that_it_covers) {
    CHECK_EQ(opens("/proc/self/status", O_RDONLY), 0);
    pid_t pid = FORK();
    if (pid == 0) {
        confine(READ, "/", READ);
        CHECK_EQ(opens("/proc/self/status", O_RDONLY), 0);
        _exit(0);
    }
    EXITS(pid, 0);
    confine(READ, ".", READ);
    CHECK_EQ(opens("/proc/self/status", O_RDONLY), EACCES);
}

TEST(another_file_with_the_number_of_one_that_is_gone) {
    PUT("old", "x");
    struct stat st, now;
    OK(stat("old", &st));
    int ruleset = handling(READ);
    allow(ruleset, "old", READ);
    OK(unlink("old"));
    for (int i = 0; i < 200; i++) {
        char name[32];
        snprintf(name, sizeof name, "new%d", i);
        PUT(name, "secret");
        OK(stat(name, &now));
        CHECK(now.st_ino != st.st_ino);
    }
    enforce(ruleset);
    CHECK_EQ(opens("new0", O_RDONLY), EACCES);
    CHECK_EQ(opens("new199", O_RDONLY), EACCES);
}

/* ---- making and removing -------------------------------------------------------------------- */

static int error_of(int result) { return result == -1 ? errno : 0; }

static int make_socket(const char *path) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
    int fd = OK(socket(AF_UNIX, SOCK_STREAM, 0));
    int error = error_of(bind(fd, (void *)&address, sizeof address));
    OK(close(fd));
    return error;
}

TEST(each_kind_of_file_has_its_right) {
    const struct {
        uint64_t right;
        const char *name;
    } kinds[] = {{MAKE_DIR, "dir"},   {MAKE_REG, "reg"}, {MAKE_REG, "node"},
                 {MAKE_SOCK, "sock"}, {MAKE_SYM, "sym"}, {MAKE_FIFO, "fifo"}};
    const uint64_t handled = MAKE_DIR | MAKE_REG | MAKE_SOCK | MAKE_SYM | MAKE_FIFO;
    for (size_t right = 0; right < 6; right++) {
        pid_t pid = FORK();
        if (pid == 0) {
            char name[32];
            OK(close(handling(handled)));
            confine(handled, ".", kinds[right].right);
            for (size_t kind = 0; kind < 6; kind++) {
                snprintf(name, sizeof name, "%zu-%s", right, kinds[kind].name);
                int error = kind == 0   ? error_of(mkdir(name, 0700))
                            : kind == 1 ? opens(name, O_CREAT | O_RDWR)
                            : kind == 2 ? error_of(mknod(name, S_IFREG | 0600, 0))
                            : kind == 3 ? make_socket(name)
                            : kind == 4 ? error_of(symlink("x", name))
                                        : error_of(mkfifo(name, 0600));
                CHECK_EQ(error, kinds[kind].right == kinds[right].right ? 0 : EACCES);
            }
            _exit(0);
        }
        EXITS(pid, 0);
    }
}

TEST(a_file_is_made_but_not_opened) {
    confine(MAKE_REG | WRITE, ".", MAKE_REG);
    CHECK_EQ(opens("made", O_CREAT | O_WRONLY), EACCES);
    OK(access("made", F_OK));
    CHECK_EQ(opens("read", O_CREAT | O_RDONLY), 0);
    CHECK_EQ(error_of(mkdir("made", 0700)), EEXIST);
}

TEST(a_file_without_a_name_needs_no_right_to_make) {
    confine(MAKE_REG | READ, ".", READ);
    CHECK_EQ(opens("x", O_CREAT | O_RDWR), EACCES);
    int fd = open(".", O_TMPFILE | O_RDWR, 0600);
    if (fd == -1 && errno == EOPNOTSUPP) SKIP("the file system has no O_TMPFILE");
    OK(fd);
}

TEST(removing_has_two_rights) {
    PUT("file", "x");
    OK(mkdir("dir", 0700));
    pid_t pid = FORK();
    if (pid == 0) {
        confine(REMOVE_FILE | REMOVE_DIR, ".", REMOVE_FILE);
        ERR(rmdir("dir"), EACCES);
        ERR(unlink("none"), ENOENT);
        OK(unlink("file"));
        _exit(0);
    }
    EXITS(pid, 0);
    PUT("file", "x");
    confine(REMOVE_FILE | REMOVE_DIR, ".", REMOVE_DIR);
    ERR(unlink("file"), EACCES);
    OK(rmdir("dir"));
}

/* ---- moving --------------------------------------------------------------------------------- */

TEST(a_rename_in_a_directory_makes_and_removes) {
    PUT("a", "x");
    PUT("b", "x");
    OK(mkdir("dir", 0700));
    pid_t pid = FORK();
    if (pid == 0) {
        confine(MAKE_REG | REMOVE_FILE, ".", MAKE_REG);
        ERR(rename("a", "c"), EACCES);
        ERR(link("a", "b"), EEXIST);
        OK(link("a", "linked"));
        _exit(0);
    }
    EXITS(pid, 0);
    pid = FORK();
    if (pid == 0) {
        confine(MAKE_REG | REMOVE_FILE, ".", REMOVE_FILE);
        ERR(rename("a", "c"), EACCES);
        ERR(link("a", "c"), EACCES);
        _exit(0);
    }
    EXITS(pid, 0);
    confine(MAKE_REG | REMOVE_FILE | MAKE_DIR, ".", MAKE_REG | REMOVE_FILE);
    OK(rename("a", "c"));
    OK(rename("c", "b"));
    ERR(rename("dir", "dir2"), EACCES);
    ERR(rename("none", "x"), ENOENT);
}

static void two_directories(void) {
    OK(mkdir("one", 0700));
    OK(mkdir("two", 0700));
    OK(mkdir("one/dir", 0700));
    PUT("one/file", "1");
    PUT("two/other", "2");
}

TEST(a_move_needs_the_right_even_if_it_is_not_handled) {
    two_directories();
    confine(EXECUTE, ".", EXECUTE);
    ERR(rename("one/file", "two/file"), EXDEV);
    ERR(link("one/file", "two/file"), EXDEV);
    OK(rename("one/file", "one/file2"));
}

TEST(a_move_with_the_right_on_both_sides) {
    two_directories();
    confine(ALL, ".", ALL);
    OK(rename("one/file", "two/file"));
    OK(link("two/file", "one/file"));
    OK(rename("one/dir", "two/dir"));
    OK(exchange("one/file", "two/other"));
}

TEST(a_move_gives_no_right) {
    two_directories();
    PUT("two/mine", "3");
    int ruleset = handling(ALL);
    allow(ruleset, "one", ALL & ~EXECUTE);
    allow(ruleset, "two", ALL);
    enforce(ruleset);
    ERR(rename("one/file", "two/file"), EXDEV);
    ERR(link("one/file", "two/file"), EXDEV);
    ERR(rename("one/dir", "two/dir"), EXDEV);
    ERR(exchange("one/file", "two/other"), EXDEV);
    /* The other way it loses one. */
    OK(rename("two/mine", "one/mine"));
}

TEST(a_right_that_only_directories_have_does_not_keep_a_file) {
    two_directories();
    int ruleset = handling(ALL);
    allow(ruleset, "one", ALL & ~MAKE_SYM);
    allow(ruleset, "two", ALL);
    enforce(ruleset);
    OK(rename("one/file", "two/file"));
    ERR(rename("one/dir", "two/dir"), EXDEV);
}

TEST(a_rule_about_the_file_itself_moves_along) {
    two_directories();
    int ruleset = handling(ALL);
    allow(ruleset, "one", ALL & ~EXECUTE);
    allow(ruleset, "two", ALL);
    allow(ruleset, "one/file", EXECUTE);
    enforce(ruleset);
    OK(rename("one/file", "two/file"));
}

TEST(a_missing_right_comes_before_the_move) {
    two_directories();
    int ruleset = handling(ALL);
    allow(ruleset, "one", ALL & ~REMOVE_FILE);
    allow(ruleset, "two", ALL);
    enforce(ruleset);
    ERR(rename("one/file", "two/file"), EACCES);
    ERR(exchange("one/file", "two/none"), ENOENT);
}

/* ---- programs ------------------------------------------------------------------------------- */

HELPER(ends) { return 7; }

static int run(const char *path) {
    pid_t pid = FORK();
    if (pid == 0) {
        execl(path, path, "--helper", "ends", NULL);
        _exit(errno == EACCES ? 13 : 99);
    }
    int status = WAIT(pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(programs_need_two_rights) {
    COPY(hy_self, "program", 0755);
    pid_t pid = FORK();
    if (pid == 0) {
        confine(EXECUTE | READ, "/", EXECUTE | READ);
        CHECK_EQ(run("./program"), 7);
        _exit(0);
    }
    EXITS(pid, 0);
    pid = FORK();
    if (pid == 0) {
        confine(EXECUTE | READ, "/", READ);
        CHECK_EQ(run("./program"), 13);
        _exit(0);
    }
    EXITS(pid, 0);
    confine(EXECUTE | READ, "/", EXECUTE);
    CHECK_EQ(run("./program"), 13);
}

TEST(the_interpreter_of_a_script_counts) {
    COPY(hy_self, "program", 0755);
    OK(mkdir("scripts", 0755));
    char text[PATH_MAX + 64];
    snprintf(text, sizeof text, "#!%s/program --helper ends\n", hy_tmp);
    PUT_MODE("scripts/script", text, 0755);
    snprintf(text, sizeof text, "#!%s/program\n", hy_tmp);
    PUT_MODE("scripts/plain", text, 0755);
    int ruleset = handling(EXECUTE);
    allow(ruleset, "scripts", EXECUTE);
    enforce(ruleset);
    CHECK_EQ(run("./program"), 13);
    CHECK_EQ(run("scripts/plain"), 13);
}

HELPER(is_confined) {
    CHECK_EQ(opens("file", O_RDONLY), EACCES);
    return 0;
}

TEST(restrictions_are_inherited) {
    PUT("file", "x");
    int ruleset = handling(READ);
    allow(ruleset, "/usr", READ);
    allow(ruleset, "/lib", READ);
    allow(ruleset, hy_self, READ);
    enforce(ruleset);
    IN_CHILD(CHECK_EQ(opens("file", O_RDONLY), EACCES));
    pid_t pid = FORK();
    if (pid == 0) {
        execl(hy_self, hy_self, "--helper", "is_confined", NULL);
        _exit(errno);
    }
    EXITS(pid, 0);
}

static void *opens_freely(void *go) {
    EVENTUALLY(*(volatile bool *)go);
    return (void *)(intptr_t)opens("file", O_RDONLY);
}

TEST(other_threads_stay_free) {
    PUT("file", "x");
    volatile bool go = false;
    pthread_t thread;
    ZERO(pthread_create(&thread, NULL, opens_freely, (void *)&go));
    confine(READ, ".", 0);
    go = true;
    void *result;
    ZERO(pthread_join(thread, &result));
    CHECK_EQ((intptr_t)result, 0);
    CHECK_EQ(opens("file", O_RDONLY), EACCES);
}

/* ---- layers --------------------------------------------------------------------------------- */

TEST(a_second_layer_takes_away) {
    OK(mkdir("dir", 0700));
    PUT("dir/file", "x");
    PUT("file", "x");
    confine(READ | WRITE, ".", READ | WRITE);
    CHECK_EQ(opens("file", O_RDWR), 0);
    confine(READ, "dir", READ);
    CHECK_EQ(opens("file", O_RDONLY), EACCES);
    CHECK_EQ(opens("file", O_WRONLY), 0);
    CHECK_EQ(opens("dir/file", O_RDWR), 0);
    /* And gives nothing. */
    confine(READ, "/", READ);
    CHECK_EQ(opens("file", O_RDONLY), EACCES);
}

TEST(sixteen_layers) {
    PUT("file", "x");
    for (int i = 0; i < 16; i++)
        confine(READ, ".", READ);
    CHECK_EQ(opens("file", O_RDONLY), 0);
    int ruleset = handling(READ);
    ERR(restrict_self(ruleset, 0), E2BIG);
}

TEST(a_ruleset_serves_again_and_changes_nothing_later) {
    PUT("one", "x");
    PUT("two", "x");
    int ruleset = handling(READ);
    allow(ruleset, "one", READ);
    OK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
    pid_t pid = FORK();
    if (pid == 0) {
        OK(restrict_self(ruleset, 0));
        allow(ruleset, "two", READ);
        CHECK_EQ(opens("two", O_RDONLY), EACCES);
        _exit(0);
    }
    EXITS(pid, 0);
    OK(restrict_self(ruleset, 0));
    CHECK_EQ(opens("one", O_RDONLY), 0);
    CHECK_EQ(opens("two", O_RDONLY), 0);
}

/* ---- mounts and other processes ------------------------------------------------------------- */

TEST(the_tree_of_mounts_stays_as_it_is) {
    if (getuid() != 0) SKIP("not root");
    OK(mkdir("dir", 0755));
    if (unshare(CLONE_NEWNS) == -1) SKIP("no mount namespaces");
    OK(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL));
    OK(mount("none", "dir", "tmpfs", 0, NULL));
    confine(READ, "/", READ);
    ERR(mount("none", "dir", "tmpfs", 0, NULL), EPERM);
    ERR(mount(".", "dir", NULL, MS_BIND, NULL), EPERM);
    ERR(mount(NULL, "dir", NULL, MS_REMOUNT | MS_BIND | MS_RDONLY, NULL), EPERM);
    ERR(umount("dir"), EPERM);
    ERR(syscall(SYS_pivot_root, "dir", "dir"), EPERM);
    ERR(syscall(SYS_move_mount, AT_FDCWD, "dir", AT_FDCWD, "/", 0), EPERM);
    OK(chroot("."));
}

TEST(a_confined_process_looks_into_none_that_is_free) {
    pid_t free_one = RUNNING(pause());
    wait_asleep(free_one);
    pid_t pid = FORK();
    if (pid == 0) {
        confine(WRITE, "/", WRITE);
        ERR(T(PTRACE_ATTACH, free_one, 0, 0), EPERM);
        ERR(T(PTRACE_SEIZE, free_one, 0, 0), EPERM);
        char path[64];
        snprintf(path, sizeof path, "/proc/%d/mem", free_one);
        CHECK_EQ(opens(path, O_RDONLY), EACCES);
        /* One of its own it may trace. */
        pid_t child = TRACED(_exit(3));
        OK(T(PTRACE_CONT, child, 0, 0));
        ENDS(child, 3 << 8);
        /* One with more restrictions, too. */
        int ready[2];
        OK(pipe(ready));
        child = FORK();
        if (child == 0) {
            confine(WRITE, "/", WRITE);
            OK(write(ready[1], "x", 1) == 1 ? 0 : -1);
            pause();
        }
        char byte;
        CHECK_EQ(OK(read(ready[0], &byte, 1)), 1);
        OK(T(PTRACE_ATTACH, child, 0, 0));
        finish(child);
        _exit(0);
    }
    EXITS(pid, 0);
    finish(free_one);
}

TEST(a_confined_parent_is_asked_by_a_child_alone) {
    /* The child is free, and asks to be traced by a parent that has restricted itself since. */
    int go[2];
    OK(pipe(go));
    pid_t pid = FORK();
    if (pid == 0) {
        char byte;
        CHECK_EQ(OK(read(go[0], &byte, 1)), 1);
        ERR(T(PTRACE_TRACEME, 0, 0, 0), EPERM);
        _exit(0);
    }
    confine(WRITE, "/", WRITE);
    CHECK_EQ(OK(write(go[1], "x", 1)), 1);
    EXITS(pid, 0);
}

/* ---- message queues ------------------------------------------------------------------------- */

static int queue(const char *name, int flags) {
    int fd = (int)syscall(SYS_mq_open, name, flags, 0600, NULL);
    return fd == -1 ? errno : close(fd);
}

TEST(a_queue_is_opened_as_rules_say_and_removed_in_any_case) {
    char name[32];
    snprintf(name, sizeof name, "landlock.%d", getpid());
    int error = queue(name, O_CREAT | O_RDWR);
    if (error == ENOSYS) SKIP("no message queues");
    ZERO(error);
    confine(ALL, ".", 0);
    CHECK_EQ(queue(name, O_RDWR), EACCES);
    OK(syscall(SYS_mq_unlink, name));
    CHECK_EQ(queue(name, O_RDWR), ENOENT);
}
