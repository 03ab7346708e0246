//! Records that a cursor has taken out of their batches, in memory that it uses again.

use super::segments::lender::{Kept, NAME};
use crate::engine::{Filter, Rows};
use crate::error::{At, Op, Result};
use crate::record::kafka::{Apart, Entry, Header, Home, InBatch, Layout, Record};
use crate::record::{Flaw, Row};
use crate::region::{PAGE, Region};
use std::path::Path;
use std::sync::Arc;

/// Bytes of memory that records are collected in.
const CHUNK_LEN: usize = 256 << 10;
/// Bytes after which they are handed out: one more record of up to 16 KiB fits the chunk.
const FULL_LEN: usize = CHUNK_LEN - (16 << 10);
/// The room that is made for each record requested, before the length of any is known.
const RECORD_LEN: usize = 256;
/// How many chunks are kept: a few more than the rows of a batch of a scan take.
const KEPT_MAX: usize = 72;

/// Records in the order in which they were added, until they are handed out.
///
/// A cursor keeps the chunks that it has handed out, as a [`super::segments::lender`] does.
pub(super) struct Taken {
    /// The chunk that is being filled, of which nothing is readable.
    chunk: Option<Region>,
    filled: usize,
    /// The records in the chunk: where each begins, and its layout.
    records: Vec<(usize, Apart)>,
    /// Records and bytes added since [`Taken::begin`].
    added: (usize, usize),
    rows_max: usize,
    /// Mean length of the records added before; 0 before the first.
    mean_len: usize,
    kept: Kept,
}

impl Default for Taken {
    fn default() -> Taken {
        Taken {
            chunk: None,
            filled: 0,
            records: Vec::new(),
            added: (0, 0),
            rows_max: 0,
            mean_len: 0,
            kept: Kept::new(CHUNK_LEN, KEPT_MAX),
        }
    }
}

impl Taken {
    /// Begins to collect up to so many records. Records that were not handed out are dropped.
    pub(super) fn begin(&mut self, rows_max: usize) {
        self.clear();
        let (records, bytes) = std::mem::take(&mut self.added);
        self.mean_len = bytes.checked_div(records).unwrap_or(self.mean_len);
        self.rows_max = rows_max;
    }

    /// Whether there are as many records, or bytes, as are handed out at once.
    #[inline]
    pub(super) fn is_full(&self) -> bool {
        let (records, bytes) = self.added;
        records >= self.rows_max || bytes >= FULL_LEN
    }

    /// Adds a record if it passes the filter. Returns whether it does, or the [`Flaw`] of a record
    /// that is too long. Makes room for it by handing out earlier records to `rows`.
    #[inline]
    pub(super) fn add(
        &mut self,
        (home, header): (&Home<'_>, &Header),
        entry: &Entry<'_>,
        filter: &Filter,
        rows: &mut Rows,
    ) -> Result<Result<bool, Flaw>> {
        let layout = match Apart::of(home, header.has_append_time(), entry) {
            Ok(layout) => layout,
            Err(flaw) => return Ok(Err(flaw)),
        };
        let len = layout.total_len as usize;
        let start = match &self.chunk {
            Some(chunk) if chunk.len() - self.filled >= len => self.filled,
            _ => {
                self.make_room(len, rows)?;
                0
            }
        };
        let chunk = self.chunk.as_mut().map(Region::room);
        let place = chunk.and_then(|room| room.get_mut(start..start + len));
        let place = place.unwrap_or_default();
        layout.write(place, home, entry);
        let passes = filter.is_empty()
            || Record::with_layout(place, Layout::Apart(layout))
                .is_ok_and(|record| filter.passes(&Row::from(record)));
        if passes {
            self.records.push((start, layout));
            self.filled = start + len;
            self.added.0 += 1;
            self.added.1 += len;
        }
        Ok(Ok(passes))
    }

    /// Hands out a record in place, in memory that it shares with others. All records before it
    /// were handed out already.
    #[inline]
    pub(super) fn add_in_place(&mut self, region: &Arc<Region>, layout: InBatch, rows: &mut Rows) {
        rows.push(region, 0, layout);
        let len = layout.own_len() as usize;
        rows.copied += len as u64;
        self.added.0 += 1;
        self.added.1 += len;
    }

    /// Takes a chunk with room for a record of this length.
    #[cold]
    fn make_room(&mut self, len: usize, rows: &mut Rows) -> Result<()> {
        self.hand_out(rows)?;
        let left = self.rows_max.saturating_sub(self.added.0);
        let mean_len = match self.mean_len {
            0 => RECORD_LEN,
            mean => mean + mean / 4,
        };
        let wanted = left.saturating_mul(mean_len).clamp(PAGE, CHUNK_LEN);
        let wanted = wanted.next_power_of_two().max(len);
        if self.chunk.as_ref().is_some_and(|it| it.len() >= wanted) {
            return Ok(());
        }
        self.chunk = Some(self.kept.region(wanted)?);
        Ok(())
    }

    /// Hands out the records that remain.
    pub(super) fn hand_out(&mut self, rows: &mut Rows) -> Result<()> {
        let name = Path::new(NAME);
        if self.records.is_empty() {
            return Ok(());
        }
        let filled = self.filled;
        // A reader keeps a whole chunk, so the records of a mostly empty one are copied.
        let is_dense = |chunk: &Region| chunk.len() <= (2 * filled).max(PAGE);
        let region = match self.chunk.take_if(|chunk| is_dense(chunk)) {
            Some(chunk) => chunk,
            None => {
                let copy = Region::anonymous(filled, name).at(Op::Allocate, name)?;
                let room = self.chunk.as_mut().map(Region::room).unwrap_or_default();
                let bytes = room.get(..filled).unwrap_or_default();
                copy.write(0, bytes).at(Op::Allocate, name)?;
                copy
            }
        };
        region.publish(filled);
        rows.copied += filled as u64;
        let region = Arc::new(region);
        for (start, layout) in &self.records {
            rows.push(&region, *start, *layout);
        }
        self.kept.keep(&region);
        self.clear();
        Ok(())
    }

    fn clear(&mut self) {
        self.filled = 0;
        self.records.clear();
    }
}
