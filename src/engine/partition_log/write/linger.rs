//! Messages that linger: each queue has an open batch, which is appended when it is full, when its
//! first message has waited for long enough, or when something else needs it in the log.
//!
//! ```text
//!   push --> [open batch of the queue] -- full, late, flush, close, another append to the queue
//!                                      --> append --> enlist --> the tickets are completed
//! ```
//!
//! The lock of a queue is held while its batch is appended, so that the messages of a sender stay
//! in their order.

use super::parts::Parts;
use super::tail::Key;
use crate::engine::service::condition::Condition;
use crate::engine::service::group_commit::{self, GroupCommit};
use crate::engine::waiter::Listener;
use crate::engine::{Appended, Atomicity, Linger, Lingering, Topic, Waiter};
use crate::error::{Error, Result};
use crate::interrupt;
use crate::num::index;
use crate::options::Options;
use crate::plant::{Bug, planted};
use crate::record::{Batch, Draft, Form};
use crate::region::guard;
use crate::sync::{Mutex, RwLock};
use std::collections::{BTreeSet, HashMap};
use std::mem;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// While all batches together are longer than this, the oldest ones are appended.
const OPEN_LEN_MAX: usize = 64 << 20;
/// Longest sleep of the thread: whoever opens a batch wakes it.
const SLEEP_MAX: Duration = Duration::from_secs(3600);

/// The open batches of all queues.
pub struct OpenBatches {
    parts: Arc<Parts>,
    group: Arc<GroupCommit>,
    linger: Duration,
    len_max: usize,
    queues: RwLock<HashMap<Key, Arc<QueueBatch>>>,
    /// When each open batch was begun. A batch that is being appended is still in the set.
    begun: Mutex<BTreeSet<(Instant, Key)>>,
    /// By topic: the queue that messages without a queue and a key go to.
    keyless: Mutex<HashMap<u32, u32>>,
    /// Bytes of all open batches.
    len: AtomicUsize,
    ended: AtomicBool,
    /// Messages that were not appended since the last flush, and the first error.
    refused: Mutex<Option<(usize, Arc<Error>)>>,
    wake: Condition,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// The batch of a queue.
struct QueueBatch {
    topic: Arc<Topic>,
    queue: u32,
    open: Mutex<Option<Open>>,
}

/// An open batch.
struct Open {
    batch: Batch,
    begun: Instant,
    appended: Arc<OnceLock<Appended>>,
    waiters: Vec<Arc<Waiter>>,
}

/// Completes the waiters of a batch when the batch is durable.
#[derive(Debug)]
struct WhenDurable {
    batch: Weak<Waiter>,
    waiters: Mutex<Vec<Arc<Waiter>>>,
}

impl OpenBatches {
    /// The batches of a store with these options; `None` if messages do not linger.
    pub fn new(
        options: &Options,
        parts: &Arc<Parts>,
        group: &Arc<GroupCommit>,
    ) -> Option<Arc<OpenBatches>> {
        let batches = || OpenBatches {
            parts: Arc::clone(parts),
            group: Arc::clone(group),
            linger: options.linger,
            len_max: index(options.batch_bytes.unwrap_or(16_384)),
            queues: RwLock::default(),
            begun: Mutex::default(),
            keyless: Mutex::default(),
            len: AtomicUsize::new(0),
            ended: AtomicBool::new(false),
            refused: Mutex::default(),
            wake: Condition::default(),
            thread: Mutex::default(),
        };
        (!options.linger.is_zero()).then(|| Arc::new(batches()))
    }

    /// Starts the thread that appends batches whose first message has waited for long enough.
    pub fn start(self: &Arc<OpenBatches>) -> std::io::Result<()> {
        let batches = Arc::clone(self);
        let thread = std::thread::Builder::new().name("forebay-linger".to_owned());
        *self.thread.lock() = Some(thread.spawn(move || batches.run())?);
        Ok(())
    }

    fn run(&self) {
        while !self.has_ended() {
            guard::renew();
            self.append_late(Instant::now());
            let first = || self.begun.lock().first().map(|(begun, _)| *begun);
            match first() {
                Some(begun) => {
                    let left = self.linger.saturating_sub(begun.elapsed());
                    self.wake.sleep(left, || self.has_ended());
                }
                None => self
                    .wake
                    .sleep(SLEEP_MAX, || self.has_ended() || first().is_some()),
            }
        }
    }

    fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    /// Appends the batches that were begun long enough before `now`.
    fn append_late(&self, now: Instant) {
        let is_late = |begun: Instant| now.saturating_duration_since(begun) >= self.linger;
        let begun = self.begun.lock();
        let late = begun.iter().take_while(|(begun, _)| is_late(*begun));
        let late: Vec<Key> = late.map(|(_, key)| *key).collect();
        drop(begun);
        for batch in late.iter().filter_map(|key| self.of(*key)) {
            let mut open = batch.open.lock();
            // Another batch may have taken its place.
            if open.as_ref().is_some_and(|open| is_late(open.begun)) {
                self.append(&batch, &mut open);
            }
        }
    }

    /// Appends all messages that were pushed before the call.
    pub fn append_all(&self) {
        if planted(Bug::LeaveLingering) {
            return;
        }
        let all: Vec<Key> = self.begun.lock().iter().map(|(_, key)| *key).collect();
        for batch in all.iter().filter_map(|key| self.of(*key)) {
            self.append(&batch, &mut batch.open.lock());
        }
    }

    /// Appends what lingers in the queues of `batches`, which the caller appends next.
    pub fn append_before(&self, batches: &[(&Topic, &mut Batch)]) {
        for (topic, batch) in batches {
            let parts = batch.kafka().map_or(&[][..], |batch| batch.parts());
            for part in parts {
                if let Some(batch) = self.of((topic.id, part.queue())) {
                    self.append(&batch, &mut batch.open.lock());
                }
            }
        }
    }

    /// Appends everything and accepts no more. A second call does nothing.
    ///
    /// # Errors
    ///
    /// As [`OpenBatches::check_refused`].
    pub fn end(&self) -> Result<()> {
        self.ended.store(true, Ordering::Release);
        self.wake.notify();
        if let Some(thread) = self.thread.lock().take() {
            let _ = thread.join();
        }
        // A thread that pushes has the lock of the queue, or sees that this has ended.
        let all: Vec<Arc<QueueBatch>> = self.queues.read().values().cloned().collect();
        for batch in all {
            self.append(&batch, &mut batch.open.lock());
        }
        self.check_refused()
    }

    /// Reports once that messages were not appended.
    ///
    /// # Errors
    ///
    /// [`Error::NotAppended`].
    pub fn check_refused(&self) -> Result<()> {
        match self.refused.lock().take() {
            Some((count, source)) => Err(Error::NotAppended { count, source }),
            None => Ok(()),
        }
    }

    fn of(&self, key: Key) -> Option<Arc<QueueBatch>> {
        self.queues.read().get(&key).cloned()
    }

    fn of_or_new(&self, topic: &Arc<Topic>, queue: u32) -> Arc<QueueBatch> {
        let key = (topic.id, queue);
        self.of(key).unwrap_or_else(|| {
            let new = || {
                Arc::new(QueueBatch {
                    topic: Arc::clone(topic),
                    queue,
                    open: Mutex::default(),
                })
            };
            Arc::clone(self.queues.write().entry(key).or_insert_with(new))
        })
    }

    /// Appends the open batch of a queue, if there is one.
    fn append(&self, batch: &QueueBatch, open: &mut Option<Open>) {
        let Some(mut it) = open.take() else { return };
        let key = (batch.topic.id, batch.queue);
        self.len
            .fetch_sub(it.batch.encoded_len(), Ordering::Relaxed);
        let mut keyless = self.keyless.lock();
        if keyless.get(&key.0) == Some(&key.1) {
            keyless.remove(&key.0);
        }
        drop(keyless);
        let mut appended = Appended::default();
        let batches = &mut [(&*batch.topic, &mut it.batch)];
        // Not interrupted by a signal: the caller holds the lock of the queue, and these messages
        // are not all its own.
        let append = || self.parts.append(batches, Atomicity::Rows, &mut appended);
        match interrupt::forbid(append) {
            // A flush is requested below in any case.
            Ok(_) => {
                let end = appended.end;
                let _ = it.appended.set(appended);
                let durable = group_commit::enlist(&self.group, &self.parts, end);
                WhenDurable::follow(&durable, it.waiters);
            }
            Err(error) => {
                let error = Arc::new(error);
                let mut refused = self.refused.lock();
                let (count, _) = refused.get_or_insert_with(|| (0, Arc::clone(&error)));
                *count += it.waiters.len();
                drop(refused);
                for waiter in it.waiters {
                    waiter.complete(Err(Arc::clone(&error)));
                }
            }
        }
        // Last: a flush finds the batch in the list, and waits for the lock of its queue.
        self.begun.lock().remove(&(it.begun, key));
    }

    /// Opens a batch.
    fn open(&self, key: Key) -> Open {
        let begun = Instant::now();
        let mut all = self.begun.lock();
        let is_first = all.is_empty();
        all.insert((begun, key));
        drop(all);
        // Otherwise the thread wakes earlier, for another batch.
        if is_first {
            self.wake.notify();
        }
        Open {
            batch: Form::Kafka(self.parts.rules.form).batch(),
            begun,
            appended: Arc::default(),
            waiters: Vec::new(),
        }
    }

    /// Appends the oldest batches while all together are too long.
    fn bound(&self) {
        while self.len.load(Ordering::Relaxed) > OPEN_LEN_MAX {
            let first = self.begun.lock().first().copied();
            let Some(batch) = first.and_then(|(_, key)| self.of(key)) else {
                return;
            };
            self.append(&batch, &mut batch.open.lock());
        }
    }
}

impl Linger for OpenBatches {
    fn queue_of_keyless(&self, topic: &Topic) -> u32 {
        let mut keyless = self.keyless.lock();
        *keyless
            .entry(topic.id)
            .or_insert_with(|| topic.next_queue())
    }

    fn push(
        &self,
        topic: &Arc<Topic>,
        queue: u32,
        draft: &Draft<'_>,
        clock_ms: i64,
    ) -> Result<Lingering> {
        self.parts.health.check()?;
        let of = self.of_or_new(topic, queue);
        let mut open = of.open.lock();
        if self.has_ended() {
            return Err(Error::closed(&self.parts.root));
        }
        let has_room = |it: &Open| {
            let batch = it.batch.kafka();
            batch.is_none_or(|batch| batch.len_with(draft, clock_ms) <= self.len_max)
        };
        if open.as_ref().is_some_and(|it| !has_room(it)) {
            self.append(&of, &mut open);
        }
        let mut it = match open.take() {
            Some(it) => it,
            None => self.open((topic.id, queue)),
        };
        let before = it.batch.encoded_len();
        let pushed = it.batch.push(&topic.name, queue, draft, clock_ms);
        let len = it.batch.encoded_len();
        let lingering = Lingering::new(&it.appended, it.waiters.len());
        match &pushed {
            Ok(()) => it.waiters.push(Arc::clone(&lingering.waiter)),
            // The batch was opened for this message alone.
            Err(_) if it.waiters.is_empty() => {
                self.begun.lock().remove(&(it.begun, (topic.id, queue)));
                return pushed.map(|()| lingering);
            }
            Err(_) => {}
        }
        self.len.fetch_add(len - before, Ordering::Relaxed);
        *open = Some(it);
        pushed?;
        if len >= self.len_max {
            self.append(&of, &mut open);
        }
        drop(open);
        self.bound();
        Ok(lingering)
    }
}

impl WhenDurable {
    /// Completes `waiters` with the outcome of `batch`.
    fn follow(batch: &Arc<Waiter>, waiters: Vec<Arc<Waiter>>) {
        let when_durable = Arc::new(WhenDurable {
            batch: Arc::downgrade(batch),
            waiters: Mutex::new(waiters),
        });
        let listener = Arc::clone(&when_durable) as Arc<dyn Listener>;
        if !batch.listen(listener, 0) {
            when_durable.completed(0);
        }
    }
}

impl Listener for WhenDurable {
    fn completed(&self, _: u64) {
        let batch = self.batch.upgrade();
        let Some(outcome) = batch.and_then(|batch| batch.wait(Duration::ZERO)) else {
            unreachable!("whoever completes the waiter of the batch holds it")
        };
        for waiter in mem::take(&mut *self.waiters.lock()) {
            waiter.complete(outcome.clone());
        }
    }
}

/// For a caller that steps.
#[cfg(test)]
impl OpenBatches {
    /// Appends all batches, as if their first messages had waited for long enough.
    pub fn step(&self) {
        self.append_late(Instant::now() + self.linger);
    }
}
