//! Groups the entries of a backlog by queue.
//!
//! With many topics, consecutive records belong to different queues, and the processor's caches
//! hold nothing of the next queue: not its end, not the place of its next entry, not the address
//! translation of that place. In a long backlog a queue has several entries. If they are put one
//! after another, all this is loaded once.

use crate::num::short;

/// The order in which entries are put.
#[derive(Debug, Default)]
pub struct Grouping {
    /// By queue: where in `order` its next entry goes.
    places: Vec<u32>,
    order: Vec<u32>,
}

impl Grouping {
    /// The indexes into `queues`, grouped by queue and ascending within each group. Each number in
    /// `queues` must be below `count`.
    pub fn order(
        &mut self,
        count: usize,
        queues: impl ExactSizeIterator<Item = usize> + Clone,
    ) -> &[u32] {
        self.places.clear();
        self.places.resize(count, 0);
        self.order.clear();
        self.order.resize(queues.len(), 0);
        for queue in queues.clone() {
            if let Some(place) = self.places.get_mut(queue) {
                *place += 1;
            }
        }
        let mut next = 0;
        for place in &mut self.places {
            next += std::mem::replace(place, next);
        }
        for (index, queue) in queues.enumerate() {
            if let Some(place) = self.places.get_mut(queue)
                && let Some(to) = self.order.get_mut(*place as usize)
            {
                *to = short(index);
                *place += 1;
            }
        }
        &self.order
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn entries_of_a_queue_stay_in_their_order() {
        let mut grouping = Grouping::default();
        let queues = [2, 0, 2, 5, 0, 2];
        assert_eq!(grouping.order(6, queues.into_iter()), [1, 4, 0, 2, 5, 3]);
        assert_eq!(grouping.order(1, [0, 0].into_iter()), [0, 1]);
        assert!(grouping.order(3, [].into_iter()).is_empty());
    }
}
