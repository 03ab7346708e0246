//! How far the log is archived, according to `forebay.archived`, which `forebay.archive` writes.
//!
//! ```text
//! {"targets":{"/mnt/archive/events":3221225472,"s3://bucket/events":2147483648}}
//! ```
//!
//! A value is the position up to which the archive has everything that the store had.

use super::consumed::keep_all;
use crate::engine::DamageKind;
use crate::engine::commit_log::parts::Parts;
use crate::engine::service::hold::Hold;
use crate::error::Result;
use crate::table::{Loaded, TABLE_LEN_MAX, json, load};
use serde_json::Value;
use std::sync::Arc;

/// Name of the file.
const NOTE: &str = "forebay.archived";

/// Holds what is not in every archive.
#[derive(Debug)]
pub(super) struct Unarchived {
    /// The store.
    pub(super) parts: Arc<Parts>,
}

impl Hold for Unarchived {
    /// The position up to which every archive has the log: 0 if there is no archive, or if the file
    /// cannot be read, which is then reported.
    fn keep_from(&self) -> Result<u64> {
        let path = self.parts.root.join(NOTE);
        let targets = match load(&*self.parts.disk, &path, TABLE_LEN_MAX, json::object)? {
            Loaded::Nothing => return Ok(0),
            Loaded::Table(mut table) => match table.remove("targets") {
                Some(Value::Object(targets)) => Some(targets),
                _ => None,
            },
            Loaded::Damaged(..) => None,
        };
        let Some(targets) = targets else {
            return Ok(keep_all(&self.parts, path, DamageKind::Table, "archives"));
        };
        let positions = targets.values().map(|value| value.as_u64().unwrap_or(0));
        Ok(positions.min().unwrap_or(0))
    }
}
