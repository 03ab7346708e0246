//! The state shared by a store and its producers.

use crate::clock::Clock;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::meter::{PutMeter, RateSampler};
use crate::options::{Mode, Options};
use crate::warning::Warnings;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

/// A service that runs above an engine and uses it.
pub(crate) trait Service: Send + Sync {
    /// Ends the service and waits until it has ended.
    fn end(&self);
}

/// An open store.
pub(crate) struct Handle {
    pub(crate) engine: Arc<dyn Engine>,
    /// They end before the engine closes.
    pub(crate) services: Vec<Arc<dyn Service>>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) path: PathBuf,
    pub(crate) options: Options,
    pub(crate) meter: PutMeter,
    pub(crate) rates: RateSampler,
    pub(crate) closed: AtomicBool,
    pub(crate) generation: u32,
    /// Called with the end of a delayed message that was appended.
    pub(crate) delayed: OnceLock<Box<dyn Fn(u64) + Send + Sync>>,
}

impl Handle {
    /// Samples the counters for the recent rates.
    pub(crate) fn sample_rates(&self, now: Instant) {
        self.rates.sample(now, || self.engine.counters());
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

    /// The collector of the store's warnings.
    pub(crate) fn warnings(&self) -> &Arc<Warnings> {
        &self.engine.report().warnings
    }

    #[inline]
    pub(crate) fn engine(&self) -> Result<&dyn Engine> {
        if self.generation != crate::disk::fork_generation() {
            return Err(Error::Forked);
        }
        if self.closed.load(Ordering::Acquire) {
            return Err(Error::Closed);
        }
        Ok(&*self.engine)
    }

    #[inline]
    pub(crate) fn writer(&self) -> Result<&dyn Engine> {
        if self.options.mode == Mode::Read {
            return Err(Error::ReadOnly {
                what: format!("the store {}", self.path.display()),
            });
        }
        self.engine()
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
        if self.generation == crate::disk::fork_generation()
            && !self.closed.swap(true, Ordering::AcqRel)
        {
            let _ = self.close();
        }
    }
}
