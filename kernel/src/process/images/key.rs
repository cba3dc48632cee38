//! What makes two starts the same command, before either of them has run.
//!
//! All that a program gets from its parent and from `execve(2)` and can see without asking: the
//! executable and its interpreter, the strings, the credentials, the limits, root, directory and
//! umask, blocked and ignored signals, the numbers of inherited descriptors. What it sees only by
//! asking about a descriptor or a relative is asked again ([`super::question`]).

use alloc::sync::Arc;
use alloc::vec::Vec;

use hayate_abi::Result;
use hayate_abi::signal::SignalSet;
use hayate_recycler::{ContentKey, Fingerprint};

use crate::credentials::Credentials;
use crate::process::limits::Limits;
use crate::program::{Program, Strings};
use crate::reclaim::growth;
use crate::vfs::mount::Location;

/// A start that is about to happen.
pub struct Asked<'a> {
    /// Its [hash].
    pub hash: u64,
    /// The program.
    pub program: &'a Program,
    /// The path by which it was named.
    pub path: &'a [u8],
    /// Its arguments.
    pub arguments: &'a Strings,
    /// Its environment.
    pub environment: &'a Strings,
    /// Who starts it.
    pub credentials: &'a Arc<Credentials>,
    /// Its limits.
    pub limits: &'a Arc<Limits>,
    /// The root directory.
    pub root: &'a Location,
    /// The working directory.
    pub working: &'a Location,
    /// Blocked and ignored signals.
    pub signals: (SignalSet, SignalSet),
    /// Whether addresses are random.
    pub randomise: bool,
    /// Inherited descriptors, umask, personality and the like.
    pub numbers: [u64; 4],
}

/// The same, kept.
pub struct Key {
    hash: u64,
    program: ContentKey,
    interpreter: Option<ContentKey>,
    path: Vec<u8>,
    arguments: Vec<u8>,
    environment: Vec<u8>,
    credentials: Arc<Credentials>,
    limits: Arc<Limits>,
    root: Location,
    working: Location,
    signals: (SignalSet, SignalSet),
    randomise: bool,
    numbers: [u64; 4],
}

const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

/// Mixes a word into a hash.
pub fn mix(hash: u64, word: u64) -> u64 {
    (hash ^ word).wrapping_mul(SPREAD).rotate_left(23)
}

fn mix_bytes(hash: u64, bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let hash = words.iter().fold(hash, |hash, word| mix(hash, u64::from_le_bytes(*word)));
    mix(hash, crate::hash::word(rest) ^ (bytes.len() as u64) << 56)
}

/// A number that equal starts share: `user` is the effective one.
pub fn hash(program: &Program, strings: (&Strings, &Strings), user: u32) -> u64 {
    let hash = program.executable.content().fingerprint();
    let hash = mix_bytes(hash, strings.0.as_bytes());
    let hash = mix_bytes(hash, strings.1.as_bytes());
    mix(hash, u64::from(user))
}

impl Asked<'_> {
    fn interpreter(&self) -> Option<ContentKey> {
        self.program.interpreter.as_ref().map(|(file, _)| file.content())
    }

    /// Makes a key to keep. `ENOMEM`.
    pub fn keep(&self) -> Result<Key> {
        Ok(Key {
            hash: self.hash,
            program: self.program.executable.content(),
            interpreter: self.interpreter(),
            path: growth::copy(self.path)?,
            arguments: growth::copy(self.arguments.as_bytes())?,
            environment: growth::copy(self.environment.as_bytes())?,
            credentials: Arc::clone(self.credentials),
            limits: Arc::clone(self.limits),
            root: self.root.clone(),
            working: self.working.clone(),
            signals: self.signals,
            randomise: self.randomise,
            numbers: self.numbers,
        })
    }
}

impl Key {
    /// Whether a start is the same.
    pub fn matches(&self, asked: &Asked<'_>) -> bool {
        self.hash == asked.hash
            && self.program == asked.program.executable.content()
            && self.interpreter == asked.interpreter()
            && self.path == asked.path
            && self.numbers == asked.numbers
            && self.signals == asked.signals
            && self.randomise == asked.randomise
            && self.arguments == asked.arguments.as_bytes()
            && self.environment == asked.environment.as_bytes()
            && (Arc::ptr_eq(&self.credentials, asked.credentials)
                || *self.credentials == **asked.credentials)
            && (Arc::ptr_eq(&self.limits, asked.limits) || *self.limits == **asked.limits)
            && self.working.is_same(asked.working)
            && self.root.is_same(asked.root)
    }

    /// The hash of its starts.
    pub fn hash(&self) -> u64 {
        self.hash
    }

    /// The path by which the program is started.
    pub fn path(&self) -> &[u8] {
        &self.path
    }

    /// The arguments, each ended by a NUL.
    pub fn arguments(&self) -> &[u8] {
        &self.arguments
    }

    /// The environment, each string ended by a NUL.
    pub fn environment(&self) -> &[u8] {
        &self.environment
    }

    /// The signals that the program's parent blocked.
    pub fn blocked(&self) -> SignalSet {
        self.signals.0
    }

    /// The signals that it ignored.
    pub fn ignored(&self) -> SignalSet {
        self.signals.1
    }

    /// Whether addresses are random.
    pub fn is_random(&self) -> bool {
        self.randomise
    }

    /// Whether its starts have these limits.
    pub fn has_limits(&self, limits: &Limits) -> bool {
        *self.limits == *limits
    }

    /// The user whose starts it serves.
    pub fn owner(&self) -> u32 {
        self.credentials.euid
    }
}
