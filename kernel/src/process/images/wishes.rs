//! What the command line says of images: `images=WORDS`, joined by commas.
//!
//! * `fresh-random`: starts from one image do not share random bytes;
//! * `starts-N`: so many starts begin at an image at most, before it is made anew.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use hayate_machine::{boot, warn};

static FRESH_RANDOM: AtomicBool = AtomicBool::new(false);
static MOST_STARTS: AtomicU64 = AtomicU64::new(4096);

/// Reads the words; boot calls it once. A word that is none is reported and ignored.
pub fn init() {
    for word in boot::option("images").unwrap_or("").split(',').filter(|word| !word.is_empty()) {
        let starts = word.strip_prefix("starts-").and_then(|count| count.parse().ok());
        match (word, starts) {
            ("fresh-random", _) => FRESH_RANDOM.store(true, Relaxed),
            (_, Some(count)) => MOST_STARTS.store(count, Relaxed),
            _ => warn!("images={word}: the words are fresh-random and starts-N"),
        }
    }
}

/// Whether each start has random bytes of its own.
pub fn fresh_random() -> bool {
    FRESH_RANDOM.load(Relaxed)
}

/// How many starts may begin at one image.
pub fn most_starts() -> u64 {
    MOST_STARTS.load(Relaxed)
}
