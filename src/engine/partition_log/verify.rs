//! Checks every batch, and every entry of the offset indexes.

use super::folder::View;
use super::partition::Partition;
use super::promised::Promised;
use super::segments::index::OffsetIndex;
use super::segments::names::{base_of, beside};
use super::segments::reader::Reader;
use super::segments::segment::Segment;
use super::segments::walk::{FoundBatch, Step, Walk};
use super::{PartitionLog, Shared};
use crate::engine::directory::kept_options;
use crate::engine::{Damage, DamageKind, Verification};
use crate::error::Result;
use crate::options::EngineKind;
use crate::record::Flaw;
use crate::record::kafka::Opened;
use std::collections::BTreeSet;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// Checks all partitions, and the saved options. Once `progress` returns false, the check ends.
pub(super) fn verify(
    engine: &PartitionLog,
    progress: &mut dyn FnMut(u64, u64) -> bool,
) -> Result<Verification> {
    engine.usable()?;
    let promised = Promised::read(engine)?;
    engine.update()?;
    let mut found = Verification::default();
    let mut all = Vec::new();
    for partition in engine.all() {
        let view = engine.view(&partition)?;
        all.push((partition, view));
    }
    let segments = all.iter().flat_map(|(_, view)| view.segments.iter());
    let total = segments.map(|segment| segment.len).sum();
    let mut done = 0;
    let mut go_on = |bytes| {
        done += bytes;
        progress(done, total)
    };
    for (partition, view) in &all {
        for segment in view.segments.iter() {
            let shared = &engine.shared;
            if !check_segment(shared, partition, view, segment, &mut found, &mut go_on)? {
                return Ok(found);
            }
        }
    }
    found.damage.extend(promised.missing(engine)?);
    let kind = EngineKind::PartitionLog;
    if let Some(reason) = kept_options::flaw(engine.disk(), &engine.root, kind)? {
        let path = engine.root.join(kept_options::FILE_NAME);
        let len = engine.disk().stat(&path)?.map_or(0, |entry| entry.len);
        let damage = Damage::new(DamageKind::Options, path, 0..len, reason);
        found.damage.push(damage);
    }
    for damage in &found.damage {
        engine.shared.report.add(damage.clone());
    }
    Ok(found)
}

/// Checks a segment, and adds what is found. `go_on` gets the bytes of each batch and stops the
/// check by returning false. Returns whether the whole segment was checked.
fn check_segment(
    shared: &Shared,
    partition: &Partition,
    view: &View,
    segment: &Arc<Segment>,
    found: &mut Verification,
    go_on: &mut dyn FnMut(u64) -> bool,
) -> Result<bool> {
    let disk = &*shared.disk;
    let reader = match Reader::open(disk, segment) {
        Err(error) if error.is_not_found() => return Ok(true),
        opened => opened?,
    };
    let is_last = view.segments.last() == Some(segment);
    let mut later = view.segments.iter().map(|it| it.base);
    let next_base = later.find(|base| *base > segment.base).unwrap_or(u64::MAX);
    let mut walk = Walk::new(reader, 0);
    walk.is_complete = !is_last;
    let mut damage = |bytes, reason: Flaw| {
        found
            .damage
            .push(Damage::new(DamageKind::Log, &segment.path, bytes, reason));
    };
    let mut records = 0;
    loop {
        match walk.next(disk)? {
            Step::Batch(batch) => {
                let bytes = batch.position..walk.position;
                match count(walk.batch(&batch)?, &batch) {
                    Ok(_) if batch.header.last_offset() >= next_base => {
                        damage(bytes.clone(), Flaw::Field("offset"));
                    }
                    Ok(count) => records += count,
                    // A batch that is being written.
                    Err(_) if is_last && batch.header.first_offset() >= view.bounds.end => {}
                    Err(flaw) => {
                        walk.lose(&batch)?;
                        damage(bytes.clone(), flaw);
                    }
                }
                if !go_on(bytes.end - bytes.start) {
                    return Ok(false);
                }
            }
            Step::Damage(bytes, _) if is_last && bytes.end >= walk.reader.len => {}
            // A writer died between beginning the next segment and cutting this one.
            Step::Damage(bytes, Flaw::Empty)
                if bytes.end >= walk.reader.len && walk.next_offset == next_base => {}
            Step::Damage(bytes, flaw) => damage(bytes, flaw),
            Step::End => break,
        }
    }
    found.records += records;
    if !is_last && walk.next_offset < next_base {
        check_gap(shared, segment, walk.next_offset..next_base, found)?;
    }
    check_index(shared, partition, (segment, is_last), found)?;
    Ok(true)
}

/// Reports log files that are missing: the offsets between two segments leave a gap, and an index
/// names a segment in it. Compaction leaves gaps too, but removes the index with its segment.
fn check_gap(
    shared: &Shared,
    before: &Segment,
    gap: Range<u64>,
    found: &mut Verification,
) -> Result<()> {
    let disk = &*shared.disk;
    let folder = before.path.parent().unwrap_or(Path::new(""));
    let entries = disk.list(folder)?;
    let names: Vec<&str> = entries.iter().filter_map(|it| it.name.as_deref()).collect();
    let base = |name: &str| {
        let (digits, ending) = name.split_once('.')?;
        let is_index = matches!(ending, "index" | "timeindex");
        base_of(digits).filter(|base| is_index && gap.contains(base))
    };
    let bases: BTreeSet<u64> = names.iter().filter_map(|name| base(name)).collect();
    for base in bases {
        let name = format!("{base:020}.log");
        // A broker renames the log file before the index, when it deletes or replaces a segment.
        if names.iter().any(|other| other.starts_with(&name)) {
            continue;
        }
        let what = format!(
            "the file is missing, but not its index; offsets {} to {} may have been in it",
            base,
            gap.end - 1
        );
        let path = folder.join(name);
        found
            .damage
            .push(Damage::new(DamageKind::Log, path, 0..0, what));
    }
    Ok(())
}

/// Number of messages in a batch, all of which can be read.
fn count(bytes: Vec<u8>, found: &FoundBatch) -> Result<u64, Flaw> {
    let mut batch = Opened::open(bytes, true)?;
    let mut count = 0;
    while batch.next()?.is_some() {
        count += 1;
    }
    match found.header.is_control() {
        true => Ok(0),
        false => Ok(count),
    }
}

/// Compares each entry of a segment's offset index with the batch that it names. That of the last
/// segment may have entries of batches that were appended since the check began.
fn check_index(
    shared: &Shared,
    partition: &Partition,
    (segment, is_last): (&Arc<Segment>, bool),
    found: &mut Verification,
) -> Result<()> {
    let disk = &*shared.disk;
    let Some(entries) = OffsetIndex::open(disk, segment)? else {
        return Ok(());
    };
    let mut walk = Walk::new(Reader::open(disk, segment)?, 0);
    let mut batch = None;
    for number in 0..entries.len() {
        let entry = entries.get(number)?;
        if is_last && entry.position >= walk.reader.len {
            return Ok(());
        }
        while batch.is_none_or(|it: FoundBatch| it.position < entry.position) {
            match walk.next(disk)? {
                Step::Batch(next) => batch = Some(next),
                Step::Damage(..) => {}
                Step::End => break,
            }
        }
        let is_right = batch.is_some_and(|it| {
            it.position == entry.position && it.header.last_offset() == entry.last_offset
        });
        if is_right {
            found.queue_entries += 1;
            continue;
        }
        let path = beside(&segment.path, ".index");
        let what = format!(
            "entry {number} of partition {}-{} leads to no batch that ends at offset {}",
            partition.topic, partition.queue, entry.last_offset
        );
        let bytes = number * 8..entries.len() * 8;
        found
            .damage
            .push(Damage::new(DamageKind::Index, path, bytes, what));
        return Ok(());
    }
    Ok(())
}
