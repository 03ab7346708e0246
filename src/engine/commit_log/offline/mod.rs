//! Builds queues and index offline: from ranges of the log, in many processes, without opening the
//! store.
//!
//! ```text
//!   lay      a range of the log: writes its queue entries to their places in the queue files,
//!            which follow from the offsets, and its keys to a separate file, in log order
//!   merge    all ranges: checks offsets across ranges, and writes fillers
//!   index    one index file; its first key follows from the number of keys before it
//!   install  replaces the queues and index of a store
//! ```
//!
//! Several processes may run a step at once, or repeat it: each run writes the same bytes, those
//! that dispatch writes for a store without queues and index. Dispatch decides some cases by what
//! came before (an offset seen twice, an unexplained gap). These are refused here; opening the
//! store decides them.

mod install;
mod keys;
mod merge;
mod rows;

pub use install::StoreLock;
pub use keys::IndexKeys;
pub use merge::Merged;

use super::index::is_indexed;
use super::log::Log;
use super::log::bridge::is_bridge;
use super::log::sound::{Depth, Place, Sound, SoundWalk};
use super::queues::queue::entry::{QueueEntry, queue_and_offset};
use super::queues::queue::is_directory_name;
use super::recovery::geometry;
use super::tables::abort;
use crate::disk::Disk;
use crate::engine::directory::geometry::Geometry;
use crate::engine::directory::kept_options::Kept;
use crate::engine::directory::page::StatePage;
use crate::engine::directory::recognise::{Maker, recognise};
use crate::engine::directory::writer;
use crate::error::{Error, Result};
use crate::mapped::queue::FoundFile;
use crate::options::{DelayLevels, EngineKind, Options};
use crate::record::rocketmq::Record;
use crate::record::rocketmq::properties::{Known, TopicHash};
use crate::region::Access;
use keys::StagedKeys;
use rows::LaidRows;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// The log of a store that no process writes.
#[derive(Debug)]
pub struct Quarry {
    disk: Arc<dyn Disk>,
    files: Vec<FoundFile>,
    geometry: Geometry,
    log: Arc<Log>,
    /// How long the messages of each delay level wait.
    delays: DelayLevels,
    /// Whether Forebay created the store.
    ours: bool,
}

/// Consecutive offsets of a queue in a range of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaidRun {
    /// Its topic.
    pub topic: String,
    /// Its number.
    pub queue: u32,
    /// The offsets.
    pub offsets: Range<u64>,
    /// Position of the record at the first offset.
    pub position: u64,
}

/// What was found in a range of the log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Laid {
    /// First position of the range.
    pub start: u64,
    /// Position after its last record or BLANK; 0 if there is none.
    pub end: u64,
    /// Records.
    pub records: u64,
    /// Keys.
    pub keys: u64,
    /// Runs of all queues; those of one queue are in log order.
    pub runs: Vec<LaidRun>,
    /// Damage with records after it.
    pub holes: Vec<Range<u64>>,
    /// Records that fill holes.
    pub bridges: Vec<Range<u64>>,
}

impl Quarry {
    /// Opens the log of the store at `root`.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if there is no store. [`Error::Unsupported`] if a Forebay writer did not
    /// close it: opening it must decide where its log ends. Whether a process writes the store is
    /// not checked here; see [`Quarry::check_unwritten`].
    pub fn open(disk: &Arc<dyn Disk>, root: &Path) -> Result<Quarry> {
        if recognise(&**disk, root)? == Maker::Nobody {
            let path = root.to_owned();
            return Err(Error::NotFound { path });
        }
        let state = StatePage::open(&**disk, root, Access::Read)?;
        let ours = state.is_some();
        if ours && abort::is_there(&**disk, root)? && !abort::is_foreign(&**disk, root)? {
            let what = format!(
                "building the queues of {}, which was not closed: open it for writing once",
                root.display()
            );
            return Err(Error::Unsupported { what });
        }
        let mut files = geometry::log_files(&**disk, root, ours)?;
        let options = Options::default();
        let geometry = geometry::geometry(&**disk, root, state.as_ref(), &files, &options)?;
        files.retain(|file| file.len > 0 && file.start % geometry.log_file_len == 0);
        let log = Arc::new(Log::of_files(disk, root, &files, geometry.log_file_len)?);
        let kept = Kept::load(&**disk, root, &options, EngineKind::CommitLog)?;
        Ok(Quarry {
            delays: kept.options.delay_levels(),
            disk: Arc::clone(disk),
            files,
            geometry,
            log,
            ours,
        })
    }

    /// Fails if a process writes the store.
    pub fn check_unwritten(disk: &dyn Disk, root: &Path) -> Result<()> {
        writer::check_unwritten(disk, root)
    }

    /// The ranges to lay: one per log file. A missing file belongs to the range before it.
    pub fn ranges(&self) -> Vec<Range<u64>> {
        let ends = self.files.iter().skip(1).map(|file| file.start);
        let end = self.files.last().map(|file| file.start + file.len);
        let starts = self.files.iter().map(|file| file.start);
        starts.zip(ends.chain(end)).map(|(a, b)| a..b).collect()
    }

    /// Lays the records that begin in `range`; with `index`, their keys too. `token` must be unique
    /// to this attempt, because two attempts at a range may run at once. Durable only after
    /// [`Quarry::sync`].
    pub fn lay(&self, target: &Path, range: Range<u64>, index: bool, token: &str) -> Result<Laid> {
        let mut rows = LaidRows::new(&self.disk, target, self.geometry.queue_file_entries);
        let mut keys = StagedKeys::create(&self.disk, target, range.start, token)?;
        let mut laid = Laid {
            start: range.start,
            ..Laid::default()
        };
        let log_end = self.log.files.last().map_or(0, |file| file.end());
        let walk = SoundWalk::new(&self.log, range.clone(), Depth::Checksums);
        let mut walk = walk.with_limit(log_end);
        let end = loop {
            match walk.next()? {
                None => break walk.position(),
                // Nothing follows: the log ends here.
                Some(Sound::Hole(hole)) if !hole.is_followed => break hole.range.start,
                Some(Sound::Hole(hole)) => laid.holes.push(hole.range),
                Some(Sound::Record(record, Place { position, .. })) => {
                    laid.records += 1;
                    let keys = index.then_some(&mut keys);
                    self.lay_record(&record, position, &mut rows, keys)?;
                    if is_bridge(&record) {
                        let end = position + u64::from(record.layout().total_len);
                        laid.bridges.push(position..end);
                    }
                }
            }
        };
        laid.end = if end > range.start { end } else { 0 };
        laid.runs = rows.finish()?;
        laid.keys = keys.finish()?;
        Ok(laid)
    }

    /// Makes everything laid on this machine durable.
    pub fn sync(&self, target: &Path) -> Result<()> {
        self.disk.sync_file_system(target)
    }

    /// Lays one record, as dispatch does.
    fn lay_record(
        &self,
        record: &Record<'_>,
        position: u64,
        rows: &mut LaidRows<'_>,
        keys: Option<&mut StagedKeys<'_>>,
    ) -> Result<()> {
        let known = Known::read(record.raw_properties());
        let topic = std::str::from_utf8(record.topic()).ok();
        if let Some((queue, offset)) = queue_and_offset(record)
            && let Some(topic) = topic.filter(|topic| is_directory_name(topic))
        {
            let entry = QueueEntry::of(record, &known, position, &self.delays);
            rows.push(topic, queue, offset, entry)?;
        }
        if let Some(keys) = keys.filter(|_| is_indexed(record)) {
            let topic = TopicHash::new(record.topic());
            for key in known.index_keys() {
                keys.push(topic.of(key), position, record.store_timestamp())?;
            }
        }
        Ok(())
    }
}
