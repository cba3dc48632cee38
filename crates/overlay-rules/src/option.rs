//! The mount option `lowerdir=`.
//!
//! A list of some thousand paths is possible: the data of `mount(2)` is a page, and a path may be
//! one letter. So the lists grow by requests that can fail.

use alloc::vec::Vec;

/// Why a list of lower directories is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It has an empty path.
    Empty,
    /// Memory is exhausted.
    Memory,
}

/// Appends `item`.
fn push<T>(list: &mut Vec<T>, item: T) -> Result<(), Fault> {
    list.try_reserve(1).map_err(|_| Fault::Memory)?;
    list.push(item);
    Ok(())
}

/// Returns the paths of a list of lower directories, topmost first: separated by `:`; a `\` makes
/// the next character an ordinary one.
pub fn lower_paths(list: &[u8]) -> Result<Vec<Vec<u8>>, Fault> {
    let mut paths = Vec::new();
    let mut path = Vec::new();
    let mut bytes = list.iter();
    while let Some(&byte) = bytes.next() {
        match byte {
            b'\\' => push(&mut path, *bytes.next().unwrap_or(&b'\\'))?,
            b':' if path.is_empty() => return Err(Fault::Empty),
            b':' => push(&mut paths, core::mem::take(&mut path))?,
            _ => push(&mut path, byte)?,
        }
    }
    if path.is_empty() {
        return Err(Fault::Empty);
    }
    push(&mut paths, path)?;
    Ok(paths)
}

/// Removes the `\` before characters of a path that is not a list. Fails with [`Fault::Memory`].
pub fn unescape(path: &[u8]) -> Result<Vec<u8>, Fault> {
    let mut plain = Vec::new();
    plain.try_reserve_exact(path.len()).map_err(|_| Fault::Memory)?;
    let mut bytes = path.iter();
    while let Some(&byte) = bytes.next() {
        plain.push(if byte == b'\\' { *bytes.next().unwrap_or(&b'\\') } else { byte });
    }
    Ok(plain)
}
