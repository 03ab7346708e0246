//! Transactions: which are open, and how each ended.
//!
//! The log says both: a *marker*, a control record of the producer, ends each transaction. An open
//! transaction has data and no marker yet. Where the search for open ones begins is read from a
//! producer snapshot, which a broker writes for the base of each new segment.

use super::names::beside;
use super::segment::{Segment, Segments};
use super::walk::{Found, Reader, Step, Walk};
use crate::disk::{Disk, read_small};
use crate::error::Result;
use crate::record::kafka::varint::Reader as Fields;
use crate::record::kafka::{Header, Marker, Opened};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

/// The transactions of a partition that are open.
#[derive(Debug, Default)]
pub(super) struct Open {
    /// First offset of each, by producer.
    first: BTreeMap<i64, u64>,
    /// Offset up to which the log was searched; `None` before the first search.
    until: Option<u64>,
}

impl Open {
    /// Searches the log up to `end`. Returns the last stable offset: that of the first message of
    /// the oldest open transaction; `end` if none is open.
    pub(super) fn update(&mut self, disk: &dyn Disk, segments: &Segments, end: u64) -> Result<u64> {
        let from = match self.until {
            Some(until) => until,
            None => self.load_snapshot(disk, segments, end)?,
        };
        if from < end {
            let mut batches = Batches::new(Arc::clone(segments), from);
            while let Some((header, marker)) = batches.next(disk, end)? {
                if header.last_offset() < from {
                    continue;
                }
                if marker.is_some() {
                    self.first.remove(&header.producer_id);
                } else if header.is_transactional()
                    && !header.is_control()
                    && !self.first.contains_key(&header.producer_id)
                    && batches.last_is_whole()?
                {
                    self.first.insert(header.producer_id, header.first_offset());
                }
            }
        }
        self.until = Some(end);
        Ok(self.first.values().copied().min().unwrap_or(end))
    }

    /// Reads the newest usable snapshot, and returns its offset; the first offset if there is none.
    fn load_snapshot(&mut self, disk: &dyn Disk, segments: &Segments, end: u64) -> Result<u64> {
        for segment in segments.iter().rev().filter(|it| it.base <= end) {
            if let Some(open) = snapshot(disk, segment)? {
                self.first = open
                    .into_iter()
                    .filter(|(_, at)| *at < segment.base)
                    .collect();
                return Ok(segment.base);
            }
        }
        Ok(segments.first().map_or(0, |segment| segment.base))
    }
}

/// The transactions that are open at the base of a segment: producer and first offset. `None` if
/// the segment has no snapshot, or a damaged one.
fn snapshot(disk: &dyn Disk, segment: &Segment) -> Result<Option<Vec<(i64, u64)>>> {
    /// Longest snapshot that is read: a million producers.
    const LEN_MAX: u64 = 46 << 20;
    /// First byte that the checksum covers.
    const CRC_FROM: usize = 6;
    let path = beside(&segment.path, ".snapshot");
    let bytes = match read_small(disk, &path, LEN_MAX) {
        Err(error) if error.kind() == Some(std::io::ErrorKind::InvalidData) => return Ok(None),
        read => read?.unwrap_or_default(),
    };
    let covered = crc32c::crc32c(bytes.get(CRC_FROM..).unwrap_or_default());
    let mut fields = Fields::new(&bytes);
    if fields.i16() != Some(1) || fields.u32() != Some(covered) {
        return Ok(None);
    }
    let count = fields.i32().unwrap_or_default();
    let mut open = Vec::new();
    for _ in 0..count {
        let Some(mut entry) = fields.take(46).map(Fields::new) else {
            return Ok(None);
        };
        let producer = entry.i64();
        let first = entry.take(30).and_then(|_| entry.i64());
        if let (Some(producer), Some(Ok(first))) = (producer, first.map(u64::try_from)) {
            open.push((producer, first));
        }
    }
    Ok(Some(open))
}

/// The headers of batches in several segments, and the markers among them. Damage is passed over.
#[derive(Debug)]
struct Batches {
    segments: Segments,
    /// Number of the next segment.
    next: usize,
    from: u64,
    walk: Option<Walk>,
    last: Option<Found>,
}

impl Batches {
    /// Begins with the batch that holds `from`, or one before it.
    fn new(segments: Segments, from: u64) -> Batches {
        let after = segments.partition_point(|segment| segment.base <= from);
        Batches {
            segments,
            next: after.saturating_sub(1),
            from,
            walk: None,
            last: None,
        }
    }

    /// Whether the last batch is whole. A damaged header must not open a transaction, which nobody
    /// would end.
    fn last_is_whole(&self) -> Result<bool> {
        match (&self.walk, &self.last) {
            (Some(walk), Some(last)) => walk.reader.is_whole(last.position, &last.header),
            _ => Ok(false),
        }
    }

    /// The next batch that begins below `end`.
    fn next(&mut self, disk: &dyn Disk, end: u64) -> Result<Option<(Header, Option<Marker>)>> {
        loop {
            let Some(walk) = &mut self.walk else {
                let Some(segment) = self.segments.get(self.next) else {
                    return Ok(None);
                };
                self.next += 1;
                self.walk = match Reader::open(disk, segment) {
                    Err(error) if error.is_not_found() => continue,
                    Err(error) => return Err(error),
                    Ok(mut reader) => {
                        let position = reader.seek(disk, self.from)?;
                        Some(Walk::new(reader, position))
                    }
                };
                continue;
            };
            match walk.next(disk)? {
                Step::Batch(found) if found.header.first_offset() >= end => return Ok(None),
                Step::Batch(found) => {
                    self.last = Some(found);
                    let header = found.header;
                    let marker = match header.is_control() {
                        true => Opened::open(walk.batch(&found)?, true)
                            .and_then(|mut batch| batch.marker())
                            .unwrap_or_default(),
                        false => None,
                    };
                    return Ok(Some((header, marker)));
                }
                Step::Damage(..) => {}
                Step::End => self.walk = None,
            }
        }
    }
}

/// Says how transactions ended, by looking ahead for their markers.
#[derive(Debug)]
pub(super) struct Outcomes {
    batches: Batches,
    /// Offsets of the markers found so far, by producer.
    markers: HashMap<i64, VecDeque<(u64, Marker)>>,
    end: u64,
}

impl Outcomes {
    /// For the batches from `from` on, in order, of a log that ends at `end`.
    pub(super) fn new(segments: Segments, from: u64, end: u64) -> Outcomes {
        Outcomes {
            batches: Batches::new(segments, from),
            markers: HashMap::new(),
            end,
        }
    }

    /// Whether the batch is part of a transaction that was committed, or of none.
    pub(super) fn is_committed(&mut self, disk: &dyn Disk, header: &Header) -> Result<bool> {
        if !header.is_transactional() {
            return Ok(true);
        }
        loop {
            let markers = self.markers.entry(header.producer_id).or_default();
            while markers
                .front()
                .is_some_and(|(offset, _)| *offset < header.last_offset())
            {
                markers.pop_front();
            }
            if let Some((_, marker)) = markers.front() {
                return Ok(*marker == Marker::Commit);
            }
            match self.batches.next(disk, self.end)? {
                Some((found, Some(marker))) => {
                    let markers = self.markers.entry(found.producer_id).or_default();
                    markers.push_back((found.last_offset(), marker));
                }
                Some((_, None)) => {}
                None => return Ok(false),
            }
        }
    }
}
