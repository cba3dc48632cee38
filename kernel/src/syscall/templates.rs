//! Hayate's calls about templates (numbers 1020 to 1029; docs/templates.md, [`templates`]).

use alloc::sync::Arc;
use alloc::vec::Vec;

use hayate_abi::process::RLIMIT_STACK;
use hayate_abi::{Errno, Result};
use hayate_machine::trap::UserRegs;
use hayate_machine::user;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::file::{View, path, string};
use crate::credentials::{Capability, Credentials};
use crate::process;
use crate::process::images::{After, Course, recording};
use crate::process::templates::declaration::Environments;
use crate::process::templates::template::NAME_MAX;
use crate::process::templates::{Declaring, FILES_MAX, table};
use crate::process::{Thread, exec, images, templates};
use crate::program::{Strings, strings};
use crate::vfs::path::WalkFlags;

/// `struct hayate_template`.
#[repr(C)]
#[derive(Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct UserTemplate {
    name: u64,
    start: u64,
    serves: u64,
    files: u64,
    /// `environ`, and `struct hayate_variables`; not in the first form of the structure.
    vector: u64,
    variables: u64,
}

/// The size of the structure's first form.
const FIRST_SIZE: usize = 32;

/// Gives up the recording of the current thread's program, which cannot know of these calls.
/// Returns true if the program is started again: then the call is not carried out.
fn give_up_recording(thread: &Thread, regs: &mut UserRegs) -> bool {
    if !recording::is_any() {
        return false;
    }
    match images::give_up(thread, "it uses templates") {
        After::GoesOn => false,
        again => {
            images::follow(thread, regs, again);
            true
        }
    }
}

/// The text at an address, of at most this length; none at 0. Fails with `E2BIG` for a longer one.
fn text(address: u64, most: usize) -> Result<Vec<u8>> {
    match address {
        0 => Ok(Vec::new()),
        address => string(address as usize, most + 1).map_err(|error| match error {
            Errno::ENAMETOOLONG => Errno::E2BIG,
            error => error,
        }),
    }
}

/// `hayate_template_ready(template, size)`: the next fork of this thread makes a template.
///
/// Fails with `EINVAL` for a name or rules that are none, files that cannot be told to be
/// unchanged, or another size; `ETXTBSY` while one of them is written; `E2BIG`, `EFAULT`, `ENOMEM`,
/// and as a look-up of the files.
pub fn ready(regs: &mut UserRegs, template: usize, size: usize) -> Result<u64> {
    if size != size_of::<UserTemplate>() && size != FIRST_SIZE {
        return Err(Errno::EINVAL);
    }
    let thread = process::current();
    if give_up_recording(&thread, regs) {
        return Ok(regs.rax);
    }
    let mut wanted = UserTemplate::default();
    user::copy_in(wanted.as_mut_bytes().get_mut(..size).unwrap_or_default(), template)?;
    let declaring = Declaring {
        name: text(wanted.name, NAME_MAX)?,
        start: wanted.start as usize,
        serves: text(wanted.serves, hayate_template_rules::LONGEST)?,
        files: text(wanted.files, FILES_MAX)?,
        environments: Environments {
            vector: wanted.vector as usize,
            variables: wanted.variables as usize,
        },
    };
    templates::declare(&thread, declaring)?;
    Ok(0)
}

/// `hayate_template_start(name, arguments, environment)`: replaces the program by a start of a
/// template, as `execve(2)` does by another program.
///
/// Fails with `ENOENT`: the user has no such template; `EPERM`: the caller has other rights than
/// its maker; `ESTALE`: a file that it was compiled of has changed; `E2BIG`, `EFAULT`, `ENOMEM`,
/// and as `execve(2)`.
pub fn start(
    regs: &mut UserRegs,
    name: usize,
    arguments: usize,
    environment: usize,
) -> Result<u64> {
    let thread = process::current();
    if give_up_recording(&thread, regs) {
        return Ok(regs.rax);
    }
    let name = path(name)?;
    let limits = thread.process.limits();
    let mut budget = strings::budget(limits.soft(RLIMIT_STACK));
    let arguments = Strings::read(arguments, &mut budget)?;
    let environment = Strings::read(environment, &mut budget)?;
    let limits = exec::space_limits(&limits);
    let (prepared, begin) = templates::start(&thread, &name, &arguments, &environment, limits)?;
    exec::execute(&thread, regs, prepared, Course::Template(begin))?;
    Ok(regs.rax)
}

/// The caller's credentials, if templates of its user are its own: `EPERM` in a user namespace,
/// from which it would change the programs of those outside.
fn owners() -> Result<Arc<Credentials>> {
    let own = process::current().credentials();
    if own.is_outermost() { Ok(own) } else { Err(Errno::EPERM) }
}

/// `hayate_template_remove(name, owner)`: removes a template and what is bound to it; `owner` -1:
/// one of the caller's.
///
/// Fails with `ENOENT`; `EPERM` in a user namespace, and for another user's, without
/// `CAP_SYS_ADMIN`.
pub fn remove(name: usize, owner: i32) -> Result<()> {
    let own = owners()?;
    let owner = if owner == -1 { own.euid } else { owner as u32 };
    if owner != own.euid {
        own.require(Capability::SysAdmin)?;
    }
    templates::remove(&path(name)?, owner)
}

/// `hayate_template_bind(path, name)`: a program that is executed by this path begins at the
/// template, if that serves the start; with a null `name`, no longer.
///
/// Fails with `EINVAL`: the path is not absolute, or is neither that of a script that the template
/// names nor leads to its program;
/// `EOPNOTSUPP`: the template serves no such start; `ENOENT`, `ENOSPC`, `ENOMEM`, and as a look-up
/// of the path.
pub fn bind(path_address: usize, name: usize) -> Result<()> {
    let bound = path(path_address)?;
    let owner = owners()?.euid;
    if name == 0 {
        return table::unbind(&bound, owner);
    }
    let name = path(name)?;
    let template = templates::find(&process::current(), &name, owner)?;
    if !template.serves.serve_any() {
        return Err(Errno::EOPNOTSUPP);
    }
    if template.serves.name_script(&bound) {
        return table::bind(&bound, &name, owner);
    }
    let view = View::current()?;
    let location = view.resolve(hayate_abi::file::AT_FDCWD, &bound, WalkFlags::empty())?;
    let content = location.inode()?.page_cache().map(|content| content.id());
    if !bound.starts_with(b"/") || content != Some(template.executable.page_cache().id()) {
        return Err(Errno::EINVAL);
    }
    table::bind(&bound, &name, owner)
}
