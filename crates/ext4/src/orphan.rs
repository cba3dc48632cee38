//! The orphan list: inodes without names that are still in use, and inodes that are being cut.
//!
//! The superblock names the first; each inode names the next in the field of its time of deletion.
//! A mount after a crash frees those without names and cuts the others to their sizes. The list is
//! kept in memory too, its first at the end.

use alloc::vec::Vec;

use crate::content::Progress;
use crate::error::{Error, Result};
use crate::field::put;
use crate::inode::Time;
use crate::node::{Node, kind};
use crate::superblock;
use crate::volume::Device;
use crate::writer::Writer;

impl Writer {
    /// Puts an inode in front of the list, unless it is on it. The caller puts `node` back.
    pub(crate) fn add_orphan(&mut self, device: &dyn Device, node: &mut Node) -> Result<()> {
        if self.orphans.contains(&node.number) {
            return Ok(());
        }
        node.set_deleted(self.orphans.last().copied().unwrap_or(0));
        self.push_orphan(node.number)?;
        self.edit_superblock(device, |raw| superblock::set_first_orphan(raw, node.number))
    }

    /// Takes an inode off the list, if it is on it. The caller puts `node` back.
    pub(crate) fn remove_orphan(&mut self, device: &dyn Device, node: &mut Node) -> Result<()> {
        let Some(at) = self.orphans.iter().rposition(|&number| number == node.number) else {
            return Ok(());
        };
        let next = at.checked_sub(1).and_then(|at| self.orphans.get(at)).copied().unwrap_or(0);
        match self.orphans.get(at + 1).copied() {
            Some(before) => {
                let mut before = self.node(device, before)?;
                before.set_deleted(next);
                self.put_node(device, &mut before)?;
            }
            None => {
                self.edit_superblock(device, |raw| superblock::set_first_orphan(raw, next))?;
            }
        }
        node.set_deleted(0);
        self.pull_orphan(at, node.number)
    }

    /// Frees an inode without names that nothing uses any more, in bounded steps.
    pub fn release(&mut self, device: &dyn Device, inode: u32, now: Time) -> Result<Progress> {
        self.operate(|writer| {
            let mut node = writer.node(device, inode)?;
            if node.links() != 0 || inode < writer.format.first_inode {
                return Err(Error::Invalid);
            }
            if writer.has_blocks(&node)
                && writer.cut(device, &mut node, 0, 1 << 32)? == Progress::More
            {
                node.set_size(0);
                writer.put_node(device, &mut node)?;
                return Ok(Progress::More);
            }
            writer.drop_attributes(device, &mut node)?;
            writer.remove_orphan(device, &mut node)?;
            let is_directory = node.is(kind::DIRECTORY);
            // As in Linux, the record of a deleted inode stays, with its time of deletion.
            node.set_size(0);
            node.set_deleted((now.seconds as u32).max(1));
            writer.put_node(device, &mut node)?;
            writer.free_inode(device, inode, is_directory)?;
            Ok(Progress::Done)
        })
    }

    /// Whether the inode's map leads to blocks: links may be short, devices have none.
    pub(crate) fn has_blocks(&self, node: &Node) -> bool {
        match node.mode() & kind::MASK {
            kind::REGULAR | kind::DIRECTORY => true,
            kind::LINK => node.size() >= crate::node::MAP_LENGTH as u64 || node.has_extents(),
            _ => false,
        }
    }

    /// Deals with the orphans that a crash has left.
    pub(crate) fn free_orphans(&mut self, device: &dyn Device, now: Time) -> Result<()> {
        let mut list: Vec<u32> = Vec::new();
        let mut next = self.format.first_orphan;
        // A damaged list may lead back into itself: Brent's way to find that.
        let mut visited = 0;
        while next != 0 {
            if list.len().is_power_of_two() {
                visited = list.last().copied().unwrap_or(0);
            }
            if next < self.format.first_inode || next > self.volume.inodes || next == visited {
                return Err(Error::Corrupt("the orphan list"));
            }
            list.try_reserve(1).map_err(|_| Error::Memory)?;
            list.push(next);
            next = self.node(device, next)?.deleted();
        }
        list.reverse();
        self.orphans = list;
        while let Some(&inode) = self.orphans.last() {
            let node = self.node(device, inode)?;
            let progress = if node.links() == 0 {
                self.release(device, inode, now)
            } else {
                self.operate(|writer| {
                    let mut node = writer.node(device, inode)?;
                    let progress = if writer.has_blocks(&node) {
                        writer.cut_to_size(device, &mut node)?
                    } else {
                        writer.remove_orphan(device, &mut node)?;
                        Progress::Done
                    };
                    writer.put_node(device, &mut node)?;
                    Ok(progress)
                })
            };
            match progress {
                Ok(_) => {}
                Err(Error::CommitFirst) => self.commit(device, now)?,
                Err(error) => return Err(error),
            }
            if self.needs_commit() {
                self.commit(device, now)?;
            }
        }
        self.commit(device, now)
    }

    /// Fills a new record's map with `bytes`.
    pub(crate) fn fill_map(node: &mut Node, bytes: &[u8]) {
        let map = node.map_mut();
        map.fill(0);
        put(map, 0, bytes);
    }
}
