/* Asynchronous input and output: contexts, requests, events, and the ring that a library reads itself
 * (io_setup(2), io_submit(2), io_getevents(2), io_cancel(2), io_destroy(2)). */
#define AREA "aio"
#include "harness.h"
#include <linux/aio_abi.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/uio.h>

/* Where a library finds the events (fs/aio.c); the events follow the header. */
struct ring {
    uint32_t id, places, head, tail, magic, compatible, incompatible, header_length;
};

static long setup(unsigned events, aio_context_t *id) {
    return syscall(SYS_io_setup, events, id);
}

static long destroy(aio_context_t id) {
    return syscall(SYS_io_destroy, id);
}

static long submit(aio_context_t id, long count, struct iocb **requests) {
    return syscall(SYS_io_submit, id, count, requests);
}

static long getevents(aio_context_t id, long least, long most, void *to, const void *timeout) {
    return syscall(SYS_io_getevents, id, least, most, to, timeout);
}

/* At least one event, and at most `most`. */
static long pgetevents(aio_context_t id, long most, void *to, const void *timeout, void *mask) {
    return syscall(SYS_io_pgetevents, id, 1, most, to, timeout, mask);
}

static long cancel(aio_context_t id, struct iocb *request) {
    struct io_event event;
    return syscall(SYS_io_cancel, id, request, &event);
}

static const struct timespec at_once = {0, 0};

/* A request; everything that is not named is 0. */
#define REQUEST(...) (struct iocb){__VA_ARGS__}
#define ADDRESS(of) ((uint64_t)(uintptr_t)(of))

static long submit_one(aio_context_t id, struct iocb *request) {
    return submit(id, 1, &request);
}

static aio_context_t context(unsigned events) {
    aio_context_t id = 0;
    ZERO(setup(events, &id));
    CHECK(id != 0);
    return id;
}

/* The next event, which comes within two seconds. */
static struct io_event next(aio_context_t id) {
    struct io_event event = {0};
    struct timespec soon = {2, 0};
    CHECK_EQ(getevents(id, 1, 1, &event, &soon), 1);
    return event;
}

static long number(const char *path) {
    char text[32] = {0};
    int fd = OK(open(path, O_RDONLY));
    OK(read(fd, text, sizeof text - 1));
    close(fd);
    return atol(text);
}

TEST(a_context_is_made_and_destroyed) {
    aio_context_t id = 0;
    ERR(setup(0, &id), EINVAL);
    ERR(setup(UINT_MAX, &id), EINVAL);
    ERR(setup(1, BAD), EFAULT);
    id = 1;
    ERR(setup(1, &id), EINVAL);
    id = 0;
    ERR(setup((unsigned)number("/proc/sys/fs/aio-max-nr") + 1, &id), EAGAIN);
    CHECK_EQ(id, 0);
    ZERO(setup(16, &id));
    CHECK(number("/proc/sys/fs/aio-nr") >= 16);
    aio_context_t other = context(1);
    CHECK(other != id);
    ZERO(destroy(id));
    ERR(destroy(id), EINVAL);
    ERR(destroy(0), EINVAL);
    ERR(destroy(ADDRESS(&id)), EINVAL);
    ERR(destroy(~0ul), EINVAL);
    ERR(destroy(other + PAGE), EINVAL);
    ZERO(destroy(other));
}

TEST(files_are_written_and_read_at_offsets) {
    aio_context_t id = context(8);
    int fd = OK(open("file", O_RDWR | O_CREAT, 0600));
    struct iocb write = REQUEST(.aio_data = 7, .aio_lio_opcode = IOCB_CMD_PWRITE,
                                .aio_fildes = (unsigned)fd, .aio_buf = ADDRESS("0123456789"),
                                .aio_nbytes = 10, .aio_offset = 2);
    CHECK_EQ(submit_one(id, &write), 1);
    struct io_event event = next(id);
    CHECK_EQ(event.data, 7);
    CHECK_EQ(event.obj, ADDRESS(&write));
    CHECK_EQ(event.res, 10);
    CHECK_EQ(event.res2, 0);
    char text[32] = {0};
    struct iocb read = REQUEST(.aio_data = 8, .aio_lio_opcode = IOCB_CMD_PREAD,
                               .aio_fildes = (unsigned)fd, .aio_buf = ADDRESS(text),
                               .aio_nbytes = sizeof text, .aio_offset = 4);
    CHECK_EQ(submit_one(id, &read), 1);
    event = next(id);
    CHECK_EQ(event.data, 8);
    CHECK_EQ(event.res, 8);
    CHECK_STR(text, "23456789");
    CHECK_EQ(lseek(fd, 0, SEEK_CUR), 0);

    char left[4] = {0}, right[16] = {0};
    struct iovec pieces[2] = {{left, 3}, {right, 15}};
    struct iocb scatter = REQUEST(.aio_lio_opcode = IOCB_CMD_PREADV, .aio_fildes = (unsigned)fd,
                                  .aio_buf = ADDRESS(pieces), .aio_nbytes = 2, .aio_offset = 2);
    CHECK_EQ(submit_one(id, &scatter), 1);
    CHECK_EQ(next(id).res, 10);
    CHECK_STR(left, "012");
    CHECK_STR(right, "3456789");

    struct iovec both[2] = {{"AB", 2}, {"CD", 2}};
    struct iocb gather = REQUEST(.aio_lio_opcode = IOCB_CMD_PWRITEV, .aio_fildes = (unsigned)fd,
                                 .aio_buf = ADDRESS(both), .aio_nbytes = 2, .aio_offset = 100);
    CHECK_EQ(submit_one(id, &gather), 1);
    CHECK_EQ(next(id).res, 4);
    struct stat st;
    ZERO(fstat(fd, &st));
    CHECK_EQ(st.st_size, 104);

    struct iocb append = gather;
    append.aio_offset = 0;
    append.aio_rw_flags = RWF_APPEND;
    CHECK_EQ(submit_one(id, &append), 1);
    CHECK_EQ(next(id).res, 4);
    ZERO(fstat(fd, &st));
    CHECK_EQ(st.st_size, 108);
    ZERO(destroy(id));
}

TEST(several_are_submitted_at_once_up_to_the_first_that_is_wrong) {
    aio_context_t id = context(8);
    int fd = OK(open("file", O_RDWR | O_CREAT, 0600));
    struct iocb good[3], wrong = {0}, *list[5];
    for (int i = 0; i < 3; i++) {
        good[i] = REQUEST(.aio_data = (unsigned)i, .aio_lio_opcode = IOCB_CMD_PWRITE,
                          .aio_fildes = (unsigned)fd, .aio_buf = ADDRESS("x"), .aio_nbytes = 1,
                          .aio_offset = i, .aio_key = 99);
        list[i] = &good[i];
    }
    wrong.aio_fildes = 9999;
    list[3] = &wrong;
    list[4] = &good[0];
    CHECK_EQ(submit(id, 5, list), 3);
    CHECK_EQ(good[0].aio_key, 0);
    struct io_event events[8];
    CHECK_EQ(getevents(id, 0, 2, events, NULL), 2);
    CHECK_EQ(events[0].data, 0);
    CHECK_EQ(events[1].data, 1);
    CHECK_EQ(getevents(id, 1, 8, events, NULL), 1);
    CHECK_EQ(events[0].data, 2);
    CHECK_EQ(getevents(id, 0, 8, events, NULL), 0);
    CHECK_EQ(getevents(id, 0, 0, events, NULL), 0);
    ZERO(submit(id, 0, NULL));
    ERR(submit(id, 2, list + 3), EBADF);
    ERR(submit(id, -1, list), EINVAL);
    ERR(submit(0, 1, list), EINVAL);
    ERR(submit(id, 1, (struct iocb **)BAD), EFAULT);
    struct iocb *nowhere = BAD;
    ERR(submit(id, 1, &nowhere), EFAULT);
    list[1] = BAD;
    CHECK_EQ(submit(id, 2, list), 1);
    ZERO(destroy(id));
}

TEST(wrong_requests_are_refused) {
    aio_context_t id = context(8);
    int fd = OK(open("file", O_RDWR | O_CREAT, 0600));
    char text[8] = "1234567";
    const struct iocb good =
        REQUEST(.aio_lio_opcode = IOCB_CMD_PREAD, .aio_fildes = (unsigned)fd,
                .aio_buf = ADDRESS(text), .aio_nbytes = sizeof text);
    struct iocb one;
#define WRONG(error, ...)                                                                          \
    do {                                                                                           \
        one = good;                                                                                \
        __VA_ARGS__;                                                                               \
        ERR(submit_one(id, &one), error);                                                          \
    } while (0)
    WRONG(EINVAL, one.aio_reserved2 = 1);
    WRONG(EINVAL, one.aio_nbytes = ~0ull);
    WRONG(EINVAL, one.aio_lio_opcode = 4);
    WRONG(EINVAL, one.aio_lio_opcode = 6);
    WRONG(EINVAL, one.aio_lio_opcode = 999);
    WRONG(EINVAL, one.aio_offset = -1);
    WRONG(EBADF, one.aio_fildes = ~0u);
    WRONG(EOPNOTSUPP, one.aio_rw_flags = 0x4000);
    WRONG(EINVAL, one.aio_flags = IOCB_FLAG_RESFD; one.aio_resfd = (unsigned)fd);
    WRONG(EBADF, one.aio_flags = IOCB_FLAG_RESFD; one.aio_resfd = 9999);
    WRONG(EINVAL, one.aio_flags = IOCB_FLAG_IOPRIO; one.aio_reqprio = 4 << 13);
    WRONG(EINVAL, one.aio_flags = IOCB_FLAG_IOPRIO; one.aio_reqprio = 1);
    WRONG(EINVAL, one.aio_lio_opcode = IOCB_CMD_PREADV; one.aio_nbytes = UIO_MAXIOV + 1);
    WRONG(EFAULT, one.aio_lio_opcode = IOCB_CMD_PREADV; one.aio_buf = ADDRESS(BAD);
          one.aio_nbytes = 1);
    WRONG(EINVAL, one.aio_lio_opcode = IOCB_CMD_FSYNC);
    WRONG(EINVAL, one.aio_lio_opcode = IOCB_CMD_POLL; one.aio_buf = 1);
    WRONG(EINVAL, one.aio_lio_opcode = IOCB_CMD_POLL; one.aio_buf = 0x10000; one.aio_nbytes = 0);
    int reader = OK(open("file", O_RDONLY)), writer = OK(open("file", O_WRONLY));
    int folder = OK(open(".", O_RDONLY)), path = OK(open("file", O_PATH));
    WRONG(EBADF, one.aio_fildes = (unsigned)writer);
    WRONG(EBADF, one.aio_fildes = (unsigned)reader; one.aio_lio_opcode = IOCB_CMD_PWRITE);
    WRONG(EINVAL, one.aio_fildes = (unsigned)folder);
    WRONG(EBADF, one.aio_fildes = (unsigned)path);
    int ends[2];
    ZERO(pipe(ends));
    WRONG(EINVAL, one = REQUEST(.aio_lio_opcode = IOCB_CMD_FSYNC, .aio_fildes = (unsigned)ends[0]));
    /* A request that cannot be marked as one. */
    struct iocb *fixed = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    *fixed = good;
    ZERO(mprotect(fixed, PAGE, PROT_READ));
    ERR(submit_one(id, fixed), EFAULT);
    /* None of them took a place or left an event. */
    struct io_event event;
    CHECK_EQ(getevents(id, 0, 1, &event, NULL), 0);
    one = good;
    one.aio_flags = IOCB_FLAG_IOPRIO;
    one.aio_reqprio = 3 << 13;
    CHECK_EQ(submit_one(id, &one), 1);
    CHECK_EQ(next(id).res, 0);
    ZERO(destroy(id));
}

TEST(a_request_that_fails_has_an_event_that_says_so) {
    aio_context_t id = context(8);
    int fd = OK(open("file", O_RDWR | O_CREAT, 0600));
    CHECK_EQ(write(fd, "content", 7), 7);
    struct iocb read = REQUEST(.aio_lio_opcode = IOCB_CMD_PREAD, .aio_fildes = (unsigned)fd,
                               .aio_buf = ADDRESS(BAD), .aio_nbytes = 4);
    CHECK_EQ(submit_one(id, &read), 1);
    CHECK_EQ(next(id).res, -EFAULT);
    int ends[2];
    ZERO(pipe2(ends, O_NONBLOCK));
    char text[8];
    read = REQUEST(.aio_lio_opcode = IOCB_CMD_PREAD, .aio_fildes = (unsigned)ends[0],
                   .aio_buf = ADDRESS(text), .aio_nbytes = sizeof text);
    CHECK_EQ(submit_one(id, &read), 1);
    CHECK_EQ(next(id).res, -EAGAIN);
    CHECK_EQ(write(ends[1], "abc", 3), 3);
    read.aio_offset = 1000; /* A stream has no offsets. */
    CHECK_EQ(submit_one(id, &read), 1);
    CHECK_EQ(next(id).res, 3);
    CHECK(memcmp(text, "abc", 3) == 0);
    ZERO(destroy(id));
}

TEST(content_is_made_to_last) {
    aio_context_t id = context(4);
    int fd = OK(open("file", O_RDWR | O_CREAT, 0600));
    for (int command = IOCB_CMD_FSYNC; command <= IOCB_CMD_FDSYNC; command++) {
        struct iocb sync = REQUEST(.aio_data = 5, .aio_lio_opcode = (unsigned short)command,
                                   .aio_fildes = (unsigned)fd);
        CHECK_EQ(submit_one(id, &sync), 1);
        struct io_event event = next(id);
        CHECK_EQ(event.res, 0);
        CHECK_EQ(event.data, 5);
    }
    ZERO(destroy(id));
}

TEST(an_eventfd_counts_events) {
    aio_context_t id = context(8);
    int fd = OK(open("file", O_RDWR | O_CREAT, 0600)), counter = OK(eventfd(0, EFD_NONBLOCK));
    struct iocb one = REQUEST(.aio_lio_opcode = IOCB_CMD_PWRITE, .aio_fildes = (unsigned)fd,
                              .aio_buf = ADDRESS("x"), .aio_nbytes = 1,
                              .aio_flags = IOCB_FLAG_RESFD, .aio_resfd = (unsigned)counter);
    struct iocb *list[3] = {&one, &one, &one};
    CHECK_EQ(submit(id, 3, list), 3);
    uint64_t count = 0;
    CHECK_EQ(read(counter, &count, 8), 8);
    CHECK_EQ(count, 3);
    ERR(read(counter, &count, 8), EAGAIN);
    struct io_event events[3];
    CHECK_EQ(getevents(id, 3, 3, events, NULL), 3);
    ZERO(destroy(id));
}

TEST(a_file_is_waited_for) {
    aio_context_t id = context(8);
    int ends[2];
    ZERO(pipe(ends));
    int counter = OK(eventfd(0, EFD_NONBLOCK));
    struct iocb wait = REQUEST(.aio_data = 3, .aio_lio_opcode = IOCB_CMD_POLL,
                               .aio_fildes = (unsigned)ends[0], .aio_buf = POLLIN,
                               .aio_flags = IOCB_FLAG_RESFD, .aio_resfd = (unsigned)counter);
    CHECK_EQ(submit_one(id, &wait), 1);
    struct io_event event;
    CHECK_EQ(getevents(id, 0, 1, &event, NULL), 0);
    CHECK_EQ(write(ends[1], "x", 1), 1);
    event = next(id);
    CHECK_EQ(event.data, 3);
    CHECK(event.res & POLLIN);
    uint64_t count = 0;
    struct pollfd told = {counter, POLLIN, 0};
    CHECK_EQ(poll(&told, 1, 2000), 1);
    CHECK_EQ(read(counter, &count, 8), 8);
    CHECK_EQ(count, 1);
    /* It is ready already. */
    CHECK_EQ(submit_one(id, &wait), 1);
    CHECK(next(id).res & POLLIN);
    /* Errors and hang-ups are told unasked. */
    char text[4];
    CHECK_EQ(read(ends[0], text, 4), 1);
    wait.aio_buf = 0;
    CHECK_EQ(submit_one(id, &wait), 1);
    close(ends[1]);
    CHECK(next(id).res & POLLHUP);
    /* A file that is always ready. */
    int fd = OK(open("file", O_RDWR | O_CREAT, 0600));
    wait = REQUEST(.aio_lio_opcode = IOCB_CMD_POLL, .aio_fildes = (unsigned)fd,
                   .aio_buf = POLLIN | POLLOUT);
    CHECK_EQ(submit_one(id, &wait), 1);
    CHECK_EQ(next(id).res & (POLLIN | POLLOUT), POLLIN | POLLOUT);
    ZERO(destroy(id));
}

TEST(a_file_that_was_closed_is_waited_for) {
    aio_context_t id = context(8);
    int pair[2];
    ZERO(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
    struct iocb wait = REQUEST(.aio_lio_opcode = IOCB_CMD_POLL, .aio_fildes = (unsigned)pair[0],
                               .aio_buf = POLLIN);
    CHECK_EQ(submit_one(id, &wait), 1);
    close(pair[0]);
    CHECK_EQ(write(pair[1], "x", 1), 1); /* The request keeps it open. */
    CHECK(next(id).res & POLLIN);
    ERR(send(pair[1], "x", 1, MSG_NOSIGNAL), EPIPE);
    ZERO(destroy(id));
}

TEST(a_request_that_waits_is_cancelled) {
    aio_context_t id = context(8);
    int ends[2];
    ZERO(pipe(ends));
    struct iocb wait = REQUEST(.aio_data = 4, .aio_lio_opcode = IOCB_CMD_POLL,
                               .aio_fildes = (unsigned)ends[0], .aio_buf = POLLIN);
    ERR(cancel(id, &wait), EINVAL);
    CHECK_EQ(submit_one(id, &wait), 1);
    wait.aio_key = 1;
    ERR(cancel(id, &wait), EINVAL);
    wait.aio_key = 0;
    ERR(cancel(id, BAD), EFAULT);
    ERR(cancel(0, &wait), EINVAL);
    ERR(cancel(id, &wait), EINPROGRESS);
    struct io_event event = next(id);
    CHECK_EQ(event.data, 4);
    CHECK_EQ(event.res, 0);
    ERR(cancel(id, &wait), EINVAL);
    CHECK_EQ(write(ends[1], "x", 1), 1);
    CHECK_EQ(getevents(id, 0, 1, &event, NULL), 0);
    ZERO(destroy(id));
}

TEST(waiting_for_events_ends) {
    aio_context_t id = context(8);
    struct io_event events[2];
    int64_t start = now_ns(CLOCK_MONOTONIC);
    struct timespec short_time = {0, 50 * 1000 * 1000};
    CHECK_EQ(getevents(id, 1, 2, events, &short_time), 0);
    CHECK(now_ns(CLOCK_MONOTONIC) - start >= 50 * MS);
    CHECK_EQ(getevents(id, 1, 1, events, &at_once), 0);
    ERR(getevents(id, 2, 1, events, &at_once), EINVAL);
    ERR(getevents(id, -1, 1, events, &at_once), EINVAL);
    ERR(getevents(0, 1, 1, events, &at_once), EINVAL);
    ERR(getevents(id, 1, 1, events, BAD), EFAULT);
    int fd = OK(open("file", O_RDWR | O_CREAT, 0600));
    struct iocb one = REQUEST(.aio_lio_opcode = IOCB_CMD_PWRITE, .aio_fildes = (unsigned)fd,
                              .aio_buf = ADDRESS("x"), .aio_nbytes = 1);
    CHECK_EQ(submit_one(id, &one), 1);
    ERR(getevents(id, 1, 1, BAD, NULL), EFAULT);
    CHECK_EQ(getevents(id, 2, 2, events, &short_time), 1);
    ZERO(destroy(id));
    ERR(getevents(id, 0, 1, events, &at_once), EINVAL);
}

static void nothing(int signal) {
    (void)signal;
}

TEST(signals_interrupt_waiting) {
    aio_context_t id = context(8);
    struct io_event event;
    struct sigaction action = {.sa_handler = nothing, .sa_flags = SA_RESTART};
    ZERO(sigaction(SIGALRM, &action, NULL));
    struct itimerval soon = {{0, 0}, {0, 50 * 1000}};
    ZERO(setitimer(ITIMER_REAL, &soon, NULL));
    ERR(getevents(id, 1, 1, &event, NULL), EINTR);

    /* With a mask of its own the wait lets the signal in that is blocked before and after. */
    sigset_t blocked, none;
    sigemptyset(&none);
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGALRM);
    ZERO(sigprocmask(SIG_BLOCK, &blocked, NULL));
    struct {
        const void *set;
        size_t size;
    } mask = {&none, 8};
    ZERO(setitimer(ITIMER_REAL, &soon, NULL));
    ERR(pgetevents(id, 1, &event, NULL, &mask), EINTR);
    sigset_t now;
    ZERO(sigprocmask(SIG_BLOCK, NULL, &now));
    CHECK(sigismember(&now, SIGALRM));
    mask.size = 4;
    ERR(pgetevents(id, 1, &event, &at_once, &mask), EINVAL);
    ERR(pgetevents(id, 1, &event, &at_once, BAD), EFAULT);
    CHECK_EQ(pgetevents(id, 1, &event, &at_once, NULL), 0);
    ERR(pgetevents(id, 0, &event, &at_once, NULL), EINVAL);
    ZERO(destroy(id));
}

/* What libaio does: it takes events from the ring without a system call. */
TEST(a_library_takes_events_from_the_ring) {
    aio_context_t id = context(4);
    volatile struct ring *ring = (volatile struct ring *)id;
    CHECK_EQ(ring->magic, 0xa10a10a1);
    CHECK_EQ(ring->incompatible, 0);
    CHECK_EQ(ring->header_length, sizeof *ring);
    CHECK(ring->places >= 9);
    int fd = OK(open("file", O_RDWR | O_CREAT, 0600));
    struct iocb one = REQUEST(.aio_lio_opcode = IOCB_CMD_PWRITE, .aio_fildes = (unsigned)fd,
                              .aio_buf = ADDRESS("x"), .aio_nbytes = 1);
    const struct io_event *events = (const struct io_event *)(id + sizeof *ring);
    for (unsigned round = 0; round < 3 * ring->places; round++) {
        one.aio_data = round;
        CHECK_EQ(submit_one(id, &one), 1);
        unsigned head = ring->head;
        CHECK(head != ring->tail);
        CHECK_EQ(events[head].data, round);
        CHECK_EQ(events[head].res, 1);
        ring->head = (head + 1) % ring->places;
    }
    struct io_event event;
    CHECK_EQ(getevents(id, 0, 1, &event, NULL), 0);
    ZERO(destroy(id));
}

TEST(a_full_ring_takes_no_more_requests) {
    aio_context_t id = context(1);
    unsigned places = ((volatile struct ring *)id)->places;
    int fd = OK(open("file", O_RDWR | O_CREAT, 0600));
    struct iocb one = REQUEST(.aio_lio_opcode = IOCB_CMD_PWRITE, .aio_fildes = (unsigned)fd,
                              .aio_buf = ADDRESS("x"), .aio_nbytes = 1);
    unsigned count = 0;
    while (submit_one(id, &one) == 1)
        count++;
    CHECK_EQ(errno, EAGAIN);
    CHECK(count >= 1 && count < places);
    struct io_event *events = calloc(places, sizeof *events);
    CHECK_EQ(getevents(id, count, places, events, &at_once), count);
    CHECK_EQ(submit_one(id, &one), 1);
    ZERO(destroy(id));
}

/* Whatever a program writes into its ring, it harms itself alone. */
TEST(a_ring_that_lies_is_survived) {
    aio_context_t id = context(4);
    volatile struct ring *ring = (volatile struct ring *)id;
    int fd = OK(open("file", O_RDWR | O_CREAT, 0600));
    struct iocb one = REQUEST(.aio_lio_opcode = IOCB_CMD_PWRITE, .aio_fildes = (unsigned)fd,
                              .aio_buf = ADDRESS("x"), .aio_nbytes = 1);
    static const uint32_t lies[] = {0, 1, 126, 127, 128, 0x7fffffff, 0x80000000, 0xffffffff};
    struct io_event events[8];
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++)
        for (size_t j = 0; j < sizeof lies / sizeof *lies; j++) {
            ring->head = lies[i];
            ring->tail = lies[j];
            submit_one(id, &one);
            getevents(id, 0, 8, events, NULL);
        }
    memset((void *)id, 0xff, PAGE);
    submit_one(id, &one);
    getevents(id, 0, 8, events, NULL);
    int status;
    pid_t child = FORK();
    if (child == 0)
        _exit(0); /* The rest works on. */
    OK(waitpid(child, &status, 0));
    CHECK_EQ(status, 0);
}

TEST(a_child_has_no_context) {
    aio_context_t id = context(4);
    int fd = OK(open("file", O_RDWR | O_CREAT, 0600)), ends[2];
    ZERO(pipe(ends));
    struct iocb one = REQUEST(.aio_lio_opcode = IOCB_CMD_PWRITE, .aio_fildes = (unsigned)fd,
                              .aio_buf = ADDRESS("x"), .aio_nbytes = 1);
    struct iocb wait = REQUEST(.aio_data = 9, .aio_lio_opcode = IOCB_CMD_POLL,
                               .aio_fildes = (unsigned)ends[0], .aio_buf = POLLIN);
    CHECK_EQ(submit_one(id, &wait), 1);
    pid_t child = FORK();
    if (child == 0) {
        struct io_event event;
        ERR(submit_one(id, &one), EINVAL);
        ERR(getevents(id, 0, 1, &event, NULL), EINVAL);
        ERR(destroy(id), EINVAL);
        aio_context_t own = context(4);
        CHECK_EQ(submit_one(own, &one), 1);
        CHECK_EQ(next(own).res, 1);
        _exit(0);
    }
    EXITS(child, 0);
    CHECK_EQ(write(ends[1], "x", 1), 1);
    CHECK_EQ(next(id).data, 9);
    ZERO(destroy(id));
}

TEST(a_context_ends_with_its_process) {
    long before = number("/proc/sys/fs/aio-nr");
    int ends[2], counter = OK(eventfd(0, EFD_NONBLOCK));
    ZERO(pipe(ends));
    pid_t child = FORK();
    if (child == 0) {
        aio_context_t id = context(512);
        struct iocb wait = REQUEST(.aio_lio_opcode = IOCB_CMD_POLL, .aio_fildes = (unsigned)ends[0],
                                   .aio_buf = POLLIN, .aio_flags = IOCB_FLAG_RESFD,
                                   .aio_resfd = (unsigned)counter);
        CHECK_EQ(submit_one(id, &wait), 1);
        _exit(0);
    }
    EXITS(child, 0);
    EVENTUALLY(number("/proc/sys/fs/aio-nr") <= before);
    /* Nobody waits for the pipe any more, or keeps it. */
    close(ends[0]);
    signal(SIGPIPE, SIG_IGN);
    ERR(write(ends[1], "x", 1), EPIPE);
}

TEST(a_context_ends_though_a_child_lives_on) {
    int ends[2], hold[2];
    ZERO(pipe(ends));
    ZERO(pipe(hold));
    pid_t owner = FORK();
    if (owner == 0) {
        aio_context_t id = context(4);
        struct iocb wait = REQUEST(.aio_lio_opcode = IOCB_CMD_POLL, .aio_fildes = (unsigned)ends[0],
                                   .aio_buf = POLLIN);
        CHECK_EQ(submit_one(id, &wait), 1);
        if (FORK() == 0) {
            char c;
            close(ends[0]);
            close(ends[1]);
            close(hold[1]);
            read(hold[0], &c, 1);
            _exit(0);
        }
        _exit(0);
    }
    EXITS(owner, 0);
    close(ends[0]);
    signal(SIGPIPE, SIG_IGN);
    EVENTUALLY(write(ends[1], "x", 1) == -1 && errno == EPIPE);
    close(hold[1]);
}

static aio_context_t shared_id;
static atomic_int seen;

static void *take_events(void *argument) {
    (void)argument;
    struct io_event event;
    while (getevents(shared_id, 1, 1, &event, NULL) == 1)
        seen++;
    return NULL;
}

TEST(threads_submit_and_take_at_once) {
    enum { THREADS = 3, EACH = 300 };
    shared_id = context(64);
    pthread_t takers[THREADS];
    for (int i = 0; i < THREADS; i++)
        ZERO(pthread_create(&takers[i], NULL, take_events, NULL));
    int ends[2], fd = OK(open("file", O_RDWR | O_CREAT, 0600));
    ZERO(pipe(ends));
    struct iocb one = REQUEST(.aio_lio_opcode = IOCB_CMD_PWRITE, .aio_fildes = (unsigned)fd,
                              .aio_buf = ADDRESS("x"), .aio_nbytes = 1);
    struct iocb wait = REQUEST(.aio_lio_opcode = IOCB_CMD_POLL, .aio_fildes = (unsigned)ends[0],
                               .aio_buf = POLLIN);
    int sent = 0;
    for (int round = 0; round < EACH; round++) {
        while (submit_one(shared_id, &one) != 1)
            CHECK_EQ(errno, EAGAIN);
        while (submit_one(shared_id, &wait) != 1)
            CHECK_EQ(errno, EAGAIN);
        sent += 2;
        char c = 0;
        CHECK_EQ(write(ends[1], &c, 1), 1);
        EVENTUALLY(seen == sent);
        CHECK_EQ(read(ends[0], &c, 1), 1);
    }
    ZERO(destroy(shared_id)); /* It ends the waits of the others. */
    for (int i = 0; i < THREADS; i++)
        ZERO(pthread_join(takers[i], NULL));
    CHECK_EQ(seen, sent);
}

TEST(the_ring_is_named_and_cannot_grow_others) {
    aio_context_t id = context(4);
    char line[512], start[32];
    snprintf(start, sizeof start, "%lx-", (unsigned long)id);
    FILE *maps = fopen("/proc/self/maps", "r");
    bool found = false;
    while (fgets(line, sizeof line, maps))
        if (strncmp(line, start, strlen(start)) == 0) {
            found = true;
            CHECK(strstr(line, " rw-s ") && strstr(line, "/[aio] (deleted)"));
        }
    fclose(maps);
    CHECK(found);
    /* A program that unmaps it has no context any more. */
    ZERO(munmap((void *)id, PAGE));
    struct io_event event;
    ERR(getevents(id, 0, 1, &event, NULL), EINVAL);
}
