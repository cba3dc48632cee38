"""What a program sees of a disk that can be written: executed in a machine by disks.rs."""
import errno
import fcntl
import mmap
import os
import struct
import sys

DISK = "/dev/disk/by-id/virtio-data"
PAGE = 4096


def ioctl(fd, command, size):
    return int.from_bytes(fcntl.ioctl(fd, command, bytes(size)), "little")


def shape(fd, size):
    assert os.lseek(fd, 0, os.SEEK_END) == size
    assert ioctl(fd, 0x80081272, 8) == size  # BLKGETSIZE64
    assert ioctl(fd, 0x1260, 8) == size // 512  # BLKGETSIZE
    assert ioctl(fd, 0x1268, 4) == 512  # BLKSSZGET
    assert ioctl(fd, 0x127B, 4) >= 512  # BLKPBSZGET
    assert ioctl(fd, 0x1278, 4) >= 512  # BLKIOMIN
    assert ioctl(fd, 0x125E, 4) == 0  # BLKROGET
    name = os.path.basename(os.path.realpath(DISK))
    with open(f"/sys/block/{name}/serial") as serial:
        assert serial.read().strip() == "data"


def reads_and_writes(fd, size):
    assert os.pwrite(fd, b"unaligned", 5 * PAGE + 100) == 9
    assert os.pread(fd, 11, 5 * PAGE + 99) == b"\0unaligned\0"
    assert os.pwrite(fd, pattern(7, 3 * PAGE), 7 * PAGE) == 3 * PAGE
    assert os.pread(fd, 3 * PAGE, 7 * PAGE) == pattern(7, 3 * PAGE)
    # A disk does not grow.
    assert os.pwrite(fd, pattern(1), size - 512) == 512
    fails(lambda: os.pwrite(fd, b"x", size), errno.ENOSPC)
    fails(lambda: os.pwrite(fd, b"x", size + PAGE), errno.ENOSPC)
    assert os.pread(fd, 1, size) == b""
    other = os.open(DISK, os.O_RDONLY)
    assert os.pread(other, 9, 5 * PAGE + 100) == b"unaligned"
    fails(lambda: os.write(other, b"x"), errno.EBADF)
    os.close(other)
    os.fsync(fd)
    os.fdatasync(fd)


def flags():
    direct = os.open(DISK, os.O_RDWR | os.O_DIRECT)
    memory = mmap.mmap(-1, PAGE)
    memory[:] = pattern(20)
    assert os.pwritev(direct, [memory], 20 * PAGE) == PAGE
    assert os.preadv(direct, [memory], 7 * PAGE) == PAGE
    assert memory[:] == pattern(7)
    fails(lambda: os.pwritev(direct, [memory], 20 * PAGE + 1), errno.EINVAL)
    fails(lambda: os.pwrite(direct, b"x", 0), errno.EINVAL)
    os.close(direct)
    for number, flag in ((21, os.O_SYNC), (22, os.O_DSYNC)):
        synced = os.open(DISK, os.O_RDWR | flag)
        assert os.pwrite(synced, pattern(number), number * PAGE) == PAGE
        os.close(synced)
    # Exclusive, and not beside another one that is exclusive.
    alone = os.open(DISK, os.O_RDWR | os.O_EXCL)
    fails(lambda: os.open(DISK, os.O_RDONLY | os.O_EXCL), errno.EBUSY)
    os.close(alone)
    os.close(os.open(DISK, os.O_RDONLY | os.O_EXCL))


def mappings(fd):
    with mmap.mmap(fd, 4 * PAGE, offset=30 * PAGE) as memory:
        memory[10:16] = b"mapped"
        assert os.pread(fd, 6, 30 * PAGE + 10) == b"mapped"
        memory.flush()
        # Written again after it was written back: the page must be noticed once more.
        memory[20:25] = b"again"
        os.pwrite(fd, b"beside", 31 * PAGE)
        assert memory[PAGE : PAGE + 6] == b"beside"
        os.fsync(fd)
        child = os.fork()
        if child == 0:
            memory[30:35] = b"child"
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        assert memory[30:35] == b"child"
    with mmap.mmap(fd, PAGE, flags=mmap.MAP_PRIVATE, offset=30 * PAGE) as memory:
        memory[10:16] = b"hidden"
    assert os.pread(fd, 6, 30 * PAGE + 10) == b"mapped"


def clearing(fd, size):
    def fill(first, count):
        for number in range(first, first + count):
            os.pwrite(fd, pattern(number), number * PAGE)

    def span(offset, length):
        return struct.pack("QQ", offset, length)

    fill(40, 8)
    fcntl.ioctl(fd, 0x127F, span(41 * PAGE + 512, PAGE))  # BLKZEROOUT
    assert os.pread(fd, 512, 41 * PAGE) == pattern(41)[:512]
    assert os.pread(fd, PAGE, 41 * PAGE + 512) == bytes(PAGE)
    assert os.pread(fd, 512, 42 * PAGE + 512) == pattern(42)[512:1024]
    fcntl.ioctl(fd, 0x1277, span(44 * PAGE, PAGE))  # BLKDISCARD
    assert os.pread(fd, PAGE, 45 * PAGE) == pattern(45)
    fails(lambda: fcntl.ioctl(fd, 0x127F, span(1, 512)), errno.EINVAL)
    fails(lambda: fcntl.ioctl(fd, 0x127F, span(size, 512)), errno.EINVAL)
    reader = os.open(DISK, os.O_RDONLY)
    fails(lambda: fcntl.ioctl(reader, 0x127F, span(0, 512)), errno.EBADF)
    os.close(reader)
    fcntl.ioctl(fd, 0x1261)  # BLKFLSBUF
    assert os.pread(fd, PAGE, 40 * PAGE) == pattern(40)
    # Nobody may write to a disk that was protected, and that can be undone.
    fcntl.ioctl(fd, 0x125D, struct.pack("i", 1))  # BLKROSET
    fails(lambda: os.open(DISK, os.O_RDWR), errno.EACCES)
    fails(lambda: os.pwrite(fd, b"x", 0), errno.EPERM)
    fcntl.ioctl(fd, 0x125D, struct.pack("i", 0))
    os.pwrite(fd, b"end", 50 * PAGE)


def everything():
    fd = os.open(DISK, os.O_RDWR)
    size = 16 << 20
    shape(fd, size)
    reads_and_writes(fd, size)
    flags()
    mappings(fd)
    clearing(fd, size)
    # Without fsync: the end of the machine writes it.
    os.close(fd)


def errors():
    """The sector at 1 MiB cannot be written."""
    bad = 1 << 20
    disk = sys.argv[2]
    one, other = os.open(disk, os.O_RDWR), os.open(disk, os.O_RDWR)
    os.pwrite(one, pattern(1), 0)
    os.fsync(one)
    os.pwrite(one, pattern(2), bad)
    fails(lambda: os.fsync(one), errno.EIO)
    os.fsync(one)
    fails(lambda: os.fdatasync(other), errno.EIO)
    os.fdatasync(other)
    # Everybody was told: a new open file need not hear of it.
    late = os.open(disk, os.O_RDWR)
    os.fsync(late)
    os.pwrite(late, pattern(3), bad)
    fails(lambda: os.fsync(late), errno.EIO)
    synced = os.open(disk, os.O_RDWR | os.O_SYNC)
    fails(lambda: os.pwrite(synced, pattern(4), bad), errno.EIO)
    os.pwrite(synced, pattern(5), 8192)
    with mmap.mmap(late, PAGE, offset=bad) as memory:
        memory[0:1] = b"x"
        fails(memory.flush, errno.EIO)
    for fd in (one, other, late):
        # Of the last ones nobody but the writer was told.
        fails(lambda: os.fsync(fd), errno.EIO) if fd != late else os.fsync(fd)
        os.fsync(fd)


def pressure():
    """Far more is written than memory can hold, beside a program that wants memory."""
    fd = os.open(DISK, os.O_RDWR)
    hog = mmap.mmap(-1, 40 << 20)
    part = 1 << 20
    for number in range(256):
        os.pwrite(fd, pattern(number, part), number * part)
        hog[number % 40 * part] = 1
    os.fsync(fd)
    for number in range(0, 256, 5):
        assert os.pread(fd, part, number * part) == pattern(number, part), number
    with mmap.mmap(fd, 128 << 20) as memory:
        for at in range(0, 128 << 20, PAGE):
            memory[at : at + 6] = b"mapped"
        memory.flush()


{"everything": everything, "errors": errors, "pressure": pressure}[sys.argv[1]]()
print(sys.argv[1])
