//! The walk over the batches of a segment.

use super::reader::{Here, Reader, Stated};
use super::search::Run;
use super::waypoints::Waypoint;
use super::writers::Writers;
use crate::disk::Disk;
use crate::error::Result;
use crate::record::Flaw;
use crate::record::kafka::Header;
use crate::record::kafka::header::BATCH_LEN_MAX;
use std::ops::Range;
use std::sync::Arc;

/// Bytes of batches that a search of the rest of a segment may check.
const SEARCHED_MAX: u64 = 4 << 30;
/// How often, on average, such a search may check each byte of a segment.
const SEARCHES: u64 = 64;

/// A batch and where it is.
#[derive(Clone, Copy, Debug)]
pub struct FoundBatch {
    pub position: u64,
    pub header: Header,
}

/// A step of a walk.
#[derive(Debug)]
pub enum Step {
    /// A batch.
    Batch(FoundBatch),
    /// Bytes that are not a batch, before one that is or up to the end of the file.
    Damage(Range<u64>, Flaw),
    /// The end of the segment.
    End,
}

/// What may have left a flaw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// Damage alone: what was there was durable.
    Damage,
    /// Damage, or a crash that cut a batch short.
    Any,
}

/// What follows a flaw.
#[derive(Clone, Copy, Debug)]
pub enum After {
    /// A whole batch, with which the walk goes on.
    Batch,
    /// No batch. The last byte that is not zero ends at `data_end`.
    Nothing { data_end: u64 },
    /// Unknown, because too many bytes look like batches.
    Unknown { data_end: u64 },
}

/// The runs of batches after a flaw, the last one first. Each has the number of the longest run
/// among itself and those after it.
#[derive(Debug)]
struct Runs {
    runs: Vec<(Run, usize)>,
    /// Where the search for them ended.
    searched: u64,
    /// The end of the last byte that is not zero.
    data_end: u64,
}

impl Runs {
    fn new(found: Vec<Run>, searched: u64, data_end: u64) -> Runs {
        let mut runs: Vec<(Run, usize)> = Vec::with_capacity(found.len());
        let len = |run: &Run| run.bytes.end - run.bytes.start;
        for run in found.into_iter().rev() {
            let own = runs.len();
            let longest = runs.last().map(|(_, longest)| *longest);
            let longest = longest.filter(|longest| {
                let longest = runs.get(*longest);
                longest.is_some_and(|(longest, _)| len(longest) > len(&run))
            });
            runs.push((run, longest.unwrap_or(own)));
        }
        Runs {
            runs,
            searched,
            data_end,
        }
    }

    /// Removes the runs up to the one with which the walk continues after a flaw. A message may
    /// hold the bytes of batches, and the end of the segment may be torn. So this is the longest
    /// run, or an earlier one whose offsets fit before those of the longest. `torn`: a batch that a
    /// crash may have cut short, and whose messages may hold runs.
    fn after(
        &mut self,
        reader: &mut Reader,
        (flaw, next_offset): (u64, u64),
        torn: Option<Stated>,
    ) -> Result<Option<u64>> {
        while let Some((run, longest)) = self.runs.pop() {
            if let Some(torn) = torn
                && torn.holds(reader, &run, self.data_end)?
            {
                continue;
            }
            let own = self.runs.len();
            let fits = || {
                let longest = self.runs.get(longest);
                run.offsets.start >= next_offset
                    && longest.is_some_and(|(it, _)| run.offsets.end <= it.offsets.start)
            };
            if run.bytes.start > flaw && (longest == own || fits()) {
                return Ok(Some(run.bytes.start));
            }
        }
        Ok(None)
    }
}

/// Walks the batches of a segment by their headers.
///
/// A header is trusted as long as the bytes after it agree: its length, if another batch begins
/// where it ends; its offsets, which no checksum covers, if they do not exceed those of the next
/// batch. Otherwise the walk continues with the first whole batch after it.
#[derive(Debug)]
pub struct Walk {
    pub reader: Reader,
    /// Where the next batch begins.
    pub position: u64,
    /// The offset after the last batch: offsets of batches rise.
    pub next_offset: u64,
    /// The last batch, and [`Walk::next_offset`] before it.
    last: Option<(FoundBatch, u64)>,
    /// Whether [`Walk::before`] is known to be above all offsets before the last batch. It is not
    /// for the first batch of a walk that begins within a segment.
    is_placed: bool,
    /// Whether the segment is complete, so that batches are searched for even without an index. The
    /// end of one that is written holds zeros, or half a batch.
    pub is_complete: bool,
    /// The processes that may write the segment. If none does, a search finds what recovery would.
    pub writers: Option<Arc<Writers>>,
    /// Whether such a search has found nothing more.
    pub is_barren: bool,
    /// Bytes that may still be checked in searches for batches. An index can name the same bytes
    /// again and again.
    pub left: u64,
    /// Bytes that may still be searched for the ends of batches with a wrong length.
    searched_left: u64,
    /// Whether the last batch is whole, if that is known.
    is_last_whole: Option<bool>,
    /// What the first search of [`Walk::search_after`] has found.
    runs: Option<Runs>,
}

impl Walk {
    /// A walk from a position on, at which a batch begins.
    pub fn new(reader: Reader, position: u64) -> Walk {
        Walk {
            next_offset: reader.segment.base,
            left: 2 * reader.len + BATCH_LEN_MAX as u64,
            searched_left: 2 * reader.len,
            is_placed: position == 0,
            is_complete: false,
            writers: None,
            is_barren: false,
            reader,
            position,
            last: None,
            is_last_whole: None,
            runs: None,
        }
    }

    /// Tells the walk whether its last batch is whole.
    pub fn judge(&mut self, is_whole: bool) {
        self.is_last_whole = Some(is_whole);
    }

    /// [`Walk::next_offset`] as it was before the last batch.
    pub fn before(&self) -> u64 {
        self.last.map_or(self.next_offset, |(_, before)| before)
    }

    /// A walk from the batch at this waypoint on.
    pub fn at(reader: Reader, waypoint: Waypoint) -> Walk {
        Walk {
            next_offset: waypoint.first,
            is_placed: true,
            ..Walk::new(reader, waypoint.position)
        }
    }

    /// The waypoint of the last batch; `None` if its first offset is not known.
    pub fn waypoint(&self) -> Option<Waypoint> {
        let (found, before) = self.last.as_ref()?;
        let first = found.header.first_offset();
        // The old formats may not state the first offset.
        let first = match self.is_placed {
            true => first.max(*before),
            false => Some(first).filter(|first| *first > 0)?,
        };
        Some(Waypoint {
            first,
            last_offset: found.header.last_offset(),
            position: found.position,
        })
    }

    /// The next step.
    pub fn next(&mut self, disk: &dyn Disk) -> Result<Step> {
        let position = self.position;
        let flaw = match self.reader.here(position)? {
            Here::Batch(header) if self.is_out_of_order(position, &header)? => {
                self.position += u64::from(header.len);
                return Ok(Step::Damage(position..self.position, Flaw::Field("offset")));
            }
            Here::Batch(header) => {
                let found = FoundBatch { position, header };
                self.is_placed |= self.last.is_some();
                self.last = Some((found, self.next_offset));
                self.is_last_whole = None;
                self.position += u64::from(header.len);
                self.next_offset = header.last_offset() + 1;
                return Ok(Step::Batch(found));
            }
            Here::Flawed(flaw) => flaw,
            Here::End if position < self.reader.len => {
                Flaw::Length((self.reader.len - position).cast_signed())
            }
            Here::End => return Ok(Step::End),
        };
        let start = self.distrust_last()?.unwrap_or(position);
        self.position = match self.reader.after(disk, start, &mut self.left)? {
            None => {
                let found = match self.is_complete {
                    true => match self.search_after(disk, start, Cause::Damage)? {
                        After::Batch => Some(self.position),
                        After::Nothing { .. } | After::Unknown { .. } => None,
                    },
                    false => self.search_abandoned(disk, start)?,
                };
                found.unwrap_or(self.reader.len.max(position + 1))
            }
            Some(known) => match self.true_end(start..known)? {
                Some(end) => end,
                None => {
                    let below = match self.reader.here(known)? {
                        Here::Batch(header) if header.first_offset() > 0 => header.first_offset(),
                        _ => u64::MAX,
                    };
                    let offsets = self.next_offset..below;
                    let between = start + 1..known;
                    let found = self.reader.within(between, offsets, &mut self.left)?;
                    found.unwrap_or(known)
                }
            },
        };
        Ok(Step::Damage(start..self.position, flaw))
    }

    /// Whether the offsets of a batch are wrong, judged by the batches around it: they go back, or
    /// they leave a gap after the last batch and pass those of the next one.
    fn is_out_of_order(&mut self, position: u64, header: &Header) -> Result<bool> {
        if header.last_offset() < self.next_offset {
            // The last offset of the batch before may be the wrong one.
            self.distrust_last()?;
            if header.last_offset() < self.next_offset {
                return Ok(true);
            }
        }
        if header.first_offset() <= self.next_offset {
            return Ok(false);
        }
        let next = self.reader.here(position + u64::from(header.len))?;
        Ok(matches!(next, Here::Batch(next)
            if next.first_offset() <= header.last_offset()
                && next.last_offset() >= self.next_offset
                && next.first_offset() > 0))
    }

    /// If the last batch is not whole, its length or its last offset may be wrong. Then resets
    /// [`Walk::next_offset`], and returns where the batch begins.
    fn distrust_last(&mut self) -> Result<Option<u64>> {
        let Some((found, next_offset)) = self.last.take() else {
            return Ok(None);
        };
        let (position, header) = (found.position, &found.header);
        let is_whole = match self.is_last_whole {
            Some(is_whole) => is_whole,
            None => self
                .reader
                .is_whole_within(position, header, &mut self.left)?,
        };
        if is_whole {
            return Ok(None);
        }
        self.next_offset = next_offset;
        Ok(Some(position))
    }

    /// Skips the last batch, which cannot be read, and all offsets that it may have had. Returns
    /// the first offset after them. Its length may be wrong, so the walk may go on within it.
    pub fn lose(&mut self, found: &FoundBatch) -> Result<u64> {
        if let Some(position) = self.passed_over(found)? {
            self.position = position;
        }
        let mut after = found.header.last_offset() + 1;
        if let Here::Batch(next) = self.reader.here(self.position)?
            && next.first_offset() > 0
        {
            let before = self.last.map_or(0, |(_, next_offset)| next_offset);
            after = after.min(next.first_offset()).max(before);
        }
        self.next_offset = after;
        Ok(after)
    }

    /// The first whole batch within the last one, which is not whole. Searches for it if the length
    /// seems to lead past others: what follows is not whole either, or leaves a gap of offsets.
    fn passed_over(&mut self, found: &FoundBatch) -> Result<Option<u64>> {
        let Here::Batch(next) = self.reader.here(self.position)? else {
            return Ok(None);
        };
        let after = found.header.last_offset() + 1;
        if next.first_offset() == after {
            return Ok(None);
        }
        let is_next_whole = self
            .reader
            .is_whole_within(self.position, &next, &mut self.left)?;
        if is_next_whole && next.first_offset() <= after {
            return Ok(None);
        }
        let end = self.position.min(self.reader.zeros_from);
        if let Some(end) = self.true_end(found.position..end)? {
            return Ok(Some(end));
        }
        let below = match is_next_whole {
            true => next.first_offset(),
            false => u64::MAX,
        };
        self.reader
            .within(found.position + 1..end, after..below, &mut self.left)
    }

    /// [`Reader::true_end`].
    fn true_end(&mut self, bytes: Range<u64>) -> Result<Option<u64>> {
        self.reader.true_end(bytes, &mut self.searched_left)
    }

    /// Searches the rest of the segment for batches after a flaw, even if the segment is not
    /// complete, and goes on with the first of them.
    pub fn search_after(&mut self, disk: &dyn Disk, flaw: u64, cause: Cause) -> Result<After> {
        if let Some(end) = self.true_end(flaw..self.reader.len)? {
            self.position = end;
            return Ok(After::Batch);
        }
        // A batch that a crash has cut short still has its header.
        let torn = match cause {
            Cause::Damage => None,
            Cause::Any => self.reader.stated(flaw)?,
        };
        let runs = match &mut self.runs {
            Some(runs) => runs,
            none => {
                // Found before the search: a file system may count bytes that were read as data.
                let data_end = self.reader.data_end(disk, flaw)?;
                self.reader.zeros_from = data_end;
                let (bytes, next_offset) = (flaw + 1..data_end, self.next_offset);
                let mut left = SEARCHED_MAX.min(self.reader.len.saturating_mul(SEARCHES));
                let (found, searched) = self.reader.runs(bytes, next_offset, &mut left)?;
                none.insert(Runs::new(found, searched, data_end))
            }
        };
        let at = (flaw, self.next_offset);
        if let Some(position) = runs.after(&mut self.reader, at, torn)? {
            self.position = position;
            return Ok(After::Batch);
        }
        let data_end = runs.data_end.max(flaw);
        Ok(match runs.searched < runs.data_end {
            true => After::Unknown { data_end },
            false => After::Nothing { data_end },
        })
    }

    /// Where the first batch is after a flaw in a segment that is not complete, if nobody writes it
    /// any more and the next writer will keep that batch.
    fn search_abandoned(&mut self, disk: &dyn Disk, flaw: u64) -> Result<Option<u64>> {
        let Some(writers) = self.writers.clone() else {
            return Ok(None);
        };
        if !writers.are_gone(disk)? {
            return Ok(None);
        }
        let first = self.next_offset;
        let cause = match writers.were_durable(disk, first)? {
            true => Cause::Damage,
            false => Cause::Any,
        };
        let found = match self.search_after(disk, flaw, cause)? {
            After::Batch => Some(self.position),
            After::Nothing { .. } | After::Unknown { .. } => None,
        };
        if let Some(found) = found
            && writers.will_keep(disk, &self.reader.segment, flaw..found, first)?
        {
            return Ok(Some(found));
        }
        self.is_barren = true;
        Ok(None)
    }

    /// The bytes of a batch that the walk has found.
    pub fn batch(&self, found: &FoundBatch) -> Result<Vec<u8>> {
        self.reader.batch(found.position, &found.header)
    }
}
