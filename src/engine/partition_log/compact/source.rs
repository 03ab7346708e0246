//! The batches of complete segments, as compaction reads them.
//!
//! A reader skips damage and continues. Compaction replaces what it has read, so it stops at the
//! first bytes that are not a whole batch: replacing them would lose what can still be recovered.

use crate::disk::Disk;
use crate::engine::partition_log::segments::emptied::had_messages;
use crate::engine::partition_log::segments::reader::Reader;
use crate::engine::partition_log::segments::room::is_room;
use crate::engine::partition_log::segments::segment::Segment;
use crate::engine::partition_log::segments::walk::{FoundBatch, Step, Walk};
use crate::error::{Error, Result};
use crate::record::Flaw;
use crate::record::kafka::{Header, Opened};
use std::path::Path;
use std::sync::Arc;

/// Walks the batches of a segment.
pub struct Source {
    walk: Walk,
    /// All offsets are below.
    limit: u64,
}

impl Source {
    /// The batches of a segment that ends before the offset `limit`, from the batch with the offset
    /// `from` on; a few earlier ones may come first.
    ///
    /// # Errors
    ///
    /// Errors of reading; [`Error::Corrupt`] if the file is shorter than the segment, or was
    /// emptied.
    pub fn open(disk: &dyn Disk, segment: &Arc<Segment>, limit: u64, from: u64) -> Result<Source> {
        let mut reader = Reader::open(disk, segment)?;
        if reader.len < segment.len {
            let reason = format!(
                "the file ends here, but the segment has {} bytes",
                segment.len
            );
            return Err(Error::corrupt(&segment.path, reader.len, reason));
        }
        if segment.len == 0 && had_messages(disk, segment)? {
            return Err(Error::corrupt(&segment.path, 0, "the file has no data"));
        }
        let begin = match from > segment.base {
            true => reader.seek(disk, from)?,
            false => 0,
        };
        let walk = Walk::new(reader, begin);
        Ok(Source { walk, limit })
    }

    /// The next batch by its header; `None` at the end.
    ///
    /// # Errors
    ///
    /// Errors of reading; [`Error::Corrupt`] for bytes that are not a batch.
    pub fn next(&mut self, disk: &dyn Disk) -> Result<Option<FoundBatch>> {
        match self.walk.next(disk)? {
            Step::Batch(found) if found.header.last_offset() >= self.limit => {
                Err(self.flawed(&found, Flaw::Field("offset")))
            }
            Step::Batch(found) => Ok(Some(found)),
            // The segment may have been completed by a process that died before it cut it.
            Step::Damage(bytes, flaw) if is_room(&self.walk, &bytes, &flaw, self.limit) => Ok(None),
            Step::Damage(bytes, flaw) => {
                Err(Error::corrupt(self.path(), bytes.start, flaw.to_string()))
            }
            Step::End => Ok(None),
        }
    }

    /// Whether the batch that was returned last is the last one.
    pub fn is_at_end(&self) -> bool {
        self.walk.position >= self.walk.reader.len
    }

    /// The bytes of a batch.
    pub fn bytes(&self, found: &FoundBatch) -> Result<Vec<u8>> {
        self.walk.batch(found)
    }

    /// Opens a batch, whose checksums are compared.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`] if it is not whole.
    pub fn open_batch(&self, found: &FoundBatch, bytes: Vec<u8>) -> Result<Opened> {
        Opened::open(bytes, true).map_err(|flaw| self.flawed(found, flaw))
    }

    /// The error for a batch with a flaw.
    pub fn flawed(&self, found: &FoundBatch, flaw: Flaw) -> Error {
        Error::corrupt(self.path(), found.position, flaw.to_string())
    }

    /// The segment's log file.
    pub fn path(&self) -> &Path {
        &self.walk.reader.segment.path
    }
}

/// The complete segments of a partition, up to an offset.
#[derive(Clone, Debug)]
pub struct Complete {
    /// In order.
    pub segments: Vec<Arc<Segment>>,
    /// The base of the segment that follows.
    pub end: u64,
}

impl Complete {
    /// Bytes of the segments that have offsets from `from` on.
    pub fn bytes_from(&self, from: u64) -> u64 {
        let segments = self.segments.iter().enumerate();
        let from = segments.filter(|(number, _)| self.limit(*number) > from);
        from.map(|(_, segment)| segment.len).sum()
    }

    /// The offset before which a segment ends.
    pub fn limit(&self, number: usize) -> u64 {
        let next = self.segments.get(number + 1);
        next.map_or(self.end, |segment| segment.base)
    }

    /// The number of the segment that has an offset.
    pub fn number_of(&self, offset: u64) -> usize {
        let after = self.segments.partition_point(|it| it.base <= offset);
        after.saturating_sub(1)
    }

    /// Drops the segments from the one with this base on.
    pub fn cut(&mut self, base: u64) {
        self.segments.retain(|segment| segment.base < base);
        self.end = self.end.min(base);
    }

    /// Opens a segment; `None` after the last.
    pub fn source(&self, disk: &dyn Disk, number: usize, from: u64) -> Result<Option<Source>> {
        match self.segments.get(number) {
            None => Ok(None),
            Some(segment) => Source::open(disk, segment, self.limit(number), from).map(Some),
        }
    }
}

/// Whether a batch has the message data of a transaction.
pub fn is_transactional_data(header: &Header) -> bool {
    header.is_transactional() && !header.is_control()
}
