"""A disk that two systems change in turn: executed in a machine by exchange.rs.

`SEED COUNT` does that many random operations below /d/tree, from a seed. Then, and with a count of
0 only, it prints what the disk is: a line for each file, and the numbers of statfs(2)."""
import ctypes
import os
import random
import shutil
import stat
import sys
import zlib

ROOT = "/d/tree"
LIBC = ctypes.CDLL(None, use_errno=True)
KEEP_SIZE, PUNCH_HOLE, ZERO_RANGE = 1, 2, 16


def fallocate(fd, mode, offset, length):
    numbers = [ctypes.c_long(offset), ctypes.c_long(length)]
    if LIBC.fallocate(fd, mode, *numbers) != 0:
        raise OSError(ctypes.get_errno(), "fallocate")


class Tree:
    def __init__(self, seed):
        self.choice = random.Random(seed)
        self.made = 0

    def all(self, wanted):
        found = []
        for folder, folders, files in os.walk(ROOT):
            folders.sort()
            for name in sorted(files if wanted == "file" else folders):
                path = os.path.join(folder, name)
                is_link = os.path.islink(path)
                if wanted == "folder" and not is_link or wanted == "file" and stat.S_ISREG(
                        os.lstat(path).st_mode):
                    found.append(path)
        return found

    def one(self, wanted):
        found = self.all(wanted)
        return self.choice.choice(found) if found else None

    def folder(self):
        return self.one("folder") or ROOT

    def name(self):
        self.made += 1
        long = "-with-a-long-name" * self.choice.randrange(8)
        return f"{self.choice.randrange(10**6)}-{self.made}{long}"

    def new(self):
        return os.path.join(self.folder(), self.name())

    def bytes(self, limit):
        count = self.choice.randrange(limit)
        line = b"%d of a file\n" % self.choice.randrange(10**9)
        return (line * (count // len(line) + 1))[:count]

    def create(self):
        with open(self.new(), "wb") as file:
            file.write(self.bytes(400_000))

    def change(self):
        path = self.one("file")
        if path is None:
            return
        size = os.stat(path).st_size
        with open(path, "r+b") as file:
            for _ in range(self.choice.randrange(1, 6)):
                file.seek(self.choice.randrange(size + 200_000))
                file.write(self.bytes(60_000))

    def space(self):
        path = self.one("file")
        if path is None:
            return
        fd = os.open(path, os.O_RDWR)
        for _ in range(self.choice.randrange(1, 5)):
            mode = self.choice.choice([0, KEEP_SIZE, PUNCH_HOLE | KEEP_SIZE, ZERO_RANGE])
            fallocate(fd, mode, self.choice.randrange(500_000), self.choice.randrange(1, 300_000))
        if self.choice.randrange(3) == 0:
            os.ftruncate(fd, self.choice.randrange(600_000))
        os.close(fd)

    def scattered(self):
        """Many extents, so that their tree has levels."""
        with open(self.new(), "wb") as file:
            for number in range(self.choice.randrange(50, 700)):
                file.seek(number * 8192 + self.choice.randrange(4000))
                file.write(b"x")

    def crowd(self):
        folder = self.new()
        os.mkdir(folder)
        for number in range(self.choice.randrange(30, 1500)):
            path = os.path.join(folder, f"{number} {'in a crowd ' * self.choice.randrange(9)}")
            kind = self.choice.randrange(20)
            if kind == 0:
                os.symlink("x" * self.choice.randrange(1, 300), path)
            elif kind == 1:
                os.mkdir(path)
            elif kind == 2:
                os.mkfifo(path)
            else:
                os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o640))

    def thin(self):
        folder = self.folder()
        for name in sorted(os.listdir(folder)):
            path = os.path.join(folder, name)
            if self.choice.randrange(3) and not stat.S_ISDIR(os.lstat(path).st_mode):
                os.unlink(path)

    def fill(self):
        folder = self.folder()
        for _ in range(self.choice.randrange(200)):
            os.close(os.open(os.path.join(folder, self.name()), os.O_CREAT | os.O_WRONLY))

    def remove(self):
        path = self.one("folder")
        if path is not None and self.choice.randrange(4) == 0:
            shutil.rmtree(path)

    def delete(self):
        path = self.one("file")
        if path is not None:
            os.unlink(path)

    def rename(self):
        old = self.one(self.choice.choice(["file", "folder"]))
        new = self.new()
        if old is not None and not new.startswith(old + "/"):
            os.rename(old, new)

    def replace(self):
        one, other = self.one("file"), self.one("file")
        if one is not None:
            os.rename(one, other)

    def link(self):
        path = self.one("file")
        if path is not None:
            os.link(path, self.new())

    def describe(self):
        path = self.one(self.choice.choice(["file", "folder"]))
        if path is None:
            return
        kind = self.choice.randrange(4)
        if kind == 0:
            os.chmod(path, self.choice.randrange(0o1000) | 0o700)
        elif kind == 1:
            os.chown(path, self.choice.randrange(200_000), self.choice.randrange(200_000))
        elif kind == 2:
            times = tuple(self.choice.randrange(-10**18, 10**19) for _ in range(2))
            os.utime(path, ns=times)
        else:
            for name in os.listxattr(path):
                if self.choice.randrange(2):
                    os.removexattr(path, name)
            for _ in range(self.choice.randrange(4)):
                name = f"user.{self.choice.randrange(12)}"
                os.setxattr(path, name, self.bytes(600) + b"x")

    def operate(self, count):
        operations = [
            self.create, self.create, self.change, self.change, self.space, self.scattered,
            self.crowd, self.thin, self.fill, self.remove, self.delete, self.rename, self.replace,
            self.link, self.describe, self.describe, self.describe,
        ]
        for _ in range(count):
            self.choice.choice(operations)()


def describe(path):
    about = os.lstat(path)
    words = [oct(about.st_mode), about.st_uid, about.st_gid, about.st_nlink, about.st_blocks]
    words += [about.st_mtime_ns, about.st_ctime_ns]
    if stat.S_ISREG(about.st_mode):
        with open(path, "rb") as file:
            words += [about.st_size, zlib.crc32(file.read())]
    elif stat.S_ISLNK(about.st_mode):
        words += [about.st_size, os.readlink(path)]
    if not stat.S_ISLNK(about.st_mode):
        values = [(name, os.getxattr(path, name)) for name in sorted(os.listxattr(path))]
        words.append([(name, zlib.crc32(value)) for name, value in values])
    return " ".join(map(str, words))


def show():
    for folder, folders, files in os.walk(ROOT):
        folders.sort()
        for name in sorted([".", *folders, *files]):
            path = os.path.normpath(os.path.join(folder, name))
            if name == "." or path not in folders:
                print(path, describe(path))
    numbers = os.statvfs("/d")
    print(numbers.f_blocks, numbers.f_bfree, numbers.f_files, numbers.f_ffree)


os.umask(0)
os.makedirs(ROOT, exist_ok=True)
Tree(int(sys.argv[1])).operate(int(sys.argv[2]))
os.sync()
show()
