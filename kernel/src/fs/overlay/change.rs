//! Making, linking, removing and renaming.
//!
//! An entry that replaces another (a whiteout over a file, a new file over a whiteout) is made in
//! the working directory and put in place by one rename of the upper layer.

use alloc::sync::Arc;
use alloc::vec::Vec;

use hayate_abi::{Errno, Result};

use super::copy_up::{Content, discard};
use super::node::{Node, OPAQUE, Upper, entry, is_whiteout};
use crate::reclaim::growth::Grow;
use crate::schedule::MutexGuard;
use crate::vfs::inode::{DeviceNumber, DirectorySink, FileKind, Inode, Owner, RenameFlags};

/// The kind of a new entry.
pub enum New<'a> {
    File { mode: u16 },
    Directory { mode: u16 },
    Node { kind: FileKind, mode: u16, device: DeviceNumber },
    Symlink { target: &'a [u8] },
}

impl New<'_> {
    fn make(
        &self,
        directory: &Arc<dyn Inode>,
        name: &[u8],
        owner: Owner,
    ) -> Result<Arc<dyn Inode>> {
        match *self {
            Self::File { mode } => directory.create(name, mode, owner),
            Self::Directory { mode } => directory.mkdir(name, mode, owner),
            Self::Node { kind, mode, device } => directory.mknod(name, kind, mode, device, owner),
            Self::Symlink { target } => directory.symlink(name, target, owner),
        }
    }
}

impl Upper {
    /// Moves `made` from the working directory to `name` in `directory` and removes `old`, if that
    /// is given. A directory may replace another kind of file, and the other way round. The caller
    /// holds `working`.
    fn install(
        &self,
        temporary: &[u8],
        made: &Arc<dyn Inode>,
        directory: &Arc<dyn Inode>,
        name: &[u8],
        old: Option<&Arc<dyn Inode>>,
    ) -> Result<()> {
        let Some(old) = old else {
            return self.work.rename(temporary, made, directory, name, None, RenameFlags::empty());
        };
        self.work.rename(temporary, made, directory, name, Some(old), RenameFlags::EXCHANGE)?;
        discard(&self.work, temporary, old);
        Ok(())
    }

    /// Puts a whiteout at `name` of `directory`, in place of `old` if that is given.
    fn cover(
        &self,
        temporary: &[u8],
        directory: &Arc<dyn Inode>,
        name: &[u8],
        old: Option<&Arc<dyn Inode>>,
    ) -> Result<()> {
        let owner = Owner::default();
        let _working = self.working.lock();
        let whiteout =
            self.work.mknod(temporary, FileKind::CharDevice, 0, DeviceNumber::NONE, owner)?;
        let done = self.install(temporary, &whiteout, directory, name, old);
        if done.is_err() {
            discard(&self.work, temporary, &whiteout);
        }
        done
    }
}

impl Node {
    /// Makes a new entry `name`, which must not be visible yet.
    pub fn make(&self, name: &[u8], new: New<'_>, owner: Owner) -> Result<Arc<dyn Inode>> {
        let upper = self.overlay.upper()?;
        let directory = self.copy_up(Content::Keep)?;
        let _changes = self.changes.lock();
        let made = match entry(&directory, name)? {
            None => new.make(&directory, name, owner)?,
            Some(old) if is_whiteout(&old) => {
                let _working = upper.working.lock();
                let temporary = self.overlay.temporary();
                let made = new.make(&upper.work, &temporary, owner)?;
                let opaque = match new {
                    // A lower directory may lie under the whiteout; it must not show through.
                    New::Directory { .. } => made.set_xattr(OPAQUE, Some(b"y"), 0),
                    _ => Ok(()),
                };
                let done = opaque
                    .and_then(|()| upper.install(&temporary, &made, &directory, name, Some(&old)));
                if let Err(error) = done {
                    discard(&upper.work, &temporary, &made);
                    return Err(error);
                }
                made
            }
            // The upper directory was changed behind the overlay's back.
            Some(_) => return Err(Errno::EEXIST),
        };
        self.overlay.changed(&directory, name);
        Ok(Node::of_upper(&self.overlay, made)?)
    }

    /// Gives `target` one more name.
    pub fn link_to(&self, name: &[u8], target: &Arc<Node>) -> Result<()> {
        let upper = self.overlay.upper()?;
        let file = target.copy_up(Content::Keep)?;
        let directory = self.copy_up(Content::Keep)?;
        let _changes = self.changes.lock();
        match entry(&directory, name)? {
            None => directory.link(name, &file)?,
            Some(old) if is_whiteout(&old) => {
                let _working = upper.working.lock();
                let temporary = self.overlay.temporary();
                upper.work.link(&temporary, &file)?;
                if let Err(error) = upper.install(&temporary, &file, &directory, name, Some(&old)) {
                    discard(&upper.work, &temporary, &file);
                    return Err(error);
                }
            }
            Some(_) => return Err(Errno::EEXIST),
        }
        self.overlay.changed(&directory, name);
        Arc::clone(target).share(file.metadata()?.number)?;
        Ok(())
    }

    /// Removes `name`, the name of `target`; a directory must be empty.
    pub fn remove(&self, name: &[u8], target: &Arc<Node>) -> Result<()> {
        let upper = self.overlay.upper()?;
        let directory = self.copy_up(Content::Keep)?;
        // A directory must stay empty until it is removed, so nothing may be made in it meanwhile.
        // (The locks are taken in the order of the tree, as in renames.)
        let _changes = self.changes.lock();
        let _inside = (target.kind == FileKind::Directory).then(|| target.changes.lock());
        if target.kind == FileKind::Directory {
            target.prepare_removal()?;
        }
        let old = entry(&directory, name)?;
        if self.lower_has(name)? {
            upper.cover(&self.overlay.temporary(), &directory, name, old.as_ref())?;
        } else if let Some(old) = &old {
            if target.kind == FileKind::Directory {
                directory.rmdir(name, old)?;
            } else {
                directory.unlink(name, old)?;
            }
        }
        self.overlay.changed(&directory, name);
        target.forget_place(self, name);
        if let Some(old) = old
            && target.kind != FileKind::Directory
            && let Ok(metadata) = old.metadata()
            && metadata.links == 0
        {
            self.overlay.origins.lock().remove(&metadata.number);
        }
        Ok(())
    }

    /// Notes that this node has no name any more, if `name` in `parent` was its place.
    fn forget_place(&self, parent: &Node, name: &[u8]) {
        let mut place = self.place.lock();
        let here = place
            .as_ref()
            .is_some_and(|place| core::ptr::eq(&*place.parent, parent) && place.name == name);
        let old = if here { place.take() } else { None };
        drop(place);
        drop(old);
    }

    /// Checks that this directory shows no entries, and removes the whiteouts from its upper
    /// directory. The caller holds its `changes`.
    fn prepare_removal(&self) -> Result<()> {
        struct Any(bool);
        impl DirectorySink for Any {
            fn entry(&mut self, _: u64, _: FileKind, _: &[u8], _: u64) -> bool {
                self.0 = true;
                false
            }
        }
        let mut any = Any(false);
        self.enumerate(&mut 2, &mut any)?;
        if any.0 {
            return Err(Errno::ENOTEMPTY);
        }
        let Some(upper) = self.upper() else { return Ok(()) };
        struct Names(Vec<Vec<u8>>);
        impl DirectorySink for Names {
            fn entry(&mut self, _: u64, _: FileKind, name: &[u8], _: u64) -> bool {
                if self.0.make_room(1).is_err() {
                    return false;
                }
                self.0.push(name.to_vec());
                true
            }
        }
        let mut names = Names(Vec::new());
        upper.read_dir(&mut 2, &mut names)?;
        for name in names.0 {
            if let Some(inode) = entry(&upper, &name)?
                && is_whiteout(&inode)
            {
                upper.unlink(&name, &inode)?;
            }
        }
        Ok(())
    }

    /// Whether this is a directory with a part in a lower layer.
    fn is_merged_directory(&self) -> bool {
        self.kind == FileKind::Directory && !self.lowers.is_empty()
    }

    /// Moves an entry of this directory; see [`Inode::rename`].
    pub fn move_entry(
        &self,
        (name, moved): (&[u8], &Arc<Node>),
        (target, new_name, replaced): (&Arc<Node>, &[u8], Option<&Arc<Node>>),
        flags: RenameFlags,
    ) -> Result<()> {
        let upper = self.overlay.upper()?;
        let exchange = flags.contains(RenameFlags::EXCHANGE);
        if flags.contains(RenameFlags::WHITEOUT) {
            return Err(Errno::EINVAL);
        }
        // Its lower part would stay behind.
        if moved.is_merged_directory()
            || exchange && replaced.is_some_and(|other| other.is_merged_directory())
        {
            return Err(Errno::EXDEV);
        }
        let file = moved.copy_up(Content::Keep)?;
        let (from, to) = (self.copy_up(Content::Keep)?, target.copy_up(Content::Keep)?);
        if exchange && let Some(other) = replaced {
            other.copy_up(Content::Keep)?;
        }
        let _both = lock_both(self, target);
        let victim = replaced.filter(|other| other.kind == FileKind::Directory && !exchange);
        let _inside = victim.map(|victim| victim.changes.lock());
        if let Some(victim) = victim {
            victim.prepare_removal()?;
        }
        // Where a lower layer has the name, a directory that is moved there must hide it, and an
        // entry that is moved away must leave a whiteout.
        let (below_old, below_new) = (self.lower_has(name)?, target.lower_has(new_name)?);
        moved.hide(&file, below_new)?;
        let old = entry(&to, new_name)?;
        if exchange {
            let (Some(old), Some(other)) = (&old, replaced) else { return Err(Errno::ENOENT) };
            other.hide(old, below_old)?;
            from.rename(name, &file, &to, new_name, Some(old), RenameFlags::EXCHANGE)?;
            self.overlay.changed(&from, name);
            self.overlay.changed(&to, new_name);
            return Ok(());
        }
        // The upper layer does not replace one kind by the other, so the two are exchanged first.
        let exchanged = if old.is_some() { RenameFlags::EXCHANGE } else { RenameFlags::empty() };
        from.rename(name, &file, &to, new_name, old.as_ref(), exchanged)?;
        match &old {
            _ if below_old => {
                upper.cover(&self.overlay.temporary(), &from, name, old.as_ref())?;
            }
            Some(old) if old.attributes().kind == FileKind::Directory => from.rmdir(name, old)?,
            Some(old) => from.unlink(name, old)?,
            None => {}
        }
        self.overlay.changed(&from, name);
        self.overlay.changed(&to, new_name);
        if let Some(replaced) = replaced {
            replaced.forget_place(target, new_name);
        }
        Ok(())
    }

    /// Makes a directory, which is `inode` in the upper layer, hide what lower layers have below
    /// the name that it gets, if they have that name.
    fn hide(&self, inode: &Arc<dyn Inode>, below: bool) -> Result<()> {
        if below && self.kind == FileKind::Directory {
            inode.set_xattr(OPAQUE, Some(b"y"), 0)
        } else {
            Ok(())
        }
    }
}

/// Locks two directories, which may be one, for changes: the one with the lower address first.
fn lock_both<'a>(
    one: &'a Node,
    other: &'a Node,
) -> (MutexGuard<'a, ()>, Option<MutexGuard<'a, ()>>) {
    let same = core::ptr::eq(one, other);
    let one_first = core::ptr::from_ref(one) < core::ptr::from_ref(other);
    let (first, second) = if one_first { (one, other) } else { (other, one) };
    let first = first.changes.lock();
    (first, (!same).then(|| second.changes.lock()))
}
