/* prctl, arch_prctl, scheduling calls, uname, sysinfo, getrandom and other small calls. */
#define AREA "system"
#include "harness.h"
#include <sys/auxv.h>
#include <sys/sysinfo.h>
#include <sys/utsname.h>

static long prctl_(int op, unsigned long a) { return syscall(SYS_prctl, op, a, 0, 0, 0); }

TEST(uname_fields) {
    struct utsname u;
    OK(uname(&u));
    CHECK_STR(u.sysname, "Linux"); /* programs ask for it: Hayate answers as they expect */
    CHECK_STR(u.machine, "x86_64");
    int major, minor;
    CHECK_EQ(sscanf(u.release, "%d.%d", &major, &minor), 2);
    CHECK(major >= 5);
    CHECK(u.nodename[0] && u.version[0]);
    ERR(syscall(SYS_uname, BAD), EFAULT);
}

TEST(hostname_is_set_and_read_back) {
    struct utsname old, now;
    OK(uname(&old));
    ERR(sethostname(BAD, 5), EFAULT);
    ERR(syscall(SYS_sethostname, "x", -1), EINVAL);
    ERR(syscall(SYS_sethostname, "x", 65), EINVAL);
    if (syscall(SYS_unshare, 0x04000000 /* CLONE_NEWUTS */) == -1)
        SKIP("no UTS namespace to try it in");
    OK(sethostname("hayate-test", 11));
    OK(uname(&now));
    CHECK_STR(now.nodename, "hayate-test");
}

TEST(sysinfo_is_plausible) {
    struct sysinfo info;
    OK(sysinfo(&info));
    CHECK(info.uptime > 0);
    CHECK(info.mem_unit > 0);
    CHECK((uint64_t)info.totalram * info.mem_unit > 16u << 20);
    CHECK(info.freeram <= info.totalram);
    CHECK(info.procs >= 1);
    ERR(syscall(SYS_sysinfo, BAD), EFAULT);
}

TEST(getrandom_fills_and_differs) {
    unsigned char a[64] = {0}, b[64] = {0};
    CHECK_EQ(OK(syscall(SYS_getrandom, a, 64, 0)), 64);
    CHECK_EQ(OK(syscall(SYS_getrandom, b, 64, 1 /* GRND_NONBLOCK */)), 64);
    CHECK(memcmp(a, b, 64) != 0);
    int ones = 0;
    for (int i = 0; i < 64; i++)
        ones += __builtin_popcount(a[i]);
    CHECK(ones > 180 && ones < 332); /* 512 fair coins: over six standard deviations off */
    static unsigned char big[100000];
    CHECK_EQ(OK(syscall(SYS_getrandom, big, sizeof big, 0)), sizeof big);
}

TEST(getrandom_errors) {
    unsigned char a[8];
    ERR(syscall(SYS_getrandom, a, 8, 0x100), EINVAL);
    ERR(syscall(SYS_getrandom, a, 8, 2 | 4), EINVAL); /* GRND_RANDOM with GRND_INSECURE */
    ERR(syscall(SYS_getrandom, BAD, 8, 0), EFAULT);
    CHECK_EQ(OK(syscall(SYS_getrandom, a, 0, 0)), 0);
}

TEST(children_draw_different_random_numbers) {
    uint64_t *drawn = SHARED(PAGE);
    for (int i = 0; i < 4; i++)
        IN_CHILD(CHECK_EQ(OK(syscall(SYS_getrandom, &drawn[i], 8, 0)), 8));
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < i; j++)
            CHECK(drawn[i] != drawn[j]);
}

TEST(prctl_name) {
    char name[16];
    OK(prctl_(15 /* PR_SET_NAME */, (unsigned long)"a-long-name-cut-at-15"));
    OK(prctl_(16 /* PR_GET_NAME */, (unsigned long)name));
    CHECK_STR(name, "a-long-name-cut");
    char comm[32];
    if (get_file("/proc/self/comm", comm, sizeof comm) > 0)
        CHECK_STR(comm, "a-long-name-cut\n");
    IN_CHILD({
        OK(prctl_(16, (unsigned long)name));
        CHECK_STR(name, "a-long-name-cut");
    });
    ERR(prctl_(15, (unsigned long)BAD), EFAULT);
    ERR(prctl_(16, (unsigned long)BAD), EFAULT);
}

TEST(prctl_pdeathsig_and_dumpable) {
    int sig = -1;
    OK(prctl_(1, SIGUSR1));
    OK(prctl_(2 /* PR_GET_PDEATHSIG */, (unsigned long)&sig));
    CHECK_EQ(sig, SIGUSR1);
    ERR(prctl_(1, 65), EINVAL);
    IN_CHILD({
        OK(prctl_(2, (unsigned long)&sig));
        CHECK_EQ(sig, 0); /* not inherited */
    });
    CHECK_EQ(OK(prctl_(3 /* PR_GET_DUMPABLE */, 0)), 1);
    OK(prctl_(4, 0));
    CHECK_EQ(OK(prctl_(3, 0)), 0);
    ERR(prctl_(4, 2), EINVAL);
}

TEST(prctl_subreaper_and_no_new_privs) {
    int on = -1;
    OK(prctl_(36, 1));
    OK(prctl_(37, (unsigned long)&on));
    CHECK_EQ(on, 1);
    IN_CHILD({
        OK(prctl_(37, (unsigned long)&on));
        CHECK_EQ(on, 0);
    });
    CHECK_EQ(OK(prctl_(39, 0)), 0);
    ERR(prctl_(38, 0), EINVAL); /* it can only be set */
    ERR(syscall(SYS_prctl, 38, 1, 1, 0, 0), EINVAL);
    OK(prctl_(38, 1));
    CHECK_EQ(OK(prctl_(39, 0)), 1);
    IN_CHILD(CHECK_EQ(OK(prctl_(39, 0)), 1));
}

/* ---- the time stamp counter, forbidden (PR_SET_TSC) ------------------------------------------- */

enum { SET_TSC = 26, GET_TSC = 25, TSC_ENABLE = 1, TSC_SIGSEGV = 2 };
static int tsc_setting(void) {
    int setting = -1;
    OK(syscall(SYS_prctl, GET_TSC, &setting));
    return setting;
}
static void read_tsc(void) { __asm__ volatile("rdtsc" ::: "eax", "edx"); }
static void let_read_tsc(int setting) { OK(syscall(SYS_prctl, SET_TSC, setting)); }

/* Executes a program that reads the counter and exits with 42; no C library does so before it. */
static pid_t run_reader(void) {
    /* rdtsc; mov $60,%eax; mov $42,%edi; syscall in a minimal ELF64 executable (elf(5)) */
    static const unsigned char image[0x90] = {
        0x7f, 'E', 'L', 'F', 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 62, 0, 1, 0, 0, 0,
        0x78, 0, 0x40, 0, 0, 0, 0, 0, 64, 0, 0, 0, 0, 0, 0, 0, [52] = 64, 0, 56, 0, 1, 0,
        [64] = 1, 0, 0, 0, 5, 0, 0, 0, [80] = 0, 0, 0x40, [88] = 0, 0, 0x40, [96] = 0x90,
        [104] = 0x90, [112] = 0, 0x10, [120] = 0x0f, 0x31, 0xb8, 60, 0, 0, 0, 0xbf, 42, 0, 0, 0,
        0x0f, 0x05};
    hy_put(__FILE__, __LINE__, "reader", image, sizeof image, 0755);
    pid_t pid = FORK();
    if (pid == 0) {
        char *argv[] = {(char *)"reader", NULL}, *envp[] = {NULL};
        execve("reader", argv, envp);
        _exit(1);
    }
    return pid;
}

TEST(rdtsc_is_forbidden_and_that_is_inherited) {
    needs_user_mode();
    CHECK_EQ(tsc_setting(), TSC_ENABLE);
    CHECK_EQ(FAULT(read_tsc()), 0);
    let_read_tsc(TSC_SIGSEGV);
    CHECK_EQ(tsc_setting(), TSC_SIGSEGV);
    FAULTS(read_tsc(), SIGSEGV, 0x80, NULL);
    IN_CHILD({
        CHECK_EQ(tsc_setting(), TSC_SIGSEGV);
        FAULTS(read_tsc(), SIGSEGV, 0x80, NULL);
        let_read_tsc(TSC_ENABLE);
        CHECK_EQ(FAULT(read_tsc()), 0);
    });
    pid_t pid = run_reader();
    KILLED(pid, SIGSEGV);
    FAULTS(read_tsc(), SIGSEGV, 0x80, NULL); /* still */
    let_read_tsc(TSC_ENABLE);
    CHECK_EQ(FAULT(read_tsc()), 0);
    pid = run_reader();
    EXITS(pid, 42);
}

TEST(rdtsc_is_forbidden_to_one_thread_alone) {
    needs_user_mode();
    pid_t pid = FORK();
    let_read_tsc(pid == 0 ? TSC_SIGSEGV : TSC_ENABLE);
    for (int i = 0; i < 300; i++) {
        int sig = FAULT(read_tsc());
        if (sig != (pid == 0 ? SIGSEGV : 0)) FAIL("round %d: signal %d", i, sig);
        sched_yield(); /* to the other, on one processor */
    }
    if (pid == 0) _exit(0);
    EXITS(pid, 0);
}

TEST(prctl_tsc_errors) {
    ERR(syscall(SYS_prctl, SET_TSC, 0), EINVAL);
    ERR(syscall(SYS_prctl, SET_TSC, 3), EINVAL);
    ERR(syscall(SYS_prctl, GET_TSC, BAD), EFAULT);
}

static long slack(void) { return OK(prctl_(30 /* PR_GET_TIMERSLACK */, 0)); }
static void set_slack(long ns) { OK(prctl_(29 /* PR_SET_TIMERSLACK */, ns)); }

TEST(timer_slack_is_the_default_of_children) {
    long first = slack();
    set_slack(12345);
    CHECK_EQ(slack(), 12345);
    IN_CHILD({
        CHECK_EQ(slack(), 12345);
        set_slack(7);
        IN_CHILD(CHECK_EQ(slack(), 7); set_slack(99); set_slack(0); CHECK_EQ(slack(), 7));
        set_slack(0); /* to what it started with, not what init has */
        CHECK_EQ(slack(), 12345);
    });
    set_slack(0);
    CHECK_EQ(slack(), first);
}

TEST(prctl_unknown_is_einval) { ERR(prctl_(0x7fff0000, 0), EINVAL); }

TEST(arch_prctl_fs_and_gs) {
    unsigned long fs = 0, gs = 1, word = 0x1122334455667788, read_back;
    OK(syscall(SYS_arch_prctl, 0x1003 /* ARCH_GET_FS */, &fs));
    CHECK(fs != 0); /* the TLS of this thread */
    OK(syscall(SYS_arch_prctl, 0x1001 /* ARCH_SET_GS */, &word));
    __asm__ volatile("mov %%gs:0, %0" : "=r"(read_back));
    CHECK_EQ(read_back, word);
    OK(syscall(SYS_arch_prctl, 0x1004 /* ARCH_GET_GS */, &gs));
    CHECK_EQ(gs, (unsigned long)&word);
    sched_yield();
    IN_CHILD({
        __asm__ volatile("mov %%gs:0, %0" : "=r"(read_back));
        CHECK_EQ(read_back, word); /* fork copies the base */
    });
    msleep(5);
    __asm__ volatile("mov %%gs:0, %0" : "=r"(read_back));
    CHECK_EQ(read_back, word);
}

TEST(arch_prctl_errors) {
    ERR(syscall(SYS_arch_prctl, 0x1001, 0xffff800000000000UL), EPERM);
    ERR(syscall(SYS_arch_prctl, 0x1002, 0x8000000000000000UL), EPERM);
    ERR(syscall(SYS_arch_prctl, 0x1003, BAD), EFAULT);
    ERR(syscall(SYS_arch_prctl, 0x9999, 0), EINVAL);
}

TEST(affinity_is_kept_and_inherited) {
    cpu_set_t set, one;
    OK(sched_getaffinity(0, sizeof set, &set));
    int cpus = CPU_COUNT(&set), first = 0;
    CHECK(cpus >= 1);
    while (!CPU_ISSET(first, &set))
        first++;
    CPU_ZERO(&one);
    CPU_SET(first, &one);
    OK(sched_setaffinity(0, sizeof one, &one));
    IN_CHILD({
        cpu_set_t got;
        OK(sched_getaffinity(0, sizeof got, &got));
        CHECK_EQ(CPU_COUNT(&got), 1);
        CHECK(CPU_ISSET(first, &got));
        CHECK_EQ(sched_getcpu(), first);
    });
}

TEST(moving_over_all_cpus) {
    cpu_set_t all, one;
    OK(sched_getaffinity(0, sizeof all, &all));
    for (int round = 0; round < 20; round++)
        for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
            if (CPU_ISSET(cpu, &all)) {
                CPU_ZERO(&one);
                CPU_SET(cpu, &one);
                OK(sched_setaffinity(0, sizeof one, &one));
                unsigned now = 9999, node;
                OK(syscall(SYS_getcpu, &now, &node, NULL));
                CHECK_EQ(now, cpu);
            }
}

TEST(affinity_errors) {
    unsigned long mask[16] = {0};
    ERR(syscall(SYS_sched_setaffinity, 0, sizeof mask, mask), EINVAL); /* no CPU left */
    ERR(syscall(SYS_sched_setaffinity, 0, 8, BAD), EFAULT);
    ERR(syscall(SYS_sched_setaffinity, 0x3ffffff0, sizeof mask, mask), ESRCH);
    ERR(syscall(SYS_sched_getaffinity, 0, 4, mask), EINVAL); /* no multiple of a word */
    ERR(syscall(SYS_sched_getaffinity, 0x3ffffff0, sizeof mask, mask), ESRCH);
    ERR(syscall(SYS_sched_getaffinity, 0, sizeof mask, BAD), EFAULT);
}

TEST(scheduling_policy_calls) {
    struct sched_param param = {0};
    CHECK_EQ(OK(syscall(SYS_sched_getscheduler, 0)), 0);
    CHECK_EQ(OK(syscall(SYS_sched_get_priority_max, 1 /* SCHED_FIFO */)), 99);
    CHECK_EQ(OK(syscall(SYS_sched_get_priority_min, 1)), 1);
    CHECK_EQ(OK(syscall(SYS_sched_get_priority_max, 0)), 0);
    ERR(syscall(SYS_sched_get_priority_max, 77), EINVAL);
    ERR(syscall(SYS_sched_getscheduler, 0x3ffffff0), ESRCH);
    ERR(syscall(SYS_sched_getscheduler, -1), EINVAL);
    OK(syscall(SYS_sched_setscheduler, 0, 3 /* SCHED_BATCH */, &param));
    CHECK_EQ(OK(syscall(SYS_sched_getscheduler, 0)), 3);
    param.sched_priority = 5;
    ERR(syscall(SYS_sched_setscheduler, 0, 0, &param), EINVAL);
    ERR(syscall(SYS_sched_setscheduler, 0, 99, &param), EINVAL);
    OK(syscall(SYS_sched_getparam, 0, &param));
    CHECK_EQ(param.sched_priority, 0);
    ERR(syscall(SYS_sched_getparam, 0, BAD), EFAULT);
    ERR(syscall(SYS_sched_getparam, 0, NULL), EINVAL);
    struct timespec t = {-1, -1};
    OK(syscall(SYS_sched_rr_get_interval, 0, &t));
    CHECK(t.tv_sec >= 0 && t.tv_nsec >= 0);
    OK(sched_yield());
}

TEST(a_real_time_loop_leaves_a_share) {
    /* sched(7): even a loop under SCHED_FIFO does not keep its CPU from ordinary programs for
     * good. */
    cpu_set_t all, one;
    OK(sched_getaffinity(0, sizeof all, &all));
    CPU_ZERO(&one);
    for (int cpu = 0; cpu < CPU_SETSIZE && !CPU_COUNT(&one); cpu++)
        if (CPU_ISSET(cpu, &all))
            CPU_SET(cpu, &one);
    OK(sched_setaffinity(0, sizeof one, &one));
    volatile long *turns = SHARED(4096);
    pid_t pid = OK(fork());
    if (pid == 0) {
        struct rlimit limit = {10, 10};
        setrlimit(RLIMIT_CPU, &limit); /* should the share not come */
        struct sched_param param = {.sched_priority = 50};
        if (syscall(SYS_sched_setscheduler, 0, 1 /* SCHED_FIFO: musl has no wrapper */, &param) != 0)
            _exit(77);
        for (;;)
            turns[0]++;
    }
    int status = 0;
    while (turns[0] == 0 && OK(waitpid(pid, &status, WNOHANG)) == 0)
        sched_yield();
    if (turns[0] == 0 && WIFEXITED(status) && WEXITSTATUS(status) == 77)
        SKIP("real-time policies are not allowed here");
    for (int i = 0; i < 3; i++) {
        long before = turns[0];
        while (turns[0] == before)
            sched_yield(); /* both get on */
    }
    OK(kill(pid, SIGKILL));
    CHECK_EQ(OK(waitpid(pid, &status, 0)), pid);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

TEST(busy_loops_share_the_cpu) {
    /* Preemption: three spinners on one CPU all get on. */
    cpu_set_t all, one;
    OK(sched_getaffinity(0, sizeof all, &all));
    CPU_ZERO(&one);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &all)) {
            CPU_SET(cpu, &one);
            break;
        }
    volatile long *counts = SHARED(PAGE);
    pid_t pids[3];
    for (int i = 0; i < 3; i++)
        if ((pids[i] = FORK()) == 0) {
            OK(sched_setaffinity(0, sizeof one, &one));
            for (;;)
                counts[i * 8]++;
        }
    for (int i = 0; i < 3; i++) {
        EVENTUALLY(counts[i * 8] > 0);
        long before = counts[i * 8];
        EVENTUALLY(counts[i * 8] > before + 1000);
    }
    for (int i = 0; i < 3; i++) {
        OK(kill(pids[i], SIGKILL));
        KILLED(pids[i], SIGKILL);
    }
}

TEST(unknown_system_calls_are_enosys) {
    ERR(syscall(999), ENOSYS);
    ERR(syscall(4000), ENOSYS);
    ERR(syscall(-1), ENOSYS);
    ERR(syscall(0x7fffffff), ENOSYS);
    ERR(syscall(180 /* nfsservctl */), ENOSYS);
    ERR(syscall(183 /* afs_syscall */), ENOSYS);
}

TEST(system_call_keeps_the_registers) {
    long rbx = 1, rdx = 2, got[4];
    register long r9 __asm__("r9") = 9, r10 __asm__("r10") = 10;
    __asm__ volatile("mov $39, %%eax\n syscall\n mov %%rbx, 0(%[g])\n mov %%rdx, 8(%[g])\n"
                     "mov %%r9, 16(%[g])\n mov %%r10, 24(%[g])\n"
                     :
                     : [g] "r"(got), "b"(rbx), "d"(rdx), "r"(r9), "r"(r10)
                     : "rax", "rcx", "r11", "memory");
    CHECK_EQ(got[0], 1);
    CHECK_EQ(got[1], 2);
    CHECK_EQ(got[2], 9);
    CHECK_EQ(got[3], 10);
}

TEST(direction_and_trap_flags_are_clean_in_the_kernel) {
    /* The caller may enter with DF set; it comes back as it was. */
    long flags;
    __asm__ volatile("std\n mov $39, %%eax\n syscall\n pushfq\n pop %0\n cld"
                     : "=r"(flags)
                     :
                     : "rax", "rcx", "r11", "memory", "cc");
    CHECK(flags & 0x400);
}

TEST(vdso_is_given_and_clocks_work_by_it) {
    unsigned long vdso = getauxval(33 /* AT_SYSINFO_EHDR */);
    if (!vdso)
        SKIP("no vDSO");
    CHECK(!memcmp((void *)vdso, "\177ELF", 4));
    struct timespec t;
    OK(clock_gettime(CLOCK_MONOTONIC, &t));
}

TEST(getcpu_and_null_pointers) {
    OK(syscall(SYS_getcpu, NULL, NULL, NULL));
    ERR(syscall(SYS_getcpu, BAD, NULL, NULL), EFAULT);
}

TEST(personality_of_linux) { CHECK_EQ(OK(syscall(SYS_personality, 0xffffffff)) & 0xff, 0); }

TEST(membarrier_query_or_enosys) {
    long r = syscall(324, 0 /* MEMBARRIER_CMD_QUERY */, 0, 0);
    if (r == -1)
        CHECK_EQ(errno, ENOSYS);
    else
        CHECK(r >= 0);
}

TEST(reboot_magic_is_checked) {
    ERR(syscall(SYS_reboot, 0x12345678, 0, 0, 0), EINVAL);
    ERR(syscall(SYS_reboot, 0xfee1dead, 0x28121969, 0x99999999, 0), EINVAL);
}

TEST(sync_family) {
    sync();
    int fd = OK(open("f", O_RDWR | O_CREAT, 0600));
    OK(write(fd, "x", 1));
    OK(fsync(fd));
    OK(fdatasync(fd));
    OK(syncfs(fd));
    int p[2];
    OK(pipe(p));
    ERR(fsync(p[0]), EINVAL);
    ERR(fsync(999), EBADF);
    ERR(fdatasync(999), EBADF);
}
