/*
 * The next program must not find data that one leaves behind: not the same program, not by
 * another, not by another user; and a program that was changed must be the changed one. Any system
 * passes; one that keeps parts of ended processes for the next (Hayate) has to take care.
 */
#define AREA "recycle"
#include "secret.h"
#include <sys/auxv.h>
#include <sys/mount.h>
#include <sys/statvfs.h>

#define WORDS 4096
/* Patched in the file by the tests below: text's neighbour, and data that a program overwrites. */
static const volatile char constant[32] = "constant-of-recycle:A";
static volatile char variable[8192] = "variable-of-recycle:A";
static volatile uint64_t data[WORDS] = {1, 2, 3};
static volatile uint64_t bss[WORDS];

static void scribble(volatile uint64_t *at, size_t words, uint64_t word) {
    for (size_t i = 0; i < words; i++)
        at[i] = word;
}

static __attribute__((noinline)) void on_stack(uint64_t word) {
    volatile uint64_t deep[32768 / 8 * 4];
    scribble(deep, sizeof deep / 8, word);
}

/* (musl's sbrk moves nothing.) */
static uint64_t *more_heap(size_t size) {
    uintptr_t end = (uintptr_t)syscall(SYS_brk, 0);
    if ((uintptr_t)syscall(SYS_brk, end + size) != end + size)
        _exit(98);
    return (uint64_t *)end;
}

/* Fills every page that it can with the secret and ends in the midst of it. */
HELPER(fill) {
    uint64_t word = secret(strtoull(argv[1], NULL, 10));
    on_stack(word);
    scribble(data, WORDS, word);
    scribble(bss, WORDS, word);
    scribble((volatile uint64_t *)variable, sizeof variable / 8, word);
    scribble(more_heap(256 * 1024), 256 * 1024 / 8, word);
    uint64_t *mapped = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped != MAP_FAILED)
        scribble(mapped, (1 << 20) / 8, word);
    /* The arguments and the environment too. */
    for (char **text = environ; *text; text++)
        memset(*text, (int)word, strlen(*text));
    memset(argv[1], (int)word, strlen(argv[1]));
    /* And the registers that a system call does not take. */
    asm volatile("movq %0, %%xmm0\n movq %0, %%xmm7\n movq %0, %%xmm15\n mov %0, %%r14\n mov %0, %%r15\n"
                 "xor %%edi, %%edi\n mov $231, %%eax\n syscall" ::"r"(word));
    return 1;
}

static int has(volatile uint64_t *at, size_t words, uint64_t masked) {
    for (size_t i = 0; i < words; i++)
        if ((at[i] ^ MASK) == masked)
            return 1;
    return 0;
}

static __attribute__((noinline)) int in_fresh_stack(uint64_t masked) {
    volatile uint64_t deep[65536 / 8 * 3];
    asm volatile("" ::"r"(deep) : "memory");
    return has(deep, sizeof deep / 8, masked);
}

/* Searches everything it can reach: 0 when the secret is nowhere. */
HELPER(search) {
    uint64_t masked = strtoull(argv[1], NULL, 10), vector[2] = {0, 0};
    asm volatile("movq %%xmm7, %0\n movq %%xmm15, %1" : "=r"(vector[0]), "=r"(vector[1]));
    if (has(vector, 2, masked))
        return 2;
    if (data[0] != 1 || data[2] != 3 || data[3] != 0 || variable[sizeof variable - 1] != 0 ||
        memcmp((char *)variable, "variable-of-recycle:", 20) != 0)
        return 3;
    for (size_t i = 0; i < WORDS; i++)
        if (bss[i] != 0 || (i > 2 && data[i] != 0))
            return 4;
    if (in_fresh_stack(masked))
        return 5;
    size_t size = 4 << 20;
    uint64_t *fresh = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (fresh == MAP_FAILED)
        return 6;
    for (size_t i = 0; i < size / 8; i += 512)
        ((volatile uint64_t *)fresh)[i] = 1; /* takes frames, unlike reading */
    for (size_t i = 0; i < size / 8; i++)
        if (fresh[i] != (i % 512 == 0))
            return 7;
    if (has(more_heap(512 * 1024), 512 * 1024 / 8, masked))
        return 8;
    if (is_mapped(masked))
        return 9;
    return 0;
}

TEST_TIMES(a_secret_is_not_found_by_the_next_program, 3) {
    bool root = geteuid() == 0;
    OK(chmod(hy_tmp, 0755));
    COPY(hy_self, "one", 0755);
    COPY(hy_self, "other", 0755);
    unsigned seed = 0;
    for (int round = 0; round < 3; round++)
        for (int from = 0; from < 2; from++)
            for (int to = 0; to < 2; to++)
                for (int user = 0; user < (root ? 3 : 1); user++) {
                    uid_t first = user == 1 ? NOBODY : 0, second = user == 2 ? NOBODY : 0;
                    seed++;
                    RUN("./one", first, from, "fill", seed);
                    RUN("./one", second, to, "search", seed);
                    RUN("./one", first, from, "fill", seed);
                    RUN("./other", second, to, "search", seed);
                }
}

TEST_TIMES(secrets_are_not_found_while_others_start, 3) {
    COPY(hy_self, "one", 0755);
    for (int round = 0; round < 6; round++) {
        pid_t pids[12];
        for (unsigned i = 0; i < 12; i++)
            pids[i] = run("./one", 0, i % 2, i % 3 ? "search" : "fill", 7000);
        for (int i = 0; i < 12; i++)
            EXITS(pids[i], 0);
    }
}

/* ---- what is kept under which policy -------------------------------------------------------- */

/* How many of a kind have been made, reused or stored, as `/proc/hayate/pools` tells. */
static long count_of(const char *kind, const char *column) {
    char line[256];
    int at = 0, found = 0;
    long value = -1;
    FILE *pools = fopen("/proc/hayate/pools", "r");
    CHECK(pools != NULL && fgets(line, sizeof line, pools) != NULL);
    for (char *word = strtok(line, " \n"); word != NULL; word = strtok(NULL, " \n"), at++)
        if (strcmp(word, column) == 0)
            found = at;
    CHECK(found > 0);
    while (value < 0 && fgets(line, sizeof line, pools) != NULL) {
        char *word = strtok(line, " \n");
        for (at = 0; word != NULL && strcmp(line, kind) == 0 && at < found; at++)
            word = strtok(NULL, " \n");
        if (word != NULL && at == found)
            value = atol(word);
    }
    fclose(pools);
    CHECK(value >= 0);
    return value;
}

static void set_policy(const char *policy) {
    int fd = OK(open("/proc/hayate/policy", O_WRONLY));
    CHECK_EQ(OK(write(fd, policy, strlen(policy))), strlen(policy));
    close(fd);
}

TEST(each_policy_reuses_what_it_names) {
    static const struct {
        const char *policy, *reused;
    } rows[] = {{"program", "program"}, {"space", "space"},           {"region", "region"},
                {"region+text", "region"}, {"all", "attachment"}, {"all+text", "attachment"},
                {"full", "attachment"}};
    static const char *const kinds[] = {"program", "space", "region", "attachment"};
    if (access("/proc/hayate/policy", W_OK) != 0)
        SKIP("no policy of recycling here");
    if (in_supervisor_mode())
        SKIP("a space that was in supervisor mode is not kept");
    COPY(hy_self, "one", 0755);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        set_policy("none");
        long stored[4];
        for (int kind = 0; kind < 4; kind++)
            stored[kind] = count_of(kinds[kind], "stored");
        RUN("./one", 0, 0, "fill", 1);
        RUN("./one", 0, 0, "search", 1);
        for (int kind = 0; kind < 4; kind++)
            CHECK_EQ(count_of(kinds[kind], "stored"), stored[kind]);
        set_policy(rows[i].policy);
        long before = count_of(rows[i].reused, "reused");
        for (int round = 0; round < 3; round++) {
            RUN("./one", 0, 0, "fill", 2);
            RUN("./one", 0, 0, "search", 2);
        }
        CHECK(count_of(rows[i].reused, "reused") > before);
    }
    set_policy("full");
}

/* ---- changed files ------------------------------------------------------------------------- */

/* Says which version of the program it is: 'A'.. in constant and variable alike. */
HELPER(version) {
    char first = constant[20], second = variable[20];
    variable[20] = 'z';
    variable[0] = 'z';
    bss[1]++;
    if (bss[1] != 1 || first != second)
        return 1;
    return first;
}

static off_t place_of(const char *path, const char *text, size_t skip) {
    static char content[8 << 20];
    int fd = OK(open(path, O_RDONLY));
    ssize_t n = OK(read(fd, content, sizeof content));
    close(fd);
    for (ssize_t at = 0; at + 21 < n; at++)
        if (memcmp(content + at, text, 20) == 0 && content[at + 21] == 0)
            return at + (off_t)skip;
    FAIL("%s has no %s", path, text);
}

static void make_version(const char *path, char version) {
    char name[21] = "constant-of-recycle:";
    off_t first = place_of(path, name, 20);
    memcpy(name, "variable", 8);
    off_t second = place_of(path, name, 20);
    int fd = OK(open(path, O_WRONLY));
    CHECK_EQ(OK(pwrite(fd, &version, 1, first)), 1);
    CHECK_EQ(OK(pwrite(fd, &version, 1, second)), 1);
    close(fd);
}

#define IS_VERSION(program, v) EXITS(run(program, 0, 0, "version", 0), v)

TEST(a_program_written_in_place_is_the_new_one) {
    COPY(hy_self, "program", 0755);
    for (char v = 'A'; v < 'G'; v++) {
        IS_VERSION("./program", v);
        IS_VERSION("./program", v);
        make_version("program", v + 1);
    }
}

TEST(a_program_written_through_a_mapping_is_the_new_one) {
    COPY(hy_self, "program", 0755);
    char name[21] = "constant-of-recycle:";
    off_t first = place_of("program", name, 20);
    memcpy(name, "variable", 8);
    off_t second = place_of("program", name, 20);
    IS_VERSION("./program", 'A');
    IS_VERSION("./program", 'A');
    int fd = OK(open("program", O_RDWR));
    size_t size = (size_t)OK(lseek(fd, 0, SEEK_END));
    char *map = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(map != MAP_FAILED);
    close(fd);
    map[first] = map[second] = 'Q';
    OK(munmap(map, size));
    IS_VERSION("./program", 'Q');
    IS_VERSION("./program", 'Q');
}

TEST(a_program_renamed_over_is_the_new_one) {
    COPY(hy_self, "a", 0755);
    COPY(hy_self, "b", 0755);
    make_version("b", 'B');
    OK(link("a", "program"));
    for (int i = 0; i < 4; i++) {
        const char *next = i % 2 ? "a" : "b";
        IS_VERSION("./program", i % 2 ? 'B' : 'A');
        IS_VERSION("./program", i % 2 ? 'B' : 'A');
        OK(link(next, "new"));
        OK(rename("new", "program"));
    }
    /* A name of its own shows in the maps, even if the program ran under another before. */
    IS_VERSION("./a", 'A');
}

/* Opens a program for writing that was executed by processes that have ended. */
static int open_ended(const char *program) {
    int fd, looks = 0;
    while ((fd = open(program, O_WRONLY)) == -1 && errno == ETXTBSY && hy_patience(&looks)) {}
    return fd;
}

TEST(a_program_truncated_and_written_anew_is_the_new_one) {
    COPY(hy_self, "b", 0755);
    make_version("b", 'B');
    COPY(hy_self, "program", 0755);
    for (int i = 0; i < 4; i++) {
        IS_VERSION("./program", i % 2 ? 'B' : 'A');
        IS_VERSION("./program", i % 2 ? 'B' : 'A');
        close(OK(open_ended("program")));
        COPY(i % 2 ? hy_self : "b", "program", 0755);
    }
}

TEST(a_program_that_ended_may_be_written_at_once) {
    COPY(hy_self, "program", 0755);
    for (int i = 0; i < 20; i++) {
        IS_VERSION("./program", 'A');
        close(OK(open_ended("program")));
    }
}

TEST(the_room_of_a_removed_program_comes_back) {
    struct stat self;
    OK(stat(hy_self, &self));
    int64_t missing;
    int rounds = 0;
    do {
        struct statvfs before, after;
        OK(statvfs(".", &before));
        COPY(hy_self, "program", 0755);
        IS_VERSION("./program", 'A');
        IS_VERSION("./program", 'A');
        OK(unlink("program"));
        int looks = 0;
        do {
            OK(statvfs(".", &after));
            missing = (int64_t)(before.f_bfree - after.f_bfree) * (int64_t)before.f_bsize;
        } while (missing >= self.st_size / 2 && hy_patience(&looks));
        /* Others may be using the file system: half a program is allowed for, and in some rounds
         * any amount. Room that did not come back would be missing in each. */
    } while (missing >= self.st_size / 2 && ++rounds < 20);
    CHECK(missing < self.st_size / 2);
}

TEST(a_file_system_can_be_unmounted_after_its_program_ran) {
    OK(mkdir("m", 0755));
    if (mount("none", "m", "tmpfs", 0, NULL) == -1)
        SKIP("mounting is not allowed here");
    COPY(hy_self, "m/program", 0755);
    IS_VERSION("m/program", 'A');
    IS_VERSION("m/program", 'A');
    OK(umount_ended("m"));
    OK(mount("none", "m", "tmpfs", 0, NULL));
    COPY(hy_self, "m/program", 0755);
    make_version("m/program", 'B');
    IS_VERSION("m/program", 'B');
    OK(umount_ended("m"));
}

/* ---- who, and under which limits -------------------------------------------------------------- */

HELPER(privilege) { return (getauxval(AT_SECURE) ? 1 : 0) | (geteuid() == 0 ? 2 : 0) | (getuid() == 0 ? 4 : 0); }

TEST(setting_the_user_counts_at_once) {
    if (geteuid() != 0)
        SKIP("only root can");
    struct statvfs about;
    OK(statvfs(".", &about));
    if (about.f_flag & ST_NOSUID)
        SKIP("no set-user-id on this file system");
    OK(chmod(hy_tmp, 0755));
    COPY(hy_self, "program", 0755);
    for (int i = 0; i < 4; i++) {
        OK(chmod("program", 0755));
        EXITS(run("./program", NOBODY, 0, "privilege", 0), 0);
        EXITS(run("./program", NOBODY, 0, "privilege", 0), 0);
        OK(chmod("program", 04755));
        EXITS(run("./program", NOBODY, 0, "privilege", 0), 3);
        EXITS(run("./program", NOBODY, 0, "privilege", 0), 3);
        EXITS(run("./program", 0, 0, "privilege", 0), 6);
    }
}

HELPER(deep) {
    volatile char room[512 * 1024];
    for (size_t at = sizeof room; at >= 4096; at -= 4096)
        room[at - 1] = 1;
    return 0;
}

TEST(a_smaller_stack_limit_counts_at_once) {
    for (int i = 0; i < 4; i++) {
        RUN(hy_self, 0, 0, "deep", 0);
        struct rlimit small = {128 * 1024, 128 * 1024}, old;
        pid_t pid = FORK();
        if (pid == 0) {
            OK(getrlimit(RLIMIT_STACK, &old));
            small.rlim_max = old.rlim_max;
            OK(setrlimit(RLIMIT_STACK, &small));
            execl(hy_self, hy_self, "--helper", "deep", "0", (char *)NULL);
            _exit(99);
        }
        KILLED(pid, SIGSEGV);
    }
}

/* ---- what a program does to itself ------------------------------------------------------------- */

static __attribute__((noinline, aligned(4096))) int answer(void) {
    asm volatile("");
    return 42;
}

HELPER(vandal) {
    char *page = (char *)((uintptr_t)answer & ~(uintptr_t)4095);
    if (answer() != 42 || bss[0] != 0 || data[0] != 1 || constant[0] != 'c')
        return 1;
    if (mprotect(page, 8192, PROT_READ | PROT_WRITE | PROT_EXEC) == 0) {
        /* mov $13, %eax; ret */
        static const unsigned char code[] = {0xb8, 13, 0, 0, 0, 0xc3};
        memcpy(page, code, sizeof code);
        if (argc > 1 && argv[1][0] & 1)
            mprotect(page, 8192, PROT_READ | PROT_EXEC);
    }
    /* Something else in place of a part of bss, of data and of the constants. */
    char *middle = (char *)(((uintptr_t)&bss[512] + 4095) & ~(uintptr_t)4095);
    mmap(middle, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    memset(middle, 0x55, 8192);
    middle = (char *)(((uintptr_t)&data[512] + 4095) & ~(uintptr_t)4095);
    mmap(middle, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    memset(middle, 0x66, 4096);
    bss[0] = 5;
    munmap((char *)(((uintptr_t)&bss[2048] + 4095) & ~(uintptr_t)4095), 4096);
    char *constants = (char *)((uintptr_t)constant & ~(uintptr_t)4095);
    if (mprotect(constants, 4096, PROT_READ | PROT_WRITE) == 0)
        ((volatile char *)constant)[0] = 'x';
    data[0] = 9;
    asm volatile("syscall" ::"a"(231), "D"(0));
    return 1;
}

TEST(a_program_that_changed_itself_begins_anew) {
    for (unsigned i = 0; i < 12; i++)
        RUN(hy_self, 0, 0, "vandal", i);
    RUN(hy_self, 0, 0, "search", 1);
}

__attribute__((noreturn)) static void *spin(void *at) {
    for (;;)
        ((volatile uint64_t *)at)[0]++;
}

HELPER(threads) {
    if (bss[0] || bss[1] || bss[2] || data[0] != 1)
        return 1;
    for (int i = 0; i < 3; i++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, spin, (void *)&bss[i * 1024 + 512]) != 0)
            return 2;
    }
    data[0] = 7;
    bss[0] = bss[1] = bss[2] = 8;
    _exit(bss[1536] == 1u << 31);
}

TEST(a_program_that_ends_with_running_threads_begins_anew) {
    for (int i = 0; i < 20; i++) {
        RUN(hy_self, 0, i % 2, "threads", 0);
        RUN(hy_self, 0, 1, "search", 1);
    }
}

HELPER(parent) {
    if (data[0] != 1 || bss[7] != 0)
        return 1;
    data[0] = 3;
    bss[7] = 9;
    for (int i = 0; i < 3; i++)
        if (fork() == 0) {
            /* Outlives its parent and writes to what they share. */
            for (int k = 0; k < 50; k++) {
                scribble(bss, WORDS, 0xabcdef);
                scribble(data, WORDS, 0xabcdef);
                msleep(1);
            }
            _exit(0);
        }
    return 0;
}

TEST(children_that_live_on_do_no_harm) {
    for (int i = 0; i < 8; i++) {
        RUN(hy_self, 0, i % 2, "parent", 0);
        RUN(hy_self, 0, i % 2, "search", 1);
    }
}

/* ---- storms ------------------------------------------------------------------------------------ */

TEST_TIMES(a_program_replaced_during_a_storm_is_one_or_the_other, 3) {
    COPY(hy_self, "a", 0755);
    COPY(hy_self, "b", 0755);
    make_version("b", 'B');
    OK(link("a", "program"));
    pid_t replacer = FORK();
    if (replacer == 0)
        for (int i = 0;; i++) {
            OK(link(i % 2 ? "a" : "b", "new"));
            OK(rename("new", "program"));
            sched_yield();
        }
    for (int i = 0; i < 100; i++) {
        pid_t one = run("./program", 0, 0, "version", 0), two = run("./program", 0, 1, "version", 0);
        int status = WAIT(one);
        CHECK(WIFEXITED(status) && (WEXITSTATUS(status) == 'A' || WEXITSTATUS(status) == 'B'));
        status = WAIT(two);
        CHECK(WIFEXITED(status) && (WEXITSTATUS(status) == 'A' || WEXITSTATUS(status) == 'B'));
    }
    OK(kill(replacer, SIGKILL));
    KILLED(replacer, SIGKILL);
}

TEST_TIMES(killing_in_the_midst_of_starts_leaves_nothing_behind, 3) {
    for (int i = 0; i < 60; i++) {
        pid_t pids[3];
        for (int k = 0; k < 3; k++) {
            pids[k] = FORK();
            if (pids[k] == 0) {
                for (unsigned n = 0;; n++) {
                    pid_t child = n % 2 ? fork() : vfork();
                    if (child == 0) {
                        execl(hy_self, hy_self, "--helper", n % 3 ? "fill" : "version", "5", (char *)NULL);
                        _exit(99);
                    }
                    waitpid(child, NULL, 0);
                }
            }
        }
        /* Anywhere in the first three milliseconds. */
        struct timespec moment = {0, (i * 7919 % 60) * 50000L};
        nanosleep(&moment, NULL);
        for (int k = 0; k < 3; k++) {
            OK(kill(pids[k], SIGKILL));
            KILLED(pids[k], SIGKILL);
        }
    }
    RUN(hy_self, 0, 0, "search", 5);
    RUN(hy_self, 0, 1, "search", 5);
}
