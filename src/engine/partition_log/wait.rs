//! Waiting for messages. In the process that writes, a thread sleeps until a sender notifies it. In
//! another process it sleeps on a word that the writers change, and checks the files after that;
//! see [`listening`].
//!
//! [`listening`]: super::listening

use super::PartitionLog;
use crate::engine::Engine;
use crate::error::Result;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Waits until the readable end is above `position`, `done` holds or the store closes, at most for
/// `timeout`. Returns the readable end.
pub(super) fn wait_until(
    engine: &PartitionLog,
    position: u64,
    timeout: Duration,
    done: &dyn Fn() -> bool,
) -> u64 {
    let deadline = Instant::now().checked_add(timeout);
    let is_over = || engine.closed.load(Ordering::Acquire) || done();
    let left = || deadline.map_or(timeout, |it| it.saturating_duration_since(Instant::now()));
    if let Some(writer) = &engine.writer {
        let is_due = || writer.parts.readable() > position || is_over();
        while !is_due() && !left().is_zero() {
            match &writer.parts.shared {
                Some(shared) => shared.sleep(left(), is_due),
                None => engine.news.sleep(left(), is_due),
            }
        }
        return writer.parts.readable();
    }
    let listening = &engine.listening;
    // A caller that does not wait gets the current state, so the files are checked once.
    let mut is_due = timeout.is_zero();
    loop {
        let mut turn = listening.turn();
        let mut seen = engine.readable_position();
        if seen <= position && (is_due || turn.pause.is_zero()) {
            let check = || check(engine);
            // After an error the wait ends: the reads that follow report it.
            let (checked, next) = listening.check(engine.disk(), &engine.root, check);
            seen = checked.unwrap_or_else(|_| engine.readable_position().saturating_add(1));
            turn = next;
            is_due = false;
        }
        if seen > position || left().is_zero() || is_over() {
            return seen;
        }
        listening.sleep(&turn, left(), &engine.news, is_over);
    }
}

/// Finds what was added to all partitions, and partitions that were added.
fn check(engine: &PartitionLog) -> Result<u64> {
    engine.update()?;
    engine.check_all()
}

/// Wakes all threads that wait, so that they check again whether they are done.
pub(super) fn wake(engine: &PartitionLog) {
    match &engine.writer {
        Some(writer) => writer.parts.wake(),
        None => engine.listening.wake(&engine.news),
    }
}
