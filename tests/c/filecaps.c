/* The capabilities that a file gives its program (capabilities(7), "File capabilities"). */
#define AREA "filecaps"
#include "harness.h"
#include <sys/auxv.h>
#include <sys/mount.h>
#include <sys/xattr.h>

enum { CHOWN = 0, FOWNER = 3, BIND = 10, RAW = 13 };
#define BIT(n) (1ull << (n))
#define ATTRIBUTE "security.capability"

struct sets { uint64_t effective, permitted, inheritable; };

static struct sets own_sets(void) {
    struct { unsigned version; int pid; } header = {0x20080522, 0};
    struct { unsigned effective, permitted, inheritable; } data[2];
    OK(syscall(SYS_capget, &header, data));
    return (struct sets){data[0].effective | (uint64_t)data[1].effective << 32,
                         data[0].permitted | (uint64_t)data[1].permitted << 32,
                         data[0].inheritable | (uint64_t)data[1].inheritable << 32};
}

static void set_own(struct sets sets) {
    struct { unsigned version; int pid; } header = {0x20080522, 0};
    const unsigned data[2][3] = {
        {(unsigned)sets.effective, (unsigned)sets.permitted, (unsigned)sets.inheritable},
        {(unsigned)(sets.effective >> 32), (unsigned)(sets.permitted >> 32),
         (unsigned)(sets.inheritable >> 32)}};
    OK(syscall(SYS_capset, &header, data));
}

/* Gives a file capabilities, in the form of revision 2. */
static void give(const char *path, uint64_t permitted, uint64_t inheritable, int effective) {
    const unsigned value[5] = {0x02000000u | (effective ? 1 : 0), (unsigned)permitted,
                               (unsigned)inheritable, (unsigned)(permitted >> 32),
                               (unsigned)(inheritable >> 32)};
    OK(setxattr(path, ATTRIBUTE, value, sizeof value, 0));
}

/* Tells what the program has: `EFFECTIVE PERMITTED SECURE DUMPABLE EUID`. */
HELPER(tell) {
    struct sets sets = own_sets();
    printf("%llx %llx %lu %d %d\n", (unsigned long long)sets.effective,
           (unsigned long long)sets.permitted, getauxval(AT_SECURE),
           (int)syscall(SYS_prctl, 3 /* PR_GET_DUMPABLE */, 0, 0, 0, 0), geteuid());
    return 0;
}

/* Executes `path` as user 1000 with an inheritable set, and compares what it tells. `before` is
 * carried out by the child as root. */
#define TELLS(path, inherited, want, before)                                                       \
    do {                                                                                           \
        char hy_said[100] = "";                                                                    \
        int hy_pipe[2];                                                                            \
        OK(pipe(hy_pipe));                                                                         \
        pid_t hy_pid = FORK();                                                                     \
        if (hy_pid == 0) {                                                                         \
            before;                                                                                \
            set_own((struct sets){own_sets().effective, own_sets().permitted, inherited});         \
            BECOME(1000, 1000);                                                                    \
            OK(dup2(hy_pipe[1], 1));                                                               \
            execl(path, path, "--helper", "tell", (char *)NULL);                                   \
            _exit(errno);                                                                          \
        }                                                                                          \
        close(hy_pipe[1]);                                                                         \
        EXITS(hy_pid, 0);                                                                          \
        OK(read(hy_pipe[0], hy_said, sizeof hy_said - 1));                                         \
        close(hy_pipe[0]);                                                                         \
        CHECK_STR(hy_said, want);                                                                  \
    } while (0)

/* Execution as user 1000 fails. */
#define FAILS(path, error, before)                                                                 \
    do {                                                                                           \
        pid_t hy_pid = FORK();                                                                     \
        if (hy_pid == 0) {                                                                         \
            before;                                                                                \
            BECOME(1000, 1000);                                                                    \
            execl(path, path, "--helper", "tell", (char *)NULL);                                   \
            _exit(errno);                                                                          \
        }                                                                                          \
        EXITS(hy_pid, error);                                                                      \
    } while (0)

static void need_usual_dumps(void) {
    char text[16] = "0";
    int fd = open("/proc/sys/fs/suid_dumpable", O_RDONLY);
    if (fd != -1)
        OK(read(fd, text, 1));
    close(fd);
    if (text[0] != '0')
        SKIP("this Linux lets privileged programs be dumped");
}

TEST(a_file_gives_its_program_capabilities) {
    need_usual_dumps();
    COPY(hy_self, "prog", 0755);
    TELLS("./prog", 0, "0 0 0 1 1000\n", );
    give("prog", BIT(RAW) | BIT(CHOWN), 0, 1);
    TELLS("./prog", 0, "2001 2001 1 0 1000\n", );
    /* Without the flag the program raises them itself. */
    give("prog", BIT(RAW) | BIT(CHOWN), 0, 0);
    TELLS("./prog", 0, "0 2001 1 0 1000\n", );
    /* They are the file's, whatever its name, and each start asks anew. */
    OK(link("prog", "again"));
    TELLS("./again", 0, "0 2001 1 0 1000\n", );
    OK(rename("again", "moved"));
    TELLS("./moved", 0, "0 2001 1 0 1000\n", );
    OK(removexattr("moved", ATTRIBUTE));
    TELLS("./prog", 0, "0 0 0 1 1000\n", );
}

TEST(inheritable_sets_meet) {
    need_usual_dumps();
    COPY(hy_self, "prog", 0755);
    give("prog", 0, BIT(RAW) | BIT(BIND), 1);
    TELLS("./prog", 0, "0 0 1 1 1000\n", );
    TELLS("./prog", BIT(RAW) | BIT(CHOWN), "2000 2000 1 0 1000\n", );
    give("prog", BIT(FOWNER), BIT(RAW), 0);
    TELLS("./prog", BIT(RAW), "0 2008 1 0 1000\n", );
}

TEST(what_the_bounding_set_lacks_is_refused) {
    COPY(hy_self, "prog", 0755);
    give("prog", BIT(RAW) | BIT(CHOWN), 0, 1);
    FAILS("./prog", EPERM, OK(syscall(SYS_prctl, 24 /* PR_CAPBSET_DROP */, RAW, 0, 0, 0)));
    give("prog", BIT(RAW) | BIT(CHOWN), 0, 0);
    need_usual_dumps();
    TELLS("./prog", 0, "0 1 1 0 1000\n", OK(syscall(SYS_prctl, 24, RAW, 0, 0, 0)));
}

TEST(capabilities_that_do_not_exist_are_passed_over) {
    need_usual_dumps();
    COPY(hy_self, "prog", 0755);
    give("prog", BIT(RAW) | BIT(63), 0, 1);
    TELLS("./prog", 0, "2000 2000 1 0 1000\n", );
}

TEST(no_new_privs_disarms_them) {
    need_usual_dumps();
    COPY(hy_self, "prog", 0755);
    give("prog", BIT(RAW), 0, 1);
    TELLS("./prog", 0, "0 0 1 1 1000\n", OK(syscall(SYS_prctl, 38, 1, 0, 0, 0)));
}

/* As with set-user-id programs: another process could change the directories under it. */
TEST(sharing_directories_disarms_them) {
    COPY(hy_self, "prog", 0755);
    give("prog", BIT(RAW), 0, 1);
    IN_CHILD({
        BECOME(1000, 1000);
        pid_t pid = (pid_t)OK(syscall(SYS_clone, SIGCHLD | CLONE_FS, 0, 0, 0, 0));
        if (pid == 0) {
            execl("./prog", "./prog", "--helper", "has_nothing", (char *)NULL);
            _exit(99);
        }
        EXITS(pid, 0);
    });
}
HELPER(has_nothing) { return own_sets().permitted != 0; }

TEST(root_has_everything_all_the_same) {
    COPY(hy_self, "prog", 0755);
    give("prog", BIT(RAW), 0, 0);
    pid_t pid = FORK();
    if (pid == 0) {
        execl("./prog", "./prog", "--helper", "has_all", (char *)NULL);
        _exit(99);
    }
    EXITS(pid, 0);
}
HELPER(has_all) {
    uint64_t bounding = 0;
    for (int n = 0; n < 64; n++)
        if (syscall(SYS_prctl, 23 /* PR_CAPBSET_READ */, n, 0, 0, 0) == 1)
            bounding |= BIT(n);
    struct sets sets = own_sets();
    return sets.permitted == bounding && sets.effective == bounding && !getauxval(AT_SECURE) ? 0 : 1;
}

TEST(a_set_user_id_root_file_gives_what_it_names) {
    need_usual_dumps();
    COPY(hy_self, "prog", 0755);
    OK(chmod("prog", 04755));
    give("prog", BIT(RAW), 0, 1);
    TELLS("./prog", 0, "2000 2000 1 0 0\n", );
}

TEST(ambient_capabilities_end) {
    need_usual_dumps();
    COPY(hy_self, "plain", 0755);
    COPY(hy_self, "prog", 0755);
    give("prog", BIT(RAW), 0, 1);
    for (int capable = 0; capable < 2; capable++) {
        char said[100] = "";
        int ends[2];
        OK(pipe(ends));
        pid_t pid = FORK();
        if (pid == 0) {
            OK(syscall(SYS_prctl, 8 /* PR_SET_KEEPCAPS */, 1, 0, 0, 0));
            BECOME(1000, 1000);
            set_own((struct sets){BIT(CHOWN), BIT(CHOWN), BIT(CHOWN)});
            OK(syscall(SYS_prctl, 47 /* PR_CAP_AMBIENT */, 2, CHOWN, 0, 0));
            OK(dup2(ends[1], 1));
            const char *path = capable ? "./prog" : "./plain";
            execl(path, path, "--helper", "tell", (char *)NULL);
            _exit(99);
        }
        close(ends[1]);
        EXITS(pid, 0);
        OK(read(ends[0], said, sizeof said - 1));
        close(ends[0]);
        CHECK_STR(said, capable ? "2000 2000 1 0 1000\n" : "1 1 0 1 1000\n");
    }
}

TEST(other_forms_fail_or_do_not_count) {
    need_usual_dumps();
    COPY(hy_self, "prog", 0755);
    OK(setxattr("prog", ATTRIBUTE, "", 0, 0));
    FAILS("./prog", EINVAL, );
    /* Revision 3 names the root of the user namespace in which it counts. */
    unsigned third[6] = {0x03000001u, BIT(RAW), 0, 0, 0, 0};
    OK(setxattr("prog", ATTRIBUTE, third, sizeof third, 0));
    TELLS("./prog", 0, "2000 2000 1 0 1000\n", );
    third[5] = 5000;
    OK(setxattr("prog", ATTRIBUTE, third, sizeof third, 0));
    TELLS("./prog", 0, "0 0 0 1 1000\n", );
    const unsigned first[3] = {0x01000000u, 1, 0};
    ERR(setxattr("prog", ATTRIBUTE, first, sizeof first, 0), EINVAL);
}

TEST(a_mount_may_say_that_they_do_not_count) {
    need_usual_dumps();
    OK(mkdir("place", 0755));
    OK(mount("none", "place", "tmpfs", 0, "mode=755"));
    COPY(hy_self, "place/prog", 0755);
    give("place/prog", BIT(RAW), 0, 1);
    TELLS("place/prog", 0, "2000 2000 1 0 1000\n", );
    OK(mount(NULL, "place", NULL, MS_REMOUNT | MS_BIND | MS_NOSUID, NULL));
    TELLS("place/prog", 0, "0 0 0 1 1000\n", );
    /* Somebody who looks at the program's process may still hold its file (/proc/PID/exe). */
    OK(umount2("place", MNT_DETACH));
}

static bool has(const char *path) { return getxattr(path, ATTRIBUTE, NULL, 0) != -1; }

TEST(a_change_of_content_or_owner_takes_them_away) {
    PUT("f", "text");
    OK(chmod("f", 0666));
    int fd = OK(open("f", O_RDWR));
#define KEEPS(...)                                                                                 \
    do {                                                                                           \
        give("f", BIT(RAW), 0, 1);                                                                 \
        __VA_ARGS__;                                                                               \
        CHECK(has("f"));                                                                           \
    } while (0)
#define TAKES(...)                                                                                 \
    do {                                                                                           \
        give("f", BIT(RAW), 0, 1);                                                                 \
        __VA_ARGS__;                                                                               \
        CHECK(!has("f"));                                                                          \
    } while (0)
    TAKES(OK(write(fd, "x", 1))); /* root, too */
    TAKES(OK(pwrite(fd, "x", 1, 2)));
    TAKES(OK(ftruncate(fd, 2)));
    TAKES(OK(truncate("f", 4)));
    TAKES(OK(close(OK(open("f", O_WRONLY | O_TRUNC)))));
    TAKES(OK(chown("f", 1000, 1000)));
    TAKES(OK(fchown(fd, 0, 0)));
    TAKES(OK(chown("f", (uid_t)-1, (gid_t)-1)));
    TAKES(IN_CHILD({
        BECOME(1000, 1000);
        int own = OK(open("f", O_WRONLY));
        OK(write(own, "y", 1));
    }));
    TAKES(OK(fallocate(fd, 0, 0, 100)));
    KEEPS(OK(chmod("f", 0644)));
    KEEPS(OK(write(fd, "", 0)));
    KEEPS(OK(utimensat(AT_FDCWD, "f", NULL, 0)));
    KEEPS(OK(close(OK(open("f", O_RDWR)))));
    close(fd);
}
