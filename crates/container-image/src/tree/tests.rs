use super::*;
use proptest::prelude::*;
use std::collections::BTreeSet;

fn head(path: &str, kind: Kind) -> Head {
    let path = path.as_bytes().to_vec();
    Head { index: 0, path, kind, mode: 0o700, user: 1, group: 2, time: 3, attributes: Vec::new() }
}

const FILE: Kind = Kind::File { size: 1 };

fn link(path: &str) -> Kind {
    Kind::Symlink(path.as_bytes().to_vec())
}

/// A tree of layers of (path, kind).
fn tree(layers: &[&[(&str, Kind)]]) -> Result<Tree> {
    let mut tree = Tree::new();
    for (layer, entries) in layers.iter().enumerate() {
        for (path, kind) in *entries {
            tree.apply(layer, head(path, kind.clone()))?;
        }
    }
    Ok(tree)
}

/// All paths of a tree.
fn paths(tree: &Tree) -> Vec<String> {
    let mut all = Vec::new();
    for id in tree.folders() {
        let path = String::from_utf8(tree.path(id)).unwrap();
        for name in tree.folder(id).unwrap().names.keys() {
            let name = std::str::from_utf8(name).unwrap();
            all.push(if path.is_empty() { name.into() } else { format!("{path}/{name}") });
        }
    }
    all.sort();
    all
}

fn told(layers: &[&[(&str, Kind)]]) -> String {
    tree(layers).err().map(|error| error.to_string()).unwrap_or_default()
}

#[test]
fn what_is_hidden_is_gone() {
    let lower: &[_] = &[("a/b", FILE), ("a/c", FILE), ("d", FILE)];
    let seen = |upper: &[(&str, Kind)]| paths(&tree(&[lower, upper]).unwrap());
    assert_eq!(seen(&[("a/.wh.b", FILE)]), ["a", "a/c", "d"]);
    assert_eq!(seen(&[(".wh.a", FILE)]), ["d"]);
    // Only what is of lower layers, in whatever order.
    assert_eq!(seen(&[("a/e", FILE), (".wh.a", FILE)]), ["a", "a/e", "d"]);
    assert_eq!(seen(&[(".wh.a", FILE), ("a/e", FILE)]), ["a", "a/e", "d"]);
    assert_eq!(seen(&[("a/e", FILE), ("a/.wh..wh..opq", FILE)]), ["a", "a/e", "d"]);
    assert_eq!(seen(&[("a/.wh..wh..opq", FILE)]), ["a", "d"]);
    assert_eq!(seen(&[("d", FILE), (".wh.d", FILE)]), ["a", "a/b", "a/c", "d"]);
    // What is not there, and what aufs keeps for itself.
    let same = ["a", "a/b", "a/c", "d"];
    assert_eq!(seen(&[("x/.wh.y", FILE), (".wh..wh.plnk", Kind::Folder)]), same);
    assert_eq!(seen(&[(".wh.x", FILE), ("x/.wh..wh..opq", FILE)]), same);
    for wrong in [".wh.", ".wh..", ".wh..."] {
        assert!(told(&[lower, &[(wrong, FILE)]]).contains("hides no name"), "{wrong}");
    }
}

#[test]
fn a_later_entry_replaces_an_earlier_one() {
    let lower: &[_] = &[("a/b", FILE), ("l", link("a"))];
    let kind = |upper: &[(&str, Kind)], path: &str| {
        let tree = tree(&[lower, upper]).unwrap();
        let known = tree.child(ROOT, path.as_bytes()).unwrap();
        (paths(&tree).len(), matches!(tree.node(known.node).content, Content::Folder(_)))
    };
    // A folder is merged with a folder, and nothing else with anything.
    assert_eq!(kind(&[("a", Kind::Folder)], "a"), (3, true));
    assert_eq!(kind(&[("a", FILE)], "a"), (2, false));
    assert_eq!(kind(&[("a", FILE), ("a", Kind::Folder)], "a"), (2, true));
    assert_eq!(kind(&[("l", Kind::Folder)], "l"), (3, true));
    assert_eq!(kind(&[("a", FILE), ("a", FILE)], "a"), (2, false));
}

#[test]
fn paths_lead_through_links_of_the_tree_only() {
    let usr: &[_] = &[("usr/bin", Kind::Folder), ("bin", link("usr/bin"))];
    let through = |entry: (&str, Kind)| paths(&tree(&[usr, &[entry]]).unwrap()).join(" ");
    assert_eq!(through(("bin/x", FILE)), "bin usr usr/bin usr/bin/x");
    assert_eq!(through(("/bin//./x", FILE)), "bin usr usr/bin usr/bin/x");
    let out: &[_] = &[("up", link("../../../../etc")), ("abs", link("/etc")), ("f", FILE)];
    let through = |entry: (&str, Kind)| paths(&tree(&[out, &[entry]]).unwrap()).join(" ");
    assert_eq!(through(("up/passwd", FILE)), "abs etc etc/passwd f up");
    assert_eq!(through(("abs/passwd", FILE)), "abs etc etc/passwd f up");
    assert_eq!(through(("abs/.wh.passwd", FILE)), "abs f up");
    assert!(told(&[out, &[("f/x", FILE)]]).contains("through a file"));
    assert!(told(&[&[("a", link("b")), ("b", link("a"))], &[("a/x", FILE)]]).contains("links"));
    assert!(told(&[&[("../x", FILE)]]).contains("leads out"));
    assert!(told(&[&[("a/../../x", FILE)]]).contains("leads out"));
    assert!(told(&[&[("/", FILE)]]).contains("the root is a folder"));
}

#[test]
fn folders_are_no_deeper_than_a_path_is_long() {
    let long = "y/".repeat(2000);
    let near = link(&format!("/{long}"));
    // A link shortens the path, not the place.
    let entries = [(&long[..], Kind::Folder), ("l", near)];
    assert!(told(&[&entries, &[(&format!("l/{long}"), FILE)]]).contains("longer"));
}

#[test]
fn hard_links_keep_their_file() {
    let hard = |path: &str| Kind::Link(path.as_bytes().to_vec());
    let lower: &[_] = &[("a", FILE), ("b", hard("/a")), ("b", hard("b")), ("s", link("a"))];
    let both = tree(&[lower, &[(".wh.a", FILE)]]).unwrap();
    assert_eq!(paths(&both), ["b", "s"]);
    let b = both.child(ROOT, b"b").unwrap().node;
    assert!(matches!(both.node(b).content, Content::File { layer: 0, .. }));
    // A link is linked itself.
    let linked = tree(&[lower, &[("t", hard("s"))]]).unwrap();
    assert_eq!(linked.child(ROOT, b"t").unwrap().node, linked.child(ROOT, b"s").unwrap().node);
    for wrong in ["x", "/", "d", "x/y", "../a"] {
        let entries: &[_] = &[("d", Kind::Folder), ("h", hard(wrong))];
        assert!(!told(&[lower, entries]).is_empty(), "{wrong}");
    }
}

/// Layers of a few names.
fn layers() -> impl Strategy<Value = Vec<Vec<(String, u8)>>> {
    let name = prop::sample::select(vec!["a", "b", "c"]);
    let path = prop::collection::vec(name, 1..4).prop_map(|parts| parts.join("/"));
    let entry = (path, 0..5_u8);
    prop::collection::vec(prop::collection::vec(entry, 0..8), 1..4)
}

/// The same by sets of paths, without links: what the specification says, word for word.
fn model(layers: &[Vec<(String, u8)>]) -> BTreeMap<String, (bool, usize)> {
    let mut all: BTreeMap<String, (bool, usize)> = BTreeMap::new();
    let below = |path: &str, of: &str| path.starts_with(&format!("{of}/"));
    for (layer, entries) in layers.iter().enumerate() {
        for (path, kind) in entries {
            let above: Vec<String> =
                path.match_indices('/').map(|(at, _)| path[..at].to_string()).collect();
            let (hide, opaque) = (*kind == 3, *kind == 4);
            if hide || opaque {
                let lower = |found: &str, of: usize| {
                    of < layer && (below(found, path) || hide && found == path)
                };
                let kept: BTreeSet<String> = all
                    .iter()
                    .filter(|(found, (_, of))| !lower(found, *of))
                    .map(|(found, _)| found.clone())
                    .collect();
                // Folders in which something is left.
                all.retain(|found, _| {
                    kept.contains(found) || kept.iter().any(|other| below(other, found))
                });
                continue;
            }
            for folder in above {
                all.entry(folder).or_insert((true, layer));
            }
            let folder = *kind == 0;
            let merged = folder && all.get(path).is_some_and(|(is, _)| *is);
            if !merged {
                all.retain(|found, _| !below(found, path));
            }
            all.insert(path.clone(), (folder, layer));
        }
    }
    all
}

proptest! {
    #[test]
    fn layers_make_what_the_specification_says(layers in layers()) {
        // Paths through files are refused, and not in the model.
        let mut tree = Tree::new();
        let mut applied = vec![Vec::new(); layers.len()];
        for (layer, entries) in layers.iter().enumerate() {
            for (path, kind) in entries {
                let (above, name) = path.rsplit_once('/').unwrap_or(("", path));
                let written = match kind {
                    3 => format!("{above}/.wh.{name}"),
                    4 => format!("{path}/.wh..wh..opq"),
                    _ => path.clone(),
                };
                let what = if *kind == 0 { Kind::Folder } else { FILE };
                if tree.apply(layer, head(&written, what)).is_ok() {
                    applied[layer].push((path.clone(), *kind));
                }
            }
        }
        let wanted: Vec<String> = model(&applied).into_keys().collect();
        prop_assert_eq!(paths(&tree), wanted);
    }
}
