"""Makes the Python that runs it a template of Hayate (docs/templates.md).

    template make py --python=json,re,datetime
    template start py -- script.py one two
    template bind /usr/bin/python3 py

A start behaves as `python3 [-u] script args`, `-c` or `-m` does, with these differences: modules
that were preloaded are there, hash seeds are the template's, `sys.flags` shows the template's
flags, and at its end it runs exit handlers and flushes, but does not tear the interpreter down.
A program may call ready() itself, after whatever takes long; it returns in each start.
"""

import atexit
import builtins
import ctypes
import errno
import gc
import io
import operator
import os
import runpy
import signal
import stat
import struct
import sys
import threading
import types

# Part of every start, so it is there.
import importlib.machinery
import traceback

READY = 1020
SERVES = b"""option -u
last -c
last -m
script
same PYTHON*
same LANG
same LC_*
same HOME
same TZ
"""


class _Start(ctypes.Structure):
    """struct hayate_start of hayate.h."""

    _fields_ = [
        ("arguments", ctypes.c_void_p),
        ("argument_count", ctypes.c_uint64),
        ("environment", ctypes.c_void_p),
        ("environment_count", ctypes.c_uint64),
        ("strings", ctypes.c_void_p),
        ("arguments_size", ctypes.c_uint64),
        ("environment_size", ctypes.c_uint64),
        ("path", ctypes.c_void_p),
        ("random", ctypes.c_uint64 * 2),
    ]


class _Template(ctypes.Structure):
    """struct hayate_template of hayate.h."""

    _fields_ = [
        ("name", ctypes.c_char_p),
        ("start", ctypes.POINTER(_Start)),
        ("serves", ctypes.c_char_p),
        ("files", ctypes.c_char_p),
    ]


_libc = ctypes.CDLL(None, use_errno=True)
_environ = ctypes.c_void_p.in_dll(_libc, "environ")
_write_out_stdio = _libc.fflush
_write_out_stdio.argtypes = [ctypes.c_void_p]
# Unlike os.lseek it makes no exception where there is no position: that takes 5,000 instructions.
_position = _libc.lseek
_position.restype = ctypes.c_int64
# The start, as an object of ctypes and as bytes, whose words are read faster.
_block = bytearray(ctypes.sizeof(_Start))
_start = _Start.from_buffer(_block)
_words = struct.Struct("7Q").unpack_from
_decoded = operator.methodcaller(
    "decode", sys.getfilesystemencoding(), sys.getfilesystemencodeerrors()
)
# An interpreter adapts a function to what it is called with (PEP 659): after eight calls it begins,
# and some more are needed for all that follows from that.
_ROUNDS = 16


def _files():
    """The files of the modules that are loaded, a line each."""
    files = []
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if isinstance(file, str) and "\n" not in file:
            files.append(os.path.abspath(file))
    return "\n".join(sorted(set(files))).encode(errors="surrogateescape")[:65000]


def ready(name=None):
    """Makes this process the template `name` (by default $HAYATE_TEMPLATE) and ends it.

    Returns in each start: its arguments, the program's name first. The environment and the
    standard streams are the start's then. OSError says what forbids it; docs/templates.md lists
    the errors.
    """
    name = os.environ.get("HAYATE_TEMPLATE") if name is None else name
    if not name:
        raise ValueError("the template needs a name; `template make NAME -- ...` gives it")
    above = [int(fd) for fd in os.listdir("/proc/self/fd") if int(fd) > 2]
    above = [fd for fd in above if os.path.exists("/proc/self/fd/%d" % fd)]
    if above:
        raise OSError(24, "a template must have no open files; descriptors %s are open" % above)
    _rehearse_return()
    sys.stdout.flush()
    sys.stderr.flush()
    gc.collect()
    _note_types()
    # The collector writes to each object that it looks at: starts share these pages.
    gc.freeze()
    template = _Template(name.encode(), ctypes.pointer(_start), SERVES, _files())
    if _libc.syscall(READY, ctypes.byref(template), ctypes.sizeof(template)) != 0:
        error = ctypes.get_errno()
        hint = "; this kernel has no templates" if error == 38 else ""
        raise OSError(error, os.strerror(error) + hint)
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        _flush()
        os._exit(0)
    if not _start.arguments:
        os._exit(0)
    return _renew()


def _renew():
    """Takes over what this start was started with; returns its arguments."""
    _, count, environment, environment_count, strings, size, environment_size = _words(_block)
    texts = ctypes.string_at(strings, size + environment_size).split(b"\0")
    # The C library has the vector.
    _environ.value = environment
    _renew_environment(texts[count : count + environment_count])
    arguments = list(map(_decoded, texts[:count]))
    sys.orig_argv = arguments
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        # It has no handler for forks.
        numpy.random.seed()
    return arguments


def _renew_environment(variables):
    """Fills `os.environ` as `os` does: the first variable of a name counts, none without "="."""
    data = os.environ._data
    data.clear()
    for variable in variables:
        name, equals, value = variable.partition(b"=")
        if equals and name not in data:
            data[name] = value


def _rehearse_return():
    """Does what a start does until ready() returns, so that it finds the code adapted and memory
    at hand. Nothing is different afterwards."""
    data, arguments = os.environ._data, sys.orig_argv
    before, environment = list(data.items()), _environ.value
    variables = [name + b"=" + value for name, value in before]
    texts = [os.fsencode(text) for text in arguments]
    parts = [b"\0".join([*part, b""]) for part in (texts, variables)]
    strings = ctypes.create_string_buffer(parts[0] + parts[1])
    _start.argument_count, _start.environment_count = len(texts), len(variables)
    _start.arguments_size, _start.environment_size = map(len, parts)
    _start.environment, _start.strings = environment, ctypes.addressof(strings)
    for _ in range(_ROUNDS):
        _renew()
        _rehearse_threads()
    ctypes.memset(ctypes.addressof(_start), 0, len(_block))
    _environ.value, sys.orig_argv = environment, arguments
    data.clear()
    data.update(before)


def _rehearse_threads():
    """The end of threads, and what `threading` does after a fork."""
    main = threading.main_thread()
    lock = getattr(main, "_tstate_lock", None)
    if lock is None or threading.active_count() > 1 or threading._threading_atexits:
        # A later Python, or it would call what only an end may call.
        return
    threading._shutdown()
    main._is_stopped, main._tstate_lock = False, lock
    lock.acquire()
    threading._SHUTTING_DOWN = False
    threading._after_fork()


# The encodings and error handlers of the streams, which the environment decides.
_kinds = [
    (stream.encoding, stream.errors) if stream is not None else ("utf-8", "strict")
    for stream in (sys.stdin, sys.stdout, sys.stderr)
]
_names = ["<stdin>", "<stdout>", "<stderr>"]


def _stream(number, unbuffered, is_terminal=None):
    """A standard stream, made as the interpreter makes it (create_stdio, Python/pylifecycle.c)."""
    mode = "w" if number else "r"
    try:
        raw = buffer = io.FileIO(number, mode, closefd=False)
    except OSError:
        return None
    raw.name = _names[number]
    if mode == "r":
        buffer = io.BufferedReader(raw)
    elif not unbuffered:
        buffer = io.BufferedWriter(raw)
    if is_terminal is None:
        is_terminal = raw.isatty()
    line = not unbuffered and (number == 2 or is_terminal)
    text = io.TextIOWrapper(
        buffer, *_kinds[number], "\n", line_buffering=line, write_through=unbuffered
    )
    text.mode = mode
    return text


# What tells one standard stream from another, but for the number: what it can do with its file.
_PIPE, _FILE, _TERMINAL = range(3)
# For each standard stream one of each kind, made before: making one takes 20,000 instructions.
_prepared = []


def _prepare_streams():
    """Makes the standard streams of all starts, of each kind."""
    if any(kind[0].lower() not in ("utf-8", "ascii", "iso8859-1") for kind in _kinds):
        # Others may begin with a mark, depending on the position in the file.
        return
    try:
        kept = [os.dup(number) for number in range(3)]
    except OSError:
        return
    ends = os.pipe()
    files = [ends[0], os.open(os.devnull, os.O_RDWR), ends[0]]
    for number in range(3):
        texts = []
        for kind, file in enumerate(files):
            os.dup2(file if number == 0 or file != ends[0] else ends[1], number)
            texts.append(_stream(number, False, kind == _TERMINAL))
        os.dup2(kept[number], number)
        _prepared.append(texts)
    for file in {*kept, *ends, *files}:
        os.close(file)


def _standard(number, unbuffered):
    """A standard stream of this start."""
    if unbuffered or not _prepared:
        return _stream(number, unbuffered)
    texts = _prepared[number]
    if os.isatty(number):
        return texts[_TERMINAL]
    if _position(number, 0, os.SEEK_CUR) < 0:
        if ctypes.get_errno() == errno.ESPIPE:
            return texts[_PIPE]
    elif not stat.S_ISDIR(os.fstat(number).st_mode):
        # It takes note of the position.
        texts[_FILE].buffer.tell()
        return texts[_FILE]
    return _stream(number, unbuffered)


def _streams(unbuffered):
    sys.stdin = sys.__stdin__ = _standard(0, unbuffered)
    sys.stdout = sys.__stdout__ = _standard(1, unbuffered)
    sys.stderr = sys.__stderr__ = _standard(2, unbuffered)


def _flush():
    """Flushes the standard streams; whether that worked."""
    good = True
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None and not stream.closed:
                stream.flush()
        except Exception:
            good = stream is sys.stderr and good
    return good


_BUFFERED = (io.BufferedWriter, io.TextIOWrapper, io.BufferedRandom)
# Types that are none of these, so that most objects need not be looked at.
_plain = set()


def _note_types():
    """Notes the types that are there and have no buffers."""
    kinds = [object]
    for kind in kinds:
        if type(kind) is type and kind not in _plain and not issubclass(kind, _BUFFERED):
            _plain.add(kind)
            kinds += type.__subclasses__(kind)


def _write_out():
    """Writes out what is in buffers of files that the program has opened."""
    things = gc.get_objects()
    try:
        others = set(map(type, things)) - _plain
    except Exception:
        # A class of which no set can be made.
        others = _BUFFERED
    if not any(issubclass(kind, _BUFFERED) for kind in others):
        return
    for thing in things:
        if issubclass(type(thing), _BUFFERED):
            try:
                if not thing.closed and thing.fileno() > 2:
                    thing.flush()
            except Exception:
                pass


def _end_program():
    """What is left when threads and exit handlers have ended; whether all could be written."""
    good = _flush()
    main = sys.modules.get("__main__")
    if main is not None and main is not sys.modules.get("hayate_template"):
        # Objects that only the program holds end here, as they would; files are written out.
        main.__dict__.clear()
    _write_out()
    good = _flush() and good
    _write_out_stdio(None)
    return good


def _leave(status):
    """Ends the process: threads, exit handlers, and what is still in buffers."""
    try:
        threading._shutdown()
    except BaseException:
        sys.excepthook(*sys.exc_info())
    atexit._run_exitfuncs()
    good = _end_program()
    os._exit(status if good or status else 120)


def _main():
    """A new module `__main__`."""
    sys.modules["__main__"] = main = types.ModuleType("__main__")
    main = main.__dict__
    main["__builtins__"] = builtins
    main["__annotations__"] = {}
    return main


def _run_inside(folder):
    """Runs the module `__main__` of a folder or an archive."""
    sys.path.insert(0, folder)
    _main()
    runpy._run_module_as_main("__main__", False)


def _run_script(script, arguments):
    # As _Py_abspath (Python/fileutils.c).
    shown = script if script.startswith("/") else os.getcwd() + "/" + script
    try:
        fd = os.open(script, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        print(
            "%s: can't open file %r: [Errno %d] %s"
            % (sys.executable, shown, error.errno, error.strerror),
            file=sys.stderr,
        )
        return 2
    sys.argv = [script, *arguments]
    try:
        source = part = os.read(fd, 65536)
        while part:
            part = os.read(fd, 65536)
            source += part
        # The directory of the file itself, wherever links lead.
        path = os.readlink("/proc/self/fd/%d" % fd)
    except IsADirectoryError:
        source = None
    finally:
        os.close(fd)
    if source is None or source.startswith(b"PK\3\4"):
        _run_inside(shown)
        return 0
    sys.path.insert(0, path[: path.rfind("/")] or "/" if path.startswith("/") else "")
    main = _main()
    main["__file__"] = shown
    main["__cached__"] = None
    main["__loader__"] = importlib.machinery.SourceFileLoader("__main__", shown)
    code = compile(source, shown, "exec", dont_inherit=True)
    try:
        exec(code, main)
    finally:
        # As flush_io of Python/pythonrun.c, before what went wrong is shown.
        _flush()
    return 0


def _run(arguments):
    """Does what `python3` does with these arguments; returns the status."""
    arguments = arguments[1:]
    while arguments and arguments[0] == "-u":
        del arguments[0]
    what = arguments[0] if arguments else "-"
    if what == "-c" and len(arguments) > 1:
        sys.argv = ["-c", *arguments[2:]]
        sys.path.insert(0, "")
        main = _main()
        main["__loader__"] = importlib.machinery.BuiltinImporter
        exec(compile(arguments[1] + "\n", "<string>", "exec", dont_inherit=True), main)
    elif what == "-m" and len(arguments) > 1:
        sys.argv = ["-m", *arguments[2:]]
        sys.path.insert(0, os.getcwd())
        _main()
        runpy._run_module_as_main(arguments[1])
    elif what.startswith("-"):
        print(
            "hayate_template: a start by name takes a script, -c or -m, not %r" % what,
            file=sys.stderr,
        )
        return 2
    else:
        return _run_script(what, arguments[1:])
    return 0


def _exit_status(code):
    """As handle_system_exit of Python/pythonrun.c."""
    if code is None:
        return 0
    if isinstance(code, int):
        return code & 0xFF
    sys.stdout and sys.stdout.flush()
    print(code, file=sys.stderr)
    return 1


def _begin(arguments):
    """One start, to its end."""
    _streams("-u" in arguments[1:2])
    try:
        status = _run(arguments)
    except SystemExit as leaving:
        status = _exit_status(leaving.code)
    except KeyboardInterrupt:
        _say_error()
        _flush()
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
        status = 130
    except BaseException:
        _say_error()
        status = 1
    _leave(status)


def _say_error():
    """Shows what ended the program, without the frames of this module."""
    kind, error, trace = sys.exc_info()
    own = {__file__, runpy.__file__}
    while trace is not None and trace.tb_frame.f_code.co_filename in own:
        trace = trace.tb_next
    if trace is None and isinstance(error, SyntaxError):
        error.__traceback__ = None
    sys.last_type, sys.last_value, sys.last_traceback = kind, error, trace
    try:
        sys.excepthook(kind, error.with_traceback(trace), trace)
    except SystemExit as leaving:
        _leave(_exit_status(leaving.code))
    except BaseException:
        traceback.print_exc()


def _exercise_json(json):
    json.loads(json.dumps({"a": [1, 2.5, "b", None, True]}, indent=1))


def _exercise_re(re):
    kept = dict(re._cache)
    pattern = r"^(a|[b-d\s]+?)\w*(?P<name>x{2,3})$|(?:\d\.)*"
    re.sub(pattern, r"\1", "a b 1. axx", flags=re.MULTILINE)
    re._cache.clear()
    re._cache.update(kept)


# For modules whose Python code many programs run through.
_EXERCISES = {"json": _exercise_json, "re": _exercise_re}


def _rehearse():
    """Runs empty programs, as starts do, and what is common in the modules that are loaded."""
    kept = sys.argv, sys.path[:], sys.modules["__main__"]
    exercises = [(sys.modules[name], run) for name, run in _EXERCISES.items() if name in sys.modules]
    for _ in range(_ROUNDS):
        for arguments in (["", os.devnull], ["", "-c", ""]):
            _streams(False)
            _run(arguments)
            _end_program()
        for module, exercise in exercises:
            exercise(module)
    sys.argv, sys.path[:], sys.modules["__main__"] = kept


def main():
    """The command line: `python3 hayate_template.py [--preload MODULE,...]`."""
    modules = []
    arguments = sys.argv[1:]
    while arguments:
        word = arguments.pop(0)
        if word == "--preload" and arguments:
            modules += arguments.pop(0).split(",")
        elif word.startswith("--preload="):
            modules += word[len("--preload=") :].split(",")
        else:
            sys.exit("usage: template make NAME --python[=MODULE,...]")
    for module in filter(None, modules):
        __import__(module)
    # The folder of this file: each start has its own.
    del sys.path[0]
    _prepare_streams()
    _rehearse()
    try:
        arguments = ready()
    except (OSError, ValueError) as error:
        sys.exit("hayate_template: %s" % error)
    _begin(arguments)


if __name__ == "__main__":
    # The module is to be found by its name in the starts, too.
    sys.modules["hayate_template"] = sys.modules["__main__"]
    main()
