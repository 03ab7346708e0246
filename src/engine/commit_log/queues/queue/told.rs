//! Fillers whose lost messages were reported to readers, so that each process searches for them
//! once.

use crate::damage::Damage;
use crate::sync::{Mutex, MutexGuard};
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

/// Maximum number of incomplete searches of a queue.
const SEARCHES_MAX: usize = 16;

/// The fillers of a queue for which readers have searched the log.
#[derive(Debug, Default)]
pub struct Told(Mutex<Option<Box<Known>>>);

/// What is known of the fillers of a queue.
#[derive(Debug, Default)]
pub struct Known {
    /// Ranges of fillers whose search has ended: the end by the first number.
    runs: BTreeMap<u64, u64>,
    /// Incomplete searches, of different runs of fillers. The most recently continued one is last.
    searches: VecDeque<Search>,
}

/// A search for the holes that hold the messages of a run of fillers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Search {
    /// The fillers.
    pub numbers: Range<u64>,
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
}

impl Told {
    /// Locks what is known. No other thread searches for fillers of the queue meanwhile.
    pub fn lock(&self) -> MutexGuard<'_, Option<Box<Known>>> {
        self.0.lock()
    }
}

impl Known {
    /// The range of fillers with `number` whose search has ended.
    pub fn run_of(&self, number: u64) -> Option<Range<u64>> {
        let (first, end) = self.runs.range(..=number).next_back()?;
        (number < *end).then_some(*first..*end)
    }

    /// Adds a range whose search has ended.
    pub fn add(&mut self, numbers: &Range<u64>) {
        self.runs.insert(numbers.start, numbers.end);
    }

    /// Takes out the incomplete search for the message `number`.
    pub fn take_search(&mut self, number: u64) -> Option<Search> {
        let mut searches = self.searches.iter();
        let at = searches.position(|search| search.numbers.contains(&number))?;
        self.searches.remove(at)
    }

    /// Keeps an incomplete search. If there are too many, returns the one that has waited longest,
    /// and the caller must end it. If it were dropped, readers that take turns would start over
    /// each time, and none would get past its fillers.
    #[must_use]
    pub fn keep_search(&mut self, search: Search) -> Option<Search> {
        self.searches.push_back(search);
        let is_full = self.searches.len() > SEARCHES_MAX;
        is_full.then(|| self.searches.pop_front()).flatten()
    }
}
