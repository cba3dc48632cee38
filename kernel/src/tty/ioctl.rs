//! The terminal's ioctls (ioctl_tty(2)), on both sides.
//!
//! TIOCGPTPEER makes a descriptor, and so is the system call's: [`super::devpts::peer`] finds what
//! it opens.

use alloc::sync::Arc;

use hayate_abi::file::{Termio, Termios as RawTermios, Termios2, Winsize};
use hayate_abi::{Errno, Result};
use hayate_line_discipline::Termios;
use hayate_machine::user::UserPtr;

use super::groups::signal;
use super::job;
use super::state::Tty;
use crate::vfs::open_file::OpenFile;

// Numbers of include/uapi/asm-generic/ioctls.h (Linux 6.1).
const TCGETS: u32 = 0x5401;
const TCSETS: u32 = 0x5402;
const TCSETSW: u32 = 0x5403;
const TCSETSF: u32 = 0x5404;
const TCGETA: u32 = 0x5405;
const TCSETA: u32 = 0x5406;
const TCSETAW: u32 = 0x5407;
const TCSETAF: u32 = 0x5408;
const TCSBRK: u32 = 0x5409;
const TCXONC: u32 = 0x540a;
const TCFLSH: u32 = 0x540b;
const TIOCEXCL: u32 = 0x540c;
const TIOCNXCL: u32 = 0x540d;
const TIOCSCTTY: u32 = 0x540e;
const TIOCGPGRP: u32 = 0x540f;
const TIOCSPGRP: u32 = 0x5410;
const TIOCOUTQ: u32 = 0x5411;
const TIOCSTI: u32 = 0x5412;
const TIOCGWINSZ: u32 = 0x5413;
const TIOCSWINSZ: u32 = 0x5414;
const TIOCINQ: u32 = 0x541b;
const TIOCPKT: u32 = 0x5420;
const TIOCNOTTY: u32 = 0x5422;
const TIOCSETD: u32 = 0x5423;
const TIOCGETD: u32 = 0x5424;
const TCSBRKP: u32 = 0x5425;
const TIOCGSID: u32 = 0x5429;
const TCGETS2: u32 = 0x802c_542a;
const TCSETS2: u32 = 0x402c_542b;
const TCSETSW2: u32 = 0x402c_542c;
const TCSETSF2: u32 = 0x402c_542d;
const TIOCGPTN: u32 = 0x8004_5430;
const TIOCSPTLCK: u32 = 0x4004_5431;
const TIOCGDEV: u32 = 0x8004_5432;
const TIOCSIG: u32 = 0x4004_5436;
const TIOCVHANGUP: u32 = 0x5437;
const TIOCGPKT: u32 = 0x8004_5438;
const TIOCGPTLCK: u32 = 0x8004_5439;
const TIOCGEXCL: u32 = 0x8004_5440;
const TIOCGPTPEER: u32 = 0x5441;

/// Performs an ioctl on the program side.
pub(super) fn program_side(tty: &Arc<Tty>, file: &OpenFile, command: u32, arg: u64) -> Result<i64> {
    if tty.hung_up() {
        return Err(if command == TIOCSPGRP { Errno::ENOTTY } else { Errno::EIO });
    }
    // A background process may not change the terminal (tty_check_change).
    if matches!(
        command,
        TCSETS
            | TCSETSW
            | TCSETSF
            | TCSETA
            | TCSETAW
            | TCSETAF
            | TCSETS2
            | TCSETSW2
            | TCSETSF2
            | TCSBRK
            | TCSBRKP
            | TCXONC
            | TCFLSH
            | TIOCSETD
    ) {
        job::check_background(tty, signal::TTOU)?;
    }
    match command {
        TIOCSCTTY => job::take_as_controlling(tty, file, arg == 1).map(|()| 0),
        TIOCNOTTY => give_up(tty),
        TIOCSTI => {
            let control = job::control().ok_or(Errno::EIO)?;
            let caller = control.caller();
            let controls = tty.session_and_foreground().0 == Some(caller.session);
            if !controls && !caller.privileged {
                return Err(Errno::EPERM);
            }
            let byte: u8 = UserPtr::new(arg as usize).read()?;
            tty.type_in(&[byte]);
            Ok(0)
        }
        TIOCVHANGUP => {
            if !job::control().is_some_and(|control| control.caller().privileged) {
                return Err(Errno::EPERM);
            }
            tty.hang_up();
            Ok(0)
        }
        TIOCGPTPEER => Err(Errno::EIO),
        TIOCGPTN | TIOCSPTLCK | TIOCGPTLCK | TIOCPKT | TIOCGPKT => Err(Errno::ENOTTY),
        _ => both_sides(tty, Side::Programs, command, arg),
    }
}

/// Performs an ioctl on the master of pseudo terminal `number`, whose slave is `tty`.
pub(super) fn master_side(tty: &Arc<Tty>, number: u32, command: u32, arg: u64) -> Result<i64> {
    match command {
        TIOCGPTN => UserPtr::<u32>::new(arg as usize).write(&number).map(|()| 0),
        TIOCSPTLCK => {
            let locked: i32 = UserPtr::new(arg as usize).read()?;
            tty.set_locked(locked != 0);
            Ok(0)
        }
        TIOCGPTLCK => UserPtr::<i32>::new(arg as usize).write(&i32::from(tty.locked())).map(|()| 0),
        TIOCPKT => {
            let on: i32 = UserPtr::new(arg as usize).read()?;
            tty.set_packet(on != 0);
            Ok(0)
        }
        TIOCGPKT => UserPtr::<i32>::new(arg as usize).write(&i32::from(tty.packet())).map(|()| 0),
        TIOCSIG => {
            if !matches!(arg as u32, signal::INT | signal::QUIT | signal::TSTP) {
                return Err(Errno::EINVAL);
            }
            if let (Some(group), Some(control)) = (tty.session_and_foreground().1, job::control()) {
                control.signal_group(group, arg as u32);
            }
            Ok(0)
        }
        TIOCINQ => UserPtr::<i32>::new(arg as usize).write(&(tty.unshown() as i32)).map(|()| 0),
        TIOCOUTQ => UserPtr::<i32>::new(arg as usize).write(&(tty.available() as i32)).map(|()| 0),
        TIOCSCTTY | TIOCNOTTY | TIOCSTI => Err(Errno::ENOTTY),
        _ => both_sides(tty, Side::Master, command, arg),
    }
}

/// The side on which an ioctl was made.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Programs,
    Master,
}

/// Ioctls with the same meaning on both sides: settings, size, process groups.
fn both_sides(tty: &Arc<Tty>, side: Side, command: u32, arg: u64) -> Result<i64> {
    match command {
        TCGETS => UserPtr::new(arg as usize).write(&to_raw(&tty.termios()))?,
        TCGETS2 => UserPtr::new(arg as usize).write(&to_raw2(&tty.termios()))?,
        TCSETS | TCSETSW | TCSETSF => {
            let raw: RawTermios = UserPtr::new(arg as usize).read()?;
            change(tty, from_raw(&raw), command - TCSETS)?;
        }
        TCSETS2 | TCSETSW2 | TCSETSF2 => {
            let raw: Termios2 = UserPtr::new(arg as usize).read()?;
            change(tty, from_raw2(&raw), command - TCSETS2)?;
        }
        TCGETA => UserPtr::new(arg as usize).write(&to_termio(&tty.termios()))?,
        TCSETA | TCSETAW | TCSETAF => {
            let old: Termio = UserPtr::new(arg as usize).read()?;
            change(tty, with_termio(tty.termios(), &old), command - TCSETA)?;
        }
        // A break has no effect on a virtual line; both calls only wait for output when asked to.
        TCSBRK | TCSBRKP => drain(tty)?,
        TCXONC => flow(tty, arg)?,
        TCFLSH => match arg {
            0 => tty.flush(true, false),
            1 => tty.flush(false, true),
            2 => tty.flush(true, true),
            _ => return Err(Errno::EINVAL),
        },
        TIOCEXCL => tty.set_exclusive(true),
        TIOCNXCL => tty.set_exclusive(false),
        TIOCGEXCL => UserPtr::<i32>::new(arg as usize).write(&i32::from(tty.exclusive()))?,
        TIOCGPGRP => {
            let group = own_terminal(tty, side)?.unwrap_or(0);
            UserPtr::<u32>::new(arg as usize).write(&shown(group)?)?;
        }
        TIOCSPGRP => set_foreground(tty, arg)?,
        TIOCGSID => {
            own_terminal(tty, side)?;
            let session = tty.session_and_foreground().0.ok_or(Errno::ENOTTY)?;
            UserPtr::<u32>::new(arg as usize).write(&shown(session)?)?;
        }
        TIOCOUTQ => UserPtr::<i32>::new(arg as usize).write(&(tty.unshown() as i32))?,
        TIOCINQ => UserPtr::<i32>::new(arg as usize).write(&(tty.available() as i32))?,
        TIOCGWINSZ => UserPtr::<Winsize>::new(arg as usize).write(&tty.window())?,
        TIOCSWINSZ => tty.set_window(UserPtr::<Winsize>::new(arg as usize).read()?),
        TIOCGETD => UserPtr::<i32>::new(arg as usize).write(&0)?,
        TIOCSETD => {
            let line: i32 = UserPtr::new(arg as usize).read()?;
            if line != 0 {
                return Err(Errno::EINVAL);
            }
        }
        TIOCGDEV => {
            let (major, minor) = tty.device;
            UserPtr::<u32>::new(arg as usize)
                .write(&(major << 8 | (minor & 0xff) | (minor & !0xff) << 12))?;
        }
        _ => return Err(Errno::ENOTTY),
    }
    Ok(0)
}

/// Applies new settings at once (0), after output has drained (1), or after that with input
/// discarded (2).
fn change(tty: &Arc<Tty>, termios: Termios, when: u32) -> Result<()> {
    if when > 0 {
        drain(tty)?;
    }
    if when > 1 {
        tty.flush(true, false);
    }
    tty.set_termios(termios);
    Ok(())
}

/// Waits until all written output is shown (tcdrain(3)).
fn drain(tty: &Tty) -> Result<()> {
    tty.writers
        .wait_interruptible(None, || tty.drained().then_some(()))
        .map_err(|_| Errno::ERESTARTSYS)
}

/// tcflow(3): TCOOFF, TCOON, TCIOFF, TCION.
fn flow(tty: &Tty, action: u64) -> Result<()> {
    use hayate_line_discipline::cc::{VSTART, VSTOP};
    match action {
        0 => tty.set_stopped(true),
        1 => tty.set_stopped(false),
        2 | 3 => {
            let character = tty.termios().cc[if action == 2 { VSTOP } else { VSTART }];
            if character != 0 {
                let sent = || tty.write_now(&[character]);
                tty.writers.wait_interruptible(None, sent).map_err(|_| Errno::ERESTARTSYS)??;
            }
        }
        _ => return Err(Errno::EINVAL),
    }
    Ok(())
}

/// Returns the foreground group if the terminal is the caller's controlling terminal; ENOTTY
/// otherwise. The master of a pseudo terminal may always ask.
fn own_terminal(tty: &Tty, side: Side) -> Result<Option<u32>> {
    let (session, foreground) = tty.session_and_foreground();
    let caller = job::control().ok_or(Errno::ENOTTY)?.caller();
    let own = session == Some(caller.session);
    if own || side == Side::Master { Ok(foreground) } else { Err(Errno::ENOTTY) }
}

/// The number of a group or session as the caller sees it.
fn shown(number: u32) -> Result<u32> {
    Ok(job::control().ok_or(Errno::ENOTTY)?.shown(number))
}

/// tcsetpgrp(3).
fn set_foreground(tty: &Arc<Tty>, arg: u64) -> Result<()> {
    let control = job::control().ok_or(Errno::ENOTTY)?;
    let caller = control.caller();
    if tty.session_and_foreground().0 != Some(caller.session) {
        return Err(Errno::ENOTTY);
    }
    job::check_background(tty, signal::TTOU)?;
    let group: i32 = UserPtr::new(arg as usize).read()?;
    let group = control.meant(u32::try_from(group).map_err(|_| Errno::EINVAL)?);
    if !control.group_exists(group) {
        return Err(Errno::ESRCH);
    }
    if !control.group_in_session(group, caller.session) {
        return Err(Errno::EPERM);
    }
    tty.set_foreground(group);
    Ok(())
}

/// TIOCNOTTY: the caller gives up its controlling terminal. If it is the session leader, the whole
/// session loses the terminal, and the foreground group gets the signals of a hang-up.
fn give_up(tty: &Arc<Tty>) -> Result<i64> {
    let control = job::control().ok_or(Errno::ENOTTY)?;
    let caller = control.caller();
    if tty.session_and_foreground().0 != Some(caller.session) {
        return Err(Errno::ENOTTY);
    }
    if caller.leads_session {
        tty.session_ended(caller.session);
        control.set_controlling_terminal(caller.session, None);
    } else {
        control.forget_controlling_terminal();
    }
    Ok(0)
}

fn to_raw(termios: &Termios) -> RawTermios {
    RawTermios {
        c_iflag: termios.iflag,
        c_oflag: termios.oflag,
        c_cflag: termios.cflag,
        c_lflag: termios.lflag,
        c_line: termios.line,
        c_cc: termios.cc,
    }
}

fn from_raw(raw: &RawTermios) -> Termios {
    Termios {
        iflag: raw.c_iflag,
        oflag: raw.c_oflag,
        cflag: raw.c_cflag,
        lflag: raw.c_lflag,
        line: raw.c_line,
        cc: raw.c_cc,
    }
}

fn to_termio(termios: &Termios) -> Termio {
    let mut characters = [0; 8];
    characters.copy_from_slice(&termios.cc[..8]);
    Termio {
        c_iflag: termios.iflag as u16,
        c_oflag: termios.oflag as u16,
        c_cflag: termios.cflag as u16,
        c_lflag: termios.lflag as u16,
        c_line: termios.line,
        c_cc: characters,
        hole: 0,
    }
}

/// Replaces the fields of `termios` that `old` has (`user_termio_to_kernel_termios`).
fn with_termio(mut termios: Termios, old: &Termio) -> Termios {
    const HIGH: u32 = 0xffff_0000;
    termios.iflag = termios.iflag & HIGH | u32::from(old.c_iflag);
    termios.oflag = termios.oflag & HIGH | u32::from(old.c_oflag);
    termios.cflag = termios.cflag & HIGH | u32::from(old.c_cflag);
    termios.lflag = termios.lflag & HIGH | u32::from(old.c_lflag);
    termios.line = old.c_line;
    termios.cc[..8].copy_from_slice(&old.c_cc);
    termios
}

fn to_raw2(termios: &Termios) -> Termios2 {
    let baud = speed(termios.cflag);
    Termios2 {
        c_iflag: termios.iflag,
        c_oflag: termios.oflag,
        c_cflag: termios.cflag,
        c_lflag: termios.lflag,
        c_line: termios.line,
        c_cc: termios.cc,
        c_ispeed: baud,
        c_ospeed: baud,
    }
}

fn from_raw2(raw: &Termios2) -> Termios {
    Termios {
        iflag: raw.c_iflag,
        oflag: raw.c_oflag,
        cflag: raw.c_cflag,
        lflag: raw.c_lflag,
        line: raw.c_line,
        cc: raw.c_cc,
    }
}

/// Returns the speed in bits per second that CBAUD of `cflag` stands for (`tty_termios_baud_rate`).
fn speed(cflag: u32) -> u32 {
    const LOW: [u32; 16] =
        [0, 50, 75, 110, 134, 150, 200, 300, 600, 1200, 1800, 2400, 4800, 9600, 19200, 38400];
    const HIGH: [u32; 16] = [
        0, 57600, 115_200, 230_400, 460_800, 500_000, 576_000, 921_600, 1_000_000, 1_152_000,
        1_500_000, 2_000_000, 2_500_000, 3_000_000, 3_500_000, 4_000_000,
    ];
    let index = (cflag & 0o17) as usize;
    if cflag & 0o10000 != 0 { HIGH[index] } else { LOW[index] }
}
