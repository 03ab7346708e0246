//! Finds messages by key, through the index, and by time, through the store times of a queue.

use super::follow;
use super::locate::Search;
use super::meant::check_record;
use crate::engine::commit_log::index::file::IndexFile;
use crate::engine::commit_log::index::is_indexed;
use crate::engine::commit_log::log::Lookup;
use crate::engine::commit_log::log::search::next_record;
use crate::engine::commit_log::log::sound::{Depth, Sound, SoundWalk};
use crate::engine::commit_log::parts::Parts;
use crate::engine::commit_log::queues::queue::ConsumeQueue;
use crate::engine::{Damage, Topic};
use crate::error::Result;
use crate::record::Message;
use crate::record::rocketmq::Record;
use crate::record::rocketmq::properties::{Known, index_hash};
use std::ops::Range;

/// The requested key and range of time.
pub struct Question<'a> {
    /// The topic.
    pub topic: &'a Topic,
    /// The key.
    pub key: &'a str,
    /// First store time in ms.
    pub begin: i64,
    /// Last store time in ms.
    pub end: i64,
    /// Maximum number of messages.
    pub max: usize,
}

impl Question<'_> {
    fn fits(&self, record: &Record<'_>) -> bool {
        let time = record.store_timestamp();
        let known = Known::read(record.raw_properties());
        record.topic() == self.topic.name.as_bytes()
            && is_indexed(record)
            && time >= self.begin
            && time <= self.end
            && known.index_keys().any(|key| key == self.key.as_bytes())
    }
}

/// All readable messages that match, newest first. `lacking`: what the index lacked when the store
/// was opened.
pub fn answer(
    parts: &Parts,
    question: &Question<'_>,
    lacking: &Range<u64>,
) -> Result<Vec<Message>> {
    parts.catch_up();
    let _complete = parts.rebuilding.read();
    by_key(parts, question, unindexed(parts, lacking)?)
}

/// Messages that match, newest first. The part of the log that the index lacks (`unindexed`) is
/// scanned.
pub fn by_key(
    parts: &Parts,
    question: &Question<'_>,
    unindexed: Range<u64>,
) -> Result<Vec<Message>> {
    let mut found = Vec::new();
    if !unindexed.is_empty() {
        scan(parts, question, unindexed.clone(), &mut found)?;
    }
    let hash = index_hash(question.topic.name.as_bytes(), question.key.as_bytes());
    for file in parts.index.iter().flat_map(|index| index.files()).rev() {
        if found.len() >= question.max {
            break;
        }
        let (first, last) = file.times()?;
        // The index has whole seconds since the first time; the time in the record decides.
        if last.saturating_add(1000) < question.begin || first.saturating_sub(1000) > question.end {
            continue;
        }
        in_file(parts, question, &file, hash, &unindexed, &mut found)?;
    }
    found.truncate(question.max);
    Ok(found)
}

/// The part of the log that the index lacks.
fn unindexed(parts: &Parts, lacking: &Range<u64>) -> Result<Range<u64>> {
    let (log, index) = (&parts.log, parts.index.as_ref());
    let mut lacking = lacking.clone();
    let mut is_kept = index.is_some();
    if let Some(source) = &log.source {
        follow::refresh_log(parts)?;
        if let Some(index) = index {
            index.join_new_files(log.published())?;
        }
        // The writer put these keys when it opened the store.
        lacking = 0..0;
        is_kept &= !source.is_unindexed();
    }
    if is_kept {
        return Ok(lacking);
    }
    // An index that an earlier writer left is complete up to its last entry.
    let indexed = index.map_or(Ok(None), |index| index.end_position())?;
    Ok(indexed.unwrap_or(0).max(log.min_position())..log.readable_end())
}

fn in_file(
    parts: &Parts,
    question: &Question<'_>,
    file: &IndexFile,
    hash: u32,
    unindexed: &Range<u64>,
    found: &mut Vec<Message>,
) -> Result<()> {
    // A reader may find entries of records after the end that it knows. It skips them; otherwise it
    // would report them as damage once the end has moved.
    let (min, end) = (parts.log.min_position(), parts.log.published());
    let before = found.len();
    let mut flawed = Vec::new();
    let mut failed = Ok(());
    let sound = file.chain(hash, |entry| {
        let known = |message: &Message| message.record().position() as u64 == entry.position;
        if entry.position < min {
            return false;
        }
        if entry.position < end && !unindexed.contains(&entry.position) {
            match parts.log.checked_record_at(entry.position) {
                Ok(Lookup::Record(message)) => {
                    if question.fits(&message.record().rocketmq())
                        && !found.last().is_some_and(known)
                    {
                        found.push(message);
                    }
                }
                Ok(Lookup::Flawed(flaw)) => flawed.push((entry.position, flaw.to_string())),
                Err(error) => failed = Err(error),
            }
        }
        failed.is_ok() && found.len() < question.max
    });
    failed?;
    for (position, reason) in flawed {
        report_record(parts, Some(question.topic), position, &reason)?;
    }
    if !sound? {
        // The chain is damaged, so the part of the log that this index file covers is scanned.
        found.truncate(before);
        let (first, last) = file.positions()?;
        let mut end = parts.log.published().min(last.saturating_add(1));
        if !unindexed.is_empty() {
            // The rest was scanned before the index.
            end = end.min(unindexed.start);
        }
        scan(parts, question, first.max(min)..end, found)?;
    }
    Ok(())
}

/// Reads every record that begins in a range of the log, and adds matches newest first.
fn scan(
    parts: &Parts,
    question: &Question<'_>,
    range: Range<u64>,
    found: &mut Vec<Message>,
) -> Result<()> {
    let log = &parts.log;
    let end = log.published();
    let range = range.start.max(log.min_position())..range.end.min(end);
    let mut walk = SoundWalk::new(log, range, Depth::Structure).with_limit(end);
    let mut positions = Vec::new();
    while let Some(met) = walk.next()? {
        match met {
            Sound::Hole(hole) => report(parts, log.damage(hole.range, hole.flaw)),
            Sound::Record(record, place) => {
                if question.fits(&record) && record.check(place.position).is_ok() {
                    positions.push(place.position);
                }
            }
        }
    }
    for position in positions
        .into_iter()
        .rev()
        .take(question.max - found.len().min(question.max))
    {
        match log.checked_record_at(position)? {
            Lookup::Flawed(_) if position < log.min_position() => {}
            _ => found.push(log.require(position)?),
        }
    }
    Ok(())
}

/// Reports damage in the log, unless retention has deleted the bytes or this process cannot know
/// them yet.
#[cold]
fn report(parts: &Parts, damage: Damage) {
    let log = &parts.log;
    if (log.min_position()..log.published()).contains(&damage.position) {
        parts.report.add(damage);
    }
}

/// Reports the damaged record at `position`. Its length and the lost message are taken from the
/// queue entry in `topic`, because nothing in a damaged record can be believed.
#[cold]
pub fn report_record(
    parts: &Parts,
    topic: Option<&Topic>,
    position: u64,
    reason: &str,
) -> Result<()> {
    if !(parts.log.min_position()..parts.log.published()).contains(&position) {
        return Ok(());
    }
    if let Some(topic) = topic {
        for queue in parts.queues.of(topic)? {
            let number = queue.first_from(position)?;
            let entry = match number < queue.max() {
                true => queue.entry(number)?,
                false => None,
            };
            if let Some(entry) = entry.filter(|entry| entry.position == position) {
                let damage = parts.log.damage(position..entry.end(), reason);
                let lost = (topic.name.to_string(), queue.id, number);
                report(parts, damage.losing([lost]));
                return Ok(());
            }
        }
    }
    let end = parts.log.published();
    let next = match next_record(&parts.log, position + 1, end) {
        Err(_) if position < parts.log.min_position() => return Ok(()),
        next => next?.unwrap_or(end),
    };
    report(parts, parts.log.damage(position..next, reason));
    Ok(())
}

/// Offset of the first message of a queue stored at or after `time`; the next offset if there is
/// none.
///
/// Store times never decrease within a log, so this is a binary search. An offset without a message
/// counts with the next one that has a message.
pub fn offset_at(parts: &Parts, topic: &Topic, queue: &ConsumeQueue, time: i64) -> Result<u64> {
    let log = &parts.log;
    let end = log.published();
    let mut search = Search::default();
    let mut time_of = |number: u64| -> Result<Option<i64>> {
        let entry = queue.entry(number)?;
        if entry.is_some_and(|entry| entry.is_filler()) {
            return Ok(None);
        }
        let own = |position: u64| -> Result<Result<i64, String>> {
            let message = match log.record_at(position)? {
                Lookup::Record(message) => message,
                Lookup::Flawed(flaw) => return Ok(Err(flaw.to_string())),
            };
            let record = message.record().rocketmq();
            let own = check_record(record.bytes(), position, (topic, queue.id, number));
            Ok(own
                .map(|record| record.store_timestamp())
                .map_err(|flaw| flaw.to_string()))
        };
        let entry = entry.filter(|entry| entry.is_message(end));
        if number < queue.min() || entry.is_some_and(|entry| entry.position < log.min_position()) {
            // Retention has deleted it meanwhile: it is older than everything that exists.
            return Ok(Some(i64::MIN));
        }
        let found = entry.map(|entry| own(entry.position)).transpose()?;
        if let Some(Ok(time)) = found {
            return Ok(Some(time));
        }
        let position = search.locate(log, topic, queue, number)?;
        if let (None, Some(entry), Some(Err(reason))) = (position, entry, found) {
            let damage = log.damage(entry.position..entry.end(), reason);
            let lost = (topic.name.to_string(), queue.id, number);
            report(parts, damage.losing([lost]));
        }
        Ok(position.map(own).transpose()?.and_then(|found| found.ok()))
    };
    let (mut low, mut high) = (queue.min(), queue.max());
    while low < high {
        let middle = low + (high - low) / 2;
        let mut probe = middle;
        let mut at = time_of(probe)?;
        while at.is_none() && probe + 1 < high {
            probe += 1;
            at = time_of(probe)?;
        }
        match at {
            Some(at) if at < time => low = probe + 1,
            _ => high = middle,
        }
    }
    Ok(low)
}
