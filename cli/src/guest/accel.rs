//! Whether KVM works on this machine.
//!
//! Neither an existing `/dev/kvm` that can be opened nor a machine of a few instructions proves
//! that KVM works: in nested or restricted machines a guest may hang or stop at the first unusual
//! instruction. So Hayate's own kernel is booted on it, to its first programs, within [`PATIENCE`].
//! The result is kept ([`super::verdict`]).
//!
//! A kernel that does not boot says nothing about KVM: the developer may have broken it. KVM is
//! rejected only if TCG succeeds at the same moment, on the same busy host; otherwise the verdict
//! is for this command alone.

use super::log::Sink;
use super::qemu::{self, Qemu};
use super::session::{End, Session, Streams};
use super::verdict::Verdict;
use super::{initramfs, terminal};
use crate::arguments::network::Network;
use crate::arguments::{Accel, Board, Machine, Monitor, Profile};
use crate::compile;
use anyhow::Result;
use hayate_job::{Job, Root};
use std::path::Path;
use std::time::Duration;

/// How long Hayate may take to boot, run a program and end. It takes a fifth of a second.
const PATIENCE: Duration = Duration::from_secs(5);
/// The same with TCG, which is slower; here a busy host gets more time.
const PATIENCE_TCG: Duration = Duration::from_secs(30);
/// MiB that the kernel needs for that.
const MEMORY: u64 = 64;

/// Returns a machine with these options, with KVM if it is requested, or by default if it works.
pub fn machine(options: &Machine) -> Result<Qemu> {
    let mut qemu = Qemu::new(options)?;
    if qemu.is_open() {
        qemu.accelerate(automatic(&qemu.program, options.profile)?);
    }
    Ok(qemu)
}

/// Resolves `wish` for machines that must all be alike.
pub fn settled(wish: Accel, profile: Profile) -> Result<Accel> {
    Ok(match wish {
        Accel::Auto if automatic(&qemu::program()?, profile)? => Accel::Kvm,
        Accel::Auto => Accel::Tcg,
        known => known,
    })
}

fn automatic(program: &Path, profile: Profile) -> Result<bool> {
    use rustix::fs::{Access, access};
    // By checking permissions, not by opening: on a broken host the opening may hang.
    if access("/dev/kvm", Access::READ_OK | Access::WRITE_OK).is_err() {
        return Ok(false);
    }
    let verdict = Verdict::of_kvm(program)?;
    if let Some(works) = verdict.known() {
        return Ok(works);
    }
    let _alone = verdict.alone()?;
    if let Some(works) = verdict.known() {
        return Ok(works);
    }
    // A machine with another kernel works without Hayate's.
    if compile::kernel(profile).is_err() {
        terminal::say("cannot try KVM, because Hayate's kernel does not build; using tcg");
        return Ok(false);
    }
    let with = attempt(Accel::Kvm, profile, PATIENCE)?;
    let Some(problem) = with.problem else {
        verdict.keep(Some(true))?;
        return Ok(true);
    };
    if !with.of_kvm {
        // The machine itself will report the same.
        return Ok(false);
    }
    let without = attempt(Accel::Tcg, profile, PATIENCE_TCG)?;
    let certain = without.problem.is_none() && (!with.late || without.took < PATIENCE);
    if certain {
        verdict.keep(Some(false))?;
    }
    let more = match without.problem {
        Some(problem) => format!(", and not with tcg either ({problem})"),
        None => String::new(),
    };
    terminal::say(&format!("Hayate does not run with KVM here ({problem}){more}; using tcg"));
    Ok(false)
}

/// The result of starting Hayate.
struct Attempt {
    /// Why it did not run its first programs.
    problem: Option<String>,
    /// Whether the only problem was time.
    late: bool,
    /// Whether the cause may be KVM.
    of_kvm: bool,
    took: Duration,
}

/// Starts Hayate with this accelerator, to its first programs.
fn attempt(accel: Accel, profile: Profile, limit: Duration) -> Result<Attempt> {
    let qemu = Qemu::new(&small(accel, profile))?;
    let job = Job {
        arguments: vec![format!("{}/mode", hayate_job::PROGRAMS).into_bytes(), b"list".to_vec()],
        environment: Vec::new(),
        directory: None,
        user: (0, 0),
        account: None,
        stop_signal: None,
        hostname: "tried".into(),
        root: Root::Memory,
        persist: None,
        mounts: Vec::new(),
        disks: Vec::new(),
        volumes: Vec::new(),
        streams: hayate_job::Streams::Separate,
        input_along: false,
        network: None,
        explain: None,
    };
    let initramfs = initramfs::make(&job, None, None, &[], &[])?;
    let streams = Streams::Separate {
        input: Some(Box::new(std::io::empty())),
        output: Box::new(std::io::sink()),
        error: Box::new(std::io::sink()),
    };
    let session = Session::new(qemu, streams, Sink::None, Some(limit));
    let outcome = session.run(Some(&initramfs))?;
    let late = outcome.end == End::TimedOut;
    let of_kvm = !matches!(&outcome.end, End::Failed(fault) if !fault.may_be_of_kvm());
    let problem = match outcome.end {
        End::Program(0) => None,
        End::Program(status) => Some(format!("its first program ended with status {status}")),
        End::Panic => Some("its kernel panicked".into()),
        End::TimedOut => Some(format!("it did not boot within {} s", limit.as_secs())),
        End::Killed(signal) => Some(format!("signal {signal} ended it")),
        End::Machine(status) => Some(format!("QEMU ended with status {status}")),
        End::Failed(fault) => Some(fault.to_string()),
    };
    Ok(Attempt { problem, late, of_kvm, took: outcome.total })
}

/// The smallest machine that Hayate runs in.
fn small(accel: Accel, profile: Profile) -> Machine {
    Machine {
        cpus: 1,
        memory: MEMORY,
        accel,
        board: Board::Q35,
        aslr: None,
        deterministic: false,
        nvm: None,
        network: Network::default(),
        append: Vec::new(),
        qemu: Vec::new(),
        kernel: None,
        background: false,
        vmm: Monitor::Qemu,
        linux: false,
        processor: None,
        profile,
    }
}
