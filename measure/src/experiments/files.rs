//! Files: reading past the page cache, the size of the page cache, names, durability, contention,
//! and network file systems.

use super::syscalls::c_path;
use crate::experiment::{Experiment, Setting};
use crate::idle::Stopwatch;
use crate::sampler::{Sampler, Skip};
use crate::sys::memory::Mapping;
use crate::sys::process::Child;
use crate::sys::raw::{self, checked, pread};
use measure_data::units::size;
use std::ffi::CString;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

const BLOCK: usize = 4096;
const M: u64 = 1 << 20;
/// Blocks read for one sample.
const PER_SAMPLE: u32 = 16;

/// A path that is removed when dropped.
#[derive(Debug)]
pub struct Removed(PathBuf);

impl AsRef<Path> for Removed {
    fn as_ref(&self) -> &Path {
        &self.0
    }
}

impl Drop for Removed {
    fn drop(&mut self) {
        // In any case the run's directory is removed at the end.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// A fresh file of `bytes` in the run's directory, written and still cached.
pub fn temporary_file(s: &Setting, name: &str, bytes: usize) -> Result<(File, Removed), Skip> {
    let path = s.directory.join(name);
    let what = format!("creating {}", path.display());
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .open(&path)
        .map_err(Skip::because(&what))?;
    let removed = Removed(path);
    let chunk = vec![0x5a; bytes.min(1 << 20)];
    let mut left = bytes;
    while left > 0 {
        let part = left.min(chunk.len());
        file.write_all(&chunk[..part]).map_err(Skip::because(&what))?;
        left -= part;
    }
    Ok((file, removed))
}

/// Drops the pages of `file` from the page cache, or says why that is impossible.
pub fn drop_cached(file: &File) -> Result<(), Skip> {
    if in_memory(file) {
        return Err(Skip(
            "the directory is on a file system in memory; use --dir with one on a disk".into(),
        ));
    }
    file.sync_all().map_err(Skip::because("fsync"))?;
    // SAFETY: takes numbers only.
    match unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) } {
        0 => {}
        error => {
            return Err(Skip(format!(
                "dropping a file from the cache: {}",
                std::io::Error::from_raw_os_error(error)
            )));
        }
    }
    // The kernel may accept the advice and do nothing: the name of an overlay does not show that
    // its upper layer is in memory. If the kernel lacks mincore, the advice is trusted.
    let bytes = file.metadata().map_or(0, |about| about.len() as usize);
    if bytes == 0 {
        return Ok(());
    }
    let mapped = Mapping::file(file.as_raw_fd(), bytes).map_err(Skip::because("mmap"))?;
    match mapped.resident() {
        Ok(pages) if pages > bytes / BLOCK / 2 => Err(Skip(
            "files always stay in memory here; use --dir with a file system on a disk".into(),
        )),
        _ => Ok(()),
    }
}

/// Whether a file lies on tmpfs or ramfs (the magic numbers of statfs(2)).
fn in_memory(file: &File) -> bool {
    // SAFETY: statfs is plain data, filled in by the kernel.
    let mut about: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: writes one statfs.
    let asked = unsafe { libc::fstatfs(file.as_raw_fd(), &mut about) } == 0;
    asked && [0x0102_1994, 0x8584_58f6].contains(&(about.f_type as i64))
}

/// Returns the file of `bytes` for reading past the page cache, made once in a run.
fn direct_file(s: &Setting, bytes: u64) -> Result<File, Skip> {
    let path = s.directory.join(format!("direct-{bytes}"));
    if !path.exists() {
        let (file, removed) = temporary_file(s, "direct-half", bytes as usize)?;
        drop_cached(&file)?;
        std::fs::rename(removed.as_ref(), &path).map_err(Skip::because("rename"))?;
    }
    OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_DIRECT)
        .open(&path)
        .map_err(Skip::because("opening with O_DIRECT (try --dir with a disk's file system)"))
}

/// Reads [`BLOCK`] or more at `offset`, completely.
fn read_block(file: &File, buffer: &mut [u8], offset: u64) -> Result<(), Skip> {
    match checked(pread(file.as_raw_fd(), buffer, offset)) {
        Ok(n) if n == buffer.len() => Ok(()),
        Ok(_) => Err(Skip("a read ended early".into())),
        Err(error) => Err(Skip(format!("reading with O_DIRECT: {error}"))),
    }
}

fn blocks(s: &Setting, m: &mut Sampler, bytes: u64, random: bool) -> Result<(), Skip> {
    let file = direct_file(s, bytes)?;
    let mut page = Mapping::shared(BLOCK).map_err(Skip::because("mmap"))?;
    let count = bytes / BLOCK as u64;
    let mut order = fastrand::Rng::with_seed(11);
    let mut at = 0;
    let mut watch = Stopwatch::new(m.clock(), s.without_idle)?;
    m.collect(|| {
        watch.time(|| {
            (0..PER_SAMPLE).try_for_each(|_| {
                at = if random { order.u64(..count) } else { (at + 1) % count };
                read_block(&file, page.bytes(), at * BLOCK as u64)
            })
        })
    })
}

/// Makes one random 4 KB read past the page cache: the primitive of the device.
pub fn device_read(s: &Setting, m: &mut Sampler) -> Result<(), Skip> {
    let file = direct_file(s, 4 * M)?;
    let mut page = Mapping::shared(BLOCK).map_err(Skip::because("mmap"))?;
    let mut order = fastrand::Rng::with_seed(12);
    let mut watch = Stopwatch::new(m.clock(), s.without_idle)?;
    m.collect(|| {
        let at = order.u64(..1024) * BLOCK as u64;
        watch.time(|| read_block(&file, page.bytes(), at))
    })
}

/// Makes a write of 4 KB and fdatasync(2): the primitive of durability.
pub fn device_flush(s: &Setting, m: &mut Sampler) -> Result<(), Skip> {
    let (file, _path) = temporary_file(s, "flush", BLOCK)?;
    if in_memory(&file) {
        return Err(Skip("the directory is in memory".into()));
    }
    let block = [1; BLOCK];
    let mut watch = Stopwatch::new(m.clock(), s.without_idle)?;
    m.collect(|| {
        watch.time(|| {
            checked(raw::pwrite(file.as_raw_fd(), &block, 0)).map_err(Skip::because("write"))?;
            file.sync_data().map_err(Skip::because("fdatasync"))
        })
    })
}

/// The experiments of this file.
pub fn experiments(setting: &Setting) -> Vec<Experiment> {
    let mut all = Vec::new();
    for megabytes in [1, 4, 16, 64, 128] {
        if megabytes * M > setting.file_limit {
            continue;
        }
        for (word, random) in [("sequential", false), ("random", true)] {
            all.push(block_reads(megabytes, word, random));
        }
    }
    all.extend(names());
    all.push(made_durable());
    all.push(remote());
    all.extend((1..=10).map(contention));
    all.extend(cache_size(setting));
    all
}

/// Reads past the cache, of a file of that size.
fn block_reads(megabytes: u64, word: &str, random: bool) -> Experiment {
    let bytes = megabytes * M;
    Experiment::time(
        format!("file/read-{word}/{megabytes}M"),
        format!("{word} read of 4 KB of a file of {megabytes} MB, past the cache"),
        move |s, m| blocks(s, m, bytes, random),
    )
    .per(PER_SAMPLE)
    .method("16 reads of 4 KB with O_DIRECT; the time is that of one")
    .at(format!("{word} read past the cache"), bytes as f64, "bytes")
    .rounds_at_most(5)
    .hardware(1.0, "device-read", "a block from the device")
    .software(3000.0, "instruction", "file system, request, sleep, switch")
}

/// Changes of names.
fn names() -> [Experiment; 3] {
    [
        name_experiment("create", "creating an empty file", 9000.0, |from, _| {
            let fd = checked(raw::open(from, libc::O_CREAT | libc::O_EXCL | libc::O_WRONLY))?;
            raw::close(fd);
            Ok(())
        }),
        name_experiment("rename", "renaming a file", 8000.0, |from, to| {
            checked(raw::rename(from, to)).map(drop)
        }),
        name_experiment("delete", "deleting an empty file", 8000.0, |_, to| {
            checked(raw::unlink(to)).map(drop)
        }),
    ]
}

fn made_durable() -> Experiment {
    Experiment::time("file/fsync", "4 KB written and made durable", |s, m| {
        let (file, _path) = temporary_file(s, "fsync", BLOCK)?;
        if in_memory(&file) {
            return Err(Skip("the directory is in memory; use --dir with a disk".into()));
        }
        let block = [1; BLOCK];
        let mut watch = Stopwatch::new(m.clock(), s.without_idle)?;
        m.collect(|| {
            watch.time(|| {
                checked(raw::pwrite(file.as_raw_fd(), &block, 0))
                    .map_err(Skip::because("write"))?;
                file.sync_all().map_err(Skip::because("fsync"))
            })
        })
    })
    .method("pwrite(2) of 4 KB over the same block of a file and fsync(2)")
    .rounds_at_most(5)
    .hardware(1.0, "device-flush", "the data written and flushed, as by fdatasync")
    .software(5000.0, "instruction", "times and journal")
}

/// Creates, renames and deletes a batch of names one after the other; only the named step is timed.
fn name_experiment(
    step: &'static str,
    title: &str,
    instructions: f64,
    operation: fn(&CString, &CString) -> std::io::Result<()>,
) -> Experiment {
    // Few files, and few samples: ext4 does not reuse an inode that was freed in the last minutes,
    // and examines all of those for each new file. With thousands of them, nothing else would be
    // measured.
    const FILES: usize = 16;
    Experiment::time(format!("file/{step}"), title, move |s, m| {
        let name = |what: &str, i: usize| c_path(&s.directory.join(format!("{what}-{i}")));
        let froms = (0..FILES).map(|i| name("from", i)).collect::<Result<Vec<_>, _>>()?;
        let tos = (0..FILES).map(|i| name("to", i)).collect::<Result<Vec<_>, _>>()?;
        let clock = m.clock();
        let result = m.collect(|| {
            for (from, to) in froms.iter().zip(&tos) {
                let made = match step {
                    "create" => continue,
                    // Rename the files of the last sample back.
                    "rename" if raw::rename(to, from) == 0 => continue,
                    "rename" => from,
                    _ => to,
                };
                let fd = checked(raw::open(made, libc::O_CREAT | libc::O_WRONLY))?;
                raw::close(fd);
            }
            let start = clock.start();
            for (from, to) in froms.iter().zip(&tos) {
                operation(from, to).map_err(Skip::because(step))?;
            }
            let ticks = clock.stop().saturating_sub(start);
            if step == "create" {
                for made in &froms {
                    raw::unlink(made);
                }
            }
            Ok(ticks)
        });
        for left in froms.iter().chain(&tos) {
            raw::unlink(left);
        }
        result
    })
    .per(FILES as u32)
    .method("16 files in one directory, one after the other; not made durable")
    .samples_at_most(4)
    .hardware(if step == "create" { 2.0 } else { 1.0 }, "trap", "into the kernel and back")
    .software(instructions, "instruction", "path walk, inode, directory, journal")
}

/// Measures one process's reads while `processes` read, each its own file.
fn contention(processes: usize) -> Experiment {
    const EACH: u64 = 4 * M;
    Experiment::time(
        format!("file/contention/{processes:02}"),
        format!("read of 4 KB past the cache by one of {processes}"),
        move |s, m| {
            let shared = Mapping::shared(BLOCK).map_err(Skip::because("shared memory"))?;
            let mut others = Vec::new();
            for i in 1..processes {
                let path = s.directory.join(format!("contention-{i}"));
                let (file, removed) = temporary_file(s, &format!("contention-{i}"), EACH as usize)?;
                drop_cached(&file)?;
                let file = OpenOptions::new()
                    .read(true)
                    .custom_flags(libc::O_DIRECT)
                    .open(&path)
                    .map_err(Skip::because("opening with O_DIRECT"))?;
                let reader = Child::start(|| {
                    // Spread over the processors, as independent programs would be.
                    let _ = crate::sys::pin(&s.cpus);
                    let Ok(mut page) = Mapping::shared(BLOCK) else { return 1 };
                    let mut order = fastrand::Rng::with_seed(i as u64);
                    while shared.word(0).load(Ordering::Relaxed) == 0 {
                        let block = order.u64(..EACH / BLOCK as u64);
                        if read_block(&file, page.bytes(), block * BLOCK as u64).is_err() {
                            return 1;
                        }
                    }
                    0
                })
                .map_err(Skip::because("fork"))?;
                others.push((reader, removed));
            }
            let result = blocks(s, m, EACH, true);
            shared.word(0).store(1, Ordering::Relaxed);
            result
        },
    )
    .per(PER_SAMPLE)
    .method("random reads of 4 KB with O_DIRECT by one process; the others do the same, each on its own file of 4 MB")
    .at("read under contention", processes as f64, "processes")
    .rounds_at_most(5)
    .hardware(processes as f64, "device-read", "the device serves one at a time")
    .software(3000.0, "instruction", "file system, request, sleep, switch")
}

/// Reads files of growing size again: the time per block jumps when they no longer fit.
fn cache_size(setting: &Setting) -> Vec<Experiment> {
    let sizes = std::iter::successors(Some(16 * M), |s| Some(s * 2));
    let sizes = sizes.take_while(|s| *s <= setting.file_limit);
    sizes
        .map(|bytes| {
            Experiment::time(
                format!("file/cache/{}M", bytes / M),
                format!("read of 4 KB, backwards, of a file of {} just read", size(bytes as f64)),
                move |s, m| read_backwards(s, m, bytes),
            )
            .per(256)
            .method("a file is read once and then again from its end; while it fits into the file cache a block costs a copy, and beyond that a read from the device. Raise --file-limit above the size of memory to find the end of the cache")
            .at("file cache", bytes as f64, "bytes")
            .rounds_at_most(5)
            .hardware(1.0, "trap", "into the kernel and back")
            .hardware(BLOCK as f64, "copy-byte-memory", "the block is copied")
            .software(900.0, "instruction", "file cache look-up")
        })
        .collect()
}

fn read_backwards(s: &Setting, m: &mut Sampler, bytes: u64) -> Result<(), Skip> {
    let (file, _path) = temporary_file(s, "cache-size", bytes as usize)?;
    let mut block = vec![0; BLOCK];
    for at in (0..bytes).step_by(BLOCK) {
        checked(pread(file.as_raw_fd(), &mut block, at)).map_err(Skip::because("read"))?;
    }
    let mut at = bytes;
    m.try_batch(256, || {
        at = if at < BLOCK as u64 * 2 { bytes } else { at } - BLOCK as u64;
        checked(pread(file.as_raw_fd(), &mut block, at)).map_err(Skip::because("read"))?;
        Ok(())
    })
}

/// A mounted network file system that can be written to: its type and directory.
fn network_mount() -> Option<(String, PathBuf)> {
    const KINDS: [&str; 8] =
        ["nfs", "nfs4", "cifs", "smb3", "9p", "ceph", "fuse.sshfs", "virtiofs"];
    let mounts = std::fs::read_to_string("/proc/self/mounts").ok()?;
    mounts.lines().find_map(|line| {
        let mut fields = line.split(' ');
        let (place, kind) = (fields.nth(1)?, fields.next()?);
        KINDS.contains(&kind).then(|| (kind.to_owned(), PathBuf::from(place.replace("\\040", " "))))
    })
}

fn remote() -> Experiment {
    Experiment::time("file/remote-read", "read of 4 KB from a network file system", |s, m| {
        let Some((kind, place)) = network_mount() else {
            return Err(Skip("no network file system is mounted here".into()));
        };
        let there = Setting {
            directory: place.join(format!(".measure-{}", std::process::id())),
            ..s.clone()
        };
        std::fs::create_dir(&there.directory)
            .map_err(Skip::because(&format!("writing to the {kind} at {}", place.display())))?;
        let result = temporary_file(&there, "remote", 4 * M as usize).and_then(|(file, _path)| {
            let mut block = vec![0; BLOCK];
            let mut order = fastrand::Rng::with_seed(13);
            let mut watch = Stopwatch::new(m.clock(), s.without_idle)?;
            m.collect(|| {
                drop_cached(&file)?;
                let at = order.u64(..1024) * BLOCK as u64;
                watch.time(|| {
                    let read = checked(pread(file.as_raw_fd(), &mut block, at));
                    read.map(drop).map_err(Skip::because("read"))
                })
            })
        });
        // Best effort on a server that may just have gone away.
        let _ = std::fs::remove_dir_all(&there.directory);
        result
    })
    .method("random reads of 4 KB from a file of 4 MB on the first mounted network file system, dropped from the cache before each")
    .rounds_at_most(5)
    .software(20_000.0, "instruction", "file system, network, sleep, switch; the wire is not predicted")
}
