//! Recovery of a partition that is opened for writing.
//!
//! After a clean stop everything is durable, and the last segment is walked from the last entry of
//! its index. Otherwise the segments from the recovery point on are checked batch by batch. The
//! partition ends with the last whole batch, or where [`holes`](super::holes) tell that the power
//! failed:
//!
//! ```text
//!   later segments are removed, the last first, and that made durable
//!   --> what is kept is written again, the rest cut off, and that made durable --> indexes
//! ```
//!
//! A crash between any two of these leaves a partition that ends there for the next opening too.
//! What is kept is written again because a sync that failed may have left it in memory only.
//!
//! Below the recovery point everything was durable: damage there is reported and kept. So is damage
//! above it that batches follow, in the same partition or, after an atomic batch, in another: those
//! batches may have been acknowledged. A log file that was [emptied] is kept, too, with the indexes
//! that show it. Compaction leaves gaps between offsets, but only in segments that were below the
//! recovery point. If the point is not known, any gap may be one of these.
//!
//! Below the first offset any segment may be missing: after a power failure during a removal, some
//! of the removed names may be back and others gone.
//!
//! [emptied]: crate::engine::partition_log::segments::emptied

use super::checked::Around;
use super::ends::{End, Ends};
use super::follow::{Log, follow};
use super::indexes::OFFSETS;
use super::opening::{Known, Opening};
use super::producers;
use super::swap;
use crate::disk::Entry;
use crate::engine::partition_log::segments::names::{self, LogFile, beside};
use crate::engine::partition_log::segments::reader::Reader;
use crate::engine::partition_log::segments::segment::Segment;
use crate::engine::partition_log::segments::snapshot;
use crate::engine::partition_log::segments::walk::{Step, Walk};
use crate::error::Result;
use crate::plant::{Bug, planted};
use crate::record::Flaw;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What opening found.
pub struct Recovered {
    /// The ends.
    pub ends: Arc<Ends>,
    /// The end.
    pub end: End,
    /// Whether messages may be appended to the last segment.
    pub continues: bool,
    /// Batches checked.
    pub checked: u64,
    /// Bytes that were cut off.
    pub truncated: u64,
    /// Whether batches of producers were checked.
    has_producers: bool,
}

impl Opening<'_> {
    /// Opens a partition.
    ///
    /// # Errors
    ///
    /// Those of reading and of making durable what is kept.
    pub fn open(&self, folder: PathBuf, known: Known) -> Result<Recovered> {
        let mut entries = names::entries(&**self.disk, &folder)?;
        // A broker may have written since Forebay did.
        let is_own = self.is_own && snapshot::offsets(&entries).is_empty();
        if swap::complete(&**self.disk, &folder, (self.rules, is_own), &entries)? {
            entries = names::entries(&**self.disk, &folder)?;
        }
        let files = names::log_files_of(&entries);
        let segments: Vec<Segment> = files.iter().map(|file| segment(&folder, file)).collect();
        let index = segments.last().map(|last| beside(&last.path, OFFSETS));
        let has_index = index.is_some_and(|index| has_bytes(&entries, &index));
        let found = match self.is_clean {
            true => self.open_clean(&folder, (&segments, has_index), known)?,
            false => None,
        };
        let found = match found {
            Some(found) => found,
            None => self.recover(folder, (segments, is_own), known)?,
        };
        producers::find(&**self.disk, &found.ends, &entries, found.has_producers)?;
        Ok(found)
    }

    /// Whether a partition has a whole batch from an offset on.
    ///
    /// # Errors
    ///
    /// Those of reading.
    pub fn has_from(&self, folder: &Path, offset: u64) -> Result<bool> {
        let disk = &**self.disk;
        let files = names::log_files_of(&names::entries(disk, folder)?);
        let first = files.partition_point(|file| file.base <= offset);
        for file in files.iter().skip(first.saturating_sub(1)) {
            let mut reader = Reader::open(disk, &Arc::new(segment(folder, file)))?;
            let begin = reader.seek(disk, offset)?;
            let mut walk = Walk::new(reader, begin);
            loop {
                match walk.next(disk)? {
                    Step::Batch(found) => {
                        let header = &found.header;
                        let is_later = header.first_offset() >= offset;
                        if is_later && walk.reader.is_whole(found.position, header)? {
                            return Ok(true);
                        }
                    }
                    Step::Damage(..) => {}
                    Step::End => break,
                }
            }
        }
        Ok(false)
    }

    /// Opens a partition whose last writer stopped cleanly. `None` if its last segment ends with
    /// damage that may hide messages.
    fn open_clean(
        &self,
        folder: &Path,
        (segments, has_index): (&[Segment], bool),
        known: Known,
    ) -> Result<Option<Recovered>> {
        let without_last = |segments: &[Segment]| {
            let end = End::without_segments(known.point.max(known.start));
            self.found(folder.to_owned(), segments.to_vec(), known, (end, false))
        };
        let Some((last, sealed)) = segments.split_last() else {
            return Ok(Some(without_last(&[])));
        };
        if self.is_emptied(last, None, known)? {
            return Ok(Some(without_last(segments)));
        }
        let last = Arc::new(last.clone());
        let mut reader = Reader::open(&**self.disk, &last)?;
        let begin = match has_index {
            true => reader.seek_end(&**self.disk)?,
            false => 0,
        };
        let len = reader.len;
        let mut walk = Walk::new(reader, begin);
        let (mut whole, mut next, mut checked) = (begin, last.base, 0);
        let mut hole = None;
        let report = |hole: Option<(Range<u64>, Flaw)>| {
            if let Some((bytes, flaw)) = hole {
                self.report(&last.path, bytes, flaw);
            }
        };
        loop {
            match walk.next(&**self.disk)? {
                Step::Batch(found) if walk.reader.is_whole(found.position, &found.header)? => {
                    whole = walk.position;
                    next = found.header.last_offset() + 1;
                    checked += 1;
                }
                Step::Batch(_) => {}
                Step::Damage(bytes, flaw) => report(hole.replace((bytes, flaw))),
                Step::End => break,
            }
        }
        if (next < known.point || !self.are_points_known)
            && walk.reader.data_end(&**self.disk, whole)? > whole
        {
            return Ok(None);
        }
        report(hole);
        self.compare(&last, next, known);
        let end = End {
            base: last.base,
            len,
            // Nothing is appended before the first offset: no reader would see it.
            offset: next.max(known.point).max(known.start),
        };
        let continues = whole == len;
        let of = (end, continues);
        let mut found = self.found(folder.to_owned(), sealed.to_vec(), known, of);
        found.checked = checked;
        Ok(Some(found))
    }

    fn recover(
        &self,
        folder: PathBuf,
        (segments, is_own): (Vec<Segment>, bool),
        known: Known,
    ) -> Result<Recovered> {
        let found = self.without_strays(&folder, segments, known)?;
        let (segments, emptied, empty) = (found.used, found.emptied, found.empty);
        // A process may have added and removed names, and died before that was durable.
        self.disk.sync_directory(&folder)?;
        let first = segments.first().map_or(0, |segment| segment.base);
        // The name of a segment is durable before a later one is begun, and recovery never removes
        // the first one. So what lies before it was deleted.
        let floor = known.point.max(known.start).max(first);
        // A segment that ends at the recovery point may have been completed after the point was
        // saved.
        let after = segments.partition_point(|segment| segment.base < floor);
        let first = after.saturating_sub(1);
        let mut sealed = segments;
        let rest = sealed.split_off(first.min(sealed.len()));
        let mut rest = rest.into_iter().peekable();
        let checked_from = sealed.len();
        let (mut next, mut checked, mut truncated, mut has_producers) = (floor, 0, 0, false);
        let mut last: Option<(Segment, bool)> = None;
        let around = Around {
            known,
            gaps_below: gaps_below(known, floor),
            empty: &empty,
        };
        while let Some(segment) = rest.next() {
            if let Some(end) = emptied.get(&segment.base) {
                // Its indexes stay as they are.
                sealed.extend(last.take().map(|(before, _)| before));
                sealed.push(segment);
                next = *end;
                continue;
            }
            let later = rest.peek().map(|later| later.base);
            let (mut found, count) = self.check(&segment, (known, later))?;
            checked += count;
            has_producers |= found.has_producers;
            let goes_on = self.goes_on(&segment, &mut found, later, &around)?;
            next = found.next;
            if !goes_on && !planted(Bug::KeepLaterSegments) {
                self.remove(&folder, rest.by_ref().collect())?;
            }
            truncated += self.data_after(&segment, found.len)?;
            let len = self.keep(&segment, &found)?;
            let before = last.replace((Segment { len, ..segment }, found.is_damaged));
            sealed.extend(before.map(|(before, _)| before));
        }
        self.remove(&folder, empty)?;
        let all = sealed.iter().chain(last.iter().map(|(last, _)| last));
        let all: Vec<Segment> = all.cloned().collect();
        if !all.is_empty() {
            let log = Log::new(&folder, &all, (checked_from, next.max(floor)));
            follow(&**self.disk, &log, is_own && !has_producers)?;
        }
        let end = match last {
            Some((segment, is_damaged)) => {
                self.compare(&segment, next, known);
                let (base, len, offset) = (segment.base, segment.len, next.max(floor));
                (End { base, len, offset }, !is_damaged)
            }
            None => (End::without_segments(next.max(floor)), false),
        };
        let mut found = self.found(folder, sealed, known, end);
        (found.checked, found.truncated, found.has_producers) = (checked, truncated, has_producers);
        Ok(found)
    }

    fn found(
        &self,
        folder: PathBuf,
        sealed: Vec<Segment>,
        known: Known,
        (end, continues): (End, bool),
    ) -> Recovered {
        let first = sealed.first().map_or(end.base, |segment| segment.base);
        let start = known.start.max(first).min(end.offset);
        let ends = Ends::new(folder, self.rules.sync, sealed, (start, end));
        Recovered {
            ends: Arc::new(ends),
            end,
            continues,
            checked: 0,
            truncated: 0,
            has_producers: false,
        }
    }
}

/// The offset below which a gap between segments is not the end of the partition.
fn gaps_below(known: Known, floor: u64) -> u64 {
    match planted(Bug::EndAtRemoved) {
        true => known.point,
        false => floor,
    }
}

/// Whether the list of a folder has a file with contents at a path.
fn has_bytes(entries: &[Entry], path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    let mut entries = entries.iter();
    entries.any(|entry| entry.name.as_deref() == name && entry.len > 0)
}

fn segment(folder: &Path, file: &LogFile) -> Segment {
    Segment {
        base: file.base,
        path: folder.join(format!("{:020}.log", file.base)),
        len: file.len,
    }
}
