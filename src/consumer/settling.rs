//! Settling messages: they are handled, refused or rejected, or given back unused.

use super::lane::{Delivery, Lane, Receipt};
use super::member::Consumer;
use super::order::Order;
use super::patience::{Patience, Threads, is_locked};
use super::retry::{Failed, Fate, check_level, send_back};
use crate::error::{Error, Result};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Pause before a message is delivered again in place. It doubles with each attempt.
const FIRST_PAUSE_MS: i64 = 1_000;
const LONGEST_PAUSE_MS: i64 = 30_000;

impl Consumer {
    /// Acknowledges messages. Settles all that can be settled, and returns the error of the first
    /// one that cannot.
    ///
    /// # Errors
    ///
    /// [`crate::Error::AlreadySettled`]; [`crate::Error::OwnershipLost`] if the message was
    /// delivered again meanwhile or was taken back by [`Consumer::nack`], its queue has another
    /// owner, or it was delivered to another group.
    pub fn ack<'a>(&self, receipts: impl IntoIterator<Item = &'a Receipt>) -> Result<()> {
        self.check_open()?;
        let (now, mut patience) = (self.shared.moment(), Patience::default());
        let mut all = Ok(());
        for receipt in receipts {
            let settle = |lane: &Lane| {
                let attempt = || lane.settle(self.number(), receipt, (now, Threads::Await));
                self.patiently_with(&mut patience, attempt)
            };
            all = all.and(self.lane_of(receipt).and_then(settle));
        }
        // It may have made room, or ended the turn of an owner.
        self.shared.stir();
        all
    }

    /// As [`Consumer::ack`], but leaves messages for which it would have to wait for another thread
    /// or process. Returns their indexes, and the result for all others.
    pub fn try_ack<'a>(
        &self,
        receipts: impl IntoIterator<Item = &'a Receipt>,
    ) -> (Vec<usize>, Result<()>) {
        let (mut left, mut all) = (Vec::new(), self.check_open());
        if all.is_err() {
            return (left, all);
        }
        let now = (self.shared.moment(), Threads::Avoid);
        for (index, receipt) in receipts.into_iter().enumerate() {
            let settle = |lane: &Lane| lane.settle(self.number(), receipt, now);
            match self.lane_of(receipt).and_then(settle) {
                Err(error) if is_locked(&error) => left.push(index),
                settled => all = all.and(settled),
            }
        }
        self.shared.stir();
        (left, all)
    }

    /// Refuses a message, so that it is delivered again later. With [`Order::None`] it goes through
    /// the group's retry topic, with the delay of `level`, or one that grows with the attempts.
    /// With [`Order::Queue`] it is delivered again in place, before any message after it; later
    /// messages that are delivered and not settled are taken back. Refusing a message that was
    /// taken back has no effect. After too many attempts a message becomes a dead letter: with
    /// [`Order::None`] after as many retries as the group's subscription allows, or at once if its
    /// properties leave no room for those of a retry.
    ///
    /// # Errors
    ///
    /// [`crate::Error::InvalidOption`] for an invalid level; [`crate::Error::Corrupt`] if the
    /// message would be copied and its bytes were damaged since the delivery; those of
    /// [`Consumer::ack`] and of sending. After an error the message is still unsettled.
    pub fn nack(&self, delivery: &Delivery, level: Option<u8>) -> Result<()> {
        check_level(level, &self.shared.handle().options.delay_levels())?;
        self.check_open()?;
        let receipt = &delivery.receipt;
        let now = self.shared.moment();
        let (lane, number) = (self.lane_of(receipt)?, self.number());
        let check = || lane.check_refusal(number, receipt, now);
        let Some(attempts) = self.patiently(check)? else {
            return Ok(());
        };
        if self.options.order == Order::None {
            return self.send_back(delivery, attempts, Fate::Retry(level));
        }
        if attempts >= self.options.retry_in_place {
            return self.send_back(delivery, attempts, Fate::Dead(None));
        }
        let doubled = FIRST_PAUSE_MS << (attempts.saturating_sub(1)).min(16);
        let due = now.steady_ms + doubled.min(LONGEST_PAUSE_MS);
        self.patiently(|| lane.refuse(number, receipt, (due, now)))?;
        self.shared.stir();
        Ok(())
    }

    /// Rejects a message: it becomes a dead letter of the group.
    ///
    /// # Errors
    ///
    /// As [`Consumer::nack`].
    pub fn reject(&self, delivery: &Delivery, reason: Option<&str>) -> Result<()> {
        self.check_open()?;
        let receipt = &delivery.receipt;
        let now = self.shared.moment();
        let lane = self.lane_of(receipt)?;
        let attempts = self.patiently(|| lane.check(self.number(), receipt, now))?;
        self.send_back(delivery, attempts, Fate::Dead(reason))
    }

    /// Appends the message that replaces this one, then settles this one.
    fn send_back(&self, delivery: &Delivery, attempts: u32, fate: Fate<'_>) -> Result<()> {
        self.check_intact(delivery)?;
        let failed = Failed {
            message: &delivery.message,
            // RocketMQ counts deliveries that failed in place, but not those that timed out.
            attempts: match self.options.order {
                Order::None => 1,
                Order::Queue => attempts,
            },
            fate,
        };
        let group = (&*self.group.name, &self.subscription);
        let (end, is_tried_again) = send_back(self.shared.handle(), group, &failed)?;
        // Set before the message is settled, so that no progress past the message is saved without
        // its successor.
        self.shared.sent_back.fetch_max(end, Ordering::AcqRel);
        let (receipt, now) = (&delivery.receipt, self.shared.moment());
        let lane = self.lane_of(receipt)?;
        let now = (now, Threads::Await);
        let settled = self.patiently(|| lane.settle(self.number(), receipt, now));
        if settled.is_ok() && is_tried_again {
            lane.count_retry();
        }
        self.shared.wake();
        settled
    }

    /// Checks the bytes of a message again: damaged ones must not be appended with a checksum that
    /// vouches for them. The damage is reported.
    fn check_intact(&self, delivery: &Delivery) -> Result<()> {
        let message = &delivery.message;
        message.touch()?;
        let record = message.record();
        let Err(flaw) = record.check(record.position().cast_unsigned()) else {
            return Ok(());
        };
        let lane = self.lane_of(&delivery.receipt)?;
        let (_, queue, offset) = delivery.receipt.place();
        // A read reports it, unless retention has deleted the message.
        let engine = self.shared.handle().engine()?;
        if let Err(error @ Error::Corrupt { .. }) = engine.get(&lane.topic, queue, offset) {
            return Err(error);
        }
        let (region, start) = message.place();
        Err(Error::corrupt(
            region.path(),
            start as u64,
            flaw.to_string(),
        ))
    }

    /// Postpones the next delivery of a message to `longer` after the call.
    ///
    /// # Errors
    ///
    /// As [`Consumer::ack`].
    pub fn extend(&self, receipt: &Receipt, longer: Duration) -> Result<()> {
        self.patiently(|| self.postpone(receipt, longer, Threads::Await))?;
        // The message may become due earlier than before.
        self.shared.stir();
        Ok(())
    }

    /// As [`Consumer::extend`]. Returns false, and changes nothing, if it would have to wait for
    /// another thread or process.
    ///
    /// # Errors
    ///
    /// As [`Consumer::ack`].
    pub fn try_extend(&self, receipt: &Receipt, longer: Duration) -> Result<bool> {
        let extended = without_waiting(self.postpone(receipt, longer, Threads::Avoid))?;
        if extended {
            self.shared.stir();
        }
        Ok(extended)
    }

    fn postpone(&self, receipt: &Receipt, longer: Duration, threads: Threads) -> Result<()> {
        self.check_open()?;
        let ms = i64::try_from(longer.as_millis()).unwrap_or(i64::MAX);
        let now = self.shared.moment();
        let until = now.steady_ms.saturating_add(ms);
        let number = self.number();
        let lane = self.lane_of(receipt)?;
        lane.extend(number, receipt, (until, now, threads))
    }

    /// The lane of a message that was delivered to the group.
    fn lane_of<'a>(&self, receipt: &'a Receipt) -> Result<&'a Lane> {
        receipt.lane_of(&self.group.identity)
    }

    /// Gives back messages that nobody has used: they are due at once, but not before an earlier
    /// message of an ordered queue. Does not wait for other threads.
    pub fn give_back<'a>(&self, receipts: impl IntoIterator<Item = &'a Receipt>) {
        if self.is_forked() {
            return;
        }
        let now = self.shared.moment();
        for receipt in receipts {
            if let Ok(lane) = self.lane_of(receipt) {
                lane.give_back(self.number(), receipt, now);
            }
        }
        self.shared.stir();
    }

    /// Restarts the visibility timeout of a message that was taken a while ago. Does not wait.
    ///
    /// # Errors
    ///
    /// As [`Consumer::ack`]; [`crate::Error::Busy`] while another process has locked the table of a
    /// shared store.
    pub fn renew(&self, receipt: &Receipt) -> Result<()> {
        let visibility = self.options.visibility_timeout;
        self.postpone(receipt, visibility, Threads::Await)
    }

    /// As [`Consumer::renew`]. Returns false, and changes nothing, if it would have to wait for
    /// another thread or process.
    ///
    /// # Errors
    ///
    /// As [`Consumer::ack`].
    pub fn try_renew(&self, receipt: &Receipt) -> Result<bool> {
        let visibility = self.options.visibility_timeout;
        without_waiting(self.postpone(receipt, visibility, Threads::Avoid))
    }
}

/// Whether a call was done; false if it would have had to wait.
fn without_waiting(done: Result<()>) -> Result<bool> {
    match done {
        Err(error) if is_locked(&error) => Ok(false),
        done => done.map(|()| true),
    }
}
