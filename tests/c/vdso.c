/* The shared object that the kernel shows to programs: vdso(7). */
#define AREA "vdso"
#include "harness.h"
#include <elf.h>
#include <sys/auxv.h>
#include <ucontext.h>

typedef long gettime_fn(clockid_t, struct timespec *);

/* The parts of the object that a dynamic linker finds. */
static struct object {
    const char *base; /* what addresses are counted from */
    size_t size;
    const Elf64_Sym *symbols;
    const char *strings, *name;
    const uint32_t *hash;
    const uint16_t *versions;
    const Elf64_Verdef *names;
    int unwinds;
} object;

static const char *header(void) { return (const char *)getauxval(AT_SYSINFO_EHDR); }

static void read_object(void) {
    const char *at = header();
    if (!at)
        SKIP("the kernel shows no object");
    const Elf64_Ehdr *elf = (const void *)at;
    CHECK(memcmp(elf->e_ident, ELFMAG, SELFMAG) == 0);
    CHECK_EQ(elf->e_type, ET_DYN);
    CHECK_EQ(elf->e_machine, EM_X86_64);
    const Elf64_Phdr *part = (const void *)(at + elf->e_phoff);
    const Elf64_Dyn *dynamic = NULL;
    for (int i = 0; i < elf->e_phnum; i++) {
        if (part[i].p_type == PT_LOAD) {
            CHECK_EQ(part[i].p_flags, PF_R | PF_X);
            object.base = at + part[i].p_offset - part[i].p_vaddr;
            object.size = part[i].p_memsz;
        } else if (part[i].p_type == PT_DYNAMIC) {
            dynamic = (const void *)(at + part[i].p_offset);
        } else if (part[i].p_type == PT_GNU_EH_FRAME)
            object.unwinds = 1;
    }
    CHECK(object.base && dynamic);
    for (; dynamic->d_tag != DT_NULL; dynamic++) {
        const char *there = object.base + dynamic->d_un.d_ptr;
        switch (dynamic->d_tag) {
        case DT_SYMTAB: object.symbols = (const void *)there; break;
        case DT_STRTAB: object.strings = there; break;
        case DT_HASH: object.hash = (const void *)there; break;
        case DT_VERSYM: object.versions = (const void *)there; break;
        case DT_VERDEF: object.names = (const void *)there; break;
        }
    }
    CHECK(object.symbols && object.strings && object.versions && object.names);
}

static uint32_t elf_hash(const char *name) {
    uint32_t hash = 0, high;
    for (; *name; name++) {
        hash = (hash << 4) + (unsigned char)*name;
        high = hash & 0xf0000000;
        hash = (hash ^ high >> 24) & ~high;
    }
    return hash;
}

/* The name of a symbol's version. */
static const char *version_of(int index) {
    const Elf64_Verdef *def = object.names;
    for (;; def = (const void *)((const char *)def + def->vd_next)) {
        const Elf64_Verdaux *aux = (const void *)((const char *)def + def->vd_aux);
        const char *name = object.strings + aux->vda_name;
        CHECK_EQ(def->vd_hash, elf_hash(name));
        if (def->vd_ndx == (object.versions[index] & 0x7fff) && !(def->vd_flags & VER_FLG_BASE))
            return name;
        CHECK(def->vd_next);
    }
}

/* A function of the object, found by its hash table where it has one of the old form. */
static void *function(const char *name) {
    if (!object.base)
        read_object();
    if (!object.hash)
        SKIP("the object has no DT_HASH");
    uint32_t buckets = object.hash[0];
    uint32_t at = object.hash[2 + elf_hash(name) % buckets];
    for (; at; at = object.hash[2 + buckets + at]) {
        const Elf64_Sym *symbol = &object.symbols[at];
        if (strcmp(object.strings + symbol->st_name, name) != 0)
            continue;
        CHECK_EQ(ELF64_ST_TYPE(symbol->st_info), STT_FUNC);
        CHECK_STR(version_of(at), "LINUX_2.6");
        CHECK(symbol->st_shndx != SHN_UNDEF);
        CHECK(symbol->st_value + symbol->st_size <= object.size);
        return (void *)(object.base + symbol->st_value);
    }
    FAIL("no %s", name);
}
static long shown_gettime(clockid_t clock, struct timespec *t) {
    static gettime_fn *gettime;
    if (!gettime)
        gettime = function("__vdso_clock_gettime");
    return gettime(clock, t);
}
static int64_t in_ns(struct timespec t) { return t.tv_sec * 1000000000LL + t.tv_nsec; }
static int64_t by_object(clockid_t clock) {
    struct timespec t = {-1, -1};
    CHECK_EQ(shown_gettime(clock, &t), 0);
    CHECK(t.tv_nsec >= 0 && t.tv_nsec < 1000000000);
    return in_ns(t);
}
static int64_t by_call(clockid_t clock) {
    struct timespec t = {-1, -1};
    OK(syscall(SYS_clock_gettime, clock, &t));
    return in_ns(t);
}

TEST(object_has_the_functions_of_the_manual_page) {
    static const char *const names[] = {"__vdso_clock_gettime", "__vdso_getcpu",
                                        "__vdso_gettimeofday", "__vdso_time",
                                        "__vdso_clock_getres"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        CHECK(function(names[i]));
    CHECK(object.unwinds);
}

static const clockid_t clocks[] = {CLOCK_REALTIME, CLOCK_MONOTONIC, CLOCK_MONOTONIC_RAW,
                                   CLOCK_REALTIME_COARSE, CLOCK_MONOTONIC_COARSE, CLOCK_BOOTTIME};

TEST(clocks_agree_with_the_system_call) {
    for (size_t i = 0; i < sizeof clocks / sizeof *clocks; i++)
        for (int round = 0; round < 2000; round++) {
            int64_t before = by_call(clocks[i]), seen = by_object(clocks[i]),
                    after = by_call(clocks[i]);
            if (seen < before || seen > after)
                FAIL("clock %d: %lld, %lld, %lld", clocks[i], (long long)before, (long long)seen,
                     (long long)after);
        }
}

TEST(other_clocks_are_read_by_the_kernel) {
    struct timespec t;
    for (volatile int i = 0; i < 1000000; i++)
        ;
    CHECK(by_object(CLOCK_PROCESS_CPUTIME_ID) > 0);
    CHECK(by_object(CLOCK_THREAD_CPUTIME_ID) > 0);
    CHECK(by_object(CLOCK_TAI) > 0);
    CHECK_EQ(shown_gettime(99, &t), -EINVAL);
    CHECK_EQ(shown_gettime(-1, &t), -EINVAL);
    CHECK_EQ(shown_gettime(10, &t), -EINVAL);
    /* The kernel's copy is checked. */
    CHECK_EQ(shown_gettime(CLOCK_PROCESS_CPUTIME_ID, (void *)BAD), -EFAULT);
}

TEST(resolutions) {
    long (*getres)(clockid_t, struct timespec *) = function("__vdso_clock_getres");
    for (size_t i = 0; i < sizeof clocks / sizeof *clocks; i++) {
        struct timespec shown = {-1, -1}, called = {-1, -1};
        CHECK_EQ(getres(clocks[i], &shown), 0);
        OK(syscall(SYS_clock_getres, clocks[i], &called));
        CHECK_EQ(in_ns(shown), in_ns(called));
        CHECK_EQ(getres(clocks[i], NULL), 0);
    }
    struct timespec t = {-1, -1};
    CHECK_EQ(getres(CLOCK_PROCESS_CPUTIME_ID, &t), 0);
    CHECK(t.tv_sec == 0 && t.tv_nsec > 0);
    CHECK_EQ(getres(99, &t), -EINVAL);
}

TEST(time_of_day) {
    long (*gettimeofday)(struct timeval *, struct timezone *) = function("__vdso_gettimeofday");
    time_t (*get_seconds)(time_t *) = function("__vdso_time");
    for (int i = 0; i < 1000; i++) {
        struct timeval t = {-1, -1};
        int64_t before = by_call(CLOCK_REALTIME) / 1000;
        CHECK_EQ(gettimeofday(&t, NULL), 0);
        int64_t seen = t.tv_sec * 1000000LL + t.tv_usec;
        CHECK(t.tv_usec >= 0 && t.tv_usec < 1000000);
        CHECK(seen >= before && seen <= by_call(CLOCK_REALTIME) / 1000);
    }
    struct timezone shown = {-1, -1}, called = {-2, -2};
    struct timeval t = {-1, -1};
    CHECK_EQ(gettimeofday(&t, &shown), 0);
    CHECK(t.tv_sec > 0);
    OK(syscall(SYS_gettimeofday, NULL, &called));
    CHECK_EQ(shown.tz_minuteswest, called.tz_minuteswest);
    CHECK_EQ(gettimeofday(NULL, NULL), 0);

    time_t stored = 0, before = syscall(SYS_time, NULL), seen = get_seconds(&stored);
    CHECK(seen >= before && seen <= before + 5);
    CHECK_EQ(stored, seen);
    CHECK(get_seconds(NULL) >= seen);
}

TEST(processor_number) {
    long (*getcpu)(unsigned *, unsigned *, void *) = function("__vdso_getcpu");
    cpu_set_t all, one;
    OK(sched_getaffinity(0, sizeof all, &all));
    for (int i = 0; i < CPU_SETSIZE; i++) {
        if (!CPU_ISSET(i, &all))
            continue;
        CPU_ZERO(&one);
        CPU_SET(i, &one);
        OK(sched_setaffinity(0, sizeof one, &one));
        unsigned cpu = -1, node = -1, called = -1, called_node = -1;
        CHECK_EQ(getcpu(&cpu, &node, NULL), 0);
        OK(syscall(SYS_getcpu, &called, &called_node, NULL));
        CHECK_EQ(cpu, i);
        CHECK_EQ(called, i);
        CHECK_EQ(node, called_node);
        CHECK_EQ(getcpu(NULL, NULL, NULL), 0);
    }
}

/* The program stores what it is given itself, so a bad address is its fault. */
TEST(bad_addresses_are_the_programs_own_faults) {
    function("__vdso_clock_gettime");
    pid_t pid = FORK();
    if (pid == 0) {
        shown_gettime(CLOCK_MONOTONIC, (void *)BAD);
        _exit(0);
    }
    KILLED(pid, SIGSEGV);
}

static void in_child(void (*act)(char *)) {
    pid_t pid = FORK();
    if (pid == 0) {
        act((char *)header());
        _exit(0);
    }
    int status = WAIT(pid);
    /* Pages before the object's may be of devices that Linux does not use: SIGBUS. */
    CHECK(WIFSIGNALED(status) && (WTERMSIG(status) == SIGSEGV || WTERMSIG(status) == SIGBUS));
}
static void write_there(char *at) { *(volatile char *)at = 0; }
static void write_before(char *at) { ((volatile char *)at)[-8] = 0; }
static void run_before(char *at) { ((void (*)(void))(at - 8))(); }
static void run_far_behind(char *at) { ((void (*)(void))(at + 64 * PAGE))(); }

TEST(object_is_protected) {
    if (!header())
        SKIP("the kernel shows no object");
    in_child(write_there);
    in_child(write_before);
    in_child(run_before);
    in_child(run_far_behind);
}

TEST(maps_show_it) {
    FILE *maps = fopen("/proc/self/maps", "r");
    char text[512], right[5];
    unsigned long start, end, found = 0;
    CHECK(maps);
    while (fgets(text, sizeof text, maps))
        if (strstr(text, "[vdso]")) {
            CHECK_EQ(sscanf(text, "%lx-%lx %4s", &start, &end, right), 3);
            CHECK_STR(right, "r-xp");
            CHECK(end > start && (end - start) % PAGE == 0);
            found = start;
        }
    fclose(maps);
    CHECK_EQ(found, getauxval(AT_SYSINFO_EHDR));
}

/* ---- signals in the middle of it ------------------------------------------------------------ */

static volatile int hits, inside;
static void on_alarm(int sig UNUSED, siginfo_t *info UNUSED, void *context) {
    const ucontext_t *at = context;
    unsigned long rip = at->uc_mcontext.gregs[REG_RIP] - (unsigned long)object.base;
    hits++;
    inside += rip < object.size;
    /* The handler may ask for the time itself. */
    by_object(CLOCK_REALTIME);
}

TEST(signals_interrupt_it_and_return_to_it) {
    function("__vdso_clock_gettime");
    struct sigaction act = {.sa_sigaction = on_alarm, .sa_flags = SA_SIGINFO | SA_RESTART};
    OK(sigaction(SIGALRM, &act, NULL));
    struct itimerval often = {{0, 300}, {0, 300}};
    OK(setitimer(ITIMER_REAL, &often, NULL));
    int64_t last = 0, end = by_call(CLOCK_MONOTONIC) + 10000 * MS;
    while (inside < 20 && last < end) {
        for (int i = 0; i < 1000; i++) {
            int64_t now = by_object(CLOCK_MONOTONIC);
            CHECK(now >= last);
            last = now;
        }
    }
    OK(setitimer(ITIMER_REAL, &(struct itimerval){0}, NULL));
    if (inside < 20)
        FAIL("%d signals, %d of them in the object", hits, inside);
}

static void *read_times(void *stop) {
    int64_t last = 0;
    while (!*(volatile int *)stop) {
        int64_t now = by_object(CLOCK_MONOTONIC);
        CHECK(now >= last);
        last = now;
    }
    return NULL;
}

TEST(threads_and_forks_read_it) {
    static volatile int stop;
    pthread_t t[2];
    function("__vdso_clock_gettime");
    for (int i = 0; i < 2; i++)
        ZERO(pthread_create(&t[i], NULL, read_times, (void *)&stop));
    for (int i = 0; i < 30; i++)
        IN_CHILD({
            CHECK(by_object(CLOCK_MONOTONIC) >= by_call(CLOCK_MONOTONIC) - 10000 * MS);
        });
    stop = 1;
    for (int i = 0; i < 2; i++)
        ZERO(pthread_join(t[i], NULL));
}

HELPER(tell_time) {
    printf("%d %lx\n", shown_gettime(CLOCK_MONOTONIC, &(struct timespec){0}) == 0,
           getauxval(AT_SYSINFO_EHDR) % PAGE);
    return 0;
}

TEST(executed_programs_find_it) {
    if (!header())
        SKIP("the kernel shows no object");
    int ends[2];
    char text[64] = "";
    OK(pipe(ends));
    pid_t pid = FORK();
    if (pid == 0) {
        OK(dup2(ends[1], 1));
        execl(hy_self, hy_self, "--helper", "tell_time", NULL);
        _exit(9);
    }
    close(ends[1]);
    EXITS(pid, 0);
    OK(read(ends[0], text, sizeof text - 1));
    CHECK_STR(text, "1 0\n");
}

TEST(set_clock_is_seen_at_once) {
    NEEDS_OWN_MACHINE();
    if (geteuid() != 0)
        SKIP("not root");
    int64_t ahead = by_call(CLOCK_REALTIME) - by_call(CLOCK_MONOTONIC);
    int64_t goal = by_call(CLOCK_REALTIME) + 1000000 * MS;
    OK(syscall(SYS_clock_settime, CLOCK_REALTIME,
               &(struct timespec){goal / 1000000000, goal % 1000000000}));
    int64_t seen = by_object(CLOCK_REALTIME);
    int64_t back = by_call(CLOCK_MONOTONIC) + ahead;
    OK(syscall(SYS_clock_settime, CLOCK_REALTIME,
               &(struct timespec){back / 1000000000, back % 1000000000}));
    CHECK(seen >= goal && seen < goal + 10000 * MS);
}
