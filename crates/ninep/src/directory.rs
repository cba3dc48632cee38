//! The entries of a directory: the data of a reply to [`crate::request::Request::ReadDirectory`].

use crate::{Malformed, NAME_MOST, Qid, Reader};

/// An entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// The file.
    pub qid: Qid,
    /// Where the enumeration goes on behind this entry.
    pub next: u64,
    /// The kind of the file, a `d_type` of `getdents64(2)`.
    pub kind: u8,
    /// The name.
    pub name: &'a [u8],
}

/// The entries in the data of a reply; the last one may be [`Malformed`], and none follows that.
pub struct Entries<'a>(Reader<'a>);

/// Whether a directory can have an entry of this name.
pub fn is_name(name: &[u8]) -> bool {
    !name.is_empty() && name.len() <= NAME_MOST && !name.contains(&0) && !name.contains(&b'/')
}

/// Returns the entries in the data of a reply.
pub fn entries(data: &[u8]) -> Entries<'_> {
    Entries(Reader(data))
}

impl<'a> Entries<'a> {
    fn read(&mut self) -> Result<Entry<'a>, Malformed> {
        let from = &mut self.0;
        let (qid, next, kind, name) = (from.qid()?, from.u64()?, from.u8()?, from.text()?);
        if is_name(name) { Ok(Entry { qid, next, kind, name }) } else { Err(Malformed) }
    }
}

impl<'a> Iterator for Entries<'a> {
    type Item = Result<Entry<'a>, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.0.is_empty() {
            return None;
        }
        let entry = self.read();
        if entry.is_err() {
            self.0 = Reader(&[]);
        }
        Some(entry)
    }
}
