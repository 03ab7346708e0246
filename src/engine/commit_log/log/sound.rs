//! The loop over the log that yields sound records and the holes between them.
//!
//! A *hole* reaches from a record that is not sound to the next sound one. Bytes that cannot be
//! read are an error, never a hole, so that a lack of descriptors or memory is never mistaken for
//! damage.
//!
//! Two callers have their own loops. Recovery ([`walk`](super::walk::walk)) must decide whether a
//! record that is not sound begins a hole or is the end of the log. A cursor over an archive reads
//! bytes in memory, not in a log file.

use super::Log;
use super::search::Searcher;
use super::walker::{Step, Walker};
use crate::engine::Check;
use crate::error::{Error, Op, Result};
use crate::record::Flaw;
use crate::record::rocketmq::{Freshness, Layout, Record};
use crate::region::Region;
use std::io::ErrorKind;
use std::ops::Range;
use std::sync::Arc;

/// Which checks a record must pass to count as sound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    /// Its structure.
    Structure,
    /// Its structure, and the position that it states.
    Position,
    /// These, and its checksums. The body is checked only if no whole-record checksum covers it.
    Checksums,
    /// These, and the checksum of the body.
    Body,
}

impl From<Check> for Depth {
    fn from(check: Check) -> Depth {
        match check {
            Check::Full => Depth::Checksums,
            Check::Structure => Depth::Position,
        }
    }
}

impl Depth {
    /// Checks a record of sound structure that was found at `position`.
    #[inline]
    pub fn check(self, record: &Record<'_>, position: u64) -> Result<Freshness, Flaw> {
        match self {
            Depth::Structure => Ok(Freshness::Fresh),
            Depth::Position => match record.position() == position.cast_signed() {
                true => Ok(Freshness::Fresh),
                false => Err(Flaw::Position(record.position())),
            },
            Depth::Checksums => record.check(position),
            Depth::Body => {
                let freshness = record.check(position)?;
                record.check_body().map(|()| freshness)
            }
        }
    }
}

/// One step of a walk.
#[derive(Debug)]
pub enum Sound<'a> {
    /// A sound record.
    Record(Record<'a>, Place),
    /// Bytes that hold no record.
    Hole(Hole),
}

/// The place of a record.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// Its position.
    pub position: u64,
    /// Its first byte in the region.
    pub at: usize,
    /// Whether its checksum is its own, as far as checksums were verified.
    pub freshness: Freshness,
}

/// Bytes of the log that hold no record.
#[derive(Debug)]
pub struct Hole {
    /// From the first byte to the next record, or to the limit of the walk.
    pub range: Range<u64>,
    /// What is wrong at the first byte.
    pub flaw: Flaw,
    /// Whether a record follows below the limit.
    pub is_followed: bool,
}

/// Walks the contents of the log. Skips what retention deletes meanwhile.
#[derive(Debug)]
pub struct SoundWalk {
    log: Arc<Log>,
    walker: Walker,
    depth: Depth,
    limit: u64,
    searcher: Searcher,
}

impl SoundWalk {
    /// A walk over the records and holes that begin in `range`.
    pub fn new(log: &Arc<Log>, range: Range<u64>, depth: Depth) -> SoundWalk {
        SoundWalk {
            log: Arc::clone(log),
            walker: Walker::new(log, range.start, range.end),
            depth,
            limit: range.end,
            searcher: Searcher::default(),
        }
    }

    /// Searches for the end of a hole up to `limit`, which may be after the end of the walk.
    pub fn with_limit(mut self, limit: u64) -> SoundWalk {
        self.limit = limit.max(self.limit);
        self
    }

    /// Position of the next step.
    #[inline]
    pub fn position(&self) -> u64 {
        self.walker.position()
    }

    /// Continues at `position`.
    pub fn move_to(&mut self, position: u64) {
        self.walker.move_to(position);
    }

    /// Moves the end of the walk.
    pub fn extend(&mut self, end: u64) {
        self.walker.extend(end);
        self.limit = end;
    }

    /// The file of the last record.
    #[inline]
    pub fn region(&self) -> Option<&Arc<Region>> {
        self.walker.region()
    }

    /// The next record or hole; `None` at the end. After an error the walk stays at its position.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if bytes cannot be read.
    #[inline]
    pub fn next(&mut self) -> Result<Option<Sound<'_>>> {
        let (place, layout) = match self.step()? {
            None => return Ok(None),
            Some(Err(hole)) => return Ok(Some(Sound::Hole(hole))),
            Some(Ok(met)) => met,
        };
        let record = self.walker.record(place.at, layout).ok_or_else(|| {
            // The step has read these bytes, and bytes that were read once stay readable.
            let path = self.log.path_at(place.position);
            Error::io(Op::Read, path, ErrorKind::UnexpectedEof.into())
        })?;
        Ok(Some(Sound::Record(record, place)))
    }

    #[inline]
    fn step(&mut self) -> Result<Option<Result<(Place, Layout), Hole>>> {
        loop {
            let position = self.walker.position();
            let flaw = match self.walker.step()? {
                Step::End => return Ok(None),
                Step::Blank => continue,
                Step::Flawed(flaw) => flaw,
                Step::Record(at, layout) => match self.check(position, at, layout) {
                    Ok(freshness) => {
                        let place = Place {
                            position,
                            at,
                            freshness,
                        };
                        return Ok(Some(Ok((place, layout))));
                    }
                    Err(flaw) => flaw,
                },
            };
            if let Some(hole) = self.hole(position, flaw)? {
                return Ok(Some(Err(hole)));
            }
        }
    }

    #[inline]
    fn check(&self, position: u64, at: usize, layout: Layout) -> Result<Freshness, Flaw> {
        if self.depth == Depth::Structure {
            return Ok(Freshness::Fresh);
        }
        let record = self.walker.record(at, layout).ok_or(Flaw::Empty)?;
        self.depth.check(&record, position)
    }

    /// Moves past the hole at `position`; `None` if retention has deleted these bytes.
    #[cold]
    fn hole(&mut self, position: u64, flaw: Flaw) -> Result<Option<Hole>> {
        self.walker.move_to(position);
        let min = self.log.min_position();
        if position < min {
            self.walker.move_to(min);
            return Ok(None);
        }
        let next = self
            .searcher
            .next_record(&self.log, position + 1, self.limit)?;
        let end = next.unwrap_or(self.limit);
        self.walker.move_to(end);
        Ok(Some(Hole {
            range: position..end,
            flaw,
            is_followed: next.is_some(),
        }))
    }
}
