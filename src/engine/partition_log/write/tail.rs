//! The ends of all partitions, under the append lock.
//!
//! An append is planned first: segments are created and blocks reserved. This may fail, and then
//! nothing was appended. After that it only stores to maps, and publishes.
//!
//! The thread that syncs takes what was appended since the last sync as [`Unsynced`], for all
//! partitions at one moment.

use super::ends::{End, Ends};
use super::files;
use super::indexes::Indexes;
use super::intent::{self, Share};
use super::last::Last;
use super::rules::Rules;
use super::unsynced::Unsynced;
use crate::disk::Disk;
use crate::engine::partition_log::segments::segment::Segment;
use crate::engine::{Appended, Place, Topic};
use crate::error::{At, Op, Result};
use crate::mapped::MappedFile;
use crate::num::index;
use crate::plant::{Bug, planted};
use crate::record::Batch;
use crate::record::kafka::Part;
use crate::region::Region;
use smallvec::SmallVec;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The number of a topic, and a queue.
pub type Key = (u32, u32);

/// What a partition begins with.
#[derive(Debug, Default)]
pub struct Start {
    /// Its end.
    pub end: End,
    /// Whether messages may be appended to its last segment.
    pub continues: bool,
    /// The id of the topic, if the small files of the partition do not exist.
    pub id: Option<Arc<str>>,
}

/// What an append needs besides the tail.
pub struct Appender<'a> {
    /// The disk.
    pub disk: &'a Arc<dyn Disk>,
    /// The rules.
    pub rules: &'a Rules,
    /// The seed of the store.
    pub seed: u64,
    /// The time of the append, in ms.
    pub now_ms: i64,
    /// The log directory, if the batches are atomic together.
    pub whole: Option<&'a Path>,
}

/// The end of a partition.
#[derive(Debug)]
pub struct Writing {
    topic: Arc<str>,
    ends: Arc<Ends>,
    next: u64,
    /// Base and length of the last segment.
    place: (u64, u64),
    /// Whether messages can be appended to the last segment.
    continues: bool,
    /// The last segment, once a message was appended.
    last: Option<Last>,
    /// The epoch of the leader, once a message was appended.
    epoch: Option<i32>,
    /// Segments that were completed since the last sync: path and length.
    sealed: Vec<(PathBuf, u64)>,
    /// Indexes of segments that were completed since they were last written.
    indexes: Vec<(PathBuf, Indexes)>,
    /// The id of the topic, if the small files of the partition do not exist.
    id: Option<Arc<str>>,
    /// Whether the small files were written since the last sync.
    prepared: bool,
    /// Bytes of the last segment that were handed to a sync.
    handed: u64,
    /// Whether segments were begun since the last sync.
    begun: bool,
    is_unsynced: bool,
    is_unsaved: bool,
    plan: Option<Plan>,
    /// Log files of segments that were begun in vain. They may be removed already.
    strays: BTreeSet<PathBuf>,
}

/// The end of a partition as it will be.
#[derive(Clone, Debug)]
struct Plan {
    /// The log file of a segment that begins.
    file: Option<Arc<MappedFile>>,
    base: u64,
    len: u64,
    next: u64,
    first_timestamp: Option<i64>,
    opened_ms: i64,
    /// Batches that will be added to the segment.
    batches: u64,
}

/// A batch whose place is ready.
struct Step {
    key: Key,
    batch: usize,
    part: usize,
    /// The segment that begins with it.
    begins: Option<Last>,
    region: Arc<Region>,
}

type Steps = SmallVec<[Step; 1]>;

/// What has to be written of the indexes of a partition.
#[derive(Debug)]
pub struct Unsaved {
    /// Log file and indexes of segments that are complete.
    pub sealed: Vec<(PathBuf, Indexes)>,
    /// The log file of the last segment, and what its indexes lack.
    pub pieces: Option<(PathBuf, [super::indexes::Piece; 2])>,
}

impl Unsaved {
    /// Drops what it has of the segments with these log files.
    pub fn forget(&mut self, gone: &HashSet<&Path>) {
        self.sealed.retain(|(log, _)| !gone.contains(&**log));
        // The last segment of then may be complete by now.
        self.pieces.take_if(|(log, _)| gone.contains(&**log));
    }
}

/// The ends of all partitions.
#[derive(Debug, Default)]
pub struct Tail {
    partitions: HashMap<Key, Writing, foldhash::fast::RandomState>,
    unsynced: Vec<Key>,
    unsaved: Vec<Key>,
    /// Partitions that may have segments which were begun in vain.
    strayed: Vec<Key>,
    /// The log directory, if it may have an intent whose batch was not appended. Recovery would
    /// judge later batches by it, so nothing is appended before it is withdrawn.
    vain: Option<PathBuf>,
    /// Bytes of all partitions. Never decreases.
    end: u64,
    messages: u64,
    bytes: u64,
}

impl Tail {
    /// Adds a partition. What it has counts as appended.
    pub fn add(&mut self, key: Key, topic: &str, ends: &Arc<Ends>, start: Start) {
        let Start { end, continues, id } = start;
        let writing = Writing {
            topic: topic.into(),
            ends: Arc::clone(ends),
            next: end.offset,
            place: (end.base, end.len),
            continues,
            last: None,
            epoch: None,
            sealed: Vec::new(),
            indexes: Vec::new(),
            id,
            prepared: false,
            handed: end.len,
            begun: false,
            is_unsynced: false,
            is_unsaved: false,
            plan: None,
            strays: BTreeSet::new(),
        };
        self.end += ends.len();
        self.partitions.entry(key).or_insert(writing);
    }

    /// Messages and bytes appended since opening.
    pub fn counters(&self) -> (u64, u64) {
        (self.messages, self.bytes)
    }

    /// Bytes of all partitions.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// Appends completed batches and fills `appended`.
    ///
    /// # Errors
    ///
    /// Those of creating segments and reserving blocks: nothing was appended. An error of a map is
    /// a fault, after which nothing is certain.
    pub fn append(
        &mut self,
        with: &Appender<'_>,
        batches: &mut [(&Topic, &mut Batch)],
        appended: &mut Appended,
    ) -> Result<()> {
        self.withdraw_intent(&**with.disk)?;
        if let [(topic, batch)] = batches
            && let Some(batch) = batch.kafka_mut()
            && let [part] = batch.parts_mut()
            && let Some(place) = self.append_in_place(with, topic, part)
        {
            place_rows(batches, &[place?], appended);
            appended.end = self.end;
            return Ok(());
        }
        let steps = self.plan(with, batches)?;
        let mut places: SmallVec<[(u64, u64); 1]> = SmallVec::new();
        for step in steps {
            let Some((topic, batch)) = batches.get_mut(step.batch) else {
                continue;
            };
            debug_assert_eq!(step.key.0, topic.id);
            let part = batch.kafka_mut().map(|batch| batch.parts_mut());
            let part = part.and_then(|parts| parts.get_mut(step.part));
            let (Some(part), Some(writing)) = (part, self.partitions.get_mut(&step.key)) else {
                continue;
            };
            if let Some(begins) = step.begins {
                writing.roll(&**with.disk, begins);
            }
            if let Some(last) = &mut writing.last {
                last.region = Some(step.region);
            }
            places.push(writing.store(part)?);
            let is_first = writing.note_store();
            self.count(step.key, part, is_first);
        }
        place_rows(batches, &places, appended);
        appended.end = self.end;
        Ok(())
    }

    /// Appends a batch if its place is ready: the last segment has room, is mapped and has blocks.
    /// `None` otherwise.
    fn append_in_place(
        &mut self,
        with: &Appender<'_>,
        topic: &Topic,
        part: &mut Part,
    ) -> Option<Result<(u64, u64)>> {
        let key = (topic.id, part.queue());
        let writing = self.partitions.get_mut(&key)?;
        if !writing.is_ready_for(with, part) {
            return None;
        }
        let place = match writing.store(part) {
            Ok(place) => place,
            Err(error) => return Some(Err(error)),
        };
        let is_first = writing.note_store();
        self.count(key, part, is_first);
        Some(Ok(place))
    }

    /// Counts a batch that was stored. `is_first`: the partition had nothing to sync or to save.
    fn count(&mut self, key: Key, part: &Part, (unsynced, unsaved): (bool, bool)) {
        let len = part.bytes().len() as u64;
        self.end += len;
        self.bytes += len;
        self.messages += u64::from(part.count());
        if unsynced {
            self.unsynced.push(key);
        }
        if unsaved {
            self.unsaved.push(key);
        }
    }

    /// Prepares a place for each batch.
    fn plan(&mut self, with: &Appender<'_>, batches: &mut [(&Topic, &mut Batch)]) -> Result<Steps> {
        let mut steps = Steps::new();
        let planned = self.plan_all(with, batches, &mut steps);
        let planned = planned.and_then(|()| match with.whole {
            Some(root) => {
                let saved = intent::save(&**with.disk, root, &self.shares(&steps));
                // It may be there all the same.
                saved.inspect_err(|_| self.vain = Some(root.to_owned()))
            }
            None => Ok(()),
        });
        for step in &steps {
            if let Some(writing) = self.partitions.get_mut(&step.key) {
                writing.plan = None;
            }
        }
        if let Err(error) = planned {
            // What cannot be removed is tried again before the next sync or append.
            let removed = self.remove_strays(&**with.disk);
            return Err(
                match removed.and_then(|()| self.withdraw_intent(&**with.disk)) {
                    Err(failed) if failed.is_of_sync() => failed,
                    _ => error,
                },
            );
        }
        Ok(steps)
    }

    fn plan_all(
        &mut self,
        with: &Appender<'_>,
        batches: &mut [(&Topic, &mut Batch)],
        steps: &mut Steps,
    ) -> Result<()> {
        for (number, (topic, batch)) in batches.iter().enumerate() {
            let parts = batch.kafka().map_or(&[][..], |batch| batch.parts());
            for (part_number, part) in parts.iter().enumerate() {
                let key = (topic.id, part.queue());
                let writing = self.partitions.get_mut(&key);
                let writing = writing.ok_or_else(|| topic.unknown_queue(part.queue()))?;
                let size = (part.bytes().len() as u64, part.count());
                let planned = writing.prepare(with, size, part.max_timestamp());
                if !writing.strays.is_empty() {
                    self.strayed.push(key);
                }
                let (begins, region) = planned.inspect_err(|_| writing.plan = None)?;
                steps.push(Step {
                    key,
                    batch: number,
                    part: part_number,
                    begins,
                    region,
                });
            }
        }
        Ok(())
    }

    /// The offsets that the planned batches will have in each partition.
    fn shares(&self, steps: &Steps) -> Vec<Share> {
        let keys: BTreeSet<Key> = steps.iter().map(|step| step.key).collect();
        let share = |key: &Key| {
            let writing = self.partitions.get(key)?;
            Some(Share {
                topic: Arc::clone(&writing.topic),
                queue: key.1,
                offsets: writing.next..writing.plan.as_ref()?.next,
            })
        };
        keys.iter().filter_map(share).collect()
    }

    /// Takes what was appended since the last call, to be synced, and the position after it.
    pub fn take_unsynced(&mut self) -> (Vec<Unsynced>, u64) {
        let mut keys = std::mem::take(&mut self.unsynced);
        let mut taken = Vec::with_capacity(keys.len());
        if planted(Bug::ForgetPartition) && keys.len() > 1 {
            keys.pop();
        }
        for key in keys {
            if let Some(writing) = self.partitions.get_mut(&key) {
                taken.push(writing.take_unsynced());
            }
        }
        (taken, self.end)
    }

    /// Takes the entries that the index files lack.
    pub fn take_unsaved(&mut self) -> Vec<Unsaved> {
        let keys = std::mem::take(&mut self.unsaved);
        let mut taken = Vec::with_capacity(keys.len());
        for key in keys {
            if let Some(writing) = self.partitions.get_mut(&key) {
                taken.push(writing.take_unsaved());
            }
        }
        taken
    }

    /// Partitions whose last segment has messages.
    pub fn used(&self) -> Vec<Key> {
        let used = self.partitions.iter().filter(|(_, it)| it.place.1 > 0);
        used.map(|(key, _)| *key).collect()
    }

    /// Of these partitions, those whose last segment has messages.
    pub fn used_of(&self, all: &[Arc<Ends>]) -> Vec<Key> {
        let all: HashSet<*const Ends> = all.iter().map(Arc::as_ptr).collect();
        let used = self.partitions.iter().filter(|(_, it)| it.place.1 > 0);
        let meant = used.filter(|(_, it)| all.contains(&Arc::as_ptr(&it.ends)));
        meant.map(|(key, _)| *key).collect()
    }

    /// Completes the last segment of a partition, unless it is empty, and begins another. A sync
    /// makes both durable.
    ///
    /// # Errors
    ///
    /// Those of creating a segment: nothing was changed.
    pub fn roll(&mut self, with: &Appender<'_>, key: Key) -> Result<()> {
        let Some(writing) = self.partitions.get_mut(&key) else {
            return Ok(());
        };
        if writing.place.1 == 0 {
            return Ok(());
        }
        let begun = writing.begin(with, (writing.next, 0), writing.place);
        if !writing.strays.is_empty() {
            self.strayed.push(key);
        }
        writing.roll(&**with.disk, begun?);
        writing.ends.publish(writing.end());
        let (unsynced, unsaved) = writing.note_store();
        if unsynced {
            self.unsynced.push(key);
        }
        if unsaved {
            self.unsaved.push(key);
        }
        Ok(())
    }

    /// Completes the last segments, for a clean stop. All of it is synced. Returns log files,
    /// lengths and indexes.
    pub fn seal_all(&mut self) -> Vec<(PathBuf, u64, Indexes)> {
        let all = self.partitions.values_mut();
        all.filter_map(Writing::seal_last).collect()
    }

    /// Removes segments that were begun in vain. Durable on return.
    pub fn remove_strays(&mut self, disk: &dyn Disk) -> Result<()> {
        while let Some(key) = self.strayed.last() {
            if let Some(writing) = self.partitions.get_mut(key) {
                let ends = Arc::clone(&writing.ends);
                writing.remove_strays(disk, &ends.folder)?;
            }
            self.strayed.pop();
        }
        Ok(())
    }

    /// Withdraws an intent whose batch was not appended. Durable on return.
    fn withdraw_intent(&mut self, disk: &dyn Disk) -> Result<()> {
        if let Some(root) = &self.vain {
            intent::save(disk, root, &[])?;
            self.vain = None;
        }
        Ok(())
    }

    /// Unmaps the files of partitions that were not used since the last calls.
    pub fn unmap_unused(&mut self) {
        for unused in self.partitions.values_mut().filter(|it| !it.is_unsynced) {
            if let Some(last) = &mut unused.last {
                last.unmap_unused();
                unused.ends.set_ready(0);
            }
        }
    }
}

/// Fills in the places of the rows, given the offset and the position of each batch.
fn place_rows(batches: &[(&Topic, &mut Batch)], places: &[(u64, u64)], appended: &mut Appended) {
    let mut rest = places;
    for (_, batch) in batches {
        let Some(batch) = batch.kafka() else { continue };
        let Some((own, others)) = rest.split_at_checked(batch.parts().len()) else {
            return;
        };
        rest = others;
        let place = |row: &crate::record::kafka::encode::RowPlace| {
            let (first, position) = own.get(row.part as usize).copied().unwrap_or_default();
            Place {
                position,
                queue: row.queue,
                offset: first + u64::from(row.delta),
            }
        };
        appended.rows.extend(batch.rows().iter().map(place));
    }
}

impl Writing {
    /// Prepares the place of a batch of `len` bytes and `count` records.
    fn prepare(
        &mut self,
        with: &Appender<'_>,
        (len, count): (u64, u32),
        max_timestamp: i64,
    ) -> Result<(Option<Last>, Arc<Region>)> {
        let mut plan = match self.plan.take() {
            Some(plan) => plan,
            None => self.first_plan(with)?,
        };
        let mut begins = None;
        if self.must_roll(&plan, with, (len, count), max_timestamp) {
            let base = plan.next;
            let last = self.begin(with, (base, len), (plan.base, plan.len))?;
            plan = Plan {
                file: Some(Arc::clone(&last.file)),
                base,
                len: 0,
                next: base,
                first_timestamp: None,
                opened_ms: with.now_ms,
                batches: 0,
            };
            begins = Some(last);
        }
        let end = plan.len + len;
        let region = match (&plan.file, &mut self.last) {
            (Some(file), _) => file.reserve(end).and_then(|()| file.region()),
            (None, Some(last)) => last.reserve(end),
            (None, None) => unreachable!("without a segment, a batch begins one"),
        }?;
        plan.first_timestamp.get_or_insert(max_timestamp);
        plan.len = end;
        plan.next += u64::from(count);
        plan.batches += 1;
        self.plan = Some(plan);
        Ok((begins, region))
    }

    /// Creates the segment that begins with the offset `base`, with blocks for `len` bytes. It
    /// follows one with this base and length.
    fn begin(
        &mut self,
        with: &Appender<'_>,
        (base, len): (u64, u64),
        before: (u64, u64),
    ) -> Result<Last> {
        if before.1 > 0 && !self.ends.is_durable(before.0) {
            // Recovery takes the first segment that it finds for the beginning of the partition, so
            // the earlier names must be durable.
            with.disk.sync_directory(&self.ends.folder)?;
        }
        let path = self.ends.path_of(base);
        // An earlier attempt may have left this segment, and later ones.
        self.remove_strays(&**with.disk, &path)?;
        self.strays.insert(path.clone());
        Last::create(with.disk, path, (base, len), with.rules, with.now_ms)
    }

    /// The plan of the first batch of an append. Opens the last segment.
    fn first_plan(&mut self, with: &Appender<'_>) -> Result<Plan> {
        let (base, len) = self.place;
        if self.epoch.is_none() {
            self.epoch = Some(self.prepare_files(with)?);
        }
        if self.last.is_none() && self.continues && len < with.rules.segment_bytes {
            let path = self.ends.path_of(base);
            let place = (base, len, self.next);
            self.last = Some(Last::open(with.disk, path, place, with.rules, with.now_ms)?);
        }
        Ok(self.plan_from(self.last.as_ref(), with.now_ms))
    }

    /// The plan before the first batch of an append.
    fn plan_from(&self, last: Option<&Last>, now_ms: i64) -> Plan {
        Plan {
            file: None,
            base: self.place.0,
            len: self.place.1,
            next: self.next,
            first_timestamp: last.and_then(|last| last.first_timestamp),
            opened_ms: last.map_or(now_ms, |last| last.opened_ms),
            batches: 0,
        }
    }

    /// Whether a batch can be stored at once: its place is mapped and has blocks.
    fn is_ready_for(&self, with: &Appender<'_>, part: &Part) -> bool {
        let Some(last) = self.last.as_ref().filter(|last| last.region.is_some()) else {
            return false;
        };
        let len = part.bytes().len() as u64;
        let plan = self.plan_from(Some(last), with.now_ms);
        let size = (len, part.count());
        plan.len + len <= last.room && !self.must_roll(&plan, with, size, part.max_timestamp())
    }

    /// Makes sure that the small files exist. Returns the epoch of the leader.
    fn prepare_files(&mut self, with: &Appender<'_>) -> Result<i32> {
        let (disk, folder) = (&**with.disk, &self.ends.folder);
        let (epoch, written) = match &self.id {
            Some(id) => (0, files::make(disk, folder, id).map(|()| true)?),
            None => files::prepare(disk, folder, &self.topic, (self.next, with.seed))?,
        };
        self.prepared |= written;
        self.id = None;
        Ok(epoch)
    }

    /// Whether a batch needs another segment.
    fn must_roll(
        &self,
        plan: &Plan,
        with: &Appender<'_>,
        (len, count): (u64, u32),
        max_timestamp: i64,
    ) -> bool {
        let rules = with.rules;
        let is_new = plan.file.is_some();
        let Some(last) = self.last.as_ref().filter(|_| !is_new) else {
            return !is_new || plan.len + len > rules.segment_bytes;
        };
        let waited = match plan.first_timestamp {
            Some(first) if max_timestamp >= first => max_timestamp - first,
            _ => with.now_ms - plan.opened_ms,
        };
        let is_late = u64::try_from(waited).is_ok_and(|waited| waited > rules.segment_ms);
        let last_offset = plan.next + u64::from(count.saturating_sub(1));
        plan.len + len > rules.segment_bytes
            || (plan.len > 0 && is_late)
            || last.indexes.are_full(plan.batches + 1)
            || last_offset - plan.base > i32::MAX as u64
    }

    /// Completes the last segment, and begins another.
    fn roll(&mut self, disk: &dyn Disk, begins: Last) {
        let (base, len) = self.place;
        if len > 0 {
            let path = self.ends.path_of(base);
            self.ends.seal(Segment {
                base,
                path: path.clone(),
                len,
            });
            if let Some(mut last) = self.last.take() {
                last.indexes.close();
                // For other readers. The sync does it again, durably.
                let _ = disk.set_len(&path, len);
                self.sealed.push((path.clone(), len));
                self.indexes.push((path, last.indexes));
            }
        }
        self.strays.remove(begins.file.path());
        self.place = (begins.base, 0);
        self.handed = 0;
        self.begun = true;
        self.continues = true;
        self.last = Some(begins);
        self.ends.set_ready(0);
    }

    /// Stores a batch, whose place is ready, and publishes it. Returns its first offset and its
    /// position.
    fn store(&mut self, part: &mut Part) -> Result<(u64, u64)> {
        let first = self.next;
        part.place(first, self.epoch.unwrap_or_default());
        let Some(last) = &mut self.last else {
            unreachable!("a plan has opened the last segment or made another")
        };
        let Some(region) = &last.region else {
            unreachable!("the place of the batch is mapped")
        };
        let (position, bytes) = (last.len, part.bytes());
        let written = region.write(index(position), bytes);
        written.at(Op::Store, region.path())?;
        last.len += bytes.len() as u64;
        region.publish(index(last.len));
        let last_offset = first + u64::from(part.count().saturating_sub(1));
        let (len, time) = (bytes.len() as u64, part.max_timestamp());
        last.indexes.add(position, len, last_offset, time);
        last.first_timestamp.get_or_insert(time);
        self.next = last_offset + 1;
        self.place = (last.base, last.len);
        self.ends.set_ready(match last.indexes.are_full(1) {
            true => 0,
            false => last.room.saturating_sub(last.len),
        });
        self.ends.publish(self.end());
        Ok((first, position))
    }

    /// Notes that a batch was stored. Returns whether there was nothing to sync before, and whether
    /// there was nothing to save.
    fn note_store(&mut self) -> (bool, bool) {
        let unsynced = !std::mem::replace(&mut self.is_unsynced, true);
        (unsynced, !std::mem::replace(&mut self.is_unsaved, true))
    }

    fn end(&self) -> End {
        End {
            base: self.place.0,
            len: self.place.1,
            offset: self.next,
        }
    }

    fn take_unsynced(&mut self) -> Unsynced {
        self.is_unsynced = false;
        let from = std::mem::replace(&mut self.handed, self.place.1);
        let last = self.last.as_ref();
        Unsynced {
            ends: Arc::clone(&self.ends),
            end: self.end(),
            sealed: std::mem::take(&mut self.sealed),
            last: last.map(|last| (Arc::clone(&last.file), from, last.len)),
            begun: std::mem::take(&mut self.begun),
            prepared: std::mem::take(&mut self.prepared),
        }
    }

    fn take_unsaved(&mut self) -> Unsaved {
        self.is_unsaved = false;
        let base = self.place.0;
        let last = self.last.as_mut();
        let pieces = last.map(|last| last.indexes.take_unwritten());
        Unsaved {
            sealed: std::mem::take(&mut self.indexes),
            pieces: pieces.map(|pieces| (self.ends.path_of(base), pieces)),
        }
    }

    /// Removes strays from `first` on, the last one first: the lowest segment left would count as
    /// the beginning of the partition.
    fn remove_strays(&mut self, disk: &dyn Disk, first: &Path) -> Result<()> {
        while let Some(log) = self.strays.last().filter(|log| **log >= *first) {
            if disk.stat(log)?.is_some() {
                disk.unlink(log)?;
            }
            disk.sync_directory(&self.ends.folder)?;
            self.strays.pop_last();
        }
        Ok(())
    }

    fn seal_last(&mut self) -> Option<(PathBuf, u64, Indexes)> {
        let mut last = self.last.take()?;
        last.file.unmap();
        last.indexes.close();
        Some((self.ends.path_of(last.base), last.len, last.indexes))
    }
}
