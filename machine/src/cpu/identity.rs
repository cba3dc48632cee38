//! How the processor identifies itself, for `/proc/cpuinfo`.

use arrayvec::ArrayString;
use raw_cpuid::{CpuId, native_cpuid};

/// A processor's name and numbers.
#[derive(Clone, Debug)]
pub struct Identity {
    /// Twelve letters, as `AuthenticAMD`.
    pub vendor: ArrayString<12>,
    /// The marketing name.
    pub brand: ArrayString<48>,
    /// Family, the extended one included.
    pub family: u8,
    /// Model, the extended one included.
    pub model: u8,
    /// Stepping.
    pub stepping: u8,
    /// Bits of a physical address.
    pub physical_bits: u8,
}

/// Queries the processor. Each `cpuid` may be an exit to the hypervisor: not for hot paths.
pub fn identity() -> Identity {
    let cpuid = CpuId::new();
    let mut identity = Identity {
        vendor: ArrayString::new(),
        brand: ArrayString::new(),
        family: 0,
        model: 0,
        stepping: 0,
        physical_bits: 36,
    };
    if let Some(vendor) = cpuid.get_vendor_info() {
        let _ = identity.vendor.try_push_str(vendor.as_str());
    }
    if let Some(brand) = cpuid.get_processor_brand_string() {
        let _ = identity.brand.try_push_str(brand.as_str().trim());
    }
    if let Some(info) = cpuid.get_feature_info() {
        identity.family = info.family_id();
        identity.model = info.model_id();
        identity.stepping = info.stepping_id();
    }
    if let Some(sizes) = cpuid.get_processor_capacity_feature_info() {
        identity.physical_bits = sizes.physical_address_bits();
    }
    identity
}

/// Leaves and parts of `cpuid` by which programs choose their code, and which bits of EAX, EBX, ECX
/// and EDX: the vendor, the model, features, the layout of the saved registers (SDM vol. 2, CPUID).
/// Left out are the numbers of this processor and of all, and the bits that there are several.
const CHOSEN_BY: [(u32, u32, [u32; 4]); 9] = [
    (0, 0, [!0; 4]),
    (1, 0, [!0, 0, !0, !(1 << 28)]),
    (7, 0, [!0; 4]),
    (7, 1, [!0; 4]),
    (0xd, 0, [!0, 0, !0, !0]),
    (0xd, 1, [!0, 0, !0, !0]),
    (0x8000_0000, 0, [!0; 4]),
    (0x8000_0001, 0, [!0, !0, !(1 << 1), !0]),
    (0x8000_0008, 0, [!0, !0, 0, !0]),
];

/// Returns what `cpuid` tells programs of the features by which they choose their code. A program
/// that has chosen runs on another processor with the same words. Each `cpuid` may be an exit to
/// the hypervisor: not for hot paths.
pub fn chosen_by() -> [[u32; 4]; CHOSEN_BY.len()] {
    CHOSEN_BY.map(|(leaf, part, bits)| {
        let found = native_cpuid::cpuid_count(leaf, part);
        let words = [found.eax, found.ebx, found.ecx, found.edx];
        core::array::from_fn(|at| words[at] & bits[at])
    })
}

/// Returns the names of the features that programs may use, as Linux calls them
/// (arch/x86/include/asm/cpufeatures.h), in its order.
pub fn flags() -> impl Iterator<Item = &'static str> {
    let cpuid = CpuId::new();
    let basic = cpuid.get_feature_info();
    let extended = cpuid.get_extended_feature_info();
    let amd = cpuid.get_extended_processor_and_feature_identifiers();
    let basic = move |ask: fn(&raw_cpuid::FeatureInfo) -> bool| basic.as_ref().is_some_and(ask);
    let extended =
        move |ask: fn(&raw_cpuid::ExtendedFeatures) -> bool| extended.as_ref().is_some_and(ask);
    let amd = move |ask: fn(&raw_cpuid::ExtendedProcessorFeatureIdentifiers) -> bool| {
        amd.as_ref().is_some_and(ask)
    };
    let all = [
        ("fpu", basic(|info| info.has_fpu())),
        ("tsc", basic(|info| info.has_tsc())),
        ("msr", basic(|info| info.has_msr())),
        ("pae", basic(|info| info.has_pae())),
        ("cx8", basic(|info| info.has_cmpxchg8b())),
        ("apic", basic(|info| info.has_apic())),
        ("sep", basic(|info| info.has_sysenter_sysexit())),
        ("cmov", basic(|info| info.has_cmov())),
        ("clflush", basic(|info| info.has_clflush())),
        ("mmx", basic(|info| info.has_mmx())),
        ("fxsr", basic(|info| info.has_fxsave_fxstor())),
        ("sse", basic(|info| info.has_sse())),
        ("sse2", basic(|info| info.has_sse2())),
        ("ht", basic(|info| info.has_htt())),
        ("syscall", amd(|info| info.has_syscall_sysret())),
        ("nx", amd(|info| info.has_execute_disable())),
        ("pdpe1gb", amd(|info| info.has_1gib_pages())),
        ("rdtscp", amd(|info| info.has_rdtscp())),
        ("lm", amd(|info| info.has_64bit_mode())),
        ("pni", basic(|info| info.has_sse3())),
        ("pclmulqdq", basic(|info| info.has_pclmulqdq())),
        ("ssse3", basic(|info| info.has_ssse3())),
        ("fma", basic(|info| info.has_fma())),
        ("cx16", basic(|info| info.has_cmpxchg16b())),
        ("sse4_1", basic(|info| info.has_sse41())),
        ("sse4_2", basic(|info| info.has_sse42())),
        ("movbe", basic(|info| info.has_movbe())),
        ("popcnt", basic(|info| info.has_popcnt())),
        ("aes", basic(|info| info.has_aesni())),
        ("xsave", basic(|info| info.has_xsave())),
        ("avx", basic(|info| info.has_avx())),
        ("f16c", basic(|info| info.has_f16c())),
        ("rdrand", basic(|info| info.has_rdrand())),
        ("hypervisor", basic(|info| info.has_hypervisor())),
        ("lahf_lm", amd(|info| info.has_lahf_sahf())),
        ("fsgsbase", extended(|info| info.has_fsgsbase())),
        ("bmi1", extended(|info| info.has_bmi1())),
        ("avx2", extended(|info| info.has_avx2())),
        ("smep", extended(|info| info.has_smep())),
        ("bmi2", extended(|info| info.has_bmi2())),
        ("erms", extended(|info| info.has_rep_movsb_stosb())),
        ("rdseed", extended(|info| info.has_rdseed())),
        ("adx", extended(|info| info.has_adx())),
        ("smap", extended(|info| info.has_smap())),
        ("clflushopt", extended(|info| info.has_clflushopt())),
        ("clwb", extended(|info| info.has_clwb())),
        ("sha_ni", extended(|info| info.has_sha())),
        ("umip", extended(|info| info.has_umip())),
    ];
    all.into_iter().filter_map(|(name, has)| has.then_some(name))
}
