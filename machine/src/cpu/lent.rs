//! A borrow of the object that the running context works in, counted by the processor.
//!
//! A slot of the processor names the object, and [`Lent`] is a borrow of it. The processor counts
//! the borrows of the context that runs there, with one instruction when a borrow begins and one
//! when it ends; the context switch saves and restores the count. The holder of the object does not
//! give it up while it is borrowed ([`context::ObjectCell`](crate::context::ObjectCell)).
//!
//! Roads not taken: a counted reference for each borrow, which costs two more atomic instructions
//! on every page fault; a borrow bound to the registers of the entry, which costs nothing but must
//! be passed through every function that may touch the space.

use core::arch::asm;
use core::marker::PhantomData;
use core::ops::Deref;

use super::word::Word;

crate::per_cpu! {
    /// The number of borrows that the context that runs here has of its object.
    static BORROWS: Word = Word::new(0);
}

/// Returns the number of borrows that the context that runs here has of its object.
#[inline(always)]
pub(crate) fn borrows() -> u64 {
    let count;
    // SAFETY: this is a word in `.percpu`, as in the functions below; the assembler knows its
    // address.
    unsafe {
        asm!("mov {0}, gs:[{1}]", out(reg) count, sym BORROWS, options(nostack, preserves_flags));
    }
    count
}

/// Sets the number of borrows, for another context.
///
/// # Safety
/// `count` is the number of borrows of the context that runs here from now on.
#[inline(always)]
pub(crate) unsafe fn set_borrows(count: u64) {
    // SAFETY: see `borrows`.
    unsafe {
        asm!("mov gs:[{1}], {0}", in(reg) count, sym BORROWS, options(nostack, preserves_flags));
    }
}

/// A borrow of the object that this context works in. It cannot leave the context's stack.
pub struct Lent<T: 'static> {
    pointer: *const T,
    _not_send: PhantomData<*const ()>,
}

impl<T> Lent<T> {
    /// Borrows the object that a slot names; `None` if the slot is empty.
    ///
    /// # Safety
    /// `pointer` was just read from a slot of this CPU that names the object in a context's cell.
    #[inline(always)]
    pub unsafe fn of_slot(pointer: *const T) -> Option<Lent<T>> {
        if pointer.is_null() {
            return None;
        }
        // SAFETY: see `borrows`.
        unsafe { asm!("inc qword ptr gs:[{0}]", sym BORROWS, options(nostack)) };
        Some(Lent { pointer, _not_send: PhantomData })
    }
}

impl<T> Deref for Lent<T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: the cell keeps the object as long as the context's borrows are counted.
        unsafe { &*self.pointer }
    }
}

impl<T> Drop for Lent<T> {
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: see `borrows`.
        unsafe { asm!("dec qword ptr gs:[{0}]", sym BORROWS, options(nostack)) };
    }
}
