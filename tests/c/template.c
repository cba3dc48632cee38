/* Templates: Hayate's own system calls. Linux has none. */
#define AREA "template"
#include "harness.h"
#include "../../guest/interface/include/hayate.h"

static const char RULES[] = "option -x\nlast -e\nscript\nsame LANG\n";

/* What a case left that did not come to its end. */
static void remove_all(void) {
    static const char *const names[] = {"plain", "number", "pages", "files",   "signals", "random",
                                        "user",  "limits", "bound", "by-name", "shown",   "many",
                                        "meet",  "refused", "gone"};
    char name[32];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        hayate_template_remove(names[i], -1);
        hayate_template_remove(names[i], NOBODY);
    }
    for (int i = 0; i < 40; i++) {
        snprintf(name, sizeof name, "many-%d", i);
        hayate_template_remove(name, NOBODY);
    }
}

static void need_hayate(void) {
    if (hayate_template_remove("none", -1) < 0 && errno == ENOSYS)
        SKIP("these calls are Hayate's own");
    if (in_supervisor_mode())
        SKIP("nothing in supervisor mode becomes a template");
    remove_all();
}

/* ---- the program that becomes a template ------------------------------------------------------- */

static struct hayate_start given;
static volatile int counter = 40;
static char large[64 * PAGE];
static char *huge; /* of large pages, where there are some */
enum { HUGE = 6 << 20 };
static struct hayate_variables pairs;
static int forked; /* handlers of pthread_atfork that ran */

static void note_fork(void) { forked++; }

static void say_all(void) {
    char cwd[PATH_MAX] = "";
    for (char **a = given.arguments; *a; a++)
        printf("[%s]", *a);
    for (char **e = given.environment; *e; e++)
        printf("{%s}", *e);
    printf("<%s>", getcwd(cwd, sizeof cwd) ? cwd : "?");
    char text[4096] = "";
    ssize_t length = get_file("/proc/self/cmdline", text, sizeof text);
    for (ssize_t i = 0; i < length; i++)
        putchar(text[i] ? text[i] : '|');
    length = get_file("/proc/self/environ", text, sizeof text);
    for (ssize_t i = 0; i < length; i++)
        putchar(text[i] ? text[i] : '|');
    CHECK_EQ(given.argument_count > 0 && given.arguments[given.argument_count] == NULL, 1);
    CHECK(given.environment[given.environment_count] == NULL);
    CHECK(given.arguments_size == 0 || given.strings == given.arguments[0]);
}

static volatile sig_atomic_t caught;
static void note_signal(int signal) { caught = signal; }

/* In a start: argv[1] says what to do. */
static int start_of(char **argv) {
    const char *what = argv[1] ? argv[1] : "";
    if (!strcmp(what, "variables"))
        return environ == given.environment && pairs.size == 15 &&
                       !memcmp(pairs.strings, "A\0\0COLOUR\0blue", 15)
                   ? 0
                   : 2;
    environ = given.environment;
    if (!strcmp(what, "say")) {
        say_all();
    } else if (!strcmp(what, "exit")) {
        return atoi(argv[2]);
    } else if (!strcmp(what, "count")) {
        for (size_t i = 0; i < sizeof large; i++)
            if (large[i] != 1)
                return 98;
        for (size_t i = 0; huge && i < HUGE; i += 64)
            if (huge[i] != 5)
                return 94;
        if (huge)
            memset(huge + (argv[2][0] - 'a') * 9 * PAGE, argv[2][0], HUGE / 5);
        memset(large, argv[2][0], sizeof large);
        counter++;
        msleep(20);
        for (size_t i = 0; i < sizeof large; i++)
            if (large[i] != argv[2][0])
                return 99;
        return counter;
    } else if (!strcmp(what, "number")) {
        int child, status = 0;
        if (getpid() != syscall(SYS_gettid) || getpid() != (int)strtol(argv[2] ? argv[2] : "0", NULL, 10))
            return 2;
        signal(SIGUSR1, note_signal);
        if (raise(SIGUSR1) || caught != SIGUSR1)
            return 3;
        pthread_mutex_t lock;
        pthread_mutexattr_t recursive;
        pthread_mutexattr_init(&recursive);
        pthread_mutexattr_settype(&recursive, PTHREAD_MUTEX_RECURSIVE);
        pthread_mutex_init(&lock, &recursive);
        if (pthread_mutex_lock(&lock) || pthread_mutex_trylock(&lock))
            return 4;
        if ((child = fork()) == 0)
            _exit(raise(SIGUSR1));
        if (waitpid(child, &status, 0) != child || status)
            return 5;
        return forked == 1 ? 0 : 6;
    } else if (!strcmp(what, "open")) {
        int high = 0;
        for (int fd = 0; fd < 64; fd++)
            if (fcntl(fd, F_GETFD) != -1)
                high = fd;
        return high;
    } else if (!strcmp(what, "signals")) {
        struct sigaction action;
        sigset_t mask;
        sigaction(SIGUSR2, NULL, &action);
        if (action.sa_handler != note_signal)
            return 2;
        sigaction(SIGHUP, NULL, &action);
        if ((action.sa_handler == SIG_IGN) != (argv[2] != NULL))
            return 3;
        sigprocmask(SIG_SETMASK, NULL, &mask);
        return sigismember(&mask, SIGHUP) ? 4 : 0;
    } else if (!strcmp(what, "random")) {
        printf("%llx%llx", (unsigned long long)given.random[0], (unsigned long long)given.random[1]);
    } else if (!strcmp(what, "ids")) {
        printf("%d %d", (int)getuid(), (int)getgid());
    } else if (!strcmp(what, "thread")) {
        pthread_t thread;
        void *result = NULL;
        if (pthread_create(&thread, NULL, (void *(*)(void *))(void *)getenv, (void *)"COLOUR") ||
            pthread_join(thread, &result) || !result)
            return 2;
        printf("%s", (char *)result);
    }
    fflush(stdout);
    return 0;
}

/* maker NAME [FAULT]: becomes the template NAME, with something that forbids it. The status is the
 * error, or 200 if none was kept for another reason. */
HELPER(maker) {
    const char *fault = argc > 2 ? argv[2] : "";
    struct hayate_template ready = {.name = argv[1], .start = &given, .serves = RULES,
                                    .files = "/etc/passwd\n"};
    char cwd[PATH_MAX], rules[3 * PATH_MAX];
    syscall(SYS_close_range, 3, ~0U, 0);
    signal(SIGUSR2, note_signal);
    pthread_atfork(NULL, NULL, note_fork);
    memset(large, 1, sizeof large);
    if (!strcmp(argv[1], "pages")) {
        huge = mmap(NULL, HUGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        madvise(huge, HUGE, MADV_HUGEPAGE);
        memset(huge, 5, HUGE);
    }
    if (!strcmp(fault, "descriptor"))
        OK(open("/dev/null", O_RDONLY));
    if (!strcmp(fault, "shared"))
        *(char *)SHARED(PAGE) = 1;
    if (!strcmp(fault, "child") && FORK() == 0)
        _exit(0);
    pthread_t thread;
    if (!strcmp(fault, "thread"))
        ZERO(pthread_create(&thread, NULL, (void *(*)(void *))(void *)pause, NULL));
    if (!strcmp(fault, "place"))
        ready.start = mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (!strcmp(fault, "no-rules"))
        ready.serves = NULL;
    if (!strcmp(fault, "variables")) {
        ready.environment = &environ;
        ready.variables = &pairs;
    }
    if (!strcmp(fault, "variables-nowhere"))
        ready.variables = (struct hayate_variables *)8;
    if (!strcmp(fault, "environment-nowhere"))
        ready.environment = (char ***)8;
    if (!strcmp(fault, "script")) {
        ready.serves = rules;
        CHECK(getcwd(cwd, sizeof cwd));
        snprintf(rules, sizeof rules, "script %s/file\nunchanged %s/file\nunchanged %s/linked\n",
                 cwd, cwd, cwd);
    }
    if (!strcmp(fault, "shown"))
        ready.serves = "script\nunchanged /proc/self/maps\n";
    if (!strcmp(fault, "bad-rules"))
        ready.serves = "serve everything\n";
    if (!strcmp(fault, "ids"))
        OK(syscall(SYS_setresuid, 1000, 0, 0));
    if (!strcmp(fault, "undumpable"))
        OK(syscall(SYS_prctl, 4 /* PR_SET_DUMPABLE */, 0, 0, 0, 0));
    switch (hayate_template_make(&ready)) {
    case 0:
        return 0;
    case 1:
        exit(start_of(given.arguments));
    default:
        return errno;
    }
}

/* ---- making and starting ----------------------------------------------------------------------- */

static char *environment[] = {(char *)"COLOUR=blue", (char *)"A=", NULL};

/* Makes a template; its maker ends with this status. */
static void make_as(uid_t user, const char *name, const char *fault, int status) {
    pid_t pid = FORK();
    if (pid == 0) {
        if (user)
            BECOME(user, user);
        execle(hy_self, hy_self, "--helper", "maker", name, fault, NULL, (char *[]){NULL});
        _exit(98);
    }
    EXITS(pid, status);
}
static void make(const char *name) { make_as(0, name, NULL, 0); }

/* Starts a template in a new process. */
static pid_t started(const char *name, const char *what, const char *more) {
    pid_t pid = FORK();
    if (pid == 0) {
        char number[16], *argv[] = {(char *)"zero", (char *)what, (char *)more, NULL};
        if (!strcmp(what, "number")) {
            snprintf(number, sizeof number, "%d", getpid());
            argv[2] = number;
        }
        hayate_template_start(name, argv, environment);
        _exit(errno == ENOENT ? 97 : errno == EPERM ? 96 : errno == ENOMEM ? 95 : 98);
    }
    return pid;
}
#define STARTS(name, what, more, status) EXITS(started(name, what, more), status)

/* What a start prints. */
static void printed(char *to, size_t size, const char *name, const char *what) {
    int ends[2];
    OK(pipe2(ends, O_CLOEXEC));
    pid_t pid = FORK();
    if (pid == 0) {
        OK(dup2(ends[1], 1));
        char *argv[] = {(char *)"zero", (char *)what, (char *)"and more", NULL};
        hayate_template_start(name, argv, environment);
        _exit(98);
    }
    OK(close(ends[1]));
    size_t done = 0;
    ssize_t n;
    while (done < size - 1 && (n = read(ends[0], to + done, size - 1 - done)) > 0)
        done += (size_t)n;
    to[done] = 0;
    OK(close(ends[0]));
    EXITS(pid, 0);
}

/* The lines of /proc/hayate/templates about one of this name that begin with a word. */
static int lines(const char *name, const char *word) {
    static char text[1 << 16];
    char wanted[128];
    int count = 0;
    bool inside = false;
    CHECK(get_file("/proc/hayate/templates", text, sizeof text) >= 0);
    snprintf(wanted, sizeof wanted, "name: %s", name);
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
        if (!strncmp(line, "name: ", 6))
            inside = !strcmp(line, wanted);
        count += inside && !strncmp(line, word, strlen(word));
    }
    return count;
}

TEST(a_start_has_the_arguments_environment_and_directory_of_its_starter) {
    need_hayate();
    make("plain");
    char text[8192], cwd[PATH_MAX], wanted[8192];
    OK(mkdir("inside", 0755));
    OK(chdir("inside"));
    CHECK(getcwd(cwd, sizeof cwd) != NULL);
    printed(text, sizeof text, "plain", "say");
    snprintf(wanted, sizeof wanted,
             "[zero][say][and more]{COLOUR=blue}{A=}<%s>zero|say|and more|COLOUR=blue|A=|", cwd);
    CHECK_STR(text, wanted);
    STARTS("plain", "exit", "7", 7);
    STARTS("plain", "exit", "0", 0);
    printed(text, sizeof text, "plain", "thread");
    CHECK_STR(text, "blue");
    OK(hayate_template_remove("plain", -1));
    STARTS("plain", "exit", "0", 97);
}

TEST(a_start_has_its_own_number_everywhere) {
    need_hayate();
    make("number");
    for (int i = 0; i < 3; i++)
        STARTS("number", "number", NULL, 0);
    OK(hayate_template_remove("number", -1));
}

TEST(starts_share_no_written_page) {
    need_hayate();
    make("pages");
    pid_t pids[6];
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 6; i++)
            pids[i] = started("pages", "count", (char[]){(char)('a' + i), 0});
        for (int i = 0; i < 6; i++)
            EXITS(pids[i], 41);
    }
    CHECK_EQ(lines("pages", "starts: 18"), 1);
    OK(hayate_template_remove("pages", -1));
}

TEST(a_start_has_the_descriptors_of_its_starter) {
    need_hayate();
    make("files");
    int fd = OK(open("/dev/null", O_RDONLY));
    OK(dup2(fd, 20));
    STARTS("files", "open", NULL, 20);
    OK(fcntl(20, F_SETFD, FD_CLOEXEC));
    OK(close(fd));
    pid_t pid = FORK();
    if (pid == 0) {
        OK(syscall(SYS_close_range, 3, 19, 0));
        OK(syscall(SYS_close_range, 21, ~0U, 0));
        EXITS(started("files", "open", NULL), 2);
        _exit(0);
    }
    EXITS(pid, 0);
    OK(hayate_template_remove("files", -1));
}

TEST(handlers_are_the_templates_and_what_is_ignored_the_starters) {
    need_hayate();
    make("signals");
    STARTS("signals", "signals", NULL, 0);
    signal(SIGHUP, SIG_IGN);
    STARTS("signals", "signals", "ignored", 0);
    OK(hayate_template_remove("signals", -1));
}

TEST(each_start_draws_other_random_bytes) {
    need_hayate();
    make("random");
    char one[64], other[64];
    printed(one, sizeof one, "random", "random");
    printed(other, sizeof other, "random", "random");
    CHECK(strlen(one) > 8 && strcmp(one, other) != 0);
    OK(hayate_template_remove("random", -1));
}

TEST(a_template_serves_one_user) {
    need_hayate();
    make("user");
    make_as(NOBODY, "user", NULL, 0);
    char text[64];
    printed(text, sizeof text, "user", "ids");
    CHECK_STR(text, "0 0");
    pid_t pid = FORK();
    if (pid == 0) {
        BECOME(NOBODY, NOBODY);
        printed(text, sizeof text, "user", "ids");
        CHECK_STR(text, "65534 65534");
        CHECK_EQ(lines("user", "owner: 0"), 0);
        CHECK_EQ(lines("user", "owner: 65534"), 1);
        ERR(hayate_template_remove("user", 0), EPERM);
        _exit(0);
    }
    EXITS(pid, 0);
    /* So does no process with another root. */
    pid = FORK();
    if (pid == 0) {
        OK(chroot("."));
        EXITS(started("user", "exit", "0"), 96);
        _exit(0);
    }
    EXITS(pid, 0);
    /* The same user with another group is another. */
    pid = FORK();
    if (pid == 0) {
        BECOME(NOBODY, 12345);
        EXITS(started("user", "exit", "0"), 96);
        _exit(0);
    }
    EXITS(pid, 0);
    OK(hayate_template_remove("user", -1));
    OK(hayate_template_remove("user", NOBODY));
    ERR(hayate_template_remove("user", NOBODY), ENOENT);
}

TEST(limits_are_the_starters) {
    need_hayate();
    make("limits");
    pid_t pid = FORK();
    if (pid == 0) {
        struct rlimit limit = {128 << 10, 128 << 10};
        OK(setrlimit(RLIMIT_AS, &limit));
        EXITS(started("limits", "exit", "0"), 95);
        _exit(0);
    }
    EXITS(pid, 0);
    STARTS("limits", "exit", "3", 3);
    OK(hayate_template_remove("limits", -1));
}

TEST(what_must_not_become_a_template_does_not) {
    need_hayate();
    make_as(0, "refused", "descriptor", EMFILE);
    make_as(0, "refused", "shared", EINVAL);
    make_as(0, "refused", "child", EBUSY);
    make_as(0, "refused", "thread", EBUSY);
    make_as(0, "refused", "place", EFAULT);
    make_as(0, "refused", "bad-rules", EINVAL);
    make_as(0, "refused", "ids", EPERM);
    make_as(0, "refused", "undumpable", EPERM);
    make_as(0, "no/such", NULL, EINVAL);
    make_as(0, "", NULL, EINVAL);
    STARTS("refused", "exit", "0", 97);
    struct hayate_template ready = {"x", &given, NULL, NULL};
    ERR(hayate_call(HAYATE_SYS_TEMPLATE_READY, (long)&ready, 24, 0), EINVAL);
    ERR(hayate_call(HAYATE_SYS_TEMPLATE_READY, (long)BAD, sizeof ready, 0), EFAULT);
    ready.name = KERNEL_ADDRESS;
    ERR(hayate_template_ready(&ready), EFAULT);
    ready.name = "x", ready.start = KERNEL_ADDRESS;
    ERR(hayate_template_ready(&ready), EFAULT);
    ERR(hayate_template_bind("/bin/sh", "nothing"), ENOENT);
}

TEST(names_and_paths_of_the_calls_are_checked) {
    need_hayate();
    ERR(hayate_template_start("none", environment, environment), ENOENT);
    ERR(hayate_template_start("", environment, environment), ENOENT);
    ERR(hayate_template_start(BAD, environment, environment), EFAULT);
    ERR(hayate_template_start("none", BAD, environment), EFAULT);
    ERR(hayate_template_start("none", environment, BAD), EFAULT);
    ERR(hayate_template_remove("none", -1), ENOENT);
    ERR(hayate_template_remove(BAD, -1), EFAULT);
    ERR(hayate_template_bind(BAD, "none"), EFAULT);
    ERR(hayate_template_bind(BAD, NULL), EFAULT);
    ERR(hayate_template_bind(hy_self, BAD), EFAULT);
    make("shown");
    ERR(hayate_template_bind("/none", "shown"), ENOENT);
    ERR(hayate_template_bind("/etc/passwd/x", "shown"), ENOTDIR);
    OK(hayate_template_remove("shown", -1));
}

TEST(a_declaration_ends_with_its_program) {
    need_hayate();
    pid_t pid = FORK();
    if (pid == 0) {
        struct hayate_template ready = {"gone", &given, NULL, NULL};
        OK(hayate_template_ready(&ready));
        execl(hy_self, hy_self, "--helper", "forks", NULL);
        _exit(98);
    }
    EXITS(pid, 0);
    STARTS("gone", "exit", "0", 97);
}
HELPER(forks) {
    IN_CHILD(_exit(0));
    return 0;
}

/* ---- bound paths ------------------------------------------------------------------------------- */

/* Executes this program by its path; a template's start says so by its status. */
static pid_t executed(const char *path, char *const argv[], char *const envp[]) {
    pid_t pid = FORK();
    if (pid == 0) {
        execve(path, argv, envp);
        _exit(98);
    }
    return pid;
}
#define ARGS(...) ((char *[]){(char *)"zero", __VA_ARGS__, NULL})

TEST(an_exec_of_a_bound_path_begins_at_the_template) {
    need_hayate();
    char *none[] = {NULL}, *linked[] = {(char *)"LD_BIND_NOT=1", NULL};
    char *spoken[] = {(char *)"LANG=C", NULL};
    make("bound");
    OK(hayate_template_bind(hy_self, "bound"));
    /* A start takes argv[1] for what to do; the program itself takes it for a case and ends with 2. */
    EXITS(executed(hy_self, ARGS("exit", "33"), none), 33);
    EXITS(executed(hy_self, ARGS("exit", "34"), environment), 34);
    CHECK_EQ(lines("bound", "bound: "), 1);
    /* Options and environment that it does not serve. */
    CHECK_EQ(lines("bound", "starts: 2"), 1);
    EXITS(executed(hy_self, ARGS("--helper", "count", "x"), none), 2);
    EXITS(executed(hy_self, ARGS("--helper", "count"), linked), 1);
    EXITS(executed(hy_self, ARGS("no-such-case"), spoken), 2);
    EXITS(executed(hy_self, ARGS("no-such-case"), linked), 2);
    CHECK_EQ(lines("bound", "starts: 2"), 1);
    /* The same file by another path. */
    OK(symlink(hy_self, "other"));
    EXITS(executed("./other", ARGS("no-such-case"), none), 2);
    /* A script names its interpreter. */
    char script[PATH_MAX + 64];
    snprintf(script, sizeof script, "#!%s -x\n", hy_self);
    PUT_MODE("exit", script, 0755);
    EXITS(executed("./exit", ARGS("35"), none), 0); /* argv is: zero -x ./exit 35 */
    CHECK_EQ(lines("bound", "starts: 3"), 1);
    /* Another user, and a mask that another program would see. */
    pid_t pid = FORK();
    if (pid == 0) {
        BECOME(NOBODY, NOBODY);
        EXITS(executed(hy_self, ARGS("no-such-case"), none), 2);
        _exit(0);
    }
    EXITS(pid, 0);
    sigset_t mask, old;
    sigemptyset(&mask);
    sigaddset(&mask, SIGWINCH);
    OK(sigprocmask(SIG_BLOCK, &mask, &old));
    EXITS(executed(hy_self, ARGS("no-such-case"), none), 2);
    OK(sigprocmask(SIG_SETMASK, &old, NULL));
    /* Made again, it takes the old one's place; without its name the program starts as always. */
    make("bound");
    EXITS(executed(hy_self, ARGS("exit", "36"), none), 36);
    OK(hayate_template_bind(hy_self, NULL));
    ERR(hayate_template_bind(hy_self, NULL), ENOENT);
    EXITS(executed(hy_self, ARGS("no-such-case"), none), 2);
    OK(hayate_template_bind(hy_self, "bound"));
    ERR(hayate_template_bind("/bin/sh", "bound"), EINVAL);
    ERR(hayate_template_bind("other", "bound"), EINVAL);
    make_as(0, "by-name", "no-rules", 0);
    ERR(hayate_template_bind(hy_self, "by-name"), EOPNOTSUPP);
    OK(hayate_template_remove("by-name", -1));
    OK(hayate_template_remove("bound", -1));
    ERR(hayate_template_bind(hy_self, NULL), ENOENT);
    EXITS(executed(hy_self, ARGS("no-such-case"), none), 2);
}
HELPER(count) { return argc % 251; }

TEST(a_start_has_its_environment_where_its_program_wants_it) {
    need_hayate();
    make_as(0, "plain", "variables", 0);
    STARTS("plain", "variables", NULL, 0);
    STARTS("plain", "thread", NULL, 0);
    OK(hayate_template_remove("plain", -1));
    make_as(0, "refused", "variables-nowhere", EFAULT);
    make_as(0, "refused", "environment-nowhere", EFAULT);
}

/* Whether an exec of the script `file`, or of its program with it, begins at the template: a start
 * does nothing with it, and ends with 0; the program itself takes it for a case, and ends with 2.
 */
static void begins(bool does) {
    char path[PATH_MAX], *none[] = {NULL};
    CHECK(getcwd(path, sizeof path - 8));
    strcat(path, "/file");
    EXITS(executed(path, ARGS("more"), none), does ? 0 : 2);
    EXITS(executed(hy_self, ARGS(path, (char *)"more"), none), does ? 0 : 2);
    EXITS(executed("./file", ARGS("more"), none), 2);
    STARTS("bound", "exit", "7", does ? 7 : 98); /* ESTALE */
}

TEST(a_template_serves_its_script_while_that_is_unchanged) {
    need_hayate();
    char script[PATH_MAX + 16], path[PATH_MAX];
    CHECK(getcwd(path, sizeof path - 8));
    strcat(path, "/file");
    snprintf(script, sizeof script, "#!%s\n", hy_self);
    PUT_MODE("file", script, 0755);
    PUT("other", "text");
    OK(symlink("other", "linked"));
    make_as(0, "bound", "script", 0);
    OK(hayate_template_bind(path, "bound"));
    ERR(hayate_template_bind("/no/such/file", "bound"), ENOENT);
    ERR(hayate_template_bind("/bin/sh", "bound"), EINVAL);
    begins(true);
    /* Reading it, and another file beside it, change nothing. */
    char text[64];
    CHECK(get_file("file", text, sizeof text) > 0);
    PUT("beside", "text");
    begins(true);
    /* A write that leaves the same bytes; then anything that leads to other ones. */
    int fd = OK(open("other", O_WRONLY));
    OK(pwrite(fd, "text", 4, 0));
    begins(false);
    OK(close(fd));
    begins(false);
    make_as(0, "bound", "script", 0);
    begins(true);
    PUT("third", "text");
    OK(unlink("linked"));
    begins(false);
    OK(symlink("third", "linked"));
    begins(false);
    make_as(0, "bound", "script", 0);
    begins(true);
    PUT_MODE("new", script, 0755);
    OK(rename("new", "file"));
    begins(false);
    make_as(0, "bound", "script", 0);
    begins(true);
    /* While it may be written it is in no template, nor is a file that others change. */
    fd = OK(open("other", O_WRONLY | O_CREAT, 0644));
    OK(unlink("linked"));
    OK(symlink("other", "linked"));
    make_as(0, "refused", "script", ETXTBSY);
    OK(close(fd));
    make_as(0, "refused", "shown", EINVAL);
    OK(unlink("linked"));
    make_as(0, "refused", "script", ENOENT);
    OK(hayate_template_remove("bound", -1));
}

TEST(a_template_shows_its_files) {
    need_hayate();
    make("shown");
    char text[1 << 16], wanted[PATH_MAX + 16];
    CHECK(get_file("/proc/hayate/templates", text, sizeof text) > 0);
    snprintf(wanted, sizeof wanted, "\nfile: %s\n", hy_self);
    CHECK(strstr(text, wanted) != NULL);
    CHECK(strstr(text, "\nfile: /etc/passwd\n") != NULL);
    OK(hayate_template_remove("shown", -1));
}

/* ---- many at once ------------------------------------------------------------------------------ */

TEST(the_number_of_templates_is_bounded) {
    need_hayate();
    char name[32];
    int made = 0;
    for (; made < 40; made++) {
        snprintf(name, sizeof name, "many-%d", made);
        pid_t pid = FORK();
        if (pid == 0) {
            BECOME(NOBODY, NOBODY);
            execle(hy_self, hy_self, "--helper", "maker", name, NULL, (char *[]){NULL});
            _exit(98);
        }
        int status = WAIT(pid);
        if (status != 0) {
            CHECK_EQ(WEXITSTATUS(status), ENOSPC);
            break;
        }
    }
    CHECK(made > 4 && made <= 32);
    make("many");
    for (int i = 0; i < made; i++) {
        snprintf(name, sizeof name, "many-%d", i);
        OK(hayate_template_remove(name, NOBODY));
    }
    OK(hayate_template_remove("many", -1));
}

TEST_TIMES(starts_and_removals_meet, 2) {
    need_hayate();
    make("meet");
    pid_t makers = FORK();
    if (makers == 0) {
        for (int i = 0; i < 15; i++) {
            hayate_template_remove("meet", -1);
            make("meet");
        }
        _exit(0);
    }
    int begun = 0, missing = 0;
    /* While it is missing starts are refused quickly: some more until it stays. */
    for (int i = 0; i < 60 || (begun <= 10 && i < 6000); i++) {
        pid_t pids[3];
        for (int j = 0; j < 3; j++)
            pids[j] = started("meet", j ? "exit" : "count", j ? "41" : "k");
        for (int j = 0; j < 3; j++) {
            int status = WAIT(pids[j]);
            CHECK(status == 41 << 8 || status == 97 << 8);
            begun += status == 41 << 8, missing += status == 97 << 8;
        }
    }
    EXITS(makers, 0);
    CHECK(begun > 10);
    OK(hayate_template_remove("meet", -1));
}

TEST(nothing_is_left) {
    need_hayate();
    char text[64];
    CHECK_EQ(get_file("/proc/hayate/templates", text, sizeof text), 0);
}
