//! Cursors over the records of a queue, in order of offset, or of the log, in order of position.

use super::locate::Search;
use super::lost::Scene;
use super::meant::check_record;
use crate::clock::{Clock, RealClock};
use crate::engine::commit_log::log::Log;
use crate::engine::commit_log::log::sound::{Sound, SoundWalk};
use crate::engine::commit_log::queues::queue::entry::QueueEntry;
use crate::engine::commit_log::queues::queue::{ConsumeQueue, EntryMap};
use crate::engine::report::Report;
use crate::engine::{Check, Cursor, Filter, Rows, STEP, Topic};
use crate::error::{At, Op, Result};
use crate::num::index;
use crate::record::Flaw;
use crate::record::rocketmq::properties::java_hash;
use crate::record::rocketmq::{Freshness, Record};
use crate::region::Region;
use crate::region::guard;
use std::ops::Range;
use std::sync::Arc;

/// How many bytes of records ahead of the current one the cursor prefetches, and the maximum bytes
/// prefetched of a record. The records of a queue are scattered over the log, so the processor
/// cannot guess the next one; the entries tell where it is.
const PREFETCH_AHEAD: u64 = 4096;
const PREFETCH_LEN: u32 = 4096;
/// A step walks about this many bytes of the log at most to find lost messages, so that its caller
/// can check whether to go on.
const STEP_LEN: u64 = 1 << 20;
/// The same for a call that cannot be interrupted. The next reader continues the search.
const CALL_LEN: u64 = 64 << 20;

/// How far a cursor walks.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pace {
    /// A bounded distance, so that the caller can check whether to go on.
    Step,
    /// As far as the caller asks for.
    Call,
}

/// Walks the entries of a queue.
pub struct QueueCursor {
    log: Arc<Log>,
    topic: Arc<Topic>,
    queue: Arc<ConsumeQueue>,
    range: Range<u64>,
    filter: Filter,
    tag_codes: Vec<i64>,
    check: Check,
    report: Arc<Report>,
    end: u64,
    entries: Option<EntryMap>,
    file: Option<(Range<u64>, Arc<Region>)>,
    search: Search,
    /// Offsets passed over since the last rows because retention has deleted their messages.
    retired: u64,
    /// Fillers whose lost messages were reported.
    told: Range<u64>,
    /// How many bytes of the log the call may still walk to find lost messages.
    budget: u64,
    /// Whether the budget ran out at the last filler.
    is_behind: bool,
}

impl QueueCursor {
    /// A cursor over `range` of a queue, cut to its bounds.
    pub fn new(
        log: &Arc<Log>,
        topic: Arc<Topic>,
        queue: Arc<ConsumeQueue>,
        range: Range<u64>,
        filter: &Filter,
        check: Check,
        report: &Arc<Report>,
    ) -> QueueCursor {
        let start = range.start.clamp(queue.min(), queue.max());
        let retired = start.saturating_sub(range.start);
        let range = start..range.end.clamp(start, queue.max());
        let tag_codes = filter
            .tags
            .iter()
            .map(|tag| i64::from(java_hash(tag.as_bytes())));
        QueueCursor {
            log: Arc::clone(log),
            tag_codes: tag_codes.collect(),
            topic,
            queue,
            range,
            filter: filter.clone(),
            check,
            report: Arc::clone(report),
            end: log.published(),
            entries: None,
            file: None,
            search: Search::default(),
            retired,
            told: 0..0,
            budget: 0,
            is_behind: false,
        }
    }

    /// Adds up to `max_rows` records of entries below `end`.
    fn walk(&mut self, end: u64, max_rows: usize, rows: &mut Rows, pace: Pace) -> Result<()> {
        guard::renew_at(RealClock.coarse_ms());
        self.budget = match pace {
            Pace::Step => STEP_LEN,
            Pace::Call => CALL_LEN,
        };
        let target = rows.rows.len() + max_rows;
        while self.range.start < end && rows.rows.len() < target {
            let number = self.range.start;
            self.range.start += 1;
            let taken = self.take(number, rows);
            if std::mem::take(&mut self.is_behind) && pace == Pace::Step {
                // The next step begins with the filler again.
                self.range.start = number;
                break;
            }
            if matches!(taken, Ok(None)) || self.skip_retired(number)? {
                continue;
            }
            if let Some(flaw) = taken? {
                self.locate(number, flaw, rows)?;
            }
        }
        rows.retired += std::mem::take(&mut self.retired);
        Ok(())
    }

    /// Adds the record of an entry if it passes the filter. Returns the flaw of an invalid entry or
    /// record.
    #[inline]
    fn take(&mut self, number: u64, rows: &mut Rows) -> Result<Option<Flaw>> {
        if self
            .entries
            .as_ref()
            .is_none_or(|map| number < map.first || number >= map.end)
        {
            self.entries = self.queue.map_of(number)?;
        }
        let Some(entries) = &self.entries else {
            return Ok(Some(Flaw::Empty));
        };
        let entry = entries.entry(number)?;
        if entry.is_filler() {
            if entry == QueueEntry::FILLER && !self.told.contains(&number) {
                self.pass_filler(number);
            }
            return Ok(None);
        }
        if !entry.is_message(self.end) {
            return Ok(Some(Flaw::Field("queue entry")));
        }
        // The code of a delayed message is a time, which is wider than the hash of a tag.
        let is_hash = i32::try_from(entry.tags_code).is_ok();
        if !self.tag_codes.is_empty() && is_hash && !self.tag_codes.contains(&entry.tags_code) {
            return Ok(None);
        }
        if self
            .file
            .as_ref()
            .is_none_or(|(range, _)| !range.contains(&entry.position))
        {
            let Some(file) = self.log.files.find(entry.position) else {
                return Ok(Some(Flaw::Empty));
            };
            let region = self.log.files.map(&file)?;
            self.file = Some((file.start()..file.end(), region));
        }
        let Some((range, region)) = &self.file else {
            return Ok(None);
        };
        let start = index(entry.position - range.start);
        let bytes = region.slice(start, entry.size as usize);
        let Some(bytes) = bytes.at(Op::Read, region.path())? else {
            return Ok(Some(Flaw::Length(i64::from(entry.size))));
        };
        prefetch(entries, number, &entry, range, region);
        let meant = (&*self.topic, self.queue.id, number);
        let record = match check_record(bytes, entry.position, meant) {
            Ok(record) if record.layout().total_len == entry.size => record,
            Ok(_) => return Ok(Some(Flaw::Field("size in the queue entry"))),
            Err(flaw) => return Ok(Some(flaw)),
        };
        Ok(keep(
            self.check,
            &self.filter,
            &self.report,
            &record,
            entry.position,
        )
        .map_or_else(Some, |kept| {
            if kept {
                rows.push(region, start, *record.layout());
            }
            None
        }))
    }

    /// Reports the lost messages of the fillers around `number`.
    #[cold]
    fn pass_filler(&mut self, number: u64) {
        let scene = Scene {
            log: &self.log,
            topic: &self.topic,
            queue: &self.queue,
            report: &self.report,
        };
        match scene.tell(number, &mut self.budget) {
            Some(told) => self.told = told,
            None => self.is_behind = true,
        }
    }

    /// Skips what retention has deleted since the cursor was created, if that includes `number`.
    #[cold]
    fn skip_retired(&mut self, number: u64) -> Result<bool> {
        if self.log.source.is_some() {
            let min = self.log.min_position();
            self.queue.follow_min(min)?;
            // `follow_min` does nothing if it ran for this minimum before, when the known end of
            // the queue may have been lower.
            self.queue.raise_min(min)?;
        }
        let min = self.queue.min();
        if number < min {
            self.range.start = min.min(self.range.end);
            self.retired += self.range.start - number;
        }
        Ok(number < min)
    }

    /// Handles an entry that does not point to its record. The log may still have the record.
    #[cold]
    fn locate(&mut self, number: u64, flaw: Flaw, rows: &mut Rows) -> Result<()> {
        let found = self
            .search
            .locate(&self.log, &self.topic, &self.queue, number)?;
        let end = self.log.published();
        let entry = self.queue.entry(number)?;
        let damage = match entry.filter(|entry| entry.is_message(end)) {
            Some(entry) if found.is_none() => self.log.damage(entry.position..entry.end(), flaw),
            // The entry is damaged.
            _ => self.queue.damage(number, flaw),
        };
        let name = || (self.topic.name.to_string(), self.queue.id, number);
        let lost = found.is_none().then(name);
        self.report.add(damage.losing(lost));
        if let Some(position) = found {
            let message = self.log.require(position)?;
            let record = message.record().rocketmq();
            let kept = keep(self.check, &self.filter, &self.report, &record, position);
            if kept == Ok(true) {
                let (region, start) = message.place();
                rows.push(region, start, *record.layout());
            }
        }
        Ok(())
    }
}

/// Prefetches a record that will be read soon, if it is in the same file.
#[inline]
fn prefetch(
    entries: &EntryMap,
    number: u64,
    entry: &QueueEntry,
    file: &Range<u64>,
    region: &Region,
) {
    let records = PREFETCH_AHEAD >> (u32::BITS - entry.size.leading_zeros());
    let number = number + records.max(1);
    if number < entries.end
        && let Ok(next) = entries.entry(number)
        && file.contains(&next.position)
    {
        let start = index(next.position - file.start);
        region.prefetch(start, next.size.min(PREFETCH_LEN) as usize);
    }
}

/// Whether a record passes the filter. First verifies its checksums if `check` asks for that.
#[inline]
fn keep(
    check: Check,
    filter: &Filter,
    report: &Report,
    record: &Record<'_>,
    position: u64,
) -> Result<bool, Flaw> {
    if check == Check::Full && record.check(position)? == Freshness::Stale {
        report.stale();
    }
    Ok(filter.is_empty() || filter.passes(&(*record).into()))
}

impl Cursor for QueueCursor {
    fn next(&mut self, max_rows: usize, rows: &mut Rows) -> Result<()> {
        self.walk(self.range.end, max_rows, rows, Pace::Call)
    }

    fn step(&mut self, max_rows: usize, rows: &mut Rows) -> Result<bool> {
        let end = self.range.start.saturating_add(STEP);
        self.walk(self.range.end.min(end), max_rows, rows, Pace::Step)?;
        Ok(!self.range.is_empty())
    }

    fn offset(&self) -> u64 {
        self.range.start
    }
}

/// Walks the log.
pub struct LogCursor {
    log: Arc<Log>,
    walk: SoundWalk,
    report: Arc<Report>,
}

impl LogCursor {
    /// A cursor over the published log.
    pub fn new(log: &Arc<Log>, check: Check, report: &Arc<Report>) -> LogCursor {
        let range = log.min_position()..log.published();
        LogCursor {
            log: Arc::clone(log),
            walk: SoundWalk::new(log, range, check.into()),
            report: Arc::clone(report),
        }
    }
}

impl Cursor for LogCursor {
    fn next(&mut self, max_rows: usize, rows: &mut Rows) -> Result<()> {
        guard::renew_at(RealClock.coarse_ms());
        let target = rows.rows.len() + max_rows;
        while rows.rows.len() < target {
            match self.walk.next()? {
                None => break,
                Some(Sound::Hole(hole)) => self.report.add(self.log.damage(hole.range, hole.flaw)),
                Some(Sound::Record(record, place)) => {
                    if place.freshness == Freshness::Stale {
                        self.report.stale();
                    }
                    let layout = *record.layout();
                    let Some(region) = self.walk.region() else {
                        break;
                    };
                    rows.push(region, place.at, layout);
                }
            }
        }
        Ok(())
    }

    fn offset(&self) -> u64 {
        self.walk.position()
    }
}
