//! The system's names (`uname(2)`), and the UTS namespaces, each with a host and a domain name of
//! its own.

use alloc::sync::Arc;

use hayate_abi::process::Utsname;
use hayate_machine::sync::SpinLock;

use crate::namespace::{self, Handle};
use crate::user_namespace::{self, UserNamespace};
use crate::vfs::users::Counted;

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

#[derive(Clone, Copy)]
struct Names {
    host: Name,
    domain: Name,
}

/// A UTS namespace (uts_namespaces(7)): the names that can be set.
pub struct UtsNamespace {
    /// Its number.
    pub number: u64,
    names: SpinLock<Names>,
    /// The user namespace that it belongs to.
    pub owner: Handle<UserNamespace>,
    /// Its place among those of the user who made it.
    _counted: Option<Counted>,
}

/// The first one.
pub static FIRST: UtsNamespace = UtsNamespace {
    number: namespace::first::UTS,
    names: SpinLock::new(Names { host: Name::new(b"hayate"), domain: Name::new(b"(none)") }),
    owner: user_namespace::first(),
    _counted: None,
};

impl UtsNamespace {
    /// Another one, which begins with the names of this one.
    pub fn another(&self, owner: Handle<UserNamespace>, counted: Counted) -> Handle<UtsNamespace> {
        let names = *self.names.lock();
        Handle::Other(Arc::new(UtsNamespace {
            number: namespace::number(),
            names: SpinLock::new(names),
            owner,
            _counted: Some(counted),
        }))
    }

    /// The host name.
    pub fn host(&self) -> Name {
        self.names.lock().host
    }

    /// Sets the host name; bytes after the 64th are cut off.
    pub fn set_host(&self, name: &[u8]) {
        self.names.lock().host = Name::new(name);
    }

    /// The domain name.
    pub fn domain(&self) -> Name {
        self.names.lock().domain
    }

    /// Sets the domain name; bytes after the 64th are cut off.
    pub fn set_domain(&self, name: &[u8]) {
        self.names.lock().domain = Name::new(name);
    }

    /// The result of `uname(2)`.
    pub fn utsname(&self) -> Utsname {
        let Names { host, domain } = *self.names.lock();
        Utsname {
            sysname: Name::new(SYSNAME.as_bytes()).0,
            nodename: host.0,
            release: Name::new(RELEASE.as_bytes()).0,
            version: Name::new(VERSION.as_bytes()).0,
            machine: Name::new(MACHINE.as_bytes()).0,
            domainname: domain.0,
        }
    }
}
