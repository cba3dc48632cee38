//! An NVDIMM as the disk that Linux executes from in place (`-o dax`).
//!
//! Linux maps pages of an NVDIMM into a program only if it has page structures for them, and QEMU's
//! NVDIMM comes as a raw namespace without them. So this creates a namespace whose structures are
//! in ordinary memory, as `ndctl create-namespace --mode fsdax --map mem` does; the disk then
//! begins 2 MiB further on, where the host has put the file system. Hayate needs none of this: it
//! has no such device.

use crate::Failure;
use hayate_job::Root;

/// The name prefix of such a disk's device.
const DEVICE: &str = "/dev/pmem";
/// The folder in which Linux shows the NVDIMM bus.
const BUS: &str = "/sys/bus/nd";

/// Makes the disk, if the root is on one.
pub fn prepare(root: &Root) -> Result<(), Failure> {
    match root {
        Root::Disk { device, .. } if device.starts_with(DEVICE) => with_page_structures(),
        _ => Ok(()),
    }
}

fn with_page_structures() -> Result<(), Failure> {
    // Linux probes the bus in the background; this waits for it.
    let _ = std::fs::read(format!("{BUS}/devices/ndbus0/wait_probe"));
    let (bind, unbind) = ("drivers/nd_pmem/bind", "drivers/nd_pmem/unbind");
    for (file, text) in [
        (unbind, "namespace0.0"),
        ("devices/pfn0.0/mode", "ram"),
        // For large pages: the disk begins at a multiple of their size.
        ("devices/pfn0.0/align", "2097152"),
        // The same in every run.
        ("devices/pfn0.0/uuid", "68617961-7465-4000-8000-000000000003"),
        ("devices/pfn0.0/namespace", "namespace0.0"),
        (bind, "pfn0.0"),
    ] {
        let path = format!("{BUS}/{file}");
        std::fs::write(&path, text).map_err(|error| {
            Failure::new(format!(
                "cannot write {path}, to give the NVDIMM page structures: {error}"
            ))
        })?;
    }
    Ok(())
}
