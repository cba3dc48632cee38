/* Control groups' controller io (cgroup-v2.rst, "IO"; block/blk-throttle.c and block/blk-cgroup.c
 * of Linux 6.1): what io.stat counts, limits that hold, and that they hold nobody else.
 *
 * The cases want two disks, told by their serial numbers: `iocg`, on which they write anywhere, and
 * `iocgfs`, with an ext4 file system. Bounds of time are such that a busy host only makes it later:
 * a limit is checked by how long it takes at least. */
#define AREA "iocg"
#include "groups.h"
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/mman.h>

#define KIB 1024L
#define MIB (1024 * KIB)

/* ---- helpers --------------------------------------------------------------------------------- */

static char disk[64], device[32];

/* The disk with a serial number: its node, and its numbers as files have them. */
static void find_disk(const char *serial) {
    DIR *dir = opendir("/sys/block");
    char path[128], text[64];
    for (struct dirent *entry; dir && (entry = readdir(dir));) {
        if (entry->d_name[0] == '.' || strlen(entry->d_name) > 32)
            continue;
        snprintf(path, sizeof path, "/sys/block/%.32s/serial", entry->d_name);
        if (get_file(path, text, sizeof text) == -1)
            continue;
        text[strcspn(text, "\n")] = 0;
        if (strcmp(text, serial) != 0)
            continue;
        snprintf(disk, sizeof disk, "/dev/%.32s", entry->d_name);
        snprintf(path, sizeof path, "/sys/block/%.32s/dev", entry->d_name);
        CHECK(get_file(path, device, sizeof device) > 0);
        device[strcspn(device, "\n")] = 0;
        closedir(dir);
        return;
    }
    if (dir)
        closedir(dir);
    SKIP("there is no disk %s", serial);
}

static void begin_io(void) {
    if (geteuid() == 0) {
        find_disk("iocg");
        /* Linux forgets what is cached when the last one closes a disk, and waits for reads. */
        OK(open(disk, O_RDONLY | O_CLOEXEC));
    }
    begin();
    with_controller("io");
}
static void make(const char *group) { OK(mkdir(path_of(group, NULL), 0755)); }
static void give(const char *group) { OK(tell(group, "cgroup.subtree_control", "+io")); }

/* Writes settings for the disk into a group's io.max. */
static ssize_t set(const char *group, const char *settings) {
    char text[160];
    snprintf(text, sizeof text, "%s %s\n", device, settings);
    return tell(group, "io.max", text);
}
static void make_with(const char *group, const char *settings) {
    make(group);
    OK(set(group, settings));
}
static void shows(const char *group, const char *settings) {
    char wanted[160] = "";
    if (*settings)
        snprintf(wanted, sizeof wanted, "%s %s\n", device, settings);
    CHECK_STR(shown(group, "io.max"), wanted);
}

/* A number that a text like io.stat has of the disk; 0 if it says nothing of it. */
static long number_in(const char *text, const char *name) {
    char wanted[40];
    snprintf(wanted, sizeof wanted, "%s ", device);
    while (*text && strncmp(text, wanted, strlen(wanted)) != 0) {
        text += strcspn(text, "\n");
        text += *text == '\n';
    }
    snprintf(wanted, sizeof wanted, " %s=", name);
    const char *at = strstr(text, wanted);
    return at && at < text + strcspn(text, "\n") ? atol(at + strlen(wanted)) : 0;
}
#define STAT(group, name) number_in(shown(group, "io.stat"), name)
static long of_root(const char *name) {
    char path[PATH_MAX + 32];
    snprintf(path, sizeof path, "%s/io.stat", top);
    return number_in(read_of(path), name);
}

static long clock_ms(void) { return (long)(now_ns(CLOCK_MONOTONIC) / MS); }

/* Forgets what is cached of the disk. */
static void forget(void) {
    int fd = open(disk, O_RDONLY | O_CLOEXEC);
    OK(fd);
    OK(fsync(fd));
    OK(ioctl(fd, BLKFLSBUF, 0));
    close(fd);
}
static void *aligned(long size) {
    int flags = MAP_PRIVATE | MAP_ANONYMOUS;
    void *all = mmap(NULL, (size_t)size, PROT_READ | PROT_WRITE, flags, -1, 0);
    CHECK(all != MAP_FAILED);
    memset(all, 'x', (size_t)size);
    return all;
}
static void enter(const char *group) { OK(tell(group, "cgroup.procs", "0")); }

/* Reads from the disk, in calls of so many bytes, each `step` behind the one before. */
static void read_disk(long from, long length, long call, long step) {
    int fd = open(disk, O_RDONLY | O_CLOEXEC);
    OK(fd);
    char *buffer = aligned(call);
    for (long at = 0; at < length; at += step)
        CHECK_EQ(pread(fd, buffer, (size_t)call, from + at), call);
    munmap(buffer, (size_t)call);
    close(fd);
}
/* Writes past the cache. */
static void write_disk(long from, long length, long call) {
    int fd = open(disk, O_WRONLY | O_DIRECT | O_CLOEXEC);
    OK(fd);
    char *buffer = aligned(call);
    for (long at = 0; at < length; at += call)
        CHECK_EQ(pwrite(fd, buffer, (size_t)call, from + at), call);
    munmap(buffer, (size_t)call);
    close(fd);
}

/* A member that does something, and how long that takes. */
#define MEMBER(group, ...)                                                                         \
    ({                                                                                             \
        pid_t child = FORK();                                                                      \
        if (child == 0) {                                                                          \
            enter(group);                                                                          \
            __VA_ARGS__;                                                                           \
            _exit(0);                                                                              \
        }                                                                                          \
        child;                                                                                     \
    })
#define TAKES(group, ...)                                                                          \
    ({                                                                                             \
        long begun = clock_ms();                                                                   \
        EXITS(MEMBER(group, __VA_ARGS__), 0);                                                      \
        clock_ms() - begun;                                                                        \
    })
static void at_least(long ms, long least) {
    if (ms < least)
        FAIL("it took %ld ms, at least %ld are allowed", ms, least);
}
static void at_most(long ms, long most) {
    if (ms > most)
        FAIL("it took %ld ms, at most %ld are expected", ms, most);
}

/* Mounts the file system in a folder of the case's own. */
static void mount_files(void) {
    find_disk("iocgfs");
    OK(mkdir("files", 0755));
    if (mount(disk, "files", "ext4", 0, NULL) == -1)
        SKIP("no ext4: %s", strerror(errno));
}
/* Both controllers: then content is written for the group whose page it is. */
static void begin_files(void) {
    begin_io();
    with_controller("memory");
    mount_files();
}
static void write_file(const char *path, long length, bool durable) {
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    OK(fd);
    char *buffer = aligned(64 * KIB);
    for (long at = 0; at < length; at += 64 * KIB)
        CHECK_EQ(write(fd, buffer, 64 * KIB), 64 * KIB);
    if (durable)
        OK(fsync(fd));
    close(fd);
}

/* ---- files ----------------------------------------------------------------------------------- */

TEST(groups_have_their_files) {
    begin_io();
    struct stat st;
    char path[PATH_MAX + 32];
    make("a");
    OK(stat(path_of("a", "io.max"), &st));
    CHECK_EQ(st.st_mode, S_IFREG | 0644);
    OK(stat(path_of("a", "io.stat"), &st));
    CHECK_EQ(st.st_mode, S_IFREG | 0444);
    CHECK_STR(shown("a", "io.max"), "");
    CHECK_EQ(STAT("a", "rbytes"), 0);
    ERR(tell("a", "io.stat", "0"), EINVAL);
    snprintf(path, sizeof path, "%s/io.max", top);
    ERR(stat(path, &st), ENOENT);
    snprintf(path, sizeof path, "%s/io.stat", top);
    OK(stat(path, &st));
    /* Without the controller they are not there. */
    make("a/b");
    ERR(stat(path_of("a/b", "io.max"), &st), ENOENT);
    ERR(stat(path_of("a/b", "io.stat"), &st), ENOENT);
    give("a");
    OK(stat(path_of("a/b", "io.max"), &st));
}

TEST(limits_are_named_and_kept) {
    begin_io();
    make("a");
    static const struct {
        const char *told, *shown;
    } limits[] = {
        {"rbps=2097152 wiops=120", "rbps=2097152 wbps=max riops=max wiops=120"},
        {"riops=7", "rbps=2097152 wbps=max riops=7 wiops=120"},
        {"rbps=max", "rbps=max wbps=max riops=7 wiops=120"},
        {"  wbps=4096x\triops=max ", "rbps=max wbps=4096 riops=max wiops=120"},
        {"wiops=3 wiops=9", "rbps=max wbps=4096 riops=max wiops=9"},
        {"", "rbps=max wbps=4096 riops=max wiops=9"},
        {"wiops=4294967295", "rbps=max wbps=4096 riops=max wiops=max"},
        {"rbps=18446744073709551614", "rbps=18446744073709551614 wbps=4096 riops=max wiops=max"},
        {"rbps=max wbps=max", ""},
    };
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        OK(set("a", limits[i].told));
        shows("a", limits[i].shown);
    }
    /* What is set ends with the controller. */
    OK(set("a", "rbps=5000"));
    OK(tell("", "cgroup.subtree_control", "-io"));
    OK(tell("", "cgroup.subtree_control", "+io"));
    shows("a", "");
}

TEST(what_is_no_limit_is_refused) {
    begin_io();
    make_with("a", "rbps=4096 riops=5");
    static const char *const bad[] = {
        "rbps", "rbps=", "rbps=x", "rbps=maximum", "rbps=-5", "bps=4096", "rbps 4096", "=5",
        "rbps=1", "riops=1", "wbps=9 what",
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        ERR(set("a", bad[i]), EINVAL);
    ERR(set("a", "rbps=0"), ERANGE);
    ERR(set("a", "wbps=4096 wiops=0"), ERANGE);
    ERR(tell("a", "io.max", "rbps=4096"), EINVAL);
    ERR(tell("a", "io.max", "254"), EINVAL);
    ERR(tell("a", "io.max", device), EINVAL);
    ERR(tell("a", "io.max", "4095:9 rbps=4096"), ENODEV);
    ERR(tell("a", "io.max", "1:3 rbps=4096"), ENODEV);
    shows("a", "rbps=4096 wbps=max riops=5 wiops=max");
}

TEST(groups_are_told_of_their_controller) {
    begin_io();
    make("a");
    CHECK(strstr(shown("a", "cgroup.controllers"), "io") != NULL);
    CHECK(strstr(read_of("/proc/cgroups"), "\nblkio\t") != NULL);
}

/* ---- what is counted ------------------------------------------------------------------------- */

TEST(reads_are_counted) {
    begin_io();
    make("a");
    make("b");
    forget();
    long before = of_root("rbytes");
    EXITS(MEMBER("a", read_disk(0, 4 * MIB, 64 * KIB, 64 * KIB)), 0);
    long bytes = STAT("a", "rbytes"), requests = STAT("a", "rios");
    /* Reading ahead goes a little further. */
    if (bytes < 4 * MIB || bytes > 5 * MIB)
        FAIL("%ld bytes were read", bytes);
    CHECK(requests >= 4 && requests <= bytes / 4096);
    CHECK_EQ(STAT("a", "wbytes"), 0);
    CHECK_EQ(STAT("b", "rbytes"), 0);
    CHECK(STAT("", "rbytes") >= bytes);
    CHECK(of_root("rbytes") >= before + bytes);
    /* Cached pages are not read. */
    EXITS(MEMBER("b", read_disk(0, 4 * MIB, 64 * KIB, 64 * KIB)), 0);
    CHECK(STAT("b", "rbytes") <= 64 * KIB);
}

TEST(mapped_reads_are_counted) {
    begin_io();
    make("a");
    forget();
    EXITS(MEMBER("a", {
              int fd = open(disk, O_RDONLY);
              OK(fd);
              volatile char *all = mmap(NULL, MIB, PROT_READ, MAP_SHARED, fd, 0);
              CHECK(all != MAP_FAILED);
              for (long at = 0; at < MIB; at += 4096)
                  (void)all[at];
          }),
          0);
    long bytes = STAT("a", "rbytes");
    if (bytes < MIB || bytes > 2 * MIB)
        FAIL("%ld bytes were read", bytes);
}

TEST(direct_writes_are_counted) {
    begin_io();
    make("a");
    make("a/b");
    give("a");
    long before = of_root("wbytes");
    EXITS(MEMBER("a/b", write_disk(0, 2 * MIB, 64 * KIB)), 0);
    CHECK_EQ(STAT("a/b", "wbytes"), 2 * MIB);
    CHECK_EQ(STAT("a/b", "rbytes"), 0);
    long requests = STAT("a/b", "wios");
    CHECK(requests >= 8 && requests <= 512);
    CHECK_EQ(STAT("a", "wbytes"), 2 * MIB);
    CHECK(of_root("wbytes") >= before + 2 * MIB);
    /* The use of a group counts around it when it is gone, and a new one has used nothing. */
    OK(rmdir(path_of("a/b", NULL)));
    CHECK_EQ(STAT("a", "wbytes"), 2 * MIB);
    make("a/b");
    CHECK_EQ(STAT("a/b", "wbytes"), 0);
    CHECK_EQ(STAT("a/b", "wios"), 0);
}

TEST(content_is_written_for_the_group_whose_page_it_is) {
    begin_files();
    make("a");
    make("b");
    EXITS(MEMBER("a", write_file("files/one", 2 * MIB, false)), 0);
    /* Others write it. */
    int fd = open("files/one", O_RDONLY);
    OK(fd);
    OK(syncfs(fd));
    close(fd);
    long bytes = STAT("a", "wbytes");
    if (bytes < 2 * MIB || bytes > 3 * MIB)
        FAIL("%ld bytes were written", bytes);
    CHECK_EQ(STAT("b", "wbytes"), 0);
    EXITS(MEMBER("b", write_file("files/two", MIB, true)), 0);
    CHECK(STAT("b", "wbytes") >= MIB);
    CHECK(STAT("a", "wbytes") <= 3 * MIB);
    OK(umount("files"));
}

/* ---- limits ---------------------------------------------------------------------------------- */

TEST(a_group_reads_as_fast_as_it_may) {
    begin_io();
    make_with("a", "rbps=4194304");
    forget();
    at_least(TAKES("a", read_disk(0, 8 * MIB, 32 * KIB, 32 * KIB)), 1600);
    /* Nothing else is limited. */
    at_most(TAKES("a", write_disk(0, 4 * MIB, MIB)), 20000);
}

TEST(one_call_is_no_way_around) {
    begin_io();
    make_with("a", "rbps=4194304");
    forget();
    at_least(TAKES("a", read_disk(0, 8 * MIB, 8 * MIB, 8 * MIB)), 1500);
    CHECK(STAT("a", "rbytes") >= 8 * MIB);
}

TEST(faults_are_held_back) {
    begin_io();
    make_with("a", "rbps=2097152");
    forget();
    long took = TAKES("a", {
        int fd = open(disk, O_RDONLY);
        OK(fd);
        volatile char *all = mmap(NULL, 4 * MIB, PROT_READ, MAP_SHARED, fd, 0);
        CHECK(all != MAP_FAILED);
        for (long at = 0; at < 4 * MIB; at += 4096)
            (void)all[at];
    });
    at_least(took, 1400);
}

TEST(a_group_writes_as_fast_as_it_may) {
    begin_io();
    make_with("a", "wbps=4194304");
    at_least(TAKES("a", write_disk(0, 8 * MIB, 64 * KIB)), 1600);
    at_least(TAKES("a", write_disk(0, 8 * MIB, 8 * MIB)), 1500);
    forget();
    at_most(TAKES("a", read_disk(0, 4 * MIB, 64 * KIB, 64 * KIB)), 20000);
}

TEST(requests_are_limited) {
    begin_io();
    make_with("a", "riops=20");
    make_with("b", "wiops=20");
    forget();
    at_least(TAKES("a", read_disk(0, 40 * MIB, 4 * KIB, MIB)), 1500);
    at_least(TAKES("b", write_disk(0, 160 * KIB, 4 * KIB)), 1500);
}

TEST(files_are_written_as_fast_as_the_group_may) {
    begin_files();
    make("a");
    OK(set("a", "wbps=2097152"));
    long took = TAKES("a", write_file("files/held", 6 * MIB, true));
    at_least(took, 2400);
    CHECK(STAT("a", "wbytes") >= 6 * MIB);
    /* Appending in one call. */
    took = TAKES("a", {
        int fd = open("files/held", O_WRONLY | O_APPEND);
        OK(fd);
        char *buffer = aligned(4 * MIB);
        CHECK_EQ(write(fd, buffer, 4 * MIB), 4 * MIB);
        OK(fsync(fd));
        CHECK_EQ(lseek(fd, 0, SEEK_CUR), 10 * MIB);
    });
    at_least(took, 1400);
    struct stat st;
    OK(stat("files/held", &st));
    CHECK_EQ(st.st_size, 10 * MIB);
    OK(umount("files"));
}

TEST(pages_of_a_mapping_are_written_as_fast_as_the_group_may) {
    begin_files();
    make("a");
    /* Its own file: Linux asks whose the inode is, and not who writes the page. */
    EXITS(MEMBER("a", write_file("files/mapped", 4 * MIB, true)), 0);
    OK(set("a", "wbps=2097152"));
    long took = TAKES("a", {
        int fd = open("files/mapped", O_RDWR);
        OK(fd);
        char *all = mmap(NULL, 4 * MIB, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        CHECK(all != MAP_FAILED);
        for (long at = 0; at < 4 * MIB; at += 4096)
            all[at] = 'y';
        OK(msync(all, 4 * MIB, MS_SYNC));
    });
    at_least(took, 1400);
    OK(umount("files"));
}

TEST(groups_in_a_group_share_its_limit) {
    begin_io();
    make_with("a", "rbps=4194304");
    give("a");
    make("a/b");
    make("a/c");
    forget();
    long begun = clock_ms();
    pid_t one = MEMBER("a/b", read_disk(0, 4 * MIB, 64 * KIB, 64 * KIB));
    pid_t other = MEMBER("a/c", read_disk(16 * MIB, 4 * MIB, 64 * KIB, 64 * KIB));
    EXITS(one, 0);
    EXITS(other, 0);
    at_least(clock_ms() - begun, 1500);
    CHECK(STAT("a", "rbytes") >= 8 * MIB);
    /* The smaller limit holds. */
    OK(set("a/b", "rbps=1048576"));
    forget();
    at_least(TAKES("a/b", read_disk(0, 2 * MIB, 64 * KIB, 64 * KIB)), 1500);
    /* The group around has it alone now. */
    OK(set("a", "rbps=max"));
    forget();
    at_most(TAKES("a/c", read_disk(16 * MIB, 4 * MIB, 64 * KIB, 64 * KIB)), 20000);
}

TEST(others_are_not_held_back) {
    begin_io();
    make_with("a", "rbps=65536 wbps=65536");
    make("b");
    forget();
    pid_t reader = MEMBER("a", read_disk(0, 16 * MIB, 64 * KIB, 64 * KIB));
    pid_t writer = MEMBER("a", write_disk(48 * MIB, 8 * MIB, 64 * KIB));
    msleep(500);
    /* Elsewhere on the disk, and in the root. */
    at_most(TAKES("b", read_disk(20 * MIB, 4 * MIB, 64 * KIB, 64 * KIB)), 20000);
    at_most(TAKES("b", write_disk(30 * MIB, 4 * MIB, 64 * KIB)), 20000);
    long begun = clock_ms();
    read_disk(32 * MIB, 4 * MIB, 64 * KIB, 64 * KIB);
    at_most(clock_ms() - begun, 20000);
    CHECK(STAT("a", "rbytes") < 8 * MIB);
    CHECK(STAT("a", "wbytes") < 8 * MIB);
    end(reader);
    OK(kill(writer, SIGKILL));
    OK(set("a", "rbps=max wbps=max"));
    KILLED(writer, SIGKILL);
}

TEST(a_held_writer_holds_up_no_other_file) {
    begin_files();
    make("a");
    make("b");
    /* Blocks that it has already, so that nothing waits for it with a transaction. */
    write_file("files/held", 8 * MIB, true);
    OK(set("a", "wbps=65536"));
    pid_t writer = MEMBER("a", write_file("files/held", 8 * MIB, false));
    msleep(500);
    at_most(TAKES("b", {
                write_file("files/free", MIB, true);
                OK(rename("files/free", "files/other"));
                OK(unlink("files/other"));
            }),
            20000);
    /* Nor the very file that it writes, nor all that is to be written. */
    char byte;
    int fd = open("files/held", O_RDONLY);
    OK(fd);
    CHECK_EQ(pread(fd, &byte, 1, 7 * MIB), 1);
    close(fd);
    OK(kill(writer, SIGKILL));
    OK(set("a", "wbps=max"));
    /* Linux holds nobody back as long as few pages are dirty. */
    int status = WAIT(writer);
    CHECK(status == 0 || WTERMSIG(status) == SIGKILL);
    OK(umount("files"));
}

/* ---- the end of a rest ----------------------------------------------------------------------- */

TEST(a_held_reader_can_be_killed) {
    begin_io();
    make_with("a", "rbps=4096");
    forget();
    pid_t pid = MEMBER("a", read_disk(0, 16 * MIB, 64 * KIB, 64 * KIB));
    msleep(500);
    CHECK_EQ(waitpid(pid, NULL, WNOHANG), 0);
    long begun = clock_ms();
    end(pid);
    at_most(clock_ms() - begun, 10000);
    /* All of a group at once. */
    pid = MEMBER("a", read_disk(20 * MIB, 16 * MIB, 16 * MIB, 16 * MIB));
    msleep(300);
    begun = clock_ms();
    OK(tell("a", "cgroup.kill", "1"));
    KILLED(pid, SIGKILL);
    at_most(clock_ms() - begun, 10000);
    OK(set("a", "rbps=max"));
}

TEST(a_higher_limit_counts_at_once) {
    begin_io();
    make_with("a", "rbps=4096");
    forget();
    pid_t pid = MEMBER("a", read_disk(0, 4 * MIB, 64 * KIB, 64 * KIB));
    msleep(500);
    CHECK_EQ(waitpid(pid, NULL, WNOHANG), 0);
    long begun = clock_ms();
    OK(set("a", "rbps=max"));
    EXITS(pid, 0);
    at_most(clock_ms() - begun, 20000);
    /* At the group around it, too, and a number instead of none. */
    OK(set("a", "rbps=4096"));
    give("a");
    make("a/b");
    forget();
    pid = MEMBER("a/b", read_disk(0, 4 * MIB, 64 * KIB, 64 * KIB));
    msleep(500);
    begun = clock_ms();
    OK(set("a", "rbps=1073741824"));
    EXITS(pid, 0);
    at_most(clock_ms() - begun, 20000);
}

/* Linux holds back a request that was made, whatever happens to who made it. */
static void needs_resting_threads(void) {
    if (access("/proc/hayate", F_OK) == -1)
        SKIP("this kernel holds back requests");
}

TEST(who_has_another_group_rests_no_more) {
    needs_resting_threads();
    begin_io();
    make_with("a", "rbps=4096");
    make("b");
    forget();
    pid_t pid = MEMBER("a", read_disk(0, 4 * MIB, 64 * KIB, 64 * KIB));
    msleep(500);
    long begun = clock_ms();
    OK(move_to("b", pid));
    EXITS(pid, 0);
    at_most(clock_ms() - begun, 20000);
    CHECK(STAT("b", "rbytes") >= 3 * MIB);
    /* So it is when the controller is taken. */
    forget();
    pid = MEMBER("a", read_disk(0, 4 * MIB, 64 * KIB, 64 * KIB));
    msleep(500);
    begun = clock_ms();
    OK(tell("", "cgroup.subtree_control", "-io"));
    EXITS(pid, 0);
    at_most(clock_ms() - begun, 20000);
}

TEST(who_rests_is_frozen) {
    needs_resting_threads();
    begin_io();
    make_with("a", "rbps=4096");
    forget();
    pid_t pid = MEMBER("a", read_disk(0, 4 * MIB, 64 * KIB, 64 * KIB));
    msleep(500);
    OK(tell("a", "cgroup.freeze", "1"));
    EVENTUALLY(FROZEN("a") == 1);
    OK(set("a", "rbps=max"));
    msleep(300);
    CHECK_EQ(waitpid(pid, NULL, WNOHANG), 0);
    CHECK_EQ(FROZEN("a"), 1);
    OK(tell("a", "cgroup.freeze", "0"));
    EXITS(pid, 0);
}

static void ignore_it(int signal UNUSED) {}

TEST(a_signal_does_not_end_a_rest) {
    begin_io();
    make_with("a", "rbps=524288");
    forget();
    pid_t pid = FORK();
    if (pid == 0) {
        signal(SIGUSR1, SIG_IGN);
        struct sigaction action = {.sa_handler = ignore_it};
        OK(sigaction(SIGUSR2, &action, NULL));
        enter("a");
        long begun = clock_ms();
        read_disk(0, MIB, MIB, MIB);
        at_least(clock_ms() - begun, 1000);
        _exit(0);
    }
    for (int i = 0; i < 10; i++) {
        msleep(50);
        OK(kill(pid, i % 2 ? SIGUSR1 : SIGUSR2));
        if (i == 0)
            msleep(100);
    }
    EXITS(pid, 0);
}

TEST(limits_and_groups_change_all_the_time) {
    begin_io();
    enum { MANY = 4 };
    pid_t all[MANY];
    char group[8], settings[64];
    long until = clock_ms() + 3000;
    forget();
    for (int round = 0; clock_ms() < until; round++) {
        for (int i = 0; i < MANY; i++) {
            snprintf(group, sizeof group, "g%d", i);
            make(group);
            snprintf(settings, sizeof settings, "rbps=%d wiops=%d", 4096 << (round + i) % 12,
                     2 + (round * 7 + i) % 50);
            OK(set(group, settings));
            all[i] = MEMBER(group, {
                for (long at = i; at < 60; at++) {
                    read_disk(at * MIB, 256 * KIB, 64 * KIB, 64 * KIB);
                    write_disk(at * MIB, 4 * KIB, 4 * KIB);
                }
            });
        }
        msleep(50);
        OK(set("g0", "rbps=max wiops=max"));
        OK(set("g1", "rbps=1073741824 wiops=max"));
        OK(set("g2", "rbps=8192 wiops=max riops=50"));
        OK(set("g3", "wiops=max"));
        msleep(50);
        for (int i = 0; i < MANY; i++) {
            snprintf(group, sizeof group, "g%d", i);
            OK(set(group, "wiops=max wbps=max"));
            OK(tell(group, "cgroup.kill", "1"));
            int status = WAIT(all[i]);
            CHECK(status == 0 || WTERMSIG(status) == SIGKILL);
            for (int look = 0; rmdir(path_of(group, NULL)) == -1; look++) {
                CHECK_EQ(errno, EBUSY);
                CHECK(look < 1000);
                msleep(2);
            }
        }
    }
}
