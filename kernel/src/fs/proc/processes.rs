//! The root of procfs: the system's files and a directory for each process; and `task` of a
//! process, with a directory for each of its threads.

use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;

use hayate_abi::{Errno, Result};

use super::process as files;
use super::process::Target;
use super::system;
use super::tree;
use super::tree::{Listing, Node, What};
use crate::process;
use crate::process::pids;
use crate::reclaim::growth;
use crate::vfs::inode::{DirectorySink, FileKind, Inode};

/// Inode number of the root, as on Linux.
const ROOT_NUMBER: u64 = 1;
/// Positions in the root: fixed entries from 2 on, then processes by number.
const FIRST_PROCESS: u64 = 1 << 16;

/// The root directory of a mounted procfs.
pub fn root(device: u64) -> Arc<dyn Inode> {
    static ROOT: What<()> = What::Listing(&Root);
    Node::entry((), &ROOT, device, ROOT_NUMBER, b"")
}

/// Parses a number in its one decimal form, without sign or leading zeros.
pub fn number(name: &[u8]) -> Option<u32> {
    let text = core::str::from_utf8(name).ok()?;
    let digits = text.bytes().all(|byte| byte.is_ascii_digit()) && !text.starts_with('0');
    if digits { text.parse().ok() } else { None }
}

struct Root;

impl Listing<()> for Root {
    fn lookup(&self, _: &(), device: u64, name: &[u8]) -> Result<Arc<dyn Inode>> {
        if let Some(item) = tree::find(system::ITEMS, name) {
            return Ok(Node::entry((), &item.what, device, ROOT_NUMBER, name));
        }
        // A thread's number is found as well, though it is not listed (proc(5)).
        let id = number(name).ok_or(Errno::ENOENT)?;
        let target = match pids::process(id) {
            Some(process) => Target::of_process(&process),
            None => Target::of_thread(&pids::thread(id).ok_or(Errno::ENOENT)?),
        };
        Ok(Node::entry(target, &files::PROCESS, device, ROOT_NUMBER, name))
    }

    fn list(&self, _: &(), position: &mut u64, sink: &mut dyn DirectorySink) -> Result<()> {
        if *position < FIRST_PROCESS {
            if !tree::list(system::ITEMS, 2, position, sink) {
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

/// Enumerates directories named by numbers, at positions `base` plus the number.
fn list_numbers(ids: &[u32], base: u64, position: &mut u64, sink: &mut dyn DirectorySink) {
    for &id in ids {
        let at = base + u64::from(id);
        if at < *position {
            continue;
        }
        let name = format!("{id}");
        if !sink.entry(
            tree::mix(base, name.as_bytes()) | 1,
            FileKind::Directory,
            name.as_bytes(),
            at + 1,
        ) {
            return;
        }
        *position = at + 1;
    }
}

/// `/proc/PID/task`.
pub struct Tasks;

impl Listing<Target> for Tasks {
    fn lookup(&self, target: &Target, device: u64, name: &[u8]) -> Result<Arc<dyn Inode>> {
        let id = number(name).ok_or(Errno::ENOENT)?;
        let thread = target.process()?.thread(id).ok_or(Errno::ENOENT)?;
        Ok(Node::entry(Target::of_thread(&thread), &files::THREAD, device, ROOT_NUMBER, name))
    }

    fn list(
        &self,
        target: &Target,
        position: &mut u64,
        sink: &mut dyn DirectorySink,
    ) -> Result<()> {
        let threads = target.process()?.threads()?;
        let mut ids = growth::collect(threads.iter().map(|thread| thread.id()))?;
        ids.sort_unstable();
        list_numbers(&ids, 2, position, sink);
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
