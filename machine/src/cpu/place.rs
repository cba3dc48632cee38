//! The object that the running context works in, lent without counting in the object itself.
//!
//! A [`Place`] holds an object that its context may exchange for another one: the space of a
//! thread. While the context runs, a slot of its processor names the object
//! ([`context`](crate::context) keeps the two together), and [`Lent`] is a borrow of it. The
//! processor counts the borrows of the context that runs there, with one instruction when a borrow
//! begins and one when it ends; the context switch saves and restores the count. While its context
//! has borrowed the object, a place does not give it up: [`Place::replace`] panics, as `RefCell`
//! does.
//!
//! Roads not taken: a counted reference for each borrow, which costs two more atomic instructions
//! on every page fault; a borrow bound to the registers of the entry, which costs nothing but must
//! be passed through every function that may touch the space.

use alloc::sync::Arc;
use core::arch::asm;
use core::marker::PhantomData;
use core::ops::Deref;
use core::ptr;
use core::sync::atomic::{AtomicBool, Ordering};

use super::local::Word;
use crate::context;
use crate::sync::SpinLock;

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

/// Holds an object for a context: see the module. Other threads may look at it under its lock.
pub struct Place<T> {
    content: SpinLock<Option<Arc<T>>>,
    /// The place belongs to a context; only that context exchanges the object from now on.
    taken: AtomicBool,
}

impl<T> Place<T> {
    /// Returns a place that belongs to no context yet.
    pub const fn new(content: Option<Arc<T>>) -> Place<T> {
        Place { content: SpinLock::new(content), taken: AtomicBool::new(false) }
    }

    /// Returns a counted reference to the object.
    #[inline]
    pub fn get(&self) -> Option<Arc<T>> {
        self.content.lock().clone()
    }

    /// Calls `look` with the object while the place is locked, without counting a reference.
    #[inline]
    pub fn look<R>(&self, look: impl FnOnce(Option<&Arc<T>>) -> R) -> R {
        look(self.content.lock().as_ref())
    }

    /// Puts another object in, and returns the old one. Only the context that the place belongs to
    /// may call this, or any caller as long as it belongs to none.
    ///
    /// # Panics
    /// If the place belongs to another context, or the context has borrowed the object.
    pub fn replace(&self, new: Option<Arc<T>>) -> Option<Arc<T>> {
        let object = new.as_ref().map_or(ptr::null(), Arc::as_ptr);
        let place = ptr::from_ref(self).cast();
        context::with_running(|flow| match flow.filter(|flow| flow.has_place(place)) {
            Some(flow) => {
                assert!(borrows() == 0, "an object exchanged that is borrowed");
                let old = core::mem::replace(&mut *self.content.lock(), new);
                // SAFETY: the place keeps the object until this context exchanges it again; there
                // is no borrow of the old object.
                unsafe { flow.name_object(object.cast()) };
                old
            }
            None => {
                let mut content = self.content.lock();
                assert!(!self.taken.load(Ordering::Relaxed), "a place of another context");
                core::mem::replace(&mut *content, new)
            }
        })
    }

    /// Makes the place belong to a context that is being made; returns the object that it holds.
    ///
    /// # Panics
    /// If the place belongs to a context already.
    pub(crate) fn take(&self) -> *const T {
        let content = self.content.lock();
        let taken = self.taken.swap(true, Ordering::Relaxed);
        assert!(!taken, "a place of two contexts");
        content.as_ref().map_or(ptr::null(), Arc::as_ptr)
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
    /// `pointer` was just read from a slot of this CPU that names the object in a context's place.
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
        // SAFETY: the place keeps the object as long as the context's borrows are counted.
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
