//! The CPU's features, detected once, and the control registers set accordingly.

use raw_cpuid::CpuId;
use spin::once::Once;
use x86_64::registers::control::{Cr0, Cr0Flags, Cr4, Cr4Flags, Efer, EferFlags};
use x86_64::registers::xcontrol::{XCr0, XCr0Flags};

/// The best way to write a cache line back to memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CacheFlush {
    /// `clwb`: the line stays in the cache.
    WriteBack,
    /// `clflushopt`.
    Optimised,
    /// `clflush`.
    #[default]
    Plain,
}

/// The features that the kernel makes decisions by.
#[derive(Clone, Copy, Debug, Default)]
#[allow(missing_docs)]
pub struct Features {
    pub fsgsbase: bool,
    pub smap: bool,
    pub smep: bool,
    pub umip: bool,
    pub x2apic: bool,
    pub tsc_deadline: bool,
    pub invariant_tsc: bool,
    pub xsave: bool,
    pub xsaveopt: bool,
    pub gigabyte_pages: bool,
    pub pcid: bool,
    pub rdrand: bool,
    /// `crc32`, among others.
    pub sse4_2: bool,
    pub rdseed: bool,
    /// `rep stosb/movsb` is fast.
    pub erms: bool,
    pub hypervisor: bool,
    /// How cache lines are brought to memory.
    pub flush: CacheFlush,
    /// Bytes of the XSAVE area with the features in `xcr0`.
    pub xsave_size: usize,
    /// The state components that are switched.
    pub xcr0: u64,
    /// CPUID.1:EDX, which programs see as AT_HWCAP.
    pub hwcap: u32,
    /// AT_HWCAP2: bit 1 is FSGSBASE.
    pub hwcap2: u32,
}

static FEATURES: Once<Features> = Once::new();
static NONE: Features = Features {
    fsgsbase: false,
    smap: false,
    smep: false,
    umip: false,
    x2apic: false,
    tsc_deadline: false,
    invariant_tsc: false,
    xsave: false,
    xsaveopt: false,
    gigabyte_pages: false,
    pcid: false,
    rdrand: false,
    sse4_2: false,
    rdseed: false,
    erms: false,
    hypervisor: false,
    flush: CacheFlush::Plain,
    xsave_size: 512,
    xcr0: 3,
    hwcap: 0,
    hwcap2: 0,
};

/// Returns the features of this machine's CPUs.
#[inline]
pub fn features() -> &'static Features {
    FEATURES.get().unwrap_or(&NONE)
}

/// Whether the processor has `syscall`, without which the kernel cannot run.
pub(crate) fn has_syscall() -> bool {
    let found = CpuId::new().get_extended_processor_and_feature_identifiers();
    found.is_none_or(|found| found.has_syscall_sysret())
}

fn detect() -> Features {
    let cpuid = CpuId::new();
    let mut found = Features { xsave_size: 512, xcr0: 3, ..Features::default() };
    if let Some(f) = cpuid.get_feature_info() {
        found.x2apic = f.has_x2apic();
        found.tsc_deadline = f.has_tsc_deadline();
        found.xsave = f.has_xsave();
        found.pcid = f.has_pcid();
        found.rdrand = f.has_rdrand();
        found.sse4_2 = f.has_sse42();
        found.hypervisor = f.has_hypervisor();
    }
    if let Some(f) = cpuid.get_extended_feature_info() {
        found.fsgsbase = f.has_fsgsbase();
        found.smap = f.has_smap();
        found.smep = f.has_smep();
        found.umip = f.has_umip();
        found.rdseed = f.has_rdseed();
        found.erms = f.has_rep_movsb_stosb();
        found.flush = match (f.has_clwb(), f.has_clflushopt()) {
            (true, _) => CacheFlush::WriteBack,
            (false, true) => CacheFlush::Optimised,
            (false, false) => CacheFlush::Plain,
        };
    }
    if let Some(f) = cpuid.get_extended_processor_and_feature_identifiers() {
        found.gigabyte_pages = f.has_1gib_pages();
    }
    if let Some(f) = cpuid.get_advanced_power_mgmt_info() {
        found.invariant_tsc = f.has_invariant_tsc();
    }
    found.hwcap = core::arch::x86_64::__cpuid(1).edx;
    found.hwcap2 = if found.fsgsbase { 2 } else { 0 };
    found
}

/// Detects the features (on the first CPU) and sets this CPU's control registers.
pub(crate) fn init() {
    let found = *FEATURES.get().unwrap_or(&NONE);
    let first = FEATURES.get().is_none();
    let mut found = if first { detect() } else { found };
    // SAFETY: sets paging protections, SSE and FSGSBASE that the CPU has reported; the mappings of
    // the kernel are made for WP, NX, SMEP and SMAP.
    unsafe {
        Efer::update(|f| {
            f.insert(EferFlags::SYSTEM_CALL_EXTENSIONS | EferFlags::NO_EXECUTE_ENABLE)
        });
        Cr0::update(|f| {
            f.insert(
                Cr0Flags::ALIGNMENT_MASK
                    | Cr0Flags::WRITE_PROTECT
                    | Cr0Flags::MONITOR_COPROCESSOR
                    | Cr0Flags::NUMERIC_ERROR,
            );
            f.remove(Cr0Flags::EMULATE_COPROCESSOR | Cr0Flags::TASK_SWITCHED);
        });
        Cr4::update(|f| {
            f.insert(Cr4Flags::OSFXSR | Cr4Flags::OSXMMEXCPT_ENABLE | Cr4Flags::PAGE_GLOBAL);
            f.set(Cr4Flags::FSGSBASE, found.fsgsbase);
            f.set(Cr4Flags::SUPERVISOR_MODE_EXECUTION_PROTECTION, found.smep);
            f.set(Cr4Flags::SUPERVISOR_MODE_ACCESS_PREVENTION, found.smap);
            f.set(Cr4Flags::USER_MODE_INSTRUCTION_PREVENTION, found.umip);
            f.set(Cr4Flags::OSXSAVE, found.xsave);
        });
    }
    if found.xsave {
        let cpuid = CpuId::new();
        // x87, SSE, AVX and AVX-512: the components whose layout signal frames have always had.
        const WANTED: u64 = 0b1110_0111;
        if first {
            let low = core::arch::x86_64::__cpuid_count(0xd, 0);
            let mut mask = (u64::from(low.edx) << 32 | u64::from(low.eax)) & WANTED;
            if mask & 0b1110_0000 != 0b1110_0000 || mask & 4 == 0 {
                mask &= 7;
            }
            found.xcr0 = mask | 3;
        }
        // SAFETY: only components CPUID lists; x87 and SSE are always among them.
        unsafe { XCr0::write(XCr0Flags::from_bits_truncate(found.xcr0)) };
        if first {
            found.xsave_size = core::arch::x86_64::__cpuid_count(0xd, 0).ebx as usize;
            found.xsaveopt =
                cpuid.get_extended_state_info().is_some_and(|info| info.has_xsaveopt());
        }
    }
    FEATURES.call_once(|| found);
}

/// Makes programs in user mode trap on this CPU when they read the time stamp counter (CR4.TSD,
/// Intel SDM vol. 3, 2.5). The kernel may always read it.
pub fn forbid_tsc() {
    if !Cr4::read().contains(Cr4Flags::TIMESTAMP_DISABLE) {
        // SAFETY: the bit affects only two instructions in ring 3.
        unsafe { Cr4::update(|flags| flags.insert(Cr4Flags::TIMESTAMP_DISABLE)) };
    }
}

/// Lets programs in user mode read the time stamp counter again; false if they could already.
pub fn allow_tsc() -> bool {
    let forbidden = Cr4::read().contains(Cr4Flags::TIMESTAMP_DISABLE);
    if forbidden {
        // SAFETY: as in `forbid_tsc`.
        unsafe { Cr4::update(|flags| flags.remove(Cr4Flags::TIMESTAMP_DISABLE)) };
    }
    forbidden
}
