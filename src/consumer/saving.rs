//! Saves the progress of all groups, never ahead of the durable log.
//!
//! A thousand groups with a hundred queues each are saved every few seconds. So the queues of a
//! group are visited under its lock, with no copy of their list, and names are looked up once for
//! each group and topic.

use super::Consumers;
use super::group::Group;
use super::occupation::Occupation;
use super::progress::{GroupProgress, Saved};
use crate::engine::{Engine, Point, Topic};
use crate::error::Result;
use crate::plant::{Bug, planted};
use crate::table::offsets::OffsetTable;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The ends of queues below a position of the log, by numbers of topic and queue.
struct Ends<'a> {
    engine: &'a dyn Engine,
    point: Point,
    found: HashMap<(u32, u32), u64, foldhash::fast::RandomState>,
}

impl Ends<'_> {
    fn of(&mut self, topic: &Topic, queue: u32) -> Result<u64> {
        let key = (topic.id, queue);
        if let Some(end) = self.found.get(&key) {
            return Ok(*end);
        }
        let end = self.engine.offset_at(topic, queue, self.point)?;
        self.found.insert(key, end);
        Ok(end)
    }
}

impl Consumers {
    /// Saves the progress of all groups, but not past the durable end of the log. In a shared
    /// store, that of all processes. Durable on return.
    pub(super) fn save_progress(&self) -> Result<()> {
        if let Some(occupation) = self.found_occupation()? {
            let rows = |saved: &OffsetTable| self.progress_of_all(&occupation, saved);
            return self.progress()?.save_shared(rows);
        }
        let engine = &*self.handle.engine;
        let durable = match planted(Bug::CommitAhead) {
            true => u64::MAX,
            false => engine.durable_position(),
        };
        let beside = self.progress()?.beside(durable);
        let mut progress = self.progress_here(beside);
        // Groups read the same queues.
        let mut ends = Ends {
            engine,
            point: Point::Position(durable),
            found: HashMap::default(),
        };
        for (topic, of) in &mut progress {
            for (queue, committed) in &mut of.offsets {
                *committed = ends.of(topic, *queue)?.min(*committed);
            }
        }
        // Progress past a message that was not handled is durable only after its successor. One
        // that is settled from here on is not in `progress`.
        let sent_back = self.sent_back.load(Ordering::Acquire);
        if sent_back > engine.durable_position() && !planted(Bug::ForgetSuccessors) {
            engine.flush(&mut || true)?;
        }
        let progress = progress.into_iter().map(|(_, of)| of);
        self.progress()?.save(progress.collect())
    }

    /// The progress of the groups of this process in each topic. If the log came back shorter,
    /// there is none, so that the next opening notices it too.
    fn progress_here(&self, log: Saved) -> Vec<(Arc<Topic>, GroupProgress)> {
        let mut progress: Vec<(Arc<Topic>, GroupProgress)> = Vec::new();
        let groups: Vec<Arc<Group>> = self.groups.lock().values().cloned().collect();
        for group in groups {
            let mut shrunk = Vec::new();
            let first = progress.len();
            group.each_lane(|lane| {
                let is = lane.progress();
                if is.is_shrunk {
                    shrunk.push(lane.topic.id);
                }
                let next = (lane.queue, is.committed);
                // The lanes of a topic follow one another.
                let last = progress.get_mut(first..).and_then(<[_]>::last_mut);
                match last.filter(|(topic, _)| topic.id == lane.topic.id) {
                    Some((_, of)) => of.offsets.push(next),
                    None => progress.push((
                        Arc::clone(&lane.topic),
                        GroupProgress {
                            topic: lane.topic.name.clone(),
                            group: group.name.clone(),
                            offsets: vec![next],
                            log,
                        },
                    )),
                }
            });
            if !shrunk.is_empty() {
                let is_own = |of: &GroupProgress| of.group == group.name;
                progress.retain(|(topic, of)| !(is_own(of) && shrunk.contains(&topic.id)));
            }
        }
        progress
    }

    /// The progress of all groups in all processes, without what is `saved` already. On return the
    /// log is durable up to all of it, and so are the successors of messages that any process has
    /// not handled.
    fn progress_of_all(
        &self,
        occupation: &Occupation,
        saved: &OffsetTable,
    ) -> Result<Vec<GroupProgress>> {
        let mut progress: Vec<GroupProgress> = Vec::new();
        for (of, rows) in occupation.by_topic()? {
            let known = saved.offsets(&of.topic, &of.group);
            let committed = |row: u32| occupation.table().row(row).fence().committed;
            let rows = rows.into_iter();
            let offsets = rows.map(|(queue, row)| (queue, committed(row)));
            let is_new = |(queue, next): &(u32, u64)| {
                let known = known.and_then(|known| known.get(&i64::from(*queue)));
                known != Some(&next.cast_signed())
            };
            let offsets: Vec<_> = offsets.filter(is_new).collect();
            if !offsets.is_empty() {
                progress.push(GroupProgress {
                    topic: of.topic,
                    group: of.group,
                    offsets,
                    log: Saved::AsBefore,
                });
            }
        }
        occupation.table().check()?;
        if progress.is_empty() {
            return Ok(progress);
        }
        let durable = self.handle.engine.flush(&mut || true)?;
        let log = self.log()?;
        let beside = log
            .as_ref()
            .map_or(Saved::Beside(None), |log| log.beside(durable));
        progress.iter_mut().for_each(|it| it.log = beside);
        // If the log came back shorter, the next opening must notice it too.
        let mut whole = Vec::new();
        for it in progress {
            let place = saved.place(&it.topic, &it.group);
            let place = place.map(|of| (of.epoch, of.began_ns, of.position));
            let cut = log.as_ref().zip(place);
            let cut = cut.and_then(|(log, place)| log.epochs.intact_until(place, log.durable));
            if cut.is_none_or(|cut| it.offsets.iter().all(|next| self.is_left(&it, *next, cut))) {
                whole.push(it);
            }
        }
        Ok(whole)
    }

    /// Whether an offset is one of the log below `cut`.
    fn is_left(&self, of: &GroupProgress, (queue, offset): (u32, u64), cut: u64) -> bool {
        let engine = &*self.handle.engine;
        let Some(topic) = engine.topics().get(&of.topic) else {
            return false;
        };
        let end = engine.offset_at(&topic, queue, Point::Position(cut));
        end.is_ok_and(|end| offset <= end)
    }
}
