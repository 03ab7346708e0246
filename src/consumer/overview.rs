//! Groups as seen from outside: the progress of each, and setting where it continues.

use super::occupation::{Begun, Occupation};
use super::progress::{GroupProgress, LOCK_TIMEOUT, Progress, Saved};
use super::start::offset_of;
use super::{Consumers, Group, group};
use crate::bound::Bound;
use crate::disk::Holder;
use crate::engine::directory::group_table::{GroupTable, Member};
use crate::engine::directory::member::Meeting;
use crate::engine::{Check, Engine, Filter, Rows, Topic};
use crate::error::{Error, Result};
use crate::interrupt;
use crate::options::Mode;
use crate::region::Access;
use crate::table::TablePlace;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

/// A queue of a group. Fields that the tables do not hold are known only for groups of this
/// process, and of the processes that share the store.
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
    /// How long ago the first of them was stored, in ms; 0 if there is none.
    pub lag_ms: u64,
    /// Messages that are delivered and not settled.
    pub unsettled: u64,
    /// Messages that were refused, or whose delivery was not settled, since the store was opened.
    pub retries: u64,
    /// Number of the consumer that owns the queue.
    pub owner: Option<u64>,
    /// Id of its process, if the store is shared.
    pub owner_pid: Option<u32>,
    /// When that consumer got the queue, in ms.
    pub owned: Option<i64>,
    /// When `committed` last moved, in ms.
    pub moved: Option<i64>,
}

/// What a group of this process knows about a queue.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    committed: u64,
    unsettled: u64,
    retries: u64,
    owner: Option<u64>,
    owner_pid: Option<u32>,
    owned: Option<i64>,
    moved: Option<i64>,
}

impl Known {
    /// What the processes that share a store know about a queue. A consumer whose process is dead
    /// owns nothing.
    fn of(table: &GroupTable, row: u32, is_alive: impl Fn(u32) -> bool) -> Known {
        let row = table.row(row);
        let owner = row.owner().and_then(|it| table.member(Member::place(it)));
        let owner = owner.filter(|owner| is_alive(owner.slot));
        let (unsettled, retries) = row.counts();
        Known {
            committed: row.fence().committed,
            unsettled: owner.map_or(0, |_| u64::from(unsettled)),
            retries: u64::from(retries),
            owner: owner.map(|owner| Member::rank(owner.number)),
            owner_pid: owner.map(|owner| owner.pid),
            owned: owner.map(|_| row.since()),
            moved: row.moved(),
        }
    }

    /// All of the queue of a group.
    fn with(
        self,
        (group, topic, queue): (Box<str>, Box<str>, u32),
        behind: &Behind,
        now: i64,
    ) -> GroupQueue {
        let since = behind
            .oldest
            .map(|stored| now.saturating_sub(stored).max(0));
        GroupQueue {
            group,
            topic,
            queue,
            committed: self.committed,
            max_offset: behind.offsets.end,
            lag: behind.offsets.end.saturating_sub(behind.offsets.start),
            lag_bytes: behind.bytes,
            lag_ms: since.unwrap_or(0).unsigned_abs(),
            unsettled: self.unsettled,
            retries: self.retries,
            owner: self.owner,
            owner_pid: self.owner_pid,
            owned: self.owned,
            moved: self.moved,
        }
    }
}

impl Consumers {
    /// All groups that are known, with each of their queues. Calls `go_on` after every few thousand
    /// messages that are not consumed; once it returns false, the remaining queues are left out.
    ///
    /// # Errors
    ///
    /// As [`Consumers::consumer`].
    pub fn groups(&self, go_on: &mut dyn FnMut() -> bool) -> Result<Vec<GroupQueue>> {
        let engine = self.handle.engine()?;
        // Another process may have added topics, and rows to the table.
        engine.refresh(None)?;
        let rows = match &self.place {
            Some(_) => Progress::load(self.place.clone(), None)?.all(),
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
        if let Some(table) = self.table_of_groups()? {
            let living = self.living(&table)?;
            for queue in Occupation::new(Arc::clone(&table)).all()? {
                let key = (queue.group, queue.topic, queue.queue);
                let known = Known::of(&table, queue.row, |slot| living.contains(&slot));
                found.insert(key, known);
            }
            table.check()?;
        }
        let groups: Vec<Arc<Group>> = self.groups.lock().values().cloned().collect();
        let is_alone = self.handle.joint().is_none();
        for group in groups.into_iter().filter(|_| is_alone) {
            for lane in group.lanes() {
                let key = (group.name.clone(), lane.topic.name.clone(), lane.queue);
                let is = lane.progress();
                let known = Known {
                    committed: is.committed,
                    unsettled: is.unsettled,
                    retries: is.retries,
                    owner: is.owner,
                    owner_pid: None,
                    owned: is.owner.map(|_| is.since),
                    moved: is.moved,
                };
                found.insert(key, known);
            }
        }
        let now = self.now();
        let mut queues = Vec::with_capacity(found.len());
        for ((group, topic, queue), known) in found {
            if !go_on() {
                break;
            }
            let behind = Behind::of(engine, (&topic, queue), known.committed, go_on)?;
            queues.push(known.with((group, topic, queue), &behind, now));
        }
        Ok(queues)
    }

    /// Sets the progress of a group in a topic; durable on return, unless the caller has
    /// interrupted a wait. Consumers of this process continue there, and their current deliveries
    /// become invalid.
    ///
    /// # Errors
    ///
    /// [`Error::UnknownTopic`], [`Error::UnknownQueue`], [`Error::OffsetOutOfRange`];
    /// [`Error::ReadOnly`]; those of storing.
    pub fn reset_offsets(&self, group: &str, topic: &str, to: &Bound) -> Result<()> {
        let engine = self.handle.writer()?;
        group::check_name(engine, group)?;
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
        engine.flush(&mut || !interrupt::is_raised())?;
        if interrupt::is_raised() {
            return Ok(());
        }
        let (all, mut offsets) = (queues.len(), Vec::new());
        for queue in queues {
            let is_left = |offsets: &BTreeMap<u32, u64>| !offsets.contains_key(&queue);
            if !matches!(to, Bound::Offsets(offsets) if is_left(offsets)) {
                offsets.push((queue, offset_of(to, engine, &found, queue)?));
            }
        }
        let log = match offsets.len() == all {
            true => match self.log()? {
                Some(log) => log.beside(engine.durable_position()),
                None => Saved::Beside(None),
            },
            false => Saved::AsBefore,
        };
        let progress = GroupProgress {
            topic: topic.into(),
            group: group.into(),
            offsets,
            log,
        };
        if let Some(occupation) = self.occupation()? {
            return self.reset_shared(&occupation, progress);
        }
        let live = self.groups.lock().get(group).cloned();
        let lanes = live.map(|group| group.lanes()).unwrap_or_default();
        self.progress()?.put(LOCK_TIMEOUT, || {
            for lane in lanes.iter().filter(|lane| *lane.topic.name == *topic) {
                let mut all = progress.offsets.iter();
                if let Some((_, offset)) = all.find(|(queue, _)| *queue == lane.queue) {
                    lane.seek(*offset)?;
                }
            }
            self.stir();
            Ok(vec![progress])
        })
    }

    /// Consumers of other processes continue at the new offsets as soon as they read them. A
    /// process that saves progress meanwhile either saves before this one does, or reads the new
    /// offsets.
    fn reset_shared(&self, occupation: &Occupation, progress: GroupProgress) -> Result<()> {
        let (group, topic) = (&progress.group, &progress.topic);
        let begun = progress.offsets.iter().map(|(queue, offset)| Begun {
            topic: topic.clone(),
            queue: *queue,
            committed: *offset,
        });
        let begun: Vec<Begun> = begun.collect();
        occupation.patiently(|| occupation.begin(group, &begun, self.now()))?;
        for (queue, offset) in &progress.offsets {
            if let Some(found) = occupation.find(group, topic, *queue)? {
                occupation.patiently(|| occupation.reset(found, *offset))?;
            }
        }
        self.stir();
        self.progress()?.put(LOCK_TIMEOUT, || Ok(vec![progress]))
    }

    /// The slots of the processes that consume and live.
    fn living(&self, table: &GroupTable) -> Result<BTreeSet<u32>> {
        let mut slots: BTreeSet<u32> = table.members().map(|member| member.slot).collect();
        let Some(place) = &self.place else {
            return Ok(slots);
        };
        let disk = &place.disk;
        let lock = table.path().with_file_name(meeting(place).lock);
        let own = table.own_slot();
        for slot in slots.clone().into_iter().filter(|slot| *slot != own) {
            if !disk.is_byte_locked(&lock, slot)? {
                slots.remove(&slot);
            }
        }
        Ok(slots)
    }

    /// The table of groups, if this process shares the store or reads one that others share.
    fn table_of_groups(&self) -> Result<Option<Arc<GroupTable>>> {
        if let Some(joint) = self.handle.joint() {
            return joint.found_table();
        }
        let Some(place) = &self.place else {
            return Ok(None);
        };
        let (disk, root) = (&place.disk, place.root());
        if self.handle.options.mode != Mode::Read {
            return Ok(None);
        }
        // Entries of dead processes mean nothing: the next processes begin with the table of
        // offsets.
        let meeting = meeting(place);
        let page = meeting.open_page(&**disk, root, Access::Read)?;
        let is_shared = page.is_some_and(|page| page.is_of_many())
            && disk.probe(&root.join(meeting.lock))? == Holder::Forebay;
        match is_shared {
            true => Ok(GroupTable::open_read(disk, root)?.map(Arc::new)),
            false => Ok(None),
        }
    }
}

/// The files through which the processes that share a store meet.
fn meeting(place: &TablePlace) -> Meeting {
    match place.is_flat() {
        true => Meeting::OF_PARTITIONS,
        false => Meeting::OF_STATE,
    }
}

/// The messages of a queue that a group has not consumed.
#[derive(Debug)]
struct Behind {
    offsets: Range<u64>,
    bytes: u64,
    /// Store time of the first message, in ms.
    oldest: Option<i64>,
}

impl Behind {
    fn of(
        engine: &dyn Engine,
        (topic, queue): (&str, u32),
        committed: u64,
        go_on: &mut dyn FnMut() -> bool,
    ) -> Result<Behind> {
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
        let bytes = engine.bytes_from(&topic, queue, offsets.start, go_on)?;
        Ok(Behind {
            oldest: first_stored(engine, &topic, queue, offsets.clone())?,
            offsets,
            bytes,
        })
    }
}

/// Store time of the first readable message of a range, in ms.
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
