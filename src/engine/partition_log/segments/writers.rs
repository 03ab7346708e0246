//! The writers of a partition, and what the next one will keep of a log that the last one left.
//!
//! Opening for writing ends a partition at a hole that a power loss left: the last writer did not
//! stop cleanly, the hole is above the recovery point, and a sector is missing in it. Any other
//! hole that whole batches follow is damage, and the partition continues after it. Readers of a log
//! that nobody writes end it at the same place.

use super::names::{CHECKPOINT_LEN_MAX, CLEAN, LOCK, RECOVERY_POINT, each_start, partition_of};
use super::sectors::lacks_sector;
use super::segment::Segment;
use crate::disk::{Disk, Holder, read_small};
use crate::error::Result;
use std::io::ErrorKind;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// The processes that may write a partition.
#[derive(Debug)]
pub struct Writers {
    /// The log directory.
    root: PathBuf,
    /// The file whose byte 0 a writer locks.
    lock: PathBuf,
    topic: String,
    queue: u32,
}

impl Writers {
    /// The writers of the partition in a folder.
    pub fn of(folder: &Path) -> Writers {
        let root = folder.parent().unwrap_or(Path::new("."));
        let name = folder.file_name().and_then(|name| name.to_str());
        let (topic, queue) = name.and_then(partition_of).unwrap_or_default();
        Writers {
            root: root.to_owned(),
            lock: root.join(LOCK),
            topic: topic.to_owned(),
            queue,
        }
    }

    /// Whether nobody writes the partition.
    ///
    /// # Errors
    ///
    /// Those of probing the lock.
    pub fn are_gone(&self, disk: &dyn Disk) -> Result<bool> {
        Ok(disk.probe(&self.lock)? == Holder::Nobody)
    }

    /// Whether a batch with the offset `first` was durable, so that no crash has cut it short.
    ///
    /// # Errors
    ///
    /// Those of reading.
    pub fn were_durable(&self, disk: &dyn Disk, first: u64) -> Result<bool> {
        let is_clean = disk.stat(&self.root.join(CLEAN))?.is_some();
        let point = self.recovery_point(disk)?;
        Ok(is_clean || point.is_some_and(|point| first < point))
    }

    /// Whether the next writer will keep the whole batches that follow a hole of the last segment,
    /// if nobody writes it. `first`: the offset of the batch that should begin at the hole.
    ///
    /// # Errors
    ///
    /// Those of reading.
    pub fn will_keep(
        &self,
        disk: &dyn Disk,
        segment: &Segment,
        hole: Range<u64>,
        first: u64,
    ) -> Result<bool> {
        if self.were_durable(disk, first)? || self.recovery_point(disk)?.is_none() {
            return Ok(true);
        }
        Ok(!lacks_sector(disk, segment, hole, first)?)
    }

    /// The offset below which all messages are durable; `None` if no table says so.
    fn recovery_point(&self, disk: &dyn Disk) -> Result<Option<u64>> {
        let path = self.root.join(RECOVERY_POINT);
        let bytes = match read_small(disk, &path, CHECKPOINT_LEN_MAX) {
            Err(error) if error.kind() == Some(ErrorKind::InvalidData) => None,
            read => read?,
        };
        let Some(bytes) = bytes else {
            return Ok(None);
        };
        let mut point = 0;
        let read = each_start(&bytes, &mut |topic, queue, offset| {
            if topic == self.topic && queue == self.queue {
                point = offset;
            }
        });
        Ok(read.is_ok().then_some(point))
    }
}
