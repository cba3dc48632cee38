//! A machine that was restored from a snapshot becomes another one than its twins.
//!
//! All of them resume at the same instruction of this program, with no other program beside it. The
//! host's first message to each says who it is ([`hayate_job::Fresh`]), and nothing is started
//! before it is carried out. The order matters: the random generator comes first, because all that
//! follows may draw from it.
//!
//! Where code is translated in software, every line that runs here costs each clone its
//! translation, which takes a thousand times as long as the line. So whatever can be done before
//! the machine is saved is [`Prepared`] then: files are open, and their texts are written up to
//! what sets a clone apart. No program runs between that and the first message.

use crate::Failure;
use crate::mounts;
use crate::network::{self, Place};
use hayate_job::{Fresh, Job};
use rustix::time::{ClockId, Timespec, clock_settime};
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// The kernel's part: see `kernel/src/fs/proc/fresh.rs`.
const KERNEL: &str = "/proc/hayate/fresh";
/// machine-id(5).
const MACHINE_ID: &str = "/etc/machine-id";
/// Bytes of a machine-id.
const ID: usize = 16;

/// What a machine that will be saved has ready for its clones.
pub struct Prepared {
    /// [`KERNEL`], to be written once.
    kernel: File,
    /// [`MACHINE_ID`], with a number of zeroes, if the root has one and can be written.
    machine_id: Option<File>,
    network: network::Prepared,
}

/// Prepares it. `job` is the job of the machine that will be saved.
///
/// # Errors
/// The machine must not be saved: its clones would be twins.
pub fn prepare(job: &Job) -> Result<Prepared, Failure> {
    let kernel = File::options().write(true).open(KERNEL).map_err(|error| {
        Failure::new(format!("{KERNEL}: {error}; snapshots need Hayate's own kernel"))
    })?;
    let has_files = Path::new("/etc").is_dir();
    let machine_id =
        if has_files { network::replace(MACHINE_ID, &id_text(&[0; ID])) } else { None };
    let network = network::prepare(job.network.as_ref(), &job.hostname)?;
    Ok(Prepared { kernel, machine_id, network })
}

/// Carries it out. `job` is the job of the snapshot, and becomes that of this machine.
///
/// # Errors
/// The machine must not be used: it is not another one.
pub fn take(fresh: Fresh, job: &mut Job, prepared: Prepared) -> Result<(), Failure> {
    let failed = |what: &str, error: &dyn std::fmt::Display| {
        Failure::new(format!("cannot {what} of a restored machine: {error}"))
    };
    let mut kernel = prepared.kernel;
    kernel
        .write_all(&hexadecimal(&fresh.seed))
        .map_err(|error| failed("renew the random numbers", &error))?;
    let now = Timespec {
        tv_sec: (fresh.time / 1_000_000_000) as i64,
        tv_nsec: (fresh.time % 1_000_000_000) as i64,
    };
    clock_settime(ClockId::Realtime, now).map_err(|error| failed("set the clock", &error))?;
    let _ = rustix::system::sethostname(fresh.hostname.as_bytes());
    let network = Place { hostname: &fresh.hostname, hardware: fresh.hardware };
    match fresh.job {
        None => {
            network::rename(&prepared.network, &network)?;
            job.arguments.clear();
        }
        Some(own) => {
            network::renew(&prepared.network, job.network.as_ref(), own.network.clone(), &network)?;
            let old = std::mem::replace(job, own);
            (job.root, job.mounts, job.streams) = (old.root, old.mounts, old.streams);
            mounts::volumes(&job.volumes)?;
        }
    }
    if let Some(file) = &prepared.machine_id {
        let mut id = [0; ID];
        rustix::rand::getrandom(&mut id, rustix::rand::GetRandomFlags::empty())
            .map_err(|error| failed("draw the number", &error))?;
        file.write_all_at(&id_text(&id), 0).map_err(|error| failed("write the number", &error))?;
    }
    job.hostname = fresh.hostname;
    Ok(())
}

/// The text of a machine-id file.
fn id_text(id: &[u8; ID]) -> Vec<u8> {
    let mut text = hexadecimal(id);
    text.push(b'\n');
    text
}

fn hexadecimal(bytes: &[u8]) -> Vec<u8> {
    let mut text = Vec::with_capacity(2 * bytes.len() + 1);
    for byte in bytes {
        for digit in [byte >> 4, byte & 15] {
            text.push(digit + if digit < 10 { b'0' } else { b'a' - 10 });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_have_two_digits() {
        assert_eq!(hexadecimal(&[0, 0x0f, 0xa0, 0xff]), b"000fa0ff");
        assert_eq!(id_text(&[0x9a; ID]).len(), 33);
    }
}
