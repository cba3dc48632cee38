//! Saving a template: it is written to non-volatile memory, and is there at the next boot.

use alloc::vec::Vec;

use hayate_abi::signal::NSIG;
use hayate_abi::{Errno, Result};
use hayate_nvm_store::Text;
use hayate_template_file::{
    Action, Facts, Fault, Files, Head, Known, NO_FILE, PAGE, Region, State, Word,
};
use machine::vdso;
use zerocopy::little_endian::U32;

use super::known::{self, By};
use super::shelf::{self, PREFIX};
use super::table;
use super::template::Template;
use crate::in_place::store;
use crate::process::family;
use crate::reclaim::growth;
use crate::reclaim::growth::Grow;
use crate::vfs::context::FsContext;
use crate::vfs::mount::Location;
use crate::vfs::path::{Resolver, WalkFlags};

/// Writes a template to non-volatile memory. One of the same name and owner that is there goes, if
/// nothing has used it since boot.
///
/// # Errors
/// `ENOENT`: there is no such template. `EEXIST`: it came from there. `EXDEV`: its root directory
/// is not that of the first process. `EOPNOTSUPP`: something is mapped that has no path. `EFBIG`: a
/// script that must be unchanged is too large, or there are too many files. `ENOSPC`, `ENOMEDIUM`:
/// there is no room or no store; `EIO`, `ENOMEM`.
pub fn save(name: &[u8], owner: u32) -> Result<()> {
    let template = table::find(name, owner)?;
    if template.stored != 0 {
        return Err(Errno::EEXIST);
    }
    if !template.root.is_same(&first_root()?) {
        return Err(Errno::EXDEV);
    }
    let object = vdso::object().ok_or(Errno::EOPNOTSUPP)?;
    let addresses = template.space.own_content()?;
    let head = head(&template, object, &addresses)?;
    let head_pages = head.len() / PAGE;
    let pages = u32::try_from(head_pages + addresses.len()).map_err(|_| Errno::EFBIG)?;
    let mut title = growth::copy(PREFIX)?;
    growth::append(&mut title, name)?;
    let identity = store::put(pages, Text::ANYWHERE, &title, |index, to| {
        let index = index as usize;
        match index.checked_sub(head_pages).and_then(|page| addresses.get(page)) {
            Some(&address) if !template.space.read_for_dump(address, to) => return Err(Errno::EIO),
            Some(_) => {}
            None => {
                let page = head.get(index * PAGE..(index + 1) * PAGE).ok_or(Errno::EIO)?;
                to.copy_from_slice(page);
            }
        }
        Ok(())
    })?;
    // One of before the boot is not the one that starts would ask for.
    shelf::take(name, owner);
    for old in shelf::others(name, owner, &identity)? {
        match store::remove(&old) {
            // Of two the later one counts, so an old one does no harm.
            Ok(()) | Err(Errno::EBUSY | Errno::ENOENT) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// The root directory of the first process: that of the machine.
///
/// # Errors
/// `ESRCH`: there is no first process.
pub fn first_root() -> Result<Location> {
    let first = family::find(1)?.first_thread().ok_or(Errno::ESRCH)?;
    Ok(first.directories()?.root())
}

fn errno(fault: Fault) -> Errno {
    match fault {
        Fault::NoMemory => Errno::ENOMEM,
        Fault::TooLarge => Errno::EFBIG,
        Fault::NoHead | Fault::Damaged => Errno::EBADMSG,
    }
}

fn words<const N: usize>(numbers: [usize; N]) -> [Word; N] {
    numbers.map(|number| Word::new(number as u64))
}

/// The head of a template with these pages.
fn head(template: &Template, object: usize, addresses: &[usize]) -> Result<Vec<u8>> {
    let mut files = Files::default();
    let regions = regions(template, &mut files)?;
    named_files(template, &mut files)?;
    let pages = growth::collect(addresses.iter().map(|&at| Word::new(at as u64)))?;
    let groups = growth::collect(template.credentials.groups.iter().map(|&id| U32::new(id)))?;
    let actions = (1..=NSIG).map(|signal| (signal, template.actions.get(signal)));
    let actions = actions.filter(|(_, action)| *action != Default::default());
    let actions = growth::collect(actions.map(|(signal, action)| Action {
        signal: U32::new(signal),
        words:
            [action.sa_handler, action.sa_flags, action.sa_restorer, action.sa_mask].map(Word::new),
    }))?;
    let mut bound: Vec<u8> = Vec::new();
    table::for_each_path((&template.name, template.owner()), |path| {
        growth::append(&mut bound, path)?;
        growth::append(&mut bound, b"\0")
    })?;
    let head = Head {
        facts: facts(template, object),
        name: &template.name,
        comm: &template.comm,
        fpu: &template.fpu,
        groups: &groups,
        actions: &actions,
        rules: template.serves.text(),
        files: &template.files,
        environment: &template.environment,
        bound: &bound,
        regions: &regions,
        pages: &pages,
        known: &files.known,
        paths: &files.paths,
    };
    head.to_bytes().map_err(errno)
}

fn facts(template: &Template, object: usize) -> Facts {
    let regs = &template.position.regs;
    let position = &template.position;
    let vectors = &template.vectors;
    let area = template.sequences;
    let credentials = &template.credentials;
    let shape = template.space.shape();
    let layout = shape.layout;
    let sets = [
        credentials.effective,
        credentials.permitted,
        credentials.inheritable,
        credentials.bounding,
        credentials.ambient,
    ];
    let stack = template.signal_stack;
    Facts {
        made: Word::new(template.made),
        machine: known::machine(),
        object: Word::new(object as u64),
        told: words([
            template.start,
            template.environments.vector,
            template.environments.variables,
        ]),
        numbers: words([template.set_tid, template.clear_tid]),
        sequences: words([area.area, area.signature as usize, area.shown as usize]),
        blocked: [template.blocked, template.own_blocked].map(Word::new),
        signal_stack: [stack.ss_sp, stack.ss_flags as u64, stack.ss_size].map(Word::new),
        vectors: words([
            vectors.arguments,
            vectors.arguments_end,
            vectors.environment,
            vectors.environment_end,
            vectors.auxiliary,
            vectors.auxiliary_end,
        ]),
        heap: words([shape.heap.start, shape.heap.end]),
        layout: words([
            layout.stack_top,
            layout.mmap_top,
            layout.program_base,
            layout.heap_shift,
            usize::from(layout.files_have_places),
        ]),
        registers: [
            regs.r15,
            regs.r14,
            regs.r13,
            regs.r12,
            regs.rbp,
            regs.rbx,
            regs.r11,
            regs.r10,
            regs.r9,
            regs.r8,
            regs.rax,
            regs.rcx,
            regs.rdx,
            regs.rsi,
            regs.rdi,
            regs.orig_rax,
            regs.rip,
            regs.flags(),
            regs.rsp,
            position.fs_base,
            position.gs_base,
        ]
        .map(Word::new),
        ids: [
            credentials.uid,
            credentials.euid,
            credentials.suid,
            credentials.fsuid,
            credentials.gid,
            credentials.egid,
            credentials.sgid,
            credentials.fsgid,
        ]
        .map(U32::new),
        capabilities: sets.map(|set| Word::new(set.0)),
        securebits: U32::new(credentials.securebits),
    }
}

/// The regions, whose files are added to `files`.
fn regions(template: &Template, files: &mut Files) -> Result<Vec<Region>> {
    let mut regions = Vec::new();
    let mut seen: Vec<u64> = Vec::new();
    for region in template.space.shown(false)? {
        let mut file = NO_FILE;
        if let Some(backing) = &region.backing {
            let id = backing.page_cache.id();
            let number = match seen.iter().position(|&other| other == id) {
                Some(number) => number,
                None => {
                    let location = backing.location().ok_or(Errno::EOPNOTSUPP)?;
                    let (path, is_reached) = location.path_from(&template.root)?;
                    if !is_reached {
                        return Err(Errno::EOPNOTSUPP);
                    }
                    let is_program = id == template.executable.page_cache().id();
                    let uses = Known::MAPPED | if is_program { Known::PROGRAM } else { 0 };
                    let state = known::state(location, By::Header)?;
                    files.add(&path, uses, state).map_err(errno)?;
                    growth::push(&mut seen, id)?;
                    seen.len() - 1
                }
            };
            file = number as u32;
        }
        regions.make_room(1)?;
        regions.push(Region {
            start: Word::new(region.start as u64),
            end: Word::new(region.end as u64),
            offset: Word::new(region.offset),
            protection: U32::new(u32::from(region.protection.bits())),
            flags: U32::new(region.flags.bits()),
            file: U32::new(file),
        });
    }
    Ok(regions)
}

/// Adds the files that the program named: scripts that must be unchanged, and those that it says
/// it was made of, as far as they are there.
fn named_files(template: &Template, files: &mut Files) -> Result<()> {
    let context = FsContext::new(template.root.clone());
    let resolver = Resolver { context: &context, credentials: &template.credentials, start: None };
    let state = |path: &[u8], by: By| -> Result<State> {
        known::state(&resolver.resolve(path, WalkFlags::empty())?, by)
    };
    for path in template.serves.unchanged() {
        files.add(path, Known::HASHED, state(path, By::Content)?).map_err(errno)?;
    }
    for path in template.files.split(|&byte| byte == b'\n').filter(|path| !path.is_empty()) {
        match state(path, By::Header) {
            Ok(state) => files.add(path, 0, state).map_err(errno)?,
            Err(Errno::ENOMEM) => return Err(Errno::ENOMEM),
            // A name of something else: an archive's member, say.
            Err(_) => {}
        }
    }
    Ok(())
}
