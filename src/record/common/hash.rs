//! The hash of keys and tags.

/// Java's `String.hashCode` of UTF-8 text, computed over its UTF-16 units.
#[inline]
pub fn java_hash(text: &[u8]) -> i32 {
    java_hash_from(0, text)
}

/// As [`java_hash`], continuing from the hash of the preceding text.
#[inline]
pub fn java_hash_from(hash: i32, text: &[u8]) -> i32 {
    if text.is_ascii() {
        return text
            .iter()
            .fold(hash, |h, b| h.wrapping_mul(31).wrapping_add(i32::from(*b)));
    }
    let text = String::from_utf8_lossy(text);
    text.encode_utf16().fold(hash, |h, unit| {
        h.wrapping_mul(31).wrapping_add(i32::from(unit))
    })
}
