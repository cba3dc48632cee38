//! The root file system of a container: its mounts, devices and what it must not see.
//!
//! The shim has mounted it on the host, below the folder that it shares with the machine. Here it
//! becomes the root of a mount namespace, moved over the machine's own root, as
//! switch_root(8) does: the first root file system cannot be left by `pivot_root(2)`. All further
//! mounts are made from inside, so that links in the container lead nowhere else. What they show of
//! the shared folder is held before that by `open_tree(2)`.

use crate::{During, Failure, members};
use hayate_container_plan::device::{Kind, Node};
use hayate_container_plan::{MEMORY, Mount, POD, Plan, ROOT};
use rustix::fs::{CWD, FileType, FlockOperation, Gid, Mode, OFlags, Uid};
use rustix::fs::{chown, flock, makedev, mknodat, open, symlink};
use rustix::io::Errno;
use rustix::mount::{
    MountFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags, mount, mount_bind_recursive,
    mount_change, mount_move, mount_remount, move_mount, open_tree,
};
use rustix::process::{chdir, chroot};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::ffi::{CString, OsStr};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Where the memory is that containers share.
const SHARED: &str = "/run/containers.memory";

/// Devices of every container: name, major and minor number (runtime-spec, config-linux.md,
/// "Default Devices").
const DEVICES: [(&str, u32, u32); 6] = [
    ("null", 1, 3),
    ("zero", 1, 5),
    ("full", 1, 7),
    ("random", 1, 8),
    ("urandom", 1, 9),
    ("tty", 5, 0),
];

/// Links of every container (the same, "Default Filesystems" and runc's).
const LINKS: [(&str, &str); 5] = [
    ("ptmx", "pts/ptmx"),
    ("fd", "/proc/self/fd"),
    ("stdin", "/proc/self/fd/0"),
    ("stdout", "/proc/self/fd/1"),
    ("stderr", "/proc/self/fd/2"),
];

/// Gives this process namespaces: its own, or those of other containers of the pod. The root of a
/// cgroup namespace is its group.
pub fn unshare(plan: &Plan) -> Result<(), Failure> {
    use rustix::thread::{UnshareFlags, unshare_unsafe};
    let of_others = [(&plan.names_of, UnshareFlags::NEWUTS), (&plan.ipc_of, UnshareFlags::NEWIPC)];
    let mut kinds = UnshareFlags::NEWNS;
    kinds.set(UnshareFlags::NEWCGROUP, plan.cgroup_namespace);
    for (other, kind) in of_others {
        kinds.set(kind, other.is_none());
    }
    // SAFETY: the table of descriptors stays as it is, and this process has one thread.
    unsafe { unshare_unsafe(kinds) }.during("cannot make namespaces")?;
    let names = LinkNameSpaceType::HostNameAndNISDomainName;
    let ipc = LinkNameSpaceType::InterProcessCommunication;
    for (other, file, kind) in [(&plan.names_of, "uts", names), (&plan.ipc_of, "ipc", ipc)] {
        let Some(other) = other else { continue };
        let path = format!("/proc/{}/ns/{file}", members::first(other)?);
        let namespace = open(&path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
            .during(format!("cannot open {path}"))?;
        move_into_link_name_space(namespace.as_fd(), Some(kind))
            .during(format!("cannot enter the namespace of {other}"))?;
    }
    Ok(())
}

/// Makes the memory that this container shares with others of the pod, where it is the first that
/// wants it. Call it in the machine's own mount namespace.
pub fn make_shared(plan: &Plan) -> Result<(), Failure> {
    if !plan.mounts.iter().any(|mount| mount.kind == MEMORY) {
        return Ok(());
    }
    let tried = format!("cannot make memory in {SHARED}");
    std::fs::create_dir_all(SHARED).during(&tried)?;
    let folder = open(SHARED, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).during(&tried)?;
    // Containers are made side by side.
    flock(&folder, FlockOperation::LockExclusive).during(&tried)?;
    let around = rustix::fs::fstat(&folder).during(&tried)?;
    for wanted in plan.mounts.iter().filter(|mount| mount.kind == MEMORY) {
        let path = shared(wanted);
        std::fs::create_dir_all(&path).during(&tried)?;
        if rustix::fs::stat(&path).during(&tried)?.st_dev != around.st_dev {
            continue;
        }
        let data = CString::new(wanted.data.clone()).during("a zero byte in the options")?;
        mount("tmpfs", &path, "tmpfs", MountFlags::empty(), Some(data.as_c_str()))
            .during(&tried)?;
    }
    Ok(())
}

/// Where memory of this name is.
fn shared(wanted: &Mount) -> PathBuf {
    let name: Vec<u8> =
        wanted.source.iter().map(|&byte| if byte == b'/' { b'!' } else { byte }).collect();
    Path::new(SHARED).join(OsStr::from_bytes(&name))
}

/// Makes the root of the container this process's root.
pub fn make(id: &str, plan: &Plan) -> Result<(), Failure> {
    let folder = Path::new(POD).join(id);
    let sources = plan.mounts.iter().map(|mount| source(&folder, mount));
    let sources = sources.collect::<Result<Vec<_>, Failure>>()?;
    let root = folder.join(ROOT);
    mount_bind_recursive(&root, &root).during("cannot bind the root file system")?;
    chdir(&root).during("cannot enter the root file system")?;
    mount_move(".", "/").during("cannot move the root file system")?;
    chroot(".").during("cannot enter the root file system")?;
    chdir("/").during("cannot enter the root file system")?;
    if let Some(name) = &plan.hostname {
        rustix::system::sethostname(name).during("cannot set the host name")?;
    }
    if let Some(name) = &plan.domain {
        rustix::system::setdomainname(name).during("cannot set the domain name")?;
    }
    if let Some(flags) = plan.spreading {
        // Before the mounts, which have words of their own.
        spread(Path::new("/"), flags)?;
    }
    for (mount, source) in plan.mounts.iter().zip(sources) {
        attach(mount, source)?;
        let target = Path::new(OsStr::from_bytes(&mount.target));
        for &flags in &mount.spreading {
            spread(target, flags)?;
        }
    }
    if plan.mounts.iter().any(|mount| mount.target == b"/dev" && mount.kind == "tmpfs") {
        devices()?;
    }
    for node in &plan.nodes {
        make_node(node)?;
    }
    for (path, value) in &plan.settings {
        std::fs::write(format!("/proc/sys/{path}"), value)
            .during(format!("cannot set the kernel's {path}"))?;
    }
    for path in &plan.read_only {
        protect(path)?;
    }
    for path in &plan.masked {
        mask(path)?;
    }
    let directory = Path::new(OsStr::from_bytes(&plan.directory));
    // As runc does; where it cannot be made, entering it says why.
    let _ = std::fs::create_dir_all(directory);
    if plan.read_only_root {
        let flags = MountFlags::BIND | MountFlags::RDONLY;
        mount_remount("/", flags, "").during("cannot make the root read-only")?;
    }
    Ok(())
}

/// Holds what a mount shows of the shared folder.
fn source(folder: &Path, mount: &Mount) -> Result<Option<OwnedFd>, Failure> {
    let path = match &*mount.kind {
        "bind" => folder.join(OsStr::from_bytes(&mount.source)),
        MEMORY => shared(mount),
        _ => return Ok(None),
    };
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_RECURSIVE;
    let held = open_tree(CWD, &path, flags);
    held.map(Some).during(format!("cannot hold {}", path.display()))
}

fn attach(wanted: &Mount, source: Option<OwnedFd>) -> Result<(), Failure> {
    let target = Path::new(OsStr::from_bytes(&wanted.target));
    let shown = target.display();
    let flags = MountFlags::from_bits_retain(wanted.flags as u32);
    if let Some(source) = source {
        let is_folder = rustix::fs::fstat(&source)
            .is_ok_and(|found| FileType::from_raw_mode(found.st_mode) == FileType::Directory);
        point(target, is_folder)?;
        let flags_of_move =
            MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_SYMLINKS;
        move_mount(source, "", CWD, target, flags_of_move)
            .during(format!("cannot show {shown}"))?;
        return mount_remount(target, MountFlags::BIND | flags, "")
            .during(format!("cannot set the flags of {shown}"));
    }
    point(target, true)?;
    let data = CString::new(wanted.data.clone()).during("a zero byte in the options")?;
    mount(&*wanted.kind, target, &*wanted.kind, flags, Some(data.as_c_str()))
        .during(format!("cannot mount {} on {shown}", wanted.kind))
}

/// Makes a mount point if it is missing.
fn point(target: &Path, is_folder: bool) -> Result<(), Failure> {
    let shown = target.display();
    if target.exists() {
        return Ok(());
    }
    let folder = if is_folder { Some(target) } else { target.parent() };
    let made = folder.map_or(Ok(()), std::fs::create_dir_all);
    made.during(format!("cannot make the mount point {shown}"))?;
    if !is_folder {
        let made = std::fs::File::options().append(true).create(true).open(target);
        made.during(format!("cannot make the mount point {shown}"))?;
    }
    Ok(())
}

fn devices() -> Result<(), Failure> {
    for (name, major, minor) in DEVICES {
        let mode = Mode::from_raw_mode(0o666);
        let path = format!("/dev/{name}");
        mknodat(CWD, &path, FileType::CharacterDevice, mode, makedev(major, minor))
            .during(format!("cannot make {path}"))?;
        // The mask of this process has taken bits away.
        rustix::fs::chmod(&path, mode).during(format!("cannot set the mode of {path}"))?;
    }
    for (name, target) in LINKS {
        symlink(target, format!("/dev/{name}")).during(format!("cannot make /dev/{name}"))?;
    }
    Ok(())
}

/// Sets how mounts at a path spread.
fn spread(path: &Path, flags: u64) -> Result<(), Failure> {
    let flags = MountPropagationFlags::from_bits_retain(flags as u32);
    mount_change(path, flags).during(format!("cannot set how mounts at {} spread", path.display()))
}

/// Makes a node of a device that this machine has.
fn make_node(node: &Node) -> Result<(), Failure> {
    let path = Path::new(OsStr::from_bytes(&node.path));
    let shown = path.display();
    let (kind, character) = match node.kind {
        Kind::Character => (FileType::CharacterDevice, true),
        Kind::Block => (FileType::BlockDevice, false),
    };
    let numbers = makedev(node.major, node.minor);
    let mode = Mode::from_raw_mode(node.mode & 0o7777);
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).during(format!("cannot make the folder of {shown}"))?;
    }
    match mknodat(CWD, path, kind, mode, numbers) {
        Err(error) if error == Errno::EXIST => {
            let found = rustix::fs::lstat(path).during(format!("cannot look at {shown}"))?;
            if FileType::from_raw_mode(found.st_mode) != kind || found.st_rdev != numbers {
                return Err(Failure(format!("something else is where {shown} is to be")));
            }
        }
        made => made.during(format!("cannot make the device {shown}"))?,
    }
    rustix::fs::chmod(path, mode).during(format!("cannot set the mode of {shown}"))?;
    let owner = (Uid::from_raw(node.user), Gid::from_raw(node.group));
    chown(path, Some(owner.0), Some(owner.1)).during(format!("cannot give {shown} away"))?;
    let known = |(_, major, minor): &(&str, u32, u32)| (node.major, node.minor) == (*major, *minor);
    if character && DEVICES.iter().any(known) {
        return Ok(());
    }
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    match open(path, flags, Mode::empty()) {
        Err(Errno::NXIO | Errno::NODEV) => {
            let (major, minor) = (node.major, node.minor);
            Err(Failure(format!("{shown} is asked for, and a machine has no {major}:{minor}")))
        }
        _ => Ok(()),
    }
}

/// Lets nobody write at a path, if it is there.
fn protect(path: &[u8]) -> Result<(), Failure> {
    let path = Path::new(OsStr::from_bytes(path));
    if !path.exists() {
        return Ok(());
    }
    let shown = path.display();
    mount_bind_recursive(path, path).during(format!("cannot protect {shown}"))?;
    let flags = MountFlags::BIND
        | MountFlags::RDONLY
        | MountFlags::NOSUID
        | MountFlags::NODEV
        | MountFlags::NOEXEC;
    mount_remount(path, flags, "").during(format!("cannot protect {shown}"))
}

/// Hides what is at a path, if something is there.
fn mask(path: &[u8]) -> Result<(), Failure> {
    let path = Path::new(OsStr::from_bytes(path));
    let Ok(found) = std::fs::metadata(path) else { return Ok(()) };
    let shown = path.display();
    if found.is_dir() {
        let flags = MountFlags::RDONLY;
        return mount("tmpfs", path, "tmpfs", flags, Some(c"size=0k"))
            .during(format!("cannot hide {shown}"));
    }
    mount_bind_recursive("/dev/null", path).during(format!("cannot hide {shown}"))
}
