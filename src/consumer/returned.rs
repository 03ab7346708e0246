//! Messages of a queue that nobody has used, and that are not taken back yet.
//!
//! Whoever gives messages back must not wait: an iterator may be dropped in the thread of an event
//! loop, while another thread reads from the queue with its lock. So they are listed here, and the
//! next thread that locks the queue takes them back, perhaps the same one. After that list has
//! grown, all consumers that wait check their queues again, so none of them misses a message.

use super::lane_state::State;
use crate::clock::Moment;
use crate::sync::{AtomicBool, Mutex, Ordering};

/// Deliveries that are to be taken back.
#[derive(Debug, Default)]
pub(super) struct Returned {
    list: Mutex<Vec<Unused>>,
    /// Whether there may be any: a queue is locked for each message that is settled. Changes under
    /// the lock of the list.
    has_some: AtomicBool,
}

/// A delivery that the owner of a queue has not used.
#[derive(Debug)]
pub(super) struct Unused {
    pub(super) member: u64,
    pub(super) offset: u64,
    pub(super) serial: u64,
}

impl Returned {
    /// Adds a delivery.
    pub(super) fn add(&self, unused: Unused) {
        let mut list = self.list.lock();
        list.push(unused);
        self.has_some.store(true, Ordering::Release);
    }

    /// Takes back all deliveries of the present owner: they are due at once. The queue of another
    /// member has been recalled.
    pub(super) fn take_back(&self, state: &mut State, now: Moment) {
        if !self.has_some.load(Ordering::Acquire) {
            return;
        }
        let mut list = self.list.lock();
        self.has_some.store(false, Ordering::Release);
        let all = std::mem::take(&mut *list);
        drop(list);
        for unused in all {
            if state.owner == Some(unused.member) {
                let window = &mut state.window;
                window.give_back(unused.offset, unused.serial, now.steady_ms);
            }
        }
    }
}
