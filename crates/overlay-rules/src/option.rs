//! The mount option `lowerdir=`.
//!
//! The lists grow by requests that cannot fail: the data of `mount(2)` is a page at most, so its
//! paths and their bytes are some 200 KiB in the worst case (a list of one letter each), made by a
//! caller with the right to mount.

use alloc::vec::Vec;

/// Returns the paths of a list of lower directories, topmost first: separated by `:`; a `\` makes
/// the next character an ordinary one. `None` when the list has an empty path.
pub fn lower_paths(list: &[u8]) -> Option<Vec<Vec<u8>>> {
    let mut paths = Vec::new();
    let mut path = Vec::new();
    let mut bytes = list.iter();
    while let Some(&byte) = bytes.next() {
        match byte {
            b'\\' => path.push(*bytes.next().unwrap_or(&b'\\')),
            b':' if path.is_empty() => return None,
            b':' => paths.push(core::mem::take(&mut path)),
            _ => path.push(byte),
        }
    }
    if path.is_empty() {
        return None;
    }
    paths.push(path);
    Some(paths)
}

/// Removes the `\` before characters of a path that is not a list.
pub fn unescape(path: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(path.len());
    let mut bytes = path.iter();
    while let Some(&byte) = bytes.next() {
        plain.push(if byte == b'\\' { *bytes.next().unwrap_or(&b'\\') } else { byte });
    }
    plain
}
