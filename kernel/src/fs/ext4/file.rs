//! An open file: reads go through its page cache, or with `O_DIRECT` past it, seeks by the map of
//! its blocks.

use hayate_abi::{Errno, Result};
use hayate_ext4::Run;

use super::node::Node;
use crate::vfs::content;
use crate::vfs::inode::Inode;
use crate::vfs::open_file::{FileOps, OpenFile, Traits, Whence, default_seek};
use crate::vfs::transfer::Output;

impl FileOps for Node {
    fn traits(&self) -> Traits {
        Traits::REGULAR
    }

    fn read(&self, file: &OpenFile, offset: u64, out: &mut Output<'_>) -> Result<usize> {
        let page_cache = self.page_cache().ok_or(Errno::EUCLEAN)?;
        content::read_on_disk(&page_cache, file, offset, out)
    }

    fn seek(&self, file: &OpenFile, position: u64, offset: i64, whence: Whence) -> Result<u64> {
        if !matches!(whence, Whence::Data | Whence::Hole) {
            return default_seek(file, position, offset, whence);
        }
        let size = self.page_cache().map_or(self.inode.size, |page_cache| page_cache.size());
        if self.is_marked() {
            // The shown content may lie elsewhere, so it counts as one piece of data.
            return match u64::try_from(offset) {
                Ok(at) if at < size => Ok(if whence == Whence::Data { at } else { size }),
                _ => Err(Errno::ENXIO),
            };
        }
        let mut at = u64::try_from(offset).map_err(|_| Errno::ENXIO)?;
        let map = self.map()?;
        while at < size {
            match (map.run(at), whence) {
                (Run::Data { .. }, Whence::Data) | (Run::Hole { .. }, Whence::Hole) => {
                    return Ok(at);
                }
                (Run::Data { length, .. } | Run::Hole { length }, _) => {
                    at = at.saturating_add(length);
                }
            }
        }
        // After the last data there is a hole, up to the end of the file.
        if whence == Whence::Hole && (offset as u64) < size { Ok(size) } else { Err(Errno::ENXIO) }
    }
}
