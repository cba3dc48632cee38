//! A queue as a file: its inode, and the operations of its open files.

use alloc::format;
use alloc::sync::Arc;

use hayate_abi::{Errno, Result};

use super::queue::Queue;
use crate::vfs::caller;
use crate::vfs::inode::{Attributes, Change, Inode, Metadata, Timestamp};
use crate::vfs::open_file::{FileOps, OpenFile, OpenRequest, Traits};
use crate::vfs::poll::{Events, Registrar};
use crate::vfs::transfer::Output;

/// Changes what is named of a file's metadata.
pub fn change(metadata: &mut Metadata, change: &Change) {
    let now = Timestamp::now();
    metadata.mode = change.mode.unwrap_or(metadata.mode);
    metadata.uid = change.uid.unwrap_or(metadata.uid);
    metadata.gid = change.gid.unwrap_or(metadata.gid);
    // The size is a number that means nothing, which can be changed (`simple_setattr`).
    if let Some(size) = change.size {
        metadata.size = size;
        metadata.modified = now;
    }
    metadata.accessed = change.accessed.unwrap_or(metadata.accessed);
    metadata.modified = change.modified.unwrap_or(metadata.modified);
    metadata.changed = now;
}

impl Inode for Queue {
    fn attributes(&self) -> Attributes {
        self.state.lock().metadata.attributes()
    }

    fn metadata(&self) -> Result<Metadata> {
        Ok(self.state.lock().metadata)
    }

    fn set_metadata(&self, wanted: &Change) -> Result<()> {
        change(&mut self.state.lock().metadata, wanted);
        Ok(())
    }

    fn open(self: Arc<Self>, _: &OpenRequest<'_>) -> Result<Arc<dyn FileOps>> {
        Ok(self)
    }
}

impl FileOps for Queue {
    fn traits(&self) -> Traits {
        Traits::REGULAR.union(Traits::POLLABLE)
    }

    fn read(&self, _: &OpenFile, offset: u64, out: &mut Output<'_>) -> Result<usize> {
        let (bytes, notice) = self.shown();
        let text = format!(
            "QSIZE:{bytes:<10} NOTIFY:{:<5} SIGNO:{:<5} NOTIFY_PID:{:<6}\n",
            notice.way,
            notice.signal,
            caller::shown_process(notice.process)
        );
        let rest = usize::try_from(offset).ok().and_then(|offset| text.as_bytes().get(offset..));
        let rest = rest.unwrap_or_default();
        let count = out.put(rest.get(..out.remaining()).unwrap_or(rest))?;
        if count != 0 {
            self.note_access();
        }
        Ok(count)
    }

    fn poll(&self, _: &OpenFile, registrar: &mut Registrar<'_>) -> Events {
        registrar.register(&self.changes);
        let length = self.length();
        let mut events = Events::empty();
        events.set(Events::READABLE, length != 0);
        events.set(Events::WRITABLE, length < self.shape().messages);
        events
    }

    fn sync(&self, _: &OpenFile, _: bool) -> Result<()> {
        Err(Errno::EINVAL)
    }
}
