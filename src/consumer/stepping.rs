//! One step of the services of consumers: they deliver messages that are due, save progress when it
//! is time, and watch the consumers of other processes.

use super::group::Group;
use super::peers::Watch;
use super::progress::{LOCK_TIMEOUT, is_held};
use super::service::Due;
use super::{Consumers, SAVE_EACH_MS};
use crate::error::{Error, Result};
use crate::record::names::{SCHEDULE_TOPIC, TIMER_TOPIC};
use crate::sync::Mutex;
use crate::warning::Warning;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Time between two checks whether a delayed message is readable, in ms.
const READABLE_EACH_MS: i64 = 10;
/// Time before the second attempt to save progress while another process has its table locked, in
/// ms. It then doubles up to [`SAVE_EACH_MS`], since each attempt repeats the whole save.
const BLOCKED_MS: i64 = 100;

/// Since when another process keeps the service from saving progress, if one does.
#[derive(Debug, Default)]
pub(super) struct Blocked(Mutex<Option<Since>>);

#[derive(Clone, Copy, Debug)]
struct Since {
    /// By the steady clock, in ms.
    began: i64,
    is_told: bool,
    /// When the delivery of delayed messages is saved next.
    delivery_at: i64,
}

impl Blocked {
    /// Notes an attempt at `now`, and the error if the table was locked. Returns the error to warn
    /// of once the table has been locked for [`LOCK_TIMEOUT`].
    fn note(&self, now: i64, held: Option<Error>) -> Option<Error> {
        let mut blocked = self.0.lock();
        let Some(Error::Busy { what, .. }) = held else {
            *blocked = None;
            return None;
        };
        let since = blocked.get_or_insert(Since {
            began: now,
            is_told: false,
            delivery_at: now,
        });
        let waited_ms = now.abs_diff(since.began);
        if since.is_told || u128::from(waited_ms) < LOCK_TIMEOUT.as_millis() {
            return None;
        }
        since.is_told = true;
        Some(Error::Busy { what, waited_ms })
    }

    /// The pause after an attempt at `now`; `None` if that was not kept from saving. A pause as
    /// long as all before it doubles the time.
    fn pause_ms(&self, now: i64) -> Option<i64> {
        let since = *self.0.lock();
        since.map(|it| now.saturating_sub(it.began).clamp(BLOCKED_MS, SAVE_EACH_MS))
    }

    /// Whether an attempt at `now` saves the delivery of delayed messages, too. That needs no lock
    /// of another process, which may never release its own, but syncs the log. So it does not come
    /// more often because the table is locked.
    fn saves_delivery(&self, now: i64) -> bool {
        let mut blocked = self.0.lock();
        let Some(since) = blocked.as_mut() else {
            return true;
        };
        let is_time = now >= since.delivery_at;
        if is_time {
            since.delivery_at = now.saturating_add(SAVE_EACH_MS);
        }
        is_time
    }
}

impl Consumers {
    /// One step of [`Peers`].
    pub(super) fn step_of_peers(&self, watch: &mut Watch, passed: Duration) -> Result<()> {
        let (Some(occupation), now) = (self.occupation.get(), self.moment()) else {
            return Ok(());
        };
        let watched = watch.step(occupation, passed, now.wall_ms);
        let removed = occupation.remove_left(now.wall_ms);
        let groups: Vec<Arc<Group>> = self.groups.lock().values().cloned().collect();
        let passed_on = groups.iter().try_for_each(|group| group.pass_on(now));
        // Any process may have changed the owners.
        let changes = occupation.table().changes();
        if self.seen_changes.swap(changes, Ordering::AcqRel) != changes {
            self.stir();
        }
        watched.map(drop).and(removed).and(passed_on)
    }

    /// Delivers what has become due after the clock was moved.
    ///
    /// # Errors
    ///
    /// [`Error::Closed`], [`Error::Forked`]; those of reading and of sending.
    pub fn clock_moved(&self) -> Result<()> {
        if self.handle.writer().is_ok() {
            while self.step(self.now())? == Due::Now {}
        }
        self.wake();
        Ok(())
    }

    /// Delivers what is due at `now` by the wall clock, and saves progress when it is time. Returns
    /// when to call again.
    pub(super) fn step(&self, now: i64) -> Result<Due> {
        let steady = self.steady();
        if let Some(joint) = self.handle.joint() {
            if !joint.leads() {
                return Ok(Due::Never);
            }
            // Another process may have sent a delayed message, or have begun to consume. The table
            // of topics does not list those of delayed messages.
            let (engine, delayed) = (&*self.handle.engine, [TIMER_TOPIC, SCHEDULE_TOPIC]);
            if delayed
                .iter()
                .any(|topic| engine.topics().get(topic).is_none())
            {
                engine.refresh(None)?;
            }
            self.delayed.fetch_max(joint.published(), Ordering::AcqRel);
            if self.found_occupation()?.is_some() {
                // The first save is at once: the previous leader may have died before it saved.
                if self.save_at.load(Ordering::Acquire) == i64::MAX {
                    self.save_at.store(steady, Ordering::Release);
                }
            }
        }
        let delayed = self.delay.step(&self.handle, now);
        let timed = self.timer.step(&self.handle, now);
        let save_at = self.save_at.load(Ordering::Acquire);
        if steady >= save_at {
            self.save_at.store(steady + SAVE_EACH_MS, Ordering::Release);
            let saved = self.save_progress_when_free(steady);
            let delivery = match self.blocked.saves_delivery(steady) {
                true => self.save_delivery(),
                false => Ok(()),
            };
            saved.and(delivery)?;
        }
        if self.delay.is_unsaved() || self.timer.is_unsaved() {
            self.save_at
                .fetch_min(steady + SAVE_EACH_MS, Ordering::AcqRel);
        }
        let saves = match self.save_at.load(Ordering::Acquire) {
            i64::MAX => Due::Never,
            at => Due::At(now + (at - steady)),
        };
        // In a synchronous store a message cannot be read before it is durable.
        let sent = self.delayed.load(Ordering::Acquire);
        let reads = match self.handle.engine.readable_position() < sent {
            true => Due::At(now + READABLE_EACH_MS),
            false => Due::Never,
        };
        Ok(delayed?.min(timed?).min(saves).min(reads))
    }

    /// Saves progress, or has the service try again soon if another process has the table locked:
    /// delayed messages must not wait for that process, and neither must a close.
    fn save_progress_when_free(&self, steady: i64) -> Result<()> {
        let held = match self.save_progress(Duration::ZERO) {
            Err(error) if is_held(&error) => Some(error),
            saved => {
                saved?;
                None
            }
        };
        let told = self.blocked.note(steady, held);
        if let Some(pause) = self.blocked.pause_ms(steady) {
            self.save_at.fetch_min(steady + pause, Ordering::AcqRel);
        }
        if let Some(error) = told {
            let reason = error.to_string();
            self.warn(Warning::Delayed { reason });
        }
        Ok(())
    }

    /// Saves how far the delivery of delayed messages is, if this process delivers them.
    pub(super) fn save_delivery(&self) -> Result<()> {
        let delayed = self.delay.save(&self.handle, self.now());
        delayed.and(self.timer.save(&self.handle))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Awaited;

    #[test]
    fn the_pauses_between_saves_double_while_the_table_is_locked() {
        let (blocked, mut now) = (Blocked::default(), 7);
        let (mut pauses, mut saved) = (Vec::new(), Vec::new());
        for _ in 0..9 {
            let what = Awaited::Progress {
                lock: "consumerOffset.lock".into(),
            };
            let waited_ms = 0;
            blocked.note(now, Some(Error::Busy { what, waited_ms }));
            if blocked.saves_delivery(now) {
                saved.push(now - 7);
            }
            let pause = blocked.pause_ms(now);
            pauses.extend(pause);
            now += pause.unwrap_or_default();
        }
        let doubled = [100, 100, 200, 400, 800, 1_600, 3_200, 5_000, 5_000];
        assert_eq!(pauses, doubled);
        // The delivery is saved at most every five seconds meanwhile.
        assert_eq!(saved, [0, 6_400, 11_400]);
        assert!(!blocked.saves_delivery(now - 1));
        blocked.note(now, None);
        assert_eq!(blocked.pause_ms(now), None);
        assert!(blocked.saves_delivery(now));
    }
}
