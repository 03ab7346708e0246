//! Recovery of a partition that is opened for writing.
//!
//! After a clean stop everything is durable, and the last segment is walked from the last entry of
//! its index. Otherwise the segments from the recovery point on are checked batch by batch. The
//! partition ends at the first batch that is not whole:
//!
//! ```text
//!   later segments are removed, the last first, and that made durable
//!   --> what is kept is written again, the rest cut off, and that made durable --> indexes
//! ```
//!
//! A crash between any two of these leaves a partition that ends there for the next opening too.
//! What is kept is written again because a sync that failed may have left it in memory only.
//!
//! Below the recovery point everything was durable. Damage there is reported and kept.
//!
//! Below the first offset any segment may be missing: a power failure during a removal need not
//! keep the order in which names were removed.

use super::ends::{End, Ends};
use super::follow::{Log, follow};
use super::indexes::{Indexes, OFFSETS, TIMES};
use super::rules::Rules;
use super::swap;
use crate::disk::{Disk, Entry};
use crate::engine::partition_log::segments::names::{self, LogFile, beside};
use crate::engine::partition_log::segments::reader::Reader;
use crate::engine::partition_log::segments::segment::Segment;
use crate::engine::partition_log::segments::walk::{Step, Walk};
use crate::engine::report::Report;
use crate::engine::{Damage, DamageKind};
use crate::error::{Error, Result};
use crate::num::index;
use crate::plant::{Bug, planted};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Bytes that are written again at once.
const CHUNK: u64 = 1 << 20;

/// How a partition is opened.
#[derive(Clone, Copy)]
pub struct Opening<'a> {
    /// The disk.
    pub disk: &'a Arc<dyn Disk>,
    /// The rules.
    pub rules: &'a Rules,
    /// Where damage is reported.
    pub report: &'a Report,
    /// Whether the last writer stopped cleanly.
    pub is_clean: bool,
    /// Whether Forebay wrote the partition: offsets leave no gaps above the recovery point.
    pub is_own: bool,
}

/// A partition as a checkpoint describes it.
#[derive(Clone, Copy, Debug)]
pub struct Known {
    /// All offsets below are durable.
    pub point: u64,
    /// The first offset.
    pub start: u64,
    /// What begins at this offset or later is cut off, if the last writer did not stop cleanly.
    pub limit: u64,
}

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
}

/// A segment that was checked.
struct Checked {
    /// Where its last whole batch ends.
    len: u64,
    /// Where what may not be durable begins.
    from: u64,
    /// The next offset.
    next: u64,
    indexes: Indexes,
    /// Whether damage that is kept follows the last whole batch.
    is_damaged: bool,
}

impl Opening<'_> {
    /// Opens a partition.
    ///
    /// # Errors
    ///
    /// Those of reading and of making durable what is kept.
    pub fn open(&self, folder: PathBuf, known: Known) -> Result<Recovered> {
        let mut entries = names::entries(&**self.disk, &folder)?;
        if swap::complete(&**self.disk, &folder, self.rules, &entries)? {
            entries = names::entries(&**self.disk, &folder)?;
        }
        let files = names::log_files_of(&entries);
        let segments: Vec<Segment> = files.iter().map(|file| segment(&folder, file)).collect();
        match self.is_clean {
            true => {
                let index = segments.last().map(|last| beside(&last.path, OFFSETS));
                let has_index = index.is_some_and(|index| has_bytes(&entries, &index));
                self.open_clean(folder, (segments, has_index), known)
            }
            false => self.recover(folder, segments, known),
        }
    }

    fn open_clean(
        &self,
        folder: PathBuf,
        (segments, has_index): (Vec<Segment>, bool),
        known: Known,
    ) -> Result<Recovered> {
        let Some((last, sealed)) = segments.split_last() else {
            return Ok(self.found(folder, Vec::new(), known, (nothing(known), false)));
        };
        let last = Arc::new(last.clone());
        let mut reader = Reader::open(&**self.disk, &last)?;
        let begin = match has_index {
            true => reader.seek(&**self.disk, u64::MAX)?,
            false => 0,
        };
        let len = reader.len;
        let mut walk = Walk::new(reader, begin);
        let (mut whole, mut next, mut checked) = (begin, last.base, 0);
        loop {
            match walk.next(&**self.disk)? {
                Step::Batch(found) if walk.reader.is_whole(found.position, &found.header)? => {
                    whole = walk.position;
                    next = found.header.last_offset() + 1;
                    checked += 1;
                }
                Step::Batch(_) => {}
                Step::Damage(bytes, flaw) => self.report(&last.path, bytes, flaw),
                Step::End => break,
            }
        }
        self.compare(&last, next, known);
        let end = End {
            base: last.base,
            len,
            // Nothing is appended before the first offset: no reader would see it.
            offset: next.max(known.point).max(known.start),
        };
        let continues = whole == len;
        let mut found = self.found(folder, sealed.to_vec(), known, (end, continues));
        found.checked = checked;
        Ok(found)
    }

    fn recover(&self, folder: PathBuf, segments: Vec<Segment>, known: Known) -> Result<Recovered> {
        let segments = self.without_strays(&folder, segments, known)?;
        // A process may have added and removed names, and died before that was durable.
        self.disk.sync_directory(&folder)?;
        let first = segments.first().map_or(0, |segment| segment.base);
        // The name of a segment is durable before a later one is begun, and the first is never
        // removed here: what lies before it was deleted.
        let floor = known.point.max(known.start).max(first);
        // A segment that ends at the recovery point may have been completed after the point was
        // saved.
        let after = segments.partition_point(|segment| segment.base < floor);
        let first = after.saturating_sub(1);
        let (mut sealed, mut rest) = (segments, Vec::new());
        rest.extend(sealed.drain(first.min(sealed.len())..));
        let checked_from = sealed.len();
        let mut next = floor;
        let (mut checked, mut truncated) = (0, 0);
        let mut last: Option<(Segment, bool)> = None;
        let mut rest = rest.into_iter().peekable();
        let mut is_first = true;
        let gaps_below = gaps_below(known, floor);
        let follows = |later: &Segment, next| later.base == next || later.base <= gaps_below;
        while let Some(segment) = rest.peek() {
            let is_beyond = !is_first && !follows(segment, next);
            if is_beyond && self.is_own && !planted(Bug::KeepLaterSegments) {
                break;
            }
            let Some(segment) = rest.next() else { break };
            is_first = false;
            let (found, count) = self.check(&segment, known)?;
            checked += count;
            next = found.next;
            let cut = segment.len - found.len;
            let goes_on = rest.peek().is_some_and(|later| {
                // A broker stops at the first bytes that are not a batch.
                (self.is_own && follows(later, found.next))
                    || (!self.is_own && (cut == 0 || found.is_damaged))
            });
            if !goes_on && !planted(Bug::KeepLaterSegments) {
                self.remove(&folder, rest.by_ref().collect())?;
            }
            if !found.is_damaged && self.disk.next_data(&segment.path, found.len)?.is_some() {
                truncated += cut;
            }
            let len = self.keep(&segment, &found)?;
            if let Some((before, _)) = last.replace((Segment { len, ..segment }, found.is_damaged))
            {
                sealed.push(before);
            }
        }
        self.remove(&folder, rest.collect())?;
        if let Some((last, _)) = &last {
            let all: Vec<Segment> = sealed.iter().chain([last]).cloned().collect();
            let of = (checked_from, next.max(floor));
            follow(&**self.disk, &Log::new(&folder, &all, of), self.is_own)?;
        }
        let (end, continues) = match last {
            Some((segment, is_damaged)) => {
                self.compare(&segment, next, known);
                let (base, len) = (segment.base, segment.len);
                let offset = next.max(floor);
                (End { base, len, offset }, !is_damaged)
            }
            None => (nothing(known), false),
        };
        let mut found = self.found(folder, sealed, known, (end, continues));
        (found.checked, found.truncated) = (checked, truncated);
        Ok(found)
    }

    /// Removes segments that begin at the limit or later, and those of appends that failed: all
    /// others have messages, but the last one if all before it are being removed.
    fn without_strays(
        &self,
        folder: &Path,
        segments: Vec<Segment>,
        known: Known,
    ) -> Result<Vec<Segment>> {
        let (mut used, mut strays) = (Vec::new(), Vec::new());
        for segment in segments {
            let is_first = used.is_empty() && strays.is_empty();
            let is_begun = segment.base <= known.start && !planted(Bug::EndAtRemoved);
            let is_used = is_first || !self.is_own || is_begun;
            if segment.base < known.limit
                && (is_used || self.disk.next_data(&segment.path, 0)?.is_some())
            {
                used.push(segment);
            } else {
                strays.push(segment);
            }
        }
        self.remove(folder, strays)?;
        Ok(used)
    }

    /// Checks the batches of a segment.
    fn check(&self, segment: &Segment, known: Known) -> Result<(Checked, u64)> {
        let Known { point, limit, .. } = known;
        let disk = &**self.disk;
        let shared = Arc::new(segment.clone());
        let mut walk = Walk::new(Reader::open(disk, &shared)?, 0);
        let mut it = Checked {
            len: 0,
            from: 0,
            next: segment.base,
            indexes: Indexes::new(segment.base, self.rules),
            is_damaged: false,
        };
        let mut count = 0;
        loop {
            match walk.next(disk)? {
                Step::Batch(found) => {
                    let header = &found.header;
                    let last = header.last_offset();
                    if header.first_offset() >= limit {
                        break;
                    }
                    let is_whole = walk.reader.is_whole(found.position, header)?;
                    let is_gap = self.is_own
                        && it.next >= point
                        && last >= point
                        && header.first_offset() != it.next;
                    if (is_whole || planted(Bug::NoChecksum)) && !is_gap {
                        let len = header.len.into();
                        it.indexes
                            .add(found.position, len, last, header.max_timestamp);
                        it.len = walk.position;
                        it.next = last + 1;
                        it.is_damaged = false;
                        if it.next <= point {
                            it.from = it.len;
                        }
                        count += 1;
                    } else if it.next < point {
                        let bytes = found.position..walk.position;
                        self.report(&segment.path, bytes, "the batch is not whole");
                        walk.lose(&found)?;
                        it.is_damaged = true;
                    } else {
                        break;
                    }
                }
                Step::Damage(bytes, flaw) if it.next < point => {
                    self.report(&segment.path, bytes, flaw);
                    it.is_damaged = true;
                }
                Step::Damage(..) | Step::End => break,
            }
        }
        it.indexes.close();
        Ok((it, count))
    }

    /// Makes what is kept of a segment durable, and cuts off the rest. Returns its length.
    fn keep(&self, segment: &Segment, found: &Checked) -> Result<u64> {
        let disk = &**self.disk;
        let path = &segment.path;
        let len = match found.is_damaged {
            true => segment.len,
            false => found.len,
        };
        rewrite(disk, path, found.from..len)?;
        if len != segment.len && !planted(Bug::KeepSegmentTail) {
            disk.set_len(path, len)?;
        }
        disk.sync_file(path)?;
        if !planted(Bug::TrustSegmentIndex) {
            found.indexes.save(disk, path)?;
        }
        if let Some(folder) = path.parent() {
            disk.sync_directory(folder)?;
        }
        Ok(len)
    }

    /// Removes segments, the last first, and then makes that durable.
    fn remove(&self, folder: &Path, segments: Vec<Segment>) -> Result<()> {
        if segments.is_empty() {
            return Ok(());
        }
        for segment in segments.iter().rev() {
            for ending in [OFFSETS, TIMES, ".txnindex", ".snapshot"] {
                let path = beside(&segment.path, ending);
                if self.disk.stat(&path)?.is_some() {
                    self.disk.unlink(&path)?;
                }
            }
            self.disk.unlink(&segment.path)?;
        }
        self.disk.sync_directory(folder)
    }

    /// Reports that a partition ends before its durable end.
    fn compare(&self, last: &Segment, next: u64, known: Known) {
        let durable = known.point.max(known.start);
        if next < durable {
            let reason =
                format!("the partition ends at offset {next}, and was durable up to {durable}");
            self.report(&last.path, last.len..last.len, reason);
        }
    }

    fn report(&self, path: &Path, bytes: Range<u64>, reason: impl ToString) {
        let damage = Damage::new(DamageKind::Log, path, bytes, reason);
        self.report.add(damage);
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
        }
    }
}

/// A gap between segments below this offset is not the end of the partition.
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

/// The end of a partition without segments.
fn nothing(known: Known) -> End {
    let offset = known.point.max(known.start);
    End {
        base: offset,
        len: 0,
        offset,
    }
}

fn segment(folder: &Path, file: &LogFile) -> Segment {
    Segment {
        base: file.base,
        path: folder.join(format!("{:020}.log", file.base)),
        len: file.len,
    }
}

/// Writes bytes of a file again, so that the next sync stores them.
pub(super) fn rewrite(disk: &dyn Disk, path: &Path, bytes: Range<u64>) -> Result<()> {
    let mut buffer = vec![0; index(CHUNK.min(bytes.end.saturating_sub(bytes.start)))];
    let mut at = bytes.start;
    while at < bytes.end {
        let len = index(CHUNK.min(bytes.end - at));
        let to = buffer.get_mut(..len).unwrap_or_default();
        let have = disk.read_at(path, at, to)?;
        if have == 0 {
            return Err(Error::corrupt(path, at, "the file ends here"));
        }
        disk.write_at(path, at, to.get(..have).unwrap_or_default())?;
        at += have as u64;
    }
    Ok(())
}
