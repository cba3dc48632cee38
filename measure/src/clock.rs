//! The clock of the suite: the time-stamp counter if it exists and is steady, and clock_gettime(2)
//! otherwise.
//!
//! A measurement begins with `lfence; rdtsc; lfence` and ends with `rdtscp; lfence`: the first
//! fence lets everything before finish, the others keep the measured code from starting early
//! or the reading from sliding into it (Intel SDM volume 2, RDTSC and RDTSCP; AMD APM volume 3:
//! `lfence` is dispatch-serialising where the kernel set DE_CFG, as Linux does). CPUID, which
//! older guides use for this, leaves a virtual machine each time and is never used here.

use measure_data::run::Clock as Description;
use std::arch::x86_64::{__rdtscp, _mm_lfence, _rdtsc};
use std::io;
use std::time::Duration;

/// For how long the counter is compared with the system's clock.
const CALIBRATION: Duration = Duration::from_millis(20);
/// If two calibrations differ by more than this, the counter is not trusted.
const STEADY: f64 = 0.01;

/// Which clock to use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Source {
    /// The time-stamp counter.
    Tsc,
    /// clock_gettime(CLOCK_MONOTONIC).
    Monotonic,
}

/// A calibrated clock.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    tsc: bool,
    has_rdtscp: bool,
    /// Ticks in one second.
    pub ticks_per_second: f64,
    /// Median ticks of an empty measurement.
    pub overhead: f64,
    /// Smallest difference above zero between two readings.
    pub resolution: f64,
}

impl Clock {
    /// Chooses and calibrates a clock; `wanted` overrides the choice.
    pub fn calibrate(wanted: Option<Source>) -> io::Result<Self> {
        monotonic()?;
        let id = raw_cpuid::CpuId::new();
        let has_tsc = id.get_feature_info().is_some_and(|f| f.has_tsc());
        let has_rdtscp =
            id.get_extended_processor_and_feature_identifiers().is_some_and(|f| f.has_rdtscp());
        let mut clock =
            Self { tsc: true, has_rdtscp, ticks_per_second: 1e9, overhead: 0.0, resolution: 1.0 };
        let frequency = if has_tsc && wanted != Some(Source::Monotonic) {
            let (one, two) = (clock.frequency()?, clock.frequency()?);
            let steady = (one / two - 1.0).abs() <= STEADY && one > 1e6;
            (steady || wanted == Some(Source::Tsc)).then_some((one + two) / 2.0)
        } else if wanted == Some(Source::Tsc) {
            return Err(io::Error::other("this processor has no time-stamp counter"));
        } else {
            None
        };
        match frequency {
            Some(frequency) => clock.ticks_per_second = frequency,
            None => clock.tsc = false,
        }
        let mut empty: Vec<u64> = (0..2001)
            .map(|_| {
                let start = clock.start();
                clock.stop().saturating_sub(start)
            })
            .collect();
        empty.sort_unstable();
        clock.overhead = empty[empty.len() / 2] as f64;
        clock.resolution = clock.smallest_step();
        Ok(clock)
    }

    /// Ticks of the counter in a second of the system's clock.
    fn frequency(&self) -> io::Result<f64> {
        let (from, first) = self.both()?;
        loop {
            let (to, last) = self.both()?;
            let passed = to - from;
            if passed >= CALIBRATION {
                return Ok(last.saturating_sub(first) as f64 / passed.as_secs_f64());
            }
        }
    }

    /// Reads both clocks at one moment: takes several pairs of readings and returns the one that
    /// was interrupted least.
    fn both(&self) -> io::Result<(Duration, u64)> {
        let mut best = (u64::MAX, Duration::ZERO, 0);
        for _ in 0..5 {
            let before = self.stop();
            let time = monotonic()?;
            let gap = self.stop().saturating_sub(before);
            if gap < best.0 {
                best = (gap, time, before + gap / 2);
            }
        }
        Ok((best.1, best.2))
    }

    fn smallest_step(&self) -> f64 {
        let mut last = self.stop();
        let mut smallest = u64::MAX;
        for _ in 0..2000 {
            let now = self.stop();
            if now > last {
                smallest = smallest.min(now - last);
            }
            last = now;
        }
        if smallest == u64::MAX { self.overhead.max(1.0) } else { smallest as f64 }
    }

    /// Reads the clock before a measurement.
    #[inline(always)]
    pub fn start(&self) -> u64 {
        if self.tsc { fenced_tsc() } else { nanoseconds() }
    }

    /// Reads the clock after a measurement.
    #[inline(always)]
    pub fn stop(&self) -> u64 {
        if !self.tsc {
            nanoseconds()
        } else if self.has_rdtscp {
            let mut processor = 0;
            // SAFETY: the processor has rdtscp (CPUID said so); it writes one u32.
            let now = unsafe { __rdtscp(&mut processor) };
            fence();
            now
        } else {
            fenced_tsc()
        }
    }

    /// Whether this is the time-stamp counter, which any program can read as well.
    pub fn is_counter(&self) -> bool {
        self.tsc
    }

    /// Nanoseconds of `ticks`.
    pub fn ns(&self, ticks: f64) -> f64 {
        ticks * 1e9 / self.ticks_per_second
    }

    /// For the result file.
    pub fn describe(&self) -> Description {
        Description {
            name: if self.tsc { "tsc" } else { "monotonic" }.to_owned(),
            ticks_per_second: self.ticks_per_second,
            overhead_ticks: self.overhead,
            resolution_ticks: self.resolution,
        }
    }
}

#[inline(always)]
fn fence() {
    // SAFETY: lfence is part of SSE2, which x86-64 has.
    unsafe { _mm_lfence() }
}

#[inline(always)]
fn fenced_tsc() -> u64 {
    fence();
    // SAFETY: the processor has a time-stamp counter; where the kernel forbids reading it to
    // programs (CR4.TSD), the calibration already ended in a signal and `--clock monotonic`
    // avoids it.
    let now = unsafe { _rdtsc() };
    fence();
    now
}

/// The system's monotonic clock, as the calibration uses it.
fn monotonic() -> io::Result<Duration> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes one timespec.
    match unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) } {
        0 => Ok(Duration::new(time.tv_sec as u64, time.tv_nsec as u32)),
        _ => Err(io::Error::last_os_error()),
    }
}

#[inline(always)]
fn nanoseconds() -> u64 {
    monotonic().map_or(0, |t| t.as_nanos() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_clocks_agree() {
        for source in [Source::Tsc, Source::Monotonic] {
            let clock = Clock::calibrate(Some(source)).unwrap();
            let (start, wall) = (clock.start(), std::time::Instant::now());
            while wall.elapsed() < Duration::from_millis(30) {}
            let (passed, wall) = (clock.ns((clock.stop() - start) as f64), wall.elapsed());
            let ratio = passed / wall.as_nanos() as f64;
            assert!((0.9..1.1).contains(&ratio), "{source:?}: {ratio}");
        }
    }
}
