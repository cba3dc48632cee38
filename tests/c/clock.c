/* Clocks, sleeping, POSIX timers, interval timers, times and getrusage. */
#define AREA "clock"
#include "harness.h"
#include <sys/timerfd.h>
#include <sys/times.h>

static volatile int fired, value;
static void tick(int sig UNUSED, siginfo_t *info, void *context UNUSED) {
    fired++;
    value = info->si_value.sival_int;
}
static void on_tick(int sig) {
    struct sigaction act = {.sa_sigaction = tick, .sa_flags = SA_SIGINFO};
    OK(sigaction(sig, &act, NULL));
}

static struct timespec after(clockid_t clock, int64_t ns) {
    int64_t t = now_ns(clock) + ns;
    return (struct timespec){t / 1000000000, t % 1000000000};
}

static void burn(int64_t ns) {
    int64_t end = now_ns(CLOCK_PROCESS_CPUTIME_ID) + ns;
    while (now_ns(CLOCK_PROCESS_CPUTIME_ID) < end)
        ;
}

TEST(monotonic_clock_never_goes_back) {
    int64_t last = now_ns(CLOCK_MONOTONIC);
    for (int i = 0; i < 100000; i++) {
        int64_t now = now_ns(CLOCK_MONOTONIC);
        if (now < last)
            FAIL("went back from %lld to %lld", (long long)last, (long long)now);
        last = now;
    }
}

static _Atomic int64_t highest;
static void *read_clock(void *arg UNUSED) {
    for (int i = 0; i < 50000; i++) {
        int64_t seen = atomic_load(&highest);
        int64_t now = now_ns(CLOCK_MONOTONIC);
        if (now < seen)
            FAIL("another thread had already seen a time %lld ns later", (long long)(seen - now));
        while (seen < now && !atomic_compare_exchange_weak(&highest, &seen, now))
            ;
    }
    return NULL;
}

TEST(monotonic_clock_agrees_over_cpus) {
    pthread_t t[4];
    for (int i = 0; i < 4; i++)
        ZERO(pthread_create(&t[i], NULL, read_clock, NULL));
    for (int i = 0; i < 4; i++)
        ZERO(pthread_join(t[i], NULL));
}

TEST(all_clocks_read_and_have_a_resolution) {
    static const clockid_t clocks[] = {CLOCK_REALTIME,        CLOCK_MONOTONIC,
                                       CLOCK_PROCESS_CPUTIME_ID, CLOCK_THREAD_CPUTIME_ID,
                                       CLOCK_MONOTONIC_RAW,   CLOCK_REALTIME_COARSE,
                                       CLOCK_MONOTONIC_COARSE, CLOCK_BOOTTIME};
    for (size_t i = 0; i < sizeof clocks / sizeof *clocks; i++) {
        struct timespec t = {-1, -1}, r = {-1, -1};
        OK(clock_gettime(clocks[i], &t));
        CHECK(t.tv_sec >= 0 && t.tv_nsec >= 0 && t.tv_nsec < 1000000000);
        OK(syscall(SYS_clock_getres, clocks[i], &r));
        CHECK(r.tv_sec == 0 && r.tv_nsec > 0);
        OK(syscall(SYS_clock_gettime, clocks[i], &t)); /* past the vDSO */
    }
}

TEST(clock_errors) {
    struct timespec t;
    ERR(syscall(SYS_clock_gettime, 99, &t), EINVAL);
    ERR(syscall(SYS_clock_gettime, CLOCK_MONOTONIC, BAD), EFAULT);
    ERR(syscall(SYS_clock_getres, 99, &t), EINVAL);
    OK(syscall(SYS_clock_getres, CLOCK_MONOTONIC, NULL));
    t = (struct timespec){0, 0};
    ERR(syscall(SYS_clock_settime, CLOCK_MONOTONIC, &t), EINVAL);
    t.tv_nsec = 1000000000;
    ERR(syscall(SYS_clock_settime, CLOCK_REALTIME, &t), EINVAL);
}

TEST(real_time_is_plausible_and_consistent) {
    struct timeval tv;
    OK(gettimeofday(&tv, NULL));
    int64_t real = now_ns(CLOCK_REALTIME);
    int64_t gap = real - ((int64_t)tv.tv_sec * 1000000000 + tv.tv_usec * 1000);
    CHECK(gap >= 0 && gap < 5000 * MS);
    time_t t = time(NULL);
    CHECK(t - real / 1000000000 <= 5 && real / 1000000000 - t <= 5);
    time_t stored;
    CHECK_EQ(syscall(SYS_time, &stored), stored);
    CHECK(tv.tv_sec > 1600000000); /* the clock is set: after 2020 */
}

TEST(coarse_clock_follows_the_fine_one) {
    for (int i = 0; i < 20; i++) {
        int64_t coarse = now_ns(CLOCK_MONOTONIC_COARSE), fine = now_ns(CLOCK_MONOTONIC);
        CHECK(coarse <= fine);
        CHECK(fine - coarse < 1000 * MS);
        msleep(2);
    }
}

TEST(nanosleep_sleeps_at_least_that_long) {
    for (int ms = 0; ms < 30; ms += 7) {
        struct timespec t = {0, ms * MS};
        int64_t from = now_ns(CLOCK_MONOTONIC);
        OK(nanosleep(&t, NULL));
        CHECK(now_ns(CLOCK_MONOTONIC) - from >= ms * MS);
    }
}

TEST(nanosleep_errors) {
    struct timespec bad = {0, 1000000000}, negative = {-1, 0}, under = {0, -1};
    ERR(nanosleep(&bad, NULL), EINVAL);
    ERR(nanosleep(&negative, NULL), EINVAL);
    ERR(nanosleep(&under, NULL), EINVAL);
    ERR(syscall(SYS_nanosleep, BAD, NULL), EFAULT);
    struct timespec t = {0, 0};
    ERR(syscall(SYS_clock_nanosleep, 99, 0, &t, NULL), EINVAL);
}

TEST(remaining_time_to_a_bad_pointer_is_efault) {
    on_tick(SIGALRM);
    struct itimerval soon = {{0, 0}, {0, 20000}};
    OK(setitimer(ITIMER_REAL, &soon, NULL));
    struct timespec t = {10, 0};
    ERR(syscall(SYS_nanosleep, &t, BAD), EFAULT);
}

TEST(absolute_sleep) {
    struct timespec t = after(CLOCK_MONOTONIC, 30 * MS);
    int64_t until = (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
    ZERO(clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL));
    CHECK(now_ns(CLOCK_MONOTONIC) >= until);
    t.tv_sec = 0; /* long past */
    ZERO(clock_nanosleep(CLOCK_REALTIME, TIMER_ABSTIME, &t, NULL));
}

TEST(interrupted_absolute_sleep_keeps_the_rest_alone) {
    on_tick(SIGALRM);
    struct itimerval soon = {{0, 0}, {0, 20000}};
    OK(setitimer(ITIMER_REAL, &soon, NULL));
    struct timespec t = after(CLOCK_MONOTONIC, 20000 * MS), rest = {77, 77};
    CHECK_EQ(clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, &rest), EINTR);
    CHECK(rest.tv_sec == 77 && rest.tv_nsec == 77);
}

TEST(alarm_returns_the_rest_and_fires_once) {
    CHECK_EQ(alarm(100), 0);
    unsigned rest = alarm(50);
    CHECK(rest > 90 && rest <= 100);
    CHECK(alarm(0) > 40);
    CHECK_EQ(alarm(0), 0);
    on_tick(SIGALRM);
    alarm(1);
    ERR(pause(), EINTR);
    CHECK_EQ(fired, 1);
}

TEST(interval_timer_repeats) {
    on_tick(SIGALRM);
    struct itimerval t = {{0, 5000}, {0, 5000}}, now;
    OK(setitimer(ITIMER_REAL, &t, NULL));
    while (fired < 5)
        pause();
    OK(getitimer(ITIMER_REAL, &now));
    CHECK_EQ(now.it_interval.tv_usec, 5000);
    CHECK(now.it_value.tv_usec <= 5000 && now.it_value.tv_sec == 0);
    struct itimerval off = {{0, 0}, {0, 0}}, old;
    OK(setitimer(ITIMER_REAL, &off, &old));
    CHECK_EQ(old.it_interval.tv_usec, 5000);
    int n = fired;
    msleep(30);
    CHECK_EQ(fired, n);
}

TEST(virtual_and_profiling_timers_count_cpu_time) {
    on_tick(SIGVTALRM);
    struct itimerval t = {{0, 0}, {0, 20000}};
    OK(setitimer(ITIMER_VIRTUAL, &t, NULL));
    msleep(60);
    CHECK_EQ(fired, 0); /* sleeping does not count */
    while (!fired)
        ;
    on_tick(SIGPROF);
    OK(setitimer(ITIMER_PROF, &t, NULL));
    fired = 0;
    while (!fired)
        ;
}

TEST(itimer_errors) {
    struct itimerval t = {{0, 0}, {0, 1000000}}, now;
    ERR(setitimer(ITIMER_REAL, &t, NULL), EINVAL);
    t.it_value = (struct timeval){-1, 0};
    ERR(setitimer(ITIMER_REAL, &t, NULL), EINVAL);
    ERR(syscall(SYS_getitimer, 7, &now), EINVAL);
    ERR(syscall(SYS_getitimer, ITIMER_REAL, BAD), EFAULT);
    ERR(syscall(SYS_setitimer, ITIMER_REAL, BAD, NULL), EFAULT);
}

TEST(posix_timer_signals_with_its_value) {
    on_tick(SIGRTMIN);
    struct sigevent ev = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMIN};
    ev.sigev_value.sival_int = 99;
    timer_t id;
    OK(timer_create(CLOCK_MONOTONIC, &ev, &id));
    struct itimerspec t = {{0, 0}, {0, 10 * MS}}, left;
    OK(timer_settime(id, 0, &t, NULL));
    while (!fired)
        pause();
    CHECK_EQ(value, 99);
    OK(timer_gettime(id, &left));
    CHECK(left.it_value.tv_sec == 0 && left.it_value.tv_nsec == 0); /* disarmed */
    OK(timer_delete(id));
    CHECK(timer_delete(id) != 0); /* musl gives the raw error */
}

TEST(posix_timer_overrun_counts_the_missed) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGRTMIN);
    OK(sigprocmask(SIG_BLOCK, &set, NULL));
    struct sigevent ev = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMIN};
    timer_t id;
    OK(timer_create(CLOCK_MONOTONIC, &ev, &id));
    struct itimerspec t = {{0, 2 * MS}, {0, 2 * MS}};
    OK(timer_settime(id, 0, &t, NULL));
    msleep(60);
    siginfo_t info;
    CHECK_EQ(OK(sigwaitinfo(&set, &info)), SIGRTMIN);
    CHECK_EQ(info.si_code, SI_TIMER);
    CHECK(timer_getoverrun(id) >= 10); /* one signal is queued, the others counted */
    OK(timer_delete(id));
}

static volatile long progress;

TEST(periods_shorter_than_an_interrupt_leave_time_for_programs) {
    /* Sixty timers of a nanosecond, whose signals nobody takes, and three timerfds nobody reads. */
    sigset_t blocked;
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGUSR1);
    sigaddset(&blocked, SIGALRM);
    OK(sigprocmask(SIG_BLOCK, &blocked, NULL));
    struct itimerspec often = {{0, 1}, {0, 1}};
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1};
    timer_t timers[60];
    for (int i = 0; i < 60; i++) {
        OK(timer_create(CLOCK_MONOTONIC, &event, &timers[i]));
        OK(timer_settime(timers[i], 0, &often, NULL));
    }
    int fds[3];
    for (int i = 0; i < 3; i++) {
        fds[i] = OK(timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK));
        OK(timerfd_settime(fds[i], 0, &often, NULL));
    }
    struct itimerval micro = {{0, 1}, {0, 1}};
    OK(setitimer(ITIMER_REAL, &micro, NULL));
    int64_t end = now_ns(CLOCK_MONOTONIC) + 50 * MS;
    while (now_ns(CLOCK_MONOTONIC) < end)
        progress++;
    struct timespec t = {0, 5 * MS};
    OK(nanosleep(&t, NULL));
    uint64_t count = 0;
    CHECK_EQ(OK(read(fds[0], &count, sizeof count)), (ssize_t)sizeof count);
    CHECK(count > 40 * MS); /* none is lost, however few interrupts there were */
    pid_t pid = OK(fork());
    if (pid == 0)
        _exit(0);
    OK(waitpid(pid, NULL, 0));
    CHECK(progress > 1000);
}

TEST(posix_timer_absolute_and_without_signal) {
    struct sigevent ev = {.sigev_notify = SIGEV_NONE};
    timer_t id;
    OK(timer_create(CLOCK_REALTIME, &ev, &id));
    struct itimerspec t = {{0, 0}, after(CLOCK_REALTIME, 30 * MS)}, left;
    OK(timer_settime(id, TIMER_ABSTIME, &t, NULL));
    OK(timer_gettime(id, &left));
    CHECK(left.it_value.tv_sec == 0 && left.it_value.tv_nsec <= 30 * MS);
    do
        OK(timer_gettime(id, &left));
    while (left.it_value.tv_nsec != 0);
    CHECK(now_ns(CLOCK_REALTIME) >=
          (int64_t)t.it_value.tv_sec * 1000000000 + t.it_value.tv_nsec);
    OK(timer_delete(id));
}

TEST(posix_timer_errors) {
    struct sigevent ev = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = 99};
    int id; /* the kernel's id */
    ERR(syscall(SYS_timer_create, CLOCK_MONOTONIC, &ev, &id), EINVAL);
    ev.sigev_signo = SIGUSR1;
    ERR(syscall(SYS_timer_create, 99, &ev, &id), EINVAL);
    ERR(syscall(SYS_timer_create, CLOCK_MONOTONIC, BAD, &id), EFAULT);
    ERR(syscall(SYS_timer_create, CLOCK_MONOTONIC, &ev, BAD), EFAULT);
    OK(syscall(SYS_timer_create, CLOCK_MONOTONIC, &ev, &id));
    struct itimerspec bad = {{0, 0}, {0, 1000000000}};
    ERR(syscall(SYS_timer_settime, id, 0, &bad, NULL), EINVAL);
    ERR(syscall(SYS_timer_settime, id, 0, NULL, NULL), EINVAL);
    ERR(syscall(SYS_timer_settime, id + 1000, 0, &bad, NULL), EINVAL);
    ERR(syscall(SYS_timer_gettime, id + 1000, &bad), EINVAL);
    ERR(syscall(SYS_timer_gettime, id, BAD), EFAULT);
    ERR(syscall(SYS_timer_getoverrun, id + 1000), EINVAL);
}

TEST(timer_create_errors) {
    struct sigevent ev = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1};
    int id;
    ERR(syscall(SYS_timer_create, 99, NULL, &id), EINVAL);
    ERR(syscall(SYS_timer_create, 99, BAD, &id), EFAULT); /* before the clock */
    ERR(syscall(SYS_timer_create, CLOCK_MONOTONIC_RAW, NULL, &id), EOPNOTSUPP);
    ERR(syscall(SYS_timer_create, CLOCK_REALTIME_COARSE, NULL, &id), EOPNOTSUPP);
    ERR(syscall(SYS_timer_create, CLOCK_MONOTONIC_COARSE, NULL, &id), EOPNOTSUPP);
    ERR(syscall(SYS_timer_create, -5 /* of a file */, NULL, &id), EOPNOTSUPP);
    ev.sigev_notify = 77;
    ERR(syscall(SYS_timer_create, CLOCK_MONOTONIC, &ev, &id), EINVAL);
    ev.sigev_notify = 2; /* SIGEV_THREAD */
    ev.sigev_signo = 0;
    ERR(syscall(SYS_timer_create, CLOCK_MONOTONIC, &ev, &id), EINVAL);
}

TEST(to_the_kernel_a_thread_notification_is_a_signal) {
    /* The C library makes the thread (timer_create(2), "C library/kernel differences"). */
    on_tick(SIGUSR1);
    struct sigevent ev = {.sigev_notify = 2 /* SIGEV_THREAD */, .sigev_signo = SIGUSR1};
    ev.sigev_value.sival_int = 5;
    int id;
    OK(syscall(SYS_timer_create, CLOCK_MONOTONIC, &ev, &id));
    struct itimerspec t = {{0, 0}, {0, 5 * MS}};
    OK(syscall(SYS_timer_settime, id, 0, &t, NULL));
    while (!fired)
        pause();
    CHECK_EQ(value, 5);
}

TEST(overruns_are_exact) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    OK(sigprocmask(SIG_BLOCK, &set, NULL));
    struct sigevent ev = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1};
    int id;
    OK(syscall(SYS_timer_create, CLOCK_REALTIME, &ev, &id));
    /* Due an hour ago, each minute: 60 were missed. */
    struct itimerspec t = {{60, 0}, after(CLOCK_REALTIME, -3600 * 1000 * MS)};
    siginfo_t info;
    OK(syscall(SYS_timer_settime, id, TIMER_ABSTIME, &t, NULL));
    CHECK_EQ(OK(sigwaitinfo(&set, &info)), SIGUSR1);
    CHECK_EQ(info.si_code, SI_TIMER);
    CHECK_EQ(info.si_overrun, 60);
    CHECK_EQ(OK(syscall(SYS_timer_getoverrun, id)), 60);
    /* More than fit (DELAYTIMER_MAX). */
    t.it_interval = (struct timespec){0, 1};
    t.it_value = after(CLOCK_REALTIME, -3600 * 1000 * MS);
    OK(syscall(SYS_timer_settime, id, TIMER_ABSTIME, &t, NULL));
    CHECK_EQ(OK(syscall(SYS_timer_getoverrun, id)), 0); /* of no signal yet */
    CHECK_EQ(OK(sigwaitinfo(&set, &info)), SIGUSR1);
    CHECK_EQ(info.si_overrun, INT_MAX);
    CHECK_EQ(OK(syscall(SYS_timer_getoverrun, id)), INT_MAX);
    /* Once is once; signals of the short period go first. */
    t = (struct itimerspec){{0, 0}, {0, 0}};
    OK(syscall(SYS_timer_settime, id, 0, &t, NULL));
    struct timespec now = {0, 0};
    while (sigtimedwait(&set, NULL, &now) != -1)
        ;
    t.it_value.tv_sec = 1;
    OK(syscall(SYS_timer_settime, id, TIMER_ABSTIME, &t, NULL));
    CHECK_EQ(OK(sigwaitinfo(&set, &info)), SIGUSR1);
    CHECK_EQ(info.si_overrun, 0);
}

TEST(posix_timers_are_not_inherited) {
    struct sigevent ev = {.sigev_notify = SIGEV_NONE};
    int id;
    OK(syscall(SYS_timer_create, CLOCK_MONOTONIC, &ev, &id));
    struct itimerspec t = {{0, 0}, {100, 0}}, left;
    OK(syscall(SYS_timer_settime, id, 0, &t, NULL));
    IN_CHILD(ERR(syscall(SYS_timer_gettime, id, &left), EINVAL));
    OK(syscall(SYS_timer_gettime, id, &left));
    CHECK(left.it_value.tv_sec >= 90);
}

TEST(timer_to_a_thread) {
    /* SIGEV_THREAD_ID */
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    OK(sigprocmask(SIG_BLOCK, &set, NULL));
    struct sigevent ev = {.sigev_notify = 4, .sigev_signo = SIGUSR1};
    memcpy((char *)&ev + 16, (int[]){(int)syscall(SYS_gettid)}, sizeof(int));
    int id;
    OK(syscall(SYS_timer_create, CLOCK_MONOTONIC, &ev, &id));
    struct itimerspec t = {{0, 0}, {0, 5 * MS}};
    OK(syscall(SYS_timer_settime, id, 0, &t, NULL));
    siginfo_t info;
    CHECK_EQ(OK(sigwaitinfo(&set, &info)), SIGUSR1);
    CHECK_EQ(info.si_code, SI_TIMER);
    memcpy((char *)&ev + 16, (int[]){1}, sizeof(int)); /* not a thread of ours */
    ERR(syscall(SYS_timer_create, CLOCK_MONOTONIC, &ev, &id), EINVAL);
}

TEST(cpu_clock_stands_still_in_sleep) {
    int64_t from = now_ns(CLOCK_PROCESS_CPUTIME_ID);
    msleep(300);
    CHECK(now_ns(CLOCK_PROCESS_CPUTIME_ID) - from < 200 * MS);
}

static void *burn_thread(void *arg UNUSED) {
    int64_t end = now_ns(CLOCK_THREAD_CPUTIME_ID) + 50 * MS;
    while (now_ns(CLOCK_THREAD_CPUTIME_ID) < end)
        ;
    return NULL;
}

TEST(process_clock_is_the_sum_of_threads) {
    int64_t process = now_ns(CLOCK_PROCESS_CPUTIME_ID), thread = now_ns(CLOCK_THREAD_CPUTIME_ID);
    pthread_t t;
    ZERO(pthread_create(&t, NULL, burn_thread, NULL));
    ZERO(pthread_join(t, NULL));
    /* However long this thread's own part took: time that a busy host takes away counts. */
    int64_t own = now_ns(CLOCK_THREAD_CPUTIME_ID) - thread;
    CHECK(now_ns(CLOCK_PROCESS_CPUTIME_ID) - process >= own + 50 * MS);
}

TEST(clock_of_another_process) {
    GATE(go);
    GATE(burnt);
    pid_t pid = FORK();
    if (pid == 0) {
        burn(40 * MS);
        gate_open(&burnt);
        gate_pass(&go);
        _exit(0);
    }
    gate_pass(&burnt);
    clockid_t clock;
    ZERO(clock_getcpuclockid(pid, &clock));
    CHECK(now_ns(clock) >= 30 * MS);
    gate_open(&go);
    EXITS(pid, 0);
    struct timespec t;
    ERR(syscall(SYS_clock_gettime, clock, &t), EINVAL);
}

/* ---- sleeping on every clock ---------------------------------------------------------------- */

#define SLEEP(clock, flags, request, rest)                                                         \
    syscall(SYS_clock_nanosleep, (int)(clock), flags, request, rest)
#define CPU_CLOCK(pid) ((int)(~(unsigned)(pid) << 3 | 2)) /* the processor time of a process */
#define THREAD_CLOCK(tid) ((int)(~(unsigned)(tid) << 3 | 6)) /* of a thread */
#define FILE_CLOCK(fd) ((int)(~(unsigned)(fd) << 3 | 3)) /* of a device */
#define GONE 0x0fffff0

TEST(sleep_on_each_clock_that_runs) {
    static const int clocks[] = {CLOCK_REALTIME, CLOCK_MONOTONIC, CLOCK_BOOTTIME, 11 /* TAI */};
    for (size_t i = 0; i < sizeof clocks / sizeof *clocks; i++) {
        struct timespec t = {0, 10 * MS};
        int64_t from = now_ns(clocks[i]);
        OK(SLEEP(clocks[i], 0, &t, NULL));
        CHECK(now_ns(clocks[i]) - from >= 10 * MS);
        t = after(clocks[i], 10 * MS);
        OK(SLEEP(clocks[i], TIMER_ABSTIME, &t, BAD)); /* the rest is not looked at */
        CHECK(now_ns(clocks[i]) >= (int64_t)t.tv_sec * 1000000000 + t.tv_nsec);
    }
}

static void *burn_until_told(void *stop) {
    while (!atomic_load((_Atomic int *)stop))
        ;
    return NULL;
}

TEST(sleep_on_processor_time_wakes_by_what_others_use) {
    _Atomic int stop = 0;
    pthread_t thread;
    ZERO(pthread_create(&thread, NULL, burn_until_told, &stop));
    struct timespec t = {0, 30 * MS};
    int64_t from = now_ns(CLOCK_PROCESS_CPUTIME_ID);
    OK(SLEEP(CLOCK_PROCESS_CPUTIME_ID, 0, &t, NULL));
    CHECK(now_ns(CLOCK_PROCESS_CPUTIME_ID) - from >= 30 * MS);
    t = after(CLOCK_PROCESS_CPUTIME_ID, 30 * MS);
    OK(SLEEP(CLOCK_PROCESS_CPUTIME_ID, TIMER_ABSTIME, &t, NULL));
    CHECK(now_ns(CLOCK_PROCESS_CPUTIME_ID) >= (int64_t)t.tv_sec * 1000000000 + t.tv_nsec);
    t = (struct timespec){0, 0};
    OK(SLEEP(CLOCK_PROCESS_CPUTIME_ID, TIMER_ABSTIME, &t, NULL)); /* long past */
    atomic_store(&stop, 1);
    ZERO(pthread_join(thread, NULL));
}

TEST(sleep_on_the_processor_time_of_another_process) {
    GATE(go);
    pid_t pid = FORK();
    if (pid == 0) {
        gate_pass(&go);
        for (;;)
            ;
    }
    struct timespec t = {0, 20 * MS};
    int64_t from = now_ns(CPU_CLOCK(pid));
    gate_open(&go);
    OK(SLEEP(CPU_CLOCK(pid), 0, &t, NULL));
    CHECK(now_ns(CPU_CLOCK(pid)) - from >= 20 * MS);
    OK(kill(pid, SIGKILL));
    KILLED(pid, SIGKILL);
}

TEST(sleep_on_processor_time_is_interrupted) {
    on_tick(SIGALRM);
    struct itimerval soon = {{0, 0}, {0, 20000}};
    OK(setitimer(ITIMER_REAL, &soon, NULL));
    struct timespec t = {10, 0}, rest = {77, 77};
    ERR(SLEEP(CLOCK_PROCESS_CPUTIME_ID, 0, &t, &rest), EINTR);
    CHECK(rest.tv_sec >= 8 && rest.tv_sec < 10);
    rest = (struct timespec){77, 77};
    OK(setitimer(ITIMER_REAL, &soon, NULL));
    t = after(CLOCK_PROCESS_CPUTIME_ID, 10000 * MS);
    ERR(SLEEP(CLOCK_PROCESS_CPUTIME_ID, TIMER_ABSTIME, &t, &rest), EINTR);
    CHECK(rest.tv_sec == 77 && rest.tv_nsec == 77);
}

TEST(clock_nanosleep_errors) {
    struct timespec zero = {0, 0}, bad = {0, 1000000000}, negative = {-1, 0};
    ERR(SLEEP(99, 0, &zero, NULL), EINVAL);
    ERR(SLEEP(99, 0, BAD, NULL), EINVAL); /* before the request */
    ERR(SLEEP(CLOCK_MONOTONIC, 0, BAD, NULL), EFAULT);
    ERR(SLEEP(CLOCK_MONOTONIC, 0, &bad, NULL), EINVAL);
    ERR(SLEEP(CLOCK_REALTIME, TIMER_ABSTIME, &negative, NULL), EINVAL);
    ERR(SLEEP(CLOCK_PROCESS_CPUTIME_ID, 0, &bad, NULL), EINVAL);
    ERR(SLEEP(CLOCK_PROCESS_CPUTIME_ID, 0, BAD, NULL), EFAULT);
    /* clock_nanosleep(2) says EINVAL of all of these; kernel/time/posix-timers.c says
     * EOPNOTSUPP. */
    ERR(SLEEP(CLOCK_THREAD_CPUTIME_ID, 0, &zero, NULL), EOPNOTSUPP);
    ERR(SLEEP(CLOCK_MONOTONIC_RAW, 0, &zero, NULL), EOPNOTSUPP);
    ERR(SLEEP(CLOCK_REALTIME_COARSE, 0, &zero, NULL), EOPNOTSUPP);
    ERR(SLEEP(CLOCK_MONOTONIC_COARSE, 0, BAD, NULL), EOPNOTSUPP); /* before the request */
    ERR(SLEEP(FILE_CLOCK(0), 0, &zero, NULL), EOPNOTSUPP);
    ERR(SLEEP(THREAD_CLOCK(0), 0, &zero, NULL), EINVAL); /* its own: it would sleep for ever */
    ERR(SLEEP(THREAD_CLOCK(getpid()), 0, &zero, NULL), EINVAL);
    ERR(SLEEP(CPU_CLOCK(GONE), 0, &zero, NULL), EINVAL);
    ERR(SLEEP(CPU_CLOCK(GONE), 0, BAD, NULL), EFAULT);
    ERR(SLEEP(THREAD_CLOCK(getppid()), 0, &zero, NULL), EINVAL);
    if (geteuid() == 0)
        IN_CHILD({
            BECOME(NOBODY, NOBODY);
            /* Or there is no clock that could wake the machine. */
            ERR2(SLEEP(8 /* CLOCK_REALTIME_ALARM */, 0, &zero, NULL), EPERM, EOPNOTSUPP);
            ERR2(SLEEP(9 /* CLOCK_BOOTTIME_ALARM */, 0, &zero, NULL), EPERM, EOPNOTSUPP);
        });
}

TEST(clock_gettime_errors) {
    struct timespec t;
    ERR(syscall(SYS_clock_gettime, 10, &t), EINVAL);
    ERR(syscall(SYS_clock_gettime, 12, &t), EINVAL);
    ERR(syscall(SYS_clock_gettime, CPU_CLOCK(GONE), &t), EINVAL);
    ERR(syscall(SYS_clock_gettime, THREAD_CLOCK(getppid()), &t), EINVAL);
    ERR(syscall(SYS_clock_gettime, FILE_CLOCK(0), &t), EINVAL);
    ERR(syscall(SYS_clock_gettime, CLOCK_REALTIME, BAD), EFAULT);
    OK(syscall(SYS_clock_gettime, CPU_CLOCK(0), &t));
    OK(syscall(SYS_clock_gettime, THREAD_CLOCK(0), &t));
}

TEST(clock_settime_errors) {
    struct timespec t = {1, 0}, bad = {0, 1000000000}, far = {8277292036, 0};
    ERR(syscall(SYS_clock_settime, 99, &t), EINVAL);
    ERR(syscall(SYS_clock_settime, CLOCK_MONOTONIC, BAD), EINVAL);
    ERR(syscall(SYS_clock_settime, CLOCK_BOOTTIME, &t), EINVAL);
    ERR(syscall(SYS_clock_settime, 11 /* CLOCK_TAI */, &t), EINVAL);
    ERR(syscall(SYS_clock_settime, CLOCK_PROCESS_CPUTIME_ID, &t), EINVAL);
    ERR(syscall(SYS_clock_settime, CPU_CLOCK(0), &t), EPERM);
    ERR(syscall(SYS_clock_settime, CPU_CLOCK(0), BAD), EFAULT);
    ERR(syscall(SYS_clock_settime, CPU_CLOCK(GONE), &t), EINVAL);
    ERR(syscall(SYS_clock_settime, CLOCK_REALTIME, BAD), EFAULT);
    ERR(syscall(SYS_clock_settime, CLOCK_REALTIME, &bad), EINVAL);
    ERR(syscall(SYS_clock_settime, CLOCK_REALTIME, &far), EINVAL);
    if (geteuid() == 0)
        IN_CHILD(BECOME(NOBODY, NOBODY); ERR(syscall(SYS_clock_settime, CLOCK_REALTIME, &t), EPERM));
}

TEST(clock_getres_errors) {
    struct timespec t;
    ERR(syscall(SYS_clock_getres, 10, &t), EINVAL);
    ERR(syscall(SYS_clock_getres, CPU_CLOCK(GONE), &t), EINVAL);
    ERR(syscall(SYS_clock_getres, CLOCK_REALTIME, BAD), EFAULT);
}

TEST(settimeofday_errors) {
    struct timeval bad = {0, 1000000}, negative = {-1, 0};
    struct { int west, saving; } zone = {901, 0};
    ERR(syscall(SYS_settimeofday, BAD, NULL), EFAULT);
    ERR(syscall(SYS_settimeofday, &bad, NULL), EINVAL);
    ERR(syscall(SYS_settimeofday, &negative, NULL), EINVAL);
    ERR(syscall(SYS_settimeofday, NULL, BAD), EFAULT);
    if (geteuid() == 0)
        IN_CHILD(BECOME(NOBODY, NOBODY); ERR(syscall(SYS_settimeofday, NULL, &zone), EPERM);
                 ERR(syscall(SYS_settimeofday, NULL, NULL), EPERM));
    if (syscall(SYS_settimeofday, NULL, NULL) == 0) { /* with the privilege to */
        ERR(syscall(SYS_settimeofday, NULL, &zone), EINVAL);
        zone.west = -901;
        ERR(syscall(SYS_settimeofday, NULL, &zone), EINVAL);
    }
}

TEST(gettimeofday_errors) {
    struct timeval now;
    ERR(syscall(SYS_gettimeofday, BAD, NULL), EFAULT);
    ERR(syscall(SYS_gettimeofday, &now, BAD), EFAULT);
    ERR(syscall(SYS_time, BAD), EFAULT);
}

/* Microseconds of this process in its own code and in the kernel. */
static void own_times(long *user, long *system) {
    struct rusage usage;
    OK(getrusage(RUSAGE_SELF, &usage));
    *user = usage.ru_utime.tv_sec * 1000000 + usage.ru_utime.tv_usec;
    *system = usage.ru_stime.tv_sec * 1000000 + usage.ru_stime.tv_usec;
}

static void compute(void) {
    for (volatile int i = 0; i < 300000; i++)
        ;
}

static void call(void) {
    static char area[1 << 20];
    static int zero = -1;
    if (zero < 0)
        zero = OK(open("/dev/zero", O_RDONLY));
    for (int i = 0; i < 4; i++)
        CHECK_EQ(OK(read(zero, area, sizeof area)), (ssize_t)sizeof area);
}

static void call_often(void) {
    for (int i = 0; i < 2000; i++)
        OK(syscall(SYS_getrusage, RUSAGE_SELF, &(struct rusage){0}));
}

static void touch(void) {
    enum { PAGES = 512 };
    char *area = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(area != MAP_FAILED);
    for (int i = 0; i < PAGES; i++)
        area[i * PAGE] = 1;
    OK(munmap(area, PAGES * PAGE));
}

/* Works until `span` microseconds of processor time have passed, in a process of its own, and
 * returns the kernel's share in percent. Neither time ever decreases meanwhile. */
static int kernels_share(void (*work)(void), long span) {
    pid_t child = FORK();
    if (child == 0) {
        long user, system, user_before = 0, system_before = 0;
        do {
            work();
            own_times(&user, &system);
            CHECK(user >= user_before && system >= system_before);
            user_before = user;
            system_before = system;
        } while (user + system < span);
        struct tms ticks;
        times(&ticks);
        CHECK(labs(ticks.tms_utime * 10000 - user) <= 60000);
        CHECK(labs(ticks.tms_stime * 10000 - system) <= 60000);
        FILE *file = fopen("/proc/self/stat", "r");
        CHECK(file);
        long stat_user, stat_system;
        CHECK_EQ(fscanf(file, "%*d (%*[^)]) %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %ld %ld",
                        &stat_user, &stat_system),
                 2);
        CHECK(labs(stat_user - ticks.tms_utime) <= 6 && labs(stat_system - ticks.tms_stime) <= 6);
        _exit((int)(system * 100 / (user + system)));
    }
    int status;
    CHECK_EQ(OK(waitpid(child, &status, 0)), child);
    CHECK(WIFEXITED(status));
    return WEXITSTATUS(status);
}

/* Reads the first row of /proc/stat: programs (with a nice value or not), and the kernel. */
static void all_times(long *user, long *system) {
    FILE *file = fopen("/proc/stat", "r");
    CHECK(file);
    long nice;
    CHECK_EQ(fscanf(file, "cpu %ld %ld %ld", user, &nice, system), 3);
    *user += nice;
    OK(fclose(file));
}

TEST_TIMES(the_kernels_time_is_told_from_the_programs, 4) {
    long user, system, user_then, system_then;
    int share = kernels_share(compute, 400000);
    CHECK(share <= 25);
    all_times(&user, &system);
    share = kernels_share(call, 400000);
    CHECK(share >= 50);
    /* Of some thirty ticks. Fewer are seen where another machine takes the processor away. */
    all_times(&user_then, &system_then);
    CHECK(user_then >= user && system_then - system >= 8);
    share = kernels_share(touch, 400000);
    CHECK(share >= 30);
    share = kernels_share(call_often, 400000);
    CHECK(share >= 10);
    all_times(&user, &system);
    CHECK(user >= user_then && system - system_then >= 6);
}

TEST(times_and_getrusage_agree) {
    burn(120 * MS);
    struct tms tms;
    clock_t ticks = times(&tms);
    CHECK(ticks != (clock_t)-1);
    struct rusage usage;
    OK(getrusage(RUSAGE_SELF, &usage));
    long us = (usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000000 + usage.ru_utime.tv_usec +
              usage.ru_stime.tv_usec;
    long from_times = (tms.tms_utime + tms.tms_stime) * 10000;
    CHECK(us >= 100000);
    CHECK(from_times >= 80000 && from_times <= us + 50000);
    CHECK(usage.ru_minflt > 0);
    struct rusage thread;
    OK(getrusage((__typeof__(RUSAGE_SELF))1 /* RUSAGE_THREAD */, &thread));
    ERR(syscall(SYS_times, BAD), EFAULT);
}

TEST(maxrss_grows_with_touched_memory) {
    struct rusage before, after;
    OK(getrusage(RUSAGE_SELF, &before));
    size_t size = 32 << 20;
    char *p = OK(mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    for (size_t i = 0; i < size; i += PAGE)
        p[i] = 1;
    OK(getrusage(RUSAGE_SELF, &after));
    CHECK(after.ru_maxrss - before.ru_maxrss >= 24 << 10); /* KiB */
    CHECK(after.ru_minflt > before.ru_minflt);
}

TEST(context_switches_are_counted) {
    struct rusage before, after;
    OK(getrusage(RUSAGE_SELF, &before));
    for (int i = 0; i < 10; i++)
        msleep(1);
    OK(getrusage(RUSAGE_SELF, &after));
    CHECK(after.ru_nvcsw - before.ru_nvcsw >= 10);
}

TEST(many_sleepers_wake_in_order) {
    int *order = SHARED(PAGE);
    _Atomic int *next = (_Atomic int *)(order + 100);
    pid_t pids[10];
    struct timespec base = after(CLOCK_MONOTONIC, 100 * MS);
    for (int i = 0; i < 10; i++)
        if ((pids[i] = FORK()) == 0) {
            /* far enough apart for a loaded machine */
            int64_t at = (int64_t)base.tv_sec * 1000000000 + base.tv_nsec + (10 - i) * 60 * MS;
            struct timespec t = {at / 1000000000, at % 1000000000};
            ZERO(clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL));
            CHECK(now_ns(CLOCK_MONOTONIC) >= at);
            order[atomic_fetch_add(next, 1)] = i;
            _exit(0);
        }
    for (int i = 0; i < 10; i++)
        EXITS(pids[i], 0);
    CHECK_EQ(*next, 10);
}
