//! The layers of an image as one tree, and that tree as one tar archive.

use crate::blob::{Counted, check, unpacked};
use crate::entry::{self, Budget};
use crate::image::{Image, Layer, Source};
use crate::pax::Attributes;
use crate::tree::{Content, Id, Node, ROOT, Tree};
use crate::{Error, Limits, Result, shown};
use std::collections::{BTreeMap, VecDeque};
use std::io::{Read, Write};
use tar::{Builder, EntryType, Header};

/// The layers of an image, put together.
pub struct Flat {
    tree: Tree,
    size: u64,
    limits: Limits,
}

/// A file or folder with extended attributes.
#[derive(Debug, PartialEq, Eq)]
pub struct Attributed {
    /// Its path in the archive.
    pub path: Vec<u8>,
    /// The attributes' names and values.
    pub attributes: Attributes,
}

/// A file's name: the folder, and the name in it.
type Place = (Id, Vec<u8>);

impl Flat {
    /// Reads the headers of all layers, and compares all digests.
    ///
    /// # Errors
    /// A layer cannot be read, is not what the image names, or holds what no layer may.
    pub fn read(image: &Image, source: &impl Source, limits: Limits) -> Result<Flat> {
        let mut tree = Tree::new();
        let mut budget = Budget { left: limits };
        for (number, layer) in image.layers.iter().enumerate() {
            read_layer(layer, source, &mut budget, |head, _| tree.apply(number, head))?;
        }
        let configuration = &image.configuration;
        let own = image.layers.len();
        for folder in configuration.volumes.iter().chain(&configuration.directory) {
            // Where it is a file, the start will say so.
            let _ = tree.make_folder(folder.as_bytes(), own);
        }
        let mut flat = Flat { tree, size: 0, limits };
        flat.size = flat.files().values().map(|(id, _)| size(flat.tree.node(*id))).sum();
        Ok(flat)
    }

    /// The bytes of all files.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// The files with content that are left: by layer and place in it, with their names.
    fn files(&self) -> BTreeMap<(usize, u64), (Id, Vec<Place>)> {
        let mut files = BTreeMap::new();
        for (id, places) in self.others() {
            if let Content::File { layer, index, .. } = self.tree.node(id).content {
                files.insert((layer, index), (id, places));
            }
        }
        files
    }

    /// Everything but folders, with its names.
    fn others(&self) -> BTreeMap<Id, Vec<Place>> {
        let mut others: BTreeMap<Id, Vec<Place>> = BTreeMap::new();
        for id in self.tree.folders() {
            let Some(folder) = self.tree.folder(id) else { continue };
            for (name, known) in &folder.names {
                if self.tree.folder(known.node).is_none() {
                    others.entry(known.node).or_default().push((id, name.clone()));
                }
            }
        }
        others
    }

    /// Writes the tree as a tar archive: all folders, each after the one it is in, then files with
    /// their hard links behind them, then everything else. Returns the extended attributes of files
    /// and folders, which are not in the archive: tar(1) below fakeroot(1) cannot set them.
    ///
    /// # Errors
    /// A layer cannot be read any more or has changed, or the archive not be written.
    pub fn write(
        &self,
        image: &Image,
        source: &impl Source,
        out: impl Write,
    ) -> Result<Vec<Attributed>> {
        let mut archive = Out {
            builder: Builder::new(out),
            names: 0,
            most: self.limits.bytes,
            attributed: Vec::new(),
        };
        for id in self.tree.folders() {
            let path = if id == ROOT { b".".to_vec() } else { self.tree.path(id) };
            archive.add(
                &path,
                self.tree.node(id),
                EntryType::Directory,
                None,
                &mut std::io::empty(),
            )?;
        }
        let mut files: VecDeque<_> = self.files().into_iter().collect();
        let mut budget = Budget { left: self.limits };
        for (number, layer) in image.layers.iter().enumerate() {
            read_layer(layer, source, &mut budget, |head, content| {
                let next = files.front().filter(|(place, _)| *place == (number, head.index));
                if next.is_none() {
                    return Ok(());
                }
                let Some((_, (id, places))) = files.pop_front() else { return Ok(()) };
                self.add_all(&mut archive, id, &places, content)
            })?;
        }
        if !files.is_empty() {
            return Err(Error::new("a layer has changed while it was read"));
        }
        for (id, places) in self.others() {
            if !matches!(self.tree.node(id).content, Content::File { .. }) {
                self.add_all(&mut archive, id, &places, &mut std::io::empty())?;
            }
        }
        archive.builder.into_inner()?.flush()?;
        Ok(archive.attributed)
    }

    /// Adds a node under its first name, and hard links under the others.
    fn add_all<W: Write>(
        &self,
        archive: &mut Out<W>,
        id: Id,
        places: &[Place],
        content: &mut dyn Read,
    ) -> Result<()> {
        let path = |(folder, name): &Place| {
            let folder = self.tree.path(*folder);
            if folder.is_empty() { name.clone() } else { [&folder[..], name].join(&b'/') }
        };
        let node = self.tree.node(id);
        let Some((first, further)) = places.split_first() else { return Ok(()) };
        let first = path(first);
        let (kind, target) = match &node.content {
            Content::Folder(_) => return Ok(()),
            Content::File { .. } => (EntryType::Regular, None),
            Content::Symlink(target) => (EntryType::Symlink, Some(&target[..])),
            Content::Character(..) => (EntryType::Char, None),
            Content::Block(..) => (EntryType::Block, None),
            Content::Fifo => (EntryType::Fifo, None),
        };
        archive.add(&first, node, kind, target, content)?;
        for place in further {
            let link = EntryType::Link;
            archive.add(&path(place), node, link, Some(&first), &mut std::io::empty())?;
        }
        Ok(())
    }
}

fn size(node: &Node) -> u64 {
    match node.content {
        Content::File { size, .. } => size,
        _ => 0,
    }
}

/// Reads a layer to its end, and compares its digests.
fn read_layer(
    layer: &Layer,
    source: &impl Source,
    budget: &mut Budget,
    each: impl FnMut(entry::Head, &mut dyn Read) -> Result<()>,
) -> Result<()> {
    let read = || {
        let (blob, length) = source.open(&layer.path)?;
        if layer.size.is_some_and(|size| size != length) {
            return Err(Error::new(format!(
                "it has {length} bytes, and the image names {}",
                layer.size.unwrap_or_default()
            )));
        }
        let mut packed = Counted::new(blob, u64::MAX);
        let mut plain = Counted::new(unpacked(&mut packed)?, budget.left.bytes);
        entry::read(&mut plain, budget, each)?;
        // Behind an archive's end there may be anything; the digests are of all of it.
        plain.drain()?;
        budget.left.bytes -= plain.count;
        let plain = plain.digest();
        packed.drain()?;
        if let Some(wanted) = &layer.diff {
            check("its content", wanted, &plain)?;
        }
        if let Some(wanted) = &layer.digest {
            check("it", wanted, &packed.digest())?;
        }
        Ok(())
    };
    read().map_err(|error| error.at(format!("layer {}", shown(layer.path.as_bytes()))))
}

/// The archive that is written.
struct Out<W: Write> {
    builder: Builder<W>,
    names: u64,
    most: u64,
    /// The files and folders that have extended attributes.
    attributed: Vec<Attributed>,
}

impl<W: Write> Out<W> {
    fn add(
        &mut self,
        path: &[u8],
        node: &Node,
        kind: EntryType,
        target: Option<&[u8]>,
        content: &mut dyn Read,
    ) -> Result<()> {
        self.names += (path.len() + target.map_or(0, <[u8]>::len)) as u64;
        if self.names > self.most {
            return Err(Error::new("its paths are longer than an image may have"));
        }
        let mut header = Header::new_gnu();
        header.set_entry_type(kind);
        header.set_mode(node.mode);
        header.set_uid(node.user.into());
        header.set_gid(node.group.into());
        header.set_mtime(node.time);
        header.set_size(0);
        if let (EntryType::Char, &Content::Character(major, minor))
        | (EntryType::Block, &Content::Block(major, minor)) = (kind, &node.content)
        {
            header.set_device_major(major)?;
            header.set_device_minor(minor)?;
        }
        if matches!(kind, EntryType::Regular | EntryType::Directory) && !node.attributes.is_empty()
        {
            let attributes = node.attributes.clone();
            self.attributed.push(Attributed { path: path.to_vec(), attributes });
        }
        self.name(path, EntryType::GNULongName, |header, name| header.name = name, &mut header)?;
        if let Some(target) = target {
            let long = EntryType::GNULongLink;
            self.name(target, long, |header, name| header.linkname = name, &mut header)?;
        }
        if kind == EntryType::Regular {
            header.set_size(size(node));
        }
        header.set_cksum();
        let size = size(node);
        let mut content = content.take(if kind == EntryType::Regular { size } else { 0 });
        self.builder.append(&header, &mut content)?;
        if kind == EntryType::Regular && content.limit() != 0 {
            return Err(Error::new("it is cut short").at(shown(path)));
        }
        Ok(())
    }

    /// Writes a name into a header, byte for byte; before it, in an entry of its own, if it is long.
    fn name(
        &mut self,
        name: &[u8],
        long: EntryType,
        set: fn(&mut tar::GnuHeader, [u8; 100]),
        header: &mut Header,
    ) -> Result<()> {
        let mut field = [0; 100];
        if name.len() < field.len() {
            field[..name.len()].copy_from_slice(name);
        } else {
            let mut before = Header::new_gnu();
            before.as_mut_bytes()[..13].copy_from_slice(b"././@LongLink");
            before.set_entry_type(long);
            before.set_mode(0o644);
            before.set_size(name.len() as u64 + 1);
            before.set_cksum();
            self.builder.append(&before, name.chain(&[0][..]))?;
            field.copy_from_slice(&name[..100]);
        }
        if let Some(header) = header.as_gnu_mut() {
            set(header, field);
        }
        Ok(())
    }
}
