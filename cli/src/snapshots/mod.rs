//! Snapshots: `snapshot make`, `list`, `show` and `rm`, and machines that begin at one (`run
//! --from`, `start --from`).
//!
//! # What a snapshot is
//!
//! A folder `build/snapshots/NAME` ([`directory`]) with three files: `memory`, the machine's
//! memory with holes where it is zero, `devices`, the state of processors and devices as QEMU
//! writes it, and `manifest` ([`manifest`]), which says what both were made with and how the others
//! must look. It is made beside, flushed, and renamed: there is the old one or the new one.
//!
//! # How it is made and started
//!
//! Stock QEMU from 7.2 on has what is needed. The machine that is saved has its memory in a file
//! that it shares (`memory-backend-file,share=on`); with the capability `x-ignore-shared` a
//! migration leaves that memory out, and what remains are some hundred kilobytes of devices. A
//! clone maps the file privately (`share=off`): what it reads is the host's one copy in the page
//! cache, and what it writes is copied page by page, by the host's kernel. It reads no kernel and
//! no initramfs, and its firmware does not run.
//!
//! # A clone is not its twin
//!
//! Before it is saved, the machine ends all programs but its init. A clone's init does nothing
//! until the host has said who it is: random bytes, the time, addresses, name
//! ([`hayate_job::Fresh`]). Then it renews the kernel's generator and secrets, and only then it
//! starts programs. So no program of a twin runs on the same random numbers, not even for a moment;
//! `kernel/src/fs/proc/fresh.rs` says why this is not the device `vmgenid`.
//!
//! `run` keeps snapshots by itself, too ([`automatic`]): the third run of one machine begins there.
//!
//! # Trust
//!
//! A guest cannot change a snapshot: its memory is mapped privately, and it has no device by which
//! QEMU would drop memory, because for a file that makes holes in the file
//! (`ram_block_discard_range` of QEMU). A machine that has the device, because it is large or stays
//! for long, gets a copy of the memory. Files that are cut short, or not those that were made
//! together, are refused.
//!
//! # Road not taken
//!
//! Memory in the migration's stream: each clone would read all of it and have a copy of its own.
//! `mapped-ram` and `userfaultfd`: newer than the QEMU of Debian 12, and no better than a private
//! mapping on the host where the file is. Programs that go on running in clones: each holds secrets
//! and seeds that it does not know to be shared. A program that says that it is ready
//! (docs/templates.md) is kept by the kernel, in snapshots too, and renews them as after a fork.

pub mod automatic;
pub mod clone;
pub mod directory;
pub mod kept;
pub mod make;
pub mod manage;
pub mod manifest;
pub mod options;
pub mod words;

use crate::arguments::snapshots::SnapshotRequest;
use anyhow::Result;

/// `./hayate snapshot`.
pub fn handle(request: &SnapshotRequest) -> Result<u8> {
    match request {
        SnapshotRequest::Make(options) => make::make(options),
        SnapshotRequest::List { quiet } => manage::list(*quiet),
        SnapshotRequest::Show { name } => manage::show(name),
        SnapshotRequest::Rm { names } => manage::remove(names),
    }
}
