//! The walk that finds the end of the log, and what is damaged before it.
//!
//! A record counts if its length sum, magic, position and checksums hold. Where one does not:
//!
//! - below the *trusted* position (what is known to have been there), or in a store that another
//!   system wrote, the walk looks for the next record that holds. If there is one, the bytes
//!   between are a hole: reported, passed over, nothing behind it is lost. Behind a hole, a store
//!   time that goes back or a queue offset that was met already marks a record of an earlier life
//!   of the file.
//! - elsewhere the log ends there.
//!
//! An atomic batch without its end record is cut back to its begin record.

use super::Log;
use super::atomic::{self, BatchId, Boundary};
use super::bridge::is_bridge;
use super::search::next_record;
use super::walker::{Step, Walker};
use crate::engine::Damage;
use crate::error::Result;
use crate::plant::{Bug, planted};
use crate::record::Flaw;
use crate::record::rocketmq::{Freshness, Record};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

/// How far beyond a flaw the walk looks for records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trust {
    /// Below this position records are looked for, at or above it a flaw is the end.
    Below(u64),
    /// Everywhere: another system wrote the log, and nothing tells where it ended.
    Everywhere,
}

/// What a walk relies on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Belief {
    /// How far beyond a flaw it looks for records.
    pub trust: Trust,
    /// Records from here on carry a checksum over the whole. One without has lost its end: its
    /// body alone may be there.
    pub checksums_from: u64,
}

impl Belief {
    /// Everything below `end` is there, with or without checksums.
    pub fn below(end: u64) -> Belief {
        Belief {
            trust: Trust::Below(end),
            checksums_from: u64::MAX,
        }
    }
}

/// What the walk found.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// End of the log.
    pub end: u64,
    /// Holes.
    pub damage: Vec<Damage>,
    /// Records that hold.
    pub records: u64,
    /// Of these, records with another record's checksum.
    pub stale_checksums: u64,
    /// Store time of the last record.
    pub last_store_ms: i64,
}

/// Walks the log from `from` and hands every record that holds to `visit`, with its position and
/// the number of bytes that holes before it have.
pub fn walk(
    log: &Arc<Log>,
    from: u64,
    belief: Belief,
    visit: &mut dyn FnMut(&Record<'_>, u64, u64) -> Result<()>,
) -> Result<Outcome> {
    let limit = log.files.last().map_or(from, |file| file.end());
    let mut walk = Walk {
        log,
        trust: belief.trust,
        checksums_from: belief.checksums_from,
        limit,
        outcome: Outcome {
            end: from,
            ..Outcome::default()
        },
        batch: None,
        seen: HashMap::default(),
        suspicious: false,
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
    outcome: Outcome,
    /// An atomic batch that is open: its id, and the positions of its records.
    batch: Option<(BatchId, Vec<u64>)>,
    /// Highest queue offset met, by topic and queue.
    seen: HashMap<(Vec<u8>, i32), i64, foldhash::fast::RandomState>,
    /// Whether a hole lies behind: records of an earlier life may follow.
    suspicious: bool,
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
            let Some(next) = self.behind(position)? else {
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

    /// Takes a record that holds; gives back what is wrong with one that does not.
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
        if is_bridge(record) {
            // A hole was here: it may have been the end record of a batch.
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

    /// Hands the records of an atomic batch on.
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

    /// Keeps account of times and offsets where a hole may be followed by older records.
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

    /// Position of the next record that holds after a flaw, where one is looked for.
    fn behind(&mut self, position: u64) -> Result<Option<u64>> {
        let limit = match self.trust {
            Trust::Everywhere => self.limit,
            Trust::Below(trusted) if position < trusted => self.limit.min(trusted),
            Trust::Below(_) => return Ok(None),
        };
        self.suspicious = true;
        let mut from = position + 1;
        loop {
            let Some(next) = next_record(self.log, from, limit)? else {
                // Nothing holds up to the trusted position: all of it is a hole.
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

    /// Whether what holds at `position` is no leftover: a record that is not older than the last
    /// one, or a filler that leads to such a record.
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

    fn hole(&mut self, hole: Range<u64>, flaw: Flaw) -> Result<()> {
        self.finish_batch()?;
        self.holes += hole.end - hole.start;
        self.outcome.end = hole.end;
        self.outcome.damage.push(self.log.damage(hole, flaw));
        Ok(())
    }
}
