//! `./hayate ps`, `stop` and `rm`.

use super::directory::{Machine, Machines, State, now};
use super::exec::Line;
use crate::arguments::machines::{Ps, Remove, Stop};
use crate::failure::FAULT;
use anyhow::Result;
use hayate_channel::frame::Message;
use rustix::process::Signal;
use std::io::Read;

/// `./hayate ps`.
pub fn ps(options: &Ps) -> Result<u8> {
    let machines = Machines::open()?.all()?;
    let rows = machines.iter().filter_map(|machine| {
        let state = machine.state()?;
        (options.all || state.ended.is_none()).then_some((machine, state))
    });
    if options.quiet {
        rows.for_each(|(machine, _)| println!("{}", machine.name));
        return Ok(0);
    }
    let title = ["NAME", "STATE", "SINCE", "CPUS", "MEMORY", "HOST MEMORY", "QEMU", "COMMAND"];
    let mut table = vec![title.map(String::from)];
    table.extend(rows.map(|(machine, state)| row(machine, &state)));
    self::table(&table);
    Ok(0)
}

/// Prints rows with columns of the same width.
pub(crate) fn table<const N: usize>(rows: &[[String; N]]) {
    let mut widths = [0; N];
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = cell.chars().count().max(*width);
        }
    }
    for row in rows {
        let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}"));
        println!("{}", cells.collect::<Vec<_>>().join("  ").trim_end());
    }
}

fn row(machine: &Machine, state: &State) -> [String; 8] {
    let (word, since) = match &state.ended {
        Some(ended) => (format!("ended: {}", ended.why), ended.at),
        None if state.ready => ("runs".into(), state.started),
        None => ("starts".into(), state.started),
    };
    let qemu = state.qemu.filter(|_| state.ended.is_none());
    let resident = qemu.and_then(|qemu| resident(qemu.pid));
    let unknown = || "-".to_string();
    [
        machine.name.clone(),
        word,
        age(now().saturating_sub(since)),
        state.cpus.to_string(),
        format!("{} MiB", state.memory),
        resident.map_or_else(unknown, |bytes| format!("{} MiB", bytes >> 20)),
        qemu.map_or_else(unknown, |qemu| qemu.pid.to_string()),
        if state.command.is_empty() { unknown() } else { shown(&state.command) },
    ]
}

/// A command in a cell: on one line, and not too long.
fn shown(command: &str) -> String {
    let line: String = command.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    match line.char_indices().nth(40) {
        Some((at, _)) => format!("{}...", &line[..at]),
        None => line,
    }
}

pub(crate) fn age(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        7200..172_800 => format!("{} h", seconds / 3600),
        _ => format!("{} days", seconds / 86_400),
    }
}

/// How many bytes of the host's memory a process has. Pages that it shares with others count in
/// parts, so that the sum of all machines is what all of them take; a host that does not tell that
/// counts them in full.
pub(crate) fn resident(pid: i32) -> Option<u64> {
    let read = |name| std::fs::read_to_string(format!("/proc/{pid}/{name}"));
    if let Some(bytes) = read("smaps_rollup").ok().and_then(|text| proportional(&text)) {
        return Some(bytes);
    }
    let pages: u64 = read("statm").ok()?.split_ascii_whitespace().nth(1)?.parse().ok()?;
    Some(pages * rustix::param::page_size() as u64)
}

/// Reads the proportional set size, in bytes, from the text of `smaps_rollup` (proc(5)).
fn proportional(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("Pss:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// `./hayate stop`.
pub fn stop(options: &Stop) -> Result<u8> {
    let machines = Machines::open()?;
    each(&options.names, |name| {
        let machine = machines.find(name)?;
        if machine.runs() {
            match machine.connect() {
                Ok(mut socket) => {
                    Line::new(&socket)?.send(Message::Shutdown(options.time));
                    // The hub hangs up when the machine has ended.
                    let mut rest = [0; 512];
                    while matches!(socket.read(&mut rest), Ok(1..)) {}
                }
                // It is still being started.
                Err(error) => match machine.state() {
                    Some(state) => state.supervisor.signal(Signal::TERM),
                    None => return Err(error),
                },
            }
            machine.wait()?;
        }
        machines.settle(&machine)
    })
}

/// `./hayate rm`.
pub fn remove(options: &Remove) -> Result<u8> {
    let machines = Machines::open()?;
    each(&options.names, |name| {
        let machine = machines.find(name)?;
        if options.force
            && machine.runs()
            && let Some(state) = machine.state()
        {
            // QEMU dies with it.
            state.supervisor.signal(Signal::KILL);
            machine.wait()?;
        }
        machines.remove(&machine)
    })
}

/// Does something to each of these names, whether or not it can be done to the one before.
pub(crate) fn each(names: &[String], mut with: impl FnMut(&str) -> Result<()>) -> Result<u8> {
    let mut status = 0;
    for name in names {
        if let Err(error) = with(name) {
            eprintln!("hayate: {error:#}");
            status = FAULT;
        }
    }
    Ok(status)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read() {
        let text = "5583e0000000-7ffd2f7f4000 ---p 00000000 00:00 0    [rollup]\n\
            Rss:               88412 kB\nPss:               61223 kB\nPss_Anon:   9 kB\n";
        assert_eq!(proportional(text), Some(61_223 << 10));
        assert_eq!(proportional("Rss: 1 kB\nPss: 2\n"), None);
        let own = std::process::id().cast_signed();
        assert!(resident(own).is_some_and(|bytes| bytes > 1 << 20));
    }

    #[test]
    fn cells_are_short() {
        assert_eq!(age(119), "119 s");
        assert_eq!(age(7199), "119 min");
        assert_eq!(age(3 * 86_400), "3 days");
        assert_eq!(shown("sh -c 'a\nb'"), "sh -c 'a b'");
        assert_eq!(shown(&"ä".repeat(41)), format!("{}...", "ä".repeat(40)));
    }
}
