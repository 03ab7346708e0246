//! A table of values by queue number, for the queues of one topic.
//!
//! Most topics have few queues, numbered from 0, so the first ones are in an array. A number read
//! from a disk can be anything. The others are in a map, so memory grows with the number of queues,
//! not with their numbers.

use foldhash::fast::RandomState;
use smallvec::SmallVec;
use std::collections::HashMap;

/// Queues below this number are in the array.
const NEAR: usize = 16;

/// Values for some of a topic's queues.
#[derive(Debug)]
pub struct QueueRow<T> {
    near: SmallVec<[Option<T>; 1]>,
    far: HashMap<u32, T, RandomState>,
}

impl<T> Default for QueueRow<T> {
    fn default() -> QueueRow<T> {
        QueueRow {
            near: SmallVec::new(),
            far: HashMap::default(),
        }
    }
}

impl<T> QueueRow<T> {
    /// The value of a queue.
    #[inline]
    pub fn get(&self, queue: u32) -> Option<&T> {
        match self.near.get(queue as usize) {
            Some(value) => value.as_ref(),
            None => self.far.get(&queue),
        }
    }

    /// As [`QueueRow::get`], mutable.
    #[inline]
    pub fn get_mut(&mut self, queue: u32) -> Option<&mut T> {
        match self.near.get_mut(queue as usize) {
            Some(value) => value.as_mut(),
            None => self.far.get_mut(&queue),
        }
    }

    /// The value of a queue; created if there is none.
    #[inline]
    pub fn get_or_insert_with(&mut self, queue: u32, make: impl FnOnce() -> T) -> &mut T {
        let column = queue as usize;
        if column >= NEAR {
            return self.far.entry(queue).or_insert_with(make);
        }
        if self.near.len() <= column {
            self.near.resize_with(column + 1, || None);
        }
        let Some(value) = self.near.get_mut(column) else {
            unreachable!("just resized")
        };
        value.get_or_insert_with(make)
    }

    /// Queues and their values, by queue number.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        let near = (0..).zip(&self.near);
        let near = near.filter_map(|(queue, value)| Some((queue, value.as_ref()?)));
        let mut far: Vec<_> = self
            .far
            .iter()
            .map(|(queue, value)| (*queue, value))
            .collect();
        far.sort_unstable_by_key(|(queue, _)| *queue);
        near.chain(far)
    }

    /// As [`QueueRow::iter`], mutable.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (u32, &mut T)> {
        let near = (0..).zip(&mut self.near);
        let near = near.filter_map(|(queue, value)| Some((queue, value.as_mut()?)));
        let far = self.far.iter_mut();
        let mut far: Vec<_> = far.map(|(queue, value)| (*queue, value)).collect();
        far.sort_unstable_by_key(|(queue, _)| *queue);
        near.chain(far)
    }

    /// Removes all values.
    pub fn clear(&mut self) {
        *self = QueueRow::default();
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn a_row_is_as_large_as_the_number_of_its_queues_and_not_as_their_numbers() {
        let mut row = QueueRow::default();
        let queues = [1 << 20, 3, 17, u32::MAX, 0, 15, 16];
        for queue in queues {
            assert_eq!(
                *row.get_or_insert_with(queue, || u64::from(queue)),
                u64::from(queue)
            );
            *row.get_or_insert_with(queue, || 0) += 1;
        }
        assert!(row.near.capacity() <= NEAR && row.far.capacity() < 4 * queues.len());
        let mut sorted = queues;
        sorted.sort_unstable();
        let found: Vec<u32> = row.iter().map(|(queue, _)| queue).collect();
        assert_eq!(found, sorted);
        assert!(row.iter_mut().map(|(queue, _)| queue).eq(sorted));
        for queue in queues {
            assert_eq!(row.get(queue), Some(&(u64::from(queue) + 1)));
            assert!(row.get_mut(queue).is_some());
        }
        for queue in [1, 14, 18, 1 << 21] {
            assert!(row.get(queue).is_none() && row.get_mut(queue).is_none());
        }
        row.clear();
        assert_eq!(row.iter().count(), 0);
    }
}
