//! The registration of a thread's area ([`super`]).
//!
//! Only the thread itself changes it; a tracer reads it. It needs no lock.

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};

use hayate_abi::rseq::AREA_SIZE;
use hayate_abi::{Errno, Result};
use hayate_machine::trap::{FIRST_FREE, attention};

use crate::drivers::io;
use crate::memory::USER_END;

/// Attention bit: the current thread has a registered area, and was switched to or has to look at
/// it for another reason.
pub const SEQUENCES: u64 = FIRST_FREE << 2;

const _: () = assert!(io::OWES & SEQUENCES == 0);

/// The number of no processor, for an area in which none was shown.
const NONE: u32 = u32::MAX;

/// The registration of a thread.
#[derive(Default)]
pub struct Sequences {
    /// The address of the area; 0: none.
    area: AtomicUsize,
    signature: AtomicU32,
    /// The processor that the area shows.
    shown: AtomicU32,
    /// Whether something has happened that ends a sequence.
    happened: AtomicBool,
}

/// A registration, as an image or a template keeps it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Registration {
    /// The address of the area; 0: none.
    pub area: usize,
    /// The word that precedes each abort address.
    pub signature: u32,
    /// The processor that the area shows.
    pub shown: u32,
}

impl Sequences {
    /// The registration.
    pub fn registration(&self) -> Registration {
        Registration {
            area: self.area.load(Ordering::Relaxed),
            signature: self.signature.load(Ordering::Relaxed),
            shown: self.shown.load(Ordering::Relaxed),
        }
    }

    /// Takes over a registration whose area is in the thread's memory: of a forked parent, an image
    /// or a template.
    #[inline]
    pub fn take_over(&self, from: Registration) {
        self.area.store(from.area, Ordering::Relaxed);
        self.signature.store(from.signature, Ordering::Relaxed);
        self.shown.store(from.shown, Ordering::Relaxed);
    }

    /// Forgets the area, since the thread leaves its memory.
    #[inline]
    pub fn forget(&self) {
        self.area.store(0, Ordering::Relaxed);
    }

    /// Notes that the scheduler switches to the thread, on its processor.
    #[inline(always)]
    pub fn switched_to(&self) {
        if self.is_registered() {
            self.happened.store(true, Ordering::Relaxed);
            attention::raise(SEQUENCES);
        }
    }

    /// Registers an area.
    ///
    /// # Errors
    /// `EINVAL`: the size is not that of 6.1, the address is not a multiple of it, or another area
    /// is registered; `EPERM`: this area is registered with another signature; `EBUSY`: it is
    /// registered; `EFAULT`: it is not in the program's half.
    pub fn register(&self, area: usize, size: u32, signature: u32) -> Result<()> {
        let now = self.registration();
        let is_right_size = size as usize == AREA_SIZE;
        if now.area != 0 {
            let is_this = now.area == area && is_right_size;
            return Err(match is_this {
                false => Errno::EINVAL,
                true if now.signature != signature => Errno::EPERM,
                true => Errno::EBUSY,
            });
        }
        if !is_right_size || !area.is_multiple_of(AREA_SIZE) {
            return Err(Errno::EINVAL);
        }
        if area > USER_END - AREA_SIZE {
            return Err(Errno::EFAULT);
        }
        self.take_over(Registration { area, signature, shown: NONE });
        self.look();
        Ok(())
    }

    /// Asks the thread, which is the current one, to look at its area on its way back, although
    /// nothing has happened that ends a sequence.
    pub fn look(&self) {
        self.happened.store(false, Ordering::Relaxed);
        if self.is_registered() {
            attention::raise(SEQUENCES);
        }
    }

    /// Whether there is an area.
    #[inline(always)]
    pub fn is_registered(&self) -> bool {
        self.area.load(Ordering::Relaxed) != 0
    }

    /// Notes that the area shows this processor.
    pub fn set_shown(&self, number: u32) {
        self.shown.store(number, Ordering::Relaxed);
    }

    /// Whether something has happened that ends a sequence, since this was asked last.
    pub fn take_happened(&self) -> bool {
        self.happened.swap(false, Ordering::Relaxed)
    }

    /// Notes that something has happened that ends a sequence.
    pub fn note(&self) {
        self.happened.store(true, Ordering::Relaxed);
    }
}
