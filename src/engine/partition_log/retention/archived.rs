//! How far each queue is archived, according to `forebay.archived`, which `forebay.archive` writes.
//!
//! ```text
//! {"targets":{"/mnt/archive/log":{"orders-0":4711,"orders-1":4690},"s3://bucket/log":{}}}
//! ```
//!
//! A value is the offset up to which the archive has the queue.

use crate::disk::Disk;
use crate::engine::service::hold::Kept;
use crate::error::Result;
use crate::table::{Loaded, TABLE_LEN_MAX, json, load};
use serde_json::{Map, Value};
use std::path::Path;

/// Name of the file.
pub const NOTE: &str = "forebay.archived";

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
    let path = root.join(NOTE);
    let targets = match load(disk, &path, TABLE_LEN_MAX, json::object)? {
        Loaded::Nothing => Some(Map::new()),
        Loaded::Table(mut table) => match table.remove("targets") {
            Some(Value::Object(targets)) => Some(targets),
            _ => None,
        },
        Loaded::Damaged(..) => None,
    };
    let Some(targets) = targets else {
        return Ok(None);
    };
    let least = |topic: &str, queue: u32| {
        let name = format!("{topic}-{queue}");
        let offset = |target: &Value| target.get(&name).and_then(Value::as_u64).unwrap_or(0);
        targets.values().map(offset).min().unwrap_or(0)
    };
    let kept = queues.map(|(topic, queue)| ((topic.into(), queue), least(topic, queue)));
    Ok(Some(kept.collect()))
}
