//! Finds the record of a queue offset in the log if its queue entry is damaged.

use super::meant::{is_meant, leads_home};
use crate::engine::Topic;
use crate::engine::commit_log::log::Log;
use crate::engine::commit_log::log::sound::{Depth, Place, Sound, SoundWalk};
use crate::engine::commit_log::queues::queue::ConsumeQueue;
use crate::error::Result;
use crate::record::Message;
use std::sync::Arc;

/// Number of the first message of a queue at or after position `until`, which must not be after the
/// end of the log. The end of the queue if there is none.
///
/// The queue's entries locate the message, and the log confirms it. The offsets of a queue ascend
/// with the positions, so two records decide for all others: the last before `until` and the first
/// after it, if each states its own offset. The records of damaged entries are searched for in the
/// log.
pub fn first_kept(log: &Arc<Log>, topic: &Topic, queue: &ConsumeQueue, until: u64) -> Result<u64> {
    let home = |number: u64| -> Result<Option<u64>> {
        Ok(match queue.entry(number)? {
            Some(entry) if leads_home(log, (topic, queue.id, number), entry)? => {
                Some(entry.position)
            }
            _ => None,
        })
    };
    let is_filler = |number: u64| -> Result<bool> {
        Ok(queue.entry(number)?.is_some_and(|entry| entry.is_filler()))
    };
    let (min, max) = (queue.min(), queue.max());
    let mut number = queue.first_from(until)?;
    while number > min && home(number - 1)?.is_none_or(|position| position >= until) {
        number -= 1;
    }
    let mut search = Search::default();
    while number < max {
        let found = match home(number)? {
            None if is_filler(number)? => None,
            None => search.locate(log, topic, queue, number)?,
            found => found,
        };
        if found.is_some_and(|position| position >= until) {
            break;
        }
        number += 1;
    }
    Ok(number)
}

/// Number of entries on either side that are tried as bounds of a search.
const NEIGHBOURS: u64 = 1000;

/// A search for the records of consecutive offsets. Each result narrows the next search, so a whole
/// file of damaged entries costs one walk, not one per entry.
#[derive(Debug, Default)]
pub struct Search {
    /// The offset with which the search continues, and the first position where its record can be.
    next: Option<(u64, u64)>,
    /// A later offset and the position of its record. Records of lower offsets are before it.
    bound: Option<(u64, u64)>,
    /// Whether the queue has no record after `next`.
    dry: bool,
}

impl Search {
    /// The position of the record of `number`, searched between the records of the nearest valid
    /// entries.
    pub fn locate(
        &mut self,
        log: &Arc<Log>,
        topic: &Topic,
        queue: &ConsumeQueue,
        number: u64,
    ) -> Result<Option<u64>> {
        let end = log.published();
        let place = |number: u64| -> Result<Option<(u64, u64)>> {
            let entry = queue.entry(number)?.filter(|entry| entry.is_message(end));
            let Some(entry) = entry else { return Ok(None) };
            let meant = (topic, queue.id, number);
            let own = |message: &Message| is_meant(&message.record().rocketmq(), meant);
            let found = log.record_at(entry.position)?.record().filter(own);
            Ok(found.map(|_| (entry.position, entry.end())))
        };
        let from = match self.next {
            Some((next, _)) if next == number && self.dry => return Ok(self.skip(number)),
            Some((next, from)) if next == number => from,
            _ => {
                self.dry = false;
                let low = queue.min().max(number.saturating_sub(NEIGHBOURS));
                let before = (low..number).rev().find_map(|n| place(n).transpose());
                before
                    .transpose()?
                    .map_or(log.min_position(), |(_, end)| end)
            }
        };
        if self.bound.is_none_or(|(bound, _)| bound <= number) {
            let high = queue.max().min(number + 1 + NEIGHBOURS);
            let found = (number + 1..high).find_map(|n| match place(n) {
                Ok(found) => found.map(|(position, _)| Ok((n, position))),
                Err(error) => Some(Err(error)),
            });
            self.bound = Some(found.transpose()?.unwrap_or((high.max(number + 1), end)));
        }
        let until = self.bound.map_or(end, |(_, position)| position);
        self.walk(log, (topic, queue.id, number), from..until, end)
    }

    fn skip(&mut self, number: u64) -> Option<u64> {
        self.next = self.next.map(|(_, from)| (number + 1, from));
        None
    }

    fn walk(
        &mut self,
        log: &Arc<Log>,
        (topic, queue, number): (&Topic, u32, u64),
        range: std::ops::Range<u64>,
        end: u64,
    ) -> Result<Option<u64>> {
        let mut walk = SoundWalk::new(log, range.start..range.end, Depth::Structure);
        loop {
            self.next = Some((number + 1, walk.position()));
            let Some(met) = walk.next()? else { break };
            let Sound::Record(record, Place { position, .. }) = met else {
                continue;
            };
            let own = record.topic() == topic.name.as_bytes()
                && i64::from(record.queue_id()) == i64::from(queue)
                && record.is_queued()
                && record.queue_offset() >= number.cast_signed()
                && record.check(position).is_ok();
            if own && record.queue_offset() == number.cast_signed() {
                self.next = Some((number + 1, walk.position()));
                return Ok(Some(position));
            }
            if own {
                // The offsets of a queue ascend with the positions, so the record does not exist.
                return Ok(None);
            }
        }
        self.dry = range.end >= end;
        Ok(None)
    }
}
