//! Counted references that point directly to the content.

use alloc::sync::Arc;
use core::marker::PhantomData;
use core::ops::Deref;
use core::ptr::NonNull;

/// An `Arc` of a trait object that is read often. `Arc` stores the address of its counts, so each
/// use must look up the content's alignment in the vtable to find the content. That takes five
/// instructions more than this type, which stores the address of the content.
pub struct Shared<T: ?Sized> {
    content: NonNull<T>,
    owner: PhantomData<Arc<T>>,
}

// SAFETY: it is an `Arc`, and shares only what an `Arc` shares.
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
        // SAFETY: the count that `From` took over keeps the content alive and in place.
        unsafe { self.content.as_ref() }
    }
}

impl<T: ?Sized> Drop for Shared<T> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: the pointer is from `Arc::into_raw`, and is turned back only here.
        drop(unsafe { Arc::from_raw(self.content.as_ptr()) });
    }
}
