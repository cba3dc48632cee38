//! Access to a space that is not loaded: for exec's first stack, `/proc/PID/cmdline` and `mem`,
//! `process_vm_readv`.

use hayate_abi::{Errno, Result};
use machine::frames::Frame;

use super::region::Protection;
use super::space::Space;
use super::{FaultResult, PAGE, Touch};

/// The identity of a futex.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FutexPlace {
    /// Identified by its address: no other space sees it.
    Private,
    /// Identified by its place in content that several spaces may map.
    Shared {
        /// The number of the content's page cache.
        content: u64,
        /// The offset in the content in bytes.
        offset: u64,
    },
}

impl Space {
    /// Returns the identity of the futex at `address`. `EFAULT` if nothing is mapped there.
    pub fn futex_place(&self, address: usize) -> Result<FutexPlace> {
        let mut guard = self.table.lock();
        let (inner, ..) = guard.parts();
        let region = inner.map.find(address).ok_or(Errno::EFAULT)?;
        let mapping = &region.value;
        match &mapping.backing {
            Some(backing) if mapping.is_shared() => Ok(FutexPlace::Shared {
                content: backing.plate.id(),
                offset: mapping.offset + (address - region.start) as u64,
            }),
            _ => Ok(FutexPlace::Private),
        }
    }

    /// Returns the aligned word at `address`, if its page is in memory and readable. Takes the
    /// space's lock and never sleeps.
    pub fn peek_word(&self, address: usize) -> Option<u32> {
        let mut guard = self.table.lock();
        let (_, edit) = guard.parts();
        let (frame, page) = edit.frame(address)?;
        page.access.read.then(|| frame.load_u32(address % PAGE))?
    }

    /// Copies from `address` of this space to `to`. Returns the number of bytes copied, which is
    /// smaller than asked for if a page is absent or not readable. Sleeps if a page must be read:
    /// hold no lock.
    pub fn read_foreign(&self, address: usize, to: &mut [u8]) -> usize {
        let mut done = 0;
        while done < to.len() {
            let Some(at) = address.checked_add(done) else { break };
            let Some(frame) = self.foreign_frame(at, Touch::Read) else { break };
            let part = (PAGE - at % PAGE).min(to.len() - done);
            done += frame.read(at % PAGE, &mut to[done..done + part]);
        }
        done
    }

    /// Copies `from` to `address` of this space. Returns the number of bytes copied, as
    /// [`read_foreign`](Self::read_foreign) does.
    pub fn write_foreign(&self, address: usize, from: &[u8]) -> usize {
        let mut done = 0;
        while done < from.len() {
            let Some(at) = address.checked_add(done) else { break };
            let Some(frame) = self.foreign_frame(at, Touch::Write) else { break };
            let part = (PAGE - at % PAGE).min(from.len() - done);
            done += frame.write(at % PAGE, &from[done..done + part]);
        }
        done
    }

    /// Copies all of `from` to `address` of this space.
    ///
    /// # Errors
    /// `ENOMEM` if memory is exhausted, `EFAULT` if a page is absent or not writable. The bytes
    /// before that page have been written.
    pub fn fill_foreign(&self, address: usize, from: &[u8]) -> Result<()> {
        let mut done = 0;
        while done < from.len() {
            let at = address.checked_add(done).ok_or(Errno::EFAULT)?;
            let frame = self.bring(at, Touch::Write).map_err(|why| match why {
                FaultResult::OutOfMemory => Errno::ENOMEM,
                _ => Errno::EFAULT,
            })?;
            let part = (PAGE - at % PAGE).min(from.len() - done);
            done += frame.write(at % PAGE, &from[done..done + part]);
        }
        Ok(())
    }

    /// Returns the frame of the page around `address`, brought in for `touch`.
    pub fn foreign_frame(&self, address: usize, touch: Touch) -> Option<Frame> {
        self.bring(address, touch).ok()
    }

    /// Like [`foreign_frame`](Self::foreign_frame), with the reason of a failure.
    fn bring(&self, address: usize, touch: Touch) -> core::result::Result<Frame, FaultResult> {
        loop {
            {
                let mut guard = self.table.lock();
                let (inner, edit) = guard.parts();
                if let Some(region) = inner.map.find(address) {
                    let needed = match touch {
                        Touch::Read => Protection::all(),
                        Touch::Write => Protection::WRITE,
                        Touch::Execute => Protection::EXECUTE,
                    };
                    if !region.value.protection.intersects(needed) {
                        return Err(FaultResult::NotAllowed);
                    }
                    if let Some((frame, page)) = edit.frame(address)
                        && page.access.read
                        && (touch != Touch::Write || edit.is_writable(address))
                    {
                        if touch == Touch::Write {
                            edit.note_written(address);
                        }
                        return Ok(frame);
                    }
                }
            }
            match self.handle(address, touch) {
                FaultResult::Done => {}
                failed => return Err(failed),
            }
        }
    }
}
