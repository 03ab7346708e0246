//! The places of topics and queues in the table of groups.

use crate::engine::directory::group_table::{GroupTable, GroupTopic, Member};
use crate::error::Result;
use std::collections::BTreeMap;

/// The group that lists the queues of producers; see [`owners`](super::owners). They are not shared
/// out.
pub(super) const PRODUCERS: &str = "%PRODUCERS%";

/// Queues and their rows.
pub(super) type QueueRows = Vec<(u32, u32)>;

/// A queue of a group in the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Occupied {
    pub(super) group: Box<str>,
    pub(super) topic: Box<str>,
    pub(super) queue: u32,
    pub(super) row: u32,
}

/// The places of topics and queues in the table.
#[derive(Debug, Default)]
pub(super) struct Index {
    pub(super) topics: BTreeMap<GroupTopic, u32>,
    /// By topic entry and queue.
    pub(super) queues: BTreeMap<(u32, u32), u32>,
    /// How many topic entries and queues have been read.
    read: (u32, u32),
    /// The number under which this process owns the queues of its producers.
    pub(super) producer: Option<u64>,
    /// This process is leaving the store and must not lock the table again.
    pub(super) ended: bool,
}

impl Index {
    /// Reads the entries that were added since the last call.
    pub(super) fn read_on(&mut self, table: &GroupTable) -> Result<()> {
        let topics = table.topics()?;
        while self.read.0 < topics {
            self.topics.insert(table.topic(self.read.0)?, self.read.0);
            self.read.0 += 1;
        }
        let queues = table.queues()?;
        while self.read.1 < queues {
            self.queues.insert(table.queue(self.read.1)?, self.read.1);
            self.read.1 += 1;
        }
        Ok(())
    }

    /// Rows of the queues of a topic entry.
    pub(super) fn queues_of(&self, entry: u32) -> impl Iterator<Item = u32> {
        let range = self.queues.range((entry, 0)..=(entry, u32::MAX));
        range.map(|(_, row)| *row)
    }

    /// Topic entry and row of each queue of a group.
    pub(super) fn rows_of(&self, group: &str) -> Vec<(u32, u32)> {
        let topics = self.topics.range(key(group, "")..);
        let topics = topics.take_while(|(key, _)| *key.group == *group);
        let rows = topics.flat_map(|(_, entry)| {
            let rows = self.queues_of(*entry);
            rows.map(|row| (*entry, row))
        });
        rows.collect()
    }

    /// Numbers of the consumers of a group, in the order in which they joined.
    pub(super) fn readers(&self, table: &GroupTable, group: &str) -> Vec<u64> {
        let topics = self.topics.range(key(group, "")..);
        let topics = topics.take_while(|(key, _)| *key.group == *group);
        let entries: Vec<u32> = topics.map(|(_, entry)| *entry).collect();
        let reads = |member: &Member| {
            let place = Member::place(member.number);
            entries.iter().any(|entry| table.reads(*entry, place))
        };
        let mut numbers: Vec<u64> = table.members().filter(reads).map(|it| it.number).collect();
        numbers.sort_unstable();
        numbers
    }

    /// All queues of all groups, by group and topic.
    pub(super) fn by_topic(&self) -> Vec<(GroupTopic, QueueRows)> {
        let topics = self.topics.iter();
        let topics = topics.filter(|(key, _)| &*key.group != PRODUCERS);
        let rows = topics.map(|(key, entry)| {
            let range = self.queues.range((*entry, 0)..=(*entry, u32::MAX));
            let rows = range.map(|((_, queue), row)| (*queue, *row));
            (key.clone(), rows.collect())
        });
        rows.collect()
    }

    /// All queues of all groups.
    pub(super) fn all(&self) -> Vec<Occupied> {
        let topics = self.by_topic().into_iter();
        let queues = topics.flat_map(|(key, rows)| {
            let rows = rows.into_iter();
            rows.map(move |(queue, row)| Occupied {
                group: key.group.clone(),
                topic: key.topic.clone(),
                queue,
                row,
            })
        });
        queues.collect()
    }
}

/// The key of a topic of a group.
pub(super) fn key(group: &str, topic: &str) -> GroupTopic {
    GroupTopic {
        group: group.into(),
        topic: topic.into(),
    }
}
