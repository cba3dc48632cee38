//! The switch between flows of control in the kernel.
//!
//! A [`Context`] is a stopped flow of control: a kernel stack whose top words are the registers to
//! go on with. [`switch`] stops the current one and continues another. The saved stack pointer is
//! taken with an atomic exchange, so a context that is running (pointer 0) can never be continued
//! twice, whatever the scheduler does. And only the context on whose stack the caller stands can be
//! stopped: a stack pointer is never saved for a context whose stack it does not lie in.

use core::arch::naked_asm;
use core::mem::size_of;
use core::sync::atomic::{AtomicU64, Ordering};

use crate::cpu;
use crate::stack::{KernelStack, STACK_SIZE};
use crate::trap::UserRegs;

/// A flow of control in the kernel with its stack.
#[derive(Debug)]
pub struct Context {
    /// The stack pointer to continue with; 0 while running.
    saved: AtomicU64,
    /// None: the flow the CPU was started with, on its boot stack (the idle loop).
    stack: Option<KernelStack>,
}

/// What [`switch`] pushes, in ascending order.
#[repr(C)]
struct SwitchFrame {
    r15: u64,
    r14: u64,
    r13: u64,
    r12: u64,
    rbx: u64,
    rbp: u64,
    resume: u64,
}

impl Context {
    /// The flow that runs now, for a CPU's idle loop.
    pub fn running() -> Context {
        Context { saved: AtomicU64::new(0), stack: None }
    }

    /// A context that first calls `arrived`, then goes to user mode with `regs` (after the
    /// attention check).
    pub fn for_user(stack: KernelStack, regs: &UserRegs, arrived: extern "C" fn()) -> Context {
        // At a multiple of 16: `arrived` is called with the stack there.
        let frame = (stack.top() - size_of::<UserRegs>() as u64) & !15;
        let switch = frame - size_of::<SwitchFrame>() as u64;
        // The way out of ring 0's frames sets the segments to what the mode is then; the other one
        // takes them from the frame.
        let mut first = regs.copied();
        first.make_users();
        // SAFETY: both frames lie within the new stack, which is nobody's yet.
        unsafe {
            (frame as *mut UserRegs<'static>).write(first);
            (switch as *mut SwitchFrame).write(SwitchFrame {
                r15: 0,
                r14: 0,
                r13: 0,
                r12: 0,
                rbx: arrived as usize as u64,
                rbp: 0,
                resume: if regs.cs == u64::from(cpu::KERNEL_CS) {
                    crate::trap::supervisor_start_address()
                } else {
                    crate::trap::user_start_address()
                },
            });
        }
        Context { saved: AtomicU64::new(switch), stack: Some(stack) }
    }

    /// A context that first calls `arrived`, then `entry(argument)`, which must not return.
    pub fn for_kernel(
        stack: KernelStack,
        entry: extern "C" fn(usize) -> !,
        argument: usize,
        arrived: extern "C" fn(),
    ) -> Context {
        // 16 bytes for the null return address that ends backtraces.
        let switch = stack.top() - 16 - size_of::<SwitchFrame>() as u64;
        // SAFETY: within the new stack, which is nobody's yet.
        unsafe {
            ((stack.top() - 16) as *mut [u64; 2]).write([0; 2]);
            (switch as *mut SwitchFrame).write(SwitchFrame {
                r15: 0,
                r14: 0,
                r13: argument as u64,
                r12: entry as usize as u64,
                rbx: arrived as usize as u64,
                rbp: 0,
                resume: kernel_start as *const () as u64,
            });
        }
        Context { saved: AtomicU64::new(switch), stack: Some(stack) }
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        if self.stack.is_some() && *self.saved.get_mut() == 0 {
            panic!("a running context was dropped");
        }
    }
}

#[unsafe(naked)]
extern "C" fn kernel_start() {
    naked_asm!("call rbx", "mov rdi, r13", "call r12", "ud2");
}

/// Stops the current flow into `from` and continues `to`. Returns when somebody switches back.
///
/// # Panics
/// If `to` is running, or `from` has a stack and is not what runs here.
#[inline]
pub fn switch(from: &Context, to: &Context) {
    if let Some(stack) = &from.stack {
        let below = stack.top().wrapping_sub(stack_pointer());
        assert!(below <= STACK_SIZE as u64, "a context stopped that does not run here");
    }
    let next = to.saved.swap(0, Ordering::Acquire);
    assert!(next != 0, "switch to a context that is running");
    // One without a stack of its own never enters a program. If it did, the entry from there would
    // have no stack and end in a double fault, and not on the stack of another.
    cpu::set_kernel_stack(to.stack.as_ref().map_or(0, KernelStack::top));
    // SAFETY: `next` was saved by this function or built by `for_user`/`for_kernel`, and the
    // exchange above made it ours alone. What is saved for `from` is where the caller stands, which
    // is `from`'s own stack or, for one without, the stack that goes on when it is continued. After
    // the store of `from`'s pointer this stack is not touched until it is continued.
    unsafe { switch_stacks(&from.saved, next) };
}

#[inline(always)]
fn stack_pointer() -> u64 {
    let here;
    // SAFETY: reads a register.
    unsafe {
        core::arch::asm!("mov {}, rsp", out(reg) here, options(nomem, nostack, preserves_flags));
    }
    here
}

#[unsafe(naked)]
unsafe extern "C" fn switch_stacks(from: *const AtomicU64, to: u64) {
    naked_asm!(
        "push rbp",
        "push rbx",
        "push r12",
        "push r13",
        "push r14",
        "push r15",
        "mov [rdi], rsp",
        "mov rsp, rsi",
        "pop r15",
        "pop r14",
        "pop r13",
        "pop r12",
        "pop rbx",
        "pop rbp",
        "ret",
    );
}
