"""What programs do with files on a disk: executed in a machine by file_systems.rs."""
import ctypes
import errno
import mmap
import os
import random
import shutil
import stat
import sys

HERE = "/d"
PAGE = 4096


def write(path, data, sync=False):
    with open(path, "wb", buffering=0) as file:
        while data:
            data = data[file.write(data):]
        if sync:
            os.fsync(file.fileno())


def read(path):
    with open(path, "rb") as file:
        return file.read()


def sync_folder(path):
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    os.fsync(fd)
    os.close(fd)


# What outlives the machine: `make` in one, `verify` in the next.


def make():
    os.chdir(HERE)
    os.umask(0)
    os.mkdir("many")
    for number in range(2000):
        write(f"many/a file with number {number}", pattern(number, number))
    for number in range(0, 2000, 3):
        os.unlink(f"many/a file with number {number}")
    write("large", b"".join(pattern(number, 1 << 20) for number in range(24)))
    os.truncate("large", (23 << 20) + 5)
    with open("holes", "wb") as file:
        for number in range(100):
            file.seek(number * 3 * PAGE + 100)
            file.write(pattern(number, 50))
        file.truncate(1 << 30)
    os.posix_fallocate(os.open("ahead", os.O_RDWR | os.O_CREAT, 0o600), 0, 1 << 20)
    os.pwrite(os.open("ahead", os.O_RDWR), b"inside", 5 * PAGE - 3)
    fd = os.open("mapped", os.O_RDWR | os.O_CREAT)
    os.ftruncate(fd, 10 * PAGE)
    with mmap.mmap(fd, 10 * PAGE) as shared:
        shared[3 * PAGE - 4:3 * PAGE + 4] = b"bothside"
        child = os.fork()
        if child == 0:
            shared[7 * PAGE] = 77
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
    os.symlink("many", "short")
    os.symlink("x" * 300, "long")
    os.link("large", "linked")
    os.mkfifo("fifo", 0o640)
    os.mknod("null", stat.S_IFCHR | 0o666, os.makedev(1, 3))
    os.makedirs("a/b/c/d")
    os.rename("a/b/c", "a/moved")
    write("a/old", b"old")
    write("a/new", b"new")
    os.rename("a/new", "a/old")
    os.chown("a/old", 1234, 70000)
    os.chmod("a/old", 0o4751)
    os.utime("a/old", ns=(1_600_000_000_123_456_789, 1_700_000_000_987_654_321))
    os.setxattr("a/old", "user.name", b"value")
    os.setxattr("a/old", "user.large", b"v" * 700)
    os.setxattr("a", "trusted.gone", b"x")
    os.removexattr("a", "trusted.gone")


def verify():
    os.chdir(HERE)
    names = sorted(os.listdir("many"))
    kept = [number for number in range(2000) if number % 3]
    assert names == sorted(f"a file with number {number}" for number in kept), len(names)
    for number in kept:
        assert read(f"many/a file with number {number}") == pattern(number, number), number
    large = b"".join(pattern(number, 1 << 20) for number in range(24))
    assert read("large") == large[: (23 << 20) + 5]
    assert os.stat("linked").st_ino == os.stat("large").st_ino
    assert os.stat("large").st_nlink == 2
    with open("holes", "rb") as file:
        for number in range(100):
            file.seek(number * 3 * PAGE + 90)
            assert file.read(70) == bytes(10) + pattern(number, 50) + bytes(10), number
    found = os.stat("holes")
    assert found.st_size == 1 << 30 and found.st_blocks <= 101 * 8 + 64, found
    ahead = bytearray(1 << 20)
    ahead[5 * PAGE - 3:5 * PAGE + 3] = b"inside"
    assert read("ahead") == bytes(ahead)
    mapped = bytearray(10 * PAGE)
    mapped[3 * PAGE - 4:3 * PAGE + 4] = b"bothside"
    mapped[7 * PAGE] = 77
    assert read("mapped") == bytes(mapped)
    assert os.readlink("short") == "many" and os.readlink("long") == "x" * 300
    assert stat.S_ISFIFO(os.stat("fifo").st_mode) and os.stat("fifo").st_mode & 0o777 == 0o640
    assert os.stat("null").st_rdev == os.makedev(1, 3)
    assert os.listdir("a/moved") == ["d"] and os.listdir("a/b") == []
    assert os.stat("a").st_nlink == 4
    assert os.stat("a/moved/..").st_ino == os.stat("a").st_ino
    assert read("a/old") == b"new" and not os.path.exists("a/new")
    found = os.stat("a/old")
    assert (found.st_uid, found.st_gid, found.st_mode & 0o7777) == (1234, 70000, 0o4751)
    assert found.st_mtime_ns == 1_700_000_000_987_654_321
    assert os.getxattr("a/old", "user.name") == b"value"
    assert os.getxattr("a/old", "user.large") == b"v" * 700
    assert sorted(os.listxattr("a/old")) == ["user.large", "user.name"]
    assert os.listxattr("a") == []


def change():
    """What another system does to the tree of `make`, undone by `restore`."""
    os.chdir(HERE)
    for number in range(0, 2000, 5):
        if number % 3:
            path = f"many/a file with number {number}"
            os.rename(path, f"{path} elsewhere")
    with open("large", "r+b") as file:
        file.seek(5 << 20)
        file.write(bytes(1 << 20))
    os.removexattr("a/old", "user.large")
    shutil.rmtree("a/moved")


def restore():
    os.chdir(HERE)
    for number in range(0, 2000, 5):
        if number % 3:
            path = f"many/a file with number {number}"
            os.rename(f"{path} elsewhere", path)
    with open("large", "r+b") as file:
        file.seek(5 << 20)
        assert file.read(1 << 20) == bytes(1 << 20)
        file.seek(5 << 20)
        file.write(pattern(5, 1 << 20))
    os.setxattr("a/old", "user.large", b"v" * 700)
    os.utime("a/old", ns=(1_600_000_000_123_456_789, 1_700_000_000_987_654_321))
    os.makedirs("a/moved/d")


# A full disk.


def full():
    os.chdir(HERE)
    before = os.statvfs(".")
    os.mkdir("fill")
    count = 0
    for number in range(1000):
        try:
            write(f"fill/{number}", pattern(number, 1 << 20))
        except OSError as error:
            assert error.errno == errno.ENOSPC, error
            break
        count += 1
    else:
        raise AssertionError("the disk has no end")
    free = os.statvfs(".").f_bfree
    # Root has all of it, but for what files need to be written.
    assert free < 64, free
    fd = os.open("sparse", os.O_RDWR | os.O_CREAT)
    os.ftruncate(fd, 64 << 20)
    child = os.fork()
    if child == 0:
        with mmap.mmap(fd, 64 << 20) as shared:
            for at in range(0, 64 << 20, PAGE):
                shared[at] = 1
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == 7, status
    os.close(fd)
    for number in range(count):
        assert read(f"fill/{number}") == pattern(number, 1 << 20), number
    os.unlink("sparse")
    # Room that was given up is there again at once.
    for number in range(count):
        os.unlink(f"fill/{number}")
        write(f"fill/{number}", pattern(number + 1, 1 << 20))
    for number in range(count):
        assert read(f"fill/{number}") == pattern(number + 1, 1 << 20), number
    shutil.rmtree("fill")
    os.sync()
    after = os.statvfs(".")
    assert after.f_bfree == before.f_bfree, (before.f_bfree, after.f_bfree)
    assert after.f_ffree == before.f_ffree
    # Names and inodes.
    os.mkdir("names")
    made = 0
    try:
        while True:
            os.close(os.open(f"names/{made}", os.O_CREAT | os.O_WRONLY))
            made += 1
    except OSError as error:
        assert error.errno == errno.ENOSPC, error
    assert made > 1000 and len(os.listdir("names")) == made
    shutil.rmtree("names")


# A remount, and a file system in use.


def resident(path):
    """Returns for each page of a file whether it is in the page cache."""
    size = os.path.getsize(path)
    with open(path, "r+b") as file, mmap.mmap(file.fileno(), size) as memory:
        first = ctypes.c_char.from_buffer(memory)
        address = ctypes.c_void_p(ctypes.addressof(first))
        pages = (ctypes.c_ubyte * (size // PAGE))()
        done = ctypes.CDLL(None).mincore(address, ctypes.c_size_t(size), pages)
        del first
        assert done == 0
        return [page & 1 for page in pages]


def let_go():
    """Pages that a program does not need any more leave the page cache."""
    path = f"{HERE}/unneeded"
    data = bytearray(pattern(1, 16 * PAGE))
    write(path, data, sync=True)
    assert resident(path) == [1] * 16
    fd = os.open(path, os.O_RDWR)
    # Pages of which a part is needed stay.
    os.posix_fadvise(fd, PAGE + 1, 8 * PAGE, os.POSIX_FADV_DONTNEED)
    assert resident(path) == [1] * 2 + [0] * 7 + [1] * 7
    data[:7] = b"changed"
    os.pwrite(fd, b"changed", 0)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    assert resident(path)[1:] == [0] * 15
    os.fsync(fd)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    assert resident(path) == [0] * 16
    assert os.pread(fd, 16 * PAGE, 0) == data
    os.close(fd)
    os.unlink(path)


def busy():
    let_go()
    mount = "mount -o remount,{} /d"
    fd = os.open(f"{HERE}/file", os.O_RDWR | os.O_CREAT)
    os.write(fd, b"before")
    assert os.system(mount.format("ro") + " 2>/dev/null") != 0
    assert os.system("umount /d 2>/dev/null") != 0
    os.close(fd)
    assert os.system(mount.format("ro")) == 0
    fails(lambda: open(f"{HERE}/file", "r+"), errno.EROFS)
    fails(lambda: os.mkdir(f"{HERE}/folder"), errno.EROFS)
    fails(lambda: os.utime(f"{HERE}/file"), errno.EROFS)
    assert read(f"{HERE}/file") == b"before"
    assert os.system(mount.format("rw")) == 0
    write(f"{HERE}/file", b"after", sync=True)
    os.mkdir(f"{HERE}/second")
    assert os.system("mount /dev/vdb /d/second") == 0
    write(f"{HERE}/second/shared", b"both")
    assert read(f"{HERE}/shared") == b"both"
    assert os.system("umount /d 2>/dev/null") != 0
    assert os.system("umount /d/second") == 0
    fd = os.open(f"{HERE}/file", os.O_RDONLY)
    os.unlink(f"{HERE}/file")
    assert os.read(fd, 9) == b"after"
    assert os.system("umount /d 2>/dev/null") != 0
    os.close(fd)
    assert os.system("umount /d") == 0
    assert os.listdir(HERE) == []
    assert os.system("mount -o ro /dev/vdb /d") == 0
    assert sorted(os.listdir(HERE)) == ["lost+found", "second", "shared"]
    assert os.system("umount /d && mount /dev/vdb /d") == 0
    os.rmdir(f"{HERE}/second")


# Many programs at once.


def worker(number, seconds):
    import time

    choice = random.Random(number)
    end = time.monotonic() + seconds
    own = f"{HERE}/own-{number}"
    os.mkdir(own)
    files = {}
    count = 0
    while time.monotonic() < end:
        count += 1
        name = f"{own}/{choice.randrange(40)}"
        what = choice.randrange(10)
        if what < 4:
            size = choice.choice([0, 10, PAGE, 20000, 300000])
            write(name, pattern(count, size), sync=choice.randrange(8) == 0)
            files[name] = (count, size)
        elif what < 6 and files:
            name = choice.choice(sorted(files))
            seed, size = files[name]
            assert read(name) == pattern(seed, size), name
        elif what < 7 and files:
            old = choice.choice(sorted(files))
            if old != name:
                os.rename(old, name)
                files[name] = files.pop(old)
        elif what < 8 and files:
            name = choice.choice(sorted(files))
            os.unlink(name)
            del files[name]
        elif what < 9:
            # Everybody's names, in one folder.
            try:
                write(f"{HERE}/shared/{choice.randrange(20)}", pattern(count, 5000))
                os.rename(f"{HERE}/shared/{choice.randrange(20)}", f"{HERE}/shared/x{number}")
                os.unlink(f"{HERE}/shared/{choice.randrange(20)}")
            except FileNotFoundError:
                pass
        elif files:
            name = choice.choice(sorted(files))
            seed, size = files[name]
            with open(name, "r+b") as file:
                if size:
                    with mmap.mmap(file.fileno(), size) as shared:
                        shared[:] = pattern(count, size)
                    files[name] = (count, size)
    for name, (seed, size) in files.items():
        assert read(name) == pattern(seed, size), name
    assert sorted(os.listdir(own)) == sorted(os.path.basename(name) for name in files)


def storm(seconds="8"):
    os.mkdir(f"{HERE}/shared")
    children = []
    for number in range(6):
        child = os.fork()
        if child == 0:
            try:
                worker(number, float(seconds))
            except BaseException as error:
                print(f"{number}: {error!r}", file=sys.stderr)
                os._exit(1)
            os._exit(0)
        children.append(child)
    assert all(os.waitpid(child, 0)[1] == 0 for child in children)


# Work that is cut off. What was said to be safe must be there: a version of a slot that is not
# older than the last one that was said, and so many records of the log.


def load(round_number):
    choice = random.Random(int(round_number))
    version = int(round_number) * 1_000_000
    base = f"{HERE}/load"
    os.makedirs(base, exist_ok=True)
    log = os.open(f"{base}/log-{round_number}", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    records = 0
    print("ready", flush=True)
    while True:
        version += 1
        what = choice.randrange(12)
        if what < 5:
            slot = choice.randrange(16)
            size = choice.choice([100, PAGE, 9000, 70000, 400000])
            data = b"%012d %08d\n" % (version, size) + pattern(version % 100_000_000, size)
            write(f"{base}/new", data, sync=True)
            os.rename(f"{base}/new", f"{base}/slot-{slot}")
            sync_folder(base)
            print(f"slot {slot} {version}", flush=True)
        elif what < 8:
            for _ in range(choice.randrange(1, 5)):
                os.write(log, b"%015d\n" % records)
                records += 1
            os.fdatasync(log)
            print(f"log {round_number} {records}", flush=True)
        elif what < 10:
            # Work that nobody is promised.
            folder = f"{base}/folder-{choice.randrange(6)}"
            if os.path.isdir(folder) and choice.randrange(3) == 0:
                shutil.rmtree(folder)
            else:
                os.makedirs(folder, exist_ok=True)
                for number in range(choice.randrange(60)):
                    write(f"{folder}/{version}-{number}", pattern(number, number * 300))
        elif what < 11:
            path = f"{base}/scratch-{choice.randrange(4)}"
            with open(path, "ab") as file:
                file.write(pattern(version, choice.randrange(200000)))
            os.truncate(path, choice.randrange(100000))
        else:
            path = f"{base}/open"
            fd = os.open(path, os.O_RDWR | os.O_CREAT)
            os.unlink(path)
            os.write(fd, pattern(version, 50000))
            if choice.randrange(2):
                os.close(fd)


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
    print(sys.argv[1])
