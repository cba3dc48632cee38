//! The rates of the clocks: reported by the hypervisor or processor, or measured against a clock
//! whose rate is known.
//!
//! The reference is the ACPI PM timer, or the PIT where there is none. An overcommitted host stops
//! this CPU at any time, for milliseconds. So the order of readings alone does not make them
//! reliable. Each [`Moment`] reads all clocks between two readings of the TSC, and counts only if
//! these are as close together as possible. A stop between two moments then does no harm, because
//! both ends are exact and the division uses the time that really passed. A PIT that ran through
//! its 55 ms meanwhile shows that by its output bit. Finally two neighbouring intervals must agree
//! before the interval that they form together is used.
//!
//! A good measurement takes 5 ms. With the PM timer, which runs on by itself, the boot does not
//! wait for it: the first measurement takes [`FAST`], good enough for a kernel that starts, and
//! [`settle`] reads the clocks once more at the end of the boot, which measures the whole time
//! between. (Linux does the same with a second between, `tsc_refine_calibration_work`.)
//!
//! The time spent is bounded: some 5 ms when nothing disturbs, [`ATTEMPTS`] times the PIT's 55 ms
//! at worst.

use core::arch::x86_64::__cpuid as cpuid;

use x86_64::instructions::port::Port;

use crate::clock::tsc;
use crate::cpu::{self, features};
use crate::layout::DIRECT_MAP;
use crate::sync::SpinLock;
use crate::{apic, kernel_tables};

/// Ticks per second.
#[derive(Clone, Copy)]
pub(super) struct Rates {
    /// Of the time stamp counter.
    pub(super) tsc: u64,
    /// Of the local APIC's timer.
    pub(super) apic: u64,
}

/// Finds the rates of this machine's clocks.
pub(super) fn find() -> Rates {
    let announced = announced_hz().or_else(paravirtual_hz);
    // The rate of a timer that is set in units of the TSC is not needed.
    let measured = if announced.is_some() && features().tsc_deadline { None } else { measure() };
    let tsc = announced
        .or(measured.as_ref().map(|rates| rates.tsc))
        .filter(|hz| *hz > 50_000_000)
        .unwrap_or(1_000_000_000);
    let apic = measured.map_or(1_000_000_000, |rates| rates.apic.max(1));
    Rates { tsc: round(tsc), apic: round(apic) }
}

/// Returns the frequency that a hypervisor (leaf 0x40000010, in kHz) or the CPU (leaf 0x15)
/// reports.
fn announced_hz() -> Option<u64> {
    if features().hypervisor && cpuid(0x4000_0000).eax >= 0x4000_0010 {
        let khz = cpuid(0x4000_0010).eax;
        if khz != 0 {
            return Some(u64::from(khz) * 1000);
        }
    }
    if cpuid(0).eax >= 0x15 {
        let leaf = cpuid(0x15);
        if leaf.eax != 0 && leaf.ebx != 0 && leaf.ecx != 0 {
            return Some(u64::from(leaf.ecx) * u64::from(leaf.ebx) / u64::from(leaf.eax));
        }
    }
    None
}

/// How often a disturbed measurement is repeated.
const ATTEMPTS: u32 = 8;
/// Two neighbouring intervals agree when they differ by less than one part in this.
const AGREEMENT: u64 = 128;
/// TSC ticks after which a wait for an event is given up: half a second or more.
const PATIENCE: u64 = 1 << 31;

/// The interval that two of make up a measurement, in fractions of a second.
const GOOD: u64 = 400;
/// The same for a first measurement, which [`settle`] improves later.
const FAST: u64 = 4000;

/// A clock whose rate is known, which can be started within microseconds.
trait Reference {
    /// Ticks per second.
    const HZ: u64;
    /// Starts the clock at 0.
    fn start(&mut self);
    /// Returns the ticks since the start. `None` when there is no such clock or it has run out.
    fn read(&mut self) -> Option<u32>;
}

/// Channel 0 of the PIT, which counts down from 65535 once. (Channel 2 would be the customary one,
/// but its gate is at port 0x61, which microvm does not have; channel 0's interrupt is not
/// connected.)
struct Pit {
    command: Port<u8>,
    counter: Port<u8>,
}

impl Reference for Pit {
    const HZ: u64 = 1_193_182;

    fn start(&mut self) {
        // SAFETY: the PIT's ports; nothing else uses it. Mode 0, both bytes of the count.
        unsafe {
            self.command.write(0b0011_0000);
            self.counter.write(u8::MAX);
            self.counter.write(u8::MAX);
        }
    }

    fn read(&mut self) -> Option<u32> {
        // The read-back command latches status and count of channel 0 at one moment.
        const READ_BACK: u8 = 0b1100_0010;
        // The output is high once the count has run out, and where there is no PIT.
        const OUTPUT: u8 = 1 << 7;
        // The count written has not reached the counter yet.
        const NULL_COUNT: u8 = 1 << 6;
        // SAFETY: as above. Status comes first, then the count's low and high byte.
        let (status, count) = unsafe {
            self.command.write(READ_BACK);
            let status = self.counter.read();
            (status, u16::from(self.counter.read()) | u16::from(self.counter.read()) << 8)
        };
        match status {
            _ if status & OUTPUT != 0 => None,
            _ if status & NULL_COUNT != 0 => Some(0),
            _ => Some(u32::from(u16::MAX - count)),
        }
    }
}

/// Makes channel 0 of the PIT repeat for ever: an edge of ISA interrupt 0 every 55 ms. Has no
/// effect on a machine without a PIT.
pub(crate) fn start_beat() {
    // SAFETY: the PIT's ports, which nothing else uses once the rates are known. Mode 2, both bytes
    // of the count; 0 stands for 65536.
    unsafe {
        Port::<u8>::new(0x43).write(0b0011_0100);
        let mut counter = Port::<u8>::new(0x40);
        counter.write(0);
        counter.write(0);
    }
}

/// The ACPI PM timer, 24 bits of which count on every machine: 4.7 seconds.
struct PmTimer {
    port: Port<u32>,
    origin: u32,
}

impl PmTimer {
    fn count(&mut self) -> u32 {
        // SAFETY: the port that the FADT named; reading has no effect.
        unsafe { self.port.read() & 0xff_ffff }
    }
}

impl Reference for PmTimer {
    const HZ: u64 = 3_579_545;

    fn start(&mut self) {
        self.origin = self.count();
    }

    fn read(&mut self) -> Option<u32> {
        Some(self.count().wrapping_sub(self.origin) & 0xff_ffff)
    }
}

/// The readings of all clocks at one moment.
#[derive(Clone, Copy)]
struct Moment {
    reference: u32,
    tsc: u64,
    apic: u32,
    /// How long reading all the clocks took, in ticks of the TSC.
    width: u64,
}

impl Moment {
    fn now(clock: &mut impl Reference) -> Option<Self> {
        let before = tsc();
        let reference = clock.read()?;
        let apic = apic::current_count();
        let width = tsc().saturating_sub(before);
        Some(Self { reference, tsc: before + width / 2, apic, width })
    }

    /// Returns the one of some moments that was read most quickly.
    fn best(clock: &mut impl Reference) -> Option<Self> {
        let mut best = Self::now(clock)?;
        for _ in 0..48 {
            let next = Self::now(clock)?;
            if next.width < best.width {
                best = next;
            }
        }
        Some(best)
    }

    /// Returns the first moment that was read quickly, right after a tick of the reference, with
    /// the reference at `earliest` or later.
    fn exact(clock: &mut impl Reference, earliest: u32, quick: u64) -> Option<Self> {
        let begin = tsc();
        let mut last = Self::now(clock)?;
        while tsc().saturating_sub(begin) < PATIENCE {
            let next = Self::now(clock)?;
            // Both readings were quick: the tick was between them and not long ago.
            let exact = next.width <= quick && next.tsc.saturating_sub(last.tsc) <= 2 * quick;
            if exact && next.reference >= earliest && next.reference != last.reference {
                return Some(next);
            }
            last = next;
        }
        None
    }
}

/// Returns the rates between two moments.
fn between<R: Reference>(_: &R, from: &Moment, to: &Moment) -> Option<Rates> {
    let passed = u64::from(to.reference.checked_sub(from.reference)?);
    let tsc = to.tsc.checked_sub(from.tsc)?;
    let apic = u64::from(from.apic.checked_sub(to.apic)?);
    let rate = |count: u64| count.checked_mul(R::HZ)?.checked_div(passed);
    Some(Rates { tsc: rate(tsc)?, apic: rate(apic)? })
}

/// One attempt at a measurement of two intervals, in fractions of a second; `None` when it was
/// disturbed.
fn attempt<R: Reference>(clock: &mut R, fraction: u64) -> Option<Rates> {
    clock.start();
    // The time of a quick reading. The first ones are slower: an emulator translates the code.
    let mut quick = u64::MAX;
    for _ in 0..16 {
        quick = quick.min(Moment::now(clock)?.width);
    }
    let quick = quick * 2;
    let interval = (R::HZ / fraction) as u32;
    let mut first = Moment::exact(clock, 0, quick)?;
    let mut second = Moment::exact(clock, first.reference + interval, quick)?;
    loop {
        let third = Moment::exact(clock, second.reference + interval, quick)?;
        let (one, two) = (between(clock, &first, &second)?, between(clock, &second, &third)?);
        let agree = |a: u64, b: u64| a.abs_diff(b) <= a / AGREEMENT;
        if agree(one.tsc, two.tsc) && agree(one.apic, two.apic) {
            return between(clock, &first, &third);
        }
        (first, second) = (second, third);
    }
}

fn attempts(clock: &mut impl Reference, fraction: u64) -> Option<Rates> {
    (0..ATTEMPTS).find_map(|_| {
        apic::set_count(u32::MAX);
        attempt(clock, fraction)
    })
}

/// Rates that were measured fast, which [`settle`] is to improve.
struct Fast {
    clock: PmTimer,
    rates: Rates,
    /// A moment after the measurement; the APIC's timer runs on.
    since: Moment,
}

static FAST_RATES: SpinLock<Option<Fast>> = SpinLock::new(None);

fn measure() -> Option<Rates> {
    if let Some(port) = crate::acpi::info().pm_timer {
        let mut clock = PmTimer { port: Port::new(port), origin: 0 };
        if let Some(rates) = attempts(&mut clock, FAST)
            && let Some(since) = Moment::best(&mut clock)
        {
            *FAST_RATES.lock() = Some(Fast { clock, rates, since });
            return Some(rates);
        }
    }
    let mut clock = Pit { command: Port::new(0x43), counter: Port::new(0x40) };
    let rates = attempts(&mut clock, GOOD);
    apic::set_count(0);
    rates
}

/// Whether the rates were measured only fast.
pub(super) fn is_to_settle() -> bool {
    FAST_RATES.lock().is_some()
}

/// Returns good rates if they were measured only fast: by reading the clocks once more, or by
/// another measurement if too much or too little time has passed. The APIC's timer is left running.
pub(super) fn settle() -> Option<Rates> {
    let Fast { mut clock, rates, since } = FAST_RATES.lock().take()?;
    let agree = |a: u64, b: u64| a.abs_diff(b) <= a / AGREEMENT;
    // At least the time of a good measurement, and less than in which the PM timer overflows.
    let passed = tsc().saturating_sub(since.tsc);
    let known = (rates.tsc / GOOD * 2..rates.tsc * 4)
        .contains(&passed)
        .then(|| Moment::best(&mut clock).and_then(|now| between(&clock, &since, &now)))
        .flatten()
        // The APIC's timer was started anew meanwhile if it does not agree.
        .filter(|known| agree(known.tsc, rates.tsc) && agree(known.apic, rates.apic))
        .or_else(|| attempts(&mut clock, GOOD))?;
    Some(Rates { tsc: round(known.tsc), apic: round(known.apic.max(1)) })
}

/// Returns the TSC's frequency from KVM's clock page (Linux Documentation/virt/kvm/x86/msr.rst):
/// the page gives ns = (tsc << shift) * multiplier >> 32.
fn paravirtual_hz() -> Option<u64> {
    const SYSTEM_TIME_NEW: u32 = 0x4b56_4d01;
    let leaf = cpuid(0x4000_0000);
    // "KVMKVMKVM", and the feature bit of the MSR.
    if !features().hypervisor
        || (leaf.ebx, leaf.ecx, leaf.edx) != (0x4b4d_564b, 0x564b_4d56, 0x0000_004d)
        || cpuid(0x4000_0001).eax & 1 << 3 == 0
    {
        return None;
    }
    let page = kernel_tables::early_frame()?;
    // SAFETY: KVM has the register. Until the register is cleared, KVM writes into the frame, which
    // stays set aside. The fields are at fixed offsets of the frame.
    let (multiplier, shift) = unsafe {
        cpu::write_msr(SYSTEM_TIME_NEW, page | 1);
        let record = (DIRECT_MAP + page as usize) as *const u8;
        let multiplier = record.add(24).cast::<u32>().read_volatile();
        let shift = record.add(28).cast::<i8>().read_volatile();
        cpu::write_msr(SYSTEM_TIME_NEW, 0);
        (multiplier, shift)
    };
    if multiplier == 0 || !(-31..32).contains(&shift) {
        return None;
    }
    let hz = (1_000_000_000u64 << 32) / u64::from(multiplier);
    Some(if shift >= 0 { hz >> shift } else { hz << -shift })
}

/// Rounds a measured rate that is within 50 millionths of a multiple of 1 MHz to that multiple:
/// emulated clocks run at round rates, and counted instructions at exactly 1 GHz.
fn round(hz: u64) -> u64 {
    let whole = (hz + 500_000) / 1_000_000 * 1_000_000;
    if hz.abs_diff(whole) <= hz / 20_000 { whole.max(1) } else { hz }
}
