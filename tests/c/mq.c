/* POSIX message queues: order, limits, waiting, notification, names and files, permissions. */
#define AREA "mq"
#include "harness.h"
#include <linux/netlink.h>
#include <mqueue.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/inotify.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/vfs.h>

#define SETTINGS "/proc/sys/fs/mqueue/"
#define NONE ((mqd_t)-1)

static char buffer[8192];
static unsigned priority;

static char names[16][32];
static int count_names;
static void unlink_all(void) {
    while (count_names > 0)
        mq_unlink(names[--count_names]);
}
/* A name of this case alone, which is removed at its end. */
static const char *name_of(int number) {
    if (!count_names)
        hy_at_end = unlink_all;
    char *name = names[count_names++];
    snprintf(name, sizeof names[0], "/hayate-%d-%d", getpid(), number);
    return name;
}
static mqd_t make(const char *name, int flags, long messages, long size) {
    struct mq_attr attr = {.mq_maxmsg = messages, .mq_msgsize = size};
    return mq_open(name, flags | O_CREAT, 0600, &attr);
}
/* A queue without a name, of so many messages of 16 bytes. */
static mqd_t fresh(int flags, long messages) {
    const char *name = name_of(99);
    mqd_t queue = OK(make(name, flags | O_EXCL, messages, 16));
    OK(mq_unlink(name));
    count_names--;
    return queue;
}
static int put(mqd_t queue, const char *text, unsigned prio) {
    return mq_send(queue, text, strlen(text), prio);
}
static void got(mqd_t queue, const char *want, unsigned want_priority) {
    memset(buffer, 0, sizeof buffer);
    CHECK_EQ(OK(mq_receive(queue, buffer, sizeof buffer, &priority)), strlen(want));
    CHECK_STR(buffer, want);
    CHECK_EQ(priority, want_priority);
}
static struct mq_attr attributes(mqd_t queue) {
    struct mq_attr attr;
    OK(mq_getattr(queue, &attr));
    return attr;
}
static struct timespec in_ms(long ms) {
    struct timespec t;
    OK(clock_gettime(CLOCK_REALTIME, &t));
    t.tv_sec += ms / 1000;
    t.tv_nsec += ms % 1000 * MS;
    if (t.tv_nsec >= 1000000000) {
        t.tv_sec++;
        t.tv_nsec -= 1000000000;
    }
    return t;
}
static void on_signal(int sig UNUSED) {}
static void handle(int sig, int flags) {
    struct sigaction act = {.sa_handler = on_signal, .sa_flags = flags};
    OK(sigaction(sig, &act, NULL));
}
static void block(int sig) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, sig);
    OK(sigprocmask(SIG_BLOCK, &set, NULL));
}
/* The information of a pending signal, which the case has blocked; si_signo 0 if there is none. */
static siginfo_t pending(int sig) {
    sigset_t set;
    siginfo_t info = {0};
    struct timespec none = {0, 0};
    sigemptyset(&set);
    sigaddset(&set, sig);
    if (sigtimedwait(&set, &info, &none) == -1)
        info.si_signo = 0;
    return info;
}
/* The path of a queue in a mounted mqueue file system. */
static const char *file_of(const char *name) {
    static char path[PATH_MAX + 64];
    snprintf(path, sizeof path, "%s/queues", hy_tmp);
    if (mkdir(path, 0755) == 0)
        OK(mount("mqueue", path, "mqueue", 0, NULL));
    strcat(path, name);
    return path;
}

TEST(messages_come_by_priority) {
    mqd_t queue = fresh(O_RDWR, 8);
    OK(put(queue, "low", 1));
    OK(put(queue, "high", 32767));
    OK(put(queue, "zero", 0));
    OK(put(queue, "high again", 32767));
    OK(put(queue, "", 1));
    CHECK_EQ(attributes(queue).mq_curmsgs, 5);
    got(queue, "high", 32767);
    got(queue, "high again", 32767);
    got(queue, "low", 1);
    got(queue, "", 1);
    CHECK_EQ(OK(mq_receive(queue, buffer, 16, NULL)), 4);
    CHECK_EQ(attributes(queue).mq_curmsgs, 0);
}

TEST(names_are_found) {
    const char *name = name_of(1);
    ERR(mq_open(name, O_RDWR), ENOENT);
    ERR(mq_unlink(name), ENOENT);
    mqd_t queue = OK(make(name, O_RDWR | O_EXCL, 3, 100));
    CHECK_EQ(OK(fcntl(queue, F_GETFD)), FD_CLOEXEC);
    ERR(make(name, O_RDWR | O_EXCL, 3, 100), EEXIST);
    mqd_t reader = OK(mq_open(name, O_RDONLY)), writer = OK(mq_open(name, O_WRONLY | O_NONBLOCK));
    OK(put(writer, "text", 5));
    got(reader, "text", 5);
    ERR(put(reader, "text", 5), EBADF);
    ERR(mq_receive(writer, buffer, sizeof buffer, NULL), EBADF);
    /* What exists keeps its attributes. */
    mqd_t other = OK(make(name, O_RDWR, 1, 1));
    CHECK_EQ(attributes(other).mq_maxmsg, 3);
    CHECK_EQ(attributes(other).mq_msgsize, 100);
    ERR(mq_open(name, O_RDWR | O_WRONLY), EINVAL);
    OK(mq_unlink(name));
    ERR(mq_unlink(name), ENOENT);
    ERR(mq_open(name, O_RDWR), ENOENT);
    OK(put(writer, "still there", 0));
    got(queue, "still there", 0);
    OK(mq_close(queue));
    ERR(mq_close(queue), EBADF);
    count_names--;
}

TEST(names_are_checked) {
    char name[300];
    memset(name, 'x', sizeof name);
    name[0] = '/';
    name[257] = 0;
    ERR(mq_open(name, O_RDWR | O_CREAT, 0600, NULL), ENAMETOOLONG);
    ERR(mq_unlink(name), ENAMETOOLONG);
    ERR(syscall(SYS_mq_open, "", O_RDWR | O_CREAT, 0600, NULL), ENOENT);
    ERR(syscall(SYS_mq_unlink, ""), ENOENT);
    for (const char *const *wrong = (const char *[]){"a/b", ".", "..", "/a", NULL}; *wrong; wrong++) {
        ERR(syscall(SYS_mq_open, *wrong, O_RDWR | O_CREAT, 0600, NULL), EACCES);
        ERR(syscall(SYS_mq_unlink, *wrong), EACCES);
    }
    ERR(syscall(SYS_mq_open, BAD, O_RDWR, 0, NULL), EFAULT);
    ERR(syscall(SYS_mq_unlink, BAD), EFAULT);
    ERR(syscall(SYS_mq_open, "x", O_RDWR | O_CREAT, 0600, BAD), EFAULT);
}

TEST(attributes_are_checked) {
    const char *name = name_of(1);
    mqd_t queue = OK(mq_open(name, O_RDWR | O_CREAT, 0600, NULL));
    struct mq_attr attr = attributes(queue);
    CHECK_EQ(attr.mq_flags, 0);
    CHECK_EQ(attr.mq_maxmsg, 10);
    CHECK_EQ(attr.mq_msgsize, 8192);
    CHECK_EQ(attr.mq_curmsgs, 0);
    OK(mq_unlink(name));
    ERR(make(name, O_RDWR, 0, 16), EINVAL);
    ERR(make(name, O_RDWR, 4, 0), EINVAL);
    ERR(make(name, O_RDWR, -1, 16), EINVAL);
    ERR(make(name, O_RDWR, 4, -1), EINVAL);
    ERR(make(name, O_RDWR, 65537, 1), EINVAL);
    ERR(make(name, O_RDWR, 1, (16 << 20) + 1), EINVAL);
    ERR(mq_open(name, O_RDWR), ENOENT);
    /* The settings bind who has no CAP_SYS_RESOURCE. */
    IN_CHILD({
        BECOME(NOBODY, NOBODY);
        ERR(make(name, O_RDWR, 11, 16), EINVAL);
        ERR(make(name, O_RDWR, 1, 8193), EINVAL);
        OK(make(name, O_RDWR, 10, 8192));
        OK(mq_unlink(name));
    });
    count_names--;
}

TEST(privilege_goes_beyond_the_settings) {
    char line[256];
    unsigned long capabilities = 0;
    FILE *status = fopen("/proc/self/status", "r");
    while (fgets(line, sizeof line, status))
        sscanf(line, "CapEff: %lx", &capabilities);
    fclose(status);
    if (!(capabilities >> 24 & 1))
        SKIP("without CAP_SYS_RESOURCE");
    const char *name = name_of(1);
    mqd_t queue = OK(make(name, O_RDWR, 20, 8193));
    CHECK_EQ(attributes(queue).mq_maxmsg, 20);
    /* But not beyond the limit of bytes. */
    ERR(make("/hayate-large", O_RDWR, 65536, 16 << 20), EMFILE);
}

TEST(attributes_are_changed) {
    mqd_t queue = fresh(O_RDWR, 2);
    struct mq_attr new = {.mq_flags = O_NONBLOCK, .mq_maxmsg = 7, .mq_curmsgs = 9}, old;
    OK(mq_setattr(queue, &new, &old));
    CHECK_EQ(old.mq_flags, 0);
    CHECK_EQ(old.mq_maxmsg, 2);
    CHECK_EQ(OK(fcntl(queue, F_GETFL)) & O_NONBLOCK, O_NONBLOCK);
    CHECK_EQ(attributes(queue).mq_flags, O_NONBLOCK);
    CHECK_EQ(attributes(queue).mq_maxmsg, 2);
    ERR(mq_receive(queue, buffer, sizeof buffer, NULL), EAGAIN);
    OK(put(queue, "a", 0));
    OK(put(queue, "b", 0));
    ERR(put(queue, "c", 0), EAGAIN);
    new.mq_flags = O_NONBLOCK | O_APPEND;
    ERR(mq_setattr(queue, &new, NULL), EINVAL);
    new.mq_flags = 0;
    OK(mq_setattr(queue, &new, NULL));
    CHECK_EQ(OK(fcntl(queue, F_GETFL)) & O_NONBLOCK, 0);
    ERR(syscall(SYS_mq_getsetattr, queue, BAD, NULL), EFAULT);
    ERR(syscall(SYS_mq_getsetattr, queue, NULL, BAD), EFAULT);
    ERR(mq_setattr(99, &new, NULL), EBADF);
    ERR(mq_getattr(0, &old), EBADF);
}

TEST(sizes_and_priorities_are_checked) {
    mqd_t queue = fresh(O_RDWR | O_NONBLOCK, 2);
    ERR(mq_send(queue, buffer, 17, 0), EMSGSIZE);
    ERR(mq_send(queue, buffer, 16, 32768), EINVAL);
    ERR(mq_send(queue, buffer, 16, -1), EINVAL);
    ERR(mq_send(queue, BAD, 16, 0), EFAULT);
    CHECK_EQ(attributes(queue).mq_curmsgs, 0);
    OK(mq_send(queue, buffer, 16, 0));
    ERR(mq_receive(queue, buffer, 15, NULL), EMSGSIZE);
    CHECK_EQ(attributes(queue).mq_curmsgs, 1);
    /* A message that cannot be written is lost. */
    ERR(mq_receive(queue, BAD, 16, NULL), EFAULT);
    CHECK_EQ(attributes(queue).mq_curmsgs, 0);
    OK(mq_send(queue, buffer, 16, 0));
    ERR(mq_receive(queue, buffer, 16, BAD), EFAULT);
    CHECK_EQ(attributes(queue).mq_curmsgs, 0);
    ERR(mq_send(99, buffer, 16, 0), EBADF);
    ERR(mq_receive(99, buffer, 16, NULL), EBADF);
    int file = OK(open("/dev/null", O_RDWR));
    ERR(mq_send(file, buffer, 16, 0), EBADF);
    ERR(mq_receive(file, buffer, 16, NULL), EBADF);
    int path = OK(open("/proc/self/fd/0", O_PATH));
    ERR(mq_send(path, buffer, 16, 0), EBADF);
}

TEST(timeouts_are_on_the_real_time_clock) {
    mqd_t queue = fresh(O_RDWR, 1);
    struct timespec past = {1, 0}, wrong = {0, 1000000000}, before = {-1, 0};
    ERR(mq_timedreceive(queue, buffer, 16, NULL, &past), ETIMEDOUT);
    int64_t start = now_ns(CLOCK_REALTIME);
    struct timespec soon = in_ms(50);
    ERR(mq_timedreceive(queue, buffer, 16, NULL, &soon), ETIMEDOUT);
    CHECK(now_ns(CLOCK_REALTIME) >= start + 45 * MS);
    CHECK(now_ns(CLOCK_REALTIME) >= soon.tv_sec * 1000000000LL + soon.tv_nsec);
    /* The time does not matter where nothing has to be waited for. */
    OK(mq_timedsend(queue, "a", 1, 0, &past));
    ERR(mq_timedsend(queue, "b", 1, 0, &past), ETIMEDOUT);
    soon = in_ms(50);
    ERR(mq_timedsend(queue, "b", 1, 0, &soon), ETIMEDOUT);
    OK(mq_timedreceive(queue, buffer, 16, NULL, &past));
    CHECK_EQ(attributes(queue).mq_curmsgs, 0);
    /* It is looked at in any case. */
    ERR(mq_timedsend(queue, "a", 1, 0, &wrong), EINVAL);
    ERR(mq_timedsend(queue, "a", 1, 0, &before), EINVAL);
    ERR(mq_timedreceive(queue, buffer, 16, NULL, &wrong), EINVAL);
    ERR(mq_timedsend(queue, "a", 1, 0, BAD), EFAULT);
    ERR(mq_timedreceive(queue, buffer, 16, NULL, BAD), EFAULT);
    ERR(syscall(SYS_mq_timedsend, 99, "a", 1, 0, BAD), EFAULT);
    struct mq_attr nonblocking = {.mq_flags = O_NONBLOCK};
    OK(mq_setattr(queue, &nonblocking, NULL));
    soon = in_ms(10000);
    ERR(mq_timedreceive(queue, buffer, 16, NULL, &soon), EAGAIN);
}

TEST(a_set_clock_ends_waits) {
    NEEDS_OWN_MACHINE();
    mqd_t queue = fresh(O_RDWR, 1);
    struct timespec late = in_ms(3600 * 1000), back = in_ms(0);
    pid_t pid = FORK();
    if (pid == 0) {
        ERR(mq_timedreceive(queue, buffer, 16, NULL, &late), ETIMEDOUT);
        _exit(0);
    }
    wait_asleep(pid);
    late.tv_sec += 1;
    OK(clock_settime(CLOCK_REALTIME, &late));
    EXITS(pid, 0);
    OK(clock_settime(CLOCK_REALTIME, &back));
}

TEST(receivers_wait) {
    mqd_t queue = fresh(O_RDWR, 4);
    pid_t pid = FORK();
    if (pid == 0) {
        got(queue, "for you", 3);
        _exit(0);
    }
    wait_asleep(pid);
    OK(put(queue, "for you", 3));
    CHECK_EQ(attributes(queue).mq_curmsgs, 0);
    EXITS(pid, 0);
}

TEST(senders_wait_and_keep_their_order) {
    mqd_t queue = fresh(O_RDWR, 1);
    OK(put(queue, "first", 0));
    pid_t pids[3];
    /* The highest priority of scheduling is served first, then who came first; the priority of the
     * message does not matter. */
    const int nice_values[3] = {10, 0, 0};
    for (int i = 0; i < 3; i++) {
        if ((pids[i] = FORK()) == 0) {
            OK(setpriority(PRIO_PROCESS, 0, nice_values[i]));
            OK(put(queue, (const char *[]){"nice", "second", "third"}[i], 9 - i));
            _exit(0);
        }
        wait_asleep(pids[i]);
    }
    CHECK_EQ(attributes(queue).mq_curmsgs, 1);
    got(queue, "first", 0);
    CHECK_EQ(attributes(queue).mq_curmsgs, 1);
    EXITS(pids[1], 0);
    got(queue, "second", 8);
    EXITS(pids[2], 0);
    got(queue, "third", 7);
    EXITS(pids[0], 0);
    got(queue, "nice", 9);
    CHECK_EQ(attributes(queue).mq_curmsgs, 0);
}

TEST(receivers_are_served_by_priority) {
    mqd_t queue = fresh(O_RDWR, 4);
    int *order = SHARED(sizeof(int) * 4);
    pid_t pids[3];
    for (int i = 0; i < 3; i++) {
        if ((pids[i] = FORK()) == 0) {
            struct sched_param param = {.sched_priority = 10 * i};
            if (i)
                OK(syscall(SYS_sched_setscheduler, 0, SCHED_FIFO, &param));
            OK(mq_receive(queue, buffer, 16, NULL));
            order[i] = buffer[0];
            _exit(0);
        }
        wait_asleep(pids[i]);
    }
    OK(put(queue, "1", 0));
    EXITS(pids[2], 0);
    OK(put(queue, "2", 0));
    EXITS(pids[1], 0);
    OK(put(queue, "3", 0));
    EXITS(pids[0], 0);
    CHECK_EQ(order[0], '3');
    CHECK_EQ(order[1], '2');
    CHECK_EQ(order[2], '1');
}

TEST(signals_interrupt_waits) {
    mqd_t queue = fresh(O_RDWR, 1);
    for (int restarts = 0; restarts < 2; restarts++) {
        pid_t pid = FORK();
        if (pid == 0) {
            handle(SIGUSR1, restarts ? SA_RESTART : 0);
            if (restarts)
                got(queue, "late", 0);
            else
                ERR(mq_receive(queue, buffer, 16, NULL), EINTR);
            _exit(0);
        }
        wait_asleep(pid);
        OK(kill(pid, SIGUSR1));
        if (restarts) {
            wait_asleep(pid);
            OK(put(queue, "late", 0));
        }
        EXITS(pid, 0);
    }
    OK(put(queue, "full", 0));
    pid_t pid = FORK();
    if (pid == 0) {
        handle(SIGUSR1, 0);
        ERR(put(queue, "more", 0), EINTR);
        _exit(0);
    }
    wait_asleep(pid);
    OK(kill(pid, SIGUSR1));
    EXITS(pid, 0);
    got(queue, "full", 0);
    CHECK_EQ(attributes(queue).mq_curmsgs, 0);
}

TEST(killed_waiters_leave_nothing) {
    mqd_t queue = fresh(O_RDWR, 1);
    pid_t pid = FORK();
    if (pid == 0) {
        mq_receive(queue, buffer, 16, NULL);
        _exit(1);
    }
    wait_asleep(pid);
    OK(kill(pid, SIGKILL));
    KILLED(pid, SIGKILL);
    OK(put(queue, "stays", 0));
    pid = FORK();
    if (pid == 0) {
        put(queue, "is not sent", 0);
        _exit(1);
    }
    wait_asleep(pid);
    OK(kill(pid, SIGKILL));
    KILLED(pid, SIGKILL);
    got(queue, "stays", 0);
    CHECK_EQ(attributes(queue).mq_curmsgs, 0);
}

TEST(many_processes_lose_nothing) {
    mqd_t queue = fresh(O_RDWR, 3);
    enum { SENDERS = 4, EACH = 100 };
    pid_t senders[SENDERS], receivers[2];
    atomic_int *seen = SHARED(sizeof(atomic_int) * SENDERS * EACH);
    for (int i = 0; i < SENDERS; i++)
        if ((senders[i] = FORK()) == 0) {
            for (int j = 0; j < EACH; j++) {
                int number = i * EACH + j;
                OK(mq_send(queue, (char *)&number, sizeof number, number % 7));
            }
            _exit(0);
        }
    for (int i = 0; i < 2; i++)
        if ((receivers[i] = FORK()) == 0) {
            for (int j = 0; j < SENDERS * EACH / 2; j++) {
                int number;
                OK(mq_receive(queue, buffer, 16, &priority));
                memcpy(&number, buffer, sizeof number);
                CHECK_EQ(priority, (unsigned)number % 7);
                atomic_fetch_add(&seen[number], 1);
            }
            _exit(0);
        }
    for (int i = 0; i < SENDERS; i++)
        EXITS(senders[i], 0);
    for (int i = 0; i < 2; i++)
        EXITS(receivers[i], 0);
    for (int i = 0; i < SENDERS * EACH; i++)
        CHECK_EQ(atomic_load(&seen[i]), 1);
}

TEST(a_signal_tells_of_a_message) {
    mqd_t queue = fresh(O_RDWR, 4);
    block(SIGUSR1);
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1};
    event.sigev_value.sival_int = 4711;
    OK(mq_notify(queue, &event));
    ERR(mq_notify(queue, &event), EBUSY);
    IN_CHILD(ERR(mq_notify(queue, &event), EBUSY));
    CHECK_EQ(pending(SIGUSR1).si_signo, 0);
    pid_t pid = FORK();
    if (pid == 0) {
        OK(put(queue, "a", 0));
        _exit(0);
    }
    EXITS(pid, 0);
    siginfo_t info = pending(SIGUSR1);
    CHECK_EQ(info.si_signo, SIGUSR1);
    CHECK_EQ(info.si_code, SI_MESGQ);
    CHECK_EQ(info.si_pid, pid);
    CHECK_EQ(info.si_uid, getuid());
    CHECK_EQ(info.si_value.sival_int, 4711);
    /* Once, and only for an empty queue. */
    OK(put(queue, "b", 0));
    CHECK_EQ(pending(SIGUSR1).si_signo, 0);
    OK(mq_notify(queue, &event));
    OK(put(queue, "c", 0));
    CHECK_EQ(pending(SIGUSR1).si_signo, 0);
    for (int i = 0; i < 3; i++)
        OK(mq_receive(queue, buffer, 16, NULL));
    OK(put(queue, "d", 0));
    CHECK_EQ(pending(SIGUSR1).si_signo, SIGUSR1);
}

TEST(a_waiting_receiver_comes_first) {
    mqd_t queue = fresh(O_RDWR, 4);
    block(SIGUSR1);
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1};
    pid_t pid = FORK();
    if (pid == 0) {
        got(queue, "taken", 0);
        _exit(0);
    }
    wait_asleep(pid);
    OK(mq_notify(queue, &event));
    OK(put(queue, "taken", 0));
    EXITS(pid, 0);
    CHECK_EQ(pending(SIGUSR1).si_signo, 0);
    /* So does a sender that fills the place. */
    OK(put(queue, "told", 0));
    CHECK_EQ(pending(SIGUSR1).si_signo, SIGUSR1);
}

TEST(notices_end) {
    mqd_t queue = fresh(O_RDWR, 4);
    block(SIGUSR1);
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1};
    struct sigevent none = {.sigev_notify = SIGEV_NONE};
    OK(mq_notify(queue, NULL));
    OK(mq_notify(queue, &none));
    ERR(mq_notify(queue, &event), EBUSY);
    IN_CHILD(OK(mq_notify(queue, NULL)));
    ERR(mq_notify(queue, &event), EBUSY);
    OK(mq_notify(queue, NULL));
    OK(mq_notify(queue, &event));
    /* Any descriptor of the queue that its process closes ends the notice. */
    int copy = OK(dup(queue));
    IN_CHILD(OK(close(queue)));
    ERR(mq_notify(queue, &none), EBUSY);
    OK(close(copy));
    OK(mq_notify(queue, &none));
    OK(dup2(0, OK(dup(queue))));
    OK(mq_notify(queue, &event));
    OK(mq_notify(queue, NULL));
    /* So does the end of the process. */
    IN_CHILD(OK(mq_notify(queue, &event)));
    OK(mq_notify(queue, &none));
    OK(put(queue, "a", 0));
    OK(mq_notify(queue, &event));
    OK(mq_notify(queue, NULL));
}

TEST(notices_are_checked) {
    mqd_t queue = fresh(O_RDWR, 4);
    struct sigevent event = {.sigev_notify = 17};
    ERR(mq_notify(queue, &event), EINVAL);
    event.sigev_notify = SIGEV_SIGNAL;
    event.sigev_signo = 65;
    ERR(mq_notify(queue, &event), EINVAL);
    event.sigev_signo = -1;
    ERR(mq_notify(queue, &event), EINVAL);
    ERR(mq_notify(99, &event), EINVAL);
    event.sigev_signo = 0;
    ERR(mq_notify(99, &event), EBADF);
    ERR(mq_notify(0, &event), EBADF);
    ERR(syscall(SYS_mq_notify, queue, BAD), EFAULT);
    ERR(mq_notify(99, NULL), EBADF);
    OK(mq_notify(queue, &event));
    OK(put(queue, "a", 0));
    OK(mq_notify(queue, &event));
}

/* Registers by hand what the C library's SIGEV_THREAD does. */
static int letters(mqd_t queue, int sock, char *cookie) {
    struct sigevent event = {.sigev_notify = SIGEV_THREAD, .sigev_signo = sock};
    event.sigev_value.sival_ptr = cookie;
    return syscall(SYS_mq_notify, queue, &event);
}
static void letter_is(int sock, char *cookie, int last) {
    char letter[64];
    CHECK_EQ(OK(recv(sock, letter, sizeof letter, MSG_DONTWAIT)), 32);
    CHECK_EQ(memcmp(letter, cookie, 31), 0);
    CHECK_EQ(letter[31], last);
}

TEST(a_letter_tells_of_a_message) {
    mqd_t queue = fresh(O_RDWR, 4);
    char cookie[32] = "some thirty-two bytes of a cook";
    int sock = OK(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE)), pair[2];
    ERR(letters(queue, 99, cookie), EBADF);
    ERR(letters(queue, 99, BAD), EFAULT);
    ERR(letters(queue, queue, cookie), ENOTSOCK);
    OK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
    ERR(letters(queue, pair[0], cookie), EINVAL);
    ERR(letters(99, sock, cookie), EBADF);
    OK(letters(queue, sock, cookie));
    ERR(letters(queue, sock, cookie), EBUSY);
    struct pollfd readable = {.fd = sock, .events = POLLIN};
    CHECK_EQ(OK(poll(&readable, 1, 0)), 0);
    OK(put(queue, "a", 0));
    CHECK_EQ(OK(poll(&readable, 1, 0)), 1);
    letter_is(sock, cookie, 1);
    /* A notice that is withdrawn says so. */
    OK(letters(queue, sock, cookie));
    OK(mq_notify(queue, NULL));
    letter_is(sock, cookie, 2);
    OK(letters(queue, sock, cookie));
    OK(close(OK(dup(queue))));
    letter_is(sock, cookie, 2);
    ERR(recv(sock, buffer, 64, MSG_DONTWAIT), EAGAIN);
    /* Nobody reads it any more. */
    got(queue, "a", 0);
    OK(letters(queue, sock, cookie));
    OK(close(sock));
    OK(put(queue, "b", 0));
}

static atomic_int called;
static void on_message(union sigval value) { atomic_store(&called, value.sival_int); }

TEST(the_library_makes_a_thread) {
    mqd_t queue = fresh(O_RDWR, 4);
    struct sigevent event = {.sigev_notify = SIGEV_THREAD};
    event.sigev_notify_function = on_message;
    event.sigev_value.sival_int = 42;
    OK(mq_notify(queue, &event));
    CHECK_EQ(atomic_load(&called), 0);
    OK(put(queue, "a", 0));
    EVENTUALLY(atomic_load(&called) == 42);
}

TEST(a_signalfd_reads_of_a_message) {
    mqd_t queue = fresh(O_RDWR, 4);
    block(SIGUSR1);
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    int fd = OK(signalfd(-1, &set, SFD_NONBLOCK));
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1};
    event.sigev_value.sival_int = 7;
    OK(mq_notify(queue, &event));
    OK(put(queue, "a", 0));
    struct signalfd_siginfo info;
    CHECK_EQ(OK(read(fd, &info, sizeof info)), sizeof info);
    CHECK_EQ(info.ssi_code, SI_MESGQ);
    CHECK_EQ(info.ssi_pid, getpid());
    CHECK_EQ(info.ssi_int, 7);
}

HELPER(waits) {
    mqd_t queue = atoi(argv[1]);
    if (argc > 2)
        close(atoi(argv[2]));
    /* Its parent sends when it reads the letter. */
    char c;
    write(4, "x", 1);
    read(5, &c, 1);
    return fcntl(queue, F_GETFD) == -1 ? 3 : 0;
}

TEST(a_new_program_is_not_told) {
    mqd_t queue = fresh(O_RDWR, 4);
    int to[2], from[2];
    OK(pipe(to));
    OK(pipe(from));
    pid_t pid = FORK();
    if (pid == 0) {
        int there = OK(fcntl(queue, F_DUPFD, 10));
        int write_end = OK(fcntl(from[1], F_DUPFD, 20)), read_end = OK(fcntl(to[0], F_DUPFD, 20));
        OK(dup2(write_end, 4));
        OK(dup2(read_end, 5));
        struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGKILL};
        /* The descriptors that exec would close are closed before, since that ends the notice. */
        for (int fd = 3; fd < 20; fd++)
            if (fd != there && fd != 4 && fd != 5)
                close(fd);
        OK(mq_notify(there, &event));
        char number[16];
        snprintf(number, sizeof number, "%d", there);
        execl(hy_self, hy_self, "--helper", "waits", number, NULL);
        _exit(9);
    }
    char c;
    OK(close(from[1]));
    CHECK_EQ(OK(read(from[0], &c, 1)), 1);
    struct sigevent none = {.sigev_notify = SIGEV_NONE};
    ERR(mq_notify(queue, &none), EBUSY);
    OK(put(queue, "a", 0));
    OK(mq_notify(queue, &none));
    CHECK_EQ(OK(write(to[1], "x", 1)), 1);
    EXITS(pid, 0);
}

TEST(exec_closes_queues) {
    mqd_t queue = fresh(O_RDWR, 4);
    int to[2], from[2];
    OK(pipe(to));
    OK(pipe(from));
    pid_t pid = FORK();
    if (pid == 0) {
        mqd_t own = OK(fcntl(queue, F_DUPFD_CLOEXEC, 30));
        int write_end = OK(fcntl(from[1], F_DUPFD, 20)), read_end = OK(fcntl(to[0], F_DUPFD, 20));
        OK(dup2(write_end, 4));
        OK(dup2(read_end, 5));
        struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGKILL};
        OK(mq_notify(own, &event));
        char number[16];
        snprintf(number, sizeof number, "%d", own);
        execl(hy_self, hy_self, "--helper", "waits", number, NULL);
        _exit(9);
    }
    char c;
    OK(close(from[1]));
    CHECK_EQ(OK(read(from[0], &c, 1)), 1);
    struct sigevent none = {.sigev_notify = SIGEV_NONE};
    OK(mq_notify(queue, &none));
    CHECK_EQ(OK(write(to[1], "x", 1)), 1);
    EXITS(pid, 3);
}

TEST(a_shared_table_ends_notices_for_its_owner_alone) {
    mqd_t queue = fresh(O_RDWR, 4);
    struct sigevent none = {.sigev_notify = SIGEV_NONE};
    OK(mq_notify(queue, &none));
    OK(unshare(CLONE_FILES));
    OK(close(OK(dup(queue))));
    OK(mq_notify(queue, &none));
}

TEST(queues_are_polled) {
    mqd_t queue = fresh(O_RDWR, 1);
    struct pollfd wanted = {.fd = queue, .events = POLLIN | POLLOUT};
    CHECK_EQ(OK(poll(&wanted, 1, 0)), 1);
    CHECK_EQ(wanted.revents, POLLOUT);
    OK(put(queue, "a", 0));
    CHECK_EQ(OK(poll(&wanted, 1, 0)), 1);
    CHECK_EQ(wanted.revents, POLLIN);
    got(queue, "a", 0);
    int set = OK(epoll_create1(0));
    struct epoll_event event = {.events = EPOLLIN | EPOLLET};
    OK(epoll_ctl(set, EPOLL_CTL_ADD, queue, &event));
    CHECK_EQ(OK(epoll_wait(set, &event, 1, 0)), 0);
    pid_t pid = FORK();
    if (pid == 0) {
        msleep(30);
        OK(put(queue, "b", 0));
        _exit(0);
    }
    CHECK_EQ(OK(epoll_wait(set, &event, 1, 5000)), 1);
    CHECK_EQ(event.events, EPOLLIN);
    EXITS(pid, 0);
    got(queue, "b", 0);
}

TEST(queues_are_files) {
    const char *name = name_of(1);
    OK(umask(027));
    struct mq_attr attr = {.mq_maxmsg = 4, .mq_msgsize = 16};
    mqd_t queue = OK(mq_open(name, O_RDWR | O_CREAT, 0666, &attr));
    struct stat s;
    OK(fstat(queue, &s));
    CHECK_EQ(s.st_mode, S_IFREG | 0640);
    CHECK_EQ(s.st_nlink, 1);
    CHECK_EQ(s.st_size, 80);
    CHECK_EQ(s.st_uid, geteuid());
    const char *path = file_of(name);
    struct stat there;
    OK(stat(path, &there));
    CHECK_EQ(there.st_ino, s.st_ino);
    CHECK_EQ(there.st_dev, s.st_dev);
    char text[PATH_MAX];
    CHECK_EQ(OK(get_file(path, text, sizeof text)), 60);
    CHECK_STR(text, "QSIZE:0          NOTIFY:0     SIGNO:0     NOTIFY_PID:0     \n");
    OK(put(queue, "12345", 0));
    OK(put(queue, "678", 0));
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR2};
    OK(mq_notify(queue, &event));
    OK(get_file(path, text, sizeof text));
    char want[128];
    snprintf(want, sizeof want, "QSIZE:8          NOTIFY:0     SIGNO:%-5d NOTIFY_PID:%-6d\n",
             SIGUSR2, getpid());
    CHECK_STR(text, want);
    OK(mq_notify(queue, NULL));
    event.sigev_notify = SIGEV_NONE;
    OK(mq_notify(queue, &event));
    /* The reader closed a descriptor of the queue, which ends the notice. */
    CHECK_EQ(OK(pread(queue, text, sizeof text, 0)), 60);
    snprintf(want, sizeof want, "QSIZE:8          NOTIFY:1     SIGNO:0     NOTIFY_PID:%-6d\n",
             getpid());
    text[60] = 0;
    CHECK_STR(text, want);
    CHECK_EQ(OK(pread(queue, text, 4, 6)), 4);
    CHECK_EQ(memcmp(text, "8   ", 4), 0);
    CHECK_EQ(OK(pread(queue, text, 4, 100)), 0);
    ERR(write(queue, "x", 1), EINVAL);
    ERR(pwrite(queue, "x", 1, 0), EINVAL);
    ERR(fsync(queue), EINVAL);
    CHECK(mmap(NULL, PAGE, PROT_READ, MAP_SHARED, queue, 0) == MAP_FAILED && errno == ENODEV);
    CHECK_EQ(OK(lseek(queue, 0, SEEK_END)), 80);
    /* A descriptor of open(2) is one of the queue. */
    int opened = OK(open(path, O_RDWR));
    got(opened, "12345", 0);
    CHECK_EQ(attributes(opened).mq_curmsgs, 1);
    OK(fchmod(queue, 0400));
    OK(stat(path, &there));
    CHECK_EQ(there.st_mode, S_IFREG | 0400);
    OK(unlink(path));
    ERR(mq_open(name, O_RDWR), ENOENT);
    OK(fstat(queue, &s));
    CHECK_EQ(s.st_nlink, 0);
    count_names--;
    OK(close(opened));
    OK(umount_ended(strcat(strcpy(text, hy_tmp), "/queues")));
}

TEST(the_directory_has_all_queues) {
    const char *name = name_of(1), *other = name_of(2);
    char root[PATH_MAX], from[PATH_MAX];
    strcpy(from, file_of(name));
    strcpy(root, from);
    *strrchr(root, '/') = 0;
    struct stat before, s;
    OK(stat(root, &before));
    CHECK_EQ(before.st_mode, S_IFDIR | 01777);
    CHECK_EQ(before.st_nlink, 2);
    int watcher = OK(inotify_init1(IN_NONBLOCK));
    OK(inotify_add_watch(watcher, root, IN_CREATE | IN_DELETE));
    /* open(2) makes a queue, too. */
    int queue = OK(open(from, O_RDWR | O_CREAT | O_EXCL, 0600));
    CHECK_EQ(attributes(queue).mq_maxmsg, 10);
    OK(make(other, O_RDWR, 2, 16));
    OK(stat(root, &s));
    CHECK_EQ(s.st_size, before.st_size + 40);
    int seen = 0;
    DIR *dir = opendir(root);
    for (struct dirent *entry; (entry = readdir(dir));)
        seen += !strcmp(entry->d_name, name + 1) || !strcmp(entry->d_name, other + 1);
    closedir(dir);
    CHECK_EQ(seen, 2);
    char path[PATH_MAX + 8];
    snprintf(path, sizeof path, "%s/new", root);
    ERR(mkdir(path, 0755), EPERM);
    ERR(link(from, path), EPERM);
    ERR(symlink("x", path), EPERM);
    ERR(mkfifo(path, 0600), EPERM);
    ERR(rename(from, path), EPERM);
    ERR(execl(from, from, NULL), EACCES);
    struct statfs fs;
    OK(statfs(root, &fs));
    CHECK_EQ(fs.f_type, 0x19800202);
    CHECK_EQ(fs.f_namelen, 255);
    OK(mq_unlink(other));
    OK(mq_unlink(name));
    OK(stat(root, &s));
    CHECK_EQ(s.st_size, before.st_size);
    char events[4096];
    ssize_t length = OK(read(watcher, events, sizeof events));
    uint32_t mask[4] = {0};
    int count = 0;
    for (ssize_t at = 0; at < length && count < 4; count++) {
        struct inotify_event *event = (void *)(events + at);
        mask[count] = event->mask;
        at += sizeof *event + event->len;
    }
    CHECK_EQ(count, 4);
    CHECK_EQ(mask[0], IN_CREATE);
    CHECK_EQ(mask[1], IN_CREATE);
    CHECK_EQ(mask[2], IN_DELETE);
    CHECK_EQ(mask[3], IN_DELETE);
    close(queue);
    OK(umount_ended(root));
    count_names -= 2;
}

TEST(mounts_show_one_tree) {
    const char *name = name_of(1);
    OK(make(name, O_RDWR, 2, 16));
    char path[160];
    OK(mkdir("one", 0755));
    OK(mkdir("two", 0755));
    OK(mount("mqueue", "one", "mqueue", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL));
    OK(mount("any", "two", "mqueue", MS_RDONLY, NULL));
    snprintf(path, sizeof path, "two%s", name);
    struct stat s;
    OK(stat(path, &s));
    ERR(unlink(path), EROFS);
    ERR(mount("mqueue", "two", "mqueue", 0, "mode=0755"), EINVAL);
    snprintf(path, sizeof path, "one%s", name);
    OK(unlink(path));
    snprintf(path, sizeof path, "two%s", name);
    ERR(stat(path, &s), ENOENT);
    OK(umount("two"));
    OK(umount("one"));
    count_names--;
}

TEST(modes_decide) {
    const char *name = name_of(1), *other = name_of(2);
    struct mq_attr attr = {.mq_maxmsg = 2, .mq_msgsize = 16};
    OK(umask(0));
    OK(mq_open(name, O_RDWR | O_CREAT, 0604, &attr));
    IN_CHILD({
        BECOME(NOBODY, NOBODY);
        OK(mq_open(name, O_RDONLY));
        ERR(mq_open(name, O_WRONLY), EACCES);
        ERR(mq_open(name, O_RDWR), EACCES);
        ERR(mq_open(name, O_RDWR | O_CREAT, 0600, NULL), EACCES);
        /* The directory is sticky. */
        ERR2(mq_unlink(name), EPERM, EACCES);
        mqd_t own = OK(mq_open(other, O_RDWR | O_CREAT, 0000, &attr));
        ERR(mq_open(other, O_RDONLY), EACCES);
        struct stat s;
        OK(fstat(own, &s));
        CHECK_EQ(s.st_uid, NOBODY);
        CHECK_EQ(s.st_gid, NOBODY);
        CHECK_EQ(s.st_mode, S_IFREG);
        OK(mq_unlink(other));
    });
    count_names--;
}

TEST(users_have_a_limit_of_bytes) {
    IN_CHILD({
        const char *name = name_of(1), *other = name_of(2);
        struct rlimit limit;
        OK(getrlimit(RLIMIT_MSGQUEUE, &limit));
        limit.rlim_cur = 2 * (10 * (1024 + 96));
        OK(setrlimit(RLIMIT_MSGQUEUE, &limit));
        /* A user of this case alone. */
        BECOME(54321, 54321);
        mqd_t queue = OK(make(name, O_RDWR, 10, 1024));
        mqd_t second = OK(make(other, O_RDWR, 10, 1024));
        OK(mq_unlink(other));
        ERR(make(other, O_RDWR, 1, 1), EMFILE);
        /* A queue counts as long as it is open. */
        OK(close(second));
        ERR(make(other, O_RDWR, 10, 1025), EMFILE);
        second = OK(make(other, O_RDWR, 10, 1024));
        /* The processes of a user count together. */
        IN_CHILD(ERR(make("/hayate-more", O_RDWR, 1, 1), EMFILE));
        OK(mq_unlink(other));
        OK(mq_unlink(name));
        OK(close(queue));
        OK(close(second));
        queue = OK(make(name, O_RDWR, 10, 2048));
        OK(mq_unlink(name));
        count_names = 0;
    });
}

TEST(settings_bound_queues) {
    NEEDS_OWN_MACHINE();
    const char *name = name_of(1), *other = name_of(2);
    ERR(open(SETTINGS "nothing", O_RDONLY), ENOENT);
    int fd = OK(open(SETTINGS "msg_max", O_WRONLY));
    ERR(write(fd, "0\n", 2), EINVAL);
    ERR(write(fd, "65537\n", 6), EINVAL);
    fd = OK(open(SETTINGS "msgsize_max", O_WRONLY));
    ERR(write(fd, "127\n", 4), EINVAL);
    SET_SYSCTL(SETTINGS "msg_max", "5");
    SET_SYSCTL(SETTINGS "msgsize_default", "256");
    mqd_t queue = OK(mq_open(name, O_RDWR | O_CREAT, 0600, NULL));
    CHECK_EQ(attributes(queue).mq_maxmsg, 5);
    CHECK_EQ(attributes(queue).mq_msgsize, 256);
    SET_SYSCTL(SETTINGS "queues_max", "1");
    IN_CHILD({
        BECOME(NOBODY, NOBODY);
        ERR(make(other, O_RDWR, 1, 1), ENOSPC);
        ERR(open(SETTINGS "queues_max", O_WRONLY), EACCES);
    });
    /* CAP_SYS_RESOURCE goes beyond. */
    OK(make(other, O_RDWR, 6, 1));
}

TEST(descriptors_are_limited) {
    const char *name = name_of(1);
    struct rlimit limit = {3, 3};
    OK(setrlimit(RLIMIT_NOFILE, &limit));
    for (int fd = 3; fd < 20; fd++)
        close(fd);
    ERR(make(name, O_RDWR, 1, 1), EMFILE);
    ERR(mq_unlink(name), ENOENT);
    count_names--;
}

TEST(sent_descriptors_are_queues) {
    mqd_t queue = fresh(O_RDWR, 2);
    pid_t pid = FORK();
    if (pid == 0) {
        OK(put(queue, "child", 2));
        _exit(0);
    }
    EXITS(pid, 0);
    got(queue, "child", 2);
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", queue);
    int again = OK(open(path, O_RDWR));
    OK(put(again, "again", 1));
    got(queue, "again", 1);
}
