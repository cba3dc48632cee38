//! The discipline of a clock (`adjtimex(2)`, `kernel/time/ntp.c` of Linux 6.1, RFC 5905 appendix
//! A.5.5): applies the corrections that a time-keeping program gives to the kernel, second by
//! second.
//!
//! [`Discipline::adjust`] takes a program's settings. [`Discipline::second`] is called at the
//! beginning of each second of real time. After both, [`Discipline::rate`] returns by how much the
//! clock must run faster until the next call. Nothing here reads a clock.
//!
//! Offsets are corrected in two independent ways: a phase-locked loop corrects a part of the rest
//! each second (`ADJ_OFFSET`), and the older `adjtime(3)` at most 500 microseconds.

#![no_std]
#![forbid(unsafe_code)]

/// Bits of `modes`, named as in `adjtimex(2)`.
#[allow(missing_docs)]
pub mod modes {
    pub const ADJ_OFFSET: u32 = 0x0001;
    pub const ADJ_FREQUENCY: u32 = 0x0002;
    pub const ADJ_MAXERROR: u32 = 0x0004;
    pub const ADJ_ESTERROR: u32 = 0x0008;
    pub const ADJ_STATUS: u32 = 0x0010;
    pub const ADJ_TIMECONST: u32 = 0x0020;
    pub const ADJ_TAI: u32 = 0x0080;
    pub const ADJ_SETOFFSET: u32 = 0x0100;
    pub const ADJ_MICRO: u32 = 0x1000;
    pub const ADJ_NANO: u32 = 0x2000;
    pub const ADJ_TICK: u32 = 0x4000;
    /// With `ADJ_OFFSET`: `adjtime(3)`.
    pub const ADJ_ADJTIME: u32 = 0x8000;
    /// With `ADJ_ADJTIME`: the rest is only read.
    pub const ADJ_OFFSET_READONLY: u32 = 0x2000;
}
use modes::*;

/// Bits of the status, named as in `adjtimex(2)`.
#[allow(missing_docs)]
pub mod status {
    pub const STA_PLL: i32 = 0x0001;
    pub const STA_FLL: i32 = 0x0008;
    pub const STA_INS: i32 = 0x0010;
    pub const STA_DEL: i32 = 0x0020;
    pub const STA_UNSYNC: i32 = 0x0040;
    pub const STA_FREQHOLD: i32 = 0x0080;
    pub const STA_CLOCKERR: i32 = 0x1000;
    pub const STA_NANO: i32 = 0x2000;
    pub const STA_MODE: i32 = 0x4000;
    /// Bits that programs cannot set.
    pub const STA_RONLY: i32 = 0xff00;
}
use status::*;

/// The clock state that `adjtimex(2)` returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "named as in adjtimex(2)")]
pub enum State {
    Ok = 0,
    Ins = 1,
    Del = 2,
    Oop = 3,
    Wait = 4,
    Error = 5,
}

/// Microseconds of a tick, a hundred of which are a second, when nothing is adjusted.
pub const TICK: i64 = 10_000;
/// The least and the largest value of [`TICK`].
pub const TICKS: core::ops::RangeInclusive<i64> = 9_000..=11_000;
/// The largest frequency correction: parts per million, with 16 fractional bits.
pub const MOST_FREQUENCY: i64 = 500 << 16;
/// The most seconds between TAI and UTC (`MAX_TAI_OFFSET`).
const MOST_TAI: i64 = 100_000;
const SECONDS_PER_DAY: i64 = 86_400;
/// Nanoseconds per second, with 32 fractional bits, in a unit of frequency (`PPM_SCALE`).
const FREQUENCY_UNIT: i64 = 1000 << 16;
/// The most nanoseconds that an offset may have (`MAXPHASE`).
const MOST_PHASE: i64 = 500_000_000;
/// Beyond so many microseconds of error the clock is not synchronised (`NTP_PHASE_LIMIT`).
const MOST_ERROR: i64 = (MOST_PHASE / 1000) << 5;
/// Microseconds by which the error may grow in a second.
const ERROR_PER_SECOND: i64 = 500;
/// The most microseconds that adjtime(3) corrects in a second (`MAX_TICKADJ`).
const MOST_ADJUSTED: i64 = 500;
const MOST_CONSTANT: i64 = 10;
const SHIFT_PLL: i64 = 2;
const SHIFT_FLL: i64 = 2;
/// Seconds between two offsets from which on the frequency-locked loop may be used, and always is.
const FLL_MAY: i64 = 256;
const FLL_DOES: i64 = 2048;

/// A program's request.
#[derive(Clone, Copy, Debug, Default)]
#[allow(missing_docs, reason = "named as in adjtimex(2)")]
pub struct Adjustment {
    pub modes: u32,
    pub offset: i64,
    pub freq: i64,
    pub maxerror: i64,
    pub esterror: i64,
    pub status: i32,
    pub constant: i64,
    pub tick: i64,
}

/// A clock's discipline.
#[derive(Clone, Debug)]
pub struct Discipline {
    /// `STA_*`.
    pub status: i32,
    /// The state of an announced leap second.
    state: State,
    /// The time constant of the loop.
    pub constant: i64,
    /// Microseconds of a tick.
    pub tick: i64,
    /// The maximum error of the clock, in microseconds.
    pub max_error: i64,
    /// The estimated error of the clock, in microseconds.
    pub estimated_error: i64,
    /// Seconds that TAI is ahead of UTC.
    pub tai: i64,
    /// Nanoseconds per second, with 32 fractional bits.
    frequency: i64,
    /// Nanoseconds that the loop still has to correct, with 32 fractional bits.
    offset: i64,
    /// Microseconds that adjtime(3) still has to correct.
    adjust: i64,
    /// The correction of both in this second, in nanoseconds with 32 fractional bits.
    slew: i64,
    /// The second in which the last offset was given.
    reference: i64,
    /// The first second after the leap that is announced.
    leap_at: Option<i64>,
}

/// Shifts to the right, towards zero (`shift_right` of include/linux/math64.h).
const fn shift_right(value: i64, by: i64) -> i64 {
    if value < 0 { -(value.wrapping_neg() >> by) } else { value >> by }
}

impl Default for Discipline {
    fn default() -> Self {
        Self::new()
    }
}

impl Discipline {
    /// Returns the discipline of a clock that was never adjusted.
    pub const fn new() -> Discipline {
        Discipline {
            status: STA_UNSYNC,
            state: State::Ok,
            constant: 2,
            tick: TICK,
            max_error: MOST_ERROR,
            estimated_error: MOST_ERROR,
            tai: 0,
            frequency: 0,
            offset: 0,
            adjust: 0,
            slew: 0,
            reference: 0,
            leap_at: None,
        }
    }

    /// Drops the corrections that are left, after the clock was set (`ntp_clear`).
    pub fn clear(&mut self) {
        self.adjust = 0;
        self.offset = 0;
        self.slew = 0;
        self.status |= STA_UNSYNC;
        self.max_error = MOST_ERROR;
        self.estimated_error = MOST_ERROR;
        self.leap_at = None;
    }

    /// Takes a program's settings, which were checked before; returns the offset to report. `now`:
    /// the second.
    pub fn adjust(&mut self, request: &Adjustment, now: i64) -> i64 {
        if request.modes & ADJ_ADJTIME != 0 {
            let left = self.adjust;
            if request.modes & ADJ_OFFSET_READONLY == 0 {
                self.adjust = request.offset;
            }
            return left;
        }
        self.set(request, now);
        let offset = shift_right(self.offset, 32);
        if self.status & STA_NANO != 0 { offset } else { offset / 1000 }
    }

    /// `process_adjtimex_modes`
    fn set(&mut self, request: &Adjustment, now: i64) {
        let has = |mode| request.modes & mode != 0;
        if has(ADJ_STATUS) {
            self.set_status(request.status, now);
        }
        if has(ADJ_NANO) {
            self.status |= STA_NANO;
        }
        if has(ADJ_MICRO) {
            self.status &= !STA_NANO;
        }
        if has(ADJ_FREQUENCY) {
            self.frequency = request.freq.clamp(-MOST_FREQUENCY, MOST_FREQUENCY) * FREQUENCY_UNIT;
        }
        if has(ADJ_MAXERROR) {
            self.max_error = request.maxerror;
        }
        if has(ADJ_ESTERROR) {
            self.estimated_error = request.esterror;
        }
        if has(ADJ_TIMECONST) {
            let finer = if self.status & STA_NANO == 0 { 4 } else { 0 };
            self.constant = request.constant.saturating_add(finer).clamp(0, MOST_CONSTANT);
        }
        if has(ADJ_TAI) && (0..=MOST_TAI).contains(&request.constant) {
            self.tai = request.constant;
        }
        if has(ADJ_OFFSET) {
            self.set_offset(request.offset, now);
        }
        if has(ADJ_TICK) {
            self.tick = request.tick;
        }
    }

    /// `process_adj_status`
    fn set_status(&mut self, wanted: i32, now: i64) {
        if self.status & STA_PLL != 0 && wanted & STA_PLL == 0 {
            self.state = State::Ok;
            self.status = STA_UNSYNC;
            self.leap_at = None;
        }
        if self.status & STA_PLL == 0 && wanted & STA_PLL != 0 {
            self.reference = now;
        }
        self.status = self.status & STA_RONLY | wanted & !STA_RONLY;
    }

    /// `ntp_update_offset`: the loops take the offset, and learn the frequency from it.
    fn set_offset(&mut self, offset: i64, now: i64) {
        if self.status & STA_PLL == 0 {
            return;
        }
        let nanos = match self.status & STA_NANO {
            0 => offset.clamp(-1_000_000, 1_000_000) * 1000,
            _ => offset,
        };
        let nanos = nanos.clamp(-MOST_PHASE, MOST_PHASE);
        let held = self.status & STA_FREQHOLD != 0;
        let since = if held { 0 } else { now.saturating_sub(self.reference).max(0) };
        self.reference = now;

        self.status &= !STA_MODE;
        let mut change = 0i128;
        if since >= FLL_MAY && (self.status & STA_FLL != 0 || since > FLL_DOES) {
            self.status |= STA_MODE;
            change = (i128::from(nanos) << (32 - SHIFT_FLL)) / i128::from(since);
        }
        // At most the time that the loop remembers.
        let since = since.min(1 << (SHIFT_PLL + 1 + self.constant));
        let shift = (32 - 2 * (SHIFT_PLL + 2 + self.constant)).max(0);
        change += (i128::from(nanos) * i128::from(since)) << shift;
        let most = i128::from(MOST_FREQUENCY * FREQUENCY_UNIT);
        self.frequency = (change + i128::from(self.frequency)).clamp(-most, most) as i64;
        self.offset = nanos << 32;
    }

    /// Begins a second (`second_overflow`): computes the corrections of this second, and returns by
    /// how much the clock must be moved for a leap second, if there is one.
    pub fn second(&mut self, now: i64) -> i64 {
        let leap = self.leap(now);
        self.max_error = self.max_error.saturating_add(ERROR_PER_SECOND);
        if self.max_error > MOST_ERROR {
            self.max_error = MOST_ERROR;
            self.status |= STA_UNSYNC;
        }
        let chunk = shift_right(self.offset, SHIFT_PLL + self.constant);
        self.offset -= chunk;
        let adjusted = self.adjust.clamp(-MOST_ADJUSTED, MOST_ADJUSTED);
        self.adjust -= adjusted;
        self.slew = chunk + ((adjusted * 1000) << 32);
        self.tai -= leap;
        leap
    }

    fn leap(&mut self, now: i64) -> i64 {
        let announced = self.status & (STA_INS | STA_DEL);
        match self.state {
            State::Ok if announced & STA_INS != 0 => {
                self.state = State::Ins;
                self.leap_at = Some(now + SECONDS_PER_DAY - now.rem_euclid(SECONDS_PER_DAY));
            }
            State::Ok if announced & STA_DEL != 0 => {
                self.state = State::Del;
                self.leap_at = Some(now + SECONDS_PER_DAY - (now + 1).rem_euclid(SECONDS_PER_DAY));
            }
            State::Ins if announced & STA_INS == 0 => self.calm(),
            State::Del if announced & STA_DEL == 0 => self.calm(),
            State::Ins if self.leap_at == Some(now) => {
                self.state = State::Oop;
                return -1;
            }
            State::Del if self.leap_at == Some(now) => {
                self.leap_at = None;
                self.state = State::Wait;
                return 1;
            }
            State::Oop => {
                self.leap_at = None;
                self.state = State::Wait;
            }
            State::Wait if announced == 0 => self.state = State::Ok,
            _ => {}
        }
        0
    }

    fn calm(&mut self) {
        self.leap_at = None;
        self.state = State::Ok;
    }

    /// Returns the state that `adjtimex(2)` returns.
    pub fn state(&self) -> State {
        let unsure = self.status & (STA_UNSYNC | STA_CLOCKERR) != 0;
        if unsure { State::Error } else { self.state }
    }

    /// Returns the frequency in the unit of `adjtimex(2)`.
    pub fn frequency(&self) -> i64 {
        self.frequency / FREQUENCY_UNIT
    }

    /// Returns the nanoseconds that the clock gains in this second, with 32 fractional bits.
    pub fn rate(&self) -> i128 {
        let tick = i128::from(self.tick - TICK) * 1000 * 100;
        (tick << 32) + i128::from(self.frequency) + i128::from(self.slew)
    }

    /// Whether the next second changes something.
    pub fn is_busy(&self) -> bool {
        self.offset != 0
            || self.adjust != 0
            || self.slew != 0
            || self.state != State::Ok
            || self.status & (STA_INS | STA_DEL) != 0
            || self.max_error < MOST_ERROR
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i128 = 1 << 32;

    fn request(modes: u32) -> Adjustment {
        Adjustment { modes, ..Adjustment::default() }
    }

    #[test]
    fn nothing_asked_changes_nothing() {
        let mut clock = Discipline::new();
        assert_eq!(clock.adjust(&request(0), 5), 0);
        assert_eq!(clock.rate(), 0);
        assert!(!clock.is_busy());
        assert_eq!(clock.state(), State::Error);
    }

    #[test]
    fn frequency_and_tick_make_the_rate() {
        let mut clock = Discipline::new();
        clock.adjust(&Adjustment { freq: 1 << 16, ..request(ADJ_FREQUENCY) }, 0);
        assert_eq!(clock.rate(), 1000 * SECOND); // a part per million is 1000 ns a second
        assert_eq!(clock.frequency(), 1 << 16);
        clock.adjust(&Adjustment { freq: i64::MAX, ..request(ADJ_FREQUENCY) }, 0);
        assert_eq!(clock.frequency(), MOST_FREQUENCY);
        clock
            .adjust(&Adjustment { freq: -3, tick: 10_001, ..request(ADJ_FREQUENCY | ADJ_TICK) }, 0);
        assert_eq!(clock.frequency(), -3);
        assert_eq!(clock.rate() >> 32, 100_000 - 1);
    }

    #[test]
    fn adjtime_puts_half_a_millisecond_right_each_second() {
        let mut clock = Discipline::new();
        let ask = request(ADJ_ADJTIME | ADJ_OFFSET);
        assert_eq!(clock.adjust(&Adjustment { offset: -1200, ..ask }, 0), 0);
        let read = request(ADJ_ADJTIME | ADJ_OFFSET | ADJ_OFFSET_READONLY);
        assert_eq!(clock.adjust(&read, 0), -1200);
        let mut sum = 0;
        for left in [-700, -200, 0, 0] {
            clock.second(0);
            assert_eq!(clock.adjust(&read, 0), left);
            sum += clock.rate();
        }
        assert_eq!(sum, -1_200_000 * SECOND);
        assert!(!clock.is_busy());
        assert_eq!(clock.adjust(&Adjustment { offset: 9, ..ask }, 0), 0);
        assert_eq!(clock.adjust(&Adjustment { offset: 3, ..ask }, 0), 9); // the old rest is told
    }

    #[test]
    fn the_loop_takes_a_part_each_second() {
        let mut clock = Discipline::new();
        let set = Adjustment { status: STA_PLL, offset: 1000, ..request(ADJ_STATUS | ADJ_OFFSET) };
        assert_eq!(clock.adjust(&set, 100), 1000);
        assert_eq!(clock.rate(), 0); // from the next second on
        clock.second(101);
        assert_eq!(clock.rate(), (1_000_000 * SECOND) >> (SHIFT_PLL + clock.constant));
        let mut sum = clock.rate();
        for now in 102..400 {
            clock.second(now);
            sum += clock.rate();
        }
        assert!((999_990 * SECOND..=1_000_000 * SECOND).contains(&sum));
        assert_eq!(clock.adjust(&request(0), 400), 0);
    }

    #[test]
    fn without_the_loop_offsets_mean_nothing() {
        let mut clock = Discipline::new();
        assert_eq!(clock.adjust(&Adjustment { offset: 5, ..request(ADJ_OFFSET) }, 0), 0);
        clock.second(1);
        assert_eq!(clock.rate(), 0);
    }

    #[test]
    fn the_error_grows_until_nobody_believes_the_clock() {
        let mut clock = Discipline::new();
        let set = Adjustment { maxerror: MOST_ERROR - 900, ..request(ADJ_MAXERROR | ADJ_STATUS) };
        clock.adjust(&set, 0);
        assert_eq!(clock.state(), State::Ok);
        assert!(clock.is_busy());
        clock.second(1);
        assert_eq!((clock.max_error, clock.state()), (MOST_ERROR - 400, State::Ok));
        clock.second(2);
        assert_eq!((clock.max_error, clock.state()), (MOST_ERROR, State::Error));
        clock.second(3);
        assert_eq!(clock.max_error, MOST_ERROR);
    }

    #[test]
    fn a_second_is_inserted_at_midnight() {
        let mut clock = Discipline { tai: 37, ..Discipline::new() };
        let day = SECONDS_PER_DAY;
        clock
            .adjust(&Adjustment { status: STA_INS, ..request(ADJ_STATUS | ADJ_MAXERROR) }, day - 3);
        assert_eq!(clock.second(day - 2), 0);
        assert_eq!(clock.state(), State::Ins);
        assert_eq!(clock.second(day - 1), 0);
        assert_eq!(clock.second(day), -1); // 23:59:60
        assert_eq!((clock.state(), clock.tai), (State::Oop, 38));
        assert_eq!(clock.second(day), 0);
        assert_eq!(clock.state(), State::Wait);
        clock.adjust(&request(ADJ_STATUS), day);
        clock.second(day + 1);
        assert_eq!(clock.state, State::Ok);
    }

    #[test]
    fn a_second_is_left_out_before_midnight() {
        let mut clock = Discipline { tai: 37, ..Discipline::new() };
        let day = SECONDS_PER_DAY;
        clock
            .adjust(&Adjustment { status: STA_DEL, ..request(ADJ_STATUS | ADJ_MAXERROR) }, day - 3);
        assert_eq!(clock.second(day - 2), 0);
        assert_eq!(clock.second(day - 1), 1);
        assert_eq!((clock.state(), clock.tai), (State::Wait, 36));
    }

    #[test]
    fn status_keeps_what_programs_cannot_set() {
        let mut clock = Discipline::new();
        clock.adjust(&request(ADJ_NANO), 0);
        clock.adjust(&Adjustment { status: 0x7fff_ffff, ..request(ADJ_STATUS) }, 0);
        assert_eq!(clock.status & STA_RONLY, STA_NANO);
        clock.adjust(&request(ADJ_STATUS), 0); // leaving the loop
        assert_eq!(clock.status, 0);
    }

    #[test]
    fn any_request_keeps_within_bounds() {
        let mut clock = Discipline::new();
        let extremes = [i64::MIN, -1, 0, 1, 1 << 40, i64::MAX];
        for modes in (0..0x8000).step_by(0x3b) {
            for &value in &extremes {
                for status in [0, STA_PLL, STA_PLL | STA_FLL, -1] {
                    let asked = Adjustment {
                        modes,
                        offset: value,
                        freq: value,
                        maxerror: value,
                        esterror: value,
                        status,
                        constant: value,
                        tick: TICK,
                    };
                    clock.adjust(&asked, value / 2);
                    clock.second(value / 2);
                    assert!(clock.frequency().abs() <= MOST_FREQUENCY);
                    assert!(clock.rate().abs() < 200_000_000 * SECOND);
                }
            }
        }
    }
}
