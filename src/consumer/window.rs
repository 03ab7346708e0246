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

#[cfg(test)]
mod test;

use std::collections::VecDeque;

/// One offset between `committed` and `next`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Slot {
    /// Settled, or never to be delivered: a filler, a hole, or a message that the filter drops.
    Settled,
    /// Delivered. Becomes due again at `deadline`.
    Out(Delivered),
    /// To be delivered again at `deadline` or later.
    Back(Delivered),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Delivered {
    serial: u32,
    attempts: u32,
    deadline: i64,
    standing: Standing,
}

/// Whether a delivery can be settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    Valid,
    /// An earlier message of an ordered queue is delivered again before it.
    TakenBack,
    /// Its consumer has refused it.
    Refused,
}

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
    committed: u64,
    slots: VecDeque<Slot>,
    /// Number of slots that are not settled.
    unsettled: usize,
    serial: u32,
    /// The last serial number before the window began.
    before: u32,
    /// No slot has an earlier deadline.
    earliest: i64,
}

impl Window {
    /// An empty window of a queue whose messages below `committed` are settled.
    pub fn new(committed: u64) -> Window {
        Window {
            committed,
            slots: VecDeque::new(),
            unsettled: 0,
            serial: 0,
            before: 0,
            earliest: i64::MAX,
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
        self.committed
    }

    /// The first offset that was never delivered.
    pub fn next(&self) -> u64 {
        self.committed + self.slots.len() as u64
    }

    /// Number of messages that are delivered or wait for another delivery.
    pub fn unsettled(&self) -> usize {
        self.unsettled
    }

    /// Whether a consumer holds a message at `now`.
    pub fn is_out(&self, now: i64) -> bool {
        let mut slots = self.slots.iter();
        self.unsettled > 0
            && slots.any(|slot| matches!(slot, Slot::Out(found) if found.deadline > now))
    }

    /// When the last of the messages that a consumer holds at `now` becomes due; `None` if it holds
    /// none.
    pub fn out_until(&self, now: i64) -> Option<i64> {
        let out = self.slots.iter().filter_map(|slot| match slot {
            Slot::Out(found) if found.deadline > now => Some(found.deadline),
            _ => None,
        });
        out.max()
    }

    /// The earliest time at which a message becomes due again; `None` if there is none.
    pub fn next_deadline(&self) -> Option<i64> {
        let deadlines = self.slots.iter().filter_map(|slot| match slot {
            Slot::Settled => None,
            Slot::Out(found) | Slot::Back(found) => Some(found.deadline),
        });
        deadlines.min()
    }

    /// When the first message that is not settled becomes due again; `None` if there is none.
    pub fn first_deadline(&self) -> Option<i64> {
        self.slots.iter().find_map(|slot| match slot {
            Slot::Settled => None,
            Slot::Out(found) | Slot::Back(found) => Some(found.deadline),
        })
    }

    /// Skips the offsets below `next`, which are not delivered.
    pub fn skip_to(&mut self, next: u64) {
        while self.next() < next {
            if self.slots.is_empty() {
                self.committed = next;
                return;
            }
            self.slots.push_back(Slot::Settled);
        }
    }

    /// Delivers the message at `offset`, which is not below [`Window::next`], and skips those
    /// before it. Returns the serial number of the delivery, which is needed to settle it.
    pub fn deliver(&mut self, offset: u64, deadline: i64) -> u32 {
        self.skip_to(offset);
        let delivered = self.delivery(0, deadline);
        self.slots.push_back(Slot::Out(delivered));
        self.unsettled += 1;
        delivered.serial
    }

    fn delivery(&mut self, before: u32, deadline: i64) -> Delivered {
        self.serial = self.serial.wrapping_add(1);
        self.earliest = self.earliest.min(deadline);
        Delivered {
            serial: self.serial,
            attempts: before + 1,
            deadline,
            standing: Standing::Valid,
        }
    }

    /// The first message that is due again at `now`.
    pub fn due(&mut self, now: i64) -> Option<u64> {
        if now < self.earliest {
            return None;
        }
        let mut due = None;
        self.earliest = i64::MAX;
        for (offset, slot) in (self.committed..).zip(&mut self.slots) {
            let (Slot::Out(delivered) | Slot::Back(delivered)) = *slot else {
                continue;
            };
            self.earliest = self.earliest.min(delivered.deadline);
            if delivered.deadline <= now {
                *slot = Slot::Back(delivered);
                due = due.or(Some(offset));
            }
        }
        due
    }

    /// The first message from `from` on that is not settled, if it is due again at `now`. If it is
    /// not, nothing after it may be delivered in an ordered queue.
    pub fn due_in_order(&mut self, from: u64, now: i64) -> Option<u64> {
        let first = self.committed;
        let mut slots = (first..).zip(&mut self.slots).skip(passed(from, first));
        let (offset, slot) = slots.find(|(_, slot)| **slot != Slot::Settled)?;
        let (Slot::Out(found) | Slot::Back(found)) = *slot else {
            return None;
        };
        if found.deadline > now {
            return None;
        }
        *slot = Slot::Back(found);
        Some(offset)
    }

    /// Takes back what was delivered after `offset`: its consumer can no longer settle it. It
    /// becomes due when it would have been.
    pub fn take_back_after(&mut self, offset: u64) {
        let passed = passed(offset.saturating_add(1), self.committed);
        for slot in self.slots.iter_mut().skip(passed) {
            if let Slot::Out(found) | Slot::Back(found) = *slot {
                let standing = match found.standing {
                    Standing::Valid => Standing::TakenBack,
                    other => other,
                };
                *slot = Slot::Back(Delivered { standing, ..found });
            }
        }
    }

    /// Delivers the message at `offset` again. [`Window::due`] or [`Window::due_in_order`] must
    /// have returned it. Returns the serial number of the delivery.
    pub fn deliver_again(&mut self, offset: u64, deadline: i64) -> Option<u32> {
        let Some(Slot::Back(before)) = self.slot(offset).copied() else {
            return None;
        };
        let delivered = self.delivery(before.attempts, deadline);
        *self.slot(offset)? = Slot::Out(delivered);
        Some(delivered.serial)
    }

    fn slot(&mut self, offset: u64) -> Option<&mut Slot> {
        let place = usize::try_from(offset.checked_sub(self.committed)?).ok()?;
        self.slots.get_mut(place)
    }

    /// The slot of a delivery, or why it cannot be settled.
    fn delivered(&mut self, offset: u64, serial: u32) -> Result<&mut Slot, Settling> {
        let is_earlier = serial.wrapping_sub(self.before).wrapping_sub(1) > u32::MAX / 2;
        if is_earlier {
            return Err(Settling::Lost);
        }
        match self.slot(offset) {
            Some(Slot::Out(found) | Slot::Back(found)) if found.serial != serial => {
                Err(Settling::Lost)
            }
            None | Some(Slot::Settled) => Err(Settling::Already),
            Some(slot) => match *slot {
                Slot::Back(found) if found.standing == Standing::Refused => Err(Settling::Already),
                Slot::Back(found) if found.standing == Standing::TakenBack => {
                    Err(Settling::TakenBack)
                }
                _ => Ok(slot),
            },
        }
    }

    /// Whether a delivery can still be settled.
    pub fn check(&mut self, offset: u64, serial: u32) -> Settling {
        self.delivered(offset, serial)
            .err()
            .unwrap_or(Settling::Done)
    }

    /// Settles a delivery, even after its deadline, unless the message was delivered again.
    pub fn settle(&mut self, offset: u64, serial: u32) -> Settling {
        match self.delivered(offset, serial) {
            Ok(slot) => *slot = Slot::Settled,
            Err(refused) => return refused,
        }
        self.unsettled -= 1;
        while let Some(Slot::Settled) = self.slots.front() {
            self.slots.pop_front();
            self.committed += 1;
        }
        if self.unsettled == 0 {
            self.earliest = i64::MAX;
        }
        Settling::Done
    }

    /// Settles a message that is due again but can no longer be read.
    pub fn give_up(&mut self, offset: u64) {
        if let Some(Slot::Back(found)) = self.slot(offset).copied() {
            self.restore(offset);
            self.settle(offset, found.serial);
        }
    }

    /// Forgets that a delivery was refused or taken back.
    fn restore(&mut self, offset: u64) {
        if let Some(Slot::Back(found)) = self.slot(offset) {
            found.standing = Standing::Valid;
        }
    }

    /// Refuses a delivery: it is settled, and the message becomes due at `due`. Everything
    /// delivered after it is taken back, and becomes due then too.
    pub fn refuse(&mut self, offset: u64, serial: u32, due: i64) -> Settling {
        if let Err(refused) = self.delivered(offset, serial) {
            return refused;
        }
        self.recall_from(offset, due);
        self.take_back_after(offset);
        if let Some(Slot::Back(found)) = self.slot(offset) {
            found.standing = Standing::Refused;
        }
        Settling::Done
    }

    /// Postpones the deadline of a delivery.
    pub fn extend(&mut self, offset: u64, serial: u32, until: i64) -> Settling {
        match self.delivered(offset, serial) {
            Ok(slot) => {
                if let Slot::Out(found) | Slot::Back(found) = *slot {
                    let deadline = until;
                    *slot = Slot::Out(Delivered { deadline, ..found });
                }
                self.earliest = self.earliest.min(until);
                Settling::Done
            }
            Err(refused) => refused,
        }
    }

    /// Takes back a delivery that no caller has seen: it does not count as an attempt. The message
    /// is due at `now`, unless an earlier one must be delivered before it.
    pub fn give_back(&mut self, offset: u64, serial: u32, now: i64) {
        let settling = self.check(offset, serial);
        if !matches!(settling, Settling::Done | Settling::TakenBack) {
            return;
        }
        if let Some(slot) = self.slot(offset)
            && let Slot::Out(found) | Slot::Back(found) = *slot
        {
            let deadline = match settling {
                Settling::TakenBack => found.deadline,
                _ => now,
            };
            *slot = Slot::Back(Delivered {
                attempts: found.attempts.saturating_sub(1),
                deadline,
                ..found
            });
        }
        self.earliest = self.earliest.min(now);
    }

    /// How often a message was delivered; 0 if it is settled.
    pub fn attempts(&self, offset: u64) -> u32 {
        let place = offset.checked_sub(self.committed);
        let place = place.and_then(|place| usize::try_from(place).ok());
        match place.and_then(|place| self.slots.get(place)) {
            Some(Slot::Out(found) | Slot::Back(found)) => found.attempts,
            _ => 0,
        }
    }

    /// Takes back everything delivered from `offset` on: it becomes due at `due`.
    pub fn recall_from(&mut self, offset: u64, due: i64) {
        let passed = passed(offset, self.committed);
        for slot in self.slots.iter_mut().skip(passed) {
            if let Slot::Out(found) | Slot::Back(found) = *slot {
                let deadline = due;
                *slot = Slot::Back(Delivered { deadline, ..found });
            }
        }
        self.earliest = self.earliest.min(due);
    }
}

/// Number of slots before that of `offset`.
fn passed(offset: u64, committed: u64) -> usize {
    usize::try_from(offset.saturating_sub(committed)).unwrap_or(usize::MAX)
}
