//! Descriptor tables: small numbers to open files.
//!
//! A table is one vector under one spin lock, shared by the threads of a process. Looking up a
//! descriptor takes the lock, clones one `Arc` and releases the lock: about twenty instructions and
//! no global state. Fork copies the vector once. The lowest free number is handed out first; a
//! bitmap of used numbers makes that a scan of 64 numbers at a time.
//!
//! Lock order: the table's lock is a leaf. No `OpenFile` is dropped while it is held, because that
//! may sleep: files that are taken out are dropped after the lock is released.
//!
//! Roads not taken: sharing the table copy-on-write between parent and child. A child first
//! redirects or closes descriptors, and three to ten increments of reference counts cost less than
//! the bookkeeping. And a thread that is the only user of its table does not use a file without
//! taking a reference, as Linux does (`fdget`, fs/file.c): no type shows that the file is not taken
//! out meanwhile, and the reference costs some twenty instructions of a read.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, Ordering};

use hayate_abi::{Errno, Result};
use hayate_machine::sync::SpinLock;
use smallvec::SmallVec;

use super::open_file::OpenFile;
use super::registered::Registered;
use crate::reclaim::growth;
use crate::reclaim::growth::Grow;

/// The ends that the close of a descriptor brings: of record locks, directory watches,
/// notifications of message queues.
static AT_CLOSE: Registered<fn(&FdTable, &OpenFile), 3> = Registered::new();

/// Registers what has to end when a descriptor is closed; at boot. It is called for tables that
/// [`FdTable::note_closings`] was called for.
pub fn at_close(close: fn(&FdTable, &OpenFile)) {
    AT_CLOSE.add(close);
}

/// The most descriptors a table can have (`fs.nr_open`).
pub const MAXIMUM: usize = 1 << 20;

/// A process's descriptors.
pub struct FdTable {
    slots: SpinLock<Slots>,
    /// Whether closing a descriptor has to look for record locks, directory watches or
    /// notifications to end.
    acts_on_closing: AtomicBool,
}

#[derive(Default)]
struct Slots {
    /// By number; never shrinks.
    files: Vec<Option<Arc<OpenFile>>>,
    /// One bit per number: taken (by a file or a reservation). The first 64 need no allocation.
    used: SmallVec<[u64; 1]>,
    /// One bit per number: closed by exec. As long as `used`.
    close_on_exec: SmallVec<[u64; 1]>,
    /// No number below this is free.
    lowest: usize,
}

fn bit(number: usize) -> (usize, u64) {
    (number / 64, 1 << (number % 64))
}

impl Slots {
    /// Whether the table is large enough for `number`. It never shrinks.
    fn reaches(&self, number: usize) -> bool {
        number < self.files.len() && bit(number).0 < self.used.len()
    }

    /// Makes the table large enough for numbers below `count`.
    fn grow(&mut self, count: usize) -> Result<()> {
        /// The least growth, in numbers.
        const STEP: usize = 16;
        if count > self.files.len() {
            // Growing by half keeps the cost of many descriptors linear.
            let length = count.max(self.files.len() * 3 / 2).next_multiple_of(STEP);
            let more = length - self.files.len();
            self.files.make_room_exact(more)?;
            self.files.resize_with(length, || None);
        }
        let words = count.div_ceil(64);
        if words > self.used.len() {
            let more = words - self.used.len();
            self.used.make_room(more)?;
            self.close_on_exec.make_room(more)?;
            self.used.resize(words, 0);
            self.close_on_exec.resize(words, 0);
        }
        Ok(())
    }

    fn is_used(&self, number: usize) -> bool {
        let (word, mask) = bit(number);
        self.used.get(word).is_some_and(|bits| bits & mask != 0)
    }

    fn set(&mut self, number: usize, close_on_exec: bool) {
        let (word, mask) = bit(number);
        if let Some(bits) = self.used.get_mut(word) {
            *bits |= mask;
        }
        self.mark(number, close_on_exec);
    }

    fn mark(&mut self, number: usize, close_on_exec: bool) {
        let (word, mask) = bit(number);
        if let Some(bits) = self.close_on_exec.get_mut(word) {
            if close_on_exec { *bits |= mask } else { *bits &= !mask }
        }
    }

    fn clear(&mut self, number: usize) -> Option<Arc<OpenFile>> {
        let (word, mask) = bit(number);
        if let Some(bits) = self.used.get_mut(word) {
            *bits &= !mask;
        }
        self.mark(number, false);
        self.lowest = self.lowest.min(number);
        self.files.get_mut(number).and_then(Option::take)
    }

    /// Takes the lowest free number from `from` on, below `limit`.
    fn take(&mut self, from: usize, limit: usize, close_on_exec: bool) -> Result<usize> {
        let start = from.max(self.lowest);
        let mut word = start / 64;
        let mut mask = !0u64 << (start % 64);
        let number = loop {
            match self.used.get(word) {
                None => break (word * 64).max(start),
                Some(bits) if !bits & mask != 0 => {
                    break word * 64 + (!bits & mask).trailing_zeros() as usize;
                }
                Some(_) => {}
            }
            word += 1;
            mask = !0;
        };
        if number >= limit.min(MAXIMUM) {
            return Err(Errno::EMFILE);
        }
        self.grow(number + 1)?;
        self.set(number, close_on_exec);
        if start == self.lowest {
            self.lowest = number + 1;
        }
        Ok(number)
    }
}

/// A number reserved for a file that is still being made; dropping it frees the number.
pub struct Reserved<'a> {
    table: &'a FdTable,
    number: usize,
}

impl Reserved<'_> {
    /// Returns the number.
    pub fn number(&self) -> i32 {
        self.number as i32
    }

    /// Installs the file under the number and returns the number.
    pub fn install(self, file: Arc<OpenFile>) -> i32 {
        let mut slots = self.table.slots.lock();
        if let Some(slot) = slots.files.get_mut(self.number) {
            *slot = Some(file);
        }
        drop(slots);
        let number = self.number as i32;
        core::mem::forget(self);
        number
    }
}

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        let _ = self.table.slots.lock().clear(self.number);
    }
}

impl Default for FdTable {
    fn default() -> Self {
        FdTable::new()
    }
}

impl FdTable {
    /// Makes an empty table.
    pub fn new() -> FdTable {
        FdTable { slots: SpinLock::new(Slots::default()), acts_on_closing: AtomicBool::new(false) }
    }

    /// Copies the table for a child; the files are shared. Call it without spin locks. `ENOMEM`.
    pub fn fork(&self) -> Result<Arc<FdTable>> {
        let mut copy = Slots::default();
        growth::relieved(|| self.copy_to(&mut copy))?;
        let acts_on_closing = AtomicBool::new(false);
        Ok(Arc::new(FdTable { slots: SpinLock::new(copy), acts_on_closing }))
    }

    /// Copies the table for the same process, which shared it until now. `ENOMEM`.
    ///
    /// Record locks and directory watches stay with the old table; notifications are the process's.
    pub fn unshare(&self) -> Result<Arc<FdTable>> {
        let copy = self.fork()?;
        copy.acts_on_closing.store(self.acts_on_closing.load(Ordering::Relaxed), Ordering::Relaxed);
        Ok(copy)
    }

    /// Fills an empty table. After `ENOMEM` it is empty still.
    fn copy_to(&self, copy: &mut Slots) -> Result<()> {
        let slots = self.slots.lock();
        let words = slots.used.iter().rposition(|&bits| bits != 0).map_or(0, |last| last + 1);
        let last = match words.checked_sub(1).and_then(|word| slots.used.get(word)) {
            Some(bits) => words * 64 - bits.leading_zeros() as usize,
            None => 0,
        };
        copy.files.make_room_exact(last)?;
        if words > 1 {
            copy.used.make_room_exact(words)?;
            copy.close_on_exec.make_room_exact(words)?;
        }
        copy.lowest = slots.lowest;
        // All at once and without a test for room at each: this is a part of every fork.
        copy.files.extend(slots.files.iter().take(last).cloned());
        for (word, files) in copy.files.chunks(64).enumerate() {
            let mut used = 0;
            for (number, file) in files.iter().enumerate() {
                used |= u64::from(file.is_some()) << number;
            }
            // A number that another thread's `open` has reserved stays free in the copy.
            let free = slots.used.get(word).map_or(0, |bits| bits & !used);
            if free != 0 {
                copy.lowest = copy.lowest.min(word * 64 + free.trailing_zeros() as usize);
            }
            let closed = slots.close_on_exec.get(word).map_or(0, |bits| bits & used);
            if words == 1 {
                copy.used = SmallVec::from_buf([used]);
                copy.close_on_exec = SmallVec::from_buf([closed]);
            } else {
                copy.used.push(used);
                copy.close_on_exec.push(closed);
            }
        }
        Ok(())
    }

    /// Returns the open file of a descriptor; `EBADF` when there is none.
    #[inline]
    pub fn get(&self, fd: i32) -> Result<Arc<OpenFile>> {
        match self.slots.lock().files.get(fd as u32 as usize) {
            Some(Some(file)) => Ok(Arc::clone(file)),
            _ => Err(Errno::EBADF),
        }
    }

    /// Like [`FdTable::get`], but `EBADF` for a file opened with `O_PATH`.
    #[inline]
    pub fn get_open(&self, fd: i32) -> Result<Arc<OpenFile>> {
        let file = self.get(fd)?;
        if file.path_only() { Err(Errno::EBADF) } else { Ok(file) }
    }

    /// Reserves the lowest free number from `from` on for a file that is being made. `limit` is
    /// `RLIMIT_NOFILE`; `EMFILE` beyond it.
    pub fn reserve(&self, from: usize, limit: u64, close_on_exec: bool) -> Result<Reserved<'_>> {
        let limit = usize::try_from(limit).unwrap_or(MAXIMUM);
        let number = growth::relieved(|| self.slots.lock().take(from, limit, close_on_exec))?;
        Ok(Reserved { table: self, number })
    }

    /// Installs a file under the lowest free number from `from` on.
    pub fn install(
        &self,
        file: Arc<OpenFile>,
        from: usize,
        limit: u64,
        close_on_exec: bool,
    ) -> Result<i32> {
        Ok(self.reserve(from, limit, close_on_exec)?.install(file))
    }

    /// Installs a file under exactly `number` (`dup2`). Returns the file that was there, for the
    /// caller to pass to [`FdTable::closed`]. `EBADF` beyond the limit.
    pub fn replace(
        &self,
        number: i32,
        file: Arc<OpenFile>,
        limit: u64,
        close_on_exec: bool,
    ) -> Result<Option<Arc<OpenFile>>> {
        let number = usize::try_from(number).map_err(|_| Errno::EBADF)?;
        if number >= MAXIMUM || number as u64 >= limit {
            return Err(Errno::EBADF);
        }
        let mut slots = self.slots.lock();
        if !slots.reaches(number) {
            drop(slots);
            growth::relieved(|| self.slots.lock().grow(number + 1))?;
            slots = self.slots.lock();
        }
        if slots.is_used(number) && slots.files.get(number).is_some_and(Option::is_none) {
            // Another thread's open has reserved it: Linux returns the same error (`do_dup2`).
            return Err(Errno::EBUSY);
        }
        slots.set(number, close_on_exec);
        Ok(slots.files.get_mut(number).and_then(|slot| slot.replace(file)))
    }

    /// Removes a file; `EBADF` when there is none. The caller passes it to [`FdTable::closed`].
    pub fn remove(&self, fd: i32) -> Result<Arc<OpenFile>> {
        let number = usize::try_from(fd).map_err(|_| Errno::EBADF)?;
        let mut slots = self.slots.lock();
        match slots.files.get(number) {
            Some(Some(_)) => slots.clear(number).ok_or(Errno::EBADF),
            _ => Err(Errno::EBADF),
        }
    }

    /// `close(2)`.
    pub fn close(&self, fd: i32) -> Result<()> {
        let file = self.remove(fd)?;
        self.closed(file);
        Ok(())
    }

    /// Ends one descriptor's use of a file that was removed from this table. The record locks of
    /// this process on the file end, as POSIX requires, and so do its directory watches
    /// (`F_NOTIFY`); then the reference is dropped.
    pub fn closed(&self, file: Arc<OpenFile>) {
        if self.acts_on_closing.load(Ordering::Relaxed) {
            for close in AT_CLOSE.iter() {
                close(self, &file);
            }
        }
    }

    /// Notes that something now ends when any descriptor of its file in this table is closed: a
    /// record lock, a watch of a directory or a notification of a message queue.
    pub fn note_closings(&self) {
        self.acts_on_closing.store(true, Ordering::Relaxed);
    }

    /// Whether exec closes the descriptor.
    pub fn close_on_exec(&self, fd: i32) -> Result<bool> {
        let slots = self.slots.lock();
        let number = fd as u32 as usize;
        match slots.files.get(number) {
            Some(Some(_)) => {
                let (word, mask) = bit(number);
                Ok(slots.close_on_exec.get(word).is_some_and(|bits| bits & mask != 0))
            }
            _ => Err(Errno::EBADF),
        }
    }

    /// Sets whether exec closes the descriptor.
    pub fn set_close_on_exec(&self, fd: i32, on: bool) -> Result<()> {
        let mut slots = self.slots.lock();
        let number = fd as u32 as usize;
        match slots.files.get(number) {
            Some(Some(_)) => {
                slots.mark(number, on);
                Ok(())
            }
            _ => Err(Errno::EBADF),
        }
    }

    /// The numbers that a new program inherits, one bit each; `None` if one of them is above 63.
    pub fn kept_by_exec(&self) -> Option<u64> {
        let slots = self.slots.lock();
        let mut words =
            slots.used.iter().zip(&slots.close_on_exec).map(|(used, shut)| used & !shut);
        let first = words.next().unwrap_or(0);
        words.all(|word| word == 0).then_some(first)
    }

    /// Closes the descriptors that exec closes.
    pub fn exec(&self) {
        let words = self.slots.lock().close_on_exec.len();
        for word in 0..words {
            loop {
                let mut slots = self.slots.lock();
                let bits = slots.close_on_exec.get(word).copied().unwrap_or(0);
                if bits == 0 {
                    break;
                }
                let file = slots.clear(word * 64 + bits.trailing_zeros() as usize);
                drop(slots);
                if let Some(file) = file {
                    self.closed(file);
                }
            }
        }
    }

    /// Closes all of `first..=last` (`close_range(2)`), or marks them for exec to close.
    pub fn close_range(&self, first: u32, last: u32, only_mark: bool) {
        let length = self.slots.lock().files.len();
        for number in first as usize..length.min((last as usize).saturating_add(1)) {
            let mut slots = self.slots.lock();
            if !slots.files.get(number).is_some_and(Option::is_some) {
                continue;
            }
            if only_mark {
                slots.mark(number, true);
                continue;
            }
            let file = slots.clear(number);
            drop(slots);
            if let Some(file) = file {
                self.closed(file);
            }
        }
    }

    /// Closes all descriptors, because the process ends. Dropping the table does the same.
    pub fn clear(&self) {
        let files = core::mem::take(&mut *self.slots.lock());
        for slot in files.files {
            let Some(file) = slot else { continue };
            self.closed(file);
        }
    }

    /// Returns the open descriptors in order, for `/proc/PID/fd`. `ENOMEM`.
    pub fn numbers(&self) -> Result<Vec<i32>> {
        let slots = self.slots.lock();
        let open = slots.files.iter().enumerate().filter(|(_, slot)| slot.is_some());
        growth::collect(open.map(|(number, _)| number as i32))
    }

    /// Returns how many numbers the table has room for (`FDSize` of `/proc/PID/status`).
    pub fn size(&self) -> usize {
        self.slots.lock().used.len().max(1) * 64
    }
}

impl Drop for FdTable {
    fn drop(&mut self) {
        self.clear();
    }
}
