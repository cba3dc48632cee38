/* The parts that exec exchanges, seen by others while it does: the space, the program, the user, the
 * right to look into the process, and its descriptors. */
#define AREA "exchange"
#include "harness.h"
#include "../../guest/interface/include/hayate.h"
#include <sys/prctl.h>
#include <sys/uio.h>

enum { SWITCH_SUPERVISOR = 1010, SWITCH_USER = 1011, KEEP = 1 };

static int ring(void) {
    unsigned cs;
    __asm__ volatile("mov %%cs, %0" : "=r"(cs));
    return cs & 3;
}

/* A set-user-id program of root's and a plain one, here, for everybody. */
static void make_programs(void) {
    COPY(hy_self, "setuid", 0755);
    COPY(hy_self, "plain", 0755);
    OK(chown("setuid", 0, 0));
    OK(chmod("setuid", 04755));
    OK(chmod(".", 0755));
}

/* Executes the other program, so often. */
static void go_on(const char *program, const char *helper, int left) {
    char number[16];
    snprintf(number, sizeof number, "%d", left);
    execl(program, program, "--helper", helper, number, NULL);
    _exit(98);
}

/* ---- the mode ------------------------------------------------------------------------------- */

/* In the set-user-id program ring 0 is never seen, however often it looks. */
HELPER(storm_set_id) {
    for (int look = 0; look < 30; look++) {
        if (ring() != 3) return 66;
        if (look % 8 == 0) sched_yield();
    }
    int left = atoi(argv[1]);
    if (left == 0) return 0;
    go_on("./plain", "storm_plain", left - 1);
    return 97;
}

HELPER(storm_plain) {
    go_on("./setuid", "storm_set_id", atoi(argv[1]));
    return 97;
}

/* The mode is switched as fast as it can be while the process executes one program after the
 * other. */
static void switch_in_a_storm(unsigned flags, long *worked) {
    pid_t pid = FORK();
    if (pid == 0) go_on("./plain", "storm_plain", 300);
    for (;;) {
        int status;
        pid_t gone = OK(waitpid(pid, &status, WNOHANG));
        if (gone == pid) {
            if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
                FAIL("status %#x: 0x4200 is ring 0 in a set-user-id program", status);
            return;
        }
        for (int i = 0; i < 50; i++) {
            if (syscall(SWITCH_SUPERVISOR, pid, flags) == 0) ++*worked;
            else if (errno != EPERM && errno != ESRCH) FAIL("switch_supervisor: %m");
        }
        sched_yield();
    }
}

TEST_TIMES(a_storm_of_switches_never_takes_a_set_user_id_program_along, 4) {
    if (getenv("MODE_STORM")) SKIP("somebody else changes the mode");
    if (syscall(SWITCH_USER, 0) != 0) SKIP("this kernel has one mode for programs");
    make_programs();
    long worked = 0;
    switch_in_a_storm(0, &worked);
    switch_in_a_storm(KEEP, &worked);
    CHECK(worked > 0);
}

/* A process that was told to leave supervisor mode has left it, whatever it executes at that
 * moment. */
HELPER(storm_kept) {
    int left = atoi(argv[1]);
    if (left == 0) {
        for (;;) pause();
    }
    go_on("./plain", "storm_kept", left - 1);
    return 97;
}

TEST_TIMES(a_switch_back_during_exec_is_not_lost, 4) {
    if (getenv("MODE_STORM")) SKIP("somebody else changes the mode");
    if (syscall(SWITCH_USER, 0) != 0) SKIP("this kernel has one mode for programs");
    make_programs();
    for (int round = 0; round < 60; round++) {
        pid_t pid = FORK();
        if (pid == 0) go_on("./plain", "storm_kept", 5);
        for (int i = 0; i < 20 + round; i++) OK(syscall(SWITCH_SUPERVISOR, pid, KEEP));
        OK(syscall(SWITCH_USER, pid));
        char path[64], text[4096];
        snprintf(path, sizeof path, "/proc/%d/mode", pid);
        /* The end of the chain of programs sleeps. */
        wait_asleep(pid);
        CHECK(get_file(path, text, sizeof text) > 0);
        CHECK(strstr(text, "mode: user\n") != NULL);
        CHECK(strstr(text, "kept by exec: no\n") != NULL);
        OK(kill(pid, SIGKILL));
        KILLED(pid, SIGKILL);
    }
}

/* ---- who may look --------------------------------------------------------------------------- */

static char secret[64] = "nothing";

/* With root's rights for a moment: it has a secret. Then it is its user again, and a plain
 * program. */
HELPER(secret_set_id) {
    if (geteuid() != 0) return 65;
    strcpy(secret, "a secret of root's");
    sched_yield();
    memset(secret, 0, sizeof secret);
    uid_t own = getuid();
    if (setresuid(own, own, own) != 0) return 64;
    int left = atoi(argv[1]);
    if (left == 0) return 0;
    go_on("./plain", "secret_plain", left - 1);
    return 97;
}

HELPER(secret_plain) {
    sched_yield();
    go_on("./setuid", "secret_set_id", atoi(argv[1]));
    return 97;
}

/* Looks into it in every way there is, until it ends; the memory of the set-user-id program is
 * never seen. */
HELPER(spy) {
    pid_t pid = fork();
    if (pid == 0) go_on("./plain", "secret_plain", 150);
    char maps[64], text[16384];
    snprintf(maps, sizeof maps, "/proc/%d/maps", pid);
    long looks = 0;
    for (;;) {
        int status;
        pid_t gone = waitpid(pid, &status, WNOHANG);
        if (gone == pid) {
            if (WIFEXITED(status) && WEXITSTATUS(status) == 65) return HY_EXIT_SKIPPED;
            if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) return 3;
            return looks > 0 ? 0 : 4;
        }
        for (int i = 0; i < 20; i++) {
            int fd = open(maps, O_RDONLY | O_CLOEXEC);
            if (fd != -1) {
                ssize_t length = read(fd, text, sizeof text - 1);
                close(fd);
                if (length > 0) {
                    text[length] = 0;
                    looks++;
                    if (strstr(text, "/setuid\n")) return 2;
                }
            }
            char found[64] = "";
            struct iovec here = {found, sizeof found}, there = {secret, sizeof secret};
            if (process_vm_readv(pid, &here, 1, &there, 1, 0) > 0) {
                looks++;
                if (strstr(found, "root's")) return 2;
            }
        }
        sched_yield();
    }
}

TEST_TIMES(nobody_looks_into_a_set_user_id_program_while_it_begins, 4) {
    make_programs();
    pid_t pid = FORK();
    if (pid == 0) {
        BECOME(NOBODY, NOBODY);
        execl("./plain", "./plain", "--helper", "spy", NULL);
        _exit(98);
    }
    int status = WAIT(pid);
    if (WIFEXITED(status) && WEXITSTATUS(status) == HY_EXIT_SKIPPED)
        SKIP("set-user-id bits do not count here");
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        FAIL("status %#x: 0x200 is memory of a set-user-id program in a stranger's hands", status);
}

/* Stops in each program of a chain. */
HELPER(stops_and_goes_on) {
    raise(SIGSTOP);
    int left = atoi(argv[1]);
    if (left == 0) return 0;
    go_on("./plain", "stops_and_goes_on", left - 1);
    return 97;
}

/* A file about the inside of a program tells nothing of the programs that the process executes
 * later, not even of the same one again. */
TEST(an_open_map_belongs_to_one_execution) {
    static const char *const names[] = {"maps", "smaps", "environ"};
    enum { NAMES = sizeof names / sizeof names[0], PROGRAMS = 6 };
    make_programs();
    pid_t pid = FORK();
    if (pid == 0) go_on("./plain", "stops_and_goes_on", PROGRAMS - 1);
    int files[PROGRAMS][NAMES];
    char text[256];
    for (int program = 0; program < PROGRAMS; program++) {
        int status;
        CHECK_EQ(OK(waitpid(pid, &status, WUNTRACED)), pid);
        CHECK(WIFSTOPPED(status));
        for (int name = 0; name < NAMES; name++) {
            char path[64];
            snprintf(path, sizeof path, "/proc/%d/%s", pid, names[name]);
            files[program][name] = OK(open(path, O_RDONLY | O_CLOEXEC));
            CHECK(OK(pread(files[program][name], text, sizeof text, 0)) > 0);
            for (int old = 0; old < program; old++) {
                ssize_t read = pread(files[old][name], text, sizeof text, 0);
                if (read > 0)
                    FAIL("%s of program %d tells %zd bytes of program %d", names[name], old, read,
                         program);
            }
        }
        OK(kill(pid, SIGCONT));
    }
    EXITS(pid, 0);
}

/* ---- descriptors ---------------------------------------------------------------------------- */

HELPER(has_not) {
    return fcntl(atoi(argv[1]), F_GETFD) == -1 && errno == EBADF ? 0 : 1;
}

TEST(exec_closes_in_a_copy_of_a_shared_table) {
    int fd = OK(open("/dev/null", O_RDONLY | O_CLOEXEC));
    char number[16];
    snprintf(number, sizeof number, "%d", fd);
    pid_t pid = OK(syscall(SYS_clone, CLONE_FILES | SIGCHLD, NULL, NULL, NULL, NULL));
    if (pid == 0) {
        execl(hy_self, hy_self, "--helper", "has_not", number, NULL);
        _exit(98);
    }
    EXITS(pid, 0);
    CHECK_EQ(fcntl(fd, F_GETFD), FD_CLOEXEC);
}

static void *sleep_on(void *unused) {
    for (;;) pause();
    return unused;
}

TEST(exec_of_one_of_several_threads_closes_in_a_copy_too) {
    int fd = OK(open("/dev/null", O_RDONLY | O_CLOEXEC));
    char number[16];
    snprintf(number, sizeof number, "%d", fd);
    pid_t pid = OK(syscall(SYS_clone, CLONE_FILES | SIGCHLD, NULL, NULL, NULL, NULL));
    if (pid == 0) {
        pthread_t thread;
        for (int i = 0; i < 3; i++) CHECK_EQ(pthread_create(&thread, NULL, sleep_on, NULL), 0);
        execl(hy_self, hy_self, "--helper", "has_not", number, NULL);
        _exit(98);
    }
    EXITS(pid, 0);
    CHECK_EQ(fcntl(fd, F_GETFD), FD_CLOEXEC);
}
