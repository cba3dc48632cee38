//! Volumes made by mke2fs, read whole and compared with the tree they were made from; then the
//! same volumes damaged. `mke2fs` (Debian: e2fsprogs) must be installed.

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use common::{Disk, assert_clean, now};
use hayate_ext4::{EntryKind, Error, ROOT, Result, Source, Volume, Writer};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

struct Image(Vec<u8>);

impl Source for Image {
    fn read(&self, offset: u64, into: &mut [u8]) -> Result<()> {
        let start = usize::try_from(offset).map_err(|_| Error::Io)?;
        let end = start.checked_add(into.len()).ok_or(Error::Io)?;
        into.copy_from_slice(self.0.get(start..end).ok_or(Error::Io)?);
        Ok(())
    }
}

/// A directory that is removed with its owner.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("hayate-ext4-{}-{name}", std::process::id()));
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

/// Bytes that differ from block to block and file to file.
fn content(seed: u32, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(2_654_435_761) | 1;
    let mut step = || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state as u8
    };
    (0..length).map(|_| step()).collect()
}

fn build_tree(root: &Path) {
    fs::create_dir_all(root.join("usr/lib/deep/er")).unwrap();
    fs::create_dir(root.join("many")).unwrap();
    for index in 0..600 {
        let name = format!("many/file-with-a-long-name-{index:05}");
        fs::write(root.join(name), [index as u8]).unwrap();
    }
    fs::write(root.join("empty"), []).unwrap();
    fs::write(root.join("small"), content(1, 100)).unwrap();
    fs::write(root.join("usr/lib/large"), content(2, 700_001)).unwrap();
    fs::hard_link(root.join("usr/lib/large"), root.join("usr/lib/deep/again")).unwrap();
    symlink("usr/lib/large", root.join("short-link")).unwrap();
    symlink("x/".repeat(150), root.join("long-link")).unwrap();
    // Holes at the beginning, in the middle and at the end.
    let mut sparse = content(3, 400_000);
    sparse[..8192].fill(0);
    sparse[100_000..300_000].fill(0);
    fs::write(root.join("sparse"), &sparse).unwrap();
    let file = fs::OpenOptions::new().write(true).open(root.join("sparse")).unwrap();
    file.set_len(1_000_000).unwrap();
}

fn make(options: &[&str], size_kib: u32) -> (Scratch, Image) {
    let name: String = options.concat().chars().filter(char::is_ascii_alphanumeric).collect();
    let scratch = Scratch::new(&format!("{name}-{:?}", std::thread::current().id()));
    let (tree, image) = (scratch.0.join("tree"), scratch.0.join("image"));
    fs::create_dir(&tree).unwrap();
    build_tree(&tree);
    let output = Command::new("/sbin/mke2fs")
        .args(["-q", "-F"])
        .args(options)
        .arg("-d")
        .arg(&tree)
        .arg(&image)
        .arg(format!("{size_kib}k"))
        .output()
        .expect("mke2fs; install e2fsprogs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let bytes = fs::read(&image).unwrap();
    (scratch, Image(bytes))
}

/// The result of a walk: path to mode, links, and content or target.
type Tree = BTreeMap<PathBuf, (u32, u64, Vec<u8>)>;

fn walk_host(root: &Path, at: &Path, found: &mut Tree) {
    for entry in fs::read_dir(root.join(at)).unwrap() {
        let entry = entry.unwrap();
        let path = at.join(entry.file_name());
        let meta = entry.path().symlink_metadata().unwrap();
        let bytes = if meta.is_dir() {
            walk_host(root, &path, found);
            Vec::new()
        } else if meta.is_symlink() {
            fs::read_link(entry.path()).unwrap().into_os_string().into_encoded_bytes()
        } else {
            fs::read(entry.path()).unwrap()
        };
        found.insert(path, (meta.mode(), meta.nlink(), bytes));
    }
}

/// A walk over a volume, of at most `limit` names.
struct Walk<'a> {
    volume: &'a Volume,
    image: &'a Image,
    limit: u32,
    /// Whether a bad inode is skipped.
    lenient: bool,
    found: Tree,
}

impl Walk<'_> {
    fn directory(&mut self, number: u32, at: &Path) -> Result<()> {
        let directory = self.volume.inode(self.image, number)?;
        let map = self.volume.map(self.image, &directory)?;
        let mut block = vec![0; self.volume.block_size()];
        let blocks = (directory.size as usize).div_ceil(block.len()).min(1000);
        for index in 0..blocks {
            let offset = (index * block.len()) as u64;
            map.read(self.volume, self.image, offset, &mut block)?;
            self.volume.check_directory(&directory, &block)?;
            for entry in self.volume.entries(&block, 0) {
                let entry = entry?;
                let deep = at.components().count() > 20;
                if entry.name == b"." || entry.name == b".." || self.limit == 0 || deep {
                    continue;
                }
                self.limit -= 1;
                let path = at.join(String::from_utf8_lossy(entry.name).into_owned());
                match self.file(entry.inode, path) {
                    Err(error) if !self.lenient => return Err(error),
                    _ => {}
                }
            }
        }
        Ok(())
    }

    fn file(&mut self, number: u32, path: PathBuf) -> Result<()> {
        let inode = self.volume.inode(self.image, number)?;
        let mut bytes = Vec::new();
        match inode.mode & 0o170_000 {
            0o040_000 => self.directory(number, &path)?,
            0o120_000 => bytes = self.volume.link_target(self.image, &inode)?,
            0o100_000 => {
                bytes.resize(inode.size.min(2_000_000) as usize, 0);
                let map = self.volume.map(self.image, &inode)?;
                map.read(self.volume, self.image, 0, &mut bytes)?;
            }
            _ => {}
        }
        self.found.insert(path, (inode.mode.into(), inode.links.into(), bytes));
        Ok(())
    }
}

fn compare(options: &[&str], size_kib: u32) {
    let (scratch, image) = make(options, size_kib);
    let volume = Volume::open(&image, image.0.len() as u64).expect("a good volume");
    let mut expected = Tree::new();
    walk_host(&scratch.0.join("tree"), Path::new(""), &mut expected);
    let mut walk =
        Walk { volume: &volume, image: &image, limit: 10_000, lenient: false, found: Tree::new() };
    walk.directory(ROOT, Path::new("")).expect("a good tree");
    let mut found = walk.found;
    found.retain(|path, _| !path.starts_with("lost+found"));
    assert_eq!(expected.keys().collect::<Vec<_>>(), found.keys().collect::<Vec<_>>());
    for (path, (mode, links, bytes)) in &expected {
        let (found_mode, found_links, found_bytes) = &found[path];
        assert_eq!((mode, links), (found_mode, found_links), "{path:?}");
        assert!(bytes == found_bytes, "content of {path:?} differs");
    }
}

/// The blocks that `df` shows as the size: mke2fs counts what the file system takes in the same
/// way, and keeps the number in the superblock (`s_overhead_clusters`).
fn assert_size(image: &Image, volume: &Volume, context: &str) {
    let word = |at: usize| u32::from_le_bytes(image.0[at..at + 4].try_into().unwrap());
    let (blocks, overhead) = (word(1024 + 0x4), word(1024 + 0x248));
    assert_ne!(overhead, 0, "{context}");
    assert_eq!(volume.statistics().blocks, u64::from(blocks - overhead), "{context}");
}

#[test]
fn what_the_file_system_takes_is_no_size() {
    let kinds: [(&[&str], u32); 9] = [
        (&["-t", "ext4"], 16_384),
        (&["-t", "ext4", "-b", "1024", "-g", "1024"], 16_384),
        (&["-t", "ext4", "-b", "1024", "-g", "256", "-O", "meta_bg,^resize_inode"], 32_768),
        (&["-t", "ext4", "-b", "1024", "-g", "256", "-O", "^sparse_super,^resize_inode"], 32_768),
        (&["-t", "ext4", "-b", "1024", "-g", "256", "-O", "sparse_super2,^resize_inode"], 32_768),
        (&["-t", "ext4", "-O", "^has_journal"], 200_000),
        (&["-t", "ext4", "-O", "^64bit"], 200_000),
        (&["-t", "ext2"], 16_384),
        (&["-t", "ext3"], 300_000),
    ];
    for (options, size) in kinds {
        let (_scratch, image) = make(options, size);
        let volume = Volume::open(&image, image.0.len() as u64).expect("a good volume");
        assert_size(&image, &volume, &options.join(" "));
    }
}

#[test]
fn an_ext4_volume_as_made_by_default() {
    compare(&["-t", "ext4"], 16_384);
}

#[test]
fn small_blocks_and_many_groups() {
    compare(&["-t", "ext4", "-b", "1024", "-g", "1024"], 16_384);
}

#[test]
fn groups_with_their_own_descriptors() {
    compare(&["-t", "ext4", "-b", "1024", "-g", "256", "-O", "meta_bg,^resize_inode"], 32_768);
}

#[test]
fn narrow_descriptors_without_checksums() {
    compare(&["-t", "ext4", "-O", "^64bit,^metadata_csum", "-I", "128"], 16_384);
}

#[test]
fn descriptors_with_the_old_checksum() {
    compare(&["-t", "ext4", "-O", "^64bit,^metadata_csum,uninit_bg"], 16_384);
}

#[test]
fn ext2_with_indirect_blocks() {
    compare(&["-t", "ext2", "-b", "1024"], 16_384);
}

#[test]
fn ext3_with_indirect_blocks() {
    compare(&["-t", "ext3"], 16_384);
}

#[test]
fn a_seed_of_its_own_for_checksums() {
    compare(&["-t", "ext4", "-O", "metadata_csum_seed"], 16_384);
}

#[test]
fn inode_fields_are_those_of_the_host() {
    let (scratch, image) = make(&["-t", "ext4", "-b", "4096"], 16_384);
    let volume = Volume::open(&image, image.0.len() as u64).unwrap();
    let meta = scratch.0.join("tree/small").metadata().unwrap();
    let root = volume.inode(&image, ROOT).unwrap();
    let mut block = vec![0; volume.block_size()];
    volume.map(&image, &root).unwrap().read(&volume, &image, 0, &mut block).unwrap();
    let mut entries = volume.entries(&block, 0).map(Result::unwrap);
    let entry = entries.find(|entry| entry.name == b"small").unwrap();
    assert_eq!(entry.kind, EntryKind::Regular);
    let inode = volume.inode(&image, entry.inode).unwrap();
    assert_eq!((inode.uid, inode.gid, inode.size), (meta.uid(), meta.gid(), 100));
    assert_eq!(inode.modified.seconds, meta.mtime());
    assert_eq!(inode.sectors, 8);
}

/// Attributes behind the fields, in a block, and (with `ea_inode`) in an inode of their own.
fn read_attributes(options: &[&str], length: usize) {
    let (scratch, _) = make(options, 16_384);
    let path = scratch.0.join("image");
    let long = content(4, length);
    fs::write(scratch.0.join("long"), &long).unwrap();
    let capability = scratch.0.join("capability");
    let bytes = [1, 0, 0, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    fs::write(&capability, bytes).unwrap();
    for request in [
        "ea_set /small user.a b".to_owned(),
        format!("ea_set -f {} /small user.long", scratch.0.join("long").display()),
        format!("ea_set -f {} /small security.capability", capability.display()),
        "ea_set /small trusted.empty \"\"".to_owned(),
        "ea_set /usr/lib user.folder yes".to_owned(),
    ] {
        let _ = debugfs(&path, &request);
    }
    let image = Image(fs::read(&path).unwrap());
    let volume = Volume::open(&image, image.0.len() as u64).unwrap();
    let number = |file: &str| {
        let shown = debugfs(&path, &format!("stat {file}"));
        shown.split_whitespace().nth(1).unwrap().parse().unwrap()
    };
    let small = volume.inode(&image, number("/small")).unwrap();
    assert!(small.has_attributes());
    let names = volume.attributes(&image, &small).unwrap();
    let mut names: Vec<_> =
        names.split(|&byte| byte == 0).filter(|name| !name.is_empty()).collect();
    names.sort_unstable();
    let expected = ["security.capability", "trusted.empty", "user.a", "user.long"];
    assert_eq!(names, expected.map(str::as_bytes));
    let value = |name: &str| volume.attribute(&image, &small, name.as_bytes()).unwrap();
    assert_eq!(value("user.a"), Some(b"b".to_vec()));
    assert_eq!(value("user.long"), Some(long));
    assert_eq!(value("security.capability"), Some(bytes.to_vec()));
    assert_eq!(value("trusted.empty"), Some(vec![]));
    for absent in ["user.", "user", "user.b", "", "security.capabilit", "system.posix_acl_access"] {
        assert_eq!(value(absent), None, "{absent}");
    }
    let folder = volume.inode(&image, number("/usr/lib")).unwrap();
    assert_eq!(volume.attribute(&image, &folder, b"user.folder"), Ok(Some(b"yes".to_vec())));
    let root = volume.inode(&image, ROOT).unwrap();
    assert!(!root.has_attributes());
    assert_eq!(volume.attributes(&image, &root), Ok(vec![]));
}

#[test]
fn extended_attributes_are_read() {
    read_attributes(&["-t", "ext4"], 700);
    read_attributes(&["-t", "ext4", "-b", "1024", "-O", "ea_inode"], 1024);
    read_attributes(&["-t", "ext4", "-O", "^metadata_csum", "-I", "128", "-b", "4096"], 3000);
}

#[test]
fn what_is_no_volume_is_refused() {
    assert_eq!(Volume::open(&Image(vec![]), 0).err(), Some(Error::NotExt4));
    assert_eq!(Volume::open(&Image(vec![0; 4096]), 4096).err(), Some(Error::NotExt4));
    let (_scratch, mut image) = make(&["-t", "ext4", "-L", "half"], 16_384);
    let half = image.0.len() / 2;
    image.0.truncate(half);
    assert!(matches!(Volume::open(&image, half as u64).err(), Some(Error::Corrupt(_))));
}

#[test]
fn a_changed_byte_of_metadata_is_a_wrong_checksum() {
    let (_scratch, mut image) = make(&["-t", "ext4", "-L", "change"], 16_384);
    image.0[1024 + 0x78] ^= 1;
    let error = Volume::open(&image, image.0.len() as u64).err();
    assert_eq!(error, Some(Error::Checksum("the superblock")));
}

/// Returns the answer of `debugfs` (also of e2fsprogs) to one request.
fn debugfs(image: &Path, request: &str) -> String {
    let output = Command::new("/sbin/debugfs")
        .args(["-w", "-R", request])
        .arg(image)
        .output()
        .expect("debugfs; install e2fsprogs");
    String::from_utf8(output.stdout).unwrap()
}

/// The content of a file in the root directory, found by its name.
fn read_file(image: &Image, name: &str) -> Result<Vec<u8>> {
    let volume = Volume::open(image, image.0.len() as u64)?;
    let root = volume.inode(image, ROOT)?;
    let mut block = vec![0; volume.block_size()];
    volume.map(image, &root)?.read(&volume, image, 0, &mut block)?;
    let entries: Result<Vec<_>> = volume.entries(&block, 0).collect();
    let entry = entries?.into_iter().find(|entry| entry.name == name.as_bytes());
    let inode = volume.inode(image, entry.ok_or(Error::Corrupt("no such name"))?.inode)?;
    let mut bytes = vec![0; inode.size as usize];
    volume.map(image, &inode)?.read(&volume, image, 0, &mut bytes)?;
    Ok(bytes)
}

/// Writes transactions to the journal of a fresh volume: each is a `jw` request of debugfs, where
/// `$small` and `$root` stand for the blocks of the file `small` and of the root directory, and
/// `@A` to `@Z` for files with a block of that letter, `@root` with the root directory's block in
/// which `small` is called `SMALL`.
fn with_journal(options: &[&str], open: &str, transactions: &[&str]) -> (Scratch, Image) {
    let (scratch, image) = make(options, 16_384);
    let path = scratch.0.join("image");
    let blocks = |name: &str| debugfs(&path, &format!("blocks {name}")).trim().to_owned();
    let (small, root) = (blocks("/small"), blocks("/"));
    let root_at = root.parse::<usize>().unwrap() * 1024;
    let mut directory = image.0[root_at..root_at + 1024].to_vec();
    let name = directory.windows(5).position(|bytes| bytes == b"small").unwrap();
    directory[name..name + 5].copy_from_slice(b"SMALL");
    fs::write(scratch.0.join("root"), directory).unwrap();
    for letter in b'A'..=b'Z' {
        let file = scratch.0.join(char::from(letter).to_string());
        fs::write(file, vec![letter; 1024]).unwrap();
    }
    let mut script = format!("{open}\n");
    for transaction in transactions {
        let request = transaction
            .replace("$small", &small)
            .replace("$root", &root)
            .replace('@', &format!("{}/", scratch.0.display()));
        script += &format!("{request}\n");
    }
    script += "jc\n";
    fs::write(scratch.0.join("script"), script).unwrap();
    let output = Command::new("/sbin/debugfs")
        .args(["-w", "-f"])
        .arg(scratch.0.join("script"))
        .arg(&path)
        .output()
        .expect("debugfs; install e2fsprogs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let image = Image(fs::read(&path).unwrap());
    assert_ne!(image.0[1024 + 0x60] & 4, 0, "the volume needs its journal");
    (scratch, image)
}

const PLAIN: &[&str] = &["-t", "ext4", "-b", "1024", "-O", "^metadata_csum"];

#[test]
fn newer_blocks_come_from_the_journal() {
    let (_scratch, image) =
        with_journal(PLAIN, "jo", &["jw -b $small @A", "jw -b $root @root", "jw -b $small @B"]);
    assert_eq!(read_file(&image, "SMALL"), Ok(vec![b'B'; 100]));
    assert_eq!(read_file(&image, "small"), Err(Error::Corrupt("no such name")));
}

#[test]
fn revoked_blocks_do_not_come_from_the_journal() {
    let (scratch, image) =
        with_journal(PLAIN, "jo", &["jw -b $small @A", "jw -r $small", "jw -b $root @root"]);
    let expected = fs::read(scratch.0.join("tree/small")).unwrap();
    assert_eq!(read_file(&image, "SMALL"), Ok(expected));
    let (_scratch, image) =
        with_journal(PLAIN, "jo", &["jw -r $small", "jw -b $small @C", "jw -b $root @root"]);
    assert_eq!(read_file(&image, "SMALL"), Ok(vec![b'C'; 100]));
}

#[test]
fn journals_with_checksums_are_read() {
    for version in ["jo -c -v 2", "jo -c -v 3"] {
        let transactions = &["jw -b $small @A", "jw -b $root @root", "jw -b $small @Z"];
        let (_scratch, image) = with_journal(PLAIN, version, transactions);
        assert_eq!(read_file(&image, "SMALL"), Ok(vec![b'Z'; 100]), "{version}");
    }
}

#[test]
fn journals_are_replayed_where_the_volume_is_written() {
    let transactions: &[&[&str]] = &[
        &["jw -b $small @A", "jw -b $root @root", "jw -b $small @Z"],
        &["jw -b $small @A", "jw -r $small", "jw -b $root @root", "jw -b $small @Z"],
    ];
    for version in ["jo", "jo -c -v 2", "jo -c -v 3"] {
        for transactions in transactions {
            let (_scratch, image) = with_journal(PLAIN, version, transactions);
            let disk = Disk::new(image.0);
            let mut writer = Writer::open(&disk, disk.size(), now(1)).expect(version);
            writer.unmount(&disk, now(2)).expect(version);
            let bytes = disk.bytes.into_inner();
            let scratch = common::Scratch::new("replayed");
            assert_clean(&scratch, &bytes, version);
            let image = Image(bytes);
            assert_eq!(image.0[1024 + 0x60] & 4, 0, "the journal is not needed any more");
            assert_eq!(read_file(&image, "SMALL"), Ok(vec![b'Z'; 100]), "{version}");
        }
    }
}

#[test]
fn damaged_journals_give_errors() {
    let (scratch, image) =
        with_journal(PLAIN, "jo", &["jw -b $small @A", "jw -b $root @root", "jw -r $small"]);
    let journal = debugfs(&scratch.0.join("image"), "blocks <8>");
    let first: usize = journal.split_whitespace().next().unwrap().parse().unwrap();
    let (start, good) = (first * 1024, image.0);
    let byte = prop_oneof![any::<u8>(), Just(0), Just(255)];
    let damage = proptest::collection::vec((0..12 * 1024usize, byte), 1..60);
    let config = Config { cases: 200, failure_persistence: None, ..Config::default() };
    let walk = |damage: Vec<(usize, u8)>| {
        let mut bytes = good.clone();
        for (at, byte) in damage {
            bytes[start + at] = byte;
        }
        let _ = read_file(&Image(bytes), "SMALL");
        Ok(())
    };
    TestRunner::new(config).run(&damage, walk).unwrap();
}

/// Damages metadata of a volume without checksums, so that the damage reaches the checks behind
/// them, and walks everything.
fn survive_damage(options: &[&str], cases: u32) {
    let (_scratch, image) = make(options, 4096);
    let good = image.0;
    // mke2fs puts superblock, groups and inodes into the first 512 KiB.
    let place = prop_oneof![3 => 0..512 * 1024usize, 1 => 0..good.len()];
    let byte = prop_oneof![any::<u8>(), Just(0), Just(255)];
    let damage = proptest::collection::vec((place, byte), 1..200);
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    let walk = |damage: Vec<(usize, u8)>| {
        let mut bytes = good.clone();
        for (at, byte) in damage {
            bytes[at] = byte;
        }
        // Keep the magic number, or most cases end at once.
        bytes[1024 + 0x38..1024 + 0x3a].copy_from_slice(&[0x53, 0xef]);
        let image = Image(bytes);
        let Ok(volume) = Volume::open(&image, image.0.len() as u64) else { return Ok(()) };
        let mut walk =
            Walk { volume: &volume, image: &image, limit: 2000, lenient: true, found: Tree::new() };
        let _ = walk.directory(ROOT, Path::new(""));
        for number in 1..64 {
            if let Ok(inode) = volume.inode(&image, number) {
                let _ = volume.map(&image, &inode);
                let _ = volume.link_target(&image, &inode);
            }
        }
        Ok(())
    };
    TestRunner::new(config).run(&damage, walk).unwrap();
}

#[test]
fn damaged_ext4_volumes_give_errors() {
    survive_damage(&["-t", "ext4", "-O", "^metadata_csum", "-b", "1024"], 300);
}

#[test]
fn damaged_ext2_volumes_give_errors() {
    survive_damage(&["-t", "ext2", "-b", "1024"], 300);
}
