//! The notes: the data about a process, besides its memory, that a debugger needs.

use alloc::vec::Vec;

use crate::{OutOfMemory, Result, append};

const CORE: &[u8] = b"CORE\0";
const LINUX: &[u8] = b"LINUX\0";

/// `NT_PRSTATUS`
pub const STATUS: u32 = 1;
/// `NT_FPREGSET`
pub const FLOATING_POINT: u32 = 2;
/// `NT_PRPSINFO`
pub const PROCESS: u32 = 3;
/// `NT_AUXV`
pub const AUXILIARY: u32 = 6;
/// `NT_X86_XSTATE`
pub const EXTENDED_STATE: u32 = 0x202;
/// `NT_FILE`
pub const FILES: u32 = 0x4649_4c45;
/// `NT_SIGINFO`
pub const SIGNAL: u32 = 0x5349_4749;

/// Bytes of the FXSAVE image, which is the content of `NT_FPREGSET`.
const LEGACY: usize = 512;
/// The offset of its bytes for software.
const SOFTWARE: usize = 464;
/// The longest `NT_FILE` (`MAX_FILE_NOTE_SIZE`).
const MOST_OF_FILES: usize = 4 << 20;

/// Appends a note of any kind.
///
/// # Errors
/// Memory is exhausted.
pub fn note(list: &mut Vec<u8>, owner: &[u8], kind: u32, content: &[u8]) -> Result<()> {
    append(list, &(owner.len() as u32).to_le_bytes())?;
    append(list, &(content.len() as u32).to_le_bytes())?;
    append(list, &kind.to_le_bytes())?;
    append(list, owner)?;
    pad(list)?;
    append(list, content)?;
    pad(list)
}

fn pad(list: &mut Vec<u8>) -> Result<()> {
    const ZEROES: [u8; 3] = [0; 3];
    let short = list.len().next_multiple_of(4) - list.len();
    append(list, ZEROES.get(..short).unwrap_or_default())
}

/// The numbers that identify a process or thread.
#[derive(Clone, Copy, Debug, Default)]
pub struct Identity {
    /// The process or thread.
    pub number: u32,
    /// The parent.
    pub parent: u32,
    /// The process group.
    pub group: u32,
    /// The session.
    pub session: u32,
}

impl Identity {
    fn put(&self, out: &mut Vec<u8>) -> Result<()> {
        for number in [self.number, self.parent, self.group, self.session] {
            append(out, &number.to_le_bytes())?;
        }
        Ok(())
    }
}

/// The state of a thread when it was stopped (`struct elf_prstatus`).
#[derive(Clone, Copy, Debug, Default)]
pub struct Status {
    /// The signal that ended the process.
    pub signal: u32,
    /// Signals pending for the thread.
    pub pending: u64,
    /// Signals that the thread blocks.
    pub blocked: u64,
    /// Its identity.
    pub identity: Identity,
    /// Nanoseconds in user mode and in the kernel, then both for children that were waited for.
    pub times: [u64; 4],
    /// `struct user_regs_struct`: r15 to gs.
    pub registers: [u64; 27],
}

impl Status {
    /// Appends it as `NT_PRSTATUS`.
    ///
    /// # Errors
    /// Memory is exhausted.
    pub fn put(&self, list: &mut Vec<u8>) -> Result<()> {
        let mut body = Vec::new();
        // `si_signo`, `si_code`, `si_errno`, `pr_cursig` and its padding.
        append(&mut body, &self.signal.to_le_bytes())?;
        append(&mut body, &[0; 8])?;
        append(&mut body, &self.signal.to_le_bytes())?;
        append(&mut body, &self.pending.to_le_bytes())?;
        append(&mut body, &self.blocked.to_le_bytes())?;
        self.identity.put(&mut body)?;
        for nanos in self.times {
            append(&mut body, &(nanos / 1_000_000_000).to_le_bytes())?;
            append(&mut body, &(nanos % 1_000_000_000 / 1000).to_le_bytes())?;
        }
        for register in self.registers {
            append(&mut body, &register.to_le_bytes())?;
        }
        // There is a note of the floating-point registers, too (`pr_fpvalid`).
        append(&mut body, &1u64.to_le_bytes())?;
        note(list, CORE, STATUS, &body)
    }
}

/// The process (`struct elf_prpsinfo`).
#[derive(Clone, Copy, Debug, Default)]
pub struct Process<'a> {
    /// The nice value.
    pub nice: i8,
    /// The real user.
    pub user: u32,
    /// The real group.
    pub group: u32,
    /// Its identity.
    pub identity: Identity,
    /// The thread's name.
    pub name: &'a [u8],
    /// The arguments, each ended by NUL.
    pub arguments: &'a [u8],
}

/// The most bytes of the arguments that are written.
pub const MOST_OF_ARGUMENTS: usize = 79;

impl Process<'_> {
    /// Appends it as `NT_PRPSINFO`.
    ///
    /// # Errors
    /// Memory is exhausted.
    pub fn put(&self, list: &mut Vec<u8>) -> Result<()> {
        let mut body = Vec::new();
        // State "running" (`pr_state`, `pr_sname`, `pr_zomb`, `pr_nice`); no flags.
        append(&mut body, &[0, b'R', 0, self.nice as u8, 0, 0, 0, 0])?;
        append(&mut body, &[0; 8])?;
        append(&mut body, &self.user.to_le_bytes())?;
        append(&mut body, &self.group.to_le_bytes())?;
        self.identity.put(&mut body)?;
        let mut name = [0; 16];
        name.iter_mut().zip(self.name.iter().take(15)).for_each(|(to, from)| *to = *from);
        append(&mut body, &name)?;
        let mut arguments = [0; 80];
        let shown = self.arguments.iter().take(MOST_OF_ARGUMENTS);
        for (to, &from) in arguments.iter_mut().zip(shown) {
            *to = if from == 0 { b' ' } else { from };
        }
        append(&mut body, &arguments)?;
        note(list, CORE, PROCESS, &body)
    }
}

/// Appends the `siginfo_t` of the signal.
///
/// # Errors
/// Memory is exhausted.
pub fn signal(list: &mut Vec<u8>, info: &[u8]) -> Result<()> {
    note(list, CORE, SIGNAL, info)
}

/// Appends the auxiliary vector.
///
/// # Errors
/// Memory is exhausted.
pub fn auxiliary(list: &mut Vec<u8>, vector: &[u8]) -> Result<()> {
    note(list, CORE, AUXILIARY, vector)
}

/// Appends a thread's extended registers, an image in the standard layout of XSAVE or FXSAVE: first
/// the part that both have, then the whole image if it is longer.
///
/// * `enabled` - XCR0, which debuggers read from the bytes for software.
///
/// # Errors
/// Memory is exhausted.
pub fn extended(list: &mut Vec<u8>, image: &mut [u8], enabled: u64) -> Result<()> {
    let Some(software) = image.get_mut(SOFTWARE..LEGACY) else { return Ok(()) };
    software.fill(0);
    note(list, CORE, FLOATING_POINT, image.get(..LEGACY).unwrap_or_default())?;
    if image.len() > LEGACY {
        if let Some(place) = image.get_mut(SOFTWARE..SOFTWARE + 8) {
            place.copy_from_slice(&enabled.to_le_bytes());
        }
        note(list, LINUX, EXTENDED_STATE, image)?;
    }
    Ok(())
}

/// The list of mapped files under construction.
#[derive(Default)]
pub struct Files {
    count: usize,
    places: Vec<u8>,
    names: Vec<u8>,
    too_long: bool,
}

impl Files {
    /// Adds a mapping of a file from address to address, `offset` bytes into it.
    ///
    /// # Errors
    /// Memory is exhausted.
    pub fn add(&mut self, start: u64, end: u64, offset: u64, name: &[u8]) -> Result<()> {
        self.too_long |= self.places.len() + self.names.len() + name.len() > MOST_OF_FILES;
        if self.too_long {
            return Ok(());
        }
        for number in [start, end, offset / 4096] {
            append(&mut self.places, &number.to_le_bytes())?;
        }
        append(&mut self.names, name)?;
        append(&mut self.names, b"\0")?;
        self.count += 1;
        Ok(())
    }

    /// Appends them as `NT_FILE`; nothing if they are too many, as in Linux.
    ///
    /// # Errors
    /// Memory is exhausted.
    pub fn put(&self, list: &mut Vec<u8>) -> Result<()> {
        if self.too_long {
            return Ok(());
        }
        let mut body = Vec::new();
        let size = 16 + self.places.len() + self.names.len();
        body.try_reserve_exact(size).map_err(|_| OutOfMemory)?;
        append(&mut body, &(self.count as u64).to_le_bytes())?;
        append(&mut body, &4096u64.to_le_bytes())?;
        append(&mut body, &self.places)?;
        append(&mut body, &self.names)?;
        note(list, CORE, FILES, &body)
    }
}
