//! Appends of one process of a shared store, and its waits for the leader.

use super::leader::Leader;
use super::offsets::dispatched;
use crate::disk::Disk;
use crate::engine::commit_log::log::Log;
use crate::engine::commit_log::log::append::{Appender, Tail};
use crate::engine::commit_log::log::atomic;
use crate::engine::commit_log::parts::{AppendRules, BACKLOG_MAX, Parts};
use crate::engine::commit_log::read::follow;
use crate::engine::commit_log::tables::topics::TopicTable;
use crate::engine::directory::member::leading::Follower;
use crate::engine::directory::member::{Held, Member};
use crate::engine::directory::page::{Mark, StatePage, Word};
use crate::engine::service::append_lock::AppendLock;
use crate::engine::service::durability::Durable;
use crate::engine::service::duty;
use crate::engine::service::health::Health;
use crate::engine::service::hold::Hold;
use crate::engine::service::lead::Lead;
use crate::engine::service::polling::Polling;
use crate::engine::service::shared_lock::Taken;
use crate::engine::service::shutdown::Shutdown;
use crate::engine::service::watch::Watch;
use crate::engine::topic::initial_queues;
use crate::engine::{Appended, Topic};
use crate::error::{Error, Result};
use crate::interrupt;
use crate::machine::Machine;
use crate::mapped::Allocator;
use crate::meter::Meters;
use crate::options::{Flush, Options};
use crate::plant::{Point, pass};
use crate::record::{Batch, Form};
use crate::region::guard;
use crate::sync::{Mutex, TimedMutexGuard};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// How often a thread that waits for the leader checks whether there is one.
const CHECK: Duration = Duration::from_millis(20);
/// Pause between two checks of a process that does not wait.
const WATCH: Duration = Duration::from_millis(100);
/// How often the leader does what the services of its parts do not.
const TEND: Duration = Duration::from_secs(1);
/// A reader waits this long at most for its messages to be dispatched. Only a leader that hangs
/// takes so long.
const DISPATCH_TIMEOUT: Duration = Duration::from_secs(5);
/// A process that is behind by more bytes walks them before it takes the lock of all.
const BEHIND_MAX: u64 = 1 << 20;

/// What a process does for the others.
#[derive(Debug)]
pub enum Role {
    /// Nothing; it may become the leader.
    Follower,
    /// It runs the services.
    Leader(Box<Leader>),
    /// It has left the store.
    Gone,
}

/// The state of one process.
pub struct Core {
    pub(super) machine: Machine,
    pub(super) root: PathBuf,
    /// The options in effect.
    pub(super) options: Options,
    pub(super) holds: Vec<Arc<dyn Hold>>,
    pub(super) member: Arc<Member>,
    /// The log, for appends.
    pub(super) log: Arc<Log>,
    /// The parts that this process reads. Their topics are those of its appends.
    pub(super) parts: Arc<Parts>,
    /// The version of the table of topics that they were loaded from.
    pub(super) topics_version: AtomicU32,
    pub(super) tail: AppendLock<Tail>,
    pub(super) allocator: Allocator,
    pub(super) rules: AppendRules,
    pub(super) health: Health,
    pub(super) role: Mutex<Role>,
    pub(super) lead: Arc<Lead>,
    /// The published end when a reader of this process last began to sleep.
    pub(super) rested: AtomicU64,
    /// Whether a reader of this process polls before it sleeps.
    pub polling: Polling,
    /// A layer above the engine that runs only in the process that leads.
    pub(super) watch: OnceLock<Arc<dyn Watch>>,
    /// What other processes are shown while this one leads.
    pub(super) meters: OnceLock<Arc<Meters>>,
    pub(super) shutdown: Shutdown,
}

impl Core {
    fn disk(&self) -> &Arc<dyn Disk> {
        &self.machine.disk
    }

    /// Appends batches, wakes the leader, and fills `appended`, which must be empty.
    ///
    /// # Errors
    ///
    /// [`Error::Failed`].
    pub fn append(
        &self,
        batches: &mut [(&Topic, &mut Batch)],
        appended: &mut Appended,
    ) -> Result<()> {
        let clocks = batches.iter().map(|(_, batch)| batch.clock_ms());
        let clock_ms = clocks.max().unwrap_or_default();
        self.with_tail(|tail| {
            tail.append(&self.appender(), batches, clock_ms, appended)?;
            self.tail.show_counters(tail.counters());
            Ok(())
        })?;
        self.announce(appended.end);
        Ok(())
    }

    /// [`Core::append`] of batches that recovery finds all of or none; see
    /// [`Parts::append_whole`](crate::engine::commit_log::parts::Parts::append_whole).
    ///
    /// # Errors
    ///
    /// As [`Core::append`].
    pub fn append_whole(
        &self,
        batches: &mut [(&Topic, &mut Batch)],
        appended: &mut Appended,
    ) -> Result<()> {
        let markers = self.topic_for_append(atomic::TOPIC)?;
        let form = Form::RocketMq(self.rules.style);
        atomic::append(&markers, form, batches, appended, |all, appended| {
            self.append(all, appended)
        })
    }

    /// Starts writing to the disk what this process has just appended.
    pub fn write_back(&self, from: u64, to: u64) {
        self.log.write_back(from, to);
    }

    /// Seals the log file in use; see [`Tail::seal`].
    pub fn seal(&self, start: Option<u64>) -> Result<Option<u64>> {
        let end = self.with_tail(|tail| tail.seal(&self.appender(), start))?;
        if let Some(end) = end {
            self.announce(end);
        }
        Ok(end)
    }

    /// Runs `work` on the end of the log, while no other process can append.
    pub(super) fn with_tail<T>(&self, work: impl FnOnce(&mut Tail) -> Result<T>) -> Result<T> {
        let timeout = self.rules.busy_timeout;
        let (mut tail, held) = self.member.patiently(timeout, |left| self.take(left))?;
        let done = self.follow(&mut tail, &held).and_then(|()| {
            pass(Point::Locked);
            let done = work(&mut tail);
            pass(Point::Published);
            self.log.state.check()?;
            done
        });
        if let Err(error) = &done {
            self.fail_of(error);
        }
        done
    }

    /// Ends writing if an append has left more than an error.
    #[cold]
    fn fail_of(&self, error: &Error) {
        if error.is_fault() || error.is_of_sync() {
            // The contents of a map or of the disk are unknown, so no process may append. The
            // failure is shown before the doubt: see `Parts::vouch`.
            self.log.state.set_failed(&error.to_string());
            fence(Ordering::SeqCst);
            self.log.state.doubt();
            self.health.fail(error, || {});
        } else if matches!(error, Error::Corrupt { .. }) {
            // The page or the log contradicts itself, and this process has already used a part of
            // it.
            self.health.fail(error, || {});
        }
    }

    /// Takes the lock of this process and the one that the processes share; waits for each of them
    /// at most for `timeout`.
    fn take(&self, timeout: Duration) -> Result<(TimedMutexGuard<'_, Tail>, (Held<'_>, Taken))> {
        let began_ms = self.machine.clock.coarse_ms();
        guard::renew_at(began_ms);
        let mut tail = self.tail.acquire(began_ms, timeout)?;
        if self.health.is_closed() {
            return Err(Error::Closed { path: None });
        }
        let left_turn = self.member.give_way(timeout);
        if left_turn || self.is_behind(&tail) {
            // This walk does not need the lock: published bytes stay as they are. What is published
            // meanwhile is walked under the lock.
            let walked = self.catch_up(&mut tail);
            walked.inspect_err(|error| self.fail_of(error))?;
        }
        let held = self.member.hold(timeout)?;
        self.member.check(&self.health)?;
        Ok((tail, held))
    }

    /// Whether other processes have published much since this one last followed, or retention has
    /// removed a part of it.
    fn is_behind(&self, tail: &Tail) -> bool {
        self.published().saturating_sub(tail.position()) > BEHIND_MAX
            || tail.position() < self.minimum()
    }

    fn minimum(&self) -> u64 {
        self.member.page.get(Mark::Minimum)
    }

    /// Moves the tail to the published end, past the records of other processes.
    pub fn catch_up(&self, tail: &mut Tail) -> Result<()> {
        loop {
            if tail.position() < self.minimum() {
                self.skip_removed(tail)?;
            }
            match tail.follow(&self.log, &self.parts.topics) {
                // Retention has removed files that were not walked yet.
                Err(_) if tail.position() < self.minimum() => {}
                followed => return followed.map(drop),
            }
        }
    }

    /// Moves the tail past log files that retention has removed. They were dispatched before, so
    /// the queues have the offsets of their messages.
    #[cold]
    fn skip_removed(&self, tail: &mut Tail) -> Result<()> {
        let minimum = self.minimum();
        let (begin, offsets) = dispatched(&self.parts)?;
        if begin < minimum {
            let reason = format!("the log begins at {minimum}, but was dispatched up to {begin}");
            return Err(Error::corrupt(self.log.path_at(begin), begin, reason));
        }
        for (topic, queue, next) in offsets {
            tail.raise_next_offset(&topic, queue, next);
        }
        tail.resume_at(&self.log, begin)
    }

    /// Moves the tail to the published end.
    fn follow(&self, tail: &mut Tail, held: &(Held<'_>, Taken)) -> Result<()> {
        if held.1 == Taken::Dirty {
            tail.erase_unpublished(&self.log)?;
            held.0.clean();
        }
        self.catch_up(tail)
    }

    fn appender(&self) -> Appender<'_> {
        Appender {
            log: &self.log,
            allocator: &self.allocator,
            disk: self.disk(),
            pool: None,
            pool_fail_fast: false,
        }
    }

    /// Wakes the leader, and waits for it if it is far behind.
    fn announce(&self, end: u64) {
        let page = &self.member.page;
        if self.lead.is_held() {
            self.dispatch_for_readers();
        }
        if page.get(Mark::Dispatched) >= end {
            return;
        }
        duty::call(&**page);
        if end.saturating_sub(page.get(Mark::Dispatched)) > BACKLOG_MAX {
            self.await_dispatched(end - BACKLOG_MAX);
        }
    }

    /// The state page of all processes.
    pub fn page(&self) -> Arc<StatePage> {
        Arc::clone(&self.member.page)
    }

    /// End of what all processes have published.
    pub fn published(&self) -> u64 {
        self.member.page.get(Mark::Published)
    }

    /// End of what a reader should see: in a synchronous store, what is durable.
    pub fn readable(&self) -> u64 {
        self.member.page.get(match self.is_sync() {
            true => Mark::Durable,
            false => Mark::Published,
        })
    }

    /// Whether a send waits for the disk.
    pub fn is_sync(&self) -> bool {
        self.options.flush() == Flush::Sync
    }

    /// Waits until the leader has dispatched the log up to `end`, so that readers see it.
    pub fn await_dispatched(&self, end: u64) {
        let page = &self.member.page;
        let began = Instant::now();
        while page.get(Mark::Dispatched) < end
            && began.elapsed() < DISPATCH_TIMEOUT
            && self.health.check().is_ok()
            && !self.health.is_closed()
            && !interrupt::is_raised()
        {
            let seen = page.read_word(Word::News);
            if self.lead.is_held() {
                self.try_dispatch();
            }
            if page.get(Mark::Dispatched) < end {
                duty::call(&**page);
                page.sleep_on(Word::News, seen, CHECK);
                if page.get(Mark::Dispatched) < end {
                    let _ = self.try_lead();
                }
            }
        }
    }

    /// Becomes the leader if there is none. Returns whether this process leads.
    ///
    /// # Errors
    ///
    /// Those of opening a store. The next call tries again.
    pub fn try_lead(&self) -> Result<bool> {
        let Some(mut role) = self.role.try_lock() else {
            return Ok(false);
        };
        match *role {
            Role::Leader(_) => return Ok(true),
            Role::Gone => return Ok(false),
            Role::Follower => {}
        }
        // After a failure only closing and opening the store helps, in all processes.
        if self.member.check(&self.health).is_err() || !self.member.try_lead()? {
            return Ok(false);
        }
        let led = self.lead().inspect_err(|_| self.member.stop_leading())?;
        led.tell(&self.parts);
        *role = Role::Leader(Box::new(led));
        drop(role);
        self.lead.begin();
        Ok(true)
    }

    fn lead(&self) -> Result<Leader> {
        // No thread of this process may hold the append lock meanwhile.
        let _tail = self.tail.lock();
        let holds = self.holds.clone();
        let mut options = self.options.clone();
        self.member.page.agreed()?.apply(&mut options);
        Leader::begin(&self.machine, &self.root, &options, &self.member, holds)
    }

    /// Checks from time to time whether there is a leader, until the store closes. As the leader,
    /// does what is due.
    pub(super) fn watch(&self) {
        let mut tended = Instant::now();
        while !self.shutdown.has_begun() {
            guard::renew();
            self.walk_ahead();
            // A process that does not read must not keep removed files mapped.
            let _ = follow::refresh_log(&self.parts);
            if tended.elapsed() >= TEND {
                tended = Instant::now();
                self.tend();
            }
            let pause = match self.try_lead() {
                Ok(_) => WATCH,
                // A later attempt may succeed, for example when there is room on the disk.
                Err(_) => 10 * WATCH,
            };
            self.shutdown.sleep(pause);
        }
    }

    /// Walks what others have published while this process sends little, to spare its next send the
    /// walk.
    fn walk_ahead(&self) {
        let mut tail = self.tail.lock();
        if self.is_behind(&tail) {
            let walked = self.catch_up(&mut tail);
            // The next append reports it.
            let _ = walked.inspect_err(|error| self.fail_of(error));
        }
    }

    /// The topic, which is created with the default number of queues if it does not exist.
    ///
    /// # Errors
    ///
    /// Those of an append, and of writing the table of topics.
    pub fn topic_for_append(&self, name: &str) -> Result<Arc<Topic>> {
        self.load_topics()?;
        match self.parts.topics.get(name) {
            Some(topic) => Ok(topic),
            None => self.create_topic(name, None),
        }
    }

    /// Loads the table of topics if another process has written it.
    ///
    /// # Errors
    ///
    /// Those of reading it.
    pub fn load_topics(&self) -> Result<()> {
        let version = self.member.page.topics_version();
        if self.topics_version.load(Ordering::Acquire) != version {
            TopicTable::load(&**self.disk(), &self.root, &self.parts.topics)?;
            self.topics_version.store(version, Ordering::Release);
        }
        Ok(())
    }

    /// Creates a topic, or adds queues to it; `None`: the default number, for a missing one. All
    /// processes know it on return.
    ///
    /// # Errors
    ///
    /// As [`Core::topic_for_append`].
    pub fn create_topic(&self, name: &str, queues: Option<u32>) -> Result<Arc<Topic>> {
        self.with_tail(|_| {
            let disk = &**self.disk();
            let topics = &self.parts.topics;
            let mut table = TopicTable::load(disk, &self.root, topics)?;
            let initial = initial_queues(name, self.rules.default_queues);
            let (topic, _) = topics.get_or_add(name, queues.unwrap_or(initial));
            if let Some(queues) = queues {
                let write = topic.write_queues().max(queues);
                let read = topic.read_queues().max(queues);
                topic.configure(write, read, topic.permissions());
            }
            table.update(topics, self.machine.clock.now_ms());
            table.save(disk)?;
            pass(Point::TopicsWritten);
            let page = &self.member.page;
            page.next_topics_version();
            self.topics_version
                .store(page.topics_version(), Ordering::Release);
            Ok(topic)
        })
    }

    /// Messages and bytes that this process has appended.
    pub fn counters(&self) -> (u64, u64) {
        self.tail.counters()
    }

    /// Waits for the append lock of this process.
    pub fn lock_tail(&self) -> TimedMutexGuard<'_, Tail> {
        self.tail.lock()
    }
}

impl Follower for Core {
    fn is_closing(&self) -> bool {
        self.health.is_closed()
    }

    fn is_ending(&self) -> bool {
        self.shutdown.has_begun()
    }

    fn check(&self) -> Result<()> {
        self.member.check(&self.health)
    }

    fn try_lead(&self) -> Result<bool> {
        Core::try_lead(self)
    }

    /// The flush services of the leader do it.
    fn try_flush(&self, _: u64) -> Option<Result<()>> {
        None
    }
}

impl Durable for Core {
    fn published(&self) -> u64 {
        Core::published(self)
    }

    fn durable(&self) -> u64 {
        self.member.page.get(Mark::Durable)
    }

    /// Waits until the leader has flushed. Ends early only if writing has failed, or if the store
    /// is being closed and has waited long enough.
    fn flush_to(&self, position: u64) -> Result<()> {
        let position = position.min(Core::published(self));
        self.member.await_flush(position, self)
    }

    fn count_wait(&self, _: Duration) {}

    fn full_pass(&self) -> Result<()> {
        Ok(())
    }

    fn tidy(&self) {}

    fn unmap_unused(&self) {}
}
