//! A template: the child of a fork, kept before its first instruction.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use hayate_abi::signal::{SignalSet, SignalStack};
use hayate_template_rules::Rules;

use super::declaration::Environments;
use super::source::Source;
use crate::credentials::Credentials;
use crate::memory::Space;
use crate::memory::space::Lineage;
use crate::process::record::Vectors;
use crate::process::sequences::registration::Registration;
use crate::process::signal::ActionTable;
use crate::process::thread::{Thread, ThreadName};
use crate::process::transform::Position;
use crate::program::{Executable, Strings};
use crate::vfs::context::FsContext;
use crate::vfs::mount::Location;

/// The longest name, in bytes.
pub const NAME_MAX: usize = 64;

/// Whether a text can be the name of a template: letters, digits, `.`, `_`, `-`.
pub fn is_name(text: &[u8]) -> bool {
    let fits = |&byte: &u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    (1..=NAME_MAX).contains(&text.len()) && text.iter().all(fits)
}

/// A template.
pub struct Template {
    /// Its name, unique among those of its owner.
    pub name: Vec<u8>,
    /// What its starts have in common; `None`: memory was exhausted.
    pub lineage: Option<Arc<Lineage>>,
    /// The memory: never run in, only copied.
    pub space: Arc<Space>,
    /// Where each start goes on.
    pub position: Position,
    /// The floating-point state, in the form of a signal frame.
    pub fpu: Vec<u8>,
    /// The signal actions.
    pub actions: Arc<ActionTable>,
    /// The signals that are blocked where a start goes on.
    pub blocked: SignalSet,
    /// The signals that the program blocked when it declared itself ready: the C library may block
    /// more around a fork.
    pub own_blocked: SignalSet,
    /// The alternate signal stack.
    pub signal_stack: SignalStack,
    /// See `set_tid_address(2)`; 0: none.
    pub clear_tid: usize,
    /// Where the number of the thread is written (`CLONE_CHILD_SETTID`); 0: nowhere.
    pub set_tid: usize,
    /// See `rseq(2)`.
    pub sequences: Registration,
    /// Where each start is told what it was started with.
    pub start: usize,
    /// Where the strings of the program lay; only the auxiliary vector is still used.
    pub vectors: Vectors,
    /// The program.
    pub executable: Arc<Executable>,
    /// The name of the thread that made it.
    pub comm: ThreadName,
    /// Its maker's credentials, and those of every start.
    pub credentials: Arc<Credentials>,
    /// Its maker's root directory, and that of every start.
    pub root: Location,
    /// Which starts it serves.
    pub serves: Rules,
    /// The files that the program says it was made of, one a line.
    pub files: Vec<u8>,
    /// Where the environment of a start is told as well.
    pub environments: Environments,
    /// The files that must be unchanged for a start.
    pub sources: Vec<Source>,
    /// The paths of the files that are mapped, one a line, the program's first.
    pub mapped: Vec<u8>,
    /// The variables that must be the same for a start, each ended by a NUL.
    pub environment: Vec<u8>,
    /// When it was made, on the real-time clock in nanoseconds.
    pub made: u64,
    /// The bytes of its memory that lie on non-volatile memory ([`super::wake`]), and are not this
    /// machine's; 0: it was made in this machine.
    pub stored: usize,
    /// The memory that it keeps, in bytes.
    pub bytes: usize,
    /// The starts from it.
    pub starts: AtomicU64,
}

/// The memory that all templates keep, in bytes.
static BYTES: AtomicUsize = AtomicUsize::new(0);

/// The memory that all templates keep, in bytes.
pub fn bytes() -> usize {
    BYTES.load(Ordering::Relaxed)
}

/// Counts the memory of a template that is made; its end subtracts it.
pub fn count(bytes: usize) {
    BYTES.fetch_add(bytes, Ordering::Relaxed);
}

impl Drop for Template {
    fn drop(&mut self) {
        BYTES.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl Template {
    /// The user whose starts it serves.
    pub fn owner(&self) -> u32 {
        self.credentials.euid
    }

    /// Whether it serves a start with these arguments and this environment.
    pub fn serves(&self, arguments: &Strings, environment: &Strings) -> bool {
        let kept = self.environment.split(|&byte| byte == 0).filter(|text| !text.is_empty());
        self.serves.serve(arguments.iter().skip(1))
            && self.serves.have_same_environment(kept, environment.iter())
    }

    /// Whether all files that must be unchanged for a start are, for the current thread.
    pub fn is_unchanged(&self, thread: &Thread, credentials: &Credentials) -> bool {
        let is_unchanged = |context: &FsContext| {
            self.sources.iter().all(|source| source.is_unchanged(context, credentials))
        };
        self.sources.is_empty() || thread.directories().is_ok_and(|own| is_unchanged(&own))
    }
}
