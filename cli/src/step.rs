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

const QUIET: Duration = Duration::from_secs(2);
const REPEAT: Duration = Duration::from_secs(30);

/// Work in progress; dropping it ends its line.
pub struct Step {
    stop: Option<Sender<()>>,
    shower: Option<JoinHandle<()>>,
}

impl Step {
    /// Begins a step, named as "Making the default image".
    pub fn new(name: impl Into<String>) -> Step {
        let name = name.into();
        let (stop, stopped) = channel::<()>();
        let shower = std::thread::spawn(move || {
            let began = Instant::now();
            if stopped.recv_timeout(QUIET) != Err(RecvTimeoutError::Timeout) {
                return;
            }
            if std::io::stderr().is_terminal() {
                let bar = ProgressBar::new_spinner().with_message(name).with_elapsed(QUIET);
                if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} ({elapsed})") {
                    bar.set_style(style);
                }
                bar.enable_steady_tick(Duration::from_millis(120));
                let _ = stopped.recv();
                bar.finish_and_clear();
            } else {
                eprintln!("hayate: {name} ...");
                while stopped.recv_timeout(REPEAT) == Err(RecvTimeoutError::Timeout) {
                    eprintln!("hayate: {name}: {} s so far", began.elapsed().as_secs());
                }
                eprintln!("hayate: {name}: done in {} s", began.elapsed().as_secs());
            }
        });
        Step { stop: Some(stop), shower: Some(shower) }
    }
}

impl Drop for Step {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(shower) = self.shower.take() {
            let _ = shower.join();
        }
    }
}
