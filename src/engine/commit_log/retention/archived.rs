//! How far the log is archived, according to the [table of archives](crate::table::archives).

use super::consumed::keep_all;
use crate::engine::DamageKind;
use crate::engine::commit_log::parts::Parts;
use crate::engine::service::hold::Hold;
use crate::error::Result;
use crate::table::Loaded;
use crate::table::archives::{self, load_targets};
use std::sync::Arc;

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
        let root = &self.parts.root;
        let targets = match load_targets(&*self.parts.disk, root)? {
            Loaded::Nothing | Loaded::Damaged(..) => {
                let path = root.join(archives::FILE_NAME);
                return Ok(keep_all(&self.parts, path, DamageKind::Table, "archives"));
            }
            Loaded::Table(targets) => targets,
        };
        let positions = targets.values().map(|value| value.as_u64().unwrap_or(0));
        Ok(positions.min().unwrap_or(0))
    }
}
