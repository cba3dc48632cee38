//! The folders of snapshots: made beside, then put in their place at once, and found whole or not
//! at all.
//!
//! Lock order: `.lock` of the folder of all snapshots, which is held for moments, before `lock` of
//! a folder that is being made, which its maker holds to its end. Folders whose maker was killed
//! have a name that begins with a dot and a lock that nobody holds; the next command removes them.

use super::manifest::{Manifest, checksum, unusable};
use crate::failure::{FAULT, Failure};
use crate::guest::qemu::{Memory, host_memory};
use crate::paths;
use anyhow::{Context, Result, bail};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use std::fs::{File, TryLockError};
use std::io::ErrorKind;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

const MANIFEST: &str = "manifest";
const MEMORY: &str = "memory";
const DEVICES: &str = "devices";
const LOCK: &str = "lock";

/// The end of a memory file: this text, and the token of its manifest.
const TRAILER: &str = "hayate snapshot memory ";
/// Bytes of the end: whole pages, so that the file can be mapped to its end.
const TRAILER_SIZE: u64 = 4096;
/// The largest memory that is written at once.
const PIECE: usize = 1 << 20;
const PAGE: usize = 4096;

/// The folder of all snapshots of this project.
pub struct Snapshots {
    folder: PathBuf,
}

/// A snapshot's folder that is being made.
pub struct Making {
    name: String,
    folder: PathBuf,
    target: PathBuf,
    all: PathBuf,
    _lock: File,
}

/// A snapshot that was found whole.
pub struct Snapshot {
    /// Its name.
    pub name: String,
    /// Its manifest.
    pub manifest: Manifest,
    /// The memory; it may be written, because QEMU opens it so, but is not.
    pub memory: File,
    /// The state of processors and devices.
    pub devices: File,
}

impl Snapshot {
    /// Returns the memory and the state of a machine that begins here.
    ///
    /// # Errors
    /// The host lacks memory for a copy.
    pub fn restored(self) -> Result<Memory> {
        let Snapshot { manifest, memory, devices, .. } = self;
        let is_own = manifest.gives_back;
        if !is_own {
            return Ok(Memory::Restored { memory, is_own, devices });
        }
        let copy = host_memory("memory")?;
        copy_memory(&memory, &copy, manifest.memory << 20).context("cannot copy the memory")?;
        Ok(Memory::Restored { memory: copy, is_own, devices })
    }
}

impl Snapshots {
    /// Returns the folder, which is made if missing, after clearing up.
    pub fn open() -> Result<Snapshots> {
        let all = Snapshots { folder: paths::build("snapshots")? };
        all.clear_up()?;
        Ok(all)
    }

    /// Returns the folder as it is.
    pub fn there() -> Result<Snapshots> {
        Ok(Snapshots { folder: paths::build("snapshots")? })
    }

    /// Returns the folder of the starts that `run` keeps by itself ([`super::automatic`]), which is
    /// made if missing.
    pub fn kept() -> Result<Snapshots> {
        Ok(Snapshots { folder: paths::build("starts")? })
    }

    /// Returns this folder, which is made if missing.
    pub fn at(folder: PathBuf) -> Result<Snapshots> {
        let made = std::fs::create_dir_all(&folder);
        made.with_context(|| format!("cannot make {}", folder.display()))?;
        Ok(Snapshots { folder })
    }

    /// The folder itself.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Removes what makers that were killed left.
    pub fn clear_up(&self) -> Result<()> {
        let _alone = paths::lock_folder(&self.folder)?;
        for name in self.entries()?.into_iter().filter(|name| name.starts_with(".making-")) {
            let folder = self.folder.join(name);
            let held = File::open(folder.join(LOCK))
                .is_ok_and(|lock| matches!(lock.try_lock(), Err(TryLockError::WouldBlock)));
            if !held {
                remove(&folder)?;
            }
        }
        Ok(())
    }

    fn entries(&self) -> Result<Vec<String>> {
        let list = self.folder.read_dir();
        let list = list.with_context(|| format!("cannot list {}", self.folder.display()))?;
        list.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
    }

    /// Returns the names of all snapshots, in order.
    pub fn names(&self) -> Result<Vec<String>> {
        let mut names = self.entries()?;
        names.retain(|name| !name.starts_with('.'));
        names.sort();
        Ok(names)
    }

    /// Begins a snapshot; one of this name stays until the new one is complete.
    pub fn begin(&self, name: &str) -> Result<Making> {
        let _alone = paths::lock_folder(&self.folder)?;
        let place = tempfile::Builder::new()
            .prefix(".making-")
            .permissions(std::fs::Permissions::from_mode(0o700))
            .tempdir_in(&self.folder);
        let place = place.with_context(|| format!("cannot write in {}", self.folder.display()))?;
        let lock = File::create(place.path().join(LOCK)).context("cannot make a lock")?;
        lock.lock().context("cannot lock the snapshot")?;
        let target = self.folder.join(name);
        let (name, all) = (name.to_string(), self.folder.clone());
        Ok(Making { name, folder: place.keep(), target, all, _lock: lock })
    }

    fn missing(name: &str) -> anyhow::Error {
        let text = format!("there is no snapshot {name}; ./hayate snapshot list lists them");
        Failure::error(FAULT, text)
    }

    /// Returns a snapshot's manifest.
    pub fn manifest(&self, name: &str) -> Result<Manifest> {
        let folder = self.folder.join(name);
        if !folder.is_dir() {
            return Err(Snapshots::missing(name));
        }
        let text = std::fs::read_to_string(folder.join(MANIFEST));
        let text = text.map_err(|error| unusable(name, &format!("its manifest: {error}")))?;
        Manifest::decode(&text).map_err(|why| unusable(name, why))
    }

    /// Returns a snapshot, with its files open: it can be removed from here on.
    ///
    /// # Errors
    /// There is none, or not a whole one.
    pub fn find(&self, name: &str) -> Result<Snapshot> {
        let manifest = self.manifest(name)?;
        let folder = self.folder.join(name);
        let open = |file: &str, write: bool| {
            let opened = File::options().read(true).write(write).open(folder.join(file));
            opened.map_err(|error| unusable(name, &format!("its file {file}: {error}")))
        };
        let (memory, devices) = (open(MEMORY, true)?, open(DEVICES, false)?);
        if let Some(why) = fault(&manifest, &memory, &devices) {
            return Err(unusable(name, why));
        }
        Ok(Snapshot { name: name.to_string(), manifest, memory, devices })
    }

    /// Returns how many bytes of the disk a snapshot has.
    pub fn size(&self, name: &str) -> u64 {
        let files = [MANIFEST, MEMORY, DEVICES].map(|file| self.folder.join(name).join(file));
        files.iter().filter_map(|file| Some(file.metadata().ok()?.blocks() * 512)).sum()
    }

    /// Removes a snapshot. Clones have its files open and go on.
    pub fn remove(&self, name: &str) -> Result<()> {
        let _alone = paths::lock_folder(&self.folder)?;
        let gone = self.folder.join(format!(".making-{name}-{}", std::process::id()));
        match std::fs::rename(self.folder.join(name), &gone) {
            Ok(()) => remove(&gone),
            Err(error) if error.kind() == ErrorKind::NotFound => Err(Snapshots::missing(name)),
            Err(error) => bail!("cannot remove the snapshot {name}: {error}"),
        }
    }
}

/// Says what is wrong with a snapshot's files.
fn fault(manifest: &Manifest, memory: &File, devices: &File) -> Option<&'static str> {
    let (size, sum) = &manifest.devices;
    let mut state = vec![0; usize::try_from(*size).ok()?.min(1 << 30)];
    let whole = devices.metadata().is_ok_and(|found| found.len() == *size);
    if !whole || devices.read_exact_at(&mut state, 0).is_err() || checksum(&state) != *sum {
        return Some("its file devices is cut short or was changed");
    }
    let bytes = manifest.memory << 20;
    if memory.metadata().map(|found| found.len()).ok() != Some(bytes + TRAILER_SIZE) {
        return Some("its file memory is cut short");
    }
    let mut end = vec![0; TRAILER_SIZE as usize];
    let read = memory.read_exact_at(&mut end, bytes);
    (read.is_err() || end != trailer(&manifest.token))
        .then_some("its file memory is of another one")
}

fn trailer(token: &str) -> Vec<u8> {
    let mut end = format!("{TRAILER}{token}\n").into_bytes();
    end.resize(TRAILER_SIZE as usize, 0);
    end
}

/// Removes a folder with all that is in it, if it is there.
pub fn remove(folder: &Path) -> Result<()> {
    match std::fs::remove_dir_all(folder) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            bail!("cannot remove {}: {error}", folder.display())
        }
        _ => Ok(()),
    }
}

impl Making {
    /// Writes the files, and puts the snapshot in its place. `manifest.token` and `devices` are
    /// those of the files.
    ///
    /// # Errors
    /// The disk is full, say. What was there before stays.
    pub fn finish(&self, memory: &File, devices: &[u8], manifest: &Manifest) -> Result<()> {
        let path = |name: &str| self.folder.join(name);
        self.write(memory, devices, manifest, &path)
            .with_context(|| format!("cannot write the snapshot {}", self.name))?;
        let _alone = paths::lock_folder(&self.all)?;
        let _ = std::fs::remove_file(path(LOCK));
        let place = || format!("cannot put the snapshot {} in its place", self.name);
        if self.target.exists() {
            // The old one takes the other name, by which it is removed.
            renameat_with(CWD, &self.folder, CWD, &self.target, RenameFlags::EXCHANGE)
                .with_context(place)?;
        } else {
            std::fs::rename(&self.folder, &self.target).with_context(place)?;
        }
        File::open(&self.all)?.sync_all().with_context(place)
    }

    fn write(
        &self,
        memory: &File,
        devices: &[u8],
        manifest: &Manifest,
        path: &dyn Fn(&str) -> PathBuf,
    ) -> std::io::Result<()> {
        let bytes = manifest.memory << 20;
        let file = File::create_new(path(MEMORY))?;
        copy_memory(memory, &file, bytes)?;
        file.write_all_at(&trailer(&manifest.token), bytes)?;
        file.sync_all()?;
        for (name, content) in [(DEVICES, devices), (MANIFEST, manifest.encode().as_bytes())] {
            let file = File::create_new(path(name))?;
            file.write_all_at(content, 0)?;
            file.sync_all()?;
        }
        File::open(&self.folder)?.sync_all()
    }
}

impl Drop for Making {
    /// Removes what is left: an unfinished snapshot, or the one that was replaced.
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Copies memory into an empty file, with holes for the pages that are zero.
fn copy_memory(from: &File, to: &File, bytes: u64) -> std::io::Result<()> {
    use rustix::fs::{SeekFrom, seek};
    const ZEROES: [u8; PAGE] = [0; PAGE];
    to.set_len(bytes)?;
    let mut buffer = vec![0; PIECE];
    let mut at = 0;
    while at < bytes {
        // The next part that is no hole.
        at = match seek(from, SeekFrom::Data(at)) {
            Ok(data) => data,
            Err(rustix::io::Errno::NXIO) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        let hole = seek(from, SeekFrom::Hole(at))?.min(bytes);
        while at < hole {
            let length = usize::try_from(hole - at).unwrap_or(PIECE).min(PIECE);
            let piece = &mut buffer[..length];
            from.read_exact_at(piece, at)?;
            for run in runs(piece, |page| page != &ZEROES[..page.len()]) {
                to.write_all_at(&piece[run.clone()], at + run.start as u64)?;
            }
            at += length as u64;
        }
    }
    Ok(())
}

/// Returns the longest runs of pages that are wanted.
fn runs(piece: &[u8], wanted: impl Fn(&[u8]) -> bool) -> Vec<std::ops::Range<usize>> {
    let mut runs: Vec<std::ops::Range<usize>> = Vec::new();
    for (index, page) in piece.chunks(PAGE).enumerate().filter(|(_, page)| wanted(page)) {
        let (start, end) = (index * PAGE, index * PAGE + page.len());
        match runs.last_mut() {
            Some(last) if last.end == start => last.end = end,
            _ => runs.push(start..end),
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::super::manifest::tests::manifest;
    use super::*;

    fn memory_of(bytes: &[(u64, u8)], size: u64) -> File {
        let file = tempfile::tempfile().unwrap();
        file.set_len(size).unwrap();
        for &(at, byte) in bytes {
            file.write_all_at(&[byte], at).unwrap();
        }
        file
    }

    struct Place {
        folder: tempfile::TempDir,
        all: Snapshots,
    }

    fn place() -> Place {
        let folder = tempfile::tempdir().unwrap();
        let all = Snapshots { folder: folder.path().join("all") };
        std::fs::create_dir(&all.folder).unwrap();
        Place { folder, all }
    }

    fn make(place: &Place, name: &str, byte: u8) {
        let manifest = Manifest { token: format!("{byte:02x}"), ..manifest(place.folder.path()) };
        let memory = memory_of(&[(3 << 20, byte), (64 << 20, 1)], manifest.memory << 20);
        place.all.begin(name).unwrap().finish(&memory, b"abc", &manifest).unwrap();
    }

    fn byte(place: &Place, name: &str) -> u8 {
        let mut byte = [0];
        place.all.find(name).unwrap().memory.read_exact_at(&mut byte, 3 << 20).unwrap();
        byte[0]
    }

    #[test]
    fn zeroes_become_holes() {
        let memory = memory_of(&[(0, 1), (5 << 20, 2), ((8 << 20) - 1, 3)], 8 << 20);
        memory.write_all_at(&[0; 1 << 20], 1 << 20).unwrap();
        let copy = tempfile::tempfile().unwrap();
        copy_memory(&memory, &copy, 8 << 20).unwrap();
        let read = |file: &File| {
            let mut bytes = vec![0; 8 << 20];
            file.read_exact_at(&mut bytes, 0).unwrap();
            bytes
        };
        assert!(read(&memory) == read(&copy));
        assert!(copy.metadata().unwrap().blocks() * 512 <= 3 * 4096 + 8192);
        let one = |piece: &[u8], wanted: fn(&[u8]) -> bool| {
            let runs = runs(piece, wanted);
            (runs.len(), runs[0].clone())
        };
        assert_eq!(one(&[1; 3 * PAGE], |_| true), (1, 0..3 * PAGE));
        assert_eq!(one(&[1; 2 * PAGE + 1], |page| page.len() < PAGE), (1, 2 * PAGE..2 * PAGE + 1));
    }

    #[test]
    fn one_takes_the_place_of_another_when_it_is_complete() {
        let place = place();
        make(&place, "a", 7);
        assert_eq!(byte(&place, "a"), 7);
        let begun = place.all.begin("a").unwrap();
        std::fs::write(begun.folder.join(MEMORY), "half").unwrap();
        place.all.clear_up().unwrap();
        assert!(begun.folder.exists(), "one that is being made was removed");
        drop(begun);
        assert_eq!(byte(&place, "a"), 7);
        make(&place, "a", 8);
        make(&place, "b", 9);
        assert_eq!((byte(&place, "a"), byte(&place, "b")), (8, 9));
        assert_eq!(place.all.names().unwrap(), ["a", "b"]);
        assert_eq!(place.all.entries().unwrap().len(), 3, "more than the lock stays");
    }

    #[test]
    fn one_that_cannot_be_written_leaves_the_old_one() {
        let place = place();
        make(&place, "a", 7);
        let manifest = manifest(place.folder.path());
        let memory = memory_of(&[], manifest.memory << 20);
        for file in [MEMORY, DEVICES, MANIFEST] {
            let begun = place.all.begin("a").unwrap();
            std::fs::create_dir(begun.folder.join(file)).unwrap();
            assert!(begun.finish(&memory, b"abc", &manifest).is_err());
            drop(begun);
            assert_eq!(byte(&place, "a"), 7);
        }
        assert_eq!(place.all.entries().unwrap().len(), 2, "something is left");
    }

    #[test]
    fn what_a_killed_maker_left_is_removed() {
        let place = place();
        let left = place.all.folder.join(".making-x");
        std::fs::create_dir(&left).unwrap();
        std::fs::write(left.join(LOCK), "").unwrap();
        place.all.clear_up().unwrap();
        assert!(!left.exists());
    }

    #[test]
    fn files_that_do_not_belong_together_are_refused() {
        let place = place();
        let told = |name: &str| place.all.find(name).err().map(|error| error.to_string()).unwrap();
        make(&place, "a", 7);
        make(&place, "b", 8);
        let path = |name: &str, file: &str| place.all.folder.join(name).join(file);
        std::fs::copy(path("b", MEMORY), path("a", MEMORY)).unwrap();
        assert!(told("a").contains("memory is of another one"), "{}", told("a"));
        make(&place, "a", 7);
        File::options().write(true).open(path("a", MEMORY)).unwrap().set_len(1 << 20).unwrap();
        assert!(told("a").contains("memory is cut short"));
        make(&place, "a", 7);
        std::fs::write(path("a", DEVICES), "abd").unwrap();
        assert!(told("a").contains("devices is cut short or was changed"));
        std::fs::write(path("a", MANIFEST), "{}").unwrap();
        assert!(told("a").contains("manifest is cut short"));
        std::fs::remove_file(path("a", MANIFEST)).unwrap();
        assert!(told("a").contains("its manifest"));
        assert!(told("c").contains("there is no snapshot c"));
        // It is replaced and removed all the same.
        make(&place, "a", 7);
        let clone = place.all.find("a").unwrap();
        place.all.remove("a").unwrap();
        let mut byte = [0];
        clone.memory.read_exact_at(&mut byte, 3 << 20).unwrap();
        assert_eq!(byte, [7]);
        assert!(place.all.remove("a").is_err());
    }
}
