//! How far the log is archived, by `forebay.archived`, which `forebay.archive` writes.
//!
//! ```text
//! {"targets":{"/mnt/archive/events":3221225472,"s3://bucket/events":2147483648}}
//! ```
//!
//! A value is the position below which the archive has all that the store had.

use super::consumed::keep_all;
use crate::engine::DamageKind;
use crate::engine::commit_log::parts::Parts;
use crate::error::Result;
use crate::table::{Loaded, TABLE_LEN_MAX, json, load};
use serde_json::Value;

/// Name of the file.
const NOTE: &str = "forebay.archived";

/// The position below which every archive has the log: 0 where none is known, and where the file
/// cannot be read, which the report then names.
pub(super) fn archived_to(parts: &Parts) -> Result<u64> {
    let path = parts.root.join(NOTE);
    let targets = match load(&*parts.disk, &path, TABLE_LEN_MAX, json::object)? {
        Loaded::Nothing => return Ok(0),
        Loaded::Table(mut table) => match table.remove("targets") {
            Some(Value::Object(targets)) => Some(targets),
            _ => None,
        },
        Loaded::Damaged(..) => None,
    };
    let Some(targets) = targets else {
        return Ok(keep_all(parts, path, DamageKind::Table, "archives"));
    };
    let positions = targets.values().map(|value| value.as_u64().unwrap_or(0));
    Ok(positions.min().unwrap_or(0))
}
