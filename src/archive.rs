//! Archives: the log files to archive, and scans over bytes that were read from an archive.
//!
//! This module does not know whether an archive is a directory or an object store:
//! `forebay.archive` copies the files and reads ranges of them.

use crate::arrow::source::Source;
use crate::arrow::stream::{DamageList, Stream};
use crate::engine::fetched::Expected;
use crate::engine::{Check, Cursor, Damage, Filter, Rows};
use crate::error::Result;
use crate::scan::ScanSpec;
use std::path::Path;
use std::sync::Arc;

pub use crate::engine::archive::blocks::{Block, QueueRange};
pub use crate::engine::archive::{
    BlockTable, SealedFile, SealedSegment, SegmentSurvey, Survey, Wanted,
};
use crate::engine::commit_log::read::bytes::ByteCursor;
use crate::engine::partition_log::bytes::BatchCursor;

/// Rows per chunk in a search for offsets.
const CHUNK_ROWS: usize = 1024;

/// Adjacent blocks of a log file that were read from an archive.
#[derive(Clone, Copy, Debug)]
pub struct Blocks<'a> {
    /// Their bytes, as far as they could be read.
    pub bytes: &'a [u8],
    /// Position of the first byte in the log.
    pub position: u64,
    /// Path or URI that they were read from.
    pub path: &'a Path,
    /// Length and CRC-32 of each.
    pub expected: &'a [Expected],
    /// Topic and queue, if they are of a segment of a partition log.
    pub queue: Option<(&'a str, u32)>,
}

impl Blocks<'_> {
    /// The wanted messages in position order, in the columns and batches of `spec`. Topics, queues
    /// and bounds of `spec` are ignored. The stream holds a copy of the bytes. Damaged messages are
    /// skipped and reported in `damage`.
    ///
    /// # Errors
    ///
    /// [`crate::Error::InvalidOption`] for an invalid `spec`; [`crate::Error::Io`].
    pub fn scan(&self, spec: &ScanSpec, wanted: Wanted, damage: &Damages) -> Result<Stream> {
        let shape = spec.shape()?;
        let cursor = self.cursor(wanted, spec.filter(), damage)?;
        let source = Source::queues(vec![cursor]);
        Ok(Stream::new(source, shape, Arc::clone(&damage.0)))
    }

    /// The smallest wanted offset of a message that was stored at or after `time_ms`.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Io`].
    pub fn offset_at(&self, wanted: Wanted, time_ms: i64) -> Result<Option<u64>> {
        let filter = (Filter::default(), Check::Structure);
        let mut cursor = self.cursor(wanted, filter, &Damages::default())?;
        let mut rows = Rows::default();
        let mut least = None;
        while cursor.refill(CHUNK_ROWS, &mut rows)? {
            let records = rows.rows.iter().filter_map(|row| rows.record(row));
            let later = records.filter(|record| record.store_timestamp() >= time_ms);
            let offset = later
                .map(|record| record.queue_offset().cast_unsigned())
                .min();
            least = match (least, offset) {
                (Some(least), Some(offset)) => Some(u64::min(least, offset)),
                (least, offset) => least.or(offset),
            };
        }
        Ok(least)
    }

    fn cursor(
        &self,
        wanted: Wanted,
        how: (Filter, Check),
        damage: &Damages,
    ) -> Result<Box<dyn Cursor>> {
        let place = (self.position, self.path);
        let (bytes, expected) = (self.bytes, self.expected);
        let Some((topic, queue)) = self.queue else {
            let cursor = ByteCursor::new(bytes, place, expected, wanted, how, &damage.0)?;
            return Ok(Box::new(cursor));
        };
        let offsets = wanted.get(topic.as_bytes()).and_then(|it| it.get(&queue));
        let of = (topic, queue, offsets.cloned().unwrap_or_default());
        let cursor = BatchCursor::new(bytes, place, expected, of, how, &damage.0);
        Ok(Box::new(cursor))
    }
}

/// Collects the damage found by scans of blocks.
#[derive(Clone, Debug, Default)]
pub struct Damages(DamageList);

impl Damages {
    /// The damage so far.
    pub fn all(&self) -> Vec<Damage> {
        self.0.lock().clone()
    }
}
