//! The entry of system calls that are looked at first.
//!
//! The usual entry tests nothing, so a processor that runs a *guarded* execution uses another one:
//! its stub calls the guard ([`set_guard`]), and serves the call only if the guard has not settled
//! it. The attention bit [`GUARDED`](crate::attention::GUARDED) belongs to an execution and stays
//! set while it runs. So every return to its program that does not come from this very stub passes
//! the attention handler, which loads the entry into the processor's register ([`load`]) if it is
//! not there. No switch of contexts does anything for that: a program without a guard that runs
//! here afterwards comes to this stub once, which puts the usual entry back ([`release`]).
//!
//! A guarded call is served like any other behind the stub, and goes back by `sysret` if the bit is
//! all that wants attention and the entry is still loaded.
//!
//! Supervisor mode has an entry of its own, and guards nothing: the kernel lets no guarded program
//! into it.

use core::sync::atomic::{AtomicPtr, Ordering};

use super::calls::CALLS;
use super::regs::UserRegs;
use crate::attention;
use crate::cpu::{self, Half};

frame_asm!(
    r#"
.text
.balign 64
.globl hayate_guarded_entry
hayate_guarded_entry:
"#,
    build_call_frame!("user_ds", "user_cs"),
    r#"
    test dword ptr gs:[hayate_attention], {guarded}
    jz 8f
    call [hayate_guard]
    test al, al
    jnz 9f
    mov rdi, rsp
    mov rax, [rsp + {at_orig_rax}]
    cmp rax, {calls}
    jae 7f
    call [hayate_calls + rax*8]
    mov [rsp + {at_rax}], rax
    jmp 6f
7:  call hayate_call_any
    jmp 6f
9:  mov rax, [rsp + {at_rax}]
6:  cmp dword ptr gs:[hayate_attention], {guarded}
    jne hayate_slow_exit
    cmp dword ptr gs:[hayate_guarding], {guarding}
    je hayate_fast_exit
    jmp hayate_slow_exit
8:  call {release}
    mov rdi, rsp
    mov rax, [rsp + {at_orig_rax}]
    jmp hayate_unguarded_call
"#,
    guarded = const attention::GUARDED,
    guarding = const GUARDING,
    calls = const CALLS,
    user_ds = const cpu::USER_DS as u64,
    user_cs = const cpu::USER_CS as u64,
    release = sym release,
);

unsafe extern "C" {
    fn hayate_guarded_entry();
    // Defined by `entry`.
    fn hayate_syscall_entry();
}

/// The register that holds where `syscall` goes.
pub(super) const LSTAR: u32 = 0xc000_0082;

crate::per_cpu! {
    /// Which entry this processor has: [`USUAL`], or another one that a return to a program loaded.
    // SAFETY: the symbol is named by the stub only.
    #[unsafe(export_name = "hayate_guarding")]
    static ENTRY: Half = Half::new(USUAL);
}

/// The entry of the mode of the space that is loaded.
const USUAL: u32 = 0;
/// The entry here.
const GUARDING: u32 = 1;
/// The entry of `super::traced`.
pub(super) const TRACING: u32 = 2;

/// The guard that the stub calls.
// SAFETY: the name is the stub's; no other symbol has it.
#[unsafe(export_name = "hayate_guard")]
static GUARD: AtomicPtr<()> = AtomicPtr::new(no_guard as *mut ());

extern "C" fn no_guard(_: &mut UserRegs) -> bool {
    false
}

/// Registers the function that looks at the calls of guarded executions. It returns whether the
/// call is settled; then the result is in the frame. It runs as the call itself would.
pub fn set_guard(guard: extern "C" fn(&mut UserRegs) -> bool) {
    GUARD.store(guard as *mut (), Ordering::Release);
}

/// Lets the guard look at a call that came by another entry. Returns whether it is settled.
pub(super) fn settles(regs: &mut UserRegs) -> bool {
    let guard = GUARD.load(Ordering::Acquire);
    // SAFETY: only `set_guard` stores here, and functions of this type alone; the first value is one.
    let guard: extern "C" fn(&mut UserRegs) -> bool = unsafe { core::mem::transmute(guard) };
    guard(regs)
}

/// Makes this processor's entry the one here, for a guarded program to which it returns.
#[cold]
pub(super) fn load() {
    set_entry(hayate_guarded_entry as *const () as u64, GUARDING);
}

/// Puts the usual entry back: what runs here is neither guarded nor traced.
pub(super) extern "C" fn release() {
    set_entry(hayate_syscall_entry as *const () as u64, USUAL);
}

/// Makes `address`, which is an entry's, the entry of user mode on this processor.
pub(super) fn set_entry(address: u64, which: u32) {
    if ENTRY.get() != which && !attention::is_supervisor() {
        // SAFETY: the register exists on every 64-bit CPU; the value is an entry stub's address.
        unsafe { cpu::write_msr(LSTAR, address) };
        ENTRY.set(which);
    }
}

/// Notes that the entry of a mode was loaded.
pub(super) fn forget() {
    ENTRY.set(USUAL);
}
