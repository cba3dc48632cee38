//! The boot protocol (PVH) and its data: memory, command line, modules.
//!
//! All data from the loader is checked: `hvm_start_info` has been seen with garbage after a warm
//! reset, so counts are limited, ranges are cut to plausible ones, and a module that overlaps the
//! kernel is dropped.

mod cmdline;
mod entry;
mod start_info;
mod tables;

pub use cmdline::{flag, init_arguments, option, options};
pub(crate) use entry::{boot_root, first_tsc};
pub(crate) use start_info::firmware_bytes;
pub(crate) use tables::{
    activate as activate_kernel_tables, early_frame, kernel_root, map_late, share_kernel_half,
};

use arrayvec::ArrayVec;

use crate::sync::SpinLock;

use crate::{cpu, serial, trap};

/// Start of the map of all physical memory.
pub const DIRECT_MAP: u64 = 0xffff_8880_0000_0000;
/// Where the kernel image is linked: `KERNEL_BASE + physical address`.
pub const KERNEL_BASE: u64 = 0xffff_ffff_8000_0000;
/// Start of the area for kernel stacks and other pages mapped one by one.
pub const VMAP: u64 = 0xffff_c900_0000_0000;

/// The kind of a range of physical memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryKind {
    /// Free RAM.
    Usable,
    /// RAM in use from boot: the kernel image, modules, page tables made at boot.
    Kernel,
    /// RAM with ACPI tables, reclaimable in theory.
    Acpi,
    /// Non-volatile memory.
    Persistent,
    /// Anything else: never touched.
    Reserved,
}

/// A range of physical memory, page-aligned, `start < end`. Ranges are sorted and disjoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryRange {
    /// First byte.
    pub start: u64,
    /// One past the last byte.
    pub end: u64,
    /// The kind of the range.
    pub kind: MemoryKind,
}

/// What is known about the machine at boot.
#[derive(Debug)]
pub struct BootInfo {
    /// The memory map; RAM of every kind is in the direct map.
    pub memory: ArrayVec<MemoryRange, 128>,
    /// The kernel's command line.
    pub command_line: &'static str,
    /// The modules that [`take_modules`] returns.
    pub(crate) modules: SpinLock<ArrayVec<&'static [u8], 8>>,
    /// Physical address of the ACPI root pointer, if known.
    pub rsdp: Option<u64>,
}

static INFO: crate::sync::Once<BootInfo> = crate::sync::Once::new();

/// Returns what is known about the machine.
///
/// # Panics
/// Before the boot code has gathered it.
pub fn info() -> &'static BootInfo {
    INFO.get().expect("boot information is not gathered yet")
}

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
    trap::init_idt();
    cpu::init_features();
    if !cpu::features().smap {
        // SAFETY: the boot tables map the text writable, and no other CPU runs.
        unsafe {
            trap::patch_out_clac();
            crate::user::patch_out_smap();
        }
    }
    cpu::init_descriptors();
    let Some((info, early)) = start_info::read(entry::start_info(), tables::early_size) else {
        panic!(
            "the loader gave no usable PVH start info: boot with QEMU's -kernel or another PVH loader"
        );
    };
    tables::set_early(early.0, early.1);
    let info = INFO.call_once(|| info);
    if let Some(level) = option("loglevel").and_then(|text| text.parse().ok()) {
        crate::log::set_level(level);
    }
    crate::acpi::info();
    crate::nvm::find(info);
    tables::build(info);
    crate::apic::init();
    crate::time::init();
    trap::init_syscalls();
    crate::fpu::init();
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
    PREPARED.call_once(|| {
        crate::frames::init(info());
        crate::paging::kernel::init();
    });
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
        let start = self.bytes.as_ptr() as u64 - DIRECT_MAP;
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
