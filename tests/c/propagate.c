/* Mounts that share what is mounted on them (mount_namespaces(7), "Shared subtrees"). */
#define AREA "propagate"
#include "harness.h"
#include <sys/utsname.h>

/* <linux/mount.h> and <sys/mount.h> of some releases do not go together. */
struct attributes {
    uint64_t set, clear, propagation, user_namespace;
};
#define SET_GROUP 0x100 /* MOVE_MOUNT_SET_GROUP */
#define TREE_CLONE 1    /* OPEN_TREE_CLONE */
#define FROM_EMPTY 4    /* MOVE_MOUNT_F_EMPTY_PATH */

static char info[1 << 17];

/* The mounts at `path` of the case's directory; the fields of the last one in `line`. */
static int mounts_at(const char *path, char *line, size_t size) {
    char wanted[2 * PATH_MAX];
    int count = 0;
    snprintf(wanted, sizeof wanted, " %s/%s ", hy_tmp, path);
    CHECK(get_file("/proc/self/mountinfo", info, sizeof info) > 0);
    for (char *at = strtok(info, "\n"); at; at = strtok(NULL, "\n"))
        if (strstr(at, wanted)) {
            count++;
            snprintf(line, size, "%s", at);
        }
    return count;
}

static int mounted(const char *path) {
    char line[4096];
    return mounts_at(path, line, sizeof line);
}

/* The number after ` KEY:` in the last line of a mount; 0: it has none. */
static int number(const char *path, const char *key) {
    char line[4096], wanted[32];
    CHECK(mounts_at(path, line, sizeof line) > 0);
    snprintf(wanted, sizeof wanted, " %s:", key);
    char *end = strstr(line, " - "), *at = strstr(line, wanted);
    return at && at < end ? atoi(at + strlen(wanted)) : 0;
}

static bool is_unbindable(const char *path) {
    char line[4096];
    CHECK(mounts_at(path, line, sizeof line) > 0);
    return strstr(line, " unbindable ") != NULL;
}

#define SHARED_AS(path) number(path, "shared")
#define MASTER_OF(path) number(path, "master")

static void change(const char *path, unsigned long type) {
    OK(mount(NULL, path, NULL, type, NULL));
}
static void fresh(const char *path) { OK(mount("fresh", path, "tmpfs", 0, NULL)); }
static void bind(const char *from, const char *to) { OK(mount(from, to, NULL, MS_BIND, NULL)); }
static void make(const char *path) { OK(mkdir(path, 0755)); }

/* A namespace of private mounts; "s" is a shared tmpfs with two directories, "p" and "q" are
 * directories outside. */
static void begin(void) {
    if (geteuid() != 0)
        SKIP("not root");
    OK(unshare(CLONE_NEWNS));
    OK(mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL));
    make("s");
    make("p");
    make("q");
    fresh("s");
    make("s/a");
    make("s/a/x");
    make("s/b");
    change("s", MS_SHARED);
}

/* "p" is a slave of "s". */
static void begin_with_slave(void) {
    begin();
    bind("s", "p");
    change("p", MS_SLAVE);
}

TEST(types_are_shown) {
    begin();
    int group = SHARED_AS("s");
    CHECK(group > 0);
    CHECK_EQ(MASTER_OF("s"), 0);
    change("s", MS_SHARED); /* again */
    CHECK_EQ(SHARED_AS("s"), group);
    change("s", MS_SLAVE); /* of nobody */
    CHECK_EQ(SHARED_AS("s"), 0);
    CHECK_EQ(MASTER_OF("s"), 0);
    change("s", MS_UNBINDABLE);
    CHECK(is_unbindable("s"));
    change("s", MS_SLAVE); /* which changes nothing */
    CHECK(is_unbindable("s"));
    change("s", MS_SHARED);
    CHECK(!is_unbindable("s"));
    CHECK(SHARED_AS("s") > 0);
    change("s", MS_UNBINDABLE | MS_SILENT);
    change("s", MS_PRIVATE);
    CHECK(!is_unbindable("s"));
}

TEST(errors) {
    begin();
    ERR(mount(NULL, "s", NULL, MS_SHARED | MS_PRIVATE, NULL), EINVAL);
    ERR(mount(NULL, "s", NULL, MS_SLAVE | MS_SHARED, NULL), EINVAL);
    ERR(mount(NULL, "s", NULL, MS_SHARED | MS_RDONLY, NULL), EINVAL);
    ERR(mount(NULL, "s/a", NULL, MS_SHARED, NULL), EINVAL);
    ERR(mount(NULL, "p", NULL, MS_PRIVATE, NULL), EINVAL);
    ERR(mount(NULL, "none", NULL, MS_PRIVATE, NULL), ENOENT);
    BECOME(NOBODY, NOBODY);
    ERR(mount(NULL, "s", NULL, MS_PRIVATE, NULL), EPERM);
}

TEST(peers_get_and_give) {
    begin();
    bind("s", "p");
    CHECK_EQ(SHARED_AS("p"), SHARED_AS("s"));
    fresh("s/a");
    PUT("s/a/f", "1");
    CHECK_EQ(mounted("p/a"), 1);
    OK(access("p/a/f", F_OK));
    CHECK_EQ(SHARED_AS("p/a"), SHARED_AS("s/a"));
    CHECK(SHARED_AS("s/a") != SHARED_AS("s"));
    fresh("p/b");
    CHECK_EQ(mounted("s/b"), 1);
    OK(umount("p/a"));
    CHECK_EQ(mounted("s/a"), 0);
    OK(umount("s/b"));
    CHECK_EQ(mounted("p/b"), 0);
}

TEST(a_slave_gets_and_gives_nothing) {
    begin_with_slave();
    CHECK_EQ(SHARED_AS("p"), 0);
    CHECK_EQ(MASTER_OF("p"), SHARED_AS("s"));
    fresh("s/a");
    CHECK_EQ(mounted("p/a"), 1);
    CHECK_EQ(MASTER_OF("p/a"), SHARED_AS("s/a"));
    fresh("p/b");
    CHECK_EQ(mounted("s/b"), 0);
    CHECK_EQ(MASTER_OF("p/b"), 0);
    CHECK_EQ(SHARED_AS("p/b"), 0);
    OK(umount("p/a"));
    CHECK_EQ(mounted("s/a"), 1);
    OK(umount("s/a"));
}

TEST(a_private_mount_gets_nothing) {
    begin();
    bind("s", "p");
    change("p", MS_PRIVATE);
    fresh("s/a");
    CHECK_EQ(mounted("p/a"), 0);
    bind("s", "q"); /* not with what is on it */
    CHECK_EQ(mounted("q/a"), 0);
    OK(umount("s/a"));
}

TEST(slaves_that_share) {
    begin_with_slave();
    change("p", MS_SHARED);
    CHECK(SHARED_AS("p") > 0 && SHARED_AS("p") != SHARED_AS("s"));
    CHECK_EQ(MASTER_OF("p"), SHARED_AS("s"));
    bind("p", "q"); /* a peer of p, and a slave of s as that is */
    CHECK_EQ(SHARED_AS("q"), SHARED_AS("p"));
    CHECK_EQ(MASTER_OF("q"), SHARED_AS("s"));
    make("r");
    bind("q", "r");
    change("r", MS_SLAVE);
    CHECK_EQ(MASTER_OF("r"), SHARED_AS("p"));
    fresh("s/a");
    CHECK_EQ(MASTER_OF("p/a"), SHARED_AS("s/a"));
    CHECK_EQ(MASTER_OF("q/a"), SHARED_AS("s/a"));
    CHECK(SHARED_AS("p/a") > 0 && SHARED_AS("p/a") != SHARED_AS("s/a"));
    CHECK_EQ(SHARED_AS("q/a"), SHARED_AS("p/a"));
    CHECK_EQ(MASTER_OF("r/a"), SHARED_AS("p/a"));
    CHECK_EQ(SHARED_AS("r/a"), 0);
    fresh("q/b");
    CHECK_EQ(mounted("s/b"), 0);
    CHECK_EQ(mounted("p/b"), 1);
    CHECK_EQ(mounted("r/b"), 1);
    OK(umount("s/a"));
    CHECK_EQ(mounted("p/a") + mounted("q/a") + mounted("r/a"), 0);
}

TEST(slaves_get_another_master) {
    begin_with_slave();
    change("p", MS_SHARED);
    bind("p", "q");
    change("q", MS_SLAVE);
    CHECK_EQ(MASTER_OF("q"), SHARED_AS("p"));
    change("p", MS_PRIVATE); /* the last of its group */
    CHECK_EQ(MASTER_OF("q"), SHARED_AS("s"));
    fresh("s/a");
    CHECK_EQ(mounted("p/a"), 0);
    CHECK_EQ(mounted("q/a"), 1);
    OK(umount("s/a"));
    OK(umount("s"));
    CHECK_EQ(MASTER_OF("q"), 0);
}

TEST(a_peer_becomes_a_slave_of_the_others) {
    begin();
    bind("s", "p");
    bind("s", "q");
    int group = SHARED_AS("s");
    change("s", MS_SLAVE);
    CHECK_EQ(MASTER_OF("s"), group);
    CHECK_EQ(SHARED_AS("p"), group);
    OK(umount("p"));
    CHECK_EQ(MASTER_OF("s"), group);
    OK(umount("q"));
    CHECK_EQ(MASTER_OF("s"), 0);
}

TEST(unbindable) {
    begin();
    fresh("s/a");
    change("s/a", MS_UNBINDABLE);
    ERR(mount("s/a", "p", NULL, MS_BIND, NULL), EINVAL);
    ERR(mount("s/a/.", "p", NULL, MS_BIND | MS_REC, NULL), EINVAL);
    make("s/a/in");
    fresh("s/a/in");
    fresh("s/b");
    OK(mount("s", "p", NULL, MS_BIND | MS_REC, NULL));
    CHECK_EQ(mounted("p/a"), 0);
    CHECK_EQ(mounted("p/a/in"), 0);
    CHECK_EQ(mounted("p/b"), 1);
    /* A namespace has it all the same. */
    IN_CHILD({
        OK(unshare(CLONE_NEWNS));
        CHECK_EQ(mounted("s/a"), 1);
        /* Linux 6.18 forgets it there. */
        struct utsname system;
        OK(uname(&system));
        CHECK(is_unbindable("s/a") || strverscmp(system.release, "6.2") >= 0);
    });
}

TEST(a_part_gets_what_is_mounted_in_it) {
    begin();
    bind("s/a", "p");
    CHECK_EQ(SHARED_AS("p"), SHARED_AS("s"));
    fresh("s/a/x");
    CHECK_EQ(mounted("p/x"), 1);
    fresh("s/b");
    OK(umount("p/x"));
    CHECK_EQ(mounted("s/a/x"), 0);
    fresh("s/a"); /* the root of the part itself */
    CHECK_EQ(mounted("p"), 2);
    OK(umount("p"));
    CHECK_EQ(mounted("s/a"), 0);
}

TEST(what_was_there_before_covers_what_comes) {
    begin_with_slave();
    fresh("p/a");
    PUT("p/a/own", "");
    fresh("s/a");
    PUT("s/a/f", "");
    CHECK_EQ(mounted("p/a"), 2);
    OK(access("p/a/own", F_OK));
    ERR(access("p/a/f", F_OK), ENOENT);
    OK(umount("s/a")); /* goes from beneath */
    CHECK_EQ(mounted("p/a"), 1);
    OK(access("p/a/own", F_OK));
    fresh("s/a");
    PUT("s/a/f", "");
    OK(umount("p/a"));
    OK(access("p/a/f", F_OK));
    OK(umount("s/a"));
    CHECK_EQ(mounted("p/a"), 0);
}

TEST(moves) {
    begin_with_slave();
    fresh("s/a");
    ERR(mount("s/a", "q", NULL, MS_MOVE, NULL), EINVAL); /* its parent is shared */
    OK(umount("s/a"));
    fresh("q");
    make("q/deep");
    fresh("q/deep");
    PUT("q/deep/f", "");
    OK(mount("q", "s/b", NULL, MS_MOVE, NULL));
    CHECK_EQ(mounted("q") + mounted("q/deep"), 0);
    OK(access("p/b/deep/f", F_OK));
    CHECK_EQ(MASTER_OF("p/b/deep"), SHARED_AS("s/b/deep"));
    CHECK_EQ(MASTER_OF("p/b"), SHARED_AS("s/b"));
    fresh("q");
    make("q/deep");
    fresh("q/deep");
    change("q/deep", MS_UNBINDABLE);
    ERR(mount("q", "s/a", NULL, MS_MOVE, NULL), EINVAL);
    change("q/deep", MS_PRIVATE);
    OK(mount("q", "s/a", NULL, MS_MOVE, NULL));
    OK(umount2("s/a", MNT_DETACH));
    CHECK_EQ(mounted("p/a") + mounted("p/a/deep"), 0);
}

TEST(trees_are_copied_each_mount_with_its_copies) {
    begin();
    bind("s", "p");
    make("t");
    fresh("t");
    make("t/u");
    fresh("t/u");
    make("t/u/v");
    fresh("t/u/v");
    OK(mount("t", "s/a", NULL, MS_BIND | MS_REC, NULL));
    const char *below[] = {"", "/u", "/u/v"};
    for (int i = 0; i < 3; i++) {
        char one[32], other[32];
        snprintf(one, sizeof one, "s/a%s", below[i]);
        snprintf(other, sizeof other, "p/a%s", below[i]);
        CHECK(SHARED_AS(one) > 0);
        CHECK_EQ(SHARED_AS(one), SHARED_AS(other));
    }
    CHECK_EQ(SHARED_AS("t"), 0);
    CHECK(SHARED_AS("s/a") != SHARED_AS("s/a/u"));
    OK(umount("p/a/u/v"));
    CHECK_EQ(mounted("s/a/u/v"), 0);
    ERR(umount("s/a"), EBUSY);
    OK(umount2("s/a", MNT_DETACH));
    CHECK_EQ(mounted("p/a") + mounted("p/a/u") + mounted("s/a/u"), 0);
}

TEST(a_busy_copy_stays_unless_lazily) {
    begin();
    bind("s", "p");
    fresh("s/a");
    PUT("s/a/f", "");
    int fd = OK(open("p/a/f", O_RDONLY));
    ERR(umount("s/a"), EBUSY);
    CHECK_EQ(mounted("s/a") + mounted("p/a"), 2);
    OK(close(fd));
    OK(umount("s/a"));
    fresh("s/a");
    PUT("s/a/f", "");
    fd = OK(open("p/a/f", O_RDONLY));
    OK(umount2("s/a", MNT_DETACH));
    CHECK_EQ(mounted("s/a") + mounted("p/a"), 0);
    OK(close(fd));
}

TEST(a_copy_with_something_on_it_stays) {
    begin_with_slave();
    fresh("s/a");
    make("s/a/in");
    fresh("p/a/in");
    OK(umount("s/a"));
    CHECK_EQ(mounted("s/a"), 0);
    CHECK_EQ(mounted("p/a"), 1);
    CHECK_EQ(mounted("p/a/in"), 1);
    CHECK_EQ(MASTER_OF("p/a"), 0); /* that is gone */
    OK(umount("p/a/in"));
    OK(umount("p/a"));
}

TEST(pivot_root_changes_no_shared_mount) {
    begin();
    fresh("p");
    make("p/old");
    char path[PATH_MAX + 8];
    snprintf(path, sizeof path, "%s/p", hy_tmp);
    change("p", MS_SHARED);
    ERR(syscall(SYS_pivot_root, "p", "p/old"), EINVAL); /* the old root would be on it */
    change("p", MS_PRIVATE);
    fresh("s/a"); /* hangs on a shared one */
    make("s/a/old");
    change("s/a", MS_PRIVATE);
    ERR(syscall(SYS_pivot_root, "s/a", "s/a/old"), EINVAL);
}

TEST(a_copy_of_a_namespace_has_peers) {
    begin();
    GATE(ready);
    GATE(look);
    pid_t child = FORK();
    if (child == 0) {
        OK(unshare(CLONE_NEWNS));
        fresh("s/a");
        PUT("s/a/f", "");
        gate_open(&ready);
        gate_pass(&look);
        CHECK_EQ(mounted("s/b"), 1);
        CHECK_EQ(mounted("s/a"), 0);
        CHECK_EQ(mounted("p"), 0);
        exit(0);
    }
    gate_pass(&ready);
    OK(access("s/a/f", F_OK));
    fresh("s/b");
    fresh("p"); /* on a private one */
    OK(umount("s/a"));
    gate_open(&look);
    EXITS(child, 0);
    CHECK_EQ(mounted("s/b"), 1); /* the end of the other changes nothing */
}

TEST(in_another_user_namespace_they_are_slaves) {
    begin();
    needs_user_namespaces();
    int group = SHARED_AS("s");
    GATE(ready);
    GATE(look);
    pid_t child = FORK();
    if (child == 0) {
        OK(unshare(CLONE_NEWUSER));
        OK(unshare(CLONE_NEWNS));
        CHECK_EQ(SHARED_AS("s"), 0);
        CHECK_EQ(MASTER_OF("s"), group);
        gate_open(&ready);
        gate_pass(&look);
        CHECK_EQ(mounted("s/a"), 1);
        CHECK_EQ(mounted("s/a/in"), 1);
        fresh("s/b");
        /* Flags that protect stay, and files under a mount stay hidden. */
        ERR(mount(NULL, "s/a", NULL, MS_REMOUNT | MS_BIND, NULL), EPERM);
        ERR(umount("s/a/in"), EINVAL);
        ERR(mount("s/a", "p", NULL, MS_BIND, NULL), EINVAL);
        OK(umount2("s/a", MNT_DETACH)); /* all of it may go */
        exit(0);
    }
    gate_pass(&ready);
    make("t");
    fresh("t");
    make("t/in");
    fresh("t/in");
    OK(mount(NULL, "t", NULL, MS_REMOUNT | MS_BIND | MS_NOSUID | MS_RDONLY, NULL));
    OK(mount("t", "s/a", NULL, MS_MOVE, NULL));
    gate_open(&look);
    EXITS(child, 0);
    CHECK_EQ(mounted("s/b"), 0);
    CHECK_EQ(mounted("s/a"), 1);
}

TEST(the_closest_group_that_is_seen) {
    begin_with_slave();
    change("p", MS_SHARED); /* below s */
    fresh("q");
    make("q/top");
    make("q/low");
    make("q/proc");
    bind("s", "q/top");
    bind("p", "q/low");
    change("q/low", MS_SLAVE); /* below p */
    int top = SHARED_AS("s"), middle = SHARED_AS("p");
    CHECK_EQ(number("q/low", "propagate_from"), 0); /* p is seen */
    OK(mount("proc", "q/proc", "proc", 0, NULL));
    IN_CHILD({
        OK(chroot("q"));
        OK(chdir("/"));
        hy_tmp[0] = 0;
        CHECK_EQ(MASTER_OF("low"), middle);
        CHECK_EQ(number("low", "propagate_from"), top);
    });
}

static int open_tree_(const char *path, unsigned flags) {
    return (int)syscall(SYS_open_tree, AT_FDCWD, path, flags);
}

TEST(a_tree_that_hangs_nowhere_gets_nothing) {
    begin();
    int fd = open_tree_("s", TREE_CLONE);
    if (fd < 0 && errno == ENOSYS)
        SKIP("no open_tree");
    OK(fd);
    fresh("s/a");
    PUT("s/a/f", "");
    OK(syscall(SYS_move_mount, fd, "", AT_FDCWD, "p", FROM_EMPTY));
    CHECK_EQ(SHARED_AS("p"), SHARED_AS("s"));
    CHECK_EQ(mounted("p/a"), 0);
    fresh("s/b");
    CHECK_EQ(mounted("p/b"), 1);
    /* One that is attached appears at all peers. */
    int other = OK(open_tree_("q", TREE_CLONE));
    OK(umount("s/a"));
    OK(syscall(SYS_move_mount, other, "", AT_FDCWD, "s/a", FROM_EMPTY));
    CHECK_EQ(mounted("p/a"), 1);
    CHECK_EQ(SHARED_AS("p/a"), SHARED_AS("s/a"));
}

TEST(mount_setattr_changes_types) {
    begin();
    struct attributes shared = {.propagation = MS_SHARED};
    struct attributes two = {.propagation = MS_SHARED | MS_SLAVE};
    struct attributes other = {.propagation = MS_RDONLY};
    fresh("p");
    make("p/in");
    fresh("p/in");
    if (syscall(SYS_mount_setattr, AT_FDCWD, "p", 0, &shared, sizeof shared) != 0 &&
        errno == ENOSYS)
        SKIP("no mount_setattr");
    CHECK(SHARED_AS("p") > 0);
    CHECK_EQ(SHARED_AS("p/in"), 0);
    OK(syscall(SYS_mount_setattr, AT_FDCWD, "p", 0x8000, &shared, sizeof shared));
    CHECK(SHARED_AS("p/in") > 0);
    ERR(syscall(SYS_mount_setattr, AT_FDCWD, "p", 0, &two, sizeof two), EINVAL);
    ERR(syscall(SYS_mount_setattr, AT_FDCWD, "p", 0, &other, sizeof other), EINVAL);
    ERR(syscall(SYS_mount_setattr, AT_FDCWD, "s/a", 0, &shared, sizeof shared), EINVAL);
}

static long set_group(const char *from, const char *to) {
    return syscall(SYS_move_mount, AT_FDCWD, from, AT_FDCWD, to, SET_GROUP);
}

TEST(a_mount_joins_a_group) {
    begin();
    bind("s", "p");
    change("p", MS_PRIVATE);
    if (set_group("s", "p") != 0 && errno == EINVAL && SHARED_AS("p") == 0)
        SKIP("no MOVE_MOUNT_SET_GROUP");
    CHECK_EQ(SHARED_AS("p"), SHARED_AS("s"));
    ERR(set_group("s", "p"), EINVAL); /* it is not private any more */
    fresh("q");
    ERR(set_group("s", "q"), EINVAL); /* another file system */
    ERR(set_group("q", "q"), EINVAL);
    make("r");
    bind("s/a", "r");
    change("r", MS_PRIVATE);
    change("p", MS_PRIVATE);
    ERR(set_group("r", "p"), EINVAL); /* a part, and private at that */
    change("r", MS_SHARED);
    ERR(set_group("r", "p"), EINVAL);
    OK(set_group("s", "p"));
    change("r", MS_PRIVATE);
    OK(set_group("p", "r"));
    fresh("s/a/x");
    CHECK_EQ(mounted("r/x"), 1);
    ERR(set_group("s/b", "r"), EINVAL);
}

TEST(namespaces_are_not_mounted_where_others_get_them) {
    begin();
    PUT("s/file", "");
    pid_t child = FORK();
    if (child == 0) {
        OK(unshare(CLONE_NEWNS));
        pause();
    }
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/ns/mnt", child);
    EVENTUALLY(({
        char own[64] = "", its[64] = "";
        OK(readlink("/proc/self/ns/mnt", own, sizeof own - 1));
        OK(readlink(path, its, sizeof its - 1));
        strcmp(own, its) != 0;
    }));
    ERR(mount(path, "s/file", NULL, MS_BIND, NULL), EINVAL);
    OK(kill(child, SIGKILL));
    KILLED(child, SIGKILL);
    /* Then no mount shares with it. */
    bind("/proc/self/ns/uts", "s/file");
    OK(umount("s/file"));
}

/* Each mount doubles them, up to what a machine holds; then they go at once. */
TEST_TIMES(a_tree_in_itself_grows_up_to_a_limit, 3) {
    begin();
    int doubled = 0, error = 0;
    while (doubled < 13 && (error = mount("s", "s/a", NULL, MS_BIND | MS_REC, NULL)) == 0)
        doubled++;
    if (error != 0)
        CHECK(errno == ENOSPC || errno == ENOMEM);
    CHECK(doubled >= 3);
    bind("s", "p");
    /* One more namespace, which ends. */
    IN_CHILD({ OK(unshare(CLONE_NEWNS)); });
    OK(umount2("s", MNT_DETACH));
    CHECK_EQ(mounted("p"), 1);
    OK(umount2("p", MNT_DETACH));
}

/* Many on top of each other. */
TEST_TIMES(a_deep_stack_goes_at_once, 3) {
    begin();
    IN_CHILD({
        OK(unshare(CLONE_NEWNS));
        change("s", MS_PRIVATE);
        for (int n = 0; n < 1500; n++)
            bind("s", "p");
        OK(umount2("p", MNT_DETACH));
    });
    for (int n = 0; n < 12; n++)
        bind("s", "s");
    OK(umount2("s", MNT_DETACH));
}

/* Peers, slaves and slaves of those; mounts come and go at all of them at once. */
TEST_TIMES(all_at_once, 3) {
    begin_with_slave();
    change("p", MS_SHARED);
    bind("p", "q");
    make("r");
    bind("q", "r");
    change("r", MS_SLAVE);
    pid_t children[4];
    const char *places[] = {"s/a", "p/b", "q/a", "r/a"};
    for (int i = 0; i < 4; i++) {
        children[i] = FORK();
        if (children[i])
            continue;
        if (i == 3)
            OK(unshare(CLONE_NEWNS));
        for (int n = 0; n < 200; n++) {
            /* What the path led to may go meanwhile. */
            if (mount("fresh", places[i], "tmpfs", 0, NULL) != 0)
                CHECK(errno == ENOENT || errno == EINVAL);
            if (n % 3 == 0)
                (void)umount2(places[(i + 1) % 4], MNT_DETACH);
            if (umount2(places[i], n % 2 ? MNT_DETACH : 0) != 0)
                CHECK(errno == EBUSY || errno == EINVAL);
        }
        exit(0);
    }
    for (int i = 0; i < 4; i++)
        EXITS(children[i], 0);
    const char *all[] = {"s/a", "s/b", "p/a", "p/b", "q/a", "q/b", "r/a", "r/b"};
    for (int i = 0; i < 8; i++)
        while (umount2(all[i], MNT_DETACH) == 0)
            ;
    for (int i = 0; i < 8; i++)
        CHECK_EQ(mounted(all[i]), 0);
    fresh("s/a");
    CHECK_EQ(mounted("p/a") + mounted("q/a") + mounted("r/a"), 3);
    OK(umount("s/a"));
    CHECK_EQ(mounted("p/a") + mounted("q/a") + mounted("r/a"), 0);
}
