/* Hayate's switch of the running mode: switch_supervisor(pid, flags) and switch_user(pid). Linux
 * has no such calls; there the cases are skipped. */
#define AREA "mode"
#include "harness.h"
#include "../../guest/interface/include/hayate.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <ucontext.h>

enum { SWITCH_SUPERVISOR = 1010, SWITCH_USER = 1011, KEEP = 1 };

static long switch_supervisor(pid_t pid, unsigned flags) {
    return syscall(SWITCH_SUPERVISOR, pid, flags);
}
static long switch_user(pid_t pid) { return syscall(SWITCH_USER, pid); }

static int ring(void) {
    unsigned cs;
    __asm__ volatile("mov %%cs, %0" : "=r"(cs));
    return cs & 3;
}

/* Every case begins in user mode, whichever process started the program. */
static void begin(void) {
    if (getenv("MODE_STORM")) SKIP("somebody else changes the mode");
    if (switch_user(0) != 0) {
        if (errno == ENOSYS) SKIP("this kernel has one mode for programs");
        if (errno == EOPNOTSUPP) SKIP("turned off by supervisor=off");
        FAIL("switch_user: %m");
    }
    CHECK_EQ(ring(), 3);
}

static void supervisor(void) {
    begin();
    OK(switch_supervisor(0, 0));
    CHECK_EQ(ring(), 0);
}

TEST(oneself_there_and_back) {
    begin();
    for (int i = 0; i < 100; i++) {
        OK(switch_supervisor(0, 0));
        CHECK_EQ(ring(), 0);
        CHECK_EQ(syscall(SYS_getpid), getpid());
        OK(switch_user(0));
        CHECK_EQ(ring(), 3);
        CHECK_EQ(syscall(SYS_getpid), getpid());
    }
}

TEST(unknown_flags_and_processes) {
    begin();
    ERR(switch_supervisor(0, 2), EINVAL);
    ERR(switch_supervisor(0x3fffff, 0), ESRCH);
    ERR(switch_supervisor(-1, 0), ESRCH);
    ERR(switch_user(0x3fffff), ESRCH);
    pid_t pid = FORK();
    if (pid == 0) _exit(0);
    siginfo_t info;
    OK(waitid(P_PID, pid, &info, WEXITED | WNOWAIT));
    ERR(switch_supervisor(pid, 0), ESRCH);
    EXITS(pid, 0);
}

TEST(needs_root_and_a_capability) {
    begin();
    pid_t victim = FORK();
    if (victim == 0) for (;;) pause();
    IN_CHILD({
        BECOME(NOBODY, NOBODY);
        ERR(switch_supervisor(0, 0), EPERM);
        ERR(switch_supervisor(victim, 0), EPERM);
        ERR(switch_user(victim), EPERM);
        CHECK_EQ(ring(), 3);
    });
    OK(kill(victim, SIGKILL));
    KILLED(victim, SIGKILL);
}

static void status_says(pid_t pid, const char *mode) {
    char path[64], text[8192], line[64];
    snprintf(path, sizeof path, "/proc/%d/status", pid);
    CHECK(get_file(path, text, sizeof text) > 0);
    snprintf(line, sizeof line, "\nMode:\t%s\n", mode);
    CHECK(strstr(text, line) != NULL);
}

TEST(status_shows_the_mode) {
    begin();
    status_says(getpid(), "user");
    OK(switch_supervisor(0, 0));
    status_says(getpid(), "supervisor");
}

TEST(fork_inherits) {
    supervisor();
    IN_CHILD({ CHECK_EQ(ring(), 0); });
    OK(switch_user(0));
    IN_CHILD({ CHECK_EQ(ring(), 3); });
}

TEST(child_goes_its_own_way) {
    supervisor();
    int *seen = SHARED(sizeof *seen);
    pid_t pid = FORK();
    if (pid == 0) {
        OK(switch_user(0));
        *(volatile int *)seen = 1;
        _exit(ring() == 3 ? 0 : 1);
    }
    EXITS(pid, 0);
    CHECK_EQ(ring(), 0);
}

/* A descriptor of a space is no way to supervisor mode: the space follows who enters it. */
TEST(a_space_entered_from_user_mode_is_the_users) {
    supervisor();
    int *spaces = SHARED(2 * sizeof *spaces);
    spaces[0] = OK(hayate_space_open(HAYATE_SPACE_OWN, HAYATE_CLOEXEC));
    spaces[1] = OK(hayate_space_open(HAYATE_SPACE_COPY, HAYATE_CLOEXEC));
    OK(hayate_change_space(spaces[1]));
    CHECK_EQ(ring(), 0);
    OK(switch_user(0));
    OK(hayate_change_space(spaces[0]));
    CHECK_EQ(ring(), 3);
    CHECK_EQ(syscall(SYS_getpid), getpid());
    OK(switch_supervisor(0, 0));
    OK(hayate_change_space(spaces[1]));
    CHECK_EQ(ring(), 3);
}

HELPER(ring_is) { return ring() == atoi(argv[1]) ? 0 : 1; }

static void executed_has_ring(const char *expected) {
    pid_t pid = FORK();
    if (pid == 0) {
        execl(hy_self, hy_self, "--helper", "ring_is", expected, NULL);
        _exit(99);
    }
    EXITS(pid, 0);
    pid = vfork();
    if (pid == 0) {
        execl(hy_self, hy_self, "--helper", "ring_is", expected, NULL);
        _exit(99);
    }
    EXITS(pid, 0);
}

TEST(exec_keeps_it_only_if_asked) {
    supervisor();
    executed_has_ring("3");
    OK(switch_supervisor(0, KEEP));
    executed_has_ring("0");
    CHECK_EQ(ring(), 0);
    OK(switch_user(0));
    executed_has_ring("3");
}

TEST(set_user_id_programs_never_get_it) {
    supervisor();
    OK(switch_supervisor(0, KEEP));
    COPY(hy_self, "setuid", 04755);
    OK(chown("setuid", 0, 0));
    OK(chmod("setuid", 04755));
    OK(chmod(".", 0755));
    pid_t pid = FORK();
    if (pid == 0) {
        BECOME(NOBODY, NOBODY);
        execl("./setuid", "./setuid", "--helper", "ring_is", "3", NULL);
        _exit(98);
    }
    EXITS(pid, 0);
}

TEST(not_even_root_keeps_it_in_a_set_user_id_program) {
    supervisor();
    OK(switch_supervisor(0, KEEP));
    COPY(hy_self, "setuid", 04755);
    OK(chown("setuid", 0, 0));
    OK(chmod("setuid", 04755));
    pid_t pid = FORK();
    if (pid == 0) {
        execl("./setuid", "./setuid", "--helper", "ring_is", "3", NULL);
        _exit(98);
    }
    EXITS(pid, 0);
    OK(chmod("setuid", 02755));
    pid = FORK();
    if (pid == 0) {
        execl("./setuid", "./setuid", "--helper", "ring_is", "3", NULL);
        _exit(98);
    }
    EXITS(pid, 0);
    OK(chmod("setuid", 0755));
    pid = FORK();
    if (pid == 0) {
        execl("./setuid", "./setuid", "--helper", "ring_is", "0", NULL);
        _exit(98);
    }
    EXITS(pid, 0);
}

HELPER(cannot_be_switched) {
    return switch_supervisor(0, 0) == -1 && errno == EPERM && ring() == 3 ? 0 : 1;
}

TEST(a_set_user_id_program_cannot_be_switched) {
    begin();
    COPY(hy_self, "setuid", 04755);
    OK(chown("setuid", 0, 0));
    OK(chmod("setuid", 04755));
    pid_t pid = FORK();
    if (pid == 0) {
        execl("./setuid", "./setuid", "--helper", "cannot_be_switched", NULL);
        _exit(98);
    }
    EXITS(pid, 0);
}

/* ---- switching others, whatever they are doing ------------------------------------------------ */

struct report {
    _Atomic int ring;
    _Atomic int stop;
    _Atomic long rounds;
};

static void both_ways(pid_t pid, struct report *report) {
    for (int i = 0; i < 20; i++) {
        OK(switch_supervisor(pid, 0));
        EVENTUALLY(atomic_load(&report->ring) == 0);
        OK(switch_user(pid));
        EVENTUALLY(atomic_load(&report->ring) == 3);
    }
    atomic_store(&report->stop, 1);
}

TEST(another_that_computes) {
    begin();
    struct report *report = SHARED(sizeof *report);
    pid_t pid = FORK();
    if (pid == 0) {
        while (!atomic_load(&report->stop)) atomic_store(&report->ring, ring());
        _exit(0);
    }
    both_ways(pid, report);
    EXITS(pid, 0);
}

TEST(another_that_calls) {
    begin();
    struct report *report = SHARED(sizeof *report);
    pid_t pid = FORK();
    if (pid == 0) {
        pid_t own = getpid();
        while (!atomic_load(&report->stop)) {
            CHECK_EQ(syscall(SYS_getpid), own);
            atomic_store(&report->ring, ring());
        }
        _exit(0);
    }
    both_ways(pid, report);
    EXITS(pid, 0);
}

TEST(another_that_sleeps_in_a_call) {
    begin();
    int fds[2], back[2];
    OK(pipe(fds));
    OK(pipe(back));
    pid_t pid = FORK();
    if (pid == 0) {
        for (char c; read(fds[0], &c, 1) == 1 && c != 'e';) {
            c = (char)('0' + ring());
            OK(write(back[1], &c, 1));
        }
        _exit(0);
    }
    for (int i = 0; i < 20; i++) {
        wait_asleep(pid);
        OK(i & 1 ? switch_user(pid) : switch_supervisor(pid, 0));
        char c = 'x';
        OK(write(fds[1], &c, 1));
        CHECK_EQ(read(back[0], &c, 1), 1);
        CHECK_EQ(c, i & 1 ? '3' : '0');
    }
    OK(write(fds[1], "e", 1));
    EXITS(pid, 0);
}

TEST(another_that_is_stopped) {
    begin();
    struct report *report = SHARED(sizeof *report);
    atomic_store(&report->ring, 9);
    pid_t pid = FORK();
    if (pid == 0) {
        raise(SIGSTOP);
        atomic_store(&report->ring, ring());
        _exit(0);
    }
    int status;
    OK(waitpid(pid, &status, WUNTRACED));
    CHECK(WIFSTOPPED(status));
    OK(switch_supervisor(pid, 0));
    CHECK_EQ(atomic_load(&report->ring), 9);
    OK(kill(pid, SIGCONT));
    EXITS(pid, 0);
    CHECK_EQ(atomic_load(&report->ring), 0);
}

static struct report *handled;
static void in_handler(int sig UNUSED) {
    while (!atomic_load(&handled->stop)) atomic_store(&handled->ring, ring());
}

TEST(another_inside_a_handler) {
    begin();
    handled = SHARED(sizeof *handled);
    pid_t pid = FORK();
    if (pid == 0) {
        signal(SIGUSR1, in_handler);
        atomic_store(&handled->ring, 7);
        while (!atomic_load(&handled->stop)) pause();
        _exit(0);
    }
    EVENTUALLY(atomic_load(&handled->ring) == 7);
    OK(kill(pid, SIGUSR1));
    EVENTUALLY(atomic_load(&handled->ring) == 3);
    both_ways(pid, handled);
    EXITS(pid, 0);
}

static struct report many[6];
static void *count_rings(void *data) {
    struct report *own = data;
    while (!atomic_load(&many[0].stop)) {
        atomic_store(&own->ring, ring());
        atomic_fetch_add(&own->rounds, 1);
        if ((own - many) % 2) sched_yield();
    }
    return NULL;
}

TEST(all_threads_at_once) {
    begin();
    pthread_t threads[6];
    for (int i = 0; i < 6; i++) CHECK_EQ(pthread_create(&threads[i], NULL, count_rings, &many[i]), 0);
    for (int round = 0; round < 20; round++) {
        int wanted = round & 1 ? 3 : 0;
        OK(wanted ? switch_user(0) : switch_supervisor(0, 0));
        CHECK_EQ(ring(), wanted);
        for (int i = 0; i < 6; i++) {
            long before = atomic_load(&many[i].rounds);
            EVENTUALLY(atomic_load(&many[i].rounds) > before + 1);
            CHECK_EQ(atomic_load(&many[i].ring), wanted);
        }
    }
    atomic_store(&many[0].stop, 1);
    for (int i = 0; i < 6; i++) CHECK_EQ(pthread_join(threads[i], NULL), 0);
}

/* ---- traps of a program in ring 0 --------------------------------------------------------------- */

TEST(wild_pointers_and_divisions_become_signals) {
    supervisor();
    int sig = FAULT(PEEK((char *)8));
    CHECK_EQ(sig, SIGSEGV);
    CHECK_EQ(hy_fault.code, SEGV_MAPERR);
    sig = FAULT(POKE(BAD, 1));
    CHECK_EQ(sig, SIGSEGV);
    sig = FAULT(PEEK((char *)0x8000000000000000UL));
    CHECK_EQ(sig, SIGSEGV);
    char *text = (char *)(void *)ring;
    sig = FAULT(POKE(text, 1));
    CHECK_EQ(sig, SIGSEGV);
    CHECK_EQ(hy_fault.code, SEGV_ACCERR);
    volatile int zero = 0;
    sig = FAULT(zero = 100 / zero);
    CHECK_EQ(sig, SIGFPE);
    CHECK_EQ(FAULT(__asm__ volatile("ud2")), SIGILL);
    CHECK_EQ(FAULT(__asm__ volatile("int3")), SIGTRAP);
    CHECK_EQ(FAULT(__asm__ volatile("int $0x81")), SIGSEGV);
    CHECK_EQ(ring(), 0);
}

TEST(wild_jumps_become_signals) {
    supervisor();
    void (*volatile null)(void) = NULL;
    int sig = FAULT(null());
    CHECK_EQ(sig, SIGSEGV);
    void (*volatile unmapped)(void) = (void (*)(void))0xffffa00000000000UL;
    sig = FAULT(unmapped());
    CHECK_EQ(sig, SIGSEGV);
}

TEST(pointers_are_checked_in_calls) {
    supervisor();
    ERR(write(1, BAD, 1), EFAULT);
    ERR(syscall(SYS_pipe, KERNEL_ADDRESS), EFAULT);
    ERR(syscall(SYS_uname, KERNEL_ADDRESS), EFAULT);
    ERR(syscall(10000), ENOSYS);
    ERR(syscall(-1), ENOSYS);
    ERR(syscall(511), ENOSYS);
}

TEST(copy_on_write_and_read_only_pages) {
    supervisor();
    volatile char *page = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    *page = 1;
    IN_CHILD({
        *page = 2;
        CHECK_EQ(*page, 2);
    });
    CHECK_EQ(*page, 1);
    OK(mprotect((void *)page, PAGE, PROT_READ));
    CHECK_EQ(FAULT(POKE(page, 3)), SIGSEGV);
    OK(mprotect((void *)page, PAGE, PROT_NONE));
    CHECK_EQ(FAULT(PEEK(page)), SIGSEGV);
}

static int deep(int depth) {
    volatile char here[3000];
    memset((char *)here, depth, sizeof here);
    return depth == 0 ? 0 : deep(depth - 1) + here[17] - (char)depth;
}

TEST(stack_grows) {
    supervisor();
    CHECK_EQ(deep(1000), 0);
}

static void on_overflow(int sig UNUSED) { _exit(ring() == 0 ? 42 : 1); }
static volatile int forever = 1;
static int endless(int depth) {
    volatile char here[512];
    here[0] = (char)depth;
    return forever ? endless(depth + 1) + here[0] : 0;
}

TEST(stack_overflow_is_handled_on_the_other_stack) {
    supervisor();
    pid_t pid = FORK();
    if (pid == 0) {
        stack_t other = {.ss_sp = malloc(65536), .ss_size = 65536};
        OK(sigaltstack(&other, NULL));
        struct sigaction act = {.sa_handler = on_overflow, .sa_flags = SA_ONSTACK};
        OK(sigaction(SIGSEGV, &act, NULL));
        _exit(endless(0));
    }
    EXITS(pid, 42);
}

TEST(a_stack_pointer_to_nowhere_is_survived) {
    supervisor();
    pid_t pid = FORK();
    if (pid == 0) {
        struct rlimit none = {0, 0};
        setrlimit(RLIMIT_CORE, &none);
        __asm__ volatile("mov $0x1000, %rsp\n push %rax");
    }
    KILLED(pid, SIGSEGV);
    pid = FORK();
    if (pid == 0) {
        /* Interrupts arrive while the stack pointer leads nowhere. */
        alarm(1);
        __asm__ volatile("xor %esp, %esp\n1: pause\n jmp 1b");
    }
    KILLED(pid, SIGALRM);
}

/* Keeps a pattern in the red zone and in all registers while interrupts arrive. */
static long red_zone_survives(long rounds) {
    long bad;
    __asm__ volatile("movabs $0x1122334455667788, %%r8\n"
                     "mov %%r8, -8(%%rsp)\n mov %%r8, -64(%%rsp)\n mov %%r8, -128(%%rsp)\n"
                     "mov %1, %%r9\n"
                     "1: cmp %%r8, -8(%%rsp)\n jne 2f\n cmp %%r8, -64(%%rsp)\n jne 2f\n"
                     "cmp %%r8, -128(%%rsp)\n jne 2f\n dec %%r9\n jnz 1b\n"
                     "2: mov %%r9, %0\n"
                     : "=r"(bad)
                     : "r"(rounds)
                     : "r8", "r9", "cc", "memory");
    return bad;
}

TEST(red_zone_survives_interrupts_and_preemption) {
    supervisor();
    pid_t rival = FORK();
    if (rival == 0) for (;;) red_zone_survives(1000000);
    for (int i = 0; i < 20; i++) CHECK_EQ(red_zone_survives(2000000), 0);
    OK(kill(rival, SIGKILL));
    KILLED(rival, SIGKILL);
}

/* A system call in a leaf function that uses its red zone. */
static long call_with_red_zone(long number) {
    long result, bad;
    __asm__ volatile("movabs $0x99aabbccddeeff00, %%r8\n"
                     "mov %%r8, -8(%%rsp)\n mov %%r8, -16(%%rsp)\n mov %%r8, -128(%%rsp)\n"
                     "mov %2, %%rax\n"
                     "syscall\n"
                     "mov %%rax, %0\n"
                     "xor %%eax, %%eax\n"
                     "cmp %%r8, -8(%%rsp)\n jne 1f\n cmp %%r8, -16(%%rsp)\n jne 1f\n"
                     "cmp %%r8, -128(%%rsp)\n jne 1f\n jmp 2f\n"
                     "1: inc %%eax\n2: mov %%rax, %1\n"
                     : "=&r"(result), "=&r"(bad)
                     : "r"(number)
                     : "rax", "rcx", "r11", "r8", "cc", "memory");
    CHECK_EQ(bad, 0);
    return result;
}

TEST(red_zone_survives_calls) {
    supervisor();
    pid_t own = getpid();
    for (int i = 0; i < 1000; i++) {
        CHECK_EQ(call_with_red_zone(SYS_getpid), own);
        CHECK_EQ(call_with_red_zone(SYS_sched_yield), 0);
        if (i % 100 == 50) OK(i % 200 == 50 ? switch_user(0) : switch_supervisor(0, 0));
    }
}

/* Every register that a system call keeps. */
static long registers_survive(long number) {
    long bad;
    __asm__ volatile("push %%rbp\n"
                     "mov %1, %%rax\n"
                     "mov $1, %%edi\n mov $2, %%esi\n mov $3, %%edx\n mov $4, %%r10d\n"
                     "mov $5, %%r8d\n mov $6, %%r9d\n mov $7, %%ebx\n mov $8, %%ebp\n"
                     "mov $9, %%r12d\n mov $10, %%r13d\n mov $11, %%r14d\n mov $12, %%r15d\n"
                     "syscall\n"
                     "cmp $1, %%rdi\n jne 1f\n cmp $2, %%rsi\n jne 1f\n cmp $3, %%rdx\n jne 1f\n"
                     "cmp $4, %%r10\n jne 1f\n cmp $5, %%r8\n jne 1f\n cmp $6, %%r9\n jne 1f\n"
                     "cmp $7, %%rbx\n jne 1f\n cmp $8, %%rbp\n jne 1f\n cmp $9, %%r12\n jne 1f\n"
                     "cmp $10, %%r13\n jne 1f\n cmp $11, %%r14\n jne 1f\n cmp $12, %%r15\n jne 1f\n"
                     "xor %%eax, %%eax\n jmp 2f\n"
                     "1: mov $1, %%eax\n"
                     "2: pop %%rbp\n"
                     : "=a"(bad)
                     : "r"(number)
                     : "rcx", "r11", "rdi", "rsi", "rdx", "r8", "r9", "r10", "rbx", "r12", "r13",
                       "r14", "r15", "cc", "memory");
    return bad;
}

TEST(registers_survive_calls) {
    supervisor();
    for (int i = 0; i < 200; i++) {
        CHECK_EQ(registers_survive(SYS_getpid), 0);
        CHECK_EQ(registers_survive(SYS_sched_yield), 0);
        CHECK_EQ(registers_survive(SYS_getpriority), 0);
        CHECK_EQ(registers_survive(10000), 0);
    }
}

static volatile sig_atomic_t signals;
static volatile int handler_ring;
static void count_signal(int sig UNUSED) {
    signals++;
    handler_ring = ring();
}

TEST(handlers_run_in_the_mode) {
    supervisor();
    signal(SIGUSR1, count_signal);
    OK(raise(SIGUSR1));
    CHECK_EQ(signals, 1);
    CHECK_EQ(handler_ring, 0);
    OK(switch_user(0));
    OK(raise(SIGUSR1));
    CHECK_EQ(handler_ring, 3);
}

TEST(interrupted_calls_go_on_or_fail) {
    supervisor();
    int fds[2];
    OK(pipe(fds));
    for (int restart = 0; restart < 2; restart++) {
        struct sigaction act = {.sa_handler = count_signal, .sa_flags = restart ? SA_RESTART : 0};
        OK(sigaction(SIGALRM, &act, NULL));
        for (int round = 0; round < 3; round++) {
            pid_t writer = FORK();
            if (writer == 0) {
                msleep(120);
                OK(write(fds[1], "x", 1));
                _exit(0);
            }
            struct itimerval soon = {.it_value = {0, 40000}};
            OK(setitimer(ITIMER_REAL, &soon, NULL));
            char c;
            ssize_t n = read(fds[0], &c, 1);
            if (restart) {
                CHECK_EQ(n, 1);
            } else {
                CHECK_EQ(n, -1);
                CHECK_EQ(errno, EINTR);
                CHECK_EQ(read(fds[0], &c, 1), 1);
            }
            EXITS(writer, 0);
        }
    }
    struct timespec pause = {0, 100 * MS};
    struct itimerval soon = {.it_value = {0, 20000}};
    OK(setitimer(ITIMER_REAL, &soon, NULL));
    ERR(nanosleep(&pause, &pause), EINTR);
    CHECK(pause.tv_nsec > 0);
}

static volatile long steps;
static void on_step(int sig UNUSED) { steps++; }

TEST(single_steps) {
    supervisor();
    signal(SIGTRAP, on_step);
    pid_t own = getpid();
    /* Often enough for the call's site to be patched. */
    for (int i = 0; i < 150; i++) {
        long result, before = steps, behind;
        __asm__ volatile("pushfq\n orl $0x100, (%%rsp)\n popfq\n"
                         "mov $39, %%eax\n syscall\n mov %%rax, %0\n mov %2, %1\n"
                         "xor %%eax, %%eax\n nop\n"
                         "pushfq\n andl $~0x100, (%%rsp)\n popfq\n"
                         : "=&r"(result), "=&r"(behind)
                         : "m"(steps)
                         : "rax", "rcx", "r11", "cc", "memory");
        CHECK_EQ(result, own);
        /* It goes on behind the call. */
        CHECK(behind >= before + 2);
        CHECK(steps >= behind + 4);
    }
}

static void *float_thread(void *data) {
    double sum = 0, step = *(double *)data;
    for (int i = 0; i < 300000; i++) sum += step;
    *(double *)data = sum;
    return NULL;
}

TEST(floating_point_state_and_new_threads) {
    supervisor();
    double values[4] = {1, 2, 3, 4};
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) CHECK_EQ(pthread_create(&threads[i], NULL, float_thread, &values[i]), 0);
    for (int i = 0; i < 10; i++) {
        OK(i & 1 ? switch_supervisor(0, 0) : switch_user(0));
        sched_yield();
    }
    for (int i = 0; i < 4; i++) {
        CHECK_EQ(pthread_join(threads[i], NULL), 0);
        CHECK_EQ((long)values[i], 300000L * (i + 1));
    }
}

TEST(interrupts_cannot_be_turned_off_for_long) {
    supervisor();
    __asm__ volatile("cli");
    getppid();
    long flags;
    __asm__ volatile("pushfq\n pop %0" : "=r"(flags));
    CHECK(flags & 0x200);
    __asm__ volatile("hlt");
}

/* Only an NMI can interrupt a loop behind `cli`. microvm has no such thing. */
TEST(a_loop_with_interrupts_off_is_ended) {
    supervisor();
    for (int i = 0; i < 3; i++) {
        pid_t pid = FORK();
        if (pid == 0) {
            alarm(1);
            for (;;) __asm__ volatile("cli");
        }
        KILLED(pid, SIGALRM);
        pid = FORK();
        if (pid == 0) {
            __asm__ volatile("cli\n1: jmp 1b");
        }
        msleep(200);
        OK(kill(pid, SIGKILL));
        KILLED(pid, SIGKILL);
    }
}

/* Calls by the gate turn interrupts off and on all the time, under the watchdog's NMIs. */
TEST(calls_go_on_under_the_watchdog) {
    supervisor();
    pid_t own = getpid();
    struct timespec begin, now;
    OK(clock_gettime(CLOCK_MONOTONIC, &begin));
    do {
        for (int i = 0; i < 20000; i++) CHECK_EQ(syscall(SYS_getpid), own);
        OK(clock_gettime(CLOCK_MONOTONIC, &now));
    } while (now.tv_sec < begin.tv_sec + 3);
}

/* getppid fails with this error from here on; all else is allowed. */
static void filter(int error) {
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getppid, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (unsigned)error),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof code / sizeof *code, code};
    OK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0));
}

static long asks(void) {
    return syscall(SYS_getppid);
}

TEST(a_filter_ends_it) {
    supervisor();
    /* Often enough that the call's site is turned. */
    for (int i = 0; i < 300; i++)
        CHECK(asks() > 0);
    CHECK_EQ(ring(), 0);
    filter(41);
    CHECK_EQ(ring(), 3);
    for (int i = 0; i < 300; i++)
        ERR(asks(), 41);
    ERR(switch_supervisor(0, 0), EPERM);
    ERR(switch_supervisor(0, KEEP), EPERM);
    CHECK_EQ(ring(), 3);
    IN_CHILD(ERR(asks(), 41); ERR(switch_supervisor(0, 0), EPERM); CHECK_EQ(ring(), 3));
}

TEST(a_filter_of_one_that_shares_the_space_ends_it) {
    supervisor();
    pid_t child = vfork();
    if (child == 0) {
        filter(42);
        _exit(ring() == 3 && asks() == -1 && switch_supervisor(getppid(), 0) == -1 ? 0 : 1);
    }
    EXITS(child, 0);
    CHECK_EQ(ring(), 3);
    /* For as long as the space lasts. */
    CHECK(asks() > 0);
    ERR(switch_supervisor(0, 0), EPERM);
    CHECK_EQ(ring(), 3);
}

static _Atomic int stop;
static void *switches(void *arg) {
    while (!stop)
        if (switch_supervisor(0, KEEP) == -1 && errno != EPERM)
            FAIL("switch_supervisor: %m");
    return arg;
}

TEST(a_filter_and_a_switch_at_the_same_time) {
    begin();
    for (int i = 0; i < 30; i++)
        IN_CHILD(pthread_t thread; ZERO(pthread_create(&thread, NULL, switches, NULL));
                 for (int j = 0; j < 20; j++) OK(switch_supervisor(0, 0));
                 filter(43); for (int j = 0; j < 50; j++) ERR(asks(), 43);
                 stop = 1; ZERO(pthread_join(thread, NULL)); CHECK_EQ(ring(), 3));
}
