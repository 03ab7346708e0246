//! What is known of the queues of one topic, by their number.
//!
//! A topic has few queues, numbered from 0, so the first ones stand in a row. A number that is read
//! from a disk may be any: the others stand in a map, and memory grows with how many queues there
//! are and not with their numbers.

use foldhash::fast::RandomState;
use smallvec::SmallVec;
use std::collections::HashMap;

/// Queues below this number stand in the row.
const NEAR: usize = 16;

/// A value each of some of a topic's queues.
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

    /// [`QueueRow::get`], to be changed.
    #[inline]
    pub fn get_mut(&mut self, queue: u32) -> Option<&mut T> {
        match self.near.get_mut(queue as usize) {
            Some(value) => value.as_mut(),
            None => self.far.get_mut(&queue),
        }
    }

    /// The value of a queue, made where there is none.
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

    /// Queues and their values, in the order of the queues.
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

    /// [`QueueRow::iter`], to be changed.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (u32, &mut T)> {
        let near = (0..).zip(&mut self.near);
        let near = near.filter_map(|(queue, value)| Some((queue, value.as_mut()?)));
        let far = self.far.iter_mut();
        let mut far: Vec<_> = far.map(|(queue, value)| (*queue, value)).collect();
        far.sort_unstable_by_key(|(queue, _)| *queue);
        near.chain(far)
    }

    /// Forgets all.
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
