//! The memory engine: messages live as long as the store or a reader holds them.
//!
//! Records have the same bytes as in a log, so messages, scans and exports need no second code
//! path. The position of a record is its number. The engine is also the model that other engines
//! are tested against, so it is kept simple.
//!
//! ```text
//!   append --> chunk of anonymous memory: record, record, ...
//!                  ^
//!   log            | position -> (chunk, start, layout)
//!   queues         offset   -> position
//!   keys           key      -> positions
//! ```
//!
//! One lock guards all tables: appends hold it exclusively, readers share it. Reads do not compare
//! checksums, because nothing can change a byte between the write and the read. [`Engine::verify`]
//! compares all of them.

mod cursor;
mod state;
#[cfg(test)]
#[allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation
)]
mod test;

use self::cursor::{LogCursor, QueueCursor};
use self::state::State;
use super::service::condition::Condition;
use super::{
    Appended, Atomicity, Check, Cursor, Damage, DamageKind, Durability, Engine, Filter, Meanings,
    Point, Recovery, Report, Rows, Stats, Topic, Topics, Verification, Waiter,
};
use crate::clock::Clock;
use crate::error::{Error, Result};
use crate::options::{EngineKind, Options};
use crate::record::{Batch, Form, HostBytes, Message, RecordStyle, check_topic_name};
use crate::sync::RwLock;
use std::net::{Ipv4Addr, SocketAddr};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The name in errors that need a file.
const NAME: &str = ":memory:";
const MEANINGS: Meanings = Meanings {
    kind: EngineKind::Memory,
    ..Meanings::ROCKETMQ
};
/// Records per step of a verification.
const VERIFY_ROWS: usize = 1024;

/// The memory engine.
pub struct Memory {
    style: RecordStyle,
    default_queues: u32,
    indexed: bool,
    clock: Arc<dyn Clock>,
    topics: Topics,
    /// `None` after close. Cursors share the state and can still read.
    state: RwLock<Option<Arc<RwLock<State>>>>,
    end: AtomicU64,
    sends_failed: AtomicU64,
    report: Report,
    news: Condition,
}

impl Memory {
    /// Opens an empty store. Its records carry the loopback address unless the options give
    /// another.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidOption`] if retention is requested: there are no log files to delete.
    pub fn open(clock: Arc<dyn Clock>, options: &Options) -> Result<Box<dyn Engine>> {
        let rule = "a memory store keeps what was sent until it is closed";
        if let Some(age) = options.retention {
            return Err(Error::option("retention", age.as_secs_f64(), rule));
        }
        if let Some(bytes) = options.retention_bytes {
            return Err(Error::option("retention_bytes", bytes, rule));
        }
        Ok(Box::new(Memory::with_clock(options, clock)))
    }

    fn with_clock(options: &Options, clock: Arc<dyn Clock>) -> Memory {
        let loopback = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let report = Report::default();
        report.opened(Recovery {
            clean: true,
            ..Recovery::default()
        });
        Memory {
            style: RecordStyle {
                host: HostBytes::new(options.store_host.unwrap_or(loopback)),
                checksum: options.checksum(),
                max_message_size: options.max_message_size(),
            },
            default_queues: options.default_queues(),
            indexed: options.index(),
            clock,
            topics: Topics::default(),
            state: RwLock::new(Some(Arc::default())),
            end: AtomicU64::new(0),
            sends_failed: AtomicU64::new(0),
            report,
            news: Condition::default(),
        }
    }

    fn state(&self) -> Result<Arc<RwLock<State>>> {
        self.state
            .read()
            .clone()
            .ok_or_else(|| Error::closed(NAME.as_ref()))
    }

    fn append_rows(&self, parts: &mut [(&Topic, &mut Batch)]) -> Result<Appended> {
        let state = self.state()?;
        let mut state = state.write();
        let appended = state.append(parts, self.clock.now_ms(), self.indexed)?;
        self.end.store(appended.end, Ordering::Release);
        Ok(appended)
    }

    fn is_below_write_queues(topic: &Topic, queue: u32) -> bool {
        queue < topic.write_queues()
    }
}

impl Engine for Memory {
    fn meanings(&self) -> &'static Meanings {
        &MEANINGS
    }

    fn form(&self) -> Form {
        Form::RocketMq(self.style)
    }

    fn topics(&self) -> &Topics {
        &self.topics
    }

    fn refresh(&self, _: Option<&str>) -> Result<()> {
        self.state().map(drop)
    }

    fn topic_for_append(&self, name: &str) -> Result<Arc<Topic>> {
        check_topic_name(name)?;
        self.state()?;
        let queues = super::topic::initial_queues(name, self.default_queues);
        Ok(self.topics.get_or_add(name, queues).0)
    }

    fn create_topic(&self, name: &str, queues: u32, _: Durability) -> Result<Arc<Topic>> {
        check_topic_name(name)?;
        let state = self.state()?;
        // The lock ensures that of two callers the one that asks for more queues wins.
        let _alone = state.write();
        let (topic, _) = self.topics.get_or_add(name, queues);
        if topic.write_queues() < queues {
            let read_queues = topic.read_queues().max(queues);
            topic.configure(queues, read_queues, topic.permissions());
        }
        Ok(topic)
    }

    fn append(
        &self,
        batches: &mut [(&Topic, &mut Batch)],
        _atomicity: Atomicity,
        _durability: Durability,
    ) -> Result<Appended> {
        let appended = self.append_rows(batches);
        match &appended {
            Ok(_) => self.wake(),
            Err(_) => {
                self.sends_failed.fetch_add(1, Ordering::Relaxed);
            }
        }
        appended
    }

    fn is_ready_for(&self, _: &Topic, _: Option<u32>, _: usize) -> bool {
        true
    }

    fn enlist(&self, _: u64) -> Arc<Waiter> {
        Waiter::completed(Ok(()))
    }

    fn flush(&self, _: &mut dyn FnMut() -> bool) -> Result<u64> {
        self.state()?;
        Ok(self.durable_position())
    }

    fn durable_position(&self) -> u64 {
        self.readable_position()
    }

    fn readable_position(&self) -> u64 {
        self.end.load(Ordering::Acquire)
    }

    fn wait_until(&self, position: u64, timeout: Duration, done: &dyn Fn() -> bool) -> u64 {
        let deadline = Instant::now().checked_add(timeout);
        loop {
            let is_ready =
                || self.readable_position() > position || self.state.read().is_none() || done();
            let left = deadline.map_or(timeout, |deadline| {
                deadline.saturating_duration_since(Instant::now())
            });
            if is_ready() || left.is_zero() {
                return self.readable_position();
            }
            self.news.sleep(left, is_ready);
        }
    }

    fn wake(&self) {
        self.news.notify();
    }

    fn queues(&self, topic: &Topic) -> Vec<u32> {
        let mut queues: Vec<u32> = (0..topic.write_queues()).collect();
        if let Ok(state) = self.state() {
            let state = state.read();
            let used = state.queues(topic.id);
            queues.extend(used.filter(|queue| !Memory::is_below_write_queues(topic, *queue)));
        }
        queues
    }

    fn bounds(&self, topic: &Topic, queue: u32) -> Result<Option<Range<u64>>> {
        let state = self.state()?;
        let used = state.read().queue(topic.id, queue).map(<[u64]>::len);
        Ok(match used {
            Some(len) => Some(0..len as u64),
            None => Memory::is_below_write_queues(topic, queue).then_some(0..0),
        })
    }

    fn fit(&self, topic: &Topic, queue: u32, range: Range<u64>, bytes: u64) -> Result<(u64, u64)> {
        let state = self.state()?;
        let state = state.read();
        let mut taken = 0;
        for offset in range.clone() {
            let Some(size) = state.size_of(topic.id, queue, offset) else {
                return Ok((offset, taken));
            };
            if size > bytes - taken {
                return Ok((offset, taken));
            }
            taken += size;
        }
        Ok((range.end, taken))
    }

    fn cursor(
        &self,
        topic: &Topic,
        queue: u32,
        range: Range<u64>,
        filter: &Filter,
        _check: Check,
    ) -> Result<Box<dyn Cursor>> {
        let end = self.bounds(topic, queue)?.map_or(0, |bounds| bounds.end);
        let range = range.start..range.end.min(end);
        let queue = (topic.id, queue);
        let cursor = QueueCursor::new(self.state()?, queue, range, filter.clone());
        Ok(Box::new(cursor))
    }

    fn log_cursor(&self, _check: Check) -> Result<Box<dyn Cursor>> {
        let end = self.readable_position();
        Ok(Box::new(LogCursor::new(self.state()?, 0..end)))
    }

    fn get(&self, topic: &Topic, queue: u32, offset: u64) -> Result<Option<Message>> {
        let state = self.state()?;
        let state = state.read();
        let position = state.position_of(topic.id, queue, offset);
        Ok(position.and_then(|position| state.message(position)))
    }

    fn message_at(&self, position: u64) -> Result<Message> {
        let state = self.state()?;
        let found = state.read().message(position);
        found.ok_or_else(|| {
            let reason = format!("messages lie from 0 to {}", self.readable_position());
            Error::option("position", position, reason + " (exclusive)")
        })
    }

    fn query(
        &self,
        topic: &Topic,
        key: &[u8],
        begin: i64,
        end: i64,
        max: usize,
        _: &mut dyn FnMut() -> bool,
    ) -> Result<Vec<Message>> {
        let Ok(key) = str::from_utf8(key) else {
            return Ok(Vec::new());
        };
        let state = self.state()?;
        let state = state.read();
        let searched;
        let positions = if self.indexed {
            state.with_key(topic.id, key)
        } else {
            searched = state.search_key(topic.id, key);
            &searched
        };
        let before = |time| positions.partition_point(|at| state.stored_before(*at, time));
        let last = end.checked_add(1).map_or(positions.len(), before);
        let in_time = positions.get(before(begin)..last).unwrap_or_default();
        let newest = in_time.iter().rev().take(max);
        Ok(newest.filter_map(|at| state.message(*at)).collect())
    }

    fn offset_at(&self, topic: &Topic, queue: u32, point: Point) -> Result<u64> {
        let state = self.state()?;
        let state = state.read();
        if let Some(positions) = state.queue(topic.id, queue) {
            let offset = positions.partition_point(|position| match point {
                Point::Time(time) => state.stored_before(*position, time),
                Point::Position(end) => *position < end,
            });
            return Ok(offset as u64);
        }
        if Memory::is_below_write_queues(topic, queue) {
            return Ok(0);
        }
        Err(Error::UnknownQueue {
            topic: topic.name.to_string(),
            queue,
            queues: topic.write_queues(),
        })
    }

    fn report(&self) -> &Report {
        &self.report
    }

    fn verify(&self, progress: &mut dyn FnMut(u64, u64) -> bool) -> Result<Verification> {
        let state = self.state()?;
        let total = state.read().bytes();
        let mut cursor = LogCursor::new(Arc::clone(&state), 0..self.readable_position());
        let mut found = Verification::default();
        let mut rows = Rows::default();
        let (mut done, mut first) = (0, cursor.offset());
        while cursor.refill(VERIFY_ROWS, &mut rows)? {
            done += check_rows(&rows, first, &mut found);
            first = cursor.offset();
            // No lock is held: the callback may send.
            if !progress(done, total) {
                return Ok(found);
            }
        }
        let state = state.read();
        (found.queue_entries, found.index_entries) = state.count_entries(&self.topics);
        Ok(found)
    }

    fn stats(&self) -> Stats {
        let (end, bytes_sent) = self.counters();
        Stats {
            messages_sent: end,
            bytes_sent,
            sends_failed: self.sends_failed.load(Ordering::Relaxed),
            published: end,
            dispatched: end,
            durable: end,
            ..Stats::default()
        }
    }

    fn counters(&self) -> (u64, u64) {
        let bytes = self.state().map_or(0, |state| state.read().bytes());
        (self.readable_position(), bytes)
    }

    fn close(&self) -> Result<()> {
        let state = self.state.write().take();
        drop(state);
        self.wake();
        Ok(())
    }
}

/// Checks records whose positions count up from `first`, and returns their bytes.
fn check_rows(rows: &Rows, first: u64, found: &mut Verification) -> u64 {
    let mut bytes = 0;
    for (row, position) in rows.rows.iter().zip(first..) {
        bytes += u64::from(row.layout.total_len());
        match rows.record(row).map(|record| record.check(position)) {
            Some(Ok(_)) => found.records += 1,
            Some(Err(flaw)) => found.damage.push(damage(position, row, flaw.to_string())),
            None => found
                .damage
                .push(damage(position, row, "unreadable".to_owned())),
        }
    }
    bytes
}

fn damage(position: u64, row: &super::RowRef, reason: String) -> Damage {
    let bytes = position..position + u64::from(row.layout.total_len());
    Damage::new(DamageKind::Log, NAME, bytes, reason)
}
