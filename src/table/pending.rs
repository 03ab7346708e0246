//! `forebay.pending`: the messages with a delivery time that waited at some moment.
//!
//! ```text
//! at  width  field
//! 0   8      "FBPENDIN"
//! 8   u32    version, 1
//! 12  u32    CRC-32 of everything after it
//! 16  u64    end: the table covers messages below it in the timer topic
//! 24  i64    all deliveries up to this time, in ms,
//! 32  u64    end at or below this position of the log
//! 40  u64    position of the message before `end`
//! 48  i64    its store time
//! 56  16 n   time (i64) and offset (u64) of each message that waits, in this order
//! ```
//!
//! Integers are big-endian. A message that was refused waits too: it is tried again. The file is a
//! cache: with it, the next opening need not read the timer topic from its oldest waiting message
//! on. It is written again after as many further messages as it would hold, so its cost per message
//! is small.

use super::timer::TimerTable;
use super::{Reason, TABLE_LEN_MAX, load};
use crate::disk::{Disk, replace};
use crate::error::Result;
use crate::num::{be_u32, be_u64};
use std::path::Path;

const MAGIC: &[u8; 8] = b"FBPENDIN";
const VERSION: u32 = 1;
const AT_CHECKSUM: usize = 12;
const AT_FIELDS: usize = 16;
const AT_ENTRIES: usize = 56;
const ENTRY_LEN: usize = 16;
const _: () = assert!(AT_ENTRIES == AT_FIELDS + 5 * 8);

/// Messages that wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingTable {
    /// What was delivered at that moment. Its `low` and `aside` are not used.
    pub delivered: TimerTable,
    /// Position and store time of the message before `delivered.end`, which identify the log.
    pub last: (u64, i64),
    /// Time and offset of each message that waited.
    pub waiting: Vec<(i64, u64)>,
}

impl PendingTable {
    /// Reads the table at `path`; `None` if it is missing or damaged.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Io`].
    pub fn load(disk: &dyn Disk, path: &Path) -> Result<Option<PendingTable>> {
        let unreadable = || Reason::Unreadable("not a table of waiting messages".to_owned());
        let parse = |bytes: &[u8]| PendingTable::parse(bytes).ok_or_else(unreadable);
        Ok(load(disk, path, TABLE_LEN_MAX, parse)?.sound())
    }

    fn parse(bytes: &[u8]) -> Option<PendingTable> {
        let (fields, entries) = bytes.split_at_checked(AT_ENTRIES)?;
        let is_known = fields.starts_with(MAGIC) && be_u32(fields, 8) == VERSION;
        let checksum = crc32fast::hash(bytes.get(AT_FIELDS..)?);
        if !is_known || be_u32(fields, AT_CHECKSUM) != checksum || entries.len() % ENTRY_LEN != 0 {
            return None;
        }
        let field = |number: usize| be_u64(fields, AT_FIELDS + 8 * number);
        let waiting = entries.chunks_exact(ENTRY_LEN);
        let waiting = waiting.map(|entry| (be_u64(entry, 0).cast_signed(), be_u64(entry, 8)));
        Some(PendingTable {
            delivered: TimerTable {
                low: 0,
                end: field(0),
                delivered_ms: field(1).cast_signed(),
                position: field(2),
                aside: Vec::new(),
            },
            last: (field(3), field(4).cast_signed()),
            waiting: waiting.collect(),
        })
    }

    /// Writes the table durably, unless it would be too long to be read again.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Io`]; the file then holds the previous table or this one.
    pub fn save(&self, disk: &dyn Disk, path: &Path) -> Result<()> {
        let len = AT_ENTRIES + ENTRY_LEN * self.waiting.len();
        if len as u64 > TABLE_LEN_MAX {
            return Ok(());
        }
        let fields = [
            self.delivered.end,
            self.delivered.delivered_ms.cast_unsigned(),
            self.delivered.position,
            self.last.0,
            self.last.1.cast_unsigned(),
        ];
        let mut body = Vec::with_capacity(len - AT_FIELDS);
        fields
            .iter()
            .for_each(|field| body.extend(field.to_be_bytes()));
        for (at, offset) in &self.waiting {
            body.extend(at.to_be_bytes());
            body.extend(offset.to_be_bytes());
        }
        let mut bytes = Vec::with_capacity(len);
        bytes.extend(MAGIC);
        bytes.extend(VERSION.to_be_bytes());
        bytes.extend(crc32fast::hash(&body).to_be_bytes());
        bytes.extend(body);
        replace(disk, path, &bytes)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::disk::RealDisk;
    use std::fs;

    #[test]
    fn a_table_is_read_as_it_was_written_and_a_damaged_one_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("forebay.pending");
        let read = || PendingTable::load(&RealDisk, &path).unwrap();
        assert_eq!(read(), None);
        let table = PendingTable {
            delivered: TimerTable {
                low: 0,
                end: 90,
                delivered_ms: -1,
                position: 51_200,
                aside: Vec::new(),
            },
            last: (51_000, i64::MAX),
            waiting: vec![(i64::MIN, 3), (7, u64::MAX)],
        };
        table.save(&RealDisk, &path).unwrap();
        assert_eq!(read(), Some(table));
        let bytes = fs::read(&path).unwrap();
        for len in 0..bytes.len() {
            fs::write(&path, &bytes[..len]).unwrap();
            assert_eq!(read(), None, "{len} bytes");
        }
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            fs::write(&path, damaged).unwrap();
            assert_eq!(read(), None, "byte {at}");
        }
    }
}
