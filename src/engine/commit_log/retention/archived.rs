//! How far the log is archived, by `forebay.archived`, which `forebay.archive` writes.
//!
//! ```text
//! {"targets":{"/mnt/archive/events":3221225472,"s3://bucket/events":2147483648}}
//! ```
//!
//! A value is the position below which the archive has all that the store had.

use super::consumed::{Found, keep_all, read};
use crate::engine::DamageKind;
use crate::engine::commit_log::parts::Parts;
use crate::error::Result;
use serde_json::Value;

/// Name of the file.
const NOTE: &str = "forebay.archived";

/// The position below which every archive has the log: 0 where none is known, and where the file
/// cannot be read, which the report then names.
pub(super) fn archived_to(parts: &Parts) -> Result<u64> {
    let path = parts.root.join(NOTE);
    let targets = match read(parts, &path)? {
        Found::Nothing => return Ok(0),
        Found::Table(mut table) => match table.get_mut("targets").map(Value::take) {
            Some(Value::Object(targets)) => Some(targets),
            _ => None,
        },
        Found::Damaged => None,
    };
    let Some(targets) = targets else {
        return Ok(keep_all(parts, path, DamageKind::Table, "archives"));
    };
    let positions = targets.values().map(|value| value.as_u64().unwrap_or(0));
    Ok(positions.min().unwrap_or(0))
}
