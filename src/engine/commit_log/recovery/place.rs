//! Puts records into their queues during recovery, and decides which queue offsets are plausible.
//!
//! A record without a whole-record checksum can have a wrong queue, offset or topic. So an offset
//! that leaves a gap is accepted only if the gap has a cause (deleted messages, or messages in a
//! hole), or if the next record of the queue continues from it. An entry that points to its own
//! record stays, even if another record claims its offset.

use crate::engine::commit_log::dispatch::{Claim, Finder};
use crate::engine::commit_log::log::Log;
use crate::engine::commit_log::queues::Queues;
use crate::engine::commit_log::queues::queue::{ConsumeQueue, QueueEntry};
use crate::engine::commit_log::read::meant::leads_home;
use crate::engine::report::Report;
use crate::engine::{Topic, Topics};
use crate::error::{Error, Result};
use crate::record::rocketmq::Record;
use crate::record::rocketmq::layout::{RECORD_LEN_MIN, sys_flag};
use crate::record::rocketmq::properties::Known;
use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;

/// Offsets of a queue for which no record was found.
#[derive(Clone, Debug)]
pub struct Gap {
    /// Its topic.
    pub topic: Box<str>,
    /// Its queue.
    pub queue: u32,
    /// The offsets.
    pub offsets: Range<u64>,
    /// Position after the record before the gap.
    pub after: u64,
    /// Position of the record after it.
    pub before: u64,
}

/// The result of placing the records of a walk.
pub struct Placed {
    /// Entries stored.
    pub rebuilt: u64,
    /// Accepted gaps.
    pub gaps: Vec<Gap>,
    /// Whether a queue lacks entries of records before the beginning of the walk.
    pub begins_too_late: bool,
}

/// A record whose offset leaves an unexplained gap.
#[derive(Clone, Debug)]
struct Doubtful {
    queue: Arc<ConsumeQueue>,
    topic: Box<str>,
    offset: u64,
    entry: QueueEntry,
}

/// The longest gap accepted before the last record of a queue, which no later record confirms.
const LAST_GAP_MAX: u64 = 16;

/// What records are placed into, and where they are.
#[derive(Clone)]
pub struct Scene {
    /// The topics.
    pub topics: Arc<Topics>,
    /// The queues.
    pub queues: Arc<Queues>,
    /// The log.
    pub log: Arc<Log>,
    /// Where records that are in no queue are reported.
    pub report: Arc<Report>,
    /// First position of the log.
    pub min: u64,
}

/// Puts the queue entries of the records that a walk finds.
pub struct Placer {
    topics: Arc<Topics>,
    queues: Arc<Queues>,
    report: Arc<Report>,
    log: Arc<Log>,
    finder: Finder,
    min: u64,
    /// Whether the walk covers the whole log.
    from_start: bool,
    placed: Placed,
    /// The last doubtful record of each queue, by topic and queue.
    doubtful: HashMap<(u32, u32), Doubtful>,
    /// Queues with records that hold several messages, and so take several offsets.
    batched: HashSet<(u32, u32)>,
}

impl Placer {
    /// A placer for a walk that begins at `from`.
    pub fn new(scene: Scene, from: u64) -> Placer {
        Placer {
            topics: scene.topics,
            queues: scene.queues,
            report: scene.report,
            log: scene.log,
            finder: Finder::default(),
            min: scene.min,
            from_start: from <= scene.min,
            placed: Placed {
                rebuilt: 0,
                gaps: Vec::new(),
                begins_too_late: false,
            },
            doubtful: HashMap::new(),
            batched: HashSet::new(),
        }
    }

    /// Decides on the records that are still doubtful.
    pub fn finish(mut self) -> Result<Placed> {
        for doubtful in std::mem::take(&mut self.doubtful).into_values() {
            let gap = doubtful.offset.saturating_sub(doubtful.queue.max());
            if gap > LAST_GAP_MAX || doubtful.queue.is_untouched()? {
                self.refuse(&doubtful.entry, "nothing confirms its queue offset");
            } else {
                self.believe(&doubtful)?;
            }
        }
        Ok(self.placed)
    }

    /// Puts the entry of the record at `position`. `holes`: bytes lost before it on this walk.
    pub fn place(
        &mut self,
        record: &Record<'_>,
        known: &Known<'_>,
        position: u64,
        holes: u64,
    ) -> Result<()> {
        let (topics, queues) = (&self.topics, &self.queues);
        let claim = self.finder.find(topics, queues, record, known, position)?;
        let Some(claim) = claim else { return Ok(()) };
        let Claim {
            topic,
            queue,
            offset,
            entry,
        } = claim;
        if record.sys_flag() & sys_flag::INNER_BATCH != 0 {
            self.batched.insert((topic.id, queue.id));
        }
        let max = queue.max();
        if offset < max {
            match queue.entry(offset)? {
                Some(there) if there == entry => return Ok(()),
                // If it differs but points to this record, it is torn.
                Some(there)
                    if there.position != position
                        && leads_home(&self.log, (&topic, queue.id, offset), there)? =>
                {
                    self.refuse(&entry, "another record has its queue offset");
                    return Ok(());
                }
                _ => {}
            }
        } else if max > queue.min()
            && let Some(last) = queue.entry(max - 1)?
            && last.position > position
            && !last.is_filler()
        {
            self.refuse(&entry, "a later record has an earlier queue offset");
            return Ok(());
        }
        if offset > max {
            if !self.from_start {
                self.placed.begins_too_late = true;
                return Ok(());
            }
            if self.explained(&topic, &queue, offset - max, holes)? {
                self.note_gap(&topic.name, &queue, offset, position)?;
            } else if !self.is_confirmed(&topic, &queue, offset, entry)? {
                return Ok(());
            }
        }
        self.put(&queue, offset, entry)
    }

    fn put(&mut self, queue: &ConsumeQueue, offset: u64, entry: QueueEntry) -> Result<()> {
        match queue.put(offset, entry) {
            Ok(stored) => self.placed.rebuilt += u64::from(stored),
            Err(Error::Corrupt { reason, .. }) => self.refuse(&entry, &reason),
            Err(error) => return Err(error),
        }
        if self.placed.rebuilt.is_multiple_of(1024) {
            self.queues.limit_maps();
        }
        Ok(())
    }

    /// Whether this record continues from the previous one, which left the gap: then both are
    /// accepted. If not, this record waits for the next one.
    fn is_confirmed(
        &mut self,
        topic: &Topic,
        queue: &Arc<ConsumeQueue>,
        offset: u64,
        entry: QueueEntry,
    ) -> Result<bool> {
        match self.doubtful.remove(&(topic.id, queue.id)) {
            Some(before) if before.offset + 1 == offset => {
                self.believe(&before)?;
                return Ok(true);
            }
            Some(before) => self.refuse(&before.entry, "the queue does not continue from it"),
            None => {}
        }
        let doubtful = Doubtful {
            queue: Arc::clone(queue),
            topic: topic.name.clone(),
            offset,
            entry,
        };
        self.doubtful.insert((topic.id, queue.id), doubtful);
        Ok(false)
    }

    fn believe(&mut self, doubtful: &Doubtful) -> Result<()> {
        let Doubtful { queue, offset, .. } = doubtful;
        self.note_gap(&doubtful.topic, queue, *offset, doubtful.entry.position)?;
        self.put(queue, *offset, doubtful.entry)
    }

    /// Records that there are no records for the offsets from the end of a queue to `offset`.
    fn note_gap(
        &mut self,
        topic: &str,
        queue: &ConsumeQueue,
        offset: u64,
        position: u64,
    ) -> Result<()> {
        let after = queue.last_end_below(position)?.unwrap_or(self.min);
        self.placed.gaps.push(Gap {
            topic: topic.into(),
            queue: queue.id,
            offsets: queue.max()..offset,
            after,
            before: position,
        });
        Ok(())
    }

    /// Whether there is a cause for `gap` offsets without a record.
    fn explained(&self, topic: &Topic, queue: &ConsumeQueue, gap: u64, holes: u64) -> Result<bool> {
        let swallowed = gap <= holes / RECORD_LEN_MIN as u64;
        let batched = self.batched.contains(&(topic.id, queue.id));
        if swallowed || batched {
            return Ok(true);
        }
        // If the log no longer begins at 0, messages before its first may have been deleted.
        let before = queue.last_end_below(u64::MAX)?.unwrap_or(self.min);
        Ok(self.min > 0 && (queue.is_untouched()? || before <= self.min))
    }

    fn refuse(&self, entry: &QueueEntry, reason: &str) {
        let reason = format!("the record is in no queue: {reason}");
        self.report
            .add(self.log.damage(entry.position..entry.end(), reason));
    }
}
