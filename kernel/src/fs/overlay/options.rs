//! The mount options.

use alloc::string::String;
use alloc::vec::Vec;

use crate::reclaim::growth::{self, Grow};
use hayate_abi::{Errno, Result};
use hayate_machine::warn;
use hayate_overlay_rules::{Fault, lower_paths, unescape};

/// The most lower layers (Linux' `OVL_MAX_STACK`).
const MOST_LAYERS: usize = 500;

/// The parsed options.
pub struct Options {
    pub lower: Vec<Vec<u8>>,
    pub upper: Option<Vec<u8>>,
    pub work: Option<Vec<u8>>,
    /// The options for `/proc/mounts`, each with a comma before it.
    pub shown: String,
}

/// Options without an effect here: they ask for the behaviour that is implemented anyway, or for
/// something that a layer in memory does not need.
const HARMLESS: [&[u8]; 10] = [
    b"redirect_dir=off",
    b"redirect_dir=nofollow",
    b"index=off",
    b"metacopy=off",
    b"nfs_export=off",
    b"xino=on",
    b"xino=auto",
    b"xino=off",
    b"volatile",
    b"default_permissions",
];

/// Splits at commas that have no `\` before them.
fn words(data: &[u8]) -> Result<Vec<&[u8]>> {
    let mut words = Vec::new();
    let mut start = 0;
    let mut escaped = false;
    for (at, &byte) in data.iter().enumerate() {
        if byte == b',' && !escaped {
            growth::push(&mut words, &data[start..at])?;
            start = at + 1;
        }
        escaped = byte == b'\\' && !escaped;
    }
    growth::push(&mut words, &data[start..])?;
    words.retain(|word| !word.is_empty());
    Ok(words)
}

fn error(fault: Fault) -> Errno {
    match fault {
        Fault::Empty => Errno::EINVAL,
        Fault::Memory => Errno::ENOMEM,
    }
}

impl Options {
    /// Parses the option text of `mount(2)`. `EINVAL` for options that are unknown or ask for a
    /// feature that is not implemented.
    pub fn parse(data: &[u8]) -> Result<Self> {
        let mut options = Self { lower: Vec::new(), upper: None, work: None, shown: String::new() };
        for word in words(data)? {
            if let Some(list) = word.strip_prefix(b"lowerdir=") {
                options.lower = lower_paths(list).map_err(error)?;
            } else if let Some(path) = word.strip_prefix(b"upperdir=") {
                options.upper = Some(unescape(path).map_err(error)?);
            } else if let Some(path) = word.strip_prefix(b"workdir=") {
                options.work = Some(unescape(path).map_err(error)?);
            } else if !HARMLESS.contains(&word) {
                warn!("overlay: option {} is not supported", word.escape_ascii());
                return Err(Errno::EINVAL);
            }
            let word = growth::text(word)?;
            options.shown.make_room(1 + word.len())?;
            options.shown.push(',');
            options.shown.push_str(&word);
        }
        if options.lower.is_empty() || options.lower.len() > MOST_LAYERS {
            warn!("overlay: lowerdir is missing or has too many layers");
            return Err(Errno::EINVAL);
        }
        Ok(options)
    }
}
