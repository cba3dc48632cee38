//! containerd's shim of Hayate, `io.containerd.hayate.v1`: containers in machines.
//!
//! # Who does what
//!
//! containerd starts this program once for each pod (`start`, which leaves a process behind that
//! serves TTRPC), and once more when that process was killed (`delete`). The process owns the pod's
//! machine: QEMU is its child and dies with it (`PR_SET_PDEATHSIG`), so whatever ends the shim
//! leaves no machine. [`service`] has the calls of containerd, [`pod`] the state of containers and
//! programs, [`machine`] the machine, [`link`] the channel to its guest, [`program`] one program
//! with its streams, [`stdio`] the host's ends of these, [`logger`] programs that take output,
//! [`hooks`] those of the specification, [`spec`] which parts of the OCI specification are done,
//! passed over and refused, with [`controls`], [`devices`], [`seccomp`] and
//! [`size`]; [`folder`] the folder that pod and machine share, [`metrics`] what a container has
//! used, [`starts`] where machines begin that need no boot.
//!
//! # Files
//!
//! The root file system of a container is mounted on the host, below a folder of the pod that the
//! machine shares by 9P (docs/volumes.md). QEMU sees mounts that are made there later, so further
//! containers of a pod need no further device. In the guest the program `container`
//! (`guest/container`) makes namespaces and mounts.
//!
//! # Roads not taken
//!
//! `./hayate start` and `exec` as child processes: the machine would belong to its supervisor, and
//! outlive a shim that is killed; and each program would cost a process and three pipes more. This
//! program uses the same library (`hayate-cli`) and is the supervisor. The synchronous API of
//! `containerd-shim`: each `Wait` of containerd holds a thread of its server, which has a bounded
//! number of them, and then serves no `Kill`. A disk made of the image, as `run --image` has: it is
//! quicker to read, but containerd's snapshots are folders, and volumes can be nothing else.
#![forbid(unsafe_code)]

mod controls;
mod devices;
mod folder;
mod hooks;
mod library;
mod link;
mod logger;
mod machine;
mod metrics;
mod network;
mod pod;
mod program;
mod seccomp;
mod service;
mod size;
mod spec;
mod starts;
mod stdio;

use containerd_shim::{Config, asynchronous::run};
use std::io::Write;
use std::process::ExitCode;

fn main() -> ExitCode {
    match starts::serve() {
        None => {}
        Some(Ok(())) => return ExitCode::SUCCESS,
        Some(Err(error)) => {
            // The shim that wants to hear of it may have ended.
            let _ = writeln!(std::io::stderr(), "{error:#}");
            return ExitCode::FAILURE;
        }
    }
    shim();
    ExitCode::SUCCESS
}

#[tokio::main]
async fn shim() {
    let config = Config {
        // The session of a machine waits for QEMU itself, and takes its orphans' place by nobody.
        no_reaper: true,
        no_sub_reaper: true,
        ..Config::default()
    };
    run::<service::Shim>("io.containerd.hayate.v1", Some(config)).await;
}
