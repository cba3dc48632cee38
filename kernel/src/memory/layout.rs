//! The addresses of stack, heap and mappings in a space, as in Linux (`arch/x86/mm/mmap.c`,
//! `fs/binfmt_elf.c`): random, or the fixed addresses that Linux uses when randomisation is off.

use super::page::{PAGE, USER_END};

/// The addresses of stack, heap and mappings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The first address above the first stack.
    pub stack_top: usize,
    /// `mmap` places downwards from here.
    pub mmap_top: usize,
    /// Where a position-independent program is loaded.
    pub program_base: usize,
    /// The random distance of the heap from the program's end, in bytes.
    pub heap_shift: usize,
    /// Programs and other files that are mapped have places of their own
    /// ([`places`](super::places)), as long as these are free.
    pub files_have_places: bool,
}

/// The lowest and highest gap for the stack below the top (`MIN_GAP`, `MAX_GAP`).
const LEAST_GAP: usize = 128 << 20;
const MOST_GAP: usize = USER_END / 6 * 5;
/// The guard below the stack (`stack_guard_gap`, 256 pages).
pub const STACK_GUARD: usize = 256 * PAGE;
/// Two thirds of the user half: Linux' `ELF_ET_DYN_BASE`.
pub const PROGRAM_BASE: usize = (USER_END / 3 * 2) & !(PAGE - 1);

impl Layout {
    /// The layout for a program whose stack may grow to `stack_limit` bytes. `random` gives random
    /// words; `None`: nothing is randomised (`norandmaps`, `ADDR_NO_RANDOMIZE`).
    pub fn new(stack_limit: usize, random: Option<&mut dyn FnMut() -> u64>) -> Layout {
        // Bits of randomness, in pages: Linux' 22 for the stack, 28 for mmap and programs, 13 for
        // the heap (32 MiB).
        let (mut stack, mut mmap, mut program, mut heap) = (0, 0, 0, 0);
        if let Some(random) = random {
            // Two words are enough: 63 and 28 bits.
            let (mut word, last) = (random(), random());
            let mut pages = |bits: u32| {
                let part = word & ((1 << bits) - 1);
                word >>= bits;
                part as usize * PAGE
            };
            (stack, mmap, heap) = (pages(22), pages(28), pages(13));
            program = (last & ((1 << 28) - 1)) as usize * PAGE;
        }
        let stack_top = USER_END - stack;
        // The stack's own randomness (16 GiB) lies inside the gap.
        let pad = STACK_GUARD + if stack == 0 { 0 } else { 16 << 30 };
        let gap = stack_limit.saturating_add(pad).clamp(LEAST_GAP, MOST_GAP);
        let mmap_top = (USER_END - gap - mmap) & !(PAGE - 1);
        Layout {
            stack_top,
            mmap_top,
            program_base: PROGRAM_BASE + program,
            heap_shift: heap,
            files_have_places: false,
        }
    }
}
