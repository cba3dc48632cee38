#!/usr/bin/env python3
"""python and libseccomp: filters as sandboxes build them, and a supervisor that answers."""
import errno
import os
import signal
import subprocess
import sys
import threading

try:
    import seccomp
except ImportError:
    print("no python3-seccomp here")
    sys.exit(77)
from seccomp import ALLOW, ERRNO, KILL_PROCESS, LOG, NOTIFY, TRAP, Arg, Attr, SyscallFilter


def check(got, want, what):
    if got != want:
        print(f"failed: {what}: got {got!r}, not {want!r}")
        sys.exit(1)


def in_child(work):
    """Returns the wait status of a child that does the work."""
    child = os.fork()
    if child == 0:
        try:
            work()
        except BaseException as error:
            os.write(2, f"{error!r}\n".encode())
            os._exit(1)
        os._exit(0)
    return os.waitpid(child, 0)[1]


def fails(call, number, what):
    try:
        call()
    except OSError as error:
        check(error.errno, number, what)
        return
    print(f"failed: {what} did not fail")
    sys.exit(1)


def library():
    """What the library finds out about the kernel: all it knows of 6.1."""
    check(seccomp.get_api() >= 6, True, f"the API level {seccomp.get_api()}")


def deny_list():
    def work():
        rules = SyscallFilter(ALLOW)
        rules.add_rule(ERRNO(errno.EPERM), "socket")
        rules.add_rule(ERRNO(errno.ENOTTY), "ioctl", Arg(1, seccomp.EQ, 0x5413))
        rules.add_rule(ERRNO(errno.EACCES), "kill", Arg(1, seccomp.NE, 0), Arg(0, seccomp.GT, 1))
        rules.load()
        import socket
        fails(lambda: socket.socket(), errno.EPERM, "a socket")
        os.kill(os.getpid(), 0)
        fails(lambda: os.kill(os.getpid(), signal.SIGTERM), errno.EACCES, "a signal")
        with open("/proc/self/status") as status:
            lines = dict(line.split(":\t", 1) for line in status if ":\t" in line)
        check(lines["Seccomp"].strip(), "2", "the mode")
        check(lines["NoNewPrivs"].strip(), "1", "the promise")
        # A shell and what it starts have the filter, too.
        text = subprocess.run(["sh", "-c", "kill -TERM $$ 2>&1; echo still | cat"],
                              capture_output=True, text=True).stdout
        check("still" in text, True, f"the shell goes on: {text!r}")

    check(in_child(work), 0, "a list of what is refused")


def allow_list():
    """The other way round, as a sandbox: some calls, and whoever makes another one is killed."""
    def work(extra):
        ends = os.pipe()
        rules = SyscallFilter(KILL_PROCESS)
        for name in ("read", "write", "close", "exit_group", "rt_sigaction", "munmap", "brk",
                     "mmap", "futex", "rt_sigreturn", "rt_sigprocmask", "getpid", "madvise"):
            rules.add_rule(ALLOW, name)
        rules.set_attr(Attr.CTL_LOG, 1)
        rules.load()
        os.write(ends[1], b"hello")
        if os.read(ends[0], 9) != b"hello":
            os._exit(3)
        extra()

    check(in_child(lambda: work(lambda: None)), 0, "what is allowed")
    status = in_child(lambda: work(lambda: os.getppid()))
    check(os.WIFSIGNALED(status) and os.WTERMSIG(status), signal.SIGSYS, "what is not")


def a_large_filter():
    """Hundreds of rules as a binary tree: each of them says what it shall."""
    names = [seccomp.resolve_syscall(seccomp.Arch.X86_64, number) for number in range(100, 330)]
    names = [name.decode() if isinstance(name, bytes) else name for name in names if name]
    left = ("exit_group", "futex", "getppid", "epoll_wait")

    def work():
        rules = SyscallFilter(ALLOW)
        rules.set_attr(Attr.CTL_OPTIMIZE, 2)
        for name in names:
            if name not in left and hasattr(os, name):
                rules.add_rule(ERRNO(77), name)
        rules.add_rule(LOG, "getppid")
        rules.load()
        fails(lambda: os.chroot("/"), 77, "chroot")
        check(os.getppid() > 0, True, "getppid")

    check(in_child(work), 0, "a large filter")


def traps():
    def work():
        got = []
        signal.signal(signal.SIGSYS, lambda number, frame: got.append(number))
        rules = SyscallFilter(ALLOW)
        rules.add_rule(TRAP, "getpgrp")
        rules.load()
        os.getpgrp()
        check(got, [signal.SIGSYS], "the signal of a trap")

    check(in_child(work), 0, "traps")


def threads():
    """All threads get the filter."""
    def work():
        go, told = threading.Event(), []

        def other():
            go.wait()
            try:
                os.getpriority(os.PRIO_PROCESS, 0)
                told.append(0)
            except OSError as error:
                told.append(error.errno)

        others = [threading.Thread(target=other) for _ in range(4)]
        for thread in others:
            thread.start()
        rules = SyscallFilter(ALLOW)
        rules.set_attr(Attr.CTL_TSYNC, 1)
        rules.add_rule(ERRNO(66), "getpriority")
        rules.load()
        go.set()
        for thread in others:
            thread.join()
        check(told, [66] * 4, "all threads are refused")

    check(in_child(work), 0, "threads")


def supervisor():
    """A supervisor answers for a program that asks for priorities."""
    rules = SyscallFilter(ALLOW)
    rules.add_rule(NOTIFY, "getpriority")
    rules.load()
    listener = rules.get_notify_fd()
    child = os.fork()
    if child == 0:
        os.close(listener)
        ok = os.getpriority(os.PRIO_PROCESS, 4) == 15
        try:
            os.getpriority(os.PRIO_PROCESS, 5)
            ok = False
        except OSError as error:
            ok = ok and error.errno == errno.EXDEV
        os._exit(0 if ok else 1)
    for _ in range(2):
        asked = rules.receive_notify()
        check(asked.pid, child, "who asks")
        if asked.syscall_args[1] == 4:
            rules.respond_notify(seccomp.NotificationResponse(asked, 5, 0, 0))
        else:
            rules.respond_notify(seccomp.NotificationResponse(asked, 0, -errno.EXDEV, 0))
    check(os.waitpid(child, 0)[1], 0, "the answers arrive")


library()
deny_list()
allow_list()
a_large_filter()
traps()
threads()
supervisor()
