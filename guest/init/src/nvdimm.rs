//! An NVDIMM as the disk that Linux executes from in place (`-o dax`).
//!
//! Linux maps pages of an NVDIMM into a program only where it has page structures for them, and QEMU's NVDIMM
//! comes as a raw namespace without. So one is made whose structures are in ordinary memory, as
//! `ndctl create-namespace --mode fsdax --map mem` does; the disk then begins 2 MiB further on, where the
//! host has put the file system. Nothing of it is for Hayate, which has no such device.

use crate::Failure;
use hayate_job::Root;

/// What the device of such a disk is called.
const DEVICE: &str = "/dev/pmem";
/// Where Linux shows what is on NVDIMMs.
const BUS: &str = "/sys/bus/nd";

/// Makes the disk, if the root is on one.
pub fn prepare(root: &Root) -> Result<(), Failure> {
    match root {
        Root::Disk { device, .. } if device.starts_with(DEVICE) => with_page_structures(),
        _ => Ok(()),
    }
}

fn with_page_structures() -> Result<(), Failure> {
    // What is found on the bus is looked at in the background.
    let _ = std::fs::read(format!("{BUS}/devices/ndbus0/wait_probe"));
    let (bind, unbind) = ("drivers/nd_pmem/bind", "drivers/nd_pmem/unbind");
    for (file, text) in [
        (unbind, "namespace0.0"),
        ("devices/pfn0.0/mode", "ram"),
        // Large pages: the disk begins at a multiple of one.
        ("devices/pfn0.0/align", "2097152"),
        // The same in every run.
        ("devices/pfn0.0/uuid", "68617961-7465-4000-8000-000000000003"),
        ("devices/pfn0.0/namespace", "namespace0.0"),
        (bind, "pfn0.0"),
    ] {
        let path = format!("{BUS}/{file}");
        std::fs::write(&path, text).map_err(|error| {
            Failure::new(format!("the NVDIMM gets no page structures: {path}: {error}"))
        })?;
    }
    Ok(())
}
