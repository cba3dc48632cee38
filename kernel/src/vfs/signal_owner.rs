//! The process, thread or group that gets the signals of an open file (`F_SETOWN`, `F_SETSIG`,
//! fcntl(2)).
//!
//! This layer knows no processes: the process layer provides each [`Addressee`] and registers how
//! to find one. An open file gets an owner only when a program asks for signals; until then nothing
//! is allocated.
//!
//! Locks: an owner's state is a spin lock and a leaf. Signals are sent with no lock held.

use alloc::sync::Arc;

use hayate_abi::signal::*;
use hayate_abi::{Errno, Result};
use hayate_machine::sync::{Once, SpinLock};

/// The kind of addressee that a number stands for; the values of `struct f_owner_ex`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AddresseeKind {
    /// One thread.
    #[default]
    Thread = 0,
    /// A process.
    Process = 1,
    /// A process group.
    Group = 2,
}

/// The users of the process that asked for signals; they decide which processes may be signalled.
/// The default is the superuser, who may signal all.
#[derive(Clone, Copy, Default)]
pub struct Asker {
    /// The real user.
    pub uid: u32,
    /// The effective user.
    pub euid: u32,
}

/// A thread, process or group that can be signalled. A file that holds one does not keep it alive.
pub trait Addressee: Send + Sync {
    /// Returns its number inside the kernel; `None` when it is gone.
    fn number(&self) -> Option<i32>;

    /// Sends a signal if `asker` may (`sigio_perm`, fs/fcntl.c); an error only for a full queue.
    fn send(&self, asker: Asker, info: Siginfo) -> Result<()>;
}

/// The process layer, as seen from here.
pub trait Directory: Send + Sync {
    /// Finds the addressee that has this number for the caller; `ESRCH`.
    fn find(&self, kind: AddresseeKind, number: i32) -> Result<Arc<dyn Addressee>>;

    /// Returns the process group with this number of the kernel.
    fn group(&self, group: u32) -> Arc<dyn Addressee>;

    /// Returns the calling process.
    fn caller(&self) -> Arc<dyn Addressee>;

    /// Returns the calling process, as long as it executes the program that it executes now.
    fn calling_program(&self) -> Arc<dyn Addressee>;

    /// Returns the real and effective user of the caller.
    fn asker(&self) -> Asker;
}

static DIRECTORY: Once<&'static dyn Directory> = Once::new();

/// Registers the process layer; later calls change nothing.
pub fn register(directory: &'static dyn Directory) {
    DIRECTORY.call_once(|| directory);
}

/// Returns the calling process, as long as it executes the program that it executes now. `ESRCH`
/// before there are processes.
pub fn calling_program() -> Result<Arc<dyn Addressee>> {
    Ok(directory()?.calling_program())
}

fn directory() -> Result<&'static dyn Directory> {
    DIRECTORY.get().copied().ok_or(Errno::ESRCH)
}

/// An event of a descriptor: the `si_code` and `si_band` of sigaction(2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Band {
    /// Data can be read.
    In = 1,
    /// There is room to write.
    Out = 2,
    /// A message: a lease must be given up, or a directory changed.
    Message = 3,
    /// Urgent data.
    Priority = 5,
    /// The other end is closed.
    Hangup = 6,
}

impl Band {
    /// Returns the events of poll(2) that it stands for (`band_table`, fs/fcntl.c).
    const fn events(self) -> i64 {
        match self {
            Band::In => 0x41,
            Band::Out => 0x304,
            Band::Message => 0x441,
            Band::Priority => 0x82,
            Band::Hangup => 0x18,
        }
    }
}

/// Signals whose codes have meanings of their own (`sig_specific_sicodes`).
const SPECIFIC: SignalSet = bit(SIGILL)
    | bit(SIGFPE)
    | bit(SIGSEGV)
    | bit(SIGBUS)
    | bit(SIGTRAP)
    | bit(SIGCHLD)
    | bit(SIGSYS);

#[derive(Clone, Default)]
struct State {
    kind: AddresseeKind,
    addressee: Option<Arc<dyn Addressee>>,
    asker: Asker,
    /// `F_SETSIG`; 0 means SIGIO without any details.
    signal: u32,
}

/// The addressee of an open file's signals, and the signal.
#[derive(Default)]
pub struct SignalOwner(SpinLock<State>);

impl SignalOwner {
    /// Sets the owner (`F_SETOWN_EX`); 0 means none. `ESRCH` when nothing has this number.
    pub fn set(&self, kind: AddresseeKind, number: i32) -> Result<()> {
        let directory = directory()?;
        let addressee = match number {
            0 => None,
            number => Some(directory.find(kind, number)?),
        };
        self.put(kind, addressee, directory.asker());
        Ok(())
    }

    /// Sets the owner (`F_SETOWN`): a process, or a process group if `number` is negative.
    pub fn set_number(&self, number: i32) -> Result<()> {
        if number < 0 {
            self.set(AddresseeKind::Group, number.checked_neg().ok_or(Errno::EINVAL)?)
        } else {
            self.set(AddresseeKind::Process, number)
        }
    }

    /// Makes the calling process the owner if there is none.
    pub fn set_caller(&self) {
        let has_one = self.0.lock().addressee.is_some();
        if let (false, Ok(directory)) = (has_one, directory()) {
            self.put(AddresseeKind::Process, Some(directory.caller()), directory.asker());
        }
    }

    /// Makes a process group, by its number inside the kernel, the owner if there is none.
    pub fn set_group(&self, group: u32) {
        let has_one = self.0.lock().addressee.is_some();
        if let (false, Ok(directory)) = (has_one, directory()) {
            // If the group is gone, no signal is sent.
            self.put(AddresseeKind::Group, Some(directory.group(group)), directory.asker());
        }
    }

    fn put(&self, kind: AddresseeKind, addressee: Option<Arc<dyn Addressee>>, asker: Asker) {
        let mut state = self.0.lock();
        let signal = state.signal;
        let new = State { kind, addressee, asker, signal };
        let old = core::mem::replace(&mut *state, new);
        drop(state);
        drop(old);
    }

    /// Removes the owner and goes back to SIGIO without details (a lease is over).
    pub fn reset(&self) {
        let old = core::mem::take(&mut *self.0.lock());
        drop(old);
    }

    /// Returns kind and number, 0 for no owner (`F_GETOWN_EX`).
    pub fn get(&self) -> (AddresseeKind, i32) {
        let state = self.0.lock().clone();
        (state.kind, state.addressee.and_then(|addressee| addressee.number()).unwrap_or(0))
    }

    /// Returns the users of the process that set the owner (`F_GETOWNER_UIDS`).
    pub fn asker(&self) -> Asker {
        self.0.lock().asker
    }

    /// Returns the signal (`F_GETSIG`).
    pub fn signal(&self) -> u32 {
        self.0.lock().signal
    }

    /// Sets the signal (`F_SETSIG`).
    pub fn set_signal(&self, signal: u32) {
        self.0.lock().signal = signal;
    }

    /// Sends the signal for an event on the file, seen through the descriptor `fd` (`send_sigio`).
    /// If the signal queue is full, sends a SIGIO without details.
    pub fn tell(&self, fd: i32, band: Band) {
        let state = self.0.lock().clone();
        let Some(addressee) = state.addressee else { return };
        if state.signal != 0 {
            let own_codes = SPECIFIC & bit(state.signal) != 0;
            let code = if own_codes { SI_SIGIO } else { band as i32 };
            let info = Siginfo::from_poll(state.signal, code, band.events(), fd);
            if addressee.send(state.asker, info).is_ok() {
                return;
            }
        }
        // A full queue costs the details, not the signal.
        let _ = addressee.send(state.asker, Siginfo::new(SIGIO, SI_KERNEL));
    }

    /// Sends SIGURG for urgent data (`send_sigurg`).
    pub fn tell_urgent(&self) {
        let state = self.0.lock().clone();
        if let Some(addressee) = state.addressee {
            let _ = addressee.send(state.asker, Siginfo::new(SIGURG, SI_KERNEL));
        }
    }
}
