//! Messages with a delivery time that were refused, and when each is tried again.
//!
//! A message is set aside if it alone, or its topic alone, cannot be written for a reason that
//! somebody may remove, such as the rights of a directory. Those after it are delivered. The pauses
//! between two attempts double: the reason may last for days.

use std::collections::{BTreeMap, BTreeSet};

/// The first and the longest pause between two attempts, in ms.
const FIRST_PAUSE_MS: i64 = 1_000;
const LONGEST_PAUSE_MS: i64 = 300_000;

/// Messages that were refused, by their offsets.
#[derive(Debug, Default)]
pub(super) struct Aside {
    by_offset: BTreeMap<u64, Again>,
    /// When each is tried again, by the steady clock, in ms.
    by_time: BTreeSet<(i64, u64)>,
}

#[derive(Clone, Copy, Debug)]
struct Again {
    /// The delivery time of the message, by the wall clock, in ms.
    due: i64,
    at: i64,
    pause: i64,
}

impl Aside {
    /// Notes that a message, given by its delivery time and offset, was refused at `now` by the
    /// steady clock. Returns whether it was not set aside before.
    pub(super) fn put(&mut self, (due, offset): (i64, u64), now: i64) -> bool {
        let before = self.by_offset.get(&offset).copied();
        let pause = before.map_or(FIRST_PAUSE_MS, |before| {
            LONGEST_PAUSE_MS.min(before.pause.saturating_mul(2))
        });
        self.remove(offset);
        let at = now.saturating_add(pause);
        self.by_offset.insert(offset, Again { due, at, pause });
        self.by_time.insert((at, offset));
        before.is_none()
    }

    /// Takes a message out. Returns whether it was set aside.
    pub(super) fn remove(&mut self, offset: u64) -> bool {
        let Some(again) = self.by_offset.remove(&offset) else {
            return false;
        };
        self.by_time.remove(&(again.at, offset));
        true
    }

    /// When the next message is tried, and its delivery time and offset.
    pub(super) fn first(&self) -> Option<(i64, (i64, u64))> {
        let (at, offset) = *self.by_time.first()?;
        let again = self.by_offset.get(&offset)?;
        Some((at, (again.due, offset)))
    }

    /// Number of messages.
    pub(super) fn len(&self) -> usize {
        self.by_offset.len()
    }

    /// Delivery times and offsets of all messages, in the order of offsets.
    pub(super) fn all(&self) -> impl Iterator<Item = (i64, u64)> {
        let messages = self.by_offset.iter();
        messages.map(|(offset, again)| (again.due, *offset))
    }

    /// The offsets of all messages, in order.
    pub(super) fn offsets(&self) -> impl Iterator<Item = u64> {
        self.by_offset.keys().copied()
    }
}

#[cfg(test)]
#[allow(clippy::indexing_slicing)]
mod tests {
    use super::*;

    #[test]
    fn the_pauses_grow_and_begin_again_with_a_message_that_was_taken_out() {
        let mut aside = Aside::default();
        let (three, seven) = ((33, 3), (77, 7));
        assert!(aside.put(seven, 0));
        assert!(aside.put(three, 500));
        assert_eq!(aside.offsets().collect::<Vec<_>>(), [3, 7]);
        assert_eq!(aside.all().collect::<Vec<_>>(), [three, seven]);
        assert_eq!(aside.len(), 2);
        let mut tried = Vec::new();
        while let Some((at, (77, 7))) = aside.first().filter(|(at, _)| *at < 1_500) {
            tried.push(at);
            assert!(!aside.put(seven, at));
        }
        assert_eq!(tried, [1_000]);
        assert!(aside.remove(3) && !aside.remove(3));
        while let Some((at, (77, 7))) = aside.first().filter(|(at, _)| *at < 1_200_000) {
            tried.push(at);
            aside.put(seven, at);
        }
        let pauses: Vec<i64> = tried.windows(2).map(|pair| pair[1] - pair[0]).collect();
        let doubled = [2, 4, 8, 16, 32, 64, 128, 256].map(|seconds| seconds * 1_000);
        assert_eq!(pauses, [&doubled[..], &[300_000, 300_000]].concat());
        assert!(aside.remove(7));
        assert_eq!(aside.first(), None);
        assert!(aside.put(seven, 0));
        assert_eq!(aside.first(), Some((FIRST_PAUSE_MS, seven)));
    }
}
