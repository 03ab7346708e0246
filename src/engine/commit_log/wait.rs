//! Waiting for messages, without polling.
//!
//! In the process that writes, a thread sleeps on a condition that senders notify. In another
//! process it sleeps on a word of the state page that the writer changes ([`shared_condition`]); it
//! can only load that word, so [`Sleepers`] wakes it when its own process has news, such as a
//! close.

use super::joined::{CHECK, Joined};
use super::read::view;
use super::share::Core;
use crate::engine::directory::page::{News, Word};
use crate::engine::service::shared_condition;
use crate::engine::service::sleepers::Sleepers;
use crate::mapped::TransientPool;
use std::time::{Duration, Instant};

/// Longest sleep on the word of another process. It bounds the delay if a writer dies between
/// moving its mark and changing the word, or is of a release that does not change it.
const SLEEP_MAX: Duration = Duration::from_secs(1);
/// How often a thread checks for news before it sleeps. The checks take some microseconds, as a
/// sleep would.
const SPINS: usize = 50;
/// Pause between two wakes of threads that are about to sleep on the word of another process.
const WAKE_AGAIN: Duration = Duration::from_micros(50);

/// Waits until the readable end of the log is above `position`, `done` holds or the store closes,
/// at most for `timeout`. Returns the readable end. `core`: the state of this process in a shared
/// store.
pub fn wait_until(
    parts: &Joined,
    sleepers: &Sleepers,
    core: Option<&Core>,
    position: u64,
    timeout: Duration,
    done: &dyn Fn() -> bool,
) -> u64 {
    let deadline = Instant::now().checked_add(timeout);
    let is_over = || parts.health.is_closed() || done();
    loop {
        let end = readable_end(parts);
        let left = deadline.map_or(timeout, |deadline| {
            deadline.saturating_duration_since(Instant::now())
        });
        if end > position || left.is_zero() || is_over() {
            return end;
        }
        if parts.is_written() {
            let ready = || has_news(parts, position) || is_over();
            parts.conditions.news.sleep(left, ready);
        } else {
            let ready = || readable_end(parts) > position || is_over();
            sleepers.sleep(|| sleep(parts, core, left, ready));
        }
    }
}

fn readable_end(parts: &Joined) -> u64 {
    // If joining fails, the next call tries again.
    let _ = parts.join();
    view::readable_end(parts)
}

/// Whether there is something above `position` to read or to write out.
fn has_news(parts: &Joined, position: u64) -> bool {
    // Readers of a synchronous store wait for the disk, not for a write-out, and after a failure
    // there is none.
    let writes_out = !parts.log.sync && parts.health.check().is_ok();
    let pool = parts.pool.as_ref().filter(|_| writes_out);
    let pooled = pool.map_or(0, TransientPool::wrote);
    parts.log.readable_end().max(pooled) > position
}

/// Sleeps until a writer in another process has news, at most for `timeout`, and perhaps less. In
/// the process that leads a shared store, it dispatches new messages itself. Returns at once if
/// `ready` holds.
fn sleep(parts: &Joined, core: Option<&Core>, timeout: Duration, ready: impl Fn() -> bool) {
    let is_due = || core.is_some_and(Core::dispatches_next);
    if (0..SPINS).any(|_| {
        std::hint::spin_loop();
        ready() || is_due()
    }) && ready()
    {
        return;
    }
    let timeout = timeout.min(SLEEP_MAX);
    if core.is_some_and(|core| core.serve(timeout, &ready)) {
        return;
    }
    match parts.page() {
        Some(page) => shared_condition::sleep(&News(page), timeout, ready),
        // There is no word to sleep on before a writer has made the page.
        None => parts.conditions.news.sleep(timeout.min(CHECK), ready),
    }
}

/// Wakes all threads of this process that wait, so that they check again.
pub fn wake(parts: &Joined, sleepers: &Sleepers) {
    if parts.is_written() {
        return parts.conditions.news.notify();
    }
    sleepers.wake(|| {
        parts.conditions.news.notify();
        if let Some(page) = parts.page() {
            page.wake(Word::News);
            page.wake(Word::Duty);
        }
        std::thread::sleep(WAKE_AGAIN);
    });
}
