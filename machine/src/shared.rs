//! Counted references that go straight to what they refer to.

use alloc::sync::Arc;
use core::marker::PhantomData;
use core::ops::Deref;
use core::ptr::NonNull;

/// An `Arc` of a trait object that is read often. `Arc` keeps the address of its counts and has to look
/// the alignment of what lies behind them up in the table of methods whenever it is used: five
/// instructions more than this, which keeps the address of the content.
pub struct Shared<T: ?Sized> {
    content: NonNull<T>,
    owner: PhantomData<Arc<T>>,
}

// SAFETY: it is an `Arc` and shares what that shares.
unsafe impl<T: ?Sized + Send + Sync> Send for Shared<T> {}
// SAFETY: as above.
unsafe impl<T: ?Sized + Send + Sync> Sync for Shared<T> {}

impl<T: ?Sized> From<Arc<T>> for Shared<T> {
    #[inline]
    fn from(arc: Arc<T>) -> Self {
        // SAFETY: the address of an `Arc`'s content is never null.
        let content = unsafe { NonNull::new_unchecked(Arc::into_raw(arc).cast_mut()) };
        Shared { content, owner: PhantomData }
    }
}

impl<T: ?Sized> Deref for Shared<T> {
    type Target = T;
    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: the count that `From` took over keeps the content where it is.
        unsafe { self.content.as_ref() }
    }
}

impl<T: ?Sized> Drop for Shared<T> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: the pointer is from `Arc::into_raw`, and this is its one end.
        drop(unsafe { Arc::from_raw(self.content.as_ptr()) });
    }
}
