//! Progress on standard error: one line that is overwritten on a terminal, a line per pass
//! elsewhere.

use std::io::{IsTerminal, Write};
use std::time::Instant;

/// Shows how far a run is.
#[derive(Debug)]
pub struct Progress {
    shown: bool,
    terminal: bool,
    began: Instant,
}

impl Progress {
    /// Shows nothing when `silent`.
    pub fn new(silent: bool) -> Self {
        Self { shown: !silent, terminal: std::io::stderr().is_terminal(), began: Instant::now() }
    }

    fn print(&self, text: &str) {
        let mut err = std::io::stderr();
        // Progress that cannot be shown must not stop a run.
        let _ = err.write_all(text.as_bytes());
        let _ = err.flush();
    }

    /// Shows a step before the passes, such as the primitives.
    pub fn step(&self, what: &str) {
        if self.shown && self.terminal {
            self.print(&format!("\r\x1b[K{what}"));
        } else if self.shown {
            self.print(&format!("{what}\n"));
        }
    }

    /// Shows the beginning of a pass.
    pub fn pass(&self, pass: u32, passes: u32, experiments: usize) {
        if self.shown && !self.terminal {
            let which = Self::which(pass, passes);
            let noun = if experiments == 1 { "experiment" } else { "experiments" };
            self.print(&format!(
                "{which}: {experiments} {noun}, {:.0} s so far\n",
                self.began.elapsed().as_secs_f64()
            ));
        }
    }

    /// Shows the beginning of an experiment.
    pub fn experiment(&self, pass: u32, passes: u32, at: usize, of: usize, name: &str) {
        if self.shown && self.terminal {
            let seconds = self.began.elapsed().as_secs();
            let which = Self::which(pass, passes);
            self.print(&format!("\r\x1b[K[{seconds} s, {which}, {at}/{of}] {name}"));
        }
    }

    fn which(pass: u32, passes: u32) -> String {
        if pass > passes {
            format!("pass {pass}, for the noisy ones")
        } else {
            format!("pass {pass} of {passes}")
        }
    }

    /// Clears the line.
    pub fn done(&self) {
        if self.shown && self.terminal {
            self.print("\r\x1b[K");
        }
    }
}
