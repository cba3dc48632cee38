//! The non-volatile memory of a machine, as `--nvm` asks for it.

use crate::arguments::{Board, Machine};
use crate::failure::{Failure, USAGE};
use crate::off2f;
use anyhow::Result;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The prefix of a file or a size, or alone for the texts of `--off2f`: virtio's memory.
const VIRTIO: &str = "virtio";

/// The device of the non-volatile memory.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum NvmDevice {
    /// An NVDIMM, described by ACPI.
    Nvdimm,
    /// A virtio device.
    Virtio,
}

/// Non-volatile memory.
pub struct Nvm {
    /// The file behind it; `None`: memory that is blank at each start.
    pub file: Option<PathBuf>,
    /// Bytes.
    pub size: u64,
    /// Whether the guest's writes go to the file.
    pub kept: bool,
}

/// Returns the device and the memory that the options ask for. Pseudo memory is part of ordinary
/// memory: only a word on the kernel's command line.
pub fn requested(options: &Machine, words: &mut Vec<String>) -> Result<(NvmDevice, Option<Nvm>)> {
    let given = options.nvm.as_deref();
    let virtio = given.and_then(|given| after(given, VIRTIO));
    if virtio.is_some() && options.deterministic {
        let text = "--deterministic does not go with --nvm virtio: a flush of virtio's memory takes \
                    as long as the host's disk does; leave virtio: out, for an NVDIMM";
        return Err(Failure::error(USAGE, text));
    }
    let device = if virtio.is_some() { NvmDevice::Virtio } else { NvmDevice::Nvdimm };
    let nvm = match given {
        None => None,
        // The texts of --off2f are added later.
        Some(_) if virtio.is_some_and(OsStr::is_empty) => None,
        Some(given) => match given.to_str().and_then(|text| text.strip_prefix("pseudo:")) {
            Some(size) => {
                let mib = size_in_mib(size).map_err(|text| {
                    Failure::error(USAGE, format!("--nvm pseudo:{size}: {text}"))
                })?;
                words.push(format!("pseudo_nvm={mib}M"));
                None
            }
            None => Some(file_or_size(virtio.unwrap_or(given))?),
        },
    };
    if nvm.is_some() && options.board == Board::Microvm {
        let text = "the microvm board has no non-volatile memory but --nvm pseudo:SIZE: \
                    use --machine q35";
        return Err(Failure::error(USAGE, text));
    }
    Ok((device, nvm))
}

/// Whether `--nvm` only selects the device for the texts of `--off2f`.
pub fn names_only_a_device(nvm: &OsStr) -> bool {
    nvm == VIRTIO
}

/// Returns the text after `word:`, or an empty text after the word alone; `None`: it is something
/// else.
fn after<'a>(given: &'a OsStr, word: &str) -> Option<&'a OsStr> {
    let rest = given.as_bytes().strip_prefix(word.as_bytes())?;
    match rest {
        [] => Some(OsStr::new("")),
        // `virtio:` would name a file with an empty name, which cannot exist.
        [b':', rest @ ..] if !rest.is_empty() => Some(OsStr::from_bytes(rest)),
        _ => None,
    }
}

/// Parses the value of `--nvm FILE|SIZE`. A value that is not a file and begins with a digit is
/// taken for a size.
fn file_or_size(given: &OsStr) -> Result<Nvm> {
    let file = Path::new(given).to_path_buf();
    if let Some(text) = given.to_str()
        && text.starts_with(|c: char| c.is_ascii_digit())
        && !file.exists()
    {
        let mib = size_in_mib(text).map_err(|why| {
            Failure::error(USAGE, format!("--nvm {text}: there is no such file; for a size: {why}"))
        })?;
        return Ok(Nvm { file: None, size: mib << 20, kept: false });
    }
    Ok(Nvm { size: off2f::blank(&file)?, file: Some(file), kept: true })
}

/// Parses `64M`, `1G` into MiB: an even number, for large pages.
fn size_in_mib(text: &str) -> Result<u64, &'static str> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let scale = match text[digits.len()..].to_ascii_uppercase().as_str() {
        "M" => 1,
        "G" => 1024,
        _ => return Err("write the size as 64M or 1G"),
    };
    let number: u64 = digits.parse().map_err(|_| "write the size as 64M or 1G")?;
    match number.checked_mul(scale) {
        Some(mib) if (2..1 << 20).contains(&mib) && mib % 2 == 0 => Ok(mib),
        _ => Err("name an even number of MiB, from 2M to below 1024G"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn virtio_is_a_word_before_a_file_or_a_size() {
        let virtio = |given| after(OsStr::new(given), VIRTIO);
        assert_eq!(virtio("virtio:64M"), Some(OsStr::new("64M")));
        assert_eq!(virtio("virtio:./a:b"), Some(OsStr::new("./a:b")));
        assert_eq!(virtio("virtio"), Some(OsStr::new("")));
        for other in ["64M", "virtio:", "virtio2", "virtio/64M", "pseudo:64M", "./virtio:64M"] {
            assert_eq!(virtio(other), None, "{other}");
        }
    }
}
