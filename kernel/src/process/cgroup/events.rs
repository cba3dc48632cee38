//! Files of which programs are told when their content changes: by poll(2), with an exceptional
//! condition until the file is read again, and by inotify(7) (`kernfs_notify`, fs/kernfs/file.c).

use core::sync::atomic::{AtomicU32, Ordering};

use crate::schedule::WaitQueue;
use crate::vfs::poll::{Events, Registrar};
use crate::vfs::watch::{self, Event, Mask};

/// The changes of one file.
#[derive(Default)]
pub struct Changes {
    count: AtomicU32,
    watchers: WaitQueue,
}

impl Changes {
    /// What a reader remembers, so that it is told of later changes. Never 0: a file that was not
    /// read yet has news (`kernfs_get_open_node`).
    pub fn seen(&self) -> u32 {
        self.count.load(Ordering::SeqCst).wrapping_add(1).max(1)
    }

    /// The events of a file whose reader remembers `seen`.
    pub fn poll(&self, seen: u32, registrar: &mut Registrar<'_>) -> Events {
        registrar.register(&self.watchers);
        news(self.seen() != seen)
    }

    /// Tells of a change. `directory`, `file`: device and inode number, for inotify. Call it
    /// without spin locks.
    pub fn tell(&self, directory: (u64, u64), file: (u64, u64), name: &str) {
        self.count.fetch_add(1, Ordering::SeqCst);
        self.watchers.wake_events((Events::ERR | Events::PRI).bits());
        if watch::watched_for(Mask::MODIFY) {
            let in_directory =
                Event { mask: Mask::MODIFY, name: name.as_bytes(), cookie: 0, unlinked: false };
            watch::tell(directory, in_directory);
            watch::tell(file, Event::itself(Mask::MODIFY));
        }
    }
}

/// The events of a file that has news, or none.
pub fn news(are_there: bool) -> Events {
    if are_there { Events::ALWAYS | Events::ERR | Events::PRI } else { Events::ALWAYS }
}
