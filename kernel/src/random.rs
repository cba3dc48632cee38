//! The kernel's random numbers: a ChaCha20 generator for each processor, seeded at its first use.
//!
//! Every execution of a program takes some random words, so each processor has a generator of its own,
//! whose lock nobody else ever takes. Their keys come out of one generator for all. Its seed joins what
//! the processor's generator gives with the clocks; a device of the host, or a program that writes to
//! `/dev/urandom`, can add to it ([`add_seed`]), and then each processor asks for a new key before it
//! gives anything more. After every 64 KiB one does so too, so that a state that leaks does not tell
//! much of the past.
//!
//! There is no "not ready yet": in a virtual machine of today the processor's generator is there
//! from the first instruction, and under `-icount` with a fixed seed all of this repeats exactly.
//!
//! Lock order: a processor's own generator, then the one for all.

use core::sync::atomic::{AtomicU32, Ordering};

use hayate_machine::cpu::PerCpu;
use hayate_machine::sync::{Once, SpinLock};
use hayate_machine::{per_cpu, time};
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

/// Bytes given between two new keys.
const RENEWAL: usize = 64 << 10;

/// What the keys of the processors' generators come from.
static SOURCE: SpinLock<Option<ChaCha20Rng>> = SpinLock::new(None);
/// How often something was added to the source.
static ADDED: AtomicU32 = AtomicU32::new(0);

/// A processor's generator.
struct Generator {
    stream: ChaCha20Rng,
    /// Bytes until the next key.
    left: usize,
    /// [`ADDED`] when the key was made.
    added: u32,
}

per_cpu! {
    static OWN: PerCpu<SpinLock<Option<Generator>>> = PerCpu::new(SpinLock::new(None));
}

/// Mixes words of the processor and of the clocks into a seed.
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

/// A seed from the source, which forgets what led to it and takes `more` in.
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

/// Fills `bytes` with random ones.
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

/// A random word for an address, where thousands are drawn each second and nobody keeps one: what the
/// processor's generator gives, mixed with a secret of this boot; as [`word`] without such a
/// generator.
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

/// Adds randomness of somebody else (a device of the host, a program that writes to
/// `/dev/urandom`) to what every processor gives from now on.
pub fn add_seed(from: &[u8; 32]) {
    draw(from);
    ADDED.fetch_add(1, Ordering::Release);
}
