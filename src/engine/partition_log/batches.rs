//! Walks the batches of a partition, from segment to segment.
//!
//! A broker or compaction replaces segments while they are read: a cleaner merges some of them into
//! a file with the suffix `.swap`, which then takes the name of the first of them. A list of
//! segments is outdated if one of its files is missing, replaced or shortened, or if a batch has
//! offsets of the next segment. The segments are then listed again, and the walk continues in the
//! one that holds the next offset. An open segment is read to its end even if it was replaced.

use super::folder::{Folder, View};
use super::segments::lender::Lender;
use super::segments::segment::{Segment, Segments};
use super::segments::walk::{FoundBatch, Step, Walk};
use crate::disk::Disk;
use crate::error::{Error, Result};
use crate::record::Flaw;
use crate::record::kafka::Lent;
use std::collections::VecDeque;
use std::sync::Arc;

/// Bytes between two waypoints that a walk keeps.
const WAYPOINT_STEP: u64 = 64 << 10;
/// How many damaged places a walk passes over to find the batch after a lost one.
const AHEAD_MAX: usize = 1024;
/// How often in a row a listed file may be missing before that is an error.
const LISTINGS_MAX: u32 = 16;

/// A walk over the batches of a partition.
#[derive(Debug)]
pub(super) struct Batches {
    folder: Arc<Folder>,
    segments: Segments,
    /// The next offset wanted. The walk begins with a batch at or before it.
    pub(super) at: u64,
    /// End of the partition.
    pub(super) end: u64,
    walk: Option<Walk>,
    /// Steps that the walk has made already.
    ahead: VecDeque<Step>,
    /// Position of the last waypoint that was kept.
    kept: u64,
    /// Base of the next segment, if it was listed again after the walk had met its offsets.
    confirmed: Option<u64>,
    /// Lends memory to rows. An open walk holds it.
    lender: Option<Lender>,
}

impl Batches {
    /// The batches of a view, beginning with the one that holds `at` or an earlier one. Opens no
    /// file.
    pub(super) fn new(folder: &Arc<Folder>, view: &View, at: u64) -> Batches {
        Batches {
            folder: Arc::clone(folder),
            segments: Arc::clone(&view.segments),
            at,
            end: view.end,
            walk: None,
            ahead: VecDeque::new(),
            kept: 0,
            confirmed: None,
            lender: None,
        }
    }

    /// Reads batches into memory of `lender` from here on.
    pub(super) fn with_lender(mut self, lender: Lender) -> Batches {
        self.lender = Some(lender);
        self
    }

    /// Whether to lend memory from here on.
    pub(super) fn set_lending(&mut self, is_on: bool) {
        let lender = match &mut self.walk {
            Some(walk) => &mut walk.reader.lender,
            None => &mut self.lender,
        };
        if let Some(lender) = lender {
            lender.is_on = is_on;
        }
    }

    /// Whether the memory of batches may be lent.
    pub(super) fn is_lending(&self) -> bool {
        let lender = match &self.walk {
            Some(walk) => &walk.reader.lender,
            None => &self.lender,
        };
        lender.as_ref().is_some_and(|lender| lender.is_on)
    }

    fn close(&mut self) {
        self.ahead.clear();
        if let Some(walk) = self.walk.take() {
            self.lender = walk.reader.lender;
        }
    }

    /// The next batch, or the damage before it. [`Step::End`]: the end of the partition.
    pub(super) fn next(&mut self, disk: &dyn Disk) -> Result<Step> {
        loop {
            let Some(walk) = &mut self.walk else {
                match self.open(disk)? {
                    true => continue,
                    false => return Ok(Step::End),
                }
            };
            let step = match self.ahead.pop_front() {
                Some(step) => step,
                None => walk.next(disk)?,
            };
            let (len, next_offset) = (walk.reader.len, walk.next_offset);
            match step {
                Step::Batch(found) => {
                    self.check_list(disk, &found)?;
                    if found.position >= self.kept + WAYPOINT_STEP {
                        self.keep_waypoint();
                    }
                    return Ok(Step::Batch(found));
                }
                Step::End => {
                    let next = self.next_base();
                    self.close();
                    if next == u64::MAX {
                        return Ok(Step::End);
                    }
                    self.at = self.at.max(next);
                }
                // A writer died between beginning the next segment and cutting this one.
                Step::Damage(bytes, Flaw::Empty)
                    if bytes.end >= len && next_offset == self.next_base() => {}
                damage @ Step::Damage(..) => return Ok(damage),
            }
        }
    }

    /// Opens the segment that holds the next offset; `false` if there is none.
    fn open(&mut self, disk: &dyn Disk) -> Result<bool> {
        let mut listings = 0;
        loop {
            let after = self.segments.partition_point(|it| it.base <= self.at);
            let number = after.saturating_sub(1);
            let Some(segment) = self.segments.get(number).filter(|it| it.base < self.end) else {
                return Ok(false);
            };
            let is_complete = after < self.segments.len();
            match self.folder.walk(disk, segment, self.at) {
                Ok(None) if listings < LISTINGS_MAX => {
                    listings += 1;
                    self.list(disk)?;
                }
                Err(error) if error.is_not_found() && listings < LISTINGS_MAX => {
                    listings += 1;
                    self.list(disk)?;
                }
                Err(error) => return Err(error),
                Ok(None) => {
                    let reason = "the file was replaced repeatedly while it was read";
                    return Err(Error::corrupt(&segment.path, 0, reason));
                }
                Ok(Some(mut walk)) => {
                    walk.is_complete = is_complete;
                    walk.reader.lender = self.lender.take();
                    self.at = self.at.max(segment.base);
                    self.kept = walk.position;
                    self.walk = Some(walk);
                    return Ok(true);
                }
            }
        }
    }

    /// Lists the segments again. The partition may also have become shorter.
    fn list(&mut self, disk: &dyn Disk) -> Result<()> {
        let (segments, end) = self.folder.list_again(disk)?;
        self.segments = segments;
        self.end = self.end.min(end);
        Ok(())
    }

    /// Lists the segments again if a batch has offsets of the next one.
    fn check_list(&mut self, disk: &dyn Disk, found: &FoundBatch) -> Result<()> {
        let next = self.next_base();
        if found.header.last_offset() >= next && self.confirmed != Some(next) {
            self.list(disk)?;
            self.confirmed = Some(self.next_base());
        }
        Ok(())
    }

    /// Reopens the segment, which was shortened.
    pub(super) fn reopen(&mut self, disk: &dyn Disk) -> Result<()> {
        self.close();
        self.list(disk)
    }

    /// Keeps where the last batch begins, so that a later walk can begin there.
    pub(super) fn keep_waypoint(&mut self) {
        if let Some(walk) = &self.walk
            && let Some(waypoint) = walk.waypoint()
            && waypoint.position > 0
        {
            self.kept = waypoint.position;
            let base = walk.reader.segment.base;
            self.folder.waypoints.note(base, waypoint);
        }
    }

    /// Base of the segment after the open one, which has lower offsets only; [`u64::MAX`] if the
    /// open one is the last.
    pub(super) fn next_base(&self) -> u64 {
        let base = match &self.walk {
            Some(walk) => walk.reader.segment.base,
            None => return u64::MAX,
        };
        let after = self.segments.partition_point(|it| it.base <= base);
        self.segments.get(after).map_or(u64::MAX, |it| it.base)
    }

    /// The open segment, and how long its file is.
    pub(super) fn segment(&self) -> Option<(&Segment, u64)> {
        let reader = &self.walk.as_ref()?.reader;
        Some((&reader.segment, reader.len))
    }

    /// [`Walk::before`] of the open walk.
    pub(super) fn before(&self) -> u64 {
        self.walk.as_ref().map_or(self.at, Walk::before)
    }

    /// The bytes of the last batch; fewer if the file was shortened.
    pub(super) fn bytes(&self, found: &FoundBatch) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.read(found, &mut bytes)?;
        Ok(bytes)
    }

    /// Replaces `bytes` by [`Batches::bytes`].
    pub(super) fn read(&self, found: &FoundBatch, bytes: &mut Vec<u8>) -> Result<()> {
        match &self.walk {
            Some(walk) => walk.reader.read_batch(found.position, &found.header, bytes),
            None => {
                bytes.clear();
                Ok(())
            }
        }
    }

    /// The last batch, in place; `None` if rows cannot keep the memory that it was read into.
    pub(super) fn lend(&mut self, found: &FoundBatch) -> Result<Option<Lent>> {
        match &mut self.walk {
            Some(walk) => walk.reader.lend(found.position, &found.header),
            None => Ok(None),
        }
    }

    /// [`Walk::lose`], limited by the next batch, the next segment and the end of the partition,
    /// because the offsets that the lost batch states may be wrong. Returns where the batch ends,
    /// and the offset after it.
    pub(super) fn lose(&mut self, disk: &dyn Disk, found: &FoundBatch) -> Result<(u64, u64)> {
        let next_base = self.next_base();
        let limit = next_base.min(self.end);
        let Some(walk) = &mut self.walk else {
            return Ok((found.position + u64::from(found.header.len), self.at));
        };
        let after = walk.lose(found)?;
        let mut end = walk.position;
        while !matches!(self.ahead.back(), Some(Step::Batch(_) | Step::End))
            && self.ahead.len() < AHEAD_MAX
        {
            self.ahead.push_back(walk.next(disk)?);
        }
        // A length that leads to no batch may be wrong. Then the damage begins with the batch.
        if let Some(Step::Damage(bytes, _)) = self.ahead.front()
            && bytes.start <= found.position
            && (bytes.end < walk.reader.len || next_base < u64::MAX)
        {
            end = bytes.end;
            self.ahead.pop_front();
        }
        let next = match self.ahead.back() {
            Some(Step::Batch(next)) => Some(next.header.first_offset()),
            Some(Step::Damage(..)) => Some(walk.before()),
            _ => None,
        };
        // The old formats may not state the first offset.
        let next = next.filter(|next| *next > 0).unwrap_or(limit);
        Ok((end, after.min(next).min(limit)))
    }
}
