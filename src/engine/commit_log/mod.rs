//! The commit log engine: RocketMQ's store.
//!
//! Its modules, from the top down. Each uses only those below it; `tests/tidy/` checks that.
//!
//! | module | what it does |
//! |---|---|
//! | `files` | verification, repair and archives |
//! | `send`, `wait`, `close`, `stats` | appends; waits for messages; closes; counts |
//! | `joined` | the parts that a reader uses, also when a writer comes later |
//! | `repair` | saves damaged bytes, and repairs what it can |
//! | `share` | several processes that write the same store |
//! | `services` | the threads of a writable store |
//! | `retention`, `offline` | deletes old log files; builds queues and index outside a store |
//! | `recovery`, `verify` | opens a store; checks it |
//! | `read`, `roll` | cursors, queries, following a writer; seals the log file in use |
//! | `parts` | an open store: its data, appends to it, and its durability |
//! | `dispatch` | builds queues and index from the log |
//! | `log`, `tables` | all records in order of arrival; the small files |
//! | `queues`, `index` | the positions of the records of each queue and each key |
//!
//! The log is the source of truth. `dispatch` builds everything else from it, and `recovery` checks
//! everything else against it.

mod close;
mod dispatch;
mod files;
mod index;
mod joined;
pub(crate) mod log;
pub mod offline;
mod parts;
mod queues;
pub mod read;
pub(crate) mod recovery;
mod repair;
mod retention;
mod roll;
mod send;
pub mod services;
mod share;
mod stats;
#[cfg(test)]
mod stepped;
mod tables;
#[cfg(test)]
mod test;
mod verify;
mod wait;

pub use super::directory::epochs::{Epoch, Epochs};
use super::directory::group_table::joint::Joint;
use super::directory::page::StatePage;
use super::service::hold::Hold;
use super::service::sleepers::Sleepers;
use super::service::watch::Watch;
use super::{
    Abilities, Appended, Atomicity, Check, Cursor, Durability, Engine, Filter, Meanings, Point,
    Report, Stats, Topic, Topics, Verification, Waiter,
};
use crate::disk::FileLock;
use crate::error::{Error, Op, Result};
use crate::machine::{Drive, Machine};
use crate::meter::{Meters, WriterStats};
use crate::options::{Mode, Options};
use crate::record::rocketmq::layout::BLANK_LEN;
use crate::record::{Batch, Form, Message};
use crate::sync::Mutex;
use joined::Joined;
use parts::Parts;
use read::query::Question;
use read::view;
use recovery::assemble::Opened;
use repair::turn::Turn;
use send::Sending;
use services::Services;
use share::Share;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// A store in RocketMQ's file formats.
pub struct CommitLog {
    parts: Joined,
    /// Threads of a reader that wait for messages of another process.
    sleepers: Sleepers,
    services: Arc<Services>,
    lock: Mutex<Option<FileLock>>,
    unindexed: Range<u64>,
    options: Options,
    sending: Sending,
    repairs: Turn,
    /// This process among those that share the store.
    share: Option<Arc<Share>>,
}

impl CommitLog {
    /// Opens the store at `path`. `holds`: retention asks them before it deletes anything.
    pub fn open(
        machine: &Machine,
        path: &Path,
        options: &Options,
        holds: Vec<Arc<dyn Hold>>,
    ) -> Result<CommitLog> {
        if options.mode == Mode::Share {
            let (share, opened) = Share::open(machine, path, options, holds)?;
            let share = Some(Arc::new(share));
            return CommitLog::assemble(machine, path, opened, Vec::new(), share);
        }
        let opened = recovery::open::open(machine, path, options)?;
        let engine = CommitLog::assemble(machine, path, opened, holds, None)?;
        if engine.parts.is_written()
            && machine.drive == Drive::Threads
            && let Err(error) = engine.services.start(&engine.parts)
        {
            // The threads that did start would continue without the lock.
            engine.services.stop(&engine.parts);
            engine.services.join();
            return Err(Error::io(Op::StartThreads, path, error));
        }
        if let Some(file) = engine.parts.tail.lock().current_file() {
            engine.parts.allocator.begin(file);
        }
        Ok(engine)
    }

    fn assemble(
        machine: &Machine,
        path: &Path,
        opened: Opened,
        holds: Vec<Arc<dyn Hold>>,
        share: Option<Arc<Share>>,
    ) -> Result<CommitLog> {
        opened.parts.report.opened(opened.recovery.clone());
        let engine = CommitLog {
            services: Arc::new(Services::new(
                &opened.options,
                &opened.parts,
                machine.drive,
                holds,
            )?),
            parts: Joined::new(machine, path, &opened),
            sleepers: Sleepers::default(),
            lock: Mutex::new(opened.lock),
            unindexed: opened.unindexed,
            sending: Sending::new(&opened.options),
            repairs: Turn::default(),
            options: opened.options,
            share,
        };
        Ok(engine)
    }

    /// The options in effect. In a writable store, saved options replace those that were not given.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Maximum bytes of a record: a log file without its BLANK.
    pub(crate) fn record_len_max(&self) -> u64 {
        self.parts.log.files.file_len() - BLANK_LEN as u64
    }

    /// The parts as a reader sees them. A writer that has come is joined first.
    #[inline]
    fn seen(&self) -> Result<&Parts> {
        if let Some(share) = &self.share {
            share.core.load_topics()?;
            share.core.await_dispatched(share.core.readable());
        }
        self.parts.join()?;
        Ok(&self.parts)
    }

    /// As [`CommitLog::seen`]. If joining fails, the next call tries again.
    #[inline]
    fn seen_anyway(&self) -> &Parts {
        let _ = self.parts.join();
        &self.parts
    }

    /// This process among those that share the store; `None` if it has the store for itself, or
    /// only reads it.
    pub(crate) fn joint(&self) -> Option<Arc<dyn Joint>> {
        let share = self.share.as_ref()?;
        Some(Arc::clone(&share.groups) as Arc<dyn Joint>)
    }

    /// The state page.
    pub(crate) fn page(&self) -> Arc<StatePage> {
        match &self.share {
            Some(share) => share.core.page(),
            None => Arc::clone(&self.parts.log.state),
        }
    }

    /// Calls `watch` about once a second, if the store has threads; in a shared store while this
    /// process leads. May be set once.
    pub(crate) fn set_watch(&self, watch: Arc<dyn Watch>) {
        match &self.share {
            Some(share) => share.core.set_watch(watch),
            None => self.services.set_watch(watch),
        }
    }

    /// What the live writer shows of itself, if it is another process.
    fn writer(&self) -> Option<WriterStats> {
        let page = match &self.share {
            // It shows its own measurements.
            Some(share) if share.groups.leads() => return None,
            Some(share) => &*share.core.page(),
            None if self.parts.is_written() => return None,
            None => self.parts.page()?,
        };
        stats::writer(
            page,
            &*self.parts.disk,
            &self.parts.root,
            self.parts.clock.now_ns(),
        )
    }
}

impl Engine for CommitLog {
    fn meanings(&self) -> &'static Meanings {
        &Meanings::ROCKETMQ
    }

    fn form(&self) -> Form {
        self.parts.form()
    }

    fn show_meters(&self, meters: &Arc<Meters>) {
        match &self.share {
            Some(share) => share.core.show_meters(meters),
            None => self.services.show_meters(meters),
        }
    }

    fn topics(&self) -> &Topics {
        if let Some(share) = &self.share {
            // If they cannot be loaded, the next call tries again.
            let _ = share.core.load_topics();
        }
        &self.parts.topics
    }

    fn abilities(&self) -> Abilities<'_> {
        Abilities {
            files: Some(self),
            staging: Some(self),
            ..Abilities::default()
        }
    }

    fn refresh(&self, topic: Option<&str>) -> Result<()> {
        view::refresh(self.seen()?, topic)
    }

    fn topic_for_append(&self, name: &str) -> Result<Arc<Topic>> {
        match &self.share {
            Some(share) => share.core.topic_for_append(name),
            None => Ok(self.parts.topic_for_append(name)),
        }
    }

    fn create_topic(&self, name: &str, queues: u32, durability: Durability) -> Result<Arc<Topic>> {
        match &self.share {
            Some(share) => share.core.create_topic(name, Some(queues)),
            None => self.parts.create_topic(name, queues, durability),
        }
    }

    fn append(
        &self,
        batches: &mut [(&Topic, &mut Batch)],
        atomicity: Atomicity,
        durability: Durability,
    ) -> Result<Appended> {
        if let Some(share) = &self.share {
            let (core, group) = (&share.core, &share.group);
            let sending = &self.sending;
            return sending.append_shared(core, group, batches, atomicity, durability);
        }
        let (parts, group) = (&self.parts, &self.services.group);
        self.sending
            .append(parts, group, batches, atomicity, durability)
    }

    fn enlist(&self, end: u64) -> Arc<Waiter> {
        match &self.share {
            Some(share) => super::service::group_commit::enlist(&share.group, &share.core, end),
            None => super::service::group_commit::enlist(&self.services.group, &self.parts, end),
        }
    }

    #[inline]
    fn is_ready_for(&self, _: &Topic, _: Option<u32>, len: usize) -> bool {
        // In a shared store, a send may have to wait for another process.
        self.share.is_none() && send::is_ready_for(&self.parts, len)
    }

    fn flush(&self, go_on: &mut dyn FnMut() -> bool) -> Result<u64> {
        match &self.share {
            Some(share) => {
                share.flush_to(share.core.published(), self.options.flush_timeout, go_on)?;
            }
            None => self.parts.flush()?,
        }
        Ok(self.durable_position())
    }

    fn durable_position(&self) -> u64 {
        view::durable_end(self.seen_anyway())
    }

    fn readable_position(&self) -> u64 {
        view::readable_end(self.seen_anyway())
    }

    fn newest_stored_ms(&self) -> Option<i64> {
        let stored_ms = match &self.share {
            Some(share) => share.core.page().stored_ms(),
            None => self.parts.log.stored_ms.load(Ordering::Acquire),
        };
        Some(stored_ms).filter(|it| *it > 0)
    }

    fn wait_until(&self, position: u64, timeout: Duration, done: &dyn Fn() -> bool) -> u64 {
        let core = self.share.as_ref().map(|share| &*share.core);
        wait::wait_until(&self.parts, &self.sleepers, core, position, timeout, done)
    }

    fn wake(&self) {
        match &self.share {
            // Changes the word, so a thread that is about to sleep on it returns at once.
            Some(share) if self.sleepers.any() => share.groups.notify(),
            Some(_) => {}
            None => wait::wake(&self.parts, &self.sleepers),
        }
    }

    fn queues(&self, topic: &Topic) -> Vec<u32> {
        view::queue_ids(self.seen_anyway(), topic)
    }

    fn bounds(&self, topic: &Topic, queue: u32) -> Result<Option<Range<u64>>> {
        view::bounds(self.seen()?, topic, queue)
    }

    fn offset_at(&self, topic: &Topic, queue: u32, point: Point) -> Result<u64> {
        view::offset_at(self.seen()?, topic, queue, point)
    }

    fn fit(&self, topic: &Topic, queue: u32, range: Range<u64>, bytes: u64) -> Result<(u64, u64)> {
        view::fit(self.seen()?, topic, queue, range, bytes)
    }

    fn cursor(
        &self,
        topic: &Topic,
        queue: u32,
        range: Range<u64>,
        filter: &Filter,
        check: Check,
    ) -> Result<Box<dyn Cursor>> {
        view::cursor(self.seen()?, topic, queue, range, filter, check)
    }

    fn get(&self, topic: &Topic, queue: u32, offset: u64) -> Result<Option<Message>> {
        view::message(self.seen()?, topic, queue, offset)
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
        let question = Question {
            topic,
            key,
            begin,
            end,
            max,
        };
        read::query::answer(self.seen()?, &question, &self.unindexed)
    }

    fn log_cursor(&self, check: Check) -> Result<Box<dyn Cursor>> {
        view::log_cursor(self.seen()?, check)
    }

    fn message_at(&self, position: u64) -> Result<Message> {
        view::message_at(self.seen()?, position)
    }

    fn report(&self) -> &Report {
        &self.parts.report
    }

    fn verify(&self, progress: &mut dyn FnMut(u64, u64) -> bool) -> Result<Verification> {
        let parts = self.seen()?;
        view::refresh(parts, None)?;
        verify::verify(parts, progress)
    }

    fn stats(&self) -> Stats {
        let mut stats = stats::stats(self.seen_anyway(), &self.services, &self.sending);
        stats.writer = self.writer();
        match &self.share {
            Some(share) => share.stats(stats),
            None => stats,
        }
    }

    fn counters(&self) -> (u64, u64) {
        match &self.share {
            Some(share) => share.core.counters(),
            None => self.parts.tail.counters(),
        }
    }

    fn close(&self) -> Result<()> {
        // A repair in progress ends first, because it changes what closing writes.
        let _unrepaired = self.repairs.wait()?;
        let closed = close::close(&self.parts, &self.sleepers, &self.services, &self.lock);
        match &self.share {
            Some(share) => closed.and(share.close()),
            None => closed,
        }
    }
}
