/* Extended attributes by namespace (xattr(7)): who may read, write, list and remove what. */
#define AREA "xattr"
#include "harness.h"
#include <sys/xattr.h>

/* Capabilities, version 2: none (struct vfs_cap_data). */
static const char no_capabilities[20] = {0, 0, 0, 2};
#define NO_CAPABILITIES "security.capability", no_capabilities, sizeof no_capabilities

/* Every way to name a file. */
enum { PATH, LINK, DESCRIPTOR, WAYS };

static int set(int way, const char *path, const char *name, const void *value, size_t size,
               int flags) {
    if (way != DESCRIPTOR)
        return (way == PATH ? setxattr : lsetxattr)(path, name, value, size, flags);
    int fd = OK(open(path, O_RDONLY)), result = fsetxattr(fd, name, value, size, flags);
    int error = errno;
    close(fd);
    errno = error;
    return result;
}

static ssize_t get(int way, const char *path, const char *name, void *value, size_t size) {
    if (way != DESCRIPTOR)
        return (way == PATH ? getxattr : lgetxattr)(path, name, value, size);
    int fd = OK(open(path, O_RDONLY)), error;
    ssize_t result = fgetxattr(fd, name, value, size);
    error = errno;
    close(fd);
    errno = error;
    return result;
}

static int drop(int way, const char *path, const char *name) {
    if (way != DESCRIPTOR)
        return (way == PATH ? removexattr : lremovexattr)(path, name);
    int fd = OK(open(path, O_RDONLY)), result = fremovexattr(fd, name), error = errno;
    close(fd);
    errno = error;
    return result;
}

static bool listed(int way, const char *path, const char *name) {
    char names[1024];
    ssize_t size;
    if (way == DESCRIPTOR) {
        int fd = OK(open(path, O_RDONLY));
        size = OK(flistxattr(fd, names, sizeof names));
        CHECK(flistxattr(fd, NULL, 0) >= size);
        close(fd);
    } else {
        size = OK((way == PATH ? listxattr : llistxattr)(path, names, sizeof names));
        /* Linux' overlay leaves nothing out when it is asked for the size alone. */
        CHECK((way == PATH ? listxattr : llistxattr)(path, NULL, 0) >= size);
    }
    for (char *at = names; at < names + size; at += strlen(at) + 1)
        if (!strcmp(at, name))
            return true;
    return false;
}

#define AS_USER(uid, gid, ...)                                                                     \
    IN_CHILD({                                                                                     \
        BECOME(uid, gid);                                                                          \
        __VA_ARGS__;                                                                               \
    })

/* A file of user 1000 that everybody may read and write, and a directory, in each of some file
 * systems. */
static const char *const places[] = {".", "/var/tmp", "/dev/shm"};
#define EACH_PLACE(body)                                                                           \
    for (size_t p = 0; p < sizeof places / sizeof *places; p++) {                                  \
        char base[300], file[400], dir[400];                                                       \
        snprintf(base, sizeof base, "%s/xattr-%d", places[p], getpid());                           \
        if (access(places[p], W_OK) == -1 || mkdir(base, 0777) == -1)                              \
            continue;                                                                              \
        OK(chmod(base, 0777));                                                                     \
        snprintf(file, sizeof file, "%s/file", base);                                              \
        snprintf(dir, sizeof dir, "%s/dir", base);                                                 \
        PUT_MODE(file, "x", 0666);                                                                 \
        OK(mkdir(dir, 0777));                                                                      \
        OK(chmod(dir, 0777));                                                                      \
        OK(chown(file, 1000, 1000));                                                               \
        body;                                                                                      \
        hy_remove(base);                                                                           \
    }

static void nobody_touches_trusted(const char *path) {
    char text[64];
    OK(setxattr(path, "trusted.mine", "secret", 6, 0));
    for (int way = 0; way < WAYS; way++) {
        AS_USER(1000, 1000, { /* the owner, too */
            ERR(get(way, path, "trusted.mine", text, sizeof text), ENODATA);
            ERR(get(way, path, "trusted.none", text, sizeof text), ENODATA);
            ERR(set(way, path, "trusted.mine", "x", 1, 0), EPERM);
            ERR(set(way, path, "trusted.new", "x", 1, 0), EPERM);
            ERR(drop(way, path, "trusted.mine"), EPERM);
            ERR(drop(way, path, "trusted.none"), EPERM);
            CHECK(!listed(way, path, "trusted.mine"));
        });
        CHECK_EQ(OK(get(way, path, "trusted.mine", text, sizeof text)), 6);
        CHECK(!memcmp(text, "secret", 6));
        CHECK(listed(way, path, "trusted.mine"));
    }
    OK(removexattr(path, "trusted.mine"));
}

TEST(trusted_is_for_the_administrator_alone) {
    EACH_PLACE({
        nobody_touches_trusted(file);
        nobody_touches_trusted(dir);
    });
}

/* With the BPF security module Linux before 6.10 never gets to the check of capabilities ("lsm:
 * fixup the inode xattr capability handling"). */
static void needs_the_check(void) {
    char version[300] = "";
    get_file("/proc/version", version, sizeof version);
    if (strstr(version, "Linux version 6.1.") && strstr(version, "Debian"))
        SKIP("this Linux lets anybody change security attributes");
}

static void nobody_changes_security(const char *path) {
    char text[64];
    OK(setxattr(path, "security.mine", "label", 5, 0));
    OK(setxattr(path, NO_CAPABILITIES, 0));
    for (int way = 0; way < WAYS; way++)
        AS_USER(1000, 1000, {
            ERR(set(way, path, "security.mine", "x", 1, 0), EPERM);
            ERR(set(way, path, "security.new", "x", 1, 0), EPERM);
            ERR(drop(way, path, "security.mine"), EPERM);
            ERR(set(way, path, NO_CAPABILITIES, 0), EPERM);
            ERR(set(way, path, "security.capability", "abc", 3, 0), EINVAL); /* looked at first */
            ERR(drop(way, path, "security.capability"), EPERM);
            /* Reading and listing is for everybody. */
            CHECK_EQ(OK(get(way, path, "security.mine", text, sizeof text)), 5);
            CHECK(listed(way, path, "security.mine"));
        });
    OK(removexattr(path, "security.mine"));
    OK(removexattr(path, "security.capability"));
}

TEST(security_is_changed_by_the_administrator_alone) {
    needs_the_check();
    EACH_PLACE(nobody_changes_security(file));
}

/* Leaves the caller the one capability. */
static void keep_capability(int number) {
    struct { unsigned version; int pid; } header = {0x20080522, 0};
    struct { unsigned effective, permitted, inheritable; } data[2] = {{0, 0, 0}, {0, 0, 0}};
    data[number / 32].effective = data[number / 32].permitted = 1u << (number % 32);
    OK(syscall(SYS_prctl, 8 /* PR_SET_KEEPCAPS */, 1, 0, 0, 0));
    BECOME(2000, 2000);
    OK(syscall(SYS_capset, &header, data));
}

TEST(each_capability_opens_its_own) {
    enum { CAP_SYS_ADMIN_ = 21, CAP_SETFCAP_ = 31 };
    needs_the_check();
    EACH_PLACE({
        IN_CHILD({
            keep_capability(CAP_SYS_ADMIN_);
            OK(setxattr(file, "trusted.a", "x", 1, 0));
            OK(setxattr(file, "security.a", "x", 1, 0));
            ERR(setxattr(file, NO_CAPABILITIES, 0), EPERM);
            CHECK(listed(PATH, file, "trusted.a"));
            OK(removexattr(file, "trusted.a"));
        });
        IN_CHILD({
            keep_capability(CAP_SETFCAP_);
            OK(setxattr(file, NO_CAPABILITIES, 0));
            ERR(setxattr(file, "security.a", "y", 1, 0), EPERM);
            ERR(setxattr(file, "trusted.a", "y", 1, 0), EPERM);
            OK(removexattr(file, "security.capability"));
        });
    });
}

TEST(user_is_for_files_and_directories_alone) {
    OK(mkfifo("fifo", 0666));
    OK(chmod("fifo", 0666));
    OK(symlink("nowhere", "link"));
    char text[8];
    for (int root = 0; root < 2; root++)
        IN_CHILD({
            if (!root)
                BECOME(1000, 1000);
            ERR(setxattr("fifo", "user.x", "y", 1, 0), EPERM);
            ERR(removexattr("fifo", "user.x"), EPERM);
            ERR(getxattr("fifo", "user.x", text, sizeof text), ENODATA);
            ERR(lsetxattr("link", "user.x", "y", 1, 0), EPERM);
            ERR(lgetxattr("link", "user.x", text, sizeof text), ENODATA);
        });
}

TEST(user_asks_for_the_rights_of_the_file) {
    PUT_MODE("closed", "x", 0600);
    PUT_MODE("readable", "x", 0644);
    OK(mkdir("sticky", 0777));
    OK(chmod("sticky", 01777));
    char text[8];
    AS_USER(1000, 1000, {
        ERR(setxattr("closed", "user.x", "y", 1, 0), EACCES);
        ERR(getxattr("closed", "user.x", text, sizeof text), EACCES);
        ERR(setxattr("readable", "user.x", "y", 1, 0), EACCES);
        ERR2(getxattr("readable", "user.x", text, sizeof text), ENODATA, EOPNOTSUPP);
        ERR(setxattr("sticky", "user.x", "y", 1, 0), EPERM); /* not its owner */
        ERR(removexattr("sticky", "user.x"), EPERM);
        ERR(setxattr("closed", "nonsense", "y", 1, 0), EACCES);
    });
    ERR(setxattr("closed", "nonsense", "y", 1, 0), EOPNOTSUPP);
    ERR(setxattr("closed", "trusted.", "y", 1, 0), EINVAL);
    ERR(setxattr("closed", "security.", "y", 1, 0), EINVAL);
}

TEST(a_descriptor_for_the_place_alone_is_ebadf) {
    PUT("f", "x");
    int fd = OK(open("f", O_PATH));
    char text[8];
    ERR(fsetxattr(fd, "trusted.x", "y", 1, 0), EBADF);
    ERR(fgetxattr(fd, "trusted.x", text, sizeof text), EBADF);
    ERR(flistxattr(fd, text, sizeof text), EBADF);
    ERR(fremovexattr(fd, "trusted.x"), EBADF);
}
