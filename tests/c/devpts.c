/* Each mounted devpts has pseudo terminals of its own (pts(4), filesystems/devpts.rst). */
#define AREA "devpts"
#include "harness.h"
#include <sys/ioctl.h>
#include <sys/sysmacros.h>
#include <termios.h>

static void begin(void) {
    if (geteuid() != 0)
        SKIP("not root");
    OK(unshare(CLONE_NEWNS));
    OK(mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL));
    OK(mkdir("p", 0755));
}

static void devpts(const char *place, const char *options) {
    OK(mount("devpts", place, "devpts", 0, options));
}

static int number_of(int master) {
    int number = -1;
    OK(ioctl(master, TIOCGPTN, &number));
    return number;
}

static int open_master(const char *path) { return OK(open(path, O_RDWR | O_NOCTTY)); }

static void unlock(int master) {
    int zero = 0;
    OK(ioctl(master, TIOCSPTLCK, &zero));
}

static void set(const char *path, const char *text) {
    int fd = OK(open(path, O_WRONLY | O_CLOEXEC));
    CHECK_EQ(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    OK(close(fd));
}

static bool exists(const char *path) { return access(path, F_OK) == 0; }

/* The one side reads what the other has written. */
static void works(int master, const char *slave_path) {
    unlock(master);
    int slave = OK(open(slave_path, O_RDWR | O_NOCTTY));
    char got[8] = "";
    CHECK_EQ(write(master, "hi\n", 3), 3);
    CHECK_EQ(read(slave, got, sizeof got), 3);
    CHECK(memcmp(got, "hi\n", 3) == 0);
    OK(close(slave));
}

TEST(each_counts_from_zero) {
    begin();
    OK(mkdir("q", 0755));
    devpts("p", "ptmxmode=0666,mode=0620");
    devpts("q", "newinstance,ptmxmode=0666");
    int one = open_master("p/ptmx"), two = open_master("p/ptmx"), other = open_master("q/ptmx");
    CHECK_EQ(number_of(one), 0);
    CHECK_EQ(number_of(two), 1);
    CHECK_EQ(number_of(other), 0);
    CHECK(exists("p/1") && !exists("q/1"));
    works(one, "p/0");
    works(other, "q/0");
    /* The other's stays. */
    OK(close(one));
    CHECK(!exists("p/0") && exists("p/1") && exists("q/0"));
    CHECK_EQ(number_of(open_master("p/ptmx")), 0);
    struct stat a, b;
    OK(stat("p/0", &a));
    OK(stat("q/0", &b));
    CHECK(a.st_dev != b.st_dev);
    CHECK_EQ(a.st_rdev, b.st_rdev);
    CHECK_EQ(major(a.st_rdev), 136);
}

TEST(options) {
    begin();
    const char *wrong[] = {"mode=9", "max=1048577", "max=x", "gid=", "uid=-1", "color=blue"};
    for (int i = 0; i < 6; i++)
        ERR(mount("devpts", "p", "devpts", 0, wrong[i]), EINVAL);
    devpts("p", "uid=7,gid=5,mode=0640,ptmxmode=0660,max=2");
    struct stat st;
    OK(stat("p/ptmx", &st));
    CHECK_EQ(st.st_mode & 07777, 0660);
    CHECK_EQ(st.st_rdev, makedev(5, 2));
    open_master("p/ptmx");
    OK(stat("p/0", &st));
    CHECK_EQ(st.st_uid, 7);
    CHECK_EQ(st.st_gid, 5);
    CHECK_EQ(st.st_mode & 07777, 0640);
    open_master("p/ptmx");
    ERR(open("p/ptmx", O_RDWR | O_NOCTTY), ENOSPC);
    OK(chmod("p/ptmx", 0600));
    OK(stat("p/ptmx", &st));
    CHECK_EQ(st.st_mode & 07777, 0600);
    char text[65536];
    CHECK(get_file("/proc/self/mountinfo", text, sizeof text) > 0);
    CHECK(strstr(text, ",uid=7,gid=5,mode=640,ptmxmode=660,max=2\n") != NULL);
}

TEST(a_node_leads_to_what_is_beside_it) {
    begin();
    OK(mount("dev", "p", "tmpfs", 0, NULL));
    OK(mknod("p/ptmx", S_IFCHR | 0666, makedev(5, 2)));
    ERR(open("p/ptmx", O_RDWR | O_NOCTTY), ENOENT);
    OK(mkdir("p/pts", 0755));
    ERR(open("p/ptmx", O_RDWR | O_NOCTTY), ENODEV);
    OK(mount("other", "p/pts", "tmpfs", 0, NULL));
    ERR(open("p/ptmx", O_RDWR | O_NOCTTY), ENODEV);
    OK(umount("p/pts"));
    devpts("p/pts", NULL); /* its own ptmx has no rights, and need not */
    int master = open_master("p/ptmx");
    CHECK_EQ(number_of(master), 0);
    works(master, "p/pts/0");
    /* A link does the same. */
    OK(unlink("p/ptmx"));
    OK(symlink("pts/ptmx", "p/ptmx"));
    CHECK_EQ(number_of(open_master("p/ptmx")), 1);
}

TEST(a_master_keeps_its_terminal) {
    begin();
    devpts("p", "ptmxmode=0666");
    int master = open_master("p/ptmx");
    unlock(master);
    int slave = OK(open("p/0", O_RDWR | O_NOCTTY));
    ERR(umount("p"), EBUSY);
    OK(umount2("p", MNT_DETACH));
    char got[8];
    CHECK_EQ(write(master, "x\n", 2), 2);
    CHECK_EQ(read(slave, got, sizeof got), 2);
    OK(close(master));
    CHECK_EQ(read(slave, got, sizeof got), 0);
}

TEST(no_devices_are_opened_where_a_mount_says_so) {
    begin();
    OK(mount("devpts", "p", "devpts", MS_NODEV, "ptmxmode=0666"));
    ERR(open("p/ptmx", O_RDWR | O_NOCTTY), EACCES);
}

/* A sandbox of a user has one, and the numbers that are mapped there. */
TEST(users_have_their_own) {
    begin();
    needs_user_namespaces();
    pid_t child = FORK();
    if (child == 0) {
        OK(unshare(CLONE_NEWUSER | CLONE_NEWNS));
        set("/proc/self/uid_map", "0 0 1");
        set("/proc/self/setgroups", "deny");
        set("/proc/self/gid_map", "0 0 1");
        ERR(mount("devpts", "p", "devpts", 0, "gid=5"), EINVAL); /* nobody's there */
        OK(mount("devpts", "p", "devpts", MS_NOSUID | MS_NOEXEC, "ptmxmode=0666,mode=0620"));
        int master = open_master("p/ptmx");
        CHECK_EQ(number_of(master), 0);
        works(master, "p/0");
        struct stat st;
        OK(stat("p/0", &st));
        CHECK_EQ(st.st_uid, 0);
        OK(chmod("p/0", 0600));
        exit(0);
    }
    EXITS(child, 0);
}

/* Openers on several processors get numbers of their own. */
TEST(numbers_are_given_once) {
    begin();
    devpts("p", "ptmxmode=0666");
    atomic_int *taken = SHARED(64 * sizeof(atomic_int));
    pid_t children[4];
    for (int i = 0; i < 4; i++) {
        children[i] = FORK();
        if (children[i] != 0)
            continue;
        for (int n = 0; n < 200; n++) {
            int master = open_master("p/ptmx"), number = number_of(master);
            CHECK(number >= 0 && number < 4);
            CHECK_EQ(atomic_fetch_add(&taken[number], 1), 0);
            atomic_fetch_sub(&taken[number], 1);
            OK(close(master));
        }
        exit(0);
    }
    for (int i = 0; i < 4; i++)
        EXITS(children[i], 0);
    CHECK(!exists("p/0"));
}

#ifndef TIOCGPTPEER
#define TIOCGPTPEER _IO('T', 0x41)
#endif

static int peer(int master, int flags) { return ioctl(master, TIOCGPTPEER, flags | O_NOCTTY); }

/* Where a descriptor's file is. */
static const char *place_of(int fd) {
    static char text[PATH_MAX];
    char name[64];
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    ssize_t length = OK(readlink(name, text, sizeof text - 1));
    text[length] = 0;
    return text;
}

TEST(a_slave_is_opened_by_its_master) {
    begin();
    devpts("p", "ptmxmode=0666");
    int master = open_master("p/ptmx");
    ERR(peer(master, O_RDWR), EIO); /* locked */
    unlock(master);
    int slave = OK(peer(master, O_RDWR | O_CLOEXEC));
    CHECK_EQ(fcntl(slave, F_GETFD), FD_CLOEXEC);
    char path[PATH_MAX + 16], got[8];
    snprintf(path, sizeof path, "%s/p/0", hy_tmp);
    CHECK_STR(place_of(slave), path);
    CHECK_EQ(write(master, "hi\n", 3), 3);
    CHECK_EQ(read(slave, got, sizeof got), 3);
    int reader = OK(peer(master, O_RDONLY | O_NONBLOCK));
    CHECK_EQ(fcntl(reader, F_GETFD), 0);
    ERR(write(reader, "x", 1), EBADF);
    ERR(read(reader, got, 1), EAGAIN);
    /* Only a master has one. */
    ERR(peer(slave, O_RDWR), EIO);
    int pair[2];
    OK(pipe(pair));
    ERR(peer(pair[0], O_RDWR), ENOTTY);
    ERR(peer(-1, O_RDWR), EBADF);
    /* A right to the node is not needed, as one to the master is there. */
    OK(chmod("p/0", 0));
    IN_CHILD({
        BECOME(NOBODY, NOBODY);
        ERR(open("p/0", O_RDWR | O_NOCTTY), EACCES);
        OK(peer(master, O_RDWR));
    });
    IN_CHILD({ /* it becomes the terminal of a session without one */
        OK(setsid());
        int own = OK(ioctl(master, TIOCGPTPEER, O_RDWR));
        CHECK_EQ(tcgetsid(own), getpid());
    });
    /* What hides its name, or unmounts it, does not matter. */
    OK(mount("none", "p", "tmpfs", 0, NULL));
    OK(peer(master, O_RDWR));
    OK(umount("p"));
    OK(umount2("p", MNT_DETACH));
    slave = OK(peer(master, O_RDWR));
    CHECK_EQ(write(slave, "x", 1), 1);
}

TEST(a_slave_is_where_its_master_was_opened) {
    begin();
    OK(mkdir("p/pts", 0755));
    OK(mknod("p/ptmx", S_IFCHR | 0666, makedev(5, 2)));
    devpts("p/pts", "ptmxmode=0666");
    int master = open_master("p/ptmx");
    unlock(master);
    char path[PATH_MAX + 16];
    snprintf(path, sizeof path, "%s/p/pts/0", hy_tmp);
    CHECK_STR(place_of(OK(peer(master, O_RDWR))), path);
    devpts("p/pts", "ptmxmode=0666"); /* another one at the same place */
    ERR(peer(master, O_RDWR), ENODEV);
    OK(umount("p/pts"));
    OK(peer(master, O_RDWR));
}
