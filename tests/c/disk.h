/* The disks that a test program is given (cli/src/test/guest.rs, `TestDisks`). */
#ifndef DISK_H
#define DISK_H

#include "harness.h"

/* Whether /sys names the disk by that serial number; its node is put into `node`. */
static UNUSED bool find_disk(const char *serial, char *node, size_t room) {
    DIR *dir = opendir("/sys/block");
    bool found = false;
    for (struct dirent *entry; dir && !found && (entry = readdir(dir));) {
        char path[128], text[64] = "";
        if (entry->d_name[0] == '.' || strlen(entry->d_name) > 32)
            continue;
        snprintf(path, sizeof path, "/sys/block/%.32s/serial", entry->d_name);
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd == -1)
            continue;
        if (read(fd, text, sizeof text - 1) > 0) {
            text[strcspn(text, "\n")] = 0;
            found = strcmp(text, serial) == 0;
            snprintf(node, room, "/dev/%.32s", entry->d_name);
        }
        close(fd);
    }
    if (dir)
        closedir(dir);
    return found;
}

#endif
