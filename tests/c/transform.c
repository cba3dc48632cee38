/* Process transformation: Hayate's own system calls, each alone and combined. Linux has none. */
#define AREA "transform"
#include "harness.h"
#include "../../guest/interface/include/hayate.h"
#define ARCH_GET_FS 0x1003 /* asm/prctl.h, which musl has not */
#include <elf.h>

/* ---- programs made here ------------------------------------------------------------------------ */

enum { BASE = 0x10000000, CODE = 0x1000, FUNCTION = 0x40 };

/* Exits with its argument count. */
static const unsigned char exit_with_count[] = {
    0x8b, 0x3c, 0x24,             /* mov edi, [rsp] */
    0xb8, 0x3c, 0x00, 0x00, 0x00, /* mov eax, 60 */
    0x0f, 0x05,                   /* syscall */
};
/* Sleeps for ever. */
static const unsigned char sleep_for_ever[] = {
    0xb8, 0x22, 0x00, 0x00, 0x00, /* mov eax, 34 (pause) */
    0x0f, 0x05,                   /* syscall */
    0xeb, 0xf7,                   /* jmp to the beginning */
};

/* A static program of one segment: `code` at its entry, and at FUNCTION an int f(int) that adds
 * `add` to what it is given. */
static void write_program(const char *path, const void *code, size_t size, int add) {
    static unsigned char file[CODE + PAGE];
    memset(file, 0, sizeof file);
    Elf64_Ehdr *h = (Elf64_Ehdr *)file;
    memcpy(h->e_ident, ELFMAG, SELFMAG);
    h->e_ident[EI_CLASS] = ELFCLASS64;
    h->e_ident[EI_DATA] = ELFDATA2LSB;
    h->e_ident[EI_VERSION] = EV_CURRENT;
    h->e_type = ET_EXEC;
    h->e_machine = EM_X86_64;
    h->e_version = EV_CURRENT;
    h->e_entry = BASE + CODE;
    h->e_phoff = sizeof *h;
    h->e_ehsize = sizeof *h;
    h->e_phentsize = sizeof(Elf64_Phdr);
    h->e_phnum = 1;
    Elf64_Phdr *p = (Elf64_Phdr *)(h + 1);
    p->p_type = PT_LOAD;
    p->p_flags = PF_R | PF_X;
    p->p_offset = 0;
    p->p_vaddr = p->p_paddr = BASE;
    p->p_filesz = p->p_memsz = sizeof file;
    p->p_align = PAGE;
    memcpy(file + CODE, code, size);
    const unsigned char function[] = {0x8d, 0x87, (unsigned char)add, 0, 0, 0, 0xc3}; /* lea eax, [rdi+add]; ret */
    memcpy(file + CODE + FUNCTION, function, sizeof function);
    int fd = OK(open(path, O_CREAT | O_WRONLY | O_TRUNC, 0755));
    CHECK_EQ(OK(write(fd, file, sizeof file)), (long)sizeof file);
    OK(close(fd));
}

static void need_hayate(void) {
    if (hayate_space_open(99, 0) < 0 && errno == ENOSYS)
        SKIP("these calls are Hayate's own");
}

static int open_counter(void) {
    write_program("counter", exit_with_count, sizeof exit_with_count, 5);
    return OK(hayate_program_open(AT_FDCWD, "counter", 0));
}

static uint64_t thread_pointer(void) {
    uint64_t base = 0;
    OK(syscall(SYS_arch_prctl, ARCH_GET_FS, &base));
    return base;
}

static void own_path(char *to, size_t size) {
    ssize_t n = OK(readlink("/proc/self/exe", to, size - 1));
    to[n] = 0;
}

/* ---- the space alone --------------------------------------------------------------------------- */

static volatile int written;

/* Seen alike by every space: a variable that is set after a copy was taken is not set in it. */
struct known {
    volatile int here, trial, at, round;
    volatile int spaces[64];
};

static struct known *two_spaces(void) {
    struct known *known = SHARED(sizeof *known);
    known->here = OK(hayate_space_open(HAYATE_SPACE_OWN, HAYATE_CLOEXEC));
    return known;
}

TEST(space_is_left_and_come_back_to) {
    need_hayate();
    struct known *known = two_spaces();
    written = 1;
    known->trial = OK(hayate_space_open(HAYATE_SPACE_COPY, HAYATE_CLOEXEC));
    OK(hayate_change_space(known->trial));
    CHECK_EQ(written, 1);
    written = 2;
    OK(hayate_change_space(known->here));
    CHECK_EQ(written, 1);
    OK(hayate_change_space(known->trial));
    CHECK_EQ(written, 2);
    OK(hayate_change_space(known->here));
    OK(close(known->trial));
    CHECK_EQ(written, 1);
}

TEST(space_that_is_left_takes_new_mappings_with_it) {
    need_hayate();
    struct known *known = two_spaces();
    known->trial = OK(hayate_space_open(HAYATE_SPACE_COPY, 0));
    OK(hayate_change_space(known->trial));
    char *const page = (char *)0x20000000;
    CHECK(mmap(page, PAGE, PROT_READ | PROT_WRITE,
               MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) == page);
    *page = 7;
    OK(hayate_change_space(known->here));
    ERR(msync((char *)0x20000000, PAGE, MS_ASYNC), ENOMEM); /* nothing is mapped there */
    OK(hayate_change_space(known->trial));
    CHECK_EQ(*(volatile char *)0x20000000, 7);
}

TEST(shared_memory_is_shared_between_spaces) {
    need_hayate();
    struct known *known = two_spaces();
    known->trial = OK(hayate_space_open(HAYATE_SPACE_COPY, 0));
    OK(hayate_change_space(known->trial));
    known->at = 3;
    OK(hayate_change_space(known->here));
    CHECK_EQ(known->at, 3);
}

TEST(child_works_in_the_space_of_its_parent) {
    need_hayate();
    int here = OK(hayate_space_open(HAYATE_SPACE_OWN, 0));
    written = 1;
    volatile int *gate = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    char *stack = mmap(NULL, 16 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(gate != MAP_FAILED && stack != MAP_FAILED);
    /* The child must not run on the parent's stack: it goes on in a function on another one. */
    static volatile int *target;
    target = &written;
    struct hayate_change change = {.what = HAYATE_CHANGE_SPACE | HAYATE_CHANGE_POSITION, .space = here};
    /* mov dword [rdi], 42; mov dword [rsi], 1; xor edi, edi; mov eax, 60; syscall */
    static const unsigned char code[] = {0xc7, 0x07, 42, 0, 0, 0, 0xc7, 0x06, 1,    0,
                                         0,    0,    0x31, 0xff, 0xb8, 60, 0, 0, 0, 0x0f, 0x05};
    void *page = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(page != MAP_FAILED);
    memcpy(page, code, sizeof code);
    OK(mprotect(page, PAGE, PROT_READ | PROT_EXEC));
    change.position.instruction = (uint64_t)page;
    change.position.stack = (uint64_t)(stack + 16 * PAGE);
    change.position.arguments[0] = (uint64_t)target;
    change.position.arguments[1] = (uint64_t)gate;
    pid_t pid = FORK();
    if (pid == 0) {
        hayate_change(&change);
        _exit(9);
    }
    EXITS(pid, 0);
    CHECK_EQ(*gate, 1);
    CHECK_EQ(written, 42); /* the child wrote the parent's private memory */
}

/* ---- the program alone ------------------------------------------------------------------------- */

TEST(program_is_attached_and_the_process_is_it) {
    need_hayate();
    int program = open_counter();
    char before[PATH_MAX], after[PATH_MAX], cwd[PATH_MAX];
    own_path(before, sizeof before);
    struct hayate_loaded loaded = {0};
    OK(hayate_change_program(program, &loaded, 0));
    CHECK_EQ(loaded.entry, BASE + CODE);
    CHECK_EQ(loaded.base, 0);
    CHECK_EQ(loaded.headers, BASE + sizeof(Elf64_Ehdr));
    CHECK(loaded.end >= BASE + CODE + PAGE);
    /* Its code is there, and so is ours: we are executing it. */
    int (*function)(int) = (int (*)(int))(BASE + CODE + FUNCTION);
    CHECK_EQ(function(7), 12);
    own_path(after, sizeof after);
    CHECK(getcwd(cwd, sizeof cwd) != NULL);
    CHECK(strncmp(after, cwd, strlen(cwd)) == 0 && strcmp(after + strlen(cwd), "/counter") == 0);
    char name[32] = {0};
    int fd = OK(open("/proc/self/comm", O_RDONLY));
    OK(read(fd, name, sizeof name - 1));
    CHECK(strcmp(name, "counter\n") == 0);
}

TEST(program_replaces_another_only_if_told) {
    need_hayate();
    int program = open_counter();
    write_program("other", exit_with_count, sizeof exit_with_count, 9);
    int other = OK(hayate_program_open(AT_FDCWD, "other", HAYATE_CLOEXEC));
    int (*function)(int) = (int (*)(int))(BASE + CODE + FUNCTION);
    OK(hayate_change_program(program, NULL, 0));
    CHECK_EQ(function(1), 6);
    ERR(hayate_change_program(other, NULL, 0), EEXIST);
    CHECK_EQ(function(1), 6);
    OK(hayate_change_program(other, NULL, HAYATE_REPLACE));
    CHECK_EQ(function(1), 10);
    ERR(open("other", O_WRONLY), ETXTBSY); /* it is being executed */
}

/* ---- the position alone ------------------------------------------------------------------------ */

static jmp_buf back;
static volatile uint64_t arrived[7];

static void arrive(uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e, uint64_t f) {
    uint64_t seen[] = {a, b, c, d, e, f};
    for (int i = 0; i < 6; i++)
        arrived[i] = seen[i];
    arrived[6] = (uint64_t)__builtin_frame_address(0);
    longjmp(back, 1);
}

TEST(position_is_a_function_on_another_stack) {
    need_hayate();
    char *stack = mmap(NULL, 16 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(stack != MAP_FAILED);
    struct hayate_position position = {
        .instruction = (uint64_t)arrive,
        .stack = (uint64_t)(stack + 15 * PAGE - 8),
        .thread_pointer = thread_pointer(),
        .arguments = {1, 2, 3, 4, 5, ~0ull},
    };
    if (setjmp(back) == 0) {
        hayate_change_position(&position);
        FAIL("came back: %s", strerror(errno));
    }
    for (int i = 0; i < 5; i++)
        CHECK_EQ(arrived[i], (uint64_t)i + 1);
    CHECK_EQ(arrived[5], ~0ull);
    CHECK(arrived[6] > (uint64_t)stack && arrived[6] < (uint64_t)stack + 15 * PAGE);
}

TEST(position_outside_of_memory_is_a_segmentation_fault) {
    need_hayate();
    pid_t pid = FORK();
    if (pid == 0) {
        struct hayate_position position = {.instruction = 0x3000};
        hayate_change_position(&position);
        _exit(1);
    }
    int status;
    OK(waitpid(pid, &status, 0));
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
}

/* ---- combined ---------------------------------------------------------------------------------- */

TEST(program_and_position_in_the_same_space) {
    need_hayate();
    int program = open_counter();
    pid_t pid = FORK();
    if (pid == 0) {
        /* The stack that its entry looks at is ours: a count we choose. */
        static uint64_t words[16];
        words[8] = 33;
        struct hayate_change change = {
            .what = HAYATE_CHANGE_PROGRAM | HAYATE_CHANGE_POSITION,
            .program = program,
            .position = {.stack = (uint64_t)&words[8]},
        };
        hayate_change(&change);
        _exit(1);
    }
    EXITS(pid, 33);
}

TEST(all_three_are_exec) {
    need_hayate();
    int program = open_counter();
    char *arguments[] = {"counter", "b", "c", "d", NULL}, *environment[] = {NULL};
    pid_t pid = FORK();
    if (pid == 0) {
        struct hayate_change change = {
            .what = HAYATE_CHANGE_SPACE | HAYATE_CHANGE_PROGRAM | HAYATE_CHANGE_POSITION,
            .space = hayate_space_open(HAYATE_SPACE_EMPTY, HAYATE_CLOEXEC),
            .program = program,
            .arguments = (uint64_t)arguments,
            .environment = (uint64_t)environment,
        };
        hayate_change(&change);
        _exit(1);
    }
    EXITS(pid, 4);
}

/* As posix_spawn: the parent's space is lent until the child has its own. */
TEST(a_child_is_composed_without_a_copy) {
    need_hayate();
    int program = open_counter();
    char *arguments[] = {"counter", "b", NULL};
    for (int i = 0; i < 20; i++) {
        struct hayate_change change = {
            .what = HAYATE_CHANGE_SPACE | HAYATE_CHANGE_PROGRAM | HAYATE_CHANGE_POSITION,
            .space = OK(hayate_space_open(HAYATE_SPACE_EMPTY, HAYATE_CLOEXEC)),
            .program = program,
            .arguments = (uint64_t)arguments,
        };
        pid_t pid = vfork();
        if (pid == 0) {
            hayate_change(&change);
            _exit(1);
        }
        EXITS(pid, 2);
        OK(close(change.space));
    }
}

TEST(a_dynamic_program_starts) {
    need_hayate();
    if (access("/bin/sh", X_OK) != 0)
        SKIP("no /bin/sh");
    int program = OK(hayate_program_open(AT_FDCWD, "/bin/sh", 0));
    char *arguments[] = {"sh", "-c", "exit $((40 + $#))", "sh", "one", "two", NULL};
    char *environment[] = {"PATH=/bin", NULL};
    pid_t pid = FORK();
    if (pid == 0) {
        struct hayate_change change = {
            .what = HAYATE_CHANGE_SPACE | HAYATE_CHANGE_PROGRAM | HAYATE_CHANGE_POSITION,
            .space = hayate_space_open(HAYATE_SPACE_EMPTY, HAYATE_CLOEXEC),
            .program = program,
            .arguments = (uint64_t)arguments,
            .environment = (uint64_t)environment,
        };
        hayate_change(&change);
        _exit(1);
    }
    EXITS(pid, 42);
}

TEST(a_script_starts_with_its_interpreter) {
    need_hayate();
    if (access("/bin/sh", X_OK) != 0)
        SKIP("no /bin/sh");
    int fd = OK(open("script", O_CREAT | O_WRONLY, 0755));
    const char text[] = "#!/bin/sh -e\nexit $((10 + $#))\n";
    OK(write(fd, text, sizeof text - 1));
    OK(close(fd));
    int program = OK(hayate_program_open(AT_FDCWD, "script", 0));
    char *arguments[] = {"script", "one", "two", "three", NULL};
    pid_t pid = FORK();
    if (pid == 0) {
        struct hayate_change change = {
            .what = HAYATE_CHANGE_SPACE | HAYATE_CHANGE_PROGRAM | HAYATE_CHANGE_POSITION,
            .space = hayate_space_open(HAYATE_SPACE_EMPTY, HAYATE_CLOEXEC),
            .program = program,
            .arguments = (uint64_t)arguments,
        };
        hayate_change(&change);
        _exit(1);
    }
    EXITS(pid, 13);
}

static void handle(int signal UNUSED) {}

TEST(a_new_program_in_a_new_space_starts_clean) {
    need_hayate();
    write_program("sleeper", sleep_for_ever, sizeof sleep_for_ever, 0);
    int program = OK(hayate_program_open(AT_FDCWD, "sleeper", 0));
    int ends[2];
    OK(pipe2(ends, O_CLOEXEC));
    char *arguments[] = {"sleeper", NULL};
    pid_t pid = FORK();
    if (pid == 0) {
        signal(SIGUSR1, handle); /* an address of this program */
        signal(SIGUSR2, SIG_IGN);
        struct hayate_change change = {
            .what = HAYATE_CHANGE_SPACE | HAYATE_CHANGE_PROGRAM | HAYATE_CHANGE_POSITION,
            .space = hayate_space_open(HAYATE_SPACE_EMPTY, HAYATE_CLOEXEC),
            .program = program,
            .arguments = (uint64_t)arguments,
        };
        hayate_change(&change);
        _exit(1);
    }
    OK(close(ends[1]));
    char byte;
    CHECK_EQ(OK(read(ends[0], &byte, 1)), 0); /* its copy of the other end was closed */
    OK(kill(pid, SIGUSR2));
    wait_asleep(pid);
    OK(kill(pid, SIGUSR1)); /* the default, not a jump into nowhere */
    int status;
    OK(waitpid(pid, &status, 0));
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGUSR1);
}

TEST(a_space_and_a_position_without_a_program) {
    need_hayate();
    struct known *known = two_spaces();
    struct hayate_change *change = SHARED(sizeof *change);
    written = 1;
    known->trial = OK(hayate_space_open(HAYATE_SPACE_COPY, 0));
    /* After the copy: there, nothing is mapped. */
    char *stack = mmap(NULL, 16 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(stack != MAP_FAILED);
    *change = (struct hayate_change){
        .what = HAYATE_CHANGE_SPACE | HAYATE_CHANGE_POSITION,
        .space = known->here,
        .position = {.instruction = (uint64_t)arrive,
                     .stack = (uint64_t)(stack + 16 * PAGE - 8),
                     .thread_pointer = thread_pointer(),
                     .arguments = {77}},
    };
    if (setjmp(back) == 0) {
        OK(hayate_change_space(known->trial));
        written = 2;
        hayate_change(change);
        FAIL("came back: %s", strerror(errno));
    }
    CHECK_EQ(arrived[0], 77);
    CHECK_EQ(written, 1);
}

/* ---- errors ------------------------------------------------------------------------------------ */

TEST(errors_of_opening) {
    need_hayate();
    ERR(hayate_space_open(3, 0), EINVAL);
    ERR(hayate_space_open(HAYATE_SPACE_COPY, 1), EINVAL);
    ERR(hayate_program_open(AT_FDCWD, "nowhere", 0), ENOENT);
    ERR(hayate_program_open(AT_FDCWD, BAD, 0), EFAULT);
    ERR(hayate_program_open(200, "nowhere", 0), EBADF);
    ERR(hayate_program_open(AT_FDCWD, ".", 0), EACCES);
    ERR(hayate_program_open(AT_FDCWD, "/", 0x10000), EINVAL);
    int fd = OK(open("text", O_CREAT | O_WRONLY, 0755));
    OK(write(fd, "no program\n", 11));
    ERR(hayate_program_open(AT_FDCWD, "text", 0), ETXTBSY);
    OK(close(fd));
    ERR(hayate_program_open(AT_FDCWD, "text", 0), ENOEXEC);
    OK(chmod("text", 0644));
    ERR(hayate_program_open(AT_FDCWD, "text", 0), EACCES);
    if (geteuid() == 0) {
        /* A page that can only be executed cannot be looked at. */
        open_counter();
        OK(chmod("counter", 0711));
        OK(chmod(".", 0755));
        pid_t pid = FORK();
        if (pid == 0) {
            OK(setgid(12345));
            OK(setuid(12345));
            ERR(hayate_program_open(AT_FDCWD, "counter", 0), EACCES);
            _exit(0);
        }
        EXITS(pid, 0);
    }
    struct rlimit none = {3, 3};
    OK(setrlimit(RLIMIT_NOFILE, &none));
    for (fd = 3; fd < 64; fd++)
        close(fd);
    ERR(hayate_space_open(HAYATE_SPACE_EMPTY, 0), EMFILE);
}

TEST(errors_of_changing) {
    need_hayate();
    int space = OK(hayate_space_open(HAYATE_SPACE_COPY, 0));
    int program = open_counter();
    int file = OK(open("/", O_RDONLY));
    ERR(hayate_change_space(-1), EBADF);
    ERR(hayate_change_space(file), EBADF);
    ERR(hayate_change_space(program), EBADF);
    ERR(syscall(HAYATE_SYS_CHANGE_SPACE, space, 1), EINVAL);
    ERR(hayate_change_program(space, NULL, 0), EBADF);
    ERR(hayate_change_program(program, NULL, 2), EINVAL);
    ERR(hayate_change_program(program, BAD, 0), EFAULT);
    struct hayate_position position = {.instruction = 1ull << 63};
    ERR(hayate_change_position(&position), EINVAL);
    position.instruction = (uint64_t)arrive;
    position.thread_pointer = 1ull << 47;
    ERR(hayate_change_position(&position), EINVAL);
    ERR(hayate_change_position(BAD), EFAULT);
    ERR(syscall(HAYATE_SYS_CHANGE_POSITION, &position, sizeof position - 8), EINVAL);
    struct hayate_change change = {0};
    ERR(hayate_change(&change), EINVAL);
    change.what = 8;
    ERR(hayate_change(&change), EINVAL);
    change = (struct hayate_change){.what = HAYATE_CHANGE_SPACE, .space = space, .flags = HAYATE_REPLACE};
    ERR(hayate_change(&change), EINVAL); /* nothing to replace with */
    ERR(syscall(HAYATE_SYS_CHANGE, &change, sizeof change + 8), EINVAL);
    ERR(hayate_change(BAD), EFAULT);
    change = (struct hayate_change){.what = HAYATE_CHANGE_PROGRAM, .program = program, .arguments = (uint64_t)BAD};
    ERR(hayate_change(&change), EFAULT);
    ERR(syscall(1009, 0, 0, 0), ENOSYS);
    ERR(syscall(999, 0, 0, 0), ENOSYS);
    ERR(syscall(1030, 0, 0, 0), ENOSYS);
}

TEST(an_error_changes_nothing) {
    need_hayate();
    int program = open_counter();
    char before[PATH_MAX], after[PATH_MAX];
    own_path(before, sizeof before);
    char *arguments[] = {"counter", NULL};
    struct hayate_change change = {
        .what = HAYATE_CHANGE_PROGRAM | HAYATE_CHANGE_POSITION,
        .program = program,
        .position = {.instruction = 1ull << 60},
    };
    ERR(hayate_change(&change), EINVAL);
    /* With a stack of its own in a space that has one at that place. */
    change.arguments = (uint64_t)arguments;
    change.position.instruction = 0;
    ERR(hayate_change(&change), EEXIST);
    ERR(hayate_change_program(program, BAD, 0), EFAULT);
    ERR(msync((void *)(BASE + CODE), PAGE, MS_ASYNC), ENOMEM); /* nothing was left there */
    own_path(after, sizeof after);
    CHECK(strcmp(before, after) == 0);
    OK(hayate_change_program(program, NULL, 0));
}

static void *wait_for_ever(void *unused UNUSED) {
    pause();
    return NULL;
}

TEST(other_threads_forbid_changes_of_memory) {
    need_hayate();
    int space = OK(hayate_space_open(HAYATE_SPACE_COPY, 0));
    int program = open_counter();
    pthread_t thread;
    CHECK_EQ(pthread_create(&thread, NULL, wait_for_ever, NULL), 0);
    ERR(hayate_change_space(space), EBUSY);
    ERR(hayate_change_program(program, NULL, 0), EBUSY);
    struct hayate_change change = {.what = HAYATE_CHANGE_SPACE, .space = space};
    ERR(hayate_change(&change), EBUSY);
}

TEST(set_user_id_counts_for_nothing) {
    need_hayate();
    if (geteuid() != 0)
        SKIP("needs root");
    open_counter();
    OK(chmod("counter", 04755));
    OK(chmod(".", 0755));
    pid_t pid = FORK();
    if (pid == 0) {
        OK(setgid(12345));
        OK(setuid(12345));
        int program = OK(hayate_program_open(AT_FDCWD, "counter", 0));
        OK(hayate_change_program(program, NULL, 0));
        CHECK_EQ(geteuid(), 12345);
        uid_t real, effective, saved;
        OK(getresuid(&real, &effective, &saved));
        CHECK(real == 12345 && effective == 12345 && saved == 12345);
        _exit(0);
    }
    EXITS(pid, 0);
}

/* Copies of copies, each left in turn: nothing is mixed up, nothing is lost. */
TEST(many_spaces) {
    need_hayate();
    enum { COUNT = 40 };
    struct known *known = two_spaces();
    volatile int *value =
        mmap(NULL, 8 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(value != MAP_FAILED);
    known->spaces[0] = known->here;
    value[0] = 0;
    for (known->at = 1; known->at < COUNT; known->at++) {
        known->spaces[known->at] = OK(hayate_space_open(HAYATE_SPACE_COPY, 0));
        OK(hayate_change_space(known->spaces[known->at]));
        CHECK_EQ(value[0], known->at - 1);
        value[0] = known->at;
        value[1024 * (known->at % 8) + 1] = known->at;
    }
    for (known->round = 0; known->round < 3; known->round++)
        for (known->at = COUNT - 1; known->at >= 1; known->at--) {
            OK(hayate_change_space(known->spaces[known->at]));
            CHECK_EQ(value[0], known->at);
            CHECK_EQ(value[1024 * (known->at % 8) + 1], known->at);
        }
    OK(hayate_change_space(known->here));
    CHECK_EQ(value[0], 0);
    CHECK_EQ(value[1024 + 1], 0);
}
