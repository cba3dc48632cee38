"""Shared by disks.py and file_systems.py, which are executed behind it."""
import errno


def fails(what, *numbers):
    try:
        what()
    except OSError as error:
        names = [errno.errorcode[number] for number in numbers]
        assert error.errno in numbers, f"{error}, not {names}"
        return
    raise AssertionError("no error")


def pattern(number, count=4096):
    line = b"%08d of the disk\n" % number
    return (line * (count // len(line) + 1))[:count]


