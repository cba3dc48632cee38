//! Mounts by descriptors: `fsopen`, `fsconfig`, `fsmount`, `fspick`, `open_tree`, `move_mount`,
//! `mount_setattr`. Which error comes when follows fs/fsopen.c and fs/namespace.c of Linux 6.1.

use alloc::vec::Vec;

use hayate_abi::file::AT_FDCWD;
use hayate_abi::{Errno, Result};
use hayate_machine::user;

use super::{View, at, credentials, install, mounts, open_file, path, string};
use crate::credentials::Capability;
use crate::process;
use crate::vfs::filesystem_type::find_type;
use crate::vfs::mount::Location;
use crate::vfs::mount::flags::*;
use crate::vfs::mount_config::Configuration;
use crate::vfs::open_file::flags::{O_CLOEXEC, O_PATH};
use crate::vfs::path::WalkFlags;
use crate::vfs::{mount_config, mount_tree, open, propagation};

/// `FSOPEN_CLOEXEC`, `FSMOUNT_CLOEXEC`, `FSPICK_CLOEXEC`.
const CLOSE_ON_EXEC: u32 = 1;
/// `AT_RECURSIVE`
const RECURSIVE: u32 = 0x8000;

/// `MOUNT_ATTR_*` of `mount_setattr(2)`.
mod attribute {
    pub const READ_ONLY: u64 = 1;
    pub const NO_SUID: u64 = 2;
    pub const NO_DEVICES: u64 = 4;
    pub const NO_EXECUTION: u64 = 8;
    /// The bits that tell of times of access, and their values.
    pub const ACCESS_TIMES: u64 = 0x70;
    pub const RELATIVE: u64 = 0;
    pub const NONE: u64 = 0x10;
    pub const STRICT: u64 = 0x20;
    pub const NONE_OF_DIRECTORIES: u64 = 0x80;
    pub const MAPPED_IDENTIFIERS: u64 = 0x10_0000;
    pub const NO_LINKS: u64 = 0x20_0000;
    /// Those of fsmount (`FSMOUNT_VALID_FLAGS`).
    pub const ALL: u64 = READ_ONLY
        | NO_SUID
        | NO_DEVICES
        | NO_EXECUTION
        | ACCESS_TIMES
        | NONE_OF_DIRECTORIES
        | NO_LINKS;
}

fn may_mount() -> Result<()> {
    mounts::may_mount(&credentials())
}

/// The `MS_*` flags of attributes, without those of access times.
fn plain_flags(attributes: u64) -> u64 {
    let pairs = [
        (attribute::READ_ONLY, MS_RDONLY),
        (attribute::NO_SUID, MS_NOSUID),
        (attribute::NO_DEVICES, MS_NODEV),
        (attribute::NO_EXECUTION, MS_NOEXEC),
        (attribute::NONE_OF_DIRECTORIES, MS_NODIRATIME),
        (attribute::NO_LINKS, MS_NOSYMFOLLOW),
    ];
    let has = |(bit, flag): (u64, u64)| if attributes & bit != 0 { flag } else { 0 };
    pairs.into_iter().map(has).fold(0, |all, flag| all | flag)
}

/// The `MS_*` flag of the access times that attributes choose: `EINVAL`.
fn times_flag(attributes: u64) -> Result<u64> {
    match attributes & attribute::ACCESS_TIMES {
        attribute::RELATIVE => Ok(MS_RELATIME),
        attribute::NONE => Ok(MS_NOATIME),
        attribute::STRICT => Ok(MS_STRICTATIME),
        _ => Err(Errno::EINVAL),
    }
}

/// A word of the program, of at most `most` bytes with its end: `EINVAL` if it is longer
/// (`strndup_user`).
fn word(address: usize, most: usize) -> Result<Vec<u8>> {
    string(address, most).map_err(|error| match error {
        Errno::ENAMETOOLONG => Errno::EINVAL,
        error => error,
    })
}

/// `fsopen(2)`
pub fn fsopen(name: usize, flags: u32) -> Result<i32> {
    may_mount()?;
    if flags & !CLOSE_ON_EXEC != 0 {
        return Err(Errno::EINVAL);
    }
    let kind = find_type(&word(name, 4096)?)?;
    install(mount_config::of_new(kind)?, flags & CLOSE_ON_EXEC != 0)
}

/// `fspick(2)`
pub fn fspick(directory: i32, place: usize, flags: u32) -> Result<i32> {
    const NO_FOLLOW: u32 = 2;
    const NO_AUTOMOUNT: u32 = 4;
    const EMPTY_PATH: u32 = 8;
    may_mount()?;
    if flags & !(CLOSE_ON_EXEC | NO_FOLLOW | NO_AUTOMOUNT | EMPTY_PATH) != 0 {
        return Err(Errno::EINVAL);
    }
    let place = locate(directory, place, (flags & NO_FOLLOW == 0, flags & EMPTY_PATH != 0))?;
    if !place.is_mount_root() {
        return Err(Errno::EINVAL);
    }
    install(mount_config::of_mount(place.mount)?, flags & CLOSE_ON_EXEC != 0)
}

/// A place, for a caller that follows a link at its end and takes an empty path for the descriptor.
fn locate(directory: i32, place: usize, (follows, empty): (bool, bool)) -> Result<Location> {
    let mut walk = WalkFlags::empty();
    walk.set(WalkFlags::NOFOLLOW, !follows);
    walk.set(WalkFlags::EMPTY, empty);
    View::current()?.resolve(directory, &path(place)?, walk)
}

/// The commands of `fsconfig(2)` (`enum fsconfig_command`).
mod command {
    pub const FLAG: u32 = 0;
    pub const STRING: u32 = 1;
    pub const BINARY: u32 = 2;
    pub const PATH: u32 = 3;
    pub const PATH_EMPTY: u32 = 4;
    pub const DESCRIPTOR: u32 = 5;
    pub const MAKE: u32 = 6;
    pub const CHANGE: u32 = 7;
}

/// `fsconfig(2)`
pub fn fsconfig(fd: i32, command: u32, key: usize, value: usize, auxiliary: i32) -> Result<()> {
    /// The longest key and string, with their ends.
    const MOST: usize = 256;
    if fd < 0 {
        return Err(Errno::EINVAL);
    }
    let (has_key, has_value) = (key != 0, value != 0);
    let is_right = match command {
        command::FLAG => has_key && !has_value && auxiliary == 0,
        command::STRING => has_key && has_value && auxiliary == 0,
        command::BINARY => has_key && has_value && (1..=1 << 20).contains(&auxiliary),
        command::PATH | command::PATH_EMPTY => {
            has_key && has_value && (auxiliary == AT_FDCWD || auxiliary >= 0)
        }
        command::DESCRIPTOR => has_key && !has_value && auxiliary >= 0,
        command::MAKE | command::CHANGE => !has_key && !has_value && auxiliary == 0,
        _ => return Err(Errno::EOPNOTSUPP),
    };
    if !is_right {
        return Err(Errno::EINVAL);
    }
    let file = open_file(fd)?;
    let configuration = Configuration::of(&file)?;
    match command {
        command::MAKE => {
            may_mount()?;
            let view = View::current()?;
            configuration.make(&view.resolver(AT_FDCWD, b"")?)
        }
        command::CHANGE => {
            mounts::may_change_tree(&credentials())?;
            configuration.change()
        }
        command::FLAG => configuration.set(&word(key, MOST)?, None),
        command::STRING => {
            let (key, value) = (word(key, MOST)?, word(value, MOST)?);
            configuration.set(&key, Some(&value))
        }
        // No file system here has options that are files or bytes.
        _ => word(key, MOST).and(Err(Errno::EINVAL)),
    }
}

/// `fsmount(2)`
pub fn fsmount(fd: i32, flags: u32, attributes: u32) -> Result<i32> {
    may_mount()?;
    let attributes = u64::from(attributes);
    if flags & !CLOSE_ON_EXEC != 0 || attributes & !attribute::ALL != 0 {
        return Err(Errno::EINVAL);
    }
    let mount_flags = plain_flags(attributes) | times_flag(attributes)?;
    let file = open_file(fd)?;
    let mount = Configuration::of(&file)?.mount(&process::current().mounts(), mount_flags)?;
    install(mount_tree::open_loose(mount)?, flags & CLOSE_ON_EXEC != 0)
}

/// `open_tree(2)`
pub fn open_tree(directory: i32, place: usize, flags: u32) -> Result<i32> {
    const CLONE: u32 = 1;
    let known =
        CLONE | O_CLOEXEC | at::EMPTY_PATH | at::NO_AUTOMOUNT | at::SYMLINK_NOFOLLOW | RECURSIVE;
    if flags & !known != 0 || flags & (RECURSIVE | CLONE) == RECURSIVE {
        return Err(Errno::EINVAL);
    }
    if flags & CLONE != 0 {
        may_mount()?;
    }
    let follows = flags & at::SYMLINK_NOFOLLOW == 0;
    let place = locate(directory, place, (follows, flags & at::EMPTY_PATH != 0))?;
    let file = if flags & CLONE != 0 {
        mount_tree::open_copy(&process::current().mounts(), &place, flags & RECURSIVE != 0)?
    } else {
        open::place_only(place, O_PATH)?
    };
    install(file, flags & O_CLOEXEC != 0)
}

/// `move_mount(2)`
pub fn move_mount(
    from_directory: i32,
    from: usize,
    to_directory: i32,
    to: usize,
    flags: u32,
) -> Result<()> {
    const FROM_SYMLINKS: u32 = 1;
    const FROM_EMPTY: u32 = 4;
    const TO_SYMLINKS: u32 = 0x10;
    const TO_EMPTY: u32 = 0x40;
    /// Automounts, of which there are none, and `MOVE_MOUNT_SET_GROUP`.
    const OTHERS: u32 = 2 | 0x20 | SET_GROUP;
    const SET_GROUP: u32 = 0x100;
    mounts::may_change_tree(&credentials())?;
    if flags & !(FROM_SYMLINKS | FROM_EMPTY | TO_SYMLINKS | TO_EMPTY | OTHERS) != 0 {
        return Err(Errno::EINVAL);
    }
    let has = |flag: u32| flags & flag != 0;
    let source = locate(from_directory, from, (has(FROM_SYMLINKS), has(FROM_EMPTY)))?;
    let target = locate(to_directory, to, (has(TO_SYMLINKS), has(TO_EMPTY)))?;
    if has(SET_GROUP) {
        // Of whatever namespace, to those who may change it (`do_set_group`).
        for place in [&source, &target] {
            let owner = place.mount.owner().ok_or(Errno::EINVAL)?;
            credentials().require_in(&owner, Capability::SysAdmin)?;
        }
        return propagation::share_like(&source, &target);
    }
    mount_tree::move_mount(&process::current().mounts(), &source, target)
}

/// `mount_setattr(2)`
pub fn mount_setattr(
    directory: i32,
    place: usize,
    flags: u32,
    attributes: usize,
    size: usize,
) -> Result<()> {
    /// The size of `struct mount_attr`.
    const SIZE: usize = 32;
    let known = at::EMPTY_PATH | at::NO_AUTOMOUNT | at::SYMLINK_NOFOLLOW | RECURSIVE;
    if flags & !known != 0 {
        return Err(Errno::EINVAL);
    }
    if size > 4096 {
        return Err(Errno::E2BIG);
    }
    if size < SIZE {
        return Err(Errno::EINVAL);
    }
    may_mount()?;
    let mut bytes = [0; SIZE];
    user::copy_in_growing(&mut bytes, attributes, size)?;
    let [set, clear, shares, _user_namespace]: [u64; 4] = zerocopy::transmute!(bytes);
    if set == 0 && clear == 0 && shares == 0 {
        return Ok(());
    }
    let change = change(set, clear)?;
    let kind = if shares == 0 { None } else { Some(propagation::kind_of(shares)?) };
    let follows = flags & at::SYMLINK_NOFOLLOW == 0;
    let place = locate(directory, place, (follows, flags & at::EMPTY_PATH != 0))?;
    let own = process::current().mounts();
    mount_tree::set_attributes(&own, &place, flags & RECURSIVE != 0, change, kind)
}

/// What attributes make of a mount's flags: `EINVAL` (`build_mount_kattr`).
fn change(set: u64, clear: u64) -> Result<impl Fn(u64) -> u64> {
    let all = attribute::ALL | attribute::MAPPED_IDENTIFIERS;
    let is_mapped = (set | clear) & attribute::MAPPED_IDENTIFIERS != 0;
    if (set | clear) & !all != 0 || is_mapped {
        return Err(Errno::EINVAL);
    }
    // Times of access are one choice of several: it is cleared as a whole, and only then made.
    let times = match clear & attribute::ACCESS_TIMES {
        attribute::ACCESS_TIMES => Some(times_flag(set)?),
        0 if set & attribute::ACCESS_TIMES == 0 => None,
        _ => return Err(Errno::EINVAL),
    };
    let (more, less) = (plain_flags(set), plain_flags(clear));
    Ok(move |old: u64| {
        const CHOICE: u64 = MS_NOATIME | MS_RELATIME | MS_STRICTATIME;
        let chosen = times.map_or(old & CHOICE, |flag| flag);
        (old & !less & !CHOICE) | more | chosen
    })
}
