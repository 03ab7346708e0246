//! Notices: an event loop waits for a store without a thread for each wait.
//!
//! ```text
//!   flusher -- a waiter has its outcome -+
//!                                        +--> posted: [token, ...] --> event --> loop: take
//!   Watch   -- the log has grown --------+
//! ```
//!
//! The loop gives each of its waits a token. When a wait ends, its token is posted; the first token
//! of a round makes the event readable, which the loop watches, and the loop takes all that were
//! posted at once. So a group commit wakes the loop once, however many sends wait for it.
//!
//! A [`Watch`] ends waits for messages. Its thread sleeps in [`Engine::wait_until`] on behalf of
//! all waits of a loop, because that call knows every way to learn of a message, other processes
//! included, and ends when the store closes. It starts with the first wait.
//!
//! [`Engine::wait_until`]: crate::Engine::wait_until

use crate::disk::Event;
use crate::engine::Listener;
use crate::error::{At, Error, Op, Result};
use crate::store::Store;
use crate::sync::{Condvar, Mutex};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// The waits of one event loop that have ended.
#[derive(Debug)]
pub struct Notices {
    /// The event is notified as long as this is not empty.
    posted: Mutex<Vec<u64>>,
    event: Event,
}

impl Notices {
    /// Notices without a posted token.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if the process has no descriptor left, or the system does not offer such
    /// descriptors.
    pub fn new(store: &Store) -> Result<Notices> {
        let event = Event::new();
        Ok(Notices {
            posted: Mutex::default(),
            event: event.at(Op::StartThreads, store.path())?,
        })
    }

    /// Ends a wait. The caller may be any thread, and does not wait.
    pub fn post(&self, token: u64) {
        let mut posted = self.posted.lock();
        posted.push(token);
        if posted.len() == 1 {
            self.event.notify();
        }
    }

    /// The tokens that were posted since the last call.
    pub fn take(&self) -> Vec<u64> {
        let mut posted = self.posted.lock();
        if !posted.is_empty() {
            self.event.clear();
        }
        std::mem::take(&mut posted)
    }

    /// The descriptor that is readable while something is posted.
    pub fn descriptor(&self) -> i32 {
        self.event.descriptor()
    }
}

impl Listener for Notices {
    fn completed(&self, token: u64) {
        self.post(token);
    }
}

/// Ends waits for messages of a store.
pub struct Watch {
    store: Store,
    notices: Arc<Notices>,
    waits: Arc<Waits>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// What is shared with the thread.
#[derive(Default)]
struct Waits {
    list: Mutex<List>,
    added: Condvar,
    ended: AtomicBool,
}

#[derive(Default)]
struct List {
    waiting: Vec<Wait>,
    /// The log is readable at least up to here.
    known: u64,
}

/// A wait of the loop.
struct Wait {
    position: u64,
    changes: Option<u64>,
    token: u64,
}

impl Watch {
    /// A watch without a thread.
    pub fn new(store: &Store, notices: &Arc<Notices>) -> Watch {
        Watch {
            store: store.clone(),
            notices: Arc::clone(notices),
            waits: Arc::default(),
            thread: Mutex::default(),
        }
    }

    /// Posts `token` when the log is readable above `position`, when [`Store::changes`] is not
    /// `changes`, or when the store closes. Up to `position` the log was readable before. Does not
    /// wait.
    ///
    /// # Errors
    ///
    /// [`Error::Closed`] after [`Watch::end`]; [`Error::Io`] if the thread cannot be started.
    pub fn when_readable(&self, position: u64, changes: Option<u64>, token: u64) -> Result<()> {
        let mut list = self.waits.list.lock();
        if self.waits.ended.load(Ordering::Acquire) {
            return Err(Error::Closed { path: None });
        }
        // The thread may be waiting for a later position, and for a later change.
        let wait = Wait {
            position,
            changes,
            token,
        };
        if wait.is_over(list.known, self.store.changes()) {
            self.notices.post(token);
            return Ok(());
        }
        let mut thread = self.thread.lock();
        if thread.is_none() {
            let (store, notices) = (self.store.clone(), Arc::clone(&self.notices));
            let waits = Arc::clone(&self.waits);
            let named = std::thread::Builder::new().name("forebay-watch".to_owned());
            let started = named.spawn(move || waits.run(&store, &notices));
            let failed = |e| Error::io(Op::StartThreads, self.store.path(), e);
            *thread = Some(started.map_err(failed)?);
        }
        list.known = position;
        list.waiting.push(wait);
        self.waits.added.notify_one();
        Ok(())
    }

    /// Gives up a wait: its token is not posted any more, unless it already was.
    pub fn forget(&self, token: u64) {
        let mut list = self.waits.list.lock();
        list.waiting.retain(|wait| wait.token != token);
    }

    /// Ends all waits and the thread. Does nothing in a child process, which has no such thread.
    pub fn end(&self) {
        if self.store.is_forked() {
            return;
        }
        self.waits.end(&self.store);
        let thread = self.thread.lock().take();
        if let Some(thread) = thread {
            let _ = thread.join();
        }
        self.waits.tell(u64::MAX, 0, &self.notices);
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        // This does not wait for the thread. In a child process, a thread of the parent may hold
        // the lock forever.
        if !self.store.is_forked() {
            self.waits.end(&self.store);
        }
    }
}

impl Wait {
    fn is_over(&self, end: u64, changes: u64) -> bool {
        self.position < end || self.changes.is_some_and(|before| before != changes)
    }
}

impl Waits {
    fn run(&self, store: &Store, notices: &Notices) {
        while let Some(position) = self.next() {
            // Read before the waits are checked, so that a change meanwhile is noticed below.
            let changes = store.changes();
            let Ok(engine) = store.engine() else {
                // A caller that waits for a closed store gets the error at its next call.
                self.tell(u64::MAX, changes, notices);
                continue;
            };
            self.tell(engine.readable_position(), changes, notices);
            let done = || self.ended.load(Ordering::Acquire) || store.changes() != changes;
            engine.wait_until(position, Duration::MAX, &done);
        }
    }

    /// The lowest position that somebody waits for, once there is one; `None` at the end.
    fn next(&self) -> Option<u64> {
        let mut list = self.list.lock();
        loop {
            if self.ended.load(Ordering::Acquire) {
                return None;
            }
            let positions = list.waiting.iter().map(|wait| wait.position);
            if let Some(lowest) = positions.min() {
                return Some(lowest);
            }
            list = self.added.wait(list);
        }
    }

    /// Ends all waits that are over.
    fn tell(&self, end: u64, changes: u64, notices: &Notices) {
        let mut list = self.list.lock();
        list.waiting.retain(|wait| {
            let is_over = wait.is_over(end, changes);
            if is_over {
                notices.post(wait.token);
            }
            !is_over
        });
    }

    fn end(&self, store: &Store) {
        let list = self.list.lock();
        self.ended.store(true, Ordering::Release);
        drop(list);
        self.added.notify_one();
        if let Ok(engine) = store.engine() {
            engine.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{Durability, Waiter};
    use crate::options::Options;
    use crate::record::Draft;
    use std::time::Instant;

    fn store() -> Store {
        Store::open(":memory:", Options::default()).unwrap()
    }

    fn send(store: &Store) {
        let producer = store.producer("orders", None).unwrap();
        producer
            .send(&Draft::default(), 0, Durability::Default)
            .unwrap();
    }

    /// Waits as a loop does, until something is posted.
    fn taken(notices: &Notices) -> Vec<u64> {
        let began = Instant::now();
        loop {
            let tokens = notices.take();
            if !tokens.is_empty() {
                return tokens;
            }
            assert!(began.elapsed().as_secs() < 60, "nothing is posted");
            std::thread::yield_now();
        }
    }

    #[test]
    fn all_waiters_of_a_round_are_taken_at_once() {
        let notices = Arc::new(Notices::new(&store()).unwrap());
        let waiters = [(); 3].map(|()| Waiter::new(false));
        for (token, waiter) in (0..).zip(&waiters) {
            assert!(waiter.listen(Arc::<Notices>::clone(&notices), token));
        }
        assert_eq!(notices.take(), [0; 0]);
        waiters.iter().for_each(|waiter| waiter.complete(Ok(())));
        assert_eq!(notices.take(), [0, 1, 2]);
        // An outcome is posted once. One that exists already is not posted.
        waiters.iter().for_each(|waiter| waiter.complete(Ok(())));
        for waiter in &waiters {
            assert!(!waiter.listen(Arc::<Notices>::clone(&notices), 9));
        }
        assert_eq!(notices.take(), [0; 0]);
    }

    /// A store with one message, and a watch over it.
    fn watched() -> (Store, Arc<Notices>, Watch) {
        let store = store();
        send(&store);
        let notices = Arc::new(Notices::new(&store).unwrap());
        let watch = Watch::new(&store, &notices);
        (store, notices, watch)
    }

    #[test]
    fn a_message_ends_the_waits_below_it_and_no_other() {
        let (store, notices, watch) = watched();
        let end = store.engine().unwrap().readable_position();
        watch.when_readable(end, None, 1).unwrap();
        watch.when_readable(end, None, 2).unwrap();
        watch.forget(1);
        // A wait for messages that are already readable ends at once.
        watch.when_readable(end - 1, None, 3).unwrap();
        assert_eq!(taken(&notices), [3]);
        send(&store);
        assert_eq!(taken(&notices), [2]);
    }

    #[test]
    fn a_store_that_closes_ends_all_waits_and_the_thread() {
        let (store, notices, watch) = watched();
        let end = store.engine().unwrap().readable_position();
        watch.when_readable(end, None, 1).unwrap();
        store.close().unwrap();
        assert_eq!(taken(&notices), [1]);
        watch.end();
        assert!(watch.thread.lock().is_none());
        assert!(matches!(
            watch.when_readable(end, None, 2),
            Err(Error::Closed { .. })
        ));
    }
}
