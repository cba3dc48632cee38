//! Random operations on paths, each compared with a model of path_resolution(7).
//!
//! The model is a tree in memory with the rules of Linux 6.1 (`fs/namei.c`), errors and their order
//! included; it agrees with Linux itself, where this program runs first. Paths consist of few
//! names, `.`, `..`, doubled and trailing slashes, names of the greatest length and one more, and
//! lead through symbolic links to such paths, so that most of them reach something.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::process::exit;

use hayate_stress::{Ended, Options, Random, c_path, fork, wait};

const USAGE: &str = "pathfuzz [--seed N] [--count N]   (as root: it changes its root directory)
  --seed N     the seed (1)
  --count N    how many operations (100000)
Example: pathfuzz --seed 7 --count 1000";

type Id = usize;
type Outcome<T> = Result<T, i32>;

#[derive(Clone, Debug)]
enum Node {
    File { links: u64 },
    Link { text: String, links: u64 },
    Directory { parent: Id, names: BTreeMap<String, Id> },
}

/// How a path without an ordinary last name ends.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Last {
    Name,
    Root,
    Dot,
    DotDot,
}

/// The directory of a path's last name.
struct Parent {
    directory: Id,
    last: Last,
    name: String,
    slash: bool,
}

struct Model {
    nodes: Vec<Node>,
}

const ROOT: Id = 0;

impl Model {
    fn new() -> Self {
        Model { nodes: vec![Node::Directory { parent: ROOT, names: BTreeMap::new() }] }
    }

    fn names(&mut self, directory: Id) -> &mut BTreeMap<String, Id> {
        match &mut self.nodes[directory] {
            Node::Directory { names, .. } => names,
            other => panic!("no directory: {other:?}"),
        }
    }

    fn is_directory(&self, node: Id) -> bool {
        matches!(self.nodes[node], Node::Directory { .. })
    }

    fn find(&self, directory: Id, name: &str) -> Option<Id> {
        match &self.nodes[directory] {
            Node::Directory { names, .. } => names.get(name).copied(),
            _ => None,
        }
    }

    fn up(&self, directory: Id) -> Id {
        match self.nodes[directory] {
            Node::Directory { parent, .. } => parent,
            _ => directory,
        }
    }

    /// Walks to the parent of the last name, through links before it.
    fn parent_from(&self, mut here: Id, path: &str, links: &mut u32) -> Outcome<Parent> {
        if path.starts_with('/') {
            here = ROOT;
        }
        let slash = path.ends_with('/');
        let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
        let Some((last, before)) = parts.split_last() else {
            return Ok(Parent { directory: here, last: Last::Root, name: String::new(), slash });
        };
        for part in before {
            here = self.step(here, part, true, links)?;
            if !self.is_directory(here) {
                return Err(libc::ENOTDIR);
            }
        }
        let kind = match *last {
            "." => Last::Dot,
            ".." => Last::DotDot,
            _ => Last::Name,
        };
        Ok(Parent { directory: here, last: kind, name: (*last).into(), slash })
    }

    /// Follows one name from a directory.
    fn step(&self, here: Id, name: &str, follow: bool, links: &mut u32) -> Outcome<Id> {
        match name {
            "." => return Ok(here),
            ".." => return Ok(self.up(here)),
            _ if name.len() > 255 => return Err(libc::ENAMETOOLONG),
            _ => {}
        }
        let found = self.find(here, name).ok_or(libc::ENOENT)?;
        match &self.nodes[found] {
            Node::Link { text, .. } if follow => {
                *links += 1;
                if *links > 40 {
                    return Err(libc::ELOOP);
                }
                self.walk(here, text, true, links)
            }
            _ => Ok(found),
        }
    }

    fn walk(&self, here: Id, path: &str, follow: bool, links: &mut u32) -> Outcome<Id> {
        let parent = self.parent_from(here, path, links)?;
        if parent.last == Last::Root {
            return Ok(parent.directory);
        }
        let found = self.step(parent.directory, &parent.name, follow || parent.slash, links)?;
        if parent.slash && !self.is_directory(found) {
            return Err(libc::ENOTDIR);
        }
        Ok(found)
    }

    fn parent(&self, path: &str) -> Outcome<Parent> {
        if path.is_empty() {
            return Err(libc::ENOENT);
        }
        self.parent_from(ROOT, path, &mut 0)
    }

    fn resolve(&self, path: &str, follow: bool) -> Outcome<Id> {
        if path.is_empty() {
            return Err(libc::ENOENT);
        }
        self.walk(ROOT, path, follow, &mut 0)
    }

    /// Looks up the last name of a parent: a long name is an error, a missing one gives `None`.
    fn last(&self, parent: &Parent) -> Outcome<Option<Id>> {
        if parent.name.len() > 255 {
            return Err(libc::ENAMETOOLONG);
        }
        Ok(self.find(parent.directory, &parent.name))
    }

    /// Returns the parent for a new entry (`filename_create`).
    fn place(&self, path: &str, directory: bool) -> Outcome<Parent> {
        let parent = self.parent(path)?;
        if parent.last != Last::Name || self.last(&parent)?.is_some() {
            return Err(libc::EEXIST);
        }
        if parent.slash && !directory { Err(libc::ENOENT) } else { Ok(parent) }
    }

    fn add(&mut self, place: Parent, node: Node) {
        let id = self.nodes.len();
        self.nodes.push(node);
        self.names(place.directory).insert(place.name, id);
    }

    fn mkdir(&mut self, path: &str) -> Outcome<()> {
        let place = self.place(path, true)?;
        let parent = place.directory;
        self.add(place, Node::Directory { parent, names: BTreeMap::new() });
        Ok(())
    }

    fn symlink(&mut self, text: &str, path: &str) -> Outcome<()> {
        if text.is_empty() {
            return Err(libc::ENOENT);
        }
        let place = self.place(path, false)?;
        self.add(place, Node::Link { text: text.into(), links: 1 });
        Ok(())
    }

    /// open(2) with O_CREAT and O_EXCL.
    fn create(&mut self, path: &str) -> Outcome<()> {
        let parent = self.parent(path)?;
        if parent.last != Last::Name {
            return Err(libc::EEXIST);
        }
        if parent.slash {
            return Err(libc::EISDIR);
        }
        if self.last(&parent)?.is_some() {
            return Err(libc::EEXIST);
        }
        self.add(parent, Node::File { links: 1 });
        Ok(())
    }

    fn count(&mut self, node: Id, by: i64) {
        if let Node::File { links } | Node::Link { links, .. } = &mut self.nodes[node] {
            *links = links.wrapping_add_signed(by);
        }
    }

    fn link(&mut self, old: &str, new: &str) -> Outcome<()> {
        let node = self.resolve(old, false)?;
        let place = self.place(new, false)?;
        if self.is_directory(node) {
            return Err(libc::EPERM);
        }
        self.count(node, 1);
        self.names(place.directory).insert(place.name, node);
        Ok(())
    }

    fn unlink(&mut self, path: &str) -> Outcome<()> {
        let parent = self.parent(path)?;
        if parent.last != Last::Name {
            return Err(libc::EISDIR);
        }
        let node = self.last(&parent)?.ok_or(libc::ENOENT)?;
        if self.is_directory(node) {
            return Err(libc::EISDIR);
        }
        if parent.slash {
            return Err(libc::ENOTDIR);
        }
        self.names(parent.directory).remove(&parent.name);
        self.count(node, -1);
        Ok(())
    }

    fn rmdir(&mut self, path: &str) -> Outcome<()> {
        let parent = self.parent(path)?;
        match parent.last {
            Last::DotDot => return Err(libc::ENOTEMPTY),
            Last::Dot => return Err(libc::EINVAL),
            Last::Root => return Err(libc::EBUSY),
            Last::Name => {}
        }
        let node = self.last(&parent)?.ok_or(libc::ENOENT)?;
        if !self.is_directory(node) {
            return Err(libc::ENOTDIR);
        }
        if !self.names(node).is_empty() {
            return Err(libc::ENOTEMPTY);
        }
        self.names(parent.directory).remove(&parent.name);
        Ok(())
    }

    /// Whether `above` is `node` or lies above it.
    fn is_above(&self, above: Id, mut node: Id) -> bool {
        while node != above && node != ROOT {
            node = self.up(node);
        }
        node == above
    }

    fn rename(&mut self, old: &str, new: &str) -> Outcome<()> {
        let (from, to) = (self.parent(old)?, self.parent(new)?);
        if from.last != Last::Name || to.last != Last::Name {
            return Err(libc::EBUSY);
        }
        let node = self.last(&from)?.ok_or(libc::ENOENT)?;
        let target = self.last(&to)?;
        let directory = self.is_directory(node);
        if !directory && (from.slash || to.slash) {
            return Err(libc::ENOTDIR);
        }
        if from.directory != to.directory {
            if directory && self.is_above(node, to.directory) {
                return Err(libc::EINVAL);
            }
            if target.is_some_and(|it| self.is_directory(it) && self.is_above(it, from.directory)) {
                return Err(libc::ENOTEMPTY);
            }
        }
        if target == Some(node) {
            return Ok(());
        }
        if let Some(target) = target {
            match (directory, self.is_directory(target)) {
                (true, false) => return Err(libc::ENOTDIR),
                (false, true) => return Err(libc::EISDIR),
                (true, true) if !self.names(target).is_empty() => return Err(libc::ENOTEMPTY),
                _ => self.count(target, -1),
            }
        }
        self.names(from.directory).remove(&from.name);
        if let Node::Directory { parent, .. } = &mut self.nodes[node] {
            *parent = to.directory;
        }
        self.names(to.directory).insert(to.name, node);
        Ok(())
    }
}

/// Converts the result of a call to the model's form.
fn result(value: i64) -> Outcome<i64> {
    if value < 0 {
        Err(std::io::Error::last_os_error().raw_os_error().unwrap_or(0))
    } else {
        Ok(value)
    }
}

fn stat(path: &CString, follow: bool) -> Outcome<libc::stat> {
    // SAFETY: a zeroed structure of plain numbers is valid, and lives during the call.
    unsafe {
        let mut found: libc::stat = std::mem::zeroed();
        let flags = if follow { 0 } else { libc::AT_SYMLINK_NOFOLLOW };
        let value = libc::fstatat(libc::AT_FDCWD, path.as_ptr(), &mut found, flags);
        result(value.into()).map(|_| found)
    }
}

fn random_path(random: &mut Random) -> String {
    let mut path = String::new();
    if random.one_in(5) {
        path.push('/');
    }
    for at in 0..random.below(6) {
        if at > 0 {
            path.push_str(random.pick(&["/", "/", "/", "/", "//", "/./"]));
        }
        match random.below(40) {
            0 => path.push_str(&"l".repeat(255)),
            1 => path.push_str(&"l".repeat(256)),
            2..=4 => path.push_str(".."),
            5 => path.push('.'),
            6..=17 => path.push('a'),
            18..=28 => path.push('b'),
            29..=35 => path.push('c'),
            _ => path.push_str("..."),
        }
    }
    if random.one_in(6) {
        path.push('/');
    }
    path
}

/// The results of the model and of the kernel.
type Compared = (&'static str, Outcome<()>, Outcome<()>);

/// Looks at a file in both. `other` is another path, perhaps of the same file.
fn look(model: &Model, path: &str, other: &str, follow: bool) -> Result<Compared, String> {
    let expected = model.resolve(path, follow);
    let got = stat(&c_path(path), follow);
    if let (Ok(node), Ok(found)) = (&expected, &got) {
        let good = match &model.nodes[*node] {
            Node::File { links } => {
                found.st_mode & libc::S_IFMT == libc::S_IFREG && found.st_nlink == *links
            }
            Node::Link { text, links } => {
                found.st_mode & libc::S_IFMT == libc::S_IFLNK
                    && found.st_size as usize == text.len()
                    && found.st_nlink == *links
            }
            Node::Directory { .. } => found.st_mode & libc::S_IFMT == libc::S_IFDIR,
        };
        if !good {
            return Err(format!(
                "stat {path:?} found something else than {:?}",
                model.nodes[*node]
            ));
        }
        // The same place by another path must be the same file.
        if let (Ok(same), Ok(there)) = (model.resolve(other, true), stat(&c_path(other), true))
            && (same == *node) != (there.st_ino == found.st_ino)
        {
            return Err(format!("{path:?} and {other:?} are the same, or not"));
        }
    }
    Ok(("stat", expected.map(|_| ()), got.map(|_| ())))
}

/// Reads a symbolic link in both.
fn read_link(model: &Model, path: &str) -> Result<Compared, String> {
    let mut text = [0u8; 8192];
    let expected = model.resolve(path, false).and_then(|node| match &model.nodes[node] {
        Node::Link { text, .. } => Ok(text.clone()),
        _ => Err(libc::EINVAL),
    });
    let c_path = c_path(path);
    // SAFETY: the buffer lives and is as long as it says.
    let got = unsafe { libc::readlink(c_path.as_ptr(), text.as_mut_ptr().cast(), text.len()) };
    let got = result(got as i64);
    if let (Ok(expected), Ok(length)) = (&expected, &got)
        && expected.as_bytes() != &text[..*length as usize]
    {
        return Err(format!("readlink {path:?} is not {expected:?}"));
    }
    Ok(("readlink", expected.map(|_| ()), got.map(|_| ())))
}

/// Does one operation on both; returns the difference, if any.
fn operation(model: &mut Model, random: &mut Random) -> Result<(), String> {
    let (one, two) = (random_path(random), random_path(random));
    let (c_one, c_two) = (c_path(&one), c_path(&two));
    let (p, q) = (c_one.as_ptr(), c_two.as_ptr());
    let call = |what: &dyn Fn() -> i64| result(what()).map(|_| ());
    let (name, expected, got) = match random.below(20) {
        0..=3 => look(model, &one, &two, random.one_in(2))?,
        4 => read_link(model, &one)?,
        5..=7 => {
            // SAFETY: a plain call with a live string.
            let got = call(&|| unsafe { libc::mkdir(p, 0o755) }.into());
            ("mkdir", model.mkdir(&one), got)
        }
        8..=9 => {
            // SAFETY: plain calls with a live string and the descriptor just opened.
            let got = call(&|| unsafe {
                let fd = libc::open(p, libc::O_CREAT | libc::O_EXCL | libc::O_WRONLY, 0o644);
                if fd >= 0 { libc::close(fd).into() } else { fd.into() }
            });
            ("open", model.create(&one), got)
        }
        10..=12 => {
            // SAFETY: a plain call with live strings.
            let got = call(&|| unsafe { libc::symlink(q, p) }.into());
            ("symlink", model.symlink(&two, &one), got)
        }
        13 => {
            // SAFETY: a plain call with live strings.
            let got = call(&|| unsafe { libc::link(p, q) }.into());
            ("link", model.link(&one, &two), got)
        }
        14..=15 => {
            // SAFETY: a plain call with a live string.
            let got = call(&|| unsafe { libc::unlink(p) }.into());
            ("unlink", model.unlink(&one), got)
        }
        16 => {
            // SAFETY: a plain call with a live string.
            let got = call(&|| unsafe { libc::rmdir(p) }.into());
            ("rmdir", model.rmdir(&one), got)
        }
        _ => {
            // SAFETY: a plain call with live strings.
            let got = call(&|| unsafe { libc::rename(p, q) }.into());
            ("rename", model.rename(&one, &two), got)
        }
    };
    if expected == got {
        Ok(())
    } else {
        Err(format!("{name} {one:?} {two:?}: expected {expected:?}, got {got:?}"))
    }
}

fn main() {
    let options = Options::parse(USAGE, &["seed", "count"], &[]);
    let seed: u64 = options.get("seed", 1);
    let count: u64 = options.get("count", 100_000);
    let base = std::env::var("TMPDIR").unwrap_or_else(|_| "/tmp".into());
    // A new tree after some thousand operations: by then it is full, or most paths fail in its
    // links.
    const TREE: u64 = 4000;
    for tree in 0..count.div_ceil(TREE) {
        let root = format!("{base}/pathfuzz.{}", std::process::id());
        if let Err(error) = std::fs::create_dir(&root) {
            println!("pathfuzz: {root}: {error}");
            exit(1);
        }
        let ended = match fork() {
            Ok(0) => exit(in_tree(&root, seed, tree, TREE.min(count - tree * TREE))),
            Ok(pid) => wait(pid),
            Err(error) => {
                println!("pathfuzz: fork: {error}");
                exit(1);
            }
        };
        let _ = std::fs::remove_dir_all(&root);
        if !matches!(ended, Some((_, Ended::Exited(0)))) {
            println!("pathfuzz: FAILED: seed {seed}, tree {tree}: {ended:?}");
            exit(1);
        }
    }
    println!("pathfuzz: ok, {count} operations, seed {seed}");
}

/// Works in a tree of its own; returns the exit status.
fn in_tree(root: &str, seed: u64, tree: u64, count: u64) -> i32 {
    // SAFETY: plain calls with live strings.
    if unsafe { libc::chroot(c_path(root).as_ptr()) != 0 || libc::chdir(c"/".as_ptr()) != 0 } {
        println!("pathfuzz: cannot enter {root}: {}", std::io::Error::last_os_error());
        return 1;
    }
    let mut model = Model::new();
    let mut random = Random::new(seed.wrapping_mul(0x1_0000_0001).wrapping_add(tree));
    for n in 0..count {
        if let Err(why) = operation(&mut model, &mut random) {
            println!("pathfuzz: operation {n}: {why}");
            return 1;
        }
    }
    0
}
