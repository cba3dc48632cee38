//! What controllers keep of a group that has them, and its members' part in it: it begins and ends
//! with the controller in the group.

use alloc::sync::Arc;
use alloc::vec::Vec;

use hayate_abi::{Errno, Result};
use hayate_cgroup_rules::controllers::Controllers;

use super::group::{Group, Lock};
use super::list::each_member;
use super::{cpu, memory};
use crate::process::record::Process;
use crate::reclaim::growth;

/// The controllers that keep something of groups.
const KEEPING: Controllers = Controllers::MEMORY.with(Controllers::CPU);

/// Begins what `controllers` keep of a group.
///
/// # Errors
/// `ENOMEM`; then they keep nothing.
pub fn begin(group: &Group, controllers: Controllers, lock: &Lock) -> Result<()> {
    if controllers.has(Controllers::MEMORY) {
        memory::begin(group, lock)?;
    }
    if controllers.has(Controllers::CPU) {
        cpu::begin(group, lock).inspect_err(|_| {
            if controllers.has(Controllers::MEMORY) {
                memory::end(group, lock);
            }
        })?;
    }
    Ok(())
}

/// Ends that in a group that has no members.
pub fn end(group: &Group, lock: &Lock) {
    memory::end(group, lock);
    cpu::close(cpu::end(group, lock));
}

/// Lets a process take part in what its group has. Call it without spin locks.
#[cold]
pub fn settle(process: &Process) {
    memory::settle(process);
    cpu::settle(process);
}

/// Lets all that live in a group and below it do so. `ENOMEM`.
fn settle_all(group: &Group, lock: &Lock) -> Result<()> {
    for below in group.subtree(lock)? {
        each_member(&below, |process| settle(process));
    }
    Ok(())
}

/// The children of a group that has begun to give `controllers` have what these keep, and what
/// lives there takes part in it from now on.
///
/// # Errors
/// `ENOMEM`; then none has.
pub fn give(own: &Group, controllers: Controllers, lock: &Lock) -> Result<()> {
    if controllers.both(KEEPING).is_none() {
        return Ok(());
    }
    let given = children(own, lock)?.iter().try_for_each(|child| {
        begin(child, controllers, lock)?;
        settle_all(child, lock)
    });
    given.inspect_err(|_| {
        // What settled here settles again without memory: it is in the lists of these groups.
        let _ = take(own, controllers, lock);
    })
}

/// They have nothing of it any more, and what lives there takes part in that of the group around
/// them. `ENOMEM`: some may charge the old ones for a while.
pub fn take(own: &Group, controllers: Controllers, lock: &Lock) -> Result<()> {
    if controllers.both(KEEPING).is_none() {
        return Ok(());
    }
    for child in children(own, lock)? {
        if controllers.has(Controllers::MEMORY) {
            memory::end(&child, lock);
        }
        let number = if controllers.has(Controllers::CPU) { cpu::end(&child, lock) } else { 0 };
        settle_all(&child, lock)?;
        cpu::close(number);
    }
    Ok(())
}

fn children(own: &Group, lock: &Lock) -> Result<Vec<Arc<Group>>> {
    let mut children = Vec::new();
    own.try_each_child(lock, |child| {
        growth::push(&mut children, child.arc().ok_or(Errno::ENOENT)?)
    })?;
    Ok(children)
}
