//! Templates: programs that declare themselves ready, and begin there at each start.
//!
//! A program that has loaded what it needs says so ([`declare`]), and forks. The child of that fork
//! is kept before its first instruction, under a name ([`keep`]); the fork makes a child as always,
//! too. Every start of the template **is that child**: the C library's code after the fork runs,
//! with its handlers (`pthread_atfork(3)`), so locks, thread numbers and random generators are
//! renewed by the program's own means, as after every fork. The start finds its arguments and its
//! environment in a block of new memory; a structure that the program named says where.
//!
//! A start is an exec: it replaces the program of a process that exists, with that process's
//! number, descriptors, directory, limits, and what else `execve(2)` keeps. It is asked for by name
//! (`hayate_template_start`), or by executing a path that is bound to the template, if the template
//! says that it serves such a start ([`choose`]).
//!
//! What is refused: a program with set-user-id bits or one that its user may not read, a process
//! that changed its ids, one in supervisor mode, one with other threads or children, with writable
//! shared memory or an attached segment of System V, or with descriptors above 2. A template serves
//! exactly the credentials and the root directory of its maker. Its memory cannot be reached: no
//! process has it, and a start gets a copy by copy-on-write.
//!
//! Templates are not given up when memory runs out: they were asked for. So they have a bound, an
//! eighth of memory, and half of that for one user.
//!
//! A program that was compiled from a file may say so: then a start is served only while the file
//! is unchanged ([`source`]), and by its name it fails.
//!
//! One that was saved on non-volatile memory is there at the next boot: [`save`] writes it,
//! [`shelf`] finds it, and [`wake`] makes it ready for its first start.
//!
//! Layers, lowest first: [`source`], [`declaration`], [`template`], [`table`], [`known`],
//! [`shelf`], [`save`], [`wake`], and this module.
//!
//! Road not taken: a call that returns in each start by itself, without a fork. The C library keeps
//! the number of the thread in a place that only it knows, and renews it nowhere but after a fork.

pub mod declaration;
pub mod known;
pub mod save;
pub mod shelf;
pub mod source;
pub mod table;
pub mod template;
pub mod wake;

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;
use core::sync::atomic::{AtomicU64, Ordering};

use hayate_abi::signal::{NSIG, SIG_IGN, Sigaction, bit};
use hayate_abi::{Errno, Result};
use hayate_machine::fpu::FpuState;
use hayate_machine::user::{self, UserPtr};
use hayate_machine::{fpu, frames};
use hayate_template_rules::{ReadError, Rules};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::credentials::Credentials;
use crate::memory::space::Lineage;
use crate::memory::{Limits, MapRequest, PAGE, Space};
use crate::process::record::Vectors;
use crate::process::seccomp;
use crate::process::sequences;
use crate::process::signal::ActionTable;
use crate::process::thread::Thread;
use crate::process::transform::{Position, Running};
use crate::program::stack::Stack;
use crate::program::{Beginning, Name, Prepared, Program, Reads, Strings};
use crate::random;
use crate::reclaim::growth;
use crate::reclaim::growth::Grow;
use crate::recycle::heirs;
use crate::schedule::time;
use declaration::{Declared, Environments};
use source::Source;
use template::{Template, is_name};

/// The longest list of files that a program may give, in bytes.
pub const FILES_MAX: usize = 64 << 10;
/// The longest environment that is looked through, in bytes.
const ENVIRONMENT_MAX: usize = 256 << 10;

/// `struct hayate_start`: what a start was started with.
#[repr(C)]
#[derive(Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct UserStart {
    /// The vector of the arguments, which ends with a null pointer.
    arguments: u64,
    argument_count: u64,
    /// The vector of the environment.
    environment: u64,
    environment_count: u64,
    /// The strings of the arguments, each ended by a NUL; those of the environment follow.
    strings: u64,
    arguments_size: u64,
    environment_size: u64,
    /// The path by which the program was started.
    path: u64,
    /// Random bytes, of this start alone.
    random: [u64; 2],
}

/// `struct hayate_variables`: the environment as pairs.
#[repr(C)]
#[derive(Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct UserVariables {
    /// The name and the value of each variable, each ended by a NUL; the last variable first, so
    /// that of two with one name the one that counts (`getenv(3)`) comes last. Strings that are no
    /// variables, without a name or without "=", are left out.
    strings: u64,
    /// Their bytes.
    size: u64,
}

/// Prepares the module; boot calls it once.
pub fn init() {
    table::set_limit(frames::total() / 8 * PAGE);
    shelf::find(table::bind);
}

/// The user's template of this name, for a start by the current thread: one that was made, or one
/// that was saved before this boot.
///
/// # Errors
/// `ENOENT`: there is none; those of [`wake::find`].
pub fn find(thread: &Thread, name: &[u8], owner: u32) -> Result<Arc<Template>> {
    table::find(name, owner).or_else(|_| wake::find(thread, name, owner))
}

/// Removes a user's template and the paths that are bound to it. Starts from it that have begun are
/// not disturbed, and what was saved of it is there at the next boot.
///
/// # Errors
/// `ENOENT`: there is none.
pub fn remove(name: &[u8], owner: u32) -> Result<()> {
    let is_stored = shelf::take(name, owner);
    if is_stored {
        table::unbind_all(name, owner);
    }
    match table::remove(name, owner) {
        Err(Errno::ENOENT) if is_stored => Ok(()),
        other => other,
    }
}

/// What a program says of the template that the next fork of its thread makes.
pub struct Declaring {
    /// The name.
    pub name: Vec<u8>,
    /// Where each start is told what it was started with.
    pub start: usize,
    /// Which starts are served.
    pub serves: Vec<u8>,
    /// The files that it was made of.
    pub files: Vec<u8>,
    /// Where the environment of a start is told as well.
    pub environments: Environments,
}

/// Declares what the next fork of the current thread makes. The place for [`UserStart`] is zeroed.
///
/// # Errors
/// `EINVAL`: the name or the rules are not what they should be; those of [`Source::of`]; `EFAULT`,
/// `E2BIG`, `ENOMEM`.
pub fn declare(thread: &Thread, declaring: Declaring) -> Result<()> {
    let Declaring { name, start, serves, files, environments } = declaring;
    if !is_name(&name) {
        return Err(Errno::EINVAL);
    }
    let serves = Rules::read(&serves).map_err(|error| match error {
        ReadError::NoRules => Errno::EINVAL,
        ReadError::NoMemory => Errno::ENOMEM,
    })?;
    let space = thread.space().ok_or(Errno::ESRCH)?.serial();
    let environment = own_environment(thread, &serves)?;
    UserPtr::new(start).write(&UserStart::default())?;
    if environments.variables != 0 {
        UserPtr::new(environments.variables).write(&UserVariables::default())?;
    }
    if environments.vector != 0 {
        // It can be written.
        let vector = UserPtr::<u64>::new(environments.vector);
        vector.write(&vector.read()?)?;
    }
    let directories = thread.directories()?;
    let sources = Source::of(&directories, &thread.credentials(), &serves)?;
    let blocked = thread.blocked();
    let declared =
        Declared { name, start, serves, files, environments, sources, environment, blocked, space };
    thread.declared.set(Box::new(declared));
    Ok(())
}

/// The variables that decide whether a start is served, as the current program got them.
fn own_environment(thread: &Thread, serves: &Rules) -> Result<Vec<u8>> {
    let Vectors { environment, environment_end, .. } = thread.process.vectors();
    let length = environment_end.checked_sub(environment).ok_or(Errno::EINVAL)?;
    if length > ENVIRONMENT_MAX {
        return Err(Errno::E2BIG);
    }
    let mut all = Vec::new();
    all.make_room_exact(length)?;
    all.resize(length, 0);
    user::copy_in(&mut all, environment)?;
    let mut kept = Vec::new();
    let variables = all.split(|&byte| byte == 0).filter(|text| !text.is_empty());
    for variable in variables.filter(|text| serves.is_decisive(text)) {
        growth::append(&mut kept, variable)?;
        growth::append(&mut kept, b"\0")?;
    }
    Ok(kept)
}

/// Where the numbers of a fork's child are written and cleared (`clone(2)`); 0: nowhere.
#[derive(Clone, Copy)]
pub struct ChildNumbers {
    /// `CLONE_CHILD_SETTID`.
    pub set: usize,
    /// `CLONE_CHILD_CLEARTID`.
    pub clear: usize,
}

/// Keeps the child of the fork that the current thread makes as the template that it has declared.
/// `position` is the child's.
///
/// # Errors
/// `EBUSY`: the process has other threads or children. `EMFILE`: it has descriptors above 2.
/// `EINVAL`: it has writable shared memory, or a segment. `EPERM`: it has or had other rights than
/// its user, or is or was in supervisor mode, or has filters, or namespaces of its own. `ENOSPC`:
/// there are too many templates, or they keep too much. `EFAULT`, `ENOMEM`. The declaration is gone
/// then, too.
#[cold]
#[inline(never)]
pub fn keep(thread: &Thread, position: &Position, numbers: ChildNumbers) -> Result<()> {
    let Some(declared) = thread.declared.take() else { return Ok(()) };
    let own = thread.space().ok_or(Errno::ESRCH)?;
    if declared.space != own.serial() {
        // Another program declared it.
        return Ok(());
    }
    check(thread, &own)?;
    let mut state = Vec::new();
    state.make_room_exact(FpuState::signal_size())?;
    state.resize(FpuState::signal_size(), 0);
    if !fpu::to_signal_bytes(&mut state) {
        return Err(Errno::ENOMEM);
    }
    let space = own.fork()?;
    // Once a space was in supervisor mode that is known for ever: it is not by now, so the copy was
    // not made of one either.
    if own.was_supervisor() {
        return Err(Errno::EPERM);
    }
    // It is to be written at each start.
    space.fill_foreign(declared.start, UserStart::default().as_bytes())?;
    let process = &thread.process;
    let executable = process.executable().ok_or(Errno::EPERM)?;
    let mapped = mapped_files(thread, &space)?;
    let resident = space.resident();
    let bytes = (resident.anonymous + resident.tables + 1) * PAGE;
    let Declared { name, start, serves, files, environments, sources, .. } = *declared;
    let Declared { environment, blocked, .. } = *declared;
    template::count(bytes);
    let template = Arc::new(Template {
        name,
        lineage: Lineage::of(&space).ok(),
        space,
        position: position.clone(),
        fpu: state,
        actions: Arc::new(process.actions().fork()),
        blocked: thread.blocked(),
        own_blocked: blocked,
        signal_stack: thread.signal_stack(),
        clear_tid: numbers.clear,
        set_tid: numbers.set,
        sequences: thread.sequences.registration(),
        start,
        vectors: process.vectors(),
        executable,
        comm: thread.name(),
        credentials: thread.credentials(),
        root: thread.directories()?.root(),
        serves,
        files,
        environments,
        sources,
        mapped,
        environment,
        made: time::realtime_ns(),
        stored: 0,
        bytes,
        starts: AtomicU64::new(0),
    });
    table::enter(template)
}

/// Fails as [`keep`] if the current process must not be a template.
fn check(thread: &Thread, space: &Space) -> Result<()> {
    let process = &thread.process;
    let credentials = thread.credentials();
    let Credentials { uid, euid, suid, fsuid, gid, egid, sgid, fsgid, .. } = *credentials;
    let executable = process.executable().ok_or(Errno::EPERM)?;
    let is_plain = [euid, suid, fsuid].iter().all(|&id| id == uid)
        && [egid, sgid, fsgid].iter().all(|&id| id == gid)
        && process.dumpable.load(Ordering::Relaxed) == 1
        && executable.readable
        && !executable.gives_rights()
        && !seccomp::is_filtered(thread)
        && credentials.confinement.is_none()
        && !thread.gets_nothing_kept()
        && !process.keeps_mode.load(Ordering::Relaxed)
        && !space.was_supervisor()
        // It was traced, or control groups were charged for its pages.
        && !space.stays_out();
    if !is_plain {
        return Err(Errno::EPERM);
    }
    if process.thread_count() != 1 || process.children.lock().iter().next().is_some() {
        return Err(Errno::EBUSY);
    }
    if thread.files().numbers()?.iter().any(|&number| number > 2) {
        return Err(Errno::EMFILE);
    }
    if !space.is_its_own() {
        return Err(Errno::EINVAL);
    }
    Ok(())
}

/// The paths of the files that are mapped, each once, one a line.
fn mapped_files(thread: &Thread, space: &Space) -> Result<Vec<u8>> {
    let root = thread.directories()?.root();
    let mut paths: Vec<u8> = Vec::new();
    let mut seen = Vec::new();
    for region in space.shown(false)? {
        let Some(backing) = region.backing else { continue };
        let id = backing.page_cache.id();
        let Some(location) = backing.location().filter(|_| !seen.contains(&id)) else { continue };
        growth::push(&mut seen, id)?;
        let (path, _) = location.path_from(&root)?;
        if path.contains(&b'\n') || paths.len() + path.len() >= FILES_MAX {
            continue;
        }
        growth::append(&mut paths, &path)?;
        growth::append(&mut paths, b"\n")?;
    }
    Ok(paths)
}

/// A start from a template.
pub struct Begin {
    space: Arc<Space>,
    vectors: Vectors,
    actions: Arc<ActionTable>,
    template: Arc<Template>,
}

/// Decides whether a program that the current thread is about to execute begins at a template: its
/// path is bound to one that serves this start. Call it only if [`table::is_any_bound`].
///
/// `path` is that by which the program was named; `limits` are those of its space.
#[cold]
#[inline(never)]
pub fn choose(
    thread: &Thread,
    program: &Program,
    (path, arguments, environment): (&[u8], &Strings, &Strings),
    limits: Limits,
) -> Option<Box<Begin>> {
    const ADDR_NO_RANDOMIZE: u32 = 0x004_0000;
    let credentials = thread.credentials();
    // A script is bound, or else the program; a script names its interpreter.
    let script = arguments.iter().skip(1).find(|argument| !argument.starts_with(b"-"));
    let named = program.arguments.iter().next().unwrap_or(path);
    let is_served = |template: &Template| {
        program.executable.content() == template.executable.content()
            && program.is_readable()
            && !program.executable.gives_rights()
            && thread.personality.load(Ordering::Relaxed) & ADDR_NO_RANDOMIZE == 0
            && thread.blocked() == template.own_blocked
            && template.serves(arguments, environment)
            && template.is_unchanged(thread, &credentials)
    };
    if seccomp::is_filtered(thread) {
        return None;
    }
    let bound = script.into_iter().chain([named]);
    let template = bound
        .filter_map(|path| {
            let owner = credentials.euid;
            table::bound(path, owner).or_else(|| wake::bound(thread, path, owner))
        })
        .find(|template| is_served(template))?;
    // Whatever stands in the way, the program starts as always.
    begin(thread, template, (path, arguments, environment), limits).ok()
}

/// Prepares a start from the current user's template of this name: what exec puts in place, and
/// how it begins.
///
/// # Errors
/// `ENOENT`: there is no such template. `EPERM`: the caller has other rights or another root than
/// its maker, or namespaces of its own, or its programs start in supervisor mode. `ESTALE`: a file
/// that must be unchanged is not. `ENOMEM`: memory is exhausted, or beyond a limit.
pub fn start(
    thread: &Thread,
    name: &[u8],
    arguments: &Strings,
    environment: &Strings,
    limits: Limits,
) -> Result<(Prepared, Box<Begin>)> {
    let credentials = thread.credentials();
    let template = find(thread, name, credentials.euid)?;
    if !template.is_unchanged(thread, &credentials) {
        return Err(Errno::ESTALE);
    }
    let begin = begin(thread, template, (name, arguments, environment), limits)?;
    let template = &begin.template;
    let comm = template.comm.iter().copied().take_while(|&byte| byte != 0);
    let prepared = Prepared {
        space: Arc::clone(&begin.space),
        entry: 0,
        stack: begin.stack(),
        executable: Arc::clone(&template.executable),
        credentials: Arc::new(credentials.for_program(None, None).0),
        secure: false,
        set_id: false,
        refused: false,
        concealed: false,
        reads: Reads::default(),
        name: comm.collect::<Name>(),
    };
    Ok((prepared, begin))
}

/// Makes the memory of a start. Fails as [`start`].
fn begin(
    thread: &Thread,
    template: Arc<Template>,
    (path, arguments, environment): (&[u8], &Strings, &Strings),
    limits: Limits,
) -> Result<Box<Begin>> {
    let process = &thread.process;
    let (credentials, _) = thread.credentials().for_program(None, None);
    if credentials != *template.credentials
        || process.keeps_mode.load(Ordering::Relaxed)
        || thread.gets_nothing_kept()
        || !thread.directories()?.root().is_same(&template.root)
    {
        return Err(Errno::EPERM);
    }
    let space = match &template.lineage {
        Some(lineage) => heirs::space_of(lineage, &template.space, limits)?,
        None => {
            let space = template.space.fork()?;
            space.set_limits(limits);
            space
        }
    };
    let told = hand_over(&space, &template, (path, arguments, environment))?;
    tell(&space, &template, &told)?;
    let vectors = told.vectors;
    if template.set_tid != 0 {
        // As in Linux, a bad address does not make the start fail.
        let _ = space.fill_foreign(template.set_tid, process.id().as_bytes());
    }
    let actions = template.actions.fork();
    let (ignored, _) = process.actions().ignored_and_caught();
    let (own, _) = actions.ignored_and_caught();
    if ignored & !own != 0 {
        for signal in (1..=NSIG).filter(|&signal| ignored & !own & bit(signal) != 0) {
            actions.replace(signal, Sigaction { sa_handler: SIG_IGN, ..Default::default() });
        }
    }
    Ok(Box::new(Begin { space, vectors, actions: Arc::new(actions), template }))
}

/// The answer to a start, and where its strings lie.
struct Told {
    start: UserStart,
    variables: UserVariables,
    vectors: Vectors,
}

/// Puts arguments and environment into the memory of a start: two vectors of pointers, then the
/// strings, then the path, then the variables as pairs if they are wanted.
fn hand_over(
    space: &Space,
    template: &Template,
    (path, arguments, environment): (&[u8], &Strings, &Strings),
) -> Result<Told> {
    let words = arguments.len() + environment.len() + 2;
    let (ours, theirs) = (arguments.as_bytes().len(), environment.as_bytes().len());
    let are_pairs_wanted = template.environments.variables != 0;
    let most_of_pairs = if are_pairs_wanted { theirs } else { 0 };
    let most = words * size_of::<u64>() + ours + theirs + path.len() + 1 + most_of_pairs;
    let mut block: Vec<u8> = Vec::new();
    growth::relieved(|| block.make_room_exact(most))?;
    let at = space.map(MapRequest::anonymous(most))?;
    let strings_at = at + words * size_of::<u64>();
    let environment_at = strings_at + ours;
    for (strings, first) in [(arguments, strings_at), (environment, environment_at)] {
        let mut address = first as u64;
        strings.for_each_length(|length| {
            block.extend_from_slice(address.as_bytes());
            address += length as u64;
        });
        block.extend_from_slice(0u64.as_bytes());
    }
    block.extend_from_slice(arguments.as_bytes());
    block.extend_from_slice(environment.as_bytes());
    block.extend_from_slice(path);
    block.push(0);
    let pairs_from = block.len();
    if are_pairs_wanted {
        let vector = (arguments.len() + 1) * size_of::<u64>()..(words - 1) * size_of::<u64>();
        append_pairs(&mut block, environment, (vector, environment_at));
    }
    space.fill_foreign(at, &block)?;
    let variables = UserVariables {
        strings: (at + pairs_from) as u64,
        size: (block.len() - pairs_from) as u64,
    };
    let start = UserStart {
        arguments: at as u64,
        argument_count: arguments.len() as u64,
        environment: (at + (arguments.len() + 1) * size_of::<u64>()) as u64,
        environment_count: environment.len() as u64,
        strings: strings_at as u64,
        arguments_size: ours as u64,
        environment_size: theirs as u64,
        path: (environment_at + theirs) as u64,
        random: [random::quick_word(), random::quick_word()],
    };
    let vectors = Vectors {
        arguments: strings_at,
        arguments_end: environment_at,
        environment: environment_at,
        environment_end: environment_at + theirs,
        ..template.vectors
    };
    Ok(Told { start, variables, vectors })
}

/// Appends the variables as [`UserVariables`] says. The block has room for the strings once more.
/// `vector`: where in it the pointers to them are; the first string is at the address `first`.
fn append_pairs(
    block: &mut Vec<u8>,
    environment: &Strings,
    (vector, first): (Range<usize>, usize),
) {
    let bytes = environment.as_bytes();
    let mut end = bytes.len();
    for place in vector.step_by(size_of::<u64>()).rev() {
        let pointer = block.get(place..place + size_of::<u64>());
        let address = pointer.and_then(|word| u64::read_from_bytes(word).ok()).unwrap_or_default();
        let from = (address as usize).saturating_sub(first);
        let Some(string) = bytes.get(from..end) else { return };
        end = from;
        let Some(equals) = string.iter().position(|&byte| byte == b'=').filter(|&at| at != 0)
        else {
            continue;
        };
        let name_end = block.len() + equals;
        block.extend_from_slice(string);
        if let Some(byte) = block.get_mut(name_end) {
            *byte = 0;
        }
    }
}

/// Tells a start what it was started with, where its program wants to know it.
fn tell(space: &Space, template: &Template, told: &Told) -> Result<()> {
    let Environments { vector, variables } = template.environments;
    space.fill_foreign(template.start, told.start.as_bytes())?;
    if variables != 0 {
        space.fill_foreign(variables, told.variables.as_bytes())?;
    }
    if vector != 0 {
        space.fill_foreign(vector, told.start.environment.as_bytes())?;
    }
    Ok(())
}

impl Begin {
    /// What exec prepares for it.
    pub fn beginning(&self) -> Beginning {
        Beginning::Under(Arc::clone(&self.space), self.stack())
    }

    /// Where the strings lie.
    fn stack(&self) -> Stack {
        Stack {
            pointer: 0,
            arguments: self.vectors.arguments,
            environment: self.vectors.environment,
            environment_end: self.vectors.environment_end,
            auxiliary: self.vectors.auxiliary,
            auxiliary_end: self.vectors.auxiliary_end,
        }
    }

    /// Completes the start of a process that has the memory: its registers and its signals.
    pub fn complete(&self, running: &mut Running<'_, '_>) {
        let (thread, template) = (running.thread, &self.template);
        template.starts.fetch_add(1, Ordering::Relaxed);
        thread.process.set_actions(Arc::clone(&self.actions));
        thread.set_blocked(template.blocked);
        thread.set_signal_stack(template.signal_stack);
        thread.clear_tid.store(template.clear_tid, Ordering::Relaxed);
        thread.robust_list.store(0, Ordering::Relaxed);
        sequences::resume(thread, template.sequences);
        // The state was written by this kernel, so it is valid.
        let _ = fpu::from_signal_bytes(&template.fpu);
        running.change_position(&template.position);
    }
}
