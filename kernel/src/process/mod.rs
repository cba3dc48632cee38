//! Processes and threads.
//!
//! A [`Process`] is a record that its threads share. A [`Thread`] has an execution and holds
//! counted references to its parts: space, descriptors, directories, credentials. None of these
//! belongs to the process. That is on purpose: fork, exec and exit only arrange parts that exist on
//! their own (see `clone.rs`, `exec.rs`, `exit.rs`), so parts can be made in advance and kept
//! afterwards.
//!
//! The layers, lowest first; a file knows only those above it in this table:
//!
//! | file | contents |
//! |---|---|
//! | [`identity`], [`limits`], [`usage`], [`restart`] | names, limits, consumption, interrupted sleeps |
//! | [`cgroup`]: `events`, `group`, `frost`, `member`, `namespace` | control groups, and the place of a process among them |
//! | [`namespaces`] | the namespaces that a thread is in |
//! | [`signal`]: `sets`, `queue`, `actions`, `stop` | what a process and a thread have for signals |
//! | [`session`], [`timers`] | a session and its terminal, the record of a process's timers |
//! | [`seccomp`]: `notices`, `chain` | the filters of a thread's system calls |
//! | [`sequences`]: `registration` | a thread's area for restartable sequences |
//! | [`record`], [`thread`] | the process, the thread |
//! | [`pids`], [`pid_namespace`] | the table of numbers, the numbers inside namespaces |
//! | [`visible`], [`numbers`] | processes, users and groups as a thread sees them |
//! | [`held`], [`pidfd`] | descriptors of parts and of processes |
//! | [`access`] | which processes may look into a process |
//! | [`membership`] | how a thread gets into namespaces |
//! | [`tracing`] | who traces whom, what a tracer sees, stops (also below signals and families) |
//! | [`signal`]: `send`, `stopping` | sending signals, stopping |
//! | [`timer`], [`cpu_time`], [`scheduled`] | timers, those on processor time, ticks and switches |
//! | [`seccomp`]: `judge`, `listener`, `install` | what filters do to a call, who is asked, giving filters |
//! | [`cgroup`]: `rest`, `freezer`, `memory`, `cpu` | members of control groups: rest, limits |
//! | [`cgroup`]: `list`, `accounts`, `follow`, `moves` | as a whole, starts and ends, moves |
//! | [`sequences`] | where an interrupted sequence goes on |
//! | [`signal`]: `take`, `frame`, [`signalfd`](signal::signalfd) | taking signals |
//! | [`job_control`], [`family`], [`wait`] | groups and terminals, parents and children, waiting |
//! | [`futex`], [`dump`], [`victim`] | waiting for a word in memory, core files, the end for memory |
//! | [`accounting`] | a record of each process that ended, in a file |
//! | [`transform`] | changing the program, the position and the space of a process |
//! | [`templates`] | programs that declare themselves ready, kept, where starts begin |
//! | [`images`] | programs after their start-up, kept, where the next start begins |
//! | [`zap`], [`exit`], [`exec`], [`clone`], [`first`] | end, exec, start, the first start |
//! | [`signal`]: `deliver`, [`fault`] | signals and exceptions on the way from and to a program |
//! | [`attention`] | what is to be done before a thread returns to user mode |
//! | [`addressee`], [`resources`], [`starts`] | what lower modules and the registry ask, measured starts |
//!
//! [`record`] and [`thread`] know each other, which no layer can undo: a process lists its threads,
//! and each thread names its process without a look-up. They know their PID namespace as well.
//!
//! Lock order: a child's `parent`, the parent's `children`, `control`, `ended_usage`, `threads`,
//! then leaves (queues, actions, the slots of a thread, shards of the number table). No lock of
//! this module is held during a sleep, and none of those on the path of a start or an end is
//! global.

pub mod access;
pub mod accounting;
mod addressee;
mod attention;
pub mod cgroup;
pub mod clone;
pub mod cpu_time;
pub mod dump;
pub mod exec;
pub mod exit;
pub mod family;
pub mod fault;
mod first;
pub mod futex;
pub mod held;
pub mod identity;
pub mod images;
pub mod job_control;
mod left_space;
pub mod limits;
pub mod membership;
pub mod namespaces;
pub mod numbers;
pub mod pid_namespace;
pub mod pidfd;
pub mod pids;
pub mod record;
pub mod resources;
mod restart;
mod scheduled;
pub mod seccomp;
pub mod sequences;
pub mod session;
pub mod signal;
pub mod starts;
pub mod templates;
pub mod thread;
pub mod timer;
mod timers;
pub mod tracing;
pub mod transform;
pub mod usage;
mod user_registers;
mod victim;
pub mod visible;
pub mod wait;
mod zap;

use crate::credentials::Capability;
use crate::memory;

pub use access::foreign_space;
pub use attention::attend;
pub use first::start_first;
pub use pids::{PID_MAX, init_process, processes, started};
pub use record::Process;
pub use restart::{Restart, Until};
pub use thread::{Thread, current, try_current};

/// Prepares the module; boot calls it once.
pub fn init() {
    pids::init();
    job_control::init();
    memory::limits::set_privilege(|| {
        try_current().is_some_and(|thread| thread.credentials().has(Capability::IpcLock))
    });
    hayate_machine::frames::keep_for_administrators(thread::is_administrator_here);
    addressee::init();
    resources::register();
    seccomp::init();
    cgroup::memory::init();
    cgroup::io::init();
    images::init();
    templates::init();
}
