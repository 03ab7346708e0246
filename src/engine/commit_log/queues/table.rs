//! A flat table of values by topic and queue number.
//!
//! With many topics, consecutive uses of the table are for different topics, and the processor's
//! cache holds little of it. So the values of all topics are in one array, in which each topic has
//! a row of consecutive places, and a value is found with two loads.
//!
//! ```text
//!   rows     topic 0: 0, 2     topic 1: 2, 1     topic 2: 3, 4
//!   values   0/0  0/1          1/0               2/0  2/1  2/2  (2/3)
//! ```
//!
//! Most topics have few queues, numbered from 0. A number read from a disk can be anything, so a
//! queue with a high number has its value in a map: memory grows with the number of queues, not
//! with their numbers.

use crate::num::short;
use std::collections::BTreeMap;
use std::ops::Range;

/// Queues below this number are in the array.
const NEAR: u32 = 64;
const _: () = assert!(NEAR.is_power_of_two());

/// A value whose default means that there is none.
pub trait Value: Default {
    /// Whether there is a value.
    fn is_there(&self) -> bool;
}

impl<T> Value for Option<T> {
    fn is_there(&self) -> bool {
        self.is_some()
    }
}

impl Value for u64 {
    fn is_there(&self) -> bool {
        *self != 0
    }
}

/// The places of a topic.
#[derive(Clone, Copy, Debug, Default)]
struct Row {
    first: u32,
    len: u32,
}

impl Row {
    fn range(self) -> Range<usize> {
        self.first as usize..self.first as usize + self.len as usize
    }
}

/// Values for some of the queues of each topic.
#[derive(Debug, Default)]
pub struct QueueTable<T> {
    /// By topic.
    rows: Vec<Row>,
    values: Vec<T>,
    far: BTreeMap<(u32, u32), T>,
}

impl<T: Value> QueueTable<T> {
    /// The value of a queue, if it has a place.
    #[inline]
    pub fn get(&self, topic: u32, queue: u32) -> Option<&T> {
        let row = self.rows.get(topic as usize).copied().unwrap_or_default();
        match queue < row.len {
            true => self.values.get((row.first + queue) as usize),
            false => self.far.get(&(topic, queue)),
        }
    }

    /// The value of a queue, which gets a place if it has none.
    #[inline]
    pub fn place(&mut self, topic: u32, queue: u32) -> &mut T {
        let row = self.rows.get(topic as usize).copied().unwrap_or_default();
        if queue >= row.len {
            return self.far_place(topic, queue);
        }
        match self.values.get_mut((row.first + queue) as usize) {
            Some(value) => value,
            None => unreachable!("a row lies in the array"),
        }
    }

    #[cold]
    fn far_place(&mut self, topic: u32, queue: u32) -> &mut T {
        if queue >= NEAR {
            return self.far.entry((topic, queue)).or_default();
        }
        if self.rows.len() <= topic as usize {
            self.rows.resize_with(topic as usize + 1, Row::default);
        }
        if let Some(row) = self.rows.get_mut(topic as usize) {
            let first = self.values.len();
            let len = (queue + 1).next_power_of_two();
            self.values.resize_with(first + len as usize, T::default);
            let (old, new) = self.values.split_at_mut(first);
            let old = old.get_mut(row.range()).unwrap_or_default();
            // The places that the topic had stay unused; they are fewer than it has now.
            old.swap_with_slice(new.get_mut(..old.len()).unwrap_or_default());
            *row = Row {
                first: short(first),
                len,
            };
        }
        self.place(topic, queue)
    }

    /// The values of a topic, by queue number.
    pub fn of(&self, topic: u32) -> impl Iterator<Item = (u32, &T)> {
        let row = self.rows.get(topic as usize).copied().unwrap_or_default();
        let near = self.values.get(row.range()).unwrap_or_default();
        let far = self.far.range((topic, 0)..=(topic, u32::MAX));
        let far = far.map(|((_, queue), value)| (*queue, value));
        let all = (0..).zip(near).chain(far);
        all.filter(|(_, value)| value.is_there())
    }

    /// As [`QueueTable::of`], mutable.
    pub fn of_mut(&mut self, topic: u32) -> impl Iterator<Item = (u32, &mut T)> {
        let row = self.rows.get(topic as usize).copied().unwrap_or_default();
        let near = self.values.get_mut(row.range()).unwrap_or_default();
        let far = self.far.range_mut((topic, 0)..=(topic, u32::MAX));
        let far = far.map(|((_, queue), value)| (*queue, value));
        let all = (0..).zip(near).chain(far);
        all.filter(|(_, value)| value.is_there())
    }

    /// All values, in no order.
    pub fn values(&self) -> impl Iterator<Item = &T> {
        let all = self.values.iter().chain(self.far.values());
        all.filter(|value| value.is_there())
    }

    /// Removes all values.
    pub fn clear(&mut self) {
        *self = QueueTable {
            rows: Vec::new(),
            values: Vec::new(),
            far: BTreeMap::new(),
        };
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod test {
    use super::*;

    #[test]
    fn a_table_is_as_large_as_the_number_of_queues_and_not_as_their_numbers() {
        let mut table: QueueTable<Option<u64>> = QueueTable::default();
        let queues = [1 << 20, 3, 63, u32::MAX, 0, 15, 64];
        let made = |topic, queue| Some(u64::from(topic) << 32 | u64::from(queue));
        for topic in 0..100 {
            for queue in queues {
                let place = table.place(topic, queue);
                assert_eq!(*place, None);
                *place = made(topic, queue);
            }
        }
        assert!(table.values.len() <= 100 * 2 * NEAR as usize && table.far.len() == 300);
        let mut sorted = queues;
        sorted.sort_unstable();
        for topic in 0..100 {
            let found = table.of(topic).map(|(queue, value)| (queue, *value));
            assert!(found.eq(sorted.map(|queue| (queue, made(topic, queue)))));
            for queue in [1, 14, 65, 1 << 21] {
                assert!(table.get(topic, queue).copied().flatten().is_none());
            }
        }
        assert_eq!(table.values().count(), 700);
        assert!(table.get(100, 0).is_none() && table.of(100).next().is_none());
        *table.place(200, 1 << 20) = Some(7);
        assert_eq!(table.get(200, 1 << 20), Some(&Some(7)));
        assert_eq!(table.of(200).count(), 1);
        table.clear();
        assert_eq!(table.values().count(), 0);
    }

    /// Topics get their queues one by one and in turn, so rows move while others stay.
    #[test]
    fn a_row_that_grows_keeps_its_values() {
        let mut table: QueueTable<u64> = QueueTable::default();
        for queue in 0..100 {
            for topic in [7, 0, 3] {
                *table.place(topic, queue) += 1 + u64::from(topic + queue);
            }
        }
        for topic in [0, 3, 7] {
            let all = (0..100).map(|queue| (queue, 1 + u64::from(topic + queue)));
            assert!(
                table
                    .of(topic)
                    .map(|(queue, value)| (queue, *value))
                    .eq(all)
            );
        }
        assert!(table.values.len() < 3 * 2 * NEAR as usize);
    }
}
