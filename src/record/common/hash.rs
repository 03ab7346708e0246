//! The hash of keys and tags.

/// Java's `String.hashCode` of text given as UTF-8: over its UTF-16 units.
#[inline]
pub fn java_hash(text: &[u8]) -> i32 {
    java_hash_from(0, text)
}

/// [`java_hash`] going on from the hash of what stands before.
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
