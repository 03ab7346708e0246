//! Finds the blocks of a log file that may hold a key.
//!
//! The file `keys/...` consists of entries of 8 bytes, `u32` hash and `u32` block, sorted and
//! without duplicates. The hash is the CRC-32 of `topic#key`, for each key of each record that
//! belongs to a queue. The table of blocks divides the entries into slots by the first bits of the
//! hash and keeps the length and checksum of each slot, so one ranged read finds a key.

use super::blocks::{BlockTable, KeySlot};
use crate::error::{Error, Result};
use crate::num::{be_u32, index, short};
use std::ops::Range;
use std::path::Path;

/// Bytes of an entry.
const ENTRY_LEN: usize = 8;
/// Maximum average number of entries per slot.
const SLOT_ENTRIES: usize = 1024;

/// Hash of a key of a topic.
pub fn key_hash(topic: &[u8], key: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    for part in [topic, b"#", key] {
        hasher.update(part);
    }
    hasher.finalize()
}

/// Encodes pairs of hash and block. Returns the entries as bytes, and their slots.
pub fn encode(mut pairs: Vec<(u32, u32)>) -> (Vec<u8>, Vec<KeySlot>) {
    pairs.sort_unstable();
    pairs.dedup();
    if pairs.is_empty() {
        return (Vec::new(), Vec::new());
    }
    let slots = pairs.len().div_ceil(SLOT_ENTRIES).next_power_of_two();
    let mut row = Vec::with_capacity(pairs.len() * ENTRY_LEN);
    for (hash, block) in &pairs {
        row.extend_from_slice(&hash.to_be_bytes());
        row.extend_from_slice(&block.to_be_bytes());
    }
    let mut rest = pairs.as_slice();
    let mut at = 0;
    let slot = |number: usize| {
        let entries = rest.partition_point(|(hash, _)| slot_of(*hash, slots) <= number);
        rest = rest.get(entries..).unwrap_or_default();
        let bytes = row.get(at..at + entries * ENTRY_LEN).unwrap_or_default();
        at += bytes.len();
        KeySlot {
            entries: short(entries),
            checksum: crc32fast::hash(bytes),
        }
    };
    let found = (0..slots).map(slot).collect();
    (row, found)
}

/// Number of the slot of a hash; `slots` is a power of two.
fn slot_of(hash: u32, slots: usize) -> usize {
    let bits = slots.trailing_zeros();
    index(u64::from(hash) >> (32 - bits))
}

impl BlockTable {
    /// The bytes of the key file that may hold a key; empty if it cannot be there.
    pub fn key_range(&self, topic: &[u8], key: &[u8]) -> Range<u64> {
        if self.slots.is_empty() {
            return 0..0;
        }
        let number = slot_of(key_hash(topic, key), self.slots.len());
        let before = self.slots.iter().take(number);
        let start = before.map(|slot| u64::from(slot.entries)).sum::<u64>();
        let entries = self.slots.get(number).map_or(0, |slot| slot.entries);
        start * ENTRY_LEN as u64..(start + u64::from(entries)) * ENTRY_LEN as u64
    }

    /// Numbers of the blocks that may hold a key. `bytes` are those of [`BlockTable::key_range`],
    /// read from `path`.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`] if the bytes are not those that were written.
    pub fn key_blocks(
        &self,
        topic: &[u8],
        key: &[u8],
        bytes: &[u8],
        path: &Path,
    ) -> Result<Vec<usize>> {
        let hash = key_hash(topic, key);
        if self.slots.is_empty() {
            return Ok(Vec::new());
        }
        let slot = self.slots.get(slot_of(hash, self.slots.len()));
        if slot.is_none_or(|slot| slot.checksum != crc32fast::hash(bytes)) {
            let at = self.key_range(topic, key).start;
            return Err(Error::corrupt(
                path,
                at,
                "the checksum of the keys is wrong",
            ));
        }
        let entries = bytes.chunks_exact(ENTRY_LEN);
        let same = entries.filter(|entry| be_u32(entry, 0) == hash);
        let blocks = same.map(|entry| be_u32(entry, 4) as usize);
        Ok(blocks.filter(|block| *block < self.blocks.len()).collect())
    }
}
