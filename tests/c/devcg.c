/* Programs of bpf(2) that say which devices the members of a control group may use
 * (BPF_PROG_TYPE_CGROUP_DEVICE; cgroups(7), "Device controller"). */
#define AREA "devcg"
#include "groups.h"
#include <linux/bpf.h>
#include <sys/prctl.h>
#include <sys/sysmacros.h>

#define MULTI BPF_F_ALLOW_MULTI
#define OVERRIDE BPF_F_ALLOW_OVERRIDE

static int bpf_(int command, union bpf_attr *attr, size_t size) {
    return (int)syscall(SYS_bpf, command, attr, size);
}

static int load(const struct bpf_insn *insns, uint32_t count) {
    union bpf_attr attr = {.prog_type = BPF_PROG_TYPE_CGROUP_DEVICE,
                           .insn_cnt = count,
                           .insns = (uintptr_t)insns,
                           .license = (uintptr_t) "GPL"};
    return bpf_(BPF_PROG_LOAD, &attr, sizeof attr);
}
#define LOAD(...)                                                                                  \
    ({                                                                                             \
        const struct bpf_insn insns_[] = {__VA_ARGS__};                                            \
        load(insns_, sizeof insns_ / sizeof *insns_);                                              \
    })

#define I(code_, dst, src, off_, imm_)                                                             \
    (struct bpf_insn) { .code = code_, .dst_reg = dst, .src_reg = src, .off = off_, .imm = imm_ }
#define SET(reg, n) I(0xb7, reg, 0, 0, n)
#define WORD(reg, at) I(0x61, reg, 1, at, 0)
#define EXIT I(0x95, 0, 0, 0, 0)

/* A program that says `within` for accesses of a character device that are all in `how`, and
 * `else_` for others. */
static int rule(uint32_t major_, uint32_t minor_, int how, int within, int else_) {
    return LOAD(WORD(2, 0), I(0x54, 2, 0, 0, 0xffff), WORD(3, 0), I(0x74, 3, 0, 0, 16), WORD(4, 4),
                WORD(5, 8), I(0x55, 2, 0, 7, BPF_DEVCG_DEV_CHAR), I(0xbc, 1, 3, 0, 0),
                I(0x54, 1, 0, 0, how), I(0x5d, 1, 3, 4, 0), I(0x55, 4, 0, 3, (int)major_),
                I(0x55, 5, 0, 2, (int)minor_), SET(0, within), EXIT, SET(0, else_), EXIT);
}

static int attach_in(int group, int program, uint32_t flags, int replaced) {
    union bpf_attr attr = {.target_fd = (uint32_t)group,
                           .attach_bpf_fd = (uint32_t)program,
                           .attach_type = BPF_CGROUP_DEVICE,
                           .attach_flags = flags,
                           .replace_bpf_fd = (uint32_t)replaced};
    return bpf_(BPF_PROG_ATTACH, &attr, sizeof attr);
}
static int attach(int group, int program, uint32_t flags) {
    return attach_in(group, program, flags, 0);
}
static int detach(int group, int program) {
    union bpf_attr attr = {.target_fd = (uint32_t)group,
                           .attach_bpf_fd = (uint32_t)program,
                           .attach_type = BPF_CGROUP_DEVICE};
    return bpf_(BPF_PROG_DETACH, &attr, sizeof attr);
}

static uint32_t number_of(int program) {
    struct bpf_prog_info info = {0};
    union bpf_attr attr = {
        .info = {.bpf_fd = (uint32_t)program, .info_len = sizeof info, .info = (uintptr_t)&info}};
    OK(bpf_(BPF_OBJ_GET_INFO_BY_FD, &attr, sizeof attr));
    CHECK_EQ(info.type, BPF_PROG_TYPE_CGROUP_DEVICE);
    CHECK(info.id > 0);
    return info.id;
}

/* Asks for the programs of a group; returns how many there are. */
static int query(int group, uint32_t flags, uint32_t *numbers, uint32_t room, int error) {
    union bpf_attr attr = {.query = {.target_fd = (uint32_t)group,
                                     .attach_type = BPF_CGROUP_DEVICE,
                                     .query_flags = flags,
                                     .prog_ids = (uintptr_t)numbers,
                                     .prog_cnt = room}};
    if (error)
        ERR(bpf_(BPF_PROG_QUERY, &attr, sizeof attr), error);
    else
        OK(bpf_(BPF_PROG_QUERY, &attr, sizeof attr));
    return (int)attr.query.prog_cnt;
}

static int group(const char *name) {
    OK(mkdir(path_of(name, NULL), 0755));
    return OK(open(path_of(name, NULL), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
}

static void enter(const char *name) { OK(move_to(name, getpid())); }

static void begin_with_programs(void) {
    begin();
    int program = LOAD(SET(0, 1), EXIT);
    if (program < 0 && (errno == EPERM || errno == ENOSYS || errno == EINVAL))
        SKIP("no such programs here: %s", strerror(errno));
    OK(program);
    OK(close(program));
}

/* In a member of a group: whether a device is opened with these flags. */
static int opening(const char *name, const char *path, int flags) {
    int *result = SHARED(sizeof *result);
    pid_t child = FORK();
    if (child == 0) {
        enter(name);
        int fd = open(path, flags | O_NOCTTY);
        *result = fd < 0 ? errno : 0;
        exit(0);
    }
    EXITS(child, 0);
    return *result;
}

TEST(programs_are_checked) {
    begin_with_programs();
    OK(LOAD(SET(0, 0), EXIT));
    OK(LOAD(WORD(0, 4), I(0x57, 0, 0, 0, 1), EXIT));
    OK(LOAD(I(0x18, 2, 0, 0, 5), I(0, 0, 0, 0, 0), SET(0, 1), EXIT));
    ERR(LOAD(EXIT), EACCES);                                   /* r0 is not set */
    ERR(LOAD(SET(0, 2), EXIT), EINVAL);                        /* neither yes nor no */
    ERR(LOAD(SET(0, 1)), EINVAL);                              /* no end */
    ERR(LOAD(SET(0, 1), EXIT, EXIT), EINVAL);                  /* not reached */
    ERR(LOAD(SET(0, 1), I(0x05, 0, 0, 5, 0), EXIT), EINVAL);   /* out of it */
    ERR(LOAD(SET(0, 1), I(0x05, 0, 0, -1, 0), EXIT), EINVAL);  /* for ever */
    ERR(LOAD(WORD(0, 12), SET(0, 1), EXIT), EACCES);           /* beside the context */
    ERR(LOAD(I(0x79, 0, 1, 0, 0), SET(0, 1), EXIT), EACCES);   /* two words */
    ERR2(LOAD(I(0x62, 1, 0, 0, 1), SET(0, 1), EXIT), EACCES, EINVAL); /* a store */
    ERR(LOAD(SET(0, 1), I(0x37, 0, 0, 0, 0), EXIT), EINVAL);   /* by zero */
    ERR(LOAD(SET(0, 1), I(0xff, 0, 0, 0, 0), EXIT), EINVAL);   /* no instruction */
    /* One about packets, as libraries try, is none about devices. */
    struct bpf_insn any[] = {SET(0, 0), EXIT};
    union bpf_attr packets = {.prog_type = BPF_PROG_TYPE_CGROUP_SKB,
                              .insn_cnt = 2,
                              .insns = (uintptr_t)any,
                              .license = (uintptr_t) "MIT"};
    int other = OK(bpf_(BPF_PROG_LOAD, &packets, sizeof packets));
    ERR(attach(group("a"), other, 0), EINVAL);
    ERR(load((void *)BAD, 2), EFAULT);
    struct bpf_insn one = EXIT;
    ERR(load(&one, 0), E2BIG);
    union bpf_attr attr = {.prog_type = 9999, .insn_cnt = 1, .insns = (uintptr_t)&one};
    attr.license = (uintptr_t) "GPL";
    ERR(bpf_(BPF_PROG_LOAD, &attr, sizeof attr), EINVAL);
    ERR(bpf_(9999, &attr, sizeof attr), EINVAL);
    ERR(bpf_(BPF_PROG_LOAD, (void *)BAD, sizeof attr), EFAULT);
    ERR(bpf_(BPF_PROG_LOAD, &attr, 5000), E2BIG);
    BECOME(NOBODY, NOBODY);
    ERR(LOAD(SET(0, 1), EXIT), EPERM);
}

TEST(members_may_use_what_a_program_allows) {
    begin_with_programs();
    int a = group("a");
    CHECK_EQ(opening("a", "/dev/null", O_RDWR), 0);
    int program = OK(rule(1, 3, BPF_DEVCG_ACC_READ, 1, 0)); /* /dev/null, reading */
    OK(attach(a, program, 0));
    OK(close(program)); /* the group has it */
    CHECK_EQ(opening("a", "/dev/null", O_RDONLY), 0);
    CHECK_EQ(opening("a", "/dev/null", O_WRONLY), EPERM);
    CHECK_EQ(opening("a", "/dev/null", O_RDWR), EPERM);
    CHECK_EQ(opening("a", "/dev/zero", O_RDONLY), EPERM);
    CHECK_EQ(opening("a", "/dev/zero", O_PATH), 0);
    CHECK_EQ(opening("a", "/etc/passwd", O_RDONLY), 0);
    OK(close(open("/dev/zero", O_RDWR))); /* others do not ask */
    IN_CHILD({
        enter("a");
        OK(access("/dev/null", R_OK));
        ERR(access("/dev/null", W_OK), EPERM);
        ERR(mknod("null", S_IFCHR | 0666, makedev(1, 3)), EPERM);
        ERR(mknod("disk", S_IFBLK | 0666, makedev(8, 0)), EPERM);
        OK(mknod("fifo", S_IFIFO | 0666, 0));
    });
    OK(detach(a, 0));
    CHECK_EQ(opening("a", "/dev/null", O_RDWR), 0);
    ERR(detach(a, 0), ENOENT);
}

TEST(nodes_are_made_where_it_is_allowed) {
    begin_with_programs();
    int a = group("a");
    OK(attach(a, OK(rule(1, 7, BPF_DEVCG_ACC_MKNOD, 1, 0)), 0));
    IN_CHILD({
        enter("a");
        OK(mknod("full", S_IFCHR | 0666, makedev(1, 7)));
        ERR(open("full", O_RDONLY), EPERM);
        ERR(mknod("null", S_IFCHR | 0666, makedev(1, 3)), EPERM);
        OK(mknod("whiteout", S_IFCHR, makedev(0, 0)));
    });
}

TEST(all_of_several_must_allow) {
    begin_with_programs();
    int a = group("a"), b = group("a/b");
    int null = OK(rule(1, 3, 7, 0, 1)), zero = OK(rule(1, 5, 7, 0, 1));
    OK(attach(a, null, MULTI));
    ERR(attach(a, null, MULTI), EINVAL); /* again */
    CHECK_EQ(opening("a/b", "/dev/null", O_RDONLY), EPERM);
    OK(attach(b, zero, MULTI));
    CHECK_EQ(opening("a/b", "/dev/null", O_RDONLY), EPERM);
    CHECK_EQ(opening("a/b", "/dev/zero", O_RDONLY), EPERM);
    CHECK_EQ(opening("a", "/dev/zero", O_RDONLY), 0);
    CHECK_EQ(opening("a/b", "/dev/full", O_RDONLY), 0);
    ERR(detach(a, 0), EINVAL);    /* which one */
    ERR(detach(a, zero), ENOENT); /* another one's */
    OK(detach(a, null));
    CHECK_EQ(opening("a/b", "/dev/null", O_RDONLY), 0);
}

TEST(one_is_replaced) {
    begin_with_programs();
    int a = group("a");
    int null = OK(rule(1, 3, 7, 0, 1)), zero = OK(rule(1, 5, 7, 0, 1));
    OK(attach(a, null, 0));
    OK(attach(a, zero, 0));
    CHECK_EQ(opening("a", "/dev/null", O_RDONLY), 0);
    CHECK_EQ(opening("a", "/dev/zero", O_RDONLY), EPERM);
    OK(detach(a, zero));
    OK(attach(a, null, MULTI));
    ERR(attach_in(a, zero, BPF_F_REPLACE, null), EINVAL);
    ERR(attach_in(a, zero, MULTI | BPF_F_REPLACE, zero), ENOENT);
    OK(attach_in(a, zero, MULTI | BPF_F_REPLACE, null));
    CHECK_EQ(opening("a", "/dev/null", O_RDONLY), 0);
    CHECK_EQ(opening("a", "/dev/zero", O_RDONLY), EPERM);
    int other = OK(open("/dev/null", O_RDONLY));
    ERR(attach_in(other, zero, MULTI | BPF_F_REPLACE, null), EBADF);
    ERR(attach_in(a, null, MULTI | BPF_F_REPLACE, other), EINVAL);
}

TEST(groups_below_may_be_kept_from_having_their_own) {
    begin_with_programs();
    int a = group("a"), b = group("a/b"), c = group("a/b/c");
    int null = OK(rule(1, 3, 7, 0, 1)), zero = OK(rule(1, 5, 7, 0, 1));
    OK(attach(a, null, 0));
    ERR(attach(b, zero, 0), EPERM);
    ERR(attach(c, zero, MULTI), EPERM);
    OK(detach(a, null));
    OK(attach(a, null, OVERRIDE));
    ERR(attach(a, null, MULTI), EPERM); /* of another kind */
    ERR(attach(a, null, MULTI | OVERRIDE), EINVAL);
    OK(attach(b, zero, OVERRIDE));
    CHECK_EQ(opening("a/b/c", "/dev/null", O_RDONLY), 0); /* instead of that above */
    CHECK_EQ(opening("a/b/c", "/dev/zero", O_RDONLY), EPERM);
    CHECK_EQ(opening("a", "/dev/null", O_RDONLY), EPERM);
}

TEST(programs_are_listed) {
    begin_with_programs();
    int a = group("a"), b = group("a/b");
    int one = OK(rule(1, 3, 7, 0, 1)), two = OK(rule(1, 5, 7, 0, 1));
    int three = OK(rule(1, 7, 7, 0, 1));
    uint32_t numbers[8] = {0};
    CHECK_EQ(query(a, 0, numbers, 8, 0), 0);
    OK(attach(a, one, MULTI));
    OK(attach(a, two, MULTI));
    OK(attach(b, three, MULTI));
    CHECK_EQ(query(a, 0, numbers, 8, 0), 2);
    CHECK_EQ(numbers[0], number_of(one));
    CHECK_EQ(numbers[1], number_of(two));
    CHECK_EQ(query(a, 0, NULL, 0, 0), 2);
    CHECK_EQ(query(a, 0, numbers, 1, ENOSPC), 2);
    CHECK_EQ(query(b, 0, numbers, 8, 0), 1);
    CHECK_EQ(numbers[0], number_of(three));
    CHECK_EQ(query(b, BPF_F_QUERY_EFFECTIVE, numbers, 8, 0), 3);
    query(OK(open("/", O_RDONLY)), 0, numbers, 8, EBADF);
    /* By number, as others find them. */
    union bpf_attr attr = {.prog_id = number_of(two)};
    int again = OK(bpf_(BPF_PROG_GET_FD_BY_ID, &attr, sizeof attr));
    CHECK_EQ(number_of(again), number_of(two));
    OK(detach(a, again));
    CHECK_EQ(query(a, 0, numbers, 8, 0), 1);
    attr = (union bpf_attr){.start_id = number_of(one) - 1};
    OK(bpf_(BPF_PROG_GET_NEXT_ID, &attr, sizeof attr));
    CHECK_EQ(attr.next_id, number_of(one));
}

TEST(a_removed_group_lets_go) {
    begin_with_programs();
    int a = group("a");
    int program = OK(rule(1, 3, 7, 0, 1));
    uint32_t id = number_of(program);
    OK(attach(a, program, 0));
    OK(close(program));
    union bpf_attr attr = {.prog_id = id};
    OK(close(OK(bpf_(BPF_PROG_GET_FD_BY_ID, &attr, sizeof attr))));
    OK(rmdir(path_of("a", NULL)));
    EVENTUALLY(({
        int fd = bpf_(BPF_PROG_GET_FD_BY_ID, &attr, sizeof attr);
        if (fd >= 0)
            close(fd);
        fd < 0 && errno == ENOENT;
    }));
    ERR(attach(a, OK(LOAD(SET(0, 1), EXIT)), 0), ENOENT);
}

/* Programs come and go while members open devices. */
TEST_TIMES(changes_while_devices_are_opened, 2) {
    begin_with_programs();
    int a = group("a");
    int yes = OK(LOAD(SET(0, 1), EXIT)), no = OK(rule(1, 3, 7, 0, 1));
    atomic_int *ends = SHARED(sizeof *ends);
    pid_t children[2], parent = getpid();
    for (int i = 0; i < 2; i++) {
        children[i] = FORK();
        if (children[i] == 0) {
            /* When the case fails, nobody tells them to end. */
            OK(prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0));
            enter("a");
            while (!*ends && getppid() == parent) {
                int fd = open("/dev/null", O_RDWR);
                CHECK(fd >= 0 || errno == EPERM);
                if (fd >= 0)
                    OK(close(fd));
                OK(close(open("/dev/zero", O_RDONLY)));
            }
            exit(0);
        }
    }
    for (int n = 0; n < 300; n++) {
        OK(attach(a, yes, MULTI));
        OK(attach(a, no, MULTI));
        OK(detach(a, yes));
        OK(detach(a, no));
    }
    *ends = 1;
    for (int i = 0; i < 2; i++)
        EXITS(children[i], 0);
}
