//! What segments of shared memory ([`crate::ipc::sysv::shm`]) are told by fork, by what unmaps, and
//! by the end of a space: when they were attached or detached, and by which process. Only a space
//! that has or had segments comes here.

use hayate_space_map::Region;

use super::region::Mapping;
use super::space::Inner;
use crate::ipc::sysv::shm::Attachment;

/// Tells the segments in the map of a fork's child that they have one more attachment. (The times
/// are noted here; the attachments are there with the map.)
#[cold]
pub fn note_inherited(child: &Inner) {
    attachments(child.map.iter().map(|region| &region.value))
        .for_each(|attachment| attachment.note_attached());
}

/// Tells segments that these regions are unmapped.
#[cold]
pub fn note_removed(removed: &[Region<Mapping>]) {
    attachments(removed.iter().map(|region| &region.value))
        .for_each(|attachment| attachment.note_detached());
}

/// Tells segments that the process with this map ends or executes another program.
#[cold]
pub fn note_ended(inner: &Inner) {
    attachments(inner.map.iter().map(|region| &region.value))
        .for_each(|attachment| attachment.note_detached());
}

fn attachments<'a>(
    mappings: impl Iterator<Item = &'a Mapping>,
) -> impl Iterator<Item = &'a Attachment> {
    mappings.filter_map(Mapping::attachment)
}
