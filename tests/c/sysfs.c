/*
 * sysfs: what programs read to size themselves (sysfs(5)).
 */
#define AREA "sysfs"
#include "harness.h"

#include <arpa/inet.h>
#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/vfs.h>

/* The first line of a file, without its end. */
static void text_of(const char *path, char *text, size_t size) {
    int fd = OK(open(path, O_RDONLY));
    ssize_t length = OK(read(fd, text, size - 1));
    OK(close(fd));
    text[length] = 0;
    text[strcspn(text, "\n")] = 0;
}

TEST(is_a_file_system_of_its_own) {
    struct statfs about;
    OK(statfs("/sys", &about));
    CHECK_EQ(about.f_type, 0x62656572);
    ERR(open("/sys/none", O_RDONLY), ENOENT);
    ERR(open("/sys/made", O_WRONLY | O_CREAT, 0644), EACCES);
    ERR(mkdir("/sys/made", 0755), EPERM);
}

TEST(processors_are_listed) {
    char text[256], wanted[32];
    long count = sysconf(_SC_NPROCESSORS_CONF);
    text_of("/sys/devices/system/cpu/online", text, sizeof text);
    if (count == 1)
        snprintf(wanted, sizeof wanted, "0");
    else
        snprintf(wanted, sizeof wanted, "0-%ld", count - 1);
    CHECK_STR(text, wanted);
    int found = 0;
    DIR *folder = opendir("/sys/devices/system/cpu");
    CHECK(folder);
    for (struct dirent *entry; (entry = readdir(folder));)
        if (strncmp(entry->d_name, "cpu", 3) == 0 && entry->d_name[3] >= '0' &&
            entry->d_name[3] <= '9')
            found++;
    CHECK_EQ(found, count);
    struct stat about;
    OK(stat("/sys/devices/system/cpu/cpu0", &about));
    CHECK(S_ISDIR(about.st_mode));
    ERR(stat("/sys/devices/system/cpu/cpu00", &about), ENOENT);
    ERR(stat("/sys/devices/system/cpu/cpu999", &about), ENOENT);
    text_of("/sys/devices/system/cpu/kernel_max", text, sizeof text);
    CHECK(atol(text) >= count - 1);
}

TEST(disks_have_sizes) {
    DIR *folder = opendir("/sys/block");
    CHECK(folder);
    int found = 0;
    for (struct dirent *entry; (entry = readdir(folder));) {
        if (entry->d_name[0] == '.')
            continue;
        char path[600], text[64];
        unsigned major, minor;
        snprintf(path, sizeof path, "/sys/block/%s/dev", entry->d_name);
        text_of(path, text, sizeof text);
        CHECK_EQ(sscanf(text, "%u:%u", &major, &minor), 2);
        snprintf(path, sizeof path, "/sys/block/%s/size", entry->d_name);
        text_of(path, text, sizeof text);
        CHECK(atoll(text) >= 0 && text[0] != 0);
        snprintf(path, sizeof path, "/sys/block/%s/ro", entry->d_name);
        text_of(path, text, sizeof text);
        CHECK(strcmp(text, "0") == 0 || strcmp(text, "1") == 0);
        snprintf(path, sizeof path, "/sys/block/%s/queue/logical_block_size", entry->d_name);
        text_of(path, text, sizeof text);
        CHECK(atoi(text) >= 512);
        found++;
    }
    if (found == 0)
        SKIP("no disks");
}

TEST(large_pages_say_when_they_are_used) {
    char text[64];
    if (access("/sys/kernel/mm/transparent_hugepage/enabled", F_OK) == -1)
        SKIP("no large pages");
    text_of("/sys/kernel/mm/transparent_hugepage/enabled", text, sizeof text);
    CHECK(strchr(text, '[') && strstr(text, "madvise"));
    text_of("/sys/kernel/mm/transparent_hugepage/hpage_pmd_size", text, sizeof text);
    CHECK_EQ(atol(text), 2 << 20);
}

/* Whether the interface has this name and is up, as ioctl(2) says. */
static int flags_of(const char *name) {
    struct ifreq request = {0};
    snprintf(request.ifr_name, sizeof request.ifr_name, "%s", name);
    int fd = OK(socket(AF_INET, SOCK_DGRAM, 0));
    OK(ioctl(fd, SIOCGIFFLAGS, &request));
    OK(close(fd));
    return request.ifr_flags;
}

static void interface_text(const char *name, const char *file, char *text, size_t size) {
    char path[600];
    snprintf(path, sizeof path, "/sys/class/net/%s/%s", name, file);
    text_of(path, text, size);
}

TEST(interfaces_are_described) {
    DIR *folder = opendir("/sys/class/net");
    CHECK(folder);
    int found = 0, loopback = 0;
    for (struct dirent *entry; (entry = readdir(folder));) {
        const char *name = entry->d_name;
        char text[256], wanted[64];
        if (name[0] == '.' || !if_nametoindex(name))
            continue;
        found++;
        loopback |= strcmp(name, "lo") == 0;
        interface_text(name, "ifindex", text, sizeof text);
        CHECK_EQ(atoi(text), if_nametoindex(name));
        struct ifreq request = {0};
        snprintf(request.ifr_name, sizeof request.ifr_name, "%s", name);
        int fd = OK(socket(AF_INET, SOCK_DGRAM, 0));
        OK(ioctl(fd, SIOCGIFMTU, &request));
        interface_text(name, "mtu", text, sizeof text);
        CHECK_EQ(atoi(text), request.ifr_mtu);
        OK(ioctl(fd, SIOCGIFHWADDR, &request));
        unsigned char *address = (unsigned char *)request.ifr_hwaddr.sa_data;
        snprintf(wanted, sizeof wanted, "%02x:%02x:%02x:%02x:%02x:%02x", address[0], address[1],
                 address[2], address[3], address[4], address[5]);
        interface_text(name, "type", text, sizeof text);
        CHECK_EQ(atoi(text), request.ifr_hwaddr.sa_family);
        interface_text(name, "addr_len", text, sizeof text);
        if (atoi(text) == 6) {
            interface_text(name, "address", text, sizeof text);
            CHECK_STR(text, wanted);
        }
        OK(close(fd));
    }
    CHECK(loopback);
    CHECK(found >= 1);
    OK(closedir(folder));
    struct stat about;
    ERR(stat("/sys/class/net/none0", &about), ENOENT);
}

TEST(loopback_has_its_state) {
    char text[256];
    interface_text("lo", "address", text, sizeof text);
    CHECK_STR(text, "00:00:00:00:00:00");
    interface_text("lo", "broadcast", text, sizeof text);
    CHECK_STR(text, "00:00:00:00:00:00");
    interface_text("lo", "type", text, sizeof text);
    CHECK_STR(text, "772");
    interface_text("lo", "flags", text, sizeof text);
    int up = (flags_of("lo") & IFF_UP) != 0;
    CHECK_STR(text, up ? "0x9" : "0x8");
    interface_text("lo", "operstate", text, sizeof text);
    CHECK_STR(text, up ? "unknown" : "down");
    if (up) {
        interface_text("lo", "carrier", text, sizeof text);
        CHECK_STR(text, "1");
        /* Bytes that pass are counted. */
        long long before[2], after[2];
        static const char *const files[] = {"statistics/rx_bytes", "statistics/tx_packets"};
        for (int i = 0; i < 2; i++) {
            interface_text("lo", files[i], text, sizeof text);
            before[i] = atoll(text);
        }
        struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
        int fd = OK(socket(AF_INET, SOCK_DGRAM, 0));
        OK(bind(fd, (struct sockaddr *)&to, sizeof to));
        socklen_t length = sizeof to;
        OK(getsockname(fd, (struct sockaddr *)&to, &length));
        CHECK_EQ(OK(sendto(fd, "1234567", 7, 0, (struct sockaddr *)&to, sizeof to)), 7);
        OK(close(fd));
        for (int i = 0; i < 2; i++) {
            interface_text("lo", files[i], text, sizeof text);
            after[i] = atoll(text);
        }
        CHECK(after[0] >= before[0] + 7);
        CHECK(after[1] >= before[1] + 1);
    }
}

TEST(a_new_network_has_loopback_alone) {
    pid_t pid = FORK();
    if (pid == 0) {
        if (unshare(CLONE_NEWUSER | CLONE_NEWNET | CLONE_NEWNS))
            _exit(77);
        /* On Linux the interfaces are those of the namespace that mounted it. */
        OK(mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL));
        if (mount("sysfs", "/sys", "sysfs", 0, NULL))
            CHECK_EQ(errno, EPERM);
        char text[256];
        interface_text("lo", "operstate", text, sizeof text);
        CHECK_STR(text, "down");
        interface_text("lo", "flags", text, sizeof text);
        CHECK_STR(text, "0x8");
        int fd = OK(open("/sys/class/net/lo/carrier", O_RDONLY));
        ERR(read(fd, text, sizeof text), EINVAL);
        OK(close(fd));
        int others = 0;
        DIR *folder = opendir("/sys/class/net");
        CHECK(folder);
        for (struct dirent *entry; (entry = readdir(folder));)
            others += entry->d_name[0] != '.' && strncmp(entry->d_name, "eth", 3) == 0;
        CHECK_EQ(others, 0);
        _exit(0);
    }
    int status = WAIT(pid);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
        SKIP("no namespaces");
    CHECK_EQ(status, 0);
}
