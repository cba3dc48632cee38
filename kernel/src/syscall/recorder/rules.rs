//! What each system call means for an image.

use alloc::vec::Vec;

use hayate_abi::Result;
use hayate_abi::process::Sysinfo;
use hayate_machine::trap::UserRegs;
use hayate_machine::user;
use hayate_machine::user::UserPtr;

use super::tree;
use super::tree::Found;
use crate::process::Thread;
use crate::process::images::held::{Own, OwnFile};
use crate::process::images::question::{Answer, Question};
use crate::process::images::recording::Recording;
use crate::reclaim::growth::Grow;
use crate::syscall::argument::Returned;
use crate::syscall::file;
use crate::syscall::file::{View, descriptors, metadata};
use crate::vfs::attributes::FileKind;
use crate::vfs::mount::Location;
use crate::vfs::open_file::flags::{
    O_ACCMODE, O_CREAT, O_DIRECTORY, O_NOFOLLOW, O_PATH, O_TMPFILE, O_TRUNC,
};
use crate::vfs::path::WalkFlags;

/// What a call means.
pub enum Verdict {
    /// It is carried out, and the recording goes on.
    Goes(After),
    /// It was carried out with this result, by the walk that noted what it sees: the recording goes
    /// on.
    Done(i64, After),
    /// It is the horizon.
    Horizon,
}

/// What a recording does after a call.
pub enum After {
    /// Nothing.
    Nothing,
    /// The result is a descriptor of this.
    Opened(OwnFile),
    /// The program closed this descriptor.
    Closed(i32),
    /// The result is another descriptor for the file of this one.
    Copied(i32),
    /// The program asked how memory and processors are used, at this address.
    Measured(usize),
    /// The program drew random bytes, to this address.
    Drew(usize),
}

const PLAIN: Verdict = Verdict::Goes(After::Nothing);

/// Judges a call by its number and arguments.
pub fn judge(thread: &Thread, regs: &UserRegs<'_>, recording: &mut Recording) -> Result<Verdict> {
    let [a, b, c, d, e, _] = regs.arguments();
    let here = hayate_abi::file::AT_FDCWD;
    let (fd, flags) = (a as i32, |flags: u64| flags as u32);
    match regs.orig_rax {
        // Memory: brk, mprotect, munmap, mremap, madvise.
        12 | 10 | 11 | 25 | 28 => Ok(PLAIN),
        // mmap
        9 => Ok(map(recording, flags(c), flags(d), e as i32)),
        // Signals and the thread: rt_sigaction, rt_sigprocmask, sigaltstack, arch_prctl,
        // set_tid_address, set_robust_list, rseq.
        13 | 14 | 131 | 158 | 218 | 273 | 334 => Ok(PLAIN),
        // futex: only waking, which nobody waits for.
        202 if flags(b) & 127 == 1 => Ok(PLAIN),
        // Numbers that are filled in at a start: getpid, gettid.
        39 | 186 => {
            recording.note_varying();
            Ok(PLAIN)
        }
        // Credentials, which are part of the key.
        102 | 104 | 107 | 108 | 118 | 120 | 115 => Ok(PLAIN),
        // Limits, likewise: getrlimit, prlimit64 of its own, without a new one.
        97 => Ok(PLAIN),
        302 if a == 0 && c == 0 => Ok(PLAIN),
        // Relatives: getppid, getpgrp, getpgid and getsid of its own.
        110 => ask(thread, recording, Question::Parent),
        111 => ask(thread, recording, Question::Group),
        121 if a == 0 => ask(thread, recording, Question::Group),
        124 if a == 0 => ask(thread, recording, Question::Session),
        // uname
        63 => ask(thread, recording, Question::Names),
        // sysinfo
        99 => {
            recording.note_varying();
            Ok(Verdict::Goes(After::Measured(a as usize)))
        }
        // getrandom
        318 => Ok(Verdict::Goes(After::Drew(a as usize))),
        // Files by name.
        2 => open(thread, recording, (here, a), flags(b)),
        257 => open(thread, recording, (fd, b), flags(c)),
        4 => status(thread, recording, (here, a), (b, 0)),
        6 => status(thread, recording, (here, a), (b, file::at::SYMLINK_NOFOLLOW)),
        21 => access(recording, (here, a), (flags(b), 0)),
        269 => access(recording, (fd, b), (flags(c), 0)),
        439 => access(recording, (fd, b), (flags(c), flags(d))),
        137 => room(recording, a),
        89 => link(thread, recording, (here, a)),
        267 => link(thread, recording, (fd, b)),
        262 => status(thread, recording, (fd, b), (c, flags(d))),
        332 => extended_status(thread, recording, (fd, b), flags(c)),
        79 => above(recording, thread.directories()?.working()),
        // socket, connect
        41 => Ok(socket(recording, a, b)),
        42 => connect(recording, fd, b, c),
        // getpeername
        52 => peer(thread, recording, fd),
        // Files by descriptor.
        0 if recording.owned(fd) == Some(OwnFile::Random) => {
            Ok(Verdict::Goes(After::Drew(b as usize)))
        }
        3 => Ok(close(thread, recording, fd)),
        5 => described(thread, recording, fd, Question::File(fd)),
        0 | 17 | 19 | 217 | 221 if recording.owned(fd) == Some(OwnFile::File) => Ok(PLAIN),
        8 => seek(thread, recording, fd, b, c),
        // dup, dup2, dup3
        32 => Ok(copy(thread, recording, fd, None)),
        33 | 292 => Ok(copy(thread, recording, fd, Some(b as i32))),
        72 => control(thread, recording, fd, (b, c)),
        16 => device(thread, recording, fd, flags(b)),
        _ => Ok(Verdict::Horizon),
    }
}

/// Notes a question and its answer.
fn ask(thread: &Thread, recording: &mut Recording, question: Question) -> Result<Verdict> {
    let answer = Answer::now(question, thread);
    if !recording.answers.iter().any(|known| known.question == question) {
        recording.answers.make_room(1)?;
        recording.answers.push(answer);
    }
    Ok(PLAIN)
}

/// A call about a descriptor: of the program's own file, or a question about an inherited one.
fn described(
    thread: &Thread,
    recording: &mut Recording,
    fd: i32,
    question: Question,
) -> Result<Verdict> {
    if recording.owns(fd) { Ok(PLAIN) } else { ask(thread, recording, question) }
}

fn map(recording: &Recording, protection: u32, flags: u32, fd: i32) -> Verdict {
    const SHARED: u32 = 1;
    const PRIVATE: u32 = 2;
    const KIND: u32 = 15;
    const WRITE: u32 = 2;
    const ANONYMOUS: u32 = 0x20;
    const LOCKED: u32 = 0x2000;
    let private = flags & KIND == PRIVATE;
    let plain = if flags & LOCKED != 0 {
        false
    } else if flags & ANONYMOUS != 0 {
        private
    } else {
        // A file that was opened for reading cannot be mapped to be written.
        recording.owned(fd) == Some(OwnFile::File)
            && (private || (flags & KIND == SHARED && protection & WRITE == 0))
    };
    if plain { PLAIN } else { Verdict::Horizon }
}

/// How a walk treats the last component, by the flags of the *at calls.
fn walk(flags: u32) -> WalkFlags {
    let mut walk = WalkFlags::empty();
    walk.set(WalkFlags::NOFOLLOW, flags & file::at::SYMLINK_NOFOLLOW != 0);
    walk.set(WalkFlags::EMPTY, flags & file::at::EMPTY_PATH != 0);
    walk
}

/// A call that looks at the file of a path.
fn look(recording: &mut Recording, at: (i32, u64), flags: WalkFlags) -> Result<Verdict> {
    Ok(match look_as(recording, (&View::current()?, true), at, flags)? {
        Some(_) => PLAIN,
        None => Verdict::Horizon,
    })
}

/// The same with the rights of a view ([`tree::look`]); returns what the call finds. `None`: it is
/// a horizon.
fn look_as(
    recording: &mut Recording,
    view: (&View, bool),
    at: (i32, u64),
    flags: WalkFlags,
) -> Result<Option<Result<Location>>> {
    let Ok(path) = file::path(at.1 as usize) else { return Ok(None) };
    if path.is_empty() {
        return Ok(None);
    }
    Ok(match tree::look(recording, view, (at.0, &path), flags)? {
        (Found::Foreign, _) => None,
        (Found::Nothing | Found::Random | Found::File(..), place) => Some(place),
    })
}

/// `faccessat2(2)` and its like: the answer is that of the real user, who comes to other
/// directories and files than the effective one.
fn access(recording: &mut Recording, at: (i32, u64), (mode, flags): (u32, u32)) -> Result<Verdict> {
    const MODES: u32 = 7;
    const FLAGS: u32 = file::at::EACCESS | file::at::SYMLINK_NOFOLLOW | file::at::EMPTY_PATH;
    if mode & !MODES != 0 || flags & !FLAGS != 0 {
        // EINVAL, whatever the path leads to.
        return Ok(PLAIN);
    }
    let effective = flags & file::at::EACCESS != 0;
    let view = if effective { View::current()? } else { View::with_real_ids()? };
    let Some(found) = look_as(recording, (&view, effective), at, walk(flags))? else {
        return Ok(Verdict::Horizon);
    };
    let allowed = found.and_then(|place| metadata::check_access(view.credentials(), &place, mode));
    Ok(Verdict::Done(allowed.to_register(), After::Nothing))
}

/// `statfs(2)`: how much room a file system has is changed by every file on it. What is not there
/// stays so until its name appears.
fn room(recording: &mut Recording, path: u64) -> Result<Verdict> {
    let Ok(path) = file::path(path as usize) else { return Ok(Verdict::Horizon) };
    let here = hayate_abi::file::AT_FDCWD;
    match tree::look(recording, (&View::current()?, true), (here, &path), WalkFlags::empty())? {
        (Found::Nothing, _) => Ok(PLAIN),
        (Found::Foreign | Found::Random | Found::File(..), _) => Ok(Verdict::Horizon),
    }
}

/// `readlink(2)`
fn link(thread: &Thread, recording: &mut Recording, at: (i32, u64)) -> Result<Verdict> {
    if let Ok(path) = file::path(at.1 as usize)
        && &*path == b"/proc/self/exe"
        && let Some(program) = thread.process().executable()
    {
        return above(recording, program.location().clone());
    }
    look(recording, at, WalkFlags::NOFOLLOW)
}

/// A call that returns the path of a place, which the key names by its identity.
fn above(recording: &mut Recording, place: Location) -> Result<Verdict> {
    Ok(if tree::note_above(recording, place)? { PLAIN } else { Verdict::Horizon })
}

/// `newfstatat(2)` and its like.
fn status(
    thread: &Thread,
    recording: &mut Recording,
    at: (i32, u64),
    (buffer, flags): (u64, u32),
) -> Result<Verdict> {
    const FLAGS: u32 = file::at::SYMLINK_NOFOLLOW | file::at::NO_AUTOMOUNT | file::at::EMPTY_PATH;
    if flags & !FLAGS != 0 {
        // EINVAL, whatever the path leads to.
        return Ok(PLAIN);
    }
    if flags & file::at::EMPTY_PATH != 0 {
        return extended_status(thread, recording, at, flags);
    }
    let Some(found) = look_as(recording, (&View::current()?, true), at, walk(flags))? else {
        return Ok(Verdict::Horizon);
    };
    let told = found.and_then(|place| metadata::tell(&place, buffer as usize));
    Ok(Verdict::Done(told.to_register(), After::Nothing))
}

/// `statx(2)`, and what may be about a descriptor.
fn extended_status(
    thread: &Thread,
    recording: &mut Recording,
    at: (i32, u64),
    flags: u32,
) -> Result<Verdict> {
    let Ok(path) = file::path(at.1 as usize) else { return Ok(Verdict::Horizon) };
    if path.is_empty() {
        if flags & file::at::EMPTY_PATH == 0 || at.0 < 0 {
            return Ok(Verdict::Horizon);
        }
        return described(thread, recording, at.0, Question::File(at.0));
    }
    look(recording, at, walk(flags))
}

fn open(thread: &Thread, recording: &mut Recording, at: (i32, u64), flags: u32) -> Result<Verdict> {
    const EFFECTS: u32 = O_ACCMODE | O_CREAT | O_TRUNC | O_PATH;
    let Ok(path) = file::path(at.1 as usize) else { return Ok(Verdict::Horizon) };
    if &*path == b"/dev/tty" && thread.process().session().terminal().is_none() {
        // ENXIO, as long as there is no terminal.
        return ask(thread, recording, Question::Terminal);
    }
    let changes = flags & EFFECTS != 0 || flags & O_TMPFILE == O_TMPFILE;
    if changes || path.is_empty() || recording.own.is_full() {
        return Ok(Verdict::Horizon);
    }
    let mut walk = WalkFlags::empty();
    walk.set(WalkFlags::NOFOLLOW, flags & O_NOFOLLOW != 0);
    walk.set(WalkFlags::DIRECTORY, flags & O_DIRECTORY != 0);
    let view = View::current()?;
    let (found, place) = tree::look(recording, (&view, true), (at.0, &path), walk)?;
    let after = match found {
        Found::Nothing => After::Nothing,
        Found::File(FileKind::Regular | FileKind::Directory | FileKind::CharDevice) => {
            After::Opened(OwnFile::File)
        }
        Found::Random => After::Opened(OwnFile::Random),
        Found::File(..) | Found::Foreign => return Ok(Verdict::Horizon),
    };
    let opened = descriptors::open_found(&view, place, flags);
    Ok(Verdict::Done(opened.to_register(), after))
}

fn close(thread: &Thread, recording: &Recording, fd: i32) -> Verdict {
    if recording.owns(fd) {
        Verdict::Goes(After::Closed(fd))
    } else if thread.file(fd).is_err() {
        PLAIN
    } else {
        Verdict::Horizon
    }
}

/// A call that makes another descriptor for a file that the program opened, if it is not one that
/// takes the place of an inherited descriptor.
fn copy(thread: &Thread, recording: &Recording, fd: i32, to: Option<i32>) -> Verdict {
    let free = match to {
        Some(to) if recording.owns(to) => true,
        Some(to) => thread.file(to).is_err() && !recording.own.is_full(),
        None => !recording.own.is_full(),
    };
    if recording.owns(fd) && free { Verdict::Goes(After::Copied(fd)) } else { Verdict::Horizon }
}

fn seek(
    thread: &Thread,
    recording: &mut Recording,
    fd: i32,
    offset: u64,
    whence: u64,
) -> Result<Verdict> {
    const SEEK_CUR: u64 = 1;
    if recording.owns(fd) {
        Ok(PLAIN)
    } else if offset == 0 && whence == SEEK_CUR {
        ask(thread, recording, Question::Position(fd))
    } else {
        Ok(Verdict::Horizon)
    }
}

/// `socket(2)`: one of Unix, which reaches nothing until it is connected.
fn socket(recording: &Recording, family: u64, kind: u64) -> Verdict {
    const UNIX: u64 = 1;
    const STREAM: u64 = 1;
    const KIND: u64 = 15;
    if family == UNIX && kind & KIND == STREAM && !recording.own.is_full() {
        Verdict::Goes(After::Opened(OwnFile::Socket))
    } else {
        Verdict::Horizon
    }
}

/// `connect(2)`: goes on only if there is nothing to connect to: the C library looks for its cache
/// of names.
fn connect(recording: &mut Recording, fd: i32, address: u64, size: u64) -> Result<Verdict> {
    const FAMILY: usize = 2;
    const LONGEST: usize = 110;
    let mut bytes = [0; LONGEST];
    let size = (size as usize).min(LONGEST);
    let Some(part) = bytes.get_mut(..size) else { return Ok(Verdict::Horizon) };
    if recording.owned(fd) != Some(OwnFile::Socket)
        || user::copy_in(part, address as usize).is_err()
    {
        return Ok(Verdict::Horizon);
    }
    let path = bytes.get(FAMILY..).unwrap_or(&[]);
    let path = path.split(|&byte| byte == 0).next().unwrap_or(&[]);
    if path.is_empty() {
        return Ok(Verdict::Horizon);
    }
    let here = hayate_abi::file::AT_FDCWD;
    match tree::look(recording, (&View::current()?, true), (here, path), WalkFlags::empty())? {
        (Found::Nothing, _) => Ok(PLAIN),
        _ => Ok(Verdict::Horizon),
    }
}

/// `getpeername(2)`: a shell asks whether it was started through a socket.
fn peer(thread: &Thread, recording: &mut Recording, fd: i32) -> Result<Verdict> {
    let kind = thread.file(fd).and_then(|file| file.metadata()).map(|metadata| metadata.kind);
    if recording.owns(fd) || kind.is_ok_and(|kind| kind == FileKind::Socket) {
        return Ok(Verdict::Horizon);
    }
    ask(thread, recording, Question::File(fd))
}

/// `fcntl(2)`
fn control(
    thread: &Thread,
    recording: &mut Recording,
    fd: i32,
    (command, argument): (u64, u64),
) -> Result<Verdict> {
    const F_DUPFD: u64 = 0;
    const F_DUPFD_CLOEXEC: u64 = 1030;
    const F_GETFD: u64 = 1;
    const F_SETFD: u64 = 2;
    const F_GETFL: u64 = 3;
    const FD_CLOEXEC: u64 = 1;
    match command {
        F_GETFD | F_SETFD | F_GETFL if recording.owns(fd) => Ok(PLAIN),
        F_DUPFD | F_DUPFD_CLOEXEC => Ok(copy(thread, recording, fd, None)),
        // Whether there is such a descriptor is part of the key; none of them closes at exec, so to
        // say that it does not changes nothing.
        F_GETFD => Ok(PLAIN),
        F_SETFD if argument & FD_CLOEXEC == 0 => Ok(PLAIN),
        F_GETFL => ask(thread, recording, Question::Flags(fd)),
        _ => Ok(Verdict::Horizon),
    }
}

/// `ioctl(2)`
fn device(thread: &Thread, recording: &mut Recording, fd: i32, command: u32) -> Result<Verdict> {
    const TCGETS: u32 = 0x5401;
    const TIOCGPGRP: u32 = 0x540f;
    const TIOCGWINSZ: u32 = 0x5413;
    const FIOCLEX: u32 = 0x5451;
    if recording.owns(fd) && matches!(command, TCGETS | TIOCGPGRP | TIOCGWINSZ | FIOCLEX) {
        return Ok(PLAIN);
    }
    // Whether it is a terminal. A terminal's modes may change at any time.
    let Ok(kind) = thread.file(fd).and_then(|file| file.metadata()) else { return Ok(PLAIN) };
    let terminal = kind.kind == FileKind::CharDevice && kind.represents.major != MEMORY_DEVICES;
    if !terminal && matches!(command, TCGETS | TIOCGPGRP | TIOCGWINSZ) {
        return ask(thread, recording, Question::File(fd));
    }
    Ok(Verdict::Horizon)
}

/// The major number of `/dev/null` and its like.
const MEMORY_DEVICES: u32 = 1;

impl After {
    /// Follows a call that was carried out with this result. `ENOMEM`.
    pub fn follow(self, result: i64, recording: &mut Recording) -> Result<()> {
        match self {
            After::Opened(file) if result >= 0 => {
                // There was a place before the call.
                let calls = recording.calls - 1;
                let _ = recording.own.try_push(Own { fd: result as i32, file, calls });
            }
            After::Closed(fd) => recording.own.retain(|own| own.fd != fd),
            After::Copied(fd) if result >= 0 => recording.copied(fd, result as i32),
            After::Drew(address) if result > 0 => drew(recording, address, result as usize)?,
            After::Measured(address) if result == 0 => measured(recording, address)?,
            After::Nothing
            | After::Opened(_)
            | After::Copied(_)
            | After::Drew(_)
            | After::Measured(_) => {}
        }
        Ok(())
    }
}

/// Notes random bytes that a program drew, or gives it those of the first recording if starts share
/// them.
fn drew(recording: &mut Recording, address: usize, count: usize) -> Result<()> {
    recording.note_draw();
    let mut bytes = Vec::new();
    bytes.make_room_exact(count)?;
    bytes.resize(count, 0);
    let at = recording.drawn.len();
    let first = recording.first.as_ref().filter(|first| !first.is_fresh);
    match first.and_then(|image| image.drawn.get(at..at.saturating_add(count))) {
        Some(drawn) => {
            bytes.copy_from_slice(drawn);
            user::copy_out(address, &bytes)?;
        }
        None => user::copy_in(&mut bytes, address)?,
    }
    recording.drawn.make_room(count)?;
    recording.drawn.extend_from_slice(&bytes);
    Ok(())
}

/// Changes what `sysinfo(2)` told in the second recording, so that whatever the program keeps of
/// what varies is another value. What is constant, the size of memory, stays.
fn measured(recording: &Recording, address: usize) -> Result<()> {
    if !recording.is_shifted() {
        return Ok(());
    }
    let mut told: Sysinfo = UserPtr::new(address).read()?;
    told.uptime += recording.shift as i64;
    told.loads = told.loads.map(|load| load / 2 + 12345);
    told.freeram = told.freeram / 2 + 54321;
    told.procs = told.procs.wrapping_add(7);
    UserPtr::new(address).write(&told)
}
