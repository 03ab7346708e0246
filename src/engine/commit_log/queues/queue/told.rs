//! Fillers that readers were told about, so that each process looks into them once.

use crate::damage::Damage;
use crate::sync::{Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::ops::Range;

/// The fillers of a queue for which readers have searched the log.
#[derive(Debug, Default)]
pub struct Told(Mutex<Option<Box<Known>>>);

/// What is known of fillers.
#[derive(Debug, Default)]
pub struct Known {
    /// Ranges of numbers that were looked into: the end by the first number.
    runs: BTreeMap<u64, u64>,
    /// A search that is not complete.
    pub search: Option<Search>,
}

/// A search for the holes that hold the messages of a run of fillers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Search {
    /// The fillers.
    pub numbers: Range<u64>,
    /// The part of the log that is yet to be walked.
    pub positions: Range<u64>,
    /// The fillers whose hole is not known.
    pub left: Vec<Range<u64>>,
    /// The last hole of which nothing tells whose messages it holds.
    pub unnamed: Option<Damage>,
    /// The first hole with a damaged record that may be of the queue.
    pub doubtful: Option<Damage>,
}

impl Told {
    /// What is known. Nobody else looks into fillers of the queue meanwhile.
    pub fn lock(&self) -> MutexGuard<'_, Option<Box<Known>>> {
        self.0.lock()
    }
}

impl Known {
    /// The range of fillers with `number` that was looked into.
    pub fn run_of(&self, number: u64) -> Option<Range<u64>> {
        let (first, end) = self.runs.range(..=number).next_back()?;
        (number < *end).then_some(*first..*end)
    }

    /// Adds a range that was looked into.
    pub fn add(&mut self, numbers: &Range<u64>) {
        self.runs.insert(numbers.start, numbers.end);
    }
}
