/* The right to look into a process: programs that may be executed and not read, set-id programs,
 * changes of credentials (ptrace(2), "Ptrace access mode checking"; PR_SET_DUMPABLE; proc(5)). */
#define AREA "conceal"
#include "harness.h"
#include <sys/fsuid.h>
#include <sys/prctl.h>
#include <sys/uio.h>

static int dumpable(void) { return OK(syscall(SYS_prctl, PR_GET_DUMPABLE, 0, 0, 0, 0)); }

static const char secret[] = "what nobody may read";

static char *proc(pid_t pid, const char *what) {
    static char path[64];
    snprintf(path, sizeof path, "/proc/%d/%s", pid, what);
    return path;
}

static uid_t owner(const char *path) {
    struct stat st;
    OK(lstat(path, &st));
    return st.st_uid;
}

/* Says on descriptor 3 where its secret is, and waits to be killed. */
static int show(void) {
    uintptr_t at[2] = {(uintptr_t)secret, (uintptr_t)dumpable()};
    if (write(3, at, sizeof at) != sizeof at)
        return 1;
    for (;;)
        pause();
}
HELPER(shows) { return show(); }

struct shown {
    pid_t pid;
    uintptr_t at, dumpable;
};

static void hear(struct gate *told, struct shown *it) {
    uintptr_t said[2];
    close(told->fd[1]);
    CHECK_EQ(OK(read(told->fd[0], said, sizeof said)), sizeof said);
    it->at = said[0], it->dumpable = said[1];
}

/* Starts a program (this one as "shows") as user 1000. */
static struct shown start(const char *path) {
    GATE(told);
    struct shown it;
    if ((it.pid = FORK()) == 0) {
        BECOME(1000, 1000);
        OK(dup2(told.fd[1], 3));
        execl(path, path, "--helper", "shows", (char *)NULL);
        FAIL("exec of %s: %s", path, strerror(errno));
    }
    hear(&told, &it);
    return it;
}

static void end(struct shown it) {
    OK(kill(it.pid, SIGKILL));
    KILLED(it.pid, SIGKILL);
}

static ssize_t peek(struct shown it, char *text) {
    struct iovec here = {text, sizeof secret}, there = {(void *)it.at, sizeof secret};
    return process_vm_readv(it.pid, &here, 1, &there, 1, 0);
}

/* As another process of the same user. */
static void is_closed(struct shown it) {
    CHECK_EQ(it.dumpable, 0);
    IN_CHILD({
        BECOME(1000, 1000);
        char text[64];
        ERR(peek(it, text), EPERM);
        void *head;
        size_t size;
        ERR(syscall(SYS_get_robust_list, it.pid, &head, &size), EPERM);
        ERR(open(proc(it.pid, "maps"), O_RDONLY), EACCES);
        ERR(open(proc(it.pid, "environ"), O_RDONLY), EACCES);
        ERR(open(proc(it.pid, "auxv"), O_RDONLY), EACCES);
        ERR(open(proc(it.pid, "fd"), O_RDONLY), EACCES);
        ERR(open(proc(it.pid, "fd/3"), O_RDONLY), EACCES);
        ERR(readlink(proc(it.pid, "exe"), text, sizeof text), EACCES);
        ERR(readlink(proc(it.pid, "cwd"), text, sizeof text), EACCES);
        ERR(readlink(proc(it.pid, "root"), text, sizeof text), EACCES);
        ERR(open(proc(it.pid, "exe"), O_RDONLY), EACCES);
        /* Its files are the superuser's, but directories that everybody may list. */
        CHECK_EQ(owner(proc(it.pid, "status")), 0);
        CHECK_EQ(owner(proc(it.pid, "environ")), 0);
        CHECK_EQ(owner(proc(it.pid, "fd")), 0);
        OK(close(OK(open(proc(it.pid, "stat"), O_RDONLY))));
        OK(close(OK(open(proc(it.pid, "cmdline"), O_RDONLY))));
    });
    char text[64];
    CHECK_EQ(OK(peek(it, text)), sizeof secret); /* the superuser looks into anything */
    CHECK_STR(text, secret);
    OK(close(OK(open(proc(it.pid, "maps"), O_RDONLY))));
}

static void is_open(struct shown it) {
    CHECK_EQ(it.dumpable, 1);
    IN_CHILD({
        BECOME(1000, 1000);
        char text[64];
        CHECK_EQ(OK(peek(it, text)), sizeof secret);
        CHECK_STR(text, secret);
        OK(close(OK(open(proc(it.pid, "maps"), O_RDONLY))));
        OK(close(OK(open(proc(it.pid, "environ"), O_RDONLY))));
        OK(readlink(proc(it.pid, "exe"), text, sizeof text));
        CHECK_EQ(owner(proc(it.pid, "status")), 1000);
    });
}

TEST(a_readable_program_may_be_looked_into) {
    COPY(hy_self, "program", 0755);
    struct shown it = start("./program");
    is_open(it);
    end(it);
}

TEST(a_program_that_may_only_be_executed_may_not) {
    COPY(hy_self, "program", 0711);
    struct shown it = start("./program");
    is_closed(it);
    end(it);
    /* Executed by somebody who may read it, it is nothing special. */
    OK(chown("program", 1000, 1000));
    it = start("./program");
    is_open(it);
    end(it);
    /* And back, whatever was kept of it meanwhile. */
    OK(chown("program", 0, 0));
    it = start("./program");
    is_closed(it);
    end(it);
}

TEST(an_interpreter_that_may_only_be_executed_conceals_too) {
    COPY(hy_self, "program", 0711);
    char line[PATH_MAX + 16];
    snprintf(line, sizeof line, "#!%s/program --helper\n", hy_tmp);
    GATE(told);
    struct shown it;
    /* argv is then: program, "--helper", the path of the script, which names the helper. */
    PUT_MODE("shows", line, 0755);
    if ((it.pid = FORK()) == 0) {
        BECOME(1000, 1000);
        OK(dup2(told.fd[1], 3));
        execl("shows", "shows", (char *)NULL);
        FAIL("exec: %s", strerror(errno));
    }
    hear(&told, &it);
    is_closed(it);
    end(it);
}

TEST(a_set_id_program_may_not) {
    COPY(hy_self, "program", 0755);
    OK(chown("program", 1234, 1234));
    OK(chmod("program", 04755));
    struct shown it = start("./program");
    CHECK_EQ(it.dumpable, 0);
    is_closed(it);
    end(it);
    OK(chmod("program", 02755));
    it = start("./program");
    is_closed(it);
    end(it);
    /* Set-id bits that change nothing conceal nothing. */
    OK(chown("program", 1000, 1000));
    OK(chmod("program", 06755));
    it = start("./program");
    is_open(it);
    end(it);
}

HELPER(looks_at_itself) {
    char text[256];
    if (dumpable() != 0)
        return 1;
    int fd = open("/proc/self/maps", O_RDONLY);
    if (fd == -1 || read(fd, text, sizeof text) <= 0)
        return 2;
    if (open("/proc/self/environ", O_RDONLY) != -1 || errno != EACCES)
        return 3; /* it is the superuser's */
    DIR *dir = opendir("/proc/self/fd");
    if (!dir || !readdir(dir) || readlink("/proc/self/exe", text, sizeof text) <= 0)
        return 4;
    snprintf(text, sizeof text, "/proc/self/fd/%d", fd);
    if (open(text, O_RDONLY) == -1)
        return 5;
    snprintf(text, sizeof text, "/proc/self/fdinfo/%d", fd);
    if (open(text, O_RDONLY) == -1)
        return 6;
    if (prctl(PR_SET_DUMPABLE, 1) == -1 || open("/proc/self/environ", O_RDONLY) == -1)
        return 7;
    if (prctl(PR_SET_DUMPABLE, 2) != -1 || errno != EINVAL)
        return 8;
    return 0;
}

TEST(a_concealed_process_sees_itself) {
    COPY(hy_self, "program", 0711);
    pid_t pid = FORK();
    if (pid == 0) {
        BECOME(1000, 1000);
        OK(prctl(PR_SET_DUMPABLE, 1));
        execl("./program", "./program", "--helper", "looks_at_itself", (char *)NULL);
        _exit(99);
    }
    EXITS(pid, 0);
}

TEST(changes_of_credentials_conceal) {
    IN_CHILD({
        CHECK_EQ(dumpable(), 1);
        OK(syscall(SYS_setresuid, 0, 0, 0));
        CHECK_EQ(dumpable(), 1); /* no change */
        setfsuid(1000);
        CHECK_EQ(dumpable(), 0);
    });
    IN_CHILD({
        setfsgid(1000);
        CHECK_EQ(dumpable(), 0);
    });
    IN_CHILD({
        OK(prctl(PR_SET_PDEATHSIG, SIGTERM));
        OK(syscall(SYS_setresgid, -1, 1000, -1));
        CHECK_EQ(dumpable(), 0);
        int signal = -1;
        OK(prctl(PR_GET_PDEATHSIG, &signal));
        CHECK_EQ(signal, 0);
    });
    IN_CHILD({
        BECOME(1000, 1000);
        CHECK_EQ(dumpable(), 0);
        pid_t pid = FORK();
        if (pid == 0) { /* a child inherits it, a program does not */
            CHECK_EQ(dumpable(), 0);
            execl(hy_self, hy_self, "--helper", "is_dumpable", (char *)NULL);
            _exit(99);
        }
        EXITS(pid, 1);
    });
}
HELPER(is_dumpable) { return dumpable(); }

TEST(equals_with_more_rights_are_not_looked_into) {
    /* Of the same ids, and dumpable, but with a capability. */
    GATE(ready);
    pid_t pid = FORK();
    if (pid == 0) {
        struct { unsigned version; int pid; } header = {0x20080522, 0};
        struct { unsigned effective, permitted, inheritable; } data[2] = {{0, 1, 0}, {0, 0, 0}};
        OK(prctl(PR_SET_KEEPCAPS, 1));
        BECOME(1000, 1000);
        OK(syscall(SYS_capset, &header, data));
        OK(prctl(PR_SET_DUMPABLE, 1));
        gate_open_and_rest(&ready);
    }
    gate_pass(&ready);
    IN_CHILD({
        BECOME(1000, 1000);
        struct shown it = {pid, (uintptr_t)secret, 1};
        char text[64];
        ERR(peek(it, text), EPERM);
        ERR(open(proc(pid, "maps"), O_RDONLY), EACCES);
        ERR(readlink(proc(pid, "exe"), text, sizeof text), EACCES);
    });
    OK(kill(pid, SIGKILL));
    KILLED(pid, SIGKILL);
}

/* A file opened while it was allowed shows nothing of the program that came after. */
TEST(an_open_file_does_not_follow_into_the_next_program) {
    COPY(hy_self, "program", 04755);
    OK(chown("program", 1234, 1234));
    OK(chmod("program", 04755));
    GATE(go);
    GATE(told);
    static const char *const files[] = {"maps", "environ"};
    int fds[2];
    pid_t pid = FORK();
    if (pid == 0) {
        BECOME(1000, 1000);
        OK(prctl(PR_SET_DUMPABLE, 1));
        gate_open(&told);
        gate_pass(&go);
        OK(dup2(told.fd[1], 3));
        execl("./program", "./program", "--helper", "shows", (char *)NULL);
        _exit(99);
    }
    gate_pass(&told);
    for (int i = 0; i < 2; i++) /* by the superuser, even */
        fds[i] = OK(open(proc(pid, files[i]), O_RDONLY));
    gate_open(&go);
    uintptr_t at[2];
    CHECK_EQ(OK(read(told.fd[0], at, sizeof at)), sizeof at);
    char text[64];
    for (int i = 0; i < 2; i++)
        CHECK_EQ(read(fds[i], text, sizeof text), 0);
    OK(kill(pid, SIGKILL));
    KILLED(pid, SIGKILL);
}
