//! The commit log engine: RocketMQ's store.
//!
//! Its rooms, from the top down. Each uses only those below it; `tests/tidy/` checks that.
//!
//! | room | what it does |
//! |---|---|
//! | `repair` | saves what is damaged, and corrects what can be corrected |
//! | `services` | the threads of a store that is written |
//! | `retention`, `offline` | deletes old log files; builds queues and index outside a store |
//! | `recovery`, `verify`, `intake` | opens a store; checks it; appends what is staged for it |
//! | `read`, `roll` | cursors, queries, following a writer; seals the log file that is written |
//! | `parts` | an open store: its data, appends to it, and its durability |
//! | `dispatch` | builds queues and index from the log |
//! | `log`, `tables` | all records in order of arrival; the small files |
//! | `queues`, `index` | for each queue and for each key, the positions of its records |
//!
//! The log is the truth. Everything else is built from it by `dispatch` and checked against it by
//! `recovery`.

mod dispatch;
mod index;
pub(crate) mod intake;
pub(crate) mod log;
pub mod offline;
mod parts;
mod queues;
pub mod read;
pub(crate) mod recovery;
mod repair;
mod retention;
mod roll;
pub mod services;
mod tables;
mod verify;

use super::directory::page::Mark;
pub use super::directory::page::{Epoch, Epochs};
use super::{
    Appended, Atomicity, Check, Cursor, Durability, Engine, Files, Filter, Finding, Point,
    Recovery, Repair, Report, Rows, Stats, Stretch, Topic, Topics, Verification, Waiter,
};
use crate::disk::FileLock;
use crate::error::{Error, Op, Result};
use crate::machine::{Drive, Machine};
use crate::mapped::{MappedFile, TransientPool};
use crate::options::{Flush, Mode, Options};
use crate::record::encode::RECORD_OVERHEAD_MAX;
use crate::record::{Batch, Contents, Message, RecordStyle};
use parking_lot::Mutex;
use parts::{BACKLOG_MAX, Parts};
use read::query::Question;
use services::Services;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

/// A store in RocketMQ's files.
pub struct CommitLog {
    parts: Arc<Parts>,
    services: Arc<Services>,
    lock: Mutex<Option<FileLock>>,
    recovery: Recovery,
    unindexed: Range<u64>,
    options: Options,
    writes: bool,
    sync: bool,
    live: bool,
    flush_timeout: Duration,
    sends_failed: AtomicU64,
    busy: AtomicU64,
    /// Held by a repair, of which there is one at a time.
    repairing: Mutex<()>,
    /// The thread of the repair, whose progress callback may call back.
    repairer: Mutex<Option<ThreadId>>,
}

impl CommitLog {
    /// Opens the store at `path`.
    pub fn open(machine: &Machine, path: &Path, options: &Options) -> Result<CommitLog> {
        let opened = recovery::open::open(machine, path, options)?;
        let engine = CommitLog {
            services: Arc::new(Services::new(&opened.options, machine.drive)?),
            parts: opened.parts,
            writes: options.mode != Mode::Read,
            lock: Mutex::new(opened.lock),
            recovery: opened.recovery,
            unindexed: opened.unindexed,
            sync: opened.options.flush() == Flush::Sync,
            live: opened.live,
            flush_timeout: options.flush_timeout,
            options: opened.options,
            sends_failed: AtomicU64::new(0),
            busy: AtomicU64::new(0),
            repairing: Mutex::default(),
            repairer: Mutex::default(),
        };
        if engine.writes
            && machine.drive == Drive::Threads
            && let Err(error) = engine.services.start(&engine.parts)
        {
            // Those that run would go on without the lock.
            engine.services.stop(&engine.parts);
            engine.services.join();
            return Err(Error::io(Op::StartThreads, path, error));
        }
        if let Some(file) = engine.parts.tail.lock().current_file() {
            engine.parts.allocator.begin(file);
        }
        Ok(engine)
    }

    /// The options given, where the store is written with those that it keeps in place of what was
    /// not given.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// The rules of the flush service.
    #[cfg(test)]
    pub(crate) fn flush_rules(&self) -> super::service::flush::FlushRules {
        self.services.flush_rules
    }

    /// The parts, for a caller that steps.
    #[cfg(test)]
    pub(crate) fn parts(&self) -> &Parts {
        &self.parts
    }

    /// One step of rolling, then one of retention.
    #[cfg(test)]
    pub(crate) fn step_retention(&self, clock_ms: i64, now: Instant) {
        self.services.rolling.step(&self.parts, clock_ms);
        self.services.retain(&self.parts, clock_ms, now);
    }

    /// One step of group commit.
    #[cfg(test)]
    pub(crate) fn step_group_commit(&self) {
        self.services.group.step_once(&*self.parts);
    }

    /// One step of dispatch; a failure ends the writing as in its thread.
    #[cfg(test)]
    pub(crate) fn step_dispatch(&self) {
        if let Err(error) = self.parts.dispatcher.step()
            && error.ends_writing()
        {
            self.parts.fail(&error);
        }
    }

    /// What follows an append: others are told of it, and the disk is waited for as asked.
    #[inline]
    fn finish_append(
        &self,
        result: Result<()>,
        appended: &mut Appended,
        durability: Durability,
    ) -> Result<()> {
        result.inspect_err(|error| {
            self.sends_failed.fetch_add(1, Ordering::Relaxed);
            let busy = u64::from(matches!(error, Error::Busy { .. }));
            self.busy.fetch_add(busy, Ordering::Relaxed);
        })?;
        self.parts.announce(appended.end);
        let flushed = match durability {
            Durability::Default => self.sync,
            Durability::Flushed => true,
            Durability::Written => false,
        };
        if self.sync && !flushed {
            // Safe from a crash of the process, as a message in the page cache is.
            self.parts.write_out()?;
        }
        if flushed {
            let began = Instant::now();
            self.enlist(appended.end).wait_or_fail(self.flush_timeout)?;
            appended.waited = began.elapsed();
            appended.durable = true;
        }
        Ok(())
    }

    /// Refuses what would wait for a repair that this very thread is at.
    fn check_not_repairing(&self) -> Result<()> {
        match *self.repairer.lock() == Some(std::thread::current().id()) {
            true => Err(Error::Busy { waited_ms: 0 }),
            false => Ok(()),
        }
    }

    /// Brings queues and index up to what may be read. A failure leaves readers what was there.
    #[inline]
    fn catch_up(&self) {
        if !self.writes {
            return;
        }
        // A failure has made the store fail for writers.
        let _ = self.parts.write_out();
        let end = self.parts.log.readable_end();
        if self.parts.dispatcher.dispatched() < end
            && let Err(error) = self.parts.dispatcher.catch_up(end)
            && error.ends_writing()
        {
            self.parts.fail(&error);
        }
    }

    /// The queue as a reader sees it now.
    fn queue(&self, topic: &Topic, id: u32) -> Result<Option<Arc<queues::queue::ConsumeQueue>>> {
        self.catch_up();
        if self.live && self.parts.queues.get(topic, id).is_none() {
            read::follow::refresh(&self.parts)?;
        }
        let Some(queue) = self.parts.queues.get(topic, id) else {
            return Ok(None);
        };
        read::follow::extend(&self.parts, topic, &queue)?;
        Ok(Some(queue))
    }
}

impl Engine for CommitLog {
    fn name(&self) -> &'static str {
        "commitlog"
    }

    fn style(&self) -> &RecordStyle {
        &self.parts.append_rules.style
    }

    fn topics(&self) -> &Topics {
        &self.parts.topics
    }

    fn files(&self) -> Option<&dyn Files> {
        Some(self)
    }

    fn refresh(&self, topic: Option<&str>) -> Result<()> {
        self.catch_up();
        match topic {
            Some(name) => read::follow::refresh_topic(&self.parts, name),
            None => read::follow::refresh(&self.parts),
        }
    }

    fn topic_for_append(&self, name: &str) -> Result<Arc<Topic>> {
        Ok(self.parts.topic_for_append(name))
    }

    fn create_topic(&self, name: &str, queues: u32) -> Result<Arc<Topic>> {
        self.parts.health.check()?;
        let (topic, _) = self.parts.topics.get_or_add(name, queues);
        let (write, read) = (
            topic.write_queues().max(queues),
            topic.read_queues().max(queues),
        );
        topic.configure(write, read, topic.permissions());
        let mut table = self.parts.table.lock();
        table.update(&self.parts.topics, self.parts.clock.now_ms());
        table.save(&*self.parts.disk)?;
        Ok(topic)
    }

    fn append(
        &self,
        batches: &mut [(&Topic, &mut Batch)],
        atomicity: Atomicity,
        durability: Durability,
    ) -> Result<Appended> {
        let mut appended = Appended::default();
        let result = match atomicity {
            Atomicity::Rows => self.parts.append_rows(batches, &mut appended),
            Atomicity::Whole => self.parts.append_whole(batches, &mut appended),
        };
        self.finish_append(result, &mut appended, durability)?;
        Ok(appended)
    }

    fn enlist(&self, end: u64) -> Arc<Waiter> {
        super::service::group_commit::enlist(&self.services.group, &self.parts, end)
    }

    #[inline]
    fn is_ready_for(&self, len: usize) -> bool {
        let log = &self.parts.log;
        // A sender to a pool may have to write out.
        if self.parts.pool.is_some() {
            return false;
        }
        let published = log.published();
        let end = published + len as u64 + RECORD_OVERHEAD_MAX as u64;
        end <= log.ready_end()
            && published.saturating_sub(self.parts.dispatcher.dispatched()) <= BACKLOG_MAX
            && !self.parts.tail.is_locked()
    }

    fn flush(&self) -> Result<u64> {
        if self.writes {
            self.parts.health.check()?;
            self.parts.flush_to(self.parts.wrote())?;
            // For readers in other processes, who see what is dispatched.
            self.catch_up();
        }
        Ok(self.durable_position())
    }

    fn durable_position(&self) -> u64 {
        let _ = read::follow::refresh_log(&self.parts);
        self.parts.log.state.get(Mark::Durable)
    }

    fn readable_position(&self) -> u64 {
        let _ = read::follow::refresh_log(&self.parts);
        let _ = self.parts.write_out();
        self.parts.log.readable_end()
    }

    fn wait_readable(&self, position: u64, timeout: Duration) -> u64 {
        const POLL: Duration = Duration::from_millis(5);
        let deadline = Instant::now() + timeout;
        loop {
            let end = self.readable_position();
            let left = deadline.saturating_duration_since(Instant::now());
            if end > position || left.is_zero() || self.parts.health.is_closed() {
                return end;
            }
            if self.live {
                // The writer in the other process knows of no waiters: its mark is looked at.
                std::thread::sleep(left.min(POLL));
            } else {
                let ready = || {
                    // Readers of a synchronous store wait for the disk, not for a write-out, and
                    // after a failure there is none.
                    let writes_out = !self.sync && self.parts.health.check().is_ok();
                    let pool = self.parts.pool.as_ref().filter(|_| writes_out);
                    let pooled = pool.map_or(0, TransientPool::wrote);
                    self.parts.log.readable_end().max(pooled) > position
                        || self.parts.health.is_closed()
                };
                self.parts.bells.news.sleep(left, ready);
            }
        }
    }

    fn queues(&self, topic: &Topic) -> Vec<u32> {
        self.catch_up();
        let stored = self
            .parts
            .queues
            .of(topic)
            .into_iter()
            .map(|queue| queue.id);
        let mut ids: Vec<u32> = stored.chain(0..topic.write_queues()).collect();
        ids.sort_unstable();
        ids.dedup();
        ids
    }

    fn bounds(&self, topic: &Topic, queue: u32) -> Result<Option<Range<u64>>> {
        let given = queue < topic.write_queues().max(topic.read_queues());
        let found = self
            .queue(topic, queue)?
            .map(|queue| queue.min()..queue.max());
        Ok(found.or(given.then_some(0..0)))
    }

    fn fit(&self, topic: &Topic, queue: u32, range: Range<u64>, bytes: u64) -> Result<(u64, u64)> {
        match self.queue(topic, queue)? {
            Some(queue) => queue.fit(range, bytes),
            None => Ok((range.start, 0)),
        }
    }

    fn cursor(
        &self,
        topic: &Topic,
        queue: u32,
        range: Range<u64>,
        filter: &Filter,
        check: Check,
    ) -> Result<Box<dyn Cursor>> {
        let parts = &self.parts;
        let found = self.queue(topic, queue)?;
        let Some(queue) = found else {
            return Ok(Box::new(EmptyCursor(range.start)));
        };
        let Some(topic) = parts.topics.by_id(topic.id) else {
            return Ok(Box::new(EmptyCursor(range.start)));
        };
        let start = range.start.clamp(queue.min(), queue.max());
        let range = start..range.end.clamp(start, queue.max());
        let (log, report) = (&parts.log, &parts.report);
        let cursor =
            read::cursor::QueueCursor::new(log, topic, queue, range, filter, check, report);
        Ok(Box::new(cursor))
    }

    fn log_cursor(&self, check: Check) -> Result<Box<dyn Cursor>> {
        read::follow::refresh_log(&self.parts)?;
        let _ = self.parts.write_out();
        let cursor = read::cursor::LogCursor::new(&self.parts.log, check, &self.parts.report);
        Ok(Box::new(cursor))
    }

    fn get(&self, topic: &Topic, queue: u32, offset: u64) -> Result<Option<Message>> {
        let range = offset..offset + 1;
        let mut cursor = self.cursor(topic, queue, range, &Filter::default(), Check::Full)?;
        let mut rows = Rows::default();
        cursor.next(1, &mut rows)?;
        if let Some(message) = rows.rows.first().and_then(|row| rows.message(row)) {
            return Ok(Some(message));
        }
        let Some(queue) = self.queue(topic, queue)? else {
            return Ok(None);
        };
        if offset < queue.min() || offset >= queue.max() {
            return Ok(None);
        }
        let entry = queue.entry(offset)?;
        let position = entry.map_or(0, |entry| entry.position);
        let path = self
            .parts
            .log
            .files
            .path_of(self.parts.log.files.start_of(position));
        let reason = format!("the message at offset {offset} of {} is lost", topic.name);
        Err(Error::corrupt(path, position, reason))
    }

    fn message_at(&self, position: u64) -> Result<Message> {
        let log = &self.parts.log;
        let (min, end) = (log.min_position(), self.readable_position());
        let nowhere = |reason: String| Error::option("position", position, reason);
        if position < min || position >= end {
            return Err(nowhere(format!(
                "the log goes from {min} to {end} (exclusive)"
            )));
        }
        // Bytes that do not even look like a record here are a wrong position, not damage.
        let log::Found::Record(found) = log.record_at(position)? else {
            return Err(nowhere("no record begins there".to_owned()));
        };
        let message = log.require(position);
        if let Err(Error::Corrupt { reason, .. }) = &message {
            let name = String::from_utf8_lossy(found.record().topic()).into_owned();
            let topic = self.parts.topics.get(&name);
            read::query::report_record(&self.parts, topic.as_deref(), position, reason)?;
        }
        message
    }

    fn query(
        &self,
        topic: &Topic,
        key: &str,
        begin: i64,
        end: i64,
        max: usize,
    ) -> Result<Vec<Message>> {
        self.catch_up();
        let _complete = self.parts.rebuilding.read();
        let log = &self.parts.log;
        let mut unindexed = self.unindexed.clone();
        if self.live {
            read::follow::refresh_log(&self.parts)?;
            if let Some(index) = &self.parts.index {
                index.join_new_files(log.published())?;
            }
        }
        let writer_indexes = !log
            .source
            .as_ref()
            .is_some_and(|state| state.is_unindexed());
        if self.parts.index.is_none() || !writer_indexes {
            // An index that an earlier writer left is good up to its last entry.
            let index = self.parts.index.as_ref();
            let indexed = index.map_or(Ok(None), |index| index.end_position())?;
            let indexed = indexed.unwrap_or(0);
            unindexed = indexed.max(log.min_position())..log.readable_end();
        }
        read::query::by_key(
            &self.parts,
            &Question {
                topic,
                key,
                begin,
                end,
                max,
            },
            unindexed,
        )
    }

    fn offset_at(&self, topic: &Topic, queue: u32, point: Point) -> Result<u64> {
        let Some(found) = self.queue(topic, queue)? else {
            return Ok(0);
        };
        match point {
            Point::Time(time) => read::query::offset_at(&self.parts, topic, &found, time),
            Point::Position(end) if end >= self.parts.log.published() => Ok(found.max()),
            Point::Position(end) => found.end_below(end),
        }
    }

    fn recovery(&self) -> Recovery {
        self.recovery.clone()
    }

    fn report(&self) -> &Report {
        &self.parts.report
    }

    fn verify(&self, progress: &mut dyn FnMut(u64, u64) -> bool) -> Result<Verification> {
        self.catch_up();
        read::follow::refresh(&self.parts)?;
        verify::verify(&self.parts, progress)
    }

    fn take_commits(&self) -> Result<()> {
        intake::step(&self.services.intake, &self.parts)
    }

    fn holds_commit(&self, batch: (&str, u64), contents: Contents, skips: bool) -> Result<bool> {
        intake::holds(&self.parts, batch, contents, skips)
    }

    fn stats(&self) -> Stats {
        let log = &self.parts.log;
        let (messages_sent, bytes_sent) = self.counters();
        let on_disk = |file: &Arc<MappedFile>| file.wrote().max(file.reserved());
        Stats {
            messages_sent,
            bytes_sent,
            sends_failed: self.sends_failed.load(Ordering::Relaxed),
            busy: self.busy.load(Ordering::Relaxed),
            published: log.published(),
            dispatched: self.parts.dispatcher.dispatched(),
            durable: self.durable_position(),
            min_position: log.min_position(),
            damaged: self.parts.report.damaged(),
            stale_checksums: self.recovery.stale_checksums + self.parts.report.stale_count(),
            retired_bytes_mapped: self.services.retention.mapped_bytes(),
            recovered_records: self.recovery.records_checked,
            truncated_bytes: self.recovery.truncated_bytes,
            log_bytes: log.files.all().iter().map(on_disk).sum(),
            disk_free: self.parts.disk.free_space(&self.parts.root).ok(),
            append_held: self.parts.tail.held_for(),
            flushes: self.parts.flushing.meter.read(),
            ..Stats::default()
        }
    }

    fn counters(&self) -> (u64, u64) {
        self.parts.tail.counters()
    }

    fn close(&self) -> Result<()> {
        // A repair that is at work ends first: it changes what closing writes.
        self.check_not_repairing()?;
        let _unrepaired = self.repairing.lock();
        let last_store_ms = {
            let tail = self.parts.tail.lock();
            if !self.parts.health.close() {
                return Ok(());
            }
            tail.last_store_ms()
        };
        self.services.stop(&self.parts);
        if !self.writes {
            return Ok(());
        }
        self.services.join();
        let passed = match self.parts.health.check() {
            Ok(()) => self.parts.full_pass_for_close(last_store_ms),
            Err(error) => Err(error),
        };
        let unused = self.parts.tail.lock().take_unused();
        self.parts.allocator.stop();
        for file in unused {
            let _ = self.parts.disk.unlink(file.path());
        }
        match passed {
            Ok(()) => self.parts.drop_unused_pages(),
            Err(_) => self.parts.log.state.end_epoch(false),
        }
        drop(self.lock.lock().take());
        let log = &self.parts.log;
        let is_durable = log.state.get(Mark::Durable) >= self.parts.wrote();
        match passed {
            // All messages are durable. Without room or descriptors for what a close leaves the
            // next opening recovers, as after a halt.
            Err(error) if is_durable && !error.ends_writing() => Ok(()),
            passed => passed,
        }
    }
}

impl Files for CommitLog {
    fn roll(&self) -> Result<Option<u64>> {
        roll::seal(&self.parts, None)
    }

    fn sealed_files(&self) -> Result<Vec<super::archive::SealedFile>> {
        read::follow::refresh(&self.parts)?;
        Ok(read::survey::sealed(&self.parts))
    }

    fn survey(&self, start: u64) -> Result<super::archive::Survey> {
        read::survey::survey(&self.parts, start)
    }

    fn stretches(&self) -> Result<Vec<Stretch>> {
        self.catch_up();
        read::follow::refresh(&self.parts)?;
        verify::stretch::stretches(&self.parts)
    }

    fn verify_stretches(
        &self,
        stretches: &[Stretch],
        holes: &[Range<u64>],
    ) -> Result<Vec<Finding>> {
        self.catch_up();
        read::follow::refresh(&self.parts)?;
        let check = |stretch| verify::stretch::verify_stretch(&self.parts, stretch, holes);
        stretches.iter().map(check).collect()
    }

    fn join_findings(&self, findings: Vec<Finding>) -> Result<Verification> {
        verify::join(&self.parts, findings)
    }

    fn repair(&self, progress: &mut dyn FnMut(u64, u64) -> bool) -> Result<Repair> {
        self.check_not_repairing()?;
        let _alone = self.repairing.lock();
        *self.repairer.lock() = Some(std::thread::current().id());
        let _done = Unset(&self.repairer);
        if self.parts.health.is_closed() {
            return Err(Error::Closed);
        }
        repair::repair(&self.parts, &self.services.retention, progress)
    }
}

/// Says, when it is dropped, that no thread is at it.
struct Unset<'a>(&'a Mutex<Option<ThreadId>>);

impl Drop for Unset<'_> {
    fn drop(&mut self) {
        *self.0.lock() = None;
    }
}

/// A cursor over nothing.
struct EmptyCursor(u64);

impl Cursor for EmptyCursor {
    fn next(&mut self, _: usize, _: &mut Rows) -> Result<()> {
        Ok(())
    }

    fn offset(&self) -> u64 {
        self.0
    }
}
