//! Checks that the suite justifies each row of the system call table that is called complete.
//!
//! The suite's C programs (`tests/c`) say by `ERR(call, ERROR)` which error a call must give, and
//! they pass on Linux. For each complete row this test requires
//!
//! * the call itself, somewhere in the suite, and
//! * its error cases: those that follow from the kinds of its arguments ([`wanted`]).
//!
//! A call that cannot give one of these errors is listed in [`cannot`], with the place in Linux or
//! the manual page that says so. The author of a case decides about all other errors in a manual
//! page: no list of errors would show which of them matter.

#[path = "evidence/source.rs"]
mod source;

use source::Evidence;
use std::path::Path;

struct Row {
    name: &'static str,
    kinds: &'static [&'static str],
    is_complete: bool,
}

macro_rules! is_complete {
    ([complete $($path:tt)*]) => {
        true
    };
    ($($other:tt)*) => {
        false
    };
}

macro_rules! syscalls {
    ($($family:literal {
        $($number:literal $name:ident ($($argument:ident : $kind:ident),*) $support:tt;)*
    })*) => {
        fn rows() -> Vec<Row> {
            vec![$($(Row {
                name: stringify!($name),
                kinds: &[$(stringify!($kind)),*],
                is_complete: is_complete!($support),
            }),*),*]
        }
    };
}

include!("../../../kernel/src/syscall/table.rs");

/// Returns the errors that a wrong argument of a kind may cause: any one of them is enough.
const fn wanted(kind: &str) -> &'static [&'static [&'static str]] {
    match kind.as_bytes() {
        b"Fd" => &[&["EBADF"]],
        b"Path" => &[&["ENOENT", "ENOTDIR", "ELOOP", "ENAMETOOLONG"], &["EFAULT"]],
        b"Pointer" => &[&["EFAULT"]],
        b"Flags" => &[&["EINVAL"]],
        _ => &[],
    }
}

/// Errors that a complete call cannot give, and why.
const CANNOT: &[(&str, &str, &str)] = &[
    ("fsetxattr", "ENOENT", "its file is open; the path is the attribute's name"),
    ("fgetxattr", "ENOENT", "its file is open; the path is the attribute's name"),
    ("fremovexattr", "ENOENT", "its file is open; the path is the attribute's name"),
    ("msgget", "EINVAL", "msgget(2): every bit of its flags means something or nothing"),
    ("set_robust_list", "EFAULT", "the list is looked at when the thread ends"),
];

/// Complete calls that give no error at all, and why.
const NEVER_FAILS: &[(&str, &str)] = &[
    ("sync", "sync(2): always successful"),
    ("umask", "umask(2): always succeeds"),
    ("brk", "a break that cannot be is answered by the one that is (brk(2), notes)"),
    ("munlockall", "nothing to get wrong"),
    ("vfork", "only limits refuse it, and those are shown by storms"),
    ("exit", "does not return"),
    ("exit_group", "does not return"),
    ("getpid", "getpid(2): always successful"),
    ("getppid", "getpid(2): always successful"),
    ("gettid", "gettid(2): always successful"),
    ("getpgrp", "getpgrp(2): always successful"),
    ("set_tid_address", "set_tid_address(2): always succeeds"),
    ("rt_sigreturn", "what it finds wrong is a SIGSEGV; every handler of the suite returns by it"),
    ("alarm", "alarm(2): always successful"),
    ("sched_yield", "sched_yield(2): always succeeds on Linux"),
    ("getuid", "getuid(2): always successful"),
    ("getgid", "getgid(2): always successful"),
    ("geteuid", "getuid(2): always successful"),
    ("getegid", "getgid(2): always successful"),
    ("setfsuid", "setfsuid(2): the answer is the user before"),
    ("setfsgid", "setfsgid(2): the answer is the group before"),
];

/// The one call that no C code makes: the trampoline behind each signal handler makes it.
const UNSEEN: &str = "rt_sigreturn";

#[test]
fn complete_rows_have_their_error_cases() {
    let suite = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/c");
    let evidence = Evidence::read(&suite).unwrap();
    let mut lacks = Vec::new();
    for row in rows().iter().filter(|row| row.is_complete) {
        let found = evidence.of(row.name);
        if !found.is_called && row.name != UNSEEN {
            lacks.push(format!("{}: no case calls it", row.name));
        }
        for errors in row.kinds.iter().flat_map(|kind| wanted(kind)) {
            let shown = errors.iter().any(|error| found.errors.contains(*error));
            let cannot =
                CANNOT.iter().any(|&(name, error, _)| name == row.name && errors.contains(&error));
            let lack = format!("{}: no case for {}", row.name, errors.join(" or "));
            if !shown && !cannot && !lacks.contains(&lack) {
                lacks.push(lack);
            }
        }
        let never = NEVER_FAILS.iter().any(|&(name, _)| name == row.name);
        if found.errors.is_empty() && !never {
            lacks.push(format!("{}: no error case", row.name));
        }
    }
    assert!(lacks.is_empty(), "{} lacks:\n{}", lacks.len(), lacks.join("\n"));
}

/// Checks that every exception belongs to a complete row.
#[test]
fn no_exception_is_stale() {
    let rows = rows();
    let names = CANNOT.iter().map(|(name, ..)| name);
    for name in names.chain(NEVER_FAILS.iter().map(|(name, _)| name)) {
        let row = rows.iter().find(|row| row.name == *name && row.is_complete);
        assert!(row.is_some(), "{name} is no complete row");
    }
}

/// The words of a text that are names in capitals, such as `SO_TYPE`.
fn names(text: &str) -> impl Iterator<Item = &str> {
    let is_part = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
    text.split(move |c: char| !is_part(c)).filter(|word| word.contains('_'))
}

/// The text of the files below a folder whose names end so.
fn text_below(folder: &Path, ending: &str) -> String {
    let mut text = String::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            text += &text_below(&path, ending);
        } else if path.to_string_lossy().ends_with(ending) {
            text += &std::fs::read_to_string(&path).unwrap();
        }
    }
    text
}

/// The options of sockets that the kernel's sources define: constants with the prefix of a level,
/// and those of the modules `ip` and `ipv6`, which leave it out.
fn options_of_the_kernel(root: &Path) -> Vec<String> {
    /// Types of control messages, and other names of options.
    const OTHERS: &[&str] =
        &["IPV6_PKTINFO", "IPV6_HOPLIMIT", "IPV6_ADD_MEMBERSHIP", "IPV6_DROP_MEMBERSHIP"];
    let kernel = root.join("kernel/src");
    let sources =
        ["net", "vfs", "syscall/socket"].map(|part| text_below(&kernel.join(part), ".rs"));
    let mut options = Vec::new();
    for source in &sources {
        let mut module = "";
        for line in source.lines().map(str::trim_start) {
            match line {
                "pub mod ip {" => module = "IP_",
                "pub mod ipv6 {" => module = "IPV6_",
                "}" => module = "",
                _ => {}
            }
            let constant = line.trim_start_matches("pub ").strip_prefix("const ");
            let Some((name, "i32", _)) = constant.and_then(|constant| {
                let (name, rest) = constant.split_once(": ")?;
                let (kind, value) = rest.split_once(" = ")?;
                Some((name, kind, value))
            }) else {
                continue;
            };
            let is_option =
                ["SO_", "TCP_", "UDP_", "NETLINK_", "MCAST_"].iter().any(|p| name.starts_with(p));
            if is_option || !module.is_empty() {
                options.push(format!("{module}{name}"));
            }
        }
    }
    options.retain(|name| !OTHERS.contains(&name.as_str()));
    options
}

#[test]
fn options_of_sockets_are_listed_and_have_cases() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = std::fs::read_to_string(root.join("docs/network.md")).unwrap();
    let (_, section) = page.split_once("## Options of sockets").unwrap();
    let (list, _) = section.split_once("Some of them do less").unwrap();
    let listed: Vec<_> = names(list).collect();
    assert!(listed.len() > 80, "the list is not where it was");
    let suite = text_below(&root.join("tests/c"), ".c");
    let suite: std::collections::BTreeSet<_> =
        names(&suite).map(|name| name.trim_end_matches('_')).collect();
    let levels = ["SOL_SOCKET", "IPPROTO_", "SOL_"];
    let is_level = |name: &str| levels.iter().any(|level| name.starts_with(level));
    let without_case: Vec<_> =
        listed.iter().filter(|name| !is_level(name) && !suite.contains(**name)).collect();
    assert!(without_case.is_empty(), "no case names {without_case:?}");
    let known = options_of_the_kernel(&root);
    assert!(known.len() > 60, "{known:?}");
    let not_listed: Vec<_> = known.iter().filter(|name| !listed.contains(&name.as_str())).collect();
    assert!(not_listed.is_empty(), "docs/network.md does not list {not_listed:?}");
}
