/* System V semaphores: sets, operations all or none, waiting in order, undo, permissions, files. */
#define AREA "sem"
#include "harness.h"
#include <sys/ipc.h>
#include <sys/sem.h>

#ifndef SEM_STAT_ANY
#define SEM_STAT_ANY 20
#endif

union semun {
    int val;
    struct semid_ds *buf;
    unsigned short *array;
    struct seminfo *info;
};

static int made[64], count_made;
static void remove_all(void) {
    while (count_made > 0)
        semctl(made[--count_made], 0, IPC_RMID);
}
static int keep(int id) {
    if (!count_made)
        hy_at_end = remove_all;
    made[count_made++] = id;
    return id;
}
static int fresh(int count) {
    return keep(OK(semget(IPC_PRIVATE, count, 0600)));
}
static key_t some_key(int number) {
    return (key_t)(0x40000000 | (getpid() << 6) | number);
}
static struct semid_ds status(int id) {
    struct semid_ds s;
    OK(semctl(id, 0, IPC_STAT, (union semun){.buf = &s}));
    return s;
}
static int op(int id, int number, int change, int flags) {
    struct sembuf one = {(unsigned short)number, (short)change, (short)flags};
    return semop(id, &one, 1);
}
static int value(int id, int number) {
    return OK(semctl(id, number, GETVAL));
}
static void set(int id, int number, int to) {
    OK(semctl(id, number, SETVAL, (union semun){.val = to}));
}
static int waiting(int id, int number) {
    return OK(semctl(id, number, GETNCNT));
}
static int waiting_zero(int id, int number) {
    return OK(semctl(id, number, GETZCNT));
}
/* A child that makes one operation and exits with 0, or with its error. */
static pid_t operates(int id, int number, int change, int flags) {
    pid_t child = FORK();
    if (child == 0)
        _exit(op(id, number, change, flags) == 0 ? 0 : errno);
    return child;
}

TEST(sets_are_found_by_key) {
    key_t key = some_key(1);
    ERR(semget(key, 2, 0600), ENOENT);
    int id = keep(OK(semget(key, 2, IPC_CREAT | 0640)));
    CHECK_EQ(OK(semget(key, 0, 0)), id);
    CHECK_EQ(OK(semget(key, 1, IPC_CREAT)), id);
    ERR(semget(key, 3, 0), EINVAL);
    ERR(semget(key, 2, IPC_CREAT | IPC_EXCL), EEXIST);
    ERR(semget(IPC_PRIVATE, 0, 0600), EINVAL);
    ERR(semget(IPC_PRIVATE, -1, 0600), EINVAL);
    ERR(semget(IPC_PRIVATE, 1 << 20, 0600), EINVAL);
    struct semid_ds s = status(id);
    CHECK_EQ(s.sem_nsems, 2);
    CHECK_EQ(s.sem_perm.mode, 0640);
    CHECK_EQ(*(key_t *)&s.sem_perm, key);
    CHECK_EQ(s.sem_perm.cuid, geteuid());
    CHECK_EQ(s.sem_otime, 0);
    CHECK(s.sem_ctime >= time(NULL) - 5);
    OK(op(id, 0, 1, 0));
    CHECK(status(id).sem_otime >= s.sem_ctime);
}

TEST(values_are_set_and_read) {
    int id = fresh(3);
    unsigned short all[3] = {1, 32767, 3};
    OK(semctl(id, 0, SETALL, (union semun){.array = all}));
    CHECK_EQ(value(id, 1), 32767);
    CHECK_EQ(OK(semctl(id, 2, GETPID)), getpid());
    set(id, 2, 9);
    memset(all, 0, sizeof all);
    OK(semctl(id, 99, GETALL, (union semun){.array = all}));
    CHECK(all[0] == 1 && all[1] == 32767 && all[2] == 9);
    ERR(semctl(id, 0, SETVAL, (union semun){.val = 32768}), ERANGE);
    ERR(semctl(id, 0, SETVAL, (union semun){.val = -1}), ERANGE);
    ERR(semctl(id, 3, SETVAL, (union semun){.val = 1}), EINVAL);
    ERR(semctl(id, -1, SETVAL, (union semun){.val = 1}), EINVAL);
    all[1] = 32768;
    ERR(semctl(id, 0, SETALL, (union semun){.array = all}), ERANGE);
    CHECK_EQ(value(id, 0), 1);
    ERR(semctl(id, 3, GETVAL), EINVAL);
    ERR(semctl(id, -1, GETPID), EINVAL);
    ERR(semctl(id, 3, GETNCNT), EINVAL);
    ERR(semctl(id, 3, GETZCNT), EINVAL);
    ERR(semctl(id, 0, GETALL, (union semun){.array = BAD}), EFAULT);
    ERR(semctl(id, 0, SETALL, (union semun){.array = BAD}), EFAULT);
    ERR(semctl(id, 0, IPC_STAT, (union semun){.buf = BAD}), EFAULT);
    ERR(semctl(id, 0, IPC_SET, (union semun){.buf = BAD}), EFAULT);
    ERR(semctl(id, 0, 99), EINVAL);
    ERR(semctl(-1, 0, GETVAL), EINVAL);
    ERR(semctl(0x7fffffff, 0, GETVAL), EINVAL);
}

TEST(operations_happen_all_or_none) {
    int id = fresh(2);
    set(id, 0, 3);
    struct sembuf both[] = {{0, -2, 0}, {1, -1, IPC_NOWAIT}};
    ERR(semop(id, both, 2), EAGAIN);
    CHECK_EQ(value(id, 0), 3);
    set(id, 1, 1);
    OK(semop(id, both, 2));
    CHECK_EQ(value(id, 0), 1);
    CHECK_EQ(value(id, 1), 0);
    struct sembuf within[] = {{0, -1, 0}, {0, 0, 0}, {0, 5, 0}, {0, -1, 0}};
    OK(semop(id, within, 4)); /* it sees what it did itself */
    CHECK_EQ(value(id, 0), 4);
    struct sembuf much[] = {{1, 1, 0}, {0, 32767, 0}};
    ERR(semop(id, much, 2), ERANGE);
    CHECK_EQ(value(id, 1), 0);
    ERR(op(id, 0, 0, IPC_NOWAIT), EAGAIN);
    OK(op(id, 1, 0, 0));
}

TEST(operations_that_cannot_be) {
    int id = fresh(1);
    struct sembuf one = {0, 1, 0};
    ERR(semop(id, &one, 0), EINVAL);
    ERR(semop(id, BAD, 1), EFAULT);
    ERR(semop(-1, &one, 1), EINVAL);
    ERR(semop(0x7fffffff, &one, 1), EINVAL);
    ERR(op(id, 1, 1, 0), EFBIG);
    static struct sembuf many[501];
    ERR(semop(id, many, 501), E2BIG);
    OK(semop(id, many, 500));
    struct timespec bad = {0, 1000000000}, negative = {-1, 0}, some = {0, 1};
    ERR(semtimedop(id, &one, 1, &bad), EINVAL);
    ERR(semtimedop(id, &one, 1, &negative), EINVAL);
    ERR(syscall(SYS_semtimedop, id, &one, 1, BAD), EFAULT);
    ERR(syscall(SYS_semtimedop, id, BAD, 1, &some), EFAULT);
    CHECK_EQ(value(id, 0), 0);
}

TEST(waiting_takes_its_turn) {
    int id = fresh(1), order = fresh(1);
    pid_t first = FORK();
    if (first == 0)
        _exit(op(id, 0, -2, 0) == 0 && op(order, 0, 1, 0) == 0 ? 0 : errno);
    EVENTUALLY(waiting(id, 0) == 1);
    pid_t second = operates(id, 0, -1, 0);
    EVENTUALLY(waiting(id, 0) == 2);
    OK(op(id, 0, 1, 0)); /* enough for the second alone */
    EXITS(second, 0);
    CHECK_EQ(value(order, 0), 0);
    CHECK_EQ(waiting(id, 0), 1);
    OK(op(id, 0, 2, 0));
    EXITS(first, 0);
    CHECK_EQ(value(id, 0), 0);
    CHECK_EQ(OK(semctl(id, 0, GETPID)), first);
}

TEST(zero_is_waited_for) {
    int id = fresh(1);
    set(id, 0, 2);
    pid_t child = operates(id, 0, 0, 0);
    EVENTUALLY(waiting_zero(id, 0) == 1);
    CHECK_EQ(waiting(id, 0), 0);
    OK(op(id, 0, -1, 0));
    CHECK_EQ(waiting_zero(id, 0), 1);
    OK(op(id, 0, -1, 0));
    EXITS(child, 0);
    set(id, 0, 1);
    child = operates(id, 0, 0, 0);
    EVENTUALLY(waiting_zero(id, 0) == 1);
    set(id, 0, 0); /* SETVAL wakes as well */
    EXITS(child, 0);
    child = operates(id, 0, -3, 0);
    EVENTUALLY(waiting(id, 0) == 1);
    unsigned short all[1] = {4};
    OK(semctl(id, 0, SETALL, (union semun){.array = all}));
    EXITS(child, 0);
    CHECK_EQ(value(id, 0), 1);
}

TEST(a_wait_ends_in_time) {
    int id = fresh(1);
    struct sembuf take = {0, -1, 0};
    struct timespec some = {0, 30 * MS}, none = {0, 0};
    int64_t before = now_ns(CLOCK_MONOTONIC);
    ERR(semtimedop(id, &take, 1, &some), EAGAIN);
    CHECK(now_ns(CLOCK_MONOTONIC) - before >= 30 * MS);
    ERR(semtimedop(id, &take, 1, &none), EAGAIN);
    CHECK_EQ(waiting(id, 0), 0);
    set(id, 0, 1);
    OK(semtimedop(id, &take, 1, &none));
    pid_t child = FORK();
    if (child == 0) {
        struct timespec long_time = {20, 0};
        _exit(semtimedop(id, &take, 1, &long_time) == 0 ? 0 : errno);
    }
    EVENTUALLY(waiting(id, 0) == 1);
    OK(op(id, 0, 1, 0));
    EXITS(child, 0);
}

static void nothing(int signal UNUSED) {}

TEST(signals_end_a_wait) {
    int id = fresh(1);
    pid_t child = FORK();
    if (child == 0) {
        struct sigaction act = {.sa_handler = nothing, .sa_flags = SA_RESTART};
        sigaction(SIGUSR1, &act, NULL);
        ERR(op(id, 0, -1, 0), EINTR); /* whatever SA_RESTART says (signal(7)) */
        _exit(0);
    }
    EVENTUALLY(waiting(id, 0) == 1);
    msleep(20);
    OK(kill(child, SIGUSR1));
    EXITS(child, 0);
    CHECK_EQ(waiting(id, 0), 0);
    child = operates(id, 0, -1, 0);
    EVENTUALLY(waiting(id, 0) == 1);
    OK(kill(child, SIGKILL));
    KILLED(child, SIGKILL);
    EVENTUALLY(waiting(id, 0) == 0);
    OK(op(id, 0, 1, 0));
    CHECK_EQ(value(id, 0), 1);
}

TEST(removal_ends_a_wait) {
    int id = fresh(1);
    pid_t child = operates(id, 0, -1, 0);
    EVENTUALLY(waiting(id, 0) == 1);
    OK(semctl(id, 0, IPC_RMID));
    EXITS(child, EIDRM);
    ERR(op(id, 0, 1, 0), EINVAL);
    ERR(semctl(id, 0, IPC_RMID), EINVAL);
}

TEST(ends_undo) {
    int id = fresh(2);
    set(id, 0, 5);
    IN_CHILD({
        OK(op(id, 0, -3, SEM_UNDO));
        OK(op(id, 1, 2, SEM_UNDO));
        OK(op(id, 1, 4, 0));
        CHECK_EQ(value(id, 0), 2);
    });
    CHECK_EQ(value(id, 0), 5);
    CHECK_EQ(value(id, 1), 4);
    pid_t child = FORK();
    if (child == 0) {
        op(id, 0, -5, SEM_UNDO);
        pause();
    }
    EVENTUALLY(value(id, 0) == 0);
    pid_t other = operates(id, 0, -2, 0);
    EVENTUALLY(waiting(id, 0) == 1);
    OK(kill(child, SIGKILL));
    KILLED(child, SIGKILL);
    EXITS(other, 0); /* the undone operation let it go on */
    CHECK_EQ(value(id, 0), 3);
    IN_CHILD({
        OK(op(id, 0, 2, SEM_UNDO));
        OK(op(id, 0, -5, 0)); /* undoing stops at zero */
    });
    CHECK_EQ(value(id, 0), 0);
    CHECK_EQ(waiting(id, 0), 0);
}

TEST(setting_forgets_undo) {
    int id = fresh(2);
    IN_CHILD({
        OK(op(id, 0, 2, SEM_UNDO));
        OK(op(id, 1, 3, SEM_UNDO));
        set(id, 0, 9);
    });
    CHECK_EQ(value(id, 0), 9);
    CHECK_EQ(value(id, 1), 0);
    IN_CHILD({
        OK(op(id, 0, 2, SEM_UNDO));
        unsigned short all[2] = {7, 8};
        OK(semctl(id, 0, SETALL, (union semun){.array = all}));
    });
    CHECK_EQ(value(id, 0), 7);
    ERR(op(id, 0, -40, SEM_UNDO | IPC_NOWAIT), EAGAIN);
}

TEST(undo_has_a_range) {
    int id = fresh(1);
    IN_CHILD({
        OK(op(id, 0, 32767, SEM_UNDO));
        OK(op(id, 0, -32767, 0));
        OK(op(id, 0, 1, SEM_UNDO));
        ERR(op(id, 0, 1, SEM_UNDO), ERANGE);
        CHECK_EQ(value(id, 0), 1);
    });
}

TEST(undo_stays_over_exec_and_not_over_fork) {
    int id = fresh(1);
    set(id, 0, 5);
    char number[16];
    snprintf(number, sizeof number, "%d", id);
    pid_t child = FORK();
    if (child == 0) {
        op(id, 0, -3, SEM_UNDO);
        pid_t grandchild = FORK();
        if (grandchild == 0)
            _exit(0);
        EXITS(grandchild, 0);
        if (value(id, 0) != 2)
            _exit(98);
        execl(hy_self, hy_self, "--helper", "sees", number, "2", NULL);
        _exit(99);
    }
    EXITS(child, 0);
    CHECK_EQ(value(id, 0), 5);
}
HELPER(sees) {
    if (argc != 3)
        return 9;
    CHECK_EQ(value(atoi(argv[1]), 0), atoi(argv[2]));
    return 0;
}

static int shared_id;
static void *gives(void *unused UNUSED) {
    OK(op(shared_id, 0, 1, SEM_UNDO));
    return NULL;
}
static void *leaves_alone(void *unused UNUSED) {
    OK(op(shared_id, 0, 1, SEM_UNDO));
    OK(unshare(CLONE_SYSVSEM));
    return NULL;
}

TEST(threads_share_undo) {
    shared_id = fresh(1);
    IN_CHILD({
        pthread_t thread;
        ZERO(pthread_create(&thread, NULL, gives, NULL));
        ZERO(pthread_join(thread, NULL));
        msleep(20);
        CHECK_EQ(value(shared_id, 0), 1); /* the list lives on in this thread */
        ZERO(pthread_create(&thread, NULL, leaves_alone, NULL));
        ZERO(pthread_join(thread, NULL));
        CHECK_EQ(value(shared_id, 0), 2);
    });
    CHECK_EQ(value(shared_id, 0), 0);
    OK(op(shared_id, 0, 3, SEM_UNDO));
    OK(unshare(CLONE_SYSVSEM));
    CHECK_EQ(value(shared_id, 0), 0);
}

static int gives_more(void *unused UNUSED) {
    return op(shared_id, 0, 1, SEM_UNDO) == 0 ? 0 : 1;
}

TEST(processes_share_undo) {
    shared_id = fresh(1);
    char *stack = SHARED(16 * PAGE);
    IN_CHILD({
        pid_t child = OK(clone(gives_more, stack + 16 * PAGE, CLONE_SYSVSEM | SIGCHLD, NULL));
        EXITS(child, 0);
        CHECK_EQ(value(shared_id, 0), 1);
    });
    CHECK_EQ(value(shared_id, 0), 0);
    pid_t child = OK(clone(gives_more, stack + 16 * PAGE, SIGCHLD, NULL));
    EXITS(child, 0);
    CHECK_EQ(value(shared_id, 0), 0);
}

TEST(permissions) {
    if (geteuid() != 0)
        SKIP("needs root");
    key_t key = some_key(1);
    int closed = keep(OK(semget(key, 1, IPC_CREAT | 0600)));
    int readable = keep(OK(semget(IPC_PRIVATE, 1, 0604)));
    int own = fresh(1);
    struct semid_ds s = status(own);
    s.sem_perm.uid = NOBODY;
    OK(semctl(own, 0, IPC_SET, (union semun){.buf = &s}));
    IN_CHILD({
        BECOME(NOBODY, NOBODY);
        struct semid_ds t;
        union semun to = {.buf = &t};
        unsigned short all[1];
        ERR(semget(key, 1, 0400), EACCES);
        ERR(op(closed, 0, 1, 0), EACCES);
        ERR(semctl(closed, 0, IPC_STAT, to), EACCES);
        ERR(semctl(closed & 0x7fff, 0, SEM_STAT, to), EACCES);
        CHECK_EQ(OK(semctl(closed & 0x7fff, 0, SEM_STAT_ANY, to)), closed);
        ERR(semctl(closed, 0, GETVAL), EACCES);
        ERR(semctl(closed, 0, GETALL, (union semun){.array = all}), EACCES);
        ERR(semctl(closed, 0, SETVAL, (union semun){.val = 1}), EACCES);
        ERR(semctl(closed, 0, SETALL, (union semun){.array = all}), EACCES);
        ERR(semctl(closed, 0, IPC_SET, to), EPERM);
        ERR(semctl(closed, 0, IPC_RMID), EPERM);
        CHECK_EQ(value(readable, 0), 0);
        OK(op(readable, 0, 0, 0));
        ERR(op(readable, 0, 1, 0), EACCES);
        ERR(semctl(readable, 0, SETVAL, (union semun){.val = 1}), EACCES);
        OK(op(own, 0, 1, 0));
        OK(semctl(own, 0, IPC_RMID));
    });
}

TEST(what_the_system_has) {
    int id = fresh(7);
    struct seminfo info;
    CHECK(OK(semctl(0, 0, IPC_INFO, (union semun){.info = &info})) >= (id & 0x7fff));
    CHECK_EQ(info.semvmx, 32767);
    CHECK_EQ(info.semaem, 32767);
    CHECK_EQ(info.semusz, 20);
    CHECK(info.semopm >= 500);
    CHECK(OK(semctl(0, 0, SEM_INFO, (union semun){.info = &info})) >= (id & 0x7fff));
    CHECK(info.semusz >= 1);
    CHECK(info.semaem >= 7);
    ERR(semctl(0, 0, SEM_INFO, (union semun){.info = BAD}), EFAULT);
    struct semid_ds s;
    CHECK_EQ(OK(semctl(id & 0x7fff, 0, SEM_STAT, (union semun){.buf = &s})), id);
    CHECK_EQ(s.sem_nsems, 7);
    ERR(semctl(0x7ffe, 0, SEM_STAT, (union semun){.buf = &s}), EINVAL);
}

static bool shown_in(const char *path, const char *wanted) {
    static char text[1 << 18];
    if (get_file(path, text, sizeof text) < 0)
        FAIL("%s: %s", path, strerror(errno));
    return strstr(text, wanted) != NULL;
}

TEST(files_show_sets) {
    key_t key = some_key(1);
    int id = keep(OK(semget(key, 3, IPC_CREAT | 0640)));
    char line[256];
    snprintf(line, sizeof line, "%10d %10d  %4o %10u %5u %5u %5u %5u ", key, id, 0640, 3, geteuid(),
             getegid(), geteuid(), getegid());
    CHECK(shown_in("/proc/sysvipc/sem", line));
    CHECK(shown_in("/proc/sysvipc/sem", "       key      semid perms      nsems   uid   gid  cuid  "
                                        "cgid      otime      ctime\n"));
}

#define SYSCTL(name, text) hy_sysctl(__FILE__, __LINE__, "/proc/sys/kernel/" name, text)

TEST(limits_are_kept) {
    if (geteuid() != 0)
        SKIP("needs root");
    SYSCTL("sem", "32000 1024000000 3 32000");
    static struct sembuf many[4];
    int id = fresh(2);
    OK(semop(id, many, 3));
    ERR(semop(id, many, 4), E2BIG);
    struct seminfo info;
    OK(semctl(0, 0, SEM_INFO, (union semun){.info = &info}));
    char text[64];
    snprintf(text, sizeof text, "10 %d 500 32000", info.semaem + 6);
    SYSCTL("sem", text);
    ERR(semget(IPC_PRIVATE, 11, 0600), EINVAL);
    ERR(semget(IPC_PRIVATE, 7, 0600), ENOSPC);
    fresh(6);
    snprintf(text, sizeof text, "32000 1024000000 500 %d", info.semusz + 1);
    SYSCTL("sem", text);
    ERR(semget(IPC_PRIVATE, 1, 0600), ENOSPC);
}

TEST(a_storm_of_operations) {
    /* Each takes one, holds it a moment and gives it back; some are killed while they hold it. */
    enum { WORKERS = 4, TURNS = 400 };
    int id = fresh(2);
    set(id, 0, 2);
    pid_t workers[WORKERS];
    for (int i = 0; i < WORKERS; i++) {
        workers[i] = FORK();
        if (workers[i] == 0) {
            for (int turn = 0; turn < TURNS; turn++) {
                struct sembuf take[] = {{0, -1, SEM_UNDO}, {1, 1, SEM_UNDO}};
                struct sembuf give[] = {{0, 1, SEM_UNDO}, {1, -1, SEM_UNDO}};
                OK(semop(id, take, 2));
                CHECK(value(id, 1) <= 2);
                if (turn % 100 == 99) {
                    pid_t child = FORK();
                    if (child == 0) {
                        op(id, 0, -1, SEM_UNDO);
                        raise(SIGKILL);
                    }
                    OK(semop(id, give, 2));
                    KILLED(child, SIGKILL);
                } else
                    OK(semop(id, give, 2));
            }
            _exit(0);
        }
    }
    for (int i = 0; i < WORKERS; i++)
        EXITS(workers[i], 0);
    CHECK_EQ(value(id, 0), 2);
    CHECK_EQ(value(id, 1), 0);
    CHECK_EQ(waiting(id, 0), 0);
}

TEST(removal_races_with_operations) {
    for (int turn = 0; turn < 50; turn++) {
        int id = OK(semget(IPC_PRIVATE, 1, 0600));
        pid_t first = FORK();
        if (first == 0) {
            while (op(id, 0, 1, SEM_UNDO) == 0)
                ;
            _exit(errno == EIDRM || errno == EINVAL || errno == ERANGE ? 0 : errno);
        }
        pid_t second = FORK();
        if (second == 0) {
            while (op(id, 0, -1, SEM_UNDO) == 0)
                ;
            _exit(errno == EIDRM || errno == EINVAL || errno == ERANGE ? 0 : errno);
        }
        if (turn % 2)
            sched_yield();
        OK(semctl(id, 0, IPC_RMID));
        EXITS(first, 0);
        EXITS(second, 0);
    }
}
