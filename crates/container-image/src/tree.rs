//! A file system in memory, without contents: what the layers make together.
//!
//! Layers are applied from the lowest to the highest, as the image specification's "Applying
//! changesets" (layer.md) says, and as containerd carries it out: an entry replaces what has its
//! name, but a folder is merged with a folder; a path leads through symbolic links of the tree, and
//! of no other; `.wh.NAME` hides NAME, and `.wh..wh..opq` everything in its folder, as far as it is
//! of lower layers.
//!
//! Invariants: every folder is reached by one path, whose length is at most [`LONGEST_PATH`]; other
//! nodes have any number of names (hard links). A node that has no name left stays in the list and
//! is never visited.

use crate::entry::{Head, Kind, LONGEST_PATH, parts};
use crate::pax::Attributes;
use crate::{Error, Result, shown};
use std::collections::{BTreeMap, VecDeque};

/// How many symbolic links a path may lead through (Linux' `MAXSYMLINKS`).
const MOST_LINKS: u32 = 40;
/// How many names are looked up for an image: some hundred for each entry of a large one.
const MOST_STEPS: u64 = 1 << 28;
/// The mode of a folder that no layer describes.
const USUAL_MODE: u32 = 0o755;

const WHITEOUT: &[u8] = b".wh.";
const OPAQUE: &[u8] = b".wh..wh..opq";
/// Names that aufs keeps for itself.
const RESERVED: &[u8] = b".wh..wh.";

/// The number of a node.
pub(crate) type Id = usize;

/// The folder `/`.
pub(crate) const ROOT: Id = 0;

pub(crate) struct Node {
    pub(crate) content: Content,
    pub(crate) mode: u32,
    pub(crate) user: u32,
    pub(crate) group: u32,
    pub(crate) time: u64,
    pub(crate) attributes: Attributes,
}

pub(crate) enum Content {
    Folder(Folder),
    /// So many bytes, in this layer, at this place in it.
    File {
        size: u64,
        layer: usize,
        index: u64,
    },
    Symlink(Vec<u8>),
    Character(u32, u32),
    Block(u32, u32),
    Fifo,
}

pub(crate) struct Folder {
    pub(crate) names: BTreeMap<Vec<u8>, Name>,
    /// The folder it is in, and its name there.
    pub(crate) up: Id,
    pub(crate) name: Vec<u8>,
    /// The length of its path.
    length: usize,
}

/// A name in a folder.
#[derive(Clone, Copy)]
pub(crate) struct Name {
    pub(crate) node: Id,
    /// The layer that gave it.
    layer: usize,
}

pub(crate) struct Tree {
    nodes: Vec<Node>,
    steps: u64,
}

impl Tree {
    pub(crate) fn new() -> Tree {
        let mut tree = Tree { nodes: Vec::new(), steps: MOST_STEPS };
        tree.nodes.push(plain_folder(ROOT, Vec::new(), 0));
        tree
    }

    pub(crate) fn node(&self, id: Id) -> &Node {
        &self.nodes[id]
    }

    pub(crate) fn folder(&self, id: Id) -> Option<&Folder> {
        match &self.nodes[id].content {
            Content::Folder(folder) => Some(folder),
            _ => None,
        }
    }

    fn folder_mut(&mut self, id: Id) -> Result<&mut Folder> {
        match &mut self.nodes[id].content {
            Content::Folder(folder) => Ok(folder),
            _ => Err(Error::new("its path leads through a file")),
        }
    }

    fn child(&self, folder: Id, name: &[u8]) -> Option<Name> {
        self.folder(folder)?.names.get(name).copied()
    }

    /// Applies one entry of a layer.
    pub(crate) fn apply(&mut self, layer: usize, head: Head) -> Result<()> {
        let path = head.path.clone();
        self.apply_entry(layer, head).map_err(|error| error.at(shown(&path)))
    }

    fn apply_entry(&mut self, layer: usize, head: Head) -> Result<()> {
        let path = head.path.clone();
        let parts = parts(&path)?;
        let Some((&name, above)) = parts.split_last() else {
            return match head.kind {
                Kind::Folder => {
                    self.describe(ROOT, &head);
                    Ok(())
                }
                _ => Err(Error::new("the root is a folder")),
            };
        };
        if name.starts_with(WHITEOUT) {
            return self.white_out(layer, above, name);
        }
        // Another name of itself stays as it is.
        let target = match &head.kind {
            Kind::Link(target) => Some(self.link_target(target)?),
            _ => None,
        };
        let Some(folder) = self.walk(above, Some(layer))? else {
            return Err(Error::new("its folder is missing"));
        };
        let known = self.child(folder, name);
        let node = match (target, &head.kind, known) {
            (Some(target), ..) => target,
            (None, Kind::Folder, Some(known)) if self.folder(known.node).is_some() => {
                self.describe(known.node, &head);
                known.node
            }
            _ => self.add(folder, name, layer, &head)?,
        };
        self.folder_mut(folder)?.names.insert(name.to_vec(), Name { node, layer });
        Ok(())
    }

    /// Gives a folder an entry's mode, owners, time and attributes.
    fn describe(&mut self, id: Id, head: &Head) {
        let node = &mut self.nodes[id];
        (node.mode, node.user, node.group, node.time) =
            (head.mode, head.user, head.group, head.time);
        node.attributes.clone_from(&head.attributes);
    }

    fn add(&mut self, folder: Id, name: &[u8], layer: usize, head: &Head) -> Result<Id> {
        let content = match &head.kind {
            Kind::Folder => {
                let id = self.add_folder(folder, name)?;
                self.describe(id, head);
                return Ok(id);
            }
            Kind::File { size } => Content::File { size: *size, layer, index: head.index },
            Kind::Symlink(target) => Content::Symlink(target.clone()),
            Kind::Character(major, minor) => Content::Character(*major, *minor),
            Kind::Block(major, minor) => Content::Block(*major, *minor),
            Kind::Fifo => Content::Fifo,
            Kind::Link(_) => return Err(Error::new("a link is no file of its own")),
        };
        self.path_fits(folder, name)?;
        let &Head { mode, user, group, time, .. } = head;
        let attributes = head.attributes.clone();
        self.nodes.push(Node { content, mode, user, group, time, attributes });
        Ok(self.nodes.len() - 1)
    }

    /// Returns the length of a path in a folder, if Linux has such paths.
    fn path_fits(&self, folder: Id, name: &[u8]) -> Result<usize> {
        let length = self.folder(folder).map_or(0, |folder| folder.length) + 1 + name.len();
        if length > LONGEST_PATH {
            return Err(Error::new("its path is longer than Linux has them"));
        }
        Ok(length)
    }

    fn add_folder(&mut self, up: Id, name: &[u8]) -> Result<Id> {
        let length = self.path_fits(up, name)?;
        self.nodes.push(plain_folder(up, name.to_vec(), length));
        Ok(self.nodes.len() - 1)
    }

    /// Finds what a hard link names: the last part is not followed, as by link(2).
    fn link_target(&mut self, target: &[u8]) -> Result<Id> {
        let missing = || Error::new(format!("it is a link to {}, which is no file", shown(target)));
        let parts = parts(target)?;
        let (&name, above) = parts.split_last().ok_or_else(missing)?;
        let folder = self.walk(above, None)?.ok_or_else(missing)?;
        let known = self.child(folder, name).ok_or_else(missing)?;
        if self.folder(known.node).is_some() { Err(missing()) } else { Ok(known.node) }
    }

    /// Follows a path to a folder. What is missing is made if there is a layer to make it in;
    /// otherwise the answer is `None`.
    fn walk(&mut self, path: &[&[u8]], make: Option<usize>) -> Result<Option<Id>> {
        let mut ahead: VecDeque<Vec<u8>> = path.iter().map(|part| part.to_vec()).collect();
        let (mut at, mut links) = (ROOT, 0);
        while let Some(part) = ahead.pop_front() {
            self.steps = self
                .steps
                .checked_sub(1)
                .ok_or_else(|| Error::new("its paths are longer than an image needs"))?;
            if part == b".." {
                at = self.folder(at).map_or(ROOT, |folder| folder.up);
                continue;
            }
            let Some(known) = self.child(at, &part) else {
                let Some(layer) = make else { return Ok(None) };
                let node = self.add_folder(at, &part)?;
                self.folder_mut(at)?.names.insert(part, Name { node, layer });
                at = node;
                continue;
            };
            match &self.nodes[known.node].content {
                Content::Folder(_) => at = known.node,
                Content::Symlink(target) => {
                    links += 1;
                    if links > MOST_LINKS {
                        return Err(Error::new("its path leads through too many links"));
                    }
                    if target.starts_with(b"/") {
                        at = ROOT;
                    }
                    let parts = target.split(|&byte| byte == b'/');
                    let parts = parts.filter(|part| !part.is_empty() && *part != b".");
                    for part in parts.rev() {
                        ahead.push_front(part.to_vec());
                    }
                }
                _ => return Err(Error::new("its path leads through a file")),
            }
        }
        Ok(Some(at))
    }

    /// Carries a whiteout out.
    fn white_out(&mut self, layer: usize, above: &[&[u8]], name: &[u8]) -> Result<()> {
        let hidden = &name[WHITEOUT.len()..];
        if name != OPAQUE && name.starts_with(RESERVED) {
            return Ok(());
        }
        if matches!(hidden, b"" | b"." | b"..") {
            return Err(Error::new("it hides no name"));
        }
        // A name that is not there needs no hiding.
        let Some(folder) = self.walk(above, None)? else { return Ok(()) };
        if name != OPAQUE {
            return self.hide(folder, hidden, layer);
        }
        let names: Vec<Vec<u8>> = self
            .folder(folder)
            .map(|folder| folder.names.keys().cloned().collect())
            .unwrap_or_default();
        names.iter().try_for_each(|name| self.hide(folder, name, layer))
    }

    /// Removes a name with all below it, as far as they are of lower layers.
    fn hide(&mut self, folder: Id, name: &[u8], layer: usize) -> Result<()> {
        let Some(known) = self.child(folder, name) else { return Ok(()) };
        if let Some(inner) = self.folder(known.node) {
            let names: Vec<Vec<u8>> = inner.names.keys().cloned().collect();
            // As deep as a path is long.
            for name in names {
                self.hide(known.node, &name, layer)?;
            }
        }
        let is_empty = self.folder(known.node).is_none_or(|inner| inner.names.is_empty());
        if known.layer < layer && is_empty {
            self.folder_mut(folder)?.names.remove(name);
        }
        Ok(())
    }

    /// Makes a folder if there is nothing at a path, as Docker does for a working directory.
    pub(crate) fn make_folder(&mut self, path: &[u8], layer: usize) -> Result<()> {
        let parts = parts(path)?;
        self.walk(&parts, Some(layer)).map(drop).map_err(|error| error.at(shown(path)))
    }

    /// The path of a folder, without a leading slash.
    pub(crate) fn path(&self, folder: Id) -> Vec<u8> {
        let mut parts = Vec::new();
        let mut at = folder;
        while at != ROOT {
            let Some(folder) = self.folder(at) else { break };
            parts.push(&folder.name[..]);
            at = folder.up;
        }
        parts.reverse();
        parts.join(&b'/')
    }

    /// All folders that have a name, each after the one it is in, in the order of their names.
    pub(crate) fn folders(&self) -> Vec<Id> {
        let mut found = Vec::new();
        let mut ahead = vec![ROOT];
        while let Some(id) = ahead.pop() {
            found.push(id);
            let Some(folder) = self.folder(id) else { continue };
            let inner = folder.names.values().map(|name| name.node);
            ahead.extend(inner.filter(|&id| self.folder(id).is_some()).rev());
        }
        found
    }
}

fn plain_folder(up: Id, name: Vec<u8>, length: usize) -> Node {
    let folder = Folder { names: BTreeMap::new(), up, name, length };
    let content = Content::Folder(folder);
    Node { content, mode: USUAL_MODE, user: 0, group: 0, time: 0, attributes: Vec::new() }
}

#[cfg(test)]
mod tests;
