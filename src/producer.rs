//! Sending single messages and batches.

mod batches;
mod delay;

pub use batches::{ATOMIC_BATCH_LEN_MAX, BATCH_LEN_MAX, BatchSender};
pub use delay::Delay;

use crate::claims::Claim;
use crate::engine::topic::PERMISSION_WRITE;
use crate::engine::{Atomicity, Durability, Engine, Linger, QueueLogs, Topic, Waiter};
use crate::error::{Error, Result};
use crate::handle::Handle;
use crate::options::delay_levels::DELAY_MAX_MS;
use crate::record::{Batch, Draft, Form, names};
use crate::ticket::{Sent, Spot, Ticket};
use std::borrow::Cow;
use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

thread_local! {
    /// The batch used for single sends, kept so that a send does not allocate. Taken while a send
    /// uses it: a signal handler may send while the thread waits.
    static SCRATCH: Cell<Option<Box<Batch>>> = const { Cell::new(None) };
}

const DELAY_TOO_LONG: &str = "a message is delivered at most 366 days after it is sent";

/// A scratch batch larger than this is freed after the send.
const SCRATCH_LEN_MAX: usize = 1 << 20;

/// Sends to one topic; the fastest way to send in a loop. Clones share the store.
///
/// In a child of the process that opened a shared store, a producer opens the store again on first
/// use.
#[derive(Clone)]
pub struct Producer {
    shared: Arc<Handle>,
    /// The topic in the engine of `shared`. In a forked child, another engine has a topic of this
    /// name.
    topic: Arc<Topic>,
    queue: Option<u32>,
    /// The queue that it owns, if any.
    claim: Option<Arc<Claim>>,
}

/// The store and topic to which a process sends.
struct To<'a> {
    handle: &'a Handle,
    engine: &'a dyn Engine,
    topic: Cow<'a, Arc<Topic>>,
}

impl To<'_> {
    /// Whether a message of the topic must have a key.
    fn needs_key(&self) -> bool {
        let logs = self.engine.queue_logs();
        logs.is_some_and(|it| it.needs_key(&self.topic.name))
    }
}

impl Producer {
    pub(crate) fn new(shared: Arc<Handle>, topic: Arc<Topic>, queue: Option<u32>) -> Producer {
        Producer {
            shared,
            topic,
            queue,
            claim: None,
        }
    }

    /// This producer as the owner of a queue. It sends to no other one.
    pub(crate) fn owning(self, claim: Arc<Claim>) -> Producer {
        Producer {
            queue: Some(claim.queue()),
            claim: Some(claim),
            ..self
        }
    }

    /// Name and queue of a producer that owns a queue.
    pub fn owned(&self) -> Option<(&str, u32)> {
        let claim = self.claim.as_deref();
        claim.map(|claim| (claim.name(), claim.queue()))
    }

    /// Gives up the queue that the producer owns, so that another one may have it. Later sends
    /// fail with [`Error::Replaced`]. Does nothing if it owns none.
    pub fn give_up(&self) {
        if let Some(claim) = &self.claim {
            claim.give_up();
        }
    }

    /// The topic's name.
    pub fn topic(&self) -> &str {
        &self.topic.name
    }

    /// Sends one message. With a delay level (1 to 18) it is stored under the schedule topic, and
    /// delivered after the delay.
    pub fn send(&self, draft: &Draft<'_>, delay_level: u8, durability: Durability) -> Result<Sent> {
        self.send_delayed(draft, Delay::level(delay_level), durability)
    }

    /// Sends one message that is delivered later; see [`Delay`].
    pub fn send_delayed(
        &self,
        draft: &Draft<'_>,
        delay: Delay,
        durability: Durability,
    ) -> Result<Sent> {
        self.append_draft(&self.to()?, draft, delay, durability)
    }

    /// Sends one message and returns at once with a ticket for its durability. With
    /// [`Options::linger`](crate::Options::linger), the message waits for others of its queue, and
    /// is in the log when they are; a message with a delay is in the log on return.
    ///
    /// # Errors
    ///
    /// As [`Producer::send`]; there is no ticket for a message that is neither in the log nor
    /// waits for others.
    pub fn send_nowait(&self, draft: &Draft<'_>, delay: Delay) -> Result<Ticket> {
        let to = self.to()?;
        let linger = to.engine.queue_logs().and_then(QueueLogs::linger);
        match linger.filter(|_| delay.topic().is_none()) {
            Some(linger) => self.linger(&to, linger, draft),
            None => self.append_nowait(&to, draft, delay),
        }
    }

    /// As [`Producer::send_nowait`], but the message is in the log on return.
    ///
    /// # Errors
    ///
    /// As [`Producer::send`].
    pub fn send_at_once(&self, draft: &Draft<'_>, delay: Delay) -> Result<Ticket> {
        self.append_nowait(&self.to()?, draft, delay)
    }

    fn append_nowait(&self, to: &To<'_>, draft: &Draft<'_>, delay: Delay) -> Result<Ticket> {
        let sent = self.append_draft(to, draft, delay, Durability::Written)?;
        let waiter = to.engine.enlist(sent.end);
        Ok(Ticket::new(Spot::Known(sent), waiter))
    }

    fn linger(&self, to: &To<'_>, linger: &dyn Linger, draft: &Draft<'_>) -> Result<Ticket> {
        let chosen = self.queue.or(draft.queue).is_some() || draft.first_key().is_some();
        let keyless = (!chosen).then(|| linger.queue_of_keyless(&to.topic));
        let queue = self.queue_for(to, draft, self.queue.or(keyless))?;
        let meter = &to.handle.meters.puts;
        let put = meter.begin();
        let lingering = linger.push(&to.topic, queue, draft, put.clock_ms())?;
        let len = draft.body.len();
        if let Some(now) = meter.end(&put, &to.topic.name, len, Duration::ZERO) {
            to.handle.sample_rates(now);
        }
        let waiter = Arc::clone(&lingering.waiter);
        Ok(Ticket::new(Spot::Lingering(lingering), waiter))
    }

    /// A waiter for the durability of the log up to `end`, even after the store was closed; see
    /// [`Engine::enlist`].
    pub fn enlist(&self, end: u64) -> Arc<Waiter> {
        let shared = self.shared.opened().unwrap_or(&self.shared);
        shared.engine.enlist(end)
    }

    /// The store and topic to which this process sends. Inlined, since a call costs as much as its
    /// few checks.
    #[inline(always)]
    fn to(&self) -> Result<To<'_>> {
        let engine = self.shared.writer()?;
        match self.shared.is_forked() {
            false => Ok(To {
                handle: &self.shared,
                engine,
                topic: Cow::Borrowed(&self.topic),
            }),
            true => self.to_in_child(engine),
        }
    }

    #[cold]
    fn to_in_child<'a>(&'a self, engine: &'a dyn Engine) -> Result<To<'a>> {
        Ok(To {
            handle: self.shared.current()?,
            engine,
            topic: Cow::Owned(engine.topic_for_append(&self.topic.name)?),
        })
    }

    #[inline]
    fn append_draft(
        &self,
        to: &To<'_>,
        draft: &Draft<'_>,
        delay: Delay,
        durability: Durability,
    ) -> Result<Sent> {
        match self.meant(to.engine, delay)? {
            Delay::None => {}
            _ if &*self.topic.name == names::SCHEDULE_TOPIC => return Err(self.waits_there()),
            Delay::Level(level) => return self.send_to_level(to, draft, level, durability),
            Delay::Until(at) => return self.send_to_timer(to, draft, at, durability),
            Delay::For(delay) => {
                let ms = i64::try_from(delay.as_millis()).unwrap_or(i64::MAX);
                if ms > DELAY_MAX_MS {
                    let seconds = delay.as_secs_f64();
                    return Err(Error::option("delay", seconds, DELAY_TOO_LONG));
                }
                let at = self.shared.clock.now_ms().saturating_add(ms);
                return self.send_to_timer(to, draft, at, durability);
            }
        }
        let queue = self.queue_for(to, draft, self.queue)?;
        self.append_one(to, &to.topic, queue, draft, durability)
    }

    /// The error of a delayed message for the topic in which delayed messages wait.
    #[cold]
    fn waits_there(&self) -> Error {
        Error::InvalidTopic {
            topic: self.topic.name.to_string(),
            reason: "delayed messages wait in this topic, so none can be delivered to it"
                .to_owned(),
        }
    }

    /// The delay in the form that the engine of the store supports: if the times of a queue may
    /// decrease, a level becomes a delay of the same time.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidOption`] for a level that does not exist.
    #[inline]
    pub fn delay_in_store(&self, delay: Delay) -> Result<Delay> {
        match delay {
            Delay::Level(_) => self.meant(self.shared.writer()?, delay),
            _ => Ok(delay),
        }
    }

    #[inline]
    fn meant(&self, engine: &dyn Engine, delay: Delay) -> Result<Delay> {
        let Delay::Level(level) = delay else {
            return Ok(delay);
        };
        let delays = self.shared.options.delay_levels();
        let levels = delays.all_ms().len();
        if usize::from(level) > levels {
            let rule = format!("be between 1 and {levels}, or 0 for no delay");
            return Err(Error::must("delay_level", level, rule));
        }
        match delays.of(level.into()) {
            Some(ms) if !engine.meanings().append_times => {
                Ok(Delay::For(Duration::from_millis(ms.unsigned_abs())))
            }
            _ => Ok(delay),
        }
    }

    /// Encodes and appends.
    #[inline]
    fn append_one(
        &self,
        to: &To<'_>,
        topic: &Topic,
        queue: u32,
        draft: &Draft<'_>,
        durability: Durability,
    ) -> Result<Sent> {
        let mut batch = scratch(to.engine.form());
        let meter = &to.handle.meters.puts;
        let mut put = meter.begin();
        let pushed = self.push(&mut batch, topic, queue, draft, put.clock_ms());
        let appended = pushed.and_then(|()| {
            put.encoded();
            let batches = &mut [(topic, &mut *batch)];
            to.engine.append(batches, Atomicity::Rows, durability)
        });
        let len = batch.encoded_len();
        keep(batch);
        let appended = appended?;
        if let Some(now) = meter.end(&put, &topic.name, len, appended.waited) {
            to.handle.sample_rates(now);
        }
        let Some(place) = appended.rows.first().copied() else {
            unreachable!("an append of one row returns one place")
        };
        Ok(Sent {
            place,
            end: appended.end,
            store_timestamp: appended.store_timestamp,
            durable: appended.durable,
        })
    }

    /// Encodes a row, with a unique id if the store is configured for them.
    #[inline]
    fn push(
        &self,
        batch: &mut Batch,
        topic: &Topic,
        queue: u32,
        draft: &Draft<'_>,
        now: i64,
    ) -> Result<()> {
        if !self.shared.options.unique_ids() {
            return batch.push(&topic.name, queue, draft, now);
        }
        batch.push_with_id(&topic.name, queue, draft, now)
    }

    fn send_to_level(
        &self,
        to: &To<'_>,
        draft: &Draft<'_>,
        delay_level: u8,
        durability: Durability,
    ) -> Result<Sent> {
        let levels = to.handle.options.delay_levels();
        let levels = levels.all_ms().len();
        let real_queue = self.queue_for(to, draft, self.queue)?.to_string();
        let level = delay_level.to_string();
        let system = [
            (names::DELAY, level.as_str()),
            (names::REAL_TOPIC, &self.topic.name),
            (names::REAL_QID, real_queue.as_str()),
        ];
        let schedule = Handle::schedule_topic(to.engine, levels)?;
        let draft = Draft {
            system_properties: &system,
            ..*draft
        };
        let queue = u32::from(delay_level) - 1;
        let sent = self.append_one(to, &schedule, queue, &draft, durability)?;
        self.shared.delayed(sent.end);
        Ok(sent)
    }

    /// Appends a message that waits until `at`.
    fn send_to_timer(
        &self,
        to: &To<'_>,
        draft: &Draft<'_>,
        at: i64,
        durability: Durability,
    ) -> Result<Sent> {
        if at.saturating_sub(self.shared.clock.now_ms()) > DELAY_MAX_MS {
            return Err(Error::option("deliver_at", at, DELAY_TOO_LONG));
        }
        let real_queue = self.queue_for(to, draft, self.queue)?.to_string();
        let at = at.to_string();
        let system = [
            (names::DELIVER_AT, at.as_str()),
            (names::REAL_TOPIC, &self.topic.name),
            (names::REAL_QID, real_queue.as_str()),
        ];
        let timer = to.engine.topic_for_append(names::TIMER_TOPIC)?;
        let draft = Draft {
            system_properties: &system,
            properties_room: names::TIMER_OFFSET_LEN_MAX,
            ..*draft
        };
        let sent = self.append_one(to, &timer, 0, &draft, durability)?;
        self.shared.delayed(sent.end);
        Ok(sent)
    }

    /// The queue of a message: the requested one, else chosen by the first key, else the next.
    #[inline]
    fn queue_for(&self, to: &To<'_>, draft: &Draft<'_>, fallback: Option<u32>) -> Result<u32> {
        self.queue_of(to, draft, fallback, || to.needs_key())
    }

    /// As [`Producer::queue_for`]. `needs_key`: whether a message of the topic must have a key.
    #[inline]
    fn queue_of(
        &self,
        to: &To<'_>,
        draft: &Draft<'_>,
        fallback: Option<u32>,
        needs_key: impl FnOnce() -> bool,
    ) -> Result<u32> {
        let topic: &Topic = &to.topic;
        if let Some(claim) = &self.claim {
            if self.shared.is_forked() {
                // The parent process owns the queue.
                return Err(Error::Forked);
            }
            claim.check(draft.queue)?;
        }
        let queues = topic.write_queues();
        if topic.permissions() & PERMISSION_WRITE == 0 {
            return Err(Error::read_only_topic(&topic.name));
        }
        let key = draft.first_key();
        if key.is_none() && needs_key() {
            let reason = "a message of a topic that is compacted must have a key";
            return Err(Error::option("key", "None", reason));
        }
        match (draft.queue.or(fallback), key) {
            (Some(queue), _) if queue < queues => Ok(queue),
            (Some(queue), _) => Err(topic.unknown_queue(queue)),
            (None, Some(key)) => Ok(to.engine.meanings().queue_of_key(key, queues)),
            (None, None) => Ok(topic.next_queue()),
        }
    }

    /// Whether a send of a body of `len` bytes to a queue, or to any, would not wait; see
    /// [`Engine::is_ready_for`].
    #[inline]
    pub fn is_ready_for(&self, queue: Option<u32>, len: usize) -> bool {
        // A forked child opens the store again, which may have to happen now.
        let queue = queue.or(self.queue);
        let engine = &self.shared.engine;
        !self.shared.is_forked() && engine.is_ready_for(&self.topic, queue, len)
    }

    /// Waits until the readable end of the log is above `position`; see [`Engine::wait_until`].
    pub fn wait_readable(&self, position: u64, timeout: Duration) -> Result<u64> {
        Ok(self.shared.engine()?.wait_readable(position, timeout))
    }
}

/// An empty batch of a form.
#[inline]
fn scratch(form: Form) -> Box<Batch> {
    match SCRATCH.take() {
        Some(mut kept) => {
            kept.renew(form);
            kept
        }
        None => Box::new(form.batch()),
    }
}

/// Keeps a batch for the next send of this thread.
#[inline]
fn keep(batch: Box<Batch>) {
    if batch.capacity() <= SCRATCH_LEN_MAX {
        SCRATCH.set(Some(batch));
    }
}
