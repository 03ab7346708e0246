//! Reads the source in an order that suits the target.
//!
//! A commit log is read by position, so that each of its pages is read once. A partition log is
//! read by time, so that the store times of the target, which never decrease, can be those of the
//! messages.
//!
//! A time in the future does not tell when a message was stored. If it became a store time, all
//! later messages in the target would get it too. So such a message gets the time of the one before
//! it in its queue.

use super::sink::{Sink, time_of};
use super::{OFFSET, gap, names};
use crate::engine::{Check, Cursor, Engine, Filter, Rows, Topic};
use crate::error::{Error, Result};
use crate::options::EngineKind;
use crate::record::{Message, Row};
use std::cell::Cell;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::sync::Arc;

/// Rows that are read at a time.
const ROWS: usize = 512;
/// Offsets between two reports of the progress. A report is also where Ctrl-C ends the call.
const REPORT: u64 = 1 << 13;

/// A topic of the source, and its counterpart in the target.
pub struct LaneTopic {
    source: Arc<Topic>,
    /// Its name in the target.
    pub target: String,
    /// How many queues it needs.
    pub queues: u32,
}

/// A queue, and how far it is copied.
pub struct Lane {
    /// Index of its topic.
    pub topic: usize,
    /// Its number.
    pub queue: u32,
    start: u64,
    /// The next offset to be copied.
    next: u64,
    end: u64,
    /// Store time in ms of its last message in the target, if an earlier call copied one.
    stored: Option<i64>,
}

/// All queues.
pub struct Lanes {
    /// The topics.
    pub topics: Vec<LaneTopic>,
    lanes: Vec<Lane>,
    /// Offsets done, all offsets, and how many were done at the last report.
    done: u64,
    total: u64,
    reported: u64,
    /// The wall clock when the call began, in ms.
    now_ms: i64,
}

/// The end of a read.
type Callback<'a> = &'a mut dyn FnMut(u64, u64) -> bool;

impl Lanes {
    /// The queues of these topics, of which each pair has the names in source and target. Times
    /// after `now_ms` are in the future.
    pub fn of(source: &dyn Engine, topics: &[(String, String)], now_ms: i64) -> Result<Lanes> {
        let mut found = Lanes {
            topics: Vec::new(),
            lanes: Vec::new(),
            done: 0,
            total: 0,
            reported: 0,
            now_ms,
        };
        for (name, target) in topics {
            // A topic that was deleted before a conversion is resumed has no queues.
            let Some(topic) = source.topics().get(name) else {
                continue;
            };
            let mut queues = source.queues(&topic);
            queues.sort_unstable();
            for queue in queues {
                let bounds = source.bounds(&topic, queue)?.unwrap_or_default();
                found.total += bounds.end - bounds.start;
                found.lanes.push(Lane {
                    topic: found.topics.len(),
                    queue,
                    start: bounds.start,
                    next: bounds.start,
                    end: bounds.end,
                    stored: None,
                });
            }
            found.topics.push(LaneTopic {
                queues: names::queues(source, &topic),
                target: target.clone(),
                source: topic,
            });
        }
        Ok(found)
    }

    /// Checks that each queue begins at offset 0.
    pub fn check_starts(&self) -> Result<()> {
        let later = self.lanes.iter().find(|lane| lane.start > 0);
        later.map_or(Ok(()), |lane| Err(self.gap(lane, 0)))
    }

    /// Finds in the target where each queue continues.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidOption`] if the last message of a queue in the target differs from the one
    /// in the source, which then is not the source with which the conversion began.
    pub fn resume(
        &mut self,
        source: &dyn Engine,
        target: &dyn Engine,
        renumber: bool,
    ) -> Result<()> {
        for lane in &mut self.lanes {
            let Some(LaneTopic {
                source: from,
                target: name,
                ..
            }) = self.topics.get(lane.topic)
            else {
                continue;
            };
            let Some(topic) = target.topics().get(name) else {
                continue;
            };
            let bounds = target.bounds(&topic, lane.queue)?.unwrap_or_default();
            if bounds.is_empty() {
                continue;
            }
            let mut next = bounds.end;
            let last = target.get(&topic, lane.queue, bounds.end - 1)?;
            lane.stored = last.as_ref().map(|last| last.record().store_timestamp());
            if renumber {
                let old = last.as_ref().and_then(|last| {
                    let old = last.record().property(OFFSET)?;
                    str::from_utf8(old).ok()?.parse::<u64>().ok()
                });
                next = old.map_or(lane.start, |old| old.saturating_add(1));
            }
            check_same(source, last.as_ref(), (from, lane.queue, next))?;
            self.done += next.min(lane.end) - lane.next.min(next);
            lane.next = next;
        }
        Ok(())
    }

    fn gap(&self, lane: &Lane, missing: u64) -> Error {
        let name = self.topics.get(lane.topic).map(|topic| &*topic.source.name);
        gap(lane.queue, name.unwrap_or_default(), missing)
    }

    fn topic(&self, lane: &Lane) -> &LaneTopic {
        let Some(topic) = self.topics.get(lane.topic) else {
            unreachable!("a lane has the index of its topic")
        };
        topic
    }

    /// Whether a message is to be copied next; an error if offsets before it are missing.
    fn takes(&self, number: usize, offset: u64, renumber: bool) -> Result<bool> {
        let Some(lane) = self.lanes.get(number) else {
            return Ok(false);
        };
        if offset < lane.next || offset >= lane.end {
            return Ok(false);
        }
        match offset > lane.next && !renumber {
            true => Err(self.gap(lane, lane.next)),
            false => Ok(true),
        }
    }

    /// Notes that everything before `next` of a queue is done.
    fn advance(&mut self, number: usize, next: u64) {
        if let Some(lane) = self.lanes.get_mut(number) {
            self.done += next.saturating_sub(lane.next);
            lane.next = lane.next.max(next);
        }
    }

    fn goes_on(&mut self, progress: Callback<'_>) -> bool {
        if self.done - self.reported < REPORT {
            return true;
        }
        self.reported = self.done;
        progress(self.done, self.total)
    }

    /// Checks that all was copied, or notes that nothing is left.
    fn finish(&mut self, renumber: bool, progress: Callback<'_>) -> Result<()> {
        let left = self.lanes.iter().find(|lane| lane.next < lane.end);
        if let (Some(lane), false) = (left, renumber) {
            return Err(self.gap(lane, lane.next));
        }
        progress(self.total, self.total);
        Ok(())
    }
}

/// Checks that the last copied message of a queue, the one before the offset `next`, is still the
/// same in the source. Passes if the source no longer has a message there.
fn check_same(
    source: &dyn Engine,
    last: Option<&Message>,
    (topic, queue, next): (&Topic, u32, u64),
) -> Result<()> {
    let (Some(last), Some(offset)) = (last, next.checked_sub(1)) else {
        return Ok(());
    };
    let copied = match source.get(topic, queue, offset) {
        Ok(Some(copied)) => copied,
        Ok(None) | Err(Error::OffsetOutOfRange { .. } | Error::Corrupt { .. }) => return Ok(()),
        Err(error) => return Err(error),
    };
    if copied.body()? == last.body()? {
        return Ok(());
    }
    let reason = format!(
        "message {offset} of topic {:?} queue {queue} differs from the one that the unfinished \
         conversion copied; to start again, delete the directory that ends in .converting",
        topic.name
    );
    Err(Error::option("source", "a different store", reason))
}

/// Checks that no queue has a gap in its offsets. Queues of a commit log have gaps only after
/// damage. Returns false if `progress` has stopped it.
pub fn check_dense(source: &dyn Engine, lanes: &Lanes, progress: Callback<'_>) -> Result<bool> {
    if source.meanings().kind == EngineKind::CommitLog {
        return Ok(true);
    }
    let mut seen = 0;
    let mut rows = Rows::default();
    for lane in &lanes.lanes {
        let topic = &lanes.topic(lane).source;
        let (range, all) = (lane.start..lane.end, Filter::default());
        let mut cursor = source.cursor(topic, lane.queue, range, &all, Check::Structure)?;
        let mut next = lane.start;
        while cursor.refill(ROWS, &mut rows)? {
            for row in rows.rows.iter().filter_map(|row| rows.record(row)) {
                if row.queue_offset().cast_unsigned() != next {
                    return Err(lanes.gap(lane, next));
                }
                next += 1;
            }
            // Nothing is copied yet, but `progress` may stop the call.
            seen += rows.rows.len() as u64;
            if seen >= REPORT && !progress(0, lanes.total) {
                return Ok(false);
            }
            seen %= REPORT;
        }
        if next != lane.end {
            return Err(lanes.gap(lane, next));
        }
    }
    Ok(true)
}

/// Copies messages in the order of the log. Returns false if `progress` has stopped it.
pub fn by_position(
    source: &dyn Engine,
    lanes: &mut Lanes,
    sink: &mut Sink<'_>,
    progress: Callback<'_>,
) -> Result<bool> {
    let mut numbers: HashMap<(Vec<u8>, i32), usize> = HashMap::new();
    for (number, lane) in lanes.lanes.iter().enumerate() {
        let name = lanes.topic(lane).source.name.as_bytes().to_vec();
        numbers.insert((name, lane.queue.cast_signed()), number);
    }
    let mut cursor = source.log_cursor(Check::Full)?;
    let mut rows = Rows::default();
    let mut at: (Vec<u8>, i32) = Default::default();
    while cursor.refill(ROWS, &mut rows)? {
        for row in rows.rows.iter().filter_map(|row| rows.record(row)) {
            if !row.is_queued() {
                continue;
            }
            row.topic().clone_into(&mut at.0);
            at.1 = row.queue_id();
            if let Some(number) = numbers.get(&at) {
                // A partition log takes the time of the message itself.
                copy(lanes, *number, &row, (sink, 0))?;
            }
        }
        if !lanes.goes_on(progress) {
            return Ok(false);
        }
    }
    lanes.finish(sink.renumbers(), progress)?;
    Ok(true)
}

/// One queue that is being read.
struct Feed {
    cursor: Box<dyn Cursor>,
    rows: Rows,
    /// Index of the next row.
    at: usize,
    /// Store time of the row before the next one, in ms, if known.
    stored: Option<i64>,
    now_ms: i64,
}

impl Feed {
    /// The next row; `None` at the end.
    fn row(&mut self) -> Result<Option<Row<'_>>> {
        if self.at == self.rows.rows.len() {
            self.rows.clear();
            self.at = 0;
            self.cursor.next(ROWS, &mut self.rows)?;
        }
        let rows = self.rows.rows.get(self.at..).unwrap_or_default();
        let mut rows = rows.iter().filter_map(|row| self.rows.record(row));
        Ok(rows.next())
    }

    /// When the next row was stored, in ms; `None` at the end. If its own time is in the future,
    /// that of the row before it. For the first rows of a queue, `first` finds that of the first
    /// row whose time is not.
    fn time(&mut self, first: impl FnOnce() -> Result<Option<i64>>) -> Result<Option<i64>> {
        let (before, now_ms) = (self.stored, self.now_ms);
        let Some(row) = self.row()? else {
            return Ok(None);
        };
        let time = match told(&row, now_ms).or(before) {
            Some(time) => time,
            None => first()?.unwrap_or(now_ms),
        };
        self.stored = Some(time);
        Ok(self.stored)
    }
}

/// When a row was stored, in ms, if its time is not in the future.
fn told(row: &Row<'_>, now_ms: i64) -> Option<i64> {
    Some(time_of(row)).filter(|time| *time <= now_ms)
}

/// The first time of a queue that is not in the future, `None` if there is none or `go_on` has
/// returned false. Another cursor searches for it: there may be any number of rows before it.
fn first_told(
    source: &dyn Engine,
    (topic, lane): (&Topic, &Lane),
    now_ms: i64,
    go_on: &mut dyn FnMut() -> bool,
) -> Result<Option<i64>> {
    let (range, all) = (lane.next..lane.end, Filter::default());
    let mut cursor = source.cursor(topic, lane.queue, range, &all, Check::Full)?;
    let mut rows = Rows::default();
    let mut seen = 0;
    while cursor.refill(ROWS, &mut rows)? {
        let mut found = rows.rows.iter().filter_map(|row| rows.record(row));
        if let Some(time) = found.find_map(|row| told(&row, now_ms)) {
            return Ok(Some(time));
        }
        seen += rows.rows.len() as u64;
        if seen >= REPORT && !go_on() {
            return Ok(None);
        }
        seen %= REPORT;
    }
    Ok(None)
}

/// Copies messages in the order of their times, and those of one queue in the order of their
/// offsets. Returns false if `progress` has stopped it.
///
/// Holds about one batch of each queue in memory.
pub fn by_time(
    source: &dyn Engine,
    lanes: &mut Lanes,
    sink: &mut Sink<'_>,
    progress: Callback<'_>,
) -> Result<bool> {
    let mut feeds = Vec::with_capacity(lanes.lanes.len());
    let mut order = BinaryHeap::new();
    let goes_on = Cell::new(true);
    let mut go_on = || {
        goes_on.set(progress(lanes.done, lanes.total));
        goes_on.get()
    };
    for (number, lane) in lanes.lanes.iter().enumerate() {
        let topic = &lanes.topic(lane).source;
        let range = lane.next.min(lane.end)..lane.end;
        let all = Filter::default();
        let mut feed = Feed {
            cursor: source.cursor(topic, lane.queue, range, &all, Check::Full)?,
            rows: Rows::default(),
            at: 0,
            stored: lane.stored.filter(|time| *time <= lanes.now_ms),
            now_ms: lanes.now_ms,
        };
        let first = || first_told(source, (topic, lane), lanes.now_ms, &mut go_on);
        if let Some(time) = feed.time(first)? {
            order.push(Reverse((time, number)));
        }
        if !goes_on.get() {
            return Ok(false);
        }
        feeds.push(feed);
    }
    while let Some(Reverse((time, number))) = order.pop() {
        let Some(feed) = feeds.get_mut(number) else {
            unreachable!("there is a feed for each lane")
        };
        let row = feed.rows.rows.get(feed.at);
        if let Some(row) = row.and_then(|row| feed.rows.record(row)) {
            copy(lanes, number, &row, (sink, time))?;
        }
        feed.at += 1;
        if let Some(time) = feed.time(|| Ok(None))? {
            order.push(Reverse((time, number)));
        }
        if !lanes.goes_on(progress) {
            return Ok(false);
        }
    }
    lanes.finish(sink.renumbers(), progress)?;
    Ok(true)
}

/// Copies a message of a queue, stored at `time`, unless it is already copied.
fn copy(
    lanes: &mut Lanes,
    number: usize,
    row: &Row<'_>,
    (sink, time): (&mut Sink<'_>, i64),
) -> Result<()> {
    let offset = row.queue_offset().cast_unsigned();
    if lanes.takes(number, offset, sink.renumbers())? {
        let topic = lanes.lanes.get(number).map_or(0, |lane| lane.topic);
        sink.add(topic, row, time)?;
        lanes.advance(number, offset + 1);
    }
    Ok(())
}
