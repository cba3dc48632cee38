//! The balloon: the host asks for memory by its size, and the machine lends frames (virtio 1.2,
//! 5.5.6).
//!
//! The host writes how many frames it wants into the device's configuration. An execution of its
//! own ([`Inflation::serve`]) then takes frames out of the allocator, 256 at a time
//! ([`Lent`]), and tells the device their numbers; or it tells the device that it takes some back,
//! and gives them to the allocator. As on Linux (`drivers/virtio/virtio_balloon.c`), only frames
//! that no program needs are lent: what is kept and cached is given up for it, and where that is
//! not enough it is tried again a second later.
//!
//! **Under a lack of memory** frames come back by themselves ([`Inflation::give_way`]), if the
//! device allows that (`VIRTIO_BALLOON_F_DEFLATE_ON_OOM`). They are lent again when the host asks
//! again, as on Linux. Without that feature the machine is as much smaller, also in
//! `/proc/meminfo`.
//!
//! Lock order: `turn`, which sleeps, before the queues' locks and `lent`, which are leaves.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicBool, AtomicU32};

use hayate_machine::frames::{self, Frame, LENT, Lent};
use hayate_machine::sync::SpinLock;
use hayate_machine::virtio::{Chain, Device, Piece, Queue};
use hayate_machine::warn;

use crate::reclaim;
use crate::reclaim::growth::Grow;
use crate::schedule::time::monotonic_ns;
use crate::schedule::{self, Mutex, WaitQueue};

/// How long the device may take to answer, and how often it is looked whether it has, in
/// nanoseconds.
pub const PATIENCE: u64 = 5_000_000_000;
/// See [`PATIENCE`].
pub const POLL: u64 = 1_000_000;
/// Until frames are looked for again, in nanoseconds.
const RETRY: u64 = 1_000_000_000;
/// Where the number of frames that the host wants is in the device's configuration.
const WANTED: usize = 0;

/// Why the device did not get a list, or did not give it back.
enum Failure {
    /// There is no memory to ask.
    Memory,
    /// It does not answer; the frames are lost.
    Silent,
}

/// The frames that the host has.
pub struct Inflation {
    device: Arc<Device>,
    inflate: SpinLock<Queue>,
    deflate: SpinLock<Queue>,
    /// Held from a request to the deflate queue to its answer.
    turn: Mutex<()>,
    lent: SpinLock<Vec<Lent>>,
    /// How many frames `lent` holds.
    count: AtomicU32,
    /// Whether the device interrupts.
    is_connected: bool,
    /// Whether frames may come back though the host did not ask.
    may_give_way: bool,
    /// Whether they did since the host asked last.
    gave_way: AtomicBool,
    /// Whether the device's configuration may have changed.
    is_changed: AtomicBool,
    work: WaitQueue,
    answers: WaitQueue,
}

impl Inflation {
    /// The state of a device whose two first queues are these.
    pub fn new(
        device: Arc<Device>,
        queues: [Queue; 2],
        may_give_way: bool,
        is_connected: bool,
    ) -> Inflation {
        let [inflate, deflate] = queues.map(SpinLock::new);
        Inflation {
            device,
            inflate,
            deflate,
            turn: Mutex::new(()),
            lent: SpinLock::new(Vec::new()),
            count: AtomicU32::new(0),
            is_connected,
            may_give_way,
            gave_way: AtomicBool::new(false),
            is_changed: AtomicBool::new(true),
            work: WaitQueue::new(),
            answers: WaitQueue::new(),
        }
    }

    /// Handles an interrupt of the device.
    pub fn interrupted(&self) {
        self.answers.wake_all();
        if self.device.may_have_changed() {
            self.is_changed.store(true, Relaxed);
            self.work.wake_all();
        }
    }

    /// Returns how many frames the host has.
    pub fn count(&self) -> u32 {
        self.count.load(Relaxed)
    }

    /// Returns by how many frames the machine is smaller: those that it cannot have back.
    pub fn taken(&self) -> u32 {
        if self.may_give_way { 0 } else { self.count() }
    }

    /// Follows the host's wishes for ever, or until the device does not answer.
    pub fn serve(&self) {
        let mut is_short = false;
        loop {
            let is_timed = is_short || !self.is_connected;
            let deadline = is_timed.then(|| monotonic_ns() + RETRY);
            let changed = || self.is_changed.swap(false, Relaxed).then_some(());
            let asked = self.work.wait_interruptible(deadline, changed).is_ok();
            if asked {
                self.gave_way.store(false, Relaxed);
            }
            // When memory lacked meanwhile, the host has to ask again.
            if self.gave_way.load(Relaxed) {
                is_short = false;
                continue;
            }
            match self.follow() {
                Ok(enough) => is_short = !enough,
                Err(Failure::Memory) => is_short = true,
                Err(Failure::Silent) => {
                    warn!("virtio-balloon: the device does not answer; its size stays as it is");
                    return;
                }
            }
        }
    }

    /// Lends or takes back frames until the host has as many as it wants. Returns whether it has;
    /// false: memory is too scarce.
    fn follow(&self) -> Result<bool, Failure> {
        loop {
            let wanted = self.device.config(|config| config.u32(WANTED));
            let count = self.count();
            if wanted > count {
                let Some(lent) = gather((wanted - count) as usize) else { return Ok(false) };
                self.lend(lent)?;
            } else if count - wanted >= LENT as u32 || (wanted == 0 && count != 0) {
                // A list is not divided: the host has up to 1 MiB more than it wants.
                self.take_back()?;
            } else {
                return Ok(true);
            }
            schedule::breathe();
        }
    }

    fn lend(&self, lent: Lent) -> Result<(), Failure> {
        self.lent.lock().make_room(1).map_err(|_| Failure::Memory)?;
        let lent = self.ask(&self.inflate, lent)?;
        let more = lent.count() as u32;
        // No other execution adds to the list, so the room is still there.
        self.lent.lock().push(lent);
        self.device.set_balloon_size(self.count.fetch_add(more, Relaxed) + more);
        Ok(())
    }

    /// Takes the frames back that were lent last. Returns how many.
    fn take_back(&self) -> Result<usize, Failure> {
        let _turn = self.turn.lock();
        let Some(lent) = self.lent.lock().pop() else { return Ok(0) };
        let less = lent.count();
        let lent = self.ask(&self.deflate, lent);
        let count = self.count.fetch_sub(less as u32, Relaxed) - less as u32;
        drop(lent?);
        self.device.set_balloon_size(count);
        Ok(less)
    }

    /// Gives up some of what the host has, if that is allowed, because memory lacks. Returns how
    /// many frames are free now. Sleeps; called without spin locks.
    pub fn give_way(&self) -> usize {
        if !self.may_give_way || self.count() == 0 {
            return 0;
        }
        self.gave_way.store(true, Relaxed);
        self.take_back().unwrap_or(0)
    }

    /// Gives the device a list and waits for its answer. The caller is the only one that uses the
    /// queue.
    fn ask(&self, queue: &SpinLock<Queue>, lent: Lent) -> Result<Lent, Failure> {
        let mut chain = Chain::new(0);
        if !chain.make_room(1) || !chain.reads(Piece::Lent(lent)) {
            return Err(Failure::Memory);
        }
        {
            let mut queue = queue.lock();
            queue.give(chain).map_err(|_| Failure::Silent)?;
            queue.notify();
        }
        let end = monotonic_ns() + PATIENCE;
        let taken = || queue.lock().take();
        while monotonic_ns() < end {
            let until = Some(monotonic_ns() + POLL);
            if let Ok((chain, _)) = self.answers.wait_interruptible(until, taken) {
                let lent = chain.into_pieces().into_iter().find_map(|piece| match piece {
                    Piece::Lent(lent) => Some(lent),
                    _ => None,
                });
                return lent.ok_or(Failure::Silent);
            }
        }
        Err(Failure::Silent)
    }
}

/// Takes up to `most` frames that no program needs, at least one; what is kept or cached is given
/// up for them. `None`: there are none.
fn gather(most: usize) -> Option<Lent> {
    let mut lent = Lent::new()?;
    while lent.count() < most.min(LENT) {
        if frames::is_scarce() {
            if !reclaim::give_up() {
                break;
            }
            continue;
        }
        let Some(frame) = Frame::allocate() else { break };
        if lent.add(frame).is_err() {
            break;
        }
    }
    (lent.count() != 0).then_some(lent)
}
