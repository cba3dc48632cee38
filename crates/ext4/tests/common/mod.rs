//! Shared by the tests of writing: volumes made by mke2fs in memory, e2fsck's opinion of them,
//! a model of a file system to compare with, and random operations on both.
#![allow(dead_code)]

pub mod model;
pub mod random;

use std::cell::{Cell, RefCell};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use hayate_ext4::{Device, Error, Result, Source, Time};

/// A directory that is removed with its owner. In memory, if the host has a file system there.
pub struct Scratch(pub PathBuf);

impl Scratch {
    pub fn new(name: &str) -> Self {
        let memory = Path::new("/dev/shm");
        let base = if memory.is_dir() { memory.into() } else { std::env::temp_dir() };
        let thread: String = format!("{:?}", std::thread::current().id())
            .chars()
            .filter(char::is_ascii_digit)
            .collect();
        let path = base.join(format!("hayate-ext4-{}-{thread}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).expect("a scratch directory");
        Self(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// One request that reached the device.
#[derive(Clone)]
pub enum Request {
    Write(u64, Vec<u8>),
    Flush,
}

/// A device in memory. It can keep a log of all requests, and fail from the N-th on.
pub struct Disk {
    pub bytes: RefCell<Vec<u8>>,
    pub log: RefCell<Option<Vec<Request>>>,
    /// Requests until writes and flushes begin to fail.
    pub fuse: Cell<Option<u64>>,
    pub reads: Cell<u64>,
}

impl Disk {
    pub fn new(bytes: Vec<u8>) -> Self {
        Self {
            bytes: RefCell::new(bytes),
            log: RefCell::new(None),
            fuse: Cell::new(None),
            reads: Cell::new(0),
        }
    }

    pub fn size(&self) -> u64 {
        self.bytes.borrow().len() as u64
    }

    fn burn(&self) -> Result<()> {
        match self.fuse.get() {
            Some(0) => Err(Error::Io),
            Some(left) => {
                self.fuse.set(Some(left - 1));
                Ok(())
            }
            None => Ok(()),
        }
    }
}

impl Source for Disk {
    fn read(&self, offset: u64, into: &mut [u8]) -> Result<()> {
        self.reads.set(self.reads.get() + 1);
        let start = usize::try_from(offset).map_err(|_| Error::Io)?;
        let end = start.checked_add(into.len()).ok_or(Error::Io)?;
        into.copy_from_slice(self.bytes.borrow().get(start..end).ok_or(Error::Io)?);
        Ok(())
    }
}

impl Device for Disk {
    fn write(&self, offset: u64, from: &[u8]) -> Result<()> {
        self.burn()?;
        let start = usize::try_from(offset).map_err(|_| Error::Io)?;
        let end = start.checked_add(from.len()).ok_or(Error::Io)?;
        let mut bytes = self.bytes.borrow_mut();
        bytes.get_mut(start..end).ok_or(Error::Io)?.copy_from_slice(from);
        if let Some(log) = &mut *self.log.borrow_mut() {
            log.push(Request::Write(offset, from.to_vec()));
        }
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        self.burn()?;
        if let Some(log) = &mut *self.log.borrow_mut() {
            log.push(Request::Flush);
        }
        Ok(())
    }
}

/// Makes a volume by mke2fs with `options`, of `kib` KiB.
pub fn make(scratch: &Scratch, options: &[&str], kib: u32) -> Vec<u8> {
    let image = scratch.0.join("image");
    let _ = fs::remove_file(&image);
    let output = Command::new("/sbin/mke2fs")
        .args(["-q", "-F"])
        .args(options)
        .arg(&image)
        .arg(format!("{kib}k"))
        .output()
        .expect("mke2fs; install e2fsprogs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    fs::read(&image).unwrap()
}

/// Runs e2fsck; returns its exit status and what it said.
pub fn e2fsck(image: &Path, options: &str) -> (i32, String) {
    let output = Command::new("/sbin/e2fsck")
        .arg(options)
        .arg(image)
        .output()
        .expect("e2fsck; install e2fsprogs");
    let said = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    (output.status.code().unwrap_or(-1), said)
}

/// Fails unless e2fsck finds nothing at all.
pub fn assert_clean(scratch: &Scratch, bytes: &[u8], context: &str) {
    let image = scratch.0.join("check");
    fs::write(&image, bytes).unwrap();
    let (status, said) = e2fsck(&image, "-fn");
    if status != 0 {
        let kept = std::env::temp_dir().join("hayate-ext4-broken.img");
        let _ = fs::copy(&image, &kept);
        panic!("{context}: e2fsck -fn: {status}, image in {}\n{said}", kept.display());
    }
}

/// Runs one request of debugfs, and returns what it said.
pub fn debugfs(image: &Path, request: &str) -> String {
    let output = Command::new("/sbin/debugfs")
        .args(["-R", request])
        .arg(image)
        .output()
        .expect("debugfs; install e2fsprogs");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// A point in time that tells calls apart.
pub fn now(step: u64) -> Time {
    Time { seconds: 1_700_000_000 + step as i64, nanoseconds: (step % 1000 * 1_000_003) as u32 }
}

/// Bytes that differ from file to file and block to block.
pub fn content(seed: u64, length: usize) -> Vec<u8> {
    let mut random = hayate_fuzzing::Random::new(seed ^ 0x5555);
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        bytes.extend_from_slice(&random.word().to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}
