//! Records of process accounting (`acct(5)`), as kernel/acct.c of Linux 6.1 writes them with
//! `CONFIG_BSD_PROCESS_ACCT_V3`.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Ticks in a second, in which a record gives times (`AHZ`).
pub const TICKS: u64 = 100;

/// Version 3, little-endian.
pub const VERSION: u8 = 3;

/// The process forked and executed no program.
pub const AFORK: u8 = 0x01;
/// It left a core file.
pub const ACORE: u8 = 0x08;
/// A signal ended it.
pub const AXSIG: u8 = 0x10;

/// `struct acct_v3`.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
#[allow(missing_docs, reason = "named as in acct(5)")]
pub struct AcctV3 {
    pub ac_flag: u8,
    pub ac_version: u8,
    pub ac_tty: u16,
    pub ac_exitcode: u32,
    pub ac_uid: u32,
    pub ac_gid: u32,
    pub ac_pid: u32,
    pub ac_ppid: u32,
    pub ac_btime: u32,
    /// An IEEE 754 number of single precision ([`float`]).
    pub ac_etime: u32,
    /// These are numbers with an exponent ([`compressed`]).
    pub ac_utime: u16,
    pub ac_stime: u16,
    pub ac_mem: u16,
    pub ac_io: u16,
    pub ac_rw: u16,
    pub ac_minflt: u16,
    pub ac_majflt: u16,
    pub ac_swaps: u16,
    pub ac_comm: [u8; 16],
}

/// A `comp_t`: 13 bits that are shifted left by three times an exponent of 3 bits, rounded; the
/// largest one for what exceeds it (`encode_comp_t`).
pub const fn compressed(value: u64) -> u16 {
    const MOST: u64 = (1 << 13) - 1;
    let (mut fraction, mut exponent, mut round) = (value, 0, false);
    while fraction > MOST {
        round = fraction & 4 != 0;
        fraction >>= 3;
        exponent += 1;
    }
    if round {
        fraction += 1;
        if fraction > MOST {
            fraction >>= 3;
            exponent += 1;
        }
    }
    if exponent > 7 { u16::MAX } else { (exponent << 13) as u16 + fraction as u16 }
}

/// The bits of a number of single precision, cut and not rounded (`encode_float`).
pub const fn float(value: u64) -> u32 {
    if value == 0 {
        return 0;
    }
    let zeros = value.leading_zeros();
    // The leading one is bit 63 then, and is not stored.
    let fraction = (value << zeros >> 40) as u32 & 0x7f_ffff;
    fraction | (190 - zeros) << 23
}

#[cfg(test)]
mod tests {
    use super::{compressed, float};

    /// The value of a `comp_t`, as accounting programs compute it.
    fn expanded(word: u16) -> u64 {
        u64::from(word & 0x1fff) << (3 * (word >> 13))
    }

    #[test]
    fn small_numbers_are_kept() {
        for value in 0..8192 {
            assert_eq!(compressed(value), value as u16);
        }
        assert_eq!(compressed(8192), 1 << 13 | 1024);
        assert_eq!(compressed(u64::MAX), u16::MAX);
        // A fraction of ones is rounded up to the next exponent.
        assert_eq!(compressed(65_535), 2 << 13 | 1024);
    }

    #[test]
    fn large_numbers_are_near() {
        let mut value = 8192_u64;
        while value < 1 << 33 {
            for near in [value, value + 3, value + 4, value * 2 - 1] {
                let apart = expanded(compressed(near)).abs_diff(near);
                assert!(apart * 1000 <= near, "{near} became {}", expanded(compressed(near)));
            }
            value *= 2;
        }
    }

    #[test]
    fn floats_are_those_of_the_processor() {
        for value in [1_u64, 2, 3, 100, 12_345, 1 << 24, 1 << 40, 3 << 61] {
            assert_eq!(float(value), (value as f32).to_bits(), "{value}");
        }
        assert_eq!(float(0), 0);
        // Cut, where the processor rounds up.
        assert_eq!(float((1 << 25) - 1), ((1_u64 << 25) as f32).to_bits() - 1);
    }
}
