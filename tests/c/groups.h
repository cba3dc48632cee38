/* What the tests of control groups have in common: a tree of their own, groups and their files,
 * members. */
#ifndef GROUPS_H
#define GROUPS_H

#include "harness.h"

/* The tree is mounted in a mount namespace of the case's own; a case's groups lie in one group. */
static char base[PATH_MAX];
static char top[PATH_MAX];

static UNUSED char *path_of(const char *group, const char *file) {
    static char paths[4][2 * PATH_MAX];
    static int next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof *paths, "%s%s%s%s%s", base, *group ? "/" : "", group, file ? "/" : "",
             file ? file : "");
    return path;
}

/* The result of a write, with the error in errno. */
static UNUSED ssize_t write_to(const char *path, const char *text) {
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd == -1)
        return -1;
    ssize_t n = write(fd, text, strlen(text));
    int error = errno;
    close(fd);
    errno = error;
    return n;
}
static UNUSED ssize_t tell(const char *group, const char *file, const char *text) {
    return write_to(path_of(group, file), text);
}
static UNUSED ssize_t move_to(const char *group, pid_t pid) {
    char text[16];
    snprintf(text, sizeof text, "%d", pid);
    return tell(group, "cgroup.procs", text);
}

static UNUSED const char *read_of(const char *path) {
    static char texts[4][16384];
    static int next;
    char *text = texts[next++ % 4];
    if (get_file(path, text, sizeof *texts) == -1)
        FAIL("open %s: %s", path, strerror(errno));
    return text;
}
static UNUSED const char *shown(const char *group, const char *file) {
    return read_of(path_of(group, file));
}

/* The number behind a word of a file. */
static UNUSED long value_of(const char *group, const char *file, const char *name) {
    char wanted[64];
    snprintf(wanted, sizeof wanted, "%s ", name);
    const char *text = shown(group, file);
    while (text && strncmp(text, wanted, strlen(wanted)) != 0) {
        text = strchr(text, '\n');
        text = text ? text + 1 : NULL;
    }
    if (!text)
        FAIL("%s has no %s", file, name);
    return atol(text + strlen(wanted));
}
#define POPULATED(group) value_of(group, "cgroup.events", "populated")
#define FROZEN(group) value_of(group, "cgroup.events", "frozen")

static UNUSED int members(const char *group) {
    int count = 0;
    for (const char *text = shown(group, "cgroup.procs"); *text; text++)
        count += *text == '\n';
    return count;
}

/* The path in the version 2 hierarchy that /proc/PID/cgroup shows. */
static UNUSED const char *group_of(const char *proc) {
    static char path[PATH_MAX];
    char file[64];
    snprintf(file, sizeof file, "/proc/%s/cgroup", proc);
    const char *line = read_of(file);
    while (line && strncmp(line, "0::", 3) != 0) {
        line = strchr(line, '\n');
        line = line ? line + 1 : NULL;
    }
    CHECK(line != NULL);
    snprintf(path, sizeof path, "%.*s", (int)strcspn(line + 3, "\n"), line + 3);
    return path;
}
static UNUSED const char *group_of_pid(pid_t pid) {
    char text[16];
    snprintf(text, sizeof text, "%d", pid);
    return group_of(text);
}
/* Whether a process is in one of the case's groups. */
static UNUSED bool is_in(pid_t pid, const char *group) {
    char wanted[PATH_MAX];
    const char *own = strrchr(base, '/');
    snprintf(wanted, sizeof wanted, "%s%s%s", own, *group ? "/" : "", group);
    const char *path = group_of_pid(pid);
    size_t length = strlen(path), want = strlen(wanted);
    return length >= want && strcmp(path + length - want, wanted) == 0;
}

static UNUSED void remove_groups(const char *path) {
    char inner[PATH_MAX];
    DIR *dir = opendir(path);
    if (!dir && errno == ENOMEM) /* refused on purpose, once */
        dir = opendir(path);
    if (!dir)
        return;
    for (struct dirent *entry; (entry = readdir(dir));)
        if (entry->d_type == DT_DIR && entry->d_name[0] != '.') {
            snprintf(inner, sizeof inner, "%s/%s", path, entry->d_name);
            remove_groups(inner);
        }
    closedir(dir);
    /* A child of the case may have entered after the others were ended. */
    snprintf(inner, sizeof inner, "%s/cgroup.kill", path);
    for (int i = 0; rmdir(path) == -1 && (errno == EBUSY || errno == ENOMEM) && i < 1000; i++) {
        write_to(inner, "1");
        msleep(2);
    }
}
/* Goes on in a child, and removes the groups when that has ended, however it ended. */
static UNUSED void watch_over(void) {
    pid_t pid = fork();
    if (pid == 0)
        return;
    if (pid == -1) {
        int error = errno;
        remove_groups(base);
        FAIL("fork: %s", strerror(error));
    }
    int status = WAIT(pid);
    write_to(path_of("", "cgroup.kill"), "1");
    remove_groups(base);
    if (WIFSIGNALED(status))
        FAIL("ended by signal %d", WTERMSIG(status));
    _exit(WEXITSTATUS(status));
}

static UNUSED void begin(void) {
    if (geteuid() != 0)
        SKIP("not root");
    OK(unshare(CLONE_NEWNS));
    OK(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL));
    CHECK(getcwd(top, sizeof top - 32) != NULL);
    strcat(top, "/groups");
    OK(mkdir(top, 0755));
    if (mount("none", top, "cgroup2", 0, NULL) == -1)
        SKIP("no cgroup2: %s", strerror(errno));
    snprintf(base, sizeof base, "%s/hy-%d", top, getpid());
    if (mkdir(base, 0755) == -1)
        SKIP("no group is made: %s", strerror(errno));
    watch_over();
}

/* A process that does nothing, until a signal ends it. */
static UNUSED pid_t idle(void) {
    pid_t pid = FORK();
    while (pid == 0)
        pause();
    wait_asleep(pid); /* fork(3) has let signals through again */
    return pid;
}
static UNUSED pid_t idle_in(const char *group) {
    pid_t pid = idle();
    OK(move_to(group, pid));
    return pid;
}
static UNUSED void end(pid_t pid) {
    OK(kill(pid, SIGKILL));
    KILLED(pid, SIGKILL);
}

static UNUSED bool has_controller(const char *name) {
    char path[PATH_MAX + 32];
    snprintf(path, sizeof path, "%s/cgroup.controllers", top);
    return strstr(read_of(path), name) != NULL;
}
/* Gives the controller to the case's group and to those in it. */
static UNUSED void with_controller(const char *name) {
    char path[PATH_MAX + 32], request[16];
    if (!has_controller(name))
        SKIP("the controller %s is not in this hierarchy", name);
    snprintf(request, sizeof request, "+%s", name);
    snprintf(path, sizeof path, "%s/cgroup.subtree_control", top);
    OK(write_to(path, request));
    OK(tell("", "cgroup.subtree_control", request));
}

#endif
