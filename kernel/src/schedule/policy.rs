//! Scheduling policies, nice values, and the ranks that follow from a policy (sched(7)).

/// Ranks: real-time policies are below `FAIR_RANK`, SCHED_IDLE is from `IDLE_RANK` on, all others
/// lie between.
pub(super) const FAIR_RANK: u64 = 1 << 48;
pub(super) const IDLE_RANK: u64 = 1 << 62;

/// How an execution competes (sched(7)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// SCHED_OTHER.
    Other,
    /// SCHED_BATCH: like Other, but never preempts on waking.
    Batch,
    /// SCHED_IDLE: after everything else.
    Idle,
    /// SCHED_FIFO with priority 1 to 99.
    Fifo(u8),
    /// SCHED_RR with priority 1 to 99.
    RoundRobin(u8),
}

/// How an execution is scheduled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scheduling {
    /// How it competes.
    pub policy: Policy,
    /// Its nice value.
    pub nice: i8,
    /// The threads and processes it starts inherit neither a realtime policy nor a negative nice
    /// value (SCHED_RESET_ON_FORK).
    pub reset_on_fork: bool,
}

/// Bit of a packed policy: [`Scheduling::reset_on_fork`].
const RESET_ON_FORK: u32 = 1 << 31;
/// Bit beside the policy: the program may not read the time stamp counter. The bit is in this word
/// because fork reads the word in any case.
pub(super) const NO_TSC: u32 = 1 << 30;
/// Likewise: its system calls are looked at.
pub(super) const GUARDED: u32 = 1 << 29;
/// The bit of a packed policy that tells of a thread in other namespaces than the first.
pub(super) const NAMESPACES: u32 = 1 << 28;

impl Policy {
    pub(super) fn pack(self) -> u32 {
        match self {
            Policy::Other => 0,
            Policy::Fifo(priority) => 1 << 8 | u32::from(priority.clamp(1, 99)),
            Policy::RoundRobin(priority) => 2 << 8 | u32::from(priority.clamp(1, 99)),
            Policy::Batch => 3 << 8,
            Policy::Idle => 5 << 8,
        }
    }

    pub(super) fn unpack(packed: u32) -> Policy {
        let priority = packed as u8;
        match packed >> 8 & 0xff {
            1 => Policy::Fifo(priority),
            2 => Policy::RoundRobin(priority),
            3 => Policy::Batch,
            5 => Policy::Idle,
            _ => Policy::Other,
        }
    }
}

impl Scheduling {
    /// Packs it into one word, which is 0 for the scheduling of the first process.
    pub fn pack(self) -> u64 {
        let reset = if self.reset_on_fork { RESET_ON_FORK } else { 0 };
        u64::from(self.nice as u8) << 32 | u64::from(self.policy.pack() | reset)
    }

    /// Unpacks a word made by [`Scheduling::pack`].
    pub fn unpack(word: u64) -> Scheduling {
        let packed = word as u32;
        Scheduling {
            policy: Policy::unpack(packed),
            nice: (word >> 32) as u8 as i8,
            reset_on_fork: packed & RESET_ON_FORK != 0,
        }
    }

    /// The scheduling that a child starts with (`sched_fork`, kernel/sched/core.c of Linux 6.1).
    pub fn for_child(self) -> Scheduling {
        if !self.reset_on_fork {
            return self;
        }
        let child = Scheduling { reset_on_fork: false, ..self };
        match self.policy {
            Policy::Fifo(_) | Policy::RoundRobin(_) => {
                Scheduling { policy: Policy::Other, nice: 0, ..child }
            }
            _ => Scheduling { nice: self.nice.max(0), ..child },
        }
    }
}

/// The base of the ranks of `policy`. Real-time priorities are 1 << 40 apart; within one, the order
/// of arrival counts. For the other policies the virtual time is added.
pub(super) fn rank_base(policy: Policy) -> u64 {
    match policy {
        Policy::Fifo(p) | Policy::RoundRobin(p) => (99 - u64::from(p.min(99))) << 40,
        Policy::Idle => IDLE_RANK,
        _ => FAIR_RANK,
    }
}
