/* Control groups' controller memory (cgroup-v2.rst, "Memory"): what is charged and to whom, limits,
 * who is killed, events, moves, removed groups, and attacks on all that.
 *
 * Linux charges 64 pages at a time to each processor, and objects of its own: amounts are compared
 * with that much tolerance. */
#define AREA "memcg"
#include "groups.h"
#include <poll.h>
#include <spawn.h>
#include <sys/inotify.h>
#include <sys/uio.h>

#define MIB (1L << 20)
/* What may be charged beside what a case looks at. */
#define SOME (2 * MIB)

/* ---- helpers --------------------------------------------------------------------------------- */

static void begin_memory(void) {
    begin();
    with_controller("memory");
}

static void make(const char *group) { OK(mkdir(path_of(group, NULL), 0755)); }
static void make_with(const char *group, const char *most) {
    make(group);
    OK(tell(group, "memory.max", most));
    tell(group, "memory.swap.max", "0"); /* There may be no swap. */
}

static long current_of(const char *group) { return atol(shown(group, "memory.current")); }
#define EVENT(group, name) value_of(group, "memory.events", name)
#define LOCAL(group, name) value_of(group, "memory.events.local", name)

/* Hardly anything is charged, at once or soon. */
static void check_empty(const char *group) {
    for (int i = 0; i < 500 && current_of(group) > SOME; i++)
        msleep(10);
    CHECK(current_of(group) <= SOME);
}

static char *map(size_t size) {
    char *at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(at != MAP_FAILED);
    madvise(at, size, MADV_NOHUGEPAGE);
    return at;
}
static void touch(char *at, size_t size) {
    for (size_t page = 0; page < size; page += PAGE)
        *(volatile char *)(at + page) = 1;
}
static char *take(size_t size) {
    char *at = map(size);
    touch(at, size);
    return at;
}

static void join(const char *group) { OK(tell(group, "cgroup.procs", "0")); }

/* A process in a group that has touched so much, and waits. */
static pid_t holder(const char *group, size_t size) {
    int ready[2];
    OK(pipe(ready));
    pid_t pid = FORK();
    if (pid == 0) {
        join(group);
        take(size);
        OK(write(ready[1], "", 1));
        for (;;)
            pause();
    }
    close(ready[1]);
    char byte;
    CHECK_EQ(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    return pid;
}

static bool lives(pid_t pid) {
    siginfo_t info = {0};
    OK(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT));
    return info.si_pid == 0;
}

/* A tmpfs of the case's own. */
static const char *mount_memory(void) {
    static char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/memory", hy_tmp);
    OK(mkdir(path, 0777));
    OK(mount("none", path, "tmpfs", 0, "size=256m,mode=777"));
    return path;
}
/* Writes so much into a file; the result of the last write. */
static ssize_t fill(const char *path, size_t size) {
    static char block[65536];
    int fd = OK(open(path, O_CREAT | O_WRONLY, 0666));
    ssize_t n = 0;
    for (size_t done = 0; done < size && n >= 0; done += sizeof block)
        n = write(fd, block, sizeof block);
    int error = errno;
    close(fd);
    errno = error;
    return n;
}

/* ---- files ----------------------------------------------------------------------------------- */

TEST(groups_have_their_files) {
    begin_memory();
    static const struct {
        const char *name;
        mode_t mode;
        const char *content;
    } files[] = {
        {"memory.current", 0444, "0\n"},   {"memory.events", 0444, NULL},
        {"memory.events.local", 0444, NULL}, {"memory.high", 0644, "max\n"},
        {"memory.low", 0644, "0\n"},       {"memory.max", 0644, "max\n"},
        {"memory.min", 0644, "0\n"},       {"memory.oom.group", 0644, "0\n"},
        {"memory.stat", 0444, NULL},
    };
    make("a");
    CHECK(strstr(shown("a", "cgroup.controllers"), "memory") != NULL);
    struct stat st;
    char path[PATH_MAX + 32];
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        OK(stat(path_of("a", files[i].name), &st));
        CHECK_EQ(st.st_mode, S_IFREG | files[i].mode);
        if (files[i].content)
            CHECK_STR(shown("a", files[i].name), files[i].content);
        snprintf(path, sizeof path, "%s/%s", top, files[i].name);
        if (strcmp(files[i].name, "memory.stat") == 0)
            OK(stat(path, &st));
        else
            ERR(stat(path, &st), ENOENT);
    }
    static const char *const events[] = {"low", "high", "max", "oom", "oom_kill"};
    for (size_t i = 0; i < sizeof events / sizeof *events; i++) {
        CHECK_EQ(EVENT("a", events[i]), 0);
        CHECK_EQ(LOCAL("a", events[i]), 0);
    }
    static const char *const uses[] = {"anon", "file", "pagetables", "shmem", "inactive_file"};
    for (size_t i = 0; i < sizeof uses / sizeof *uses; i++)
        CHECK_EQ(value_of("a", "memory.stat", uses[i]), 0);
    /* Without the controller they are not there. */
    make("a/b");
    ERR(stat(path_of("a/b", "memory.current"), &st), ENOENT);
}

TEST(newer_files) {
    begin_memory();
    make("a");
    struct stat st;
    if (stat(path_of("a", "memory.peak"), &st) == -1)
        SKIP("no memory.peak");
    CHECK_EQ(st.st_mode, S_IFREG | 0444);
    OK(stat(path_of("a", "memory.reclaim"), &st));
    CHECK_EQ(st.st_mode, S_IFREG | 0200);
    CHECK_EQ(EVENT("a", "oom_group_kill"), 0);
    pid_t pid = holder("a", 8 * MIB);
    long peak = atol(shown("a", "memory.peak"));
    CHECK(peak >= 8 * MIB);
    end(pid);
    check_empty("a");
    CHECK(atol(shown("a", "memory.peak")) >= peak);
    /* There is nothing to reclaim. */
    ERR(tell("a", "memory.reclaim", "64M"), EAGAIN);
    ERR(tell("a", "memory.reclaim", "much"), EINVAL);
    OK(tell("a", "memory.reclaim", "0"));
}

TEST(amounts_have_suffixes) {
    begin_memory();
    make("a");
    static const char *const files[] = {"memory.max", "memory.high", "memory.low", "memory.min"};
    static const struct {
        const char *told, *shown;
    } amounts[] = {
        {"1M", "1048576\n"}, {"4097", "4096\n"},      {"  2g\n", "2147483648\n"},
        {"0x10k", "16384\n"}, {"max", "max\n"},       {"8388608\n", "8388608\n"},
        {"1t", "1099511627776\n"}, {"max\n", "max\n"}, {"4095", "0\n"},
    };
    for (size_t f = 0; f < sizeof files / sizeof *files; f++) {
        for (size_t i = 0; i < sizeof amounts / sizeof *amounts; i++) {
            OK(tell("a", files[f], amounts[i].told));
            CHECK_STR(shown("a", files[f]), amounts[i].shown);
        }
        static const char *const bad[] = {"x", "-1", "1KB", "1 M", "maximum", "08"};
        for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
            ERR(tell("a", files[f], bad[i]), EINVAL);
        CHECK_STR(shown("a", files[f]), "0\n");
        OK(tell("a", files[f], "max"));
    }
    OK(tell("a", "memory.oom.group", "1\n"));
    CHECK_STR(shown("a", "memory.oom.group"), "1\n");
    ERR(tell("a", "memory.oom.group", "2"), EINVAL);
    ERR(tell("a", "memory.oom.group", "x"), EINVAL);
    OK(tell("a", "memory.oom.group", "0"));
}

/* ---- what is charged ------------------------------------------------------------------------- */

TEST(touched_memory_is_charged) {
    begin_memory();
    make("a");
    IN_CHILD({
        join("a");
        long before = current_of("a");
        char *at = map(16 * MIB);
        CHECK(current_of("a") < before + SOME);
        touch(at, 8 * MIB);
        CHECK(current_of("a") >= before + 8 * MIB);
        CHECK(current_of("a") < before + 8 * MIB + SOME);
        /* Linux sums that up in the background. */
        for (int i = 0; i < 300 && value_of("a", "memory.stat", "anon") < 8 * MIB; i++)
            msleep(10);
        CHECK(value_of("a", "memory.stat", "anon") >= 8 * MIB);
        CHECK(value_of("a", "memory.stat", "pagetables") > 0);
        OK(munmap(at, 4 * MIB));
        CHECK(current_of("a") < before + 4 * MIB + SOME);
        OK(madvise(at + 4 * MIB, 4 * MIB, MADV_DONTNEED));
        CHECK(current_of("a") < before + SOME);
        /* Reading zeroes costs nothing. */
        for (size_t page = 0; page < 4 * MIB; page += PAGE)
            CHECK_EQ(*(volatile char *)(at + 4 * MIB + page), 0);
        CHECK(current_of("a") < before + SOME);
    });
    check_empty("a");
}

TEST(copies_are_charged_to_who_writes) {
    begin_memory();
    make("a");
    make("b");
    pid_t pid = FORK();
    if (pid == 0) {
        join("a");
        char *at = take(8 * MIB);
        int ready[2];
        char byte;
        OK(pipe(ready));
        pid_t child = FORK();
        if (child == 0) {
            join("b");
            CHECK(current_of("b") < SOME);
            touch(at, 4 * MIB);
            CHECK(current_of("b") >= 4 * MIB);
            CHECK(current_of("b") < 4 * MIB + SOME);
            OK(write(ready[1], "", 1));
            for (;;)
                pause();
        }
        CHECK_EQ(read(ready[0], &byte, 1), 1);
        CHECK(current_of("a") >= 8 * MIB);
        OK(kill(child, SIGKILL));
        KILLED(child, SIGKILL);
        CHECK(current_of("a") >= 8 * MIB);
        _exit(0);
    }
    EXITS(pid, 0);
    check_empty("a");
    check_empty("b");
}

TEST(shared_pages_are_charged_until_the_last_has_ended) {
    begin_memory();
    make("a");
    make("b");
    int ready[2];
    OK(pipe(ready));
    pid_t pid = FORK();
    if (pid == 0) {
        join("a");
        take(8 * MIB);
        if (FORK() == 0) {
            join("b");
            OK(write(ready[1], "", 1));
            for (;;)
                pause();
        }
        _exit(0);
    }
    EXITS(pid, 0);
    char byte;
    CHECK_EQ(read(ready[0], &byte, 1), 1);
    CHECK(current_of("a") >= 8 * MIB);
    CHECK(current_of("b") < SOME);
    OK(tell("b", "cgroup.kill", "1"));
    check_empty("a");
}

TEST(shared_memory_is_charged) {
    begin_memory();
    make("a");
    IN_CHILD({
        join("a");
        char *at = mmap(NULL, 8 * MIB, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        CHECK(at != MAP_FAILED);
        touch(at, 8 * MIB);
        CHECK(current_of("a") >= 8 * MIB);
        for (int i = 0; i < 300 && value_of("a", "memory.stat", "shmem") < 8 * MIB; i++)
            msleep(10);
        CHECK(value_of("a", "memory.stat", "shmem") >= 8 * MIB);
        CHECK(value_of("a", "memory.stat", "file") >= 8 * MIB);
        CHECK(value_of("a", "memory.stat", "anon") < SOME);
    });
    check_empty("a");
}

TEST(files_in_memory_are_charged_until_they_are_gone) {
    begin_memory();
    const char *dir = mount_memory();
    char path[PATH_MAX + 8];
    snprintf(path, sizeof path, "%s/f", dir);
    make("a");
    IN_CHILD({
        join("a");
        OK(fill(path, 8 * MIB));
    });
    CHECK(current_of("a") >= 8 * MIB);
    /* Others use it for nothing. */
    make("b");
    IN_CHILD({
        join("b");
        OK(fill(path, 8 * MIB));
        CHECK(current_of("b") < SOME);
    });
    OK(truncate(path, 4 * MIB));
    CHECK(current_of("a") < 4 * MIB + SOME);
    CHECK(current_of("a") >= 4 * MIB);
    OK(unlink(path));
    check_empty("a");
}

TEST(moving_leaves_charges_behind) {
    begin_memory();
    make("a");
    make("b");
    int go[2], done[2];
    OK(pipe(go));
    OK(pipe(done));
    pid_t pid = FORK();
    char byte = 0;
    if (pid == 0) {
        join("a");
        char *at = map(16 * MIB);
        touch(at, 8 * MIB);
        OK(write(done[1], &byte, 1));
        CHECK_EQ(read(go[0], &byte, 1), 1);
        touch(at + 8 * MIB, 4 * MIB);
        OK(write(done[1], &byte, 1));
        for (;;)
            pause();
    }
    CHECK_EQ(read(done[0], &byte, 1), 1);
    OK(move_to("b", pid));
    CHECK(current_of("a") >= 8 * MIB);
    CHECK(current_of("b") < SOME);
    OK(write(go[1], &byte, 1));
    CHECK_EQ(read(done[0], &byte, 1), 1);
    CHECK(current_of("b") >= 4 * MIB);
    CHECK(current_of("b") < 4 * MIB + SOME);
    end(pid);
    check_empty("a");
    check_empty("b");
}

TEST(programs_that_members_start_are_charged) {
    begin_memory();
    make("a");
    for (int round = 0; round < 3; round++) {
        pid_t pid = FORK();
        if (pid == 0) {
            join("a");
            pid_t child;
            for (int i = 0; i < 5; i++) {
                char *const command[] = {hy_self, "--list", NULL};
                posix_spawn_file_actions_t actions;
                ZERO(posix_spawn_file_actions_init(&actions));
                ZERO(posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0));
                ZERO(posix_spawn(&child, hy_self, &actions, NULL, command, environ));
                int status = WAIT(child);
                CHECK(WIFEXITED(status));
            }
            CHECK(current_of("a") > 0);
            _exit(0);
        }
        EXITS(pid, 0);
        if (round > 0)
            CHECK(atol(shown("a", "memory.current")) < 16 * MIB);
    }
    /* What is left is content of files. */
    long left = value_of("a", "memory.stat", "anon");
    for (int i = 0; i < 300 && left > SOME / 4; i++, left = value_of("a", "memory.stat", "anon"))
        msleep(10);
    CHECK(left <= SOME / 4);
}

TEST(a_removed_groups_charges_count_above) {
    begin_memory();
    const char *dir = mount_memory();
    char path[PATH_MAX + 8];
    snprintf(path, sizeof path, "%s/f", dir);
    make("p");
    OK(tell("p", "cgroup.subtree_control", "+memory"));
    for (int round = 0; round < 3; round++) {
        make("p/a");
        IN_CHILD({
            join("p/a");
            OK(fill(path, 8 * MIB));
        });
        CHECK(current_of("p/a") >= 8 * MIB);
        OK(rmdir(path_of("p/a", NULL)));
        CHECK(current_of("p") >= 8 * MIB);
        /* Another one of this name has nothing to do with it. */
        make("p/a");
        CHECK(current_of("p/a") < SOME);
        OK(unlink(path));
        check_empty("p");
        OK(rmdir(path_of("p/a", NULL)));
    }
}

TEST(the_controller_is_given_and_taken) {
    begin_memory();
    make("p");
    make("p/a");
    pid_t pid = holder("p/a", 8 * MIB);
    struct stat st;
    ERR(stat(path_of("p/a", "memory.max"), &st), ENOENT);
    CHECK(current_of("p") >= 8 * MIB);
    OK(tell("p", "cgroup.subtree_control", "+memory"));
    CHECK_STR(shown("p/a", "memory.max"), "max\n");
    CHECK(current_of("p/a") < SOME);
    pid_t other = holder("p/a", 4 * MIB);
    CHECK(current_of("p/a") >= 4 * MIB);
    CHECK(current_of("p") >= 12 * MIB);
    OK(tell("p/a", "memory.max", "64M"));
    OK(tell("p", "cgroup.subtree_control", "-memory"));
    ERR(stat(path_of("p/a", "memory.max"), &st), ENOENT);
    CHECK(current_of("p") >= 12 * MIB);
    OK(tell("p", "cgroup.subtree_control", "+memory"));
    CHECK_STR(shown("p/a", "memory.max"), "max\n");
    CHECK(current_of("p/a") < SOME);
    end(pid);
    end(other);
    check_empty("p");
    /* A group with processes gives it to none, and one that gives it takes none. */
    pid = holder("p/a", PAGE);
    make("p/a/b");
    ERR(tell("p/a", "cgroup.subtree_control", "+memory"), EBUSY);
    ERR(move_to("p", pid), EBUSY);
    end(pid);
    OK(tell("p/a", "cgroup.subtree_control", "+memory"));
    ERR(tell("p", "cgroup.subtree_control", "-memory"), EBUSY);
}

/* ---- limits ---------------------------------------------------------------------------------- */

TEST(a_limit_holds_for_a_process) {
    begin_memory();
    make_with("a", "16M");
    pid_t pid = FORK();
    if (pid == 0) {
        join("a");
        take(64 * MIB);
        _exit(0);
    }
    KILLED(pid, SIGKILL);
    CHECK(EVENT("a", "max") > 0);
    CHECK(EVENT("a", "oom") > 0);
    CHECK_EQ(EVENT("a", "oom_kill"), 1);
    CHECK_EQ(LOCAL("a", "oom_kill"), 1);
    struct stat st;
    if (stat(path_of("a", "memory.peak"), &st) == 0)
        CHECK(atol(shown("a", "memory.peak")) <= 16 * MIB);
    check_empty("a");
    /* Below the limit, all is well. */
    pid = holder("a", 12 * MIB);
    end(pid);
    CHECK_EQ(EVENT("a", "oom_kill"), 1);
}

TEST(a_limit_holds_for_files_in_memory) {
    begin_memory();
    const char *dir = mount_memory();
    char path[PATH_MAX + 8];
    snprintf(path, sizeof path, "%s/f", dir);
    make_with("a", "16M");
    pid_t pid = FORK();
    if (pid == 0) {
        join("a");
        fill(path, 64 * MIB);
        _exit(0);
    }
    KILLED(pid, SIGKILL);
    CHECK(current_of("a") <= 16 * MIB);
    CHECK(current_of("a") >= 12 * MIB);
    struct stat st;
    OK(stat(path, &st));
    CHECK(st.st_size <= 17 * MIB);
    OK(unlink(path));
    check_empty("a");
}

TEST(a_limit_holds_for_children) {
    begin_memory();
    make_with("a", "16M");
    pid_t pid = FORK();
    if (pid == 0) {
        OK(write_to("/proc/self/oom_score_adj", "-1000"));
        join("a");
        char *at = take(4 * MIB);
        int killed = 0;
        for (int i = 0; i < 8; i++)
            if (FORK() == 0) {
                write_to("/proc/self/oom_score_adj", "0");
                touch(at, 4 * MIB);
                for (;;)
                    pause();
            }
        /* Three copies fit beside the parent's. */
        for (int i = 0; i < 8 && killed < 5; i++) {
            int status;
            pid_t child = OK(wait(&status));
            CHECK(child > 0);
            CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
            killed++;
        }
        CHECK(current_of("a") <= 16 * MIB);
        _exit(0);
    }
    EXITS(pid, 0);
    CHECK(EVENT("a", "oom_kill") >= 5);
    OK(tell("a", "cgroup.kill", "1"));
    check_empty("a");
}

TEST(limits_above_count_too) {
    begin_memory();
    make_with("p", "16M");
    OK(tell("p", "cgroup.subtree_control", "+memory"));
    make("p/a");
    make("p/b");
    pid_t quiet = holder("p/b", 4 * MIB);
    pid_t pid = FORK();
    if (pid == 0) {
        join("p/a");
        take(64 * MIB);
        _exit(0);
    }
    KILLED(pid, SIGKILL);
    CHECK(lives(quiet));
    CHECK_EQ(LOCAL("p/a", "oom_kill"), 1);
    CHECK_EQ(EVENT("p", "oom_kill"), 1);
    CHECK_EQ(LOCAL("p", "oom_kill"), 0);
    CHECK(LOCAL("p", "oom") > 0);
    CHECK_EQ(EVENT("p/b", "oom_kill"), 0);
    CHECK(current_of("p") <= 4 * MIB + SOME + MIB);
    end(quiet);
    check_empty("p");
}

TEST(all_of_a_group_is_killed_if_it_says_so) {
    begin_memory();
    make_with("a", "24M");
    make("b");
    OK(tell("a", "memory.oom.group", "1"));
    pid_t outside = holder("b", 4 * MIB);
    pid_t one = holder("a", 4 * MIB), two = holder("a", 2 * MIB);
    pid_t never = holder("a", 2 * MIB);
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/oom_score_adj", never);
    OK(write_to(path, "-1000"));
    pid_t pid = FORK();
    if (pid == 0) {
        join("a");
        take(64 * MIB);
        _exit(0);
    }
    KILLED(pid, SIGKILL);
    KILLED(one, SIGKILL);
    KILLED(two, SIGKILL);
    CHECK(lives(outside));
    CHECK(lives(never));
    /* Linux counts the first one twice. */
    CHECK(EVENT("a", "oom_kill") == 3 || EVENT("a", "oom_kill") == 4);
    end(outside);
    end(never);
}

TEST(a_limit_below_what_is_there_kills) {
    begin_memory();
    make("a");
    pid_t pid = holder("a", 16 * MIB);
    OK(tell("a", "memory.max", "1M"));
    KILLED(pid, SIGKILL);
    CHECK(EVENT("a", "oom_kill") >= 1);
    CHECK(current_of("a") <= MIB);
    OK(tell("a", "memory.max", "max"));
    pid_t all[5];
    for (int i = 0; i < 5; i++)
        all[i] = holder("a", MIB);
    OK(tell("a", "memory.max", "0"));
    for (int i = 0; i < 5; i++)
        KILLED(all[i], SIGKILL);
    CHECK_STR(shown("a", "cgroup.procs"), "");
    OK(tell("a", "memory.max", "max"));
    end(holder("a", MIB));
}

TEST(reclaim_comes_before_the_kill_with_high) {
    begin_memory();
    make("a");
    OK(tell("a", "memory.high", "8M"));
    tell("a", "memory.swap.max", "0");
    pid_t pid = FORK();
    if (pid == 0) {
        join("a");
        take(12 * MIB);
        _exit(0);
    }
    for (int i = 0; i < 1000 && EVENT("a", "high") == 0; i++)
        msleep(10);
    CHECK(EVENT("a", "high") > 0);
    OK(tell("a", "memory.high", "max"));
    /* It was slowed down, and not killed. */
    EXITS(pid, 0);
    CHECK_EQ(EVENT("a", "oom_kill"), 0);
}

TEST(memory_that_is_protected_is_used_as_any) {
    begin_memory();
    make_with("a", "16M");
    OK(tell("a", "memory.min", "8M"));
    OK(tell("a", "memory.low", "12M"));
    end(holder("a", 8 * MIB));
    pid_t pid = FORK();
    if (pid == 0) {
        join("a");
        take(64 * MIB);
        _exit(0);
    }
    KILLED(pid, SIGKILL);
}

TEST(a_call_is_refused_where_no_process_is_left_to_kill) {
    begin_memory();
    make_with("a", "8M");
    pid_t pid = FORK();
    if (pid == 0) {
        OK(write_to("/proc/self/oom_score_adj", "-1000"));
        join("a");
        char *at = map(32 * MIB);
        int fd = OK(open("/dev/zero", O_RDONLY));
        /* A copy by the kernel fails, or is short. */
        ssize_t n = read(fd, at, 32 * MIB);
        CHECK(n < 32 * MIB);
        CHECK(n >= 0 || errno == EFAULT || errno == ENOMEM);
        _exit(0);
    }
    EXITS(pid, 0);
    check_empty("a");
}

/* ---- events ---------------------------------------------------------------------------------- */

TEST(events_are_told) {
    begin_memory();
    make_with("p", "max");
    OK(tell("p", "cgroup.subtree_control", "+memory"));
    make_with("p/a", "8M");
    int fd = OK(open(path_of("p/a", "memory.events"), O_RDONLY));
    int above = OK(open(path_of("p", "memory.events"), O_RDONLY));
    char text[256];
    CHECK(OK(read(fd, text, sizeof text)) > 0);
    CHECK(OK(read(above, text, sizeof text)) > 0);
    struct pollfd both[] = {{fd, POLLPRI, 0}, {above, POLLPRI, 0}};
    CHECK_EQ(OK(poll(both, 2, 0)), 0);
    int watch = OK(inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
    OK(inotify_add_watch(watch, path_of("p/a", "memory.events"), IN_MODIFY));
    pid_t pid = FORK();
    if (pid == 0) {
        join("p/a");
        take(32 * MIB);
        _exit(0);
    }
    KILLED(pid, SIGKILL);
    CHECK(OK(poll(both, 2, 5000)) >= 1);
    CHECK(both[0].revents & POLLPRI);
    for (int i = 0; i < 500 && !(both[1].revents & POLLPRI); i++) {
        msleep(10);
        OK(poll(both, 2, 0));
    }
    CHECK(both[1].revents & POLLPRI);
    struct pollfd told = {watch, POLLIN, 0};
    CHECK_EQ(OK(poll(&told, 1, 5000)), 1);
    close(watch);
    close(fd);
    close(above);
}

/* ---- users ----------------------------------------------------------------------------------- */

TEST(a_user_limits_what_was_delegated) {
    begin_memory();
    make_with("a", "32M");
    OK(chown(path_of("a", NULL), 1000, 1000));
    OK(chown(path_of("a", "cgroup.procs"), 1000, 1000));
    OK(chown(path_of("a", "cgroup.subtree_control"), 1000, 1000));
    pid_t pid = FORK();
    if (pid == 0) {
        join("a");
        OK(chmod(top, 0755));
        BECOME(1000, 1000);
        if (access(base, X_OK) == -1)
            SKIP("the case's directory is not the user's");
        make("a/b");
        make("a/c");
        OK(tell("a/b", "cgroup.procs", "0"));
        OK(tell("a", "cgroup.subtree_control", "+memory"));
        OK(tell("a/c", "memory.max", "8M"));
        /* The limit of what was delegated is not the user's. */
        ERR(tell("a", "memory.max", "max"), EACCES);
        pid_t child = FORK();
        if (child == 0) {
            OK(tell("a/c", "cgroup.procs", "0"));
            take(16 * MIB);
            _exit(0);
        }
        KILLED(child, SIGKILL);
        child = FORK();
        if (child == 0) {
            OK(tell("a/c", "memory.max", "max"));
            OK(tell("a/c", "cgroup.procs", "0"));
            take(64 * MIB);
            _exit(0);
        }
        KILLED(child, SIGKILL);
        _exit(0);
    }
    int status = WAIT(pid);
    CHECK(WIFEXITED(status) && (WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == 77));
}

/* ---- attacks --------------------------------------------------------------------------------- */

static void *takes_and_gives(void *arg) {
    for (;;) {
        char *at = take((size_t)(intptr_t)arg);
        munmap(at, (size_t)(intptr_t)arg);
    }
    return NULL;
}

/* A charge that is tried and taken back counts for a moment (`page_counter_try_charge`): so much at
 * most, of all processors. */
enum { TRIES = 64 * 4096 };

TEST_TIMES(storm_at_the_limit, 3) {
    begin_memory();
    make_with("a", "12M");
    enum { MOST = 6 };
    pid_t all[MOST];
    for (int i = 0; i < MOST; i++)
        all[i] = 0;
    struct timespec now, until;
    OK(clock_gettime(CLOCK_MONOTONIC, &until));
    until.tv_sec += 3;
    do {
        for (int i = 0; i < MOST; i++) {
            int status;
            if (all[i] && waitpid(all[i], &status, WNOHANG) == all[i]) {
                CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
                all[i] = 0;
            }
            if (all[i] == 0 && (all[i] = FORK()) == 0) {
                join("a");
                pthread_t thread;
                if (i % 2 == 0)
                    pthread_create(&thread, NULL, takes_and_gives, (void *)(intptr_t)MIB);
                takes_and_gives((void *)(intptr_t)((i + 1) * MIB));
            }
        }
        CHECK(current_of("a") <= 12 * MIB + TRIES);
        msleep(5);
        OK(clock_gettime(CLOCK_MONOTONIC, &now));
    } while (now.tv_sec < until.tv_sec);
    OK(tell("a", "cgroup.kill", "1"));
    for (int i = 0; i < MOST; i++)
        if (all[i]) {
            kill(all[i], SIGKILL);
            KILLED(all[i], SIGKILL);
        }
    check_empty("a");
}

TEST_TIMES(fork_bomb_at_the_limit, 3) {
    begin_memory();
    make_with("a", "8M");
    pid_t pid = FORK();
    if (pid == 0) {
        join("a");
        signal(SIGCHLD, SIG_IGN);
        for (int i = 0;; i++) {
            pid_t child = fork();
            if (child == 0)
                take(16 * PAGE);
            if (child == -1)
                sched_yield();
        }
    }
    for (int i = 0; i < 100; i++) {
        CHECK(current_of("a") <= 8 * MIB + TRIES);
        msleep(10);
    }
    CHECK(EVENT("a", "max") > 0);
    /* Those outside start programs as ever. */
    for (int i = 0; i < 20; i++)
        IN_CHILD(take(MIB));
    for (int i = 0; i < 200 && POPULATED("a"); i++) {
        OK(tell("a", "cgroup.kill", "1"));
        msleep(20);
    }
    CHECK_EQ(POPULATED("a"), 0);
    WAIT(pid);
    check_empty("a");
}

TEST_TIMES(killed_in_the_middle, 3) {
    begin_memory();
    make_with("a", "4M");
    for (int i = 0; i < 60; i++) {
        pid_t one = FORK();
        if (one == 0) {
            join("a");
            takes_and_gives((void *)(intptr_t)(3 * MIB));
        }
        pid_t two = FORK();
        if (two == 0) {
            join("a");
            takes_and_gives((void *)(intptr_t)(8 * MIB));
        }
        usleep((useconds_t)(i * 700));
        OK(kill(one, SIGKILL));
        OK(kill(two, SIGKILL));
        KILLED(one, SIGKILL);
        KILLED(two, SIGKILL);
    }
    check_empty("a");
}

TEST_TIMES(moved_while_it_faults, 3) {
    begin_memory();
    make("a");
    make("b");
    OK(mkdir(path_of("c", NULL), 0755));
    pid_t pid = FORK();
    if (pid == 0) {
        pthread_t thread;
        pthread_create(&thread, NULL, takes_and_gives, (void *)(intptr_t)MIB);
        for (;;) {
            if (FORK() == 0) {
                take(MIB);
                _exit(0);
            }
            char *at = take(2 * MIB);
            munmap(at, 2 * MIB);
            while (waitpid(-1, NULL, WNOHANG) > 0) {
            }
        }
    }
    static const char *const groups[] = {"a", "b", "", "c"};
    for (int i = 0; i < 400; i++)
        if (groups[i % 4][0])
            OK(move_to(groups[i % 4], pid));
        else
            msleep(1);
    OK(kill(pid, SIGKILL));
    WAIT(pid);
    for (int i = 0; i < 200 && (POPULATED("a") || POPULATED("b") || POPULATED("c")); i++)
        msleep(10);
    check_empty("a");
    check_empty("b");
    check_empty("c");
    OK(rmdir(path_of("a", NULL)));
    OK(rmdir(path_of("b", NULL)));
    OK(rmdir(path_of("c", NULL)));
}

TEST_TIMES(limits_come_and_go_under_a_storm, 3) {
    begin_memory();
    make("a");
    pid_t all[3];
    for (int i = 0; i < 3; i++)
        all[i] = 0;
    for (int round = 0; round < 150; round++) {
        for (int i = 0; i < 3; i++) {
            if (all[i] && waitpid(all[i], NULL, WNOHANG) == all[i])
                all[i] = 0;
            if (all[i] == 0 && (all[i] = FORK()) == 0) {
                join("a");
                takes_and_gives((void *)(intptr_t)(2 * MIB));
            }
        }
        static const char *const limits[] = {"0", "1M", "max", "3M", "max"};
        OK(tell("a", round % 3 ? "memory.max" : "memory.high", limits[round % 5]));
        msleep(2);
    }
    OK(tell("a", "memory.high", "max"));
    OK(tell("a", "memory.max", "max"));
    OK(tell("a", "cgroup.kill", "1"));
    for (int i = 0; i < 3; i++)
        if (all[i]) {
            /* It may have joined the group after that. */
            kill(all[i], SIGKILL);
            WAIT(all[i]);
        }
    check_empty("a");
}

TEST_TIMES(a_thousand_groups, 3) {
    begin_memory();
    make("p");
    OK(tell("p", "cgroup.subtree_control", "+memory"));
    char name[32];
    for (int i = 0; i < 1000; i++) {
        snprintf(name, sizeof name, "p/%d", i);
        make(name);
    }
    for (int i = 0; i < 1000; i += 50) {
        snprintf(name, sizeof name, "p/%d", i);
        IN_CHILD({
            join(name);
            take(MIB);
            CHECK(current_of(name) >= MIB);
            CHECK(current_of("p") >= MIB);
        });
        check_empty(name);
    }
    for (int i = 0; i < 1000; i++) {
        snprintf(name, sizeof name, "p/%d", i);
        for (int tries = 0; rmdir(path_of(name, NULL)) == -1; tries++) {
            CHECK(errno == EBUSY && tries < 500);
            msleep(2);
        }
    }
    check_empty("p");
}

TEST_TIMES(deep_groups, 3) {
    begin_memory();
    char name[1024] = "";
    for (int i = 0; i < 60; i++) {
        snprintf(name + strlen(name), sizeof name - strlen(name), "%s%d", i ? "/" : "", i % 10);
        make(name);
        OK(tell(name, "cgroup.subtree_control", "+memory"));
    }
    strcat(name, "/x");
    make(name);
    OK(tell("0", "memory.max", "8M"));
    pid_t pid = FORK();
    if (pid == 0) {
        join(name);
        take(16 * MIB);
        _exit(0);
    }
    KILLED(pid, SIGKILL);
    CHECK_EQ(EVENT("0", "oom_kill"), 1);
    CHECK_EQ(EVENT(name, "oom_kill"), 1);
    check_empty("0");
}

TEST(writes_from_outside_meet_the_limit) {
    begin_memory();
    make_with("a", "8M");
    int told[2];
    OK(pipe(told));
    pid_t pid = FORK();
    if (pid == 0) {
        join("a");
        char *at = map(32 * MIB);
        OK(write(told[1], &at, sizeof at));
        for (;;)
            pause();
    }
    char *at;
    CHECK_EQ(read(told[0], &at, sizeof at), (ssize_t)sizeof at);
    char *own = take(32 * MIB);
    struct iovec from = {own, 32 * MIB}, to = {at, 32 * MIB};
    /* The process is killed. On Linux its memory is nobody's then, and the call may go on. */
    process_vm_writev(pid, &from, 1, &to, 1, 0);
    CHECK(current_of("a") <= 8 * MIB);
    KILLED(pid, SIGKILL);
    check_empty("a");
}
