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
//! Below the recovery point everything was durable. Damage there is reported and kept, and so is
//! damage above it that batches follow, in the same partition or after an atomic batch in another:
//! they may have been acknowledged. So is a log file that was [emptied], with its indexes, which
//! tell that. Compaction leaves gaps between offsets, in segments that were below the recovery
//! point. If the point is not known, a gap anywhere may be one of these.
//!
//! Below the first offset any segment may be missing: a power failure during a removal need not
//! keep the order in which names were removed.
//!
//! [emptied]: crate::engine::partition_log::segments::emptied

use super::ends::{End, Ends};
use super::follow::{Log, follow};
use super::holes::{self, Hole};
use super::indexes::{Indexes, OFFSETS, TIMES};
use super::producers;
use super::rules::Rules;
use super::swap;
use crate::disk::{Disk, Entry};
use crate::engine::partition_log::segments::emptied::{had_messages, has_data};
use crate::engine::partition_log::segments::names::{self, LogFile, beside};
use crate::engine::partition_log::segments::reader::Reader;
use crate::engine::partition_log::segments::segment::Segment;
use crate::engine::partition_log::segments::snapshot;
use crate::engine::partition_log::segments::walk::{After, FoundBatch, Step, Walk};
use crate::engine::report::Report;
use crate::engine::{Damage, DamageKind};
use crate::error::{Error, Result};
use crate::num::index;
use crate::plant::{Bug, planted};
use crate::record::Flaw;
use std::collections::BTreeMap;
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
    /// Whether Forebay wrote the partition.
    pub is_own: bool,
    /// Whether the recovery points could be read.
    pub are_points_known: bool,
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
    /// All offsets below were appended: damage there is kept, even at the end.
    pub followed: u64,
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
    /// Whether batches of producers were checked.
    has_producers: bool,
}

/// The segments that recovery finds, in order.
#[derive(Default)]
struct Found {
    /// Those that may have messages.
    used: Vec<Segment>,
    /// Those of them that have lost all that was durable in them: the base of each, and the offset
    /// before which it ended.
    emptied: BTreeMap<u64, u64>,
    /// Those without messages.
    empty: Vec<Segment>,
}

/// What is known of the segments of a partition beside the one that is checked.
struct Around<'a> {
    known: Known,
    /// A gap between segments below this offset is not the end of the partition.
    gaps_below: u64,
    /// Segments without messages.
    empty: &'a [Segment],
}

/// A segment that was checked.
struct Checked {
    /// Where its last whole batch ends, or damage that is kept.
    len: u64,
    /// Where what may not be durable begins.
    from: u64,
    /// The next offset.
    next: u64,
    indexes: Indexes,
    /// The holes after the last whole batch.
    holes: Vec<Hole>,
    /// Whether the last of them was not searched for whole batches.
    is_unsearched: bool,
    /// Whether damage that is kept follows the last whole batch.
    is_damaged: bool,
    /// Whether it has batches of producers, which a broker wrote.
    has_producers: bool,
}

impl Checked {
    /// Adds a whole batch.
    fn take(&mut self, found: &FoundBatch, point: u64) {
        let header = &found.header;
        let (len, last) = (u64::from(header.len), header.last_offset());
        let position = found.position;
        self.indexes.add(position, len, last, header.max_timestamp);
        self.len = position + len;
        self.next = last + 1;
        self.has_producers |= header.producer_id >= 0;
        if self.next <= point {
            self.from = self.len;
        }
    }

    /// Adds a hole.
    fn meet(&mut self, bytes: Range<u64>, offsets: (u64, Option<u64>), reason: impl ToString) {
        holes::add(&mut self.holes, Hole::new(bytes, offsets, reason));
    }

    /// Whether the last hole ends at a position.
    fn ends_at(&self, position: u64) -> bool {
        let last = self.holes.last();
        last.is_some_and(|hole| hole.bytes.end == position)
    }

    /// Adds a hole from a flaw on that ends with the segment as far as the walk knows, and has the
    /// walk go on with the batches behind it.
    fn search_after(
        &mut self,
        disk: &dyn Disk,
        walk: &mut Walk,
        (mut bytes, flaw): (Range<u64>, Flaw),
    ) -> Result<()> {
        let first = walk.next_offset;
        match walk.search_after(disk, bytes.start)? {
            After::Batch => {
                bytes.end = walk.position;
                self.meet(bytes, (first, None), flaw);
            }
            // The zeros after the last batch, whose offset is damaged.
            After::Nothing { data_end } if data_end == bytes.start && self.ends_at(data_end) => {}
            After::Nothing { data_end } => {
                if walk.reader.is_whole_but_length(bytes.start, data_end)? {
                    self.holes.retain(|hole| hole.bytes.start < bytes.start);
                }
                let hole = Hole::new(bytes, (first, None), flaw);
                holes::add_last(&mut self.holes, hole, data_end, walk.reader.len);
            }
            After::Unknown { data_end } => {
                bytes.end = data_end;
                let reason = format!("{flaw}; too much after it looks like batches to be searched");
                self.meet(bytes, (first, None), reason);
                self.is_unsearched = true;
            }
        }
        Ok(())
    }
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
        let index = segments.last().map(|last| beside(&last.path, OFFSETS));
        let has_index = index.is_some_and(|index| has_bytes(&entries, &index));
        let found = match self.is_clean {
            true => self.open_clean(&folder, (&segments, has_index), known)?,
            false => None,
        };
        let found = match found {
            Some(found) => found,
            None => {
                // A broker may have written since Forebay did.
                let is_own = self.is_own && snapshot::offsets(&entries).is_empty();
                self.recover(folder, (segments, is_own), known)?
            }
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
        if next < known.point && walk.reader.data_end(&**self.disk, whole)? > whole {
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
        // The name of a segment is durable before a later one is begun, and the first is never
        // removed here: what lies before it was deleted.
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

    /// Sorts out segments without messages, which appends that failed and power losses leave: all
    /// others have messages or have lost them, but the last one if all before it are being removed.
    /// Removes those that begin at the limit or later.
    fn without_strays(&self, folder: &Path, segments: Vec<Segment>, known: Known) -> Result<Found> {
        let (mut found, mut beyond) = (Found::default(), Vec::new());
        let mut segments = segments.into_iter().peekable();
        while let Some(segment) = segments.next() {
            let later = segments.peek().map(|later| later.base);
            let later = later.filter(|later| *later < known.limit);
            let is_first = found.used.is_empty() && found.empty.is_empty() && beyond.is_empty();
            let is_begun = segment.base <= known.start && !planted(Bug::EndAtRemoved);
            let is_used = is_first || !self.is_own || is_begun;
            if segment.base >= known.limit {
                beyond.push(segment);
            } else if self.is_emptied(&segment, later, known)? {
                let end = later.unwrap_or(known.point);
                found.emptied.insert(segment.base, end);
                found.used.push(segment);
            } else if is_used || has_data(&**self.disk, &segment)? {
                found.used.push(segment);
            } else {
                found.empty.push(segment);
            }
        }
        self.remove(folder, beyond)?;
        Ok(found)
    }

    /// Whether a segment has lost all messages that were durable in it. The next one begins at the
    /// offset `later`.
    fn is_emptied(&self, segment: &Segment, later: Option<u64>, known: Known) -> Result<bool> {
        let disk = &**self.disk;
        let was_durable = segment.base < known.point
            // What is not the last one was.
            || later.is_some() && !self.are_points_known;
        if !was_durable || later.unwrap_or(known.point) <= known.start {
            return Ok(false);
        }
        Ok(!has_data(disk, segment)? && (later.is_none() || had_messages(disk, segment)?))
    }

    /// Checks the batches of a segment, before one that begins at the offset `later`.
    fn check(
        &self,
        segment: &Segment,
        (known, later): (Known, Option<u64>),
    ) -> Result<(Checked, u64)> {
        let disk = &**self.disk;
        let shared = Arc::new(segment.clone());
        let mut reader = Reader::open(disk, &shared)?;
        reader.find_zeros(disk)?;
        let mut walk = Walk::new(reader, 0);
        let mut it = Checked {
            len: 0,
            from: 0,
            next: segment.base,
            indexes: Indexes::new(segment.base, self.rules),
            holes: Vec::new(),
            is_unsearched: false,
            is_damaged: false,
            has_producers: false,
        };
        let mut count = 0;
        loop {
            match walk.next(disk)? {
                Step::Batch(found) if found.header.first_offset() >= known.limit => break,
                Step::Batch(found) => {
                    let header = &found.header;
                    let first = header.first_offset();
                    // No checksum covers the offset.
                    let is_placed =
                        first <= it.next || later.is_none_or(|later| header.last_offset() < later);
                    let is_whole = walk.reader.is_whole(found.position, header)?;
                    walk.judge(is_whole);
                    if (is_placed && is_whole) || planted(Bug::NoChecksum) {
                        if !self.passes_over(segment, &mut it, known, first)? {
                            break;
                        }
                        it.take(&found, known.point);
                        count += 1;
                        continue;
                    }
                    let before = walk.before();
                    let after = walk.lose(&found)?;
                    let bytes = found.position..walk.position;
                    if is_whole {
                        walk.next_offset = before;
                        it.meet(bytes, (before, None), Flaw::Field("offset"));
                    } else {
                        let offsets = (first.max(before), Some(after));
                        it.meet(bytes, offsets, "the batch is not whole");
                    }
                }
                Step::Damage(bytes, flaw) if bytes.end >= walk.reader.len => {
                    it.search_after(disk, &mut walk, (bytes, flaw))?;
                }
                Step::Damage(bytes, flaw) => it.meet(bytes, (walk.next_offset, None), flaw),
                Step::End => break,
            }
        }
        it.indexes.close();
        Ok((it, count))
    }

    /// Whether the batches after holes, the first of which has the offset `next`, belong to the
    /// partition. Reports the holes then.
    fn passes_over(
        &self,
        segment: &Segment,
        it: &mut Checked,
        known: Known,
        next: u64,
    ) -> Result<bool> {
        if it.holes.is_empty() {
            return Ok(true);
        }
        let is_damage = self.are_damage(segment, it, known)?;
        if is_damage {
            self.tell(segment, it, Some(next));
            it.indexes.mark_next();
        }
        Ok(is_damage)
    }

    /// Whether holes that something follows are damage, and not what a power loss has left.
    fn are_damage(&self, segment: &Segment, it: &Checked, known: Known) -> Result<bool> {
        if it.next < known.point || !self.are_points_known {
            return Ok(true);
        }
        for hole in &it.holes {
            if hole.lacks_sector(&**self.disk, segment)? {
                return Ok(false);
            }
        }
        Ok(!planted(Bug::EndAtHole))
    }

    /// Whether a segment may end within a batch, in its last hole, because the power failed: a
    /// broker's files grow with what is written to them, and it ends a partition there itself.
    fn is_short(&self, hole: &Hole) -> bool {
        !self.is_own && hole.after.is_none()
    }

    /// Reports the holes before the offset `next`.
    fn tell(&self, segment: &Segment, it: &mut Checked, next: Option<u64>) {
        let next = next.filter(|_| self.is_own && self.are_points_known);
        for hole in it.holes.drain(..) {
            hole.report(self.report, segment, next);
        }
    }

    /// Whether the next segment, which begins at the offset `later`, belongs to the partition. If
    /// damage comes before it, reports and keeps that.
    fn goes_on(
        &self,
        segment: &Segment,
        found: &mut Checked,
        later: Option<u64>,
        around: &Around<'_>,
    ) -> Result<bool> {
        let (next, known) = (found.next, around.known);
        let was_durable = next < known.point;
        let is_followed = later.is_some_and(|later| next < later) || next < known.followed;
        if let Some(hole) = found.holes.last_mut()
            && next < known.followed
            && later.is_none()
        {
            // Its header may be what is damaged.
            hole.after = Some(known.point.max(known.followed));
        }
        if let Some(hole) = found.holes.last()
            && (was_durable
                || found.is_unsearched
                || is_followed && !self.is_short(hole) && self.are_damage(segment, found, known)?)
        {
            let end = known.point.max(known.followed);
            let after = hole.after.map_or(end, |after| after.min(end));
            found.len = hole.bytes.end;
            found.is_damaged = true;
            found.next = next.max(after);
            self.tell(segment, found, Some(later.unwrap_or(end)));
            return Ok(later.is_some());
        }
        let Some(later) = later else {
            return Ok(false);
        };
        if later == next || later <= around.gaps_below {
            return Ok(true);
        }
        if !found.holes.is_empty() || planted(Bug::EndAtRemoved) {
            return Ok(false);
        }
        if !self.is_own || !self.are_points_known {
            return Ok(true);
        }
        // A power loss takes whole segments, and what was appended to a file since it was opened,
        // which has grown since. Nothing that is in a file is lost for a gap otherwise.
        let is_empty = found.len == 0;
        let is_gone = || around.empty.iter().any(|it| it.base == next);
        let is_lost = is_empty || next == known.point || is_gone();
        if later < next || !was_durable && is_lost {
            return Ok(false);
        }
        let end = found.len;
        let gone = format!("offsets {next} to {} are missing after it", later - 1);
        self.report(&segment.path, end..end, gone);
        Ok(true)
    }

    /// How many bytes there are after a position of a segment, up to the last one that is not zero.
    fn data_after(&self, segment: &Segment, position: u64) -> Result<u64> {
        let reader = Reader::open(&**self.disk, &Arc::new(segment.clone()))?;
        Ok(reader.data_end(&**self.disk, position)? - position)
    }

    /// Makes what is kept of a segment durable, and cuts off the rest. Returns its length.
    fn keep(&self, segment: &Segment, found: &Checked) -> Result<u64> {
        let disk = &**self.disk;
        let (path, len) = (&segment.path, found.len);
        // Retention goes by it where messages have no times.
        let modified = match len == segment.len && found.from < len {
            true => disk.modified_ms(path)?,
            false => None,
        };
        rewrite(disk, path, found.from..len)?;
        if len != segment.len && !planted(Bug::KeepSegmentTail) {
            disk.set_len(path, len)?;
        }
        if let Some(modified) = modified {
            disk.set_modified_ms(path, modified)?;
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
            for ending in [OFFSETS, TIMES, ".txnindex"] {
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
            has_producers: false,
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

fn segment(folder: &Path, file: &LogFile) -> Segment {
    Segment {
        base: file.base,
        path: folder.join(format!("{:020}.log", file.base)),
        len: file.len,
    }
}

/// Writes bytes of a file again, so that the next sync stores them. Zeros that take no space stay
/// so.
pub(super) fn rewrite(disk: &dyn Disk, path: &Path, bytes: Range<u64>) -> Result<()> {
    let mut buffer = vec![0; index(CHUNK.min(bytes.end.saturating_sub(bytes.start)))];
    let (mut at, mut data_end) = (bytes.start, bytes.start);
    while at < bytes.end {
        if at >= data_end {
            let data = disk.next_data(path, at)?;
            let Some(data) = data.filter(|data| data.start < bytes.end) else {
                return Ok(());
            };
            at = data.start.max(at);
            data_end = data.end.clamp(at + 1, bytes.end);
        }
        let len = index(CHUNK.min(data_end - at));
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
