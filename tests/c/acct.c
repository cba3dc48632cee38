/* Process accounting: acct(2) and the records of acct(5). */
#define AREA "acct"
#include "harness.h"

/* struct acct_v3; linux/acct.h and sys/acct.h exclude each other, and musl has neither. */
struct record {
    uint8_t flag, version;
    uint16_t tty;
    uint32_t exitcode, uid, gid, pid, ppid, btime;
    float etime;
    uint16_t utime, stime, mem, io, rw, minflt, majflt, swaps;
    char comm[16];
};

enum { FORKED = 1, CORE = 8, SIGNALLED = 16 };

static long acct_(const char *path) { return syscall(SYS_acct, path); }

static unsigned long expanded(uint16_t word) {
    return (unsigned long)(word & 0x1fff) << 3 * (word >> 13);
}

static void off(void) { acct_(NULL); }

/* Begins accounting in a new file. */
static void begin(const char *name) {
    NEEDS_OWN_MACHINE();
    PUT(name, "");
    if (acct_(name) == -1 && errno == ENOSYS) SKIP("no accounting here");
    OK(acct_(name));
    hy_at_end = off;
}

static struct record find(const char *name, pid_t pid) {
    static struct record records[4096];
    int fd = OK(open(name, O_RDONLY | O_CLOEXEC));
    ssize_t n = OK(read(fd, records, sizeof records));
    close(fd);
    CHECK_EQ(sizeof(struct record), 64);
    CHECK_EQ(n % 64, 0);
    for (ssize_t i = 0; i < n / 64; i++)
        if (records[i].pid == (uint32_t)pid) return records[i];
    struct record none = {0};
    return none;
}

/* How many records are of children of this process. */
static int children_in(const char *name) {
    struct record r;
    int fd = OK(open(name, O_RDONLY | O_CLOEXEC)), count = 0;
    while (OK(read(fd, &r, sizeof r)) == sizeof r) count += r.ppid == (uint32_t)getpid();
    close(fd);
    return count;
}

HELPER(idle) { return 3; }

TEST(a_record_tells_of_a_process) {
    begin("records");
    time_t before = time(NULL);
    pid_t pid = FORK();
    if (pid == 0) {
        /* Some processor time, and memory. */
        volatile char *large = mmap(NULL, 64 << 20, PROT_READ | PROT_WRITE,
                                    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        for (int i = 0; i < 64; i++) large[i * PAGE] = 1;
        int64_t start = now_ns(CLOCK_PROCESS_CPUTIME_ID);
        while (now_ns(CLOCK_PROCESS_CPUTIME_ID) - start < 300 * MS) {}
        _exit(7);
    }
    EXITS(pid, 7);
    struct record r = find("records", pid);
    CHECK_EQ(r.pid, pid);
    CHECK_EQ(r.version, 3);
    CHECK_EQ(r.flag & ~2, FORKED); /* 2: used the superuser's rights */
    CHECK_EQ(r.exitcode, 7 << 8);
    CHECK_EQ(r.uid, getuid());
    CHECK_EQ(r.gid, getgid());
    CHECK_EQ(r.ppid, getpid());
    CHECK(r.btime + 2 >= (uint32_t)before && r.btime <= (uint32_t)time(NULL) + 1);
    CHECK(r.etime >= 29.0f && r.etime < 30000.0f); /* hundredths of a second */
    /* Linux counts ticks, and misses some on a busy host. */
    CHECK(expanded(r.utime) + expanded(r.stime) >= 5);
    CHECK(expanded(r.mem) >= 64 << 10 && expanded(r.mem) < 1 << 20);
    CHECK(expanded(r.minflt) >= 64);
    char name[16] = "";
    int fd = OK(open("/proc/self/comm", O_RDONLY | O_CLOEXEC));
    ssize_t n = OK(read(fd, name, 16));
    name[n - 1] = 0;
    CHECK_STR(r.comm, name);
    OK(acct_(NULL));
}

TEST(programs_signals_and_users) {
    begin("records");
    pid_t pid = FORK();
    if (pid == 0) {
        execl(hy_self, hy_self, "--helper", "idle", NULL);
        _exit(99);
    }
    EXITS(pid, 3);
    struct record r = find("records", pid);
    CHECK_EQ(r.flag & ~2, 0);
    CHECK_EQ(r.exitcode, 3 << 8);

    pid = FORK();
    if (pid == 0) {
        BECOME(NOBODY, NOBODY);
        raise(SIGKILL);
    }
    KILLED(pid, SIGKILL);
    r = find("records", pid);
    CHECK_EQ(r.flag & ~2, FORKED | SIGNALLED);
    CHECK_EQ(r.exitcode, SIGKILL);
    CHECK_EQ(r.uid, NOBODY);
    CHECK_EQ(r.gid, NOBODY);
    OK(acct_(NULL));
}

static void *thread_that_ends(void *unused) {
    (void)unused;
    int64_t start = now_ns(CLOCK_THREAD_CPUTIME_ID);
    while (now_ns(CLOCK_THREAD_CPUTIME_ID) - start < 200 * MS) {}
    return NULL;
}

TEST(threads_have_one_record) {
    begin("records");
    pid_t pid = FORK();
    if (pid == 0) {
        pthread_t threads[3];
        for (int i = 0; i < 3; i++) ZERO(pthread_create(&threads[i], NULL, thread_that_ends, NULL));
        for (int i = 0; i < 3; i++) ZERO(pthread_join(threads[i], NULL));
        _exit(0);
    }
    EXITS(pid, 0);
    struct record r = find("records", pid);
    CHECK_EQ(r.pid, pid);
    CHECK(expanded(r.utime) + expanded(r.stime) >= 20);
    CHECK_EQ(children_in("records"), 1);
    OK(acct_(NULL));
}

TEST(the_record_is_there_when_the_parent_has_waited) {
    begin("records");
    for (int i = 1; i <= 300; i++) {
        pid_t pid = i % 2 ? FORK() : vfork();
        if (pid == 0) _exit(i & 0x7f);
        EXITS(pid, i & 0x7f);
        CHECK_EQ(find("records", pid).exitcode, (i & 0x7f) << 8);
    }
    /* Many at once: each has a record, and all are whole. */
    pid_t pids[40];
    for (int i = 0; i < 40; i++)
        if ((pids[i] = FORK()) == 0) _exit(i);
    for (int i = 0; i < 40; i++) EXITS(pids[i], i);
    for (int i = 0; i < 40; i++) CHECK_EQ(find("records", pids[i]).exitcode, i << 8);
    OK(acct_(NULL));
}

TEST(accounting_moves_to_another_file_and_ends) {
    begin("records");
    PUT("others", "");
    OK(acct_("others"));
    pid_t pid = FORK();
    if (pid == 0) _exit(0);
    EXITS(pid, 0);
    CHECK_EQ(find("records", pid).pid, 0);
    CHECK_EQ(find("others", pid).pid, pid);
    OK(acct_(NULL));
    OK(acct_(NULL));
    pid = FORK();
    if (pid == 0) _exit(0);
    EXITS(pid, 0);
    CHECK_EQ(find("others", pid).pid, 0);
}

TEST(a_limit_of_the_file_size_is_none_for_records) {
    begin("records");
    pid_t pid = FORK();
    if (pid == 0) {
        struct rlimit none = {0, 0};
        OK(setrlimit(RLIMIT_FSIZE, &none));
        _exit(0);
    }
    EXITS(pid, 0);
    CHECK_EQ(find("records", pid).pid, pid);
    OK(acct_(NULL));
}

TEST(a_full_file_system_gets_no_records) {
    begin("records");
    OK(mkdir("full", 0755));
    if (mount("none", "full", "tmpfs", 0, "size=1m") == -1) SKIP("no tmpfs here");
    PUT("full/records", "");
    OK(acct_("full/records"));
    pid_t pid = FORK();
    if (pid == 0) _exit(0);
    EXITS(pid, 0);
    CHECK_EQ(find("full/records", pid).pid, pid);
    int fd = OK(open("full/filler", O_WRONLY | O_CREAT | O_CLOEXEC, 0644));
    static char block[4096];
    while (write(fd, block, sizeof block) > 0) {}
    close(fd);
    OK(acct_("full/records")); /* looks at once */
    pid = FORK();
    if (pid == 0) _exit(0);
    EXITS(pid, 0);
    CHECK_EQ(find("full/records", pid).pid, 0);
    OK(acct_(NULL));
    OK(umount("full"));
}

TEST(errors) {
    NEEDS_OWN_MACHINE();
    if (acct_(NULL) == -1 && errno == ENOSYS) SKIP("no accounting here");
    ERR(acct_(BAD), EFAULT);
    ERR(acct_("nothing"), ENOENT);
    ERR(acct_("/proc/self/exe/x"), ENOTDIR);
    ERR(acct_("/dev/null"), EACCES);
    ERR(acct_("."), EISDIR);
    OK(symlink("round", "round"));
    ERR(acct_("round"), ELOOP);
    PUT_MODE("readable", "", 0444);
    IN_CHILD({
        BECOME(NOBODY, NOBODY);
        ERR(acct_(NULL), EPERM);
        ERR(acct_("readable"), EPERM);
    });
}
