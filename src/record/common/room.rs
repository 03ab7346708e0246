//! Memory in which one batch after another is encoded.
//!
//! It may be longer than the current batch, and holds bytes of earlier batches after its end:
//! clearing it for each batch would take long.

/// The `len` bytes of `memory` from `start` on, with any contents. The memory grows as far as
/// needed.
#[inline]
pub fn room(memory: &mut Vec<u8>, start: usize, len: usize) -> &mut [u8] {
    let end = start + len;
    if memory.len() < end {
        grow(memory, end);
    }
    memory.get_mut(start..end).unwrap_or_default()
}

/// Makes room for `len` bytes.
#[cold]
fn grow(memory: &mut Vec<u8>, len: usize) {
    if memory.is_empty() {
        // The system supplies zeroed memory, so nothing has to be written.
        *memory = vec![0; len];
    } else {
        memory.resize(len.max(2 * memory.len()), 0);
    }
}
