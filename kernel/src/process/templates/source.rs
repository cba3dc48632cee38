//! Files that a template was compiled of: a start is served only while they are what they were.
//!
//! A file is looked up anew at each start, as the program would open it, so a change of a link, of
//! a directory's rights or of a mount counts like one of the file. Its content is the same if its
//! page cache is, and the version of that, which grows with each write and each open for writing.
//! The place is held meanwhile, so that nothing else can have its identity.

use alloc::vec::Vec;

use hayate_abi::{Errno, Result};
use hayate_template_rules::Rules;

use crate::credentials::{Credentials, access};
use crate::reclaim::growth;
use crate::reclaim::growth::Grow;
use crate::vfs::attributes::FileKind;
use crate::vfs::context::FsContext;
use crate::vfs::filesystem::Caching;
use crate::vfs::mount::Location;
use crate::vfs::path::{Resolver, WalkFlags, permitted};

/// The most files of one template: each is looked up at each start.
const MOST: usize = 32;

/// A file, as it was.
pub struct Source {
    path: Vec<u8>,
    location: Location,
    /// The number of its page cache, and the version.
    content: (u64, u64),
}

impl Source {
    /// The files that the rules of a template name, as they are now.
    ///
    /// # Errors
    /// `EINVAL`: one is no regular file, or may be changed by others than this kernel (a shared
    /// folder, `/proc`), or there are too many; `ETXTBSY`: one may be being written; as a look-up
    /// and an open of the path; `ENOMEM`.
    pub fn of(
        context: &FsContext,
        credentials: &Credentials,
        rules: &Rules,
    ) -> Result<Vec<Source>> {
        let mut sources = Vec::new();
        if rules.unchanged().count() > MOST {
            return Err(Errno::EINVAL);
        }
        for path in rules.unchanged() {
            let (location, content) = look(context, credentials, path)?;
            let inode = location.inode()?;
            let caching = location.dentry.filesystem().caching();
            if matches!(caching, Caching::Never | Caching::InUse) {
                return Err(Errno::EINVAL);
            }
            let is_written = |content: &crate::page_cache::cache::PageCache| {
                content.writers() != 0 || content.is_mapped_writable()
            };
            if inode.page_cache().is_some_and(|content| is_written(&content)) {
                return Err(Errno::ETXTBSY);
            }
            sources.make_room(1)?;
            sources.push(Source { path: growth::copy(path)?, location, content });
        }
        Ok(sources)
    }

    /// Whether a program with this root and these rights finds the same file, unchanged, and may
    /// read it.
    pub fn is_unchanged(&self, context: &FsContext, credentials: &Credentials) -> bool {
        look(context, credentials, &self.path).is_ok_and(|(location, content)| {
            content == self.content && location.is_same(&self.location)
        })
    }
}

/// A regular file that may be read: where it is, and the state of its content.
fn look(
    context: &FsContext,
    credentials: &Credentials,
    path: &[u8],
) -> Result<(Location, (u64, u64))> {
    let resolver = Resolver { context, credentials, start: None };
    let location = resolver.resolve(path, WalkFlags::empty())?;
    let inode = location.inode()?;
    let attributes = inode.attributes();
    if attributes.kind != FileKind::Regular {
        return Err(Errno::EINVAL);
    }
    permitted(credentials, &attributes, access::READ)?;
    let content = inode.page_cache().ok_or(Errno::EINVAL)?;
    let state = (content.id(), content.version());
    Ok((location, state))
}
