//! What a program of a container may do: user, groups, capabilities, limits.

use crate::{During, Failure, seccomp};
use hayate_container_plan::{Capabilities, Plan};
use rustix::fs::{Gid, Mode, Uid, fchown};
use rustix::process::{Resource, Rlimit, setrlimit, umask};
use rustix::thread::{
    CapabilitySet, CapabilitySets, clear_ambient_capability_set,
    configure_capability_in_ambient_set, remove_capability_from_bounding_set, set_capabilities,
    set_keep_capabilities, set_no_new_privs, set_thread_groups, set_thread_res_gid,
    set_thread_res_uid,
};

/// Resources by Linux' numbers (include/uapi/asm-generic/resource.h).
const RESOURCES: [Resource; 16] = [
    Resource::Cpu,
    Resource::Fsize,
    Resource::Data,
    Resource::Stack,
    Resource::Core,
    Resource::Rss,
    Resource::Nproc,
    Resource::Nofile,
    Resource::Memlock,
    Resource::As,
    Resource::Locks,
    Resource::Sigpending,
    Resource::Msgqueue,
    Resource::Nice,
    Resource::Rtprio,
    Resource::Rttime,
];

/// Becomes the user of the plan, with what it may do. Returns the user's home directory.
pub fn become_user(plan: &Plan) -> Result<Vec<u8>, Failure> {
    let (user, group) = plan.user;
    let home = home(user);
    let (user, group) = (Uid::from_raw(user), Gid::from_raw(group));
    for limit in &plan.limits {
        let number = limit.resource as usize;
        let resource = *RESOURCES.get(number).ok_or_else(|| format!("no resource {number}"))?;
        let value = |limit: u64| (limit != u64::MAX).then_some(limit);
        let wanted = Rlimit { current: value(limit.soft), maximum: value(limit.hard) };
        setrlimit(resource, wanted).during(format!("cannot set limit {number}"))?;
    }
    if let Some(score) = plan.oom_score {
        std::fs::write("/proc/self/oom_score_adj", score.to_string())
            .during("cannot set the score for when memory lacks")?;
    }
    if !user.is_root() {
        // It may open them again, as /dev/stdout.
        let streams = [rustix::stdio::stdin(), rustix::stdio::stdout(), rustix::stdio::stderr()];
        for stream in streams {
            // The null device keeps its owner.
            let device = rustix::fs::fstat(stream).is_ok_and(|found| {
                rustix::fs::FileType::from_raw_mode(found.st_mode).is_char_device()
            });
            if !device || plan.terminal {
                let _ = fchown(stream, Some(user), None);
            }
        }
    }
    umask(Mode::from_raw_mode(plan.mask.unwrap_or(0o022)));
    if let Some(filter) = plan.filter.as_ref().filter(|_| !plan.no_new_privileges) {
        // While there is the capability for it, as runc does; a program that renounces privileges
        // gets its filter last, so that it need not allow what comes before.
        seccomp::install(filter)?;
    }
    if let Some(sets) = &plan.capabilities {
        for number in 0..64 {
            if let Some(one) = named(1 << number)
                && sets.bounding & 1 << number == 0
            {
                // A kernel that does not know it cannot give it either.
                let _ = remove_capability_from_bounding_set(one);
            }
        }
        set_keep_capabilities(true).during("cannot keep capabilities")?;
    }
    let groups: Vec<Gid> = plan.groups.iter().map(|&group| Gid::from_raw(group)).collect();
    set_thread_groups(&groups).during("cannot set further groups")?;
    set_thread_res_gid(group, group, group).during("cannot set the group")?;
    set_thread_res_uid(user, user, user).during("cannot set the user")?;
    if let Some(sets) = &plan.capabilities {
        limit(sets)?;
    }
    if plan.no_new_privileges {
        set_no_new_privs(true).during("cannot renounce privileges")?;
    }
    Ok(home)
}

/// The capability of this bit, if Linux has one.
fn named(bit: u64) -> Option<CapabilitySet> {
    CapabilitySet::from_bits(bit)
}

fn limit(sets: &Capabilities) -> Result<(), Failure> {
    let set = CapabilitySet::from_bits_truncate;
    set_keep_capabilities(false).during("cannot let capabilities go")?;
    let wanted = CapabilitySets {
        effective: set(sets.effective),
        permitted: set(sets.permitted),
        inheritable: set(sets.inheritable),
    };
    set_capabilities(None, wanted).during("cannot set capabilities")?;
    clear_ambient_capability_set().during("cannot clear ambient capabilities")?;
    for one in (0..64).map(|number| 1 << number).filter(|bit| sets.ambient & bit != 0) {
        let Some(one) = named(one) else { continue };
        configure_capability_in_ambient_set(one, true).during("cannot raise a capability")?;
    }
    Ok(())
}

/// Looks a user's home directory up in the container's `/etc/passwd`, which may hold anything.
fn home(user: u32) -> Vec<u8> {
    let text = std::fs::read("/etc/passwd").unwrap_or_default();
    let number = user.to_string();
    let lines = text.split(|&byte| byte == b'\n');
    let mut homes = lines.filter_map(|line| {
        let fields: Vec<&[u8]> = line.split(|&byte| byte == b':').collect();
        let home = fields.get(5).filter(|home| !home.is_empty())?;
        (fields.get(2)? == &number.as_bytes()).then(|| home.to_vec())
    });
    homes.next().unwrap_or_else(|| b"/".to_vec())
}
