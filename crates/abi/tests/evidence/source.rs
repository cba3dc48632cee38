//! Reads the suite's C sources for system calls: which are called, and which errors are expected.
//!
//! It reads C as text: comments are removed, then `ERR(call, ERROR)` and `ERR2(call, ERROR, ERROR)`
//! are split at their brackets and commas. Inside `call`, every name before a bracket and every
//! `SYS_name` counts as the call. A function of the same file that calls `syscall(SYS_name, ...)`
//! counts as that call where it is used.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;

/// Functions of the C library, and the system calls that they make in musl or in glibc: the suite's
/// programs are built with musl (static) and with glibc (dynamic).
const LIBRARY: &[(&str, &[&str])] = &[
    ("pread", &["pread64"]),
    ("pwrite", &["pwrite64"]),
    ("open", &["open", "openat"]),
    ("stat", &["stat", "newfstatat"]),
    ("lstat", &["lstat", "newfstatat"]),
    ("fstat", &["fstat", "newfstatat"]),
    ("fstatat", &["newfstatat"]),
    ("posix_fadvise", &["fadvise64"]),
    ("eventfd", &["eventfd2"]),
    ("signalfd", &["signalfd4"]),
    ("sigaction", &["rt_sigaction"]),
    ("sigprocmask", &["rt_sigprocmask"]),
    ("sigpending", &["rt_sigpending"]),
    ("sigsuspend", &["rt_sigsuspend"]),
    ("sigtimedwait", &["rt_sigtimedwait"]),
    ("sigwaitinfo", &["rt_sigtimedwait"]),
    ("sigqueue", &["rt_sigqueueinfo"]),
    ("waitpid", &["wait4"]),
    ("wait", &["wait4"]),
    ("pselect", &["pselect6"]),
    ("send", &["sendto"]),
    ("recv", &["recvfrom"]),
    ("prlimit", &["prlimit64"]),
    ("getdents64", &["getdents64"]),
    ("utimensat", &["utimensat"]),
    ("futimens", &["utimensat"]),
    ("sched_getcpu", &["getcpu"]),
    ("execv", &["execve"]),
    ("_exit", &["exit_group"]),
    ("raise", &["tkill", "tgkill"]),
    ("umount", &["umount2"]),
    ("mq_send", &["mq_timedsend"]),
    ("mq_receive", &["mq_timedreceive"]),
    ("mq_getattr", &["mq_getsetattr"]),
    ("mq_setattr", &["mq_getsetattr"]),
    ("FORK", &["fork"]),
    ("IN_CHILD", &["fork"]),
    ("now_ns", &["clock_gettime"]),
];

/// The evidence of the suite for one call.
#[derive(Default)]
pub struct Found<'a> {
    /// Whether a case calls it.
    pub is_called: bool,
    /// The errors that cases expect of it.
    pub errors: BTreeSet<&'a str>,
}

/// The evidence of the suite for all calls.
#[derive(Default)]
pub struct Evidence {
    called: BTreeSet<String>,
    errors: BTreeMap<String, BTreeSet<String>>,
}

impl Evidence {
    /// Reads all C sources of a folder.
    pub fn read(folder: &Path) -> io::Result<Evidence> {
        let mut evidence = Evidence::default();
        for entry in folder.read_dir()? {
            let path = entry?.path();
            if path.extension().is_some_and(|kind| kind == "c" || kind == "h") {
                evidence.take(&without_comments(&std::fs::read_to_string(path)?));
            }
        }
        Ok(evidence)
    }

    /// Returns what the suite contains about the system call `name`.
    pub fn of(&self, name: &str) -> Found<'_> {
        let errors = self.errors.get(name).into_iter().flatten().map(String::as_str).collect();
        Found { is_called: self.called.contains(name), errors }
    }

    /// Adds one source.
    fn take(&mut self, text: &str) {
        let wrappers = wrappers(text);
        let resolve = |part: &str| -> BTreeSet<String> {
            let mut calls = BTreeSet::new();
            for name in names(part) {
                if let Some(call) = name.strip_prefix("SYS_") {
                    calls.insert(call.to_string());
                } else if let Some(call) = name.strip_prefix("HAYATE_SYS_") {
                    calls.insert(format!("hayate_{}", call.to_lowercase()));
                } else if let Some(inner) = wrappers.get(name) {
                    calls.extend(inner.iter().cloned());
                } else {
                    calls.insert(name.to_string());
                    let library = LIBRARY.iter().filter(|(known, _)| *known == name);
                    calls
                        .extend(library.flat_map(|(_, calls)| calls.iter().map(|c| c.to_string())));
                }
            }
            calls
        };
        self.called.extend(resolve(text));
        for (macro_name, errors) in [("ERR", 1), ("ERR2", 2)] {
            for arguments in uses(text, macro_name) {
                let Some(split) = arguments.len().checked_sub(errors) else { continue };
                for call in resolve(outermost(&arguments[..split].join(","))) {
                    let known = self.errors.entry(call).or_default();
                    known.extend(arguments[split..].iter().map(|error| error.trim().to_string()));
                }
            }
        }
    }
}

/// Returns the call itself without the calls among its arguments: `kill(` of `kill(getpid(), 99)`,
/// and `syscall(SYS_kill` of `syscall(SYS_kill, getpid(), 99)`.
fn outermost(call: &str) -> &str {
    let Some(open) = call.find('(').filter(|&at| !call[..at].trim().is_empty()) else {
        // A cast comes first.
        return call.find(')').map_or(call, |end| outermost(&call[end + 1..]));
    };
    if call[..open].trim() != "syscall" {
        return &call[..=open];
    }
    call.find(',').map_or(call, |end| &call[..end])
}

/// Returns the names before a bracket, and those of system-call numbers.
fn names(text: &str) -> Vec<&str> {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut found = Vec::new();
    let mut rest = text;
    while let Some(start) = rest.find(is_word) {
        let word = &rest[start..];
        let end = word.find(|c| !is_word(c)).unwrap_or(word.len());
        let (name, behind) = word.split_at(end);
        let is_number = name.starts_with("SYS_") || name.starts_with("HAYATE_SYS_");
        if behind.trim_start().starts_with('(') || is_number {
            found.push(name);
        }
        rest = behind;
    }
    found
}

/// The functions and macros of a source that make system calls by number.
fn wrappers(text: &str) -> BTreeMap<&str, BTreeSet<String>> {
    let mut found: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    let mut current = None;
    let mut macro_goes_on = false;
    for line in text.lines() {
        if let Some(define) = line.strip_prefix("#define ") {
            let end = define.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
            current = Some(&define[..end.unwrap_or(define.len())]);
            macro_goes_on = true;
        } else if line.starts_with("static ") && line.ends_with('{') {
            current = names(line).first().copied();
        } else if line.starts_with("TEST") || line.starts_with("HELPER") || line == "}" {
            current = None;
        }
        if let Some(name) = current {
            let numbers = names(line).into_iter().filter_map(|name| name.strip_prefix("SYS_"));
            for number in numbers {
                found.entry(name).or_default().insert(number.to_string());
            }
        }
        if macro_goes_on && !line.ends_with('\\') {
            (macro_goes_on, current) = (false, None);
        }
    }
    found
}

/// The arguments of each use of a macro.
fn uses<'a>(text: &'a str, name: &str) -> Vec<Vec<&'a str>> {
    let mut found = Vec::new();
    let mut from = 0;
    while let Some(at) = text[from..].find(name) {
        let (start, end) = (from + at, from + at + name.len());
        from = end;
        let is_whole = !text[..start].ends_with(|c: char| c.is_ascii_alphanumeric() || c == '_');
        if is_whole && text[end..].starts_with('(') {
            found.extend(arguments(&text[end + 1..]));
        }
    }
    found
}

/// Returns the text up to the closing bracket, split at the commas outside of brackets and strings.
fn arguments(text: &str) -> Option<Vec<&str>> {
    let (mut depth, mut start, mut quote) = (0, 0, None);
    let mut found = Vec::new();
    let mut previous = ' ';
    for (at, c) in text.char_indices() {
        match (quote, c) {
            (Some(q), _) if c == q && previous != '\\' => quote = None,
            (Some(_), _) => {}
            (None, '"' | '\'') => quote = Some(c),
            (None, '(' | '[' | '{') => depth += 1,
            (None, ')' | ']' | '}') if depth == 0 => {
                found.push(&text[start..at]);
                return Some(found);
            }
            (None, ')' | ']' | '}') => depth -= 1,
            (None, ',') if depth == 0 => {
                found.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
        previous = c;
    }
    None
}

fn without_comments(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("/*") {
        plain.push_str(&rest[..at]);
        rest = rest[at..].find("*/").map_or("", |end| &rest[at + end + 2..]);
    }
    plain.push_str(rest);
    plain
}

#[test]
fn errors_are_found_where_they_are_expected() {
    let mut evidence = Evidence::default();
    evidence.take(&without_comments(
        "static long raw(int fd) {\n    return syscall(SYS_fsync, fd);\n}\n\
         TEST(x) {\n    ERR(read(-1, \"a, b)\", 1), EBADF); /* ERR(write(1, 2), EINVAL) */\n\
         ERR(raw(getpid()), EBADF);\n    ERR2(syscall(SYS_mkdir, (char *)0, 0), EFAULT,\n EINVAL);\n}\n",
    ));
    let errors = |name| evidence.of(name).errors.into_iter().collect::<Vec<_>>();
    assert_eq!(errors("read"), ["EBADF"]);
    assert_eq!(errors("write"), [""; 0]);
    assert_eq!(errors("fsync"), ["EBADF"]);
    assert_eq!(errors("getpid"), [""; 0]);
    assert_eq!(errors("mkdir"), ["EFAULT", "EINVAL"]);
    assert!(evidence.of("fsync").is_called && !evidence.of("write").is_called);
}
