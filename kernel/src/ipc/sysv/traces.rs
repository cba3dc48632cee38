//! What a thread has done that its end has to know: with System V objects, and whether it shares
//! its context of input and output.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use hayate_machine::sync::SpinLock;

use super::sem::UndoList;
use super::shm;
use crate::schedule;

/// What a thread has done that its end has to know. A thread that did nothing pays one look at
/// [`marks`](Self::marks).
#[derive(Default)]
pub struct Traces {
    /// [`MAKER`], [`UNDO`] and [`SHARES_IO`].
    marks: AtomicU32,
    /// A number that no other thread has; 0: none yet.
    serial: AtomicU64,
    /// The adjustments of semaphores that its end may have to make.
    undo: SpinLock<Option<Arc<UndoList>>>,
}

/// The thread made a segment.
const MAKER: u32 = 1;
/// The thread has a list of adjustments.
const UNDO: u32 = 1 << 1;
/// The thread shares its context of input and output with others.
const SHARES_IO: u32 = 1 << 2;

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

    /// The thread ends: it leaves its objects. For the current thread.
    #[inline]
    pub fn end(&self, process: impl FnOnce() -> u32) {
        if self.marks.load(Ordering::Relaxed) != 0 {
            self.clear(process());
        }
    }

    #[cold]
    fn clear(&self, process: u32) {
        self.leave_undo(process);
        if self.marks.load(Ordering::Relaxed) & MAKER != 0 {
            shm::maker_ends(self.serial.load(Ordering::Relaxed));
        }
        if self.marks.load(Ordering::Relaxed) & SHARES_IO != 0 {
            schedule::current().leave_io();
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
