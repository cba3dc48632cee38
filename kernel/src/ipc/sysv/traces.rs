//! What a thread has done that its end has to know: with System V objects, whether it shares its
//! context of input and output, and whether it is in other namespaces than the first.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use hayate_abi::Result;
use hayate_machine::sync::SpinLock;

use super::sem::UndoList;
use super::shm::Segments;
use crate::namespace::{Handle, Home};
use crate::reclaim::growth;
use crate::schedule;

/// What a thread has done that its end has to know. A thread that did nothing pays one look at
/// [`marks`](Self::marks).
#[derive(Default)]
pub struct Traces {
    /// [`MAKER`], [`UNDO`], [`SHARES_IO`] and [`NAMESPACES`].
    marks: AtomicU32,
    /// A number that no other thread has; 0: none yet.
    serial: AtomicU64,
    /// The adjustments of semaphores that its end may have to make.
    undo: SpinLock<Option<Arc<UndoList>>>,
    /// Namespaces that it has left, with segments that it made there.
    left: SpinLock<Vec<Home<Segments>>>,
}

/// The thread made a segment.
const MAKER: u32 = 1;
/// The thread has a list of adjustments.
const UNDO: u32 = 1 << 1;
/// The thread shares its context of input and output with others.
const SHARES_IO: u32 = 1 << 2;
/// The thread is, or was, in other namespaces than the first.
const NAMESPACES: u32 = 1 << 3;

impl Traces {
    /// The thread's number here, since it makes a segment. For the thread itself.
    pub fn maker(&self) -> u64 {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        self.marks.fetch_or(MAKER, Ordering::Relaxed);
        match self.serial.load(Ordering::Relaxed) {
            0 => {
                let serial = NEXT.fetch_add(1, Ordering::Relaxed);
                self.serial.store(serial, Ordering::Relaxed);
                serial
            }
            serial => serial,
        }
    }

    /// Its list of adjustments. For the thread itself.
    pub fn undo_list(&self) -> Arc<UndoList> {
        self.marks.fetch_or(UNDO, Ordering::Relaxed);
        self.undo.lock().get_or_insert_with(UndoList::new).clone()
    }

    /// A new thread shares the list of its maker (`CLONE_SYSVSEM`).
    #[cold]
    pub fn share_undo(&self, maker: &Traces) {
        let list = maker.undo_list();
        self.marks.fetch_or(UNDO, Ordering::Relaxed);
        *self.undo.lock() = Some(list);
    }

    /// Its list of adjustments, if it has one.
    pub fn known_undo_list(&self) -> Option<Arc<UndoList>> {
        self.undo.lock().clone()
    }

    /// It shares its context of input and output ([`schedule::Execution::inherit_io`]).
    #[cold]
    pub fn note_shared_io(&self) {
        self.marks.fetch_or(SHARES_IO, Ordering::Relaxed);
    }

    /// Notes that the thread is in other namespaces than the first.
    #[cold]
    pub fn note_namespaces(&self) {
        self.marks.fetch_or(NAMESPACES, Ordering::Relaxed);
    }

    /// Whether the thread may be in other namespaces than the first.
    #[inline]
    pub fn has_namespaces(&self) -> bool {
        self.marks.load(Ordering::Relaxed) & NAMESPACES != 0
    }

    /// The thread ends: it leaves its objects. `place` tells its process and the segments of its
    /// namespace. For the current thread.
    #[inline]
    pub fn end(&self, place: impl FnOnce() -> (u32, Handle<Segments>)) {
        if self.marks.load(Ordering::Relaxed) != 0 {
            self.clear(place());
        }
    }

    #[cold]
    fn clear(&self, (process, segments): (u32, Handle<Segments>)) {
        self.leave_undo(process);
        self.leave_segments(&segments);
        if self.marks.load(Ordering::Relaxed) & SHARES_IO != 0 {
            schedule::current().leave_io();
        }
    }

    /// The thread is the maker of no segment any more: neither of those of the namespace that it is
    /// in nor of those that it has left (`exit_shm`).
    pub fn leave_segments(&self, segments: &Segments) {
        if self.marks.fetch_and(!MAKER, Ordering::Relaxed) & MAKER == 0 {
            return;
        }
        // It gets another number if it makes another one.
        let serial = self.serial.swap(0, Ordering::Relaxed);
        segments.maker_ends(serial);
        let left = core::mem::take(&mut *self.left.lock());
        for segments in left.iter().filter_map(Home::get) {
            segments.maker_ends(serial);
        }
    }

    /// The thread goes to another namespace, and stays the maker of its segments in this one.
    /// `ENOMEM`.
    pub fn remember_segments(&self, segments: &Handle<Segments>) -> Result<()> {
        if self.marks.load(Ordering::Relaxed) & MAKER == 0 {
            return Ok(());
        }
        let mut left = self.left.lock();
        left.retain(|home| !home.is_gone());
        let home = segments.home();
        if left.iter().any(|other| other.is(&home)) {
            Ok(())
        } else {
            growth::push(&mut left, home)
        }
    }

    /// Leaves the list of adjustments (`unshare(2)` with `CLONE_SYSVSEM`, and the end).
    pub fn leave_undo(&self, process: u32) {
        let list = self.undo.lock().take();
        if let Some(list) = list {
            list.leave(process);
        }
    }
}
