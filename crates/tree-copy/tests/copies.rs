//! Copies between folders of this machine, and streams that no honest sender makes.

use hayate_fuzzing::{Random, rounds, seed};
use hayate_tree_copy::{Target, pack, source, unpack};
use std::fs::{Permissions, create_dir_all, read, read_link, write};
use std::io::Result;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

fn target(path: &Path, name: &str, contents: bool) -> Target {
    Target {
        path: path.into(),
        name: name.into(),
        contents,
        keep_set_id: false,
        keep_owners: false,
    }
}

fn packed(from: &Path) -> Vec<u8> {
    let mut bytes = Vec::new();
    pack(from, false, &mut bytes, |_| ()).unwrap();
    bytes
}

/// Copies as the command does.
fn copy(from: &Path, to: &Path) -> Result<()> {
    let (name, contents) = source(from)?;
    let mut bytes = Vec::new();
    pack(from, false, &mut bytes, |_| ())?;
    unpack(&bytes[..], &target(to, name.to_str().unwrap(), contents), |_| ())
}

fn tree(place: &Path) -> PathBuf {
    let root = place.join("tree");
    create_dir_all(root.join("deep/er")).unwrap();
    write(root.join("file"), b"content\n").unwrap();
    write(root.join("deep/er/empty"), b"").unwrap();
    write(root.join("deep/program"), vec![7; 100_000]).unwrap();
    std::fs::set_permissions(root.join("deep/program"), Permissions::from_mode(0o4755)).unwrap();
    std::fs::set_permissions(root.join("deep/er"), Permissions::from_mode(0o500)).unwrap();
    symlink("../file", root.join("deep/link")).unwrap();
    symlink("/nowhere", root.join("dangling")).unwrap();
    write(root.join("x".repeat(200)), b"long").unwrap();
    root
}

fn is_tree(root: &Path) {
    assert_eq!(read(root.join("file")).unwrap(), b"content\n");
    assert_eq!(read(root.join("deep/link")).unwrap(), b"content\n");
    assert_eq!(read(root.join("deep/program")).unwrap(), vec![7; 100_000]);
    assert_eq!(read(root.join("deep/er/empty")).unwrap(), b"");
    assert_eq!(read(root.join("x".repeat(200))).unwrap(), b"long");
    assert_eq!(read_link(root.join("dangling")).unwrap(), Path::new("/nowhere"));
    let mode = |path: &str| root.join(path).metadata().unwrap().permissions().mode() & 0o7777;
    assert_eq!((mode("deep/program"), mode("deep/er")), (0o755, 0o500));
}

#[test]
fn a_folder_gets_the_place_that_docker_gives_it() {
    let place = tempfile::tempdir().unwrap();
    let (root, at) = (tree(place.path()), |name: &str| place.path().join(name));
    copy(&root, &at("new")).unwrap();
    is_tree(&at("new"));
    create_dir_all(at("old")).unwrap();
    write(at("old/stays"), b"").unwrap();
    copy(&root, &at("old")).unwrap();
    is_tree(&at("old/tree"));
    // Once more, over what is there.
    copy(&root, &at("old/")).unwrap();
    is_tree(&at("old/tree"));
    copy(&root.join("."), &at("old")).unwrap();
    is_tree(&at("old"));
    assert!(at("old/stays").exists());
    let told = copy(&root, &root.join("file")).unwrap_err().to_string();
    assert!(told.contains("it is no folder"), "{told}");
    assert!(copy(&root, &at("no/where")).is_err());
}

#[test]
fn a_file_gets_the_place_that_docker_gives_it() {
    let place = tempfile::tempdir().unwrap();
    let (root, at) = (tree(place.path()), |name: &str| place.path().join(name));
    copy(&root.join("file"), &at("new")).unwrap();
    copy(&root.join("deep/program"), &at("new")).unwrap();
    assert_eq!(read(at("new")).unwrap().len(), 100_000);
    copy(&root.join("file"), &at("tree/deep")).unwrap();
    assert_eq!(read(at("tree/deep/file")).unwrap(), b"content\n");
    let told = copy(&root.join("file"), &at("none/")).unwrap_err().to_string();
    assert!(told.contains("there is no such folder"), "{told}");
    assert!(copy(&root.join("none"), &at("new")).is_err());
    // A link is copied as one, and one that is in the way is replaced, not followed.
    symlink(at("new"), at("way")).unwrap();
    copy(&root.join("deep/link"), &at("copied")).unwrap();
    assert_eq!(read_link(at("copied")).unwrap(), Path::new("../file"));
    copy(&root.join("file"), &at("way")).unwrap();
    assert_eq!(read(at("new")).unwrap().len(), 100_000);
}

/// An archive with these entries: name, kind, link's target or content.
fn stream(entries: &[(&str, tar::EntryType, &str)]) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    for &(name, kind, text) in entries {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(kind);
        header.set_mode(0o755);
        let is_link = matches!(kind, tar::EntryType::Symlink | tar::EntryType::Link);
        header.set_size(if is_link { 0 } else { text.len() as u64 });
        // As the format has it, for `tar` refuses to write such names.
        header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
        if is_link {
            header.as_old_mut().linkname[..text.len()].copy_from_slice(text.as_bytes());
        }
        header.set_cksum();
        builder.append(&header, if is_link { &[][..] } else { text.as_bytes() }).unwrap();
    }
    builder.into_inner().unwrap()
}

#[test]
fn nothing_comes_out_of_the_folder() {
    use tar::EntryType::{Char, Directory, Link, Regular, Symlink};
    let place = tempfile::tempdir().unwrap();
    let outside = place.path().join("outside");
    create_dir_all(&outside).unwrap();
    write(outside.join("own"), b"own").unwrap();
    let out = outside.to_str().unwrap();
    let through = format!("{out}/own");
    let streams = [
        stream(&[(".", Directory, ""), ("../outside/new", Regular, "x")]),
        stream(&[(".", Directory, ""), ("a/../../outside/new", Regular, "x")]),
        stream(&[(".", Directory, ""), (&format!("{out}/new"), Regular, "x")]),
        stream(&[(".", Directory, ""), ("a", Symlink, out), ("a/new", Regular, "x")]),
        stream(&[(".", Directory, ""), ("a", Symlink, out), ("a/new", Directory, "")]),
        stream(&[(".", Directory, ""), ("a", Symlink, &through), ("a", Regular, "x")]),
        stream(&[(".", Directory, ""), ("a", Link, &through), ("a", Regular, "x")]),
        stream(&[(".", Directory, ""), ("a", Char, "")]),
        stream(&[("file", Regular, "x"), ("../outside/new", Regular, "x")]),
        stream(&[("../outside/new", Regular, "x")]),
        stream(&[("file", Link, &through)]),
        stream(&[("file", Char, "")]),
        Vec::new(),
    ];
    for (index, bytes) in streams.iter().enumerate() {
        let to = place.path().join(format!("in-{index}"));
        let _ = unpack(&bytes[..], &target(&to, "name", false), |_| ());
        assert_eq!(outside.read_dir().unwrap().count(), 1, "stream {index}");
        assert_eq!(read(outside.join("own")).unwrap(), b"own", "stream {index}");
        assert!(!place.path().join("new").exists(), "stream {index}");
    }
    for name in ["..", ".", "a/b", "/etc", ""] {
        let bytes = packed(&outside);
        let wrong = target(place.path(), name, false);
        assert!(unpack(&bytes[..], &wrong, |_| ()).is_err(), "{name}");
    }
}

/// Mutated streams are unpacked or refused, and touch nothing outside.
#[test]
fn mutated_streams_stay_inside() {
    let place = tempfile::tempdir().unwrap();
    let outside = place.path().join("outside");
    create_dir_all(outside.join("in")).unwrap();
    let corpus = [packed(&tree(place.path())), packed(&place.path().join("tree/file"))];
    std::fs::set_permissions(place.path().join("tree/deep/er"), Permissions::from_mode(0o700))
        .unwrap();
    std::fs::remove_dir_all(place.path().join("tree")).unwrap();
    let first = seed();
    for round in 0..rounds(300) {
        let mut random = Random::new(first + round);
        let mut bytes = corpus[random.below(2)].clone();
        for _ in 0..=random.below(6) {
            let at = random.below(bytes.len());
            match random.below(4) {
                0 => bytes[at] ^= 1 << random.below(8),
                1 => bytes[at] = b"./0\0"[random.below(4)],
                2 => bytes.truncate(at + 1),
                _ => bytes[at] = random.word() as u8,
            }
        }
        let to = outside.join(format!("in/{round}"));
        let _ = unpack(&bytes[..], &target(&to, "name", false), |_| ());
        let left = place.path().read_dir().unwrap().count();
        assert_eq!((left, outside.read_dir().unwrap().count()), (1, 1), "seed {}", first + round);
    }
}
