//! Messages that were durable according to the checkpoint of recovery points and are missing. The
//! checkpoint is nearly the only trace of a log file that was emptied, and the only one of a
//! removed folder or of a log file that was cut or removed at the end of its partition.

use super::PartitionLog;
use super::folder::View;
use super::partition::Partition;
use super::segments::emptied::{had_messages, has_data};
use super::segments::segment::Segment;
use super::write::files::{RECOVERY_POINT, read_checkpoint};
use super::write::gone;
use crate::engine::{Damage, DamageKind, Report};
use crate::error::Result;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

/// Offsets up to which partitions were durable.
pub(super) struct Promised {
    path: PathBuf,
    ends: Vec<(String, u32, u64)>,
}

/// A place where durable messages are missing.
pub(super) struct Missing {
    pub(super) damage: Damage,
    /// The partition, unless all of it is missing, and the offsets of the messages.
    lost: Option<(Arc<Partition>, Range<u64>)>,
}

impl Missing {
    /// Reports it, with the messages that are lost.
    pub(super) fn tell(self, report: &Report) {
        match self.lost {
            Some((partition, lost)) => partition.report(report, self.damage, lost),
            None => report.add(self.damage),
        }
    }
}

impl Promised {
    /// Reads the checkpoint. It must be read before the partitions of a live writer: both grow.
    pub(super) fn read(engine: &PartitionLog) -> Result<Promised> {
        let path = engine.root.join(RECOVERY_POINT);
        let ends = read_checkpoint(engine.disk(), &path)?;
        Ok(Promised { path, ends })
    }

    /// The places where durable messages are missing.
    pub(super) fn missing(&self, engine: &PartitionLog) -> Result<Vec<Missing>> {
        let (mut missing, mut gone) = (Vec::new(), Vec::new());
        for (name, queue, durable) in self.ends.iter().filter(|it| it.2 > 0) {
            let topic = engine.topics.get(name);
            let partition = topic.and_then(|topic| engine.partition(&topic, *queue));
            match partition {
                Some(partition) => of_partition(engine, &partition, *durable, &mut missing)?,
                None => gone.push((name, *queue, *durable)),
            }
        }
        if !gone.is_empty() {
            // A broker that deletes a partition removes its line after its folder.
            let now = read_checkpoint(engine.disk(), &self.path)?;
            gone.retain(|it| now.iter().any(|line| (&line.0, line.1) == (it.0, it.1)));
        }
        let gone = gone.into_iter();
        missing.extend(gone.map(|(name, queue, end)| Missing {
            damage: gone::damage(&engine.root, (name, queue), end),
            lost: None,
        }));
        Ok(missing)
    }
}

/// Adds what is missing of a partition that was durable up to an offset.
fn of_partition(
    engine: &PartitionLog,
    partition: &Arc<Partition>,
    durable: u64,
    missing: &mut Vec<Missing>,
) -> Result<()> {
    let view = partition.folder.view(engine.disk(), None)?;
    let mut add = |path, bytes, reason: String, lost: Range<u64>| {
        missing.push(Missing {
            damage: Damage::new(DamageKind::Log, path, bytes, reason),
            lost: Some((Arc::clone(partition), lost)),
        });
    };
    let mut end = view.end;
    let last = view.end.max(durable);
    let nexts = view.segments.iter().skip(1).map(|it| it.base);
    for (segment, next) in view.segments.iter().zip(nexts.chain([last])) {
        let lost = segment.base.max(view.bounds.start)..next;
        if segment.base < durable
            && !lost.is_empty()
            // It may be removed or replaced meanwhile. If it cannot be read, its readers report
            // that.
            && is_emptied(engine, partition, (&view, segment)).unwrap_or(false)
        {
            let reason = format!(
                "the file has no data; offsets {} to {} may have been in it",
                lost.start,
                lost.end - 1
            );
            end = end.max(next);
            add(segment.path.clone(), 0..segment.len, reason, lost);
        }
    }
    if end < durable {
        let (path, len) = match view.segments.last() {
            Some(last) => (last.path.clone(), last.len),
            None => (partition.folder.path().to_owned(), 0),
        };
        let reason = format!("the partition ends at offset {end}, but was durable up to {durable}");
        add(path, len..len, reason, end..durable);
    }
    Ok(())
}

/// Whether a segment in which messages were durable has lost them all.
fn is_emptied(
    engine: &PartitionLog,
    partition: &Partition,
    (view, segment): (&View, &Arc<Segment>),
) -> Result<bool> {
    let disk = engine.disk();
    if has_data(disk, segment)? {
        return Ok(false);
    }
    // Compaction empties only complete segments, so an emptied last segment had messages. The view
    // of a writer omits an empty segment after it, so that file is checked, too.
    let is_last = view.segments.last() == Some(segment)
        && match &partition.folder.ends {
            Some(ends) => disk.stat(&ends.path_of(ends.end().base))?.is_none(),
            None => true,
        };
    Ok(is_last || had_messages(disk, segment)?)
}
