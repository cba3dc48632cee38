//! A model of a file system, and a volume beside it on which the same is done.
//!
//! The model knows what Linux' rules say the result of each operation is; the volume must agree,
//! and read back the same at the end.

use std::collections::{BTreeMap, BTreeSet};

use hayate_ext4::{
    Change, Condition, Content, Device, Error, Fill, New, Progress, ROOT, Rename, Result, Run,
    Source, Time, Volume, Writer,
};

use super::{Disk, now};

/// A node of the model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    pub mode: u16,
    pub uid: u32,
    pub gid: u32,
    pub modified: Time,
    /// Content of a file, target of a link, numbers of a device.
    pub bytes: Vec<u8>,
    pub children: BTreeMap<Vec<u8>, u32>,
    pub attributes: BTreeMap<Vec<u8>, Vec<u8>>,
}

/// The model: nodes by the numbers that the volume has given them.
#[derive(Clone, Debug, Default)]
pub struct Model {
    pub nodes: BTreeMap<u32, Node>,
}

pub const DIRECTORY: u16 = 0o040_000;
pub const REGULAR: u16 = 0o100_000;
pub const LINK: u16 = 0o120_000;
pub const MASK: u16 = 0o170_000;

impl Model {
    /// Without the nodes that no name leads to.
    pub fn reachable(&self) -> Model {
        let mut reached = Model::default();
        let mut next = vec![ROOT];
        while let Some(number) = next.pop() {
            let node = self.nodes[&number].clone();
            next.extend(node.children.values());
            reached.nodes.insert(number, node);
        }
        reached
    }

    /// How many names an inode has; a directory's are its name, `.`, and `..` of those in it.
    pub fn links(&self, number: u32) -> u32 {
        let node = &self.nodes[&number];
        if node.mode & MASK == DIRECTORY {
            let is_directory = |child: &&u32| self.nodes[child].mode & MASK == DIRECTORY;
            return 2 + node.children.values().filter(is_directory).count() as u32;
        }
        let names = |node: &Node| node.children.values().filter(|child| **child == number).count();
        self.nodes.values().map(names).sum::<usize>() as u32
    }
}

/// The state that a commit has made durable.
pub struct Snapshot {
    /// Requests of the log until the commit was done.
    pub requests: usize,
    /// None if the commit came in the middle of an operation of several steps.
    pub model: Option<Model>,
    /// Inodes whose data was written after the snapshot before this one.
    pub touched: BTreeSet<u32>,
}

/// The volume and its model.
pub struct Pair {
    pub disk: Disk,
    pub writer: Writer,
    pub model: Model,
    pub step: u64,
    /// Whether inodes have room for nanoseconds.
    fine: bool,
    /// The trees that the volume must have after a crash from some request on, for crash tests.
    pub snapshots: Option<Vec<Snapshot>>,
    /// Inodes whose data was written in place since the last snapshot.
    touched: BTreeSet<u32>,
}

impl Pair {
    pub fn open(bytes: Vec<u8>) -> Pair {
        let disk = Disk::new(bytes);
        let writer = Writer::open(&disk, disk.size(), now(0)).expect("a writable volume");
        let mut model = Model::default();
        read_tree(writer.volume(), &writer.view(&disk), ROOT, &mut model).expect("a tree");
        let root = writer.inode(&disk, ROOT).expect("a root");
        Pair {
            disk,
            writer,
            model,
            step: 1,
            fine: root.created.is_some(),
            snapshots: None,
            touched: BTreeSet::new(),
        }
    }

    pub fn tick(&mut self) -> Time {
        self.step += 1;
        let time = now(self.step);
        if self.fine { time } else { Time { nanoseconds: 0, ..time } }
    }

    /// Commits between two operations.
    pub fn commit(&mut self) -> Result<()> {
        self.commit_with(true)
    }

    fn commit_with(&mut self, between: bool) -> Result<()> {
        let time = now(self.step);
        self.writer.commit(&self.disk, time)?;
        if let Some(snapshots) = &mut self.snapshots {
            snapshots.push(Snapshot {
                requests: self.disk.log.borrow().as_ref().map_or(0, Vec::len),
                model: between.then(|| self.model.clone()),
                touched: std::mem::take(&mut self.touched),
            });
        }
        Ok(())
    }

    /// Does an operation as the contract says: commits when the transaction is full, or when the
    /// operation needs what the transaction has freed.
    pub fn operate<T>(
        &mut self,
        mut operation: impl FnMut(&mut Writer, &Disk) -> Result<T>,
    ) -> Result<T> {
        let mut tries = 0;
        loop {
            if self.writer.needs_commit() {
                self.commit_with(false)?;
            }
            match operation(&mut self.writer, &self.disk) {
                Err(Error::CommitFirst) if tries < 2 => {
                    tries += 1;
                    self.commit_with(false)?;
                }
                result => return result,
            }
        }
    }

    pub fn create(&mut self, parent: u32, name: &[u8], new: &New<'_>) -> Result<u32> {
        let time = self.tick();
        let number = self.operate(|writer, disk| writer.create(disk, parent, name, new, time));
        let exists = self.model.nodes[&parent].children.contains_key(name);
        assert_eq!(exists, number == Err(Error::Exists), "{number:?}");
        let number = number?;
        let bytes = match new.content {
            Content::Nothing => Vec::new(),
            Content::Device(major, minor) => format!("{major}:{minor}").into_bytes(),
            Content::Target(target) => target.to_vec(),
        };
        let node = Node {
            mode: new.mode,
            uid: new.uid,
            gid: new.gid,
            modified: time,
            bytes,
            children: BTreeMap::new(),
            attributes: BTreeMap::new(),
        };
        assert!(self.model.nodes.insert(number, node).is_none(), "inode {number} is in use");
        self.add_name(parent, name, number, time);
        Ok(number)
    }

    fn add_name(&mut self, parent: u32, name: &[u8], number: u32, time: Time) {
        let parent = self.model.nodes.get_mut(&parent).unwrap();
        parent.children.insert(name.to_vec(), number);
        parent.modified = time;
    }

    fn drop_name(&mut self, parent: u32, name: &[u8], time: Time) -> u32 {
        let parent = self.model.nodes.get_mut(&parent).unwrap();
        parent.modified = time;
        parent.children.remove(name).unwrap()
    }

    /// Frees an inode without names, in the model too.
    fn release(&mut self, number: u32) -> Result<()> {
        let time = self.tick();
        while self.operate(|writer, disk| writer.release(disk, number, time))? == Progress::More {}
        self.model.nodes.remove(&number);
        Ok(())
    }

    pub fn link(&mut self, inode: u32, parent: u32, name: &[u8]) -> Result<()> {
        let time = self.tick();
        let done = self.operate(|writer, disk| writer.link(disk, inode, parent, name, time));
        let exists = self.model.nodes[&parent].children.contains_key(name);
        assert_eq!(exists, done == Err(Error::Exists), "{done:?}");
        done?;
        self.add_name(parent, name, inode, time);
        Ok(())
    }

    pub fn unlink(&mut self, parent: u32, name: &[u8]) -> Result<()> {
        let time = self.tick();
        let done = self.operate(|writer, disk| writer.unlink(disk, parent, name, time));
        let child = self.model.nodes[&parent].children.get(name).copied();
        let kind = child.map(|child| self.model.nodes[&child].mode & MASK);
        match kind {
            None => assert_eq!(done, Err(Error::NotFound)),
            Some(DIRECTORY) => assert_eq!(done, Err(Error::IsDirectory)),
            _ => {}
        }
        let done = done?;
        let number = self.drop_name(parent, name, time);
        assert_eq!((done.inode, u32::from(done.links)), (number, self.model.links(number)));
        if done.links == 0 { self.release(number) } else { Ok(()) }
    }

    pub fn rmdir(&mut self, parent: u32, name: &[u8]) -> Result<()> {
        let time = self.tick();
        let done = self.operate(|writer, disk| writer.rmdir(disk, parent, name, time));
        match self.model.nodes[&parent].children.get(name).map(|child| &self.model.nodes[child]) {
            None => assert_eq!(done, Err(Error::NotFound)),
            Some(node) if node.mode & MASK != DIRECTORY => {
                assert_eq!(done, Err(Error::NotDirectory));
            }
            Some(node) if !node.children.is_empty() => assert_eq!(done, Err(Error::NotEmpty)),
            _ => {}
        }
        let done = done?;
        let number = self.drop_name(parent, name, time);
        assert_eq!((done.inode, done.links), (number, 0));
        self.release(number)
    }

    fn is_below(&self, inner: u32, outer: u32) -> bool {
        inner == outer
            || self.model.nodes[&outer].children.values().any(|&child| self.is_below(inner, child))
    }

    pub fn rename(&mut self, from: (u32, &[u8]), to: (u32, &[u8]), kind: Rename) -> Result<()> {
        let child = |model: &Model, (parent, name): (u32, &[u8])| {
            model.nodes[&parent].children.get(name).copied()
        };
        let (source, target) = (child(&self.model, from), child(&self.model, to));
        // The caller's checks.
        let Some(source) = source else { return Ok(()) };
        if self.is_below(to.0, source) || target.is_some_and(|target| self.is_below(from.0, target))
        {
            return Ok(());
        }
        let time = self.tick();
        let done = self.operate(|writer, disk| writer.rename(disk, from, to, kind, time));
        let is_directory = |number: u32| self.model.nodes[&number].mode & MASK == DIRECTORY;
        let expected = match (kind, target) {
            (Rename::Exchange, None) => Some(Error::NotFound),
            (Rename::NoReplace, Some(_)) => Some(Error::Exists),
            (Rename::Exchange, Some(_)) | (_, None) => None,
            (_, Some(target)) if target == source => None,
            (_, Some(target)) => match (is_directory(source), is_directory(target)) {
                (true, false) => Some(Error::NotDirectory),
                (false, true) => Some(Error::IsDirectory),
                (true, true) if !self.model.nodes[&target].children.is_empty() => {
                    Some(Error::NotEmpty)
                }
                _ => None,
            },
        };
        if let Some(expected) = expected {
            assert_eq!(done, Err(expected));
        }
        let done = done?;
        if target == Some(source) {
            return Ok(());
        }
        if let (Rename::Exchange, Some(target)) = (kind, target) {
            self.add_name(from.0, from.1, target, time);
            self.add_name(to.0, to.1, source, time);
            return Ok(());
        }
        self.drop_name(from.0, from.1, time);
        self.add_name(to.0, to.1, source, time);
        if let Rename::Whiteout(uid, gid) = kind {
            let number = self.writer.lookup(&self.disk, from.0, from.1)?.expect("a whiteout");
            let node = Node {
                mode: 0o020_000,
                uid,
                gid,
                modified: time,
                bytes: b"0:0".to_vec(),
                children: BTreeMap::new(),
                attributes: BTreeMap::new(),
            };
            assert!(self.model.nodes.insert(number, node).is_none());
            self.add_name(from.0, from.1, number, time);
        }
        assert_eq!(done.map(|unlinked| unlinked.inode), target);
        match (target, done) {
            (Some(target), Some(unlinked)) if unlinked.links == 0 => self.release(target),
            (Some(target), Some(unlinked)) => {
                assert_eq!(u32::from(unlinked.links), self.model.links(target));
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Writes as the kernel does: allocates, writes whole blocks, sets the size.
    pub fn write(&mut self, number: u32, offset: u64, data: &[u8]) -> Result<()> {
        let size = self.writer.volume().block_size() as u64;
        self.touched.insert(number);
        let end = offset + data.len() as u64;
        let (mut block, last) = (offset / size, end.div_ceil(size));
        while block < last {
            let count = (last - block) as u32;
            // Earlier content of the blocks is kept where the write does not cover them.
            let inode = self.writer.inode(&self.disk, number)?;
            let before = self.writer.mapping(&self.disk, &inode, block as u32)?;
            let extent =
                self.operate(|writer, disk| writer.extend(disk, number, block as u32, count, end))?;
            assert!(extent.count >= 1 && extent.count <= count && u64::from(extent.block) == block);
            let was_written = before.written && before.place == Some(extent.place);
            for step in 0..u64::from(extent.count) {
                let place = (extent.place + step) * size;
                let mut bytes = vec![0; size as usize];
                if was_written && step < before.count.into() {
                    self.disk.read(place, &mut bytes)?;
                }
                let start = (block + step) * size;
                let from = offset.max(start);
                let to = end.min(start + size);
                bytes[(from - start) as usize..(to - start) as usize]
                    .copy_from_slice(&data[(from - offset) as usize..(to - offset) as usize]);
                self.disk.write(place, &bytes)?;
            }
            block += u64::from(extent.count);
            let time = self.tick();
            let done = end.min(block * size);
            let change = Change { modified: Some(time), changed: Some(time), ..Change::default() };
            self.operate(|writer, disk| writer.change(disk, number, &change))?;
            let node = self.model.nodes.get_mut(&number).unwrap();
            node.modified = time;
            if node.bytes.len() < done as usize {
                node.bytes.resize(done as usize, 0);
            }
            let count = (done - offset) as usize;
            node.bytes[offset as usize..offset as usize + count].copy_from_slice(&data[..count]);
        }
        Ok(())
    }

    /// Zeroes a part of a block that has data.
    fn zero(&mut self, number: u32, from: u64, to: u64) -> Result<()> {
        self.touched.insert(number);
        let size = self.writer.volume().block_size() as u64;
        let inode = self.writer.inode(&self.disk, number)?;
        let mapping = self.writer.mapping(&self.disk, &inode, (from / size) as u32)?;
        match mapping.place {
            Some(place) if mapping.written && from < to => {
                self.disk.write(place * size + from % size, &vec![0; (to - from) as usize])
            }
            _ => Ok(()),
        }
    }

    pub fn set_size(&mut self, number: u32, length: u64) -> Result<()> {
        let time = self.tick();
        let size = self.writer.volume().block_size() as u64;
        while self.operate(|writer, disk| writer.set_size(disk, number, length, time))?
            == Progress::More
        {}
        self.zero(number, length, length.next_multiple_of(size))?;
        let node = self.model.nodes.get_mut(&number).unwrap();
        node.bytes.resize(length as usize, 0);
        node.modified = time;
        Ok(())
    }

    /// Punches whole blocks.
    pub fn punch(&mut self, number: u32, from: u32, to: u32) -> Result<()> {
        let time = self.tick();
        let size = self.writer.volume().block_size();
        while self.operate(|writer, disk| writer.punch(disk, number, from, to, time))?
            == Progress::More
        {}
        let node = self.model.nodes.get_mut(&number).unwrap();
        let length = node.bytes.len();
        let (start, end) = ((from as usize * size).min(length), (to as usize * size).min(length));
        node.bytes[start..end].fill(0);
        node.modified = time;
        Ok(())
    }

    /// Preallocates blocks, within the size.
    pub fn preallocate(&mut self, number: u32, from: u32, count: u32) -> Result<()> {
        let mut block = from;
        while block < from + count {
            let left = from + count - block;
            let extent = self.operate(|writer, disk| {
                writer.allocate(disk, number, block, left, Fill::Unwritten)
            })?;
            block += extent.count;
        }
        let size = self.writer.volume().block_size() as u64;
        let end = u64::from(from + count) * size;
        let length = end.max(self.model.nodes[&number].bytes.len() as u64);
        let change = Change { size: Some(length), ..Change::default() };
        self.operate(|writer, disk| writer.change(disk, number, &change))?;
        self.model.nodes.get_mut(&number).unwrap().bytes.resize(length as usize, 0);
        Ok(())
    }

    pub fn set_mode(&mut self, number: u32, permissions: u16, uid: u32, gid: u32) -> Result<()> {
        let change = Change {
            permissions: Some(permissions),
            uid: Some(uid),
            gid: Some(gid),
            ..Change::default()
        };
        self.operate(|writer, disk| writer.change(disk, number, &change))?;
        let node = self.model.nodes.get_mut(&number).unwrap();
        node.mode = node.mode & MASK | permissions;
        (node.uid, node.gid) = (uid, gid);
        Ok(())
    }

    pub fn set_attribute(
        &mut self,
        number: u32,
        name: &[u8],
        value: Option<&[u8]>,
        condition: Condition,
    ) -> Result<()> {
        let time = self.tick();
        let done = self.operate(|writer, disk| {
            writer.set_attribute(disk, number, name, value, condition, time)
        });
        let attributes = &mut self.model.nodes.get_mut(&number).unwrap().attributes;
        let exists = attributes.contains_key(name);
        match (exists, value, condition) {
            (false, None, _) | (false, _, Condition::Present) => {
                assert_eq!(done, Err(Error::NotFound));
            }
            (true, Some(_), Condition::Absent) => assert_eq!(done, Err(Error::Exists)),
            _ => {}
        }
        done?;
        match value {
            Some(value) => attributes.insert(name.to_vec(), value.to_vec()),
            None => attributes.remove(name),
        };
        Ok(())
    }

    /// Unmounts; returns the volume's bytes and the model.
    pub fn unmount(mut self) -> (Vec<u8>, Model) {
        let time = self.tick();
        self.writer.unmount(&self.disk, time).expect("an unmount");
        (self.disk.bytes.into_inner(), self.model)
    }

    /// Fails unless the volume, read through the writer's copies, is the model.
    pub fn compare(&self) {
        let mut found = Model::default();
        read_tree(self.writer.volume(), &self.writer.view(&self.disk), ROOT, &mut found)
            .expect("a tree");
        assert_same(&self.model, &found);
        for (&number, node) in &self.model.nodes {
            if node.mode & MASK == DIRECTORY {
                self.compare_list(number, node);
            }
        }
    }

    fn compare_list(&self, number: u32, node: &Node) {
        let mut names = BTreeSet::new();
        let mut from = 0;
        loop {
            // Few entries in each call, so that positions are used.
            let mut left = 7;
            let next = self
                .writer
                .list(&self.disk, number, from, &mut |entry, next| {
                    assert!(next > from, "positions rise");
                    if left == 0 {
                        return false;
                    }
                    left -= 1;
                    assert!(names.insert(entry.name.to_vec()), "{:?} twice", entry.name);
                    assert_eq!(node.children.get(entry.name), Some(&entry.inode));
                    true
                })
                .expect("a list");
            if left > 0 {
                break;
            }
            from = next;
        }
        assert_eq!(names.len(), node.children.len(), "entries of {number}");
        for (name, child) in &node.children {
            assert_eq!(self.writer.lookup(&self.disk, number, name), Ok(Some(*child)));
            if self.model.nodes[child].mode & MASK == DIRECTORY {
                assert_eq!(self.writer.parent(&self.disk, *child), Ok(number));
            }
        }
        assert_eq!(self.writer.lookup(&self.disk, number, b"no such name"), Ok(None));
    }
}

pub fn assert_same(expected: &Model, found: &Model) {
    let keys = |model: &Model| model.nodes.keys().copied().collect::<Vec<_>>();
    assert_eq!(keys(expected), keys(found), "the inodes that are in use");
    for (number, node) in &expected.nodes {
        let other = &found.nodes[number];
        let describe = |node: &Node| {
            (node.mode, node.uid, node.gid, node.bytes.len(), node.children.clone(), node.modified)
        };
        assert_eq!(describe(node), describe(other), "inode {number}");
        assert_eq!(node.attributes, other.attributes, "attributes of inode {number}");
        let differs = node.bytes.iter().zip(&other.bytes).position(|(one, other)| one != other);
        assert_eq!(differs, None, "content of inode {number}");
    }
}

/// Reads everything below directory `number`.
pub fn read_tree(
    volume: &Volume,
    source: &dyn Source,
    number: u32,
    model: &mut Model,
) -> Result<()> {
    if model.nodes.contains_key(&number) {
        return Ok(());
    }
    let inode = volume.inode(source, number)?;
    let mut bytes = Vec::new();
    let mut children = BTreeMap::new();
    match inode.mode & MASK {
        DIRECTORY => {
            let map = volume.map(source, &inode)?;
            let mut block = vec![0; volume.block_size()];
            for index in 0..inode.size / block.len() as u64 {
                let offset = index * block.len() as u64;
                assert!(matches!(map.run(offset), Run::Data { .. }), "a hole in a directory");
                map.read(volume, source, offset, &mut block)?;
                volume.check_directory(&inode, &block)?;
                for entry in volume.entries(&block, 0) {
                    let entry = entry?;
                    if entry.name != b"." && entry.name != b".." {
                        let before = children.insert(entry.name.to_vec(), entry.inode);
                        assert!(before.is_none(), "{:?} twice", entry.name);
                    }
                }
            }
        }
        LINK => bytes = volume.link_target(source, &inode)?,
        REGULAR => {
            bytes.resize(inode.size as usize, 0);
            volume.map(source, &inode)?.read(volume, source, 0, &mut bytes)?;
        }
        0o020_000 | 0o060_000 => {
            let (major, minor) = inode.device();
            bytes = format!("{major}:{minor}").into_bytes();
        }
        _ => {}
    }
    let mut attributes = BTreeMap::new();
    if inode.has_attributes() {
        for name in volume.attributes(source, &inode)?.split(|&byte| byte == 0) {
            if !name.is_empty() {
                let value = volume.attribute(source, &inode, name)?.expect("a listed attribute");
                attributes.insert(name.to_vec(), value);
            }
        }
    }
    let (mode, uid, gid) = (inode.mode, inode.uid, inode.gid);
    let node = Node {
        mode,
        uid,
        gid,
        modified: inode.modified,
        bytes,
        children: children.clone(),
        attributes,
    };
    model.nodes.insert(number, node);
    for child in children.values() {
        read_tree(volume, source, *child, model)?;
    }
    if inode.mode & MASK == DIRECTORY {
        // More directories than can be counted are counted as one link.
        let links = model.links(number);
        assert!(u32::from(inode.links) == links || inode.links == 1, "links of {number}");
    }
    Ok(())
}

/// Reads a whole volume that is not mounted.
pub fn read_volume(bytes: &[u8]) -> Result<Model> {
    let disk = Disk::new(bytes.to_vec());
    let volume = Volume::open(&disk, disk.size())?;
    let mut model = Model::default();
    read_tree(&volume, &disk, ROOT, &mut model)?;
    for (&number, node) in &model.nodes {
        if node.mode & MASK != DIRECTORY {
            let links = volume.inode(&disk, number)?.links;
            assert_eq!(u32::from(links), model.links(number), "links of {number}");
        }
    }
    Ok(model)
}
