/*
 * sysfs: what programs read to size themselves (sysfs(5)).
 */
#define AREA "sysfs"
#include "harness.h"

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
