/* User namespaces (user_namespaces(7)): maps, numbers, capabilities, and what stays outside. */
#define AREA "userns"
/* Programs in supervisor mode could do all that a namespace is to keep them from. */
#define ONLY_IN_USER_MODE "in supervisor mode there is no user namespace"
#include "harness.h"
#include <grp.h>
#include <linux/nsfs.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/xattr.h>

enum { USER = 1000, OTHER = 2000 };
#define EVERYTHING ((1ull << 41) - 1)

static int setns_(int fd, int kind) { return (int)syscall(SYS_setns, fd, kind); }
static long clone_(unsigned long flags) { return syscall(SYS_clone, flags, 0, NULL, NULL, 0); }
static int pidfd_of(pid_t pid) { return (int)syscall(SYS_pidfd_open, pid, 0); }

static void needs_root(void) {
    if (geteuid() != 0)
        SKIP("not root");
    OK(chmod(".", 0777));
}

static uint64_t effective(void) {
    struct { unsigned version; int pid; } header = {0x20080522, 0};
    struct { unsigned effective, permitted, inheritable; } data[2];
    OK(syscall(SYS_capget, &header, data));
    return data[0].effective | (uint64_t)data[1].effective << 32;
}

/* Writes a text at once, as maps are; the error, or 0. */
static int put(pid_t pid, const char *file, const char *text) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/%s", pid, file);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd == -1)
        return errno;
    ssize_t length = write(fd, text, strlen(text));
    int error = length == (ssize_t)strlen(text) ? 0 : errno;
    close(fd);
    return error;
}

static const char *shown(pid_t pid, const char *file) {
    static char text[4096];
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/%s", pid, file);
    CHECK(get_file(path, text, sizeof text) >= 0);
    return text;
}

static int open_of(pid_t pid, const char *name) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/ns/%s", pid, name);
    return OK(open(path, O_RDONLY | O_CLOEXEC));
}

/* Enters a user namespace, in which the own numbers are these. */
static void enter_as(int uid, int gid) {
    char text[64];
    int user = geteuid(), group = getegid();
    OK(unshare(CLONE_NEWUSER));
    CHECK_EQ(put(getpid(), "setgroups", "deny"), 0);
    snprintf(text, sizeof text, "%d %d 1", uid, user);
    CHECK_EQ(put(getpid(), "uid_map", text), 0);
    snprintf(text, sizeof text, "%d %d 1", gid, group);
    CHECK_EQ(put(getpid(), "gid_map", text), 0);
}

/* Becomes an ordinary user, and the superuser of a namespace. */
static void become_root_inside(void) {
    BECOME(USER, USER);
    OK(prctl(PR_SET_DUMPABLE, 1, 0, 0, 0));
    enter_as(0, 0);
}

/* A child in a namespace that this process, its maker's superior, maps so. It then does `act`. */
#define MAPPED_CHILD(map, ...)                                                                     \
    ({                                                                                             \
        GATE(made);                                                                                \
        GATE(mapped);                                                                              \
        pid_t hy_child = FORK();                                                                   \
        if (hy_child == 0) {                                                                       \
            BECOME(USER, USER);                                                                    \
            OK(prctl(PR_SET_DUMPABLE, 1, 0, 0, 0));                                                \
            OK(unshare(CLONE_NEWUSER));                                                            \
            gate_open(&made);                                                                      \
            gate_pass(&mapped);                                                                    \
            OK(setresgid(0, 0, 0));                                                                \
            OK(setresuid(0, 0, 0));                                                                \
            __VA_ARGS__;                                                                           \
            _exit(0);                                                                              \
        }                                                                                          \
        gate_pass(&made);                                                                          \
        CHECK_EQ(put(hy_child, "uid_map", map), 0);                                                \
        CHECK_EQ(put(hy_child, "gid_map", map), 0);                                                \
        gate_open(&mapped);                                                                        \
        hy_child;                                                                                  \
    })
#define TWO "0 1000 1\n1 2000 1\n"

/* ---- maps ---------------------------------------------------------------------------------- */

TEST(without_a_map_everybody_is_nobody) {
    needs_root();
    PUT("f", "");
    IN_CHILD({
        BECOME(USER, USER);
        PUT("own", "");
        OK(prctl(PR_SET_DUMPABLE, 1, 0, 0, 0));
        OK(unshare(CLONE_NEWUSER));
        CHECK_EQ(getuid(), NOBODY);
        CHECK_EQ(geteuid(), NOBODY);
        CHECK_EQ(getgid(), NOBODY);
        uid_t ids[3];
        OK(getresuid(&ids[0], &ids[1], &ids[2]));
        CHECK(ids[0] == NOBODY && ids[1] == NOBODY && ids[2] == NOBODY);
        struct stat st;
        OK(stat("own", &st));
        CHECK_EQ(st.st_uid, NOBODY);
        CHECK_EQ(st.st_gid, NOBODY);
        CHECK_EQ(effective(), EVERYTHING);
        ERR(syscall(SYS_setuid, 0), EINVAL);
        ERR(syscall(SYS_setresuid, -1, 5, -1), EINVAL);
        ERR(syscall(SYS_setgid, 0), EINVAL);
        ERR(syscall(SYS_setgroups, 0, NULL), EPERM);
        CHECK_EQ(syscall(SYS_setfsuid, 0), NOBODY);
        ERR(chown("own", 0, -1), EINVAL);
        CHECK_STR(shown(getpid(), "uid_map"), "");
        CHECK_STR(shown(getpid(), "setgroups"), "allow\n");
        /* It is the same user outside. */
        PUT("another", "");
        ERR(open("f", O_WRONLY), EACCES);
    });
    struct stat st;
    OK(stat("another", &st));
    CHECK_EQ(st.st_uid, USER);
}

TEST(the_own_number_can_be_mapped) {
    needs_root();
    PUT("f", "");
    IN_CHILD({
        become_root_inside();
        CHECK_EQ(getuid(), 0);
        CHECK_EQ(getegid(), 0);
        struct stat st;
        PUT("own", "");
        OK(stat("own", &st));
        CHECK_EQ(st.st_uid, 0);
        CHECK_EQ(st.st_gid, 0);
        OK(stat("f", &st));
        CHECK_EQ(st.st_uid, NOBODY);
        CHECK_STR(shown(getpid(), "uid_map"), "         0       1000          1\n");
        CHECK_STR(shown(getpid(), "gid_map"), "         0       1000          1\n");
        CHECK_STR(shown(getpid(), "projid_map"), "");
        CHECK_STR(shown(getpid(), "setgroups"), "deny\n");
        CHECK(strstr(shown(getpid(), "status"), "\nUid:\t0\t0\t0\t0\nGid:\t0\t0\t0\t0\n"));
        OK(setuid(0));
        ERR(syscall(SYS_setuid, 1), EINVAL);
        ERR(syscall(SYS_setgroups, 0, NULL), EPERM);
        ERR(chown("f", 0, 0), EPERM);
        ERR(chmod("f", 0666), EPERM);
    });
}

TEST(a_map_is_written_once_and_by_the_rules) {
    needs_root();
    IN_CHILD({
        BECOME(USER, USER);
        OK(prctl(PR_SET_DUMPABLE, 1, 0, 0, 0));
        CHECK_EQ(put(getpid(), "uid_map", "0 0 1"), EPERM);
        OK(unshare(CLONE_NEWUSER));
        for (const char *const *bad = (const char *[]){"", "\n", "0", "0 1000", "0 1000 0", "x 1000 1",
                                                       "0 1000 1 1", "0 1000 1\n\n", "0 -1 1",
                                                       "0 1000 2\n1 5000 1", NULL};
             *bad; bad++)
            if (**bad)
                CHECK_EQ(put(getpid(), "uid_map", *bad), EINVAL);
        CHECK_EQ(put(getpid(), "uid_map", "0 0 1"), EPERM);
        CHECK_EQ(put(getpid(), "uid_map", "0 2000 1"), EPERM);
        CHECK_EQ(put(getpid(), "uid_map", "0 1000 2"), EPERM);
        CHECK_EQ(put(getpid(), "uid_map", "0 1000 1\n5 1001 1"), EPERM);
        CHECK_EQ(put(getpid(), "gid_map", "0 1000 1"), EPERM); /* groups could be left */
        int fd = OK(open("/proc/self/uid_map", O_RDWR));
        OK(lseek(fd, 1, SEEK_SET));
        ERR(write(fd, "0 1000 1", 8), EINVAL);
        OK(lseek(fd, 0, SEEK_SET));
        CHECK_EQ(OK(write(fd, "7 1000 1\n", 9)), 9);
        ERR(write(fd, "7 1000 1\n", 9), EINVAL);
        OK(lseek(fd, 0, SEEK_SET));
        ERR(write(fd, "7 1000 1\n", 9), EPERM);
        CHECK_EQ(getuid(), 7);
        CHECK_EQ(put(getpid(), "uid_map", "0 1000 1"), EPERM);
        CHECK_EQ(put(getpid(), "setgroups", "deny"), 0);
        CHECK_EQ(put(getpid(), "gid_map", "0 1000 1"), 0);
        CHECK_EQ(put(getpid(), "gid_map", "0 1000 1"), EPERM);
        CHECK_EQ(put(getpid(), "projid_map", "0 0 4294967295"), 0);
    });
}

TEST(the_superior_maps_any_numbers) {
    needs_root();
    GATE(ready);
    GATE(go);
    pid_t child = FORK();
    if (child == 0) {
        OK(unshare(CLONE_NEWUSER));
        gate_open(&ready);
        gate_pass(&go);
        CHECK_STR(shown(getpid(), "uid_map"), "         0     100000         10\n"
                                              "        10          0          1\n");
        CHECK_EQ(getuid(), 10);
        OK(setgroups(2, (gid_t[]){3, 1}));
        gid_t groups[4];
        CHECK_EQ(OK(getgroups(4, groups)), 2);
        CHECK(groups[0] == 1 && groups[1] == 3);
        ERR(syscall(SYS_setgroups, 1, (gid_t[]){11}), EINVAL);
        OK(setresgid(5, 5, 5));
        OK(setresuid(5, 5, 5)); /* from a user who is not the superuser inside */
        CHECK_EQ(effective(), EVERYTHING);
        OK(setresuid(0, 0, 0));
        OK(setresuid(5, 5, 5));
        CHECK_EQ(getuid(), 5);
        PUT("made", "");
        ERR(syscall(SYS_setuid, 6), EPERM);
        gate_open(&ready);
        gate_pass(&go);
        _exit(0);
    }
    gate_pass(&ready);
    CHECK_EQ(put(child, "uid_map", "0 100000 10\n10 0 1\n"), 0);
    CHECK_EQ(put(child, "gid_map", "0 100000 10\n10 0 1\n"), 0);
    gate_open(&go);
    gate_pass(&ready);
    struct stat st;
    OK(stat("made", &st));
    CHECK_EQ(st.st_uid, 100005);
    CHECK_EQ(st.st_gid, 100005);
    CHECK_STR(shown(child, "uid_map"), "         0     100000         10\n"
                                       "        10          0          1\n");
    CHECK(strstr(shown(child, "status"), "\nUid:\t100005\t100005\t100005\t100005\n"));
    CHECK(strstr(shown(child, "status"), "Groups:\t100001 100003 \n"));
    gate_open(&go);
    EXITS(child, 0);
}

TEST(a_map_has_a_limit) {
    needs_root();
    static char text[8192];
    for (int extents = 340; extents <= 341; extents++) {
        GATE(ready);
        pid_t child = FORK();
        if (child == 0) {
            OK(unshare(CLONE_NEWUSER));
            gate_open_and_rest(&ready);
        }
        gate_pass(&ready);
        size_t length = 0;
        for (int i = 0; i < extents; i++)
            length += (size_t)sprintf(text + length, "%d %d 1\n", i, i);
        CHECK(length < 4096);
        CHECK_EQ(put(child, "uid_map", text), extents == 340 ? 0 : EINVAL);
        memset(text + length, '\n', 4096 - length);
        text[4096] = 0;
        CHECK_EQ(put(child, "gid_map", text), EINVAL);
        end_by_kill(child);
    }
}

TEST(setgroups_is_forbidden_for_good) {
    needs_root();
    IN_CHILD({
        BECOME(USER, USER);
        OK(prctl(PR_SET_DUMPABLE, 1, 0, 0, 0));
        OK(unshare(CLONE_NEWUSER));
        CHECK_EQ(put(getpid(), "setgroups", "other"), EINVAL);
        CHECK_EQ(put(getpid(), "setgroups", "deny or not"), EINVAL);
        CHECK_EQ(put(getpid(), "setgroups", "allow\n"), 0);
        CHECK_EQ(put(getpid(), "setgroups", "deny\n"), 0);
        CHECK_EQ(put(getpid(), "setgroups", "deny"), 0);
        CHECK_EQ(put(getpid(), "setgroups", "allow"), EPERM);
        CHECK_EQ(put(getpid(), "uid_map", "0 1000 1"), 0);
        CHECK_EQ(put(getpid(), "gid_map", "0 1000 1"), 0);
        CHECK_EQ(put(getpid(), "setgroups", "deny"), EPERM);
        CHECK_STR(shown(getpid(), "setgroups"), "deny\n");
        /* Those inside inherit it. */
        OK(unshare(CLONE_NEWUSER));
        CHECK_STR(shown(getpid(), "setgroups"), "deny\n");
        CHECK_EQ(put(getpid(), "setgroups", "allow"), EPERM);
    });
    CHECK_STR(shown(getpid(), "setgroups"), "allow\n");
}

TEST(the_opener_of_a_map_counts) {
    needs_root();
    /* A program with rights is handed the open map of a namespace, and writes what it is told. */
    int pair[2];
    OK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
    GATE(ready);
    pid_t child = FORK();
    if (child == 0) {
        BECOME(USER, USER);
        OK(prctl(PR_SET_DUMPABLE, 1, 0, 0, 0));
        OK(unshare(CLONE_NEWUSER));
        int fd = OK(open("/proc/self/uid_map", O_WRONLY));
        union { char room[CMSG_SPACE(sizeof(int))]; struct cmsghdr align; } control;
        struct msghdr header = {.msg_iov = &(struct iovec){"x", 1}, .msg_iovlen = 1,
                                .msg_control = control.room, .msg_controllen = sizeof control};
        struct cmsghdr *part = CMSG_FIRSTHDR(&header);
        *part = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET,
                                 .cmsg_type = SCM_RIGHTS};
        memcpy(CMSG_DATA(part), &fd, sizeof fd);
        OK(sendmsg(pair[0], &header, 0));
        gate_open_and_rest(&ready);
    }
    gate_pass(&ready);
    char byte;
    union { char room[CMSG_SPACE(sizeof(int))]; struct cmsghdr align; } control;
    struct msghdr header = {.msg_iov = &(struct iovec){&byte, 1}, .msg_iovlen = 1,
                            .msg_control = control.room, .msg_controllen = sizeof control};
    OK(recvmsg(pair[1], &header, 0));
    int fd;
    memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&header)), sizeof fd);
    ERR(write(fd, "0 0 1", 5), EPERM);
    end_by_kill(child);
}

/* ---- making and entering -------------------------------------------------------------------- */

TEST(who_may_make_one) {
    needs_root();
    OK(mkdir("root", 0755));
    IN_CHILD({
        OK(chroot("root"));
        ERR(unshare(CLONE_NEWUSER), EPERM);
        ERR(clone_(CLONE_NEWUSER | SIGCHLD), EPERM);
    });
    ERR(clone_(CLONE_NEWUSER | CLONE_FS | SIGCHLD), EINVAL);
    ERR(clone_(CLONE_NEWUSER | CLONE_THREAD | CLONE_SIGHAND | CLONE_VM), EINVAL);
    long child = OK(clone_(CLONE_NEWUSER | SIGCHLD));
    if (child == 0) {
        CHECK_EQ(effective(), EVERYTHING);
        CHECK_EQ(getuid(), NOBODY);
        /* Who has no number in it makes none inside. */
        ERR(unshare(CLONE_NEWUSER), EPERM);
        _exit(0);
    }
    EXITS((pid_t)child, 0);
    CHECK_EQ(getuid(), 0);
    child = OK(clone_(CLONE_FS | SIGCHLD));
    if (child == 0) {
        OK(unshare(CLONE_NEWUSER)); /* which gives it directories of its own */
        OK(chdir("root"));
        _exit(0);
    }
    EXITS((pid_t)child, 0);
    CHECK_EQ(access("root", F_OK), 0);
}

static void *wait_for_end(void *unused) {
    pause();
    return unused;
}

TEST(a_process_of_threads_makes_and_enters_none) {
    needs_root();
    GATE(ready);
    pid_t child = FORK();
    if (child == 0) {
        OK(unshare(CLONE_NEWUSER));
        gate_open_and_rest(&ready);
    }
    gate_pass(&ready);
    int fd = open_of(child, "user");
    pthread_t thread;
    ZERO(pthread_create(&thread, NULL, wait_for_end, NULL));
    ERR(unshare(CLONE_NEWUSER), EINVAL);
    ERR(setns_(fd, CLONE_NEWUSER), EINVAL);
    end_by_kill(child);
}

TEST(they_lie_in_each_other_up_to_a_depth) {
    needs_root();
    IN_CHILD({
        BECOME(USER, USER);
        OK(prctl(PR_SET_DUMPABLE, 1, 0, 0, 0));
        int made = 0;
        for (; made < 40; made++) {
            int number = getuid() == USER ? 0 : USER;
            if (unshare(CLONE_NEWUSER) == -1)
                break;
            char text[64];
            CHECK_EQ(put(getpid(), "setgroups", "deny"), 0);
            snprintf(text, sizeof text, "%d %d 1", number, USER - number);
            CHECK_EQ(put(getpid(), "uid_map", text), 0);
            CHECK_EQ(put(getpid(), "gid_map", text), 0);
            CHECK_EQ(getuid(), number);
        }
        CHECK_EQ(errno, ENOSPC);
        CHECK_EQ(made, 33);
    });
}

TEST(a_user_has_a_limit) {
    needs_root();
    NEEDS_OWN_MACHINE();
    SET_SYSCTL("/proc/sys/user/max_user_namespaces", "0");
    ERR(unshare(CLONE_NEWUSER), ENOSPC);
    ERR(clone_(CLONE_NEWUSER | SIGCHLD), ENOSPC);
}

TEST(the_limit_of_a_user_holds_inside) {
    needs_root();
    NEEDS_OWN_MACHINE();
    SET_SYSCTL("/proc/sys/user/max_uts_namespaces", "3");
    IN_CHILD({
        become_root_inside();
        int held[8], made = 0;
        for (; made < 8 && unshare(CLONE_NEWUTS) == 0; made++)
            held[made] = open_of(getpid(), "uts");
        CHECK_EQ(errno, ENOSPC);
        CHECK_EQ(made, 3);
        (void)held;
    });
}

TEST(setns_enters_those_below) {
    needs_root();
    GATE(ready);
    pid_t child = MAPPED_CHILD(TWO, {
        OK(unshare(CLONE_NEWUTS));
        gate_open_and_rest(&ready);
    });
    gate_pass(&ready);
    int own = open_of(getpid(), "user"), fd = open_of(child, "user");
    char text[64], other[64];
    ssize_t length = OK(readlink("/proc/self/ns/user", text, 63));
    text[length] = 0;
    snprintf(other, sizeof other, "/proc/%d/ns/user", child);
    char theirs[64];
    length = OK(readlink(other, theirs, 63));
    theirs[length] = 0;
    CHECK(strncmp(text, "user:[", 6) == 0 && strcmp(text, theirs) != 0);
    IN_CHILD({
        OK(setns_(fd, CLONE_NEWUSER));
        CHECK_EQ(getuid(), NOBODY); /* 0 outside has no number */
        CHECK_EQ(effective(), EVERYTHING);
        OK(setresuid(0, 0, 0));
        OK(setresuid(1, 1, 1));
        CHECK_EQ(getuid(), 1);
        CHECK_EQ(effective(), 0);
    });
    IN_CHILD({
        OK(setns_(fd, 0));
        ERR(setns_(own, CLONE_NEWUSER), EPERM); /* nobody comes out */
        ERR(setns_(fd, CLONE_NEWUSER), EINVAL);
    });
    IN_CHILD({ /* the owner */
        BECOME(USER, USER);
        OK(setns_(fd, CLONE_NEWUSER));
        CHECK_EQ(getuid(), 0);
        OK(setuid(1));
    });
    IN_CHILD({
        BECOME(OTHER, OTHER);
        ERR(setns_(fd, CLONE_NEWUSER), EPERM);
    });
    int pidfd = OK(pidfd_of(child));
    IN_CHILD({
        OK(setns_(pidfd, CLONE_NEWUSER | CLONE_NEWUTS));
        OK(sethostname("inside", 6));
        CHECK_EQ(effective(), EVERYTHING);
    });
    end_by_kill(child);
}

TEST(a_namespace_tells_parent_and_owner) {
    needs_root();
    struct stat outer, inner, asked;
    int own = open_of(getpid(), "user");
    OK(fstat(own, &outer));
    GATE(ready);
    pid_t child = MAPPED_CHILD(TWO, {
        OK(unshare(CLONE_NEWUTS));
        int fd = open_of(getpid(), "user"), uts = open_of(getpid(), "uts");
        ERR(ioctl(fd, NS_GET_PARENT), EPERM);
        ERR(ioctl(own, NS_GET_PARENT), EPERM);
        uid_t uid = 7;
        OK(ioctl(fd, NS_GET_OWNER_UID, &uid));
        CHECK_EQ(uid, 0);
        OK(ioctl(own, NS_GET_OWNER_UID, &uid));
        CHECK_EQ(uid, NOBODY);
        int owner = OK(ioctl(uts, NS_GET_USERNS));
        OK(fstat(fd, &inner));
        OK(fstat(owner, &asked));
        CHECK_EQ(asked.st_ino, inner.st_ino);
        ERR(ioctl(open_of(getpid(), "ipc"), NS_GET_USERNS), EPERM);
        gate_open_and_rest(&ready);
    });
    gate_pass(&ready);
    int fd = open_of(child, "user");
    OK(fstat(fd, &inner));
    CHECK(inner.st_ino != outer.st_ino);
    int parent = OK(ioctl(fd, NS_GET_PARENT));
    OK(fstat(parent, &asked));
    CHECK_EQ(asked.st_ino, outer.st_ino);
    uid_t uid = 0;
    OK(ioctl(fd, NS_GET_OWNER_UID, &uid));
    CHECK_EQ(uid, USER);
    CHECK_EQ(OK(ioctl(fd, NS_GET_NSTYPE)), CLONE_NEWUSER);
    end_by_kill(child);
}

/* ---- capabilities --------------------------------------------------------------------------- */

HELPER(tell_rights) {
    printf("%llx %d %d %d", (unsigned long long)effective(), geteuid(), getegid(), getuid());
    return 0;
}

/* Executes `path` and compares what it tells. */
static void tells(const char *path, const char *want) {
    int pipes[2];
    char said[100] = "";
    OK(pipe(pipes));
    pid_t child = FORK();
    if (child == 0) {
        OK(dup2(pipes[1], 1));
        execl(path, path, "--helper", "tell_rights", (char *)NULL);
        _exit(errno);
    }
    OK(close(pipes[1]));
    EXITS(child, 0);
    OK(read(pipes[0], said, sizeof said - 1));
    OK(close(pipes[0]));
    CHECK_STR(said, want);
}

TEST(a_program_keeps_rights_only_as_the_superuser) {
    needs_root();
    COPY(hy_self, "program", 0755);
    IN_CHILD({
        become_root_inside();
        tells("./program", "1ffffffffff 0 0 0");
    });
    IN_CHILD({
        BECOME(USER, USER);
        OK(prctl(PR_SET_DUMPABLE, 1, 0, 0, 0));
        enter_as(7, 7);
        CHECK_EQ(effective(), EVERYTHING);
        tells("./program", "0 7 7 7");
    });
    EXITS(MAPPED_CHILD(TWO, {
        OK(setresuid(1, 0, 1));
        CHECK_EQ(effective(), EVERYTHING);
        OK(setresuid(1, 1, 1));
        CHECK_EQ(effective(), 0);
        ERR(syscall(SYS_setuid, 0), EPERM);
        tells("./program", "0 1 0 1");
    }), 0);
}

TEST(rights_count_for_what_belongs_to_it_alone) {
    needs_root();
    int outer_uts = open_of(getpid(), "uts"), outer_mounts = open_of(getpid(), "mnt");
    IN_CHILD({
        become_root_inside();
        ERR(sethostname("x", 1), EPERM);
        ERR(mount("none", "/", "tmpfs", 0, NULL), EPERM);
        ERR(mknod("device", S_IFCHR | 0600, 0x103), EPERM);
        struct timeval now;
        OK(gettimeofday(&now, NULL));
        ERR(settimeofday(&now, NULL), EPERM);
        ERR(setpriority(PRIO_PROCESS, 0, -5), EACCES);
        ERR(syscall(SYS_reboot, 0xfee1dead, 672274793, 0, NULL), EPERM);
        ERR(syscall(SYS_acct, NULL), EPERM);
        ERR(syscall(SYS_syslog, 5, NULL, 0), EPERM);
        struct rlimit limit;
        OK(getrlimit(RLIMIT_NPROC, &limit));
        if (limit.rlim_max != RLIM_INFINITY)
            ERR(setrlimit(RLIMIT_NPROC, &(struct rlimit){RLIM_INFINITY, RLIM_INFINITY}), EPERM);
        ERR(setns_(outer_uts, CLONE_NEWUTS), EPERM);
        ERR(setns_(outer_mounts, CLONE_NEWNS), EPERM);
        OK(unshare(CLONE_NEWUTS | CLONE_NEWIPC));
        OK(sethostname("inside", 6));
        ERR(setns_(outer_uts, CLONE_NEWUTS), EPERM);
        OK(chroot("."));
        OK(prctl(PR_CAPBSET_DROP, 5, 0, 0, 0));
    });
    IN_CHILD({ /* all at once */
        BECOME(USER, USER);
        OK(prctl(PR_SET_DUMPABLE, 1, 0, 0, 0));
        OK(unshare(CLONE_NEWUSER | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWNS));
        OK(sethostname("inside", 6));
    });
    IN_CHILD({
        BECOME(USER, USER);
        long child = OK(clone_(CLONE_NEWUSER | CLONE_NEWUTS | SIGCHLD));
        if (child == 0) {
            OK(sethostname("inside", 6));
            _exit(0);
        }
        EXITS((pid_t)child, 0);
    });
}

TEST(settings_are_the_machines) {
    needs_root();
    static const char *const settings[] = {
        "/proc/sys/kernel/hostname", "/proc/sys/kernel/pid_max", "/proc/sys/kernel/core_pattern",
        "/proc/sys/vm/drop_caches", "/proc/sys/fs/file-max", "/proc/sys/kernel/printk"};
    IN_CHILD({
        become_root_inside();
        OK(unshare(CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWNS));
        for (size_t i = 0; i < sizeof settings / sizeof *settings; i++)
            if (access(settings[i], F_OK) == 0)
                ERR(open(settings[i], O_WRONLY), EACCES);
    });
}

TEST(files_obey_who_has_their_numbers) {
    needs_root();
    PUT_MODE("mine", "mine", 0600);
    OK(chown("mine", USER, USER));
    PUT_MODE("other", "other", 0600);
    OK(chown("other", OTHER, OTHER));
    PUT_MODE("roots", "roots", 0600);
    PUT_MODE("half", "half", 0600);
    OK(chown("half", OTHER, 3000));
    OK(mkdir("sticky", 0));
    OK(chmod("sticky", 01777));
    PUT("sticky/other", "");
    OK(chown("sticky/other", OTHER, OTHER));
    PUT("sticky/roots", "");
    EXITS(MAPPED_CHILD(TWO, {
        char text[16];
        struct stat st;
        CHECK(get_file("other", text, sizeof text) == 5);
        ERR(open("roots", O_RDONLY), EACCES);
        ERR(open("half", O_RDONLY), EACCES); /* its group has no number */
        OK(stat("other", &st));
        CHECK(st.st_uid == 1 && st.st_gid == 1);
        OK(stat("half", &st));
        CHECK(st.st_uid == 1 && st.st_gid == NOBODY);
        OK(chmod("other", 0640));
        OK(chmod("half", 0640)); /* the owner is enough */
        ERR(chmod("roots", 0640), EPERM);
        OK(chown("mine", 1, 1));
        ERR(chown("mine", 2, -1), EINVAL);
        ERR(chown("mine", -1, 2), EINVAL);
        ERR(chown("roots", 0, -1), EPERM);
        ERR(chown("half", 0, -1), EPERM);
        OK(unlink("sticky/other"));
        ERR(unlink("sticky/roots"), EPERM);
    }), 0);
    struct stat st;
    OK(stat("mine", &st));
    CHECK(st.st_uid == OTHER && st.st_gid == OTHER);
}

TEST(set_id_files_of_others_raise_nobody) {
    needs_root();
    COPY(hy_self, "program", 0755);
    COPY(hy_self, "roots", 0755);
    OK(chmod("roots", 06755));
    COPY(hy_self, "others", 0755);
    OK(chown("others", OTHER, OTHER));
    OK(chmod("others", 06755));
    COPY(hy_self, "mixed", 0755);
    OK(chown("mixed", OTHER, 3000));
    OK(chmod("mixed", 06755));
    IN_CHILD({
        become_root_inside();
        tells("./roots", "1ffffffffff 0 0 0");
        tells("./others", "1ffffffffff 0 0 0");
        CHECK(strstr(shown(getpid(), "status"), "\nUid:\t0\t0\t0\t0\n"));
    });
    IN_CHILD({
        BECOME(USER, USER);
        OK(prctl(PR_SET_DUMPABLE, 1, 0, 0, 0));
        enter_as(7, 7);
        tells("./roots", "0 7 7 7");
    });
    EXITS(MAPPED_CHILD(TWO, {
        tells("./roots", "1ffffffffff 0 0 0");
        tells("./others", "0 1 1 0");
        tells("./mixed", "1ffffffffff 0 0 0"); /* the group has no number */
    }), 0);
}

#define ATTRIBUTE "security.capability"
static void give(const char *path, uid_t root) {
    const unsigned value[6] = {root ? 0x03000001u : 0x02000001u, 1u << 10, 0, 0, 0, root};
    OK(setxattr(path, ATTRIBUTE, value, root ? 24 : 20, 0));
}

TEST(capabilities_of_files_have_a_root) {
    needs_root();
    COPY(hy_self, "everywhere", 0755);
    give("everywhere", 0);
    COPY(hy_self, "inside", 0755);
    give("inside", USER);
    COPY(hy_self, "elsewhere", 0755);
    give("elsewhere", OTHER);
    IN_CHILD({
        BECOME(USER, USER);
        tells("./everywhere", "400 1000 1000 1000");
        tells("./inside", "0 1000 1000 1000");
    });
    EXITS(MAPPED_CHILD(TWO, {
        OK(setresuid(1, 1, 1));
        tells("./everywhere", "400 1 0 1");
        tells("./inside", "400 1 0 1");
        tells("./elsewhere", "0 1 0 1");
    }), 0);
}

TEST(capabilities_that_are_given_inside_stay_there) {
    needs_root();
    COPY(hy_self, "program", 0755);
    OK(chown("program", USER, USER));
    COPY(hy_self, "roots", 0755);
    unsigned value[6];
    IN_CHILD({
        become_root_inside();
        give("program", 0);
        CHECK_EQ(OK(getxattr("program", ATTRIBUTE, value, sizeof value)), 20);
        CHECK_EQ(value[0], 0x02000001u);
        const unsigned wanted[5] = {0x02000001u, 1u << 10};
        ERR(setxattr("roots", ATTRIBUTE, wanted, 20, 0), EPERM);
        OK(removexattr("program", ATTRIBUTE));
        give("program", 0);
    });
    CHECK_EQ(OK(getxattr("program", ATTRIBUTE, value, sizeof value)), 24);
    CHECK_EQ(value[0], 0x03000001u);
    CHECK_EQ(value[5], USER);
    IN_CHILD({
        BECOME(USER, USER);
        tells("./program", "0 1000 1000 1000");
    });
}

/* ---- processes ------------------------------------------------------------------------------ */

TEST(nobody_outside_is_killed_from_within) {
    needs_root();
    pid_t roots = FORK();
    if (roots == 0)
        for (;;)
            pause();
    IN_CHILD({
        become_root_inside();
        ERR(kill(roots, 0), EPERM);
        ERR(kill(1, 0), EPERM);
    });
    EXITS(MAPPED_CHILD(TWO, {
        pid_t child = FORK();
        if (child == 0) {
            OK(setresuid(1, 1, 1));
            for (;;)
                pause();
        }
        EVENTUALLY(strstr(shown(child, "status"), "\nUid:\t1\t1\t1\t1\n"));
        end_by_kill(child);
    }), 0);
    end_by_kill(roots);
}

TEST(nobody_outside_is_looked_into_from_within) {
    needs_root();
    static char word[8] = "word";
    GATE(ready);
    pid_t outer = FORK();
    if (outer == 0) {
        BECOME(USER, USER);
        OK(prctl(PR_SET_DUMPABLE, 1, 0, 0, 0));
        gate_open_and_rest(&ready);
    }
    gate_pass(&ready);
    char got[8];
    struct iovec to = {got, 8}, from = {word, 8};
    IN_CHILD({ /* the same user, in the same namespace */
        BECOME(USER, USER);
        CHECK_EQ(OK(process_vm_readv(outer, &to, 1, &from, 1, 0)), 8);
    });
    IN_CHILD({
        become_root_inside();
        ERR(process_vm_readv(outer, &to, 1, &from, 1, 0), EPERM);
        ERR(ptrace(PTRACE_SEIZE, outer, NULL, NULL), EPERM);
        char path[64];
        snprintf(path, sizeof path, "/proc/%d/mem", outer);
        ERR(open(path, O_RDONLY), EACCES);
        static const char *const links[] = {"root", "cwd", "exe", "ns/mnt", "ns/user"};
        for (size_t i = 0; i < sizeof links / sizeof *links; i++) {
            snprintf(path, sizeof path, "/proc/%d/%s", outer, links[i]);
            ERR(open(path, O_RDONLY), EACCES);
        }
        int pidfd = OK(pidfd_of(outer));
        ERR(syscall(SYS_pidfd_getfd, pidfd, 0, 0), EPERM);
        ERR(setns_(pidfd, CLONE_NEWUTS), EPERM);
    });
    end_by_kill(outer);
}

TEST(the_owner_looks_into_what_is_inside) {
    needs_root();
    static char word[8] = "word";
    GATE(ready);
    pid_t inner = FORK();
    if (inner == 0) {
        become_root_inside();
        gate_open_and_rest(&ready);
    }
    gate_pass(&ready);
    char got[8];
    struct iovec to = {got, 8}, from = {word, 8};
    IN_CHILD({
        BECOME(USER, USER);
        CHECK_EQ(OK(process_vm_readv(inner, &to, 1, &from, 1, 0)), 8);
        OK(kill(inner, 0));
    });
    IN_CHILD({
        BECOME(OTHER, OTHER);
        ERR(process_vm_readv(inner, &to, 1, &from, 1, 0), EPERM);
        ERR(kill(inner, 0), EPERM);
    });
    CHECK_EQ(OK(process_vm_readv(inner, &to, 1, &from, 1, 0)), 8);
    end_by_kill(inner);
}

TEST(who_enters_is_not_looked_into) {
    needs_root();
    static char word[8] = "word";
    char got[8];
    struct iovec to = {got, 8}, from = {word, 8};
    GATE(entered);
    struct shared { _Atomic pid_t pid; } *shared = SHARED(PAGE);
    GATE(go);
    pid_t inner = MAPPED_CHILD(TWO, {
        gate_pass(&go);
        /* The superuser of the machine came with its memory. */
        ERR(process_vm_readv(shared->pid, &to, 1, &from, 1, 0), EPERM);
        ERR(ptrace(PTRACE_SEIZE, shared->pid, NULL, NULL), EPERM);
    });
    EVENTUALLY(strstr(shown(inner, "status"), "\nUid:\t1000\t1000\t1000\t1000\n"));
    int fd = open_of(inner, "user");
    pid_t guest = FORK();
    if (guest == 0) {
        OK(setns_(fd, CLONE_NEWUSER));
        shared->pid = getpid();
        gate_open_and_rest(&entered);
    }
    gate_pass(&entered);
    gate_open(&go);
    EXITS(inner, 0);
    end_by_kill(guest);
}

static volatile int told_user = -1;
static void on_signal(int signal UNUSED, siginfo_t *info, void *context UNUSED) {
    told_user = (int)info->si_uid;
}

TEST(signals_tell_who_sent_them) {
    needs_root();
    struct sigaction action = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO};
    OK(sigaction(SIGUSR1, &action, NULL));
    pid_t outer = getpid();
    OK(setresuid(USER, 0, USER)); /* so that the child may */
    pid_t inner = MAPPED_CHILD(TWO, {
        OK(kill(outer, SIGUSR1));
        EVENTUALLY(told_user != -1);
        CHECK_EQ(told_user, 0); /* 1000 outside */
        siginfo_t info;
        pid_t child = FORK();
        if (child == 0) {
            OK(setresuid(1, 1, 1));
            _exit(0);
        }
        OK(waitid(P_PID, (id_t)child, &info, WEXITED));
        CHECK_EQ(info.si_uid, 1);
    });
    EVENTUALLY(told_user != -1);
    CHECK_EQ(told_user, USER);
    OK(kill(inner, SIGUSR1));
    EXITS(inner, 0);
}

/* Sends a byte with credentials; the error, or 0. */
static int send_as(int fd, pid_t pid, uid_t uid, gid_t gid) {
    union { char room[CMSG_SPACE(sizeof(struct ucred))]; struct cmsghdr align; } control;
    struct msghdr header = {.msg_iov = &(struct iovec){"x", 1}, .msg_iovlen = 1,
                            .msg_control = control.room, .msg_controllen = sizeof control};
    struct cmsghdr *part = CMSG_FIRSTHDR(&header);
    *part = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof(struct ucred)), .cmsg_level = SOL_SOCKET,
                             .cmsg_type = SCM_CREDENTIALS};
    struct ucred claimed = {.pid = pid, .uid = uid, .gid = gid};
    memcpy(CMSG_DATA(part), &claimed, sizeof claimed);
    return sendmsg(fd, &header, 0) == -1 ? errno : 0;
}

static struct ucred receive(int fd) {
    char byte;
    union { char room[CMSG_SPACE(sizeof(struct ucred))]; struct cmsghdr align; } control;
    struct msghdr header = {.msg_iov = &(struct iovec){&byte, 1}, .msg_iovlen = 1,
                            .msg_control = control.room, .msg_controllen = sizeof control};
    OK(recvmsg(fd, &header, 0));
    struct cmsghdr *part = CMSG_FIRSTHDR(&header);
    CHECK(part && part->cmsg_type == SCM_CREDENTIALS);
    struct ucred got;
    memcpy(&got, CMSG_DATA(part), sizeof got);
    return got;
}

TEST(messages_tell_who_sent_them) {
    needs_root();
    int pair[2];
    OK(socketpair(AF_UNIX, SOCK_DGRAM, 0, pair));
    for (int i = 0; i < 2; i++)
        OK(setsockopt(pair[i], SOL_SOCKET, SO_PASSCRED, &(int){1}, sizeof(int)));
    CHECK_EQ(send_as(pair[0], getpid(), 0, 0), 0);
    pid_t inner = MAPPED_CHILD(TWO, {
        struct ucred got = receive(pair[1]);
        CHECK(got.uid == NOBODY && got.gid == NOBODY);
        socklen_t size = sizeof got;
        OK(getsockopt(pair[1], SOL_SOCKET, SO_PEERCRED, &got, &size));
        CHECK(got.uid == NOBODY && got.gid == NOBODY);
        CHECK_EQ(send_as(pair[1], getpid(), 0, 0), 0);
        CHECK_EQ(send_as(pair[1], getpid(), 1, 1), 0);
        CHECK_EQ(send_as(pair[1], getpid(), 2, 0), EINVAL);
        CHECK_EQ(send_as(pair[1], getpid(), 0, 1000), EINVAL);
        CHECK_EQ(send_as(pair[1], 1, 0, 0), EPERM);
        OK(setresuid(1, 1, 1));
        CHECK_EQ(send_as(pair[1], getpid(), 0, 0), EPERM);
    });
    struct ucred got = receive(pair[0]);
    CHECK(got.uid == USER && got.gid == USER && got.pid == inner);
    got = receive(pair[0]);
    CHECK(got.uid == OTHER && got.gid == OTHER);
    EXITS(inner, 0);
}

TEST(objects_have_owners_with_numbers) {
    needs_root();
    union semun { int value; struct semid_ds *status; } argument;
    int set = OK(semget(IPC_PRIVATE, 1, 0600));
    EXITS(MAPPED_CHILD(TWO, {
        struct semid_ds status;
        argument.status = &status;
        ERR(semctl(set, 0, IPC_STAT, argument), EACCES); /* not the namespace of these objects */
        ERR(semctl(set, 0, IPC_RMID), EPERM);
        OK(unshare(CLONE_NEWIPC));
        int own = OK(semget(0x55, 1, IPC_CREAT | 0600));
        OK(semctl(own, 0, IPC_STAT, argument));
        CHECK(status.sem_perm.uid == 0 && status.sem_perm.gid == 0);
        status.sem_perm.uid = 1;
        OK(semctl(own, 0, IPC_SET, argument));
        OK(semctl(own, 0, IPC_STAT, argument));
        CHECK_EQ(status.sem_perm.uid, 1);
        status.sem_perm.uid = 2;
        ERR(semctl(own, 0, IPC_SET, argument), EINVAL);
        OK(semctl(own, 0, IPC_RMID));
    }), 0);
    OK(semctl(set, 0, IPC_RMID));
}

/* Mounts a procfs as the init of a new PID namespace; the error, or 0. */
static int mount_own_proc(void) {
    OK(unshare(CLONE_NEWPID));
    pid_t init = FORK();
    if (init == 0) {
        CHECK_EQ(getpid(), 1);
        _exit(mount("proc", "/proc", "proc", 0, NULL) == -1 ? errno : 0);
    }
    int status = WAIT(init);
    CHECK(WIFEXITED(status));
    return WEXITSTATUS(status);
}

TEST(users_have_pid_namespaces_and_mount_their_procfs) {
    needs_root();
    pid_t outer = getpid();
    int outside = open_of(outer, "pid");
    IN_CHILD({
        become_root_inside();
        ERR(setns_(outside, CLONE_NEWPID), EPERM);
        OK(unshare(CLONE_NEWNS));
        /* The numbers that it would show are not theirs. */
        ERR(mount("proc", "/proc", "proc", 0, NULL), EPERM);
        OK(unshare(CLONE_NEWPID));
        pid_t init = FORK();
        if (init == 0) {
            CHECK_EQ(getpid(), 1);
            OK(mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL));
            char text[64];
            text[OK(readlink("/proc/self", text, sizeof text - 1))] = 0;
            CHECK_STR(text, "1");
            snprintf(text, sizeof text, "/proc/%d/stat", outer);
            ERR(access(text, F_OK), ENOENT);
            ERR(kill(outer, 0), ESRCH);
            struct stat own;
            struct stat owner;
            OK(stat("/proc/self/ns/user", &own));
            int pids = open_of(1, "pid");
            OK(fstat(OK(ioctl(pids, NS_GET_USERNS)), &owner));
            CHECK_EQ(own.st_ino, owner.st_ino);
            ERR(setns_(outside, CLONE_NEWPID), EPERM);
            _exit(0);
        }
        EXITS(init, 0);
    });
    IN_CHILD({
        become_root_inside();
        long init = OK(clone_(CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNS | SIGCHLD));
        if (init == 0) {
            CHECK_EQ(getpid(), 1);
            OK(mount("proc", "/proc", "proc", 0, NULL));
            _exit(0);
        }
        EXITS((pid_t)init, 0);
    });
}

TEST(a_procfs_of_users_shows_nothing_that_is_hidden) {
    needs_root();
    PUT("empty", "");
    IN_CHILD({
        OK(unshare(CLONE_NEWNS));
        OK(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL));
        OK(mount("empty", "/proc/meminfo", NULL, MS_BIND, NULL));
        IN_CHILD({ /* root hides what it likes from itself */
            OK(unshare(CLONE_NEWNS));
            CHECK_EQ(mount_own_proc(), 0);
        });
        IN_CHILD({
            become_root_inside();
            OK(unshare(CLONE_NEWNS));
            CHECK_EQ(mount_own_proc(), EPERM);
        });
        /* Its own mounts hide nothing from it. */
        OK(umount2("/proc/meminfo", 0));
        become_root_inside();
        OK(unshare(CLONE_NEWNS));
        OK(mount("tmpfs", "/proc/sys", "tmpfs", 0, NULL));
        CHECK_EQ(mount_own_proc(), 0);
    });
    IN_CHILD({
        OK(unshare(CLONE_NEWNS));
        OK(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL));
        OK(umount2("/proc", MNT_DETACH));
        BECOME(USER, USER);
        OK(prctl(PR_SET_DUMPABLE, 1, 0, 0, 0));
        OK(unshare(CLONE_NEWUSER | CLONE_NEWNS));
        CHECK_EQ(mount_own_proc(), EPERM);
    });
}

TEST(namespaces_come_and_go_at_once) {
    needs_root();
    pid_t children[4];
    for (int i = 0; i < 4; i++)
        if ((children[i] = FORK()) == 0) {
            BECOME(USER + i, USER + i);
            OK(prctl(PR_SET_DUMPABLE, 1, 0, 0, 0));
            for (int round = 0; round < 25; round++)
                IN_CHILD({
                    enter_as(0, 0);
                    OK(unshare(CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWNS));
                    OK(sethostname("x", 1));
                    IN_CHILD({ enter_as(5, 5); CHECK_EQ(getuid(), 5); });
                });
            _exit(0);
        }
    for (int i = 0; i < 4; i++)
        EXITS(children[i], 0);
}
