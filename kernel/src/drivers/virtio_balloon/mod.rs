//! The driver of virtio's memory balloon (virtio 1.2, 5.5): memory that is not used goes back to
//! the host.
//!
//! **Free page reporting** (5.5.6.7). The host is told of free memory in units of 2 MiB
//! (`hayate_frames`), and drops what it held there; a unit comes back empty when it is used again,
//! without a word to the host. An execution of its own ([`Balloon::serve`]) looks for such units
//! half a second after there were some, and tells of those that it finds at the next look again,
//! half a second later. So memory that comes and goes stays, and after the end of a program the
//! host has its memory within a second and some milliseconds.
//!
//! Neither an allocation nor a free does anything for this: an idle processor looks before it
//! sleeps, and a busy one at its ticks, whether there is untold memory ([`Lookout`], one
//! comparison). When the host was told of everything no timer runs.
//!
//! What is being told of is out of the allocator for the time of the device's answer: at most
//! [`MOST`] times [`PIECE`], and half of what is free beyond what is kept for the kernel and for
//! administrators. Who lacks memory meanwhile waits for the answer ([`Cache::shrink`]). A device
//! that does not answer is told of nothing more; the memory that it was told of is lost, because it
//! may drop its content at any time.
//!
//! **Ageing** ([`ageing`]). What is kept or cached and was not used for a minute is given up, so
//! that it can be told of.
//!
//! **Inflation** ([`inflation`]). The host gets as many frames as it asks for, and under a lack of
//! memory they come back.
//!
//! QEMU gives the device no MSI-X. On its q35 board it has an interrupt line; elsewhere the answers
//! are polled then, once in a millisecond, and the host's wishes once in a second.
//!
//! Lock order: the queue's lock is a leaf.
//!
//! Road not taken: Linux' sixteenth of the free blocks every two seconds
//! (`mm/page_reporting.c`): 512 MiB take half a minute there.

mod ageing;
mod inflation;
mod lookout;

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::sync::atomic::Ordering::{Relaxed, SeqCst};
use core::sync::atomic::{AtomicU32, AtomicU64};

use hayate_machine::frames::{self, Unused};
use hayate_machine::sync::{Once, SpinLock};
use hayate_machine::virtio::{Chain, Device, Error, Piece, Queue};
use hayate_machine::{info, warn};

use inflation::{Inflation, PATIENCE, POLL};
use lookout::Lookout;

use crate::reclaim::{self, Cache};
use crate::schedule;
use crate::schedule::WaitQueue;
use crate::schedule::time::monotonic_ns;

mod feature {
    pub const STATS: u64 = 1 << 1;
    pub const DEFLATE_ON_OOM: u64 = 1 << 2;
    pub const FREE_PAGE_HINT: u64 = 1 << 3;
    pub const REPORTING: u64 = 1 << 5;
}

/// Between two looks at the free memory, in nanoseconds.
const PAUSE: u64 = 500_000_000;
/// The most pieces of memory of which the device is told at a time, and the most frames of each:
/// 128 MiB, as Linux.
const MOST: u16 = 32;
const PIECE: u32 = 1024;
static BALLOON: Once<Balloon> = Once::new();
static INFLATION: Once<Inflation> = Once::new();

/// Free page reporting.
struct Balloon {
    reports: SpinLock<Queue>,
    /// Woken when the device has answered.
    answers: WaitQueue,
    /// When it is time to look.
    lookout: Arc<Lookout>,
    /// Pieces that the device has.
    out: AtomicU32,
    /// Bytes that the host was told of since boot.
    told: AtomicU64,
}

/// What the machine has given back to its host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GivenBack {
    /// Bytes of free memory that the host has at present.
    pub now: u64,
    /// Bytes that it was told of since boot, each time anew.
    pub ever: u64,
}

/// Returns what the host has of the machine's memory; `None` without a device.
pub fn given_back() -> Option<GivenBack> {
    let balloon = BALLOON.get()?;
    Some(GivenBack { now: frames::given_back() as u64 * 4096, ever: balloon.told.load(Relaxed) })
}

/// Returns how many frames the host took for good: the machine is smaller by as many.
pub fn taken() -> u32 {
    INFLATION.get().map_or(0, |inflation| inflation.taken())
}

/// Returns how many frames the host has because it asked for them.
pub fn inflated() -> u32 {
    INFLATION.get().map_or(0, |inflation| inflation.count())
}

/// Sets the device up and starts the executions that serve it.
pub fn start(device: Device) -> Result<(), Error> {
    let mut offered = 0;
    let agreed = device.negotiate_by(|features| {
        offered = features;
        features & (feature::REPORTING | feature::DEFLATE_ON_OOM)
    })?;
    let device = Arc::new(device);
    let connected = device.connect(Box::new(interrupted)).is_ok();
    let queues = [device.queue(0, MOST)?, device.queue(1, MOST)?];
    let may_give_way = agreed & feature::DEFLATE_ON_OOM != 0;
    let inflation = Inflation::new(Arc::clone(&device), queues, may_give_way, connected);
    let reports = if agreed & feature::REPORTING == 0 {
        None
    } else {
        // The queues of features that the device does not offer are left out of the count: that is
        // what Linux and the devices do, whatever 5.5.2 says.
        let before = [feature::STATS, feature::FREE_PAGE_HINT];
        let index = 2 + before.iter().filter(|&&feature| offered & feature != 0).count() as u16;
        Some(device.queue(index, MOST)?)
    };
    device.start();
    let how = if connected { "" } else { ", polled" };
    let what = if reports.is_some() { "free memory" } else { "what the host asks for" };
    info!("virtio-balloon: {what} goes back to the host, {}{how}", device.place());
    INFLATION.call_once(|| inflation);
    reclaim::register_last(&FromHost);
    let follow = || INFLATION.get().into_iter().for_each(Inflation::serve);
    schedule::start_kernel("balloon", follow).map_err(|_| Error::Memory)?;
    reports.map_or(Ok(()), start_reports)
}

/// Starts the execution that tells of free memory by this queue.
fn start_reports(queue: Queue) -> Result<(), Error> {
    let balloon = BALLOON.call_once(|| Balloon {
        reports: SpinLock::new(queue),
        answers: WaitQueue::new(),
        lookout: Lookout::new(frames::untold, PAUSE),
        out: AtomicU32::new(0),
        told: AtomicU64::new(0),
    });
    schedule::start_kernel("reports", move || balloon.serve()).map_err(|_| Error::Memory)?;
    ageing::start();
    schedule::register_look(look);
    Ok(())
}

/// Handles an interrupt of the device.
fn interrupted() {
    if let Some(balloon) = BALLOON.get() {
        balloon.answers.wake_all();
    }
    if let Some(inflation) = INFLATION.get() {
        inflation.interrupted();
    }
}

/// Sets the times of the next looks, if there is something new to see. For processors that are
/// about to sleep, and for their ticks.
fn look() {
    if let Some(balloon) = BALLOON.get() {
        balloon.lookout.look();
        ageing::look();
    }
}

/// What the host has, as memory to get back.
struct FromHost;

impl Cache for FromHost {
    /// Waits for the device's answer to what it is being told of, or else takes back what it asked
    /// for.
    fn shrink(&self, _: usize) -> usize {
        let reported = BALLOON.get().map_or(0, Balloon::wait_for_reports);
        if reported != 0 { reported } else { INFLATION.get().map_or(0, Inflation::give_way) }
    }
}

impl Balloon {
    /// Waits until less is out of the allocator; returns how many pieces were, 0 if there are none
    /// or the device does not answer.
    fn wait_for_reports(&self) -> usize {
        let out = self.out.load(SeqCst);
        if out == 0 {
            return 0;
        }
        let end = monotonic_ns() + PATIENCE;
        let is_back = || (self.out.load(SeqCst) < out).then_some(());
        while monotonic_ns() < end {
            if self.answers.wait_interruptible(Some(monotonic_ns() + POLL), is_back).is_ok() {
                return out as usize;
            }
        }
        0
    }

    /// Serves the device for ever, or until it does not answer.
    fn serve(&self) {
        let (mut in_vain, mut left) = (0, 0);
        loop {
            self.lookout.wait();
            let has_changed = frames::untold() != left;
            let Some(told) = self.tell() else {
                warn!("virtio-balloon: the device does not answer; it is told of nothing more");
                return;
            };
            left = frames::untold();
            // What this look only noted is told of at the next one. If that tells of nothing
            // either, and no memory came free meanwhile, memory is too scarce to be without it for
            // a moment.
            in_vain = if told == 0 && !has_changed { in_vain + 1 } else { 0 };
            let again = left != 0 && in_vain < 2;
            if !again {
                in_vain = 0;
            }
            self.lookout.done(again);
        }
    }

    /// Looks at all free memory and tells the device of what is unused since the last look. Returns
    /// how many bytes that is; `None`: the device did not answer in time.
    fn tell(&self) -> Option<u64> {
        let (mut from, mut told) = (0, 0);
        let most = u32::from(self.reports.lock().size().min(MOST));
        loop {
            let mut chain = Chain::new(0);
            let mut pieces = 0;
            while pieces < most
                && chain.make_room(1)
                && let Some(memory) = Unused::take(&mut from, PIECE)
            {
                if !chain.writes(Piece::Unused(memory)) {
                    break;
                }
                pieces += 1;
            }
            if pieces == 0 {
                return Some(told);
            }
            self.out.fetch_add(pieces, SeqCst);
            {
                let mut reports = self.reports.lock();
                // Each chain is waited for, so that there is room for the next one.
                if reports.give(chain).is_err() {
                    return None;
                }
                reports.notify();
            }
            let chain = self.answer()?;
            for piece in chain.into_pieces() {
                if let Piece::Unused(memory) = piece {
                    told += memory.size() as u64;
                    self.told.fetch_add(memory.size() as u64, Relaxed);
                    memory.told();
                }
            }
            self.out.fetch_sub(pieces, SeqCst);
            self.answers.wake_all();
            // Free memory may be large, and others wait for this processor.
            schedule::breathe();
        }
    }

    /// Waits for the device's answer.
    fn answer(&self) -> Option<Chain> {
        let end = monotonic_ns() + PATIENCE;
        let taken = || self.reports.lock().take();
        while monotonic_ns() < end {
            if let Ok((chain, _)) =
                self.answers.wait_interruptible(Some(monotonic_ns() + POLL), taken)
            {
                return Some(chain);
            }
        }
        None
    }
}
