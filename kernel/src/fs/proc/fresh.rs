//! `/proc/hayate/fresh`: makes this machine another one than its twins.
//!
//! A machine that was restored from a snapshot is one of many with the same memory: with the same
//! state of the random generator, the same secrets, the same connections. Its first program writes
//! fresh random bytes of the host here before it starts anything (docs/snapshots.md), and then
//!
//! * the generator draws from them, on every processor;
//! * the boot's number is another one (`/proc/sys/kernel/random/boot_id`);
//! * the secrets of TCP are new, and connections that no program has any more are over;
//! * the hardware addresses of hosts on the links are forgotten: the links may be others.
//!
//! The keys of hash tables stay, since tables are ordered by them: a program sees no hash. So do
//! the addresses that are drawn once per boot, and what kept programs drew before they were kept.
//!
//! Reading shows how often it was done.
//!
//! Road not taken: the device `vmgenid`. The firmware tells where its number lies, by an ACPI
//! method, for which a kernel needs an interpreter, and its change is told by an interrupt, which
//! programs may outrun. In a snapshot no program is left but the first, and that one waits.

use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering};

use hayate_abi::{Errno, Result};
use hayate_machine::sync::SpinLock;

use super::text::line;
use crate::credentials::Capability;
use crate::net::neighbour;
use crate::net::tcp;
use crate::process;
use crate::random;

/// The least number of random bytes: the width of the generator's key.
const LEAST: usize = 32;
/// Bytes of a seed.
const SEED: usize = 32;

static COUNT: AtomicU64 = AtomicU64::new(0);
static BOOT_ID: SpinLock<Option<[u8; 16]>> = SpinLock::new(None);

/// Shows how often the machine was made another one.
pub fn show(_: &(), out: &mut Vec<u8>) -> Result<()> {
    line(out, format_args!("{}", COUNT.load(Ordering::Relaxed)))
}

/// Takes random bytes, in hexadecimal digits.
///
/// # Errors
/// `EPERM`; `EINVAL` for fewer than [`LEAST`] bytes, and for other characters; `ENOMEM`.
pub fn renew(_: &(), text: &[u8]) -> Result<()> {
    process::current().credentials().require(Capability::SysAdmin)?;
    let digits = text.strip_suffix(b"\n").unwrap_or(text);
    if !digits.len().is_multiple_of(2) || digits.len() / 2 < LEAST {
        return Err(Errno::EINVAL);
    }
    // All digits are looked at before anything is changed.
    let mut wrong = 0;
    digits.iter().for_each(|&digit| wrong |= value(digit));
    if wrong > 0xf {
        return Err(Errno::EINVAL);
    }
    for piece in digits.chunks(2 * SEED) {
        let mut seed = [0; SEED];
        for (at, &digit) in piece.iter().enumerate() {
            seed[at / 2] = seed[at / 2] << 4 | value(digit);
        }
        random::add_seed(&seed);
    }
    *BOOT_ID.lock() = None;
    neighbour::forget();
    COUNT.fetch_add(1, Ordering::Relaxed);
    tcp::renew()
}

/// Returns the value of a hexadecimal digit, or more than any has.
fn value(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        b'a'..=b'f' => digit - b'a' + 10,
        b'A'..=b'F' => digit - b'A' + 10,
        _ => u8::MAX,
    }
}

/// Returns the number of this boot.
pub fn boot_id() -> [u8; 16] {
    *BOOT_ID.lock().get_or_insert_with(|| {
        let mut bytes = [0; 16];
        random::fill(&mut bytes);
        bytes
    })
}
