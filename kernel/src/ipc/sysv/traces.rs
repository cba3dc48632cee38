//! What a thread has done with System V objects, which its end has to know.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use hayate_machine::sync::SpinLock;

use super::sem::UndoList;
use super::shm;

/// What a thread has done with System V objects that its end has to know. A thread that did nothing
/// pays one look at [`marks`](Self::marks).
#[derive(Default)]
pub struct Traces {
    /// [`MAKER`] and [`UNDO`].
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

    /// The thread ends: it leaves its objects.
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
    }

    /// Leaves the list of adjustments (`unshare(2)` with `CLONE_SYSVSEM`, and the end).
    pub fn leave_undo(&self, process: u32) {
        let list = self.undo.lock().take();
        if let Some(list) = list {
            list.leave(process);
        }
    }
}
