//! The checksums of metadata: CRC-32C, and CRC-16 over the group descriptors of older volumes.
//!
//! Every change of a directory makes the sum of a whole block anew, so most of the instructions of
//! a change are here where a table makes it. Processors have an instruction for CRC-32C (Intel
//! SDM, volume 2, CRC32), which pure logic cannot reach: a volume takes the function from its
//! [`Source`](crate::Source), and a [`Seed`] brings it to where a sum is made.

use core::fmt;

use crc::{Algorithm, Crc, Table};

/// CRC-32C as Linux' `crc32c()` chains it: no inversion, neither before nor after.
const RAW_32C: Algorithm<u32> = Algorithm {
    width: 32,
    poly: 0x1edc_6f41,
    init: 0,
    refin: true,
    refout: true,
    xorout: 0,
    check: 0,
    residue: 0,
};
static CRC_32C: Crc<u32, Table<16>> = Crc::<u32, Table<16>>::new(&RAW_32C);
static CRC_16: Crc<u16, Table<1>> = Crc::<u16, Table<1>>::new(&crc::CRC_16_MODBUS);

/// Continues a CRC-32C over bytes, without inversion, as Linux' `crc32c()` does.
pub type Crc32c = fn(u32, &[u8]) -> u32;

/// Continues the CRC-32C `sum` over `bytes` by a table.
pub fn by_table(sum: u32, bytes: &[u8]) -> u32 {
    // The crate takes an initial value in the order of the polynomial's bits.
    let mut digest = CRC_32C.digest_with_initial(sum.reverse_bits());
    digest.update(bytes);
    digest.finalize()
}

/// A CRC-32C that others continue, and the function that continues it.
#[derive(Clone, Copy)]
pub struct Seed {
    sum: u32,
    function: Crc32c,
}

impl Seed {
    /// The sum `sum`, which `function` continues.
    pub fn new(sum: u32, function: Crc32c) -> Seed {
        Seed { sum, function }
    }

    /// The sum over `parts`, one after the other.
    pub fn over(self, parts: &[&[u8]]) -> u32 {
        parts.iter().fold(self.sum, |sum, part| (self.function)(sum, part))
    }

    /// The sum over `parts` as the seed of others.
    pub fn then(self, parts: &[&[u8]]) -> Seed {
        Seed { sum: self.over(parts), ..self }
    }
}

impl PartialEq for Seed {
    fn eq(&self, other: &Seed) -> bool {
        self.sum == other.sum
    }
}

impl Eq for Seed {}

impl fmt::Debug for Seed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#010x}", self.sum)
    }
}

/// Continues from the sum `seed` over `parts`: for what is seldom made.
pub fn crc32c(seed: u32, parts: &[&[u8]]) -> u32 {
    Seed::new(seed, by_table).over(parts)
}

/// The sum over `parts` from a state of all ones.
pub fn crc16(parts: &[&[u8]]) -> u16 {
    let mut digest = CRC_16.digest();
    parts.iter().for_each(|part| digest.update(part));
    digest.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_chain_as_linux_does() {
        // The check value of CRC-32C is its inverted sum over "123456789".
        assert_eq!(!crc32c(!0, &[b"123456789"]), 0xe306_9283);
        assert_eq!(crc32c(crc32c(!0, &[b"1234"]), &[b"56789"]), crc32c(!0, &[b"123456789"]));
        assert_eq!(crc16(&[b"12345", b"6789"]), 0x4b37);
    }

    #[test]
    fn seeds_continue_by_the_function_they_were_given() {
        let seed = Seed::new(!0, by_table);
        assert_eq!(seed.then(&[b"1234"]).over(&[b"56", b"789"]), crc32c(!0, &[b"123456789"]));
        let lengths = Seed::new(1, |sum, bytes| sum + bytes.len() as u32);
        assert_eq!(lengths.then(&[b"12"]).over(&[b"345", b""]), 6);
    }
}
