//! Reading: rows of records that a cursor collects, and what it passes over.

use crate::error::Result;
use crate::num::short;
use crate::record::{Layout, Message, Row};
use crate::region::Region;
use std::sync::Arc;

/// How an engine is asked to check what it hands out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Check {
    /// Structure and checksums.
    Full,
    /// Structure alone: lengths, position, topic, queue and offset.
    Structure,
}

/// Where in a queue to look for an offset; see [`crate::Engine::offset_at`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Point {
    /// A store time, in ms: messages stored earlier lie before it.
    Time(i64),
    /// A position of the log: messages whose records end at or below it lie before it.
    Position(u64),
}

/// Records found by a [`Cursor`], with the regions that keep them alive.
#[derive(Debug, Default)]
pub struct Rows {
    /// Mapped files; each row names one.
    pub regions: Vec<Arc<Region>>,
    /// The rows in order.
    pub rows: Vec<RowRef>,
}

/// One record in [`Rows`].
#[derive(Clone, Copy, Debug)]
pub struct RowRef {
    /// Index into [`Rows::regions`].
    pub region: u32,
    /// First byte of the record in the region.
    pub start: u32,
    /// Where the record's parts lie.
    pub layout: Layout,
}

impl Rows {
    /// Forgets the rows and lets go of the regions.
    pub fn clear(&mut self) {
        self.regions.clear();
        self.rows.clear();
    }

    /// Adds a record; `region` is usually that of the row before.
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

    /// The record of a row; `None` only for a row of other rows.
    #[inline]
    pub fn record(&self, row: &RowRef) -> Option<Row<'_>> {
        let region = self.regions.get(row.region as usize)?;
        let bytes = region.slice_again(row.start as usize, row.layout.total_len() as usize)?;
        Row::with_layout(bytes, row.layout).ok()
    }

    /// Loads from each page of the rows from `first` on, which were read a while ago.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Io`] where a page cannot be had any more.
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

/// Which records of a queue a cursor passes over before it looks at more than the tag code.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// Records with one of these tags; all where it is empty.
    pub tags: Vec<String>,
    /// Records with this key; all where there is none.
    pub key: Option<String>,
}

impl Filter {
    /// Whether the filter passes everything.
    pub fn is_empty(&self) -> bool {
        self.tags.is_empty() && self.key.is_none()
    }

    /// Whether a record passes, by the exact text of its tag and keys.
    pub fn passes(&self, record: &Row<'_>) -> bool {
        let known = record.known();
        let tag = |tag: &String| known.tags == Some(tag.as_bytes());
        let by_key = |key: &String| known.index_keys().any(|found| found == key.as_bytes());
        (self.tags.is_empty() || self.tags.iter().any(tag)) && self.key.as_ref().is_none_or(by_key)
    }
}

/// Walks records in order, a handful at a time.
///
/// A damaged record is passed over and reported to the engine's damage list.
pub trait Cursor: Send {
    /// Adds up to `max_rows` records to `rows`; at least one unless the end is reached.
    fn next(&mut self, max_rows: usize, rows: &mut Rows) -> Result<()>;

    /// The offset after the last record that was visited; a position for a cursor over the log.
    fn offset(&self) -> u64;
}
