//! Walks the messages of a partition. It leaves out control records and, for readers of committed
//! messages, those of transactions that are not committed.

use super::Shared;
use super::batches::Batches;
use super::folder::View;
use super::half_read::Wanted;
use super::partition::Partition;
use super::segments::lender::Lender;
use super::segments::walk::{FoundBatch, Step};
use super::taken::Taken;
use super::transactions::Outcome;
use crate::engine::{Check, Cursor, Damage, DamageKind, Filter, Rows, STEP};
use crate::error::Result;
use crate::options::Isolation;
use crate::record::Flaw;
use crate::record::kafka::{Buffers, Header, Home, Opened};
use crate::region::Region;
use std::ops::{ControlFlow, Range};
use std::sync::Arc;

/// A read of at least this many messages does not copy them out of the memory of their batches.
const LENT_ROWS_MIN: u64 = 256;

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
    /// The memory of the previous batch, to be used again.
    buffers: Buffers,
    taken: Taken,
    /// Offsets that were passed over because retention had deleted them.
    retired: u64,
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
            batches: Batches::new(&partition.folder, &view, at)
                .with_lender(Lender::new(&partition.topic, partition.queue)),
            end: offsets.end.min(view.bounds.end),
            shared,
            partition,
            view,
            filter,
            check,
            batch: None,
            buffers: Buffers::default(),
            taken: Taken::default(),
            retired: at - offsets.start.min(at),
        }
    }

    /// Adds up to `max_rows` messages, in up to `advances` steps: a step opens a batch, or passes
    /// over a message. Returns false at the end.
    fn walk(&mut self, advances: u64, max_rows: usize, rows: &mut Rows) -> Result<bool> {
        let mut steps = advances;
        let mut has_more = true;
        self.taken.begin(max_rows);
        let wanted = (max_rows as u64).min(self.end.saturating_sub(self.batches.at));
        self.batches
            .set_lending(wanted >= LENT_ROWS_MIN && self.filter.is_empty());
        while has_more && steps > 0 && !self.taken.is_full() {
            has_more = self.advance(&mut steps, rows)?;
        }
        // The next read may begin here.
        self.batches.keep_waypoint();
        self.taken.hand_out(rows)?;
        rows.retired += std::mem::take(&mut self.retired);
        Ok(has_more)
    }

    /// Takes messages of the open batch, or opens the next one; `false` at the end.
    fn advance(&mut self, steps: &mut u64, rows: &mut Rows) -> Result<bool> {
        if self.batches.at >= self.end.min(self.batches.end) {
            return Ok(false);
        }
        if self.batch.is_some() {
            self.take(steps, rows)?;
            return Ok(true);
        }
        *steps -= 1;
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

    /// Skips to an offset, at most to the end: a damaged header may state one far beyond it.
    fn move_to(&mut self, offset: u64) {
        self.batches.at = self.batches.at.max(offset.min(self.view.bounds.end));
    }

    /// Skips to an offset at or after the end of the range, before which the range has no message
    /// left.
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
        if !is_hidden && let Some(opened) = self.half_read(&found) {
            self.batch = Some((opened, found));
            return Ok(());
        }
        let mut buffers = std::mem::take(&mut self.buffers);
        match self.batches.lend(&found)? {
            Some(lent) => buffers.lend(lent),
            None => self.batches.read(&found, buffers.stored())?,
        }
        let bytes = buffers.bytes();
        if bytes.len() < header.len as usize {
            return self.batches.reopen(&*self.shared.disk);
        }
        // A damaged header must not hide messages, so only a whole batch is skipped.
        if is_hidden && header.has_crc_of(bytes) {
            if let Outcome::Unknown(damage) = outcome {
                self.report_unknown(damage, header);
            }
            self.move_to(header.last_offset() + 1);
            self.buffers = buffers;
            return Ok(());
        }
        match Opened::open_in(buffers, is_hidden || self.check == Check::Full) {
            Ok(opened) => self.batch = Some((opened, found)),
            Err(flaw) => self.lose(&found, flaw)?,
        }
        Ok(())
    }

    /// The batch as another cursor left it open at this cursor's next offset.
    fn half_read(&self, found: &FoundBatch) -> Option<Opened> {
        if self.batches.at <= found.header.first_offset() {
            return None;
        }
        let (segment, _) = self.batches.segment()?;
        self.shared.half_reads.take(&Wanted {
            folder: &self.partition.folder,
            segment: segment.base,
            found,
            at: self.batches.at,
            is_checked: self.check == Check::Full,
            may_be_lent: self.batches.is_lending(),
        })
    }

    /// How the transaction of a batch ended. A batch counts as committed if it is in no
    /// transaction, or if the reader also wants uncommitted messages.
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

    /// Takes records of the open batch.
    fn take(&mut self, steps: &mut u64, rows: &mut Rows) -> Result<()> {
        let Some((opened, found)) = &mut self.batch else {
            return Ok(());
        };
        let (found, header) = (*found, *opened.header());
        if let Some(region) = opened.lent().cloned() {
            return self.take_in_place(&region, steps, rows);
        }
        let home = Home {
            topic: &self.partition.topic,
            queue: self.partition.queue,
            position: found.position,
        };
        let end = self.end.min(self.batches.end);
        let at = &mut self.batches.at;
        let flaw = loop {
            if *at >= end || *steps == 0 || self.taken.is_full() {
                return Ok(());
            }
            match opened.next() {
                Ok(Some(entry)) if entry.offset < *at => *steps -= 1,
                Ok(Some(entry)) if entry.offset >= self.end => {
                    let offset = entry.offset;
                    self.move_after_end(offset);
                    return Ok(());
                }
                Ok(Some(entry)) => {
                    *at = entry.offset + 1;
                    let place = (&home, &header);
                    match self.taken.add(place, &entry, &self.filter, rows)? {
                        Ok(passes) => *steps -= u64::from(!passes),
                        Err(flaw) => break flaw,
                    }
                }
                Ok(None) => {
                    self.leave();
                    self.move_to(header.last_offset() + 1);
                    return Ok(());
                }
                Err(flaw) => break flaw,
            }
        };
        self.lose(&found, flaw)
    }

    /// Takes records of the open batch without copying them out of `region`.
    fn take_in_place(
        &mut self,
        region: &Arc<Region>,
        steps: &mut u64,
        rows: &mut Rows,
    ) -> Result<()> {
        let Some((opened, found)) = &mut self.batch else {
            return Ok(());
        };
        let found = *found;
        let end = self.end.min(self.batches.end);
        let (at, taken) = (&mut self.batches.at, &mut self.taken);
        if *at >= end || *steps == 0 || taken.is_full() {
            return Ok(());
        }
        taken.hand_out(rows)?;
        let mut after_end = None;
        let flow = opened.visit_in_place(|offset, layout| {
            if offset < *at {
                *steps -= 1;
            } else if offset >= self.end {
                after_end = Some(offset);
            } else {
                *at = offset + 1;
                taken.add_in_place(region, layout, rows);
            }
            let has_enough = *at >= end || *steps == 0 || taken.is_full();
            match has_enough || after_end.is_some() {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        });
        match flow {
            Err(flaw) => return self.lose(&found, flaw),
            Ok(ControlFlow::Break(())) => {}
            Ok(ControlFlow::Continue(())) => {
                self.leave();
                self.move_to(found.header.last_offset() + 1);
            }
        }
        if let Some(offset) = after_end {
            self.move_after_end(offset);
        }
        Ok(())
    }

    /// Closes the open batch, and keeps its memory for the next one.
    fn leave(&mut self) {
        if let Some((opened, _)) = self.batch.take() {
            self.buffers = opened.into_buffers();
        }
    }

    /// Reports a batch that cannot be read to its end, and skips it.
    fn lose(&mut self, found: &FoundBatch, flaw: Flaw) -> Result<()> {
        self.batch = None;
        let FoundBatch { position, header } = found;
        let at = self.batches.at;
        let (end, after) = self.batches.lose(&*self.shared.disk, found)?;
        let after = after.max(at);
        let lost = at.max(header.first_offset().min(after))..after;
        let bytes = *position..end;
        if let Some((segment, _)) = self.batches.segment() {
            let damage = Damage::new(DamageKind::Log, &segment.path, bytes, flaw);
            self.partition.report(&self.shared.report, damage, lost);
        }
        self.batches.at = after;
        Ok(())
    }

    /// Reports bytes that are not a batch, unless the log ends there.
    fn pass_over(&self, bytes: Range<u64>, flaw: Flaw) {
        let is_last = self.batches.next_base() == u64::MAX && self.batches.at >= self.view.end;
        if let Some((segment, len)) = self.batches.segment()
            && !(is_last && bytes.end >= len)
        {
            let damage = Damage::new(DamageKind::Log, &segment.path, bytes, flaw);
            self.partition.report(&self.shared.report, damage, 0..0);
        }
    }
}

impl Drop for QueueCursor {
    /// Leaves the open batch to the cursor that begins where this one ends.
    fn drop(&mut self) {
        if let Some(batch) = self.batch.take()
            && let Some((segment, _)) = self.batches.segment()
        {
            let (folder, base) = (&self.partition.folder, segment.base);
            let is_checked = self.check == Check::Full;
            self.shared.half_reads.keep(folder, base, batch, is_checked);
        }
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
    /// In reverse order, so that the next one is the last.
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
