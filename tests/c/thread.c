/* Threads: futex, robust lists, TLS, pthread primitives, exits, exec from a thread. */
#define AREA "thread"
#include "harness.h"

/* include/uapi/linux/futex.h */
enum {
    WAIT_OP = 0,
    WAKE_OP_ = 1,
    REQUEUE_OP = 3,
    CMP_REQUEUE_OP = 4,
    FUTEX_WAKE_OP_ = 5,
    WAIT_BITSET_OP = 9,
    WAKE_BITSET_OP = 10,
    PRIVATE = 128,
    REALTIME = 256,
};
#define ALL_BITS 0xffffffffu

static long futex(volatile int *word, int op, int val, const struct timespec *t, void *word2,
                  unsigned val3) {
    return syscall(SYS_futex, word, op, val, t, word2, val3);
}

static pid_t tid(void) { return (pid_t)syscall(SYS_gettid); }

static pthread_t start(void *(*run)(void *), void *arg) {
    pthread_t t;
    ZERO(pthread_create(&t, NULL, run, arg));
    return t;
}

/* ---- futex words ------------------------------------------------------------------------------ */

TEST(futex_wait_with_another_value_is_eagain) {
    int word = 5;
    ERR(futex(&word, WAIT_OP | PRIVATE, 6, NULL, NULL, 0), EAGAIN);
    ERR(futex(&word, WAIT_OP, 4, NULL, NULL, 0), EAGAIN);
}

TEST(futex_wait_times_out) {
    int word = 0;
    struct timespec t = {0, 30 * MS};
    int64_t from = now_ns(CLOCK_MONOTONIC);
    ERR(futex(&word, WAIT_OP | PRIVATE, 0, &t, NULL, 0), ETIMEDOUT);
    CHECK(now_ns(CLOCK_MONOTONIC) - from >= 30 * MS);
}

TEST(futex_absolute_timeouts_on_both_clocks) {
    int word = 0;
    for (int realtime = 0; realtime < 2; realtime++) {
        clockid_t clock = realtime ? CLOCK_REALTIME : CLOCK_MONOTONIC;
        int op = WAIT_BITSET_OP | PRIVATE | (realtime ? REALTIME : 0);
        struct timespec t;
        OK(clock_gettime(clock, &t));
        int64_t until = (int64_t)t.tv_sec * 1000000000 + t.tv_nsec + 30 * MS;
        t = (struct timespec){until / 1000000000, until % 1000000000};
        ERR(futex(&word, op, 0, &t, NULL, ALL_BITS), ETIMEDOUT);
        CHECK(now_ns(clock) >= until);
        t = (struct timespec){0, 1}; /* long past */
        ERR(futex(&word, op, 0, &t, NULL, ALL_BITS), ETIMEDOUT);
    }
}

TEST(futex_argument_errors) {
    int words[2] = {0, 0};
    struct timespec bad = {0, 1000000000}, negative = {-1, 0};
    ERR(futex((int *)((char *)words + 1), WAIT_OP, 0, NULL, NULL, 0), EINVAL);
    ERR(futex(words, WAIT_OP, 0, &bad, NULL, 0), EINVAL);
    ERR(futex(words, WAIT_OP, 0, &negative, NULL, 0), EINVAL);
    ERR(futex(words, WAIT_OP, 0, BAD, NULL, 0), EFAULT);
    ERR(futex(BAD, WAIT_OP | PRIVATE, 0, NULL, NULL, 0), EFAULT);
    ERR(futex(BAD, WAKE_OP_, 1, NULL, NULL, 0), EFAULT); /* a shared one needs a page */
    ERR(futex(words, WAIT_BITSET_OP, 0, NULL, NULL, 0), EINVAL);
    ERR(futex(words, WAKE_BITSET_OP, 1, NULL, NULL, 0), EINVAL);
    ERR(futex(words, 77, 0, NULL, NULL, 0), ENOSYS);
    ERR(futex((int *)KERNEL_ADDRESS, WAIT_OP | PRIVATE, 0, NULL, NULL, 0), EFAULT);
}

TEST(futex_wake_without_waiters_is_zero) {
    int word = 0;
    CHECK_EQ(OK(futex(&word, WAKE_OP_ | PRIVATE, 1, NULL, NULL, 0)), 0);
    CHECK_EQ(OK(futex(&word, WAKE_OP_, INT_MAX, NULL, NULL, 0)), 0);
}

struct sleeper {
    volatile int *word;
    int op;
    unsigned bits;
    volatile pid_t tid;
    _Atomic int woken;
    long result;
    int error;
};
static void *sleeper(void *arg) {
    struct sleeper *s = arg;
    s->tid = tid();
    s->result = futex(s->word, s->op, 0, NULL, NULL, s->bits);
    s->error = errno;
    atomic_store(&s->woken, 1);
    return NULL;
}
static void put_to_sleep(struct sleeper *s, pthread_t *t, int count, volatile int *word, int op,
                         unsigned bits) {
    for (int i = 0; i < count; i++) {
        s[i] = (struct sleeper){.word = word, .op = op, .bits = bits};
        t[i] = start(sleeper, &s[i]);
    }
    for (int i = 0; i < count; i++) {
        EVENTUALLY(s[i].tid != 0);
        wait_asleep(s[i].tid);
    }
}
static int woken(struct sleeper *s, int count) {
    int n = 0;
    for (int i = 0; i < count; i++)
        n += atomic_load(&s[i].woken);
    return n;
}

TEST(futex_wake_wakes_as_many_as_asked) {
    enum { N = 5 };
    static struct sleeper s[N];
    static volatile int word;
    pthread_t t[N];
    put_to_sleep(s, t, N, &word, WAIT_OP | PRIVATE, 0);
    CHECK_EQ(OK(futex(&word, WAKE_OP_ | PRIVATE, 2, NULL, NULL, 0)), 2);
    EVENTUALLY(woken(s, N) == 2);
    msleep(20);
    CHECK_EQ(woken(s, N), 2);
    CHECK_EQ(OK(futex(&word, WAKE_OP_ | PRIVATE, INT_MAX, NULL, NULL, 0)), 3);
    for (int i = 0; i < N; i++) {
        ZERO(pthread_join(t[i], NULL));
        CHECK_EQ(s[i].result, 0);
    }
}

TEST(futex_bitset_selects) {
    static struct sleeper s[4];
    static volatile int word;
    pthread_t t[4];
    put_to_sleep(s, t, 2, &word, WAIT_BITSET_OP | PRIVATE, 1);
    put_to_sleep(s + 2, t + 2, 2, &word, WAIT_BITSET_OP | PRIVATE, 6);
    CHECK_EQ(OK(futex(&word, WAKE_BITSET_OP | PRIVATE, INT_MAX, NULL, NULL, 8)), 0);
    CHECK_EQ(OK(futex(&word, WAKE_BITSET_OP | PRIVATE, INT_MAX, NULL, NULL, 2)), 2);
    EVENTUALLY(s[2].woken && s[3].woken);
    CHECK(!s[0].woken && !s[1].woken);
    CHECK_EQ(OK(futex(&word, WAKE_OP_ | PRIVATE, INT_MAX, NULL, NULL, 0)), 2);
    for (int i = 0; i < 4; i++)
        ZERO(pthread_join(t[i], NULL));
}

TEST(futex_requeue_moves_waiters) {
    static struct sleeper s[4];
    static volatile int from, to;
    pthread_t t[4];
    put_to_sleep(s, t, 4, &from, WAIT_OP | PRIVATE, 0);
    from = 1;
    ERR(futex(&from, CMP_REQUEUE_OP | PRIVATE, 1, (void *)(long)INT_MAX, (void *)&to, 0), EAGAIN);
    CHECK_EQ(OK(futex(&from, CMP_REQUEUE_OP | PRIVATE, 1, (void *)2L, (void *)&to, 1)), 3);
    EVENTUALLY(woken(s, 4) == 1);
    CHECK_EQ(OK(futex(&to, WAKE_OP_ | PRIVATE, INT_MAX, NULL, NULL, 0)), 2);
    CHECK_EQ(OK(futex(&from, WAKE_OP_ | PRIVATE, INT_MAX, NULL, NULL, 0)), 1);
    for (int i = 0; i < 4; i++) {
        ZERO(pthread_join(t[i], NULL));
        CHECK_EQ(s[i].result, 0);
    }
}

TEST(futex_requeue_without_comparison) {
    static struct sleeper s[3];
    static volatile int from, to;
    pthread_t t[3];
    put_to_sleep(s, t, 3, &from, WAIT_OP | PRIVATE, 0);
    /* futex(2) promises the woken only; kernel/futex/requeue.c has always counted the moved, too */
    CHECK_EQ(OK(futex(&from, REQUEUE_OP | PRIVATE, 1, (void *)10L, (void *)&to, 0)), 3);
    CHECK_EQ(OK(futex(&from, WAKE_OP_ | PRIVATE, 9, NULL, NULL, 0)), 0);
    CHECK_EQ(OK(futex(&to, WAKE_OP_ | PRIVATE, 9, NULL, NULL, 0)), 2);
    for (int i = 0; i < 3; i++)
        ZERO(pthread_join(t[i], NULL));
}

TEST(futex_wake_op_changes_and_wakes_two_words) {
    static struct sleeper s[2];
    static volatile int a, b;
    pthread_t t[2];
    put_to_sleep(s, t, 1, &a, WAIT_OP | PRIVATE, 0);
    put_to_sleep(s + 1, t + 1, 1, &b, WAIT_OP | PRIVATE, 0);
    /* b += 3 (op ADD 1, oparg 3), wake waiters of b when its old value == 0 (cmp EQ 0) */
    unsigned op = 1u << 28 | 0u << 24 | 3u << 12;
    CHECK_EQ(OK(futex(&a, FUTEX_WAKE_OP_ | PRIVATE, 1, (void *)1L, (void *)&b, op)), 2);
    CHECK_EQ(b, 3);
    ZERO(pthread_join(t[0], NULL));
    ZERO(pthread_join(t[1], NULL));
}

TEST(shared_futex_works_over_processes) {
    int *p = SHARED(PAGE);
    pid_t pid = FORK();
    if (pid == 0) {
        while (*(volatile int *)p == 0)
            futex(p, WAIT_OP, 0, NULL, NULL, 0);
        _exit(p[0]);
    }
    wait_asleep(pid);
    p[0] = 9;
    CHECK_EQ(OK(futex(p, WAKE_OP_, 1, NULL, NULL, 0)), 1);
    EXITS(pid, 9);
}

TEST(shared_futex_in_a_file_at_two_addresses) {
    int fd = OK(open("f", O_RDWR | O_CREAT, 0600));
    OK(ftruncate(fd, (off_t)PAGE));
    int *p = OK(mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
    pid_t pid = FORK();
    if (pid == 0) {
        int *q = OK(mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
        OK(munmap(p, PAGE));
        while (*(volatile int *)q == 0)
            futex(q, WAIT_OP, 0, NULL, NULL, 0);
        _exit(0);
    }
    wait_asleep(pid);
    *p = 1;
    EVENTUALLY(futex(p, WAKE_OP_, 1, NULL, NULL, 0) == 1 || kill(pid, 0) == -1 ||
               waitpid(pid, NULL, WNOHANG | WNOWAIT) != 0);
    EXITS(pid, 0);
}

static void on_signal(int sig UNUSED) {}

TEST(futex_wait_is_interrupted_by_a_signal) {
    /* With a timeout and without SA_RESTART: EINTR (futex(2)). */
    static struct sleeper s;
    static volatile int word;
    struct sigaction act = {.sa_handler = on_signal};
    OK(sigaction(SIGUSR1, &act, NULL));
    pthread_t t;
    put_to_sleep(&s, &t, 1, &word, WAIT_OP | PRIVATE, 0);
    ZERO(pthread_kill(t, SIGUSR1));
    ZERO(pthread_join(t, NULL));
    CHECK_EQ(s.result, -1);
    CHECK_EQ(s.error, EINTR);
}

TEST(futex_wait_restarts_with_sa_restart) {
    static struct sleeper s;
    static volatile int word;
    struct sigaction act = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    OK(sigaction(SIGUSR1, &act, NULL));
    pthread_t t;
    put_to_sleep(&s, &t, 1, &word, WAIT_OP | PRIVATE, 0);
    ZERO(pthread_kill(t, SIGUSR1));
    msleep(30);
    CHECK(!s.woken);
    wait_asleep(s.tid);
    CHECK_EQ(OK(futex(&word, WAKE_OP_ | PRIVATE, 1, NULL, NULL, 0)), 1);
    ZERO(pthread_join(t, NULL));
    CHECK_EQ(s.result, 0);
}

/* ---- robust lists -------------------------------------------------------------------------------- */

struct robust {
    struct robust *next;
    volatile int word;
};
struct robust_head {
    struct robust *list;
    long offset;
    struct robust *pending;
};

TEST(robust_list_marks_the_owner_died) {
    struct robust *lock = SHARED(PAGE);
    struct robust_head *head = SHARED(PAGE);
    GATE(held);
    GATE(go);
    pid_t pid = FORK();
    if (pid == 0) {
        head->offset = offsetof(struct robust, word);
        head->list = lock;
        lock->next = (struct robust *)head;
        OK(syscall(SYS_set_robust_list, head, sizeof *head));
        lock->word = tid();
        gate_open(&held);
        gate_pass(&go);
        _exit(0);
    }
    gate_pass(&held);
    pid_t waiter = FORK();
    if (waiter == 0) {
        int seen = lock->word;
        CHECK(seen != 0);
        __sync_fetch_and_or(&lock->word, (int)0x80000000); /* FUTEX_WAITERS */
        while (!(lock->word & 0x40000000))
            futex(&lock->word, WAIT_OP, lock->word, NULL, NULL, 0);
        _exit(0);
    }
    wait_asleep(waiter);
    gate_open(&go);
    EXITS(pid, 0);
    EXITS(waiter, 0);
    CHECK_EQ(lock->word & 0x3fffffff, 0);
    CHECK(lock->word & 0x40000000); /* FUTEX_OWNER_DIED */
}

TEST(robust_list_calls_and_errors) {
    struct robust_head *head;
    size_t size;
    OK(syscall(SYS_get_robust_list, 0, &head, &size));
    CHECK_EQ(size, sizeof(struct robust_head));
    ERR(syscall(SYS_set_robust_list, NULL, 5L), EINVAL);
    ERR(syscall(SYS_get_robust_list, 0x3ffffff0, &head, &size), ESRCH);
    ERR(syscall(SYS_get_robust_list, 0, BAD, &size), EFAULT);
}

TEST(circular_robust_list_does_not_hang_exit) {
    pid_t pid = FORK();
    if (pid == 0) {
        static struct robust a, b;
        static struct robust_head head;
        head = (struct robust_head){&a, offsetof(struct robust, word), NULL};
        a.next = &b, b.next = &a; /* never comes back to the head */
        syscall(SYS_set_robust_list, &head, sizeof head);
        _exit(3);
    }
    EXITS(pid, 3);
    pid = FORK();
    if (pid == 0) {
        syscall(SYS_set_robust_list, BAD, sizeof(struct robust_head)); /* an allegation */
        _exit(4);
    }
    EXITS(pid, 4);
}

TEST(pthread_robust_mutex_over_process_death) {
    pthread_mutex_t *m = SHARED(PAGE);
    pthread_mutexattr_t attr;
    ZERO(pthread_mutexattr_init(&attr));
    ZERO(pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED));
    ZERO(pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST));
    ZERO(pthread_mutex_init(m, &attr));
    pid_t pid = FORK();
    if (pid == 0) {
        ZERO(pthread_mutex_lock(m));
        kill(getpid(), SIGKILL);
    }
    KILLED(pid, SIGKILL);
    CHECK_EQ(pthread_mutex_lock(m), EOWNERDEAD);
    ZERO(pthread_mutex_consistent(m));
    ZERO(pthread_mutex_unlock(m));
    ZERO(pthread_mutex_lock(m));
}

/* ---- threads ------------------------------------------------------------------------------------ */

static void *report_ids(void *arg) {
    pid_t *ids = arg;
    ids[0] = getpid();
    ids[1] = tid();
    ids[2] = getppid();
    return arg;
}

TEST(threads_share_the_pid_and_have_own_tids) {
    pid_t ids[3];
    pthread_t t = start(report_ids, ids);
    void *result;
    ZERO(pthread_join(t, &result));
    CHECK(result == ids);
    CHECK_EQ(ids[0], getpid());
    CHECK(ids[1] != getpid());
    CHECK_EQ(ids[2], getppid());
    CHECK_EQ(tid(), getpid());
}

static __thread int tls_zero;
static __thread int tls_init = 77;
static void *check_tls(void *arg) {
    if (tls_zero != 0 || tls_init != 77)
        FAIL("fresh TLS is %d and %d", tls_zero, tls_init);
    for (int i = 0; i < 2000; i++) {
        tls_zero = (int)(long)arg;
        tls_init = (int)(long)arg * 2;
        if (i % 100 == 0)
            sched_yield();
        if (tls_zero != (int)(long)arg || tls_init != (int)(long)arg * 2)
            FAIL("TLS of thread %ld is %d and %d", (long)arg, tls_zero, tls_init);
    }
    return NULL;
}

TEST(tls_is_each_threads_own) {
    pthread_t t[8];
    tls_zero = -1;
    for (long i = 0; i < 8; i++)
        t[i] = start(check_tls, (void *)(i + 1));
    for (int i = 0; i < 8; i++)
        ZERO(pthread_join(t[i], NULL));
    CHECK_EQ(tls_zero, -1);
    CHECK_EQ(tls_init, 77);
}

static long counter;
static pthread_mutex_t counter_lock = PTHREAD_MUTEX_INITIALIZER;
static void *count(void *arg) {
    for (long i = 0; i < (long)arg; i++) {
        pthread_mutex_lock(&counter_lock);
        counter++;
        pthread_mutex_unlock(&counter_lock);
    }
    return NULL;
}

TEST(mutex_protects_a_counter) {
    pthread_t t[8];
    for (int i = 0; i < 8; i++)
        t[i] = start(count, (void *)5000L);
    for (int i = 0; i < 8; i++)
        ZERO(pthread_join(t[i], NULL));
    CHECK_EQ(counter, 40000);
}

static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
static int turn;
static void *ping_pong(void *arg) {
    int me = (int)(long)arg;
    for (int i = 0; i < 300; i++) {
        pthread_mutex_lock(&counter_lock);
        while (turn != me)
            pthread_cond_wait(&cond, &counter_lock);
        turn = (me + 1) % 3;
        counter++;
        pthread_cond_broadcast(&cond);
        pthread_mutex_unlock(&counter_lock);
    }
    return NULL;
}

TEST(condition_variable_passes_the_turn) {
    pthread_t t[3];
    for (long i = 0; i < 3; i++)
        t[i] = start(ping_pong, (void *)i);
    for (int i = 0; i < 3; i++)
        ZERO(pthread_join(t[i], NULL));
    CHECK_EQ(counter, 900);
    CHECK_EQ(turn, 0);
}

TEST(condition_timed_wait_times_out) {
    struct timespec t;
    OK(clock_gettime(CLOCK_REALTIME, &t));
    t.tv_nsec += 20 * MS;
    if (t.tv_nsec >= 1000000000)
        t.tv_sec++, t.tv_nsec -= 1000000000;
    ZERO(pthread_mutex_lock(&counter_lock));
    CHECK_EQ(pthread_cond_timedwait(&cond, &counter_lock, &t), ETIMEDOUT);
    ZERO(pthread_mutex_unlock(&counter_lock));
}

static pthread_barrier_t barrier;
static _Atomic int phase[4], serials;
static void *barrier_user(void *arg UNUSED) {
    for (int i = 0; i < 4; i++) {
        atomic_fetch_add(&phase[i], 1);
        int r = pthread_barrier_wait(&barrier);
        if (r == PTHREAD_BARRIER_SERIAL_THREAD)
            atomic_fetch_add(&serials, 1);
        else if (r)
            FAIL("pthread_barrier_wait: %d", r);
        if (atomic_load(&phase[i]) != 6)
            FAIL("passed the barrier with %d of 6", atomic_load(&phase[i]));
        pthread_barrier_wait(&barrier);
    }
    return NULL;
}

TEST(barrier_holds_until_all_are_there) {
    pthread_t t[6];
    ZERO(pthread_barrier_init(&barrier, NULL, 6));
    for (int i = 0; i < 6; i++)
        t[i] = start(barrier_user, NULL);
    for (int i = 0; i < 6; i++)
        ZERO(pthread_join(t[i], NULL));
    CHECK_EQ(serials, 4);
}

static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
static volatile long pair[2];
static void *rw_user(void *arg) {
    for (int i = 0; i < 400; i++) {
        if ((long)arg == 0) {
            pthread_rwlock_wrlock(&rwlock);
            pair[0]++;
            if (i % 50 == 0)
                sched_yield();
            pair[1]++;
        } else {
            pthread_rwlock_rdlock(&rwlock);
            if (pair[0] != pair[1])
                FAIL("reader saw %ld and %ld", pair[0], pair[1]);
        }
        pthread_rwlock_unlock(&rwlock);
    }
    return NULL;
}

TEST(readers_and_writers) {
    pthread_t t[5];
    for (long i = 0; i < 5; i++)
        t[i] = start(rw_user, (void *)(i % 2));
    for (int i = 0; i < 5; i++)
        ZERO(pthread_join(t[i], NULL));
    CHECK_EQ(pair[0], 1200);
}

static void *nothing(void *arg) { return arg; }

TEST(create_and_join_a_thousand_threads) {
    for (long i = 0; i < 1000; i++) {
        pthread_t t = start(nothing, (void *)i);
        void *r;
        ZERO(pthread_join(t, &r));
        CHECK_EQ((long)r, i);
    }
}

static void *wait_at_gate(void *arg) {
    gate_pass(arg);
    return NULL;
}

TEST(hundred_threads_alive_at_once) {
    GATE(go);
    pthread_t t[100];
    for (int i = 0; i < 100; i++)
        t[i] = start(wait_at_gate, &go);
    for (int i = 0; i < 100; i++)
        gate_open(&go);
    for (int i = 0; i < 100; i++)
        ZERO(pthread_join(t[i], NULL));
}

static void *forever(void *arg) {
    for (volatile unsigned i = 0;; i++)
        if (!arg) /* else it spins */
            pause();
    return NULL;
}

TEST(exit_group_ends_blocked_and_spinning_threads) {
    pid_t pid = FORK();
    if (pid == 0) {
        for (long i = 0; i < 6; i++)
            start(forever, (void *)(i % 2));
        msleep(20);
        _exit(5);
    }
    EXITS(pid, 5);
}

static void *exit_from_thread(void *arg) {
    _exit((int)(long)arg);
    return NULL;
}

TEST(exit_group_from_another_thread) {
    pid_t pid = FORK();
    if (pid == 0) {
        start(exit_from_thread, (void *)8L);
        for (;;)
            pause();
    }
    EXITS(pid, 8);
}

TEST(fatal_signal_to_one_thread_ends_all) {
    pid_t pid = FORK();
    if (pid == 0) {
        pthread_t t = start(forever, NULL);
        start(forever, (void *)1L);
        pthread_kill(t, SIGTERM);
        for (;;)
            pause();
    }
    KILLED(pid, SIGTERM);
}

static void *outlive(void *arg) {
    gate_pass(arg);
    msleep(20);
    exit(6);
}

TEST(process_lives_on_after_its_first_thread) {
    GATE(go);
    pid_t pid = FORK();
    if (pid == 0) {
        start(outlive, &go);
        gate_open(&go);
        syscall(SYS_exit, 1); /* only this thread */
    }
    EXITS(pid, 6);
}

static void *tell_and_end_all(void *gate) {
    pid_t tid = (pid_t)syscall(SYS_gettid);
    if (write(((struct gate *)gate)->fd[1], &tid, sizeof tid) != sizeof tid)
        FAIL("write: %s", strerror(errno));
    msleep(20);
    _exit(0);
}

/* The number of a thread is free with the process, also if the first thread ended before it. */
TEST(number_of_the_last_thread_is_free_after_the_wait) {
    for (int round = 0; round < 3; round++) {
        GATE(gate);
        pid_t pid = FORK();
        if (pid == 0) {
            pthread_t thread;
            ZERO(pthread_create(&thread, NULL, tell_and_end_all, &gate));
            syscall(SYS_exit, 0);
        }
        pid_t tid = 0;
        CHECK_EQ(read(gate.fd[0], &tid, sizeof tid), sizeof tid);
        EXITS(pid, 0);
        CHECK(tid > 0 && tid != pid);
        ERR(syscall(SYS_tkill, tid, 0), ESRCH);
        /* And one that did not end by itself. */
        pid = FORK();
        if (pid == 0) {
            pthread_t thread;
            ZERO(pthread_create(&thread, NULL, tell_and_end_all, &gate));
            CHECK_EQ(read(gate.fd[0], &tid, sizeof tid), sizeof tid);
            if (write(gate.fd[1], &tid, sizeof tid) != sizeof tid)
                FAIL("write: %s", strerror(errno));
            _exit(0);
        }
        EXITS(pid, 0);
        CHECK_EQ(read(gate.fd[0], &tid, sizeof tid), sizeof tid);
        ERR(syscall(SYS_tkill, tid, 0), ESRCH);
        close(gate.fd[0]);
        close(gate.fd[1]);
    }
}

TEST(leader_exited_process_cannot_be_reaped_early) {
    GATE(go);
    pid_t pid = FORK();
    if (pid == 0) {
        start(outlive, &go);
        syscall(SYS_exit, 1);
    }
    msleep(50);
    CHECK_EQ(OK(waitpid(pid, NULL, WNOHANG)), 0); /* not a zombie for wait while threads live */
    gate_open(&go);
    EXITS(pid, 6);
}

static void *exec_here(void *arg UNUSED) {
    char own[16];
    snprintf(own, sizeof own, "%d", getpid());
    execl(hy_self, hy_self, "--helper", "after_exec", own, (char *)NULL);
    _exit(99);
}

TEST(exec_from_a_thread_replaces_the_process) {
    /* All other threads vanish; the caller takes over the leader's id (execve(2)). */
    pid_t pid = FORK();
    if (pid == 0) {
        start(forever, NULL);
        start(forever, (void *)1L);
        start(exec_here, NULL);
        for (;;)
            pause();
    }
    EXITS(pid, 0);
}

static void *exec_when_alone(void *arg) {
    msleep(50);
    return exec_here(arg);
}

TEST(exec_from_the_last_thread_takes_the_number_of_the_first) {
    pid_t pid = FORK();
    if (pid == 0) {
        start(exec_when_alone, NULL);
        syscall(SYS_exit, 1); /* only this thread */
    }
    EXITS(pid, 0);
}
HELPER(after_exec) {
    if (getpid() != atoi(argv[1]))
        return 1;
    if (tid() != getpid())
        return 2;
    int threads = 0;
    DIR *dir = opendir("/proc/self/task");
    struct dirent *e;
    while (dir && (e = readdir(dir)))
        threads += e->d_name[0] != '.';
    return !dir || threads == 1 ? 0 : 3;
}

static void *fork_here(void *arg) {
    pid_t pid = FORK();
    if (pid == 0)
        _exit(tid() == getpid() ? 11 : 1);
    *(pid_t *)arg = pid;
    return NULL;
}

TEST(fork_in_a_thread_copies_only_that_thread) {
    pid_t pid = 0;
    pthread_t other = start(forever, NULL);
    (void)other;
    ZERO(pthread_join(start(fork_here, &pid), NULL));
    EXITS(pid, 11); /* a child of the process: any thread may wait for it */
}

TEST(thread_exit_clears_and_wakes_the_tid_word) {
    /* CLONE_CHILD_CLEARTID by set_tid_address */
    static volatile int *word;
    word = SHARED(PAGE);
    *word = 1;
    pid_t pid = FORK();
    if (pid == 0) {
        CHECK_EQ(syscall(SYS_set_tid_address, word), tid());
        _exit(0);
    }
    EXITS(pid, 0);
    /* The address is only written while others use the space (mm_release in kernel/fork.c, 6.1); a
     * process that switches its mode does. */
    if (!getenv("MODE_STORM")) CHECK_EQ(*word, 1);
}

struct raw_thread {
    volatile int tid_word;
    volatile int ran;
};
static int raw_entry(void *arg) {
    ((struct raw_thread *)arg)->ran = 1;
    return 0;
}

TEST(raw_clone_thread_with_cleartid) {
    static struct raw_thread raw;
    char *stack = OK(mmap(NULL, 16 * PAGE, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0));
    raw.tid_word = -1;
    /* Without CLONE_SETTLS it runs on the creator's TLS: it only touches `raw`. */
    int got = clone(raw_entry, stack + 16 * PAGE,
                    CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM |
                        CLONE_CHILD_CLEARTID | CLONE_CHILD_SETTID,
                    &raw, NULL, NULL, &raw.tid_word);
    OK(got);
    for (int value; (value = raw.tid_word) != 0;)
        futex(&raw.tid_word, WAIT_OP, value, NULL, NULL, 0);
    CHECK_EQ(raw.ran, 1);
}

static void *send_to_self(void *arg) {
    sigset_t set;
    siginfo_t info;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    OK(syscall(SYS_tgkill, getpid(), tid(), SIGUSR1));
    struct timespec limit = {5, 0};
    /* glibc's wrapper turns SI_TKILL into SI_USER */
    CHECK_EQ(OK(syscall(SYS_rt_sigtimedwait, &set, &info, &limit, 8L)), SIGUSR1);
    CHECK_EQ(info.si_code, SI_TKILL);
    *(int *)arg = 1;
    return NULL;
}

TEST(tgkill_hits_the_named_thread_only) {
    sigset_t set, pending;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    ZERO(pthread_sigmask(SIG_BLOCK, &set, NULL));
    int got = 0;
    ZERO(pthread_join(start(send_to_self, &got), NULL));
    CHECK_EQ(got, 1);
    OK(sigpending(&pending));
    CHECK(!sigismember(&pending, SIGUSR1));
}

TEST(tgkill_errors) {
    ERR(syscall(SYS_tgkill, getpid(), 0x3ffffff0, SIGUSR1), ESRCH);
    ERR(syscall(SYS_tgkill, 0x3ffffff0, tid(), SIGUSR1), ESRCH);
    ERR(syscall(SYS_tgkill, getpid(), tid(), 65), EINVAL);
    ERR(syscall(SYS_tgkill, 0, tid(), SIGUSR1), EINVAL);
    ERR(syscall(SYS_tgkill, getpid(), -1, SIGUSR1), EINVAL);
    ERR(syscall(SYS_tkill, 0, SIGUSR1), EINVAL);
    pid_t child = FORK();
    if (child == 0) {
        pause();
        _exit(0);
    }
    ERR(syscall(SYS_tgkill, getpid(), child, SIGUSR1), ESRCH); /* another process' thread */
    OK(kill(child, SIGKILL));
    KILLED(child, SIGKILL);
}

static volatile pid_t handled_by;
static void note_thread(int sig UNUSED) { handled_by = tid(); }
static void *open_to_signals(void *arg UNUSED) {
    sigset_t set;
    sigfillset(&set);
    *(volatile pid_t *)arg = tid();
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
    while (!handled_by)
        msleep(5);
    return NULL;
}

TEST(process_signal_goes_to_a_thread_that_takes_it) {
    sigset_t set;
    static volatile pid_t worker;
    signal(SIGUSR1, note_thread);
    sigfillset(&set);
    ZERO(pthread_sigmask(SIG_BLOCK, &set, NULL));
    pthread_t t = start(open_to_signals, (void *)&worker);
    EVENTUALLY(worker != 0);
    OK(kill(getpid(), SIGUSR1));
    ZERO(pthread_join(t, NULL));
    CHECK_EQ(handled_by, worker);
}

static void cleanup_note(void *arg) { *(int *)arg += 1; }
static void *cancellable(void *arg) {
    pthread_cleanup_push(cleanup_note, arg);
    for (;;)
        pause();
    pthread_cleanup_pop(0);
    return NULL;
}

TEST(pthread_cancel_interrupts_a_blocking_call) {
    int cleaned = 0;
    void *result;
    pthread_t t = start(cancellable, &cleaned);
    msleep(10);
    ZERO(pthread_cancel(t));
    ZERO(pthread_join(t, &result));
    CHECK(result == PTHREAD_CANCELED);
    CHECK_EQ(cleaned, 1);
}

static void *close_later(void *arg) {
    msleep(20);
    close(*(int *)arg);
    return NULL;
}

TEST(descriptor_table_is_common_to_threads) {
    int fd = OK(dup(2));
    ZERO(pthread_join(start(close_later, &fd), NULL));
    ERR(fcntl(fd, F_GETFD), EBADF);
}

static volatile int mapped_stop;
static void *toucher(void *arg) {
    volatile char *p = arg;
    while (!mapped_stop)
        for (int i = 0; i < 16; i++)
            p[i * 4096] = (char)i;
    return NULL;
}

TEST(madvise_races_with_writers) {
    /* TLB shootdown: a page given back must not be written through an old translation. */
    char *p = OK(mmap(NULL, 16 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    pthread_t t[3];
    for (int i = 0; i < 3; i++)
        t[i] = start(toucher, p);
    /* Each round waits for its turn among threads that never sleep: fewer will do where that takes
     * long. */
    int64_t end = now_ns(CLOCK_MONOTONIC) + 2000 * MS;
    for (int round = 0; round < 500 && (round < 20 || now_ns(CLOCK_MONOTONIC) < end); round++) {
        OK(madvise(p, 16 * PAGE, MADV_DONTNEED));
        char *fresh =
            OK(mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
        for (size_t i = 0; i < 4 * PAGE; i += 64)
            CHECK_EQ(fresh[i], 0);
        OK(munmap(fresh, 4 * PAGE));
    }
    mapped_stop = 1;
    for (int i = 0; i < 3; i++)
        ZERO(pthread_join(t[i], NULL));
}

static char *volatile protected_page;
static _Atomic int go_write;
static void *write_when_told(void *arg UNUSED) {
    POKE(protected_page, 1); /* the translation is in this CPU's TLB now */
    atomic_store(&go_write, 1);
    while (atomic_load(&go_write) != 2)
        ;
    FAULTS(POKE(protected_page, 2), SIGSEGV, SEGV_ACCERR, protected_page);
    return NULL;
}

TEST(mprotect_reaches_other_cpus) {
    protected_page =
        OK(mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    for (int i = 0; i < 20; i++) {
        atomic_store(&go_write, 0);
        OK(mprotect(protected_page, PAGE, PROT_READ | PROT_WRITE));
        pthread_t t = start(write_when_told, NULL);
        while (atomic_load(&go_write) != 1)
            sched_yield();
        OK(mprotect(protected_page, PAGE, PROT_READ));
        atomic_store(&go_write, 2);
        ZERO(pthread_join(t, NULL));
        CHECK_EQ(*protected_page, 1);
    }
}
