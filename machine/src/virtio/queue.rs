//! A split queue (virtio 1.2, 2.7).
//!
//! Invariant: a descriptor is either on the free list or belongs to the chain that `waiting` keeps
//! at the chain's first descriptor. Links are kept in the kernel's own memory; the device's copy is
//! only written. The device's answers are checked: an answer that matches no chain is dropped.
//!
//! Notifications are suppressed by flags, or, if [`EVENT_INDEX`] was negotiated, by indices (2.7.7,
//! 2.7.10): each side says at which count it wants to hear from the other. An interrupt that was
//! asked for then comes once, until it is asked for again. The index that the device writes is only
//! compared: a wrong one costs a notification that is too many or missing.

use alloc::vec::Vec;
use core::mem::ManuallyDrop;
use core::sync::atomic::{Ordering, fence};

use super::chain::Chain;
use crate::frames::Block;
use crate::layout::PAGE_SIZE;
use crate::mmio::Registers;

/// The feature `VIRTIO_F_EVENT_IDX`: notifications are suppressed by indices.
pub const EVENT_INDEX: u64 = 1 << 29;

/// Flag of the available ring: the device need not interrupt.
const NO_INTERRUPT: u16 = 1;
/// Descriptor flags.
const NEXT: u16 = 1;
const WRITE: u16 = 2;
/// Bytes of a descriptor, and of an answer.
const DESCRIPTOR: usize = 16;
const ANSWER: usize = 8;

/// The register that a queue's notifications go to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bell {
    pub registers: Registers,
    pub offset: usize,
    pub queue: u16,
    /// Whether the register is 32 bits wide (memory-mapped transport) or 16 (PCI).
    pub wide: bool,
}

impl Bell {
    fn ring(self) {
        if self.wide {
            self.registers.write(self.offset, self.queue.into());
        } else {
            self.registers.write16(self.offset, self.queue);
        }
    }
}

/// A queue of a device. It has no lock of its own; its driver has one around it.
///
/// A device may write to its queue and to the memory of its requests at any time, so that memory is
/// never freed: dropping a queue leaks it.
pub struct Queue {
    memory: ManuallyDrop<Block>,
    size: u16,
    /// Offsets of the available and the used ring in the memory, and of the end.
    rings: (usize, usize, usize),
    bell: Bell,
    /// Whether [`EVENT_INDEX`] was negotiated.
    events: bool,
    /// The next descriptor in a chain or on the free list.
    next: Vec<u16>,
    free: u16,
    free_count: u16,
    waiting: ManuallyDrop<Vec<Option<Chain>>>,
    /// Counts of chains given and answers taken, modulo 2^16.
    given: u16,
    taken: u16,
    /// The value of `given` at the last notification.
    rung: u16,
}

/// Offsets of the available and the used ring, and the size of all.
fn layout(size: u16) -> (usize, usize, usize) {
    let size = usize::from(size);
    let available = size * DESCRIPTOR;
    let used = (available + 6 + 2 * size).next_multiple_of(4);
    (available, used, used + 6 + ANSWER * size)
}

impl Queue {
    pub(super) fn new(size: u16, bell: Bell, events: bool) -> Option<Self> {
        let (_, _, bytes) = layout(size);
        let memory = Block::allocate(bytes.div_ceil(PAGE_SIZE) as u32)?;
        memory.zero();
        let mut waiting = Vec::new();
        waiting.try_reserve_exact(size.into()).ok()?;
        waiting.resize_with(size.into(), || None);
        let mut next = Vec::new();
        next.try_reserve_exact(size.into()).ok()?;
        next.extend(1..=size);
        Some(Self {
            memory: ManuallyDrop::new(memory),
            size,
            rings: layout(size),
            bell,
            events,
            next,
            free: 0,
            free_count: size,
            waiting: ManuallyDrop::new(waiting),
            given: 0,
            taken: 0,
            rung: 0,
        })
    }

    /// Physical addresses of the descriptors, the available and the used ring.
    pub(super) fn parts(&self) -> [u64; 3] {
        let (available, used, _) = self.rings;
        let base = self.memory.address();
        [base, base + available as u64, base + used as u64]
    }

    /// Asks the device not to interrupt when it answers: its driver polls. An interrupt that is on
    /// its way still comes.
    pub fn silence(&mut self) {
        if self.events {
            // The count that is furthest away: it is passed after 65,535 further answers.
            self.set_event(self.taken.wrapping_sub(1));
        } else {
            let (available, _, _) = self.rings;
            self.write(available, NO_INTERRUPT);
        }
    }

    /// Asks the device for an interrupt at its next answer. Returns whether there are answers
    /// already, for which no interrupt may come.
    #[must_use]
    pub fn listen(&mut self) -> bool {
        self.listen_after(1)
    }

    /// Like [`listen`](Self::listen), for an interrupt once `answers` more answers are there (one
    /// at least), and whether they are. A device without [`EVENT_INDEX`] interrupts at each answer.
    #[must_use]
    pub fn listen_after(&mut self, answers: u16) -> bool {
        let (available, used, _) = self.rings;
        let answers = answers.max(1);
        if self.events {
            self.set_event(self.taken.wrapping_add(answers - 1));
        } else {
            self.write(available, 0u16);
        }
        // The request must be visible before the count is read: otherwise the device could answer
        // in between, without an interrupt, and unseen.
        fence(Ordering::SeqCst);
        self.read::<u16>(used + 2).wrapping_sub(self.taken) >= answers
    }

    /// Writes the count of answers at which the device is to interrupt: behind the available ring.
    fn set_event(&mut self, count: u16) {
        let (available, _, _) = self.rings;
        self.write(available + 4 + 2 * usize::from(self.size), count);
    }

    /// Returns how many chains the device has not answered, or whose answers were not taken.
    pub fn outstanding(&self) -> u16 {
        self.given.wrapping_sub(self.taken)
    }

    /// Returns the number of descriptors.
    pub fn size(&self) -> u16 {
        self.size
    }

    /// Returns how many more memory ranges fit.
    pub fn room(&self) -> u16 {
        self.free_count
    }

    /// Whether no chain is with the device.
    pub fn is_idle(&self) -> bool {
        self.free_count == self.size
    }

    fn write<T>(&self, offset: usize, value: T) {
        debug_assert!(offset + size_of::<T>() <= self.memory.size());
        // SAFETY: all offsets come from `layout` with indices below `size`, so they are inside the
        // block and aligned; the device reads this memory, and no reference to it exists.
        unsafe { self.memory.pointer().add(offset).cast::<T>().write_volatile(value) }
    }

    fn read<T>(&self, offset: usize) -> T {
        debug_assert!(offset + size_of::<T>() <= self.memory.size());
        // SAFETY: as in `write`; every bit pattern is good for the integers that are read.
        unsafe { self.memory.pointer().add(offset).cast::<T>().read_volatile() }
    }

    /// Gives a chain to the device. Returns the chain if it does not fit at present, or is empty.
    /// The device sees it after [`notify`](Self::notify).
    pub fn give(&mut self, chain: Chain) -> Result<(), Chain> {
        let room = usize::from(self.free_count);
        // Contiguous pieces share a descriptor, so that there are no more than pieces.
        if chain.pieces().len() > room && chain.stretches().count() > room {
            return Err(chain);
        }
        let head = self.free;
        let mut index = head;
        let mut stretches = chain.stretches();
        let mut next = stretches.next();
        if next.is_none() {
            drop(stretches);
            return Err(chain);
        }
        while let Some((address, length, writes)) = next {
            next = stretches.next();
            index = self.free;
            let following = self.next[usize::from(index)];
            let flags = if writes { WRITE } else { 0 } | if next.is_some() { NEXT } else { 0 };
            let place = usize::from(index) * DESCRIPTOR;
            self.write(place, address);
            self.write(place + 8, length);
            self.write(place + 12, flags);
            self.write(place + 14, if next.is_some() { following } else { 0 });
            self.free = following;
            self.free_count -= 1;
        }
        drop(stretches);
        // The last descriptor's link marks the end of the chain, for `take`.
        self.next[usize::from(index)] = u16::MAX;
        self.waiting[usize::from(head)] = Some(chain);
        let (available, _, _) = self.rings;
        let slot = usize::from(self.given & (self.size - 1));
        self.write(available + 4 + 2 * slot, head);
        self.given = self.given.wrapping_add(1);
        // The device must see the descriptors before the count.
        fence(Ordering::Release);
        self.write(available + 2, self.given);
        Ok(())
    }

    /// Notifies the device of new chains, unless it is at work and will find them itself.
    pub fn notify(&mut self) {
        let before = core::mem::replace(&mut self.rung, self.given);
        if before == self.given {
            return;
        }
        // The count must be visible before the device's flag is read, or driver and device could
        // both miss the other's write.
        fence(Ordering::SeqCst);
        let (_, used, end) = self.rings;
        let wanted = if self.events {
            // The device wants to hear of the chain of this number, behind the used ring. Is it one
            // of those since the last notification?
            let event: u16 = self.read(end - 2);
            self.given.wrapping_sub(event).wrapping_sub(1) < self.given.wrapping_sub(before)
        } else {
            self.read::<u16>(used) & 1 == 0
        };
        if wanted {
            self.bell.ring();
        }
    }

    /// Takes back a chain that the device has finished, and the number of bytes that it wrote.
    pub fn take(&mut self) -> Option<(Chain, u32)> {
        let (_, used, _) = self.rings;
        loop {
            if self.read::<u16>(used + 2) == self.taken {
                return None;
            }
            // The answer must be read after the count that includes it.
            fence(Ordering::Acquire);
            let slot = usize::from(self.taken & (self.size - 1));
            let head: u32 = self.read(used + 4 + ANSWER * slot);
            let length: u32 = self.read(used + 4 + ANSWER * slot + 4);
            self.taken = self.taken.wrapping_add(1);
            let chain = self.waiting.get_mut(head as usize).and_then(Option::take);
            let Some(chain) = chain else { continue };
            let mut last = head as u16;
            let mut count = 1;
            while let Some(&next) = self.next.get(usize::from(last))
                && next != u16::MAX
            {
                last = next;
                count += 1;
            }
            self.next[usize::from(last)] = self.free;
            self.free = head as u16;
            self.free_count += count;
            return Some((chain, length));
        }
    }

    /// Whether [`take`](Self::take) would return a chain.
    pub fn has_answers(&self) -> bool {
        let (_, used, _) = self.rings;
        self.read::<u16>(used + 2) != self.taken
    }
}
