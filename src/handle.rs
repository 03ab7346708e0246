//! The state shared by a store and its producers.

use crate::clock::Clock;
use crate::engine::directory::group_table::joint::Joint;
use crate::engine::{Durability, Engine, Topic};
use crate::error::{Error, Result};
use crate::meter::Meters;
use crate::num::short;
use crate::options::{Mode, Options};
use crate::record::names::SCHEDULE_TOPIC;
use crate::warning::Warnings;
use std::any::Any;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

/// A service that runs above an engine and uses it.
pub(crate) trait Service: Send + Sync {
    /// Ends the service and waits until it has ended.
    fn end(&self);
}

/// A handle of a shared store is opened again in a child of its process, in a child of that, and so
/// on up to this many times.
const GENERATIONS: usize = 16;

/// Opens a store again as it was opened.
pub(crate) type Reopen = Box<dyn Fn() -> Result<Again> + Send + Sync>;

/// A shared store that a child of the process has opened again.
pub(crate) struct Again {
    /// The services above the handle, such as its consumers. They are dropped first.
    pub(crate) above: Box<dyn Any + Send + Sync>,
    pub(crate) handle: Arc<Handle>,
}

/// An open store.
pub(crate) struct Handle {
    pub(crate) engine: Arc<dyn Engine>,
    /// This process among those that share the store, if it is shared.
    pub(crate) joint: Option<Arc<dyn Joint>>,
    /// Services that end before the engine closes.
    pub(crate) services: Vec<Arc<dyn Service>>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) path: PathBuf,
    pub(crate) options: Options,
    pub(crate) meters: Arc<Meters>,
    pub(crate) closed: AtomicBool,
    pub(crate) generation: u32,
    /// Called with the end of a delayed message that was appended.
    pub(crate) delayed: OnceLock<Box<dyn Fn(u64) + Send + Sync>>,
    /// How a child of this process opens the store for itself, if it is shared.
    pub(crate) reopen: Option<Reopen>,
    /// The handles of forked children, by the number of forks since this one was opened. A process
    /// uses one of them. It never touches its parent's handle: a thread that was inside it at the
    /// fork does not exist in the child.
    pub(crate) again: [OnceLock<Again>; GENERATIONS],
}

impl Handle {
    /// Samples the counters for the recent rates.
    pub(crate) fn sample_rates(&self, now: Instant) {
        self.meters.rates.sample(now, || self.engine.counters());
    }

    /// This process among those that share the store; `None` if the store is not shared, or only
    /// read.
    pub(crate) fn joint(&self) -> Option<&dyn Joint> {
        self.joint.as_deref()
    }

    /// Sets the function to call with the end of each delayed message that is appended.
    pub(crate) fn on_delayed(&self, call: Box<dyn Fn(u64) + Send + Sync>) {
        let _ = self.delayed.set(call);
    }

    /// Reports that a delayed message was appended, which ends at `end`.
    pub(crate) fn delayed(&self, end: u64) {
        if let Some(call) = self.delayed.get() {
            call(end);
        }
    }

    /// The topic of messages with a delay level, with at least as many queues as there are levels.
    ///
    /// # Errors
    ///
    /// Those of creating a topic.
    pub(crate) fn schedule_topic(engine: &dyn Engine, levels: usize) -> Result<Arc<Topic>> {
        let topic = engine.topic_for_append(SCHEDULE_TOPIC)?;
        let levels = short(levels);
        match topic.write_queues() < levels {
            true => engine.create_topic(SCHEDULE_TOPIC, levels, Durability::Flushed),
            false => Ok(topic),
        }
    }

    /// The collector of the store's warnings.
    pub(crate) fn warnings(&self) -> &Arc<Warnings> {
        &self.opened().unwrap_or(self).engine.report().warnings
    }

    /// Whether this is a child of the process that opened the store.
    #[inline]
    pub(crate) fn is_forked(&self) -> bool {
        self.generation != crate::disk::fork_generation()
    }

    /// The handle that this process uses. A child of the process that opened a shared store opens
    /// it again on first use.
    ///
    /// # Errors
    ///
    /// [`Error::Forked`] in such a child if the store is not shared; those of opening it.
    #[inline]
    pub(crate) fn current(&self) -> Result<&Handle> {
        match self.is_forked() {
            false => Ok(self),
            true => self.join_again(),
        }
    }

    #[cold]
    fn join_again(&self) -> Result<&Handle> {
        let (Some(reopen), Some(slot)) = (&self.reopen, self.slot()) else {
            return Err(Error::Forked);
        };
        if slot.get().is_none() && !self.closed.load(Ordering::Acquire) {
            // Of two threads that open it at the same time, one closes it again.
            let _ = slot.set(reopen()?);
        }
        slot.get()
            .map(|it| &*it.handle)
            .ok_or_else(|| Error::closed(&self.path))
    }

    /// The handle that this process has already opened.
    pub(crate) fn opened(&self) -> Option<&Handle> {
        match self.is_forked() {
            false => Some(self),
            true => self.opened_again().map(|it| &*it.handle),
        }
    }

    /// The handle that a child of the process that opened the store has already opened.
    pub(crate) fn opened_again(&self) -> Option<&Again> {
        self.slot()?.get()
    }

    /// Where a child of the process that opened the store keeps its handle.
    fn slot(&self) -> Option<&OnceLock<Again>> {
        let forks = crate::disk::fork_generation().wrapping_sub(self.generation);
        self.again.get((forks as usize).checked_sub(1)?)
    }

    /// The engine that this process uses.
    ///
    /// # Errors
    ///
    /// [`Error::Closed`], and those of [`Handle::current`].
    #[inline]
    pub(crate) fn engine(&self) -> Result<&dyn Engine> {
        let handle = self.current()?;
        if handle.closed.load(Ordering::Acquire) {
            return Err(Error::closed(&self.path));
        }
        Ok(&*handle.engine)
    }

    #[inline]
    pub(crate) fn writer(&self) -> Result<&dyn Engine> {
        if self.options.mode == Mode::Read {
            return Err(Error::read_only_store(&self.path));
        }
        self.engine()
    }

    /// Whether this process keeps the progress of consumers, and delivers delayed messages.
    pub(crate) fn keeps_consumers(&self) -> bool {
        self.options.mode != Mode::Read && !self.is_forked() && !self.closed.load(Ordering::Acquire)
    }

    /// Ends the services and closes the engine.
    pub(crate) fn close(&self) -> Result<()> {
        self.services.iter().for_each(|service| service.end());
        self.engine.close()
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // Cleans up only: a caller that wants to see errors calls `close`.
        if !self.is_forked() && !self.closed.swap(true, Ordering::AcqRel) {
            let _ = self.close();
        }
    }
}
