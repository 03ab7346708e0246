//! How far each queue is archived, according to the [table of archives](crate::table::archives).

use crate::disk::Disk;
use crate::engine::service::hold::Kept;
use crate::error::Result;
use crate::table::Loaded;
use crate::table::archives::load_targets;
use serde_json::Value;
use std::path::Path;

/// For each of these queues, the offset from which messages are missing in some archive: 0 if there
/// is no archive. `None` if the file is not such a table.
///
/// # Errors
///
/// Those of reading.
pub fn unarchived<'a>(
    disk: &dyn Disk,
    root: &Path,
    queues: impl Iterator<Item = (&'a str, u32)>,
) -> Result<Option<Kept>> {
    let targets = match load_targets(disk, root)? {
        Loaded::Nothing | Loaded::Damaged(..) => return Ok(None),
        Loaded::Table(targets) => targets,
    };
    let least = |topic: &str, queue: u32| {
        let name = format!("{topic}-{queue}");
        let offset = |target: &Value| target.get(&name).and_then(Value::as_u64).unwrap_or(0);
        targets.values().map(offset).min().unwrap_or(0)
    };
    let kept = queues.map(|(topic, queue)| ((topic.into(), queue), least(topic, queue)));
    Ok(Some(kept.collect()))
}
