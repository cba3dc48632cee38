/* System V message queues: order and types, room, waiting, removal, permissions, files. */
#define AREA "msg"
#include "harness.h"
#include <sys/ipc.h>
#include <sys/msg.h>

#ifndef MSG_STAT_ANY
#define MSG_STAT_ANY 13
#endif
#ifndef MSG_EXCEPT
#define MSG_EXCEPT 020000
#endif
#ifndef MSG_COPY
#define MSG_COPY 040000
#endif

struct message {
    long type;
    char text[8192];
};
static struct message in;

static int made[64], count_made;
static void remove_all(void) {
    while (count_made > 0)
        msgctl(made[--count_made], IPC_RMID, NULL);
}
static int keep(int id) {
    if (!count_made)
        hy_at_end = remove_all;
    made[count_made++] = id;
    return id;
}
static int fresh(void) {
    return keep(OK(msgget(IPC_PRIVATE, 0600)));
}
static key_t some_key(int number) {
    return (key_t)(0x40000000 | (getpid() << 6) | number);
}
static struct msqid_ds status(int id) {
    struct msqid_ds s;
    OK(msgctl(id, IPC_STAT, &s));
    return s;
}
static int put(int id, long type, const char *text, int flags) {
    struct message out = {.type = type};
    strcpy(out.text, text);
    return msgsnd(id, &out, strlen(text) + 1, flags);
}
static void got(int id, long type, int flags, long want_type, const char *want) {
    memset(&in, 0, sizeof in);
    CHECK_EQ(OK(msgrcv(id, &in, sizeof in.text, type, flags | IPC_NOWAIT)), strlen(want) + 1);
    CHECK_EQ(in.type, want_type);
    CHECK_STR(in.text, want);
}

TEST(queues_are_found_by_key) {
    key_t key = some_key(1);
    ERR(msgget(key, 0600), ENOENT);
    int id = keep(OK(msgget(key, IPC_CREAT | 0640)));
    CHECK_EQ(OK(msgget(key, 0)), id);
    CHECK_EQ(OK(msgget(key, IPC_CREAT)), id);
    ERR(msgget(key, IPC_CREAT | IPC_EXCL), EEXIST);
    struct msqid_ds s = status(id);
    CHECK_EQ(s.msg_perm.mode, 0640);
    CHECK_EQ(*(key_t *)&s.msg_perm, key);
    CHECK_EQ(s.msg_perm.cuid, geteuid());
    CHECK_EQ(s.msg_qnum, 0);
    CHECK_EQ(s.msg_qbytes, 16384);
    CHECK_EQ(s.msg_lspid, 0);
    CHECK_EQ(s.msg_stime, 0);
    CHECK(s.msg_ctime >= time(NULL) - 5);
}

TEST(messages_come_in_order) {
    int id = fresh();
    OK(put(id, 5, "first", 0));
    OK(put(id, 3, "second", 0));
    OK(put(id, 5, "third", 0));
    struct msqid_ds s = status(id);
    CHECK_EQ(s.msg_qnum, 3);
    CHECK_EQ(s.__msg_cbytes, 6 + 7 + 6);
    CHECK_EQ(s.msg_lspid, getpid());
    CHECK(s.msg_stime != 0);
    got(id, 0, 0, 5, "first");
    got(id, 0, 0, 3, "second");
    got(id, 0, 0, 5, "third");
    s = status(id);
    CHECK_EQ(s.msg_qnum, 0);
    CHECK_EQ(s.__msg_cbytes, 0);
    CHECK_EQ(s.msg_lrpid, getpid());
    CHECK(s.msg_rtime != 0);
    ERR(msgrcv(id, &in, 10, 0, IPC_NOWAIT), ENOMSG);
}

TEST(types_choose) {
    int id = fresh();
    OK(put(id, 5, "five", 0));
    OK(put(id, 3, "three", 0));
    OK(put(id, 4, "four", 0));
    OK(put(id, 3, "three again", 0));
    got(id, -4, 0, 3, "three");
    got(id, 4, 0, 4, "four");
    got(id, 5, MSG_EXCEPT, 3, "three again");
    ERR(msgrcv(id, &in, 10, 5, IPC_NOWAIT | MSG_EXCEPT), ENOMSG);
    ERR(msgrcv(id, &in, 10, -4, IPC_NOWAIT), ENOMSG);
    ERR(msgrcv(id, &in, 10, 4, IPC_NOWAIT), ENOMSG);
    got(id, LONG_MIN, 0, 5, "five");
}

TEST(long_messages_are_refused_or_cut) {
    int id = fresh();
    OK(put(id, 1, "a long one", 0));
    ERR(msgrcv(id, &in, 4, 0, 0), E2BIG);
    CHECK_EQ(status(id).msg_qnum, 1);
    memset(&in, 0, sizeof in);
    CHECK_EQ(OK(msgrcv(id, &in, 4, 0, MSG_NOERROR)), 4);
    CHECK_STR(in.text, "a lo");
    CHECK_EQ(status(id).msg_qnum, 0);
    struct message empty = {.type = 7};
    OK(msgsnd(id, &empty, 0, 0));
    CHECK_EQ(OK(msgrcv(id, &in, 0, 0, 0)), 0);
    CHECK_EQ(in.type, 7);
}

TEST(calls_that_cannot_be) {
    int id = fresh();
    struct message out = {.type = 0};
    ERR(msgsnd(id, &out, 1, 0), EINVAL);
    out.type = -1;
    ERR(msgsnd(id, &out, 1, 0), EINVAL);
    out.type = 1;
    ERR(msgsnd(id, &out, 8193, 0), EINVAL);
    ERR(msgsnd(id, &out, (size_t)-1, 0), EINVAL);
    ERR(msgsnd(-1, &out, 1, 0), EINVAL);
    ERR(msgsnd(0x7fffffff, &out, 1, 0), EINVAL);
    ERR(msgsnd(id, BAD, 1, 0), EFAULT);
    ERR(msgrcv(-1, &in, 1, 0, 0), EINVAL);
    ERR(msgrcv(0x7fffffff, &in, 1, 0, 0), EINVAL);
    ERR(msgrcv(id, &in, (size_t)-1, 0, 0), EINVAL);
    OK(put(id, 1, "lost", 0));
    ERR(msgrcv(id, BAD, 10, 0, 0), EFAULT);
    CHECK_EQ(status(id).msg_qnum, 0);
    struct msqid_ds s;
    ERR(msgctl(id, 99, &s), EINVAL);
    ERR(msgctl(-1, IPC_STAT, &s), EINVAL);
    ERR(msgctl(id, IPC_STAT, BAD), EFAULT);
    ERR(msgctl(id, IPC_SET, BAD), EFAULT);
}

TEST(copies_stay) {
    int id = fresh();
    OK(put(id, 5, "zero", 0));
    OK(put(id, 3, "one", 0));
    ERR(msgrcv(id, &in, 10, 0, MSG_COPY), EINVAL); /* only without waiting */
    errno = 0;
    if (msgrcv(id, &in, 10, 0, MSG_COPY | IPC_NOWAIT) == -1 && errno == ENOSYS)
        SKIP("no checkpointing");
    ERR(msgrcv(id, &in, 10, 0, MSG_COPY | IPC_NOWAIT | MSG_EXCEPT), EINVAL);
    got(id, 1, MSG_COPY, 3, "one");
    got(id, 0, MSG_COPY, 5, "zero");
    ERR(msgrcv(id, &in, 10, 2, MSG_COPY | IPC_NOWAIT), ENOMSG);
    ERR(msgrcv(id, &in, 10, -1, MSG_COPY | IPC_NOWAIT), ENOMSG);
    ERR(msgrcv(id, &in, 2, 0, MSG_COPY | IPC_NOWAIT), E2BIG);
    ERR(msgrcv(id, &in, 2, 0, MSG_COPY | IPC_NOWAIT | MSG_NOERROR), EINVAL);
    CHECK_EQ(status(id).msg_qnum, 2);
    CHECK_EQ(status(id).msg_rtime, 0);
}

static void wait_message(int id, long type, const char *want) {
    struct message got;
    CHECK_EQ(OK(msgrcv(id, &got, sizeof got.text, type, 0)), strlen(want) + 1);
    CHECK_STR(got.text, want);
    _exit(0);
}

TEST(receivers_wait_in_order) {
    int id = fresh();
    pid_t first = FORK();
    if (first == 0)
        wait_message(id, 0, "a");
    wait_asleep(first);
    pid_t second = FORK();
    if (second == 0)
        wait_message(id, 0, "b");
    wait_asleep(second);
    pid_t chosen = FORK();
    if (chosen == 0)
        wait_message(id, 9, "nine");
    wait_asleep(chosen);
    OK(put(id, 1, "a", 0));
    EXITS(first, 0);
    CHECK_EQ(status(id).msg_lrpid, first);
    OK(put(id, 1, "b", 0));
    EXITS(second, 0);
    OK(put(id, 8, "eight", 0));
    OK(put(id, 9, "nine", 0));
    EXITS(chosen, 0);
    CHECK_EQ(status(id).msg_qnum, 1);
}

TEST(a_receiver_with_little_room_fails) {
    int id = fresh();
    pid_t child = FORK();
    if (child == 0) {
        ERR(msgrcv(id, &in, 2, 0, 0), E2BIG);
        _exit(0);
    }
    wait_asleep(child);
    OK(put(id, 1, "long", 0));
    EXITS(child, 0);
    got(id, 0, 0, 1, "long");
}

TEST(senders_wait_for_room) {
    int id = fresh();
    struct message out = {.type = 1};
    for (int i = 0; i < 2; i++)
        OK(msgsnd(id, &out, 8192, 0));
    ERR(msgsnd(id, &out, 1, IPC_NOWAIT), EAGAIN);
    OK(msgsnd(id, &out, 0, IPC_NOWAIT)); /* nothing has room */
    pid_t child = FORK();
    if (child == 0)
        _exit(put(id, 2, "later", 0) == 0 ? 0 : errno);
    wait_asleep(child);
    CHECK_EQ(status(id).msg_qnum, 3);
    OK(msgrcv(id, &in, 8192, 0, 0));
    EXITS(child, 0);
    got(id, 2, 0, 2, "later");
    /* The number of messages has the same limit as that of bytes. */
    id = fresh();
    struct msqid_ds s = status(id);
    s.msg_qbytes = 3;
    OK(msgctl(id, IPC_SET, &s));
    for (int i = 0; i < 3; i++)
        OK(msgsnd(id, &out, 0, IPC_NOWAIT));
    ERR(msgsnd(id, &out, 0, IPC_NOWAIT), EAGAIN);
    child = FORK();
    if (child == 0)
        _exit(msgsnd(id, &out, 0, 0) == 0 ? 0 : errno);
    wait_asleep(child);
    s.msg_qbytes = 4;
    OK(msgctl(id, IPC_SET, &s));
    EXITS(child, 0);
}

static void nothing(int signal UNUSED) {}

TEST(signals_and_removal_end_a_wait) {
    int id = fresh();
    pid_t child = FORK();
    if (child == 0) {
        struct sigaction act = {.sa_handler = nothing, .sa_flags = SA_RESTART};
        sigaction(SIGUSR1, &act, NULL);
        ERR(msgrcv(id, &in, 10, 0, 0), EINTR);
        ERR(msgrcv(id, &in, 10, 0, 0), EIDRM);
        _exit(0);
    }
    wait_asleep(child);
    OK(kill(child, SIGUSR1));
    msleep(50);
    wait_asleep(child);
    struct message out = {.type = 1};
    int full = fresh();
    pid_t sender = FORK();
    if (sender == 0) {
        struct sigaction act = {.sa_handler = nothing, .sa_flags = SA_RESTART};
        sigaction(SIGUSR1, &act, NULL);
        OK(msgsnd(full, &out, 8192, 0));
        OK(msgsnd(full, &out, 8192, 0));
        ERR(msgsnd(full, &out, 8192, 0), EINTR);
        ERR(msgsnd(full, &out, 8192, 0), EIDRM);
        _exit(0);
    }
    EVENTUALLY(status(full).msg_qnum == 2);
    wait_asleep(sender);
    OK(kill(sender, SIGUSR1));
    msleep(50);
    wait_asleep(sender);
    OK(msgctl(id, IPC_RMID, NULL));
    OK(msgctl(full, IPC_RMID, NULL));
    EXITS(child, 0);
    EXITS(sender, 0);
    ERR(msgctl(id, IPC_RMID, NULL), EINVAL);
}

TEST(permissions) {
    if (geteuid() != 0)
        SKIP("needs root");
    key_t key = some_key(1);
    int closed = keep(OK(msgget(key, IPC_CREAT | 0600)));
    int readable = keep(OK(msgget(IPC_PRIVATE, 0604)));
    int own = fresh();
    struct msqid_ds s = status(own);
    s.msg_perm.uid = NOBODY;
    s.msg_qbytes = 20000; /* CAP_SYS_RESOURCE may exceed the limit, which not every root has */
    if (msgctl(own, IPC_SET, &s) == -1) {
        CHECK_EQ(errno, EPERM);
        s.msg_qbytes = 15000;
        OK(msgctl(own, IPC_SET, &s));
    }
    OK(put(readable, 1, "text", 0));
    pid_t waits = FORK();
    if (waits == 0) {
        BECOME(NOBODY, NOBODY);
        ERR(msgrcv(readable, &in, 10, 7, 0), EACCES);
        _exit(0);
    }
    wait_asleep(waits);
    IN_CHILD({
        BECOME(NOBODY, NOBODY);
        struct msqid_ds t;
        ERR(msgget(key, 0400), EACCES);
        ERR(put(closed, 1, "x", 0), EACCES);
        ERR(msgrcv(closed, &in, 10, 0, IPC_NOWAIT), EACCES);
        ERR(msgctl(closed, IPC_STAT, &t), EACCES);
        ERR(msgctl(closed & 0x7fff, MSG_STAT, &t), EACCES);
        CHECK_EQ(OK(msgctl(closed & 0x7fff, MSG_STAT_ANY, &t)), closed);
        ERR(msgctl(closed, IPC_SET, &t), EPERM);
        ERR(msgctl(closed, IPC_RMID, NULL), EPERM);
        ERR(put(readable, 1, "x", 0), EACCES);
        got(readable, 0, 0, 1, "text");
        t = status(own);
        CHECK(t.msg_qbytes >= 15000);
        t.msg_qbytes = 20000;
        ERR(msgctl(own, IPC_SET, &t), EPERM);
        t.msg_qbytes = 100;
        OK(msgctl(own, IPC_SET, &t));
        OK(msgctl(own, IPC_RMID, NULL));
    });
    s = status(readable);
    s.msg_perm.mode = 0600;
    OK(msgctl(readable, IPC_SET, &s)); /* who waits may no longer */
    EXITS(waits, 0);
}

TEST(what_the_system_has) {
    int id = fresh();
    OK(put(id, 1, "text", 0));
    struct msginfo info;
    CHECK(OK(msgctl(0, IPC_INFO, (void *)&info)) >= (id & 0x7fff));
    CHECK_EQ(info.msgssz, 16);
    CHECK_EQ(info.msgseg, 0xffff);
    CHECK(info.msgmax >= 8192);
    CHECK(OK(msgctl(0, MSG_INFO, (void *)&info)) >= (id & 0x7fff));
    CHECK(info.msgpool >= 1);
    CHECK(info.msgmap >= 1);
    CHECK(info.msgtql >= 5);
    ERR(msgctl(0, MSG_INFO, BAD), EFAULT);
    struct msqid_ds s;
    CHECK_EQ(OK(msgctl(id & 0x7fff, MSG_STAT, &s)), id);
    CHECK_EQ(s.msg_qnum, 1);
    ERR(msgctl(0x7ffe, MSG_STAT, &s), EINVAL);
}

static bool shown_in(const char *path, const char *wanted) {
    static char text[1 << 18];
    if (get_file(path, text, sizeof text) < 0)
        FAIL("%s: %s", path, strerror(errno));
    return strstr(text, wanted) != NULL;
}

TEST(files_show_queues) {
    key_t key = some_key(1);
    int id = keep(OK(msgget(key, IPC_CREAT | 0640)));
    OK(put(id, 1, "text", 0));
    char line[256];
    snprintf(line, sizeof line, "%10d %10d  %4o  %10u %10u %5u %5u %5u %5u %5u %5u ", key, id, 0640,
             5, 1, getpid(), 0, geteuid(), getegid(), geteuid(), getegid());
    CHECK(shown_in("/proc/sysvipc/msg", line));
    CHECK(shown_in("/proc/sysvipc/msg",
                   "       key      msqid perms      cbytes       qnum lspid lrpid   uid   gid  cuid"
                   "  cgid      stime      rtime      ctime\n"));
}

#define SYSCTL(name, text) hy_sysctl(__FILE__, __LINE__, "/proc/sys/kernel/" name, text)

TEST(limits_are_kept) {
    if (geteuid() != 0)
        SKIP("needs root");
    int id = fresh();
    SYSCTL("msgmax", "100");
    struct message out = {.type = 1};
    ERR(msgsnd(id, &out, 101, 0), EINVAL);
    OK(msgsnd(id, &out, 100, 0));
    SYSCTL("msgmnb", "50");
    int small = fresh();
    CHECK_EQ(status(small).msg_qbytes, 50);
    ERR(msgsnd(small, &out, 51, IPC_NOWAIT), EAGAIN);
    struct msginfo info;
    OK(msgctl(0, MSG_INFO, (void *)&info));
    char text[16];
    snprintf(text, sizeof text, "%d", info.msgpool);
    SYSCTL("msgmni", text);
    ERR(msgget(IPC_PRIVATE, 0600), ENOSPC);
}

TEST(a_storm_of_messages) {
    enum { PAIRS = 3, TURNS = 2000 };
    int id = fresh();
    pid_t children[2 * PAIRS];
    for (int i = 0; i < 2 * PAIRS; i++) {
        children[i] = FORK();
        if (children[i] == 0) {
            struct message m;
            long type = 1 + i / 2;
            for (int turn = 0; turn < TURNS; turn++) {
                if (i % 2) {
                    m.type = type;
                    memcpy(m.text, &turn, sizeof turn);
                    OK(msgsnd(id, &m, (size_t)(sizeof turn + turn % 3000), 0));
                } else {
                    int seen;
                    CHECK_EQ(OK(msgrcv(id, &m, 8192, type, 0)), sizeof turn + turn % 3000);
                    memcpy(&seen, m.text, sizeof seen);
                    CHECK_EQ(seen, turn);
                }
            }
            _exit(0);
        }
    }
    for (int i = 0; i < 2 * PAIRS; i++)
        EXITS(children[i], 0);
    CHECK_EQ(status(id).msg_qnum, 0);
}
