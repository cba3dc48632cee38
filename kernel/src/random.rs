//! The kernel's random numbers: a ChaCha20 generator for each processor, seeded at its first use.
//!
//! Every execution of a program takes some random words, so each processor has a generator of its
//! own, whose lock no other processor ever takes. The keys of these generators come from one
//! generator for all. Its seed combines the output of the processor's hardware generator with the
//! clocks. A device of the host, or a program that writes to `/dev/urandom`, can add to it
//! ([`add_seed`]); then each processor takes a new key before it returns anything more. A processor
//! also takes a new key after every 64 KiB, so that a leaked state does not reveal much of the
//! past.
//!
//! There is no "not ready yet": in a virtual machine of today the hardware generator is available
//! from the first instruction, and under `-icount` with a fixed seed all of this repeats exactly.
//!
//! The cipher is a loop around one block (`chacha20`, its portable part): four blocks side by side
//! (`rand_chacha`) are seven times the code, which a restored machine translates anew before its
//! first program runs.
//!
//! Lock order: a processor's own generator, then the one for all.

use core::sync::atomic::{AtomicU32, Ordering};

use chacha20::ChaCha20Rng;
use chacha20::rand_core::{Rng, SeedableRng};
use hayate_machine::cpu::PerCpu;
use hayate_machine::sync::{Once, SpinLock};
use hayate_machine::{per_cpu, time};

/// Bytes returned between two new keys.
const RENEWAL: usize = 64 << 10;

/// The generator of the processors' keys.
static SOURCE: SpinLock<Option<ChaCha20Rng>> = SpinLock::new(None);
/// The number of times that a seed was added to the source.
static ADDED: AtomicU32 = AtomicU32::new(0);

/// A processor's generator.
struct Generator {
    stream: ChaCha20Rng,
    /// Bytes until the next key.
    left: usize,
    /// The value of [`ADDED`] when the key was made.
    added: u32,
}

per_cpu! {
    static OWN: PerCpu<SpinLock<Option<Generator>>> = PerCpu::new(SpinLock::new(None));
}

/// Mixes words of the hardware generator and of the clocks into a seed.
fn stir(seed: &mut [u8; 32]) {
    for (index, piece) in seed.chunks_exact_mut(8).enumerate() {
        let clock = time::monotonic_ns().rotate_left(32) ^ time::realtime_ns();
        let word =
            hayate_machine::random::word().unwrap_or(0) ^ clock.rotate_left(index as u32 * 8);
        for (byte, new) in piece.iter_mut().zip(word.to_le_bytes()) {
            *byte ^= new;
        }
    }
}

/// Draws a seed from the source, which mixes `more` in and cannot be traced back to earlier states.
fn draw(more: &[u8; 32]) -> [u8; 32] {
    let mut source = SOURCE.lock();
    let mut next = [0; 32];
    let mut drawn = [0; 32];
    if let Some(source) = &mut *source {
        source.fill_bytes(&mut next);
        source.fill_bytes(&mut drawn);
    }
    for (byte, new) in next.iter_mut().zip(more) {
        *byte ^= new;
    }
    stir(&mut next);
    *source = Some(ChaCha20Rng::from_seed(next));
    drawn
}

impl Generator {
    #[cold]
    fn new() -> Generator {
        let added = ADDED.load(Ordering::Acquire);
        let mut seed = draw(&[0; 32]);
        stir(&mut seed);
        Generator { stream: ChaCha20Rng::from_seed(seed), left: RENEWAL, added }
    }
}

/// Fills `bytes` with random bytes.
pub fn fill(bytes: &mut [u8]) {
    for piece in bytes.chunks_mut(1024) {
        let mut own = OWN.here().lock();
        let generator = own.get_or_insert_with(Generator::new);
        if generator.left < piece.len() || generator.added != ADDED.load(Ordering::Relaxed) {
            *generator = Generator::new();
        }
        generator.left = generator.left.saturating_sub(piece.len());
        generator.stream.fill_bytes(piece);
    }
}

/// A random word.
pub fn word() -> u64 {
    let mut bytes = [0; 8];
    fill(&mut bytes);
    u64::from_le_bytes(bytes)
}

/// A random word for an address, of which thousands are drawn each second and none is kept: a word
/// of the hardware generator, mixed with a secret of this boot. Without a hardware generator, like
/// [`word`].
pub fn quick_word() -> u64 {
    static SECRET: Once<u64> = Once::new();
    match hayate_machine::random::word() {
        Some(drawn) => {
            let mixed = (drawn ^ *SECRET.call_once(word)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            mixed ^ mixed >> 32
        }
        None => word(),
    }
}

/// Adds randomness from outside (a device of the host, a program that writes to `/dev/urandom`) to
/// what every processor returns from now on.
pub fn add_seed(from: &[u8; 32]) {
    draw(from);
    ADDED.fetch_add(1, Ordering::Release);
}
