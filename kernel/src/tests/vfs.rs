//! Tests of the file layer inside the kernel, on a tree of their own: paths, changes of the tree,
//! page caches, pipes, locks, events. User programs test the same through system calls; a failure
//! here is easier to locate.

use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicUsize, Ordering};

use hayate_abi::file::Flock;
use hayate_abi::{Errno, Result};
use hayate_machine::frames;

use crate::credentials::{CapabilitySet, Credentials};
use crate::fs::tmpfs::TmpFs;
use crate::ipc::epoll;
use crate::ipc::epoll::Epoll;
use crate::ipc::{eventfd, pipe};
use crate::page_cache::cache::{PAGE, PageCache};
use crate::page_cache::seals;
use crate::schedule::WaitQueue;
use crate::user_namespace;
use crate::vfs::context::FsContext;
use crate::vfs::descriptor::FdTable;
use crate::vfs::filesystem::Caching;
use crate::vfs::inode::{DirectorySink, FileKind, Owner, RenameFlags};
use crate::vfs::lock_owner::LockOwner;
use crate::vfs::mount::{self, Location, Mount, MountNamespace};
use crate::vfs::open_file::flags::*;
use crate::vfs::open_file::{OpenFile, Whence};
use crate::vfs::path::{Resolver, WalkFlags};
use crate::vfs::poll::Events;
use crate::vfs::transfer::{Input, Output};
use crate::vfs::unaccepted::Unaccepted;
use crate::vfs::users;
use crate::vfs::users::Counted;
use crate::vfs::users::Holdings;
use crate::vfs::{content, directory, locks, mount_tree, open, unmount};
use crate::{check, ktest, schedule};

/// A tree of its own, seen by root.
struct World {
    context: FsContext,
    credentials: Credentials,
}

impl World {
    fn new() -> World {
        let tree = TmpFs::new("tmpfs", 0o755, Owner::default(), None, Caching::All);
        let mount = Mount::whole(tree, 0, "test".into());
        let context = FsContext::new(mount.root_location());
        World { context, credentials: Credentials::root() }
    }

    /// The same tree seen by an ordinary user.
    fn as_user(&self, user: u32) -> World {
        let mut credentials = Credentials::root();
        credentials.fsuid = user;
        credentials.fsgid = user;
        credentials.effective = CapabilitySet::EMPTY;
        World { context: self.context.fork(), credentials }
    }

    fn resolver(&self) -> Resolver<'_> {
        Resolver { context: &self.context, credentials: &self.credentials, start: None }
    }

    fn find(&self, path: &[u8]) -> Result<Location> {
        self.resolver().resolve(path, WalkFlags::empty())
    }

    fn open(&self, path: &[u8], flags: u32) -> Result<Arc<OpenFile>> {
        open::open(&self.resolver(), path, flags, 0o644, WalkFlags::empty())
    }

    fn mkdir(&self, path: &[u8]) -> Result<()> {
        directory::mkdir(&self.resolver(), path, 0o755).map(drop)
    }

    fn link_to(&self, target: &[u8], path: &[u8]) -> Result<()> {
        directory::symlink(&self.resolver(), target, path).map(drop)
    }

    fn rename(&self, from: &[u8], to: &[u8], flags: RenameFlags) -> Result<()> {
        let resolver = self.resolver();
        directory::rename(&resolver, from, &resolver, to, flags)
    }

    fn make(&self, path: &[u8], text: &[u8]) -> Result<()> {
        self.open(path, O_WRONLY | O_CREAT | O_EXCL)?.write(&mut Input::kernel(text)).map(drop)
    }

    fn text(&self, path: &[u8]) -> Result<Vec<u8>> {
        let file = self.open(path, O_RDONLY)?;
        let mut bytes = vec![0; file.metadata()?.size as usize + 1];
        let count = file.read(&mut Output::kernel(&mut bytes))?;
        bytes.truncate(count);
        Ok(bytes)
    }

    fn names(&self, path: &[u8]) -> Result<Vec<Vec<u8>>> {
        let mut names = Names(Vec::new(), usize::MAX);
        open::read_directory(&*self.open(path, O_RDONLY | O_DIRECTORY)?, &mut names)?;
        Ok(names.0)
    }
}

/// Collects up to this many names.
struct Names(Vec<Vec<u8>>, usize);

impl DirectorySink for Names {
    fn entry(&mut self, _: u64, _: FileKind, name: &[u8], _: u64) -> bool {
        if self.0.len() == self.1 {
            return false;
        }
        self.0.push(name.to_vec());
        true
    }
}

/// Returns the error of a call that must fail.
fn error<T>(result: Result<T>) -> Option<Errno> {
    result.err()
}

ktest! {
    fn paths_lead_where_linux_leads_them() {
        let world = World::new();
        check!(world.mkdir(b"/a").is_ok() && world.mkdir(b"/a/b").is_ok());
        check!(world.make(b"/a/b/file", b"content") == Ok(()));
        for path in [
            &b"/a/b/file"[..], b"a/b/file", b"//a///b//file", b"/./a/./b/file",
            b"/a/../a/b/../b/file", b"/../../a/b/file",
        ] {
            check!(world.text(path).as_deref() == Ok(b"content"));
        }
        check!(error(world.find(b"")) == Some(Errno::ENOENT));
        check!(error(world.find(b"/a/x/file")) == Some(Errno::ENOENT));
        check!(error(world.find(b"/a/b/file/")) == Some(Errno::ENOTDIR));
        check!(error(world.find(b"/a/b/file/..")) == Some(Errno::ENOTDIR));
        check!(error(world.find(&[b'x'; 256])) == Some(Errno::ENAMETOOLONG));
        check!(error(world.find(&[b'x'; 255])) == Some(Errno::ENOENT));
        let place = world.find(b"/a/b").unwrap();
        check!(place.path_from(&world.context.root()).is_ok_and(|(path, _)| path == b"/a/b"));
    }
}

ktest! {
    fn links_are_followed_and_loops_are_found() {
        let world = World::new();
        check!(world.mkdir(b"/dir").is_ok() && world.make(b"/dir/file", b"x") == Ok(()));
        check!(world.link_to(b"dir/file", b"/relative") == Ok(()));
        check!(world.link_to(b"/dir", b"/absolute") == Ok(()));
        check!(world.link_to(b"../relative", b"/dir/up") == Ok(()));
        check!(world.link_to(b"loop", b"/loop") == Ok(()));
        check!(world.link_to(b"nowhere", b"/dangling") == Ok(()));
        check!(world.text(b"/relative").as_deref() == Ok(b"x"));
        check!(world.text(b"/absolute/file").as_deref() == Ok(b"x"));
        check!(world.text(b"/absolute/up").as_deref() == Ok(b"x"));
        check!(error(world.find(b"/loop")) == Some(Errno::ELOOP));
        check!(error(world.find(b"/dangling")) == Some(Errno::ENOENT));
        let link = world.resolver().resolve(b"/loop", WalkFlags::NOFOLLOW);
        check!(link.unwrap().inode().unwrap().attributes().kind == FileKind::Symlink);
        check!(error(world.open(b"/relative", O_RDONLY | O_NOFOLLOW)) == Some(Errno::ELOOP));
        // Creating through a dangling link makes its target; O_EXCL does not follow.
        check!(error(world.open(b"/dangling", O_WRONLY | O_CREAT | O_EXCL)) == Some(Errno::EEXIST));
        check!(world.open(b"/dangling", O_WRONLY | O_CREAT).is_ok());
        check!(world.find(b"/nowhere").is_ok());
        let mut resolver = world.resolver();
        resolver.start = world.find(b"/dir").ok();
        check!(error(resolver.resolve(b"up", WalkFlags::BENEATH)) == Some(Errno::EXDEV));
        check!(error(resolver.resolve(b"up", WalkFlags::IN_ROOT)) == Some(Errno::ENOENT));
    }
}

ktest! {
    fn names_come_and_go() {
        let world = World::new();
        check!(world.make(b"/one", b"1") == Ok(()));
        check!(error(world.make(b"/one", b"")) == Some(Errno::EEXIST));
        let place = world.find(b"/one").unwrap();
        check!(directory::link(&world.resolver(), &place, b"/two") == Ok(()));
        check!(place.metadata().unwrap().links == 2);
        let open = world.open(b"/two", O_RDWR).unwrap();
        check!(directory::unlink(&world.resolver(), b"/one") == Ok(()));
        check!(directory::unlink(&world.resolver(), b"/two") == Ok(()));
        check!(open.metadata().unwrap().links == 0);
        check!(open.write(&mut Input::kernel(b"still")) == Ok(5));
        check!(error(world.find(b"/two")) == Some(Errno::ENOENT));
        check!(open.location().display(&world.context.root()).as_deref() == Ok(b"/two (deleted)"));

        check!(world.mkdir(b"/d").is_ok() && world.mkdir(b"/d/e").is_ok());
        check!(error(world.mkdir(b"/d")) == Some(Errno::EEXIST));
        check!(error(directory::rmdir(&world.resolver(), b"/d")) == Some(Errno::ENOTEMPTY));
        check!(error(directory::rmdir(&world.resolver(), b"/d/.")) == Some(Errno::EINVAL));
        check!(error(directory::rmdir(&world.resolver(), b"/d/..")) == Some(Errno::ENOTEMPTY));
        check!(error(directory::unlink(&world.resolver(), b"/d")) == Some(Errno::EISDIR));
        check!(world.find(b"/d").unwrap().metadata().unwrap().links == 3);
        check!(directory::rmdir(&world.resolver(), b"/d/e") == Ok(()));
        check!(directory::rmdir(&world.resolver(), b"/d/") == Ok(()));
        check!(world.names(b"/") == Ok(vec![b".".to_vec(), b"..".to_vec()]));
    }
}

ktest! {
    fn a_removed_directory_takes_the_names_looked_for_in_it_along() {
        let world = World::new();
        let missing = |path: &[u8]| world.find(path).err() == Some(Errno::ENOENT);
        let rmdir = |path: &[u8]| directory::rmdir(&world.resolver(), path);
        // A name in the directory is looked up before the directory is removed.
        world.mkdir(b"/d").unwrap();
        let removed = Arc::downgrade(&world.find(b"/d").unwrap().dentry);
        check!(missing(b"/d/none"));
        check!(rmdir(b"/d").is_ok());
        check!(removed.upgrade().is_none());
        // The directory is replaced by another one.
        world.mkdir(b"/d").unwrap();
        world.mkdir(b"/e").unwrap();
        let replaced = Arc::downgrade(&world.find(b"/e").unwrap().dentry);
        check!(missing(b"/e/none"));
        check!(world.rename(b"/d", b"/e", RenameFlags::empty()).is_ok());
        check!(replaced.upgrade().is_none());
        // A name is looked up after the directory was removed, through a reference that remains.
        let inside = world.find(b"/e").unwrap();
        let removed = Arc::downgrade(&inside.dentry);
        check!(rmdir(b"/e").is_ok());
        let resolver = Resolver { start: Some(inside), ..world.resolver() };
        check!(resolver.resolve(b"none", WalkFlags::empty()).err() == Some(Errno::ENOENT));
        drop(resolver);
        check!(removed.upgrade().is_none());
    }
}

ktest! {
    fn renaming_follows_the_rules() {
        let world = World::new();
        let none = RenameFlags::empty();
        check!(world.mkdir(b"/a").is_ok() && world.mkdir(b"/a/b").is_ok());
        check!(world.make(b"/file", b"f") == Ok(()) && world.make(b"/other", b"o") == Ok(()));
        check!(error(world.rename(b"/a", b"/a/b/c", none)) == Some(Errno::EINVAL));
        check!(error(world.rename(b"/file", b"/a", none)) == Some(Errno::EISDIR));
        check!(error(world.rename(b"/a", b"/file", none)) == Some(Errno::ENOTDIR));
        check!(error(world.rename(b"/file", b"/new/", none)) == Some(Errno::ENOTDIR));
        check!(error(world.rename(b"/none", b"/new", none)) == Some(Errno::ENOENT));
        let busy = world.rename(b"/file", b"/other", RenameFlags::NOREPLACE);
        check!(error(busy) == Some(Errno::EEXIST));
        check!(world.rename(b"/file", b"/other", RenameFlags::EXCHANGE) == Ok(()));
        check!(world.text(b"/file").as_deref() == Ok(b"o"));
        check!(world.rename(b"/file", b"/other", none) == Ok(()));
        check!(world.text(b"/other").as_deref() == Ok(b"o"));
        check!(error(world.find(b"/file")) == Some(Errno::ENOENT));
        // A directory is moved together with its content, open files included.
        check!(world.make(b"/a/b/deep", b"d") == Ok(()));
        let deep = world.open(b"/a/b/deep", O_RDONLY).unwrap();
        check!(world.rename(b"/a/b", b"/moved", none) == Ok(()));
        check!(deep.location().display(&world.context.root()).as_deref() == Ok(b"/moved/deep"));
        check!(world.find(b"/moved/..").unwrap().is_same(&world.context.root()));
        check!(world.find(b"/a").unwrap().metadata().unwrap().links == 2);
    }
}

ktest! {
    fn permissions_hold_for_ordinary_users() {
        let world = World::new();
        check!(world.mkdir(b"/private").is_ok() && world.make(b"/private/f", b"x") == Ok(()));
        check!(world.mkdir(b"/sticky").is_ok() && world.make(b"/sticky/f", b"x") == Ok(()));
        let change = |path: &[u8], mode| {
            let change = crate::vfs::inode::Change { mode: Some(mode), ..Default::default() };
            world.find(path).unwrap().inode().unwrap().set_metadata(&change)
        };
        check!(change(b"/private", 0o700) == Ok(()) && change(b"/sticky", 0o1777) == Ok(()));
        let user = world.as_user(1000);
        check!(error(user.find(b"/private/f")) == Some(Errno::EACCES));
        check!(error(user.make(b"/mine", b"")) == Some(Errno::EACCES));
        check!(error(user.open(b"/sticky/f", O_WRONLY)) == Some(Errno::EACCES));
        check!(error(directory::unlink(&user.resolver(), b"/sticky/f")) == Some(Errno::EPERM));
        check!(user.make(b"/sticky/mine", b"") == Ok(()));
        check!(directory::unlink(&user.resolver(), b"/sticky/mine") == Ok(()));
    }
}

ktest! {
    fn connections_that_wait_count_for_the_user_who_listens() {
        let user = Arc::new(Holdings::default());
        let part = frames::total() * PAGE / 64;
        let count = || Unaccepted::count(Some(&user), part);
        let mut held: Vec<_> = (0..4).map(|_| count()).collect();
        check!(held.iter().all(Option::is_some) && count().is_none());
        check!(user.unaccepted.get() == 4 * part);
        held.pop();
        check!(count().is_some() && user.unaccepted.get() == 3 * part);
        check!(Unaccepted::count(None, usize::MAX).is_some());
        drop(held);
        check!(user.unaccepted.get() == 0);
    }
}

ktest! {
    fn directories_are_read_while_they_change() {
        let world = World::new();
        for index in 0..100u8 {
            check!(world.make(&[b'/', b'a' + index / 10, b'0' + index % 10], b"") == Ok(()));
        }
        let open = world.open(b"/", O_RDONLY | O_DIRECTORY).unwrap();
        let mut first = Names(Vec::new(), 50);
        check!(open::read_directory(&open, &mut first) == Ok(()) && first.0.len() == 50);
        // Removing entries that were listed already must not hide any that follow.
        for name in first.0.iter().skip(2) {
            let path = [b"/", name.as_slice()].concat();
            check!(directory::unlink(&world.resolver(), &path) == Ok(()));
        }
        let mut rest = Names(Vec::new(), usize::MAX);
        check!(open::read_directory(&open, &mut rest) == Ok(()) && rest.0.len() == 52);
        check!(open.seek(0, Whence::Set) == Ok(0));
        let mut again = Names(Vec::new(), usize::MAX);
        check!(open::read_directory(&open, &mut again) == Ok(()) && again.0.len() == 54);
    }
}

ktest! {
    fn page_caches_have_holes_and_forget_what_was_cut() {
        let world = World::new();
        let file = world.open(b"/sparse", O_RDWR | O_CREAT).unwrap();
        let page_cache = file.inode().page_cache().unwrap();
        check!(file.write_at(10 * PAGE as u64 + 5, &mut Input::kernel(b"end")) == Ok(3));
        check!(page_cache.size() == 10 * PAGE as u64 + 8 && page_cache.resident() == 1);
        check!(file.seek(0, Whence::Data) == Ok(10 * PAGE as u64));
        check!(file.seek(0, Whence::Hole) == Ok(0));
        check!(file.seek(10 * PAGE as i64, Whence::Hole) == Ok(10 * PAGE as u64 + 8));
        let mut bytes = [1; 64];
        check!(file.read_at(3 * PAGE as u64, &mut Output::kernel(&mut bytes)) == Ok(64));
        check!(bytes == [0; 64] && page_cache.resident() == 1);
        // Bytes that were cut off read as zeroes when the file grows again.
        check!(content::truncate(&page_cache, 10 * PAGE as u64 + 6) == Ok(()));
        check!(content::truncate(&page_cache, 10 * PAGE as u64 + 8) == Ok(()));
        let mut tail = [1; 8];
        check!(file.read_at(10 * PAGE as u64, &mut Output::kernel(&mut tail)) == Ok(8));
        check!(&tail == b"\0\0\0\0\0e\0\0");
        check!(content::truncate(&page_cache, 0) == Ok(()) && page_cache.resident() == 0);
        check!(error(content::truncate(&page_cache, 1 << 63)) == Some(Errno::EFBIG));
        let far = content::SIZE_MAX - 1;
        check!(file.write_at(far, &mut Input::kernel(b"xy")) == Ok(1));
        check!(content::truncate(&page_cache, 0) == Ok(()));
    }
}

ktest! {
    fn seals_are_kept() {
        let page_cache = PageCache::memory(0);
        check!(error(page_cache.add_seals(seals::F_SEAL_GROW)) == Some(Errno::EPERM));
        page_cache.allow_sealing();
        check!(content::truncate(&page_cache, 4096) == Ok(()));
        check!(page_cache.add_writable_mapping() == Ok(()));
        check!(error(page_cache.add_seals(seals::F_SEAL_WRITE)) == Some(Errno::EBUSY));
        page_cache.remove_writable_mapping();
        check!(page_cache.add_seals(seals::F_SEAL_WRITE | seals::F_SEAL_SHRINK) == Ok(()));
        check!(error(content::truncate(&page_cache, 0)) == Some(Errno::EPERM));
        let write = content::write_locked(&page_cache, 0, &mut Input::kernel(b"x"));
        check!(error(write) == Some(Errno::EPERM));
        check!(error(page_cache.add_writable_mapping()) == Some(Errno::EPERM));
    }
}

ktest! {
    fn pipes_keep_order_and_know_their_ends() {
        let root = Credentials::root();
        let (reader, writer) = pipe::end::pair(O_NONBLOCK, &root).unwrap();
        let mut bytes = [0; 16];
        check!(error(reader.read(&mut Output::kernel(&mut bytes))) == Some(Errno::EAGAIN));
        check!(writer.write(&mut Input::kernel(b"hello ")) == Ok(6));
        check!(writer.write(&mut Input::kernel(b"world")) == Ok(5));
        check!(reader.read(&mut Output::kernel(&mut bytes)) == Ok(11));
        check!(&bytes[..11] == b"hello world");
        let block = vec![7u8; 70_000];
        check!(writer.write(&mut Input::kernel(&block)) == Ok(65_536));
        check!(error(writer.write(&mut Input::kernel(b"x"))) == Some(Errno::EAGAIN));
        let pipe = pipe::end::of(&reader).unwrap();
        check!(error(pipe.set_capacity(4096, &root)) == Some(Errno::EBUSY));
        check!(pipe.set_capacity(100_000, &root) == Ok(131_072));
        check!(writer.write(&mut Input::kernel(b"x")) == Ok(1));
        drop(reader);
        check!(error(writer.write(&mut Input::kernel(b"x"))) == Some(Errno::EPIPE));
        let (reader, writer) = pipe::end::pair(0, &root).unwrap();
        check!(writer.write(&mut Input::kernel(b"last")) == Ok(4));
        drop(writer);
        check!(reader.read(&mut Output::kernel(&mut bytes)) == Ok(4));
        check!(reader.read(&mut Output::kernel(&mut bytes)) == Ok(0));
    }
}

/// Runs `work` in a kernel thread; calling the result waits for its end.
fn spawn(work: impl FnOnce() + Send + 'static) -> impl FnOnce() {
    let done = Arc::new((AtomicUsize::new(0), WaitQueue::new()));
    let there = done.clone();
    let started = schedule::start_kernel("file test", move || {
        work();
        there.0.store(1, Ordering::Release);
        there.1.wake_all();
    });
    assert!(started.is_ok(), "no memory for a kernel thread");
    move || done.1.wait(|| (done.0.load(Ordering::Acquire) == 1).then_some(()))
}

ktest! {
    fn a_megabyte_goes_through_a_pipe_unchanged() {
        let (reader, writer) = pipe::end::pair(0, &Credentials::root()).unwrap();
        let join = spawn(move || {
            let mut sent = 0u32;
            while sent < 1 << 20 {
                let length = (sent % 5000 + 1).min((1 << 20) - sent);
                let piece: Vec<u8> = (sent..sent + length).map(|byte| (byte / 7) as u8).collect();
                assert_eq!(writer.write(&mut Input::kernel(&piece)), Ok(length as usize));
                sent += length;
            }
        });
        let (mut got, mut wrong) = (0u32, 0);
        let mut buffer = vec![0; 3000];
        while let Ok(count @ 1..) = reader.read(&mut Output::kernel(&mut buffer)) {
            wrong += (got..).zip(&buffer[..count]).filter(|(at, byte)| **byte != (at / 7) as u8).count();
            got += count as u32;
        }
        join();
        check!(got == 1 << 20 && wrong == 0);
    }
}

ktest! {
    fn epoll_tells_levels_and_edges() {
        let set_file = epoll::open(0).unwrap();
        let set = Epoll::of(&set_file).unwrap();
        let event = eventfd::open(0, O_NONBLOCK).unwrap();
        let one = 1u64.to_le_bytes();
        let mut bytes = [0; 8];
        let input = Events::IN.bits();
        check!(set.add(&event, 3, input, 77) == Ok(()));
        check!(error(set.add(&event, 3, input, 0)) == Some(Errno::EEXIST));
        check!(set.wait(8, Some(0)) == Ok(vec![]));
        check!(event.write(&mut Input::kernel(&one)) == Ok(8));
        check!(set.wait(8, Some(0)) == Ok(vec![(input, 77)]));
        check!(set.wait(8, Some(0)) == Ok(vec![(input, 77)]));
        check!(event.read(&mut Output::kernel(&mut bytes)) == Ok(8));
        check!(set.wait(8, Some(0)) == Ok(vec![]));
        // Edge-triggered: once for each write.
        check!(set.modify(&event, 3, input | 1 << 31, 78) == Ok(()));
        check!(event.write(&mut Input::kernel(&one)) == Ok(8));
        check!(set.wait(8, Some(0)) == Ok(vec![(input, 78)]));
        check!(set.wait(8, Some(0)) == Ok(vec![]));
        check!(event.write(&mut Input::kernel(&one)) == Ok(8));
        check!(set.wait(8, Some(0)) == Ok(vec![(input, 78)]));
        // One shot: until it is armed again.
        check!(set.modify(&event, 3, input | 1 << 30, 79) == Ok(()));
        check!(set.wait(8, Some(0)) == Ok(vec![(input, 79)]));
        check!(event.write(&mut Input::kernel(&one)) == Ok(8));
        check!(set.wait(8, Some(0)) == Ok(vec![]));
        check!(error(set.add(&set_file, 4, input, 0)) == Some(Errno::ELOOP));
        // The end of the open file ends the watch.
        check!(set.modify(&event, 3, input, 80) == Ok(()));
        drop(event);
        check!(set.wait(8, Some(0)) == Ok(vec![]));
    }
}

fn range(kind: i16, start: i64, length: i64) -> Flock {
    Flock { l_type: kind, l_start: start, l_len: length, ..Flock::default() }
}

ktest! {
    fn record_locks_split_join_and_exclude() {
        let world = World::new();
        let file = world.open(b"/locked", O_RDWR | O_CREAT).unwrap();
        let (mine, other) = (FdTable::new(), FdTable::new());
        let (me, you) = (LockOwner::of_table(&mine), LockOwner::of_table(&other));
        let (read, write, unlock) = (0, 1, 2);
        check!(locks::set(&file, me, 1, &range(write, 0, 100), false) == Ok(()));
        check!(error(locks::set(&file, you, 2, &range(read, 50, 1), false)) == Some(Errno::EAGAIN));
        check!(locks::set(&file, me, 1, &range(unlock, 40, 20), false) == Ok(()));
        check!(locks::set(&file, you, 2, &range(write, 45, 10), false) == Ok(()));
        let mut asked = range(write, 0, 0);
        check!(locks::query(&file, you, &mut asked) == Ok(()));
        check!((asked.l_type, asked.l_start, asked.l_len, asked.l_pid) == (1, 0, 40, 1));
        let mut beyond = range(write, 200, 0);
        check!(locks::query(&file, you, &mut beyond) == Ok(()) && beyond.l_type == unlock);
        locks::release_record_locks(&mine, &file);
        check!(locks::set(&file, you, 2, &range(write, 0, 0), false) == Ok(()));
        locks::release_record_locks(&other, &file);
        check!(locks::all().is_ok_and(|held| held.is_empty()));
        let again = world.open(b"/locked", O_RDONLY).unwrap();
        check!(locks::flock(&file, 2) == Ok(()));
        check!(error(locks::flock(&again, 1 | 4)) == Some(Errno::EAGAIN));
        drop(file);
        check!(locks::flock(&again, 2 | 4) == Ok(()));
    }
}

ktest! {
    fn mounts_cover_and_uncover() {
        let world = World::new();
        check!(world.mkdir(b"/m").is_ok() && world.make(b"/m/under", b"u") == Ok(()));
        let resolver = world.resolver();
        let at = |path: &[u8]| resolver.resolve(path, WalkFlags::empty());
        let user = users::of(0).unwrap();
        let counted = Counted::new(user, |user| &user.mount_namespaces, 100).unwrap();
        let own = {
            let _lock = mount::lock();
            mount::reserve(1).unwrap();
            let root = world.context.root().mount;
            MountNamespace::with_root(root, user_namespace::first(), counted)
        };
        let mount_at = |what: &[u8], place: &[u8], kind: &[u8], flags, data: &[u8]| {
            mount_tree::mount(&own, &resolver, what, at(place).unwrap(), kind, flags, data)
        };
        check!(mount_at(b"x", b"/m", b"tmpfs", 0, b"size=64k") == Ok(()));
        check!(error(world.find(b"/m/under")) == Some(Errno::ENOENT));
        check!(world.find(b"/m/..").unwrap().is_same(&world.context.root()));
        check!(world.make(b"/m/over", b"o") == Ok(()));
        check!(error(world.rename(b"/m/over", b"/over", RenameFlags::empty())) == Some(Errno::EXDEV));
        check!(error(directory::rmdir(&resolver, b"/m")) == Some(Errno::EBUSY));
        let file = world.open(b"/m/big", O_RDWR | O_CREAT).unwrap();
        check!(file.write(&mut Input::kernel(&vec![1; 100_000])) == Ok(65_536 - 4096));
        check!(error(unmount::unmount(&own, at(b"/m").unwrap(), false)) == Some(Errno::EBUSY));
        drop(file);
        check!(unmount::unmount(&own, at(b"/m").unwrap(), false) == Ok(()));
        check!(world.text(b"/m/under").as_deref() == Ok(b"u"));
        check!(error(unmount::unmount(&own, at(b"/m").unwrap(), false)) == Some(Errno::EINVAL));
        // A bind mount shows the same names.
        check!(world.mkdir(b"/b").is_ok());
        let bind = crate::vfs::mount::flags::MS_BIND;
        check!(mount_at(b"/m", b"/b", b"", bind, b"") == Ok(()));
        check!(world.text(b"/b/under").as_deref() == Ok(b"u"));
        check!(directory::unlink(&resolver, b"/b/under") == Ok(()));
        check!(error(world.find(b"/m/under")) == Some(Errno::ENOENT));
        check!(unmount::unmount(&own, at(b"/b").unwrap(), false) == Ok(()));
    }
}
