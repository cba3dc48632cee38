//! Starts of machines that are kept, so that later pods begin there and not at a boot
//! (docs/snapshots.md).
//!
//! The second pod whose machine is of one kind has its start kept: a process of its own boots such
//! a machine, saves it and ends, at a lower priority than the pod. A shim may end earlier, with its
//! pod. All machines of one size and one kind of network are of one kind: a machine that is saved
//! has the device by which a folder is shared, but has not mounted it; each clone mounts its own.
//!
//! A pod stays, so its machine gives unused memory back, and has a copy of the saved memory.

use crate::library::Library;
use crate::machine::{LIBRARIES, has_tap, job, options};
use crate::size::Size;
use crate::spec::Network;
use anyhow::{Context, Result, bail};
use hayate_cli::guest::initramfs;
use hayate_cli::guest::qemu::Qemu;
use hayate_cli::guest::volumes::Volume;
use hayate_cli::snapshots::directory::{Making, Snapshot};
use hayate_cli::snapshots::kept::{PATIENCE, Starts};
use hayate_cli::snapshots::make::{About, Machine, Warming, save_machine};
use hayate_cli::snapshots::manifest::{Identity, checksum, processor};
use hayate_container_plan::POD;
use std::ffi::OsString;
use std::process::Stdio;
use std::time::Duration;

/// The first argument of a process that keeps a start.
const KEEP: &str = "keep-start";
/// The host name of a machine that is saved.
const HOSTNAME: &str = "hayate";

/// A kind of machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind {
    /// Its size.
    pub size: Size,
    /// Whether it has an interface in the namespace of its pod.
    pub has_tap: bool,
}

impl Kind {
    /// The arguments of a process that keeps its start.
    fn arguments(self) -> [String; 4] {
        let network = if self.has_tap { "tap" } else { "user" };
        [KEEP.into(), self.size.memory.to_string(), self.size.cpus.to_string(), network.into()]
    }

    /// The kind that these arguments mean; `None`: they are for something else.
    fn of(arguments: &[String]) -> Option<Kind> {
        let [word, memory, cpus, network] = arguments else { return None };
        let size = Size { memory: memory.parse().ok()?, cpus: cpus.parse().ok()? };
        let has_tap = network == "tap";
        (word == KEEP && (has_tap || network == "user")).then_some(Kind { size, has_tap })
    }

    /// The network of a machine that is saved.
    fn network(self) -> Network {
        if self.has_tap { Network::New } else { Network::Host }
    }

    /// The name of its start: all that makes such a machine.
    fn name(self, library: &Library, qemu: &Qemu) -> Result<String> {
        let mut text = format!("{self:?}\n{:?}\n{}\n", processor(), qemu.has_kvm());
        let files = [qemu.program.clone(), library.kernel(), library.init(), library.container()];
        for file in files {
            let Identity { path, state, .. } = Identity::of(&file)?;
            text += &format!("{} {state}\n", path.display());
        }
        Ok(checksum(text.as_bytes())[..32].to_string())
    }
}

/// Returns the start of a machine of this kind, if it was kept.
pub fn find(kind: Kind, library: &Library, qemu: &Qemu) -> Option<Snapshot> {
    let name = kind.name(library, qemu).ok()?;
    Starts::at(library.starts()).ok()?.find(&name)
}

/// Has another process note that a machine of this kind has booted, and keep its start the second
/// time.
pub fn remember(kind: Kind) {
    tokio::spawn(async move {
        if let Err(error) = keep_beside(kind).await {
            log::warn!("cannot keep the start of a machine for later pods: {error:#}");
        }
    });
}

async fn keep_beside(kind: Kind) -> Result<()> {
    let mut command = tokio::process::Command::new(std::env::current_exe()?);
    command.args(kind.arguments()).stdin(Stdio::null()).stdout(Stdio::null());
    let ended = command.stderr(Stdio::piped()).process_group(0).output().await?;
    if !ended.status.success() {
        bail!("{}", String::from_utf8_lossy(&ended.stderr).trim());
    }
    Ok(())
}

/// Does what such a process is for, if this is one: `None` if it is none.
pub fn serve() -> Option<Result<()>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    Some(keep(Kind::of(&arguments)?))
}

fn keep(kind: Kind) -> Result<()> {
    let library = Library::find()?;
    let network = kind.network();
    if kind.has_tap != has_tap(&network) {
        bail!("this host has no /dev/net/tun any more");
    }
    if kind.has_tap {
        nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET)
            .context("cannot make a network namespace")?;
    }
    let mut machine = options(kind);
    machine.background = true;
    let mut qemu = Qemu::installed(&machine, library.kernel())?;
    qemu.accelerate(library.has_kvm());
    let name = kind.name(&library, &qemu)?;
    Starts::at(library.starts())?.note(&name, |making| save(making, kind, &library, qemu))
}

fn save(making: &Making, kind: Kind, library: &Library, mut qemu: Qemu) -> Result<()> {
    // A machine that could be started again with TCG would not be the one that is described.
    qemu.settle();
    qemu.hide_variable(LIBRARIES);
    let empty = tempfile::tempdir().context("cannot make a folder")?;
    let mut shared = OsString::from(empty.path());
    shared.push(format!(":{POD}"));
    // For the device alone: nothing is mounted.
    qemu.volume(Volume::of(&shared)?)?;
    let told = if kind.has_tap { None } else { qemu.network() };
    let job = job(HOSTNAME, Vec::new(), told);
    let initramfs = initramfs::pack(
        &std::env::temp_dir(),
        &job,
        None,
        None,
        &library.init(),
        &[library.container()],
        &[],
    )?;
    let limit = Some(Duration::from_secs(PATIENCE));
    let machine = Machine { name: HOSTNAME, qemu, job: &job, initramfs: &initramfs };
    save_machine(making, machine, About::default(), Warming { limit, ..Warming::default() }, true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_is_handed_to_another_process() {
        for (memory, cpus, has_tap) in [(1024, 1, true), (192, 16, false)] {
            let kind = Kind { size: Size { memory, cpus }, has_tap };
            assert_eq!(Kind::of(&kind.arguments()), Some(kind));
        }
        let words = |text: &str| text.split(' ').map(String::from).collect::<Vec<_>>();
        for text in ["start", "keep-start 1024 1", "keep-start x 1 tap", "keep-start 1 1 none"] {
            assert_eq!(Kind::of(&words(text)), None, "{text}");
        }
    }
}
