//! The exception table: where the kernel goes on after a fault of one of its own instructions.
//!
//! Instructions that touch the program's memory, and those that load numbers of a program's, put
//! pairs of addresses into the section `.ex_table`. The table is searched when such an instruction
//! may not go on; on processors without SMAP at every page fault of a checked copy. That is on a
//! fork's way, whose pages are copy-on-write when `wait4` writes a status to the parent's stack.
//! So the search is binary: one entry after the other, of some 260, it was a sixth of fork, exit
//! and wait together.
//!
//! The linker puts the entries in the order of the code, as a rule; [`sort`] makes sure of it at
//! boot, as Linux does (`kernel/extable.c`, `sort_main_extable`).

/// An instruction that may fault, and where execution goes on if it did.
#[repr(C)]
struct Fixup {
    at: u64,
    then: u64,
}

unsafe extern "C" {
    // Defined by the linker script around the section `.ex_table`.
    static mut __start_extable: [Fixup; 0];
    static mut __stop_extable: [Fixup; 0];
}

/// Returns the table's first entry and how many there are.
fn bounds() -> (*mut Fixup, usize) {
    let (start, end) = (&raw mut __start_extable, &raw mut __stop_extable);
    (start.cast(), (end as usize - start as usize) / size_of::<Fixup>())
}

/// Sorts the table.
///
/// # Safety
/// The kernel's constants must be writable, no other processor may run and no instruction may have
/// faulted.
pub(crate) unsafe fn sort() {
    let (start, count) = bounds();
    // SAFETY: the linker puts whole entries between the two symbols; the caller promises that they
    // are writable and that nobody else reads them meanwhile.
    let table = unsafe { core::slice::from_raw_parts_mut(start, count) };
    order(table);
}

/// Sorts by Shell's method. The standard library's sort is faster, and some hundred times as much
/// code: this runs once, and an emulator takes longer to translate code than to execute it here.
fn order(table: &mut [Fixup]) {
    for gap in [57, 23, 10, 4, 1] {
        for end in gap..table.len() {
            let mut at = end;
            while at >= gap && table[at - gap].at > table[at].at {
                table.swap(at - gap, at);
                at -= gap;
            }
        }
    }
}

/// Returns where to go on after a fault of the instruction at `rip`, if the table has an entry for
/// it.
pub(super) fn find(rip: u64) -> Option<u64> {
    let (start, count) = bounds();
    // SAFETY: the linker puts whole entries between the two symbols, and nobody writes them after
    // `sort`.
    let table = unsafe { core::slice::from_raw_parts(start, count) };
    let index = table.binary_search_by_key(&rip, |entry| entry.at).ok()?;
    Some(table[index].then)
}
