//! The interface of a pod's network namespace: the shim finds out its properties, and the guest
//! gives them to its own.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use hayate_records::{Records, number, read, text, unknown};

/// An address, and how many bits of it are its network's.
pub type Prefix = (IpAddr, u8);

/// The properties of the pod's interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Interface {
    /// Its Ethernet address.
    pub hardware: [u8; 6],
    /// The longest packet.
    pub mtu: u32,
    /// Its addresses.
    pub addresses: Vec<Prefix>,
    /// Its routes: first those to neighbours, then those by routers among these.
    pub routes: Vec<Route>,
}

/// A route through the interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// Where it leads.
    pub to: Prefix,
    /// The router. `None`: those that it leads to are neighbours.
    pub by: Option<IpAddr>,
}

impl Interface {
    /// Returns them as bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Records::default();
        let hardware = self.hardware.map(|byte| format!("{byte:02x}")).join(":");
        out.put("hardware", hardware);
        out.show("mtu", self.mtu);
        for (address, length) in &self.addresses {
            out.put("address", format!("{address}/{length}"));
        }
        for Route { to: (address, length), by } in &self.routes {
            out.put("route", format!("{address}/{length}"));
            if let Some(by) = by {
                out.show("router", by);
            }
        }
        out.finish()
    }

    /// Reads them.
    ///
    /// # Errors
    /// The wrong record.
    pub fn decode(bytes: &[u8]) -> Result<Interface, String> {
        let mut interface = Interface::default();
        for record in read(bytes) {
            match record? {
                (b"hardware", value) => interface.hardware = hardware(text(value)?.as_str())?,
                (b"mtu", value) => interface.mtu = number(value)?,
                (b"address", value) => interface.addresses.push(prefix(&text(value)?)?),
                (b"route", value) => {
                    interface.routes.push(Route { to: prefix(&text(value)?)?, by: None });
                }
                (b"router", value) => {
                    let route = interface.routes.last_mut().ok_or("a router of no route")?;
                    route.by = Some(number(value)?);
                }
                (key, _) => return Err(unknown(key)),
            }
        }
        Ok(interface)
    }
}

/// Reads an Ethernet address, `02:00:00:00:00:01`.
///
/// # Errors
/// The text is none.
pub fn hardware(text: &str) -> Result<[u8; 6], String> {
    let bytes = text.split(':').map(|byte| u8::from_str_radix(byte, 16));
    let bytes = bytes.collect::<Result<Vec<u8>, _>>().ok();
    bytes
        .and_then(|bytes| bytes.try_into().ok())
        .ok_or_else(|| format!("no Ethernet address: {text:?}"))
}

/// Reads `10.0.0.0/8`, or an address alone.
///
/// # Errors
/// The text is none.
pub fn prefix(text: &str) -> Result<Prefix, String> {
    let wrong = || format!("no address with a prefix: {text:?}");
    let (address, length) = text.split_once('/').unwrap_or((text, ""));
    let address: IpAddr = address.parse().map_err(|_| wrong())?;
    let most = if address.is_ipv4() { 32 } else { 128 };
    let length = if length.is_empty() { Ok(most) } else { length.parse() };
    let length = length.ok().filter(|length| *length <= most).ok_or_else(wrong)?;
    Ok((address, length))
}

/// The route to everywhere, of the kind of `address`.
pub fn everywhere(address: IpAddr) -> Prefix {
    match address {
        IpAddr::V4(_) => (Ipv4Addr::UNSPECIFIED.into(), 0),
        IpAddr::V6(_) => (Ipv6Addr::UNSPECIFIED.into(), 0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn prefixes() {
        assert_eq!(prefix("10.1.0.0/16"), Ok(("10.1.0.0".parse().unwrap(), 16)));
        assert_eq!(prefix("169.254.1.1"), Ok(("169.254.1.1".parse().unwrap(), 32)));
        assert_eq!(prefix("fd00::/64"), Ok(("fd00::".parse().unwrap(), 64)));
        for wrong in ["", "x", "10.0.0.1/33", "10.0.0.1/-1", "::/129", "default"] {
            assert!(prefix(wrong).is_err(), "{wrong}");
        }
        assert_eq!(everywhere("::1".parse().unwrap()), prefix("::/0").unwrap());
    }

    #[test]
    fn ethernet_addresses() {
        assert_eq!(hardware("02:00:00:0a:ff:01"), Ok([2, 0, 0, 10, 255, 1]));
        for wrong in ["", "02:00:00:0a:ff", "02:00:00:0a:ff:01:02", "02:00:00:0a:ff:100", "x"] {
            assert!(hardware(wrong).is_err(), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn an_interface_is_read_as_it_was_written(
            hardware in any::<[u8; 6]>(),
            mtu in any::<u32>(),
            addresses in prop::collection::vec((any::<IpAddr>(), 0_u8..33), 0..4),
            by in any::<Option<IpAddr>>(),
        ) {
            let routes = addresses.iter().map(|&to| Route { to, by }).collect();
            let interface = Interface { hardware, mtu, addresses, routes };
            prop_assert_eq!(Interface::decode(&interface.encode()), Ok(interface));
        }

        #[test]
        fn other_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..99)) {
            let _ = Interface::decode(&bytes);
        }
    }
}
