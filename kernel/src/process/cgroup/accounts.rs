//! What controllers keep of a group that has them, and its members' part in it: it begins and ends
//! with the controller in the group.

use alloc::sync::Arc;
use alloc::vec::Vec;

use hayate_abi::{Errno, Result};
use hayate_cgroup_rules::controllers::Controllers;

use super::group::{Group, Lock};
use super::list::each_member;
use super::{cpu, io, memory};
use crate::drivers::io as disks;
use crate::process::record::Process;
use crate::reclaim::growth;

/// The controllers that keep something of groups.
const KEEPING: Controllers = Controllers::MEMORY.with(Controllers::CPU).with(Controllers::IO);

/// Begins what `controllers` keep of a group.
///
/// # Errors
/// `ENOMEM`; then they keep nothing.
pub fn begin(group: &Group, controllers: Controllers, lock: &Lock) -> Result<()> {
    type Begin = fn(&Group, &Lock) -> Result<()>;
    let all: [(Controllers, Begin); 3] = [
        (Controllers::MEMORY, memory::begin),
        (Controllers::CPU, cpu::begin),
        (Controllers::IO, io::begin),
    ];
    let mut begun = Controllers::NONE;
    for (one, begin) in all.into_iter().filter(|(one, _)| controllers.has(*one)) {
        begin(group, lock).inspect_err(|_| cpu::close(end_some(group, begun, lock)))?;
        begun = begun.with(one);
    }
    io::settle(group);
    Ok(())
}

/// Ends what `controllers` keep of a group. Returns the number that is to be given to
/// [`cpu::close`] when its members have settled.
fn end_some(group: &Group, controllers: Controllers, lock: &Lock) -> u32 {
    if controllers.has(Controllers::MEMORY) {
        memory::end(group, lock);
    }
    if controllers.has(Controllers::IO) {
        io::end(group, lock);
    }
    if controllers.has(Controllers::CPU) { cpu::end(group, lock) } else { 0 }
}

/// Ends that in a group that has no members.
pub fn end(group: &Group, lock: &Lock) {
    cpu::close(end_some(group, KEEPING, lock));
}

/// Lets a process take part in what its group has. Call it without spin locks.
#[cold]
pub fn settle(process: &Process) {
    memory::settle(process);
    cpu::settle(process);
}

/// The children of a group, each with all that is below it: the child itself is the first.
pub struct Children(Vec<Vec<Arc<Group>>>);

/// The children of a group, found before `controllers` are given to them or taken from them, so
/// that the latter cannot fail.
///
/// # Errors
/// `ENOMEM`.
pub fn children(own: &Group, controllers: Controllers, lock: &Lock) -> Result<Children> {
    let mut direct = Vec::new();
    if !controllers.both(KEEPING).is_none() {
        own.try_each_child(lock, |child| {
            growth::push(&mut direct, child.arc().ok_or(Errno::ENOENT)?)
        })?;
    }
    let mut all = Vec::new();
    for child in direct {
        growth::push(&mut all, child.subtree(lock)?)?;
    }
    Ok(Children(all))
}

impl Children {
    /// Those to which `controllers` are given have what these keep, and what lives there takes part
    /// in it from now on.
    ///
    /// # Errors
    /// `ENOMEM`; then none has.
    pub fn give(&self, controllers: Controllers, lock: &Lock) -> Result<()> {
        let given = self.0.iter().try_for_each(|below| {
            below.first().map_or(Ok(()), |child| begin(child, controllers, lock))?;
            settle_all(below);
            Ok(())
        });
        given.inspect_err(|_| self.take(controllers, lock))
    }

    /// They have nothing of it any more, and what lives there takes part in that of the group
    /// around them.
    pub fn take(&self, controllers: Controllers, lock: &Lock) {
        for below in &self.0 {
            let Some(child) = below.first() else { continue };
            let number = end_some(child, controllers, lock);
            settle_all(below);
            cpu::close(number);
        }
    }
}

/// Lets all that live in groups take part in what these have.
fn settle_all(groups: &[Arc<Group>]) {
    for group in groups {
        io::settle(group);
        each_member(group, |process| settle(process));
    }
    // Their threads may rest for a group that does not count them any more.
    disks::wake();
}
