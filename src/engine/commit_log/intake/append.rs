//! Appending a commit, part by part.

use super::Clock;
use super::manifest::{Manifest, Pending, Stretch};
use super::marker::{self, Marker};
use crate::engine::commit_log::atomic;
use crate::engine::commit_log::shared::Shared;
use crate::engine::topic::PERMISSION_WRITE;
use crate::engine::{Appended, Topic};
use crate::error::{Error, Result};
use crate::num::index;
use crate::plant::{Bug, planted};
use crate::record::check::check_topic;
use crate::record::layout::{BLANK_LEN, CRC_PROPERTY};
use crate::record::properties::{self, java_hash};
use crate::record::{Batch, Draft, Record};
use smallvec::SmallVec;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Queues are numbered below this.
pub const QUEUES_MAX: u32 = 65_536;

/// Room for so many topics is kept from one part to the next; each may have that of a whole part.
const KEPT_MAX: usize = 4;

/// Why a commit was not appended.
pub enum Stop {
    /// It never can be.
    Refuse(Error),
    /// Not at the moment.
    Later(Error),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Stop {
        Stop::Later(error)
    }
}

/// Appends a commit, or what of it is not in the log yet, and takes its files away.
pub fn append(shared: &Shared, pending: &mut Pending, clock: Clock<'_>) -> Result<(), Stop> {
    let disk = &*shared.disk;
    let Some(manifest) = pending.manifest.clone() else {
        let reason = "it is no manifest of this version";
        return Err(Stop::Refuse(Error::corrupt(pending.path(), 0, reason)));
    };
    marker::complete(shared)?;
    let last = marker::last(shared, &manifest.query)?;
    let done = match last.map(|(marker, _)| marker) {
        Some(last) if last.batch > manifest.batch => manifest.parts.len(),
        Some(last) if last.batch == manifest.batch && last.part >= last.parts => {
            manifest.parts.len()
        }
        Some(last) if last.batch == manifest.batch => {
            if last.commit != manifest.id {
                let reason = format!(
                    "part {} of {} of batch {} is in the log, by another commit that is gone",
                    last.part, last.parts, last.batch
                );
                return Err(Stop::Refuse(Error::corrupt(pending.path(), 0, reason)));
            }
            index(last.part)
        }
        _ => 0,
    };
    if done < manifest.parts.len() {
        if !pending.is_begun() {
            look_through(shared, pending, &manifest)?;
            if !pending.begin(disk)? {
                return Ok(());
            }
        }
        let mut end = 0;
        let (mut rows, mut bytes) = (PartRows::new(shared), Vec::new());
        for part in done..manifest.parts.len() {
            if shared.stopping() {
                return Err(Stop::Later(Error::Closed));
            }
            rows.begin(clock());
            for stretch in manifest.parts.get(part).into_iter().flatten() {
                each_record(shared, pending, &manifest, *stretch, &mut bytes, |record| {
                    rows.add(record)
                })?;
            }
            end = append_part(&mut rows, &Marker::new(&manifest, part + 1))?;
        }
        if !planted(Bug::FinishEarly) {
            shared.flush_to(end)?;
        }
    } else {
        // What a process had appended before it died is in the log, perhaps not on the disk.
        shared.flush_to(shared.log.published())?;
    }
    // For readers in other processes, who see what is dispatched. A disk that is too full for it
    // keeps nothing back that is durable.
    let _ = shared.dispatcher.catch_up(shared.log.readable_end());
    pending.finish(disk)?;
    Ok(())
}

/// Refuses a commit of several parts before the first of them is appended, where one is damaged. A
/// single part is all there or not at all.
fn look_through(shared: &Shared, pending: &Pending, manifest: &Manifest) -> Result<(), Stop> {
    if manifest.parts.len() < 2 {
        return Ok(());
    }
    let mut bytes = Vec::new();
    for stretch in manifest.parts.iter().flatten() {
        each_record(shared, pending, manifest, *stretch, &mut bytes, |_| Ok(()))?;
    }
    Ok(())
}

/// Appends the rows of one part with its marker; returns the end of it.
fn append_part(rows: &mut PartRows<'_>, marker: &Marker) -> Result<u64, Stop> {
    let shared = rows.shared;
    let mut marker = marker.encode(shared, rows.clock_ms)?;
    let topic = shared.topic_for_append(marker::TOPIC);
    let mut parts: Vec<(&Topic, &mut Batch)> = Vec::with_capacity(rows.topics.len() + 1);
    for (topic, batch, _) in &mut rows.topics {
        if !batch.rows().is_empty() {
            parts.push((&**topic, batch));
        }
    }
    parts.push((&topic, &mut marker));
    let mut appended = Appended::default();
    atomic::append(shared, &mut parts, &mut appended).map_err(|error| match error {
        error @ Error::TooLarge { .. } => Stop::Refuse(error),
        error => Stop::Later(error),
    })?;
    shared.announce(appended.end);
    Ok(appended.end)
}

/// Reads a stretch of a stage and calls `take` with each record of it.
fn each_record(
    shared: &Shared,
    pending: &Pending,
    manifest: &Manifest,
    stretch: Stretch,
    bytes: &mut Vec<u8>,
    mut take: impl FnMut(&Record<'_>) -> Result<()>,
) -> Result<(), Stop> {
    let name = manifest.stages.get(stretch.stage).map_or("", |name| name);
    let path = pending.directory.join(name);
    bytes.resize(index(stretch.end - stretch.begin), 0);
    let have = match shared.disk.read_at(&path, stretch.begin, bytes) {
        Err(error) => {
            let error = Error::io("read", &path, error);
            return Err(match error.is_not_found() {
                true => Stop::Refuse(error),
                false => Stop::Later(error),
            });
        }
        Ok(have) => have,
    };
    let flawed = |at: usize, reason: String| {
        Stop::Refuse(Error::corrupt(&path, stretch.begin + at as u64, reason))
    };
    if have < bytes.len() {
        return Err(flawed(have, "the stage ends here".to_owned()));
    }
    let file_len = shared.log.files.file_len();
    let mut at = 0;
    while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
        let record = Record::parse(rest).map_err(|flaw| flawed(at, flaw.to_string()))?;
        let checked = record.check(stretch.begin + at as u64);
        checked.map_err(|flaw| flawed(at, flaw.to_string()))?;
        if record.stated_crc().is_none() {
            // Every staged record has one: here it is what is damaged.
            return Err(flawed(at, "no checksum over the record".to_owned()));
        }
        let len = record.bytes().len();
        if (len + BLANK_LEN) as u64 > file_len {
            return Err(Stop::Refuse(Error::TooLarge {
                what: "record (it has to fit a commit log file)".to_owned(),
                size: len as u64,
                limit: file_len - BLANK_LEN as u64,
            }));
        }
        take(&record).map_err(Stop::Refuse)?;
        at += len;
    }
    Ok(())
}

/// The rows of a part, by topic. One part after the other takes its room, which is dear to make.
struct PartRows<'a> {
    shared: &'a Shared,
    clock_ms: i64,
    /// The topic, its rows, and the queue of those that name neither queue nor key.
    topics: Vec<(Arc<Topic>, Batch, u32)>,
    /// Of them, the one that the last row went to.
    last: usize,
    numbers: HashMap<String, usize, foldhash::fast::RandomState>,
}

impl<'a> PartRows<'a> {
    fn new(shared: &'a Shared) -> PartRows<'a> {
        PartRows {
            shared,
            clock_ms: 0,
            topics: Vec::new(),
            last: 0,
            numbers: HashMap::default(),
        }
    }

    /// Begins a part: no rows, and another turn for each topic.
    fn begin(&mut self, clock_ms: i64) {
        self.clock_ms = clock_ms;
        if self.topics.len() > KEPT_MAX {
            self.topics.clear();
            self.numbers.clear();
        }
        for (topic, batch, turn) in &mut self.topics {
            batch.clear();
            *turn = topic.next_queue();
        }
    }

    /// Where the rows of a topic are gathered.
    fn number_of(&mut self, name: &[u8]) -> Result<usize> {
        let is_it = |it: &(Arc<Topic>, Batch, u32)| it.0.name.as_bytes() == name;
        if self.topics.get(self.last).is_some_and(is_it) {
            return Ok(self.last);
        }
        let broken = |_| Error::option("topic", "staged", "it is not text");
        let name = str::from_utf8(name).map_err(broken)?;
        if let Some(number) = self.numbers.get(name) {
            self.last = *number;
            return Ok(self.last);
        }
        check_topic(name)?;
        let topic = self.shared.topic_for_append(name);
        if topic.permissions() & PERMISSION_WRITE == 0 {
            return Err(Error::ReadOnly {
                what: format!("topic {name:?}"),
            });
        }
        let turn = topic.next_queue();
        self.topics.push((topic, Batch::new(), turn));
        self.last = self.topics.len() - 1;
        self.numbers.insert(name.to_owned(), self.last);
        Ok(self.last)
    }

    fn add(&mut self, staged: &Record<'_>) -> Result<()> {
        let number = self.number_of(staged.topic())?;
        let (shared, clock_ms) = (self.shared, self.clock_ms);
        let rules = &shared.append_rules;
        let Some((topic, batch, turn)) = self.topics.get_mut(number) else {
            unreachable!("the topic was just numbered")
        };
        let queue = queue_of(shared, topic, staged, *turn)?;
        if !rules.unique_ids && batch.push_encoded(staged, queue, &rules.style, clock_ms) {
            return Ok(());
        }
        let broken = |_| Error::option("properties", "staged", "they are not text");
        let raw = str::from_utf8(staged.raw_properties()).map_err(broken)?;
        let id = rules
            .unique_ids
            .then(|| crate::record::unique_id::next(&rules.style.host, clock_ms));
        // The pairs go over as they are; what they are was checked when they were staged.
        let staged_pairs = raw
            .split('\u{2}')
            .filter_map(|pair| pair.split_once('\u{1}'));
        let mut pairs: SmallVec<[(&str, &str); 8]> = staged_pairs
            .filter(|(name, _)| *name != CRC_PROPERTY)
            .collect();
        pairs.extend(id.as_ref().map(|id| (properties::UNIQ_KEY, id.as_str())));
        let draft = Draft {
            body: staged.stored_body(),
            system_properties: &pairs,
            born_timestamp: Some(staged.born_timestamp()),
            ..Draft::default()
        };
        // Rows were staged by limits of their own, whatever this store is opened with.
        let mut style = rules.style;
        style.max_message_size = style.max_message_size.max(staged.stored_body().len());
        batch.push(&topic.name, queue, &draft, &style, clock_ms)
    }
}

/// The queue of a row: the one that it names, which the topic gets if it has not; else by its key;
/// else `turn`.
fn queue_of(shared: &Shared, topic: &Topic, staged: &Record<'_>, turn: u32) -> Result<u32> {
    let queues = topic.write_queues();
    let Ok(queue) = u32::try_from(staged.queue_id()) else {
        let keys = properties::Known::read(staged.raw_properties()).keys;
        return Ok(keys.map_or(turn, |key| {
            (java_hash(key).cast_unsigned() & 0x7FFF_FFFF) % queues.max(1)
        }));
    };
    if queue >= QUEUES_MAX {
        let reason = format!("it lies between 0 and {}", QUEUES_MAX - 1);
        return Err(Error::option("partition", queue, reason));
    }
    if queue >= queues {
        let read = topic.read_queues().max(queue + 1);
        topic.configure(queue + 1, read, topic.permissions());
        shared.table_dirty.store(true, Ordering::Release);
    }
    Ok(queue)
}
