//! Which processes belong to a container: those in its control group.

use crate::cgroup::Group;
use crate::{During, Failure};
use rustix::process::{Pid, Signal, kill_process};
use std::path::PathBuf;

/// Where the guest keeps what it knows of its containers.
const KNOWN: &str = "/run/containers";

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

/// Returns this process's number in the machine's PID namespace, that of the guest's procfs.
pub fn own_number() -> Result<u32, Failure> {
    let tried = "cannot find out the number of this process";
    let link = std::fs::read_link("/proc/self").during(tried)?;
    link.to_string_lossy().parse().during(tried)
}

/// Notes that this process, of this number, is the first of a container, whose namespaces it has
/// already.
pub fn note(id: &str, number: u32) -> Result<(), Failure> {
    let namespace = namespace_of("self").ok_or_else(|| Failure("no mount namespace".into()))?;
    std::fs::create_dir_all(KNOWN).during(format!("cannot make {KNOWN}"))?;
    let text = format!("{number} {}", namespace.display());
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
    if !Group::of(id).has(process) {
        return Err(Failure(format!("process not found: {process} is none of {id}")));
    }
    send(process.parse().during("no number of a process")?, signal)
}

/// Signals all processes of a container.
pub fn signal_all(id: &str, signal: &str) -> Result<(), Failure> {
    first(id)?;
    let group = Group::of(id);
    if signal == "9" {
        return group.kill();
    }
    for process in group.members() {
        // It may have ended meanwhile.
        let _ = send(process, signal);
    }
    Ok(())
}

/// Prints the numbers of a container's processes.
pub fn pids(id: &str) -> Result<(), Failure> {
    first(id)?;
    for process in Group::of(id).members() {
        println!("{process}");
    }
    Ok(())
}

/// Kills what is left of a container, and forgets it. Prints how many of its processes were killed
/// because memory lacked.
pub fn end(id: &str) -> Result<(), Failure> {
    let group = Group::of(id);
    println!("{}", group.killed());
    group.remove()?;
    match std::fs::remove_file(format!("{KNOWN}/{id}")) {
        // It did not come so far.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        removed => removed.during("cannot forget the container"),
    }
}
