//! The host's terminal: raw while the guest uses it, and itself again afterwards, whatever
//! happens.
//!
//! The settings to come back to are kept for the whole process, because the ways out are many:
//! the ordinary end, an error, a signal, a panic.

use crate::failure;
use rustix::termios::{OptionalActions, Termios, isatty, tcgetattr, tcgetwinsize, tcsetattr};
use std::io::Write;
use std::sync::Mutex;

static BEFORE: Mutex<Option<Termios>> = Mutex::new(None);

/// Whether standard input and output are both a terminal.
pub fn present() -> bool {
    isatty(rustix::stdio::stdin()) && isatty(rustix::stdio::stdout())
}

/// Rows and columns; zero where they are not known.
pub fn size() -> (u16, u16) {
    let known = tcgetwinsize(rustix::stdio::stdout());
    let known = known.or_else(|_| tcgetwinsize(rustix::stdio::stdin()));
    known.map_or((0, 0), |size| (size.ws_row, size.ws_col))
}

/// Every key goes through as it is: to the guest, which does with it what a terminal does.
pub fn make_raw() {
    let Ok(before) = tcgetattr(rustix::stdio::stdin()) else { return };
    let mut raw = before.clone();
    raw.make_raw();
    if tcsetattr(rustix::stdio::stdin(), OptionalActions::Now, &raw).is_ok()
        && let Ok(mut kept) = BEFORE.lock()
    {
        kept.get_or_insert(before);
    }
}

/// Says one line on standard error, also while a raw terminal does not return the carriage by
/// itself.
pub fn say(line: &str) {
    let raw = BEFORE.lock().is_ok_and(|kept| kept.is_some());
    eprint!("hayate: {line}{}", if raw { "\r\n" } else { "\n" });
}

/// The settings from before [`make_raw`]; nothing if it was not called.
pub fn restore() {
    let before = match BEFORE.lock() {
        Ok(mut kept) => kept.take(),
        Err(poisoned) => poisoned.into_inner().take(),
    };
    if let Some(before) = before {
        let _ = tcsetattr(rustix::stdio::stdin(), OptionalActions::Drain, &before);
    }
}

/// A panic of the command itself ends it at once; the terminal is put right first.
pub fn restore_on_panic() {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |information| {
        restore();
        // Whoever read our output has gone (`./hayate test --list | head`): as with SIGPIPE, nothing is
        // left to say.
        let text = information.payload().downcast_ref::<String>().map_or("", String::as_str);
        if text.contains("Broken pipe") {
            std::process::exit(128 + signal_hook::consts::SIGPIPE);
        }
        // A full disk is no fault of ours either, and there may be no place to say so.
        if let Some(error) = text.strip_prefix("failed printing to stdout: ") {
            let _ = writeln!(std::io::stderr(), "hayate: cannot write standard output: {error}");
            std::process::exit(i32::from(failure::FAULT));
        }
        if text.starts_with("failed printing to stderr: ") {
            std::process::exit(i32::from(failure::FAULT));
        }
        usual(information);
    }));
}
