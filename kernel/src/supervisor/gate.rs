//! System calls of programs in ring 0: by the `syscall` instruction, and by the gate.
//!
//! Both use the same table. Patching a call site ([`crate::supervisor::call_sites`]) costs as much
//! as a function call saves in one or two hundred calls, and most programs reach most of their
//! sites only a few times. So each processor counts how often it met a site by `syscall`, for the
//! last sites it met, and a site is patched at the [`OFTEN`]th time. So no program loses much more
//! than it would by patching too early or never. `gate=first` on the command line patches sites the
//! first time, which tests of patching need. Sites that are left unchanged are remembered in the
//! same place, so that they cost a comparison and not a look into the space.

use core::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use hayate_machine::boot;
use hayate_machine::cpu::PerCpu;
use hayate_machine::trap::{self, Gate, UserRegs};

use crate::memory;
use crate::process;
use crate::process::thread;
use crate::syscall::calls::{HANDLERS, PLAIN};

/// How many sites are remembered on each processor.
const REMEMBERED: usize = 64;
/// A site is patched when it is reached for this many times.
const OFTEN: u32 = 100;
/// A count larger than any other: the site is left unchanged.
const LEFT: u32 = u32::MAX;

static TURN_AT: AtomicU32 = AtomicU32::new(OFTEN);

/// The last site reached by `syscall` among those that share this entry.
struct Reached {
    /// The stay in supervisor mode in which the site was reached.
    stay: AtomicU64,
    site: AtomicUsize,
    /// How often the site and those before it in this entry were reached in this stay, so that
    /// sites that share an entry are patched too; [`LEFT`]: the site need not be examined again
    /// soon.
    times: AtomicU32,
}

hayate_machine::per_cpu! {
    static REACHED: PerCpu<[Reached; REMEMBERED]> = PerCpu::new(
        [const {
            Reached { stay: AtomicU64::new(0), site: AtomicUsize::new(0), times: AtomicU32::new(0) }
        }; REMEMBERED],
    );
}

impl Reached {
    /// Counts a call from the site; returns whether the site is to be examined now.
    #[inline]
    fn again(&self, stay: u64, site: usize) -> bool {
        let often = TURN_AT.load(Ordering::Relaxed);
        let mut times = self.times.load(Ordering::Relaxed);
        if self.stay.load(Ordering::Relaxed) != stay {
            self.stay.store(stay, Ordering::Relaxed);
            self.site.store(site, Ordering::Relaxed);
            times = 0;
        } else if self.site.load(Ordering::Relaxed) != site {
            self.site.store(site, Ordering::Relaxed);
            times = times.min(often);
        } else if times == LEFT {
            return false;
        }
        self.times.store(times + 1, Ordering::Relaxed);
        times + 1 >= often
    }

    fn leave(&self) {
        self.times.store(LEFT, Ordering::Relaxed);
    }
}

/// Sets up the entry points; boot calls it once.
///
/// With `trace=syscalls`, `trace=starts` and `gate=off` on the command line every call goes the
/// full way, and with the last one by trap. With `gate=first` a site is patched the first time it
/// is reached.
pub fn init() {
    // With another dispatcher, that dispatcher must see every call.
    let traced = matches!(boot::option("trace"), Some("syscalls" | "starts"));
    if !traced {
        for (number, handler) in HANDLERS.iter().enumerate() {
            trap::set_call(number, *handler);
        }
    }
    if boot::option("gate") == Some("off") {
        trap::set_supervisor_handler(trap::serve_syscall);
        return;
    }
    if boot::option("gate") == Some("first") {
        TURN_AT.store(1, Ordering::Relaxed);
    }
    trap::set_supervisor_handler(by_trap);
    if traced {
        return;
    }
    for (number, plain) in PLAIN.iter().enumerate() {
        if *plain {
            trap::set_gate(number, Gate::Direct);
        }
    }
    trap::set_gate(GETPID, Gate::Own(thread::current_process_id_gate()));
    trap::set_gate(GETTID, Gate::Own(thread::current_thread_id_gate()));
}

const GETPID: usize = 39;
const GETTID: usize = 186;

/// Handles one system call that a program in ring 0 made by `syscall`.
extern "C" fn by_trap(regs: &mut UserRegs) {
    let site = (regs.rip as usize).wrapping_sub(hayate_call_sites::SYSCALL);
    if let Some(space) = memory::try_current()
        && let Some(known) = REACHED.here().get(site / 2 % REMEMBERED)
        && known.again(space.stay(), site)
        && !space.reached(site, regs.orig_rax, process::current().is_alone_in_space())
    {
        known.leave();
    }
    trap::serve_syscall(regs);
}
