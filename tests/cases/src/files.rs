//! Files, directories, pipes, Unix sockets and mappings, by `std` and rustix.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt, symlink};
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, SystemTime};

use rustix::event::{PollFd, PollFlags, epoll, eventfd};
use rustix::fs::{AtFlags, FallocateFlags, Mode, OFlags, RenameFlags};

use crate::harness::{Case, skip};

/// The cases of this file.
pub const CASES: &[Case] = &[
    ("read_write_seek", read_write_seek),
    ("open_options", open_options),
    ("errors_have_their_kinds", errors_have_their_kinds),
    ("directories_walk_and_vanish", directories_walk_and_vanish),
    ("create_and_remove_dir_all", create_and_remove_dir_all),
    ("copy_rename_and_links", copy_rename_and_links),
    ("permissions_and_times", permissions_and_times),
    ("canonicalize_and_current_dir", canonicalize_and_current_dir),
    ("buffered_lines", buffered_lines),
    ("positioned_io_from_threads", positioned_io_from_threads),
    ("file_locks", file_locks),
    ("anonymous_pipe", anonymous_pipe),
    ("unix_stream_pairs", unix_stream_pairs),
    ("unix_listener_serves_threads", unix_listener_serves_threads),
    ("unix_timeouts_and_nonblocking", unix_timeouts_and_nonblocking),
    ("unix_datagrams", unix_datagrams),
    ("rustix_at_family", rustix_at_family),
    ("rustix_rename_flags", rustix_rename_flags),
    ("rustix_fallocate_and_seek_hole", rustix_fallocate_and_seek_hole),
    ("rustix_poll_and_epoll", rustix_poll_and_epoll),
    ("rustix_directory_reader", rustix_directory_reader),
];

fn kind<T: std::fmt::Debug>(result: io::Result<T>) -> ErrorKind {
    result.unwrap_err().kind()
}

fn read_write_seek() {
    let mut file =
        File::options().read(true).write(true).create(true).truncate(true).open("f").unwrap();
    file.write_all(b"hello, world").unwrap();
    assert_eq!(file.seek(SeekFrom::Start(7)).unwrap(), 7);
    let mut text = String::new();
    file.read_to_string(&mut text).unwrap();
    assert_eq!(text, "world");
    assert_eq!(file.seek(SeekFrom::End(-5)).unwrap(), 7);
    assert_eq!(file.stream_position().unwrap(), 7);
    file.set_len(5).unwrap();
    assert_eq!(fs::read("f").unwrap(), b"hello");
    file.sync_all().unwrap();
    assert_eq!(kind(file.seek(SeekFrom::Current(-100))), ErrorKind::InvalidInput);
}

fn open_options() {
    OpenOptions::new().write(true).create_new(true).open("f").unwrap().write_all(b"1").unwrap();
    assert_eq!(
        kind(OpenOptions::new().write(true).create_new(true).open("f")),
        ErrorKind::AlreadyExists
    );
    OpenOptions::new().append(true).open("f").unwrap().write_all(b"2").unwrap();
    assert_eq!(fs::read_to_string("f").unwrap(), "12");
    File::create("f").unwrap();
    assert_eq!(fs::metadata("f").unwrap().len(), 0);
    let file =
        OpenOptions::new().write(true).create(true).truncate(false).mode(0o640).open("g").unwrap();
    assert_eq!(file.metadata().unwrap().mode() & 0o777, 0o640);
}

fn errors_have_their_kinds() {
    assert_eq!(kind(File::open("none")), ErrorKind::NotFound);
    fs::write("f", "").unwrap();
    fs::create_dir("d").unwrap();
    fs::write("d/in", "").unwrap();
    symlink("loop", "loop").unwrap();
    assert_eq!(kind(fs::read("f/x")), ErrorKind::NotADirectory);
    assert_eq!(kind(File::create("d")), ErrorKind::IsADirectory);
    assert_eq!(kind(fs::remove_dir("d")), ErrorKind::DirectoryNotEmpty);
    assert_eq!(kind(fs::create_dir("d")), ErrorKind::AlreadyExists);
    assert_eq!(File::open("loop").unwrap_err().raw_os_error(), Some(40)); // ELOOP
    assert_eq!(kind(File::open("x".repeat(300))), ErrorKind::InvalidFilename);
    assert_eq!(kind(fs::read("a\0b")), ErrorKind::InvalidInput);
}

fn directories_walk_and_vanish() {
    for path in ["t", "t/a", "t/b", "t/a/c"] {
        fs::create_dir(path).unwrap();
        fs::write(Path::new(path).join("file"), path).unwrap();
    }
    fn walk(dir: &Path, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(dir).unwrap() {
            let entry = entry.unwrap();
            if entry.file_type().unwrap().is_dir() {
                walk(&entry.path(), found);
            } else {
                assert_eq!(fs::read_to_string(entry.path()).unwrap(), dir.to_str().unwrap());
            }
            found.push(entry.path());
        }
    }
    let mut found = Vec::new();
    walk(Path::new("t"), &mut found);
    assert_eq!(found.len(), 7);
}

fn create_and_remove_dir_all() {
    fs::create_dir_all("a/b/c/d/e").unwrap();
    fs::create_dir_all("a/b/c").unwrap();
    for i in 0..200 {
        fs::write(format!("a/b/c/f{i}"), [0; 10]).unwrap();
    }
    fs::create_dir("outside").unwrap();
    fs::write("outside/kept", "").unwrap();
    symlink("../../outside", "a/b/link").unwrap();
    fs::remove_dir_all("a").unwrap();
    assert!(!Path::new("a").exists() && Path::new("outside/kept").exists());
    fs::write("f", "").unwrap();
    assert!(fs::create_dir_all("f/x").is_err());
}

fn copy_rename_and_links() {
    let data: Vec<u8> = (0..300_000u32).map(|i| (i % 251) as u8).collect();
    fs::write("a", &data).unwrap();
    fs::set_permissions("a", fs::Permissions::from_mode(0o640)).unwrap();
    assert_eq!(fs::copy("a", "b").unwrap(), 300_000);
    assert_eq!(fs::read("b").unwrap(), data);
    assert_eq!(fs::metadata("b").unwrap().mode() & 0o777, 0o640);
    fs::hard_link("a", "hard").unwrap();
    assert_eq!(fs::metadata("a").unwrap().nlink(), 2);
    fs::rename("b", "c").unwrap();
    symlink("c", "soft").unwrap();
    assert_eq!(fs::read_link("soft").unwrap(), Path::new("c"));
    assert!(
        fs::symlink_metadata("soft").unwrap().is_symlink()
            && fs::metadata("soft").unwrap().is_file()
    );
    assert_eq!(kind(fs::read("b")), ErrorKind::NotFound);
}

fn permissions_and_times() {
    let file = File::create("f").unwrap();
    let mut permissions = file.metadata().unwrap().permissions();
    permissions.set_readonly(true);
    fs::set_permissions("f", permissions).unwrap();
    assert!(fs::metadata("f").unwrap().permissions().readonly());
    let then = SystemTime::UNIX_EPOCH + Duration::new(1_234_567, 890_000_000);
    file.set_times(fs::FileTimes::new().set_modified(then).set_accessed(then)).unwrap();
    let metadata = fs::metadata("f").unwrap();
    assert_eq!(metadata.modified().unwrap(), then);
    assert_eq!(metadata.accessed().unwrap(), then);
}

fn canonicalize_and_current_dir() {
    fs::create_dir_all("d/e").unwrap();
    symlink("d/e", "l").unwrap();
    let here = std::env::current_dir().unwrap();
    assert_eq!(fs::canonicalize("l/..").unwrap(), here.join("d"));
    std::env::set_current_dir("l").unwrap();
    assert_eq!(std::env::current_dir().unwrap(), here.join("d/e"));
    assert_eq!(kind(fs::canonicalize("none")), ErrorKind::NotFound);
    assert!(std::env::current_exe().unwrap().is_absolute());
}

fn buffered_lines() {
    let mut file = io::BufWriter::new(File::create("f").unwrap());
    for i in 0..20_000 {
        writeln!(file, "line {i}").unwrap();
    }
    file.flush().unwrap();
    let lines = BufReader::new(File::open("f").unwrap()).lines();
    assert_eq!(
        lines
            .enumerate()
            .inspect(|(i, l)| assert_eq!(l.as_ref().unwrap(), &format!("line {i}")))
            .count(),
        20_000
    );
}

fn positioned_io_from_threads() {
    let file =
        File::options().read(true).write(true).create(true).truncate(true).open("f").unwrap();
    thread::scope(|scope| {
        for n in 0..8u64 {
            let file = &file;
            scope.spawn(move || {
                for i in 0..100 {
                    file.write_all_at(&[n as u8; 64], (i * 8 + n) * 64).unwrap();
                }
            });
        }
    });
    let mut block = [0; 64];
    for i in 0..800 {
        file.read_exact_at(&mut block, i * 64).unwrap();
        assert_eq!(block, [(i % 8) as u8; 64]);
    }
    assert_eq!(kind(file.read_exact_at(&mut block, 800 * 64)), ErrorKind::UnexpectedEof);
}

fn file_locks() {
    let a = File::create("f").unwrap();
    let b = File::open("f").unwrap();
    a.lock().unwrap();
    assert!(matches!(b.try_lock(), Err(fs::TryLockError::WouldBlock)));
    thread::scope(|scope| {
        let waiter = scope.spawn(|| b.lock_shared().unwrap());
        thread::sleep(Duration::from_millis(20));
        assert!(!waiter.is_finished());
        a.unlock().unwrap();
    });
    assert!(a.try_lock().is_err());
}

fn anonymous_pipe() {
    let (mut reader, mut writer) = io::pipe().unwrap();
    let thread = thread::spawn(move || writer.write_all(&vec![7; 1_000_000]).unwrap());
    let mut all = Vec::new();
    reader.read_to_end(&mut all).unwrap();
    thread.join().unwrap();
    assert!(all.len() == 1_000_000 && all.iter().all(|b| *b == 7));
    let (reader, mut writer) = io::pipe().unwrap();
    drop(reader);
    assert_eq!(kind(writer.write(b"x")), ErrorKind::BrokenPipe); // std ignores SIGPIPE
}

fn unix_stream_pairs() {
    let (mut a, mut b) = UnixStream::pair().unwrap();
    let thread = thread::spawn(move || {
        let mut text = String::new();
        b.read_to_string(&mut text).unwrap();
        b.write_all(text.to_uppercase().as_bytes()).unwrap();
    });
    a.write_all(b"shout").unwrap();
    a.shutdown(std::net::Shutdown::Write).unwrap();
    let mut answer = String::new();
    a.read_to_string(&mut answer).unwrap();
    assert_eq!(answer, "SHOUT");
    thread.join().unwrap();
}

fn unix_listener_serves_threads() {
    let listener = UnixListener::bind("sock").unwrap();
    assert_eq!(kind(UnixListener::bind("sock")), ErrorKind::AddrInUse);
    let server = thread::spawn(move || {
        for _ in 0..10 {
            let (stream, _) = listener.accept().unwrap();
            thread::spawn(move || {
                let mut writer = stream.try_clone().unwrap();
                for line in BufReader::new(stream).lines() {
                    writeln!(writer, "{}", line.unwrap().chars().rev().collect::<String>())
                        .unwrap();
                }
            });
        }
    });
    thread::scope(|scope| {
        for n in 0..10 {
            scope.spawn(move || {
                let mut stream = UnixStream::connect("sock").unwrap();
                let mut reader = BufReader::new(stream.try_clone().unwrap());
                for i in 0..50 {
                    writeln!(stream, "{n}-{i}").unwrap();
                    let mut line = String::new();
                    reader.read_line(&mut line).unwrap();
                    assert_eq!(line.trim().chars().rev().collect::<String>(), format!("{n}-{i}"));
                }
            });
        }
    });
    server.join().unwrap();
    assert_eq!(kind(UnixStream::connect("sock")), ErrorKind::ConnectionRefused);
    assert_eq!(kind(UnixStream::connect("none")), ErrorKind::NotFound);
}

fn unix_timeouts_and_nonblocking() {
    let (mut a, _b) = UnixStream::pair().unwrap();
    a.set_read_timeout(Some(Duration::from_millis(30))).unwrap();
    // Linux rounds up to its ticks.
    let kept = a.read_timeout().unwrap().unwrap();
    assert!((30..60).contains(&kept.as_millis()), "{kept:?}");
    let from = std::time::Instant::now();
    assert_eq!(kind(a.read(&mut [0; 8])), ErrorKind::WouldBlock);
    assert!(from.elapsed() >= Duration::from_millis(25));
    a.set_read_timeout(None).unwrap();
    a.set_nonblocking(true).unwrap();
    assert_eq!(kind(a.read(&mut [0; 8])), ErrorKind::WouldBlock);
    assert_eq!(kind(a.set_read_timeout(Some(Duration::ZERO))), ErrorKind::InvalidInput);
}

fn unix_datagrams() {
    let (a, b) = (UnixDatagram::bind("a").unwrap(), UnixDatagram::bind("b").unwrap());
    b.send_to(b"ping", "a").unwrap();
    let mut buffer = [0; 16];
    let (n, from) = a.recv_from(&mut buffer).unwrap();
    assert_eq!((&buffer[..n], from.as_pathname()), (&b"ping"[..], Some(Path::new("b"))));
    a.connect("b").unwrap();
    a.send(b"pong").unwrap();
    assert_eq!(b.recv(&mut buffer).unwrap(), 4);
}

fn rustix_at_family() {
    fs::create_dir("d").unwrap();
    let dir =
        rustix::fs::open("d", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
            .unwrap();
    let file =
        rustix::fs::openat(&dir, "f", OFlags::WRONLY | OFlags::CREATE, Mode::from(0o600)).unwrap();
    rustix::io::write(&file, b"12345").unwrap();
    rustix::fs::mkdirat(&dir, "sub", Mode::from(0o700)).unwrap();
    rustix::fs::symlinkat("f", &dir, "l").unwrap();
    assert_eq!(rustix::fs::readlinkat(&dir, "l", Vec::new()).unwrap().as_bytes(), b"f");
    assert_eq!(rustix::fs::statat(&dir, "l", AtFlags::empty()).unwrap().st_size, 5);
    assert_eq!(rustix::fs::statat(&dir, "l", AtFlags::SYMLINK_NOFOLLOW).unwrap().st_size, 1);
    assert_eq!(rustix::fs::statat(&file, "", AtFlags::EMPTY_PATH).unwrap().st_size, 5);
    rustix::fs::unlinkat(&dir, "sub", AtFlags::REMOVEDIR).unwrap();
    assert_eq!(rustix::fs::unlinkat(&dir, "f", AtFlags::REMOVEDIR), Err(rustix::io::Errno::NOTDIR));
    assert_eq!(
        rustix::fs::openat(&file, "x", OFlags::RDONLY, Mode::empty()).unwrap_err(),
        rustix::io::Errno::NOTDIR
    );
}

fn rustix_rename_flags() {
    fs::write("a", "A").unwrap();
    fs::write("b", "B").unwrap();
    let cwd = rustix::fs::CWD;
    assert_eq!(
        rustix::fs::renameat_with(cwd, "a", cwd, "b", RenameFlags::NOREPLACE),
        Err(rustix::io::Errno::EXIST)
    );
    rustix::fs::renameat_with(cwd, "a", cwd, "b", RenameFlags::EXCHANGE).unwrap();
    assert_eq!((fs::read("a").unwrap(), fs::read("b").unwrap()), (b"B".to_vec(), b"A".to_vec()));
}

fn rustix_fallocate_and_seek_hole() {
    let file =
        File::options().read(true).write(true).create(true).truncate(true).open("f").unwrap();
    match rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, 1 << 20) {
        Err(rustix::io::Errno::OPNOTSUPP) => skip("no fallocate here"),
        other => other.unwrap(),
    }
    assert_eq!(file.metadata().unwrap().len(), 1 << 20);
    file.write_all_at(&[1; 4096], 65_536).unwrap();
    rustix::fs::fallocate(
        &file,
        FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
        65_536,
        4096,
    )
    .unwrap();
    let mut block = [9; 4096];
    file.read_exact_at(&mut block, 65_536).unwrap();
    assert_eq!(block, [0; 4096]);
}

fn rustix_poll_and_epoll() {
    let event = eventfd(0, rustix::event::EventfdFlags::CLOEXEC).unwrap();
    let (reader, writer) = rustix::pipe::pipe().unwrap();
    let set = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
    epoll::add(&set, &event, epoll::EventData::new_u64(1), epoll::EventFlags::IN).unwrap();
    epoll::add(&set, &reader, epoll::EventData::new_u64(2), epoll::EventFlags::IN).unwrap();
    let mut events = Vec::with_capacity(4);
    let zero = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
    epoll::wait(&set, rustix::buffer::spare_capacity(&mut events), Some(&zero)).unwrap();
    assert!(events.is_empty());
    rustix::io::write(&event, &1u64.to_ne_bytes()).unwrap();
    rustix::io::write(&writer, b"x").unwrap();
    epoll::wait(&set, rustix::buffer::spare_capacity(&mut events), None).unwrap();
    let mut data: Vec<u64> = events.iter().map(|e| e.data.u64()).collect();
    data.sort_unstable();
    assert_eq!(data, [1, 2]);
    fn ready(fd: &OwnedFd) -> bool {
        let mut fds = [PollFd::from_borrowed_fd(fd.as_fd(), PollFlags::IN)];
        let zero = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
        rustix::event::poll(&mut fds, Some(&zero)).unwrap() == 1
    }
    assert!(ready(&reader) && ready(&event));
    rustix::io::read(&reader, &mut [0; 8]).unwrap();
    assert!(!ready(&reader));
}

fn rustix_directory_reader() {
    for i in 0..50 {
        fs::write(format!("f{i}"), "").unwrap();
    }
    let fd = rustix::fs::open(".", OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).unwrap();
    let mut dir = rustix::fs::Dir::read_from(&fd).unwrap();
    let names = dir
        .by_ref()
        .map(|e| e.unwrap().file_name().to_owned())
        .filter(|n| n.as_bytes()[0] == b'f')
        .count();
    assert_eq!(names, 50);
    dir.rewind();
    assert_eq!(dir.count(), 52);
}
