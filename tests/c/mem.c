/* Address spaces: mmap, munmap, mprotect, mremap, madvise, mincore, brk, stack growth. */
#define AREA "mem"
#include "harness.h"

#define RW (PROT_READ | PROT_WRITE)
#define PRIV (MAP_PRIVATE | MAP_ANONYMOUS)

static char *anon(size_t size, int prot) { return OK(mmap(NULL, size, prot, PRIV, -1, 0)); }

/* A range of addresses that was free a moment ago. */
static char *hole(size_t size) {
    char *p = anon(size, PROT_NONE);
    OK(munmap(p, size));
    return p;
}

TEST(anonymous_memory_is_zero_and_writable) {
    unsigned char *p = (unsigned char *)anon(64 * PAGE, RW);
    CHECK_EQ((uintptr_t)p % PAGE, 0);
    for (size_t i = 0; i < 64 * PAGE; i++)
        if (p[i] != 0)
            FAIL("byte %zu of fresh memory is %d", i, p[i]);
    for (size_t i = 0; i < 64; i++)
        p[i * PAGE + i] = (unsigned char)(i + 1);
    for (size_t i = 0; i < 64; i++)
        CHECK_EQ(p[i * PAGE + i], i + 1);
}

TEST(freed_memory_comes_back_as_zeros) {
    for (int round = 0; round < 20; round++) {
        char *p = anon(32 * PAGE, RW);
        for (size_t i = 0; i < 32; i++)
            CHECK_EQ(p[i * PAGE + 100], 0);
        memset(p, 0xa5, 32 * PAGE);
        OK(munmap(p, 32 * PAGE));
    }
}

TEST(length_is_rounded_up_to_pages) {
    char *p = OK(mmap(NULL, 5, RW, PRIV, -1, 0));
    p[PAGE - 1] = 1;
    CHECK_EQ(p[PAGE - 1], 1);
    OK(munmap(p, 1)); /* the whole page goes */
    FAULTS(PEEK(p + 8), SIGSEGV, SEGV_MAPERR, p + 8);
}

TEST(mmap_of_length_zero_is_einval) { ERR(mmap(NULL, 0, RW, PRIV, -1, 0), EINVAL); }

TEST(mmap_needs_private_or_shared) {
    ERR(mmap(NULL, PAGE, RW, MAP_ANONYMOUS, -1, 0), EINVAL);
}

TEST(mmap_of_a_huge_length_is_enomem) {
    ERR(mmap(NULL, (size_t)1 << 62, RW, PRIV, -1, 0), ENOMEM);
    ERR(mmap(NULL, SIZE_MAX, RW, PRIV, -1, 0), ENOMEM);
    ERR(mmap(NULL, (size_t)1 << 47, PROT_NONE, PRIV, -1, 0), ENOMEM);
}

TEST(mmap_fixed_needs_an_aligned_address) {
    char *p = hole(4 * PAGE);
    ERR(mmap(p + 1, PAGE, RW, PRIV | MAP_FIXED, -1, 0), EINVAL);
}

TEST(mmap_fixed_in_kernel_half_fails) {
    ERR2(mmap(KERNEL_ADDRESS, PAGE, RW, PRIV | MAP_FIXED, -1, 0), ENOMEM, EINVAL);
    /* just below the end of what five levels of tables reach */
    ERR2(mmap((void *)0xfffffffffff000, 2 * PAGE, RW, PRIV | MAP_FIXED, -1, 0), ENOMEM, EINVAL);
}

TEST(mmap_hint_is_taken_when_free) {
    char *p = hole(16 * PAGE);
    char *q = OK(mmap(p + 4 * PAGE, PAGE, RW, PRIV, -1, 0));
    CHECK_EQ((long)q, (long)(p + 4 * PAGE));
}

TEST(mmap_hint_is_only_a_hint) {
    char *p = anon(PAGE, RW);
    *p = 42;
    char *q = OK(mmap(p, PAGE, RW, PRIV, -1, 0));
    CHECK(q != p);
    CHECK_EQ(*p, 42);
}

TEST(map_fixed_replaces_what_was_there) {
    char *p = anon(3 * PAGE, RW);
    memset(p, 7, 3 * PAGE);
    char *q = OK(mmap(p + PAGE, PAGE, RW, PRIV | MAP_FIXED, -1, 0));
    CHECK_EQ((long)q, (long)(p + PAGE));
    CHECK_EQ(p[PAGE - 1], 7);
    CHECK_EQ(p[PAGE], 0);
    CHECK_EQ(p[2 * PAGE - 1], 0);
    CHECK_EQ(p[2 * PAGE], 7);
}

#ifndef MAP_FIXED_NOREPLACE
#define MAP_FIXED_NOREPLACE 0x100000
#endif
TEST(map_fixed_noreplace_refuses_overlap) {
    char *p = anon(3 * PAGE, RW);
    p[PAGE] = 9;
    OK(munmap(p, PAGE));
    ERR(mmap(p, 2 * PAGE, RW, PRIV | MAP_FIXED_NOREPLACE, -1, 0), EEXIST);
    CHECK_EQ(p[PAGE], 9);
    FAULTS(PEEK(p), SIGSEGV, SEGV_MAPERR, p); /* nothing was half done */
    CHECK_EQ((long)OK(mmap(p, PAGE, RW, PRIV | MAP_FIXED_NOREPLACE, -1, 0)), (long)p);
}

TEST(munmap_in_the_middle_splits) {
    char *p = anon(5 * PAGE, RW);
    memset(p, 3, 5 * PAGE);
    OK(munmap(p + 2 * PAGE, PAGE));
    CHECK_EQ(p[2 * PAGE - 1], 3);
    CHECK_EQ(p[3 * PAGE], 3);
    FAULTS(POKE(p + 2 * PAGE, 1), SIGSEGV, SEGV_MAPERR, p + 2 * PAGE);
    FAULTS(PEEK(p + 3 * PAGE - 1), SIGSEGV, SEGV_MAPERR, p + 3 * PAGE - 1);
}

TEST(munmap_over_several_mappings_and_holes) {
    char *p = anon(8 * PAGE, RW);
    OK(munmap(p + PAGE, PAGE));
    OK(mprotect(p + 4 * PAGE, PAGE, PROT_READ));
    OK(munmap(p, 7 * PAGE));
    POKE(p + 7 * PAGE, 1);
    for (int i = 0; i < 7; i++)
        FAULTS(PEEK(p + i * PAGE), SIGSEGV, SEGV_MAPERR, p + i * PAGE);
    OK(munmap(p, 7 * PAGE)); /* nothing there is no error */
}

TEST(munmap_argument_errors) {
    char *p = anon(2 * PAGE, RW);
    ERR(munmap(p + 1, PAGE), EINVAL);
    ERR(munmap(p, 0), EINVAL);
    ERR(munmap(p, SIZE_MAX - 2 * PAGE), EINVAL);
    ERR(munmap(KERNEL_ADDRESS, PAGE), EINVAL);
    POKE(p + PAGE, 1);
}

TEST(segv_maperr_reports_the_address) {
    char *p = hole(PAGE);
    FAULTS(PEEK(p + 123), SIGSEGV, SEGV_MAPERR, p + 123);
    FAULTS(POKE(p + 4095, 1), SIGSEGV, SEGV_MAPERR, p + 4095);
    FAULTS(PEEK((char *)NULL + 16), SIGSEGV, SEGV_MAPERR, 16);
}

TEST(segv_accerr_on_write_to_read_only) {
    char *p = anon(2 * PAGE, PROT_READ);
    CHECK_EQ(p[77], 0);
    FAULTS(POKE(p + 77, 1), SIGSEGV, SEGV_ACCERR, p + 77);
    CHECK_EQ(p[77], 0);
}

TEST(segv_accerr_on_prot_none) {
    char *p = anon(PAGE, PROT_NONE);
    FAULTS(PEEK(p + 5), SIGSEGV, SEGV_ACCERR, p + 5);
    FAULTS(POKE(p + 6, 1), SIGSEGV, SEGV_ACCERR, p + 6);
}

TEST(non_canonical_address_is_a_plain_segv) {
    /* A general-protection fault: SI_KERNEL and no address (Linux arch/x86/kernel/traps.c). */
    FAULTS(PEEK((char *)0x8000000000000000UL), SIGSEGV, SI_KERNEL, 0);
}

TEST(kernel_addresses_are_out_of_reach) {
    needs_user_mode();
    int sig = FAULT(PEEK((char *)KERNEL_ADDRESS));
    CHECK_EQ(sig, SIGSEGV);
    sig = FAULT(POKE((char *)0xffff888000000000UL, 1));
    CHECK_EQ(sig, SIGSEGV);
    CHECK_EQ((long)hy_fault.address, (long)0xffff888000000000UL);
}

TEST(code_runs_only_from_executable_pages) {
    static const unsigned char code[] = {0xb8, 0x2a, 0, 0, 0, 0xc3}; /* mov $42, %eax; ret */
    char *p = anon(PAGE, RW);
    memcpy(p, code, sizeof code);
    int (*call)(void) = (int (*)(void))(void *)p;
    volatile int got = 0;
    FAULTS(got = call(), SIGSEGV, SEGV_ACCERR, p);
    OK(mprotect(p, PAGE, PROT_READ | PROT_EXEC));
    CHECK_EQ(call(), 42);
    FAULTS(POKE(p, 1), SIGSEGV, SEGV_ACCERR, p);
    OK(mprotect(p, PAGE, RW));
    FAULTS(got = call(), SIGSEGV, SEGV_ACCERR, p);
    (void)got;
}

TEST(stack_is_not_executable) {
    unsigned char code[16] = {0xc3};
    uintptr_t at = (uintptr_t)code;
    __asm__ volatile("" : "+r"(at) : : "memory"); /* the array escapes */
    FAULTS(((void (*)(void))at)(), SIGSEGV, SEGV_ACCERR, at);
}

TEST(mprotect_keeps_contents_and_splits) {
    char *p = anon(5 * PAGE, RW);
    for (int i = 0; i < 5; i++)
        p[i * PAGE] = (char)(i + 1);
    OK(mprotect(p + PAGE, 3 * PAGE, PROT_READ));
    for (int i = 0; i < 5; i++)
        CHECK_EQ(p[i * PAGE], i + 1);
    POKE(p, 10);
    POKE(p + 4 * PAGE, 11);
    FAULTS(POKE(p + PAGE, 1), SIGSEGV, SEGV_ACCERR, p + PAGE);
    OK(mprotect(p + 2 * PAGE, PAGE, RW));
    POKE(p + 2 * PAGE, 12);
    FAULTS(POKE(p + 3 * PAGE, 1), SIGSEGV, SEGV_ACCERR, p + 3 * PAGE);
    OK(mprotect(p, 5 * PAGE, RW));
    POKE(p + 3 * PAGE, 13);
    CHECK_EQ(p[2 * PAGE], 12);
}

TEST(mprotect_none_and_back_keeps_contents) {
    char *p = anon(PAGE, RW);
    *p = 55;
    OK(mprotect(p, PAGE, PROT_NONE));
    FAULTS(PEEK(p), SIGSEGV, SEGV_ACCERR, p);
    OK(mprotect(p, PAGE, PROT_READ));
    CHECK_EQ(*p, 55);
}

TEST(mprotect_over_a_hole_is_enomem) {
    char *p = anon(3 * PAGE, RW);
    OK(munmap(p + PAGE, PAGE));
    ERR(mprotect(p, 3 * PAGE, PROT_READ), ENOMEM);
    ERR(mprotect(p + PAGE, PAGE, PROT_READ), ENOMEM);
}

TEST(mprotect_argument_errors) {
    char *p = anon(2 * PAGE, RW);
    /* Past musl's wrapper, which aligns the address itself. */
    ERR(syscall(SYS_mprotect, p + 1, PAGE, PROT_READ), EINVAL);
    ERR(syscall(SYS_mprotect, p, PAGE, 0x40000000), EINVAL);
    ERR(syscall(SYS_mprotect, p, SIZE_MAX - PAGE, PROT_READ), ENOMEM);
    OK(mprotect(p, 0, PROT_NONE)); /* a length of zero does nothing */
    POKE(p, 1);
}

TEST(mprotect_write_on_read_only_shared_file_is_eacces) {
    PUT("f", "hello");
    int fd = OK(open("f", O_RDONLY));
    char *p = OK(mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, 0));
    ERR(mprotect(p, PAGE, RW), EACCES);
    char *q = OK(mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, fd, 0));
    OK(mprotect(q, PAGE, RW)); /* a private copy needs no right to write the file */
    q[0] = 'J';
    CHECK_EQ(p[0], 'h');
}

TEST(mremap_grows_and_keeps_contents) {
    char *p = anon(2 * PAGE, RW);
    p[0] = 1, p[2 * PAGE - 1] = 2;
    char *q = OK(mremap(p, 2 * PAGE, 40 * PAGE, MREMAP_MAYMOVE));
    CHECK_EQ(q[0], 1);
    CHECK_EQ(q[2 * PAGE - 1], 2);
    CHECK_EQ(q[2 * PAGE], 0);
    q[40 * PAGE - 1] = 3;
    if (q != p)
        FAULTS(PEEK(p), SIGSEGV, SEGV_MAPERR, p);
}

TEST(mremap_shrinks_in_place) {
    char *p = anon(4 * PAGE, RW);
    p[0] = 5;
    CHECK_EQ((long)OK(mremap(p, 4 * PAGE, PAGE, 0)), (long)p);
    CHECK_EQ(p[0], 5);
    FAULTS(PEEK(p + PAGE), SIGSEGV, SEGV_MAPERR, p + PAGE);
    FAULTS(PEEK(p + 3 * PAGE), SIGSEGV, SEGV_MAPERR, p + 3 * PAGE);
}

TEST(mremap_without_maymove_cannot_grow_into_a_neighbour) {
    char *p = anon(2 * PAGE, RW);
    OK(mprotect(p + PAGE, PAGE, PROT_READ)); /* two mappings now */
    ERR(mremap(p, PAGE, 2 * PAGE, 0), ENOMEM);
    POKE(p, 1);
}

TEST(mremap_grows_in_place_into_a_hole) {
    char *p = anon(4 * PAGE, RW);
    OK(munmap(p + PAGE, 3 * PAGE));
    p[0] = 8;
    CHECK_EQ((long)OK(mremap(p, PAGE, 4 * PAGE, 0)), (long)p);
    CHECK_EQ(p[0], 8);
    p[3 * PAGE] = 1;
}

TEST(mremap_fixed_moves_over_what_is_there) {
    char *p = anon(2 * PAGE, RW), *q = anon(4 * PAGE, RW);
    memset(p, 1, 2 * PAGE);
    memset(q, 2, 4 * PAGE);
    char *r = OK(mremap(p, 2 * PAGE, 2 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, q + PAGE));
    CHECK_EQ((long)r, (long)(q + PAGE));
    CHECK_EQ(q[0], 2);
    CHECK_EQ(q[PAGE], 1);
    CHECK_EQ(q[3 * PAGE - 1], 1);
    CHECK_EQ(q[3 * PAGE], 2);
    FAULTS(PEEK(p), SIGSEGV, SEGV_MAPERR, p);
}

TEST(mremap_argument_errors) {
    /* Ends at a hole: a mapping above another may have merged with it. */
    char *p = anon(8 * PAGE, RW);
    OK(munmap(p + 4 * PAGE, 4 * PAGE));
    char *gone = hole(4 * PAGE);
    ERR(mremap(p + 1, PAGE, PAGE, 0), EINVAL);
    ERR(mremap(p, PAGE, 0, MREMAP_MAYMOVE), EINVAL);
    ERR(mremap(p, PAGE, PAGE, 0x100), EINVAL);
    ERR(mremap(p, PAGE, PAGE, MREMAP_FIXED, p + 2 * PAGE), EINVAL); /* FIXED needs MAYMOVE */
    ERR(mremap(p, 2 * PAGE, 2 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, p + PAGE), EINVAL);
    ERR(mremap(gone, PAGE, 2 * PAGE, MREMAP_MAYMOVE), EFAULT);
    ERR(mremap(p, 5 * PAGE, 8 * PAGE, MREMAP_MAYMOVE), EFAULT); /* old size beyond the mapping */
}

TEST(madvise_dontneed_drops_anonymous_pages) {
    char *p = anon(4 * PAGE, RW);
    memset(p, 1, 4 * PAGE);
    OK(madvise(p + PAGE, 2 * PAGE, MADV_DONTNEED));
    CHECK_EQ(p[PAGE - 1], 1);
    CHECK_EQ(p[PAGE], 0);
    CHECK_EQ(p[3 * PAGE - 1], 0);
    CHECK_EQ(p[3 * PAGE], 1);
    p[PAGE] = 4;
    CHECK_EQ(p[PAGE], 4);
}

TEST(madvise_dontneed_reverts_private_file_pages) {
    PUT("f", "original");
    int fd = OK(open("f", O_RDONLY));
    char *p = OK(mmap(NULL, PAGE, RW, MAP_PRIVATE, fd, 0));
    memcpy(p, "modified", 8);
    OK(madvise(p, PAGE, MADV_DONTNEED));
    CHECK(!memcmp(p, "original", 8));
}

TEST(madvise_argument_errors) {
    char *p = anon(3 * PAGE, RW);
    ERR(madvise(p + 1, PAGE, MADV_DONTNEED), EINVAL);
    ERR(madvise(p, PAGE, 12345), EINVAL);
    OK(madvise(p, 0, MADV_DONTNEED));
    p[2 * PAGE] = 6;
    OK(munmap(p + PAGE, PAGE));
    ERR(madvise(p, 3 * PAGE, MADV_DONTNEED), ENOMEM); /* yet the mapped parts are done */
    CHECK_EQ(p[2 * PAGE], 0);
}

TEST(madvise_errors_of_each_advice) {
    enum { DONTNEED_LOCKED = 24, COLD = 20, PAGEOUT = 21, POPULATE_READ = 22, POPULATE_WRITE = 23,
           WIPEONFORK = 18, FREE = 8, REMOVE = 9 };
    char *plain = anon(PAGE, RW), *locked = anon(PAGE, RW);
    OK(mlock(locked, PAGE));
    char *shared = OK(mmap(NULL, PAGE, RW, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    PUT_BYTES("f", plain, PAGE);
    int fd = OK(open("f", O_RDWR));
    char *file = OK(mmap(NULL, PAGE, RW, MAP_PRIVATE, fd, 0));
    char *reads = OK(mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, 0));
    ERR(madvise(locked, PAGE, MADV_DONTNEED), EINVAL);
    OK(madvise(locked, PAGE, DONTNEED_LOCKED));
    ERR(madvise(locked, PAGE, FREE), EINVAL);
    ERR(madvise(locked, PAGE, COLD), EINVAL);
    ERR(madvise(locked, PAGE, PAGEOUT), EINVAL);
    OK(madvise(plain, PAGE, COLD));
    OK(madvise(plain, PAGE, PAGEOUT));
    ERR(madvise(file, PAGE, FREE), EINVAL);
    ERR(madvise(shared, PAGE, FREE), EINVAL);
    ERR(madvise(shared, PAGE, WIPEONFORK), EINVAL);
    ERR(madvise(file, PAGE, WIPEONFORK), EINVAL);
    ERR(madvise(plain, PAGE, REMOVE), EINVAL);
    ERR(madvise(file, PAGE, REMOVE), EACCES);
    OK(madvise(shared, PAGE, REMOVE));
    OK(mlock(shared, PAGE));
    ERR(madvise(shared, PAGE, REMOVE), EINVAL);
    char *none = anon(PAGE, PROT_NONE), *text = anon(PAGE, PROT_READ);
    ERR(madvise(none, PAGE, POPULATE_READ), EINVAL);
    ERR(madvise(text, PAGE, POPULATE_WRITE), EINVAL);
    OK(madvise(text, PAGE, POPULATE_READ));
    OK(ftruncate(fd, 0));
    ERR(madvise(reads, PAGE, POPULATE_READ), EFAULT);
    static const int all[] = {MADV_NORMAL, MADV_RANDOM, MADV_SEQUENTIAL, MADV_WILLNEED, MADV_DONTNEED,
                              FREE, REMOVE, 10, 11, 14, 15, 16, 17, WIPEONFORK, 19, COLD, PAGEOUT,
                              POPULATE_READ, POPULATE_WRITE, DONTNEED_LOCKED};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        OK(madvise(plain, 0, all[i]));
        OK(madvise((void *)0x800000000000, 0, all[i]));
        ERR(madvise(plain + 1, 0, all[i]), EINVAL);
        ERR(madvise(plain, (size_t)-1, all[i]), EINVAL);
        ERR(madvise((void *)-PAGE, 2 * PAGE, all[i]), EINVAL);
        ERR(madvise(BAD, PAGE, all[i]), ENOMEM);
        ERR(madvise((void *)0x800000000000, PAGE, all[i]), ENOMEM); /* above every program */
    }
}

TEST(mincore_tells_touched_pages) {
    unsigned char seen[4] = {9, 9, 9, 9};
    char *p = anon(4 * PAGE, RW);
    p[PAGE] = 1, p[3 * PAGE] = 1;
    OK(mincore(p, 4 * PAGE, seen));
    CHECK_EQ(seen[0] & 1, 0);
    CHECK_EQ(seen[1] & 1, 1);
    CHECK_EQ(seen[2] & 1, 0);
    CHECK_EQ(seen[3] & 1, 1);
    OK(madvise(p + PAGE, PAGE, MADV_DONTNEED));
    OK(mincore(p + PAGE, PAGE, seen));
    CHECK_EQ(seen[0] & 1, 0);
}

TEST(mincore_errors) {
    unsigned char seen[4];
    char *p = anon(3 * PAGE, RW);
    OK(munmap(p + PAGE, PAGE));
    ERR(mincore(p, 3 * PAGE, seen), ENOMEM);
    ERR(mincore(p + 1, PAGE, seen), EINVAL);
    ERR(mincore(p, PAGE, BAD), EFAULT);
}

TEST(brk_grows_zeroed_and_shrinks) {
    char *start = (char *)syscall(SYS_brk, 0);
    char *from = (char *)(((uintptr_t)start + PAGE - 1) / PAGE * PAGE);
    char *want = from + 3 * PAGE;
    CHECK_EQ(syscall(SYS_brk, want), (long)want);
    for (char *p = from; p < want; p += PAGE) {
        CHECK_EQ(*p, 0);
        *p = 1;
    }
    CHECK_EQ(syscall(SYS_brk, from), (long)from);
    FAULTS(PEEK(from + PAGE), SIGSEGV, SEGV_MAPERR, from + PAGE);
    CHECK_EQ(syscall(SYS_brk, want), (long)want);
    CHECK_EQ(from[PAGE], 0); /* memory given back does not return with its contents */
}

TEST(brk_refuses_and_returns_the_old_break) {
    long now = syscall(SYS_brk, 0);
    CHECK(now > 0);
    CHECK_EQ(syscall(SYS_brk, 4096), now);            /* below the start of the heap */
    CHECK_EQ(syscall(SYS_brk, (long)1 << 62), now);   /* above everything */
    CHECK_EQ(syscall(SYS_brk, KERNEL_ADDRESS), now);
}

static __attribute__((noinline)) int deep(int left) {
    volatile char frame[4096];
    frame[0] = (char)left;
    frame[4095] = 1;
    return left == 0 ? frame[4095] : deep(left - 1) + frame[4095] - (frame[0] != (char)left);
}

TEST(stack_grows_to_megabytes) { IN_CHILD(CHECK_EQ(deep(1000), 1001)); }

TEST(stack_overflow_is_sigsegv) {
    pid_t pid = FORK();
    if (pid == 0) {
        struct rlimit small = {256 * 1024, 256 * 1024};
        struct rlimit no_core = {0, 0};
        setrlimit(RLIMIT_STACK, &small);
        setrlimit(RLIMIT_CORE, &no_core);
        _exit(deep(1000000) & 1);
    }
    KILLED(pid, SIGSEGV);
}

TEST(large_frame_below_the_stack_pointer_grows_it) {
    /* Linux allows any distance within the limit since 4.20 (commit 1d8ca3be86eb). */
    char here;
    uintptr_t sp = (uintptr_t)&here;
    __asm__ volatile("" : "+r"(sp));
    volatile char *far = (volatile char *)(sp - 1024 * 1024);
    POKE(far, 3);
    CHECK_EQ(*far, 3);
}

TEST(map_noreserve_of_many_gigabytes) {
    size_t size = (size_t)64 << 30;
    char *p = OK(mmap(NULL, size, RW, PRIV | MAP_NORESERVE, -1, 0));
    p[0] = 1;
    p[size / 2] = 2;
    p[size - 1] = 3;
    CHECK_EQ(p[size / 2], 2);
    CHECK_EQ(p[size / 4], 0);
    OK(munmap(p, size));
}

TEST(map_populate_makes_pages_present) {
    unsigned char seen[8];
    char *p = OK(mmap(NULL, 8 * PAGE, RW, PRIV | MAP_POPULATE, -1, 0));
    OK(mincore(p, 8 * PAGE, seen));
    for (int i = 0; i < 8; i++)
        CHECK_EQ(seen[i] & 1, 1);
}

TEST(map_stack_and_growsdown_flags_are_accepted) {
    char *p = OK(mmap(NULL, 16 * PAGE, RW, PRIV | MAP_STACK | MAP_NORESERVE, -1, 0));
    p[16 * PAGE - 1] = 1;
    char *q = OK(mmap(NULL, 4 * PAGE, RW, PRIV | MAP_GROWSDOWN, -1, 0));
    q[0] = 1;
}

TEST(many_small_mappings) {
    enum { COUNT = 2000 };
    static char *p[COUNT];
    for (int i = 0; i < COUNT; i++) {
        p[i] = anon(PAGE, i % 2 ? RW : PROT_READ); /* alternate, so they cannot merge */
        if (i % 2)
            p[i][0] = (char)i;
    }
    for (int i = 1; i < COUNT; i += 2)
        CHECK_EQ(p[i][0], (char)i);
    for (int i = 0; i < COUNT; i += 2)
        OK(munmap(p[i], PAGE));
    for (int i = 1; i < COUNT; i += 2)
        CHECK_EQ(p[i][0], (char)i);
}

TEST(two_megabyte_area_in_every_page) {
    size_t size = 6 << 20;
    char *p = anon(size, RW);
    for (size_t i = 0; i < size; i += PAGE)
        *(size_t *)(p + i) = i ^ 0x55aa;
    OK(mprotect(p + (2 << 20) + PAGE, PAGE, PROT_READ)); /* splits a large page, if there is one */
    OK(munmap(p + (4 << 20) + 3 * PAGE, PAGE));
    for (size_t i = 0; i < size; i += PAGE)
        if (i != (4 << 20) + 3 * PAGE)
            CHECK_EQ(*(size_t *)(p + i), i ^ 0x55aa);
    FAULTS(POKE(p + (2 << 20) + PAGE, 1), SIGSEGV, SEGV_ACCERR, p + (2 << 20) + PAGE);
}

TEST(system_call_faults_pages_in) {
    /* read(2) into untouched memory, over a page boundary, and out of a copy-on-write page. */
    char *p = anon(3 * PAGE, RW);
    PUT("f", "0123456789");
    int fd = OK(open("f", O_RDONLY));
    CHECK_EQ(OK(read(fd, p + PAGE - 5, 10)), 10);
    CHECK(!memcmp(p + PAGE - 5, "0123456789", 10));
    int out = OK(open("g", O_RDWR | O_CREAT, 0600));
    CHECK_EQ(OK(write(out, p + 2 * PAGE - 100, 200)), 200);
}

TEST(read_into_read_only_memory_is_efault) {
    char *p = anon(PAGE, PROT_READ);
    PUT("f", "data");
    int fd = OK(open("f", O_RDONLY));
    ERR(read(fd, p, 4), EFAULT);
    CHECK_EQ(p[0], 0);
}

TEST(read_stops_short_at_an_unmapped_page) {
    /* A copy that faults midway reports what was done, or EFAULT when nothing was. */
    static char big[3 * 4096];
    memset(big, 'x', sizeof big);
    PUT_BYTES("f", big, sizeof big);
    char *p = anon(2 * PAGE, RW);
    OK(munmap(p + PAGE, PAGE));
    int fd = OK(open("f", O_RDONLY));
    ssize_t n = OK(read(fd, p, 2 * PAGE));
    CHECK_EQ(n, PAGE);
    CHECK_EQ(p[PAGE - 1], 'x');
    CHECK_EQ(OK(lseek(fd, 0, SEEK_CUR)), n);
}

TEST(mlock_and_munlock) {
    char *p = anon(4 * PAGE, RW);
    unsigned char seen[4];
    OK(mlock(p, 4 * PAGE));
    OK(mincore(p, 4 * PAGE, seen));
    for (int i = 0; i < 4; i++)
        CHECK_EQ(seen[i] & 1, 1); /* mlock brings the pages in */
    OK(munlock(p, 4 * PAGE));
    OK(munmap(p + PAGE, PAGE));
    ERR(mlock(p, 4 * PAGE), ENOMEM);
}

TEST(address_space_is_randomised) {
    /* Two programs started one after the other have different stacks or mappings. */
    char first[64] = "", next[64];
    bool differs = false;
    for (int i = 0; i < 8 && !differs; i++) {
        GATE(out);
        pid_t pid = FORK();
        if (pid == 0) {
            dup2(out.fd[1], 1);
            execl(hy_self, hy_self, "--helper", "addresses", (char *)NULL);
            _exit(9);
        }
        memset(next, 0, sizeof next);
        close(out.fd[1]);
        CHECK(read(out.fd[0], next, sizeof next - 1) > 10);
        EXITS(pid, 0);
        if (i == 0)
            strcpy(first, next);
        differs = strcmp(first, next) != 0;
    }
    char text[16] = "2";
    get_file("/proc/sys/kernel/randomize_va_space", text, sizeof text);
    if (!differs && text[0] == '0')
        SKIP("address-space randomisation is off");
    CHECK(differs);
}

HELPER(addresses) {
    char text[64];
    int n = snprintf(text, sizeof text, "%p %p", (void *)text, (void *)anon(PAGE, RW));
    return write(1, text, (size_t)n) != n;
}

/* ---- large pages: whether there are any is the kernel's business, what they hold is not -------- */

#define LARGE ((size_t)2 << 20)

/* `count` aligned pieces of 2 MiB, every page of them marked with its number. */
static char *marked(size_t count) {
    char *p = anon((count + 1) * LARGE, RW);
    p = (char *)(((uintptr_t)p + LARGE - 1) & ~(LARGE - 1));
    for (size_t i = 0; i < count * LARGE / PAGE; i++)
        *(size_t *)(p + i * PAGE + 8) = i + 1;
    return p;
}

static void check_marks(const char *p, size_t from, size_t to) {
    for (size_t i = from; i < to; i++) {
        size_t found = *(size_t *)(p + i * PAGE + 8);
        if (found != i + 1 || *(size_t *)(p + i * PAGE) != 0 || *(size_t *)(p + i * PAGE + 16) != 0)
            FAIL("page %zu holds %zu", i, found);
    }
}

TEST(much_memory_touched_in_order_keeps_its_content) { check_marks(marked(4), 0, 2048); }

TEST(much_memory_touched_backwards_keeps_its_content) {
    char *p = anon(3 * LARGE, RW);
    for (size_t i = 3 * LARGE / PAGE; i-- > 0;)
        *(size_t *)(p + i * PAGE + 8) = i + 1;
    check_marks(p, 0, 3 * LARGE / PAGE);
}

TEST(much_memory_touched_here_and_there_is_zero_elsewhere) {
    char *p = anon(3 * LARGE, RW);
    size_t pages = 3 * LARGE / PAGE;
    for (size_t i = 0; i < pages; i += 3)
        *(size_t *)(p + i * 5 % pages * PAGE + 8) = 1;
    for (size_t i = 0; i < pages; i++)
        if (*(size_t *)(p + i * PAGE) != 0)
            FAIL("page %zu is not zero", i);
}

TEST(large_memory_is_unmapped_in_part) {
    char *p = marked(2);
    OK(munmap(p + 100 * PAGE, 50 * PAGE));
    OK(munmap(p + 500 * PAGE, 24 * PAGE));
    check_marks(p, 0, 100);
    check_marks(p, 150, 500);
    check_marks(p, 524, 1024);
    FAULTS(PEEK(p + 149 * PAGE), SIGSEGV, SEGV_MAPERR, p + 149 * PAGE);
    FAULTS(PEEK(p + 500 * PAGE), SIGSEGV, SEGV_MAPERR, p + 500 * PAGE);
}

TEST(large_memory_is_protected_in_part) {
    char *p = marked(2);
    OK(mprotect(p + 10 * PAGE, PAGE, PROT_READ));
    OK(mprotect(p + 511 * PAGE, 2 * PAGE, PROT_NONE));
    FAULTS(POKE(p + 10 * PAGE, 1), SIGSEGV, SEGV_ACCERR, p + 10 * PAGE);
    FAULTS(PEEK(p + 511 * PAGE), SIGSEGV, SEGV_ACCERR, p + 511 * PAGE);
    FAULTS(PEEK(p + 512 * PAGE), SIGSEGV, SEGV_ACCERR, p + 512 * PAGE);
    p[9 * PAGE + 100] = 1;
    p[11 * PAGE + 100] = 1;
    OK(mprotect(p + 511 * PAGE, 2 * PAGE, RW));
    check_marks(p, 0, 1024);
    /* whole, and back */
    OK(mprotect(p, 2 * LARGE, PROT_READ));
    FAULTS(POKE(p + 700 * PAGE, 1), SIGSEGV, SEGV_ACCERR, p + 700 * PAGE);
    OK(mprotect(p, 2 * LARGE, PROT_NONE));
    FAULTS(PEEK(p + 700 * PAGE), SIGSEGV, SEGV_ACCERR, p + 700 * PAGE);
    OK(mprotect(p, 2 * LARGE, RW));
    p[700 * PAGE + 100] = 1;
    check_marks(p, 0, 1024);
}

TEST(large_memory_is_given_up_in_part_and_touched_again) {
    char *p = marked(1);
    for (int round = 0; round < 5; round++) {
        OK(madvise(p + 32 * PAGE, 64 * PAGE, MADV_DONTNEED));
        for (size_t i = 32; i < 96; i++) {
            CHECK_EQ(*(size_t *)(p + i * PAGE + 8), 0);
            *(size_t *)(p + i * PAGE + 8) = i + 1;
        }
        check_marks(p, 0, 512);
    }
    OK(madvise(p, LARGE, MADV_DONTNEED));
    for (size_t i = 0; i < 512; i++)
        CHECK_EQ(*(size_t *)(p + i * PAGE + 8), 0);
}

TEST(large_memory_is_copied_on_write_after_fork) {
    char *p = marked(3);
    for (int child = 0; child < 3; child++) {
        pid_t pid = OK(fork());
        if (pid == 0) {
            check_marks(p, 0, 1536);
            for (size_t i = 0; i < 1536; i += 7)
                *(size_t *)(p + i * PAGE + 8) = 7777;
            for (size_t i = 0; i < 1536; i++)
                CHECK_EQ(*(size_t *)(p + i * PAGE + 8), i % 7 ? i + 1 : 7777);
            _exit(0);
        }
        /* the parent writes meanwhile, to pages whose mark stays */
        for (size_t i = 0; i < 1536; i += 5)
            *(volatile size_t *)(p + i * PAGE + 8) = i + 1;
        int status;
        OK(waitpid(pid, &status, 0));
        CHECK_EQ(status, 0);
        check_marks(p, 0, 1536);
    }
}

TEST(large_memory_outlives_the_one_who_forked) {
    char *p = marked(2);
    int fds[2];
    OK(pipe(fds));
    pid_t pid = OK(fork());
    if (pid == 0) {
        pid_t grandchild = OK(fork());
        if (grandchild != 0) {
            OK(munmap(p + LARGE, LARGE));
            _exit(0); /* the orphan has it now */
        }
        usleep(20000);
        check_marks(p, 0, 1024);
        memset(p + 3 * PAGE, 0, PAGE);
        OK(write(fds[1], p + 3 * PAGE + 8, 1));
        _exit(0);
    }
    OK(munmap(p, LARGE / 2));
    int status;
    OK(waitpid(pid, &status, 0));
    CHECK_EQ(status, 0);
    char byte = 1;
    CHECK_EQ(OK(read(fds[0], &byte, 1)), 1);
    CHECK_EQ(byte, 0);
    check_marks(p, 256, 1024);
}

TEST(large_memory_moves) {
    char *p = marked(2);
    char *to = hole(4 * LARGE);
    char *q = OK(mremap(p, 2 * LARGE, 3 * LARGE, MREMAP_MAYMOVE | MREMAP_FIXED, to));
    CHECK_EQ((long)q, (long)to);
    check_marks(q, 0, 1024);
    CHECK_EQ(*(size_t *)(q + 2 * LARGE + 8), 0);
}

struct writer {
    char *at;
    size_t number;
    int failed;
};

/* Eight threads, each with its own pages, interleaved: content must survive whatever the kernel
   does with the pages while others write. */
static void *interleaved(void *argument) {
    struct writer *writer = argument;
    for (size_t i = writer->number; i < 1024; i += 8) {
        size_t *word = (size_t *)(writer->at + i * PAGE + 8);
        /* Reading first maps the page of zeroes, and replacing that takes every processor's
           attention: a few such pages are enough. */
        for (size_t n = 0; n < 30; n++) {
            if ((n > 0 || i % 64 == 0) && *(volatile size_t *)word != n)
                writer->failed = 1;
            *(volatile size_t *)word = n + 1;
        }
        *word = i + 1;
    }
    return NULL;
}

TEST(threads_fill_large_memory_at_once) {
    for (int round = 0; round < 4; round++) {
        char *p = anon(3 * LARGE, RW);
        p = (char *)(((uintptr_t)p + LARGE - 1) & ~(LARGE - 1));
        pthread_t threads[8];
        struct writer writers[8];
        for (size_t i = 0; i < 8; i++) {
            writers[i] = (struct writer){p, i, 0};
            CHECK_EQ(pthread_create(&threads[i], NULL, interleaved, &writers[i]), 0);
        }
        for (size_t i = 0; i < 8; i++) {
            CHECK_EQ(pthread_join(threads[i], NULL), 0);
            CHECK_EQ(writers[i].failed, 0);
        }
        check_marks(p, 0, 1024);
        OK(munmap(p, 2 * LARGE));
    }
}

TEST(system_calls_read_and_write_large_memory) {
    char *p = marked(2), *q = marked(2);
    int fds[2];
    OK(pipe(fds));
    for (size_t i = 0; i < 1024; i++) {
        CHECK_EQ(OK(write(fds[1], p + i * PAGE, PAGE)), (long)PAGE);
        CHECK_EQ(OK(read(fds[0], q + i * PAGE, PAGE)), (long)PAGE);
    }
    check_marks(q, 0, 1024);
    check_marks(p, 0, 1024);
}

static long faults(void) {
    struct rusage usage;
    OK(getrusage(RUSAGE_SELF, &usage));
    return usage.ru_minflt + usage.ru_majflt;
}

TEST(a_fault_counts_once) {
    /* At least, while somebody changes the mode: a patched call site is in a page of text that is
     * copied first, and the copy is mapped by a fault. */
    bool storm = getenv("MODE_STORM") != NULL;
    int fd = OK(open("file", O_RDWR | O_CREAT, 0600));
    OK(ftruncate(fd, 4 * (long)PAGE));
    CHECK_EQ(OK(write(fd, "x", 1)), 1);
    int self = OK(open("/proc/self/exe", O_RDONLY));
    long seen[5];
    /* The first round has faults on its own text as well. */
    for (int round = 0; round < 2; round++) {
        char *p = anon(4 * PAGE, RW);
        OK(madvise(p, 4 * PAGE, MADV_NOHUGEPAGE) == -1 && errno != EINVAL ? -1 : 0);
        char *q = OK(mmap(NULL, 4 * PAGE, PROT_READ, MAP_PRIVATE, fd, 0));
        /* The program that runs was read long ago, or not: its pages count once. */
        char *r = OK(mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, self, 0));
        seen[0] = faults();
        seen[1] = faults();
        *(volatile char *)p = 1;
        seen[2] = faults();
        CHECK_EQ(*(volatile char *)q, 'x');
        seen[3] = faults();
        CHECK_EQ(*(volatile char *)r, 0x7f);
        seen[4] = faults();
    }
    for (int i = 1; i < 5; i++) {
        long more = seen[i] - seen[i - 1], due = i > 1;
        if (storm ? more < due : more != due)
            FAIL("%ld faults at step %d", more, i);
    }
}
