//! The root of procfs: the system's files and a directory for each process.

use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;

use hayate_abi::{Errno, Result};

use super::hidden::Rules;
use super::process as files;
use super::target::Target;
use super::text::{list_numbers, number};
use super::tree;
use super::tree::{Item, Listing, Node, Subject, What};
use super::{hayate, ipc, kmsg, settings, system};
use crate::namespace::Handle;
use crate::process;
use crate::process::pid_namespace::PidNamespace;
use crate::process::pids;
use crate::reclaim::growth;
use crate::vfs::inode::{DirectorySink, Inode};

/// Positions in the root: fixed entries from 2 on, those of the mount, then processes by number.
const OWN_FROM: u64 = 1 << 15;
const FIRST_PROCESS: u64 = 1 << 16;

/// The files of the root directory, besides processes.
static ITEMS: &[Item<()>] = &[
    Item { name: "cgroups", what: What::Text(system::cgroups) },
    Item { name: "cmdline", what: What::Text(system::cmdline) },
    Item { name: "cpuinfo", what: What::Text(system::cpuinfo) },
    Item { name: "devices", what: What::Text(system::devices) },
    Item { name: "filesystems", what: What::Text(system::filesystems) },
    Item { name: "hayate", what: What::Directory(hayate::ITEMS) },
    Item { name: "kmsg", what: What::Opened(0o400, kmsg::open) },
    Item { name: "loadavg", what: What::Text(system::loadavg) },
    Item { name: "meminfo", what: What::Text(system::meminfo) },
    Item { name: "mounts", what: What::Link(|()| Ok(b"self/mounts".to_vec())) },
    Item { name: "net", what: What::Link(|()| Ok(b"self/net".to_vec())) },
    Item { name: "stat", what: What::Text(system::stat) },
    Item { name: "swaps", what: What::Text(system::swaps) },
    Item { name: "sys", what: What::Directory(settings::ITEMS) },
    Item { name: "sysvipc", what: What::Directory(ipc::ITEMS) },
    Item { name: "uptime", what: What::Text(system::uptime) },
    Item { name: "version", what: What::Text(system::version) },
    Item { name: "vmstat", what: What::Text(system::vmstat) },
];

/// Those that differ between one mounted procfs and another.
static OWN_ITEMS: &[Item<Instance>] = &[
    Item { name: "self", what: What::Link(own_process) },
    Item { name: "thread-self", what: What::Link(own_thread) },
];

/// A mounted procfs: it shows the processes of a PID namespace, that of its mounter.
#[derive(Clone)]
pub struct Instance {
    /// The namespace.
    pub pids: Handle<PidNamespace>,
    /// What it hides.
    pub rules: Arc<Rules>,
}

impl Instance {
    /// A process or thread as it shows it.
    fn shown(&self, target: Target) -> Target {
        if self.rules.hide() { target.under(&self.rules) } else { target }
    }
}

impl Subject for Instance {
    fn is_fixed(&self) -> bool {
        true
    }

    fn seed(&self) -> u64 {
        0
    }
}

/// The root directory of a mounted procfs.
pub fn root(instance: &Instance, device: u64) -> Arc<dyn Inode> {
    static ROOT: What<Instance> = What::Listing(&Root);
    Node::entry(instance.clone(), &ROOT, device, tree::ROOT_NUMBER, b"")
}

struct Root;

impl Listing<Instance> for Root {
    fn lookup(&self, instance: &Instance, device: u64, name: &[u8]) -> Result<Arc<dyn Inode>> {
        if let Some(item) = tree::find(OWN_ITEMS, name) {
            let instance = instance.clone();
            return Ok(Node::entry(instance, &item.what, device, tree::ROOT_NUMBER, name));
        }
        if let Some(item) = tree::find(ITEMS, name).filter(|_| !instance.rules.only_processes()) {
            return Ok(Node::entry((), &item.what, device, tree::ROOT_NUMBER, name));
        }
        // A thread's number is found as well, though it is not listed (proc(5)).
        let pids = &instance.pids;
        let id = number(name).and_then(|id| pids.meant(id)).ok_or(Errno::ENOENT)?;
        let target = match pids::process(id) {
            Some(process) => Target::of_process(&process, pids),
            None => Target::of_thread(&pids::thread(id).ok_or(Errno::ENOENT)?, pids),
        };
        let target = instance.shown(target);
        target.check()?;
        Ok(Node::entry(target, &files::PROCESS, device, tree::ROOT_NUMBER, name))
    }

    fn list(
        &self,
        instance: &Instance,
        position: &mut u64,
        sink: &mut dyn DirectorySink,
    ) -> Result<()> {
        let all = !instance.rules.only_processes();
        if all && *position < OWN_FROM && !tree::list(ITEMS, 2, position, sink) {
            return Ok(());
        }
        if *position < FIRST_PROCESS {
            *position = (*position).max(OWN_FROM);
            if !tree::list(OWN_ITEMS, OWN_FROM, position, sink) {
                return Ok(());
            }
            *position = FIRST_PROCESS;
        }
        let hides = instance.rules.hide();
        let sees = |process: &Arc<_>| {
            !hides || instance.shown(Target::of_process(process, &instance.pids)).check().is_ok()
        };
        let all = instance.pids.processes()?;
        let seen = all.iter().filter(|process| sees(process));
        let shown = seen.map(|process| instance.pids.shown(process.id()));
        let mut ids = growth::collect(shown.filter(|&id| id != 0))?;
        ids.sort_unstable();
        list_numbers(&ids, FIRST_PROCESS, position, sink);
        Ok(())
    }
}

/// The number of the caller's process or thread in the procfs. `ENOENT` if it is not there
/// (`proc_self_get_link`).
fn own(instance: &Instance, kernel: u32) -> Result<u32> {
    Some(instance.pids.shown(kernel)).filter(|&number| number != 0).ok_or(Errno::ENOENT)
}

/// `/proc/self`.
fn own_process(instance: &Instance) -> Result<Vec<u8>> {
    Ok(format!("{}", own(instance, process::current().process.id())?).into_bytes())
}

/// `/proc/thread-self`.
fn own_thread(instance: &Instance) -> Result<Vec<u8>> {
    let thread = process::current();
    let (process, thread) = (own(instance, thread.process.id())?, own(instance, thread.id())?);
    Ok(format!("{process}/task/{thread}").into_bytes())
}
