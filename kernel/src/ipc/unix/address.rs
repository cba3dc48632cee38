//! Addresses as programs give them: a path, a name of the abstract name space, or none.

use alloc::vec::Vec;

use hayate_abi::{Errno, Result};

use crate::vfs::socket::AddressBytes;

/// `sizeof(sun_path)` (unix(7)).
pub const PATH_LENGTH: usize = 108;
/// Bytes of `sun_family`.
const FAMILY_LENGTH: usize = 2;
/// `AF_UNIX`.
pub const FAMILY: u16 = 1;

/// A socket's name as programs give it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Name {
    /// A path; kept without its terminating zero.
    Path(Vec<u8>),
    /// The bytes after the leading zero byte.
    Abstract(Vec<u8>),
}

/// The content of an address structure.
pub enum Address {
    /// Only a family: an unnamed socket, or a request for an automatic name in bind(2).
    Unnamed,
    /// A name.
    Named(Name),
}

impl Address {
    /// Reads a `sockaddr_un`. EINVAL for a wrong length, EAFNOSUPPORT for another family.
    pub fn parse(bytes: &[u8]) -> Result<Self> {
        if bytes.len() < FAMILY_LENGTH || bytes.len() > FAMILY_LENGTH + PATH_LENGTH {
            return Err(Errno::EINVAL);
        }
        let (family, path) = bytes.split_at(FAMILY_LENGTH);
        if family != FAMILY.to_ne_bytes() {
            return Err(Errno::EINVAL);
        }
        match path.split_first() {
            None => Ok(Address::Unnamed),
            Some((0, name)) => Ok(Address::Named(Name::Abstract(name.to_vec()))),
            Some(_) => {
                let length = path.iter().position(|&byte| byte == 0).unwrap_or(path.len());
                Ok(Address::Named(Name::Path(path[..length].to_vec())))
            }
        }
    }
}

/// Encodes the `sockaddr_un` of a name (or of none) for getsockname(2): a path with its zero byte.
pub fn to_bytes(name: Option<&Name>) -> AddressBytes {
    let mut bytes = AddressBytes::new();
    let [low, high] = FAMILY.to_ne_bytes();
    bytes.extend([low, high]);
    match name {
        None => {}
        Some(Name::Path(path)) => bytes.extend(path.iter().copied().chain([0])),
        Some(Name::Abstract(name)) => bytes.extend([0].into_iter().chain(name.iter().copied())),
    }
    bytes
}
