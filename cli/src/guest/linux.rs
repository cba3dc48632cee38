//! Debian's Linux kernel, to boot in the same machine as Hayate: for testing this command's own
//! side, and for comparing the two.

use crate::image::debian;
use crate::{paths, tool};
use anyhow::{Context, Result};
use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// A kernel of Debian's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flavour {
    /// The small one for virtual machines.
    Cloud,
    /// The one for any machine. It has 9P, by which the host shares folders.
    Generic,
}

impl Flavour {
    /// Its package, and the folder that this is unpacked in.
    fn place(self) -> (&'static str, &'static str) {
        match self {
            Flavour::Cloud => ("linux-image-cloud-amd64", "linux"),
            Flavour::Generic => ("linux-image-amd64", "linux-generic"),
        }
    }
}

/// The drivers for the machine and the root file system that this kernel has as modules. The first
/// makes ext4's checksums by the processor's instruction, as Hayate does; it does not load where
/// the processor has none.
const NEEDED: [&str; 8] = [
    "crc32c_intel",
    "virtio_pci",
    "virtio_mmio",
    "virtio_blk",
    "virtio_console",
    "ext4",
    "overlay",
    "virtio_rng",
];

/// Further modules for a disk on an NVDIMM.
const NVDIMM: [&str; 2] = ["nfit", "nd_pmem"];

/// Further modules for a network device.
const NETWORK: [&str; 1] = ["virtio_net"];

/// Further modules for folders of the host; a kernel without them has no 9P.
const SHARES: [&str; 2] = ["9pnet_virtio", "9p"];

/// Parts of the names of these modules and their dependencies: only those are unpacked.
const NEEDED_OR_BELOW: [&str; 14] = [
    "virtio", "ext4", "overlay", "jbd2", "mbcache", "crc", "failover", "rng", "nfit", "nvdimm",
    "nd_", "9p", "netfs", "fscache",
];

/// A kernel and its drivers.
pub struct Linux {
    /// The kernel.
    pub kernel: PathBuf,
    /// The drivers, each after those it depends on.
    pub modules: Vec<PathBuf>,
    /// Further drivers for an NVDIMM, in the same order.
    pub nvdimm: Vec<PathBuf>,
    /// Further drivers for a network device, in the same order.
    pub network: Vec<PathBuf>,
    /// Further drivers for folders of the host, in the same order.
    pub shares: Vec<PathBuf>,
}

/// Returns the kernel, fetched if it is missing.
pub fn kernel(flavour: Flavour) -> Result<Linux> {
    let (name, folder) = flavour.place();
    // Its modules are unpacked in place: another command must not read a partial one.
    let _alone = paths::lock(folder)?;
    let folder = paths::build(folder)?;
    if find(&folder.join("boot"), "vmlinuz-").is_none() {
        for (package, file) in debian::fetch(&[name])? {
            if package.name.starts_with("linux-image-") {
                debian::unpack(&file, &folder)?;
            }
        }
    }
    let kernel = find(&folder.join("boot"), "vmlinuz-")
        .with_context(|| format!("the package {name} has no kernel"))?;
    let modules = ["lib/modules", "usr/lib/modules"]
        .iter()
        .find_map(|path| find(&folder.join(path), ""))
        .with_context(|| format!("the package {name} has no modules"))?;
    let files = files(&modules)?;
    let modules = order(&NEEDED, &files)?;
    let further = |names: &[&str]| -> Result<Vec<PathBuf>> {
        let mut further = order(names, &files)?;
        further.retain(|module| !modules.contains(module));
        Ok(further)
    };
    let (nvdimm, network, shares) = (further(&NVDIMM)?, further(&NETWORK)?, further(&SHARES)?);
    Ok(Linux { kernel, modules, nvdimm, network, shares })
}

fn find(folder: &Path, start: &str) -> Option<PathBuf> {
    let mut found: Vec<PathBuf> = folder
        .read_dir()
        .ok()?
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .filter(|path| {
            path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(start))
        })
        .collect();
    found.sort();
    found.pop()
}

/// Returns the modules `names`, each after its dependencies. The package has no `modules.dep`,
/// which depmod makes at installation; but each module names its dependencies in itself
/// (`depends=`).
fn order(names: &[&str], files: &HashMap<String, PathBuf>) -> Result<Vec<PathBuf>> {
    let mut ordered = Vec::new();
    for name in names {
        add(name, files, &mut ordered)?;
    }
    Ok(ordered)
}

/// All modules by their names.
fn files(folder: &Path) -> Result<HashMap<String, PathBuf>> {
    let mut files = HashMap::new();
    collect(folder, &mut files)?;
    Ok(files)
}

fn add(name: &str, files: &HashMap<String, PathBuf>, ordered: &mut Vec<PathBuf>) -> Result<()> {
    // A module that is missing is built in.
    let Some(path) = files.get(name) else { return Ok(()) };
    if ordered.contains(path) {
        return Ok(());
    }
    let content = std::fs::read(path)?;
    for record in content.split(|&byte| byte == 0) {
        let list =
            record.strip_prefix(b"depends=").or_else(|| record.strip_prefix(b"softdep=pre: "));
        for need in list.unwrap_or_default().split(|&byte| byte == b',' || byte == b' ') {
            let need = String::from_utf8_lossy(need).replace('-', "_");
            // ext4 needs any crc32c; only the generic one is sure to load.
            add(if need == "crc32c" { "crc32c_generic" } else { &need }, files, ordered)?;
        }
    }
    ordered.push(path.clone());
    Ok(())
}

/// Unpacks a module that the package has compressed, because init does not unpack.
fn unpacked(path: &Path) -> Result<PathBuf> {
    let name = path.file_stem().unwrap_or_default();
    let needed = NEEDED_OR_BELOW.iter().any(|part| name.to_string_lossy().contains(part));
    let program = match path.extension().and_then(|end| end.to_str()) {
        Some("xz") if needed => "xz",
        Some("zst") if needed => "zstd",
        _ => return Ok(path.to_path_buf()),
    };
    let plain = path.with_extension("");
    if !plain.exists() {
        let output = tool::run(tool::command(program)?.arg("-dc").arg(path))?;
        std::fs::write(&plain, output.stdout)?;
    }
    Ok(plain)
}

fn collect(folder: &Path, files: &mut HashMap<String, PathBuf>) -> Result<()> {
    for entry in folder.read_dir()? {
        let path = entry?.path();
        if path.is_dir() && !path.is_symlink() {
            collect(&path, files)?;
        } else if let Some(name) = path.file_name().map(|name| name.to_string_lossy().into_owned())
            && let Some(at) = name.find(".ko")
        {
            let plain = unpacked(&path)?;
            files.insert(name[..at].replace('-', "_"), plain);
        }
    }
    Ok(())
}
