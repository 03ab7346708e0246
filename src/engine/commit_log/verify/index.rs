//! Verifies the index files: each entry points to a record with its key and is reached from its
//! slot, and the times in the header are right.

use super::inspection::Inspection;
use crate::engine::commit_log::index::file::{ENTRY_LEN, HEADER_LEN, IndexEntry, IndexFile};
use crate::engine::commit_log::log::Log;
use crate::engine::commit_log::parts::Parts;
use crate::engine::{Damage, DamageKind};
use crate::error::Result;
use crate::record::rocketmq::properties::{Known, index_hash};
use crate::region::Access;

/// Checks the entries of a file. An entry that points into a hole is part of the hole.
///
/// # Errors
///
/// As [`Log::record_at`].
pub fn index_entries(parts: &Parts, file: &IndexFile, inspection: &mut Inspection) -> Result<()> {
    let log = &parts.log;
    let min = log.min_position();
    let count = count_of(parts, file)?;
    let before = inspection.found.damage.len();
    let mut holed = false;
    let reached = file.reached(count)?;
    for number in 1..count {
        let entry = file.entry(number)?;
        if entry.position < min {
            continue;
        }
        if inspection.hole_at(entry.position).is_some() {
            holed = true;
            continue;
        }
        let reason = match flaw_of(log, &entry)? {
            // Retention may have deleted the record meanwhile.
            Some(_) if entry.position < log.min_position() => continue,
            Some(reason) => reason,
            None if !reached.get(number as usize).is_some_and(|reached| *reached) => {
                "no chain leads to the entry"
            }
            None => {
                inspection.found.index_entries += 1;
                continue;
            }
        };
        let at = file.byte_of(number);
        let bytes = at..at + ENTRY_LEN as u64;
        inspection.add_entry(Damage::new(DamageKind::Index, file.path(), bytes, reason));
    }
    if !times_hold(log, file, count)? {
        let reason = "the times in the header are not those of its records";
        let damage = Damage::new(DamageKind::Index, file.path(), 0..HEADER_LEN as u64, reason);
        inspection.found.damage.push(damage);
    }
    if holed || inspection.found.damage.len() > before {
        let first = inspection.index_from.get_or_insert(file.name);
        *first = file.name.min(*first);
    }
    Ok(())
}

/// Number of the entry at which the check ends. Entries that a writer adds for messages after the
/// end that this reader knows are not checked.
fn count_of(parts: &Parts, file: &IndexFile) -> Result<u32> {
    let mut count = file.count()?;
    if parts.queues.store.access == Access::ReadWrite {
        return Ok(count);
    }
    if parts.log.source.is_none() {
        // This reader checks only the entries that the file had when it was opened.
        return Ok(count.min(file.opened_at));
    }
    let end = parts.log.published();
    while count > 1 && file.entry(count.saturating_sub(1))?.position >= end {
        count -= 1;
    }
    Ok(count)
}

fn flaw_of(log: &Log, entry: &IndexEntry) -> Result<Option<&'static str>> {
    let Some(message) = log.record_at(entry.position)?.record() else {
        return Ok(Some("the entry points to no record"));
    };
    let record = message.record().rocketmq();
    let known = Known::read(record.raw_properties());
    let topic = record.topic();
    // RocketMQ 5.5 also indexes tags.
    let tag = known.tags.map(|tags| [b"T#", tags].concat());
    let holds = known
        .index_keys()
        .any(|key| index_hash(topic, key) == entry.hash)
        || tag.is_some_and(|tag| index_hash(topic, &tag) == entry.hash);
    Ok((!holds).then_some("the entry points to a record without its key"))
}

/// Whether the times that let a query skip the file are those of its records.
fn times_hold(log: &Log, file: &IndexFile, count: u32) -> Result<bool> {
    Ok(count <= 1 || (begin_holds(log, file)? && end_holds(log, file)?))
}

fn begin_holds(log: &Log, file: &IndexFile) -> Result<bool> {
    is_stored_at(log, file.positions()?.0, file.times()?.0)
}

/// A writer may be putting entries meanwhile. It stores the entry first, then position, time and
/// count in the header. So the header is judged only if the count did not change, and the header
/// may have the position of an uncounted entry with the time of the one before.
fn end_holds(log: &Log, file: &IndexFile) -> Result<bool> {
    loop {
        let count = file.count()?;
        // If the time of an entry is visible, so is its position.
        let time = file.times()?.1;
        let position = file.positions()?.1;
        if is_stored_at(log, position, time)? {
            return Ok(true);
        }
        let is_being_put = !file.is_full()? && file.entry(count)?.position == position;
        if is_being_put && is_stored_at(log, file.entry(count.saturating_sub(1))?.position, time)? {
            return Ok(true);
        }
        if file.count()? == count {
            return Ok(false);
        }
    }
}

/// Whether the record at `position` was stored at `time`; true if there is no record.
fn is_stored_at(log: &Log, position: u64, time: i64) -> Result<bool> {
    let found = log.record_at(position)?.record();
    Ok(found.is_none_or(|message| message.record().store_timestamp() == time))
}
