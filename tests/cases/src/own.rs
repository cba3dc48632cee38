//! Hayate's own system calls through the crate `hayate-guest`. Linux has none of them.

use std::ffi::CString;
use std::fs::read_to_string;
use std::process::Command;

use hayate_guest::{KEEP, Source, change_space, open_program, open_space};
use hayate_guest::{switch_supervisor, switch_user};

use crate::harness::{Case, skip};

/// The cases of this file.
pub const CASES: &[Case] = &[
    ("own_mode_there_and_back", own_mode_there_and_back),
    ("own_mode_of_a_child", own_mode_of_a_child),
    ("own_mode_errors", own_mode_errors),
    ("own_space_is_left_and_come_back_to", own_space_is_left_and_come_back_to),
    ("own_programs_are_opened", own_programs_are_opened),
];

const ENOENT: i32 = 2;
const ESRCH: i32 = 3;
const EINVAL: i32 = 22;
const ENOSYS: i32 = 38;
const EOPNOTSUPP: i32 = 95;

/// Begins in user mode, or skips the case.
fn begin() {
    if std::env::var_os("MODE_STORM").is_some() {
        skip("somebody else changes the mode");
    }
    match switch_user(0).map_err(|error| error.raw_os_error()) {
        Ok(()) => {}
        Err(Some(ENOSYS)) => skip("this kernel has one mode for programs"),
        Err(Some(EOPNOTSUPP)) => skip("turned off by supervisor=off"),
        Err(error) => panic!("switch_user: {error:?}"),
    }
}

fn mode_of(pid: u32) -> String {
    let text = read_to_string(format!("/proc/{pid}/mode")).expect("/proc/PID/mode");
    text.lines().find_map(|line| line.strip_prefix("mode: ")).expect("no mode").to_owned()
}

fn own_mode_there_and_back() {
    begin();
    let own = std::process::id();
    for _ in 0..20 {
        switch_supervisor(0, 0).expect("to supervisor mode");
        assert_eq!(mode_of(own), "supervisor");
        // Typical activity meanwhile: threads, memory, files.
        let threads: Vec<_> = (0..4).map(|n| std::thread::spawn(move || vec![n; 10_000])).collect();
        for (n, thread) in threads.into_iter().enumerate() {
            assert_eq!(thread.join().expect("a thread"), vec![n; 10_000]);
        }
        switch_user(0).expect("to user mode");
        assert_eq!(mode_of(own), "user");
    }
}

fn own_mode_of_a_child() {
    begin();
    let mut child = Command::new("sleep").arg("100").spawn().expect("sleep");
    let pid = child.id();
    switch_supervisor(pid as i32, 0).expect("the child to supervisor mode");
    assert_eq!(mode_of(pid), "supervisor");
    assert_eq!(mode_of(std::process::id()), "user");
    switch_user(pid as i32).expect("the child to user mode");
    assert_eq!(mode_of(pid), "user");
    child.kill().expect("kill");
    child.wait().expect("wait");
    // An executed program keeps the mode only if that was requested.
    for (flags, expected) in [(0, "user"), (KEEP, "supervisor")] {
        switch_supervisor(0, flags).expect("to supervisor mode");
        let output = Command::new("cat").arg("/proc/self/mode").output().expect("cat");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(text.starts_with(&format!("mode: {expected}\n")), "{flags}: {text}");
    }
}

fn own_mode_errors() {
    begin();
    let number = |result: std::io::Result<()>| result.err().and_then(|e| e.raw_os_error());
    assert_eq!(number(switch_supervisor(0, 2)), Some(EINVAL));
    assert_eq!(number(switch_supervisor(0x3f_ffff, 0)), Some(ESRCH));
    assert_eq!(number(switch_user(0x3f_ffff)), Some(ESRCH));
}

fn own_space_is_left_and_come_back_to() {
    // In both modes.
    for supervisor in [false, true] {
        begin();
        if supervisor {
            switch_supervisor(0, 0).expect("to supervisor mode");
        }
        let own = open_space(Source::Own).expect("the own space");
        let mut value = 1;
        let copy = open_space(Source::Copy).expect("a copy");
        // SAFETY: a copy of this space, taken in this function; no other thread runs.
        unsafe { change_space(&copy).expect("into the copy") };
        std::hint::black_box(&mut value);
        value += 1;
        std::hint::black_box(&mut value);
        // SAFETY: back into the space, where everything is as it was left.
        unsafe { change_space(&own).expect("back") };
        std::hint::black_box(&mut value);
        assert_eq!(value, 1);
    }
}

fn own_programs_are_opened() {
    begin();
    open_program(c"/proc/self/exe").expect("this program");
    let missing = CString::new("/no/such/program").expect("a path");
    let error = open_program(&missing).err().and_then(|error| error.raw_os_error());
    assert_eq!(error, Some(ENOENT));
}
