/* userfaultfd(2): a program that provides the missing pages of itself. */
#define AREA "userfaultfd"
#include "harness.h"
#include <linux/userfaultfd.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/vfs.h>

#ifndef UFFD_USER_MODE_ONLY
#define UFFD_USER_MODE_ONLY 1
#endif
#define RW (PROT_READ | PROT_WRITE)
#define MAP_ANY (MAP_PRIVATE | MAP_ANONYMOUS)
#define PRIVILEGE "/proc/sys/vm/unprivileged_userfaultfd"

static int make(int flags) { return (int)syscall(SYS_userfaultfd, flags); }

static int api(int fd, uint64_t features) {
    struct uffdio_api arg = {.api = UFFD_API, .features = features};
    return ioctl(fd, UFFDIO_API, &arg);
}

static int ready(int flags, uint64_t features) {
    int fd = OK(make(flags));
    OK(api(fd, features));
    return fd;
}

static char *fresh(size_t pages) { return OK(mmap(NULL, pages * PAGE, RW, MAP_ANY, -1, 0)); }

static int enlist(int fd, void *at, size_t pages, uint64_t mode) {
    struct uffdio_register arg = {.range = {(uintptr_t)at, pages * PAGE}, .mode = mode};
    return ioctl(fd, UFFDIO_REGISTER, &arg);
}
#define ENLIST(fd, at, pages) OK(enlist(fd, at, pages, UFFDIO_REGISTER_MODE_MISSING))

static int delist(int fd, void *at, size_t pages) {
    struct uffdio_range arg = {(uintptr_t)at, pages * PAGE};
    return ioctl(fd, UFFDIO_UNREGISTER, &arg);
}

static int wake(int fd, void *at, size_t pages) {
    struct uffdio_range arg = {(uintptr_t)at, pages * PAGE};
    return ioctl(fd, UFFDIO_WAKE, &arg);
}

static int64_t copied; /* what the last copy or zeropage says of itself */

static int copy(int fd, void *to, const void *from, size_t pages, uint64_t mode) {
    struct uffdio_copy arg = {(uintptr_t)to, (uintptr_t)from, pages * PAGE, mode, -77};
    int result = ioctl(fd, UFFDIO_COPY, &arg), error = errno;
    copied = arg.copy;
    errno = error;
    return result;
}

static int zero(int fd, void *to, size_t pages, uint64_t mode) {
    struct uffdio_zeropage arg = {{(uintptr_t)to, pages * PAGE}, mode, -77};
    int result = ioctl(fd, UFFDIO_ZEROPAGE, &arg), error = errno;
    copied = arg.zeropage;
    errno = error;
    return result;
}

static const char *full_of(int c) {
    static char pages[256][PAGE];
    memset(pages[c], c, PAGE);
    return pages[c];
}

/* Receives the message of a fault at this address. */
static uint64_t receive(int fd, void *at) {
    struct uffd_msg message;
    memset(&message, 0xa5, sizeof message);
    CHECK_EQ(OK(read(fd, &message, sizeof message)), sizeof message);
    CHECK_EQ(message.event, UFFD_EVENT_PAGEFAULT);
    CHECK_EQ(message.arg.pagefault.address, (uintptr_t)at);
    return message.arg.pagefault.flags;
}

static int is_readable(int fd, int ms) {
    struct pollfd one = {fd, POLLIN, 0};
    int count = OK(poll(&one, 1, ms));
    if (count) CHECK_EQ(one.revents, POLLIN);
    return count;
}

/* A thread that touches memory. */
struct toucher {
    pthread_t thread;
    _Atomic pid_t tid;
    char *at;
    int write;
    volatile char found;
    _Atomic int done;
};

static void *touch(void *arg) {
    struct toucher *one = arg;
    one->tid = (pid_t)syscall(SYS_gettid);
    if (one->write)
        *(volatile char *)one->at = 'w';
    one->found = *(volatile char *)one->at;
    one->done = 1;
    return NULL;
}

static void start(struct toucher *one, char *at, int write) {
    *one = (struct toucher){.at = at, .write = write};
    ZERO(pthread_create(&one->thread, NULL, touch, one));
}

static char finish(struct toucher *one) {
    ZERO(pthread_join(one->thread, NULL));
    CHECK_EQ(one->done, 1);
    return one->found;
}

TEST(flags_and_rights) {
    ERR(make(2), EINVAL);
    ERR(make(O_APPEND), EINVAL);
    int fd = OK(make(UFFD_USER_MODE_ONLY | O_CLOEXEC | O_NONBLOCK));
    CHECK_EQ(OK(fcntl(fd, F_GETFD)), FD_CLOEXEC);
    CHECK_EQ(OK(fcntl(fd, F_GETFL)) & (O_NONBLOCK | O_ACCMODE), O_NONBLOCK | O_RDONLY);
    fd = OK(make(UFFD_USER_MODE_ONLY));
    CHECK_EQ(OK(fcntl(fd, F_GETFD)), 0);
    char link[64] = "", path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    OK(readlink(path, link, sizeof link - 1));
    CHECK_STR(link, "anon_inode:[userfaultfd]");
}

TEST(without_privilege_only_faults_of_user_mode) {
    char text[16];
    if (geteuid() != 0) SKIP("not root");
    CHECK(get_file(PRIVILEGE, text, sizeof text) > 0);
    if (strcmp(text, "0\n") != 0) SKIP("vm.unprivileged_userfaultfd is set");
    OK(make(0));
    IN_CHILD({
        BECOME(NOBODY, NOBODY);
        ERR(make(0), EPERM);
        ERR(make(2), EPERM); /* rights come first */
        OK(make(UFFD_USER_MODE_ONLY));
    });
}

TEST(a_setting_allows_all_faults) {
    NEEDS_OWN_MACHINE();
    SET_SYSCTL(PRIVILEGE, "1\n");
    IN_CHILD({
        BECOME(NOBODY, NOBODY);
        OK(make(0));
    });
    int fd = OK(open(PRIVILEGE, O_WRONLY));
    ERR(write(fd, "2\n", 2), EINVAL);
}

TEST(the_device_makes_one) {
    int device = open("/dev/userfaultfd", O_RDWR | O_CLOEXEC);
    if (device == -1 && (errno == ENOENT || errno == EACCES)) SKIP("no /dev/userfaultfd");
    OK(device);
    ERR(ioctl(device, _IO(0xAA, 0), 2), EINVAL);
    ERR(ioctl(device, _IO(0xAA, 1), 0), EINVAL);
    int fd = OK(ioctl(device, _IO(0xAA, 0), O_CLOEXEC | O_NONBLOCK));
    CHECK_EQ(OK(fcntl(fd, F_GETFD)), FD_CLOEXEC);
    OK(api(fd, 0));
    struct stat st;
    OK(fstat(device, &st));
    CHECK(S_ISCHR(st.st_mode));
    CHECK_EQ(st.st_mode & 0777, 0600);
}

TEST(the_two_agree_first) {
    int fd = OK(make(O_NONBLOCK));
    char *p = fresh(1);
    struct uffd_msg message;
    struct pollfd one = {fd, POLLIN, 0};
    ERR(enlist(fd, p, 1, UFFDIO_REGISTER_MODE_MISSING), EINVAL);
    ERR(wake(fd, p, 1), EINVAL);
    ERR(read(fd, &message, sizeof message), EINVAL);
    CHECK_EQ(OK(poll(&one, 1, 0)), 1);
    CHECK_EQ(one.revents, POLLERR);
    struct uffdio_api arg = {.api = UFFD_API + 1, .features = 0, .ioctls = 5};
    ERR(ioctl(fd, UFFDIO_API, &arg), EINVAL);
    CHECK(arg.api == 0 && arg.features == 0 && arg.ioctls == 0);
    arg = (struct uffdio_api){.api = UFFD_API, .features = 1ull << 62};
    ERR(ioctl(fd, UFFDIO_API, &arg), EINVAL);
    CHECK(arg.api == 0 && arg.features == 0 && arg.ioctls == 0);
    ERR(ioctl(fd, UFFDIO_API, BAD), EFAULT);
    arg = (struct uffdio_api){.api = UFFD_API};
    OK(ioctl(fd, UFFDIO_API, &arg));
    uint64_t features = UFFD_FEATURE_SIGBUS | UFFD_FEATURE_THREAD_ID | UFFD_FEATURE_MISSING_SHMEM |
                        UFFD_FEATURE_EXACT_ADDRESS;
    CHECK_EQ(arg.api, UFFD_API);
    CHECK_EQ(arg.features & features, features);
    CHECK_EQ(arg.ioctls,
             1ull << _UFFDIO_REGISTER | 1ull << _UFFDIO_UNREGISTER | 1ull << _UFFDIO_API);
    ERR(api(fd, 0), EINVAL); /* only once */
    ERR(read(fd, &message, sizeof message), EAGAIN);
    ERR(read(fd, &message, sizeof message - 1), EINVAL);
    ERR(ioctl(fd, _IO(0xAA, 0x30), 0), EINVAL);
    ERR(write(fd, &message, sizeof message), EBADF); /* it is opened for reading */
}

TEST(what_is_offered_works) {
    /* Every mode that the features name can be registered, and no other. */
    int fd = OK(make(UFFD_USER_MODE_ONLY));
    struct uffdio_api arg = {.api = UFFD_API};
    OK(ioctl(fd, UFFDIO_API, &arg));
    char *p = fresh(1);
    struct uffdio_register asked = {{(uintptr_t)p, PAGE}, UFFDIO_REGISTER_MODE_WP, 0};
    int has_wp = (arg.features & UFFD_FEATURE_PAGEFAULT_FLAG_WP) != 0;
    CHECK_EQ(ioctl(fd, UFFDIO_REGISTER, &asked) == 0, has_wp);
    CHECK_EQ((asked.ioctls >> _UFFDIO_WRITEPROTECT & 1) != 0, has_wp);
    OK(has_wp ? delist(fd, p, 1) : 0);
    asked = (struct uffdio_register){{(uintptr_t)p, PAGE}, UFFDIO_REGISTER_MODE_MISSING, 0};
    OK(ioctl(fd, UFFDIO_REGISTER, &asked));
    uint64_t basic = 1ull << _UFFDIO_WAKE | 1ull << _UFFDIO_COPY | 1ull << _UFFDIO_ZEROPAGE;
    CHECK_EQ(asked.ioctls & basic, basic);
    CHECK_EQ(asked.ioctls >> _UFFDIO_WRITEPROTECT & 1, 0);
    CHECK_EQ(asked.ioctls >> _UFFDIO_CONTINUE & 1, 0);
}

TEST(what_cannot_be_registered) {
    int fd = ready(UFFD_USER_MODE_ONLY, 0), other = ready(UFFD_USER_MODE_ONLY, 0);
    char *p = fresh(8);
    uint64_t missing = UFFDIO_REGISTER_MODE_MISSING;
    ERR(enlist(fd, p, 1, 0), EINVAL);
    ERR(enlist(fd, p, 1, 1ull << 40), EINVAL);
    ERR(enlist(fd, p, 0, missing), EINVAL);
    ERR(enlist(fd, p + 1, 1, missing), EINVAL);
    ERR(enlist(fd, KERNEL_ADDRESS, 1, missing), EINVAL);
    ERR(enlist(fd, (void *)0, 1, missing), EINVAL);
    ERR(enlist(fd, p, 1ull << 40, missing), EINVAL);
    ERR(ioctl(fd, UFFDIO_REGISTER, BAD), EFAULT);
    ERR(enlist(fd, BAD, 1, missing), EINVAL);
    ERR(delist(fd, BAD, 1), EINVAL);
    /* Memory of a file is not for it. */
    int file = OK(open(hy_self, O_RDONLY));
    char *f = OK(mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, file, 0));
    struct statfs system;
    OK(fstatfs(file, &system));
    if (system.f_type != 0x01021994) /* TMPFS_MAGIC */
        ERR(enlist(fd, f, 1, missing), EINVAL);
    /* What another has. */
    ENLIST(other, p + 4 * PAGE, 1);
    ERR(enlist(fd, p, 8, missing), EBUSY);
    ENLIST(fd, p, 4);
    ENLIST(fd, p, 4); /* once more is no error */
    ENLIST(other, p + 4 * PAGE, 4);
    /* Shared memory that cannot be written. */
    int memory = OK((int)syscall(SYS_memfd_create, "m", 0));
    OK(ftruncate(memory, (off_t)PAGE));
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", memory);
    int reading = OK(open(path, O_RDONLY));
    char *m = OK(mmap(NULL, PAGE, PROT_READ, MAP_SHARED, reading, 0));
    ERR(enlist(fd, m, 1, missing), EPERM);
    /* A hole in the range is none of its business. */
    char *q = fresh(3);
    OK(munmap(q + PAGE, PAGE));
    ENLIST(fd, q, 3);
    OK(delist(fd, q, 3));
}

TEST(a_page_that_is_missing_is_copied) {
    int fd = ready(O_CLOEXEC, 0);
    char *p = fresh(3);
    p[0] = 'a';
    ENLIST(fd, p, 3);
    CHECK_EQ(p[0], 'a'); /* is there */
    struct toucher one;
    start(&one, p + PAGE + 123, 0);
    CHECK_EQ(receive(fd, p + PAGE), 0);
    CHECK_EQ(one.done, 0);
    OK(copy(fd, p + PAGE, full_of('b'), 1, 0));
    CHECK_EQ(copied, PAGE);
    CHECK_EQ(finish(&one), 'b');
    CHECK_EQ(p[2 * PAGE - 1], 'b');
    start(&one, p + 2 * PAGE, 1);
    CHECK_EQ(receive(fd, p + 2 * PAGE), UFFD_PAGEFAULT_FLAG_WRITE);
    OK(copy(fd, p + 2 * PAGE, full_of('c'), 1, 0));
    CHECK_EQ(finish(&one), 'w');
    CHECK_EQ(p[2 * PAGE + 1], 'c');
}

TEST(a_page_of_zeroes) {
    int fd = ready(0, 0);
    char *p = fresh(3);
    ENLIST(fd, p, 3);
    struct toucher one;
    start(&one, p + 5, 0);
    receive(fd, p);
    OK(zero(fd, p, 1, 0));
    CHECK_EQ(copied, PAGE);
    CHECK_EQ(finish(&one), 0);
    p[5] = 'x'; /* no fault any more */
    CHECK_EQ(p[5], 'x');
    start(&one, p + PAGE, 1);
    receive(fd, p + PAGE);
    OK(zero(fd, p + PAGE, 2, 0));
    CHECK_EQ(copied, 2 * PAGE);
    CHECK_EQ(finish(&one), 'w');
    CHECK_EQ(p[2 * PAGE], 0);
    ERR(zero(fd, p, 1, 0), EEXIST);
    CHECK_EQ(copied, -EEXIST);
    ERR(zero(fd, p, 1, 2), EINVAL);
    CHECK_EQ(copied, -77);
}

TEST(waking_is_a_step_of_its_own) {
    int fd = ready(0, 0);
    char *p = fresh(2);
    ENLIST(fd, p, 2);
    struct toucher one;
    start(&one, p, 0);
    receive(fd, p);
    OK(copy(fd, p, full_of('d'), 1, UFFDIO_COPY_MODE_DONTWAKE));
    wait_asleep(one.tid);
    CHECK_EQ(one.done, 0);
    CHECK_EQ(p[1], 'd'); /* others find it */
    OK(wake(fd, p + PAGE, 1));
    wait_asleep(one.tid);
    CHECK_EQ(one.done, 0);
    OK(wake(fd, p, 1));
    CHECK_EQ(finish(&one), 'd');
    /* Woken without a page it faults again. */
    start(&one, p + PAGE, 0);
    receive(fd, p + PAGE);
    OK(wake(fd, p, 2));
    receive(fd, p + PAGE);
    OK(zero(fd, p + PAGE, 1, UFFDIO_ZEROPAGE_MODE_DONTWAKE));
    wait_asleep(one.tid);
    CHECK_EQ(one.done, 0);
    OK(wake(fd, p, 2));
    CHECK_EQ(finish(&one), 0);
    ERR(wake(fd, p + 1, 1), EINVAL);
    ERR(wake(fd, p, 0), EINVAL);
    ERR(ioctl(fd, UFFDIO_WAKE, BAD), EFAULT);
}

TEST(errors_of_a_copy) {
    int fd = ready(0, 0);
    char *p = fresh(6), *plain = fresh(1), *from = fresh(6);
    memset(from, 's', 6 * PAGE);
    ENLIST(fd, p, 6);
    OK(copy(fd, p + 2 * PAGE, from, 1, 0));
    ERR(copy(fd, p + 2 * PAGE, from, 1, 0), EEXIST);
    CHECK_EQ(copied, -EEXIST);
    /* As far as it came. */
    ERR(copy(fd, p, from, 4, 0), EAGAIN);
    CHECK_EQ(copied, 2 * PAGE);
    CHECK(p[0] == 's' && p[2 * PAGE - 1] == 's');
    ERR(copy(fd, plain, from, 1, 0), ENOENT);
    CHECK_EQ(copied, -ENOENT);
    ERR(copy(fd, BAD, from, 1, 0), ENOENT);
    ERR(copy(fd, p + 5 * PAGE, from, 2, 0), ENOENT); /* beyond the mapping */
    ERR(copy(fd, p + 1, from, 1, 0), EINVAL);
    CHECK_EQ(copied, -77);
    ERR(copy(fd, p, from, 0, 0), EINVAL);
    ERR(copy(fd, p, (char *)-PAGE, 2, 0), EINVAL);
    ERR(copy(fd, p, from, 1, 4), EINVAL);
    ERR(copy(fd, p + 4 * PAGE, from, 1, UFFDIO_COPY_MODE_WP), EINVAL);
    ERR(copy(fd, p + 4 * PAGE, BAD, 1, 0), EFAULT);
    CHECK_EQ(copied, -EFAULT);
    OK(munmap(from + 5 * PAGE, PAGE));
    ERR(copy(fd, p + 4 * PAGE, from + 4 * PAGE, 2, 0), EAGAIN);
    CHECK_EQ(copied, PAGE);
    OK(copy(fd, p + 5 * PAGE, from + 7, 1, 0)); /* the source need not be aligned */
    ERR(ioctl(fd, UFFDIO_COPY, BAD), EFAULT);
    ERR(ioctl(fd, UFFDIO_ZEROPAGE, BAD), EFAULT);
    /* Unmapped and mapped again: not registered. */
    OK(munmap(p, PAGE));
    CHECK_EQ(OK(mmap(p, PAGE, RW, MAP_ANY | MAP_FIXED, -1, 0)), p);
    ERR(copy(fd, p, from, 1, 0), ENOENT);
    CHECK_EQ(p[0], 0);
}

TEST(memory_that_cannot_be_written_is_filled) {
    int fd = ready(0, 0);
    char *p = fresh(3);
    ENLIST(fd, p, 3);
    OK(mprotect(p, PAGE, PROT_READ));
    OK(mprotect(p + PAGE, 2 * PAGE, PROT_NONE));
    OK(copy(fd, p, full_of('r'), 1, 0));
    OK(copy(fd, p + PAGE, full_of('n'), 1, 0));
    OK(zero(fd, p + 2 * PAGE, 1, 0));
    CHECK_EQ(p[9], 'r');
    FAULTS(POKE(p, 1), SIGSEGV, SEGV_ACCERR, p);
    FAULTS(PEEK(p + PAGE), SIGSEGV, SEGV_ACCERR, p + PAGE);
    FAULTS(PEEK(p + 2 * PAGE), SIGSEGV, SEGV_ACCERR, p + 2 * PAGE);
    OK(mprotect(p, 3 * PAGE, RW));
    CHECK_EQ(p[PAGE], 'n');
    CHECK_EQ(p[2 * PAGE], 0);
    p[0] = p[PAGE] = p[2 * PAGE] = 'y';
    CHECK(p[0] == 'y' && p[PAGE] == 'y' && p[2 * PAGE] == 'y' && p[1] == 'r');
}

TEST(polled_and_read_without_waiting) {
    int fd = ready(O_NONBLOCK, 0), blocking = ready(0, 0);
    int set = OK(epoll_create1(0));
    struct epoll_event event = {EPOLLIN, {.u32 = 7}};
    OK(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event));
    char *p = fresh(2);
    ENLIST(fd, p, 2);
    struct uffd_msg messages[4];
    ERR(read(fd, messages, sizeof messages), EAGAIN);
    CHECK_EQ(is_readable(fd, 0), 0);
    CHECK_EQ(OK(epoll_wait(set, &event, 1, 0)), 0);
    struct toucher one, two;
    start(&one, p, 0);
    CHECK_EQ(is_readable(fd, 10000), 1);
    CHECK_EQ(OK(epoll_wait(set, &event, 1, 10000)), 1);
    CHECK_EQ(event.data.u32, 7);
    start(&two, p + PAGE, 0);
    wait_asleep(two.tid);
    wait_asleep(one.tid);
    CHECK_EQ(OK(read(fd, messages, sizeof messages)), 2 * sizeof *messages);
    CHECK_EQ(messages[0].arg.pagefault.address, (uintptr_t)p);
    CHECK_EQ(messages[1].arg.pagefault.address, (uintptr_t)p + PAGE);
    CHECK_EQ(is_readable(fd, 0), 0);
    ERR(read(fd, messages, sizeof messages), EAGAIN);
    OK(zero(fd, p, 2, 0));
    finish(&one);
    finish(&two);
    /* A descriptor that may wait cannot be polled. */
    struct pollfd entry = {blocking, POLLIN, 0};
    CHECK_EQ(OK(poll(&entry, 1, 0)), 1);
    CHECK_EQ(entry.revents, POLLERR);
}

TEST(several_wait_for_one_page) {
    enum { MANY = 6 };
    int fd = ready(O_NONBLOCK, 0);
    char *p = fresh(2);
    ENLIST(fd, p, 2);
    struct toucher all[MANY];
    for (int i = 0; i < MANY; i++)
        start(&all[i], p + 10 * i, i % 2);
    for (int i = 0; i < MANY; i++) {
        CHECK_EQ(is_readable(fd, 10000), 1);
        receive(fd, p);
    }
    OK(copy(fd, p, full_of('m'), 1, 0));
    for (int i = 0; i < MANY; i++)
        CHECK_EQ(finish(&all[i]), i % 2 ? 'w' : 'm');
    CHECK_EQ(is_readable(fd, 0), 0);
}

TEST(a_fault_that_is_over_is_told_to_nobody) {
    int fd = ready(O_NONBLOCK, 0);
    char *p = fresh(1);
    ENLIST(fd, p, 1);
    struct toucher one;
    start(&one, p, 0);
    CHECK_EQ(is_readable(fd, 10000), 1);
    OK(copy(fd, p, full_of('o'), 1, 0)); /* before its message is read */
    CHECK_EQ(finish(&one), 'o');
    CHECK_EQ(is_readable(fd, 0), 0);
    struct uffd_msg message;
    ERR(read(fd, &message, sizeof message), EAGAIN);
}

TEST(its_end_lets_all_go_on) {
    int fd = ready(0, 0);
    char *p = fresh(3);
    ENLIST(fd, p, 3);
    struct toucher one, two;
    start(&one, p, 0);
    receive(fd, p);
    start(&two, p + PAGE, 1);
    wait_asleep(two.tid);
    OK(close(fd));
    CHECK_EQ(finish(&one), 0);
    CHECK_EQ(finish(&two), 'w');
    CHECK_EQ(p[2 * PAGE], 0); /* not registered any more */
    int other = ready(0, 0);
    ENLIST(other, p, 3);
}

TEST(unregistering_lets_them_go_on) {
    int fd = ready(0, 0);
    char *p = fresh(4);
    ENLIST(fd, p, 4);
    struct toucher one, two;
    start(&one, p + PAGE, 0);
    receive(fd, p + PAGE);
    start(&two, p + 3 * PAGE, 0);
    receive(fd, p + 3 * PAGE);
    OK(delist(fd, p, 2));
    CHECK_EQ(finish(&one), 0);
    CHECK_EQ(p[0], 0);
    wait_asleep(two.tid);
    CHECK_EQ(two.done, 0); /* the rest stays */
    OK(copy(fd, p + 3 * PAGE, full_of('k'), 1, 0));
    CHECK_EQ(finish(&two), 'k');
    ERR(copy(fd, p, full_of('k'), 1, 0), ENOENT);
    OK(delist(fd, p, 4)); /* what is not registered is no error */
    ERR(delist(fd, p + 1, 1), EINVAL);
    ERR(delist(fd, p, 0), EINVAL);
    ERR(ioctl(fd, UFFDIO_UNREGISTER, BAD), EFAULT);
}

TEST(two_of_them_side_by_side) {
    int fd = ready(O_NONBLOCK, 0), other = ready(O_NONBLOCK, 0);
    char *p = fresh(4);
    ENLIST(fd, p, 2);
    ENLIST(other, p + 2 * PAGE, 2);
    OK(mprotect(p, 4 * PAGE, PROT_READ));
    OK(mprotect(p, 4 * PAGE, RW));
    struct toucher one, two;
    start(&one, p + PAGE, 0);
    CHECK_EQ(is_readable(fd, 10000), 1);
    CHECK_EQ(is_readable(other, 0), 0);
    start(&two, p + 2 * PAGE, 0);
    CHECK_EQ(is_readable(other, 10000), 1);
    receive(fd, p + PAGE);
    receive(other, p + 2 * PAGE);
    ERR(copy(fd, p + PAGE, full_of('1'), 2, 0), ENOENT); /* over both mappings */
    OK(copy(fd, p + PAGE, full_of('1'), 1, 0));
    OK(copy(other, p + 2 * PAGE, full_of('2'), 1, 0));
    CHECK_EQ(finish(&one), '1');
    CHECK_EQ(finish(&two), '2');
    OK(close(other));
    CHECK_EQ(p[3 * PAGE], 0);
    start(&one, p, 0);
    CHECK_EQ(is_readable(fd, 10000), 1); /* the first is as it was */
    receive(fd, p);
    OK(zero(fd, p, 1, 0));
    finish(&one);
}

TEST(a_child_has_plain_memory) {
    int fd = ready(O_NONBLOCK, 0);
    char *p = fresh(4);
    p[0] = 'a';
    ENLIST(fd, p, 4);
    IN_CHILD({
        CHECK_EQ(p[0], 'a');
        CHECK_EQ(p[PAGE], 0);
        p[2 * PAGE] = 'c';
        /* The descriptor is about the parent's memory. */
        OK(copy(fd, p + 3 * PAGE, full_of('f'), 1, 0));
        CHECK_EQ(p[3 * PAGE], 0);
        OK(close(fd));
    });
    CHECK_EQ(p[3 * PAGE], 'f');
    struct toucher one;
    start(&one, p + 2 * PAGE, 0);
    CHECK_EQ(is_readable(fd, 10000), 1);
    receive(fd, p + 2 * PAGE);
    OK(copy(fd, p + 2 * PAGE, full_of('p'), 1, 0));
    CHECK_EQ(finish(&one), 'p');
}

TEST(moved_memory_is_not_registered) {
    int fd = ready(O_NONBLOCK, 0);
    char *p = fresh(8), *to = fresh(8);
    ENLIST(fd, p, 4);
    OK(copy(fd, p, full_of('m'), 1, 0));
    CHECK_EQ(OK(mremap(p, 4 * PAGE, 4 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, to)), to);
    CHECK_EQ(to[0], 'm');
    CHECK_EQ(to[PAGE], 0);
    CHECK_EQ(is_readable(fd, 0), 0);
    ERR(copy(fd, to + 2 * PAGE, full_of('m'), 1, 0), ENOENT);
}

TEST(memory_that_grows_stays_registered) {
    int fd = ready(O_NONBLOCK, 0);
    char *p = fresh(8);
    OK(munmap(p + 2 * PAGE, 6 * PAGE));
    ENLIST(fd, p, 2);
    CHECK_EQ(OK(mremap(p, 2 * PAGE, 4 * PAGE, 0)), p);
    struct toucher one;
    start(&one, p + 3 * PAGE, 0);
    CHECK_EQ(is_readable(fd, 10000), 1);
    receive(fd, p + 3 * PAGE);
    OK(copy(fd, p + 2 * PAGE, full_of('g'), 1, 0));
    OK(zero(fd, p + 3 * PAGE, 1, 0));
    CHECK_EQ(finish(&one), 0);
    CHECK_EQ(p[2 * PAGE], 'g');
    /* A neighbour that is mapped later is its own. */
    CHECK_EQ(OK(mmap(p + 4 * PAGE, PAGE, RW, MAP_ANY | MAP_FIXED, -1, 0)), p + 4 * PAGE);
    CHECK_EQ(p[4 * PAGE], 0);
}

#ifndef MREMAP_DONTUNMAP
#define MREMAP_DONTUNMAP 4
#endif
TEST(memory_whose_pages_were_moved_misses_them) {
    int fd = ready(O_NONBLOCK, 0);
    char *p = fresh(2);
    memset(p, 'q', 2 * PAGE);
    ENLIST(fd, p, 2);
    char *to = OK(mremap(p, 2 * PAGE, 2 * PAGE, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, NULL));
    CHECK_EQ(to[PAGE], 'q');
    struct toucher one;
    start(&one, p + PAGE, 0);
    CHECK_EQ(is_readable(fd, 10000), 1);
    receive(fd, p + PAGE);
    OK(copy(fd, p + PAGE, full_of('e'), 1, 0));
    CHECK_EQ(finish(&one), 'e');
}

TEST(pages_given_up_are_missing_again) {
    int fd = ready(O_NONBLOCK, 0);
    char *p = fresh(2);
    memset(p, 'x', 2 * PAGE);
    ENLIST(fd, p, 2);
    OK(madvise(p, PAGE, MADV_DONTNEED));
    struct toucher one;
    start(&one, p, 0);
    CHECK_EQ(is_readable(fd, 10000), 1);
    receive(fd, p);
    OK(copy(fd, p, full_of('z'), 1, 0));
    CHECK_EQ(finish(&one), 'z');
    CHECK_EQ(p[PAGE], 'x');
    OK(madvise(p, 2 * PAGE, MADV_DONTNEED));
    OK(copy(fd, p, full_of('1'), 1, 0)); /* and can be filled again */
    OK(zero(fd, p + PAGE, 1, 0));
    CHECK(p[0] == '1' && p[PAGE] == 0);
}

/* A thread that has the kernel copy to memory. */
struct reader {
    pthread_t thread;
    _Atomic pid_t tid;
    int from;
    char *to;
    ssize_t got;
    int error;
    _Atomic int done;
};

static void *reads(void *arg) {
    struct reader *one = arg;
    one->tid = (pid_t)syscall(SYS_gettid);
    one->got = read(one->from, one->to, 8);
    one->error = errno;
    one->done = 1;
    return NULL;
}

TEST(the_kernel_waits_as_well) {
    int fd = ready(O_NONBLOCK, 0), way[2];
    char *p = fresh(1);
    ENLIST(fd, p, 1);
    OK(pipe(way));
    OK(write(way[1], "content", 8));
    struct reader one = {.from = way[0], .to = p + 16};
    ZERO(pthread_create(&one.thread, NULL, reads, &one));
    CHECK_EQ(is_readable(fd, 10000), 1);
    CHECK_EQ(receive(fd, p), UFFD_PAGEFAULT_FLAG_WRITE);
    CHECK_EQ(one.done, 0);
    OK(copy(fd, p, full_of('b'), 1, 0));
    ZERO(pthread_join(one.thread, NULL));
    CHECK_EQ(one.got, 8);
    CHECK_STR(p + 16, "content");
    CHECK_EQ(p[0], 'b');
}

TEST(the_kernel_does_not_wait_in_user_mode_only) {
    int fd = ready(UFFD_USER_MODE_ONLY | O_NONBLOCK, 0), way[2];
    char *p = fresh(2);
    ENLIST(fd, p, 2);
    OK(pipe(way));
    OK(write(way[1], "content", 8));
    ERR(read(way[0], p, 8), EFAULT);
    ERR(write(way[1], p, 8), EFAULT);
    CHECK_EQ(is_readable(fd, 0), 0);
    struct toucher one;
    start(&one, p, 0);
    CHECK_EQ(is_readable(fd, 10000), 1);
    receive(fd, p);
    OK(zero(fd, p, 1, 0));
    finish(&one);
    ERR(copy(fd, p + PAGE, p + PAGE, 1, 0), EFAULT); /* the source is missing itself */
}

static _Atomic int handled;
static void handler(int signal UNUSED) { handled++; }

TEST(a_signal_interrupts_the_wait) {
    int fd = ready(O_NONBLOCK, 0);
    char *p = fresh(1);
    ENLIST(fd, p, 1);
    struct sigaction action = {.sa_handler = handler};
    OK(sigaction(SIGUSR1, &action, NULL));
    struct toucher one;
    start(&one, p, 1);
    CHECK_EQ(is_readable(fd, 10000), 1);
    receive(fd, p);
    for (int round = 1; round <= 3; round++) {
        ZERO(pthread_kill(one.thread, SIGUSR1));
        EVENTUALLY(handled == round);
        CHECK_EQ(is_readable(fd, 10000), 1); /* the instruction again */
        receive(fd, p);
        CHECK_EQ(one.done, 0);
    }
    OK(copy(fd, p, full_of('s'), 1, 0));
    CHECK_EQ(finish(&one), 'w');
    CHECK_EQ(p[1], 's');
}

static void wait_for_kill(int kernel) {
    GATE(begun);
    pid_t pid = FORK();
    if (pid == 0) {
        int fd = ready(0, 0), way[2];
        char *p = fresh(1);
        ENLIST(fd, p, 1);
        OK(pipe(way));
        OK(write(way[1], "content", 8));
        gate_open(&begun);
        if (kernel)
            (void)!read(way[0], p, 8);
        else
            *(volatile char *)p = 1;
        _exit(9); /* not reached */
    }
    gate_pass(&begun);
    wait_asleep(pid);
    OK(kill(pid, SIGKILL));
    KILLED(pid, SIGKILL);
}

TEST(who_waits_can_be_killed) { wait_for_kill(0); }

TEST(a_call_that_waits_can_be_killed) { wait_for_kill(1); }

TEST(an_end_beside_a_waiter) {
    /* exit_group(2) and exec end threads that wait. */
    IN_CHILD({
        int fd = ready(0, 0);
        char *p = fresh(1);
        ENLIST(fd, p, 1);
        struct toucher one;
        start(&one, p, 0);
        receive(fd, p);
    });
    pid_t pid = FORK();
    if (pid == 0) {
        int fd = ready(0, 0);
        char *p = fresh(1);
        ENLIST(fd, p, 1);
        struct toucher one;
        start(&one, p, 0);
        receive(fd, p);
        execl(hy_self, hy_self, "--list", NULL);
        _exit(1);
    }
    int status = WAIT(pid);
    CHECK(WIFEXITED(status));
}

TEST(a_signal_instead) {
    int fd = ready(O_NONBLOCK, UFFD_FEATURE_SIGBUS), way[2];
    char *p = fresh(2);
    ENLIST(fd, p, 2);
    FAULTS(PEEK(p + 5), SIGBUS, BUS_ADRERR, p + 5);
    FAULTS(POKE(p + PAGE, 1), SIGBUS, BUS_ADRERR, p + PAGE);
    CHECK_EQ(is_readable(fd, 0), 0);
    OK(pipe(way));
    OK(write(way[1], "content", 8));
    ERR(read(way[0], p, 8), EFAULT);
    OK(copy(fd, p, full_of('i'), 1, 0));
    CHECK_EQ(p[5], 'i');
}

TEST(who_faulted) {
    int fd = ready(O_NONBLOCK, UFFD_FEATURE_THREAD_ID | UFFD_FEATURE_EXACT_ADDRESS);
    char *p = fresh(1);
    ENLIST(fd, p, 1);
    struct toucher one;
    start(&one, p + 1234, 0);
    CHECK_EQ(is_readable(fd, 10000), 1);
    struct uffd_msg message;
    CHECK_EQ(OK(read(fd, &message, sizeof message)), sizeof message);
    CHECK_EQ(message.arg.pagefault.feat.ptid, one.tid);
    CHECK_EQ(message.arg.pagefault.address, (uintptr_t)p + 1234);
    OK(zero(fd, p, 1, 0));
    finish(&one);
}

static void shared_memory(int memory, char *p, char *again) {
    int fd = ready(O_NONBLOCK, 0);
    p[0] = 'a';
    ENLIST(fd, p, 4);
    CHECK_EQ(p[0], 'a');
    struct toucher one;
    start(&one, p + PAGE, 0);
    CHECK_EQ(is_readable(fd, 10000), 1);
    CHECK_EQ(receive(fd, p + PAGE), 0);
    OK(copy(fd, p + PAGE, full_of('b'), 1, 0));
    CHECK_EQ(finish(&one), 'b');
    ERR(copy(fd, p + PAGE, full_of('c'), 1, 0), EEXIST);
    OK(zero(fd, p + 2 * PAGE, 1, 0));
    p[2 * PAGE + 1] = 'y';
    if (again) {
        CHECK_EQ(again[PAGE], 'b');
        CHECK_EQ(again[2 * PAGE + 1], 'y');
        /* A page that somebody else made is not missing here. */
        again[3 * PAGE] = 't';
        CHECK_EQ(p[3 * PAGE], 't');
        CHECK_EQ(is_readable(fd, 0), 0);
    }
    if (memory != -1) {
        char found[2];
        CHECK_EQ(OK(pread(memory, found, 2, (off_t)(2 * PAGE - 1))), 2);
        CHECK(found[0] == 'b' && found[1] == 0);
        OK(fallocate(memory, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)PAGE, (off_t)PAGE));
        start(&one, p + PAGE, 1);
        CHECK_EQ(is_readable(fd, 10000), 1);
        receive(fd, p + PAGE);
        OK(copy(fd, p + PAGE, full_of('h'), 1, 0));
        CHECK_EQ(finish(&one), 'w');
        CHECK_EQ(OK(pread(memory, found, 2, (off_t)PAGE)), 2);
        CHECK(found[0] == 'w' && found[1] == 'h');
        /* Behind the end there is nothing. */
        OK(ftruncate(memory, (off_t)(2 * PAGE)));
        ERR(copy(fd, p + 3 * PAGE, full_of('h'), 1, 0), EFAULT);
        FAULTS(PEEK(p + 3 * PAGE), SIGBUS, BUS_ADRERR, p + 3 * PAGE);
        CHECK_EQ(is_readable(fd, 0), 0);
    }
}

TEST(shared_memory_of_a_memfd) {
    int memory = OK((int)syscall(SYS_memfd_create, "m", 0));
    OK(ftruncate(memory, (off_t)(4 * PAGE)));
    char *p = OK(mmap(NULL, 4 * PAGE, RW, MAP_SHARED, memory, 0));
    shared_memory(memory, p, OK(mmap(NULL, 4 * PAGE, RW, MAP_SHARED, memory, 0)));
}

TEST(shared_memory_without_a_name) { shared_memory(-1, SHARED(4 * PAGE), NULL); }

TEST(private_memory_of_a_memfd) {
    int memory = OK((int)syscall(SYS_memfd_create, "m", 0)), fd = ready(O_NONBLOCK, 0);
    OK(ftruncate(memory, (off_t)(4 * PAGE)));
    OK(pwrite(memory, "there", 5, 0));
    char *p = OK(mmap(NULL, 5 * PAGE, RW, MAP_PRIVATE, memory, 0)), found = 'x';
    ENLIST(fd, p, 5);
    CHECK_STR(p, "there");
    p[0] = 'T';
    struct toucher one;
    start(&one, p + PAGE, 0);
    CHECK_EQ(is_readable(fd, 10000), 1);
    receive(fd, p + PAGE);
    OK(copy(fd, p + PAGE, full_of('v'), 1, 0));
    CHECK_EQ(finish(&one), 'v');
    OK(zero(fd, p + 2 * PAGE, 1, 0));
    CHECK_EQ(p[2 * PAGE], 0);
    OK(pread(memory, &found, 1, (off_t)PAGE));
    CHECK_EQ(found, 0); /* the file has none of it */
    ERR(copy(fd, p + 4 * PAGE, full_of('v'), 1, 0), EFAULT);
    ERR(copy(fd, p + PAGE, full_of('v'), 1, 0), EEXIST);
}

TEST(calls_that_bring_pages_in_wait) {
    int fd = ready(O_NONBLOCK, 0);
    char *p = fresh(2);
    ENLIST(fd, p, 2);
    GATE(done);
    pthread_t thread;
    struct locker { char *at; struct gate *done; } both = {p, &done};
    void *locks(void *arg) {
        struct locker *one = arg;
        OK(mlock(one->at, 2 * PAGE));
        gate_open(one->done);
        return NULL;
    }
    ZERO(pthread_create(&thread, NULL, locks, &both));
    CHECK_EQ(is_readable(fd, 10000), 1);
    receive(fd, p);
    OK(copy(fd, p, full_of('1'), 1, 0));
    CHECK_EQ(is_readable(fd, 10000), 1);
    receive(fd, p + PAGE);
    OK(copy(fd, p + PAGE, full_of('2'), 1, 0));
    gate_pass(&done);
    ZERO(pthread_join(thread, NULL));
    CHECK(p[0] == '1' && p[PAGE] == '2');
}

TEST(another_process_reads_it) {
    int fd = ready(O_NONBLOCK, 0);
    char *p = fresh(3);
    ENLIST(fd, p, 3);
    pid_t me = getpid();
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
    /* A debugger is not kept waiting, and makes no page. */
    char path[64], found = 'x';
    snprintf(path, sizeof path, "/proc/%d/mem", me);
    int memory = OK(open(path, O_RDWR));
    ERR(pread(memory, &found, 1, (off_t)(uintptr_t)p), EIO);
    ERR(pwrite(memory, &found, 1, (off_t)(uintptr_t)p), EIO);
    OK(mprotect(p, PAGE, PROT_READ));
    ERR(pwrite(memory, &found, 1, (off_t)(uintptr_t)p), EIO);
    OK(mprotect(p, PAGE, RW));
    CHECK_EQ(is_readable(fd, 0), 0);
    OK(copy(fd, p, full_of('a'), 1, 0));
    CHECK_EQ(OK(pread(memory, &found, 1, (off_t)(uintptr_t)p)), 1);
    CHECK_EQ(found, 'a');
    /* process_vm_readv(2) waits. */
    pid_t pid = FORK();
    if (pid == 0) {
        char got[4];
        struct iovec here = {got, 4}, there = {p + PAGE, 4};
        if (syscall(SYS_process_vm_readv, me, &here, 1, &there, 1, 0) != 4) {
            if (errno == EPERM || errno == ENOSYS) _exit(0);
            FAIL("process_vm_readv: %s", strerror(errno));
        }
        CHECK(!memcmp(got, "bbbb", 4));
        _exit(0);
    }
    CHECK_EQ(is_readable(fd, 10000), 1);
    receive(fd, p + PAGE);
    OK(copy(fd, p + PAGE, full_of('b'), 1, 0));
    EXITS(pid, 0);
}

/* In another process: the memory of the one that made it is gone. */
static int pass(int way, int fd) {
    char control[CMSG_SPACE(sizeof(int))] = {0}, byte = 0;
    struct iovec piece = {&byte, 1};
    struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1, .msg_control = control,
                             .msg_controllen = sizeof control};
    if (fd == -1) {
        CHECK_EQ(OK(recvmsg(way, &message, 0)), 1);
        memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof fd);
        return fd;
    }
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    *head = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof fd), .cmsg_level = SOL_SOCKET,
                             .cmsg_type = SCM_RIGHTS};
    memcpy(CMSG_DATA(head), &fd, sizeof fd);
    CHECK_EQ(OK(sendmsg(way, &message, 0)), 1);
    return fd;
}

TEST(memory_that_is_gone) {
    int way[2];
    OK(socketpair(AF_UNIX, SOCK_STREAM, 0, way));
    char *p = fresh(2);
    GATE(end);
    pid_t pid = FORK();
    if (pid == 0) {
        int fd = ready(O_NONBLOCK, 0);
        ENLIST(fd, p, 2);
        pass(way[1], fd);
        gate_pass(&end);
        _exit(0);
    }
    int fd = pass(way[0], -1);
    OK(copy(fd, p, full_of('x'), 1, 0)); /* into the child */
    CHECK_EQ(p[0], 0);
    gate_open(&end);
    EXITS(pid, 0);
    ERR(copy(fd, p + PAGE, full_of('x'), 1, 0), ESRCH);
    CHECK_EQ(copied, -77);
    ERR(zero(fd, p + PAGE, 1, 0), ESRCH);
    ERR(enlist(fd, p, 1, UFFDIO_REGISTER_MODE_MISSING), ENOMEM);
    ERR(delist(fd, p, 1), ENOMEM);
    OK(wake(fd, p, 1));
}

HELPER(after_exec) {
    int fd = atoi(argv[1]);
    char *p = fresh(1);
    ERR(copy(fd, p, full_of('x'), 1, 0), ESRCH);
    ERR(enlist(fd, p, 1, UFFDIO_REGISTER_MODE_MISSING), ENOMEM);
    CHECK_EQ(p[0], 0);
    return argc == 2 ? 0 : 1;
}

TEST(exec_leaves_it_without_memory) {
    pid_t pid = FORK();
    if (pid == 0) {
        int fd = ready(0, 0);
        char *p = fresh(1), number[16];
        ENLIST(fd, p, 1);
        snprintf(number, sizeof number, "%d", fd);
        execl(hy_self, hy_self, "--helper", "after_exec", number, NULL);
        _exit(99);
    }
    EXITS(pid, 0);
}

TEST(large_memory_is_not_filled_in) {
    /* Where large pages come by themselves, a missing page stays missing. */
    enum { PAGES = 2048 };
    int fd = ready(O_NONBLOCK, 0);
    char *p = fresh(PAGES);
    madvise(p, PAGES * PAGE, MADV_HUGEPAGE);
    ENLIST(fd, p, PAGES);
    for (size_t i = 0; i < PAGES; i++)
        if (i % 7 != 3)
            OK(copy(fd, p + i * PAGE, full_of((int)(i % 50) + 1), 1, 0));
    for (size_t i = 0; i < PAGES; i++)
        if (i % 7 != 3) {
            CHECK_EQ(p[i * PAGE + 7], i % 50 + 1);
            p[i * PAGE] = 'w';
        }
    struct toucher one;
    for (size_t i = 3; i < PAGES; i += 7 * 40) {
        start(&one, p + i * PAGE, 1);
        CHECK_EQ(is_readable(fd, 10000), 1);
        receive(fd, p + i * PAGE);
        OK(zero(fd, p + i * PAGE, 1, 0));
        CHECK_EQ(finish(&one), 'w');
    }
}

TEST(beside_memory_that_somebody_left) {
    /* Two in one range of a large page; one of them ends, and its part is filled. */
    enum { PAGES = 1024, HALF = 256 };
    char *all = fresh(PAGES), *p = (char *)(((uintptr_t)all + 512 * PAGE - 1) & -(512 * PAGE));
    int fd = ready(O_NONBLOCK, 0), other = ready(O_NONBLOCK, 0);
    ENLIST(other, p, HALF);
    ENLIST(fd, p + HALF * PAGE, HALF);
    OK(close(other));
    for (size_t i = 0; i < HALF; i++)
        p[i * PAGE] = 'w';
    struct toucher one;
    for (size_t i = HALF + 15; i < 2 * HALF; i += 80) {
        start(&one, p + i * PAGE, 1);
        CHECK_EQ(is_readable(fd, 10000), 1);
        receive(fd, p + i * PAGE);
        OK(copy(fd, p + i * PAGE, full_of('l'), 1, 0));
        CHECK_EQ(finish(&one), 'w');
    }
    other = ready(O_NONBLOCK, 0);
    ENLIST(other, p, HALF);
    ERR(enlist(other, p, HALF + 1, UFFDIO_REGISTER_MODE_MISSING), EBUSY);
    OK(delist(fd, p + HALF * PAGE, HALF));
    CHECK_EQ(p[(HALF + 1) * PAGE], 0);
    ENLIST(other, p, 2 * HALF);
}

TEST(what_procfs_tells) {
    int fd = ready(O_NONBLOCK, UFFD_FEATURE_SIGBUS);
    char path[64], text[512], wanted[64];
    snprintf(path, sizeof path, "/proc/self/fdinfo/%d", fd);
    CHECK(get_file(path, text, sizeof text) > 0);
    CHECK(strstr(text, "pending:\t0\ntotal:\t0\nAPI:\taa:"));
    int other = ready(O_NONBLOCK, 0);
    char *p = fresh(2);
    ENLIST(other, p, 2);
    struct toucher one, two;
    start(&one, p, 0);
    CHECK_EQ(is_readable(other, 10000), 1);
    receive(other, p);
    start(&two, p + PAGE, 0);
    CHECK_EQ(is_readable(other, 10000), 1);
    snprintf(path, sizeof path, "/proc/self/fdinfo/%d", other);
    CHECK(get_file(path, text, sizeof text) > 0);
    CHECK(strstr(text, "pending:\t1\ntotal:\t2\n"));
    OK(zero(other, p, 2, 0));
    finish(&one);
    finish(&two);
    static char maps[1 << 18];
    CHECK(get_file("/proc/self/smaps", maps, sizeof maps) > 0);
    snprintf(wanted, sizeof wanted, "\n%lx-", (unsigned long)p);
    char *here = strstr(maps, wanted);
    CHECK(here);
    here = strstr(here, "VmFlags:");
    CHECK(here);
    *strchrnul(here, '\n') = 0;
    CHECK(strstr(here, " um"));
}

/* A thread that provides pages until the descriptor is at its end. */
struct provider {
    int fd, stop;
    char *base;
    _Atomic int provided;
};

static void *provide(void *arg) {
    struct provider *one = arg;
    char *page = OK(aligned_alloc(PAGE, PAGE));
    struct pollfd both[2] = {{one->fd, POLLIN, 0}, {one->stop, POLLIN, 0}};
    for (;;) {
        OK(poll(both, 2, -1));
        if (both[1].revents) return NULL;
        struct uffd_msg message;
        if (read(one->fd, &message, sizeof message) == -1) {
            CHECK_EQ(errno, EAGAIN);
            continue;
        }
        uintptr_t at = message.arg.pagefault.address;
        memset(page, 1 + (int)((at - (uintptr_t)one->base) / PAGE % 100), PAGE);
        if (copy(one->fd, (void *)at, page, 1, 0) == 0)
            one->provided++;
        else {
            CHECK_EQ(errno, EEXIST);
            OK(wake(one->fd, (void *)at, 1));
        }
    }
}

struct walker {
    pthread_t thread;
    char *base;
    int part; /* of three: the pages that it is sure to touch */
    unsigned seed;
};
enum { WALKED = 600 };

static void *walk(void *arg) {
    struct walker *one = arg;
    for (int i = 0; i < WALKED; i++) {
        one->seed = one->seed * 1103515245 + 12345;
        size_t page = i % 3 == one->part ? (size_t)i : (one->seed >> 16) % WALKED;
        char *at = one->base + page * PAGE;
        CHECK_EQ(at[one->seed % PAGE], 1 + page % 100);
    }
    return NULL;
}

TEST_TIMES(many_faults_of_many_threads, 3) {
    int fd = ready(O_NONBLOCK, 0);
    char *p = fresh(WALKED);
    ENLIST(fd, p, WALKED);
    GATE(stop);
    struct provider providers[2];
    pthread_t serving[2];
    for (int i = 0; i < 2; i++) {
        providers[i] = (struct provider){fd, stop.fd[0], p, 0};
        ZERO(pthread_create(&serving[i], NULL, provide, &providers[i]));
    }
    struct walker walkers[4];
    for (int i = 0; i < 4; i++) {
        walkers[i] = (struct walker){.base = p, .part = i % 3, .seed = (unsigned)i * 77};
        ZERO(pthread_create(&walkers[i].thread, NULL, walk, &walkers[i]));
    }
    for (int i = 0; i < 4; i++)
        ZERO(pthread_join(walkers[i].thread, NULL));
    gate_open(&stop);
    for (int i = 0; i < 2; i++)
        ZERO(pthread_join(serving[i], NULL));
    CHECK_EQ(providers[0].provided + providers[1].provided, WALKED);
}
