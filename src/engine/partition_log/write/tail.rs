//! The ends of all partitions ([`Writing`]), under the append lock.
//!
//! An append is planned first: segments are created and blocks reserved. This may fail, and then
//! nothing was appended. After that it only stores to maps, and publishes.
//!
//! The thread that syncs takes what was appended since the last sync as [`Unsynced`], for all
//! partitions at one moment.

use super::ends::Ends;
use super::indexes::Indexes;
use super::intent::{self, Share};
use super::last::Last;
use super::unsynced::Unsynced;
use super::writing::{Appender, Start, Unsaved, Writing};
use crate::disk::Disk;
use crate::engine::{Appended, Place, Topic};
use crate::error::Result;
use crate::plant::{Bug, Point, pass, planted};
use crate::record::Batch;
use crate::record::kafka::Part;
use crate::region::Region;
use smallvec::SmallVec;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;

/// The number of a topic, and a queue.
pub type Key = (u32, u32);

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

/// The ends of all partitions.
#[derive(Debug, Default)]
pub struct Tail {
    partitions: HashMap<Key, Writing, foldhash::fast::RandomState>,
    unsynced: Vec<Key>,
    unsaved: Vec<Key>,
    /// Partitions that may have segments of failed appends.
    strayed: Vec<Key>,
    /// The log directory, if it may have an intent whose batch was not appended. Recovery would
    /// judge later batches by it, so nothing is appended before it is withdrawn.
    vain: Option<PathBuf>,
    /// Bytes of all partitions. Never decreases.
    end: u64,
    /// If processes share the store, how often this one found that others had appended.
    others: u64,
    /// Whether to request a flush, because many messages of a partition are not durable.
    must_flush: bool,
    messages: u64,
    bytes: u64,
}

impl Tail {
    /// Adds a partition, unless it is known. Its contents count as appended. Returns whether it was
    /// added.
    pub fn add(&mut self, key: Key, topic: &str, ends: &Arc<Ends>, start: Start) -> bool {
        self.end += ends.len();
        let is_new = !self.has(key);
        let new = || Writing::new(topic, ends, start);
        self.partitions.entry(key).or_insert_with(new);
        is_new
    }

    /// Whether it has a partition.
    pub fn has(&self, key: Key) -> bool {
        self.partitions.contains_key(&key)
    }

    /// Whether messages may be appended to the last segment of a partition.
    pub fn continues(&self, key: Key) -> bool {
        let writing = self.partitions.get(&key);
        writing.is_some_and(|writing| writing.continues)
    }

    /// Messages and bytes appended since opening.
    pub fn counters(&self) -> (u64, u64) {
        (self.messages, self.bytes)
    }

    /// Bytes of all partitions.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// Continues at `end`, up to which the processes that share the store have appended.
    pub fn resume_at(&mut self, end: u64) {
        self.others += u64::from(self.end != end);
        self.end = end;
    }

    /// Whether failed appends may have left something on the disk.
    pub fn is_strewn(&self) -> bool {
        let of = |key| self.partitions.get(key).map(|it| !it.strays.is_empty());
        self.vain.is_some()
            || self
                .strayed
                .iter()
                .filter_map(of)
                .any(|is_strewn| is_strewn)
    }

    /// Forgets what failed appends have left: the next process to append removes it.
    pub fn forget_strays(&mut self) {
        for key in std::mem::take(&mut self.strayed) {
            if let Some(writing) = self.partitions.get_mut(&key) {
                writing.strays.clear();
            }
        }
        self.vain = None;
    }

    /// Returns whether to request a flush; false until the next append that needs one.
    pub fn take_must_flush(&mut self) -> bool {
        std::mem::take(&mut self.must_flush)
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
        if with.cuts.is_some() {
            self.catch_up(with, batches)?;
        }
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
        let mut stored: SmallVec<[Key; 1]> = SmallVec::new();
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
                pass(Point::Rolled);
            }
            if let Some(last) = &mut writing.last {
                last.region = Some(step.region);
            }
            places.push(writing.store(with, part, self.unsynced.len())?);
            self.count(part);
            stored.push(step.key);
        }
        pass(Point::Stored);
        // Once all are stored: a process that dies while it publishes leaves a whole atomic batch.
        for key in stored {
            self.publish(with, key);
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
        let place = match writing.store(with, part, self.unsynced.len()) {
            Ok(place) => place,
            Err(error) => return Some(Err(error)),
        };
        self.count(part);
        pass(Point::Stored);
        self.publish(with, key);
        Some(Ok(place))
    }

    /// Moves the ends of these partitions past what other processes have appended.
    fn catch_up(&mut self, with: &Appender<'_>, batches: &[(&Topic, &mut Batch)]) -> Result<()> {
        for (topic, batch) in batches {
            let parts = batch.kafka().map_or(&[][..], |batch| batch.parts());
            for part in parts {
                if let Some(writing) = self.partitions.get_mut(&(topic.id, part.queue())) {
                    writing.catch_up(with, self.others)?;
                }
            }
        }
        Ok(())
    }

    /// Counts a batch that was stored.
    fn count(&mut self, part: &Part) {
        let len = part.bytes().len() as u64;
        self.end += len;
        self.bytes += len;
        self.messages += u64::from(part.count());
    }

    /// Publishes what was stored in a partition.
    fn publish(&mut self, with: &Appender<'_>, key: Key) {
        let Some(writing) = self.partitions.get_mut(&key) else {
            return;
        };
        let (unsynced, unsaved) = writing.publish(self.others);
        self.must_flush |= writing.must_flush(with.rules.flush_messages);
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
                // The intent may have been saved despite the error.
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
            let all = self.partitions.values_mut();
            all.for_each(Writing::give_up_roll);
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

    /// Partitions whose last segment has messages, or may have some of other processes.
    pub fn used(&self) -> Vec<Key> {
        let used = self.partitions.iter().filter(|(_, it)| it.is_used());
        used.map(|(key, _)| *key).collect()
    }

    /// Those of [`Tail::used`] that are among these partitions.
    pub fn used_of(&self, all: &[Arc<Ends>]) -> Vec<Key> {
        let all: HashSet<*const Ends> = all.iter().map(Arc::as_ptr).collect();
        let used = self.partitions.iter().filter(|(_, it)| it.is_used());
        let meant = used.filter(|(_, it)| all.contains(&Arc::as_ptr(&it.ends)));
        meant.map(|(key, _)| *key).collect()
    }

    /// Completes the last segment of a partition, unless it is empty, and begins another. A sync
    /// makes both durable. Returns whether it did.
    ///
    /// # Errors
    ///
    /// Those of creating a segment: nothing was changed.
    pub fn roll(&mut self, with: &Appender<'_>, key: Key) -> Result<bool> {
        let Some(writing) = self.partitions.get_mut(&key) else {
            return Ok(false);
        };
        writing.catch_up(with, self.others)?;
        if writing.place.1 == 0 {
            return Ok(false);
        }
        let begun = writing.begin(with, (writing.next, 0), writing.place);
        if !writing.strays.is_empty() {
            self.strayed.push(key);
        }
        let begins = begun?;
        let trimmed = writing.trim(&**with.disk, writing.place);
        trimmed.inspect_err(|_| writing.give_up_roll())?;
        writing.roll(&**with.disk, begins);
        self.publish(with, key);
        Ok(true)
    }

    /// Completes the last segments, for a clean stop. Everything was synced. Returns log files,
    /// lengths and indexes.
    pub fn seal_all(&mut self) -> Vec<(PathBuf, u64, Indexes)> {
        let all = self.partitions.values_mut();
        all.filter_map(Writing::seal_last).collect()
    }

    /// Removes the segments of failed appends. Durable on return.
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
