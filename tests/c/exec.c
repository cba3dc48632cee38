/* execve, execveat, #! scripts: what a new program gets, and every way it can fail. */
#define AREA "exec"
#include "harness.h"
#include <sys/auxv.h>

#ifndef AT_EMPTY_PATH
#define AT_EMPTY_PATH 0x1000
#endif

extern char **environ;

/* Starts `path` with the arguments in a child; its status. */
static int run(const char *path, char *const argv[], char *const envp[]) {
    pid_t pid = FORK();
    if (pid == 0) {
        execve(path, argv, envp);
        _exit(errno == 0 ? 250 : 100 + errno % 100);
    }
    return WAIT(pid);
}

/* execve fails with this error. */
#define EXEC_ERR(path, want)                                                                       \
    do {                                                                                           \
        char *hy_argv[] = {(char *)"prog", NULL};                                                  \
        ERR(execve(path, hy_argv, environ), want);                                                 \
    } while (0)

static void runs(int line, const char *path, int code) {
    char *argv[] = {(char *)"prog", NULL};
    int status = run(path, argv, environ);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != code)
        hy_fail(__FILE__, line, "%s: status %#x, not exit of %d", path, status, code);
}
#define RUNS(path, code) runs(__LINE__, path, code)

/* A copy of this program that, started by any name ending in "exit42", exits with 42. */
static void put_exit42(const char *path, mode_t mode) {
    /* mov $60,%eax; mov $42,%edi; syscall in a minimal ELF64 executable (elf(5)) */
    unsigned char image[0x90] = {
        0x7f, 'E', 'L', 'F', 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 62, 0, 1, 0, 0, 0,
        0x78, 0, 0x40, 0, 0, 0, 0, 0, 64, 0, 0, 0, 0, 0, 0, 0, [52] = 64, 0, 56, 0, 1, 0,
        [64] = 1, 0, 0, 0, 5, 0, 0, 0, [80] = 0, 0, 0x40, [88] = 0, 0, 0x40, [96] = 0x90,
        [104] = 0x90, [112] = 0, 0x10, [120] = 0xb8, 60, 0, 0, 0, 0xbf, 42, 0, 0, 0, 0x0f, 0x05};
    hy_put(__FILE__, __LINE__, path, image, sizeof image, mode);
}

HELPER(report) {
    /* argv and the environment, a line each */
    for (int i = 0; i < argc; i++)
        dprintf(1, "arg %s\n", argv[i]);
    for (char **e = environ; *e; e++)
        dprintf(1, "env %s\n", *e);
    return 0;
}

static void output_of(char *text, size_t size, const char *path, char *const argv[],
                      char *const envp[]) {
    GATE(out);
    pid_t pid = FORK();
    if (pid == 0) {
        dup2(out.fd[1], 1);
        execve(path, argv, envp);
        FAIL("exec %s: %s", path, strerror(errno));
    }
    close(out.fd[1]);
    size_t done = 0;
    ssize_t n;
    while (done < size - 1 && (n = read(out.fd[0], text + done, size - 1 - done)) > 0)
        done += (size_t)n;
    text[done] = 0;
    EXITS(pid, 0);
}

TEST(minimal_elf_runs) {
    put_exit42("exit42", 0755);
    RUNS("./exit42", 42);
    RUNS("exit42", 42); /* execve does not look at PATH */
}

TEST(arguments_and_environment_arrive) {
    char text[1024];
    char *argv[] = {hy_self, (char *)"--helper", (char *)"report", (char *)"", (char *)"a b", NULL};
    char *envp[] = {(char *)"X=1", (char *)"EMPTY=", NULL};
    output_of(text, sizeof text, hy_self, argv, envp);
    CHECK_STR(text, "arg report\narg \narg a b\nenv X=1\nenv EMPTY=\n");
}

TEST(empty_environment) {
    char text[256];
    char *argv[] = {hy_self, (char *)"--helper", (char *)"report", NULL};
    char *envp[] = {NULL};
    output_of(text, sizeof text, hy_self, argv, envp);
    CHECK_STR(text, "arg report\n");
    output_of(text, sizeof text, hy_self, argv, NULL); /* NULL counts as an empty list */
    CHECK_STR(text, "arg report\n");
}

TEST(errors_of_the_path) {
    put_exit42("exit42", 0755);
    EXEC_ERR("none", ENOENT);
    EXEC_ERR("", ENOENT);
    EXEC_ERR("exit42/x", ENOTDIR);
    EXEC_ERR("exit42/", ENOTDIR);
    OK(mkdir("dir", 0755));
    EXEC_ERR("dir", EACCES);
    OK(symlink("loop", "loop"));
    EXEC_ERR("loop", ELOOP);
    char name[300];
    memset(name, 'n', 299);
    name[299] = 0;
    EXEC_ERR(name, ENAMETOOLONG);
    EXEC_ERR("/dev/null", EACCES);
    OK(mkfifo("fifo", 0755));
    EXEC_ERR("fifo", EACCES);
}

TEST(pointers_outside_memory_are_efault) {
    char *bad_entry[] = {(char *)"x", BAD, NULL};
    char *argv[] = {(char *)"x", NULL};
    put_exit42("exit42", 0755);
    ERR(execve(BAD, argv, environ), EFAULT);
    ERR(execve("exit42", bad_entry, environ), EFAULT);
    ERR(execve("exit42", argv, bad_entry), EFAULT);
    ERR(execve("exit42", BAD, environ), EFAULT);
    ERR(execve("exit42", argv, (char **)KERNEL_ADDRESS), EFAULT);
}

TEST(no_execute_bit_is_eacces_even_for_root) {
    put_exit42("exit42", 0644);
    EXEC_ERR("./exit42", EACCES);
    OK(chmod("exit42", 0001)); /* any x bit is enough for root */
    RUNS("./exit42", 42);
}

TEST(others_need_their_own_x_bit) {
    put_exit42("exit42", 0750);
    IN_CHILD({
        BECOME(NOBODY, NOBODY);
        EXEC_ERR("./exit42", EACCES);
    });
    OK(chmod("exit42", 0751));
    pid_t pid = FORK();
    if (pid == 0) {
        BECOME(NOBODY, NOBODY);
        execl("./exit42", "x", (char *)NULL); /* x without r is enough */
        _exit(1);
    }
    EXITS(pid, 42);
}

TEST(not_a_program_is_enoexec) {
    PUT_MODE("text", "echo hi\n", 0755);
    EXEC_ERR("./text", ENOEXEC);
    PUT_MODE("empty", "", 0755);
    EXEC_ERR("./empty", ENOEXEC);
    PUT_MODE("one", "\x7f", 0755);
    EXEC_ERR("./one", ENOEXEC);
    PUT_MODE("short", "\x7f" "ELF", 0755);
    EXEC_ERR("./short", ENOEXEC);
}

/* Writes the minimal program with one byte range changed. */
static void put_broken(size_t offset, const void *bytes, size_t size) {
    char image[0x90];
    put_exit42("broken", 0755);
    int fd = OK(open("broken", O_RDONLY));
    CHECK_EQ(OK(read(fd, image, sizeof image)), sizeof image);
    OK(close(fd));
    memcpy(image + offset, bytes, size);
    hy_put(__FILE__, __LINE__, "broken", image, sizeof image, 0755);
}

TEST(elf_of_another_machine_is_enoexec) {
    put_broken(18, "\x28", 1); /* e_machine: ARM */
    EXEC_ERR("./broken", ENOEXEC);
    put_broken(18, "\xf3", 1); /* RISC-V */
    EXEC_ERR("./broken", ENOEXEC);
}

TEST(elf_of_a_wrong_type_is_enoexec) {
    put_broken(16, "\x01", 1); /* ET_REL */
    EXEC_ERR("./broken", ENOEXEC);
    put_broken(16, "\x04", 1); /* ET_CORE */
    EXEC_ERR("./broken", ENOEXEC);
}

TEST(elf_with_bad_program_headers_fails_or_dies) {
    put_broken(54, "\x20", 1); /* e_phentsize 32 */
    EXEC_ERR("./broken", ENOEXEC);
    put_broken(56, "\0", 1); /* e_phnum 0 */
    EXEC_ERR("./broken", ENOEXEC);
    put_broken(32, "\xff\xff\xff\xff\xff\xff\xff\x7f", 8); /* e_phoff out of the file */
    char *argv[] = {(char *)"prog", NULL};
    int status = run("./broken", argv, environ);
    CHECK(!(WIFEXITED(status) && WEXITSTATUS(status) == 42));
    put_broken(80, "\0\xf0\xff\xff\xff\xff\xff\xff", 8); /* p_vaddr in the kernel half */
    status = run("./broken", argv, environ);
    CHECK(!(WIFEXITED(status) && WEXITSTATUS(status) == 42));
    put_broken(24, "\x10", 1); /* entry into the header: not code */
    status = run("./broken", argv, environ);
    CHECK(WIFSIGNALED(status) || WIFEXITED(status));
    put_broken(68, "\x04", 1); /* p_flags read only: the first instruction faults */
    status = run("./broken", argv, environ);
    CHECK(WIFSIGNALED(status));
    CHECK_EQ(WTERMSIG(status), SIGSEGV);
}

TEST(bss_beyond_the_file_is_zero_and_p_memsz_counts) {
    /* cmpb $0, 0x400fff; mov $60,%eax; setnz; exit(byte != 0) */
    static const unsigned char code[] = {0x0f, 0xb6, 0x3c, 0x25, 0xff, 0x0f, 0x40, 0x00, /* movzbl */
                                         0xb8, 60, 0, 0, 0, 0x0f, 0x05};
    put_broken(120, code, sizeof code);
    int fd = OK(open("broken", O_WRONLY));
    OK(pwrite(fd, "\0\x10", 2, 104)); /* p_memsz 4096 */
    OK(close(fd));
    RUNS("./broken", 0);
}

TEST(missing_elf_interpreter_is_enoent) {
    unsigned char image[0x100] = {
        0x7f, 'E', 'L', 'F', 2, 1, 1, [16] = 2, 0, 62, 0, 1, [24] = 0xf0, 0, 0x40, [32] = 64,
        [52] = 64, 0, 56, 0, 2, 0,
        /* PT_INTERP */ [64] = 3, 0, 0, 0, 4, [72] = 0xe0, [80] = 0xe0, 0, 0x40, [96] = 12,
        [104] = 12, [112] = 1,
        /* PT_LOAD */ [120] = 1, 0, 0, 0, 5, [136] = 0, 0, 0x40, [152] = 0, 1, [160] = 0, 1,
        [168] = 0, 0x10, [0xe0] = '/', 'n', 'o', '/', 'l', 'd', '.', 's', 'o', 'x', 'x', 0};
    PUT_BYTES("dyn", image, sizeof image);
    OK(chmod("dyn", 0755));
    EXEC_ERR("./dyn", ENOENT);
}

TEST(write_to_a_running_program_is_etxtbsy) {
    COPY(hy_self, "copy", 0755);
    GATE(ready);
    pid_t pid = FORK();
    if (pid == 0) {
        dup2(ready.fd[1], 1);
        execl("./copy", "./copy", "--helper", "linger", (char *)NULL);
        _exit(1);
    }
    gate_pass(&ready);
    ERR(open("copy", O_WRONLY), ETXTBSY);
    ERR(open("copy", O_RDWR | O_TRUNC), ETXTBSY);
    ERR(truncate("copy", 0), ETXTBSY);
    OK(close(OK(open("copy", O_RDONLY))));
    OK(unlink("copy")); /* a name may go at any time */
    OK(kill(pid, SIGKILL));
    KILLED(pid, SIGKILL);
}
HELPER(linger) {
    if (write(1, "", 1) == 1)
        for (;;)
            pause();
    return 1;
}

TEST(running_a_file_open_for_writing_is_etxtbsy) {
    put_exit42("exit42", 0755);
    int fd = OK(open("exit42", O_WRONLY));
    EXEC_ERR("./exit42", ETXTBSY);
    OK(close(fd));
    RUNS("./exit42", 42);
}

/* ---- scripts ------------------------------------------------------------------------------- */

TEST(script_runs_its_interpreter_with_argument_and_path) {
    char text[2048], script[PATH_MAX + 64], want[256];
    snprintf(script, sizeof script, "#!%s --helper\n", hy_self);
    PUT_MODE("report", script, 0755);
    /* `PROG "--helper" ./report x y`: one argument, then the script's path as it was named */
    snprintf(script, sizeof script, "#! \t%s \t --helper report  two words \t\nrest", hy_self);
    PUT_MODE("s", script, 0755);
    char *argv[] = {(char *)"name0", (char *)"x", (char *)"y", NULL}, *envp[] = {NULL};
    GATE(out);
    pid_t pid = FORK();
    if (pid == 0) {
        dup2(out.fd[1], 1);
        execve("./s", argv, envp);
        _exit(1);
    }
    WAIT(pid);
    close(out.fd[1]);
    ssize_t n = read(out.fd[0], text, sizeof text - 1);
    text[n > 0 ? n : 0] = 0;
    /* the whole rest of the line is one argument (execve(2)): the harness refuses it, usage */
    snprintf(want, sizeof want, "usage: ");
    CHECK(!strncmp(text, want, strlen(want)));
}

HELPER(args) {
    for (int i = 0; i < argc; i++)
        dprintf(1, "[%s]", argv[i]);
    return 0;
}

TEST(script_argument_vector) {
    char text[1024], script[PATH_MAX + 64], *envp[] = {NULL};
    /* The interpreter's name is the script's: `PROG --helper <path>`, so name the script "args". */
    snprintf(script, sizeof script, "#!%s --helper\n", hy_self);
    PUT_MODE("args", script, 0755);
    char *argv[] = {(char *)"lost", (char *)"x", (char *)"", (char *)"z z", NULL};
    output_of(text, sizeof text, "args", argv, envp); /* argv[0] is replaced */
    CHECK_STR(text, "[args][x][][z z]");
}

HELPER(called) {
    char comm[32] = "", exe[PATH_MAX] = "";
    get_file("/proc/self/comm", comm, sizeof comm);
    ssize_t n = readlink("/proc/self/exe", exe, sizeof exe - 1);
    comm[strcspn(comm, "\n")] = 0;
    dprintf(1, "%s %s %s", comm, (const char *)getauxval(31 /* AT_EXECFN */),
            n > 0 && !strcmp(exe, hy_self) ? "interpreter" : "another");
    return 0;
}

TEST(a_script_has_its_own_name_and_the_interpreter_as_executable) {
    char text[1024], script[PATH_MAX + 64], *argv[] = {(char *)"lost", NULL}, *envp[] = {NULL};
    snprintf(script, sizeof script, "#!%s --helper\n", hy_self);
    PUT_MODE("called", script, 0755);
    output_of(text, sizeof text, "called", argv, envp);
    CHECK_STR(text, "called called interpreter");
    /* One script as the interpreter of another: the name is the outermost's. */
    PUT_MODE("outermost-of-all-scripts", "#!called\n", 0755);
    char shown[256];
    snprintf(shown, sizeof shown, "./outermost-of-all-scripts");
    GATE(out);
    pid_t pid = FORK();
    if (pid == 0) {
        dup2(out.fd[1], 1);
        execve(shown, argv, envp);
        _exit(1);
    }
    EXITS(pid, 0);
    ssize_t n = read(out.fd[0], text, sizeof text - 1);
    text[n > 0 ? n : 0] = 0;
    CHECK_STR(text, "outermost-of-al ./outermost-of-all-scripts interpreter");
}

TEST(a_program_executed_by_descriptor_is_named_by_its_number) {
    char text[1024];
    int fd = OK(open(hy_self, O_RDONLY));
    CHECK(fd < 10);
    GATE(out);
    pid_t pid = FORK();
    if (pid == 0) {
        char *argv[] = {(char *)"x", (char *)"--helper", (char *)"called", NULL}, *envp[] = {NULL};
        dup2(out.fd[1], 1);
        syscall(SYS_execveat, fd, "", argv, envp, AT_EMPTY_PATH);
        _exit(1);
    }
    EXITS(pid, 0);
    ssize_t n = read(out.fd[0], text, sizeof text - 1);
    text[n > 0 ? n : 0] = 0;
    char want[64];
    /* Linux 6.14 took the file's name (fs/exec.c, bprm->comm_from_dentry); until then it is the
     * number. */
    snprintf(want, sizeof want, "%d /dev/fd/%d ", fd, fd);
    if (strncmp(text, want, strlen(want)) != 0 && strncmp(text, "exec /dev/fd/", 13) != 0)
        FAIL("%s", text);
}

TEST(scripts_nest_five_deep_and_no_deeper) {
    put_exit42("s0", 0755);
    char from[64];
    for (int i = 1; i <= 6; i++) {
        char path[16], line[PATH_MAX];
        snprintf(line, sizeof line, "#!%s/s%d\n", hy_tmp, i - 1);
        snprintf(path, sizeof path, "s%d", i);
        PUT_MODE(path, line, 0755);
        snprintf(from, sizeof from, "./s%d", i);
        if (i <= 5)
            RUNS(from, 42); /* fs/exec.c exec_binprm: at most five rewrites */
        else
            EXEC_ERR("./s6", ELOOP);
    }
}

TEST(script_that_names_itself_is_eloop) {
    char line[PATH_MAX];
    snprintf(line, sizeof line, "#!%s/self\n", hy_tmp);
    PUT_MODE("self", line, 0755);
    EXEC_ERR("./self", ELOOP);
}

TEST(script_errors) {
    PUT_MODE("a", "#!/no/such/interpreter\n", 0755);
    EXEC_ERR("./a", ENOENT);
    PUT_MODE("b", "#!\n", 0755);
    EXEC_ERR("./b", ENOEXEC);
    PUT_MODE("c", "#!   \t \n", 0755);
    EXEC_ERR("./c", ENOEXEC);
    char line[PATH_MAX];
    PUT_MODE("interp", "#!/bin/none", 0644);
    snprintf(line, sizeof line, "#!%s/interp\n", hy_tmp);
    PUT_MODE("d", line, 0755);
    EXEC_ERR("./d", EACCES); /* the interpreter may not be executed */
    PUT_MODE("e", "#!.\n", 0755);
    EXEC_ERR("./e", EACCES); /* a directory */
    PUT_MODE("f", "#!nowhere/x\n", 0755);
    EXEC_ERR("./f", ENOENT); /* relative to the working directory */
}

TEST(script_line_too_long_is_enoexec) {
    /* BINPRM_BUF_SIZE is 256; a path cut off there is refused (execve(2), since Linux 5.1). */
    char line[600] = "#!/";
    memset(line + 3, 'a', 400);
    strcpy(line + 403, "\n");
    PUT_MODE("long", line, 0755);
    EXEC_ERR("./long", ENOEXEC);
    /* an over-long argument alone is cut, as the path before it is complete */
    char *argv[] = {(char *)"x", NULL};
    char cut[1024];
    snprintf(cut, sizeof cut, "#!%s/exit42 ", hy_tmp);
    size_t n = strlen(cut);
    memset(cut + n, 'b', 400);
    strcpy(cut + n + 400, "\n");
    put_exit42("exit42", 0755);
    PUT_MODE("cut", cut, 0755);
    int status = run("./cut", argv, environ);
    CHECK_EQ(status, 42 << 8);
}

TEST(script_without_newline_at_end_of_file) {
    char line[PATH_MAX];
    put_exit42("exit42", 0755);
    snprintf(line, sizeof line, "#!%s/exit42", hy_tmp);
    PUT_MODE("s", line, 0755);
    RUNS("./s", 42);
}

/* ---- sizes ---------------------------------------------------------------------------------- */

TEST(one_string_over_128_kib_is_e2big) {
    /* MAX_ARG_STRLEN is 32 pages (execve(2)). */
    size_t limit = 32 * PAGE;
    char *big = malloc(limit + 1);
    memset(big, 'x', limit + 1);
    big[limit] = 0; /* the terminating zero makes it one byte too long */
    char *argv[] = {(char *)"prog", big, NULL};
    put_exit42("exit42", 0755);
    ERR(execve("./exit42", argv, environ), E2BIG);
    big[limit - 1] = 0;
    CHECK_EQ(run("./exit42", argv, environ), 42 << 8);
    char *env[] = {big, NULL}, *plain[] = {(char *)"x", NULL};
    big[limit - 1] = 'x';
    ERR(execve("./exit42", plain, env), E2BIG);
}

TEST(total_over_a_quarter_of_the_stack_limit_is_e2big) {
    enum { COUNT = 100 };
    char *text = malloc(100001);
    memset(text, 'y', 100000);
    text[100000] = 0;
    char *argv[COUNT + 1];
    for (int i = 0; i < COUNT; i++)
        argv[i] = text;
    argv[COUNT] = NULL;
    put_exit42("exit42", 0755);
    struct rlimit stack = {8 << 20, RLIM_INFINITY};
    struct rlimit old;
    OK(getrlimit(RLIMIT_STACK, &old));
    stack.rlim_max = old.rlim_max;
    OK(setrlimit(RLIMIT_STACK, &stack));
    ERR(execve("./exit42", argv, environ), E2BIG); /* 10 MB against 2 MiB */
    argv[15] = NULL;                               /* 1.5 MB */
    CHECK_EQ(run("./exit42", argv, environ), 42 << 8);
}

TEST(two_thousand_arguments_arrive) {
    char *argv[2004] = {hy_self, (char *)"--helper", (char *)"count"};
    for (int i = 3; i < 2003; i++)
        argv[i] = (char *)"arg";
    int status = run(hy_self, argv, environ);
    CHECK_EQ(status, (2001 % 251) << 8);
}
HELPER(count) { return argc % 251; }

/* ---- what is kept and what is reset ---------------------------------------------------------- */

TEST(close_on_exec_closes_and_others_stay) {
    put_exit42("exit42", 0755);
    int keep = OK(open("exit42", O_RDONLY)), gone = OK(open("exit42", O_RDONLY | O_CLOEXEC));
    char a[16], b[16];
    snprintf(a, sizeof a, "%d", keep);
    snprintf(b, sizeof b, "%d", gone);
    char *argv[] = {hy_self, (char *)"--helper", (char *)"fds", a, b, NULL};
    CHECK_EQ(run(hy_self, argv, environ), 0);
    OK(fcntl(gone, F_GETFD)); /* the parent's own is untouched */
}
HELPER(fds) {
    if (fcntl(atoi(argv[1]), F_GETFD) == -1)
        return 1;
    return fcntl(atoi(argv[2]), F_GETFD) != -1;
}

TEST(failed_exec_changes_nothing) {
    int fd = OK(open("/dev/null", O_RDONLY | O_CLOEXEC));
    struct sigaction act = {.sa_handler = hy_on_alarm}, now;
    OK(sigaction(SIGUSR1, &act, NULL));
    EXEC_ERR("none", ENOENT);
    PUT_MODE("text", "no program", 0755);
    EXEC_ERR("./text", ENOEXEC);
    OK(fcntl(fd, F_GETFD));
    OK(sigaction(SIGUSR1, NULL, &now));
    CHECK(now.sa_handler == hy_on_alarm);
}

TEST(handlers_are_reset_ignored_and_mask_stay) {
    struct sigaction act = {.sa_handler = hy_on_alarm};
    OK(sigaction(SIGUSR1, &act, NULL));
    signal(SIGUSR2, SIG_IGN);
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    OK(sigprocmask(SIG_SETMASK, &set, NULL));
    OK(kill(getpid(), SIGTERM)); /* pending, and stays so through exec */
    pid_t pid = FORK();
    if (pid == 0) {
        OK(kill(getpid(), SIGTERM));
        execl(hy_self, hy_self, "--helper", "signals", (char *)NULL);
        _exit(99);
    }
    EXITS(pid, 0);
}
HELPER(signals) {
    struct sigaction act;
    sigset_t set;
    sigaction(SIGUSR1, NULL, &act);
    if (act.sa_handler != SIG_DFL)
        return 1;
    sigaction(SIGUSR2, NULL, &act);
    if (act.sa_handler != SIG_IGN)
        return 2;
    sigprocmask(SIG_BLOCK, NULL, &set);
    if (!sigismember(&set, SIGTERM) || sigismember(&set, SIGUSR1))
        return 3;
    sigpending(&set);
    return sigismember(&set, SIGTERM) ? 0 : 4;
}

TEST(pid_alarm_and_umask_survive) {
    pid_t pid = FORK();
    if (pid == 0) {
        char own[16];
        snprintf(own, sizeof own, "%d", getpid());
        alarm(1000);
        umask(035);
        execl(hy_self, hy_self, "--helper", "survivors", own, (char *)NULL);
        _exit(99);
    }
    EXITS(pid, 0);
}
HELPER(survivors) {
    if (getpid() != atoi(argv[1]))
        return 1;
    if (alarm(0) < 900)
        return 2;
    return umask(0) == 035 ? 0 : 3;
}

TEST(memory_is_replaced) {
    /* An old mapping is gone in the new program, and its heap and stack are new. */
    char *p = OK(mmap((void *)0x10000000000, PAGE, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0));
    *p = 1;
    char *argv[] = {hy_self, (char *)"--helper", (char *)"touch", NULL};
    int status = run(hy_self, argv, environ);
    CHECK(WIFSIGNALED(status));
    CHECK_EQ(WTERMSIG(status), SIGSEGV);
}
HELPER(touch) {
    struct rlimit no_core = {0, 0};
    setrlimit(RLIMIT_CORE, &no_core);
    return *(volatile char *)0x10000000000;
}

TEST(exec_from_a_deep_fork_tree) {
    put_exit42("exit42", 0755);
    for (int i = 0; i < 50; i++)
        RUNS("./exit42", 42);
}

TEST(aux_vector_is_sane) {
    char *argv[] = {hy_self, (char *)"--helper", (char *)"auxv", NULL};
    CHECK_EQ(run(hy_self, argv, environ), 0);
}
#include <elf.h>
#include <sys/auxv.h>
HELPER(auxv) {
    if (getauxval(AT_PAGESZ) != PAGE)
        return 1;
    if (getauxval(AT_UID) != getuid() || getauxval(AT_EGID) != getegid())
        return 2;
    if (!getauxval(AT_RANDOM) || !getauxval(AT_PHDR) || getauxval(AT_PHENT) != sizeof(Elf64_Phdr))
        return 3;
    if (getauxval(AT_SECURE) != 0)
        return 4;
    if (strcmp((char *)getauxval(AT_EXECFN), hy_self) != 0)
        return 5;
    if (getauxval(AT_CLKTCK) != 100 || !getauxval(AT_ENTRY))
        return 6;
    const unsigned char *random = (const unsigned char *)getauxval(AT_RANDOM);
    int zeros = 0;
    for (int i = 0; i < 16; i++)
        zeros += random[i] == 0;
    return zeros > 8 ? 7 : 0;
}

TEST(stack_pointer_is_16_byte_aligned_at_entry) {
    /* lea (%rsp),%rdi; and $15,%edi; mov $60,%eax; syscall (psABI 3.4.1) */
    static const unsigned char code[] = {0x89, 0xe7, 0x83, 0xe7, 0x0f, 0xb8, 60, 0, 0, 0, 0x0f, 0x05};
    put_broken(120, code, sizeof code);
    char *argv[] = {(char *)"a", (char *)"bb", NULL};
    for (int i = 0; i < 6; i++) {
        char *env[] = {(char *)"LONGER=1" + i, NULL};
        CHECK_EQ(run("./broken", argv, env), 0);
    }
}

TEST(setuid_program_changes_effective_id) {
    COPY(hy_self, "suid", 0755);
    OK(chown("suid", 1234, 2345));
    OK(chmod("suid", 06755));
    pid_t pid = FORK();
    if (pid == 0) {
        BECOME(NOBODY, NOBODY);
        execl("./suid", "./suid", "--helper", "ids", (char *)NULL);
        _exit(99);
    }
    EXITS(pid, 0);
}
HELPER(ids) {
    uid_t r, e, s;
    gid_t gr, ge, gs;
    if (getresuid(&r, &e, &s) || getresgid(&gr, &ge, &gs))
        return 1;
    if (r != NOBODY || e != 1234 || s != 1234)
        return 2;
    if (gr != NOBODY || ge != 2345 || gs != 2345)
        return 3;
    return getauxval(AT_SECURE) == 1 ? 0 : 4;
}

TEST(setuid_bit_on_a_script_is_without_effect) {
    char line[PATH_MAX + 32];
    snprintf(line, sizeof line, "#!%s --helper\n", hy_self);
    PUT_MODE("plain_ids", line, 0755);
    OK(chown("plain_ids", 1234, 2345));
    OK(chmod("plain_ids", 06755));
    pid_t pid = FORK();
    if (pid == 0) {
        BECOME(NOBODY, NOBODY);
        execl("plain_ids", "x", (char *)NULL);
        _exit(99);
    }
    EXITS(pid, 0);
}
HELPER(plain_ids) { return geteuid() == NOBODY && getegid() == NOBODY ? 0 : 1; }

/* ---- execveat and /proc --------------------------------------------------------------------- */

static long execveat_(int fd, const char *path, int flags) {
    char *argv[] = {(char *)"x", NULL};
    return syscall(SYS_execveat, fd, path, argv, environ, flags);
}

TEST(execveat_forms) {
    put_exit42("exit42", 0755);
    int dir = OK(open(".", O_PATH)), file = OK(open("exit42", O_RDONLY | O_CLOEXEC));
    int handle = OK(open("exit42", O_PATH));
    for (int form = 0; form < 4; form++) {
        pid_t pid = FORK();
        if (pid == 0) {
            if (form == 0)
                execveat_(dir, "exit42", 0);
            else if (form == 1)
                execveat_(file, "", AT_EMPTY_PATH);
            else if (form == 2)
                execveat_(AT_FDCWD, "exit42", 0);
            else
                execveat_(handle, "", AT_EMPTY_PATH);
            _exit(1);
        }
        EXITS(pid, 42);
    }
}

TEST(execveat_errors) {
    put_exit42("exit42", 0755);
    OK(symlink("exit42", "link"));
    int file = OK(open("exit42", O_RDONLY));
    ERR(execveat_(file, "", 0), ENOENT);
    ERR(execveat_(file, "x", 0), ENOTDIR);
    ERR(execveat_(999, "x", 0), EBADF);
    ERR(execveat_(AT_FDCWD, "exit42", 0x40000), EINVAL);
    ERR(execveat_(AT_FDCWD, "link", AT_SYMLINK_NOFOLLOW), ELOOP);
}

TEST(script_by_cloexec_descriptor_is_enoent) {
    /* The interpreter could not open /dev/fd/N (execveat(2), BUGS). */
    char line[PATH_MAX + 32];
    snprintf(line, sizeof line, "#!%s --helper\n", hy_self);
    PUT_MODE("s", line, 0755);
    int fd = OK(open("s", O_RDONLY | O_CLOEXEC));
    ERR(execveat_(fd, "", AT_EMPTY_PATH), ENOENT);
}

TEST(memfd_can_be_executed) {
    put_exit42("exit42", 0755);
    char image[0x90];
    int in = OK(open("exit42", O_RDONLY));
    CHECK_EQ(OK(read(in, image, sizeof image)), sizeof image);
    int fd = (int)OK(syscall(SYS_memfd_create, "prog", 0));
    OK(write(fd, image, sizeof image));
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    int again = OK(open(path, O_RDONLY | O_CLOEXEC));
    OK(close(fd));
    pid_t pid = FORK();
    if (pid == 0) {
        execveat_(again, "", AT_EMPTY_PATH);
        _exit(1);
    }
    EXITS(pid, 42);
}

TEST(proc_self_exe_reruns_the_program) {
    char *argv[] = {(char *)"x", (char *)"--helper", (char *)"count", NULL};
    CHECK_EQ(run("/proc/self/exe", argv, environ), 1 << 8);
}

TEST(empty_argv_gets_an_empty_name) {
    /* Since Linux 5.18 argc is never 0: an empty string is put there. */
    /* mov (%rsp),%rdi; mov $60,%eax; syscall */
    static const unsigned char code[] = {0x48, 0x8b, 0x3c, 0x24, 0xb8, 60, 0, 0, 0, 0x0f, 0x05};
    put_broken(120, code, sizeof code);
    char *argv[] = {NULL};
    CHECK_EQ(run("./broken", argv, environ), 1 << 8);
    CHECK_EQ(run("./broken", NULL, environ), 1 << 8);
}
