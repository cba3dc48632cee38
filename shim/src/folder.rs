//! The folder that a pod shares with its machine, and what is mounted there.
//!
//! `POD/ID` belongs to one container: `rootfs`, `sources/N` for what its specification binds, and
//! the plans of its programs. The pod's folder lies in containerd's state, beside the bundles and
//! in none of them: containerd removes a bundle with all that is in it, and what is mounted here is
//! the user's. For the same reason nothing is removed here before it is certain that nothing is
//! mounted below. Each bundle has a file [`MARK`] with the path of its container's folder: by it a
//! `delete` after the shim's death finds what to unmount.

use crate::controls::Controls;
use crate::spec::Source;
use anyhow::{Context, Result, bail, ensure};
use containerd_shim::protos::api::Mount;
use hayate_container_plan::interface::Interface;
use hayate_container_plan::{INTERFACE, PLAN, Plan, ROOT, SOURCES};
use rustix::mount::{MountFlags, UnmountFlags, mount_bind_recursive, mount_change, unmount};
use rustix::mount::{MountPropagationFlags, mount_remount};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt};
use std::path::{Path, PathBuf};

/// The folder of this runtime in containerd's state.
const RUNTIME: &str = "io.containerd.hayate.v1";
/// The file in a bundle that names its container's folder.
const MARK: &str = "hayate-folder";

/// Returns where the folder of a pod is, of which this is the bundle of a container:
/// `STATE/io.containerd.runtime.v2.task/NAMESPACE/ID`.
pub fn place(bundle: &Path, pod: &str) -> Result<PathBuf> {
    ensure!(is_name(pod), "no identifier of a pod: {pod}");
    let namespace = bundle.parent().and_then(Path::file_name);
    let state = bundle.ancestors().nth(3);
    let (namespace, state) = namespace.zip(state).context("no bundle of containerd")?;
    Ok(state.join(RUNTIME).join(namespace).join(pod))
}

/// Whether this is one name of a path. containerd has checked it, but a path is made of it.
fn is_name(name: &str) -> bool {
    !name.is_empty() && !name.contains('/') && !name.starts_with('.')
}

/// The folder of a container.
#[derive(Clone)]
pub struct Folder {
    path: PathBuf,
}

impl Folder {
    /// Makes the folder of a container in that of its pod.
    pub fn make(pod: &Path, id: &str, bundle: &Path) -> Result<Folder> {
        ensure!(is_name(id), "no identifier: {id}");
        let make = |path: &Path| {
            let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path);
            made.with_context(|| format!("cannot make {}", path.display()))
        };
        let folder = Folder { path: pod.join(id) };
        std::fs::write(bundle.join(MARK), folder.path.as_os_str().as_encoded_bytes())
            .context("cannot write in the bundle")?;
        make(pod)?;
        make(&folder.path)?;
        make(&folder.root())?;
        make(&folder.path.join(SOURCES))?;
        Ok(folder)
    }

    /// The folder of the container whose bundle this is, if it was made.
    pub fn of_bundle(bundle: &Path) -> Option<Folder> {
        let path = std::fs::read_to_string(bundle.join(MARK)).ok()?;
        Some(Folder { path: path.into() })
    }

    fn root(&self) -> PathBuf {
        self.path.join(ROOT)
    }

    /// Mounts the root file system: what containerd names, or the folder of the specification.
    pub fn mount_root(&self, mounts: &[Mount], named: Option<&Path>) -> Result<()> {
        let root = self.root();
        if mounts.is_empty() {
            let named = named.context("the specification names no root file system")?;
            mount_bind_recursive(named, &root)
                .with_context(|| format!("cannot bind {}", named.display()))?;
        }
        for mount in mounts {
            let kind = (!mount.type_.is_empty()).then_some(mount.type_.as_str());
            let source = (!mount.source.is_empty()).then_some(mount.source.as_str());
            // The call may change the working directory of its thread.
            let mounted = std::thread::scope(|scope| {
                let mount =
                    || containerd_shim::mount::mount_rootfs(kind, source, &mount.options, &root);
                scope.spawn(mount).join()
            });
            match mounted {
                Ok(result) => result.context("cannot mount the root file system")?,
                Err(_) => bail!("cannot mount the root file system"),
            }
        }
        self.spread(&root, true);
        Ok(())
    }

    /// Shows a folder or a file of the host below [`SOURCES`]; returns its name from the folder.
    pub fn show(&self, wanted: &Source) -> Result<String> {
        let Source { number, path: source, read_only, follows } = wanted;
        let name = format!("{SOURCES}/{number}");
        let target = self.path.join(&name);
        let found = source.metadata();
        let found = found.with_context(|| format!("cannot find {}", source.display()))?;
        let kind = found.file_type();
        if kind.is_char_device() || kind.is_block_device() {
            bail!("{} is a device of the host, which a machine does not have", source.display());
        }
        if found.is_dir() {
            std::fs::create_dir(&target).context("cannot make a mount point")?;
        } else {
            std::fs::File::create(&target).context("cannot make a mount point")?;
        }
        mount_bind_recursive(source, &target)
            .with_context(|| format!("cannot bind {}", source.display()))?;
        self.spread(&target, *follows);
        if *read_only {
            // Not only the guest sees to it.
            mount_remount(&target, MountFlags::BIND | MountFlags::RDONLY, "")
                .with_context(|| format!("cannot protect {}", source.display()))?;
        }
        Ok(name)
    }

    /// Nothing that is mounted here later reaches the place that it was bound from. The other way
    /// mounts come if it `follows`.
    fn spread(&self, target: &Path, follows: bool) {
        let kind = match follows {
            true => MountPropagationFlags::DOWNSTREAM,
            false => MountPropagationFlags::PRIVATE,
        };
        let _ = mount_change(target, kind | MountPropagationFlags::REC);
    }

    /// Writes a plan; returns its name.
    pub fn plan(&self, name: &str, plan: &Plan) -> Result<()> {
        std::fs::write(self.path.join(name), plan.encode()).context("cannot write the plan")
    }

    /// Adds to what the plan of the first program says of the control group.
    pub fn amend(&self, controls: &Controls) -> Result<()> {
        let bytes = std::fs::read(self.path.join(PLAN)).context("cannot read the plan")?;
        let mut plan = Plan::decode(&bytes).map_err(anyhow::Error::msg)?;
        plan.controls.extend_from_slice(controls);
        self.plan(PLAN, &plan)
    }

    /// Writes what the guest is told of the pod's interface.
    pub fn interface(&self, interface: &Interface) -> Result<()> {
        let path = self.path.join(INTERFACE);
        std::fs::write(path, interface.encode()).context("cannot write about the network")
    }

    /// The name of the plan of a further program.
    pub fn plan_of(exec: &str) -> String {
        format!("{PLAN}-{exec}")
    }

    /// Removes the plan of a further program.
    pub fn forget_plan(&self, exec: &str) {
        let _ = std::fs::remove_file(self.path.join(Folder::plan_of(exec)));
    }

    /// Unmounts everything below the folder, and removes it; the pod's folder too if it was the
    /// last. Nothing is removed while something is mounted: it would be the host's.
    pub fn remove(&self) -> Result<()> {
        let mut places = mounts_below(&self.path)?;
        places.sort_by_key(|place| std::cmp::Reverse(place.as_os_str().len()));
        for place in places {
            unmount(&place, UnmountFlags::DETACH)
                .with_context(|| format!("cannot unmount {}", place.display()))?;
        }
        let left = mounts_below(&self.path)?;
        ensure!(left.is_empty(), "{} is still mounted", left[0].display());
        if self.path.exists() {
            std::fs::remove_dir_all(&self.path)
                .with_context(|| format!("cannot remove {}", self.path.display()))?;
        }
        if let Some(pod) = self.path.parent() {
            let _ = std::fs::remove_dir(pod);
        }
        Ok(())
    }
}

/// Returns what is mounted below a path (proc(5), `/proc/PID/mountinfo`: the fifth field, with
/// blanks as octal numbers), several times what is mounted on itself.
fn mounts_below(path: &Path) -> Result<Vec<PathBuf>> {
    let text = std::fs::read("/proc/self/mountinfo").context("cannot read the mounts")?;
    let text = String::from_utf8_lossy(&text).into_owned();
    let fields = text.lines().filter_map(|line| line.split(' ').nth(4));
    let places = fields.map(|field| PathBuf::from(unescaped(field)));
    Ok(places.filter(|place| place.starts_with(path)).collect())
}

fn unescaped(field: &str) -> String {
    let mut text = String::new();
    let mut rest = field;
    while let Some(at) = rest.find('\\') {
        let code = rest.get(at + 1..at + 4).and_then(|code| u8::from_str_radix(code, 8).ok());
        let Some(code) = code else { break };
        text.push_str(&rest[..at]);
        text.push(char::from(code));
        rest = &rest[at + 4..];
    }
    text + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blanks_of_paths_are_read() {
        assert_eq!(unescaped("/a\\040b\\134c"), "/a b\\c");
        assert_eq!(unescaped("/a\\04"), "/a\\04");
    }

    #[test]
    fn a_pod_lies_beside_the_bundles() {
        let bundle = Path::new("/run/containerd/io.containerd.runtime.v2.task/k8s.io/app");
        let wanted = "/run/containerd/io.containerd.hayate.v1/k8s.io/pod";
        assert_eq!(place(bundle, "pod").unwrap(), Path::new(wanted));
        assert!(place(bundle, "..").is_err() && place(Path::new("/a"), "pod").is_err());
    }

    #[test]
    fn an_identifier_is_no_path() {
        let folder = std::env::temp_dir();
        for id in ["", "../x", "a/b", ".."] {
            assert!(Folder::make(&folder, id, &folder).is_err(), "{id}");
        }
    }
}
