//! The checksums of metadata: CRC-32C, and CRC-16 over the group descriptors of older volumes.

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

/// Continues from the sum `seed` over `parts`.
pub fn crc32c(seed: u32, parts: &[&[u8]]) -> u32 {
    // The crate takes an initial value in the order of the polynomial's bits.
    let mut digest = CRC_32C.digest_with_initial(seed.reverse_bits());
    parts.iter().for_each(|part| digest.update(part));
    digest.finalize()
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
}
