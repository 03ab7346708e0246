//! Rows of records that a cursor collects, and the filter that it applies.

use crate::error::Result;
use crate::num::short;
use crate::record::{Layout, Message, Row};
use crate::region::Region;
use std::sync::Arc;

/// How thoroughly an engine checks the records that it returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Check {
    /// Structure and checksums.
    Full,
    /// Structure only: lengths, position, topic, queue and offset.
    Structure,
}

/// The point in a queue whose offset is wanted; see [`crate::Engine::offset_at`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Point {
    /// A store time in ms: messages stored earlier lie before it.
    Time(i64),
    /// A position of the log: messages whose records end at or below it lie before it.
    Position(u64),
}

/// A read ends early when it has copied this many bytes of records.
pub const COPIED_MAX: u64 = 64 << 20;

/// Records found by a [`Cursor`], and the regions that keep them alive.
#[derive(Debug, Default)]
pub struct Rows {
    /// Mapped files; each row refers to one by index.
    pub regions: Vec<Arc<Region>>,
    /// The rows, in order.
    pub rows: Vec<RowRef>,
    /// Bytes that the cursor has copied for them, unpacked. They take memory, unlike mapped files.
    pub copied: u64,
    /// Offsets that the cursor passed over because retention had deleted their messages.
    pub retired: u64,
}

/// One record in [`Rows`].
#[derive(Clone, Copy, Debug)]
pub struct RowRef {
    /// Index into [`Rows::regions`].
    pub region: u32,
    /// The byte of the region that the layout counts from.
    pub start: u32,
    /// Layout of the record.
    pub layout: Layout,
}

impl Rows {
    /// Removes the rows and releases the regions.
    pub fn clear(&mut self) {
        self.regions.clear();
        self.rows.clear();
        self.copied = 0;
        self.retired = 0;
    }

    /// Adds a record. `region` is usually that of the previous row.
    #[inline]
    pub fn push(&mut self, region: &Arc<Region>, start: usize, layout: impl Into<Layout>) {
        if !self
            .regions
            .last()
            .is_some_and(|last| Arc::ptr_eq(last, region))
        {
            self.regions.push(Arc::clone(region));
        }
        let region = short(self.regions.len()) - 1;
        self.rows.push(RowRef {
            region,
            start: short(start),
            layout: layout.into(),
        });
    }

    /// The record of a row; `None` if the row belongs to other `Rows`.
    #[inline]
    pub fn record(&self, row: &RowRef) -> Option<Row<'_>> {
        let region = self.regions.get(row.region as usize)?;
        let bytes = region.slice_again(row.start as usize, row.layout.end() as usize)?;
        Row::with_layout(bytes, row.layout).ok()
    }

    /// The records of some of these rows; `None` for a row of other `Rows`.
    #[inline]
    pub fn records<'a>(
        &'a self,
        some: &'a [RowRef],
    ) -> impl ExactSizeIterator<Item = Option<Row<'a>>> {
        // Rows that follow each other are mostly in the same region.
        let mut last: (u32, &[u8]) = (u32::MAX, &[]);
        some.iter().map(move |row| {
            if row.region != last.0 {
                let region = self.regions.get(row.region as usize)?;
                match region.all_again() {
                    Some(bytes) => last = (row.region, bytes),
                    None => return self.record(row),
                }
            }
            Row::with_layout(last.1.get(row.start as usize..)?, row.layout).ok()
        })
    }

    /// Loads a byte from each page of the rows from `first` on, which may have been read long ago.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Io`] if a page can no longer be loaded.
    pub fn touch(&self, first: usize) -> Result<()> {
        let rows = self.rows.iter().skip(first);
        rows.filter_map(|row| self.message(row))
            .try_for_each(|message| message.touch())
    }

    /// The message of a row, sharing its region.
    pub fn message(&self, row: &RowRef) -> Option<Message> {
        let region = self.regions.get(row.region as usize)?;
        Some(Message::with_layout(
            Arc::clone(region),
            row.start as usize,
            row.layout,
        ))
    }
}

/// Which records of a queue a cursor returns.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// Records with one of these tags; all if empty.
    pub tags: Vec<String>,
    /// Records with this key; all if `None`.
    pub key: Option<Vec<u8>>,
}

impl Filter {
    /// Whether every record passes.
    pub fn is_empty(&self) -> bool {
        self.tags.is_empty() && self.key.is_none()
    }

    /// Whether a record passes. Compares the exact bytes of its tag and keys.
    pub fn passes(&self, record: &Row<'_>) -> bool {
        let known = record.known();
        let tag = |tag: &String| known.tags == Some(tag.as_bytes());
        let by_key = |key: &Vec<u8>| known.index_keys().any(|found| found == key.as_slice());
        (self.tags.is_empty() || self.tags.iter().any(tag)) && self.key.as_ref().is_none_or(by_key)
    }
}

/// Number of records that [`Cursor::step`] examines.
pub const STEP: u64 = 1024;

/// Walks records in order, a few at a time.
///
/// A damaged record is skipped and added to the engine's report.
pub trait Cursor: Send {
    /// Adds up to `max_rows` records to `rows`. Adds at least one unless the end is reached.
    fn next(&mut self, max_rows: usize, rows: &mut Rows) -> Result<()>;

    /// Replaces `rows` with up to `max_rows` following records. Returns false at the end.
    fn refill(&mut self, max_rows: usize, rows: &mut Rows) -> Result<bool> {
        rows.clear();
        self.next(max_rows, rows)?;
        Ok(!rows.rows.is_empty())
    }

    /// As [`Cursor::next`], but examines only about a thousand records, so that the caller can
    /// check whether to go on although none passes the filter. Returns false once the end is
    /// reached.
    fn step(&mut self, max_rows: usize, rows: &mut Rows) -> Result<bool> {
        let before = rows.rows.len();
        self.next(max_rows, rows)?;
        Ok(rows.rows.len() > before)
    }

    /// The offset after the last record visited; for a cursor over the log, a position.
    fn offset(&self) -> u64;
}
