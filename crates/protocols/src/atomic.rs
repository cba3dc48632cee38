//! The atomic types: the processor's, or those that a loom model observes.

#[cfg(not(loom))]
pub(crate) use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, AtomicUsize, fence};
#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, AtomicUsize, fence};

/// A full barrier after an atomic read-modify-write of this thread.
///
/// On x86 that instruction is already a barrier: loads and stores are not reordered with locked
/// instructions (Intel SDM volume 3, section 9.2.2). So this only keeps the compiler from
/// reordering. Elsewhere, and in a model, it is a fence.
#[inline(always)]
pub fn after_locked() {
    #[cfg(all(target_arch = "x86_64", not(loom)))]
    core::sync::atomic::compiler_fence(core::sync::atomic::Ordering::SeqCst);
    #[cfg(not(all(target_arch = "x86_64", not(loom))))]
    fence(core::sync::atomic::Ordering::SeqCst);
}

/// Makes `new` a `const fn`, except in a model, whose atomic types are created at run time.
macro_rules! const_new {
    ($(#[$attribute:meta])* pub fn new() -> $type:ident { $value:expr }) => {
        $(#[$attribute])*
        #[cfg(not(loom))]
        pub const fn new() -> $type {
            $value
        }

        $(#[$attribute])*
        #[cfg(loom)]
        pub fn new() -> $type {
            $value
        }
    };
}
pub(crate) use const_new;
