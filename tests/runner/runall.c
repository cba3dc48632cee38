/*
 * Runs every test program beside itself: static/, dynamic/ and programs/.
 *
 *   runall [--list] [--jobs N | --images] [FILTER...]
 *
 * FILTER is a part of SUITE/AREA::CASE, for example `static/`, `mem::` or `programs/`. A script in
 * programs/ is one case: exit status 0 passes, 77 skips. Lines of the programs are passed on with
 * the suite's name in front; the verdict is the exit status (0 none failed, 1 some, 2 usage).
 *
 * With --jobs N up to N programs run at once; each one's output is kept together.
 *
 * With --images, in Hayate, each program is started five times: with a policy that keeps no images,
 * so that everything begins at its first instruction, and then four times with one that does, so
 * that it is noted, recorded, recorded again and begun at its image. A start that prints something
 * else than the first one, or ends in another way, is a failure; so is a run in which no program
 * began at an image.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MAX_PROGRAMS = 512, MAX_JOBS = 64 };

/* Seconds that no program sets: some of those that are run set the clock. */
static time_t now(void) {
    struct timespec t = {0, 0};
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec;
}

static const char *const suites[] = {"static", "dynamic", "programs"};
static char base[PATH_MAX];
static char **filters;
static int filter_count, time_limit = 600;
static long passed, failed, skipped;
static bool listing, from_images;

struct program {
    const char *suite;
    char name[64];
    char path[PATH_MAX + 80];
};
static struct program programs[MAX_PROGRAMS];
static int program_count;

struct job {
    pid_t pid;
    int out;
    const struct program *program;
    char *text;
    size_t size, room, shown;
    long cases, failures;
    bool listed_wanted;
    time_t deadline;
};

static void say(const char *text, size_t size) {
    while (size > 0) {
        ssize_t n = write(1, text, size);
        if (n <= 0)
            return;
        text += n, size -= (size_t)n;
    }
}

static bool wanted(const char *full) {
    for (int i = 0; i < filter_count; i++)
        if (strstr(full, filters[i]))
            return true;
    return filter_count == 0;
}

static int by_name(const void *a, const void *b) {
    return strcmp(((const struct program *)a)->name, ((const struct program *)b)->name);
}

static void collect(const char *suite) {
    char path[PATH_MAX + 16];
    snprintf(path, sizeof path, "%s/%s", base, suite);
    DIR *dir = opendir(path);
    if (!dir)
        return;
    int first = program_count;
    struct dirent *entry;
    while ((entry = readdir(dir)) && program_count < MAX_PROGRAMS) {
        struct program *p = &programs[program_count];
        if (entry->d_name[0] == '.' || strlen(entry->d_name) >= sizeof p->name)
            continue;
        p->suite = suite;
        strcpy(p->name, entry->d_name);
        snprintf(p->path, sizeof p->path, "%s/%.63s", path, entry->d_name);
        struct stat st;
        if (stat(p->path, &st) == 0 && S_ISREG(st.st_mode) && access(p->path, X_OK) == 0)
            program_count++;
    }
    closedir(dir);
    qsort(programs + first, (size_t)(program_count - first), sizeof *programs, by_name);
}

/* Starts a program with its output (for scripts also the error output) into a pipe. */
static bool start(struct job *job, const struct program *program, const char *argument) {
    int fds[2];
    memset(job, 0, sizeof *job);
    if (pipe2(fds, O_CLOEXEC) == -1)
        return false;
    job->program = program;
    job->deadline = now() + time_limit;
    job->pid = fork();
    if (job->pid == 0) {
        setpgid(0, 0);
        dup2(fds[1], 1);
        if (!strcmp(program->suite, "programs")) {
            dup2(fds[1], 2);
            int null = open("/dev/null", O_RDONLY);
            dup2(null, 0);
        }
        execl(program->path, program->name, argument, (char *)NULL);
        dprintf(2, "runall: cannot run %s: %s\n", program->path, strerror(errno));
        _exit(126);
    }
    close(fds[1]);
    job->out = fds[0];
    if (job->pid == -1) {
        close(fds[0]);
        return false;
    }
    return true;
}

static void count_line(struct job *job, const char *line) {
    const char *verdict = strstr(line, " ... ");
    if (strncmp(line, "test ", 5) || !verdict || verdict == line + 4)
        return;
    job->cases++;
    if (!strncmp(verdict + 5, "ok", 2))
        passed++;
    else if (!strncmp(verdict + 5, "skipped", 7))
        skipped++;
    else
        failed++, job->failures++;
}

/* Passes the complete lines of a C or Rust program on, `test A::B` as `test SUITE/A::B`. */
static void pass_lines(struct job *job, bool all) {
    for (;;) {
        char *line = job->text + job->shown;
        char *end = memchr(line, '\n', job->size - job->shown);
        if (!end) {
            if (!all || job->shown == job->size)
                return;
            end = job->text + job->size; /* there is room for one more byte */
        }
        *end = 0;
        char full[4096];
        if (listing)
            snprintf(full, sizeof full, "%s/%s", job->program->suite, line);
        else if (!strncmp(line, "test ", 5) && strncmp(line, "test result:", 12)) {
            snprintf(full, sizeof full, "test %s/%s", job->program->suite, line + 5);
            count_line(job, line);
        } else if (!strncmp(line, "test result:", 12))
            full[0] = 0;
        else
            snprintf(full, sizeof full, "%s", line);
        if (full[0] && (!listing || wanted(full))) {
            size_t n = strlen(full);
            full[n < sizeof full - 1 ? n : sizeof full - 2] = '\n';
            say(full, n < sizeof full - 1 ? n + 1 : n);
        }
        job->shown = (size_t)(end - job->text) + (end < job->text + job->size);
        if (job->shown >= job->size)
            return;
    }
}

static bool drain(struct job *job) {
    if (job->room - job->size < 4096) {
        char *bigger = realloc(job->text, job->room * 2 + 8192);
        if (!bigger)
            return false;
        job->text = bigger;
        job->room = job->room * 2 + 8192;
    }
    ssize_t n = read(job->out, job->text + job->size, job->room - job->size - 1);
    if (n <= 0)
        return n == -1 && errno == EINTR;
    job->size += (size_t)n;
    return true;
}

/* After the end of the output: waits for the program, whose status it returns. */
static int ended(struct job *job, bool late) {
    int status = 0;
    close(job->out);
    if (late)
        kill(-job->pid, SIGKILL);
    while (waitpid(job->pid, &status, 0) == -1 && errno == EINTR)
        ;
    kill(-job->pid, SIGKILL);
    return status;
}

/* What is said of a program that has ended: its lines, for a script one line. */
static void report(struct job *job, int status, bool late) {
    char line[2048], why[200] = "";
    const struct program *p = job->program;
    bool script = !strcmp(p->suite, "programs");
    int code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    if (late)
        snprintf(why, sizeof why, "no end within %d s", time_limit);
    else if (code == -1)
        snprintf(why, sizeof why, "killed by signal %d", WTERMSIG(status));
    else
        snprintf(why, sizeof why, "exit status %d", code);
    if (script) {
        bool good = !late && code == 0, skip = !late && code == 77;
        char last[400] = "";
        if (job->size > 0) { /* the last line says what failed */
            job->text[job->size] = 0;
            while (job->size > 0 && job->text[job->size - 1] == '\n')
                job->text[--job->size] = 0;
            char *from = strrchr(job->text, '\n');
            snprintf(last, sizeof last, "%s", from ? from + 1 : job->text);
        }
        if (!good && !skip && job->size > 0) {
            say(job->text, job->size);
            say("\n", 1);
        }
        int n = good ? snprintf(line, sizeof line, "test programs::%s ... ok\n", p->name)
                : skip
                    ? snprintf(line, sizeof line, "test programs::%s ... skipped (%s)\n", p->name, last)
                    : snprintf(line, sizeof line, "test programs::%s ... FAILED (%s: %s)\n", p->name,
                               why, last);
        say(line, (size_t)n);
        count_line(job, line);
    } else if (late || (code != 0 && job->failures == 0)) {
        /* It ended badly without naming a case: that is a failure of its own. */
        pass_lines(job, true);
        int n = snprintf(line, sizeof line, "test %s/%s ... FAILED (%s)\n", p->suite, p->name, why);
        say(line, (size_t)n);
        failed++;
    } else
        pass_lines(job, true);
    free(job->text);
}

static void finish(struct job *job, bool late) {
    report(job, ended(job, late), late);
}

/* Does the program have a case that a filter wants? Returns how: 0 none, 1 all, 2 some. */
static int selected(const struct program *p, char names[][200], int *count, int max) {
    char full[300];
    *count = 0;
    snprintf(full, sizeof full, "%s/%s::", p->suite, p->name);
    if (!strcmp(p->suite, "programs"))
        snprintf(full, sizeof full, "programs/programs::%s", p->name);
    if (wanted(full))
        return 1;
    if (!strcmp(p->suite, "programs"))
        return 0;
    struct job job;
    if (!start(&job, p, "--list"))
        return 0;
    while (drain(&job))
        ;
    close(job.out);
    waitpid(job.pid, NULL, 0);
    char *save = NULL;
    if (job.text) {
        job.text[job.size] = 0;
        for (char *l = strtok_r(job.text, "\n", &save); l; l = strtok_r(NULL, "\n", &save)) {
            snprintf(full, sizeof full, "%s/%s", p->suite, l);
            if (wanted(full) && *count < max)
                snprintf(names[(*count)++], 200, "%s", l);
        }
    }
    free(job.text);
    return *count ? 2 : 0;
}

/* Sets what the kernel keeps of ended programs. */
static bool keep(const char *policy) {
    int fd = open("/proc/hayate/policy", O_WRONLY | O_CLOEXEC);
    bool done = fd != -1 && write(fd, policy, strlen(policy)) == (ssize_t)strlen(policy);
    if (fd != -1)
        close(fd);
    return done;
}

/* The starts that began at an image since boot: the third word of the line of images. */
static long begun(void) {
    char line[256];
    long count = -1;
    FILE *pools = fopen("/proc/hayate/pools", "re");
    while (pools && fgets(line, sizeof line, pools))
        if (sscanf(line, "image %*d %ld", &count) == 1)
            break;
    if (pools)
        fclose(pools);
    return count;
}

/* Starts a program, and waits for its end and all that it prints, which `job` holds then, ended by
 * NUL. Returns false if it did not start or did not end in time. */
static bool whole(struct job *job, const struct program *p, const char *argument, int *status) {
    if (!start(job, p, argument))
        return false;
    bool late = false;
    for (;;) {
        struct pollfd fd = {job->out, POLLIN, 0};
        late = now() > job->deadline;
        if (late || (poll(&fd, 1, 1000) > 0 && !drain(job)))
            break;
    }
    *status = ended(job, late);
    if (job->text)
        job->text[job->size] = 0;
    return !late;
}

/* Compares what a start printed with what the first one did, line by line, and names the first line
 * that differs. Returns false if one does. */
static bool prints_the_same(const struct program *p, int number, const char *first, const char *text) {
    while (*first || *text) {
        size_t was = strcspn(first, "\n"), is = strcspn(text, "\n");
        if (was != is || memcmp(first, text, was)) {
            dprintf(1, "test %s/%s ... FAILED (start %d printed '%.*s', not '%.*s')\n", p->suite,
                    p->name, number, (int)is, text, (int)was, first);
            failed++;
            return false;
        }
        first += was + (first[was] == '\n');
        text += is + (text[is] == '\n');
    }
    return true;
}

/* With --images: the verdicts are those of the start without images, which the four others have to
 * repeat. */
static void run_five_times(const struct program *p, const char *argument) {
    struct job first, other;
    int status = 0, again = 0;
    keep("full");
    bool good = whole(&first, p, argument, &status);
    bool same = keep("full+image");
    for (int number = 2; good && same && number <= 5; number++) {
        bool ends = whole(&other, p, argument, &again);
        same = prints_the_same(p, number, first.text ? first.text : "", other.text ? other.text : "");
        free(other.text);
        if (same && (!ends || again != status)) {
            dprintf(1, "test %s/%s ... FAILED (start %d ended with %#x, not %#x)\n", p->suite, p->name,
                    number, again, status);
            failed++, same = false;
        }
    }
    report(&first, status, !good);
}

static void run_alone(const struct program *p, const char *argument) {
    struct job job;
    if (from_images && !listing) {
        run_five_times(p, argument);
        return;
    }
    if (!start(&job, p, argument)) {
        failed++;
        dprintf(1, "test %s/%s ... FAILED (cannot start: %s)\n", p->suite, p->name, strerror(errno));
        return;
    }
    bool late = false;
    for (;;) {
        struct pollfd fd = {job.out, POLLIN, 0};
        late = now() > job.deadline;
        if (late || (poll(&fd, 1, 1000) > 0 && !drain(&job)))
            break;
        if (strcmp(p->suite, "programs") && job.text)
            pass_lines(&job, false);
    }
    finish(&job, late);
}

/* The parallel way: whole programs only, output kept until a program ends. */
static void run_parallel(int jobs) {
    static struct job running[MAX_JOBS];
    int next = 0, active = 0;
    for (;;) {
        while (active < jobs && next < program_count) {
            static char names[1][200];
            int count;
            if (selected(&programs[next], names, &count, 1) == 1 &&
                start(&running[active], &programs[next], NULL))
                active++;
            next++;
        }
        if (active == 0)
            return;
        struct pollfd fds[MAX_JOBS];
        for (int i = 0; i < active; i++)
            fds[i] = (struct pollfd){running[i].out, POLLIN, 0};
        poll(fds, (nfds_t)active, 1000);
        for (int i = active - 1; i >= 0; i--) {
            bool late = now() > running[i].deadline;
            if (late || (fds[i].revents && !drain(&running[i]))) {
                finish(&running[i], late);
                running[i] = running[--active];
            }
        }
    }
}

int main(int argc, char **argv) {
    /* A shell starts background jobs with these ignored (POSIX, "Asynchronous Lists"), and an
     * ignored signal stays so through exec: the cases expect an ordinary session. */
    signal(SIGINT, SIG_DFL);
    signal(SIGQUIT, SIG_DFL);
    signal(SIGHUP, SIG_DFL);
    signal(SIGPIPE, SIG_DFL);
    char self[PATH_MAX];
    int jobs = 1;
    if (!realpath(argv[0], self)) {
        ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
        snprintf(self + (n > 0 ? n : 0), 1, "%s", "");
    }
    char *slash = strrchr(self, '/');
    if (slash)
        *slash = 0;
    snprintf(base, sizeof base, "%s", slash && slash != self ? self : slash ? "/" : ".");
    int i = 1;
    for (; i < argc && argv[i][0] == '-'; i++) {
        if (!strcmp(argv[i], "--list"))
            listing = true;
        else if (!strcmp(argv[i], "--jobs") && i + 1 < argc)
            jobs = atoi(argv[++i]);
        else if (!strcmp(argv[i], "--images"))
            from_images = true;
        else {
            dprintf(2, "usage: runall [--list] [--jobs N | --images] [FILTER...]\n");
            return 2;
        }
    }
    if (jobs < 1 || jobs > MAX_JOBS) {
        dprintf(2, "runall: --jobs takes a number from 1 to %d\n", MAX_JOBS);
        return 2;
    }
    filters = argv + i;
    filter_count = argc - i;
    const char *limit = getenv("TEST_PROGRAM_TIMEOUT");
    if (limit && atoi(limit) > 0)
        time_limit = atoi(limit);
    for (size_t s = 0; s < sizeof suites / sizeof *suites; s++)
        collect(suites[s]);
    if (program_count == 0) {
        dprintf(2, "runall: no test programs below %s: build them with make -C tests\n", base);
        return 2;
    }
    long before = from_images ? begun() : 0;
    if (jobs > 1 && !listing)
        run_parallel(jobs);
    else
        for (int p = 0; p < program_count; p++) {
            static char names[256][200];
            int count;
            bool script = !strcmp(programs[p].suite, "programs");
            int how = selected(&programs[p], names, &count, 256);
            if (listing && script && how)
                dprintf(1, "programs/programs::%s\n", programs[p].name);
            else if (listing && !script)
                run_alone(&programs[p], "--list");
            else if (how == 1)
                run_alone(&programs[p], NULL);
            else
                for (int n = 0; n < count; n++)
                    run_alone(&programs[p], names[n]);
        }
    if (listing)
        return 0;
    if (passed + failed + skipped == 0) {
        dprintf(2, "runall: no case matches; `runall --list` prints them\n");
        return 2;
    }
    if (from_images) {
        long after = begun();
        dprintf(2, "runall: %ld starts began at an image\n", after - before);
        if (before < 0 || after <= before) {
            dprintf(1, "test images ... FAILED (no start began at an image)\n");
            failed++;
        }
    }
    dprintf(1, "test result: %s. %ld passed; %ld failed; %ld skipped\n", failed ? "FAILED" : "ok",
            passed, failed, skipped);
    return failed ? 1 : 0;
}
