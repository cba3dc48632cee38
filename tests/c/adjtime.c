/*
 * adjtimex, clock_adjtime and clocks that are set. Cases that change the clock run only where the
 * first process is the one that starts the tests, that is, in a machine of their own.
 */
#define AREA "adjtime"
#include "harness.h"
#include <sys/timex.h>

#define SECOND 1000000000LL
#define DAY 86400
#ifndef ADJ_SETOFFSET
#define ADJ_SETOFFSET 0x0100
#endif
#ifndef ADJ_NANO
#define ADJ_NANO 0x2000
#define ADJ_MICRO 0x1000
#define STA_NANO 0x2000
#endif
#ifndef ADJ_TAI
#define ADJ_TAI 0x0080
#endif
enum { SINGLESHOT = 0x8001, SINGLESHOT_READ = 0xa001, RAW = 4, TAI = 11 };

static long adjust(struct timex *t) { return syscall(SYS_adjtimex, t); }
static struct timex read_state(void) {
    struct timex t = {0};
    OK(adjust(&t));
    return t;
}
static void set_tick(long tick) {
    struct timex t = {.modes = ADJ_TICK, .tick = tick};
    OK(adjust(&t));
}
static int64_t ahead(clockid_t clock, clockid_t of) { return now_ns(clock) - now_ns(of); }

static int64_t real_at_first; /* real time ahead of monotonic time, as it was */
static void needs_own_machine(void) {
    NEEDS_OWN_MACHINE();
    struct timex t = {.modes = ADJ_ESTERROR, .esterror = 16000000};
    if (geteuid() != 0)
        SKIP("not root");
    OK(adjust(&t));
    real_at_first = ahead(CLOCK_REALTIME, CLOCK_MONOTONIC);
}
static void set_clock(int64_t ns) {
    struct timespec t = {ns / SECOND, ns % SECOND};
    OK(syscall(SYS_clock_settime, CLOCK_REALTIME, &t));
}
/* The clock as it was, as far as it can be. */
static void put_back(void) {
    struct timex t = {.modes = ADJ_TICK | ADJ_FREQUENCY | ADJ_STATUS | ADJ_MICRO | ADJ_TIMECONST,
                      .tick = 10000, .status = STA_UNSYNC};
    OK(adjust(&t));
    t = (struct timex){.modes = ADJ_TAI};
    OK(adjust(&t));
    set_clock(now_ns(CLOCK_MONOTONIC) + real_at_first);
}

TEST(state_is_read) {
    struct timex t = {.status = 77, .tick = 77};
    long state = OK(adjust(&t));
    CHECK(state >= TIME_OK && state <= TIME_ERROR);
    CHECK_EQ(t.precision, 1);
    CHECK_EQ(t.tolerance, 500 << 16);
    CHECK(t.tick >= 9000 && t.tick <= 11000);
    CHECK(t.freq >= -(500 << 16) && t.freq <= 500 << 16);
    CHECK_EQ(state == TIME_ERROR, (t.status & STA_UNSYNC) != 0);
    int64_t shown = t.time.tv_sec * SECOND + t.time.tv_usec * (t.status & STA_NANO ? 1 : 1000);
    int64_t gap = now_ns(CLOCK_REALTIME) - shown;
    CHECK(gap >= 0 && gap < 5 * SECOND);
    struct timex same = {0};
    CHECK_EQ(OK(syscall(SYS_clock_adjtime, CLOCK_REALTIME, &same)), state);
    CHECK_EQ(same.tick, t.tick);
    t = (struct timex){.modes = SINGLESHOT_READ};
    OK(adjust(&t)); /* needs no privilege */
}

TEST(adjtimex_errors) {
    ERR(syscall(SYS_adjtimex, BAD), EFAULT);
    ERR(syscall(SYS_adjtimex, NULL), EFAULT);
    struct timex t = {.modes = 0x8000}; /* adjtime(3) without an offset */
    ERR(adjust(&t), EINVAL);
    t = (struct timex){.modes = 0xa000};
    ERR(adjust(&t), EINVAL);
    if (geteuid() == 0)
        IN_CHILD({
            BECOME(NOBODY, NOBODY);
            static const unsigned modes[] = {ADJ_OFFSET, ADJ_FREQUENCY, ADJ_MAXERROR, ADJ_ESTERROR,
                                             ADJ_STATUS, ADJ_TIMECONST, ADJ_TAI, ADJ_SETOFFSET,
                                             ADJ_MICRO, ADJ_NANO, ADJ_TICK, SINGLESHOT};
            for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
                t = (struct timex){.modes = modes[i], .tick = 10000};
                ERR(adjust(&t), EPERM);
                ERR(syscall(SYS_clock_adjtime, CLOCK_REALTIME, &t), EPERM);
            }
        });
}

TEST(clock_adjtime_errors) {
    struct timex t = {0};
    ERR(syscall(SYS_clock_adjtime, CLOCK_REALTIME, BAD), EFAULT);
    ERR(syscall(SYS_clock_adjtime, 99, BAD), EFAULT); /* before the clock */
    ERR(syscall(SYS_clock_adjtime, 99, &t), EINVAL);
    ERR(syscall(SYS_clock_adjtime, 10, &t), EINVAL);
    ERR(syscall(SYS_clock_adjtime, -5 /* of file 0 */, &t), EINVAL);
    static const int fixed[] = {CLOCK_MONOTONIC, 2, 3, RAW, 5, 6, 7, 8, 9, TAI, -6};
    for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++)
        ERR(syscall(SYS_clock_adjtime, fixed[i], &t), EOPNOTSUPP);
}

TEST(what_is_out_of_range_is_refused) {
    needs_own_machine();
    struct timex t = {.modes = ADJ_TICK, .tick = 8999};
    ERR(adjust(&t), EINVAL);
    t.tick = 11001;
    ERR(adjust(&t), EINVAL);
    t = (struct timex){.modes = ADJ_SETOFFSET, .time = {0, -1}};
    ERR(adjust(&t), EINVAL);
    t.time.tv_usec = 1000000;
    ERR(adjust(&t), EINVAL);
    t.modes |= ADJ_NANO;
    t.time.tv_usec = SECOND;
    ERR(adjust(&t), EINVAL);
    t = (struct timex){.modes = ADJ_SETOFFSET, .time = {-now_ns(CLOCK_REALTIME) / SECOND, 0}};
    ERR(adjust(&t), EINVAL); /* before the boot */
    t = (struct timex){.modes = ADJ_FREQUENCY, .freq = LONG_MAX};
    ERR(adjust(&t), EINVAL);
    t.freq = LONG_MIN;
    ERR(adjust(&t), EINVAL);
    CHECK_EQ(read_state().tick, 10000);
    put_back();
}

TEST(values_are_kept_and_cut) {
    needs_own_machine();
    struct timex t = {.modes = ADJ_FREQUENCY | ADJ_MAXERROR | ADJ_ESTERROR | ADJ_STATUS | ADJ_TIMECONST,
                      .freq = -77, .maxerror = 1000, .esterror = 500, .status = STA_PLL, .constant = 3};
    CHECK_EQ(OK(adjust(&t)), TIME_OK);
    t = read_state();
    CHECK_EQ(t.freq, -77);
    CHECK(t.maxerror >= 1000 && t.maxerror < 16000000);
    CHECK_EQ(t.esterror, 500);
    CHECK_EQ(t.status, STA_PLL);
    CHECK_EQ(t.constant, 7); /* coarser units: four more */
    t = (struct timex){.modes = ADJ_NANO | ADJ_FREQUENCY | ADJ_TIMECONST, .freq = 1 << 30, .constant = 99};
    OK(adjust(&t));
    CHECK_EQ(t.freq, 500 << 16);
    CHECK_EQ(t.status, STA_PLL | STA_NANO);
    CHECK_EQ(t.constant, 10);
    t = (struct timex){.modes = ADJ_STATUS, .status = STA_PLL | STA_CLOCKERR | STA_MODE};
    OK(adjust(&t));
    CHECK_EQ(t.status, STA_PLL | STA_NANO); /* the others are not for programs */
    t = (struct timex){.modes = ADJ_STATUS | ADJ_MAXERROR, .status = 0};
    CHECK_EQ(OK(adjust(&t)), TIME_OK);
    CHECK_EQ(t.status, 0); /* leaving the loop leaves the unit as well */
    set_clock(now_ns(CLOCK_REALTIME)); /* who sets the clock makes it unsure */
    t = (struct timex){0};
    CHECK_EQ(OK(adjust(&t)), TIME_ERROR);
    CHECK_EQ(t.status, STA_UNSYNC);
    CHECK_EQ(t.maxerror, 16000000);
    put_back();
}

/* Nanoseconds that a clock gains on the raw one in about so many milliseconds of that, per
 * thousand. */
static int64_t gain(clockid_t clock, int ms) {
    int64_t from = now_ns(clock), raw = now_ns(RAW);
    while (now_ns(RAW) - raw < ms * MS)
        ;
    int64_t passed = now_ns(clock) - from, raw_passed = now_ns(RAW) - raw;
    return (passed - raw_passed) * 1000 / raw_passed;
}

TEST(ticks_make_the_clocks_run_faster_and_slower) {
    needs_own_machine();
    static const clockid_t clocks[] = {CLOCK_MONOTONIC, CLOCK_REALTIME, CLOCK_BOOTTIME, TAI};
    for (size_t i = 0; i < sizeof clocks / sizeof *clocks; i++) {
        set_tick(11000);
        msleep(20);
        int64_t faster = gain(clocks[i], 200);
        set_tick(9000);
        msleep(20);
        int64_t slower = gain(clocks[i], 200);
        set_tick(10000);
        if (faster < 80 || faster > 120 || slower > -80 || slower < -120)
            FAIL("clock %d gains %lld and %lld", (int)clocks[i], (long long)faster, (long long)slower);
    }
    msleep(20);
    int64_t even = gain(CLOCK_MONOTONIC, 200);
    CHECK(even >= -5 && even <= 5);
    put_back();
}

TEST(sleeps_last_as_long_as_the_clock_says) {
    needs_own_machine();
    for (int tick = 9000; tick <= 11000; tick += 1000) {
        set_tick(tick);
        for (int ms = 1; ms < 300; ms *= 6) {
            int64_t from = now_ns(CLOCK_MONOTONIC);
            struct timespec t = {0, ms * MS};
            OK(nanosleep(&t, NULL));
            int64_t slept = now_ns(CLOCK_MONOTONIC) - from;
            if (slept < ms * MS) FAIL("%lld ns instead of %d ms", (long long)slept, ms);
        }
    }
    put_back();
}

static _Atomic int done;
static void *watch_time(void *arg UNUSED) {
    int64_t last = now_ns(CLOCK_MONOTONIC);
    while (!atomic_load(&done)) {
        int64_t now = now_ns(CLOCK_MONOTONIC);
        if (now < last) FAIL("went back by %lld", (long long)(last - now));
        last = now;
    }
    return NULL;
}

TEST(monotonic_time_never_goes_back_whatever_is_adjusted) {
    needs_own_machine();
    pthread_t thread;
    ZERO(pthread_create(&thread, NULL, watch_time, NULL));
    for (int i = 0; i < 300; i++) {
        set_tick(9000 + i % 3 * 1000);
        if (i % 50 == 0) msleep(1);
    }
    atomic_store(&done, 1);
    ZERO(pthread_join(thread, NULL));
    put_back();
}

TEST(adjtime_goes_half_a_millisecond_a_second) {
    needs_own_machine();
    struct timex t = {.modes = SINGLESHOT, .offset = 1200};
    int64_t from = ahead(CLOCK_MONOTONIC, RAW);
    OK(adjust(&t));
    CHECK_EQ(t.offset, 0);
    int64_t end = now_ns(RAW) + 8 * SECOND;
    do {
        msleep(100);
        t = (struct timex){.modes = SINGLESHOT_READ};
        OK(adjust(&t));
        CHECK(t.offset == 1200 || t.offset == 700 || t.offset == 200 || t.offset == 0);
    } while (t.offset != 0 && now_ns(RAW) < end);
    CHECK_EQ(t.offset, 0);
    msleep(1100); /* the last part */
    int64_t gained = ahead(CLOCK_MONOTONIC, RAW) - from;
    if (gained < 1100000 || gained > 1300000) FAIL("gained %lld ns", (long long)gained);
    t = (struct timex){.modes = SINGLESHOT, .offset = -5000};
    OK(adjust(&t));
    t = (struct timex){.modes = SINGLESHOT, .offset = 0};
    OK(adjust(&t));
    CHECK(t.offset <= -4000); /* the old rest */
    put_back();
}

TEST(the_loop_takes_an_offset_in) {
    needs_own_machine();
    struct timex t = {.modes = ADJ_STATUS | ADJ_OFFSET | ADJ_NANO | ADJ_TIMECONST, .status = STA_PLL,
                      .offset = 40 * MS};
    int64_t from = ahead(CLOCK_REALTIME, RAW);
    OK(adjust(&t));
    CHECK(t.offset >= 40 * MS - 1000 && t.offset <= 40 * MS);
    msleep(3500);
    t = read_state();
    int64_t gained = ahead(CLOCK_REALTIME, RAW) - from;
    CHECK(t.offset > 0 && t.offset < 25 * MS); /* a quarter of the rest each second */
    CHECK(gained > 10 * MS && gained < 35 * MS);
    put_back();
}

TEST(setoffset_moves_real_time_only) {
    needs_own_machine();
    for (int nano = 0; nano < 2; nano++) {
        int64_t real = ahead(CLOCK_REALTIME, CLOCK_MONOTONIC), raw = ahead(CLOCK_MONOTONIC, RAW);
        struct timex t = {.modes = ADJ_SETOFFSET | (nano ? ADJ_NANO : ADJ_MICRO),
                          .time = {10, nano ? 250 * MS : 250000}};
        OK(adjust(&t));
        int64_t moved = ahead(CLOCK_REALTIME, CLOCK_MONOTONIC) - real;
        CHECK(moved > 10200 * MS && moved < 10300 * MS);
        CHECK(llabs(ahead(CLOCK_MONOTONIC, RAW) - raw) < 50 * MS);
        t = (struct timex){.modes = ADJ_SETOFFSET | ADJ_MICRO, .time = {-11, 750000}};
        OK(adjust(&t)); /* seconds are negative, what is below them is not */
        moved = ahead(CLOCK_REALTIME, CLOCK_MONOTONIC) - real;
        CHECK(llabs(moved) < 50 * MS);
    }
    put_back();
}

TEST(tai_is_ahead_by_what_was_set) {
    needs_own_machine();
    struct timex t = {.modes = ADJ_TAI, .constant = 37};
    OK(adjust(&t));
    CHECK_EQ(read_state().tai, 37);
    int64_t gap = ahead(TAI, CLOCK_REALTIME);
    CHECK(gap > 36 * SECOND && gap < 38 * SECOND);
    t.constant = -1; /* means nothing */
    OK(adjust(&t));
    CHECK_EQ(read_state().tai, 37);
    put_back();
}

static volatile sig_atomic_t fired;
static void on_alarm(int sig UNUSED) { fired++; }

TEST(who_waits_for_a_time_wakes_when_it_is_set) {
    needs_own_machine();
    struct sigaction act = {.sa_handler = on_alarm};
    OK(sigaction(SIGUSR1, &act, NULL));
    int64_t soon = now_ns(CLOCK_REALTIME) + 1000 * SECOND;
    struct timespec until = {soon / SECOND, 0};
    struct sigevent ev = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1};
    int absolute, relative;
    OK(syscall(SYS_timer_create, CLOCK_REALTIME, &ev, &absolute));
    OK(syscall(SYS_timer_create, CLOCK_REALTIME, &ev, &relative));
    struct itimerspec at = {{0, 0}, until}, in = {{0, 0}, {900, 0}}, left;
    OK(syscall(SYS_timer_settime, absolute, TIMER_ABSTIME, &at, NULL));
    OK(syscall(SYS_timer_settime, relative, 0, &in, NULL));
    pid_t pid = FORK();
    if (pid == 0) {
        OK(syscall(SYS_clock_nanosleep, CLOCK_REALTIME, TIMER_ABSTIME, &until, NULL));
        CHECK(now_ns(CLOCK_REALTIME) >= until.tv_sec * SECOND);
        _exit(0);
    }
    wait_asleep(pid);
    set_clock(soon - 500 * SECOND);
    msleep(50);
    CHECK_EQ(waitpid(pid, NULL, WNOHANG), 0);
    CHECK_EQ(fired, 0);
    OK(syscall(SYS_timer_gettime, absolute, &left));
    CHECK(left.it_value.tv_sec > 480 && left.it_value.tv_sec <= 500);
    set_clock(soon);
    EXITS(pid, 0);
    EVENTUALLY(fired == 1);
    OK(syscall(SYS_timer_gettime, relative, &left)); /* a span is a span */
    CHECK(left.it_value.tv_sec > 850);
    put_back();
}

TEST(a_leap_second_is_inserted_at_midnight) {
    needs_own_machine();
    int64_t midnight = (now_ns(CLOCK_REALTIME) / SECOND / DAY + 1) * DAY;
    set_clock(midnight * SECOND - 2500 * MS);
    struct timex t = {.modes = ADJ_STATUS | ADJ_MAXERROR | ADJ_TAI, .status = STA_INS, .constant = 37};
    OK(adjust(&t));
    int64_t from = ahead(CLOCK_REALTIME, CLOCK_MONOTONIC);
    bool announced = false, during = false;
    long state = TIME_OK;
    int64_t end = now_ns(CLOCK_MONOTONIC) + 10 * SECOND;
    while (state != TIME_WAIT && now_ns(CLOCK_MONOTONIC) < end) {
        t = (struct timex){0};
        state = OK(adjust(&t));
        announced |= state == TIME_INS;
        during |= state == TIME_OOP;
        msleep(20);
    }
    CHECK_EQ(state, TIME_WAIT);
    CHECK(announced && during);
    CHECK_EQ(read_state().tai, 38);
    int64_t moved = ahead(CLOCK_REALTIME, CLOCK_MONOTONIC) - from;
    CHECK(moved > -1100 * MS && moved < -900 * MS);
    put_back();
}
