/* A machine with little memory: kept parts of ended processes, and caches, give way to every
 * request, of whichever kind. For machines with 64 MiB; see cli/src/test/guest.rs. */
#define AREA "pressure"
#include "harness.h"
#include "../../guest/interface/include/hayate.h"

#define MIB ((size_t)1 << 20)

/* A number of KiB from /proc/meminfo, in bytes. */
static size_t memory(const char *name) {
    char text[8192];
    ssize_t length = get_file("/proc/meminfo", text, sizeof text - 1);
    CHECK(length > 0);
    text[length] = 0;
    char *line = strstr(text, name);
    CHECK(line != NULL);
    return strtoul(line + strlen(name), NULL, 10) * 1024;
}

/* The bytes that are kept of a kind. */
static size_t kept(const char *kind) {
    char text[4096];
    ssize_t length = get_file("/proc/hayate/pools", text, sizeof text - 1);
    CHECK(length > 0);
    text[length] = 0;
    for (char *line = strtok(text, "\n"); line != NULL; line = strtok(NULL, "\n")) {
        char name[32];
        size_t made, reused, stored, dropped, count, bytes;
        if (sscanf(line, "%31s %zu %zu %zu %zu %zu %zu", name, &made, &reused, &stored, &dropped,
                   &count, &bytes) == 7 &&
            strcmp(name, kind) == 0)
            return bytes;
    }
    FAIL("no pool of %s", kind);
}

static void only_where_little_is(void) {
    if (access("/proc/hayate/pools", R_OK) != 0) SKIP("this kernel keeps nothing");
    if (memory("MemTotal:") > 64 * MIB) SKIP("more memory than is good for this");
}

static char rest[700 << 10];

/* Leaves much behind: pages of its own that belong to the program. */
HELPER(leaves) {
    memset(rest, 1, sizeof rest);
    return 0;
}

/* Has as much kept as there is room for: each user's start of a program is kept by itself. */
static void have_kept(void) {
    OK(chmod(".", 0755));
    COPY(hy_self, "program", 0755);
    for (int user = 1000; user < 1014; user++) {
        pid_t pid = FORK();
        if (pid == 0) {
            BECOME(user, user);
            execl("./program", "./program", "--helper", "leaves", NULL);
            _exit(98);
        }
        EXITS(pid, 0);
    }
    /* Each processor has its part of the room. */
    if (kept("attachment") < 2 * MIB) SKIP("the policy keeps no spaces");
}

/* Writes to a file in memory until there is no more; how much it was. */
static size_t fill(int fd) {
    static char piece[64 << 10];
    size_t written = 0;
    for (;;) {
        ssize_t count = write(fd, piece, sizeof piece);
        if (count == -1) {
            CHECK_EQ(errno, ENOMEM);
            return written;
        }
        written += count;
    }
}

TEST_TIMES(a_file_in_memory_gets_all_that_is_kept, 4) {
    only_where_little_is();
    int fd = OK(memfd_create("all", 0));
    size_t first = fill(fd);
    OK(ftruncate(fd, 0));
    have_kept();
    size_t second = fill(fd);
    CHECK_EQ(kept("attachment"), 0);
    CHECK_EQ(kept("space"), 0);
    OK(ftruncate(fd, 0));
    if (second + 2 * MIB < first) FAIL("%zu bytes fit, %zu before", second, first);
}

TEST_TIMES(pipes_get_what_is_kept, 4) {
    only_where_little_is();
    int fd = OK(memfd_create("most", 0));
    size_t all = fill(fd);
    OK(ftruncate(fd, 0));
    have_kept();
    /* All but the kept memory and a little: as much more is there only if that goes. */
    static char piece[64 << 10];
    size_t before = kept("attachment"), wanted = all - before - MIB;
    for (size_t done = 0; done < wanted; done += sizeof piece)
        CHECK_EQ(write(fd, piece, sizeof piece), (ssize_t)sizeof piece);
    for (size_t total = 0; total + MIB <= before; total += MIB) {
        int ends[2];
        OK(pipe2(ends, O_NONBLOCK));
        CHECK_EQ(OK(fcntl(ends[1], F_SETPIPE_SZ, 1 << 20)), 1 << 20);
        for (size_t done = 0; done < MIB; done += sizeof piece)
            CHECK_EQ(write(ends[1], piece, sizeof piece), (ssize_t)sizeof piece);
    }
    CHECK(kept("attachment") < before);
}

/* Has memory filled but for what is kept, and at most the room of one program that was kept (less
 * than a MiB); how much is kept. */
static size_t fill_but_what_is_kept(void) {
    int fd = OK(memfd_create("most", MFD_CLOEXEC));
    fill(fd);
    OK(ftruncate(fd, 0));
    have_kept();
    static char page[4096];
    size_t before = kept("attachment"), now;
    do CHECK_EQ(write(fd, page, sizeof page), (ssize_t)sizeof page);
    while ((now = kept("attachment")) == before);
    if (now < 5 * MIB) {
        if (sysconf(_SC_NPROCESSORS_ONLN) > 1) SKIP("each processor has its part of the room");
        FAIL("only %zu bytes are kept", now);
    }
    return now;
}

/* So does a table of the kernel's own that takes more than a few pages. */
TEST_TIMES(a_large_table_gets_what_is_kept, 4) {
    only_where_little_is();
    struct rlimit many = {1 << 20, 1 << 20};
    OK(setrlimit(RLIMIT_NOFILE, &many));
    size_t before = fill_but_what_is_kept();
    /* 2 MiB. */
    OK(dup2(0, (1 << 18) - 1));
    CHECK(kept("attachment") < before);
}

TEST_TIMES(the_child_of_a_large_table_gets_what_is_kept, 4) {
    only_where_little_is();
    struct rlimit many = {1 << 20, 1 << 20};
    OK(setrlimit(RLIMIT_NOFILE, &many));
    int high = OK(dup2(0, (1 << 18) - 1));
    size_t before = fill_but_what_is_kept();
    pid_t pid = FORK();
    if (pid == 0) _exit(fcntl(high, F_GETFD) == 0 ? 0 : 98);
    EXITS(pid, 0);
    CHECK(kept("attachment") < before);
}

/* Whether this kernel keeps what programs leave; elsewhere the cases with regions run without. */
static bool keeps_something(void) {
    return access("/proc/hayate/pools", R_OK) == 0 && memory("MemTotal:") <= 64 * MIB;
}

/* How many mappings there are in the end, and how many when memory is filled. Each takes 48 bytes
 * of a list that grows as a whole, to a length that Linux, too, allows without being asked
 * (65530). */
#define MANY 60000
#define SOME 4000

static char *pages;

/* The pages are counted from the highest down: so a new mapping moves no others in the list. */
static char *page(int i) { return pages + (MANY - 1 - i) * PAGE; }

/* Makes pages `from` to `to` mappings of their own. */
static void part_pages(int from, int to) {
    for (int i = from; i < to; i += 2) OK(mprotect(page(i), PAGE, PROT_READ));
}

static void have_pages(int parted) {
    pages = OK(mmap(NULL, MANY * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    part_pages(0, parted);
}

/* And so does the list of a program's mappings. */
TEST_TIMES(more_mappings_get_what_is_kept, 4) {
    have_pages(SOME);
    size_t before = keeps_something() ? fill_but_what_is_kept() : 0;
    part_pages(SOME, MANY);
    if (before != 0) CHECK(kept("attachment") < before);
    PEEK(page(MANY - 2));
    FAULTS(PEEK(page(MANY - 1)), SIGSEGV, SEGV_ACCERR, page(MANY - 1));
}

/* To replace very many mappings takes a list of them. */
TEST_TIMES(many_mappings_are_replaced_by_what_is_kept, 4) {
    have_pages(MANY);
    size_t before = keeps_something() ? fill_but_what_is_kept() : 0;
    OK(mmap(pages, MANY * PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0));
    if (before != 0) CHECK(kept("attachment") < before);
    PEEK(page(MANY - 1));
}

/* The child of a fork has mappings as many as its parent. */
TEST_TIMES(the_child_of_many_mappings_gets_what_is_kept, 4) {
    have_pages(MANY);
    size_t before = keeps_something() ? fill_but_what_is_kept() : 0;
    pid_t pid = FORK();
    if (pid == 0) {
        PEEK(page(MANY - 2));
        _exit(0);
    }
    EXITS(pid, 0);
    if (before != 0) CHECK(kept("attachment") < before);
}

/* Nobody is killed for memory that is only kept. */
TEST_TIMES(nobody_is_killed_while_something_is_kept, 4) {
    only_where_little_is();
    int fd = OK(memfd_create("most", 0));
    size_t all = fill(fd);
    OK(ftruncate(fd, 0));
    have_kept();
    size_t size = all - 3 * MIB;
    pid_t pid = FORK();
    if (pid == 0) {
        char *p = OK(mmap(NULL, size, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
        for (size_t at = 0; at < size; at += PAGE) p[at] = 1;
        _exit(0);
    }
    EXITS(pid, 0);
}

HELPER(has_not) {
    return fcntl(atoi(argv[1]), F_GETFD) == -1 && errno == EBADF ? 0 : 1;
}

/* A table of a million descriptors takes 8 MiB; a copy of it is not to be had here. */
TEST_TIMES(exec_without_memory_for_a_copy_of_a_shared_table_fails, 4) {
    only_where_little_is();
    struct rlimit many = {1 << 20, 1 << 20};
    OK(setrlimit(RLIMIT_NOFILE, &many));
    int mem = OK(memfd_create("most", 0));
    int high = OK(dup3(mem, (1 << 20) - 1, O_CLOEXEC));
    int low = OK(open("/dev/null", O_RDONLY | O_CLOEXEC));
    size_t all = fill(mem);
    OK(ftruncate(mem, all - 5 * MIB));
    pid_t pid = OK(syscall(SYS_clone, CLONE_FILES | SIGCHLD, NULL, NULL, NULL, NULL));
    if (pid == 0) {
        execl(hy_self, hy_self, "--helper", "has_not", "5", NULL);
        _exit(errno == ENOMEM ? 77 : 98);
    }
    EXITS(pid, 77);
    CHECK_EQ(fcntl(high, F_GETFD), FD_CLOEXEC);
    CHECK_EQ(fcntl(low, F_GETFD), FD_CLOEXEC);
    /* With memory it works, and closes nothing here. */
    OK(ftruncate(mem, 0));
    pid = OK(syscall(SYS_clone, CLONE_FILES | SIGCHLD, NULL, NULL, NULL, NULL));
    if (pid == 0) {
        char number[16];
        snprintf(number, sizeof number, "%d", high);
        execl(hy_self, hy_self, "--helper", "has_not", number, NULL);
        _exit(98);
    }
    EXITS(pid, 0);
    CHECK_EQ(fcntl(high, F_GETFD), FD_CLOEXEC);
}
