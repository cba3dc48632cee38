//! Time: the rates of the [clocks](crate::clock), the one-shot timer of the local APIC, the
//! machine's real-time clock.
//!
//! The TSC's frequency comes from the hypervisor or the CPU if they report it, otherwise it is
//! measured ([`rates`]), for a first time when the kernel starts and better when it has started
//! ([`settle`]).

mod rates;

pub use crate::clock::{
    bend, is_bent, monotonic_ns, raw_ns, realtime_ns, set_realtime, step_realtime, tsc,
};
pub(crate) use rates::start_beat;

use core::sync::atomic::{AtomicU64, Ordering};

use x86_64::instructions::port::Port;

use crate::clock::{self, CLOCK};
use crate::cpu::{self, Word, features};
use crate::{apic, info, per_cpu};

static TSC_HZ: AtomicU64 = AtomicU64::new(1_000_000_000);
/// Ticks of the APIC timer per nanosecond, times 2^32.
static APIC_SCALE: AtomicU64 = AtomicU64::new(1 << 32);

/// What [`WOKEN`] has while this CPU sleeps.
const ASLEEP: u64 = 0;

per_cpu! {
    /// The deadline that this CPU's timer is programmed for (monotonic ns; MAX: none).
    static PROGRAMMED: Word = Word::new(u64::MAX);
    /// When the interrupt came that ended this CPU's last sleep (monotonic ns), or [`ASLEEP`].
    static WOKEN: Word = Word::new(u64::MAX);
}

/// Returns the TSC's frequency in Hz.
pub fn tsc_hz() -> u64 {
    TSC_HZ.load(Ordering::Relaxed)
}

/// Requests a call of the timer handler on this CPU at `deadline` (monotonic ns) or soon after,
/// unless the timer is already set to an earlier time. The handler must set the timer again for
/// later deadlines: the timer may also fire too early.
#[inline]
pub fn set_timer_before(deadline: u64) {
    if deadline < PROGRAMMED.get() {
        program(deadline);
    }
}

fn program(deadline: u64) {
    PROGRAMMED.set(deadline);
    let now = monotonic_ns();
    let wait = clock::to_raw(deadline.saturating_sub(now));
    if features().tsc_deadline {
        const DEADLINE: u32 = 0x6e0;
        let scale = u128::from(CLOCK.scale.load(Ordering::Relaxed)).max(1);
        let ticks = ((u128::from(wait) << 32) / scale).min(1 << 60) as u64;
        // SAFETY: CPUID lists the register. The fence orders the write after the setting of the
        // APIC's mode.
        unsafe {
            core::arch::asm!("mfence", "lfence", options(nostack, preserves_flags));
            cpu::write_msr(DEADLINE, tsc().saturating_add(ticks.max(1)));
        }
    } else {
        let ticks = (u128::from(wait) * u128::from(APIC_SCALE.load(Ordering::Relaxed))) >> 32;
        apic::set_count(ticks.clamp(1, u128::from(u32::MAX)) as u32);
    }
}

/// Programs this CPU's timer again for the same deadline, after the clock's rate has changed.
pub fn program_again() {
    match PROGRAMMED.get() {
        u64::MAX => {}
        deadline => program(deadline),
    }
}

/// Halts until an interrupt has been taken. Returns with interrupts off again, and says when the
/// first interrupt came (monotonic ns): to serve it was no sleep.
pub fn sleep() -> u64 {
    WOKEN.set(ASLEEP);
    cpu::wait_for_interrupt();
    // An NMI or the like ends a sleep, too, and is not noted.
    note_wakening();
    WOKEN.get()
}

/// Notes that an interrupt came while the kernel ran; so it may have slept.
#[inline]
pub(crate) fn note_wakening() {
    if WOKEN.get() == ASLEEP {
        WOKEN.set(monotonic_ns().max(1));
    }
}

/// Notes that the timer interrupt came: nothing is programmed any more.
pub(crate) fn timer_fired() {
    PROGRAMMED.set(u64::MAX);
}

/// Waits `ns` nanoseconds, spinning.
pub fn spin_ns(ns: u64) {
    let end = monotonic_ns() + ns;
    while monotonic_ns() < end {
        crate::sync::relax();
    }
}

/// Finds the clocks' rates and reads the real-time clock. Monotonic time begins where the time
/// stamp counter was at `origin`.
pub(crate) fn init(origin: u64) {
    let rates::Rates { tsc: hz, apic: apic_hz } = rates::find();
    TSC_HZ.store(hz, Ordering::Relaxed);
    clock::start(origin, hz);
    APIC_SCALE.store(scale(apic_hz), Ordering::Relaxed);
    if let Some(seconds) = read_rtc() {
        set_realtime(seconds * 1_000_000_000);
    }
    if !rates::is_to_settle() {
        tell(hz, apic_hz);
    }
}

fn tell(tsc: u64, apic: u64) {
    info!("time: TSC {} kHz, APIC timer {} kHz", tsc / 1000, apic / 1000);
}

/// Sets the clocks to rates that are better known by now. Called once at boot, on the first CPU,
/// before any program reads a clock.
pub fn settle() {
    let Some(rates) = rates::settle() else { return };
    TSC_HZ.store(rates.tsc, Ordering::Relaxed);
    clock::correct(rates.tsc);
    APIC_SCALE.store(scale(rates.apic), Ordering::Relaxed);
    match PROGRAMMED.get() {
        // The timer ran for the measurement.
        u64::MAX => apic::set_count(0),
        deadline => program(deadline),
    }
    tell(rates.tsc, rates.apic);
}

/// Returns the ticks of a timer per nanosecond, times 2^32.
fn scale(hz: u64) -> u64 {
    ((u128::from(hz) << 32) / 1_000_000_000) as u64
}

/// Reads the CMOS clock (MC146818), taken as UTC. `None` if there is none.
fn read_rtc() -> Option<u64> {
    let read = |register: u8| {
        // SAFETY: the CMOS index and data ports; NMI stays enabled (bit 7 clear).
        unsafe {
            Port::<u8>::new(0x70).write(register);
            Port::<u8>::new(0x71).read()
        }
    };
    let sample = || [0u8, 2, 4, 7, 8, 9].map(read);
    let mut values;
    let mut patience = 1000;
    loop {
        while read(10) & 0x80 != 0 && patience > 0 {
            patience -= 1;
        }
        values = sample();
        if values == sample() || patience == 0 {
            break;
        }
        patience -= 1;
    }
    let mode = read(11);
    let binary =
        |value: u8| u64::from(if mode & 4 != 0 { value } else { (value >> 4) * 10 + (value & 15) });
    let mut hour = binary(values[2] & 0x7f);
    if mode & 2 == 0 {
        hour = hour % 12 + if values[2] & 0x80 != 0 { 12 } else { 0 };
    }
    let (second, minute) = (binary(values[0]), binary(values[1]));
    let (day, month, year) = (binary(values[3]), binary(values[4]), binary(values[5]) + 2000);
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) || hour > 23 || minute > 59 {
        return None;
    }
    // Days from the civil date (Howard Hinnant's algorithm), year counted from March.
    let (y, m) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = 365 * y + y / 4 - y / 100 + y / 400 + (153 * m + 2) / 5 + day - 1 - 719_468;
    Some(((days * 24 + hour) * 60 + minute) * 60 + second)
}
