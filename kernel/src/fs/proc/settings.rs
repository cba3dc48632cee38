//! `/proc/sys`: settings of the kernel, most of them read-only (sysctl(5)).

use alloc::vec::Vec;
use core::fmt::Write as _;
use core::str;
use core::sync::atomic::Ordering;

use hayate_abi::{Errno, Result};
use hayate_bpf::seccomp::Actions;

use super::fresh;
use super::ipc;
use super::network_settings;
use super::text::{line, line_of, put};
use super::tree::{Item, What};
use crate::credentials::Capability;
use crate::ipc::pipe::limits;
use crate::ipc::{aio, epoll, inotify};
use crate::kernel_log::{self, RESTRICTED, Writing};
use crate::memory::deferred_free;
use crate::memory::userfault::UNPRIVILEGED;
use crate::page_cache;
use crate::process;
use crate::process::{accounting, dump, identity, namespaces, seccomp};
use crate::recycle::pools;
use crate::schedule::{MOST_NS, SHARE_NS};
use crate::vfs::{dnotify, file_count, lease, reclaim};

/// The items of `/proc/sys`.
pub static ITEMS: &[Item<()>] = &[
    Item { name: "fs", what: What::Directory(FS) },
    Item { name: "kernel", what: What::Directory(KERNEL) },
    Item { name: "net", what: What::Listing(&network_settings::Settings) },
    Item { name: "user", what: What::Directory(USER) },
    Item { name: "vm", what: What::Directory(VM) },
];

/// A read-only constant.
macro_rules! constant {
    ($name:literal, $value:expr) => {
        Item { name: $name, what: What::Text(|(), out| line(out, format_args!("{}", $value))) }
    };
}

/// A limit that can be changed.
macro_rules! limit {
    ($name:literal, $limit:path) => {
        limit!($name, $limit, amount)
    };
    ($name:literal, $limit:path, $read:path) => {
        Item {
            name: $name,
            what: What::Setting(
                |(), out| line(out, format_args!("{}", $limit.get())),
                |(), text| {
                    $limit.set($read(text)?);
                    Ok(())
                },
            ),
        }
    };
}

fn amount(text: &[u8]) -> Result<usize> {
    usize::try_from(number(text)?).map_err(|_| Errno::EINVAL)
}

static FS: &[Item<()>] = &[
    limit!("aio-max-nr", aio::MOST),
    Item { name: "aio-nr", what: What::Text(|(), out| line(out, format_args!("{}", aio::used()))) },
    Item { name: "epoll", what: What::Directory(FS_EPOLL) },
    Item { name: "inotify", what: What::Directory(FS_INOTIFY) },
    Item { name: "mqueue", what: What::Directory(ipc::MQUEUE) },
    limit!("dir-notify-enable", dnotify::ENABLED),
    limit!("file-max", file_count::MAX),
    Item {
        name: "file-nr",
        // The second number, of free ones, is always 0 (proc(5)).
        what: What::Text(|(), out| {
            line(out, format_args!("{}\t0\t{}", file_count::open_files(), file_count::MAX.get()))
        }),
    },
    limit!("lease-break-time", lease::BREAK_TIME),
    limit!("leases-enable", lease::ENABLED),
    constant!("nr_open", crate::vfs::descriptor::MAXIMUM),
    Item {
        name: "pipe-max-size",
        what: What::Setting(
            |(), out| line(out, format_args!("{}", limits::MAX_SIZE.get())),
            |(), text| {
                let size = usize::try_from(number(text)?).map_err(|_| Errno::EINVAL)?;
                limits::set_max_size(size)
            },
        ),
    },
    limit!("pipe-user-pages-hard", limits::USER_PAGES_HARD),
    limit!("pipe-user-pages-soft", limits::USER_PAGES_SOFT),
    constant!("overflowuid", 65534),
    constant!("overflowgid", 65534),
];

static FS_EPOLL: &[Item<()>] = &[limit!("max_user_watches", epoll::MAX_USER_WATCHES)];

static FS_INOTIFY: &[Item<()>] = &[
    limit!("max_queued_events", inotify::MAX_QUEUED_EVENTS),
    limit!("max_user_instances", inotify::MAX_USER_INSTANCES),
    limit!("max_user_watches", inotify::MAX_USER_WATCHES),
];

static KERNEL: &[Item<()>] = &[
    Item {
        name: "acct",
        what: What::Setting(
            |(), out| {
                let [resume, suspend, seconds] = accounting::limits();
                line(out, format_args!("{resume}\t{suspend}\t{seconds}"))
            },
            |(), text| {
                let mut limits = accounting::limits();
                numbers(text, &mut limits)?;
                accounting::set_limits(limits);
                Ok(())
            },
        ),
    },
    constant!("cap_last_cap", crate::credentials::LAST_CAPABILITY),
    Item {
        name: "core_pattern",
        what: What::Setting(
            |(), out| line_of(out, &dump::pattern()),
            |(), text| dump::set_pattern(first_line(text)),
        ),
    },
    Item {
        name: "core_uses_pid",
        what: What::Setting(
            |(), out| line(out, format_args!("{}", dump::uses_pid())),
            |(), text| {
                dump::set_uses_pid(i32::try_from(number(text)?).map_err(|_| Errno::EINVAL)?);
                Ok(())
            },
        ),
    },
    Item { name: "dmesg_restrict", what: What::Setting(restricted, set_restricted) },
    Item {
        name: "domainname",
        what: What::Setting(
            |(), out| line_of(out, process::current().uts().domain().as_bytes()),
            |(), text| set_name(text, |name| process::current().uts().set_domain(name)),
        ),
    },
    Item {
        name: "hostname",
        what: What::Setting(
            |(), out| line_of(out, process::current().uts().host().as_bytes()),
            |(), text| set_name(text, |name| process::current().uts().set_host(name)),
        ),
    },
    Item { name: "msg_next_id", what: ipc::MSG_NEXT_ID },
    Item { name: "msgmax", what: ipc::MSG_MAX },
    Item { name: "msgmnb", what: ipc::MSG_MNB },
    Item { name: "msgmni", what: ipc::MSG_MNI },
    constant!("ngroups_max", 65536),
    constant!("osrelease", identity::RELEASE),
    constant!("ostype", identity::SYSNAME),
    constant!("overflowgid", 65534),
    constant!("overflowuid", 65534),
    constant!("panic", 0),
    constant!("pid_max", crate::process::pids::PID_MAX),
    Item { name: "printk", what: What::Setting(levels, set_levels) },
    Item {
        name: "printk_devkmsg",
        what: What::Setting(
            |(), out| line(out, format_args!("{}", Writing::now().name())),
            |(), text| Writing::set(first_line(text)),
        ),
    },
    Item { name: "pty", what: What::Directory(PTY) },
    Item { name: "random", what: What::Directory(RANDOM) },
    Item {
        name: "randomize_va_space",
        what: What::Text(|(), out| {
            line(out, format_args!("{}", if crate::memory::places::are_random() { 2 } else { 0 }))
        }),
    },
    constant!("sched_rt_period_us", (MOST_NS + SHARE_NS) / 1000),
    constant!("sched_rt_runtime_us", MOST_NS / 1000),
    Item { name: "seccomp", what: What::Directory(SECCOMP) },
    Item { name: "sem", what: ipc::SEM },
    Item { name: "sem_next_id", what: ipc::SEM_NEXT_ID },
    Item { name: "shm_next_id", what: ipc::SHM_NEXT_ID },
    Item { name: "shm_rmid_forced", what: ipc::SHM_RMID_FORCED },
    Item { name: "shmall", what: ipc::SHM_ALL },
    Item { name: "shmmax", what: ipc::SHM_MAX },
    Item { name: "shmmni", what: ipc::SHM_MNI },
    // Nothing taints this kernel: it loads no modules, and a fault that would taint ends it.
    constant!("tainted", 0),
    constant!("threads-max", crate::process::pids::PID_MAX),
    constant!("version", identity::VERSION),
];

static SECCOMP: &[Item<()>] = &[
    Item { name: "actions_avail", what: What::Text(|(), out| action_names(out, Actions(u8::MAX))) },
    Item {
        name: "actions_logged",
        what: What::Setting(|(), out| action_names(out, seccomp::logged()), set_logged),
    },
];

fn action_names(out: &mut Vec<u8>, actions: Actions) -> Result<()> {
    for (index, name) in actions.names().enumerate() {
        put(out, format_args!("{}{name}", if index == 0 { "" } else { " " }))?;
    }
    line(out, format_args!(""))
}

/// Sets which actions are logged: only with the right to administer the system.
fn set_logged(_: &(), text: &[u8]) -> Result<()> {
    process::current().credentials().require(Capability::SysAdmin)?;
    let text = str::from_utf8(first_line(text)).map_err(|_| Errno::EINVAL)?;
    seccomp::set_logged(Actions::parse(text).ok_or(Errno::EINVAL)?);
    Ok(())
}

static PTY: &[Item<()>] = &[
    constant!("max", crate::tty::pty::MOST),
    constant!("reserve", crate::tty::pty::RESERVED),
    Item {
        name: "nr",
        what: What::Text(|(), out| line(out, format_args!("{}", crate::tty::pty::count()))),
    },
];

static RANDOM: &[Item<()>] = &[
    Item { name: "boot_id", what: What::Text(|(), out| uuid(out, fresh::boot_id())) },
    constant!("entropy_avail", 256),
    constant!("poolsize", 256),
    Item { name: "uuid", what: What::Text(|(), out| uuid(out, random_bytes())) },
];

/// How many namespaces of a kind a user may make: for the administrator of resources alone
/// (`set_permissions`, kernel/ucount.c).
fn most_namespaces(text: &[u8]) -> Result<usize> {
    process::current().credentials().require(Capability::SysResource)?;
    let most = i32::try_from(number(text)?).map_err(|_| Errno::EINVAL)?;
    usize::try_from(most).map_err(|_| Errno::EINVAL)
}

static USER: &[Item<()>] = &[
    limit!("max_cgroup_namespaces", namespaces::MOST_CGROUP, most_namespaces),
    limit!("max_ipc_namespaces", namespaces::MOST_IPC, most_namespaces),
    limit!("max_mnt_namespaces", namespaces::MOST_MNT, most_namespaces),
    limit!("max_net_namespaces", namespaces::MOST_NET, most_namespaces),
    limit!("max_user_namespaces", namespaces::MOST_USER, most_namespaces),
    limit!("max_pid_namespaces", namespaces::MOST_PID, most_namespaces),
    limit!("max_uts_namespaces", namespaces::MOST_UTS, most_namespaces),
];

static VM: &[Item<()>] = &[
    Item { name: "drop_caches", what: What::Setting(|(), _| Ok(()), drop_caches) },
    Item {
        name: "max_map_count",
        what: What::Setting(
            |(), out| line(out, format_args!("{}", crate::memory::most_regions())),
            |(), text| {
                let most = u32::try_from(number(text)?).map_err(|_| Errno::EINVAL)?;
                crate::memory::set_most_regions(most);
                Ok(())
            },
        ),
    },
    constant!("mmap_min_addr", crate::memory::LOWEST),
    constant!("overcommit_memory", 0),
    constant!("overcommit_ratio", 50),
    constant!("swappiness", 0),
    Item {
        name: "unprivileged_userfaultfd",
        what: What::Setting(
            |(), out| line(out, format_args!("{}", u8::from(UNPRIVILEGED.load(Ordering::Relaxed)))),
            |(), text| {
                UNPRIVILEGED.store(switch(text)?, Ordering::Relaxed);
                Ok(())
            },
        ),
    },
];

/// A written 0 or 1; else `EINVAL`.
fn switch(text: &[u8]) -> Result<bool> {
    match number(text)? {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(Errno::EINVAL),
    }
}

/// `kernel.printk`: the four levels.
fn levels(_: &(), out: &mut Vec<u8>) -> Result<()> {
    let [shown, messages, least, usual] = kernel_log::levels();
    line(out, format_args!("{shown}\t{messages}\t{least}\t{usual}"))
}

/// Changes the first of the levels, as many as were written.
fn set_levels(_: &(), text: &[u8]) -> Result<()> {
    let mut new = kernel_log::levels();
    numbers(text, &mut new)?;
    kernel_log::set_levels(new);
    Ok(())
}

/// `kernel.dmesg_restrict`
fn restricted(_: &(), out: &mut Vec<u8>) -> Result<()> {
    line(out, format_args!("{}", u8::from(RESTRICTED.load(Ordering::Relaxed))))
}

/// Changes it, with the right to administer the system (`proc_dointvec_minmax_sysadmin`).
fn set_restricted(_: &(), text: &[u8]) -> Result<()> {
    process::current().credentials().require(Capability::SysAdmin)?;
    RESTRICTED.store(switch(text)?, Ordering::Relaxed);
    Ok(())
}

/// Replaces the first of `values`, as many as were written (`proc_dointvec`): EINVAL if one is no
/// number.
fn numbers(text: &[u8], values: &mut [i32]) -> Result<()> {
    let text = str::from_utf8(first_line(text)).map_err(|_| Errno::EINVAL)?;
    for (value, word) in values.iter_mut().zip(text.split_ascii_whitespace()) {
        *value = word.parse().map_err(|_| Errno::EINVAL)?;
    }
    Ok(())
}

/// The written text up to its first newline or NUL.
fn first_line(text: &[u8]) -> &[u8] {
    text.split(|&byte| byte == b'\n' || byte == 0).next().unwrap_or_default()
}

/// Changes a name of the system; EINVAL if it is too long.
fn set_name(text: &[u8], set: fn(&[u8])) -> Result<()> {
    let name = first_line(text);
    if name.len() > 64 {
        return Err(Errno::EINVAL);
    }
    set(name);
    Ok(())
}

fn random_bytes() -> [u8; 16] {
    let mut bytes = [0; 16];
    crate::random::fill(&mut bytes);
    bytes
}

/// A random UUID (RFC 9562, version 4).
fn uuid(out: &mut Vec<u8>, mut bytes: [u8; 16]) -> Result<()> {
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let mut text = alloc::string::String::new();
    for (index, byte) in bytes.iter().enumerate() {
        if matches!(index, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        write!(text, "{byte:02x}").map_err(|_| Errno::ENOMEM)?;
    }
    line(out, format_args!("{text}"))
}

/// Frees caches: pages of files (1), names (2), or both (3), and in any case the kept resources of
/// ended processes and the heap's per-CPU caches (proc_sys_vm(5)).
fn drop_caches(_: &(), text: &[u8]) -> Result<()> {
    let what = number(text)?;
    if !(1..=3).contains(&what) {
        return Err(Errno::EINVAL);
    }
    // The deferred free holds pages; kept resources hold pages and names.
    deferred_free::settle();
    pools::drop_all(None);
    if what & 2 != 0 {
        reclaim::names();
    }
    if what & 1 != 0 {
        page_cache::reclaim::pages(usize::MAX);
    }
    crate::schedule::on_each_cpu(hayate_machine::heap::trim);
    Ok(())
}

/// Parses a decimal number that was written; EINVAL if it is none.
pub fn number(text: &[u8]) -> Result<i64> {
    let text = str::from_utf8(first_line(text)).map_err(|_| Errno::EINVAL)?;
    text.trim().parse().map_err(|_| Errno::EINVAL)
}

/// A number that was written as kstrtoull(9) takes it: decimal, and with `any_base` octal behind
/// `0` and hexadecimal behind `0x`. `EINVAL` when it is none, `ERANGE` when it exceeds `most`.
pub fn unsigned(text: &[u8], any_base: bool, most: u64) -> Result<u64> {
    let text = text.strip_suffix(b"\n").unwrap_or(text);
    let text = text.strip_prefix(b"+").unwrap_or(text);
    let (digits, base) = match text {
        [b'0', b'x' | b'X', digits @ ..] if any_base => (digits, 16),
        [b'0', digits @ ..] if any_base && !digits.is_empty() => (digits, 8),
        _ => (text, 10),
    };
    if digits.is_empty() || !digits.iter().all(|&byte| char::from(byte).is_digit(base)) {
        return Err(Errno::EINVAL);
    }
    let digits = str::from_utf8(digits).map_err(|_| Errno::EINVAL)?;
    u64::from_str_radix(digits, base).ok().filter(|&value| value <= most).ok_or(Errno::ERANGE)
}
