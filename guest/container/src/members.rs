//! Which processes belong to a container: those in its mount namespace.

use crate::{During, Failure};
use rustix::process::{Pid, Signal, kill_process};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Where the guest keeps what it knows of its containers.
const KNOWN: &str = "/run/containers";
/// How long killed processes may take to end.
const GRACE: Duration = Duration::from_secs(10);

/// A container, as far as its programs must be known.
struct Known {
    /// Its first program.
    first: u32,
    /// The name of its mount namespace.
    namespace: PathBuf,
}

fn namespace_of(process: &str) -> Option<PathBuf> {
    std::fs::read_link(format!("/proc/{process}/ns/mnt")).ok()
}

/// Notes that this process is the first of a container, whose namespaces it has already.
pub fn note(id: &str) -> Result<(), Failure> {
    let namespace = namespace_of("self").ok_or_else(|| Failure("no mount namespace".into()))?;
    std::fs::create_dir_all(KNOWN).during(format!("cannot make {KNOWN}"))?;
    let text = format!("{} {}", std::process::id(), namespace.display());
    std::fs::write(format!("{KNOWN}/{id}"), text).during("cannot note the container")
}

fn known(id: &str) -> Result<Known, Failure> {
    let no = || Failure(format!("there is no container {id}"));
    let text = std::fs::read_to_string(format!("{KNOWN}/{id}")).map_err(|_| no())?;
    let (first, namespace) = text.split_once(' ').ok_or_else(no)?;
    Ok(Known { first: first.parse().map_err(|_| no())?, namespace: namespace.into() })
}

/// Returns the first program of a container, which runs.
pub fn first(id: &str) -> Result<u32, Failure> {
    let Known { first, namespace } = known(id)?;
    // Its number may be another's by now.
    if namespace_of(&first.to_string()).as_ref() == Some(&namespace) {
        return Ok(first);
    }
    Err(Failure(format!("the container {id} has ended: process not found")))
}

/// Returns the processes of a container but for this one.
fn members(namespace: &PathBuf) -> Vec<u32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let numbers = names.filter_map(|name| name.parse::<u32>().ok());
    numbers
        .filter(|&number| number != std::process::id())
        .filter(|number| namespace_of(&number.to_string()).as_ref() == Some(namespace))
        .collect()
}

fn send(process: u32, signal: &str) -> Result<(), Failure> {
    let number: i32 = signal.parse().during(format!("no signal {signal}"))?;
    let signal = Signal::from_named_raw(number);
    let process = i32::try_from(process).ok().and_then(Pid::from_raw);
    let (Some(process), Some(signal)) = (process, signal) else {
        return Err(Failure(format!("there is no signal {number}")));
    };
    kill_process(process, signal).during("cannot signal the process")
}

/// Signals one process of a container: the first, unless another is named.
pub fn signal(id: &str, signal: &str, process: Option<&str>) -> Result<(), Failure> {
    let Some(process) = process else { return send(first(id)?, signal) };
    if namespace_of(process) != Some(known(id)?.namespace) {
        return Err(Failure(format!("process not found: {process} is none of {id}")));
    }
    send(process.parse().during("no number of a process")?, signal)
}

/// Signals all processes of a container.
pub fn signal_all(id: &str, signal: &str) -> Result<(), Failure> {
    for process in members(&known(id)?.namespace) {
        // It may have ended meanwhile.
        let _ = send(process, signal);
    }
    Ok(())
}

/// Prints the numbers of a container's processes.
pub fn pids(id: &str) -> Result<(), Failure> {
    for process in members(&known(id)?.namespace) {
        println!("{process}");
    }
    Ok(())
}

/// Prints what the processes of a container have used that run, and of their children those that
/// ended and were waited for.
pub fn stats(id: &str) -> Result<(), Failure> {
    let tick = 1_000_000_000 / rustix::param::clock_ticks_per_second().max(1);
    let page = rustix::param::page_size() as u64;
    let (mut time, mut memory, mut count) = (0_u64, 0_u64, 0_u64);
    for process in members(&known(id)?.namespace) {
        let text = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
        // The name before may hold blanks (proc(5)); the first field behind it is the third.
        let Some((_, rest)) = text.rsplit_once(") ") else { continue };
        let fields: Vec<&str> = rest.split_whitespace().collect();
        let field = |number: usize| -> u64 {
            fields.get(number - 3).and_then(|text| text.parse().ok()).unwrap_or_default()
        };
        time += (14..=17).map(field).sum::<u64>() * tick;
        memory += field(24) * page;
        count += 1;
    }
    println!("{time} {memory} {count}");
    Ok(())
}

/// Kills what is left of a container, and forgets it.
pub fn end(id: &str) -> Result<(), Failure> {
    let Known { namespace, .. } = known(id)?;
    let deadline = Instant::now() + GRACE;
    loop {
        let left = members(&namespace);
        if left.is_empty() {
            break;
        }
        if Instant::now() > deadline {
            return Err(Failure(format!("{} processes do not end", left.len())));
        }
        for process in left {
            let _ = send(process, "9");
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    std::fs::remove_file(format!("{KNOWN}/{id}")).during("cannot forget the container")
}
