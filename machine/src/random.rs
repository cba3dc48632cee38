//! The processor's random numbers (`RDRAND`, SDM volume 1, 7.3.17).

use crate::cpu;

/// Returns a random word from the processor; `None` if it lacks the instruction or its generator
/// failed ten times in a row.
pub fn word() -> Option<u64> {
    if !cpu::features().rdrand {
        return None;
    }
    for _ in 0..10 {
        let (word, good): (u64, u8);
        // SAFETY: the processor has the instruction; it changes the two outputs and the flags.
        unsafe {
            core::arch::asm!(
                "rdrand {word}", "setc {good}",
                word = out(reg) word, good = out(reg_byte) good, options(nomem, nostack),
            );
        }
        if good != 0 {
            return Some(word);
        }
    }
    None
}
