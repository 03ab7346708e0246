//! Appends, under the append lock.

use super::parts::Parts;
use super::shared::Shared;
use super::tail::Tail;
use super::writing::Appender;
use crate::engine::directory::member::Held;
use crate::engine::service::durability::Durable;
use crate::engine::{Appended, Atomicity, Topic};
use crate::error::{Error, Result};
use crate::plant::{Bug, Point, pass, planted};
use crate::record::Batch;
use crate::region::guard;
use crate::sync::TimedMutexGuard;
use std::sync::atomic::Ordering;

/// An append of at least this many bytes takes some hundred microseconds.
const LONG_LEN: usize = 256 << 10;

/// The append lock: that of this process, and that of all processes if they share the store.
pub struct Taken<'a> {
    // Dropped first: this thread must have left the lock of all processes when the next takes it.
    _held: Option<Held<'a>>,
    /// The ends of all partitions.
    pub tail: TimedMutexGuard<'a, Tail>,
}

impl Parts {
    /// Appends batches of rows, and publishes them. Returns whether to request a flush, because a
    /// partition has as many messages that are not durable as the rules allow.
    ///
    /// # Errors
    ///
    /// [`Error::Busy`]; those of creating files and reserving blocks. Nothing was appended.
    /// [`Error::Failed`] after an error of the disk.
    pub fn append(
        &self,
        batches: &mut [(&Topic, &mut Batch)],
        atomicity: Atomicity,
        appended: &mut Appended,
    ) -> Result<bool> {
        let done = self.append_uncounted(batches, atomicity, appended);
        done.inspect_err(|_| {
            self.sends_failed.fetch_add(1, Ordering::Relaxed);
        })
    }

    /// As [`Parts::append`], for appends that are not sends of the user: a failure is not counted.
    ///
    /// # Errors
    ///
    /// As [`Parts::append`].
    pub fn append_uncounted(
        &self,
        batches: &mut [(&Topic, &mut Batch)],
        atomicity: Atomicity,
        appended: &mut Appended,
    ) -> Result<bool> {
        let now_ms = match self.rules.form.append_time {
            true => self.clock.now_ms(),
            // The time decides only when a segment is old.
            false => self.clock.coarse_ms(),
        };
        let mut newest = i64::MIN;
        let mut count = 0;
        for (_, batch) in batches.iter_mut() {
            let own = batch.kafka_mut().ok_or_else(other_form)?;
            own.finish(now_ms)?;
            count += own.parts().len();
            let times = own.parts().iter().map(|part| part.max_timestamp());
            newest = times.fold(newest, i64::max);
        }
        appended.store_timestamp = newest;
        let len: usize = batches.iter().map(|(_, batch)| batch.encoded_len()).sum();
        guard::renew_at(now_ms);
        // The rows of a single batch are atomic by themselves.
        let is_joined = atomicity == Atomicity::Whole && count > 1;
        // If processes share the store, their table says where the last atomic batch ends.
        let is_alone = self.shared.is_none();
        let mut whole = (is_joined && is_alone).then(|| self.whole.lock());
        if is_joined {
            self.await_whole(whole.as_deref().copied().flatten())?;
        }
        // Declared before the lock, so that it is dropped after it.
        let _long;
        let mut taken = self.take(now_ms)?;
        while is_joined && self.is_whole_undurable() {
            // Another process has appended an atomic batch meanwhile.
            drop(taken);
            self.await_whole(None)?;
            taken = self.take(now_ms)?;
        }
        if len >= LONG_LEN {
            _long = self.tail.begin_long();
        }
        let with = Appender {
            whole: is_joined.then_some(&*self.root),
            ..self.appender(now_ms)
        };
        let done = taken.tail.append(&with, batches, appended);
        self.note_strays(&mut taken.tail);
        done.inspect_err(|error| self.fail_of(error))?;
        let end = taken.tail.end();
        if let Some(whole) = &mut whole {
            **whole = Some(end);
        }
        self.tail.show_counters(taken.tail.counters());
        let must_flush = taken.tail.take_must_flush();
        self.publish(end, is_joined)?;
        drop(taken);
        if !self.rules.sync {
            self.tell();
        }
        Ok(must_flush)
    }

    /// Takes the append lock, and with it that of the processes that share the store.
    ///
    /// # Errors
    ///
    /// [`Error::Busy`], [`Error::Closed`], [`Error::Failed`]; those of removing what a process that
    /// died with the lock has left.
    pub fn take(&self, now_ms: i64) -> Result<Taken<'_>> {
        let timeout = self.rules.busy_timeout;
        let Some(shared) = &self.shared else {
            let tail = self.tail.acquire(now_ms, timeout)?;
            self.check_open()?;
            return Ok(Taken { _held: None, tail });
        };
        shared.member.patiently(timeout, |left| {
            let mut tail = self.tail.acquire(now_ms, left)?;
            self.check_open()?;
            let held = self.hold(shared, &mut tail, left)?;
            pass(Point::Locked);
            Ok(Taken {
                _held: Some(held),
                tail,
            })
        })
    }

    /// Publishes what was appended up to `end`. `is_joined`: it ends with an atomic batch that has
    /// an intent.
    fn publish(&self, end: u64, is_joined: bool) -> Result<()> {
        match &self.shared {
            Some(shared) => {
                if is_joined {
                    shared.table.set_whole(end);
                }
                self.publish_shared(shared, end);
                pass(Point::Published);
                let checked = shared.check_maps();
                checked.inspect_err(|error| self.fail_of(error))?;
            }
            None => self.published.store(end, Ordering::Release),
        }
        Ok(())
    }

    /// Publishes what was appended up to `end` for all processes that share the store.
    pub(super) fn publish_shared(&self, shared: &Shared, end: u64) {
        self.published.store(end, Ordering::Release);
        shared.publish(end);
    }

    /// Makes the last atomic batch durable. `own`: where it ends, in a store of one process.
    fn await_whole(&self, own: Option<u64>) -> Result<()> {
        let end = match &self.shared {
            Some(shared) => Some(shared.table.whole()),
            None => own,
        };
        match end.filter(|_| !planted(Bug::ReplaceIntent)) {
            // If that fails, nothing of the next batch is appended.
            Some(end) => {
                let flushed = self.flush_to(end);
                flushed.or_else(|error| self.health.check().and(Err(error)))
            }
            None => Ok(()),
        }
    }

    /// Whether the last atomic batch of the processes that share the store is not durable.
    fn is_whole_undurable(&self) -> bool {
        let shared = self.shared.as_ref();
        shared.is_some_and(|shared| shared.table.whole() > shared.durable())
    }

    /// If processes share the store, notes what a failed append has left: the next process to
    /// append removes it.
    pub(super) fn note_strays(&self, tail: &mut Tail) {
        if let Some(shared) = &self.shared {
            if tail.is_strewn() {
                shared.table.set_unclean(true);
            }
            tail.forget_strays();
        }
    }

    pub(super) fn appender(&self, now_ms: i64) -> Appender<'_> {
        Appender {
            disk: &self.disk,
            rules: &self.rules,
            allocator: self.allocator.as_ref(),
            seed: self.seed,
            now_ms,
            whole: None,
            cuts: self.shared.as_ref().map(|shared| shared.table.cuts()),
        }
    }
}

#[cold]
fn other_form() -> Error {
    Error::Unsupported {
        what: "records of another form in a partition log".to_owned(),
    }
}
