/*
 * Hayate's own system calls, for C programs. Linux answers each of them with ENOSYS, so a program
 * can ask for them anywhere. The Rust interface beside this header says the same in more words;
 * docs/resources.md tells what it is good for.
 *
 * All give -1 and set errno if they fail, and nothing has changed then.
 */
#ifndef HAYATE_H
#define HAYATE_H

#include <errno.h>
#include <stdint.h>
#include <sys/wait.h>
#include <unistd.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- process transformation: 1000 to 1009 ---------------------------------------------------- */

#define HAYATE_SYS_SPACE_OPEN 1000
#define HAYATE_SYS_PROGRAM_OPEN 1001
#define HAYATE_SYS_CHANGE_SPACE 1002
#define HAYATE_SYS_CHANGE_PROGRAM 1003
#define HAYATE_SYS_CHANGE_POSITION 1004
#define HAYATE_SYS_CHANGE 1005

/* Sources of a space. */
#define HAYATE_SPACE_EMPTY 0 /* nothing in it */
#define HAYATE_SPACE_COPY 1  /* a copy of the caller's: private memory, copied as it is written.
#Later writes are not in it, that of the variable with its descriptor among them: keep that in
#shared memory or a register. */
#define HAYATE_SPACE_OWN 2   /* the one the caller works in */

/* Close the descriptor when another program is executed. */
#define HAYATE_CLOEXEC 02000000u

/* The parts that hayate_change changes. */
#define HAYATE_CHANGE_SPACE 1u
#define HAYATE_CHANGE_PROGRAM 2u
#define HAYATE_CHANGE_POSITION 4u

/* A program takes the place of what lies where it must go. */
#define HAYATE_REPLACE 1u

/* Where a process goes on. All other registers are zero there. */
struct hayate_position {
    uint64_t instruction;    /* with a program in hayate_change: 0 is its entry */
    uint64_t stack;          /* with a program's first stack in hayate_change: 0 is that */
    uint64_t thread_pointer; /* the FS base */
    uint64_t arguments[6];   /* what a function of the C ABI takes */
};

/* Where a program is. */
struct hayate_loaded {
    uint64_t entry;   /* its first instruction, or its interpreter's */
    uint64_t base;    /* what was added to the addresses in the file */
    uint64_t headers; /* its program headers */
    uint64_t end;     /* the first address behind it */
};

/* Several changes at once. */
struct hayate_change {
    uint32_t what;  /* HAYATE_CHANGE_*, one or more */
    uint32_t flags; /* HAYATE_REPLACE */
    int32_t space;
    int32_t program;
    uint64_t arguments;   /* char *const *: with them the program gets a first stack */
    uint64_t environment; /* char *const * */
    struct hayate_position position;
};

/* Inline, without a call: where the space changes, the return addresses on the stack do too. */
static inline __attribute__((always_inline)) long hayate_call(long number, long a, long b, long c) {
    long result;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(a), "S"(b), "d"(c)
                     : "rcx", "r11", "memory");
    if (result < 0) {
        errno = (int)-result;
        return -1;
    }
    return result;
}

#define HAYATE_INLINE static inline __attribute__((always_inline)) int

/* A descriptor for a space. */
HAYATE_INLINE hayate_space_open(unsigned source, unsigned flags) {
    return (int)hayate_call(HAYATE_SYS_SPACE_OPEN, source, flags, 0);
}

/* A descriptor for a program; directory and the AT_* flags as for openat(2). */
HAYATE_INLINE hayate_program_open(int directory, const char *path, unsigned flags) {
    return (int)hayate_call(HAYATE_SYS_PROGRAM_OPEN, directory, (long)path, flags);
}

/* Goes on in another space, at the same position. The stack is the one that is there: change to a
 * copy in the function that took it, or change the position as well. */
HAYATE_INLINE hayate_change_space(int space) {
    return (int)hayate_call(HAYATE_SYS_CHANGE_SPACE, space, 0, 0);
}

/* Attaches a program to the space and is that program; loaded may be null. */
HAYATE_INLINE hayate_change_program(int program, struct hayate_loaded *loaded, unsigned flags) {
    return (int)hayate_call(HAYATE_SYS_CHANGE_PROGRAM, program, (long)loaded, flags);
}

/* Goes on elsewhere; comes back only if it fails. */
HAYATE_INLINE hayate_change_position(const struct hayate_position *position) {
    return (int)hayate_call(HAYATE_SYS_CHANGE_POSITION, (long)position, sizeof *position, 0);
}

/* Any of the three. With space and program, it gives up all that execve does. */
HAYATE_INLINE hayate_change(const struct hayate_change *change) {
    return (int)hayate_call(HAYATE_SYS_CHANGE, (long)change, sizeof *change, 0);
}

/* ---- the running mode: 1010 to 1019 (docs/dmsm.md) ----------------------------------------------- */

#define HAYATE_SYS_SWITCH_SUPERVISOR 1010
#define HAYATE_SYS_SWITCH_USER 1011

/* Programs that the process and its children execute start in supervisor mode, too. */
#define HAYATE_KEEP 1u

/* Puts a process, 0 for the caller, into supervisor mode: all its threads. */
HAYATE_INLINE hayate_switch_supervisor(int pid, unsigned flags) {
    return (int)hayate_call(HAYATE_SYS_SWITCH_SUPERVISOR, pid, flags, 0);
}

/* Puts it back into user mode. */
HAYATE_INLINE hayate_switch_user(int pid) {
    return (int)hayate_call(HAYATE_SYS_SWITCH_USER, pid, 0, 0);
}

/* ---- templates: 1020 to 1029 (docs/templates.md) ------------------------------------------------- */

#define HAYATE_SYS_TEMPLATE_READY 1020
#define HAYATE_SYS_TEMPLATE_START 1021
#define HAYATE_SYS_TEMPLATE_REMOVE 1022
#define HAYATE_SYS_TEMPLATE_BIND 1023

/* What a start was started with, in memory of its own that may be written. */
struct hayate_start {
    char **arguments; /* ends with a null pointer, as the environment does */
    uint64_t argument_count;
    char **environment;
    uint64_t environment_count;
    char *strings; /* those of the arguments, each with its NUL; those of the environment follow */
    uint64_t arguments_size;
    uint64_t environment_size;
    char *path;         /* the path or the name that was started */
    uint64_t random[2]; /* other ones in each start */
};

/* The environment of a start as pairs: the name and the value of each variable, each with its NUL;
 * the last variable first, so that of two with one name the one that counts comes last. Strings
 * without a name or without "=" are left out. */
struct hayate_variables {
    char *strings;
    uint64_t size;
};

/* What a program says of the template that it is to be. */
struct hayate_template {
    const char *name;           /* letters, digits, ".", "_", "-"; at most 64 */
    struct hayate_start *start; /* zeroed now, and filled in at each start */
    const char *serves;         /* which starts it serves, a rule a line; null: only those by name */
    const char *files;          /* the files that it was made of, one a line; may be null */
    char ***environment;        /* null, or &environ: set at each start */
    struct hayate_variables *variables; /* null, or filled in at each start */
};

/* The next fork of this thread makes a template: its child, kept before its first instruction. The
 * fork makes a child as well, in which `start` is zero. It fails, and nothing is kept, with EBUSY
 * (other threads, or children), EMFILE (descriptors above 2), EINVAL (writable shared memory), EPERM
 * (set-user-id, changed ids, supervisor mode), ENOSPC (too many templates). The call itself
 * fails with ETXTBSY if a file of a rule `unchanged` is open for writing. */
HAYATE_INLINE hayate_template_ready(const struct hayate_template *ready) {
    return (int)hayate_call(HAYATE_SYS_TEMPLATE_READY, (long)ready, sizeof *ready, 0);
}

/* Makes the template: 0 where it was called, once the template is kept; 1 in each start. */
static inline int hayate_template_make(const struct hayate_template *ready) {
    if (hayate_template_ready(ready) < 0)
        return -1;
    int child = fork(), status = 0;
    if (child < 0)
        return -1;
    if (child == 0) {
        if (ready->start->arguments == 0)
            _exit(0);
        return 1;
    }
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    return 0;
}

/* Replaces the program of the process by a start of the user's template, as execve(2) does by
 * another program; comes back only if it fails. */
HAYATE_INLINE hayate_template_start(const char *name, char *const arguments[],
                                    char *const environment[]) {
    return (int)hayate_call(HAYATE_SYS_TEMPLATE_START, (long)name, (long)arguments,
                            (long)environment);
}

/* Removes a template and what is bound to it; owner -1: one of the caller's. */
HAYATE_INLINE hayate_template_remove(const char *name, int owner) {
    return (int)hayate_call(HAYATE_SYS_TEMPLATE_REMOVE, (long)name, owner, 0);
}

/* A program that is executed by this path begins at the template, if that serves the start; with a
 * null name, no longer. */
HAYATE_INLINE hayate_template_bind(const char *path, const char *name) {
    return (int)hayate_call(HAYATE_SYS_TEMPLATE_BIND, (long)path, (long)name, 0);
}

#ifdef __cplusplus
}
#endif
#endif
