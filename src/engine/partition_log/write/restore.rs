//! Writes the indexes of complete segments again, if they are damaged or missing.

use super::ends::Ends;
use super::indexes::{Indexes, OFFSETS, TIMES};
use super::rules::Rules;
use crate::disk::{Disk, Kind, replace};
use crate::engine::partition_log::segments::emptied::has_data;
use crate::engine::partition_log::segments::names::{self, beside};
use crate::engine::partition_log::segments::reader::Reader;
use crate::engine::partition_log::segments::segment::Segment;
use crate::error::Result;
use std::collections::HashSet;
use std::sync::Arc;

/// Writes the indexes of a complete segment again, from its batches. Durable on return. If the
/// process dies, each file is the old one or the new one: an opening that finds both files trusts
/// them.
///
/// # Errors
///
/// Those of the disk.
pub fn restore(disk: &dyn Disk, segment: &Arc<Segment>, rules: &Rules) -> Result<()> {
    let reader = Reader::open(disk, segment)?;
    let (indexes, _) = Indexes::rebuild(disk, reader, segment.base, rules)?;
    let (offsets, times) = indexes.into_bytes();
    for (ending, bytes) in [(OFFSETS, offsets), (TIMES, times)] {
        replace(disk, &beside(&segment.path, ending), &bytes)?;
    }
    Ok(())
}

/// Writes the indexes of complete segments that lack one of them, as a broker does when it loads a
/// partition.
///
/// # Errors
///
/// Those of the disk.
pub fn restore_missing(disk: &dyn Disk, ends: &Ends, rules: &Rules) -> Result<()> {
    let (segments, _) = ends.complete();
    if segments.is_empty() {
        return Ok(());
    }
    let entries = names::entries(disk, &ends.folder)?.into_iter();
    let files = entries.filter(|it| it.kind == Kind::File);
    let names: HashSet<String> = files.filter_map(|it| it.name).collect();
    let has = |segment: &Segment, ending| {
        let path = beside(&segment.path, ending);
        path.file_name()
            .is_some_and(|name| names.contains(&*name.to_string_lossy()))
    };
    for segment in &segments {
        let is_complete = has(segment, OFFSETS) && has(segment, TIMES);
        // Only its indexes show that a log file was emptied.
        if !is_complete && has_data(disk, segment)? {
            restore(disk, segment, rules)?;
        }
    }
    Ok(())
}
