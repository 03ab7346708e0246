//! The walk that finds the end of the log and the damage before it.
//!
//! A record is valid if its length sum, magic, position and checksums are. At an invalid record:
//!
//! - below the *trusted* position (the log is known to have reached it), or in a store that another
//!   system wrote, the walk searches for the next valid record. If there is one, the bytes between
//!   are a hole: it is reported and skipped, and the records after it are kept. If there is none,
//!   all bytes up to the trusted position are a hole; in the store of another system, the log ends
//!   at the invalid record. In such a store, a record after a hole whose store time goes back or
//!   whose queue offset was already seen is a remnant of an earlier use of the file.
//! - elsewhere the log ends there.
//!
//! An atomic batch without its end record is cut off at its begin record.

use super::Log;
use super::atomic::{self, BatchId, Boundary};
use super::bridge::is_bridge;
use super::search::Searcher;
use super::walker::{Step, Walker};
use crate::error::Result;
use crate::plant::{Bug, planted};
use crate::record::Flaw;
use crate::record::rocketmq::{Freshness, Record};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

/// How far past a flaw the walk searches for records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trust {
    /// Records are searched below this position. At or above it a flaw is the end.
    Below(u64),
    /// The whole log is searched: another system wrote it, and nothing states where it ended.
    Everywhere,
}

/// What a walk assumes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Belief {
    /// How far past a flaw it searches for records.
    pub trust: Trust,
    /// Records from here on must carry a whole-record checksum. A record without one is torn;
    /// perhaps only its body was stored.
    pub checksums_from: u64,
}

impl Belief {
    /// The log is known to reach `end`. Checksums are not required.
    pub fn below(end: u64) -> Belief {
        Belief {
            trust: Trust::Below(end),
            checksums_from: u64::MAX,
        }
    }
}

/// Bytes without a valid record. A log may have as many holes as records. So a report on one, which
/// has a path and a text, is made only when it is needed.
#[derive(Clone, Debug)]
pub struct Hole {
    /// The bytes.
    pub range: Range<u64>,
    /// What is wrong at the first of them.
    pub flaw: Flaw,
}

// Less than half of what the shortest record takes on the disk.
const _: () = assert!(size_of::<Hole>() <= 40);

/// What the walk found.
#[derive(Clone, Debug, Default)]
pub struct WalkResult {
    /// End of the log.
    pub end: u64,
    /// Holes, in order.
    pub holes: Vec<Hole>,
    /// Valid records.
    pub records: u64,
    /// Valid records that carry another record's checksum.
    pub stale_checksums: u64,
    /// Store time of the last record.
    pub last_store_ms: i64,
    /// Position of the last record.
    pub last: Option<u64>,
}

/// Walks the log from `from` and passes every valid record to `visit`, with its position and the
/// number of bytes in the holes before it.
pub fn walk(
    log: &Arc<Log>,
    from: u64,
    belief: Belief,
    visit: &mut dyn FnMut(&Record<'_>, u64, u64) -> Result<()>,
) -> Result<WalkResult> {
    let limit = log.files.last().map_or(from, |file| file.end());
    walk_range(log, from..limit, belief, visit)
}

/// [`walk`] over the part of the log that lies in `range`.
pub fn walk_range(
    log: &Arc<Log>,
    range: Range<u64>,
    belief: Belief,
    visit: &mut dyn FnMut(&Record<'_>, u64, u64) -> Result<()>,
) -> Result<WalkResult> {
    let (from, limit) = (range.start, range.end);
    let mut walk = Walk {
        log,
        trust: belief.trust,
        checksums_from: belief.checksums_from,
        limit,
        outcome: WalkResult {
            end: from,
            ..WalkResult::default()
        },
        batch: None,
        seen: HashMap::default(),
        suspicious: false,
        searcher: Searcher::default(),
        holes: 0,
        visit,
    };
    walk.run(Walker::recovering(log, from, limit))?;
    Ok(walk.outcome)
}

struct Walk<'a> {
    log: &'a Arc<Log>,
    trust: Trust,
    checksums_from: u64,
    limit: u64,
    outcome: WalkResult,
    /// The open atomic batch: its id, and the positions of its records.
    batch: Option<(BatchId, Vec<u64>)>,
    /// Highest queue offset seen, by topic and queue.
    seen: HashMap<(Vec<u8>, i32), i64, foldhash::fast::RandomState>,
    /// Whether a hole was passed: remnants of an earlier use of the file may follow.
    suspicious: bool,
    searcher: Searcher,
    /// Bytes in holes.
    holes: u64,
    visit: &'a mut dyn FnMut(&Record<'_>, u64, u64) -> Result<()>,
}

impl Walk<'_> {
    fn run(&mut self, mut walker: Walker) -> Result<()> {
        loop {
            let position = walker.position();
            let flaw = match walker.step()? {
                Step::End => break,
                Step::Blank => {
                    self.outcome.end = walker.position();
                    continue;
                }
                Step::Flawed(flaw) => flaw,
                Step::Record(at, layout) => {
                    let taken = match walker.record(at, layout) {
                        Some(record) => self.take(&record, position)?,
                        None => Some(Flaw::Length(0)),
                    };
                    match taken {
                        None => continue,
                        Some(flaw) => flaw,
                    }
                }
            };
            let Some(next) = self.after(position)? else {
                break;
            };
            self.hole(position..next, flaw)?;
            walker.move_to(next);
        }
        if let Some((_, positions)) = self.batch.take()
            && let Some(begin) = positions.first()
        {
            // Nothing follows an unfinished batch: the log ends where it began.
            self.outcome.end = *begin;
        }
        Ok(())
    }

    /// Accepts a valid record; returns the flaw of an invalid one.
    fn take(&mut self, record: &Record<'_>, position: u64) -> Result<Option<Flaw>> {
        match record.check(position) {
            Err(flaw) if !planted(Bug::NoChecksum) => return Ok(Some(flaw)),
            Err(_) => {}
            Ok(Freshness::Stale) => self.outcome.stale_checksums += 1,
            Ok(Freshness::Fresh) => {}
        }
        if position >= self.checksums_from && record.stated_crc().is_none() {
            return Ok(Some(Flaw::Field(
                "properties: the record's checksum is missing",
            )));
        }
        if self.is_of_an_earlier_life(record) {
            return Ok(Some(Flaw::Field(
                "queue offset or store time: the record is stale",
            )));
        }
        self.outcome.records += 1;
        self.outcome.last_store_ms = self.outcome.last_store_ms.max(record.store_timestamp());
        self.outcome.end = position + u64::from(record.layout().total_len);
        self.outcome.last = Some(position);
        if is_bridge(record) {
            // This record fills a hole, which may have held the end record of a batch.
            self.finish_batch()?;
            self.holes += u64::from(record.layout().total_len);
        }
        match (atomic::boundary(record), &mut self.batch) {
            (Some(Boundary::Begin(id)), _) => {
                self.finish_batch()?;
                self.batch = Some((id, vec![position]));
            }
            (Some(Boundary::End(id)), Some((open, positions))) if *open == id => {
                positions.push(position);
                self.finish_batch()?;
            }
            (_, Some((_, positions))) => positions.push(position),
            (_, None) => (self.visit)(record, position, self.holes)?,
        }
        Ok(None)
    }

    /// Passes on the records of the atomic batch.
    fn finish_batch(&mut self) -> Result<()> {
        let Some((_, positions)) = self.batch.take() else {
            return Ok(());
        };
        for position in positions {
            let mut walker = Walker::new(self.log, position, self.limit);
            if let Step::Record(at, layout) = walker.step()?
                && let Some(record) = walker.record(at, layout)
            {
                (self.visit)(&record, position, self.holes)?;
            }
        }
        Ok(())
    }

    /// Detects remnants after a hole by their times and offsets.
    fn is_of_an_earlier_life(&mut self, record: &Record<'_>) -> bool {
        if self.trust != Trust::Everywhere {
            return false;
        }
        if self.suspicious && record.store_timestamp() < self.outcome.last_store_ms {
            return true;
        }
        if !record.is_queued() {
            return false;
        }
        let key = (record.topic().to_vec(), record.queue_id());
        let offset = record.queue_offset();
        match self.seen.get_mut(&key) {
            Some(seen) if self.suspicious && offset <= *seen => true,
            Some(seen) => {
                *seen = offset.max(*seen);
                false
            }
            None => {
                self.seen.insert(key, offset);
                false
            }
        }
    }

    /// Position of the next valid record after a flaw; `None` if the log ends at the flaw.
    fn after(&mut self, position: u64) -> Result<Option<u64>> {
        let limit = match self.trust {
            Trust::Everywhere => self.limit,
            Trust::Below(trusted) if position < trusted => self.limit.min(trusted),
            Trust::Below(_) => return Ok(None),
        };
        self.suspicious = true;
        let mut from = position + 1;
        loop {
            let Some(next) = self.searcher.next_record(self.log, from, limit)? else {
                // Nothing is valid up to the trusted position: all of it is a hole.
                let Trust::Below(trusted) = self.trust else {
                    return Ok(None);
                };
                return Ok(Some(trusted.min(self.limit)));
            };
            if self.leads_on(next)? {
                return Ok(Some(next));
            }
            from = next + 1;
        }
    }

    /// Whether a candidate at `position` is not a remnant: a record that is not older than the last
    /// one, or a BLANK that leads to such a record.
    fn leads_on(&self, position: u64) -> Result<bool> {
        let mut walker = Walker::new(self.log, position, self.limit);
        let mut step = walker.step()?;
        if matches!(step, Step::Blank) {
            step = walker.step()?;
        }
        let Step::Record(at, layout) = step else {
            return Ok(false);
        };
        let Some(record) = walker.record(at, layout) else {
            return Ok(false);
        };
        let at = walker.position() - u64::from(layout.total_len);
        Ok(record.check(at).is_ok() && record.store_timestamp() >= self.outcome.last_store_ms)
    }

    fn hole(&mut self, range: Range<u64>, flaw: Flaw) -> Result<()> {
        self.finish_batch()?;
        self.holes += range.end - range.start;
        self.outcome.end = range.end;
        self.outcome.holes.push(Hole { range, flaw });
        Ok(())
    }
}
