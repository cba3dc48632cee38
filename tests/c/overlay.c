/* overlayfs: whiteouts, opaque directories, copy-up, renames, listings, options. */
#define AREA "overlay"
#include "harness.h"
#include <sys/mount.h>
#include <sys/statfs.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>

/* Stands in a fresh tmpfs with the directories lower, upper, work and merged; `fill` fills lower
 * before merged shows it. */
static void layers(void) {
    unshare(CLONE_NEWNS);
    mount("", "/", NULL, MS_REC | MS_PRIVATE, NULL);
    OK(mkdir("m", 0755));
    if (mount("tmpfs", "m", "tmpfs", 0, "mode=755") < 0)
        SKIP("cannot mount tmpfs: %s", strerror(errno));
    OK(chdir("m"));
    OK(mkdir("lower", 0755));
    OK(mkdir("upper", 0755));
    OK(mkdir("work", 0755));
    OK(mkdir("merged", 0755));
}
static void merge(void) {
    if (mount("overlay", "merged", "overlay", 0, "lowerdir=lower,upperdir=upper,workdir=work") < 0)
        SKIP("cannot mount overlay: %s", strerror(errno));
}
static void done(void) {
    OK(umount("merged"));
    OK(chdir(".."));
    OK(umount2("m", MNT_DETACH));
}
static bool is(const char *path, const char *want) {
    char text[256];
    return get_file(path, text, sizeof text) >= 0 && !strcmp(text, want);
}
static bool there(const char *path) {
    struct stat st;
    return lstat(path, &st) == 0;
}
static bool whiteout(const char *path) {
    struct stat st;
    return lstat(path, &st) == 0 && S_ISCHR(st.st_mode) && st.st_rdev == 0;
}
static ino_t ino(const char *path) {
    struct stat st;
    OK(lstat(path, &st));
    return st.st_ino;
}
static int compare(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}
/* The names in a directory, sorted, with spaces between. */
static const char *names(const char *path) {
    static char text[4096];
    char *list[128];
    int count = 0;
    DIR *dir = opendir(path);
    CHECK(dir != NULL);
    for (struct dirent *entry; (entry = readdir(dir));)
        if (strcmp(entry->d_name, ".") && strcmp(entry->d_name, ".."))
            CHECK((list[count++] = strdup(entry->d_name)) != NULL && count < 128);
    closedir(dir);
    qsort(list, count, sizeof *list, compare);
    text[0] = 0;
    for (int i = 0; i < count; i++) {
        if (i)
            strcat(text, " ");
        strcat(text, list[i]);
        free(list[i]);
    }
    return text;
}
static long renameat2_(const char *from, const char *to, unsigned flags) {
    return syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, flags);
}
enum { NOREPLACE = 1, EXCHANGE = 2, WHITEOUT = 4 };

TEST(lower_and_upper_are_merged) {
    layers();
    OK(mkdir("lower/d", 0755));
    OK(mkdir("upper/d", 0755));
    PUT("lower/d/low", "low");
    PUT("upper/d/up", "up");
    PUT("lower/both", "low");
    PUT("upper/both", "up");
    merge();
    CHECK_STR(names("merged"), "both d");
    CHECK_STR(names("merged/d"), "low up");
    CHECK(is("merged/both", "up"));
    CHECK(is("merged/d/low", "low"));
    done();
}

TEST(writing_copies_up_and_leaves_lower) {
    layers();
    PUT("lower/f", "below");
    OK(chmod("lower/f", 0640));
    struct timespec times[2] = {{1000, 5}, {2000, 7}};
    OK(utimensat(AT_FDCWD, "lower/f", times, 0));
    merge();
    struct stat before, after;
    OK(stat("merged/f", &before));
    CHECK(!there("upper/f"));
    OK(chmod("merged/f", 0600));
    OK(stat("merged/f", &after));
    CHECK_EQ(after.st_mode & 07777, 0600);
    CHECK_EQ(after.st_ino, before.st_ino);
    CHECK_EQ(after.st_mtim.tv_sec, 2000);
    CHECK_EQ(after.st_mtim.tv_nsec, 7);
    CHECK(is("upper/f", "below"));
    int fd = OK(open("merged/f", O_WRONLY | O_APPEND));
    CHECK_EQ(write(fd, "!", 1), 1);
    OK(close(fd));
    CHECK(is("merged/f", "below!"));
    CHECK(is("lower/f", "below"));
    done();
}

TEST(reading_copies_nothing) {
    layers();
    PUT("lower/f", "below");
    merge();
    CHECK(is("merged/f", "below"));
    ERR(access("upper/f", F_OK), ENOENT);
    int fd = OK(open("merged/f", O_RDONLY));
    char *map = mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, fd, 0);
    CHECK(map != MAP_FAILED && !memcmp(map, "below", 5));
    OK(close(fd));
    CHECK(!there("upper/f"));
    OK(munmap(map, PAGE));
    done();
}

TEST(truncating_open_copies_up_empty) {
    layers();
    PUT("lower/f", "a long content below");
    merge();
    int fd = OK(open("merged/f", O_WRONLY | O_TRUNC));
    struct stat st;
    OK(fstat(fd, &st));
    CHECK_EQ(st.st_size, 0);
    CHECK_EQ(write(fd, "new", 3), 3);
    OK(close(fd));
    CHECK(is("merged/f", "new"));
    CHECK(is("lower/f", "a long content below"));
    done();
}

TEST(a_large_file_is_copied_whole) {
    layers();
    int fd = OK(open("lower/f", O_CREAT | O_WRONLY, 0644));
    char page[PAGE];
    for (int i = 0; i < 300; i++) {
        memset(page, i, sizeof page);
        CHECK_EQ(write(fd, page, sizeof page), (long)sizeof page);
    }
    OK(close(fd));
    merge();
    fd = OK(open("merged/f", O_RDWR));
    CHECK_EQ(pwrite(fd, "x", 1, 100), 1);
    for (int i = 0; i < 300; i++) {
        CHECK_EQ(pread(fd, page, sizeof page, i * (off_t)sizeof page), (long)sizeof page);
        CHECK_EQ((unsigned char)page[0], i & 255);
        CHECK_EQ((unsigned char)page[PAGE - 1], i & 255);
    }
    OK(close(fd));
    done();
}

TEST(unlink_leaves_a_whiteout) {
    layers();
    PUT("lower/f", "x");
    merge();
    OK(unlink("merged/f"));
    CHECK(!there("merged/f"));
    CHECK(whiteout("upper/f"));
    ERR(unlink("merged/f"), ENOENT);
    CHECK_STR(names("merged"), "");
    CHECK(is("lower/f", "x"));
    done();
}

TEST(unlink_of_an_upper_file_leaves_nothing) {
    layers();
    merge();
    PUT("merged/f", "x");
    CHECK(is("upper/f", "x"));
    OK(unlink("merged/f"));
    CHECK_STR(names("upper"), "");
    done();
}

TEST(whiteouts_of_the_upper_layer_hide) {
    layers();
    PUT("lower/f", "x");
    PUT("lower/g", "x");
    OK(mknod("upper/f", S_IFCHR, makedev(0, 0)));
    merge();
    CHECK_STR(names("merged"), "g");
    ERR(open("merged/f", O_RDONLY), ENOENT);
    int fd = OK(open("merged/f", O_CREAT | O_EXCL | O_WRONLY, 0600));
    OK(close(fd));
    CHECK(is("merged/f", ""));
    CHECK_STR(names("merged"), "f g");
    CHECK(!whiteout("upper/f"));
    done();
}

TEST(rmdir_of_a_merged_directory) {
    layers();
    OK(mkdir("lower/d", 0755));
    PUT("lower/d/a", "x");
    PUT("lower/d/b", "x");
    merge();
    ERR(rmdir("merged/d"), ENOTEMPTY);
    OK(unlink("merged/d/a"));
    ERR(rmdir("merged/d"), ENOTEMPTY);
    OK(unlink("merged/d/b"));
    CHECK_STR(names("merged/d"), "");
    OK(rmdir("merged/d"));
    CHECK(whiteout("upper/d"));
    CHECK(!there("merged/d"));
    done();
}

TEST(a_directory_made_again_is_opaque) {
    layers();
    OK(mkdir("lower/d", 0755));
    PUT("lower/d/a", "x");
    merge();
    OK(unlink("merged/d/a"));
    OK(rmdir("merged/d"));
    OK(mkdir("merged/d", 0700));
    CHECK_STR(names("merged/d"), "");
    CHECK(!there("merged/d/a"));
    char value[8];
    CHECK_EQ(getxattr("upper/d", "trusted.overlay.opaque", value, sizeof value), 1);
    CHECK_EQ(value[0], 'y');
    PUT("merged/d/a", "new");
    CHECK(is("merged/d/a", "new"));
    OK(unlink("merged/d/a"));
    CHECK_STR(names("upper/d"), "");
    done();
}

TEST(private_attributes_are_hidden) {
    layers();
    OK(mkdir("lower/d", 0755));
    merge();
    OK(rmdir("merged/d"));
    OK(mkdir("merged/d", 0755));
    char list[256];
    CHECK_EQ(listxattr("merged/d", list, sizeof list), 0);
    char value[8];
    CHECK(getxattr("merged/d", "trusted.overlay.opaque", value, sizeof value) < 0);
    done();
}

TEST(rename_of_a_lower_file) {
    layers();
    PUT("lower/f", "x");
    OK(mkdir("lower/d", 0755));
    merge();
    ino_t before = ino("merged/f");
    OK(rename("merged/f", "merged/d/g"));
    CHECK(whiteout("upper/f"));
    CHECK(!there("merged/f"));
    CHECK(is("merged/d/g", "x"));
    CHECK_EQ(ino("merged/d/g"), before);
    OK(rename("merged/d/g", "merged/f"));
    CHECK(is("merged/f", "x"));
    CHECK_STR(names("merged/d"), "");
    done();
}

TEST(rename_over_a_lower_file) {
    layers();
    PUT("lower/f", "old");
    merge();
    PUT("merged/new", "new");
    ERR(renameat2_("merged/new", "merged/f", NOREPLACE), EEXIST);
    OK(rename("merged/new", "merged/f"));
    CHECK(is("merged/f", "new"));
    CHECK_STR(names("merged"), "f");
    CHECK(is("lower/f", "old"));
    OK(unlink("merged/f"));
    CHECK(!there("merged/f"));
    done();
}

TEST(exchange_of_two_names) {
    layers();
    PUT("lower/f", "f");
    merge();
    PUT("merged/g", "g");
    OK(renameat2_("merged/f", "merged/g", EXCHANGE));
    CHECK(is("merged/f", "g"));
    CHECK(is("merged/g", "f"));
    ERR(renameat2_("merged/f", "merged/none", EXCHANGE), ENOENT);
    done();
}

TEST(lower_directories_cannot_be_renamed) {
    layers();
    OK(mkdir("lower/d", 0755));
    PUT("lower/d/f", "x");
    merge();
    ERR(rename("merged/d", "merged/e"), EXDEV);
    OK(mkdir("merged/own", 0755));
    PUT("merged/own/f", "y");
    OK(rename("merged/own", "merged/moved"));
    CHECK(is("merged/moved/f", "y"));
    CHECK_STR(names("merged"), "d moved");
    done();
}

TEST(a_new_directory_over_an_empty_lower_one) {
    layers();
    OK(mkdir("lower/d", 0755));
    PUT("lower/d/f", "x");
    merge();
    OK(mkdir("merged/own", 0755));
    PUT("merged/own/g", "y");
    ERR(rename("merged/own", "merged/d"), ENOTEMPTY);
    OK(unlink("merged/d/f"));
    OK(rename("merged/own", "merged/d"));
    CHECK_STR(names("merged/d"), "g");
    CHECK_STR(names("merged"), "d");
    done();
}

TEST(hard_links_share_after_copy_up) {
    layers();
    PUT("lower/f", "x");
    merge();
    OK(link("merged/f", "merged/g"));
    CHECK_EQ(ino("merged/f"), ino("merged/g"));
    PUT("merged/g", "both");
    CHECK(is("merged/f", "both"));
    struct stat st;
    OK(stat("merged/f", &st));
    CHECK_EQ(st.st_nlink, 2);
    OK(unlink("merged/f"));
    CHECK(is("merged/g", "both"));
    done();
}

TEST(link_over_a_whiteout) {
    layers();
    PUT("lower/f", "x");
    merge();
    OK(unlink("merged/f"));
    PUT("merged/g", "y");
    OK(link("merged/g", "merged/f"));
    CHECK(is("merged/f", "y"));
    CHECK_STR(names("merged"), "f g");
    done();
}

TEST(symbolic_links_and_fifos_are_copied_up) {
    layers();
    OK(symlink("target", "lower/l"));
    OK(mkfifo("lower/p", 0600));
    merge();
    OK(lchown("merged/l", 1, 2));
    OK(chmod("merged/p", 0644));
    char text[16];
    CHECK_EQ(readlink("upper/l", text, sizeof text), 6);
    struct stat st;
    OK(lstat("upper/l", &st));
    CHECK_EQ(st.st_uid, 1);
    CHECK_EQ(st.st_gid, 2);
    OK(lstat("upper/p", &st));
    CHECK(S_ISFIFO(st.st_mode));
    CHECK_EQ(st.st_mode & 07777, 0644);
    done();
}

TEST(whiteouts_cannot_be_made_by_hand) {
    layers();
    merge();
    ERR(mknod("merged/w", S_IFCHR, makedev(0, 0)), EPERM);
    ERR(renameat2_("merged/none", "merged/w", WHITEOUT), ENOENT);
    PUT("merged/f", "x");
    ERR(renameat2_("merged/f", "merged/w", WHITEOUT), EINVAL);
    done();
}

TEST(an_open_file_sees_its_copy_up) {
    layers();
    PUT("lower/f", "below");
    merge();
    int fd = OK(open("merged/f", O_RDONLY));
    PUT("merged/f", "above");
    char text[8] = "";
    CHECK_EQ(read(fd, text, sizeof text), 5);
    CHECK(!memcmp(text, "above", 5));
    OK(close(fd));
    done();
}

TEST(a_removed_open_file_can_be_written) {
    layers();
    PUT("lower/f", "below");
    merge();
    int fd = OK(open("merged/f", O_RDWR));
    OK(unlink("merged/f"));
    CHECK_EQ(pwrite(fd, "B", 1, 0), 1);
    char text[8] = "";
    CHECK_EQ(pread(fd, text, sizeof text, 0), 5);
    CHECK(!memcmp(text, "Below", 5));
    struct stat st;
    OK(fstat(fd, &st));
    CHECK_EQ(st.st_nlink, 0);
    OK(close(fd));
    done();
}

TEST(several_lower_layers) {
    layers();
    OK(mkdir("lower2", 0755));
    PUT("lower/top", "1");
    PUT("lower2/top", "2");
    PUT("lower2/bottom", "2");
    PUT("lower2/gone", "2");
    OK(mknod("lower/gone", S_IFCHR, makedev(0, 0)));
    OK(mkdir("lower/d", 0755));
    OK(mkdir("lower2/d", 0755));
    PUT("lower/d/a", "1");
    PUT("lower2/d/b", "2");
    if (mount("overlay", "merged", "overlay", 0,
              "lowerdir=lower:lower2,upperdir=upper,workdir=work") < 0)
        SKIP("cannot mount overlay: %s", strerror(errno));
    CHECK_STR(names("merged"), "bottom d top");
    CHECK_STR(names("merged/d"), "a b");
    CHECK(is("merged/top", "1"));
    OK(unlink("merged/top"));
    CHECK_STR(names("merged"), "bottom d");
    done();
}

TEST(without_an_upper_layer_nothing_is_written) {
    layers();
    OK(mkdir("lower2", 0755));
    PUT("lower/f", "x");
    if (mount("overlay", "merged", "overlay", 0, "lowerdir=lower:lower2") < 0)
        SKIP("cannot mount overlay: %s", strerror(errno));
    CHECK(is("merged/f", "x"));
    ERR(open("merged/f", O_WRONLY), EROFS);
    ERR(open("merged/new", O_WRONLY | O_CREAT, 0600), EROFS);
    ERR(unlink("merged/f"), EROFS);
    ERR(mkdir("merged/d", 0755), EROFS);
    done();
}

TEST(bad_options_are_refused) {
    layers();
    merge();
    OK(umount("merged"));
    ERR(mount("overlay", "merged", "overlay", 0, ""), EINVAL);
    ERR(mount("overlay", "merged", "overlay", 0, "lowerdir=lower,upperdir=upper"), EINVAL);
    ERR(mount("overlay", "merged", "overlay", 0, "lowerdir=lower,nonsense=1"), EINVAL);
    ERR(mount("overlay", "merged", "overlay", 0,
              "lowerdir=missing,upperdir=upper,workdir=work"),
        ENOENT);
    ERR(mount("overlay", "merged", "overlay", 0,
              "lowerdir=lower,upperdir=upper,workdir=upper"),
        EINVAL);
    merge();
    done();
}

TEST(statfs_names_the_type) {
    layers();
    merge();
    struct statfs sf;
    OK(statfs("merged", &sf));
    CHECK_EQ(sf.f_type, 0x794c7630);
    done();
}

TEST(every_entry_is_listed_once_while_files_change) {
    layers();
    for (int i = 0; i < 200; i++) {
        char path[64];
        snprintf(path, sizeof path, "lower/file-%03d", i);
        PUT(path, "x");
    }
    merge();
    int seen[200] = {0}, others = 0;
    DIR *dir = opendir("merged");
    CHECK(dir != NULL);
    for (struct dirent *entry; (entry = readdir(dir));) {
        int i;
        if (sscanf(entry->d_name, "file-%d", &i) == 1) {
            CHECK(i >= 0 && i < 200);
            seen[i]++;
            char path[300];
            snprintf(path, sizeof path, "merged/%s", entry->d_name);
            CHECK_EQ(entry->d_ino, ino(path));
            /* Copied up or removed while the listing goes on. */
            if (i % 2)
                OK(chmod(path, 0600));
            else
                OK(unlink(path));
        } else if (entry->d_name[0] != '.')
            others++;
    }
    closedir(dir);
    for (int i = 0; i < 200; i++)
        CHECK_EQ(seen[i], 1);
    CHECK_EQ(others, 0);
    dir = opendir("merged");
    int count = 0;
    while (readdir(dir))
        count++;
    closedir(dir);
    CHECK_EQ(count, 102);
    done();
}

/* A lease asks for openings of both files that one of the overlay has been. */
TEST(leases_know_openings_from_before_the_copy) {
    layers();
    PUT("lower/f", "below");
    PUT("lower/g", "below");
    merge();
    int early = OK(open("merged/f", O_RDONLY));
    OK(close(OK(open("merged/f", O_RDWR)))); /* copies up */
    int late = OK(open("merged/f", O_RDONLY));
    ERR(fcntl(late, F_SETLEASE, F_WRLCK), EAGAIN);
    ERR(fcntl(early, F_SETLEASE, F_WRLCK), EAGAIN);
    OK(fcntl(early, F_SETLEASE, F_RDLCK));
    OK(close(early));
    OK(fcntl(late, F_SETLEASE, F_WRLCK));
    OK(close(late));
    int writer = OK(open("merged/g", O_RDWR)); /* its own opening copied it */
    ERR(fcntl(writer, F_SETLEASE, F_RDLCK), EAGAIN);
    OK(fcntl(writer, F_SETLEASE, F_WRLCK));
    OK(close(writer));
    done();
}
