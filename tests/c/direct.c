/* O_DIRECT (open(2), NOTES; mm/filemap.c and fs/ext4/file.c of Linux 6.1): reads and writes that
 * leave the page cache out, and agree with all that does not.
 *
 * The cases work on an ext4: that of the disk whose serial number is `direct`, or the directory's
 * own if it is one. */
#define AREA "direct"
#include "disk.h"
#include <sys/statfs.h>
#include <sys/uio.h>

#define KIB 1024L
#define MIB (1024 * KIB)
#define SECTOR 512

/* ---- helpers --------------------------------------------------------------------------------- */

/* Goes where the files of the case lie. */
static void begin(void) {
    char node[64];
    struct statfs about;
    if (geteuid() == 0 && find_disk("direct", node, sizeof node)) {
        OK(mkdir("files", 0755));
        OK(mount(node, "files", "ext4", 0, NULL));
        OK(chdir("files"));
    }
    OK(statfs(".", &about));
    if (about.f_type != 0xEF53)
        SKIP("this is no ext4, and there is no disk `direct`");
}

/* Memory that a device can be given, filled with a byte. */
static unsigned char *memory_of(size_t size, int byte) {
    void *all = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(all != MAP_FAILED);
    memset(all, byte, size);
    return all;
}

/* The byte that stands at an offset of a file. */
static unsigned char byte_at(size_t offset) { return (unsigned char)(offset / SECTOR * 7 + 1); }

static void fill(unsigned char *bytes, size_t from, size_t length) {
    for (size_t at = 0; at < length; at++)
        bytes[at] = byte_at(from + at);
}
static void is_filled(const unsigned char *bytes, size_t from, size_t length) {
    for (size_t at = 0; at < length; at++)
        if (bytes[at] != byte_at(from + at))
            FAIL("the byte at %zu is %#x, not %#x", from + at, bytes[at], byte_at(from + at));
}
static void is_all(const unsigned char *bytes, int byte, size_t length) {
    for (size_t at = 0; at < length; at++)
        if (bytes[at] != byte)
            FAIL("the byte at %zu is %#x, not %#x", at, bytes[at], byte);
}

/* Makes a file through the page cache, and leaves it there, not durable. */
static int file_of(const char *name, size_t length) {
    int fd = OK(open(name, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
    unsigned char *bytes = memory_of(length, 0);
    fill(bytes, 0, length);
    CHECK_EQ(pwrite(fd, bytes, length, 0), length);
    munmap(bytes, length);
    return fd;
}
static int direct(const char *name, int flags) {
    return OK(open(name, flags | O_DIRECT | O_CLOEXEC));
}
static void forget(int fd) {
    OK(fsync(fd));
    ZERO(posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED));
}
/* How many pages of a file are in memory. */
static long in_memory(int fd, size_t length) {
    size_t pages = (length + PAGE - 1) / PAGE;
    unsigned char are[1024];
    CHECK(pages <= sizeof are);
    void *all = mmap(NULL, length, PROT_READ, MAP_SHARED, fd, 0);
    CHECK(all != MAP_FAILED);
    OK(mincore(all, length, are));
    munmap(all, length);
    long count = 0;
    for (size_t at = 0; at < pages; at++)
        count += are[at] & 1;
    return count;
}

/* ---- reads ----------------------------------------------------------------------------------- */

TEST(a_read_has_what_was_written_a_moment_ago) {
    begin();
    int cached = file_of("f", 64 * KIB), fd = direct("f", O_RDONLY);
    unsigned char *bytes = memory_of(64 * KIB, 0);
    CHECK_EQ(pread(fd, bytes, 64 * KIB, 0), 64 * KIB);
    is_filled(bytes, 0, 64 * KIB);
    for (int round = 0; round < 50; round++) {
        long at = round * 37 % 64 * (long)KIB;
        unsigned char mark[7];
        memset(mark, 0x80 + round, sizeof mark);
        CHECK_EQ(pwrite(cached, mark, sizeof mark, at + 5), sizeof mark);
        CHECK_EQ(pread(fd, bytes, SECTOR, at), SECTOR);
        is_all(bytes + 5, 0x80 + round, sizeof mark);
    }
}

TEST(a_read_leaves_no_page_in_memory) {
    begin();
    const size_t length = 1 * MIB;
    int cached = file_of("f", length), fd = direct("f", O_RDONLY);
    unsigned char *bytes = memory_of(length, 0);
    forget(cached);
    CHECK_EQ(in_memory(cached, length), 0);
    CHECK_EQ(pread(fd, bytes, length, 0), length);
    is_filled(bytes, 0, length);
    CHECK_EQ(in_memory(cached, length), 0);
    /* One through the page cache does. */
    CHECK_EQ(pread(cached, bytes, PAGE, 0), PAGE);
    CHECK(in_memory(cached, length) > 0);
}

TEST(a_read_ends_with_the_file) {
    begin();
    int cached = file_of("f", 5000), fd = direct("f", O_RDONLY);
    unsigned char *bytes = memory_of(8 * KIB, 0x55);
    for (int round = 0; round < 2; round++) {
        CHECK_EQ(pread(fd, bytes, 8 * KIB, 0), 5000);
        is_filled(bytes, 0, 5000);
        memset(bytes, 0x55, 8 * KIB);
        CHECK_EQ(pread(fd, bytes, 4 * KIB, 4096), 904);
        is_filled(bytes, 4096, 904);
        /* The rest of its last block may come as zeroes. */
        CHECK(bytes[904] == 0x55 || bytes[904] == 0);
        CHECK_EQ(pread(fd, bytes, 4 * KIB, 8192), 0);
        CHECK_EQ(pread(fd, bytes, SECTOR, 5120), 0);
        CHECK_EQ(pread(fd, bytes, 0, 0), 0);
        forget(cached);
    }
}

TEST(transfers_are_of_whole_sectors) {
    begin();
    file_of("f", 64 * KIB);
    int fd = direct("f", O_RDWR);
    unsigned char *bytes = memory_of(8 * KIB, 0);
    ERR(pread(fd, bytes, PAGE, 1), EINVAL);
    ERR(pread(fd, bytes, 100, 0), EINVAL);
    ERR(pwrite(fd, bytes, PAGE, 100), EINVAL);
    ERR(pwrite(fd, bytes, 100, 0), EINVAL);
    CHECK_EQ(pread(fd, bytes, SECTOR, 3 * SECTOR), SECTOR);
    is_filled(bytes, 3 * SECTOR, SECTOR);
    CHECK_EQ(pread(fd, bytes, 5 * SECTOR, 7 * SECTOR), 5 * SECTOR);
    is_filled(bytes, 7 * SECTOR, 5 * SECTOR);
    /* The flag can be set and taken back while the file is open. */
    OK(fcntl(fd, F_SETFL, 0));
    CHECK_EQ(pread(fd, bytes, 100, 1), 100);
    OK(fcntl(fd, F_SETFL, O_DIRECT));
    ERR(pread(fd, bytes, 100, 1), EINVAL);
}

TEST(a_hole_and_preallocated_room_read_as_zeroes) {
    begin();
    /* What lay there before must not be seen. */
    int old = file_of("old", 2 * MIB);
    forget(old);
    OK(unlink("old"));
    close(old);
    int cached = OK(open("f", O_RDWR | O_CREAT | O_CLOEXEC, 0644));
    OK(ftruncate(cached, MIB));
    OK(fallocate(cached, 0, MIB, MIB));
    int fd = direct("f", O_RDONLY);
    unsigned char *bytes = memory_of(2 * MIB, 0x55);
    CHECK_EQ(pread(fd, bytes, 2 * MIB, 0), 2 * MIB);
    is_all(bytes, 0, 2 * MIB);
    unsigned char *mark = memory_of(PAGE, 0x77);
    CHECK_EQ(pwrite(cached, mark, PAGE, MIB + 8 * (long)PAGE), PAGE);
    CHECK_EQ(pread(fd, bytes, 32 * PAGE, MIB), 32 * PAGE);
    is_all(bytes, 0, 8 * PAGE);
    is_all(bytes + 8 * PAGE, 0x77, PAGE);
    is_all(bytes + 9 * PAGE, 0, 23 * PAGE);
}

TEST(several_buffers_are_filled_in_order) {
    begin();
    int cached = file_of("f", 64 * KIB), fd = direct("f", O_RDONLY);
    forget(cached);
    unsigned char *bytes = memory_of(64 * KIB, 0);
    struct iovec parts[3] = {
        {bytes + 32 * KIB, SECTOR}, {bytes, 16 * KIB}, {bytes + 48 * KIB, 3 * SECTOR}};
    CHECK_EQ(preadv(fd, parts, 3, 4 * SECTOR), 16 * KIB + 4 * SECTOR);
    is_filled(bytes + 32 * KIB, 4 * SECTOR, SECTOR);
    is_filled(bytes, 5 * SECTOR, 16 * KIB);
    is_filled(bytes + 48 * KIB, 5 * SECTOR + 16 * KIB, 3 * SECTOR);
}

TEST(memory_that_is_not_there_is_an_error) {
    begin();
    int cached = file_of("f", 64 * KIB), fd = direct("f", O_RDONLY);
    forget(cached);
    unsigned char *bytes = memory_of(4 * PAGE, 0);
    OK(munmap(bytes + 2 * PAGE, 2 * PAGE));
    ERR(pread(fd, bytes + 2 * PAGE, PAGE, 0), EFAULT);
    OK(mprotect(bytes, PAGE, PROT_READ));
    ERR(pread(fd, bytes, PAGE, 0), EFAULT);
    CHECK_EQ(pread(fd, bytes + PAGE, PAGE, 0), PAGE);
    is_filled(bytes + PAGE, 0, PAGE);
}

/* ---- writes ---------------------------------------------------------------------------------- */

TEST(a_write_is_seen_by_all_that_read) {
    begin();
    int cached = file_of("f", 64 * KIB), fd = direct("f", O_RDWR);
    unsigned char *all = mmap(NULL, 64 * KIB, PROT_READ | PROT_WRITE, MAP_SHARED, cached, 0);
    CHECK(all != MAP_FAILED);
    is_filled(all, 0, 64 * KIB);
    unsigned char *bytes = memory_of(PAGE, 0x99), *back = memory_of(PAGE, 0);
    for (int round = 0; round < 20; round++) {
        long at = round * 5 % 16 * (long)PAGE;
        memset(bytes, round + 1, PAGE);
        CHECK_EQ(pwrite(fd, bytes, PAGE, at), PAGE);
        is_all(all + at, round + 1, PAGE);
        CHECK_EQ(pread(cached, back, PAGE, at), PAGE);
        is_all(back, round + 1, PAGE);
        /* And what is written through the mapping is read past the cache. */
        memset(all + at, 0xf0 + round % 8, PAGE);
        CHECK_EQ(pread(fd, back, PAGE, at), PAGE);
        is_all(back, 0xf0 + round % 8, PAGE);
    }
}

TEST(writes_make_a_file_longer) {
    begin();
    int fd = direct("f", O_RDWR | O_CREAT | O_APPEND);
    unsigned char *bytes = memory_of(16 * KIB, 0), *back = memory_of(32 * KIB, 0);
    fill(bytes, 0, 16 * KIB);
    CHECK_EQ(write(fd, bytes, 16 * KIB), 16 * KIB);
    fill(bytes, 16 * KIB, 2 * KIB);
    CHECK_EQ(write(fd, bytes, 2 * KIB), 2 * KIB);
    struct stat about;
    OK(fstat(fd, &about));
    CHECK_EQ(about.st_size, 18 * KIB);
    CHECK_EQ(pread(fd, back, 32 * KIB, 0), 18 * KIB);
    is_filled(back, 0, 18 * KIB);
}

/* ---- beside others --------------------------------------------------------------------------- */

static _Atomic int over;
static void *read_for_ever(void *name) {
    int fd = direct(name, O_RDONLY);
    unsigned char *bytes = memory_of(128 * KIB, 0);
    for (unsigned at = 0; !over; at = at * 5 + 1) {
        ssize_t read = OK(pread(fd, bytes, 128 * KIB, at % 8 * (128 * KIB)));
        for (ssize_t i = 0; i < read; i++)
            if (bytes[i] == 0xee)
                FAIL("a read has the bytes of another file");
    }
    return NULL;
}

/* Room that a file gives up is another's at once; who reads the file past the cache, or through it,
 * never sees that one's bytes. */
TEST_TIMES(a_reader_never_sees_what_took_a_files_place, 3) {
    begin();
    pthread_t readers[2];
    unsigned char *bytes = memory_of(MIB, 0xee), *mine = memory_of(MIB, 0x11);
    int fd = OK(open("f", O_RDWR | O_CREAT | O_CLOEXEC, 0644));
    for (int i = 0; i < 2; i++)
        ZERO(pthread_create(&readers[i], NULL, read_for_ever, "f"));
    for (int round = 0; round < 60; round++) {
        if (round % 2)
            OK(ftruncate(fd, 0));
        else
            OK(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, MIB));
        int other = direct("other", O_RDWR | O_CREAT);
        CHECK_EQ(pwrite(other, bytes, MIB, 0), MIB);
        OK(fdatasync(other));
        CHECK_EQ(pwrite(fd, mine, MIB, 0), MIB);
        OK(fdatasync(fd));
        OK(unlink("other"));
        close(other);
    }
    over = 1;
    for (int i = 0; i < 2; i++)
        ZERO(pthread_join(readers[i], NULL));
}

TEST(many_read_one_file_at_once) {
    begin();
    int cached = file_of("f", MIB);
    forget(cached);
    pid_t all[6];
    for (int i = 0; i < 6; i++)
        if ((all[i] = FORK()) == 0) {
            int fd = direct("f", O_RDONLY);
            unsigned char *bytes = memory_of(64 * KIB, 0);
            for (unsigned round = 0, at = (unsigned)i; round < 60; round++, at = at * 13 + 7) {
                size_t from = at % 120 * 8 * (size_t)KIB;
                ssize_t read = OK(pread(fd, bytes, 64 * KIB, (long)from));
                is_filled(bytes, from, (size_t)read);
            }
            _exit(0);
        }
    for (int i = 0; i < 6; i++)
        EXITS(all[i], 0);
}
