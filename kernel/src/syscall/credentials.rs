//! Credentials (`credentials(7)`, `setuid(2)` and related calls, `capget(2)`).
//!
//! Programs give and get numbers of their user namespace ([`numbers`]), and the right to take
//! others is that of the namespace: a number without a user is `EINVAL`.

use alloc::sync::Arc;
use alloc::vec::Vec;

use hayate_abi::process::{CapabilityData, CapabilityHeader};
use hayate_abi::{Errno, Result};
use hayate_machine::user::UserPtr;

use crate::credentials::{Capability, CapabilitySet, Credentials, Id, KEEP};
use crate::process;
use crate::process::{access, numbers, visible};
use crate::reclaim::growth;
use crate::reclaim::growth::Grow;

/// The most supplementary groups.
const GROUPS_MAX: usize = 65536;

fn own() -> Arc<Credentials> {
    process::current().credentials()
}

/// Changes the caller's credentials.
fn change(edit: impl FnOnce(&mut Credentials) -> Result<()>) -> Result<()> {
    let thread = process::current();
    let old = thread.credentials();
    let mut new = Credentials::clone(&old);
    edit(&mut new)?;
    access::conceal(&thread, &old, &new);
    thread.set_credentials(Arc::new(new));
    Ok(())
}

/// `getuid(2)`
pub fn getuid() -> Id {
    numbers::shown_user(own().uid)
}

/// `getgid(2)`
pub fn getgid() -> Id {
    numbers::shown_group(own().gid)
}

/// `geteuid(2)`
pub fn geteuid() -> Id {
    numbers::shown_user(own().euid)
}

/// `getegid(2)`
pub fn getegid() -> Id {
    numbers::shown_group(own().egid)
}

/// `setuid(2)`
pub fn setuid(user: Id) -> Result<()> {
    if user == KEEP {
        return Err(Errno::EINVAL);
    }
    let user = numbers::user(user)?;
    change(|new| {
        let old = new.clone();
        if old.has_own(Capability::Setuid) {
            new.uid = user;
            new.suid = user;
        } else if user != old.uid && user != old.suid {
            return Err(Errno::EPERM);
        }
        new.euid = user;
        new.fsuid = user;
        new.fix_capabilities_after_setuid(&old);
        Ok(())
    })
}

/// `setgid(2)`
pub fn setgid(group: Id) -> Result<()> {
    if group == KEEP {
        return Err(Errno::EINVAL);
    }
    let group = numbers::group(group)?;
    change(|new| {
        if new.has_own(Capability::Setgid) {
            new.gid = group;
            new.sgid = group;
        } else if group != new.gid && group != new.sgid {
            return Err(Errno::EPERM);
        }
        new.egid = group;
        new.fsgid = group;
        Ok(())
    })
}

/// `setreuid(2)`
pub fn setreuid(real: Id, effective: Id) -> Result<()> {
    let (real, effective) = (numbers::user_or_keep(real)?, numbers::user_or_keep(effective)?);
    change(|new| {
        let old = new.clone();
        let privileged = old.has_own(Capability::Setuid);
        if real != KEEP {
            if !privileged && real != old.uid && real != old.euid {
                return Err(Errno::EPERM);
            }
            new.uid = real;
        }
        if effective != KEEP {
            let known = [old.uid, old.euid, old.suid].contains(&effective);
            if !privileged && !known {
                return Err(Errno::EPERM);
            }
            new.euid = effective;
        }
        if real != KEEP || (effective != KEEP && effective != old.uid) {
            new.suid = new.euid;
        }
        new.fsuid = new.euid;
        new.fix_capabilities_after_setuid(&old);
        Ok(())
    })
}

/// `setregid(2)`
pub fn setregid(real: Id, effective: Id) -> Result<()> {
    let (real, effective) = (numbers::group_or_keep(real)?, numbers::group_or_keep(effective)?);
    change(|new| {
        let old = new.clone();
        let privileged = old.has_own(Capability::Setgid);
        if real != KEEP {
            if !privileged && real != old.gid && real != old.egid {
                return Err(Errno::EPERM);
            }
            new.gid = real;
        }
        if effective != KEEP {
            let known = [old.gid, old.egid, old.sgid].contains(&effective);
            if !privileged && !known {
                return Err(Errno::EPERM);
            }
            new.egid = effective;
        }
        if real != KEEP || (effective != KEEP && effective != old.gid) {
            new.sgid = new.egid;
        }
        new.fsgid = new.egid;
        Ok(())
    })
}

/// `setresuid(2)`
pub fn setresuid(real: Id, effective: Id, saved: Id) -> Result<()> {
    let (real, effective) = (numbers::user_or_keep(real)?, numbers::user_or_keep(effective)?);
    let saved = numbers::user_or_keep(saved)?;
    change(|new| {
        let old = new.clone();
        let known = [old.uid, old.euid, old.suid, KEEP];
        if !old.has_own(Capability::Setuid)
            && [real, effective, saved].iter().any(|id| !known.contains(id))
        {
            return Err(Errno::EPERM);
        }
        let pick = |id, kept| if id == KEEP { kept } else { id };
        new.uid = pick(real, old.uid);
        new.euid = pick(effective, old.euid);
        new.suid = pick(saved, old.suid);
        new.fsuid = new.euid;
        new.fix_capabilities_after_setuid(&old);
        Ok(())
    })
}

/// `setresgid(2)`
pub fn setresgid(real: Id, effective: Id, saved: Id) -> Result<()> {
    let (real, effective) = (numbers::group_or_keep(real)?, numbers::group_or_keep(effective)?);
    let saved = numbers::group_or_keep(saved)?;
    change(|new| {
        let old = new.clone();
        let known = [old.gid, old.egid, old.sgid, KEEP];
        if !old.has_own(Capability::Setgid)
            && [real, effective, saved].iter().any(|id| !known.contains(id))
        {
            return Err(Errno::EPERM);
        }
        let pick = |id, kept| if id == KEEP { kept } else { id };
        new.gid = pick(real, old.gid);
        new.egid = pick(effective, old.egid);
        new.sgid = pick(saved, old.sgid);
        new.fsgid = new.egid;
        Ok(())
    })
}

fn write_three(to: [usize; 3], ids: [Id; 3]) -> Result<()> {
    to.into_iter().zip(ids).try_for_each(|(to, id)| UserPtr::new(to).write(&id))
}

/// `getresuid(2)`
pub fn getresuid(real: usize, effective: usize, saved: usize) -> Result<()> {
    let own = own();
    write_three([real, effective, saved], [own.uid, own.euid, own.suid].map(numbers::shown_user))
}

/// `getresgid(2)`
pub fn getresgid(real: usize, effective: usize, saved: usize) -> Result<()> {
    let own = own();
    write_three([real, effective, saved], [own.gid, own.egid, own.sgid].map(numbers::shown_group))
}

/// `setfsuid(2)`: returns the old id, whether or not it changed.
pub fn setfsuid(user: Id) -> Id {
    let old = own();
    let user = numbers::user_or_keep(user).unwrap_or(KEEP);
    let known = [old.uid, old.euid, old.suid, old.fsuid].contains(&user);
    if user != KEEP && (known || old.has_own(Capability::Setuid)) {
        let _ = change(|new| {
            new.set_fsuid(user);
            Ok(())
        });
    }
    numbers::shown_user(old.fsuid)
}

/// `setfsgid(2)`
pub fn setfsgid(group: Id) -> Id {
    let old = own();
    let group = numbers::group_or_keep(group).unwrap_or(KEEP);
    let known = [old.gid, old.egid, old.sgid, old.fsgid].contains(&group);
    if group != KEEP && (known || old.has_own(Capability::Setgid)) {
        let _ = change(|new| {
            new.fsgid = group;
            Ok(())
        });
    }
    numbers::shown_group(old.fsgid)
}

/// `getgroups(2)`
pub fn getgroups(count: i32, groups: usize) -> Result<usize> {
    let count = usize::try_from(count).map_err(|_| Errno::EINVAL)?;
    let own = own();
    let found = own.groups.len();
    if count != 0 {
        if count < found {
            return Err(Errno::EINVAL);
        }
        if own.is_outermost() {
            UserPtr::new(groups).write_slice(&own.groups[..])?;
        } else {
            let at = |index: usize| groups.wrapping_add(index * size_of::<Id>());
            for (index, &group) in own.groups.iter().enumerate() {
                UserPtr::new(at(index)).write(&own.user.shown_group(group))?;
            }
        }
    }
    Ok(found)
}

/// `setgroups(2)`
pub fn setgroups(count: i32, groups: usize) -> Result<()> {
    let own = own();
    own.require_own(Capability::Setgid)?;
    if !own.user.may_set_groups() {
        return Err(Errno::EPERM);
    }
    let count = usize::try_from(count).map_err(|_| Errno::EINVAL)?;
    if count > GROUPS_MAX {
        return Err(Errno::EINVAL);
    }
    let mut list: Vec<Id> = Vec::new();
    growth::relieved(|| list.make_room_exact(count))?;
    list.resize(count, 0);
    UserPtr::new(groups).read_slice(&mut list)?;
    for group in &mut list {
        *group = numbers::group(*group)?;
    }
    list.sort_unstable();
    change(|new| {
        new.groups = Arc::new(list);
        Ok(())
    })
}

const VERSION_1: u32 = 0x1998_0330;
const VERSION_2: u32 = 0x2007_1026;
const VERSION_3: u32 = 0x2008_0522;

/// Reads the header; returns it and the number of 32-bit slices of its version. For an unknown
/// version it writes the known one and fails with `EINVAL`, by which programs find out.
fn slices(address: usize) -> Result<(CapabilityHeader, usize)> {
    let header: CapabilityHeader = UserPtr::new(address).read()?;
    match header.version {
        VERSION_1 => Ok((header, 1)),
        VERSION_2 | VERSION_3 => Ok((header, 2)),
        _ => {
            UserPtr::new(address).write(&CapabilityHeader { version: VERSION_3, ..header })?;
            Err(Errno::EINVAL)
        }
    }
}

/// `capget(2)`
pub fn capget(header: usize, data: usize) -> Result<()> {
    let (asked, count) = match slices(header) {
        // Asking for the version only is no error.
        Err(Errno::EINVAL) if data == 0 => return Ok(()),
        Ok(_) if data == 0 => return Ok(()),
        other => other?,
    };
    if asked.pid < 0 {
        return Err(Errno::EINVAL);
    }
    let found = match asked.pid {
        0 => own(),
        pid => visible::thread(pid.unsigned_abs()).ok_or(Errno::ESRCH)?.credentials(),
    };
    let slice = |shift: u32| CapabilityData {
        effective: (found.effective.0 >> shift) as u32,
        permitted: (found.permitted.0 >> shift) as u32,
        inheritable: (found.inheritable.0 >> shift) as u32,
    };
    let both = [slice(0), slice(32)];
    UserPtr::new(data).write_slice(both.get(..count).unwrap_or(&both))
}

/// `capset(2)`
pub fn capset(header: usize, data: usize) -> Result<()> {
    let (asked, count) = slices(header)?;
    if asked.pid != 0 && asked.pid as u32 != process::current().own_id() {
        return Err(Errno::EPERM);
    }
    let mut both = [CapabilityData::default(); 2];
    let given = both.get_mut(..count).ok_or(Errno::EINVAL)?;
    UserPtr::new(data).read_slice(given)?;
    let join = |low: u32, high: u32| {
        CapabilitySet((u64::from(low) | u64::from(high) << 32) & CapabilitySet::ALL.0)
    };
    let effective = join(both[0].effective, both[1].effective);
    let permitted = join(both[0].permitted, both[1].permitted);
    let inheritable = join(both[0].inheritable, both[1].inheritable);
    change(|new| {
        let raisable = CapabilitySet(new.inheritable.0 | new.permitted.0);
        let bounded = CapabilitySet(new.inheritable.0 | new.bounding.0);
        let free = new.has_own(Capability::Setpcap);
        if (!free && !raisable.contains(inheritable))
            || !bounded.contains(inheritable)
            || !new.permitted.contains(permitted)
            || !permitted.contains(effective)
        {
            return Err(Errno::EPERM);
        }
        new.effective = effective;
        new.permitted = permitted;
        new.inheritable = inheritable;
        new.ambient.0 &= permitted.0 & inheritable.0;
        Ok(())
    })
}
