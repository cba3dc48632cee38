#!/usr/bin/env python3
"""python: os, subprocess, threading, signal, mmap, selectors, socket, multiprocessing."""
import errno
import mmap
import os
import select
import selectors
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import time


def check(got, want, what):
    if got != want:
        print(f"failed: {what}: got {got!r}, not {want!r}")
        sys.exit(1)


def raises(kind, call, what):
    try:
        call()
    except kind:
        return
    print(f"failed: {what} did not raise {kind}")
    sys.exit(1)


def processes():
    for code in (0, 3, 255):
        pid = os.fork()
        if pid == 0:
            os._exit(code)
        check(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), code, "exit status")
    out = subprocess.run(["sh", "-c", "cat; echo err >&2; exit 4"], input=b"in", capture_output=True)
    check((out.stdout, out.stderr, out.returncode), (b"in", b"err\n", 4), "subprocess.run")
    check(subprocess.check_output(["sh", "-c", "echo $X"], env={"X": "7", "PATH": os.environ["PATH"]}), b"7\n", "env")
    raises(FileNotFoundError, lambda: subprocess.run(["./none"]), "a missing program")
    raises(subprocess.TimeoutExpired, lambda: subprocess.run(["sleep", "20"], timeout=0.2), "a timeout")
    child = subprocess.Popen(["sleep", "100"], start_new_session=True)
    check(child.poll(), None, "poll")
    check(os.getsid(child.pid), child.pid, "a new session")
    child.terminate()
    check(child.wait(), -signal.SIGTERM, "terminate")
    big = os.urandom(2_000_000)
    check(subprocess.run(["cat"], input=big, stdout=subprocess.PIPE).stdout == big, True, "two megabytes through cat")
    a = subprocess.Popen(["seq", "1000"], stdout=subprocess.PIPE)
    b = subprocess.Popen(["sort", "-rn"], stdin=a.stdout, stdout=subprocess.PIPE)
    a.stdout.close()
    check(b.communicate()[0].split()[0], b"1000", "a pipeline")
    check((a.wait(), b.returncode), (0, 0), "its statuses")
    pid = os.posix_spawn("/bin/sh", ["sh", "-c", "exit 9"], os.environ)
    check(os.waitid(os.P_PID, pid, os.WEXITED).si_status, 9, "posix_spawn")


def threads():
    lock, done, total = threading.Lock(), threading.Event(), [0]

    def count():
        done.wait()
        for _ in range(2000):
            with lock:
                total[0] += 1

    workers = [threading.Thread(target=count) for _ in range(8)]
    for worker in workers:
        worker.start()
    done.set()
    for worker in workers:
        worker.join()
    check(total[0], 16000, "a counter under a lock")
    barrier, local, seen = threading.Barrier(4), threading.local(), []

    def meet(n):
        local.n = n
        barrier.wait(20)
        seen.append(local.n)

    workers = [threading.Thread(target=meet, args=(n,)) for n in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    check(sorted(seen), [0, 1, 2, 3], "barrier and thread locals")
    condition = threading.Condition()
    with condition:
        start = time.monotonic()
        check(condition.wait(0.05), False, "condition timeout")
        check(time.monotonic() - start >= 0.04, True, "its length")
    check(threading.Semaphore(0).acquire(timeout=0.01), False, "semaphore timeout")


def signals():
    caught = []
    signal.signal(signal.SIGUSR1, lambda number, frame: caught.append(number))
    os.kill(os.getpid(), signal.SIGUSR1)
    check(caught, [signal.SIGUSR1], "a handler")
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    os.kill(os.getpid(), signal.SIGUSR1)
    check(signal.sigpending(), {signal.SIGUSR1}, "sigpending")
    check(signal.sigwait({signal.SIGUSR1}), signal.SIGUSR1, "sigwait")
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGUSR1})
    signal.signal(signal.SIGALRM, lambda number, frame: caught.append(number))
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    start = time.monotonic()
    time.sleep(0.2)  # goes on after the handler (PEP 475)
    check(time.monotonic() - start >= 0.19, True, "sleep over a signal")
    check(caught[-1], signal.SIGALRM, "setitimer")
    raises(KeyboardInterrupt, lambda: (signal.raise_signal(signal.SIGINT), time.sleep(5)), "SIGINT")
    check(signal.sigtimedwait([signal.SIGUSR2], 0.02), None, "sigtimedwait")


def memory():
    with open("map", "w+b") as file:
        file.truncate(3 * mmap.PAGESIZE)
        with mmap.mmap(file.fileno(), 0) as shared:
            shared[5000:5005] = b"hello"
            shared.flush()
            check(os.pread(file.fileno(), 5, 5000), b"hello", "a shared mapping")
            check(shared.find(b"hello"), 5000, "find in a mapping")
            shared.resize(5 * mmap.PAGESIZE)
            check(os.fstat(file.fileno()).st_size, 5 * mmap.PAGESIZE, "resize")
    anonymous = mmap.mmap(-1, 8192)
    pid = os.fork()
    if pid == 0:
        anonymous[0:5] = b"child"
        os._exit(0)
    os.waitpid(pid, 0)
    check(anonymous[0:5], b"child", "shared memory over fork")
    block = bytearray(60_000_000)
    block[59_999_999] = 1
    check(sum(block[-10:]), 1, "sixty megabytes")


def files():
    with open("f", "w") as file:
        file.write("text")
    check(stat.S_IMODE(os.stat("f").st_mode) & 0o400, 0o400, "mode")
    os.link("f", "g")
    check(os.stat("g").st_nlink, 2, "nlink")
    os.rename("g", "h")
    os.symlink("h", "s")
    check(os.readlink("s"), "h", "readlink")
    raises(FileExistsError, lambda: os.mkdir("f"), "mkdir over a file")
    raises(NotADirectoryError, lambda: os.listdir("f"), "listdir of a file")
    os.makedirs("a/b/c")
    raises(OSError, lambda: os.rmdir("a"), "rmdir of a full directory")
    check(sorted(e.name for e in os.scandir(".") if e.is_dir()), ["a"], "scandir")
    shutil.copytree("a", "copy")
    shutil.rmtree("a")
    check(os.path.isdir("copy/b/c"), True, "copytree")
    os.utime("f", ns=(1_000, 2_000_000_000))
    check(os.stat("f").st_mtime_ns, 2_000_000_000, "utime")
    fd = os.open(".", os.O_RDONLY)
    check(os.stat("f", dir_fd=fd).st_size, 4, "dir_fd")
    os.close(fd)
    with tempfile.TemporaryFile() as file:
        file.write(b"x" * 100_000)
        file.seek(0)
        check(len(file.read()), 100_000, "a temporary file")
    check(os.cpu_count() >= 1 and len(os.sched_getaffinity(0)) >= 1, True, "processors")
    check(len(os.urandom(100)), 100, "urandom")
    r, w = os.pipe()
    os.set_blocking(r, False)
    raises(BlockingIOError, lambda: os.read(r, 1), "a pipe that would block")
    os.close(w)
    check(os.read(r, 1), b"", "end of a pipe")
    master, slave = os.openpty()
    check(os.isatty(slave), True, "a terminal")
    os.write(slave, b"out\n")
    check(os.read(master, 100), b"out\r\n", "output of a terminal")


def sockets():
    a, b = socket.socketpair()
    with selectors.DefaultSelector() as selector:
        selector.register(a, selectors.EVENT_READ, "a")
        check(selector.select(0), [], "nothing to read")
        b.send(b"x")
        check([key.data for key, _ in selector.select(5)], ["a"], "something to read")
    check(a.recv(10), b"x", "recv")
    a.settimeout(0.05)
    raises(TimeoutError, lambda: a.recv(1), "a timeout")
    server = socket.socket(socket.AF_UNIX)
    server.bind("sock")
    server.listen()

    def serve():
        connection, _ = server.accept()
        with connection:
            while data := connection.recv(100):
                connection.sendall(data.upper())

    worker = threading.Thread(target=serve)
    worker.start()
    with socket.socket(socket.AF_UNIX) as client:
        client.connect("sock")
        client.sendall(b"shout")
        check(client.recv(100), b"SHOUT", "an echo server")
    worker.join()
    with open("passed", "w+") as file:
        socket.send_fds(a, [b"fd"], [file.fileno()])
        data, fds, _, _ = socket.recv_fds(b, 10, 1)
        check((data, os.path.samestat(os.fstat(fds[0]), os.fstat(file.fileno()))), (b"fd", True), "a passed descriptor")
    poll = select.epoll()
    poll.register(b, select.EPOLLIN)
    check(poll.poll(0.01), [], "epoll timeout")
    a.close()
    check(poll.poll(5)[0][1] & select.EPOLLHUP != 0, True, "epoll hang-up")


def many():
    try:
        import multiprocessing
        from concurrent.futures import ThreadPoolExecutor
    except ImportError:
        return
    with ThreadPoolExecutor(4) as pool:
        check(sum(pool.map(lambda n: n * n, range(100))), 328350, "a pool of threads")
    context = multiprocessing.get_context("fork")
    try:
        queue = context.Queue()
    except (ImportError, OSError) as error:
        if isinstance(error, OSError) and error.errno not in (errno.ENOSYS, errno.EACCES):
            raise
        return
    workers = [context.Process(target=lambda n=n: queue.put(n * n)) for n in range(4)]
    for worker in workers:
        worker.start()
    check(sorted(queue.get(timeout=30) for _ in workers), [0, 1, 4, 9], "a queue between processes")
    for worker in workers:
        worker.join()
        check(worker.exitcode, 0, "exit code of a worker")


def main():
    directory = tempfile.mkdtemp(prefix="python-test.")
    os.chdir(directory)
    try:
        for part in (processes, threads, signals, memory, files, sockets, many):
            part()
    finally:
        os.chdir("/")
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main()
