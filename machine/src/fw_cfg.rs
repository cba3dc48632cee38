//! Files that QEMU provides to the guest (`fw_cfg`, QEMU's docs/specs/fw_cfg.rst), read by its DMA
//! interface.
//!
//! A read is complete when the instruction that starts it is: QEMU copies within the write to the
//! port. So there is no waiting, and the host's clock has no influence. The command line that
//! starts the machine names the files (`-fw_cfg name=opt/...,file=...`).
//!
//! Lock order: the lock of the one control block is a leaf.

use crate::frames::Frame;
use crate::layout::PAGE_SIZE;
use crate::sync::SpinLock;
use core::arch::asm;

/// Writing a selector here chooses an item; its bytes are read from the next port.
const SELECTOR: u16 = 0x510;
const DATA: u16 = 0x511;
/// The physical address of a control block, high and low half, big-endian; writing the low half
/// starts the operation.
const DMA_HIGH: u16 = 0x514;
const DMA_LOW: u16 = 0x518;

/// Items: the signature, the features, the list of files.
const SIGNATURE: u16 = 0;
const FEATURES: u16 = 1;
const LIST: u16 = 0x19;
/// The feature bit of the DMA interface.
const HAS_DMA: u8 = 2;

/// Bits of a control block's first word; above 16 bits is the item for `SELECT`.
const ERROR: u32 = 1;
const READ: u32 = 2;
const SKIP: u32 = 4;
const SELECT: u32 = 8;

/// Where in the frame of the control block an entry of the list is read to.
const ENTRY: usize = 64;
/// An entry: size (4 bytes), item (2), nothing (2), name (56), numbers big-endian.
const ENTRY_SIZE: usize = 64;

/// The hypervisor did not carry out the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failed;

/// One file.
#[derive(Clone, Copy, Debug)]
pub struct File {
    item: u16,
    size: u32,
}

/// The frame of the control block, once the interface has been found.
static CONTROL: SpinLock<Option<Frame>> = SpinLock::new(None);

/// Returns the file of that name; `None`: there is no such file or no such interface, or memory is
/// exhausted.
pub fn file(name: &str) -> Option<File> {
    let mut control = CONTROL.lock();
    if control.is_none() {
        *control = find();
    }
    let control = control.as_ref()?;
    perform(control, u32::from(LIST) << 16 | SELECT | READ, 4, control.address() + ENTRY as u64)
        .ok()?;
    let mut count = [0; 4];
    control.read(ENTRY, &mut count);
    // QEMU's own limit is far below.
    for _ in 0..u32::from_be_bytes(count).min(4096) {
        let mut entry = [0; ENTRY_SIZE];
        perform(control, READ, ENTRY_SIZE as u32, control.address() + ENTRY as u64).ok()?;
        control.read(ENTRY, &mut entry);
        let [s0, s1, s2, s3, i0, i1, _, _, text @ ..] = entry;
        let text = text.split(|&byte| byte == 0).next().unwrap_or_default();
        if text == name.as_bytes() {
            let size = u32::from_be_bytes([s0, s1, s2, s3]);
            return Some(File { item: u16::from_be_bytes([i0, i1]), size });
        }
    }
    None
}

impl File {
    /// Returns the size in bytes.
    pub fn size(&self) -> u64 {
        u64::from(self.size)
    }

    /// Reads from byte `offset` on into the pieces, in order: frame, first byte in it, length. The
    /// part of a piece outside its frame is ignored; a piece that goes beyond the file's end is an
    /// error.
    pub fn read<'a>(
        &self,
        offset: u64,
        pieces: impl Iterator<Item = (&'a Frame, usize, usize)>,
    ) -> Result<(), Failed> {
        let control = CONTROL.lock();
        let control = control.as_ref().ok_or(Failed)?;
        let start = u32::try_from(offset).ok().filter(|&at| at <= self.size).ok_or(Failed)?;
        perform(control, u32::from(self.item) << 16 | SELECT | SKIP, start, 0)?;
        let mut left = self.size - start;
        for (frame, at, length) in pieces {
            let at = at.min(PAGE_SIZE);
            let length = length.min(PAGE_SIZE - at) as u32;
            left = left.checked_sub(length).ok_or(Failed)?;
            perform(control, READ, length, frame.address() + at as u64)?;
        }
        Ok(())
    }
}

/// Checks whether the interface exists; if so, returns a frame for the control block.
fn find() -> Option<Frame> {
    if !crate::cpu::features().hypervisor {
        return None;
    }
    let mut signature = [0; 4];
    port_read(SIGNATURE, &mut signature);
    let mut features = [0];
    port_read(FEATURES, &mut features);
    if signature != *b"QEMU" || features[0] & HAS_DMA == 0 {
        return None;
    }
    Frame::allocate_zeroed()
}

/// Reads the first bytes of an item by the slow port.
fn port_read(item: u16, into: &mut [u8]) {
    // SAFETY: QEMU's ports; without QEMU nothing answers there, and reading gives ones.
    unsafe {
        asm!("out dx, ax", in("dx") SELECTOR, in("ax") item, options(nostack, preserves_flags));
        for byte in into {
            asm!("in al, dx", in("dx") DATA, out("al") *byte, options(nostack, preserves_flags));
        }
    }
}

/// Makes the hypervisor carry out one control block. `address`: memory of a frame that the caller
/// holds.
fn perform(control: &Frame, what: u32, length: u32, address: u64) -> Result<(), Failed> {
    let mut block = [0; 16];
    block[..4].copy_from_slice(&what.to_be_bytes());
    block[4..8].copy_from_slice(&length.to_be_bytes());
    block[8..].copy_from_slice(&address.to_be_bytes());
    control.write(0, &block);
    let (high, low) = ((control.address() >> 32) as u32, control.address() as u32);
    // SAFETY: these are QEMU's ports, found by `find`. The hypervisor writes to the control block,
    // which is ours, and to `address`, a frame to which there is no Rust reference. The assembly
    // may touch memory, so the compiler moves nothing across it.
    unsafe {
        asm!("out dx, eax", in("dx") DMA_HIGH, in("eax") high.swap_bytes(),
             options(nostack, preserves_flags));
        asm!("out dx, eax", in("dx") DMA_LOW, in("eax") low.swap_bytes(),
             options(nostack, preserves_flags));
    }
    // The specification allows a delay: at the end the word is zero, or has the error bit.
    loop {
        let mut word = [0; 4];
        control.read(0, &mut word);
        match u32::from_be_bytes(word) {
            0 => return Ok(()),
            word if word & ERROR != 0 => return Err(Failed),
            _ => crate::sync::relax(),
        }
    }
}
