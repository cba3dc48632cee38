/* Waiting for several futexes at once: futex_waitv(2), Documentation/userspace-api/futex2.rst. */
#define AREA "waitv"
#include "harness.h"

#ifndef SYS_futex_waitv
#define SYS_futex_waitv 449
#endif

/* include/uapi/linux/futex.h */
enum { WAKE = 1, REQUEUE = 3, CMP_REQUEUE = 4, PRIVATE = 128, SIZE_32 = 2, MOST = 128 };

struct wait {
    uint64_t value, address;
    uint32_t flags, reserved;
};

static long waitv(void *waiters, unsigned count, unsigned flags, const void *end, clockid_t clock) {
    return syscall(SYS_futex_waitv, waiters, count, flags, end, clock);
}

static long futex(volatile int *word, int op, int value, long second, volatile int *to, int third) {
    return syscall(SYS_futex, word, op, value, second, to, third);
}

static struct wait for_word(volatile int *word, int value, unsigned flags) {
    return (struct wait){(uint32_t)value, (uintptr_t)word, SIZE_32 | flags, 0};
}

static struct timespec in_ms(clockid_t clock, long ms) {
    int64_t until = now_ns(clock) + ms * MS;
    return (struct timespec){until / 1000000000, until % 1000000000};
}

/* A thread that waits for some words. */
struct waiter {
    struct wait *waits;
    unsigned count;
    struct timespec *until;
    clockid_t clock;
    volatile pid_t tid;
    volatile bool ended;
    long result;
    int error;
    pthread_t thread;
};

static void *run_waiter(void *arg) {
    struct waiter *w = arg;
    w->tid = (pid_t)syscall(SYS_gettid);
    w->result = waitv(w->waits, w->count, 0, w->until, w->clock);
    w->error = errno;
    w->ended = true;
    return NULL;
}

static void begin(struct waiter *w, struct wait *waits, unsigned count) {
    w->waits = waits, w->count = count;
    ZERO(pthread_create(&w->thread, NULL, run_waiter, w));
    EVENTUALLY(w->tid != 0);
    wait_asleep(w->tid);
}

static long result(struct waiter *w) {
    ZERO(pthread_join(w->thread, NULL));
    errno = w->error;
    return w->result;
}

TEST(errors) {
    static int words[2];
    struct wait w[2] = {for_word(&words[0], 0, PRIVATE), for_word(&words[1], 0, 0)};
    struct timespec past = {0, 1}, bad = {0, 1000000000}, negative = {-1, 0};
    ERR(waitv(w, 0, 0, NULL, 0), EINVAL);
    ERR(waitv(w, MOST + 1, 0, NULL, 0), EINVAL);
    ERR(waitv(w, UINT_MAX, 0, NULL, 0), EINVAL);
    ERR(waitv(NULL, 1, 0, NULL, 0), EINVAL);
    ERR(waitv(w, 2, 1, NULL, 0), EINVAL);
    ERR(waitv(w, 2, 0x80000000, NULL, 0), EINVAL);
    ERR(waitv(BAD, 1, 0, &past, CLOCK_MONOTONIC), EFAULT);
    ERR(waitv(KERNEL_ADDRESS, 1, 0, &past, CLOCK_MONOTONIC), EFAULT);
    ERR(waitv(w, 2, 0, BAD, CLOCK_MONOTONIC), EFAULT);
    ERR(waitv(w, 2, 0, &bad, CLOCK_MONOTONIC), EINVAL);
    ERR(waitv(w, 2, 0, &negative, CLOCK_REALTIME), EINVAL);
    ERR(waitv(w, 2, 0, &past, CLOCK_BOOTTIME), EINVAL);
    ERR(waitv(w, 2, 0, &past, CLOCK_TAI), EINVAL);
    ERR(waitv(w, 2, 0, &past, -1), EINVAL);
    ERR(waitv(w, 2, 0, &past, 99), EINVAL);
    ERR(waitv(w, 2, 0, &past, CLOCK_MONOTONIC), ETIMEDOUT);
    /* Without a time, the clock means nothing: the value is another one. */
    w[1].value = 1;
    ERR(waitv(w, 2, 0, NULL, 99), EAGAIN);
}

TEST(errors_of_a_word) {
    static int words[4];
    struct timespec past = {0, 1};
    for (unsigned at = 0; at < 2; at++) {
        struct wait good[2] = {for_word(&words[0], 0, PRIVATE), for_word(&words[1], 0, 0)}, w[2];
#define WRONG(change, error)                                                                       \
    memcpy(w, good, sizeof w);                                                                     \
    w[at].change;                                                                                  \
    ERR(waitv(w, 2, 0, &past, CLOCK_MONOTONIC), error)
        WRONG(reserved = 1, EINVAL);
        WRONG(flags = 0, EINVAL);
        WRONG(flags = PRIVATE, EINVAL);
        WRONG(flags = SIZE_32 | 256, EINVAL);
        WRONG(flags = SIZE_32 | 0x80000000, EINVAL);
        WRONG(address += 1, EINVAL);
        WRONG(address += 2, EINVAL);
        WRONG(address = 0, EFAULT);
        WRONG(address = (uintptr_t)BAD, EFAULT);
        WRONG(address = (uintptr_t)KERNEL_ADDRESS, EFAULT);
        WRONG(value = 7, EAGAIN);
    }
    /* A word that cannot be is found before values are compared, whichever comes first. */
    struct wait w[2] = {for_word(&words[0], 5, 0), for_word((int *)((char *)words + 1), 0, 0)};
    ERR(waitv(w, 2, 0, &past, CLOCK_MONOTONIC), EINVAL);
    w[1] = for_word(BAD, 0, 0);
    ERR(waitv(w, 2, 0, &past, CLOCK_MONOTONIC), EFAULT);
    /* A private one is found when it is looked at. */
    w[1].flags |= PRIVATE;
    ERR(waitv(w, 2, 0, &past, CLOCK_MONOTONIC), EAGAIN);
}

TEST(a_list_that_ends_in_nothing_is_efault) {
    int kind = MAP_PRIVATE | MAP_ANONYMOUS;
    char *pages = OK(mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, kind, -1, 0));
    static int word;
    struct wait *w = (struct wait *)(pages + PAGE) - 2;
    w[0] = w[1] = for_word(&word, 0, PRIVATE);
    OK(munmap(pages + PAGE, PAGE));
    struct timespec past = {0, 1};
    ERR(waitv(w, 2, 0, &past, CLOCK_MONOTONIC), ETIMEDOUT);
    ERR(waitv(w, 3, 0, &past, CLOCK_MONOTONIC), EFAULT);
}

TEST(times_out_on_both_clocks) {
    static int words[2];
    struct wait w[2] = {for_word(&words[0], 0, PRIVATE), for_word(&words[1], 0, 0)};
    clockid_t clocks[] = {CLOCK_MONOTONIC, CLOCK_REALTIME};
    for (int i = 0; i < 2; i++) {
        struct timespec until = in_ms(clocks[i], 30);
        ERR(waitv(w, 2, 0, &until, clocks[i]), ETIMEDOUT);
        CHECK(now_ns(clocks[i]) >= (int64_t)until.tv_sec * 1000000000 + until.tv_nsec);
        CHECK(now_ns(clocks[i]) < (int64_t)until.tv_sec * 1000000000 + until.tv_nsec + 5000 * MS);
    }
}

TEST(says_which_word_was_woken) {
    static int words[MOST];
    static struct wait w[MOST];
    for (int i = 0; i < MOST; i++)
        w[i] = for_word(&words[i], 0, PRIVATE);
    int picks[] = {0, 1, 63, 64, MOST - 1};
    for (unsigned i = 0; i < sizeof picks / sizeof *picks; i++) {
        struct waiter waiter = {0};
        begin(&waiter, w, MOST);
        CHECK_EQ(OK(futex(&words[picks[i]], WAKE | PRIVATE, 9, 0, NULL, 0)), 1);
        CHECK_EQ(OK(result(&waiter)), picks[i]);
        for (int j = 0; j < MOST; j++)
            CHECK_EQ(OK(futex(&words[j], WAKE | PRIVATE, 9, 0, NULL, 0)), 0);
    }
}

TEST(one_word_given_twice_is_two_waiters) {
    static int word;
    struct wait w[2] = {for_word(&word, 0, PRIVATE), for_word(&word, 0, PRIVATE)};
    struct waiter waiter = {0};
    begin(&waiter, w, 2);
    CHECK_EQ(OK(futex(&word, WAKE | PRIVATE, 9, 0, NULL, 0)), 2);
    long woken = OK(result(&waiter));
    CHECK(woken == 0 || woken == 1);
}

TEST(a_private_and_a_shared_word_are_not_one) {
    int *shared = SHARED(PAGE);
    static int word;
    struct wait w[2] = {for_word(&word, 0, PRIVATE), for_word(shared, 0, 0)};
    struct waiter waiter = {0};
    begin(&waiter, w, 2);
    CHECK_EQ(OK(futex(shared, WAKE | PRIVATE, 9, 0, NULL, 0)), 0);
    IN_CHILD(CHECK_EQ(OK(futex(shared, WAKE, 9, 0, NULL, 0)), 1));
    CHECK_EQ(OK(result(&waiter)), 1);
}

TEST(a_moved_waiter_is_woken_where_it_was_moved_to) {
    static int words[2], to;
    struct wait w[2] = {for_word(&words[0], 0, PRIVATE), for_word(&words[1], 0, PRIVATE)};
    for (int i = 0; i < 2; i++) {
        struct waiter waiter = {0};
        begin(&waiter, w, 2);
        ERR(futex(&words[i], CMP_REQUEUE | PRIVATE, 0, 9, &to, 5), EAGAIN);
        CHECK_EQ(OK(futex(&words[i], CMP_REQUEUE | PRIVATE, 0, 9, &to, 0)), 1);
        CHECK_EQ(OK(futex(&words[i], WAKE | PRIVATE, 9, 0, NULL, 0)), 0);
        CHECK(!waiter.ended);
        CHECK_EQ(OK(futex(&to, WAKE | PRIVATE, 9, 0, NULL, 0)), 1);
        CHECK_EQ(OK(result(&waiter)), i);
    }
}

TEST(a_moved_waiter_leaves_when_its_time_passes) {
    static int words[2], to;
    struct wait w[2] = {for_word(&words[0], 0, PRIVATE), for_word(&words[1], 0, PRIVATE)};
    struct timespec until = in_ms(CLOCK_MONOTONIC, 300);
    struct waiter waiter = {.until = &until, .clock = CLOCK_MONOTONIC};
    begin(&waiter, w, 2);
    CHECK_EQ(OK(futex(&words[1], REQUEUE | PRIVATE, 0, 9, &to, 0)), 1);
    ERR(result(&waiter), ETIMEDOUT);
    CHECK_EQ(OK(futex(&to, WAKE | PRIVATE, 9, 0, NULL, 0)), 0);
    CHECK_EQ(OK(futex(&words[0], WAKE | PRIVATE, 9, 0, NULL, 0)), 0);
}

static _Atomic int handled;
static void on_signal(int number UNUSED) { handled++; }

TEST(a_signal_ends_it_or_not) {
    static int words[2];
    struct wait w[2] = {for_word(&words[0], 0, PRIVATE), for_word(&words[1], 0, 0)};
    for (int restarts = 0; restarts < 2; restarts++) {
        struct sigaction act = {.sa_handler = on_signal, .sa_flags = restarts ? SA_RESTART : 0};
        OK(sigaction(SIGUSR1, &act, NULL));
        struct waiter waiter = {0};
        handled = 0;
        begin(&waiter, w, 2);
        ZERO(pthread_kill(waiter.thread, SIGUSR1));
        EVENTUALLY(handled == 1);
        if (restarts) {
            wait_asleep(waiter.tid);
            CHECK(!waiter.ended);
            CHECK_EQ(OK(futex(&words[1], WAKE, 9, 0, NULL, 0)), 1);
            CHECK_EQ(OK(result(&waiter)), 1);
        } else
            ERR(result(&waiter), EINTR);
    }
}

TEST(a_restarted_wait_has_the_same_end) {
    static int word;
    struct wait w = for_word(&word, 0, PRIVATE);
    struct sigaction act = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    OK(sigaction(SIGUSR1, &act, NULL));
    int64_t from = now_ns(CLOCK_MONOTONIC);
    struct timespec until = in_ms(CLOCK_MONOTONIC, 400);
    struct waiter waiter = {.until = &until, .clock = CLOCK_MONOTONIC};
    begin(&waiter, &w, 1);
    for (int i = 0; i < 4; i++) {
        ZERO(pthread_kill(waiter.thread, SIGUSR1));
        msleep(50);
    }
    ERR(result(&waiter), ETIMEDOUT);
    CHECK(now_ns(CLOCK_MONOTONIC) - from >= 400 * MS);
}

/* Sets the real-time clock on by some seconds, for those who wait for one of its times. */
static void set_clock_on(int seconds) {
    struct timespec now;
    OK(clock_gettime(CLOCK_REALTIME, &now));
    now.tv_sec += seconds;
    OK(clock_settime(CLOCK_REALTIME, &now));
}

TEST(a_wait_follows_a_clock_that_is_set) {
    static int words[2];
    struct wait w[2] = {for_word(&words[0], 0, PRIVATE), for_word(&words[1], 0, PRIVATE)};
    NEEDS_OWN_MACHINE();
    struct timespec until = in_ms(CLOCK_REALTIME, 3600 * 1000);
    struct waiter waiter = {.until = &until, .clock = CLOCK_REALTIME};
    begin(&waiter, w, 2);
    /* Set to another time that is not yet that of the end, and then past that. */
    set_clock_on(1800);
    wait_asleep(waiter.tid);
    CHECK(!waiter.ended);
    set_clock_on(1801);
    long ended = result(&waiter);
    int error = errno;
    set_clock_on(-3601);
    CHECK_EQ(ended, -1);
    CHECK_EQ(error, ETIMEDOUT);
}

/* One word, by futex(2): FUTEX_WAIT_BITSET has an end on either clock. */
static int bitset_word;
static volatile pid_t bitset_tid;
static volatile bool bitset_ended;
static struct timespec bitset_until;

static void *wait_bitset(void *unused) {
    (void)unused;
    bitset_tid = (pid_t)syscall(SYS_gettid);
    long result = syscall(SYS_futex, &bitset_word, 9 | PRIVATE | 256 /* CLOCK_REALTIME */, 0,
                          &bitset_until, NULL, -1);
    int error = errno;
    bitset_ended = true;
    return (void *)(intptr_t)(result == -1 ? error : 0);
}

static pthread_t begin_bitset(long ms) {
    pthread_t thread;
    bitset_tid = 0, bitset_ended = false;
    bitset_until = in_ms(CLOCK_REALTIME, ms);
    ZERO(pthread_create(&thread, NULL, wait_bitset, NULL));
    EVENTUALLY(bitset_tid != 0);
    wait_asleep(bitset_tid);
    return thread;
}

TEST(a_wait_for_one_word_follows_a_clock_that_is_set) {
    NEEDS_OWN_MACHINE();
    void *error;
    pthread_t thread = begin_bitset(3600 * 1000);
    set_clock_on(1800);
    wait_asleep(bitset_tid);
    CHECK(!bitset_ended);
    set_clock_on(1801);
    ZERO(pthread_join(thread, &error));
    set_clock_on(-3601);
    CHECK_EQ((intptr_t)error, ETIMEDOUT);
    /* Set back: the end is later by so much. */
    thread = begin_bitset(300);
    set_clock_on(-3600);
    msleep(600);
    bool early = bitset_ended;
    CHECK_EQ(OK(futex(&bitset_word, WAKE | PRIVATE, 9, 0, NULL, 0)), !early);
    ZERO(pthread_join(thread, &error));
    set_clock_on(3600);
    CHECK(!early);
    CHECK_EQ((intptr_t)error, 0);
}

/* Many wait until a time of the clock, and leave in another order than they came in. */
static void *wait_shortly(void *arg) {
    static int words[200];
    int *word = &words[(intptr_t)arg];
    struct timespec until = in_ms(CLOCK_REALTIME, 5 + (intptr_t)arg * 7 % 100);
    for (int i = 0; i < 5; i++) {
        errno = 0;
        long result = syscall(SYS_futex, word, 9 | PRIVATE | 256, 0, &until, NULL, -1);
        CHECK(result == -1 && errno == ETIMEDOUT);
        CHECK(now_ns(CLOCK_REALTIME) >= (int64_t)until.tv_sec * 1000000000 + until.tv_nsec);
        until = in_ms(CLOCK_REALTIME, 5 + (intptr_t)arg * 11 % 50);
    }
    return NULL;
}

TEST(many_wait_until_a_time_of_the_clock) {
    pthread_t threads[200];
    for (intptr_t i = 0; i < 200; i++)
        ZERO(pthread_create(&threads[i], NULL, wait_shortly, (void *)i));
    for (int i = 0; i < 200; i++)
        ZERO(pthread_join(threads[i], NULL));
}

/* Several threads pass a number on: each waits for two words of its own and answers by a word of
 * another. A wake-up that is lost stops them all. */
enum { PLAYERS = 4, ROUNDS = 3000 };
static int balls[PLAYERS][2];

static void *play(void *arg) {
    int me = (int)(intptr_t)arg, next = (me + 1) % PLAYERS;
    int seen[2] = {0, 0};
    for (int round = 0; round < ROUNDS; round++) {
        int lane = -1;
        while (lane < 0) {
            for (int i = 0; i < 2; i++)
                if (__atomic_load_n(&balls[me][i], __ATOMIC_SEQ_CST) != seen[i])
                    lane = i;
            if (lane >= 0)
                break;
            struct wait w[2] = {for_word(&balls[me][0], seen[0], PRIVATE),
                                for_word(&balls[me][1], seen[1], PRIVATE)};
            long woken = waitv(w, 2, 0, NULL, 0);
            if (woken == -1 && errno != EAGAIN && errno != EINTR)
                FAIL("futex_waitv: %s", strerror(errno));
        }
        seen[lane]++;
        int to = (me + round) % 2;
        __atomic_fetch_add(&balls[next][to], 1, __ATOMIC_SEQ_CST);
        OK(futex(&balls[next][to], WAKE | PRIVATE, 1, 0, NULL, 0));
    }
    return NULL;
}

TEST_TIMES(no_wake_up_is_lost, 3) {
    pthread_t players[PLAYERS];
    for (int i = 0; i < PLAYERS; i++)
        ZERO(pthread_create(&players[i], NULL, play, (void *)(intptr_t)i));
    __atomic_fetch_add(&balls[0][0], 1, __ATOMIC_SEQ_CST);
    OK(futex(&balls[0][0], WAKE | PRIVATE, 1, 0, NULL, 0));
    for (int i = 0; i < PLAYERS; i++)
        ZERO(pthread_join(players[i], NULL));
}

/* The same while somebody moves waiters from word to word all the time. */
static volatile bool over;
static int pool[3];

static void *mover(void *arg UNUSED) {
    for (unsigned i = 0; !over; i++) {
        futex(&pool[i % 3], REQUEUE | PRIVATE, 0, 1, &pool[(i + 1) % 3], 0);
        if (i % 64 == 0)
            sched_yield();
    }
    return NULL;
}

static void *pooled(void *arg) {
    struct wait w[3] = {for_word(&pool[0], 0, PRIVATE), for_word(&pool[1], 0, PRIVATE),
                        for_word(&pool[2], 0, PRIVATE)};
    for (int i = 0; i < 300; i++) {
        struct timespec until = in_ms(CLOCK_MONOTONIC, i % 3);
        long woken = waitv(w, 3, 0, &until, CLOCK_MONOTONIC);
        if (woken >= 0) {
            CHECK(woken < 3);
            atomic_fetch_add((_Atomic int *)arg, 1);
        } else if (errno != ETIMEDOUT)
            FAIL("futex_waitv: %s", strerror(errno));
    }
    return NULL;
}

TEST_TIMES(moved_waiters_are_woken_or_leave, 3) {
    static _Atomic int woken;
    pthread_t threads[3], moves;
    ZERO(pthread_create(&moves, NULL, mover, NULL));
    for (int i = 0; i < 3; i++)
        ZERO(pthread_create(&threads[i], NULL, pooled, &woken));
    long wakes = 0;
    for (int i = 0; i < 300; i++) {
        wakes += OK(futex(&pool[i % 3], WAKE | PRIVATE, 1, 0, NULL, 0));
        msleep(1);
    }
    for (int i = 0; i < 3; i++)
        ZERO(pthread_join(threads[i], NULL));
    over = true;
    ZERO(pthread_join(moves, NULL));
    /* One wait may count several wakes. Nobody stands anywhere any more. */
    CHECK(woken <= wakes);
    CHECK(wakes == 0 || woken > 0);
    for (int i = 0; i < 3; i++)
        CHECK_EQ(OK(futex(&pool[i], WAKE | PRIVATE, 9, 0, NULL, 0)), 0);
}
