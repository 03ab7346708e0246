//! The state of one process of a shared store, and its waits for the leader.

use super::leader::Leader;
use crate::disk::Disk;
use crate::engine::commit_log::log::Log;
use crate::engine::commit_log::log::append::Tail;
use crate::engine::commit_log::parts::{AppendRules, Parts};
use crate::engine::directory::member::Member;
use crate::engine::directory::member::leading::Follower;
use crate::engine::directory::page::{Mark, StatePage, Word};
use crate::engine::service::append_lock::AppendLock;
use crate::engine::service::durability::Durable;
use crate::engine::service::duty;
use crate::engine::service::health::Health;
use crate::engine::service::hold::Hold;
use crate::engine::service::lead::Lead;
use crate::engine::service::polling::Polling;
use crate::engine::service::shutdown::Shutdown;
use crate::engine::service::watch::Watch;
use crate::error::Result;
use crate::interrupt;
use crate::machine::Machine;
use crate::mapped::Allocator;
use crate::meter::Meters;
use crate::options::{Flush, Options};
use crate::sync::Mutex;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// How often a thread that waits for the leader checks whether there is one.
const CHECK: Duration = Duration::from_millis(20);
/// Longest wait of a reader for its messages to be dispatched. Only a leader that hangs takes this
/// long.
const DISPATCH_TIMEOUT: Duration = Duration::from_secs(5);

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
    /// The version of the table from which the topics were last loaded.
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
    /// The measurements that other processes are shown while this one leads.
    pub(super) meters: OnceLock<Arc<Meters>>,
    pub(super) shutdown: Shutdown,
}

impl Core {
    pub(super) fn disk(&self) -> &Arc<dyn Disk> {
        &self.machine.disk
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

    /// Waits until the leader has dispatched the log up to `end`, so that readers see it. Gives up
    /// after `DISPATCH_TIMEOUT`, on an interrupt, and once the store has failed or is closed.
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

    /// `None`, because the services of the leader flush.
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
