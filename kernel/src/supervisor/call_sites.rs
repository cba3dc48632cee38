//! Patched call sites: `syscall` instructions of programs in supervisor mode, replaced by jumps to
//! the gate.
//!
//! The first time a `syscall` is executed in ring 0, its site is examined ([`hayate_call_sites`])
//! and patched if that is correct. If not, the site is remembered, and its calls
//! continue by trap. Only this space sees the change: a page of text is copied first, as for a
//! write by a debugger. Trampolines lie in areas of this space, within reach of the sites they
//! serve. A fork inherits the areas and patched sites with the pages.
//!
//! **Two threads at one site.** The space's lock decides which thread patches it. In a space in
//! which another thread may execute, a page that is executed is never written. The change is made
//! in a copy, which replaces the page, and the TLB flush that follows is complete before the lock
//! is released. Checking whether another processor has the space loaded at the moment is not
//! enough: it may load the space while the five bytes are written, and execute two of the new bytes
//! with three of the old (Intel SDM vol. 3, 9.1.3: cross-modifying code). So the caller says
//! whether its thread is the only one in the space.
//!
//! **Back in user mode.** Nothing is undone at once, so the switch costs the same however many
//! sites there are. A trampoline entered in user mode faults at its `cli`. Then its site gets its
//! original bytes back ([`Space::leave_trampoline`]), and the trampoline's own `syscall` makes the
//! call. A site patched again uses the same trampoline. Areas stay as long as the space, because a
//! signal handler's frame may lead into one at any time.
//!
//! Records can be stale: a library may be unmapped and another mapped in its place. So before a
//! site is written, its present bytes are compared with the expected ones.

use hayate_call_sites::{self as call_sites, Form, Left};
use machine::paging::{Access, Edit, PageKind};
use machine::trap;

use super::sites::{AREA, Area, MOST, STEP, Site, SiteCounts};
use crate::memory::fault;
use crate::memory::map::touch_for;
use crate::memory::page::{LOWEST, PAGE, USER_END, page_down};
use crate::memory::region::{Mapping, Protection, RegionFlags};
use crate::memory::space::{Inner, Space};
use crate::reclaim::growth::Grow;

const _: () = assert!(trap::BEHIND as usize == call_sites::AGAIN + call_sites::SYSCALL);
/// How far from a site its area may begin, in bytes: well within a jump's reach.
const REACH: usize = 0x6000_0000;

/// The instructions by which a trampoline turns interrupts off and on.
const CLI: u8 = 0xfa;
const STI: u8 = 0xfb;

/// Reads up to `to.len()` bytes of mapped pages; returns how many were read.
fn read(edit: &Edit<'_>, address: usize, to: &mut [u8]) -> usize {
    let mut done = 0;
    while done < to.len() {
        let Some(at) = address.checked_add(done).filter(|&at| at < USER_END) else { break };
        let Some((frame, page)) = edit.frame(at) else { break };
        if !page.access.read {
            break;
        }
        let part = (PAGE - at % PAGE).min(to.len() - done);
        done += frame.read(at % PAGE, &mut to[done..done + part]);
    }
    done
}

fn holds(edit: &Edit<'_>, address: usize, bytes: &[u8]) -> bool {
    let mut there = [0; call_sites::JUMP];
    let length = bytes.len().min(there.len());
    read(edit, address, &mut there[..length]) == length && there[..length] == bytes[..length]
}

/// Writes code into one page of the space. Writes in place only if `alone`: no other thread
/// executes what is overwritten.
fn write(edit: &mut Edit<'_>, address: usize, bytes: &[u8], alone: bool) -> Option<()> {
    let access = Access { read: true, write: false, execute: true };
    let mut slot = edit.slot(address)?.split().ok()?;
    let Some(page) = slot.page() else {
        let frame = fault::zeroed(slot.owner())?;
        frame.write(address % PAGE, bytes);
        return slot.fill(frame, PageKind::Private, access).ok();
    };
    if alone && page.kind == PageKind::Private && slot.is_sole_owner() {
        slot.frame()?.write(address % PAGE, bytes);
        return Some(());
    }
    let frame = fault::zeroed(slot.owner())?;
    slot.copy_to(&frame);
    frame.write(address % PAGE, bytes);
    slot.replace(frame, PageKind::Private, page.access).ok()
}

impl Inner {
    /// Maps an area for trampolines near a site.
    fn make_area(&mut self, site: usize) -> Option<()> {
        self.sites.areas.make_room(1).ok()?;
        if self.too_many(1) || self.map.reserve(1).is_err() {
            return None;
        }
        let gap = |_: &Mapping| 0;
        let low = site.saturating_sub(REACH).max(LOWEST)..page_down(site);
        let high = page_down(site)..site.saturating_add(REACH).min(USER_END);
        let start = self
            .map
            .room_from_top(AREA, PAGE, low, gap)
            .or_else(|| self.map.room_from_bottom(AREA, PAGE, high, gap))?;
        let mapping = Mapping {
            protection: Protection::READ | Protection::EXECUTE,
            flags: RegionFlags::MAY_EXECUTE | RegionFlags::NO_LARGE,
            backing: None,
            offset: 0,
        };
        self.put(start..start + AREA, mapping).ok()?;
        self.sites.areas.push(Area { start, used: [0; AREA / STEP / 64] });
        Some(())
    }

    fn examine(&self, edit: &Edit<'_>, site: usize, number: u64) -> Result<Form, Left> {
        let region = self.map.find(site).ok_or(Left::Edge)?;
        if region.value.is_shared() || touch_for(&region.value).is_none() {
            return Err(Left::Shared);
        }
        let page = page_down(site);
        let mut before = [0; call_sites::BEFORE];
        let count = before.len().min(site - page);
        let before = &mut before[..count];
        let behind_at = site + call_sites::SYSCALL;
        if read(edit, site - count, before) != count || page_down(behind_at) != page {
            return Err(Left::Edge);
        }
        let mut behind = [0; call_sites::BEHIND];
        let count = read(edit, behind_at, &mut behind);
        let site = call_sites::Site {
            address: site as u64,
            before,
            behind: &behind[..count],
            same_page: page + PAGE - behind_at,
            number,
        };
        call_sites::examine(&site, &|address, to| read(edit, address as usize, to))
    }

    fn patch(
        &mut self,
        edit: &mut Edit<'_>,
        (site, number): (usize, u64),
        alone: bool,
    ) -> Result<(), Left> {
        let form = self.examine(edit, site, number)?;
        if self.sites.patched.len() >= MOST || self.sites.patched.make_room(1).is_err() {
            return Err(Left::TooMany);
        }
        let place = match self.sites.take_place(&form, site) {
            Some(place) => place,
            None => {
                self.make_area(site).ok_or(Left::NoRoom)?;
                self.sites.take_place(&form, site).ok_or(Left::NoRoom)?
            }
        };
        let placed = self.place(edit, (site, form, place), alone);
        if placed.is_none() {
            self.sites.free_place(place);
        }
        placed.ok_or(Left::NoRoom)
    }

    fn place(
        &mut self,
        edit: &mut Edit<'_>,
        (site, form, place): (usize, Form, usize),
        alone: bool,
    ) -> Option<()> {
        let patched = call_sites::patch(&form, site as u64, place as u64, |number| {
            trap::gate_address(number.map(|number| number as usize))
        })?;
        let jump_at = patched.jump_at as usize;
        let mut original = [0; call_sites::JUMP];
        if read(edit, jump_at, &mut original) != original.len() {
            return None;
        }
        let trampoline = patched.trampoline.get(..patched.length)?;
        // No thread executes at a free place, but another space may share its page.
        write(edit, place, trampoline, true)?;
        write(edit, jump_at, &patched.jump, alone)?;
        self.sites.patched.push(Site {
            at: site,
            form,
            jump_at,
            jump: patched.jump,
            original,
            trampoline: place,
            breakpoint: patched.breakpoint.map(|(at, to)| (at as usize, to as usize)),
            active: true,
        });
        Some(())
    }
}

impl Space {
    /// Patches the `syscall` at `site`, which was executed in ring 0 with this `number`, if that is
    /// correct. `alone`: the caller's thread is the only one in this space. Returns whether to call
    /// this again the next time.
    // Not part of its caller: below that are the system calls, whose stack it would narrow.
    #[inline(never)]
    pub fn reached(&self, site: usize, number: u64, alone: bool) -> bool {
        let mut guard = self.table.lock();
        let (inner, mut edit) = guard.parts();
        if !edit.is_supervisor() {
            return true;
        }
        if inner.sites.is_left(site) || inner.sites.area_around(site).is_some() {
            return false;
        }
        if let Some(index) = inner.sites.patched.iter().position(|known| known.at == site) {
            let known = inner.sites.patched[index];
            if known.active && holds(&edit, known.jump_at, &known.jump) {
                // A program jumped between the `mov` and the `syscall`.
                return matches!(known.form, Form::After { .. });
            }
            if holds(&edit, known.jump_at, &known.original) {
                let done = write(&mut edit, known.jump_at, &known.jump, alone);
                if done.is_some() {
                    inner.sites.patched[index].active = true;
                }
                return true;
            }
            // Another mapping is there now.
            inner.sites.patched.swap_remove(index);
            inner.sites.free_place(known.trampoline);
        }
        match inner.patch(&mut edit, (site, number), alone) {
            Ok(()) => true,
            Err(why) => {
                inner.sites.leave(site, why);
                false
            }
        }
    }

    /// Returns where a program interrupted at `rip` with interrupts off must continue, since it
    /// continues with interrupts on, perhaps in the other mode. If it has just executed a
    /// trampoline's `cli`, it executes that again; if `sti` is its next instruction, it continues
    /// after that.
    pub fn around_gate(&self, rip: usize) -> usize {
        let mut guard = self.table.lock();
        let (inner, edit) = guard.parts();
        if inner.sites.area_around(rip).is_none() {
            return rip;
        }
        let before = rip.wrapping_sub(1);
        if holds(&edit, rip, &[STI]) {
            rip + 1
        } else if holds(&edit, before, &[CLI]) {
            before
        } else {
            rip
        }
    }

    /// Handles a fault at `rip`. If that is where a trampoline turns interrupts off, in user mode,
    /// its site gets its original bytes back, and the result is true: the program continues with
    /// the trampoline's own `syscall`. `alone`: the faulting thread is the only one in this space.
    pub fn leave_trampoline(&self, rip: usize, alone: bool) -> bool {
        let mut guard = self.table.lock();
        let (inner, mut edit) = guard.parts();
        if inner.sites.area_around(rip).is_none() || !holds(&edit, rip, &[CLI]) {
            return false;
        }
        let place = rip - rip % STEP;
        if !edit.is_supervisor()
            && let Some(index) = inner.sites.patched.iter().position(|s| s.trampoline == place)
        {
            let known = inner.sites.patched[index];
            if known.active && holds(&edit, known.jump_at, &known.jump) {
                let done = write(&mut edit, known.jump_at, &known.original, alone);
                inner.sites.patched[index].active = done.is_none();
            }
        }
        true
    }

    /// Where a program continues in *another* space if it makes a call from a trampoline of this
    /// one: after the site's `syscall`. In this space a moved copy stands for the instruction after
    /// the `syscall`.
    pub fn outside_of_trampoline(&self, rip: usize) -> usize {
        let mut guard = self.table.lock();
        let (inner, ..) = guard.parts();
        if inner.sites.area_around(rip).is_none() {
            return rip;
        }
        let place = rip - rip % STEP;
        let known = inner.sites.patched.iter().find(|site| site.trampoline == place);
        known.map_or(rip, |site| site.at + call_sites::SYSCALL)
    }

    /// Where a program continues after a breakpoint at `address`, if that is the third byte of a
    /// patched site's jump.
    pub fn pass_breakpoint(&self, address: usize) -> Option<usize> {
        let mut guard = self.table.lock();
        let (inner, edit) = guard.parts();
        let found = |site: &&Site| site.breakpoint.is_some_and(|(at, _)| at == address);
        let known = inner.sites.patched.iter().find(found)?;
        if holds(&edit, known.jump_at, &known.jump) {
            known.breakpoint.map(|(_, to)| to)
        } else {
            // The site got its original bytes back meanwhile.
            holds(&edit, known.jump_at, &known.original).then_some(address)
        }
    }

    /// The numbers of sites that were patched and that were left.
    pub fn site_counts(&self) -> SiteCounts {
        let mut counts = SiteCounts::default();
        let guard = self.table.lock();
        counts.patched = guard.sites.patched.iter().filter(|site| site.active).count();
        counts.restored = guard.sites.patched.len() - counts.patched;
        for (_, why) in &guard.sites.left {
            for (count, reason) in counts.left.iter_mut().zip(Left::ALL) {
                *count += usize::from(reason == *why);
            }
        }
        counts
    }
}
