//! `mode`: switches running programs between user and supervisor mode, and shows their modes.

use hayate_guest::{KEEP, switch_supervisor, switch_user};
use std::ffi::OsString;
use std::io::Error;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

const HELP: &str = "\
Switches running programs between user and supervisor mode.

Usage: mode supervisor PID...    put processes into supervisor mode (PID 0: this one's parent)
       mode user PID...          put them back into user mode
       mode run [--] CMD...      run a program, and all it starts, in supervisor mode
       mode list [PID...]        show processes in supervisor mode, or these

A program in supervisor mode can do whatever the kernel can: use it for programs that you would
trust with the machine. It needs root with CAP_SYS_RAWIO; set-user-ID programs never get it.

Examples:
  mode run -- ls -l
  mode supervisor 0; mode list; mode user 0

Exit status: 0 done; 1 a switch failed; 2 the command line is wrong; of run, that of the program
";

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    let command = arguments.next().unwrap_or_default();
    let rest: Vec<OsString> = arguments.collect();
    let result = match command.to_str() {
        Some("supervisor") if !rest.is_empty() => each(&rest, |pid| switch_supervisor(pid, 0)),
        Some("user") if !rest.is_empty() => each(&rest, switch_user),
        Some("run") => run(&rest),
        Some("list") => list(&rest),
        Some("help" | "--help" | "-h") => {
            print!("{HELP}");
            Ok(ExitCode::SUCCESS)
        }
        _ => Err(Failure(2, format!("{}\n{HELP}", "mode: the command line is wrong"))),
    };
    result.unwrap_or_else(|Failure(status, text)| {
        eprintln!("{}", text.trim_end());
        ExitCode::from(status)
    })
}

/// An exit status and the message.
struct Failure(u8, String);

/// Returns the meaning of a switch's error, and what to do about it.
fn explained(error: &Error) -> String {
    // Numbers of errno(3).
    let advice = match error.raw_os_error() {
        Some(1) => "it needs root with CAP_SYS_RAWIO (and CAP_SYS_PTRACE for others' processes)",
        Some(3) => "there is no such process",
        Some(38) => "this kernel cannot switch modes; run the command in Hayate",
        Some(95) => "it is turned off: start the kernel without supervisor=off",
        _ => return error.to_string(),
    };
    advice.to_owned()
}

fn number(text: &OsString) -> Result<i32, Failure> {
    let parsed = text.to_str().and_then(|text| text.parse::<i32>().ok()).filter(|&n| n >= 0);
    let pid = parsed.ok_or_else(|| {
        Failure(2, format!("mode: {} is not a process number", text.to_string_lossy()))
    })?;
    Ok(if pid == 0 { std::os::unix::process::parent_id() as i32 } else { pid })
}

fn each(
    pids: &[OsString],
    switch: impl Fn(i32) -> std::io::Result<()>,
) -> Result<ExitCode, Failure> {
    let mut status = ExitCode::SUCCESS;
    for pid in pids {
        let pid = number(pid)?;
        if let Err(error) = switch(pid) {
            eprintln!("mode: {pid}: {}", explained(&error));
            status = ExitCode::FAILURE;
        }
    }
    Ok(status)
}

fn run(command: &[OsString]) -> Result<ExitCode, Failure> {
    let command = match command {
        [first, rest @ ..] if first == "--" => rest,
        all => all,
    };
    let [program, arguments @ ..] = command else {
        return Err(Failure(2, "mode: name a program, for example: mode run -- ls -l".to_owned()));
    };
    switch_supervisor(0, KEEP)
        .map_err(|error| Failure(125, format!("mode: {}", explained(&error))))?;
    let error = Command::new(program).args(arguments).exec();
    let missing = error.kind() == std::io::ErrorKind::NotFound;
    let status = if missing { 127 } else { 126 };
    Err(Failure(status, format!("mode: {}: {error}", program.to_string_lossy())))
}

/// The lines `name: value` of `/proc/PID/mode`.
fn value<'a>(text: &'a str, name: &str) -> &'a str {
    text.lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(key, _)| *key == name)
        .map_or("", |(_, value)| value.trim())
}

fn list(wanted: &[OsString]) -> Result<ExitCode, Failure> {
    let mut pids = Vec::new();
    for pid in wanted {
        pids.push(number(pid)?);
    }
    let all = pids.is_empty();
    if all {
        let entries = std::fs::read_dir("/proc")
            .map_err(|error| Failure(1, format!("mode: /proc: {error}; is it mounted?")))?;
        pids.extend(entries.flatten().filter_map(|e| e.file_name().to_str()?.parse::<i32>().ok()));
        pids.sort_unstable();
    }
    println!(
        "{:>7} {:<10} {:>8} {:>12} {:>10} {:>6} {:>8} {:<24} NAME",
        "PID", "MODE", "SWITCHES", "BY-CALL", "BY-TRAP", "TURNED", "RESTORED", "LEFT"
    );
    for pid in pids {
        let Ok(text) = std::fs::read_to_string(format!("/proc/{pid}/mode")) else {
            if !all {
                eprintln!("mode: {pid}: there is no such process, or the kernel is not Hayate");
            }
            continue;
        };
        if all && value(&text, "mode") != "supervisor" {
            continue;
        }
        let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        println!(
            "{pid:>7} {:<10} {:>8} {:>12} {:>10} {:>6} {:>8} {:<24} {}",
            value(&text, "mode"),
            value(&text, "switches"),
            value(&text, "calls by function call"),
            value(&text, "calls by trap"),
            value(&text, "sites turned"),
            value(&text, "sites restored"),
            value(&text, "sites left"),
            name.trim()
        );
    }
    Ok(ExitCode::SUCCESS)
}
