//! How far groups have consumed, according to RocketMQ's `config/consumerOffset.json`.

use crate::engine::commit_log::parts::Parts;
use crate::engine::directory::names;
use crate::engine::service::hold::Hold;
use crate::engine::{Damage, DamageKind};
use crate::error::Result;
use crate::table::Loaded;
use crate::table::offsets::{self, OffsetTable};
use std::path::PathBuf;
use std::sync::Arc;

/// Holds what some group has not consumed yet.
#[derive(Debug)]
pub(super) struct Unconsumed {
    /// The store.
    pub(super) parts: Arc<Parts>,
}

impl Hold for Unconsumed {
    /// The position up to which all groups have consumed the log; `u64::MAX` if no group is known.
    ///
    /// If the table exists but cannot be read, nothing counts as consumed: the result is 0, and the
    /// file is reported.
    fn keep_from(&self) -> Result<u64> {
        let parts = &*self.parts;
        let path = parts.root.join(names::CONFIG).join(offsets::FILE_NAME);
        let table = match OffsetTable::load(&*parts.disk, &path)? {
            Loaded::Nothing => return Ok(u64::MAX),
            Loaded::Damaged(path, _) => {
                let kind = DamageKind::ForeignTable;
                return Ok(keep_all(parts, path, kind, "offsets"));
            }
            Loaded::Table(table) => table,
        };
        let mut consumed = u64::MAX;
        for (topic, _, queue, offset) in table.all() {
            let Some(topic) = parts.topics.get(topic) else {
                continue;
            };
            let Some(queue) = parts.queues.get(&topic, queue)? else {
                continue;
            };
            // The offset of a group that has not begun is -1.
            let offset = u64::try_from(offset).unwrap_or(0);
            if let Some(position) = queue.position_from(offset)? {
                consumed = consumed.min(position);
            }
        }
        Ok(consumed)
    }
}

/// Reports that the file is not a valid table, and returns the position up to which messages may be
/// deleted then.
pub(super) fn keep_all(parts: &Parts, path: PathBuf, kind: DamageKind, of: &str) -> u64 {
    parts.report.add(Damage {
        kind,
        path,
        position: 0,
        length: 0,
        reason: format!("not a table of {of}: retention keeps all messages"),
        lost: Vec::new(),
    });
    0
}
