//! A segment that recovery checks batch by batch, and whether the next one belongs to the
//! partition.
//!
//! Bytes that are not a whole batch are [`holes`]. What follows a hole distinguishes damage, which
//! is kept and reported, from what a crash has left.

use super::holes::{self, Hole};
use super::indexes::Indexes;
use super::opening::{Known, Opening};
use super::stored;
use crate::disk::Disk;
use crate::engine::partition_log::segments::proof::proven;
use crate::engine::partition_log::segments::reader::Reader;
use crate::engine::partition_log::segments::segment::Segment;
use crate::engine::partition_log::segments::walk::{After, Cause, FoundBatch, Step, Walk};
use crate::error::Result;
use crate::plant::{Bug, planted};
use crate::record::Flaw;
use std::ops::Range;
use std::sync::Arc;

/// What is known of a partition and of its other segments.
pub(super) struct Around<'a> {
    pub(super) known: Known,
    /// The offset below which a gap between segments is not the end of the partition.
    pub(super) gaps_below: u64,
    /// Segments without messages.
    pub(super) empty: &'a [Segment],
}

/// A segment that was checked.
pub(super) struct Checked {
    /// Where its last whole batch ends, or damage that is kept.
    pub(super) len: u64,
    /// Where bytes begin that may not be durable.
    pub(super) from: u64,
    /// The next offset.
    pub(super) next: u64,
    pub(super) indexes: Indexes,
    /// The holes after the last whole batch.
    pub(super) holes: Vec<Hole>,
    /// Whether the last of them was not searched for whole batches.
    pub(super) is_unsearched: bool,
    /// Whether damage that is kept follows the last whole batch.
    pub(super) is_damaged: bool,
    /// Whether it has batches of producers, which only brokers write.
    pub(super) has_producers: bool,
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

    /// Adds a hole that, as far as the walk knows, reaches from a flaw to the end of the segment.
    /// Searches for batches after the flaw, with which the walk then continues.
    fn search_after(
        &mut self,
        disk: &dyn Disk,
        walk: &mut Walk,
        (mut bytes, flaw): (Range<u64>, Flaw),
        cause: Cause,
    ) -> Result<()> {
        let first = walk.next_offset;
        match walk.search_after(disk, bytes.start, cause)? {
            After::Batch => {
                bytes.end = walk.position;
                self.meet(bytes, (first, None), flaw);
            }
            // The zeros after the last batch, whose offset is damaged.
            After::Nothing { data_end } if data_end == bytes.start && self.ends_at(data_end) => {}
            After::Nothing { data_end } => {
                let proven = proven(&walk.reader, bytes.start..data_end)?;
                if proven.is_some_and(|stored| stored.end >= data_end) {
                    // Only the length is damaged: the hole does not end where that says.
                    self.holes.retain(|hole| hole.bytes.start < bytes.start);
                }
                let hole = Hole::new(bytes, (first, None), flaw);
                holes::add_last(&mut self.holes, hole, data_end, walk.reader.len);
            }
            After::Unknown { data_end } => {
                bytes.end = data_end;
                let reason = format!(
                    "{flaw}; the bytes after it were not searched: too many look like batches"
                );
                self.meet(bytes, (first, None), reason);
                self.is_unsearched = true;
            }
        }
        Ok(())
    }
}

impl Opening<'_> {
    /// Checks the batches of a segment. The next segment begins at the offset `later`.
    pub(super) fn check(
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
                    let cause = self.cause(it.next, known);
                    it.search_after(disk, &mut walk, (bytes, flaw), cause)?;
                }
                Step::Damage(bytes, flaw) => it.meet(bytes, (walk.next_offset, None), flaw),
                Step::End => break,
            }
        }
        it.indexes.close();
        Ok((it, count))
    }

    /// What may have left a flaw at an offset.
    fn cause(&self, offset: u64, known: Known) -> Cause {
        match self.is_clean || offset < known.point {
            true => Cause::Damage,
            false => Cause::Any,
        }
    }

    /// Whether the next segment, which begins at the offset `later`, belongs to the partition.
    /// Damage before it is reported and kept.
    pub(super) fn goes_on(
        &self,
        segment: &Segment,
        found: &mut Checked,
        later: Option<u64>,
        around: &Around<'_>,
    ) -> Result<bool> {
        let (next, known) = (found.next, around.known);
        let was_durable = next < known.point || self.is_clean;
        let is_followed = later.is_some_and(|later| next < later) || next < known.followed;
        if let Some(hole) = found.holes.last_mut()
            && next < known.followed
            && later.is_none()
        {
            // The offsets in its header may be damaged.
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
        if later != Some(next) && self.ends_with_stored(segment, found, known)? {
            let next = Some(found.next);
            self.tell(segment, found, next);
            return Ok(false);
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
        // A power loss can take whole segments, or everything in a file after the recovery point.
        // Any other gap is damage, and what follows it is kept.
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

    /// Whether the batches after holes belong to the partition. If so, reports the holes. `next`:
    /// the first offset of these batches.
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

    /// Whether holes that something follows are damage, and not the work of a power loss.
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

    /// Whether a segment ends with damaged batches of which all bytes were stored. They are not the
    /// torn end of a crash, so they are kept. Holes after them are the torn end, and are cut off.
    fn ends_with_stored(&self, segment: &Segment, it: &mut Checked, known: Known) -> Result<bool> {
        if it.holes.is_empty() {
            return Ok(false);
        }
        let reader = Reader::open(&**self.disk, &Arc::new(segment.clone()))?;
        let (mut last, mut left) = (None, 2 * segment.len);
        let holes = it.holes.iter().enumerate();
        for (number, hole) in holes.take_while(|it| it.1.first < known.doubted) {
            // A broker ends a partition at a batch whose checksum is wrong.
            let of = (&hole.bytes, hole.first);
            let stored = stored::run(&reader, of, self.is_own, &mut left)?;
            last = stored.map(|stored| (number, stored)).or(last);
        }
        let Some((number, stored)) = last else {
            return Ok(false);
        };
        let torn = it.holes.split_off(number + 1);
        // The rest of the last hole may be torn.
        let kept_end = stored.end.min(segment.len);
        let end = it.holes.last_mut();
        let end = end.map(|hole| std::mem::replace(&mut hole.bytes.end, kept_end));
        if !self.are_damage(segment, it, known)? {
            if let (Some(hole), Some(end)) = (it.holes.last_mut(), end) {
                hole.bytes.end = end;
            }
            it.holes.extend(torn);
            return Ok(false);
        }
        if let Some(hole) = it.holes.last_mut() {
            let after = hole.first.saturating_add(stored.offsets);
            hole.after = Some(after);
            it.len = hole.bytes.end;
            it.next = it.next.max(after);
        }
        it.is_damaged = true;
        Ok(true)
    }

    /// Whether a segment may end within a batch, in its last hole, because the power failed. The
    /// files of a broker grow as it writes, and the broker, too, would end the partition there.
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
}
