//! A file as non-volatile memory with a store of texts.

use anyhow::{Context, Result, bail};
use hayate_nvm_store::{Fault, Identity, PAGE, Region, Store, Text};
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// The size of large pages: a module of non-volatile memory consists of whole ones.
const LARGE: u64 = 2 << 20;
/// Bytes of a store for each entry of its directory.
const ENTRY_FOR: u64 = 64 << 10;

/// A file as a region. A flush does not wait until the data is on the disk, only
/// [`FileStore::sync`] does: the machine that reads the file is on this host.
pub struct FileRegion {
    file: File,
    size: u64,
}

impl Region for FileRegion {
    fn size(&self) -> u64 {
        self.size
    }

    fn read(&self, offset: u64, to: &mut [u8]) -> Result<(), Fault> {
        self.file.read_exact_at(to, offset).map_err(|_| Fault::Device)
    }

    fn write(&mut self, offset: u64, from: &[u8]) -> Result<(), Fault> {
        self.file.write_all_at(from, offset).map_err(|_| Fault::Device)
    }

    fn flush(&mut self, _: u64, _: u64) -> Result<(), Fault> {
        Ok(())
    }
}

/// A store in a file.
pub struct FileStore {
    /// The store.
    pub store: Store<FileRegion>,
    path: PathBuf,
}

fn region(path: &Path, write: bool) -> Result<FileRegion> {
    let file = OpenOptions::new()
        .read(true)
        .write(write)
        .open(path)
        .with_context(|| format!("cannot open {}", path.display()))?;
    let size = file.metadata()?.len() / PAGE * PAGE;
    Ok(FileRegion { file, size })
}

fn id() -> Result<[u8; 16]> {
    use std::io::Read;
    let mut id = [0; 16];
    File::open("/dev/urandom")?.read_exact(&mut id).context("cannot read /dev/urandom")?;
    Ok(id)
}

impl FileStore {
    /// Makes a store with space for `texts` texts of `pages` pages in total, of which `large` texts
    /// need to be placed on large pages.
    pub fn create(path: &Path, texts: u64, pages: u64, large: u64) -> Result<FileStore> {
        let pages = pages + large * LARGE / PAGE;
        // The directory has an entry of 128 bytes for each 64 KiB; some space is added.
        let size = ((pages + pages / 400 + 128) * PAGE).max(texts * ENTRY_FOR);
        let size = size.next_multiple_of(LARGE);
        let file =
            File::create(path).with_context(|| format!("cannot create {}", path.display()))?;
        file.set_len(size)?;
        drop(file);
        let store = Store::format(region(path, true)?, id()?)?;
        Ok(FileStore { store, path: path.to_path_buf() })
    }

    /// Makes a store with the texts of another one, and space for further ones of `more` pages.
    pub fn copy(from: &Path, path: &Path, more: u64) -> Result<FileStore> {
        let old = FileStore::open(from, false)?;
        let mut texts = old.store.texts().to_vec();
        // Large texts first: small texts then fill the gaps between them.
        texts.sort_by_key(|text| (std::cmp::Reverse(text.pages), text.first));
        let pages: u64 = texts.iter().map(|text| u64::from(text.pages)).sum();
        let large = texts.iter().filter(|text| text.phase != Text::ANYWHERE).count() as u64;
        let mut new = FileStore::create(path, texts.len() as u64, pages + more, large)?;
        for text in &texts {
            let content = old.get(&text.identity)?.context("a text is gone")?;
            new.store.put(&content, text.phase, text.name())?;
        }
        Ok(new)
    }

    /// Opens the store in a file, for changes or only for reading. A blank file gets a new store.
    pub fn open(path: &Path, change: bool) -> Result<FileStore> {
        let opened = match Store::open(region(path, change)?) {
            Err(Fault::NotFormatted) if change && is_blank(path)? => {
                Store::format(region(path, true)?, id()?)
            }
            other => other,
        };
        let store =
            opened.with_context(|| format!("cannot open the store in {}", path.display()))?;
        Ok(FileStore { store, path: path.to_path_buf() })
    }

    /// Stores a text; if it is already there, returns it.
    pub fn put(&mut self, text: &[u8], phase: u32, name: &str) -> Result<Text> {
        let identity = Identity::of(text);
        if let Some(text) = self.store.find(&identity) {
            return Ok(*text);
        }
        let stored = self.store.put(text, phase, name.as_bytes());
        stored
            .with_context(|| format!("cannot store the text of {name} in {}", self.path.display()))
    }

    /// The text of this identity.
    pub fn get(&self, identity: &Identity) -> Result<Option<Vec<u8>>> {
        let Some(text) = self.store.find(identity) else { return Ok(None) };
        let mut bytes = vec![0; text.pages as usize * PAGE as usize];
        self.store.region().read(text.first * PAGE, &mut bytes)?;
        Ok(Some(bytes))
    }

    /// Returns when everything is on the host's disk.
    pub fn sync(&self) -> Result<()> {
        Ok(self.store.region().file.sync_all()?)
    }
}

/// Whether the first page of a file is all zeroes.
fn is_blank(path: &Path) -> Result<bool> {
    let mut page = [1; PAGE as usize];
    File::open(path)?.read_exact_at(&mut page, 0)?;
    Ok(page.iter().all(|&byte| byte == 0))
}

/// Checks that a file can be non-volatile memory, and returns its size: a multiple of 2 MiB.
pub fn blank(path: &Path) -> Result<u64> {
    let found = path.metadata().with_context(|| {
        format!(
            "cannot find the file {}; truncate -s 256M {0} makes one, and --nvm 256M needs none",
            path.display()
        )
    })?;
    if !found.is_file() || found.len() == 0 || !found.len().is_multiple_of(LARGE) {
        bail!(
            "{} cannot be non-volatile memory: its size must be a multiple of 2 MiB",
            path.display()
        );
    }
    Ok(found.len())
}
