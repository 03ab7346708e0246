//! The segments that an archive may copy, and the walk that surveys one.
//!
//! An archive must never be ahead of its store: after a power loss the store may give the offset of
//! a lost message to another one. So it copies only complete segments that every recovery keeps.
//! How a process knows them:
//!
//! | process | how it knows them |
//! |---|---|
//! | the writer | by the durable ends, after a flush that makes whole atomic batches durable |
//! | others | by the recovery points, and the intent of an atomic batch that may not be whole yet |
//!
//! Compaction replaces segments, but an archive keeps what it has copied and never has two copies
//! of an offset. If a segment joins messages that the archive has with later ones, the archive gets
//! only the later batches, as a segment that begins with them.

use super::folder::View;
use super::partition::Partition;
use super::segments::reader::Reader;
use super::segments::room::is_room;
use super::segments::segment::Segment;
use super::segments::walk::{FoundBatch, Step, Walk};
use super::write::files::{self, RECOVERY_POINT};
use super::write::indexes::Indexes;
use super::write::intent;
use super::write::rules::Rules;
use super::{Key, PartitionLog};
use crate::disk::Disk;
use crate::engine::Topic;
use crate::engine::archive::segment::{SegmentSurveyor, SurveyedBatch};
use crate::engine::archive::{SealedSegment, SegmentSurvey};
use crate::engine::directory::kept_options::Kept;
use crate::error::{Error, Result};
use crate::num::low_u32;
use crate::options::EngineKind;
use crate::plant::{Bug, planted};
use crate::record::Flaw;
use std::collections::HashMap;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// The sealed segments of all partitions, or of one.
pub(super) fn sealed(
    engine: &PartitionLog,
    only: Option<(&Topic, u32)>,
) -> Result<Vec<SealedSegment>> {
    engine.usable()?;
    engine.update()?;
    let only: Option<Key> = only.map(|(topic, queue)| (topic.id, queue));
    let partitions = engine.partitions.read();
    let meant = partitions
        .iter()
        .filter(|(key, _)| only.is_none_or(|only| only == **key));
    let meant: Vec<Arc<Partition>> = meant.map(|(_, it)| Arc::clone(it)).collect();
    drop(partitions);
    match &engine.writer {
        Some(writer) => {
            let flush = || match planted(Bug::ArchiveUnsynced) {
                true => Ok(()),
                false => writer.parts.flush(),
            };
            flush()?;
            let found = meant.iter().flat_map(|it| past(it)).collect();
            // An atomic batch may have ended a segment before its last rows were durable.
            flush()?;
            Ok(found)
        }
        None => {
            let limits = Limits::load(engine)?;
            let mut found = Vec::new();
            for partition in meant {
                let view = engine.view(&partition)?;
                found.extend(before(&partition, &view, limits.of(&partition)));
            }
            Ok(found)
        }
    }
}

/// Whether the partition still has a sealed segment, unchanged.
fn is_there(engine: &PartitionLog, partition: &Partition, it: &SealedSegment) -> Result<bool> {
    Ok(match &engine.writer {
        Some(_) => past(partition).contains(it),
        None => before(partition, &engine.view(partition)?, it.end).contains(it),
    })
}

/// The complete segments of a partition that this process writes.
fn past(partition: &Partition) -> Vec<SealedSegment> {
    let ends = partition.folder.ends.as_ref();
    let Some(ends) = ends else {
        return Vec::new();
    };
    if planted(Bug::ArchiveUnsynced) {
        let (all, end) = ends.complete();
        let nexts = all.iter().skip(1).map(|it| it.base).chain([end]);
        let all = all.iter().zip(nexts);
        return all.map(|(it, end)| sealed_of(partition, it, end)).collect();
    }
    let past = ends.past().segments.into_iter();
    past.map(|(segment, end)| sealed_of(partition, &segment, end))
        .collect()
}

/// The complete segments of a partition that end before the offset `limit`.
fn before(partition: &Partition, view: &View, limit: u64) -> Vec<SealedSegment> {
    let nexts = view.segments.iter().skip(1).map(|it| it.base);
    let all = view.segments.iter().zip(nexts);
    // While a segment is being replaced, its file has another name.
    let sealed = all.take_while(|(segment, end)| {
        *end <= limit && segment.path.extension().is_some_and(|it| it == "log")
    });
    sealed
        .map(|(segment, end)| sealed_of(partition, segment, end))
        .collect()
}

fn sealed_of(partition: &Partition, segment: &Segment, end: u64) -> SealedSegment {
    SealedSegment {
        topic: Arc::clone(&partition.topic),
        queue: partition.queue,
        start: segment.base,
        end,
        path: segment.path.clone(),
        length: segment.len,
    }
}

/// The offsets below which recovery keeps everything, as the files state them.
struct Limits {
    points: HashMap<(String, u32), u64>,
    intents: HashMap<(String, u32), u64>,
}

impl Limits {
    fn load(engine: &PartitionLog) -> Result<Limits> {
        let (disk, root) = (engine.disk(), &engine.root);
        // Points first: the intent of a batch below a point was saved before that point.
        let points = files::read_checkpoint(disk, &root.join(RECOVERY_POINT))?;
        let points = points.into_iter();
        Ok(Limits {
            points: points
                .map(|(topic, queue, at)| ((topic, queue), at))
                .collect(),
            intents: intent::begins(disk, root)?,
        })
    }

    fn of(&self, partition: &Partition) -> u64 {
        let key = (partition.topic.to_string(), partition.queue);
        let point = self.points.get(&key).copied().unwrap_or_default();
        let intent = self.intents.get(&key).copied().unwrap_or(u64::MAX);
        point.min(intent)
    }
}

/// What an archive gets of a sealed segment.
pub(super) fn survey(
    engine: &PartitionLog,
    sealed_segment: &SealedSegment,
    after: Option<u64>,
) -> Result<SegmentSurvey> {
    let it = sealed_segment;
    let topic = engine.topics.get(&it.topic);
    let Some(partition) = topic.and_then(|topic| engine.partition(&topic, it.queue)) else {
        return Err(gone(&it.path));
    };
    let disk = engine.disk();
    let segment = Arc::new(Segment {
        base: it.start,
        path: it.path.clone(),
        len: it.length,
    });
    let reader = match Reader::open(disk, &segment) {
        Err(error) if error.is_not_found() => return Err(gone(&it.path)),
        opened => opened?,
    };
    // The list is read after the file was opened: a segment that is still in it is this file.
    if reader.len < it.length || !is_there(engine, &partition, it)? {
        return Err(gone(&it.path));
    }
    let first = engine.view(&partition)?.bounds.start;
    let known = after.unwrap_or(it.start).max(it.start);
    let rules = match &engine.writer {
        Some(writer) => writer.parts.rules,
        // The saved options, so that all archivers write the same indexes.
        None => {
            let kind = EngineKind::PartitionLog;
            Rules::new(&Kept::load(disk, &engine.root, &engine.options, kind)?.options)
        }
    };
    let copier = Copier::new(it, known, &rules);
    // An archive that begins with this segment hides messages before the first offset.
    let offsets = match after {
        Some(after) => after..it.end,
        None => first.max(it.start).min(it.end - 1)..it.end,
    };
    copier.copy(disk, Walk::new(reader, 0), &offsets)
}

fn gone(path: &Path) -> Error {
    Error::NotFound {
        path: path.to_owned(),
    }
}

/// Makes the survey of a segment.
struct Copier<'a> {
    segment: &'a SealedSegment,
    /// Batches whose offsets are all lower are left out.
    from: u64,
    begun: bool,
    /// Where the copy ends in the file of the segment.
    end: u64,
    survey: SegmentSurvey,
    surveyor: SegmentSurveyor,
    indexes: Indexes,
}

impl<'a> Copier<'a> {
    /// `from`: batches whose offsets are all lower are left out.
    fn new(segment: &'a SealedSegment, from: u64, rules: &Rules) -> Copier<'a> {
        Copier {
            segment,
            from,
            begun: from <= segment.start,
            end: 0,
            survey: SegmentSurvey {
                start: from,
                ..SegmentSurvey::default()
            },
            surveyor: SegmentSurveyor::new(&segment.topic, segment.queue),
            indexes: Indexes::new(from, rules),
        }
    }

    /// Walks the segment. `offsets` are those that the copy stands for.
    fn copy(
        mut self,
        disk: &dyn Disk,
        mut walk: Walk,
        offsets: &Range<u64>,
    ) -> Result<SegmentSurvey> {
        walk.is_complete = true;
        loop {
            match walk.next(disk)? {
                Step::Batch(found) => match self.flaw(&walk, &found)? {
                    None => self.add(&walk, &found),
                    Some(flaw) => {
                        let bytes = found.position..walk.position;
                        walk.lose(&found)?;
                        self.pass_over(bytes, &flaw);
                    }
                },
                // A writer died between beginning the next segment and cutting this one.
                Step::Damage(bytes, flaw) if is_room(&walk, &bytes, &flaw, self.segment.end) => {}
                Step::Damage(bytes, flaw) => self.pass_over(bytes, &flaw),
                Step::End => break,
            }
        }
        let Copier { mut survey, .. } = self;
        if self.end > survey.skip {
            let (skip, path) = (survey.skip, &self.segment.path);
            let read = |position: u64, len: usize| {
                let bytes = walk.reader.bytes(skip + position, len)?;
                match bytes.len() == len {
                    true => Ok(bytes),
                    false => Err(gone(path)),
                }
            };
            survey.table = self.surveyor.finish(self.end - skip, offsets, read)?;
            (survey.offset_index, survey.time_index) = self.indexes.into_bytes();
        }
        Ok(survey)
    }

    /// Adds the last batch of the walk, unless all its offsets are too low.
    fn add(&mut self, walk: &Walk, found: &FoundBatch) {
        let FoundBatch { position, header } = found;
        if !self.begun {
            if header.last_offset() < self.from {
                return;
            }
            self.begun = true;
            self.survey.skip = *position;
        }
        let skip = self.survey.skip;
        let (last, time) = (header.last_offset(), header.max_timestamp);
        // The old formats may not state the first offset.
        let first = header.first_offset().max(walk.before()).min(last);
        let count = match header.is_control() {
            true => 0,
            false => header
                .record_count
                .unwrap_or_else(|| low_u32(last + 1 - first)),
        };
        self.surveyor.add(&SurveyedBatch {
            bytes: position - skip..walk.position - skip,
            offsets: first..last + 1,
            records: count,
            times: (header.base_timestamp.min(time), time),
        });
        let len = u64::from(header.len);
        self.indexes.add(position - skip, len, last, time);
        self.end = walk.position;
    }

    /// Adds bytes that are not a batch.
    fn pass_over(&mut self, bytes: Range<u64>, flaw: &Flaw) {
        if self.begun {
            let skip = self.survey.skip;
            self.surveyor
                .skip(&(bytes.start - skip..bytes.end - skip), flaw);
            self.end = bytes.end;
        }
    }

    /// What is wrong with a batch.
    fn flaw(&self, walk: &Walk, found: &FoundBatch) -> Result<Option<Flaw>> {
        let header = &found.header;
        let bytes = walk.batch(found)?;
        Ok(if header.last_offset() >= self.segment.end {
            Some(Flaw::Field("offset"))
        } else if bytes.len() < header.len as usize || !header.has_crc_of(&bytes) {
            Some(Flaw::RecordChecksum)
        } else {
            None
        })
    }
}
