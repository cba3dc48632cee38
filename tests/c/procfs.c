/* procfs as ps, top, shells and C libraries read it. */
#define AREA "procfs"
#include "harness.h"
#include <elf.h>
#include <pthread.h>
#include <sys/prctl.h>
#include <sys/sysinfo.h>
#include <sys/uio.h>
#include <sys/utsname.h>

static char text[65536];
/* Enough memory in use that approximate counters show it. */
static void use_memory(void) {
    static char memory[8 << 20];
    for (size_t i = 0; i < sizeof memory; i += PAGE)
        memory[i] = 1;
}
static const char *slurp(const char *path) {
    if (get_file(path, text, sizeof text) == -1)
        FAIL("cannot open %s: %s", path, strerror(errno));
    return text;
}
/* The number after `key` at the start of a line. */
static long field(const char *path, const char *key) {
    slurp(path);
    char *at = text;
    size_t n = strlen(key);
    while (at && strncmp(at, key, n) != 0) {
        at = strchr(at, '\n');
        at = at ? at + 1 : NULL;
    }
    if (!at)
        FAIL("%s has no %s", path, key);
    return strtol(at + n, NULL, 0);
}

TEST(self_is_a_link_to_the_reader) {
    char link[32] = "", want[32];
    OK(readlink("/proc/self", link, sizeof link - 1));
    snprintf(want, sizeof want, "%d", getpid());
    CHECK_STR(link, want);
    OK(readlink("/proc/thread-self", link, sizeof link - 1));
    IN_CHILD({
        memset(link, 0, sizeof link);
        OK(readlink("/proc/self", link, sizeof link - 1));
        CHECK_EQ(atoi(link), getpid());
    });
}

TEST(cmdline_has_zero_separated_arguments) {
    GATE(out);
    pid_t pid = FORK();
    if (pid == 0) {
        dup2(out.fd[1], 1);
        execl(hy_self, "some name", "--helper", "hang", "", "last one", (char *)NULL);
        _exit(1);
    }
    gate_pass(&out);
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/cmdline", pid);
    ssize_t n = get_file(path, text, sizeof text);
    static const char want[] = "some name\0--helper\0hang\0\0last one";
    CHECK_EQ(n, sizeof want);
    CHECK(!memcmp(text, want, sizeof want));
    snprintf(path, sizeof path, "/proc/%d/comm", pid);
    char base[PATH_MAX];
    snprintf(base, sizeof base, "%.15s\n", strrchr(hy_self, '/') + 1);
    CHECK_STR(slurp(path), base);
    OK(kill(pid, SIGKILL));
    KILLED(pid, SIGKILL);
}
HELPER(hang) {
    if (write(1, "", 1) == 1)
        pause();
    return 0;
}

TEST(environ_is_the_initial_environment) {
    char *envp[] = {(char *)"ONE=1", (char *)"TWO=2", NULL};
    char *argv[] = {hy_self, (char *)"--helper", (char *)"check_environ", NULL};
    pid_t pid = FORK();
    if (pid == 0) {
        execve(hy_self, argv, envp);
        _exit(9);
    }
    EXITS(pid, 0);
}
HELPER(check_environ) {
    ssize_t n = get_file("/proc/self/environ", text, sizeof text);
    return n == 12 && !memcmp(text, "ONE=1\0TWO=2", 12) ? 0 : 1;
}

TEST(stat_fields) {
    GATE(go);
    OK(syscall(SYS_prctl, 15, "a) (b", 0, 0, 0)); /* a name to trip over */
    pid_t pid = FORK();
    if (pid == 0) {
        setpgid(0, 0);
        use_memory();
        gate_pass(&go);
        _exit(0);
    }
    setpgid(pid, pid);
    wait_asleep(pid);
    char path[64], state;
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    slurp(path);
    CHECK_EQ(atoi(text), pid);
    CHECK(strstr(text, "(a) (b)") != NULL);
    int ppid, pgrp, session, tty, tpgid;
    unsigned flags;
    unsigned long minflt, cminflt, majflt, cmajflt, utime, stime, vsize;
    long cutime, cstime, priority, niceness, threads, itreal, rss;
    unsigned long long start;
    int n = sscanf(strrchr(text, ')') + 2,
                   "%c %d %d %d %d %d %u %lu %lu %lu %lu %lu %lu %ld %ld %ld %ld %ld %ld %llu %lu %ld", &state,
                   &ppid, &pgrp, &session, &tty, &tpgid, &flags, &minflt, &cminflt, &majflt, &cmajflt, &utime,
                   &stime, &cutime, &cstime, &priority, &niceness, &threads, &itreal, &start, &vsize, &rss);
    CHECK_EQ(n, 22);
    CHECK_EQ(state, 'S');
    CHECK_EQ(ppid, getpid());
    CHECK_EQ(pgrp, pid);
    CHECK_EQ(session, getsid(0));
    CHECK_EQ(threads, 1);
    CHECK_EQ(niceness, 0);
    CHECK_EQ(priority, 20);
    CHECK(vsize > 4096 && rss > 0);
    int spaces = 0;
    for (char *c = strrchr(text, ')'); *c; c++)
        spaces += *c == ' ';
    CHECK_EQ(spaces, 50); /* 52 fields (proc(5)) */
    gate_open(&go);
    EXITS(pid, 0);
}

/* The fields 48 to 51 of a process: where its arguments and its environment are. */
static void vectors_of(const char *path, unsigned long found[4]) {
    slurp(path);
    char *at = strrchr(text, ')') + 1; /* behind it, a blank stands before each field from 3 on */
    for (int field_ = 3; field_ <= 48; field_++)
        at = strchr(at, ' ') + 1;
    CHECK_EQ(sscanf(at, "%lu %lu %lu %lu", &found[0], &found[1], &found[2], &found[3]), 4);
}

TEST(stat_tells_where_the_arguments_are) {
    unsigned long found[4];
    vectors_of("/proc/self/stat", found);
    CHECK(found[0] && found[0] < found[1] && found[1] <= found[2] && found[2] <= found[3]);
    static char shown[65536];
    ssize_t length = get_file("/proc/self/cmdline", shown, sizeof shown);
    CHECK_EQ(length, found[1] - found[0]);
    CHECK(memcmp(shown, (char *)found[0], (size_t)length) == 0);
    length = get_file("/proc/self/environ", shown, sizeof shown);
    CHECK_EQ(length, found[3] - found[2]);
    CHECK(memcmp(shown, (char *)found[2], (size_t)length) == 0);
    /* Of a process that has ended, and to others, nothing. */
    pid_t pid = FORK();
    if (pid == 0)
        _exit(0);
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    EVENTUALLY((slurp(path), strstr(text, ") Z ")));
    vectors_of(path, found);
    CHECK(!found[0] && !found[1] && !found[2] && !found[3]);
    EXITS(pid, 0);
    if (geteuid() != 0)
        return;
    snprintf(path, sizeof path, "/proc/%d/stat", getpid());
    IN_CHILD({
        BECOME(NOBODY, NOBODY);
        vectors_of(path, found);
        CHECK(!found[0] && !found[1] && !found[2] && !found[3]);
    });
}

TEST(states_of_a_process) {
    char path[64];
    pid_t pid = FORK();
    if (pid == 0)
        for (volatile int i = 0;; i++)
            ;
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    CHECK_EQ(strrchr(slurp(path), ')')[2], 'R');
    OK(kill(pid, SIGSTOP));
    int status;
    OK(waitpid(pid, &status, WUNTRACED));
    CHECK_EQ(strrchr(slurp(path), ')')[2], 'T');
    OK(kill(pid, SIGKILL));
    siginfo_t info;
    OK(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT));
    CHECK_EQ(strrchr(slurp(path), ')')[2], 'Z');
    KILLED(pid, SIGKILL);
    ERR(open(path, O_RDONLY), ENOENT);
}

TEST(status_fields) {
    use_memory();
    CHECK_EQ(field("/proc/self/status", "Pid:"), getpid());
    CHECK_EQ(field("/proc/self/status", "Tgid:"), getpid());
    CHECK_EQ(field("/proc/self/status", "PPid:"), getppid());
    CHECK_EQ(field("/proc/self/status", "Threads:"), 1);
    CHECK(field("/proc/self/status", "VmSize:") > 0);
    CHECK(field("/proc/self/status", "VmRSS:") > 0);
    CHECK(strstr(text, "\nState:\tR (running)\n") != NULL);
    CHECK(strstr(text, "\nUid:\t0\t0\t0\t0\n") != NULL);
    CHECK(strstr(text, "\nSigCgt:\t") != NULL && strstr(text, "\nSigBlk:\t") != NULL);
    IN_CHILD({
        OK(setresgid(5, 6, 7));
        OK(setresuid(1, 2, 3));
        slurp("/proc/self/status");
        CHECK(strstr(text, "\nUid:\t1\t2\t3\t2\n") != NULL);
        CHECK(strstr(text, "\nGid:\t5\t6\t7\t6\n") != NULL);
    });
}

TEST(status_signal_masks) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1); /* bit 9 */
    OK(sigprocmask(SIG_SETMASK, &set, NULL));
    OK(raise(SIGUSR1));
    signal(SIGUSR2, SIG_IGN); /* bit 11 */
    slurp("/proc/self/status");
    CHECK(strstr(text, "\nSigBlk:\t0000000000000200\n") != NULL);
    CHECK(strstr(text, "\nSigPnd:\t0000000000000200\n") || strstr(text, "\nShdPnd:\t0000000000000200\n"));
    char *ignored = strstr(text, "\nSigIgn:\t");
    CHECK(ignored != NULL);
    CHECK(strtoull(ignored + 9, NULL, 16) & 0x800);
}

struct vma {
    unsigned long start, end, offset;
    char prot[5], path[256];
};
static bool find_map(void *address, struct vma *v) {
    static FILE *f;
    f = fopen("/proc/self/maps", "r");
    CHECK(f != NULL);
    char line[512];
    bool found = false;
    unsigned long last = 0;
    while (fgets(line, sizeof line, f)) {
        struct vma now = {0};
        int n = sscanf(line, "%lx-%lx %4s %lx %*x:%*x %*u %255[^\n]", &now.start, &now.end, now.prot, &now.offset,
                       now.path);
        if (n < 4)
            FAIL("line of maps not understood: %s", line);
        CHECK(now.start >= last && now.end > now.start); /* in order */
        last = now.end;
        if ((unsigned long)address >= now.start && (unsigned long)address < now.end) {
            *v = now;
            found = true;
        }
    }
    fclose(f);
    return found;
}

TEST(maps_shows_protection_offset_and_file) {
    struct vma v;
    PUT("file", "x");
    int fd = OK(open("file", O_RDWR));
    OK(ftruncate(fd, 8 * (off_t)PAGE));
    char *a = OK(mmap(NULL, 3 * PAGE, PROT_READ, MAP_PRIVATE, fd, 2 * (off_t)PAGE));
    CHECK(find_map(a, &v));
    CHECK_STR(v.prot, "r--p");
    CHECK_EQ(v.offset, 2 * PAGE);
    CHECK(strstr(v.path, "/file") != NULL);
    char *b = OK(mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
    CHECK(find_map(b, &v));
    CHECK_STR(v.prot, "rw-s");
    int local;
    CHECK(find_map(&local, &v));
    CHECK_STR(v.path, "[stack]");
    CHECK(find_map((void *)(uintptr_t)find_map, &v));
    CHECK_EQ(v.prot[2], 'x');
    CHECK_STR(v.path, hy_self);
    OK(munmap(a, 3 * PAGE));
    CHECK(!find_map(a, &v) || strstr(v.path, "/file") == NULL);
}

TEST(maps_shows_heap_and_deleted) {
    struct vma v;
    char *now = (char *)syscall(SYS_brk, 0);
    CHECK_EQ(syscall(SYS_brk, now + 10 * PAGE), (long)now + 10 * (long)PAGE);
    CHECK(find_map(now + PAGE, &v));
    CHECK_STR(v.path, "[heap]");
    PUT("gone", "x");
    int fd = OK(open("gone", O_RDONLY));
    char *p = OK(mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, fd, 0));
    OK(unlink("gone"));
    CHECK(find_map(p, &v));
    CHECK(strstr(v.path, "/gone (deleted)") != NULL);
}

TEST(fd_directory) {
    PUT("f", "x");
    int fd = OK(open("f", O_RDONLY)), p[2];
    OK(pipe(p));
    char path[64], link[PATH_MAX] = "", want[PATH_MAX + 16];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    OK(readlink(path, link, sizeof link - 1));
    snprintf(want, sizeof want, "%s/f", hy_tmp);
    CHECK_STR(link, want);
    snprintf(path, sizeof path, "/proc/self/fd/%d", p[0]);
    memset(link, 0, sizeof link);
    OK(readlink(path, link, sizeof link - 1));
    CHECK(!strncmp(link, "pipe:[", 6));
    int again = OK(open(path, O_WRONLY)); /* opens the pipe anew */
    OK(write(again, "y", 1));
    char c;
    CHECK_EQ(OK(read(p[0], &c, 1)), 1);
    struct stat a, b;
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    OK(stat(path, &a));
    OK(fstat(fd, &b));
    CHECK_EQ(a.st_ino, b.st_ino);
    int open_ones = 0;
    DIR *dir = opendir("/proc/self/fd");
    CHECK(dir != NULL);
    struct dirent *e;
    while ((e = readdir(dir)))
        if (e->d_name[0] != '.') {
            OK(fcntl(atoi(e->d_name), F_GETFD));
            open_ones++;
        }
    CHECK(open_ones >= 5);
    snprintf(path, sizeof path, "/proc/self/fdinfo/%d", fd);
    if (access(path, F_OK) == 0)
        CHECK_EQ(field(path, "pos:"), 0);
    ERR(open("/proc/self/fd/9999", O_RDONLY), ENOENT);
}

TEST(fd_link_reopens_deleted_files) {
    PUT("f", "still");
    int fd = OK(open("f", O_RDONLY));
    OK(unlink("f"));
    char path[64], link[PATH_MAX] = "";
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    OK(readlink(path, link, sizeof link - 1));
    CHECK(strstr(link, "/f (deleted)") != NULL);
    int again = OK(open(path, O_RDONLY));
    CHECK_EQ(OK(read(again, link, 10)), 5);
}

TEST(exe_cwd_and_root_links) {
    char link[PATH_MAX] = "";
    OK(readlink("/proc/self/exe", link, sizeof link - 1));
    CHECK_STR(link, hy_self);
    memset(link, 0, sizeof link);
    OK(readlink("/proc/self/cwd", link, sizeof link - 1));
    CHECK_STR(link, hy_tmp);
    memset(link, 0, sizeof link);
    OK(readlink("/proc/self/root", link, sizeof link - 1));
    CHECK_STR(link, "/");
    OK(access("/proc/self/cwd/.", F_OK));
}

static void *idle(void *arg) {
    gate_pass(arg);
    return NULL;
}

TEST(task_directory_lists_threads) {
    GATE(go);
    pthread_t t[3];
    for (int i = 0; i < 3; i++)
        ZERO(pthread_create(&t[i], NULL, idle, &go));
    int n = 0;
    DIR *dir = opendir("/proc/self/task");
    CHECK(dir != NULL);
    struct dirent *e;
    while ((e = readdir(dir)))
        n += e->d_name[0] != '.';
    CHECK_EQ(n, 4);
    CHECK_EQ(field("/proc/self/status", "Threads:"), 4);
    for (int i = 0; i < 3; i++)
        gate_open(&go);
    for (int i = 0; i < 3; i++)
        ZERO(pthread_join(t[i], NULL));
}

TEST(meminfo_is_consistent) {
    long total = field("/proc/meminfo", "MemTotal:"), idle_ = field("/proc/meminfo", "MemFree:");
    long available = field("/proc/meminfo", "MemAvailable:");
    CHECK(total > 16384 && idle_ > 0 && idle_ <= total && available <= total);
    CHECK(field("/proc/meminfo", "Buffers:") >= 0);
    CHECK(field("/proc/meminfo", "Cached:") >= 0);
    CHECK(field("/proc/meminfo", "SwapTotal:") >= 0);
    struct sysinfo info;
    OK(sysinfo(&info));
    long by_call = (long)((uint64_t)info.totalram * info.mem_unit / 1024);
    CHECK(by_call > total - total / 10 && by_call < total + total / 10);
}

TEST(cpuinfo_lists_every_cpu) {
    slurp("/proc/cpuinfo");
    int n = 0;
    for (char *at = text; (at = strstr(at, "processor\t: ")); at++)
        n++;
    CHECK_EQ(n, sysconf(_SC_NPROCESSORS_ONLN));
    CHECK(strstr(text, "vendor_id\t: ") && strstr(text, "flags\t\t: ") && strstr(text, "model name\t: "));
    CHECK(strstr(text, " sse2 ") != NULL);
}

TEST(global_stat_and_uptime) {
    slurp("/proc/stat");
    unsigned long user, niceness, sys, idle_;
    CHECK_EQ(sscanf(text, "cpu %lu %lu %lu %lu", &user, &niceness, &sys, &idle_), 4);
    CHECK(strstr(text, "\ncpu0 ") != NULL && strstr(text, "\nbtime ") != NULL);
    CHECK(field("/proc/stat", "ctxt ") > 0);
    CHECK(field("/proc/stat", "processes ") > 0);
    double up, rest;
    CHECK_EQ(sscanf(slurp("/proc/uptime"), "%lf %lf", &up, &rest), 2);
    double mono = (double)now_ns(CLOCK_BOOTTIME) / 1e9;
    CHECK(up <= mono + 0.1 && mono - up < 10);
    double l1, l2, l3;
    int running, all, last;
    CHECK_EQ(sscanf(slurp("/proc/loadavg"), "%lf %lf %lf %d/%d %d", &l1, &l2, &l3, &running, &all, &last), 6);
    CHECK(running >= 1 && all >= running);
}

TEST(mounts_and_filesystems) {
    slurp("/proc/mounts");
    CHECK(strstr(text, " / ") != NULL);
    CHECK(strstr(text, " /proc proc ") != NULL);
    slurp("/proc/self/mounts");
    slurp("/proc/filesystems");
    CHECK(strstr(text, "\tproc\n") && strstr(text, "tmpfs\n"));
    slurp("/proc/self/mountinfo");
    CHECK(strstr(text, " - proc ") != NULL);
}

TEST(version_and_kernel_files) {
    struct utsname u;
    OK(uname(&u));
    CHECK(strstr(slurp("/proc/version"), u.release) != NULL);
    char want[80];
    snprintf(want, sizeof want, "%s\n", u.release);
    CHECK_STR(slurp("/proc/sys/kernel/osrelease"), want);
    snprintf(want, sizeof want, "%s\n", u.nodename);
    CHECK_STR(slurp("/proc/sys/kernel/hostname"), want);
    CHECK_STR(slurp("/proc/sys/kernel/ostype"), "Linux\n");
    CHECK(atol(slurp("/proc/sys/kernel/pid_max")) >= 32768);
    CHECK(atol(slurp("/proc/sys/fs/file-max")) > 0);
    CHECK(atol(slurp("/proc/sys/vm/overcommit_memory")) <= 2);
    slurp("/proc/cmdline");
    CHECK_EQ(text[strlen(text) - 1], '\n');
}

TEST(random_files) {
    char a[64], b[64];
    snprintf(a, sizeof a, "%s", slurp("/proc/sys/kernel/random/uuid"));
    snprintf(b, sizeof b, "%s", slurp("/proc/sys/kernel/random/uuid"));
    CHECK_EQ(strlen(a), 37);
    CHECK(strcmp(a, b) != 0); /* anew at each open */
    CHECK_EQ(a[14], '4');
    snprintf(a, sizeof a, "%s", slurp("/proc/sys/kernel/random/boot_id"));
    CHECK_STR(slurp("/proc/sys/kernel/random/boot_id"), a);
}

TEST(root_lists_all_processes) {
    GATE(go);
    pid_t pids[3];
    for (int i = 0; i < 3; i++)
        if ((pids[i] = FORK()) == 0) {
            gate_pass(&go);
            _exit(0);
        }
    int found = 0;
    bool self = false, init = false;
    DIR *dir = opendir("/proc");
    CHECK(dir != NULL);
    struct dirent *e;
    while ((e = readdir(dir))) {
        for (int i = 0; i < 3; i++)
            found += atoi(e->d_name) == pids[i];
        self |= atoi(e->d_name) == getpid();
        init |= !strcmp(e->d_name, "1");
    }
    CHECK(found == 3 && self && init);
    for (int i = 0; i < 3; i++)
        gate_open(&go);
    for (int i = 0; i < 3; i++)
        EXITS(pids[i], 0);
}

TEST(reads_in_small_pieces_are_the_same) {
    slurp("/proc/cpuinfo");
    int fd = OK(open("/proc/filesystems", O_RDONLY));
    char whole[8192], pieces[8192];
    ssize_t n = get_file("/proc/filesystems", whole, sizeof whole);
    size_t done = 0;
    ssize_t k;
    while ((k = OK(read(fd, pieces + done, 7))) > 0)
        done += (size_t)k;
    CHECK_EQ(done, n);
    CHECK(!memcmp(whole, pieces, done));
    char c;
    OK(lseek(fd, 3, SEEK_SET));
    CHECK_EQ(OK(read(fd, &c, 1)), 1);
    CHECK_EQ(c, whole[3]);
}

TEST(what_cannot_be_done_in_proc) {
    ERR2(mkdir("/proc/new", 0755), ENOENT, EPERM);
    ERR2(open("/proc/new", O_WRONLY | O_CREAT, 0600), ENOENT, EACCES);
    ERR2(unlink("/proc/uptime"), EPERM, EACCES);
    ERR2(rename("/proc/uptime", "/proc/x"), EPERM, ENOENT);
    ERR(open("/proc/99999999", O_RDONLY), ENOENT);
    ERR(open("/proc/01", O_RDONLY), ENOENT); /* no leading zeros */
    ERR(open("/proc/self/none", O_RDONLY), ENOENT);
    ERR(open("/proc/self/stat/x", O_RDONLY), ENOTDIR);
    ERR(read(OK(open("/proc", O_RDONLY)), text, 10), EISDIR);
}

TEST(open_file_of_a_dead_process_is_esrch) {
    GATE(go);
    pid_t pid = FORK();
    if (pid == 0) {
        gate_pass(&go);
        _exit(0);
    }
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    int fd = OK(open(path, O_RDONLY));
    gate_open(&go);
    EXITS(pid, 0);
    ERR(read(fd, text, 100), ESRCH);
}

TEST(rights_to_others_entries) {
    pid_t parent = getpid();
    IN_CHILD({
        BECOME(1000, 1000);
        char path[64];
        snprintf(path, sizeof path, "/proc/%d/stat", parent);
        OK(open(path, O_RDONLY)); /* for everybody */
        snprintf(path, sizeof path, "/proc/%d/fd", parent);
        ERR(open(path, O_RDONLY), EACCES);
        snprintf(path, sizeof path, "/proc/%d/environ", parent);
        ERR(open(path, O_RDONLY), EACCES);
        snprintf(path, sizeof path, "/proc/%d/exe", parent);
        ERR(readlink(path, text, 100), EACCES);
    });
}

TEST(statm_and_limits) {
    long size, resident, shared;
    use_memory();
    CHECK_EQ(sscanf(slurp("/proc/self/statm"), "%ld %ld %ld", &size, &resident, &shared), 3);
    CHECK(size >= resident && resident > 0);
    slurp("/proc/self/limits");
    CHECK(strstr(text, "Max open files") != NULL);
    CHECK(strstr(text, "Max stack size") != NULL);
}

enum { MOST_NAMES = 16384 };

struct names {
    int count;
    char name[MOST_NAMES][24];
};

/* Reads a little of a directory; how many names came. */
static int some_names(int fd, struct names *to) {
    char buffer[112];
    long n = OK(syscall(SYS_getdents64, fd, buffer, sizeof buffer));
    int before = to->count;
    for (long at = 0; at < n; at += *(unsigned short *)(buffer + at + 16)) {
        CHECK(to->count < MOST_NAMES);
        snprintf(to->name[to->count++], sizeof to->name[0], "%s", buffer + at + 19);
    }
    return to->count - before;
}

static int times(const struct names *list, const char *name) {
    int found = 0;
    for (int i = 0; i < list->count; i++)
        found += strcmp(list->name[i], name) == 0;
    return found;
}

static void whole(const char *path, struct names *list) {
    int fd = OK(open(path, O_RDONLY | O_DIRECTORY));
    while (some_names(fd, list) > 0)
        ;
    OK(close(fd));
}

/* The second directory is Hayate's own. */
TEST(listings_miss_nobody_while_others_end) {
    static const char *const paths[] = {"/proc", "/proc/hayate/resources/process"};
    enum { CHILDREN = 30 };
    for (int i = 0; i < 2; i++) {
        if (access(paths[i], F_OK) == -1)
            continue;
        pid_t child[CHILDREN];
        for (int k = 0; k < CHILDREN; k++)
            if ((child[k] = OK(fork())) == 0)
                for (;;)
                    pause();
        static struct names before, during, after;
        before.count = during.count = after.count = 0;
        whole(paths[i], &before);
        int fd = OK(open(paths[i], O_RDONLY | O_DIRECTORY));
        while (during.count < before.count - CHILDREN / 3)
            CHECK(some_names(fd, &during) > 0);
        for (int k = 0; k < CHILDREN / 2; k++)
            OK(kill(child[k], SIGKILL));
        for (int k = 0; k < CHILDREN / 2; k++)
            OK(waitpid(child[k], NULL, 0));
        while (some_names(fd, &during) > 0)
            ;
        OK(close(fd));
        whole(paths[i], &after);
        for (int k = 0; k < before.count; k++)
            if (times(&after, before.name[k]) == 1 && times(&during, before.name[k]) != 1)
                FAIL("%s/%s: %d times", paths[i], before.name[k], times(&during, before.name[k]));
        for (int k = CHILDREN / 2; k < CHILDREN; k++) {
            OK(kill(child[k], SIGKILL));
            OK(waitpid(child[k], NULL, 0));
        }
    }
}

TEST(mem_reads_and_writes_what_is_mapped) {
    char here[16] = "what was there";
    int fd = OK(open("/proc/self/mem", O_RDWR));
    char copy[16] = "";
    CHECK_EQ(OK(pread(fd, copy, 15, (off_t)(uintptr_t)here)), 15);
    CHECK_STR(copy, here);
    CHECK_EQ(OK(pwrite(fd, "WHAT", 4, (off_t)(uintptr_t)here)), 4);
    CHECK_STR(here, "WHAT was there");
    CHECK_EQ(OK(lseek(fd, (off_t)(uintptr_t)here, SEEK_SET)), (off_t)(uintptr_t)here);
    CHECK_EQ(OK(read(fd, copy, 4)), 4);
    CHECK(memcmp(copy, "WHAT", 4) == 0);
    ERR(pread(fd, copy, 1, (off_t)(uintptr_t)bad_address()), EIO);
    ERR(pwrite(fd, copy, 1, (off_t)(uintptr_t)bad_address()), EIO);
    ERR(pread(fd, bad_address(), 1, (off_t)(uintptr_t)here), EFAULT);
    ERR(lseek(fd, 0, SEEK_END), EINVAL);
    /* The part before a hole is read. */
    char *page = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(page != MAP_FAILED);
    OK(munmap(page + PAGE, PAGE));
    page[PAGE - 1] = 'x';
    CHECK_EQ(OK(pread(fd, copy, 10, (off_t)(uintptr_t)(page + PAGE - 1))), 1);
    CHECK_EQ(copy[0], 'x');
}

/* Writes a text into a process's memory, past its rights. */
static ssize_t poke(int fd, const void *at, const char *text) {
    return pwrite(fd, text, strlen(text), (off_t)(uintptr_t)at);
}
static void peek(int fd, const void *at, const char *want) {
    char got[32] = "";
    CHECK_EQ(OK(pread(fd, got, strlen(want), (off_t)(uintptr_t)at)), strlen(want));
    CHECK_STR(got, want);
}

TEST(mem_writes_to_private_memory_that_is_read_only) {
    needs_user_mode();
    int fd = OK(open("/proc/self/mem", O_RDWR));
    PUT("file", "content of the file");
    OK(truncate("file", 3 * PAGE));
    int file = OK(open("file", O_RDWR));
    char *anonymous = mmap(NULL, 2 * PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *touched = mmap(NULL, 2 * PAGE, PROT_READ, MAP_PRIVATE, file, 0);
    char *fresh = mmap(NULL, 2 * PAGE, PROT_READ, MAP_PRIVATE, file, 0);
    char *other = mmap(NULL, 2 * PAGE, PROT_READ, MAP_PRIVATE, file, 0);
    CHECK_EQ(anonymous[0], 0);
    CHECK_EQ(touched[0], 'c');
    char *all[] = {anonymous, anonymous + PAGE, touched, fresh, fresh + PAGE};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        CHECK_EQ(OK(poke(fd, all[i], "new")), 3);
        CHECK(memcmp(all[i], "new", 3) == 0);
        peek(fd, all[i], "new");
        CHECK_EQ(OK(poke(fd, all[i] + 1, "o")), 1);
        CHECK(memcmp(all[i], "now", 3) == 0);
        /* It stays read-only. */
        pid_t pid = FORK();
        if (pid == 0) {
            *(volatile char *)all[i] = 'x';
            _exit(0);
        }
        KILLED(pid, SIGSEGV);
        /* A child has a copy of its own. */
        IN_CHILD({
            int own = OK(open("/proc/self/mem", O_RDWR));
            CHECK(memcmp(all[i], "now", 3) == 0);
            CHECK_EQ(OK(poke(own, all[i], "her")), 3);
            CHECK(memcmp(all[i], "her", 3) == 0);
        });
        CHECK(memcmp(all[i], "now", 3) == 0);
    }
    CHECK(memcmp(touched, "nowtent", 7) == 0);
    CHECK(memcmp(fresh, "nowtent", 7) == 0);
    /* Neither the file nor who else maps it sees that. */
    CHECK(memcmp(other, "content of the file", 20) == 0);
    CHECK_EQ(other[PAGE], 0);
    char text[64];
    get_file("file", text, sizeof text);
    CHECK_STR(text, "content of the file");
    /* The content stays when the rights change. */
    OK(mprotect(fresh, 2 * PAGE, PROT_READ | PROT_WRITE));
    CHECK(memcmp(fresh, "nowtent", 7) == 0);
    fresh[0] = 'N';
    CHECK(memcmp(fresh, "Nowtent", 7) == 0);
    OK(madvise(fresh, 2 * PAGE, MADV_DONTNEED));
    CHECK(memcmp(fresh, "content", 7) == 0);
}

TEST(mem_reads_and_writes_what_nobody_may_touch) {
    needs_user_mode();
    int fd = OK(open("/proc/self/mem", O_RDWR));
    char *page = mmap(NULL, 3 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    strcpy(page, "hidden");
    OK(mprotect(page, 3 * PAGE, PROT_NONE));
    peek(fd, page, "hidden");
    char byte = 1;
    CHECK_EQ(OK(pread(fd, &byte, 1, (off_t)(uintptr_t)(page + PAGE))), 1);
    CHECK_EQ(byte, 0);
    CHECK_EQ(OK(poke(fd, page, "H")), 1);
    CHECK_EQ(OK(poke(fd, page + 2 * PAGE, "fresh")), 5);
    peek(fd, page, "Hidden");
    pid_t pid = FORK();
    if (pid == 0) _exit(*(volatile char *)page);
    KILLED(pid, SIGSEGV);
    pid = FORK();
    if (pid == 0) _exit(*(volatile char *)(page + 2 * PAGE));
    KILLED(pid, SIGSEGV);
    OK(mprotect(page, 3 * PAGE, PROT_READ));
    CHECK_STR(page, "Hidden");
    CHECK_STR(page + PAGE, "");
    CHECK_STR(page + 2 * PAGE, "fresh");
    /* Of a file that nobody touched, too. */
    PUT("file", "content");
    int file = OK(open("file", O_RDONLY));
    char *mapped = mmap(NULL, PAGE, PROT_NONE, MAP_PRIVATE, file, 0);
    peek(fd, mapped, "content");
    char *shared = mmap(NULL, PAGE, PROT_NONE, MAP_SHARED, file, 0);
    peek(fd, shared, "content");
    char *executed = mmap(NULL, PAGE, PROT_EXEC, MAP_PRIVATE, file, 0);
    if (executed != MAP_FAILED) peek(fd, executed, "content");
    /* Behind the end of a file there is nothing. */
    char *behind = mmap(NULL, PAGE, PROT_NONE, MAP_PRIVATE, file, PAGE);
    ERR(pread(fd, &byte, 1, (off_t)(uintptr_t)behind), EIO);
    ERR(poke(fd, behind, "x"), EIO);
    /* Calls about another's memory respect the rights. */
    struct iovec own = {&byte, 1}, there = {page, 1};
    ERR(process_vm_writev(getpid(), &own, 1, &there, 1, 0), EFAULT);
    there.iov_base = mapped;
    ERR(process_vm_readv(getpid(), &own, 1, &there, 1, 0), EFAULT);
}

TEST(mem_does_not_write_to_shared_memory_that_is_read_only) {
    needs_user_mode();
    int fd = OK(open("/proc/self/mem", O_RDWR));
    PUT("file", "content");
    int modes[] = {O_RDONLY, O_RDWR};
    for (int i = 0; i < 2; i++) {
        int file = OK(open("file", modes[i]));
        char *page = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, file, 0);
        CHECK(page != MAP_FAILED);
        ERR(poke(fd, page, "x"), EIO);
        CHECK_EQ(page[0], 'c');
        ERR(poke(fd, page, "x"), EIO);
        OK(mprotect(page, PAGE, PROT_NONE));
        ERR(poke(fd, page, "x"), EIO);
    }
    int file = OK(open("file", O_RDWR));
    char *page = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    CHECK_EQ(OK(poke(fd, page, "C")), 1);
    char text[16];
    get_file("file", text, sizeof text);
    CHECK_STR(text, "Content");
}

static const char constant[] = "a constant of the program";
/* Shows the constant, and leaves something else behind. */
HELPER(constant) {
    int fd = open("/proc/self/mem", O_RDWR);
    /* The compiler would know what a constant is. */
    const char *volatile at = constant;
    printf("%s", at);
    fflush(stdout);
    return poke(fd, at, "spoiled") == 7 && memcmp(at, "spoiled", 7) == 0 ? 0 : 1;
}

TEST(mem_changes_no_other_start_of_the_program) {
    needs_user_mode();
    for (int i = 0; i < 4; i++) {
        int out[2];
        OK(pipe(out));
        pid_t pid = FORK();
        if (pid == 0) {
            dup2(out[1], 1);
            execl(hy_self, hy_self, "--helper", "constant", NULL);
            _exit(1);
        }
        EXITS(pid, 0);
        char got[64] = "";
        OK(read(out[0], got, sizeof got - 1));
        CHECK_STR(got, constant);
        close(out[0]);
        close(out[1]);
    }
}

TEST(mem_of_others_needs_the_right_and_ends_with_them) {
    static char secret[] = "secret";
    pid_t child = FORK();
    if (child == 0) {
        secret[0] = 'S';
        pause();
        _exit(0);
    }
    char path[64], copy[7] = "";
    snprintf(path, sizeof path, "/proc/%d/mem", child);
    int fd = OK(open(path, O_RDONLY));
    EVENTUALLY(pread(fd, copy, 6, (off_t)(uintptr_t)secret) == 6 && copy[0] == 'S');
    CHECK_STR(copy, "Secret");
    IN_CHILD({
        BECOME(NOBODY, NOBODY);
        ERR(open(path, O_RDONLY), EACCES);
        snprintf(path, sizeof path, "/proc/%d/pagemap", child);
        ERR(open(path, O_RDONLY), EACCES);
        snprintf(path, sizeof path, "/proc/%d/smaps", child);
        ERR(open(path, O_RDONLY), EACCES);
        snprintf(path, sizeof path, "/proc/%d/ns/pid", child);
        ERR(readlink(path, copy, sizeof copy), EACCES);
    });
    OK(kill(child, SIGKILL));
    KILLED(child, SIGKILL);
    CHECK_EQ(OK(pread(fd, copy, 6, (off_t)(uintptr_t)secret)), 0);
}

TEST(pagemap_tells_what_is_in_memory) {
    char *page = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(page != MAP_FAILED);
    page[0] = 1;
    uint64_t words[2];
    int fd = OK(open("/proc/self/pagemap", O_RDONLY));
    off_t at = (off_t)((uintptr_t)page / PAGE * 8);
    CHECK_EQ(OK(pread(fd, words, 16, at)), 16);
    CHECK(words[0] >> 63 && !(words[0] >> 61 & 1));
    /* Bit 55 is for kernels that track written pages (CONFIG_MEM_SOFT_DIRTY), Debian's among
     * them. */
    CHECK_EQ(words[1] & ~(UINT64_C(1) << 55), 0);
    ERR(pread(fd, words, 16, at + 1), EINVAL);
    ERR(pread(fd, words, 15, at), EINVAL);
    ERR(pread(fd, bad_address(), 8, at), EFAULT);
    /* The place of a page is not for everybody. */
    IN_CHILD({
        BECOME(NOBODY, NOBODY);
        OK(prctl(PR_SET_DUMPABLE, 1));
        int own = OK(open("/proc/self/pagemap", O_RDONLY));
        CHECK_EQ(OK(pread(own, words, 8, at)), 8);
        CHECK(words[0] >> 63);
        CHECK_EQ(words[0] & ((1ull << 55) - 1), 0);
    });
}

TEST(smaps_counts_what_was_touched) {
    enum { PAGES = 40, TOUCHED = 7 };
    char *area = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(area != MAP_FAILED);
    OK(mprotect(area, PAGE, PROT_READ)); /* so that it is a region of its own */
    OK(mprotect(area + (PAGES - 1) * PAGE, PAGE, PROT_READ));
    for (int i = 1; i <= TOUCHED; i++)
        area[i * PAGE] = 1;
    FILE *file = fopen("/proc/self/smaps", "r");
    CHECK(file);
    char line[512], wanted[40];
    snprintf(wanted, sizeof wanted, "%lx-", (unsigned long)(uintptr_t)(area + PAGE));
    bool inside = false;
    long size = -1, resident = -1, anonymous = -1, number;
    while (fgets(line, sizeof line, file)) {
        if (strncmp(line, wanted, strlen(wanted)) == 0)
            inside = true;
        else if (inside && sscanf(line, "Size: %ld", &number) == 1)
            size = number;
        else if (inside && sscanf(line, "Rss: %ld", &number) == 1)
            resident = number;
        else if (inside && sscanf(line, "Anonymous: %ld", &number) == 1)
            anonymous = number;
        else if (inside && strncmp(line, "VmFlags: rd wr", 14) == 0)
            break;
    }
    CHECK_EQ(size, (PAGES - 2) * 4);
    CHECK_EQ(resident, TOUCHED * 4);
    CHECK_EQ(anonymous, TOUCHED * 4);
}

TEST(ns_names_the_namespaces) {
    char own[64], others[64], path[64];
    static const char *const names[] = {"ipc", "mnt", "net", "pid", "user", "uts"};
    pid_t child = FORK();
    if (child == 0) {
        pause();
        _exit(0);
    }
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct stat first, second;
        snprintf(path, sizeof path, "/proc/self/ns/%s", names[i]);
        ssize_t length = OK(readlink(path, own, sizeof own - 1));
        own[length] = 0;
        unsigned long number;
        char format[32];
        snprintf(format, sizeof format, "%s:[%%lu]", names[i]);
        CHECK_EQ(sscanf(own, format, &number), 1);
        OK(stat(path, &first));
        CHECK_EQ(first.st_ino, number);
        CHECK(S_ISREG(first.st_mode));
        snprintf(path, sizeof path, "/proc/%d/ns/%s", child, names[i]);
        length = OK(readlink(path, others, sizeof others - 1));
        others[length] = 0;
        CHECK_STR(others, own);
        int fd = OK(open(path, O_RDONLY));
        OK(fstat(fd, &second));
        CHECK_EQ(second.st_ino, first.st_ino);
        CHECK_EQ(second.st_dev, first.st_dev);
        ERR(read(fd, own, 1), EINVAL);
        OK(close(fd));
    }
    ERR(open("/proc/self/ns/none", O_RDONLY), ENOENT);
    OK(kill(child, SIGKILL));
    KILLED(child, SIGKILL);
}

TEST(max_map_count_limits_mappings) {
    NEEDS_OWN_MACHINE();
    int fd = OK(open("/proc/sys/vm/max_map_count", O_RDWR));
    char before[32] = "";
    CHECK(OK(read(fd, before, sizeof before - 1)) > 1);
    ERR(pwrite(fd, "x\n", 2, 0), EINVAL);
    CHECK_EQ(OK(pwrite(fd, before, strlen(before), 0)), (ssize_t)strlen(before));
    CHECK_EQ(OK(pwrite(fd, "100\n", 4, 0)), 4);
    char *area = mmap(NULL, 400 * PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(area != MAP_FAILED);
    int made = 0;
    while (made < 200 && mprotect(area + 2 * made * PAGE, PAGE, PROT_NONE) == 0)
        made++;
    int error = errno;
    OK(pwrite(fd, before, strlen(before), 0));
    CHECK(made > 10 && made < 50);
    CHECK_EQ(error, ENOMEM);
}

TEST(tainted_is_a_number) {
    char text[32] = "";
    int fd = OK(open("/proc/sys/kernel/tainted", O_RDONLY));
    CHECK(OK(read(fd, text, sizeof text - 1)) > 1);
    CHECK(text[0] >= '0' && text[0] <= '9');
}

static long io_of(const char *path, const char *name) {
    char text[512] = "", key[40];
    int fd = OK(open(path, O_RDONLY));
    CHECK(OK(read(fd, text, sizeof text - 1)) > 0);
    OK(close(fd));
    snprintf(key, sizeof key, "%s: ", name);
    char *at = strstr(text, key);
    CHECK(at != NULL && (at == text || at[-1] == '\n'));
    return atol(at + strlen(key));
}

static long own_io(const char *name) { return io_of("/proc/self/io", name); }

static void *write_twice(void *fd) {
    OK(write(*(int *)fd, "12345", 5));
    OK(write(*(int *)fd, "12345", 5));
    return NULL;
}

TEST(io_counts_calls_and_bytes) {
    int zero = OK(open("/dev/zero", O_RDONLY)), null = OK(open("/dev/null", O_WRONLY));
    char bytes[1000];
    long written = own_io("wchar"), writes = own_io("syscw");
    OK(write(null, bytes, 100));
    struct iovec pieces[2] = {{bytes, 10}, {bytes + 10, 20}};
    OK(writev(null, pieces, 2));
    CHECK_EQ(own_io("wchar") - written, 130);
    CHECK_EQ(own_io("syscw") - writes, 2);
    /* The file is read in between, by one call of a few hundred bytes. */
    long before = own_io("rchar"), reads = own_io("syscr"), once = own_io("rchar") - before;
    before = own_io("rchar");
    reads = own_io("syscr");
    for (int round = 0; round < 10; round++)
        CHECK_EQ(OK(read(zero, bytes, sizeof bytes)), (ssize_t)sizeof bytes);
    CHECK_EQ(own_io("syscr") - reads, 11);
    long more = own_io("rchar") - before - 10 * (long)sizeof bytes;
    CHECK(more > 0 && more < 2 * once + 64);
    /* A call that fails counts as a call. */
    writes = own_io("syscw");
    int pair[2];
    OK(pipe2(pair, O_NONBLOCK));
    ERR(read(pair[0], bytes, 1), EAGAIN);
    OK(close(pair[0]));
    signal(SIGPIPE, SIG_IGN);
    ERR(write(pair[1], bytes, 1), EPIPE);
    CHECK_EQ(own_io("syscw") - writes, 1);
    CHECK_EQ(own_io("write_bytes"), 0);
    CHECK_EQ(own_io("cancelled_write_bytes"), 0);
}

TEST(io_has_threads_that_ended_and_children_that_were_waited_for) {
    int null = OK(open("/dev/null", O_WRONLY));
    long written = own_io("wchar"), of_thread = io_of("/proc/thread-self/io", "wchar");
    pthread_t thread;
    CHECK_EQ(pthread_create(&thread, NULL, write_twice, &null), 0);
    CHECK_EQ(pthread_join(thread, NULL), 0);
    EVENTUALLY(own_io("wchar") - written == 10);
    CHECK_EQ(io_of("/proc/thread-self/io", "wchar"), of_thread);
    pid_t child = FORK();
    if (child == 0) {
        OK(write(null, "1234567", 7));
        _exit(0);
    }
    siginfo_t info;
    OK(waitid(P_PID, (id_t)child, &info, WEXITED | WNOWAIT));
    CHECK_EQ(own_io("wchar") - written, 10);
    EXITS(child, 0);
    CHECK_EQ(own_io("wchar") - written, 17);
}

/* The parts of this program that the kernel reads to start it: the beginning, the program headers,
 * and of its interpreter the path, the header and the program headers. */
static void start_reads(long *calls, long *bytes) {
    Elf64_Ehdr file;
    Elf64_Phdr header;
    int self = OK(open(hy_self, O_RDONLY));
    CHECK_EQ(OK(pread(self, &file, sizeof file, 0)), sizeof file);
    *calls = 2;
    *bytes = 256 + (long)sizeof header * file.e_phnum;
    for (int i = 0; i < file.e_phnum; i++) {
        OK(pread(self, &header, sizeof header, (off_t)(file.e_phoff + (size_t)i * sizeof header)));
        if (header.p_type != PT_INTERP)
            continue;
        char path[PATH_MAX];
        OK(pread(self, path, header.p_filesz, (off_t)header.p_offset));
        int interpreter = OK(open(path, O_RDONLY));
        OK(pread(interpreter, &file, sizeof file, 0));
        *calls += 3;
        *bytes += (long)(header.p_filesz + sizeof file + sizeof header * file.e_phnum);
        break;
    }
    close(self);
}

/* Tells what its parent's file says, which was opened before it was this program. */
HELPER(say_io) {
    char text[512];
    ssize_t n = pread(atoi(argv[1]), text, sizeof text, 0);
    return n > 0 && write(atoi(argv[2]), text, (size_t)n) == n ? 0 : 1;
}

static void say_io_after(const char *path, bool is_static, long calls, long bytes) {
    int p[2];
    OK(pipe(p));
    pid_t child = FORK();
    if (child == 0) {
        char io[16], out[16];
        snprintf(io, sizeof io, "%d", OK(open("/proc/self/io", O_RDONLY)));
        snprintf(out, sizeof out, "%d", p[1]);
        if (path == hy_self)
            OK(execl(path, path, "--helper", "say_io", io, out, NULL));
        OK(execl(path, path, io, out, NULL));
    }
    char text[1024] = "";
    EXITS(child, 0); /* it can still be read */
    OK(read(p[0], text, sizeof text - 1));
    long rchar, wchar, syscr;
    CHECK_EQ(sscanf(text, "rchar: %ld wchar: %ld syscr: %ld", &rchar, &wchar, &syscr), 3);
    /* A dynamic program has read its libraries as well by then: their headers. */
    if (is_static) {
        CHECK_EQ(rchar, bytes);
        CHECK_EQ(syscr, calls);
    }
    CHECK(rchar >= bytes && syscr >= calls);
    CHECK_EQ(wchar, 0);
}

TEST(io_goes_on_behind_exec_and_counts_its_reads) {
    long calls, bytes;
    start_reads(&calls, &bytes);
    for (int round = 0; round < 3; round++)
        say_io_after(hy_self, calls == 2, calls, bytes);
    char script[PATH_MAX + 100];
    int length = snprintf(script, sizeof script, "#!%s --helper\n", hy_self);
    CHECK(length < 256);
    PUT("say_io", script); /* its path is the next argument: the helper's name */
    OK(chmod("say_io", 0755));
    say_io_after("say_io", calls == 2, calls + 1, bytes + length);
}

TEST(io_of_another_user_is_closed) {
    struct stat about;
    OK(stat("/proc/self/io", &about));
    CHECK_EQ(about.st_mode & 0777, 0400);
    if (geteuid() != 0)
        SKIP("needs root");
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/io", getppid());
    IN_CHILD({
        OK(setresuid(65534, 65534, 65534));
        ERR(open(path, O_RDONLY), EACCES);
    });
}

/* ---- timerslack_ns ---------------------------------------------------------------------------- */

static ssize_t put_text(const char *path, const char *content) {
    int fd = OK(open(path, O_WRONLY));
    ssize_t n = write(fd, content, strlen(content));
    int error = errno;
    close(fd);
    errno = error;
    return n;
}
static void *other_thread(void *unused UNUSED) {
    /* It is about the first thread. */
    CHECK_EQ(OK(put_text("/proc/self/timerslack_ns", "7000")), 4);
    CHECK_EQ(prctl(PR_GET_TIMERSLACK), 50000);
    BECOME(NOBODY, NOBODY);
    ERR(put_text("/proc/self/timerslack_ns", "8000"), EPERM);
    return NULL;
}

TEST(timerslack_ns_is_read_and_written) {
    const char *path = "/proc/self/timerslack_ns";
    OK(prctl(PR_SET_TIMERSLACK, 50000));
    IN_CHILD({
        CHECK_STR(slurp(path), "50000\n");
        CHECK_EQ(OK(put_text(path, "123456\n")), 7);
        CHECK_STR(slurp(path), "123456\n");
        CHECK_EQ(prctl(PR_GET_TIMERSLACK), 123456);
        OK(prctl(PR_SET_TIMERSLACK, 99));
        CHECK_STR(slurp(path), "99\n");
        CHECK_EQ(OK(put_text(path, "0")), 1);
        CHECK_STR(slurp(path), "50000\n");
        CHECK_EQ(OK(put_text(path, "18446744073709551615")), 20);
        CHECK_STR(slurp(path), "18446744073709551615\n");
        ERR(put_text(path, "18446744073709551616"), ERANGE);
        ERR(put_text(path, "x"), EINVAL);
        ERR(put_text(path, "0x10"), EINVAL);
        ERR(put_text(path, "-1"), EINVAL);
        ERR(put_text(path, "1 2"), EINVAL);
        ERR(put_text(path, "\n"), EINVAL);
        struct stat st;
        OK(stat(path, &st));
        CHECK_EQ(st.st_mode, S_IFREG | 0666);
    });
    ERR(open("/proc/self/task/1/timerslack_ns", O_RDONLY), ENOENT);
}

TEST(timerslack_ns_of_others_needs_privilege) {
    if (geteuid() != 0) SKIP("needs root");
    OK(prctl(PR_SET_TIMERSLACK, 50000));
    pid_t child = FORK();
    if (child == 0) {
        BECOME(NOBODY, NOBODY);
        for (;;)
            pause();
    }
    char path[64], got[32];
    snprintf(path, sizeof path, "/proc/%d/timerslack_ns", child);
    CHECK_STR(slurp(path), "50000\n");
    CHECK_EQ(OK(put_text(path, "4000")), 4);
    CHECK_STR(slurp(path), "4000\n");
    int fd = OK(open(path, O_RDWR));
    IN_CHILD({
        BECOME(NOBODY, NOBODY);
        ERR(put_text(path, "1"), EPERM);
        int own = OK(open(path, O_RDONLY));
        ERR(read(own, got, sizeof got), EPERM);
        CHECK_EQ(OK(put_text("/proc/self/timerslack_ns", "1")), 1);
    });
    OK(kill(child, SIGKILL));
    KILLED(child, SIGKILL);
    ERR(read(fd, got, sizeof got), ESRCH);
    ERR(write(fd, "1", 1), ESRCH);
    IN_CHILD({
        pthread_t thread;
        ZERO(pthread_create(&thread, NULL, other_thread, NULL));
        ZERO(pthread_join(thread, NULL));
        CHECK_EQ(prctl(PR_GET_TIMERSLACK), 7000);
    });
}

/* ---- options of a mount ---------------------------------------------------------------------- */

/* A procfs at "p", in mounts of the case's own. */
static void mount_with(const char *options) {
    if (geteuid() != 0)
        SKIP("not root");
    OK(unshare(CLONE_NEWNS));
    OK(mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL));
    OK(mkdir("p", 0755));
    OK(mount("proc", "p", "proc", 0, options));
}
static const char *of(pid_t pid, const char *file) {
    static char path[64];
    snprintf(path, sizeof path, "p/%d%s", pid, file);
    return path;
}
/* Whether a folder lists a name, or any that is no number. */
static bool lists(const char *folder, const char *name) {
    DIR *dir = opendir(folder);
    CHECK(dir != NULL);
    bool found = false;
    for (struct dirent *entry; (entry = readdir(dir));)
        found |= name ? strcmp(entry->d_name, name) == 0
                      : strchr(".0123456789", entry->d_name[0]) == NULL &&
                            strcmp(entry->d_name, "self") != 0 &&
                            strcmp(entry->d_name, "thread-self") != 0;
    closedir(dir);
    return found;
}
static bool lists_process(pid_t pid) {
    char name[16];
    snprintf(name, sizeof name, "%d", pid);
    return lists("p", name);
}

TEST(processes_of_others_are_closed) {
    mount_with("hidepid=1");
    pid_t other = getpid();
    IN_CHILD({
        BECOME(NOBODY, NOBODY);
        struct stat st;
        OK(stat(of(other, ""), &st));
        CHECK(lists_process(other));
        ERR(open(of(other, ""), O_RDONLY | O_DIRECTORY), EPERM);
        ERR(stat(of(other, "/stat"), &st), EPERM);
        ERR(open(of(other, "/cmdline"), O_RDONLY), EPERM);
        OK(open("p/self/stat", O_RDONLY));
        OK(open(of(getpid(), "/status"), O_RDONLY));
        OK(open("p/meminfo", O_RDONLY));
    });
    IN_CHILD(OK(open(of(other, "/stat"), O_RDONLY))); /* the superuser */
}

TEST(processes_of_others_are_invisible) {
    mount_with("hidepid=invisible,gid=77");
    pid_t other = getpid();
    IN_CHILD({
        BECOME(NOBODY, NOBODY);
        struct stat st;
        ERR(stat(of(other, ""), &st), ENOENT);
        ERR(open(of(other, "/stat"), O_RDONLY), ENOENT);
        CHECK(!lists_process(other) && lists_process(getpid()));
        OK(prctl(PR_SET_DUMPABLE, 1, 0, 0, 0));
        pid_t child = FORK();
        if (child == 0)
            pause();
        OK(stat(of(child, ""), &st));
        end_by_kill(child);
    });
    IN_CHILD({ /* in the group that sees all */
        OK(syscall(SYS_setgroups, 1, (gid_t[]){77}));
        OK(syscall(SYS_setresgid, NOBODY, NOBODY, NOBODY));
        OK(syscall(SYS_setresuid, NOBODY, NOBODY, NOBODY));
        OK(open(of(other, "/stat"), O_RDONLY));
        CHECK(lists_process(other));
    });
    CHECK(strstr(slurp("/proc/self/mounts"), ",gid=77,hidepid=invisible ") != NULL);
    /* The options are changed for all who look. */
    OK(mount("none", "p", NULL, MS_REMOUNT, "hidepid=4"));
    IN_CHILD({
        OK(syscall(SYS_setgroups, 1, (gid_t[]){77}));
        OK(syscall(SYS_setresgid, NOBODY, NOBODY, NOBODY));
        OK(syscall(SYS_setresuid, NOBODY, NOBODY, NOBODY));
        ERR(open(of(other, "/stat"), O_RDONLY), ENOENT);
        CHECK(!lists_process(other));
    });
    OK(mount("none", "p", NULL, MS_REMOUNT, "hidepid=off"));
    IN_CHILD({
        BECOME(NOBODY, NOBODY);
        OK(open(of(other, "/stat"), O_RDONLY));
    });
}

TEST(a_procfs_of_processes_alone) {
    mount_with("subset=pid");
    ERR(open("p/meminfo", O_RDONLY), ENOENT);
    ERR(open("p/sys", O_RDONLY), ENOENT);
    OK(open("p/self/stat", O_RDONLY));
    OK(open("p/thread-self/stat", O_RDONLY));
    OK(open(of(getpid(), "/stat"), O_RDONLY));
    CHECK(lists_process(getpid()) && lists("p", "self") && !lists("p", NULL));
    CHECK(lists("/proc", NULL));
}

TEST(options_of_procfs_are_checked) {
    mount_with(NULL);
    static const char *const wrong[] = {"hidepid=3", "hidepid=5", "hidepid=-1", "hidepid=some",
                                        "gid=x",     "subset=all", "size=4"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        ERR(mount("proc", "p", "proc", 0, wrong[i]), EINVAL);
    ERR(mount("none", "p", NULL, MS_REMOUNT, "hidepid=3"), EINVAL);
}
