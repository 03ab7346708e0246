//! Walks the messages of a partition. It leaves out control records and, for readers of committed
//! messages, those of transactions that are not committed.

use super::batches::Batches;
use super::folder::View;
use super::partition::Partition;
use super::segments::walk::{FoundBatch, Step};
use super::transactions::Outcome;
use super::{NAME, Shared};
use crate::engine::{Check, Cursor, Damage, DamageKind, Filter, Rows, STEP};
use crate::error::{At, Op, Result};
use crate::options::Isolation;
use crate::record::kafka::{Entry, Header, Home, Layout, Opened, Record, record};
use crate::record::{Flaw, Row};
use crate::region::Region;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// Bytes of records that are collected before they are handed out.
pub(super) const CHUNK_LEN: usize = 256 << 10;

/// Walks a partition.
pub(super) struct QueueCursor {
    shared: Arc<Shared>,
    partition: Arc<Partition>,
    view: View,
    /// Its `at` is the offset after the last message visited.
    batches: Batches,
    end: u64,
    filter: Filter,
    check: Check,
    batch: Option<(Opened, FoundBatch)>,
    /// Offsets that were passed over because retention had deleted them.
    retired: u64,
}

/// Records that were taken out of their batches.
#[derive(Default)]
pub(super) struct Taken {
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
        let at = offsets.start.max(view.bounds.start);
        QueueCursor {
            batches: Batches::new(&partition.folder, &view, at),
            end: offsets.end.min(view.bounds.end),
            shared,
            partition,
            view,
            filter,
            check,
            batch: None,
            retired: at - offsets.start.min(at),
        }
    }

    /// Adds up to `max_rows` messages, in up to `advances` steps. Returns false at the end.
    fn walk(&mut self, advances: u64, max_rows: usize, rows: &mut Rows) -> Result<bool> {
        let mut taken = Taken::default();
        let mut has_more = true;
        for _ in 0..advances {
            let is_full = taken.len() >= max_rows || taken.bytes() >= CHUNK_LEN;
            if !has_more || is_full {
                break;
            }
            has_more = self.advance(&mut taken)?;
        }
        // The next read may begin here.
        self.batches.keep_waypoint();
        taken.move_to(rows)?;
        rows.retired += std::mem::take(&mut self.retired);
        Ok(has_more)
    }

    /// Takes the next message if it passes the filter, otherwise skips it; `false` at the end.
    fn advance(&mut self, taken: &mut Taken) -> Result<bool> {
        if self.batches.at >= self.end.min(self.batches.end) {
            return Ok(false);
        }
        if self.batch.is_some() {
            self.take(taken)?;
            return Ok(true);
        }
        match self.batches.next(&*self.shared.disk)? {
            Step::Batch(found) => self.enter(found)?,
            Step::Damage(bytes, flaw) => self.pass_over(bytes, flaw),
            Step::End => {
                self.move_to(self.end.min(self.batches.end));
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Skips to an offset.
    fn move_to(&mut self, offset: u64) {
        self.batches.at = self.batches.at.max(offset);
    }

    /// Skips to an offset after the end of the range; the range has nothing before it.
    fn move_after_end(&mut self, offset: u64) {
        self.move_to(offset.min(self.view.bounds.end).max(self.end));
    }

    /// Opens a batch, unless it has no message of the range.
    fn enter(&mut self, found: FoundBatch) -> Result<()> {
        let header = &found.header;
        if header.last_offset() < self.batches.at {
            return Ok(());
        }
        if header.last_offset() >= self.batches.next_base() {
            return self.lose(&found, Flaw::Field("offset"));
        }
        if header.first_offset() >= self.end {
            self.move_after_end(header.first_offset());
            return Ok(());
        }
        let outcome = self.outcome(header)?;
        let is_hidden = header.is_control() || !matches!(outcome, Outcome::Committed);
        let bytes = self.batches.bytes(&found)?;
        if bytes.len() < header.len as usize {
            return self.batches.reopen(&*self.shared.disk);
        }
        // A damaged header must not hide messages: only a whole batch is no message.
        if is_hidden && header.has_crc_of(&bytes) {
            if let Outcome::Unknown(damage) = outcome {
                self.report_unknown(damage, header);
            }
            self.move_to(header.last_offset() + 1);
            return Ok(());
        }
        match Opened::open(bytes, is_hidden || self.check == Check::Full) {
            Ok(opened) => self.batch = Some((opened, found)),
            Err(flaw) => self.lose(&found, flaw)?,
        }
        Ok(())
    }

    /// How the transaction of a batch ended. A batch counts as committed if it is in no
    /// transaction, or if the reader does not ask.
    fn outcome(&self, header: &Header) -> Result<Outcome> {
        if self.shared.isolation == Isolation::ReadUncommitted
            || !header.is_transactional()
            || header.is_control()
        {
            return Ok(Outcome::Committed);
        }
        let mut outcomes = self.partition.outcomes.lock();
        outcomes.of(
            &*self.shared.disk,
            &self.partition.folder,
            &self.view,
            header,
        )
    }

    /// Reports the damage that may have held the marker of a batch.
    fn report_unknown(&self, damage: Damage, header: &Header) {
        let offsets = self.batches.at.max(header.first_offset())..header.last_offset() + 1;
        self.partition.report(&self.shared.report, damage, offsets);
    }

    /// Takes the next record of the open batch.
    fn take(&mut self, taken: &mut Taken) -> Result<()> {
        let Some((opened, found)) = &mut self.batch else {
            return Ok(());
        };
        let header = *opened.header();
        match opened.next() {
            Ok(Some(entry)) if entry.offset < self.batches.at => {}
            Ok(Some(entry)) if entry.offset >= self.end => {
                let offset = entry.offset;
                self.move_after_end(offset);
            }
            Ok(Some(entry)) => {
                let home = Home {
                    topic: &self.partition.topic,
                    queue: self.partition.queue,
                    position: found.position,
                };
                self.batches.at = entry.offset + 1;
                if let Err(flaw) = taken.add(&home, &header, &entry, &self.filter) {
                    let found = *found;
                    self.lose(&found, flaw)?;
                }
            }
            Ok(None) => {
                self.batch = None;
                self.move_to(header.last_offset() + 1);
            }
            Err(flaw) => {
                let found = *found;
                self.lose(&found, flaw)?;
            }
        }
        Ok(())
    }

    /// Reports a batch that cannot be read to its end, and skips it.
    fn lose(&mut self, found: &FoundBatch, flaw: Flaw) -> Result<()> {
        self.batch = None;
        let FoundBatch { position, header } = found;
        let at = self.batches.at;
        let after = self.batches.lose(found)?.max(at);
        let lost = at.max(header.first_offset().min(after))..after;
        let bytes = *position..*position + u64::from(header.len);
        if let Some((segment, _)) = self.batches.segment() {
            let damage = Damage::new(DamageKind::Log, &segment.path, bytes, flaw);
            self.partition.report(&self.shared.report, damage, lost);
        }
        self.batches.at = after;
        Ok(())
    }

    /// Reports bytes that are not a batch, unless the log ends there.
    fn pass_over(&self, bytes: Range<u64>, flaw: Flaw) {
        let is_last = self.batches.next_base() == u64::MAX;
        if let Some((segment, len)) = self.batches.segment()
            && !(is_last && bytes.end >= len)
        {
            let damage = Damage::new(DamageKind::Log, &segment.path, bytes, flaw);
            self.partition.report(&self.shared.report, damage, 0..0);
        }
    }
}

impl Taken {
    /// Number of records.
    pub(super) fn len(&self) -> usize {
        self.records.len()
    }

    /// Their bytes.
    pub(super) fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Adds a record, if it passes the filter.
    pub(super) fn add(
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

    /// Moves the records to `rows`.
    pub(super) fn move_to(self, rows: &mut Rows) -> Result<()> {
        if self.records.is_empty() {
            return Ok(());
        }
        let name = Path::new(NAME);
        let region = Region::anonymous(self.bytes.len(), name).at(Op::Allocate, name)?;
        region.write(0, &self.bytes).at(Op::Allocate, name)?;
        region.publish(self.bytes.len());
        rows.copied += self.bytes.len() as u64;
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
        self.batches.at
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
