/*
 * What one start of a program wrote, no other start of it sees: it finds its memory as its own
 * start-up left it, whatever the last one did to its own. Any system passes; one that begins starts
 * where an earlier one was ready, in a space in which others ran (Hayate), has to take care.
 *
 * The program prepares memory, and then reads what to do from a pipe: what comes before that read is
 * the same in all starts.
 */
#define AREA "heirs"
#include "harness.h"
#include <sys/auxv.h>
#include <sys/ptrace.h>
#include <sys/shm.h>
#include <sys/uio.h>

#define WORDS 512
#define SECRET 0x5ec2e75ec2e75ec2u

static volatile uint64_t data[4 * WORDS] = {1, 2, 3};
static volatile uint64_t bss[64 * WORDS];
static const volatile uint64_t constant[2 * WORDS] = {4, 5, 6};

/* What the start-up leaves. */
static struct {
    volatile uint64_t *pages, *quiet, *hidden, *file, *large;
    uintptr_t heap, heap_end;
} ready;

enum { PAGES = 16, QUIET = 64, HEAP = 8, LARGE = 2048 };

static volatile uint64_t *map(size_t pages, int protection) {
    void *at = mmap(NULL, pages * PAGE, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED)
        _exit(90);
    return at;
}

static void prepare(void) {
    ready.pages = map(PAGES, PROT_READ | PROT_WRITE);
    ready.quiet = map(QUIET, PROT_READ | PROT_WRITE);
    ready.large = map(LARGE, PROT_READ | PROT_WRITE);
    ready.hidden = map(2, PROT_READ | PROT_WRITE);
    ready.hidden[0] = 77;
    mprotect((void *)ready.hidden, 2 * PAGE, PROT_NONE);
    int fd = open("content", O_RDONLY);
    ready.file = mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
    close(fd);
    ready.heap = (uintptr_t)syscall(SYS_brk, 0);
    ready.heap_end = ready.heap + HEAP * PAGE;
    if (ready.file == MAP_FAILED || (uintptr_t)syscall(SYS_brk, ready.heap_end) != ready.heap_end)
        _exit(91);
    /* Takes a while, or the start is not worth an image. */
    for (int round = 0; round < 60; round++)
        for (size_t i = 0; i < PAGES * WORDS; i += 2)
            ready.pages[i] = i * 3 + 1;
    for (size_t i = 0; i < HEAP * WORDS; i += WORDS)
        ((volatile uint64_t *)ready.heap)[i] = i;
    bss[WORDS] = 9;
    data[WORDS] = 10;
}

static int has_secret(const volatile uint64_t *at, size_t words) {
    for (size_t i = 0; i < words; i++)
        if (at[i] == SECRET)
            return 1;
    return 0;
}

/* Everything is as `prepare` left it. */
static int check(void) {
    for (size_t i = 0; i < PAGES * WORDS; i++)
        if (ready.pages[i] != (i % 2 ? 0 : i * 3 + 1))
            return 20;
    for (size_t i = 0; i < QUIET * WORDS; i++)
        if (ready.quiet[i])
            return 21;
    for (size_t i = 0; i < LARGE * WORDS; i += WORDS / 4)
        if (ready.large[i])
            return 22;
    for (size_t i = 0; i < 4 * WORDS; i++)
        if (ready.file[i] != i)
            return 23;
    if ((uintptr_t)syscall(SYS_brk, 0) != ready.heap_end)
        return 24;
    for (size_t i = 0; i < HEAP * WORDS; i++)
        if (((volatile uint64_t *)ready.heap)[i] != (i % WORDS ? 0 : i))
            return 25;
    for (size_t i = 0; i < 64 * WORDS; i++)
        if (bss[i] != (i == WORDS ? 9 : 0))
            return 26;
    for (size_t i = 3; i < 4 * WORDS; i++)
        if (data[i] != (i == WORDS ? 10 : 0))
            return 27;
    if (data[0] != 1 || data[2] != 3 || constant[0] != 4 || constant[2] != 6)
        return 28;
    if (mprotect((void *)ready.hidden, 2 * PAGE, PROT_READ) || ready.hidden[0] != 77 ||
        ready.hidden[1] || ready.hidden[WORDS])
        return 29;
    if (mprotect((void *)ready.hidden, 2 * PAGE, PROT_NONE))
        return 30;
    volatile uint64_t here;
    /* What earlier calls left below the stack pointer is the program's own. */
    if (has_secret((volatile uint64_t *)(((uintptr_t)&here & ~7ul) - 3 * PAGE), 2 * WORDS))
        return 31;
    volatile uint64_t *fresh = map(32, PROT_READ | PROT_WRITE);
    for (size_t i = 0; i < 32 * WORDS; i++)
        if (fresh[i])
            return 32;
    munmap((void *)fresh, 32 * PAGE);
    /* Nothing else is there: the first mapping is where it always is. */
    return 0;
}

static void fill(volatile uint64_t *at, size_t words) {
    for (size_t i = 0; i < words; i++)
        at[i] = SECRET;
}

static __attribute__((noinline)) void fill_stack(void) {
    volatile uint64_t deep[64 * WORDS];
    fill(deep, 64 * WORDS);
}

static void fill_all(void) {
    fill(ready.pages, PAGES * WORDS);
    fill(ready.quiet, QUIET / 2 * WORDS);
    fill(ready.file, 3 * WORDS);
    fill((volatile uint64_t *)ready.heap, HEAP * WORDS);
    fill(bss, 32 * WORDS);
    fill(data, 4 * WORDS);
    fill_stack();
}

static void *fill_in_thread(void *at) {
    volatile uint64_t deep[8 * WORDS];
    fill(deep, 8 * WORDS);
    fill(at, WORDS);
    return NULL;
}

static int fill_page(void *at) {
    fill(at, WORDS);
    return 0;
}

static void children(int lives) {
    pid_t pid = fork();
    if (pid == 0) {
        fill_all();
        if (lives) {
            msleep(30);
            for (size_t i = 0; i < PAGES * WORDS; i++)
                if (ready.pages[i] != SECRET)
                    abort();
        }
        _exit(0);
    }
    fill(ready.pages, WORDS);
    if (!lives)
        waitpid(pid, NULL, 0);
    bss[0] = SECRET;
}

/* Does to its own memory what `what` says, and returns if it lives. */
static void act(char what) {
    uint8_t *pages = (uint8_t *)ready.pages;
    int protection = PROT_READ | PROT_WRITE;
    switch (what) {
    case 'n': /* nothing */
        break;
    case 'w': /* writes wherever it can */
        fill_all();
        break;
    case 'm': /* maps and fills more, and a little of what it has */
        fill(map(600, protection), 600 * WORDS);
        if ((uintptr_t)syscall(SYS_brk, ready.heap_end + 64 * PAGE))
            fill((volatile uint64_t *)ready.heap_end, 64 * WORDS);
        fill(ready.pages + 3 * WORDS, WORDS);
        break;
    case 'u': /* unmaps */
        fill_all();
        munmap(pages + 2 * PAGE, 5 * PAGE);
        munmap((void *)ready.quiet, QUIET * PAGE);
        munmap((void *)ready.file, PAGE);
        syscall(SYS_brk, ready.heap + PAGE);
        break;
    case 'a': /* gives pages up */
        fill(ready.pages, PAGES * WORDS);
        madvise(pages, 8 * PAGE, MADV_DONTNEED);
        madvise((void *)ready.quiet, QUIET * PAGE, MADV_DONTNEED);
        madvise((void *)ready.heap, HEAP * PAGE, MADV_DONTNEED);
        ready.pages[WORDS] = SECRET;
        break;
    case 'r': /* moves pages: of the start-up, over others of it, and there and back */
        if (mremap(pages, 4 * PAGE, 4 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, (void *)ready.quiet) ==
                MAP_FAILED ||
            mmap(pages, 4 * PAGE, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) ==
                MAP_FAILED)
            _exit(92);
        pages += 4 * PAGE;
        void *away = (void *)map(4, protection);
        mremap(pages, 2 * PAGE, 2 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, away);
        mremap(pages + 2 * PAGE, 2 * PAGE, 2 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, pages);
        mremap(away, 2 * PAGE, 2 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, pages + 2 * PAGE);
        break;
    case 'x': /* maps other things at the same places */
        mmap(pages, 4 * PAGE, protection, MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
        fill(ready.pages, 4 * WORDS);
        mmap((void *)ready.file, 2 * PAGE, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
        fill(ready.file, WORDS);
        int fd = open("content", O_RDONLY);
        if (mmap((void *)ready.quiet, 4 * PAGE, protection, MAP_PRIVATE | MAP_FIXED, fd, 0) == MAP_FAILED)
            _exit(93);
        if (ready.quiet[5] != 5)
            _exit(94);
        break;
    case 'p': /* other rights */
        fill(ready.pages, PAGES * WORDS);
        mprotect(pages, 3 * PAGE, PROT_NONE);
        mprotect(pages + 3 * PAGE, 3 * PAGE, PROT_READ);
        mprotect(pages + 6 * PAGE, 3 * PAGE, PROT_READ);
        mprotect(pages + 6 * PAGE, 3 * PAGE, protection);
        mprotect((void *)ready.hidden, 2 * PAGE, protection);
        fill(ready.hidden, 2 * WORDS);
        mprotect((void *)((uintptr_t)constant & ~(PAGE - 1)), PAGE, protection);
        *(volatile uint64_t *)((uintptr_t)constant & ~(PAGE - 1)) = SECRET;
        *(volatile uint64_t *)&constant[0] = SECRET;
        break;
    case 'l': /* locks, and asks for large pages */
        mlockall(MCL_CURRENT | MCL_FUTURE);
        madvise((void *)ready.large, LARGE * PAGE, MADV_HUGEPAGE);
        fill(ready.large, LARGE * WORDS);
        break;
    case 't': { /* threads */
        pthread_t threads[4];
        for (int i = 0; i < 4; i++)
            if (pthread_create(&threads[i], NULL, fill_in_thread, pages + 2 * i * PAGE))
                _exit(95);
        for (int i = 0; i < 3; i++)
            pthread_join(threads[i], NULL);
        break;
    }
    case 'f': /* a child that ends first */
        children(0);
        break;
    case 'd': /* a child that ends later */
        children(1);
        break;
    case 'v': { /* a child that shares its memory */
        pid_t pid = vfork();
        if (pid == 0) {
            fill(ready.pages, PAGES * WORDS);
            _exit(0);
        }
        waitpid(pid, NULL, 0);
        static char stack[16 * PAGE];
        pid = clone(fill_page, stack + sizeof stack, CLONE_VM | SIGCHLD, (void *)ready.heap);
        waitpid(pid, NULL, __WALL);
        break;
    }
    case 'e': /* another program */
        fill_all();
        execl("/proc/self/exe", "heirs", "--helper", "nothing", NULL);
        _exit(96);
    case 'k': /* killed in the midst of it */
        fill(ready.pages, PAGES * WORDS);
        fill((volatile uint64_t *)ready.heap, WORDS);
        kill(getpid(), SIGKILL);
        break;
    case 's': /* a crash */
        fill_all();
        *(volatile int *)8 = 1;
        break;
    case 'z': /* pages that go away in a pipe */
    {
        fill(ready.pages, 2 * WORDS);
        struct iovec page = {pages, 2 * PAGE};
        if (vmsplice(1, &page, 1, 0) != 2 * (ssize_t)PAGE)
            _exit(97);
        break;
    }
    case 'g': /* somebody else writes to it */
    {
        volatile const void *places[3] = {bss, constant, &data[8]};
        if (write(1, places, sizeof places) != sizeof places || read(0, &what, 1) != 1)
            _exit(98);
        break;
    }
    case 'y': /* a segment of shared memory, over its pages and elsewhere; its end removes it */
    {
        int id = shmget(IPC_PRIVATE, 4 * PAGE, 0600);
        if (shmat(id, pages, SHM_REMAP) != pages || shmat(id, NULL, 0) == (void *)-1 ||
            shmctl(id, IPC_RMID, NULL) == -1 || write(1, &id, sizeof id) != sizeof id)
            _exit(78);
        fill(ready.pages, 5 * WORDS);
        break;
    }
    default:
        _exit(99);
    }
}

HELPER(nothing) { return 0; }

HELPER(start) {
    char what;
    prepare();
    if (read(0, &what, 1) != 1)
        return 80;
    int wrong = check();
    if (wrong)
        return wrong;
    act(what);
    return 0;
}

struct start {
    pid_t pid;
    int to, from;
    char what;
};

/* Starts the program; it has no other descriptors than its pipes. */
static struct start begin(char what) {
    int in[2], out[2];
    OK(pipe2(in, O_CLOEXEC));
    OK(pipe2(out, O_CLOEXEC));
    struct start start = {FORK(), in[1], out[0], what};
    if (start.pid == 0) {
        dup2(in[0], 0);
        dup2(out[1], 1);
        struct rlimit none = {0, 0};
        setrlimit(RLIMIT_CORE, &none);
        char *argv[] = {hy_self, "--helper", "start", NULL}, *envp[] = {NULL};
        execve(hy_self, argv, envp);
        _exit(89);
    }
    close(in[0]);
    close(out[1]);
    OK(write(start.to, &what, 1));
    return start;
}

static uint64_t from_pipe[2 * WORDS];

static void end(struct start start) {
    if (start.what == 'z') {
        /* The pages that it gave away are as it filled them, when it has ended and after. */
        size_t done = 0;
        ssize_t got;
        EXITS(start.pid, 0);
        while (done < sizeof from_pipe &&
               (got = OK(read(start.from, (char *)from_pipe + done, sizeof from_pipe - done))) > 0)
            done += (size_t)got;
        CHECK_EQ(done, sizeof from_pipe);
        for (size_t i = 0; i < 2 * WORDS; i++)
            CHECK_EQ(from_pipe[i], SECRET);
    } else if (start.what == 'g') {
        void *places[3];
        static uint64_t secrets[WORDS];
        for (size_t i = 0; i < WORDS; i++)
            secrets[i] = SECRET;
        CHECK_EQ(OK(read(start.from, places, sizeof places)), sizeof places);
        struct iovec mine = {secrets, sizeof secrets};
        struct iovec theirs = {places[0], sizeof secrets};
        OK(process_vm_writev(start.pid, &mine, 1, &theirs, 1, 0));
        if (ptrace(PTRACE_ATTACH, start.pid, NULL, NULL) == 0) {
            int status;
            CHECK_EQ(waitpid(start.pid, &status, 0), start.pid);
            OK(ptrace(PTRACE_POKEDATA, start.pid, places[1], (void *)SECRET));
            OK(ptrace(PTRACE_POKEDATA, start.pid, places[2], (void *)SECRET));
            OK(ptrace(PTRACE_DETACH, start.pid, NULL, NULL));
        }
        OK(write(start.to, "g", 1));
        EXITS(start.pid, 0);
    } else if (start.what == 'y') {
        int id;
        struct shmid_ds gone;
        EXITS(start.pid, 0);
        CHECK_EQ(OK(read(start.from, &id, sizeof id)), sizeof id);
        ERR(shmctl(id, IPC_STAT, &gone), EINVAL);
    } else if (start.what == 'k' || start.what == 's') {
        KILLED(start.pid, start.what == 'k' ? SIGKILL : SIGSEGV);
    } else {
        EXITS(start.pid, 0);
    }
    close(start.to);
    close(start.from);
}

/* How many starts of the program took the space of an earlier one; -1: not Hayate. */
static long inherited(void) {
    DIR *images = opendir("/proc/hayate/resources/image");
    struct dirent *entry;
    long sum = images ? 0 : -1;
    while (images && (entry = readdir(images)) != NULL) {
        char path[320], text[4096], *line;
        snprintf(path, sizeof path, "/proc/hayate/resources/image/%s", entry->d_name);
        if (get_file(path, text, sizeof text) > 0 && (line = strstr(text, "inherited:")) != NULL)
            sum += atol(line + strlen("inherited:"));
    }
    if (images)
        closedir(images);
    return sum;
}

static bool is_hayate(void) { return access("/proc/hayate/policy", W_OK) == 0; }

static void set_policy(const char *policy) {
    if (!is_hayate())
        return;
    int fd = OK(open("/proc/hayate/policy", O_WRONLY));
    CHECK_EQ(OK(write(fd, policy, strlen(policy))), strlen(policy));
    close(fd);
}

static void make_content(void) {
    static uint64_t content[4 * WORDS];
    for (size_t i = 0; i < 4 * WORDS; i++)
        content[i] = i;
    PUT_BYTES("content", content, sizeof content);
}

static const char ACTS[] = "nwmuarxpltfdvekszgy";

TEST_TIMES(each_start_finds_its_memory_fresh, 4) {
    set_policy("full+image");
    make_content();
    for (int i = 0; i < 5; i++)
        end(begin('n'));
    /* Each pair of acts, one after the other, and each behind itself. */
    for (const char *first = ACTS; *first; first++)
        for (const char *second = ACTS; *second; second++) {
            end(begin(*first));
            end(begin(*second));
        }
    long taken = in_supervisor_mode() ? 1 : inherited();
    set_policy("full");
    if (taken >= 0)
        CHECK(taken > 0);
}

TEST_TIMES(starts_at_once_find_their_memory_fresh, 4) {
    set_policy("full+image");
    make_content();
    unsigned random = 12345;
    struct start starts[6];
    for (int round = 0; round < 60; round++) {
        int count = round < 5 ? 1 : 1 + round % 6;
        for (int i = 0; i < count; i++) {
            random = random * 1103515245 + 12345;
            starts[i] = begin(round < 5 ? 'n' : ACTS[(random >> 16) % (sizeof ACTS - 1)]);
        }
        for (int i = 0; i < count; i++)
            end(starts[i]);
        /* What it was made from is changed, too, while others wait. */
        if (round % 20 == 19)
            make_content();
        if (is_hayate() && round % 15 == 14) {
            int fd = OK(open("/proc/hayate/pools", O_WRONLY));
            OK(write(fd, "drop image", 10));
            close(fd);
        }
    }
    set_policy("full");
}
