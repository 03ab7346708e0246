//! Arrow's 32-bit offsets.

/// A length as one of Arrow's offsets.
#[inline]
pub(super) fn offset(len: usize) -> i32 {
    match i32::try_from(len) {
        Ok(offset) => offset,
        Err(_) => unreachable!("the stream cuts a batch before its offsets leave 31 bits"),
    }
}
