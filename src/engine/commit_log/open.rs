//! Opening: lock, load, recover, erase what lies behind the end, catch up queues and index, serve.

use super::append::Tail;
use super::consume_queue::{ConsumeQueue, QueueStore, list_queues};
use super::dispatch::{Dispatcher, Finder, is_directory_name};
use super::index::Index;
use super::layout::{self, Maker};
use super::log::Log;
use super::queues::Queues;
use super::recover::{Outcome, Trust, walk};
use super::report::Report;
use super::shared::Shared;
use super::state::{Geometry, Mark, StatePage};
use super::tables::{Inventory, TopicTable};
use crate::disk::{self, Disk, FileLock, Kind, LockState, RealDisk};
use crate::engine::{Recovery, Topics};
use crate::error::{Error, Result};
use crate::mapped::queue::{FoundFile, file_name};
use crate::mapped::{Access, Allocator, Extent, MappedFileQueue, PAGE, Preparation};
use crate::options::{Flush, Mode, Options};
use crate::record::properties::{Known, index_hash};
use crate::record::{HostBytes, Record};
use parking_lot::Mutex;
use std::net::SocketAddr;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::{Duration, Instant};

/// Everything that opening hands to the engine.
pub struct Opened {
    /// The parts.
    pub shared: Arc<Shared>,
    /// The lock, where the store is written.
    pub lock: Option<FileLock>,
    /// What was found and done.
    pub recovery: Recovery,
    /// Written into records.
    pub host: HostBytes,
    /// Log positions whose keys the index does not have, in a store that may not be written.
    pub unindexed: Range<u64>,
    /// Whether another process writes the store.
    pub live: bool,
}

/// Opens the store at `root` as the options say.
pub fn open(root: &Path, options: &Options) -> Result<Opened> {
    let started = Instant::now();
    let real: Arc<dyn Disk> = Arc::new(RealDisk);
    let maker = layout::recognise(&*real, root)?;
    let mut opened = match (options.mode, maker) {
        (Mode::Read, Maker::Nobody) => Err(Error::NotFound {
            path: root.to_owned(),
        }),
        (Mode::Create, Maker::Forebay | Maker::Other) => Err(Error::Exists {
            path: root.to_owned(),
        }),
        (Mode::Append, Maker::Other) if !options.adopt => Err(Error::Foreign {
            path: root.to_owned(),
        }),
        (Mode::Read, _) => open_read_only(&real, root, options),
        _ => open_for_writing(&real, root, options),
    }?;
    opened.recovery.elapsed = started.elapsed();
    Ok(opened)
}

/// A store on its way to being open.
struct Opening<'a> {
    disk: Arc<dyn Disk>,
    root: &'a Path,
    options: &'a Options,
    access: Access,
    files: Vec<FoundFile>,
    geometry: Geometry,
    state: Arc<StatePage>,
    topics: Arc<Topics>,
    queues: Arc<Queues>,
    index: Option<Arc<Index>>,
    report: Arc<Report>,
    table: TopicTable,
    recovery: Recovery,
    last_store_ms: i64,
    unindexed: Range<u64>,
}

fn open_for_writing(disk: &Arc<dyn Disk>, root: &Path, options: &Options) -> Result<Opened> {
    disk.create_directory(root)
        .map_err(|e| Error::io("create", root, e))?;
    let lock_path = root.join("lock");
    let state = StatePage::open(&**disk, root, Access::ReadWrite)?;
    let lock = match disk::lock(&lock_path).map_err(|e| Error::io("lock", &lock_path, e))? {
        LockState::Held(lock) => lock,
        LockState::Taken => {
            let pid = state.and_then(|state| state.pid());
            return Err(Error::Locked {
                path: root.to_owned(),
                pid,
            });
        }
    };
    if layout::has_foreign_queues(&**disk, root)? {
        let what = format!(
            "writing to {}: its queues are kept in RocksDB or in batches; mode=\"r\" reads it",
            root.display()
        );
        return Err(Error::Unsupported { what });
    }
    let mut opening = Opening::new(disk, root, options, Access::ReadWrite, state)?;
    let host = opening.host();
    let begin = opening.mark_running()?;
    let outcome = opening.recover(begin)?;
    opening.settle_end(&outcome)?;
    let shared = opening.finish(&outcome)?;
    let recovery = shared.1;
    Ok(Opened {
        shared: shared.0,
        lock: Some(lock),
        recovery,
        host,
        unindexed: 0..0,
        live: false,
    })
}

fn open_read_only(real: &Arc<dyn Disk>, root: &Path, options: &Options) -> Result<Opened> {
    let lock = root.join("lock");
    let locked = disk::probe(&lock).map_err(|e| Error::io("look at", &lock, e))?;
    let state = StatePage::open(&**real, root, Access::Read)?;
    let live = locked && state.as_ref().is_some_and(StatePage::is_of_this_boot);
    // A live RocketMQ may truncate its files, which a map would answer with a signal: copy instead.
    let disk: Arc<dyn Disk> = if locked && !live {
        Arc::new(super::copying::CopyingDisk)
    } else {
        Arc::clone(real)
    };
    let mut opening = Opening::new(&disk, root, options, Access::Read, state)?;
    let host = opening.host();
    if live {
        return opening.follow(host);
    }
    let begin = opening.begin(opening.abort_is_there()?)?;
    let outcome = opening.recover(begin)?;
    let unindexed = opening.unindexed.clone();
    let (shared, recovery) = opening.finish(&outcome)?;
    Ok(Opened {
        shared,
        lock: None,
        recovery,
        host,
        unindexed,
        live: false,
    })
}

/// Where recovery begins, and what it may rely on.
#[derive(Clone, Debug)]
struct Begin {
    from: u64,
    trust: Trust,
    clean: bool,
    inventory: Option<Inventory>,
}

impl<'a> Opening<'a> {
    fn new(
        disk: &Arc<dyn Disk>,
        root: &'a Path,
        options: &'a Options,
        access: Access,
        state: Option<StatePage>,
    ) -> Result<Opening<'a>> {
        let files = layout::log_files(&**disk, root)?;
        let geometry = layout::geometry(&**disk, root, state.as_ref(), &files, options)?;
        let topics = Arc::new(Topics::default());
        let table = TopicTable::load(&**disk, root, &topics)?;
        let store = QueueStore {
            disk: Arc::clone(disk),
            directory: root.join("consumequeue"),
            file_entries: geometry.queue_file_entries,
            access,
            spill: super::spill::Spill::default(),
            mapped: AtomicU64::new(0),
        };
        let index = options.index.then(|| {
            let sizes = (geometry.index_slots, geometry.index_entries);
            Arc::new(Index::new(disk, root.join("index"), sizes, access))
        });
        let state = match (state, access) {
            (Some(state), _) => state,
            (None, Access::Read) => StatePage::in_memory()?,
            (None, Access::ReadWrite) => StatePage::create(&**disk, root)?,
        };
        Ok(Opening {
            disk: Arc::clone(disk),
            root,
            options,
            access,
            files,
            geometry,
            state: Arc::new(state),
            topics,
            queues: Arc::new(Queues::new(Arc::new(store))),
            index,
            report: Arc::new(Report::default()),
            table,
            recovery: Recovery::default(),
            last_store_ms: 0,
            unindexed: 0..0,
        })
    }

    /// The host that records carry: the option's, the one kept from creation, this machine's.
    fn host(&self) -> HostBytes {
        let given = self.options.store_host.map(HostBytes::new);
        given
            .or_else(|| self.state.host())
            .unwrap_or_else(|| HostBytes::new(SocketAddr::new(disk::host_address(), 0)))
    }

    fn abort_is_there(&self) -> Result<bool> {
        let path = self.root.join("abort");
        let found = self
            .disk
            .look(&path)
            .map_err(|e| Error::io("look at", &path, e))?;
        Ok(found.is_some())
    }

    /// Leaves `abort` and a running state page, durably, before anything else is changed. Returns
    /// where recovery begins, by what was there before.
    fn mark_running(&mut self) -> Result<Begin> {
        let abort = self.root.join("abort");
        let crashed = self.abort_is_there()?;
        let begin = self.begin(crashed)?;
        let at = abort.clone();
        let io = |doing| {
            let at = at.clone();
            move |error| Error::io(doing, &at, error)
        };
        if crashed {
            self.disk.unlink(&abort).map_err(io("unlink"))?;
        }
        let pid = std::process::id().to_string();
        self.disk
            .write_at(&abort, 0, pid.as_bytes())
            .map_err(io("write"))?;
        for name in ["commitlog", "consumequeue", "config"] {
            let path = self.root.join(name);
            self.disk
                .create_directory(&path)
                .map_err(|e| Error::io("create", &path, e))?;
        }
        self.state.set_geometry(&self.geometry);
        self.state.set_host(&self.host());
        self.state.end_epoch(false);
        self.state.sync(&*self.disk)?;
        self.disk.sync_file(&abort).map_err(io("sync"))?;
        self.disk.sync_directory(self.root).map_err(io("sync"))?;
        if let Some(parent) = self.root.parent() {
            self.disk
                .sync_directory(parent)
                .map_err(|e| Error::io("sync", parent, e))?;
        }
        Ok(begin)
    }

    /// Chooses where the log is walked from: as late as what is known of the last life allows.
    fn begin(&self, crashed: bool) -> Result<Begin> {
        let min = self.files.first().map_or(0, |file| file.start);
        let end = self.files.last().map_or(0, |file| file.start + file.len);
        let known = |mark| Some(self.state.get(mark)).filter(|at| (min..=end).contains(at));
        let clean = !crashed && self.state.is_clean();
        let inventory = match self.state.epoch() {
            0 => None,
            _ => Inventory::load(&*self.disk, self.root)?,
        };
        let by_marks = match (self.state.epoch(), clean) {
            (0, _) => None,
            (_, true) => known(Mark::Published).map(|at| (at, Trust::Below(at))),
            (_, false) if crashed && self.state.is_clean() => {
                // Another system wrote here since our clean close, and did not close.
                known(Mark::Published).map(|at| (at, Trust::Everywhere))
            }
            (_, false) if self.state.is_of_this_boot() => {
                let from = known(Mark::Dispatched).zip(known(Mark::Durable));
                let published = self.state.get(Mark::Published);
                from.map(|(a, b)| (a.min(b), Trust::Below(published)))
            }
            (_, false) => {
                let durable = self.state.get(Mark::Durable);
                known(Mark::Settled).map(|at| (at, Trust::Below(durable)))
            }
        };
        let (from, trust) = match by_marks {
            Some(found) => found,
            None if !crashed => (self.last_used_file(), Trust::Everywhere),
            None => (min, Trust::Everywhere),
        };
        Ok(Begin {
            from,
            trust,
            clean: !crashed,
            inventory,
        })
    }

    /// Start of the newest log file that holds a record at its begin.
    fn last_used_file(&self) -> u64 {
        let directory = self.root.join("commitlog");
        let used = self.files.iter().rev().find(|file| {
            let mut head = [0; 8];
            let path = directory.join(file_name(file.start));
            self.disk.read_at(&path, 0, &mut head).is_ok() && head != [0; 8]
        });
        used.or(self.files.first()).map_or(0, |file| file.start)
    }

    /// The log as it lies on disk, every byte readable, for the walk alone.
    fn whole_log(&self) -> Result<Arc<Log>> {
        let directory = self.root.join("commitlog");
        let files = MappedFileQueue::new(&self.disk, directory, self.geometry.log_file_len);
        files.load(&self.files, Access::Read, |_| Extent::Full);
        let state = Arc::new(StatePage::in_memory()?);
        state.set(Mark::Published, u64::MAX);
        Ok(Arc::new(Log {
            files,
            state,
            sync: false,
        }))
    }

    /// Walks the log and brings queues and index up to it.
    fn recover(&mut self, begin: Begin) -> Result<Outcome> {
        let log = self.whole_log()?;
        let min = self.files.first().map_or(0, |file| file.start);
        self.load_queues(&log, &begin)?;
        let mut from = begin.from;
        if !self.queues_are_complete(&begin) {
            from = min;
        }
        self.recovery.clean = begin.clean;
        self.recovery.walked_from = from;
        let index_complete = self.load_index(&begin)?;
        let index_from = if index_complete {
            self.index_end()
        } else {
            None
        };
        let trust = begin.trust;
        let mut outcome = self.walk_from(&log, from, trust, index_from)?;
        if from > min && self.has_gap() {
            // A queue lacks entries below the place where the walk began.
            outcome = self.walk_from(&log, min, trust, index_from)?;
            self.recovery.walked_from = min;
            from = min;
        }
        self.cut_queues(outcome.end)?;
        self.complete_index(&log, index_complete, from, &outcome)?;
        self.name_losses(&mut outcome)?;
        for damage in &outcome.damage {
            self.report.add(damage.clone());
        }
        self.last_store_ms = outcome.last_store_ms;
        if self.last_store_ms == 0 && outcome.end > min {
            self.last_store_ms = last_store_ms(&log, outcome.end)?;
        }
        self.recovery.records_checked = outcome.records;
        self.recovery.stale_checksums = outcome.stale_checksums;
        self.recovery.end = outcome.end;
        Ok(outcome)
    }

    fn walk_from(
        &mut self,
        log: &Arc<Log>,
        from: u64,
        trust: Trust,
        index_from: Option<u64>,
    ) -> Result<Outcome> {
        let (topics, queues) = (Arc::clone(&self.topics), Arc::clone(&self.queues));
        let index = self
            .index
            .clone()
            .filter(|_| self.access == Access::ReadWrite);
        let report = Arc::clone(&self.report);
        let mut finder = Finder::default();
        let mut rebuilt = 0;
        let mut indexed = 0;
        let mut unindexed: Option<u64> = None;
        let can_index = index_from.is_some() || self.index_end().is_none();
        let mut visit = |record: &Record<'_>, position: u64| -> Result<()> {
            let known = Known::read(record.raw_properties());
            if let Some((queue, offset, entry)) =
                finder.find(&topics, &queues, record, &known, position)
            {
                match queue.put(offset, entry) {
                    Ok(stored) => rebuilt += u64::from(stored),
                    Err(Error::Corrupt {
                        path,
                        position,
                        reason,
                    }) => {
                        let lost = Vec::new();
                        report.add(crate::engine::Damage {
                            path,
                            position,
                            length: 0,
                            reason,
                            lost,
                        });
                    }
                    Err(error) => return Err(error),
                }
            }
            let after = index_from.is_none_or(|end| position >= end);
            if after && known.index_keys().next().is_some() {
                match &index {
                    Some(index) if can_index => {
                        indexed += put_keys(index, record, &known, position)?;
                    }
                    _ => {
                        unindexed.get_or_insert(position);
                    }
                }
            }
            Ok(())
        };
        let outcome = walk(log, from, trust, &mut visit)?;
        self.recovery.queue_entries_rebuilt += rebuilt;
        self.recovery.index_entries_rebuilt += indexed;
        if let Some(start) = unindexed.filter(|start| Some(*start) != index_from) {
            self.unindexed = start..outcome.end;
        }
        Ok(outcome)
    }

    /// Opens every queue that has a directory and finds its bounds.
    fn load_queues(&self, log: &Log, begin: &Begin) -> Result<()> {
        let directory = &self.queues.store.directory;
        let io = |error| Error::io("list", directory, error);
        let foreign = layout::has_foreign_queues(&*self.disk, self.root)?;
        if !foreign && self.disk.look(directory).map_err(io)?.is_some() {
            for entry in self.disk.list(directory).map_err(io)? {
                let Some(name) = entry.name.filter(|name| is_directory_name(name)) else {
                    continue;
                };
                if entry.kind != Kind::Directory {
                    continue;
                }
                for id in list_queues(&*self.disk, &directory.join(&name))? {
                    let (topic, _) = self.topics.get_or_add(&name, id + 1);
                    if topic.write_queues() <= id && !self.table.knows(&name) {
                        topic.configure(id + 1, id + 1, topic.permissions());
                    }
                    let queue = ConsumeQueue::open(&self.queues.store, &name, id)?;
                    find_bounds(&queue, log)?;
                    self.queues.add(&topic, Arc::new(queue));
                }
            }
        }
        for (name, id, min, next) in begin.inventory.iter().flat_map(|known| &known.queues) {
            let (topic, _) = self.topics.get_or_add(name, id + 1);
            let queue = self.queues.get_or_add(&topic, *id);
            if queue.max() == 0 && queue.first_on_disk().is_none() && min == next {
                queue.set_bounds(*next, *next);
            }
        }
        Ok(())
    }

    /// Whether every queue that the last close knew of is there to its end.
    fn queues_are_complete(&self, begin: &Begin) -> bool {
        let Some(inventory) = &begin.inventory else {
            // Without one: queues are there, or nothing was ever stored.
            return self
                .queues
                .all(&self.topics)
                .iter()
                .any(|(_, queue)| queue.max() > 0)
                || begin.from == self.files.first().map_or(0, |file| file.start);
        };
        inventory.queues.iter().all(|(name, id, min, next)| {
            let queue = self
                .topics
                .get(name)
                .and_then(|topic| self.queues.get(&topic, *id));
            queue.is_some_and(|queue| queue.max() >= *next && queue.covers(*min))
        })
    }

    /// Whether fillers were put into a queue because the walk began behind its missing entries.
    fn has_gap(&self) -> bool {
        self.queues
            .all(&self.topics)
            .iter()
            .any(|(_, queue)| queue.was_bridged())
    }

    fn load_index(&self, begin: &Begin) -> Result<bool> {
        let Some(index) = &self.index else {
            return Ok(true);
        };
        let end = self.files.last().map_or(0, |file| file.start + file.len);
        let sound = index.load(end)?;
        let files = index.files();
        let known = begin
            .inventory
            .iter()
            .flat_map(|inventory| &inventory.index);
        let all_there = known.clone().all(|(name, count)| {
            let same = |file: &&Arc<super::index::IndexFile>| {
                file.path()
                    .file_name()
                    .is_some_and(|found| found.to_string_lossy() == *name)
            };
            files
                .iter()
                .find(same)
                .is_some_and(|file| file.count() >= *count)
        });
        Ok(sound && all_there && (known.count() > 0 || !files.is_empty()))
    }

    fn index_end(&self) -> Option<u64> {
        self.index.as_ref().and_then(|index| index.end_position())
    }

    /// Puts what the walk could not: keys of records before it, or of a whole index that is lost.
    fn complete_index(
        &mut self,
        log: &Arc<Log>,
        complete: bool,
        from: u64,
        outcome: &Outcome,
    ) -> Result<()> {
        let Some(index) = self.index.clone() else {
            return Ok(());
        };
        let min = self.files.first().map_or(0, |file| file.start);
        if self.access == Access::Read {
            if !complete || self.index_end().is_some_and(|end| end >= outcome.end) {
                self.unindexed = min..outcome.end;
            }
            return Ok(());
        }
        let again = if complete {
            index.cut(outcome.end)?
        } else if index.files().is_empty() && from == min {
            // Nothing was there, and the walk has put everything.
            None
        } else {
            index.clear()?;
            Some(min)
        };
        let Some(start) = again else { return Ok(()) };
        let mut rebuilt = 0;
        let mut visit = |record: &Record<'_>, position: u64| -> Result<()> {
            let known = Known::read(record.raw_properties());
            if position < outcome.end {
                rebuilt += put_keys(&index, record, &known, position)?;
            }
            Ok(())
        };
        walk(log, start, Trust::Below(outcome.end), &mut visit)?;
        self.recovery.index_entries_rebuilt += rebuilt;
        Ok(())
    }

    /// Entries behind the end of the log lead nowhere.
    fn cut_queues(&self, end: u64) -> Result<()> {
        let min = self.files.first().map_or(0, |file| file.start);
        for (_, queue) in self.queues.all(&self.topics) {
            let mut max = queue.max();
            while max > queue.min() {
                match queue.entry(max - 1)? {
                    Some(entry) if entry.is_message(end) => break,
                    Some(entry) if entry.size == super::consume_queue::FILLER_SIZE => break,
                    _ => max -= 1,
                }
            }
            if max < queue.max() {
                queue.truncate(max)?;
            }
            queue.correct_min(min)?;
        }
        Ok(())
    }

    /// Finds the queue entries that lead into holes: the messages that are lost. Where the store may be
    /// written they become fillers.
    fn name_losses(&self, outcome: &mut Outcome) -> Result<()> {
        for damage in &mut outcome.damage {
            let hole = damage.position..damage.position + damage.length;
            for (topic, queue) in self.queues.all(&self.topics) {
                for number in queue.entries_in(&hole)? {
                    damage.lost.push((topic.name.to_string(), queue.id, number));
                    if self.access == Access::ReadWrite {
                        queue.put(number, super::consume_queue::QueueEntry::FILLER)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Makes the end of the log final: what is kept is durable, what lies behind it is erased.
    fn settle_end(&mut self, outcome: &Outcome) -> Result<()> {
        let directory = self.root.join("commitlog");
        let len = self.geometry.log_file_len;
        let durable = match self.recovery.clean {
            true => outcome.end,
            false => self.state.get(Mark::Durable).min(outcome.end),
        };
        let mut erased = 0;
        for file in std::mem::take(&mut self.files) {
            let path = directory.join(file_name(file.start));
            if file.start >= outcome.end && file.start > 0 || file.len != len {
                self.disk
                    .unlink(&path)
                    .map_err(|e| Error::io("unlink", &path, e))?;
                continue;
            }
            let end = file.start + file.len;
            if end > durable && file.start < outcome.end {
                let region = self.disk.map(&path, len as usize, Access::ReadWrite);
                let region = region.map_err(|e| Error::io("map", &path, e))?;
                let from = durable.saturating_sub(file.start) as usize;
                let to = (outcome.end.min(end) - file.start) as usize;
                // A sync that failed in the last life may have left pages that look clean.
                region.rewrite(from, to - from);
                let synced = region.sync(from / PAGE * PAGE, to - from / PAGE * PAGE);
                synced.map_err(|e| Error::io("sync", &path, e))?;
            }
            if end > outcome.end {
                erased += self.erase_tail(&path, outcome.end.saturating_sub(file.start), len)?;
            }
            self.files.push(file);
        }
        self.disk
            .sync_directory(&directory)
            .map_err(|e| Error::io("sync", &directory, e))?;
        self.recovery.truncated_bytes = erased;
        Ok(())
    }

    /// Turns what lies at or behind `from` of a file into zeros, where there is anything.
    fn erase_tail(&self, path: &Path, from: u64, len: u64) -> Result<u64> {
        let io = |error| Error::io("erase", path, error);
        let Some(data) = self.disk.next_data(path, from).map_err(io)? else {
            return Ok(0);
        };
        let region = self
            .disk
            .map(path, len as usize, Access::Read)
            .map_err(io)?;
        region.publish(len as usize);
        let mut at = data.max(from);
        let mut last = None;
        while at < len {
            let chunk = (len - at).min(1 << 20);
            let bytes = region
                .slice(at as usize, chunk as usize)
                .unwrap_or_default();
            if let Some(found) = bytes.iter().rposition(|byte| *byte != 0) {
                last = Some(at + found as u64 + 1);
            }
            at = match self.disk.next_data(path, at + chunk).map_err(io)? {
                Some(next) => next.max(at + chunk),
                None => break,
            };
        }
        let Some(last) = last else { return Ok(0) };
        drop(region);
        self.disk.erase(path, from, len - from).map_err(io)?;
        self.disk.sync_file(path).map_err(io)?;
        Ok(last - from)
    }

    /// Puts the parts together.
    fn finish(self, outcome: &Outcome) -> Result<(Arc<Shared>, Recovery)> {
        let end = outcome.end;
        let directory = self.root.join("commitlog");
        let files = MappedFileQueue::new(&self.disk, directory, self.geometry.log_file_len);
        files.load(&self.files, self.access, |file| {
            match end.saturating_sub(file.start) {
                written if written >= file.len => Extent::Full,
                written => Extent::Part(written),
            }
        });
        let state = match self.access {
            Access::ReadWrite => Arc::clone(&self.state),
            // A page that may not be written tells of another's marks; ours are kept in memory.
            Access::Read => Arc::new(StatePage::in_memory()?),
        };
        for mark in [Mark::Published, Mark::Dispatched, Mark::Durable] {
            state.set(mark, end);
        }
        let min = self.files.first().map_or(0, |file| file.start);
        state.set(Mark::Minimum, min);
        if self.access == Access::ReadWrite {
            if self.recovery.clean && self.recovery.queue_entries_rebuilt == 0 {
                for (_, queue) in self.queues.all(&self.topics) {
                    queue.set_synced();
                }
            }
            state.begin_epoch(end);
            state.set(Mark::Settled, if self.recovery.clean { end } else { min });
        }
        let sync = self.options.flush == Flush::Sync && self.access == Access::ReadWrite;
        let log = Arc::new(Log { files, state, sync });
        let recovery = self.recovery.clone();
        let shared = self.shared(log, end, None)?;
        Ok((Arc::new(shared), recovery))
    }

    fn shared(self, log: Arc<Log>, end: u64, source: Option<Arc<StatePage>>) -> Result<Shared> {
        let preparation = Preparation {
            warm_up: self.options.warm_up,
            lock: self.options.lock_memory,
            random_reads: !self.options.read_ahead,
        };
        let populate = self.options.flush == Flush::Async && !self.options.warm_up;
        let (tail_end, populate) = match self.access {
            Access::ReadWrite => (end, populate),
            Access::Read => (u64::MAX, false),
        };
        let mut tail = Tail::new(&log, tail_end, self.last_store_ms, populate)?;
        for (topic, queue) in self.queues.all(&self.topics) {
            tail.set_next_offset(&topic, queue.id, queue.max());
        }
        let dispatcher = Dispatcher::new(&log, &self.topics, &self.queues, self.index.as_ref());
        Ok(Shared {
            root: self.root.to_owned(),
            allocator: Allocator::new(&self.disk, preparation),
            disk: self.disk,
            log,
            topics: self.topics,
            queues: self.queues,
            index: self.index,
            dispatcher,
            preparation,
            tail: Mutex::new(tail),
            table: Mutex::new(self.table),
            table_dirty: AtomicBool::new(false),
            source,
            report: self.report,
            work: Default::default(),
            news: Default::default(),
            stop_bell: Default::default(),
            flush_interval: self.options.flush_interval,
            settle_interval: Duration::from_secs(10),
            stop: AtomicBool::new(false),
            flush_lock: Mutex::new(()),
            failure: Mutex::new(None),
            failed: AtomicBool::new(false),
        })
    }

    /// Joins a store that another process writes: its marks are followed, nothing is walked.
    fn follow(mut self, host: HostBytes) -> Result<Opened> {
        let end = self.state.get(Mark::Published);
        self.recovery.end = end;
        let directory = self.root.join("commitlog");
        let files = MappedFileQueue::new(&self.disk, directory, self.geometry.log_file_len);
        files.load(&self.files, Access::Read, |file| {
            match end.saturating_sub(file.start) {
                written if written >= file.len => Extent::Full,
                written => Extent::Part(written),
            }
        });
        let state = Arc::new(StatePage::in_memory()?);
        let log = Arc::new(Log {
            files,
            state,
            sync: false,
        });
        if let Some(index) = &self.index {
            index.load(u64::MAX)?;
        }
        let recovery = self.recovery.clone();
        let source = Arc::clone(&self.state);
        let shared = Arc::new(self.shared(log, u64::MAX, Some(source))?);
        super::follow::refresh(&shared)?;
        Ok(Opened {
            shared,
            lock: None,
            recovery,
            host,
            unindexed: 0..0,
            live: true,
        })
    }
}

/// Puts the entries of a record's keys, unless they are there; returns how many were put.
fn put_keys(index: &Index, record: &Record<'_>, known: &Known<'_>, position: u64) -> Result<u64> {
    let mut put = 0;
    let last = index.end_position();
    for key in known.index_keys() {
        let hash = index_hash(record.topic(), key);
        // A process that died between two keys of a record leaves the first in the index.
        let there = last == Some(position)
            && index
                .files()
                .iter()
                .rev()
                .take(2)
                .any(|file| file.contains(hash, position));
        if !there && last.is_none_or(|last| position >= last) {
            index.put(hash, position, record.store_timestamp())?;
            put += 1;
        }
    }
    Ok(put)
}

/// Finds the bounds of a queue from its files: up to the last entry that leads to its own record.
fn find_bounds(queue: &ConsumeQueue, log: &Log) -> Result<()> {
    let first = queue.first_on_disk().unwrap_or(0);
    let mut max = queue.last_on_disk()?;
    while max > first {
        let entry = queue.entry(max - 1)?;
        let sound = entry.is_some_and(|entry| {
            entry.size != super::consume_queue::FILLER_SIZE
                && log.record_at(entry.position).is_ok_and(|message| {
                    let record = message.record();
                    record.queue_offset() == (max - 1) as i64
                        && record.queue_id() == queue.id as i32
                        && record.layout().total_len == entry.size
                })
        });
        let expired = entry.is_some_and(|entry| {
            entry.size != super::consume_queue::FILLER_SIZE
                && entry.position + u64::from(entry.size) <= log.min_position()
        });
        if sound || expired {
            break;
        }
        max -= 1;
    }
    queue.set_bounds(first, max);
    Ok(())
}

fn last_store_ms(log: &Arc<Log>, end: u64) -> Result<i64> {
    let start = log.files.find(end - 1).map_or(end, |file| file.start());
    let mut last = 0;
    let mut visit = |record: &Record<'_>, _: u64| {
        last = record.store_timestamp();
        Ok(())
    };
    walk(log, start, Trust::Below(end), &mut visit)?;
    Ok(last)
}
