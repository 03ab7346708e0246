//! Waiting for messages. In the process that writes, a thread sleeps until a sender notifies it. In
//! another process it checks the files again and again.

use super::PartitionLog;
use crate::engine::Engine;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Time between two checks of the files while a thread waits for messages.
const POLL: Duration = Duration::from_millis(50);
/// A check takes at most this part of the time.
const POLL_SHARE: u32 = 20;

/// Waits until the readable end is above `position`, `done` holds or the store closes, at most for
/// `timeout`. Returns the readable end.
pub(super) fn wait_until(
    engine: &PartitionLog,
    position: u64,
    timeout: Duration,
    done: &dyn Fn() -> bool,
) -> u64 {
    let deadline = Instant::now().checked_add(timeout);
    if let Some(writer) = &engine.writer {
        let is_over = || engine.closed.load(Ordering::Acquire) || done();
        let is_due = || writer.parts.readable() > position || is_over();
        let left = || deadline.map_or(timeout, |it| it.saturating_duration_since(Instant::now()));
        while !is_due() && !left().is_zero() {
            match &writer.parts.shared {
                Some(shared) => shared.sleep(left(), is_due),
                None => engine.news.sleep(left(), is_due),
            }
        }
        return writer.parts.readable();
    }
    loop {
        let began = Instant::now();
        // The reads that follow meet the same error.
        let seen = match engine.check_all() {
            Ok(seen) => seen,
            Err(_) => engine.readable_position().saturating_add(1),
        };
        let left = deadline.map_or(timeout, |deadline| {
            deadline.saturating_duration_since(Instant::now())
        });
        let is_over = || engine.closed.load(Ordering::Acquire) || done();
        if seen > position || left.is_zero() || is_over() {
            return seen;
        }
        let pause = POLL.max(began.elapsed().saturating_mul(POLL_SHARE));
        engine.news.sleep(left.min(pause), is_over);
    }
}
