//! Child processes by `std::process`, and rustix's information about the process and the system.

use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt, parent_id};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Resource, Rlimit, Signal};

use crate::harness::Case;

/// The cases of this file.
pub const CASES: &[Case] = &[
    ("output_of_a_child", output_of_a_child),
    ("exit_codes_and_signals", exit_codes_and_signals),
    ("environment_of_a_child", environment_of_a_child),
    ("arguments_arrive_unchanged", arguments_arrive_unchanged),
    ("pipes_in_both_directions", pipes_in_both_directions),
    ("redirection_to_files", redirection_to_files),
    ("working_directory_of_a_child", working_directory_of_a_child),
    ("missing_program_is_not_found", missing_program_is_not_found),
    ("kill_and_try_wait", kill_and_try_wait),
    ("children_from_threads", children_from_threads),
    ("descriptors_do_not_leak_into_children", descriptors_do_not_leak_into_children),
    ("uid_and_group_of_a_child", uid_and_group_of_a_child),
    ("process_groups", process_groups),
    ("rustix_ids_and_limits", rustix_ids_and_limits),
    ("rustix_random_and_system", rustix_random_and_system),
    ("rustix_anonymous_memory", rustix_anonymous_memory),
];

/// This program as a child: `rust-std --child WHAT ...`; returns its exit code if it is one.
pub fn helper() -> Option<u8> {
    let mut words = std::env::args_os().skip(1);
    if words.next()? != "--child" {
        return None;
    }
    let what = words.next()?;
    let mut out = std::io::stdout();
    match what.to_str()? {
        "exit" => return words.next()?.to_str()?.parse().ok(),
        "echo" => {
            for word in words {
                writeln!(out, "{}", word.to_string_lossy()).ok()?;
            }
        }
        "cat" => drop(std::io::copy(&mut std::io::stdin(), &mut out).ok()?),
        "both" => {
            writeln!(out, "to stdout").ok()?;
            eprintln!("to stderr");
        }
        "env" => std::env::vars().for_each(|(k, v)| println!("{k}={v}")),
        "cwd" => print!("{}", std::env::current_dir().ok()?.display()),
        "ids" => {
            print!(
                "{} {}",
                rustix::process::geteuid().as_raw(),
                rustix::process::getegid().as_raw()
            );
        }
        "fds" => {
            let count = std::fs::read_dir("/proc/self/fd").ok()?.count();
            print!("{}", count - 1); // without the directory's own
        }
        "abort" => std::process::abort(),
        "sleep" => std::thread::sleep(Duration::from_secs(100)),
        _ => return Some(99),
    }
    Some(0)
}

fn child(what: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--child", what]);
    command
}

fn said(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn output_of_a_child() {
    let output = child("both").output().unwrap();
    assert!(output.status.success());
    assert_eq!(output.stdout, b"to stdout\n");
    assert_eq!(output.stderr, b"to stderr\n");
}

fn exit_codes_and_signals() {
    for code in [0, 1, 2, 42, 255] {
        let status = child("exit").arg(code.to_string()).status().unwrap();
        assert_eq!((status.code(), status.signal()), (Some(code), None));
    }
    let status = child("abort").stderr(Stdio::null()).status().unwrap();
    assert_eq!((status.code(), status.signal()), (None, Some(6)));
}

fn environment_of_a_child() {
    let text = said(child("env").env_clear().env("ONE", "1").env("EMPTY", "").env("U", "ü"));
    let mut lines: Vec<_> = text.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["EMPTY=", "ONE=1", "U=ü"]);
}

fn arguments_arrive_unchanged() {
    let words = ["", "a b", "*", "$HOME", "'\"\\", "ü", "--x"];
    assert_eq!(said(child("echo").args(words)), words.join("\n") + "\n");
    let long = "l".repeat(100_000);
    assert_eq!(said(child("echo").arg(&long)).trim_end(), long);
    let error = child("echo").arg("x".repeat(200_000)).output().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ArgumentListTooLong);
}

fn pipes_in_both_directions() {
    let mut cat = child("cat").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut stdin = cat.stdin.take().unwrap();
    let data: Vec<u8> = (0..500_000u32).map(|i| (i % 247) as u8).collect();
    let copy = data.clone();
    let writer = std::thread::spawn(move || stdin.write_all(&copy).unwrap());
    let mut back = Vec::new();
    cat.stdout.take().unwrap().read_to_end(&mut back).unwrap();
    writer.join().unwrap();
    assert!(cat.wait().unwrap().success());
    assert!(back == data);
}

fn redirection_to_files() {
    std::fs::write("in", "from a file").unwrap();
    let status =
        child("cat").stdin(File::open("in").unwrap()).stdout(File::create("out").unwrap()).status();
    assert!(status.unwrap().success());
    assert_eq!(std::fs::read_to_string("out").unwrap(), "from a file");
}

fn working_directory_of_a_child() {
    std::fs::create_dir("d").unwrap();
    let here = std::env::current_dir().unwrap();
    assert_eq!(said(child("cwd").current_dir("d")), here.join("d").to_str().unwrap());
    assert!(child("cwd").current_dir("none").output().is_err());
}

fn missing_program_is_not_found() {
    assert_eq!(Command::new("./none").status().unwrap_err().kind(), ErrorKind::NotFound);
    std::fs::write("text", "no program").unwrap();
    assert_eq!(Command::new("./text").status().unwrap_err().kind(), ErrorKind::PermissionDenied);
}

fn kill_and_try_wait() {
    let mut sleeper = child("sleep").spawn().unwrap();
    assert!(sleeper.try_wait().unwrap().is_none());
    let from = Instant::now();
    sleeper.kill().unwrap();
    assert_eq!(sleeper.wait().unwrap().signal(), Some(9));
    assert!(from.elapsed() < Duration::from_secs(50));
    assert_eq!(sleeper.try_wait().unwrap().unwrap().signal(), Some(9));
}

fn children_from_threads() {
    std::thread::scope(|scope| {
        for n in 0..6 {
            scope.spawn(move || {
                for i in 0..5 {
                    assert_eq!(said(child("echo").arg(format!("{n}.{i}"))), format!("{n}.{i}\n"));
                }
            });
        }
    });
}

fn descriptors_do_not_leak_into_children() {
    let plain: usize = said(&mut child("fds")).parse().unwrap();
    let _files: Vec<File> = (0..20).map(|_| File::open("/dev/null").unwrap()).collect();
    assert_eq!(said(&mut child("fds")).parse::<usize>().unwrap(), plain);
}

fn uid_and_group_of_a_child() {
    assert_eq!(said(child("ids").uid(1000).gid(2000)), "1000 2000");
}

fn process_groups() {
    let mut a = child("sleep").process_group(0).spawn().unwrap();
    let group = Pid::from_raw(a.id() as i32).unwrap();
    let mut b = child("sleep").process_group(group.as_raw_nonzero().get()).spawn().unwrap();
    assert_eq!(rustix::process::getpgid(Pid::from_raw(b.id() as i32)).unwrap(), group);
    rustix::process::kill_process_group(group, Signal::TERM).unwrap();
    assert_eq!(a.wait().unwrap().signal(), Some(15));
    assert_eq!(b.wait().unwrap().signal(), Some(15));
    assert_eq!(
        rustix::process::kill_process_group(group, Signal::TERM),
        Err(rustix::io::Errno::SRCH)
    );
}

fn rustix_ids_and_limits() {
    assert_eq!(rustix::process::getpid().as_raw_nonzero().get() as u32, std::process::id());
    assert_eq!(
        rustix::process::getppid().map_or(0, |p| p.as_raw_nonzero().get()) as u32,
        parent_id()
    );
    let limit = Rlimit { current: Some(50), maximum: Some(100) };
    rustix::process::setrlimit(Resource::Nofile, limit).unwrap();
    assert_eq!(rustix::process::getrlimit(Resource::Nofile).current, Some(50));
    let files: Vec<_> = std::iter::from_fn(|| File::open("/dev/null").ok()).take(200).collect();
    assert!(files.len() < 50);
    assert_eq!(File::open("/dev/null").unwrap_err().raw_os_error(), Some(24)); // EMFILE
}

fn rustix_random_and_system() {
    let (mut a, mut b) = ([0; 32], [0; 32]);
    assert_eq!(rustix::rand::getrandom(&mut a, rustix::rand::GetRandomFlags::empty()).unwrap(), 32);
    rustix::rand::getrandom(&mut b, rustix::rand::GetRandomFlags::empty()).unwrap();
    assert_ne!(a, b);
    assert_eq!(rustix::system::uname().sysname().to_bytes(), b"Linux");
    assert!(rustix::system::sysinfo().totalram > 0);
    assert_eq!(rustix::param::page_size(), 4096);
}

fn rustix_anonymous_memory() {
    // A vector large enough that the allocator maps and remaps it.
    let mut vector: Vec<u64> = Vec::new();
    for i in 0..4_000_000 {
        vector.push(i);
    }
    assert!(vector.iter().enumerate().step_by(4097).all(|(i, v)| i as u64 == *v));
    vector.truncate(10);
    vector.shrink_to_fit();
    assert_eq!(vector.iter().sum::<u64>(), 45);
}
