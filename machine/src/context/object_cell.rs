//! Holds the object that a context works in.
//!
//! A [`ObjectCell`] holds an object that its context may exchange for another one: the space of a
//! thread. While the context runs, a slot of its processor names the object, and
//! [`Lent`](crate::cpu::Lent) is a borrow of it. While its context has borrowed the object, a cell
//! does not give it up: [`ObjectCell::replace`] panics, as `RefCell` does.

use alloc::sync::Arc;
use core::ptr;
use core::sync::atomic::{AtomicBool, Ordering};

use super::flow::with_running;
use crate::cpu::borrows;
use crate::sync::SpinLock;

/// Holds an object for a context: see the module. Other threads may look at it under its lock.
pub struct ObjectCell<T> {
    content: SpinLock<Option<Arc<T>>>,
    /// The cell belongs to a context; only that context exchanges the object from now on.
    taken: AtomicBool,
}

impl<T> ObjectCell<T> {
    /// Returns a cell that belongs to no context yet.
    pub const fn new(content: Option<Arc<T>>) -> ObjectCell<T> {
        ObjectCell { content: SpinLock::new(content), taken: AtomicBool::new(false) }
    }

    /// Returns a counted reference to the object.
    #[inline]
    pub fn get(&self) -> Option<Arc<T>> {
        self.content.lock().clone()
    }

    /// Calls `look` with the object while the cell is locked, without counting a reference.
    #[inline]
    pub fn look<R>(&self, look: impl FnOnce(Option<&Arc<T>>) -> R) -> R {
        look(self.content.lock().as_ref())
    }

    /// Puts another object in, and returns the old one. Only the context that the cell belongs to
    /// may call this, or any caller as long as it belongs to none.
    ///
    /// # Panics
    /// If the cell belongs to another context, or the context has borrowed the object.
    pub fn replace(&self, new: Option<Arc<T>>) -> Option<Arc<T>> {
        let object = new.as_ref().map_or(ptr::null(), Arc::as_ptr);
        let cell = ptr::from_ref(self).cast();
        with_running(|flow| match flow.filter(|flow| flow.has_cell(cell)) {
            Some(flow) => {
                assert!(borrows() == 0, "an object exchanged that is borrowed");
                let old = core::mem::replace(&mut *self.content.lock(), new);
                // SAFETY: the cell keeps the object until this context exchanges it again; there
                // is no borrow of the old object.
                unsafe { flow.name_object(object.cast()) };
                old
            }
            None => {
                let mut content = self.content.lock();
                assert!(!self.taken.load(Ordering::Relaxed), "a cell of another context");
                core::mem::replace(&mut *content, new)
            }
        })
    }

    /// Makes the cell belong to a context that is being made; returns the object that it holds.
    ///
    /// # Panics
    /// If the cell belongs to a context already.
    pub(crate) fn take(&self) -> *const T {
        let content = self.content.lock();
        let taken = self.taken.swap(true, Ordering::Relaxed);
        assert!(!taken, "a cell of two contexts");
        content.as_ref().map_or(ptr::null(), Arc::as_ptr)
    }
}
