//! Groups as they are seen from outside: how far each is, and where it goes on.

use super::progress::{GroupProgress, Progress};
use super::start::offset_of;
use super::{Consumers, Group, check_group};
use crate::bound::Bound;
use crate::engine::{Check, Engine, Filter, Rows, Topic};
use crate::error::{Error, Result};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// A queue of a group. What the tables do not tell is known for groups of this process alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupQueue {
    /// The group.
    pub group: Box<str>,
    /// The topic.
    pub topic: Box<str>,
    /// The queue.
    pub queue: u32,
    /// The next offset that the group consumes.
    pub committed: u64,
    /// The next offset to be written.
    pub max_offset: u64,
    /// Messages from `committed` on.
    pub lag: u64,
    /// Bytes of their records.
    pub lag_bytes: u64,
    /// How long ago the first of them was stored, in ms; 0 where there is none.
    pub lag_ms: u64,
    /// Messages that are delivered and not settled.
    pub unsettled: u64,
    /// Messages that were refused, or whose delivery was not settled, since the store was opened.
    pub retries: u64,
    /// Number of the member of this process that owns the queue.
    pub owner: Option<u64>,
    /// Since when it does, in ms.
    pub owned: Option<i64>,
    /// When `committed` last moved, in ms.
    pub moved: Option<i64>,
}

/// What a group of this process knows of a queue.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    committed: u64,
    unsettled: u64,
    retries: u64,
    owner: Option<u64>,
    owned: Option<i64>,
    moved: Option<i64>,
}

impl Consumers {
    /// All groups that are known, with each of their queues.
    ///
    /// # Errors
    ///
    /// As [`Consumers::consumer`].
    pub fn groups(&self) -> Result<Vec<GroupQueue>> {
        let engine = self.handle.engine()?;
        // Another process may have added topics, and rows to the table.
        engine.refresh(None)?;
        let rows = match &self.place {
            Some(_) => Progress::load(self.place.clone())?.all(),
            None => self.progress()?.all(),
        };
        let mut found = BTreeMap::new();
        for row in rows {
            let committed = row.offset;
            let known = Known {
                committed,
                ..Known::default()
            };
            found.insert((row.group, row.topic, row.queue), known);
        }
        let groups: Vec<Arc<Group>> = self.groups.lock().values().cloned().collect();
        for group in groups {
            for lane in group.lanes() {
                let key = (group.name.clone(), lane.topic.name.clone(), lane.queue);
                let is = lane.progress();
                let known = Known {
                    committed: is.committed,
                    unsettled: is.unsettled,
                    retries: is.retries,
                    owner: is.owner,
                    owned: is.owner.map(|_| is.since),
                    moved: is.moved,
                };
                found.insert(key, known);
            }
        }
        let now = self.now();
        let queues = found.into_iter().map(|((group, topic, queue), known)| {
            let behind = Behind::of(engine, (&topic, queue), known.committed)?;
            let since = behind
                .oldest
                .map(|stored| now.saturating_sub(stored).max(0));
            Ok(GroupQueue {
                group,
                topic,
                queue,
                committed: known.committed,
                max_offset: behind.offsets.end,
                lag: behind.offsets.end.saturating_sub(behind.offsets.start),
                lag_bytes: behind.bytes,
                lag_ms: since.unwrap_or(0).unsigned_abs(),
                unsettled: known.unsettled,
                retries: known.retries,
                owner: known.owner,
                owned: known.owned,
                moved: known.moved,
            })
        });
        queues.collect()
    }

    /// Sets how far a group is with a topic; durable on return. Consumers of this process go on
    /// there, and what they hold counts no more.
    ///
    /// # Errors
    ///
    /// [`Error::UnknownTopic`], [`Error::UnknownQueue`], [`Error::OffsetOutOfRange`];
    /// [`Error::ReadOnly`]; those of storing.
    pub fn reset_offsets(&self, group: &str, topic: &str, to: &Bound) -> Result<()> {
        check_group(group)?;
        let engine = self.handle.writer()?;
        let found = engine
            .topics()
            .get(topic)
            .ok_or_else(|| Error::UnknownTopic {
                topic: topic.to_owned(),
            })?;
        let queues = engine.queues(&found);
        if let Bound::Offsets(offsets) = to
            && let Some(queue) = offsets.keys().find(|queue| !queues.contains(queue))
        {
            return Err(found.unknown_queue(*queue));
        }
        engine.flush()?;
        let mut offsets = Vec::new();
        for queue in queues {
            let is_left = |offsets: &BTreeMap<u32, u64>| !offsets.contains_key(&queue);
            if !matches!(to, Bound::Offsets(offsets) if is_left(offsets)) {
                offsets.push((queue, offset_of(to, engine, &found, queue)?));
            }
        }
        let live = self.groups.lock().get(group).cloned();
        let lanes = live.map(|group| group.lanes()).unwrap_or_default();
        for lane in lanes.iter().filter(|lane| *lane.topic.name == *topic) {
            let mut all = offsets.iter();
            if let Some((_, offset)) = all.find(|(queue, _)| *queue == lane.queue) {
                lane.seek(*offset);
            }
        }
        self.stir();
        self.progress()?.put(GroupProgress {
            topic: topic.into(),
            group: group.into(),
            offsets,
        })
    }
}

/// What a group has not consumed of a queue.
#[derive(Debug)]
struct Behind {
    offsets: Range<u64>,
    bytes: u64,
    /// When the first message was stored, in ms.
    oldest: Option<i64>,
}

impl Behind {
    fn of(engine: &dyn Engine, (topic, queue): (&str, u32), committed: u64) -> Result<Behind> {
        let nothing = Behind {
            offsets: committed..0,
            bytes: 0,
            oldest: None,
        };
        let Some(topic) = engine.topics().get(topic) else {
            return Ok(nothing);
        };
        let Some(bounds) = engine.bounds(&topic, queue)? else {
            return Ok(nothing);
        };
        let offsets = committed.max(bounds.start)..bounds.end;
        if offsets.is_empty() {
            return Ok(Behind { offsets, ..nothing });
        }
        let (_, bytes) = engine.fit(&topic, queue, offsets.clone(), u64::MAX)?;
        Ok(Behind {
            oldest: first_stored(engine, &topic, queue, offsets.clone())?,
            offsets,
            bytes,
        })
    }
}

/// When the first message of a range that can be read was stored, in ms.
fn first_stored(
    engine: &dyn Engine,
    topic: &Topic,
    queue: u32,
    range: Range<u64>,
) -> Result<Option<i64>> {
    let mut cursor = engine.cursor(topic, queue, range, &Filter::default(), Check::Structure)?;
    let mut rows = Rows::default();
    cursor.next(1, &mut rows)?;
    let first = rows.rows.first().and_then(|row| rows.record(row));
    Ok(first.map(|record| record.store_timestamp()))
}
