//! The start of the machine: from the loader's first instruction to the kernel's main function.
//!
//! The order of the steps is that of [`start`]: each may use only what was set up before it.
//! [`crate::loader`] reads the loader's information.

mod entry;
mod handover;

pub use crate::loader::{
    BootInfo, MemoryKind, MemoryRange, flag, info, init_arguments, option, options,
};
pub(crate) use handover::boot_root;

use arrayvec::ArrayVec;

use crate::layout::DIRECT_MAP;
use crate::{cpu, kernel_tables, loader, power, serial, trap};

/// Declares the kernel's main function, `fn() -> !`, which the machine calls on the first CPU when
/// memory is mapped and traps are set up: with interrupts off, without a heap.
// SOUND: the function is safe and of the type that the machine calls; a second use does not link.
#[macro_export]
macro_rules! entry {
    ($main:path) => {
        #[allow(unsafe_code)]
        const _: () = {
            // SAFETY: the machine calls this symbol and no other object defines it.
            #[unsafe(no_mangle)]
            extern "C" fn hayate_main() -> ! {
                let main: fn() -> ! = $main;
                main()
            }
        };
    };
}

unsafe extern "C" {
    fn hayate_main() -> !;
}

#[repr(C, align(64))]
struct FirstArea(core::cell::UnsafeCell<[u8; FIRST_AREA]>);
const FIRST_AREA: usize = 48 * 1024;
// SAFETY: handed to the first CPU as its per-CPU area, once.
unsafe impl Sync for FirstArea {}
static FIRST: FirstArea = FirstArea(core::cell::UnsafeCell::new([0; FIRST_AREA]));

/// The first Rust code, on the boot stack and the boot tables.
extern "C" fn start() -> ! {
    if cpu::area_size() > FIRST_AREA {
        cpu::stop();
    }
    // SAFETY: the area is large enough, static, and used here only.
    unsafe { cpu::set_gs_base(cpu::prepare_area(FIRST.0.get().cast(), 0)) };
    cpu::set_online(0);
    serial::init();
    crate::ipi::init();
    // SAFETY: the boot tables map the constants writable, no other CPU runs, and traps come later.
    unsafe { trap::sort_fixups() };
    trap::init();
    if !cpu::has_syscall() {
        // Checked here; see `entry` for the features that are checked earlier.
        crate::log::raw(format_args!("cannot boot: this processor lacks syscall\n"));
        power::exit_device(power::REFUSED);
        cpu::stop();
    }
    cpu::init_features();
    if !cpu::features().smap {
        // SAFETY: the boot tables map the text writable, and no other CPU runs.
        unsafe {
            trap::patch_out_clac();
            crate::user::patch_out_smap();
        }
    }
    cpu::init_descriptors();
    let Some((info, early)) = loader::read(handover::start_info(), kernel_tables::early_size)
    else {
        panic!(
            "the loader gave no usable PVH start info: boot with QEMU's -kernel or another PVH loader"
        );
    };
    kernel_tables::set_early(early.0, early.1);
    let info = loader::keep(info);
    if let Some(level) = option("loglevel").and_then(|text| text.parse::<u8>().ok()) {
        crate::log::show_below(i32::from(level) + 1);
    }
    crate::acpi::info();
    crate::nvm::find(info);
    kernel_tables::build(&info.memory, crate::nvm::areas().iter().map(crate::nvm::Area::range));
    crate::apic::init();
    crate::time::init(handover::first_tsc());
    trap::init_syscalls();
    crate::fpu_state::init();
    // SAFETY: `entry!` defines it.
    unsafe { hayate_main() }
}

/// Makes memory available: frames, the heap over them, and the kernel's root for page tables. The
/// kernel's main function calls this first. Later calls do nothing, because memory in use by then
/// must not be handed out again.
///
/// # Panics
/// If the machine has too little memory to start.
pub fn prepare_memory() {
    static PREPARED: crate::sync::Once<()> = crate::sync::Once::new();
    // SAFETY: this happens once.
    PREPARED.call_once(|| unsafe { make_memory() });
}

/// The work of [`prepare_memory`], with lists of memory on the stack of the boot.
///
/// # Safety
/// To be called once.
#[inline(never)]
unsafe fn make_memory() {
    let areas = crate::nvm::areas().iter().map(crate::nvm::Area::range);
    // SAFETY: the boot code has checked the memory map and taken out what is in use, and the caller
    // calls once.
    unsafe { crate::frames::init(&info().memory, areas) };
    crate::nvm::hold_frames();
    crate::paging::init();
}

/// A file that the boot loader put into memory: an initial RAM file system. When it is dropped, its
/// memory goes to the frame allocator.
#[derive(Debug)]
pub struct Module {
    /// The bytes were taken out of [`BootInfo`], so nothing else has them. The lifetime is
    /// `'static` only until the drop.
    bytes: &'static [u8],
}

impl core::ops::Deref for Module {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.bytes
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        let start = (self.bytes.as_ptr() as usize - DIRECT_MAP) as u64;
        let end = start + self.bytes.len() as u64;
        // Whole pages only, and not the first MiB, where the other processors start.
        let (first, last) = (start.max(1 << 20).div_ceil(4096), end / 4096);
        if first < last {
            // SAFETY: only this module had the bytes, and it is dropped; the loader put them into
            // RAM, which the frame table covers.
            unsafe { crate::frames::adopt(first as u32, (last - first) as u32) };
        }
    }
}

/// Returns the files that the boot loader put into memory, in order. Only the first caller gets
/// them, after [`prepare_memory`]; later callers get none.
pub fn take_modules() -> ArrayVec<Module, 8> {
    core::mem::take(&mut *info().modules.lock()).into_iter().map(|bytes| Module { bytes }).collect()
}
