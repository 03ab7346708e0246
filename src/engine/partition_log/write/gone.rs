//! Partitions that the checkpoint of recovery points names, and whose folders are gone.
//!
//! The offsets of their messages are never given again: the lines stay in the checkpoint, and a
//! partition that is made again begins where the old one ended.

use super::files::{self, Line, RECOVERY_POINT};
use crate::disk::Disk;
use crate::engine::partition_log::segments::names;
use crate::engine::{Damage, DamageKind, Report};
use crate::error::Result;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::Path;

/// The partitions whose folders are gone.
#[derive(Debug, Default)]
pub struct Gone {
    /// Topic and queue, and the offset up to which the partition was durable.
    ends: BTreeMap<(String, u32), u64>,
    /// Topics with folders that the checkpoint does not name. No checksum covers its lines, so a
    /// damaged line may be about one of these folders.
    doubted: BTreeSet<String>,
}

impl Gone {
    /// The partitions that these lines of the checkpoint name and that have no folder. `there`: the
    /// partitions that have one.
    pub fn new(lines: impl Iterator<Item = (String, u32, u64)>, there: &[(String, u32)]) -> Gone {
        let have: HashSet<(&str, u32)> = there.iter().map(|it| (&*it.0, it.1)).collect();
        let (mut gone, mut named) = (Gone::default(), HashSet::new());
        for (topic, queue, end) in lines {
            named.insert((topic.clone(), queue));
            let folder = format!("{topic}-{queue}");
            // A partition that was empty has lost nothing with its folder.
            let is_meant = end > 0 && names::partition_of(&folder).is_some();
            if is_meant && !have.contains(&(&*topic, queue)) {
                gone.ends.insert((topic, queue), end);
            }
        }
        if !gone.ends.is_empty() {
            let unnamed = there.iter().filter(|it| !named.contains(*it));
            gone.doubted = unnamed.map(|it| it.0.clone()).collect();
        }
        gone
    }

    /// The partitions that are gone from a directory that other processes may write.
    ///
    /// # Errors
    ///
    /// Those of reading.
    pub fn find(disk: &dyn Disk, root: &Path) -> Result<Gone> {
        // Read before the folders: a folder exists before the checkpoint names it.
        let lines = files::read_checkpoint(disk, &root.join(RECOVERY_POINT))?;
        let there = names::partitions(disk, root)?;
        Ok(Gone::new(lines.into_iter(), &there))
    }

    /// The damage to report for these partitions.
    pub fn damage(&self, root: &Path) -> Vec<Damage> {
        let ends = self.ends.iter();
        ends.map(|((topic, queue), end)| damage(root, (topic, *queue), *end))
            .collect()
    }

    /// Reports that damage.
    pub fn tell(&self, root: &Path, report: &Report) {
        self.damage(root).into_iter().for_each(|it| report.add(it));
    }

    /// The first offset of a partition that is made again.
    pub fn begin_of(&self, topic: &str, queue: u32) -> u64 {
        let end = self.ends.get(&(topic.to_owned(), queue));
        end.copied().unwrap_or_default()
    }

    /// The number of queues of a topic with `others` queues, counting those after them that are
    /// gone.
    pub fn queues_of(&self, topic: &str, others: u32) -> u32 {
        let mut queues = others;
        if !self.doubted.contains(topic) {
            while self.begin_of(topic, queues) > 0 {
                queues += 1;
            }
        }
        queues
    }

    /// Adds the lines of the partitions that were not made again.
    pub fn add_to<'a>(&'a self, lines: &mut Vec<Line<'a>>) {
        if self.ends.is_empty() {
            return;
        }
        let made: HashSet<(&str, u32)> = lines.iter().map(|it| (it.0, it.1)).collect();
        let ends = self.ends.iter().map(|(key, end)| (&*key.0, key.1, *end));
        let left: Vec<_> = ends.filter(|it| !made.contains(&(it.0, it.1))).collect();
        lines.extend(left);
    }
}

/// The damage of a partition without log files that was durable up to the offset `end`.
pub fn damage(root: &Path, (topic, queue): (&str, u32), end: u64) -> Damage {
    let what = format!("the partition was durable up to {end}, but has no log file");
    let folder = root.join(format!("{topic}-{queue}"));
    Damage::new(DamageKind::Log, folder, 0..0, what)
}

#[cfg(test)]
mod test {
    use super::*;

    /// A damaged line may name a queue that never was.
    #[test]
    fn queues_are_counted_unless_a_line_may_mean_another_partition() {
        let lines = [
            ("t", 0, 7),
            ("t", 1, 5),
            ("t", 2, 0),
            ("u", 0, 3),
            ("../x", 0, 3),
        ];
        let lines = lines.map(|(topic, queue, end)| (topic.to_owned(), queue, end));
        let gone = |there: &[(&str, u32)]| {
            let there: Vec<_> = there.iter().map(|it| (it.0.to_owned(), it.1)).collect();
            Gone::new(lines.clone().into_iter(), &there)
        };
        let found = gone(&[("t", 0)]);
        assert_eq!((found.begin_of("t", 0), found.begin_of("t", 1)), (0, 5));
        assert_eq!((found.queues_of("t", 1), found.queues_of("u", 0)), (2, 1));
        assert_eq!(found.damage(Path::new("/s")).len(), 2);
        let mut all = vec![("t", 0, 7), ("u", 0, 4)];
        found.add_to(&mut all);
        assert_eq!(all, [("t", 0, 7), ("u", 0, 4), ("t", 1, 5)]);
        let doubted = gone(&[("t", 0), ("t", 3)]);
        assert_eq!(
            (doubted.queues_of("t", 1), doubted.begin_of("t", 1)),
            (1, 5)
        );
    }
}
