//! The last segment of a partition, to which messages are appended.
//!
//! Its file is created at the full length of a segment, gets disk blocks in steps ahead of use, and
//! is written through a map. After the end it has zeros, which are not a batch. The file is cut to
//! its contents when the segment is completed.

use super::indexes::{Indexes, OFFSETS, TIMES};
use super::rules::Rules;
use crate::disk::Disk;
use crate::engine::partition_log::segments::names::beside;
use crate::engine::partition_log::segments::segment::Segment;
use crate::engine::partition_log::segments::walk::{Here, Reader};
use crate::error::Result;
use crate::mapped::{Extent, MappedFile};
use crate::region::{Access, Region};
use std::path::PathBuf;
use std::sync::Arc;

/// Blocks are reserved this far ahead at first, later as far ahead as the segment is long.
const STEP_MIN: u64 = 64 << 10;
/// At most this far ahead.
const STEP_MAX: u64 = 16 << 20;

/// A segment to which messages are appended.
#[derive(Debug)]
pub struct Last {
    /// No offset in it is lower.
    pub base: u64,
    /// Bytes of its batches.
    pub len: u64,
    /// The largest time of its first batch.
    pub first_timestamp: Option<i64>,
    /// When it was created or opened, in ms.
    pub opened_ms: i64,
    /// Its indexes.
    pub indexes: Indexes,
    /// Its log file.
    pub file: Arc<MappedFile>,
    /// The map of the file, while it is used.
    pub region: Option<Arc<Region>>,
    /// A lower bound of the bytes that have blocks.
    pub room: u64,
}

impl Last {
    /// Creates a segment with blocks for the first `len` bytes. Nothing is durable on return. After
    /// an error it does not exist.
    pub fn create(
        disk: &Arc<dyn Disk>,
        path: PathBuf,
        (base, len): (u64, u64),
        rules: &Rules,
        now_ms: i64,
    ) -> Result<Last> {
        // An earlier attempt may have left them.
        for ending in [OFFSETS, TIMES, ".log"] {
            let stray = beside(&path, ending);
            if disk.stat(&stray)?.is_some() {
                disk.unlink(&stray)?;
            }
        }
        let reserve = (len + STEP_MIN).min(rules.segment_bytes);
        let file = MappedFile::begin(disk, path, 0, rules.segment_bytes, reserve)?;
        Ok(Last {
            base,
            len: 0,
            first_timestamp: None,
            opened_ms: now_ms,
            indexes: Indexes::new(base, rules),
            region: Some(file.region()?),
            room: file.reserved(),
            file: Arc::new(file),
        })
    }

    /// Opens a segment of `len` bytes that ends before the offset `next`. All of them are durable,
    /// unless processes share it: then their leader keeps its indexes, and they are empty here.
    pub fn open(
        disk: &Arc<dyn Disk>,
        path: PathBuf,
        (base, len, next): (u64, u64, u64),
        rules: &Rules,
        (now_ms, is_shared): (i64, bool),
    ) -> Result<Last> {
        let segment = Arc::new(Segment {
            base,
            path: path.clone(),
            len,
        });
        let mut reader = Reader::open(&**disk, &segment)?;
        let first_timestamp = match reader.here(0)? {
            Here::Batch(header) => Some(header.max_timestamp),
            _ => None,
        };
        let indexes = match is_shared {
            true => Indexes::new(base, rules),
            false => match Indexes::load(&**disk, &path, (base, len, next), rules)? {
                Some(indexes) => indexes,
                None => Indexes::rebuild(&**disk, reader, base, rules)?.0,
            },
        };
        disk.set_len(&path, rules.segment_bytes)?;
        let extent = Extent::Part(len);
        let length = rules.segment_bytes;
        let file = MappedFile::open(disk, path, 0, length, Access::ReadWrite, extent);
        Ok(Last {
            base,
            len,
            first_timestamp,
            opened_ms: now_ms,
            indexes,
            file: Arc::new(file),
            region: None,
            room: 0,
        })
    }

    /// Reserves blocks for the bytes below `end`, and for some that follow. Returns the map.
    pub fn reserve(&mut self, end: u64) -> Result<Arc<Region>> {
        if end > self.file.reserved() {
            let ahead = end.clamp(STEP_MIN, STEP_MAX);
            // Without room for blocks ahead, there may still be room for these.
            match self.file.reserve(end + ahead) {
                Err(error) if error.is_out_of_room() => self.file.reserve(end)?,
                reserved => reserved?,
            }
        }
        self.room = self.file.reserved();
        self.file.region()
    }

    /// Moves the end of a shared segment past what other processes have appended. Returns false if
    /// the segment must be opened again.
    pub fn catch_up(&mut self, len: u64) -> bool {
        if len == self.len {
            return true;
        }
        self.len = len;
        self.file.publish(len);
        self.first_timestamp.is_some()
    }

    /// Unmaps the file if it was not used since this was last called.
    pub fn unmap_unused(&mut self) {
        if self.region.take().is_none() {
            self.file.unmap_unused();
        }
    }
}
