//! Progress messages: one line for any step that takes longer than two seconds.
//!
//! On a terminal this is a line with a turning mark and the time, removed when the work is done;
//! elsewhere (a log of continuous integration) one line after two seconds and one every half
//! minute.

use indicatif::{ProgressBar, ProgressStyle};
use std::io::IsTerminal;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const BEFORE_FIRST_LINE: Duration = Duration::from_secs(2);
const BETWEEN_LINES: Duration = Duration::from_secs(30);

/// Work in progress; dropping it ends its line.
pub struct Progress {
    stop: Option<Sender<()>>,
    printer: Option<JoinHandle<()>>,
}

impl Progress {
    /// Begins a step, named as "Making the default image".
    pub fn new(name: impl Into<String>) -> Progress {
        let name = name.into();
        let (stop, stopped) = channel::<()>();
        let printer = std::thread::spawn(move || {
            let began = Instant::now();
            if stopped.recv_timeout(BEFORE_FIRST_LINE) != Err(RecvTimeoutError::Timeout) {
                return;
            }
            if std::io::stderr().is_terminal() {
                let bar =
                    ProgressBar::new_spinner().with_message(name).with_elapsed(BEFORE_FIRST_LINE);
                if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} ({elapsed})") {
                    bar.set_style(style);
                }
                bar.enable_steady_tick(Duration::from_millis(120));
                let _ = stopped.recv();
                bar.finish_and_clear();
            } else {
                eprintln!("hayate: {name} ...");
                while stopped.recv_timeout(BETWEEN_LINES) == Err(RecvTimeoutError::Timeout) {
                    eprintln!("hayate: {name}: {} s so far", began.elapsed().as_secs());
                }
                eprintln!("hayate: {name}: done in {} s", began.elapsed().as_secs());
            }
        });
        Progress { stop: Some(stop), printer: Some(printer) }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(printer) = self.printer.take() {
            let _ = printer.join();
        }
    }
}
