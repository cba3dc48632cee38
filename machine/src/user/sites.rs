//! Processors without SMAP: `stac` and `clac` are invalid there and become no-ops.

unsafe extern "C" {
    // Defined by the linker script around the section `.smap_sites`.
    static __smap_sites_start: [usize; 0];
    static __smap_sites_end: [usize; 0];
}

/// Replaces every `stac` and `clac` of the user copies by a no-op.
///
/// # Safety
/// The kernel's text must be writable, and no other processor may run.
pub(crate) unsafe fn patch_out_smap() {
    let (start, end) = (&raw const __smap_sites_start, &raw const __smap_sites_end);
    let count = (end as usize - start as usize) / size_of::<usize>();
    // SAFETY: the linker puts whole addresses between the two symbols.
    let sites = unsafe { core::slice::from_raw_parts(start.cast::<usize>(), count) };
    for &site in sites {
        // SAFETY: these are the three bytes of a `stac` or `clac`, which the caller promises are
        // writable and not being executed. The new bytes are `nop dword ptr [rax]`.
        unsafe { (site as *mut [u8; 3]).write([0x0f, 0x1f, 0x00]) };
    }
}
