//! Writes what recovery keeps of a segment again, makes it durable, and cuts off the rest.

use super::checked::Checked;
use super::opening::Opening;
use crate::disk::Disk;
use crate::engine::partition_log::segments::reader::Reader;
use crate::engine::partition_log::segments::segment::Segment;
use crate::error::{Error, Result};
use crate::num::index;
use crate::plant::{Bug, planted};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// How many bytes are written again at a time.
const CHUNK: u64 = 1 << 20;

impl Opening<'_> {
    /// Makes what is kept of a segment durable, and cuts off the rest. Returns its length.
    pub(super) fn keep(&self, segment: &Segment, found: &Checked) -> Result<u64> {
        let disk = &**self.disk;
        let (path, len) = (&segment.path, found.len);
        // Retention uses this time where messages have none.
        let modified = match len == segment.len && found.from < len {
            true => disk.modified_ms(path)?,
            false => None,
        };
        rewrite(disk, path, found.from..len)?;
        if len != segment.len && !planted(Bug::KeepSegmentTail) {
            disk.set_len(path, len)?;
        }
        if let Some(modified) = modified {
            disk.set_modified_ms(path, modified)?;
        }
        disk.sync_file(path)?;
        if !planted(Bug::TrustSegmentIndex) {
            found.indexes.save(disk, path)?;
        }
        if let Some(folder) = path.parent() {
            disk.sync_directory(folder)?;
        }
        Ok(len)
    }

    /// Bytes from a position of a segment to the end of its last byte that is not zero.
    pub(super) fn data_after(&self, segment: &Segment, position: u64) -> Result<u64> {
        let reader = Reader::open(&**self.disk, &Arc::new(segment.clone()))?;
        Ok(reader.data_end(&**self.disk, position)? - position)
    }
}

/// Writes bytes of a file again, so that the next sync stores them. Ranges without disk blocks stay
/// so.
pub(super) fn rewrite(disk: &dyn Disk, path: &Path, bytes: Range<u64>) -> Result<()> {
    let mut buffer = vec![0; index(CHUNK.min(bytes.end.saturating_sub(bytes.start)))];
    let (mut at, mut data_end) = (bytes.start, bytes.start);
    while at < bytes.end {
        if at >= data_end {
            let data = disk.next_data(path, at)?;
            let Some(data) = data.filter(|data| data.start < bytes.end) else {
                return Ok(());
            };
            at = data.start.max(at);
            data_end = data.end.clamp(at + 1, bytes.end);
        }
        let len = index(CHUNK.min(data_end - at));
        let to = buffer.get_mut(..len).unwrap_or_default();
        let have = disk.read_at(path, at, to)?;
        if have == 0 {
            return Err(Error::corrupt(path, at, "the file ends here"));
        }
        disk.write_at(path, at, to.get(..have).unwrap_or_default())?;
        at += have as u64;
    }
    Ok(())
}
