//! A cursor over bytes that were read from an archive: whole blocks of a log file.

use crate::engine::archive::blocks::Wanted;
use crate::engine::commit_log::log::blank::is_blank;
use crate::engine::commit_log::log::search::search;
use crate::engine::commit_log::log::sound::Depth;
use crate::engine::fetched::{Expected, Fetched};
use crate::engine::{Check, Cursor, Damage, Filter, Rows};
use crate::error::{At, Op, Result};
use crate::record::Flaw;
use crate::record::rocketmq::layout::{MAGIC_BLANK, extent};
use crate::record::rocketmq::{Layout, Record};
use crate::region::Region;
use crate::sync::Mutex;
use std::path::Path;
use std::sync::Arc;

/// Walks records in order of position and returns the wanted ones.
///
/// Bytes that are not records are skipped and reported as damage, and so are blocks that differ
/// from what was archived.
pub struct ByteCursor {
    region: Arc<Region>,
    /// Where its bytes are from.
    from: Fetched,
    at: usize,
    wanted: Wanted,
    filter: Filter,
    check: Check,
}

impl ByteCursor {
    /// A cursor over a copy of `bytes`, which begin at `position` of the log and were read from
    /// `path`. `blocks` is what they should be; checksums are compared only if `check` asks for
    /// them.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if there is no memory for the copy.
    pub fn new(
        bytes: &[u8],
        (position, path): (u64, &Path),
        blocks: &[Expected],
        wanted: Wanted,
        (filter, check): (Filter, Check),
        damage: &Arc<Mutex<Vec<Damage>>>,
    ) -> Result<ByteCursor> {
        let region = Region::anonymous(bytes.len(), path).at(Op::Map, path)?;
        // Faulted in one by one during the copy, the pages would cost more than the copy.
        let _ = region.populate(0, bytes.len());
        region.write(0, bytes).at(Op::Map, path)?;
        region.publish(bytes.len());
        let cursor = ByteCursor {
            region: Arc::new(region),
            from: Fetched {
                path: path.to_owned(),
                position,
                damage: Arc::clone(damage),
            },
            at: 0,
            wanted,
            filter,
            check,
        };
        let run = |at, len| cursor.run(at, len);
        cursor.from.compare(blocks, check, run);
        Ok(cursor)
    }

    /// The bytes at a place. They are in memory without a file, so a load cannot fault.
    fn run(&self, at: usize, len: usize) -> &[u8] {
        self.region.run(at, len).unwrap_or_default()
    }

    /// Reads at the current place and moves past it. Returns the place and layout of a wanted
    /// record.
    fn step(&mut self) -> Option<(usize, Layout)> {
        let at = self.at;
        let position = self.from.position + at as u64;
        let region = Arc::clone(&self.region);
        let here = extent(|len| region.run(at, len)).unwrap_or_default();
        let depth = Depth::from(self.check);
        let record = Record::parse(here);
        let record = record.and_then(|record| depth.check(&record, position).map(|_| record));
        match record {
            Ok(record) => {
                self.at += record.layout().total_len as usize;
                self.is_wanted(&record).then_some((at, *record.layout()))
            }
            // A BLANK covers the rest of its file, and so the rest of these bytes.
            Err(Flaw::Magic(MAGIC_BLANK)) if is_blank(here, self.region.readable() - at) => {
                self.at = self.region.readable();
                None
            }
            Err(flaw) => {
                let next = search(
                    &self.region,
                    self.from.position,
                    at + 1..self.region.readable(),
                    self.region.readable(),
                );
                // Memory, as in `run`.
                let next = next.unwrap_or_default();
                let next = next.map_or(self.region.readable(), |found| {
                    crate::num::index(found - self.from.position)
                });
                self.from.tell(at, next - at, flaw.to_string());
                self.at = next;
                None
            }
        }
    }

    fn is_wanted(&self, record: &Record<'_>) -> bool {
        let (Ok(queue), Ok(offset)) = (
            u32::try_from(record.queue_id()),
            u64::try_from(record.queue_offset()),
        ) else {
            return false;
        };
        let ranges = self.wanted.get(record.topic());
        let ranges = ranges.and_then(|queues| queues.get(&queue));
        ranges.is_some_and(|ranges| ranges.iter().any(|range| range.contains(&offset)))
            && record.is_queued()
            && (self.filter.is_empty() || self.filter.passes(&(*record).into()))
    }
}

impl Cursor for ByteCursor {
    fn next(&mut self, max_rows: usize, rows: &mut Rows) -> Result<()> {
        let target = rows.rows.len() + max_rows;
        while rows.rows.len() < target && self.at < self.region.readable() {
            if let Some((at, layout)) = self.step() {
                rows.push(&self.region, at, layout);
            }
        }
        Ok(())
    }

    fn offset(&self) -> u64 {
        self.from.position + self.at as u64
    }
}
