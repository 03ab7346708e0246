//! The ends that partitions had when they were durable, by the checkpoint of recovery points: a log
//! file that was cut or removed at the end leaves no other trace.

use super::PartitionLog;
use super::write::files::{RECOVERY_POINT, read_checkpoint};
use crate::engine::{Damage, DamageKind};
use crate::error::Result;

/// Offsets up to which partitions were durable.
pub(super) struct Promised(Vec<(String, u32, u64)>);

impl Promised {
    /// Reads the checkpoint. A writer's partitions must be looked at afterwards: they grow.
    pub(super) fn read(engine: &PartitionLog) -> Result<Promised> {
        let path = engine.root.join(RECOVERY_POINT);
        read_checkpoint(engine.disk(), &path).map(Promised)
    }

    /// The partitions that end before that.
    pub(super) fn missing(&self, engine: &PartitionLog) -> Result<Vec<Damage>> {
        let mut damage = Vec::new();
        for (name, queue, durable) in &self.0 {
            let topic = engine.topics.get(name);
            let partition = topic.and_then(|topic| engine.partition(&topic, *queue));
            let Some(partition) = partition else { continue };
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
        Ok(damage)
    }
}
