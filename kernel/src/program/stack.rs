//! The first stack of a program: arguments, environment, auxiliary vector (System V ABI for x86-64,
//! 3.4.1; `create_elf_tables` of Linux).

use alloc::vec::Vec;
use core::ops::Range;

use hayate_abi::{Errno, Result, raw::auxvec::*};
use zerocopy::IntoBytes;

use super::load;
use super::strings::Strings;
use crate::credentials::{Credentials, Id};
use crate::memory::{MapRequest, Mapping, PAGE, Placement, Protection, Space, page_down};
use crate::random;
use crate::reclaim::growth;
use crate::reclaim::growth::Grow;

/// How much is mapped below the initial content at once, in bytes (`setup_arg_pages`), since
/// programs soon touch it.
pub const ROOM: usize = 32 * PAGE;
const PLATFORM: &[u8] = b"x86_64\0";
const AT_MINSIGSTKSZ: u32 = 51;

/// The contents of the auxiliary vector that depend on the program.
pub struct Facts<'a> {
    /// The address of the program headers.
    pub headers: usize,
    /// The number of program headers.
    pub header_count: u16,
    /// Where the interpreter is; 0 without one.
    pub interpreter: usize,
    /// The program's own first instruction.
    pub entry: usize,
    /// The program's credentials.
    pub credentials: &'a Credentials,
    /// The program gained privilege: libraries must not trust the environment.
    pub secure: bool,
    /// Whether the stack must be executable.
    pub executable_stack: bool,
    /// The space was kept: it may have a stack already.
    pub kept: bool,
    /// The random bytes, if they are not to be drawn.
    pub random: Option<[u64; 2]>,
}

/// The addresses on a new stack.
pub struct Stack {
    /// The initial stack pointer.
    pub pointer: usize,
    /// First byte of the arguments.
    pub arguments: usize,
    /// First byte of the environment.
    pub environment: usize,
    /// First byte after the environment.
    pub environment_end: usize,
    /// First byte of the auxiliary vector.
    pub auxiliary: usize,
    /// First byte after the auxiliary vector.
    pub auxiliary_end: usize,
}

/// Makes the stack of a new program in its space. Fails with `ENOMEM` if the content does not fit.
pub fn build(
    space: &Space,
    arguments: &Strings,
    environment: &Strings,
    path: &[u8],
    facts: &Facts<'_>,
) -> Result<Stack> {
    let top = space.layout().stack_top;
    let no_room = || Errno::ENOMEM;

    // From the top: a null word, the path, the environment, the arguments, the platform's name,
    // sixteen random bytes.
    let path_at = top.checked_sub(8 + path.len() + 1).ok_or_else(no_room)?;
    let environment_at = path_at.checked_sub(environment.as_bytes().len()).ok_or_else(no_room)?;
    let arguments_at =
        environment_at.checked_sub(arguments.as_bytes().len()).ok_or_else(no_room)?;
    let platform_at = arguments_at.checked_sub(PLATFORM.len()).ok_or_else(no_room)?;
    let random_at = platform_at.checked_sub(16).ok_or_else(no_room)? & !15;

    let auxiliary = auxiliary(facts, path_at, platform_at, random_at);
    let vector_words = 1 + arguments.len() + 1 + environment.len() + 1;
    let words = vector_words + auxiliary.len() * 2;
    let pointer = random_at.checked_sub(words * 8).ok_or_else(no_room)? & !15;

    let total = top - pointer;
    let mut content: Vec<u8> = Vec::new();
    growth::relieved(|| content.make_room_exact(total))?;
    // Zeroed as a whole, then filled in place: cheaper than ten pieces that each ask for room.
    content.resize(total, 0);
    let mut vector = content.as_chunks_mut::<8>().0.iter_mut();
    let mut push = |value: usize| {
        if let Some(word) = vector.next() {
            *word = value.to_ne_bytes();
        }
    };
    push(arguments.len());
    for (strings, at) in [(arguments, arguments_at), (environment, environment_at)] {
        let mut address = at;
        strings.for_each_length(|length| {
            push(address);
            address += length;
        });
        push(0);
    }
    let random = facts.random.unwrap_or_else(|| [random::quick_word(), random::quick_word()]);
    let auxiliary_at = pointer + vector_words * 8;
    for (at, bytes) in [
        (auxiliary_at, auxiliary.as_bytes()),
        (random_at, random.as_bytes()),
        (platform_at, PLATFORM),
        (arguments_at, arguments.as_bytes()),
        (environment_at, environment.as_bytes()),
        (path_at, path),
    ] {
        let to = content.get_mut(at - pointer..).and_then(|rest| rest.get_mut(..bytes.len()));
        to.ok_or_else(no_room)?.copy_from_slice(bytes);
    }

    let start = page_down(pointer).checked_sub(ROOM).ok_or_else(no_room)?;
    place(space, start..top, pointer, &content, facts)?;
    Ok(Stack {
        pointer,
        arguments: arguments_at,
        environment: environment_at,
        environment_end: path_at,
        auxiliary: auxiliary_at,
        auxiliary_end: pointer + words * 8,
    })
}

/// Maps the stack and fills it from `pointer` on.
#[inline(always)]
fn place(
    space: &Space,
    range: Range<usize>,
    pointer: usize,
    content: &[u8],
    facts: &Facts<'_>,
) -> Result<()> {
    let mut protection = Protection::READ | Protection::WRITE;
    protection.set(Protection::EXECUTE, facts.executable_stack);
    let flags = load::stack_flags();
    if facts.kept {
        let mapping = Mapping { protection, flags, backing: None, offset: 0 };
        return space.place_stack(range, mapping, pointer, content);
    }
    space.map(MapRequest {
        address: range.start,
        place: Placement::FixedNoReplace,
        protection,
        flags,
        ..MapRequest::anonymous(range.len())
    })?;
    space.recycle_region(range);
    space.fill_foreign(pointer, content)
}

/// The auxiliary vector: kinds and their values.
fn auxiliary(facts: &Facts<'_>, path: usize, platform: usize, random: usize) -> [[usize; 2]; 21] {
    let cpu = hayate_machine::cpu::features();
    let credentials = facts.credentials;
    let user = |id: Id| credentials.user.shown_user(id) as usize;
    let group = |id: Id| credentials.user.shown_group(id) as usize;
    // Without a vDSO, an entry that programs ignore.
    let shown = match hayate_machine::vdso::object() {
        Some(object) => [AT_SYSINFO_EHDR as usize, object],
        None => [AT_IGNORE as usize, 0],
    };
    [
        shown,
        [AT_MINSIGSTKSZ as usize, 1024 + hayate_machine::fpu::FpuState::signal_size()],
        [AT_HWCAP as usize, cpu.hwcap as usize],
        [AT_PAGESZ as usize, PAGE],
        [AT_CLKTCK as usize, hayate_abi::time::CLOCK_TICKS_PER_SEC as usize],
        [AT_PHDR as usize, facts.headers],
        [AT_PHENT as usize, hayate_program_image::Plan::HEADER_SIZE as usize],
        [AT_PHNUM as usize, usize::from(facts.header_count)],
        [AT_BASE as usize, facts.interpreter],
        [AT_FLAGS as usize, 0],
        [AT_ENTRY as usize, facts.entry],
        [AT_UID as usize, user(credentials.uid)],
        [AT_EUID as usize, user(credentials.euid)],
        [AT_GID as usize, group(credentials.gid)],
        [AT_EGID as usize, group(credentials.egid)],
        [AT_SECURE as usize, usize::from(facts.secure)],
        [AT_RANDOM as usize, random],
        [AT_HWCAP2 as usize, cpu.hwcap2 as usize],
        [AT_EXECFN as usize, path],
        [AT_PLATFORM as usize, platform],
        [AT_NULL as usize, 0],
    ]
}
