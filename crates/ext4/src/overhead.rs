//! The blocks that the file system itself takes: `df` counts them neither as size nor as used
//! (fs/ext4/super.c of Linux 6.1, `ext4_calculate_overhead` and `ext4_statfs`).
//!
//! The sum is made of a few numbers of the superblock, not group by group: the count of groups is
//! a number in the image, and a mount must not take as long as an image asks for.
//! `s_overhead_clusters` is not read, as Linux does not read it without bigalloc: mke2fs and
//! resize2fs have written wrong ones.

use crate::volume::{Backups, Volume};

impl Volume {
    /// Blocks before the first group, copies of the superblock, group descriptors with the
    /// `reserved` blocks kept for more of them behind each copy, bitmaps, inode tables, and a
    /// journal of `journal` bytes.
    pub(crate) fn count_overhead(&self, journal: u64, reserved: u16) -> u64 {
        let groups = u64::from(self.groups());
        let per_block = (self.block_size() / usize::from(self.descriptor_size)) as u64;
        let tables = groups.div_ceil(per_block);
        // Blocks of descriptors behind each copy of the superblock, and those with `META_BG`,
        // which lie in the first, the second and the last group that they describe.
        let behind = self.first_meta_group.map_or(tables, |first| tables.min(first.into()));
        let followed = self.backups_below(groups.min(behind.saturating_mul(per_block)));
        let scattered = match tables - behind {
            0 => 0,
            count => {
                let last = groups - (tables - 1) * per_block;
                (count - 1) * per_block.min(3) + last.min(2) + u64::from(last == per_block)
            }
        };
        let parts = [
            self.first_data_block.into(),
            groups.saturating_mul(self.table_blocks().saturating_add(2)),
            self.backups_below(groups).saturating_mul(1 + u64::from(reserved)),
            followed.saturating_mul(behind),
            scattered,
            journal >> self.block_shift,
        ];
        parts.into_iter().fold(0, u64::saturating_add).min(self.blocks)
    }

    /// How many of the groups below `end` have a copy of the superblock.
    fn backups_below(&self, end: u64) -> u64 {
        let powers = |base: u64| {
            core::iter::successors(Some(base), |power| power.checked_mul(base))
                .take_while(|&power| power < end)
                .count() as u64
        };
        match self.backups {
            Backups::Every => end,
            Backups::Two(one, other) => {
                let other = (other != one).then_some(other);
                let named = [Some(one), other].into_iter().flatten().map(u64::from);
                end.min(1) + named.filter(|&group| group > 0 && group < end).count() as u64
            }
            Backups::Sparse => end.min(2) + powers(3) + powers(5) + powers(7),
        }
    }
}
