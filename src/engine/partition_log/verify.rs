//! Checks every batch, every entry of the indexes, and the tables beside the partitions.

use super::folder::View;
use super::partition::Partition;
use super::promised::Promised;
use super::segments::index::TimeIndex;
use super::segments::names::{base_of, beside};
use super::segments::reader::Reader;
use super::segments::room::is_room;
use super::segments::segment::Segment;
use super::segments::walk::{FoundBatch, Step, Walk};
use super::write::indexes::OFFSETS;
use super::write::tables;
use super::{PartitionLog, Shared, verify_indexes};
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

/// What a verification found, and what a repair needs besides.
#[derive(Default)]
pub(super) struct Inspection {
    pub(super) found: Verification,
    /// Complete segments whose indexes are missing or lack entries. This is not damage: the writer
    /// may not have written them yet.
    pub(super) unindexed: Vec<Arc<Segment>>,
    /// Whether everything was checked.
    pub(super) is_complete: bool,
}

/// Checks all partitions, and the tables. Once `progress` returns false, the check ends.
pub(super) fn verify(
    engine: &PartitionLog,
    progress: &mut dyn FnMut(u64, u64) -> bool,
) -> Result<Verification> {
    Ok(inspect(engine, progress)?.found)
}

/// As [`verify`].
pub(super) fn inspect(
    engine: &PartitionLog,
    progress: &mut dyn FnMut(u64, u64) -> bool,
) -> Result<Inspection> {
    engine.usable()?;
    let promised = Promised::read(engine)?;
    engine.update()?;
    let mut inspection = Inspection::default();
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
    let disk = engine.disk();
    for (partition, view) in &all {
        for segment in view.segments.iter() {
            let of = (&**partition, view, segment);
            if !check_segment(&engine.shared, of, &mut inspection, &mut go_on)? {
                return Ok(inspection);
            }
        }
        let tables = tables::of_partition(disk, partition.folder.path())?;
        inspection.found.damage.extend(tables);
    }
    let damage = &mut inspection.found.damage;
    damage.extend(tables::of_root(disk, &engine.root)?);
    for missing in promised.missing(engine)? {
        // The walk above has already reported an emptied file that kept its length.
        let place = |it: &Damage| (it.path.clone(), it.position);
        if !damage.iter().any(|it| place(it) == place(&missing.damage)) {
            damage.push(missing.damage.clone());
        }
        missing.tell(&engine.shared.report);
    }
    let kind = EngineKind::PartitionLog;
    if let Some(reason) = kept_options::flaw(disk, &engine.root, kind)? {
        let path = engine.root.join(kept_options::FILE_NAME);
        let len = disk.stat(&path)?.map_or(0, |entry| entry.len);
        damage.push(Damage::new(DamageKind::Options, path, 0..len, reason));
    }
    for damage in damage {
        engine.shared.report.add(damage.clone());
    }
    inspection.is_complete = true;
    Ok(inspection)
}

/// Checks a segment, and adds what is found. `go_on` gets the bytes of each batch and stops the
/// check by returning false. Returns whether the whole segment was checked.
fn check_segment(
    shared: &Shared,
    (partition, view, segment): (&Partition, &View, &Arc<Segment>),
    inspection: &mut Inspection,
    go_on: &mut dyn FnMut(u64) -> bool,
) -> Result<bool> {
    let disk = &*shared.disk;
    let found = &mut inspection.found;
    let reader = match Reader::open(disk, segment) {
        Err(error) if error.is_not_found() => return Ok(true),
        opened => opened?,
    };
    let is_last = view.segments.last() == Some(segment);
    let mut later = view.segments.iter().map(|it| it.base);
    let next_base = later.find(|base| *base > segment.base).unwrap_or(u64::MAX);
    let mut walk = Walk::new(reader, 0);
    walk.writers = partition.folder.writers();
    walk.is_complete = !is_last;
    let mut places = Places::new(&segment.path, &mut found.damage);
    let (mut records, mut newest) = (0, -1);
    loop {
        match walk.next(disk)? {
            Step::Batch(batch) => {
                let bytes = batch.position..walk.position;
                newest = newest.max(batch.header.max_timestamp);
                match count(walk.batch(&batch)?, &batch) {
                    Ok(_) if batch.header.last_offset() >= next_base => {
                        places.add(bytes.clone(), Flaw::Field("offset"));
                    }
                    Ok(count) => {
                        places.close(batch.position);
                        records += count;
                    }
                    // A batch that is being written.
                    Err(_) if is_last && batch.header.first_offset() >= view.bounds.end => {}
                    Err(flaw) => {
                        walk.lose(&batch)?;
                        places.add(bytes.clone(), flaw);
                    }
                }
                if !go_on(bytes.end - bytes.start) {
                    places.close(walk.position);
                    return Ok(false);
                }
            }
            Step::Damage(bytes, _)
                if is_last && bytes.end >= walk.reader.len && walk.next_offset >= view.end => {}
            // A writer died between beginning the next segment and cutting this one.
            Step::Damage(bytes, flaw) if is_room(&walk, &bytes, &flaw, next_base) => {}
            Step::Damage(bytes, flaw) => places.add(bytes, flaw),
            Step::End => break,
        }
    }
    places.close(u64::MAX);
    found.records += records;
    let has_damage = found
        .damage
        .last()
        .is_some_and(|it| it.path == segment.path);
    if !is_last && walk.next_offset < next_base {
        check_gap(shared, segment, walk.next_offset..next_base, found)?;
    }
    verify_indexes::check_offsets(shared, partition, (segment, is_last), found)?;
    verify_indexes::check_times(shared, partition, (segment, is_last), found)?;
    if !is_last && !has_damage && !is_indexed(shared, segment, newest)? {
        inspection.unindexed.push(Arc::clone(segment));
    }
    Ok(true)
}

/// The damaged places of a segment, in order, each once.
struct Places<'a> {
    path: &'a Path,
    found: &'a mut Vec<Damage>,
    /// The last one. It ends where the walk goes on, because a damaged length may lead anywhere.
    open: Option<(Range<u64>, Flaw)>,
}

impl<'a> Places<'a> {
    fn new(path: &'a Path, found: &'a mut Vec<Damage>) -> Places<'a> {
        Places {
            path,
            found,
            open: None,
        }
    }

    /// Adds a place. If the last one does not begin before it, the walk has gone back to the last
    /// one, because the length there was damaged. Then the last one ends where this one does.
    fn add(&mut self, bytes: Range<u64>, flaw: Flaw) {
        if let Some((open, _)) = &mut self.open
            && bytes.start <= open.start
        {
            open.end = bytes.end;
            return;
        }
        self.close(bytes.start);
        self.open = Some((bytes, flaw));
    }

    /// Ends the last place before a position.
    fn close(&mut self, before: u64) {
        if let Some((bytes, flaw)) = self.open.take() {
            let bytes = bytes.start..bytes.end.min(before);
            let damage = Damage::new(DamageKind::Log, self.path, bytes, flaw);
            self.found.push(damage);
        }
    }
}

/// Whether a complete segment has both indexes, and the time index ends with the largest time.
fn is_indexed(shared: &Shared, segment: &Segment, newest: i64) -> Result<bool> {
    let disk = &*shared.disk;
    let last = match TimeIndex::open(disk, segment)? {
        Some(times) => times.last()?.map(|entry| entry.timestamp),
        None => None,
    };
    let has_offsets = disk.stat(&beside(&segment.path, OFFSETS))?.is_some();
    Ok(has_offsets && last.unwrap_or(-1) == newest)
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
            "the file is missing, but its index is not; offsets {} to {} may have been in it",
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
pub(super) fn count(bytes: Vec<u8>, found: &FoundBatch) -> Result<u64, Flaw> {
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
