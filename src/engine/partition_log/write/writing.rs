//! The end of one partition: its last segment, what a sync has not taken yet, and the plan of an
//! append.

use super::ends::{End, Ends, Place};
use super::files;
use super::indexes::{Indexes, Piece};
use super::last::Last;
use super::rules::Rules;
use super::tables;
use super::unsynced::Unsynced;
use crate::disk::Disk;
use crate::engine::partition_log::segments::names;
use crate::engine::partition_log::segments::segment::Segment;
use crate::error::{At, Error, Op, Result};
use crate::mapped::{Allocator, MappedFile};
use crate::num::index;
use crate::plant::{Bug, planted};
use crate::record::kafka::Part;
use crate::region::Region;
use std::collections::{BTreeSet, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The state in which writing of a partition begins.
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
    /// Faults in pages ahead of use, unless each append does that itself.
    pub allocator: Option<&'a Allocator>,
    /// The seed of the store.
    pub seed: u64,
    /// The time of the append, in ms.
    pub now_ms: i64,
    /// The log directory, if the batches are atomic together.
    pub whole: Option<&'a Path>,
    /// How often segments were cut, if processes share the store.
    pub cuts: Option<u32>,
}

/// The end of a partition.
#[derive(Debug)]
pub struct Writing {
    /// The topic.
    pub topic: Arc<str>,
    /// What readers see.
    pub ends: Arc<Ends>,
    /// The next offset.
    pub next: u64,
    /// Base and length of the last segment.
    pub place: (u64, u64),
    /// Whether messages can be appended to the last segment.
    pub continues: bool,
    /// The last segment, once a message was appended.
    pub last: Option<Last>,
    /// The epoch of the leader, once it is known that the small files exist.
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
    /// Whether something was appended since the last sync.
    pub is_unsynced: bool,
    is_unsaved: bool,
    /// The next offset when a sync last took what was appended, or was asked for.
    flush_from: u64,
    /// How often segments of shared partitions were cut when the last one was opened.
    cuts: u32,
    /// The count of appends by others when this process last published here; see
    /// [`Writing::catch_up`].
    known: Option<u64>,
    /// The end as it will be after the batches that have a place.
    pub plan: Option<Plan>,
    /// Log files of segments of failed appends. They may be removed already.
    pub strays: BTreeSet<PathBuf>,
    /// Whether the last segment was cut to its contents for a roll that is not done yet.
    is_cut: bool,
}

/// The end of a partition as it will be.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The log file of a segment that begins.
    file: Option<Arc<MappedFile>>,
    base: u64,
    len: u64,
    /// The offset after the batches.
    pub next: u64,
    first_timestamp: Option<i64>,
    opened_ms: i64,
    /// Batches that will be added to the segment.
    batches: u64,
}

impl Plan {
    /// Whether this many more records would take the last offset that a segment may begin with.
    fn is_over_after(&self, count: u32) -> bool {
        self.next.saturating_add(count.into()) >= names::OFFSET_MAX
    }
}

/// What has to be written of the indexes of a partition.
#[derive(Debug)]
pub struct Unsaved {
    /// Log file and indexes of segments that are complete.
    pub sealed: Vec<(PathBuf, Indexes)>,
    /// The log file of the last segment, and what its indexes lack.
    pub pieces: Option<(PathBuf, [Piece; 2])>,
}

impl Unsaved {
    /// Drops what it has of the segments with these log files.
    pub fn forget(&mut self, gone: &HashSet<&Path>) {
        self.sealed.retain(|(log, _)| !gone.contains(&**log));
        // What was the last segment may be complete by now.
        self.pieces.take_if(|(log, _)| gone.contains(&**log));
    }
}

impl Writing {
    /// The end of a partition of `topic`.
    pub fn new(topic: &str, ends: &Arc<Ends>, start: Start) -> Writing {
        let Start { end, continues, id } = start;
        Writing {
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
            flush_from: end.offset,
            cuts: 0,
            known: None,
            plan: None,
            strays: BTreeSet::new(),
            is_cut: false,
        }
    }

    /// Moves the end past what other processes have appended, if they share the partition.
    /// `others`: how often this process found that others had appended to any partition.
    pub fn catch_up(&mut self, with: &Appender<'_>, others: u64) -> Result<()> {
        let Some(cuts) = with.cuts else {
            return Ok(());
        };
        // Unknown until this append is published: if it fails, the end may be anywhere.
        if self.known.take() == Some(others) && cuts == self.cuts {
            return Ok(());
        }
        let Some(Place { end, continues }) = self.ends.catch_up(&**with.disk)? else {
            return Ok(());
        };
        let is_same = end.base == self.place.0 && cuts == self.cuts;
        self.last
            .take_if(|last| !is_same || !last.catch_up(end.len));
        self.cuts = cuts;
        (self.next, self.place) = (end.offset, (end.base, end.len));
        self.continues = continues;
        Ok(())
    }

    /// Prepares the place of a batch of `len` bytes and `count` records.
    pub fn prepare(
        &mut self,
        with: &Appender<'_>,
        (len, count): (u64, u32),
        max_timestamp: i64,
    ) -> Result<(Option<Last>, Arc<Region>)> {
        let mut plan = match self.plan.take() {
            Some(plan) => plan,
            None => self.first_plan(with)?,
        };
        if plan.is_over_after(count) {
            let what = format!("{}: an offset above 2^62 - 2", self.ends.folder.display());
            return Err(Error::Unsupported { what });
        }
        let mut begins = None;
        if self.must_roll(&plan, with, (len, count), max_timestamp) {
            let base = plan.next;
            let last = self.begin(with, (base, len), (plan.base, plan.len))?;
            self.trim(&**with.disk, (plan.base, plan.len))?;
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

    /// Creates the segment that begins with the offset `base`, with blocks for `len` bytes.
    /// `before`: base and length of the segment before it. The next batch may be stored in it at
    /// once, so the small files exist on return.
    pub fn begin(
        &mut self,
        with: &Appender<'_>,
        (base, len): (u64, u64),
        before: (u64, u64),
    ) -> Result<Last> {
        self.prepare_files(with)?;
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
        self.prepare_files(with)?;
        if self.last.is_none() && self.continues && len < with.rules.segment_bytes {
            let path = self.ends.path_of(base);
            let place = (base, len, self.next);
            let how = (with.now_ms, with.cuts.is_some());
            self.last = Some(Last::open(with.disk, path, place, with.rules, how)?);
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
    pub fn is_ready_for(&self, with: &Appender<'_>, part: &Part) -> bool {
        let Some(last) = self.last.as_ref().filter(|last| last.region.is_some()) else {
            return false;
        };
        let len = part.bytes().len() as u64;
        let plan = self.plan_from(Some(last), with.now_ms);
        let size = (len, part.count());
        plan.len + len <= last.room
            && !plan.is_over_after(part.count())
            && !self.must_roll(&plan, with, size, part.max_timestamp())
    }

    /// Makes sure that the small files exist, and finds the epoch of the leader, unless an earlier
    /// call has.
    fn prepare_files(&mut self, with: &Appender<'_>) -> Result<()> {
        if self.epoch.is_some() {
            return Ok(());
        }
        let (disk, folder) = (&**with.disk, &self.ends.folder);
        let (epoch, written) = match &self.id {
            Some(id) => (0, files::make(disk, folder, id, self.next).map(|()| true)?),
            None => {
                let offsets = self.ends.start()..self.next;
                tables::prepare(disk, folder, &self.topic, (offsets, with.seed))?
            }
        };
        if written && with.cuts.is_some() && self.place.1 > 0 {
            // The leader syncs small files only with the first messages of a partition.
            files::sync_small(disk, folder)?;
        }
        self.prepared |= written;
        self.id = None;
        self.epoch = Some(epoch);
        Ok(())
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
            Some(first) if max_timestamp >= first => max_timestamp.saturating_sub(first),
            _ => with.now_ms.saturating_sub(plan.opened_ms),
        };
        let is_late = u64::try_from(waited).is_ok_and(|waited| waited > rules.segment_ms);
        let last_offset = plan.next + u64::from(count.saturating_sub(1));
        plan.len + len > rules.segment_bytes
            || (plan.len > 0 && is_late)
            || match with.cuts {
                Some(_) => Indexes::may_be_full(rules, plan.len, plan.batches + 1),
                None => last.indexes.are_full(plan.batches + 1),
            }
            || last_offset - plan.base > i32::MAX as u64
    }

    /// If processes share the partition, cuts a segment with this base and length to its contents
    /// before the next one is published: the others take the length of its file for that of its
    /// contents. This process may never have appended to the segment.
    ///
    /// # Errors
    ///
    /// Those of the disk. If the roll is given up, then or later, [`Writing::give_up_roll`] is
    /// called.
    pub fn trim(&mut self, disk: &dyn Disk, (base, len): (u64, u64)) -> Result<()> {
        // If a segment is not continued, what follows its messages is kept. A segment that this
        // append has begun is cut; it may have the base of a partition without messages.
        let is_begun = base != self.place.0 || self.place.1 == 0;
        let is_meant = len > 0 && (self.continues || is_begun);
        if !is_meant || !self.ends.is_shared() || planted(Bug::KeepRoom) {
            return Ok(());
        }
        // Noted first: a call that fails may have cut it nevertheless.
        self.is_cut = true;
        disk.set_len(&self.ends.path_of(base), len)
    }

    /// Makes the processes that share the partition map segments again if the last one was cut for
    /// a roll that is given up: it has no room any more.
    pub fn give_up_roll(&mut self) {
        if std::mem::take(&mut self.is_cut) {
            self.ends.map_again();
        }
    }

    /// Completes the last segment, and begins another.
    pub fn roll(&mut self, disk: &dyn Disk, begins: Last) {
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
                if !self.ends.is_shared() {
                    // For readers in other processes. The sync does it again, durably.
                    let _ = disk.set_len(&path, len);
                    self.sealed.push((path.clone(), len));
                    self.indexes.push((path, last.indexes));
                }
            }
        }
        self.strays.remove(begins.file.path());
        self.is_cut = false;
        self.place = (begins.base, 0);
        self.handed = 0;
        self.begun = true;
        self.continues = true;
        self.last = Some(begins);
        self.ends.set_ready(0);
    }

    /// Stores a batch, whose place is ready. Returns its first offset and its position. `active`:
    /// how many partitions were appended to since the last sync.
    pub fn store(
        &mut self,
        with: &Appender<'_>,
        part: &mut Part,
        active: usize,
    ) -> Result<(u64, u64)> {
        let first = self.next;
        part.place(first, self.epoch.unwrap_or_default());
        let Some(last) = &mut self.last else {
            unreachable!("a plan has opened the last segment or made another")
        };
        let (position, bytes) = (last.len, part.bytes());
        let end = position + bytes.len() as u64;
        last.populate(end, with.allocator, active);
        let Some(region) = &last.region else {
            unreachable!("the place of the batch is mapped")
        };
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
        Ok((first, position))
    }

    /// Publishes what was stored. Returns whether there was nothing to sync before, and whether
    /// there was nothing to save; false for a shared partition, for which the leader does both.
    /// `others`: as in [`Writing::catch_up`].
    pub fn publish(&mut self, others: u64) -> (bool, bool) {
        self.ends.publish(self.end());
        if self.ends.is_shared() {
            self.known = Some(others);
            return (false, false);
        }
        let unsynced = !std::mem::replace(&mut self.is_unsynced, true);
        (unsynced, !std::mem::replace(&mut self.is_unsaved, true))
    }

    /// Whether to request a flush: this many messages are not durable, and were appended since the
    /// last request.
    #[inline]
    pub fn must_flush(&mut self, messages: Option<u64>) -> bool {
        let Some(messages) = messages else {
            return false;
        };
        if self.next.saturating_sub(self.flush_from) < messages {
            return false;
        }
        // Another process may have flushed, if they share the partition.
        self.flush_from = self.flush_from.max(self.ends.durable_offset());
        let must = self.next.saturating_sub(self.flush_from) >= messages;
        if must {
            self.flush_from = self.next;
        }
        must
    }

    /// Whether the last segment has messages, or may have some of other processes.
    pub fn is_used(&self) -> bool {
        self.ends.is_shared() || self.place.1 > 0
    }

    /// Base, length and next offset.
    pub fn end(&self) -> End {
        End {
            base: self.place.0,
            len: self.place.1,
            offset: self.next,
        }
    }

    /// Takes what was appended since the last call, to be synced.
    pub fn take_unsynced(&mut self) -> Unsynced {
        self.is_unsynced = false;
        self.flush_from = self.next;
        let from = std::mem::replace(&mut self.handed, self.place.1);
        let last = self.last.as_ref();
        Unsynced {
            ends: Arc::clone(&self.ends),
            end: self.end(),
            sealed: std::mem::take(&mut self.sealed),
            last: last.map(|last| (Arc::clone(&last.file), from, last.len)),
            is_shared: false,
            begun: std::mem::take(&mut self.begun),
            prepared: std::mem::take(&mut self.prepared),
        }
    }

    /// Takes the entries that the index files lack.
    pub fn take_unsaved(&mut self) -> Unsaved {
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
    pub fn remove_strays(&mut self, disk: &dyn Disk, first: &Path) -> Result<()> {
        while let Some(log) = self.strays.last().filter(|log| **log >= *first) {
            if disk.stat(log)?.is_some() {
                disk.unlink(log)?;
            }
            disk.sync_directory(&self.ends.folder)?;
            self.strays.pop_last();
        }
        Ok(())
    }

    /// Completes the last segment, for a clean stop. Returns log file, length and indexes.
    pub fn seal_last(&mut self) -> Option<(PathBuf, u64, Indexes)> {
        let mut last = self.last.take()?;
        last.file.unmap();
        last.indexes.close();
        Some((self.ends.path_of(last.base), last.len, last.indexes))
    }
}
