//! What the records of a store share: the store's address, and limits.

use crate::num::low_u8;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// Address of a host as in a record: 4 or 16 bytes, then the port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostBytes {
    bytes: [u8; 20],
    len: u8,
}

impl HostBytes {
    /// The bytes of `address`.
    pub fn new(address: SocketAddr) -> HostBytes {
        let mut bytes = [0; 20];
        let len = match address.ip() {
            IpAddr::V4(ip) => {
                bytes[..4].copy_from_slice(&ip.octets());
                4
            }
            IpAddr::V6(ip) => {
                bytes[..16].copy_from_slice(&ip.octets());
                16
            }
        };
        if let Some(port) = bytes.get_mut(len..len + 4) {
            port.copy_from_slice(&u32::from(address.port()).to_be_bytes());
        }
        HostBytes {
            bytes,
            len: low_u8(len) + 4,
        }
    }

    /// A host as stored in a record: address, then port. `None` if the length is not 8 or 20.
    pub fn from_bytes(stored: &[u8]) -> Option<HostBytes> {
        if !matches!(stored.len(), 8 | 20) {
            return None;
        }
        let mut bytes = [0; 20];
        bytes.get_mut(..stored.len())?.copy_from_slice(stored);
        Some(HostBytes {
            bytes,
            len: low_u8(stored.len()),
        })
    }

    /// Address, then port: 8 or 20 bytes.
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.len)).unwrap_or_default()
    }

    /// Whether the address is an IPv6 one.
    pub fn is_v6(&self) -> bool {
        self.len > 8
    }
}

/// What all records of a store share.
#[derive(Clone, Copy, Debug)]
pub struct RecordStyle {
    /// Written as born and store host.
    pub host: HostBytes,
    /// Whether records carry the whole-record checksum.
    pub checksum: bool,
    /// Maximum length of a body in bytes.
    pub max_message_size: usize,
}

impl RecordStyle {
    /// The style of staged records: with a checksum, without a host.
    pub fn of_stage(value_len_max: usize) -> RecordStyle {
        RecordStyle {
            host: HostBytes::new(SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0))),
            checksum: true,
            max_message_size: value_len_max,
        }
    }
}
