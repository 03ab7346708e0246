//! The two indexes of a segment, as its writer builds them.
//!
//! The entries are gathered in memory and written to the files in pieces. The files are caches: a
//! reader that finds too few entries walks further. A complete segment has all its entries.
//!
//! ```text
//!   for each batch: is it the latest so far? -> remember its time and last offset
//!                   more than index_interval_bytes since the last entry? -> an entry in each
//! ```

use super::rules::{OFFSET_ENTRY, Rules, TIME_ENTRY};
use crate::disk::{Disk, read_small};
use crate::engine::partition_log::segments::names::beside;
use crate::engine::partition_log::segments::reader::Reader;
use crate::engine::partition_log::segments::walk::{Step, Walk};
use crate::error::Result;
use crate::num::{be_u32, be_u64, index, low_u32};
use crate::record::kafka::HEAD_LEN;
use std::path::Path;

/// The ending of an offset index.
pub const OFFSETS: &str = ".index";
/// The ending of a time index.
pub const TIMES: &str = ".timeindex";
/// Longest index that is read.
const INDEX_LEN_MAX: u64 = 2 << 30;

/// Both indexes of a segment.
#[derive(Clone, Debug)]
pub struct Indexes {
    base: u64,
    interval: u64,
    offsets_max: u64,
    times_max: u64,
    /// The entries as in the files.
    offsets: Vec<u8>,
    times: Vec<u8>,
    /// Bytes since the last entry.
    since: u64,
    max_timestamp: i64,
    max_timestamp_offset: u64,
    /// How many bytes of the entries the files have.
    written: (usize, usize),
}

/// Bytes for an index file.
#[derive(Debug)]
pub struct Piece {
    /// Its ending.
    pub ending: &'static str,
    /// Where in the file they go.
    pub start: u64,
    /// The bytes.
    pub bytes: Vec<u8>,
}

impl Indexes {
    /// The indexes of an empty segment.
    pub fn new(base: u64, rules: &Rules) -> Indexes {
        Indexes {
            base,
            interval: rules.index_interval,
            offsets_max: rules.offsets_max,
            times_max: rules.times_max,
            offsets: Vec::new(),
            times: Vec::new(),
            since: 0,
            max_timestamp: -1,
            max_timestamp_offset: base,
            written: (0, 0),
        }
    }

    /// Builds the indexes of a segment from its batches, without the last entry of the time index.
    /// Also returns the offset after its last batch.
    ///
    /// # Errors
    ///
    /// Those of reading.
    pub fn rebuild(
        disk: &dyn Disk,
        reader: Reader,
        base: u64,
        rules: &Rules,
    ) -> Result<(Indexes, u64)> {
        let mut indexes = Indexes::new(base, rules);
        let mut walk = Walk::new(reader, 0);
        loop {
            match walk.next(disk)? {
                Step::Batch(found) => {
                    let header = &found.header;
                    let (last, time) = (header.last_offset(), header.max_timestamp);
                    indexes.add(found.position, header.len.into(), last, time);
                }
                Step::Damage(..) => {}
                Step::End => return Ok((indexes, walk.next_offset)),
            }
        }
    }

    /// Reads the indexes of a segment of `len` bytes that ends before the offset `next`; `None` if
    /// the files are missing or cannot belong to the segment.
    pub fn load(
        disk: &dyn Disk,
        log: &Path,
        (base, len, next): (u64, u64, u64),
        rules: &Rules,
    ) -> Result<Option<Indexes>> {
        let read = |ending| match read_small(disk, &beside(log, ending), INDEX_LEN_MAX) {
            Err(error) if error.kind() == Some(std::io::ErrorKind::InvalidData) => Ok(None),
            read => read,
        };
        let (Some(offsets), Some(times)) = (read(OFFSETS)?, read(TIMES)?) else {
            return Ok(None);
        };
        let mut made = Indexes::new(base, rules);
        if !are_offsets(&offsets, len, next.saturating_sub(base))
            || !are_times(&times, next.saturating_sub(base))
        {
            return Ok(None);
        }
        if let Some(last) = times.rchunks_exact(index(TIME_ENTRY)).next() {
            made.max_timestamp = be_u64(last, 0).cast_signed();
            made.max_timestamp_offset = base + u64::from(be_u32(last, 8));
        }
        made.written = (offsets.len(), times.len());
        (made.offsets, made.times) = (offsets, times);
        Ok(Some(made))
    }

    /// Whether there is no room for the entries of `batches` more batches.
    pub fn are_full(&self, batches: u64) -> bool {
        let (offsets, times) = (self.offsets.len() as u64, self.times.len() as u64);
        // One entry of the time index is kept for the end of the segment.
        offsets / OFFSET_ENTRY + batches > self.offsets_max
            || times / TIME_ENTRY + batches + 1 > self.times_max
    }

    /// As [`Indexes::are_full`], for a segment of `len` bytes whose entries are not known.
    pub fn may_be_full(rules: &Rules, len: u64, batches: u64) -> bool {
        let entries = len / rules.index_interval.max(HEAD_LEN as u64);
        entries + batches > rules.offsets_max || entries + batches + 1 > rules.times_max
    }

    /// Adds a batch of `len` bytes at `position`.
    pub fn add(&mut self, position: u64, len: u64, last_offset: u64, max_timestamp: i64) {
        if max_timestamp > self.max_timestamp {
            self.max_timestamp = max_timestamp;
            self.max_timestamp_offset = last_offset;
        }
        if self.since > self.interval {
            let room = self.offsets.len() as u64 / OFFSET_ENTRY < self.offsets_max;
            if room {
                let offset = low_u32(last_offset - self.base);
                self.offsets.extend_from_slice(&offset.to_be_bytes());
                let position = low_u32(position);
                self.offsets.extend_from_slice(&position.to_be_bytes());
            }
            if self.times.len() as u64 / TIME_ENTRY + 1 < self.times_max {
                self.add_time();
            }
            self.since = 0;
        }
        self.since = self.since.saturating_add(len);
    }

    /// Gives the next batch an entry, if there is room, so that readers find it after a damaged
    /// one.
    pub fn mark_next(&mut self) {
        self.since = self.interval.saturating_add(1);
    }

    fn add_time(&mut self) {
        let last = self.times.rchunks_exact(index(TIME_ENTRY)).next();
        let last = last.map_or(-1, |entry| be_u64(entry, 0).cast_signed());
        if self.max_timestamp > last {
            let offset = low_u32(self.max_timestamp_offset - self.base);
            self.times
                .extend_from_slice(&self.max_timestamp.to_be_bytes());
            self.times.extend_from_slice(&offset.to_be_bytes());
        }
    }

    /// Adds the entry that every time index ends with.
    pub fn close(&mut self) {
        self.add_time();
    }

    /// All entries of both indexes, as in the files of a complete segment: those of the offset
    /// index, and those of the time index.
    pub fn into_bytes(mut self) -> (Vec<u8>, Vec<u8>) {
        self.close();
        (self.offsets, self.times)
    }

    /// Returns the entries that the files lack, and counts them as written.
    pub fn take_unwritten(&mut self) -> [Piece; 2] {
        let (offsets, times) = self.written;
        self.written = (self.offsets.len(), self.times.len());
        let piece = |ending, start: usize, bytes: &[u8]| Piece {
            ending,
            start: start as u64,
            bytes: bytes.get(start..).unwrap_or_default().to_vec(),
        };
        [
            piece(OFFSETS, offsets, &self.offsets),
            piece(TIMES, times, &self.times),
        ]
    }

    /// Writes both files anew, and counts the entries as written.
    pub fn write_first(&mut self, disk: &dyn Disk, log: &Path) -> Result<()> {
        self.written = (self.offsets.len(), self.times.len());
        self.write(disk, log)
    }

    /// Adds the entries that the files lack, and counts them as written.
    pub fn write_more(&mut self, disk: &dyn Disk, log: &Path) -> Result<()> {
        let pieces = self.take_unwritten();
        for piece in pieces.iter().filter(|piece| !piece.bytes.is_empty()) {
            disk.write_at(&beside(log, piece.ending), piece.start, &piece.bytes)?;
        }
        Ok(())
    }

    /// Writes both files anew.
    pub fn write(&self, disk: &dyn Disk, log: &Path) -> Result<()> {
        for (ending, bytes) in [(OFFSETS, &self.offsets), (TIMES, &self.times)] {
            let path = beside(log, ending);
            disk.write_at(&path, 0, bytes)?;
            disk.set_len(&path, bytes.len() as u64)?;
        }
        Ok(())
    }

    /// [`Indexes::write`]. Both are durable on return, except for their names.
    pub fn save(&self, disk: &dyn Disk, log: &Path) -> Result<()> {
        self.write(disk, log)?;
        for ending in [OFFSETS, TIMES] {
            disk.sync_file(&beside(log, ending))?;
        }
        Ok(())
    }
}

/// Whether bytes are entries of an offset index: positions and offsets rise within the segment.
fn are_offsets(bytes: &[u8], len: u64, span: u64) -> bool {
    let mut before = (None, 0);
    let mut entries = bytes.chunks_exact(index(OFFSET_ENTRY));
    let rise = entries.all(|entry| {
        let (offset, position) = (u64::from(be_u32(entry, 0)), u64::from(be_u32(entry, 4)));
        let rises = before.0.is_none_or(|it| it < offset) && before.1 < position;
        before = (Some(offset), position);
        rises && position < len && offset < span
    });
    rise && bytes.len().is_multiple_of(index(OFFSET_ENTRY))
}

/// Whether bytes are entries of a time index: times rise, offsets do not fall.
fn are_times(bytes: &[u8], span: u64) -> bool {
    let mut before = (i64::MIN, 0);
    let mut entries = bytes.chunks_exact(index(TIME_ENTRY));
    let rise = entries.all(|entry| {
        let (time, offset) = (be_u64(entry, 0).cast_signed(), u64::from(be_u32(entry, 8)));
        let rises = before.0 < time && before.1 <= offset;
        before = (time, offset);
        rises && offset < span
    });
    rise && bytes.len().is_multiple_of(index(TIME_ENTRY))
}
