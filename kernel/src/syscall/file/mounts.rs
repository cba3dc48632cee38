//! Mounts and roots: `mount`, `umount2`, `pivot_root`, `chroot`.

use alloc::vec::Vec;

use hayate_abi::file::AT_FDCWD;
use hayate_abi::{Errno, Result};
use hayate_machine::user;

use super::{View, path, string};
use crate::credentials::{Capability, Credentials, access};
use crate::process;
use crate::reclaim::growth::Grow;
use crate::vfs::landlock;
use crate::vfs::path::{PATH_MAX, WalkFlags, permitted};
use crate::vfs::{mount_tree, unmount};

/// Copies the data of `mount(2)`: up to a page, as much as is readable.
fn options(address: usize) -> Result<Vec<u8>> {
    if address == 0 {
        return Ok(Vec::new());
    }
    let mut data = Vec::new();
    data.make_room_exact(4096)?;
    data.resize(4096, 0);
    let got = user::copy_in_partly(&mut data, address);
    if got == 0 {
        return Err(Errno::EFAULT);
    }
    let end = data.iter().take(got).position(|&byte| byte == 0).unwrap_or(got);
    data.truncate(end);
    Ok(data)
}

fn word(address: usize) -> Result<Vec<u8>> {
    if address == 0 { Ok(Vec::new()) } else { string(address, PATH_MAX) }
}

/// Fails with `EPERM` unless the caller may change its mount namespace.
pub fn may_mount(credentials: &Credentials) -> Result<()> {
    credentials.require_in(&process::current().mounts().owner, Capability::SysAdmin)
}

/// Fails with `EPERM` unless the caller may change the tree of its mount namespace.
pub fn may_change_tree(credentials: &Credentials) -> Result<()> {
    may_mount(credentials)?;
    landlock::check_mounts(credentials)
}

/// `mount(2)`
pub fn mount(source: usize, target: usize, kind: usize, flags: usize, data: usize) -> Result<()> {
    let kind = word(kind)?;
    let source = word(source)?;
    let data = options(data)?;
    let target = path(target)?;
    let view = View::current()?;
    let resolver = view.resolver(AT_FDCWD, &target)?;
    let place = resolver.resolve(&target, WalkFlags::empty())?;
    may_change_tree(view.credentials())?;
    mount_tree::mount(
        &process::current().mounts(),
        &resolver,
        &source,
        place,
        &kind,
        flags as u64,
        &data,
    )
}

/// `umount2(2)`
pub fn umount2(target: usize, flags: u32) -> Result<()> {
    const MNT_FORCE: u32 = 1;
    const MNT_DETACH: u32 = 2;
    const MNT_EXPIRE: u32 = 4;
    const UMOUNT_NOFOLLOW: u32 = 8;
    if flags & !(MNT_FORCE | MNT_DETACH | MNT_EXPIRE | UMOUNT_NOFOLLOW) != 0
        || flags & MNT_EXPIRE != 0 && flags & (MNT_FORCE | MNT_DETACH) != 0
    {
        return Err(Errno::EINVAL);
    }
    let view = View::current()?;
    may_change_tree(view.credentials())?;
    let walk = if flags & UMOUNT_NOFOLLOW != 0 { WalkFlags::NOFOLLOW } else { WalkFlags::empty() };
    let place = view.resolve(AT_FDCWD, &path(target)?, walk)?;
    let own = process::current().mounts();
    if flags & MNT_EXPIRE != 0 {
        return unmount::expire(&own, place, &view.context().root());
    }
    unmount::unmount(&own, place, flags & MNT_DETACH != 0)
}

/// `chroot(2)`
pub fn chroot(path_address: usize) -> Result<()> {
    let (view, path) = (View::current()?, path(path_address)?);
    let place = view.resolve(AT_FDCWD, &path, WalkFlags::DIRECTORY)?;
    permitted(view.credentials(), &place.inode()?.attributes(), access::EXECUTE)?;
    view.credentials().require_own(Capability::SysChroot)?;
    view.context().set_root(place);
    Ok(())
}

/// `pivot_root(2)`
pub fn pivot_root(new_root: usize, put_old: usize) -> Result<()> {
    let view = View::current()?;
    may_change_tree(view.credentials())?;
    let new_root = view.resolve(AT_FDCWD, &path(new_root)?, WalkFlags::DIRECTORY)?;
    let put_old = view.resolve(AT_FDCWD, &path(put_old)?, WalkFlags::DIRECTORY)?;
    let old_root = view.context().root();
    mount_tree::pivot(&process::current().mounts(), &old_root, &new_root, &put_old)?;
    // Move every process whose root was the old root to the new one.
    for process in process::pids::processes()? {
        for thread in process.threads()? {
            if let Ok(context) = thread.directories() {
                context.move_from(&old_root, &new_root);
            }
        }
    }
    Ok(())
}
