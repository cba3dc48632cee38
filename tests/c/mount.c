/* umount2(2) and the times of last access that a mount keeps (mount(2)). */
#define AREA "mount"
#include "harness.h"

/* A name space of its own on Linux; a tmpfs at "m". */
static void mounted(const char *options, unsigned long flags) {
    if (geteuid() != 0)
        SKIP("not root");
    if (syscall(SYS_unshare, CLONE_NEWNS) == 0)
        OK(mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL));
    OK(mkdir("m", 0755));
    OK(mount("tmpfs", "m", "tmpfs", flags, options));
}

TEST(a_mount_expires_at_the_second_call) {
    mounted(NULL, 0);
    ERR(umount2("m", MNT_EXPIRE), EAGAIN);
    OK(umount2("m", MNT_EXPIRE));
    ERR(umount2("m", MNT_EXPIRE), EINVAL); /* nothing is mounted here any more */
}

TEST(a_mount_that_is_used_meanwhile_does_not_expire) {
    mounted(NULL, 0);
    ERR(umount2("m", MNT_EXPIRE), EAGAIN);
    PUT("m/f", "x"); /* who passes by clears the mark */
    ERR(umount2("m", MNT_EXPIRE), EAGAIN);
    struct stat st;
    OK(stat("m/f", &st));
    ERR(umount2("m", MNT_EXPIRE), EAGAIN);
    OK(umount2("m", MNT_EXPIRE));
}

TEST(a_busy_mount_cannot_expire) {
    mounted(NULL, 0);
    int fd = OK(open("m/f", O_RDWR | O_CREAT, 0644));
    ERR(umount2("m", MNT_EXPIRE), EBUSY);
    ERR(umount2("m", MNT_EXPIRE), EBUSY);
    OK(close(fd));
    ERR(umount2("m", MNT_EXPIRE), EAGAIN);
    OK(umount2("m", 0)); /* the mark means nothing to others */
}

TEST(umount2_flags_and_errors) {
    mounted(NULL, 0);
    ERR(umount2("m", MNT_EXPIRE | MNT_DETACH), EINVAL);
    ERR(umount2("m", MNT_EXPIRE | MNT_FORCE), EINVAL);
    ERR(umount2("m", 0x10), EINVAL);
    ERR(umount2("none", 0), ENOENT);
    ERR(umount2("m/none", 0), ENOENT);
    ERR(umount2("", 0), ENOENT);
    PUT("f", "");
    ERR(umount2("f", 0), EINVAL);
    ERR(umount2("f/x", 0), ENOTDIR);
    ERR(umount2(".", 0), EINVAL);
    ERR(umount2(BAD, 0), EFAULT);
    char longer[PATH_MAX + 10];
    memset(longer, 'a', sizeof longer);
    longer[sizeof longer - 1] = 0;
    ERR(umount2(longer, 0), ENAMETOOLONG);
    OK(symlink("loop", "loop"));
    ERR(umount2("loop", 0), ELOOP);
    OK(symlink("m", "s"));
    ERR(umount2("s", UMOUNT_NOFOLLOW), EINVAL); /* the link itself is nothing mounted */
    IN_CHILD({
        BECOME(NOBODY, NOBODY);
        ERR(umount2("m", 0), EPERM);
    });
    OK(umount2("s", 0));
}

/* ---- times of last access -------------------------------------------------------------------- */

static struct timespec accessed(const char *path) {
    struct stat st;
    OK(lstat(path, &st));
    return st.st_atim;
}
static void set_old(const char *path, time_t access, time_t modification) {
    struct timespec t[2] = {{access, 0}, {modification, 0}};
    OK(utimensat(AT_FDCWD, path, t, AT_SYMLINK_NOFOLLOW));
}
static void read_directory(const char *path) {
    char entries[512];
    int fd = OK(open(path, O_RDONLY | O_DIRECTORY));
    while (OK(syscall(SYS_getdents64, fd, entries, sizeof entries)) > 0)
        ;
    OK(close(fd));
}
static void read_file(const char *path) {
    char c;
    int fd = OK(open(path, O_RDONLY));
    OK(read(fd, &c, 1));
    OK(close(fd));
}
/* Directory, file and link, all last read after they were changed, a while ago. */
static void contents(void) {
    OK(mkdir("m/d", 0755));
    PUT("m/d/f", "x");
    OK(symlink("d", "m/s"));
    time_t now = time(NULL);
    set_old("m/d", now - 1000, now - 2000);
    set_old("m/d/f", now - 1000, now - 2000);
    set_old("m/s", now - 1000, now - 2000);
}
static void read_all(void) {
    char text[16];
    read_directory("m/d");
    read_file("m/d/f");
    OK(readlink("m/s", text, sizeof text));
}
static bool recent(const char *path) { return accessed(path).tv_sec > time(NULL) - 500; }

TEST(strictatime_notes_every_reading) {
    mounted(NULL, MS_STRICTATIME);
    contents();
    struct stat st;
    OK(stat("m/d/f", &st)); /* passing through a directory is no reading */
    CHECK(!recent("m/d"));
    read_all();
    CHECK(recent("m/d"));
    CHECK(recent("m/d/f"));
    CHECK(recent("m/s"));
}

TEST(a_link_that_is_followed_was_read) {
    mounted(NULL, MS_STRICTATIME);
    contents();
    struct stat st;
    OK(stat("m/s/f", &st));
    CHECK(recent("m/s"));
}

TEST(relatime_notes_what_is_new_and_once_a_day) {
    mounted(NULL, MS_RELATIME);
    contents();
    const char *paths[] = {"m/d", "m/d/f", "m/s"};
    struct timespec before[3];
    read_all(); /* for the first time since they were changed */
    msleep(20);
    read_all();
    for (int i = 0; i < 3; i++)
        before[i] = accessed(paths[i]);
    msleep(20);
    read_all();
    for (int i = 0; i < 3; i++)
        if (accessed(paths[i]).tv_nsec != before[i].tv_nsec)
            FAIL("%s was read before", paths[i]);
    time_t now = time(NULL);
    for (int i = 0; i < 3; i++)
        set_old(paths[i], now - 90000, now - 100000); /* read more than a day ago */
    read_all();
    for (int i = 0; i < 3; i++)
        if (!recent(paths[i]))
            FAIL("%s was read a day ago", paths[i]);
    for (int i = 0; i < 3; i++)
        set_old(paths[i], now - 2000, now - 1000); /* changed since it was read */
    read_all();
    for (int i = 0; i < 3; i++)
        if (!recent(paths[i]))
            FAIL("%s was changed since", paths[i]);
}

TEST(noatime_notes_nothing) {
    mounted(NULL, MS_NOATIME);
    contents();
    time_t now = time(NULL);
    set_old("m/d", now - 90000, now - 1000);
    set_old("m/d/f", now - 90000, now - 1000);
    set_old("m/s", now - 90000, now - 1000);
    read_all();
    CHECK(!recent("m/d"));
    CHECK(!recent("m/d/f"));
    CHECK(!recent("m/s"));
}

TEST(nodiratime_notes_nothing_of_directories) {
    mounted(NULL, MS_STRICTATIME | MS_NODIRATIME);
    contents();
    read_all();
    CHECK(!recent("m/d"));
    CHECK(recent("m/d/f"));
    CHECK(recent("m/s"));
}

TEST(a_directory_opened_with_o_noatime_is_not_noted) {
    mounted(NULL, MS_STRICTATIME);
    contents();
    char entries[512];
    int fd = OK(open("m/d", O_RDONLY | O_DIRECTORY | O_NOATIME));
    OK(syscall(SYS_getdents64, fd, entries, sizeof entries));
    CHECK(!recent("m/d"));
}

TEST(a_read_only_mount_notes_nothing) {
    mounted(NULL, MS_STRICTATIME);
    contents();
    OK(mount(NULL, "m", NULL, MS_REMOUNT | MS_BIND | MS_RDONLY, NULL));
    read_all();
    CHECK(!recent("m/d"));
    CHECK(!recent("m/d/f"));
    CHECK(!recent("m/s"));
}
