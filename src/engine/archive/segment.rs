//! A survey of one segment of a queue, in a store with a log for each queue: the table that an
//! archive keeps beside its copy.
//!
//! The table has one topic and one queue. Positions count from the first byte of the copy, and the
//! runs state which offsets the copy stands for, gaps at its ends included: the first run begins
//! where the archive ended before, and the last one ends where the next copy begins.

use super::blocks::{BlockTable, Run};
use super::builder::BlockBuilder;
use crate::error::Result;
use crate::record::Flaw;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

/// A segment that will never be written again, and that is durable. Compaction may replace it, and
/// retention may delete it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SealedSegment {
    /// The topic.
    pub topic: Arc<str>,
    /// Number of the queue.
    pub queue: u32,
    /// No offset in the segment is lower.
    pub start: u64,
    /// All offsets in the segment are lower.
    pub end: u64,
    /// Path of its log file.
    pub path: PathBuf,
    /// Length of that file.
    pub length: u64,
}

/// What an archive keeps of a segment. If the table has no blocks, there is nothing to copy.
#[derive(Clone, Debug, Default)]
pub struct SegmentSurvey {
    /// The base offset of the copy.
    pub start: u64,
    /// Bytes at the start of the segment that are not copied, because the archive has their
    /// messages.
    pub skip: u64,
    /// The table of the blocks of the copy.
    pub table: BlockTable,
    /// The offset index of the copy.
    pub offset_index: Vec<u8>,
    /// Its time index.
    pub time_index: Vec<u8>,
}

/// A batch of a segment.
#[derive(Clone, Debug)]
pub struct SurveyedBatch {
    /// Its bytes in the copy.
    pub bytes: Range<u64>,
    /// Its offsets.
    pub offsets: Range<u64>,
    /// Number of messages.
    pub records: u32,
    /// Least and greatest time of them.
    pub times: (i64, i64),
}

/// Builds the table of a segment from its batches and holes, given in order of position.
pub struct SegmentSurveyor {
    built: BlockBuilder,
    run: Option<Run>,
}

impl SegmentSurveyor {
    /// Begins a survey at the first byte of the copy.
    pub fn new(topic: &str, queue: u32) -> SegmentSurveyor {
        SegmentSurveyor {
            built: BlockBuilder::new(BlockTable {
                topics: vec![topic.as_bytes().to_vec()],
                queues: vec![(0, queue)],
                ..BlockTable::default()
            }),
            run: None,
        }
    }

    /// Adds a batch.
    pub fn add(&mut self, batch: &SurveyedBatch) {
        let SurveyedBatch { bytes, offsets, .. } = batch;
        if self.built.is_full(bytes.start) {
            self.built.close(bytes.start, self.run.take());
        }
        let run = self.run.get_or_insert(Run {
            first: offsets.start,
            ..Run::default()
        });
        run.first = run.first.min(offsets.start);
        run.end = run.end.max(offsets.end);
        run.records = run.records.saturating_add(batch.records);
        run.bytes += bytes.end - bytes.start;
        self.built.block.records = run.records;
        if batch.records > 0 {
            self.built.add_times(batch.times);
        }
    }

    /// Puts bytes that are not a batch into separate blocks.
    pub fn skip(&mut self, hole: &Range<u64>, flaw: &Flaw) {
        self.built.skip(hole, flaw, self.run.take());
    }

    /// Ends the last block at the end of the copy, and computes the checksum of each. `offsets` are
    /// those that the copy stands for; `read` returns bytes of the copy.
    ///
    /// # Errors
    ///
    /// Those of `read`.
    pub fn finish(
        mut self,
        length: u64,
        offsets: &Range<u64>,
        read: impl Fn(u64, usize) -> Result<Vec<u8>>,
    ) -> Result<BlockTable> {
        // The last block must have a run, which states where the copy ends.
        let run = self.run.get_or_insert(Run {
            first: offsets.end.saturating_sub(1).max(offsets.start),
            ..Run::default()
        });
        run.end = run.end.max(offsets.end);
        if length == self.built.block.position {
            self.extend_last();
        }
        self.built.close(length, self.run.take());
        let mut table = self.built.table;
        table.length = length;
        if let Some(first) = table.runs.first_mut() {
            first.first = offsets.start.min(first.end.saturating_sub(1));
        }
        for block in &mut table.blocks {
            let bytes = read(block.position, block.length as usize)?;
            block.checksum = crc32fast::hash(&bytes);
        }
        Ok(table)
    }

    /// Adds the current run to the last block, which ends where the copy does.
    fn extend_last(&mut self) {
        let table = &mut self.built.table;
        if let (Some(run), Some(block)) = (self.run.take(), table.blocks.last_mut()) {
            match table.runs.get_mut(block.runs.clone()) {
                Some([last, ..]) => last.end = run.end,
                _ => {
                    table.runs.push(run);
                    block.runs = block.runs.start..table.runs.len();
                }
            }
        }
    }
}
