//! How far groups have consumed, by RocketMQ's `config/consumerOffset.json`.
//!
//! ```text
//! {"dataVersion":{...},"offsetTable":{"topic@group":{0:5,1:7}}}
//! ```
//!
//! A value is the next queue offset that the group consumes.

use crate::disk::{Kind, read_small};
use crate::engine::commit_log::parts::Parts;
use crate::engine::commit_log::tables::inventory::TABLE_LEN_MAX;
use crate::engine::commit_log::tables::json;
use crate::engine::directory::names;
use crate::engine::{Damage, DamageKind};
use crate::error::{Error, Op, Result};
use serde_json::Value;
use std::path::{Path, PathBuf};

/// The position up to which every group has consumed all that the log holds for it; `u64::MAX`
/// where nothing is known of any group.
///
/// Where the table is there and cannot be read, nothing counts as consumed: 0, and the report names
/// the file.
pub(super) fn consumed_to(parts: &Parts) -> Result<u64> {
    let path = parts.root.join(names::CONFIG).join("consumerOffset.json");
    let backup = parts
        .root
        .join(names::CONFIG)
        .join("consumerOffset.json.bak");
    let table = match read(parts, &path)? {
        Found::Table(table) => table,
        other => match (read(parts, &backup)?, other) {
            (Found::Table(table), _) => table,
            (Found::Nothing, Found::Nothing) => return Ok(u64::MAX),
            _ => return Ok(keep_all(parts, path, DamageKind::ForeignTable, "offsets")),
        },
    };
    let mut consumed = u64::MAX;
    let groups = table.get("offsetTable").and_then(Value::as_object);
    for (name, queues) in groups.into_iter().flatten() {
        let topic = name.split_once('@').map_or(&**name, |(topic, _)| topic);
        let Some(topic) = parts.topics.get(topic) else {
            continue;
        };
        for (queue, offset) in queues.as_object().into_iter().flatten() {
            let queue = queue.parse().ok();
            let Some(queue) = queue.and_then(|queue| parts.queues.get(&topic, queue)) else {
                continue;
            };
            // A group that has not begun has -1.
            let offset = offset.as_u64().unwrap_or(0);
            if let Some(position) = queue.position_from(offset)? {
                consumed = consumed.min(position);
            }
        }
    }
    Ok(consumed)
}

/// Reports that the file is no table of these. The position up to which messages may go then.
pub(super) fn keep_all(parts: &Parts, path: PathBuf, kind: DamageKind, of: &str) -> u64 {
    parts.report.add(Damage {
        kind,
        path,
        position: 0,
        length: 0,
        reason: format!("it is no table of {of}: retention keeps all messages"),
        lost: Vec::new(),
    });
    0
}

/// What a table of JSON is.
pub(super) enum Found {
    Nothing,
    Damaged,
    Table(Value),
}

/// Reads a table that is a JSON object.
pub(super) fn read(parts: &Parts, path: &Path) -> Result<Found> {
    let looked = parts.disk.stat(path);
    let there = looked.map_err(|e| Error::io(Op::Stat, path, e))?;
    if there.is_none() {
        return Ok(Found::Nothing);
    }
    if there.is_some_and(|entry| entry.kind != Kind::File || entry.len > TABLE_LEN_MAX) {
        return Ok(Found::Damaged);
    }
    let bytes = read_small(&*parts.disk, path, TABLE_LEN_MAX);
    let bytes = bytes.map_err(|e| Error::io(Op::Read, path, e))?;
    let value = bytes.and_then(|bytes| json::parse(&bytes));
    Ok(match value.filter(Value::is_object) {
        Some(table) => Found::Table(table),
        None => Found::Damaged,
    })
}
