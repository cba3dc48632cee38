//! containerd with Hayate's shim: containers by `ctr`, as a user of containerd starts them.
//!
//! Each check has a containerd of its own, unpacked from Debian's package, with root, state and
//! socket in a folder of its own. The image is that of `containers/`. At its end a check has left
//! nothing: no process of the shim or QEMU, no mount, no socket. Only root can do all that.

mod checks;
mod daemon;
mod filters;
mod groups;
mod namespaces;
mod network;
mod starts;

use super::command::{Check, Hayate};
use super::report::{Case, Verdict};
use super::{Report, Trial};
use crate::arguments::{Accel, Profile, Test};
use crate::image::debian;
use crate::{containerd, paths, tool};
use anyhow::Result;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

const CHECKS: [(&str, Check); 24] = [
    ("a_container_runs_as_by_ctr_run", checks::runs),
    ("streams_pass_unchanged", checks::streams),
    ("a_container_has_a_terminal", checks::on_terminal),
    ("further_programs_run_in_a_container", checks::execs),
    ("signals_and_pauses", checks::signals),
    ("the_specification_counts", checks::specification),
    ("what_cannot_be_had_is_refused", checks::refused),
    ("system_calls_are_filtered", filters::filters),
    ("programs_of_the_host_take_part", checks::helpers),
    ("a_pod_is_one_machine", checks::pod),
    ("memory_that_lacks_is_told", checks::memory),
    ("processes_have_numbers_of_their_own", namespaces::numbers),
    ("a_pod_shares_numbers_of_processes", namespaces::shared_numbers),
    ("a_pod_shares_its_name_and_its_memory", namespaces::shared),
    ("devices_and_mounts_are_those_of_the_specification", namespaces::devices),
    ("limits_are_those_of_a_control_group", groups::limits),
    ("limits_change_while_a_container_runs", groups::updates),
    ("one_container_of_a_pod_lacks_memory", groups::lacks),
    ("one_container_of_a_pod_is_paused", groups::pauses),
    ("later_pods_begin_at_a_kept_start", starts::kept),
    ("nothing_is_left_by_what_is_killed", checks::killed),
    ("twenty_containers_run_at_once", checks::twenty),
    ("a_pod_is_reached_at_its_address", network::reached),
    ("an_interface_that_a_hook_makes_is_joined", network::made_by_a_hook),
];

/// The runtime.
const RUNTIME: &str = "io.containerd.hayate.v1";
/// The image, whose program runs as root, and the same with a user.
const IMAGE: &str = "made:1";
const USER: &str = "user:1";
/// How long a step may take on a busy host.
const PATIENCE: Duration = Duration::from_secs(60);

/// The trials.
pub fn trials(options: &Test) -> Vec<Trial> {
    if options.guest_linux {
        return Vec::new();
    }
    CHECKS.into_iter().map(|(name, check)| trial(name, check, options)).collect()
}

fn trial(name: &str, check: Check, options: &Test) -> Trial {
    let hayate = Hayate::new(options);
    let run = move |_: &[String]| {
        let (verdict, output) = match lacking() {
            Some(why) => (Verdict::Skipped(why.into()), String::new()),
            None => match check(&hayate) {
                Ok(()) => (Verdict::Passed, String::new()),
                Err(error) => (Verdict::Failed(String::new()), format!("{error:#}")),
            },
        };
        Ok(Report { cases: vec![Case::new("", verdict)], output })
    };
    Trial::new(format!("containerd/{name}"), run)
}

/// Why containerd cannot run here.
fn lacking() -> Option<&'static str> {
    if !rustix::process::geteuid().is_root() {
        return Some("only root runs containerd");
    }
    if tool::find("apt-get").is_none() || tool::find("dpkg-deb").is_none() {
        return Some("no apt, to fetch containerd by");
    }
    if tool::find("ip").is_none() || tool::find("tc").is_none() {
        return Some("no ip or tc, which make the network of a pod");
    }
    let place = tempfile::tempdir().ok()?;
    let mounted = rustix::mount::mount(
        "none",
        place.path(),
        "tmpfs",
        rustix::mount::MountFlags::empty(),
        None,
    );
    if mounted.is_err() {
        return Some("this root may not mount");
    }
    let _ = rustix::mount::unmount(place.path(), rustix::mount::UnmountFlags::DETACH);
    None
}

/// Where containerd's package and the shim are installed for all checks, once for this command.
fn installed() -> Result<PathBuf> {
    static ONCE: Mutex<Option<PathBuf>> = Mutex::new(None);
    let mut once = ONCE.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(folder) = &*once {
        return Ok(folder.clone());
    }
    let folder = paths::build("containerd")?;
    let _alone = paths::lock("containerd")?;
    for (package, archive) in debian::fetch(&["containerd"])? {
        if package.name == "containerd" {
            debian::unpack(&archive, &folder.join("package"))?;
        }
    }
    // The tests of its crate have built most of it in this profile.
    containerd::install(&folder.join("prefix"), Accel::Auto, Profile::Dev)?;
    *once = Some(folder.clone());
    Ok(folder)
}
