/* The end of large processes: their memory is there for the next at once, and nobody else's is
 * lost. */
#define AREA "teardown"
#include "harness.h"
#include <sys/mount.h>

#define RW (PROT_READ | PROT_WRITE)
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

/* As much as asked for, or a part of what is free where that is little: whole large pages. */
static size_t at_most(size_t size, size_t part) {
    size_t most = memory("MemFree:") / part;
    return (size < most ? size : most) & ~(2 * MIB - 1);
}

static char *anonymous(size_t size) {
    return OK(mmap(NULL, size, RW, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
}

/* Each page tells whose it is and which. */
static void fill(char *p, size_t size, uint64_t seed) {
    for (size_t at = 0; at < size; at += PAGE)
        *(uint64_t *)(p + at) = seed ^ at;
}

static void verify(const char *p, size_t size, uint64_t seed) {
    for (size_t at = 0; at < size; at += PAGE)
        if (*(const uint64_t *)(p + at) != (seed ^ at))
            FAIL("page %zu is not what it was", at / PAGE);
}

/* Touches so much and ends. */
HELPER(large) {
    size_t size = strtoul(argv[1], NULL, 10);
    char *p = anonymous(size);
    fill(p, size, 1);
    verify(p, size, 1);
    return 0;
}

static void start_large(size_t size) {
    char number[32];
    snprintf(number, sizeof number, "%zu", size);
    OK(execl(hy_self, hy_self, "--helper", "large", number, (char *)NULL));
}

/* A machine with so little is a guest of the tests', where nobody else has much. */
static bool is_small(void) { return memory("MemTotal:") <= 2048 * MIB; }

/* Whether as much is free as before. On a large machine that says nothing: others take and give. */
static bool comes_back(size_t before) {
    if (!is_small())
        return true;
    for (int look = 0; look < 50; look++) {
        if (memory("MemFree:") + 8 * MIB >= before)
            return true;
        msleep(100);
    }
    return false;
}

TEST_TIMES(a_large_process_gives_its_memory_back, 4) {
    for (int round = 0; round < 4; round++) {
        size_t before = memory("MemFree:"), size = at_most(200 * MIB, 2);
        pid_t pid = FORK();
        if (pid == 0) {
            if (round % 2)
                start_large(size);
            fill(anonymous(size), size, 2);
            _exit(0);
        }
        EXITS(pid, 0);
        if (!comes_back(before))
            FAIL("round %d: %zu MiB were free, now %zu", round, before / MIB,
                 memory("MemFree:") / MIB);
    }
}

/* The next one needs what the last one held, before anybody had time to give it back. */
TEST_TIMES(memory_of_one_that_ended_is_there_for_the_next, 8) {
    if (!is_small())
        SKIP("too much memory to fill it");
    size_t small = at_most(100 * MIB, 8), large = at_most(1024 * MIB, 1) - 3 * small / 2;
    for (int round = 0; round < 6; round++) {
        size_t size = round % 2 ? large : small;
        pid_t pid = FORK();
        if (pid == 0) {
            if (round > 3)
                start_large(size);
            char *p = anonymous(size);
            fill(p, size, (uint64_t)round);
            verify(p, size, (uint64_t)round);
            _exit(0);
        }
        EXITS(pid, 0);
    }
}

/* Two lines of large processes at once, and a third that looks at what it has. */
TEST_TIMES(large_processes_end_side_by_side, 8) {
    size_t size = at_most(48 * MIB, 6);
    char *own = anonymous(4 * MIB);
    fill(own, 4 * MIB, 7);
    pid_t lines[2];
    for (int line = 0; line < 2; line++) {
        lines[line] = FORK();
        if (lines[line] == 0) {
            for (int round = 0; round < 12; round++) {
                pid_t pid = FORK();
                if (pid == 0) {
                    if (round % 3 == 2)
                        start_large(size);
                    char *p = anonymous(size);
                    uint64_t seed = (uint64_t)(line * 100 + round) << 32;
                    fill(p, size, seed);
                    verify(p, size, seed);
                    _exit(0);
                }
                EXITS(pid, 0);
            }
            _exit(0);
        }
    }
    for (int look = 0; look < 20; look++) {
        char *p = anonymous(MIB);
        for (size_t at = 0; at < MIB; at += PAGE)
            CHECK_EQ(p[at], 0);
        fill(p, MIB, 9);
        verify(p, MIB, 9);
        OK(munmap(p, MIB));
        verify(own, 4 * MIB, 7);
    }
    EXITS(lines[0], 0);
    EXITS(lines[1], 0);
    verify(own, 4 * MIB, 7);
}

/* In the middle of forks and starts. */
TEST_TIMES(a_large_process_is_killed_while_it_forks, 4) {
    size_t before = memory("MemFree:"), size = at_most(48 * MIB, 6);
    for (int round = 0; round < 8; round++) {
        int *ready = SHARED(PAGE);
        *ready = 0;
        pid_t pid = FORK();
        if (pid == 0) {
            setpgid(0, 0);
            char *p = anonymous(size);
            fill(p, size, 3);
            __atomic_store_n(ready, 1, __ATOMIC_SEQ_CST);
            for (;;) {
                pid_t child = fork();
                if (child == 0) {
                    for (size_t at = 0; at < size; at += 2 * MIB)
                        p[at] = 1;
                    if (round % 2)
                        execl(hy_self, hy_self, "--helper", "large", "4194304", (char *)NULL);
                    _exit(0);
                }
                if (child > 0)
                    waitpid(child, NULL, 0);
            }
        }
        EVENTUALLY(__atomic_load_n(ready, __ATOMIC_SEQ_CST));
        msleep(3 * round);
        OK(kill(-pid, SIGKILL));
        KILLED(pid, SIGKILL);
    }
    if (!comes_back(before))
        FAIL("%zu MiB were free, now %zu", before / MIB, memory("MemFree:") / MIB);
}

/* A child that shares its parent's memory ends, and then the other way round. */
TEST_TIMES(what_others_share_stays, 4) {
    size_t size = at_most(64 * MIB, 4);
    char *p = anonymous(size);
    fill(p, size, 5);
    for (int round = 0; round < 3; round++) {
        pid_t pid = FORK();
        if (pid == 0) {
            for (size_t at = 0; at < size; at += (size_t)(round + 1) * 32 * PAGE)
                *(uint64_t *)(p + at) = 0;
            if (round == 2) /* and one who lives longer than this one */
                if (FORK() == 0) {
                    while (getppid() == pid)
                        msleep(1);
                    for (size_t at = PAGE; at < size; at += 2 * MIB)
                        CHECK_EQ(*(uint64_t *)(p + at), 5 ^ at);
                    _exit(0);
                }
            _exit(0);
        }
        EXITS(pid, 0);
        verify(p, size, 5);
        for (size_t at = 0; at < size; at += 64 * PAGE)
            *(uint64_t *)(p + at) = 5 ^ at;
        verify(p, size, 5);
    }
    int pipes[2];
    OK(pipe(pipes));
    pid_t parent = FORK();
    if (parent == 0) {
        pid_t heir = FORK();
        if (heir == 0) {
            char end;
            close(pipes[1]);
            msleep(20);
            verify(p, size, 5);
            fill(p, size, 6);
            verify(p, size, 6);
            CHECK_EQ(read(pipes[0], &end, 1), 1);
            _exit(0);
        }
        fill(p, size, 8);
        _exit(0);
    }
    EXITS(parent, 0);
    verify(p, size, 5);
    OK(write(pipes[1], "", 1));
}

TEST_TIMES(large_pages_of_one_that_ended, 4) {
    size_t before = memory("MemFree:"), size = at_most(64 * MIB, 4);
    for (int round = 0; round < 4; round++) {
        pid_t pid = FORK();
        if (pid == 0) {
            char *p = anonymous(size + 2 * MIB);
            p += -(uintptr_t)p & (2 * MIB - 1);
            madvise(p, size, MADV_HUGEPAGE);
            fill(p, size, 4);
            if (round % 2) {
                pid_t child = FORK();
                if (child == 0) {
                    verify(p, size, 4);
                    fill(p, size / 2, 5);
                    _exit(0);
                }
                EXITS(child, 0);
                OK(munmap(p + 4 * MIB + PAGE, PAGE)); /* breaks one up */
                *(uint64_t *)(p + 8 * MIB) = 4 ^ 8 * MIB;
                verify(p + 6 * MIB, 2 * MIB, 4 ^ 6 * MIB);
            }
            _exit(0);
        }
        EXITS(pid, 0);
    }
    if (!comes_back(before))
        FAIL("%zu MiB were free, now %zu", before / MIB, memory("MemFree:") / MIB);
}

/* The file's room goes with the file, even if processes had it mapped. */
TEST_TIMES(a_mapped_file_goes_after_its_user, 4) {
    size_t size = at_most(24 * MIB, 6);
    for (int round = 0; round < 4; round++) {
        int fd = OK(open("file", O_RDWR | O_CREAT | O_TRUNC, 0600));
        OK(ftruncate(fd, (off_t)size));
        pid_t pid = FORK();
        if (pid == 0) {
            int flags = round % 2 ? MAP_SHARED : MAP_PRIVATE;
            char *p = OK(mmap(NULL, size, RW, flags, fd, 0));
            fill(p, size, 11);
            char *q = OK(mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0));
            for (size_t at = 0; at < size; at += PAGE)
                CHECK_EQ(*(uint64_t *)(q + at), round % 2 ? 11 ^ at : 0);
            _exit(0);
        }
        EXITS(pid, 0);
        OK(unlink("file"));
        if (round > 1)
            OK(ftruncate(fd, 0));
        else {
            uint64_t word;
            CHECK_EQ(pread(fd, &word, sizeof word, (off_t)(size - PAGE)), 8);
            CHECK_EQ(word, round % 2 ? 11 ^ (size - PAGE) : 0);
        }
        OK(close(fd));
        fd = OK(open("file", O_RDWR | O_CREAT | O_EXCL, 0600));
        OK(ftruncate(fd, (off_t)size));
        char *p = OK(mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0));
        for (size_t at = 0; at < size; at += PAGE)
            CHECK_EQ(p[at], 0);
        OK(munmap(p, size));
        OK(close(fd));
        OK(unlink("file"));
    }
}

TEST_TIMES(a_file_system_goes_after_its_user, 2) {
    OK(mkdir("place", 0700));
    if (mount("none", "place", "tmpfs", 0, NULL) != 0)
        SKIP("may not mount");
    size_t size = at_most(24 * MIB, 6);
    for (int round = 0; round < 4; round++) {
        if (round > 0)
            OK(mount("none", "place", "tmpfs", 0, NULL));
        pid_t pid = FORK();
        if (pid == 0) {
            int fd = OK(open("place/file", O_RDWR | O_CREAT, 0600));
            OK(ftruncate(fd, (off_t)size));
            char *p =
                OK(mmap(NULL, size, RW, round % 2 ? MAP_SHARED : MAP_PRIVATE, fd, 0));
            fill(p, size, 12);
            _exit(0);
        }
        EXITS(pid, 0);
        OK(umount_ended("place"));
    }
}
