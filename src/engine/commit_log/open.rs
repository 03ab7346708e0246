//! Opening: lock, load, recover, erase what lies behind the end, catch up queues and index, serve.

use super::append::Tail;
use super::begin::Begin;
use super::consume_queue::QueueStore;
use super::dispatch::Dispatcher;
use super::group_commit::GroupCommit;
use super::index::Index;
use super::layout::{self, Maker};
use super::log::Log;
use super::queues::Queues;
use super::recover::Outcome;
use super::report::Report;
use super::shared::Shared;
use super::state::{Geometry, Mark, StatePage};
use super::tables::TopicTable;
use crate::disk::{self, Disk, FileLock, Holder, LockState, RealDisk};
use crate::engine::{Damage, Recovery, Topics};
use crate::error::{Error, Result};
use crate::mapped::queue::FoundFile;
use crate::mapped::{Access, Allocator, Extent, MappedFileQueue, Preparation};
use crate::options::{Flush, Mode, Options};
use crate::record::HostBytes;
use crossbeam_utils::CachePadded;
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
    permit(root, options, maker)?;
    let mut opened = match options.mode {
        Mode::Read => open_read_only(&real, root, options),
        _ => open_for_writing(&real, root, options),
    }?;
    opened.recovery.elapsed = started.elapsed();
    Ok(opened)
}

/// Whether what is on the disk may be opened in this mode.
fn permit(root: &Path, options: &Options, maker: Maker) -> Result<()> {
    let path = || root.to_owned();
    match (options.mode, maker) {
        (Mode::Read, Maker::Nobody) => Err(Error::NotFound { path: path() }),
        (Mode::Create, Maker::Forebay | Maker::Other) => Err(Error::Exists { path: path() }),
        (Mode::Append, Maker::Other) if !options.adopt => Err(Error::Foreign { path: path() }),
        _ => Ok(()),
    }
}

/// A store on its way to being open.
pub(super) struct Opening<'a> {
    pub(super) disk: Arc<dyn Disk>,
    pub(super) root: &'a Path,
    pub(super) options: &'a Options,
    pub(super) access: Access,
    pub(super) files: Vec<FoundFile>,
    pub(super) geometry: Geometry,
    pub(super) state: Arc<StatePage>,
    pub(super) topics: Arc<Topics>,
    pub(super) queues: Arc<Queues>,
    pub(super) index: Option<Arc<Index>>,
    pub(super) report: Arc<Report>,
    pub(super) table: TopicTable,
    pub(super) recovery: Recovery,
    /// Up to where the log was durable before it was opened.
    pub(super) durable: u64,
    pub(super) last_store_ms: i64,
    pub(super) unindexed: Range<u64>,
}

fn open_for_writing(disk: &Arc<dyn Disk>, root: &Path, options: &Options) -> Result<Opened> {
    if layout::has_foreign_queues(&**disk, root)? {
        let what = format!(
            "writing to {}: its queues are kept in RocksDB or in batches; mode=\"r\" reads it",
            root.display()
        );
        return Err(Error::Unsupported { what });
    }
    let ours = layout::recognise(&**disk, root)? == Maker::Forebay;
    layout::log_files(&**disk, root, ours)?;
    disk.create_directory(root)
        .map_err(|e| Error::io("create", root, e))?;
    let lock_path = root.join("lock");
    let taken = disk::lock(&lock_path).map_err(|e| Error::io("lock", &lock_path, e))?;
    let LockState::Held(lock) = taken else {
        let state = StatePage::open(&**disk, root, Access::Read)?;
        return Err(Error::Locked {
            path: root.to_owned(),
            pid: state.and_then(|state| state.pid()),
        });
    };
    // Another process may have made, written and closed the store until the lock was ours.
    permit(root, options, layout::recognise(&**disk, root)?)?;
    let state = StatePage::open(&**disk, root, Access::ReadWrite)?;
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
    let (holder, state) = look_at_writer(&**real, root)?;
    let live = holder == Holder::Forebay && state.as_ref().is_some_and(StatePage::is_written_to);
    // A live RocketMQ may truncate its files, which a map would answer with a signal: copy instead.
    let disk: Arc<dyn Disk> = if holder != Holder::Nobody && !live {
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
    opening.count_stale(&outcome)?;
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

/// How long a reader waits for a writer that is about to open the store.
const WRITER_OPENS_MAX: Duration = Duration::from_secs(2);

/// Who holds the lock, and the state page. A writer of ours that is still opening the store is
/// waited for a moment: once it writes, its marks can be followed.
fn look_at_writer(disk: &dyn Disk, root: &Path) -> Result<(Holder, Option<StatePage>)> {
    let lock = root.join("lock");
    let deadline = Instant::now() + WRITER_OPENS_MAX;
    loop {
        let holder = disk::probe(&lock).map_err(|e| Error::io("look at", &lock, e))?;
        let state = StatePage::open(disk, root, Access::Read)?;
        let ready = state.as_ref().is_some_and(StatePage::is_written_to);
        if holder != Holder::Forebay || ready || Instant::now() > deadline {
            return Ok((holder, state));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

impl<'a> Opening<'a> {
    fn new(
        disk: &Arc<dyn Disk>,
        root: &'a Path,
        options: &'a Options,
        access: Access,
        state: Option<StatePage>,
    ) -> Result<Opening<'a>> {
        let mut files = layout::log_files(&**disk, root, state.is_some())?;
        let geometry = layout::geometry(&**disk, root, state.as_ref(), &files, options)?;
        let report = Arc::new(Report::default());
        files.retain(|file| {
            let fits = file.start % geometry.log_file_len == 0;
            if !fits {
                report.add(misplaced(root, file));
            }
            fits
        });
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
            report,
            table,
            recovery: Recovery::default(),
            durable: 0,
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
        let begin = self.begin(self.abort_is_there()?)?;
        let abort = self.root.join("abort");
        let pid = std::process::id().to_string();
        // At no moment is the file away: a halt in between would look like a clean close.
        disk::replace(&*self.disk, &abort, pid.as_bytes())
            .map_err(|e| Error::io("write", &abort, e))?;
        for name in ["commitlog", "consumequeue", "config"] {
            let path = self.root.join(name);
            self.disk
                .create_directory(&path)
                .map_err(|e| Error::io("create", &path, e))?;
        }
        self.state.set_fixed(&self.geometry, &self.host());
        self.state.end_epoch(false);
        self.state.sync(&*self.disk)?;
        self.disk
            .sync_directory(self.root)
            .map_err(|e| Error::io("sync", self.root, e))?;
        if let Some(parent) = self.root.parent() {
            self.disk
                .sync_directory(parent)
                .map_err(|e| Error::io("sync", parent, e))?;
        }
        Ok(begin)
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
            let rebuilt = self.recovery.queue_entries_rebuilt + self.recovery.index_entries_rebuilt;
            let settled = self.recovery.clean && rebuilt == 0;
            if settled {
                for (_, queue) in self.queues.all(&self.topics) {
                    queue.trust_durable();
                }
            }
            state.set(Mark::Settled, if settled { end } else { min });
            state.begin_epoch(end, self.options.checksum);
        }
        let sync = self.options.flush == Flush::Sync && self.access == Access::ReadWrite;
        let ready = AtomicU64::new(0);
        let log = Arc::new(Log {
            files,
            state,
            sync,
            ready,
        });
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
            tail: CachePadded::new(Mutex::new(tail)),
            table: Mutex::new(self.table),
            table_dirty: AtomicBool::new(false),
            source,
            report: self.report,
            group: GroupCommit::default(),
            work: Default::default(),
            news: Default::default(),
            stop_bell: Default::default(),
            follow_lock: Mutex::new(()),
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
            ready: AtomicU64::new(0),
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

/// A file whose name says that it begins where no file can.
fn misplaced(root: &Path, file: &FoundFile) -> Damage {
    Damage {
        path: root
            .join("commitlog")
            .join(crate::mapped::queue::file_name(file.start)),
        position: file.start,
        length: file.len,
        reason: "no file of this log begins there".to_owned(),
        lost: Vec::new(),
    }
}
