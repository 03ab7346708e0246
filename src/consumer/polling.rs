//! Taking messages from the queues of a consumer, in turn.

use super::lane::Delivery;
use super::member::Consumer;
use super::patience::is_locked;
use super::taking::Taking;
use crate::engine::Filter;
use crate::error::{Error, Result};
use std::cell::Cell;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The pause before a poll that does not wait tries again to lock the table of a shared store.
const LOCKED_PAUSE: Duration = Duration::from_millis(10);

/// The messages that a consumer took without waiting.
#[derive(Debug)]
pub struct Polled {
    /// The messages.
    pub taken: Vec<Delivery>,
    /// Position up to which the log was readable before they were taken.
    pub seen: u64,
    /// [`crate::Store::changes`] before they were taken.
    pub changes: u64,
    /// If there are no messages: how long to wait for `seen` or `changes` to grow. Afterwards the
    /// caller tries again in any case. `Duration::MAX` means no limit.
    pub wait: Duration,
}

impl Consumer {
    /// Returns up to `max` messages, from each queue in offset order; in a partition log, whose
    /// records are copied, at most about 64 MiB. Waits up to `timeout` for the first one. They are
    /// unsettled, and are delivered again after the visibility timeout.
    ///
    /// # Errors
    ///
    /// [`Error::LogShrunk`] if a queue ends before what the group has settled; errors of reading;
    /// [`Error::Closed`], [`Error::ConsumerClosed`].
    pub fn poll(&self, max: usize, timeout: Duration) -> Result<Vec<Delivery>> {
        self.poll_until(max, timeout, &|| false)
    }

    /// [`Consumer::poll`] that also ends once `done` returns true. The thread that makes it true
    /// calls [`Consumer::wake`] afterwards.
    ///
    /// # Errors
    ///
    /// As [`Consumer::poll`].
    pub fn poll_until(
        &self,
        max: usize,
        timeout: Duration,
        done: &dyn Fn() -> bool,
    ) -> Result<Vec<Delivery>> {
        let deadline = Instant::now().checked_add(timeout);
        loop {
            let polled = self.patiently(|| self.poll_once(max))?;
            if !polled.taken.is_empty() || max == 0 {
                return Ok(polled.taken);
            }
            let left = deadline.map_or(timeout, |at| at.saturating_duration_since(Instant::now()));
            if left.is_zero() || done() {
                return Ok(polled.taken);
            }
            if !polled.wait.is_zero() {
                let engine = self.shared.handle().writer()?;
                let has_changed = || done() || self.shared.changes() != polled.changes;
                engine.wait_until(polled.seen, left.min(polled.wait), &has_changed);
            }
        }
    }

    /// As [`Consumer::poll`], without waiting. The result says what to wait for. While another
    /// process has locked the table of a shared store, it has no messages and asks for a short
    /// wait.
    ///
    /// # Errors
    ///
    /// As [`Consumer::poll`].
    pub fn try_poll(&self, max: usize) -> Result<Polled> {
        match self.poll_once(max) {
            Err(error) if is_locked(&error) => Ok(Polled {
                taken: Vec::new(),
                seen: self.shared.handle().writer()?.readable_position(),
                changes: self.shared.changes(),
                wait: LOCKED_PAUSE,
            }),
            polled => polled,
        }
    }

    /// Takes the messages that are there right now. Does not wait for the table of a shared store.
    fn poll_once(&self, max: usize) -> Result<Polled> {
        if let Err(lost) = self.with_ground(|_| self.check_member()) {
            // The caller learns that it has lost its messages. The next call gets messages again.
            if matches!(lost, Error::OwnershipLost { .. }) {
                match self.join_again() {
                    Err(error) if is_locked(&error) => return Err(error),
                    // If it failed for good, the next call says why.
                    _ => {}
                }
            }
            return Err(lost);
        }
        // Read before the search for messages, so that later ones are noticed.
        let seen = self.shared.handle().writer()?.readable_position();
        let changes = self.shared.changes();
        let mut taken = Vec::new();
        let again = self.take(max, &mut taken)?;
        self.shared.handle().meters.gets.delivered(taken.len(), 0);
        let wait = match again || !taken.is_empty() {
            true => Duration::ZERO,
            false => self.until_due(),
        };
        Ok(Polled {
            taken,
            seen,
            changes,
            wait,
        })
    }

    /// Makes waiting polls check again whether they are done.
    pub fn wake(&self) {
        self.shared.stir();
    }

    /// Takes messages from the lanes in turn. Returns whether some lane may have more right now.
    fn take(&self, max: usize, taken: &mut Vec<Delivery>) -> Result<bool> {
        let now = self.shared.moment();
        let visibility = &self.options.visibility_timeout;
        let visibility = i64::try_from(visibility.as_millis()).unwrap_or(i64::MAX);
        let (lanes, first) = self.lanes(now.steady_ms)?;
        let (mut again, mut locked) = (false, None);
        let (mut copied, mut passed_over) = (0, 0);
        self.with_ground(|ground| {
            for at in 0..lanes.len() {
                let Some(lane) = lanes.get((first + at) % lanes.len()) else {
                    continue;
                };
                let of_retry = lane.topic.name == self.retry;
                let all = Filter::default();
                let by = Taking {
                    engine: ground.engine,
                    gets: &self.shared.handle().meters.gets,
                    member: self.number(),
                    // Retried messages have already passed the filter.
                    filter: if of_retry { &all } else { &self.options.filter },
                    order: self.options.order,
                    now,
                    deadline: now.steady_ms.saturating_add(visibility),
                    max_unsettled: self.options.max_unsettled,
                    copied: Cell::new(copied),
                    passed_over: Cell::new(passed_over),
                };
                match lane.take(&by, max - taken.len(), taken) {
                    Ok(more) => again |= more,
                    // The other lanes may have messages.
                    Err(error) if is_locked(&error) => locked = Some(error),
                    // The next call returns the error.
                    Err(_) if !taken.is_empty() => break,
                    Err(error) => return Err(error),
                }
                (copied, passed_over) = (by.copied.get(), by.passed_over.get());
                if taken.len() >= max || by.has_enough() {
                    // The lanes after this one may have more.
                    again = true;
                    break;
                }
            }
            match locked {
                Some(error) if taken.is_empty() && !again => Err(error),
                Some(_) => Ok(true),
                None => Ok(again),
            }
        })
    }

    /// Time until the next message becomes due; `Duration::MAX` if none will.
    fn until_due(&self) -> Duration {
        let now = self.shared.steady();
        let lanes = Arc::clone(&self.turn.lock().lanes);
        let order = self.options.order;
        let due = lanes
            .iter()
            .filter_map(|lane| lane.next_due(self.number(), order, now));
        due.min().map_or(Duration::MAX, |due| {
            let ms = due.saturating_sub(now).max(1);
            Duration::from_millis(ms.unsigned_abs())
        })
    }
}
