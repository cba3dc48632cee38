//! Programs: from a file to a space that is ready to run.
//!
//! [`prepare`] does everything that can fail without changing the calling process: it follows `#!`,
//! plans the file and its interpreter, and builds a new space beside the old one. `process::exec`
//! puts the result in place, where nothing can fail any more: the point of no return lies between
//! the two modules.
//!
//! The knowledge of an executable is kept ([`programs`]), and so is the space of a program that
//! ended ([`crate::recycle::spaces`]): a program that ran before, unchanged, is neither parsed nor
//! mapped.
//!
//! The work has three steps that other callers use alone: [`find`] a program, [`Program::attach`]
//! it to a space, build its first stack.

pub mod executable;
pub mod load;
pub mod stack;
pub mod strings;

use alloc::sync::Arc;
use alloc::vec::Vec;

use hayate_abi::{Errno, Result};
use hayate_program_image::{HEAD, Image, Plan};
use hayate_recycler::AttachmentKey;
use smallvec::SmallVec;

use crate::recycle::policy;
use crate::recycle::programs::{self, ProgramRecord};
pub use executable::Executable;
pub use strings::Strings;

use crate::credentials::Credentials;
use crate::memory::origin::{Cleared, Start};
use crate::memory::places::{self, Drawn};
use crate::memory::{Layout, Limits, Space};
use crate::reclaim::charge;
use crate::reclaim::growth;
use crate::reclaim::growth::Grow;
use crate::recycle::regions;
use crate::recycle::spaces;
use crate::recycle::watch::{Pages, StartPart, Watch};
use crate::recycle::{ResourceKind, statistics};
use crate::vfs::context::FsContext;
use crate::vfs::mount::Location;
use crate::vfs::notify;
use crate::vfs::path::{Resolver, WalkFlags};
use crate::vfs::watch::Mask;

/// How many interpreters of interpreters are followed (`BINPRM_MAX_RECURSION` and one).
const DEPTH: usize = 5;

/// The arguments of [`prepare`].
pub struct ExecRequest<'a> {
    /// The file.
    pub location: Location,
    /// The path by which it was named. It is passed to a script's interpreter and as `AT_EXECFN`.
    pub path: &'a [u8],
    /// The path becomes invalid when close-on-exec descriptors are closed: the interpreter could
    /// not read a script by it.
    pub path_vanishes: bool,
    /// The argument strings.
    pub arguments: Strings,
    /// The environment strings.
    pub environment: Strings,
    /// The root and working directory from which interpreters are searched.
    pub context: &'a FsContext,
    /// The credentials of the caller.
    pub credentials: &'a Credentials,
    /// Set-id files and file capabilities give no privilege (`PR_SET_NO_NEW_PRIVS`).
    pub no_new_privileges: bool,
    /// Called for a file with set-id bits or capabilities: whether it must give no privilege for
    /// another reason.
    pub refuses_privilege: &'a dyn Fn() -> bool,
    /// The limits of the new space.
    pub limits: Limits,
    /// Whether addresses are random.
    pub randomise: bool,
}

/// How a program that was found is to begin.
pub enum Beginning {
    /// In the space of an earlier start of it, or in a new one.
    Usual,
    /// With these random bytes in the auxiliary vector, so that another start can have the same;
    /// in a new space with these addresses, if there are any, and else as usual.
    Fixed(Option<Addresses>, [u64; 2]),
    /// In a space in which it has run already: the space, and where its strings lie.
    Under(Arc<Space>, stack::Stack),
}

/// The addresses of a start, for another one that is to have the same.
#[derive(Clone, Copy)]
pub struct Addresses {
    /// Those of stack, heap and mappings.
    pub layout: Layout,
    /// The biases of the program and of its interpreter; `None`: they follow from the layout. In a
    /// kept space they do not.
    pub biases: Option<(usize, usize)>,
}

impl Addresses {
    /// The addresses in the space of a program that has not executed an instruction.
    pub fn of(space: &Space) -> Addresses {
        let biases = space.beginning().map(|start| (start.program.bias, start.interpreter));
        Addresses { layout: space.layout(), biases }
    }
}

/// A program ready to run.
pub struct Prepared {
    /// Its memory.
    pub space: Arc<Space>,
    /// The first instruction executed: the interpreter's if there is one.
    pub entry: usize,
    /// The stack and where the strings lie.
    pub stack: stack::Stack,
    /// The file, for `/proc/PID/exe`.
    pub executable: Arc<Executable>,
    /// The credentials of the program.
    pub credentials: Arc<Credentials>,
    /// Whether it gained privilege.
    pub secure: bool,
    /// Whether it has set-user-id or set-group-id bits or file capabilities that count, gained or
    /// not.
    pub set_id: bool,
    /// Whether it gained no rights by them, because another process could mislead it.
    pub refused: bool,
    /// Whether the user may not read the file it executes (`would_dump`, fs/exec.c).
    pub concealed: bool,
    /// The reads that its start made.
    pub reads: Reads,
    /// The last part of the path that was executed: the name of the thread.
    pub name: Name,
}

/// The reads of files at a program's start, as `/proc/PID/io` counts them. The counts are those of
/// Linux (fs/exec.c, fs/binfmt_elf.c), so reads count even where nothing is read because the
/// program is known.
#[derive(Clone, Copy, Default)]
pub struct Reads {
    /// The number of reads.
    pub calls: usize,
    /// The number of bytes.
    pub bytes: usize,
}

impl Reads {
    /// The bytes by which a file's type is recognised (`BINPRM_BUF_SIZE`).
    const HEAD: u64 = 256;
    /// The sizes of an ELF file header and of one program header.
    const FILE_HEADER: usize = 64;
    const PROGRAM_HEADER: usize = 56;

    #[inline]
    fn note(&mut self, executable: &Executable, bytes: usize) {
        notify::file(executable.file(), Mask::ACCESS);
        self.calls += 1;
        self.bytes += bytes;
    }
}

/// The last part of a program's path. Most fit without the heap.
pub type Name = SmallVec<[u8; 32]>;

/// A program: a file that was found, read and parsed, with its interpreter if it has one.
pub struct Program {
    /// The file.
    pub executable: Arc<Executable>,
    /// Its record.
    pub record: Arc<ProgramRecord>,
    /// The interpreter that it names (the dynamic linker).
    pub interpreter: Option<(Executable, Arc<ProgramRecord>)>,
    /// The reads that finding it made.
    pub reads: Reads,
    /// The strings that replace the first argument, if the program was found through `#!`.
    pub arguments: Strings,
    /// The last part of the path that was executed, a script's if it is one: the name of the
    /// thread.
    pub name: Name,
}

/// The addresses of a program in a space.
pub struct Attached {
    /// The first instruction executed: the interpreter's if there is one.
    pub entry: usize,
    /// The program itself.
    pub program: load::Loaded,
    /// Where the interpreter is; 0 without one.
    pub interpreter: usize,
    /// The parts of file pages that were zeroed, if the space is to be kept.
    cleared: Option<Cleared>,
    /// The space was kept: everything is mapped already.
    kept: bool,
}

impl From<load::Loaded> for Attached {
    /// Makes the record of a program without an interpreter.
    fn from(program: load::Loaded) -> Attached {
        Attached { entry: program.entry, program, interpreter: 0, cleared: None, kept: false }
    }
}

/// Finds a program: follows `#!`, plans the file and its interpreter.
///
/// Errors as [`prepare`].
#[inline(always)]
pub fn find<W: Watch>(
    location: Location,
    shown: &[u8],
    path_vanishes: bool,
    context: &FsContext,
    credentials: &Credentials,
) -> Result<Program> {
    W::enter(StartPart::LookUp);
    let mut executable = Executable::open(location, context, credentials)?;
    let mut path: Option<Vec<u8>> = None;
    let mut arguments = Strings::new();
    let mut depth = 0;
    let mut reads = Reads::default();
    // Scripts are closed at the end, as on Linux, so that their watchers see the events in that
    // order.
    let mut scripts = Vec::new();
    let record = loop {
        reads.note(&executable, executable.page_cache().size().min(Reads::HEAD) as usize);
        W::enter(StartPart::Parse);
        if let Some(record) = programs::find(&executable) {
            break record;
        }
        W::enter(StartPart::Read);
        let (bytes, length) = load::head(&executable)?;
        W::enter(StartPart::Parse);
        let bytes = bytes.get(..length).unwrap_or(&bytes);
        let script = match Image::recognise(bytes.get(..HEAD).unwrap_or(bytes))? {
            Image::Elf(_) => break programs::make(&executable, bytes)?,
            Image::Script(script) => script,
        };
        if path_vanishes {
            return Err(Errno::ENOENT);
        }
        depth += 1;
        if depth > DEPTH {
            return Err(Errno::ELOOP);
        }
        let own = path.as_deref().unwrap_or(shown);
        match script.argument {
            Some(argument) => arguments.replace_first(&[script.interpreter, argument, own])?,
            None => arguments.replace_first(&[script.interpreter, own])?,
        }
        W::enter(StartPart::LookUp);
        let next = open_path(script.interpreter, context, credentials)?;
        path = Some(growth::copy(script.interpreter)?);
        scripts.make_room(1)?;
        scripts.push(core::mem::replace(&mut executable, next));
    };
    reads.note(&executable, usize::from(record.plan.header_count) * Reads::PROGRAM_HEADER);
    let caller = (context, credentials);
    let interpreter = match &record.interpreter {
        Some(path) => Some(find_interpreter::<W>(path, &mut executable, &mut reads, caller)?),
        None => None,
    };
    // A script's thread has the script's name, not the interpreter's (`begin_new_exec`,
    // `bprm->filename`): `pidof` relies on it.
    let name = last_part(shown)?;
    let executable = Arc::new(executable);
    Ok(Program { executable, record, interpreter, reads, arguments, name })
}

/// The name of a thread that executes the program with this path.
#[inline(always)]
fn last_part(path: &[u8]) -> Result<Name> {
    let last = path.rsplit(|&byte| byte == b'/').next().unwrap_or(path);
    let mut name = Name::new();
    name.make_room(last.len())?;
    name.extend_from_slice(last);
    Ok(name)
}

/// Finds the interpreter that `executable` names: its file and what is known of it.
#[inline(always)]
fn find_interpreter<W: Watch>(
    path: &[u8],
    executable: &mut Executable,
    reads: &mut Reads,
    (context, credentials): (&FsContext, &Credentials),
) -> Result<(Executable, Arc<ProgramRecord>)> {
    W::enter(StartPart::LookUp);
    // The path includes its NUL.
    reads.note(executable, path.len() + 1);
    let mut file = open_path(path, context, credentials)?;
    file.is_interpreter = true;
    executable.interpreter = Some(Arc::clone(file.file()));
    W::enter(StartPart::Parse);
    let record = programs::of_interpreter(&file)?;
    reads.note(&file, Reads::FILE_HEADER);
    reads.note(&file, usize::from(record.plan.header_count) * Reads::PROGRAM_HEADER);
    Ok((file, record))
}

impl Program {
    /// Whether the caller may read everything that will be in its space.
    #[inline]
    pub fn is_readable(&self) -> bool {
        self.executable.readable && self.interpreter.as_ref().is_none_or(|(file, _)| file.readable)
    }

    /// Maps the program and its interpreter into an empty space, with the heap after it.
    #[inline]
    pub fn attach(&self, space: &Space) -> Result<Attached> {
        self.attach_at(space, None)
    }

    /// The same, with these biases if there are any.
    fn attach_at(&self, space: &Space, biases: Option<(usize, usize)>) -> Result<Attached> {
        let layout = space.layout();
        let plan = self.plan();
        let start = |plan: &Plan, bias: usize| bias.wrapping_add(plan.span.start as usize);
        let mut cleared = Vec::new();
        // A program that is its own interpreter (ld.so called by name, static-pie) is mapped among
        // the libraries, to leave the usual program address free.
        let base = self.interpreter.as_ref().map(|_| match layout.files_have_places {
            true => places::of_program(self.executable.page_cache()),
            false => layout.program_base,
        });
        let base = biases.map(|(bias, _)| start(plan, bias)).or(base);
        let program =
            load::load(space, &self.executable, plan, base, load::LoadRole::Program, &mut cleared)?;
        let (entry, interpreter) = match &self.interpreter {
            Some((file, record)) => {
                let loaded = load::load(
                    space,
                    file,
                    &record.plan,
                    biases.map(|(_, bias)| start(&record.plan, bias)),
                    load::LoadRole::Interpreter,
                    &mut cleared,
                )?;
                (loaded.entry, loaded.bias)
            }
            None => (program.entry, 0),
        };
        self.set_heap(space, program.end);
        let cleared = Cleared::try_from(cleared.as_slice()).ok();
        Ok(Attached { entry, program, interpreter, cleared, kept: false })
    }

    /// The heap follows the program. For a program that is mapped among the libraries, the heap is
    /// at the usual program address (`load_elf_binary`, CONFIG_ARCH_HAS_ELF_RANDOMIZE).
    fn set_heap(&self, space: &Space, end: usize) {
        let among_libraries = self.interpreter.is_none()
            && self.plan().position == hayate_program_image::Position::Independent;
        space.set_heap(if among_libraries { space.layout().program_base } else { end });
    }

    /// The plan of its mappings.
    pub fn plan(&self) -> &Plan {
        &self.record.plan
    }

    /// The key of a kept space that this program may use with `user` and `limits`.
    fn key(&self, user: &Credentials, limits: &Limits, randomised: bool) -> AttachmentKey {
        AttachmentKey {
            program: self.executable.content(),
            interpreter: self.interpreter.as_ref().map(|(file, _)| file.content()),
            user: [user.uid, user.euid, user.gid, user.egid],
            limits: [limits.address_space, limits.data, limits.stack, limits.locked],
            randomised,
        }
    }

    /// Builds the first stack for a program that [`attach`](Self::attach) has mapped. `random`: the
    /// random bytes of the auxiliary vector, if they are not to be drawn.
    #[allow(clippy::too_many_arguments, reason = "a stack is made of all of these")]
    pub fn build_stack(
        &self,
        space: &Space,
        attached: &Attached,
        strings: (&Strings, &Strings),
        path: &[u8],
        credentials: &Credentials,
        secure: bool,
        random: Option<[u64; 2]>,
    ) -> Result<stack::Stack> {
        let plan = self.plan();
        let facts = stack::Facts {
            headers: attached.program.headers,
            header_count: plan.header_count,
            interpreter: attached.interpreter,
            entry: attached.program.entry,
            credentials,
            secure,
            executable_stack: plan.executable_stack,
            kept: attached.kept,
            random,
        };
        stack::build(space, strings.0, strings.1, path, &facts)
    }

    /// Returns a space to which the program is attached: the kept one with this key, or a new one.
    #[inline(always)]
    fn space_with_segments<W: Watch>(
        &self,
        key: Option<&AttachmentKey>,
        limits: Limits,
        Addresses { layout, biases }: Addresses,
    ) -> Result<(Arc<Space>, Attached)> {
        let owner = charge::current_owner();
        let kept = key.filter(|_| owner == 0);
        if let Some((space, start)) = kept.and_then(|key| spaces::take::<W>(key, limits, layout)) {
            self.set_heap(&space, start.program.end);
            let Start { entry, program, interpreter } = start;
            W::pages(Pages::Before, || space.own_pages());
            return Ok((
                space,
                Attached { entry, program, interpreter, cleared: None, kept: true },
            ));
        }
        let space = Space::new(layout, limits)?;
        if owner != 0 {
            space.charge_to(owner);
        }
        W::pages(Pages::Before, || space.own_pages());
        W::enter(StartPart::Attach);
        let attached = self.attach_at(&space, biases)?;
        Ok((space, attached))
    }

    /// Completes the arguments: puts the interpreter of `#!` before them, and adds an empty
    /// argument if there is none.
    pub fn complete(&self, arguments: &mut Strings) -> Result<()> {
        if !self.arguments.is_empty() {
            arguments.replace_first_by(&self.arguments)?;
        }
        if arguments.is_empty() {
            // Programs rely on argv[0]; an empty vector was used to attack set-user-id programs.
            arguments.push(b"")?;
        }
        Ok(())
    }
}

/// Prepares the execution of a program; a failure has no effect on the process. `begin` decides how
/// the program begins, once it is found and its arguments are complete.
///
/// Errors as `execve(2)`: `EACCES`, `ENOEXEC`, `ENOENT`, `ELOOP`, `ETXTBSY`, `ENOMEM`, `EINVAL`,
/// `ELIBBAD`, `E2BIG`, `EIO`, `EPERM`.
#[inline(never)]
pub fn prepare<W: Watch>(
    request: ExecRequest<'_>,
    begin: impl FnOnce(&Program, &Strings, &Strings) -> Beginning,
) -> Result<Prepared> {
    let ExecRequest { context, credentials, mut arguments, .. } = request;
    let program =
        find::<W>(request.location, request.path, request.path_vanishes, context, credentials)?;
    W::enter(StartPart::Arguments);
    program.complete(&mut arguments)?;
    let (fixed, random) = match begin(&program, &arguments, &request.environment) {
        Beginning::Usual => (None, None),
        Beginning::Fixed(addresses, random) => (addresses, Some(random)),
        Beginning::Under(space, stack) => return Ok(under(program, space, stack, credentials)),
    };

    let set_id = program.executable.gives_rights();
    let refused = set_id && (request.refuses_privilege)();
    let privileged = !request.no_new_privileges && !refused;
    let set_user = program.executable.set_user.filter(|_| privileged);
    let set_group = program.executable.set_group.filter(|_| privileged);
    let (new, secure) = match &program.executable.capabilities {
        None => credentials.for_program(set_user, set_group),
        Some(file) => credentials.for_capable_program(set_user, set_group, file, !privileged)?,
    };
    let new = Arc::new(new);

    W::enter(StartPart::Space);
    // A space whose program gained privilege is not kept, nor one of another user namespace.
    let plain = !secure
        && new.is_outermost()
        && !set_id
        && fixed.is_none()
        && (policy::keeps_whole_spaces() || regions::are_wanted());
    let concealed = !program.is_readable();
    let key = plain.then(|| program.key(&new, &request.limits, request.randomise));
    let addresses = fixed.unwrap_or_else(|| Addresses {
        layout: layout(&request.limits, request.randomise),
        biases: None,
    });
    let (space, attached) =
        program.space_with_segments::<W>(key.as_ref(), request.limits, addresses)?;
    W::attached(attached.program.entry, attached.interpreter != 0);
    W::enter(StartPart::Stack);
    let strings = (&arguments, &request.environment);
    let stack =
        program.build_stack(&space, &attached, strings, request.path, &new, secure, random)?;
    if !attached.kept
        && let Some(key) = key
        && let Some(cleared) = attached.cleared
    {
        if policy::keeps_whole_spaces() {
            statistics::made(ResourceKind::Attachment);
        }
        W::enter(StartPart::Attach);
        let Attached { entry, program, interpreter, .. } = attached;
        space.begins_here(key, Start { entry, program, interpreter }, cleared);
    }
    W::pages(Pages::After, || space.own_pages());
    Ok(Prepared {
        space,
        entry: attached.entry,
        stack,
        executable: program.executable,
        credentials: new,
        secure,
        set_id,
        refused,
        concealed,
        reads: program.reads,
        name: program.name,
    })
}

/// A program that gains no rights and begins in a space in which it has run already.
#[cold]
fn under(
    program: Program,
    space: Arc<Space>,
    stack: stack::Stack,
    credentials: &Credentials,
) -> Prepared {
    Prepared {
        space,
        entry: 0,
        stack,
        executable: program.executable,
        credentials: Arc::new(credentials.for_program(None, None).0),
        secure: false,
        set_id: false,
        refused: false,
        concealed: false,
        reads: program.reads,
        name: program.name,
    }
}

/// An empty space for a program.
pub fn new_space(limits: Limits, randomise: bool) -> Result<Arc<Space>> {
    Space::new(layout(&limits, randomise), limits)
}

/// The addresses of stack, heap and mappings for a new space.
fn layout(limits: &Limits, randomise: bool) -> Layout {
    let mut random = crate::random::quick_word;
    let random: Option<&mut dyn FnMut() -> u64> = if randomise { Some(&mut random) } else { None };
    let files_have_places = randomise && places::drawn() == Drawn::OncePerBoot;
    Layout { files_have_places, ..Layout::new(limits.stack, random) }
}

fn open_path(path: &[u8], context: &FsContext, credentials: &Credentials) -> Result<Executable> {
    let resolver = Resolver { context, credentials, start: None };
    let location = resolver.resolve(path, WalkFlags::empty())?;
    Executable::open(location, context, credentials)
}
