//! A flow of control: the content of a context, whatever that is a part of.

use alloc::sync::Arc;
use core::arch::asm;
use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};

use crate::cpu::{self, Word};
use crate::fpu_state::FpuState;
use crate::stack::KernelStack;

crate::per_cpu! {
    /// The address of the [`Flow`] that runs here; 0 before [`begin`](super::begin).
    static RUNNING: Word = Word::new(0);
    /// The slot of a context that has no principal.
    static NOWHERE: Word = Word::new(0);
}

/// The content of a [`Context`](super::Context), whatever it is a part of.
pub(crate) struct Flow {
    /// The stack pointer to continue with; 0 while running.
    pub(super) saved: AtomicU64,
    /// `None`: the flow that the CPU was started with, on its boot stack (the idle loop).
    pub(super) stack: Option<KernelStack>,
    /// The address of the owner, from the first time that the context runs; 0 before.
    pub(super) owner: AtomicUsize,
    /// The principal, kept alive. The slot below names it while the context runs.
    pub(super) _principal: Option<Arc<dyn Send + Sync>>,
    pub(super) principal: Name,
    /// The principal's cell, for [`ObjectCell::replace`](super::ObjectCell::replace); null for
    /// none.
    pub(super) cell: *const (),
    /// The object in the cell.
    pub(super) object: Name,
    /// The number of borrows of the object, while the context does not run.
    pub(super) borrows: AtomicU64,
    pub(super) fpu: Option<FpuState>,
}

// SAFETY: the only part that is not `Sync`, the floating-point state, is used by the context itself
// and by the switch to and from it, and these uses of one context happen one after the other.
// Pointers are followed only by code that runs in the context.
unsafe impl Sync for Flow {}
// SAFETY: all parts may be dropped anywhere.
unsafe impl Send for Flow {}

/// A slot, by its address in the template, and the object that it names while a context runs.
pub(super) struct Name {
    pub(super) slot: AtomicUsize,
    pub(super) object: AtomicPtr<()>,
}

impl Name {
    pub(super) fn new(slot: usize, object: *const ()) -> Name {
        Name { slot: AtomicUsize::new(slot), object: AtomicPtr::new(object.cast_mut()) }
    }

    fn none() -> Name {
        Name::new(ptr::from_ref(&NOWHERE).addr(), ptr::null())
    }

    #[inline(always)]
    pub(super) fn fill(&self) {
        let object = self.object.load(Ordering::Relaxed);
        // SAFETY: the slot is a `Local` or `NOWHERE`, and names this object as long as the context
        // runs.
        unsafe { cpu::set_slot(self.slot.load(Ordering::Relaxed), object) };
    }

    #[inline(always)]
    pub(super) fn empty(&self) {
        // SAFETY: as for `fill`; an empty slot names nothing.
        unsafe { cpu::set_slot(self.slot.load(Ordering::Relaxed), ptr::null()) };
    }
}

impl Flow {
    pub(super) fn new(saved: u64, stack: Option<KernelStack>) -> Flow {
        Flow {
            saved: AtomicU64::new(saved),
            stack,
            owner: AtomicUsize::new(0),
            _principal: None,
            principal: Name::none(),
            cell: ptr::null(),
            object: Name::none(),
            borrows: AtomicU64::new(0),
            fpu: None,
        }
    }

    /// Returns the state of the floating-point unit.
    pub(crate) fn fpu(&self) -> Option<&FpuState> {
        self.fpu.as_ref()
    }

    /// Whether this cell is the principal's cell.
    #[inline]
    pub(crate) fn has_cell(&self, cell: *const ()) -> bool {
        ptr::eq(self.cell, cell)
    }

    /// Changes the object that the flow works in.
    ///
    /// # Safety
    /// The flow runs here. The object lives until it is changed again, is of the type of the slot,
    /// and nothing is borrowed.
    #[inline]
    pub(crate) unsafe fn name_object(&self, object: *const ()) {
        self.object.object.store(object.cast_mut(), Ordering::Relaxed);
        self.object.fill();
    }
}

impl Drop for Flow {
    fn drop(&mut self) {
        if self.stack.is_some() && *self.saved.get_mut() == 0 {
            panic!("a running context was dropped");
        }
    }
}

/// Calls `look` with the flow that runs here; with `None` before [`begin`](super::begin).
#[inline]
pub(crate) fn with_running<R>(look: impl FnOnce(Option<&Flow>) -> R) -> R {
    let flow: *const Flow;
    // SAFETY: this is a word in `.percpu`; GS is set up before any caller runs.
    unsafe {
        asm!("mov {0}, gs:[{1}]", out(reg) flow, sym RUNNING,
             options(nostack, preserves_flags, readonly));
    }
    // SAFETY: the processor keeps the owner of the context that runs on it, and that context runs
    // this function.
    look(unsafe { flow.as_ref() })
}

#[inline(always)]
pub(super) fn set_running(flow: &Flow) {
    // SAFETY: as in `with_running`.
    unsafe {
        asm!("mov gs:[{1}], {0}", in(reg) ptr::from_ref(flow), sym RUNNING,
             options(nostack, preserves_flags));
    }
}
