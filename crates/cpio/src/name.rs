//! How an entry's name turns into a path below the root.

/// Returns the components of an entry's name, as they are walked below the root: empty ones and `.`
/// are left out, so `./etc//passwd` gives `etc`, `passwd`.
///
/// Returns `None` for a name with a `..` component or a zero byte: an archive may not name a file
/// outside the tree that it is unpacked to.
pub fn components(name: &[u8]) -> Option<impl Iterator<Item = &[u8]> + Clone> {
    let parts = name.split(|&byte| byte == b'/').filter(|part| !part.is_empty() && *part != b".");
    if name.contains(&0) || parts.clone().any(|part| part == b"..") {
        return None;
    }
    Some(parts)
}
