//! The other processors: each is started by INIT, start-up interrupt (SDM vol. 3, 9.4), and a
//! trampoline at [`TRAMPOLINE`] in the first MiB, which the boot code never hands out.
//!
//! CPUs are started one after the other, so the trampoline's parameters (stack, GS base) belong to
//! the CPU that is starting. It runs on the boot tables at first, which map low memory one to one.

use alloc::alloc::{Layout, alloc_zeroed};
use core::arch::global_asm;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::boot::boot_root;
use crate::cpu::{self, MAX_CPUS};
use crate::fpu_state;
use crate::layout::DIRECT_MAP;
use crate::stack::KernelStack;
use crate::{acpi, apic, kernel_tables, loader, time, trap, warn};

pub use crate::ipi::{look_again, reschedule, synchronise};
pub use crate::mailbox::poll;

/// Physical address of the trampoline; its page number is the start-up interrupt's vector.
const TRAMPOLINE: u64 = 0x8000;

global_asm!(
    r#"
.pushsection .rodata.trampoline, "a", @progbits
.globl hayate_trampoline
hayate_trampoline:
.code16
    cli
    cld
    xor eax, eax
    mov ds, ax
    lgdt [tr_gdt]
    mov eax, cr0
    or eax, 1
    mov cr0, eax
    // ljmp 8:2f
    .byte 0x66, 0xea
    .long tr_protected
    .word 8
.code32
hayate_tr_32:
    mov eax, 16
    mov ds, eax
    mov ss, eax
    mov eax, cr4
    or eax, 0x20
    mov cr4, eax
    mov eax, [tr_root]
    mov cr3, eax
    mov ecx, 0xc0000080
    rdmsr
    or eax, 0x900
    wrmsr
    mov eax, cr0
    or eax, 0x80010001
    and eax, 0x9fffffff      // caches on
    mov cr0, eax
    // ljmp 24:3f
    .byte 0xea
    .long tr_long
    .word 24
.code64
hayate_tr_64:
    mov rsp, [tr_stack]
    xor ebp, ebp
    mov rax, [tr_entry]
    call rax
    ud2
.balign 8
hayate_tr_gdt:
    .quad 0
    .quad 0x00cf9b000000ffff
    .quad 0x00cf93000000ffff
    .quad 0x00af9b000000ffff
hayate_tr_gdtr:
    .word 31
    .long tr_table
.balign 8
.globl hayate_trampoline_root
hayate_trampoline_root: .quad 0
.globl hayate_trampoline_stack
hayate_trampoline_stack: .quad 0
.globl hayate_trampoline_entry
hayate_trampoline_entry: .quad 0
.globl hayate_trampoline_end
hayate_trampoline_end:
.set tr_gdt, hayate_tr_gdtr - hayate_trampoline + {at}
.set tr_table, hayate_tr_gdt - hayate_trampoline + {at}
.set tr_protected, hayate_tr_32 - hayate_trampoline + {at}
.set tr_long, hayate_tr_64 - hayate_trampoline + {at}
.set tr_root, hayate_trampoline_root - hayate_trampoline + {at}
.set tr_stack, hayate_trampoline_stack - hayate_trampoline + {at}
.set tr_entry, hayate_trampoline_entry - hayate_trampoline + {at}
.code64
.popsection
"#,
    at = const TRAMPOLINE,
);

unsafe extern "C" {
    static hayate_trampoline: u8;
    static hayate_trampoline_root: u8;
    static hayate_trampoline_stack: u8;
    static hayate_trampoline_entry: u8;
    static hayate_trampoline_end: u8;
}

/// The parameters of the CPU that is starting: its number, its GS base, its main function.
static NUMBER: AtomicUsize = AtomicUsize::new(0);
static GS: AtomicUsize = AtomicUsize::new(0);
static MAIN: crate::sync::Once<fn() -> !> = crate::sync::Once::new();
static STARTED: AtomicBool = AtomicBool::new(false);

/// Stores `value` at the place of `symbol` in the trampoline's copy.
fn parameter(symbol: *const u8, value: u64) {
    let offset = symbol as u64 - &raw const hayate_trampoline as u64;
    let place = (DIRECT_MAP as u64 + TRAMPOLINE + offset) as *mut u64;
    // SAFETY: within the trampoline's page, which the boot code keeps for it.
    unsafe { place.write_volatile(value) };
}

/// Starts the other CPUs; each calls `main` when it is set up. Returns how many CPUs run then. A
/// CPU that does not come up within a second is left out. Only the first call starts CPUs: running
/// CPUs must not be started again.
pub fn start_others(main: fn() -> !) -> usize {
    static CALLED: AtomicBool = AtomicBool::new(false);
    if CALLED.swap(true, Ordering::SeqCst) {
        return cpu::count();
    }
    let me = apic::local_id();
    apic::set_id(0, me);
    MAIN.call_once(|| main);
    let limit = loader::option("maxcpus").and_then(|text| text.parse().ok()).unwrap_or(MAX_CPUS);
    let others = acpi::info().cpus.iter().copied().filter(|id| *id != me);
    let mut copied = false;
    for id in others.take(limit.clamp(1, MAX_CPUS) - 1) {
        if !copied {
            let start = &raw const hayate_trampoline;
            let length = &raw const hayate_trampoline_end as usize - start as usize;
            // SAFETY: the page at TRAMPOLINE is kept for this; the code is shorter than a page.
            unsafe {
                core::ptr::copy_nonoverlapping(
                    start,
                    (DIRECT_MAP + TRAMPOLINE as usize) as *mut u8,
                    length,
                );
            }
            // SAFETY: this processor has left the boot tables, and no other has been started.
            unsafe { kernel_tables::share_half(boot_root()) };
            parameter(&raw const hayate_trampoline_root, boot_root());
            parameter(&raw const hayate_trampoline_entry, other_start as *const () as u64);
            copied = true;
        }
        if !start_one(cpu::count(), id) {
            warn!("CPU with APIC id {id} did not start");
        }
    }
    cpu::count()
}

fn start_one(number: usize, id: u32) -> bool {
    let Ok(layout) = Layout::from_size_align(cpu::area_size(), 64) else { return false };
    // SAFETY: the layout is not empty.
    let area = unsafe { alloc_zeroed(layout) };
    let Some(stack) = KernelStack::new().filter(|_| !area.is_null()) else { return false };
    parameter(&raw const hayate_trampoline_stack, stack.top());
    // The CPU idles on it for ever. (A CPU that did not start in time may still start later.)
    core::mem::forget(stack);
    // SAFETY: fresh memory that is never freed.
    GS.store(unsafe { cpu::prepare_area(area, number) }, Ordering::SeqCst);
    NUMBER.store(number, Ordering::SeqCst);
    STARTED.store(false, Ordering::SeqCst);
    apic::set_id(number, id);
    const INIT: u32 = 5 << 8 | 1 << 14;
    const START_UP: u32 = 6 << 8 | 1 << 14;
    apic::send(id, INIT);
    time::spin_ns(10_000);
    for wait in [100_000_000, 900_000_000] {
        apic::send(id, START_UP | (TRAMPOLINE >> 12) as u32);
        let end = time::monotonic_ns() + wait;
        while time::monotonic_ns() < end {
            if STARTED.load(Ordering::SeqCst) {
                return true;
            }
            core::hint::spin_loop();
        }
    }
    false
}

/// The first Rust code on another CPU, on its own stack and still on the boot tables.
extern "C" fn other_start() -> ! {
    let number = NUMBER.load(Ordering::SeqCst);
    // SAFETY: the area was prepared for this CPU.
    unsafe { cpu::set_gs_base(GS.load(Ordering::SeqCst)) };
    trap::load_idt();
    cpu::init_features();
    cpu::init_descriptors();
    kernel_tables::activate();
    apic::init();
    trap::init_syscalls();
    fpu_state::init();
    cpu::set_online(number);
    STARTED.store(true, Ordering::SeqCst);
    match MAIN.get() {
        Some(main) => main(),
        None => cpu::stop(),
    }
}
