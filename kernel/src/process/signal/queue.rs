//! Queues of pending signals.

use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering};

use hayate_abi::signal::*;
use hayate_abi::{Errno, Result};
use hayate_machine::sync::SpinLock;

use super::sets::SYNCHRONOUS;
use crate::reclaim::growth::Grow;

/// The pending signals of a process or of a thread.
///
/// A standard signal is pending once however often it was sent; a realtime signal once for each
/// time.
pub struct Queue {
    /// The signals that are pending, readable without the lock.
    mask: AtomicU64,
    infos: SpinLock<Vec<Siginfo>>,
}

impl Default for Queue {
    fn default() -> Self {
        Self::new()
    }
}

impl Queue {
    /// An empty queue; allocates nothing.
    pub const fn new() -> Queue {
        Queue { mask: AtomicU64::new(0), infos: SpinLock::new(Vec::new()) }
    }

    /// The set of pending signals.
    #[inline]
    pub fn mask(&self) -> SignalSet {
        self.mask.load(Ordering::SeqCst)
    }

    /// Adds a signal. At most `limit` signals are pending (`RLIMIT_SIGPENDING`). Beyond it, a
    /// standard signal that a program queued loses its information, as in Linux; a realtime signal
    /// fails with `EAGAIN`. A standard signal of the kernel or of kill(2) is not limited
    /// (`__send_signal_locked`).
    pub fn push(&self, info: Siginfo, limit: u64) -> Result<()> {
        let signal = info.si_signo as u32;
        let mut infos = self.infos.lock();
        let mask = self.mask.load(Ordering::Relaxed);
        if signal < SIGRTMIN && mask & bit(signal) != 0 {
            return Ok(());
        }
        let limited = signal >= SIGRTMIN || info.si_code < 0;
        if limited && infos.len() as u64 >= limit || infos.make_room(1).is_err() {
            if signal >= SIGRTMIN && info.si_code != SI_USER {
                return Err(Errno::EAGAIN);
            }
        } else {
            infos.push(info);
        }
        self.mask.store(mask | bit(signal), Ordering::SeqCst);
        Ok(())
    }

    /// Takes the next signal of `wanted`: those that an instruction raised first, then the lowest
    /// number, then the oldest.
    pub fn take(&self, wanted: SignalSet) -> Option<Siginfo> {
        if self.mask() & wanted == 0 {
            return None;
        }
        let mut infos = self.infos.lock();
        let mask = self.mask.load(Ordering::Relaxed);
        let ready = mask & wanted;
        let first = if ready & SYNCHRONOUS != 0 { ready & SYNCHRONOUS } else { ready };
        if first == 0 {
            return None;
        }
        let signal = first.trailing_zeros() + 1;
        let is_it = |info: &Siginfo| info.si_signo as u32 == signal;
        let found = infos.iter().position(is_it).map(|index| infos.remove(index));
        if !infos.iter().any(is_it) {
            self.mask.store(mask & !bit(signal), Ordering::SeqCst);
        }
        Some(found.unwrap_or(Siginfo::new(signal, SI_USER)))
    }

    /// Discards pending signals.
    pub fn discard(&self, signals: SignalSet) {
        if self.mask() & signals == 0 {
            return;
        }
        let mut infos = self.infos.lock();
        infos.retain(|info| bit(info.si_signo as u32) & signals == 0);
        let mask = self.mask.load(Ordering::Relaxed);
        self.mask.store(mask & !signals, Ordering::SeqCst);
    }

    /// The pending signal at a place of the queue.
    pub fn peek(&self, at: usize) -> Option<Siginfo> {
        self.infos.lock().get(at).copied()
    }

    /// Whether the signal of a POSIX timer is still pending.
    pub fn has_timer(&self, id: i32) -> bool {
        self.infos
            .lock()
            .iter()
            .any(|info| info.si_code == SI_TIMER && info.fields[0] as u32 as i32 == id)
    }

    /// The number of pending signals (`SigQ` of `/proc/PID/status`).
    pub fn count(&self) -> usize {
        self.infos.lock().len()
    }
}
