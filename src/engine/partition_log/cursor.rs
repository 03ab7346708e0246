//! Walks the messages of a partition. Control records, and messages of transactions that are not
//! committed if those are not asked for, are no messages.

use super::partition::{Partition, View};
use super::segment::Segments;
use super::transactions::Outcomes;
use super::walk::{Found, Reader, Step, Walk};
use super::{NAME, Shared};
use crate::engine::{Check, Cursor, Filter, Rows, STEP};
use crate::error::{At, Op, Result};
use crate::options::Isolation;
use crate::record::kafka::{Entry, Header, Home, Layout, Opened, Record, record};
use crate::record::{Flaw, Row};
use crate::region::Region;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// Bytes of records that are collected before they are handed out.
const CHUNK_LEN: usize = 256 << 10;

/// Walks a partition.
pub(super) struct QueueCursor {
    shared: Arc<Shared>,
    partition: Arc<Partition>,
    segments: Segments,
    /// Offset after the last message visited.
    at: u64,
    end: u64,
    /// End of the partition when the cursor was made.
    limit: u64,
    filter: Filter,
    check: Check,
    outcomes: Option<Outcomes>,
    /// Number of the segment to open next; `None` before the first.
    next_segment: Option<usize>,
    walk: Option<Walk>,
    batch: Option<(Opened, Found)>,
}

/// Records that were taken out of their batches.
#[derive(Default)]
struct Taken {
    bytes: Vec<u8>,
    records: Vec<(usize, Layout)>,
}

impl QueueCursor {
    /// A cursor over the messages with these offsets. Opens no file.
    pub(super) fn new(
        shared: Arc<Shared>,
        partition: Arc<Partition>,
        view: View,
        offsets: Range<u64>,
        filter: Filter,
        check: Check,
    ) -> QueueCursor {
        QueueCursor {
            shared,
            partition,
            segments: view.segments,
            at: offsets.start.max(view.bounds.start),
            end: offsets.end.min(view.bounds.end),
            limit: view.bounds.end,
            filter,
            check,
            outcomes: None,
            next_segment: None,
            walk: None,
            batch: None,
        }
    }

    /// Adds up to `max_rows` messages, in up to `advances` steps. Returns false at the end.
    fn walk(&mut self, advances: u64, max_rows: usize, rows: &mut Rows) -> Result<bool> {
        let mut taken = Taken::default();
        let mut has_more = true;
        for _ in 0..advances {
            let is_full = taken.records.len() >= max_rows || taken.bytes.len() >= CHUNK_LEN;
            if !has_more || is_full {
                break;
            }
            has_more = self.advance(&mut taken)?;
        }
        taken.move_to(rows)?;
        Ok(has_more)
    }

    /// Takes the next message, if it passes, or moves on; `false` at the end.
    fn advance(&mut self, taken: &mut Taken) -> Result<bool> {
        if self.at >= self.end {
            return Ok(false);
        }
        if self.batch.is_some() {
            self.take(taken)?;
            return Ok(true);
        }
        let Some(walk) = &mut self.walk else {
            return self.open_segment();
        };
        match walk.next(&*self.shared.disk)? {
            Step::Batch(found) => self.enter(found)?,
            Step::Damage(bytes, flaw) => self.pass_over(bytes, flaw),
            Step::End => self.walk = None,
        }
        Ok(true)
    }

    /// Opens the next segment; `false` if there is none.
    fn open_segment(&mut self) -> Result<bool> {
        let segments = &self.segments;
        let first = || {
            let after = segments.partition_point(|segment| segment.base <= self.at);
            after.saturating_sub(1)
        };
        let number = self.next_segment.unwrap_or_else(first);
        let Some(segment) = segments.get(number).filter(|it| it.base < self.end) else {
            self.at = self.at.max(self.end);
            return Ok(false);
        };
        self.next_segment = Some(number + 1);
        let disk = &*self.shared.disk;
        match Reader::open(disk, segment) {
            // The broker has deleted it since it was listed.
            Err(error) if error.is_not_found() => {}
            Err(error) => return Err(error),
            Ok(mut reader) => {
                let position = reader.seek(disk, self.at)?;
                self.walk = Some(Walk::new(reader, position));
            }
        }
        Ok(true)
    }

    /// Opens a batch, unless it has no message of the range.
    fn enter(&mut self, found: Found) -> Result<()> {
        let header = &found.header;
        if header.last_offset() < self.at {
            return Ok(());
        }
        if header.last_offset() >= self.next_base() {
            return self.lose(&found, Flaw::Field("offset"));
        }
        if header.first_offset() >= self.end {
            // There is nothing between the end of the range and this batch.
            self.at = header.first_offset().min(self.limit).max(self.end);
            return Ok(());
        }
        let is_hidden = header.is_control() || !self.is_committed(header)?;
        let Some(walk) = &self.walk else {
            return Ok(());
        };
        let bytes = walk.batch(&found)?;
        if bytes.len() < header.len as usize {
            // The broker has truncated the segment.
            self.walk = None;
            return Ok(());
        }
        // A damaged header must not hide messages: only a whole batch is no message.
        if is_hidden && header.has_crc_of(&bytes) {
            self.at = header.last_offset() + 1;
            return Ok(());
        }
        match Opened::open(bytes, is_hidden || self.check == Check::Full) {
            Ok(opened) => self.batch = Some((opened, found)),
            Err(flaw) => self.lose(&found, flaw)?,
        }
        Ok(())
    }

    /// Base of the next segment. All offsets of this one are lower.
    fn next_base(&self) -> u64 {
        let next = self
            .next_segment
            .and_then(|number| self.segments.get(number));
        next.map_or(u64::MAX, |segment| segment.base)
    }

    fn is_committed(&mut self, header: &Header) -> Result<bool> {
        if self.shared.isolation == Isolation::ReadUncommitted || !header.is_transactional() {
            return Ok(true);
        }
        let (segments, first) = (&self.segments, header.first_offset());
        let outcomes = self
            .outcomes
            .get_or_insert_with(|| Outcomes::new(Arc::clone(segments), first, u64::MAX));
        outcomes.is_committed(&*self.shared.disk, header)
    }

    /// Takes the next record of the open batch.
    fn take(&mut self, taken: &mut Taken) -> Result<()> {
        let Some((opened, found)) = &mut self.batch else {
            return Ok(());
        };
        let header = *opened.header();
        match opened.next() {
            Ok(Some(entry)) if entry.offset < self.at => {}
            Ok(Some(entry)) if entry.offset >= self.end => {
                self.at = entry.offset.min(self.limit).max(self.end);
            }
            Ok(Some(entry)) => {
                let home = Home {
                    topic: &self.partition.topic,
                    queue: self.partition.queue,
                    position: found.position,
                };
                self.at = entry.offset + 1;
                if let Err(flaw) = taken.add(&home, &header, &entry, &self.filter) {
                    let found = *found;
                    self.lose(&found, flaw)?;
                }
            }
            Ok(None) => {
                self.at = self.at.max(header.last_offset() + 1);
                self.batch = None;
            }
            Err(flaw) => {
                let found = *found;
                self.lose(&found, flaw)?;
            }
        }
        Ok(())
    }

    /// Reports a batch that cannot be read, or read further, and passes over it.
    fn lose(&mut self, found: &Found, flaw: Flaw) -> Result<()> {
        self.batch = None;
        let limit = self.next_base();
        let Some(walk) = &mut self.walk else {
            return Ok(());
        };
        let Found { position, header } = found;
        let after = walk.lose(found)?.min(limit).max(self.at);
        let lost = self.at.max(header.first_offset().min(after))..after;
        let bytes = *position..*position + u64::from(header.len);
        let (report, segment) = (&self.shared.report, &walk.reader.segment);
        self.partition.report(report, segment, bytes, flaw, lost);
        self.at = after;
        Ok(())
    }

    /// Reports bytes that are not a batch, unless the log ends there.
    fn pass_over(&mut self, bytes: Range<u64>, flaw: Flaw) {
        let is_last = self.next_segment == Some(self.segments.len());
        if let Some(walk) = &self.walk
            && !(is_last && bytes.end >= walk.reader.len)
        {
            let report = &self.shared.report;
            let segment = &walk.reader.segment;
            self.partition.report(report, segment, bytes, flaw, 0..0);
        }
    }
}

impl Taken {
    /// Adds a record, if it passes the filter.
    fn add(
        &mut self,
        home: &Home<'_>,
        header: &Header,
        entry: &Entry<'_>,
        filter: &Filter,
    ) -> Result<(), Flaw> {
        let start = self.bytes.len();
        let layout = record::write(&mut self.bytes, home, header, entry)?;
        let written = self.bytes.get(start..).unwrap_or_default();
        let passes = filter.is_empty()
            || Record::with_layout(written, layout)
                .is_ok_and(|record| filter.passes(&Row::from(record)));
        match passes {
            true => self.records.push((start, layout)),
            false => self.bytes.truncate(start),
        }
        Ok(())
    }

    /// Hands the records over.
    fn move_to(self, rows: &mut Rows) -> Result<()> {
        if self.records.is_empty() {
            return Ok(());
        }
        let name = Path::new(NAME);
        let region = Region::anonymous(self.bytes.len(), name).at(Op::Allocate, name)?;
        region.write(0, &self.bytes).at(Op::Allocate, name)?;
        region.publish(self.bytes.len());
        let region = Arc::new(region);
        for (start, layout) in self.records {
            rows.push(&region, start, layout);
        }
        Ok(())
    }
}

impl Cursor for QueueCursor {
    fn next(&mut self, max_rows: usize, rows: &mut Rows) -> Result<()> {
        self.walk(u64::MAX, max_rows, rows).map(drop)
    }

    fn step(&mut self, max_rows: usize, rows: &mut Rows) -> Result<bool> {
        self.walk(STEP, max_rows, rows)
    }

    fn offset(&self) -> u64 {
        self.at
    }
}

/// Walks several partitions, one after another.
pub(super) struct Chain {
    /// The next one last.
    cursors: Vec<QueueCursor>,
}

impl Chain {
    /// A cursor over all messages of these cursors.
    pub(super) fn new(mut cursors: Vec<QueueCursor>) -> Chain {
        cursors.reverse();
        Chain { cursors }
    }
}

impl Cursor for Chain {
    fn next(&mut self, max_rows: usize, rows: &mut Rows) -> Result<()> {
        let before = rows.rows.len();
        while let Some(cursor) = self.cursors.last_mut() {
            cursor.next(max_rows, rows)?;
            if rows.rows.len() > before {
                break;
            }
            self.cursors.pop();
        }
        Ok(())
    }

    fn offset(&self) -> u64 {
        0
    }
}
