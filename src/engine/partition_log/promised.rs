//! The ends that partitions had when they were durable, by the checkpoint of recovery points: a log
//! file that was cut or removed at the end leaves no other trace, nor does a folder.

use super::PartitionLog;
use super::write::files::{RECOVERY_POINT, read_checkpoint};
use super::write::gone;
use crate::engine::{Damage, DamageKind};
use crate::error::Result;
use std::path::PathBuf;

/// Offsets up to which partitions were durable.
pub(super) struct Promised {
    path: PathBuf,
    ends: Vec<(String, u32, u64)>,
}

impl Promised {
    /// Reads the checkpoint. A writer's partitions must be looked at afterwards: they grow.
    pub(super) fn read(engine: &PartitionLog) -> Result<Promised> {
        let path = engine.root.join(RECOVERY_POINT);
        let ends = read_checkpoint(engine.disk(), &path)?;
        Ok(Promised { path, ends })
    }

    /// The partitions that end before that, or are missing.
    pub(super) fn missing(&self, engine: &PartitionLog) -> Result<Vec<Damage>> {
        let (mut damage, mut gone) = (Vec::new(), Vec::new());
        for (name, queue, durable) in self.ends.iter().filter(|it| it.2 > 0) {
            let topic = engine.topics.get(name);
            let partition = topic.and_then(|topic| engine.partition(&topic, *queue));
            let Some(partition) = partition else {
                gone.push((name, *queue, *durable));
                continue;
            };
            let view = engine.view(&partition)?;
            if view.end >= *durable {
                continue;
            }
            let (path, len) = match view.segments.last() {
                Some(last) => (last.path.clone(), last.len),
                None => (engine.root.join(format!("{name}-{queue}")), 0),
            };
            let end = view.end;
            let reason =
                format!("the partition ends at offset {end}, and was durable up to {durable}");
            damage.push(Damage::new(DamageKind::Log, path, len..len, reason));
        }
        if !gone.is_empty() {
            // A broker that deletes a partition removes its line after its folder.
            let now = read_checkpoint(engine.disk(), &self.path)?;
            gone.retain(|it| now.iter().any(|line| (&line.0, line.1) == (it.0, it.1)));
        }
        let gone = gone.into_iter();
        damage
            .extend(gone.map(|(name, queue, end)| gone::damage(&engine.root, (name, queue), end)));
        Ok(damage)
    }
}
