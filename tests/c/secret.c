/*
 * The next program must not find the secret of one: not in its memory, not in its registers, and
 * not in bytes that the kernel hands out, some of which may never have been set. One program puts a
 * secret everywhere it can, also into the kernel: pipes, messages, attributes, signals, timers. It
 * ends, and another, of the same or another user, on the same or the other processor, searches all
 * it can reach; under every policy of what is kept of ended processes, where the kernel has one.
 */
#define AREA "secret"
#include "secret.h"
#include <poll.h>
#include <sys/epoll.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/statfs.h>
#include <sys/sysinfo.h>
#include <sys/times.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/utsname.h>
#include <sys/xattr.h>
#include <termios.h>

#define WORDS 4096
static volatile uint64_t data[WORDS] = {1, 2, 3};
static volatile uint64_t bss[WORDS];

/* ---- the one who knows ------------------------------------------------------------------------- */

static void scribble(volatile void *at, size_t size, uint64_t word) {
    for (size_t i = 0; i < size / 8; i++)
        ((volatile uint64_t *)at)[i] = word;
}

static __attribute__((noinline)) void on_stack(uint64_t word) {
    volatile uint64_t deep[16384];
    scribble(deep, sizeof deep, word);
}

static void *told_thread(void *word) {
    on_stack((uint64_t)(uintptr_t)word);
    return NULL;
}

static void in_memory(uint64_t word) {
    on_stack(word);
    scribble(data, sizeof data, word);
    scribble(bss, sizeof bss, word);
    uintptr_t end = (uintptr_t)syscall(SYS_brk, 0);
    if ((uintptr_t)syscall(SYS_brk, end + 65536) == end + 65536)
        scribble((void *)end, 65536, word);
    /* Small pages, a large one, shared ones. */
    static const struct {
        size_t size;
        int flags;
    } kinds[] = {{256 << 10, MAP_PRIVATE}, {4 << 20, MAP_PRIVATE}, {256 << 10, MAP_SHARED}};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        void *at = mmap(NULL, kinds[i].size, PROT_READ | PROT_WRITE, kinds[i].flags | MAP_ANONYMOUS, -1, 0);
        if (at != MAP_FAILED)
            scribble(at, kinds[i].size, word);
    }
    pthread_t thread;
    if (pthread_create(&thread, NULL, told_thread, (void *)(uintptr_t)word) == 0)
        pthread_join(thread, NULL);
}

/* Into the kernel's own memory: data that it copies in and keeps, and data that it copies in for a
 * moment. */
static void in_kernel(uint64_t word) {
    static uint64_t buffer[2048];
    scribble(buffer, sizeof buffer, word);
    int pair[2];
    for (int i = 0; i < 4 && pipe(pair) == 0; i++)
        for (size_t size = 8; size <= sizeof buffer; size *= 4)
            (void)!write(pair[1], buffer, size);
    for (int i = 0; i < 4 && socketpair(AF_UNIX, i % 2 ? SOCK_DGRAM : SOCK_STREAM, 0, pair) == 0; i++)
        for (size_t size = 8; size <= 8192; size *= 2)
            send(pair[0], buffer, size, MSG_DONTWAIT);
    int fd = open(".", O_TMPFILE | O_RDWR, 0600);
    if (fd != -1) {
        (void)!write(fd, buffer, sizeof buffer);
        fsetxattr(fd, "user.secret", buffer, 1024, 0);
        fsetxattr(fd, "trusted.secret", buffer, 256, 0);
    }
    int memfd = (int)syscall(SYS_memfd_create, "secret", 0);
    (void)!write(memfd, buffer, sizeof buffer);
    /* Signals with a value, pending for good; timers with one. */
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, NULL);
    union sigval value = {.sival_ptr = (void *)(uintptr_t)word};
    for (int i = 0; i < 32; i++) {
        sigqueue(getpid(), SIGRTMIN + 1, value);
        struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMIN, .sigev_value = value};
        int timer;
        struct itimerspec far = {.it_value = {(time_t)(word & 0xffffff) + 1000, 0}};
        if (syscall(SYS_timer_create, CLOCK_MONOTONIC, &event, &timer) == 0)
            syscall(SYS_timer_settime, timer, 0, &far, NULL);
    }
    int epoll = epoll_create1(0);
    for (int i = 0; i < 32; i++) {
        struct epoll_event event = {.events = EPOLLIN, .data = {.u64 = word}};
        epoll_ctl(epoll, EPOLL_CTL_ADD, OK(dup(pair[1])), &event);
    }
    /* Arrays that are looked at and refused. */
    poll((struct pollfd *)buffer, 1024, 0);
    (void)!writev(pair[0], (struct iovec *)buffer, 64);
    stack_t stack = {.ss_sp = (void *)(uintptr_t)word, .ss_size = 1 << 20};
    sigaltstack(&stack, NULL);
    syscall(SYS_prctl, 15 /* PR_SET_NAME */, buffer, 0, 0, 0);
    syscall(SYS_set_robust_list, buffer, 24);
}

HELPER(tell) {
    uint64_t word = secret(strtoull(argv[1], NULL, 10));
    in_kernel(word);
    in_memory(word);
    for (char **text = environ; *text; text++)
        memset(*text, (int)word, strlen(*text));
    /* All registers that a system call does not take: with AVX their upper halves too. */
    if (__builtin_cpu_supports("avx"))
        asm volatile("vmovq %0, %%xmm0\n vmovddup %%xmm0, %%xmm0\n vinsertf128 $1, %%xmm0, %%ymm0, %%ymm0\n"
                     "vmovaps %%ymm0, %%ymm1\n vmovaps %%ymm0, %%ymm5\n vmovaps %%ymm0, %%ymm7\n"
                     "vmovaps %%ymm0, %%ymm8\n vmovaps %%ymm0, %%ymm12\n vmovaps %%ymm0, %%ymm15\n" ::"r"(word)
                     : "xmm0", "xmm1", "xmm5", "xmm7", "xmm8", "xmm12", "xmm15");
    else
        asm volatile("movq %0, %%xmm7\n movq %0, %%xmm8\n movq %0, %%xmm15\n" ::"r"(word)
                     : "xmm7", "xmm8", "xmm15");
    asm volatile("push %0\n fldl (%%rsp)\n fldl (%%rsp)\n pop %0\n mov %0, %%rbx\n mov %0, %%r12\n"
                 "mov %0, %%r13\n mov %0, %%r14\n mov %0, %%r15\n mov %0, %%r8\n mov %0, %%r9\n mov %0, %%r10\n"
                 "xor %%edi, %%edi\n mov $231, %%eax\n syscall" ::"a"(word));
    return 1;
}

/* ---- the one who searches ------------------------------------------------------------------------ */

static uint64_t masked;

/* At any offset: the kernel's copy need not be aligned. */
static int is_in(const void *at, size_t size) {
    for (size_t i = 0; i + 8 <= size; i++) {
        uint64_t word;
        memcpy(&word, (const char *)at + i, 8);
        if ((word ^ MASK) == masked)
            return 1;
    }
    return 0;
}

static int words_have(const volatile uint64_t *at, size_t size) {
    for (size_t i = 0; i < size / 8; i++)
        if ((at[i] ^ MASK) == masked)
            return 1;
    return 0;
}

static int is_zero(const volatile uint64_t *at, size_t size) {
    for (size_t i = 0; i < size / 8; i++)
        if (at[i] != 0)
            return 0;
    return 1;
}

static __attribute__((noinline)) int in_registers(void) {
    static uint64_t got[32];
    memset(got, 0, sizeof got);
    if (__builtin_cpu_supports("avx"))
        asm volatile("vmovups %%ymm1, 0(%0)\n vmovups %%ymm5, 32(%0)\n vmovups %%ymm7, 64(%0)\n"
                     "vmovups %%ymm8, 96(%0)\n vmovups %%ymm12, 128(%0)\n vmovups %%ymm15, 160(%0)\n" ::"r"(got)
                     : "memory");
    else
        asm volatile("movups %%xmm7, 0(%0)\n movups %%xmm8, 16(%0)\n movups %%xmm15, 32(%0)" ::"r"(got)
                     : "memory");
    asm volatile("fnsave 192(%0)" ::"r"(got) : "memory"); /* 108 bytes */
    asm volatile("fninit");
    return is_in(got, sizeof got);
}

static __attribute__((noinline)) int in_stack(void) {
    volatile uint64_t deep[8192];
    asm volatile("" ::"r"(deep) : "memory");
    return words_have(deep, sizeof deep);
}

static void handle(int sig UNUSED) { ; }

/* Memory that must be zero wherever it comes from. */
static int fresh_memory(void) {
    static const struct {
        size_t size;
        int flags;
    } kinds[] = {{512 << 10, MAP_PRIVATE}, {4 << 20, MAP_PRIVATE}, {512 << 10, MAP_SHARED}};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        volatile uint64_t *at =
            mmap(NULL, kinds[i].size, PROT_READ | PROT_WRITE, kinds[i].flags | MAP_ANONYMOUS, -1, 0);
        if (at == MAP_FAILED)
            return 20;
        for (size_t page = 0; page < kinds[i].size / 8; page += 512)
            at[page] = 0; /* takes frames, unlike reading */
        if (!is_zero(at, kinds[i].size))
            return 21;
        scribble(at, 8192, 1);
        if (kinds[i].flags == MAP_PRIVATE) {
            madvise((void *)at, 8192, MADV_DONTNEED);
            at[1] = 0;
            if (!is_zero(at, 8192))
                return 22;
        }
        munmap((void *)at, kinds[i].size);
    }
    uintptr_t end = (uintptr_t)syscall(SYS_brk, 0);
    if ((uintptr_t)syscall(SYS_brk, end + 65536) == end + 65536 && words_have((uint64_t *)end, 65536))
        return 23;
    /* A hole, and what lies behind the end of a file in its last page. */
    int fds[2] = {open(".", O_TMPFILE | O_RDWR, 0600), (int)syscall(SYS_memfd_create, "fresh", 0)};
    for (int i = 0; i < 2; i++) {
        static uint64_t page[512];
        if (fds[i] == -1)
            continue;
        if (ftruncate(fds[i], 65536) == -1 || pwrite(fds[i], "x", 1, 65536) != 1)
            return 24;
        volatile uint64_t *map = mmap(NULL, 65536 + PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fds[i], 0);
        if (map == MAP_FAILED || pread(fds[i], page, PAGE, PAGE) != (ssize_t)PAGE || !is_zero(page, PAGE))
            return 25;
        for (size_t at = 0; at < 65536 / 8; at += 512)
            map[at + 8] = 0;
        if (!is_zero(map, 65536) || map[65536 / 8] != 'x' || !is_zero(map + 65536 / 8 + 1, PAGE - 8))
            return 26;
        /* Written, cut off and made longer again: zero. */
        memset(page, 'y', PAGE);
        if (pwrite(fds[i], page, PAGE, 0) != (ssize_t)PAGE || ftruncate(fds[i], 8) == -1 ||
            ftruncate(fds[i], PAGE) == -1 || !is_zero(map + 1, PAGE - 8))
            return 27;
        munmap((void *)map, 65536 + PAGE);
        close(fds[i]);
    }
    return 0;
}

static unsigned char answer[8192];
/* One answer of the kernel: nothing of the secret may be in it, wherever it ends. */
#define ANSWER(n, call)                                                                            \
    do {                                                                                           \
        memset(answer, 0xa5, sizeof answer);                                                       \
        (void)!(call);                                                                             \
        if (is_in(answer, sizeof answer))                                                          \
            return n;                                                                              \
    } while (0)

static int answers(void) {
    int pair[2], timer;
    ANSWER(40, stat("/", (struct stat *)answer));
    ANSWER(41, syscall(SYS_statx, AT_FDCWD, "/", 0, 0xfff, answer));
    ANSWER(42, statfs("/", (struct statfs *)answer));
    ANSWER(43, uname((struct utsname *)answer));
    ANSWER(44, sysinfo((struct sysinfo *)answer));
    ANSWER(45, getrusage(RUSAGE_SELF, (struct rusage *)answer));
    ANSWER(46, times((struct tms *)answer));
    ANSWER(47, sigaltstack(NULL, (stack_t *)answer));
    ANSWER(48, syscall(SYS_rt_sigaction, SIGUSR2, NULL, answer, 8));
    ANSWER(49, syscall(SYS_rt_sigpending, answer, 8));
    ANSWER(50, syscall(SYS_sched_getattr, 0, answer, 56, 0));
    ANSWER(51, syscall(SYS_sched_getaffinity, 0, sizeof answer, answer));
    ANSWER(52, getitimer(ITIMER_REAL, (struct itimerval *)answer));
    ANSWER(53, syscall(SYS_get_robust_list, 0, answer, answer + 8));
    ANSWER(54, syscall(SYS_prctl, 16 /* PR_GET_NAME */, answer, 0, 0, 0));
    ANSWER(55, syscall(SYS_getcwd, answer, sizeof answer));
    ANSWER(56, readlink("/proc/self/exe", (char *)answer, sizeof answer));
    ANSWER(57, syscall(SYS_capget, (uint32_t[]){0x20080522, 0}, answer));
    if (syscall(SYS_timer_create, CLOCK_MONOTONIC, NULL, &timer) == 0)
        ANSWER(58, syscall(SYS_timer_gettime, timer, answer));
    for (int i = 0; i < 2; i++) {
        int fd = open(i ? "/proc/self" : "/", O_RDONLY | O_DIRECTORY);
        ANSWER(59, syscall(SYS_getdents64, fd, answer, sizeof answer));
        close(fd);
    }
    static const char *const files[] = {"stat", "status", "auxv", "cmdline", "environ", "maps", "limits", "io"};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char path[64];
        snprintf(path, sizeof path, "/proc/self/%s", files[i]);
        int fd = open(path, O_RDONLY);
        ANSWER(60, read(fd, answer, sizeof answer));
        close(fd);
    }
    int terminal = open("/dev/ptmx", O_RDWR | O_NOCTTY);
    if (terminal != -1) {
        ANSWER(61, ioctl(terminal, TCGETS, answer));
        ANSWER(62, ioctl(terminal, TIOCGWINSZ, answer));
        close(terminal);
    }
    if (socketpair(AF_UNIX, SOCK_DGRAM, 0, pair) == 0) {
        socklen_t size = sizeof answer;
        ANSWER(63, getsockname(pair[0], (struct sockaddr *)answer, &size));
        size = sizeof answer;
        ANSWER(64, getsockopt(pair[0], SOL_SOCKET, SO_PEERCRED, answer, &size));
        int on = 1, sent = pair[1];
        setsockopt(pair[1], SOL_SOCKET, SO_PASSCRED, &on, sizeof on);
        char control[CMSG_SPACE(sizeof(int))] = {0};
        struct iovec from = {(char *)"abc", 3}, to = {answer, 64};
        struct msghdr out = {.msg_iov = &from, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
        struct cmsghdr *header = CMSG_FIRSTHDR(&out);
        header->cmsg_level = SOL_SOCKET, header->cmsg_type = SCM_RIGHTS, header->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(header), &sent, sizeof sent);
        sendmsg(pair[0], &out, 0);
        struct msghdr in = {.msg_iov = &to, .msg_iovlen = 1, .msg_name = answer + 128, .msg_namelen = 128,
                            .msg_control = answer + 512, .msg_controllen = 1024};
        ANSWER(65, recvmsg(pair[1], &in, MSG_DONTWAIT));
    }
    if (pipe(pair) == 0) {
        (void)!write(pair[1], "four", 4);
        ANSWER(66, read(pair[0], answer, sizeof answer));
        int epoll = epoll_create1(0);
        struct epoll_event event = {.events = EPOLLOUT, .data = {.fd = 7}};
        epoll_ctl(epoll, EPOLL_CTL_ADD, pair[1], &event);
        ANSWER(67, epoll_wait(epoll, (struct epoll_event *)answer, 8, 0));
    }
    int watcher = inotify_init1(IN_NONBLOCK);
    if (inotify_add_watch(watcher, ".", IN_CREATE | IN_OPEN) != -1) {
        close(open(".", O_RDONLY));
        ANSWER(68, read(watcher, answer, sizeof answer));
    }
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGRTMIN + 2);
    sigprocmask(SIG_BLOCK, &set, NULL);
    int signals = signalfd(-1, &set, SFD_NONBLOCK);
    raise(SIGRTMIN + 2);
    ANSWER(69, read(signals, answer, sizeof answer));
    sigqueue(getpid(), SIGRTMIN + 2, (union sigval){.sival_int = 3});
    ANSWER(70, syscall(SYS_rt_sigtimedwait, &set, answer, &(struct timespec){0, 0}, 8));
    pid_t child = fork();
    if (child == 0)
        _exit(in_registers());
    ANSWER(71, syscall(SYS_waitid, P_PID, child, answer, WEXITED, answer + 256));
    if (((siginfo_t *)answer)->si_status != 0)
        return 72;
    /* The frame of a signal: information, registers, and what lies between. */
    struct sigaction act = {.sa_handler = handle, .sa_flags = SA_SIGINFO};
    sigaction(SIGUSR1, &act, NULL);
    raise(SIGUSR1);
    return in_stack() ? 73 : 0;
}

HELPER(search) {
    masked = strtoull(argv[1], NULL, 10);
    if (in_registers())
        return 10;
    if (in_stack())
        return 11;
    if (data[0] != 1 || data[2] != 3 || !is_zero(data + 3, sizeof data - 24) || !is_zero(bss, sizeof bss))
        return 12;
    int wrong = answers();
    if (wrong == 0)
        wrong = fresh_memory();
    if (wrong)
        return wrong;
    return is_mapped(masked) ? 13 : 0;
}

/* ---- the cases ------------------------------------------------------------------------------------- */

#define POLICY "/proc/hayate/policy"
static const char *const policies[] = {"none", "program", "space", "region", "region+text",
                                       "all", "all+text", "full"};

static bool set_policy(const char *policy) {
    int fd = open(POLICY, O_WRONLY);
    if (fd == -1)
        return false;
    CHECK_EQ(OK(write(fd, policy, strlen(policy))), strlen(policy));
    close(fd);
    return true;
}

TEST_TIMES(nothing_is_found_under_any_policy, 4) {
    bool root = geteuid() == 0, has_policy = access(POLICY, W_OK) == 0;
    /* Every user may make files here. */
    OK(chmod(hy_tmp, 01777));
    COPY(hy_self, "one", 0755);
    COPY(hy_self, "other", 0755);
    unsigned seed = 0;
    for (size_t i = 0; i < (has_policy ? sizeof policies / sizeof *policies : 1); i++) {
        if (has_policy)
            set_policy(policies[i]);
        for (int from = 0; from < 2; from++)
            for (int to = 0; to < 2; to++)
                for (int user = 0; user < (root ? 3 : 1); user++) {
                    uid_t first = user == 1 ? NOBODY : 0, second = user == 2 ? NOBODY : 0;
                    const char *next = (seed + i) % 2 ? "./one" : "./other";
                    seed++;
                    RUN("./one", first, from, "tell", seed);
                    RUN(next, second, to, "search", seed);
                }
    }
    if (has_policy)
        set_policy("full");
}

/* Starts, from a blank image, a program that looks at its registers before anybody else does. */
asm(".pushsection .rodata\n"
    "registers_begin:\n"
    "or %rbx, %rax\n or %rcx, %rax\n or %rdx, %rax\n or %rsi, %rax\n or %rdi, %rax\n or %rbp, %rax\n"
    "or %r8, %rax\n or %r9, %rax\n or %r10, %rax\n or %r11, %rax\n or %r12, %rax\n or %r13, %rax\n"
    "or %r14, %rax\n or %r15, %rax\n"
    "mov $1, %edi\n test %rax, %rax\n jnz 1f\n"
    "por %xmm1, %xmm0\n por %xmm2, %xmm0\n por %xmm3, %xmm0\n por %xmm4, %xmm0\n por %xmm5, %xmm0\n"
    "por %xmm6, %xmm0\n por %xmm7, %xmm0\n por %xmm8, %xmm0\n por %xmm9, %xmm0\n por %xmm10, %xmm0\n"
    "por %xmm11, %xmm0\n por %xmm12, %xmm0\n por %xmm13, %xmm0\n por %xmm14, %xmm0\n por %xmm15, %xmm0\n"
    "movhlps %xmm0, %xmm1\n por %xmm1, %xmm0\n movq %xmm0, %rax\n"
    "mov $2, %edi\n test %rax, %rax\n jnz 1f\n"
    "sub $16, %rsp\n stmxcsr (%rsp)\n fnstcw 4(%rsp)\n fnstsw 8(%rsp)\n"
    "mov $3, %edi\n cmpl $0x1f80, (%rsp)\n jne 1f\n"
    "mov $4, %edi\n cmpw $0x37f, 4(%rsp)\n jne 1f\n"
    "mov $5, %edi\n cmpw $0, 8(%rsp)\n jne 1f\n"
    "xor %edi, %edi\n"
    "1: mov $231, %eax\n syscall\n"
    "registers_end:\n"
    ".popsection");
extern const unsigned char registers_begin[], registers_end[];

TEST(registers_are_clear_when_a_program_begins) {
    size_t size = (size_t)(registers_end - registers_begin), all = 0x78 + size;
    unsigned char image[0x400] = {
        0x7f, 'E', 'L', 'F', 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 62, 0, 1, 0, 0, 0,
        0x78, 0, 0x40, 0, 0, 0, 0, 0, 64, 0, 0, 0, 0, 0, 0, 0, [52] = 64, 0, 56, 0, 1, 0,
        [64] = 1, 0, 0, 0, 5, 0, 0, 0, [80] = 0, 0, 0x40, [88] = 0, 0, 0x40, [112] = 0, 0x10};
    CHECK(all <= sizeof image);
    memcpy(image + 0x78, registers_begin, size);
    memcpy(image + 96, &all, 8), memcpy(image + 104, &all, 8);
    int fd = OK(open("registers", O_WRONLY | O_CREAT, 0755));
    CHECK_EQ(OK(write(fd, image, all)), all);
    close(fd);
    COPY(hy_self, "one", 0755);
    for (unsigned i = 0; i < 6; i++) {
        RUN("./one", 0, i % 2, "tell", i);
        RUN("./registers", 0, i % 2, "search", i);
        pid_t pid = FORK();
        if (pid == 0) {
            /* The caller's own do not come along either. */
            asm volatile("movq %1, %%xmm3\n movq %1, %%xmm14\n fld1\n mov %1, %%rbx\n mov %1, %%r12\n"
                         "mov %1, %%r15\n mov %1, %%r8\n mov $59, %%eax\n syscall" ::"D"("./registers"),
                         "r"(secret(9)), "S"((char *[]){(char *)"registers", NULL}), "d"(environ)
                         : "rax", "rbx", "rcx", "r8", "r11", "r12", "r15", "xmm3", "xmm14", "memory");
            _exit(99);
        }
        EXITS(pid, 0);
    }
}

TEST(vector_registers_survive_a_fork_and_are_the_threads_own) {
    for (int round = 0; round < 20; round++) {
        uint64_t word = secret((unsigned)round), got = 0;
        long pid;
        /* The raw call between, so that nobody else uses the registers. */
        asm volatile("movq %2, %%xmm9\n mov $57, %%eax\n syscall\n movq %%xmm9, %1"
                     : "=&a"(pid), "=&r"(got)
                     : "r"(word)
                     : "rcx", "r11", "xmm9", "memory");
        if (pid == 0)
            _exit(got == word ? 0 : 1);
        CHECK_EQ(got, word);
        CHECK(pid > 0);
        EXITS((pid_t)pid, 0);
    }
}
