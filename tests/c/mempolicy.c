/* Memory policies on a machine of one node: set_mempolicy(2), get_mempolicy(2), mbind(2),
 * set_mempolicy_home_node(2), migrate_pages(2), move_pages(2). */
#define AREA "mempolicy"
#include "harness.h"

#ifndef SYS_set_mempolicy_home_node
#define SYS_set_mempolicy_home_node 450
#endif

enum { DEFAULT, PREFERRED, BIND, INTERLEAVE, LOCAL, PREFERRED_MANY };
enum { STATIC = 1 << 15, RELATIVE = 1 << 14, BALANCING = 1 << 13 };
enum { F_NODE = 1, F_ADDR = 2, F_ALLOWED = 4 };
enum { MF_STRICT = 1, MF_MOVE = 2, MF_MOVE_ALL = 4 };
#define BITS 64

static long set(int mode, const void *nodes, unsigned long count) {
    return syscall(SYS_set_mempolicy, mode, nodes, count);
}
static long get(void *mode, void *nodes, unsigned long count, const void *at, unsigned long flags) {
    return syscall(SYS_get_mempolicy, mode, nodes, count, at, flags);
}
static long mbind(const void *at, size_t length, int mode, const void *nodes, unsigned long count,
                  unsigned flags) {
    return syscall(SYS_mbind, at, length, mode, nodes, count, flags);
}
static long home(const void *at, size_t length, unsigned long node, unsigned long flags) {
    return syscall(SYS_set_mempolicy_home_node, at, length, node, flags);
}
static long migrate(pid_t pid, unsigned long count, const void *from, const void *to) {
    return syscall(SYS_migrate_pages, pid, count, from, to);
}
static long move(pid_t pid, size_t count, void *pages, void *nodes, void *status, int flags) {
    return syscall(SYS_move_pages, pid, count, pages, nodes, status, flags);
}

static const unsigned long one = 1, none = 0, other = 2, both = 3;

/* The policies are those of a machine whose only node is 0. */
static void needs_one_node(void) {
    unsigned long nodes[16] = {0};
    if (get(NULL, nodes, 1024, NULL, F_ALLOWED) == -1 && errno == ENOSYS)
        SKIP("no memory policies");
    if (nodes[0] != 1)
        SKIP("more than one node");
}

/* The policy of the thread (at NULL) or of a mapping is this. */
#define CHECK_POLICY(at, want_mode, want_nodes)                                                    \
    do {                                                                                           \
        int hy_mode = -1;                                                                          \
        unsigned long hy_nodes = ~0UL;                                                             \
        const void *hy_at = (at);                                                                  \
        OK(get(&hy_mode, &hy_nodes, BITS, hy_at, hy_at ? F_ADDR : 0));                             \
        CHECK_EQ(hy_mode, want_mode);                                                              \
        CHECK_EQ(hy_nodes, want_nodes);                                                            \
    } while (0)

static char *map(size_t pages) {
    return OK(mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
}

TEST(a_thread_begins_with_the_default) {
    needs_one_node();
    CHECK_POLICY(NULL, DEFAULT, 0);
    int mode = -1;
    OK(get(&mode, NULL, 0, NULL, 0));
    CHECK_EQ(mode, DEFAULT);
    OK(get(NULL, NULL, 0, NULL, 0));
}

TEST(what_is_set_is_told) {
    needs_one_node();
    int modes[] = {PREFERRED, BIND, INTERLEAVE, PREFERRED_MANY};
    for (unsigned i = 0; i < sizeof modes / sizeof *modes; i++) {
        OK(set(modes[i], &one, BITS));
        CHECK_POLICY(NULL, modes[i], 1);
        /* Nodes that are not there fall away, unless a flag says that they count. */
        OK(set(modes[i], &both, BITS));
        CHECK_POLICY(NULL, modes[i], 1);
        OK(set(modes[i] | STATIC, &both, BITS));
        CHECK_POLICY(NULL, modes[i] | STATIC, 3);
        OK(set(modes[i] | RELATIVE, &other, BITS));
        CHECK_POLICY(NULL, modes[i] | RELATIVE, 2);
    }
    OK(set(LOCAL, NULL, 0));
    CHECK_POLICY(NULL, LOCAL, 0);
    OK(set(PREFERRED, NULL, 0));
    CHECK_POLICY(NULL, LOCAL, 0);
    OK(set(PREFERRED, &none, BITS));
    CHECK_POLICY(NULL, LOCAL, 0);
    OK(set(BIND | BALANCING, &one, BITS));
    CHECK_POLICY(NULL, BIND | BALANCING, 1);
    OK(set(DEFAULT, NULL, 0));
    CHECK_POLICY(NULL, DEFAULT, 0);
    OK(set(DEFAULT, &none, BITS));
    CHECK_POLICY(NULL, DEFAULT, 0);
}

TEST(set_errors) {
    needs_one_node();
    OK(set(BIND, &one, BITS));
    ERR(set(-1, &one, BITS), EINVAL);
    ERR(set(7, &one, BITS), EINVAL);
    ERR(set(99, &one, BITS), EINVAL);
    ERR(set(BIND | 4096, &one, BITS), EINVAL);
    ERR(set(BIND | STATIC | RELATIVE, &one, BITS), EINVAL);
    ERR(set(INTERLEAVE | BALANCING, &one, BITS), EINVAL);
    ERR(set(DEFAULT, &one, BITS), EINVAL);
    ERR(set(LOCAL, &one, BITS), EINVAL);
    ERR(set(LOCAL | STATIC, NULL, 0), EINVAL);
    ERR(set(PREFERRED | STATIC, NULL, 0), EINVAL);
    int modes[] = {BIND, INTERLEAVE, PREFERRED_MANY};
    for (int i = 0; i < 3; i++) {
        ERR(set(modes[i], NULL, 0), EINVAL);
        ERR(set(modes[i], &none, BITS), EINVAL);
        ERR(set(modes[i], &other, BITS), EINVAL);
        ERR(set(modes[i] | STATIC, &other, BITS), EINVAL);
    }
    ERR(set(PREFERRED, &other, BITS), EINVAL);
    ERR(set(BIND, BAD, BITS), EFAULT);
    ERR(set(BIND, KERNEL_ADDRESS, BITS), EFAULT);
    ERR(set(BIND, &one, 0), EINVAL);
    ERR(set(BIND, &one, PAGE * 8 + 2), EINVAL);
    ERR(set(99, BAD, BITS), EINVAL);
    CHECK_POLICY(NULL, BIND, 1);
}

TEST(masks_are_as_long_as_they_are) {
    needs_one_node();
    static unsigned long mask[PAGE / 8 + 1];
    mask[0] = 1;
    OK(set(BIND, mask, PAGE * 8 + 1));
    /* A count is one more than the bits that count. */
    OK(set(BIND, mask, 2));
    ERR(set(BIND, mask, 1), EINVAL);
    mask[0] = 3;
    OK(set(BIND | STATIC, mask, 2));
    CHECK_POLICY(NULL, BIND | STATIC, 1);
    mask[0] = 1;
    mask[PAGE / 8 - 1] = 1UL << 63;
    ERR(set(BIND, mask, PAGE * 8 + 1), EINVAL);
    OK(set(BIND, mask, 1025));
    /* All of a long one is read. */
    unsigned long *end = (unsigned long *)(map(2) + PAGE);
    OK(munmap(end, PAGE));
    end[-1] = 1;
    OK(set(BIND, end - 1, 65));
    ERR(set(BIND, end - 1, PAGE * 8), EFAULT);
}

TEST(get_errors) {
    needs_one_node();
    int mode;
    unsigned long nodes[2];
    char *at = map(1);
    ERR(get(&mode, nodes, BITS, NULL, 8), EINVAL);
    ERR(get(&mode, nodes, BITS, at, 0), EINVAL);
    ERR(get(&mode, nodes, 0, NULL, 0), EINVAL);
    ERR(get(&mode, nodes, BITS, NULL, F_ALLOWED | F_NODE), EINVAL);
    ERR(get(&mode, nodes, BITS, at, F_ALLOWED | F_ADDR), EINVAL);
    ERR(get(&mode, nodes, BITS, NULL, F_NODE), EINVAL);
    ERR(get(&mode, nodes, BITS, BAD, F_ADDR), EFAULT);
    ERR(get(&mode, nodes, BITS, NULL, F_ADDR), EFAULT);
    ERR(get(&mode, nodes, BITS, BAD, F_ADDR | F_NODE), EFAULT);
    ERR(get(BAD, nodes, BITS, NULL, 0), EFAULT);
    ERR(get(&mode, BAD, BITS, NULL, 0), EFAULT);
    ERR(get(&mode, KERNEL_ADDRESS, BITS, NULL, 0), EFAULT);
    ERR(get(&mode, nodes, PAGE * 8 + 66, NULL, 0), EINVAL);
}

TEST(what_is_told_fills_the_mask) {
    needs_one_node();
    unsigned long nodes[4] = {~0UL, ~0UL, ~0UL, ~0UL};
    OK(set(BIND, &one, BITS));
    OK(get(NULL, nodes, 1, NULL, 0)); /* no bits: nothing is written */
    CHECK_EQ(nodes[0], ~0UL);
    OK(get(NULL, nodes, ~0UL, NULL, 0)); /* the number of bytes wraps to zero */
    CHECK_EQ(nodes[0], ~0UL);
    OK(get(NULL, nodes, 2, NULL, 0));
    CHECK_EQ(nodes[0], 1);
    CHECK_EQ(nodes[1], ~0UL);
    OK(get(NULL, nodes, 64 * 3 + 1, NULL, 0));
    CHECK_EQ(nodes[0], 1);
    CHECK_EQ(nodes[1] | nodes[2], 0);
    CHECK_EQ(nodes[3], ~0UL);
    OK(get(NULL, nodes, BITS, NULL, F_ALLOWED));
    CHECK_EQ(nodes[0], 1);
}

TEST(the_next_node_in_turn_is_told) {
    needs_one_node();
    int node = -1;
    OK(set(INTERLEAVE, &one, BITS));
    OK(get(&node, NULL, 0, NULL, F_NODE));
    CHECK_EQ(node, 0);
    char *at = map(1);
    node = -1;
    OK(get(&node, NULL, 0, at + 100, F_NODE | F_ADDR));
    CHECK_EQ(node, 0);
    unsigned char there = 0;
    OK(mincore(at, PAGE, &there));
    CHECK(there & 1);
    char *closed = map(1);
    OK(mprotect(closed, PAGE, PROT_NONE));
    ERR(get(&node, NULL, 0, closed, F_NODE | F_ADDR), EFAULT);
}

HELPER(tells) {
    int mode = -1;
    return get(&mode, NULL, 0, NULL, 0) == 0 ? mode : 99;
}

static void *in_thread(void *arg UNUSED) {
    CHECK_POLICY(NULL, BIND, 1);
    OK(set(LOCAL, NULL, 0));
    return NULL;
}

TEST(threads_and_processes_inherit_and_exec_keeps) {
    needs_one_node();
    OK(set(BIND, &one, BITS));
    IN_CHILD(CHECK_POLICY(NULL, BIND, 1); OK(set(INTERLEAVE, &one, BITS)));
    pthread_t thread;
    ZERO(pthread_create(&thread, NULL, in_thread, NULL));
    ZERO(pthread_join(thread, NULL));
    CHECK_POLICY(NULL, BIND, 1);
    pid_t pid = FORK();
    if (pid == 0) {
        execl(hy_self, hy_self, "--helper", "tells", (char *)NULL);
        FAIL("exec: %s", strerror(errno));
    }
    EXITS(pid, BIND);
    OK(set(DEFAULT, NULL, 0));
    IN_CHILD(CHECK_POLICY(NULL, DEFAULT, 0));
}

TEST(a_mapping_has_its_own) {
    needs_one_node();
    char *at = map(8);
    OK(set(INTERLEAVE, &one, BITS));
    CHECK_POLICY(at, DEFAULT, 0); /* that of the thread does not count */
    OK(mbind(at + 2 * PAGE, 3 * PAGE, BIND, &one, BITS, 0));
    CHECK_POLICY(at + 2 * PAGE - 1, DEFAULT, 0);
    CHECK_POLICY(at + 2 * PAGE, BIND, 1);
    CHECK_POLICY(at + 5 * PAGE - 1, BIND, 1);
    CHECK_POLICY(at + 5 * PAGE, DEFAULT, 0);
    OK(mbind(at + 3 * PAGE, 1, PREFERRED | STATIC, &both, BITS, 0));
    CHECK_POLICY(at + 3 * PAGE, PREFERRED | STATIC, 3);
    CHECK_POLICY(at + 4 * PAGE, BIND, 1);
    CHECK_POLICY(NULL, INTERLEAVE, 1);
    /* The child of a fork has it, what is mapped anew has not. */
    IN_CHILD({
        CHECK_POLICY(at + 4 * PAGE, BIND, 1);
        OK(mbind(at, 8 * PAGE, LOCAL, NULL, 0, 0));
        CHECK_POLICY(at + 7 * PAGE, LOCAL, 0);
    });
    CHECK_POLICY(at + 7 * PAGE, DEFAULT, 0);
    CHECK_EQ((long)OK(mmap(at + 4 * PAGE, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED,
                           -1, 0)),
             (long)(at + 4 * PAGE));
    CHECK_POLICY(at + 4 * PAGE, DEFAULT, 0);
    /* It goes along when it moves. */
    char *moved = OK(mremap(at + 2 * PAGE, PAGE, 2 * PAGE, MREMAP_MAYMOVE));
    CHECK_POLICY(moved, BIND, 1);
    CHECK_POLICY(moved + PAGE, BIND, 1);
    OK(mbind(moved, 2 * PAGE, DEFAULT, NULL, 0, 0));
    CHECK_POLICY(moved, DEFAULT, 0);
}

TEST(a_program_does_not_find_the_policies_of_the_last_one) {
    needs_one_node();
    static char own[16 * 4096] __attribute__((aligned(4096)));
    for (int i = 0; i < 4; i++)
        IN_CHILD({
            char *at = map(4);
            CHECK_POLICY(at, DEFAULT, 0);
            CHECK_POLICY(own, DEFAULT, 0);
            CHECK_POLICY(&i, DEFAULT, 0);
            OK(mbind(at, 4 * PAGE, INTERLEAVE, &one, BITS, 0));
            OK(mbind(own, sizeof own, BIND, &one, BITS, 0));
            OK(mbind((void *)((uintptr_t)&i & ~(PAGE - 1)), PAGE, BIND, &one, BITS, 0));
        });
}

TEST(mbind_errors) {
    needs_one_node();
    char *at = map(4);
    OK(munmap(at + 2 * PAGE, PAGE));
    ERR(mbind(at, PAGE, 99, &one, BITS, 0), EINVAL);
    ERR(mbind(at, PAGE, BIND | STATIC | RELATIVE, &one, BITS, 0), EINVAL);
    ERR(mbind(at, PAGE, BIND, BAD, BITS, 0), EFAULT);
    ERR(mbind(at, PAGE, BIND, &one, BITS, 8), EINVAL);
    ERR(mbind(at, PAGE, BIND, &one, BITS, 0x80), EINVAL);
    ERR(mbind(at + 1, PAGE, BIND, &one, BITS, 0), EINVAL);
    ERR(mbind(at, SIZE_MAX - PAGE, BIND, &one, BITS, 0), EINVAL);
    ERR(mbind(at, PAGE, BIND, &none, BITS, 0), EINVAL);
    ERR(mbind(at, PAGE, BIND, &other, BITS, 0), EINVAL);
    ERR(mbind(at, PAGE, DEFAULT, &one, BITS, 0), EINVAL);
    ERR(mbind(at, PAGE, LOCAL, &one, BITS, 0), EINVAL);
    ERR(mbind(at, 4 * PAGE, BIND, &one, BITS, 0), EFAULT);
    ERR(mbind(at + PAGE, 2 * PAGE, BIND, &one, BITS, 0), EFAULT);
    ERR(mbind(at + 2 * PAGE, PAGE, BIND, &one, BITS, 0), EFAULT);
    ERR(mbind(at + 2 * PAGE, 2 * PAGE, BIND, &one, BITS, 0), EFAULT);
    CHECK_POLICY(at, DEFAULT, 0);
    OK(mbind(at, 0, BIND, &one, BITS, 0));
    CHECK_POLICY(at, DEFAULT, 0);
    if (geteuid() == 0) {
        OK(mbind(at, PAGE, BIND, &one, BITS, MF_MOVE_ALL));
        IN_CHILD({
            BECOME(NOBODY, NOBODY);
            ERR(mbind(at, PAGE, BIND, &one, BITS, MF_MOVE_ALL), EPERM);
            OK(mbind(at, PAGE, BIND, &one, BITS, MF_MOVE | MF_STRICT));
        });
    }
}

TEST(strict_policies_want_the_pages_where_they_are) {
    needs_one_node();
    char *at = map(4);
    /* The mask of the local node is empty: a page that is there is on none of its nodes. */
    OK(mbind(at, 4 * PAGE, LOCAL, NULL, 0, MF_STRICT));
    at[PAGE] = 1;
    OK(mbind(at, 4 * PAGE, BIND, &one, BITS, MF_STRICT));
    ERR(mbind(at, 4 * PAGE, LOCAL, NULL, 0, MF_STRICT), EIO);
    CHECK_POLICY(at, BIND, 1);
    OK(mbind(at + 2 * PAGE, 2 * PAGE, LOCAL, NULL, 0, MF_STRICT));
    OK(mbind(at, 4 * PAGE, DEFAULT, NULL, 0, MF_STRICT));
    OK(mbind(at, 4 * PAGE, LOCAL, NULL, 0, MF_MOVE));
    CHECK_EQ(at[PAGE], 1);
}

TEST(a_policy_may_begin_at_a_node) {
    needs_one_node();
    char *at = map(6);
    ERR(home(at + 1, PAGE, 0, 0), EINVAL);
    ERR(home(at, PAGE, 0, 1), EINVAL);
    ERR(home(at, PAGE, 1, 0), EINVAL);
    ERR(home(at, PAGE, 1 << 20, 0), EINVAL);
    ERR(home(at, SIZE_MAX - PAGE, 0, 0), EINVAL);
    OK(home(at, 0, 0, 0));
    ERR(home(at, PAGE, 0, 0), ENOENT);
    OK(mbind(at + PAGE, PAGE, BIND, &one, BITS, 0));
    OK(mbind(at + 2 * PAGE, PAGE, PREFERRED_MANY | STATIC, &both, BITS, 0));
    OK(mbind(at + 3 * PAGE, PAGE, INTERLEAVE, &one, BITS, 0));
    OK(home(at, 3 * PAGE, 0, 0));
    ERR(home(at, 4 * PAGE, 0, 0), EOPNOTSUPP);
    ERR(home(at + 3 * PAGE, PAGE, 0, 0), EOPNOTSUPP);
    CHECK_POLICY(at + PAGE, BIND, 1);
    CHECK_POLICY(at + 2 * PAGE, PREFERRED_MANY | STATIC, 3);
}

TEST(pages_are_on_the_node) {
    needs_one_node();
    int file = OK(open("file", O_RDWR | O_CREAT, 0600));
    OK(ftruncate(file, 2 * (off_t)PAGE));
    char *at = map(2), *mapped = OK(mmap(NULL, 2 * PAGE, PROT_READ, MAP_SHARED, file, 0));
    at[0] = mapped[0];
    at[1] = 1;
    void *pages[] = {at, at + 100, at + PAGE, mapped, BAD, NULL};
    int status[6], nodes[6] = {0};
    for (int moves = 0; moves < 2; moves++) {
        memset(status, 0x55, sizeof status);
        OK(move(0, 6, pages, moves ? nodes : NULL, status, moves ? MF_MOVE : 0));
        CHECK_EQ(status[0], 0);
        CHECK_EQ(status[1], 0);
        /* Never touched: EFAULT in 6.1, ENOENT in later ones. */
        CHECK(status[2] == -EFAULT || status[2] == -ENOENT);
        CHECK_EQ(status[3], 0);
        CHECK_EQ(status[4], -EFAULT);
        CHECK_EQ(status[5], -EFAULT);
    }
    CHECK_EQ(at[1], 1);
    OK(move(getpid(), 0, NULL, NULL, NULL, 0));
}

TEST(move_errors) {
    needs_one_node();
    char *at = map(1);
    at[0] = 1;
    void *pages[] = {at};
    int status[] = {0}, nodes[] = {0}, wrong[] = {1}, negative[] = {-1}, far[] = {1 << 20};
    ERR(move(0, 1, pages, nodes, status, MF_STRICT), EINVAL);
    ERR(move(0, 1, pages, nodes, status, 8), EINVAL);
    ERR(move(0, 1, BAD, NULL, status, 0), EFAULT);
    ERR(move(0, 1, pages, NULL, BAD, 0), EFAULT);
    ERR(move(0, 1, pages, BAD, status, MF_MOVE), EFAULT);
    ERR(move(0, 1, pages, wrong, status, MF_MOVE), ENODEV);
    ERR(move(0, 1, pages, negative, status, MF_MOVE), ENODEV);
    ERR(move(0, 1, pages, far, status, MF_MOVE), ENODEV);
    ERR(move(INT_MAX, 1, pages, nodes, status, MF_MOVE), ESRCH);
    ERR(move(-1, 1, pages, nodes, status, MF_MOVE), ESRCH);
    if (geteuid() != 0)
        SKIP("not root");
    OK(move(0, 1, pages, nodes, status, MF_MOVE_ALL));
    pid_t self = getpid();
    IN_CHILD({
        BECOME(NOBODY, NOBODY);
        ERR(move(0, 1, pages, nodes, status, MF_MOVE_ALL), EPERM);
        ERR(move(self, 1, pages, nodes, status, MF_MOVE), EPERM);
        OK(move(0, 1, pages, nodes, status, MF_MOVE));
    });
}

TEST(pages_of_another_process) {
    needs_one_node();
    char *at = map(1);
    at[0] = 1;
    GATE(ready);
    pid_t pid = FORK();
    if (pid == 0) {
        OK(munmap(at, PAGE));
        gate_open_and_rest(&ready);
    }
    gate_pass(&ready);
    void *pages[] = {at};
    int status = 1;
    OK(move(pid, 1, pages, NULL, &status, 0));
    CHECK_EQ(status, -EFAULT);
    CHECK_EQ(OK(migrate(pid, BITS, &one, &one)), 0);
    OK(kill(pid, SIGKILL));
    KILLED(pid, SIGKILL);
}

TEST(migrate_has_nothing_to_do) {
    needs_one_node();
    CHECK_EQ(OK(migrate(0, BITS, &one, &one)), 0);
    CHECK_EQ(OK(migrate(getpid(), BITS, &none, &one)), 0);
    CHECK_EQ(OK(migrate(0, BITS, NULL, &one)), 0);
    ERR(migrate(0, BITS, &one, &none), EINVAL);
    ERR(migrate(0, BITS, &one, NULL), EINVAL);
    ERR(migrate(0, 0, &one, &one), EINVAL);
    ERR(migrate(0, BITS, BAD, &one), EFAULT);
    ERR(migrate(0, BITS, &one, BAD), EFAULT);
    ERR(migrate(INT_MAX, BITS, &one, &one), ESRCH);
    ERR(migrate(INT_MAX, BITS, &one, &none), ESRCH);
    ERR(migrate(-1, BITS, &one, &one), ESRCH);
    if (geteuid() != 0)
        SKIP("not root");
    CHECK_EQ(OK(migrate(0, BITS, &one, &both)), 0);
    ERR(migrate(0, BITS, &one, &other), EINVAL);
    pid_t self = getpid();
    IN_CHILD({
        BECOME(NOBODY, NOBODY);
        ERR(migrate(self, BITS, &one, &one), EPERM);
        ERR(migrate(0, BITS, &one, &both), EPERM);
        CHECK_EQ(OK(migrate(0, BITS, &one, &one)), 0);
    });
}
