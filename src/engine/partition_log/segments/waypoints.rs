//! Where batches begin, as found by earlier walks: an index in memory, for segments whose own index
//! is missing or damaged. Without it, each read would walk its segment from the beginning.

use super::segment::Segment;
use crate::sync::Mutex;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// The most waypoints that are kept of a partition, spread evenly.
const SPREAD_MAX: usize = 512;
/// Least distance between two of them, in bytes. It doubles when there are too many.
const SPACING: u64 = 64 << 10;
/// The most that are kept because they are the latest: sequential reads continue at one of them.
const LATEST_MAX: usize = 16;

/// Where a batch begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waypoint {
    /// All batches before this one have lower offsets.
    pub first: u64,
    /// Last offset of the batch.
    pub last_offset: u64,
    /// Its position in the segment.
    pub position: u64,
}

/// Waypoints in the segments of a partition.
#[derive(Debug, Default)]
pub struct Waypoints(Mutex<Known>);

#[derive(Debug)]
struct Known {
    /// By base and first offset.
    spread: BTreeMap<(u64, u64), Waypoint>,
    spacing: u64,
    /// With the bases of their segments.
    latest: VecDeque<(u64, Waypoint)>,
}

impl Default for Known {
    fn default() -> Known {
        Known {
            spread: BTreeMap::new(),
            spacing: SPACING,
            latest: VecDeque::new(),
        }
    }
}

impl Known {
    fn spread(&mut self, base: u64, waypoint: Waypoint) {
        let (at, position) = ((base, waypoint.first), waypoint.position);
        let before = self.spread.range((base, 0)..=at).next_back();
        let after = self.spread.range(at..=(base, u64::MAX)).next();
        if before.is_some_and(|(_, it)| position < it.position + self.spacing)
            || after.is_some_and(|(_, it)| it.position < position + self.spacing)
        {
            return;
        }
        self.spread.insert(at, waypoint);
        while self.spread.len() > SPREAD_MAX {
            self.thin();
        }
    }

    /// Doubles the spacing; if each segment has one waypoint already, drops every second segment's.
    fn thin(&mut self) {
        let count = self.spread.len();
        let (spacing, mut last) = (self.spacing.saturating_mul(2), None);
        self.spread.retain(|(base, _), it| {
            let is_far = last.is_none_or(|(other, position)| {
                other != *base || it.position >= position + spacing
            });
            if is_far {
                last = Some((*base, it.position));
            }
            is_far
        });
        if self.spread.len() < count {
            self.spacing = spacing;
        } else {
            let mut is_kept = false;
            self.spread.retain(|_, _| {
                is_kept = !is_kept;
                is_kept
            });
        }
    }
}

impl Waypoints {
    /// Keeps a waypoint of the segment with this base.
    pub fn note(&self, base: u64, waypoint: Waypoint) {
        let mut known = self.0.lock();
        known.spread(base, waypoint);
        known.latest.retain(|it| *it != (base, waypoint));
        known.latest.push_back((base, waypoint));
        if known.latest.len() > LATEST_MAX {
            known.latest.pop_front();
        }
    }

    /// The last known waypoint of a segment from which a walk finds `offset`.
    pub fn floor(&self, base: u64, offset: u64) -> Option<Waypoint> {
        let known = self.0.lock();
        let spread = known.spread.range((base, 0)..=(base, offset)).next_back();
        let latest = known.latest.iter();
        let latest = latest.filter(|(other, it)| *other == base && it.first <= offset);
        let all = latest.map(|(_, it)| it).chain(spread.map(|(_, it)| it));
        all.max_by_key(|it| it.position).copied()
    }

    /// Forgets all waypoints.
    pub fn forget(&self) {
        let mut known = self.0.lock();
        known.spread.clear();
        known.latest.clear();
    }

    /// Forgets the waypoints of segments that were replaced, shortened or deleted. Both lists are
    /// in order, and a partition may have many segments.
    pub fn follow(&self, before: &[Arc<Segment>], after: &[Arc<Segment>]) {
        let stays = |segment: &Arc<Segment>| {
            let found = after.binary_search_by_key(&segment.base, |it| it.base);
            let found = found.ok().and_then(|number| after.get(number));
            found.is_some_and(|it| it.path == segment.path && it.len >= segment.len)
        };
        let gone = before.iter().filter(|segment| !stays(segment));
        let mut known = self.0.lock();
        for segment in gone {
            known.spread.retain(|(base, _), _| *base != segment.base);
            known.latest.retain(|(base, _)| *base != segment.base);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waypoint(first: u64) -> Waypoint {
        Waypoint {
            first,
            last_offset: first + 1,
            position: first * 1000,
        }
    }

    #[test]
    fn a_bounded_number_of_waypoints_is_spread_over_the_segments() {
        let waypoints = Waypoints::default();
        for number in 0..100_000 {
            waypoints.note(0, waypoint(2 * number));
        }
        let count = || waypoints.0.lock().spread.len();
        assert!(count() <= SPREAD_MAX);
        let found = waypoints.floor(0, 50_000).unwrap();
        assert!((49_000..=50_000).contains(&found.first), "{found:?}");
        assert_eq!(waypoints.floor(0, 300_000), Some(waypoint(199_998)));
        assert_eq!(waypoints.floor(7, 50_000), None);
        for base in 1..10_000 {
            waypoints.note(base * 1_000_000, waypoint(base * 1_000_000));
            assert!(count() <= SPREAD_MAX);
        }
    }

    #[test]
    fn waypoints_of_a_segment_that_was_replaced_are_forgotten() {
        let segment = |base: u64, len: u64| {
            Arc::new(Segment {
                base,
                path: base.to_string().into(),
                len,
            })
        };
        let waypoints = Waypoints::default();
        for base in [0, 10, 20] {
            waypoints.note(base, waypoint(base));
        }
        let before = [segment(0, 5), segment(10, 5), segment(20, 5)];
        waypoints.follow(&before, &[segment(0, 6), segment(10, 4)]);
        assert_eq!(waypoints.floor(0, 9), Some(waypoint(0)));
        assert_eq!(waypoints.floor(10, 19), None);
        assert_eq!(waypoints.floor(20, 29), None);
        // Each segment of one list was compared with all of the other.
        let many: Vec<_> = (0..100_000).map(|base| segment(base, 5)).collect();
        let listed_again: Vec<_> = many.iter().map(|it| segment(it.base, 5)).collect();
        waypoints.follow(&many, &listed_again);
        assert_eq!(waypoints.floor(0, 9), Some(waypoint(0)));
    }
}
