//! RocketMQ's message ids: a host and a position, in upper-case hex.

use crate::error::{Error, Result};

/// Maximum length of a message id: that of an IPv6 host.
pub const ID_LEN_MAX: usize = 56;

/// The message id of a record at `position` in the log of the store with these host bytes.
pub fn message_id(host: &[u8], position: u64) -> String {
    write_id(host, position, &mut [0; ID_LEN_MAX]).to_owned()
}

/// Writes a message id without allocating. Only the first 20 bytes of a host are used.
pub fn write_id<'a>(host: &[u8], position: u64, digits: &'a mut [u8; ID_LEN_MAX]) -> &'a str {
    let digit = |nibble: u8| match nibble {
        0..=9 => b'0' + nibble,
        _ => b'A' + nibble - 10,
    };
    let position = position.to_be_bytes();
    let bytes = host.iter().take(20).chain(&position);
    let mut len = 0;
    for (pair, byte) in digits.chunks_exact_mut(2).zip(bytes) {
        pair.copy_from_slice(&[digit(byte >> 4), digit(byte & 15)]);
        len += 2;
    }
    str::from_utf8(digits.get(..len).unwrap_or_default()).unwrap_or_default()
}

/// The position in a message id of 32 (IPv4) or 56 (IPv6) hex digits.
///
/// # Errors
///
/// [`Error::InvalidOption`] if the text is not a message id.
pub fn position_of_id(id: &str) -> Result<u64> {
    let wrong = || Error::must("message id", format!("{id:?}"), "be 32 or 56 hex digits");
    if !matches!(id.len(), 32 | 56) || !id.bytes().all(|b| b.is_ascii_hexdigit()) {
        return Err(wrong());
    }
    let digits = id.get(id.len() - 16..).ok_or_else(wrong)?;
    u64::from_str_radix(digits, 16).map_err(|_| wrong())
}
