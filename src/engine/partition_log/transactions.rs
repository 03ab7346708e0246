//! Transactions: which are open, and how each ended.
//!
//! The log says both: a *marker*, a control record of the producer, ends each transaction. An open
//! transaction has data and no marker yet. Where the search for open ones begins is read from a
//! producer snapshot, which a broker writes for the base of each new segment.
//!
//! Damaged bytes may have held a marker. The next marker of a producer then does not decide about
//! its messages before the damage: they count as not committed, and the damage is reported as their
//! loss. Unlike an open transaction, they do not hold back later messages.

use super::batches::Batches;
use super::folder::{Folder, View};
use super::segments::segment::Segment;
use super::segments::snapshot::snapshot;
use super::segments::walk::{FoundBatch, Step};
use crate::disk::Disk;
use crate::engine::{Damage, DamageKind};
use crate::error::Result;
use crate::record::Flaw;
use crate::record::kafka::{Header, Opened, TransactionMarker};
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::Arc;

/// A batch of at most this many bytes may be a marker with damaged attributes; its checksum shows
/// it.
const MARKER_LEN_MAX: u32 = 128;
/// The most markers, and producers, that are remembered of a partition.
const MARKERS_MAX: usize = 1 << 16;
/// The most damaged places that are remembered.
const HOLES_MAX: usize = 1 << 10;
/// A search continues for this many bytes past the marker that it found, to spare the next search
/// work.
const AHEAD: u64 = 256 << 10;

/// The transactions of a partition that are open.
#[derive(Debug, Default)]
pub(super) struct Open {
    /// First offset of each, by producer.
    first: BTreeMap<i64, u64>,
    /// Offset up to which the log was searched; `None` before the first search.
    until: Option<u64>,
    truncations: u64,
}

impl Open {
    /// Searches the log up to the end of a view. Returns the last stable offset: that of the first
    /// message of the oldest open transaction; the end if none is open.
    pub(super) fn update(
        &mut self,
        disk: &dyn Disk,
        folder: &Arc<Folder>,
        view: &View,
    ) -> Result<u64> {
        if self.truncations != view.truncations {
            *self = Open {
                truncations: view.truncations,
                ..Open::default()
            };
        }
        let from = match self.until {
            Some(until) => until,
            None => self.load_snapshot(disk, view)?,
        };
        if from < view.end {
            let mut search = Search::new(folder, view, from);
            while let Some(event) = search.next(disk)? {
                match event {
                    Event::Marker(header, _) => drop(self.first.remove(&header.producer_id)),
                    Event::Data(found) if !self.first.contains_key(&found.header.producer_id) => {
                        // A damaged header must not open a transaction, which nobody would end.
                        if search.is_whole(&found)? {
                            let Header { producer_id, .. } = found.header;
                            self.first.insert(producer_id, found.header.first_offset());
                        }
                    }
                    Event::Data(_) => {}
                    Event::Hole(_) => self.first.clear(),
                }
            }
            self.until = Some(view.end);
        }
        let oldest = self.first.values().copied().min();
        Ok(oldest.unwrap_or(view.end).min(view.end))
    }

    /// Reads the newest usable snapshot, and returns its offset; the first offset if there is none.
    fn load_snapshot(&mut self, disk: &dyn Disk, view: &View) -> Result<u64> {
        let segments = &view.segments;
        for segment in segments.iter().rev().filter(|it| it.base <= view.end) {
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

/// What a search meets.
#[derive(Debug)]
enum Event {
    /// A batch of a transaction.
    Data(FoundBatch),
    /// A marker.
    Marker(Header, TransactionMarker),
    /// Damaged bytes.
    Hole(Hole),
}

/// Damaged bytes that may have held markers.
#[derive(Clone, Debug)]
struct Hole {
    /// The offsets that they may have had.
    offsets: Range<u64>,
    damage: Damage,
}

impl Hole {
    /// Whether the damage lies after a batch with this last offset.
    fn is_after(&self, at: u64) -> bool {
        self.offsets.end > at
    }
}

/// Searches a partition for transactions.
struct Search {
    batches: Batches,
    from: u64,
    /// Offset after the last batch.
    at: u64,
    /// Damage after which no batch was met yet.
    damage: Option<Damage>,
    /// The batch after that damage.
    after: Option<FoundBatch>,
    /// Bytes of the batches met.
    bytes: u64,
}

impl Search {
    /// A search from an offset to the end of a view.
    fn new(folder: &Arc<Folder>, view: &View, from: u64) -> Search {
        Search {
            batches: Batches::new(folder, view, from),
            from,
            at: from,
            damage: None,
            after: None,
            bytes: 0,
        }
    }

    fn next(&mut self, disk: &dyn Disk) -> Result<Option<Event>> {
        loop {
            if let Some(found) = self.after.take() {
                if let Some(event) = self.event(disk, &found)? {
                    return Ok(Some(event));
                }
                continue;
            }
            match self.batches.next(disk)? {
                Step::Batch(found) if found.header.first_offset() >= self.batches.end => {
                    return Ok(None);
                }
                // Damage before it is not part of the search.
                Step::Batch(found) if found.header.last_offset() < self.from => self.damage = None,
                Step::Batch(found) => {
                    // Not the last offset of the batch before, which may be damaged.
                    self.at = self.batches.before().max(self.from);
                    self.after = Some(found);
                    if let Some(damage) = self.damage.take() {
                        let end = found.header.first_offset().max(self.at);
                        let offsets = self.at..end;
                        return Ok(Some(Event::Hole(Hole { offsets, damage })));
                    }
                }
                Step::Damage(bytes, flaw) => {
                    let segment = self.batches.segment();
                    self.damage = self.damage.take().or_else(|| damage(segment, bytes, flaw));
                }
                Step::End => return Ok(None),
            }
        }
    }

    /// What a batch is.
    fn event(&mut self, disk: &dyn Disk, found: &FoundBatch) -> Result<Option<Event>> {
        let header = &found.header;
        let first = header.first_offset().max(self.at);
        self.at = header.last_offset() + 1;
        self.bytes += u64::from(header.len);
        if !header.is_control() && header.len > MARKER_LEN_MAX {
            return Ok(header.is_transactional().then_some(Event::Data(*found)));
        }
        let bytes = self.batches.bytes(found)?;
        let opened = match header.is_control() {
            true => Opened::open(bytes, true).and_then(|mut batch| batch.marker()),
            false if header.has_crc_of(&bytes) => Ok(None),
            false => Err(Flaw::RecordChecksum),
        };
        Ok(match opened {
            Ok(Some(marker)) => Some(Event::Marker(*header, marker)),
            Ok(None) if header.is_control() || !header.is_transactional() => None,
            Ok(None) => Some(Event::Data(*found)),
            Err(flaw) => {
                let (end, after) = self.batches.lose(disk, found)?;
                self.at = after.max(first);
                let bytes = found.position..end;
                let damage = damage(self.batches.segment(), bytes, flaw);
                damage.map(|damage| {
                    Event::Hole(Hole {
                        offsets: first..self.at,
                        damage,
                    })
                })
            }
        })
    }

    /// Whether the last batch is whole.
    fn is_whole(&self, found: &FoundBatch) -> Result<bool> {
        let bytes = self.batches.bytes(found)?;
        Ok(bytes.len() == found.header.len as usize && found.header.has_crc_of(&bytes))
    }
}

fn damage(segment: Option<(&Segment, u64)>, bytes: Range<u64>, flaw: Flaw) -> Option<Damage> {
    let (segment, _) = segment?;
    Some(Damage::new(DamageKind::Log, &segment.path, bytes, flaw))
}

/// How the transaction of a batch ended.
#[derive(Clone, Debug)]
pub(super) enum Outcome {
    /// Its messages count.
    Committed,
    /// They do not.
    Aborted,
    /// It has not ended.
    Open,
    /// This damage may have held its marker.
    Unknown(Damage),
}

/// Knows how transactions ended, by the markers that follow their batches. What a search has found
/// is remembered, so that reading a partition in small steps searches each part of it once.
#[derive(Debug, Default)]
pub(super) struct Outcomes {
    /// The offsets whose markers and holes are all remembered.
    searched: Range<u64>,
    /// By producer and offset.
    markers: BTreeMap<(i64, u64), TransactionMarker>,
    holes: Vec<Hole>,
    /// By producer, what was found for its last batch.
    last: HashMap<i64, Ending>,
    truncations: u64,
}

/// What follows a batch of a producer.
#[derive(Clone, Debug)]
struct Ending {
    /// Last offset of the batch, and the offset up to which the producer has no marker.
    range: Range<u64>,
    /// The first damage in that range.
    hole: Option<Hole>,
    /// The marker at its end.
    marker: Option<TransactionMarker>,
}

impl Ending {
    fn outcome(&self) -> Outcome {
        match (&self.hole, self.marker) {
            (Some(hole), _) => Outcome::Unknown(hole.damage.clone()),
            (None, Some(TransactionMarker::Commit)) => Outcome::Committed,
            (None, Some(TransactionMarker::Abort)) => Outcome::Aborted,
            (None, None) => Outcome::Open,
        }
    }
}

impl Outcomes {
    /// How the transaction of a batch ended. The batch must be part of one.
    pub(super) fn of(
        &mut self,
        disk: &dyn Disk,
        folder: &Arc<Folder>,
        view: &View,
        header: &Header,
    ) -> Result<Outcome> {
        let (producer, at) = (header.producer_id, header.last_offset());
        if self.truncations != view.truncations {
            *self = Outcomes {
                truncations: view.truncations,
                ..Outcomes::default()
            };
        }
        let mut ending = Ending {
            range: at..at,
            hole: None,
            marker: None,
        };
        if let Some(last) = self.last.get(&producer)
            && last.range.contains(&at)
            && last.hole.as_ref().is_none_or(|hole| hole.is_after(at))
        {
            if last.marker.is_some() {
                return Ok(last.outcome());
            }
            ending = Ending::clone(last);
        }
        self.recall(producer, &mut ending);
        if ending.marker.is_none() {
            self.search(disk, folder, view, (producer, at), &mut ending)?;
        }
        if self.last.len() >= MARKERS_MAX && !self.last.contains_key(&producer) {
            self.last.clear();
        }
        let outcome = ending.outcome();
        self.last.insert(producer, ending);
        Ok(outcome)
    }

    /// Extends `ending` by what is remembered.
    fn recall(&self, producer: i64, ending: &mut Ending) {
        let from = ending.range.end;
        if from < self.searched.start || from > self.searched.end {
            return;
        }
        let mut later = self.markers.range((producer, from)..=(producer, u64::MAX));
        let marker = later.next().map(|((_, offset), marker)| (*offset, *marker));
        let until = marker.map_or(self.searched.end, |(offset, _)| offset);
        ending.marker = marker.map(|(_, marker)| marker);
        ending.range.end = until.max(from);
        let mut holes = self.holes.iter();
        let first = holes.find(|hole| hole.is_after(from) && hole.offsets.start <= until);
        ending.hole = ending.hole.take().or_else(|| first.cloned());
    }

    /// Extends `ending` up to a marker of the producer, or to the end of the view. Remembers what
    /// is on the way, as long as there is room.
    fn search(
        &mut self,
        disk: &dyn Disk,
        folder: &Arc<Folder>,
        view: &View,
        (producer, at): (i64, u64),
        ending: &mut Ending,
    ) -> Result<()> {
        let from = ending.range.end;
        if from != self.searched.end {
            self.searched = from..from;
            self.markers.clear();
            self.holes.clear();
        } else if self.markers.len() >= MARKERS_MAX / 2 {
            self.markers.retain(|(_, offset), _| *offset >= at);
            self.holes.retain(|hole| hole.is_after(at));
            self.searched.start = self.searched.start.max(at);
        }
        let mut search = Search::new(folder, view, from);
        let mut until = u64::MAX;
        while search.bytes < until
            && let Some(event) = search.next(disk)?
        {
            let has_room = self.markers.len() < MARKERS_MAX;
            if !has_room && ending.marker.is_some() {
                break;
            }
            match event {
                Event::Data(_) => {}
                Event::Marker(header, marker) => {
                    let offset = header.last_offset();
                    if has_room {
                        self.markers.insert((header.producer_id, offset), marker);
                    }
                    if header.producer_id == producer && ending.marker.is_none() {
                        ending.marker = Some(marker);
                        ending.range.end = offset;
                        until = search.bytes + AHEAD;
                    }
                }
                Event::Hole(hole) => {
                    if ending.hole.is_none() && ending.marker.is_none() {
                        ending.hole = Some(hole.clone());
                    }
                    if has_room {
                        self.remember(hole);
                    }
                }
            }
            if has_room {
                self.searched.end = search.at;
            }
        }
        if ending.marker.is_none() {
            ending.range.end = view.end.max(from);
            if self.markers.len() < MARKERS_MAX {
                self.searched.end = ending.range.end;
            }
        }
        Ok(())
    }

    /// Remembers a hole. If there are too many, extends the last one to its end.
    fn remember(&mut self, hole: Hole) {
        let count = self.holes.len();
        match self.holes.last_mut().filter(|_| count >= HOLES_MAX) {
            Some(last) => last.offsets.end = hole.offsets.end,
            None => self.holes.push(hole),
        }
    }
}
