//! The templates by name, and the paths that are bound to them.
//!
//! Names belong to users: two users may have templates of one name, and neither sees the other's.
//! A path is bound to a name, not to a template, so that one that is made again takes the place of
//! the old one.
//!
//! Lock order: the lock of the table is a leaf. No template is dropped while it is held.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicUsize, Ordering};

use hayate_abi::{Errno, Result};
use hayate_machine::sync::SpinLock;

use super::template;
use super::template::Template;
use crate::reclaim::growth;
use crate::reclaim::growth::Grow;

/// The most templates, and the most bound paths, of all users and of one.
const MOST: usize = 256;
const MOST_OF_ONE: usize = 32;

/// A path that is bound to a template.
struct Bound {
    path: Vec<u8>,
    name: Vec<u8>,
    owner: u32,
}

struct Table {
    templates: Vec<Arc<Template>>,
    bound: Vec<Bound>,
}

static TABLE: SpinLock<Table> = SpinLock::new(Table { templates: Vec::new(), bound: Vec::new() });

/// How many paths are bound: an exec looks here first.
static BOUND: AtomicUsize = AtomicUsize::new(0);

/// The most bytes that all templates keep; those of one user keep half of it.
static LIMIT: AtomicUsize = AtomicUsize::new(0);

/// Sets the most bytes that all templates keep.
pub fn set_limit(bytes: usize) {
    LIMIT.store(bytes, Ordering::Relaxed);
}

/// Whether any path is bound.
#[inline(always)]
pub fn is_any_bound() -> bool {
    BOUND.load(Ordering::Relaxed) != 0
}

impl Table {
    fn place(&self, name: &[u8], owner: u32) -> Option<usize> {
        self.templates
            .iter()
            .position(|template| template.owner() == owner && template.name == name)
    }
}

/// Enters a template; one of the same name and owner goes.
///
/// # Errors
/// `ENOSPC`: there are too many, or they keep too much memory. `ENOMEM`.
pub fn enter(template: Arc<Template>) -> Result<()> {
    let owner = template.owner();
    let mut table = TABLE.lock();
    let old = table.place(&template.name, owner);
    let freed = old.and_then(|at| table.templates.get(at)).map_or(0, |old| old.bytes);
    let own = table.templates.iter().filter(|other| other.owner() == owner);
    let (number, bytes) =
        own.fold((0, 0), |(number, bytes), other| (number + 1, bytes + other.bytes));
    let limit = LIMIT.load(Ordering::Relaxed);
    // What is counted of all has the new one in it already.
    let too_much = template::bytes().saturating_sub(freed) > limit
        || bytes + template.bytes - freed > limit / 2;
    let too_many = old.is_none() && (number >= MOST_OF_ONE || table.templates.len() >= MOST);
    if too_much || too_many {
        return Err(Errno::ENOSPC);
    }
    let old = match old.and_then(|at| table.templates.get_mut(at)) {
        Some(place) => Some(core::mem::replace(place, template)),
        None => {
            table.templates.make_room(1)?;
            table.templates.push(template);
            None
        }
    };
    drop(table);
    drop(old);
    Ok(())
}

/// The template of this name and owner. `ENOENT`.
pub fn find(name: &[u8], owner: u32) -> Result<Arc<Template>> {
    let table = TABLE.lock();
    let at = table.place(name, owner).ok_or(Errno::ENOENT)?;
    table.templates.get(at).cloned().ok_or(Errno::ENOENT)
}

/// Removes a template and the paths that are bound to it. Starts from it that have begun are not
/// disturbed. `ENOENT`.
pub fn remove(name: &[u8], owner: u32) -> Result<()> {
    let mut table = TABLE.lock();
    let at = table.place(name, owner).ok_or(Errno::ENOENT)?;
    let gone = table.templates.swap_remove(at);
    drop(table);
    drop(gone);
    unbind_all(name, owner);
    Ok(())
}

/// Takes what goes out of a list. Returns the last of it, if there is any.
fn take(list: &mut Vec<Bound>, mut goes: impl FnMut(&mut Bound) -> bool) -> Option<Bound> {
    let mut last = None;
    while let Some(at) = list.iter_mut().position(&mut goes) {
        last = Some(list.swap_remove(at));
    }
    last
}

/// Binds a path to a name.
///
/// # Errors
/// `ENOSPC`: too many are bound; `ENOMEM`.
pub fn bind(path: &[u8], name: &[u8], owner: u32) -> Result<()> {
    let new = Bound { path: growth::copy(path)?, name: growth::copy(name)?, owner };
    let mut table = TABLE.lock();
    let old = table.bound.iter_mut().find(|bound| bound.owner == owner && bound.path == path);
    let old = match old {
        Some(bound) => Some(core::mem::replace(bound, new)),
        None => {
            let own = table.bound.iter().filter(|bound| bound.owner == owner).count();
            if own >= MOST_OF_ONE || table.bound.len() >= MOST {
                return Err(Errno::ENOSPC);
            }
            table.bound.make_room(1)?;
            table.bound.push(new);
            None
        }
    };
    BOUND.store(table.bound.len(), Ordering::Relaxed);
    drop(table);
    drop(old);
    Ok(())
}

/// Undoes [`bind`]. `ENOENT`.
pub fn unbind(path: &[u8], owner: u32) -> Result<()> {
    let mut table = TABLE.lock();
    let is_it = |bound: &mut Bound| bound.owner == owner && bound.path == path;
    let gone = take(&mut table.bound, is_it).ok_or(Errno::ENOENT)?;
    BOUND.store(table.bound.len(), Ordering::Relaxed);
    drop(table);
    drop(gone);
    Ok(())
}

/// The template to which a user has bound a path.
pub fn bound(path: &[u8], owner: u32) -> Option<Arc<Template>> {
    let table = TABLE.lock();
    let bound = table.bound.iter().find(|bound| bound.owner == owner && bound.path == path)?;
    let at = table.place(&bound.name, owner)?;
    table.templates.get(at).cloned()
}

/// The name to which a user has bound a path, whether there is a template of that name or not.
pub fn name_bound(path: &[u8], owner: u32) -> Option<Vec<u8>> {
    let table = TABLE.lock();
    let bound = table.bound.iter().find(|bound| bound.owner == owner && bound.path == path)?;
    growth::copy(&bound.name).ok()
}

/// Undoes all that binds paths to a name.
pub fn unbind_all(name: &[u8], owner: u32) {
    let mut table = TABLE.lock();
    let is_its_own = |bound: &mut Bound| bound.owner == owner && bound.name == name;
    let gone = take(&mut table.bound, is_its_own);
    BOUND.store(table.bound.len(), Ordering::Relaxed);
    drop(table);
    drop(gone);
}

/// All templates that a user sees; `None`: all there are. `ENOMEM`.
pub fn all(owner: Option<u32>) -> Result<Vec<Arc<Template>>> {
    let table = TABLE.lock();
    let mut all = Vec::new();
    all.make_room_exact(table.templates.len())?;
    let seen = |template: &&Arc<Template>| owner.is_none_or(|owner| template.owner() == owner);
    all.extend(table.templates.iter().filter(seen).cloned());
    Ok(all)
}

/// Calls a function with each path that is bound to a template of this name and owner, under the
/// lock of the table.
pub fn for_each_path(
    (name, owner): (&[u8], u32),
    mut visit: impl FnMut(&[u8]) -> Result<()>,
) -> Result<()> {
    let table = TABLE.lock();
    let its_own = table.bound.iter().filter(|bound| bound.owner == owner && bound.name == name);
    for bound in its_own {
        visit(&bound.path)?;
    }
    Ok(())
}
