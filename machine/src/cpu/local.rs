//! Per-CPU data.
//!
//! Every per-CPU static is linked into the section `.percpu`, which is only a template. At boot
//! each CPU gets a copy, and its GS base is set to `copy - template`, so `gs:[&STATIC]` is this
//! CPU's instance in one instruction, with the link-time address of the static.
//!
//! The kernel runs with interrupts off and is never preempted, so "this CPU" can only change across
//! a sleep. A [`PerCpu`] reference held across a sleep remains valid memory (of another CPU): its
//! content must be `Sync`, and per-CPU atomics or locks are only uncontended, not exclusive.

use core::arch::asm;
use core::cell::UnsafeCell;
use core::marker::PhantomData;
use core::ops::Deref;
use core::ptr;
use core::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use super::MAX_CPUS;
use super::place::Lent;

/// Declares per-CPU statics:
/// `per_cpu! { static COUNT: PerCpu<AtomicU64> = PerCpu::new(AtomicU64::new(0)); }`. Nothing else
/// can make a [`Local`] or a [`PerCpu`]: a value outside of the section would lead to other memory.
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

/// The GS base of every CPU that has been set up (0: not yet).
static GS_BASES: [AtomicUsize; MAX_CPUS] = [const { AtomicUsize::new(0) }; MAX_CPUS];

per_cpu! {
    /// This CPU's own GS base, to compute addresses of per-CPU instances.
    static GS_BASE: PerCpu<AtomicUsize> = PerCpu::new(AtomicUsize::new(0));
    /// This CPU's number.
    static NUMBER: PerCpu<AtomicUsize> = PerCpu::new(AtomicUsize::new(0));
}

/// Loads this CPU's instance of the static word, in one instruction: the assembler knows its
/// address. (An address that comes as an argument would first need a register.)
macro_rules! gs_word {
    ($name:ident) => {{
        #[cfg(not(miri))]
        let value: usize;
        // SAFETY: this is a word in `.percpu`; GS is set up before any caller runs.
        #[cfg(not(miri))]
        unsafe {
            asm!("mov {0}, gs:[{1}]", out(reg) value, sym $name,
                 options(nostack, preserves_flags, pure, readonly));
        }
        // The one CPU of an interpreter uses the template itself, and has number 0.
        #[cfg(miri)]
        let value = {
            let _ = &$name;
            0_usize
        };
        value
    }};
}

/// Stores a word at `gs:[address]`.
#[inline(always)]
fn gs_store(address: usize, value: usize) {
    if cfg!(miri) {
        // SAFETY: this is the address of a word in a static, which only this interpreter's one CPU
        // uses.
        return unsafe { (address as *mut usize).write(value) };
    }
    // SAFETY: callers pass the address of a word in `.percpu`; GS is set up before any caller runs.
    unsafe {
        asm!("mov gs:[{1}], {0}", in(reg) value, in(reg) address, options(nostack, preserves_flags));
    }
}

/// Declares a function that returns the object that a [`Local`] slot names, in one instruction (for
/// the object of a context one more, which counts the borrow). A method of the slot would take two:
/// `asm!` takes a symbol, but `self` is not one.
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
        $vis fn $name() -> Option<<$crate::cpu::$kind as $crate::cpu::Kind>::Borrow<$type>> {
            const _: fn() -> &'static $crate::cpu::Local<$type, $crate::cpu::$kind> = || &$slot;
            let pointer: *const $type;
            // SAFETY: the slot is a word in `.percpu`, and GS is set up before any caller runs. Its
            // value was put there by the context switch, or by an exchange of the object that this
            // context works in.
            unsafe {
                core::arch::asm!("mov {0}, gs:[{1}]", out(reg) pointer, sym $slot,
                                 options(nostack, preserves_flags, pure, readonly));
                <$crate::cpu::$kind as $crate::cpu::Kind>::of_slot(pointer)
            }
        }
    };
}

/// A value of which every CPU has its own instance. Declare with [`per_cpu!`](crate::per_cpu).
#[repr(transparent)]
pub struct PerCpu<T>(UnsafeCell<T>);

// SAFETY: only `&T` is handed out by safe methods, and T is Sync.
unsafe impl<T: Sync> Sync for PerCpu<T> {}

impl<T> PerCpu<T> {
    /// Returns the initial value of every CPU's instance.
    ///
    /// # Safety
    /// The value becomes a static in the section `.percpu`.
    pub const unsafe fn new(value: T) -> Self {
        PerCpu(UnsafeCell::new(value))
    }

    /// Returns the address of this CPU's instance, for the machine layer's own use.
    #[inline(always)]
    pub(crate) fn pointer(&'static self) -> *mut T {
        let base = gs_word!(GS_BASE);
        base.wrapping_add(self as *const Self as usize) as *mut T
    }

    /// Returns this CPU's instance.
    #[inline(always)]
    pub fn here(&'static self) -> &'static T
    where
        T: Sync,
    {
        // SAFETY: the area was copied from an initialised template and is never freed.
        unsafe { &*self.pointer() }
    }

    /// Returns CPU `cpu`'s instance, or `None` if there is no such CPU.
    #[inline]
    pub fn of(&'static self, cpu: usize) -> Option<&'static T>
    where
        T: Sync,
    {
        if cfg!(miri) && cpu == 0 {
            return Some(self.here());
        }
        let base = GS_BASES.get(cpu)?.load(Ordering::Acquire);
        // SAFETY: a non-zero base belongs to an initialised area that is never freed.
        (base != 0)
            .then(|| unsafe { &*(base.wrapping_add(self as *const Self as usize) as *const T) })
    }
}

/// A per-CPU slot that names a `T` of the context that runs on this CPU: its owner, its principal
/// or its object ([`context`](crate::context)). Declare with [`per_cpu!`](crate::per_cpu), read
/// with [`read_slot!`](crate::read_slot).
///
/// Only [`context`](crate::context) changes the slots; its invariants say why an object that is
/// borrowed from a slot lives.
#[repr(transparent)]
pub struct Local<T: 'static, K: Kind> {
    pointer: UnsafeCell<*const T>,
    _kind: PhantomData<K>,
}

// SAFETY: the slot is only read and written by its own CPU.
unsafe impl<T: Sync + Send, K: Kind> Sync for Local<T, K> {}

impl<T, K: Kind> Local<T, K> {
    /// Returns an empty slot.
    ///
    /// # Safety
    /// The value becomes a static in the section `.percpu`.
    #[allow(clippy::new_without_default)]
    pub const unsafe fn new() -> Self {
        Local { pointer: UnsafeCell::new(ptr::null()), _kind: PhantomData }
    }

    /// Returns the slot's address in the template, for [`set_slot`].
    #[inline(always)]
    pub(crate) fn address(&'static self) -> usize {
        ptr::from_ref(self).expose_provenance()
    }
}

/// Makes this CPU's slot name an object, or nothing (null).
///
/// # Safety
/// The address is that of a slot for objects of this type; the invariants of
/// [`context`](crate::context) hold for the object.
#[inline(always)]
pub(crate) unsafe fn set_slot(address: usize, object: *const ()) {
    gs_store(address, object.expose_provenance());
}

/// Which object of a context a slot names, and so how the object is borrowed.
pub trait Kind: 'static {
    /// A borrow of the object.
    type Borrow<T: 'static>;

    /// Borrows the object that a slot names; `None` if the slot is empty.
    ///
    /// # Safety
    /// `pointer` was just read from a [`Local`] of this CPU and of this kind.
    unsafe fn of_slot<T>(pointer: *const T) -> Option<Self::Borrow<T>>;
}

/// The slot names the owner that the context is a part of.
pub struct OfOwner;
/// The slot names the principal that the context works for.
pub struct OfPrincipal;
/// The slot names the object that the context works in.
pub struct OfObject;

impl Kind for OfOwner {
    type Borrow<T: 'static> = Here<T>;
    #[inline(always)]
    unsafe fn of_slot<T>(pointer: *const T) -> Option<Here<T>> {
        // SAFETY: the caller's promise.
        unsafe { Here::of_slot(pointer) }
    }
}

impl Kind for OfPrincipal {
    type Borrow<T: 'static> = Here<T>;
    #[inline(always)]
    unsafe fn of_slot<T>(pointer: *const T) -> Option<Here<T>> {
        // SAFETY: the caller's promise.
        unsafe { Here::of_slot(pointer) }
    }
}

impl Kind for OfObject {
    type Borrow<T: 'static> = Lent<T>;
    #[inline(always)]
    unsafe fn of_slot<T>(pointer: *const T) -> Option<Lent<T>> {
        // SAFETY: the caller's promise.
        unsafe { Lent::of_slot(pointer) }
    }
}

/// Panics for a caller that asks for the current object in a context that has none.
#[cold]
#[inline(never)]
pub fn empty_slot() -> ! {
    panic!("no current object on this CPU")
}

/// A borrow of the owner or the principal of the context that runs here. It costs one load, counts
/// nothing, and cannot leave this stack.
pub struct Here<T: 'static> {
    pointer: *const T,
    _not_send: PhantomData<*const ()>,
}

impl<T> Here<T> {
    /// # Safety
    /// `pointer` was just read from a [`Local`] of this CPU.
    #[inline(always)]
    unsafe fn of_slot(pointer: *const T) -> Option<Here<T>> {
        (!pointer.is_null()).then_some(Here { pointer, _not_send: PhantomData })
    }
}

impl<T> Deref for Here<T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: see `context`: the object outlives the stack that this value lives on.
        unsafe { &*self.pointer }
    }
}

impl<T> Clone for Here<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Here<T> {}

/// A per-CPU machine word, read and written in one instruction each. Declare with `per_cpu!`.
#[repr(transparent)]
pub(crate) struct Word(AtomicU64);

impl Word {
    /// Returns the initial value on every CPU.
    pub const fn new(value: u64) -> Self {
        Word(AtomicU64::new(value))
    }

    /// Returns this CPU's value.
    #[inline(always)]
    pub fn get(&'static self) -> u64 {
        gs_load_volatile(self as *const Self as usize) as u64
    }

    /// Sets this CPU's value.
    #[inline(always)]
    pub fn set(&'static self, value: u64) {
        gs_store(self as *const Self as usize, value as usize);
    }
}

/// Half a [`Word`]: two halves can be compared with zero at once.
#[repr(transparent)]
pub(crate) struct Half(AtomicU32);

impl Half {
    /// Returns the initial value on every CPU.
    pub const fn new(value: u32) -> Self {
        Half(AtomicU32::new(value))
    }

    /// Returns this CPU's value.
    #[inline(always)]
    pub fn get(&'static self) -> u32 {
        let value;
        // SAFETY: as for `gs_load_volatile`.
        unsafe {
            asm!("mov {0:e}, gs:[{1}]", out(reg) value, in(reg) self as *const Self,
                 options(nostack, preserves_flags));
        }
        value
    }

    /// Sets this CPU's value.
    #[inline(always)]
    pub fn set(&'static self, value: u32) {
        // SAFETY: as for `gs_store`.
        unsafe {
            asm!("mov gs:[{1}], {0:e}", in(reg) value, in(reg) self as *const Self,
                 options(nostack, preserves_flags));
        }
    }
}

/// Loads the word at `gs:[address]`. The load is never merged or moved, because interrupt handlers
/// change the word.
#[inline(always)]
fn gs_load_volatile(address: usize) -> usize {
    if cfg!(miri) {
        // SAFETY: as for `gs_store`.
        return unsafe { (address as *const usize).read() };
    }
    let value;
    // SAFETY: as for `gs_store`.
    unsafe {
        asm!("mov {0}, gs:[{1}]", out(reg) value, in(reg) address, options(nostack, preserves_flags));
    }
    value
}

/// Returns this CPU's number, from 0.
#[inline(always)]
pub fn id() -> usize {
    gs_word!(NUMBER)
}

/// Returns this CPU's GS base.
pub(super) fn gs_base() -> usize {
    gs_word!(GS_BASE)
}

unsafe extern "C" {
    static __percpu_start: u8;
    static __percpu_end: u8;
}

/// Returns the bytes of one CPU's area.
pub(crate) fn area_size() -> usize {
    &raw const __percpu_end as usize - &raw const __percpu_start as usize
}

/// Copies the template to `area` (at least [`area_size`] bytes, 64-byte aligned) for CPU `cpu`,
/// publishes it to [`PerCpu::of`], and returns the GS base that makes it current.
///
/// # Safety
/// `area` must be writable, unused and never freed.
pub(crate) unsafe fn prepare_area(area: *mut u8, cpu: usize) -> usize {
    let template = &raw const __percpu_start;
    let base = (area as usize).wrapping_sub(template as usize);
    // SAFETY: the caller vouches for the area; the template is only ever read.
    unsafe {
        ptr::copy_nonoverlapping(template, area, area_size());
        let at = |address: usize| base.wrapping_add(address) as *mut usize;
        at(&raw const GS_BASE as usize).write(base);
        at(&raw const NUMBER as usize).write(cpu);
    }
    GS_BASES[cpu].store(base, Ordering::Release);
    base
}

/// Makes `base` this CPU's GS base.
///
/// # Safety
/// It comes from [`prepare_area`], and no other CPU uses it.
pub(crate) unsafe fn set_gs_base(base: usize) {
    const GS_BASE: u32 = 0xc000_0101;
    // SAFETY: every 64-bit CPU has the register; the caller vouches for the value.
    unsafe { super::write_msr(GS_BASE, base as u64) };
}
