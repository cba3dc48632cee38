//! The options of a mount, which count for the whole tree: the last mount from the first cgroup
//! namespace sets them (`apply_cgroup_root_flags`).

use alloc::string::String;
use core::sync::atomic::{AtomicUsize, Ordering};

use hayate_abi::{Errno, Result};

use crate::process::cgroup::memory::LOCAL_EVENTS;
use crate::process::cgroup::namespace::CgroupNamespace;

/// Those that Linux 6.1 knows. The second asks for speed alone, and there is none to gain here; the
/// last one is about how protection is divided among groups, which it is not here
/// ([`hayate_cgroup_rules::memory::is_protected`]): both are kept and shown.
const NAMES: [&str; 4] =
    ["nsdelegate", "favordynmods", "memory_localevents", "memory_recursiveprot"];

/// As bits, in that order.
static SET: AtomicUsize = AtomicUsize::new(0);

/// Whether namespaces are the borders of delegation (`nsdelegate`).
pub fn namespaces_delegate() -> bool {
    SET.load(Ordering::Relaxed) & 1 != 0
}

/// Reads the options of a mount from `namespace`, and sets them if that is the first.
///
/// # Errors
/// `EINVAL`.
pub fn apply<'a>(
    namespace: &CgroupNamespace,
    options: impl Iterator<Item = (&'a [u8], &'a [u8])>,
) -> Result<()> {
    let mut set = 0;
    for (key, value) in options {
        let known = NAMES.iter().position(|name| name.as_bytes() == key && value.is_empty());
        set |= 1 << known.ok_or(Errno::EINVAL)?;
    }
    if namespace.is_first() {
        SET.store(set, Ordering::Relaxed);
        LOCAL_EVENTS.store(set & 4 != 0, Ordering::Relaxed);
    }
    Ok(())
}

/// The options, each behind a comma.
pub fn shown() -> String {
    let set = SET.load(Ordering::Relaxed);
    let chosen = NAMES.iter().enumerate().filter(|(at, _)| set >> at & 1 != 0);
    chosen.fold(String::new(), |text, (_, name)| text + "," + name)
}
