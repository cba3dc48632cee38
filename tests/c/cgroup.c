/* Control groups (cgroups(7), version 2): the tree and its files, members, delegation, freezing,
 * ending, namespaces, the controller pids, time on processors. */
#define AREA "cgroup"
#include "groups.h"
#include <linux/sched.h>
#include <poll.h>
#include <sys/inotify.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/statfs.h>

#define MAGIC 0x63677270

static pid_t clone_into(int group, uint64_t flags) {
    struct clone_args args = {.flags = CLONE_INTO_CGROUP | flags,
                              .exit_signal = SIGCHLD,
                              .cgroup = (uint64_t)(int64_t)group};
    return (pid_t)syscall(SYS_clone3, &args, sizeof args);
}

/* ---- the tree -------------------------------------------------------------------------------- */

TEST(the_type_is_known) {
    begin();
    CHECK(strstr(read_of("/proc/filesystems"), "nodev\tcgroup2\n") != NULL);
    struct statfs st;
    OK(statfs(base, &st));
    CHECK_EQ(st.f_type, MAGIC);
    struct stat dir;
    OK(stat("/sys/fs/cgroup", &dir));
    CHECK(S_ISDIR(dir.st_mode));
    CHECK(strncmp(read_of("/proc/cgroups"), "#subsys_name\thierarchy\tnum_cgroups\tenabled\n", 43) ==
          0);
    ERR(mount("none", top, "cgroup2", 0, "hy_no_option"), EINVAL);
}

TEST(groups_have_their_files) {
    begin();
    static const struct {
        const char *name;
        mode_t mode;
    } files[] = {
        {"cgroup.controllers", 0444},     {"cgroup.events", 0444},  {"cgroup.freeze", 0644},
        {"cgroup.kill", 0200},            {"cgroup.stat", 0444},    {"cgroup.max.depth", 0644},
        {"cgroup.max.descendants", 0644}, {"cgroup.procs", 0644},   {"cgroup.threads", 0644},
        {"cgroup.subtree_control", 0644}, {"cgroup.type", 0644},    {"cpu.stat", 0444},
    };
    OK(mkdir(path_of("a", NULL), 0700));
    struct stat st;
    OK(stat(path_of("a", NULL), &st));
    CHECK_EQ(st.st_mode, S_IFDIR | 0700);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        OK(stat(path_of("a", files[i].name), &st));
        CHECK_EQ(st.st_mode, S_IFREG | files[i].mode);
        CHECK_EQ(st.st_size, 0);
    }
    CHECK_STR(shown("a", "cgroup.type"), "domain\n");
    CHECK_STR(shown("a", "cgroup.controllers"), "");
    CHECK_STR(shown("a", "cgroup.procs"), "");
    CHECK_STR(shown("a", "cgroup.freeze"), "0\n");
    CHECK_STR(shown("a", "cgroup.max.depth"), "max\n");
    CHECK_STR(shown("a", "cgroup.events"), "populated 0\nfrozen 0\n");
    /* The root has no state of its own. */
    char path[PATH_MAX + 32];
    static const char *const none[] = {"cgroup.events", "cgroup.type", "cgroup.freeze",
                                       "cgroup.kill", "pids.max"};
    for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
        snprintf(path, sizeof path, "%s/%s", top, none[i]);
        ERR(stat(path, &st), ENOENT);
    }
}

TEST(groups_are_listed) {
    begin();
    char name[16];
    for (int i = 0; i < 100; i++) {
        snprintf(name, sizeof name, "g%d", i);
        OK(mkdir(path_of(name, NULL), 0755));
    }
    int groups = 0, files = 0;
    bool procs = false;
    DIR *dir = opendir(base);
    CHECK(dir != NULL);
    for (struct dirent *entry; (entry = readdir(dir));) {
        groups += entry->d_type == DT_DIR && entry->d_name[0] == 'g';
        files += entry->d_type == DT_REG;
        procs |= strcmp(entry->d_name, "cgroup.procs") == 0;
        struct stat st;
        if (entry->d_name[0] != '.') {
            OK(stat(path_of("", entry->d_name), &st));
            CHECK_EQ(st.st_ino, entry->d_ino);
        }
    }
    closedir(dir);
    CHECK_EQ(groups, 100);
    CHECK(procs);
    CHECK(files >= 12);
    struct stat st;
    OK(stat(base, &st));
    CHECK_EQ(st.st_nlink, 102);
    CHECK_EQ(value_of("", "cgroup.stat", "nr_descendants"), 100);
}

TEST(names_are_changed_by_mkdir_and_rmdir_alone) {
    begin();
    OK(mkdir(path_of("a", NULL), 0755));
    ERR(mkdir(path_of("a", NULL), 0755), EEXIST);
    ERR(mkdir(path_of("cgroup.procs", NULL), 0755), EEXIST);
    ERR(mkdir(path_of("a\nb", NULL), 0755), EINVAL);
    ERR(mkdir(path_of("x/y", NULL), 0755), ENOENT);
    ERR(open(path_of("file", NULL), O_CREAT | O_WRONLY, 0644), EACCES);
    ERR(unlink(path_of("a", "cgroup.procs")), EPERM);
    ERR(rename(path_of("a", NULL), path_of("b", NULL)), EPERM);
    ERR(link(path_of("a", "cgroup.procs"), path_of("a", "other")), EPERM);
    ERR(symlink("x", path_of("a", "other")), EPERM);
    ERR(mknod(path_of("a", "other"), S_IFIFO | 0644, 0), EPERM);
    ERR(rmdir(path_of("a", "cgroup.procs")), ENOTDIR);
    OK(mkdir(path_of("a/b", NULL), 0755));
    ERR(rmdir(path_of("a", NULL)), EBUSY);
    OK(rmdir(path_of("a/b", NULL)));
    OK(rmdir(path_of("a", NULL)));
    ERR(rmdir(path_of("a", NULL)), ENOENT);
}

TEST(a_removed_group_is_no_more) {
    begin();
    OK(mkdir(path_of("a", NULL), 0755));
    int dir = OK(open(path_of("a", NULL), O_RDONLY | O_DIRECTORY));
    int procs = OK(open(path_of("a", "cgroup.procs"), O_RDWR));
    int events = OK(open(path_of("a", "cgroup.events"), O_RDONLY));
    OK(rmdir(path_of("a", NULL)));
    char text[64];
    ERR(read(events, text, sizeof text), ENODEV);
    ERR(write(procs, "0", 1), ENODEV);
    ERR(openat(dir, "cgroup.procs", O_RDONLY), ENOENT);
    ERR(mkdirat(dir, "b", 0755), ENOENT);
    ERR(clone_into(dir, 0), ENOENT);
    /* Another one of this name is another one. */
    OK(mkdir(path_of("a", NULL), 0755));
    ERR(read(events, text, sizeof text), ENODEV);
    CHECK_STR(shown("a", "cgroup.events"), "populated 0\nfrozen 0\n");
    close(dir);
    close(procs);
    close(events);
}

TEST(depth_and_descendants_have_limits) {
    begin();
    OK(tell("", "cgroup.max.depth", "1"));
    OK(mkdir(path_of("a", NULL), 0755));
    ERR(mkdir(path_of("a/b", NULL), 0755), EAGAIN);
    OK(tell("", "cgroup.max.depth", "max\n"));
    OK(mkdir(path_of("a/b", NULL), 0755));
    OK(tell("", "cgroup.max.descendants", "3"));
    CHECK_STR(shown("", "cgroup.max.descendants"), "3\n");
    OK(mkdir(path_of("a/b/c", NULL), 0755));
    ERR(mkdir(path_of("d", NULL), 0755), EAGAIN);
    CHECK_EQ(value_of("", "cgroup.stat", "nr_descendants"), 3);
    OK(rmdir(path_of("a/b/c", NULL)));
    OK(mkdir(path_of("d", NULL), 0755));
    OK(tell("", "cgroup.max.descendants", "0"));
    ERR(mkdir(path_of("e", NULL), 0755), EAGAIN);
    ERR(tell("", "cgroup.max.depth", "-1"), ERANGE);
    ERR(tell("", "cgroup.max.depth", "99999999999"), ERANGE);
    ERR(tell("", "cgroup.max.depth", "few"), EINVAL);
    ERR(tell("", "cgroup.max.descendants", "x"), EINVAL);
}

TEST(owners_and_modes_are_kept) {
    begin();
    OK(mkdir(path_of("a", NULL), 0755));
    OK(chown(path_of("a", "cgroup.procs"), 77, 88));
    OK(chmod(path_of("a", "cgroup.procs"), 0600));
    struct stat st;
    OK(stat(path_of("a", "cgroup.procs"), &st));
    CHECK_EQ(st.st_uid, 77);
    CHECK_EQ(st.st_gid, 88);
    CHECK_EQ(st.st_mode, S_IFREG | 0600);
    OK(stat(path_of("a", "cgroup.threads"), &st));
    CHECK_EQ(st.st_uid, 0);
    CHECK_EQ(st.st_mode, S_IFREG | 0644);
    /* What a user makes is the user's. */
    OK(chown(path_of("a", NULL), NOBODY, NOBODY));
    IN_CHILD({
        OK(chdir(path_of("a", NULL)));
        BECOME(NOBODY, NOBODY);
        OK(mkdir("b", 0755));
        struct stat own;
        OK(stat("b/cgroup.procs", &own));
        CHECK_EQ(own.st_uid, NOBODY);
        CHECK_EQ(own.st_gid, NOBODY);
        ERR(mkdir("../c", 0755), EACCES);
        ERR(open("cgroup.procs", O_WRONLY), EACCES);
        ERR(open("cgroup.freeze", O_WRONLY), EACCES);
    });
}

/* ---- members --------------------------------------------------------------------------------- */

TEST(a_process_moves_and_its_children_follow) {
    begin();
    OK(mkdir(path_of("a", NULL), 0755));
    OK(mkdir(path_of("b", NULL), 0755));
    pid_t pid = FORK();
    if (pid == 0) {
        OK(tell("a", "cgroup.procs", "0"));
        CHECK(is_in(getpid(), "a"));
        pid_t child = idle();
        CHECK(is_in(child, "a"));
        CHECK_EQ(members("a"), 2);
        OK(move_to("b", child));
        CHECK(is_in(child, "b"));
        CHECK(is_in(getpid(), "a"));
        CHECK_EQ(members("a"), 1);
        CHECK_EQ(atoi(shown("b", "cgroup.procs")), child);
        CHECK_EQ(POPULATED("a"), 1);
        CHECK_EQ(POPULATED("b"), 1);
        CHECK_EQ(POPULATED(""), 1);
        ERR(rmdir(path_of("b", NULL)), EBUSY);
        end(child);
        CHECK_EQ(POPULATED("b"), 0);
        OK(rmdir(path_of("b", NULL)));
        /* A program stays in the group of the process. */
        IN_CHILD(CHECK(is_in(getpid(), "a")));
        _exit(7);
    }
    EXITS(pid, 7);
    CHECK_EQ(POPULATED("a"), 0);
    CHECK_EQ(POPULATED(""), 0);
    CHECK_STR(shown("a", "cgroup.procs"), "");
    OK(rmdir(path_of("a", NULL)));
}

TEST(vfork_and_exec_stay_in_the_group) {
    begin();
    OK(mkdir(path_of("a", NULL), 0755));
    IN_CHILD({
        OK(tell("a", "cgroup.procs", "0"));
        for (int i = 0; i < 20; i++) {
            pid_t pid = vfork();
            if (pid == 0) {
                execl(hy_self, hy_self, "--helper", "is_in_group", strrchr(base, '/'), NULL);
                _exit(99);
            }
            EXITS(pid, 0);
        }
    });
    CHECK_EQ(POPULATED("a"), 0);
}
HELPER(is_in_group) { return argc == 2 && strstr(group_of("self"), argv[1]) ? 0 : 1; }

TEST(a_zombie_is_no_member) {
    begin();
    OK(mkdir(path_of("a", NULL), 0755));
    pid_t pid = idle_in("a");
    OK(kill(pid, SIGKILL));
    siginfo_t info;
    OK(waitid(P_PID, pid, &info, WEXITED | WNOWAIT));
    CHECK_EQ(POPULATED("a"), 0);
    CHECK_STR(shown("a", "cgroup.procs"), "");
    CHECK(is_in(pid, "a"));
    OK(rmdir(path_of("a", NULL)));
    CHECK(strstr(group_of_pid(pid), "/a (deleted)") != NULL);
    CHECK_EQ(value_of("", "cgroup.stat", "nr_dying_descendants"), 1);
    KILLED(pid, SIGKILL);
    EVENTUALLY(value_of("", "cgroup.stat", "nr_dying_descendants") == 0);
}

TEST(what_is_no_process_does_not_move) {
    begin();
    ERR(tell("", "cgroup.procs", "init"), EINVAL);
    ERR(tell("", "cgroup.procs", "-1"), EINVAL);
    ERR(tell("", "cgroup.procs", "1 2"), EINVAL);
    ERR(tell("", "cgroup.procs", "99999999"), ESRCH);
    pid_t gone = idle();
    end(gone);
    ERR(move_to("", gone), ESRCH);
    pid_t pid = idle();
    char text[32];
    snprintf(text, sizeof text, "  %d \n", pid);
    CHECK_EQ(tell("", "cgroup.procs", text), strlen(text));
    CHECK(is_in(pid, ""));
    /* Again, and out of it. */
    OK(move_to("", pid));
    snprintf(text, sizeof text, "%d", pid);
    char procs[PATH_MAX + 32];
    snprintf(procs, sizeof procs, "%s/cgroup.procs", top);
    OK(write_to(procs, text));
    CHECK(!is_in(pid, ""));
    CHECK_EQ(POPULATED(""), 0);
    end(pid);
}

static void *sleeps(void *arg) {
    *(_Atomic pid_t *)arg = (pid_t)syscall(SYS_gettid);
    for (;;)
        pause();
    return NULL;
}

TEST(threads_are_where_their_process_is) {
    begin();
    OK(mkdir(path_of("a", NULL), 0755));
    _Atomic pid_t *tids = SHARED(PAGE);
    pid_t pid = FORK();
    if (pid == 0) {
        pthread_t thread;
        for (int i = 0; i < 3; i++)
            ZERO(pthread_create(&thread, NULL, sleeps, (void *)&tids[i]));
        for (;;)
            pause();
    }
    EVENTUALLY(tids[0] && tids[1] && tids[2]);
    /* By the number of any thread. */
    OK(move_to("a", tids[1]));
    CHECK(is_in(pid, "a"));
    CHECK(is_in(tids[2], "a"));
    CHECK_EQ(members("a"), 1);
    int count = 0;
    for (const char *text = shown("a", "cgroup.threads"); *text; text++)
        count += *text == '\n';
    CHECK_EQ(count, 4);
    char text[16];
    snprintf(text, sizeof text, "%d", tids[0]);
    ERR(tell("", "cgroup.threads", text), EOPNOTSUPP);
    OK(tell("a", "cgroup.threads", text));
    ERR(tell("a", "cgroup.type", "domain"), EINVAL);
    end(pid);
    CHECK_EQ(POPULATED("a"), 0);
}

TEST(clone3_begins_in_a_group) {
    begin();
    OK(mkdir(path_of("a", NULL), 0755));
    int dir = OK(open(path_of("a", NULL), O_PATH | O_DIRECTORY));
    pid_t pid = OK(clone_into(dir, 0));
    if (pid == 0) {
        CHECK(is_in(getpid(), "a"));
        IN_CHILD(CHECK(is_in(getpid(), "a")));
        _exit(3);
    }
    CHECK(is_in(pid, "a"));
    CHECK(!is_in(getpid(), "a"));
    EXITS(pid, 3);
    CHECK_EQ(POPULATED("a"), 0);
    /* Out of it again. */
    IN_CHILD({
        OK(tell("a", "cgroup.procs", "0"));
        int above = OK(open(base, O_RDONLY | O_DIRECTORY));
        pid_t child = OK(clone_into(above, 0));
        if (child == 0)
            _exit(is_in(getpid(), "") ? 0 : 1);
        EXITS(child, 0);
    });
    ERR(clone_into(-1, 0), EINVAL);
    ERR(clone_into(999, 0), EBADF);
    int file = OK(open(path_of("a", "cgroup.procs"), O_WRONLY));
    ERR(clone_into(file, 0), EBADF);
    int other = OK(open("/", O_RDONLY | O_DIRECTORY));
    ERR(clone_into(other, 0), EBADF);
    struct clone_args args = {
        .flags = CLONE_INTO_CGROUP, .exit_signal = SIGCHLD, .cgroup = (uint64_t)dir};
    ERR(syscall(SYS_clone3, &args, CLONE_ARGS_SIZE_VER1), EINVAL);
    OK(chmod(path_of("a", NULL), 0755));
    IN_CHILD({
        BECOME(NOBODY, NOBODY);
        ERR(clone_into(dir, 0), EACCES);
    });
    close(dir);
}

TEST(events_tell_of_members) {
    begin();
    OK(mkdir(path_of("a", NULL), 0755));
    OK(mkdir(path_of("a/b", NULL), 0755));
    int fd = OK(open(path_of("a", "cgroup.events"), O_RDONLY));
    struct pollfd one = {fd, POLLPRI, 0};
    char text[64];
    /* News, since it was not read. */
    CHECK_EQ(OK(poll(&one, 1, 0)), 1);
    CHECK_EQ(one.revents, POLLPRI | POLLERR);
    CHECK(OK(read(fd, text, sizeof text)) > 0);
    CHECK_EQ(OK(poll(&one, 1, 0)), 0);
    int watch = OK(inotify_init1(IN_NONBLOCK));
    OK(inotify_add_watch(watch, path_of("a", "cgroup.events"), IN_MODIFY));
    pid_t pid = idle_in("a/b");
    CHECK_EQ(OK(poll(&one, 1, 5000)), 1);
    CHECK_EQ(one.revents, POLLPRI | POLLERR);
    CHECK(OK(pread(fd, text, sizeof text, 0)) > 0);
    CHECK(strncmp(text, "populated 1\n", 12) == 0);
    struct pollfd in = {watch, POLLIN, 0};
    CHECK_EQ(OK(poll(&in, 1, 5000)), 1);
    struct inotify_event event;
    CHECK_EQ(OK(read(watch, &event, sizeof event)), sizeof event);
    CHECK_EQ(event.mask, IN_MODIFY);
    OK(kill(pid, SIGKILL));
    CHECK_EQ(OK(poll(&one, 1, 5000)), 1);
    CHECK_EQ(POPULATED("a"), 0);
    KILLED(pid, SIGKILL);
    close(fd);
    close(watch);
}

/* ---- delegation ------------------------------------------------------------------------------ */

TEST(a_user_moves_processes_within_what_is_given) {
    begin();
    OK(mkdir(path_of("u", NULL), 0755));
    OK(chown(path_of("u", NULL), NOBODY, NOBODY));
    OK(chown(path_of("u", "cgroup.procs"), NOBODY, NOBODY));
    OK(chown(path_of("u", "cgroup.subtree_control"), NOBODY, NOBODY));
    OK(mkdir(path_of("other", NULL), 0777));
    OK(chmod(path_of("other", "cgroup.procs"), 0666));
    pid_t outside = idle();
    IN_CHILD({
        OK(tell("u", "cgroup.procs", "0"));
        OK(chdir(path_of("u", NULL)));
        BECOME(NOBODY, NOBODY);
        OK(mkdir("x", 0755));
        OK(mkdir("y", 0755));
        OK(write_to("x/cgroup.procs", "0"));
        CHECK(is_in(getpid(), "u/x"));
        OK(write_to("y/cgroup.procs", "0"));
        OK(write_to("cgroup.procs", "0"));
        CHECK(is_in(getpid(), "u"));
        /* Neither out nor in: what is around both is not the user's. */
        ERR(write_to("../other/cgroup.procs", "0"), EACCES);
        ERR(write_to("../cgroup.procs", "0"), EACCES);
        char text[16];
        snprintf(text, sizeof text, "%d", outside);
        ERR(write_to("x/cgroup.procs", text), EACCES);
        CHECK(is_in(getpid(), "u"));
        OK(rmdir("x"));
    });
    end(outside);
}

TEST(the_opener_of_a_file_counts) {
    begin();
    OK(mkdir(path_of("a", NULL), 0755));
    int mine = OK(open(path_of("a", "cgroup.procs"), O_WRONLY));
    IN_CHILD({
        BECOME(NOBODY, NOBODY);
        CHECK_EQ(OK(write(mine, "0", 1)), 1);
        CHECK(is_in(getpid(), "a"));
    });
    OK(chmod(path_of("a", "cgroup.procs"), 0666));
    /* Whose rights do not suffice opens it, and one with more rights writes. */
    int theirs = -1;
    IN_CHILD({
        OK(setresuid(-1, NOBODY, -1));
        theirs = OK(open(path_of("a", "cgroup.procs"), O_WRONLY));
        OK(setresuid(-1, 0, -1));
        ERR(write(theirs, "0", 1), EACCES);
    });
    close(mine);
}

/* ---- freezing -------------------------------------------------------------------------------- */

/* A process in a group that counts all the time. */
static pid_t counter_in(const char *group, _Atomic long *count) {
    pid_t pid = FORK();
    if (pid == 0)
        for (;;)
            ++*count;
    OK(move_to(group, pid));
    return pid;
}
static bool counts(_Atomic long *count) {
    long before = *count;
    for (int i = 0; i < 200; i++) {
        msleep(2);
        if (*count != before)
            return true;
    }
    return false;
}

TEST(a_frozen_group_does_not_run) {
    begin();
    OK(mkdir(path_of("a", NULL), 0755));
    _Atomic long *count = SHARED(PAGE);
    pid_t pid = counter_in("a", count);
    CHECK(counts(count));
    OK(tell("a", "cgroup.freeze", "1"));
    CHECK_STR(shown("a", "cgroup.freeze"), "1\n");
    EVENTUALLY(FROZEN("a") == 1);
    CHECK_EQ(FROZEN(""), 0);
    CHECK(!counts(count));
    OK(tell("a", "cgroup.freeze", "0"));
    CHECK_EQ(FROZEN("a"), 0);
    CHECK(counts(count));
    ERR(tell("a", "cgroup.freeze", "2"), ERANGE);
    ERR(tell("a", "cgroup.freeze", "-1"), ERANGE);
    ERR(tell("a", "cgroup.freeze", "yes"), EINVAL);
    end(pid);
}

TEST(frozen_is_told) {
    begin();
    OK(mkdir(path_of("a", NULL), 0755));
    pid_t pid = idle_in("a");
    int fd = OK(open(path_of("a", "cgroup.events"), O_RDONLY));
    char text[64] = "";
    struct pollfd one = {fd, POLLPRI, 0};
    CHECK(OK(read(fd, text, sizeof text)) > 0);
    OK(tell("a", "cgroup.freeze", "1"));
    for (int i = 0; i < 10 && !strstr(text, "frozen 1"); i++) {
        CHECK_EQ(OK(poll(&one, 1, 5000)), 1);
        CHECK(OK(pread(fd, text, sizeof text, 0)) > 0);
    }
    CHECK_STR(shown("a", "cgroup.events"), "populated 1\nfrozen 1\n");
    end(pid);
    CHECK_STR(shown("a", "cgroup.events"), "populated 0\nfrozen 1\n");
    close(fd);
}

TEST(what_is_below_freezes_too) {
    begin();
    OK(mkdir(path_of("a", NULL), 0755));
    OK(mkdir(path_of("a/b", NULL), 0755));
    OK(mkdir(path_of("a/c", NULL), 0755));
    _Atomic long *count = SHARED(PAGE);
    pid_t pid = counter_in("a/b", count);
    OK(tell("a", "cgroup.freeze", "1"));
    EVENTUALLY(FROZEN("a") == 1);
    CHECK_EQ(FROZEN("a/b"), 1);
    CHECK_EQ(FROZEN("a/c"), 1);
    CHECK_STR(shown("a/b", "cgroup.freeze"), "0\n");
    OK(mkdir(path_of("a/d", NULL), 0755));
    CHECK_EQ(FROZEN("a/d"), 1);
    CHECK_EQ(FROZEN("a"), 1);
    /* What is around it is not undone below. */
    OK(tell("a/b", "cgroup.freeze", "1"));
    OK(tell("a/b", "cgroup.freeze", "0"));
    CHECK(!counts(count));
    OK(tell("a/b", "cgroup.freeze", "1"));
    OK(tell("a", "cgroup.freeze", "0"));
    CHECK_EQ(FROZEN("a"), 0);
    CHECK_EQ(FROZEN("a/b"), 1);
    CHECK_EQ(FROZEN("a/c"), 0);
    CHECK(!counts(count));
    OK(tell("a/b", "cgroup.freeze", "0"));
    CHECK(counts(count));
    OK(rmdir(path_of("a/d", NULL)));
    end(pid);
}

TEST(an_empty_group_is_frozen_at_once_and_who_comes_freezes) {
    begin();
    OK(mkdir(path_of("a", NULL), 0755));
    OK(tell("a", "cgroup.freeze", "1"));
    CHECK_EQ(FROZEN("a"), 1);
    _Atomic long *count = SHARED(PAGE);
    pid_t pid = counter_in("a", count);
    EVENTUALLY(FROZEN("a") == 1);
    CHECK(!counts(count));
    int dir = OK(open(path_of("a", NULL), O_PATH | O_DIRECTORY));
    pid_t begun = OK(clone_into(dir, 0));
    if (begun == 0)
        _exit(5);
    EVENTUALLY(FROZEN("a") == 1);
    CHECK_EQ(members("a"), 2);
    CHECK_EQ(waitpid(begun, NULL, WNOHANG), 0);
    /* Out of it. */
    OK(move_to("", pid));
    CHECK(counts(count));
    end(pid);
    OK(tell("a", "cgroup.freeze", "0"));
    EXITS(begun, 5);
}

TEST(signals_end_what_is_frozen) {
    begin();
    OK(mkdir(path_of("a", NULL), 0755));
    pid_t one = idle_in("a"), two = idle_in("a"), three = idle_in("a");
    OK(tell("a", "cgroup.freeze", "1"));
    EVENTUALLY(FROZEN("a") == 1);
    OK(kill(one, SIGKILL));
    KILLED(one, SIGKILL);
    CHECK_EQ(FROZEN("a"), 1);
    OK(kill(two, SIGTERM));
    KILLED(two, SIGTERM);
    OK(kill(three, SIGCONT));
    CHECK_EQ(waitpid(three, NULL, WNOHANG), 0);
    OK(tell("a", "cgroup.kill", "1"));
    KILLED(three, SIGKILL);
    CHECK_STR(shown("a", "cgroup.events"), "populated 0\nfrozen 1\n");
}

static _Atomic int *handled;
static void note_signal(int signal) { *handled = signal; }

TEST(signals_with_a_handler_wait) {
    begin();
    OK(mkdir(path_of("a", NULL), 0755));
    handled = SHARED(PAGE);
    pid_t pid = FORK();
    if (pid == 0) {
        signal(SIGUSR1, note_signal);
        *handled = -1;
        for (;;)
            pause();
    }
    EVENTUALLY(*handled == -1);
    OK(move_to("a", pid));
    OK(tell("a", "cgroup.freeze", "1"));
    EVENTUALLY(FROZEN("a") == 1);
    OK(kill(pid, SIGUSR1));
    msleep(50);
    CHECK_EQ(*handled, -1);
    OK(tell("a", "cgroup.freeze", "0"));
    EVENTUALLY(*handled == SIGUSR1);
    end(pid);
}

TEST(calls_go_on_after_a_freeze) {
    begin();
    OK(mkdir(path_of("a", NULL), 0755));
    int fd[2];
    OK(pipe(fd));
    pid_t pid = FORK();
    if (pid == 0) {
        char byte = 0;
        CHECK_EQ(OK(read(fd[0], &byte, 1)), 1);
        struct timespec t = {0, 300 * MS};
        CHECK_EQ(nanosleep(&t, NULL), 0);
        _exit(byte);
    }
    OK(move_to("a", pid));
    wait_asleep(pid);
    OK(tell("a", "cgroup.freeze", "1"));
    EVENTUALLY(FROZEN("a") == 1);
    OK(write(fd[1], "\x09", 1));
    OK(tell("a", "cgroup.freeze", "0"));
    msleep(50);
    OK(tell("a", "cgroup.freeze", "1"));
    EVENTUALLY(FROZEN("a") == 1);
    CHECK_EQ(waitpid(pid, NULL, WNOHANG), 0);
    OK(tell("a", "cgroup.freeze", "0"));
    EXITS(pid, 9);
}

TEST(stopped_and_waiting_processes_are_frozen) {
    begin();
    OK(mkdir(path_of("a", NULL), 0755));
    /* Stopped before. */
    pid_t stopped = idle_in("a");
    OK(kill(stopped, SIGSTOP));
    int status;
    CHECK_EQ(OK(waitpid(stopped, &status, WUNTRACED)), stopped);
    /* A parent that has lent its space. */
    pid_t parent = FORK();
    if (parent == 0) {
        OK(tell("a", "cgroup.procs", "0"));
        if (vfork() == 0) {
            for (;;)
                pause();
        }
        _exit(1);
    }
    EVENTUALLY(members("a") == 3);
    OK(tell("a", "cgroup.freeze", "1"));
    EVENTUALLY(FROZEN("a") == 1);
    OK(kill(stopped, SIGCONT));
    msleep(20);
    EVENTUALLY(FROZEN("a") == 1);
    OK(tell("a", "cgroup.freeze", "0"));
    CHECK_EQ(FROZEN("a"), 0);
    OK(tell("a", "cgroup.kill", "1"));
    KILLED(stopped, SIGKILL);
    KILLED(parent, SIGKILL);
    EVENTUALLY(POPULATED("a") == 0);
}

TEST(a_tracer_reaches_what_is_frozen) {
    begin();
    OK(mkdir(path_of("a", NULL), 0755));
    pid_t pid = idle_in("a");
    OK(tell("a", "cgroup.freeze", "1"));
    EVENTUALLY(FROZEN("a") == 1);
    OK(ptrace(PTRACE_SEIZE, pid, 0, 0));
    OK(ptrace(PTRACE_INTERRUPT, pid, 0, 0));
    int status;
    CHECK_EQ(OK(waitpid(pid, &status, __WALL)), pid);
    CHECK(WIFSTOPPED(status));
    EVENTUALLY(FROZEN("a") == 1);
    OK(ptrace(PTRACE_DETACH, pid, 0, 0));
    EVENTUALLY(FROZEN("a") == 1);
    OK(tell("a", "cgroup.freeze", "0"));
    end(pid);
}

static void *spins(void *arg) {
    for (;;)
        ++*(_Atomic long *)arg;
    return NULL;
}

TEST(all_threads_freeze) {
    begin();
    OK(mkdir(path_of("a", NULL), 0755));
    _Atomic long *count = SHARED(PAGE);
    pid_t pid = FORK();
    if (pid == 0) {
        pthread_t thread;
        for (int i = 0; i < 3; i++)
            ZERO(pthread_create(&thread, NULL, spins, count));
        for (;;)
            pause();
    }
    CHECK(counts(count));
    OK(move_to("a", pid));
    for (int i = 0; i < 20; i++) {
        OK(tell("a", "cgroup.freeze", "1"));
        EVENTUALLY(FROZEN("a") == 1);
        long before = *count;
        msleep(5);
        CHECK_EQ(*count, before);
        OK(tell("a", "cgroup.freeze", "0"));
        CHECK(counts(count));
    }
    OK(tell("a", "cgroup.freeze", "1"));
    EVENTUALLY(FROZEN("a") == 1);
    end(pid);
    CHECK_EQ(POPULATED("a"), 0);
}

/* ---- ending ---------------------------------------------------------------------------------- */

TEST(kill_ends_all_below) {
    begin();
    OK(mkdir(path_of("a", NULL), 0755));
    OK(mkdir(path_of("a/b", NULL), 0755));
    pid_t outside = idle_in("");
    pid_t one = idle_in("a"), two = idle_in("a/b");
    ERR(tell("a", "cgroup.kill", "0"), ERANGE);
    ERR(tell("a", "cgroup.kill", "2"), ERANGE);
    ERR(tell("a", "cgroup.kill", "x"), EINVAL);
    char text[8];
    int fd = OK(open(path_of("a", "cgroup.kill"), O_RDWR));
    ERR(read(fd, text, sizeof text), EINVAL);
    CHECK_EQ(OK(write(fd, "1", 1)), 1);
    KILLED(one, SIGKILL);
    KILLED(two, SIGKILL);
    CHECK_EQ(POPULATED("a"), 0);
    CHECK_EQ(kill(outside, 0), 0);
    end(outside);
    close(fd);
}

TEST(nobody_escapes_by_forking) {
    begin();
    OK(mkdir(path_of("a", NULL), 0755));
    for (int round = 0; round < 10; round++) {
        pid_t pid = FORK();
        if (pid == 0) {
            OK(tell("a", "cgroup.procs", "0"));
            signal(SIGCHLD, SIG_IGN);
            for (int i = 0; i < 3; i++)
                if (fork() == 0) {
                    for (;;) {
                        pid_t next = fork();
                        if (next > 0)
                            _exit(0); /* the child goes on */
                    }
                }
            for (;;)
                pause();
        }
        EVENTUALLY(POPULATED("a") == 1);
        msleep(round * 3);
        OK(tell("a", "cgroup.kill", "1"));
        KILLED(pid, SIGKILL);
        EVENTUALLY(POPULATED("a") == 0);
        CHECK_STR(shown("a", "cgroup.procs"), "");
    }
}

/* ---- controllers ----------------------------------------------------------------------------- */

TEST(controllers_are_given_by_name) {
    begin();
    ERR(tell("", "cgroup.subtree_control", "pids"), EINVAL);
    ERR(tell("", "cgroup.subtree_control", "+hy_no_controller"), EINVAL);
    ERR(tell("", "cgroup.subtree_control", "+"), EINVAL);
    OK(mkdir(path_of("a", NULL), 0755));
    /* Its parent does not give it. */
    ERR(tell("a", "cgroup.subtree_control", "+pids"), ENOENT);
    OK(tell("a", "cgroup.subtree_control", "-pids"));
    CHECK_STR(shown("a", "cgroup.subtree_control"), "");
    int fd = OK(open(path_of("a", "cgroup.controllers"), O_WRONLY));
    ERR(write(fd, "+pids", 5), EINVAL);
    close(fd);
}

TEST(controllers_bring_files) {
    begin();
    OK(mkdir(path_of("a", NULL), 0755));
    struct stat st;
    if (has_controller("pids"))
        ERR(stat(path_of("a", "pids.max"), &st), ENOENT);
    with_controller("pids");
    CHECK_STR(shown("a", "cgroup.controllers"), "pids\n");
    CHECK_STR(shown("", "cgroup.subtree_control"), "pids\n");
    CHECK_STR(shown("a", "pids.max"), "max\n");
    CHECK_STR(shown("a", "pids.current"), "0\n");
    CHECK_STR(shown("a", "pids.events"), "max 0\n");
    OK(tell("a", "pids.max", "17"));
    CHECK_STR(shown("a", "pids.max"), "17\n");
    OK(tell("a", "cgroup.subtree_control", "+pids"));
    ERR(tell("", "cgroup.subtree_control", "-pids"), EBUSY);
    OK(tell("a", "cgroup.subtree_control", "-pids"));
    int max = OK(open(path_of("a", "pids.max"), O_RDWR));
    OK(tell("", "cgroup.subtree_control", "-pids"));
    ERR(stat(path_of("a", "pids.max"), &st), ENOENT);
    ERR(write(max, "5", 1), ENODEV);
    OK(tell("", "cgroup.subtree_control", "+pids"));
    CHECK_STR(shown("a", "pids.max"), "max\n");
    ERR(tell("a", "pids.max", "-1"), EINVAL);
    ERR(tell("a", "pids.max", "4194305"), EINVAL);
    ERR(tell("a", "pids.max", "many"), EINVAL);
    OK(tell("a", "pids.max", "0x10"));
    CHECK_STR(shown("a", "pids.max"), "16\n");
    close(max);
}

TEST(pids_count_and_limit_processes) {
    begin();
    with_controller("pids");
    OK(mkdir(path_of("a", NULL), 0755));
    OK(tell("a", "pids.max", "3"));
    pid_t pid = FORK();
    if (pid == 0) {
        OK(tell("a", "cgroup.procs", "0"));
        CHECK_STR(shown("a", "pids.current"), "1\n");
        pid_t one = idle(), two = idle();
        CHECK_STR(shown("a", "pids.current"), "3\n");
        ERR(fork(), EAGAIN);
        ERR(fork(), EAGAIN);
        CHECK_STR(shown("a", "pids.events"), "max 2\n");
        pthread_t thread;
        _Atomic pid_t tid;
        CHECK_EQ(pthread_create(&thread, NULL, sleeps, (void *)&tid), EAGAIN);
        /* One that has ended counts until it was waited for. */
        OK(kill(one, SIGKILL));
        siginfo_t info;
        OK(waitid(P_PID, one, &info, WEXITED | WNOWAIT));
        CHECK_STR(shown("a", "pids.current"), "3\n");
        ERR(fork(), EAGAIN);
        KILLED(one, SIGKILL);
        CHECK_STR(shown("a", "pids.current"), "2\n");
        ZERO(pthread_create(&thread, NULL, sleeps, (void *)&tid));
        CHECK_STR(shown("a", "pids.current"), "3\n");
        end(two);
        OK(tell("a", "pids.max", "max"));
        one = idle();
        end(one);
        _exit(0);
    }
    EXITS(pid, 0);
    CHECK_STR(shown("a", "pids.current"), "0\n");
}

static void *returns(void *arg) { return arg; }

TEST(threads_that_end_are_not_counted) {
    begin();
    with_controller("pids");
    OK(mkdir(path_of("a", NULL), 0755));
    IN_CHILD({
        pthread_t thread;
        /* One before the move, others after. */
        ZERO(pthread_create(&thread, NULL, returns, NULL));
        ZERO(pthread_join(thread, NULL));
        OK(tell("a", "cgroup.procs", "0"));
        for (int i = 0; i < 50; i++) {
            ZERO(pthread_create(&thread, NULL, returns, NULL));
            ZERO(pthread_join(thread, NULL));
        }
        EVENTUALLY(strcmp(shown("a", "pids.current"), "1\n") == 0);
    });
    CHECK_STR(shown("a", "pids.current"), "0\n");
}

TEST(limits_above_count_too) {
    begin();
    with_controller("pids");
    OK(mkdir(path_of("a", NULL), 0755));
    OK(tell("a", "cgroup.subtree_control", "+pids"));
    OK(mkdir(path_of("a/b", NULL), 0755));
    OK(mkdir(path_of("a/c", NULL), 0755));
    OK(tell("a", "pids.max", "2"));
    pid_t one = idle_in("a/c");
    IN_CHILD({
        OK(tell("a/b", "cgroup.procs", "0"));
        ERR(fork(), EAGAIN);
        CHECK_STR(shown("a", "pids.current"), "2\n");
        CHECK_STR(shown("a/b", "pids.current"), "1\n");
    });
    /* A move is not refused, and a limit below the count only for what is new. */
    pid_t two = idle_in("a/b"), three = idle_in("a/b");
    CHECK_STR(shown("a", "pids.current"), "3\n");
    OK(tell("a", "pids.max", "1"));
    int dir = OK(open(path_of("a/b", NULL), O_PATH | O_DIRECTORY));
    ERR(clone_into(dir, 0), EAGAIN);
    end(one);
    end(two);
    end(three);
    CHECK_STR(shown("a", "pids.current"), "0\n");
    pid_t pid = OK(clone_into(dir, 0));
    if (pid == 0)
        _exit(0);
    EXITS(pid, 0);
    close(dir);
}

TEST(pids_events_are_told) {
    begin();
    with_controller("pids");
    OK(mkdir(path_of("a", NULL), 0755));
    OK(tell("a", "pids.max", "1"));
    int fd = OK(open(path_of("a", "pids.events"), O_RDONLY));
    char text[64];
    CHECK(OK(read(fd, text, sizeof text)) > 0);
    struct pollfd one = {fd, POLLPRI, 0};
    CHECK_EQ(OK(poll(&one, 1, 0)), 0);
    IN_CHILD({
        OK(tell("a", "cgroup.procs", "0"));
        ERR(fork(), EAGAIN);
    });
    CHECK_EQ(OK(poll(&one, 1, 5000)), 1);
    CHECK(OK(pread(fd, text, sizeof text, 0)) > 0);
    close(fd);
}

TEST(processes_and_groups_under_a_controller_exclude_each_other) {
    begin();
    with_controller("pids");
    OK(mkdir(path_of("a", NULL), 0755));
    OK(mkdir(path_of("a/b", NULL), 0755));
    pid_t inner = idle_in("a/b");
    OK(tell("a", "cgroup.subtree_control", "+pids"));
    pid_t pid = idle();
    ERR(move_to("a", pid), EBUSY);
    end(inner);
    /* Without processes below, the threaded controller makes a root of threads. */
    OK(move_to("a", pid));
    CHECK_STR(shown("a", "cgroup.type"), "domain threaded\n");
    CHECK_STR(shown("a/b", "cgroup.type"), "domain invalid\n");
    pid_t other = idle();
    ERR(move_to("a/b", other), EOPNOTSUPP);
    end(pid);
    CHECK_STR(shown("a/b", "cgroup.type"), "domain\n");
    OK(move_to("a/b", other));
    end(other);
    OK(tell("a", "cgroup.subtree_control", "-pids"));
    /* With both, it is not given. */
    pid = idle_in("a");
    other = idle_in("a/b");
    ERR(tell("a", "cgroup.subtree_control", "+pids"), EBUSY);
    end(pid);
    end(other);
}

TEST(a_controller_counts_who_was_there_before) {
    begin();
    OK(mkdir(path_of("a", NULL), 0755));
    pid_t pid = idle_in("a");
    with_controller("pids");
    CHECK_STR(shown("a", "pids.current"), "1\n");
    end(pid);
    CHECK_STR(shown("a", "pids.current"), "0\n");
}

TEST(time_on_processors_is_counted) {
    begin();
    OK(mkdir(path_of("a", NULL), 0755));
    OK(mkdir(path_of("a/b", NULL), 0755));
    CHECK_EQ(value_of("a", "cpu.stat", "usage_usec"), 0);
    IN_CHILD({
        OK(tell("a/b", "cgroup.procs", "0"));
        int64_t until = now_ns(CLOCK_PROCESS_CPUTIME_ID) + 100 * MS;
        while (now_ns(CLOCK_PROCESS_CPUTIME_ID) < until)
            ;
        CHECK(value_of("a/b", "cpu.stat", "usage_usec") >= 80000);
    });
    long usage = value_of("a", "cpu.stat", "usage_usec");
    long user = value_of("a", "cpu.stat", "user_usec");
    long system = value_of("a", "cpu.stat", "system_usec");
    CHECK(usage >= 80000);
    CHECK(labs(usage - user - system) <= 2);
    OK(rmdir(path_of("a/b", NULL)));
    CHECK(value_of("a", "cpu.stat", "usage_usec") >= usage);
    OK(mkdir(path_of("c", NULL), 0755));
    CHECK_EQ(value_of("c", "cpu.stat", "usage_usec"), 0);
    char path[PATH_MAX + 32];
    snprintf(path, sizeof path, "%s/cpu.stat", top);
    CHECK(strncmp(read_of(path), "usage_usec ", 11) == 0);
}

/* ---- namespaces ------------------------------------------------------------------------------ */

static ino_t own_namespace(void) {
    struct stat st;
    OK(stat("/proc/self/ns/cgroup", &st));
    return st.st_ino;
}

TEST(a_namespace_begins_at_the_own_group) {
    begin();
    OK(mkdir(path_of("a", NULL), 0755));
    OK(mkdir(path_of("a/b", NULL), 0755));
    OK(mkdir(path_of("c", NULL), 0755));
    pid_t inside = idle_in("a/b"), beside = idle_in("c");
    ino_t first = own_namespace();
    int outer = OK(open("/proc/self/ns/cgroup", O_RDONLY));
    pid_t pid = FORK();
    if (pid == 0) {
        OK(tell("a", "cgroup.procs", "0"));
        OK(unshare(CLONE_NEWCGROUP));
        CHECK(own_namespace() != first);
        CHECK_STR(group_of("self"), "/");
        CHECK_STR(group_of_pid(inside), "/b");
        CHECK_STR(group_of_pid(beside), "/../c");
        CHECK_STR(group_of_pid(getppid()), group_of_pid(1));
        /* It stays where it is when the process moves. */
        OK(tell("", "cgroup.procs", "0"));
        CHECK_STR(group_of("self"), "/..");
        OK(syscall(SYS_setns, outer, CLONE_NEWCGROUP));
        CHECK_EQ(own_namespace(), first);
        CHECK(is_in(getpid(), ""));
        _exit(0);
    }
    EXITS(pid, 0);
    CHECK_EQ(own_namespace(), first);
    end(inside);
    end(beside);
    close(outer);
}

TEST(clone_makes_a_namespace) {
    begin();
    OK(mkdir(path_of("a", NULL), 0755));
    IN_CHILD({
        OK(tell("a", "cgroup.procs", "0"));
        ino_t before = own_namespace();
        pid_t pid = (pid_t)OK(syscall(SYS_clone, CLONE_NEWCGROUP | SIGCHLD, 0, 0, 0, 0));
        if (pid == 0) {
            CHECK(own_namespace() != before);
            CHECK_STR(group_of("self"), "/");
            _exit(0);
        }
        EXITS(pid, 0);
        CHECK_EQ(own_namespace(), before);
    });
    IN_CHILD({
        BECOME(NOBODY, NOBODY);
        ERR(unshare(CLONE_NEWCGROUP), EPERM);
    });
}

TEST(a_mount_shows_what_the_namespace_sees) {
    begin();
    OK(mkdir(path_of("a", NULL), 0755));
    OK(mkdir(path_of("a/b", NULL), 0755));
    OK(mkdir("inside", 0755));
    IN_CHILD({
        OK(tell("a", "cgroup.procs", "0"));
        OK(unshare(CLONE_NEWCGROUP | CLONE_NEWNS));
        OK(mount("none", "inside", "cgroup2", 0, NULL));
        struct stat st, same;
        OK(stat("inside/b", &st));
        OK(stat(path_of("a/b", NULL), &same));
        CHECK_EQ(st.st_ino, same.st_ino);
        CHECK_EQ(st.st_dev, same.st_dev);
        ERR(stat("inside/a", &st), ENOENT);
        CHECK_EQ(atoi(read_of("inside/cgroup.procs")), getpid());
        /* What is made by one way is there by the other. */
        OK(mkdir("inside/d", 0755));
        OK(stat(path_of("a/d", NULL), &st));
        OK(rmdir(path_of("a/d", NULL)));
        ERR(stat("inside/d", &st), ENOENT);
        const char *mounts = read_of("/proc/self/mountinfo");
        const char *line = strstr(mounts, "/inside ");
        CHECK(line != NULL);
        while (line > mounts && line[-1] != '\n')
            line--;
        char root[PATH_MAX];
        CHECK_EQ(sscanf(line, "%*d %*d %*s %4095s", root), 1);
        CHECK_STR(root, "/");
        OK(umount("inside"));
    });
}

TEST(namespaces_of_users_delegate) {
    begin();
    OK(mkdir(path_of("u", NULL), 0755));
    OK(chown(path_of("u", NULL), NOBODY, NOBODY));
    OK(chown(path_of("u", "cgroup.procs"), NOBODY, NOBODY));
    OK(mkdir("inside", 0777));
    OK(chmod(".", 0755));
    pid_t pid = FORK();
    if (pid == 0) {
        OK(tell("u", "cgroup.procs", "0"));
        OK(setresgid(NOBODY, NOBODY, NOBODY));
        OK(setresuid(NOBODY, NOBODY, NOBODY));
        OK(prctl(PR_SET_DUMPABLE, 1));
        if (unshare(CLONE_NEWUSER | CLONE_NEWCGROUP | CLONE_NEWNS) == -1)
            _exit(77);
        OK(write_to("/proc/self/setgroups", "deny"));
        char map[32];
        snprintf(map, sizeof map, "0 %d 1", NOBODY);
        OK(write_to("/proc/self/uid_map", map));
        OK(write_to("/proc/self/gid_map", map));
        OK(mount("none", "inside", "cgroup2", 0, NULL));
        OK(mkdir("inside/x", 0755));
        OK(write_to("inside/x/cgroup.procs", "0"));
        CHECK_STR(group_of("self"), "/x");
        struct stat st;
        OK(stat("inside/x/cgroup.procs", &st));
        CHECK_EQ(st.st_uid, 0);
        _exit(0);
    }
    int status = WAIT(pid);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
        SKIP("no user namespaces for users");
    CHECK_EQ(status, 0);
}

TEST(namespaces_have_a_limit) {
    begin();
    NEEDS_OWN_MACHINE();
    SET_SYSCTL("/proc/sys/user/max_cgroup_namespaces", "1");
    IN_CHILD({
        pid_t pid = (pid_t)OK(syscall(SYS_clone, CLONE_NEWCGROUP | SIGCHLD, 0, 0, 0, 0));
        if (pid == 0)
            for (;;)
                pause();
        ERR(unshare(CLONE_NEWCGROUP), ENOSPC);
        end(pid);
        EVENTUALLY(unshare(CLONE_NEWCGROUP) == 0);
    });
}

/* ---- everything at once ---------------------------------------------------------------------- */

TEST_TIMES(moves_starts_and_ends_leave_nothing, 3) {
    begin();
    /* It gets the orphans, and waits for them: until then they count. */
    OK(prctl(PR_SET_CHILD_SUBREAPER, 1));
    bool pids = has_controller("pids");
    if (pids)
        with_controller("pids");
    static const char *const groups[] = {"a", "b", "a/c"};
    OK(mkdir(path_of("a", NULL), 0755));
    OK(mkdir(path_of("b", NULL), 0755));
    OK(mkdir(path_of("a/c", NULL), 0755));
    pid_t makers[3];
    for (int i = 0; i < 3; i++) {
        makers[i] = FORK();
        if (makers[i] == 0) {
            OK(tell(groups[i], "cgroup.procs", "0"));
            for (;;) {
                pid_t child = fork();
                if (child == 0) {
                    pthread_t thread;
                    if (pthread_create(&thread, NULL, returns, NULL) == 0)
                        pthread_join(thread, NULL);
                    _exit(0);
                }
                if (child > 0)
                    WAIT(child);
            }
        }
    }
    int64_t until = now_ns(CLOCK_MONOTONIC) + 1500 * MS;
    for (int i = 0; now_ns(CLOCK_MONOTONIC) < until; i++) {
        OK(move_to(groups[i % 3], makers[i * 7 % 3]));
        /* Whatever is found there; it may be gone meanwhile. */
        pid_t found = atoi(shown(groups[(i + 1) % 3], "cgroup.procs"));
        if (found > 0 && move_to(groups[(i + 2) % 3], found) == -1)
            CHECK_EQ(errno, ESRCH);
        if (i % 5 == 0) {
            OK(tell("a", "cgroup.freeze", "1"));
            if (i % 15 == 0)
                EVENTUALLY(FROZEN("a") == 1);
            OK(tell("a", "cgroup.freeze", "0"));
        }
    }
    OK(tell("", "cgroup.kill", "1"));
    for (int i = 0; i < 3; i++)
        KILLED(makers[i], SIGKILL);
    EVENTUALLY(POPULATED("") == 0);
    for (int i = 0; i < 3; i++) {
        CHECK_EQ(POPULATED(groups[i]), 0);
        CHECK_STR(shown(groups[i], "cgroup.procs"), "");
        CHECK_EQ(FROZEN(groups[i]), 0);
    }
    while (waitpid(-1, NULL, 0) > 0)
        ;
    if (pids)
        CHECK_STR(shown("", "pids.current"), "0\n");
}
