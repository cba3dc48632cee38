//! Tests of sums that the processor makes.

use alloc::vec::Vec;

use hayate_ext4::crc32c_by_table;
use hayate_machine::cpu;

use crate::{check, ktest};

ktest! {
    /// The processor's instruction continues a sum as the table does, whatever the length and the
    /// place of the bytes.
    fn the_instruction_for_crc32c_does_what_the_table_does() {
        let Some(by_instruction) = cpu::crc32c() else { return Ok(()) };
        // The check value of CRC-32C is its inverted sum over "123456789".
        check!(!by_instruction(!0, b"123456789") == 0xe306_9283);
        let bytes: Vec<u8> = (0..300_u32).map(|at| (at * at % 251) as u8).collect();
        for from in 0..9 {
            for to in from..bytes.len() {
                let part = &bytes[from..to];
                check!(by_instruction(to as u32, part) == crc32c_by_table(to as u32, part));
            }
        }
    }
}
