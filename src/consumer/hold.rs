//! The consumers' holds on retention.

use super::Consumers;
use super::loan::Loan;
use super::timed::QUEUE;
use crate::engine::service::hold::{Hold, Kept};
use crate::engine::{Check, Engine, Filter, Rows};
use crate::error::Result;
use crate::record::names::TIMER_TOPIC;
use crate::table::offsets::{self, OffsetTable};
use std::collections::BTreeMap;
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
    /// The position up to which all groups that have begun have consumed the log. Includes progress
    /// that is not saved yet; the engine itself reads the table of offsets.
    pub(crate) fn keep_from(&self) -> Result<u64> {
        let handle = self.handle();
        if !handle.options.keep_unconsumed {
            return Ok(u64::MAX);
        }
        let saved = match &self.place {
            Some(place) => OffsetTable::open(&*place.disk, &place.config(offsets::FILE_NAME))?,
            None => return Ok(u64::MAX),
        };
        // The lowest offset of each queue of a topic.
        let mut lowest: BTreeMap<(Box<str>, u32), u64> = BTreeMap::new();
        let mut note = |topic: &str, group: &str, queue: u32, committed: u64| {
            if saved.get(topic, group, queue).is_none() {
                let low = lowest.entry((topic.into(), queue)).or_insert(committed);
                *low = committed.min(*low);
            }
        };
        match self.found_occupation()? {
            Some(occupation) => {
                for (of, rows) in occupation.by_topic()? {
                    for (queue, row) in rows {
                        let committed = occupation.table().row(row).fence().committed;
                        note(&of.topic, &of.group, queue, committed);
                    }
                }
                occupation.table().check()?;
            }
            None => {
                for group in self.groups.lock().values() {
                    for lane in group.lanes() {
                        let committed = lane.progress().committed;
                        note(&lane.topic.name, &group.name, lane.queue, committed);
                    }
                }
            }
        }
        let mut keep = u64::MAX;
        for ((topic, queue), offset) in lowest {
            keep = keep.min(position_from(&*handle.engine, &topic, queue, offset)?);
        }
        Ok(keep)
    }
}

impl Consumers {
    /// The lowest offset in each queue of a message that a group has not consumed, or that waits
    /// for its time.
    fn kept_offsets(&self) -> Result<Kept> {
        let mut kept = Kept::new();
        let mut keep = |topic: &str, queue: u32, offset: u64| {
            let low = kept.entry((topic.into(), queue)).or_insert(offset);
            *low = offset.min(*low);
        };
        if self.handle().options.keep_unconsumed {
            if let Some(place) = &self.place {
                let saved = OffsetTable::open(&*place.disk, &place.config(offsets::FILE_NAME))?;
                for (topic, _, queue, offset) in saved.all() {
                    // A group that has not begun has -1.
                    keep(topic, queue, u64::try_from(offset).unwrap_or(0));
                }
            }
            for group in self.groups.lock().values() {
                group.each_lane(|lane| {
                    keep(&lane.topic.name, lane.queue, lane.progress().committed);
                });
            }
        }
        keep(TIMER_TOPIC, QUEUE, self.timer.low());
        Ok(kept)
    }
}

/// The position of the first message of a queue from `offset` on; `u64::MAX` if there is none.
fn position_from(engine: &dyn Engine, topic: &str, queue: u32, offset: u64) -> Result<u64> {
    let Some(topic) = engine.topics().get(topic) else {
        return Ok(u64::MAX);
    };
    let bounds = engine.bounds(&topic, queue)?.unwrap_or(0..0);
    let (filter, mut rows) = (Filter::default(), Rows::default());
    let range = offset.max(bounds.start)..bounds.end.max(offset);
    let mut cursor = engine.cursor(&topic, queue, range, &filter, Check::Structure)?;
    cursor.next(1, &mut rows)?;
    let first = rows.rows.first().and_then(|row| rows.message(row));
    Ok(first.map_or(u64::MAX, |it| it.record().position().cast_unsigned()))
}
