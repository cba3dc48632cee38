/* Core files: core(5), signal(7), elf(5), proc(5); fs/coredump.c and fs/binfmt_elf.c of Linux. */
#define AREA "core"
#include "harness.h"
#include <elf.h>
#include <sys/auxv.h>
#include <sys/prctl.h>
#include <sys/procfs.h>
#include <sys/signalfd.h>
#include <sys/user.h>

#ifndef NT_X86_XSTATE
#define NT_X86_XSTATE 0x202
#endif
#ifndef NT_SIGINFO
#define NT_SIGINFO 0x53494749
#endif
#ifndef NT_FILE
#define NT_FILE 0x46494c45
#endif
#ifndef MADV_DONTDUMP
#define MADV_DONTDUMP 16
#endif

/* The core file that was read last. */
static char *image;
static size_t image_size;

/* ---- a process that dies -------------------------------------------------------------------- */

/* The cases count on the names that a fresh system gives. */
static void needs_plain_names(void) {
    char text[256] = "";
    CHECK(get_file("/proc/sys/kernel/core_pattern", text, sizeof text) > 0);
    if (strcmp(text, "core\n") != 0) SKIP("core_pattern is not \"core\"");
    CHECK(get_file("/proc/sys/kernel/core_uses_pid", text, sizeof text) > 0);
    if (strcmp(text, "0\n") != 0) SKIP("core_uses_pid is not 0");
}

static void set_core_limit(rlim_t soft) {
    struct rlimit limit;
    OK(getrlimit(RLIMIT_CORE, &limit));
    limit.rlim_cur = soft;
    if (limit.rlim_max != RLIM_INFINITY && geteuid() == 0) limit.rlim_max = RLIM_INFINITY;
    if (soft > limit.rlim_max) SKIP("the hard limit of core files is too low");
    OK(setrlimit(RLIMIT_CORE, &limit));
}

/* Starts a child that may dump and runs `body`; gives its status. */
#define DYING(...)                                                                                 \
    ({                                                                                             \
        pid_t hy_dying = FORK();                                                                   \
        if (hy_dying == 0) {                                                                       \
            set_core_limit(RLIM_INFINITY);                                                         \
            if (image) munmap(image, image_size);                                                  \
            __VA_ARGS__;                                                                           \
            _exit(0);                                                                              \
        }                                                                                          \
        WAIT(hy_dying);                                                                            \
    })

static void die(int signal) {
    struct sigaction normal = {.sa_handler = SIG_DFL};
    sigaction(signal, &normal, NULL);
    kill(getpid(), signal);
    _exit(9);
}

#define DUMPED(status, sig)                                                                        \
    do {                                                                                           \
        int hy_st = (status);                                                                      \
        if (!WIFSIGNALED(hy_st) || WTERMSIG(hy_st) != (sig) || !WCOREDUMP(hy_st))                  \
            FAIL("status %#x, not death by %s with a core file", hy_st, #sig);                     \
    } while (0)
#define NOT_DUMPED(status, sig)                                                                    \
    do {                                                                                           \
        int hy_st = (status);                                                                      \
        if (!WIFSIGNALED(hy_st) || WTERMSIG(hy_st) != (sig) || WCOREDUMP(hy_st))                   \
            FAIL("status %#x, not death by %s without a core file", hy_st, #sig);                  \
    } while (0)

static bool exists(const char *path) {
    struct stat st;
    return lstat(path, &st) == 0;
}

static ssize_t put_text(const char *path, const char *text) {
    int fd = OK(open(path, O_RDWR));
    ssize_t n = write(fd, text, strlen(text));
    int error = errno;
    close(fd);
    errno = error;
    return n;
}

/* ---- a core file, read ---------------------------------------------------------------------- */

static Elf64_Ehdr *load(const char *path) {
    int fd = open(path, O_RDONLY);
    if (fd == -1) FAIL("no core file %s: %s", path, strerror(errno));
    struct stat st;
    OK(fstat(fd, &st));
    if (image) munmap(image, image_size);
    image_size = st.st_size;
    image = mmap(NULL, image_size, PROT_READ, MAP_PRIVATE, fd, 0);
    CHECK(image != MAP_FAILED);
    close(fd);
    Elf64_Ehdr *head = (Elf64_Ehdr *)image;
    CHECK(image_size > sizeof *head);
    CHECK(memcmp(head->e_ident, "\177ELF\2\1\1", 7) == 0);
    CHECK_EQ(head->e_type, ET_CORE);
    CHECK_EQ(head->e_machine, EM_X86_64);
    CHECK_EQ(head->e_version, 1);
    CHECK_EQ(head->e_ehsize, sizeof(Elf64_Ehdr));
    CHECK_EQ(head->e_phentsize, sizeof(Elf64_Phdr));
    CHECK(head->e_phoff + head->e_phnum * sizeof(Elf64_Phdr) <= image_size);
    return head;
}

static Elf64_Phdr *segment(int index) {
    Elf64_Ehdr *head = (Elf64_Ehdr *)image;
    return index < head->e_phnum ? (Elf64_Phdr *)(image + head->e_phoff) + index : NULL;
}

/* The piece of memory with an address, stored or not. */
static Elf64_Phdr *piece(const void *address) {
    uintptr_t at = (uintptr_t)address;
    Elf64_Phdr *found = NULL;
    for (int i = 0; segment(i); i++) {
        Elf64_Phdr *p = segment(i);
        if (p->p_type == PT_LOAD && p->p_vaddr <= at && at < p->p_vaddr + p->p_memsz) {
            CHECK(!found);
            CHECK_EQ(p->p_offset % PAGE, 0);
            CHECK(p->p_offset + p->p_filesz <= image_size);
            found = p;
        }
    }
    if (!found) FAIL("no piece of memory with %p", address);
    return found;
}

/* Memory of the dead process; NULL if the file does not hold it. */
static void *memory(const void *address) {
    Elf64_Phdr *p = piece(address);
    uintptr_t at = (uintptr_t)address - p->p_vaddr;
    return at < p->p_filesz ? image + p->p_offset + at : NULL;
}

/* The n-th note of a kind and its size; NULL if there are fewer. */
static void *note(unsigned kind, int n, size_t *size) {
    Elf64_Phdr *notes = segment(0);
    CHECK(notes && notes->p_type == PT_NOTE);
    CHECK(notes->p_offset + notes->p_filesz <= image_size);
    char *at = image + notes->p_offset, *end = at + notes->p_filesz;
    while (at < end) {
        Elf64_Nhdr *head = (Elf64_Nhdr *)at;
        char *name = at + sizeof *head;
        char *body = name + ((head->n_namesz + 3) & ~3u);
        /* Others are of newer processors and kernels, and "LINUX". */
        if (strcmp(name, "CORE") != 0) CHECK_STR(name, "LINUX");
        if (head->n_type == NT_X86_XSTATE) CHECK_STR(name, "LINUX");
        if (head->n_type == kind && n-- == 0) {
            *size = head->n_descsz;
            return body;
        }
        at = body + ((head->n_descsz + 3) & ~3u);
    }
    CHECK(at == end);
    return NULL;
}
static void *sized_note(unsigned kind, int n, size_t want) {
    size_t size = 0;
    void *found = note(kind, n, &size);
    if (!found) FAIL("no note %#x number %d", kind, n);
    CHECK_EQ(size, want);
    return found;
}
static int count_notes(unsigned kind) {
    int n = 0;
    size_t size;
    while (note(kind, n, &size))
        n++;
    return n;
}

/* ---- who is told ---------------------------------------------------------------------------- */

TEST(each_signal_whose_default_is_core_dumps) {
    needs_plain_names();
    int all[] = {SIGQUIT, SIGILL, SIGTRAP, SIGABRT, SIGBUS,
                 SIGFPE,  SIGSEGV, SIGXCPU, SIGXFSZ, SIGSYS};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        int status = DYING(die(all[i]));
        DUMPED(status, all[i]);
        load("core");
        {
            struct elf_prstatus *st = sized_note(NT_PRSTATUS, 0, sizeof *st);
            CHECK_EQ(st->pr_cursig, all[i]);
            CHECK_EQ(st->pr_info.si_signo, all[i]);
        }
        OK(unlink("core"));
    }
    int none[] = {SIGTERM, SIGKILL, SIGHUP, SIGUSR1, SIGALRM, SIGPIPE, SIGRTMIN};
    for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
        NOT_DUMPED(DYING(die(none[i])), none[i]);
        CHECK(!exists("core"));
    }
}

TEST(waitid_and_sigchld_tell_of_the_core) {
    needs_plain_names();
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    OK(sigprocmask(SIG_BLOCK, &set, NULL));
    for (int dumps = 0; dumps < 2; dumps++) {
        pid_t pid = FORK();
        if (pid == 0) {
            set_core_limit(dumps ? RLIM_INFINITY : 0);
            die(SIGABRT);
        }
        siginfo_t info;
        OK(sigwaitinfo(&set, &info));
        CHECK_EQ(info.si_pid, pid);
        CHECK_EQ(info.si_code, dumps ? CLD_DUMPED : CLD_KILLED);
        CHECK_EQ(info.si_status, SIGABRT);
        memset(&info, 0, sizeof info);
        OK(waitid(P_PID, pid, &info, WEXITED | WNOWAIT));
        CHECK_EQ(info.si_code, dumps ? CLD_DUMPED : CLD_KILLED);
        CHECK_EQ(info.si_status, SIGABRT);
        int status = WAIT(pid);
        CHECK_EQ(status, SIGABRT | (dumps ? 0x80 : 0));
    }
}

TEST(a_handled_or_ignored_signal_dumps_nothing) {
    needs_plain_names();
    CHECK_EQ(DYING({
                 signal(SIGQUIT, SIG_IGN);
                 kill(getpid(), SIGQUIT);
                 _exit(3);
             }),
             3 << 8);
    CHECK(!exists("core"));
}

/* ---- notes ---------------------------------------------------------------------------------- */

/* How many threads have come to where they stay. */
static int ready;
/* Sleeps for ever with a number in r12. */
static void *sleeper(void *number) {
    register long value __asm__("r12") = (long)number;
    struct timespec long_time = {1000, 0};
    __asm__ volatile("lock incl %2\n"
                     "1: mov %1, %%rdi\n\txor %%esi, %%esi\n\tmov $35, %%eax\n\tsyscall\n\tjmp 1b"
                     :
                     : "r"(value), "r"(&long_time), "m"(ready)
                     : "rax", "rcx", "rdi", "rsi", "r11", "memory");
    return NULL;
}
static void *spinner(void *number) {
    register long value __asm__("r12") = (long)number;
    __asm__ volatile("lock incl %1\n1: pause\n\tjmp 1b" : : "r"(value), "m"(ready) : "memory");
    return NULL;
}
/* Raises SIGILL with numbers in r12 and xmm5. */
static void *failing(void *number) {
    register long value __asm__("r12") = (long)number;
    __asm__ volatile("movq %0, %%xmm5\n\tud2" : : "r"(value) : "xmm5");
    return NULL;
}
static void *failing_at_last(void *number) {
    EVENTUALLY(__atomic_load_n(&ready, __ATOMIC_SEQ_CST) == 4);
    msleep(50);
    return failing(number);
}

TEST(each_thread_has_notes_and_the_failing_one_is_first) {
    needs_plain_names();
    struct shared {
        pid_t process, failing;
    } *shared = SHARED(PAGE);
    int status = DYING({
        shared->process = getpid();
        pthread_t thread;
        ZERO(pthread_create(&thread, NULL, sleeper, (void *)0x5151));
        ZERO(pthread_create(&thread, NULL, sleeper, (void *)0x5252));
        ZERO(pthread_create(&thread, NULL, spinner, (void *)0x5353));
        ZERO(pthread_create(&thread, NULL, failing_at_last, (void *)0x5454));
        sleeper((void *)0x5050);
    });
    DUMPED(status, SIGILL);
    load("core");
    CHECK_EQ(count_notes(NT_PRSTATUS), 5);
    CHECK_EQ(count_notes(NT_FPREGSET), 5);
    CHECK_EQ(count_notes(NT_PRPSINFO), 1);
    unsigned seen = 0;
    int asleep = 0;
    for (int i = 0; i < 5; i++) {
        struct elf_prstatus *st = sized_note(NT_PRSTATUS, i, 336);
        struct user_regs_struct *regs = (void *)&st->pr_reg;
        CHECK_EQ(st->pr_cursig, SIGILL);
        CHECK_EQ(st->pr_ppid, getpid());
        CHECK_EQ(st->pr_pgrp, getpgrp());
        CHECK_EQ(st->pr_sid, getsid(0));
        CHECK_EQ(st->pr_fpvalid, 1);
        CHECK_EQ(regs->cs, 0x33);
        CHECK_EQ(regs->ss, 0x2b);
        CHECK(regs->fs_base != 0);
        CHECK(regs->r12 >= 0x5050 && regs->r12 <= 0x5454);
        seen |= 1u << ((regs->r12 >> 8) - 0x50);
        if (i == 0) {
            CHECK_EQ(regs->r12, 0x5454);
            CHECK_EQ(regs->orig_rax, -1);
            unsigned char *code = memory((void *)regs->rip);
            /* Text is not stored; where it is, it is the instruction that failed. */
            if (code) CHECK(code[0] == 0x0f && code[1] == 0x0b);
        }
        if (regs->r12 == 0x5050) CHECK_EQ(st->pr_pid, shared->process);
        /* A process that sleeps in a call tells it. */
        if (regs->orig_rax == SYS_nanosleep) asleep++;
    }
    CHECK_EQ(seen, 0x1f);
    CHECK(asleep > 0 && asleep <= 3);
    /* Bytes that the processor does not store are not the kernel's memory. */
    for (int i = 0; i < 5; i++) {
        struct user_fpregs_struct *legacy = sized_note(NT_FPREGSET, i, 512);
        for (int byte = 0; byte < 128; byte++)
            if (byte % 16 >= 10) CHECK_EQ(((unsigned char *)legacy->st_space)[byte], 0);
    }
}

TEST(floating_point_registers_are_told) {
    needs_plain_names();
    DUMPED(DYING(failing((void *)0x1122334455667788)), SIGILL);
    load("core");
    struct user_fpregs_struct *legacy = sized_note(NT_FPREGSET, 0, 512);
    CHECK_EQ(legacy->cwd, 0x037f);
    CHECK_EQ(legacy->mxcsr, 0x1f80);
    uint64_t low;
    memcpy(&low, (char *)legacy->xmm_space + 5 * 16, 8);
    CHECK_EQ(low, 0x1122334455667788);
    size_t size;
    char *full = note(NT_X86_XSTATE, 0, &size);
    unsigned a, b, c, d;
    __asm__("cpuid" : "=a"(a), "=b"(b), "=c"(c), "=d"(d) : "a"(1), "c"(0));
    CHECK_EQ(!!full, !!(c & 1u << 27));
    if (full) {
        uint64_t enabled;
        __asm__("xgetbv" : "=a"(a), "=d"(d) : "c"(0));
        CHECK(size >= 576);
        memcpy(&enabled, full + 464, 8);
        /* Protection keys and the like may be left out for programs. */
        CHECK_EQ(enabled & ~(uint64_t)a, 0);
        CHECK_EQ(enabled & 3, 3);
        memcpy(&low, full + 160 + 5 * 16, 8);
        CHECK_EQ(low, 0x1122334455667788);
    }
}

TEST(the_process_is_described) {
    needs_plain_names();
    pid_t *dead = SHARED(PAGE);
    int status = DYING({
        *dead = getpid();
        setpriority(PRIO_PROCESS, 0, 5);
        prctl(PR_SET_NAME, "a new name");
        die(SIGQUIT);
    });
    DUMPED(status, SIGQUIT);
    load("core");
    struct elf_prpsinfo *info = sized_note(NT_PRPSINFO, 0, 136);
    CHECK_EQ(info->pr_pid, *dead);
    CHECK_EQ(info->pr_ppid, getpid());
    CHECK_EQ(info->pr_pgrp, getpgrp());
    CHECK_EQ(info->pr_sid, getsid(0));
    CHECK_EQ(info->pr_uid, getuid());
    CHECK_EQ(info->pr_gid, getgid());
    CHECK_EQ(info->pr_nice, 5);
    CHECK_EQ(info->pr_sname, 'R');
    CHECK_EQ(info->pr_zomb, 0);
    CHECK_STR(info->pr_fname, "a new name");
    char line[4096] = "", want[80] = "";
    ssize_t n = get_file("/proc/self/cmdline", line, sizeof line);
    for (ssize_t i = 0; i < n && i < 79; i++)
        want[i] = line[i] ? line[i] : ' ';
    CHECK(memcmp(info->pr_psargs, want, 80) == 0);

    size_t size;
    Elf64_auxv_t *vector = note(NT_AUXV, 0, &size);
    CHECK(vector);
    bool found = false;
    for (size_t i = 0; i < size / sizeof *vector; i++)
        if (vector[i].a_type == AT_PHDR) {
            found = true;
            CHECK_EQ(vector[i].a_un.a_val, getauxval(AT_PHDR));
        }
    CHECK(found);
}

TEST(the_shared_object_of_the_kernel_is_stored) {
    needs_plain_names();
    void *object = (void *)getauxval(AT_SYSINFO_EHDR);
    if (!object) SKIP("there is none");
    DUMPED(DYING({
               OK(put_text("/proc/self/coredump_filter", "0"));
               die(SIGABRT);
           }),
           SIGABRT);
    load("core");
    CHECK_EQ(piece(object)->p_flags, PF_R | PF_X);
    char *stored = memory(object);
    CHECK(stored);
    CHECK(memcmp(stored, object, PAGE) == 0);
}

TEST(the_signal_is_told_with_its_cause) {
    needs_plain_names();
    char *nowhere = BAD;
    DUMPED(DYING(*(volatile char *)nowhere = 1), SIGSEGV);
    load("core");
    siginfo_t *info = sized_note(NT_SIGINFO, 0, 128);
    CHECK_EQ(info->si_signo, SIGSEGV);
    CHECK_EQ(info->si_code, SEGV_MAPERR);
    CHECK(info->si_addr == nowhere);
    pid_t *dead = SHARED(PAGE);
    DUMPED(DYING({
               *dead = getpid();
               sigqueue(getpid(), SIGQUIT, (union sigval){.sival_int = 77});
           }),
           SIGQUIT);
    load("core");
    info = sized_note(NT_SIGINFO, 0, 128);
    CHECK_EQ(info->si_code, SI_QUEUE);
    CHECK_EQ(info->si_value.sival_int, 77);
    CHECK_EQ(info->si_pid, *dead);
}

TEST(mapped_files_are_listed) {
    needs_plain_names();
    PUT("mapped", "text of two pages");
    OK(truncate("mapped", 2 * PAGE));
    int fd = OK(open("mapped", O_RDONLY));
    char *at = mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, fd, PAGE);
    CHECK(at != MAP_FAILED);
    DUMPED(DYING(die(SIGABRT)), SIGABRT);
    load("core");
    size_t size;
    uint64_t *list = note(NT_FILE, 0, &size);
    CHECK(list);
    uint64_t count = list[0];
    CHECK_EQ(list[1], PAGE);
    CHECK(count > 0 && count < 100);
    char *name = (char *)(list + 2 + 3 * count), *end = (char *)list + size;
    char path[PATH_MAX];
    CHECK(realpath("mapped", path));
    bool found = false, program = false;
    for (uint64_t i = 0; i < count; i++) {
        uint64_t *entry = list + 2 + 3 * i;
        CHECK(name < end);
        if (entry[0] == (uintptr_t)at) {
            found = true;
            CHECK_EQ(entry[1], (uintptr_t)at + PAGE);
            CHECK_EQ(entry[2], 1);
            CHECK_STR(name, path);
        }
        program |= strcmp(name, hy_self) == 0;
        name += strlen(name) + 1;
    }
    CHECK(name == end);
    CHECK(found && program);
}

/* ---- memory --------------------------------------------------------------------------------- */

static char global[3 * PAGE] = "initialised";

TEST(memory_that_was_written_is_stored) {
    needs_plain_names();
    char local[] = "on the stack";
    char *heap = malloc(100000);
    strcpy(heap, "on the heap");
    char *mapped = mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *hidden = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *left_out = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    strcpy(mapped + 2 * PAGE, "mapped");
    strcpy(hidden, "hidden");
    strcpy(left_out, "left out");
    OK(mprotect(hidden, PAGE, PROT_NONE));
    OK(madvise(left_out, PAGE, MADV_DONTDUMP));
    char *untouched = mmap(NULL, 8 * PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    DUMPED(DYING({
               strcpy(global + PAGE, "changed");
               die(SIGABRT);
           }),
           SIGABRT);
    load("core");
    CHECK_STR(memory(local), "on the stack");
    CHECK_STR(memory(heap), "on the heap");
    CHECK_STR(memory(mapped + 2 * PAGE), "mapped");
    CHECK_STR(memory(mapped), "");
    CHECK_STR(memory(hidden), "hidden");
    CHECK_STR(memory(global), "initialised");
    CHECK_STR(memory(global + PAGE), "changed");
    CHECK_EQ(piece(mapped)->p_flags, PF_R | PF_W);
    CHECK_EQ(piece(hidden)->p_flags, 0);
    CHECK(!memory(left_out));
    CHECK(piece(left_out)->p_memsz >= PAGE);
    CHECK(!memory(untouched));
    /* The program's text is not stored, but its first page is. */
    Elf64_Phdr *text = piece((void *)(uintptr_t)load);
    CHECK_EQ(text->p_flags, PF_R | PF_X);
    /* In supervisor mode its call sites are patched, so it was written. */
    if (!in_supervisor_mode())
        CHECK_EQ(text->p_filesz, 0);
    char *head = memory((void *)(getauxval(AT_PHDR) & ~(PAGE - 1)));
    CHECK(head && memcmp(head, "\177ELF", 4) == 0);
}

TEST(untouched_pages_are_holes) {
    needs_plain_names();
    size_t size = 64 << 20;
    char *mapped = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    OK(madvise(mapped, size, MADV_NOHUGEPAGE));
    mapped[0] = 1;
    mapped[size / 2] = 2;
    DUMPED(DYING(die(SIGABRT)), SIGABRT);
    load("core");
    CHECK_EQ(piece(mapped)->p_filesz, size);
    CHECK_EQ(*(char *)memory(mapped), 1);
    CHECK_EQ(*(char *)memory(mapped + size / 2), 2);
    CHECK_EQ(*(char *)memory(mapped + size - 1), 0);
    struct stat st;
    OK(stat("core", &st));
    CHECK((size_t)st.st_size > size);
    CHECK((size_t)st.st_blocks * 512 < size / 4);
}

/* ---- which memory --------------------------------------------------------------------------- */

static unsigned long filter_of(const char *path) {
    char text[64] = "";
    if (get_file(path, text, sizeof text) != 9) FAIL("%s is \"%s\"", path, text);
    return strtoul(text, NULL, 16);
}
static ssize_t put_filter(const char *text) {
    return put_text("/proc/self/coredump_filter", text);
}

HELPER(filter) {
    printf("%lx", filter_of("/proc/self/coredump_filter"));
    fflush(stdout);
    return 0;
}

TEST(coredump_filter_is_read_written_and_inherited) {
    IN_CHILD({
        CHECK_EQ(OK(put_filter("0x33")), 4);
        CHECK_EQ(filter_of("/proc/self/coredump_filter"), 0x33);
        CHECK_EQ(OK(put_filter("010\n")), 4);
        CHECK_EQ(filter_of("/proc/self/coredump_filter"), 8);
        /* Bits that mean nothing are dropped. */
        CHECK_EQ(OK(put_filter("0xfffffe01")), 10);
        CHECK_EQ(filter_of("/proc/self/coredump_filter"), 1);
        CHECK_EQ(OK(put_filter("21")), 2);
        ERR(put_filter("x"), EINVAL);
        ERR(put_filter("1 2"), EINVAL);
        ERR(put_filter("0x"), EINVAL);
        ERR(put_filter("08"), EINVAL);
        ERR(put_filter("-1"), EINVAL);
        ERR(put_filter("\n"), EINVAL);
        ERR(put_filter("0x100000000"), ERANGE);
        CHECK_EQ(filter_of("/proc/self/coredump_filter"), 21);
        IN_CHILD(CHECK_EQ(filter_of("/proc/self/coredump_filter"), 21));
        int out[2];
        OK(pipe(out));
        pid_t pid = FORK();
        if (pid == 0) {
            dup2(out[1], 1);
            execl(hy_self, hy_self, "--helper", "filter", NULL);
            _exit(1);
        }
        EXITS(pid, 0);
        char text[8] = "";
        OK(read(out[0], text, 7));
        CHECK_STR(text, "15");
    });
    struct stat st;
    OK(stat("/proc/self/coredump_filter", &st));
    CHECK_EQ(st.st_mode, S_IFREG | 0644);
}

TEST(coredump_filter_of_a_zombie_is_empty) {
    pid_t pid = FORK();
    if (pid == 0) _exit(0);
    char path[64], text[64];
    siginfo_t info;
    OK(waitid(P_PID, pid, &info, WEXITED | WNOWAIT));
    snprintf(path, sizeof path, "/proc/%d/coredump_filter", pid);
    CHECK_EQ(get_file(path, text, sizeof text), 0);
    int fd = OK(open(path, O_WRONLY));
    if (geteuid() == 0) ERR(write(fd, "1", 1), ESRCH);
    EXITS(pid, 0);
    ERR(write(fd, "1", 1), ESRCH);
}

TEST(the_filter_chooses_the_memory) {
    needs_plain_names();
    PUT("file", "file");
    OK(truncate("file", 2 * PAGE));
    int fd = OK(open("file", O_RDWR));
    char *private = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    strcpy(private, "private");
    char *shared = SHARED(PAGE);
    strcpy(shared, "shared");
    char *of_file = mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, fd, PAGE);
    char *written = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, PAGE);
    strcpy(written, "written");
    char *of_shared = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    int memfd = OK(syscall(SYS_memfd_create, "m", 0));
    OK(ftruncate(memfd, PAGE));
    char *nameless = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, memfd, 0);
    strcpy(nameless, "nameless");
    void *head = (void *)(getauxval(AT_PHDR) & ~(PAGE - 1));
    for (unsigned bits = 0; bits < 32; bits++) {
        char text[16];
        snprintf(text, sizeof text, "%u", bits);
        DUMPED(DYING({
                   OK(put_filter(text));
                   die(SIGABRT);
               }),
               SIGABRT);
        load("core");
        CHECK_EQ(memory(private) != NULL, bits & 1);
        CHECK_EQ(memory(shared) != NULL, bits >> 1 & 1);
        CHECK_EQ(memory(nameless) != NULL, bits >> 1 & 1);
        CHECK_EQ(memory(of_file) != NULL, bits >> 2 & 1);
        CHECK_EQ(memory(written) != NULL, (bits & 5) != 0);
        CHECK_EQ(memory(of_shared) != NULL, bits >> 3 & 1);
        CHECK_EQ(memory(head) != NULL, (bits & 0x14) != 0);
        if (bits & 2) CHECK_STR(memory(nameless), "nameless");
        if (bits & 5) CHECK_STR(memory(written), "written");
        if (bits & 8) CHECK_STR(memory(of_shared), "file");
    }
}

/* ---- limits --------------------------------------------------------------------------------- */

TEST(the_limit_decides_whether_and_how_much) {
    needs_plain_names();
    rlim_t none[] = {0, 1, 4095};
    for (size_t i = 0; i < 3; i++) {
        NOT_DUMPED(DYING({
                       set_core_limit(none[i]);
                       die(SIGABRT);
                   }),
                   SIGABRT);
        CHECK(!exists("core"));
    }
    static char big[64 * PAGE];
    for (size_t i = 0; i < sizeof big; i += PAGE)
        big[i] = 1;
    DUMPED(DYING(die(SIGABRT)), SIGABRT);
    struct stat whole, cut;
    OK(stat("core", &whole));
    rlim_t some[] = {4096, 4097, 40000, 100000};
    for (size_t i = 0; i < 4; i++) {
        /* A part is a core file, too. */
        DUMPED(DYING({
                   set_core_limit(some[i]);
                   die(SIGABRT);
               }),
               SIGABRT);
        OK(stat("core", &cut));
        CHECK(cut.st_size < whole.st_size);
        /* Holes do not count, so the size says less than the blocks do. */
        CHECK(cut.st_blocks * 512 <= (blkcnt_t)(some[i] + 4 * PAGE));
        if (some[i] >= 40000) {
            CHECK(cut.st_size > 16384);
            int fd = OK(open("core", O_RDONLY));
            char magic[4];
            CHECK_EQ(OK(read(fd, magic, 4)), 4);
            CHECK(memcmp(magic, "\177ELF", 4) == 0);
            close(fd);
        }
    }
    /* A file may not be longer than RLIMIT_FSIZE either, and SIGXFSZ kills nobody twice. */
    DUMPED(DYING({
               struct rlimit size = {20000, 20000};
               OK(setrlimit(RLIMIT_FSIZE, &size));
               die(SIGABRT);
           }),
           SIGABRT);
    OK(stat("core", &cut));
    /* With patched text a hole may reach across the limit. */
    if (in_supervisor_mode())
        CHECK(cut.st_size > 4096 && cut.st_size <= 20000);
    else
        CHECK_EQ(cut.st_size, 20000);
}

/* ---- the file ------------------------------------------------------------------------------- */

TEST(the_file_is_the_users_alone_and_in_the_working_directory) {
    needs_plain_names();
    OK(mkdir("below", 0777));
    umask(0);
    DUMPED(DYING({
               OK(chdir("below"));
               die(SIGABRT);
           }),
           SIGABRT);
    struct stat st;
    OK(lstat("below/core", &st));
    CHECK_EQ(st.st_mode, S_IFREG | 0600);
    CHECK_EQ(st.st_uid, geteuid());
    CHECK_EQ(st.st_nlink, 1);
    CHECK(!exists("core"));
    /* Not if the owner could not read it. */
    NOT_DUMPED(DYING({
                   umask(0400);
                   die(SIGABRT);
               }),
               SIGABRT);
    if (geteuid() == 0) {
        OK(chmod(".", 0777));
        DUMPED(DYING({
                   BECOME(NOBODY, NOBODY);
                   OK(prctl(PR_SET_DUMPABLE, 1));
                   unlink("core");
                   die(SIGABRT);
               }),
               SIGABRT);
        OK(lstat("core", &st));
        CHECK_EQ(st.st_uid, NOBODY);
        OK(unlink("core"));
        OK(chmod(".", 0755));
        NOT_DUMPED(DYING({
                       BECOME(NOBODY, NOBODY);
                       OK(prctl(PR_SET_DUMPABLE, 1));
                       die(SIGABRT);
                   }),
                   SIGABRT);
        CHECK(!exists("core"));
    }
    OK(rmdir("below") == -1 ? 0 : -1);
    OK(unlink("below/core"));
    NOT_DUMPED(DYING({
                   OK(chdir("below"));
                   OK(rmdir("../below"));
                   die(SIGABRT);
               }),
               SIGABRT);
}

TEST(what_bears_the_name_is_replaced_and_never_written_to) {
    needs_plain_names();
    struct stat st;
    PUT("victim", "victim");
    char text[64];
    /* A link to elsewhere. */
    OK(symlink("victim", "core"));
    DUMPED(DYING(die(SIGABRT)), SIGABRT);
    OK(lstat("core", &st));
    CHECK(S_ISREG(st.st_mode));
    OK(unlink("core"));
    /* Another name of a file. */
    OK(link("victim", "core"));
    DUMPED(DYING(die(SIGABRT)), SIGABRT);
    OK(stat("core", &st));
    CHECK_EQ(st.st_nlink, 1);
    OK(unlink("core"));
    get_file("victim", text, sizeof text);
    CHECK_STR(text, "victim");
    /* A file that others may read, and have open. */
    PUT_MODE("core", "old", 0644);
    int fd = OK(open("core", O_RDONLY));
    DUMPED(DYING(die(SIGABRT)), SIGABRT);
    OK(stat("core", &st));
    CHECK_EQ(st.st_mode & 07777, 0600);
    CHECK_EQ(OK(read(fd, text, sizeof text)), 3);
    OK(unlink("core"));
    /* A pipe would block. */
    OK(mkfifo("core", 0600));
    DUMPED(DYING(die(SIGABRT)), SIGABRT);
    OK(stat("core", &st));
    CHECK(S_ISREG(st.st_mode));
    OK(unlink("core"));
    /* A directory stays. */
    OK(mkdir("core", 0700));
    NOT_DUMPED(DYING(die(SIGABRT)), SIGABRT);
    OK(stat("core", &st));
    CHECK(S_ISDIR(st.st_mode));
}

HELPER(abort) {
    set_core_limit(RLIM_INFINITY);
    die(SIGABRT);
    return 0;
}

TEST(what_hides_its_memory_is_not_dumped) {
    needs_plain_names();
    NOT_DUMPED(DYING({
                   OK(prctl(PR_SET_DUMPABLE, 0));
                   die(SIGABRT);
               }),
               SIGABRT);
    CHECK(!exists("core"));
    if (geteuid() != 0) return;
    OK(chmod(".", 0777));
    /* A process that changed its user. */
    NOT_DUMPED(DYING({
                   BECOME(NOBODY, NOBODY);
                   die(SIGABRT);
               }),
               SIGABRT);
    CHECK(!exists("core"));
    /* Programs that may not be read, and that gain rights. */
    static const mode_t modes[] = {0711, 04755, 0755};
    for (int i = 0; i < 3; i++) {
        COPY(hy_self, "program", modes[i]);
        OK(chmod("program", modes[i]));
        int status = DYING({
            BECOME(NOBODY, NOBODY);
            execl("./program", "program", "--helper", "abort", NULL);
            _exit(1);
        });
        if (i == 2)
            DUMPED(status, SIGABRT);
        else
            NOT_DUMPED(status, SIGABRT);
        CHECK_EQ(exists("core"), i == 2);
        OK(unlink("program"));
    }
}

/* ---- SIGKILL -------------------------------------------------------------------------------- */

TEST_TIMES(sigkill_ends_a_dump, 3) {
    needs_plain_names();
    size_t size = 96 << 20;
    char *much = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(much != MAP_FAILED);
    memset(much, 1, size);
    for (int try = 0; try < 20; try++) {
        pid_t pid = FORK();
        if (pid == 0) {
            set_core_limit(RLIM_INFINITY);
            pthread_t thread;
            ZERO(pthread_create(&thread, NULL, spinner, NULL));
            die(SIGABRT);
        }
        struct stat st = {0};
        while (stat("core", &st) == -1 || st.st_size == 0) {
            siginfo_t info = {0};
            OK(waitid(P_PID, pid, &info, WEXITED | WNOHANG | WNOWAIT));
            if (info.si_pid) break;
        }
        /* Others do not reach it any more. */
        OK(kill(pid, SIGTERM));
        OK(kill(pid, SIGKILL));
        int status = WAIT(pid);
        OK(stat("core", &st));
        OK(unlink("core"));
        if (status == SIGKILL) {
            CHECK((size_t)st.st_size < size);
            return;
        }
        DUMPED(status, SIGABRT);
    }
    FAIL("each dump was faster than the signal");
}

/* ---- names ---------------------------------------------------------------------------------- */

static char old_pattern[256], old_uses[16];
static int put_setting(const char *path, const char *text) {
    return put_text(path, text) == (ssize_t)strlen(text) ? 0 : -1;
}
static void restore_names(void) {
    OK(put_setting("/proc/sys/kernel/core_pattern", old_pattern));
    OK(put_setting("/proc/sys/kernel/core_uses_pid", old_uses));
}
static void change_names(void) {
    NEEDS_OWN_MACHINE();
    CHECK(get_file("/proc/sys/kernel/core_pattern", old_pattern, sizeof old_pattern) > 0);
    CHECK(get_file("/proc/sys/kernel/core_uses_pid", old_uses, sizeof old_uses) > 0);
}
/* The core file that a pattern makes of the dying process has this name. */
static void names(const char *pattern, const char *uses_pid, const char *want) {
    char here[PATH_MAX], name[PATH_MAX];
    OK(put_setting("/proc/sys/kernel/core_pattern", pattern));
    OK(put_setting("/proc/sys/kernel/core_uses_pid", uses_pid));
    pid_t *dead = SHARED(PAGE);
    time_t before = time(NULL);
    int status = DYING({
        *dead = getpid();
        prctl(PR_SET_NAME, "a/b");
        set_core_limit(123456789);
        die(SIGABRT);
    });
    restore_names();
    DUMPED(status, SIGABRT);
    snprintf(name, sizeof name, want, *dead, *dead);
    CHECK(getcwd(here, sizeof here));
    if (strcmp(want, "TIME") == 0) {
        int found = 0;
        for (time_t t = before; t <= time(NULL); t++) {
            snprintf(name, sizeof name, "core.%ld", (long)t);
            found += exists(name);
        }
        CHECK_EQ(found, 1);
        return;
    }
    if (!exists(name)) FAIL("no \"%s\" by pattern \"%s\"", name, pattern);
    OK(unlink(name));
}

TEST(the_pattern_makes_the_name) {
    change_names();
    char host[128] = "", want[2 * PATH_MAX], escaped[PATH_MAX];
    OK(gethostname(host, sizeof host - 1));
    names("core", "0", "core");
    names("core", "1", "core.%d");
    names("core", "-7", "core.%d");
    names("c-%p", "1", "c-%d");
    names("c-%P.%i.%I", "0", "c-%1$d.%1$d.%1$d");
    names("c-%P", "1", "c-%d.%d");
    snprintf(want, sizeof want, "u%ug%us%dd1c123456789%%%%x", getuid(), getgid(), SIGABRT);
    names("u%ug%us%sd%dc%c%%%zx%", "0", want);
    snprintf(want, sizeof want, "%s-a!b", host);
    names("%h-%e", "0", want);
    strcpy(escaped, hy_self);
    for (char *at = escaped; *at; at++)
        if (*at == '/') *at = '!';
    names("core%E", "0", strcat(strcpy(want, "core"), escaped));
    names("%f.x", "0", strcat(strcpy(want, strrchr(hy_self, '/') + 1), ".x"));
    names("core.%t", "0", "TIME");
    char here[PATH_MAX];
    CHECK(getcwd(here, sizeof here));
    OK(mkdir("other", 0777));
    snprintf(want, sizeof want, "%s/other/core", here);
    /* Patterns are short; a case's directory is not always. */
    if (strlen(want) < 120) names(want, "0", want);
    names("other/%p", "0", "other/%d");
}

TEST(patterns_that_lead_nowhere_make_no_file) {
    change_names();
    const char *all[] = {"", "missing/core", "/", ".", "other/"};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        OK(put_setting("/proc/sys/kernel/core_pattern", *all[i] ? all[i] : "\n"));
        int status = DYING(die(SIGABRT));
        restore_names();
        NOT_DUMPED(status, SIGABRT);
    }
}

TEST(the_pattern_is_kept_as_it_was_written) {
    change_names();
    char text[256], longest[200];
    OK(put_setting("/proc/sys/kernel/core_pattern", "one two%p\nthree"));
    get_file("/proc/sys/kernel/core_pattern", text, sizeof text);
    restore_names();
    CHECK_STR(text, "one two%p\n");
    memset(longest, 'x', sizeof longest);
    longest[199] = 0;
    OK(put_setting("/proc/sys/kernel/core_pattern", longest));
    get_file("/proc/sys/kernel/core_pattern", text, sizeof text);
    restore_names();
    CHECK_EQ(strlen(text), 128);
    OK(put_setting("/proc/sys/kernel/core_uses_pid", "12\n"));
    get_file("/proc/sys/kernel/core_uses_pid", text, sizeof text);
    restore_names();
    CHECK_STR(text, "12\n");
    ERR(put_setting("/proc/sys/kernel/core_uses_pid", "x"), EINVAL);
    struct stat st;
    OK(stat("/proc/sys/kernel/core_pattern", &st));
    CHECK_EQ(st.st_mode, S_IFREG | 0644);
}
