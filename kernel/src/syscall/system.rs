//! Calls about the system as a whole: names, memory, randomness, reboot (`uname(2)`, `sysinfo(2)`,
//! `getrandom(2)`, `acct(2)`, `reboot(2)`).

use hayate_abi::file::AT_FDCWD;
use hayate_abi::process::Sysinfo;
use hayate_abi::signal::{SIGHUP, SIGINT};
use hayate_abi::{Errno, Result};
use hayate_machine::user::{self, UserPtr};
use hayate_machine::{info, power};

use super::file;
use crate::credentials::Capability;
use crate::drivers::virtio_balloon;
use crate::fs::ext4;
use crate::memory::deferred_free;
use crate::process;
use crate::process::pid_namespace::PidNamespace;
use crate::process::signal::send;
use crate::process::{accounting, pids};
use crate::random;
use crate::schedule;
use crate::schedule::time;
use crate::vfs::open;
use crate::vfs::open_file::flags::{O_APPEND, O_LARGEFILE, O_WRONLY};
use crate::vfs::path::WalkFlags;

/// `uname(2)`
pub fn uname(buffer: usize) -> Result<()> {
    UserPtr::new(buffer).write(&process::current().uts().utsname())
}

/// `sysinfo(2)`
pub fn sysinfo(buffer: usize) -> Result<()> {
    const PAGE: u64 = 4096;
    let counts = deferred_free::settled_counts();
    let total = (counts.total as u64).saturating_sub(virtio_balloon::taken().into());
    UserPtr::new(buffer).write(&Sysinfo {
        // Rounded up to whole seconds, as in Linux.
        uptime: time::monotonic_ns().div_ceil(1_000_000_000) as i64,
        loads: schedule::load_average().map(|load| load << 5),
        totalram: total * PAGE,
        freeram: counts.free as u64 * PAGE,
        procs: pids::count().min(usize::from(u16::MAX)) as u16,
        mem_unit: 1,
        ..Sysinfo::default()
    })
}

/// `getrandom(2)`
pub fn getrandom(buffer: usize, count: usize, flags: u32) -> Result<usize> {
    const GRND_NONBLOCK: u32 = 1;
    const GRND_RANDOM: u32 = 2;
    const GRND_INSECURE: u32 = 4;
    if flags & !(GRND_NONBLOCK | GRND_RANDOM | GRND_INSECURE) != 0
        || flags & (GRND_RANDOM | GRND_INSECURE) == GRND_RANDOM | GRND_INSECURE
    {
        return Err(Errno::EINVAL);
    }
    let count = count.min(i32::MAX as usize);
    let mut done = 0;
    let mut piece = [0; 256];
    while done < count {
        let length = (count - done).min(piece.len());
        let Some(part) = piece.get_mut(..length) else { break };
        random::fill(part);
        let copied = user::copy_out_partly(buffer.wrapping_add(done), part);
        done += copied;
        if copied < length {
            return if done == 0 { Err(Errno::EFAULT) } else { Ok(done) };
        }
        if done < count && schedule::breathe() {
            break;
        }
    }
    Ok(done)
}

fn read_name(name: usize, length: i32, buffer: &mut [u8; 64]) -> Result<usize> {
    let thread = process::current();
    thread.credentials().require_in(&thread.uts().owner, Capability::SysAdmin)?;
    let length = usize::try_from(length).map_err(|_| Errno::EINVAL)?;
    let to = buffer.get_mut(..length).ok_or(Errno::EINVAL)?;
    user::copy_in(to, name)?;
    Ok(length)
}

/// `sethostname(2)`
pub fn sethostname(name: usize, length: i32) -> Result<()> {
    let mut buffer = [0; 64];
    let length = read_name(name, length, &mut buffer)?;
    process::current().uts().set_host(buffer.get(..length).unwrap_or(&buffer));
    Ok(())
}

/// `setdomainname(2)`
pub fn setdomainname(name: usize, length: i32) -> Result<()> {
    let mut buffer = [0; 64];
    let length = read_name(name, length, &mut buffer)?;
    process::current().uts().set_domain(buffer.get(..length).unwrap_or(&buffer));
    Ok(())
}

/// `acct(2)`: to a file, which must be there, or with a null pointer no more.
pub fn acct(path_address: usize) -> Result<()> {
    process::current().credentials().require(Capability::SysPacct)?;
    if path_address == 0 {
        accounting::stop();
        return Ok(());
    }
    let path = file::path(path_address)?;
    let view = file::View::current()?;
    let flags = O_WRONLY | O_APPEND | O_LARGEFILE;
    let resolver = view.resolver(AT_FDCWD, &path)?;
    accounting::start(open::open(&resolver, &path, flags, 0, WalkFlags::empty())?)
}

/// `vhangup(2)`
pub fn vhangup() -> Result<()> {
    process::current().credentials().require(Capability::SysTtyConfig)?;
    crate::tty::hang_up_own();
    Ok(())
}

/// Ends a PID namespace and the caller: for who waits for the init, it has ended by this signal.
/// The threads end on their way to user mode.
fn end_namespace(pids: &PidNamespace, signal: u32) {
    if let Some(init) = pids.reboot(signal as i32) {
        send::kill(&init);
    }
    process::current().process.begin_exit(0);
}

/// `reboot(2)`
pub fn reboot(magic: u32, second: u32, command: u32, _argument: usize) -> Result<()> {
    const MAGIC: u32 = 0xfee1_dead;
    const SECOND: [u32; 4] = [672_274_793, 85_072_278, 369_367_448, 537_993_216];
    const RESTART: u32 = 0x0123_4567;
    const RESTART2: u32 = 0xa1b2_c3d4;
    const HALT: u32 = 0xcdef_0123;
    const POWER_OFF: u32 = 0x4321_fedc;
    const CAD_ON: u32 = 0x89ab_cdef;
    const CAD_OFF: u32 = 0;
    let pids = process::current().process.pid_namespace();
    process::current().credentials().require_in(&pids.owner, Capability::SysBoot)?;
    if magic != MAGIC || !SECOND.contains(&second) {
        return Err(Errno::EINVAL);
    }
    if !pids.is_first() {
        // `reboot_pid_ns`, kernel/pid_namespace.c.
        let signal = match command {
            RESTART | RESTART2 => SIGHUP,
            HALT | POWER_OFF => SIGINT,
            _ => return Err(Errno::EINVAL),
        };
        end_namespace(&pids, signal);
        return Ok(());
    }
    match command {
        RESTART | RESTART2 => {
            let _ = file::io::sync();
            ext4::close_all();
            info!("restarting");
            crate::tty::settle_output();
            power::reset()
        }
        HALT | POWER_OFF => {
            let _ = file::io::sync();
            ext4::close_all();
            info!("powering off");
            crate::tty::settle_output();
            power::off()
        }
        // There is no keyboard, so switching Ctrl-Alt-Del has no effect.
        CAD_ON | CAD_OFF => Ok(()),
        _ => Err(Errno::EINVAL),
    }
}
