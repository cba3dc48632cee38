//! The layers of the kernel and of `machine/`, checked against the lists that readers see.
//!
//! An arrow goes from a file to every module that its code names, in a `use` or in a path. The list
//! of layers ([`Layers`]) gives the order of modules, lowest first: of the kernel in
//! ARCHITECTURE.md, of `machine/` at the top of its `lib.rs`. An arrow to a module that comes later
//! in its list is a finding, and so are a module that is not on its list and a module on the list
//! that does not exist. Files of one module may form circles only if [`CIRCLES`] names them.
//!
//! `mod` and `pub use` are no arrows: a module that only declares and re-exports stands where its
//! parts stand. Text is read and not compiled, so that code of every configuration counts; a name
//! that comes in by `*` or through a macro of another file is not seen.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use super::sources::{code, sources};
use crate::paths;

/// A module, as the names from the crate's root to it.
type Module = Vec<String>;

/// Circles of files that stay, with the reason: types that are made of each other.
const CIRCLES: [(&[&str], &str); 2] = [
    (
        &[
            "vfs::dentry",
            "vfs::filesystem",
            "vfs::inode",
            "vfs::mount",
            "vfs::open_file",
            "vfs::socket",
        ],
        "an inode opens as operations on an open file, which may be those of a socket; an open \
         file knows its place in the tree of mounts and dentries, and a dentry leads to an inode, \
         as in Linux's fs.h",
    ),
    (
        &[
            "process::namespaces",
            "process::pid_namespace",
            "process::pids",
            "process::record",
            "process::thread",
        ],
        "a process lists its threads, and a thread holds its process; a process is in a PID \
         namespace, which has an init, and the numbers of a thread come from there",
    ),
];

/// Checks every arrow of the kernel and of `machine/`.
pub fn arrows_point_down() -> Result<Vec<String>> {
    let root = paths::project();
    let mut found = Vec::new();
    for (folder, list) in [("kernel/src", "ARCHITECTURE.md"), ("machine/src", "machine/src/lib.rs")]
    {
        let text = std::fs::read_to_string(root.join(list))
            .with_context(|| format!("cannot read {list}"))?;
        let layers = Layers::of_text(&text).with_context(|| format!("in {list}"))?;
        found.extend(findings(&root, &Crate::read(&root.join(folder))?, &layers));
    }
    Ok(found)
}

fn findings(root: &Path, code: &Crate, layers: &Layers) -> Vec<String> {
    let mut found = Vec::new();
    for module in &layers.order {
        if !code.files.keys().any(|file| file.starts_with(module)) {
            found.push(format!("the list of layers names {}, which is nowhere", module.join("::")));
        }
    }
    let mut graph: BTreeMap<&Module, BTreeSet<&Module>> = BTreeMap::new();
    for (module, file) in &code.files {
        let place = file.path.strip_prefix(root).unwrap_or(&file.path).display();
        let Some(floor) = layers.floor(module) else {
            if !module.is_empty() {
                found.push(format!("{place}: not on the list of layers"));
            }
            continue;
        };
        let mut told = BTreeSet::new();
        for (line, target) in code.arrows(module, &file.text) {
            let up = layers.floor(target).is_none_or(|other| other > floor);
            if told.insert(target) && up {
                let target = target.join("::");
                found.push(format!("{place}:{line}: names {target}, which is above it"));
            }
            graph.entry(module).or_default().insert(target);
        }
    }
    for circle in circles(&graph) {
        let names: Vec<String> = circle.iter().map(|module| module.join("::")).collect();
        let in_circle =
            |(known, _): &&(&[&str], &str)| names.iter().all(|n| known.contains(&n.as_str()));
        if !CIRCLES.iter().any(|circle| in_circle(&circle)) {
            found.push(format!("files in a circle: {}", names.join(", ")));
        }
    }
    found
}

/// An order of modules, lowest first.
struct Layers {
    order: Vec<Module>,
}

impl Layers {
    /// Reads the numbered list below the line `# Layers` (of whatever depth, in Markdown or in a
    /// comment): the names between backquotes, in their order.
    ///
    /// # Errors
    /// If there is no such list.
    fn of_text(text: &str) -> Result<Layers> {
        let plain = |line: &'_ str| line.trim_start_matches("//!").trim().to_string();
        let mut lines = text.lines().map(plain);
        lines.by_ref().find(|line| line.starts_with('#') && line.ends_with(" Layers"));
        let numbered = |line: &String| {
            line.split_once(". ").is_some_and(|(number, _)| number.parse::<u32>().is_ok())
        };
        let list = lines.skip_while(|line| !numbered(line)).take_while(|line| !line.is_empty());
        let list: Vec<String> = list.collect();
        let names = list.iter().flat_map(|line| line.split('`').skip(1).step_by(2));
        let name =
            |name: &str| name.trim_start_matches("mod@").split("::").map(String::from).collect();
        let order: Vec<Module> = names.map(name).collect();
        ensure!(!order.is_empty(), "no numbered list of modules follows a heading \"Layers\"");
        Ok(Layers { order })
    }

    /// The place of a module in the order: that of the longest listed path that leads to it.
    fn floor(&self, module: &[String]) -> Option<usize> {
        let listed = self.order.iter().enumerate().filter(|(_, listed)| module.starts_with(listed));
        listed.max_by_key(|(_, listed)| listed.len()).map(|(floor, _)| floor)
    }
}

/// One file, without its comments and quoted text.
struct Source {
    path: PathBuf,
    text: String,
}

/// The files of a crate by module; the root has no name.
struct Crate {
    files: BTreeMap<Module, Source>,
}

impl Crate {
    fn read(folder: &Path) -> Result<Crate> {
        let mut files = BTreeMap::new();
        for (path, text) in sources(folder)? {
            let inside = path.strip_prefix(folder)?.with_extension("");
            let mut module: Module =
                inside.iter().map(|part| part.to_string_lossy().into_owned()).collect();
            if module.last().is_some_and(|last| matches!(last.as_str(), "mod" | "main" | "lib")) {
                module.pop();
            }
            let text = text.lines().map(code).collect::<Vec<_>>().join("\n");
            files.insert(module, Source { path, text });
        }
        Ok(Crate { files })
    }

    /// The modules that a file names besides itself, each with the line.
    fn arrows(&self, module: &Module, text: &str) -> Vec<(usize, &Module)> {
        let words = words(text);
        let mut found = Vec::new();
        let mut at = 0;
        // Names of modules within the file that are open, with the depth of their braces.
        let mut inside: Vec<(i32, &str)> = Vec::new();
        // Below 0 behind a brace of a text that is no code.
        let mut depth: i32 = 0;
        while let Some(&(line, word)) = words.get(at) {
            let before = at.checked_sub(1).map_or("", |index| words[index].1);
            let next = words.get(at + 1).map_or("", |word| word.1);
            match word {
                "{" => depth += 1,
                "}" => {
                    depth -= 1;
                    inside.retain(|(since, _)| *since <= depth);
                }
                "mod" if words.get(at + 2).is_some_and(|word| word.1 == "{") => {
                    inside.push((depth + 1, next));
                }
                "use" => {
                    let tree = &words[at + 1..];
                    let length = tree.iter().take_while(|word| word.1 != ";").count();
                    if !matches!(before, "pub" | ")") {
                        let mut paths = Vec::new();
                        flatten(&tree[..length], &[], &mut paths);
                        let here = place_within(module, &inside);
                        let targets =
                            paths.iter().filter_map(|path| self.target(&here, path, true));
                        found.extend(targets.map(|target| (line, target)));
                    }
                    at += length;
                }
                "crate" | "super" | "self" if next == "::" && !matches!(before, "::" | "$") => {
                    let rest = &words[at..];
                    let path: Vec<&str> = rest
                        .chunks(2)
                        .take_while(|pair| is_name(pair[0].1))
                        .scan(true, |more, pair| {
                            let last = !*more;
                            *more = pair.get(1).is_some_and(|word| word.1 == "::");
                            (!last).then_some(pair[0].1)
                        })
                        .collect();
                    let here = place_within(module, &inside);
                    found.extend(self.target(&here, &path, false).map(|target| (line, target)));
                    at += path.len() * 2 - 2;
                }
                _ => {}
            }
            at += 1;
        }
        found.retain(|(_, target)| *target != module);
        found
    }

    /// The file to which a path leads from `here`; `None` if that is in another crate.
    fn target(&self, here: &[String], path: &[&str], import: bool) -> Option<&Module> {
        let mut base = here.to_vec();
        let rest = match path.first()? {
            &"crate" => {
                base.clear();
                &path[1..]
            }
            &"self" => &path[1..],
            &"super" => {
                let up = path.iter().take_while(|part| **part == "super").count();
                base.truncate(base.len().saturating_sub(up));
                &path[up..]
            }
            // A path that begins with a name is one of this module's own children, or of a crate.
            first => {
                base.push((*first).to_string());
                if !import || !self.files.contains_key(&base) {
                    return None;
                }
                &path[1..]
            }
        };
        base.extend(rest.iter().map(|part| (*part).to_string()));
        loop {
            if let Some((found, _)) = self.files.get_key_value(&base) {
                return Some(found).filter(|found| !found.is_empty());
            }
            base.pop()?;
        }
    }
}

/// The module at some place of a file: the file's own, and those open there.
fn place_within(module: &Module, inside: &[(i32, &str)]) -> Module {
    module.iter().cloned().chain(inside.iter().map(|(_, name)| (*name).to_string())).collect()
}

fn is_name(word: &str) -> bool {
    word.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
}

/// Splits code into names, `::` and single signs, each with its line, beginning with 1.
fn words(text: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let mut rest = line;
        while let Some(first) = rest.chars().next() {
            let part = |c: char| c.is_alphanumeric() || c == '_';
            let length = if part(first) {
                rest.find(|c| !part(c)).unwrap_or(rest.len())
            } else if rest.starts_with("::") {
                2
            } else {
                first.len_utf8()
            };
            if !first.is_whitespace() {
                found.push((number + 1, &rest[..length]));
            }
            rest = &rest[length..];
        }
    }
    found
}

/// Adds every path of a `use` tree to `paths`.
fn flatten<'a>(tree: &[(usize, &'a str)], above: &[&'a str], paths: &mut Vec<Vec<&'a str>>) {
    let mut path = above.to_vec();
    for (index, &(_, word)) in tree.iter().enumerate() {
        match word {
            "{" => {
                let mut depth = 0;
                let mut since = index + 1;
                for (at, &(_, word)) in tree.iter().enumerate().skip(index) {
                    match word {
                        "{" => depth += 1,
                        "}" => depth -= 1,
                        _ => {}
                    }
                    let ends = (word == "," && depth == 1) || (word == "}" && depth == 0);
                    if ends {
                        if at > since {
                            flatten(&tree[since..at], &path, paths);
                        }
                        since = at + 1;
                    }
                }
                return;
            }
            "as" => break,
            "::" => {}
            "self" if !path.is_empty() => {}
            word => path.push(word),
        }
    }
    paths.push(path);
}

/// The circles of a graph: sets of more than one module of which each leads to each, sorted.
fn circles<'a>(graph: &BTreeMap<&'a Module, BTreeSet<&'a Module>>) -> Vec<Vec<&'a Module>> {
    let reach = |from: &'a Module| {
        let mut seen = BTreeSet::new();
        let mut pending = vec![from];
        while let Some(module) = pending.pop() {
            for &target in graph.get(module).into_iter().flatten() {
                if seen.insert(target) {
                    pending.push(target);
                }
            }
        }
        seen
    };
    let all: BTreeMap<&Module, BTreeSet<&Module>> =
        graph.keys().map(|&module| (module, reach(module))).collect();
    let mut found: Vec<Vec<&Module>> = Vec::new();
    for (&module, targets) in &all {
        if !targets.contains(module) || found.iter().any(|circle| circle.contains(&module)) {
            continue;
        }
        let back = |other: &&Module| all.get(other).is_some_and(|seen| seen.contains(module));
        found.push(targets.iter().copied().filter(back).collect());
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn module(path: &str) -> Module {
        path.split("::").filter(|part| !part.is_empty()).map(String::from).collect()
    }

    fn of_files(files: &[(&str, &str)]) -> Crate {
        let file = |(path, text): &(&str, &str)| {
            (module(path), Source { path: PathBuf::from(path), text: (*text).to_string() })
        };
        Crate { files: files.iter().map(file).collect() }
    }

    fn arrows(code: &Crate, from: &str) -> Vec<(usize, String)> {
        let from = module(from);
        let arrows = code.arrows(&from, &code.files[&from].text);
        arrows.into_iter().map(|(line, target)| (line, target.join("::"))).collect()
    }

    #[test]
    fn the_list_is_read_in_its_order() {
        let text = "//! # Other\n//! 1. `x`\n//!\n//! # Layers\n//! Lowest first:\n//!\n//! 1. [`a`],\n//!    [`mod@b`]\n//! 2. `c::d`\n//!\n//! `e`\n";
        let layers = Layers::of_text(text).unwrap();
        assert_eq!(layers.order, ["a", "b", "c::d"].map(module));
        assert_eq!(layers.floor(&module("c::d::e")), Some(2));
        assert_eq!(layers.floor(&module("c")), None);
        assert!(Layers::of_text("nothing").is_err());
    }

    #[test]
    fn the_longest_listed_path_counts() {
        let layers = Layers::of_text("## Layers\n1. `a::low`, `b`, `a`\n").unwrap();
        assert_eq!(layers.floor(&module("a::low::x")), Some(0));
        assert_eq!(layers.floor(&module("a::high")), Some(2));
    }

    #[test]
    fn arrows_are_uses_and_paths() {
        let text = "use crate::b::{self, c::{D, e}};\npub use crate::f::G;\nmod own;\n\
                    fn h() { super::f::i(); $crate::b::j!(); }\nuse own::K;\n\
                    mod inner { use super::own::L; use crate::f; }\n";
        let code =
            of_files(&[("", ""), ("a", text), ("a::own", ""), ("b", ""), ("b::c", ""), ("f", "")]);
        let expected =
            [(1, "b"), (1, "b::c"), (1, "b::c"), (4, "f"), (5, "a::own"), (6, "a::own"), (6, "f")];
        assert_eq!(arrows(&code, "a"), expected.map(|(line, to)| (line, to.to_string())));
    }

    #[test]
    fn arrows_that_point_up_and_circles_are_found() {
        let layers = Layers::of_text("# Layers\n1. `a`, `b`\n2. `gone`\n").unwrap();
        let code = of_files(&[
            ("a", "use crate::b::X;"),
            ("a::c", "use super::d::Y;"),
            ("a::d", "fn y() { super::c::z() }"),
            ("b", "use crate::a::c;"),
            ("new", ""),
        ]);
        let found = findings(Path::new("/"), &code, &layers);
        assert_eq!(
            found,
            [
                "the list of layers names gone, which is nowhere",
                "a:1: names b, which is above it",
                "new: not on the list of layers",
                "files in a circle: a::c, a::d",
            ]
        );
    }
}
