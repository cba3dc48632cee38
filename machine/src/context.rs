//! The context switch in the kernel, and what belongs to each context.
//!
//! A [`Context`] is a stopped flow of control: a kernel stack whose top words are the registers to
//! continue with. It is a part of its *owner* (the kernel's execution), may work for a *principal*
//! (the thread) in an object that the principal's [`ObjectCell`] holds (the space), and has the
//! registers of the floating-point unit. [`switch`] stops the context that runs here and continues
//! another one. Only the switch changes the slots that name owner, principal and object of the
//! running context ([`Local`]), so they always match the stack that is in use.
//!
//! Borrows of the slots ([`Here`](crate::cpu::Here), [`Lent`](crate::cpu::Lent)) cannot leave the
//! stack that they were made on, and depend on these invariants:
//! * the processor holds a counted reference to the owner whose context runs there, so the owner
//!   and its context cannot be dropped, moved or changed; the switch hands the reference to the
//!   context that continues;
//! * a context that has run is a part of the same owner whenever it is continued, so the owner that
//!   is borrowed on its stack is the one that the processor keeps; a context that is dropped is
//!   never continued;
//! * a context keeps its principal for good, and the principal its cell; the object in the cell
//!   is exchanged only by the context itself, while it has no borrow of it;
//! * the saved stack pointer is taken with an atomic exchange, so a context that is running
//!   (pointer 0) is never continued twice, whatever the scheduler does.
//!
//! Road not taken: slots that the scheduler sets, and whose objects it promises to keep. It broke
//! that promise for spaces, and between the choice of a context and the change of stacks the slots
//! named objects of the other stack's context.

use alloc::sync::Arc;
use core::arch::naked_asm;
use core::marker::PhantomData;
use core::mem::size_of;
use core::ptr;
use core::sync::atomic::{AtomicU64, Ordering};

use crate::cpu::{self, Local, OfObject, OfPrincipal};
use crate::fpu_state::FpuState;
use crate::stack::KernelStack;
use crate::trap::UserRegs;
use flow::{Flow, Name, set_running};

pub(crate) use flow::with_running;
pub use object_cell::ObjectCell;

mod flow;
mod object_cell;

/// A flow of control in the kernel with its stack, a part of an `E`.
pub struct Context<E> {
    flow: Flow,
    /// The context calls [`Owner::arrived`] of this owner.
    _owner: PhantomData<fn(E) -> E>,
}

/// An object that has a context as a part. Implemented by [`owner!`](crate::owner).
///
/// # Safety
/// `context` returns a field of `self`, always the same one; `current` and `set_current` read and
/// write this CPU's instance of one slot, which nothing else writes.
pub unsafe trait Owner: Send + Sync + Sized + 'static {
    /// Returns the owner of the context that runs, which the slot names.
    fn current() -> *const Self;
    /// Makes the slot name another owner.
    ///
    /// # Safety
    /// The CPU holds a counted reference to the owner, and the stack of its context is in use from
    /// now on.
    unsafe fn set_current(owner: *const Self);
    /// Returns the owner's context.
    fn context(&self) -> &Context<Self>;
    /// Runs in a new context before anything else; `left` is the owner of the context that stopped.
    fn arrived(left: Arc<Self>);
}

/// Declares that a type has a context as a field, which slot names it, and which function a new
/// context calls first: `owner!(Execution, context, CURRENT, arrived);`
// SOUND: the field is checked to be one of the type itself and to be a context of that type, and
// the slot to name owners of the type; only this code writes the slot.
#[macro_export]
macro_rules! owner {
    ($owner:ident, $field:ident, $slot:ident, $arrived:path) => {
        #[allow(unsafe_code)]
        // SAFETY: see the functions.
        unsafe impl $crate::context::Owner for $owner {
            #[inline(always)]
            fn current() -> *const Self {
                const _: fn() -> &'static $crate::cpu::Local<$owner, $crate::cpu::OfOwner> =
                    || &$slot;
                let owner;
                // SAFETY: the slot is a word in `.percpu`.
                unsafe {
                    core::arch::asm!("mov {0}, gs:[{1}]", out(reg) owner, sym $slot,
                                     options(nostack, preserves_flags, readonly));
                }
                owner
            }

            #[inline(always)]
            unsafe fn set_current(owner: *const Self) {
                // SAFETY: as above, and the caller's promise.
                unsafe {
                    core::arch::asm!("mov gs:[{1}], {0}", in(reg) owner, sym $slot,
                                     options(nostack, preserves_flags));
                }
            }

            #[inline(always)]
            fn context(&self) -> &$crate::context::Context<Self> {
                // The field is the type's own: no `Deref` leads to it.
                const _: usize = core::mem::offset_of!($owner, $field);
                let field: *const $crate::context::Context<Self> = &raw const self.$field;
                // SAFETY: this is a field of `self`, of exactly this type: pointers are not
                // converted.
                unsafe { &*field }
            }

            fn arrived(left: alloc::sync::Arc<Self>) {
                $arrived(left)
            }
        }
    };
}

/// A type that contexts work for.
pub trait Principal: Send + Sync + Sized + 'static {
    /// The type of the object that its contexts work in.
    type Object: Send + Sync + 'static;
    /// Returns the slot that names the principal while one of its contexts runs.
    fn slot() -> &'static Local<Self, OfPrincipal>;
    /// Returns the slot that names the object.
    fn object_slot() -> &'static Local<Self::Object, OfObject>;
    /// Returns the cell that holds the object. Called once, when the context is made.
    fn object_cell(&self) -> &ObjectCell<Self::Object>;
}

/// The registers that [`switch`] pushes, in ascending order.
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

/// The first function that a new context of an `E` calls.
extern "C" fn arrive<E: Owner>(left: *const E) {
    // SAFETY: this is the reference that the processor held, handed over by `switch`.
    E::arrived(unsafe { Arc::from_raw(left) });
}

impl<E: Owner> Context<E> {
    /// Returns the context of the flow that runs now, for a CPU's idle loop: see [`begin`].
    pub fn running() -> Context<E> {
        Context { flow: Flow::new(0, None), _owner: PhantomData }
    }

    /// Makes a context that works for `principal`: it first calls [`Owner::arrived`], then goes to
    /// user mode with `regs` and `fpu` (after the attention check).
    ///
    /// # Panics
    /// If the principal has a context already.
    pub fn for_user<P: Principal>(
        stack: KernelStack,
        regs: &UserRegs,
        fpu: FpuState,
        principal: Arc<P>,
    ) -> Context<E> {
        // At a multiple of 16: `arrive` is called with the stack there.
        let frame = (stack.top() - size_of::<UserRegs>() as u64) & !15;
        let switch = frame - size_of::<SwitchFrame>() as u64;
        // The way out for frames of ring 0 sets the segments to what the mode is then; the other
        // way out takes them from the frame.
        let mut first = regs.copied();
        first.make_users();
        // SAFETY: both frames lie within the new stack, which is not in use yet.
        unsafe {
            (frame as *mut UserRegs<'static>).write(first);
            (switch as *mut SwitchFrame).write(SwitchFrame {
                r15: 0,
                r14: 0,
                r13: 0,
                r12: 0,
                rbx: arrive::<E> as *const () as u64,
                rbp: 0,
                resume: if regs.cs == u64::from(cpu::KERNEL_CS) {
                    crate::trap::supervisor_start_address()
                } else {
                    crate::trap::user_start_address()
                },
            });
        }
        let mut flow = Flow::new(switch, Some(stack));
        let cell = principal.object_cell();
        flow.principal = Name::new(P::slot().address(), Arc::as_ptr(&principal).cast());
        flow.object = Name::new(P::object_slot().address(), cell.take().cast());
        flow.cell = ptr::from_ref(cell).cast();
        flow.fpu = Some(fpu);
        // Kept and never changed: the principal continues to have the cell that it returned.
        flow._principal = Some(principal);
        Context { flow, _owner: PhantomData }
    }

    /// Makes a context that first calls [`Owner::arrived`], then `entry(argument)`, which must not
    /// return.
    pub fn for_kernel(
        stack: KernelStack,
        entry: extern "C" fn(usize) -> !,
        argument: usize,
    ) -> Context<E> {
        // 16 bytes for the null return address that ends backtraces.
        let switch = stack.top() - 16 - size_of::<SwitchFrame>() as u64;
        // SAFETY: within the new stack, which is not in use yet.
        unsafe {
            ((stack.top() - 16) as *mut [u64; 2]).write([0; 2]);
            (switch as *mut SwitchFrame).write(SwitchFrame {
                r15: 0,
                r14: 0,
                r13: argument as u64,
                r12: entry as usize as u64,
                rbx: arrive::<E> as *const () as u64,
                rbp: 0,
                resume: kernel_start as *const () as u64,
            });
        }
        Context { flow: Flow::new(switch, Some(stack)), _owner: PhantomData }
    }
}

// `arrive` takes its argument in rdi, where `switch_stacks` has put it.
#[unsafe(naked)]
extern "C" fn kernel_start() {
    naked_asm!("call rbx", "mov rdi, r13", "call r12", "ud2");
}

/// Makes the flow of control that this CPU was started with the context of `owner`, which
/// [`Context::running`] made.
///
/// # Panics
/// If the CPU has a context already, or the context is another one.
pub fn begin<E: Owner>(owner: Arc<E>) {
    let flow = &owner.context().flow;
    let fresh = flow.stack.is_none() && flow.saved.load(Ordering::Relaxed) == 0;
    let begun = with_running(|flow| flow.is_some());
    assert!(!begun && fresh, "the flow of this CPU has begun");
    let former = flow.owner.swap(Arc::as_ptr(&owner).addr(), Ordering::Relaxed);
    assert!(former == 0, "a context of two CPUs");
    set_running(flow);
    // SAFETY: this processor has the reference now, and the stack in use is the context's.
    unsafe { E::set_current(Arc::into_raw(owner)) };
}

/// Stops the context that runs here and continues that of `to`. Returns when a context switches
/// back, with the owner of the context that ran here until then.
///
/// # Panics
/// If the context of `to` is running, or was a part of something else when it last ran; or before
/// [`begin`].
#[inline]
pub fn switch<E: Owner>(to: Arc<E>) -> Arc<E> {
    let from = E::current();
    assert!(!from.is_null(), "a switch before the flow of this CPU has begun");
    let to = Arc::into_raw(to);
    // SAFETY: the processor holds a reference to `from`, and was just given a reference to `to`.
    let (leaving, coming) = unsafe { (&(*from).context().flow, &(*to).context().flow) };
    let next = coming.saved.swap(0, Ordering::Acquire);
    assert!(next != 0, "switch to a context that is running");
    let owner = coming.owner.load(Ordering::Relaxed);
    if owner != to.addr() {
        assert!(owner == 0, "a context was moved after it had run");
        coming.owner.store(to.addr(), Ordering::Relaxed);
    }
    if let Some(fpu) = &leaving.fpu {
        fpu.save();
    }
    leaving.borrows.store(cpu::borrows(), Ordering::Relaxed);
    leaving.principal.empty();
    leaving.object.empty();
    set_running(coming);
    // SAFETY: this is the context that runs from now on.
    unsafe { cpu::set_borrows(coming.borrows.load(Ordering::Relaxed)) };
    coming.principal.fill();
    coming.object.fill();
    if let Some(fpu) = &coming.fpu {
        fpu.restore();
    }
    // A context without a stack of its own never enters a program. If it did, the entry from the
    // program would find no stack and end in a double fault, and not on the stack of another
    // context.
    cpu::set_kernel_stack(coming.stack.as_ref().map_or(0, KernelStack::top));
    // SAFETY: from here on the slot is used on the other stack only. `next` was saved by this
    // function or built with the context, and the exchange above made it this processor's alone.
    // After the store of the stack pointer this stack is not touched until it is continued. Then
    // the reference that came with the owner that left belongs to this context: the other owner's
    // slot names another one.
    unsafe {
        E::set_current(to);
        Arc::from_raw(switch_stacks(from.cast(), &leaving.saved, next).cast::<E>())
    }
}

/// Passes `left` to the flow that continues: in rdi where it starts, as the result where it
/// returns.
#[unsafe(naked)]
unsafe extern "C" fn switch_stacks(left: *const (), saved: *const AtomicU64, to: u64) -> *const () {
    naked_asm!(
        "mov rax, rdi",
        "push rbp",
        "push rbx",
        "push r12",
        "push r13",
        "push r14",
        "push r15",
        "mov [rsi], rsp",
        "mov rsp, rdx",
        "pop r15",
        "pop r14",
        "pop r13",
        "pop r12",
        "pop rbx",
        "pop rbp",
        "ret",
    );
}

/// Makes `slot` name `object` while `work` runs, in a context that has no principal.
///
/// # Panics
/// If the context has a principal or works in an object, or `work` leaves a borrow behind.
pub fn work_in<T: Send + Sync, R>(
    slot: &'static Local<T, OfObject>,
    object: &Arc<T>,
    work: impl FnOnce() -> R,
) -> R {
    with_running(|flow| {
        let free = |flow: &&Flow| {
            flow.cell.is_null() && flow.object.object.load(Ordering::Relaxed).is_null()
        };
        let flow = flow.filter(free).expect("a context that works in nothing");
        flow.object.slot.store(slot.address(), Ordering::Relaxed);
        // SAFETY: the caller's reference lives until this function returns. This function clears
        // the slot, and if `work` never returns, neither does the caller.
        unsafe { flow.name_object(Arc::as_ptr(object).cast()) };
        let result = work();
        assert!(cpu::borrows() == 0, "a borrow was left behind");
        // SAFETY: null names no object.
        unsafe { flow.name_object(ptr::null()) };
        result
    })
}
