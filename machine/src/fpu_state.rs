//! The floating-point and vector registers of a program (XSAVE area).
//!
//! The kernel itself is compiled without them, so they stay loaded while a thread is in the kernel
//! and are saved only when another program's thread is switched to. Each CPU records whose state
//! its registers hold: a thread that comes back to the same CPU before another state was loaded
//! there loads nothing.
//!
//! A state belongs to a [`Context`](crate::context::Context). It is used only by the switch to and
//! from that context, which saves and loads the registers, and by the functions of [`crate::fpu`],
//! which work on the state of the context that calls them. For one context these happen one after
//! the other, so no two processors use a state at once.
//!
//! A signal frame carries the area in the layout of Linux (arch/x86/kernel/fpu/signal.c): the
//! legacy FXSAVE image with `struct _fpx_sw_bytes` in its last 48 bytes, the XSAVE header and
//! components, and the word FP_XSTATE_MAGIC2 after them.

use alloc::alloc::{Layout, alloc, dealloc};
use core::arch::asm;
use core::cell::Cell;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, Ordering};

use crate::cpu::{self, MAX_CPUS, Word, features};
use crate::per_cpu;

const LEGACY: usize = 512;
const MAGIC1: u32 = 0x4650_5853;
const MAGIC2: u32 = 0x4650_5845;
/// Where `_fpx_sw_bytes` begins in the legacy image.
const SOFTWARE: usize = 464;
/// Where the x87 registers begin, of ten bytes in sixteen each.
const X87: usize = 32;
/// Where the SSE registers begin.
const SSE: usize = 160;
/// Where the reserved bytes behind them begin.
const RESERVED: usize = 416;
const MXCSR_DEFAULT: u32 = 0x1f80;
/// The bits of MXCSR on a processor that does not report its own (SDM vol. 1, 11.6.6): all but
/// "denormals are zeroes".
const MXCSR_OLD: u32 = 0xffbf;

/// The bits of MXCSR that every processor here has: setting another bit faults.
static MXCSR_MASK: AtomicU32 = AtomicU32::new(u32::MAX);

per_cpu! {
    /// The identity of the state that this CPU's registers hold (0: none).
    static LOADED: Word = Word::new(0);
    /// How many identities this CPU has assigned.
    static GIVEN: Word = Word::new(0);
}

/// One thread's FPU state.
pub struct FpuState {
    area: NonNull<u8>,
    /// Changes whenever the area is written by anything but `save`.
    identity: Cell<u64>,
}

// SAFETY: the area is the state's own memory.
unsafe impl Send for FpuState {}

fn layout() -> Layout {
    let size = features().xsave_size.clamp(LEGACY + 64, 1 << 16);
    // SAFETY: 64 is a power of two, and the size is too small to overflow.
    unsafe { Layout::from_size_align_unchecked(size, 64) }
}

fn fresh_identity() -> u64 {
    GIVEN.set(GIVEN.get() + 1);
    GIVEN.get() * MAX_CPUS as u64 + cpu::id() as u64
}

impl FpuState {
    /// Returns the state of a new program: everything initial. `None`: memory is exhausted.
    pub fn new_init() -> Option<FpuState> {
        let state = FpuState::allocate()?;
        state.write_initial();
        Some(state)
    }

    /// Returns an area whose content is still to be written.
    fn allocate() -> Option<FpuState> {
        // SAFETY: the layout has a size.
        let area = NonNull::new(unsafe { alloc(layout()) })?;
        Some(FpuState { area, identity: Cell::new(fresh_identity()) })
    }

    /// Returns a copy of the state of the context that runs.
    pub(crate) fn fork(&self) -> Option<FpuState> {
        let child = FpuState::allocate()?;
        if LOADED.get() == self.identity.get() && child.take_registers() {
            return Some(child);
        }
        self.save();
        // SAFETY: two areas of the same size; the source was just saved.
        unsafe {
            core::ptr::copy_nonoverlapping(
                self.area.as_ptr(),
                child.area.as_ptr(),
                layout().size(),
            );
        }
        Some(child)
    }

    /// Saves the registers of this CPU into a new area, whatever it contained before. Returns
    /// false, and writes nothing, if that would leave parts of the area unwritten.
    #[inline]
    fn take_registers(&self) -> bool {
        /// With x87, SSE and AVX, XSAVE leaves gaps only at the end of the legacy part and in the
        /// header, of which it writes eight bytes.
        const CONTIGUOUS: usize = LEGACY + 64 + 256;
        const UNWRITTEN: usize = 416;
        if !features().xsave || features().xcr0 != 7 || features().xsave_size != CONTIGUOUS {
            return false;
        }
        let area = self.area.as_ptr();
        // SAFETY: inside the area, which has the size for the enabled components and is 64-byte
        // aligned; XSAVE, unlike XSAVEOPT, writes every one of them (SDM vol. 1, 13.7).
        unsafe {
            let gap = area.add(UNWRITTEN).cast::<u64>();
            // One by one, since a call of `memset` takes twice as long.
            for word in 0..(LEGACY + 64 - UNWRITTEN) / 8 {
                gap.add(word).write_volatile(0);
            }
            asm!("xsave64 [{}]", in(reg) area, in("eax") u32::MAX, in("edx") u32::MAX, options(nostack));
        }
        true
    }

    fn write_initial(&self) {
        let area = self.area.as_ptr();
        // SAFETY: offsets within the area: FCW, MXCSR, and the XSAVE header, which says "initial".
        unsafe {
            area.write_bytes(0, layout().size());
            area.cast::<u16>().write(0x037f);
            area.add(24).cast::<u32>().write(MXCSR_DEFAULT);
        }
    }

    pub(crate) fn reset(&self) {
        self.write_initial();
        self.changed();
        self.restore();
    }

    fn changed(&self) {
        self.identity.set(fresh_identity());
    }

    /// Saves the registers, which hold this state now, into the area.
    #[inline]
    pub(crate) fn save(&self) {
        if LOADED.get() != self.identity.get() {
            return;
        }
        let area = self.area.as_ptr();
        // SAFETY: the area has the size for the enabled components and is 64-byte aligned.
        unsafe {
            if features().xsaveopt {
                asm!("xsaveopt64 [{}]", in(reg) area, in("eax") u32::MAX, in("edx") u32::MAX, options(nostack));
            } else if features().xsave {
                asm!("xsave64 [{}]", in(reg) area, in("eax") u32::MAX, in("edx") u32::MAX, options(nostack));
            } else {
                asm!("fxsave64 [{}]", in(reg) area, options(nostack));
            }
        }
        // From here on the state may be changed on another CPU: only the area counts there, and
        // this CPU's registers are stale as soon as the identity is renewed.
    }

    /// Loads the registers from the area unless they still hold this state.
    #[inline]
    pub(crate) fn restore(&self) {
        if LOADED.get() == self.identity.get() {
            return;
        }
        // A new identity each time: registers left behind on another CPU then match no state.
        self.changed();
        LOADED.set(self.identity.get());
        let area = self.area.as_ptr();
        // SAFETY: the area was made by `save` or `write_initial`, or checked by
        // `load_signal_bytes`, so that loading it cannot fault.
        unsafe {
            if features().xsave {
                asm!("xrstor64 [{}]", in(reg) area, in("eax") u32::MAX, in("edx") u32::MAX, options(nostack));
            } else {
                asm!("fxrstor64 [{}]", in(reg) area, options(nostack));
            }
        }
    }

    /// Returns the size in bytes of the state in a signal frame; it must be placed at a 64-byte
    /// aligned address.
    pub fn signal_size() -> usize {
        if features().xsave { features().xsave_size + 4 } else { LEGACY }
    }

    pub(crate) fn to_signal_bytes(&self, out: &mut [u8]) -> bool {
        let size = FpuState::signal_size();
        if out.len() < size {
            return false;
        }
        self.save();
        let image = if features().xsave { size - 4 } else { LEGACY };
        // SAFETY: the area has at least `image` bytes and is not being written now.
        let area = unsafe { core::slice::from_raw_parts(self.area.as_ptr(), image) };
        out[..image].copy_from_slice(area);
        scrub(out);
        out[SOFTWARE..LEGACY].fill(0);
        if features().xsave {
            out[SOFTWARE..SOFTWARE + 4].copy_from_slice(&MAGIC1.to_le_bytes());
            out[SOFTWARE + 4..SOFTWARE + 8].copy_from_slice(&(size as u32).to_le_bytes());
            out[SOFTWARE + 8..SOFTWARE + 16].copy_from_slice(&features().xcr0.to_le_bytes());
            out[SOFTWARE + 16..SOFTWARE + 20].copy_from_slice(&(image as u32).to_le_bytes());
            // Linux sets the "in use" bits of the legacy components in the frame.
            out[LEGACY] |= 3;
            out[image..size].copy_from_slice(&MAGIC2.to_le_bytes());
        }
        true
    }

    /// Returns the size in bytes of the state in a core file.
    pub fn core_size() -> usize {
        if features().xsave { features().xsave_size } else { LEGACY }
    }

    pub(crate) fn to_core_bytes(&self, out: &mut [u8]) -> Option<u64> {
        if out.len() != FpuState::core_size() {
            return None;
        }
        self.save();
        // SAFETY: the area has at least so many bytes and is not being written now.
        out.copy_from_slice(unsafe { core::slice::from_raw_parts(self.area.as_ptr(), out.len()) });
        scrub(out);
        // XSAVEOPT does not write components in their initial state (SDM vol. 1, 13.9), and the
        // legacy part alone has no header that says which these are.
        if let Some(&used) = out.get(LEGACY) {
            if used & 1 == 0 {
                out[..24].fill(0);
                out[..2].copy_from_slice(&0x037fu16.to_le_bytes());
                out[X87..SSE].fill(0);
            }
            if used & 2 == 0 {
                out[SSE..RESERVED].fill(0);
            }
        }
        Some(if features().xsave { features().xcr0 } else { 3 })
    }

    /// Whether `bytes`, in the form of a core file, can be loaded: no reserved bit of MXCSR and of
    /// the header is set.
    pub fn is_valid(bytes: &[u8]) -> bool {
        let word = |at: usize| {
            bytes.get(at..at + 4).map_or(0, |b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]))
        };
        if bytes.len() != FpuState::core_size()
            || word(24) & !MXCSR_MASK.load(Ordering::Relaxed) != 0
        {
            return false;
        }
        let used = u64::from(word(LEGACY)) | u64::from(word(LEGACY + 4)) << 32;
        // Compacted images and reserved bits fault.
        !features().xsave
            || used & !features().xcr0 == 0
                && bytes[LEGACY + 8..LEGACY + 64].iter().all(|byte| *byte == 0)
    }

    pub(crate) fn load_core_bytes(&self, bytes: &[u8]) -> bool {
        if !FpuState::is_valid(bytes) {
            return false;
        }
        self.write_initial();
        // SAFETY: the area has at least as many bytes, and is not being written or read now.
        unsafe {
            core::ptr::copy_nonoverlapping(bytes.as_ptr(), self.area.as_ptr(), bytes.len());
        }
        self.changed();
        self.restore();
        true
    }

    pub(crate) fn load_signal_bytes(&self, bytes: &[u8]) -> bool {
        if bytes.len() < LEGACY {
            return false;
        }
        let word = |at: usize| {
            bytes.get(at..at + 4).map_or(0, |b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]))
        };
        if word(24) & !MXCSR_MASK.load(Ordering::Relaxed) != 0 {
            return false;
        }
        let image = features().xsave_size;
        let full = features().xsave
            && word(SOFTWARE) == MAGIC1
            && word(SOFTWARE + 16) as usize == image
            && bytes.len() >= image + 4
            && word(image) == MAGIC2;
        let used = u64::from(word(LEGACY)) | u64::from(word(LEGACY + 4)) << 32;
        // The rest of the header must be zero: compacted images and reserved bits fault.
        if full
            && (used & !features().xcr0 != 0
                || bytes[LEGACY + 8..LEGACY + 64].iter().any(|b| *b != 0))
        {
            return false;
        }
        let area = self.area.as_ptr();
        self.write_initial();
        let length = if full { image } else { LEGACY };
        // SAFETY: both have `length` bytes.
        unsafe {
            core::ptr::copy_nonoverlapping(bytes.as_ptr(), area, length);
            if full {
                area.add(LEGACY).cast::<u64>().write(used);
            } else if features().xsave {
                area.add(LEGACY).cast::<u64>().write(3);
            }
        }
        self.changed();
        self.restore();
        true
    }
}

/// Clears the bytes of the legacy image that the processor does not write (SDM vol. 1, 13.5.1): in
/// the area of a child they contain what the heap held before.
fn scrub(image: &mut [u8]) {
    for register in image[X87..SSE].chunks_exact_mut(16) {
        register[10..].fill(0);
    }
}

impl Drop for FpuState {
    fn drop(&mut self) {
        // SAFETY: made by `allocate` with the same layout.
        unsafe { dealloc(self.area.as_ptr(), layout()) };
    }
}

/// Initialises a CPU that starts: its registers hold no state, so that the next restore loads them,
/// and the bits that its MXCSR has are detected.
pub(crate) fn init() {
    LOADED.set(0);
    MXCSR_MASK.fetch_and(own_mask(), Ordering::Relaxed);
}

/// Returns the bits of MXCSR that this CPU has, from the image that FXSAVE writes; 0 there means
/// the old set.
fn own_mask() -> u32 {
    const MASK: usize = 28;
    #[repr(align(16))]
    struct Image([u8; LEGACY]);
    let mut image = Image([0; LEGACY]);
    // SAFETY: 512 bytes, aligned to 16. Every 64-bit CPU has the instruction.
    unsafe { asm!("fxsave64 [{}]", in(reg) image.0.as_mut_ptr(), options(nostack)) };
    let [a, b, c, d] = [0, 1, 2, 3].map(|byte| image.0[MASK + byte]);
    match u32::from_le_bytes([a, b, c, d]) {
        0 => MXCSR_OLD,
        mask => mask,
    }
}
