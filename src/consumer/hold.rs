//! The consumers' holds on retention.

use super::Consumers;
use super::loan::Loan;
use super::timed::QUEUE;
use crate::engine::service::hold::{Hold, Kept};
use crate::engine::{Check, Engine, Filter, Rows};
use crate::error::Result;
use crate::record::names::TIMER_TOPIC;
use crate::table::TablePlace;
use crate::table::offsets::{self, OffsetTable};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};

/// Keeps messages that wait for their time: retention takes a file once they are appended again.
///
/// An engine gets its holds when it opens, but consumers need an open engine. So the consumers are
/// set later, and nothing is deleted before.
#[derive(Debug, Default)]
pub struct Waiting(OnceLock<Arc<Loan<Consumers>>>);

impl Waiting {
    /// Sets the consumers, once.
    pub fn set(&self, consumers: &Consumers) {
        let _ = self.0.set(Arc::clone(&consumers.loan));
    }

    fn borrow<R>(&self, call: impl FnOnce(&Arc<Consumers>) -> R) -> Option<R> {
        self.0.get()?.borrow(call)
    }
}

impl Hold for Waiting {
    fn keep_from(&self) -> Result<u64> {
        self.borrow(|it| it.keep_from()).unwrap_or(Ok(0))
    }

    fn kept_offsets(&self) -> Result<Option<Kept>> {
        self.borrow(|it| it.kept_offsets()).transpose()
    }

    fn let_go(&self, until: u64) -> Result<bool> {
        self.borrow(|it| it.let_go(until)).unwrap_or(Ok(false))
    }
}

impl Consumers {
    /// The position from which the log must stay: that of the first message that waits for the
    /// delay of its level, or that a group has not consumed. Includes progress that is not saved
    /// yet; the engine itself reads the table of offsets.
    pub(crate) fn keep_from(&self) -> Result<u64> {
        let waiting = self.delay.keep_from(self.handle())?;
        match self.handle().options.keep_unconsumed {
            true => Ok(waiting.min(self.unconsumed_from()?)),
            false => Ok(waiting),
        }
    }

    fn unconsumed_from(&self) -> Result<u64> {
        let Some(saved) = self.saved_offsets()? else {
            return Ok(u64::MAX);
        };
        // The lowest offset of each queue of a topic.
        let mut lowest: BTreeMap<(Box<str>, u32), u64> = BTreeMap::new();
        let mut rows = Begun::default();
        let mut note = |topic: &str, group: &str, queue: u32, committed: u64| {
            rows.add(topic, group, queue);
            if saved.get(topic, group, queue).is_none() {
                let low = lowest.entry((topic.into(), queue)).or_insert(committed);
                *low = committed.min(*low);
            }
        };
        match self.found_occupation()? {
            Some(occupation) => {
                for (of, queues) in occupation.by_topic()? {
                    for (queue, row) in queues {
                        let committed = occupation.table().row(row).fence().committed;
                        note(&of.topic, &of.group, queue, committed);
                    }
                }
                occupation.table().check()?;
            }
            None => self.each_lane(note),
        }
        let engine = &*self.handle().engine;
        for (topic, queue) in rows.missing_retries(&saved, engine) {
            lowest.insert((topic, queue), 0);
        }
        let mut keep = u64::MAX;
        for ((topic, queue), offset) in lowest {
            keep = keep.min(position_from(engine, &topic, queue, offset)?);
        }
        Ok(keep)
    }

    /// The lowest offset in each queue of a message that a group has not consumed, or that waits
    /// for its time.
    fn kept_offsets(&self) -> Result<Kept> {
        let mut kept = Kept::new();
        let mut keep = |topic: &str, queue: u32, offset: u64| {
            let low = kept.entry((topic.into(), queue)).or_insert(offset);
            *low = offset.min(*low);
        };
        if self.handle().options.keep_unconsumed {
            let mut rows = Begun::default();
            self.each_lane(|topic, group, queue, committed| {
                rows.add(topic, group, queue);
                keep(topic, queue, committed);
            });
            if let Some(saved) = self.saved_offsets()? {
                for (topic, _, queue, offset) in saved.all() {
                    // A group that has not begun has -1.
                    keep(topic, queue, u64::try_from(offset).unwrap_or(0));
                }
                for (topic, queue) in rows.missing_retries(&saved, &*self.handle().engine) {
                    keep(&topic, queue, 0);
                }
            }
        }
        keep(TIMER_TOPIC, QUEUE, self.timer.low());
        Ok(kept)
    }

    /// The table of offsets; `None` if the store has no files.
    fn saved_offsets(&self) -> Result<Option<OffsetTable>> {
        let place = self.place.as_ref();
        let open = |it: &TablePlace| OffsetTable::open(&*it.disk, &it.config(offsets::FILE_NAME));
        place.map(open).transpose()
    }

    /// Calls `note` with topic, group, queue and committed offset of each lane of this process.
    fn each_lane(&self, mut note: impl FnMut(&str, &str, u32, u64)) {
        for group in self.groups.lock().values() {
            group.each_lane(|lane| {
                let committed = lane.progress().committed;
                note(&lane.topic.name, &group.name, lane.queue, committed);
            });
        }
    }
}

/// The queues that groups have begun, besides those in the table of offsets.
#[derive(Default)]
struct Begun {
    groups: BTreeSet<Box<str>>,
    /// Topic, group and queue.
    queues: BTreeSet<(Box<str>, Box<str>, u32)>,
}

impl Begun {
    fn add(&mut self, topic: &str, group: &str, queue: u32) {
        self.groups.insert(group.into());
        self.queues.insert((topic.into(), group.into(), queue));
    }

    /// Queues of retry topics that their groups have not begun. The first refused message of a
    /// group may be delivered there after its last consumer has left. The next one begins such a
    /// queue at its beginning.
    fn missing_retries(self, saved: &OffsetTable, engine: &dyn Engine) -> Vec<(Box<str>, u32)> {
        let mut groups = self.groups;
        groups.extend(saved.all().map(|(_, group, ..)| Box::from(group)));
        let mut missing = Vec::new();
        for group in groups {
            let retry = engine.meanings().retry_topic(&group);
            let Some(topic) = engine.topics().get(&retry) else {
                continue;
            };
            for queue in engine.queues(&topic) {
                let key = (topic.name.clone(), group.clone(), queue);
                let is_begun =
                    self.queues.contains(&key) || saved.get(&topic.name, &group, queue).is_some();
                if !is_begun {
                    missing.push((topic.name.clone(), queue));
                }
            }
        }
        missing
    }
}

/// The position of the first message of a queue from `offset` on; `u64::MAX` if there is none.
pub(super) fn position_from(
    engine: &dyn Engine,
    topic: &str,
    queue: u32,
    offset: u64,
) -> Result<u64> {
    let Some(topic) = engine.topics().get(topic) else {
        return Ok(u64::MAX);
    };
    let bounds = engine.bounds(&topic, queue)?.unwrap_or(0..0);
    let (filter, mut rows) = (Filter::default(), Rows::default());
    let range = offset.max(bounds.start)..bounds.end;
    if range.is_empty() {
        return Ok(u64::MAX);
    }
    let mut cursor = engine.cursor(&topic, queue, range, &filter, Check::Structure)?;
    cursor.next(1, &mut rows)?;
    let first = rows.rows.first().and_then(|row| rows.message(row));
    Ok(first.map_or(u64::MAX, |it| it.record().position().cast_unsigned()))
}
