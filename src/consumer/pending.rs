//! Which messages wait for which time: the index of the timer topic, in memory.
//!
//! A message takes 16 bytes, and about as much again for the tree that orders them. Offsets are
//! counted by blocks, so that the lowest one is known without a second tree.

use std::collections::{BTreeMap, BTreeSet};

/// Offsets of a block.
const BLOCK: u64 = 1_024;

/// Messages that wait, by time and offset.
#[derive(Debug, Default)]
pub(super) struct Pending {
    by_time: BTreeSet<(i64, u64)>,
    /// How many messages of each block of offsets wait; only blocks that have any.
    blocks: BTreeMap<u64, u32>,
}

impl Pending {
    /// Adds a message that waits for `at`.
    pub(super) fn insert(&mut self, at: i64, offset: u64) {
        if self.by_time.insert((at, offset)) {
            *self.blocks.entry(offset / BLOCK).or_default() += 1;
        }
    }

    /// Takes a message out, if it waits.
    pub(super) fn remove(&mut self, at: i64, offset: u64) {
        if !self.by_time.remove(&(at, offset)) {
            return;
        }
        let block = offset / BLOCK;
        if let Some(count) = self.blocks.get_mut(&block) {
            *count -= 1;
            if *count == 0 {
                self.blocks.remove(&block);
            }
        }
    }

    /// Number of messages that wait.
    pub(super) fn len(&self) -> usize {
        self.by_time.len()
    }

    /// All messages that wait, in the order of their times.
    pub(super) fn all(&self) -> Vec<(i64, u64)> {
        self.by_time.iter().copied().collect()
    }

    /// The message whose time comes first; of several with equal times, the one that was sent
    /// first.
    pub(super) fn first(&self) -> Option<(i64, u64)> {
        self.by_time.first().copied()
    }

    /// An offset below which no message waits; `None` if no message waits.
    pub(super) fn low(&self) -> Option<u64> {
        let (block, _) = self.blocks.first_key_value()?;
        Some(block * BLOCK)
    }

    /// Offsets of the messages whose time is `at` or earlier, in the order of their times.
    pub(super) fn until(&self, at: i64) -> impl Iterator<Item = u64> {
        let messages = self.by_time.range(..=(at, u64::MAX));
        messages.map(|(_, offset)| *offset)
    }

    /// Offsets below `end` of messages that wait, in order.
    pub(super) fn below(&self, end: u64) -> Vec<u64> {
        if self.low().is_none_or(|low| low >= end) {
            return Vec::new();
        }
        let offsets = self.by_time.iter().map(|(_, offset)| *offset);
        let mut below: Vec<u64> = offsets.filter(|offset| *offset < end).collect();
        below.sort_unstable();
        below
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(crate::seeds::proptest_config())]

        #[test]
        fn an_index_equals_its_model(
            steps in prop::collection::vec((any::<bool>(), 0..9i64, 0..4_000u64), 1..300),
            end in 0..4_000u64,
            until in 0..9i64,
        ) {
            let mut pending = Pending::default();
            let mut model = BTreeSet::new();
            for (adds, at, offset) in steps {
                if adds {
                    pending.insert(at, offset);
                    model.insert((at, offset));
                } else if let Some(known) = model.iter().nth(usize::try_from(offset % 7).unwrap()) {
                    let (at, offset) = *known;
                    pending.remove(at, offset);
                    model.remove(&(at, offset));
                } else {
                    pending.remove(at, offset);
                    model.remove(&(at, offset));
                }
                prop_assert_eq!(pending.first(), model.first().copied());
                let lowest = model.iter().map(|it| it.1).min();
                prop_assert_eq!(pending.low(), lowest.map(|it| it - it % BLOCK));
                let mut below: Vec<u64> =
                    model.iter().map(|it| it.1).filter(|it| *it < end).collect();
                below.sort_unstable();
                prop_assert_eq!(pending.below(end), below);
                let early = model.iter().filter(|it| it.0 <= until).map(|it| it.1);
                prop_assert!(pending.until(until).eq(early));
            }
        }
    }
}
