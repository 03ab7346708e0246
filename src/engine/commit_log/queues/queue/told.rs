//! Fillers whose lost messages were reported to readers, so that each process searches for them
//! once.

use crate::damage::Damage;
use crate::sync::Mutex;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

/// Maximum number of incomplete searches of a queue that no reader continues at the moment.
const SEARCHES_MAX: usize = 16;

/// The fillers of a queue for which readers have searched the log.
///
/// A search may read a large part of the log. So each has a lock of its own, and only readers at
/// the same fillers wait for it.
#[derive(Debug, Default)]
pub struct Told(Mutex<Option<Box<Known>>>);

/// What is known of the fillers of a queue.
#[derive(Debug, Default)]
struct Known {
    /// Ranges of fillers whose search has ended: the end by the first number.
    runs: BTreeMap<u64, u64>,
    /// Incomplete searches, of different runs of fillers. The most recently continued one is last.
    searches: VecDeque<Begun>,
}

/// A search for the holes that hold the messages of a run of fillers.
#[derive(Clone, Debug)]
pub struct Begun {
    /// The fillers.
    pub numbers: Range<u64>,
    /// How far it is. Whoever holds the lock continues it.
    pub search: Arc<Mutex<Search>>,
}

/// How far a search is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Search {
    /// The part of the log that is yet to be walked.
    pub positions: Range<u64>,
    /// How many bytes of it may be walked.
    pub budget: u64,
    /// The fillers whose hole is not known.
    pub left: Vec<Range<u64>>,
    /// The last hole that does not show whose message it holds.
    pub unnamed: Option<Damage>,
    /// The first hole with a damaged record that may belong to the queue.
    pub doubtful: Option<Damage>,
    /// Whether it has ended.
    pub has_ended: bool,
}

/// What is known of a filler.
#[derive(Debug)]
pub enum Looked {
    /// Readers were told of these fillers.
    Told(Range<u64>),
    /// A reader has begun a search.
    Begun(Begun),
}

impl Told {
    /// What is known of the filler `number`.
    pub fn of(&self, number: u64) -> Option<Looked> {
        self.0.lock().get_or_insert_default().of(number)
    }

    /// Adds a range whose search has ended.
    pub fn add(&self, numbers: &Range<u64>) {
        let mut known = self.0.lock();
        let known = known.get_or_insert_default();
        known.runs.insert(numbers.start, numbers.end);
        known.searches.retain(|it| it.numbers != *numbers);
    }

    /// Adds a search for the filler `number`, unless another reader was faster. Returns what is
    /// known of the filler.
    ///
    /// If there are too many, also returns the one that has waited longest, and the caller must end
    /// it. If it were dropped, readers that take turns would start over each time, and none would
    /// get past its fillers. Until it has ended, readers of its fillers find it: otherwise they
    /// would begin another search and might report the same message in another hole.
    #[must_use]
    pub fn begin(&self, number: u64, begun: Begun) -> (Looked, Option<Begun>) {
        let mut known = self.0.lock();
        let known = known.get_or_insert_default();
        if let Some(looked) = known.of(number) {
            return (looked, None);
        }
        let waits = |it: &Begun| Arc::strong_count(&it.search) == 1;
        let oldest = match known.searches.iter().filter(|it| waits(it)).count() < SEARCHES_MAX {
            true => None,
            false => known.searches.iter().position(waits),
        };
        let oldest = oldest.and_then(|at| known.searches.get(at)).cloned();
        known.searches.push_back(begun.clone());
        (Looked::Begun(begun), oldest)
    }
}

impl Known {
    fn of(&mut self, number: u64) -> Option<Looked> {
        let run = self.runs.range(..=number).next_back();
        if let Some((first, end)) = run.filter(|(_, end)| number < **end) {
            return Some(Looked::Told(*first..*end));
        }
        let mut searches = self.searches.iter();
        let at = searches.position(|it| it.numbers.contains(&number))?;
        let begun = self.searches.remove(at)?;
        self.searches.push_back(begun.clone());
        Some(Looked::Begun(begun))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn begun(numbers: Range<u64>) -> Begun {
        Begun {
            search: Arc::new(Mutex::new(Search {
                positions: 0..1,
                budget: 1,
                left: vec![numbers.clone()],
                unnamed: None,
                doubtful: None,
                has_ended: false,
            })),
            numbers,
        }
    }

    fn is_begun(told: &Told, number: u64) -> bool {
        matches!(told.of(number), Some(Looked::Begun(begun)) if begun.numbers.contains(&number))
    }

    /// A reader that walked the log had every other reader of a filler of the queue wait.
    #[test]
    fn readers_find_other_searches_while_one_is_continued() {
        let told = Told::default();
        let (one, other) = (begun(0..2), begun(4..6));
        let _walking = one.search.lock();
        assert!(matches!(
            told.begin(1, one.clone()),
            (Looked::Begun(_), None)
        ));
        assert!(matches!(told.begin(5, other), (Looked::Begun(_), None)));
        assert!(is_begun(&told, 0) && is_begun(&told, 4) && told.of(2).is_none());
        // Another reader was faster.
        let (looked, _) = told.begin(1, begun(1..2));
        assert!(matches!(looked, Looked::Begun(begun) if begun.numbers == (0..2)));
        told.add(&(4..6));
        assert!(matches!(told.of(5), Some(Looked::Told(numbers)) if numbers == (4..6)));
        assert!(is_begun(&told, 0));
    }

    #[test]
    fn the_search_that_has_waited_longest_is_given_up_and_none_that_is_continued() {
        let told = Told::default();
        let first = begun(0..1);
        let searches = (0..).map(|number| begun(number..number + 1));
        for search in searches.skip(1).take(SEARCHES_MAX) {
            let (_, oldest) = told.begin(search.numbers.start, search);
            assert!(oldest.is_none());
        }
        // A reader holds it.
        let oldest = told.begin(0, first.clone()).1.unwrap();
        assert_eq!(oldest.numbers, 1..2);
        // Until it has ended, other readers of its fillers wait for it.
        let (looked, none) = told.begin(1, begun(1..2));
        let is_same = |begun: &Begun| Arc::ptr_eq(&begun.search, &oldest.search);
        assert!(matches!(looked, Looked::Begun(begun) if is_same(&begun)) && none.is_none());
        told.add(&oldest.numbers);
        assert!(matches!(told.of(1), Some(Looked::Told(_))));
        assert!(is_begun(&told, 2));
        assert!(told.begin(100, begun(100..101)).1.is_none());
        let (_, oldest) = told.begin(200, begun(200..201));
        assert!(oldest.is_some_and(|it| it.numbers == (3..4)));
        assert!(is_begun(&told, 0));
    }
}
