//! Memory that nobody used for a while is given up, so that the host can have it.
//!
//! Two kinds of memory hold nothing that could not be made or read again: what is kept of processes
//! that ended (`recycle::pools`), and the pages of files that lie on a disk
//! ([`reclaim::age`]). Under a lack of memory the machine itself drops them. A machine with enough
//! would hold them for ever, at the host's cost. So an execution of its own drops what was not used
//! for one *period*: a minute, or `idle-age=SECONDS` on the command line, 0 for never. What is used
//! more often stays, however long it is there: that is the working set.
//!
//! * A kept resource goes a period after it was stored, an image after ten times as long. Where a
//!   pool does not know ages (empty spaces, stacks, program records), its resources go if nothing
//!   was started for a whole period.
//! * The pages of a file that nobody maps go if none of them was looked up for a period. Names of
//!   files go with the resources whose ages are unknown.
//!
//! The work is done once a period as long as anything is left that may grow old, and starts again
//! when the machine's free memory has changed ([`Lookout`]): an idle machine ends without a timer.
//! Nothing of this exists in a machine that gives no memory back.
//!
//! Road not taken: a working set in bytes, by the rate of refaults as in Linux (`mm/workingset.c`).
//! That decides between programs that compete for memory. Here nobody in the machine wants it.

use alloc::sync::Arc;

use hayate_machine::sync::Once;
use hayate_machine::{boot, frames, info, warn};
use hayate_recycler::ResourceKind;

use super::lookout::Lookout;
use crate::reclaim;
use crate::recycle::pools;
use crate::schedule;
use crate::schedule::time::monotonic_ns;

/// The period, in seconds, if the command line does not give it.
const USUAL: u64 = 60;
/// The longest, in seconds: a year.
const LONGEST: u64 = 365 * 24 * 3600;
const SECOND: u64 = 1_000_000_000;

static LOOKOUT: Once<Arc<Lookout>> = Once::new();

/// Starts the execution that drops what is old.
pub fn start() {
    let period = match boot::option("idle-age").map(str::parse) {
        None => USUAL,
        Some(Ok(seconds)) if seconds <= LONGEST => seconds,
        Some(_) => {
            warn!("idle-age= is a number of seconds, 0 for never: taken as {USUAL}");
            USUAL
        }
    };
    if period == 0 {
        info!("memory that nobody uses is kept: idle-age=0");
        return;
    }
    let lookout = Lookout::new(frames::in_units, period * SECOND);
    let served = Arc::clone(&lookout);
    if schedule::start_kernel("ageing", move || serve(&served, period * SECOND)).is_err() {
        warn!("no memory for the execution that gives up what nobody uses");
        return;
    }
    LOOKOUT.call_once(|| lookout);
}

/// See [`Lookout::look`].
pub fn look() {
    if let Some(lookout) = LOOKOUT.get() {
        lookout.look();
    }
}

fn serve(lookout: &Lookout, period: u64) {
    let mut before = 0;
    loop {
        lookout.wait();
        let started = started();
        let is_idle = started == before;
        before = started;
        let mut dropped = false;
        while pools::drop_unused(monotonic_ns(), period, is_idle) {
            dropped = true;
            // There may be many, and others wait for this processor.
            schedule::breathe();
        }
        let may_grow_old = reclaim::age(is_idle);
        lookout.done(dropped || may_grow_old || !pools::are_empty());
    }
}

/// Counts what processes are made of, as often as it was made, taken or stored: a start changes it.
fn started() -> u64 {
    let counts = ResourceKind::ALL.iter().map(|&kind| pools::counts(kind));
    counts.fold(0, |sum, counts| sum + counts.made + counts.reused + counts.stored)
}
