//! The thread of a partition log that is open for writing: it flushes, and makes full passes.

use super::parts::Parts;
use crate::engine::service::flush::{FlushRules, FlushService};
use crate::engine::service::group_commit::GroupCommit;
use crate::engine::service::shutdown::Shutdown;
use crate::machine::Drive;
use crate::options::Options;
use crate::region::guard;
use crate::sync::Mutex;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Instant;

/// The services.
#[derive(Debug)]
pub struct Services {
    /// When the log is flushed.
    pub flush_rules: FlushRules,
    /// Senders that wait for a sync.
    pub group: Arc<GroupCommit>,
    shutdown: Shutdown,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Services {
    /// The services of a store with these options. No thread runs yet.
    pub fn new(options: &Options, drive: Drive) -> Services {
        Services {
            flush_rules: FlushRules::new(options),
            group: Arc::new(GroupCommit::new(drive)),
            shutdown: Shutdown::default(),
            thread: Mutex::default(),
        }
    }

    /// Starts the thread.
    pub fn start(self: &Arc<Services>, parts: &Arc<Parts>) -> std::io::Result<()> {
        let (services, parts) = (Arc::clone(self), Arc::clone(parts));
        let thread = std::thread::Builder::new().name("forebay-flush".to_owned());
        let started = thread.spawn(move || services.run(&parts))?;
        *self.thread.lock() = Some(started);
        Ok(())
    }

    /// Ends the thread, then completes all waiters.
    pub fn end(&self) {
        self.shutdown.begin();
        if let Some(thread) = self.thread.lock().take() {
            let _ = thread.join();
        }
        self.group.end();
    }

    fn run(&self, parts: &Parts) {
        let start = Instant::now();
        let mut service = FlushService::new(self.flush_rules, start);
        let mut next = start + self.flush_rules.interval;
        while !self.shutdown.has_begun() {
            self.shutdown
                .sleep(next.saturating_duration_since(Instant::now()));
            if self.shutdown.has_begun() {
                return;
            }
            guard::renew();
            if Instant::now() >= next {
                next = service.step(parts, Instant::now());
            }
        }
    }
}
