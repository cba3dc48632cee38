//! The overlay over tmpfs layers, through the path operations that system calls use.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use hayate_abi::{Errno, Result};

use crate::credentials::Credentials;
use crate::fs::tmpfs::TmpFs;
use crate::vfs::context::FsContext;
use crate::vfs::directory;
use crate::vfs::filesystem::Caching;
use crate::vfs::inode::{Change, DirectorySink, FileKind, Inode, Owner, RenameFlags};
use crate::vfs::mount::{Location, Mount};
use crate::vfs::open::{open, read_directory};
use crate::vfs::open_file::flags::*;
use crate::vfs::path::{Resolver, WalkFlags, lookup};
use crate::vfs::transfer::{Input, Output};
use crate::{check, ktest};

/// A tree in which tests work by paths.
struct Tree {
    context: FsContext,
    credentials: Credentials,
    /// The layers, to look behind the overlay.
    lower: Arc<dyn Inode>,
    upper: Arc<dyn Inode>,
}

/// Lists names with kinds.
#[derive(Default)]
struct Names(Vec<(String, FileKind, u64)>);

impl DirectorySink for Names {
    fn entry(&mut self, number: u64, kind: FileKind, name: &[u8], _: u64) -> bool {
        self.0.push((String::from_utf8_lossy(name).into_owned(), kind, number));
        true
    }
}

impl Tree {
    /// Makes an overlay of a lower tree of `files` (those ending in `/` are directories) and an
    /// empty upper one.
    fn new(files: &[&str]) -> Result<Self> {
        let memory = TmpFs::new("tmpfs", 0o755, Owner::default(), None, Caching::All);
        let layer = Mount::whole(memory, 0, "tmpfs".into());
        let context = FsContext::new(layer.root_location());
        let credentials = Credentials::root();
        let resolver = Resolver { context: &context, credentials: &credentials, start: None };
        for name in ["/lower", "/upper", "/work"] {
            directory::mkdir(&resolver, name.as_bytes(), 0o755)?;
        }
        for file in files {
            let path = alloc::format!("/lower/{file}");
            if let Some(path) = path.strip_suffix('/') {
                directory::mkdir(&resolver, path.as_bytes(), 0o755)?;
            } else {
                let file = open(
                    &resolver,
                    path.as_bytes(),
                    O_WRONLY | O_CREAT,
                    0o644,
                    WalkFlags::empty(),
                )?;
                file.write(&mut Input::kernel(path.as_bytes()))?;
            }
        }
        let place = |path: &str| resolver.resolve(path.as_bytes(), WalkFlags::empty());
        let (lower, upper, work) = (place("/lower")?, place("/upper")?, place("/work")?);
        let overlay = crate::fs::overlay::assemble(
            alloc::vec![lower.clone()],
            Some((upper.clone(), work)),
            String::new(),
        )?;
        let root = Mount::whole(overlay, 0, "overlay".into()).root_location();
        Ok(Self {
            context: FsContext::new(root),
            credentials,
            lower: lower.inode()?,
            upper: upper.inode()?,
        })
    }

    fn resolver(&self) -> Resolver<'_> {
        Resolver { context: &self.context, credentials: &self.credentials, start: None }
    }

    fn place(&self, path: &str) -> Result<Location> {
        self.resolver().resolve(path.as_bytes(), WalkFlags::NOFOLLOW)
    }

    fn exists(&self, path: &str) -> bool {
        self.place(path).is_ok()
    }

    fn number(&self, path: &str) -> u64 {
        self.place(path).and_then(|place| place.metadata()).map_or(0, |metadata| metadata.number)
    }

    fn read(&self, path: &str) -> Result<String> {
        let file = open(&self.resolver(), path.as_bytes(), O_RDONLY, 0, WalkFlags::empty())?;
        let mut bytes = [0; 256];
        let count = file.read(&mut Output::kernel(&mut bytes))?;
        Ok(String::from_utf8_lossy(&bytes[..count]).into_owned())
    }

    fn write(&self, path: &str, flags: u32, text: &str) -> Result<()> {
        let flags = O_WRONLY | flags;
        let file = open(&self.resolver(), path.as_bytes(), flags, 0o600, WalkFlags::empty())?;
        file.write(&mut Input::kernel(text.as_bytes())).map(drop)
    }

    fn mkdir(&self, path: &str) -> Result<()> {
        directory::mkdir(&self.resolver(), path.as_bytes(), 0o755).map(drop)
    }

    fn unlink(&self, path: &str) -> Result<()> {
        directory::unlink(&self.resolver(), path.as_bytes())
    }

    fn rmdir(&self, path: &str) -> Result<()> {
        directory::rmdir(&self.resolver(), path.as_bytes())
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.rename_with(from, to, RenameFlags::empty())
    }

    fn rename_with(&self, from: &str, to: &str, flags: RenameFlags) -> Result<()> {
        let resolver = self.resolver();
        directory::rename(&resolver, from.as_bytes(), &resolver, to.as_bytes(), flags)
    }

    /// Returns the names in a directory, sorted, with a space between.
    fn list(&self, path: &str) -> Result<String> {
        let flags = O_RDONLY | O_DIRECTORY;
        let file = open(&self.resolver(), path.as_bytes(), flags, 0, WalkFlags::empty())?;
        let mut names = Names::default();
        read_directory(&file, &mut names)?;
        let mut names: Vec<String> = names.0.into_iter().map(|(name, ..)| name).collect();
        names.retain(|name| name != "." && name != "..");
        names.sort();
        Ok(names.join(" "))
    }

    /// Whether the upper layer has a whiteout at this path, of one or two parts.
    fn hides(&self, path: &str) -> bool {
        let mut here = Arc::clone(&self.upper);
        for part in path.split('/') {
            match here.lookup(part.as_bytes()) {
                Ok(next) => here = next,
                Err(_) => return false,
            }
        }
        crate::fs::overlay::is_whiteout(&here)
    }

    fn forget(&self) {
        self.context.root().dentry.prune();
    }
}

ktest! {
    fn lower_files_show_and_stay_as_they_are() {
        let tree = Tree::new(&["d/", "d/f", "g"]).unwrap();
        check!(tree.read("/d/f") == Ok("/lower/d/f".into()));
        check!(tree.list("/") == Ok("d g".into()));
        check!(tree.write("/g", O_TRUNC, "new") == Ok(()));
        check!(tree.read("/g") == Ok("new".into()));
        let below = tree.lower.lookup(b"g").unwrap();
        check!(below.metadata().unwrap().size == "/lower/g".len() as u64);
        check!(tree.list("/") == Ok("d g".into()));
    }
}

ktest! {
    fn copy_up_keeps_content_metadata_and_number() {
        let tree = Tree::new(&["d/", "d/e/", "d/e/f"]).unwrap();
        let before = tree.place("/d/e/f").unwrap().metadata().unwrap();
        check!(tree.write("/d/e/f", O_APPEND, "!") == Ok(()));
        check!(tree.read("/d/e/f") == Ok("/lower/d/e/f!".into()));
        let after = tree.place("/d/e/f").unwrap().metadata().unwrap();
        check!((after.mode, after.number, after.device) == (before.mode, before.number, before.device));
        // A new node for the same file must show the same number.
        tree.forget();
        check!(tree.number("/d/e/f") == before.number);
        let place = tree.place("/d/e").unwrap();
        let change = Change { mode: Some(0o700), ..Change::default() };
        place.inode().unwrap().set_metadata(&change).unwrap();
        check!(tree.place("/d/e").unwrap().metadata().unwrap().mode == 0o700);
        check!(tree.list("/d/e") == Ok("f".into()));
    }
}

ktest! {
    fn removal_leaves_a_whiteout_only_over_something() {
        let tree = Tree::new(&["d/", "d/f", "g"]).unwrap();
        check!(tree.unlink("/g") == Ok(()));
        check!(!tree.exists("/g"));
        check!(tree.hides("g"));
        check!(tree.unlink("/g") == Err(Errno::ENOENT));
        check!(tree.write("/new", O_CREAT, "x") == Ok(()));
        check!(tree.unlink("/new") == Ok(()));
        check!(!tree.hides("new"));
        check!(tree.rmdir("/d") == Err(Errno::ENOTEMPTY));
        check!(tree.unlink("/d/f") == Ok(()));
        check!(tree.list("/d") == Ok("".into()));
        check!(tree.rmdir("/d") == Ok(()));
        check!(tree.hides("d"));
        check!(tree.list("/") == Ok("".into()));
        tree.forget();
        check!(!tree.exists("/g") && !tree.exists("/d"));
    }
}

ktest! {
    fn what_is_made_over_a_whiteout_hides_what_was_below() {
        let tree = Tree::new(&["d/", "d/f", "g"]).unwrap();
        tree.unlink("/d/f").unwrap();
        tree.rmdir("/d").unwrap();
        check!(tree.mkdir("/d") == Ok(()));
        tree.forget();
        check!(tree.list("/d") == Ok("".into()));
        check!(!tree.exists("/d/f"));
        check!(tree.write("/d/f", O_CREAT | O_EXCL, "again") == Ok(()));
        check!(tree.read("/d/f") == Ok("again".into()));
        check!(tree.unlink("/d/f") == Ok(()));
        // Nothing shows through an opaque directory, so no whiteout is needed.
        check!(!tree.hides("d/f"));
        tree.unlink("/g").unwrap();
        check!(tree.write("/g", O_CREAT | O_EXCL, "again") == Ok(()));
        check!(!tree.hides("g"));
        check!(tree.read("/g") == Ok("again".into()));
    }
}

ktest! {
    fn renames_of_files_leave_whiteouts() {
        let tree = Tree::new(&["d/", "d/f", "g", "h"]).unwrap();
        check!(tree.rename("/g", "/d/g") == Ok(()));
        check!(tree.hides("g"));
        check!(tree.read("/d/g") == Ok("/lower/g".into()));
        check!(tree.rename("/d/g", "/d/f") == Ok(()));
        check!(tree.read("/d/f") == Ok("/lower/g".into()));
        check!(tree.list("/d") == Ok("f".into()));
        check!(tree.rename("/d/f", "/g") == Ok(()));
        check!(tree.hides("d/f"));
        check!(!tree.hides("g"));
        tree.forget();
        check!(tree.read("/g") == Ok("/lower/g".into()));
        check!(tree.list("/d") == Ok("".into()));
        check!(tree.rename_with("/g", "/h", RenameFlags::NOREPLACE) == Err(Errno::EEXIST));
        check!(tree.rename_with("/g", "/h", RenameFlags::EXCHANGE) == Ok(()));
        check!(tree.read("/g") == Ok("/lower/h".into()));
        check!(tree.read("/h") == Ok("/lower/g".into()));
        check!(tree.list("/") == Ok("d g h".into()));
    }
}

ktest! {
    fn directories_with_a_lower_part_stay_where_they_are() {
        let tree = Tree::new(&["d/", "d/f", "e/"]).unwrap();
        check!(tree.rename("/d", "/x") == Err(Errno::EXDEV));
        check!(tree.mkdir("/new") == Ok(()));
        check!(tree.write("/new/f", O_CREAT, "f") == Ok(()));
        check!(tree.rename("/new", "/newer") == Ok(()));
        check!(tree.list("/newer") == Ok("f".into()));
        check!(!tree.hides("new"));
        // It replaces an empty lower directory, which then must not show through.
        check!(tree.rename("/newer", "/d") == Err(Errno::ENOTEMPTY));
        check!(tree.rename("/newer", "/e") == Ok(()));
        tree.forget();
        check!(tree.list("/e") == Ok("f".into()));
        check!(tree.list("/") == Ok("d e".into()));
    }
}

ktest! {
    fn links_share_one_file() {
        let tree = Tree::new(&["g"]).unwrap();
        let old = tree.place("/g").unwrap();
        check!(directory::link(&tree.resolver(), &old, b"/again") == Ok(()));
        check!(tree.number("/again") == tree.number("/g"));
        tree.write("/again", O_TRUNC, "both").unwrap();
        check!(tree.read("/g") == Ok("both".into()));
        drop(old);
        tree.forget();
        check!(tree.number("/again") == tree.number("/g"));
        check!(tree.place("/g").unwrap().metadata().unwrap().links == 2);
        tree.unlink("/g").unwrap();
        check!(tree.read("/again") == Ok("both".into()));
        check!(tree.hides("g"));
    }
}

ktest! {
    fn an_open_file_follows_its_copy() {
        let tree = Tree::new(&["g"]).unwrap();
        let reader =
            open(&tree.resolver(), b"/g", O_RDONLY, 0, WalkFlags::empty()).unwrap();
        tree.write("/g", O_TRUNC, "changed").unwrap();
        let mut bytes = [0; 32];
        let count = reader.read(&mut Output::kernel(&mut bytes)).unwrap();
        check!(&bytes[..count] == b"changed");
        tree.unlink("/g").unwrap();
        check!(reader.metadata().unwrap().links == 0);
    }
}

ktest! {
    fn listings_survive_changes_and_agree_with_stat() {
        let tree = Tree::new(&["a", "b", "c", "d/"]).unwrap();
        let flags = O_RDONLY | O_DIRECTORY;
        let file = open(&tree.resolver(), b"/", flags, 0, WalkFlags::empty()).unwrap();
        /// Takes one entry at a time.
        struct One(Option<(String, u64)>);
        impl DirectorySink for One {
            fn entry(&mut self, number: u64, _: FileKind, name: &[u8], _: u64) -> bool {
                let free = self.0.is_none();
                if free {
                    self.0 = Some((String::from_utf8_lossy(name).into_owned(), number));
                }
                free
            }
        }
        let mut seen = Vec::new();
        loop {
            let mut one = One(None);
            read_directory(&file, &mut one).unwrap();
            let Some((name, number)) = one.0 else { break };
            if name == "a" {
                // Entries are copied up, hidden and made while the listing is in progress.
                tree.write("/c", O_APPEND, "+").unwrap();
                tree.unlink("/b").unwrap();
                tree.write("/z", O_CREAT, "z").unwrap();
            }
            if name != "." && name != ".." {
                check!(tree.number(&name) == number);
                seen.push(name);
            }
        }
        seen.sort();
        check!(seen.join(" ") == "a c d z");
    }
}

ktest! {
    fn symbolic_links_and_xattrs_of_its_own_are_handled() {
        let tree = Tree::new(&["g"]).unwrap();
        directory::symlink(&tree.resolver(), b"g", b"/l").unwrap();
        check!(tree.read("/l") == Ok("/lower/g".into()));
        let root = tree.place("/").unwrap().inode().unwrap();
        check!(root.set_xattr(b"trusted.overlay.opaque", Some(b"y"), 0) == Err(Errno::EOPNOTSUPP));
        check!(root.set_xattr(b"trusted.mine", Some(b"1"), 0) == Ok(()));
        check!(root.get_xattr(b"trusted.mine") == Ok(b"1".to_vec()));
        check!(root.list_xattr() == Ok(b"trusted.mine\0".to_vec()));
        let child = lookup(&tree.context.root().dentry, &root, b"g").unwrap();
        check!(child.inode().is_some());
    }
}
