//! Per-CPU data.
//!
//! Every per-CPU static is linked into the section `.percpu`, which is only a template. At boot
//! each CPU gets a copy, and its GS base is set to `copy - template`, so `gs:[&STATIC]` is this
//! CPU's instance in one instruction, with the link-time address of the static.
//!
//! The kernel runs with interrupts off and is never preempted, so "this CPU" can only change across
//! a sleep. A [`PerCpu`] reference held across a sleep remains valid memory (of another CPU): its
//! content must be `Sync`, and per-CPU atomics or locks are only uncontended, not exclusive.

use core::cell::UnsafeCell;
use core::marker::PhantomData;
use core::ops::Deref;
use core::ptr;
use core::sync::atomic::{AtomicUsize, Ordering};

use super::lent::Lent;
use super::registers::write_msr;
use super::word::gs_store;

/// The most CPUs the kernel can use: masks of CPUs are a `u64`.
pub const MAX_CPUS: usize = 64;

/// The GS base of every CPU that has been set up (0: not yet).
static GS_BASES: [AtomicUsize; MAX_CPUS] = [const { AtomicUsize::new(0) }; MAX_CPUS];

crate::per_cpu! {
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
            core::arch::asm!("mov {0}, gs:[{1}]", out(reg) value, sym $name,
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
pub struct Local<T: 'static, K: SlotKind> {
    pointer: UnsafeCell<*const T>,
    _kind: PhantomData<K>,
}

// SAFETY: the slot is only read and written by its own CPU.
unsafe impl<T: Sync + Send, K: SlotKind> Sync for Local<T, K> {}

impl<T, K: SlotKind> Local<T, K> {
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
pub trait SlotKind: 'static {
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

impl SlotKind for OfOwner {
    type Borrow<T: 'static> = Here<T>;
    #[inline(always)]
    unsafe fn of_slot<T>(pointer: *const T) -> Option<Here<T>> {
        // SAFETY: the caller's promise.
        unsafe { Here::of_slot(pointer) }
    }
}

impl SlotKind for OfPrincipal {
    type Borrow<T: 'static> = Here<T>;
    #[inline(always)]
    unsafe fn of_slot<T>(pointer: *const T) -> Option<Here<T>> {
        // SAFETY: the caller's promise.
        unsafe { Here::of_slot(pointer) }
    }
}

impl SlotKind for OfObject {
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
    unsafe { write_msr(GS_BASE, base as u64) };
}
