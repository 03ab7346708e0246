//! The messages between `committed` and `next` of a window, in order of their offsets.
//!
//! Offsets without a message take no memory. Settled messages after one that is not settled are
//! removed once they are more than those that are not. So memory and time follow the number of
//! unsettled messages.
//!
//! ```text
//!   offsets   | 3 5 6 7 9 ... | 40 41 42 ...  | 2000 2001 ... |
//!   block     |       0       |       1       |       2       |
//!   earliest  |     12:00     |     12:05     |     12:00     |
//! ```
//!
//! The slots are grouped in blocks of equal length. Each block knows a time before which none of
//! its messages is due, so a search passes over blocks in which nothing is due.

use std::collections::VecDeque;
use std::ops::Range;

/// Number of slots of a block. Tests have many blocks.
pub const BLOCK: usize = if cfg!(test) { 8 } else { 64 };

/// One message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    pub offset: u64,
    /// The number of its last delivery.
    pub serial: u64,
    /// When it becomes due again.
    pub deadline: i64,
    pub attempts: u32,
    pub state: State,
}

/// The state of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Settled,
    /// Delivered.
    Out,
    /// To be delivered again. Until then its consumer can settle it.
    Back,
    /// To be delivered again, after an earlier message of an ordered queue.
    TakenBack,
    /// To be delivered again: its consumer has refused it.
    Refused,
}

impl Slot {
    fn is_settled(&self) -> bool {
        self.state == State::Settled
    }
}

/// Messages in order of their offsets. The first one is not settled.
#[derive(Debug, Default)]
pub struct Slots {
    slots: VecDeque<Slot>,
    /// Number of slots that are not settled.
    unsettled: usize,
    /// Number of slots that the first block had before the first slot.
    skipped: usize,
    /// For each block, a time before which none of its messages is due.
    earliest: VecDeque<i64>,
    /// Number of blocks and slots that [`Slots::due`] has examined.
    #[cfg(test)]
    pub looked_at: u64,
}

impl Slots {
    /// Number of messages that are not settled.
    pub fn unsettled(&self) -> usize {
        self.unsettled
    }

    /// Number of messages that take memory.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// The first message that is not settled.
    pub fn first(&self) -> Option<&Slot> {
        self.slots.front()
    }

    /// The messages that are not settled.
    pub fn iter(&self) -> impl Iterator<Item = &Slot> {
        self.slots.iter().filter(|slot| !slot.is_settled())
    }

    /// The first message at `from` or later that is not settled.
    pub fn first_from(&self, from: u64) -> Option<&Slot> {
        let mut later = self.slots.range(self.place(from)..);
        later.find(|slot| !slot.is_settled())
    }

    /// The message at `offset`, unless it is settled.
    pub fn get(&self, offset: u64) -> Option<&Slot> {
        self.find(offset).map(|(_, slot)| slot)
    }

    /// The message at `offset`, unless it is settled, and its place for [`Slots::settle`].
    #[inline]
    pub fn find(&self, offset: u64) -> Option<(usize, &Slot)> {
        let place = self.place(offset);
        let slot = self.slots.get(place)?;
        (slot.offset == offset && !slot.is_settled()).then_some((place, slot))
    }

    /// The time at which a message becomes due, or an earlier one; `None` if no message will.
    pub fn earliest(&self) -> Option<i64> {
        self.earliest.iter().min().copied()
    }

    /// Adds an unsettled message after all others.
    pub fn push(&mut self, slot: Slot) {
        let number = self.block_of(self.slots.len());
        match self.earliest.get_mut(number) {
            Some(earliest) => *earliest = slot.deadline.min(*earliest),
            None => self.earliest.push_back(slot.deadline),
        }
        self.slots.push_back(slot);
        self.unsettled += 1;
    }

    /// Changes the message at `offset`, unless it is settled. The change must not settle it.
    pub fn change(&mut self, offset: u64, change: impl FnOnce(&mut Slot)) {
        let place = self.place(offset);
        if let Some(slot) = self.slots.get_mut(place)
            && slot.offset == offset
            && !slot.is_settled()
        {
            change(slot);
            let deadline = slot.deadline;
            self.note(place, deadline);
        }
    }

    /// Changes all messages of a range that are not settled. The change must not settle them.
    pub fn change_all(&mut self, offsets: Range<u64>, mut change: impl FnMut(&mut Slot)) {
        for place in self.place(offsets.start)..self.place(offsets.end) {
            if let Some(slot) = self.slots.get_mut(place)
                && !slot.is_settled()
            {
                change(slot);
                let deadline = slot.deadline;
                self.note(place, deadline);
            }
        }
    }

    /// Settles the message at a place that [`Slots::find`] has just returned.
    #[inline]
    pub fn settle(&mut self, place: usize) {
        self.unsettled -= 1;
        if place == 0 {
            self.remove_first();
            return;
        }
        if let Some(slot) = self.slots.get_mut(place) {
            slot.state = State::Settled;
        }
        // So each removal moves fewer messages than were settled since the last one.
        if self.slots.len() > 2 * self.unsettled + BLOCK {
            self.remove_settled();
        }
    }

    /// The first message at `from` or later that is due at `now`.
    pub fn due(&mut self, from: u64, now: i64) -> Option<u64> {
        let (first, len) = (self.block_of(self.place(from)), self.slots.len());
        for (number, earliest) in self.earliest.iter_mut().enumerate().skip(first) {
            #[cfg(test)]
            {
                self.looked_at += 1;
            }
            if *earliest > now {
                continue;
            }
            let begin = (number * BLOCK).saturating_sub(self.skipped);
            let end = ((number + 1) * BLOCK - self.skipped).min(len);
            let mut known = i64::MAX;
            for slot in self.slots.range(begin..end) {
                #[cfg(test)]
                {
                    self.looked_at += 1;
                }
                if slot.is_settled() {
                    continue;
                }
                if slot.deadline <= now && slot.offset >= from {
                    return Some(slot.offset);
                }
                known = known.min(slot.deadline);
            }
            *earliest = known;
        }
        None
    }

    /// The place of the message at `offset`, or of the first one after it.
    #[inline]
    fn place(&self, offset: u64) -> usize {
        let Some(first) = self.slots.front() else {
            return 0;
        };
        // Where no offset is missing, the place is known without a search.
        let ahead = usize::try_from(offset.saturating_sub(first.offset)).unwrap_or(usize::MAX);
        match self.slots.get(ahead) {
            Some(slot) if slot.offset == offset => ahead,
            _ => self.slots.partition_point(|slot| slot.offset < offset),
        }
    }

    fn block_of(&self, place: usize) -> usize {
        (self.skipped + place) / BLOCK
    }

    /// Notes the deadline of the message at a place.
    fn note(&mut self, place: usize, deadline: i64) {
        let number = self.block_of(place);
        if let Some(earliest) = self.earliest.get_mut(number) {
            *earliest = deadline.min(*earliest);
        }
    }

    /// Removes the first message, and the settled ones after it.
    #[inline]
    fn remove_first(&mut self) {
        loop {
            self.slots.pop_front();
            self.skipped += 1;
            if self.skipped == BLOCK {
                self.skipped = 0;
                self.earliest.pop_front();
            }
            match self.slots.front() {
                Some(next) if next.is_settled() => {}
                Some(_) => break,
                None => {
                    self.skipped = 0;
                    self.earliest.clear();
                    break;
                }
            }
        }
    }

    /// Removes all settled messages.
    fn remove_settled(&mut self) {
        self.slots.retain(|slot| !slot.is_settled());
        self.skipped = 0;
        self.earliest.clear();
        let blocks = self.slots.make_contiguous().chunks(BLOCK);
        let deadlines = |block: &[Slot]| block.iter().map(|slot| slot.deadline).min();
        self.earliest.extend(blocks.filter_map(deadlines));
    }
}
