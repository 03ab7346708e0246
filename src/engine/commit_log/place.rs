//! The place of a record in its queue, on recovery: what may be believed of a queue offset.
//!
//! A record that carries no checksum over its head can have a wrong queue, offset or topic. So an
//! offset that leaves a gap is believed only if something explains the gap: messages that were
//! retired, or that a hole has swallowed. And an entry that leads to its own record stays, whoever
//! else claims it.

use super::consume_queue::{ConsumeQueue, QueueEntry};
use super::dispatch::Finder;
use super::log::Log;
use super::open::Opening;
use super::queues::Queues;
use super::report::Report;
use crate::engine::{Damage, Topic, Topics};
use crate::error::{Error, Result};
use crate::record::Record;
use crate::record::layout::{RECORD_LEN_MIN, sys_flag};
use crate::record::properties::Known;
use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;

/// Offsets of a queue that no record was met for.
#[derive(Clone, Debug)]
pub(super) struct Bridge {
    pub(super) topic: Box<str>,
    pub(super) queue: u32,
    pub(super) offsets: Range<u64>,
    /// Position behind the record before the gap.
    pub(super) after: u64,
    /// Position of the record behind it.
    pub(super) before: u64,
}

/// Puts entries of records that a walk meets.
pub(super) struct Placer {
    topics: Arc<Topics>,
    queues: Arc<Queues>,
    report: Arc<Report>,
    log: Arc<Log>,
    finder: Finder,
    min: u64,
    /// Whether the walk meets every record of the log.
    from_start: bool,
    gap: bool,
    rebuilt: u64,
    bridges: Vec<Bridge>,
    /// Queues of records that hold many messages each, and so many offsets.
    batched: HashSet<(u32, u32)>,
}

impl Placer {
    pub(super) fn new(opening: &Opening<'_>, log: &Arc<Log>, from: u64) -> Placer {
        let min = opening.min_position();
        Placer {
            topics: Arc::clone(&opening.topics),
            queues: Arc::clone(&opening.queues),
            report: Arc::clone(&opening.report),
            log: Arc::clone(log),
            finder: Finder::default(),
            min,
            from_start: from <= min,
            gap: false,
            rebuilt: 0,
            bridges: Vec::new(),
            batched: HashSet::new(),
        }
    }

    /// Entries stored, gaps bridged, and whether a gap asks for a walk from the start.
    pub(super) fn finish(self) -> (u64, Vec<Bridge>, bool) {
        (self.rebuilt, self.bridges, self.gap)
    }

    /// Puts the entry of the record at `position`, before which `holes` bytes of the walk are lost.
    pub(super) fn place(
        &mut self,
        record: &Record<'_>,
        known: &Known<'_>,
        position: u64,
        holes: u64,
    ) -> Result<()> {
        let (topics, queues) = (&self.topics, &self.queues);
        let found = self.finder.find(topics, queues, record, known, position);
        let Some((queue, offset, entry)) = found else {
            return Ok(());
        };
        let queue = Arc::clone(queue.queue());
        let Some(topic) = self.finder.last_topic() else {
            return Ok(());
        };
        if record.sys_flag() & sys_flag::INNER_BATCH != 0 {
            self.batched.insert((topic.id, queue.id));
        }
        let max = queue.max();
        if offset < max {
            match queue.entry(offset)? {
                Some(there) if there == entry => return Ok(()),
                Some(there) if leads_home(&self.log, &topic, queue.id, offset, there) => {
                    self.refuse(record, position, "another record has its queue offset");
                    return Ok(());
                }
                _ => {}
            }
        } else if max > queue.min()
            && let Some(last) = queue.entry(max - 1)?
            && last.position > position
            && !last.is_filler()
        {
            let reason = "a later record has an earlier queue offset";
            self.refuse(record, position, reason);
            return Ok(());
        }
        if offset > max {
            if !self.from_start {
                self.gap = true;
                return Ok(());
            }
            let Some(after) = self.explained(&topic, &queue, offset - max, holes)? else {
                let reason = format!("its queue offset is {offset}, but {max} was to be next");
                self.refuse(record, position, &reason);
                return Ok(());
            };
            if holes > 0 {
                self.bridges.push(Bridge {
                    topic: topic.name.clone(),
                    queue: queue.id,
                    offsets: max..offset,
                    after,
                    before: position,
                });
            }
        }
        match queue.put(offset, entry) {
            Ok(stored) => self.rebuilt += u64::from(stored),
            Err(Error::Corrupt { reason, .. }) => self.refuse(record, position, &reason),
            Err(error) => return Err(error),
        }
        if self.rebuilt.is_multiple_of(1024) {
            self.queues.limit_maps();
        }
        Ok(())
    }

    /// Whether `gap` offsets may be without a record: then the position behind the last one before.
    fn explained(
        &self,
        topic: &Topic,
        queue: &ConsumeQueue,
        gap: u64,
        holes: u64,
    ) -> Result<Option<u64>> {
        let swallowed = gap <= holes / RECORD_LEN_MIN as u64;
        if queue.is_untouched()? {
            return Ok((swallowed || self.min > 0).then_some(self.min));
        }
        let after = queue.last_end_below(u64::MAX)?.unwrap_or(self.min);
        let retired = self.min > 0 && after <= self.min;
        let batched = self.batched.contains(&(topic.id, queue.id));
        Ok((swallowed || retired || batched).then_some(after))
    }

    fn refuse(&self, record: &Record<'_>, position: u64, reason: &str) {
        self.report.add(Damage {
            path: self.log.files.path_of(self.log.files.start_of(position)),
            position,
            length: u64::from(record.layout().total_len),
            reason: reason.to_owned(),
            lost: Vec::new(),
        });
    }
}

/// Whether an entry leads to the record that it stands for.
pub(super) fn leads_home(
    log: &Arc<Log>,
    topic: &Topic,
    queue: u32,
    offset: u64,
    entry: QueueEntry,
) -> bool {
    log.record_at(entry.position).is_ok_and(|message| {
        let record = message.record();
        record.topic() == topic.name.as_bytes()
            && record.queue_id() == queue as i32
            && record.queue_offset() == offset as i64
            && record.layout().total_len == entry.size
            && record.check(entry.position).is_ok()
    })
}
