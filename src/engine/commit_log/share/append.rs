//! Appends of one process of a shared store: takes the shared append lock, walks the records that
//! others have published, and stores its own after them.

use super::core::Core;
use super::offsets::dispatched;
use crate::engine::commit_log::log::append::{Appender, Tail};
use crate::engine::commit_log::log::atomic;
use crate::engine::commit_log::parts::BACKLOG_MAX;
use crate::engine::commit_log::parts::given::Given;
use crate::engine::directory::member::Held;
use crate::engine::directory::page::Mark;
use crate::engine::service::duty;
use crate::engine::service::shared_lock::Taken;
use crate::engine::{Appended, Topic};
use crate::error::{Error, Result};
use crate::plant::{Point, pass};
use crate::record::{Batch, Form};
use crate::region::guard;
use crate::sync::TimedMutexGuard;
use std::sync::atomic::{Ordering, fence};
use std::time::Duration;

/// A process that is behind by more than this many bytes walks them before it takes the shared
/// append lock.
const BEHIND_MAX: u64 = 1 << 20;

impl Core {
    /// Appends batches, wakes the leader, and fills `appended`, which must be empty.
    ///
    /// # Errors
    ///
    /// [`Error::Busy`] if a lock is held for too long, [`Error::Closed`], [`Error::Failed`], and
    /// those of [`Tail::append`].
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

    /// Ends writing if the error means that the log, the page or the disk can no longer be trusted.
    #[cold]
    pub(super) fn fail_of(&self, error: &Error) {
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

    /// Takes the append lock of this process, then the one that the processes share. Waits at most
    /// `timeout` for each.
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
    /// removed records that it has not walked.
    pub(super) fn is_behind(&self, tail: &Tail) -> bool {
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

    /// Wakes the leader, and waits for it if its dispatch lags far.
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

    /// Messages and bytes that this process has appended.
    pub fn counters(&self) -> (u64, u64) {
        self.tail.counters()
    }

    /// The offsets that were given, as far as this process has walked the log.
    pub(super) fn given_offsets(&self) -> Given {
        let tail = self.tail.lock();
        Given {
            end: tail.position(),
            next: tail.next_offsets(&self.parts.topics),
        }
    }

    /// Waits for the append lock of this process.
    pub fn lock_tail(&self) -> TimedMutexGuard<'_, Tail> {
        self.tail.lock()
    }
}
