//! Random trees, random paths: compares the walk with a second implementation of
//! path_resolution(7).
//!
//! The model is recursive, keeps a list of names and goes back to the root for every link, as the
//! manual page describes it; the walk does none of this. Both must end at the same place or with
//! the same error. In addition, texts of any bytes must never cause a panic, and the boundaries of
//! `RESOLVE_BENEATH` and `RESOLVE_IN_ROOT` must hold.
//!
//! `FUZZ_ROUNDS` sets how many trees are tried (default 4,000, a second or two) and `FUZZ_SEED` the
//! first one; a failure prints both, the tree and the path.

use std::collections::BTreeMap;

use hayate_abi::Errno;
use hayate_fuzzing::{Random, rounds, seed};
use hayate_path_walk::{
    Ending, EntryKind, Hold, LINKS_MAX, NAME_MAX, Parent, Target, Tree, Walk, WalkFlags, resolve,
};
use proptest::prelude::*;

type Result<T> = std::result::Result<T, Errno>;

#[derive(Debug, Clone)]
enum File {
    Directory {
        names: BTreeMap<Vec<u8>, usize>,
        parent: usize,
        searchable: bool,
    },
    Link(Vec<u8>),
    /// A link to a place, as in `/proc/PID/fd`.
    Jump(Spot),
    Other,
}

/// A file as reached through a mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Spot {
    mount: usize,
    file: usize,
}

#[derive(Debug, Clone)]
struct Mount {
    root: usize,
    /// Where it is mounted; the first one nowhere.
    at: Option<Spot>,
    no_links: bool,
}

#[derive(Debug)]
struct Forest {
    files: Vec<File>,
    mounts: Vec<Mount>,
    root: Spot,
    start: Spot,
}

impl Forest {
    fn over(&self, spot: Spot) -> Option<Spot> {
        let mount = self.mounts.iter().position(|mount| mount.at == Some(spot))?;
        Some(Spot { mount, file: self.mounts[mount].root })
    }

    /// Whether a directory lies in the part of the files that its mount shows.
    fn shows(&self, spot: Spot) -> bool {
        let mut file = spot.file;
        loop {
            match self.files[file] {
                _ if file == self.mounts[spot.mount].root => return true,
                File::Directory { parent, .. } if parent != file => file = parent,
                _ => return false,
            }
        }
    }

    fn above(&self, spot: Spot) -> Option<Spot> {
        let mount = &self.mounts[spot.mount];
        if mount.root == spot.file { mount.at } else { None }
    }
}

impl Tree for Forest {
    type Place = Spot;
    type Directory = BTreeMap<Vec<u8>, usize>;
    type Entry = usize;
    type Name = Vec<u8>;

    fn root(&self) -> Spot {
        self.root
    }
    fn start(&self) -> Spot {
        self.start
    }
    fn is_root(&self, place: &Spot) -> bool {
        *place == self.root
    }
    fn same(&self, one: &Spot, other: &Spot) -> bool {
        one == other
    }
    fn same_mount(&self, one: &Spot, other: &Spot) -> bool {
        one.mount == other.mount
    }
    fn search(&self, here: &Spot) -> Result<Self::Directory> {
        match &self.files[here.file] {
            File::Directory { searchable: false, .. } => Err(Errno::EACCES),
            File::Directory { names, .. } => Ok(names.clone()),
            _ => Err(Errno::ENOTDIR),
        }
    }
    fn lookup(
        &self,
        _: &Spot,
        directory: &Self::Directory,
        name: &[u8],
    ) -> Result<(usize, EntryKind)> {
        assert!(name.len() <= NAME_MAX && !name.is_empty() && name != b"." && name != b"..");
        assert!(!name.contains(&b'/'));
        let file = *directory.get(name).ok_or(Errno::ENOENT)?;
        let kind = match self.files[file] {
            File::Directory { .. } => EntryKind::Directory,
            File::Link(_) | File::Jump(_) => EntryKind::Link,
            File::Other => EntryKind::Other,
        };
        Ok((file, kind))
    }
    fn step(&self, here: &mut Spot, entry: usize) {
        here.file = entry;
    }
    fn covering(&self, here: &Spot) -> Option<Spot> {
        let root = self.over(*here)?;
        Some(self.covering(&root).unwrap_or(root))
    }
    fn hold(&self, here: &Spot) -> Hold<Spot> {
        match self.files[here.file] {
            _ if self.mounts[here.mount].root == here.file => {
                self.above(*here).map_or(Hold::Nothing, Hold::Mount)
            }
            File::Directory { parent, .. } => {
                let parent = Spot { file: parent, ..*here };
                if self.shows(parent) { Hold::Directory(parent) } else { Hold::Lost }
            }
            _ => Hold::Nothing,
        }
    }
    fn follow(&self, here: &Spot, entry: &usize) -> Result<Target<Spot>> {
        if self.mounts[here.mount].no_links {
            return Err(Errno::ELOOP);
        }
        match &self.files[*entry] {
            File::Link(text) => Ok(Target::Text(text.clone())),
            File::Jump(spot) => Ok(Target::Place(*spot)),
            _ => Err(Errno::EINVAL),
        }
    }
    fn is_directory(&self, here: &Spot) -> Result<bool> {
        Ok(matches!(self.files[here.file], File::Directory { .. }))
    }
}

/// The second implementation.
struct Model<'a> {
    forest: &'a Forest,
    flags: WalkFlags,
    fence: Option<Spot>,
    links: u32,
}

impl Model<'_> {
    fn names(path: &[u8]) -> Vec<Vec<u8>> {
        path.split(|&byte| byte == b'/').filter(|n| !n.is_empty()).map(<[u8]>::to_vec).collect()
    }

    fn has(&self, flag: WalkFlags) -> bool {
        self.flags.contains(flag)
    }

    /// Returns the parent directory of `here`. For the root of a mount, this is the parent of the
    /// directory it is mounted on. `None` at the root, which is its own parent.
    fn holder(&self, here: Spot) -> Option<Spot> {
        if here == self.fence.unwrap_or(self.forest.root) {
            return None;
        }
        if self.forest.mounts[here.mount].root == here.file {
            return self.holder(self.forest.above(here)?);
        }
        match self.forest.files[here.file] {
            File::Directory { parent, .. } => Some(Spot { file: parent, ..here }),
            _ => panic!("`..` in {here:?}, which is no directory"),
        }
    }

    /// Follows `..` from `here`, and steps onto mounts on the result.
    fn up(&self, here: Spot) -> Result<Spot> {
        let holder = self.holder(here);
        let to = match holder {
            None if self.has(WalkFlags::BENEATH) => return Err(Errno::EXDEV),
            None => here,
            Some(to) if !self.forest.shows(to) => return Err(Errno::ENOENT),
            Some(to) => to,
        };
        let top = self.onto(to);
        let crossed = top != to || to.mount != here.mount;
        if crossed && self.has(WalkFlags::NO_XDEV) { Err(Errno::EXDEV) } else { Ok(top) }
    }

    fn onto(&self, here: Spot) -> Spot {
        match self.forest.over(here) {
            Some(root) => self.onto(root),
            None => here,
        }
    }

    /// Returns the place that `names` lead to from `here`; `slash`: the path ended in a slash.
    fn go(&mut self, here: Spot, names: &[Vec<u8>], slash: bool) -> Result<Spot> {
        let Some((name, rest)) = names.split_first() else { return Ok(here) };
        let File::Directory { names: entries, searchable, .. } = &self.forest.files[here.file]
        else {
            return Err(Errno::ENOTDIR);
        };
        if !searchable {
            return Err(Errno::EACCES);
        }
        if name == b"." {
            return self.go(here, rest, slash);
        }
        if name == b".." {
            let up = self.up(here)?;
            return self.go(up, rest, slash);
        }
        if name.len() > 255 {
            return Err(Errno::ENAMETOOLONG);
        }
        let file = *entries.get(name).ok_or(Errno::ENOENT)?;
        let last = rest.is_empty();
        let must = last && (slash || self.has(WalkFlags::DIRECTORY));
        let follow = !last || slash || !self.has(WalkFlags::NOFOLLOW);
        match &self.forest.files[file] {
            File::Link(_) | File::Jump(_) if follow => self.follow(here, file, rest, slash),
            found => {
                let directory = matches!(found, File::Directory { .. });
                let link = matches!(found, File::Link(_) | File::Jump(_));
                if link && self.has(WalkFlags::DIRECTORY) {
                    return Err(Errno::ENOTDIR);
                }
                let place = Spot { file, ..here };
                let top = self.onto(place);
                if top != place {
                    if self.has(WalkFlags::NO_XDEV) {
                        return Err(Errno::EXDEV);
                    }
                } else if must && !directory {
                    return Err(Errno::ENOTDIR);
                }
                self.go(top, rest, slash)
            }
        }
    }

    /// Goes on through a link in the directory `here`.
    fn follow(&mut self, here: Spot, link: usize, rest: &[Vec<u8>], slash: bool) -> Result<Spot> {
        let last = rest.is_empty();
        self.links += 1;
        if self.links > LINKS_MAX
            || self.has(WalkFlags::NO_SYMLINKS)
            || self.forest.mounts[here.mount].no_links
        {
            return Err(Errno::ELOOP);
        }
        match &self.forest.files[link] {
            File::Jump(to) => {
                if self.has(WalkFlags::NO_MAGIC_LINKS) {
                    return Err(Errno::ELOOP);
                }
                let crosses = self.has(WalkFlags::NO_XDEV) && to.mount != here.mount;
                if self.fence.is_some() || crosses {
                    return Err(Errno::EXDEV);
                }
                let must = last && (slash || self.has(WalkFlags::DIRECTORY));
                let there = matches!(self.forest.files[to.file], File::Directory { .. });
                if must && !there { Err(Errno::ENOTDIR) } else { self.go(*to, rest, slash) }
            }
            File::Link(text) => {
                if text.is_empty() {
                    return Err(Errno::ENOENT);
                }
                let mut from = here;
                if text[0] == b'/' {
                    if self.has(WalkFlags::BENEATH) {
                        return Err(Errno::EXDEV);
                    }
                    from = self.fence.unwrap_or(self.forest.root);
                    if self.has(WalkFlags::NO_XDEV) && from.mount != here.mount {
                        return Err(Errno::EXDEV);
                    }
                }
                // The new text is joined with the remaining names.
                let mut all = Model::names(text);
                all.extend_from_slice(rest);
                let ends = if last { slash || text.ends_with(b"/") } else { slash };
                self.go(from, &all, ends)
            }
            _ => unreachable!("the caller found a link"),
        }
    }
}

fn model(forest: &Forest, path: &[u8], flags: WalkFlags) -> Result<Spot> {
    if path.is_empty() {
        return if flags.contains(WalkFlags::EMPTY) {
            Ok(forest.start)
        } else {
            Err(Errno::ENOENT)
        };
    }
    let fenced = flags.intersects(WalkFlags::BENEATH | WalkFlags::IN_ROOT);
    let absolute = path[0] == b'/';
    if absolute && flags.contains(WalkFlags::BENEATH) {
        return Err(Errno::EXDEV);
    }
    let from = if absolute && !fenced { forest.root } else { forest.start };
    let mut model = Model { forest, flags, fence: fenced.then_some(from), links: 0 };
    model.go(from, &Model::names(path), path.ends_with(b"/"))
}

const NAMES: &[&[u8]] = &[b"a", b"b", b"...", b"\xff\xfe"];

fn random_path(random: &mut Random) -> Vec<u8> {
    let mut path = Vec::new();
    if random.one_in(4) {
        path.push(b'/');
    }
    for n in 0..random.below(7) {
        if n > 0 {
            path.resize(path.len() + 1 + random.below(8) / 6, b'/');
        }
        match random.below(12) {
            0 | 1 => path.extend_from_slice(b".."),
            2 => path.push(b'.'),
            3 if random.one_in(8) => path.resize(path.len() + 250 + random.below(10), b'x'),
            _ => path.extend_from_slice(random.pick(NAMES)),
        }
    }
    if random.one_in(5) {
        path.push(b'/');
    }
    path
}

/// Mounts of trees, of which `tree_of` names that of each file.
fn random_mounts(
    random: &mut Random,
    files: &[File],
    tree_of: &[usize],
    trees: usize,
) -> Vec<Mount> {
    let is_directory = |file: &usize| matches!(files[*file], File::Directory { .. });
    let mut mounts = vec![Mount { root: 0, at: None, no_links: random.one_in(30) }];
    for tree in 1..trees {
        // Onto a directory of a tree that is already mounted, on which nothing is mounted yet.
        let mount = random.below(mounts.len());
        let within = tree_of[mounts[mount].root];
        let choices: Vec<usize> =
            (0..files.len()).filter(|f| tree_of[*f] == within).filter(is_directory).collect();
        let at = Spot { mount, file: choices[random.below(choices.len())] };
        if mounts.iter().all(|other| other.at != Some(at)) {
            mounts.push(Mount { root: tree, at: Some(at), no_links: random.one_in(30) });
        }
    }
    mounts
}

fn random_forest(random: &mut Random) -> Forest {
    let directory = |parent| File::Directory { names: BTreeMap::new(), parent, searchable: true };
    let trees = 1 + random.below(3);
    let mut files: Vec<File> = (0..trees).map(directory).collect();
    let mut tree_of: Vec<usize> = (0..trees).collect();
    for _ in 0..4 + random.below(40) {
        let parents: Vec<usize> = (0..files.len())
            .filter(|&file| matches!(files[file], File::Directory { .. }))
            .collect();
        let parent = parents[random.below(parents.len())];
        let new = match random.below(8) {
            0..=3 => {
                File::Directory { names: BTreeMap::new(), parent, searchable: !random.one_in(12) }
            }
            4 | 5 => File::Link(random_path(random)),
            6 if random.one_in(2) => File::Jump(Spot { mount: 0, file: 0 }),
            _ => File::Other,
        };
        let child = files.len();
        let name = random.pick(NAMES).to_vec();
        if let File::Directory { names, .. } = &mut files[parent]
            && !names.contains_key(&name)
        {
            names.insert(name, child);
            files.push(new);
            tree_of.push(tree_of[parent]);
        }
    }
    let is_directory = |file: &usize| matches!(files[*file], File::Directory { .. });
    let mounts = random_mounts(random, &files, &tree_of, trees);
    let spots: Vec<Spot> = (0..mounts.len())
        .flat_map(|mount| {
            let within = tree_of[mounts[mount].root];
            let tree_of = &tree_of;
            (0..files.len())
                .filter(move |file| tree_of[*file] == within)
                .map(move |file| Spot { mount, file })
        })
        .collect();
    let directories: Vec<Spot> =
        spots.iter().copied().filter(|spot| is_directory(&spot.file)).collect();
    for file in &mut files {
        if let File::Jump(to) = file {
            *to = spots[random.below(spots.len())];
        }
    }
    let mut forest =
        Forest { files, mounts, root: Spot { mount: 0, file: 0 }, start: directories[0] };
    if random.one_in(3) {
        // A root below the first one, as after chroot(2): `..` must not leave it.
        forest.root = directories[random.below(directories.len())];
    }
    forest.root = forest.covering(&forest.root).unwrap_or(forest.root);
    let start = directories[random.below(directories.len())];
    // As a program sees it that opened the directory before, or after, something was mounted there.
    forest.start = if random.one_in(3) { start } else { forest.covering(&start).unwrap_or(start) };
    forest
}

fn random_flags(random: &mut Random) -> WalkFlags {
    let mut flags = WalkFlags::empty();
    for flag in WalkFlags::all() {
        if random.one_in(6) {
            flags |= flag;
        }
    }
    flags
}

#[test]
fn the_walk_and_the_manual_page_come_to_the_same_place() {
    let (rounds, seed) = (rounds(4_000), seed());
    let (mut arrived, mut linked) = (0, 0);
    for round in 0..rounds {
        let mut random = Random::new(seed << 32 ^ round);
        let forest = random_forest(&mut random);
        for _ in 0..50 {
            let path = random_path(&mut random);
            let flags = random_flags(&mut random);
            let expected = model(&forest, &path, flags);
            let found = resolve(&forest, &path, flags);
            assert_eq!(
                found,
                expected,
                "FUZZ_SEED={seed}, tree {round}: {:?} with {flags:?} in {forest:#?}",
                String::from_utf8_lossy(&path)
            );
            arrived += u64::from(found.is_ok());
            linked += u64::from(found == Err(Errno::ELOOP));
        }
    }
    // A test of errors only would prove little.
    assert!(arrived > rounds * 5, "only {arrived} paths led anywhere");
    assert!(linked > rounds / 10, "only {linked} paths went in circles");
}

#[test]
fn the_parent_and_the_name_make_the_place() {
    let (rounds, seed) = (rounds(4_000), seed());
    for round in 0..rounds {
        let mut random = Random::new(seed << 32 ^ round ^ 1 << 63);
        let forest = random_forest(&mut random);
        for _ in 0..20 {
            let path = random_path(&mut random);
            let place = resolve(&forest, &path, WalkFlags::NOFOLLOW);
            let parent = Walk::begin(&forest, &path, WalkFlags::empty())
                .and_then(|mut walk| walk.parent(&path));
            let Ok(Parent { directory, name, ending, slash }) = parent else {
                assert_eq!(place, parent.map(|p| p.directory), "{path:?} in {forest:#?}");
                continue;
            };
            let Some(name) = name else {
                assert_ne!(ending, Ending::Name);
                assert_eq!(place, Ok(directory), "{path:?} in {forest:#?}");
                continue;
            };
            let mut again = Forest { start: directory, ..forest_of(&forest) };
            again.root = forest.root;
            let mut text = b"./".to_vec();
            text.extend_from_slice(&name);
            assert_eq!(text.len(), name.len() + 2);
            if slash {
                text.push(b'/');
            }
            let second = resolve(&again, &text, WalkFlags::NOFOLLOW);
            if slash && path.len() > name.len() && place == Err(Errno::ELOOP) {
                // Links before the parent and those after it count together.
                continue;
            }
            assert_eq!(second, place, "{path:?} in {forest:#?}");
        }
    }
}

fn forest_of(other: &Forest) -> Forest {
    Forest {
        files: other.files.clone(),
        mounts: other.mounts.clone(),
        root: other.root,
        start: other.start,
    }
}

/// Two directories, a chain of `n` links, and one that points to itself.
fn chain(n: usize) -> Forest {
    let mut names: BTreeMap<Vec<u8>, usize> = BTreeMap::new();
    let mut files = vec![File::Other, File::Other];
    names.insert(b"end".to_vec(), 1);
    for link in 0..n {
        let target =
            if link == 0 { b"end".to_vec() } else { format!("l{}", link - 1).into_bytes() };
        names.insert(format!("l{link}").into_bytes(), files.len());
        files.push(File::Link(target));
    }
    names.insert(b"self".to_vec(), files.len());
    files.push(File::Link(b"self".to_vec()));
    files[0] = File::Directory { names, parent: 0, searchable: true };
    let top = Spot { mount: 0, file: 0 };
    Forest {
        files,
        mounts: vec![Mount { root: 0, at: None, no_links: false }],
        root: top,
        start: top,
    }
}

#[test]
fn forty_links_are_followed_and_no_more() {
    let forest = chain(41);
    assert_eq!(resolve(&forest, b"l39", WalkFlags::empty()), Ok(Spot { mount: 0, file: 1 }));
    assert_eq!(resolve(&forest, b"l40", WalkFlags::empty()), Err(Errno::ELOOP));
    assert_eq!(resolve(&forest, b"self", WalkFlags::empty()), Err(Errno::ELOOP));
    assert!(resolve(&forest, b"self", WalkFlags::NOFOLLOW).is_ok());
}

#[test]
fn a_directory_that_was_moved_out_of_its_mount_has_no_parent() {
    let directory = |names: &[(&[u8], usize)], parent| File::Directory {
        names: names.iter().map(|(name, file)| (name.to_vec(), *file)).collect(),
        parent,
        searchable: true,
    };
    // The second mount shows `a`, from which `c` was moved to `b`.
    let mut forest = Forest {
        files: vec![
            directory(&[(b"a", 1), (b"b", 3), (b"m", 4)], 0),
            directory(&[], 0),
            directory(&[], 3),
            directory(&[(b"c", 2)], 0),
            directory(&[], 0),
        ],
        mounts: vec![
            Mount { root: 0, at: None, no_links: false },
            Mount { root: 1, at: Some(Spot { mount: 0, file: 4 }), no_links: false },
        ],
        root: Spot { mount: 0, file: 0 },
        start: Spot { mount: 1, file: 2 },
    };
    assert_eq!(resolve(&forest, b".", WalkFlags::empty()), Ok(forest.start));
    for path in [b"..".as_slice(), b"../b", b"../../a"] {
        assert_eq!(resolve(&forest, path, WalkFlags::empty()), Err(Errno::ENOENT));
        assert_eq!(model(&forest, path, WalkFlags::empty()), Err(Errno::ENOENT));
    }
    forest.start.mount = 0;
    let parent = Ok(Spot { mount: 0, file: 3 });
    assert_eq!(resolve(&forest, b"..", WalkFlags::empty()), parent);
}

#[test]
fn a_name_has_at_most_255_bytes() {
    let forest = chain(0);
    let name = vec![b'x'; NAME_MAX];
    assert_eq!(resolve(&forest, &name, WalkFlags::empty()), Err(Errno::ENOENT));
    let name = vec![b'x'; NAME_MAX + 1];
    assert_eq!(resolve(&forest, &name, WalkFlags::empty()), Err(Errno::ENAMETOOLONG));
    // The parent of a name that is too long is found: other errors of its directory come first.
    let parent = Walk::begin(&forest, &name, WalkFlags::empty()).and_then(|mut w| w.parent(&name));
    assert_eq!(parent.map(|parent| parent.name), Ok(Some(name)));
}

proptest! {
    /// Checks that any bytes yield a result, and with a boundary a place within it.
    #[test]
    fn any_text_gets_an_answer(
        path in proptest::collection::vec(any::<u8>(), 0..300),
        bits in any::<u32>(),
        tree in any::<u64>(),
    ) {
        let forest = random_forest(&mut Random::new(tree));
        let flags = WalkFlags::from_bits_truncate(bits);
        let found = resolve(&forest, &path, flags);
        prop_assert_eq!(&found, &model(&forest, &path, flags));
        let _ = Walk::begin(&forest, &path, flags).and_then(|mut walk| walk.parent(&path));
    }

    /// Checks that, for any path, `RESOLVE_BENEATH` and `RESOLVE_IN_ROOT` end at or below the
    /// start.
    #[test]
    fn fences_hold(choice in any::<u64>(), beneath in any::<bool>()) {
        let mut random = Random::new(choice);
        let forest = random_forest(&mut random);
        let flag = if beneath { WalkFlags::BENEATH } else { WalkFlags::IN_ROOT };
        for _ in 0..20 {
            let path = random_path(&mut random);
            let Ok(mut here) = resolve(&forest, &path, flag) else { continue };
            // Go up from the place, without any boundary, until the start is reached.
            let mut steps = 0;
            while here != forest.start {
                here = match forest.above(here) {
                    Some(at) => at,
                    None => {
                        let up = holder(&forest, here);
                        prop_assert!(up.is_some(), "{:?} left {:?}", path, forest);
                        up.unwrap_or(here)
                    }
                };
                steps += 1;
                prop_assert!(steps < 100);
            }
        }
    }
}

/// The directory whose table has this file, in its mount.
fn holder(forest: &Forest, here: Spot) -> Option<Spot> {
    forest.files.iter().enumerate().find_map(|(n, file)| match file {
        File::Directory { names, .. } if names.values().any(|child| *child == here.file) => {
            Some(Spot { file: n, ..here })
        }
        _ => None,
    })
}
