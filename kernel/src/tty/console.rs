//! The console: a terminal whose other end is a device of the hypervisor.
//!
//! The device's interrupt handler must not do the work of a terminal, so two kernel threads carry
//! the bytes: one passes received bytes to the terminal as input, the other passes output to the
//! device, which may make it sleep. Without a device (`./hayate run -- CMD` has none), data written
//! to `/dev/console` goes to the kernel's log, one line at a time.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use hayate_abi::Result;
use hayate_machine::sync::Once;

use super::state::{Output, Tty};
use crate::schedule;

/// The device below the console.
pub trait ConsoleBackend: Send + Sync {
    /// Waits for received bytes; returns how many, 0 when the other end is closed for good.
    fn read(&self, into: &mut [u8]) -> Result<usize>;

    /// Sends all of these bytes; may sleep.
    fn write(&self, bytes: &[u8]) -> Result<()>;
}

static TERMINAL: Once<Arc<Tty>> = Once::new();

/// The most bytes carried at once.
const PIECE: usize = 1024;

/// Returns the console's terminal.
pub fn terminal() -> Arc<Tty> {
    TERMINAL.call_once(|| Tty::new((5, 1), String::from("console"), false)).clone()
}

/// Connects the console to its device and starts the threads that carry the bytes.
pub fn attach(backend: Arc<dyn ConsoleBackend>) -> Result<()> {
    let tty = terminal();
    let (input, device) = (tty.clone(), backend.clone());
    schedule::start_kernel("console-in", move || carry_input(&input, &*device))?;
    schedule::start_kernel("console-out", move || carry_output(&tty, &*backend))
}

/// Sends console output to the kernel's log, on machines without a console device.
pub fn attach_log() -> Result<()> {
    let tty = terminal();
    schedule::start_kernel("console-log", move || carry_to_log(&tty))
}

fn carry_input(tty: &Arc<Tty>, backend: &dyn ConsoleBackend) {
    let mut piece = [0; PIECE];
    loop {
        match backend.read(&mut piece) {
            Ok(0) | Err(_) => {
                tty.hang_up();
                return;
            }
            Ok(count) => {
                let mut rest = &piece[..count];
                while !rest.is_empty() {
                    let taken = tty.type_in(rest);
                    rest = &rest[taken..];
                    if !rest.is_empty() {
                        tty.master.wait(|| tty.takes_input().then_some(()));
                    }
                }
            }
        }
    }
}

fn next_output(tty: &Tty, piece: &mut [u8]) -> usize {
    tty.master.wait(|| match tty.take_output(piece, true) {
        Output::Bytes(count) => Some(count),
        _ => None,
    })
}

fn carry_output(tty: &Arc<Tty>, backend: &dyn ConsoleBackend) {
    let mut piece = [0; PIECE];
    loop {
        let count = next_output(tty, &mut piece);
        let written = backend.write(&piece[..count]);
        tty.shown(count);
        if written.is_err() {
            tty.hang_up();
            return;
        }
    }
}

fn carry_to_log(tty: &Arc<Tty>) {
    let mut piece = [0; PIECE];
    let mut line = Vec::new();
    loop {
        let count = next_output(tty, &mut piece);
        for &byte in &piece[..count] {
            if byte == b'\n' || line.len() >= PIECE {
                hayate_machine::info!("console: {}", String::from_utf8_lossy(&line));
                line.clear();
            } else if byte != b'\r' {
                line.push(byte);
            }
        }
        tty.shown(count);
    }
}

/// Waits until the device has all console output, but not longer than a second; called before the
/// machine is switched off.
pub fn settle() {
    const PATIENCE: u64 = 1_000_000_000;
    let Some(tty) = TERMINAL.get() else { return };
    let deadline = schedule::time::monotonic_ns() + PATIENCE;
    let drained = || tty.drained().then_some(());
    // A signal or the time limit ends the wait; output that is left then is lost.
    let _ = tty.writers.wait_interruptible(Some(deadline), drained);
}
