//! The macros that declare per-CPU statics and read slots.

/// Declares per-CPU statics:
/// `per_cpu! { static COUNT: PerCpu<AtomicU64> = PerCpu::new(AtomicU64::new(0)); }`.
///
/// Nothing else can make a [`Local`](crate::cpu::Local) or a
/// [`PerCpu`](crate::cpu::PerCpu): a value outside of the section would lead to other memory.
// SOUND: the section is writable memory of the image, so a static of any type may lie there. To
// Rust code it is one static like any other; the processors' copies are reached only by `PerCpu`
// and `Local`, and those that are made here are the static itself.
#[macro_export]
macro_rules! per_cpu {
    () => {};
    ($(#[$meta:meta])* $vis:vis static $name:ident: $kind:ident<$type:ty> =
     $same:ident::new($init:expr $(,)?); $($rest:tt)*) => {
        $(#[$meta])*
        #[allow(unsafe_code)]
        // SAFETY: the linker script gathers the section as the template of the per-CPU areas.
        #[cfg_attr(not(miri), unsafe(link_section = ".percpu"))]
        $vis static $name: $kind<$type> = {
            // The initial value is computed outside of the unsafe block.
            #[allow(clippy::declare_interior_mutable_const)]
            const INIT: $type = $init;
            // SAFETY: this static is in the section.
            unsafe { $crate::cpu::PerCpu::<$type>::new(INIT) }
        };
        $crate::per_cpu! { $($rest)* }
    };
    ($(#[$meta:meta])* $vis:vis static $name:ident: $kind:ident<$type:ty, $of:ty> =
     $same:ident::new(); $($rest:tt)*) => {
        $(#[$meta])*
        #[allow(unsafe_code)]
        // SAFETY: as above.
        #[cfg_attr(not(miri), unsafe(link_section = ".percpu"))]
        // SAFETY: this static is in the section.
        $vis static $name: $kind<$type, $of> = unsafe { $crate::cpu::Local::<$type, $of>::new() };
        $crate::per_cpu! { $($rest)* }
    };
    ($(#[$meta:meta])* $vis:vis static $name:ident: $type:ty = $init:expr; $($rest:tt)*) => {
        $(#[$meta])*
        #[allow(unsafe_code)]
        // SAFETY: as above.
        #[cfg_attr(not(miri), unsafe(link_section = ".percpu"))]
        $vis static $name: $type = $init;
        $crate::per_cpu! { $($rest)* }
    };
}

/// Declares a function that returns the object that a [`Local`](crate::cpu::Local) slot names, in
/// one instruction (for the object of a context one more, which counts the borrow). A method of the
/// slot would take two: `asm!` takes a symbol, but `self` is not one.
///
/// `read_slot!(pub fn try_current = CURRENT: Thread, OfPrincipal);`
// SOUND: the function compiles only for a slot of the type and kind whose borrow it returns, and
// reads a word. `context` ensures that the object that the slot names lives.
#[macro_export]
macro_rules! read_slot {
    ($(#[$meta:meta])* $vis:vis fn $name:ident = $slot:ident: $type:ty, $kind:ident) => {
        $(#[$meta])*
        #[inline(always)]
        #[allow(unsafe_code)]
        $vis fn $name() -> Option<<$crate::cpu::$kind as $crate::cpu::SlotKind>::Borrow<$type>> {
            const _: fn() -> &'static $crate::cpu::Local<$type, $crate::cpu::$kind> = || &$slot;
            let pointer: *const $type;
            // SAFETY: the slot is a word in `.percpu`, and GS is set up before any caller runs. Its
            // value was put there by the context switch, or by an exchange of the object that this
            // context works in.
            unsafe {
                core::arch::asm!("mov {0}, gs:[{1}]", out(reg) pointer, sym $slot,
                                 options(nostack, preserves_flags, pure, readonly));
                <$crate::cpu::$kind as $crate::cpu::SlotKind>::of_slot(pointer)
            }
        }
    };
}
