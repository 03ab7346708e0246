//! Producer snapshots: what a broker knows of the producers of a partition at an offset. It writes
//! one for the base of each new segment, and one for the end when it stops.
//!
//! | byte | field |
//! |---:|---|
//! | 0 | `i16` version, 1 |
//! | 2 | `u32` CRC-32C from byte 6 |
//! | 6 | `i32` number of producers, in any order; 46 bytes for each: |
//! | 0 | `i64` id, `i16` epoch |
//! | 10 | `i32` sequence of its last record of data, `i64` its offset; both -1 if there is none |
//! | 22 | `i32` offset of that record from the first of its batch |
//! | 26 | `i64` time of its last batch |
//! | 34 | `i32` epoch of the coordinator that wrote its last marker; -1 |
//! | 38 | `i64` first offset of its open transaction; -1 |

use super::names::{base_of, beside};
use super::segment::Segment;
use crate::disk::{Disk, Entry, Kind, read_small};
use crate::error::Result;
use crate::record::kafka::varint::Reader as Fields;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// How the name of a snapshot ends.
pub const SNAPSHOT: &str = ".snapshot";
/// Longest snapshot that is read: a million producers.
const LEN_MAX: u64 = 46 << 20;
/// First byte that the checksum covers.
const CRC_FROM: usize = 6;
const VERSION: i16 = 1;
const PRODUCER_LEN: usize = 46;

/// What is known of a producer besides its id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Producer {
    /// Its epoch.
    pub epoch: i16,
    /// The sequence of its last record of data in this epoch; -1 if there is none.
    pub sequence: i32,
    /// The offset of that record; -1 if there is none.
    pub offset: i64,
    /// How far that is from the first offset of the batch.
    pub delta: i32,
    /// The time of its last batch.
    pub time: i64,
    /// The epoch of the coordinator that wrote its last marker; -1 if there is none.
    pub coordinator: i32,
    /// The first offset of its open transaction; -1 if none is open.
    pub open: i64,
}

/// The producers of a partition, by id.
pub type Producers = BTreeMap<i64, Producer>;

/// The path of the snapshot at an offset, in the folder of a partition.
pub fn path_at(folder: &Path, offset: u64) -> PathBuf {
    folder.join(format!("{offset:020}{SNAPSHOT}"))
}

/// The offsets of the snapshots among the entries of a partition's folder, in order.
pub fn offsets(entries: &[Entry]) -> Vec<u64> {
    let files = entries.iter().filter(|entry| entry.kind == Kind::File);
    let names = files.filter_map(|entry| entry.name.as_deref());
    let mut found: Vec<u64> = names
        .filter_map(|name| base_of(name.strip_suffix(SNAPSHOT)?))
        .collect();
    found.sort_unstable();
    found
}

/// The newest snapshot at one of these offsets that is not damaged. The offsets are in order.
///
/// # Errors
///
/// Those of reading.
pub fn newest(disk: &dyn Disk, folder: &Path, offsets: &[u64]) -> Result<Option<(u64, Producers)>> {
    for offset in offsets.iter().rev() {
        if let Some(found) = read(disk, &path_at(folder, *offset))? {
            return Ok(Some((*offset, found)));
        }
    }
    Ok(None)
}

/// The transactions that are open at the base of a segment: producer and first offset. `None` if
/// the segment has no snapshot, or a damaged one.
///
/// # Errors
///
/// Those of reading.
pub fn snapshot(disk: &dyn Disk, segment: &Segment) -> Result<Option<Vec<(i64, u64)>>> {
    let found = read(disk, &beside(&segment.path, SNAPSHOT))?;
    let open = |(id, it): (i64, Producer)| Some((id, u64::try_from(it.open).ok()?));
    Ok(found.map(|all| all.into_iter().filter_map(open).collect()))
}

fn read(disk: &dyn Disk, path: &Path) -> Result<Option<Producers>> {
    let bytes = match read_small(disk, path, LEN_MAX) {
        Err(error) if error.kind() == Some(std::io::ErrorKind::InvalidData) => return Ok(None),
        read => read?.unwrap_or_default(),
    };
    let covered = crc32c::crc32c(bytes.get(CRC_FROM..).unwrap_or_default());
    let mut fields = Fields::new(&bytes);
    if fields.i16() != Some(VERSION) || fields.u32() != Some(covered) {
        return Ok(None);
    }
    let count = fields.i32().unwrap_or_default();
    let mut producers = Producers::new();
    for _ in 0..count {
        let Some((id, producer)) = producer(&mut fields) else {
            return Ok(None);
        };
        producers.insert(id, producer);
    }
    Ok(Some(producers))
}

fn producer(fields: &mut Fields<'_>) -> Option<(i64, Producer)> {
    let id = fields.i64()?;
    let producer = Producer {
        epoch: fields.i16()?,
        sequence: fields.i32()?,
        offset: fields.i64()?,
        delta: fields.i32()?,
        time: fields.i64()?,
        coordinator: fields.i32()?,
        open: fields.i64()?,
    };
    Some((id, producer))
}

/// The bytes of a snapshot.
pub fn bytes_of(producers: &Producers) -> Vec<u8> {
    let mut covered = Vec::with_capacity(4 + producers.len() * PRODUCER_LEN);
    let count = u32::try_from(producers.len()).unwrap_or(u32::MAX);
    covered.extend(count.to_be_bytes());
    for (id, it) in producers {
        covered.extend(id.to_be_bytes());
        covered.extend(it.epoch.to_be_bytes());
        covered.extend(it.sequence.to_be_bytes());
        covered.extend(it.offset.to_be_bytes());
        covered.extend(it.delta.to_be_bytes());
        covered.extend(it.time.to_be_bytes());
        covered.extend(it.coordinator.to_be_bytes());
        covered.extend(it.open.to_be_bytes());
    }
    let crc = crc32c::crc32c(&covered).to_be_bytes();
    [&VERSION.to_be_bytes()[..], &crc, &covered].concat()
}
