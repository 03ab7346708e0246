//! Where bytes of an archive were read from, and whether they are those that were archived.

use super::Check;
use crate::damage::{Damage, DamageKind};
use crate::sync::Mutex;
use std::path::PathBuf;
use std::sync::Arc;

/// Expected length and CRC-32 of a block.
pub type Expected = (u32, u32);

/// The place of bytes that were read from an archive, and where their damage is reported.
pub struct Fetched {
    /// The file that they were read from.
    pub path: PathBuf,
    /// Position of the first byte in the log.
    pub position: u64,
    /// What was reported.
    pub damage: Arc<Mutex<Vec<Damage>>>,
}

impl Fetched {
    /// Compares the bytes with what they should be. Checksums are compared only if `check` asks
    /// for them. `run` returns the bytes at a place, fewer where they end.
    pub fn compare<'a>(
        &self,
        blocks: &[Expected],
        check: Check,
        run: impl Fn(usize, usize) -> &'a [u8],
    ) {
        let mut at = 0;
        for (length, checksum) in blocks {
            let length = *length as usize;
            let bytes = run(at, length);
            if bytes.len() < length {
                let missing = length - bytes.len();
                self.tell(at + bytes.len(), missing, "the log file ends here".into());
            } else if check == Check::Full && crc32fast::hash(bytes) != *checksum {
                let reason = "the bytes differ from those that were archived";
                self.tell(at, length, reason.into());
            }
            at += length;
        }
    }

    /// Reports bytes as damaged.
    pub fn tell(&self, at: usize, length: usize, reason: String) {
        let position = self.position + at as u64;
        let bytes = position..position + length as u64;
        let damage = Damage::new(DamageKind::Log, &self.path, bytes, reason);
        self.damage.lock().push(damage);
    }
}
