//! Which partitions a log directory has, and where its broker says that they begin.

use super::PartitionLog;
use super::folder::TICK_MS;
use super::partition::Partition;
use super::segments::names;
use crate::clock::{Clock, RealClock};
use crate::disk::read_small;
use crate::engine::{Damage, DamageKind, Topic};
use crate::error::Result;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Longest checkpoint file that is read.
const CHECKPOINT_LEN_MAX: u64 = 64 << 20;

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
        let named = names::partitions(self.disk(), &self.root)?;
        self.read_starts(&named)?;
        let mut known = self.partitions.write();
        let mut found = BTreeMap::new();
        for (name, queue) in named {
            let (topic, _) = self.topics.get_or_add(&name, queue.saturating_add(1));
            if topic.write_queues() <= queue {
                let queues = queue.saturating_add(1);
                topic.configure(queues, queues, topic.permissions());
            }
            let partition = known.remove(&(topic.id, queue)).unwrap_or_else(|| {
                let folder = self.root.join(format!("{name}-{queue}"));
                Arc::new(Partition::new(&name, queue, folder))
            });
            found.insert((topic.id, queue), partition);
        }
        let gone = known.values().map(|partition| partition.folder.seen());
        self.gone.fetch_add(gone.sum(), Ordering::Relaxed);
        *known = found;
        Ok(())
    }

    /// Reads the first offsets of these partitions from the broker's checkpoint.
    fn read_starts(&self, named: &[(String, u32)]) -> Result<()> {
        let path = self.root.join(names::LOG_START);
        let bytes = match read_small(self.disk(), &path, CHECKPOINT_LEN_MAX) {
            Err(error) if error.kind() == Some(ErrorKind::InvalidData) => {
                let damage = Damage::new(DamageKind::ForeignTable, path, 0..0, error);
                self.shared.report.add(damage);
                return Ok(());
            }
            read => read?,
        };
        let Some(bytes) = bytes else {
            self.starts.write().clear();
            return Ok(());
        };
        // The file may name any number of others.
        let named: HashSet<(&str, u32)> = named.iter().map(|it| (&*it.0, it.1)).collect();
        let mut starts = HashMap::new();
        let parsed = names::each_start(&bytes, &mut |name, queue, start| {
            if named.contains(&(name, queue)) {
                starts.insert((name.to_owned(), queue), start);
            }
        });
        match parsed {
            Ok(()) => *self.starts.write() = starts,
            Err(reason) => {
                let bytes = 0..bytes.len() as u64;
                let damage = Damage::new(DamageKind::ForeignTable, path, bytes, reason);
                self.shared.report.add(damage);
            }
        }
        Ok(())
    }
}
