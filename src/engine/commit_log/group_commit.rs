//! Group commit: senders that wait for the disk share one sync.
//!
//! ```text
//!   sender --> [write list] --swap--> [read list] --> one sync of what is published --> wake all
//! ```
//!
//! The two lists change places under a lock that is held for nothing else. While one group is
//! synced the next gathers, so no one waits for a timer, and a sync is as large as the disk is
//! slow.
//!
//! Invariant: a waiter is completed with success only by a sync that began after its message was
//! published. The thread starts with the first waiter and ends with the store.

use super::shared::Shared;
use super::state::Mark;
use crate::engine::Waiter;
use parking_lot::{Condvar, Mutex};
use std::sync::Arc;
use std::thread::JoinHandle;

/// Those who wait for a sync, and the thread that makes it.
#[derive(Debug, Default)]
pub struct GroupCommit {
    list: Mutex<WriteList>,
    enlisted: Condvar,
}

#[derive(Debug, Default)]
struct WriteList {
    waiting: Vec<Enlisted>,
    flusher: Option<JoinHandle<()>>,
    ended: bool,
}

#[derive(Debug)]
struct Enlisted {
    end: u64,
    waiter: Arc<Waiter>,
}

/// A waiter that is completed when the log is durable up to `end`, a published position.
pub fn enlist(shared: &Arc<Shared>, end: u64) -> Arc<Waiter> {
    if shared.log.state.get(Mark::Durable) >= end {
        return Waiter::completed(Ok(()));
    }
    let group = &shared.group;
    let mut list = group.list.lock();
    if list.flusher.is_none() && !list.ended {
        let shared = Arc::clone(shared);
        let thread = std::thread::Builder::new().name("forebay-commit".to_owned());
        list.flusher = thread.spawn(move || run(&shared)).ok();
    }
    if list.flusher.is_none() {
        // No thread can be had, or the store closes: who waits does the work.
        drop(list);
        return Waiter::completed(shared.flush_to(end).map_err(Arc::new));
    }
    let waiter = Arc::new(Waiter::default());
    let enlisted = Arc::clone(&waiter);
    list.waiting.push(Enlisted {
        end,
        waiter: enlisted,
    });
    drop(list);
    group.enlisted.notify_one();
    waiter
}

fn run(shared: &Shared) {
    let mut group = Vec::new();
    while shared.group.swap(&mut group) {
        let end = group.iter().map(|it| it.end).max().unwrap_or(0);
        let outcome = shared.flush_to(end).map_err(Arc::new);
        for enlisted in group.drain(..) {
            enlisted.waiter.complete(outcome.clone());
        }
    }
}

impl GroupCommit {
    /// Waits for someone to enlist and exchanges the lists, of which `read` is empty. False where
    /// no one will come any more.
    fn swap(&self, read: &mut Vec<Enlisted>) -> bool {
        let mut list = self.list.lock();
        while list.waiting.is_empty() && !list.ended {
            self.enlisted.wait(&mut list);
        }
        std::mem::swap(&mut list.waiting, read);
        !read.is_empty()
    }

    /// Completes all who have enlisted and ends the thread.
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
