//! A template that was saved before this boot, made ready for its first start.
//!
//! Its files are opened and must be those that it was saved with ([`super::known`]), its regions
//! are mapped, and its pages are entered in a page table where they lie. A start then gets a copy
//! by copy-on-write, as from any other template.
//!
//! **Nothing of a head is believed.** The crate has checked that it is whole; here registers,
//! rights and flags are checked as those are that a program asks for. A template that does not fit
//! this machine is given up with a line in the log, and the program starts as always.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;
use core::sync::atomic::AtomicU64;

use hayate_abi::signal::{NSIG, Sigaction, SignalStack, bit};
use hayate_abi::{Errno, Result};
use hayate_machine::fpu::FpuState;
use hayate_machine::trap::UserRegs;
use hayate_template_file::{Action, Facts, Head, Known, NO_FILE, Region, Word};
use hayate_template_rules::Rules;
use machine::{vdso, warn};

use super::declaration::Environments;
use super::known::{self, By};
use super::save::first_root;
use super::shelf::{self, Stored};
use super::source::Source;
use super::table;
use super::template::{self, Template};
use crate::credentials::Credentials;
use crate::memory::space::Lineage;
use crate::memory::stored::Shape;
use crate::memory::{
    Backing, LOWEST, Layout, Mapping, PAGE, Protection, RegionFlags, Space, USER_END, most_regions,
};
use crate::process::record::Vectors;
use crate::process::sequences::registration::Registration;
use crate::process::signal::{ActionTable, UNBLOCKABLE};
use crate::process::thread::Thread;
use crate::process::transform::Position;
use crate::program::Executable;
use crate::reclaim::growth;
use crate::reclaim::growth::Grow;
use crate::vfs::file_count::Counted;
use crate::vfs::mount::Location;
use crate::vfs::open;
use crate::vfs::path::{Resolver, WalkFlags};

/// Why a template is not used.
enum Refused {
    /// By this process, or now.
    Here(Errno),
    /// In this machine.
    Ever(&'static str),
    /// In this machine: something of it could not be had.
    Failed(Errno),
}

impl From<Errno> for Refused {
    fn from(error: Errno) -> Refused {
        match error {
            Errno::EMFILE | Errno::ENFILE | Errno::ENOMEM | Errno::ENOSPC | Errno::ETXTBSY => {
                Refused::Here(error)
            }
            other => Refused::Failed(other),
        }
    }
}

/// The template to which a user has bound a path, if it was saved before this boot.
#[cold]
pub fn bound(thread: &Thread, path: &[u8], owner: u32) -> Option<Arc<Template>> {
    let name = table::name_bound(path, owner)?;
    find(thread, &name, owner).ok()
}

/// The template of this name and owner, if it was saved before this boot, for a start by the
/// current thread.
///
/// # Errors
/// `ENOENT`: there is none, or it does not fit this machine any more. `EPERM`: the caller has other
/// rights than its maker, another root than the machine's, or namespaces of its own. `ENOMEM`.
#[cold]
pub fn find(thread: &Thread, name: &[u8], owner: u32) -> Result<Arc<Template>> {
    let stored = shelf::get(name, owner).ok_or(Errno::ENOENT)?;
    match make(thread, &stored) {
        Ok(template) => {
            shelf::take(name, owner);
            Ok(template)
        }
        Err(Refused::Here(error)) => Err(error),
        Err(Refused::Ever(why)) => {
            warn!("template: {} is not used: {why}", name.escape_ascii());
            Err(give_up(name, owner))
        }
        Err(Refused::Failed(error)) => {
            warn!("template: {} is not used: {error:?}", name.escape_ascii());
            Err(give_up(name, owner))
        }
    }
}

/// Forgets a template that does not fit this machine.
fn give_up(name: &[u8], owner: u32) -> Errno {
    shelf::take(name, owner);
    table::unbind_all(name, owner);
    Errno::ENOENT
}

/// Makes a template of what is stored, and enters it in the table.
fn make(thread: &Thread, stored: &Stored) -> core::result::Result<Arc<Template>, Refused> {
    let directories = thread.directories()?;
    let root = directories.root();
    if thread.gets_nothing_kept() || !root.is_same(&first_root()?) {
        return Err(Refused::Here(Errno::EPERM));
    }
    let head = stored.head()?;
    let facts = &head.facts;
    let (credentials, _) = thread.credentials().for_program(None, None);
    if !is_of(&credentials, &head) {
        return Err(Refused::Here(Errno::EPERM));
    }
    if facts.machine != known::machine() {
        return Err(Refused::Ever("it was made by another kernel or on another processor"));
    }
    if vdso::object() != Some(facts.object.get() as usize) {
        return Err(Refused::Ever("the kernel's shared object lies elsewhere"));
    }
    let serves = Rules::read(head.rules).map_err(|_| Refused::Ever("its rules are damaged"))?;
    let resolver = Resolver { context: &directories, credentials: &credentials, start: None };
    let files = files(&resolver, &head)?;
    let program = files.program(&head)?;
    let executable = Arc::new(Executable::open(program, &directories, &credentials)?);
    if !executable.readable || executable.gives_rights() {
        return Err(Refused::Ever("its program has other rights now"));
    }
    let position = position(facts)?;
    let backings = backings(&resolver, &head, &files)?;
    let space = space(stored, &head, &backings)?;
    let sources = Source::of(&directories, &credentials, &serves)?;
    if head.fpu.len() != FpuState::signal_size() {
        return Err(Refused::Ever("its state is damaged"));
    }
    let mapped = files.mapped(&head)?;
    let parts = Parts { credentials, root, serves, executable, position, space, sources, mapped };
    let template = parts.into_template(&head, stored.bytes())?;
    template::count(template.bytes);
    let template = Arc::new(template);
    table::enter(Arc::clone(&template))?;
    Ok(template)
}

/// The parts of a template that come from this machine.
struct Parts {
    credentials: Credentials,
    root: Location,
    serves: Rules,
    executable: Arc<Executable>,
    position: Position,
    space: Arc<Space>,
    sources: Vec<Source>,
    mapped: Vec<u8>,
}

impl Parts {
    fn into_template(self, head: &Head<'_>, stored: usize) -> Result<Template> {
        let Parts { credentials, root, serves, executable, position, space, sources, mapped } =
            self;
        let facts = &head.facts;
        let [start, vector, variables] = numbers(facts.told);
        let [set_tid, clear_tid] = numbers(facts.numbers);
        let [area, signature, shown] = numbers(facts.sequences);
        let [blocked, own_blocked] = facts.blocked.map(Word::get);
        let [stack, flags, size] = facts.signal_stack.map(Word::get);
        let [arguments, arguments_end, environment, environment_end, auxiliary, auxiliary_end] =
            numbers(facts.vectors);
        // Its pages are no memory of this machine.
        let bytes = (space.resident().tables + 1) * PAGE;
        let mut comm = [0; 16];
        comm.iter_mut().zip(head.comm).for_each(|(to, from)| *to = *from);
        Ok(Template {
            name: growth::copy(head.name)?,
            lineage: Lineage::of(&space).ok(),
            space,
            position,
            fpu: growth::copy(head.fpu)?,
            actions: Arc::new(actions(head)),
            blocked,
            own_blocked,
            signal_stack: SignalStack {
                ss_sp: stack,
                ss_flags: flags as i32,
                ss_size: size,
                ..SignalStack::default()
            },
            clear_tid,
            set_tid,
            sequences: Registration { area, signature: signature as u32, shown: shown as u32 },
            start,
            vectors: Vectors {
                arguments,
                arguments_end,
                environment,
                environment_end,
                auxiliary,
                auxiliary_end,
            },
            executable,
            comm,
            credentials: Arc::new(credentials),
            root,
            serves,
            files: growth::copy(head.files)?,
            environments: Environments { vector, variables },
            sources,
            mapped,
            environment: growth::copy(head.environment)?,
            made: facts.made.get(),
            stored,
            bytes,
            starts: AtomicU64::new(0),
        })
    }
}

fn numbers<const N: usize>(words: [Word; N]) -> [usize; N] {
    words.map(|word| word.get() as usize)
}

/// Whether the template serves a process with these credentials.
fn is_of(credentials: &Credentials, head: &Head<'_>) -> bool {
    let Credentials { uid, euid, suid, fsuid, gid, egid, sgid, fsgid, .. } = *credentials;
    let Credentials { effective, permitted, inheritable, bounding, ambient, .. } = *credentials;
    let facts = &head.facts;
    let groups = head.groups.iter().map(|group| group.get());
    credentials.is_outermost()
        && facts.ids.map(|id| id.get()) == [uid, euid, suid, fsuid, gid, egid, sgid, fsgid]
        && facts.capabilities.map(Word::get)
            == [effective, permitted, inheritable, bounding, ambient].map(|set| set.0)
        && facts.securebits.get() == credentials.securebits
        && groups.eq(credentials.groups.iter().copied())
}

/// The files of a head, found again: the place of each.
struct Found(Vec<Location>);

/// Finds the files and compares them with what they were.
fn files(resolver: &Resolver<'_>, head: &Head<'_>) -> core::result::Result<Found, Refused> {
    let mut found = Vec::new();
    found.make_room_exact(head.known.len()).map_err(Refused::Here)?;
    for file in head.known {
        let is_hashed = file.uses.get() & Known::HASHED != 0;
        let by = if is_hashed { By::Content } else { By::Header };
        let place = resolver.resolve(head.path(file), WalkFlags::empty());
        let state = place.and_then(|place| Ok((known::state(&place, by)?, place)));
        match state {
            Ok((state, place)) if state == file.state => found.push(place),
            Err(Errno::ENOMEM) => return Err(Refused::Here(Errno::ENOMEM)),
            _ => return Err(Refused::Ever("a file that it was made of has changed")),
        }
    }
    Ok(Found(found))
}

impl Found {
    /// The place of the program.
    fn program(&self, head: &Head<'_>) -> core::result::Result<Location, Refused> {
        let is_program = |file: &Known| file.uses.get() & Known::PROGRAM != 0;
        let number = head.known.iter().position(is_program);
        let place = number.and_then(|number| self.0.get(number));
        place.cloned().ok_or(Refused::Ever("it names no program"))
    }

    /// The paths of those that are mapped, one a line.
    fn mapped(&self, head: &Head<'_>) -> Result<Vec<u8>> {
        let mut paths = Vec::new();
        for file in head.known.iter().filter(|file| file.uses.get() & Known::MAPPED != 0) {
            growth::append(&mut paths, head.path(file))?;
            growth::append(&mut paths, b"\n")?;
        }
        Ok(paths)
    }
}

/// Where a start goes on.
fn position(facts: &Facts) -> Result<Position> {
    let words = facts.registers.map(Word::get);
    let [r15, r14, r13, r12, rbp, rbx, r11, r10, r9, r8, rest @ ..] = words;
    let [rax, rcx, rdx, rsi, rdi, orig_rax, rip, flags, rsp, fs_base, gs_base] = rest;
    let mut regs = UserRegs::start(rip, rsp);
    (regs.r15, regs.r14, regs.r13, regs.r12) = (r15, r14, r13, r12);
    (regs.rbp, regs.rbx, regs.r11, regs.r10) = (rbp, rbx, r11, r10);
    (regs.r9, regs.r8, regs.rax, regs.rcx) = (r9, r8, rax, rcx);
    (regs.rdx, regs.rsi, regs.rdi, regs.orig_rax) = (rdx, rsi, rdi, orig_rax);
    regs.set_flags(flags);
    let position = Position { regs, fs_base, gs_base };
    position.check()?;
    Ok(position)
}

/// The actions of the signals. An unknown signal has none, nor have those that cannot be caught.
fn actions(head: &Head<'_>) -> ActionTable {
    let actions = ActionTable::new();
    let is_caught = |action: &&Action| bit(action.signal.get()) & UNBLOCKABLE == 0;
    let known = head.actions.iter().filter(|action| (1..=NSIG).contains(&action.signal.get()));
    for action in known.filter(is_caught) {
        let [sa_handler, sa_flags, sa_restorer, sa_mask] = action.words.map(Word::get);
        let action_of = Sigaction { sa_handler, sa_flags, sa_restorer, sa_mask };
        actions.replace(action.signal.get(), action_of);
    }
    actions
}

/// The files that are mapped, opened, by their numbers.
fn backings(
    resolver: &Resolver<'_>,
    head: &Head<'_>,
    files: &Found,
) -> Result<Vec<Option<Arc<Backing>>>> {
    let mut backings = Vec::new();
    backings.make_room_exact(files.0.len())?;
    for (file, place) in head.known.iter().zip(&files.0) {
        let is_mapped = file.uses.get() & Known::MAPPED != 0;
        backings.push(if is_mapped { Some(backing(resolver, file, place)?) } else { None });
    }
    Ok(backings)
}

/// Opens a file that is mapped.
fn backing(resolver: &Resolver<'_>, file: &Known, place: &Location) -> Result<Arc<Backing>> {
    const O_RDONLY: u32 = 0;
    let is_program = file.uses.get() & Known::PROGRAM != 0;
    let counted = Counted::new()?;
    // A program is executed by a right that is not the one to read.
    let opened = open::open_location(resolver, place.clone(), O_RDONLY, is_program, counted)?;
    let page_cache = opened.inode().page_cache().ok_or(Errno::ENODEV)?;
    if is_program {
        Backing::program(page_cache, opened)
    } else {
        Backing::file(page_cache, opened, false)
    }
}

/// The space: its regions with their files, and its pages where they lie.
fn space(
    stored: &Stored,
    head: &Head<'_>,
    backings: &[Option<Arc<Backing>>],
) -> core::result::Result<Arc<Space>, Refused> {
    let mut regions = Vec::new();
    regions.make_room_exact(head.regions.len())?;
    for region in head.regions {
        regions.push(mapping(region, backings).ok_or(Refused::Ever("a region is damaged"))?);
    }
    let [heap_start, heap_end] = numbers(head.facts.heap);
    let [stack_top, mmap_top, program_base, heap_shift, files_have_places] =
        numbers(head.facts.layout);
    let is_inside = |at: &usize| *at <= USER_END;
    let is_whole = |at: &usize| at.is_multiple_of(PAGE);
    if ![heap_start, heap_end, stack_top, mmap_top, program_base, heap_shift].iter().all(is_inside)
        || ![stack_top, mmap_top, program_base, heap_shift].iter().all(is_whole)
        || heap_start > heap_end
        || stack_top < PAGE
        || head.regions.len() > most_regions()
    {
        return Err(Refused::Ever("its addresses are damaged"));
    }
    let layout = Layout {
        stack_top,
        mmap_top,
        program_base,
        heap_shift,
        files_have_places: files_have_places != 0,
    };
    let shape = Shape { layout, heap: heap_start..heap_end };
    let first = stored.head_pages();
    let text = stored.hold()?;
    let extent = text.extent();
    let pages = head.pages.iter().zip(first..);
    let pages =
        pages.filter_map(|(address, index)| Some((address.get() as usize, extent.frame(index)?)));
    Ok(Space::of_stored(shape, regions, pages)?)
}

/// The range and the mapping of a region; `None`: it is not one that a template may have.
fn mapping(region: &Region, backings: &[Option<Arc<Backing>>]) -> Option<(Range<usize>, Mapping)> {
    let range = region.start.get() as usize..region.end.get() as usize;
    let protection = Protection::from_bits(u8::try_from(region.protection.get()).ok()?)?;
    let flags = RegionFlags::from_bits(region.flags.get())?;
    let backing = match region.file.get() {
        NO_FILE => None,
        number => Some(backings.get(number as usize)?.clone()?),
    };
    let is_shared = flags.contains(RegionFlags::SHARED);
    let offset = region.offset.get();
    let is_good = range.start >= LOWEST
        && !flags
            .intersects(RegionFlags::LOCKED | RegionFlags::LOCK_ON_FAULT | RegionFlags::PROVIDED)
        && offset.checked_add(range.len() as u64).is_some_and(|end| end <= i64::MAX as u64)
        && (!is_shared
            || backing.is_some()
                && !flags.contains(RegionFlags::MAY_WRITE)
                && !protection.contains(Protection::WRITE));
    is_good.then_some((range, Mapping { protection, flags, backing, offset }))
}
