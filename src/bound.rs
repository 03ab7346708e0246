//! Where a read of a queue begins and ends: one rule for scans, tails, archives and the command
//! line.

use crate::error::{Error, Result};
use std::collections::BTreeMap;
use std::ops::Range;

/// One end of a read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Bound {
    /// The first message of each queue.
    Earliest,
    /// After the newest message of each queue when the read begins.
    Latest,
    /// The first message of each queue stored at or after this time (ms since the epoch).
    Time(i64),
    /// Offsets by queue, the same for each topic. A queue that is not named starts at its first
    /// message and ends after its last.
    Offsets(BTreeMap<u32, u64>),
}

/// A queue that is read between bounds.
#[derive(Clone, Debug)]
pub struct Bounded<'a> {
    /// The topic.
    pub topic: &'a str,
    /// Number of the queue.
    pub queue: u32,
    /// First offset of the queue, and the next to be written.
    pub offsets: Range<u64>,
}

impl Bounded<'_> {
    /// The offset where a read from `bound` begins. `offset_at` gives the offset of the first
    /// message stored at or after a time.
    ///
    /// # Errors
    ///
    /// [`Error::OffsetOutOfRange`] for an offset outside the queue; those of `offset_at`.
    pub fn start<E: From<Error>>(
        &self,
        bound: &Bound,
        offset_at: impl FnOnce(i64) -> Result<u64, E>,
    ) -> Result<u64, E> {
        let Range {
            start: min,
            end: max,
        } = self.offsets;
        let offset = self.offset(bound, min, offset_at)?;
        if matches!(bound, Bound::Offsets(_)) && !(min..=max).contains(&offset) {
            return Err(E::from(Error::OffsetOutOfRange {
                topic: self.topic.to_owned(),
                queue: self.queue,
                offset: i64::try_from(offset).unwrap_or(i64::MAX),
                min,
                max,
            }));
        }
        Ok(offset)
    }

    /// The offsets of the queue from `start` to `end`. Empty if the end is not after the start.
    /// Offsets after the last message, or before the first one if `start` is a time, are left out.
    ///
    /// # Errors
    ///
    /// Those of [`Bounded::start`].
    pub fn range<E: From<Error>>(
        &self,
        start: &Bound,
        end: &Bound,
        offset_at: impl Fn(i64) -> Result<u64, E>,
    ) -> Result<Range<u64>, E> {
        let Range {
            start: min,
            end: max,
        } = self.offsets;
        let first = self.start(start, &offset_at)?;
        let end = self.offset(end, max, &offset_at)?;
        Ok(first.max(min)..end.min(max))
    }

    /// The offset that a bound means, which may be outside the queue. `unnamed` is used if the
    /// bound names only other queues.
    fn offset<E>(
        &self,
        bound: &Bound,
        unnamed: u64,
        offset_at: impl FnOnce(i64) -> Result<u64, E>,
    ) -> Result<u64, E> {
        match bound {
            Bound::Earliest => Ok(self.offsets.start),
            Bound::Latest => Ok(self.offsets.end),
            Bound::Time(_) if self.offsets.is_empty() => Ok(self.offsets.end),
            Bound::Time(time) => offset_at(*time),
            Bound::Offsets(offsets) => Ok(offsets.get(&self.queue).copied().unwrap_or(unnamed)),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn range(start: Bound, end: Bound) -> Result<Range<u64>> {
        let queue = Bounded {
            topic: "t",
            queue: 3,
            offsets: 10..20,
        };
        queue.range(&start, &end, |time| Ok(time.cast_unsigned()))
    }

    fn named(queue: u32, offset: u64) -> Bound {
        Bound::Offsets([(queue, offset)].into())
    }

    #[test]
    fn a_bound_is_one_offset_of_each_queue() {
        use Bound::{Earliest, Latest, Time};
        assert_eq!(range(Earliest, Latest).unwrap(), 10..20);
        assert!(range(Latest, Earliest).unwrap().is_empty());
        assert_eq!(range(Time(12), Time(15)).unwrap(), 12..15);
        assert_eq!(range(Time(0), Time(99)).unwrap(), 10..20);
        assert_eq!(range(named(3, 11), named(3, 99)).unwrap(), 11..20);
        assert_eq!(range(named(4, 99), named(4, 0)).unwrap(), 10..20);
        assert!(range(named(3, 20), named(3, 0)).unwrap().is_empty());
    }

    #[test]
    fn a_start_by_offset_is_refused_outside_the_queue() {
        for outside in [9, 21, u64::MAX] {
            let refused = range(named(3, outside), Bound::Latest).unwrap_err();
            assert!(matches!(
                refused,
                Error::OffsetOutOfRange {
                    queue: 3,
                    min: 10,
                    max: 20,
                    ..
                }
            ));
        }
    }

    #[test]
    fn an_empty_queue_is_asked_for_no_time() {
        let queue = Bounded {
            topic: "t",
            queue: 0,
            offsets: 5..5,
        };
        let none = |_| -> Result<u64> { unreachable!("the queue is empty") };
        let (start, end) = (Bound::Time(1), Bound::Time(2));
        assert_eq!(queue.range(&start, &end, none).unwrap(), 5..5);
    }
}
