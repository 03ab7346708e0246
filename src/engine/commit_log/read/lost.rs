//! Reports lost messages to the readers that come to their fillers.
//!
//! Recovery puts a filler in the place of a lost message and reports the hole of the log that held
//! it. It does so once: later openings begin after the hole. So a reader that comes to a filler
//! searches the log for the hole, between the records before and after it, and reports it anew.
//!
//! ```text
//!   queue   entry 4      filler 5      filler 6      entry 7
//!              |                                        |
//!   log     record 4   |   hole   |  others  |  hole   record 7
//! ```
//!
//! A filler without a hole is not reported: a repair bridged the hole of its message, the message
//! was cut off with the end of the log, or it never existed.
//!
//! In a queue that is rarely used, the records before and after the fillers are far apart. So each
//! call walks a limited number of bytes, and the next call continues where it stopped. In between,
//! the caller can check whether to go on. Readers at different fillers of a queue have separate
//! searches, and do not wait for one another.
//!
//! A search only serves a report, and readers get no message after the fillers until it ends. So it
//! skips messages that this process has reported, for example when it opened the store. And it ends
//! as soon as the holes of all its messages are known, after a maximum number of bytes, and at
//! bytes that cannot be read, with what it has found: it reports these bytes too, since the holes
//! may be after them.
//!
//! A lack of descriptors or memory ends no search, and says nothing about the log. The reader that
//! meets it goes on after the fillers, and the next reader that comes to them continues the search.

use super::meant::leads_home;
use crate::damage::Lost;
use crate::engine::commit_log::log::Log;
use crate::engine::commit_log::log::sound::{Depth, Hole, Sound, SoundWalk};
use crate::engine::commit_log::queues::queue::ConsumeQueue;
use crate::engine::commit_log::queues::queue::told::{Begun, Looked, Search};
use crate::engine::report::Report;
use crate::engine::{Damage, DamageKind, Topic};
use crate::error::{Error, Result};
use crate::record::rocketmq::Record;
use crate::sync::Mutex;
use std::ops::Range;
use std::sync::Arc;

/// Number of entries on either side that are tried as bounds of a search.
const NEIGHBOURS: u64 = 1000;
/// Maximum number of fillers of a search, on either side of the requested one.
const RUN_MAX: u64 = 1 << 20;
/// A search walks about this many bytes of the log at most.
const SEARCH_LEN: u64 = if cfg!(test) { 3 << 20 } else { 256 << 20 };

/// Whose message a hole holds.
enum Whose {
    /// A message of the queue, with this offset.
    Own(u64),
    /// A message of the queue if the topic or queue in its record is damaged.
    Doubtful,
    /// A message of another queue.
    Other,
    /// The hole does not show it.
    Unknown,
}

/// What a search for lost messages reads, and where it reports them.
pub struct Scene<'a> {
    /// The log.
    pub log: &'a Arc<Log>,
    /// The topic of the queue.
    pub topic: &'a Topic,
    /// The queue.
    pub queue: &'a ConsumeQueue,
    /// Where lost messages are reported.
    pub report: &'a Report,
}

impl Scene<'_> {
    /// Reports the holes that hold the messages of the filler `number` and of the adjacent fillers.
    /// Subtracts the bytes that it walks from `budget`. Returns the range of these fillers, after
    /// which the caller can go on, or `None` if the budget ran out: then the next call continues.
    pub fn tell(&self, number: u64, budget: &mut u64) -> Option<Range<u64>> {
        let told = &self.queue.told;
        let looked = match told.of(number) {
            Some(looked) => looked,
            None => {
                let numbers = self.run(number);
                let left = self.unreported(&numbers);
                if left.is_empty() {
                    told.add(&numbers);
                    return Some(numbers);
                }
                let Ok(begun) = self.begin(&numbers, left) else {
                    return Some(numbers);
                };
                let (looked, oldest) = told.begin(number, begun);
                if let Some(oldest) = oldest {
                    self.end(&oldest.numbers, &mut oldest.search.lock());
                }
                looked
            }
        };
        let Begun { numbers, search } = match looked {
            Looked::Told(numbers) => return Some(numbers),
            Looked::Begun(begun) => begun,
        };
        let mut search = search.lock();
        if !search.has_ended {
            match self.walk(&mut search, &numbers, budget) {
                Ok(false) => return None,
                Ok(true) => {}
                Err(error) if !error.ends_writing() => return Some(numbers),
                // A broker has retired the file.
                Err(error) if error.is_not_found() => {}
                // The reader does not need these bytes, and trying them again for each filler of
                // the run would delay it.
                Err(error) => self.leave(&search, &error),
            }
            self.end(&numbers, &mut search);
        }
        Some(numbers)
    }

    /// Reports that a search ends at bytes that cannot be read.
    fn leave(&self, search: &Search, error: &Error) {
        let at = search.positions.start;
        let reason = format!("the search for a lost message cannot go on: {error}");
        let path = self.log.path_at(at);
        let damage = Damage::new(DamageKind::Log, path, at..at, reason);
        self.report.add(damage);
    }

    /// Ends a search: reports the hole that it has kept, if any. Its fillers are not searched for
    /// again.
    fn end(&self, numbers: &Range<u64>, search: &mut Search) {
        if !std::mem::replace(&mut search.has_ended, true) {
            let doubtful = search.doubtful.take().filter(|_| !search.left.is_empty());
            if let Some(hole) = search.unnamed.take().or(doubtful) {
                self.lose(hole, std::mem::take(&mut search.left).into_iter().flatten());
            }
            self.queue.told.add(numbers);
        }
    }

    /// The filler `number` and the adjacent fillers.
    fn run(&self, number: u64) -> Range<u64> {
        let queue = self.queue;
        let is_filler = |number: u64| {
            let entry = queue.entry(number);
            entry.is_ok_and(|entry| entry.is_some_and(|entry| entry.is_filler()))
        };
        let low = queue.min().max(number.saturating_sub(RUN_MAX)).min(number);
        let high = queue.max().min(number + RUN_MAX);
        let mut numbers = number..number + 1;
        while numbers.start > low && is_filler(numbers.start - 1) {
            numbers.start -= 1;
        }
        while numbers.end < high && is_filler(numbers.end) {
            numbers.end += 1;
        }
        numbers
    }

    /// Those of the numbers whose loss this process has not reported.
    fn unreported(&self, numbers: &Range<u64>) -> Vec<Range<u64>> {
        let (topic, queue) = (&self.topic.name, self.queue.id);
        let known = self.report.lost_among(topic, queue, numbers.clone());
        let mut left = Vec::new();
        let mut from = numbers.start;
        for number in known.into_iter().chain([numbers.end]) {
            if from < number {
                left.push(from..number);
            }
            from = number + 1;
        }
        left
    }

    /// The search for messages of the fillers `numbers`.
    ///
    /// # Errors
    ///
    /// Those that pass. Without a neighbour the search would walk a part of the log that has none
    /// of its messages.
    fn begin(&self, numbers: &Range<u64>, left: Vec<Range<u64>>) -> Result<Begun> {
        let queue = self.queue;
        let home = |number: u64| -> Result<Option<Range<u64>>> {
            Ok(match queue.entry(number)? {
                Some(entry) if leads_home(self.log, (self.topic, queue.id, number), entry)? => {
                    Some(entry.position..entry.end())
                }
                _ => None,
            })
        };
        let (min, max) = (queue.min().min(numbers.start), queue.max());
        // A neighbour that cannot be read ends the search for one, because the disk may take
        // seconds for each such read.
        let mut before = (min.max(numbers.start.saturating_sub(NEIGHBOURS))..numbers.start).rev();
        let before = before.find_map(|number| home(number).transpose());
        let mut after = numbers.end..max.min(numbers.end + NEIGHBOURS);
        let after = after.find_map(|number| home(number).transpose());
        let (first, end) = (self.log.min_position(), self.log.published());
        let start = known(before)?.map_or(first, |record| record.end);
        let end = known(after)?.map_or(end, |record| record.start);
        Ok(Begun {
            numbers: numbers.clone(),
            search: Arc::new(Mutex::new(Search {
                positions: start..end,
                budget: SEARCH_LEN,
                left,
                unnamed: None,
                doubtful: None,
                has_ended: false,
            })),
        })
    }

    /// Walks the rest of the log between the neighbours, as far as the budget of the search allows.
    /// Returns false if `budget` ends first.
    fn walk(&self, search: &mut Search, numbers: &Range<u64>, budget: &mut u64) -> Result<bool> {
        let range = search.positions.start.max(self.log.min_position())..search.positions.end;
        let mut walk = SoundWalk::new(self.log, range, Depth::Checksums);
        while *budget > 0 && search.budget > 0 && !search.left.is_empty() {
            let from = walk.position();
            let hole = match walk.next() {
                Err(error) => {
                    search.positions.start = walk.position();
                    return Err(error);
                }
                Ok(None) => return Ok(true),
                Ok(Some(Sound::Record(..))) => None,
                Ok(Some(Sound::Hole(hole))) => Some(hole),
            };
            let len = walk.position() - from;
            *budget = budget.saturating_sub(len);
            search.budget = search.budget.saturating_sub(len);
            if let Some(hole) = hole {
                self.meet(search, numbers, hole)?;
            }
            search.positions.start = walk.position();
        }
        Ok(search.budget == 0 || search.left.is_empty())
    }

    /// Reports a hole if it holds a message of the queue. A hole that does not show whose message
    /// it holds is kept until the next such hole, or until the end of the search: the last one gets
    /// all fillers that are left.
    fn meet(&self, search: &mut Search, numbers: &Range<u64>, hole: Hole) -> Result<()> {
        let found = self.log.record_at(hole.range.start)?.record();
        let whose = found.map_or(Whose::Unknown, |message| {
            let len = u64::from(message.record().layout().total_len());
            match len == hole.range.end - hole.range.start {
                true => self.whose(&message.record().rocketmq(), numbers),
                false => Whose::Unknown,
            }
        });
        let damage = self.log.damage(hole.range, hole.flaw);
        match whose {
            Whose::Own(offset) if take(&mut search.left, offset) => {
                self.lose(damage, [offset]);
            }
            Whose::Own(offset) if self.report.has_lost(&damage, self.name(offset)) => {}
            Whose::Own(_) | Whose::Unknown => {
                let before = search.unnamed.replace(damage);
                let first = search.left.first().map(|left| left.start);
                if let (Some(before), Some(first)) = (before, first) {
                    take(&mut search.left, first);
                    self.lose(before, [first]);
                }
            }
            Whose::Doubtful => drop(search.doubtful.get_or_insert(damage)),
            Whose::Other => {}
        }
        Ok(())
    }

    /// Whose message a damaged record of sound structure claims to be. This only decides which of
    /// several holes is reported for a message.
    fn whose(&self, record: &Record<'_>, numbers: &Range<u64>) -> Whose {
        let offset = record.queue_offset().cast_unsigned();
        let is_topic = record.topic() == self.topic.name.as_bytes();
        let is_queue = record.queue_id() == self.queue.id.cast_signed();
        match (is_topic, is_queue, numbers.contains(&offset)) {
            (true, true, _) => Whose::Own(offset),
            (true, false, true) | (false, true, true) => Whose::Doubtful,
            _ => Whose::Other,
        }
    }

    fn lose(&self, damage: Damage, numbers: impl IntoIterator<Item = u64>) {
        let lost = numbers.into_iter().map(|number| self.name(number));
        self.report.add_losing(damage, lost);
    }

    fn name(&self, number: u64) -> Lost {
        (self.topic.name.to_string(), self.queue.id, number)
    }
}

/// A neighbour, unless it cannot be read.
///
/// # Errors
///
/// Those that pass.
fn known(neighbour: Option<Result<Range<u64>>>) -> Result<Option<Range<u64>>> {
    match neighbour.transpose() {
        Err(error) if error.ends_writing() => Ok(None),
        found => found,
    }
}

/// Takes a number out of some ranges. Returns whether it was there.
fn take(ranges: &mut Vec<Range<u64>>, number: u64) -> bool {
    let Some(at) = ranges.iter().position(|range| range.contains(&number)) else {
        return false;
    };
    let range = ranges.remove(at);
    let parts = [range.start..number, number + 1..range.end];
    let parts = parts.into_iter().filter(|part| !part.is_empty());
    ranges.splice(at..at, parts);
    true
}

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init, reason = "the ranges are meant")]
mod test {
    use super::*;

    #[test]
    fn a_number_is_taken_out_of_ranges_once() {
        let mut ranges = vec![3..6];
        assert!(take(&mut ranges, 4));
        assert!(!take(&mut ranges, 4));
        assert_eq!(ranges, [3..4, 5..6]);
        assert!(take(&mut ranges, 3) && take(&mut ranges, 5));
        assert!(!take(&mut ranges, 3));
        assert!(ranges.is_empty());
    }
}
