//! procfs: what the kernel knows about itself and its processes, as files (proc(5)).
//!
//! # Design
//!
//! The tree is data: arrays of [`tree::Item`]s whose leaves are functions that write text. One
//! generic inode, [`tree::Node`], serves the whole tree. Its parameter `T` is the subject of a
//! subtree: none for the system's own files ([`system`], [`settings`]), a process or thread for
//! `/proc/PID` ([`process`]). Nothing is cached: an entry is made when it is looked up and holds
//! only a weak reference to its process, so that a program that keeps `/proc/PID` open keeps no
//! process alive.
//!
//! A text is made when a reader is at its beginning, and stays the same for the reads that follow,
//! so that a file read in pieces is one consistent snapshot.
//!
//! The layers, lowest first; a file knows only those above it in this table:
//!
//! | file | contents |
//! |---|---|
//! | [`tree`] | items, inodes and open texts, of any subject |
//! | [`text`] | making text, and the numbers in it |
//! | [`hidden`] | the options of a mounted procfs |
//! | [`target`] | the process or thread that a file is about |
//! | [`frames`], [`nvm`], [`hayate`] | `/proc/hayate` |
//! | [`sockets`], [`network_counts`], [`groups`], [`network`] | `/proc/PID/net` |
//! | [`network_settings`] | `/proc/sys/net` |
//! | [`ipc`] | `/proc/sysvipc`, and the settings of message passing |
//! | [`kmsg`] | the kernel's log |
//! | [`settings`], [`system`] | `/proc/sys`, the files about the whole system |
//! | [`status`], [`inside`], [`descriptors`], [`namespaces`], [`user_maps`] | the files of a process, by purpose |
//! | [`process`] | `/proc/PID` and `/proc/PID/task` |
//! | [`processes`] | the root |
//!
//! Lock order: an open text's lock, then all that a writer of text takes; none is held between two
//! reads. Road not taken: a table of entries that fork and exit keep up to date; they would pay for
//! files that few ever read.
//!
//! Numbers that Hayate does not have are left out where programs allow it, and are 0 where the
//! format needs a value (`/proc/PID/stat`); none is invented.

mod descriptors;
mod frames;
mod fresh;
mod groups;
mod hayate;
mod hidden;
mod inside;
mod ipc;
mod kmsg;
pub mod namespaces;
mod network;
mod network_counts;
mod network_settings;
mod nvm;
mod process;
mod processes;
mod settings;
mod sockets;
mod status;
pub mod system;
mod target;
pub mod text;
pub mod tree;
mod user_maps;

use alloc::string::String;
use alloc::sync::Arc;

use hayate_abi::Result;

use hidden::Rules;
use processes::Instance;
use target::Target;

use crate::credentials::Credentials;
use crate::namespace::Handle;
use crate::process::pid_namespace;
use crate::process::record::Process;
use crate::process::thread::{current, try_current};
use crate::user_namespace::UserNamespace;
use crate::vfs::filesystem::{Caching, FileSystem, Usage, anonymous_device};
use crate::vfs::filesystem_type::{FileSystemType, MountRequest, register_type};
use crate::vfs::inode::{Inode, downcast};
use crate::vfs::open_file::OpenFile;

/// `PROC_SUPER_MAGIC`.
const MAGIC: u64 = 0x9fa0;

/// Registers the type with mount(2).
pub fn register() {
    static TYPE: FileSystemType =
        FileSystemType { name: "proc", needs_device: false, user: of_numbers, mount };
    register_type(&TYPE);
}

/// The process whose `/proc/PID` is open here; `None` for another file. ESRCH when it has ended.
pub fn process_of(file: &OpenFile) -> Option<Result<Arc<Process>>> {
    let node = downcast::<tree::Node<Target>>(file.inode())?;
    node.subject_of(&process::PROCESS).map(Target::process)
}

/// A mounted procfs.
struct ProcFs {
    device: u64,
    instance: Instance,
}

/// It belongs to the user namespace of the numbers that it shows (`proc_init_fs_context`).
fn of_numbers(_: &Credentials) -> Handle<UserNamespace> {
    current().process.pid_namespace().owner.clone()
}

fn mount(request: &MountRequest<'_>) -> Result<Arc<dyn FileSystem>> {
    let rules = Rules::default();
    rules.set(request.data, &request.resolver.credentials.user)?;
    let rules = Arc::new(rules);
    let pids = match try_current() {
        Some(thread) => thread.process.pid_namespace(),
        // At boot.
        None => Handle::First(&pid_namespace::FIRST),
    };
    Ok(Arc::new(ProcFs { device: anonymous_device(), instance: Instance { pids, rules } }))
}

impl FileSystem for ProcFs {
    fn type_name(&self) -> &'static str {
        "proc"
    }

    fn device(&self) -> u64 {
        self.device
    }

    fn root(&self) -> Arc<dyn Inode> {
        processes::root(&self.instance, self.device)
    }

    fn usage(&self) -> Usage {
        Usage { magic: MAGIC, block_size: 4096, name_length: 255, ..Usage::default() }
    }

    fn shows_system(&self) -> bool {
        true
    }

    fn options(&self) -> String {
        self.instance.rules.shown()
    }

    fn reconfigure(&self, _: bool, data: &[u8]) -> Result<()> {
        self.instance.rules.set(data, &current().credentials().user)
    }

    fn caching(&self) -> Caching {
        Caching::Never
    }
}
