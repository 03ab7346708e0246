//! The thread of a partition log that is open for writing: it flushes, and makes full passes.

use super::parts::Parts;
use super::showing::Showing;
use crate::engine::service::durability::Durable;
use crate::engine::service::flush::{FlushRules, FlushService};
use crate::engine::service::group_commit::GroupCommit;
use crate::engine::service::shutdown::Shutdown;
use crate::engine::service::watch::Watch;
use crate::machine::Drive;
use crate::options::Options;
use crate::region::guard;
use crate::sync::Mutex;
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How often a process that does not lead unmaps unused segments.
const UNMAP_EACH: Duration = Duration::from_secs(10);
/// How often the thread calls the watch, and shows what was measured.
const WATCH_EACH: Duration = Duration::from_secs(1);

/// The services.
#[derive(Debug)]
pub struct Services {
    /// When the log is flushed.
    pub flush_rules: FlushRules,
    /// Senders that wait for a sync.
    pub group: Arc<GroupCommit>,
    /// What readers in other processes are shown.
    pub showing: Showing,
    /// A layer above the engine that checks from time to time whether it is needed.
    watch: OnceLock<Arc<dyn Watch>>,
    shutdown: Shutdown,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Services {
    /// The services of a store with these options. No thread runs yet.
    pub fn new(options: &Options, drive: Drive) -> Services {
        Services {
            flush_rules: FlushRules::new(options),
            group: Arc::new(GroupCommit::new(drive)),
            showing: Showing::default(),
            watch: OnceLock::new(),
            shutdown: Shutdown::default(),
            thread: Mutex::default(),
        }
    }

    /// Sets the watch that is called about once a second.
    pub fn set_watch(&self, watch: Arc<dyn Watch>) {
        let _ = self.watch.set(watch);
    }

    /// Starts the thread.
    pub fn start(self: &Arc<Services>, parts: &Arc<Parts>) -> std::io::Result<()> {
        parts.readers.open_page(&*parts.disk, &parts.root);
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
        let mut watched = start;
        while !self.shutdown.has_begun() {
            let pause = next.saturating_duration_since(Instant::now());
            self.shutdown.sleep(pause.min(WATCH_EACH));
            if self.shutdown.has_begun() {
                return;
            }
            if !parts.is_on_duty() {
                // Another process that shares the store runs the services.
                next = Instant::now() + self.flush_rules.interval;
                if watched.elapsed() >= UNMAP_EACH {
                    parts.readers.open_page(&*parts.disk, &parts.root);
                    parts.unmap_unused();
                    watched = Instant::now();
                }
                continue;
            }
            if watched.elapsed() >= WATCH_EACH {
                if let Some(watch) = self.watch.get() {
                    watch.check();
                }
                parts.readers.open_page(&*parts.disk, &parts.root);
                self.showing.show(parts);
                watched = Instant::now();
            }
            guard::renew();
            if Instant::now() >= next {
                next = service.step(parts, Instant::now());
            }
        }
    }
}
