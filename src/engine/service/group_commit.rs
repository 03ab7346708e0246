//! Group commit: senders that wait for the disk share one sync.
//!
//! ```text
//!   sender --> [write list] --swap--> [read list] --> one sync of published bytes --> wake all
//! ```
//!
//! The two lists are swapped under a lock that protects nothing else. The next group gathers while
//! one is synced, so nobody waits for a timer, and a slower disk gets larger groups.
//!
//! Invariant: a waiter is completed with success only by a sync that began after its message was
//! published. The thread starts with the first waiter and ends with the store.

use super::durability::Durable;
use crate::engine::waiter::{Waiter, spin};
use crate::machine::Drive;
use crate::plant::{Bug, planted};
use crate::sync::{AtomicBool, Condvar, Instant, Mutex, Ordering, thread};
use std::sync::Arc;
use std::time::Duration;

/// The senders that wait for a sync, and the thread that syncs for them.
#[derive(Debug)]
pub struct GroupCommit {
    drive: Drive,
    /// Whether the write list is not empty.
    pending: AtomicBool,
    list: Mutex<WriteList>,
    enlisted: Condvar,
}

#[derive(Debug, Default)]
struct WriteList {
    waiting: Vec<Enlisted>,
    flusher: Option<thread::JoinHandle<()>>,
    ended: bool,
    /// Whether the thread must be woken.
    sleeps: bool,
}

/// How long the thread polls for the next group before it sleeps.
const POLL: Duration = Duration::from_micros(50);

#[derive(Debug)]
struct Enlisted {
    end: u64,
    since: Instant,
    waiter: Arc<Waiter>,
}

/// Returns a waiter that completes when the log is durable up to `end`, a published position.
pub fn enlist<L: Durable>(group: &Arc<GroupCommit>, log: &Arc<L>, end: u64) -> Arc<Waiter> {
    if log.durable() >= end {
        return Waiter::completed(Ok(()));
    }
    let mut list = group.list.lock();
    if list.flusher.is_none() && !list.ended && group.drive == Drive::Threads {
        let (group, log) = (Arc::clone(group), Arc::clone(log));
        let thread = thread::Builder::new().name("forebay-commit".to_owned());
        list.flusher = thread.spawn(move || group.run(&*log)).ok();
    }
    if list.flusher.is_none() && (list.ended || group.drive == Drive::Threads) {
        // The thread could not be started, or the store is closing: the caller syncs.
        drop(list);
        return Waiter::completed(log.flush_to(end).map_err(Arc::new));
    }
    let waiter = Waiter::new(list.waiting.is_empty());
    let enlisted = Arc::clone(&waiter);
    list.waiting.push(Enlisted {
        end,
        since: Instant::now(),
        waiter: enlisted,
    });
    group.pending.store(true, Ordering::Release);
    let sleeps = list.sleeps;
    drop(list);
    if sleeps {
        group.enlisted.notify_one();
    }
    waiter
}

impl GroupCommit {
    /// No waiters and no thread.
    pub fn new(drive: Drive) -> GroupCommit {
        GroupCommit {
            drive,
            pending: AtomicBool::new(false),
            list: Mutex::default(),
            enlisted: Condvar::default(),
        }
    }

    fn run(&self, log: &impl Durable) {
        let mut read = Vec::new();
        while self.wait() {
            self.step(log, &mut read);
        }
    }

    /// Syncs once for all enlisted waiters and wakes them. `read` is empty before and after.
    fn step(&self, log: &impl Durable, read: &mut Vec<Enlisted>) {
        if !planted(Bug::SwapLate) {
            self.swap(read);
        }
        if planted(Bug::AcknowledgeEarly) {
            read.iter().for_each(|it| it.waiter.complete(Ok(())));
        }
        let end = match planted(Bug::SwapLate) {
            true => log.published(),
            false => read.iter().map(|it| it.end).max().unwrap_or(0),
        };
        let outcome = log.flush_to(end).map_err(Arc::new);
        if planted(Bug::SwapLate) {
            self.swap(read);
        }
        for enlisted in read.drain(..) {
            log.count_wait(enlisted.since.elapsed());
            enlisted.waiter.complete(outcome.clone());
        }
    }

    /// Syncs for one group, as the thread does, for a caller that steps.
    #[cfg(test)]
    pub fn step_once(&self, log: &impl Durable) {
        self.step(log, &mut Vec::new());
    }

    /// Waits until a sender enlists. Returns `false` once nobody can.
    fn wait(&self) -> bool {
        // The senders that were just woken are likely to enlist again.
        spin(POLL, || self.pending.load(Ordering::Acquire));
        let mut list = self.list.lock();
        while list.waiting.is_empty() && !list.ended {
            list.sleeps = true;
            list = self.enlisted.wait(list);
        }
        list.sleeps = false;
        !list.waiting.is_empty()
    }

    /// Swaps the lists.
    fn swap(&self, read: &mut Vec<Enlisted>) {
        let mut list = self.list.lock();
        std::mem::swap(&mut list.waiting, read);
        self.pending.store(false, Ordering::Relaxed);
    }

    /// Completes all enlisted waiters and ends the thread.
    pub fn end(&self) {
        let flusher = {
            let mut list = self.list.lock();
            list.ended = true;
            list.flusher.take()
        };
        self.enlisted.notify_all();
        if let Some(flusher) = flusher {
            let _ = flusher.join();
        }
    }
}
