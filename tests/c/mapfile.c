/* File mappings shared and private, SIGBUS, msync, and memory across fork. */
#define AREA "mapfile"
#include "harness.h"

#define RW (PROT_READ | PROT_WRITE)

static int file_of(size_t size) {
    int fd = OK(open("data", O_RDWR | O_CREAT | O_TRUNC, 0600));
    OK(ftruncate(fd, (off_t)size));
    return fd;
}

static char *map(int fd, size_t size, int prot, int flags, off_t offset) {
    return OK(mmap(NULL, size, prot, flags, fd, offset));
}

TEST(private_mapping_reads_the_file) {
    static char data[3 * 4096];
    for (size_t i = 0; i < sizeof data; i++)
        data[i] = (char)(i * 7);
    PUT_BYTES("f", data, sizeof data);
    int fd = OK(open("f", O_RDONLY));
    char *p = map(fd, sizeof data, PROT_READ, MAP_PRIVATE, 0);
    CHECK(!memcmp(p, data, sizeof data));
    char *q = map(fd, PAGE, PROT_READ, MAP_PRIVATE, 2 * PAGE);
    CHECK(!memcmp(q, data + 2 * PAGE, PAGE));
}

TEST(mapping_outlives_its_descriptor) {
    PUT("f", "still here");
    int fd = OK(open("f", O_RDONLY));
    char *p = map(fd, PAGE, PROT_READ, MAP_PRIVATE, 0);
    OK(close(fd));
    OK(unlink("f"));
    CHECK(!memcmp(p, "still here", 10));
}

TEST(private_write_does_not_reach_the_file) {
    PUT("f", "abcdef");
    int fd = OK(open("f", O_RDONLY)); /* MAP_PRIVATE may be writable on a read-only descriptor */
    char *p = map(fd, PAGE, RW, MAP_PRIVATE, 0);
    p[0] = 'X';
    char text[16];
    get_file("f", text, sizeof text);
    CHECK_STR(text, "abcdef");
    char *q = map(fd, PAGE, PROT_READ, MAP_PRIVATE, 0);
    CHECK_EQ(q[0], 'a');
}

TEST(shared_write_reaches_the_file) {
    int fd = file_of(2 * PAGE);
    char *p = map(fd, 2 * PAGE, RW, MAP_SHARED, 0);
    memcpy(p + PAGE - 2, "span", 4);
    char text[4];
    CHECK_EQ(OK(pread(fd, text, 4, PAGE - 2)), 4);
    CHECK(!memcmp(text, "span", 4));
}

TEST(write_call_is_seen_in_a_shared_mapping) {
    int fd = file_of(PAGE);
    char *p = map(fd, PAGE, PROT_READ, MAP_SHARED, 0);
    CHECK_EQ(p[10], 0);
    OK(pwrite(fd, "news", 4, 10));
    CHECK(!memcmp(p + 10, "news", 4));
}

TEST(two_shared_mappings_are_one_memory) {
    int fd = file_of(4 * PAGE);
    char *p = map(fd, 4 * PAGE, RW, MAP_SHARED, 0);
    char *q = map(fd, 2 * PAGE, RW, MAP_SHARED, 2 * PAGE);
    p[3 * PAGE + 5] = 'k';
    CHECK_EQ(q[PAGE + 5], 'k');
    q[0] = 'z';
    CHECK_EQ(p[2 * PAGE], 'z');
}

TEST(shared_mapping_over_two_opens_and_processes) {
    int fd = file_of(PAGE);
    char *p = map(fd, PAGE, RW, MAP_SHARED, 0);
    IN_CHILD({
        int again = OK(open("data", O_RDWR));
        char *q = map(again, PAGE, RW, MAP_SHARED, 0);
        memcpy(q, "child", 6);
    });
    CHECK_STR(p, "child");
}

TEST(tail_of_the_last_page_is_zero) {
    PUT("f", "short");
    int fd = OK(open("f", O_RDWR));
    char *p = map(fd, PAGE, RW, MAP_SHARED, 0);
    for (size_t i = 5; i < PAGE; i++)
        CHECK_EQ(p[i], 0);
    p[100] = 'q'; /* past the end: never written to the file (mmap(2)) */
    struct stat st;
    OK(fstat(fd, &st));
    CHECK_EQ(st.st_size, 5);
}

TEST(page_past_the_end_is_sigbus) {
    PUT("f", "short");
    int fd = OK(open("f", O_RDWR));
    char *p = map(fd, 3 * PAGE, RW, MAP_SHARED, 0);
    CHECK_EQ(p[0], 's');
    FAULTS(PEEK(p + PAGE), SIGBUS, BUS_ADRERR, p + PAGE);
    FAULTS(POKE(p + 2 * PAGE + 9, 1), SIGBUS, BUS_ADRERR, p + 2 * PAGE + 9);
}

TEST(private_page_past_the_end_is_sigbus) {
    PUT("f", "short");
    int fd = OK(open("f", O_RDONLY));
    char *p = map(fd, 2 * PAGE, RW, MAP_PRIVATE, 0);
    FAULTS(PEEK(p + PAGE + 1), SIGBUS, BUS_ADRERR, p + PAGE + 1);
    FAULTS(POKE(p + PAGE, 1), SIGBUS, BUS_ADRERR, p + PAGE);
}

TEST(empty_file_mapping_is_sigbus) {
    PUT("f", "");
    int fd = OK(open("f", O_RDONLY));
    char *p = map(fd, PAGE, PROT_READ, MAP_PRIVATE, 0);
    FAULTS(PEEK(p), SIGBUS, BUS_ADRERR, p);
}

TEST(growing_the_file_makes_the_page_appear) {
    int fd = file_of(10);
    char *p = map(fd, 2 * PAGE, RW, MAP_SHARED, 0);
    FAULTS(PEEK(p + PAGE), SIGBUS, BUS_ADRERR, p + PAGE);
    OK(ftruncate(fd, 2 * PAGE));
    p[PAGE] = 'n';
    char c;
    OK(pread(fd, &c, 1, PAGE));
    CHECK_EQ(c, 'n');
}

TEST(truncation_takes_mapped_pages_away) {
    int fd = file_of(3 * PAGE);
    char *p = map(fd, 3 * PAGE, RW, MAP_SHARED, 0);
    char *q = map(fd, 3 * PAGE, RW, MAP_PRIVATE, 0);
    memset(p, 'a', 3 * PAGE);
    q[2 * PAGE] = 'b'; /* a private copy goes as well (truncate(2), unmap_mapping_range) */
    OK(ftruncate(fd, PAGE / 2));
    FAULTS(PEEK(p + PAGE), SIGBUS, BUS_ADRERR, p + PAGE);
    FAULTS(PEEK(q + 2 * PAGE), SIGBUS, BUS_ADRERR, q + 2 * PAGE);
    OK(ftruncate(fd, 3 * PAGE));
    CHECK_EQ(p[0], 'a');
    CHECK_EQ(p[PAGE / 2], 0); /* the cut part of the page is zero when the file grows again */
    CHECK_EQ(p[PAGE], 0);
}

TEST(hole_under_a_vast_mapping_leaves_private_copies) {
    /* 16 TiB of address space: work goes by what is there, not by how far it reaches. */
    enum { PAGES = 200 };
    int fd = file_of(PAGES * PAGE);
    size_t vast = (size_t)1 << 44;
    char *p = mmap(NULL, vast, RW, MAP_PRIVATE | MAP_NORESERVE, fd, 0);
    if (p == MAP_FAILED)
        SKIP("no room for 16 TiB of addresses: %s", strerror(errno));
    char *last = p + (PAGES - 1) * PAGE;
    char *before = map(fd, PAGES * PAGE, PROT_READ, MAP_PRIVATE, 0);
    for (int i = 0; i < PAGES; i++) {
        CHECK(((volatile char *)p)[i * PAGE] == before[i * PAGE]);
        if (i % 2)
            p[i * PAGE] = 'c';
    }
    if (fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 1L << 42) != 0)
        SKIP("no holes here: %s", strerror(errno));
    for (int i = 0; i < PAGES; i++)
        CHECK_EQ(((volatile char *)p)[i * PAGE], i % 2 ? 'c' : 0);
    OK(ftruncate(fd, 0));
    FAULTS(PEEK(last), SIGBUS, BUS_ADRERR, last);
    OK(munmap(p, vast));
}

TEST(offset_must_be_page_aligned) {
    int fd = file_of(3 * PAGE);
    ERR(syscall(SYS_mmap, NULL, PAGE, PROT_READ, MAP_SHARED, fd, 100), EINVAL);
    ERR(syscall(SYS_mmap, NULL, PAGE, PROT_READ, MAP_SHARED, fd, 512), EINVAL);
}

TEST(offset_overflow_is_eoverflow) {
    int fd = file_of(PAGE);
    ERR2(syscall(SYS_mmap, NULL, 2 * PAGE, PROT_READ, MAP_SHARED, fd, 0x7ffffffffffff000), EOVERFLOW,
         EINVAL);
}

TEST(rights_of_the_descriptor_bound_the_mapping) {
    PUT("f", "x");
    int wo = OK(open("f", O_WRONLY)), ro = OK(open("f", O_RDONLY));
    ERR(mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, wo, 0), EACCES);
    ERR(mmap(NULL, PAGE, PROT_WRITE, MAP_SHARED, wo, 0), EACCES); /* a mapping always reads */
    ERR(mmap(NULL, PAGE, RW, MAP_SHARED, ro, 0), EACCES);
}

TEST(what_cannot_be_mapped) {
    int p[2];
    OK(pipe(p));
    ERR(mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, p[0], 0), ENODEV);
    ERR(mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, 999, 0), EBADF);
    ERR(mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, -1, 0), EBADF);
    int dir = OK(open(".", O_RDONLY | O_DIRECTORY));
    ERR2(mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, dir, 0), ENODEV, EACCES);
    int path = OK(open(".", O_PATH));
    ERR(mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, path, 0), EBADF);
}

TEST(dev_zero_maps_as_anonymous_memory) {
    int fd = OK(open("/dev/zero", O_RDWR));
    char *p = map(fd, 2 * PAGE, RW, MAP_PRIVATE, 0);
    CHECK_EQ(p[PAGE], 0);
    p[PAGE] = 1;
    char *q = map(fd, PAGE, RW, MAP_SHARED, 0);
    IN_CHILD(q[7] = 7);
    CHECK_EQ(q[7], 7);
}

TEST(msync_and_its_errors) {
    int fd = file_of(2 * PAGE);
    char *p = map(fd, 2 * PAGE, RW, MAP_SHARED, 0);
    p[0] = 1;
    OK(msync(p, 2 * PAGE, MS_SYNC));
    OK(msync(p, PAGE, MS_ASYNC));
    OK(msync(p, PAGE, MS_SYNC | MS_INVALIDATE));
    ERR(msync(p, PAGE, MS_SYNC | MS_ASYNC), EINVAL);
    ERR(msync(p, PAGE, 64), EINVAL);
    ERR(msync(p + 1, PAGE, MS_SYNC), EINVAL);
    OK(munmap(p + PAGE, PAGE));
    ERR(msync(p, 2 * PAGE, MS_SYNC), ENOMEM);
}

TEST(private_page_seen_before_copy_follows_the_file_or_not_but_copy_stays) {
    int fd = file_of(2 * PAGE);
    char *p = map(fd, 2 * PAGE, RW, MAP_PRIVATE, 0);
    p[0] = 'm';
    OK(pwrite(fd, "FF", 2, 0));
    CHECK_EQ(p[0], 'm'); /* once copied the page is ours */
    CHECK_EQ(p[1], 0);
}

TEST(unlinked_file_stays_mapped_and_shared) {
    int fd = file_of(PAGE);
    char *p = map(fd, PAGE, RW, MAP_SHARED, 0);
    OK(unlink("data"));
    OK(close(fd));
    p[1] = 9;
    IN_CHILD({
        CHECK_EQ(p[1], 9);
        p[2] = 10;
    });
    CHECK_EQ(p[2], 10);
}

TEST(read_into_a_mapping_of_the_same_file) {
    int fd = file_of(2 * PAGE);
    char *p = map(fd, 2 * PAGE, RW, MAP_SHARED, 0);
    strcpy(p, "self");
    CHECK_EQ(OK(pread(fd, p + PAGE, 5, 0)), 5); /* must not deadlock on its own page */
    CHECK_STR(p + PAGE, "self");
    CHECK_EQ(OK(pwrite(fd, p, PAGE, PAGE)), PAGE);
}

TEST(executable_mapping_runs_file_contents) {
    static const unsigned char code[] = {0x8d, 0x47, 0x01, 0xc3}; /* lea 1(%rdi), %eax; ret */
    PUT_BYTES("code", code, sizeof code);
    int fd = OK(open("code", O_RDONLY));
    int (*next)(int) =
        (int (*)(int))(void *)map(fd, PAGE, PROT_READ | PROT_EXEC, MAP_PRIVATE, 0);
    CHECK_EQ(next(41), 42);
}

TEST(mremap_of_a_shared_file_mapping) {
    int fd = file_of(8 * PAGE);
    char *p = map(fd, 2 * PAGE, RW, MAP_SHARED, 0);
    p[PAGE] = 1;
    char *q = OK(mremap(p, 2 * PAGE, 8 * PAGE, MREMAP_MAYMOVE));
    CHECK_EQ(q[PAGE], 1);
    q[7 * PAGE] = 5;
    char c;
    OK(pread(fd, &c, 1, 7 * PAGE));
    CHECK_EQ(c, 5);
    /* an old size of 0 doubles a shared mapping (mremap(2)) */
    char *r = OK(mremap(q, 0, PAGE, MREMAP_MAYMOVE));
    CHECK(r != q);
    r[0] = 77;
    CHECK_EQ(q[0], 77);
}

TEST(madvise_dontneed_keeps_shared_contents) {
    int fd = file_of(PAGE);
    char *p = map(fd, PAGE, RW, MAP_SHARED, 0);
    p[0] = 3;
    OK(madvise(p, PAGE, MADV_DONTNEED));
    CHECK_EQ(p[0], 3);
}

/* ---- memory across fork ---------------------------------------------------------------------- */

TEST(fork_copies_private_memory) {
    char *p = OK(mmap(NULL, 4 * PAGE, RW, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    static int global = 1;
    int local = 1;
    memset(p, 1, 4 * PAGE);
    IN_CHILD({
        CHECK_EQ(p[PAGE], 1);
        CHECK(global == 1 && local == 1);
        memset(p, 2, 4 * PAGE);
        global = local = 2;
        CHECK_EQ(p[3 * PAGE], 2);
    });
    CHECK_EQ(p[0], 1);
    CHECK_EQ(p[4 * PAGE - 1], 1);
    CHECK(global == 1 && local == 1);
}

TEST(write_of_the_parent_after_fork_stays_its_own) {
    char *p = OK(mmap(NULL, PAGE, RW, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    p[0] = 'o';
    GATE(go);
    pid_t pid = FORK();
    if (pid == 0) {
        gate_pass(&go);
        CHECK_EQ(p[0], 'o');
        _exit(0);
    }
    p[0] = 'n';
    gate_open(&go);
    EXITS(pid, 0);
    CHECK_EQ(p[0], 'n');
}

TEST(fork_of_a_fork_keeps_every_version) {
    char *p = OK(mmap(NULL, PAGE, RW, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    int *seen = SHARED(PAGE);
    for (int depth = 0; depth < 8; depth++) {
        p[depth] = (char)(depth + 1);
        pid_t pid = FORK();
        if (pid > 0) {
            EXITS(pid, 0);
            /* the descendants' writes are not here */
            for (int i = 0; i < 8; i++)
                CHECK_EQ(p[i], i <= depth ? i + 1 : 0);
            seen[depth] = 1;
            if (depth > 0)
                _exit(0);
            break;
        }
        if (depth == 7)
            _exit(0);
    }
    for (int i = 0; i < 8; i++)
        CHECK_EQ(seen[i], 1);
}

TEST(system_call_writes_break_copy_on_write) {
    char *p = OK(mmap(NULL, PAGE, RW, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    strcpy(p, "parent");
    PUT("f", "KERNEL");
    IN_CHILD({
        int fd = OK(open("f", O_RDONLY));
        OK(read(fd, p, 6)); /* the kernel's own write must copy, too */
        CHECK_STR(p, "KERNEL");
    });
    CHECK_STR(p, "parent");
}

TEST(prot_none_over_fork_then_writable) {
    char *p = OK(mmap(NULL, PAGE, RW, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    p[0] = 1;
    OK(mprotect(p, PAGE, PROT_READ));
    pid_t pid = FORK();
    if (pid == 0) {
        OK(mprotect(p, PAGE, RW)); /* must not make the shared frame writable */
        p[0] = 2;
        _exit(0);
    }
    EXITS(pid, 0);
    CHECK_EQ(p[0], 1);
    FAULTS(POKE(p, 1), SIGSEGV, SEGV_ACCERR, p);
}

TEST(shared_anonymous_memory_is_common_to_generations) {
    int *p = SHARED(2 * PAGE);
    IN_CHILD({
        IN_CHILD(p[1024] = 5); /* a page nobody touched before the fork */
        p[0] = p[1024] + 1;
    });
    CHECK_EQ(p[0], 6);
    CHECK_EQ(p[1024], 5);
}

TEST(sixteen_children_write_the_same_page) {
    char *p = OK(mmap(NULL, 8 * PAGE, RW, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    memset(p, 1, 8 * PAGE);
    pid_t pids[16];
    for (int i = 0; i < 16; i++)
        if ((pids[i] = FORK()) == 0) {
            for (int round = 0; round < 50; round++)
                for (size_t page = 0; page < 8; page++) {
                    p[page * PAGE] = (char)i;
                    p[page * PAGE + 1] = (char)round;
                    CHECK_EQ(p[page * PAGE], i);
                    CHECK_EQ(p[page * PAGE + 2], 1);
                }
            _exit(0);
        }
    for (int i = 0; i < 16; i++)
        EXITS(pids[i], 0);
    for (size_t page = 0; page < 8; page++)
        CHECK_EQ(p[page * PAGE], 1);
}

TEST(madv_dontfork_and_wipeonfork) {
    char *gone = OK(mmap(NULL, PAGE, RW, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    char *wiped = OK(mmap(NULL, PAGE, RW, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    gone[0] = wiped[0] = 1;
    OK(madvise(gone, PAGE, MADV_DONTFORK));
    OK(madvise(wiped, PAGE, 18 /* MADV_WIPEONFORK */));
    IN_CHILD({
        CHECK_EQ(wiped[0], 0);
        FAULTS(PEEK(gone), SIGSEGV, SEGV_MAPERR, gone);
    });
    CHECK_EQ(gone[0] + wiped[0], 2);
}
