/* Programs that know a secret, and programs that search for one: shared by secret.c and
 * recycle.c. */
#pragma once
#include "harness.h"

/* The secret is computed, and not by the compiler: it stands in no file. A program that searches
 * knows it masked only, so that it does not find its own copy. */
static const volatile uint64_t factor = 0x9e3779b97f4a7c15u;
static uint64_t secret(uint64_t seed) { return (seed + 0x1234567) * factor | 1; }
#define MASK 0x5a5a5a5a5a5a5a5au

/* Whether a word of anything that the process has mapped and may read is the secret; says where. */
static bool is_mapped(uint64_t masked) {
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[512];
    bool found = false;
    while (maps && !found && fgets(line, sizeof line, maps)) {
        uintptr_t start, end;
        char rights[8];
        if (sscanf(line, "%lx-%lx %4s", &start, &end, rights) != 3 || rights[0] != 'r' || strstr(line, "[v"))
            continue;
        for (uintptr_t at = start; at < end && !found; at += 8)
            if ((*(volatile uint64_t *)at ^ MASK) == masked) {
                dprintf(2, "the secret is at %#lx of %s", at, line);
                found = true;
            }
    }
    if (maps)
        fclose(maps);
    return found;
}

/* Starts a helper of a program as a user on a processor. `search` is told the masked secret, the
 * others are told the seed. */
static pid_t run(const char *program, uid_t user, int cpu, const char *helper, unsigned seed) {
    char number[32], unused[128];
    bool searches = strcmp(helper, "search") == 0;
    snprintf(number, sizeof number, "%llu", searches ? (unsigned long long)(secret(seed) ^ MASK) : seed);
    memset(unused, 'e', sizeof unused - 1);
    unused[1] = '=', unused[sizeof unused - 1] = 0;
    char *argv[] = {(char *)program, "--helper", (char *)helper, number, NULL};
    char *envp[] = {unused, NULL};
    pid_t pid = FORK();
    if (pid == 0) {
        cpu_set_t set;
        CPU_ZERO(&set);
        CPU_SET(cpu, &set);
        sched_setaffinity(0, sizeof set, &set); /* with one processor: stay */
        if (user != 0)
            BECOME(user, user);
        execve(program, argv, envp);
        _exit(99);
    }
    return pid;
}

#define RUN(program, user, cpu, helper, seed) EXITS(run(program, user, cpu, helper, seed), 0)
