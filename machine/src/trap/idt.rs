//! The interrupt descriptor tables: two for all CPUs, constant after boot.
//!
//! The second table is loaded while a space in supervisor mode is loaded. In it every vector has an
//! interrupt stack and stubs of its own, so that spaces in user mode pay nothing for supervisor
//! mode.

use core::arch::asm;
use core::cell::UnsafeCell;

use super::{entry, guard, supervisor};
use crate::cpu;

struct Table(UnsafeCell<[[u64; 2]; 256]>);
// SAFETY: written by `init` on the first CPU before any other runs, only read afterwards.
unsafe impl Sync for Table {}

static TABLE: Table = Table(UnsafeCell::new([[0; 2]; 256]));
static SUPERVISOR: Table = Table(UnsafeCell::new([[0; 2]; 256]));

unsafe extern "C" {
    fn hayate_double_fault();
    fn hayate_machine_check();
    fn hayate_nmi();
    fn hayate_debug();
    fn hayate_supervisor_debug();
    fn hayate_supervisor_nmi();
}

fn gate(address: u64, stack: u8, privilege: u64) -> [u64; 2] {
    let low = address & 0xffff
        | u64::from(cpu::KERNEL_CS) << 16
        | u64::from(stack) << 32
        | (0x8e | privilege << 5) << 40
        | (address >> 16 & 0xffff) << 48;
    [low, address >> 32]
}

/// Fills the tables and loads the first one; called once, on the first CPU.
pub(crate) fn init() {
    let mut table = [[0; 2]; 256];
    for (vector, entry) in table.iter_mut().enumerate() {
        // Breakpoint and overflow may be raised by a program's instruction.
        let privilege = if vector == 3 || vector == 4 { 3 } else { 0 };
        *entry = gate(entry::vector_address(vector as u8), 0, privilege);
    }
    table[1] = gate(hayate_debug as *const () as u64, cpu::DEBUG_IST, 0);
    table[2] = gate(hayate_nmi as *const () as u64, cpu::FATAL_IST, 0);
    table[8] = gate(hayate_double_fault as *const () as u64, cpu::DOUBLE_FAULT_IST, 0);
    table[18] = gate(hayate_machine_check as *const () as u64, cpu::FATAL_IST, 0);
    // SAFETY: no other CPU runs yet and no interrupt is on.
    unsafe { TABLE.0.get().write(table) };
    for (vector, entry) in table.iter_mut().enumerate() {
        if !matches!(vector, 1 | 2 | 8 | 18) {
            let privilege = if vector == 3 || vector == 4 { 3 } else { 0 };
            let stub = supervisor::vector_address(vector as u8);
            *entry = gate(stub, cpu::SUPERVISOR_IST, privilege);
        }
    }
    table[1] = gate(hayate_supervisor_debug as *const () as u64, cpu::DEBUG_IST, 0);
    table[2] = gate(hayate_supervisor_nmi as *const () as u64, cpu::FATAL_IST, 0);
    // SAFETY: as above.
    unsafe { SUPERVISOR.0.get().write(table) };
    load();
}

/// Loads the table of user mode on this CPU.
pub(crate) fn load() {
    load_table(&TABLE);
}

/// Loads the interrupt table and the entry of system calls for a mode on this CPU.
pub(super) fn load_entries(supervisor: bool) {
    let entry = if supervisor { supervisor::syscall_address() } else { entry::syscall_address() };
    load_table(if supervisor { &SUPERVISOR } else { &TABLE });
    // SAFETY: the register exists on every 64-bit CPU; the value is an entry stub's address.
    unsafe { cpu::write_msr(guard::LSTAR, entry) };
    guard::forget();
}

/// Replaces `clac` in the stubs by a nop, before the kernel's text becomes read-only.
///
/// # Safety
/// The text must be writable, and no other CPU may run.
pub(crate) unsafe fn patch_out_clac() {
    for vector in 0..=255u8 {
        for stub in [entry::vector_address(vector), supervisor::vector_address(vector)] {
            // SAFETY: the first three bytes of each stub are `clac`; 0f 1f 00 is a three-byte nop.
            unsafe { (stub as *mut [u8; 3]).write([0x0f, 0x1f, 0x00]) };
        }
    }
}

fn load_table(table: &Table) {
    let mut pointer = [0u16; 5];
    let base = table.0.get() as u64;
    pointer[0] = 4095;
    for i in 0..4 {
        pointer[1 + i] = (base >> (16 * i)) as u16;
    }
    // SAFETY: the table lives for ever.
    unsafe { asm!("lidt [{}]", in(reg) &raw const pointer, options(readonly, nostack)) };
}
