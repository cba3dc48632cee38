//! The local APIC (xAPIC by memory, x2APIC by MSR): timer, interprocessor interrupts, end of
//! interrupt.

use core::sync::atomic::{AtomicU32, Ordering};

use crate::cpu::{self, MAX_CPUS, features};
use crate::mmio::Registers;
use crate::sync::Once;

const BASE: u32 = 0x1b;
const X2APIC: u32 = 0x800;

const ID: usize = 0x20;
const TASK_PRIORITY: usize = 0x80;
const END: usize = 0xb0;
const SPURIOUS: usize = 0xf0;
const COMMAND: usize = 0x300;
const COMMAND_HIGH: usize = 0x310;
const TIMER: usize = 0x320;
const LINT0: usize = 0x350;
const LINT1: usize = 0x360;
const ERROR: usize = 0x370;
const INITIAL_COUNT: usize = 0x380;
const CURRENT_COUNT: usize = 0x390;
const DIVIDE: usize = 0x3e0;

/// Vectors of the machine layer itself; devices get [`FIRST_DEVICE`] to [`LAST_DEVICE`].
pub(crate) const TIMER_VECTOR: u8 = 0xf0;
pub(crate) const RESCHEDULE_VECTOR: u8 = 0xf1;
pub(crate) const SHOOTDOWN_VECTOR: u8 = 0xf2;
pub(crate) const SPURIOUS_VECTOR: u8 = 0xff;
pub(crate) const FIRST_DEVICE: u8 = 0x30;
pub(crate) const LAST_DEVICE: u8 = 0xef;

static REGISTERS: Once<Option<Registers>> = Once::new();
/// The APIC identifiers of the CPUs that were started.
static IDS: [AtomicU32; MAX_CPUS] = [const { AtomicU32::new(0) }; MAX_CPUS];

fn x2apic() -> bool {
    matches!(REGISTERS.get(), Some(None))
}

fn read(register: usize) -> u32 {
    match REGISTERS.get() {
        Some(Some(registers)) => registers.read(register),
        // SAFETY: x2APIC mode is on and the register exists in it.
        Some(None) => unsafe { cpu::read_msr(X2APIC + (register as u32 >> 4)) as u32 },
        None => 0,
    }
}

fn write(register: usize, value: u32) {
    match REGISTERS.get() {
        Some(Some(registers)) => registers.write(register, value),
        // SAFETY: as for `read`; the callers write values that the SDM (vol. 3, 11) allows.
        Some(None) => unsafe { cpu::write_msr(X2APIC + (register as u32 >> 4), value.into()) },
        None => {}
    }
}

/// Switches this CPU's APIC on. The first CPU decides between xAPIC and x2APIC.
pub(crate) fn init() {
    // SAFETY: every 64-bit CPU has the base register; bit 11 enables, bit 10 is x2APIC where
    // CPUID lists it.
    unsafe {
        let base = cpu::read_msr(BASE);
        // An x2APIC mode that firmware left on must not be turned off (SDM: a fault).
        let extended = features().x2apic;
        cpu::write_msr(BASE, base | 1 << 11 | if extended { 1 << 10 } else { 0 });
        REGISTERS.call_once(|| {
            if extended {
                None
            } else {
                Some(
                    Registers::map(base & 0x000f_ffff_ffff_f000, 4096)
                        .expect("no memory for the APIC"),
                )
            }
        });
    }
    write(TASK_PRIORITY, 0);
    write(LINT0, 1 << 16);
    write(LINT1, 4 << 8); // NMI
    write(ERROR, 1 << 16);
    write(SPURIOUS, 1 << 8 | u32::from(SPURIOUS_VECTOR));
    write(DIVIDE, 0b1011); // by 1
    write(TIMER, u32::from(TIMER_VECTOR) | if features().tsc_deadline { 2 << 17 } else { 0 });
}

/// Returns this CPU's APIC identifier.
pub fn local_id() -> u32 {
    if x2apic() { read(ID) } else { read(ID) >> 24 }
}

/// Starts the one-shot count; 0 stops it.
pub(crate) fn set_count(count: u32) {
    write(INITIAL_COUNT, count);
}

pub(crate) fn current_count() -> u32 {
    read(CURRENT_COUNT)
}

/// Sends an interprocessor interrupt: `command` is the low half of the command register.
pub(crate) fn send(target: u32, command: u32) {
    if x2apic() {
        let value = u64::from(target) << 32 | u64::from(command);
        // SAFETY: the x2APIC command register, with a command of the SDM's (vol. 3, 11.6.1).
        unsafe {
            // Earlier stores must be visible to the target: a WRMSR here does not order them.
            core::arch::asm!("mfence", "lfence", options(nostack, preserves_flags));
            cpu::write_msr(X2APIC + 0x30, value);
        }
    } else {
        while read(COMMAND) & 1 << 12 != 0 {
            core::hint::spin_loop();
        }
        write(COMMAND_HIGH, target << 24);
        write(COMMAND, command);
    }
}

/// Tells the APIC that the interrupt it delivered has been taken.
pub(crate) fn end_of_interrupt() {
    write(END, 0);
}

/// Notes CPU `cpu`'s APIC identifier.
pub(crate) fn set_id(cpu: usize, id: u32) {
    IDS[cpu].store(id, Ordering::Relaxed);
}

/// Returns CPU `cpu`'s APIC identifier.
pub(crate) fn id_of(cpu: usize) -> u32 {
    IDS.get(cpu).map_or(0, |id| id.load(Ordering::Relaxed))
}

/// Returns address and data of a message-signalled interrupt that raises `vector` on CPU `cpu`.
pub fn message(cpu: usize, vector: u8) -> (u64, u32) {
    (0xfee0_0000 | u64::from(id_of(cpu)) << 12, u32::from(vector))
}
