/* Control groups' controller cpu (cgroup-v2.rst, "CPU"; kernel/sched of Linux 6.1): limits that
 * hold, weights, what cpu.stat tells, moves, and attacks on all that.
 *
 * Times are those that are accounted, in the same clock as the limits, so they hold on a busy host
 * too; how little a group may get depends on it. */
#define AREA "cpucg"
#include "groups.h"
#include <sched.h>

/* ---- helpers --------------------------------------------------------------------------------- */

static void begin_cpu(void) {
    begin();
    with_controller("cpu");
}
static void make(const char *group) { OK(mkdir(path_of(group, NULL), 0755)); }
static void make_with(const char *group, const char *file, const char *text) {
    make(group);
    OK(tell(group, file, text));
}
static void give(const char *group) { OK(tell(group, "cgroup.subtree_control", "+cpu")); }

#define STAT(group, name) value_of(group, "cpu.stat", name)
/* Milliseconds on processors, here and below. */
static long used(const char *group) { return STAT(group, "usage_usec") / 1000; }

static void pin(int cpu) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    OK(sched_setaffinity(0, sizeof set, &set));
}
static int processors(void) {
    cpu_set_t set;
    OK(sched_getaffinity(0, sizeof set, &set));
    return CPU_COUNT(&set);
}
static void spin(void) {
    for (volatile unsigned long i = 0;; i++)
        ;
}
/* A process in a group that never sleeps; on the first processor if it is pinned. */
static pid_t hog(const char *group, bool pinned) {
    pid_t pid = FORK();
    if (pid)
        return pid;
    if (pinned)
        pin(0);
    OK(tell(group, "cgroup.procs", "0"));
    spin();
    return 0;
}
static void end_all(const char *group, pid_t *all, int count) {
    OK(tell(group, "cgroup.kill", "1"));
    for (int i = 0; i < count; i++)
        KILLED(all[i], SIGKILL);
}
static long clock_ms(void) { return (long)(now_ns(CLOCK_MONOTONIC) / MS); }
static bool close_to(long value, long wanted, long percent) {
    return value * 100 >= wanted * (100 - percent) && value * 100 <= wanted * (100 + percent);
}

/* ---- files ----------------------------------------------------------------------------------- */

TEST(groups_have_their_files) {
    begin_cpu();
    static const struct {
        const char *name, *content;
    } files[] = {
        {"cpu.idle", "0\n"},      {"cpu.max", "max 100000\n"}, {"cpu.max.burst", "0\n"},
        {"cpu.weight", "100\n"},  {"cpu.weight.nice", "0\n"},
    };
    make("a");
    CHECK(strstr(shown("a", "cgroup.controllers"), "cpu") != NULL);
    struct stat st;
    char path[PATH_MAX + 32];
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        OK(stat(path_of("a", files[i].name), &st));
        CHECK_EQ(st.st_mode, S_IFREG | 0644);
        CHECK_STR(shown("a", files[i].name), files[i].content);
        snprintf(path, sizeof path, "%s/%s", top, files[i].name);
        ERR(stat(path, &st), ENOENT);
    }
    static const char *const told[] = {"nr_periods", "nr_throttled", "throttled_usec", "nr_bursts",
                                       "burst_usec"};
    for (size_t i = 0; i < sizeof told / sizeof *told; i++)
        CHECK_EQ(STAT("a", told[i]), 0);
    /* Without the controller they are not there. */
    make("a/b");
    ERR(stat(path_of("a/b", "cpu.max"), &st), ENOENT);
    CHECK(strstr(shown("a/b", "cpu.stat"), "usage_usec") != NULL);
    CHECK(strstr(shown("a/b", "cpu.stat"), "nr_periods") == NULL);
}

TEST(limits_are_a_quota_and_a_period) {
    begin_cpu();
    make("a");
    static const struct {
        const char *told, *shown;
    } limits[] = {
        {"50000", "50000 100000\n"},      {"20000 40000\n", "20000 40000\n"},
        {"30000", "30000 40000\n"},       {"max", "max 40000\n"},
        {"max 100000", "max 100000\n"},   {"  1000   1000 ", "1000 1000\n"},
        {"5000000 1000000", "5000000 1000000\n"}, {"7000x", "7000 1000000\n"},
        {"8000 50000 9", "8000 50000\n"},
    };
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        OK(tell("a", "cpu.max", limits[i].told));
        CHECK_STR(shown("a", "cpu.max"), limits[i].shown);
    }
    static const char *const bad[] = {"x",      "-1",           "999",     "max 999",
                                      "1000 0", "1000 1000001", "maximum", "max1"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        ERR(tell("a", "cpu.max", bad[i]), EINVAL);
    CHECK_STR(shown("a", "cpu.max"), "8000 50000\n");
    OK(tell("a", "cpu.max.burst", "8000"));
    CHECK_STR(shown("a", "cpu.max.burst"), "8000\n");
    ERR(tell("a", "cpu.max.burst", "8001"), EINVAL);
    ERR(tell("a", "cpu.max", "7000"), EINVAL);
    ERR(tell("a", "cpu.max.burst", "x"), EINVAL);
    OK(tell("a", "cpu.max.burst", "0"));
    OK(tell("a", "cpu.max", "7000"));
}

TEST(weights_are_weights_or_nice_values) {
    begin_cpu();
    make("a");
    static const struct {
        const char *file, *told, *weight, *nice;
    } weights[] = {
        {"cpu.weight", "1", "1\n", "19\n"},         {"cpu.weight", "10000", "10000\n", "-20\n"},
        {"cpu.weight", "200\n", "200\n", "-3\n"},   {"cpu.weight", "0x64", "100\n", "0\n"},
        {"cpu.weight.nice", "-20", "8668\n", "-20\n"}, {"cpu.weight.nice", "19", "1\n", "19\n"},
        {"cpu.weight.nice", "5", "33\n", "5\n"},    {"cpu.weight.nice", "0", "100\n", "0\n"},
    };
    for (size_t i = 0; i < sizeof weights / sizeof *weights; i++) {
        OK(tell("a", weights[i].file, weights[i].told));
        CHECK_STR(shown("a", "cpu.weight"), weights[i].weight);
        CHECK_STR(shown("a", "cpu.weight.nice"), weights[i].nice);
    }
    ERR(tell("a", "cpu.weight", "0"), ERANGE);
    ERR(tell("a", "cpu.weight", "10001"), ERANGE);
    ERR(tell("a", "cpu.weight", "-1"), EINVAL);
    ERR(tell("a", "cpu.weight", "x"), EINVAL);
    ERR(tell("a", "cpu.weight.nice", "20"), ERANGE);
    ERR(tell("a", "cpu.weight.nice", "-21"), ERANGE);
    CHECK_STR(shown("a", "cpu.weight"), "100\n");
    OK(tell("a", "cpu.idle", "1"));
    CHECK_STR(shown("a", "cpu.idle"), "1\n");
    CHECK_STR(shown("a", "cpu.weight"), "0\n");
    ERR(tell("a", "cpu.weight", "100"), EINVAL);
    ERR(tell("a", "cpu.weight.nice", "0"), EINVAL);
    ERR(tell("a", "cpu.idle", "2"), EINVAL);
    OK(tell("a", "cpu.idle", "0"));
    CHECK_STR(shown("a", "cpu.weight"), "100\n");
    /* What was set ends with the controller. */
    OK(tell("a", "cpu.weight", "300"));
    OK(tell("a", "cpu.max", "20000"));
    OK(tell("", "cgroup.subtree_control", "-cpu"));
    OK(tell("", "cgroup.subtree_control", "+cpu"));
    CHECK_STR(shown("a", "cpu.weight"), "100\n");
    CHECK_STR(shown("a", "cpu.max"), "max 100000\n");
}

/* ---- limits ---------------------------------------------------------------------------------- */

/* What a group used in so many milliseconds, at most a little more than its part of them. */
static void holds(const char *group, long ms, long percent) {
    long before = used(group), begun = clock_ms();
    msleep(ms);
    long now = used(group) - before, passed = clock_ms() - begun;
    /* One period, and what a tick that comes late finds on each processor: on a busy host much. */
    if (now > passed * percent / 100 + 300)
        FAIL("%s used %ld ms in %ld ms, of which it may have %ld %%", group, now, passed, percent);
}

TEST(a_group_gets_no_more_than_its_quota) {
    begin_cpu();
    make_with("a", "cpu.max", "20000 100000");
    pid_t pid = hog("a", false);
    msleep(200);
    holds("a", 800, 20);
    CHECK(used("a") >= 60);
    CHECK(STAT("a", "nr_periods") >= 5);
    CHECK(STAT("a", "nr_throttled") >= 3);
    CHECK(STAT("a", "nr_throttled") <= STAT("a", "nr_periods"));
    CHECK(STAT("a", "throttled_usec") >= 100000);
    end_all("a", &pid, 1);
}

TEST(all_of_a_group_share_its_quota) {
    begin_cpu();
    make_with("a", "cpu.max", "20000 100000");
    enum { MANY = 12 };
    pid_t all[MANY];
    for (int i = 0; i < MANY; i++)
        all[i] = hog("a", false);
    msleep(300);
    holds("a", 1000, 20);
    end_all("a", all, MANY);
}

static void *spins(void *unused UNUSED) {
    spin();
    return NULL;
}
TEST(threads_share_it_too) {
    begin_cpu();
    make_with("a", "cpu.max", "10000 50000");
    pid_t pid = FORK();
    if (pid == 0) {
        pthread_t thread;
        pthread_create(&thread, NULL, spins, NULL);
        OK(tell("a", "cgroup.procs", "0"));
        for (int i = 0; i < 3; i++)
            pthread_create(&thread, NULL, spins, NULL);
        spin();
    }
    while (used("a") < 20)
        msleep(5);
    msleep(200);
    holds("a", 800, 20);
    end_all("a", &pid, 1);
}

TEST(the_limit_of_a_group_around_holds) {
    begin_cpu();
    make_with("a", "cpu.max", "30000 100000");
    give("a");
    make_with("a/b", "cpu.max", "80000 100000");
    make("a/c");
    pid_t all[] = {hog("a/b", false), hog("a/c", false), hog("a/c", false)};
    msleep(300);
    holds("a", 800, 30);
    OK(tell("a/c", "cpu.max", "5000 100000"));
    msleep(300);
    holds("a/c", 500, 5);
    holds("a", 600, 30);
    end_all("a", all, 3);
}

/* Programs that are too short for a tick to find them. */
TEST(short_programs_are_charged) {
    begin_cpu();
    make_with("a", "cpu.max", "20000 100000");
    pid_t pid = FORK();
    if (pid == 0) {
        OK(tell("a", "cgroup.procs", "0"));
        for (;;) {
            pid_t child = fork();
            if (child == 0)
                _exit(0);
            waitpid(child, NULL, 0);
        }
    }
    msleep(300);
    holds("a", 800, 20);
    CHECK(STAT("a", "nr_throttled") >= 3);
    OK(tell("a", "cgroup.kill", "1"));
    KILLED(pid, SIGKILL);
}

TEST(those_outside_are_not_held_back) {
    begin_cpu();
    make_with("a", "cpu.max", "1000 100000");
    pid_t pid = hog("a", false);
    msleep(100);
    long begun = clock_ms();
    /* With what the group may have this would take twenty seconds. */
    IN_CHILD(while (now_ns(CLOCK_PROCESS_CPUTIME_ID) < 200 * MS));
    CHECK(clock_ms() - begun < 5000);
    end_all("a", &pid, 1);
}

TEST(a_group_goes_on_when_the_limit_is_raised) {
    begin_cpu();
    make_with("a", "cpu.max", "1000 1000000");
    pid_t pid = hog("a", false);
    msleep(1200);
    long before = used("a");
    OK(tell("a", "cpu.max", "max"));
    for (int i = 0; i < 300 && used("a") < before + 50; i++)
        msleep(10);
    CHECK(used("a") >= before + 50);
    end_all("a", &pid, 1);
}

TEST(who_rests_can_be_moved_out) {
    begin_cpu();
    make_with("a", "cpu.max", "1000 1000000");
    make("b");
    pid_t pid = hog("a", false);
    msleep(1200);
    OK(move_to("b", pid));
    for (int i = 0; i < 300 && used("b") < 50; i++)
        msleep(10);
    CHECK(used("b") >= 50);
    end_all("b", &pid, 1);
}

TEST(who_rests_can_be_killed_stopped_and_frozen) {
    begin_cpu();
    make_with("a", "cpu.max", "2000 100000");
    pid_t pid = hog("a", false);
    msleep(300);
    OK(kill(pid, SIGSTOP));
    int status;
    CHECK_EQ(waitpid(pid, &status, WUNTRACED), pid);
    CHECK(WIFSTOPPED(status));
    OK(kill(pid, SIGCONT));
    msleep(100);
    OK(tell("a", "cgroup.freeze", "1"));
    for (int i = 0; i < 300 && FROZEN("a") == 0; i++)
        msleep(10);
    CHECK_EQ(FROZEN("a"), 1);
    long before = used("a");
    msleep(500);
    CHECK(used("a") <= before + 5);
    OK(tell("a", "cgroup.freeze", "0"));
    msleep(200);
    OK(kill(pid, SIGKILL));
    KILLED(pid, SIGKILL);
    CHECK_EQ(POPULATED("a"), 0);
}

/* The time that nobody used is there later, as far as it may be saved. */
TEST(a_burst_uses_what_was_saved) {
    begin_cpu();
    make("a");
    OK(tell("a", "cpu.max", "100000 200000"));
    OK(tell("a", "cpu.max.burst", "100000"));
    pid_t pid = FORK();
    if (pid == 0) {
        OK(tell("a", "cgroup.procs", "0"));
        for (;;) {
            msleep(600);
            long until = clock_ms() + 300;
            while (clock_ms() < until)
                ;
        }
    }
    for (int i = 0; i < 60 && STAT("a", "nr_bursts") == 0; i++)
        msleep(100);
    CHECK(STAT("a", "nr_bursts") > 0);
    CHECK(STAT("a", "burst_usec") > 0);
    OK(tell("a", "cgroup.kill", "1"));
    KILLED(pid, SIGKILL);
}

/* A group that loses the controller is free, and what it was allowed does not come back. */
TEST(a_limit_ends_with_the_controller) {
    begin_cpu();
    make_with("a", "cpu.max", "1000 1000000");
    pid_t pid = hog("a", false);
    msleep(1100);
    OK(tell("", "cgroup.subtree_control", "-cpu"));
    long before = used("a");
    for (int i = 0; i < 300 && used("a") < before + 50; i++)
        msleep(10);
    CHECK(used("a") >= before + 50);
    end_all("a", &pid, 1);
}

/* ---- weights --------------------------------------------------------------------------------- */

/* What two groups used of one processor in so many milliseconds. */
static void compete(const char *a, const char *b, long ms, long wanted, long percent) {
    long first = used(a), second = used(b);
    msleep(ms);
    first = used(a) - first;
    second = used(b) - second;
    /* In hundredths, so that none is 0. */
    long ratio = first * 100 / (second ? second : 1);
    if (!close_to(ratio, wanted, percent))
        FAIL("%s used %ld ms, %s %ld ms: not as %ld to 100", a, first, b, second, wanted);
}

TEST(groups_share_by_their_weights) {
    begin_cpu();
    make_with("a", "cpu.weight", "300");
    make("b");
    pid_t a = hog("a", true), b = hog("b", true);
    msleep(300);
    compete("a", "b", 1200, 300, 30);
    OK(tell("a", "cpu.weight", "50"));
    msleep(300);
    compete("a", "b", 1200, 50, 30);
    end(a);
    end(b);
}

TEST(many_in_a_group_get_no_more_than_one_in_another) {
    begin_cpu();
    make("a");
    make("b");
    enum { MANY = 6 };
    pid_t all[MANY], one = hog("a", true);
    for (int i = 0; i < MANY; i++)
        all[i] = hog("b", true);
    msleep(500);
    compete("a", "b", 1500, 100, 35);
    end_all("b", all, MANY);
    end(one);
}

TEST(groups_in_a_group_share_what_it_gets) {
    begin_cpu();
    make("a");
    give("a");
    make_with("a/x", "cpu.weight", "200");
    make("a/y");
    make("b");
    pid_t all[] = {hog("a/x", true), hog("a/y", true), hog("a/y", true)}, other = hog("b", true);
    msleep(500);
    compete("a", "b", 1500, 100, 35);
    compete("a/x", "a/y", 1200, 200, 35);
    end_all("a", all, 3);
    end(other);
}

TEST(nice_values_count_within_a_group) {
    begin_cpu();
    make("a");
    give("a");
    make("a/x");
    make("b");
    pid_t nice = hog("a/x", true), usual = hog("a/x", true), other = hog("b", true);
    OK(setpriority(PRIO_PROCESS, (id_t)nice, 10));
    msleep(500);
    compete("a", "b", 1500, 100, 35);
    CHECK_EQ(getpriority(PRIO_PROCESS, (id_t)nice), 10);
    OK(tell("a", "cgroup.kill", "1"));
    KILLED(nice, SIGKILL);
    KILLED(usual, SIGKILL);
    end(other);
}

TEST(an_idle_group_gets_what_others_leave) {
    begin_cpu();
    make_with("a", "cpu.idle", "1");
    make("b");
    pid_t idle_one = hog("a", true), other = hog("b", true);
    msleep(300);
    long before = used("b"), own = used("a");
    msleep(1200);
    own = used("a") - own;
    before = used("b") - before;
    if (own * 10 > before)
        FAIL("the idle group used %ld ms, the other one %ld ms", own, before);
    end(other);
    own = used("a");
    for (int i = 0; i < 300 && used("a") < own + 100; i++)
        msleep(10);
    CHECK(used("a") >= own + 100);
    end(idle_one);
}

/* ---- attacks --------------------------------------------------------------------------------- */

/* Limits change, members come, move, fork and are killed, all at once. */
TEST_TIMES(storm, 3) {
    begin_cpu();
    make("a");
    give("a");
    make("a/x");
    make("b");
    static const char *const groups[] = {"a", "a/x", "b"};
    static const char *const limits[] = {"1000 1000", "max", "2000 100000", "1000000 1000000",
                                         "1000 10000"};
    enum { MOST = 8 };
    pid_t all[MOST] = {0};
    int cpus = processors();
    unsigned seed = (unsigned)getpid();
    for (long until = clock_ms() + 2000; clock_ms() < until;) {
        int i = rand_r(&seed) % MOST;
        const char *group = groups[1 + rand_r(&seed) % 2];
        if (all[i] == 0) {
            if ((all[i] = FORK()) == 0) {
                pin(i % cpus);
                OK(tell(group, "cgroup.procs", "0"));
                pthread_t thread;
                if (i % 2)
                    pthread_create(&thread, NULL, spins, NULL);
                for (int n = 0;; n++) {
                    pid_t child = fork();
                    if (child == 0)
                        _exit(0);
                    if (child > 0)
                        waitpid(child, NULL, 0);
                }
            }
        } else if (rand_r(&seed) % 3 == 0) {
            OK(kill(all[i], SIGKILL));
            KILLED(all[i], SIGKILL);
            all[i] = 0;
        } else {
            move_to(group, all[i]);
        }
        OK(tell(groups[rand_r(&seed) % 3], "cpu.max", limits[rand_r(&seed) % 5]));
        char weight[8];
        snprintf(weight, sizeof weight, "%d", 1 + rand_r(&seed) % 10000);
        OK(tell(groups[rand_r(&seed) % 3], "cpu.weight", weight));
    }
    for (int i = 0; i < MOST; i++)
        if (all[i])
            end(all[i]);
    for (int i = 0; i < 500 && POPULATED("") > 1; i++)
        msleep(10);
    for (size_t i = 0; i < 3; i++)
        OK(tell(groups[i], "cgroup.kill", "1"));
    EVENTUALLY(POPULATED("a") == 0 && POPULATED("b") == 0);
}

/* The controller goes and comes while what it holds back runs. */
TEST_TIMES(the_controller_comes_and_goes, 3) {
    begin_cpu();
    make("a");
    pid_t all[3];
    for (int i = 0; i < 3; i++)
        all[i] = hog("a", false);
    for (int i = 0; i < 40; i++) {
        OK(tell("a", "cpu.max", "1000 50000"));
        msleep(i % 20);
        OK(tell("", "cgroup.subtree_control", "-cpu"));
        OK(tell("", "cgroup.subtree_control", "+cpu"));
    }
    long before = used("a");
    for (int i = 0; i < 300 && used("a") < before + 50; i++)
        msleep(10);
    CHECK(used("a") >= before + 50);
    end_all("a", all, 3);
}

/* As many groups as fit, one in another and one beside the other, with a member in each. */
TEST(many_groups) {
    begin_cpu();
    char name[256] = "d";
    make(name);
    for (int i = 0; i < 20; i++) {
        give(name);
        strcat(name, "/d");
        make_with(name, "cpu.max", "50000 100000");
    }
    pid_t deep = hog(name, false);
    char beside[16];
    for (int i = 0; i < 150; i++) {
        snprintf(beside, sizeof beside, "g%d", i);
        make_with(beside, "cpu.max", "10000");
    }
    pid_t wide = hog("g149", false);
    msleep(300);
    holds("g149", 500, 10);
    holds("d", 1000, 50);
    end(deep);
    end(wide);
    for (int i = 0; i < 150; i++) {
        snprintf(beside, sizeof beside, "g%d", i);
        OK(rmdir(path_of(beside, NULL)));
    }
}
