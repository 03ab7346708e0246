//! Copies what a pass keeps of a group of segments to one segment.
//!
//! The copy's files have the suffix `.cleaned`, which every opening removes. On return they are
//! durable, except for their names.

use super::keep::{Fate, Keeper, Knowledge};
use super::producers::Producers;
use super::source::{Complete, Source};
use super::stop::Done;
use super::transactions::Transactions;
use crate::disk::{Disk, Kind, read_small};
use crate::engine::Compacted;
use crate::engine::partition_log::segments::names::{ENDINGS, beside, with_suffix};
use crate::engine::partition_log::segments::segment::Segment;
use crate::engine::partition_log::segments::walk::FoundBatch;
use crate::engine::partition_log::write::indexes::Indexes;
use crate::engine::partition_log::write::rules::Rules;
use crate::error::{At, Error, Op, Result};
use crate::num::be_u64;
use crate::plant::{Bug, planted};
use crate::record::kafka::{Header, Rebuilt};
use std::fs::File;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Bytes written at once.
const CHUNK: usize = 1 << 20;
/// Bytes of an entry of a transaction index, and of the longest such index that is read.
const ABORT_LEN: usize = 34;
const ABORTS_LEN_MAX: u64 = 64 << 20;
/// Longest log file.
const LOG_LEN_MAX: u64 = i32::MAX as u64;

/// What the copies of one pass share.
pub struct Copier<'a> {
    /// The disk.
    pub disk: &'a dyn Disk,
    /// The rules of the store.
    pub rules: &'a Rules,
    /// The segments.
    pub complete: &'a Complete,
    /// What decides.
    pub know: Knowledge<'a>,
    /// Last change of the last clean segment, less the time for which tombstones stay.
    pub old_tombstones_from: i64,
    /// The transactions.
    pub transactions: Transactions<'a>,
    /// The producers.
    pub producers: Producers<'a>,
    /// What was done.
    pub counts: Compacted,
    /// Called with the bytes that were read.
    pub pace: &'a mut dyn FnMut(u64) -> Done<()>,
}

/// The log file that is written.
pub struct Output {
    path: PathBuf,
    base: u64,
    kept: Option<File>,
    /// Bytes in the file.
    len: u64,
    /// Bytes that are not in it yet.
    bytes: Vec<u8>,
    indexes: Indexes,
}

impl Copier<'_> {
    /// Copies the segments with these numbers. Returns the copy, whose path has the suffix
    /// `.cleaned`.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`] for bytes that are not a batch, [`Error::Unsupported`] if the copy would
    /// be longer than a file may be; errors of reading and writing, and of [`Copier::pace`].
    pub fn copy(&mut self, group: Range<usize>) -> Done<Segment> {
        let segments = self
            .complete
            .segments
            .get(group.clone())
            .unwrap_or_default();
        let Some(first) = segments.first() else {
            unreachable!("a group has at least one segment")
        };
        let mut output = Output::begin(self.disk, first, self.rules)?;
        let last = segments.iter().rposition(|segment| segment.len > 0);
        let last = last.map(|last| group.start + last);
        for number in group {
            self.copy_segment(number, Some(number) == last, &mut output)?;
        }
        let aborts = self.aborts(segments)?;
        let copied = output.finish(self.disk, segments, &aborts)?;
        self.counts.bytes_written += copied.len;
        Ok(copied)
    }

    fn copy_segment(&mut self, number: usize, is_last: bool, output: &mut Output) -> Done<()> {
        let Some(mut source) = self.complete.source(self.disk, number, 0)? else {
            return Ok(());
        };
        let modified = self.disk.modified_ms(source.path())?;
        self.know.keeps_old_tombstones =
            modified.is_none_or(|modified| modified > self.old_tombstones_from);
        let mut keeper = Keeper::default();
        while let Some(found) = source.next(self.disk)? {
            let ends_group = is_last && source.is_at_end();
            self.copy_batch(&source, &found, ends_group, &mut keeper, output)?;
            let len = found.header.len.into();
            self.counts.bytes_read += len;
            (self.pace)(len)?;
        }
        Ok(())
    }

    fn copy_batch(
        &mut self,
        source: &Source,
        found: &FoundBatch,
        ends_group: bool,
        keeper: &mut Keeper,
        output: &mut Output,
    ) -> Result<()> {
        let header = &found.header;
        let bytes = source.bytes(found)?;
        let start = output.bytes.len();
        output.bytes.extend_from_slice(&bytes);
        let mut opened = source.open_batch(found, bytes)?;
        let is_needless = match header.is_control() {
            false => self.transactions.is_aborted(self.disk, header)?,
            true => {
                let marker = opened.marker().map_err(|flaw| source.flawed(found, flaw))?;
                opened.rewind();
                self.transactions.is_needless(header, marker)
            }
        };
        let flawed = |flaw| source.flawed(found, flaw);
        let decided = keeper.decide(&self.know, header, &mut opened, is_needless);
        let fate = decided.map_err(flawed)?;
        self.count(header, keeper);
        let original = output.bytes.get(start..).unwrap_or_default();
        let rebuilt = match fate {
            Fate::Copy => return output.add(self.disk, start, header, header.max_timestamp),
            Fate::Drop => {
                // A replacement must end with the last offset of the segments that it replaces; the
                // last offset of a pass survives as well.
                if !ends_group && !self.producers.is_last(self.disk, header, original)? {
                    output.bytes.truncate(start);
                    return Ok(());
                }
                Rebuilt::new(original, header, None).map_err(flawed)?
            }
            Fate::Rebuild(horizon) => {
                let mut rebuilt = Rebuilt::new(original, header, horizon).map_err(flawed)?;
                opened.rewind();
                let mut kept = keeper.kept().iter();
                while let Some(entry) = opened.next().map_err(flawed)? {
                    if kept.next() == Some(&true) {
                        rebuilt.push(&entry);
                    }
                }
                rebuilt
            }
        };
        output.bytes.truncate(start);
        let packed = rebuilt.finish(&mut output.bytes);
        let max_timestamp = packed.at(Op::Write, &output.path)?;
        output.add(self.disk, start, header, max_timestamp)
    }

    fn count(&mut self, header: &Header, keeper: &Keeper) {
        if !header.is_control() {
            let kept = keeper.kept().iter().filter(|is_kept| **is_kept);
            self.counts.messages_written += kept.count() as u64;
            self.counts.messages_read += keeper.kept().len() as u64;
        }
    }

    /// The entries of the transaction indexes whose markers still have data.
    fn aborts(&mut self, segments: &[Arc<Segment>]) -> Result<Vec<u8>> {
        let kept = self.transactions.take_aborts();
        let mut entries = Vec::new();
        for segment in segments.iter().filter(|_| !kept.is_empty()) {
            let path = beside(&segment.path, ".txnindex");
            let is_file = |it: &crate::disk::Entry| it.kind == Kind::File;
            if !self.disk.stat(&path)?.as_ref().is_some_and(is_file) {
                continue;
            }
            let bytes = read_small(self.disk, &path, ABORTS_LEN_MAX)?.unwrap_or_default();
            for entry in bytes.chunks_exact(ABORT_LEN) {
                // After version, producer and first offset comes that of the marker.
                if kept.binary_search(&be_u64(entry, 18)).is_ok() {
                    entries.extend_from_slice(entry);
                }
            }
        }
        Ok(entries)
    }
}

impl Output {
    /// Begins the copy of a segment.
    ///
    /// # Errors
    ///
    /// Those of the disk.
    pub fn begin(disk: &dyn Disk, first: &Segment, rules: &Rules) -> Result<Output> {
        let path = with_suffix(&first.path, ".cleaned");
        discard(disk, &path)?;
        disk.create(&path, 0)?;
        Ok(Output {
            path,
            base: first.base,
            kept: None,
            len: 0,
            bytes: Vec::with_capacity(CHUNK + CHUNK / 4),
            indexes: Indexes::new(first.base, rules),
        })
    }

    /// Adds a batch as it is.
    ///
    /// # Errors
    ///
    /// Those of the disk.
    pub fn push(&mut self, disk: &dyn Disk, header: &Header, batch: &[u8]) -> Result<()> {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(batch);
        self.add(disk, start, header, header.max_timestamp)
    }

    /// Writes the indexes, and makes all files of the copy durable. `segments`: those that were
    /// copied; `aborts`: the entries of the transaction index.
    ///
    /// # Errors
    ///
    /// Those of the disk.
    pub fn finish(
        mut self,
        disk: &dyn Disk,
        segments: &[Arc<Segment>],
        aborts: &[u8],
    ) -> Result<Segment> {
        self.write(disk)?;
        self.kept = None;
        if let Some(last) = segments.last()
            && let Some(modified) = disk.modified_ms(&last.path)?
        {
            // Retention, and tombstones of the old formats, depend on this time.
            disk.set_modified_ms(&self.path, modified)?;
        }
        if !planted(Bug::SwapUnsynced) {
            disk.sync_file(&self.path)?;
        }
        self.indexes.close();
        self.indexes.save(disk, &self.path)?;
        if !aborts.is_empty() {
            let path = beside(&self.path, ".txnindex");
            disk.write_at(&path, 0, aborts)?;
            disk.sync_file(&path)?;
        }
        Ok(Segment {
            base: self.base,
            path: self.path,
            len: self.len,
        })
    }

    /// Completes the batch that begins at `start` of what is not written yet.
    fn add(
        &mut self,
        disk: &dyn Disk,
        start: usize,
        header: &Header,
        max_timestamp: i64,
    ) -> Result<()> {
        let position = self.len + start as u64;
        let len = (self.bytes.len() - start) as u64;
        if position + len > LOG_LEN_MAX {
            return Err(Error::Unsupported {
                what: format!(
                    "compacting into {}, which would be longer than {LOG_LEN_MAX} bytes",
                    self.path.display()
                ),
            });
        }
        self.indexes
            .add(position, len, header.last_offset(), max_timestamp);
        match self.bytes.len() >= CHUNK {
            true => self.write(disk),
            false => Ok(()),
        }
    }

    fn write(&mut self, disk: &dyn Disk) -> Result<()> {
        disk.write_kept(&mut self.kept, &self.path, self.len, &self.bytes)?;
        self.len += self.bytes.len() as u64;
        self.bytes.clear();
        Ok(())
    }
}

/// Removes the files of a copy that an earlier pass has left.
pub fn discard(disk: &dyn Disk, log: &Path) -> Result<()> {
    for ending in ENDINGS {
        let path = beside(log, ending);
        if disk.stat(&path)?.is_some() {
            disk.unlink(&path)?;
        }
    }
    Ok(())
}
