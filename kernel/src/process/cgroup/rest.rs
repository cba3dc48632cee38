//! Threads that sleep on their way through the kernel and do not run their program before somebody
//! lets them: they count as frozen when their process is to freeze ([`super::freezer`]).

use super::group::News;
use crate::process::record::{Process, notice};

/// A thread that rests, as long as this lives. It begins to count when its process is to freeze.
pub struct Rest<'a> {
    process: &'a Process,
    counts: bool,
}

impl<'a> Rest<'a> {
    /// For the current thread, which is one of `process`.
    pub fn of(process: &'a Process) -> Rest<'a> {
        Rest { process, counts: false }
    }

    /// Counts the thread if its process is to freeze, once. It may be called in the condition of a
    /// wait.
    #[inline]
    pub fn note(&mut self) {
        if self.process.notice() & notice::FREEZE != 0 && !self.counts {
            self.begin();
        }
    }

    #[cold]
    fn begin(&mut self) {
        self.counts = true;
        counts_rest(self.process, 1).tell();
    }
}

impl Drop for Rest<'_> {
    fn drop(&mut self) {
        if self.counts {
            counts_rest(self.process, -1).tell();
        }
    }
}

/// Counts one thread more, or fewer, that rests.
fn counts_rest(process: &Process, more: isize) -> News {
    let Some(member) = process.member.get() else { return News::default() };
    let mut place = member.place.lock();
    place.resting = place.resting.saturating_add_signed(more);
    place.review()
}
