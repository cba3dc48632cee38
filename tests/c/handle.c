/* File handles: name_to_handle_at(2), open_by_handle_at(2). procfs gives none, on Linux as here. */
#define AREA "handle"
#include "harness.h"

#ifndef AT_EMPTY_PATH
#define AT_EMPTY_PATH 0x1000
#endif
#ifndef AT_SYMLINK_FOLLOW
#define AT_SYMLINK_FOLLOW 0x400
#endif

struct handle {
    uint32_t bytes;
    int32_t kind;
    unsigned char content[128];
};

static long name(int directory, const char *path, void *handle, void *mount, int flags) {
    return syscall(SYS_name_to_handle_at, directory, path, handle, mount, flags);
}
static long open_by(int mount, void *handle, int flags) {
    return syscall(SYS_open_by_handle_at, mount, handle, flags);
}

TEST(procfs_has_none) {
    struct handle handle = {.bytes = 128};
    int mount = -7, file = OK(open("/proc/self/stat", O_RDONLY));
    ERR(name(AT_FDCWD, "/proc", &handle, &mount, 0), EOPNOTSUPP);
    ERR(name(AT_FDCWD, "/proc/self", &handle, &mount, 0), EOPNOTSUPP);
    ERR(name(AT_FDCWD, "/proc/self/stat", &handle, &mount, AT_SYMLINK_FOLLOW), EOPNOTSUPP);
    ERR(name(file, "", &handle, &mount, AT_EMPTY_PATH), EOPNOTSUPP);
    CHECK_EQ(mount, -7);
    CHECK_EQ(handle.bytes, 128);
}

TEST(name_errors) {
    struct handle handle = {.bytes = 128};
    int mount;
    OK(symlink("nowhere", "link"));
    ERR(name(AT_FDCWD, "/proc", &handle, &mount, 0x100), EINVAL);
    ERR(name(AT_FDCWD, "/proc", &handle, &mount, 0x800), EINVAL);
    ERR(name(AT_FDCWD, "none", &handle, &mount, 0), ENOENT);
    ERR(name(AT_FDCWD, "link", &handle, &mount, AT_SYMLINK_FOLLOW), ENOENT);
    ERR(name(AT_FDCWD, "", &handle, &mount, 0), ENOENT);
    ERR(name(AT_FDCWD, "/proc/self/stat/x", &handle, &mount, 0), ENOTDIR);
    ERR(name(AT_FDCWD, BAD, &handle, &mount, 0), EFAULT);
    ERR(name(999, "x", &handle, &mount, 0), EBADF);
    ERR(name(999, "", &handle, &mount, AT_EMPTY_PATH), EBADF);
}

TEST(open_errors) {
    struct handle handle = {.bytes = 8, .kind = 1};
    if (geteuid() != 0)
        SKIP("not root");
    int proc = OK(open("/proc", O_RDONLY | O_DIRECTORY));
    ERR(open_by(proc, BAD, O_RDONLY), EFAULT);
    handle.bytes = 0;
    ERR(open_by(proc, &handle, O_RDONLY), EINVAL);
    handle.bytes = 129;
    ERR(open_by(proc, &handle, O_RDONLY), EINVAL);
    handle.bytes = 8;
    ERR(open_by(proc, &handle, O_RDONLY), ESTALE);
    ERR(open_by(999, &handle, O_RDONLY), EBADF);
    IN_CHILD({
        BECOME(NOBODY, NOBODY);
        ERR(open_by(proc, &handle, O_RDONLY), EPERM);
    });
}
