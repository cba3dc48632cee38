//! What the layers above know of groups and of threads.

use hayate_cgroup_rules::memory::Event;
use machine::sync::Once;

/// What the layers above know.
#[derive(Clone, Copy)]
pub struct Groups {
    /// The account of the current thread's group; 0: nobody.
    pub current: fn() -> u32,
    /// A number of the current thread, never 0 for one of a program. Takes no lock.
    pub thread: fn() -> u64,
    /// Tells of an event in the group with an account.
    pub tell: fn(u32, Event),
    /// Waits until a process is killed, if one is being killed. False: the caller is to end itself.
    /// `None`: none is being killed.
    pub wait_for_kill: fn() -> Option<bool>,
    /// Kills processes in the group with an account, and waits for their memory. False: there is
    /// none to kill, or the caller is to end itself.
    pub kill: fn(u32) -> bool,
}

pub static GROUPS: Once<Groups> = Once::new();
