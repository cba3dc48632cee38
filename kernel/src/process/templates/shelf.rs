//! The templates on non-volatile memory that no start has asked for yet.
//!
//! A template that was saved is a text of a store, named `template:NAME`. Boot reads the head of
//! each (`hayate-template-file`) and puts it here, and the paths that are bound to it into the
//! [table](super::table): nothing of its memory is touched. The first start that asks for it takes
//! it from here ([`super::wake`]).
//!
//! Until then its text may be removed from the store. One that was taken stays in use until the
//! next boot: its pages are in the page tables of processes, and the store must not give them to
//! another text.
//!
//! Lock order: the shelf's lock is a leaf. Nothing is dropped under it.

use alloc::sync::Arc;
use alloc::vec::Vec;

use hayate_abi::{Errno, Result};
use hayate_nvm_store::{Identity, Text};
use hayate_template_file::{Head, PAGE, sizes};
use machine::sync::SpinLock;
use machine::{info, vdso, warn};

use super::template::is_name;
use crate::in_place::store;
use crate::memory::USER_END;
use crate::reclaim::growth;
use crate::reclaim::growth::Grow;

/// How the names of texts begin that are templates.
pub const PREFIX: &[u8] = b"template:";

/// The most of them that are found.
const MOST: usize = 64;

/// A template on non-volatile memory.
pub struct Stored {
    /// Its name.
    pub name: Vec<u8>,
    /// The user whose starts it serves.
    pub owner: u32,
    /// When it was made, on the real-time clock in nanoseconds.
    pub made: u64,
    /// The paths that were bound to it, with a NUL each.
    bound: Vec<u8>,
    /// Where the object lay that the kernel shows to programs.
    object: usize,
    head: Vec<u8>,
    /// The text, which is looked for when it is needed: until then it may be removed or moved.
    identity: Identity,
    pages: u32,
}

static SHELF: SpinLock<Vec<Arc<Stored>>> = SpinLock::new(Vec::new());

/// The texts whose pages processes may have.
static IN_USE: SpinLock<Vec<Arc<store::Text>>> = SpinLock::new(Vec::new());

impl Stored {
    /// Reads the head of a text.
    ///
    /// # Errors
    /// `EBADMSG`: it is damaged; `ENOMEM`; those of the store.
    fn of(text: &Text) -> Result<Stored> {
        let (identity, all) = (text.identity, text.pages);
        let text = store::find(&identity, all)?;
        let mut head = Vec::new();
        head.make_room_exact(PAGE)?;
        head.resize(PAGE, 0);
        let page = |index: u32, to: &mut [u8]| {
            let frame = text.extent().frame(index).ok_or(Errno::EBADMSG)?;
            if frame.read(0, to) == PAGE { Ok(()) } else { Err(Errno::EBADMSG) }
        };
        page(0, &mut head)?;
        let (pages, memory) = sizes(&head).map_err(|_| Errno::EBADMSG)?;
        if pages.checked_add(memory) != Some(all) {
            return Err(Errno::EBADMSG);
        }
        head.make_room_exact((pages as usize - 1) * PAGE)?;
        head.resize(pages as usize * PAGE, 0);
        for (index, to) in head.chunks_exact_mut(PAGE).enumerate().skip(1) {
            page(index as u32, to)?;
        }
        let read = Head::read(&head, USER_END as u64).map_err(|_| Errno::EBADMSG)?;
        if !is_name(read.name) {
            return Err(Errno::EBADMSG);
        }
        let (name, made) = (growth::copy(read.name)?, read.facts.made.get());
        let [_, owner, ..] = read.facts.ids.map(|id| id.get());
        let (bound, object) = (growth::copy(read.bound)?, read.facts.object.get() as usize);
        Ok(Stored { name, owner, made, bound, object, head, identity, pages: all })
    }

    /// Its head.
    ///
    /// # Errors
    /// None: it was read before. (`EBADMSG`.)
    pub fn head(&self) -> Result<Head<'_>> {
        Head::read(&self.head, USER_END as u64).map_err(|_| Errno::EBADMSG)
    }

    /// The pages of its head, behind which those of its memory lie.
    pub fn head_pages(&self) -> u32 {
        (self.head.len() / PAGE) as u32
    }

    /// How much memory of its program is stored, in bytes.
    pub fn bytes(&self) -> usize {
        (self.pages as usize * PAGE).saturating_sub(self.head.len())
    }

    fn is(&self, name: &[u8], owner: u32) -> bool {
        self.owner == owner && self.name == name
    }

    /// Finds the text, and keeps it until the next boot: processes are about to have its pages.
    ///
    /// # Errors
    /// `ENOMEDIUM`: it was removed. `ENOMEM`.
    pub fn hold(&self) -> Result<Arc<store::Text>> {
        let text = store::find(&self.identity, self.pages)?;
        let mut held = IN_USE.lock();
        // A start that fails for another reason comes here again.
        if !held.iter().any(|other| Arc::ptr_eq(other, &text)) {
            held.make_room(1)?;
            held.push(Arc::clone(&text));
        }
        drop(held);
        Ok(text)
    }
}

/// Finds the templates on all non-volatile memory; boot calls it once. Calls `bind` with each path
/// that is bound to one, its name and its owner.
pub fn find(mut bind: impl FnMut(&[u8], &[u8], u32) -> Result<()>) {
    let mut found: Vec<Arc<Stored>> = Vec::new();
    for_each_text(|text| {
        let read = Stored::of(text).and_then(|stored| {
            found.make_room(1)?;
            Ok(Arc::new(stored))
        });
        match read {
            Ok(stored) if found.len() < MOST => add(&mut found, stored),
            Ok(_) => warn!("template: {}: there are too many", text.name().escape_ascii()),
            Err(error) => warn!("template: {}: {error:?}", text.name().escape_ascii()),
        }
    });
    for stored in &found {
        for path in Head::strings(&stored.bound) {
            if let Err(error) = bind(path, &stored.name, stored.owner) {
                warn!("template: {} is not bound: {error:?}", path.escape_ascii());
            }
        }
        info!("template: {} is on non-volatile memory", stored.name.escape_ascii());
    }
    *SHELF.lock() = found;
}

/// Adds one, in the place of an older one of the same name and owner.
fn add(all: &mut Vec<Arc<Stored>>, stored: Arc<Stored>) {
    match all.iter_mut().find(|other| other.is(&stored.name, stored.owner)) {
        Some(other) if other.made < stored.made => *other = stored,
        Some(_) => {}
        None => all.push(stored),
    }
}

/// Calls `visit` with each text that is named as a template.
fn for_each_text(mut visit: impl FnMut(&Text)) {
    for bank in store::banks() {
        let mut named: Vec<Text> = Vec::new();
        bank.with_store(|store| {
            for text in store.texts().iter().filter(|text| text.name().starts_with(PREFIX)) {
                if named.make_room(1).is_ok() {
                    named.push(*text);
                }
            }
        });
        named.iter().for_each(&mut visit);
    }
}

/// The texts on non-volatile memory that are a template of this name and owner, but for one text.
///
/// # Errors
/// `ENOMEM`.
pub fn others(name: &[u8], owner: u32, than: &Identity) -> Result<Vec<Identity>> {
    let mut all = Vec::new();
    let mut lacking = false;
    for_each_text(|text| {
        let is_same = Stored::of(text).is_ok_and(|stored| stored.is(name, owner));
        if is_same && text.identity != *than {
            lacking |= all.make_room(1).is_err();
            if !lacking {
                all.push(text.identity);
            }
        }
    });
    if lacking { Err(Errno::ENOMEM) } else { Ok(all) }
}

/// The number with which the object that the kernel shows to programs lies where it lay when the
/// templates were saved; `None`: there are none.
pub fn number_of_object() -> Option<u64> {
    SHELF.lock().iter().find_map(|stored| vdso::number_of(stored.object))
}

/// The template of this name and owner, if it is here.
pub fn get(name: &[u8], owner: u32) -> Option<Arc<Stored>> {
    SHELF.lock().iter().find(|stored| stored.is(name, owner)).cloned()
}

/// Takes a template away. Returns whether it was here.
pub fn take(name: &[u8], owner: u32) -> bool {
    let mut shelf = SHELF.lock();
    let at = shelf.iter().position(|stored| stored.is(name, owner));
    let gone = at.map(|at| shelf.swap_remove(at));
    drop(shelf);
    gone.is_some()
}

/// All that are here and that a user sees; `None`: all there are. `ENOMEM`.
pub fn all(owner: Option<u32>) -> Result<Vec<Arc<Stored>>> {
    let shelf = SHELF.lock();
    let mut all = Vec::new();
    all.make_room_exact(shelf.len())?;
    let seen = |stored: &&Arc<Stored>| owner.is_none_or(|owner| stored.owner == owner);
    all.extend(shelf.iter().filter(seen).cloned());
    Ok(all)
}
