/* System V shared memory: identifiers and keys, permissions, attaching, fork, exec and exit, removal,
 * limits and files. */
#define AREA "shm"
#include "harness.h"
#include <sys/ipc.h>
#include <sys/shm.h>

#ifndef SHM_STAT_ANY
#define SHM_STAT_ANY 15
#endif
#ifndef SHM_NORESERVE
#define SHM_NORESERVE 010000
#endif
#ifndef SHM_HUGETLB
#define SHM_HUGETLB 04000
#endif

/* The objects of a case, removed when its process ends (a child that ends by _exit leaves them). */
static int made[64], count_made;
static void remove_all(void) {
    while (count_made > 0)
        shmctl(made[--count_made], IPC_RMID, NULL);
}
static int keep(int id) {
    if (!count_made)
        hy_at_end = remove_all;
    made[count_made++] = id;
    return id;
}
static int make(key_t key, size_t size, int flags) {
    return keep(OK(shmget(key, size, flags)));
}
static int fresh(size_t size) {
    return make(IPC_PRIVATE, size, 0600);
}
/* A key that nobody else has. */
static key_t some_key(int number) {
    return (key_t)(0x40000000 | (getpid() << 6) | number);
}
static struct shmid_ds status(int id) {
    struct shmid_ds s;
    OK(shmctl(id, IPC_STAT, &s));
    return s;
}
static unsigned long attachments(int id) {
    return status(id).shm_nattch;
}
static char *attach(int id) {
    char *p = shmat(id, NULL, 0);
    if (p == (void *)-1)
        FAIL("shmat: %s", strerror(errno));
    return p;
}

TEST(segments_are_found_by_key) {
    key_t key = some_key(1);
    ERR(shmget(key, 100, 0600), ENOENT);
    int id = make(key, 100, IPC_CREAT | 0600);
    CHECK_EQ(OK(shmget(key, 100, 0600)), id);
    CHECK_EQ(OK(shmget(key, 0, 0)), id);
    CHECK_EQ(OK(shmget(key, 50, IPC_CREAT | 0600)), id);
    ERR(shmget(key, 100, IPC_CREAT | IPC_EXCL | 0600), EEXIST);
    ERR(shmget(key, 101, 0600), EINVAL);
    ERR(shmget(key, 101, IPC_CREAT | IPC_EXCL), EEXIST);
    CHECK(fresh(100) != fresh(100));
}

TEST(sizes_that_cannot_be) {
    ERR(shmget(IPC_PRIVATE, 0, 0600), EINVAL);
    ERR(shmget(some_key(1), 0, IPC_CREAT | 0600), EINVAL);
    ERR(shmget(IPC_PRIVATE, SIZE_MAX, 0600), EINVAL);
    ERR(shmget(IPC_PRIVATE, (size_t)1 << 46, 0600), ENOMEM);
    ERR2(shmget(IPC_PRIVATE, 2 << 20, SHM_HUGETLB | 0600), ENOMEM, ENOSPC);
    ERR(shmget(IPC_PRIVATE, 2 << 20, SHM_HUGETLB | 13 << 26 | 0600), EINVAL);
}

TEST(a_status_tells_everything) {
    time_t before = time(NULL);
    key_t key = some_key(1);
    int id = make(key, 5000, IPC_CREAT | 0640);
    struct shmid_ds s = status(id);
    CHECK_EQ(s.shm_segsz, 5000);
    CHECK_EQ(s.shm_nattch, 0);
    CHECK_EQ(s.shm_perm.mode, 0640);
    CHECK_EQ(*(key_t *)&s.shm_perm, key);
    CHECK_EQ(s.shm_perm.uid, geteuid());
    CHECK_EQ(s.shm_perm.cuid, geteuid());
    CHECK_EQ(s.shm_perm.gid, getegid());
    CHECK_EQ(s.shm_perm.cgid, getegid());
    CHECK_EQ(s.shm_cpid, getpid());
    CHECK_EQ(s.shm_lpid, 0);
    CHECK_EQ(s.shm_atime, 0);
    CHECK_EQ(s.shm_dtime, 0);
    CHECK(s.shm_ctime >= before - 1 && s.shm_ctime <= time(NULL) + 1);
    char *p = attach(id);
    s = status(id);
    CHECK_EQ(s.shm_nattch, 1);
    CHECK_EQ(s.shm_lpid, getpid());
    CHECK(s.shm_atime >= before - 1);
    CHECK_EQ(s.shm_dtime, 0);
    OK(shmdt(p));
    s = status(id);
    CHECK_EQ(s.shm_nattch, 0);
    CHECK(s.shm_dtime >= before - 1);
    ERR(shmctl(id, IPC_STAT, BAD), EFAULT);
    ERR(shmctl(id, 99, &s), EINVAL);
    ERR(shmctl(id, -1, &s), EINVAL);
    ERR(shmctl(-1, IPC_STAT, &s), EINVAL);
    ERR(shmctl(0x7fffffff, IPC_STAT, &s), EINVAL);
}

TEST(memory_is_zero_shared_and_stays) {
    int id = fresh(3 * PAGE);
    char *p = attach(id), *q = attach(id);
    CHECK(p != q);
    CHECK_EQ(p[0] | p[3 * PAGE - 1], 0);
    strcpy(p + PAGE, "hello");
    CHECK_STR(q + PAGE, "hello");
    OK(shmdt(p));
    OK(shmdt(q));
    ERR(shmdt(q), EINVAL);
    p = attach(id);
    CHECK_STR(p + PAGE, "hello");
    IN_CHILD({
        CHECK_STR(p + PAGE, "hello");
        strcpy(p, "from the child");
    });
    CHECK_STR(p, "from the child");
}

TEST(attachments_follow_fork_exit_and_exec) {
    int id = fresh(PAGE);
    char *p = attach(id);
    int up[2], down[2];
    OK(pipe(up));
    OK(pipe(down));
    pid_t child = FORK();
    if (child == 0) {
        char c;
        OK(write(up[1], "x", 1));
        OK(read(down[0], &c, 1));
        p[0] = 'c';
        _exit(3);
    }
    char c;
    OK(read(up[0], &c, 1));
    CHECK_EQ(attachments(id), 2);
    CHECK_EQ(status(id).shm_lpid, getpid());
    OK(write(down[1], "x", 1));
    EXITS(child, 3);
    CHECK_EQ(p[0], 'c');
    CHECK_EQ(attachments(id), 1);
    CHECK_EQ(status(id).shm_lpid, child);
    CHECK(status(id).shm_dtime != 0);
    child = FORK();
    if (child == 0) {
        char number[16];
        snprintf(number, sizeof number, "%d", id);
        execl(hy_self, hy_self, "--helper", "counts_one", number, NULL);
        _exit(99);
    }
    EXITS(child, 0);
    CHECK_EQ(attachments(id), 1);
    OK(shmdt(p));
    CHECK_EQ(attachments(id), 0);
}
HELPER(counts_one) {
    int id = atoi(argv[1]);
    CHECK_EQ(attachments(id), 1); /* the parent's: exec gave up its own */
    CHECK_EQ(attach(id)[0], 'c');
    CHECK_EQ(attachments(id), 2);
    return argc == 2 ? 0 : 1;
}

TEST(a_vfork_shares_the_attachment) {
    int id = fresh(PAGE);
    char *volatile p = attach(id);
    pid_t child = vfork();
    if (child == 0) {
        p[0] = attachments(id) == 1 ? 'v' : 'w';
        _exit(0);
    }
    EXITS(child, 0);
    CHECK_EQ(p[0], 'v');
    CHECK_EQ(attachments(id), 1);
}

TEST(removal_waits_for_the_last_detachment) {
    key_t key = some_key(1);
    int id = make(key, PAGE, IPC_CREAT | 0600);
    char *p = attach(id);
    OK(shmctl(id, IPC_RMID, NULL));
    struct shmid_ds s = status(id);
    CHECK_EQ(s.shm_perm.mode, 0600 | 01000 /* SHM_DEST */);
    CHECK_EQ(*(key_t *)&s.shm_perm, IPC_PRIVATE);
    ERR(shmget(key, PAGE, 0600), ENOENT);
    int other = make(key, PAGE, IPC_CREAT | IPC_EXCL | 0600); /* the key is free */
    CHECK(other != id);
    char *q = attach(id); /* its identifier still works */
    OK(shmctl(id, IPC_RMID, NULL));
    q[0] = 'q';
    OK(shmdt(p));
    IN_CHILD(CHECK_EQ(q[0], 'q'));
    CHECK_EQ(attachments(id), 1);
    OK(shmdt(q));
    ERR(shmctl(id, IPC_STAT, &s), EINVAL);
    ERR(shmctl(id, IPC_RMID, NULL), EINVAL);
    ERR(shmat(id, NULL, 0), EINVAL);
    id = fresh(PAGE);
    OK(shmctl(id, IPC_RMID, NULL)); /* nobody has it: it goes at once */
    ERR(shmctl(id, IPC_STAT, &s), EINVAL);
}

TEST(removal_waits_for_a_childs_end) {
    int id = fresh(PAGE);
    char *p = attach(id);
    pid_t child = FORK();
    if (child == 0) {
        pause();
        _exit(0);
    }
    OK(shmctl(id, IPC_RMID, NULL));
    OK(shmdt(p));
    CHECK_EQ(attachments(id), 1);
    OK(kill(child, SIGKILL));
    KILLED(child, SIGKILL);
    struct shmid_ds s;
    ERR(shmctl(id, IPC_STAT, &s), EINVAL);
}

TEST(an_old_identifier_names_nothing) {
    int first = fresh(PAGE);
    OK(shmctl(first, IPC_RMID, NULL));
    for (int i = 0; i < 200; i++) {
        int id = OK(shmget(IPC_PRIVATE, PAGE, 0600));
        CHECK(id != first);
        struct shmid_ds s = status(id);
        CHECK_EQ(s.shm_perm.__seq, id >> 15);
        OK(shmctl(id, IPC_RMID, NULL));
    }
    struct shmid_ds s;
    ERR(shmctl(first, IPC_STAT, &s), EINVAL);
}

TEST(addresses_are_chosen) {
    int id = fresh(2 * PAGE);
    char *room = mmap(NULL, 8 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    OK(munmap(room, 8 * PAGE));
    CHECK(OK(shmat(id, room, 0)) == room);
    ERR(shmat(id, room + PAGE, 0), EINVAL); /* something is there */
    ERR(shmat(id, room + 4 * PAGE + 1, 0), EINVAL);
    CHECK(OK(shmat(id, room + 4 * PAGE + 1, SHM_RND)) == room + 4 * PAGE);
    CHECK_EQ(attachments(id), 2);
    ERR(shmat(id, NULL, SHM_REMAP), EINVAL);
    ERR(shmat(id, (void *)1, SHM_REMAP | SHM_RND), EINVAL);
    ERR(shmat(id, (void *)-PAGE, 0), EINVAL);
    ERR(shmat(id, KERNEL_ADDRESS, 0), ENOMEM);
    ERR(shmat(-1, NULL, 0), EINVAL);
    ERR(shmat(0x7fffffff, NULL, 0), EINVAL);
    room[0] = 'a';
    CHECK(OK(shmat(id, room + PAGE, SHM_REMAP)) == room + PAGE);
    room[PAGE] = 'b'; /* the first page of the segment, twice */
    CHECK_EQ(room[0], 'b');
    CHECK_EQ(attachments(id), 3);
}

TEST(detaching_takes_every_part) {
    int id = fresh(4 * PAGE);
    char *p = attach(id);
    ERR(shmdt(p + PAGE), EINVAL);
    ERR(shmdt(p + 1), EINVAL);
    ERR(shmdt(NULL), EINVAL);
    ERR(shmdt(KERNEL_ADDRESS), EINVAL);
    OK(mprotect(p + PAGE, PAGE, PROT_READ));
    CHECK_EQ(attachments(id), 3); /* each part is one */
    OK(munmap(p + 2 * PAGE, PAGE));
    CHECK_EQ(attachments(id), 3);
    OK(shmdt(p));
    CHECK_EQ(attachments(id), 0);
    unsigned char in_memory;
    ERR(mincore(p, PAGE, &in_memory), ENOMEM);
    ERR(mincore(p + 3 * PAGE, PAGE, &in_memory), ENOMEM);
    p = attach(id);
    OK(munmap(p, PAGE)); /* the first part is gone; the address still names the rest */
    OK(shmdt(p));
    CHECK_EQ(attachments(id), 0);
    p = attach(id);
    OK(munmap(p, 4 * PAGE));
    CHECK_EQ(attachments(id), 0);
    char *other = mmap(NULL, PAGE, PROT_READ, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ERR(shmdt(other), EINVAL);
}

TEST(a_moved_attachment_stays_one) {
    int id = fresh(2 * PAGE);
    char *p = attach(id);
    p[0] = 'm';
    char *room = mmap(NULL, 4 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *q = mremap(p, 2 * PAGE, 2 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, room);
    CHECK(q == room);
    CHECK_EQ(q[0], 'm');
    CHECK_EQ(attachments(id), 1);
    OK(shmdt(q));
    CHECK_EQ(attachments(id), 0);
}

TEST(a_read_only_attachment) {
    needs_user_mode();
    int id = fresh(PAGE);
    char *w = attach(id), *r = shmat(id, NULL, SHM_RDONLY);
    CHECK(r != (void *)-1);
    strcpy(w, "seen");
    CHECK_STR(r, "seen");
    ERR(mprotect(r, PAGE, PROT_READ | PROT_WRITE), EACCES);
    pid_t child = FORK();
    if (child == 0) {
        *(volatile char *)r = 1;
        _exit(0);
    }
    KILLED(child, SIGSEGV);
}

TEST(an_executable_attachment) {
    int id = make(IPC_PRIVATE, PAGE, 0700);
    unsigned char *p = shmat(id, NULL, SHM_EXEC);
    CHECK(p != (void *)-1);
    static const unsigned char code[] = {0xb8, 42, 0, 0, 0, 0xc3}; /* mov $42, %eax; ret */
    memcpy(p, code, sizeof code);
    CHECK_EQ(((int (*)(void))p)(), 42);
    IN_CHILD({
        BECOME(NOBODY, NOBODY);
        ERR(shmat(id, NULL, 0), EACCES);
    });
}

TEST(behind_the_end_is_nothing) {
    int id = fresh(PAGE + 1);
    char *p = attach(id);
    p[2 * PAGE - 1] = 1; /* whole pages */
    char *q = mremap(p, 2 * PAGE, 3 * PAGE, MREMAP_MAYMOVE);
    CHECK(q != MAP_FAILED);
    pid_t child = FORK();
    if (child == 0) {
        *(volatile char *)(q + 2 * PAGE) = 1;
        _exit(0);
    }
    KILLED(child, SIGBUS);
}

TEST(permissions) {
    if (geteuid() != 0)
        SKIP("needs root");
    key_t key = some_key(1);
    int closed = make(key, PAGE, IPC_CREAT | 0600);
    int open = make(IPC_PRIVATE, PAGE, 0604), group = make(IPC_PRIVATE, PAGE, 0640);
    struct shmid_ds s = status(group);
    s.shm_perm.gid = 77;
    OK(shmctl(group, IPC_SET, &s));
    int own = make(IPC_PRIVATE, PAGE, 0);
    s = status(own);
    s.shm_perm.uid = NOBODY;
    s.shm_perm.mode = 0600;
    OK(shmctl(own, IPC_SET, &s));
    ERR(shmctl(own, IPC_SET, BAD), EFAULT);
    IN_CHILD({
        gid_t groups[] = {77};
        OK(syscall(SYS_setgroups, 1, groups));
        OK(syscall(SYS_setresgid, NOBODY, NOBODY, NOBODY));
        OK(syscall(SYS_setresuid, NOBODY, NOBODY, NOBODY));
        struct shmid_ds t;
        ERR(shmat(closed, NULL, 0), EACCES);
        ERR(shmat(closed, NULL, SHM_RDONLY), EACCES);
        ERR(shmctl(closed, IPC_STAT, &t), EACCES);
        ERR(shmctl(closed & 0x7fff, SHM_STAT, &t), EACCES);
        CHECK_EQ(OK(shmctl(closed & 0x7fff, SHM_STAT_ANY, &t)), closed);
        ERR(shmget(key, 0, 0600), EACCES);
        CHECK_EQ(OK(shmget(key, 0, 0)), closed);
        ERR(shmctl(closed, IPC_RMID, NULL), EPERM);
        ERR(shmctl(closed, IPC_SET, &t), EPERM);
        ERR(shmctl(closed, SHM_LOCK, NULL), EPERM);
        CHECK(shmat(open, NULL, SHM_RDONLY) != (void *)-1);
        ERR(shmat(open, NULL, 0), EACCES);
        CHECK(shmat(group, NULL, SHM_RDONLY) != (void *)-1);
        ERR(shmat(group, NULL, 0), EACCES);
        CHECK(shmat(own, NULL, 0) != (void *)-1);
        t = status(own);
        t.shm_perm.mode = 0400;
        OK(shmctl(own, IPC_SET, &t));
        ERR(shmat(own, NULL, 0), EACCES);
        OK(shmctl(own, IPC_RMID, NULL));
    });
}

TEST(locked_segments_count_for_their_user) {
    if (geteuid() != 0)
        SKIP("needs root");
    int id = fresh(16 * PAGE);
    OK(shmctl(id, SHM_LOCK, NULL));
    CHECK_EQ(status(id).shm_perm.mode, 0600 | 02000 /* SHM_LOCKED */);
    OK(shmctl(id, SHM_LOCK, NULL));
    OK(shmctl(id, SHM_UNLOCK, NULL));
    OK(shmctl(id, SHM_UNLOCK, NULL));
    CHECK_EQ(status(id).shm_perm.mode, 0600);
    IN_CHILD({
        struct rlimit limit = {8 * PAGE, 8 * PAGE};
        OK(setrlimit(RLIMIT_MEMLOCK, &limit));
        BECOME(54321, 54321);
        int small = OK(shmget(IPC_PRIVATE, 6 * PAGE, 0600));
        int large = OK(shmget(IPC_PRIVATE, 9 * PAGE, 0600));
        ERR(shmctl(large, SHM_LOCK, NULL), ENOMEM);
        OK(shmctl(small, SHM_LOCK, NULL));
        int third = OK(shmget(IPC_PRIVATE, 3 * PAGE, 0600));
        ERR(shmctl(third, SHM_LOCK, NULL), ENOMEM);
        OK(shmctl(small, IPC_RMID, NULL)); /* what is gone counts no more */
        OK(shmctl(third, SHM_LOCK, NULL));
        limit.rlim_cur = limit.rlim_max = 0;
        OK(setrlimit(RLIMIT_MEMLOCK, &limit));
        OK(shmctl(third, SHM_UNLOCK, NULL));
        ERR(shmctl(third, SHM_LOCK, NULL), EPERM);
        OK(shmctl(third, IPC_RMID, NULL));
        OK(shmctl(large, IPC_RMID, NULL));
    });
}

TEST(what_the_system_has) {
    int id = fresh(5 * PAGE);
    attach(id)[0] = 1;
    struct shminfo limits;
    int highest = OK(shmctl(0, IPC_INFO, (void *)&limits));
    CHECK(highest >= (id & 0x7fff));
    CHECK_EQ(limits.shmmin, 1);
    CHECK_EQ(limits.shmmni, limits.shmseg);
    ERR(shmctl(0, IPC_INFO, BAD), EFAULT);
    struct shm_info info;
    CHECK(OK(shmctl(0, SHM_INFO, (void *)&info)) >= (id & 0x7fff));
    CHECK(info.used_ids >= 1);
    CHECK(info.shm_tot >= 5);
    CHECK(info.shm_rss >= 1);
    ERR(shmctl(0, SHM_INFO, BAD), EFAULT);
    struct shmid_ds s;
    CHECK_EQ(OK(shmctl(id & 0x7fff, SHM_STAT, &s)), id);
    CHECK_EQ(s.shm_segsz, 5 * PAGE);
    ERR(shmctl(0x7ffe, SHM_STAT, &s), EINVAL);
    ERR(shmctl(0x7ffe, SHM_STAT_ANY, &s), EINVAL);
}

static bool shown_in(const char *path, const char *wanted) {
    static char text[1 << 18];
    if (get_file(path, text, sizeof text) < 0)
        FAIL("%s: %s", path, strerror(errno));
    return strstr(text, wanted) != NULL;
}

TEST(files_show_segments) {
    key_t key = some_key(1);
    int id = make(key, 5000, IPC_CREAT | 0640);
    char *p = attach(id);
    p[0] = 1;
    char line[256];
    snprintf(line, sizeof line, "%10d %10d  %4o %21u %5u %5u  %5u %5u %5u %5u %5u ", key, id, 0640,
             5000, getpid(), getpid(), 1, geteuid(), getegid(), geteuid(), getegid());
    CHECK(shown_in("/proc/sysvipc/shm", line));
    CHECK(shown_in("/proc/sysvipc/shm",
                   "       key      shmid perms                  size  cpid  lpid nattch   uid   gid "
                   " cuid  cgid      atime      dtime      ctime                   rss            "
                   "      swap\n"));
    snprintf(line, sizeof line, "%lx-%lx rw-s 00000000 ", (long)p, (long)p + 2 * PAGE);
    CHECK(shown_in("/proc/self/maps", line));
    snprintf(line, sizeof line, " %d ", id);
    CHECK(shown_in("/proc/self/maps", line));
    snprintf(line, sizeof line, " /SYSV%08x (deleted)\n", key);
    CHECK(shown_in("/proc/self/maps", line));
}

#define SYSCTL(name, text) hy_sysctl(__FILE__, __LINE__, "/proc/sys/kernel/" name, text)

TEST(limits_are_kept) {
    if (geteuid() != 0)
        SKIP("needs root");
    SYSCTL("shmmax", "8192");
    ERR(shmget(IPC_PRIVATE, 8193, 0600), EINVAL);
    fresh(8192);
    SYSCTL("shmmax", "18446744073692774399");
    struct shm_info info;
    OK(shmctl(0, SHM_INFO, (void *)&info));
    char text[32];
    snprintf(text, sizeof text, "%lu", info.shm_tot + 4);
    SYSCTL("shmall", text);
    ERR(shmget(IPC_PRIVATE, 5 * PAGE, 0600), ENOSPC);
    int id = fresh(4 * PAGE);
    ERR(shmget(IPC_PRIVATE, 1, 0600), ENOSPC);
    OK(shmctl(id, IPC_RMID, NULL));
    fresh(PAGE);
    OK(shmctl(0, SHM_INFO, (void *)&info));
    snprintf(text, sizeof text, "%d", info.used_ids);
    SYSCTL("shmall", "18446744073692774399");
    SYSCTL("shmmni", text);
    ERR(shmget(IPC_PRIVATE, 1, 0600), ENOSPC);
}

TEST(forced_removal) {
    if (geteuid() != 0)
        SKIP("needs root");
    struct shmid_ds s;
    int *ids = SHARED(PAGE);
    IN_CHILD({
        ids[0] = OK(shmget(IPC_PRIVATE, PAGE, 0600));
        ids[1] = OK(shmget(IPC_PRIVATE, PAGE, 0600));
    });
    char *p = attach(ids[1]);
    CHECK_EQ(attachments(ids[0]), 0); /* it has outlived its maker */
    int own = fresh(PAGE);
    SYSCTL("shm_rmid_forced", "1");
    ERR(shmctl(ids[0], IPC_STAT, &s), EINVAL);
    CHECK_EQ(attachments(ids[1]), 1);
    CHECK_EQ(attachments(own), 0); /* its maker lives */
    OK(shmdt(p));
    ERR(shmctl(ids[1], IPC_STAT, &s), EINVAL);
    IN_CHILD(ids[0] = OK(shmget(IPC_PRIVATE, PAGE, 0600)));
    ERR(shmctl(ids[0], IPC_STAT, &s), EINVAL);
    OK(shmdt(attach(own)));
    ERR(shmctl(own, IPC_STAT, &s), EINVAL);
}

TEST(an_identifier_can_be_wished) {
    if (geteuid() != 0)
        SKIP("needs root");
    int fd = open("/proc/sys/kernel/shm_next_id", O_RDWR);
    if (fd == -1)
        SKIP("no checkpointing");
    int wish = 1234 << 15 | 999;
    char text[16];
    snprintf(text, sizeof text, "%d", wish);
    OK(write(fd, text, strlen(text)));
    CHECK_EQ(fresh(PAGE), wish);
    CHECK(shown_in("/proc/sys/kernel/shm_next_id", "-1"));
}

TEST(a_program_started_again_has_no_segment) {
    /* The same program in the space that the last one left. */
    int id = fresh(PAGE);
    char number[16];
    snprintf(number, sizeof number, "%d", id);
    for (int i = 0; i < 20; i++) {
        pid_t child = FORK();
        if (child == 0) {
            execl(hy_self, hy_self, "--helper", "maps_none", number, NULL);
            _exit(99);
        }
        EXITS(child, 0);
        CHECK_EQ(attachments(id), 0);
        IN_CHILD(attach(id)[0] = 1);
        CHECK_EQ(attachments(id), 0);
    }
}
HELPER(maps_none) {
    CHECK(!shown_in("/proc/self/maps", "SYSV"));
    int id = atoi(argv[1]);
    char *p = attach(id);
    p[0]++;
    mprotect(p, PAGE, PROT_READ);
    CHECK(shown_in("/proc/self/maps", "SYSV"));
    return argc == 2 ? 0 : 1;
}

TEST(threads_attach_at_once) {
    int id = fresh(4 * PAGE);
    int workers[4];
    for (int i = 0; i < 4; i++) {
        workers[i] = FORK();
        if (workers[i] == 0) {
            for (int turn = 0; turn < 300; turn++) {
                char *p = attach(id);
                __atomic_fetch_add((int *)p, 1, __ATOMIC_RELAXED);
                if (turn % 16 == 0) {
                    pid_t child = FORK();
                    if (child == 0)
                        _exit(p[PAGE]);
                    EXITS(child, 0);
                }
                OK(shmdt(p));
            }
            _exit(0);
        }
    }
    for (int i = 0; i < 4; i++)
        EXITS(workers[i], 0);
    CHECK_EQ(attachments(id), 0);
    CHECK_EQ(*(int *)attach(id), 1200);
}

TEST(removal_races_with_attaching) {
    for (int turn = 0; turn < 100; turn++) {
        int id = OK(shmget(IPC_PRIVATE, PAGE, 0600));
        pid_t child = FORK();
        if (child == 0) {
            for (;;) {
                char *p = shmat(id, NULL, 0);
                if (p == (void *)-1) {
                    CHECK(errno == EINVAL || errno == EIDRM);
                    _exit(0);
                }
                p[0] = 1;
                OK(shmdt(p));
            }
        }
        if (turn % 2)
            sched_yield();
        OK(shmctl(id, IPC_RMID, NULL));
        EXITS(child, 0);
        struct shmid_ds s;
        ERR(shmctl(id, IPC_STAT, &s), EINVAL);
    }
}
