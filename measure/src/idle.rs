//! How long the only processor had nothing to do.
//!
//! An emulator that counts instructions lets the clock go on while the processor waits for a
//! device. A sample is then the instructions that were executed if that time is taken off. Linux
//! tells it in `/proc/timer_list` (for root; `kernel/time/timer_list.c`), Hayate in
//! `/proc/hayate/idle`; both without the interrupt that ends the waiting. With several processors
//! the work of one while others are idle would not be known.

use crate::clock::Clock;
use crate::sampler::Skip;
use std::fs::File;
use std::os::unix::fs::FileExt;

/// Hayate's file.
const HAYATE: &str = "/proc/hayate/idle";
/// Linux's file.
const LINUX: &str = "/proc/timer_list";
/// More than the lines of one processor and of its timers.
const ROOM: usize = 1 << 16;

/// Times what may wait for a device: with the waiting, or without.
#[derive(Debug)]
pub struct Stopwatch {
    clock: Clock,
    idle: Option<Idle>,
}

impl Stopwatch {
    /// One that takes idle time off if `without_idle`.
    pub fn new(clock: Clock, without_idle: bool) -> Result<Stopwatch, Skip> {
        let idle = without_idle.then(Idle::open).transpose()?;
        Ok(Stopwatch { clock, idle })
    }

    /// Returns the ticks that `work` takes.
    #[inline(always)]
    pub fn time(&mut self, work: impl FnOnce() -> Result<(), Skip>) -> Result<u64, Skip> {
        let before = self.idle_ns()?;
        let start = self.clock.start();
        work()?;
        let ticks = self.clock.stop().saturating_sub(start);
        // Reading it does not wait, so the whole difference belongs to the work.
        let idle = self.idle_ns()?.saturating_sub(before) as f64 / self.clock.ns(1.0);
        Ok(ticks.saturating_sub(idle as u64))
    }

    fn idle_ns(&mut self) -> Result<u64, Skip> {
        self.idle.as_mut().map_or(Ok(0), Idle::ns)
    }
}

/// The source of that time.
#[derive(Debug)]
struct Idle {
    file: File,
    of: fn(&str) -> Option<u64>,
    path: &'static str,
    text: Box<[u8]>,
}

impl Idle {
    /// Opens the file of this system, and reads it once.
    fn open() -> Result<Idle, Skip> {
        let (path, of): (_, fn(&str) -> _) = match std::fs::exists(HAYATE) {
            Ok(true) => (HAYATE, of_hayate),
            _ => (LINUX, of_linux),
        };
        let file = File::open(path).map_err(Skip::because(path))?;
        let mut idle = Idle { file, of, path, text: vec![0; ROOM].into() };
        idle.ns()?;
        Ok(idle)
    }

    /// Returns the nanoseconds since boot in which the processor was idle.
    fn ns(&mut self) -> Result<u64, Skip> {
        let Idle { file, of, path, text } = self;
        let mut length = 0;
        loop {
            let read = file.read_at(&mut text[length..], length as u64);
            match read.map_err(Skip::because(path))? {
                0 => break,
                read => length += read,
            }
        }
        let told = std::str::from_utf8(&text[..length]).ok().and_then(of);
        told.ok_or_else(|| Skip(format!("{path} does not tell of one processor that idles")))
    }
}

/// Returns the sum of Linux' line ` .idle_sleeptime : 123 nsecs` and of that for idling while a
/// thread waits for a disk.
fn of_linux(list: &str) -> Option<u64> {
    Some(only(list, ".idle_sleeptime")? + only(list, ".iowait_sleeptime")?)
}

/// Returns the number of Hayate's line `cpu0: 123 ns`.
fn of_hayate(text: &str) -> Option<u64> {
    (text.lines().count() == 1).then(|| only(text, "cpu0")).flatten()
}

/// Returns the number of the only line `NAME : NUMBER ...`.
fn only(text: &str, wanted: &str) -> Option<u64> {
    let mut values = text.lines().filter_map(|line| {
        let (name, value) = line.trim().split_once(':')?;
        (name.trim() == wanted).then_some(value)
    });
    let one = values.next()?.split_whitespace().next()?.parse().ok()?;
    values.next().is_none().then_some(one)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_time_is_that_of_the_only_processor() {
        let one = "cpu: 0\n  .nr_events : 7\n  .idle_waketime  : 9 nsecs\n  \
            .idle_sleeptime : 100 nsecs\n  .iowait_sleeptime: 20 nsecs\n";
        assert_eq!(of_linux(one), Some(120));
        assert_eq!(of_linux(&format!("{one}{one}")), None);
        assert_eq!(of_linux("Timer List Version: v0.9\n"), None);
        assert_eq!(of_hayate("cpu0: 17 ns\n"), Some(17));
        assert_eq!(of_hayate("cpu0: 17 ns\ncpu1: 18 ns\n"), None);
        assert_eq!(of_hayate("cpu0: some\n"), None);
    }
}
