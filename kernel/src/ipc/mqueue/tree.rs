//! The file system of queues (`mqueue`), and the calls that open and remove them by name.

use alloc::sync::Arc;
use alloc::vec::Vec;

use hayate_abi::process::RLIMIT_MSGQUEUE;
use hayate_abi::{Errno, Result};
use hayate_ipc_rules::priorities::Shape;
use hayate_machine::sync::{Once, SpinLock};

use super::file::change;
use super::queue::{Charge, Queue};
use super::settings::Settings;
use crate::credentials::{Capability, Credentials, access};
use crate::ipc::account;
use crate::ipc::account::Total;
use crate::namespace::{Handle, Home};
use crate::reclaim::growth;
use crate::user_namespace::{self, UserNamespace};
use crate::vfs::caller;
use crate::vfs::dentry::Name;
use crate::vfs::directory::{self, check_directory, record};
use crate::vfs::entries::Entries;
use crate::vfs::file_count::Counted;
use crate::vfs::filesystem::{FileSystem, Usage, anonymous_device};
use crate::vfs::filesystem_type::{FileSystemType, MountRequest, register_type};
use crate::vfs::inode::{
    Attributes, Change, DirectorySink, FileKind, Inode, Metadata, Owner, Timestamp, downcast_arc,
};
use crate::vfs::landlock;
use crate::vfs::mount::{Location, Mount};
use crate::vfs::notify;
use crate::vfs::open_file::OpenFile;
use crate::vfs::open_file::flags::*;
use crate::vfs::path::{Resolver, lookup_locked, permitted};
use crate::vfs::users;
use crate::vfs::watch::Mask;

/// `MQUEUE_MAGIC`
const MAGIC: u64 = 0x1980_0202;
/// The sizes that files and directory entries show (`FILENT_SIZE`, `DIRENT_SIZE`).
const FILE_SIZE: u64 = 80;
const ENTRY_SIZE: u64 = 20;

/// The queues of a namespace.
pub struct Queues {
    /// Its settings.
    pub settings: Settings,
    /// The number of queues.
    number: Handle<Total>,
    /// The file system. It is there without being mounted, and may be mounted longer than the
    /// namespace is.
    tree: Once<Arc<Tree>>,
    /// The mount through which the calls reach it, which has no place in the tree of files.
    mount: Once<Arc<Mount>>,
}

/// Those of the first namespace.
pub static FIRST: Queues = {
    static NUMBER: Total = Total::new();
    Queues::with(Handle::First(&NUMBER))
};

/// Tells the queues of the calling thread's namespace; the process layer is above.
static CALLERS: Once<Callers> = Once::new();

/// The queues, and the user namespace that they belong to.
type Callers = fn() -> (Handle<Queues>, Handle<UserNamespace>);

/// Registers the type with `mount(2)`.
pub fn register() {
    static TYPE: FileSystemType =
        FileSystemType { name: "mqueue", needs_device: false, user, mount };
    register_type(&TYPE);
}

/// Registers what tells the queues of the calling thread's namespace; at boot.
pub fn register_callers(callers: Callers) {
    CALLERS.call_once(|| callers);
}

/// A mount of it belongs to whom the queues belong to.
fn user(_: &Credentials) -> Handle<UserNamespace> {
    CALLERS.get().map_or(user_namespace::first(), |callers| callers().1)
}

/// Mounts the file system of the caller's namespace. It has no options: `EINVAL`.
fn mount(request: &MountRequest<'_>) -> Result<Arc<dyn FileSystem>> {
    if request.options().next().is_some() {
        return Err(Errno::EINVAL);
    }
    let queues = CALLERS.get().map_or(Handle::First(&FIRST), |callers| callers().0);
    Ok(queues.tree().clone())
}

impl Queues {
    /// Those of another namespace.
    pub fn another() -> Queues {
        Queues::with(Handle::another())
    }

    const fn with(number: Handle<Total>) -> Queues {
        Queues { settings: Settings::initial(), number, tree: Once::new(), mount: Once::new() }
    }
}

impl Handle<Queues> {
    fn tree(&self) -> &Arc<Tree> {
        self.tree.call_once(|| Tree::new(self.home()))
    }

    fn mount(&self) -> &Arc<Mount> {
        self.mount.call_once(|| Mount::whole(self.tree().clone(), 0, "mqueue".into()))
    }
}

/// The file system.
struct Tree {
    root: Arc<Root>,
}

impl Tree {
    fn new(home: Home<Queues>) -> Arc<Tree> {
        let device = anonymous_device();
        let metadata = Metadata {
            links: 2,
            size: 2 * ENTRY_SIZE,
            ..Metadata::anonymous(device, FileKind::Directory, 0o1777)
        };
        let root = Root { home, metadata: SpinLock::new(metadata), entries: SpinLock::default() };
        Arc::new(Tree { root: Arc::new(root) })
    }
}

impl FileSystem for Tree {
    fn type_name(&self) -> &'static str {
        "mqueue"
    }

    fn device(&self) -> u64 {
        self.root.metadata.lock().device
    }

    fn root(&self) -> Arc<dyn Inode> {
        self.root.clone()
    }

    fn usage(&self) -> Usage {
        Usage { magic: MAGIC, block_size: 4096, name_length: 255, ..Usage::default() }
    }
}

/// The directory. Its two locks are never held together.
struct Root {
    /// The namespace that it belongs to, which may be gone.
    home: Home<Queues>,
    metadata: SpinLock<Metadata>,
    entries: SpinLock<Entries<Arc<Queue>>>,
}

impl Root {
    /// Makes a queue with a name. The caller has the directory to itself. `EACCES` if the namespace
    /// is gone (`mqueue_create_attr`, ipc/mqueue.c); `ENOSPC`, `EINVAL`, `EMFILE`, `ENOMEM`.
    fn make(&self, name: &[u8], mode: u16, owner: Owner, wanted: Wanted) -> Result<Arc<Queue>> {
        let queues = self.home.get().ok_or(Errno::EACCES)?;
        let settings = &queues.settings;
        let maker = caller::credentials().ok_or(Errno::EPERM)?;
        let privileged = maker.has(Capability::SysResource);
        // 32 bits without a sign in Linux.
        let most = settings.most_queues.get() as u32 as usize;
        let most = if privileged { usize::MAX } else { most };
        let place = queues.number.share(1, most).ok_or(Errno::ENOSPC)?;
        let shape = Shape::of_new(wanted, &settings.limits(), privileged).ok_or(Errno::EINVAL)?;
        let memory = account::charge(size_of::<Queue>())?;
        let user = users::of(maker.uid)?;
        let bytes = shape.charge();
        let most = usize::try_from(caller::limit(RLIMIT_MSGQUEUE)).unwrap_or(usize::MAX);
        if !user.message_queues.claim(bytes, most) {
            return Err(Errno::EMFILE);
        }
        let charge = Charge { shares: [place, memory], user, bytes };
        growth::relieved(|| self.entries.lock().make_room(1))?;
        let metadata = Metadata {
            size: FILE_SIZE,
            uid: owner.uid,
            gid: owner.gid,
            ..Metadata::anonymous(self.metadata.lock().device, FileKind::Regular, mode)
        };
        let queue = Queue::new(metadata, shape, charge);
        self.entries.lock().insert(name, queue.clone())?;
        self.resize(true);
        Ok(queue)
    }

    /// Notes that there is a name more or less.
    fn resize(&self, more: bool) {
        let now = Timestamp::now();
        let mut metadata = self.metadata.lock();
        metadata.size = if more { metadata.size + ENTRY_SIZE } else { metadata.size - ENTRY_SIZE };
        metadata.accessed = now;
        metadata.modified = now;
        metadata.changed = now;
    }
}

impl Inode for Root {
    fn attributes(&self) -> Attributes {
        self.metadata.lock().attributes()
    }

    fn metadata(&self) -> Result<Metadata> {
        Ok(*self.metadata.lock())
    }

    fn set_metadata(&self, wanted: &Change) -> Result<()> {
        change(&mut self.metadata.lock(), wanted);
        Ok(())
    }

    fn lookup(&self, name: &[u8]) -> Result<Arc<dyn Inode>> {
        let entries = self.entries.lock();
        Ok(entries.get(name).ok_or(Errno::ENOENT)?.clone())
    }

    /// A queue that `open(2)` makes has the default attributes.
    fn create(&self, name: &[u8], mode: u16, owner: Owner) -> Result<Arc<dyn Inode>> {
        Ok(self.make(name, mode, owner, None)?)
    }

    fn unlink(&self, name: &[u8], target: &Arc<dyn Inode>) -> Result<()> {
        let queue = downcast_arc::<Queue>(target).ok_or(Errno::EPERM)?;
        let removed = self.entries.lock().remove(name);
        drop(removed.ok_or(Errno::ENOENT)?);
        queue.state.lock().metadata.links = 0;
        self.resize(false);
        Ok(())
    }

    fn read_dir(&self, position: &mut u64, sink: &mut dyn DirectorySink) -> Result<()> {
        /// Entries taken under the lock at a time; the sink copies to the program, which may sleep.
        const BATCH: usize = 32;
        loop {
            let mut batch: Vec<(u64, Arc<Queue>, Name)> = Vec::with_capacity(BATCH);
            for (cookie, name, queue) in self.entries.lock().from(*position).take(BATCH) {
                batch.push((cookie, queue.clone(), name.clone()));
            }
            if batch.is_empty() {
                return Ok(());
            }
            for (cookie, queue, name) in batch {
                let number = queue.state.lock().metadata.number;
                if !sink.entry(number, FileKind::Regular, &name, cookie + 1) {
                    return Ok(());
                }
                *position = cookie + 1;
            }
        }
    }
}

/// The number and the size of messages that the maker of a queue wants it to hold, if it says.
pub type Wanted = Option<(i64, i64)>;

/// Checks a name as `lookup_one_len` does: `EACCES` for one that is no name of a single file.
fn check_name(name: &[u8]) -> Result<()> {
    match name {
        b"" => Err(Errno::ENOENT),
        b"." | b".." => Err(Errno::EACCES),
        _ if name.contains(&b'/') => Err(Errno::EACCES),
        _ => Ok(()),
    }
}

/// `mq_open(2)`: opens the queue with a name among `queues`, or makes it.
///
/// # Errors
/// `ENFILE`, `EACCES`, `EEXIST`, `EINVAL`, `EMFILE`, `ENAMETOOLONG`, `ENOENT`, `ENOMEM`, `ENOSPC`.
pub fn open(
    queues: &Handle<Queues>,
    resolver: &Resolver<'_>,
    name: &[u8],
    (flags, mode): (u32, u16),
    wanted: Wanted,
) -> Result<Arc<OpenFile>> {
    let counted = Counted::new()?;
    check_name(name)?;
    let directory = queues.mount().root_location();
    let inode = directory.inode()?;
    let lock = directory.dentry.lock_directory();
    permitted(resolver.credentials, &inode.attributes(), access::EXECUTE)?;
    let found = lookup_locked(&directory.dentry, &inode, name)?;
    let existing = found.inode();
    let dentry = match &existing {
        Some(queue) => {
            check_existing(resolver, &queue.attributes(), flags)?;
            found
        }
        None if flags & O_CREAT == 0 => return Err(Errno::ENOENT),
        None => {
            check_directory(&directory, &inode.attributes(), resolver.credentials)?;
            directory.dentry.reserve(1)?;
            let mode = mode & 0o7777 & !resolver.context.umask();
            let owner = Owner { uid: resolver.credentials.fsuid, gid: resolver.credentials.fsgid };
            let queue = queues.tree().root.make(name, mode, owner, wanted)?;
            record(&directory.dentry, found, &Name::from(name), queue)?
        }
    };
    drop(lock);
    if existing.is_none() {
        notify::named(&inode, Mask::CREATE, name, 0);
    }
    if flags & O_DIRECT != 0 {
        return Err(Errno::EINVAL);
    }
    let queue = dentry.inode().ok_or(Errno::ENOENT)?;
    let queue = downcast_arc::<Queue>(&queue).ok_or(Errno::EACCES)?;
    let location = Location { mount: directory.mount, dentry };
    landlock::check_open(resolver.credentials, &location, FileKind::Regular, flags)?;
    OpenFile::counted(queue, location, flags, None, counted)
}

/// Whether a queue that exists may be opened so (`prepare_open`, ipc/mqueue.c).
fn check_existing(resolver: &Resolver<'_>, attributes: &Attributes, flags: u32) -> Result<()> {
    if flags & (O_CREAT | O_EXCL) == O_CREAT | O_EXCL {
        return Err(Errno::EEXIST);
    }
    let wanted = match flags & O_ACCMODE {
        O_RDONLY => access::READ,
        O_WRONLY => access::WRITE,
        O_RDWR => access::READ | access::WRITE,
        _ => return Err(Errno::EINVAL),
    };
    permitted(resolver.credentials, attributes, wanted)
}

/// `mq_unlink(2)`: removes the name of a queue of `queues`. `EACCES`, `ENAMETOOLONG`, `ENOENT`,
/// `EPERM`.
pub fn unlink(queues: &Handle<Queues>, resolver: Resolver<'_>, name: &[u8]) -> Result<()> {
    check_name(name)?;
    // `mq_unlink` of Linux asks no rules of landlock(7), which are about paths.
    let free = Credentials { confinement: None, ..resolver.credentials.clone() };
    let start = Some(queues.mount().root_location());
    directory::unlink(&Resolver { start, credentials: &free, ..resolver }, name)
}
