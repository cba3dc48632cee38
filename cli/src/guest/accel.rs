//! Whether KVM works on this machine.
//!
//! That `/dev/kvm` is there and can be opened says little: in nested or restricted machines the
//! first instruction of a guest may hang for ever. So a machine of a few instructions is run, in
//! a child that is killed after two seconds: a ROM whose reset vector writes to the exit device.
//! The verdict is kept until the next boot of the host.

use crate::arguments::Accel;
use crate::{place, tool};
use anyhow::{Context, Result};
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(2);

/// `mov al, 0x10; out 0xf4, al; hlt` at the reset vector, 16 bytes below the end of the ROM.
const RESET: [u8; 5] = [0xb0, 0x10, 0xe6, 0xf4, 0xf4];
/// What QEMU makes of that: not 1, with which it ends if it cannot start at all.
const WORKED: i32 = 0x10 << 1 | 1;

/// Whether to use KVM.
pub fn kvm(wish: Accel) -> Result<bool> {
    match wish {
        Accel::Kvm => Ok(true),
        Accel::Tcg => Ok(false),
        Accel::Auto => automatic(),
    }
}

fn automatic() -> Result<bool> {
    use rustix::fs::{Access, access};
    // Asked by permission, not by opening: on a broken host the opening may hang.
    if access("/dev/kvm", Access::READ_OK | Access::WRITE_OK).is_err() {
        return Ok(false);
    }
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let kept = place::build("stamps")?.join("kvm");
    if let Ok(text) = std::fs::read_to_string(&kept)
        && let Some((known, verdict)) = text.split_once(' ')
        && known == boot.trim()
    {
        return Ok(verdict.trim() == "works");
    }
    let works = probe("kvm")?;
    let verdict = if works { "works" } else { "does not work" };
    if !works {
        eprintln!(
            "hayate: /dev/kvm is there and {verdict} (tried a tiny machine for {} s); using tcg",
            PATIENCE.as_secs()
        );
    }
    std::fs::write(&kept, format!("{} {verdict}\n", boot.trim()))
        .with_context(|| format!("cannot write {}", kept.display()))?;
    Ok(works)
}

/// Runs the tiny machine. A child that cannot even be killed is left behind rather than waited
/// for: it holds nothing and ends when the host's kernel lets it.
fn probe(accel: &str) -> Result<bool> {
    let folder = tempfile::tempdir()?;
    let rom = folder.path().join("rom");
    write_rom(&rom)?;
    let mut child = tool::command("qemu-system-x86_64")?
        .args(["-machine", "q35", "-accel", accel, "-cpu", "max", "-m", "16", "-nodefaults"])
        .args(["-display", "none", "-no-reboot"])
        .args(["-device", "isa-debug-exit,iobase=0xf4,iosize=4", "-bios"])
        .arg(&rom)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    let began = Instant::now();
    while began.elapsed() < PATIENCE {
        if let Some(status) = child.try_wait()? {
            return Ok(status.code() == Some(WORKED));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let _ = child.kill();
    Ok(false)
}

fn write_rom(path: &Path) -> Result<()> {
    let mut rom = vec![0xf4; 64 << 10];
    let reset = rom.len() - 16;
    rom[reset..reset + RESET.len()].copy_from_slice(&RESET);
    std::fs::write(path, rom).with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The tiny machine says yes where the processor works: TCG always does.
    #[test]
    fn the_probe_recognises_a_working_machine() {
        if tool::find("qemu-system-x86_64").is_some() {
            assert!(probe("tcg").unwrap());
        }
    }

    #[test]
    fn an_accelerator_that_is_not_there_does_not_work() {
        if tool::find("qemu-system-x86_64").is_some() {
            assert!(!probe("no-such-accelerator").unwrap());
        }
    }
}
