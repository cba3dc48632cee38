//! Taking a pending signal, which a POSIX timer counts.

use hayate_abi::signal::{SI_TIMER, Siginfo, SignalSet};

use crate::process::numbers;
use crate::process::thread::Thread;
use crate::process::timer;

impl Thread {
    /// Takes a pending signal of `wanted`, those to the thread first.
    pub fn take_signal(&self, wanted: SignalSet) -> Option<Siginfo> {
        let mut info = self.queue.take(wanted).or_else(|| self.process.take_signal(wanted))?;
        if info.si_code == SI_TIMER {
            timer::taken(&self.process, &mut info);
        }
        Some(numbers::told_to(self, info))
    }
}
