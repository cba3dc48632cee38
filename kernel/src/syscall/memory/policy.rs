//! Memory policies: `set_mempolicy(2)`, `get_mempolicy(2)`, `mbind(2)`,
//! `set_mempolicy_home_node(2)`, `migrate_pages(2)`, `move_pages(2)` on the machine's one node
//! (mm/mempolicy.c and mm/migrate.c of Linux 6.1).

use alloc::sync::Arc;

use hayate_abi::{Errno, Result};
use hayate_memory_policy::{Invalid, MaskError, Mode, NODES, Nodes, PRESENT, Policy, Request};
use machine::user::{self, UserPtr};

use crate::credentials::Capability;
use crate::memory;
use crate::memory::policy::NODE;
use crate::memory::{PAGE, Space};
use crate::process;
use crate::process::access::{self, Ids};
use crate::process::visible;
use crate::schedule;

/// The flags of `get_mempolicy(2)`.
mod get {
    pub const NODE: u32 = 1;
    pub const ADDRESS: u32 = 2;
    pub const ALLOWED: u32 = 4;
}
/// The flags of `mbind(2)` and `move_pages(2)`.
mod moves {
    pub const STRICT: u32 = 1;
    pub const MOVE: u32 = 2;
    pub const MOVE_ALL: u32 = 4;
}

fn invalid(_: Invalid) -> Errno {
    Errno::EINVAL
}

/// Reads a mask of nodes, if there is one.
fn nodes(mask: usize, count: usize) -> Result<Nodes> {
    let word = |index| UserPtr::<u64>::new(mask).at(index).read();
    let read = hayate_memory_policy::read_nodes(count, (mask != 0).then_some(word));
    read.map_err(|error| match error {
        MaskError::Invalid => Errno::EINVAL,
        MaskError::Unreadable(error) => error,
    })
}

/// Writes a mask of nodes of so many bits, less one, and zeroes behind it (`copy_nodes_to_user`).
/// For a number that has no multiple of 64 above it, that writes nothing.
fn write_nodes(mask: usize, count: usize, nodes: Nodes) -> Result<()> {
    const WORD: usize = size_of::<u64>();
    let bytes = count.wrapping_sub(1).checked_next_multiple_of(64).unwrap_or(0) / 8;
    if bytes > PAGE {
        return Err(Errno::EINVAL);
    }
    if bytes == 0 {
        return Ok(());
    }
    let rest = [0u8; 64];
    let mut done = WORD;
    while done < bytes {
        let part = (bytes - done).min(rest.len());
        user::copy_out(mask.wrapping_add(done), &rest[..part])?;
        done += part;
    }
    UserPtr::new(mask).write(&u64::from(nodes))
}

/// `set_mempolicy(2)`
pub fn set_mempolicy(mode: i32, mask: usize, count: usize) -> Result<()> {
    let request = Request::read(mode).map_err(invalid)?;
    let policy = request.policy(nodes(mask, count)?).map_err(invalid)?;
    schedule::current().set_memory_policy(Policy::pack(policy));
    Ok(())
}

/// `get_mempolicy(2)`
pub fn get_mempolicy(
    mode: usize,
    mask: usize,
    count: usize,
    address: usize,
    flags: u32,
) -> Result<()> {
    if mask != 0 && count == 0 {
        return Err(Errno::EINVAL);
    }
    let (told, nodes) = find_policy(address, flags)?;
    if mode != 0 {
        UserPtr::new(mode).write(&told)?;
    }
    if mask != 0 { write_nodes(mask, count, nodes) } else { Ok(()) }
}

/// What `get_mempolicy(2)` tells (`do_get_mempolicy`).
fn find_policy(address: usize, flags: u32) -> Result<(i32, Nodes)> {
    let has = |flag| flags & flag != 0;
    if flags & !(get::NODE | get::ADDRESS | get::ALLOWED) != 0 {
        return Err(Errno::EINVAL);
    }
    if has(get::ALLOWED) {
        let alone = !has(get::NODE | get::ADDRESS);
        return if alone { Ok((0, PRESENT)) } else { Err(Errno::EINVAL) };
    }
    let policy = if has(get::ADDRESS) {
        // That of the thread does not count: the answer is the default where there is none.
        memory::current().policy_at(address).ok_or(Errno::EFAULT)?
    } else if address != 0 {
        return Err(Errno::EINVAL);
    } else {
        Policy::unpack(schedule::current().memory_policy())
    };
    let (told, nodes) = policy.map_or((0, 0), Policy::told);
    match (has(get::NODE), has(get::ADDRESS)) {
        (false, _) => Ok((told, nodes)),
        (true, true) => {
            // The node of the page, which is brought in.
            user::load_u32(address & !(PAGE - 1))?;
            Ok((NODE, nodes))
        }
        // The next node in turn.
        (true, false) if policy.is_some_and(|policy| policy.mode == Mode::Interleave) => {
            Ok((NODE, nodes))
        }
        (true, false) => Err(Errno::EINVAL),
    }
}

/// `mbind(2)`
pub fn mbind(
    address: usize,
    length: usize,
    mode: i32,
    mask: usize,
    count: usize,
    flags: u32,
) -> Result<()> {
    let request = Request::read(mode).map_err(invalid)?;
    let nodes = nodes(mask, count)?;
    if flags & !(moves::STRICT | moves::MOVE | moves::MOVE_ALL) != 0 {
        return Err(Errno::EINVAL);
    }
    if flags & moves::MOVE_ALL != 0 {
        process::current().credentials().require(Capability::SysNice)?;
    }
    let range = memory::policy::range(address, length)?;
    if range.is_empty() {
        return Ok(());
    }
    let policy = request.policy(nodes).map_err(invalid)?;
    let space = memory::current();
    if space.policy_at(range.start).is_none() {
        return Err(Errno::EFAULT);
    }
    // A page on a node that is not in the mask. It would be moved to where it is.
    let strict = flags == moves::STRICT && request.mode != Mode::Default;
    if strict && nodes & PRESENT == 0 && space.holds_any(range.clone()) {
        return Err(Errno::EIO);
    }
    space.set_policy(range, policy)
}

/// `set_mempolicy_home_node(2)`
pub fn set_mempolicy_home_node(
    address: usize,
    length: usize,
    node: usize,
    flags: usize,
) -> Result<()> {
    if !address.is_multiple_of(PAGE) || flags != 0 || node != NODE as usize {
        return Err(Errno::EINVAL);
    }
    let range = memory::policy::range(address, length)?;
    if range.is_empty() { Ok(()) } else { memory::current().set_home(range) }
}

/// The space of a thread that the caller may look into, 0 for its own. Fails with `ESRCH`, `EPERM`,
/// `EINVAL` for a thread that has ended.
fn space_of(pid: i32) -> Result<Arc<Space>> {
    let own = process::current();
    let target = match u32::try_from(pid) {
        Ok(0) => own.arc(),
        Ok(number) => visible::thread(number),
        Err(_) => None,
    };
    let target = target.ok_or(Errno::ESRCH)?;
    let (space, allowed) =
        target.process.steady(|| (target.space(), access::check(&target, Ids::Real)));
    allowed?;
    space.ok_or(Errno::EINVAL)
}

/// `migrate_pages(2)`: every page is where it may be.
pub fn migrate_pages(pid: i32, count: usize, from: usize, to: usize) -> Result<usize> {
    nodes(from, count)?;
    let to = nodes(to, count)?;
    let space = space_of(pid);
    if let Err(error @ (Errno::ESRCH | Errno::EPERM)) = space {
        return Err(error);
    }
    if to & !PRESENT != 0 {
        process::current().credentials().require(Capability::SysNice)?;
    }
    if to & PRESENT == 0 {
        return Err(Errno::EINVAL);
    }
    space.map(|_| 0)
}

/// `move_pages(2)`: tells the node of each page, or why it has none.
pub fn move_pages(
    pid: i32,
    count: usize,
    pages: usize,
    nodes: usize,
    status: usize,
    flags: u32,
) -> Result<()> {
    if flags & !(moves::MOVE | moves::MOVE_ALL) != 0 {
        return Err(Errno::EINVAL);
    }
    if flags & moves::MOVE_ALL != 0 {
        process::current().credentials().require(Capability::SysNice)?;
    }
    let space = space_of(pid)?;
    for index in 0..count {
        let page: u64 = UserPtr::<u64>::new(pages).at(index).read()?;
        if nodes != 0 {
            match UserPtr::<i32>::new(nodes).at(index).read()? {
                NODE => {}
                _ => return Err(Errno::ENODEV),
            }
        }
        let found = space.node_at(page as usize).unwrap_or_else(|error| error.to_return() as i32);
        UserPtr::<i32>::new(status).at(index).write(&found)?;
        if schedule::breathe() && process::current().process().is_exiting() {
            return Err(Errno::EINTR);
        }
    }
    Ok(())
}

// A mask is written and told as one word.
const _: () = assert!(NODES <= 64);
