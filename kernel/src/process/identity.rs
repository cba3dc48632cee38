//! The system's names (`uname(2)`).

use hayate_abi::process::Utsname;
use hayate_machine::sync::SpinLock;

/// The release of Linux whose system calls are the model, followed by our name. Programs compare
/// the release (glibc refuses a kernel that is too old), so it begins with Linux' number.
pub const RELEASE: &str = concat!("6.1.0-hayate-", env!("CARGO_PKG_VERSION"));
/// The system's name. It is that of Linux, since the interface is Linux'.
pub const SYSNAME: &str = "Linux";
/// The build, as `uname -v` prints it.
pub const VERSION: &str = "#1 SMP Hayate";
/// The machine.
pub const MACHINE: &str = "x86_64";

/// A host or domain name.
#[derive(Clone, Copy)]
pub struct Name([u8; 65]);

impl Name {
    const fn new(text: &[u8]) -> Name {
        let mut bytes = [0; 65];
        let mut index = 0;
        while index < text.len() && index < 64 {
            bytes[index] = text[index];
            index += 1;
        }
        Name(bytes)
    }

    /// The text without the trailing NULs.
    pub fn as_bytes(&self) -> &[u8] {
        self.0.split(|&byte| byte == 0).next().unwrap_or(&[])
    }
}

static HOST: SpinLock<Name> = SpinLock::new(Name::new(b"hayate"));
static DOMAIN: SpinLock<Name> = SpinLock::new(Name::new(b"(none)"));

/// The host name.
pub fn host() -> Name {
    *HOST.lock()
}

/// Sets the host name; bytes after the 64th are cut off.
pub fn set_host(name: &[u8]) {
    *HOST.lock() = Name::new(name);
}

/// The domain name.
pub fn domain() -> Name {
    *DOMAIN.lock()
}

/// Sets the domain name; bytes after the 64th are cut off.
pub fn set_domain(name: &[u8]) {
    *DOMAIN.lock() = Name::new(name);
}

/// The result of `uname(2)`.
pub fn utsname() -> Utsname {
    Utsname {
        sysname: Name::new(SYSNAME.as_bytes()).0,
        nodename: host().0,
        release: Name::new(RELEASE.as_bytes()).0,
        version: Name::new(VERSION.as_bytes()).0,
        machine: Name::new(MACHINE.as_bytes()).0,
        domainname: domain().0,
    }
}
