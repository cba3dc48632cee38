/* Users and groups, permission checks, set-id bits, umask, sticky directories. */
#define AREA "cred"
#include "harness.h"
#include <grp.h>
#include <sys/fsuid.h>
#include <sys/sendfile.h>
#include <sys/uio.h>

#define AS_USER(uid, gid, ...)                                                                     \
    IN_CHILD({                                                                                     \
        BECOME(uid, gid);                                                                          \
        __VA_ARGS__;                                                                               \
    })

static void ids(int line, uid_t r, uid_t e, uid_t s) {
    uid_t got[3];
    OK(syscall(SYS_getresuid, &got[0], &got[1], &got[2]));
    if (got[0] != r || got[1] != e || got[2] != s)
        hy_fail(__FILE__, line, "user ids are %u %u %u, not %u %u %u", got[0], got[1], got[2], r, e, s);
}
#define IDS(r, e, s) ids(__LINE__, r, e, s)

/* Raw calls: the C libraries change the ids of all threads by signals. */
static long setuid_(uid_t u) { return syscall(SYS_setuid, u); }
static long setreuid_(uid_t r, uid_t e) { return syscall(SYS_setreuid, r, e); }
static long setresuid_(uid_t r, uid_t e, uid_t s) { return syscall(SYS_setresuid, r, e, s); }
static long setresgid_(gid_t r, gid_t e, gid_t s) { return syscall(SYS_setresgid, r, e, s); }
#define KEEP ((uid_t)-1)

TEST(root_setuid_sets_all_three) {
    IN_CHILD({
        OK(setuid_(1000));
        IDS(1000, 1000, 1000);
        ERR(setuid_(0), EPERM);
        ERR(setuid_(1001), EPERM);
        OK(setuid_(1000));
    });
    IDS(0, 0, 0);
}

TEST(effective_id_can_be_dropped_and_taken_back) {
    PUT_MODE("f", "x", 0600);
    IN_CHILD({
        OK(setresuid_(KEEP, 1000, KEEP));
        IDS(0, 1000, 0);
        ERR(open("f", O_RDONLY), EACCES);
        OK(setresuid_(KEEP, 0, KEEP));
        OK(open("f", O_RDONLY));
        IDS(0, 0, 0);
    });
}

TEST(setresuid_swaps_within_its_three) {
    IN_CHILD({
        OK(setresuid_(1000, 1001, 1002));
        OK(setresuid_(1002, 1000, 1001));
        IDS(1002, 1000, 1001);
        OK(setresuid_(KEEP, 1001, KEEP));
        ERR(setresuid_(1003, KEEP, KEEP), EPERM);
        ERR(setresuid_(KEEP, 0, KEEP), EPERM);
        IDS(1002, 1001, 1001);
    });
}

TEST(setreuid_rules) {
    IN_CHILD({
        OK(setreuid_(1000, 2000));
        IDS(1000, 2000, 2000); /* the saved id follows when the effective one is not the real */
        OK(setreuid_(2000, 1000));
        IDS(2000, 1000, 1000);
        ERR(setreuid_(3000, KEEP), EPERM);
        ERR(setreuid_(KEEP, 3000), EPERM);
    });
}

TEST(setuid_of_non_root_changes_only_the_effective) {
    IN_CHILD({
        OK(setresuid_(1000, 1001, 1002));
        OK(setuid_(1002));
        IDS(1000, 1002, 1002);
    });
}

TEST(group_ids_likewise) {
    IN_CHILD({
        OK(setresgid_(10, 11, 12));
        gid_t g[3];
        OK(syscall(SYS_getresgid, &g[0], &g[1], &g[2]));
        CHECK(g[0] == 10 && g[1] == 11 && g[2] == 12);
        CHECK_EQ(getgid(), 10);
        CHECK_EQ(getegid(), 11);
        OK(setresuid_(1000, 1000, 1000));
        OK(setresgid_(12, 10, 11));
        ERR(setresgid_(0, KEEP, KEEP), EPERM);
        ERR(syscall(SYS_setgid, 99), EPERM);
    });
    ERR(syscall(SYS_getresuid, BAD, BAD, BAD), EFAULT);
    ERR(syscall(SYS_getresgid, BAD, BAD, BAD), EFAULT);
}

TEST(setuid_of_minus_one_is_einval) {
    ERR(setuid_(KEEP), EINVAL);
    ERR(syscall(SYS_setgid, KEEP), EINVAL);
}

TEST(supplementary_groups) {
    IN_CHILD({
        gid_t set[3] = {100, 50, 75}, got[8];
        OK(syscall(SYS_setgroups, 3, set));
        CHECK_EQ(OK(getgroups(0, NULL)), 3);
        CHECK_EQ(OK(getgroups(8, got)), 3);
        gid_t sum = got[0] + got[1] + got[2];
        CHECK_EQ(sum, 225);
        ERR(getgroups(2, got), EINVAL);
        ERR(syscall(SYS_getgroups, -1, got), EINVAL);
        ERR(syscall(SYS_getgroups, 8, BAD), EFAULT);
        ERR(syscall(SYS_setgroups, 70000, set), EINVAL);
        ERR(syscall(SYS_setgroups, 3, BAD), EFAULT);
        OK(setresuid_(1000, 1000, 1000));
        ERR(syscall(SYS_setgroups, 1, set), EPERM);
        CHECK_EQ(OK(getgroups(8, got)), 3); /* changing users keeps them */
    });
}

TEST(supplementary_group_gives_access) {
    PUT("f", "group file");
    OK(chown("f", 0, 777));
    OK(chmod("f", 0640));
    IN_CHILD({
        gid_t set[1] = {777};
        OK(syscall(SYS_setgroups, 1, set));
        OK(setresgid_(1000, 1000, 1000));
        OK(setresuid_(1000, 1000, 1000));
        OK(open("f", O_RDONLY));
        ERR(open("f", O_WRONLY), EACCES);
    });
    AS_USER(1000, 1000, ERR(open("f", O_RDONLY), EACCES));
}

TEST(file_classes_owner_group_other) {
    PUT("f", "x");
    OK(chown("f", 1000, 2000));
    OK(chmod("f", 0047)); /* the owner has less than others: the first class that fits counts */
    AS_USER(1000, 2000, ERR(open("f", O_RDONLY), EACCES));
    AS_USER(3000, 2000, {
        OK(open("f", O_RDONLY));
        ERR(open("f", O_RDWR), EACCES);
    });
    AS_USER(3000, 3000, OK(open("f", O_RDWR)));
    OK(open("f", O_RDWR)); /* root anyway */
}

TEST(directory_search_and_read_permission) {
    OK(mkdir("d", 0755));
    PUT("d/f", "x");
    OK(chmod("d", 0711)); /* others may pass, not list */
    AS_USER(1000, 1000, {
        OK(open("d/f", O_RDONLY));
        ERR(open("d", O_RDONLY), EACCES);
        ERR(open("d/new", O_WRONLY | O_CREAT, 0600), EACCES);
        ERR(mkdir("d/x", 0700), EACCES);
        ERR(unlink("d/f"), EACCES);
    });
    OK(chmod("d", 0744)); /* list, not pass */
    AS_USER(1000, 1000, {
        OK(open("d", O_RDONLY));
        ERR(open("d/f", O_RDONLY), EACCES);
        struct stat st;
        ERR(stat("d/f", &st), EACCES);
        ERR(stat("d/none", &st), EACCES); /* not even that it does not exist */
        ERR(chdir("d"), EACCES);
    });
}

TEST(open_descriptor_outlives_the_permission) {
    PUT("f", "x");
    OK(chmod("f", 0666));
    AS_USER(1000, 1000, {
        int fd = OK(open("f", O_RDWR));
        IN_CHILD(ERR(chmod("f", 0), EPERM));
        OK(write(fd, "yes", 3));
    });
}

TEST(chmod_needs_ownership) {
    PUT("f", "x");
    OK(chown("f", 1000, 1000));
    AS_USER(2000, 1000, {
        ERR(chmod("f", 0777), EPERM);
        int fd = OK(open("f", O_RDONLY));
        ERR(fchmod(fd, 0777), EPERM);
        ERR(utimensat(AT_FDCWD, "f", (struct timespec[2]){{1, 0}, {1, 0}}, 0), EPERM);
    });
    AS_USER(1000, 1000, OK(chmod("f", 0600)));
}

TEST(chown_rules_of_ordinary_users) {
    PUT("f", "x");
    OK(chown("f", 1000, 1000));
    IN_CHILD({
        gid_t set[1] = {55};
        OK(syscall(SYS_setgroups, 1, set));
        OK(setresgid_(1000, 1000, 1000));
        OK(setresuid_(1000, 1000, 1000));
        ERR(chown("f", 2000, KEEP), EPERM); /* no giving away */
        ERR(chown("f", KEEP, 66), EPERM);   /* not a group of mine */
        OK(chown("f", KEEP, 55));
        OK(chown("f", 1000, 1000));
    });
    AS_USER(2000, 2000, ERR(chown("f", KEEP, 2000), EPERM));
}

static mode_t mode_of(const char *path) {
    struct stat st;
    OK(stat(path, &st));
    return st.st_mode & 07777;
}

TEST(chown_clears_set_id_bits) {
    PUT_MODE("f", "x", 0755);
    OK(chmod("f", 06755));
    OK(chown("f", 1000, 1000)); /* for root, too (chown(2)) */
    CHECK_EQ(mode_of("f"), 0755);
    OK(chmod("f", 02644)); /* without group execute: mandatory locking, not cleared by root */
    OK(chown("f", 1001, 1001));
    CHECK_EQ(mode_of("f"), 02644);
}

TEST(write_clears_set_id_bits) {
    PUT_MODE("f", "x", 0777);
    OK(chown("f", 1000, 1000));
    OK(chmod("f", 06777));
    AS_USER(2000, 2000, {
        int fd = OK(open("f", O_WRONLY));
        OK(write(fd, "y", 1));
    });
    CHECK_EQ(mode_of("f"), 0777);
    OK(chmod("f", 06777));
    AS_USER(2000, 2000, OK(truncate("f", 0)));
    CHECK_EQ(mode_of("f"), 0777);
    OK(chmod("f", 06777));
    int fd = OK(open("f", O_WRONLY));
    OK(write(fd, "z", 1)); /* root with CAP_FSETID keeps them */
    CHECK_EQ(mode_of("f"), 06777);
}

TEST(chmod_by_outsider_of_the_group_drops_setgid) {
    PUT("f", "x");
    OK(chown("f", 1000, 3000));
    AS_USER(1000, 1000, {
        OK(chmod("f", 02755));
        CHECK_EQ(mode_of("f"), 0755);
    });
}

TEST(umask_applies_to_all_creating_calls) {
    umask(037);
    OK(close(OK(open("f", O_CREAT | O_WRONLY, 0777))));
    CHECK_EQ(mode_of("f"), 0740);
    OK(mkdir("d", 0777));
    CHECK_EQ(mode_of("d"), 0740);
    OK(mkfifo("p", 0666));
    CHECK_EQ(mode_of("p"), 0640);
    OK(chmod("f", 0777)); /* chmod does not look at it */
    CHECK_EQ(mode_of("f"), 0777);
    CHECK_EQ(umask(07777), 037);
    CHECK_EQ(umask(022), 0777); /* only the permission bits are kept */
}

TEST(open_with_mode_000_is_still_writable_to_its_creator) {
    AS_USER(1000, 1000, {
        char path[64];
        snprintf(path, sizeof path, "/tmp/hayate-cred-%d", getpid());
        int fd = OK(open(path, O_CREAT | O_EXCL | O_RDWR, 0));
        OK(write(fd, "x", 1));
        ERR(open(path, O_RDONLY), EACCES);
        OK(unlink(path));
    });
}

TEST(new_file_belongs_to_effective_ids) {
    OK(mkdir("d", 0777));
    OK(chmod("d", 0777));
    IN_CHILD({
        OK(setresgid_(10, 20, 30));
        OK(setresuid_(1000, 2000, 3000));
        OK(close(OK(open("d/f", O_CREAT | O_WRONLY, 0644))));
        struct stat st;
        OK(stat("d/f", &st));
        CHECK_EQ(st.st_uid, 2000);
        CHECK_EQ(st.st_gid, 20);
    });
}

TEST(setgid_directory_hands_its_group_down) {
    OK(mkdir("d", 0777));
    OK(chown("d", 0, 4000));
    OK(chmod("d", 02777));
    AS_USER(1000, 1000, {
        OK(close(OK(open("d/f", O_CREAT | O_WRONLY, 0644))));
        OK(mkdir("d/sub", 0755));
        struct stat st;
        OK(stat("d/f", &st));
        CHECK_EQ(st.st_gid, 4000);
        CHECK_EQ(st.st_mode & 02000, 0);
        OK(stat("d/sub", &st));
        CHECK_EQ(st.st_gid, 4000);
        CHECK_EQ(st.st_mode & 02000, 02000); /* directories also the bit (inode(7)) */
    });
}

/* CVE-2018-13405, CVE-2021-4037: the group is the directory's, which the maker is not in. */
static void make_all(const char *dir, mode_t mask, mode_t want) {
    char path[PATH_MAX];
    umask(mask);
    const mode_t mode = 02777;
    snprintf(path, sizeof path, "%s/open", dir);
    OK(close(OK(open(path, O_CREAT | O_EXCL | O_WRONLY, mode))));
    CHECK_EQ(mode_of(path) & 02000, want);
    OK(unlink(path));
    OK(close(OK(creat(path, mode))));
    CHECK_EQ(mode_of(path) & 02000, want);
    OK(unlink(path));
    OK(mknod(path, S_IFREG | mode, 0));
    CHECK_EQ(mode_of(path) & 02000, want);
    OK(unlink(path));
    OK(mknod(path, S_IFIFO | mode, 0));
    CHECK_EQ(mode_of(path) & 02000, want);
    OK(unlink(path));
    int fd = open(dir, O_TMPFILE | O_RDWR, mode);
    if (fd != -1) {
        struct stat st;
        OK(fstat(fd, &st));
        CHECK_EQ(st.st_mode & 02000, want);
        CHECK_EQ(st.st_gid, 4000);
        /* Nor is it made afterwards. */
        OK(fchmod(fd, mode));
        OK(fstat(fd, &st));
        CHECK_EQ(st.st_mode & 02000, want);
        OK(close(fd));
    }
    OK(mkdir(path, mode));
    CHECK_EQ(mode_of(path) & 02000, 02000); /* directories inherit it from whomever */
    OK(rmdir(path));
}

TEST(setgid_is_not_made_by_outsiders_whatever_the_umask) {
    OK(mkdir("d", 0777));
    OK(chown("d", 0, 4000));
    OK(chmod("d", 02777));
    static const mode_t masks[] = {0, 022, 010, 011, 0777};
    for (int i = 0; i < 5; i++) {
        AS_USER(1000, 1000, make_all("d", masks[i], 0));
        AS_USER(1000, 4000, make_all("d", masks[i], 02000));
        IN_CHILD({
            gid_t group = 4000;
            OK(syscall(SYS_setgroups, 1, &group));
            OK(setresgid_(1000, 1000, 1000));
            OK(setresuid_(1000, 1000, 1000));
            make_all("d", masks[i], 02000);
        });
    }
    umask(022);
    int fd = OK(open("d/kept", O_CREAT | O_WRONLY, 02777)); /* CAP_FSETID */
    CHECK_EQ(mode_of("d/kept"), 02755);
    OK(close(fd));
}

static void change_by(int way) {
    int fd = OK(open("f", way == 0 ? O_WRONLY | O_TRUNC : O_WRONLY)), p[2];
    int from = OK(open("from", O_RDONLY));
    struct iovec piece = {(char *)"z", 1};
    loff_t zero = 0;
    switch (way) {
    case 1: OK(ftruncate(fd, 1)); break;
    case 2: OK(pwrite(fd, "z", 1, 0)); break;
    case 3: OK(pwritev(fd, &piece, 1, 0)); break;
    case 4: OK(sendfile(fd, from, NULL, 1)); break;
    case 5: OK(copy_file_range(from, &zero, fd, NULL, 1, 0)); break;
    case 6:
        OK(pipe(p));
        OK(write(p[1], "z", 1));
        OK(splice(p[0], NULL, fd, NULL, 1, 0));
        break;
    case 7: OK(writev(fd, &piece, 1)); break;
    }
    OK(close(fd));
}

TEST(every_change_of_the_content_clears_set_id_bits) {
    PUT_MODE("f", "content", 0777);
    PUT_MODE("from", "content", 0644);
    OK(chown("f", 1000, 1000));
    for (int way = 0; way < 8; way++) {
        OK(chmod("f", 06777));
        AS_USER(2000, 2000, change_by(way));
        if (mode_of("f") != 0777)
            FAIL("way %d: mode %o", way, mode_of("f"));
        OK(chmod("f", 06777));
        change_by(way); /* not for CAP_FSETID */
        CHECK_EQ(mode_of("f"), 06777);
    }
}

TEST(a_write_of_nothing_keeps_set_id_bits) {
    PUT_MODE("f", "content", 0777);
    OK(chown("f", 1000, 1000));
    OK(chmod("f", 06777));
    AS_USER(2000, 2000, {
        int fd = OK(open("f", O_WRONLY));
        CHECK_EQ(OK(write(fd, "x", 0)), 0);
    });
    CHECK_EQ(mode_of("f"), 06777);
}

TEST(sticky_directory_protects_others_files) {
    OK(mkdir("d", 0777));
    OK(chmod("d", 01777));
    PUT("d/a", "a");
    OK(mkdir("d/sub", 0777));
    OK(chown("d/a", 1000, 1000));
    AS_USER(2000, 2000, {
        ERR(unlink("d/a"), EPERM);
        ERR(rename("d/a", "d/b"), EPERM);
        ERR(rmdir("d/sub"), EPERM);
        OK(close(OK(open("d/mine", O_CREAT | O_WRONLY, 0600))));
        ERR(rename("d/mine", "d/a"), EPERM); /* it would remove a */
        OK(rename("d/mine", "d/mine2"));
    });
    AS_USER(1000, 1000, OK(unlink("d/a")));
    OK(chown("d", 3000, 3000));
    AS_USER(3000, 3000, OK(unlink("d/mine2"))); /* the directory's owner may */
}

TEST(access_uses_real_ids_and_faccessat_can_use_effective) {
    PUT("f", "x");
    OK(chown("f", 1000, 1000));
    OK(chmod("f", 0600));
    IN_CHILD({
        OK(setresuid_(1000, 2000, 0)); /* real 1000 may, effective 2000 may not */
        OK(access("f", R_OK | W_OK));
        ERR(open("f", O_RDONLY), EACCES);
        ERR(access("f", X_OK), EACCES);
        long r = syscall(439 /* faccessat2 */, AT_FDCWD, "f", R_OK, AT_EACCESS);
        if (r == -1 && errno != ENOSYS)
            CHECK_EQ(errno, EACCES);
        else
            CHECK_EQ(r, -1);
    });
}

TEST(root_and_the_execute_bit) {
    PUT("f", "x");
    OK(chmod("f", 0));
    OK(access("f", R_OK | W_OK));
    ERR(access("f", X_OK), EACCES); /* even root needs one x bit */
    OK(chmod("f", 0010));
    OK(access("f", X_OK));
    OK(mkdir("d", 0));
    OK(access("d", R_OK | W_OK | X_OK)); /* directories are always open to it */
    ERR(access("f", 8), EINVAL);
    ERR(access("none", F_OK), ENOENT);
    ERR(access(BAD, F_OK), EFAULT);
}

TEST(fsuid_governs_file_access_alone) {
    PUT("f", "x");
    OK(chown("f", 1000, 1000));
    OK(chmod("f", 0600));
    IN_CHILD({
        BECOME(0, 0);
        setfsuid(2000);
        ERR(open("f", O_RDONLY), EACCES);
        CHECK_EQ(setfsuid((uid_t)-1), 2000); /* asking changes nothing */
        setfsuid(1000);
        OK(open("f", O_RDWR));
        IDS(0, 0, 0);
        OK(setresuid_(KEEP, 3000, KEEP));
        CHECK_EQ(setfsuid((uid_t)-1), 3000); /* it follows the effective id */
    });
}

TEST(suid_program_drops_privilege_for_good) {
    COPY(hy_self, "suid", 0755);
    OK(chmod("suid", 04755));
    pid_t pid = FORK();
    if (pid == 0) {
        BECOME(1000, 1000);
        execl("./suid", "./suid", "--helper", "drop", (char *)NULL);
        _exit(99);
    }
    EXITS(pid, 0);
}
HELPER(drop) {
    if (geteuid() != 0 || getuid() != 1000)
        return 1;
    if (setuid_(1000) == -1) /* effective 0: all three */
        return 2;
    return setuid_(0) == -1 && errno == EPERM ? 0 : 3;
}

TEST(no_new_privs_disarms_set_id) {
    COPY(hy_self, "suid", 0755);
    OK(chmod("suid", 06755));
    pid_t pid = FORK();
    if (pid == 0) {
        OK(syscall(SYS_prctl, 38 /* PR_SET_NO_NEW_PRIVS */, 1, 0, 0, 0));
        BECOME(1000, 1000);
        execl("./suid", "./suid", "--helper", "still_user", (char *)NULL);
        _exit(99);
    }
    EXITS(pid, 0);
}
HELPER(still_user) {
    return geteuid() == 1000 && getegid() == 1000 && syscall(SYS_prctl, 39, 0, 0, 0, 0) == 1 ? 0 : 1;
}

/* Of a process that shares its working directory, root and umask with another, which could change
 * them under the program (clone(2), CLONE_FS). */
TEST(sharing_directories_disarms_set_id) {
    COPY(hy_self, "suid", 0755);
    OK(chmod("suid", 04755));
    for (int shared = 0; shared < 2; shared++)
        IN_CHILD({
            BECOME(1000, 1000);
            const long flags = SIGCHLD | (shared ? CLONE_FS : 0);
            pid_t pid = (pid_t)OK(syscall(SYS_clone, flags, 0, 0, 0, 0));
            if (pid == 0) {
                execl("./suid", "./suid", "--helper", "effective", (char *)NULL);
                _exit(99);
            }
            EXITS(pid, shared ? 1 : 0);
            if (shared) /* who shares with nobody any more has it back */
                continue;
            pid = (pid_t)OK(syscall(SYS_clone, SIGCHLD | CLONE_FS, 0, 0, 0, 0));
            if (pid == 0) {
                OK(unshare(CLONE_FS));
                execl("./suid", "./suid", "--helper", "effective", (char *)NULL);
                _exit(99);
            }
            EXITS(pid, 0);
        });
}
HELPER(effective) { return geteuid() == 1000; }

TEST(linking_and_renaming_need_directory_rights) {
    OK(mkdir("from", 0755));
    OK(mkdir("to", 0777));
    OK(chmod("to", 0777));
    PUT("from/f", "x");
    AS_USER(1000, 1000, {
        ERR(rename("from/f", "to/f"), EACCES);
        ERR(link("to/none", "from/x"), ENOENT);
        OK(close(OK(open("to/g", O_CREAT | O_WRONLY, 0644))));
        ERR(link("to/g", "from/g"), EACCES);
        ERR(symlink("x", "from/s"), EACCES);
        ERR(rename("to/g", "from/g"), EACCES);
    });
}

TEST(privileged_calls_of_ordinary_users) {
    AS_USER(1000, 1000, {
        ERR(chroot("."), EPERM);
        ERR(mknod("/tmp/hayate-dev", S_IFCHR | 0600, 0x103), EPERM);
        ERR(syscall(SYS_mount, "none", "/tmp", "tmpfs", 0, NULL), EPERM);
        ERR(syscall(SYS_umount2, "/proc", 0), EPERM);
        ERR(syscall(SYS_sethostname, "x", 1), EPERM);
        ERR(syscall(SYS_setdomainname, "x", 1), EPERM);
        struct timespec t = {0, 0};
        ERR(clock_settime(CLOCK_REALTIME, &t), EPERM);
        ERR(syscall(SYS_reboot, 0, 0, 0, 0), EPERM);
    });
}

TEST(chroot_moves_the_root) {
    OK(mkdir("jail", 0755));
    OK(mkdir("jail/in", 0755));
    PUT("jail/file", "inside");
    IN_CHILD({
        ERR(chroot("jail/file"), ENOTDIR);
        ERR(chroot("none"), ENOENT);
        OK(chroot("jail"));
        OK(chdir("/"));
        OK(access("/file", F_OK));
        OK(chdir("../../../.."));
        char cwd[64];
        CHECK(getcwd(cwd, sizeof cwd) != NULL);
        CHECK_STR(cwd, "/");
        OK(symlink("/file", "in/link"));
        OK(access("/in/link", F_OK)); /* absolute links start at the new root */
    });
    ERR(access("/in/link", F_OK), ENOENT);
}
