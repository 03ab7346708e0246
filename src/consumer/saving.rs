//! Saves the progress of all groups, never ahead of the durable log.
//!
//! A thousand groups with a hundred queues each are saved every few seconds. So the queues of a
//! group are visited under its lock, without copying their list, and names are looked up once for
//! each group and topic.

use super::Consumers;
use super::group::Group;
use super::occupation::Occupation;
use super::progress::{GroupProgress, Known, Saved};
use crate::engine::directory::group_table::GroupTopic;
use crate::engine::directory::page::StatePage;
use crate::engine::service::fence::Fence;
use crate::engine::{Engine, Point, Topic};
use crate::error::Result;
use crate::interrupt;
use crate::plant::{Bug, planted};
use crate::region::Access;
use crate::table::offsets::{OffsetTable, Offsets};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

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

/// The queues of a group in a topic, in all processes: number, row of the table, and its epoch and
/// progress.
type Fences = Vec<(u32, u32, Fence)>;

impl Consumers {
    /// Saves the progress of all groups, but not past the durable end of the log. In a shared
    /// store, that of all processes. Durable on return, unless the caller has interrupted a wait.
    ///
    /// Waits for other writers of the table at most for `timeout`.
    pub(super) fn save_progress(&self, timeout: Duration) -> Result<()> {
        if let Some(occupation) = self.found_occupation()? {
            return self.save_shared(&occupation, timeout);
        }
        let engine = &*self.handle.engine;
        let flush = || match self.sent_back.load(Ordering::Acquire) > engine.durable_position() {
            true if !planted(Bug::ForgetSuccessors) => engine.flush(&mut || true).map(drop),
            _ => Ok(()),
        };
        // Flushing here usually leaves nothing to flush while the table is locked.
        flush()?;
        self.progress()?.save(timeout, || {
            let durable = match planted(Bug::CommitAhead) {
                true => u64::MAX,
                false => engine.durable_position(),
            };
            let beside = self.progress()?.beside(durable);
            let mut progress = self.progress_here(beside);
            // Groups may read the same queues, so their ends are looked up once.
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
            // Progress past a message that was not handled must not be durable before its
            // successor. `progress` does not include messages that are settled from here on.
            flush()?;
            Ok(progress.into_iter().map(|(_, of)| of).collect())
        })
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

    /// Saves the progress of all groups in all processes. The log is made durable up to all of it,
    /// and so are the successors of messages that any process has not handled. Another process may
    /// have to do that, so the table is unlocked meanwhile.
    fn save_shared(&self, occupation: &Occupation, timeout: Duration) -> Result<()> {
        let progress = self.progress()?;
        loop {
            let read = fences(occupation)?;
            let is_new = progress.peek(|saved| read.iter().any(|it| !is_saved(saved, it)))?;
            if !is_new {
                return Ok(());
            }
            let durable = self.handle.engine.flush(&mut || !interrupt::is_raised())?;
            if interrupt::is_raised() {
                return Ok(());
            }
            let mut is_moved = false;
            progress.put_shared(timeout, |saved| {
                let rows;
                (rows, is_moved) = rows_to_save(occupation, read, saved)?;
                self.whole(rows, saved, durable)
            })?;
            if !is_moved {
                return Ok(());
            }
        }
    }

    /// The progress with the log that it is saved with, which is durable up to `durable`. Leaves
    /// out groups whose log came back shorter, so that the next opening notices it too.
    fn whole(
        &self,
        progress: Vec<GroupProgress>,
        saved: &OffsetTable,
        durable: u64,
    ) -> Result<Vec<GroupProgress>> {
        if progress.is_empty() {
            return Ok(progress);
        }
        let log = self.log()?;
        let beside = log
            .as_ref()
            .map_or(Saved::Beside(None), |log| log.beside(durable));
        let mut whole = Vec::with_capacity(progress.len());
        for mut it in progress {
            it.log = beside;
            let place = saved.place(&it.topic, &it.group);
            let place = place.map(|of| (of.epoch, of.began_ns, of.position));
            let cut = log.as_ref().zip(place);
            let cut = cut.and_then(|(log, place)| log.epochs.intact_until(place, log.durable));
            if cut.map_or(Ok(true), |cut| self.is_left(&it, cut))? {
                whole.push(it);
            }
        }
        Ok(whole)
    }

    /// The log with which progress is saved.
    pub(super) fn log(&self) -> Result<Option<Known>> {
        let Some(place) = self.place.as_ref().filter(|place| !place.is_flat()) else {
            return Ok(None);
        };
        let page = StatePage::open(&*place.disk, place.root(), Access::Read)?;
        Ok(page.map(|page| Known {
            epochs: page.epochs(),
            durable: self.handle.engine.durable_position(),
        }))
    }

    /// Whether all offsets of a group are in the part of the log below `cut`.
    fn is_left(&self, of: &GroupProgress, cut: u64) -> Result<bool> {
        let engine = &*self.handle.engine;
        let Some(topic) = engine.topics().get(&of.topic) else {
            return Ok(false);
        };
        for (queue, offset) in &of.offsets {
            if *offset > engine.offset_at(&topic, *queue, Point::Position(cut))? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Epoch and progress of all queues in the table of groups.
fn fences(occupation: &Occupation) -> Result<Vec<(GroupTopic, Fences)>> {
    let table = occupation.table();
    let fence = |(queue, row): (u32, u32)| (queue, row, table.row(row).fence());
    let topics = occupation.by_topic()?.into_iter();
    let fences = topics.map(|(of, rows)| (of, rows.into_iter().map(fence).collect()));
    let fences = fences.collect();
    table.check().map(|()| fences)
}

fn is_saved(saved: &OffsetTable, (of, fences): &(GroupTopic, Fences)) -> bool {
    let saved = saved.offsets(&of.topic, &of.group);
    let mut fences = fences.iter();
    fences.all(|(queue, _, fence)| saved_of(saved, *queue) == Some(fence.committed))
}

/// The next offset in a queue; `None` if the group has not begun it.
fn saved_of(saved: Option<&Offsets>, queue: u32) -> Option<u64> {
    u64::try_from(*saved?.get(&i64::from(queue))?).ok()
}

/// The progress to be saved, of what was `read` a while ago, and whether some queues have changed
/// owners since. Those are left out: their progress may have been reset, which a save must not
/// undo.
fn rows_to_save(
    occupation: &Occupation,
    read: Vec<(GroupTopic, Fences)>,
    saved: &OffsetTable,
) -> Result<(Vec<GroupProgress>, bool)> {
    let mut is_moved = false;
    let mut progress = Vec::new();
    for (of, fences) in read {
        let (known, mut offsets) = (saved.offsets(&of.topic, &of.group), Vec::new());
        for (queue, row, before) in fences {
            let (now, stored) = (occupation.table().row(row).fence(), saved_of(known, queue));
            if stored == Some(before.committed) || stored == Some(now.committed) {
                continue;
            }
            if now.epoch != before.epoch {
                is_moved = true;
                continue;
            }
            // Another process may have saved progress that it read later.
            let later = before.committed..=now.committed;
            if stored.is_none_or(|stored| !later.contains(&stored)) {
                offsets.push((queue, before.committed));
            }
        }
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
    Ok((progress, is_moved))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod test {
    use super::*;
    use crate::consumer::occupation::Begun;
    use crate::disk::{Disk, RealDisk};
    use crate::engine::directory::group_table::{GroupTable, Peers};
    use crate::engine::service::fence;
    use std::collections::BTreeSet;

    struct Alone;

    impl Peers for Alone {
        fn slot(&self) -> u32 {
            1
        }

        fn is_alive(&self, _: u32) -> bool {
            false
        }
    }

    /// After the progress is read and before it is saved, the log is made durable, and other
    /// processes save progress that they read later, or reset a group.
    #[test]
    fn progress_that_was_read_a_while_ago_overwrites_nothing_newer() {
        let folder = tempfile::tempdir().unwrap();
        let disk: Arc<dyn Disk> = Arc::new(RealDisk);
        let table = GroupTable::create(&disk, folder.path(), Arc::new(Alone)).unwrap();
        let occupation = Occupation::new(Arc::new(table));
        let begun = (0..5).map(|queue| Begun {
            topic: "orders".into(),
            queue,
            committed: 10,
        });
        let (begun, topics) = (begun.collect::<Vec<_>>(), BTreeSet::from(["orders".into()]));
        occupation
            .join("billing", &topics, &begun, (1_000, None), 0)
            .unwrap();
        let row = |queue| {
            let row = occupation
                .find("billing", "orders", queue)
                .unwrap()
                .unwrap();
            occupation.table().row(row)
        };
        let settle =
            |queue, next| assert!(fence::advance(&row(queue), row(queue).fence().epoch, next));
        (0..5).for_each(|queue| settle(queue, 20));
        let read = fences(&occupation).unwrap();
        // Queue 0 does not move; more is settled in the others.
        (1..5).for_each(|queue| settle(queue, 30));
        let mut saved = OffsetTable::default();
        let stored = [(1, 5), (2, 25), (3, 30)];
        saved.set("orders", "billing", stored, None);
        occupation
            .reset(occupation.find("billing", "orders", 4).unwrap().unwrap(), 7)
            .unwrap();
        let (rows, is_moved) = rows_to_save(&occupation, read, &saved).unwrap();
        let offsets: Vec<_> = rows.iter().flat_map(|it| it.offsets.clone()).collect();
        assert_eq!(offsets, [(0, 20), (1, 20)]);
        assert!(is_moved);
        // A second pass saves the progress of the queue that was reset.
        let (rows, is_moved) =
            rows_to_save(&occupation, fences(&occupation).unwrap(), &saved).unwrap();
        let offsets: Vec<_> = rows.iter().flat_map(|it| it.offsets.clone()).collect();
        assert_eq!(offsets, [(0, 20), (1, 30), (2, 30), (4, 7)]);
        assert!(!is_moved);
    }
}
