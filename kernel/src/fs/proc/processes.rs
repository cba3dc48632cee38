//! The root of procfs: the system's files and a directory for each process.

use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;

use hayate_abi::{Errno, Result};

use super::process as files;
use super::target::Target;
use super::text::{list_numbers, number};
use super::tree;
use super::tree::{Item, Listing, Node, What};
use super::{hayate, ipc, kmsg, settings, system};
use crate::process;
use crate::process::pids;
use crate::reclaim::growth;
use crate::vfs::inode::{DirectorySink, Inode};

/// Positions in the root: fixed entries from 2 on, then processes by number.
const FIRST_PROCESS: u64 = 1 << 16;

/// The files of the root directory, besides processes.
static ITEMS: &[Item<()>] = &[
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
    Item { name: "self", what: What::Link(own_process) },
    Item { name: "stat", what: What::Text(system::stat) },
    Item { name: "swaps", what: What::Text(system::swaps) },
    Item { name: "sys", what: What::Directory(settings::ITEMS) },
    Item { name: "sysvipc", what: What::Directory(ipc::ITEMS) },
    Item { name: "thread-self", what: What::Link(own_thread) },
    Item { name: "uptime", what: What::Text(system::uptime) },
    Item { name: "version", what: What::Text(system::version) },
    Item { name: "vmstat", what: What::Text(system::vmstat) },
];

/// The root directory of a mounted procfs.
pub fn root(device: u64) -> Arc<dyn Inode> {
    static ROOT: What<()> = What::Listing(&Root);
    Node::entry((), &ROOT, device, tree::ROOT_NUMBER, b"")
}

struct Root;

impl Listing<()> for Root {
    fn lookup(&self, _: &(), device: u64, name: &[u8]) -> Result<Arc<dyn Inode>> {
        if let Some(item) = tree::find(ITEMS, name) {
            return Ok(Node::entry((), &item.what, device, tree::ROOT_NUMBER, name));
        }
        // A thread's number is found as well, though it is not listed (proc(5)).
        let id = number(name).ok_or(Errno::ENOENT)?;
        let target = match pids::process(id) {
            Some(process) => Target::of_process(&process),
            None => Target::of_thread(&pids::thread(id).ok_or(Errno::ENOENT)?),
        };
        Ok(Node::entry(target, &files::PROCESS, device, tree::ROOT_NUMBER, name))
    }

    fn list(&self, _: &(), position: &mut u64, sink: &mut dyn DirectorySink) -> Result<()> {
        if *position < FIRST_PROCESS {
            if !tree::list(ITEMS, 2, position, sink) {
                return Ok(());
            }
            *position = FIRST_PROCESS;
        }
        let mut ids = growth::collect(pids::processes()?.iter().map(|process| process.id()))?;
        ids.sort_unstable();
        list_numbers(&ids, FIRST_PROCESS, position, sink);
        Ok(())
    }
}

/// `/proc/self`.
pub fn own_process(_: &()) -> Result<Vec<u8>> {
    Ok(format!("{}", process::current().process.id()).into_bytes())
}

/// `/proc/thread-self`.
pub fn own_thread(_: &()) -> Result<Vec<u8>> {
    let thread = process::current();
    Ok(format!("{}/task/{}", thread.process.id(), thread.id()).into_bytes())
}
