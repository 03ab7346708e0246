//! Producer snapshots, which a broker writes for the base of each new segment.

use super::names::beside;
use super::segment::Segment;
use crate::disk::{Disk, read_small};
use crate::error::Result;
use crate::record::kafka::varint::Reader as Fields;

/// The transactions that are open at the base of a segment: producer and first offset. `None` if
/// the segment has no snapshot, or a damaged one.
pub fn snapshot(disk: &dyn Disk, segment: &Segment) -> Result<Option<Vec<(i64, u64)>>> {
    /// Longest snapshot that is read: a million producers.
    const LEN_MAX: u64 = 46 << 20;
    /// First byte that the checksum covers.
    const CRC_FROM: usize = 6;
    let path = beside(&segment.path, ".snapshot");
    let bytes = match read_small(disk, &path, LEN_MAX) {
        Err(error) if error.kind() == Some(std::io::ErrorKind::InvalidData) => return Ok(None),
        read => read?.unwrap_or_default(),
    };
    let covered = crc32c::crc32c(bytes.get(CRC_FROM..).unwrap_or_default());
    let mut fields = Fields::new(&bytes);
    if fields.i16() != Some(1) || fields.u32() != Some(covered) {
        return Ok(None);
    }
    let count = fields.i32().unwrap_or_default();
    let mut open = Vec::new();
    for _ in 0..count {
        let Some(mut entry) = fields.take(46).map(Fields::new) else {
            return Ok(None);
        };
        let producer = entry.i64();
        let first = entry.take(30).and_then(|_| entry.i64());
        if let (Some(producer), Some(Ok(first))) = (producer, first.map(u64::try_from)) {
            open.push((producer, first));
        }
    }
    Ok(Some(open))
}
