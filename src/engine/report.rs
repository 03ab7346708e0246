//! What a store reports: what opening found, known damage, and warnings.

use super::stats::Recovery;
use crate::damage::{Damage, Lost};
use crate::sync::Mutex;
use crate::warning::{Warning, Warnings};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// Maximum number of damaged places kept.
const KEPT_MAX: usize = 10_000;
/// Maximum number of lost messages kept, of all places together. A few damaged bytes can claim that
/// they were a million messages.
pub const LOST_MAX: usize = 100_000;

/// What a store has to report since it was opened.
#[derive(Debug, Default)]
pub struct Report {
    recovery: OnceLock<Recovery>,
    rebuilt: AtomicU64,
    known: Mutex<Known>,
    stale: AtomicU64,
    /// Warnings that a caller should see once: damaged places when found, slow puts and flushes.
    pub warnings: Arc<Warnings>,
}

/// Damaged places, each once.
#[derive(Debug, Default)]
struct Known {
    places: Vec<Damage>,
    /// By file and first byte the end of a place, and its number. No two of them overlap.
    extents: HashMap<PathBuf, BTreeMap<u64, (u64, usize)>>,
    /// The lost messages, each with the number of its place.
    lost: HashSet<(usize, Lost)>,
    /// Their offsets, by topic and queue.
    offsets: HashMap<(String, u32), BTreeSet<u64>>,
}

impl Known {
    /// Number of the place that holds the first byte of `damage`.
    fn find(&self, damage: &Damage) -> Option<usize> {
        let extents = self.extents.get(&damage.path)?;
        let (_, (end, number)) = extents.range(..=damage.position).next_back()?;
        (damage.position < *end).then_some(*number)
    }

    fn push(&mut self, damage: Damage) -> usize {
        let number = self.places.len();
        let bytes = damage.position..damage.position.saturating_add(damage.length.max(1));
        let extents = self.extents.entry(damage.path.clone()).or_default();
        // From here on, bytes of smaller places within this one count as a part of it.
        let within: Vec<u64> = extents.range(bytes.clone()).map(|found| *found.0).collect();
        for start in within {
            extents.remove(&start);
        }
        extents.insert(bytes.start, (bytes.end, number));
        self.places.push(damage);
        number
    }

    /// Adds lost messages to a place.
    fn lose(&mut self, number: usize, lost: impl IntoIterator<Item = Lost>) {
        let Some(place) = self.places.get_mut(number) else {
            return;
        };
        let mut lost = lost.into_iter();
        while self.lost.len() < LOST_MAX
            && let Some(message) = lost.next()
        {
            if self.lost.insert((number, message.clone())) {
                let queue = (message.0.clone(), message.1);
                self.offsets.entry(queue).or_default().insert(message.2);
                place.lost.push(message);
            }
        }
    }
}

impl Report {
    /// Keeps what opening found and repaired, once.
    pub fn opened(&self, recovery: Recovery) {
        let _ = self.recovery.set(recovery);
    }

    /// Counts entries that queues got from the log when they were first used.
    pub fn rebuilt(&self, entries: u64) {
        self.rebuilt.fetch_add(entries, Ordering::Relaxed);
    }

    /// What opening found and repaired.
    pub fn recovery(&self) -> Recovery {
        let mut recovery = self.recovery.get().cloned().unwrap_or_default();
        recovery.queue_entries_rebuilt += self.rebuilt.load(Ordering::Relaxed);
        recovery
    }

    /// Adds a damaged place, or its lost messages if the place is known.
    pub fn add(&self, mut damage: Damage) {
        let lost = std::mem::take(&mut damage.lost);
        self.add_losing(damage, lost);
    }

    /// [`Report::add`] of a place with these lost messages. Takes no more of them from the iterator
    /// than are kept.
    pub fn add_losing(&self, damage: Damage, lost: impl IntoIterator<Item = Lost>) {
        let mut known = self.known.lock();
        if let Some(number) = known.find(&damage) {
            known.lose(number, lost);
        } else if known.places.len() < KEPT_MAX {
            let number = known.push(damage);
            known.lose(number, lost);
            if let Some(place) = known.places.get(number) {
                self.warnings.add(Warning::Damage(place.clone()));
            }
        }
    }

    /// Adds all damage, and the other warnings since the last call, to another report.
    pub fn pass_on(&self, to: &Report) {
        if !self.warnings.any() {
            return;
        }
        let warnings = self.warnings.take().into_iter();
        let others = warnings.filter(|it| !matches!(it, Warning::Damage(_)));
        others.for_each(|warning| to.warnings.add(warning));
        self.damage().into_iter().for_each(|damage| to.add(damage));
    }

    /// Removes the places for which `keep` returns `false`.
    pub fn retain(&self, keep: impl Fn(&Damage) -> bool) {
        let mut known = self.known.lock();
        let places = std::mem::take(&mut *known).places;
        for mut place in places.into_iter().filter(keep) {
            let lost = std::mem::take(&mut place.lost);
            let number = known.push(place);
            known.lose(number, lost);
        }
    }

    /// All damaged places.
    pub fn damage(&self) -> Vec<Damage> {
        self.known.lock().places.clone()
    }

    /// The damaged place that has cost a message; without its lost messages.
    pub fn place_of(&self, topic: &str, queue: u32, offset: u64) -> Option<Damage> {
        let known = self.known.lock();
        let is_it = |lost: &Lost| lost.0 == topic && (lost.1, lost.2) == (queue, offset);
        let place = known
            .places
            .iter()
            .find(|place| place.lost.iter().any(is_it))?;
        Some(place.bare())
    }

    /// Which of these messages of a queue are known to be lost, in order.
    pub fn lost_among(&self, topic: &str, queue: u32, offsets: Range<u64>) -> Vec<u64> {
        let known = self.known.lock();
        let lost = known.offsets.get(&(topic.to_owned(), queue));
        let lost = lost
            .into_iter()
            .flat_map(|lost| lost.range(offsets.clone()));
        lost.copied().collect()
    }

    /// Whether a message is known to be lost in a damaged place.
    pub fn has_lost(&self, damage: &Damage, lost: Lost) -> bool {
        let known = self.known.lock();
        let number = known.find(damage);
        number.is_some_and(|number| known.lost.contains(&(number, lost)))
    }

    /// The damaged place that was found last, without its lost messages.
    pub fn last(&self) -> Option<Damage> {
        self.known.lock().places.last().map(Damage::bare)
    }

    /// How many damaged places there are.
    pub fn damaged(&self) -> u64 {
        self.known.lock().places.len() as u64
    }

    /// Counts a record with another record's checksum.
    pub fn stale(&self) {
        self.stale.fetch_add(1, Ordering::Relaxed);
    }

    /// Number of records found with another record's checksum.
    pub fn stale_count(&self) -> u64 {
        self.stale.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod test {
    use super::*;
    use crate::damage::DamageKind;

    fn damage(bytes: std::ops::Range<u64>) -> Damage {
        Damage::new(DamageKind::Log, "commitlog/0", bytes, "magic")
    }

    fn messages(offsets: std::ops::Range<u64>) -> impl Iterator<Item = Lost> {
        offsets.map(|offset| ("orders".to_owned(), 0, offset))
    }

    #[test]
    fn what_begins_in_a_known_place_belongs_to_it() {
        let report = Report::default();
        report.add_losing(damage(50..60), messages(0..1));
        report.add_losing(damage(55..70), messages(0..2));
        assert_eq!(report.damage(), [damage(50..60).losing(messages(0..2))]);
        report.add(damage(0..100));
        report.add_losing(damage(70..71), messages(5..6));
        report.add_losing(damage(50..51), messages(6..7));
        let all = damage(0..100).losing(messages(5..7));
        assert_eq!(report.damage().last(), Some(&all));
        report.add(damage(100..100));
        report.add(damage(100..101));
        assert_eq!(report.damaged(), 3);
        report.retain(|place| place.position > 0);
        assert_eq!(report.damaged(), 2);
        report.add_losing(damage(56..57), messages(1..3));
        assert_eq!(report.damage()[0].lost.len(), 3);
        assert_eq!(report.lost_among("orders", 0, 1..9), [1, 2]);
        assert!(report.lost_among("orders", 1, 0..9).is_empty());
        let has_lost =
            |bytes, offset| report.has_lost(&damage(bytes), ("orders".into(), 0, offset));
        assert!(has_lost(50..60, 2));
        assert!(!has_lost(50..60, 3) && !has_lost(80..90, 2));
    }

    /// A file of some 100 KiB can claim a billion lost messages, in a million places.
    #[test]
    fn the_report_is_bounded_whatever_is_claimed() {
        let report = Report::default();
        let made = std::cell::Cell::new(0);
        let claimed = || messages(0..u64::MAX).inspect(|_| made.set(made.get() + 1));
        for place in 0..1_000_000 {
            report.add_losing(damage(100 * place..100 * place + 61), claimed().take(1000));
        }
        let kept = report.damage();
        assert_eq!(kept.len(), KEPT_MAX);
        assert_eq!(
            kept.iter().map(|place| place.lost.len()).sum::<usize>(),
            LOST_MAX
        );
        assert!(made.get() <= LOST_MAX);
        assert!(report.place_of("orders", 0, 999).is_some());
        assert!(report.place_of("orders", 0, 1000).is_none());
    }
}
