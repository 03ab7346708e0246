//! Verifies the small files beside the log.

use crate::disk::{Kind, read_small};
use crate::engine::commit_log::parts::Parts;
use crate::engine::commit_log::tables::inventory::{INVENTORY_NAME, Inventory};
use crate::engine::commit_log::tables::topics;
use crate::engine::directory::kept_options;
use crate::engine::directory::names;
use crate::engine::directory::page::StatePage;
use crate::engine::{Damage, DamageKind};
use crate::error::{Op, Result};
use crate::num::index;
use crate::options::EngineKind;
use crate::record::rocketmq::layout::be_u64;
use crate::region::{Access, PAGE};
use crate::table::{TABLE_LEN_MAX, json};
use std::path::{Path, PathBuf};

/// Damage of the tables. `last_store_ms`: the store time of the newest record.
pub fn tables(parts: &Parts, last_store_ms: i64) -> Result<Vec<Damage>> {
    let mut found = Vec::new();
    configurations(parts, &mut found)?;
    let checkpoint = parts.root.join(names::CHECKPOINT);
    if let Some(bytes) = read(parts, &checkpoint)?
        && let Some(reason) = checkpoint_flaw(&bytes, last_store_ms.max(parts.clock.now_ms()))
    {
        found.push(whole(
            DamageKind::Checkpoint,
            checkpoint,
            bytes.len(),
            reason,
        ));
    }
    let page = parts.root.join(names::STATE);
    if let Some(len) = len_of(parts, &page)? {
        let opened = match len == PAGE as u64 {
            true => StatePage::open(&*parts.disk, &parts.root, Access::Read)?,
            false => None,
        };
        let reason = match opened {
            None => Some("not a state page"),
            Some(page) if page.geometry().is_none() => Some("its file sizes are invalid"),
            Some(_) => None,
        };
        found.extend(reason.map(|reason| whole(DamageKind::Table, page, PAGE, reason)));
    }
    let offsets = parts.root.join(INVENTORY_NAME);
    if let Some(len) = len_of(parts, &offsets)?
        && Inventory::load(&*parts.disk, &parts.root)?.is_none()
    {
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        found.push(whole(
            DamageKind::Table,
            offsets,
            len,
            "the checksum or a line is invalid",
        ));
    }
    let options = parts.root.join(kept_options::FILE_NAME);
    if let Some(reason) = kept_options::flaw(&*parts.disk, &parts.root, EngineKind::CommitLog)? {
        let len = len_of(parts, &options)?.unwrap_or_default();
        found.push(whole(DamageKind::Options, options, index(len), &reason));
    }
    Ok(found)
}

fn configurations(parts: &Parts, found: &mut Vec<Damage>) -> Result<()> {
    let directory = parts.root.join(names::CONFIG);
    let there = parts.disk.stat(&directory);
    let there = there.map_err(|error| error.during(Op::List, &directory))?;
    if there.is_none() {
        return Ok(());
    }
    let entries = parts.disk.list(&directory)?;
    let files = entries.into_iter().filter(|e| e.kind == Kind::File);
    let mut names: Vec<String> = files.filter_map(|entry| entry.name).collect();
    names.sort_unstable();
    for name in names.iter().filter(|name| name.ends_with(".json")) {
        let path = directory.join(name);
        if let Some(bytes) = read(parts, &path)?
            && !json::is_json(&bytes)
        {
            let kind = match &**name {
                topics::FILE_NAME => DamageKind::Topics,
                _ => DamageKind::ForeignTable,
            };
            found.push(whole(kind, path, bytes.len(), "not valid JSON"));
        }
    }
    Ok(())
}

fn whole(kind: DamageKind, path: PathBuf, len: usize, reason: &str) -> Damage {
    Damage::new(kind, path, 0..len as u64, reason)
}

fn len_of(parts: &Parts, path: &Path) -> Result<Option<u64>> {
    let found = parts.disk.stat(path)?;
    Ok(found.map(|entry| entry.len))
}

fn read(parts: &Parts, path: &Path) -> Result<Option<Vec<u8>>> {
    read_small(&*parts.disk, path, TABLE_LEN_MAX)
}

/// The times in the checkpoint tell a reader what it need not check. So a time later than every
/// record and the clock hides what must be rebuilt.
fn checkpoint_flaw(bytes: &[u8], latest_ms: i64) -> Option<&'static str> {
    if bytes.len() != PAGE {
        return Some("its length is not 4096 bytes");
    }
    let times = [0, 8, 16].map(|at| be_u64(bytes, at).cast_signed());
    let implausible = times.iter().any(|time| *time < 0 || *time > latest_ms);
    implausible.then_some("a time is negative or later than every record")
}
