//! Bytes that an image names: their digests, and what they are compressed with.

use crate::{Error, Result};
use flate2::read::MultiGzDecoder;
use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};
use sha2::{Digest as _, Sha256};
use std::fmt;
use std::io::{self, BufRead, BufReader, Read};

/// A digest by SHA-256, the one that registries and builders use.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest([u8; 32]);

impl Digest {
    /// The digest of bytes.
    pub fn of(bytes: &[u8]) -> Digest {
        Digest(Sha256::digest(bytes).into())
    }

    /// Reads `sha256:` and 64 digits.
    ///
    /// # Errors
    /// The text is none, or a digest of another kind.
    pub fn parse(text: &str) -> Result<Digest> {
        let hex = text.strip_prefix("sha256:").ok_or_else(|| {
            Error::new(format!("the digest {} is not one by sha256", crate::shown(text.as_bytes())))
        })?;
        Digest::of_hex(hex)
            .ok_or_else(|| Error::new(format!("no digest: {}", crate::shown(text.as_bytes()))))
    }

    /// Reads 64 digits.
    pub fn of_hex(hex: &str) -> Option<Digest> {
        let digits = hex.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        let mut bytes = [0; 32];
        if hex.len() != 64 || !digits {
            return None;
        }
        for (byte, at) in bytes.iter_mut().zip((0..64).step_by(2)) {
            *byte = u8::from_str_radix(&hex[at..at + 2], 16).ok()?;
        }
        Some(Digest(bytes))
    }

    /// Its 64 digits.
    pub fn hex(&self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sha256:{}", self.hex())
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Compares what was read with the digest and size that were promised.
pub(crate) fn check(what: &str, wanted: &Digest, found: &Digest) -> Result<()> {
    if wanted == found {
        return Ok(());
    }
    Err(Error::new(format!("{what} is not what the image names: {found} and not {wanted}")))
}

/// A reader that knows the digest and number of the bytes that went by, and lets no more than
/// `most` go by.
pub(crate) struct Counted<R> {
    inner: R,
    hash: Sha256,
    pub(crate) count: u64,
    most: u64,
}

impl<R: Read> Counted<R> {
    pub(crate) fn new(inner: R, most: u64) -> Counted<R> {
        Counted { inner, hash: Sha256::new(), count: 0, most }
    }

    /// Reads what is left.
    pub(crate) fn drain(&mut self) -> io::Result<()> {
        io::copy(self, &mut io::sink()).map(drop)
    }

    pub(crate) fn digest(self) -> Digest {
        Digest(self.hash.finalize().into())
    }
}

/// The text of the error for more than `most` bytes.
pub(crate) const TOO_MUCH: &str = "it unpacks to more than an image may hold";

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.count += count as u64;
        if self.count > self.most {
            return Err(io::Error::other(TOO_MUCH));
        }
        self.hash.update(&buffer[..count]);
        Ok(count)
    }
}

/// Returns what the bytes are when unpacked: of gzip, of zstd, or as they are. The kind is told by
/// the bytes and not by their name.
pub(crate) fn unpacked<'a>(reader: impl Read + 'a) -> Result<Box<dyn Read + 'a>> {
    let mut reader = BufReader::with_capacity(64 << 10, reader);
    // A pipe may give less, a file does not.
    let start = reader.fill_buf()?;
    for (magic, name) in [(&b"BZh"[..], "bzip2"), (b"\xfd7zXZ", "xz")] {
        if start.starts_with(magic) {
            return Err(Error::new(format!(
                "it is compressed by {name}; layers may be by gzip or zstd"
            )));
        }
    }
    if start.starts_with(b"\x1f\x8b") {
        return Ok(Box::new(MultiGzDecoder::new(reader)));
    }
    if is_zstd(start) {
        return Ok(Box::new(Zstd::new(reader)));
    }
    Ok(Box::new(reader))
}

/// Whether a frame of zstd, or one that is skipped, begins here (RFC 8878, 3.1).
fn is_zstd(start: &[u8]) -> bool {
    start.starts_with(b"\x28\xb5\x2f\xfd")
        || start.len() >= 4 && start[0] & 0xf0 == 0x50 && start[1..4] == *b"\x2a\x4d\x18"
}

/// All frames of a file of zstd; `ruzstd` reads one.
struct Zstd<R> {
    source: R,
    decoder: FrameDecoder,
    begun: bool,
}

impl<R: BufRead> Zstd<R> {
    fn new(source: R) -> Zstd<R> {
        Zstd { source, decoder: FrameDecoder::new(), begun: false }
    }

    /// Begins the next frame; false at the end of the file.
    fn begin(&mut self) -> io::Result<bool> {
        loop {
            if self.source.fill_buf()?.is_empty() {
                return Ok(false);
            }
            match self.decoder.reset(&mut self.source) {
                Ok(()) => return Ok(true),
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                    length,
                    ..
                })) => {
                    let mut skipped = (&mut self.source).take(length.into());
                    if io::copy(&mut skipped, &mut io::sink())? < length.into() {
                        return Err(io::ErrorKind::UnexpectedEof.into());
                    }
                }
                Err(error) => return Err(io::Error::other(error.to_string())),
            }
        }
    }
}

impl<R: BufRead> Read for Zstd<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        loop {
            if self.begun && self.decoder.can_collect() > 0 {
                return self.decoder.read(buffer);
            }
            if !self.begun || self.decoder.is_finished() {
                self.begun = self.begin()?;
                if !self.begun {
                    return Ok(0);
                }
                continue;
            }
            let blocks = BlockDecodingStrategy::UptoBlocks(1);
            self.decoder
                .decode_blocks(&mut self.source, blocks)
                .map_err(|error| io::Error::other(error.to_string()))?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn read(bytes: &[u8]) -> io::Result<Vec<u8>> {
        let mut out = Vec::new();
        unpacked(bytes).map_err(io::Error::other)?.read_to_end(&mut out)?;
        Ok(out)
    }

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    fn zstd(bytes: &[u8]) -> Vec<u8> {
        ruzstd::encoding::compress_to_vec(bytes, ruzstd::encoding::CompressionLevel::Fastest)
    }

    #[test]
    fn compressed_bytes_are_told_by_their_beginning() {
        let plain: Vec<u8> = (0..300_000_u32).map(|number| (number / 7 % 251) as u8).collect();
        for packed in [plain.clone(), gzip(&plain), zstd(&plain)] {
            assert!(read(&packed).unwrap() == plain);
        }
        // Several members, and frames to skip before, between and behind.
        let twice = [&plain[..], &plain[..]].concat();
        assert!(read(&[gzip(&plain), gzip(&plain)].concat()).unwrap() == twice);
        let skip = b"\x5a\x2a\x4d\x18\x03\x00\x00\x00abc".to_vec();
        let frames = [skip.clone(), zstd(&plain), skip.clone(), zstd(&plain), skip].concat();
        assert!(read(&frames).unwrap() == twice);
        assert!(read(&frames[..frames.len() - 1]).is_err());
        assert!(read(&zstd(&plain)[..100]).is_err());
        assert!(read(&gzip(&plain)[..100]).is_err());
        assert!(read(b"BZh91AY").unwrap_err().to_string().contains("bzip2"));
        assert_eq!(read(b"").unwrap(), b"");
    }

    #[test]
    fn digests_are_read_as_written() {
        let digest = Digest::of(b"");
        let text = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(digest.to_string(), text);
        assert_eq!(Digest::parse(text).unwrap(), digest);
        for wrong in ["", "sha256:", "sha512:00", &text[..70], &text.to_uppercase(), "sha256:é"] {
            assert!(Digest::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn more_than_is_allowed_does_not_go_by() {
        let mut counted = Counted::new(&[7_u8; 100][..], 99);
        assert_eq!(counted.drain().unwrap_err().to_string(), TOO_MUCH);
        let mut counted = Counted::new(&[7_u8; 100][..], 100);
        counted.drain().unwrap();
        assert_eq!((counted.count, counted.digest()), (100, Digest::of(&[7; 100])));
    }
}
