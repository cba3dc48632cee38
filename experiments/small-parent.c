/*
 * What a start costs a small program: fork or vfork, exec or not, exit, wait.
 *
 * `./hayate compare` starts programs from the measurement suite, which has some hundred pages of
 * its own. The fewer pages a parent has, the less Linux pays for its fork, so this is the harder
 * comparison. In an empty folder FOLDER:
 *
 *   musl-gcc -O2 -static -o FOLDER/small-parent experiments/small-parent.c
 *   ./hayate run --deterministic --with FOLDER:/s -- /s/small-parent
 *   ./hayate run --deterministic --with FOLDER:/s --linux --append "mitigations=off \
 *       init_on_alloc=0 norandmaps randomize_kstack_offset=off audit=0" -- /s/small-parent
 *
 * In deterministic mode a nanosecond is an instruction.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define ROUNDS 200

static long long now(void) {
    struct timespec t;
    syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static int by_size(const void *a, const void *b) {
    long long x = *(const long long *)a, y = *(const long long *)b;
    return (x > y) - (x < y);
}

int main(int argc, char **argv) {
    static const char *const names[] = {"fork, exit, wait", "vfork, exit, wait",
                                        "fork, exec, exit, wait", "vfork, exec, exit, wait"};
    static long long taken[ROUNDS];
    if (argc > 1) /* the program that is executed */
        _exit(0);
    for (int kind = 0; kind < 4; kind++) {
        for (int i = 0; i < ROUNDS; i++) {
            long long before = now();
            pid_t pid = kind % 2 ? vfork() : fork();
            if (pid == 0) {
                if (kind >= 2)
                    execv(argv[0], (char *[]){argv[0], "child", NULL});
                _exit(kind >= 2);
            }
            int status = 1;
            if (pid < 0 || waitpid(pid, &status, 0) != pid || status != 0) {
                perror(names[kind]);
                return 1;
            }
            taken[i] = now() - before;
        }
        qsort(taken, ROUNDS, sizeof *taken, by_size);
        printf("%-24s %10lld\n", names[kind], taken[ROUNDS / 2]);
    }
    return 0;
}
