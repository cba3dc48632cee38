//! CRC-32C by the processor's instruction (SSE4.2; Intel SDM, volume 2, CRC32).
//!
//! It works on general registers, so the kernel needs no vector unit for it. One instruction takes
//! eight bytes and waits three cycles for the one before; sums of three parts at once, joined at
//! the end, would be faster for blocks by a factor of about two, which nothing here needs. Every
//! change of a directory sums a block of it, so eight of them stand together: beside one
//! instruction, a loop would be three times as many.

use core::arch::asm;

use super::features::features;

/// Returns the function that continues a CRC-32C over bytes, without inversion, if the processor
/// has the instruction.
pub fn crc32c() -> Option<fn(u32, &[u8]) -> u32> {
    // Nothing else makes `by_instruction` reachable.
    features().sse4_2.then_some(by_instruction)
}

fn by_instruction(sum: u32, bytes: &[u8]) -> u32 {
    let (blocks, rest) = bytes.as_chunks::<64>();
    let (words, rest) = rest.as_chunks::<8>();
    let mut sum = u64::from(sum);
    for block in blocks {
        // SAFETY: the instructions change one register and read the block, which has 64 bytes; this
        // processor has them, see `crc32c`.
        unsafe {
            asm!(
                "crc32 {sum}, qword ptr [{block}]",
                "crc32 {sum}, qword ptr [{block} + 8]",
                "crc32 {sum}, qword ptr [{block} + 16]",
                "crc32 {sum}, qword ptr [{block} + 24]",
                "crc32 {sum}, qword ptr [{block} + 32]",
                "crc32 {sum}, qword ptr [{block} + 40]",
                "crc32 {sum}, qword ptr [{block} + 48]",
                "crc32 {sum}, qword ptr [{block} + 56]",
                sum = inout(reg) sum, block = in(reg) block.as_ptr(),
                options(pure, readonly, nostack, preserves_flags),
            );
        }
    }
    for word in words {
        let word = u64::from_le_bytes(*word);
        // SAFETY: the instruction changes one register; this processor has it, see `crc32c`.
        unsafe {
            asm!("crc32 {sum}, {word}", sum = inout(reg) sum, word = in(reg) word,
                options(pure, nomem, nostack, preserves_flags));
        }
    }
    for byte in rest {
        // SAFETY: as above.
        unsafe {
            asm!("crc32 {sum:e}, {byte}", sum = inout(reg) sum, byte = in(reg_byte) *byte,
                options(pure, nomem, nostack, preserves_flags));
        }
    }
    sum as u32
}
