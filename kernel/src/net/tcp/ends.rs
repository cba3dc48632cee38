//! The two ends of a connection, which name it.

use core::hash::{Hash, Hasher};

use hayate_ip::SocketAddress;

/// The name of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ends {
    /// The key of the network namespace that it is in.
    pub network: u64,
    /// This machine's end.
    pub local: SocketAddress,
    /// The other one.
    pub remote: SocketAddress,
}

impl Hash for Ends {
    #[inline]
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        let (local, remote) = (self.local.address.bits(), self.remote.address.bits());
        hasher.write_u64(remote as u64);
        let ports = u64::from(self.local.port) << 16 | u64::from(self.remote.port);
        hasher.write_u64(local as u64 ^ ports << 32);
        if !self.local.address.is_v4() {
            hasher.write_u64((remote >> 64) as u64);
            hasher.write_u64((local >> 64) as u64);
            // The ports again: above they are mixed with bits of the address.
            hasher.write_u64(ports);
        }
        if self.network != 0 {
            hasher.write_u64(self.network);
        }
    }
}

impl Ends {
    /// Returns the bytes that a connection's secret numbers are made of: first the addresses.
    pub fn tuple(&self) -> [u8; 36] {
        let mut bytes = [0; 36];
        bytes[..16].copy_from_slice(&self.local.address.octets());
        bytes[16..32].copy_from_slice(&self.remote.address.octets());
        bytes[32..34].copy_from_slice(&self.local.port.to_be_bytes());
        bytes[34..].copy_from_slice(&self.remote.port.to_be_bytes());
        bytes
    }
}
