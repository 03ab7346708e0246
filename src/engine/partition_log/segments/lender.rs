//! Memory that bytes of a segment are read into and that the rows of a reader keep, so that no
//! record is copied out of it.
//!
//! The first touch of a page of new memory takes as long as copying several records. So regions
//! that were lent are kept, and one is filled again once no reader has it any more.

use crate::error::{At, Op, Result};
use crate::record::kafka::in_batch;
use crate::region::Region;
use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;

/// The name of the memory that holds the records read.
pub const NAME: &str = ":records:";
/// Length of a region, with its preface. Together with the columns that are made of it, it fits in
/// the cache of one core.
pub const LENT_LEN: usize = 128 << 10;
/// How many regions are kept: a few more than the rows of a batch of a scan take.
const KEPT_MAX: usize = 144;

/// How many of them are tried when one is wanted.
const TRIED_MAX: usize = 2;

/// Regions of one length that were handed out, the oldest first.
#[derive(Debug)]
pub struct Kept {
    len: usize,
    max: usize,
    regions: VecDeque<Arc<Region>>,
}

impl Kept {
    /// At most `max` regions of `len` bytes.
    pub fn new(len: usize, max: usize) -> Kept {
        let regions = VecDeque::new();
        Kept { len, max, regions }
    }

    /// A region that no reader has any more, one of the oldest; otherwise a new one of `wanted`
    /// bytes.
    pub fn region(&mut self, wanted: usize) -> Result<Region> {
        self.free(wanted).map_or_else(|| made(wanted), Ok)
    }

    fn free(&mut self, wanted: usize) -> Option<Region> {
        // A message that is held for long must not keep all others from being used again.
        for _ in 0..TRIED_MAX {
            let oldest = self.regions.pop_front()?;
            if wanted <= self.len && Arc::strong_count(&oldest) == 1 {
                let mut region = Arc::into_inner(oldest)?;
                region.reuse();
                return Some(region);
            }
            self.regions.push_back(oldest);
        }
        None
    }

    /// Keeps a region that is handed out, if it has the length of the others.
    pub fn keep(&mut self, region: &Arc<Region>) {
        if region.len() == self.len {
            if self.regions.len() == self.max {
                self.regions.pop_front();
            }
            self.regions.push_back(Arc::clone(region));
        }
    }
}

fn made(len: usize) -> Result<Region> {
    let name = Path::new(NAME);
    Region::anonymous(len, name).at(Op::Allocate, name)
}

/// Lends memory of one partition.
#[derive(Debug)]
pub struct Lender {
    /// Whether memory is lent. Each record that a reader keeps holds a whole region, so only
    /// readers that take many records borrow.
    pub is_on: bool,
    preface: Vec<u8>,
    topic_len: u32,
    kept: Kept,
}

impl Lender {
    /// A lender that is off.
    pub fn new(topic: &str, queue: u32) -> Lender {
        Lender {
            is_on: false,
            preface: in_batch::preface(topic, queue),
            topic_len: crate::num::short(topic.len()),
            kept: Kept::new(LENT_LEN, KEPT_MAX),
        }
    }

    /// Bytes of the topic in a preface.
    pub fn topic_len(&self) -> u32 {
        self.topic_len
    }

    /// Bytes before those of the segment.
    pub fn preface_len(&self) -> usize {
        self.preface.len()
    }

    /// Reads up to `left` bytes of a segment from a position on, as many as fit. `read` reads them.
    pub fn fill(
        &mut self,
        position: u64,
        left: u64,
        read: impl FnOnce(&mut [u8]) -> Result<usize>,
    ) -> Result<Arc<Region>> {
        let begin = self.preface.len();
        let left = usize::try_from(left).unwrap_or(LENT_LEN);
        let wanted = begin.saturating_add(left).min(LENT_LEN);
        // The last bytes of a segment must not hold much more memory than they take.
        let mut region = match wanted > LENT_LEN / 2 {
            true => self.kept.region(LENT_LEN)?,
            false => made(wanted)?,
        };
        in_batch::set_position(&mut self.preface, position);
        let room = region.room().get_mut(..wanted).unwrap_or_default();
        let mut have = 0;
        if let Some((preface, room)) = room.split_at_mut_checked(begin) {
            preface.copy_from_slice(&self.preface);
            have = read(room)?;
        }
        region.publish(begin + have);
        let region = Arc::new(region);
        self.kept.keep(&region);
        Ok(region)
    }
}
