//! The host's terminal: raw while the guest uses it, and restored afterwards in every case.
//!
//! The previous settings are kept for the whole process, because it can end in many ways: normally,
//! by an error, by a signal, by a panic.

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

/// Passes every key unchanged to the guest, whose terminal processes it.
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

/// Prints one line on standard error, also while a raw terminal does not return the carriage by
/// itself.
pub fn say(line: &str) {
    let raw = BEFORE.lock().is_ok_and(|kept| kept.is_some());
    eprint!("hayate: {line}{}", if raw { "\r\n" } else { "\n" });
}

/// Restores the settings from before [`make_raw`]; does nothing if it was not called.
pub fn restore() {
    let before = match BEFORE.lock() {
        Ok(mut kept) => kept.take(),
        Err(poisoned) => poisoned.into_inner().take(),
    };
    if let Some(before) = before {
        let _ = tcsetattr(rustix::stdio::stdin(), OptionalActions::Drain, &before);
    }
}

/// Restores the terminal before a panic of the command ends it.
pub fn restore_on_panic() {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |information| {
        restore();
        // The reader of the output has closed it (`./hayate test --list | head`): as with SIGPIPE,
        // nothing is printed.
        let text = information.payload().downcast_ref::<String>().map_or("", String::as_str);
        if text.contains("Broken pipe") {
            std::process::exit(128 + signal_hook::consts::SIGPIPE);
        }
        // A full disk is not a fault of this program, and it may be impossible to report it.
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
