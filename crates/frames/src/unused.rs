//! Unused memory, which the host can have back until it is needed (free page reporting).
//!
//! Free memory is looked at in *units* of 2 MiB ([`UNIT`]): a unit inside a free block of at least
//! that size has a mark in the link of its first frame. A unit is unmarked when its frames become
//! free; it is marked as waiting when it is looked at for the first time, and offered when it is
//! still waiting at the next look. So memory that comes and goes between two looks stays with the
//! machine. Runs of units that are offered ([`Buddy::offer`]) are out of the allocator until they
//! come back ([`Buddy::restore`]), then with the mark that says that the host knows. The mark goes
//! when any frame of the unit is taken, and never before: blocks that merge or split keep the marks
//! of their units, whose neighbours come and go.
//!
//! Nothing of this is on the way of blocks smaller than a unit.
//!
//! Road not taken: a mark for a whole free block, as Linux has (`PageReported`). When a free block
//! merges with the next one its mark is lost, and a machine that takes and gives back one unit all
//! the time reports the largest block around it each time.

use core::ops::Range;

use crate::{Buddy, Link, ORDERS, Table};

/// The order of a unit.
pub(crate) const UNIT_ORDER: usize = 9;
/// Frames in a unit: 2 MiB, what a processor's large page has and Linux' `pageblock_order` is.
pub const UNIT: u32 = 1 << UNIT_ORDER;

/// The unit was free when it was looked at.
const WAITING: u32 = 1 << 29;
/// The host was told that the unit is unused.
const TOLD: u32 = 1 << 30;
/// The bits of a unit's mark.
pub(crate) const MARKS: u32 = WAITING | TOLD;

/// The units of frames that begin and end with one.
fn units(frames: Range<u32>) -> impl Iterator<Item = u32> {
    frames.step_by(UNIT as usize)
}

impl<T: Table> Buddy<T> {
    /// Free frames in whole units that the host was not told of.
    pub fn untold_frames(&self) -> u32 {
        self.untold
    }

    /// Free frames that the host was told of.
    pub fn told_frames(&self) -> u32 {
        self.told
    }

    /// Takes a block of 2^`order` frames from one of the orders `fitting`, which are those of units
    /// or none.
    #[cold]
    pub(crate) fn allocate_unit(&mut self, fitting: u32, order: usize) -> Option<u32> {
        if fitting == 0 {
            return None;
        }
        let mut have = fitting.trailing_zeros() as usize;
        let frame = self.heads[have];
        self.unlink_units(frame, have);
        self.free -= 1 << order;
        self.forget(frame..frame + (1 << order.max(UNIT_ORDER)));
        while have > order {
            have -= 1;
            if have >= UNIT_ORDER {
                self.link_units(frame + (1 << have), have);
            } else {
                self.link(frame + (1 << have), have);
            }
        }
        Some(frame)
    }

    /// Adds a block of units that are free from now on.
    #[cold]
    pub(crate) fn free_units(&mut self, frame: u32, order: usize) {
        for unit in units(frame..frame + (1 << order)) {
            self.table.set_link(unit, Link::USED);
        }
        self.untold += 1 << order;
        self.table.note_units(self.untold, self.told);
        self.merge_units(frame, order);
    }

    /// Looks at the units from the frame `from` to before `end`, both at a unit, and takes the
    /// first run of units out that was unused at the last look, too: at most `most` frames. `from`
    /// is where to look next, which is `end` if there is no run.
    pub fn offer(&mut self, from: &mut u32, end: u32, most: u32) -> Option<Range<u32>> {
        while *from < end {
            let block = *from;
            let state = self.table.link(block).state & !MARKS;
            let order = (state & !Link::FREE) as usize;
            if state & Link::FREE == 0 || !(UNIT_ORDER..ORDERS).contains(&order) {
                *from = block.saturating_add(UNIT);
                continue;
            }
            let run = self.look(block..block + (1 << order), most);
            if run.is_empty() {
                *from = block + (1 << order);
                continue;
            }
            self.unlink_units(block, order);
            self.insert(block..run.start);
            self.insert(run.end..block + (1 << order));
            self.free -= run.len() as u32;
            self.untold -= run.len() as u32;
            self.table.note_units(self.untold, self.told);
            *from = run.end;
            return Some(run);
        }
        *from = end;
        None
    }

    /// Finds the first run of waiting units in a free block, and marks units that are looked at for
    /// the first time, up to the end of that run.
    fn look(&mut self, block: Range<u32>, most: u32) -> Range<u32> {
        let mut run = block.start..block.start;
        for unit in units(block) {
            let mark = self.table.link(unit).state & MARKS;
            if mark == WAITING {
                if run.is_empty() {
                    run = unit..unit;
                }
                if run.len() as u32 + UNIT > most {
                    break;
                }
                run.end += UNIT;
                continue;
            }
            if !run.is_empty() {
                break;
            }
            if mark == 0 {
                self.mark(unit, WAITING);
            }
        }
        run
    }

    /// Gives a run back that [`offer`](Self::offer) took out, of which the host was `told`.
    pub fn restore(&mut self, run: Range<u32>, told: bool) {
        for unit in units(run.clone()) {
            let state = if told { TOLD } else { 0 };
            self.table.set_link(unit, Link { state, ..Link::USED });
        }
        let count = run.len() as u32;
        self.free += count;
        if told {
            self.told += count;
        } else {
            self.untold += count;
        }
        self.table.note_units(self.untold, self.told);
        self.insert(run);
    }

    /// Adds units that have their marks, in as few blocks as alignment allows.
    fn insert(&mut self, run: Range<u32>) {
        let mut frame = run.start;
        while frame < run.end {
            let aligned = frame.trailing_zeros().min(ORDERS as u32 - 1);
            let order = aligned.min((run.end - frame).ilog2()) as usize;
            self.merge_units(frame, order);
            frame += 1 << order;
        }
    }

    /// Adds a block, merged with its free buddies.
    fn merge_units(&mut self, mut frame: u32, mut order: usize) {
        while order + 1 < ORDERS {
            let buddy = frame ^ (1 << order);
            if buddy >= self.end
                || self.table.link(buddy).state & !MARKS != Link::FREE | order as u32
            {
                break;
            }
            self.unlink_units(buddy, order);
            frame &= !(1 << order);
            order += 1;
        }
        self.link_units(frame, order);
    }

    /// Takes the marks of units that are in use from now on.
    fn forget(&mut self, frames: Range<u32>) {
        for unit in units(frames) {
            if self.table.link(unit).state & MARKS == TOLD {
                self.told -= UNIT;
            } else {
                self.untold -= UNIT;
            }
            self.table.set_link(unit, Link::USED);
        }
        self.table.note_units(self.untold, self.told);
    }

    /// Like `link`; the unit at `frame` keeps its mark.
    fn link_units(&mut self, frame: u32, order: usize) {
        let mark = self.table.link(frame).state & MARKS;
        self.link(frame, order);
        self.mark(frame, mark);
    }

    /// Like `unlink`; the unit at `frame` keeps its mark.
    fn unlink_units(&mut self, frame: u32, order: usize) {
        let mark = self.table.link(frame).state & MARKS;
        self.unlink(frame, order);
        self.mark(frame, mark);
    }

    /// Adds to a unit's mark.
    fn mark(&mut self, unit: u32, mark: u32) {
        let mut link = self.table.link(unit);
        link.state |= mark;
        self.table.set_link(unit, link);
    }
}
