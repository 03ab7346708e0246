//! The unsettled messages of one queue.
//!
//! ```text
//!            committed                              next
//!   settled ... | out | settled | back | out | out | not delivered yet ...
//! ```
//!
//! `committed` is the smallest offset that is not settled. The next owner of the queue begins
//! there. It moves only when the message there is settled, even if many later ones are. A window
//! knows nothing of logs, threads or clocks; times are in milliseconds.
//!
//! Offsets that are not delivered (fillers, holes, gaps, retired messages and those that the filter
//! drops) count as settled, and cost neither memory nor time, however many they are.

mod slots;
#[cfg(test)]
mod test;

use slots::{Slot, Slots, State};

/// The result of settling a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settling {
    /// The message is settled.
    Done,
    /// It was already settled.
    Already,
    /// It was delivered again meanwhile, so this delivery is no longer valid.
    Lost,
    /// It will be delivered again after an earlier message of its queue.
    TakenBack,
}

/// The unsettled messages of one queue.
#[derive(Debug)]
pub struct Window {
    slots: Slots,
    next: u64,
    /// The number of the last delivery. It never overflows 64 bits.
    serial: u64,
    /// The number of the last delivery before the window began.
    before: u64,
    /// From this offset on, all messages were taken back or refused.
    valid_end: u64,
}

impl Window {
    /// An empty window of a queue whose messages below `committed` are settled.
    pub fn new(committed: u64) -> Window {
        Window {
            slots: Slots::default(),
            next: committed,
            serial: 0,
            before: 0,
            valid_end: 0,
        }
    }

    /// Forgets all deliveries and continues at `committed`. Earlier serial numbers stay invalid.
    pub fn begin_again(&mut self, committed: u64) {
        *self = Window {
            serial: self.serial,
            before: self.serial,
            ..Window::new(committed)
        };
    }

    /// The smallest offset that is not settled.
    pub fn committed(&self) -> u64 {
        self.slots.first().map_or(self.next, |first| first.offset)
    }

    /// The first offset that was never delivered.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// Number of messages that are delivered or wait for another delivery.
    pub fn unsettled(&self) -> usize {
        self.slots.unsettled()
    }

    /// Whether a consumer holds a message at `now`.
    pub fn is_out(&self, now: i64) -> bool {
        self.out_until(now).is_some()
    }

    /// When the first of the messages that a consumer holds at `now` becomes due; `None` if it
    /// holds none.
    pub fn out_until(&self, now: i64) -> Option<i64> {
        let valid = self.slots.iter();
        let mut valid = valid.take_while(|slot| slot.offset < self.valid_end);
        let out = valid.find(|slot| slot.state == State::Out && slot.deadline > now);
        out.map(|slot| slot.deadline)
    }

    /// The earliest time at which a message becomes due again, or a lower bound of it; `None` if no
    /// message becomes due. If [`Window::due`] finds nothing at `now`, the bound is after `now`.
    pub fn next_deadline(&self) -> Option<i64> {
        self.slots.earliest()
    }

    /// When the first message that is not settled becomes due again; `None` if there is none.
    pub fn first_deadline(&self) -> Option<i64> {
        self.slots.first().map(|first| first.deadline)
    }

    /// Skips the offsets below `next`, which are not delivered.
    pub fn skip_to(&mut self, next: u64) {
        self.next = next.max(self.next);
    }

    /// Delivers the message at `offset`, which is not below [`Window::next`], and skips those
    /// before it. Returns the serial number of the delivery, which is needed to settle it.
    pub fn deliver(&mut self, offset: u64, deadline: i64) -> u64 {
        self.serial += 1;
        self.slots.push(Slot {
            offset,
            serial: self.serial,
            deadline,
            attempts: 1,
            state: State::Out,
        });
        self.next = offset + 1;
        self.valid_end = self.next;
        self.serial
    }

    /// The first message at `from` or later that is due again at `now`.
    pub fn due(&mut self, from: u64, now: i64) -> Option<u64> {
        self.slots.due(from, now)
    }

    /// The first message from `from` on that is not settled, if it is due again at `now`. If it is
    /// not, nothing after it may be delivered in an ordered queue.
    pub fn due_in_order(&self, from: u64, now: i64) -> Option<u64> {
        let first = self.slots.first_from(from)?;
        (first.deadline <= now).then_some(first.offset)
    }

    /// Takes back the messages delivered after `offset`: their consumer can no longer settle them.
    /// Their deadlines stay.
    pub fn take_back_after(&mut self, offset: u64) {
        let begin = offset.saturating_add(1);
        self.slots.change_all(begin..self.valid_end, |slot| {
            if slot.state != State::Refused {
                slot.state = State::TakenBack;
            }
        });
        self.valid_end = self.valid_end.min(begin);
    }

    /// Delivers the message at `offset` again. [`Window::due`] or [`Window::due_in_order`] must
    /// have returned it. Returns the serial number of the delivery; `None` if it is settled.
    pub fn deliver_again(&mut self, offset: u64, deadline: i64) -> Option<u64> {
        self.slots.get(offset)?;
        self.serial += 1;
        let serial = self.serial;
        self.slots.change(offset, |slot| {
            *slot = Slot {
                offset,
                serial,
                deadline,
                attempts: slot.attempts.saturating_add(1),
                state: State::Out,
            };
        });
        self.valid_end = self.valid_end.max(offset + 1);
        Some(serial)
    }

    /// Whether a delivery can still be settled.
    pub fn check(&self, offset: u64, serial: u64) -> Settling {
        self.check_slot(self.slots.get(offset), serial)
    }

    #[inline]
    fn check_slot(&self, slot: Option<&Slot>, serial: u64) -> Settling {
        if serial <= self.before {
            return Settling::Lost;
        }
        match slot {
            None => Settling::Already,
            Some(slot) if slot.serial != serial => Settling::Lost,
            Some(slot) => match slot.state {
                State::Settled | State::Refused => Settling::Already,
                State::TakenBack => Settling::TakenBack,
                State::Out | State::Back => Settling::Done,
            },
        }
    }

    /// Settles a delivery, even after its deadline, unless the message was delivered again.
    pub fn settle(&mut self, offset: u64, serial: u64) -> Settling {
        let found = self.slots.find(offset);
        let settling = self.check_slot(found.map(|(_, slot)| slot), serial);
        if settling == Settling::Done
            && let Some((place, _)) = found
        {
            self.slots.settle(place);
        }
        settling
    }

    /// Settles a message that is due again but can no longer be read.
    pub fn give_up(&mut self, offset: u64) {
        if let Some((place, _)) = self.slots.find(offset) {
            self.slots.settle(place);
        }
    }

    /// Refuses a delivery: it is settled, and the message becomes due at `due`. Messages delivered
    /// after it are taken back and become due then too.
    pub fn refuse(&mut self, offset: u64, serial: u64, due: i64) -> Settling {
        let settling = self.check(offset, serial);
        if settling == Settling::Done {
            self.recall_from(offset, due);
            self.take_back_after(offset);
            self.slots
                .change(offset, |slot| slot.state = State::Refused);
        }
        settling
    }

    /// Postpones the deadline of a delivery.
    pub fn extend(&mut self, offset: u64, serial: u64, until: i64) -> Settling {
        let settling = self.check(offset, serial);
        if settling == Settling::Done {
            self.slots.change(offset, |slot| {
                slot.deadline = until;
                slot.state = State::Out;
            });
        }
        settling
    }

    /// Takes back a delivery that no caller has seen: it does not count as an attempt. The message
    /// is due at `now`, unless an earlier one must be delivered before it.
    pub fn give_back(&mut self, offset: u64, serial: u64, now: i64) {
        let settling = self.check(offset, serial);
        if !matches!(settling, Settling::Done | Settling::TakenBack) {
            return;
        }
        self.slots.change(offset, |slot| {
            slot.attempts = slot.attempts.saturating_sub(1);
            if settling == Settling::Done {
                slot.state = State::Back;
                slot.deadline = now;
            }
        });
    }

    /// How often a message was delivered; 0 if it is settled.
    pub fn attempts(&self, offset: u64) -> u32 {
        self.slots.get(offset).map_or(0, |slot| slot.attempts)
    }

    /// Takes back all deliveries, for another consumer. The messages become due at `now`, except
    /// refused ones, which keep their pause.
    pub fn recall(&mut self, now: i64) {
        self.slots.change_all(0..u64::MAX, |slot| {
            if slot.state != State::Refused {
                slot.deadline = now;
            }
            if slot.state == State::Out {
                slot.state = State::Back;
            }
        });
    }

    /// Takes back all deliveries from `offset` on: their messages become due at `due`.
    pub fn recall_from(&mut self, offset: u64, due: i64) {
        self.slots.change_all(offset..u64::MAX, |slot| {
            slot.deadline = due;
            if slot.state == State::Out {
                slot.state = State::Back;
            }
        });
    }
}
