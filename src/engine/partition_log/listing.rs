//! Which partitions a log directory has, and where its broker says that they begin.

use super::PartitionLog;
use super::folder::TICK_MS;
use super::partition::Partition;
use super::segments::names::{self, CHECKPOINT_LEN_MAX};
use super::write::tables;
use crate::clock::{Clock, RealClock};
use crate::disk::read_small;
use crate::engine::{Damage, DamageKind, Topic};
use crate::error::Result;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl PartitionLog {
    /// Finds partitions that were added or deleted. Every use of a topic calls this, and the
    /// directory may have thousands of folders, so it is listed only if it has changed. Checkpoints
    /// that a broker replaces change it too.
    pub(super) fn update(&self) -> Result<()> {
        if let Some(writer) = &self.writer {
            let mut add = |topic: &Arc<Topic>, queue, ends| self.add(topic, queue, ends);
            return writer.adopt(&self.topics, &mut add);
        }
        let mut listed = self.listed.lock();
        let modified = self.disk().modified_ms(&self.root)?;
        if modified.is_some() && modified == *listed {
            return Ok(());
        }
        let now = RealClock.now_ms();
        self.find_partitions()?;
        *listed = modified.filter(|time| *time < now.saturating_sub(TICK_MS));
        Ok(())
    }

    fn find_partitions(&self) -> Result<()> {
        let mut named = names::partitions(self.disk(), &self.root)?;
        named.sort_unstable();
        let mut known = self.partitions.write();
        let is_known = |name: &str, queue: u32| {
            let topic = self.topics.get(name);
            topic.is_some_and(|topic| known.contains_key(&(topic.id, queue)))
        };
        let mut whole = Vec::with_capacity(named.len());
        for of_topic in named.chunk_by(|one, other| one.0 == other.0) {
            whole.extend_from_slice(self.without_unfinished(of_topic, is_known)?);
        }
        self.read_starts(&whole)?;
        let mut found = BTreeMap::new();
        for of_topic in whole.chunk_by(|one, other| one.0 == other.0) {
            let Some((name, last)) = of_topic.last() else {
                continue;
            };
            self.topics
                .get_or_fill(name, last.saturating_add(1), |topic| {
                    for (name, queue) in of_topic {
                        let key = (topic.id, *queue);
                        let partition = known.remove(&key).unwrap_or_else(|| {
                            let folder = self.root.join(format!("{name}-{queue}"));
                            Arc::new(Partition::new(name, *queue, folder))
                        });
                        found.insert(key, partition);
                    }
                });
        }
        let gone = known.values().map(|partition| partition.folder.seen());
        self.gone.fetch_add(gone.sum(), Ordering::Relaxed);
        *known = found;
        Ok(())
    }

    /// The partitions of a topic, in order, without those that are being made: a writer makes empty
    /// folders, the last one first. Another broker may have the partitions that a topic lacks.
    fn without_unfinished<'a>(
        &self,
        of_topic: &'a [(String, u32)],
        is_known: impl Fn(&str, u32) -> bool,
    ) -> Result<&'a [(String, u32)]> {
        let begin = (0..).zip(of_topic).take_while(|(at, it)| *at == it.1);
        let begin = begin.count();
        let mut end = of_topic.len();
        while let Some((name, queue)) = of_topic.get(begin..end).and_then(<[_]>::last) {
            let folder = self.root.join(format!("{name}-{queue}"));
            if is_known(name, *queue) || !names::entries(self.disk(), &folder)?.is_empty() {
                break;
            }
            end -= 1;
        }
        Ok(of_topic.get(..end).unwrap_or_default())
    }

    /// Reads the first offsets of these partitions from the broker's checkpoint.
    fn read_starts(&self, whole: &[(String, u32)]) -> Result<()> {
        let path = self.root.join(names::LOG_START);
        let bytes = match read_small(self.disk(), &path, CHECKPOINT_LEN_MAX) {
            Err(error) if error.kind() == Some(ErrorKind::InvalidData) => {
                let damage = Damage::new(DamageKind::ForeignTable, path, 0..0, error);
                self.shared.report.add(damage);
                return self.starts_by_epochs(whole);
            }
            read => read?,
        };
        let Some(bytes) = bytes else {
            self.starts.write().clear();
            return Ok(());
        };
        // The checkpoint may name any number of other partitions.
        let named: HashSet<(&str, u32)> = whole.iter().map(|it| (&*it.0, it.1)).collect();
        let mut starts = HashMap::new();
        let parsed = names::each_start(&bytes, &mut |name, queue, start| {
            if named.contains(&(name, queue)) {
                starts.insert((name.to_owned(), queue), start);
            }
        });
        match parsed {
            Ok(()) => {
                if let Some(reason) = tables::limit_starts(self.disk(), &self.root, &mut starts)? {
                    let bytes = 0..bytes.len() as u64;
                    let damage = Damage::new(DamageKind::ForeignTable, path, bytes, reason);
                    self.shared.report.add(damage);
                }
                *self.starts.write() = starts;
            }
            Err(reason) => {
                let bytes = 0..bytes.len() as u64;
                let damage = Damage::new(DamageKind::ForeignTable, path, bytes, reason);
                self.shared.report.add(damage);
                return self.starts_by_epochs(whole);
            }
        }
        Ok(())
    }

    /// Takes first offsets from tables of epochs. What is known already is not forgotten.
    fn starts_by_epochs(&self, of: &[(String, u32)]) -> Result<()> {
        let found = tables::starts_by_epochs(self.disk(), &self.root, of)?;
        let mut starts = self.starts.write();
        for (key, start) in found {
            starts.entry(key).or_insert(start);
        }
        Ok(())
    }
}
