//! The path of a group as a program in a cgroup namespace sees it: from the root of the namespace,
//! with `/..` for each group that leads out of it (`kernfs_path_from_node`).

/// The parts of the path of the group `to` from `from`, both given from the root of the hierarchy
/// (`/` or `/a/b`): how many groups up, and the rest of the path, which is empty or begins with a
/// slash. Both empty: the path is `/`.
pub fn relative<'a>(to: &'a [u8], from: &[u8]) -> (usize, &'a [u8]) {
    let (to, from) = (trimmed(to), trimmed(from));
    let mut common = 0;
    let mut at = 0;
    // To the end of each name of `from`, as long as `to` has the same.
    for name in from.split(|&byte| byte == b'/').skip(1) {
        let end = at + 1 + name.len();
        let same = to.get(at..end).is_some_and(|part| part.get(1..) == Some(name));
        if !same || to.get(end).is_some_and(|&byte| byte != b'/') {
            break;
        }
        common += 1;
        at = end;
    }
    let depth = from.split(|&byte| byte == b'/').skip(1).count();
    (depth - common, to.get(at..).unwrap_or_default())
}

/// Without the slash of the root.
fn trimmed(path: &[u8]) -> &[u8] {
    if path == b"/" { b"" } else { path }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::String;

    fn shown(to: &str, from: &str) -> String {
        let (up, rest) = relative(to.as_bytes(), from.as_bytes());
        let text = "/..".repeat(up) + str::from_utf8(rest).unwrap();
        if text.is_empty() { String::from("/") } else { text }
    }

    #[test]
    fn paths_begin_at_the_namespace() {
        for (to, from, wanted) in [
            ("/", "/", "/"),
            ("/a/b", "/", "/a/b"),
            ("/a/b", "/a", "/b"),
            ("/a/b", "/a/b", "/"),
            ("/a", "/a/b", "/.."),
            ("/", "/a/b", "/../.."),
            ("/a/c", "/a/b", "/../c"),
            ("/ab", "/a", "/../ab"),
            ("/a", "/ab", "/../a"),
            ("/a/bc/d", "/a/b", "/../bc/d"),
            ("/c", "/a/b", "/../../c"),
        ] {
            assert_eq!(shown(to, from), wanted, "{to} from {from}");
        }
    }
}
